"""How Parquet shards are read: steps, limits, filters, requests, damage. The files are pyarrow's."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.parquet import encryption

import lading
from lading._core.formats.arrow.decode import damage as arrow_damage
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.parquet.footer import chunk_facts
from lading._core.formats.parquet.format import FORMAT, ParquetReader
from lading._core.formats.parquet.input import damage as parquet_damage
from lading._core.storage.base import FileInfo
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore
from lading.errors import (
    CorruptShard,
    DataError,
    DuplicateField,
    LadingError,
    LimitExceeded,
    NotFound,
    StoreError,
    UsageError,
)
from lading.limits import Limits

_MB = 1 << 20
_NOISE = np.random.default_rng(7).bytes(4 * _MB)


def _file(table: pa.Table, *, row_group_size: int = 1 << 30, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=row_group_size)
    return bytes(sink.getvalue().to_pybytes())


def _open(data: bytes, **options: Any) -> ParquetReader:
    return FORMAT.open(ShardFile(MemoryStore({"s.parquet": data}), "s.parquet"), FORMAT.read_options(options))


def _batches(data: bytes, max_bytes: int = 64 * _MB, **options: Any) -> Iterator[pa.RecordBatch]:
    return _open(data, **options).batches(Scan(max_rows=1 << 20, max_bytes=max_bytes))


def _numbers(count: int) -> pa.Table:
    return pa.table(
        {"n": pa.array(range(count)), "s": [f"v{i}" for i in range(count)], "b": [b"x%d" % i for i in range(count)]}
    )


# Steps.


@pytest.mark.soak
def test_a_large_row_group_is_read_in_steps() -> None:
    """Rows of 100 bytes, then rows of a megabyte, in one row group: batches are of bytes, not of rows."""
    sizes = [100] * 20_000 + [_MB] * 90 + [100] * 5_000
    starts = np.random.default_rng(1).integers(0, 3 * _MB, len(sizes)).tolist()
    rows = [_NOISE[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    table = pa.table({"n": range(len(rows)), "b": pa.array(rows, pa.large_binary())})
    data = _file(table, compression="none", use_dictionary=["n"], write_batch_size=4)
    assert _open(data).index().num_rows == 1
    count = 0
    for batch in _batches(data):
        assert batch.get_total_buffer_size() < 11 * _MB
        expected = rows[count : count + batch.num_rows]
        assert batch.column("b").to_pylist() == expected
        assert batch.column("n").to_pylist() == list(range(count, count + batch.num_rows))
        count += batch.num_rows
    assert count == len(rows)


@pytest.mark.soak
def test_a_value_that_repeats_from_a_dictionary_is_not_unpacked_at_once() -> None:
    """A megabyte, 100,000 times, in a file of some hundred bytes."""
    values = pa.array([b"", b"\0" * _MB] + [b"%d" % i for i in range(1000)])
    index = np.concatenate([np.arange(20_000) % 1000 + 2, np.ones(100_000, np.int64)])
    column = pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), values)
    data = _file(pa.table({"b": column}), compression="zstd", store_schema=False)
    assert len(data) < 100_000
    count = 0
    for batch in _batches(data):
        assert batch.get_total_buffer_size() < 11 * _MB
        count += batch.num_rows
        if count > 20_100:
            break


_WIDE = 100_000
_TOLD_ONCE: dict[str, tuple[Callable[[], pa.Array], dict[str, Any]]] = {
    "fixed nulls": (lambda: pa.nulls(1000, pa.binary(_WIDE)), {}),
    "fixed values": (lambda: pa.array([_NOISE[:_WIDE]] * 1000, pa.binary(_WIDE)), {}),
    "null lists": (lambda: pa.nulls(1000, pa.list_(pa.float32(), _WIDE // 4)), {}),
    "null lists of lists": (lambda: pa.nulls(1000, pa.list_(pa.list_(pa.float32(), _WIDE // 40), 10)), {}),
    "null lists in lists": (
        lambda: pa.ListArray.from_arrays(pa.array(range(1001), pa.int32()), pa.nulls(1000, pa.list_(pa.int8(), _WIDE))),
        {},
    ),
    "prefixes": (
        lambda: pa.array([_NOISE[:_WIDE]] * 1000, pa.large_binary()),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "write_batch_size": 16},
    ),
}
"""Columns of 100 MB, made by the test: both workers collect it, and keep what the module holds."""


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", _TOLD_ONCE)
def test_values_that_are_told_once_for_many_are_not_unpacked_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """100 MB in a file of 100 KB at most, with no risk taken where no header tells sizes: 8 MB a step."""
    monkeypatch.setattr("lading._core.formats.parquet.pages._RISK", 1)
    make, options = _TOLD_ONCE[name]
    column = make()
    data = _file(pa.table({"c": column}), compression="zstd", **options)
    assert len(data) < 110_000
    rows = 0
    for batch in _batches(data):
        assert batch.get_total_buffer_size() < 11 * _MB
        assert batch.column(0).equals(column.slice(rows, batch.num_rows))
        rows += batch.num_rows
    assert rows == len(column)


_PLAIN_TEXTS = [_NOISE[i : i + 40].hex() for i in range(40_000)]
_EACH_THREE = pa.array(np.arange(0, 6001, 3, dtype=np.int32))
_ORDINARY = {
    "texts": (pa.array(_PLAIN_TEXTS), {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}, 1000),
    "lists of fixed lists": (
        pa.ListArray.from_arrays(
            _EACH_THREE, pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6000 * 512, dtype=np.float32)), 512)
        ),
        {"use_dictionary": False},
        200,
    ),
}


@pytest.mark.parametrize("name", _ORDINARY)
def test_ordinary_values_that_might_be_told_once_for_many_come_in_full_batches(name: str) -> None:
    """After some small steps, as they turn out to be what they seem."""
    column, options, max_rows = _ORDINARY[name]
    found = list(_open(_file(pa.table({"c": column}), **options)).batches(Scan(max_rows=max_rows, max_bytes=64 * _MB)))
    assert pa.chunked_array([batch.column(0) for batch in found]).equals(pa.chunked_array([column]))
    assert len(found) <= len(column) // max_rows + 4


@pytest.mark.soak
def test_large_values_by_prefixes_behind_small_ones_are_decoded_in_small_steps() -> None:
    """All but the first two steps that meet them."""
    texts = pa.array([*_PLAIN_TEXTS[:20_000], *[_NOISE[: _WIDE // 2].hex()] * 800], pa.large_string())
    options = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY", "write_batch_size": 16}
    found = list(_open(_file(pa.table({"c": texts}), **options)).batches(Scan(max_rows=200, max_bytes=1 << 30)))
    assert pa.chunked_array([batch.column(0) for batch in found]).equals(pa.chunked_array([texts]))
    assert sum(batch.nbytes > 17 * _MB for batch in found) <= 2


@pytest.mark.parametrize("encodings, repeats", [([0, 3, 8], True), ([3, 2], True), ([7], True), ([0, 3, 6], False)])
def test_values_repeat_by_their_encodings_wherever_the_dictionary_is_said_to_be(
    encodings: list[int], repeats: bool
) -> None:
    """PLAIN is 0, RLE 3, dictionaries 2 and 8, DELTA_LENGTH_BYTE_ARRAY 6, DELTA_BYTE_ARRAY 7 (`parquet.thrift`)."""
    told = {2: encodings, 4: 0, 5: 100, 6: 50, 7: 40, 9: 4}
    assert chunk_facts(told) == (4, 40, 50, 100, repeats, 0)


@pytest.mark.soak
def test_a_page_that_unpacks_without_measure_is_refused() -> None:
    table = pa.table({"b": pa.array([bytes(100 * _MB)], pa.large_binary())})
    data = _file(table, compression="zstd", use_dictionary=False)
    with pytest.raises(LimitExceeded, match=r"s.parquet @ 4 column 'b': row group 0: a page unpacks to more than 1000"):
        list(_batches(data))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("column", ["list", "text", "payload"])
def test_watched_row_groups_give_what_others_give(monkeypatch: pytest.MonkeyPatch, column: str, version: str) -> None:
    """Whatever pages hold, to look at their headers first changes nothing but the size of batches."""
    values = {
        "list": pa.array([[f"item {i}" * (k + 1) for k in range(i % 5)] for i in range(3000)]),
        "text": pa.array([None if i % 7 == 0 else f"{i % 50}" * 30 for i in range(3000)]),
        "payload": pa.array([_NOISE[i : i + i % 3000] for i in range(3000)], pa.large_binary()),
    }
    table = pa.table({"n": range(3000), "value": values[column]})
    data = _file(table, data_page_version=version, write_batch_size=16, data_page_size=2000)
    monkeypatch.setattr("lading._core.formats.parquet.decode.SAFE_BYTES", 1)
    monkeypatch.setattr("lading._core.formats.parquet.decode.STEP_BYTES", 20_000)
    batches = list(_batches(data, max_bytes=20_000))
    assert pa.Table.from_batches(batches).equals(table)
    assert len(batches) > 5


def test_more_rows_than_the_bytes_of_a_file_can_hold_are_refused() -> None:
    """Six million nulls are one run of levels in one page: with runs of 2^30, so many pages would never end."""
    rows = 6_000_000
    data = _file(pa.table({"n": pa.nulls(rows)}), row_group_size=rows, max_rows_per_page=rows)
    most = 10_000 * len(data)
    assert most + (1 << 20) < rows
    with pytest.raises(LimitExceeded, match=rf"s\.parquet @ \d+: more rows than .*found {rows}\. .*--max bare_rows="):
        _open(data)
    source = ShardFile(MemoryStore({"s.parquet": data}), "s.parquet", limits=Limits(bare_rows=rows - most))
    assert FORMAT.open(source, FORMAT.read_options({})).num_rows() == rows


@pytest.mark.filterwarnings("error")
def test_a_chunk_that_ends_beyond_all_files_is_named() -> None:
    data = _file(pa.table({"a": pa.array([1], pa.int64())}), use_dictionary=False, compression="none")
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    size = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0).total_compressed_size
    told = bytes([0x16, 2 * size & 0x7F | 0x80, 2 * size >> 7])  # an int64 in zigzag, of two bytes
    footer = data[start:-8]
    assert footer.count(2 * told) == 1  # unpacked and packed
    footer = footer.replace(2 * told, told + b"\x16\xfe" + b"\xff" * 8 + b"\x01")  # 2^63 - 1
    with pytest.raises(CorruptShard, match=f"a column chunk that cannot be.*found 4 to {2**63 + 3}"):
        _open(data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def test_small_row_groups_are_read_together() -> None:
    data = _file(_numbers(1000), row_group_size=10)
    assert [batch.num_rows for batch in _batches(data)] == [1000]


def test_a_row_group_without_rows_is_left_out_whatever_it_claims() -> None:
    """A footer of one row group without rows, in which the column claims to unpack to a gigabyte."""
    data = _file(pa.table({"a": pa.array([], pa.int64())}))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    pages, footer = data[:start], data[start:-8]
    at = footer.index(bytes.fromhex("1600161c161e")) + 2  # 0 values, 14 bytes unpacked, 15 packed
    footer = footer[:at] + bytes.fromhex("168080808008") + footer[at + 2 :]
    damaged = pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    for options in ({}, {"filter": pc.field("a") > 1}):
        reader = _open(damaged, **options)
        assert (reader.num_rows(), list(reader.batches(Scan(max_rows=9, max_bytes=_MB)))) == (0, [])


@pytest.mark.soak
def test_very_many_row_groups() -> None:
    data = _file(_numbers(5000), row_group_size=1, use_dictionary=False, store_schema=False)
    assert [batch.num_rows for batch in _batches(data)] == [5000]


def test_limits_of_a_batch() -> None:
    data = _file(_numbers(1000), row_group_size=300)
    reader = _open(data)
    assert [b.num_rows for b in reader.batches(Scan(max_rows=400, max_bytes=_MB))] == [400, 400, 200]
    assert max(b.num_rows for b in reader.batches(Scan(max_rows=400, max_bytes=60))) <= 3


def test_batches_may_be_asked_for_twice_at_a_time() -> None:
    reader = _open(_file(_numbers(100)))
    one, two = (reader.batches(Scan(max_rows=rows, max_bytes=_MB)) for rows in (10, 7))
    assert next(one).num_rows == 10
    assert next(two).num_rows == 7
    assert next(one).column("n")[0].as_py() == 10
    assert reader.read(np.array([99])).column("n").to_pylist() == [99]
    assert next(two).column("n")[0].as_py() == 7


def test_json_that_is_no_text() -> None:
    wrong = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    json = pa.ExtensionArray.from_storage(pa.json_(), wrong)
    for column in (json, pa.ListArray.from_arrays([0, 1], json)):
        with pytest.raises(CorruptShard, match=r"column 'c.*UTF8"):
            list(_batches(_file(pa.table({"c": column}))))


def test_dictionaries_of_row_groups_with_more_values_than_their_indices_can_number(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    words = [[f"{i}-{n}" for n in range(100)] for i in range(3)]
    expected = [word for part in words for word in part]
    parts = [pa.array(part).dictionary_encode().cast(kind) for part in words]
    rows = [pa.StructArray.from_arrays([part], ["a"]) for part in parts]
    table = pa.table({"d": pa.chunked_array(parts), "s": pa.chunked_array(rows)})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for part in table.to_batches():
            writer.write_batch(part)
    pq.write_table(pa.table({"d": expected, "s": [{"a": word} for word in expected]}), tmp_path / "plain.parquet")
    with lading.open(tmp_path / "a.parquet") as dataset:
        assert dataset.schema.field("d").type == pa.dictionary(pa.int32(), pa.string())
        assert all(batch.schema.types == dataset.schema.types for batch in dataset.batches())
        found = dataset.take([250, 3, 120])
        assert found.schema.types == dataset.schema.types
        assert found.to_pylist() == [{"d": expected[i], "s": {"a": expected[i]}} for i in (250, 3, 120)]
    assert lading.diff(tmp_path / "a.parquet", tmp_path / "plain.parquet").equal
    lading.convert(tmp_path / "a.parquet", tmp_path / "out", format="parquet", verify=True)


def test_names_that_several_columns_have() -> None:
    twice = pa.Table.from_arrays([[1, 2], ["x", "y"], [{"u": 3}] * 2, [5, 6]], names=["a", "b", "a", "c"])
    inside = pa.struct([pa.field("x", pa.int8()), pa.field("x", pa.int8())])
    nested = pa.table({"a": pa.nulls(2, pa.list_(inside)), "b": ["x", "y"], "c": [5, 6]})
    for table, message in ((twice, "several columns have this name; found columns 1 and 3 of 4"), (nested, "a struct")):
        reader = _open(_file(table))
        assert reader.schema().names == ["a", "b", "c"]
        assert reader.read(np.array([1, 0]), Scan(["c", "b"])).to_pylist() == [{"c": 6, "b": "y"}, {"c": 5, "b": "x"}]
        for columns in (None, ["b", "a"]):
            with pytest.raises(DuplicateField, match=rf"s.parquet column 'a': {message}.*ds.select\('b', 'c'\)"):
                reader.read(scan=Scan(columns))
    filtered = _open(_file(twice), filter=pc.field("c") > 5)
    assert filtered.read(scan=Scan(["b"])).to_pylist() == [{"b": "y"}]


class _Keys(encryption.KmsClient):  # type: ignore[misc]
    """Keys that hide nothing."""

    def wrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64encode(name.encode() + b"|" + key)

    def unwrap_key(self, key: bytes, name: str) -> bytes:
        return base64.b64decode(key).split(b"|", 1)[1]


def _encrypted(table: pa.Table, **how: Any) -> bytes:
    factory = encryption.CryptoFactory(lambda _: _Keys())
    told = encryption.EncryptionConfiguration(footer_key="k", **how)
    sink = io.BytesIO()
    keys = factory.file_encryption_properties(encryption.KmsConnectionConfig(), told)
    with pq.ParquetWriter(sink, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_columns_that_are_encrypted() -> None:
    table = pa.table({"a": [1], "secret": ["s"], "n": [{"x": 2, "y": 3}], "z": ["t"]})
    reader = _open(_encrypted(table, column_keys={"other": ["secret", "n.x"]}, plaintext_footer=True))
    assert reader.schema() == table.schema
    assert reader.num_rows() == 1
    assert reader.read(scan=Scan(["z", "a"])).to_pylist() == [{"z": "t", "a": 1}]
    for columns in (None, ["a", "secret"]):
        message = (
            r"s.parquet column 'secret': the column is encrypted; found secret. .*no keys. .*ds.select\('a', 'z'\)"
        )
        with pytest.raises(DataError, match=message):
            reader.read(scan=Scan(columns))
    with pytest.raises(DataError, match=r"column 'n': the column is encrypted; found n.x"):
        list(reader.batches(Scan(["n"], max_rows=1, max_bytes=1)))
    with pytest.raises(DataError, match=r"column 'a': the column is encrypted.*The file has no other column"):
        _open(_encrypted(table.select(["a"]), column_keys={"k": ["a"]}, plaintext_footer=True)).read()


def test_footers_that_are_encrypted() -> None:
    data = _encrypted(pa.table({"a": [1]}), column_keys={"other": ["a"]})
    with pytest.raises(DataError, match=r"s.parquet @ \d+: the footer of the Parquet file is encrypted") as caught:
        _open(data)
    assert not isinstance(caught.value, CorruptShard)  # there is nothing to salvage


def _with_counts(table: pa.Table, place: str, count: int) -> bytes:
    """A file of six rows whose footer says another count: of all rows, of its row group, or of the values in `a`."""
    data = _file(table, compression="none", use_dictionary=False)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for at in [start + i for i, byte in enumerate(data[start:-8]) if byte == 2 * 6]:
        changed = data[:at] + bytes([2 * count]) + data[at + 1 :]
        try:
            told = pq.read_metadata(io.BytesIO(changed))
            group = told.row_group(0)
            counts = {"file": told.num_rows, "group": group.num_rows, "values": group.column(0).num_values}
            alike = told.schema.equals(pq.read_metadata(io.BytesIO(data)).schema)
        except OSError:
            continue
        if alike and counts == {**dict.fromkeys(counts, 6), place: count}:
            return changed
    raise AssertionError(f"no {place}")


@pytest.mark.parametrize("count", [0, 4, 9])
@pytest.mark.parametrize("place", ["file", "group", "values"])
def test_counts_of_rows_that_differ(place: str, count: int, tmp_path: Path) -> None:
    table = pa.table({"a": range(6), "b": [*"uvwxyz"], "l": [[1, 2]] * 6})
    path = tmp_path / "s.parquet"
    path.write_bytes(_with_counts(table, place, count))
    report = lading.verify(path)
    assert not report.ok
    told = (
        "number of rows than its row groups have",
        "number of values than the row group",
        "fewer rows than the foot",
    )
    assert any(text in finding["message"] for finding in report.findings for text in told[place == "values" :])
    if (place, count) in {("values", 0), ("group", 9)}:  # pyarrow reads none, or fewer rows than the footer says
        with pytest.raises(CorruptShard):
            _open(path.read_bytes()).read()
        return
    # Batches: whole tables of pyarrow 25 and older have the rows of the pages, those of 26 the rows of the row group.
    expected = pa.Table.from_batches(pq.ParquetFile(path).iter_batches(), table.schema)
    reader = _open(path.read_bytes())
    assert reader.num_rows() == len(expected)
    assert [row for batch in reader.batches(Scan(max_rows=4, max_bytes=_MB)) for row in batch.to_pylist()] == (
        expected.to_pylist()
    )
    assert bool(reader.counts) == (place != "file" and (place, count) != ("values", 4))
    with lading.open(path) as dataset:
        assert len(dataset) == len(expected)


def test_columns_come_in_the_order_asked_for() -> None:
    table = pa.table({"a": [1], "seg.png": [b"x"], "seg": [{"png": 2, "deep": [3]}], "z": [4]})
    reader = _open(_file(table))
    for names in (["z", "seg.png", "a"], ["seg"], ["seg", "seg.png"], [], ["absent", "a"]):
        [batch] = reader.batches(Scan(names, max_rows=9, max_bytes=_MB))
        assert batch.schema.names == [name for name in names if name != "absent"]
        assert batch.num_rows == 1
        assert reader.read(np.array([0, 0]), Scan(names)).num_rows == 2
        assert batch.to_pylist() == [{name: table.to_pylist()[0][name] for name in batch.schema.names}]


def test_random_access_decodes_no_other_row_group() -> None:
    table = pa.table({"b": pa.array([_NOISE[i : i + 50_000] for i in range(100)])})
    data = _file(table, row_group_size=10, use_dictionary=False)
    store = CountingStore(MemoryStore({"s.parquet": data}))
    reader = FORMAT.open(ShardFile(store, "s.parquet"), FORMAT.read_options({}))
    store.reset()
    rows = np.array([57, 3, 57, 51])
    assert reader.read(rows).column("b").to_pylist() == [_NOISE[i : i + 50_000] for i in (57, 3, 57, 51)]
    assert store.bytes_read < 2.2 * 10 * 50_000
    with pytest.raises(UsageError, match="expected 0 to 99, found 100"):
        reader.read(np.array([5, 100]))
    with pytest.raises(UsageError, match="found -1"):
        reader.read(np.array([-1]))


@pytest.mark.soak
@given(st.lists(st.integers(0, 499)), st.integers(1, 200))
def test_rows_by_ordinal_are_those_of_the_whole(rows: list[int], group: int) -> None:
    table = _numbers(500)
    found = _open(_file(table, row_group_size=group)).read(np.array(rows, np.int64))
    assert found.column("n").to_pylist() == rows
    assert found.column("s").to_pylist() == [f"v{i}" for i in rows]


# Options.


def test_row_groups_are_a_shard_of_their_own() -> None:
    data = _file(_numbers(100), row_group_size=10)
    reader = _open(data, row_groups=[7, 2])
    expected = [*range(70, 80), *range(20, 30)]
    assert reader.num_rows() == 20
    assert reader.read().column("n").to_pylist() == expected
    assert [n for b in reader.batches(Scan(max_rows=7, max_bytes=_MB)) for n in b.column("n").to_pylist()] == expected
    assert reader.read(np.array([19, 0])).column("n").to_pylist() == [29, 70]
    assert reader.index().select(["row_group", "first_row", "num_rows"]).to_pylist() == [
        {"row_group": 7, "first_row": 0, "num_rows": 10},
        {"row_group": 2, "first_row": 10, "num_rows": 10},
    ]
    assert _open(data, row_groups=[4, 4]).read().column("n").to_pylist() == [*range(40, 50)] * 2
    with pytest.raises(UsageError, match="no such row group; expected 0 to 9, found 10"):
        _open(data, row_groups=[10])


def test_the_index_tells_where_row_groups_lie() -> None:
    data = _file(_numbers(100), row_group_size=40)
    index = _open(data).index().to_pylist()
    metadata = pq.read_metadata(io.BytesIO(data))
    assert [row["num_rows"] for row in index] == [40, 40, 20]
    assert [row["first_row"] for row in index] == [0, 40, 80]
    for i, row in enumerate(index):
        chunks = [metadata.row_group(i).column(k) for k in range(3)]
        assert row["offset"] == min(c.dictionary_page_offset or c.data_page_offset for c in chunks)
        assert row["length"] == sum(c.total_compressed_size for c in chunks)


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "expression, expected",
    [
        (pc.field("n") >= 95, range(95, 100)),
        ((pc.field("n") < 3) | (pc.field("s") == "v50"), [0, 1, 2, 50]),
        (pc.field("n") > 1000, []),
        (pc.field(0) == 7, [7]),
        (pc.field("b").isin(pa.array([b"x12", b"x99"])), [12, 99]),
        (pc.field("z").is_null(), range(0, 100, 2)),
        (pc.field("z") == 1, range(1, 100, 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("views", [False, True])
def test_a_filter_keeps_rows(expression: pc.Expression, expected: list[int], views: bool) -> None:
    table = _numbers(100).append_column("z", pa.array([1 if i % 2 else None for i in range(100)]))
    data = _file(table, row_group_size=10, store_schema=False)
    reader = _open(data, filter=expression, views=views)
    batches = list(reader.batches(Scan(["b", "n"], max_rows=4, max_bytes=_MB)))
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == list(expected)
    assert [b for batch in batches for b in batch.column("b").to_pylist()] == [b"x%d" % n for n in expected]
    assert reader.num_rows() == len(list(expected))
    assert reader.read().column("n").to_pylist() == list(expected)
    if expected:
        assert reader.read(np.array([len(list(expected)) - 1]), Scan(["n"])).column("n").to_pylist() == [
            list(expected)[-1]
        ]


def test_a_filter_spares_row_groups_and_payload() -> None:
    payload = pa.array([_NOISE[i : i + 150_000] for i in range(100)], pa.large_binary())
    table = pa.table({"n": range(100), "b": payload, "odd": [i % 2 for i in range(100)]})
    data = _file(table, row_group_size=10, use_dictionary=False, write_statistics=["n"])
    store = CountingStore(MemoryStore({"s.parquet": data}))
    source = ShardFile(store, "s.parquet")
    reader = FORMAT.open(source, FORMAT.read_options({"filter": (pc.field("n") > 33) & (pc.field("n") < 36)}))
    assert sum(b.num_rows for b in reader.batches(Scan(max_rows=100, max_bytes=_MB))) == 2
    assert store.bytes_read < 1_800_000
    store.reset()
    reader = FORMAT.open(source, FORMAT.read_options({"filter": pc.field("odd") == 2}))
    assert list(reader.batches(Scan(max_rows=100, max_bytes=_MB))) == []
    assert store.bytes_read < 200_000


_NUMBERS = st.one_of(st.none(), st.integers(-5, 5))
_FLOATS = st.one_of(st.none(), st.sampled_from([float("nan"), -0.0, 0.0, 1.5, float("inf"), -float("inf")]))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "ä", "b" * 100, "\U0001f389"]))


@given(st.lists(st.tuples(_NUMBERS, _FLOATS, _TEXTS), max_size=30), st.data())
def test_no_row_is_lost_to_pruning(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    kinds = [data.draw(st.sampled_from(choice)) for choice in ((pa.int8(), pa.int64()), (pa.float32(), pa.float64()))]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate([*kinds, pa.string()])]
    table = pa.table(columns, names=["n", "x", "s"])
    compare = data.draw(st.sampled_from(["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"]))
    column = data.draw(st.sampled_from(["n", "x", "s"]))
    value = {"n": data.draw(st.integers(-6, 6)), "x": 1.5, "s": "a"}[column]
    expression = getattr(pc.field(column), compare)(value)
    if data.draw(st.booleans()):
        expression = ~expression
    if data.draw(st.booleans()):
        expression = expression | data.draw(st.sampled_from([pc.field("n").is_null(), pc.field("x").is_nan()]))
    file = _file(table, row_group_size=data.draw(st.integers(1, 5)))
    # What the whole table gives, where nothing can be pruned.
    kept = [_open(file, filter=expression).read(), table.filter(expression)]
    assert str(kept[0].to_pylist()) == str(kept[1].to_pylist())


_X, _NAN = pc.field("x"), float("nan")


@pytest.mark.parametrize(
    "expression, expected",
    [
        (~(_X <= 5), [1]),
        (_X.isin([_NAN, 2.0]), [1, 2]),
        (~(_X > 0) | (_X > 10), [1]),
        (_X.is_nan() & (pc.field("n") < 9), [1]),
        (_X != _NAN, [0, 1, 2]),
        (_X.cast(pa.int64(), safe=False) < 2, [0, 1]),
        (pc.scalar(True), [0, 1, 2]),
        (pc.scalar(False), []),
    ],
    ids=str,
)
def test_a_filter_keeps_what_statistics_leave_out(expression: pc.Expression, expected: list[int]) -> None:
    """NaN, which no bounds include; and rows of which no column is looked at."""
    data = _file(pa.table({"n": range(3), "x": [1.0, _NAN, 2.0]}))
    reader = _open(data, filter=expression)
    assert reader.read().column("n").to_pylist() == expected
    assert reader.num_rows() == len(expected)
    assert [n for batch in _batches(data, filter=expression) for n in batch.column("n").to_pylist()] == expected


@pytest.mark.parametrize(
    "expression, groups",
    [(_X > 7, 3), ((_X > 7) & (pc.field("n") < 80), 1), ((_X < 1) | (_X > 8), 3), (_X.cast(pa.int64()) > 7, 10)],
    ids=str,
)
def test_a_filter_of_floats_spares_row_groups(expression: pc.Expression, groups: int) -> None:
    """Where it keeps no NaN; a cast of pyarrow, which has none for NaN, tells nothing."""
    data = _file(pa.table({"n": range(100), "x": pa.array(np.arange(100) / 10)}), row_group_size=10)
    assert _open(data, filter=expression).index().num_rows == groups


def test_a_filter_that_does_not_fit() -> None:
    with pytest.raises(UsageError, match=r"the filter does not fit the columns.*absent"):
        _open(_file(_numbers(3)), filter=pc.field("absent") == 1)
    with pytest.raises(UsageError, match="the filter does not fit"):
        list(_batches(_file(_numbers(3)), filter=pc.field("n") == "text"))


def test_views_own_their_bytes() -> None:
    rows = [_NOISE[i : i + 40_000] for i in range(300)]
    table = pa.table({"b": rows, "s": ["x"] * 300})
    data = _file(table, store_schema=False, write_batch_size=8)
    schema = _open(data, views=True).schema()
    assert schema.types == [pa.binary_view(), pa.large_string()]
    batches = list(_batches(data, views=True))
    assert [row for batch in batches for row in batch.column("b").to_pylist()] == rows
    assert sum(batch.get_total_buffer_size() for batch in batches) < 1.2 * 300 * 40_000
    # With a schema of its own a file says what it is.
    assert _open(_file(table), views=True).schema().types == [pa.large_binary(), pa.string()]


def test_options_that_are_none() -> None:
    with pytest.raises(
        UsageError, match="expected filter, row_groups, mmap, views, media, int96_unit, found 'filters'"
    ):
        _open(_file(_numbers(1)), filters=1)


# Requests.


class _Remote(CountingStore):
    """A store that can do no more than get ranges."""

    def __init__(self, data: bytes) -> None:
        super().__init__(MemoryStore({"s.parquet": data}))
        self.source = ShardFile(self, "s.parquet", FileInfo("s.parquet", len(data)))


def test_a_remote_row_group_takes_few_requests() -> None:
    payload = pa.array([_NOISE[i : i + 20_000] for i in range(400)], pa.large_binary())
    columns = {f"c{i}": range(400) for i in range(20)}
    data = _file(pa.table({**columns, "b": payload, "t": ["text"] * 400}), row_group_size=100, compression="none")
    store = _Remote(data)
    reader = FORMAT.open(store.source, FORMAT.read_options({}))
    assert store.requests == {"get_ranges": 1}
    assert sum(b.num_rows for b in reader.batches(Scan(max_rows=50, max_bytes=_MB))) == 400
    assert store.requests == {"get_ranges": 1 + 4}
    store.reset()
    columns = ["c0", "t"]
    assert sum(b.num_rows for b in reader.batches(Scan(columns, max_rows=50, max_bytes=_MB))) == 400
    assert store.requests["get_ranges"] <= 2 * 4
    assert store.bytes_read < 100_000


@pytest.mark.soak
def test_a_remote_footer_takes_two_requests_at_most() -> None:
    table = pa.table({f"column {i}": [i] for i in range(3000)})
    store = _Remote(_file(table))
    assert FORMAT.open(store.source, FORMAT.read_options({})).read().num_columns == 3000
    assert store.requests["get_ranges"] <= 3


@pytest.mark.soak
def test_a_large_remote_row_group_is_read_in_windows() -> None:
    payload = pa.array([_NOISE[i : i + _MB] for i in range(100)], pa.large_binary())
    data = _file(
        pa.table({"n": range(100), "b": payload}), use_dictionary=False, compression="none", write_batch_size=1
    )
    store = _Remote(data)
    reader = FORMAT.open(store.source, FORMAT.read_options({}))
    for i, batch in enumerate(reader.batches(Scan(max_rows=1000, max_bytes=4 * _MB))):
        assert batch.get_total_buffer_size() < 6 * _MB
        if i == 0:
            assert store.bytes_read < 70 * _MB
    assert store.bytes_read < 1.3 * len(data)
    assert store.requests["get_ranges"] < 12
    assert max(length for _, length in store.ranges["s.parquet"]) <= 64 * _MB


# Damage.


@pytest.mark.soak
@pytest.mark.parametrize("mmap", [False, True])
def test_a_local_file_that_shrinks_is_an_error(tmp_path: Path, mmap: bool) -> None:
    payload = pa.array([_NOISE[i : i + 100_000] for i in range(300)], pa.large_binary())
    path = tmp_path / "s.parquet"
    path.write_bytes(_file(pa.table({"b": payload}), use_dictionary=False, row_group_size=50))
    reader = FORMAT.open(ShardFile(LocalStore(), str(path)), FORMAT.read_options({"mmap": mmap}))
    batches = reader.batches(Scan(max_rows=1000, max_bytes=_MB))
    next(batches)
    os.truncate(path, 4096)
    with pytest.raises(LadingError, match=r"s\.parquet"):
        list(batches)


@pytest.mark.parametrize("damage", [parquet_damage, arrow_damage], ids=["parquet", "arrow"])
@pytest.mark.parametrize("kind", [pa.ArrowMemoryError, MemoryError])
def test_to_be_out_of_memory_is_no_damage(damage: Any, kind: type[Exception]) -> None:
    """pyarrow's error of it is one of those that it raises for damaged bytes, too."""
    with pytest.raises(StoreError, match=r"^s\.parquet: malloc of size 9 failed"), damage("s.parquet"):
        raise kind("malloc of size 9 failed")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    with pytest.raises(StoreError, match="a pipe"):
        FORMAT.open(ShardFile(LocalStore(), str(tmp_path / "pipe.parquet")), FORMAT.read_options({}))
    with pytest.raises(NotFound):
        FORMAT.open(ShardFile(LocalStore(), str(tmp_path / "absent.parquet")), FORMAT.read_options({}))


def test_a_page_with_a_wrong_checksum_is_named() -> None:
    table = pa.table({"n": range(1000), "b": pa.array([_NOISE[i : i + 500] for i in range(1000)])})
    data = bytearray(
        _file(table, row_group_size=500, use_dictionary=False, compression="none", write_page_checksum=True)
    )
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(1).column(1)
    data[chunk.data_page_offset + 5000] ^= 1
    with pytest.raises(CorruptShard, match=rf"s.parquet @ {chunk.data_page_offset} column 'b': row group 1") as caught:
        list(_batches(bytes(data)))
    assert "checksum" in str(caught.value.found)
    assert sum(b.num_rows for b in _batches(bytes(data), row_groups=[0])) == 500


def test_text_that_is_no_text_is_named() -> None:
    text = pa.array([b"fine", b"\xff\xfe"]).view(pa.string())
    for column in (text, pa.StructArray.from_arrays([text], ["inner"])):
        with pytest.raises(CorruptShard, match=r"s.parquet @ \d+ column 't.*: row group 0 cannot be read.*UTF8"):
            list(_batches(_file(pa.table({"t": column}))))


@pytest.mark.soak
def test_a_page_header_of_lists_in_lists_is_named() -> None:
    data = bytearray(_file(pa.table({"l": [[n] for n in range(5000)]}), use_dictionary=False, compression="none"))
    at = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).data_page_offset
    data[at : at + 5000] = b"\x19" * 5000  # a list of one list of one list ...
    with pytest.raises(CorruptShard, match=rf"s.parquet @ {at} .*no page header \(nested too deep\)"):
        list(_batches(bytes(data)))


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "too short for a Parquet file; expected 12 bytes or more, found 0"),
        (b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1", "the footer does not fit into the file"),
        (b"PAR1" + bytes(50) + b"\x32\0\0\0" + b"PAR1", "the footer cannot be read"),
        (b"PAR1" + bytes(50) + b"\0\0\0\0" + b"PAR1", "the footer cannot be read"),
        (b"<html>no such page</html>", "no Parquet file, or a truncated one"),
    ],
)
def test_what_is_no_parquet_file(data: bytes, message: str) -> None:
    with pytest.raises(CorruptShard, match=f"s.parquet.*{message}"):
        _open(data)


@given(st.binary(max_size=40), st.integers(0, 2000))
def test_bytes_changed_anywhere_end_in_data_or_our_errors(change: bytes, at: int) -> None:
    table = pa.table({"n": range(50), "s": ["text"] * 50, "b": [b"x" * 20] * 50, "l": [[1, 2]] * 50})
    data = bytearray(_file(table, compression="zstd"))
    place = at % len(data)
    data[place : place + len(change)] = change
    try:
        reader = _open(bytes(data))
        for batch in reader.batches(Scan(max_rows=10, max_bytes=1000)):
            batch.validate(full=True)
    except LadingError as error:
        message = str(error)
    else:
        message = "read from s.parquet"
    assert "s.parquet" in message


# Threads.


_READS_AND_WRITES = """
import os, sys
import pyarrow as pa, pyarrow.compute as pc
from lading._core.formats.parquet.format import FORMAT
from lading._core.formats.base import Scan, ShardFile
from lading._core.storage.memory import MemoryStore

def threads():
    return len(os.listdir("/proc/self/task"))

before = threads()
store = MemoryStore()
sink = store.put_stream("s.parquet")
table = pa.table({"n": range(10_000), "b": [b"x" * 100] * 10_000})
writer = FORMAT.create([sink], table.schema, FORMAT.write_options({"row_group_bytes": 1000}))
for batch in table.to_batches():
    writer.write(batch)
writer.close()
sink.close()
for options in ({}, {"filter": pc.field("n") > 5}, {"mmap": True}):
    reader = FORMAT.open(ShardFile(store, "s.parquet"), FORMAT.read_options(options))
    list(reader.batches(Scan(max_rows=100, max_bytes=1 << 20)))
    reader.read([5, 3])
print(threads() - before)
"""


@pytest.mark.soak
def test_no_thread_is_started() -> None:
    """A process that has threads cannot be forked safely."""
    done = subprocess.run([sys.executable, "-c", _READS_AND_WRITES], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("0", "")
