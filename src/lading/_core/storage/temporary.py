"""Temporary folders (`$TMPDIR`) that do not outlive their processes for long."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lading._core.storage.staging import stage_folder, sweep_stale
from lading.errors import StoreError

__all__ = ["temporary_folder", "writing"]

_NAME = "lading-tmp"


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a temporary folder (`$TMPDIR`) for this user alone, and remove it at the end.

    A process that is killed leaves its folder. The next one that makes a folder there removes it.

    Raises:
        StoreError: no folder can be made.
    """
    try:
        parent = tempfile.gettempdir()
    except OSError as error:
        raise StoreError("no folder for temporary files can be written", advice="Set TMPDIR to one.") from error
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
                         advice="Let TMPDIR name a folder with more space.") from error  # fmt: skip
