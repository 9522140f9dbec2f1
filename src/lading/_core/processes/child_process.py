"""What processes that are lading's own, and nobody else's, do without: the command and its workers."""

from __future__ import annotations

import ctypes
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TextIO

import pyarrow as pa

__all__ = ["end_with_parent", "hand_on_warnings", "leave_pandas_out", "leave_signals"]

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Let the system kill this process when the thread that started it has ended, however it ended.

    Only Linux can; elsewhere the end of standard input says so, as soon as Python's lock is free.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(
            _PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)
        )


def leave_signals() -> None:
    """Let an interrupt or a hang-up be the business of the process that started this one: it ends this one."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def hand_on_warnings(take: Callable[[Warning | str, type[Warning], str, int], None]) -> None:
    """Give every warning from now on to a function, and show none: whether it is shown, the other process says.

    Args:
        take: is given the message, the category, the file and the line.
    """

    def hand_on(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,  # noqa: ARG001 - `warnings` gives it
        line: str | None = None,  # noqa: ARG001 - `warnings` gives it
    ) -> None:
        take(message, category, filename, lineno)

    warnings.simplefilter("always")
    warnings.showwarning = hand_on


def leave_pandas_out() -> None:
    """Let pyarrow find no pandas, for as long as this process lives; whoever else asks for it later gets it.

    To make an array of a list, pyarrow asks whether that is one of pandas' own, and imports pandas for it wherever
    it is installed: half of the time that a command or a worker takes to start. Nothing here is pandas'.
    """
    sys.meta_path.insert(0, _NO_PANDAS)
    try:
        pa.array([])  # it asks once
    finally:
        sys.meta_path.remove(_NO_PANDAS)


class _NoPandas:
    """A finder of modules by which pandas is not installed."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        """Nothing, or ModuleNotFoundError."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of this process", name=name)


_NO_PANDAS = _NoPandas()
