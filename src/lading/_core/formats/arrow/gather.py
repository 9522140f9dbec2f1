"""Read selected values of many record batches of a mapped file at once, without pyarrow for each batch.

20,000 of 500,000 rows are in all of 500 batches. Numbers and offsets are selected from the whole map by their places.
Text and bytes stay in place: in the map, if all of it may stay in memory, or in the file, if they are large. Small
values in a large file that are far apart are read: that is faster than a page fault, and leaves nothing in memory.

Only plain columns are read this way (`_core.formats.arrow.places`). For any irregularity the module returns None, and
the reader that goes batch by batch reports the error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges, Source
from lading._core.arrow.column_slices import ColumnValues, Numbers
from lading._core.arrow.views import is_bytes
from lading._core.formats.arrow.blocks import ArrowFile
from lading._core.formats.arrow.large import LARGE_BYTES
from lading._core.formats.arrow.places import PlainColumn
from lading._core.storage.fetch_plan import plan_ranges
from lading._core.storage.windows import BUFFER_BYTES, read_together

__all__ = ["gather_columns"]

_FAULT_BYTES = 64 << 10
"""Bytes that one touch usually reads into memory."""
_GAP_BYTES, _FEW_READS = 8 << 10, 16
"""Bytes between two numbers that take as long as another read; so few reads take as long as a plan for them."""
_SLICE_ROWS = 4096
"""Bytes of a large map that are touched before pages may be released."""


class _Misfit(Exception):
    """The rows cannot be read together."""


def gather_columns(
    body: ArrowFile, columns: Sequence[PlainColumn], batch: NDArray[np.int64], row: NDArray[np.int64], *, views: bool,
    hold: bool,
) -> list[ColumnValues] | None:  # fmt: skip
    """Return rows of record batches, column by column; None if they must be read batch by batch.

    Args:
        body: the file, mapped.
        columns: places of their values.
        batch: the record batch of each row.
        row: its number there.
        views: leave all bytes in the map, for callers that use them there.
        hold: whether the result may keep the file open.
    """
    try:
        picker = _Picker(body, views=views and hold, hold=hold)
        found = [picker.column(column, batch, row) for column in columns]
    except _Misfit:
        return None
    return found


class _Picker:
    """Return values of a mapped file by their places."""

    def __init__(self, body: ArrowFile, *, views: bool, hold: bool) -> None:
        mapped = body.open_map()
        assert mapped is not None
        mapped.check()
        self._body, self._mapped, self._buffer = body, mapped, mapped.buffer
        self._may_touch, self._views, self._hold = hold and body.may_stay(), views, hold

    def column(self, column: PlainColumn, batch: NDArray[np.int64], row: NDArray[np.int64]) -> ColumnValues:
        """Return values of a column. Raises _Misfit if offsets run backwards or outside."""
        there = self._there(column, batch, row)
        first = column.first[batch]
        if column.data is None or column.data_bytes is None:
            return Numbers(self._numbers(column.width, first + row) if column.width else self._bits(first, row), there)
        start, stop = (ends.astype(np.int64) for ends in self._pairs(column.width, first + row))
        size = stop - start
        if bool((start < 0).any() or (size < 0).any() or (stop > column.data_bytes[batch]).any()):
            raise _Misfit
        if there is not None:
            size = np.where(there, size, 0)
        source = np.zeros(len(row), np.int64) if there is None else np.where(there, 0, -1)
        return self._byte_ranges(source, column.data[batch] + start, size, views=self._views and is_bytes(column.kind))

    def _byte_ranges(
        self, source: NDArray[np.int64], at: NDArray[np.int64], size: NDArray[np.int64], *, views: bool
    ) -> ByteRanges:
        """Return byte ranges by their places in the file; their source is the map, the file, or memory read from it."""
        where: Source = self._buffer
        if not views and int(size.sum()) > LARGE_BYTES * len(size):
            where = self._mapped if self._hold else self._body.reopened()
        elif not views and not self._may_touch:
            order = np.argsort(at)
            where = b"".join(self._body.peek_each(at[order], size[order]))
            at = np.empty(len(order), np.int64)
            at[order] = np.cumsum(size[order]) - size[order]
        return ByteRanges([where], source, at, size)

    def _there(self, column: PlainColumn, batch: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        if column.nulls is None:
            return None
        there = np.ones(len(row), np.bool_)
        nulls = column.nulls[batch] > 0
        there[nulls] = self._bits(column.bits[batch[nulls]], row[nulls])
        return there

    def _pairs(self, width: int, place: NDArray[np.int64]) -> tuple[NDArray[np.uint], NDArray[np.uint]]:
        """Return the numbers at places, and the numbers after them."""
        if self._reads(place):
            start, stop = self._read(width, place, 2).T
            return start, stop
        return self._numbers(width, place), self._numbers(width, place + 1)

    def _numbers(self, width: int, place: NDArray[np.int64]) -> NDArray[np.uint]:
        """Return unsigned numbers of a width by their places, counted in numbers."""
        if self._reads(place):
            return self._read(width, place, 1)[:, 0]
        # `take` lets other threads run, which an index does not: page faults are most of the time.
        whole = np.frombuffer(self._buffer, f"<u{width}", self._buffer.size // width)
        if self._may_touch:
            return whole.take(place)
        order, found = np.argsort(place), np.empty(len(place), whole.dtype)
        for at in range(0, len(place), _SLICE_ROWS):
            some = order[at : at + _SLICE_ROWS]
            found[some] = whole.take(place[some])
            self._body.touched(min(len(some) * _FAULT_BYTES, self._body.size_bytes))
        return found

    def _reads(self, place: NDArray[np.int64]) -> bool:
        """Return whether numbers are read: they are so far apart that each would need a page of its own."""
        return not self._may_touch and len(place) * _FAULT_BYTES < self._body.size_bytes

    def _read(self, width: int, place: NDArray[np.int64], count: int) -> NDArray[np.uint]:
        """Return this many numbers from each place on: (places, numbers). Those of a record batch are neighbours."""
        offset, length = place * width, np.full(len(place), count * width)
        if len(place) < _FEW_READS:
            return np.frombuffer(b"".join(self._body.peek_each(offset, length)), f"<u{width}").reshape(-1, count)
        plan = plan_ranges(offset, length, max_gap_bytes=_GAP_BYTES, max_request_bytes=BUFFER_BYTES)
        [read], _, at = read_together(self._mapped, plan, int(plan.length.sum()))
        found: NDArray[np.uint] = np.frombuffer(read, f"<u{width}")[(at // width)[:, None] + np.arange(count)]
        return found

    def _bits(self, at: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the bit of each row, in bitmaps that begin at these places."""
        return (self._numbers(1, at + (row >> 3)) >> (row & 7).astype(np.uint8) & 1).astype(np.bool_)
