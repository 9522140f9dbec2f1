"""Stores that wrap other stores: count requests, retry."""

from __future__ import annotations

import errno
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from typing import TypeVar

from lading.errors import NotFound, ShortRead, StoreError
from lading.storage.base import Buffer, FileInfo, Mapper, NativePath, Sink, Store, TakesChecksum, writes_behind

__all__ = ["CountingStore", "RetryingStore", "WrappedStore"]

_T = TypeVar("_T")

_TRANSIENT = frozenset(
    (
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.EIO,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.EREMOTEIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
    )
)
_TRANSIENT_STATUS = frozenset((408, 425, 429, 500, 502, 503, 504))
_TRANSIENT_NAMES = ("Connect", "Disconnect", "Timeout", "IncompleteRead", "Payload")
"""Parts of the class names of exceptions without errno that libraries raise when a connection breaks."""


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

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Forward to the wrapped store."""
        return self.inner.get_ranges(path, ranges)

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

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Forward; count every range with its bytes, also if the answer is an error."""
        with self._lock:
            self.requests["get_ranges"] += len(ranges)
            self.bytes_read += sum(length for _, length in ranges)
            self.ranges[path] += ranges
        return self.inner.get_ranges(path, ranges)

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
        attempts: maximum number of calls, the first included.
        backoff_s: longest wait before the second call, in seconds; doubled before each further one. The actual wait is
            random, from half to all of that, so that many workers do not retry at the same moment.
        sleep: how to wait.
    """

    def __init__(
        self, inner: Store, *, attempts: int = 5, backoff_s: float = 0.5, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(inner)
        self._attempts, self._backoff_s, self._sleep = attempts, backoff_s, sleep

    def head(self, path: str) -> FileInfo:
        """Forward, with retries."""
        return self._retry(lambda: self.inner.head(path))

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Forward, with retries. Holds the listing, so that no file is missing or repeated."""
        yield from self._retry(lambda: list(self.inner.walk(prefix)))

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Forward, with retries; a range outside the file is not retried."""

        def worth(error: StoreError) -> bool:
            if isinstance(error, ShortRead):
                size = self.head(path).size_bytes
                return all(offset >= 0 and 0 <= length <= size - offset for offset, length in ranges)
            return _transient(error)

        return self._retry(lambda: self.inner.get_ranges(path, ranges), worth)

    def delete(self, path: str) -> None:
        """Forward, with retries."""
        self._retry(lambda: self.inner.delete(path))

    def _retry(self, call: Callable[[], _T], worth: Callable[[StoreError], bool] | None = None) -> _T:
        for attempt in range(1, self._attempts):
            try:
                return call()
            except StoreError as error:
                if not (worth or _transient)(error):
                    raise
            self._sleep(self._backoff_s * 2 ** (attempt - 1) * random.uniform(0.5, 1))  # noqa: S311 - spreads load only
        return call()


def _transient(error: StoreError) -> bool:
    """Return whether a failure may be transient."""
    if isinstance(error, NotFound):
        return False
    cause = error.__cause__
    status = getattr(cause, "status", None) or getattr(cause, "status_code", None) or getattr(cause, "code", None)
    if isinstance(status, int):
        return status in _TRANSIENT_STATUS
    if error.errno is not None:
        return error.errno in _TRANSIENT
    if isinstance(cause, (TimeoutError, ConnectionError)):
        return True
    return any(part in type(cause).__name__ for part in _TRANSIENT_NAMES)
