"""Large values of a mapped file: read them, without touching the map.

Touching a page of a map out of order may read 2 MiB into memory, which counts as this process's own until it is
released, and takes longer than reading the wanted bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import make_refs
from lading._core.arrow.views import is_bytes, places, take_bytes
from lading._core.formats.arrow.blocks import ArrowFile
from lading.errors import CorruptShard, ShortRead

__all__ = ["LARGE_BYTES", "is_large", "read_large", "references", "touched_bytes"]

LARGE_BYTES = 8 << 10
"""Values of at least this size are read."""


def is_large(column: pa.Array, body: ArrowFile) -> bool:
    """Return whether this is a column of bytes of a local file with a large average size."""
    data = _data(column)
    return data is not None and data.size >= LARGE_BYTES * max(len(column), 1) and body.place(data) >= 0


def touched_bytes(batch: pa.RecordBatch, body: ArrowFile) -> int:
    """Return bytes of a batch that are used in place."""
    large = sum(column.buffers()[2].size for column in batch.columns if is_large(column, body))
    return max(batch.get_total_buffer_size() - large, 0) if body.mapped is not None else 0


def read_large(column: pa.Array, rows: NDArray[np.int64], body: ArrowFile) -> pa.Array:
    """Return rows of such a column, in the given order, in memory of their own.

    Raises:
        CorruptShard: the file became shorter.
    """
    place, mapped = body.place(column.buffers()[2]), body.mapped
    assert mapped is not None
    read_into = mapped.read_into

    def copy(target: memoryview, _source: int, offset: int) -> None:
        read_into([target], place + offset)

    try:
        return take_bytes(column, places(column)[rows], rows, copy)
    except ShortRead as error:
        raise CorruptShard("the file became shorter while it was open", file=body.path) from error


def references(column: pa.Array, rows: NDArray[np.int64], body: ArrowFile) -> pa.Array | None:
    """Return rows of a column of bytes as references into the file; None if its bytes are elsewhere."""
    data = _data(column)
    place = -1 if data is None else body.place(data)
    found = places(column)[rows]
    return None if place < 0 else make_refs(place + found.offset, found.length, valid=found.there)


def _data(column: pa.Array) -> pa.Buffer | None:
    plain = is_bytes(column.type) and not pa.types.is_binary_view(column.type) and len(column) > 0
    return column.buffers()[2] if plain else None
