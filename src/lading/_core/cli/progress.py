"""Progress of a job: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from lading._core.cli.signals import lost
from lading._core.jobs.engine.progress_bars import Phases, terminal_screen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from lading._core.cli.output import Output
    from lading._core.jobs.engine.progress import Progress

__all__ = ["LineProgress", "watching"]

_LINE_EVERY_S, _TIME = 5.0, "%Y-%m-%d %H:%M:%S"


class LineProgress:
    """Writes the progress of a job every few seconds, each time as a line.

    Args:
        label: name of the work.
        write: called with a line.
        clock: returns seconds; never goes back.
        now: returns the time of day.
    """

    def __init__(
        self,
        label: str,
        write: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], time.struct_time] = time.localtime,
    ) -> None:
        self._phases, self._write, self._clock, self._now = Phases(label, clock), write, clock, now
        self._written = clock()

    def __call__(self, done: Progress) -> None:
        """Write a line, if the last one is some seconds ago."""
        now, said = self._clock(), self._phases.label(done)
        if now - self._written >= _LINE_EVERY_S:
            self._written = now
            self._write(f"{time.strftime(_TIME, self._now())} {said}: {self._phases.text(done)}")


def _write_line(line: str) -> None:
    """Write a line to standard error. A closed pipe does not end the job."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        pass


@contextmanager
def watching(out: Output, label: str) -> Iterator[Callable[[Progress], None]]:
    """Return a function that a job calls after every batch. It shows progress, and raises a pending interrupt.

    Args:
        out: of the command; if it is quiet, nothing is shown.
        label: name of the work, one word.
    """
    with nullcontext(_nothing) if out.quiet else _showing(out.err, label) as show:

        def both(done: Progress) -> None:
            if (interrupt := lost()) is not None:
                raise interrupt
            show(done)

        yield both


def _nothing(_: Progress) -> None:
    """Show nothing."""


@contextmanager
def _showing(console: Console, label: str) -> Iterator[Callable[[Progress], None]]:
    if not console.file.isatty():  # and not `is_terminal`: colours may be forced in a log
        yield LineProgress(label, _write_line)
        return
    with terminal_screen(console)(label) as show:
        yield show
