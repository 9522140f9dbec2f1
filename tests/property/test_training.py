"""Training that stops anywhere goes on exactly: with other ranks, on every form of the data, behind every step.

Samples before the stop and after it are the epoch, each once, in the order of an undisturbed run.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from covering import covering
from lading._core.api.dataset import Dataset
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.train.order import Shuffle
from lading.errors import UsageError
from lading.testing import assert_exact_resume
from step_cases import CASES, ROWS, SOURCES, plain_rows, write_sources
from train_sources import COUNT, DOCUMENT_SOURCES, DOCUMENTS, SAMPLE_SOURCES, SAMPLES, contents, write
from training import Job, given, keys, planned, ranks, resumed

_SHUFFLES: tuple[Any, ...] = (False, "global", "block", Shuffle("block", 3, 2, 2))
_JOBS = (Job(7), Job(1, 3), Job(4, 2), Job(2, 8))
_OTHER_JOBS = (Job(9), Job(2, 2), Job(3, 4), Job(1, 5))
_STOPS = ("before it begins", "in the first step", "in the middle", "before the last step", "at the end")


def _steps(stop: str, count: int) -> int:
    return [0, 1, count // 2, count - 1, count][_STOPS.index(stop)]


class _Sources:
    """The data in each form, written when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened = cache(self._opened)
        self.orders = cache(self._orders)

    def _opened(self, name: str, *, documents: bool) -> Dataset:
        return lading.open(write(self._folder, (DOCUMENT_SOURCES if documents else SAMPLE_SOURCES)[name], documents))

    def _orders(self, name: str, shuffle: Any, *, documents: bool) -> list[list[int]]:
        """The numbers of the samples in two epochs of an undisturbed run."""
        loader = lading.loader(self.opened(name, documents=documents), 10, shuffle=shuffle, seed=3, decode=False)
        epochs = [[int(key) for batch in loader for key in batch["sample_id" if documents else "__key__"]]
                  for _ in range(2)]  # fmt: skip
        assert [sorted(each) for each in epochs] == [[*range(COUNT)]] * 2
        assert (epochs[0] == [*range(COUNT)]) is (shuffle is False)
        assert (epochs[0] == epochs[1]) is (shuffle is False)
        return epochs


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> _Sources:
    return _Sources(tmp_path_factory.mktemp("sources"))


def _check(sources: _Sources, case: dict[str, Any], *, documents: bool) -> None:
    """Compare the samples of a job, and of one that goes on from its state, with those of the plain order."""
    columns: Any = case["columns"] if not documents else None

    def found(samples: list[dict[str, Any]]) -> list[Any]:
        return [(bool(each.pop("__padding__", False)), contents(each) if documents else each) for each in samples]

    def expected(order: list[int], steps: list[list[tuple[int, bool]]]) -> list[Any]:
        values = DOCUMENTS if documents else [{n: s[n] for n in columns or s} for s in SAMPLES]
        return [(again, values[order[at]]) for step in steps for at, again in step]

    name, shuffle, last, first = case["source"], case["shuffle"], case["last"], case["first"]
    order, next_order = sources.orders(name, shuffle, documents=documents)
    whole = planned(COUNT, first, last)
    steps = _steps(case["stop"], len(whole))
    options = {"shuffle": shuffle, "seed": 3, "last": last, "columns": columns, "collate": "list", "decode": False}
    dataset = sources.opened(name, documents=documents)
    before, after = resumed(dataset, first, steps, case["second"], **options)
    assert found(before) == expected(order, whole[:steps])
    rest = planned(COUNT, case["second"], last, steps * first.batch_size * first.world_size)
    if rest and steps < len(whole):
        assert found(after) == expected(order, rest)
    else:  # the epoch is over, also if samples are left that `drop` leaves out
        assert found(after) == expected(next_order, planned(COUNT, case["second"], last))


def _cases(**factors: Any) -> list[Any]:
    return [pytest.param(case, id=f"{case['source']}, {case['stop']}") for case in covering(factors)]


_HOW = {
    "first": [*_JOBS],
    "second": [*_OTHER_JOBS],
    "last": ("short", "pad", "drop"),
    "stop": ("in the middle", "at the end", "in the first step", "before it begins", "before the last step"),
}


@pytest.mark.soak
@pytest.mark.parametrize(
    "case",
    _cases(source=[*SAMPLE_SOURCES], shuffle=[*_SHUFFLES[::-1]], columns=(None, ["txt", "number"]), **_HOW),
)
def test_samples_in_every_form(sources: _Sources, case: dict[str, Any]) -> None:
    _check(sources, case, documents=False)


@pytest.mark.soak
@pytest.mark.parametrize("case", _cases(source=[*DOCUMENT_SOURCES], shuffle=_SHUFFLES[1:], **_HOW))
def test_documents_in_every_form(sources: _Sources, case: dict[str, Any]) -> None:
    _check(sources, case, documents=True)


@pytest.mark.soak
@pytest.mark.parametrize("source", ["tar.gz", "mds.zstd", "parquet"])
def test_five_epochs_one_after_the_other(sources: _Sources, source: str) -> None:
    dataset = sources.opened(source, documents=False)
    stops = [0, 1, 4, 5, 6, 10, 20, 24]  # of five batches an epoch
    assert_exact_resume(
        lambda: lading.loader(dataset, 9, shuffle=True, seed=2), stops=stops, num_batches=25, through="json"
    )


# Steps


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps")
    write_sources(folder)
    return folder


@pytest.mark.parametrize("number, name", [*enumerate(CASES)])
def test_behind_every_step(place: Path, number: int, name: str) -> None:
    case = CASES[name]
    expected, dataset = case.plain(ROWS), case.chain(lading.open(place / SOURCES[number % 2]), place)
    if not expected:
        with pytest.raises(UsageError, match="no samples to train on"):
            lading.loader(dataset, 2)
        return
    _resumes_behind_steps(dataset, expected, _SHUFFLES[number % 4])


def _resumes_behind_steps(dataset: Dataset, expected: list[dict[str, Any]], shuffle: Any) -> None:
    options: dict[str, Any] = {"shuffle": shuffle, "seed": 1, "collate": "list", "decode": False}
    before, after = resumed(dataset, Job(1, 2), 1, Job(3), **options)
    found = plain_rows(before + [{k: v for k, v in each.items() if k != "__padding__"} for each in after])
    for each in found:
        each.pop("__padding__", None)
    undisturbed = plain_rows([sample for batch in lading.loader(dataset, 4, **options) for sample in batch])
    assert found == undisturbed
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert shuffle or found == expected


def test_behind_splits_and_concatenations(place: Path) -> None:
    tar, parquet = (lading.open(place / source) for source in SOURCES)
    drawn = parquet.shuffle(3).drop("json", "png")
    both = lading.concat([tar.where("cls == 1").drop("json", "png"), drawn, tar[::3].drop("json", "png")])
    order = [row["__key__"] for row in CASES["shuffle"].plain(ROWS)]
    assert [*drawn["__key__"].to_pylist()] == order
    rows = [row for row in ROWS if row["cls"] == 1] + [ROWS[int(key)] for key in order] + ROWS[::3]
    _resumes_behind_steps(both, CASES["drop_columns"].plain(rows), "block")
    parts = both.split({"a": 0.7, "b": 0.3}, seed=4)
    options: dict[str, Any] = {"shuffle": True, "collate": "list"}
    found = [keys(each) for part in parts.values() for each in resumed(part, Job(2, 2), 1, Job(1), **options)]
    assert sorted(chain(*found)) == sorted(row["__key__"] for row in rows)


# The shuffle that `True` stands for

_RANGES = {"tar", "mds", "arrow", "remote tar"}
"""Sources of samples that are read one by one. Row groups of the small sources hold about one document."""
_RANGES_OF_DOCUMENTS = {"tar", "mds", "parquet", "remote parquet"}


@pytest.mark.soak
@pytest.mark.parametrize("documents", [False, True])
def test_what_is_read_at_once_is_shuffled_by_the_block(sources: _Sources, documents: bool) -> None:
    for name in DOCUMENT_SOURCES if documents else SAMPLE_SOURCES:
        dataset = sources.opened(name, documents=documents)
        both = lading.concat([dataset, dataset.limit(3)])
        kinds = {lading.loader(each, shuffle=True).state_dict()["shuffle"]["kind"] for each in (dataset, both)}
        alone = name in (_RANGES_OF_DOCUMENTS if documents else _RANGES)
        assert kinds == {"block" if not alone or dataset._rows.layout.remote else "global"}, name


# Broken samples


@pytest.mark.parametrize("source", ["tar.gz", "mds.zstd", "parquet", "jsonl.zst", "remote tar"])
def test_broken_samples_are_replaced_by_the_next_ones(sources: _Sources, source: str) -> None:
    """Every fifth sample has no text, which is no number. Batches that were made ahead of a stop do not count."""
    dataset = sources.opened(source, documents=False)

    def refuse(text: str) -> int:
        return len(text) // (text != "")

    order, _ = sources.orders(source, "block", documents=False)
    options: dict[str, Any] = {"shuffle": "block", "seed": 3, "on_error": "skip", "decode": {"txt": refuse}}
    first, second = ranks(dataset, 2, 3, **options), ranks(dataset, 5, 2, **options)
    before = [sample["number"] for sample in given([iter(each) for each in first], 3)]
    for loader in second:
        loader.load_state_dict(first[0].state_dict())
    after = [sample["number"] for sample in given(second) if not sample["__padding__"]]
    sound = [at for at in range(COUNT) if order[at] % 5]
    expected = [order[min((at for at in sound if at >= place), default=sound[0])] * 3 for place in range(COUNT)]
    assert before + after == expected
    counted = [sum(loader.counts.total() for loader in loaders) for loaders in (first, second)]
    assert counted[0] == sum(order[at] % 5 == 0 for at in range(18))
    again = [at for step in planned(COUNT, Job(5, 2), "short", 18) for at, _ in step]
    assert counted[1] == sum(order[at] % 5 == 0 for at in again)


@pytest.mark.soak
def test_broken_documents_with_other_ranks_and_workers(tmp_path: Path) -> None:
    rows = [{"sample_id": str(i), "position": 0, "modality": "image", "content_type": "image/png",
             "binary_content": b"x" if i % 4 == 1 else str(i).encode()} for i in range(24)]  # fmt: skip
    options: dict[str, Any] = {"view": "interleaved", "rows_per_shard": 5, "options": {"compression": "zstd"}}
    with lading.writer(tmp_path / "tars", **options) as writer:
        writer.write_batch(pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA))
    options = {"shuffle": "block", "seed": 3, "collate": "list", "on_error": "skip"}
    options["decode"] = {"binary_content": int}
    order = [int(name) for batch in lading.loader(tmp_path / "tars", 24, shuffle="block", seed=3, decode=False)
             for name in batch["sample_id"]]  # fmt: skip
    before, after = resumed(tmp_path / "tars", Job(2, 3), 2, Job(5, 1, workers=2), **options)
    expected = [next(n for n in (order + order)[at:] if n % 4 != 1) for at in range(24)]
    found = [(int(each["sample_id"]), each["items"][0]["binary_content"]) for each in before + after]
    assert found == [(number, number) for number in expected]
