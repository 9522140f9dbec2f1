"""Arrays, lists of numbers and numbers in the encodings of MDS. The peer's bytes: `tests/interop`."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.arrow.older import numpy_type
from lading._core.features.types import Array, feature_of, with_feature
from lading._core.formats.mds.format import FORMAT
from lading._core.storage.memory import MemoryStore
from lading.errors import Unrepresentable, UsageError

_VALUES = [np.arange(6, dtype="f4").reshape(2, 3), np.full((300, 1), 7, "f4"), np.arange(4, dtype="f4").reshape(2, 2).T]


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npy_of_version_2(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, (2, 0))
    return file.getvalue()


def _encodings(folder: Path) -> dict[str, str]:
    [shard] = json.loads((folder / "index.json").read_text())["shards"]
    return dict(zip(shard["column_names"], shard["column_encodings"], strict=True))


def _write(out: Path, table: pa.Table, columns: dict[str, str] | None = None, **options: Any) -> None:
    with lading.writer(out, format="mds", options={"columns": columns or {}, **options}) as writer:
        writer.write_batch(table)


def _is_equal(found: Any, expected: np.ndarray[Any, Any]) -> bool:
    same = isinstance(found, np.ndarray) and (found.dtype, found.shape) == (expected.dtype, expected.shape)
    return same and bool((found == expected).all())


def test_arrays_of_python_are_arrays_with_and_without_the_manifest(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "new", format="mds") as writer:
        for value in _VALUES:
            writer.write({"x": value, "n": 1})
    assert _encodings(tmp_path / "new") == {"n": "int", "x": "ndarray"}
    for place in (tmp_path / "new", tmp_path / "new" / "index.json"):
        with lading.open(place) as dataset:
            for found in (list(dataset), [dataset[i] for i in range(3)]):
                assert all(_is_equal(sample["x"], value) for sample, value in zip(found, _VALUES, strict=True))
    with lading.open(tmp_path / "new") as dataset:
        assert dataset.take([2, 0])["x"].to_pylist() == [_npy(np.ascontiguousarray(_VALUES[2])), _npy(_VALUES[0])]


def test_arrays_of_tars_have_the_same_digest_and_other_payload_need_not_be_loaded(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "tar", format="webdataset") as writer:
        for value in _VALUES:
            writer.write({"x.npy": value, "bin": os.urandom(50_000)})
    lading.convert(tmp_path / "tar", tmp_path / "mds", format="mds", verify=True)
    assert _encodings(tmp_path / "mds") == {"bin": "bytes", "x.npy": "ndarray"}
    with lading.open(tmp_path / "tar") as dataset:
        shard = FORMAT.create([MemoryStore().put_stream("a")], dataset.schema, FORMAT.write_options({}))
        assert [*shard.encoded_columns] == ["x.npy"]
    lading.convert(tmp_path / "mds", tmp_path / "back", format="webdataset", verify=True)
    with lading.open(tmp_path / "back") as dataset:
        assert all(_is_equal(sample["x.npy"], value) for sample, value in zip(dataset, _VALUES, strict=True))


@pytest.mark.parametrize("data, found", [
    (_npy_of_version_2(np.zeros(2)), r"found a header of version 2\.0\. "),
    (_npy(np.zeros(2)).replace(b"'fortran_order': False, ", b"'fortran_order':  False,"), "found a header that numpy"),
])  # fmt: skip
def test_headers_that_mds_would_not_give_back_say_why(data: bytes, found: str, tmp_path: Path) -> None:
    schema = pa.schema([with_feature(pa.field("x", pa.large_binary()), Array())])
    with pytest.raises(Unrepresentable, match=found):
        _write(tmp_path / "bad", pa.table([pa.array([data], pa.large_binary())], schema=schema))


@pytest.mark.parametrize("feature, encoding", [
    (Array("int16", (2, 3)), "ndarray:int16:2,3"),
    (Array("int16", (None, 3)), "ndarray:int16"),
    (Array("int16"), "ndarray:int16"),
    (Array(None, (2, 3)), "ndarray"),
])  # fmt: skip
def test_the_encoding_says_what_the_schema_knows(feature: Array, encoding: str, tmp_path: Path) -> None:
    value = np.arange(6, dtype="i2").reshape(2, 3)
    schema = pa.schema([with_feature(pa.field("x", pa.large_binary()), feature)])
    with lading.writer(tmp_path / "new", format="mds", schema=schema) as writer:
        writer.write({"x": value})
    assert _encodings(tmp_path / "new") == {"x": encoding}
    lading.convert(tmp_path / "new", tmp_path / "flat", format="parquet", verify=True)
    lading.convert(tmp_path / "flat", tmp_path / "again", format="mds", verify=True)
    with lading.open(tmp_path / "again") as dataset:
        assert feature_of(dataset.schema.field("x")) == feature
        assert _is_equal(dataset[0]["x"], value)


def test_arrays_that_datasets_has_as_lists(tmp_path: Path) -> None:
    rows = pa.array([[[1, 2], [3, 4]], None, [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.int32())))
    schema = pa.schema([with_feature(pa.field("x", rows.type), Array("int32", (2, 2)))])
    _write(tmp_path / "new", pa.table([rows], schema=schema), nulls="mask")
    assert _encodings(tmp_path / "new")["x"] == "ndarray:int32:2,2"
    with lading.open(tmp_path / "new") as dataset:
        assert dataset.take([0, 1, 2])["x"].combine_chunks() == rows
        assert _is_equal(dataset[2]["x"], np.array([[5, 6], [7, 8]], "i4"))


@pytest.mark.cases(3)
@pytest.mark.parametrize("value, found", [
    (np.array([True]), "bool of shape"),
    (np.array(3.0), r"shape \(\)"),
    (np.zeros((0, 4)), r"shape \(0, 4\)"),
    (np.array([1 + 2j]), "complex128"),
    (np.array(["a"]), "<U1"),
    (np.array([1, 2], ">i4"), "big-endian.*ndarray.*"),
])  # fmt: skip
def test_arrays_that_mds_would_not_give_back_are_refused(value: Any, found: str, tmp_path: Path) -> None:
    schema = pa.schema([with_feature(pa.field("x", pa.large_binary()), Array())])
    table = pa.table([pa.array([_npy(np.zeros(1)), _npy(value)], pa.large_binary())], schema=schema)
    with pytest.raises(Unrepresentable, match=rf"row 1 column 'x'.*{found}.*'columns': {{'x': 'bytes'}}"):
        _write(tmp_path / "bad", table)
    with lading.writer(tmp_path / "new", format="mds", options={"columns": {"x": "bytes"}}) as writer:
        writer.write({"x": value})
    with lading.open(tmp_path / "new") as dataset:
        assert _is_equal(dataset[0]["x"], value)


def test_npy_files_in_fortran_order_are_written_where_ndarray_is_asked_for(tmp_path: Path) -> None:
    value = np.asfortranarray(_VALUES[0])
    schema = pa.schema([with_feature(pa.field("x", pa.large_binary()), Array())])
    table = pa.table([pa.array([_npy(value)], pa.large_binary())], schema=schema)
    with pytest.raises(Unrepresentable, match="Fortran order"):
        _write(tmp_path / "bad", table)
    _write(tmp_path / "new", table, {"x": "ndarray:float32"})
    with lading.open(tmp_path / "new") as dataset:
        assert _is_equal(next(iter(dataset))["x"], value)
    with pytest.raises(Unrepresentable, match="another type than its encoding"):
        _write(tmp_path / "bad", table, {"x": "ndarray:float64"})


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.large_list(pa.float16()), pa.list_(pa.float64(), 2)], ids=str
)
def test_lists_of_numbers_are_arrays_where_that_is_asked_for(kind: pa.DataType, tmp_path: Path) -> None:
    column = pa.array([[9, 9], [1, 2], None, [3, 4]], kind)[1:]
    _write(tmp_path / "new", pa.table({"x": column}), {"x": "ndarray"}, nulls="mask")
    with lading.open(tmp_path / "new" / "index.json") as dataset:
        assert _is_equal(dataset[0]["x"], np.array([1, 2], numpy_type(kind.value_type)))
    with lading.open(tmp_path / "new") as dataset:
        assert dataset.schema.field("x").type == kind
        assert dataset.take([0, 1, 2])["x"].to_pylist() == column.to_pylist()
        assert [dataset[i]["x"] for i in range(3)] == [sample["x"] for sample in dataset] == column.to_pylist()


_TENSOR = pa.fixed_shape_tensor(pa.float32(), [2, 3])


@pytest.mark.cases(4)
@pytest.mark.parametrize(
    "encoding", ["ndarray", "ndarray:float16", "bytes", "ndarray:float64:2,3", "ndarray:float32", "ndarray:float32:2,3"]
)
def test_tensors_of_arrow_are_arrays_as_asked(encoding: str, tmp_path: Path) -> None:
    values = np.arange(6, dtype="f4").reshape(2, 3)
    storage = pa.array([[7.0] * 6, None, values.reshape(-1)], _TENSOR.storage_type)[1:]
    _write(tmp_path / "new", pa.table({"x": pa.ExtensionArray.from_storage(_TENSOR, storage)}), {"x": encoding},
           nulls="mask")  # fmt: skip
    assert _encodings(tmp_path / "new")["x"] == encoding
    with lading.open(tmp_path / "new" / "index.json") as dataset:
        dtype = encoding.split(":")[1] if ":" in encoding else "float32"
        stored = dataset[1]["x"] if encoding != "bytes" else np.frombuffer(dataset[1]["x"], "<f4").reshape(2, 3)
        assert _is_equal(stored, values.astype(dtype))
    with lading.open(tmp_path / "new") as dataset:
        assert dataset[0]["x"] is None
        assert all(_is_equal(found, values) for found in (dataset[1]["x"], [*dataset][1]["x"]))


@pytest.mark.parametrize("encoding, message", [
    ("ndarray:float16", "row 1 column 'x': MDS cannot hold an array with nulls"),
    ("ndarray:float32:6", "column 'x': the requested encoding holds other values.* Write arrays with .*'ndarray'"),
])  # fmt: skip
def test_tensors_that_an_encoding_does_not_hold(encoding: str, message: str, tmp_path: Path) -> None:
    storage = pa.array([[7.0] * 6, [1, 2, None, 4, 5, 6]], _TENSOR.storage_type)
    with pytest.raises(Unrepresentable, match=message):
        _write(tmp_path / "bad", pa.table({"x": pa.ExtensionArray.from_storage(_TENSOR, storage)}), {"x": encoding})


@pytest.mark.parametrize("column, message", [
    ([[1], [2, None]], "a null in a list"),
    ([[1], []], "an array that MDS cannot hold"),
    ([[[1], [2]], [[1], [2, 3]]], "lists of several lengths"),
    ([[[1]], [[1], None]], "a null in a list"),
    ([[1], [2**40]], "values that int32 cannot hold"),
])  # fmt: skip
def test_lists_that_are_no_array(column: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(Unrepresentable, match=f"row 1 column 'x': {message}"):
        _write(tmp_path / "bad", pa.table({"x": column}), {"x": "ndarray:int32"})


@pytest.mark.parametrize("encoding, values", [
    ("int8", [-128, 127]), ("uint16", [0, 65_535]), ("float32", [0.1, -np.inf]), ("float16", [65_504.0, 1e-9]),
])  # fmt: skip
def test_numbers_are_narrowed_where_that_is_asked_for(encoding: str, values: list[Any], tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([*values, None])})
    _write(tmp_path / "new", table, {"n": encoding}, nulls="mask")
    assert _encodings(tmp_path / "new")["n"] == encoding
    with lading.open(tmp_path / "new") as dataset:
        assert dataset.schema.field("n").type == table.schema.field("n").type
        assert [sample["n"] for sample in dataset] == [*np.array(values).astype(encoding).tolist(), None]


@pytest.mark.parametrize("values, encoding, message", [
    ([1, 200], "int8", "int8 cannot hold; expected -128 to 127, found 200. Write .*'n': 'int16'"),
    ([1, -3], "uint16", "uint16 cannot hold.*found -3. Write .*'n': 'int16'"),
    ([1.0, 1e39], "float32", "float32 cannot hold.*Write .*'n': 'float64'"),
])  # fmt: skip
def test_numbers_that_do_not_fit_name_the_row(values: list[Any], encoding: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(Unrepresentable, match=f"row 1 column 'n': a number that {message}"):
        _write(tmp_path / "bad", pa.table({"n": values}), {"n": encoding})


def test_rounded_floats_are_not_verified(tmp_path: Path) -> None:
    _write(tmp_path / "one", pa.table({"n": [0.1], "i": [7]}))
    with pytest.raises(UsageError, match="column 'n': floats of fewer bits"):
        lading.convert(
            tmp_path / "one", tmp_path / "new", format="mds", verify=True, options={"columns": {"n": "float32"}}
        )
    lading.convert(tmp_path / "one", tmp_path / "new", format="mds", verify=True, options={"columns": {"i": "int8"}})
    assert _encodings(tmp_path / "new") == {"i": "int8", "n": "float64"}
