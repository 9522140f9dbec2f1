"""Bytes that a walk over headers has read serve the fetch that follows it."""

from __future__ import annotations

import numpy as np
import pytest

from lading._core.arrow.references import FileEntry
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


def _found(recent: RecentBytes, file: FileEntry, *ranges: tuple[int, int]) -> list[bytes | None]:
    offset, length = np.array(ranges, np.int64).T
    held = recent.find(file, offset, length)
    buffers, which, start = held.buffers, held.which, held.start
    assert len(buffers) == len(np.unique(which[which >= 0]))  # no buffer is kept in memory without need
    return [
        None if number < 0 else bytes(buffers[number])[at : at + size]
        for number, at, size in zip(which.tolist(), start.tolist(), length.tolist(), strict=True)
    ]


def test_ranges_inside_windows_and_across_neighbours(recent: RecentBytes) -> None:
    ranges = [(70, 10), (0, 20), (10, 20), (5, 0), (20, 1)]
    assert _found(recent, FILE, *ranges) == [DATA[at : at + size] for at, size in ranges]


@pytest.mark.parametrize("place", [(30, 20), (45, 5), (30, 40), (75, 10), (90, 5)])
def test_ranges_that_no_window_holds_whole(recent: RecentBytes, place: tuple[int, int]) -> None:
    assert _found(recent, FILE, place, (0, 5)) == [None, DATA[:5]]


def test_the_beginning_of_a_range_is_found_if_it_is_a_good_part(recent: RecentBytes) -> None:
    offset, length = np.array([30, 10, 79, 45]), np.array([20, 35, 21, 5])
    found = recent.find(FILE, offset, length).begins
    assert {row: b"".join(parts) for row, parts in found.items()} == {0: DATA[30:40], 1: DATA[10:40], 2: DATA[79:80]}
    assert not recent.find(FILE, np.array([39]), np.array([65])).begins


def test_another_version_of_the_file_has_no_windows(recent: RecentBytes) -> None:
    assert _found(recent, OTHER, (0, 5)) == [None]


def test_the_oldest_windows_are_dropped(recent: RecentBytes) -> None:
    recent.add(FILE, 80, DATA[80:])
    assert _found(recent, FILE, (0, 5), (20, 5), (75, 20)) == [None, DATA[20:25], DATA[75:95]]


def test_a_new_pass_sees_the_file_as_it_is_now(recent: RecentBytes) -> None:
    recent.add(FILE, 0, DATA[:20][::-1])
    assert _found(recent, FILE, (0, 5), (20, 5)) == [DATA[15:20][::-1], None]


def test_clear(recent: RecentBytes) -> None:
    recent.clear(but_last=True)
    assert _found(recent, FILE, (0, 5), (60, 20)) == [None, DATA[60:80]]
    recent.clear()
    assert _found(recent, FILE, (60, 20)) == [None]
