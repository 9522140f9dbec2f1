"""Leases on files that a job reads through maps: touching pages that another process cut off kills a process.

A process that opens such a file for writing, or truncates it, waits until the lease is given up, up to
`/proc/sys/fs/lease-break-time` (45 seconds). Jobs look at their leases with every batch, and stop with an error.

Source: fcntl(2), "Leases". The system grants leases to the owner of a file and to root, on local file systems, while
nobody has the file open for writing. Without a lease, a file is read as it is.
"""

from __future__ import annotations

import fcntl
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from weakref import WeakSet

from lading.storage.descriptors import Descriptor

__all__ = ["guarded_reads", "is_changing"]

_lock = Lock()
_guards = 0
_tried: WeakSet[Descriptor] = WeakSet()
_leased: WeakSet[Descriptor] = WeakSet()


@contextmanager
def guarded_reads() -> Iterator[None]:
    """Take leases on mapped files until the end of the block, whichever thread reads them."""
    global _guards  # noqa: PLW0603 - the leases are the process's
    with _lock:
        _guards += 1
    try:
        yield
    finally:
        with _lock:
            _guards -= 1
            if not _guards:
                for opened in list(_leased):
                    fcntl.fcntl(opened.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
                _leased.clear()
                _tried.clear()


def is_changing(opened: Descriptor) -> bool:
    """Return whether another process waits to change an open file; take a lease on it, if a job is guarded."""
    if not _guards:
        return False
    if opened in _leased:
        return fcntl.fcntl(opened.fd, fcntl.F_GETLEASE) != fcntl.F_RDLCK
    if opened not in _tried:
        with _lock:
            _tried.add(opened)
            try:
                fcntl.fcntl(
                    opened.fd, fcntl.F_SETSIG, signal.SIGURG
                )  # the system ignores it; SIGIO would end a process
                fcntl.fcntl(opened.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError:
                return False
            _leased.add(opened)
    return False
