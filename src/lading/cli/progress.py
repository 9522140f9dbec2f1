"""How far a job has come: a bar on a terminal, a line every few seconds in a log."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lading.cli.text import count
from lading.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.console import Console

    from lading.jobs.progress import Progress

__all__ = ["LineProgress", "progress_text", "watching"]

_LINE_EVERY_S = 5.0
_BAR_WIDTH = 32


def progress_text(done: Progress, seconds: float) -> str:
    """`12/40 shards, 48,211 samples, 1.2 GB, 850 MB/s`; what is not known is left out."""
    parts = [f"{done.shards_done:,}/{count(done.num_shards, 'shard')}"]
    if done.samples:
        parts.append(count(done.samples, "sample"))
    if done.payload_bytes:
        parts.append(format_bytes(done.payload_bytes))
        if seconds > 0:
            parts.append(f"{format_bytes(int(done.payload_bytes / seconds))}/s")
    return ", ".join(parts)


class LineProgress:
    """Says now and then, on a line of its own, how far a job has come.

    Args:
        label: what is being done.
        write: takes a line.
        clock: seconds that only grow.
    """

    def __init__(self, label: str, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._label, self._write, self._clock = label, write, clock
        self._began = self._told = clock()

    def __call__(self, done: Progress) -> None:
        """Say it, if nothing was said for a while."""
        now = self._clock()
        if now - self._told >= _LINE_EVERY_S:
            self._told = now
            self._write(f"{self._label}: {progress_text(done, now - self._began)}")


def _write_line(line: str) -> None:
    """A line on standard error; a job goes on when nobody reads it."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except BrokenPipeError:
        pass


@contextmanager
def watching(console: Console, label: str) -> Iterator[Callable[[Progress], None]]:
    """What a job may call after every batch, for as long as it runs; an interrupt ends it there at the latest.

    Args:
        console: standard error.
        label: what is being done, a word.
    """
    with _heeding_interrupts() as heed, _telling(console, label) as tell:

        def both(done: Progress) -> None:
            heed()
            tell(done)

        yield both


@contextmanager
def _heeding_interrupts() -> Iterator[Callable[[], None]]:
    """What raises KeyboardInterrupt if one was raised before and did not get through.

    pyarrow drops whatever is raised while it imports what it needs, when it first meets a Python value: a Ctrl-C in
    that moment would be lost.
    """
    seen = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        signal.default_int_handler(number, frame)

    def heed() -> None:
        if seen:
            raise KeyboardInterrupt

    in_charge = threading.current_thread() is threading.main_thread()
    if not in_charge or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield heed  # signals belong to somebody else, or are ignored (nohup)
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield heed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _telling(console: Console, label: str) -> Iterator[Callable[[Progress], None]]:
    if not console.file.isatty():  # and not `is_terminal`: colours may be forced in a log
        yield LineProgress(label, _write_line)
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    words = (TextColumn("{task.description}", markup=False), BarColumn(_BAR_WIDTH))
    with Bars(*words, TextColumn("{task.fields[told]}", markup=False), console=console, transient=True) as bars:
        task = bars.add_task(label, total=None, told="")
        began = time.monotonic()

        def tell(done: Progress) -> None:
            total = done.num_shards if done.num_shards > 1 else None
            told = progress_text(done, time.monotonic() - began)
            bars.update(task, total=total, completed=done.shards_done, told=told)

        yield tell
