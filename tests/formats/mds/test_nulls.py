"""Nulls in MDS: marks beside columns. What the peer makes of them: `tests/interop`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.features.types import Array, Encoded, Feature, Image, Json, with_feature
from lading.errors import CorruptShard, Unrepresentable, UsageError

_ANY_ARRAY = b"\x08\x04\x02\x01\x02"
_VALUES: dict[str, tuple[pa.DataType, Feature | None, Any]] = {
    "int": (pa.int64(), None, 5),
    "uint8": (pa.uint8(), None, 255),
    "float16": (pa.float16(), None, np.float16(1.5)),
    "float64": (pa.float64(), None, -0.0),
    "text": (pa.string(), None, "é" * 20),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), None, "x"),
    "bytes": (pa.large_binary(), None, b"x" * 100),
    "views": (pa.binary_view(), None, b"y" * 100),
    "fixed": (pa.binary(4), None, b"abcd"),
    "json": (pa.string(), Json(), '{"a": 1}'),
    "picture": (pa.large_binary(), Image(), b"\xff\xd8\xff"),
    "png": (pa.large_binary(), Encoded("png"), b"\x89PNG"),
    "array": (pa.large_binary(), Array("int16", (2, 3)), bytes(range(12))),
    "any array": (pa.large_binary(), Encoded("ndarray"), _ANY_ARRAY),
    "any shape": (pa.large_binary(), Encoded("ndarray:int16"), b"\x04\x02\x01\x00\x02\x00"),
    "decimal": (pa.string(), Encoded("str_decimal"), "1.50"),
    "pictures": (pa.large_binary(), Encoded("list[jpeg]"), bytes(8)),
    "pickle": (pa.large_binary(), Encoded("pkl"), b"\x80\x04N."),
}


def _table(nulls: int) -> pa.Table:
    """Columns of every kind, each with rows of a value and as many nulls, in turn."""
    fields = [pa.field(name, kind) for name, (kind, _, _) in _VALUES.items()]
    features = [feature for _, feature, _ in _VALUES.values()]
    schema = pa.schema([f if x is None else with_feature(f, x) for f, x in zip(fields, features, strict=True)])
    columns = [pa.array([value, None] * nulls, kind) for kind, _, value in _VALUES.values()]
    return pa.table(columns, schema=schema)


def _write(out: Path, table: pa.Table, **options: Any) -> list[dict[str, Any]]:
    with lading.writer(out, format="mds", options=options) as writer:
        for batch in table.to_batches(max_chunksize=3):
            writer.write_batch(batch)
    return list(json.loads((out / "index.json").read_text())["shards"])


@pytest.mark.cases(1)
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("listed", [True, False])
def test_nulls_of_every_kind_come_back(compression: str | None, listed: bool, tmp_path: Path) -> None:
    table = _table(5)
    _write(tmp_path / "out", table, nulls="mask", compression=compression, size_limit="2kb")
    if not listed:
        (tmp_path / "out" / "_lading" / "manifest.json").unlink()
    with lading.open(tmp_path / "out").with_decode(False) as dataset:
        assert len(dataset.shards) > 1
        assert dataset[1] == dict.fromkeys(dataset.columns)
        assert dataset[2].keys() == _VALUES.keys()
        assert dataset.shards[0].decode_sample(dataset.shards[0].get_sample_data(1)) == dict.fromkeys(dataset.columns)
        taken = dataset.take([0, 1, 3, 2])
        assert sorted(taken.schema.names) == sorted(_VALUES)
        for name, (kind, _, value) in _VALUES.items():
            assert taken[name].is_valid().to_pylist() == [True, False, False, True]
            for batch in dataset.batches(lazy=True):
                assert batch.column(name).is_valid().to_pylist() == [True, False] * (batch.num_rows // 2)
            expected = pa.array([value], kind)[0].as_py()
            assert taken[name][0].as_py() == expected


def test_tensors_that_are_null_come_back(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    storage = pa.array([[9, 9, 9, 9], [1, 2, 3, 4], None, [5, 6, 7, 8]], pa.list_(pa.float32(), 4))
    table = pa.table({"t": pa.ExtensionArray.from_storage(kind, storage)})
    _write(tmp_path / "out", table.slice(1), nulls="mask")
    with lading.open(tmp_path / "out") as dataset:
        assert dataset[0]["t"].tolist() == [[1, 2], [3, 4]]
        assert dataset[1] == dict.fromkeys(dataset.columns)
        assert dataset[2]["t"].tolist() == [[5, 6], [7, 8]]


@pytest.mark.cases(3)
@pytest.mark.parametrize("value", [5, 1.5, "x", b"y"])
def test_nulls_that_stand_in_a_dictionary_come_back(value: Any, tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1], pa.int32()), pa.array([value, None]))
    for number, rows in enumerate([column, column.take(pa.array([0, 1]))]):  # the second has no null of its own
        _write(tmp_path / f"{number}", pa.table({"a": rows}), nulls="mask")
        with lading.open(tmp_path / f"{number}") as dataset:
            assert list(dataset) == [{"a": value}, *[{"a": None}] * (len(rows) - 1)]


def test_all_shards_have_the_columns_that_the_schema_lets_be_null(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("n", pa.int64())])
    table = pa.table([pa.array(["k"] * 100), pa.array([*range(99), None])], schema=schema)
    shards = _write(tmp_path / "out", table, nulls="mask", size_limit="500b")
    assert len(shards) > 2
    for shard in shards:
        assert shard["column_names"] == ["key", "lading.null:n", "n"]
        assert shard["column_encodings"] == ["str", "uint8", "int"]
        assert shard["raw_data"]["bytes"] <= 500


def test_only_the_columns_named_are_marked(tmp_path: Path) -> None:
    table = pa.table({"a": [1, None], "b": [1, 2], "c": ["x", None]})
    [shard] = _write(tmp_path / "out", table.select(["a", "b"]), nulls=["a"])
    assert shard["column_names"] == ["a", "b", "lading.null:a"]
    with pytest.raises(Unrepresentable, match="null") as caught:
        _write(tmp_path / "no", table, nulls=["a"])
    assert (caught.value.column, caught.value.row) == ("c", 1)


@pytest.mark.parametrize("nulls", ["drop", 3, ["a", 3], b"a", None])
def test_other_ways_with_nulls_are_refused(nulls: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown way to write nulls"):
        _write(tmp_path / "out", pa.table({"a": [1]}), nulls=nulls)


def test_what_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="missing column") as caught:
        _write(tmp_path / "out", pa.table({"a": [1]}), nulls=["b"])
    assert caught.value.column == "b"


def test_a_column_that_is_called_as_the_marks_of_another_is_refused(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "lading.null:a": pa.array([1], pa.uint8())})
    with pytest.raises(Unrepresentable) as caught:
        _write(tmp_path / "out", table)
    assert caught.value.column == "lading.null:a"


def test_marks_of_no_column_are_a_column(tmp_path: Path) -> None:
    _write(tmp_path / "out", pa.table({"a": [1], "lading.null:b": pa.array([1], pa.uint8())}))
    with lading.open(tmp_path / "out") as dataset:
        assert dataset[0] == {"a": 1, "lading.null:b": 1}


def test_a_mark_is_0_or_1(tmp_path: Path) -> None:
    _write(tmp_path / "out", pa.table({"a": pa.array([7, None, 9], pa.int8())}), nulls="mask")
    path = tmp_path / "out" / "shard.00000.mds"
    # Each sample is one byte of the number, and one of the mark; the last is the mark of the third.
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    with lading.open(tmp_path / "out") as dataset:
        with pytest.raises(CorruptShard) as caught:
            dataset.take([0, 2])
        assert (caught.value.column, caught.value.row, caught.value.file) == ("lading.null:a", 2, str(path))
        with pytest.raises(CorruptShard) as caught:
            dataset[2]
        assert caught.value.column == "lading.null:a"
        assert dataset[1] == dict.fromkeys(dataset.columns)


def test_a_null_pickle_may_be_read(tmp_path: Path) -> None:
    table = _table(1).select(["pickle"])
    _write(tmp_path / "out", table, nulls="mask")
    with lading.open(tmp_path / "out", options={"allow_pickle": True}) as dataset:
        assert list(dataset) == [{"pickle": None}, {"pickle": None}]
        assert dataset[1] == dict.fromkeys(dataset.columns)


@pytest.mark.soak
@pytest.mark.parametrize("compression", [None, "gz"])
def test_conversions_keep_nulls(compression: str | None, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "tar", format="webdataset") as writer:
        for i in range(40):
            sample = {"__key__": f"k{i}", "jpg": os.urandom(20_000), "json": {"a": i}, "txt": "hi", "cls": str(i)}
            writer.write({name: value for n, (name, value) in enumerate(sample.items()) if not n or (i + n) % 5})
    options = {"nulls": "mask", "compression": compression, "size_limit": "100kb"}
    lading.convert(tmp_path / "tar", tmp_path / "mds", format="mds", options=options, verify=True)
    for name in ("parquet", "webdataset"):
        lading.convert(tmp_path / "mds", tmp_path / name, format=name, verify=True)
        assert lading.diff(tmp_path / "tar", tmp_path / name).equal
    again = lading.convert(tmp_path / "parquet", tmp_path / "again", format="mds", options=options, verify=True)
    assert again.digest == lading.digest(tmp_path / "tar").ordered
    with pytest.raises(Unrepresentable, match="MDS cannot hold nulls"):
        lading.convert(tmp_path / "mds", tmp_path / "no", format="mds")


@pytest.mark.cases(3)
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("mmap", [False, True])
def test_samples_by_number_are_those_of_batches(tmp_path: Path, *, views: bool, mmap: bool) -> None:
    """Columns of every kind, marked nulls among them, out of one shard and out of several."""
    table = _table(5)
    _write(tmp_path / "one", table, nulls="mask")
    _write(tmp_path / "many", table, nulls="mask", size_limit="2kb")
    order = [7, 0, 9, 0, 2, 3]
    for source in ("one", "many"):
        with lading.open(tmp_path / source, options={"mmap": mmap}) as ds:
            rows = pa.Table.from_batches(ds.batches()).to_pylist()
            assert ds.take(order, views=views).to_pylist() == [rows[i] for i in order]
            for name in ds.columns:
                assert ds.take(order, [name], views=views)[name].to_pylist() == [rows[i][name] for i in order]
            assert ds.take([1], ["bytes"], views=True).schema.field("bytes").type == pa.binary_view()
