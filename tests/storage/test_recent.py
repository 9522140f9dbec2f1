"""Bytes that a walk over headers has read serve the fetch that follows it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from lading._core.arrow.references import FileEntry
from lading._core.storage.fetch_plan import FetchPlan, plan_ranges
from lading._core.storage.recent import RecentBytes

FILE, OTHER = FileEntry("far://a.tar", size_bytes=100), FileEntry("far://a.tar", size_bytes=90)
DATA = bytes(range(100))


@pytest.fixture
def recent() -> RecentBytes:
    """Three windows of a file; the third is apart from the others."""
    made = RecentBytes()
    made.most_bytes = 60
    for start, stop in ((0, 20), (20, 40), (60, 80)):
        made.add(FILE, start, DATA[start:stop])
    return made


def _read(recent: RecentBytes, file: FileEntry, *ranges: tuple[int, int]) -> list[list[tuple[int, int]]]:
    """Read ranges, check their bytes, and return the `(offset, length)` that were asked for, a list a call."""
    calls: list[list[tuple[int, int]]] = []

    def ask(offset: NDArray[np.int64], length: NDArray[np.int64]) -> tuple[FetchPlan, list[pa.Buffer]]:
        calls.append([*zip(offset.tolist(), length.tolist(), strict=True)])
        plan = plan_ranges(offset, length, max_gap_bytes=0, max_request_bytes=100)
        return plan, [pa.py_buffer(DATA[start : start + size]) for start, size in plan.requests]

    offset, length = np.array(ranges, np.int64).T
    which, start, buffers = recent.read(file, offset, length, ask)
    found = [bytes(buffers[n])[at : at + size] for n, at, (_, size) in zip(which, start, ranges, strict=True)]
    assert found == [DATA[at : at + size] for at, size in ranges]
    assert np.array(ranges).T.tolist() == [offset.tolist(), length.tolist()]
    return calls


def _find(recent: RecentBytes, file: FileEntry, *ranges: tuple[int, int]) -> list[bytes]:
    """Read ranges that windows hold."""
    offset, length = np.array(ranges, np.int64).T
    which, start, buffers = recent.read(file, offset, length, pytest.fail)
    assert len(buffers) == len(np.unique(which))  # no buffer is kept in memory without need
    return [bytes(buffers[n])[at : at + size] for n, at, (_, size) in zip(which, start, ranges, strict=True)]


def test_ranges_inside_windows_and_across_neighbours(recent: RecentBytes) -> None:
    ranges = [(70, 10), (0, 20), (10, 20), (5, 0), (20, 1)]
    assert _find(recent, FILE, *ranges) == [DATA[at : at + size] for at, size in ranges]


@pytest.mark.parametrize("place", [(45, 5), (90, 5), (41, 59)])
def test_ranges_that_no_window_begins(recent: RecentBytes, place: tuple[int, int]) -> None:
    assert _read(recent, FILE, place, (0, 5)) == [[place]]


@pytest.mark.parametrize(
    "place, rest", [((30, 20), (40, 10)), ((30, 40), (40, 30)), ((75, 10), (80, 5)), ((10, 35), (40, 5))]
)
def test_only_the_rest_of_a_range_is_read(recent: RecentBytes, place: tuple[int, int], rest: tuple[int, int]) -> None:
    assert _read(recent, FILE, (45, 5), place, (0, 5)) == [[(45, 5), rest]]


def test_a_range_of_which_little_is_held_is_read_whole(recent: RecentBytes) -> None:
    asked: list[int] = []

    def ask(offset: NDArray[np.int64], length: NDArray[np.int64]) -> tuple[FetchPlan, list[pa.Buffer]]:
        asked.extend([*offset.tolist(), *length.tolist()])
        return plan_ranges(offset, length, max_gap_bytes=0, max_request_bytes=100), [pa.py_buffer(bytes(65))]

    recent.read(FILE, np.array([39]), np.array([65]), ask)
    assert asked == [39, 65]


def test_another_version_of_the_file_has_no_windows(recent: RecentBytes) -> None:
    assert _read(recent, OTHER, (0, 5)) == [[(0, 5)]]


def test_the_oldest_windows_are_dropped(recent: RecentBytes) -> None:
    recent.add(FILE, 80, DATA[80:])
    assert _find(recent, FILE, (20, 5), (75, 20)) == [DATA[20:25], DATA[75:95]]
    assert _read(recent, FILE, (0, 5), (20, 5)) == [[(0, 5)]]


def test_a_new_pass_sees_the_file_as_it_is_now(recent: RecentBytes) -> None:
    recent.add(FILE, 0, DATA[:20][::-1])
    assert _find(recent, FILE, (0, 5)) == [DATA[15:20][::-1]]
    assert _read(recent, FILE, (20, 5)) == [[(20, 5)]]


def test_clear(recent: RecentBytes) -> None:
    recent.clear(but_last=True)
    assert _find(recent, FILE, (60, 20)) == [DATA[60:80]]
    assert _read(recent, FILE, (0, 5)) == [[(0, 5)]]
    recent.clear()
    assert _read(recent, FILE, (60, 20)) == [[(60, 20)]]
