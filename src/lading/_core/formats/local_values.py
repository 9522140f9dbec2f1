"""Values of an open file of this machine, for `ShardReader.column_slices`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges, Source
from lading._core.storage.base import OpenFile

__all__ = ["local_values"]

_LARGE_BYTES = 8 << 10
"""Values with a smaller average size are read into one buffer."""


def local_values(
    file: OpenFile,
    shown: pa.Buffer | None,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    there: NDArray[np.bool_] | None,
) -> ByteRanges:
    """Return values of a file: as views of its map if there is one, else in memory if they are small, else in the file.

    Args:
        file: the open file.
        shown: its map, for a caller that leaves values there.
        offset: start of each value.
        length: bytes of each.
        there: which are not null; None if no value is null.

    Raises:
        CorruptShard: the file was written to.
        ShortRead: a value is past its end.
    """
    source = np.zeros(len(offset), np.int64)
    if there is not None:
        offset, length, source = offset * there, length * there, np.where(there, 0, -1)
    where: Source = file
    if shown is not None:
        file.check()
        where = shown
    elif int(length.sum()) < _LARGE_BYTES * len(offset):
        where = b"".join(file.read_each(offset.tolist(), length.tolist()))
        offset = np.cumsum(length) - length
    return ByteRanges([where], source, offset, length)
