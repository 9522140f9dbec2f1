"""Read thousands of damaged files in a watched process, and tell which of them were taken wrongly.

    faults = fuzz(find_readings(golden, "mds"), seed="mds 0", count=1000, scratch=tmp_path)

A damaged file has to end in data or in one of lading's own errors that names a file, in 5 seconds and 500 MB. A process
that dies or does not end is replaced by a new one, which goes on after the damage that it met.
"""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fuzz_targets import Reading

__all__ = ["fuzz"]

_CHILD = Path(__file__).with_name("fuzz_child.py")
_MAX_SECONDS, _MAX_MB = 5, 500


def fuzz(
    cases: Sequence[tuple[Path, Reading]], seed: str, count: int, scratch: Path, *, start: int = 0,
    ways: int = 5, child: Path = _CHILD, max_wait: float = 60,
) -> list[str]:  # fmt: skip
    """Return the errors in reading damaged cases; nothing if all is well.

    Args:
        cases: folders of cases, and how they are read, in turn.
        seed: the same seed makes the same damages.
        count: number of damages.
        scratch: an empty folder.
        start: the first damage, to repeat one: the result has seed and number.
        ways: maximum number of ways to read each: drawn from all ways.
        child: the program that damages and reads.
        max_wait: seconds of silence after which it counts as hanging. The limit of 5 is processor time: a machine may
            be busy.
    """
    faults, number = [], start
    place = scratch / "a" / "b"
    place.mkdir(parents=True)
    while number < start + count:
        job = {"seed": seed, "start": number, "stop": start + count, "scratch": str(place), "ways": ways}
        job["cases"] = [(str(folder), asdict(reading)) for folder, reading in cases]
        (scratch / "job.json").write_text(json.dumps(job))
        command = [sys.executable, "-W", "ignore", str(child), str(scratch / "job.json")]
        found, number = _watch(command, number, start + count, scratch / "stderr", max_wait)
        faults += [f"seed {seed!r}, damage {fault}" for fault in found]
    stray = {path for path in scratch.rglob("*") if place / "case" not in path.parents}
    stray -= {scratch / "a", place, place / "case", scratch / "job.json", scratch / "stderr"}
    return faults + [f"seed {seed!r}: {path} was written outside the case" for path in sorted(stray)]


def _watch(command: list[str], number: int, stop: int, errors: Path, max_wait: float) -> tuple[list[str], int]:
    """Return the faults of one process, and the damage at which to continue."""
    faults = []
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, bufsize=0) as run,
    ):
        assert run.stdout is not None
        if not run.stdout.readline():  # it reports when it is ready
            pytest.fail(f"{command} cannot be run: {errors.read_text()[-2000:]}")
        while number < stop:
            ended = not select.select([run.stdout], [], [], max_wait)[0]
            if ended:
                run.send_signal(signal.SIGABRT)  # it reports its position before it dies
            line = b"" if ended else run.stdout.readline()
            if not line:
                run.wait()
                what = f"no end after {max_wait} s" if ended else f"the process died with {run.returncode}"
                faults.append(f"{number}: {what}: {errors.read_text(errors='replace')[-2500:]}")
                return faults, number + 1
            faults += _judge(json.loads(line))
            number += 1
    return faults, number


def _judge(answer: dict[str, Any]) -> list[str]:
    problems = list(answer["problems"])
    if answer["seconds"] > _MAX_SECONDS:
        problems.append(f"took {answer['seconds']:.1f} s")
    if answer["peak_mb"] > _MAX_MB:
        problems.append(f"used {answer['peak_mb']} MB")
    where = f"{answer['number']} of {answer['case']} ({answer['source']}; {answer['damage']})"
    return [f"{where}: {problem}" for problem in problems]
