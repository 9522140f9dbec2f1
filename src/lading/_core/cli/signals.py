"""Signals that end a command. SIGTERM and SIGHUP end it as Ctrl-C does: workers stop, and half-written files go."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Terminated", "ended_by_signals", "lost", "status_of_interrupt"]

_FIRST_STATUS = 128
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_raised: list[Terminated] = []


class Terminated(KeyboardInterrupt):
    """A signal that ends the command.

    Attributes:
        number: the signal.
        reported: whether standard error has the line about it.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.reported = number, False


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise Terminated in the main thread on SIGINT, SIGTERM and SIGHUP, for a body that is all of the process.

    A second Ctrl-C raises again; further SIGTERM and SIGHUP do not disturb the cleanup. A signal that is ignored
    (`nohup`) or has another handler stays so. After the body, signals end the process without a word.
    """
    numbers = [n for n in (signal.SIGINT, *_ENDING) if signal.getsignal(n) in _PLAIN]
    for number in numbers:
        signal.signal(number, _end)
    sys.unraisablehook = _report_ignored
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        sys.unraisablehook = sys.__unraisablehook__
        _raised.clear()


_PLAIN = (signal.SIG_DFL, signal.default_int_handler)


def _end(number: int, _: FrameType | None) -> None:
    if number in _ENDING:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
    error = Terminated(number)
    _raised.append(error)
    raise error


def _report_ignored(ignored: Any) -> None:
    """Print an error that Python ignores, such as one in `__del__`; a signal is not lost by that."""
    if not issubclass(ignored.exc_type, Terminated):
        sys.__unraisablehook__(ignored)


def lost() -> Terminated | None:
    """Return the error of an earlier signal, which ends the command whatever was made of it.

    pyarrow drops errors during its own lazy imports, Python those in `__del__`, typer takes all for Ctrl-C, and a
    closed terminal puts an error of its own in their place.
    """
    return _raised[0] if _raised else None


def status_of_interrupt(error: KeyboardInterrupt) -> int:
    """Return the exit status after an interrupt: 128 and the number of the signal."""
    return _FIRST_STATUS + (error.number if isinstance(error, Terminated) else signal.SIGINT)
