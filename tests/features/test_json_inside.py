"""JSON text inside structs stands in a JSON document as what it says, and not as a text."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lading
from lading._core.features.types import Json, with_feature

_VALUES = [{"a": 5, "b": "x"}, {"a": "5", "b": None}, {"a": [1, {"y": None}], "b": "z"}, {"a": None, "b": "w"}]


def _table() -> pa.Table:
    """Return `_VALUES` in a struct, whose field `a` is JSON text, as `to_arrow` types JSON of several kinds."""
    inside = [with_feature(pa.field("a", pa.string()), Json()), pa.field("b", pa.string())]
    rows = [{**each, "a": None if each["a"] is None else json.dumps(each["a"])} for each in _VALUES]
    keys = [f"s{i}" for i in range(len(rows))]
    return pa.table({"__key__": keys, "json": pa.array(rows, pa.struct(inside))})


def _lines(path: Path) -> list[object]:
    return [json.loads(line)["json"] for file in sorted(path.glob("*.jsonl")) for line in file.read_text().splitlines()]


def _members(path: Path) -> list[object]:
    found: dict[str, object] = {}
    for file in sorted(path.glob("*.tar")):
        with tarfile.open(file) as tar:
            for member in tar.getmembers():
                key, _, ending = member.name.partition(".")
                opened = tar.extractfile(member)
                assert opened is not None
                if ending == "json":
                    found[key] = json.loads(opened.read())
    return [found.get(f"s{i}") for i in range(len(_VALUES))]


@pytest.mark.parametrize("kind, read", [("jsonl", _lines), ("webdataset", _members)])
def test_other_programs_read_values_and_not_their_texts(
    kind: str, read: Callable[[Path], list[object]], tmp_path: Path
) -> None:
    lading.open(_table()).write(tmp_path / "out", format=kind)
    assert read(tmp_path / "out") == _VALUES


@pytest.mark.parametrize("kind", ["jsonl", "webdataset", "mds", "parquet"])
def test_the_struct_comes_back(kind: str, tmp_path: Path) -> None:
    lading.open(_table()).write(tmp_path / "out", format=kind)
    again = lading.open(tmp_path / "out")
    assert again.schema.field("json").type == _table().schema.field("json").type
    assert [sample["json"] for sample in again] == _VALUES
    assert lading.digest(again) == lading.digest(_table())
