"""Checksums of files: xxh3-64, as 16 hex digits, the same that `xxhsum -H3` gives."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from lading._core.arrow.byte_ranges import as_view, room_for
from lading._core.storage.base import Buffer, FileInfo, Mapper, Sink, Store, SummedSink, TakesChecksum, file_infos
from lading._core.storage.extents import ExtentSums

__all__ = ["Checksum", "ChecksumSink", "add_file", "file_checksum", "file_checksums", "with_checksum"]

_STEP_BYTES = 64 << 10
"""Bytes of one call. From 100 KB on, xxhash releases the interpreter lock, and then waits up to 5 ms to get it back:
500 times as long as the step takes."""
_CACHED_BYTES = 512 << 10
"""Bytes that the checksums of file and extents see in turn."""
_CHUNK_BYTES = 1 << 20
"""Bytes read at once: they stay in the CPU cache until they are hashed. Chunks of 8 MB take a fifth longer."""
_FAR_CHUNK_BYTES = 8 << 20


class Checksum:
    """The checksum of a stream of bytes.

    Args:
        extents: object that takes the checksums of extents.

    Attributes:
        size_bytes: number of bytes seen.
    """

    __slots__ = ("_extents", "_hash", "size_bytes")

    def __init__(self, extents: ExtentSums | None = None) -> None:
        self._hash, self._extents = xxhash.xxh3_64(), extents
        self.size_bytes = 0

    def update(self, data: Buffer) -> None:
        """Add bytes."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _CACHED_BYTES):
            block = view[start : start + _CACHED_BYTES]
            for at in range(0, len(block), _STEP_BYTES):
                self._hash.update(block[at : at + _STEP_BYTES])
            if self._extents is not None:
                self._extents.update(block)
        self.size_bytes += len(view)

    def hexdigest(self) -> str:
        """Return the checksum of all bytes seen, in hex."""
        return self._hash.hexdigest()


class ChecksumSink:
    """A sink that adds a checksum to a sink without one.

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
        """Take the checksum of all later writes, and those of extents if given."""
        self._sum = Checksum(self.extents if extents else None)

    def checksum(self) -> str:
        """Return the checksum of all written bytes."""
        return self._sum.hexdigest()


def with_checksum(sink: Sink, *, extents: bool = False) -> SummedSink:
    """Return a checksumming sink around a new sink; with `extents`, also take the checksums of extents."""
    if not isinstance(sink, TakesChecksum):
        sink = ChecksumSink(sink)
    sink.take_checksum(extents=extents)
    return sink


def file_checksums(store: Store, folder: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the checksums of the files below a folder, by relative path."""
    return {
        path.removeprefix(f"{folder}/"): file_checksum(store, info)
        for path, info in zip(paths, file_infos(store, paths), strict=True)
    }


def file_checksum(store: Store, info: FileInfo) -> str:
    """Return the checksum of a file, in a pass of its own. Holds 1 MB, or 8 MB for a remote store.

    Raises:
        NotFound: the file is missing.
        ShortRead: the file became shorter.
    """
    total = Checksum()
    add_file(total, store, info)
    return total.hexdigest()


def add_file(total: Checksum, store: Store, info: FileInfo) -> None:
    """Add the bytes of a file to a checksum. Memory and errors are those of `file_checksum`."""
    if isinstance(store, Mapper):
        file, block = store.open_file(info.path), as_view(room_for(min(_CHUNK_BYTES, info.size_bytes)))
        for at in range(0, info.size_bytes, _CHUNK_BYTES):
            piece = block[: info.size_bytes - at]
            file.read_into([piece], at)
            total.update(piece)
    else:
        for at in range(0, info.size_bytes, _FAR_CHUNK_BYTES):
            [data] = store.get_ranges(info.path, [(at, min(_FAR_CHUNK_BYTES, info.size_bytes - at))], info.version)
            total.update(data)
