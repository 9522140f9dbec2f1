"""Progress that people see while a job runs: a bar in a terminal or a notebook, for the command line and for Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.units import count, format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Phases", "Screen", "in_notebook", "notebook_screen", "progress_text", "shown_progress", "terminal_screen"]

_AFTER_S = 2.0
_BAR_WIDTH = 32
_EVERY_S = 0.25
_ESTIMATED_S = 4.0
"""The time of what is done, below which it does not tell the time of the rest."""

Screen: TypeAlias = Callable[[str], AbstractContextManager[OnProgress]]
"""Begins a bar with a label; it is gone at the end."""


def progress_text(done: Progress, seconds: float) -> str:
    """Return `12/40 shards, 48,211 samples, 1.2 GB, 850 MB/s`; unknown parts are left out."""
    parts = [f"{done.shards_done:,}/{count(done.num_shards, 'shard')}"]
    if done.samples:
        parts.append(count(done.samples, "sample"))
    if done.payload_bytes:
        parts.append(format_bytes(done.payload_bytes))
        if seconds > 0:
            parts.append(f"{format_bytes(int(done.payload_bytes / seconds))}/s")
    return ", ".join(parts)


class Phases:
    """Says what a job does, how far it is, and how long it will take: its own work, or a phase before that.

    Args:
        label: name of its own work, one word.
        clock: returns seconds; never goes back.
    """

    def __init__(self, label: str, clock: Callable[[], float]) -> None:
        self._label, self._clock, self._phase = label, clock, ""
        self._began = self._last = clock()
        self._first: tuple[float, float] | None = None  # when a part of the work was known to be done, and which

    def label(self, done: Progress) -> str:
        """Return what the job does. The seconds of a new phase count from the last call."""
        if done.phase != self._phase:
            self._phase, self._began, self._first = done.phase, self._last, None
        self._last = self._clock()
        if self._first is None and done.done_share is not None:
            self._first = self._last, done.done_share
        return done.phase or self._label

    def text(self, done: Progress) -> str:
        """Return the progress of the phase as text, with its speed and the time that is left; called after `label`."""
        told, left_s = progress_text(done, self._last - self._began), self._left_s(done.done_share)
        return told if left_s is None else f"{told}, {format_seconds(left_s)} left"

    def _left_s(self, share: float | None) -> float | None:
        """The seconds that the rest will take, by the time since the first report: a job may go on in the middle."""
        if share is None or share >= 1 or self._first is None:
            return None
        took_s, done = self._last - self._first[0], share - self._first[1]
        return took_s * (1 - share) / done if took_s >= _ESTIMATED_S and done > 0 else None


_running = 0
"""Jobs of this process that show their progress, or whose caller does: jobs inside them show nothing."""


@contextmanager
def shown_progress(
    label: str,
    on_progress: OnProgress | None,
    *,
    progress: bool,
    screen: Screen | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[OnProgress | None]:
    """Return the function that a job calls after every batch; None where nobody looks.

    A bar appears after two seconds where a person looks at it: in a terminal (standard error), or a notebook. Never in
    a process that another one started, and not inside a job that shows its own progress.

    Args:
        label: what the job does, one word.
        on_progress: the caller's own function, which is returned instead of a bar.
        progress: whether a bar may appear.
        screen: where it appears; by default what this process has.
        clock: returns seconds; never goes back.
    """
    global _running  # noqa: PLW0603 - a terminal has one bar
    if screen is None and on_progress is None and progress and not _running:
        screen = _screen_here()
    _running += 1
    try:
        if on_progress is not None or not progress or screen is None:
            yield on_progress
        else:
            with ExitStack() as held:
                yield _Later(held, screen, label, clock)
    finally:
        _running -= 1


class _Later:
    """Begins a bar when the job has taken some time."""

    def __init__(self, held: ExitStack, screen: Screen, label: str, clock: Callable[[], float]) -> None:
        self._held, self._screen, self._label, self._clock = held, screen, label, clock
        self._due = clock() + _AFTER_S
        self._show: OnProgress | None = None

    def __call__(self, done: Progress) -> None:
        if self._show is None and self._clock() >= self._due:
            self._show = self._held.enter_context(self._screen(self._label))
        if self._show is not None:
            self._show(done)


def _screen_here() -> Screen | None:
    """Where this process shows bars; None where nobody looks."""
    from multiprocessing import parent_process

    if parent_process() is not None:
        return None
    display = _notebook_display()
    if display is not None:
        return notebook_screen(display)
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    from rich.console import Console

    return terminal_screen(Console(stderr=True, markup=False, highlight=False, emoji=False))


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


def _notebook_display() -> Callable[..., Any] | None:
    """IPython's `display`, in a kernel of a notebook."""
    display: Callable[..., Any] | None = import_module("IPython.display").display if in_notebook() else None
    return display


def terminal_screen(console: Console) -> Screen:
    """Return the bars of a terminal."""

    @contextmanager
    def begin(label: str) -> Iterator[OnProgress]:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        words = (TextColumn("{task.description}", markup=False), BarColumn(_BAR_WIDTH))
        with Bars(*words, TextColumn("{task.fields[text]}", markup=False), console=console, transient=True) as bars:
            task, phases = bars.add_task(label, total=None, text=""), Phases(label, time.monotonic)

            def show(done: Progress) -> None:
                said, share = phases.label(done), done.done_share
                total = None if share is None else 1.0
                bars.update(task, description=said, total=total, completed=share or 0.0, text=phases.text(done))

            yield show

    return begin


def notebook_screen(display: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> Screen:
    """Return the bars of a notebook, drawn by the browser: no widgets are needed.

    Args:
        display: IPython's function.
        clock: returns seconds; never goes back.
    """

    @contextmanager
    def begin(label: str) -> Iterator[OnProgress]:
        phases, due = Phases(label, clock), clock()
        handle: Any = None

        def show(done: Progress) -> None:
            nonlocal due, handle
            now, said = clock(), phases.label(done)
            if now < due:
                return
            due = now + _EVERY_S
            told = _as_html(f"{said}: {phases.text(done)}", done)
            if handle is None:
                handle = display(told, raw=True, display_id=True)
            else:
                handle.update(told, raw=True)

        try:
            yield show
        finally:
            if handle is not None:
                handle.update({"text/plain": "", "text/html": ""}, raw=True)

    return begin


def _as_html(text: str, done: Progress) -> dict[str, str]:
    part = "" if done.done_share is None else f" value='{done.done_share:.4f}'"
    return {"text/plain": text, "text/html": f"<div><progress{part}></progress> {text}</div>"}
