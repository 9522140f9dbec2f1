"""Rows of MDS by their manifest: order, types and features as they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.features.encode import npy_bytes
from lading._core.features.mds_values import encode_mds
from lading._core.features.types import Array, ClassLabel, Encoded, Feature, Json, Video, feature_of, with_feature
from lading._core.formats.mds.stored_schema import in_type
from lading.errors import CorruptShard, DataError

_TENSOR = pa.fixed_shape_tensor(pa.float32(), (2,))


def _tensors() -> pa.Array:
    return pa.ExtensionArray.from_storage(_TENSOR, pa.array([[1, 2], [3, 4]], _TENSOR.storage_type))


def read(folder: Path, table: pa.Table, **options: Any) -> tuple[pa.Schema, pa.Table]:
    with lading.writer(folder, format="mds", options=options) as writer:
        writer.write_batch(table)
    with lading.open(folder) as dataset:
        found = pa.Table.from_batches(dataset.batches())
        assert dataset.take([0, 1]).schema.equals(found.schema)
        assert [*dataset[0]] == [*next(iter(dataset))]
        return dataset.schema, found


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "column, kind",
    [
        (pa.array(["a", "b"]), pa.string()),
        (pa.array(["a", "b"], pa.large_string()), pa.large_string()),
        (pa.array(["a", "b"]).dictionary_encode(), pa.string()),
        (pa.array([b"a", b"bc"]), pa.large_binary()),
        (pa.array([b"ab", b"cd"], pa.binary(2)), pa.binary(2)),
        (pa.array([b"a", b"b"]).dictionary_encode(), pa.large_binary()),
        (pa.array([1, 2], pa.int8()).dictionary_encode(), pa.int8()),
        (pa.array(['{"a": 1}', "[]"], pa.json_()), pa.json_()),
        (_tensors(), pa.large_binary()),
    ],
)
def test_the_schema_is_that_of_the_batches(tmp_path: Path, column: pa.Array, kind: pa.DataType) -> None:
    table = pa.table({"z": column, "a": [1, 2]})
    schema, found = read(tmp_path, table)
    assert schema.names == found.column_names == ["z", "a"]
    assert schema.field("z").type == found.schema.field("z").type == kind
    if not isinstance(column, pa.FixedShapeTensorArray):
        assert found.column("z").to_pylist() == column.to_pylist()


def test_marked_values_of_one_size(tmp_path: Path) -> None:
    column = pa.array([b"ab", None], pa.binary(2))
    assert read(tmp_path, pa.table({"x": column}), nulls="mask")[1].column("x").to_pylist() == [b"ab", None]


@pytest.mark.parametrize(
    "column, feature",
    [
        (pa.array([0, 1]), ClassLabel(("cat", "dog"))),
        (pa.array([b"a", b"b"], pa.large_binary()), Video()),
        (pa.array(["{}", "[]"]), Json()),
        (pa.array([bytes(8), bytes(8)], pa.large_binary()), Array("float32", (2,))),
    ],
)
def test_features_come_back(tmp_path: Path, column: pa.Array, feature: Feature) -> None:
    field = with_feature(pa.field("x", column.type), feature)
    schema, found = read(tmp_path, pa.table([column], schema=pa.schema([field], metadata={"own": "1"})))
    assert feature_of(schema.field("x")) == feature_of(found.schema.field("x")) == feature
    assert found.schema.metadata[b"own"] == b"1"
    assert found.column("x").to_pylist() == column.to_pylist()


def test_without_a_manifest_columns_are_as_the_shard_has_them(tmp_path: Path) -> None:
    read(tmp_path, pa.table({"z": ["a", "b"], "a": [1, 2]}))
    with lading.open(tmp_path / "index.json") as dataset:
        assert dataset.schema.names == ["a", "z"]
        assert dataset.schema.field("z").type == pa.large_string()


def test_a_value_that_is_not_of_its_type() -> None:
    pictures = with_feature(pa.field("x", pa.large_binary()), Encoded("list[jpeg]"))
    lists = pa.array([encode_mds("list[jpeg]", [b"a"])], pa.large_binary())
    for column, kind, own in (
        (pa.array([b"a"], pa.large_binary()), pa.binary(2), pa.field("x", pa.large_binary())),
        (pa.array(["a"]), pa.list_(pa.int8()), pa.field("x", pa.string())),
        (pa.array([b"a"], pa.large_binary()), pa.list_(pa.binary()), pictures),
        (lists, pa.list_(pa.int8()), pictures),
        (lists, pa.struct([("a", pa.binary())]), pictures),
    ):
        with pytest.raises(CorruptShard, match="column 'x'"):
            in_type(column, pa.field("x", kind), own)


@pytest.mark.parametrize("columns", [{}, {"x": "bytes"}], ids=["ndarray", "bytes"])
@pytest.mark.parametrize("feature", [Array(), Array("float32"), Array(None, (None,))], ids=str)
def test_arrays_that_tell_their_shape_are_arrays_one_by_one_too(
    feature: Array, columns: dict[str, str], tmp_path: Path
) -> None:
    """Earlier versions wrote `.npy` files as bytes; `columns` still does."""
    values = [np.arange(2, dtype="f4"), np.arange(3, dtype="f4"), None, np.ones(1, "f4")]
    column = pa.array([None if value is None else npy_bytes(value) for value in values], pa.large_binary())
    schema = pa.schema([with_feature(pa.field("x", column.type), feature), pa.field("n", pa.int64())])
    with lading.writer(tmp_path / "d", format="mds", options={"nulls": "mask", "columns": columns}) as writer:
        writer.write_batch(pa.table([column, [0, 1, 2, 3]], schema=schema))
    with lading.open(tmp_path / "d") as dataset:
        for found in (list(dataset), [dataset[i] for i in range(4)], dataset.head(4)):
            for i, sample in enumerate(found):
                expected = values[i]
                assert list(sample) == ["x", "n"]
                assert sample["n"] == i
                if expected is None:
                    assert sample["x"] is None
                else:
                    assert (sample["x"].dtype, sample["x"].tolist()) == (expected.dtype, expected.tolist())
        assert dataset.take([1])["x"].to_pylist() == [npy_bytes(np.arange(3, dtype="f4"))]


def test_bytes_that_are_no_array_are_an_error_of_their_column(tmp_path: Path) -> None:
    schema = pa.schema([with_feature(pa.field("x", pa.large_binary()), Array())])
    table = pa.table([pa.array([b"abc"], pa.large_binary())], schema=schema)
    with (
        pytest.raises(DataError, match=r"^row 0 column 'x': not an .npy file.*Keep the bytes"),
        lading.writer(tmp_path / "d", format="mds") as writer,
    ):
        writer.write_batch(table)
    with lading.writer(tmp_path / "d", format="mds", options={"columns": {"x": "bytes"}}) as writer:
        writer.write_batch(table)
    with (
        lading.open(tmp_path / "d") as dataset,
        pytest.raises(DataError, match=r"mds row 0 column 'x': not an .npy file"),
    ):
        dataset[0]
