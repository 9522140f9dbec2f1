"""Checksums of files: xxh3-64, as 16 hex digits, the same that `xxhsum -H3` gives."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from lading.store.protocol import Buffer, FileInfo, Mapper, Sink, Store, SummedSink, TakesChecksum, look_at

__all__ = ["Checksum", "ChecksumSink", "file_checksum", "file_checksums", "with_checksum"]

_STEP_BYTES = 64 << 10
"""Of one call. Of 100 KB and more, xxhash lets other threads run meanwhile, and then waits up to 5 ms for its turn with
the interpreter: 500 times as long as the step takes."""
_CHUNK_BYTES = 1 << 20
"""Read at once: it stays in the cache until it is looked at. Chunks of 8 MB take a fifth longer."""
_FAR_CHUNK_BYTES = 8 << 20


class Checksum:
    """The checksum of bytes as they come.

    Attributes:
        size_bytes: how many came.
    """

    __slots__ = ("_hash", "size_bytes")

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_64()
        self.size_bytes = 0

    def update(self, data: Buffer) -> None:
        """Take more bytes."""
        view = memoryview(data).cast("B")
        for at in range(0, len(view), _STEP_BYTES):
            self._hash.update(view[at : at + _STEP_BYTES])
        self.size_bytes += len(view)

    def hexdigest(self) -> str:
        """Of all that came."""
        return self._hash.hexdigest()


class ChecksumSink:
    """A sink around one that takes no checksum by itself."""

    def __init__(self, inner: Sink) -> None:
        self.path = inner.path
        self._inner, self._sum = inner, Checksum()
        self.tell, self.close, self.abort = inner.tell, inner.close, inner.abort

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order."""
        for buffer in buffers:
            self._sum.update(buffer)
        self._inner.write(buffers)

    def take_checksum(self) -> None:
        """Nothing is to be done: it is taken from the first byte on."""

    def checksum(self) -> str:
        """Of all that was written."""
        return self._sum.hexdigest()


def with_checksum(sink: Sink) -> SummedSink:
    """A sink that nothing was written to yet, with a checksum of what will be."""
    if isinstance(sink, TakesChecksum):
        sink.take_checksum()
        return sink
    return ChecksumSink(sink)


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
    total = xxhash.xxh3_64()
    if isinstance(store, Mapper):
        file, block = store.map(info.path), memoryview(bytearray(min(_CHUNK_BYTES, info.size_bytes)))
        for at in range(0, info.size_bytes, _CHUNK_BYTES):
            piece = block[: info.size_bytes - at]
            file.read_into([piece], at)
            total.update(piece)
    else:
        for at in range(0, info.size_bytes, _FAR_CHUNK_BYTES):
            [data] = store.get_ranges(info.path, [(at, min(_FAR_CHUNK_BYTES, info.size_bytes - at))])
            total.update(data)
    return total.hexdigest()
