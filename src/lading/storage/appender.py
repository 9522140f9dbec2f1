"""Pieces in memory and in files → a file, in few calls.

A call that moves a few megabytes costs what copying them costs, and lets other threads run meanwhile; thousands of
small ones cost half as much again, and each has to wait for its turn with the interpreter: up to 5 ms. For the same
reason everything is laid out beforehand, by column: between two calls nearly nothing is left to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lading.arrow.byte_ranges import Buffer, ByteRanges, ReadsInto, as_file, as_view, room_for

__all__ = ["Appender"]

_T = TypeVar("_T")

_BLOCK_BYTES = 2 << 20
"""Bytes of one call. What is written goes through a block that stays in the cache: `writev` from where the bytes lie
takes a sixth longer on tmpfs, and from mapped files twice as long on ext4. Blocks of 1 to 8 MB are equally fast."""
_AS_THEY_ARE_BYTES = 32 << 10
"""`bytes` of this length on average are written from where they lie all the same: while they are copied into the block,
nobody else runs Python, and threads that compress wait for it a sixth of their time. Other memory may be a map."""
_MOST_BUFFERS = 1000
"""Of one call that writes."""
_MOST_RUNS = 500
"""Of one call that reads, each with a buffer for what lies before it; the system takes 1,024 buffers."""
_GAP_BYTES = 32 << 10
"""Between two pieces of one file that are read by one call, at most: a header of a tar, a little JSON."""

_Run: TypeAlias = tuple[int, int, int]
"""Bytes of the file to pass over, and the part of the block to fill."""
_Read: TypeAlias = tuple[ReadsInto, int, list[_Run]]
"""A call: the file, where it begins there, and what it fills."""
_Copy: TypeAlias = tuple[memoryview, int, int, int]
"""The memory, where to begin there, and the part of the block to fill."""


class Appender:
    """Appends pieces to an open file. Holds a block of up to 2 MB, which no other thread may use meanwhile.

    Args:
        see: called with all bytes, in order, while they are in the cache.
    """

    def __init__(self, see: Callable[[Buffer], None] | None = None) -> None:
        self._see = see
        self._block = memoryview(bytearray())
        self._between = memoryview(bytearray(_GAP_BYTES))

    def append(self, fd: int, pieces: ByteRanges) -> None:
        """Write the pieces in order where the descriptor stands.

        Raises:
            OSError: of the system.
            ShortRead: a file ends before a piece does.
        """
        total = int(pieces.length.sum())
        if not total:
            return
        if total >= _AS_THEY_ARE_BYTES * len(pieces) and all(type(source) is bytes for source in pieces.sources):
            self._write_as_they_are(fd, [view for view in pieces.views() if view])
            return
        wanted = min(_BLOCK_BYTES, total)
        if len(self._block) < wanted:
            self._block = as_view(room_for(wanted))
        block, between, size = self._block, self._between, len(self._block)
        cut, at = _cut(pieces, size, total)
        in_file = cut.in_file
        reads = _reads(cut[in_file], at[in_file], size, total)
        copies = _copies(cut[~in_file], at[~in_file], size, total)
        for number, start in enumerate(range(0, total, size)):
            for file, offset, runs in reads[number]:
                targets = [view for gap, a, b in runs for view in (between[:gap], block[a:b]) if view]
                file.read_into(targets, offset)
            for body, first, a, b in copies[number]:  # behind the reads, which fill what stands between pieces too
                block[a:b] = body[first : first + b - a]
            data = block[: min(size, total - start)]
            if self._see is not None:
                self._see(data)
            while data:
                data = data[os.write(fd, data) :]

    def _write_as_they_are(self, fd: int, views: list[memoryview]) -> None:
        if self._see is not None:
            for view in views:
                self._see(view)
        _write_all(fd, views)


def _write_all(fd: int, views: list[memoryview]) -> None:
    """Write what lies in several places, none of it empty; the system may take less at once."""
    while views:
        written = os.writev(fd, views[:_MOST_BUFFERS])
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _cut(pieces: ByteRanges, size: int, total: int) -> tuple[ByteRanges, NDArray[np.int64]]:
    """The pieces, cut where a block ends, and where each begins in what is written."""
    pieces = pieces[pieces.length > 0]
    start = np.cumsum(pieces.length) - pieces.length
    at = np.union1d(start, np.arange(0, total, size))
    piece = np.searchsorted(start, at, "right") - 1
    length = np.diff(at, append=total)
    return ByteRanges(pieces.sources, pieces.source[piece], pieces.offset[piece] + at - start[piece], length), at


def _copies(pieces: ByteRanges, at: NDArray[np.int64], size: int, total: int) -> list[list[_Copy]]:
    """What comes from memory into each block."""
    bodies = {number: as_view(pieces.sources[number]) for number in np.unique(pieces.source).tolist()}
    start = at % size
    places = zip(
        [bodies[number] for number in pieces.source.tolist()], pieces.offset.tolist(), start.tolist(),
        (start + pieces.length).tolist(), strict=True,
    )  # fmt: skip
    return _by_block(list(places), at, size, total)


def _reads(pieces: ByteRanges, at: NDArray[np.int64], size: int, total: int) -> list[list[_Read]]:
    """What is read into each block: pieces that are near each other in one file by one call.

    Neighbours that are as far apart in the block as in the file are one run, and so is what lies between them: a header
    of a tar is read into the place of another, since to pass over it costs more.
    """
    if not len(pieces):
        return [[] for _ in range(0, total, size)]
    start, end = at % size, pieces.offset + pieces.length
    gap = pieces.offset[1:] - end[:-1]
    near = (np.diff(pieces.source) == 0) & (np.diff(at // size) == 0) & (gap >= 0) & (gap <= _GAP_BYTES)
    run = np.append(0, np.flatnonzero(~near | (np.diff(start - pieces.offset) != 0)) + 1)
    last = np.append(run[1:], len(pieces)) - 1
    begins = np.append(True, ~near[run[1:] - 1])
    # The first of a call, and every 500th after it.
    place = np.arange(len(run))
    since = place - np.maximum.accumulate(np.where(begins, place, 0))
    begins |= since % _MOST_RUNS == 0
    passed = np.where(begins, 0, pieces.offset[run] - end[np.maximum(run - 1, 0)])
    runs = list(zip(passed.tolist(), start[run].tolist(), (start + pieces.length)[last].tolist(), strict=True))
    bounds = [*np.flatnonzero(begins).tolist(), len(runs)]
    first = run[begins]
    calls = [
        (as_file(pieces.sources[source]), offset, runs[a:b])
        for source, offset, a, b in zip(
            pieces.source[first].tolist(), pieces.offset[first].tolist(), bounds, bounds[1:], strict=False
        )
    ]
    return _by_block(calls, at[first], size, total)


def _by_block(found: list[_T], at: NDArray[np.int64], size: int, total: int) -> list[list[_T]]:
    """What stands in each block, by where it begins."""
    bounds = np.searchsorted(at, np.arange(0, total + size, size)).tolist()
    return [found[a:b] for a, b in pairwise(bounds)]
