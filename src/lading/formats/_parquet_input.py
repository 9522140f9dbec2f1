"""A Parquet file as pyarrow reads it: a local file by its path, a map, or a remote file in few large requests."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lading.errors import CorruptShard, LadingError, LimitExceeded
from lading.formats.protocol import ShardSource
from lading.ranges import plan_ranges
from lading.store.local import LocalStore
from lading.store.protocol import Buffer, MappedFile, Mapper, Store, native_path, store_errors

__all__ = ["FOREIGN", "MAGIC", "MAGIC_ENCRYPTED", "Input", "damage", "damaged", "open_input", "read_metadata"]

MAGIC = b"PAR1"
MAGIC_ENCRYPTED = b"PARE"
"""Magic of a file with an encrypted footer."""

FOREIGN = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What pyarrow raises for bytes that it cannot read."""

_ENDING_BYTES = 8
_MIN_FILE_BYTES = 12
_MAX_FOOTER_BYTES = 256 << 20
_MIN_THRIFT_BYTES = 16 << 20
_TAIL_BYTES = 64 << 10
"""Fetched from the end of a remote file at once; nearly every footer is in it."""
_GAP_BYTES = 1 << 20
"""Fetched in vain rather than with another request."""
_KEPT_BYTES = 64 << 20
"""What of a remote file is kept in memory."""


class Input:
    """An open Parquet file.

    Attributes:
        path: its name in errors.
        size_bytes: its size.
        handle: what pyarrow reads.
    """

    def __init__(self, path: str, handle: pa.NativeFile, remote: _Windows | None, mapped: MappedFile | None) -> None:
        self.path, self.handle = path, handle
        self.size_bytes: int = handle.size()
        self._remote, self._mapped = remote, mapped

    def read_at(self, offset: int, length: int) -> Buffer:
        """Bytes of a range, fewer at the end of the file."""
        with damage(self.path):
            return bytes(self.handle.read_at(length, offset))

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Say which `[start, stop)` are read next: a remote file fetches them at once, if they are not too long."""
        if self._remote is not None:
            self._remote.expect(ranges)

    def check(self) -> None:
        """Raise CorruptShard if a mapped file's size has changed: a touch would kill the process."""
        if self._mapped is not None:
            self._mapped.check()

    def release(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Give the mapped pages of `[start, stop)` back."""
        if self._mapped is not None:
            for start, stop in ranges:
                self._mapped.release(start, stop)

    def close(self) -> None:
        """Close the file and drop what was kept of it."""
        self.handle.close()
        self._remote = self._mapped = None


def open_input(source: ShardSource, *, mmap: bool) -> Input:
    """Open a shard's file. Raises NotFound, or StoreError for what is no file."""
    store, path = source.store, source.path
    # A local file is looked at again even if its size is known: to open a pipe of this name would block.
    info = source.info if source.info is not None and not isinstance(store, LocalStore) else store.head(path)
    if mmap and isinstance(store, Mapper):
        mapped = store.map(path)
        return Input(path, pa.BufferReader(mapped.buffer), None, mapped)
    if isinstance(store, LocalStore):
        with store_errors(path):
            return Input(path, pa.OSFile(native_path(path)), None, None)
    remote = _Windows(store, path, info.size_bytes)
    return Input(path, pa.PythonFile(remote, mode="r"), remote, None)


def read_metadata(file: Input) -> pq.FileMetaData:
    """The footer.

    Raises:
        CorruptShard: it is damaged, or the file is no Parquet file or an encrypted one.
        LimitExceeded: it is larger than 256 MiB.
    """
    size = file.size_bytes
    if size < _MIN_FILE_BYTES:
        raise CorruptShard(
            "too short for a Parquet file", file=file.path, expected=f"{_MIN_FILE_BYTES} bytes or more", found=size
        )
    file.expect([(max(size - _TAIL_BYTES, 0), size)])
    ending = bytes(file.read_at(size - _ENDING_BYTES, _ENDING_BYTES))
    if ending[4:] != MAGIC:
        raise CorruptShard(
            "an encrypted Parquet file" if ending[4:] == MAGIC_ENCRYPTED else "no Parquet file, or a truncated one",
            file=file.path,
            offset=size - len(MAGIC),
            expected=MAGIC,
            found=ending[4:],
        )
    length = int.from_bytes(ending[:4], "little")
    start = size - _ENDING_BYTES - length
    if start < len(MAGIC):
        raise CorruptShard(
            "the footer does not fit into the file",
            file=file.path,
            offset=size - _ENDING_BYTES,
            expected=f"at most {size - _MIN_FILE_BYTES} bytes",
            found=length,
        )
    if length > _MAX_FOOTER_BYTES:
        raise LimitExceeded(
            "a very large footer", file=file.path, expected=f"at most {_MAX_FOOTER_BYTES}", found=length
        )
    file.expect([(min(start, max(size - _TAIL_BYTES, 0)), size)])
    return _parsed(file, start, length)


def _parsed(file: Input, start: int, length: int) -> pq.FileMetaData:
    reader = pq.ParquetReader()
    with damage(file.path, "the footer", offset=start):
        # No list of a footer has more elements than the footer bytes, so a false count sets no memory aside.
        reader.open(
            file.handle,
            pre_buffer=False,
            thrift_string_size_limit=max(length, _MIN_THRIFT_BYTES),
            thrift_container_size_limit=max(length, 1),
        )
    metadata = reader.metadata
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
        raise CorruptShard(
            "the footer's row groups do not add up to its rows",
            file=file.path,
            offset=start,
            expected=metadata.num_rows,
            found=sum(rows),
        )
    return metadata


@contextmanager
def damage(path: str, what: str = "", *, offset: int | None = None) -> Iterator[None]:
    """What pyarrow says of bytes that it cannot read, as CorruptShard; failures of the machine as StoreError."""
    try:
        yield
    except LadingError:
        raise
    except FOREIGN as error:
        raise damaged(error, path, what).at(offset=offset) from error


def damaged(error: Exception, path: str, what: str = "") -> LadingError:
    """One of `FOREIGN` as lading's own."""
    if isinstance(error, OSError) and error.errno:
        with store_errors(path):
            raise error
    said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return CorruptShard(
        f"{what or 'the file'} cannot be read", file=path, found=said,
        advice="The file is damaged, or uses what pyarrow does not know.",
    )  # fmt: skip


class _Windows(io.RawIOBase):
    """A file of a store with a cursor, read in windows that are larger than what is asked for.

    At most 64 MiB are kept, or the largest single read; what was used longest ago goes first.
    """

    def __init__(self, store: Store, path: str, size_bytes: int) -> None:
        self._store, self._path, self._size = store, path, size_bytes
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._expected: list[tuple[int, int]] = []
        self._window_bytes = _TAIL_BYTES
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
        data = self._range(self._at, max(stop, self._at))
        self._at += len(data)
        return data

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch these ranges now, in few requests, if they may be kept; else in windows, when they are read."""
        starts = np.array([start for start, _ in ranges], np.int64)
        lengths = np.array([stop - start for start, stop in ranges], np.int64)
        plan = plan_ranges(starts, lengths, max_gap_bytes=_GAP_BYTES, max_request_bytes=_KEPT_BYTES)
        self._expected = [(start, start + length) for start, length in plan.requests]
        # Half for what the decoder reads, half for the page headers that are looked at ahead of it.
        self._window_bytes = max(_GAP_BYTES // 4, _KEPT_BYTES // 2 // max(len(ranges), 1))
        missing = [
            (start, length) for start, length in plan.requests if length and self._find(start, start + length) is None
        ]
        if missing and sum(length for _, length in plan.requests) <= _KEPT_BYTES:
            self._kept.clear()
            for (start, _), data in zip(missing, self._store.get_ranges(self._path, missing), strict=True):
                self._kept[start] = memoryview(data).cast("B")

    def _range(self, start: int, stop: int) -> memoryview:
        found = self._find(start, stop)
        if found is not None:
            return found
        end = max((e for s, e in self._expected if s <= start < e), default=stop)
        end = min(max(stop, min(start + self._window_bytes, end)), self._size)
        [data] = self._store.get_ranges(self._path, [(start, end - start)])
        self._kept[start] = memoryview(data).cast("B")
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_BYTES:
            self._kept.popitem(last=False)
        return self._kept[start][: stop - start]

    def _find(self, start: int, stop: int) -> memoryview | None:
        for begin, data in reversed(self._kept.items()):
            if begin <= start and stop <= begin + len(data):
                self._kept.move_to_end(begin)
                return data[start - begin : stop - begin]
        return None
