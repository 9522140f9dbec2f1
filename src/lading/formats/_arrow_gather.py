"""Rows picked out of many record batches of a mapped file at once, without a look at each batch by pyarrow.

To open a batch takes 50 µs, and few rows are wanted of each: 20,000 of 500,000 lie in all of 500 batches. The heads of
one writer's batches differ in numbers only, so they are read as one array; numbers and offsets are then picked of the
whole map. Text and bytes are copied from it too where so many rows are wanted that all of it is touched anyway; where
they are far between, they are read: that takes as long as a page fault, and leaves nothing in memory.

Only plain columns of small values go this way: numbers, times, text and bytes. Anything that is not as it should be
makes it give up, and who reads batch by batch says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.formats._arrow_blocks import CONTINUED, Block, Body
from lading.formats._arrow_flat import RowsHeads, rows_heads
from lading.formats._arrow_large import LARGE_BYTES
from lading.pieces import bitmap
from lading.views import from_ranges, is_bytes, is_text, is_view

__all__ = ["gather_rows"]

_FEW_BATCHES = 8
_SLICE_ROWS = 4096
_FAULT_BYTES = 64 << 10
"""That one touch brings into memory, as a rule."""
_MAX_SMALL = (1 << 31) - 1
_PREFIX = 8
_WIDTHS = (8, 16, 32, 64)


class _Misfit(Exception):
    """The batches cannot be taken together."""


def gather_rows(
    body: Body, blocks: Sequence[Block], schema: pa.Schema, columns: Sequence[int], batch: NDArray[np.int64],
    row: NDArray[np.int64], *, views: bool = False,
) -> list[pa.RecordBatch] | None:  # fmt: skip
    """Rows of record batches, some thousand a part, of views all; None if they are to be read batch by batch.

    With `views` text and bytes are views of the map, for who copies them to where they belong; None where the map is
    too large to stay in memory until then, or would be touched for little.

    Args:
        body: the file.
        blocks: where its record batches lie.
        schema: of all columns.
        columns: which to give, by number.
        batch: the record batch of each row, not falling.
        row: its number there.
        views: see there.
    """
    first = np.flatnonzero(np.diff(batch, prepend=-1))
    touched = [blocks[number] for number in batch[first].tolist()]
    whole = sum(block.rows for block in touched)
    if body.mapped is None or not columns or len(touched) < _FEW_BATCHES or 2 * len(row) > whole:
        return None
    dense = len(row) * _FAULT_BYTES >= body.size_bytes
    if views and not (dense and body.may_stay()):
        return None
    try:
        picker = _Picker(body, touched, schema, dense=dense, views=views)
        which = np.repeat(np.arange(len(touched)), np.diff(first, append=len(batch)))
        return list(picker.parts(which, row, columns))
    except (_Misfit, pa.ArrowException):
        return None


class _Picker:
    """The record batches that rows are picked of."""

    def __init__(self, body: Body, blocks: Sequence[Block], schema: pa.Schema, *, dense: bool, views: bool) -> None:
        assert body.mapped is not None
        self._dense, self._views = dense, views
        self._body, self._buffer, self._schema = body, body.mapped.buffer, schema
        self._places = _places(schema)
        self._heads, start = _heads(body, blocks, touch=dense)
        self._rows = rows = np.array([block.rows for block in blocks])
        _require(self._heads.buffers.shape[1] == sum(3 if text else 2 for _, text in self._places))
        _require(self._heads.nodes.shape[1] == len(schema) and (self._heads.rows == rows).all())
        _require((self._heads.nodes[:, :, 0] == rows[:, None]).all() and (self._heads.nodes[:, :, 1] >= 0).all())
        offset, length = self._heads.buffers[:, :, 0], self._heads.buffers[:, :, 1]
        ends = np.array([block.offset + block.size_bytes for block in blocks]) - start
        _require((self._heads.body_bytes <= ends).all() and offset.min() >= 0 and length.min() >= 0)
        _require((offset <= self._heads.body_bytes[:, None] - length).all())
        self._at, self._length = (start + offset.T), np.ascontiguousarray(length.T)

    def parts(
        self, which: NDArray[np.int64], row: NDArray[np.int64], columns: Sequence[int]
    ) -> Iterator[pa.RecordBatch]:
        """The rows; after each part pages that were touched may be given back, so views are one part."""
        names = [self._schema.field(i).name for i in columns]
        step = len(row) if self._views else _SLICE_ROWS
        for at in range(0, len(row), step):
            some = which[at : at + step], row[at : at + step]
            yield pa.RecordBatch.from_arrays([self._column(i, *some) for i in columns], names)
            self._body.touched(min(len(some[0]) * _FAULT_BYTES, self._body.size_bytes))

    def _column(self, number: int, which: NDArray[np.int64], row: NDArray[np.int64]) -> pa.Array:
        kind = self._schema.field(number).type
        buffer, is_text_or_bytes = self._places[number]
        valid = self._valid(number, buffer, which, row)
        if is_text_or_bytes:
            return self._texts(kind, buffer, which, row, valid)
        width = kind.bit_width // 8
        _require((self._rows * width <= self._length[buffer + 1]).all())
        [values] = self._picked(buffer + 1, width, which, row)
        column = pa.Array.from_buffers(kind, len(row), [bitmap(valid), pa.py_buffer(values)])
        column.validate(full=True)
        return column

    def _valid(
        self, number: int, buffer: int, which: NDArray[np.int64], row: NDArray[np.int64]
    ) -> NDArray[np.bool_] | None:
        with_nulls = self._heads.nodes[:, number, 1] > 0
        if not with_nulls.any():
            return None
        _require((self._rows <= 8 * self._length[buffer])[with_nulls].all())
        valid = np.ones(len(row), np.bool_)
        nulls = with_nulls[which]
        [bits] = self._picked(buffer, 1, which[nulls], row[nulls] >> 3)
        valid[nulls] = (bits >> (row[nulls] & 7).astype(np.uint8)) & 1
        return valid

    def _texts(
        self, kind: pa.DataType, buffer: int, which: NDArray[np.int64], row: NDArray[np.int64],
        valid: NDArray[np.bool_] | None,
    ) -> pa.Array:  # fmt: skip
        wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        width = 8 if wide else 4
        _require(((self._rows + 1) * width <= self._length[buffer + 1]).all())
        start, stop = (ends.astype(np.int64) for ends in self._picked(buffer + 1, width, which, row, 2))
        size = stop - start if valid is None else np.where(valid, stop - start, 0)
        _require((start >= 0).all() and (size >= 0).all() and (stop <= self._length[buffer + 2][which]).all())
        total = int(size.sum())
        _require(total < LARGE_BYTES * len(row) and (wide or total <= _MAX_SMALL))
        at = self._at[buffer + 2][which] + start
        if self._dense:
            shown = from_ranges(self._buffer, at, size, valid)
            if self._views:
                view = pa.string_view() if is_text(kind) else pa.binary_view()
                return pa.Array.from_buffers(view, len(row), shown.buffers())
            copied = shown.cast(pa.large_binary() if wide else pa.binary())
            return pa.Array.from_buffers(kind, len(row), copied.buffers())
        data = b"".join(self._body.peek_each(at, size))
        ends = np.append(0, np.cumsum(size)).astype(np.int64 if wide else np.int32)
        return pa.Array.from_buffers(kind, len(row), [bitmap(valid), pa.py_buffer(ends), pa.py_buffer(data)])

    def _picked(
        self, buffer: int, width: int, which: NDArray[np.int64], row: NDArray[np.int64], count: int = 1
    ) -> list[NDArray[np.uint]]:
        """Numbers of so many bytes, each at its row's place in a buffer of its batch; and those that follow them.

        The caller has checked that the buffers are long enough.
        """
        _require(not (self._at[buffer] % width).any())
        values = np.frombuffer(self._buffer, f"<u{width}", self._buffer.size // width)
        place = (self._at[buffer] // width)[which] + row
        return [values[place + i] for i in range(count)]


def _places(schema: pa.Schema) -> list[tuple[int, bool]]:
    """The first buffer of each column, and whether it holds text or bytes."""
    places, at = [], 0
    for kind in schema.types:
        plain = (is_text(kind) or is_bytes(kind)) and not is_view(kind)
        _require(plain or (pa.types.is_primitive(kind) and kind.bit_width in _WIDTHS))
        places.append((at, plain))
        at += 3 if plain else 2
    return places


def _heads(body: Body, blocks: Sequence[Block], *, touch: bool) -> tuple[RowsHeads, NDArray[np.int64]]:
    """What the heads of the batches say, and where the bodies begin; read, or of the map if that is touched anyway."""
    assert body.mapped is not None
    size = blocks[0].meta_bytes
    _require(size > _PREFIX and all(block.meta_bytes == size for block in blocks))
    offset = np.array([block.offset for block in blocks])
    if touch:
        body.mapped.check()
        raw = np.frombuffer(body.mapped.buffer, np.uint8)[offset[:, None] + np.arange(size)]
    else:
        raw = np.frombuffer(b"".join(body.peek_each(offset, np.full(len(blocks), size))), np.uint8).reshape(-1, size)
    head_bytes = int.from_bytes(raw[0, 4:_PREFIX].tobytes(), "little")
    _require(raw[0, :4].tobytes() == CONTINUED and (raw[:, :_PREFIX] == raw[0, :_PREFIX]).all())
    _require(0 < head_bytes <= size - _PREFIX)
    found = rows_heads(raw[:, _PREFIX : _PREFIX + head_bytes])
    if found is None:
        raise _Misfit
    return found, offset + _PREFIX + head_bytes


def _require(holds: object) -> None:
    if not holds:
        raise _Misfit
