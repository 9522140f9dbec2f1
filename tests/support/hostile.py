"""Read damaged and malicious cases in a watched process, and judge what came of it.

    def read_case(folder, spec):              # in the test module: everything of one case, item by item
        ...

    @pytest.fixture(scope="module")
    def judge(golden, tmp_path_factory):
        with Judge(Path(__file__), tmp_path_factory.mktemp("hostile")) as judge:
            yield judge

    @pytest.mark.parametrize("case", case_names("hostile-wds"))
    def test_hostile(golden, judge, case):
        assert judge(golden("hostile-wds") / case) == []

A case that must fail has to end in one of lading's own errors that names what is at fault; one that may be read has to
end in data or such an error. Neither may hang, crash, use much memory, write outside its folder or run code.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

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


class Judge:
    """Has cases read by the `read_case` of a module, all by one process, and tells the faults in how it took them.

    A case's own limits hold if they are lower than these. Seconds are processor time, because a machine may be busy.
    After `max_wait_s` of silence a case counts as hanging; a case may have its own. A case that is read several `times`
    may take its seconds that often.

    Args:
        reader: the module.
        scratch: folder in which each case gets a copy of its own.
        max_seconds: processor time of a case.
        max_rss_mb: peak memory of a case.
        max_wait_s: time of a case.
        times: how often a case is read.
    """

    def __init__(
        self, reader: Path, scratch: Path, max_seconds: int = 20, max_rss_mb: int = 1024, *, max_wait_s: float = 300,
        times: int = 1,
    ) -> None:  # fmt: skip
        self._reader, self._scratch, self._max_wait_s, self._times = reader, scratch, max_wait_s, times
        self._limits = {"max_seconds": max_seconds, "max_rss_mb": max_rss_mb}
        self._child: subprocess.Popen[str] | None = None

    def __call__(self, case: Path) -> list[str]:
        """Return the faults of a case; nothing if all is well."""
        folder = self._scratch / case.parent.name / case.name / "a" / "b" / "case"
        shutil.copytree(case, folder)
        if self._child is None or self._child.poll() is not None:
            self._child = _start(self._reader)
        spec = load_spec(folder)
        spec |= {name: min(spec.get(name, most), most) for name, most in self._limits.items()}
        spec["max_seconds"] *= self._times
        return _judge(folder, spec, self._scratch, self._child, spec.get("max_wait_s", self._max_wait_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        if self._child is not None and self._child.poll() is None:
            self._child.communicate()


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
