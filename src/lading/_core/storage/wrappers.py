"""Stores that wrap other stores: count requests, retry."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from threading import Lock

from lading._core.storage.base import Buffer, FileInfo, Mapper, NativePath, Sink, Store, TakesChecksum, writes_behind
from lading._core.storage.retries import DEFAULT_RETRIES, Retries, is_transient
from lading.errors import ShortRead, StoreError

__all__ = ["CountingStore", "RetryingStore", "WrappedStore"]


class WrappedStore:
    """A store that forwards every call; a wrapper overrides the calls that it changes.

    Args:
        inner: the wrapped store.
        mapped: whether files may be kept open and mapped, if the wrapped store can.
    """

    def __init__(self, inner: Store, *, mapped: bool = True) -> None:
        self.inner = inner
        if mapped and isinstance(inner, Mapper):
            # Attributes of the object, not methods: if the wrapped store is not a Mapper, the wrapper is not one
            # either.
            self.open_file, self.map = inner.open_file, inner.map
        self.request_bytes = inner.request_bytes

    def head(self, path: str) -> FileInfo:
        """Forward to the wrapped store."""
        return self.inner.head(path)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Forward to the wrapped store."""
        return self.inner.walk(prefix)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Forward to the wrapped store."""
        return self.inner.get_ranges(path, ranges, version)

    def put_stream(self, path: str) -> Sink:
        """Forward to the wrapped store."""
        return self.inner.put_stream(path)

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Forward to the wrapped store."""
        self.inner.publish(source, target, replace=replace)

    def delete(self, path: str) -> None:
        """Forward to the wrapped store."""
        self.inner.delete(path)


class CountingStore(WrappedStore):
    """Count the requests to a store; threads may share it.

    Args:
        inner: the wrapped store.
        mapped: whether files may be mapped: reads through a map are not counted.

    Attributes:
        requests: calls by verb; for `get_ranges` the number of ranges, because each is a request to a remote store.
        bytes_read: bytes returned by `get_ranges`.
        bytes_written: bytes of the closed files.
        ranges: the requested ranges, by path, in order.
    """

    def __init__(self, inner: Store, *, mapped: bool = False) -> None:
        super().__init__(inner, mapped=mapped)
        self._lock = Lock()
        self.reset()

    def reset(self) -> None:
        """Reset all counts to zero."""
        with self._lock:
            self.requests: Counter[str] = Counter()
            self.bytes_read = self.bytes_written = 0
            self.ranges: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)

    def head(self, path: str) -> FileInfo:
        """Forward and count."""
        self.count("head")
        return self.inner.head(path)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Forward and count once."""
        self.count("walk")
        return self.inner.walk(prefix)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Forward; count every range with its bytes, also if the answer is an error."""
        with self._lock:
            self.requests["get_ranges"] += len(ranges)
            self.bytes_read += sum(length for _, length in ranges)
            self.ranges[path] += ranges
        return self.inner.get_ranges(path, ranges, version)

    def put_stream(self, path: str) -> Sink:
        """Forward and count; the bytes when the sink is closed."""
        self.count("put_stream")
        return _CountedSink(self, self.inner.put_stream(path))

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Forward and count."""
        self.count("publish")
        self.inner.publish(source, target, replace=replace)

    def delete(self, path: str) -> None:
        """Forward and count."""
        self.count("delete")
        self.inner.delete(path)

    def count(self, verb: str, bytes_written: int = 0) -> None:
        """Add one call of this verb, and bytes written."""
        with self._lock:
            self.requests[verb] += 1
            self.bytes_written += bytes_written


class _CountedSink:
    def __init__(self, store: CountingStore, inner: Sink) -> None:
        self.path = inner.path
        self._store = store
        self._inner = inner
        if isinstance(inner, NativePath):
            self.native_path = inner.native_path
        if writes_behind(inner):
            self.write_pieces, self.later, self.settle = inner.write_pieces, inner.later, inner.settle
        if isinstance(inner, TakesChecksum):
            self.take_checksum, self.checksum, self.extents = inner.take_checksum, inner.checksum, inner.extents
        self.write, self.tell, self.abort = inner.write, inner.tell, inner.abort

    def close(self) -> FileInfo:
        info = self._inner.close()
        self._store.count("close", info.size_bytes)
        return info


class RetryingStore(WrappedStore):
    """Retry calls that failed in a transient way: a broken connection, a busy server, a cut answer.

    `head`, `walk`, `get_ranges` and `delete` are retried. Writing is not: the bytes given to a sink are gone.

    Args:
        inner: the wrapped store.
        retries: how long, and with which waits.
    """

    def __init__(self, inner: Store, retries: Retries = DEFAULT_RETRIES) -> None:
        super().__init__(inner)
        self._retries = retries

    def head(self, path: str) -> FileInfo:
        """Forward, with retries."""
        return self._retries.call(lambda: self.inner.head(path), path)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Forward, with retries. Holds the listing, so that no file is missing or repeated."""
        yield from self._retries.call(lambda: list(self.inner.walk(prefix)), prefix)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Forward, with retries; a range outside the file is not retried."""

        def worth(error: StoreError) -> bool:
            if isinstance(error, ShortRead):
                size = self.head(path).size_bytes
                return all(offset >= 0 and 0 <= length <= size - offset for offset, length in ranges)
            return is_transient(error)

        return self._retries.call(lambda: self.inner.get_ranges(path, ranges, version), path, worth)

    def delete(self, path: str) -> None:
        """Forward, with retries."""
        self._retries.call(lambda: self.inner.delete(path), path)
