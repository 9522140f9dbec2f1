"""Rows picked out of many record batches at once: the same as pyarrow gives, and never more than is there."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from arrow_files import arrow_bytes
from lading.errors import LadingError
from lading.formats import _arrow_gather, _arrow_read

BATCHES, ROWS = 40, 30


def _table(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    count = BATCHES * ROWS
    there = random.random(count) < 0.8
    texts = ["é" * int(size) for size in random.integers(0, 40, count)]
    moments = [dt.datetime.fromtimestamp(i * 9999, dt.UTC) for i in range(count)]
    columns = {
        "int": pa.array(random.integers(-9, 9, count), pa.int8()),
        "wide": pa.array(random.integers(-(1 << 60), 1 << 60, count), mask=~there),
        "float": pa.array(random.random(count), pa.float32()),
        "text": pa.array(texts, pa.string(), mask=~there),
        "large": pa.array(texts, pa.large_string()),
        "bytes": pa.array([text.encode() for text in texts], pa.binary(), mask=~there),
        "when": pa.array(moments, pa.timestamp("ms", "UTC")),
        "day": pa.array([moment.date() for moment in moments], mask=~there),
    }
    return pa.table(columns)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether rows were gathered, reading by reading."""
    said: list[bool] = []

    def gather(*args: Any) -> list[pa.RecordBatch] | None:
        found = _arrow_gather.gather_rows(*args)
        said.append(found is not None)
        return found

    monkeypatch.setattr(_arrow_read, "gather_rows", gather)
    return said


@pytest.fixture(params=["all touched", "far between"])
def dense(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are copied from the map, or read: as where so many bytes a row make a large file."""
    monkeypatch.setattr(_arrow_gather, "_FAULT_BYTES", 1 << 16 if request.param == "all touched" else 0)


@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize("file", [True, False])
def test_the_rows_are_those_that_pyarrow_takes(tmp_path: Path, file: bool, taken: list[bool]) -> None:
    table = _table(1)
    (tmp_path / "rows.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_file if file else pa.ipc.new_stream, ROWS))
    rows = np.random.default_rng(2).integers(0, len(table), 300)
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset.take(rows).equals(table.take(pa.array(rows)))
        some = ["large", "wide"]
        assert dataset.take(rows, some).equals(table.select(some).take(pa.array(rows)))
    assert taken == [True, True]


def test_a_part_may_begin_and_end_anywhere(tmp_path: Path, taken: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arrow_gather, "_SLICE_ROWS", 7)
    table = _table(3)
    (tmp_path / "rows.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, ROWS))
    rows = np.arange(0, len(table), 5)
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset.take(rows).equals(table.take(pa.array(rows)))
    assert taken == [True]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[i] for i in range(BATCHES * ROWS)]),
        pa.array([i % 3 == 0 for i in range(BATCHES * ROWS)]),
        pa.array([Decimal(i) for i in range(BATCHES * ROWS)]),
        pa.array([str(i % 4) for i in range(BATCHES * ROWS)]).dictionary_encode(),
        pa.array([str(i) * 3000 for i in range(BATCHES * ROWS)]),
    ],
    ids=["lists", "bools", "decimals", "dictionary", "large values"],
)
def test_other_columns_go_batch_by_batch(tmp_path: Path, column: pa.Array, taken: list[bool]) -> None:
    table = pa.table({"x": column, "y": pa.array(range(BATCHES * ROWS))})
    (tmp_path / "rows.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, ROWS))
    rows = np.arange(3, len(table), 9)
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset.take(rows).equals(table.take(pa.array(rows)))
    assert taken == [False]


def test_batches_of_several_writers_go_one_by_one(tmp_path: Path, taken: list[bool]) -> None:
    values = pa.array(range(ROWS), pa.int64())
    with pa.ipc.new_stream(tmp_path / "rows.arrow", pa.schema([("x", pa.int64())])) as writer:
        for i in range(BATCHES):
            writer.write_batch(pa.record_batch([values], ["x"]), custom_metadata={"number": "7" * (i % 9 + 1)})
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset.take(np.arange(0, BATCHES * ROWS, 10)).column("x").to_pylist() == [0, 10, 20] * BATCHES
    assert taken == [False]


def _texts_file(path: Path) -> bytearray:
    texts = pa.table({"x": [f"text {i:06d}" for i in range(BATCHES * ROWS)]})
    path.write_bytes(arrow_bytes(texts, pa.ipc.new_stream, ROWS))
    return bytearray(path.read_bytes())


@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize("offset", [-1, 1 << 30, -(1 << 31), 5])
def test_offsets_that_lead_elsewhere_are_an_error(tmp_path: Path, offset: int, taken: list[bool]) -> None:
    path = tmp_path / "rows.arrow"
    data = _texts_file(path)
    offsets = struct.pack(f"<{ROWS + 1}i", *range(0, 11 * (ROWS + 1), 11))
    at = data.index(offsets, data.index(offsets) + 1)  # of the second batch
    data[at + 40 : at + 44] = struct.pack("<i", offset)
    path.write_bytes(data)
    with lading.open(path) as dataset, pytest.raises(LadingError, match=r"rows\.arrow"):
        dataset.take(np.arange(9, BATCHES * ROWS, 10))
    assert taken == [False]


@pytest.mark.usefixtures("dense")
def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    data = _texts_file(path)
    at = data.index(b"text 000039")
    data[at : at + 1] = b"\xff"
    path.write_bytes(data)
    with lading.open(path) as dataset:
        with pytest.raises(LadingError, match=r"rows\.arrow.*column 'x'"):
            dataset.take(np.arange(9, BATCHES * ROWS, 10))
        rows = np.arange(8, BATCHES * ROWS, 10)
        assert dataset.take(rows).column("x").to_pylist() == [f"text {row:06d}" for row in rows]
