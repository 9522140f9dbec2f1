"""How many threads a process of a job may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from lading.errors import UsageError

__all__ = ["threads_each", "using_threads"]

_MOST = (1 << 31) - 1


def threads_each(processes: int) -> int:
    """This machine's cores, shared out among processes; at least one each."""
    return max(1, len(os.sched_getaffinity(0)) // processes)


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Let pyarrow use this many threads to compute, and as many to read; None leaves them as they are.

    Sinks go by that number too: with one, they write in turn with reading.

    Raises:
        UsageError: more than pyarrow can count.
    """
    if count is None:
        yield
        return
    if count > _MOST:
        raise UsageError("no machine has as many threads", expected=f"at most {_MOST}", found=count)
    before = pa.cpu_count(), pa.io_thread_count()
    pa.set_cpu_count(count)
    pa.set_io_thread_count(count)
    try:
        yield
    finally:
        pa.set_cpu_count(before[0])
        pa.set_io_thread_count(before[1])
