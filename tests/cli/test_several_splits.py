"""Steps of the command line over a source of several splits: each split gets them by itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app

_ROWS = {"train": 20, "test": 7}
_WORDS = 4


@pytest.fixture(params=["files", "folders"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset `in` of two splits: told by the names of its files, or by a list of folders."""
    monkeypatch.chdir(tmp_path)
    tables = {
        name: pa.table({"id": range(rows), "word": [f"{name} {i % _WORDS}" for i in range(rows)]})
        for name, rows in _ROWS.items()
    }
    files = tmp_path / ("in" if request.param == "files" else "files")
    files.mkdir()
    for name, table in tables.items():
        pq.write_table(table, files / f"{name}-00000-of-00001.parquet")
    if request.param == "folders":
        lading.convert(files, tmp_path / "in", format="parquet")
    return tmp_path


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["convert", "in", *words, "--to", "parquet"])
    return done.exit_code, done.output


def ids(out: Path) -> dict[str, list[int]]:
    return {name: pq.read_table(out / name, partitioning=None)["id"].to_pylist() for name in _ROWS}


def shuffled(rows: int, seed: int) -> list[int]:
    order = np.argsort(np.random.PCG64(seed).random_raw(rows), kind="stable")
    return [int(number) for number in order]


@pytest.mark.parametrize(
    "words, expected",
    [
        (["--shuffle", "--seed", "3"], {name: shuffled(rows, 3) for name, rows in _ROWS.items()}),
        (["--sample", "5"], {name: sorted(shuffled(rows, 0)[:5]) for name, rows in _ROWS.items()}),
        (["--dedup", "word"], {name: [*range(_WORDS)] for name in _ROWS}),
        (["--sort", "id:desc"], {name: [*reversed(range(rows))] for name, rows in _ROWS.items()}),
        (["--where", "id > 2", "--rename", "word=text"], {name: [*range(3, rows)] for name, rows in _ROWS.items()}),
    ],
)
def test_each_split_gets_the_steps_by_itself(words: list[str], expected: dict[str, list[int]], place: Path) -> None:
    assert said("out", *words, "--verify")[0] == 0
    assert ids(place / "out") == expected


@pytest.mark.parametrize(
    "words, problem",
    [
        (["out", "--shuffle", "--limit", "3"], "a limit is of one split"),
        (["out", "--shuffle", "--ledger", "lost.jsonl"], "a ledger is of one split"),
        (["in/out", "--shuffle"], "the destination is inside the source"),
        (["out.parquet", "--shuffle"], "one file holds one split"),
        (["out", "--split-into", "a=0.5,b=0.5"], "the dataset has several splits"),
    ],
)
def test_what_is_of_one_split_is_refused(words: list[str], problem: str, place: Path) -> None:
    status, text = said(*words)
    assert status == 2
    assert problem in text
    assert not (place / words[0]).exists()


@pytest.mark.soak
def test_samples_are_written_with_a_ledger_and_split_then(place: Path) -> None:
    one = ["--split", "train"]
    status, text = said("parts", *one, "--split-into", "a=0.5,b=0.5", "--ledger", "lost.jsonl")
    assert (status, "Write all samples with the ledger first." in text) == (2, True)
    assert said("all", *one, "--where", "id < 10", "--ledger", "lost.jsonl")[0] == 0
    assert lading.convert(lading.open("all").split({"a": 0.5, "b": 0.5}), "parts", format="parquet").samples == 10
    assert sorted(path.name for path in (place / "parts").iterdir() if path.is_dir() and path.name != "_lading") == [
        "a",
        "b",
    ]


def test_info_lists_the_splits_and_what_shows_one(place: Path) -> None:
    done = CliRunner().invoke(app, ["info", "in"])
    lines = [line.split() for line in done.output.splitlines()]
    assert [line[:4] for line in lines if line[:1] and line[0] in _ROWS] == [
        [name, "parquet", "1", str(rows)] for name, rows in _ROWS.items()
    ]
    assert lines[-1] == ["One", "of", "them:", "lading", "info", "in", "--split", next(iter(_ROWS))]
    one = CliRunner().invoke(app, ["info", "in", "--split", next(iter(_ROWS)), "--json"])
    told = json.loads(CliRunner().invoke(app, ["info", "in", "--json"]).output)
    assert told["splits"][next(iter(_ROWS))] == json.loads(one.output)
    assert done.exit_code == 0


def test_head_has_keys_where_there_are_some(place: Path) -> None:
    with lading.writer(place / "tars", format="webdataset") as writer:
        writer.write({"__key__": "a", "txt": "x", "n": 1})
    assert "0  a ─" in CliRunner().invoke(app, ["head", "tars", "--columns", "txt"]).output
    assert "0 ─" in CliRunner().invoke(app, ["head", "in", "--split", "train", "-n", "1"]).output
