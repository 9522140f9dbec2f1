"""Columns of types of which pyarrow has no class: intervals of months, and of days and milliseconds."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
import lading._core.formats.registry
from arrow_files import arrow_bytes
from lading._core.formats.arrow.format import FORMAT, ArrowReader
from lading._core.formats.base import Scan, ShardFile
from lading._core.storage.memory import MemoryStore
from lading.errors import LadingError, Unrepresentable

_INTERVAL = pa.month_day_nano_interval()
_NESTED = {
    "alone": _INTERVAL,
    "in a struct": pa.struct([("x", pa.int8()), ("i", _INTERVAL)]),
    "in lists": pa.list_(pa.large_list(_INTERVAL)),
    "in a map": pa.map_(pa.string(), _INTERVAL),
    "in a fixed list": pa.list_(_INTERVAL, 2),
}
_UNITS = {"month_interval": 0, "day_time_interval": 1}


def _with_unit(data: bytes, name: str) -> bytes:
    """A file, stream or message in which pyarrow finds this type in place of the interval that it knows."""
    found = data
    for at in range(8, len(data) - 1, 2):
        if found[at : at + 2] != b"\2\0":
            continue
        changed = found[:at] + _UNITS[name].to_bytes(2, "little") + found[at + 2 :]
        try:
            schemas = [str(_schema_of(changed, stream=stream)) for stream in (True, False)]
        except (pa.ArrowException, OSError, KeyError):
            continue
        before = [str(_schema_of(found, stream=stream)) for stream in (True, False)]
        if schemas != before and all(
            new in (old, old.replace(str(_INTERVAL), name)) for new, old in zip(schemas, before, strict=True)
        ):
            found = changed
    assert str(_INTERVAL) not in str(_schema_of(found, stream=False))
    assert name in str(_schema_of(found, stream=True))
    return found


def _schema_of(data: bytes, *, stream: bool) -> pa.Schema:
    is_file = data.startswith(b"ARROW1")
    if stream or not is_file:
        return pa.ipc.read_schema(pa.py_buffer(data[8 * is_file :]))
    return pa.ipc.open_file(data).schema


def _open(data: bytes) -> ArrowReader:
    return FORMAT.open(ShardFile(MemoryStore({"s.arrow": data}), "s.arrow"), FORMAT.read_options({}))


@pytest.mark.cases(3)
@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("unit", _UNITS)
@pytest.mark.parametrize("nested", _NESTED)
def test_the_other_columns_are_read(make: Any, compression: str | None, unit: str, nested: str, tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "m": pa.nulls(2, _NESTED[nested]), "z": ["x", "y"]})
    data = _with_unit(arrow_bytes(table, make, compression=compression), unit)
    reader = _open(data)
    assert reader.schema().names == ["a", "m", "z"]
    assert reader.num_rows() == 2
    assert reader.read(np.array([1, 0]), Scan(["z", "a"])).to_pylist() == [{"z": "y", "a": 2}, {"z": "x", "a": 1}]
    for look in (reader.read, lambda: reader.read(scan=Scan(["a", "m"])), lambda: reader.get_sample(0)):
        advice = r"lading convert and lading head read the other columns: ds.select\('a', 'z'\)"
        message = rf"s.arrow column 'm': .*found {unit}( in .*)?. {advice}"
        with pytest.raises(Unrepresentable, match=message):
            look()
    path = tmp_path / "s.arrow"
    path.write_bytes(data)
    assert any(unit in kind for _, kind, _ in lading.info(path).columns)
    assert not lading.verify(path).ok
    for verb in (
        lading.digest,
        lambda path: list(lading.open(path)),
        lambda path: lading.salvage(path, tmp_path / "s"),
    ):
        with pytest.raises(LadingError, match="column 'm'"):
            verb(path)
    for fmt in ("parquet", "arrow", "jsonl"):
        with pytest.raises(Unrepresentable, match="'m'"):
            lading.convert(path, tmp_path / "all", format=fmt)
        lading.convert(path, tmp_path / fmt, format=fmt, columns=["a", "z"], verify=True)
        with lading.open(tmp_path / fmt) as dataset:
            assert dataset.head(5) == table.select(["a", "z"]).to_pylist()
    with lading.open(path) as dataset:
        assert dataset.drop("m").head(5) == table.select(["a", "z"]).to_pylist()
        assert dataset.select("a")[1] == {"a": 2}


@pytest.mark.parametrize("unit", _UNITS)
def test_an_arrow_schema_in_parquet(unit: str) -> None:
    declared = pa.schema([("a", pa.int64()), ("m", _INTERVAL)])
    told = base64.b64encode(_with_unit(declared.serialize().to_pybytes(), unit))
    table = pa.table({"a": [1], "m": pa.array([bytes(12)], pa.binary(12))})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({b"ARROW:schema": told})
    fmt = lading._core.formats.registry.get_format("parquet")
    source = ShardFile(MemoryStore({"s.parquet": sink.getvalue()}), "s.parquet")
    found = fmt.open(source, fmt.read_options({})).read(scan=Scan(["a"]))
    assert found.to_pylist() == [{"a": 1}]
    assert pq.read_table(sink, columns=["a"]).to_pylist() == [{"a": 1}]
    assert fmt.open(source, fmt.read_options({})).read().to_pylist() == pq.read_table(sink).to_pylist()
