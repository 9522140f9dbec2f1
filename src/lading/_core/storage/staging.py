"""Folders of this machine that are built next to their final place, and the cleanup after dead processes.

A folder is built as `.{name}.lading-{token}` with a lock file `.{name}.lading-{token}.lock` next to it. A file is built
as `.{name}.lading-{token}.tmp`, which is its own lock until it is sealed. The kernel releases a lock when its process
ends, however it ends: a lock that can be taken has no owner. Forked children share a lock with their parent; started
programs share it only if they inherit its descriptor.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from lading._core.storage.base import final_place, store_errors, temporary_name, unfinished
from lading._core.storage.lock import lock_file
from lading.errors import NotFound, UsageError

__all__ = ["StagedFolder", "built_folders", "stage_folder", "sweep_files", "sweep_stale", "take_folder"]

_TOKEN_DIGITS = 16
_TEMPORARY_FILE = re.compile(r"\.(?:\d{3,}_)?(.*)\.lading-[0-9a-f]{16}\.tmp", re.DOTALL)
_TRIES = 3
"""How often a folder is deleted in which somebody writes."""


class StagedFolder:
    """A new, empty folder to build in; a `with` block deletes what is left of it at the end.

    `LocalStore().publish(staged.path, staged.place)` gives it its name. The replaced folder moves here, and is deleted.
    Both paths are absolute, so that they hold if the process changes its directory meanwhile.

    Attributes:
        path: where to build.
        place: the final path.
        lock: descriptor of the lock; −1 after its release.
    """

    def __init__(self, path: str, place: str, lock: int) -> None:
        self.path, self.place, self.lock = path, place, lock

    def note(self, data: bytes) -> None:
        """Write something into the lock file, which goes last."""
        with store_errors(self.path):
            os.pwrite(self.lock, data, 0)

    def is_noted(self) -> bool:
        """Return whether the lock file holds something."""
        return os.fstat(self.lock).st_size > 0

    def release(self) -> None:
        """Delete the folder, if it still has its temporary name, and release the lock."""
        if self.lock >= 0:
            with store_errors(self.path):
                _delete(self.path)
                _delete(self.path + ".lock")
            self.leave()

    def leave(self) -> None:
        """Release the lock, and leave what was built: to `take_folder`, or to the next sweep."""
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def stage_folder(target: str, mode: int = 0o777) -> StagedFolder:
    """Create a folder next to `target` (next to its target, if it is a link), on the same file system.

    Args:
        target: the path.
        mode: permissions of the folder, before the process's mask.

    Raises:
        UsageError: the name is invalid UTF-8, so that its files could not be named.
        StoreError: the folder cannot be created.
    """
    place = final_place(target)
    with store_errors(target):
        if not os.path.isabs(place):
            place = os.path.join(os.getcwd(), place)
        try:
            place.encode()
        except UnicodeEncodeError:
            raise UsageError(
                "the destination's name is invalid UTF-8", file=ascii(place), advice="Choose another."
            ) from None
        os.makedirs(os.path.dirname(place), exist_ok=True)
        while True:
            path = temporary_name(place)
            lock = lock_file(path + ".lock", create=True)
            if lock is not None:
                os.mkdir(path, mode)
                return StagedFolder(path, place, lock)


def take_folder(path: str, target: str) -> StagedFolder | None:
    """Return a folder that a dead process has built in; None if its owner lives.

    Without lock support (some network file systems) nobody knows: the caller has it.

    Raises:
        NotFound: the folder is gone, and its lock file says nothing: its owner has ended.
    """
    with store_errors(path):
        if os.path.lexists(path) and not os.path.lexists(path + ".lock"):  # nobody can have owned it since
            os.close(os.open(path + ".lock", os.O_CREAT | os.O_CLOEXEC, 0o666))
        lock = lock_file(path + ".lock", create=False, without_support=True)
        staged = None if lock is None else StagedFolder(path, os.path.abspath(final_place(target)), lock)
        if staged is not None and not staged.is_noted() and not os.path.lexists(path):
            staged.release()
            staged = None
        if staged is None and not os.path.lexists(path) and not os.path.lexists(path + ".lock"):
            raise NotFound("no such folder", file=path)
        return staged


def built_folders(target: str) -> list[str]:
    """Return the folders in which this folder is built, or was built by processes that died; some are deleted."""
    place = os.path.abspath(final_place(target))
    stem = temporary_name(place)[:-_TOKEN_DIGITS]
    with store_errors(target):
        if not os.path.isdir(os.path.dirname(place)):
            return []
        entries = [entry for entry in os.scandir(os.path.dirname(place)) if entry.path.startswith(stem)]
    paths = {entry.path.removesuffix(".lock") for entry in entries if not entry.name.endswith(".tmp")}
    return sorted(path for path in paths if unfinished(os.path.basename(path)))


def sweep_stale(target: str, *, before: Callable[[str], None] = lambda _: None, dry_run: bool = False) -> list[str]:
    """Delete the remains of dead processes that built this file or folder; return the deleted paths.

    Remains with a living owner stay, and so do those that this user may not delete. A folder goes before its lock file,
    so that an interrupted sweep can be repeated. A folder without a lock file holds what a late attempt at a task wrote
    after the end of its job.

    Args:
        target: the file or folder that was built.
        before: called with the path of each of them, before it is deleted.
        dry_run: delete nothing.
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
                    gone += _sweep(os.path.join(folder, name), before, dry_run=dry_run)
        for name in names:
            left = os.path.join(folder, name)
            # The lock file of a living owner is older than its folder, so it is looked for last.
            if (
                name.startswith(stem)
                and unfinished(name)
                and os.path.isdir(left)
                and not os.path.exists(left + ".lock")
            ):
                with suppress(PermissionError):
                    before(left)
                    if not dry_run:
                        _delete(left)
                    gone.append(left)
    return gone


def sweep_files(
    folder: str, name: str | None = None, *, before: Callable[[str], None] = lambda _: None, dry_run: bool = False
) -> list[str]:
    """Delete the remains of dead processes that wrote files into this folder; return the deleted paths.

    A full file of a media archive has no owner until it gets its name, so remains count together: names that differ by
    the counter before them (`000_`) have one writer. While one of them has a living owner, all of them stay, and so do
    those that this user may not delete.

    Args:
        folder: folder of the files; those below it are not looked at.
        name: only the remains of this file, with any counter.
        before: called with the path of each of them, before it is deleted.
        dry_run: delete nothing.
    """
    wanted = None if name is None else _writer_of(os.path.basename(temporary_name(name, ".tmp")))
    by_writer = defaultdict[str | None, list[str]](list)
    with store_errors(folder):
        for each in sorted(os.listdir(folder or ".")) if os.path.isdir(folder or ".") else []:
            if each.endswith(".tmp") and unfinished(each):
                by_writer[_writer_of(each)].append(os.path.join(folder, each))
        gone = []
        for writer, paths in by_writer.items():
            with suppress(PermissionError):
                if wanted in (None, writer) and not any(map(_has_owner, paths)):
                    gone += [path for each in paths for path in _sweep(each, before, dry_run=dry_run)]
    return gone


def _writer_of(temporary: str) -> str | None:
    """Return the final name of a temporary file, without its counter."""
    found = _TEMPORARY_FILE.fullmatch(temporary)
    return found and found[1]


def _has_owner(path: str) -> bool:
    lock = lock_file(path, create=False)
    if lock is not None:
        os.close(lock)
    return lock is None


def _sweep(path: str, before: Callable[[str], None], *, dry_run: bool) -> list[str]:
    """Delete one file, or one folder and its lock file, unless it has an owner. Of a lock file alone, return that."""
    lock = lock_file(path, create=False)
    if lock is None:
        return []
    built = path.removesuffix(".lock")
    try:
        found = built if os.path.lexists(built) else path
        before(found)
        if not dry_run:
            _delete(built)
            _delete(path)
    finally:
        os.close(lock)
    return [found]


def _delete(path: str) -> None:
    """Delete a file or a folder. What others write into the folder meanwhile is left for the next sweep."""
    if os.path.isdir(path) and not os.path.islink(path):
        for _ in range(_TRIES):
            try:
                shutil.rmtree(path)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise
            if not os.path.lexists(path):
                break
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
