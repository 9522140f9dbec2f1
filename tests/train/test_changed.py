"""An epoch goes on over data that changed: what was given before and what is given then are all samples, each once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import lading
from lading._core.train.loader import Loader
from lading.errors import UsageError
from training import given, keys

_SHARDS = 9
_BLOCKS = lading.train.Shuffle("block", 3, window=2, lanes=2)
_SHUFFLES = [False, "global", _BLOCKS, True]


def _written(folder: Path, count: int, format_: str = "webdataset", rows: int = 5, first: int = 0) -> Path:
    with lading.writer(folder, format=format_, rows_per_shard=rows) as writer:
        for i in range(first, count):
            writer.write({"__key__": f"k{i:03}", "txt": f"{i}", "json": {"n": i}})
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Shards of a dataset that grows: the first ones are the dataset of before."""
    folder = _written(tmp_path_factory.mktemp("grown") / "tars", 5 * _SHARDS - 2)
    shutil.rmtree(folder / "_lading")
    return sorted(map(str, folder.glob("*.tar")))


def _ranks(source: Any, world: int, batch: int, shuffle: Any, **options: Any) -> list[Loader]:
    options = {"seed": 5, "on_changed": "keys", **options}
    return [lading.loader(source, batch, shuffle=shuffle, rank=r, world_size=world, **options) for r in range(world)]


def _some(loaders: list[Loader], steps: int) -> tuple[list[str], dict[str, Any]]:
    """The samples of some steps of all ranks, and their state behind them."""
    loops = [iter(each) for each in loaders]
    found = keys(given(loops, steps))
    [state] = {json.dumps(each.state_dict()) for each in loaders}
    return found, json.loads(state)


def _resumed(loaders: list[Loader], state: dict[str, Any], before: Any = None) -> list[Loader]:
    for each in loaders:
        each.load_state_dict(state, before=before)
        assert json.loads(json.dumps(each.state_dict()))["epoch"] == each.epoch
    return loaders


def _all(source: Any) -> list[str]:
    return keys(given([lading.loader(source, 7)]))


@drawn(data=st.data())
@settings(max_examples=settings.default.max_examples // 3)
def test_data_that_grow_between_any_stops_come_once(shards: list[str], data: st.DataObject) -> None:
    """With any ranks and batches, whatever the shuffle; the next epoch is that of an undisturbed loader."""
    shuffle, count = data.draw(st.sampled_from(_SHUFFLES)), data.draw(st.integers(1, _SHARDS))
    sizes = st.tuples(st.integers(1, 3), st.integers(1, 5))
    loaders, found = _ranks(shards[:count], *data.draw(sizes), shuffle), list[str]()
    for _ in range(data.draw(st.integers(1, 3))):
        more, state = _some(loaders, data.draw(st.integers(0, 4)))
        found += more
        if state["epoch"]:
            return
        count = data.draw(st.integers(count, _SHARDS))
        loaders = _resumed(_ranks(shards[:count], *data.draw(sizes), shuffle), state)
    found += keys(given(loaders))
    assert sorted(found) == _all(shards[:count])
    assert loaders[0].state_dict() == _ranks(shards[:count], 1, 1, shuffle)[0].state_dict() | {"epoch": 1}
    whole = _ranks(shards[:count], 1, 4, shuffle)[0]
    whole.set_epoch(1)
    assert keys(given(loaders)) == keys(given([whole]))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same samples, written anew: in other formats and shards, with new ones between, and without some."""
    folder = tmp_path_factory.mktemp("stores")
    tars = _written(folder / "tars", 40)
    lading.open(tars).write(folder / "parquet", format="parquet", rows_per_shard=9)
    lading.open(tars).shuffle(seed=3).write(folder / "mixed", format="jsonl", rows_per_shard=4)
    more = _written(folder / "more", 60, "webdataset", 6, first=40)
    return {
        "tars": tars,
        "parquet": folder / "parquet",
        "mixed": folder / "mixed",
        "between": [*sorted(map(str, more.glob("*.tar"))), *sorted(map(str, tars.glob("*.tar")))],
        "fewer": lading.open(folder / "parquet").where("json.n > 7 and json.n < 30"),
    }


@drawn(data=st.data())
@settings(max_examples=settings.default.max_examples // 6)
def test_data_written_anew_go_on_by_keys(stores: dict[str, Any], data: st.DataObject) -> None:
    """Also where an epoch stops again, in the new data, with other ranks."""
    shuffle = data.draw(st.sampled_from([False, "global", True]))
    old, new = (stores[name] for name in data.draw(st.permutations([*stores]))[:2])
    sizes = st.tuples(st.integers(1, 3), st.integers(1, 4))
    found, state = _some(_ranks(old, *data.draw(sizes), shuffle), data.draw(st.integers(1, 3)))
    wanted = sorted({*_all(new)} - {*found})
    if state["epoch"]:
        return
    one = _resumed(_ranks(new, 1, 4, shuffle), state, before=old)
    if not wanted:
        assert one[0].state_dict()["epoch"] == 1
        return
    rest = keys(given(one))
    assert sorted(rest) == wanted
    more, state = _some(_resumed(_ranks(new, *data.draw(sizes), shuffle), state, before=old), 1)
    if not state["epoch"]:
        more += keys(given(_resumed(_ranks(new, *data.draw(sizes), shuffle), state, before=old)))
    assert more == rest
    assert one[0].epoch == 1
    assert sorted(keys(given(one))) == sorted(_all(new))


@pytest.mark.parametrize(
    "step",
    [
        lambda ds: ds.where("json.n > 7"),
        lambda ds: ds.limit(19),
        lambda ds: ds.sample(0.5, seed=2),
        lambda ds: ds.shuffle(seed=2),
        lambda ds: ds.sort("txt", descending=True),
        lambda ds: ds[3::2],
        lambda ds: ds.map(lambda sample: {"more": 1}),
        lambda ds: ds.split({"a": 0.7, "b": 0.3})["a"],
    ],
)
@pytest.mark.cases(8)
def test_steps_choose_of_all_data_again(shards: list[str], step: Callable[[Any], Any]) -> None:
    """A step that looks at all samples may choose others of the data that grew."""
    old, new = (step(lading.open(shards[:count])) for count in (5, 8))
    found, state = _some(_ranks(old, 2, 3, "global"), 1)
    rest = keys(given(_resumed(_ranks(new, 3, 2, "global"), state)))
    assert sorted(rest) == sorted({*_all(new)} - {*found})
    named = _resumed(_ranks(new, 1, 2, "global", columns=["json.n", "__key__"]), state)
    assert keys(given(named)) == rest


def test_data_that_grow_and_are_written_anew_in_one_epoch(shards: list[str], tmp_path: Path) -> None:
    """The states of the epoch are kept in order, and the data of before are named once."""
    found, state = _some(_ranks(shards[:3], 1, 2, "global"), 2)
    more, state = _some(_resumed(_ranks(shards[:5], 1, 2, "global"), state), 2)
    found += more
    new = tmp_path / "new"
    lading.open(shards[:6]).write(new, format="parquet", rows_per_shard=8)
    more, state = _some(_resumed(_ranks(new, 2, 2, "global"), state, before=shards[:5]), 1)
    found += more
    assert [each["num_samples"] for each in state["before"]] == [15, 25]
    again = _resumed(_ranks(new, 1, 7, "global"), state, before=lading.open(shards[:5]))
    found += keys(given(again))
    assert sorted(found) == _all(new)


def test_documents_go_on_by_their_ids(tmp_path: Path) -> None:
    folder = Path(lading.__file__).parent / "_core" / "data"
    docs = lading.open([str(folder / f"docs-0000{i}.tar") for i in range(2)])
    docs.write(tmp_path / "docs", format="parquet", rows_per_shard=9)

    def loader(source: Any) -> Loader:
        return lading.loader(source, 5, shuffle="global", decode=False, on_changed="keys")

    first = loader(docs)
    batches = [*islice(iter(first), 1)]
    found = [name for batch in batches for name in batch["sample_id"]]
    again = loader(tmp_path / "docs")
    again.load_state_dict(first.state_dict(), before=docs)
    found += [name for batch in again for name in batch["sample_id"]]
    assert sorted(found) == sorted(each["sample_id"] for each in docs.with_decode(False))


def test_nothing_was_given_at_the_begin_of_an_epoch(stores: dict[str, Any]) -> None:
    """So any data may follow, without a word on those of before."""
    first = _ranks(stores["tars"], 1, 8, "global")[0]
    assert len([*first]) == 5
    again = _resumed(_ranks(stores["mixed"], 1, 8, "global"), first.state_dict())[0]
    assert again.epoch == 1
    assert "before" not in again.state_dict()
    whole = _ranks(stores["mixed"], 1, 8, "global")[0]
    whole.set_epoch(1)
    assert keys(given([again])) == keys(given([whole]))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_the_rest_of_an_epoch_through_a_data_loader(shards: list[str], workers: int) -> None:
    data = pytest.importorskip("torch.utils.data")
    _, state = _some(_ranks(shards[:4], 1, 3, "global"), 2)
    [loader] = _resumed(_ranks(shards[:7], 1, 3, "global"), state)
    expected = keys(given(_resumed(_ranks(shards[:7], 1, 3, "global"), state)))
    dataset = loader.to_torch()
    rest = keys(given([data.DataLoader(dataset, batch_size=None, num_workers=workers)]))
    assert rest == expected
    assert dataset.state_after(2)["before"] == loader.state_dict()["before"]
    [again] = _resumed(_ranks(shards[:7], 1, 3, "global"), dataset.state_after(2))
    assert keys(given([again])) == rest[6:]


def test_packed_sequences_change_between_epochs_only(shards: list[str]) -> None:
    def packed(count: int) -> Any:
        loader = lading.loader(shards[:count], 4, on_changed="keys")
        return lading.pack(loader, 8, tokenizer=lambda text: [*text.encode()], batch_size=2)

    first, again = packed(4), packed(6)
    batches = iter(first)
    next(batches)
    with pytest.raises(UsageError, match="the data changed in an epoch of packed sequences"):
        again.load_state_dict(first.state_dict())
    assert [*batches]
    again.load_state_dict(first.state_dict())
    assert again.epoch == 1
    assert sum(len(batch["input_ids"]) for batch in again) == -(-sum(len(str(i)) for i in range(30)) // 8)
    with_rest = lading.loader(shards[:6], 4, on_changed="keys")
    with_rest.load_state_dict(_some(_ranks(shards[:4], 1, 4, False), 2)[1] | {"seed": 0})
    rest = lading.pack(with_rest, 8, tokenizer=lambda text: [*text.encode()])
    loop = iter(rest)
    next(loop)
    state = json.loads(json.dumps(rest.state_dict()))
    resumed = packed(6)
    resumed.load_state_dict(state)
    assert np.array_equal(
        np.concatenate([batch["input_ids"] for batch in loop]),
        np.concatenate([batch["input_ids"] for batch in resumed]),
    )


def test_other_data_are_refused_with_what_to_type(stores: dict[str, Any], shards: list[str], tmp_path: Path) -> None:
    state = _some(_ranks(stores["tars"], 1, 3, "global"), 2)[1]
    new = stores["parquet"]

    def refused(words: str, source: Any = new, state: Any = state, before: Any = None, **options: Any) -> None:
        with pytest.raises(UsageError, match=words):
            _resumed(_ranks(source, 1, 3, options.pop("shuffle", "global"), **options), state, before)

    refused(r'not the first shards of these.*load_state_dict\(state, before="old/\*.tar"\)')
    refused("before= is not the data of the state", before=stores["mixed"])
    refused("the seed differs", seed=6)
    refused("the shuffle differs; expected .none., found", shuffle=False)
    refused(r'the fingerprint of the data and steps differs.*on_changed="keys"', on_changed="error")
    refused("before= is for data that changed", before=stores["tars"], on_changed="error")
    refused("this is no state of a loader", state={"epoch": 0})
    refused("this is no state of a loader", state={**state, "before": [{}]})
    refused("no such policy; expected error or keys", on_changed="skip")
    refused("its epochs have no rest", state={**state, "epoch_size": 9}, before=stores["tars"])
    with_rest = _some(_resumed(_ranks(new, 1, 3, "global"), state, before=stores["tars"]), 1)[1]
    refused("this is no state of a loader; expected before", state={**state, "before": [state, {"epoch": 0}]})
    refused(r'the data changed in the epoch of the state.*on_changed="keys"', state=with_rest, on_changed="error")
    refused(r'not the first shards of these.*before="old', state=with_rest)
    grown = _some(_resumed(_ranks(shards[:5], 1, 3, False), _some(_ranks(shards[:4], 1, 3, False), 1)[1]), 1)[1]
    other = {**grown, "before": [{**grown["before"][0], "position": 99}]}
    refused("the position of the state is no such number", shards[:5], other, shuffle=False)
    mixture = lading.mix({"a": (lading.open(new), 1)})
    with pytest.raises(UsageError, match=r"in which each sample of one dataset comes once; found a mixture|seen"):
        lading.loader(mixture, on_changed="keys")
    with pytest.raises(UsageError, match="each sample of one dataset comes once; found epoch_size"):
        lading.loader(new, epoch_size=9, on_changed="keys")
    with pytest.raises(UsageError, match="each sample of one dataset comes once; found batches"):
        lading.loader(new, batch_tokens=9, bucket_by="len(txt)", on_changed="keys")


@pytest.mark.parametrize("twice", ["old", "new"])
def test_keys_must_name_one_sample(stores: dict[str, Any], tmp_path: Path, twice: str) -> None:
    tars, rows = lading.open(stores["tars"]), lading.open(stores["parquet"])
    old, new = (lading.concat([tars, tars.limit(1)]), rows) if twice == "old" else (tars, lading.concat([rows, rows]))
    state = _some(_ranks(old, 1, 3, False), 2)[1]
    with pytest.raises(UsageError, match=r"two samples have one key, and nothing says which.*found 'k000'"):
        _resumed(_ranks(new, 1, 3, False), state, before=old)
    lading.open(stores["tars"]).map(lambda sample: {**sample, "__key__": sample["__key__"] + "-v2"}).write(
        tmp_path / "renamed", format="parquet"
    )
    state = _some(_ranks(tars, 1, 3, False), 2)[1]
    with pytest.raises(
        UsageError, match=r"no sample has a key that samples had before; expected such as 'k000', found 'k000-v2'"
    ):
        _resumed(_ranks(tmp_path / "renamed", 1, 3, False), state, before=tars)


def test_shards_between_those_of_before_need_no_keys(tmp_path: Path) -> None:
    """Spark gives files random names: new ones come anywhere among those of before."""
    for name, first in (("a", 0), ("b", 9)):
        with lading.writer(tmp_path / name, format="parquet", rows_per_shard=3) as writer:
            for i in range(first, first + 9):
                writer.write({"value": i})
    old = [tmp_path / f"a/shard-00000{i}.parquet" for i in range(3)]
    new = [tmp_path / "b/shard-000000.parquet", old[0], tmp_path / "b/shard-000001.parquet", *old[1:]]
    first = lading.loader([*map(str, old)], 2, shuffle="global", seed=4, on_changed="keys")
    loop = iter(first)
    found = [value for _ in range(3) for value in next(loop)["value"].tolist()]
    again = lading.loader([*map(str, new)], 4, shuffle="global", seed=4, on_changed="keys")
    again.load_state_dict(first.state_dict(), before=lading.open([*map(str, old)]))
    found += [value for batch in again for value in batch["value"].tolist()]
    assert sorted(found) == [*range(15)]


def test_samples_without_keys_are_refused(tmp_path: Path) -> None:
    for name, rows in (("old", 4), ("new", 3)):
        with lading.writer(tmp_path / name, format="parquet", rows_per_shard=rows) as writer:
            for i in range(9):
                writer.write({"id": f"{i}", "value": i})
    first = lading.loader(tmp_path / "old", 2, on_changed="keys")
    next(iter(first))
    again = lading.loader(tmp_path / "new", 2, on_changed="keys")
    with pytest.raises(UsageError, match=r"the samples have no keys.*found id, value.*ds.rename\({'id': '__key__'}\)"):
        again.load_state_dict(first.state_dict(), before=tmp_path / "old")
    old, new = (lading.open(tmp_path / name).rename({"id": "__key__"}) for name in ("old", "new"))
    first = old.loader(2, on_changed="keys")
    found = [*next(iter(first))["value"]]
    again = new.loader(2, on_changed="keys")
    again.load_state_dict(first.state_dict(), before=old)
    assert sorted([*found, *(value for batch in again for value in batch["value"])]) == [*range(9)]
