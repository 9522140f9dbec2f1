"""Read damaged and malicious cases in a watched process, and judge what came of it.

    def read_case(folder, spec):              # in the test module: everything of one case, item by item
        ...

    @pytest.fixture(scope="module")
    def verdicts(golden, tmp_path_factory):
        return judge_cases(sorted(golden("hostile-wds").iterdir()), Path(__file__), tmp_path_factory.mktemp("hostile"))

    @pytest.mark.parametrize("case", case_names("hostile-wds"))
    def test_hostile(verdicts, case):
        assert verdicts[case] == []

A case that must fail has to end in one of lading's own errors that names what is at fault; one that may be read has to
end in data or such an error. Neither may hang, crash, use much memory, write outside its folder or run code.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from golden_cases import load_spec

FAMILIES = (
    "hostile-wds",
    "hostile-interleaved-tar",
    "hostile-interleaved-parquet",
    "hostile-hf-parquet",
    "hostile-arrow-shards",
    "hostile-hf-disk",
)
"""Families of damaged and malicious datasets, as sources of `lading.open`."""

_CHILD = Path(__file__).with_name("hostile_child.py")


def source_of(opened: dict[str, Any]) -> str | list[str]:
    """Return the path of a case to open."""
    found: str | list[str] = opened.get("files") or opened.get("shards") or opened.get("index") or opened["path"]
    return found


def judge_cases(
    cases: Sequence[Path], reader: Path, scratch: Path, max_seconds: int = 20, max_rss_mb: int = 1024, *,
    max_wait_s: float = 300, times: int = 1,
) -> dict[str, list[str]]:  # fmt: skip
    """Return the faults in how `reader`'s `read_case` handled each case, by name of the case; nothing if all is well.

    A case's own limits hold if they are lower than these. Seconds are processor time, because a machine may be busy.
    After `max_wait_s` of silence a case counts as hanging; a case may have its own. A case that is read several `times`
    may take its seconds that often.
    """
    verdicts: dict[str, list[str]] = {}
    child: subprocess.Popen[str] | None = None
    for case in cases:
        folder = scratch / case.name / "a" / "b" / "case"
        shutil.copytree(case, folder)
        if child is None or child.poll() is not None:
            child = _start(reader)
        limits = {"max_seconds": max_seconds, "max_rss_mb": max_rss_mb}
        spec = load_spec(folder)
        spec |= {name: min(spec.get(name, most), most) for name, most in limits.items()}
        spec["max_seconds"] *= times
        verdicts[case.name] = _judge(folder, spec, scratch, child, spec.get("max_wait_s", max_wait_s))
    if child is not None and child.poll() is None:
        child.communicate()
    return verdicts


def _start(reader: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", str(_CHILD), str(reader)]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert child.stdout is not None
    if not child.stdout.readline():  # it reports when it is ready: its start is not the first case's time
        pytest.fail(f"{reader} cannot be run: {child.communicate()[1][-2000:]}")
    return child


def _judge(
    folder: Path, spec: dict[str, Any], scratch: Path, child: subprocess.Popen[str], max_wait_s: float
) -> list[str]:
    canaries = [folder / canary for canary in spec.get("canaries", [])]
    before = _files_outside(folder, scratch)
    answer = _ask(child, folder, max_wait_s)
    problems = [answer] if isinstance(answer, str) else _judge_answer(spec, answer)
    stray = _files_outside(folder, scratch) - before
    problems += [f"wrote {path} outside the case" for path in sorted(stray)]
    return problems + [f"{canary} was made: code ran, or a path escaped" for canary in canaries if canary.exists()]


def _ask(child: subprocess.Popen[str], folder: Path, seconds: float) -> dict[str, Any] | str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{folder}\n")
    child.stdin.flush()
    if not select.select([child.stdout], [], [], seconds)[0]:
        child.kill()
        child.communicate()
        return f"no end after {seconds} s"
    line = child.stdout.readline()
    if not line:
        return f"the process died: {child.communicate()[1][-2000:]}"
    answer: dict[str, Any] = json.loads(line)
    return answer


def _judge_answer(spec: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    problems = []
    if answer["peak_mb"] > spec["max_rss_mb"]:
        problems.append(f"used {answer['peak_mb']} MB")
    if answer["seconds"] > spec["max_seconds"]:
        problems.append(f"took {answer['seconds']:.1f} s")
    if spec["expect"] == "error":
        names = spec.get("error_names_any", [])
        if answer["error"] is None:
            problems.append(f"no error after {answer['samples']} samples")
        elif names and not any(name in answer["error"] for name in names):
            problems.append(f"the error names none of {names}: {answer['error']}")
    return problems


def _files_outside(folder: Path, scratch: Path) -> set[Path]:
    return {path for path in scratch.rglob("*") if folder not in path.parents}
