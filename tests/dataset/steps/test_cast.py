"""Columns get other types, and fields of JSON objects and structs become columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading.errors import DataError, LadingError, SchemaMismatch, UsageError
from lading.features import ClassLabel, Json, with_feature


def rows() -> list[dict[str, Any]]:
    return [
        {
            "__key__": f"k{number}", "txt": f"{number}", "cls": number, "animal": ["cat", "dog"][number % 2],
            "json": {"lang": "en", "score": number if number < 3 else number / 2, "tags": [number]}
            | ({"late": True} if number > 4 else {}),
        }
        for number in range(6)
    ]  # fmt: skip


@pytest.fixture(params=["webdataset", "parquet", "mds", "jsonl"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with lading.writer(tmp_path / "in", format=request.param) as writer:
        for row in rows():
            writer.write(row)
    return tmp_path / "in"


def test_cast(folder: Path, tmp_path: Path) -> None:
    columns = {"cls": "float32", "animal": ClassLabel(["cat", "dog"]), "txt": "int16"}
    with lading.open(folder) as ds:
        cast = ds.cast(columns)
        expected = [(row["cls"], ["cat", "dog"].index(row["animal"]), int(row["txt"])) for row in rows()]
        assert [(row["cls"], row["animal"], row["txt"]) for row in cast] == expected
        assert [cast.schema.field(name).type for name in columns] == [pa.float32(), pa.int64(), pa.int16()]
        cast.write(tmp_path / "out", format="parquet", verify=True)
    found = pd.read_parquet(tmp_path / "out" / "shard-000000.parquet")
    assert [str(found[name].dtype) for name in columns] == ["float32", "int64", "int16"]


def test_text_becomes_bytes(folder: Path) -> None:
    with lading.open(folder) as ds:
        assert [row["txt"] for row in ds.cast({"txt": "binary"})] == [row["txt"].encode() for row in rows()]


@pytest.mark.parametrize("row, text", [(2, "{"), (5, ""), (7, '{"a": 1')])
def test_broken_json_is_found_in_any_part_of_a_batch(tmp_path: Path, row: int, text: str) -> None:
    large = f'"{"x" * (3 << 20)}"'  # a part has 4 MB
    texts = [None, "1", "[]", large, '"a"', None, large, "null"]
    texts[row] = text
    pq.write_table(pa.table({"meta": texts}), tmp_path / "a.parquet")
    with lading.open(tmp_path / "a.parquet") as ds, pytest.raises(DataError, match=rf"row {row} column 'meta': broken"):
        list(ds.cast({"meta": Json()}))


def test_text_becomes_json(tmp_path: Path) -> None:
    texts = ['{"a": [1, NaN]}', None, str(2**70), "[]", "null", '"\\ud800"']
    pq.write_table(pa.table({"meta": texts}), tmp_path / "a.parquet")
    expected = [None if text is None else repr(json.loads(text)) for text in texts]
    with lading.open(tmp_path / "a.parquet") as ds:
        found = [row["meta"] for row in ds.cast({"meta": Json()})]
    assert [None if text is None else repr(value) for text, value in zip(texts, found, strict=True)] == expected


@pytest.mark.parametrize(
    "columns, error, message",
    [
        ({"animal": "int64"}, SchemaMismatch, "column 'animal': a value does not fit"),
        ({"animal": ClassLabel(["cat"])}, SchemaMismatch, "sample 'k1' column 'animal': not a label.*found 'dog'"),
        ({"nope": "int64"}, UsageError, "no such column"),
        ({"txt": "integer"}, UsageError, "not the name of a type"),
    ],
)
def test_casts_that_lose(folder: Path, columns: dict[str, Any], error: type[LadingError], message: str) -> None:
    with lading.open(folder) as ds, pytest.raises(error, match=message):
        list(ds.cast(columns))


def test_flatten_json(folder: Path, tmp_path: Path) -> None:
    with lading.open(folder) as ds:
        flat = ds.flatten("json")
        expected = pd.json_normalize([{"json": row["json"]} for row in rows()])
        flat.write(tmp_path / "out", format="parquet", verify=True)
        with pytest.raises(UsageError, match="neither JSON objects nor structs"):
            ds.flatten("cls")
    with lading.open(tmp_path / "out") as out:
        for name in expected.columns:
            given = [value if isinstance(value, list) or not pd.isna(value) else None for value in expected[name]]
            assert [row.get(name) for row in out] == given
        assert out.schema.field("json.score").type == pa.float64()
        assert "json" not in out.columns


def test_flatten_json_of_lists_and_objects(tmp_path: Path) -> None:
    """As pandas flattens JSON; lists of one type have this type, whatever a batch of them holds."""
    documents: list[dict[str, Any]] = [
        {"tags": ["a"], "by": {"name": "x", "at": {"n": 1}}, "nums": [1, 2.5], "none": [], "mixed": [1, "a"]},
        {"tags": [], "by": {"name": "y", "at": {"n": 2}}, "nums": [3], "none": [], "mixed": "a"},
        {"tags": ["b", None], "by": {"name": "z", "at": {"n": 3}}, "nums": [], "none": [], "mixed": None},
        {"tags": ["d"], "by": {"name": "z", "at": {"n": 4}}, "nums": [None], "none": [], "mixed": [{"x": 1}],
         "ids": {f"id{i}": i for i in range(101)}},
    ]  # fmt: skip
    with lading.writer(tmp_path / "in.tar") as writer:
        for key, document in enumerate(documents):
            writer.write({"__key__": str(key), "json": document})
    flat = lading.open(tmp_path / "in.tar").flatten("json")
    flat.write(tmp_path / "out.parquet", verify=True)
    ids = documents[3].pop("ids")
    expected = pd.json_normalize([{"json": document} for document in documents]).to_dict("records")
    found = list(lading.open(tmp_path / "out.parquet").drop("__key__"))
    assert [row.pop("json.ids") for row in found] == [None, None, None, ids]
    assert found == expected
    types = {field.name: str(field.type) for field in flat.schema}
    assert [types[f"json.{name}"] for name in ("tags", "nums", "by.at.n", "none", "mixed")] == [
        "list<item: string>", "list<item: double>", "int64", "string", "string",
    ]  # fmt: skip


def test_flatten_structs_inside_structs(tmp_path: Path) -> None:
    inner = pa.array([{"x": {"y": 1, "l": [1]}, "z.w": 2}, {"x": None, "z.w": 3}, None])
    pq.write_table(pa.table({"a": inner}), tmp_path / "t.parquet")
    expected = pa.table({"a": inner}).flatten().flatten()
    assert lading.open(tmp_path / "t.parquet").flatten().take(3).equals(expected)


def test_flatten_structs(tmp_path: Path) -> None:
    table = pa.table({"a": [{"x": 1, "y": "one"}, None, {"x": None, "y": "two"}], "b": [1, 2, 3]})
    pq.write_table(table, tmp_path / "t.parquet")
    with lading.open(tmp_path / "t.parquet") as ds:
        assert ds.flatten().take([0, 1, 2]).select(["a.x", "a.y", "b"]).to_pylist() == [
            {name: row[name] for name in ("a.x", "a.y", "b")} for row in table.flatten().to_pylist()
        ]


@pytest.mark.parametrize("column", [pa.array([True, None]), pa.array([1.5, None]), pa.array([[1], None])])
def test_values_that_are_not_json_although_their_feature_says_so(column: pa.Array, tmp_path: Path) -> None:
    table = pa.table([column], schema=pa.schema([with_feature(pa.field("x", column.type), Json())]))
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatch, match="row 0 column 'x': a value does not fit"):
        list(lading.open(str(tmp_path / "a.parquet")).cast({"x": "timestamp[us]"}))
