"""Every verb with every step on a tar and on Parquet, against dicts and lists; verbs without steps say what to type."""

from __future__ import annotations

import base64
import json
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lading._core.cli.main import app
from lading._core.cli.options import CHOOSING
from step_cases import CASES, ROWS, SOURCES, plain_rows, write_sources

Row = dict[str, Any]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, and the files that options name."""
    folder = tmp_path_factory.mktemp("steps")
    write_sources(folder)
    return folder


def _run(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words), prog_name="lading")
    assert result.exit_code == 0, (words, result.output)
    return result.stdout


def _json(*words: str) -> Any:
    return json.loads(_run(*words, "--json"))


def _shown(line: str) -> Row:
    """A sample as `head --json --full` shows it, with bytes in place of their description."""
    return {
        name: base64.b64decode(value["base64"]) if isinstance(value, dict) and "base64" in value else value
        for name, value in json.loads(line).items()
    }


def _numbers(rows: list[Row], name: str) -> list[float]:
    return [row[name] for row in rows if row.get(name) is not None]


@pytest.mark.parametrize("name, source", [*product(CASES, SOURCES)])
def test_verbs_with_steps(name: str, source: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the other source `diff` sees the same."""
    monkeypatch.chdir(place)
    expected, options = CASES[name].plain(ROWS), CASES[name].options
    out = tmp_path / "out.parquet"
    done = _json("convert", source, str(out), *options)
    assert done["samples"] == len(expected)
    assert plain_rows(pq.read_table(out).to_pylist()) == expected
    if expected:
        head = _run("head", source, *options, "-n", "100", "--full", "--json").splitlines()
        assert plain_rows([_shown(line) for line in head]) == expected
    info = _json("info", source, *options)
    assert (info["samples"], info["rows"], info["shards"]) == (len(expected),) * 2 + (1,)
    assert {name for row in expected for name in row} <= {column["name"] for column in info["columns"]}
    stats = _json("stats", source, *options)
    assert stats["samples"] == len(expected)
    for number in ("cls", "score", "n"):
        if values := _numbers(expected, number):
            column = stats["columns"][number]
            assert (column["values"], column["min"], column["max"]) == (len(values), min(values), max(values))
    digest = _json("digest", source, *options)
    assert digest == _json("digest", str(out))
    difference = _json("diff", source, SOURCES[1 - SOURCES.index(source)], *options)
    assert difference["equal"]
    assert difference["counts"] == [len(expected)] * 2
    assert difference["digests"] == [digest["ordered"]] * 2
    if len({row["__key__"] for row in expected}) == len(expected):
        _exported(source, options, expected, tmp_path / "loose")


def _exported(source: str, options: list[str], expected: list[Row], folder: Path) -> None:
    assert _json("export", source, str(folder), *options)["samples"] == len(expected)
    text = "caption" if "txt=caption" in options else "txt"
    for name in ("png", text):
        names = {row["__key__"] for row in expected if name in row}
        values = {f"{row['__key__']}.{name}": row[name] for row in expected if name in row}
        found = {path.name: path.read_bytes() for path in folder.glob(f"*.{name}")}
        if name == "png" or found:
            assert found == {k: v if isinstance(v, bytes) else v.encode() for k, v in values.items()}, names


@pytest.mark.parametrize("source", SOURCES)
def test_splits(source: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    few = ["--where", "cls != 1", "--rename", "txt=caption"]
    _run("convert", source, str(tmp_path / "out"), "--to", "parquet", "--split-into", "a=3,b=rest", *few)
    parts = [plain_rows(pq.read_table(tmp_path / "out" / part).to_pylist()) for part in ("a", "b")]
    expected = [row for row in ROWS if row["cls"] != 1]
    assert [len(part) for part in parts] == [3, len(expected) - 3]
    both = sorted([row for part in parts for row in part], key=lambda row: row["__key__"])
    assert [row["__key__"] for row in both] == [row["__key__"] for row in expected]
    assert [row["caption"] for row in both] == [row["txt"] for row in expected]


def test_all_options_of_steps_are_here() -> None:
    used = {word for case in CASES.values() for word in case.options if word.startswith("--")}
    flags = {spelled.flag for *_, spelled in CHOOSING.options()}
    of_tables = {"--media-from", "--fetch", "--fetch-private"}  # tests/dataset/steps/test_media_steps.py
    assert flags - used <= {"--max-aspect-ratio", "--drop", "--on", "--join-columns", *of_tables}


def test_info_says_what_is_of_the_source(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    few = ["--where", "cls == 1", "--limit", "2"]
    size = (place / "in.tar").stat().st_size
    found = _json("info", "in.tar", *few)
    assert (found["samples"], found["size_bytes"]) == (2, size)
    assert found["steps"] == ["where('cls == 1')", "limit(2)"]
    lines = [" ".join(line.split()) for line in _run("info", "in.tar", *few).splitlines()]
    assert "samples 2 behind the steps" in lines
    assert any(line.startswith("size ") and line.endswith(" of the source, without the steps") for line in lines)
    assert _json("info", "in.tar")["steps"] == []
    assert "steps" not in _run("info", "in.tar")


_REFUSED = {
    "verify": "lading convert SRC DST {} && lading verify DST",
    "doctor": "lading convert SRC DST {} && lading doctor DST",
    "index": "lading convert SRC DST {} && lading index DST",
    "salvage": "lading salvage SRC WHOLE && lading convert WHOLE DST {}",
    "merge": "lading merge FOLDER && lading convert FOLDER DST {}",
}


@pytest.mark.parametrize("verb", _REFUSED)
@pytest.mark.parametrize("as_json", [False, True])
def test_verbs_of_whole_files_say_what_to_type(verb: str, as_json: bool) -> None:
    more = ["--json"] if as_json else []
    taken = {"--sample"} if verb in ("verify", "doctor") else set()
    for option in sorted({spelled.flag for *_, spelled in CHOOSING.options()} - taken):
        result = CliRunner().invoke(app, [verb, "in.tar", option, "1", *more], prog_name="lading")
        assert result.exit_code == 2
        said = " ".join(result.output.replace("│", " ").split())
        assert f"No such option: {option}" in said
        assert _REFUSED[verb].format(f"{option} …") in said.replace("\\u2026", "…")


def test_options_of_no_verb_are_refused_as_before() -> None:
    result = CliRunner().invoke(app, ["verify", "in.tar", "--wherever"], prog_name="lading")
    assert result.exit_code == 2
    assert "lading convert" not in result.output
