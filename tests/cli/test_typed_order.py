"""Steps of the command line apply in the order in which they are typed, as calls of Python do."""

from __future__ import annotations

import base64
import json
import random
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading.errors import LadingError
from step_cases import CASES, SOURCES, plain_rows, write_sources

_STEPS = [name for name in CASES if name != "all at once"]
_PAIRS = [(one, other) for one, other in product(_STEPS, _STEPS) if CASES[one].options[0] != CASES[other].options[0]
          and {one, other} != {"sample", "shuffle"}]  # fmt: skip
"""All pairs of different options. One seed holds for `--sample` and `--shuffle`: their cases have two."""
random.Random(5).shuffle(_PAIRS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, and the files that options name."""
    folder = tmp_path_factory.mktemp("order")
    write_sources(folder)
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def _run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), prog_name="lading")


def _shown(line: str) -> dict[str, Any]:
    found = json.loads(line)
    return {
        name: base64.b64decode(value["base64"]) if isinstance(value, dict) and "base64" in value else value
        for name, value in found.items()
    }


def _rows(*words: str) -> list[dict[str, Any]]:
    done = _run("head", *words, "-n", "100", "--full", "--json")
    assert done.exit_code == 0, done.output
    return plain_rows([_shown(line) for line in done.stdout.splitlines() if line.startswith("{")])


def _keys(*words: str) -> list[str]:
    return [row["__key__"] for row in _rows("in.parquet", *words)]


@pytest.mark.cases(12)
@pytest.mark.parametrize("one, other", _PAIRS)
def test_pairs_of_steps_are_chains_of_python(one: str, other: str, place: Path) -> None:
    source = SOURCES[_PAIRS.index((one, other)) % 2]
    options = [*CASES[one].options, *CASES[other].options]
    refused = None
    try:
        with CASES[other].chain(CASES[one].chain(lading.open(source), place), place) as dataset:
            expected = plain_rows(list(dataset))
    except LadingError as error:
        refused = error
    if refused is None:
        assert _rows(source, *options) == expected
        return
    done = _run("head", source, *options, "-n", "100", "--json")
    assert done.exit_code == refused.exit_status
    assert json.loads(done.stdout.splitlines()[-1])["message"] in str(refused)


def test_a_condition_sees_what_a_function_made(place: Path) -> None:
    (place / "words.py").write_text("def add(sample):\n    return {'n': len(sample['txt']) + sample['cls']}\n")
    done = _run("convert", "in.tar", "out.parquet", "--map", "words.py:add", "--where", "n > 7", "--overwrite")
    assert done.exit_code == 0, done.output
    assert [row["n"] for row in lading.open("out.parquet")] == [8] * 4  # type: ignore[index] # a sample
    assert "Steps apply as typed: --map, --where. Earlier versions: --where, --map." in done.stderr


def test_a_limit_applies_where_it_is_typed() -> None:
    firsts = {f"{i:02}" for i in range(4)}
    assert {*_keys("--limit", "4", "--shuffle")} == firsts
    assert {*_keys("--shuffle", "--limit", "4")} != firsts
    assert _keys("--limit", "4", "--where", "cls == 1", "--limit", "1") == ["01"]


def test_an_option_may_be_two_steps() -> None:
    assert _keys("--sort", "cls", "--limit", "4", "--sort", "__key__:desc") == ["09", "06", "03", "00"]
    assert _keys("--sort", "cls", "--sort", "__key__:desc", "--limit", "4") == ["09", "06", "03", "00"]
    [row] = _rows("in.parquet", "--limit", "1", "--rename", "txt=a", "--rename", "cls=txt", "--columns", "a,txt",
                  "--rename", "a=b")  # fmt: skip
    assert row == {"__key__": "00", "b": "text 0", "txt": 0}


def test_an_option_belongs_to_the_step_before_it(place: Path) -> None:
    (place / "ids.csv").write_text("id,n\n3,30\n")
    (place / "langs.csv").write_text("lang,word,more\nen,English,1\nde,German,2\n")
    joined = ["--join", "ids.csv", "--on", "json.id=id", "--join-how", "inner",
              "--join", "langs.csv", "--join-columns", "word", "--on", "json.lang=lang"]  # fmt: skip
    [row] = _rows("in.parquet", *joined, "--columns", "n,word")
    assert row == {"__key__": "03", "n": 30, "word": "English"}


@pytest.mark.parametrize(
    "options, message",
    [
        (["--drop", "sample", "--where", "cls == 1"], "--drop belongs to a --where.*--where EXPR --drop sample"),
        (["--drop", "txt"], "found 'txt'.*--drop-columns txt"),
        (["--on", "id", "--join", "scores.csv"], "--on belongs to a --join.*--join FILE --on id"),
        (["--join-columns", "a"], "--join FILE --join-columns a"),
        (["--join", "scores.csv", "--on", "a", "--on", "b"], "an option is given twice for one step; found --on"),
        (["--shuffle", "--seed", "1", "--seed", "2"], "one seed holds for all steps; found --seed 2 times"),
    ],
)
def test_an_option_of_no_step_says_what_to_type(options: list[str], message: str) -> None:
    done = _run("head", "in.parquet", *options)
    assert done.exit_code == 2
    assert re.search(message, " ".join(done.stderr.split())), done.stderr


@pytest.mark.parametrize(
    "options, said",
    [
        (["--where", "cls == 1", "--map", "f.py:more", "--limit", "2"], ""),
        (["--min-side", "2", "--max-side", "9"], ""),
        (["--limit", "2", "--rename", "txt=a", "--sample", "1"], "typed: --limit, --rename, --sample."),
        (["--limit", "2", "--rename", "txt=a", "--columns", "a"], "typed: --limit, --rename, --columns."),
        (["--limit", "2", "--drop-columns", "txt"], ""),
        (["--limit", "2", "--sort", "txt", "--sort", "cls", "--limit", "1"],
         "typed: --limit, --sort, --limit. Earlier versions: --sort, --limit, --limit."),
        (["--max-side", "9", "--min-side", "2", "--where", "cls == 1"],
         "typed: --max-side --min-side, --where. Earlier versions: --where, --max-side --min-side."),
        (["--where", "cls == 1", "--drop", "sample", "--max-side", "9"],
         "--drop is of --where alone. Earlier versions: of all conditions and image bounds."),
    ],
)  # fmt: skip
def test_one_line_says_where_the_order_is_new(options: list[str], said: str) -> None:
    lines = _run("info", "in.parquet", *options).stderr.splitlines()
    assert len(lines) == bool(said)
    assert said in "".join(lines)


def test_another_order_is_another_job() -> None:
    job = ["convert", "in.parquet", "job", "--to", "parquet", "--resume", "--limit", "4", "--shuffle"]
    assert _run(*job).exit_code == 0
    assert "is complete" in _run(*job).stdout
    other = _run(*job[:-3], "--shuffle", "--limit", "4")
    assert other.exit_code == 2
    assert "Another job wrote it" in other.stderr


def test_a_plan_has_the_order_of_its_job(place: Path) -> None:
    (place / "wide.py").write_text("def wide(sample):\n    return {'wide': sample['png'].width}\n")
    plan = ["plan", "in.tar", "--job", "--to", "parquet"]
    assert _run(*plan, "--map", "wide.py:wide", "--where", "wide > 10").exit_code == 0
    assert "column 'wide'" in _run(*plan, "--where", "wide > 10", "--map", "wide.py:wide").stderr
