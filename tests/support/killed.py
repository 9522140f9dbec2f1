"""Conversions that are killed at their n-th change of a file, each in a process of its own: `python killed.py`.

Changes are counted in the process that drives the job: files and folders that are made, named, linked and removed, on
disk and on an object store. The program reads one conversion a line, and forks a process for each, so that lading is
imported once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_CHANGES = ("open", "mkdir", "rename", "replace", "link", "unlink", "rmdir")
_CHANGES_OF_OBJECTS = ("put", "copy", "delete", "open_writer")


class Killer:
    """Runs conversions, and kills them."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def convert(
        self, source: str | None, destination: str, kill_at: int = 0, steps: Sequence[Any] = (), **options: Any
    ) -> tuple[int, int]:
        """Convert in another process, which kills itself before its n-th change of a file, if it comes so far.

        Without a source, it finishes what ranks did. Steps are names of methods of a dataset, with their arguments.
        Returns its exit status, −9 if it was killed, and the number of its changes.
        """
        assert self._program.stdin is not None, "it is a pipe"
        assert self._program.stdout is not None, "it is a pipe"
        self._program.stdin.write(json.dumps([kill_at, source, destination, steps, options]) + "\n")
        self._program.stdin.flush()
        status, changes = json.loads(self._program.stdout.readline())
        return status, changes


@contextmanager
def killer() -> Iterator[Killer]:
    """Start the program, and end it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, __file__], text=True, **pipes) as program:
        try:
            yield Killer(program)
        finally:
            program.kill()


def _count_changes(kill_at: int) -> Callable[[], int]:
    """Count changes of files, and kill this process before one of them; return what tells the number."""
    count = 0

    def watched(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal count
            if name != "os.open" or args[1] & os.O_CREAT:
                count += 1
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return inner(*args, **more)

        return call

    for module, names in ((os, _CHANGES), (obstore, _CHANGES_OF_OBJECTS)):
        for name in names:
            setattr(module, name, watched(f"{module.__name__}.{name}", getattr(module, name)))
    return lambda: count


def _in_child(
    kill_at: int, source: str | None, destination: str, steps: Sequence[Any], options: dict[str, Any]
) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            changes = _count_changes(kill_at)
            if source is None:
                lading.finish(destination, **options)
            else:
                dataset: Any = lading.open(source) if steps else source
                for name, *arguments in steps:
                    dataset = getattr(dataset, name)(*arguments)
                lading.convert(dataset, destination, progress=False, **options)
            os.write(writing, str(changes()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        count = int(pipe.read() or 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), count


if __name__ == "__main__":
    import obstore

    import lading
    from lading._core.formats.registry import all_formats
    from lading._core.jobs.convert import schedule, tasks

    list(all_formats())  # once, not in each child
    assert lading.convert, "imported here too"
    tasks.ALONE_BYTES = schedule.ALONE_BYTES = 0
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_in_child(*json.loads(line))) + "\n")
        sys.stdout.flush()
