"""Read some rows of record batches of a remote file: of large values, only those of these rows.

Three rounds of requests, each for all batches at once: the heads of their messages, the buffers of small values and of
places, and the large values. Neighbours are read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import gather, is_bytes, is_view, join, places, present, take_values
from lading._core.formats.arrow.blocks import ArrowFile
from lading._core.formats.arrow.large import LARGE_BYTES
from lading._core.storage.fetch_plan import plan_ranges

__all__ = ["ScatteredRows", "may_be_large", "rows_of"]

_MAX_REQUEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ScatteredRows:
    """Rows of a record batch of which large values were not read.

    Attributes:
        batch: the record batch, over memory with holes.
        data: this memory.
        offset: where it is in the file.
        rows: the rows.
    """

    batch: pa.RecordBatch
    data: pa.Buffer
    offset: int
    rows: NDArray[np.int64]


def may_be_large(kind: pa.DataType) -> bool:
    """Return whether values of a type may stay in the file: bytes, or a struct of columns, some of which are bytes."""
    if pa.types.is_struct(kind):
        return any(is_bytes(kind.field(i).type) and not is_view(kind.field(i).type) for i in range(kind.num_fields))
    return is_bytes(kind) and not is_view(kind)


def rows_of(parts: Sequence[ScatteredRows], body: ArrowFile) -> list[pa.RecordBatch]:
    """Return the rows of record batches, their large values read at once.

    Raises:
        StoreError: as the store.
    """
    left = [(part, column) for part in parts for column in _large_columns(part.batch)]
    found = [places(column)[part.rows] for part, column in left]
    none = np.zeros(0, np.int64)
    starts = [part.offset + column.buffers()[2].address - part.data.address for part, column in left]
    offset = np.concatenate([none, *(start + each.offset for start, each in zip(starts, found, strict=True))])
    length = np.concatenate([none, *(np.where(each.there, each.length, 0) for each in found)])
    plan = plan_ranges(offset, length, max_gap_bytes=body.gap_bytes, max_request_bytes=_MAX_REQUEST_BYTES)
    buffers = [pa.py_buffer(data) for data in body.get_ranges(plan.requests)]
    read, at = list[pa.Array](), 0
    for (_, column), each in zip(left, found, strict=True):
        mine = slice(at, at + len(each))
        values = gather(buffers, plan.request_of[mine], plan.offset_in[mine], length[mine], each.there)
        read.append(join(values).cast(column.type))
        at += len(each)
    values = iter(read)
    return [
        pa.RecordBatch.from_arrays([_taken(c, part.rows, values) for c in part.batch.columns], schema=part.batch.schema)
        for part in parts
    ]


def _large_columns(batch: pa.RecordBatch) -> Iterator[pa.Array]:
    """Yield the columns, and the columns in structs, of which values were not read, in order."""
    for column in batch.columns:
        for one in _parts_of(column):
            if _is_left(one):
                yield one


def _parts_of(column: pa.Array) -> list[pa.Array]:
    return [column.field(i) for i in range(column.type.num_fields)] if isinstance(column, pa.StructArray) else [column]


def _is_left(column: pa.Array) -> bool:
    """Return whether values of a column were not read, as `Partial.read_columns` decides it."""
    kind = column.type
    if not is_bytes(kind) or is_view(kind):
        return False
    data = column.buffers()[2]
    return data is not None and data.size >= LARGE_BYTES * len(column) > 0


def _taken(column: pa.Array, rows: NDArray[np.int64], values: Iterator[pa.Array]) -> pa.Array:
    """Return rows of a column, with the values that were read for them."""
    parts = _parts_of(column)
    if not any(map(_is_left, parts)):
        return take_values(column, rows)
    made = [next(values) if _is_left(one) else take_values(one, rows) for one in parts]
    if not isinstance(column, pa.StructArray):
        return made[0]
    fields = [column.type.field(i) for i in range(column.type.num_fields)]
    return pa.StructArray.from_arrays(made, fields=fields, mask=pa.array(~present(column)[rows]))
