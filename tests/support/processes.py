"""The worker processes of a job, as the kernel sees them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from lading._core.jobs.engine.progress import Progress

__all__ = ["Watch", "busy_workers", "children", "gone", "open_files", "reading_workers", "wait_until_gone"]


class Watch:
    """Called as `on_progress`: stores the reports about a job, and how many processes this one had started then."""

    def __init__(self) -> None:
        self.told: list[Progress] = []
        self.counts: list[int] = []

    def __call__(self, told: Progress) -> None:
        self.told.append(told)
        self.counts.append(len(children(os.getpid())))


def children(pid: int) -> list[int]:
    """Return living processes that this one started, without those that live as long: multiprocessing's, the server."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(_fields(status)[1]) == pid and not gone(int(status.parent.name)):
                command = (status.parent / "cmdline").read_bytes()
                if any(name in command for name in (b".forkserver", b".resource_tracker", b"moto_server")):
                    continue
                found.append(int(status.parent.name))
    return found


def open_files(pid: int) -> list[str]:
    """Return paths of the files that a process has open."""
    found = []
    with suppress(OSError):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                found.append(os.readlink(fd))
    return found


def busy_workers(pid: int) -> list[int]:
    """Return those of a process's children that are writing a shard of a task."""
    return [child for child in children(pid) if any("/task-" in path for path in open_files(child))]


def reading_workers(pid: int, name: str) -> list[int]:
    """Return those of a process's children that have a file with this in its path open."""
    found = []
    for child in children(pid):
        with suppress(OSError):
            if any(name in os.readlink(file) for file in Path(f"/proc/{child}/fd").iterdir()):
                found.append(child)
    return found


def gone(pid: int) -> bool:
    """Return whether a process has ended with all its threads, reaped or not: until then its files are open."""
    try:
        return all(_fields(status)[0] == "Z" for status in Path(f"/proc/{pid}/task").glob("*/stat"))
    except OSError:
        return gone(pid)  # a thread ended meanwhile


def _fields(status: Path) -> list[str]:
    """Return state, parent, …: the fields after a process's name."""
    return status.read_text().rpartition(")")[2].split()


def wait_until_gone(pids: list[int], timeout_s: float = 120) -> None:
    """Return when all have ended. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while not all(map(gone, pids)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"still there: {[pid for pid in pids if not gone(pid)]}")
        time.sleep(0.01)
