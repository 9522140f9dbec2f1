"""Where many pieces of bytes lie, by column: in memory, or still in files. What a sink is given.

A thousand pieces are three arrays of numbers, not a thousand objects.
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
"""Bytes in memory, by whatever name."""


class ReadsInto(Protocol):
    """An open file that fills buffers with what lies in it."""

    def read_into(self, targets: Sequence[memoryview], offset: int) -> None:
        """Fill buffers of bytes, one after another, with what lies from an offset on; without touching a map.

        Takes up to 1,024 buffers. Raises ShortRead if the file ends before.
        """


Source: TypeAlias = Buffer | ReadsInto
"""What pieces lie in."""

_MUCH_BYTES = 512 << 20
_Result = TypeVar("_Result")
_MEMORY = (bytes, bytearray, memoryview, pa.Buffer)


@dataclass(frozen=True, slots=True, eq=False)
class ByteRanges:
    """Pieces of bytes, each somewhere in a source. Nothing is read before somebody needs the bytes.

    Attributes:
        sources: memory, and open files.
        source: place of each piece's source among them, int64; −1 for one that is not there.
        offset: its first byte there, int64.
        length: its bytes, int64; 0 where it is not there.
    """

    sources: Sequence[Source]
    source: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]

    @classmethod
    def of(cls, buffers: Sequence[Buffer]) -> Self:
        """One piece a buffer, all of it."""
        length = np.array([memoryview(buffer).nbytes for buffer in buffers], np.int64)
        return cls(buffers, np.arange(len(buffers)), np.zeros(len(buffers), np.int64), length)

    @classmethod
    def absent(cls, count: int) -> Self:
        """Pieces that are not there."""
        none = np.zeros(count, np.int64)
        return cls([], none - 1, none, none)

    @classmethod
    def joined(cls, parts: Sequence[ByteRanges]) -> Self:
        """The pieces of several, one after another."""
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
        """The pieces of these rows: a slice, numbers, or a mask."""
        return type(self)(self.sources, self.source[rows], self.offset[rows], self.length[rows])

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which pieces are there."""
        return self.source >= 0

    @property
    def in_file(self) -> NDArray[np.bool_]:
        """Which pieces are still in a file."""
        return np.array([*(not isinstance(source, _MEMORY) for source in self.sources), False], np.bool_)[self.source]

    def views(self) -> list[memoryview | None]:
        """The bytes of pieces that are all in memory, without a copy; None where one is not there."""
        bodies = [as_view(source) for source in self.sources]
        places = zip(self.source.tolist(), self.offset.tolist(), (self.offset + self.length).tolist(), strict=True)
        if len(bodies) == 1 and self.there.all():
            [body] = bodies
            return [body[start:stop] for _, start, stop in places]
        return [bodies[source][start:stop] if source >= 0 else None for source, start, stop in places]

    def results(self, work: Callable[[memoryview], _Result]) -> list[_Result]:
        """What a function makes of the bytes of each piece; all are there, in memory.

        Views that nobody keeps cost a third of those in a list, which the garbage collector looks through as it grows.
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
    """Values that are several pieces each, one after another; all are there.

    Attributes:
        pieces: of all values.
        bounds: those of value i are `bounds[i]:bounds[i + 1]`, int64.
    """

    pieces: ByteRanges
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, rows: slice) -> Self:
        """Consecutive values."""
        first, stop, _ = rows.indices(len(self))
        bounds = self.bounds[first : stop + 1]
        return type(self)(self.pieces[bounds[0] : bounds[-1]], bounds - bounds[0])

    @property
    def length(self) -> NDArray[np.int64]:
        """Bytes of each value."""
        ends: NDArray[np.int64] = np.append(0, np.cumsum(self.pieces.length))[self.bounds]
        return np.diff(ends)

    @property
    def there(self) -> NDArray[np.bool_]:
        """Which values are there: all."""
        return np.ones(len(self), np.bool_)


def is_held(source: Source) -> TypeGuard[Buffer]:
    """Whether a source is memory."""
    return isinstance(source, _MEMORY)


def as_file(source: Source) -> ReadsInto:
    """A source that is a file."""
    assert not isinstance(source, _MEMORY)
    return source


def as_view(source: Source) -> memoryview:
    """The bytes of a source that is memory."""
    assert isinstance(source, _MEMORY), "files are given to nobody but sinks that take them"
    view = memoryview(source)
    return view.cast("B") if view.nbytes else memoryview(b"")


def bitmap(valid: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Which values are there, as Arrow's arrays hold it; None where all are."""
    if valid is None or bool(valid.all()):
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def room_for(size: int) -> pa.Buffer:
    """Memory to be filled: of pyarrow's pool, which it may have had before, as fresh pages cost more than to read.

    What is read from files into a `bytearray` goes at 5 GB/s, and here at 9: a large one begins 16 bytes behind a page,
    and the processor takes what it stored last for what it is about to load 4 KiB further.

    So much that it was never there before comes from the system: the pool asks for huge pages, and where the host of a
    virtual machine must find them first, they take two to five times as long as small ones.
    """
    return pa.allocate_buffer(size, memory_pool=pa.system_memory_pool() if size >= _MUCH_BYTES else None)


def in_memory(pieces: ByteRanges) -> pa.LargeBinaryArray:
    """The bytes of pieces that lie in files, read; null where one is not there."""
    ends = np.append(0, np.cumsum(pieces.length))
    data = room_for(int(ends[-1]))
    body = as_view(data)
    places = zip(pieces.source.tolist(), pieces.offset.tolist(), ends.tolist(), ends[1:].tolist(), strict=False)
    for source, offset, start, stop in places:
        if start < stop:
            as_file(pieces.sources[source]).read_into([body[start:stop]], offset)
    return pa.Array.from_buffers(pa.large_binary(), len(pieces), [bitmap(pieces.there), pa.py_buffer(ends), data])
