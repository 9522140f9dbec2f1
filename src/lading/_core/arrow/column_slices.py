"""Column slices: values selected from many shards, placed before their bytes move.

A shard gives numbers as values, and text and bytes as ranges. After all shards answered, each value is copied or read
once, to its place in the result. Intermediate rows of a shard would be copied twice and then reordered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import Buffer, ByteRanges, as_file, as_view, bitmap, room_for
from lading._core.arrow.views import gather, is_bytes, is_text

__all__ = ["ColumnSlices", "ColumnValues", "Numbers", "as_array", "put"]

_MAX_SMALL = (1 << 31) - 1
_FEW = 256
"""Number of values that Python joins faster than pyarrow views are made for them: 25 µs, not 80, for 64."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Numbers or bools.

    Attributes:
        values: of each row; types that numpy lacks are unsigned integers of their width.
        there: which are not null; None if no value is null.
    """

    values: NDArray[Any]
    there: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)


ColumnValues: TypeAlias = Numbers | ByteRanges
"""Values of a column."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSlices:
    """Rows of a shard.

    Attributes:
        schema: the columns, in order.
        columns: their values, by name.
        rest: the values of other columns, read; None if there are no other columns.
    """

    schema: pa.Schema
    columns: Mapping[str, ColumnValues]
    rest: pa.Table | None


def put(parts: Sequence[ColumnValues], places: Sequence[NDArray[np.int64]], count: int) -> ColumnValues:
    """Combine values of several shards into one column.

    Args:
        parts: the values of each shard.
        places: for each part, the output row of each of its values; each row occurs once among them.
        count: rows of the column.
    """
    if isinstance(parts[0], Numbers):
        return _put_numbers([part for part in parts if isinstance(part, Numbers)], places, count)
    pieces = [part for part in parts if isinstance(part, ByteRanges)]
    source, offset, length = (np.empty(count, np.int64) for _ in range(3))
    before = 0
    for part, place in zip(pieces, places, strict=True):
        source[place] = np.where(part.source < 0, -1, part.source + before) if before else part.source
        offset[place], length[place] = part.offset, part.length
        before += len(part.sources)
    return ByteRanges([each for part in pieces for each in part.sources], source, offset, length)


def _put_numbers(parts: Sequence[Numbers], places: Sequence[NDArray[np.int64]], count: int) -> Numbers:
    values = np.empty(count, parts[0].values.dtype)
    there = None if all(part.there is None for part in parts) else np.ones(count, np.bool_)
    for part, place in zip(parts, places, strict=True):
        values[place] = part.values
        if there is not None and part.there is not None:
            there[place] = part.there
    return Numbers(values, there)


def as_array(values: ColumnValues, kind: pa.DataType, *, views: bool = False) -> pa.Array:
    """Return the values in a type: copied, or read from files; with `views` bytes are shared.

    Text and bytes of more than 2 GiB come as the large variant of a small type. Text is not checked.

    Raises:
        ShortRead: a file became shorter.
    """
    if isinstance(values, Numbers):
        data = np.packbits(values.values, bitorder="little") if pa.types.is_boolean(kind) else values.values
        return pa.Array.from_buffers(kind, len(values), [bitmap(values.there), pa.py_buffer(data)])
    there = None if bool(values.there.all()) else values.there
    views = views and is_bytes(kind)
    if not all(isinstance(source, Buffer) for source in values.sources):
        return _read(values, kind, there)
    if len(values) < _FEW and not views:
        return _joined(values, kind, there)
    where = np.maximum(values.source, 0).astype(np.int32)
    shown = gather(_buffers(values), where, values.offset, values.length, there, prefixes=views)
    if views:
        return shown
    copied = shown.cast(_bytes_type(kind, int(values.length.sum())))
    return pa.Array.from_buffers(_fitting(kind, copied.type), len(values), copied.buffers())


def _joined(pieces: ByteRanges, kind: pa.DataType, there: NDArray[np.bool_] | None) -> pa.Array:
    """Concatenate values that are all in memory."""
    data = b"".join(each for each in pieces.views() if each is not None)
    inner = _bytes_type(kind, len(data))
    ends = np.zeros(len(pieces) + 1, np.int64 if inner == pa.large_binary() else np.int32)
    np.cumsum(pieces.length, out=ends[1:])
    return pa.Array.from_buffers(
        _fitting(kind, inner), len(pieces), [bitmap(there), pa.py_buffer(ends), pa.py_buffer(data)]
    )


def _read(pieces: ByteRanges, kind: pa.DataType, there: NDArray[np.bool_] | None) -> pa.Array:
    """Read values, some of them from files, in file order."""
    ends = np.append(0, np.cumsum(pieces.length))
    inner = _bytes_type(kind, int(ends[-1]))
    data = room_for(int(ends[-1]))
    body, in_file = as_view(data), pieces.in_file
    for row in np.lexsort((pieces.offset, pieces.source)).tolist():
        offset, target = int(pieces.offset[row]), body[ends[row] : ends[row + 1]]
        if in_file[row] and len(target):
            as_file(pieces.sources[pieces.source[row]]).read_into([target], offset)
        elif len(target):
            target[:] = as_view(pieces.sources[pieces.source[row]])[offset : offset + len(target)]
    offsets = ends.astype(np.int64 if inner == pa.large_binary() else np.int32)
    return pa.Array.from_buffers(_fitting(kind, inner), len(pieces), [bitmap(there), pa.py_buffer(offsets), data])


def _buffers(pieces: ByteRanges) -> list[pa.Buffer]:
    sources = pieces.sources
    return [source if isinstance(source, pa.Buffer) else pa.py_buffer(as_view(source)) for source in sources]


def _bytes_type(kind: pa.DataType, size: int) -> pa.DataType:
    """Return the type of bytes with the same offsets as a type, or wider ones if the bytes need them."""
    return pa.binary() if kind in (pa.string(), pa.binary()) and size <= _MAX_SMALL else pa.large_binary()


def _fitting(kind: pa.DataType, inner: pa.DataType) -> pa.DataType:
    """Return the type of text or bytes with the offsets of a type of bytes."""
    if inner == pa.binary():
        return kind
    return pa.large_string() if is_text(kind) else pa.large_binary()
