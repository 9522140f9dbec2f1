"""Tasks come from the source's sizes alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lading.dataset.source import LISTING_SCHEMA, Listing
from lading.errors import NotFound
from lading.jobs.tasks import Task, plan_tasks
from lading.storage.stores import Stores


def listing(*sizes: int | None, folder: str = "x") -> Listing:
    rows = [{"path": f"{folder}/{i}.tar", "size_bytes": size} for i, size in enumerate(sizes)]
    return Listing(pa.Table.from_pylist(rows, LISTING_SCHEMA))


def bounds(*sizes: int, shard_bytes: int = 100) -> list[tuple[int, int]]:
    return [(t.first, t.stop) for t in plan_tasks(listing(*sizes), shard_bytes, Stores())]


def test_small_shards_go_together_until_the_next_would_be_too_much() -> None:
    assert bounds(30, 30, 30, 30, 100, 1) == [(0, 3), (3, 4), (4, 5), (5, 6)]
    assert bounds(*[1] * 250) == [(0, 100), (100, 200), (200, 250)]
    assert bounds(0, 0, 0) == [(0, 3)]
    assert bounds() == []


def test_a_large_shard_is_a_task_of_its_own() -> None:
    assert bounds(10, 1000, 10, 10) == [(0, 1), (1, 2), (2, 4)]


@pytest.mark.parametrize(
    "size, expected", [(1, 100), (80, 100), (100, 112), (125, 140), (127, 100), (400, 112), (1000, 140), (1010, 126)]
)
def test_output_shards_share_a_source_shard_evenly(size: int, expected: int) -> None:
    [task] = plan_tasks(listing(size), 100, Stores())
    assert task == Task(0, 0, 1, expected, size)


def test_sizes_that_are_not_listed_are_looked_up(tmp_path: Path) -> None:
    for number, size in enumerate((60, 60, 10)):
        (tmp_path / f"{number}.tar").write_bytes(b"x" * size)
    tasks = plan_tasks(listing(None, 60, None, folder=str(tmp_path)), 100, Stores())
    assert [(t.first, t.stop) for t in tasks] == [(0, 1), (1, 3)]
    with pytest.raises(NotFound, match=r"3\.tar"):
        plan_tasks(listing(1, 1, 1, None, folder=str(tmp_path)), 100, Stores())
