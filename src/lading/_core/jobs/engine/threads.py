"""The number of threads that each process of a job uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from lading._core.processes.cores import usable_cores
from lading.errors import UsageError

__all__ = ["threads_each", "using_threads"]

_MOST = (1 << 31) - 1


def threads_each(processes: int) -> int:
    """Return this machine's cores divided by the number of processes, at least 1."""
    return max(1, usable_cores() // processes)


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Let pyarrow compute and read with this many threads; None changes nothing.

    Sinks use the same number: with one thread, they write between reads.

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
