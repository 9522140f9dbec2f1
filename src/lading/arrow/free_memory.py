"""Give freed memory back to the system: allocators keep it, so a process would hold the peaks of all its phases."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pyarrow as pa

__all__ = ["release_freed"]


def release_freed() -> None:
    """Give back what Arrow's pool and the C library hold of freed memory; takes milliseconds, so not for each batch.

    Without glibc, only Arrow's pool gives memory back.
    """
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
