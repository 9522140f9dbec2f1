"""Files that are made once: the first of several writers makes a file, and the others learn that it is there."""

from __future__ import annotations

import os
from contextlib import suppress

from lading._core.storage.base import Creates, Store, has_file, native_path, store_errors, temporary_name, write_file
from lading._core.storage.stores import is_local

__all__ = ["create_file"]


def create_file(store: Store, path: str, data: bytes) -> bool:
    """Write a small file, whole and durable, unless one of this name exists; return whether this call wrote it.

    On stores that cannot refuse to replace a file, the last of several writers at the same moment wins.
    """
    if is_local(store):
        with store_errors(path):
            return _create_local(native_path(path), data)
    if isinstance(store, Creates):
        return store.create(path, data)
    if has_file(store, path):
        return False
    write_file(store, path, [data])
    return True


def _create_local(path: str, data: bytes) -> bool:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = temporary_name(path, ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            if os.path.lexists(path):
                return False
            os.replace(temporary, path)
        return True
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
