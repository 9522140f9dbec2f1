"""The store contract: where files live, in few verbs.

Local disk, memory, S3 or whatever fsspec opens are one shape: stateless reads by range, on a *batch* of ranges, since
that is where concurrency lives; writes that show nothing until they are published. Behaviour (counting, retries,
length checks) comes from stores wrapped around stores (`lading.store.wrap`). Optional abilities are protocols of their
own, asked for with `isinstance`.

Nothing here starts a thread or a runtime before it is used, so that a process may fork after `open_store`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

__all__ = ["Buffer", "FileInfo", "MappedFile", "Mapper", "NativePath", "Sink", "Store"]

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""Bytes in memory, by whatever name."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a store knows of a file without opening it.

    Attributes:
        path: as the store names it.
        size_bytes: its size.
        version: etag, or modification time in nanoseconds; empty if the store has neither.
    """

    path: str
    size_bytes: int
    version: str = ""


class Sink(Protocol):
    """A file being written. Nothing is visible under its path before `close`, and nothing is left after `abort`."""

    path: str

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order, all of them or an error. A sink keeps no buffer after the call."""

    def tell(self) -> int:
        """Bytes written so far."""

    def close(self) -> FileInfo:
        """Make the file durable and visible under `path`, replacing what was there; give its facts."""

    def abort(self) -> None:
        """Drop what was written. Does nothing after `close` or a second time."""


class Store(Protocol):
    """Files by path. Paths are the store's own: a local path, an object key with its scheme."""

    def head(self, path: str) -> FileInfo:
        """Size and version. Raises NotFound."""

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Every file below a folder, at any depth, by path in code-point order; nothing if the folder is not there."""

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One buffer per `(offset, length)` in bytes, each of exactly that length, in the order asked for.

        Raises NotFound; ShortRead if a range ends past the end of the file.
        """

    def put_stream(self, path: str) -> Sink:
        """A sink for a new file; parent folders come by themselves."""

    def publish(self, source: str, target: str) -> None:
        """Give a finished file or folder its final name, replacing a file or folder of that name.

        Atomic where the store can (`lading.store.local`); elsewhere file by file, `_lading/manifest.json` last.
        """

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all below it; nothing happens if it is not there."""


class MappedFile(Protocol):
    """A file in the address space. Closing is by dropping every buffer made of it."""

    size_bytes: int
    buffer: pa.Buffer

    def check(self) -> None:
        """Raise CorruptShard if the file's size has changed since it was mapped: a touch would kill the process."""

    def release(self, start: int, stop: int) -> None:
        """Give the pages of `[start, stop)` back; they are read again if touched again."""


@runtime_checkable
class Mapper(Protocol):
    """A store that can map its files."""

    def map(self, path: str) -> MappedFile:
        """The file as one buffer. Raises NotFound."""


@runtime_checkable
class NativePath(Protocol):
    """A sink whose file a native library may write by itself, at `native_path`, before `close` publishes it."""

    native_path: str
