"""Tasks come from the source's sizes alone."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from lading._core.dataset.source.source import LISTING_SCHEMA, Listing
from lading._core.formats.base import Span
from lading._core.jobs.convert.tasks import Piece, Rates, Task, is_large, is_one_task, plan_tasks, shard_sizes
from lading._core.pipeline.cutting import Cut
from lading._core.storage.stores import Stores
from lading.errors import NotFound


def listing(*sizes: int | None, folder: str = "x") -> Listing:
    rows = [{"path": f"{folder}/{i}.tar", "size_bytes": size} for i, size in enumerate(sizes)]
    return Listing(pa.Table.from_pylist(rows, LISTING_SCHEMA))


def bounds(*sizes: int, shard_bytes: int = 100, rate: float = 1.0) -> list[tuple[int, int]]:
    return [(t.first, t.stop) for t in plan_tasks(whole(*sizes), shard_bytes, Rates(rate))]


def whole(*sizes: int) -> list[Piece]:
    return [Piece(number, size) for number, size in enumerate(sizes)]


def cut(shard: int, sizes: list[int]) -> list[Piece]:
    """A shard in pieces of these sizes, with a row for each byte."""
    ends = list(accumulate(sizes, initial=0))
    return [Piece(shard, b - a, Span(a, b, 0, a, b, a, b, is_last=b == ends[-1])) for a, b in pairwise(ends)]


def test_a_task_is_a_whole_number_of_shards() -> None:
    assert bounds(30, 30, 40, 30, 100, 70, 1) == [(0, 3), (3, 6), (6, 7)]
    assert bounds(*[1] * 250) == [(0, 100), (100, 200), (200, 250)]
    assert bounds(0, 0, 0) == [(0, 3)]
    assert bounds() == []


def test_the_next_shard_joins_a_task_that_it_makes_fit_better() -> None:
    assert bounds(96, 4, 100) == [(0, 2), (2, 3)]
    assert bounds(98, 4, 100) == [(0, 1), (1, 3)]
    assert bounds(100, 4, 100) == [(0, 1), (1, 3)]


def test_a_large_shard_is_a_task_of_its_own() -> None:
    assert bounds(1010, 1049, 10) == [(0, 1), (1, 3)]
    assert bounds(1000, 1000, 10) == [(0, 1), (1, 2), (2, 3)]


def test_shards_that_never_fit_are_one_task() -> None:
    assert bounds(125, 125, 60) == [(0, 3)]


def test_sizes_count_as_they_are_written() -> None:
    assert bounds(200, 200, 200, rate=0.5) == [(0, 1), (1, 2), (2, 3)]
    assert bounds(50, 50, 50, 50, rate=2.0) == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_all_tasks_but_the_last_make_equal_shards() -> None:
    tasks = plan_tasks(whole(104, 30), 100, Rates(1.0, 1.5))
    assert tasks[0] == Task(0, 0, 1, 104, Cut(100, 104, tasks[0].cut.slack, 1.5))
    assert tasks[1] == Task(1, 1, 2, 30, Cut(100, ratio=1.5))


def test_small_sources_are_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of the fixture for all tests
    assert is_one_task([1 << 20] * 63)
    assert not is_one_task([1 << 20] * 64)
    assert is_one_task([1 << 40])
    assert [(t.first, t.stop) for t in plan_tasks(whole(*[1 << 20] * 64), 1 << 20, Rates())] == [
        (at, at + 16) for at in range(0, 64, 16)
    ]


def test_a_shard_in_pieces_is_several_tasks() -> None:
    tasks = plan_tasks([Piece(0, 60), *cut(1, [20] * 12), Piece(2, 50)], 100, Rates())
    rows = [(t.first, t.stop, [s and (s.first_row, s.stop_row, s.is_last) for s in t.spans]) for t in tasks]
    assert rows == [
        (0, 2, [None, (0, 40, False)]),
        (1, 2, [(40, 140, False)]),
        (1, 2, [(140, 240, True)]),
        (2, 3, []),
    ]
    assert [t.source_bytes for t in tasks] == [100, 100, 100, 50]


def test_a_task_with_all_pieces_of_a_shard_reads_the_shard() -> None:
    [task] = plan_tasks([*cut(0, [20] * 2), Piece(1, 5)], 100, Rates())
    assert (task.first, task.stop, task.spans) == (0, 2, ())


def test_shards_are_cut_if_they_are_large_and_few() -> None:
    assert is_large(150, [150], 100)
    assert not is_large(149, [149], 100)
    assert is_large(300, [300] * 64, 100)
    assert not is_large(300, [300] * 65, 100)
    assert is_large(1, [1] * 64, 100, has_more=True)
    assert not is_large(1, [1] * 65, 100, has_more=True)


def test_sizes_that_are_not_listed_are_looked_up(tmp_path: Path) -> None:
    for number, size in enumerate((60, 60, 10)):
        (tmp_path / f"{number}.tar").write_bytes(b"x" * size)
    assert [*shard_sizes(listing(None, 60, None, folder=str(tmp_path)), Stores())] == [60, 60, 10]
    with pytest.raises(NotFound, match=r"3\.tar"):
        shard_sizes(listing(1, 1, 1, None, folder=str(tmp_path)), Stores())
