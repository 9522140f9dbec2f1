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
from collections.abc import Mapping, Sequence

from lading._core.processes.pickled import ALONE
from lading.errors import UsageError

__all__ = ["how_it_ended", "start_program"]


def start_program(
    module: str, *words: str, stdin: int, stdout: int | None, fds: Sequence[int] = (),
    environment: Mapping[str, str] | None = None, advice: str = ALONE,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start a module of lading as a process that finds the modules that this one finds.

    Args:
        module: its name.
        words: of its command line.
        stdin: what its standard input is, as `subprocess` takes it.
        stdout: what its standard output is; None for that of this process.
        fds: descriptors that it inherits, by the same number.
        environment: more variables.
        advice: what to do where no process can be started.

    Raises:
        UsageError: this Python does not know its own program.
    """
    if not sys.executable:
        raise UsageError("this Python cannot start worker processes: sys.executable is empty", advice=advice)
    # The modules that this process finds, in the same order; `-P` keeps those of the current folder out otherwise.
    path = [entry or os.getcwd() for entry in sys.path if os.pathsep not in entry]
    return subprocess.Popen(  # noqa: S603 - the program of this Python itself
        [sys.executable, "-P", "-m", module, *words],
        bufsize=0,
        stdin=stdin,
        stdout=stdout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **(environment or {})},
        pass_fds=fds,
        process_group=0,
    )


def how_it_ended(status: int) -> str:
    """Return the exit status of a process in words, such as `signal 9 (SIGKILL)`."""
    return f"signal {-status} ({_signal_name(-status)})" if status < 0 else f"exit status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of real time"
