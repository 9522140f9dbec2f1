"""The judge of hostile cases, tried with readers that do what none may do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile import Judge
from lading.errors import CorruptShard

_ERROR = {"expect": "error", "error_names_any": ["x.tar"], "max_seconds": 2, "max_rss_mb": 200}
_SAFE = {**_ERROR, "expect": "safe"}
_SLOW = {**_SAFE, "max_seconds": 20}
_CASES = {
    "named": (_ERROR, None),
    "unnamed": (_ERROR, "names none of"),
    "data": (_ERROR, "no error after 2 samples"),
    "data-safe": (_SAFE, None),
    "named-safe": (_SAFE, None),
    "foreign": (_SAFE, "ZeroDivisionError"),
    "after-a-death": (_SAFE, None),
    "hang": ({**_SAFE, "max_wait_s": 1}, "no end after 1 s"),
    "busy": (_SAFE, "took "),
    "big": (_SLOW, "used "),
    "small-after-big": (_SLOW, None),
    "stray": (_SAFE, "outside the case"),
    "canary": ({**_SAFE, "canaries": ["../canary"]}, "code ran"),
}


def read_case(folder: Path, spec: dict[str, Any]) -> Iterator[int]:
    what = spec["what"]
    if what.startswith("named"):
        raise CorruptShard("cut short", file="x.tar")
    if what == "unnamed":
        raise CorruptShard("cut short")
    if what == "hang":
        time.sleep(600)
    if what == "busy":
        began = time.process_time()
        while time.process_time() - began < _ERROR["max_seconds"]:
            pass
    if what == "big":
        yield len(b"x" * (300 << 20))
    if what in {"stray", "canary"}:
        folder.with_name(what).write_text("")
    yield 1 // (what != "foreign")
    yield 2


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    for name, (spec, _) in _CASES.items():
        (folder / name).mkdir()
        (folder / name / "expected.json").write_text(json.dumps({**spec, "what": name}))
    return folder


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    with Judge(Path(__file__), tmp_path_factory.mktemp("scratch")) as judge:
        yield judge


@pytest.mark.soak
@pytest.mark.parametrize("case", _CASES)
def test_verdict(judge: Judge, cases: Path, case: str) -> None:
    problem, found = _CASES[case][1], judge(cases / case)
    if problem is None:
        assert found == []
    else:
        assert problem in found[-1]
