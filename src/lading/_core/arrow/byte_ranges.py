"""Byte ranges by column: where many pieces of bytes are, in memory or still in files. Sinks take them.

A thousand ranges are three arrays of numbers, not a thousand objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias, TypeGuard, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "Buffer",
    "ByteRanges",
    "ChunkedRanges",
    "ReadsInto",
    "Source",
    "as_file",
    "as_view",
    "bitmap",
    "in_memory",
    "is_held",
    "room_for",
]

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""Bytes in memory, of any type."""


class ReadsInto(Protocol):
    """An open file that fills buffers with its bytes."""

    def read_into(self, targets: Sequence[memoryview], offset: int) -> None:
        """Fill buffers, one after another, with the bytes from an offset on; without touching a map.

        Takes up to 1,024 buffers. Raises ShortRead if the file ends before.
        """


Source: TypeAlias = Buffer | ReadsInto
"""The memory or file of a range."""

_MUCH_BYTES = 512 << 20
_Result = TypeVar("_Result")
_MEMORY = (bytes, bytearray, memoryview, pa.Buffer)


@dataclass(frozen=True, slots=True, eq=False)
class ByteRanges:
    """Ranges of bytes, each in some source. Nothing is read before the bytes are needed.

    Attributes:
        sources: memory, and open files.
        source: index of each range's source, int64; −1 for a missing value.
        offset: first byte in the source, int64.
        length: number of bytes, int64; 0 for a missing value.
    """

    sources: Sequence[Source]
    source: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]

    @classmethod
    def of(cls, buffers: Sequence[Buffer]) -> Self:
        """Return one range for each buffer, covering all of it."""
        length = np.array([memoryview(buffer).nbytes for buffer in buffers], np.int64)
        return cls(buffers, np.arange(len(buffers)), np.zeros(len(buffers), np.int64), length)

    @classmethod
    def absent(cls, count: int) -> Self:
        """Return ranges of missing values."""
        none = np.zeros(count, np.int64)
        return cls([], none - 1, none, none)

    @classmethod
    def joined(cls, parts: Sequence[ByteRanges]) -> Self:
        """Concatenate ranges."""
        before = np.cumsum([0, *(len(part.sources) for part in parts)]).tolist()
        moved = [np.where(part.source < 0, -1, part.source + n) for part, n in zip(parts, before, strict=False)]
        none = np.zeros(0, np.int64)
        return cls(
            [source for part in parts for source in part.sources],
            np.concatenate([none, *moved]),
            np.concatenate([none, *(part.offset for part in parts)]),
            np.concatenate([none, *(part.length for part in parts)]),
        )

    def __len__(self) -> int:
        return len(self.length)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Self:
        """Return the ranges of these rows: a slice, numbers, or a mask."""
        return type(self)(self.sources, self.source[rows], self.offset[rows], self.length[rows])

    @property
    def there(self) -> NDArray[np.bool_]:
        """Return which values are present."""
        return self.source >= 0

    @property
    def in_file(self) -> NDArray[np.bool_]:
        """Return which ranges are still in a file."""
        return np.array([*(not isinstance(source, _MEMORY) for source in self.sources), False], np.bool_)[self.source]

    def views(self) -> list[memoryview | None]:
        """Return the bytes of ranges that are all in memory, without a copy; None for a missing value."""
        used = set(self.source.tolist())  # a file may stand among the sources, of which there is no range
        bodies = [as_view(source) if number in used else memoryview(b"") for number, source in enumerate(self.sources)]
        places = zip(self.source.tolist(), self.offset.tolist(), (self.offset + self.length).tolist(), strict=True)
        if len(bodies) == 1 and self.there.all():
            [body] = bodies
            return [body[start:stop] for _, start, stop in places]
        return [bodies[source][start:stop] if source >= 0 else None for source, start, stop in places]

    def results(self, work: Callable[[memoryview], _Result]) -> list[_Result]:
        """Yield the results of a function for the bytes of each range; all are present and in memory.

        Views that are released at once cost a third of those in a list, which the garbage collector scans as it grows.
        """
        bodies = [as_view(source) for source in self.sources]
        starts, stops = self.offset.tolist(), (self.offset + self.length).tolist()
        if len(bodies) == 1:
            [body] = bodies
            return [work(body[start:stop]) for start, stop in zip(starts, stops, strict=True)]
        places = zip(self.source.tolist(), starts, stops, strict=True)
        return [work(bodies[source][start:stop]) for source, start, stop in places]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedRanges:
    """Values of several ranges each, one after another; all are present.

    Attributes:
        pieces: ranges of all values.
        bounds: the ranges of value i are `bounds[i]:bounds[i + 1]`, int64.
    """

    pieces: ByteRanges
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, rows: slice) -> Self:
        """Return consecutive values."""
        first, stop, _ = rows.indices(len(self))
        bounds = self.bounds[first : stop + 1]
        return type(self)(self.pieces[bounds[0] : bounds[-1]], bounds - bounds[0])

    @property
    def length(self) -> NDArray[np.int64]:
        """Return the bytes of each value."""
        ends: NDArray[np.int64] = np.append(0, np.cumsum(self.pieces.length))[self.bounds]
        return np.diff(ends)

    @property
    def there(self) -> NDArray[np.bool_]:
        """Return which values are present: all."""
        return np.ones(len(self), np.bool_)


def is_held(source: Source) -> TypeGuard[Buffer]:
    """Return whether a source is memory."""
    return isinstance(source, _MEMORY)


def as_file(source: Source) -> ReadsInto:
    """Return a source as a file; it must be one."""
    assert not isinstance(source, _MEMORY)
    return source


def as_view(source: Source) -> memoryview:
    """Return the bytes of a source in memory."""
    assert isinstance(source, _MEMORY), "files are given to nobody but sinks that take them"
    view = memoryview(source)
    return view.cast("B") if view.nbytes else memoryview(b"")


def bitmap(valid: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Return which values are present, as Arrow's validity bitmap; None if all are."""
    if valid is None or bool(valid.all()):
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def room_for(size: int) -> pa.Buffer:
    """Return memory to fill. It comes from pyarrow's pool, because fresh pages cost more than reading.

    Reading from files into a `bytearray` runs at 5 GB/s, and here at 9. A large `bytearray` begins 16 bytes after a
    page, and the processor confuses its last stores with loads 4 KiB further on.

    Sizes that were never allocated before come from the system. The pool asks for huge pages; where the host of a
    virtual machine must find them first, they take two to five times as long as small ones.
    """
    return pa.allocate_buffer(size, memory_pool=pa.system_memory_pool() if size >= _MUCH_BYTES else None)


def in_memory(pieces: ByteRanges) -> pa.LargeBinaryArray:
    """Return the bytes of ranges in files, read; null for a missing value."""
    ends = np.append(0, np.cumsum(pieces.length))
    data = room_for(int(ends[-1]))
    body = as_view(data)
    places = zip(pieces.source.tolist(), pieces.offset.tolist(), ends.tolist(), ends[1:].tolist(), strict=False)
    for source, offset, start, stop in places:
        if start < stop:
            as_file(pieces.sources[source]).read_into([body[start:stop]], offset)
    return pa.Array.from_buffers(pa.large_binary(), len(pieces), [bitmap(pieces.there), pa.py_buffer(ends), data])
