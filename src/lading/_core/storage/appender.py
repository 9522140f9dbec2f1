"""Append byte ranges of memory and files to a file, in few system calls.

A call that moves a few megabytes costs as much as the copy itself, and lets other threads run meanwhile. Thousands of
small calls cost half as much again. Each of them waits up to 5 ms for the interpreter lock. Therefore the layout is
computed beforehand, by column: nearly nothing is left to do between two calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import Buffer, ByteRanges, ReadsInto, as_file, as_view, room_for

__all__ = ["Appender"]

_T = TypeVar("_T")

_BLOCK_BYTES = 2 << 20
"""Bytes of one call. Writes go through a block that stays in the CPU cache. `writev` from the source memory takes a
sixth longer on tmpfs, and from mapped files twice as long on ext4. Blocks of 1 to 8 MB are equally fast."""
_AS_THEY_ARE_BYTES = 32 << 10
"""`bytes` objects of this average length are written without the block. Copying them into the block holds the
interpreter lock, and threads that compress wait a sixth of their time. Other memory may be a map, and always uses the
block."""
_MOST_BUFFERS = 1000
"""Number of buffers of one writing call."""
_MOST_WRITE_BYTES = (1 << 31) - (1 << 20)
"""Of one call: Linux writes no more, and macOS refuses more. Python's own `write` keeps to that."""
_MOST_RUNS = 500
"""Number of ranges of one reading call. Each needs a second buffer for the gap before it; the system accepts 1,024."""
_GAP_BYTES = 32 << 10
"""Largest gap between two ranges of one file that are read in one call: a tar header, a little JSON."""

_Run: TypeAlias = tuple[int, int, int]
"""Bytes of the file to skip, and the part of the block to fill."""
_Read: TypeAlias = tuple[ReadsInto, int, list[_Run]]
"""One call: the file, its start offset there, and the parts it fills."""
_Copy: TypeAlias = tuple[memoryview, int, int, int]
"""The memory, the start offset there, and the part of the block to fill."""


class Appender:
    """Append byte ranges to an open file. Holds a block of up to 2 MB, which no other thread may use meanwhile.

    Args:
        see: called with all bytes, in order, while they are in the CPU cache.
    """

    def __init__(self, see: Callable[[Buffer], None] | None = None) -> None:
        self._see = see
        self._block = memoryview(bytearray())
        self._between = memoryview(bytearray(_GAP_BYTES))

    def append(self, fd: int, pieces: ByteRanges) -> None:
        """Write the ranges in order at the current position of the descriptor.

        Raises:
            OSError: from the system.
            ShortRead: a file ends before its range does.
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
            for body, first, a, b in copies[number]:  # after the reads, which also fill the gaps between ranges
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
    """Write several non-empty buffers completely; one system call may write less."""
    while views:
        many = views[:_MOST_BUFFERS]
        written = os.writev(fd, many) if sum(map(len, many)) <= _MOST_WRITE_BYTES else os.write(fd, many[0])
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _cut(pieces: ByteRanges, size: int, total: int) -> tuple[ByteRanges, NDArray[np.int64]]:
    """Return the ranges, cut at the ends of blocks, and the output offset of each."""
    pieces = pieces[pieces.length > 0]
    start = np.cumsum(pieces.length) - pieces.length
    at = np.union1d(start, np.arange(0, total, size))
    piece = np.searchsorted(start, at, "right") - 1
    length = np.diff(at, append=total)
    return ByteRanges(pieces.sources, pieces.source[piece], pieces.offset[piece] + at - start[piece], length), at


def _copies(pieces: ByteRanges, at: NDArray[np.int64], size: int, total: int) -> list[list[_Copy]]:
    """Return the copies from memory into each block."""
    bodies = {number: as_view(pieces.sources[number]) for number in np.unique(pieces.source).tolist()}
    start = at % size
    places = zip(
        [bodies[number] for number in pieces.source.tolist()], pieces.offset.tolist(), start.tolist(),
        (start + pieces.length).tolist(), strict=True,
    )  # fmt: skip
    return _by_block(list(places), at, size, total)


def _reads(pieces: ByteRanges, at: NDArray[np.int64], size: int, total: int) -> list[list[_Read]]:
    """Return the reads into each block: one call reads neighbouring ranges of one file.

    Two neighbours share a run if their distance in the block equals their distance in the file. The gap is read too: a
    tar header lands in the place of another header, because skipping it costs more.
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
    """Return the entries of each block, by start offset."""
    bounds = np.searchsorted(at, np.arange(0, total + size, size)).tolist()
    return [found[a:b] for a, b in pairwise(bounds)]
