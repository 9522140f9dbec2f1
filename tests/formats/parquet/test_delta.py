"""Delta Lake tables with logs written by hand, after PROTOCOL.md; `tests/interop` has tables that deltalake writes."""

from __future__ import annotations

import builtins
import json
import re
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.registry import get_format
from lading._core.storage.base import write_file
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import (
    BadReference,
    DataError,
    LadingError,
    MissingExtra,
    SchemaMismatch,
    SidecarMismatch,
    SourceNotFound,
    UsageError,
)

# PROTOCOL.md, Deletion Vectors, JSON Example 3 (in Spark's native form) and 1. The same rows in the portable form:
# tests of delta-kernel-rs.
INLINE = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
PORTABLE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
DELETED = [3, 4, 7, 11, 18, 29]
PLACE, PLACE_FILE = "ab^-aqEH.-t@S}K{vb[*k^", "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"

Action = dict[str, Any]


def column(name: str, kind: Any = "long", **mapping: Any) -> Action:
    metadata = {f"delta.columnMapping.{key}": value for key, value in mapping.items()}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def begin(*columns: Action, features: tuple[str, ...] = (), mode: str = "", by: tuple[str, ...] = ()) -> list[Action]:
    """The actions of a new table."""
    protocol: Action = {"minReaderVersion": 1, "minWriterVersion": 2}
    if features:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [*features],
                    "writerFeatures": [*features]}  # fmt: skip
    schema = json.dumps({"type": "struct", "fields": [*columns]})
    settings = {"delta.columnMapping.mode": mode} if mode else {}
    return [{"protocol": protocol}, {"metaData": {"id": "1", "format": {"provider": "parquet", "options": {}},
             "schemaString": schema, "partitionColumns": [*by], "configuration": settings}}]  # fmt: skip


def add(path: str, **more: Any) -> Action:
    return {"add": {"path": path, "partitionValues": {}, "size": 0, "modificationTime": 0, "dataChange": True, **more}}


def commit(root: Path, version: int, *actions: Action) -> None:
    log = root / "_delta_log" / f"{version:020}.json"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def put(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=10)


def rows(source: Any, **opening: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in lading.open(source, **opening).with_decode(False)]


def vector(**told: Any) -> Action:
    return {"storageType": "i", "pathOrInlineDv": INLINE, "sizeInBytes": 40, "cardinality": 6, **told}


@pytest.fixture
def simple(tmp_path: Path) -> Path:
    """Version 0 has rows 1 to 3, version 1 has 1 and 3 in another file."""
    put(tmp_path / "part-0.parquet", id=[1, 2, 3])
    put(tmp_path / "part-1.parquet", id=[1, 3])
    commit(tmp_path, 0, *begin(column("id")), add("part-0.parquet"))
    commit(tmp_path, 1, {"remove": {"path": "part-0.parquet", "dataChange": True}}, add("part-1.parquet"))
    return tmp_path


def test_the_latest_version_is_read(simple: Path) -> None:
    assert rows(simple) == [{"id": 1}, {"id": 3}]
    assert rows(simple, format="parquet") == [{"id": 1}, {"id": 3}]
    assert lading.open(simple).counts == {"files of other versions of the table, left out": 1}
    assert len(rows(simple / "**/*.parquet")) == 5  # plain files, by their names


def test_an_older_version_is_named_by_its_commit(simple: Path) -> None:
    assert rows(simple / "_delta_log/00000000000000000000.json") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_table_in_a_store(simple: Path) -> None:
    far = MemoryStore()
    for path in simple.rglob("*.*"):
        write_file(far, f"memory://bucket/t/{path.relative_to(simple)}", [path.read_bytes()])
    assert rows("memory://bucket/t", stores=Stores({"memory://": far})) == [{"id": 1}, {"id": 3}]


@pytest.mark.parametrize("inline, size", [(INLINE, 40), (PORTABLE, 44)])
def test_rows_that_are_deleted_are_left_out(tmp_path: Path, inline: str, size: int) -> None:
    put(tmp_path / "a.parquet", id=list(range(40)))
    start = begin(column("id"), features=("deletionVectors",))
    told = vector(pathOrInlineDv=inline, sizeInBytes=size)
    commit(tmp_path, 0, *start, add("a.parquet", deletionVector=told, stats='{"numRecords": 40}'))
    left = [number for number in range(40) if number not in DELETED]
    assert [row["id"] for row in rows(tmp_path)] == left
    ds = lading.open(tmp_path)
    assert len(ds) == 34
    assert [ds[number]["id"] for number in (0, 3, 33, -1)] == [0, 5, 39, 39]
    assert [row["id"] for row in ds.where("id < 8")] == [0, 1, 2, 5, 6]
    assert [row["id"] for row in ds.shuffle(seed=1)] != left
    assert sorted(row["id"] for row in ds.shuffle(seed=1)) == left
    found = lading.verify(tmp_path, deep=True, progress=False)
    assert found.ok


def test_a_vector_in_a_file(tmp_path: Path) -> None:
    pyroaring = pytest.importorskip("pyroaring")
    data = (1681511377).to_bytes(4, "little") + pyroaring.BitMap64(DELETED).serialize()
    file = tmp_path / PLACE_FILE
    file.parent.mkdir()
    parts = [b"\x01\x00\x00", len(data).to_bytes(4, "big"), data, zlib.crc32(data).to_bytes(4, "big")]
    file.write_bytes(b"".join(parts))
    put(tmp_path / "a.parquet", id=list(range(40)))
    start = begin(column("id"), features=("deletionVectors",))
    told = vector(storageType="u", pathOrInlineDv=PLACE, offset=3, sizeInBytes=len(data))
    for place in (told, {**told, "storageType": "p", "pathOrInlineDv": f"file://{file}"}):
        commit(tmp_path, 0, *start, add("a.parquet", deletionVector=place))
        assert len(rows(tmp_path)) == 34
    for at in (3, 10, len(data) + 8):
        damaged = bytearray(b"".join(parts))
        damaged[at] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(DataError) as told_error:
            rows(tmp_path)
        assert told_error.value.file == str(file)


@pytest.mark.parametrize(
    "told",
    [vector(cardinality=5), vector(pathOrInlineDv=INLINE[:-5]), vector(pathOrInlineDv="~" * 50),
     vector(storageType="x"), vector(sizeInBytes=-1), vector(storageType="u", pathOrInlineDv="short"), 7],
)  # fmt: skip
def test_damaged_vectors_name_a_file(tmp_path: Path, told: Any) -> None:
    put(tmp_path / "a.parquet", id=list(range(40)))
    commit(tmp_path, 0, *begin(column("id"), features=("deletionVectors",)), add("a.parquet", deletionVector=told))
    with pytest.raises(DataError) as error:
        rows(tmp_path)
    assert str(tmp_path) in str(error.value.file)


def test_without_the_extra_an_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.parquet", id=list(range(40)))
    start = begin(column("id"), features=("deletionVectors",))
    commit(tmp_path, 0, *start, add("a.parquet", deletionVector=vector()))
    found = builtins.__import__

    def imported(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pyroaring":
            raise ImportError(name)
        return found(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", imported)
    with pytest.raises(MissingExtra, match=r"deletion vectors.*lading\[delta\]"):
        lading.open(tmp_path)


def with_ids(table: pa.Table, ids: dict[str, int]) -> pa.Table:
    fields = [field.with_metadata({"PARQUET:field_id": str(ids[field.name])}) for field in table.schema]
    return table.cast(pa.schema(fields))


def test_columns_by_their_names_in_the_files(tmp_path: Path) -> None:
    inner = {
        "type": "struct",
        "fields": [column("x", id=4, physicalName="col-x"), column("new", id=5, physicalName="n")],
    }
    columns = [column("b", id=1, physicalName="a"), column("a", id=2, physicalName="b"),
               column("s", {"type": "array", "elementType": inner}, id=3, physicalName="col-s")]  # fmt: skip
    put(tmp_path / "0.parquet", a=[1], b=[2], dropped=[3], **{"col-s": [[{"col-x": 5}]]})
    commit(tmp_path, 0, *begin(*columns, features=("columnMapping",), mode="name"), add("0.parquet"))
    assert rows(tmp_path) == [{"b": 1, "a": 2, "s": [{"x": 5, "new": None}]}]
    assert [dict(row) for row in lading.open(tmp_path).where("a == 2").select("a")] == [{"a": 2}]


def test_columns_by_their_ids(tmp_path: Path) -> None:
    columns = [column("x", id=7, physicalName="p"), column("y", id=8, physicalName="q"),
               column("part", id=9, physicalName="r")]  # fmt: skip
    pq.write_table(with_ids(pa.table({"q": [1], "z": [2]}), {"q": 7, "z": 8}), tmp_path / "0.parquet")
    start = begin(*columns, features=("columnMapping",), mode="id", by=("part",))
    commit(tmp_path, 0, *start, add("0.parquet", partitionValues={"r": "5"}))
    assert rows(tmp_path) == [{"x": 1, "y": 2, "part": 5}]
    put(tmp_path / "0.parquet", p=[1], q=[2])
    with pytest.raises(DataError, match="no ids"):
        rows(tmp_path)


@pytest.mark.parametrize("value, kind, place", [
    (2**40, "integer", "c"),
    ({"x": 2**40}, {"type": "struct", "fields": [column("x", "integer")]}, "c.x"),
    ([2**40], {"type": "array", "elementType": "integer", "containsNull": True}, "c"),
])  # fmt: skip
def test_a_value_that_does_not_fit_names_its_column(tmp_path: Path, value: Any, kind: Any, place: str) -> None:
    put(tmp_path / "0.parquet", c=[value])
    commit(tmp_path, 0, *begin(column("c", kind)), add("0.parquet"))
    with pytest.raises(SchemaMismatch, match="expected int32") as caught:
        rows(tmp_path)
    assert caught.value.column == place


def test_values_in_files_get_the_types_of_the_table(tmp_path: Path) -> None:
    put(tmp_path / "0.parquet", t=pa.array([1], pa.timestamp("us")), n=pa.array([1], pa.int32()))
    put(tmp_path / "1.parquet", t=pa.array([2], pa.timestamp("us", "UTC")), _change_type=["insert"])
    commit(tmp_path, 0, *begin(column("t", "timestamp"), column("n"), column("late", "string")),
           add("0.parquet"), add("1.parquet"))  # fmt: skip
    found = lading.open(tmp_path)
    assert found.schema == pa.schema({"t": pa.timestamp("us", "UTC"), "n": pa.int64(), "late": pa.string()})
    assert [(row["n"], row["late"]) for row in found] == [(1, None), (None, None)]


# PROTOCOL.md, Partition Value Serialization.
@pytest.mark.parametrize(
    "kind, text, value",
    [("string", "a b/%é", "a b/%é"), ("string", "", None), ("long", None, None), ("short", "-3", -3),
     ("double", "1.5E3", 1500.0), ("boolean", "false", False), ("date", "1970-01-02", "1970-01-02"),
     ("timestamp", "1970-01-01 00:00:00.123456", "1970-01-01 00:00:00.123456+00:00"),
     ("timestamp", "1970-01-01T00:00:00.123456Z", "1970-01-01 00:00:00.123456+00:00"),
     ("timestamp_ntz", "1970-01-01 00:00:00", "1970-01-01 00:00:00"), ("decimal(5,2)", "1.50", "1.50")],
)  # fmt: skip
def test_partition_values_are_those_of_the_log(tmp_path: Path, kind: str, text: str | None, value: Any) -> None:
    put(tmp_path / "p=wrong" / "0.parquet", id=[1, 2])
    start = begin(column("p", kind), column("id"), features=("timestampNtz",), by=("p",))
    commit(tmp_path, 0, *start, add("p=wrong/0.parquet", partitionValues={"p": text}))
    [one, _] = rows(tmp_path)
    assert (str(one["p"]) if isinstance(value, str) else one["p"]) == value
    assert len(list(lading.open(tmp_path).where("id == 2").select("p"))) == 1


def test_names_of_files_are_decoded_once(tmp_path: Path) -> None:
    put(tmp_path / "p=a%20b c" / "0.parquet", id=[1])
    commit(tmp_path, 0, *begin(column("id")), add("p=a%2520b%20c/0.parquet"))
    assert rows(tmp_path) == [{"id": 1}]


@pytest.mark.parametrize("path", ["../o/0.parquet", "a/%2e%2e/%2E./0.parquet", "/etc/0.parquet", "s3://b/0.parquet",
                                  "file:/etc/passwd", "a//0.parquet"])  # fmt: skip
def test_files_outside_of_the_table_are_refused(tmp_path: Path, path: str) -> None:
    commit(tmp_path, 0, *begin(column("id")), add(path))
    with pytest.raises(BadReference, match="outside") as error:
        lading.open(tmp_path)
    assert error.value.file == str(tmp_path / "_delta_log" / f"{0:020}.json")


def test_an_absolute_path_into_the_table(tmp_path: Path) -> None:
    put(tmp_path / "0.parquet", id=[1])
    for path in (f"{tmp_path}/0.parquet", f"file://{tmp_path}/0.parquet", f"file:{tmp_path}/0.parquet"):
        commit(tmp_path, 0, *begin(column("id")), add(path))
        assert rows(tmp_path) == [{"id": 1}]


@pytest.mark.parametrize("feature", ["typeWidening", "variantType", "catalogManaged"])
def test_other_features_are_named(tmp_path: Path, feature: str) -> None:
    put(tmp_path / "0.parquet", id=[1])
    commit(tmp_path, 0, *begin(column("id"), features=("deletionVectors", feature)), add("0.parquet"))
    with pytest.raises(UsageError, match=f"found {feature}"):
        lading.open(tmp_path)


def checkpoint(path: Path, *actions: Action) -> None:
    kinds = ("protocol", "metaData", "add", "sidecar")
    path.parent.mkdir(parents=True, exist_ok=True)
    table = [{kind: action.get(kind) for kind in kinds} for action in actions]
    strings = pa.map_(pa.string(), pa.string())
    stats = pa.struct({"numRecords": pa.int64(), "minValues": pa.struct({"id": pa.int64()})})
    types: dict[str, pa.DataType] = {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct({"schemaString": pa.string(), "configuration": strings,
                               "partitionColumns": pa.list_(pa.string())}),
        "add": pa.struct({"path": pa.string(), "partitionValues": strings, "size": pa.int64(), "stats_parsed": stats}),
        "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64()}),
    }  # fmt: skip
    pq.write_table(pa.Table.from_pylist(table, pa.schema(list(types.items()))), path)


@pytest.mark.parametrize("kind", ["classic", "parts", "sidecar", "json"])
def test_checkpoints_of_every_kind(tmp_path: Path, kind: str) -> None:
    log, unique = tmp_path / "_delta_log", "80a083e8-7026-4e79-81be-64bd76c43a11"
    for number in range(3):
        put(tmp_path / f"{number}.parquet", id=[number])
    start = begin(column("id"))
    adds = [add(f"{number}.parquet", stats_parsed={"numRecords": 1}) for number in (0, 1)]
    name = log / f"{5:020}.checkpoint"
    if kind == "classic":
        checkpoint(Path(f"{name}.parquet"), *start, *adds)
        put(Path(f"{log}/{6:020}.checkpoint.0000000001.0000000002.parquet"), x=[1])  # a part is missing
    elif kind == "parts":
        checkpoint(Path(f"{name}.0000000001.0000000002.parquet"), *start, adds[0])
        checkpoint(Path(f"{name}.0000000002.0000000002.parquet"), adds[1])
    else:
        checkpoint(log / "_sidecars" / "one.parquet", *adds)
        named: list[Action] = [*start, {"sidecar": {"path": "one.parquet", "sizeInBytes": 1}}]
        if kind == "json":
            Path(f"{name}.{unique}.json").write_text("\n".join(map(json.dumps, named)))
        else:
            checkpoint(Path(f"{name}.{unique}.parquet"), *named)
    commit(tmp_path, 6, {"remove": {"path": "0.parquet"}}, add("2.parquet"))
    assert rows(tmp_path) == [{"id": 1}, {"id": 2}]
    (log / f"{8:020}.json").write_text("")
    with pytest.raises(DataError, match=r"lacks a commit.*00007\.json"):
        lading.open(tmp_path)


def test_damaged_logs_name_their_file(tmp_path: Path) -> None:
    put(tmp_path / "0.parquet", id=[1])
    file = tmp_path / "_delta_log" / f"{0:020}.json"
    start, own = begin(column("id")), add("0.parquet")
    bare: list[list[Any]] = [
        [*start, "{"], [*start, [1]], start[1:], start[:1], [*start, {"add": 5}], [*start, {"add": {"path": 5}}],
        [*start, add("0.parquet", partitionValues=[1])], [*start, add("%ff.parquet")], [*start, own, {"remove": {}}],
        [start[0], {"metaData": {"schemaString": "[]"}}],
        [start[0], {"metaData": {"schemaString": '{"fields": [1]}'}}],
        begin(column("id"), by=("p",)), begin(column("id"), mode="name", features=("columnMapping",)),
        [{"protocol": {"minReaderVersion": "x"}}], begin(column("id", "decimal(50,2)")),
        begin(column("id", {"type": 1})),
    ]  # fmt: skip
    for actions in bare:
        commit(tmp_path, 0)
        file.write_text("".join(a if isinstance(a, str) else json.dumps(a) + "\n" for a in actions))
        with pytest.raises(LadingError) as error:
            rows(tmp_path)
        assert error.value.file == str(file), actions


def test_a_table_without_files_has_columns(tmp_path: Path) -> None:
    commit(tmp_path, 0, *begin(column("p", "string"), column("id"), by=("p",)))
    found = lading.open(tmp_path)
    assert (len(found), found.columns) == (0, ["id", "p"])


def test_what_does_not_go_with_a_table(simple: Path) -> None:
    with pytest.raises(SourceNotFound, match="split"):
        lading.open(simple, split="train")
    with pytest.raises(UsageError, match="config"):
        lading.open(simple, config="en")
    with pytest.raises(UsageError, match=r"ds\.where"):
        rows(simple, options={"row_groups": [0]})
    with pytest.raises(UsageError, match="Delta Lake"):
        lading.open(simple, format="csv")
    for log in ("", "{"):  # damaged or not: plain files hold deleted rows
        (simple / "_delta_log" / f"{1:020}.json").write_text(log)
        with pytest.raises(UsageError, match="Delta"):
            lading.salvage(simple, simple.parent / "saved", progress=False)


def test_a_missing_file_is_an_error(simple: Path) -> None:
    (simple / "part-1.parquet").unlink()
    with pytest.raises(LadingError, match=r"part-1\.parquet.*lists it"):
        rows(simple)


def test_a_file_that_differs_from_the_log_names_the_files_to_salvage(simple: Path, tmp_path_factory: Any) -> None:
    commit(simple, 2, add("part-0.parquet", stats='{"numRecords": 5}'))
    with pytest.raises(SidecarMismatch, match="expected 5, found 3") as caught:
        rows(simple)
    assert caught.value.advice == f"'lading salvage '{simple}/**/*.parquet' DST' saves the intact samples."
    assert lading.verify(simple).salvage == f"'{simple}/**/*.parquet'"
    assert lading.salvage(f"{simple}/**/*.parquet", tmp_path_factory.mktemp("saved") / "new").samples == 5
    with pytest.raises(UsageError, match=re.escape(f"Name its files: '{simple}/**/*.parquet'")):
        lading.salvage(simple, simple.parent / "new")


def test_all_columns_of_a_file_may_be_missing(tmp_path: Path) -> None:
    put(tmp_path / "0.parquet", old=list(range(30)))
    start = begin(column("new"), features=("deletionVectors",))
    commit(tmp_path, 0, *start, add("0.parquet", deletionVector=vector()))
    assert rows(tmp_path) == [{"new": None}] * 24


def reader_of(root: Path) -> Any:
    fmt = get_format("parquet")
    [shard] = fmt.index.shards(LocalStore(), f"{root}/_delta_log/{0:020}.json", b"") or []
    return fmt.open(ShardFile(LocalStore(), shard.path, entry=shard.entry), fmt.read_options({}))


def test_rows_by_number_and_in_order_agree(tmp_path: Path) -> None:
    put(tmp_path / "0.parquet", id=list(range(40)))
    start = begin(column("id"), features=("deletionVectors",))
    commit(tmp_path, 0, *start, add("0.parquet", deletionVector=vector()))
    reader = reader_of(tmp_path)
    every = [row for batch in reader.batches(Scan(max_rows=7)) for row in batch.column("id").to_pylist()]
    for number in range(34):
        assert reader.read(np.array([number]))["id"].to_pylist() == [every[number]]
    assert all(a < b for a, b in pairwise(every))
    with pytest.raises(UsageError, match="no such row"):
        reader.read(np.array([34]))
    reader.close()


def test_jobs_read_tables(simple: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out") / "copy"
    lading.convert(simple, out, format="jsonl", progress=False)
    assert [row["id"] for row in lading.open(out)] == [1, 3]
    both = lading.concat([lading.open(simple), lading.open(simple)])
    assert [row["id"] for row in both] == [1, 3, 1, 3]
