"""Descriptors of files that are being read: few at a time, however many files are in use.

A memory map needs no descriptor. Reads need one, which is opened again if it was closed meanwhile. This module owns all
of them. The least recently used one is closed first, and a descriptor in use closes when its last user drops it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from itertools import count
from threading import Lock
from weakref import WeakSet

__all__ = ["Descriptor", "Reopened", "allowed_files", "close_unused", "files_limit"]

_MOST_FILES, _FEWEST_FILES = 64, 4
_SHARE = 8
_UNLIMITED = 1 << 20
_MOST_READ = 512
"""Files that are read by `Reopened`, at most: single samples of many shards are read by turns."""


def files_limit() -> int:
    """Return how many files this process may open (`ulimit -n`)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def allowed_files() -> int:
    """Return how many files one part of lading may keep open: an eighth of the process's limit, 4 to 64.

    The rest is for open Parquet files, files being written, pipes, and other libraries.
    """
    return max(_FEWEST_FILES, min(_MOST_FILES, files_limit() // _SHARE))


class Descriptor:
    """A descriptor that closes when this object is collected.

    A separate object from its owner: `__del__` runs while weak references to the owner still work, so that another
    thread could use an owner that is being closed.
    """

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class Reopened:
    """A file's descriptor, opened when it is needed.

    Args:
        first: a descriptor that is open already.
        reopen: open the file again; return None if its path names another file now.
    """

    __slots__ = ("__weakref__", "_now", "_reopen", "_used")

    def __init__(self, first: int, reopen: Callable[[], int | None]) -> None:
        self._reopen = reopen
        self._now: Descriptor | None = Descriptor(first)
        self._used = next(_turns)
        _register(self)

    def get(self) -> Descriptor | None:
        """Return the descriptor, which stays open while the caller holds it; None if the file is gone."""
        self._used = next(_turns)
        return self._now or self._opened()

    def _opened(self) -> Descriptor | None:
        fd = self._reopen()
        if fd is None:
            return None
        now = self._now = Descriptor(fd)
        _register(self)
        return now

    @property
    def used(self) -> int:
        """Return a number that grows with each use."""
        return self._used

    def close(self) -> None:
        """Drop the descriptor until it is needed again."""
        self._now = None


_turns = count()
_lock = Lock()
_open: WeakSet[Reopened] = WeakSet()


def _register(file: Reopened) -> None:
    """Add an open file, and close the least recently used ones above the limit: some together, to sort them rarely."""
    with _lock:
        _open.add(file)
        most = max(_FEWEST_FILES, min(_MOST_READ, files_limit() // _SHARE))
        if len(_open) > most:
            for oldest in sorted(_open, key=lambda each: each.used)[: len(_open) - most + most // _SHARE]:
                _open.discard(oldest)
                oldest.close()


def close_unused() -> None:
    """Close all descriptors that nobody is using now."""
    with _lock:
        for file in list(_open):
            file.close()
        _open.clear()


def _new_lock() -> None:
    """Replace the lock in a forked process, where the thread that held it does not exist."""
    global _lock  # noqa: PLW0603 - a fork copies it as it is
    _lock = Lock()


os.register_at_fork(after_in_child=_new_lock)
