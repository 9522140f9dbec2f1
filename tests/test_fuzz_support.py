"""What fuzzes, tried: damages that are the same each time, and a judge that sees what no reader may do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from fuzz import fuzz
from fuzz_child import judge
from fuzz_targets import TARGETS, data_files, find_readings
from golden_cases import Golden
from lading.errors import CorruptShard
from mutations import damage_bytes, damage_case

_CHILD = """
import json, os, sys, time
job = json.load(open(sys.argv[1]))
print("{}", flush=True)
for number in range(job["start"], job["stop"]):
    if number == 2:
        os.abort()
    if number == 4:
        time.sleep(60)
    if number == 6:
        open(job["scratch"] + "/stray", "w")
    told = {"number": number, "case": "wds/x", "source": "x.tar", "damage": "none", "problems": []}
    told |= {"seconds": 9 if number == 3 else 0, "peak_mb": 600 if number == 5 else 1}
    told["problems"] += ["ValueError"] if number == 0 else []
    print(json.dumps(told), flush=True)
"""


@pytest.mark.soak
def test_what_may_not_be_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(_CHILD)
    (tmp_path / "run").mkdir()
    faults = fuzz([], "s", 8, tmp_path / "run", child=child, max_wait=3)
    seen = [
        "0 of wds/x",
        "2: the process died with -6",
        "3 of wds/x",
        "4: no end after 3 s",
        "5 of wds/x",
        "stray was wr",
    ]
    assert len(faults) == len(seen)
    assert [text for text, fault in zip(seen, faults, strict=True) if text not in fault] == []
    assert ["ValueError" in faults[0], "took 9.0 s" in faults[2], "used 600 MB" in faults[4]] == [True] * 3


def _raise(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        raise error

    return step


@pytest.mark.parametrize(
    "error, problem",
    [
        (CorruptShard("cut", file="a/x.tar"), None),
        (CorruptShard("cut"), "names no file"),
        (ValueError("x"), "ValueError"),
        (MemoryError(), "MemoryError"),
        (RecursionError(), "RecursionError"),
    ],
)
def test_only_errors_of_lading_that_name_a_file_are_right(error: Exception, problem: str | None) -> None:
    found = list(judge(_raise(error), ["x.tar", "b/y.tar"]))
    assert [problem in text for text in found if problem] == [True] * (problem is not None)


def test_the_same_seed_makes_the_same_damage(golden: Golden, tmp_path: Path) -> None:
    [case, reading] = find_readings(golden, "mds")[0]
    files = data_files(case, reading)
    made = []
    for turn in range(2):
        for number in range(50):
            folder = tmp_path / f"{turn}-{number}"
            folder.mkdir()
            for name, data in files.items():
                (folder / name).write_bytes(data)
            said = damage_case(folder, files, Random(number))
            made.append((said, {path.name: path.read_bytes() for path in folder.iterdir()}))
    assert made[:50] == made[50:]
    assert sum(found != files for _, found in made) > 90


@pytest.mark.parametrize("name, data", [("x.mds", b""), ("index.json", b""), ("x.tar", b"a"), ("x.json", b"[1, 2]")])
def test_small_files_are_damaged_too(name: str, data: bytes) -> None:
    assert {damage_bytes(name, data, Random(number), b"other")[0] for number in range(200)} > {data}


@pytest.mark.parametrize("target", TARGETS)
def test_each_target_has_cases_with_files(golden: Golden, target: str) -> None:
    found = find_readings(golden, target)
    assert found
    assert [f"{case}: {reading}" for case, reading in found if not data_files(case, reading)] == []
    assert json.dumps([reading.opening for _, reading in found])
