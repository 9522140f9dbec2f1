"""Concurrent calls of stores, for stores whose latency is high."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from lading._core.storage.threads import Threads

if TYPE_CHECKING:
    from lading._core.storage.base import Store

__all__ = ["concurrent_map", "is_remote"]

_THREADS = 16
_REMOTE_BYTES = 256 << 10

_T = TypeVar("_T")


def is_remote(store: Store) -> bool:
    """Return whether requests to this store have high latency, so that concurrent ones are faster."""
    return store.request_bytes >= _REMOTE_BYTES


def concurrent_map(calls: Sequence[Callable[[], _T]], *, remote: bool) -> Iterator[_T]:
    """Return the results of the calls, in order; up to 16 at once in threads if `remote`, else one by one.

    Raises the error of the first failing call, after those that run have ended; further ones do not begin. Ctrl-C does
    not wait for any.
    """
    if not remote or len(calls) == 1:
        yield from (call() for call in calls)
        return
    with Threads(_THREADS, "lading-request") as threads:
        results = [threads.submit(call) for call in calls]
        try:
            yield from (result.result() for result in results)
        except Exception:
            threads.stop()
            threads.wait()
            raise
