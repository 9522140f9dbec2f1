"""Batches made by worker processes of PyTorch's `DataLoader`: the order and the epochs of the loader."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import lading
from lading._core.train.loader import Loader
from lading.errors import UsageError
from numbered import write_numbered

torch = pytest.importorskip("torch")
DataLoader = torch.utils.data.DataLoader
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than the machine has cores
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # of torchdata's
]

_BATCHES = 11


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbered(tmp_path_factory.mktemp("samples") / "mds")


def _loader(folder: Path, batch_size: int = 5, **options: Any) -> Loader:
    return lading.loader(folder, batch_size, **{"shuffle": True, "seed": 3, "collate": "torch", **options})


def _numbers(batches: Any) -> list[list[int]]:
    return [batch["number"].tolist() for batch in batches]


@pytest.fixture(scope="module")
def epochs(folder: Path) -> list[list[list[int]]]:
    """The batches of three epochs, without workers."""
    loader = _loader(folder)
    found = [_numbers(loader) for _ in range(3)]
    assert len({json.dumps(each) for each in found}) == 3
    return found


def _workers(dataset: Any, workers: int, **options: Any) -> Any:
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


@pytest.mark.soak
@pytest.mark.parametrize(
    "workers, options",
    [
        (0, {}),
        (3, {}),
        (2, {"persistent_workers": True}),
        pytest.param(2, {"multiprocessing_context": "spawn", "persistent_workers": True}, marks=pytest.mark.soak),
        pytest.param(2, {"multiprocessing_context": "forkserver"}, marks=pytest.mark.soak),
        (1, {}),
    ],
)
def test_the_order_is_that_of_the_loader(
    folder: Path, epochs: list[list[list[int]]], workers: int, options: dict[str, Any]
) -> None:
    dataset = _loader(folder).to_torch()
    loader = _workers(dataset, workers, **options)
    assert len(loader) == _BATCHES
    assert [_numbers(loader) for _ in range(2)] == epochs[:2]
    if options.get("multiprocessing_context") != "forkserver":
        dataset.set_epoch(1)
        assert [_numbers(loader) for _ in range(2)] == epochs[1:]


@pytest.mark.soak
@pytest.mark.parametrize(
    "options", [{"last": "drop"}, {"last": "pad"}, {"rank": 1, "world_size": 2}, {"shuffle": "block"}]
)
def test_any_share_of_the_epoch(folder: Path, options: dict[str, Any]) -> None:
    alone = _loader(folder, 4, **options)
    for workers in (2, 3):
        assert _numbers(_workers(_loader(folder, 4, **options).to_torch(), workers)) == _numbers(alone), workers
        alone.set_epoch(0)


@pytest.mark.soak
def test_more_workers_than_batches(folder: Path) -> None:
    assert _numbers(_workers(_loader(folder, 53).to_torch(), 2)) == _numbers(_loader(folder, 53))


@pytest.mark.soak
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_that_ends_early_is_an_epoch(
    folder: Path, epochs: list[list[list[int]]], workers: int, persistent: bool
) -> None:
    loader = _workers(_loader(folder).to_torch(), workers, persistent_workers=persistent and workers > 0)
    next(iter(loader))
    assert _numbers(loader) == epochs[1]


@pytest.mark.soak
def test_training_goes_on_with_other_workers(folder: Path, epochs: list[list[list[int]]]) -> None:
    dataset = _loader(folder).to_torch()
    loader = _workers(dataset, 2)
    assert _numbers(loader) == epochs[0]
    for step, batch in enumerate(loader, 1):
        assert batch["number"].tolist() == epochs[1][step - 1]
        if step == 4:
            state = json.loads(json.dumps(dataset.state_after(step)))
            break
    resumed = _loader(folder)
    resumed.load_state_dict(state)
    dataset = resumed.to_torch()
    dataset.set_epoch(resumed.epoch)  # as scripts do before every loop
    loader = _workers(dataset, 3)
    assert [_numbers(loader), _numbers(loader)] == [epochs[1][4:], epochs[2]]
    assert _loader(folder).to_torch().state_after(0) == _loader(folder).state_dict()


def test_the_end_of_an_epoch_is_the_begin_of_the_next(folder: Path, epochs: list[list[list[int]]]) -> None:
    resumed = _loader(folder)
    resumed.load_state_dict(_loader(folder).to_torch().state_after(_BATCHES))
    assert (resumed.epoch, _numbers(resumed)) == (1, epochs[1])


@pytest.mark.soak
def test_a_seed_that_comes_again_is_another_loop(folder: Path, epochs: list[list[list[int]]]) -> None:
    loader = _workers(_loader(folder).to_torch(), 2)
    for epoch in epochs:
        torch.manual_seed(0)
        assert _numbers(loader) == epoch


def test_batches_of_two_loops_at_once_are_of_two_epochs(folder: Path, epochs: list[list[list[int]]]) -> None:
    loader = _workers(_loader(folder).to_torch(), 0)
    pairs = [(a["number"].tolist(), b["number"].tolist()) for a, b in zip(loader, loader, strict=True)]
    assert [[*each] for each in zip(*pairs, strict=True)] == epochs[:2]


def test_workers_that_disagree_about_the_epoch_are_an_error(folder: Path) -> None:
    """Loops that begin at once may leave a worker of one of them with an epoch that the others do not have."""
    dataset = _loader(folder).to_torch()
    loops = dataset._loops
    assert loops.begin(0, mark=5) == (0, 0)
    assert loops.begin(0, mark=6) == (1, 0)
    assert loops.begin(1, mark=5) == (0, 0)
    assert loops.begin(1, mark=6) == (1, 0)
    loops._table[2, 0] = (7 << 31) + 9  # what a worker has written that did not see the others
    loops._table[3, 0] = (7 << 31) + 8
    with pytest.raises(UsageError, match=r"began at once.*to_torch\(\)"):
        loops.begin(4, mark=7)


@pytest.mark.soak
def test_a_worker_that_is_late_to_its_first_loop(folder: Path) -> None:
    """Persistent workers: the first may be in the next loop already, if the program ended the loop early."""
    loops = _loader(folder).to_torch()._loops
    assert [loops.begin(0, mark=5)[0], loops.begin(0, mark=5)[0]] == [0, 1]
    assert [loops.begin(1, mark=5)[0], loops.begin(1, mark=5)[0]] == [0, 1]
    assert [loops.begin(i, mark=6)[0] for i in (1, 0)] == [2, 2]


@pytest.mark.soak
def test_an_error_of_a_worker_names_the_sample(folder: Path) -> None:
    loader = _workers(_loader(folder, shuffle=False, transform=_refuse_seven).to_torch(), 2)
    with pytest.raises(lading.errors.FunctionError, match=r"shard\.00000\.mds row 7: .*ValueError: seven"):
        _numbers(loader)


def _refuse_seven(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["number"] == 7:
        raise ValueError("seven")
    return sample


@pytest.mark.soak
@pytest.mark.parametrize("workers, every", [(2, 3), (0, 1), (2, 1), (0, 3)])
def test_states_of_a_stateful_data_loader(
    folder: Path, epochs: list[list[list[int]]], workers: int, every: int
) -> None:
    """Resumed by itself with as many workers, and by the loader with any: the next batch comes."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    options: dict[str, Any] = {"batch_size": None, "num_workers": workers, "snapshot_every_n_steps": every}
    flat = [numbers for epoch in epochs for numbers in epoch]
    for stop in (4, _BATCHES, _BATCHES + 2):
        first = stateful(_loader(folder).to_torch(), **options)
        found = _until(first, stop)
        assert found == flat[:stop]
        state = pickle.loads(pickle.dumps(first.state_dict()))
        again = stateful(_loader(folder).to_torch(), **options)
        again.load_state_dict(state)
        assert _until(again, 20) == flat[stop : stop + 20], stop
        other = _loader(folder)
        other.load_state_dict(json.loads(json.dumps(state)))
        assert _until(_workers(other.to_torch(), 3), 20) == flat[stop : stop + 20], stop


def _until(loader: Any, count: int) -> list[list[int]]:
    """The numbers of so many batches, epoch after epoch."""
    found: list[list[int]] = []
    while True:
        for batch in loader:
            found.append(batch["number"].tolist())
            if len(found) == count:
                return found
