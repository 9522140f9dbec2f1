"""Record batches of which large values stay in the file: a job that copies or hashes them reads each of them once.

A batch may be as large as its writer pleased. Its message gets a range of addresses; what is wanted of it is read
there, and the pages of large values are never touched, so that they take no memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lading._core.arrow.byte_ranges import as_view
from lading._core.arrow.views import is_bytes, is_view
from lading._core.formats.arrow.large import LARGE_BYTES
from lading._core.storage.base import OpenFile
from lading._core.storage.range_reader import NEAR_BYTES, RangeReader

__all__ = ["Partial"]


class Partial:
    """A message of a file, of which some parts are read.

    Args:
        file: the file.
        offset: start of the message.
        size: its bytes.

    Attributes:
        data: the message.
    """

    def __init__(self, file: OpenFile | RangeReader, offset: int, size: int) -> None:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
        self.data: pa.Buffer = pa.py_buffer(memory)
        self._file, self._offset = file, offset

    def read(self, *parts: tuple[int, int]) -> None:
        """Read parts of the message, each a start and a size. Raises CorruptShard if the file became shorter."""
        target = as_view(self.data)
        if not isinstance(self._file, RangeReader):
            for start, size in parts:
                if size:
                    self._file.read_into([target[start : start + size]], self._offset + start)
            return
        starts, sizes = np.array(parts, np.int64).reshape(-1, 2).T
        found, places = self._file.read_many(self._offset + starts, sizes, near_bytes=NEAR_BYTES)
        source = as_view(found)
        for (start, size), at in zip(parts, places.tolist(), strict=True):
            target[start : start + size] = source[at : at + size]

    def read_columns(self, batch: pa.RecordBatch, left: Sequence[bool]) -> list[bool]:
        """Read the values of a batch over the message; return of which columns large values were not read.

        Args:
            batch: the batch.
            left: whether the large values of a column stay in the file.
        """
        unread, parts = self.parts_of(batch, left)
        self.read(*parts)
        return unread

    def parts_of(self, batch: pa.RecordBatch, left: Sequence[bool]) -> tuple[list[bool], list[tuple[int, int]]]:
        """Return of which columns `read_columns` leaves large values, and the parts of the message that it reads."""
        unread, parts = [], list[tuple[int, int]]()
        for column, leave in zip(batch.columns, left, strict=True):
            every = column.buffers()
            buffers = list(_small_buffers(column)) if leave else every
            unread.append(len(buffers) < len(every))
            parts += [(buffer.address - self.data.address, buffer.size) for buffer in buffers if buffer is not None]
        return unread, parts


def _small_buffers(column: pa.Array) -> Iterator[pa.Buffer | None]:
    """Yield the buffers of a column of bytes, or of a struct with bytes, without those of large values."""
    buffers, kind = column.buffers(), column.type
    if isinstance(column, pa.StructArray):
        yield buffers[0]
        for number in range(kind.num_fields):
            yield from _small_buffers(column.field(number))
    elif is_bytes(kind) and not is_view(kind) and buffers[2] and buffers[2].size >= LARGE_BYTES * len(column) > 0:
        yield from buffers[:2]
    else:
        yield from buffers
