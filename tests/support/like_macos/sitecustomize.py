"""Makes a Python on Linux like one on macOS, as far as a program can tell: Python imports it where PYTHONPATH names it.

What Linux alone has is missing: names of `os` and `errno`, functions of the C library, and `/proc`. `renamex_np` of
macOS is there. The system calls itself darwin, new processes are spawned, and 256 files may be open.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys
import sysconfig
from types import ModuleType
from typing import Any

_NAMES_OF_OS = (
    "copy_file_range", "eventfd", "memfd_create", "pidfd_open", "posix_fadvise", "posix_fallocate", "preadv", "pwritev",
    "sched_getaffinity", "sched_setaffinity", "splice", "O_TMPFILE", "O_PATH", "O_DIRECT", "MFD_CLOEXEC",
)  # fmt: skip
_NAMES_OF_ERRNO = ("EREMOTEIO", "EBADFD", "ECOMM", "ENOMEDIUM", "EUCLEAN")
_FUNCTIONS = ("renameat2", "prctl", "malloc_trim", "mallopt", "on_exit", "memfd_create", "sched_getaffinity")
_FILES = 256
_SWAP, _HERE = 2, -100

_found = ctypes.CDLL.__getattr__


def _function(library: ctypes.CDLL, name: str) -> Any:
    if name in _FUNCTIONS:
        raise AttributeError(name)
    if name != "renamex_np":
        return _found(library, name)
    exchange = _found(library, "renameat2")

    def renamex_np(one: bytes, other: bytes, flags: ctypes.c_uint) -> int:
        assert flags.value == _SWAP, "the flag of sys/stdio.h"
        return int(exchange(_HERE, one, _HERE, other, flags))

    return renamex_np


def _no_proc(event: str, given: tuple[Any, ...]) -> None:
    if event in {"open", "os.listdir", "os.scandir"} and str(given[0]).startswith(("/proc", "/dev/shm")):
        raise FileNotFoundError(errno.ENOENT, "macOS has no such file", given[0])


class _NoFile(ctypes.CDLL):
    def __init__(self, name: str | None, *args: Any, **more: Any) -> None:
        if name == "libstdc++.so.6":
            raise OSError(name)
        super().__init__(name, *args, **more)


sysconfig.get_config_vars()  # looks for a module of the platform once
for _name in _NAMES_OF_OS:
    if hasattr(os, _name):
        delattr(os, _name)
for _name in _NAMES_OF_ERRNO:
    delattr(errno, _name)
ctypes.CDLL.__getattr__ = _function  # type: ignore[method-assign]
ctypes.CDLL = _NoFile  # type: ignore[misc]
_proxies: Any = ModuleType("_scproxy")  # `urllib` asks it on darwin
_proxies._get_proxy_settings = _proxies._get_proxies = dict
sys.modules["_scproxy"] = _proxies
sys.platform = "darwin"
sys.addaudithook(_no_proc)
resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
if "LIKE_MACOS" in os.environ:
    with open(os.environ["LIKE_MACOS"], "a", encoding="utf-8") as _log:
        _log.write(f"{sys.orig_argv[3:4]}\n")
