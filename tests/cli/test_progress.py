from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lading._core.cli import progress
from lading._core.cli.main import app
from lading._core.cli.output import Output
from lading._core.cli.progress import LineProgress, watching
from lading._core.cli.signals import Terminated, ended_by_signals
from lading._core.jobs.engine.progress import Progress
from lading._core.jobs.engine.progress_bars import progress_text
from lading._core.jobs.verify.diff import diff
from lading._core.jobs.verify.digest import dataset_digest
from lading._core.jobs.verify.verify import verify


def _output(screen: io.StringIO, **more: Any) -> Output:
    """The output of a command whose standard error is a screen."""
    out = Output(as_json=False, debug=False)
    out.err = Console(file=screen, markup=False, **more)
    return out


def test_what_is_known_is_told_in_one_line() -> None:
    done = Progress(12, 40, 48_211, 1_288_490_188)
    assert progress_text(done, 1.5) == "12/40 shards, 48,211 samples, 1.2 GB, 819 MB/s"


def test_what_is_not_known_is_left_out() -> None:
    assert progress_text(Progress(1, 2, 0, 0), 1.0) == "1/2 shards"
    assert progress_text(Progress(0, 1, 1, 1024), 0.0) == "0/1 shard, 1 sample, 1.0 KB"


def test_a_line_comes_every_few_seconds_and_not_at_once() -> None:
    lines: list[str] = []
    now = [100.0]
    noon = time.struct_time((2026, 12, 24, 12, 0, 5, 3, 358, 0))
    tell = LineProgress("converting", lines.append, clock=lambda: now[0], now=lambda: noon)
    for second in range(13):
        now[0] = 100.0 + second
        tell(Progress(second, 20, second, 0))
    assert lines == [
        "2026-12-24 12:00:05 converting: 5/20 shards, 5 samples, 15 seconds left",
        "2026-12-24 12:00:05 converting: 10/20 shards, 10 samples, 10 seconds left",
    ]


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Screen()
    with watching(_output(screen, force_terminal=True, width=100, color_system=None), "converting") as tell:
        tell(Progress(1, 4, 10, 2048))
    assert "converting" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")


def test_a_log_gets_nothing_of_a_short_job() -> None:
    screen = io.StringIO()
    with watching(_output(screen), "converting") as tell:
        tell(Progress(1, 4, 10, 2048))
    assert screen.getvalue() == ""


@pytest.mark.parametrize(
    "words, shows", [([], True), (["-q"], False), (["--json"], False), (["--json", "--no-quiet"], True)]
)
def test_who_wants_no_progress_gets_the_result_alone(
    words: list[str], shows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    with resources.as_file(resources.files("lading._core.data")) as folder:
        told = CliRunner().invoke(app, ["digest", str(folder / "docs-00000.tar"), *words], prog_name="lading")
    assert (told.exit_code, "reading: 1/1 shard" in told.stderr) == (0, shows)
    assert told.stdout


def test_an_interrupt_that_somebody_dropped_is_heeded_at_the_next_batch() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [*map(signal.getsignal, numbers)]
    try:
        with ended_by_signals(), watching(_output(io.StringIO()), "converting") as tell:
            tell(Progress(0, 1, 1, 1))
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(Terminated) as raised:
                tell(Progress(0, 1, 2, 2))
        assert raised.value.number == signal.SIGTERM
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize("job", [dataset_digest, verify, lambda source, **more: diff(source, source, **more)])
def test_jobs_tell_how_far_they_are(job: Callable[..., object]) -> None:
    told: list[Progress] = []
    with resources.as_file(resources.files("lading._core.data")) as folder:
        job([str(folder / "docs-00000.tar"), str(folder / "docs-00001.tar")], on_progress=told.append)
    assert (told[-1].shards_done, told[-1].num_shards, told[-1].samples) == (2, 2, 13)
    assert told[-1].payload_bytes > 1_000_000
    assert [t.samples for t in told] == sorted(t.samples for t in told)
