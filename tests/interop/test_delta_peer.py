"""deltalake writes tables, and lading reads the rows that deltalake reads."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import lading
from peers import import_peer

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

ROWS = pa.table({
    "id": range(100),
    "text": [f"é{i}" if i % 3 else None for i in range(100)],
    "image": [bytes([i]) * 50 for i in range(100)],
    "items": [[{"x": i, "y": None if i % 2 else "y"}] * (i % 3) for i in range(100)],
    "map": pa.array([[("k", i)] for i in range(100)], pa.map_(pa.string(), pa.int32())),
})  # fmt: skip


@pytest.fixture(scope="module")
def deltalake() -> ModuleType:
    return import_peer("deltalake")


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def check(deltalake: ModuleType, table: Path) -> None:
    expected = deltalake.DeltaTable(str(table)).to_pyarrow_table()
    found = lading.open(table).with_decode(False)
    assert in_order([dict(row) for row in found]) == in_order(expected.to_pylist())
    assert len(found) == len(expected)


def test_versions_of_a_table(deltalake: ModuleType, tmp_path: Path) -> None:
    write, table = deltalake.write_deltalake, tmp_path / "table"
    write(table, ROWS)
    write(table, ROWS.slice(0, 10), mode="append")
    check(deltalake, table)
    deltalake.DeltaTable(str(table)).delete("id % 3 = 0")
    check(deltalake, table)
    wider = ROWS.slice(0, 5).append_column("late", pa.array(range(5)))
    write(table, wider, mode="append", schema_mode="merge")
    deltalake.DeltaTable(str(table)).create_checkpoint()
    write(table, wider, mode="append")
    check(deltalake, table)
    older = lading.open(table / "_delta_log" / f"{1:020}.json")
    assert len(older) == len(deltalake.DeltaTable(str(table), version=1).to_pyarrow_table()) == 110
    write(table, ROWS.slice(3, 4).select(["id"]), mode="overwrite", schema_mode="overwrite")
    check(deltalake, table)
    assert lading.verify(table, deep=True, progress=False).ok


def test_partitions_of_every_type(deltalake: ModuleType, tmp_path: Path) -> None:
    noon = dt.datetime(2020, 1, 1, 12, 30, 0, 5)  # noqa: DTZ001 - the type has the zone
    rows = pa.table({
        "id": [1, 2, 3, 4],
        "s": ["a b", "ü/%=:?", None, ""],
        "i": pa.array([1, None, 3, 4], pa.int32()),
        "d": pa.array([dt.date(2020, 1, 1), None, dt.date(2021, 1, 1), dt.date(1900, 1, 1)]),
        "t": pa.array([noon] * 4, pa.timestamp("us", "UTC")),
        "n": pa.array([noon] * 4, pa.timestamp("us")),
        "b": [True, False, None, True],
        "dec": pa.array([Decimal("1.50"), Decimal(-2), None, Decimal(0)], pa.decimal128(10, 2)),
        "f": [1e30, -0.5, None, float("inf")],
    })  # fmt: skip
    deltalake.write_deltalake(tmp_path, rows, partition_by=["s", "i", "d", "t", "n", "b", "dec", "f"])
    check(deltalake, tmp_path)
    some = lading.open(tmp_path).where("i >= 3 and f > 1").select("id")
    assert [row["id"] for row in some] == [4]
    assert some.counts["shards of other partitions, left out"] == 3


def test_a_table_without_rows(deltalake: ModuleType, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, ROWS.slice(0, 0), partition_by=["text"])
    assert len(lading.open(tmp_path)) == 0
    assert sorted(lading.open(tmp_path).columns) == sorted(ROWS.column_names)
