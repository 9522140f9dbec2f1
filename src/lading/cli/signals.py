"""Signals that end a command. SIGTERM and SIGHUP end it as Ctrl-C does: workers stop, and half-written files go."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["Terminated", "end_by_signals", "lost", "status_of_interrupt"]

_FIRST_STATUS = 128
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_raised: list[Terminated] = []


class Terminated(KeyboardInterrupt):
    """A signal that ends the command.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def end_by_signals() -> None:
    """Raise Terminated in the main thread on SIGTERM and SIGHUP; later ones do not disturb the cleanup.

    A signal that is ignored (`nohup`) or has another handler stays so.
    """
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    error = Terminated(number)
    _raised.append(error)
    raise error


def lost() -> Terminated | None:
    """Return the error of an earlier signal, which ends the command whatever was made of it.

    pyarrow drops errors during its own lazy imports, and a closed terminal puts an error of its own in their place.
    """
    return _raised[0] if _raised else None


def status_of_interrupt(error: KeyboardInterrupt) -> int:
    """Return the exit status after an interrupt: 128 and the number of the signal."""
    return _FIRST_STATUS + (error.number if isinstance(error, Terminated) else signal.SIGINT)
