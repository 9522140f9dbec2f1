"""A Parquet file as pyarrow reads it: a local file by its path, a map, or a remote file in few large requests."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import pyarrow as pa

from lading._core.arrow.byte_ranges import as_view
from lading._core.formats.base import ShardFile
from lading._core.storage.base import MappedFile, Mapper, OpenFile, native_path, store_errors
from lading._core.storage.local import LocalStore
from lading._core.storage.range_reader import MOST_HELD_BYTES, RangeReader
from lading.errors import CorruptShard, LadingError

__all__ = ["FOREIGN", "KEPT_BYTES", "TAIL_BYTES", "Input", "damage", "damaged", "open_input"]

FOREIGN = (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError)
"""Errors of pyarrow for unreadable bytes, or lack of memory."""

TAIL_BYTES = 64 << 10
"""Bytes fetched from the end of a remote file at once; nearly every footer fits."""
_GAP_BYTES = 1 << 20
"""Bytes fetched in vain rather than with another request."""
KEPT_BYTES = MOST_HELD_BYTES
"""Bytes of a remote file that are kept in memory."""
_ZEROS = memoryview(bytes(1 << 20))


class Input:
    """An open Parquet file.

    Attributes:
        path: its name in errors.
        size_bytes: its size.
        handle: the object that pyarrow reads.
        limits: limits on the resources that the file may take.
    """

    def __init__(
        self,
        source: ShardFile,
        handle: pa.NativeFile,
        remote: _Cursor | None = None,
        file: OpenFile | None = None,
        mapped: MappedFile | None = None,
    ) -> None:
        self.path, self.limits, self.handle = source.path, source.limits, handle
        self.size_bytes: int = handle.size()
        self._remote, self._file, self._mapped = remote, file, mapped

    @property
    def gap_bytes(self) -> int:
        """Return the bytes of a remote file that cost as much as another request next to others."""
        return 0 if self._remote is None else self._remote.gap_bytes

    @property
    def is_remote(self) -> bool:
        """Return whether reading a part of it is a request."""
        return self._remote is not None

    def read_at(self, offset: int, length: int) -> bytes:
        """Return bytes of a range, fewer at the end of the file."""
        self.check()
        with damage(self.path):
            return bytes(self.handle.read_at(length, offset))

    def buffer_at(self, offset: int, length: int) -> pa.Buffer:
        """As `read_at`, in memory that may be shared with the file."""
        self.check()
        with damage(self.path):
            self.handle.seek(offset)
            return self.handle.read_buffer(length)

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Announce which `[start, stop)` are read next; a remote file fetches them at once.

        Ranges that are too long are not fetched.
        """
        if self._remote is not None:
            self._remote.expect(ranges)

    def leave_out(self, holes: Sequence[tuple[int, int, bytes]]) -> None:
        """Read no byte of these ranges of a remote file, but others in their place, until called again.

        Args:
            holes: ascending start and stop of each, and the first bytes that are read there; the rest is zeros.
        """
        if self._remote is not None:
            self._remote.leave_out(holes)

    def check(self) -> None:
        """Raise CorruptShard if a local file was written to: touching lost pages of a map would kill the process."""
        if self._file is not None:
            self._file.check()

    def release(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Release the mapped pages of `[start, stop)`."""
        if self._mapped is not None:
            for start, stop in ranges:
                self._mapped.release(start, stop)

    def close(self) -> None:
        """Close the file and drop its cached blocks."""
        self.handle.close()
        self._remote = self._file = self._mapped = None


def open_input(source: ShardFile, *, mmap: bool) -> Input:
    """Open a shard's file. Raises NotFound, or StoreError if it is not a file."""
    store, path = source.store, source.path
    # A local file is checked again even if its size is known: opening a pipe of this name would block.
    info = source.info if source.info is not None and not isinstance(store, LocalStore) else store.head(path)
    if mmap and isinstance(store, Mapper):
        mapped = store.map(path)
        return Input(source, pa.BufferReader(mapped.buffer), file=mapped, mapped=mapped)
    if isinstance(store, LocalStore):
        with store_errors(path):
            return Input(source, pa.OSFile(native_path(path)), file=store.open_file(path))
    remote = _Cursor(RangeReader(store, path, info))
    return Input(source, pa.PythonFile(remote, mode="r"), remote)


@contextmanager
def damage(path: str, what: str = "", *, offset: int | None = None) -> Iterator[None]:
    """Return pyarrow's error for unreadable bytes as CorruptShard; failures of the machine as StoreError."""
    try:
        yield
    except LadingError:
        raise
    except FOREIGN as error:
        raise damaged(error, path, what).at(offset=offset) from error


def damaged(error: Exception, path: str, what: str = "") -> LadingError:
    """Return one of `FOREIGN` as lading's own error."""
    # Lack of memory says nothing about the file, although pyarrow's error for it is one of these.
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno):
        with store_errors(path, MemoryError):
            raise error
    said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return CorruptShard(
        f"{what or 'the file'} cannot be read", file=path, found=said,
        advice="The file is damaged, or uses what pyarrow does not know.",
    )  # fmt: skip


class _Cursor(io.RawIOBase):
    """A remote file with a cursor, read in blocks that are larger than the request."""

    def __init__(self, reader: RangeReader) -> None:
        self._reader, self._size = reader, reader.size_bytes
        self.gap_bytes = reader.gap_bytes
        self._holes: list[tuple[int, int, bytes]] = []
        self._expected: list[tuple[int, int]] = []
        self._block_bytes = TAIL_BYTES
        self._lock = Lock()
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> memoryview:
        stop = self._size if size < 0 else min(self._at + size, self._size)
        parts = []
        with self._lock:
            while self._at < stop:
                parts.append(self._from(self._at)[: stop - self._at])
                self._at += len(parts[-1])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch these ranges now, in few requests, if they may be held; else block by block when they are read."""
        there = [part for start, stop in ranges for part in self._without_holes(start, stop)]
        gap = self.gap_bytes if self._holes else _GAP_BYTES
        with self._lock:  # who reads them meanwhile waits for the answers
            self._expected = self._reader.expect([(start, stop - start) for start, stop in there], gap)
        # Two blocks of each range may be in use: for decoding, and for reading page headers.
        self._block_bytes = max(_GAP_BYTES // 4, KEPT_BYTES // 2 // max(len(ranges), 1))

    def leave_out(self, holes: Sequence[tuple[int, int, bytes]]) -> None:
        self._holes = list(holes)

    def _without_holes(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range that are outside of holes."""
        for first, last, _ in self._holes[self._next_hole(start) :]:
            if first >= stop:
                break
            if start < first:
                yield start, first
            start = last
        if start < stop:
            yield start, stop

    def _next_hole(self, at: int) -> int:
        """Return the number of the first hole that ends behind a byte."""
        return bisect_right(self._holes, at, key=lambda hole: hole[1])

    def _next_start(self, at: int) -> int:
        """Return the start of the first hole behind a byte outside of holes, or the end of the file."""
        number = self._next_hole(at)
        return self._holes[number][0] if number < len(self._holes) else self._size

    def _in_hole(self, at: int) -> memoryview | None:
        """Return bytes that stand in a hole, from a place on; None outside of holes."""
        number = self._next_hole(at)
        if number == len(self._holes) or self._holes[number][0] > at:
            return None
        start, stop, head = self._holes[number]
        return memoryview(head)[at - start :] if at < start + len(head) else _ZEROS[: stop - at]

    def _from(self, at: int) -> memoryview:
        """Return bytes from a place on: those of a hole, those that are held, or those of a block that is fetched."""
        standing = self._in_hole(at)
        if standing is not None:
            return standing
        data = self._reader.held_from(at)
        if data is None:
            alone = at, self._next_start(at) - at
            start, length = next((each for each in self._expected if each[0] <= at < sum(each)), alone)
            begin = at - (at - start) % self._block_bytes
            [block] = self._reader.fetch([(begin, min(self._block_bytes, start + length - begin))])
            data = block.slice(at - begin)
        return as_view(data)[: self._next_start(at) - at]
