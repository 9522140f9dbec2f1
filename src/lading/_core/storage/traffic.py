"""What some work reads from remote stores: requests and bytes, counted where they are asked for.

Example:
    traffic = Traffic()
    with traffic.counted():
        dataset.take(numbers)
    traffic.taken()    # Read(requests=3, read_bytes=120_000, …)

A thread counts for one work at a time. The pools that it gives tasks to (`_core.storage.threads`) count for it too.
Reads of local files are not requests: a map is read without a call.

Work can be stopped by another thread: its next request, batch or shard raises `WorkStopped`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import local
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from lading._core.storage.base import Buffer, Store

__all__ = [
    "NOTHING", "Read", "Traffic", "WorkStopped", "counted_too", "note_copied", "note_download", "ranges_of",
    "refuse_stopped",
]  # fmt: skip

_T = TypeVar("_T")
_here = local()


class Read(NamedTuple):
    """What was read.

    Attributes:
        requests: number of requests to the store.
        read_bytes: bytes of their answers.
        cache_bytes: bytes that were read from local copies instead.
        downloads: number of files that were copied; their requests and bytes are in the numbers above.
    """

    requests: int = 0
    read_bytes: int = 0
    cache_bytes: int = 0
    downloads: int = 0


NOTHING: Final = Read()
"""What is read where nothing is: of a batch of local files, for example."""


class WorkStopped(Exception):
    """The work of this thread was stopped. No error of lading's: no policy for bad data covers it."""


class Traffic:
    """Counts what some work reads, in whichever threads."""

    def __init__(self) -> None:
        self._noted: deque[Read] = deque()  # threads append without a lock
        self._is_stopped = False

    def stop(self) -> None:
        """End the work: `go_on` raises from now on, in the threads that count for it."""
        self._is_stopped = True

    def go_on(self) -> None:
        """Raise WorkStopped if the work was stopped; called before each request, batch and shard."""
        if self._is_stopped:
            raise WorkStopped

    def note(self, read: Read) -> None:
        """Add what was read."""
        self._noted.append(read)

    def taken(self) -> Read:
        """Return what was read since the last call."""
        if not self._noted:
            return NOTHING
        found = [self._noted.popleft() for _ in range(len(self._noted))]
        return Read(*map(sum, zip(*found, strict=True)))

    def counted(self) -> _Counted:
        """Count what this thread reads in the body of a `with`."""
        return _Counted(self)


class _Counted:
    """The body of a `with` whose reads are counted."""

    __slots__ = ("_before", "_traffic")

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def __enter__(self) -> None:
        self._before: Traffic | None = getattr(_here, "traffic", None)
        _here.traffic = self._traffic

    def __exit__(self, *_: object) -> None:
        _here.traffic = self._before


def counted_too(task: Callable[[], _T]) -> Callable[[], _T]:
    """Return a task that counts for the work of this thread, whichever thread does it."""
    traffic: Traffic | None = getattr(_here, "traffic", None)
    if traffic is None:
        return task

    def counted() -> _T:
        with traffic.counted():
            return task()

    return counted


def ranges_of(store: Store, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
    """Return one buffer per `(offset, length)` of a file, as `Store.get_ranges`, and count a request for each."""
    refuse_stopped()
    _note(Read(len(ranges), sum(length for _, length in ranges)))
    return store.get_ranges(path, ranges, version)


def note_copied(ranges: Sequence[tuple[int, int]]) -> None:
    """Note that these `(offset, length)`, which were counted as requests, came from a local copy."""
    size = sum(length for _, length in ranges)
    _note(Read(-len(ranges), -size, cache_bytes=size))


def note_download() -> None:
    """Note that a whole file was copied; its requests are counted besides."""
    _note(Read(downloads=1))


def refuse_stopped() -> None:
    """Raise WorkStopped if the work that this thread counts for was stopped."""
    traffic: Traffic | None = getattr(_here, "traffic", None)
    if traffic is not None:
        traffic.go_on()


def _note(read: Read) -> None:
    traffic: Traffic | None = getattr(_here, "traffic", None)
    if traffic is not None:
        traffic.note(read)
