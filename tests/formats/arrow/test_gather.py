"""Rows picked out of many record batches at once: the same as pyarrow gives, and never more than is there."""

from __future__ import annotations

import datetime as dt
import os
import re
import resource
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from arrow_files import arrow_bytes
from lading._core.dataset.shards import random_access
from lading._core.features.types import ClassLabel, with_feature
from lading._core.formats.arrow import blocks, gather, reader
from lading.errors import LadingError, SchemaMismatch
from watched import forget_peak, peak_mb

BATCHES, ROWS = 40, 30


def _table(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    count = BATCHES * ROWS
    there = random.random(count) < 0.8
    texts = ["é" * int(size) for size in random.integers(0, 40, count)]
    moments = [dt.datetime.fromtimestamp(i * 9999, dt.UTC) for i in range(count)]
    columns = {
        "flag": pa.array(random.random(count) < 0.3),
        "perhaps": pa.array(random.random(count) < 0.3, mask=~there),
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

    pick = reader.ArrowReader._plain_slices

    def picked(*args: Any, **options: Any) -> Any:
        found = pick(*args, **options)
        said.append(found is not None)
        return found

    monkeypatch.setattr(reader.ArrowReader, "_plain_slices", picked)
    return said


@pytest.fixture(params=["all touched", "touched in slices", "far between"])
def dense(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are taken from the map, a part after another, or read: as where so many bytes a row make a large file."""
    if request.param != "all touched":
        monkeypatch.setattr(blocks, "_TOUCHED_BYTES", 0)
        monkeypatch.setattr(gather, "_SLICE_ROWS", 7)
    if request.param == "far between":
        monkeypatch.setattr(gather, "_FAULT_BYTES", 0)


@pytest.mark.cases(3)
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


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[i] for i in range(BATCHES * ROWS)]),
        pa.array([Decimal(i) for i in range(BATCHES * ROWS)]),
        pa.array([str(i % 4) for i in range(BATCHES * ROWS)]).dictionary_encode(),
    ],
    ids=["lists", "decimals", "dictionary"],
)
def test_other_columns_are_read_beside(tmp_path: Path, column: pa.Array) -> None:
    table = pa.table({"x": column, "y": pa.array(range(BATCHES * ROWS))})
    (tmp_path / "rows.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, ROWS))
    rows = np.arange(3, len(table), 9)
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset.take(rows).equals(table.take(pa.array(rows)))
        assert dataset.take(rows[::-1], ["y"]).equals(table.select(["y"]).take(pa.array(rows[::-1])))


def test_batches_of_several_writers_go_one_by_one(tmp_path: Path, taken: list[bool]) -> None:
    values = pa.array(range(ROWS), pa.int64())
    with pa.ipc.new_stream(tmp_path / "rows.arrow", pa.schema([("x", pa.int64())])) as writer:
        for i in range(BATCHES):
            writer.write_batch(pa.record_batch([values], ["x"]), custom_metadata={"number": "7" * (i % 9 + 1)})
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset.take(np.arange(0, BATCHES * ROWS, 10)).column("x").to_pylist() == [0, 10, 20] * BATCHES
    assert not any(taken)


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
    assert not any(taken)


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


def _shards(folder: Path, tables: list[pa.Table]) -> list[Path]:
    paths = [folder / f"rows-{i:05d}-of-{len(tables):05d}.arrow" for i in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        path.write_bytes(arrow_bytes(table, pa.ipc.new_stream, ROWS))
    return paths


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads, for however few rows."""
    monkeypatch.setattr(random_access, "_SHARED_ROWS", 1)
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)


@pytest.mark.cases(3)
@pytest.mark.usefixtures("dense", "shared")
@pytest.mark.parametrize("touched_bytes", [1, 1 << 28])
def test_rows_of_many_shards_in_any_order(
    tmp_path: Path, taken: list[bool], touched_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_TOUCHED_BYTES", touched_bytes)
    tables = [_table(seed) for seed in range(5)]
    whole = pa.concat_tables(tables)
    rows = np.random.default_rng(7).integers(0, len(whole), 900)
    with lading.open(_shards(tmp_path, tables)) as dataset:
        assert dataset.take(rows).equals(whole.take(pa.array(rows)))
        assert dataset.take(np.sort(rows)).equals(whole.take(pa.array(np.sort(rows))))
        shown = dataset.take(rows, views=True)
    assert all(taken)
    assert pa.types.is_string(shown.schema.field("text").type)
    assert pa.types.is_large_string(shown.schema.field("large").type)
    assert shown.column("bytes").cast(pa.binary()).equals(whole.column("bytes").take(pa.array(rows)))


@pytest.mark.usefixtures("shared")
def test_shards_of_which_some_are_gathered(tmp_path: Path, taken: list[bool]) -> None:
    """One is compressed; in one a column is wide."""
    texts = [f"text {i:05d}" for i in range(3 * BATCHES * ROWS)]
    many, packed, wide = (pa.array(part.tolist()) for part in np.split(np.array(texts), 3))
    tables = [pa.table({"x": many}), pa.table({"x": packed}), pa.table({"x": wide.cast(pa.large_string())})]
    paths = _shards(tmp_path, tables)
    paths[1].write_bytes(arrow_bytes(tables[1], pa.ipc.new_stream, ROWS, compression="lz4"))
    rows = np.random.default_rng(8).permutation(len(texts))[:900]
    with lading.open(paths) as dataset:
        found = dataset.take(rows).column("x")
        assert found.to_pylist() == [texts[row] for row in rows]
        assert found.type == pa.large_string()
    with lading.open(paths[:2]) as dataset:
        rows = rows[rows < 2 * BATCHES * ROWS]
        found = dataset.take(rows).column("x")
        assert (found.type, found.to_pylist()) == (pa.string(), [texts[row] for row in rows])
    assert sorted(set(taken)) == [False, True]


@pytest.mark.cases(3)
@pytest.mark.usefixtures("dense", "shared")
@pytest.mark.parametrize("bad, packed", [(1, None), (1, 0), (0, 1), (2, 1)])
def test_bytes_that_are_no_text_are_found_in_their_shard(tmp_path: Path, bad: int, packed: int | None) -> None:
    """All shards are gathered, or one is compressed and is not."""
    texts = pa.table({"x": [f"text {i:06d}" for i in range(BATCHES * ROWS)]})
    paths = _shards(tmp_path, [texts] * 3)
    if packed is not None:
        paths[packed].write_bytes(arrow_bytes(texts, pa.ipc.new_stream, ROWS, compression="lz4"))
    data = bytearray(paths[bad].read_bytes())
    at = data.index(b"text 000039")
    data[at : at + 1] = b"\xff"
    paths[bad].write_bytes(data)
    with (
        lading.open(paths) as dataset,
        pytest.raises(LadingError, match=rf"{re.escape(str(paths[bad]))}.*column 'x'"),
    ):
        dataset.take(np.arange(9, 3 * BATCHES * ROWS, 10))


def _mixed(seed: int, count: int) -> pa.Table:
    """Small and large values, and columns that are no plain ones."""
    random = np.random.default_rng(seed)
    there = random.random(count) < 0.8
    pictures = [random.bytes(int(n)) for n in random.integers(9_000, 12_000, count)]
    captions = [f"row {i} of {seed}" for i in range(count)]
    return pa.table(
        {
            "n": pa.array(range(count), pa.int32()),
            "jpg": pa.array(pictures, pa.binary(), mask=~there),
            "items": pa.array([["a" * (i % 4)] * (i % 3) for i in range(count)]),
            "caption": pa.array(captions, pa.string(), mask=~there),
            "kind": pa.array([f"{i % 3}" for i in range(count)]).dictionary_encode(),
        }
    )


@pytest.mark.cases(3)
@pytest.mark.usefixtures("dense")
@pytest.mark.parametrize("held", [64, 2])
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_small_large_and_nested_columns_of_many_shards(
    tmp_path: Path, held: int, views: bool, threads: int, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_access, "_HELD_SHARDS", held)
    monkeypatch.setattr(random_access, "_SHARED_ROWS", 1)
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)
    tables = [_mixed(seed, 2 * ROWS) for seed in range(5)]
    whole = pa.concat_tables(tables)
    rows = np.random.default_rng(3).integers(0, len(whole), 90)
    with lading.open(_shards(tmp_path, tables)) as dataset:
        for wanted in (rows, rows[:1], np.sort(rows), rows[rows < 2 * ROWS]):
            found = dataset.take(wanted, views=views)
            expected = whole.take(pa.array(wanted))
            assert found.column("jpg").type == (pa.binary_view() if views else pa.binary())
            assert found.column_names == expected.column_names
            assert found.to_pylist() == expected.to_pylist()
            if not views:
                assert found.schema.types == expected.schema.types
        some = dataset.take(rows, ["items", "jpg"], views=views)
        assert some.to_pylist() == whole.select(["items", "jpg"]).take(pa.array(rows)).to_pylist()
    assert any(taken)


@pytest.mark.soak
@pytest.mark.parametrize("threads", [1, 8])
def test_rows_of_more_shards_than_may_be_open(tmp_path: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_access, "_SHARED_ROWS", 1)
    monkeypatch.setattr(pa, "cpu_count", lambda: threads)
    count = 150
    for seed in range(count):
        table = _mixed(seed, 3).select(["n", "jpg", "caption"])
        (tmp_path / f"{seed:05d}.arrow").write_bytes(arrow_bytes(table))
    expected = pa.concat_tables([_mixed(seed, 3).select(["n", "jpg", "caption"]) for seed in range(count)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    rows = np.random.default_rng(1).permutation(3 * count)
    with lading.open(tmp_path) as dataset:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 220, hard))
        try:
            for wanted in (rows, np.sort(rows)):
                for views in (False, True):
                    found = dataset.take(wanted, views=views)
                    assert found.to_pylist() == expected.take(pa.array(wanted)).to_pylist()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.soak
@pytest.mark.parametrize("columns", [["n", "items", "kind"], ["items"], ["kind"]], ids=str)
def test_columns_that_are_not_plain_of_more_shards_than_may_be_open(tmp_path: Path, columns: list[str]) -> None:
    tables = [_mixed(seed, 3).select(["n", "items", "kind"]) for seed in range(150)]
    whole = pa.concat_tables(tables).select(columns)
    rows = np.random.default_rng(1).permutation(len(whole))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with lading.open(_shards(tmp_path, tables)) as dataset:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 170, hard))
        try:
            for wanted in (rows, np.arange(len(whole))):
                assert dataset.take(wanted, columns).to_pylist() == whole.take(pa.array(wanted)).to_pylist()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.soak
def test_streams_of_more_shards_than_stay_open_by_threads(tmp_path: Path) -> None:
    whole = []
    for shard in range(100):
        table = pa.table({"a": range(shard * 600, shard * 600 + 600), "t": [f"t{i}" for i in range(600)]})
        (tmp_path / f"s{shard:03d}.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, 10))
        whole.append(table)
    rows = np.random.default_rng(0).integers(0, 60_000, 5000)
    expected = pa.concat_tables(whole).take(pa.array(rows))
    for _ in range(3):
        with lading.open(tmp_path) as dataset:
            assert dataset.take(rows).equals(expected)


@pytest.mark.usefixtures("shared")
def test_labels_of_shards_are_not_mixed(tmp_path: Path) -> None:
    for number, names in enumerate([("a", "b"), ("b", "a")]):
        field = with_feature(pa.field("label", pa.int64()), ClassLabel(names))
        table = pa.table({"label": [0] * 100}).cast(pa.schema([field]))
        (tmp_path / f"{number}.arrow").write_bytes(arrow_bytes(table))
    with lading.open(tmp_path) as dataset:
        for rows in ([0, 199], [199, 0], range(200)):
            with pytest.raises(SchemaMismatch, match="not the same label"):
                dataset.take(rows)


@pytest.mark.usefixtures("shared")
def test_columns_and_metadata_go_by_the_order_of_the_shards(tmp_path: Path) -> None:
    """Whatever order the rows are asked for in."""
    one = pa.table({"a": range(50), "b": range(50)}).replace_schema_metadata({"m": "0"})
    other = pa.table({"b": range(50), "a": range(50), "x": range(50)}).replace_schema_metadata({"m": "1"})
    for number, table in enumerate([one, other]):
        (tmp_path / f"{number}.arrow").write_bytes(arrow_bytes(table))
    with lading.open(tmp_path) as dataset:
        for rows in (np.arange(100), np.arange(100)[::-1], np.array([99, 0])):
            found = dataset.take(rows)
            assert found.column_names == ["a", "b", "x"]
            assert found.schema.metadata == {b"m": b"0"}


@pytest.mark.soak
@pytest.mark.parametrize("rows", [64, 5000])
def test_pages_of_a_wide_table_do_not_stay(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value of a row lies elsewhere, and a touch may bring 2 MiB."""
    monkeypatch.setattr(blocks, "_TOUCHED_BYTES", 16 << 20)
    path = tmp_path / "wide.arrow"
    count = 1_000_000
    batch = pa.record_batch([pa.array(range(count // 10))] * 16, [f"c{i}" for i in range(16)])
    with pa.ipc.new_file(path, batch.schema) as writer:
        for _ in range(10):
            writer.write_batch(batch)
    random = np.random.default_rng(0)
    with lading.open(path) as dataset:
        dataset.take([0])
        forget_peak()
        before = peak_mb()
        for _ in range(20):
            wanted = random.integers(0, count, rows)
            assert dataset.take(wanted).column("c15").to_pylist() == (wanted % (count // 10)).tolist()
        assert peak_mb() - before < 50  # of 128
