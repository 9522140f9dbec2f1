"""A transform that draws numbers draws the same for a sample, whatever ranks, workers, threads and stops there are."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from lading._core.train.loader import Loader
from lading.testing import assert_exact_resume
from numbered import COUNT, write_numbered


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbered(tmp_path_factory.mktemp("samples") / "mds")


def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"number": sample["number"], "drawn": rng.integers(1 << 62), "broken": sample["number"]}


def _loader(source: Any, batch_size: int = 5, transform: Any = drawn, **options: Any) -> Loader:
    return lading.loader(
        source, batch_size, **{"shuffle": True, "seed": 3, "columns": ["number"], "transform": transform, **options}
    )


def _draws(*loaders: Loader) -> dict[int, int]:
    """What each sample of an epoch has drawn, also where it comes again to fill the last step."""
    found: dict[int, int] = {}
    for loader in loaders:
        for batch in loader:
            for number, value in zip(batch["number"].tolist(), batch["drawn"].tolist(), strict=True):
                assert found.setdefault(number, value) == value
    return found


@pytest.mark.soak
def test_draws_do_not_depend_on_who_makes_the_batches(folder: Path) -> None:
    expected = _draws(_loader(folder))
    assert len(set(expected.values())) == len(expected) == COUNT
    assert _draws(_loader(folder, 7, threads=1)) == expected
    assert _draws(*(_loader(folder, rank=rank, world_size=3) for rank in range(3))) == expected
    assert _draws(_loader(folder, workers=2)) == expected
    after = _loader(folder, 4)
    after.load_state_dict({**after.state_dict(), "position": 21})
    rest = _draws(after)
    assert len(rest) == COUNT - 21
    assert rest.items() <= expected.items()


def test_draws_differ_between_epochs_and_seeds(folder: Path) -> None:
    loader = _loader(folder)
    first, second, other = _draws(loader), _draws(loader), _draws(_loader(folder, seed=4))
    assert first.keys() == second.keys() == other.keys()
    assert not {*first.values()} & {*second.values()}
    assert not {*first.values()} & {*other.values()}


@pytest.mark.soak
def test_mixtures_draw(folder: Path) -> None:
    ds = lading.open(folder).select("number")

    def draws(**options: Any) -> list[tuple[int, int]]:
        loader = _loader(lading.mix({"a": (ds, 0.5), "b": (ds, 0.5)}, seed=2), columns=None, seed=None, **options)
        return [
            pair for batch in loader for pair in zip(*(batch[n].tolist() for n in ("number", "drawn")), strict=True)
        ]

    found = draws()
    assert len({value for _, value in found}) == len(found) > COUNT
    assert draws(batch_size=8) == found


def test_a_replaced_sample_draws_too(folder: Path) -> None:
    def refuse_seven(sample: dict[str, Any], *, rng: np.random.Generator) -> dict[str, Any]:
        return {"number": sample["number"] // (sample["number"] != 7), "drawn": rng.integers(1 << 62)}

    loader = _loader(folder, transform=refuse_seven, on_error="skip")
    assert _draws(loader).items() <= _draws(_loader(folder)).items()
    assert sum(loader.counts.values()) == 1


@pytest.mark.soak
def test_resume_is_exact_only_with_the_generator(folder: Path) -> None:
    assert_exact_resume(lambda: _loader(folder), num_stops=2)
    with pytest.raises(AssertionError, match="two new loaders give different batches"):
        assert_exact_resume(lambda: _loader(folder, transform=lambda sample: {"drawn": random.random(), **sample}))


class _Callable:
    def __call__(self, sample: dict[str, Any], rng: Any) -> dict[str, Any]:
        return drawn(sample, rng)


def _of_any(sample: dict[str, Any], **rng: Any) -> dict[str, Any]:
    return {"drawn": 0, **sample, **rng}


def _of_default(sample: dict[str, Any], rng: int = 0) -> dict[str, Any]:
    return {"drawn": rng, **sample}


@pytest.mark.soak
@pytest.mark.parametrize(
    "transform, draws",
    [
        (_Callable(), True),
        (partial(drawn), True),
        (partial(drawn, rng=np.random.default_rng(0)), None),
        (_of_any, False),
        (_of_default, False),
        (dict, False),
    ],
)
def test_which_functions_are_given_a_generator(folder: Path, transform: Any, draws: bool | None) -> None:
    batch = next(iter(_loader(folder, transform=transform)))
    of_generator = [_draws(_loader(folder))[number] for number in batch["number"].tolist()]
    if draws:
        assert batch["drawn"].tolist() == of_generator
    elif draws is None:  # the user has set another one
        assert batch["drawn"].tolist() != of_generator
    else:
        assert not any(batch.get("drawn", []))
