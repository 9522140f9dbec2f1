"""Bars of jobs in Python: after two seconds, where a person looks, and nowhere else."""

from __future__ import annotations

import io
import multiprocessing
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import lading
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.engine.progress_bars import Phases, Screen, notebook_screen, shown_progress, terminal_screen
from lading._core.jobs.stats.stats import dataset_stats


def listed(shown: list[str]) -> Screen:
    """A screen that notes what happens on it."""

    @contextmanager
    def begin(label: str) -> Iterator[OnProgress]:
        shown.append(f"begin {label}")
        yield lambda done: shown.append(f"{done.shards_done}/{done.num_shards}")
        shown.append("end")

    return begin


def test_a_bar_appears_after_two_seconds_and_goes() -> None:
    shown: list[str] = []
    now = [50.0]
    with shown_progress("reading", None, progress=True, screen=listed(shown), clock=lambda: now[0]) as report:
        assert report is not None
        for second, done in ((51.9, 1), (52.0, 2), (60.0, 3)):
            now[0] = second
            report(Progress(done, 4, 0, 0))
    assert shown == ["begin reading", "2/4", "3/4", "end"]


def test_a_phase_before_the_work_has_its_own_label_and_speed() -> None:
    now = [0.0]
    phases = Phases("converting", lambda: now[0])
    said = []
    for second, done in (
        (4.0, Progress(1, 4, 10, 0, "looking for duplicates")),
        (20.0, Progress(3, 4, 30, 0, "looking for duplicates")),
        (22.0, Progress(0, 4, 10, 4096)),
        (24.0, Progress(1, 4, 20, 16384)),
        (32.0, Progress(1, 4, 20, 16384, share=0.5)),
    ):
        now[0] = second
        said.append(f"{phases.label(done)}: {phases.text(done)}")
    assert said == [
        "looking for duplicates: 1/4 shards, 10 samples",
        "looking for duplicates: 3/4 shards, 30 samples, 8.0 seconds left",
        "converting: 0/4 shards, 10 samples, 4.0 KB, 2.0 KB/s",
        "converting: 1/4 shards, 20 samples, 16.0 KB, 4.0 KB/s",
        "converting: 1/4 shards, 20 samples, 16.0 KB, 1.3 KB/s, 10 seconds left",
    ]


def test_a_short_job_shows_nothing() -> None:
    shown: list[str] = []
    with shown_progress("reading", None, progress=True, screen=listed(shown), clock=lambda: 7.0) as report:
        assert report is not None
        report(Progress(4, 4, 0, 0))
    assert shown == []


def test_it_can_be_turned_off_and_the_callers_function_comes_first() -> None:
    shown: list[str] = []
    told: list[Progress] = []
    with shown_progress("reading", None, progress=False, screen=listed(shown)) as report:
        assert report is None
    with shown_progress("reading", told.append, progress=True, screen=listed(shown)) as report:
        assert report is not None
        report(Progress(1, 2, 0, 0))
    assert (told, shown) == ([Progress(1, 2, 0, 0)], [])


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with shown_progress("reading", None, progress=True) as report:
            assert report is None


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_job_inside_another_one_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", _Terminal())
    with shown_progress("converting", None, progress=True) as outer:
        assert outer is not None
        with shown_progress("reading", None, progress=True) as inner:
            assert inner is None
    with shown_progress("converting", None, progress=False), shown_progress("reading", None, progress=True) as inner:
        assert inner is None


def _has_bar(queue: Any) -> None:
    sys.stderr = _Terminal()
    with shown_progress("reading", None, progress=True) as report:
        queue.put(report is not None)


@pytest.mark.soak
def test_a_child_process_shows_nothing() -> None:
    queue = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=_has_bar, args=(queue,))
    child.start()
    assert queue.get(timeout=30) is False
    child.join()


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    screen = _Terminal()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None, markup=False)
    with terminal_screen(console)("converting") as show:
        show(Progress(1, 4, 10, 2048))
    assert "converting" in screen.getvalue()
    with terminal_screen(console)("converting") as show:
        show(Progress(1, 4, 10, 0, "looking for duplicates"))
    assert "looking for duplicates" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")


def test_a_notebook_gets_a_bar_that_is_updated_and_goes_away() -> None:
    drawn: list[dict[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            drawn.append(data)

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        drawn.append(data)
        return Handle()

    now = [0.0]
    with notebook_screen(display, lambda: now[0])("reading") as show:
        for done in (1, 2, 3):  # the browser is not told more often than four times a second
            now[0] += 0.2
            show(Progress(done, 4, 0, 0))
        now[0] += 0.3
        show(Progress(0, 4, 0, 0, "reading back"))
    shown = ["reading: 1/4 shards", "reading: 3/4 shards", "reading back: 0/4 shards", ""]
    assert [data["text/plain"] for data in drawn] == shown
    assert "<progress value='0.2500'>" in drawn[0]["text/html"]


_SLOW = """
import sys, lading, lading._core.jobs.engine.progress_bars as bars
bars._AFTER_S = 0.0
lading.digest(sys.argv[1], workers=1, progress=sys.argv[2] == "yes")
"""


@pytest.mark.mechanism("a bar in a terminal")
@pytest.mark.cases(1)
@pytest.mark.parametrize("wanted", ["yes", "no"])
def test_a_job_shows_its_bar_in_a_terminal(docs: Path, wanted: str) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", _SLOW, str(docs), wanted]
    subprocess.run(command, stderr=theirs, check=True, timeout=120, env={**os.environ, "TERM": "xterm"})
    os.write(theirs, b"|end|")
    said = b""
    while not said.endswith(b"|end|"):
        said += os.read(ours, 65_536)
    os.close(ours)
    os.close(theirs)
    assert (b"reading" in said) == (wanted == "yes")


@pytest.mark.parametrize(
    "job",
    [lading.digest, lading.verify, lading.info, lading.doctor, dataset_stats, lambda x, **o: lading.diff(x, x, **o)],
)
def test_jobs_take_progress(docs: Path, job: Callable[..., object]) -> None:
    job(docs, progress=False)
