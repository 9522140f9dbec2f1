"""Calls of stores made at the same time, where it is the answers that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lading.storage.base import Store

__all__ = ["concurrent_map", "is_remote"]

_THREADS = 16
_REMOTE_BYTES = 256 << 10

_T = TypeVar("_T")


def is_remote(store: Store) -> bool:
    """Whether a request to this store waits so long that others should be made meanwhile."""
    return store.request_bytes >= _REMOTE_BYTES


def concurrent_map(calls: Sequence[Callable[[], _T]], *, remote: bool) -> Iterator[_T]:
    """What the calls give, in order; up to 16 at once in threads of their own if `remote`, else one by one.

    Raises what the first failing call raises, when the others have ended.
    """
    if not remote or len(calls) == 1:
        yield from (call() for call in calls)
        return
    with ThreadPoolExecutor(_THREADS, "lading-request") as pool:
        yield from pool.map(lambda call: call(), calls)
