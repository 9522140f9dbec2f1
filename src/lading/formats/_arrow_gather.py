"""Rows picked out of many record batches of a mapped file at once, without a look at each batch by pyarrow.

20,000 of 500,000 rows lie in all of 500 batches: numbers and offsets are picked of the whole map by their places. Text
and bytes are copied from it too where all of it may stay in memory, or so many rows are wanted that all is touched
anyway; where they are far between, they are read: that takes as long as a page fault, and leaves nothing in memory.

Only plain columns of small values go this way (`lading.formats._arrow_places`). Anything that is not as it should be
makes it give up, and who reads batch by batch says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.formats._arrow_blocks import Body
from lading.formats._arrow_large import LARGE_BYTES
from lading.formats._arrow_places import Places, PlainColumn
from lading.pieces import bitmap
from lading.views import from_ranges, is_text

__all__ = ["gather_rows"]

_SLICE_ROWS = 4096
_FAULT_BYTES = 64 << 10
"""That one touch brings into memory, as a rule."""
_MANY_ROWS = 256
"""Of each batch: if they are most of its rows, too, it is opened, as its neighbours need no copy then."""
_MAX_SMALL = (1 << 31) - 1


class _Misfit(Exception):
    """The rows cannot be taken together."""


def gather_rows(
    body: Body, places: Places, schema: pa.Schema, columns: Sequence[int], batch: NDArray[np.int64],
    row: NDArray[np.int64], *, views: bool = False,
) -> list[pa.RecordBatch] | None:  # fmt: skip
    """Rows of record batches, some thousand a part, of views all; None if they are to be read batch by batch.

    With `views` text and bytes are views of the map, for who copies them to where they belong; None where the map is
    too large to stay in memory until then, or would be touched for little.

    Args:
        body: the file, mapped.
        places: where its values lie.
        schema: of all columns.
        columns: which to give, by number.
        batch: the record batch of each row, not falling.
        row: its number there.
        views: see there.
    """
    if not columns or not all(number in places.columns for number in columns):
        return None
    touched = _distinct(batch)
    if len(row) >= _MANY_ROWS * len(touched) and 2 * len(row) > int(places.rows[touched].sum()):
        return None
    dense = body.may_stay() or (not views and len(row) * _FAULT_BYTES >= body.size_bytes)
    if views and not dense:
        return None
    try:
        return list(_Picker(body, dense=dense, views=views).parts(places, schema, columns, batch, row))
    except (_Misfit, pa.ArrowException):
        return None


class _Picker:
    """Gives values of a mapped file by their places."""

    def __init__(self, body: Body, *, dense: bool, views: bool) -> None:
        assert body.mapped is not None
        body.mapped.check()
        self._body, self._buffer, self._dense, self._views = body, body.mapped.buffer, dense, views

    def parts(
        self, places: Places, schema: pa.Schema, columns: Sequence[int], batch: NDArray[np.int64],
        row: NDArray[np.int64],
    ) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """The rows; after each part pages that were touched may be given back, so views are one part."""
        names = [schema.field(i).name for i in columns]
        step = len(row) if self._views else _SLICE_ROWS
        for at in range(0, len(row), step):
            some = batch[at : at + step], row[at : at + step]
            yield pa.RecordBatch.from_arrays([self._column(places.columns[i], *some) for i in columns], names)
            self._body.touched(min(len(some[0]) * _FAULT_BYTES, self._body.size_bytes))

    def _column(self, column: PlainColumn, batch: NDArray[np.int64], row: NDArray[np.int64]) -> pa.Array:
        valid = self._valid(column, batch, row)
        if column.data is not None and column.data_bytes is not None:
            return self._texts(column, column.data[batch], column.data_bytes[batch], batch, row, valid)
        if column.width:
            [values] = self._picked(column, batch, row)
            numbers = pa.py_buffer(values)
        else:
            numbers = pa.py_buffer(np.packbits(self._bits(column.first[batch], row), bitorder="little"))
        found = pa.Array.from_buffers(column.kind, len(row), [bitmap(valid), numbers])
        found.validate(full=True)
        return found

    def _valid(self, column: PlainColumn, batch: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        if column.nulls is None:
            return None
        valid = np.ones(len(row), np.bool_)
        nulls = column.nulls[batch] > 0
        valid[nulls] = self._bits(column.bits[batch[nulls]], row[nulls])
        return valid

    def _texts(
        self, column: PlainColumn, data: NDArray[np.int64], data_bytes: NDArray[np.int64], batch: NDArray[np.int64],
        row: NDArray[np.int64], valid: NDArray[np.bool_] | None,
    ) -> pa.Array:  # fmt: skip
        kind, wide = column.kind, column.wide
        start, stop = (ends.astype(np.int64) for ends in self._picked(column, batch, row, 2))
        size = stop - start if valid is None else np.where(valid, stop - start, 0)
        _require((start >= 0).all() and (size >= 0).all() and (stop <= data_bytes).all())
        total = int(size.sum())
        _require(total < LARGE_BYTES * len(row) and (wide or total <= _MAX_SMALL))
        at = data + start
        if self._dense:
            shown = from_ranges(self._buffer, at, size, valid)
            if self._views:
                view = pa.string_view() if is_text(kind) else pa.binary_view()
                return pa.Array.from_buffers(view, len(row), shown.buffers())
            copied = shown.cast(pa.large_binary() if wide else pa.binary())
            return pa.Array.from_buffers(kind, len(row), copied.buffers())
        read = b"".join(self._body.peek_each(at, size))
        ends = np.append(0, np.cumsum(size)).astype(np.int64 if wide else np.int32)
        return pa.Array.from_buffers(kind, len(row), [bitmap(valid), pa.py_buffer(ends), pa.py_buffer(read)])

    def _picked(
        self, column: PlainColumn, batch: NDArray[np.int64], row: NDArray[np.int64], count: int = 1
    ) -> list[NDArray[np.uint]]:
        """The number of each row, as unsigned ones of its width; and those that follow it."""
        values = np.frombuffer(self._buffer, f"<u{column.width}", self._buffer.size // column.width)
        place = column.first[batch] + row
        return [values[place + i] for i in range(count)]

    def _bits(self, at: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The bit of each row, of bits that begin at these places."""
        found = np.frombuffer(self._buffer, np.uint8)[at + (row >> 3)]
        return (found >> (row & 7).astype(np.uint8) & 1).astype(np.bool_)


def _distinct(rising: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once."""
    return rising[np.flatnonzero(np.diff(rising, prepend=-1))]


def _require(holds: object) -> None:
    if not holds:
        raise _Misfit
