"""References: made, taken apart, carried by Arrow, and put together from several files tables."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.arrow.references import (
    FILES_KEY,
    FileEntry,
    Refs,
    RefType,
    concat,
    files_of,
    is_ref,
    make_refs,
    unpack,
    with_files,
    with_refs,
)
from lading.errors import DataError


def _refs(count: int = 3, **parts: Any) -> pa.ExtensionArray:
    return make_refs(np.arange(count) * 10, np.arange(count) + 5, **parts)


def _rows(column: pa.Array | pa.ChunkedArray) -> list[tuple[Any, ...] | None]:
    refs = unpack(column)
    parts = [refs.file, refs.offset, refs.length, refs.codec, refs.frame]
    members = refs.member.to_pylist()
    rows = [(*(int(part[i]) for part in parts), members[i]) for i in range(len(refs.valid))]
    return [row if there else None for row, there in zip(rows, refs.valid, strict=True)]


def test_parts_come_back() -> None:
    member = pa.array(["a", None, "c"])
    valid = np.array([True, False, True])
    column = _refs(file=2, member=member, codec=np.array([0, 1, 1], np.int8), frame=7, valid=valid)
    assert is_ref(column.type)
    assert _rows(column) == [(2, 0, 5, 0, 7, "a"), None, (2, 20, 7, 1, 7, "c")]
    assert column.null_count == 1


def test_what_is_left_out_is_nothing() -> None:
    assert _rows(_refs()) == [(0, 0, 5, 0, -1, None), (0, 10, 6, 0, -1, None), (0, 20, 7, 0, -1, None)]


def _types(refs: Refs) -> list[Any]:
    return [part.dtype for part in (refs.file, refs.offset, refs.length, refs.codec, refs.frame, refs.valid)]


@pytest.mark.parametrize(
    "column, rows",
    [
        (_refs().slice(1), [1, 2]),
        (_refs().slice(3), []),
        (_refs().take(pa.array([2, None, 0])), [2, None, 0]),
        (_refs().filter(pa.array([True, False, True])), [0, 2]),
        (pa.nulls(2, RefType()), [None, None]),
        (pa.chunked_array([], RefType()), []),
        (pa.chunked_array([_refs()]), [0, 1, 2]),
        (pa.chunked_array([_refs().slice(2), pa.nulls(1, RefType()), _refs()]), [2, None, 0, 1, 2]),
    ],
)
def test_columns_however_they_came_about(column: Any, rows: list[int | None]) -> None:
    assert _rows(column) == [None if row is None else (0, row * 10, row + 5, 0, -1, None) for row in rows]
    assert _types(unpack(column)) == [np.int32, np.int64, np.int64, np.int8, np.int32, np.bool_]


def test_references_cross_ipc_and_pickle() -> None:
    table = pa.table({"jpg": _refs(valid=np.array([True, True, False])), "txt": ["a", "b", "c"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    for copy in (with_refs(pa.ipc.open_file(sink.getvalue()).read_all()), pickle.loads(pickle.dumps(table))):
        assert copy.schema.equals(table.schema, check_metadata=True)
        assert is_ref(copy.schema.field("jpg").type)
        assert _rows(copy.column("jpg")) == _rows(table.column("jpg"))


def test_what_is_no_reference_is_not_made_one() -> None:
    name = {b"ARROW:extension:name": b"lading.ref"}
    table = pa.table([["a"]], schema=pa.schema([pa.field("jpg", pa.string(), metadata=name)]))
    assert with_refs(table).equals(table)


def _own_place(secret: str, column: pa.Array) -> pa.Table:
    """A table that says of itself that its second column lies in a file of its reader's."""
    schema = pa.schema([("id", pa.int64()), ("x", column.type)])
    return pa.table([[7], column], schema=with_files(schema, [FileEntry(secret)]))


@pytest.mark.cases(3)
@pytest.mark.parametrize("files", [None, b"{", b"[[1, 2, 3, 4]]", b"5"])
@pytest.mark.parametrize("kind", ["arrow", "arrows", "packed", "parquet"])
def test_references_of_strangers_lead_nowhere(kind: str, files: bytes | None, tmp_path: Path) -> None:
    secret, shard = tmp_path / "secret", f"{tmp_path}/a.{kind.replace('packed', 'arrow')}"
    secret.write_bytes(b"s" * 50)
    table = _own_place(str(secret), _refs(1))
    if files is not None:
        table = table.replace_schema_metadata({FILES_KEY: files})
    if kind == "parquet":
        pq.write_table(table, shard)
    else:
        make = pa.ipc.new_stream if kind == "arrows" else pa.ipc.new_file
        options = pa.ipc.IpcWriteOptions(compression="lz4" if kind == "packed" else None)
        with make(shard, table.schema, options=options) as writer:
            writer.write_table(table)
    row = {"id": 7, "x": {"file": 0, "member": None, "offset": 0, "length": 5, "codec": 0, "frame": -1}}
    with lading.open(shard) as dataset:
        assert FILES_KEY not in (dataset.schema.metadata or {})
        assert [dataset[0]] == [row]
        assert [each for batch in dataset.batches() for each in batch.to_pylist()] == [row]
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "plain.parquet")
    assert lading.digest(shard) == lading.digest(tmp_path / "plain.parquet")
    lading.convert(shard, tmp_path / "out", format="parquet")
    assert pq.read_table(tmp_path / "out/shard-000000.parquet").to_pylist() == [row]


@pytest.mark.parametrize("text", [b"{", b"5", b"[[1, 2, 3, 4]]", b'["abcd"]', b'[["a", "", "1", ""]]', b'[["a"]]'])
def test_a_files_table_that_is_none(text: bytes) -> None:
    with pytest.raises(DataError, match="table of files"):
        files_of(pa.schema([], metadata={FILES_KEY: text}))


def test_the_files_table_travels_with_a_schema() -> None:
    files = (FileEntry("a é.tar"), FileEntry("s3://b/c.tar.gz", "gzip", 1 << 40, '"etag"'))
    schema = with_files(pa.schema([("jpg", RefType())], metadata={b"mine": b"1"}), files)
    assert files_of(schema) == files
    assert schema.metadata is not None
    assert schema.metadata[b"mine"] == b"1"
    assert files_of(with_files(schema, [FileEntry("b")])) == (FileEntry("b"),)
    assert files_of(pa.schema([])) == ()


def _table(column: pa.Array, *files: str, **others: list[Any]) -> pa.Table:
    table = pa.table({"jpg": column, **others})
    return table.replace_schema_metadata(with_files(table.schema, [FileEntry(f) for f in files]).metadata)


def test_tables_are_put_together_with_one_files_table() -> None:
    one = _table(_refs(2, file=np.array([1, 0], np.int32)), "a", "b")
    two = _table(_refs(2, file=np.array([0, 1], np.int32)), "b", "c")
    joined = concat([one, two.to_batches()[0], one])
    names = [entry.url for entry in files_of(joined.schema)]
    assert names == ["a", "b", "c"]
    assert [names[i] for i in unpack(joined.column("jpg")).file] == ["b", "a", "b", "c", "b", "a"]


def test_columns_that_a_table_lacks_are_null() -> None:
    plain = pa.table({"txt": ["x"]})
    joined = concat([_table(_refs(1), "a", cls=[7]), plain, concat([plain, _table(_refs(1), "b")])])
    assert joined.column_names == ["jpg", "cls", "txt"]
    assert _rows(joined.column("jpg")) == [(0, 0, 5, 0, -1, None), None, None, (1, 0, 5, 0, -1, None)]
    assert joined.select(["cls", "txt"]).to_pylist() == [
        {"cls": 7, "txt": None},
        {"cls": None, "txt": "x"},
        {"cls": None, "txt": "x"},
        {"cls": None, "txt": None},
    ]


def test_metadata_come_from_the_first_table() -> None:
    one = pa.table({"a": [1]}).replace_schema_metadata({b"k": b"1"})
    two = pa.table({"a": [2]}).replace_schema_metadata({b"k": b"2"})
    assert concat([one, two]).schema.metadata == {b"k": b"1"}
    assert FILES_KEY not in concat([one, two]).schema.metadata
