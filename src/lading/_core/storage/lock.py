"""Lock files: the kernel's lock on a file shows that its owner still lives."""

from __future__ import annotations

import fcntl
import os

from lading.errors import StoreError

__all__ = ["lock_file"]


def lock_file(path: str, *, create: bool, without_support: bool = False) -> int | None:
    """Return the descriptor of a locked file; None if another process holds the lock or deletes the file.

    The descriptor is for reading and writing. With `create` the file is new, and None means that a sweep took it for an
    abandoned one: try another name. Without lock support (some network file systems), building continues, and nothing
    is swept; `without_support` gives the descriptor of such a file too.

    Raises:
        StoreError: with `create`, the folder is missing, or does not accept new files (`/proc`).
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o666)
    except FileNotFoundError as error:
        if create:
            raise StoreError("the folder cannot be written, or was removed", file=os.path.dirname(path)) from error
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A sweep may have come between making the file and locking it: then the locked file has no name.
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    except OSError:
        if create or without_support:
            return fd
    os.close(fd)
    return None
