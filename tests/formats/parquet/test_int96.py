"""Times in 96 bits, as Spark and Hive write them: all come as they are, or not at all. The files are pyarrow's."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.parquet.format import FORMAT, ParquetReader
from lading._core.storage.memory import MemoryStore
from lading.errors import Unrepresentable, UsageError

_SPARK = {b"org.apache.spark.sql.parquet.row.metadata": b'{"type":"struct","fields":[]}'}
_FOR_EVER = 253_402_300_799  # 9999-12-31T23:59:59, in seconds
_FIRST = -62_135_596_800  # 0001-01-01


def _open(
    table: pa.Table, *, metadata: dict[bytes, bytes] | None = None, unit: str | None = None, **options: Any
) -> ParquetReader:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, use_deprecated_int96_timestamps=True, **options) as writer:
        writer.write_table(table, row_group_size=3)
        writer.add_key_value_metadata(metadata or {})
    physical = pq.ParquetFile(sink).schema
    assert "INT96" in {physical.column(i).physical_type for i in range(len(physical))}
    source = ShardFile(MemoryStore({"s.parquet": sink.getvalue()}), "s.parquet")
    return FORMAT.open(source, FORMAT.read_options({} if unit is None else {"int96_unit": unit}))


def _check(reader: ParquetReader, expected: pa.Table) -> None:
    assert reader.schema().types == expected.schema.types
    batches = list(reader.batches(Scan(max_rows=2, max_bytes=1 << 20)))
    assert pa.Table.from_batches(batches).equals(expected)
    assert reader.read(np.array([len(expected) - 1])).equals(expected.slice(len(expected) - 1))


@pytest.mark.parametrize(
    "kind, values",
    [
        (pa.timestamp("s"), [_FOR_EVER, None, _FIRST, 0]),
        (pa.timestamp("ms"), [_FOR_EVER * 1000 + 999, None, -1, 0]),
        (pa.timestamp("us"), [_FOR_EVER * 10**6, None, _FIRST * 10**6, -1]),
        (pa.timestamp("us", "Europe/Paris"), [_FOR_EVER * 10**6, None, _FIRST * 10**6, -1]),
        (pa.timestamp("ns", "UTC"), [2**62 + 1, None, -1, -(10**9) - 1]),
    ],
    ids=str,
)
def test_times_come_in_the_unit_of_their_writer(kind: pa.DataType, values: list[int | None]) -> None:
    column = pa.array(values, kind)
    rows = pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 4], pa.int32()), column)], ["l"])
    _check(_open(pa.table({"t": column, "s": rows})), pa.table({"t": column, "s": rows}))


def test_times_of_spark_are_microseconds() -> None:
    table = pa.table({"t": pa.array([_FOR_EVER * 10**6 + 1, None, -1], pa.timestamp("us"))})
    _check(_open(table, metadata=_SPARK, store_schema=False), table)


def test_times_of_spark_that_are_finer_are_refused() -> None:
    table = pa.table({"t": pa.array([10**9, 10**9 + 1], pa.timestamp("ns"))})
    with pytest.raises(Unrepresentable, match=r"column 't'.*64 bits of us hold, exactly"):
        _open(table, metadata=_SPARK, store_schema=False).read()


def test_times_of_no_unit_are_nanoseconds() -> None:
    """As pyarrow has it."""
    table = pa.table({"t": pa.array([2**63 - 1, None, -1, -(2**62)], pa.timestamp("ns"))})
    _check(_open(table, store_schema=False), table)


@pytest.mark.parametrize("unit, each", [("s", 1), ("ms", 1000), ("us", 10**6)])
@pytest.mark.parametrize("nested", [False, True])
def test_times_of_no_unit_come_in_the_one_that_is_asked_for(unit: str, each: int, nested: bool) -> None:
    column = pa.array([_FOR_EVER * each, None, _FIRST * each, -1], pa.timestamp(unit))
    finer = pa.array([0, 10**9, 10**9 // each - 1, 2 * 10**9], pa.timestamp("ns"))
    if nested:
        ends = pa.array([0, 2, 2, 4], pa.int32())
        column, finer = (pa.ListArray.from_arrays(ends, one) for one in (column, finer))
    _check(_open(pa.table({"t": column}), unit=unit, store_schema=False), pa.table({"t": column}))
    with pytest.raises(Unrepresentable, match=f"column 't'.*64 bits of {unit} hold, exactly"):
        _open(pa.table({"t": finer}), unit=unit, store_schema=False).read()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("told", [True, False])
def test_a_unit_that_is_asked_for_is_that_of_pyarrow(unit: str, told: bool) -> None:
    column = pa.array([1_600_000_000, None, -1], pa.timestamp("s"))
    rows = pa.StructArray.from_arrays([pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), column)], ["l"])
    table = pa.table({"t": column, "s": rows, "n": pa.array([1, 2, 3], pa.duration("s"))})
    sink = io.BytesIO()
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True, store_schema=told)
    peer = pq.ParquetFile(sink, coerce_int96_timestamp_unit=unit).read()
    _check(_open(table, unit=unit, store_schema=told), peer.cast(_with_durations(peer.schema, told=told)))


def _with_durations(schema: pa.Schema, *, told: bool) -> pa.Schema:
    return schema.set(2, schema.field(2).with_type(pa.duration("s") if told else pa.int64()))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "kind, values, unit, advice",
    [
        ("s", [_FOR_EVER, 0], "ns", "'int96_unit': 'us'"),
        ("us", [_FOR_EVER * 10**6 + 999_999, 0], "ns", "'int96_unit': 'us'"),
        ("us", [_FOR_EVER * 10**6 + 999_999, 0], "ms", "'int96_unit': 'us'"),
        ("us", [123_456, None], "s", "'int96_unit': 'ns'"),
        ("ns", [123_456_789, None], "us", "'int96_unit': 'ns'"),
    ],
)
def test_advice_names_a_unit_that_holds_the_times(
    kind: str, values: list[int | None], unit: str, advice: str, nested: bool
) -> None:
    column = pa.array(values, pa.timestamp(kind))
    table = pa.table({"t": pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), column) if nested else column})
    with pytest.raises(Unrepresentable, match=f"column 't'.*64 bits of {unit} hold, exactly.*{advice}"):
        _open(table, unit=unit).read()
    found = _open(table, unit=advice.rpartition(": ")[2].strip("'")).read()
    assert found.cast(table.schema).equals(table)


def test_units_that_are_none() -> None:
    with pytest.raises(UsageError, match="no such unit"):
        _open(pa.table({"t": pa.array([0], pa.timestamp("s"))}), unit="days")


@pytest.mark.parametrize("nested", [False, True])
def test_times_that_nanoseconds_do_not_hold_are_refused(nested: bool) -> None:
    column = pa.array([0, None, 1, _FOR_EVER, _FIRST], pa.timestamp("s"))
    if nested:
        column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 3, 5], pa.int32()), column)
    reader = _open(pa.table({"n": range(5), "t": column}), store_schema=False)
    batches = reader.batches(Scan(max_rows=3, max_bytes=1 << 20))
    assert next(batches).num_rows == 3
    with pytest.raises(Unrepresentable, match=r"s.parquet column 't': row groups? .*times in 96 bits.*64 bits of ns"):
        next(batches)
    with pytest.raises(Unrepresentable, match="column 't'"):
        reader.read(np.array([4]))
    assert reader.read(scan=Scan(["n"])).column("n").to_pylist() == [*range(5)]


def test_times_of_two_units_come_in_both_or_not_at_all() -> None:
    fine = pa.array([1, -1], pa.timestamp("ns"))
    table = pa.table({"a": fine, "b": pa.array([5, None], pa.timestamp("us"))})
    _check(_open(table), table)
    with pytest.raises(Unrepresentable, match="column 'b'"):
        _open(pa.table({"a": fine, "b": pa.array([5, _FOR_EVER * 10**6], pa.timestamp("us"))})).read()
