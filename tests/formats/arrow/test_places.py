"""Rows found by the places of their values: the same as pyarrow gives, and never more than is there."""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lading
from arrow_files import arrow_bytes
from lading._core.arrow.older import numpy_type
from lading._core.formats.arrow import blocks, reader, rows
from lading._core.formats.arrow.format import FORMAT
from lading._core.formats.base import ShardFile
from lading._core.storage.local import LocalStore
from lading.errors import CorruptShard

ROWS = 30
PLAIN = [
    pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float32(), pa.float64(),
    pa.string(), pa.large_string(), pa.binary(), pa.large_binary(),
]  # fmt: skip
OTHERS = [
    pa.list_(pa.int32()), pa.list_(pa.int8(), 2), pa.struct([("a", pa.string()), ("b", pa.int8())]),
    pa.map_(pa.string(), pa.int32()), pa.decimal128(20, 2), pa.binary(3), pa.null(), pa.timestamp("us"),
    pa.dictionary(pa.int32(), pa.string()),
]  # fmt: skip


@pytest.fixture
def by_place(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether rows were found by their places, shard by shard."""
    said: list[bool] = []

    def asked(*args: Any) -> rows.PlacedRow | None:
        found = rows.placed_rows(*args)
        said.append(found is not None)
        return found

    monkeypatch.setattr(reader, "placed_rows", asked)
    return said


@pytest.fixture(params=["touched", "read"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Values are touched where they lie, or read: as of a file that is too large to stay in memory."""
    if request.param == "read":
        monkeypatch.setattr(blocks, "_TOUCHED_BYTES", 0)
    return str(request.param)


def _values(kind: pa.DataType, random: np.random.Generator, count: int) -> list[Any]:
    if pa.types.is_boolean(kind):
        return (random.random(count) < 0.5).tolist()  # type: ignore[no-any-return]  # numpy's lists are Any
    if pa.types.is_floating(kind):
        return random.random(count).astype(numpy_type(kind)).tolist()  # type: ignore[no-any-return]  # see above
    if pa.types.is_integer(kind):
        return random.integers(0, 100, count).tolist()  # type: ignore[no-any-return]  # see above
    texts = ["é" * int(size) for size in random.integers(0, 40, count)]
    return texts if pa.types.is_string(kind) or pa.types.is_large_string(kind) else [t.encode() for t in texts]


def _table(kinds: list[pa.DataType], nulls: list[float], count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = {}
    for i, (kind, share) in enumerate(zip(kinds, nulls, strict=True)):
        columns[f"{i}"] = pa.array(_values(kind, random, count), kind, mask=random.random(count) < share)
    return pa.table(columns)


@pytest.mark.parametrize("file", [True, False])
def test_rows_are_those_of_pyarrow(tmp_path: Path, source: str, file: bool, by_place: list[bool]) -> None:
    table = _table(PLAIN * 2, [0.0] * len(PLAIN) + [0.3] * len(PLAIN), 10 * ROWS + 7, 1)
    (tmp_path / "rows.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_file if file else pa.ipc.new_stream, ROWS))
    expected = table.to_pylist()
    with lading.open(tmp_path / "rows.arrow") as dataset:
        order = np.random.default_rng(2).permutation(len(table)).tolist()
        assert [dataset[row] for row in order] == [expected[row] for row in order]
        assert dataset[-1] == expected[-1]
        for outside in (len(table), -len(table) - 1):
            with pytest.raises(IndexError):
                dataset[outside]
    assert by_place == [True]


@pytest.mark.soak
@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(PLAIN), min_size=1, max_size=4), counts=st.lists(st.integers(0, 20), max_size=5),
    share=st.sampled_from([0.0, 0.5, 1.0]), seed=st.integers(0, 99),
)  # fmt: skip
def test_batches_of_any_number_of_rows(kinds: list[pa.DataType], counts: list[int], share: float, seed: int) -> None:
    """Some without rows, whose buffers may be missing."""
    sink = pa.BufferOutputStream()
    tables = [_table(kinds, [share] * len(kinds), count, seed + i) for i, count in enumerate(counts)]
    with pa.ipc.new_file(sink, _table(kinds, [0.0] * len(kinds), 0, 0).schema) as writer:
        for table in tables:
            writer.write_table(table)
    expected = [row for table in tables for row in table.to_pylist()]
    rows = np.random.default_rng(seed).permutation(len(expected))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.arrow"
        path.write_bytes(sink.getvalue().to_pybytes())
        reader = FORMAT.open(ShardFile(LocalStore(), str(path)), FORMAT.read_options({}))
        found = [reader.get_sample(int(row)) for row in rows]
        assert found == [expected[row] for row in rows]
        assert reader.read(rows).to_pylist() == [expected[row] for row in rows]
        reader.close()


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_columns_beside_one_that_is_not_plain(tmp_path: Path, kind: pa.DataType, by_place: list[bool]) -> None:
    """Its buffers are counted, whatever there is inside."""
    values = {
        "list<item: int32>": [1, 2], "fixed_size_list<item: int8>[2]": [1, 2], "struct<a: string, b: int8>": {"a": "x"},
        "map<string, int32>": [("k", 1)], "decimal128(20, 2)": 7, "fixed_size_binary[3]": b"abc", "null": None,
        "timestamp[us]": 1, "dictionary<values=string, indices=int32, ordered=0>": "x",
    }  # fmt: skip
    count = 9 * ROWS
    odd = pa.array([None if i % 3 == 1 else values[str(kind)] for i in range(count)], kind)
    table = pa.table({"a": [f"{i}" for i in range(count)], "odd": odd, "z": [i * i for i in range(count)]})
    (tmp_path / "rows.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, ROWS))
    rows = np.arange(1, count, 40)
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset.take(rows).equals(table.take(pa.array(rows)))
        assert dataset.take(rows, ["z", "a"]).equals(table.select(["z", "a"]).take(pa.array(rows)))
        assert (dataset[41]["a"], dataset[41]["z"]) == ("41", 41 * 41)
    assert by_place == [False]


@pytest.mark.parametrize("new", [-1, 10, 1 << 30])
def test_offsets_of_a_neighbour_are_looked_at(tmp_path: Path, source: str, new: int, by_place: list[bool]) -> None:
    """Rows whose own offsets are good may still have their neighbour's text."""
    texts = pa.table({"t": [f"{n:05}" for n in range(ROWS)]})
    data = arrow_bytes(texts, max_rows=ROWS)
    bad = data.replace(struct.pack("<2i", 45, 50), struct.pack("<2i", 45, new))
    assert bad != data
    (tmp_path / "rows.arrow").write_bytes(bad)
    with lading.open(tmp_path / "rows.arrow") as dataset:
        for row in (0, 9, 10, 29):
            with pytest.raises(CorruptShard, match=r"rows\.arrow @ \d+ column 't'"):
                dataset[row]
    assert by_place == [True]


def test_a_file_that_became_shorter(tmp_path: Path, source: str) -> None:
    path = tmp_path / "rows.arrow"
    path.write_bytes(arrow_bytes(pa.table({"t": [f"{n:05}" * 99 for n in range(9 * ROWS)]}), max_rows=ROWS))
    with lading.open(path) as dataset:
        assert dataset[8 * ROWS] == {"t": f"{8 * ROWS:05}" * 99}
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(CorruptShard, match=r"changed while it was open"):
            dataset[8 * ROWS]


def test_what_is_asked_of_a_closed_shard_is_an_error(tmp_path: Path, source: str) -> None:
    path = tmp_path / "rows.arrow"
    path.write_bytes(arrow_bytes(pa.table({"n": range(9)})))
    reader = FORMAT.open(ShardFile(LocalStore(), str(path)), FORMAT.read_options({}))
    assert reader.get_sample(3) == {"n": 3}
    reader.close()
    with pytest.raises(lading.LadingError, match="closed"):
        reader.get_sample(3)


def test_rows_are_read_again_when_pages_were_given_back(
    tmp_path: Path, by_place: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file is touched freely until many pages of others were: it counts anew then."""
    monkeypatch.setattr(blocks, "_TOUCHED_BYTES", 1 << 20)
    small, large = tmp_path / "small.arrow", tmp_path / "large.arrow"
    small.write_bytes(arrow_bytes(pa.table({"n": range(99)})))
    texts = [[f"{i:06}" * 100] for i in range(9000)]
    large.write_bytes(arrow_bytes(pa.table({"t": texts}), max_rows=100))
    with lading.open(small) as one, lading.open(large) as other:
        assert one[7] == {"n": 7}
        assert all(other[i]["t"] == texts[i] for i in range(0, 9000, 3))
        assert one[98] == {"n": 98}
    assert by_place == [True, True]


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64])
def test_rows_by_numbers_of_numpy(tmp_path: Path, source: str, kind: type[np.integer[Any]]) -> None:
    """Their sums stay as small as they are: places are beyond."""
    count = 40_000
    (tmp_path / "rows.arrow").write_bytes(arrow_bytes(pa.table({"a": range(count), "b": range(count)}), max_rows=None))
    row = min(count - 1, int(np.iinfo(kind).max))
    with lading.open(tmp_path / "rows.arrow") as dataset:
        assert dataset[kind(row)] == {"a": row, "b": row}
        assert dataset.shards[0][kind(row)] == {"a": row, "b": row}
        assert dataset[np.int8(-1)] == {"a": count - 1, "b": count - 1}


@pytest.mark.soak
@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_any_byte_of_a_head(tmp_path: Path, source: str, make: Any) -> None:
    table = pa.table({"a": [1, 2], "t": ["x", None]})
    whole = arrow_bytes(table, make, 1)
    path = tmp_path / "rows.arrow"
    for at in range(len(whole)):
        value = (whole[at] ^ 0x80, whole[at] ^ 1, 160)[at % 3]
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        with suppress(lading.LadingError), lading.open(path, format="arrow") as dataset:
            for row in range(len(dataset)):
                dataset[row]
            dataset.take(np.arange(len(dataset)))


def test_a_shard_that_is_closed_in_the_midst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another thread: as if it came between finding the places and looking there."""
    path = tmp_path / "rows.arrow"
    path.write_bytes(arrow_bytes(pa.table({"t": [f"{n}" for n in range(99)]})))
    find = reader.find_places
    for ask in (lambda dataset: dataset[5], lambda dataset: dataset.take([5])):
        with lading.open(path) as dataset:

            def closing(*args: Any, dataset: Any = dataset) -> Any:
                found = find(*args)
                dataset.close()
                return found

            monkeypatch.setattr(reader, "find_places", closing)
            with pytest.raises(lading.LadingError, match="closed"):
                ask(dataset)


@pytest.mark.soak
def test_threads_that_share_a_stream_walk_it_once(tmp_path: Path) -> None:
    table = pa.table({"n": range(6000), "t": [f"{n}" for n in range(6000)]})
    for number in range(20):
        (tmp_path / f"{number}.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, 10))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for number in range(20):
            with lading.open(tmp_path / f"{number}.arrow") as dataset, ThreadPoolExecutor(4) as pool:
                rows = np.random.default_rng(number).integers(0, 6000, 40).tolist()
                assert list(pool.map(lambda row, ds=dataset: ds[row]["n"], rows)) == rows  # type: ignore[misc]  # a default
                assert len(dataset) == 6000
    finally:
        sys.setswitchinterval(before)
