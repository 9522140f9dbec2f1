"""Worker processes as programs of their own: `python -m MODULE`.

No state of this process is forked, so its threads and locks do no harm. A script needs no `if __name__ == "__main__"`,
and a notebook nothing special. Workers have a process group of their own: an interrupt from the terminal reaches this
process alone, which ends them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from lading._core.processes.pickled import ALONE
from lading.errors import CorruptShard, LadingError, StoreError, UsageError

__all__ = ["Program", "died", "end_all", "how_it_ended"]


class Program:
    """A module of lading that runs as a process: a worker of a job, or of a loader.

    Args:
        module: its name.
        words: of its command line.
        stdin: what its standard input is, as `subprocess` takes it.
        stdout: what its standard output is; None for that of this process.
        fds: descriptors that it inherits, by the same number.
        environment: more variables.
        advice: what to do where no process can be started.

    Attributes:
        process: the process.

    Raises:
        UsageError: this Python does not know its own program.
    """

    def __init__(
        self, module: str, *words: str, stdin: int, stdout: int | None, fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None, advice: str = ALONE,
    ) -> None:  # fmt: skip
        if not sys.executable:
            raise UsageError("this Python cannot start worker processes: sys.executable is empty", advice=advice)
        # The modules that this process finds, in the same order; `-P` keeps those of the current folder out otherwise.
        path = [entry or os.getcwd() for entry in sys.path if os.pathsep not in entry]
        self.process = subprocess.Popen(  # noqa: S603 - the program of this Python itself
            [sys.executable, "-P", "-m", module, *words],
            bufsize=0,
            stdin=stdin,
            stdout=stdout,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **(environment or {})},
            pass_fds=fds,
            process_group=0,
        )

    def is_alive(self) -> bool:
        """Return whether the process has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End the process at once; an ended one stays as it is."""
        self.process.kill()

    def end(self) -> int:
        """End the process, wait until it has ended, and return its status. Its pipes are closed."""
        self.process.kill()  # without it, one that has closed its pipes alone would let this wait for ever
        status = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return status


def end_all(programs: Iterable[Program]) -> None:
    """Kill processes, and wait until all of them have ended."""
    programs = list(programs)
    for program in programs:
        program.kill()
    for program in programs:
        program.end()


def died(name: str, status: int, *, file: str | None, expected: str | None, advice: str) -> LadingError:
    """Return the error of a process that ended without a word.

    Args:
        name: of the process, for the message.
        status: its exit status.
        file: the files that it read.
        expected: what was expected of it.
        advice: what to do if memory ran out.
    """
    which = "a" if file is None else "the"
    if status == -signal.SIGBUS:
        return CorruptShard(
            f"{which} file became shorter while {name} read it", file=file, expected=expected,
            found=how_it_ended(status),
            advice="Do not write to data that is being read; write a new file, and rename it.",
        )  # fmt: skip
    return StoreError(f"{name} died", file=file, expected=expected, found=how_it_ended(status), advice=advice)


def how_it_ended(status: int) -> str:
    """Return the exit status of a process in words, such as `signal 9 (SIGKILL)`."""
    return f"signal {-status} ({_signal_name(-status)})" if status < 0 else f"exit status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of real time"
