"""A process that can compute, and do nothing else: no network, no files that it writes, no programs that it starts.

Source: Linux, Documentation/userspace-api/seccomp_filter.rst and include/uapi/linux/{seccomp,filter,audit}.h; numbers
of system calls from arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

__all__ = ["confine"]

_OPEN_FILES = 64


def confine(memory_bytes: int) -> None:
    """Limit what this process may do from now on, as far as the system can.

    Memory is limited on POSIX. Linux on x86-64 and ARM64 also refuses sockets, programs, writing files, and changes of
    other processes; all threads are under the filter. Pipes that are open stay so.

    Args:
        memory_bytes: of its address space.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0),
              (resource.RLIMIT_NOFILE, _OPEN_FILES))  # fmt: skip
    for which, most in limits:
        _, hard = resource.getrlimit(which)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(which, (most, most))
    machine = _MACHINES.get(platform.machine())
    if sys.platform == "linux" and machine is not None:
        _filter_calls(*machine)


_X86 = {
    "socket": 41, "socketpair": 53, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "truncate": 76, "rename": 82,
    "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91,
    "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "mknod": 133, "mount": 165, "umount2": 166, "setxattr": 188,
    "lsetxattr": 189, "keyctl": 250, "mkdirat": 258, "mknodat": 259, "fchownat": 260, "unlinkat": 263, "renameat": 264,
    "linkat": 265, "symlinkat": 266, "fchmodat": 268, "utimensat": 280, "perf_event_open": 298,
    "open_by_handle_at": 304, "process_vm_writev": 311, "renameat2": 316, "bpf": 321, "execveat": 322,
    "userfaultfd": 323, "pidfd_send_signal": 424, "io_uring_setup": 425, "fchmodat2": 452,
}  # fmt: skip
_ARM = {
    "setxattr": 5, "lsetxattr": 6, "mknodat": 33, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37,
    "renameat": 38, "umount2": 39, "mount": 40, "truncate": 45, "fchmod": 52, "fchmodat": 53, "fchownat": 54,
    "fchown": 55, "utimensat": 88, "ptrace": 117, "kill": 129, "socket": 198, "socketpair": 199, "keyctl": 219,
    "execve": 221, "perf_event_open": 241, "open_by_handle_at": 265, "process_vm_writev": 271, "renameat2": 276,
    "bpf": 280, "execveat": 281, "userfaultfd": 282, "pidfd_send_signal": 424, "io_uring_setup": 425, "fchmodat2": 452,
}  # fmt: skip
_MACHINES: dict[str, tuple[int, int, dict[str, int], dict[int, int], int]] = {
    # architecture, number of seccomp, calls that fail, calls that open a file and the place of their flags, clone
    "x86_64": (0xC000003E, 317, _X86, {2: 1, 257: 2}, 56),
    "aarch64": (0xC00000B7, 277, _ARM, {56: 2}, 220),
}
_NEWER = (435, 437)
"""`clone3` and `openat2`, whose arguments a filter cannot see: the C library takes the older calls where they fail."""

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_OTHER_TABLE = 0x40000000
"""Numbers of x86-64's calls with pointers of 32 bits begin here."""
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND if sys.platform != "win32" else 0
_THREAD = 0x00010000
_NO_NEW_PRIVILEGES, _FILTER_MODE, _ALL_THREADS = 38, 1, 1


def _filter_calls(
    architecture: int, seccomp: int, failing: dict[str, int], opening: dict[int, int], clone: int
) -> None:
    """Let calls of the system fail with EPERM, for all threads. Nothing happens where the kernel has no filters."""
    code = [_op(_LOAD, _ARCHITECTURE_AT), _op(_IF_EQUAL, architecture, 1, 0), _op(_RETURN, _KILL)]
    code += [_op(_LOAD, _NUMBER_AT), _op(_IF_AT_LEAST, _OTHER_TABLE, 0, 1), _op(_RETURN, _FAIL | _EPERM)]
    for number in failing.values():
        code += [_op(_IF_EQUAL, number, 0, 1), _op(_RETURN, _FAIL | _EPERM)]
    for number in _NEWER:
        code += [_op(_IF_EQUAL, number, 0, 1), _op(_RETURN, _FAIL | _ENOSYS)]
    for number, argument in opening.items():
        code += [_op(_IF_EQUAL, number, 0, 4), _op(_LOAD, _ARGUMENTS_AT + 8 * argument),
                 _op(_IF_ANY, _TO_WRITE, 0, 1), _op(_RETURN, _FAIL | _EPERM), _op(_RETURN, _ALLOW)]  # fmt: skip
    code += [_op(_IF_EQUAL, clone, 0, 3), _op(_LOAD, _ARGUMENTS_AT), _op(_IF_ANY, _THREAD, 1, 0)]
    code += [_op(_RETURN, _FAIL | _EPERM), _op(_RETURN, _ALLOW)]
    body = ctypes.create_string_buffer(b"".join(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(body)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    libc.syscall(ctypes.c_long(seccomp), ctypes.c_ulong(_FILTER_MODE), ctypes.c_ulong(_ALL_THREADS), program)


def _op(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_so, if_not, value)
