"""Names of types, labels and nulls: info, head, stats and the text of a dataset say the same."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading.features import ClassLabel, Sequence, with_feature

_KINDS = {
    "n": "int64", "label": "label", "caption": "text", "tags": "list<text>", "labels": "list<label>",
    "at": "struct<x: int32, y: double>", "raw": "bytes",
}  # fmt: skip


def _shown(*words: str) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    label = ClassLabel(("cat", "dog"))
    schema = pa.schema([
        ("n", pa.int64()), with_feature(pa.field("label", pa.int64()), label), ("caption", pa.string()),
        ("tags", pa.list_(pa.string())), with_feature(pa.field("labels", pa.list_(pa.int64())), Sequence(label)),
        ("at", pa.struct({"x": pa.int32(), "y": pa.float64()})), ("raw", pa.binary()),
    ])  # fmt: skip
    rows = [
        {"n": 1, "label": "dog", "caption": "a", "tags": ["x"], "labels": [0], "at": {"x": 1, "y": 2.0}, "raw": b""},
        {"n": None, "label": None, "caption": None, "tags": None, "labels": None, "at": None, "raw": None},
        {"n": 3, "label": "dog", "caption": "c", "tags": [], "labels": [], "at": {"x": 3, "y": 4.0}, "raw": b"3"},
    ]  # fmt: skip
    with lading.writer("pets.parquet", schema=schema) as writer:
        for row in rows:
            writer.write(row)
    return tmp_path


def test_a_type_has_one_name(pets: Path) -> None:
    told = json.loads(_shown("info", "pets.parquet", "--json"))
    assert {column["name"]: column["kind"] for column in told["columns"]} == _KINDS
    lines = [line.split(None, 1) for line in repr(lading.open("pets.parquet")).splitlines()[6:]]
    assert dict(line for line in lines) == _KINDS  # type: ignore[misc] # each has two parts
    shown = _shown("head", "pets.parquet", "-n", "1").splitlines()[1:-1]
    assert {line.split()[0]: line.split()[1] for line in shown} == {**_KINDS, "at": "struct"}


def test_labels_and_nulls_are_shown(pets: Path) -> None:
    shown = _shown("head", "pets.parquet", "-n", "2", "--columns", "label,caption").splitlines()
    assert [line.split() for line in shown if line.startswith("  label")] == [
        ["label", "label", "dog", "(1)"], ["label", "label", "null"],
    ]  # fmt: skip
    assert json.loads(_shown("head", "pets.parquet", "--at", "1", "--json").splitlines()[0]) == dict.fromkeys(_KINDS)
    found = lading.open("pets.parquet").stats().columns["label"]
    assert (found.kind, found.top, found.nulls, found.min, found.histogram) == ("label", (("dog", 2),), 1, None, None)
    assert len(lading.open("pets.parquet").where("label == 'dog'")) == 2


def test_members_that_a_sample_of_a_tar_lacks_are_no_nulls(pets: Path) -> None:
    with lading.writer("a.tar") as writer:
        writer.write({"__key__": "0", "txt": "x"})
        writer.write({"__key__": "1", "cls": 3})
    assert lading.info("a.tar").columns[1:] == [("txt", "reference", "text"), ("cls", "reference", "int64")]
    shown = [json.loads(line) for line in _shown("head", "a.tar", "--json").splitlines()]
    assert shown == [{"__key__": "0", "txt": "x"}, {"__key__": "1", "cls": 3}] == list(lading.open("a.tar"))
