"""`counts` says what the last iteration left out and reported, as plain Python computes it and `write` reports it."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading.errors import FunctionError

FORMATS = {"webdataset": "30kb", "parquet": "1kb", "mds": "1kb", "jsonl": "1kb"}
"""Formats, and the size that gives several shards."""

COUNT = 120
NUMBERS = [i * 5 % 13 for i in range(COUNT)]
TABLE = pa.table({"n": [0, 1, 2, 3, 77, 88], "score": [0.5] * 6})
NOT_ABOVE_9 = "not where n > 9, filtered"
DUPLICATES = "duplicates by n, filtered"
NO_ROW = "samples without a row in the table"
FAILED, REJECTED = "samples for which the function raised an error, dropped", "left out by the function, filtered"


def _is_small(sample: Mapping[str, Any]) -> bool:
    if sample["n"] == 7:
        raise ValueError("no luck")
    return bool(sample["n"] < 7)


ABOVE_9 = [i for i, n in enumerate(NUMBERS) if n > 9]
OF_FUNCTION = {FAILED: NUMBERS.count(7), REJECTED: sum(n > 7 for n in NUMBERS)}
JOINED = {f"{NO_ROW}, filtered": sum(n > 3 for n in NUMBERS), "rows of the table without a sample": 2}

CHAINS: dict[str, tuple[Callable[[lading.Dataset], lading.Dataset], Mapping[str, int]]] = {
    "where": (lambda ds: ds.where("n > 9"), {NOT_ABOVE_9: COUNT - len(ABOVE_9)}),
    "none": (lambda ds: ds.where("n > 99"), {"not where n > 99, filtered": COUNT}),
    "limit": (lambda ds: ds.where("n > 9").limit(5), {NOT_ABOVE_9: ABOVE_9[4] + 1 - 5}),
    "filter": (lambda ds: ds.filter(_is_small, on_error="drop_sample"), OF_FUNCTION),
    "filter, shuffle": (lambda ds: ds.filter(_is_small, on_error="drop_sample").shuffle(3), OF_FUNCTION),
    "dedup": (lambda ds: ds.dedup(by="n"), {DUPLICATES: COUNT - 13}),
    "where, dedup, where": (
        lambda ds: ds.where("n > 9").dedup(by="n").where("n > 10"),
        {NOT_ABOVE_9: COUNT - len(ABOVE_9), DUPLICATES: len(ABOVE_9) - 3, "not where n > 10, filtered": 1},
    ),
    "dedup, where, shuffle": (
        lambda ds: ds.dedup(by="n").where("n > 9").shuffle(3),
        {DUPLICATES: COUNT - 13, NOT_ABOVE_9: 10},
    ),
    "join": (lambda ds: ds.join(TABLE, on="n"), {NO_ROW: sum(n > 3 for n in NUMBERS), **dict([*JOINED.items()][1:])}),
    "inner join": (lambda ds: ds.join(TABLE, on="n", how="inner"), JOINED),
    "inner join, sort": (lambda ds: ds.join(TABLE, on="n", how="inner").sort("n"), JOINED),
    "join, shuffle": (lambda ds: ds.join(TABLE, on="n").shuffle(3), {NO_ROW: sum(n > 3 for n in NUMBERS)}),
}


@pytest.fixture(scope="module", params=FORMATS)
def numbers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lading.Dataset]:
    """Samples with a number, in several shards."""
    folder = tmp_path_factory.mktemp("counts") / "numbers"
    with lading.writer(folder, format=request.param, shard_size=FORMATS[request.param]) as writer:
        for at in range(0, COUNT, 12):
            some = range(at, at + 12)
            table = {"__key__": [f"{i:05}" for i in some], "n": NUMBERS[at : at + 12], "txt": ["text"] * 12}
            writer.write_batch(pa.table(table))
    with lading.open(folder) as dataset:
        assert len(dataset.shards) > 1
        yield dataset


@pytest.mark.parametrize("chain", CHAINS)
def test_counts_are_those_of_the_last_iteration(chain: str, numbers: lading.Dataset, tmp_path: Path) -> None:
    make, expected = CHAINS[chain]
    chosen = make(numbers)
    assert chosen.counts == {}
    for _ in range(2):
        assert list(chosen.batches(max_rows=10))[2:] is not None
        assert chosen.counts == expected
    assert list(chosen) is not None
    assert chosen.counts == expected
    assert numbers.counts == {}
    assert pickle.loads(pickle.dumps(chosen)).counts == {} if "filter" not in chain else True
    assert chosen.write(tmp_path / "out", format="jsonl").counts == expected


@pytest.mark.soak
def test_looks_and_other_datasets_change_no_counts(numbers: lading.Dataset) -> None:
    above = numbers.where("n > 9")
    for _ in above.batches(max_rows=5):
        break
    so_far = above.counts
    assert 0 < so_far[NOT_ABOVE_9] <= COUNT - len(ABOVE_9)
    assert (len(above), len(above.head(2)), above[3]["n"]) == (len(ABOVE_9), 2, NUMBERS[ABOVE_9[3]])
    twice = above.where("n > 10").select("n")
    assert len(list(twice)) == sum(n > 10 for n in NUMBERS)
    assert twice.counts == {NOT_ABOVE_9: COUNT - len(ABOVE_9), "not where n > 10, filtered": NUMBERS.count(10)}
    assert above.counts == so_far


@pytest.mark.soak
def test_iterations_that_take_turns_have_counts_of_their_own(numbers: lading.Dataset) -> None:
    above, below = numbers.where("n > 9"), numbers.where("n < 3")
    for _ in zip(above.batches(max_rows=7), below.batches(max_rows=7), strict=False):
        pass
    list(above.batches())
    assert above.counts == {NOT_ABOVE_9: COUNT - len(ABOVE_9)}
    assert {*below.counts} == {"not where n < 3, filtered"}


def test_siblings_count_their_own_duplicates(numbers: lading.Dataset) -> None:
    by_number, by_text = numbers.dedup(by="n"), numbers.dedup(by="txt")
    for _ in range(2):
        list(by_number.batches())
        list(by_text.batches())
        assert by_number.counts == {DUPLICATES: COUNT - 13}
        assert by_text.counts == {"duplicates by txt, filtered": COUNT - 1}


def test_a_pass_that_failed_is_counted_once(numbers: lading.Dataset) -> None:
    calls: Counter[int] = Counter()

    def fails_once(sample: Mapping[str, Any]) -> bool:
        calls[0] += 1
        if calls[0] == COUNT - 1:
            raise ValueError("only now")
        return bool(sample["n"] < 7)

    small = numbers.filter(fails_once).shuffle(1)
    with pytest.raises(FunctionError, match="only now"):
        list(small)
    list(small)
    assert small.counts == {REJECTED: sum(n >= 7 for n in NUMBERS)}


@pytest.mark.parametrize("ordered", [False, True])
def test_what_readers_report_is_counted_once(ordered: bool, tmp_path: Path) -> None:
    for shard in range(2):
        lines = [json.dumps({"n": n}) + "\n\n" for n in NUMBERS]
        (tmp_path / f"{shard}.jsonl").write_text("".join(lines))
    dataset = lading.open(tmp_path / "*.jsonl").where("n > 9")
    dataset = dataset.dedup(by="n").sort("n") if ordered else dataset
    list(dataset.batches())
    expected = {"blank lines, skipped": 2 * COUNT, NOT_ABOVE_9: 2 * (COUNT - len(ABOVE_9))}
    duplicates = {DUPLICATES: 2 * len(ABOVE_9) - 3} if ordered else {}
    assert dataset.counts == {**expected, **duplicates}
    assert dataset.write(tmp_path / "out", format="jsonl").counts == dataset.counts


@pytest.mark.soak
@pytest.mark.parametrize("ledger", [False, True])
def test_rows_left_out_before_a_new_order_are_reported_as_without_it(
    ledger: bool, numbers: lading.Dataset, tmp_path: Path
) -> None:
    above, told = numbers.where("n > 9"), list[Any]()
    for name, chosen in {"plain": above, "ordered": above.shuffle(3)}.items():
        lines = tmp_path / f"{name}.jsonl"
        done = chosen.write(tmp_path / name, format="jsonl", **({"ledger": str(lines)} if ledger else {}))
        assert done.filtered_rows == COUNT - len(ABOVE_9)
        told.append(lines.read_text() if ledger else [{**row, "__key__": ""} for row in done.filtered])
    assert told[0] == told[1]


@pytest.mark.soak
def test_samples_left_out_by_parts_of_a_concatenation_are_counted(numbers: lading.Dataset, tmp_path: Path) -> None:
    both = lading.concat([numbers.where("n > 9"), numbers.dedup(by="n")])
    expected = {NOT_ABOVE_9: COUNT - len(ABOVE_9), DUPLICATES: COUNT - 13}
    list(both.batches())
    assert both.counts == expected
    assert both.write(tmp_path / "out", format="jsonl").counts == expected


def test_counts_of_partitions_that_no_condition_needs(tmp_path: Path) -> None:
    for lang in ("de", "en"):
        (tmp_path / f"lang={lang}").mkdir()
        (tmp_path / f"lang={lang}" / "a.jsonl").write_text('{"n": 1}\n')
    german = lading.open(tmp_path, format="jsonl").where("lang == 'de'")
    assert len(list(german)) == 1
    assert german.counts == {"shards of other partitions, left out": 1}
