"""Two names of files or folders, exchanged in one step by what the system has for it."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

from lading.errors import StoreError

__all__ = ["exchange_names"]

_HERE: Final = -100
"""`AT_FDCWD` of Linux: a relative path begins at the current folder."""
_LINUX_EXCHANGE: Final = 2
_MACOS_SWAP: Final = 2
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


def exchange_names(one: str, other: str) -> None:
    """Exchange two names: `renameat2(RENAME_EXCHANGE)` of Linux, `renamex_np(RENAME_SWAP)` of macOS.

    Raises:
        OSError: from the system.
        StoreError: the system or the file system has no such step. Nothing was changed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(_HERE, first, _HERE, second, ctypes.c_uint(_LINUX_EXCHANGE))
    elif hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(first, second, ctypes.c_uint(_MACOS_SWAP))
    else:
        failed = True
        ctypes.set_errno(errno.ENOSYS)
    if not failed:
        return
    number = ctypes.get_errno()
    if number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), one, None, other)
    raise StoreError(
        "this file system cannot exchange two names in one step", file=other,
        expected="renameat2(RENAME_EXCHANGE), or renamex_np(RENAME_SWAP) of macOS",
        advice="Write to a new place, or remove what is there first.",
    )  # fmt: skip
