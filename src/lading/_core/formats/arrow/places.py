"""Places of the values of plain columns in an Arrow file or stream, for all record batches at once.

Opening a batch takes 100 µs and more, and random access needs few rows of each. The heads of one writer's batches
differ only in numbers, so they are parsed as one array, once. The place of any value is then a sum.

Plain columns are numbers, times, text and bytes. For any irregularity there are no places, and the reader that goes
batch by batch reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import is_bytes, is_text, is_view
from lading._core.formats.arrow.blocks import Blocks

__all__ = ["Places", "PlainColumn", "arrays_of", "find_places"]

_PREFIX = 8
_WIDTHS = (1, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column of numbers, times, text or bytes, with one array entry a batch.

    Attributes:
        kind: its type.
        width: bytes of a number, or of an offset; 0 for bools.
        nulls: number of nulls, if there is a validity bitmap; None if no batch has one.
        bits: start of the bitmap, if there is one.
        first: start of the numbers, or of the offsets of text and bytes, counted in numbers of their width from the
            start of the file; for bools, which are bits, in bytes.
        data: start of their bytes.
        data_bytes: number of these bytes.
    """

    kind: pa.DataType
    width: int
    nulls: NDArray[np.int64] | None
    bits: NDArray[np.int64]
    first: NDArray[np.int64]
    data: NDArray[np.int64] | None = None
    data_bytes: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Places of values: all ranges are inside the file, and long enough for the rows.

    Attributes:
        rows: rows of each record batch.
        ends: for each, the number of rows in it and all before.
        columns: the plain ones, by number.
    """

    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    columns: dict[int, PlainColumn]


def find_places(blocks: Blocks, schema: pa.Schema) -> Places | None:
    """Return the places of an Arrow file or stream; None if only its batches have them.

    That is the case for batches of several writers, compressed batches, views, unions and run ends, invalid heads, and
    more than 16 MiB of heads. Memory: about the bytes of the heads.
    """
    layout, nodes, buffers = _layout(schema)
    heads = blocks.heads() if layout else None
    if heads is None or heads.buffers.shape[1] != buffers or heads.nodes.shape[1] != nodes:
        return None
    start = np.array([block.offset for block in blocks.batches]) + _PREFIX + heads.head_bytes
    offset, length = heads.buffers[:, :, 0], heads.buffers[:, :, 1]
    if min(offset.min(initial=0), length.min(initial=0)) < 0:
        return None
    if (offset > heads.body_bytes[:, None] - length).any():
        return None
    places, sizes = np.ascontiguousarray((start[:, None] + offset).T), np.ascontiguousarray(length.T)
    found = {}
    for number, (node, first) in layout.items():
        rows, nulls = heads.nodes[:, node].T
        mine = slice(first, first + 3)
        column = _column(schema.field(number).type, heads.rows, nulls, places[mine], sizes[mine])
        if column is None or (rows != heads.rows).any():
            return None
        found[number] = column
    return Places(heads.rows, np.cumsum(heads.rows), found)


def _column(
    kind: pa.DataType, rows: NDArray[np.int64], nulls: NDArray[np.int64], at: NDArray[np.int64], size: NDArray[np.int64]
) -> PlainColumn | None:
    """Return a column from its buffers; None if they are too short for the rows, or misaligned."""
    width, with_offsets = _width(kind), _has_offsets(kind)
    items = np.where(rows > 0, rows + with_offsets, 0)
    if ((items * width if width else -(-items // 8)) > size[1]).any() or (at[1] % max(width, 1)).any():
        return None
    if (nulls < 0).any() or (rows > 8 * size[0])[nulls > 0].any():
        return None
    some = np.ascontiguousarray(nulls) if nulls.any() else None
    data = (at[2], size[2]) if with_offsets else (None, None)
    return PlainColumn(kind, width, some, at[0], at[1] // max(width, 1), *data)


def _layout(schema: pa.Schema) -> tuple[dict[int, tuple[int, int]], int, int]:
    """Return the node and the first buffer of each plain column, and the totals; nothing if the layout is unknown.

    Source: https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message
    """
    found, node, buffer = {}, 0, 0
    for number, kind in enumerate(schema.types):
        arrays = [*arrays_of(kind)]
        known = [each for each in arrays if each is not None]
        if len(known) < len(arrays):
            return {}, 0, 0
        if not pa.types.is_nested(kind) and (_has_offsets(kind) or _is_number(kind)):
            found[number] = node, buffer
        node, buffer = node + len(known), buffer + sum(map(len, known))
    return found, node, buffer


def arrays_of(kind: pa.DataType) -> Iterator[tuple[bool, ...] | None]:
    """Return the arrays of a column, itself and all inside it: for each buffer, whether 32-bit offsets refer to it.

    Returns None if the type alone does not determine their number; the caller cannot continue.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        yield from arrays_of(kind.storage_type)
    elif _has_offsets(kind):
        yield False, False, types.is_string(kind) or types.is_binary(kind)
    elif types.is_struct(kind) or types.is_fixed_size_list(kind):
        yield (False,)
        yield from _inside(kind)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        yield False, False
        yield from _inside(kind)
    elif types.is_null(kind):
        yield ()
    elif any(
        test(kind) for test in (types.is_primitive, types.is_decimal, types.is_fixed_size_binary, types.is_dictionary)
    ):
        yield False, False
    else:
        yield None


def _inside(kind: pa.DataType) -> Iterator[tuple[bool, ...] | None]:
    for i in range(kind.num_fields):
        yield from arrays_of(kind.field(i).type)


def _width(kind: pa.DataType) -> int:
    if not _has_offsets(kind):
        return int(kind.bit_width) // 8
    return 8 if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) else 4


def _has_offsets(kind: pa.DataType) -> bool:
    return (is_text(kind) or is_bytes(kind)) and not is_view(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind)) and kind.bit_width in _WIDTHS
