"""Checksums of files: xxh3-64, as 16 hex digits, the same that `xxhsum -H3` gives."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from lading.arrow.byte_ranges import as_view, room_for
from lading.storage.base import Buffer, FileInfo, Mapper, Sink, Store, SummedSink, TakesChecksum, look_at
from lading.storage.extents import ExtentSums

__all__ = ["Checksum", "ChecksumSink", "add_file", "file_checksum", "file_checksums", "with_checksum"]

_STEP_BYTES = 64 << 10
"""Of one call. Of 100 KB and more, xxhash lets other threads run meanwhile, and then waits up to 5 ms for its turn with
the interpreter: 500 times as long as the step takes."""
_CACHED_BYTES = 512 << 10
"""Seen by the checksums of file and extents in turn."""
_CHUNK_BYTES = 1 << 20
"""Read at once: it stays in the cache until it is looked at. Chunks of 8 MB take a fifth longer."""
_FAR_CHUNK_BYTES = 8 << 20


class Checksum:
    """The checksum of bytes as they come.

    Args:
        extents: what takes those of extents.

    Attributes:
        size_bytes: how many came.
    """

    __slots__ = ("_extents", "_hash", "size_bytes")

    def __init__(self, extents: ExtentSums | None = None) -> None:
        self._hash, self._extents = xxhash.xxh3_64(), extents
        self.size_bytes = 0

    def update(self, data: Buffer) -> None:
        """Take more bytes."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _CACHED_BYTES):
            block = view[start : start + _CACHED_BYTES]
            for at in range(0, len(block), _STEP_BYTES):
                self._hash.update(block[at : at + _STEP_BYTES])
            if self._extents is not None:
                self._extents.update(block)
        self.size_bytes += len(view)

    def hexdigest(self) -> str:
        """Of all that came."""
        return self._hash.hexdigest()


class ChecksumSink:
    """A sink around one that takes no checksum by itself.

    Attributes:
        path: the final name.
        extents: the checksums of the file's extents.
    """

    def __init__(self, inner: Sink) -> None:
        self.path, self.extents = inner.path, ExtentSums()
        self._inner, self._sum = inner, Checksum()
        self.tell, self.close, self.abort = inner.tell, inner.close, inner.abort

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order."""
        for buffer in buffers:
            self._sum.update(buffer)
        self._inner.write(buffers)

    def take_checksum(self, *, extents: bool) -> None:
        """Take the checksum of what is written from now on, and perhaps those of its extents."""
        self._sum = Checksum(self.extents if extents else None)

    def checksum(self) -> str:
        """Of all that was written."""
        return self._sum.hexdigest()


def with_checksum(sink: Sink, *, extents: bool = False) -> SummedSink:
    """A sink that nothing was written to yet, with a checksum of what will be, and perhaps those of its extents."""
    if not isinstance(sink, TakesChecksum):
        sink = ChecksumSink(sink)
    sink.take_checksum(extents=extents)
    return sink


def file_checksums(store: Store, folder: str, paths: Sequence[str]) -> dict[str, str]:
    """Checksums of files below a folder, by path below it."""
    return {
        path.removeprefix(f"{folder}/"): file_checksum(store, info)
        for path, info in zip(paths, look_at(store, paths), strict=True)
    }


def file_checksum(store: Store, info: FileInfo) -> str:
    """The checksum of a file: a second pass over it. Holds a piece of 1 MB, or 8 MB of a store that is far.

    Raises:
        NotFound: it is not there. ShortRead: it became shorter.
    """
    total = Checksum()
    add_file(total, store, info)
    return total.hexdigest()


def add_file(total: Checksum, store: Store, info: FileInfo) -> None:
    """Take the bytes of a file. Memory and errors as of `file_checksum`."""
    if isinstance(store, Mapper):
        file, block = store.map(info.path), as_view(room_for(min(_CHUNK_BYTES, info.size_bytes)))
        for at in range(0, info.size_bytes, _CHUNK_BYTES):
            piece = block[: info.size_bytes - at]
            file.read_into([piece], at)
            total.update(piece)
    else:
        for at in range(0, info.size_bytes, _FAR_CHUNK_BYTES):
            [data] = store.get_ranges(info.path, [(at, min(_FAR_CHUNK_BYTES, info.size_bytes - at))])
            total.update(data)
