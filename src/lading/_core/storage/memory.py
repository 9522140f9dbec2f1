"""Files in memory: for tests, examples and small data. Any text is a path; `/` separates folders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from threading import Lock

import pyarrow as pa

from lading._core.storage.base import Buffer, FileInfo, Sink, check_inside, check_version, name_taken
from lading.errors import NotFound

__all__ = ["MemoryMap", "MemorySink", "MemoryStore"]


class MemoryStore:
    """An independent store; a forked process has a copy. A file's version is a number that grows with every change.

    Args:
        files: initial contents, by path.
    """

    request_bytes = 16 << 10

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self._lock = Lock()
        self._versions = count(1)
        self._files = {path: (bytes(data), next(self._versions)) for path, data in (files or {}).items()}

    def head(self, path: str) -> FileInfo:
        """Return size and version. Raises NotFound."""
        data, version = self._get(path)
        return FileInfo(path, len(data), str(version))

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield the files below a folder as it is now, by path in code-point order."""
        with self._lock:
            found = sorted(path for path in self._files if path.startswith(_folder(prefix)))
            infos = [FileInfo(path, len(self._files[path][0]), str(self._files[path][1])) for path in found]
        yield from infos

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return memory views of the file, without a copy."""
        data, found = self._get(path)
        check_version(path, version, str(found))
        check_inside(path, ranges, len(data))
        view = memoryview(data)
        return [view[offset : offset + length] for offset, length in ranges]

    def open_file(self, path: str) -> MemoryMap:
        """Return the file; later changes to the path do not change it."""
        return self.map(path)

    def map(self, path: str) -> MemoryMap:
        """Return the file as one buffer; later changes to the path do not change it."""
        data, version = self._get(path)
        return MemoryMap(data, str(version))

    def put_stream(self, path: str) -> Sink:
        """Return a sink for a new file."""
        return MemorySink(self, path)

    def put(self, path: str, data: bytes) -> FileInfo:
        """Set the contents of a file."""
        with self._lock:
            self._files[path] = (data, next(self._versions))
        return self.head(path)

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Rename a file, or all files below a folder, in one step. Raises NotFound; DestinationExists."""
        with self._lock:
            moved = self._below(source)
            if not moved:
                raise NotFound("no such file or folder", file=source)
            if not replace and self._below(target):
                raise name_taken(target)
            files = [(name, self._files.pop(source.rstrip("/") + name)) for name in moved]
            for name in self._below(target):
                del self._files[target.rstrip("/") + name]
            self._files.update((target.rstrip("/") + name, (data, next(self._versions))) for name, (data, _) in files)

    def delete(self, path: str) -> None:
        """Remove a file, or all files below a folder."""
        with self._lock:
            for name in self._below(path):
                del self._files[path.rstrip("/") + name]

    def _get(self, path: str) -> tuple[bytes, int]:
        with self._lock:
            found = self._files.get(path)
        if found is None:
            raise NotFound("no such file", file=path)
        return found

    def _below(self, path: str) -> list[str]:
        """Return the rest of each name that is `path` or below it. The caller holds the lock."""
        stem = path.rstrip("/")
        return [p[len(stem) :] for p in self._files if p == stem or p.startswith(stem + "/")]


class MemoryMap:
    """A file's bytes as a mapped file. It has no pages to release, and its bytes cannot change."""

    __slots__ = ("buffer", "size_bytes", "version")

    def __init__(self, data: bytes, version: str) -> None:
        self.size_bytes, self.version = len(data), version
        self.buffer: pa.Buffer = pa.py_buffer(data)

    def check(self) -> None:
        """Do nothing: the bytes cannot change."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range."""
        return bytes(self.buffer[offset : offset + length])

    def read_each(self, offset: Sequence[int], length: Sequence[int]) -> Iterator[bytes]:
        """Yield the bytes of many ranges."""
        body = memoryview(self.buffer)
        for at, size in zip(offset, length, strict=True):
            yield bytes(body[at : at + size])

    def read_into(self, targets: Sequence[memoryview], offset: int) -> None:
        """Copy the bytes from an offset on into the targets."""
        body = memoryview(self.buffer).cast("B")
        for target in targets:
            target[:] = body[offset : offset + len(target)]
            offset += len(target)

    def release(self, start: int, stop: int) -> None:
        """Do nothing: there are no pages."""


class MemorySink:
    """A file being written; it holds a copy of the written bytes."""

    __slots__ = ("_body", "_open", "_store", "path")

    def __init__(self, store: MemoryStore, path: str) -> None:
        self.path = path
        self._store = store
        self._body = bytearray()
        self._open = True

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order."""
        if not self._open:
            raise ValueError(f"the sink of {self.path} is closed")
        for buffer in buffers:
            self._body += memoryview(buffer)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return len(self._body)

    def close(self) -> FileInfo:
        """Put the file into the store."""
        self._open = False
        return self._store.put(self.path, bytes(self._body))

    def abort(self) -> None:
        """Drop the written bytes."""
        if self._open:
            self._open = False
            self._body.clear()


def _folder(prefix: str) -> str:
    return prefix if prefix.endswith("/") or not prefix else prefix + "/"
