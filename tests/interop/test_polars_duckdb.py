"""polars and DuckDB read what lading makes of images, captions and labels, and lading reads what they write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import lading
from documents import picture
from lading.errors import CorruptShard, DataError
from peers import import_peer
from tars import tar_of

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

COUNT = 40
PICTURES = [picture(3 + i, 5) for i in range(COUNT)]
CAPTIONS = [f'caption é😀, "{i}"\nof two lines' if i % 3 else None for i in range(COUNT)]
KEYS = [f"s{i:03}" for i in range(COUNT)]
ABOUT: list[dict[str, Any]] = [
    {"tags": ["a", "é"] * (i % 3), "box": {"x": i, "y": None if i % 4 else i / 2}, "n": i} for i in range(COUNT)
]
ROWS: list[dict[str, Any]] = [
    {"__key__": KEYS[i], "cls": i % 5, "jpg": PICTURES[i], "txt": CAPTIONS[i], "json": ABOUT[i]} for i in range(COUNT)
]


@pytest.fixture(scope="module")
def polars() -> ModuleType:
    return import_peer("polars")


@pytest.fixture(scope="module")
def duckdb() -> ModuleType:
    return import_peer("duckdb")


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures with labels and JSON, and captions of two thirds of them."""
    path = tmp_path_factory.mktemp("tar") / "in.tar"
    members = []
    for row in ROWS:
        members += [(f"{row['__key__']}.cls", b"%d" % row["cls"]), (f"{row['__key__']}.jpg", row["jpg"])]
        if row["txt"] is not None:
            members.append((f"{row['__key__']}.txt", row["txt"].encode()))
        members.append((f"{row['__key__']}.json", json.dumps(row["json"]).encode()))
    path.write_bytes(tar_of(*members))
    return path


def _found(ds: lading.Dataset) -> list[dict[str, Any]]:
    assert len(ds) == COUNT
    assert ds[17] == list(ds)[17]
    return list(ds)


# What they read


def _with_json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "json": json.loads(row["json"])} for row in rows]


@pytest.mark.soak
def test_they_read_our_parquet(polars: ModuleType, duckdb: ModuleType, tar: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    lading.convert(tar, path)
    rows = [{**row, "jpg": {"bytes": row["jpg"], "path": None}} for row in ROWS]
    frame = polars.read_parquet(path)
    assert dict(frame.schema) == {
        "__key__": polars.String, "cls": polars.Int64, "txt": polars.String, "json": polars.String,
        "jpg": polars.Struct({"bytes": polars.Binary, "path": polars.String}),
    }  # fmt: skip
    assert _with_json(frame.to_dicts()) == rows
    found = duckdb.read_parquet(str(path))
    types = {name: str(kind) for name, kind in zip(found.columns, found.types, strict=True)}
    assert types == {
        "__key__": "VARCHAR", "cls": "BIGINT", "txt": "VARCHAR", "json": "VARCHAR",
        "jpg": "STRUCT(bytes BLOB, path VARCHAR)",
    }  # fmt: skip
    assert _with_json([dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]) == rows


def test_polars_reads_our_arrow_file(polars: ModuleType, tar: Path, tmp_path: Path) -> None:
    lading.convert(tar, tmp_path / "out.arrow")
    frame = polars.read_ipc(tmp_path / "out.arrow")
    assert frame.schema["jpg"] == polars.Binary
    assert (frame.schema["cls"], frame.schema["txt"]) == (polars.Int64, polars.String)
    assert _with_json(frame.to_dicts()) == ROWS


def test_they_read_our_json_lines(polars: ModuleType, duckdb: ModuleType, tar: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    lading.convert(lading.open(tar).drop("jpg"), path)
    rows = [{name: value for name, value in row.items() if name != "jpg"} for row in ROWS]
    frame = polars.read_ndjson(path)
    box = polars.Struct({"x": polars.Int64, "y": polars.Float64})
    inside = polars.Struct({"tags": polars.List(polars.String), "box": box, "n": polars.Int64})
    assert frame.schema["json"] == inside
    assert (frame.schema["cls"], frame.schema["txt"]) == (polars.Int64, polars.String)
    assert frame.to_dicts() == rows
    found = duckdb.read_json(str(path), format="newline_delimited")
    types = {name: str(kind) for name, kind in zip(found.columns, found.types, strict=True)}
    assert types["json"] == "STRUCT(tags VARCHAR[], box STRUCT(x BIGINT, y DOUBLE), n BIGINT)"
    assert (types["cls"], types["txt"]) == ("BIGINT", "VARCHAR")
    assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == rows


def test_they_read_our_csv(polars: ModuleType, duckdb: ModuleType, tar: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    lading.convert(lading.open(tar).drop("jpg", "json"), path)
    rows = [{name: row[name] for name in ("__key__", "cls", "txt")} for row in ROWS]
    frame = polars.read_csv(path)
    assert dict(frame.schema) == {"__key__": polars.String, "cls": polars.Int64, "txt": polars.String}
    assert frame.select("__key__", "cls", "txt").to_dicts() == rows
    found = duckdb.read_csv(str(path))
    types = {name: str(kind) for name, kind in zip(found.columns, found.types, strict=True)}
    assert types == {"__key__": "VARCHAR", "cls": "BIGINT", "txt": "VARCHAR"}
    assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == rows


@pytest.mark.parametrize("to", ["parquet", "arrow"])
def test_lists_and_structs_stay_lists_and_structs(
    polars: ModuleType, duckdb: ModuleType, tmp_path: Path, to: str
) -> None:
    nested = [None if i % 5 == 0 else {**ABOUT[i], "tags": ABOUT[i]["tags"] or None} for i in range(COUNT)]
    box_type = pa.struct([("x", pa.int32()), ("y", pa.float32())])
    inside = pa.struct([("tags", pa.list_(pa.string())), ("box", box_type), ("n", pa.int64())])
    with lading.writer(tmp_path / "out", format=to) as writer:
        writer.write_batch(pa.table({"id": KEYS, "about": pa.array(nested, inside)}))
    [path] = (tmp_path / "out").glob(f"*.{to}")
    rows = [{"id": key, "about": about} for key, about in zip(KEYS, nested, strict=True)]
    frame = polars.read_parquet(path) if to == "parquet" else polars.read_ipc(path)
    box = polars.Struct({"x": polars.Int32, "y": polars.Float32})
    assert frame.schema["about"] == polars.Struct({"tags": polars.List(polars.String), "box": box, "n": polars.Int64})
    assert frame.to_dicts() == rows
    if to == "parquet":
        found = duckdb.read_parquet(str(path))
        assert str(found.types[1]) == "STRUCT(tags VARCHAR[], box STRUCT(x INTEGER, y FLOAT), n BIGINT)"
        assert [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()] == rows


# What lading reads


def _write_polars(frame: Any, path: Path) -> None:
    writers: dict[str, Callable[[Path], object]] = {
        "parquet": frame.write_parquet, "arrow": frame.write_ipc, "jsonl": frame.write_ndjson, "csv": frame.write_csv,
    }  # fmt: skip
    writers[path.suffix[1:]](path)


NESTED = [
    {"id": KEYS[i], "n": i, "score": i / 4, "txt": CAPTIONS[i], "about": ABOUT[i] if i % 7 else None}
    for i in range(COUNT)
]


@pytest.mark.parametrize("name", ["theirs.parquet", "theirs.arrow", "theirs.jsonl"])
def test_we_read_what_polars_writes(polars: ModuleType, tmp_path: Path, name: str) -> None:
    _write_polars(polars.DataFrame(NESTED), tmp_path / name)
    with lading.open(tmp_path / name) as ds:
        assert _found(ds) == NESTED
        assert len(ds.where("about.n > 20 and n < 30")) == len([i for i in range(21, 30) if i % 7])


@pytest.mark.parametrize("name", ["theirs.parquet", "theirs.arrow"])
def test_we_read_bytes_and_categories_that_polars_writes(polars: ModuleType, tmp_path: Path, name: str) -> None:
    words = ["cat", None, "dog", "cat"] * (COUNT // 4)
    frame = polars.DataFrame({"id": KEYS, "image": PICTURES, "kind": polars.Series(words, dtype=polars.Categorical)})
    _write_polars(frame, tmp_path / name)
    rows = [{"id": k, "image": p, "kind": w} for k, p, w in zip(KEYS, PICTURES, words, strict=True)]
    with lading.open(tmp_path / name) as ds:
        assert _found(ds) == rows
        assert [row["id"] for row in ds.where("kind == 'dog'")] == KEYS[2::4]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_we_read_compressed_arrow_files_of_polars(polars: ModuleType, tmp_path: Path, compression: str) -> None:
    polars.DataFrame(NESTED).write_ipc(tmp_path / "theirs.arrow", compression=compression)
    polars.DataFrame(NESTED).write_ipc_stream(tmp_path / "stream.arrow", compression=compression)
    for name in ("theirs.arrow", "stream.arrow"):
        with lading.open(tmp_path / name) as ds:
            assert _found(ds) == NESTED


@pytest.mark.parametrize("name", ["theirs.parquet", "theirs.json"])
def test_we_read_what_duckdb_writes(duckdb: ModuleType, tmp_path: Path, name: str) -> None:
    rows = pa.Table.from_pylist(NESTED)  # noqa: F841 - DuckDB finds it by its name
    duckdb.connect().execute(f"COPY (SELECT * FROM rows ORDER BY n) TO '{tmp_path / name}'")
    options = {} if name.endswith("parquet") else {"format": "jsonl"}
    with lading.open(tmp_path / name, **options) as ds:
        assert _found(ds) == NESTED


def test_we_read_bytes_that_duckdb_writes(duckdb: ModuleType, tmp_path: Path) -> None:
    rows = pa.table({"id": KEYS, "image": PICTURES})  # noqa: F841 - DuckDB finds it by its name
    duckdb.connect().execute(f"COPY rows TO '{tmp_path / 'theirs.parquet'}' (ROW_GROUP_SIZE 2048)")
    with lading.open(tmp_path / "theirs.parquet") as ds:
        assert _found(ds) == [{"id": key, "image": data} for key, data in zip(KEYS, PICTURES, strict=True)]


def test_we_read_the_csv_of_both(polars: ModuleType, duckdb: ModuleType, tmp_path: Path) -> None:
    rows = [{name: row[name] for name in ("id", "n", "score", "txt")} for row in NESTED]
    shown = pa.Table.from_pylist(rows)  # noqa: F841 - DuckDB finds it by its name
    _write_polars(polars.DataFrame(rows), tmp_path / "polars.csv")
    duckdb.connect().execute(f"COPY (SELECT * FROM shown ORDER BY n) TO '{tmp_path / 'duckdb.csv'}'")
    for name in ("polars.csv", "duckdb.csv"):
        with lading.open(tmp_path / name, options={"types": {"n": "int64", "score": "float64"}}) as ds:
            assert _found(ds) == rows


@pytest.mark.parametrize("name", ["theirs.parquet", "theirs.arrow"])
def test_a_type_of_polars_that_pyarrow_lacks_is_not_called_damage(
    polars: ModuleType, tmp_path: Path, name: str
) -> None:
    frame = polars.DataFrame({"n": polars.Series([1, 2], dtype=polars.Int128), "t": ["a", "b"]})
    _write_polars(frame, tmp_path / name)
    with pytest.raises(DataError, match="the schema has a type that is not supported") as caught:
        lading.open(tmp_path / name).schema  # noqa: B018 - it is read now
    assert not isinstance(caught.value, CorruptShard)
