"""Temporary folders (`$TMPDIR`, or a job's `temp_dir`) that do not outlive their processes for long."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from lading._core.storage.staging import stage_folder, sweep_stale
from lading.errors import StoreError, UsageError

__all__ = ["temporary_files_in", "temporary_folder", "temporary_place", "writing"]

_NAME = "lading-tmp"
_PARENT: ContextVar[str | None] = ContextVar("temporary files lie in", default=None)


@contextmanager
def temporary_files_in(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Let the temporary folders of the body lie in this folder; None changes nothing.

    Raises:
        UsageError: there is no such folder on this machine.
    """
    if folder is None:
        yield
        return
    place = os.path.abspath(folder)
    if not os.path.isdir(place):
        raise UsageError("no such folder for temporary files", file=os.fspath(folder), expected="a local folder",
                         advice="Make it, or name another: --temp-dir DIR.")  # fmt: skip
    before = _PARENT.set(place)
    try:
        yield
    finally:
        _PARENT.reset(before)


def temporary_place() -> str:
    """Return the folder in which temporary files lie: that of `temporary_files_in`, by default `$TMPDIR`.

    Raises:
        StoreError: no such folder can be written.
    """
    try:
        return _PARENT.get() or tempfile.gettempdir()
    except OSError as error:
        raise StoreError("no folder for temporary files can be written", advice="Set TMPDIR to one.") from error


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a temporary folder for this user alone, and remove it at the end.

    It lies in the folder of `temporary_files_in`, by default in `$TMPDIR`.

    A process that is killed leaves its folder. The next one that makes a folder there removes it.

    Raises:
        StoreError: no folder can be made.
    """
    parent = temporary_place()
    if not os.path.isdir(parent):
        raise StoreError("no such folder for temporary files", file=parent, advice="Set TMPDIR to one that is there.")
    place = os.path.join(parent, _NAME)
    with suppress(StoreError):
        sweep_stale(place)
    staged = stage_folder(place)
    try:
        os.chmod(staged.path, 0o700)
        yield staged.path
    finally:
        with suppress(StoreError):  # network file systems keep files that are mapped
            staged.release()


@contextmanager
def writing(folder: str) -> Iterator[None]:
    """Let an error of writing temporary files say what to do.

    Raises:
        StoreError: the disk is full, or another error of the system.
    """
    try:
        yield
    except OSError as error:
        raise StoreError("temporary files could not be written", file=folder, found=str(error),
                         advice="Let TMPDIR, or --temp-dir of a job, name a larger one.") from error  # fmt: skip
