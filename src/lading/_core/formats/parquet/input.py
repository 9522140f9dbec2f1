"""A Parquet file as pyarrow reads it: a local file by its path, a map, or a remote file in few large requests."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock, RLock
from weakref import ref

import numpy as np
import pyarrow as pa

from lading._core.formats.base import ShardFile
from lading._core.storage.base import MappedFile, Mapper, OpenFile, native_path, store_errors
from lading._core.storage.fetch_plan import GAPS_A_REQUEST, plan_ranges
from lading._core.storage.local import LocalStore
from lading.errors import CorruptShard, LadingError

__all__ = ["FOREIGN", "KEPT_BYTES", "TAIL_BYTES", "Input", "damage", "damaged", "open_input"]

FOREIGN = (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError)
"""Errors of pyarrow for unreadable bytes, or lack of memory."""

TAIL_BYTES = 64 << 10
"""Bytes fetched from the end of a remote file at once; nearly every footer fits."""
_GAP_BYTES = 1 << 20
"""Bytes fetched in vain rather than with another request."""
KEPT_BYTES = 64 << 20
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
        remote: _Blocks | None = None,
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
    remote = _Blocks(replace(source, info=info), info.size_bytes)
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


class _Blocks(io.RawIOBase):
    """A file of a store with a cursor, read in blocks that are larger than the request.

    At most 64 MiB are kept, of all such files together; the least recently used block, or file, is dropped first.
    """

    def __init__(self, source: ShardFile, size_bytes: int) -> None:
        self._source, self._size = source, size_bytes
        self.gap_bytes = source.store.request_bytes // GAPS_A_REQUEST
        self._holes: list[tuple[int, int, bytes]] = []
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._expected: list[tuple[int, int]] = []
        self._block_bytes = TAIL_BYTES
        self._lock = RLock()
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
                begin, data = self._block(self._at)
                parts.append(data[self._at - begin : stop - begin])
                self._at += len(parts[-1])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def drop(self) -> None:
        """Forget what is kept, unless the file is being read."""
        if self._lock.acquire(blocking=False):
            try:
                self._kept.clear()
            finally:
                self._lock.release()

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch these ranges now, in few requests, if they may be kept; else block by block when they are read."""
        there = [part for start, stop in ranges for part in self._without_holes(start, stop)]
        with self._lock:
            there = [part for start, stop in there for part in self._not_kept(start, stop)]
        starts = np.array([start for start, _ in there], np.int64)
        lengths = np.array([stop - start for start, stop in there], np.int64)
        gap = self.gap_bytes if self._holes else _GAP_BYTES
        plan = plan_ranges(starts, lengths, max_gap_bytes=gap, max_request_bytes=KEPT_BYTES)
        self._expected = [(start, start + length) for start, length in plan.requests if length]
        # Two blocks of each range may be in use: for decoding, and for reading page headers.
        self._block_bytes = max(_GAP_BYTES // 4, KEPT_BYTES // 2 // max(len(ranges), 1))
        if 0 < sum(stop - start for start, stop in self._expected) <= KEPT_BYTES:
            with self._lock:
                self._fetch(self._expected)

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

    def _in_hole(self, at: int) -> tuple[int, memoryview] | None:
        """Return bytes that stand in a hole, and the first of their places; None outside of holes."""
        number = self._next_hole(at)
        if number == len(self._holes) or self._holes[number][0] > at:
            return None
        start, stop, head = self._holes[number]
        if at < start + len(head):
            return start, memoryview(head)
        return at, _ZEROS[: stop - at]

    def _not_kept(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range that are not kept."""
        for begin, data in sorted(self._kept.items()):
            end = begin + len(data)
            if end > start and begin < stop:
                if start < begin:
                    yield start, begin
                start = max(start, end)
        if start < stop:
            yield start, stop

    def _block(self, at: int) -> tuple[int, memoryview]:
        """Return a block that begins before or at `at`; fetch it if needed."""
        standing = self._in_hole(at)
        if standing is not None:
            return standing
        begin = next((begin for begin, data in reversed(self._kept.items()) if begin <= at < begin + len(data)), None)
        if begin is None:
            start, stop = next(((s, e) for s, e in self._expected if s <= at < e), (at, self._next_start(at)))
            begin = at - (at - start) % self._block_bytes
            self._fetch([(begin, min(begin + self._block_bytes, stop))])
        self._kept.move_to_end(begin)
        return begin, self._kept[begin][: self._next_start(at) - begin]

    def _fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        answers = self._source.get_ranges([(start, stop - start) for start, stop in ranges])
        for (start, _), data in zip(ranges, answers, strict=True):
            self._kept[start] = memoryview(data).cast("B")
            self._kept.move_to_end(start)
        while len(self._kept) > len(ranges) and sum(map(len, self._kept.values())) > KEPT_BYTES:
            self._kept.popitem(last=False)
        _USED.note(self, sum(map(len, self._kept.values())))


class _Used:
    """The remote files that keep bytes, the least recently read first: all together 64 MiB, or those of one file."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[ref[_Blocks], int] = OrderedDict()
        self._lock = Lock()

    def note(self, blocks: _Blocks, size: int) -> None:
        """Note how much a file keeps that was read just now."""
        too_many: list[ref[_Blocks]] = []
        with self._lock:
            for gone in [each for each in self._sizes if each() is None]:
                del self._sizes[gone]
            self._sizes[ref(blocks)] = size
            self._sizes.move_to_end(ref(blocks))
            while len(self._sizes) > 1 and sum(self._sizes.values()) > KEPT_BYTES:
                too_many.append(self._sizes.popitem(last=False)[0])
        for each in too_many:
            other = each()
            if other is not None:
                other.drop()


_USED = _Used()
