"""Freed memory: give it back to the system after a phase with a peak, keep it for a batch, or do not look for it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

import pyarrow as pa

__all__ = ["keep_freed", "no_cycles", "release_freed"]

_MOST_KEPT: Final = 16 << 20
"""Of the block: twice as much is kept."""


def release_freed() -> None:
    """Give back what Arrow's pool and the C library hold of freed memory: allocators hold the peaks of all phases.

    That takes milliseconds, so it is not for each batch.

    With another C library than glibc and that of macOS, only Arrow's pool gives memory back.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, TypeError):
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
        elif hasattr(libc, "malloc_zone_pressure_relief"):
            libc.malloc_zone_pressure_relief(None, ctypes.c_size_t(0))


@cache
def keep_freed(batch_bytes: int) -> None:
    """Let the C library keep the freed memory of four batches, 32 MB at most, for those that come next.

    glibc gives back what is free at the end of its heap beyond 128 KiB. So each batch of bytes would take its pages
    anew from the system: 17 ms for 200 MB that are copied in 14. glibc keeps twice the size of the largest block that
    was mapped alone and freed (`mallopt(3)`, M_MMAP_THRESHOLD). So one such block is taken here, and not touched. A
    second one would come from the heap, and be filled with zeros: 5 ms.
    Nothing changes where the user has set the environment variable `MALLOC_TRIM_THRESHOLD_`, or without glibc.
    """
    bytes(min(2 * batch_bytes, _MOST_KEPT))


@contextmanager
def no_cycles() -> Iterator[None]:
    """Let Python look for no cycles of objects while the body makes many objects without any, as a JSON parser does.

    35,000 new objects make Python look through all objects of the process: 120 ms where PyTorch is imported.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
