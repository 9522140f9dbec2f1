"""Files read once and in their order, a window at a time, for functions that look at every byte of values.

`results_in_windows` is told where the values lie. `PassedRanges` is for files in which a reader has to look for them:
it walks over the same windows, and the values are worked on where it found them.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.pieces import Pieces, ReadsInto, Source, as_file, as_view, is_held, room_for
from lading.ranges import FetchPlan, plan_ranges
from lading.store.protocol import MappedFile

__all__ = ["PassedRanges", "Work", "results_in_windows"]

Work = Callable[[memoryview], bytes]
"""What is made of a value, which is there for the call only."""

_WINDOW_BYTES, _GAP_BYTES = 1 << 20, 32 << 10
"""Half of a usual second-level cache, and a gap that costs as much as a read. Of 20,000 pictures of 100 KB: read into a
window of up to 4 MB and hashed there at 10.6 GB/s, into one of 128 MB at 5, in a map at 6.5, for page faults."""

_HEADER_BYTES = 2 << 10
"""A window where values are too large for one: a header, and often the next."""
_KEPT_BYTES, _MOST_KEPT_BYTES = 16 << 10, 16 << 20
"""Values up to so long are kept as they are, and so much of them of a file: JSON, which takes more than a hash."""
_MOST_RANGES, _MOST_FILES, _MOST_BYTES = 1 << 20, 64, 24 << 20
"""Of a file; and files that there may be beside the one walked over, and what is held of them: files are open."""


def results_in_windows(columns: Mapping[str, Pieces], works: Mapping[str, Work]) -> dict[str, pa.Array]:
    """What functions make of the values of columns, as `large_binary`; null where there is no value.

    Takes memory for a window of 1 MB or one longer value, and for the results.

    Args:
        columns: where the values lie, all in open files.
        works: for each column its function.

    Raises:
        StoreError: a file became shorter.
    """
    files = {id(source): source for pieces in columns.values() for source in pieces.sources}
    places = {name: np.full(len(pieces.source), -1) for name, pieces in columns.items()}
    made: list[bytes] = []
    for file in files.values():
        mine = [(name, pieces, _rows_in(pieces, file)) for name, pieces in columns.items()]
        if is_held(file):
            for name, pieces, rows in mine:
                places[name][rows] = np.arange(len(made), len(made) + len(rows))
                held = Pieces([file], np.zeros(len(rows), np.int64), pieces.offset[rows], pieces.length[rows])
                made += held.results(works[name])
            continue
        offset = np.concatenate([pieces.offset[rows] for _, pieces, rows in mine])
        length = np.concatenate([pieces.length[rows] for _, pieces, rows in mine])
        plan = plan_ranges(offset, length, max_gap_bytes=_GAP_BYTES, max_request_bytes=_WINDOW_BYTES)
        order = np.lexsort((plan.offset_in, plan.request_of))
        turn = np.empty(len(order), np.int64)
        turn[order] = np.arange(len(made), len(made) + len(order))
        ends = np.cumsum([len(rows) for *_, rows in mine])
        for (name, _, rows), turns in zip(mine, np.split(turn, ends[:-1]), strict=True):
            places[name][rows] = turns
        names = [name for name, *_ in mine]
        functions = [works[names[column]] for column in np.searchsorted(ends, order, side="right").tolist()]
        made += _worked(as_file(file), plan, order, length, functions)
    values = pa.array(made, pa.large_binary())
    return {name: values.take(pa.array(at, mask=at < 0)) for name, at in places.items()}


def _rows_in(pieces: Pieces, file: Source) -> NDArray[np.int64]:
    numbers = [number for number, source in enumerate(pieces.sources) if source is file]
    return np.flatnonzero(np.isin(pieces.source, numbers))


def _worked(
    file: ReadsInto, plan: FetchPlan, order: NDArray[np.int64], length: NDArray[np.int64], functions: Sequence[Work]
) -> Iterator[bytes]:
    """What functions make of ranges of a file, in the order of the plan's requests."""
    starts, stops = plan.offset_in[order].tolist(), (plan.offset_in + length)[order].tolist()
    bounds = np.searchsorted(plan.request_of[order], np.arange(len(plan.length) + 1)).tolist()
    window = memoryview(bytearray(min(_WINDOW_BYTES, int(plan.length.max(initial=0)))))
    for (at, size), first, stop in zip(plan.requests, bounds[:-1], bounds[1:], strict=True):
        body = window[:size] if size <= len(window) else as_view(room_for(size))
        file.read_into([body], at)
        mine = slice(first, stop)
        yield from [work(body[i:j]) for work, i, j in zip(functions[mine], starts[mine], stops[mine], strict=True)]


class PassedRanges:
    """What a function makes of ranges of files that somebody walks over from front to back; short ranges are kept.

    Holds a window of 1 MB, and of the last files up to 80 MB of results and short ranges. What is not among them is to
    be read: ranges longer than the window, and those behind the first million of a file, or 16 MB of short ones.

    Args:
        work: gives `result_bytes` bytes for a range.
        result_bytes: how many.
    """

    def __init__(self, work: Work, result_bytes: int) -> None:
        self._work, self._result_bytes = work, result_bytes
        self._buffer = memoryview(bytearray(_WINDOW_BYTES))
        self._files: OrderedDict[int, _Passing] = OrderedDict()
        self._reading: _Passing | None = None

    def walk(self, file: MappedFile) -> _Passing:
        """For a walk over a file; what an earlier one made of it is forgotten."""
        self._files.pop(id(file), None)
        while len(self._files) > _MOST_FILES or sum(passing.nbytes for passing in self._files.values()) > _MOST_BYTES:
            self._files.popitem(last=False)
        made = _Passing(file, self._work, self._result_bytes, self._lend)
        self._files[id(file)] = made  # which holds the file, and with it its number
        return made

    def _lend(self, passing: _Passing) -> memoryview:
        """The memory of the window, for one walk at a time."""
        if self._reading is not None:
            self._reading.finish()
        self._reading = passing
        return self._buffer

    def look_up(self, pieces: Pieces, *, worked: bool) -> tuple[NDArray[np.uint8], NDArray[np.bool_], Pieces]:
        """What there is for pieces: with `worked` results, of the long ones; and the bytes of short ones.

        Returns:
            Results, `(pieces, result_bytes)`, zeros where there is none; where there is one; and the pieces without
            these, in memory those that were kept.
        """
        made = np.zeros((len(pieces), self._result_bytes), np.uint8)
        known = np.zeros(len(pieces), np.bool_)
        sources, source, offset = list(pieces.sources), pieces.source.copy(), pieces.offset.copy()
        for number, file in enumerate(pieces.sources):
            passing = self._files.get(id(file))
            if passing is None:
                continue
            passing.finish()
            rows = np.flatnonzero(pieces.source == number)
            place, found = passing.places(offset[rows], pieces.length[rows])
            long = pieces.length[rows[found]] > _KEPT_BYTES
            wanted = ~long | worked
            rows, place, long = rows[found][wanted], place[wanted], long[wanted]
            made[rows[long]], known[rows[long]] = passing.results[place[long]], True
            source[rows], offset[rows] = np.where(long, -1, len(sources)), place
            sources.append(passing.kept)
        return made, known, Pieces(sources, source, offset, np.where(known, 0, pieces.length))


class _Passing:
    """A walk over a file.

    Attributes:
        passed: offset and length of values in the part at hand, to be added to; those that do not lie in it whole are
            left out.
    """

    __slots__ = ("_base", "_borrow", "_far", "_file", "_kept", "_length", "_made", "_offset", "_part", "_place",
                 "_result_bytes", "_work", "passed")  # fmt: skip

    def __init__(
        self, file: MappedFile, work: Work, result_bytes: int, borrow: Callable[[_Passing], memoryview]
    ) -> None:
        self._file, self._work, self._result_bytes, self._borrow = file, work, result_bytes, borrow
        self._part, self._base = memoryview(b""), 0
        self._far = False
        self.passed: list[tuple[int, int]] = []
        # No object for each: a tar may have a million.
        self._offset, self._length, self._place = array("q"), array("q"), array("q")
        self._made, self._kept = bytearray(), bytearray()

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return len(self._made) + len(self._kept) + 3 * self._offset.itemsize * len(self._offset)

    def part(self, at: int, least_bytes: int) -> tuple[memoryview, int]:
        """A part of the file, good until the next, and where it begins.

        It has `least_bytes` from `at` on, if these are no more than a window and the file has as many.

        Raises:
            ShortRead: the file became shorter.
        """
        stop = min(at + least_bytes, self._file.size_bytes)
        fits, here = stop - at <= _WINDOW_BYTES, self._base + len(self._part)
        if not self._base <= at <= here or (fits and stop > here):
            size = _WINDOW_BYTES if least_bytes > _HEADER_BYTES or not self._far else _HEADER_BYTES
            part = self._borrow(self)[: min(size, self._file.size_bytes - at)]
            self._file.read_into([part], at)
            self._part, self._base = part, at
        self._far = not fits
        return self._part, self._base

    def finish(self) -> None:
        """Work on the values of the part at hand; it is gone then."""
        part, first, stop = self._part, self._base, self._base + len(self._part)
        least = max(first, self._offset[-1] + 1 if self._offset else 0)  # where a walk went back, values are known
        made, kept, work = self._made, self._kept, self._work
        for at, size in self.passed:
            long = size > _KEPT_BYTES
            full = len(self._offset) >= _MOST_RANGES or (not long and len(kept) >= _MOST_KEPT_BYTES)
            if at < least or at + size > stop or full:
                continue
            least = at + 1
            value = part[at - first : at - first + size]
            self._offset.append(at)
            self._length.append(size)
            self._place.append(len(made) // self._result_bytes if long else len(kept))
            if long:
                made += work(value)
            else:
                kept += value
        self.passed.clear()
        self._part, self._base = memoryview(b""), 0

    def places(
        self, offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Of each of these ranges that is known, the row of its result, or where it is kept; and which are known."""
        offsets, lengths = np.frombuffer(self._offset, np.int64), np.frombuffer(self._length, np.int64)
        if not len(offsets):
            return np.zeros(0, np.int64), np.zeros(len(offset), np.bool_)
        at = np.minimum(np.searchsorted(offsets, offset), len(offsets) - 1)
        found = (offsets[at] == offset) & (lengths[at] == length)
        return np.frombuffer(self._place, np.int64)[at[found]], found

    @property
    def kept(self) -> bytes:
        """The short ranges, one after another."""
        return bytes(self._kept)

    @property
    def results(self) -> NDArray[np.uint8]:
        """Of the long ranges, a row each."""
        return np.frombuffer(bytes(self._made), np.uint8).reshape(-1, self._result_bytes)
