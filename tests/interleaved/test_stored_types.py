"""Rows of files that declare no types, where a manifest does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading.errors import SchemaMismatch

_ROWS = [{"a": 1, "b": "x;y"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}]


def written(folder: Path, **options: Any) -> Path:
    with lading.writer(folder, format="csv", options=options) as writer:
        writer.write_batch(pa.Table.from_pylist(_ROWS, pa.schema([("a", pa.int64()), ("b", pa.string())])))
    return folder


@pytest.mark.parametrize("delimiter", [";", "|", " ", "5", 5, "tab", ","])
def test_a_delimiter_is_kept_for_who_opens(tmp_path: Path, delimiter: str | int) -> None:
    folder = written(tmp_path / "out", delimiter=delimiter)
    with lading.open(folder) as dataset:
        assert list(dataset) == [dataset[i] for i in range(3)] == _ROWS


def test_a_copy_of_a_delimiter_is_verified(tmp_path: Path) -> None:
    folder = written(tmp_path / "one", delimiter=";")
    lading.convert(folder, tmp_path / "two", format="csv", options={"delimiter": "|"}, verify=True)
    with lading.open(tmp_path / "two") as dataset:
        assert list(dataset) == _ROWS


@pytest.mark.parametrize("take", [lambda ds: ds[0], lambda ds: ds.head(), lambda ds: ds.take([1])])
@pytest.mark.parametrize("header, options, found", [(b"a,c", {}, "a, c"), (b"a,b", {"delimiter": "|"}, "a,b")])
def test_a_header_of_other_columns_is_no_row_of_nulls(
    tmp_path: Path, header: bytes, options: dict[str, Any], found: str, take: Callable[[lading.Dataset], object]
) -> None:
    folder = written(tmp_path / "out")
    [shard] = folder.glob("*.csv")
    shard.write_bytes(header + shard.read_bytes()[3:])
    with lading.open(folder, options=options) as dataset, pytest.raises(SchemaMismatch) as caught:
        take(dataset)
    assert (caught.value.file, caught.value.expected, caught.value.found) == (str(shard), "a, b", found)


@pytest.mark.parametrize("fmt", ["csv", "jsonl"])
@pytest.mark.parametrize("others", [{"k": ["a", "b"]}, {}])
def test_a_column_of_nulls_alone_is_read(tmp_path: Path, fmt: str, others: dict[str, Any]) -> None:
    table = pa.table({**others, "n": pa.nulls(2)})
    with lading.writer(tmp_path / "out", format=fmt) as writer:
        writer.write_batch(table)
    with lading.open(tmp_path / "out") as dataset:
        assert pa.Table.from_batches(dataset.batches()).select(table.column_names).equals(table)
        assert dataset[1] == {name: values[1] for name, values in others.items()} | {"n": None}


@pytest.mark.parametrize(
    "take", [lambda ds: ds[1], lambda ds: ds.take([1]), lambda ds: ds.take([1, 0]), lambda ds: list(ds.batches())]
)
def test_a_field_of_another_name_is_no_null(tmp_path: Path, take: Callable[[lading.Dataset], object]) -> None:
    with lading.writer(tmp_path / "out", format="jsonl") as writer:
        writer.write_batch(pa.Table.from_pylist(_ROWS))
    [shard] = (tmp_path / "out").glob("*.jsonl")
    shard.write_bytes(shard.read_bytes().replace(b'"a":2', b'"z":2'))
    with lading.open(tmp_path / "out") as dataset:
        assert dataset.take([1], columns=["b"]).to_pylist() == [{"b": None}]
        with pytest.raises(SchemaMismatch, match="a line has a field that the file was not said to have") as caught:
            take(dataset)
    assert (caught.value.file, caught.value.column, caught.value.expected) == (str(shard), "z", "a, b")
