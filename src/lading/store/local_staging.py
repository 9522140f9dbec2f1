"""Folders of this machine that are built beside their place, and the remains of processes that died while they built.

A folder is built as `.{name}.lading-{token}` with a lock file `.{name}.lading-{token}.lock` next to it; a file as
`.{name}.lading-{token}.tmp`, which is its own lock. The kernel gives a lock back when its process ends, however it
ends: what can be locked has no owner any more. Forked children share a lock with their parent, processes that it starts
as programs do not.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from typing import Self

from lading.store.local import LocalStore, final_place
from lading.store.protocol import store_errors, temporary_name

__all__ = ["StagedFolder", "stage_folder", "sweep_stale"]


class StagedFolder:
    """A new, empty folder to build in; with `with`, whatever is left of it at the end is deleted.

    `LocalStore().publish(staged.path, target)` gives it its name; what it replaces takes its place here, and goes.

    Attributes:
        path: where to build.
    """

    def __init__(self, path: str, lock: int) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Delete the folder, if it still has its temporary name, and give the lock back."""
        if self._lock >= 0:
            LocalStore().delete(self.path)
            LocalStore().delete(self.path + ".lock")
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def stage_folder(target: str) -> StagedFolder:
    """A folder beside `target` (behind it, if it is a link to a folder), on the same file system.

    Raises:
        StoreError: the folder cannot be made, or this file system has no locks.
    """
    place = final_place(target)
    with store_errors(target):
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        while True:
            path = temporary_name(place)
            lock = _lock(path + ".lock", create=True)
            if lock is not None:
                os.mkdir(path)
                return StagedFolder(path, lock)


def sweep_stale(target: str) -> list[str]:
    """Delete what dead processes left while they built this file or folder; give the paths that are gone.

    What has a living owner stays. A folder goes before its lock file, so that a sweep that is killed is done again.
    """
    folder, name = os.path.split(final_place(target))
    mark = re.compile(re.escape("." + name) + r"\.lading-[0-9a-f]{16}\.(lock|tmp)")
    gone: list[str] = []
    with store_errors(target), suppress(FileNotFoundError):
        for found in sorted(filter(mark.fullmatch, os.listdir(folder or "."))):
            path = os.path.join(folder, found)
            lock = _lock(path, create=False)
            if lock is not None:
                gone += _sweep(path)
                os.close(lock)
    return gone


def _sweep(path: str) -> list[str]:
    """Delete one thing without an owner, whose lock file or self this is."""
    built = path.removesuffix(".lock")
    there = built != path and os.path.lexists(built)
    LocalStore().delete(built)
    LocalStore().delete(path)
    return [built] if there or built == path else []


def _lock(path: str, *, create: bool) -> int | None:
    """The locked file's descriptor; None if somebody else has the lock, or deletes the file meanwhile."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0), 0o666)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A sweep may have come between making the file and locking it: then the lock is one on nothing.
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None
