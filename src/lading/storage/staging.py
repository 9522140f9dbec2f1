"""Folders of this machine that are built beside their place, and the remains of processes that died while they built.

A folder is built as `.{name}.lading-{token}` with a lock file `.{name}.lading-{token}.lock` next to it; a file as
`.{name}.lading-{token}.tmp`, which is its own lock until it is sealed. The kernel gives a lock back when its process
ends, however it ends: what can be locked has no owner any more. Forked children share a lock with their parent,
processes that it starts as programs only if they inherit its descriptor.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import Self

from lading.errors import UsageError
from lading.storage.base import final_place, store_errors, temporary_name, unfinished
from lading.storage.lock import lock_file

__all__ = ["StagedFolder", "stage_folder", "sweep_stale"]

_TOKEN_DIGITS = 16


class StagedFolder:
    """A new, empty folder to build in; with `with`, whatever is left of it at the end is deleted.

    `LocalStore().publish(staged.path, staged.place)` gives it its name; what it replaces comes here instead, and is
    deleted. Both paths are absolute, so that they hold if the process goes to another folder meanwhile.

    Attributes:
        path: where to build.
        place: where it is to lie.
        lock: descriptor of the lock; −1 once it was given back.
    """

    def __init__(self, path: str, place: str, lock: int) -> None:
        self.path, self.place, self.lock = path, place, lock

    def release(self) -> None:
        """Delete the folder, if it still has its temporary name, and give the lock back."""
        if self.lock >= 0:
            with store_errors(self.path):
                _delete(self.path)
                _delete(self.path + ".lock")
            os.close(self.lock)
            self.lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def stage_folder(target: str) -> StagedFolder:
    """A folder beside `target` (behind it, if it is a link to a folder), on the same file system.

    Raises:
        UsageError: its place is no UTF-8: nobody could name its files.
        StoreError: the folder cannot be made.
    """
    place = final_place(target)
    with store_errors(target):
        if not os.path.isabs(place):
            place = os.path.join(os.getcwd(), place)
        try:
            place.encode()
        except UnicodeEncodeError:
            raise UsageError(
                "the destination's name is no UTF-8", file=ascii(place), advice="Choose another."
            ) from None
        os.makedirs(os.path.dirname(place), exist_ok=True)
        while True:
            path = temporary_name(place)
            lock = lock_file(path + ".lock", create=True)
            if lock is not None:
                os.mkdir(path)
                return StagedFolder(path, place, lock)


def sweep_stale(target: str) -> list[str]:
    """Delete what dead processes left while they built this file or folder; give the paths that are gone.

    What has a living owner stays, and what this user may not delete. A folder goes before its lock file, so that a
    sweep that is killed is done again.
    """
    place = final_place(target)
    folder = os.path.dirname(place)
    stem = os.path.basename(temporary_name(place))[:-_TOKEN_DIGITS]
    with store_errors(target):
        names = sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []
        gone = []
        for name in names:
            if name.startswith(stem) and unfinished(name) and name.endswith((".lock", ".tmp")):
                with suppress(PermissionError):
                    gone += _sweep(os.path.join(folder, name))
    return gone


def _sweep(path: str) -> list[str]:
    """Delete one file, or one folder and its lock file, unless it has an owner."""
    lock = lock_file(path, create=False)
    if lock is None:
        return []
    built = path.removesuffix(".lock")
    try:
        there = os.path.lexists(built)
        _delete(built)
        _delete(path)
    finally:
        os.close(lock)
    return [built] if there else []


def _delete(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
