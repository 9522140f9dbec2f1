"""Large values of a mapped file: read, not touched.

To touch a page of a map out of order may bring 2 MiB into memory, which counts as this process's own until it is given
back, and takes longer than to read what is wanted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import CorruptShard
from lading.formats._arrow_blocks import Body
from lading.views import is_bytes, places

__all__ = ["LARGE_BYTES", "is_large", "read_large", "touched_bytes"]

LARGE_BYTES = 8 << 10
"""Values of at least so many bytes are read."""


def is_large(column: pa.Array, body: Body) -> bool:
    """Whether it is a column of bytes in a mapped file, large in the mean."""
    data = _data(column)
    return data is not None and data.size >= LARGE_BYTES * max(len(column), 1) and body.place(data) >= 0


def touched_bytes(batch: pa.RecordBatch, body: Body) -> int:
    """Bytes of a batch that are looked at where they lie."""
    large = sum(column.buffers()[2].size for column in batch.columns if is_large(column, body))
    return max(batch.get_total_buffer_size() - large, 0) if body.mapped is not None else 0


def read_large(column: pa.Array, rows: NDArray[np.int64], body: Body) -> pa.Array:
    """Rows of such a column, in the order asked for, in memory of their own.

    Raises:
        CorruptShard: the file became shorter.
    """
    found = places(column)[rows]
    place, ends = body.place(column.buffers()[2]), np.zeros(len(rows) + 1, np.int64)
    np.cumsum(found.length, out=ends[1:])
    kind = column.type
    if pa.types.is_binary(kind) and int(ends[-1]) >= 1 << 31:
        return column.take(pa.array(rows))
    data = pa.allocate_buffer(int(ends[-1]))
    target, mapped = memoryview(data), body.mapped
    assert mapped is not None
    for row, (offset, begin, end) in enumerate(
        zip(found.offset.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ):
        if begin < end:
            try:
                mapped.read_into([target[begin:end]], place + offset)
            except OSError as error:
                raise CorruptShard("the file became shorter while it was open", file=body.path, row=row) from error
    valid = None
    if column.null_count:
        valid = pa.py_buffer(np.packbits(found.source >= 0, bitorder="little"))
    offsets = pa.py_buffer(ends.astype(np.int32 if pa.types.is_binary(kind) else np.int64))
    return pa.Array.from_buffers(kind, len(rows), [valid, offsets, data])


def _data(column: pa.Array) -> pa.Buffer | None:
    plain = is_bytes(column.type) and not pa.types.is_binary_view(column.type) and len(column) > 0
    return column.buffers()[2] if plain else None
