"""Where the values of plain columns lie in an Arrow file or stream, for all record batches at once.

To open a batch takes 100 µs and more, and who picks rows at random wants few of each. The heads of one writer's batches
differ in numbers only, so they are read as one array, once; then the place of any value is a sum.

Plain are numbers, times, text and bytes. Where anything else is not as it should be there are no places, and who reads
batch by batch says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.views import is_bytes, is_text, is_view
from lading.formats.arrow.blocks import Blocks

__all__ = ["Places", "PlainColumn", "arrays_of", "find_places"]

_PREFIX = 8
_WIDTHS = (1, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column of numbers, times, text or bytes. A row is a batch.

    Attributes:
        kind: its type.
        width: bytes of a number, or of an offset; 0 for truth values.
        nulls: how many there are, where there is a bitmap that says which; None where no batch has any.
        bits: where the bitmap begins, if there is one.
        first: where the numbers begin, or the offsets of text and bytes, counted in numbers of their width from the
            start of the file; of truth values, which are bits, in bytes.
        data: where their bytes begin.
        data_bytes: how many there are.
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
    """Where values lie: all ranges are inside the file, and as long as the rows ask for.

    Attributes:
        rows: of each record batch.
        ends: for each, the number of rows in it and all before.
        columns: the plain ones, by number.
    """

    rows: NDArray[np.int64]
    ends: NDArray[np.int64]
    columns: dict[int, PlainColumn]


def find_places(blocks: Blocks, schema: pa.Schema) -> Places | None:
    """The places of an Arrow file or stream; None where only its batches tell them.

    That is: batches of several writers, compressed ones, views, unions and run ends, heads that say what cannot be,
    and more than 16 MiB of heads. Holds about as many bytes as there are heads.
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
    """A column by its buffers; None where they are shorter than the rows ask for, or lie where numbers may not."""
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
    """The node and the first buffer of each plain column, and how many there are of all; none if that cannot be told.

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
    """The arrays of a column, itself and all inside it: of each buffer, whether offsets of 32 bits lead into it.

    None where their number is not known from the type alone; who asks can go no further.
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
