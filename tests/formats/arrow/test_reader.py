"""How Arrow files and streams are read: what is fetched, what is kept, and what is refused before it is believed."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from arrow_files import arrow_bytes
from lading._core.arrow.ipc import parse_footer
from lading._core.arrow.references import is_ref
from lading._core.dataset.query import open_shards
from lading._core.dataset.shards.iteration import shard_batches
from lading._core.formats.arrow import blocks
from lading._core.formats.arrow.format import FORMAT, ArrowReader
from lading._core.formats.base import Scan, ShardFile
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading.errors import (
    CorruptShard,
    DataError,
    DuplicateField,
    LadingError,
    LimitExceeded,
    NotFound,
    SidecarMismatch,
    SourceNotFound,
    StoreError,
    UsageError,
)
from lading.limits import DEFAULT_LIMITS, Limits
from registered import NamedType
from watched import forget_peak, peak_mb

_NOISE = np.random.default_rng(3).bytes(1 << 20)


def _table(rows: int = 100, size: int = 10_000) -> pa.Table:
    values = [_NOISE[row * 100 : row * 100 + size] for row in range(rows)]
    return pa.table(
        {"n": range(rows), "b": pa.array(values, pa.large_binary()), "t": [f"row {n}" for n in range(rows)]}
    )


def _open(
    data: bytes, *, mapped: bool = True, limits: Limits = DEFAULT_LIMITS, **options: Any
) -> tuple[ArrowReader, CountingStore]:
    store = CountingStore(MemoryStore({"s.arrow": data}), mapped=mapped)
    return FORMAT.open(ShardFile(store, "s.arrow", limits=limits), FORMAT.read_options(options)), store


def _read(data: bytes, *, mapped: bool = True, **options: Any) -> list[dict[str, Any]]:
    reader, _ = _open(data, mapped=mapped, **options)
    found = [row for batch in reader.batches(Scan(max_rows=1000, max_bytes=1 << 30)) for row in batch.to_pylist()]
    assert reader.num_rows() == len(found)
    return found


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_values_of_a_mapped_file_are_not_copied(make: Any) -> None:
    data = arrow_bytes(_table(), make)
    reader, store = _open(data)
    for batch in reader.batches(Scan(max_rows=7, max_bytes=1 << 30)):
        column = batch.column("b")
        assert data.find(column[0].as_py()) >= 0
        assert column.buffers()[2].size >= 100_000  # of the whole record batch, where it lies
    assert store.requests["get_ranges"] == 0


def test_only_large_values_of_such_rows_are_fetched() -> None:
    table = _table()
    data = arrow_bytes(table)
    reader, store = _open(data, mapped=False)
    assert reader.num_rows() == 100
    before = store.bytes_read
    found = reader.read(np.array([55, 12, 55, 58]))
    assert found.to_pylist() == table.take([55, 12, 55, 58]).to_pylist()
    assert 30_000 <= store.bytes_read - before < 35_000


def test_a_stream_is_walked_as_far_as_it_is_read() -> None:
    data = arrow_bytes(_table(), pa.ipc.new_stream)
    reader, store = _open(data, mapped=False)
    next(reader.batches(Scan(max_rows=5, max_bytes=1 << 30)))
    assert store.bytes_read < 300_000
    assert reader.num_rows() == 100


def test_one_row_costs_its_record_batch_once() -> None:
    data = arrow_bytes(_table())
    reader, store = _open(data, mapped=False)
    assert [reader.get_sample(row)["n"] for row in (31, 39, 30, 35)] == [31, 39, 30, 35]
    before = store.bytes_read
    assert reader.get_sample(33)["t"] == "row 33"
    assert store.bytes_read == before
    with pytest.raises(IndexError, match=r"sample 100 of 100 in s.arrow"):
        reader.get_sample(100)
    with pytest.raises(IndexError):
        reader.get_sample(-1)


def test_a_large_record_batch_is_cut() -> None:
    data = arrow_bytes(_table(), max_rows=1000)
    reader, _ = _open(data)
    sizes = [batch.num_rows for batch in reader.batches(Scan(max_rows=1000, max_bytes=35_000))]
    assert sizes == [3] * 33 + [1]
    assert [batch.num_rows for batch in reader.batches(Scan(max_rows=30, max_bytes=1 << 30))] == [30, 30, 30, 10]


def test_columns_come_in_the_order_asked_for() -> None:
    for data in (arrow_bytes(_table()), arrow_bytes(_table(), compression="zstd")):
        reader, _ = _open(data)
        assert next(reader.batches(Scan(["t", "n"], max_rows=1, max_bytes=1))).to_pydict() == {
            "t": ["row 0"],
            "n": [0],
        }
        assert reader.read(np.array([3]), Scan(["t", "nothing", "n"])).to_pydict() == {"t": ["row 3"], "n": [3]}
        assert next(reader.batches(Scan([], max_rows=7, max_bytes=1 << 30))).num_rows == 7


def test_the_index_lists_record_batches() -> None:
    data = arrow_bytes(_table(25))
    reader, _ = _open(data)
    index = reader.index().to_pydict()
    assert (index["first_row"], index["num_rows"]) == ([0, 10, 20], [10, 10, 5])
    for offset, length, rows in zip(index["offset"], index["length"], index["num_rows"], strict=True):
        message = pa.ipc.read_message(data[offset : offset + length])
        assert pa.ipc.read_record_batch(message, _table().schema).num_rows == rows


def test_files_without_columns_have_rows() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    reader, _ = _open(sink.getvalue().to_pybytes())
    assert reader.num_rows() == 5
    assert [found.num_rows for found in reader.batches(Scan(max_rows=3, max_bytes=1))] == [3, 2]


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_file_cut_meanwhile_is_an_error(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.arrow"
    path.write_bytes(arrow_bytes(_table(), make))
    reader = FORMAT.open(ShardFile(LocalStore(), str(path)), FORMAT.read_options({}))
    batches = reader.batches(Scan(max_rows=10, max_bytes=1 << 30))
    next(batches)
    reader.get_sample(1)
    os.truncate(path, 50_000)
    with pytest.raises(CorruptShard, match="changed while it was open"):
        list(batches)
    with pytest.raises(CorruptShard, match="changed while it was open"):
        reader.get_sample(1)


def test_a_closed_shard_is_not_read() -> None:
    reader, _ = _open(arrow_bytes(_table()))
    reader.close()
    with pytest.raises(UsageError, match="the shard was closed"):
        reader.read()


def test_a_stream_without_its_end_may_have_been_cut() -> None:
    data = arrow_bytes(_table(), pa.ipc.new_stream)[:-8]
    with pytest.raises(CorruptShard, match=r"s.arrow @ .*ends without its end mark.*'unended': True"):
        _read(data)
    assert len(_read(data, unended=True)) == 100


def test_what_follows_the_end_of_a_stream_is_not_read() -> None:
    data = arrow_bytes(_table(), pa.ipc.new_stream)
    assert len(_read(data + b"garbage")) == 100


def _stream(tables: list[pa.Table], **options: Any) -> tuple[bytes, list[int]]:
    """A stream of these tables, each as one record batch, and where each of these begins, or its dictionaries."""
    sink, begins = pa.BufferOutputStream(), []
    with pa.ipc.new_stream(sink, tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for table in tables:
            begins.append(sink.tell())
            writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes()), begins


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


@pytest.mark.parametrize("mark", [bytes(4), bytes(8), b"\xff" * 4 + bytes(4)])
def test_an_end_mark_with_another_end_behind_it(mark: bytes) -> None:
    data, begins = _stream([_table(10)] * 4)
    for begin in begins[1:]:
        with pytest.raises(CorruptShard, match=rf"s.arrow @ {begin}: the stream ends before its end"):
            _read(data[:begin] + mark + data[begin + len(mark) :])
    with pytest.raises(CorruptShard, match=rf"s.arrow @ {len(data) - 8}: .*several streams stand in one file"):
        _read(data + data)
    assert len(_read(data + bytes(50))) == 40


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("coded", [True, False])
def test_record_batches_do_not_become_dictionaries(rows: int, coded: bool) -> None:
    """Whichever bit flips where the head of one says what it is, no rows vanish."""
    table = pa.table({"n": range(rows), "t": pa.array(["a"] * rows), "m": pa.array([b"b"] * rows)})
    if coded:
        table = table.append_column("d", pa.array(["c"] * rows).dictionary_encode())
    data, begins = _stream([table] * 3)
    refused = 0
    for at in range(begins[2], begins[2] + 64):
        for bit in (1, 8):
            try:
                found = _read(_flipped(data, at, bit))
            except LadingError:
                refused += 1
            else:
                assert len(found) == 3 * rows
    assert refused > 20


def test_a_row_needs_the_dictionary_of_its_batch_alone() -> None:
    """Not all that stood in the stream before."""
    tables = [pa.table({"d": pa.array([f"a{n}", f"b{n}"]).dictionary_encode()}) for n in range(50)]
    data, _ = _stream(tables)
    reader, store = _open(data, mapped=False)
    assert reader.num_rows() == 100
    for row in (99, 0, 60, 3, 97):
        before = store.requests["get_ranges"]
        assert reader.get_sample(row) == {"d": f"{'ab'[row % 2]}{row // 2}"}
        assert store.requests["get_ranges"] - before == 2


def test_dictionaries_that_grow_are_read_from_where_they_began() -> None:
    words = [[*"abcdef"[: 1 + n % 6]] if n % 12 < 6 else [*"uvwxyz"[: 1 + n % 6]] for n in range(48)]
    tables = [
        pa.table(
            {
                "d": pa.DictionaryArray.from_arrays(pa.array([0, n % 6], pa.int32()), words[n]),
                "e": pa.array([f"e{n // 5}", "e"]).dictionary_encode(),
            }
        )
        for n in range(48)
    ]
    data, _ = _stream(tables, emit_dictionary_deltas=True)
    rows = pa.ipc.open_stream(data).read_all().to_pylist()
    reader, _ = _open(data)
    for row in np.random.default_rng(5).permutation(96).tolist():
        assert reader.get_sample(row) == rows[row]


@pytest.mark.soak
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_batch_that_unpacks_to_far_more_is_refused(compression: str) -> None:
    zeros = pa.table({"b": pa.array([bytes(1 << 20)] * 300, pa.large_binary())})
    data = arrow_bytes(zeros, max_rows=1000, compression=compression)
    with pytest.raises(LimitExceeded, match=r"s.arrow @ \d+: a compressed batch.*arrow_batch_bytes"):
        _read(data)
    reader, _ = _open(data, limits=Limits(arrow_batch_bytes=1 << 30))
    assert sum(batch.num_rows for batch in reader.batches(Scan(max_rows=10, max_bytes=1 << 30))) == 300
    assert len(_read(arrow_bytes(zeros, max_rows=100, compression=compression))) == 300


def test_a_size_before_compressed_bytes_is_not_believed() -> None:
    data = arrow_bytes(pa.table({"b": [_NOISE[:77_777]]}), compression="zstd")
    for size in (1 << 62, -5):
        with pytest.raises((LimitExceeded, CorruptShard), match=r"s.arrow @"):
            _read(data.replace(struct.pack("<q", 77_777), struct.pack("<q", size)))


def test_more_rows_than_bytes_are_refused() -> None:
    data = arrow_bytes(pa.table({"n": pa.nulls(77_777)}), pa.ipc.new_stream, max_rows=1 << 20)
    found = data.replace(struct.pack("<q", 77_777), struct.pack("<q", 1 << 40))
    with pytest.raises(LimitExceeded, match="more rows than the bytes of the batches can hold"):
        _read(found)


_MANY = 3 << 20
_OF_NOTHING = {
    "nulls": pa.nulls(_MANY),
    "bytes of length 0": pa.Array.from_buffers(pa.binary(0), _MANY, [None, pa.py_buffer(b"")]),
    "structs without fields": pa.Array.from_buffers(pa.struct([]), _MANY, [None]),
    "a run": pa.RunEndEncodedArray.from_arrays(pa.array([_MANY], pa.int32()), pa.array(["a"])),
    "fixed lists of length 0": pa.Array.from_buffers(pa.list_(pa.null(), 0), _MANY, [None], children=[pa.nulls(0)]),
}


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("name", _OF_NOTHING)
def test_more_values_in_lists_than_bytes_are_refused(name: str, fixed: bool) -> None:
    values = _OF_NOTHING[name]
    lists = pa.FixedSizeListArray.from_arrays(values, _MANY) if fixed else pa.ListArray.from_arrays([0, _MANY], values)
    data = arrow_bytes(pa.table({"a": lists}), pa.ipc.new_stream)
    assert len(data) < 2000
    reader, _ = _open(data)
    with pytest.raises(LimitExceeded, match=r"more rows than the bytes of the batches can hold.*--max bare_rows="):
        next(reader.batches(Scan(max_rows=10, max_bytes=1 << 30)))


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_rows_without_columns_of_a_writer_that_compresses(compression: str | None) -> None:
    batch = pa.record_batch({"n": pa.nulls(3)}).select([])
    for make in (pa.ipc.new_file, pa.ipc.new_stream):
        sink = pa.BufferOutputStream()
        with make(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_batch(batch)
        reader, _ = _open(bytes(sink.getvalue().to_pybytes()))
        assert [part.num_rows for part in reader.batches(Scan(max_rows=2, max_bytes=1 << 20))] == [2, 1]


def test_rows_that_take_no_bytes_are_counted_over_all_batches_and_once_each() -> None:
    data = arrow_bytes(pa.table({"n": pa.nulls(1000)}), max_rows=100)
    assert len(_read(data, limits=Limits(bare_rows=1000))) == 1000
    with pytest.raises(LimitExceeded, match=r"expected at most 999 more, found 1000.*--max bare_rows="):
        _read(data, limits=Limits(bare_rows=999))
    reader, _ = _open(data, limits=Limits(bare_rows=1000))
    for _ in range(2):
        assert reader.read(np.arange(1000)).num_rows == 1000


@pytest.mark.parametrize("mapped", [True, False])
def test_offsets_that_run_backwards_or_away(mapped: bool) -> None:
    values = pa.table({"t": [f"{n:05}" for n in range(10)]})
    data = arrow_bytes(values)
    for new in (-1, 10, 1 << 30):
        for old in (35, 50):
            damaged = data.replace(struct.pack("<2i", old - 5, old), struct.pack("<2i", old - 5, new))
            assert damaged != data
            with pytest.raises(CorruptShard, match=r"s.arrow @ \d+ column 't'"):
                _read(damaged, mapped=mapped)
            reader, _ = _open(damaged, mapped=mapped)
            with pytest.raises(CorruptShard, match=r"s.arrow"):
                reader.get_sample(2)


def test_text_that_is_no_text() -> None:
    data = arrow_bytes(pa.table({"t": ["abc", "MARK", "def"], "m": ["x", "y", "z"]})).replace(b"MARK", b"MA\xff\xfe")
    with pytest.raises(CorruptShard, match=r"s.arrow.*column 't'"):
        _read(data)
    reader, _ = _open(data)
    assert reader.get_sample(0) == {"t": "abc", "m": "x"}
    assert reader.read(np.array([2])).to_pylist() == [{"t": "def", "m": "z"}]
    with pytest.raises(LadingError, match=r"s.arrow row 1 column 't'"):
        reader.get_sample(1)
    with pytest.raises(LadingError, match=r"s.arrow"):
        reader.read(np.array([1]))


def test_indices_past_a_dictionary() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, 1, 0], pa.int32()), ["a", "b"])
    data = arrow_bytes(pa.table({"d": column}), pa.ipc.new_stream)
    indices = struct.pack("<3i", 1, 1, 0)
    assert data.count(indices) == 1
    for bad in (2, -1, 1 << 30):
        with pytest.raises(CorruptShard, match=r"s.arrow.*'d'"):
            _read(data.replace(indices, struct.pack("<3i", 1, bad, 0)))


def test_dates_that_python_does_not_have() -> None:
    data = arrow_bytes(pa.table({"d": pa.array([0, 2**31 - 1], pa.date32())}))
    reader, _ = _open(data)
    assert reader.get_sample(0)["d"].year == 1970
    with pytest.raises(LadingError, match=r"s.arrow row 1 column 'd': Python cannot hold this value"):
        reader.get_sample(1)


@pytest.mark.parametrize("kind", [pa.string(), pa.null(), pa.float16()], ids=str)
def test_dictionaries_that_pyarrow_does_not_join(tmp_path: Path, kind: pa.DataType) -> None:
    rows = [[None, "a"], [None, "b"]] if kind == pa.string() else [[None, 0.5], [None, -2.0]]
    rows = [[None, None]] * 2 if kind == pa.null() else rows
    words = [pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(row, kind)) for row in rows]
    expected = [value for row in rows for value in [*row, None]]
    table = pa.table({"n": range(6), "d": pa.chunked_array(words)})
    (tmp_path / "a.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, 3))
    with lading.open(tmp_path) as dataset:
        found = dataset.take([4, 0, 1])
        assert found.column("d").to_pylist() == [expected[i] for i in (4, 0, 1)]
        assert found.schema.field("d").type == dataset.schema.field("d").type
        assert [value for batch in dataset.batches() for value in batch.column("d").to_pylist()] == expected


def _own_words(kind: pa.DataType, parts: list[list[Any]], index: pa.DataType) -> list[pa.Array]:
    """A dictionary column of each list, whose values are just those; a null behind them."""
    return [pa.DictionaryArray.from_arrays(pa.array([*range(len(p)), None], index), pa.array(p, kind)) for p in parts]


def _runs(value: Any, kind: pa.DataType) -> pa.Array:
    stored = pa.array([value, None], getattr(kind, "storage_type", kind))
    values = pa.ExtensionArray.from_storage(kind, stored) if isinstance(kind, pa.BaseExtensionType) else stored
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int16()), values)


_UNLIKE = {
    "more than 8 bits number": _own_words(pa.string(), [[f"{i}-{n}" for n in range(100)] for i in range(3)], pa.int8()),
    "numbers": _own_words(pa.int64(), [[*range(200)], [*range(100, 300)]], pa.uint8()),
    "lists": _own_words(pa.list_(pa.int8()), [[[1], [2]], [[9], None]], pa.int32()),
    "views in lists": _own_words(pa.list_(pa.string_view()), [[["a"], ["b" * 20]], [["c"]]], pa.int16()),
    "structs": _own_words(pa.struct([("x", pa.int8())]), [[{"x": 1}], [{"x": 2}]], pa.int8()),
    "maps": _own_words(pa.map_(pa.string(), pa.int8()), [[[("a", 1)]], [[("b", 2)]]], pa.uint64()),
    "extensions that hold them": [
        pa.ExtensionArray.from_storage(pa.opaque(words.type, "words", "me"), words)
        for words in _own_words(pa.string(), [[f"{i}-{n}" for n in range(100)] for i in range(3)], pa.int8())
    ],
    "run ends": [
        pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.RunEndEncodedArray.from_arrays([1], pa.array([text])))
        for text in "ab"
    ],
    **{
        f"run ends of {kind}": [pa.DictionaryArray.from_arrays([0, 2, None], _runs(v, kind)) for v in values]
        for kind, values in {
            pa.duration("s"): [1, 2],
            pa.timestamp("us", "UTC"): [1, 2],
            pa.time32("s"): [1, 2],
            pa.int64(): [1, 2],
            pa.decimal128(5, 2): [1, 2],
            pa.binary(2): [b"ab", b"cd"],
        }.items()
    },
    **{
        f"{kind} in run ends": [_runs(value, kind) for value in values]
        for kind, values in {
            pa.uuid(): [b"0" * 16, b"1" * 16],
            pa.json_(): ["1", "2"],
            pa.bool8(): [0, 1],
            pa.fixed_shape_tensor(pa.int8(), [2]): [[1, 2], [3, 4]],
        }.items()
    },
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", _UNLIKE)
@pytest.mark.parametrize("inside", ["a column", "list", "struct"])
def test_dictionaries_and_runs_of_two_files_that_are_unlike(tmp_path: Path, inside: str, name: str) -> None:
    columns = _UNLIKE[name]
    if inside == "list":
        columns = [pa.ListArray.from_arrays([*range(len(column) + 1)], column) for column in columns]
    if inside == "struct":
        columns = [pa.StructArray.from_arrays([column], ["d"]) for column in columns]
    values = [value for column in columns for value in column.to_pylist()]
    (tmp_path / "in").mkdir()
    for i, column in enumerate(columns):
        (tmp_path / "in" / f"{i}.arrow").write_bytes(arrow_bytes(pa.table({"d": column}), pa.ipc.new_stream, None))
    with lading.open(tmp_path / "in") as dataset:
        kind = dataset.schema.field("d").type
        batches = [batch.column("d") for batch in dataset.batches()]
        assert {batch.type for batch in batches} == {kind}
        assert [value for batch in batches for value in batch.to_pylist()] == values
        order = [len(values) - 1, 0, len(values) - 2, 1, 0]
        found = dataset.take(order).column("d")
        assert (found.type, found.to_pylist()) == (kind, [values[i] for i in order])
        assert dataset[0]["d"] is not None
        batches = [batch.column("d") for batch in dataset.batches()]
    lading.convert(tmp_path / "in", tmp_path / "out", format="arrow", verify=True)
    with lading.open(tmp_path / "out") as dataset:
        assert [value for batch in dataset.batches() for value in batch.column("d").to_pylist()] == values


def test_dictionaries_of_unlike_lists_in_one_stream(tmp_path: Path) -> None:
    columns = _own_words(pa.list_(pa.int8()), [[[1], [2]], [[9]]], pa.int32())
    table = pa.table({"d": pa.chunked_array(columns)})
    (tmp_path / "d.arrows").write_bytes(arrow_bytes(table, pa.ipc.new_stream, None))
    assert lading.verify(tmp_path / "d.arrows", deep=True).ok
    (tmp_path / "plain.arrows").write_bytes(arrow_bytes(pa.table({"d": [[1], [2], None, [9], None]})))
    assert lading.diff(tmp_path / "d.arrows", tmp_path / "plain.arrows").equal


def _say_big_endian(data: bytearray, root: int, field: int) -> None:
    """Have the schema that is this field of a flatbuffer say that numbers stand the other way round."""

    def place(table: int, number: int) -> int:
        vtable = table - struct.unpack_from("<i", data, table)[0]
        at: int = table + struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0]
        return at

    at = place(root + struct.unpack_from("<I", data, root)[0], field)
    schema = at + struct.unpack_from("<I", data, at)[0]
    one = next(at for at in range(schema + 4, schema + 400, 2) if data[at : at + 2] == b"\1\0")
    struct.pack_into("<H", data, schema - struct.unpack_from("<i", data, schema)[0] + 4, one - schema)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("layout", ["file", "stream"])
def test_files_of_machines_that_store_numbers_the_other_way_round(tmp_path: Path, layout: str, mapped: bool) -> None:
    make, peer = (pa.ipc.new_file, pa.ipc.open_file) if layout == "file" else (pa.ipc.new_stream, pa.ipc.open_stream)
    data = bytearray(arrow_bytes(pa.table({"a": np.array([1, 2, 3], "<i4").byteswap()}), make))
    head = data.index(b"\xff\xff\xff\xff") + 8
    _say_big_endian(data, head, 2)
    if layout == "file":
        _say_big_endian(data, _footer(bytes(data))[0], 1)
    assert peer(pa.BufferReader(bytes(data))).read_all().to_pydict() == {"a": [1, 2, 3]}
    with pytest.raises(DataError, match=r"s.arrow @ \d+: .*; expected little-endian, found big-endian. Read it with"):
        _open(bytes(data), mapped=mapped)
    if layout == "file":
        data[head : head + 20] = bytes(20)  # the footer tells of it still
    (tmp_path / "s.arrow").write_bytes(data)
    with pytest.raises(DataError, match="no sample could be saved"):
        lading.salvage(tmp_path / "s.arrow", tmp_path / "out")


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_names_that_several_columns_have(make: Any, compression: str | None) -> None:
    twice = pa.Table.from_arrays([[1, 2], ["x", "y"], [3, 4], [5, 6]], names=["a", "b", "a", "c"])
    inside = pa.struct([pa.field("x", pa.int8()), pa.field("x", pa.int8())])
    nested = pa.table({"a": pa.nulls(2, pa.list_(inside)), "b": ["x", "y"], "c": [5, 6]})
    for table, message in ((twice, "several columns have this name; found columns 1 and 3 of 4"), (nested, "a struct")):
        reader, _ = _open(arrow_bytes(table, make, compression=compression))
        assert reader.schema().names == ["a", "b", "c"]
        assert reader.num_rows() == 2
        assert reader.read(np.array([1, 0]), Scan(["c", "b"])).to_pylist() == [{"c": 6, "b": "y"}, {"c": 5, "b": "x"}]
        [batch] = reader.batches(Scan(["b"], max_rows=9, max_bytes=99))
        assert batch.to_pydict() == {"b": ["x", "y"]}
        for look in (reader.read, lambda r=reader: r.read(scan=Scan(["b", "a"])), lambda r=reader: r.get_sample(0)):
            with pytest.raises(DuplicateField, match=rf"s.arrow column 'a': {message}.*ds.select\('b', 'c'\)"):
                look()


def test_rows_are_counted_where_the_first_column_cannot_be_read(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([[1, 2], ["x", "y"], [3, 4]], names=["a", "b", "a"])
    (tmp_path / "a.arrow").write_bytes(arrow_bytes(twice, pa.ipc.new_file))
    with lading.open(tmp_path / "a.arrow") as dataset:
        assert lading.info(dataset.select("b")).samples == 2
        assert lading.info(dataset.drop("a")).samples == 2


def _footer(data: bytes) -> tuple[int, int]:
    [length] = struct.unpack("<i", data[-10:-6])
    return len(data) - 10 - length, length


def test_blocks_outside_the_file_or_listed_too_often() -> None:
    data = arrow_bytes(_table(30))
    start, _ = _footer(data)
    reader, _ = _open(data)
    index = reader.index().to_pydict()
    for new in (len(data), 1 << 60, -8, 0):
        footer = data[start:].replace(struct.pack("<q", index["offset"][1]), struct.pack("<q", new))
        with pytest.raises(CorruptShard, match=r"s.arrow @ .*the footer lists a block outside"):
            _open(data[:start] + footer)
    many = bytearray(arrow_bytes(pa.table({"n": range(3000)}), max_rows=10))
    listed = parse_footer(memoryview(many)[_footer(bytes(many))[0] : -10]).batches  # type: ignore[arg-type]
    listed[1:] = listed[0]
    assert _read(bytes(many)) == [{"n": n} for n in range(10)] * 300
    wide = bytearray(arrow_bytes(pa.table({"n": range(300), "b": [_NOISE] + [b""] * 299}), max_rows=1))
    listed = parse_footer(memoryview(wide)[_footer(bytes(wide))[0] : -10]).batches  # type: ignore[arg-type]
    listed[1:] = listed[0]
    with pytest.raises(CorruptShard, match=r"s.arrow @ .*the footer lists the same blocks again and again"):
        _open(bytes(wide))
    wrong = data[start:].replace(struct.pack("<q", index["offset"][1]), struct.pack("<q", index["offset"][1] + 8))
    with pytest.raises(CorruptShard):
        _read(data[:start] + wrong)


@pytest.mark.cases(3)
@pytest.mark.parametrize("bit", [1, 4, 8, 16])
def test_one_bit_of_a_footer_takes_no_rows_away_unsaid(bit: int) -> None:
    table = pa.table({"n": range(60), "d": pa.array([*"ab"] * 30).dictionary_encode()})
    data = arrow_bytes(table)
    start, length = _footer(data)
    refused = 0
    for at in range(start, start + length):
        damaged = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
        reader = None
        try:
            reader, _ = _open(damaged)
            found = [
                row for batch in reader.batches(Scan(max_rows=1000, max_bytes=1 << 30)) for row in batch.to_pylist()
            ]
        except LadingError:
            refused += 1
        else:
            try:
                assert found == pa.ipc.open_file(damaged).read_all().to_pylist()
            except pa.ArrowInvalid:  # alignment, sizes of heads: values are where they were
                assert found == table.to_pylist()
            assert len(found) + sum(reader.counts.values()) == 60
    assert refused > length // 4


@pytest.mark.parametrize("batches", [0, 3])
def test_footers_behind_any_end(batches: int) -> None:
    """With an end mark of today's or of old, with zeros behind it, or with none."""
    table = _table(batches * 10)
    data = arrow_bytes(table)
    start, _ = _footer(data)
    for end in (b"", bytes(4), bytes(8), b"\xff" * 4 + bytes(4), b"\xff" * 4 + bytes(60), bytes(500)):
        found = data[: start - 8] + end + data[start:]
        assert pa.ipc.open_file(found).read_all() == table
        assert _read(found) == table.to_pylist()


@pytest.mark.parametrize("length", [-1, 0, 1, 1 << 30, -(1 << 31)])
def test_lengths_of_footers_that_cannot_be(length: int) -> None:
    data = arrow_bytes(_table(30))
    with pytest.raises(CorruptShard, match=r"s.arrow"):
        _open(data[:-10] + struct.pack("<i", length) + b"ARROW1")


@pytest.mark.parametrize(
    "data",
    [b"", b"ARROW1", b"ARROW1\0\0", b"ARROW1\0\0ARROW1", b"\xff" * 4, b"\xff" * 8, b"\xff" * 4 + b"\0" * 4, b"x" * 50],
)
def test_files_that_are_none(data: bytes) -> None:
    for mapped in (True, False):
        with pytest.raises(LadingError, match=r"s.arrow"):
            _read(data, mapped=mapped)


def test_a_head_that_is_longer_than_the_file() -> None:
    data = arrow_bytes(_table(), pa.ipc.new_stream)
    with pytest.raises(CorruptShard, match="the head of a message runs past the end"):
        _open(data[:4] + struct.pack("<i", 1 << 30) + data[8:])


def _cache(store: MemoryStore, shards: dict[str, pa.Table], **told: Any) -> None:
    for name, table in shards.items():
        _put(store, f"set/{name}", arrow_bytes(table))
    index = {
        "cache_format_version": 1,
        "num_rows": sum(map(len, shards.values())),
        "num_shards": len(shards),
        "shard_row_counts": [len(table) for table in shards.values()],
        "shard_filenames": list(shards),
        **told,
    }
    _put(store, "set/_metadata.json", json.dumps(index).encode())


def _put(store: MemoryStore, path: str, data: bytes) -> None:
    sink = store.put_stream(path)
    sink.write([data])
    sink.close()


def test_shards_of_one_dataset_have_the_same_columns(tmp_path: Path) -> None:
    store = MemoryStore()
    _cache(store, {"a.arrow": pa.table({"n": [1]}), "b.arrow": pa.table({"n": ["x"]})})
    shards = FORMAT.index.shards(store, "set/_metadata.json", b"") or []
    FORMAT.open(ShardFile(store, shards[0].path, entry=shards[0].entry), FORMAT.read_options({}))
    with pytest.raises(SidecarMismatch, match=r"set/b.arrow: the columns differ.*found n: string"):
        FORMAT.open(ShardFile(store, shards[1].path, entry=shards[1].entry), FORMAT.read_options({}))


_PAIRS = pa.array([[1, 2]], pa.list_(pa.int8()))


@pytest.mark.parametrize(
    "make",
    [
        lambda pairs: pairs,
        lambda pairs: pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), pairs),
        lambda pairs: pa.StructArray.from_arrays([pairs], names=["p"]),
        lambda pairs: pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), pairs),
    ],
    ids=["pair", "list", "struct", "map"],
)
def test_columns_are_the_same_whatever_types_a_process_has_registered(make: Any) -> None:
    store = MemoryStore()
    _cache(store, {"a.arrow": pa.table({"p": make(pa.ExtensionArray.from_storage(NamedType(_PAIRS.type), _PAIRS))})})
    [unknown] = FORMAT.index.shards(store, "set/_metadata.json", b"") or []
    pa.register_extension_type(NamedType(_PAIRS.type))
    try:
        [known] = FORMAT.index.shards(store, "set/_metadata.json", b"") or []
        found = FORMAT.open(ShardFile(store, unknown.path, entry=unknown.entry), FORMAT.read_options({})).read()
    finally:
        pa.unregister_extension_type("tests.named")
    assert known.entry == unknown.entry
    assert found.to_pylist() == pa.table({"p": make(_PAIRS)}).to_pylist()


@pytest.mark.parametrize(
    "told, message",
    [
        ({"cache_format_version": 2}, "'cache_format_version': a cache of another kind; expected 1, found 2"),
        ({"cache_format_version": True}, "a cache of another kind"),
        ({"format": "lance"}, "'format': a cache of another kind; expected arrow, found 'lance'"),
        ({"layout": "lance-rows"}, "'layout'"),
        ({"shard_filenames": "a.arrow"}, "expected two lists of one length"),
        ({"shard_row_counts": [1, 2]}, "expected two lists of one length"),
        ({"shard_row_counts": [1.0]}, "not numbers of rows"),
        ({"shard_row_counts": [-1]}, "not numbers of rows"),
        ({"num_rows": 2}, "'num_rows': the counts of the cache do not add up; expected 1, found 2"),
        ({"num_shards": None}, "'num_shards'"),
        ({"num_shards": True}, "'num_shards'"),
        ({"num_rows": True}, "'num_rows': the counts of the cache do not add up; expected 1, found True"),
        ({"num_rows": 1.0}, "'num_rows'"),
        ({"schema_fingerprint": 5}, "'schema_fingerprint': not a fingerprint"),
        ({"shard_filenames": ["/etc/passwd"]}, "'shard_filenames': the index names no file of its folder"),
        ({"shard_filenames": ["s3://x/a.arrow"]}, "'shard_filenames': the index names no file of its folder"),
        ({"shard_filenames": ["x/../../a.arrow"]}, "'shard_filenames': the index names a file outside its folder"),
        ({"shard_filenames": ["."]}, "'shard_filenames': the index names a file outside its folder"),
        ({"shard_filenames": [7]}, "'shard_filenames': the index names no file of its folder"),
    ],
)
def test_caches_that_are_refused(told: dict[str, Any], message: str) -> None:
    store = MemoryStore()
    _cache(store, {"a.arrow": pa.table({"n": [1]})}, **told)
    with pytest.raises(LadingError, match=f"set/.*{message}"):
        FORMAT.index.shards(store, "set/_metadata.json", b"")


def test_a_first_shard_that_is_gone_is_told_by_whoever_reads_it() -> None:
    store = MemoryStore()
    _cache(store, {"a.arrow": pa.table({"n": [1]})}, shard_filenames=["gone.arrow"])
    [listed] = FORMAT.index.shards(store, "set/_metadata.json", b"") or []
    assert (listed.path, listed.num_samples, listed.entry) == ("set/gone.arrow", 1, "{}")
    with pytest.raises(NotFound, match=r"set/gone\.arrow: no such file"):
        FORMAT.open(ShardFile(store, listed.path, entry=listed.entry), FORMAT.read_options({}))


@pytest.mark.parametrize(
    "name, text",
    [("_metadata.json", "[]"), ("_metadata.json", '{"a": 1}'), ("state.json", "{}"), ("dataset_dict.json", "{}")],
)
def test_files_of_these_names_that_are_somebody_elses(name: str, text: str) -> None:
    store = MemoryStore({f"set/{name}": text.encode()})
    assert FORMAT.index.shards(store, f"set/{name}", text.encode()) is None


def test_saved_selections_of_old_are_refused() -> None:
    state = {"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "indices.arrow"}]}
    store = MemoryStore({"set/state.json": json.dumps(state).encode()})
    with pytest.raises(LadingError, match=r"set/state.json.*a selection of its rows"):
        FORMAT.index.shards(store, "set/state.json", b"")


def test_features_beside_streams_that_tell_none() -> None:
    state = {"_data_files": [{"filename": "a.arrow"}]}
    info = {"features": {"n": {"names": ["no", "yes"], "_type": "ClassLabel"}}}
    store = MemoryStore({
        "set/state.json": json.dumps(state).encode(),
        "set/dataset_info.json": json.dumps(info).encode(),
        "set/a.arrow": arrow_bytes(pa.table({"n": [1]}), pa.ipc.new_stream),
    })  # fmt: skip
    [shard] = FORMAT.index.shards(store, "set/state.json", b"") or []
    reader = FORMAT.open(ShardFile(store, shard.path, entry=shard.entry), FORMAT.read_options({}))
    told = json.loads(reader.schema().field("n").metadata[b"lading.feature"])
    assert told == {"kind": "class_label", "names": ["no", "yes"]}


def test_a_saved_dataset_without_files_has_columns(tmp_path: Path) -> None:
    features = {"n": {"dtype": "int8", "_type": "Value"}, "img": {"_type": "Image"}}
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    (tmp_path / "train" / "state.json").write_text('{"_data_files": []}')
    with lading.open(tmp_path) as dataset:
        assert (len(dataset), dataset.schema.names) == (0, [])
    (tmp_path / "train" / "dataset_info.json").write_text(json.dumps({"features": features}))
    for folder in (tmp_path, tmp_path / "train"):
        with lading.open(folder) as dataset:
            media = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            assert (len(dataset), dataset.schema.types) == (0, [pa.int8(), media])
            assert dataset.schema.field("img").metadata == {b"lading.feature": b'{"kind":"image"}'}
    lading.convert(tmp_path, tmp_path / "out", format="parquet")
    with lading.open(tmp_path / "out") as dataset:
        assert dataset.schema.names == ["n", "img"]
    (tmp_path / "train" / "dataset_info.json").write_text('{"features": {"n": {"_type": "Hologram"}}}')
    with (
        lading.open(tmp_path) as dataset,
        pytest.raises(DataError, match=r"dataset_info.json column 'n': not a feature"),
    ):
        _ = dataset.schema


def test_the_only_split_is_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    (tmp_path / "train" / "state.json").write_text('{"_data_files": [{"filename": "a.arrow"}]}')
    (tmp_path / "train" / "a.arrow").write_bytes(arrow_bytes(pa.table({"n": [1, 2]}), pa.ipc.new_stream))
    with lading.open(tmp_path) as dataset:
        assert [row["n"] for row in dataset] == [1, 2]


def test_a_folder_of_plain_files_needs_no_index(tmp_path: Path) -> None:
    for name in ("b.feather", "a.arrow"):
        (tmp_path / name).write_bytes(arrow_bytes(pa.table({"n": [name]})))
    with lading.open(tmp_path) as dataset:
        assert [row["n"] for row in dataset] == ["a.arrow", "b.feather"]
    (tmp_path / "b.feather").rename(tmp_path / "shard-00000.arrow")
    with pytest.raises(LadingError, match=r"_metadata.json.*no readable index"):
        lading.open(tmp_path)


@pytest.mark.parametrize(
    "told, message",
    [
        ("[]", "has no list of shards; expected a list of 1 shard of the format arrow"),
        ("null", "has no list of shards; expected a list of 1 shard of the format arrow"),
        ("{}", "has no list of shards; expected a list of 1 shard of the format arrow"),
        ('{"shard_filenames": ["shard-00000.arrow"]}', "column 'cache_format_version': a cache of another kind"),
    ],
)
def test_an_index_that_is_there_and_none_is_bad_data(told: str, message: str, tmp_path: Path) -> None:
    """Not a source that is missing, which is the caller's mistake."""
    (tmp_path / "shard-00000.arrow").write_bytes(arrow_bytes(pa.table({"n": [1]})))
    (tmp_path / "_metadata.json").write_text(told)
    with pytest.raises(DataError, match=rf"_metadata\.json.*{message}") as caught:
        lading.open(tmp_path)
    assert caught.value.file == str(tmp_path / "_metadata.json")
    assert not isinstance(caught.value, SourceNotFound)


def test_videos_left_in_their_files_are_counted(tmp_path: Path) -> None:
    kind = pa.struct([("mode", pa.string()), ("path", pa.string()), ("bytes", pa.large_binary())])
    schema = pa.schema([pa.field("video", kind, metadata={"stable_datasets.feature": "Video"})])
    rows = [
        {"mode": "path", "path": "x.mp4"},
        {"mode": "bytes", "bytes": b"1"},
        None,
        {"mode": "path", "path": "x.mp4"},
    ]
    (tmp_path / "a.arrow").write_bytes(
        arrow_bytes(pa.Table.from_pylist([{"video": row} for row in rows], schema=schema))
    )
    with lading.open(tmp_path / "a.arrow") as dataset:
        assert len(list(dataset)) == 4
        assert dataset.counts["videos in files of their own, left there (load_assets=true reads them)"] == 2
    with lading.open(tmp_path / "a.arrow", options={"load_assets": True}) as dataset:
        with pytest.raises(LadingError, match=r"_assets/video/x.mp4 column 'video': no such file"):
            list(dataset)
        (tmp_path / "_assets/video").mkdir(parents=True)
        (tmp_path / "_assets/video/x.mp4").write_bytes(b"film")
        found = [row.get("video") for row in dataset]
        assert [row and row["bytes"] for row in found] == [b"film", b"1", None, b"film"]
        (tmp_path / "_assets/video/x.mp4").unlink()
        (tmp_path / "secret").write_bytes(b"secret")
        (tmp_path / "_assets/video/x.mp4").symlink_to(tmp_path / "secret")
        with pytest.raises(LadingError, match="outside the folders"):
            list(dataset)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_large_values_of_a_mapped_file_are_read_not_touched(kind: pa.DataType, tmp_path: Path) -> None:
    values = [None if row % 5 == 3 else _NOISE[row * 7 : row * 7 + 40_000 + row] for row in range(100)]
    table = pa.table({"b": pa.array(values, kind), "n": range(100)})
    (tmp_path / "s.arrow").write_bytes(arrow_bytes(table, max_rows=40))
    store = LocalStore()
    reader = FORMAT.open(ShardFile(store, str(tmp_path / "s.arrow")), FORMAT.read_options({}))
    order = [99, 3, 3, 0, 41, 8, 98]
    taken = reader.read(np.array(order))
    taken.validate(full=True)
    assert taken.to_pylist() == [{"b": values[row], "n": row} for row in order]
    assert taken.schema.field("b").type == kind
    assert [reader.get_sample(row).get("b") for row in order] == [values[row] for row in order]


@pytest.mark.soak
def test_pages_touched_at_random_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_TOUCHED_BYTES", 96 << 20)
    path = tmp_path / "s.arrow"
    texts = [_NOISE[:2000].hex()[row % 100 : row % 100 + 3000] for row in range(60_000)]
    path.write_bytes(arrow_bytes(pa.table({"t": pa.array(texts)}), max_rows=1000))
    order = np.random.default_rng(0).permutation(len(texts)).tolist()
    with lading.open(path) as dataset:
        dataset[0]
        forget_peak()
        before = peak_mb()
        assert all(dataset[row]["t"] == texts[row] for row in order)
        assert peak_mb() - before < 140  # of 180


def _folder(path: Path, sizes: list[int], kind: pa.DataType) -> pa.Table:
    """A file for each size of values, in batches of four rows."""
    tables = []
    for number, size in enumerate(sizes):
        values = [bytes([number, i]) * (size // 2) if i % 5 else None for i in range(20)]
        table = pa.table({"jpg": pa.array(values, kind), "n": [20 * number + i for i in range(20)]})
        (path / f"{number}.arrow").write_bytes(arrow_bytes(table, pa.ipc.new_stream, 4))
        tables.append(table)
    return pa.concat_tables(tables)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("sizes", [[20_000, 30_000], [20_000, 100], [100, 20_000]], ids=str)
def test_rows_of_several_files_in_any_order(sizes: list[int], kind: pa.DataType, tmp_path: Path) -> None:
    table = _folder(tmp_path, sizes, kind)
    rows = np.random.default_rng(5).integers(0, 40, 60)
    with lading.open(tmp_path) as dataset:
        found = dataset.take(rows)
        assert found.equals(table.take(pa.array(rows)))
        assert dataset.take(rows, ["jpg"]).equals(table.select(["jpg"]).take(pa.array(rows)))
        assert dataset.take(np.arange(40)).equals(table)
        shown = dataset.take(rows, views=True).column("jpg")
        assert shown.to_pylist() == found.column("jpg").to_pylist()


@pytest.mark.soak
def test_values_are_read_once_to_where_they_belong(tmp_path: Path) -> None:
    """Of 100 MB in two files, in an order of its own, no more memory is taken than they need."""
    for number in range(2):
        values = pa.array([bytes([number]) * 100_000] * 500, pa.binary())
        (tmp_path / f"{number}.arrow").write_bytes(arrow_bytes(pa.table({"jpg": values}), pa.ipc.new_stream, 50))
    rows = np.random.default_rng(5).permutation(1000)
    more_mb = []
    with lading.open(tmp_path) as dataset:
        len(dataset)
        for _ in range(3):  # what other tests have left to the allocators counts too, now and then
            pa.default_memory_pool().release_unused()
            forget_peak()
            before = peak_mb()
            found = dataset.take(rows)
            more_mb.append(peak_mb() - before)
            assert [value.as_py()[0] for value in found["jpg"]] == (rows // 500).tolist()
            del found
    assert min(more_mb) < 100 + 60


@pytest.mark.parametrize("second", [{"x": 3, "y": 20_000}, {"y": 20_000, "x": 3}, {"y": 3, "x": 20_000}], ids=str)
def test_large_values_of_other_columns_in_other_files(second: dict[str, int], tmp_path: Path) -> None:
    """References in the place of one column here, of another there, wherever they stand."""
    tables = [
        pa.table({name: pa.array([bytes([number]) * size] * 4, pa.binary()) for name, size in told.items()})
        for number, told in enumerate([{"x": 20_000, "y": 3}, second])
    ]
    for number, table in enumerate(tables):
        (tmp_path / f"{number}.arrow").write_bytes(arrow_bytes(table))
    expected = pa.concat_tables([table.select(["x", "y"]) for table in tables])
    with lading.open(tmp_path) as dataset:
        assert dataset.take(np.arange(8)).equals(expected)


def test_bytes_that_are_large_in_one_file_are_large_in_what_is_taken(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.binary(), pa.large_binary())):
        table = pa.table({"x": pa.array([b"v" * 20_000] * 4, kind)})
        (tmp_path / f"{number}.arrow").write_bytes(arrow_bytes(table))
    with lading.open(tmp_path) as dataset:
        assert dataset.take([0, 7]).schema.field("x").type == pa.large_binary()
        assert dataset.take([0, 1]).schema.field("x").type == pa.binary()


@pytest.mark.soak
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_large_values_of_a_mapped_file_are_told_by_their_places(kind: pa.DataType, tmp_path: Path) -> None:
    """Only these, and only to who asks for views: then no page of them is touched."""
    values = [_NOISE[row : row + 20_000] if row % 7 else None for row in range(100)]
    table = pa.table({"b": pa.array(values, kind), "small": pa.array([b"x"] * 100, kind), "n": range(100)})
    path = tmp_path / "a.arrow"
    for number, options in enumerate(({}, {"compression": "zstd"})):
        path.write_bytes(arrow_bytes(table, **options))
        with open_shards(path) as shards:
            for views in (False, True):
                batches = list(shard_batches(shards, 0, Scan(max_rows=30, max_bytes=1 << 30, views=views)))
                assert all(is_ref(batch.schema.field("b").type) == (views and not number) for batch in batches)
                assert not any(is_ref(batch.schema.field("small").type) for batch in batches)
                found = [shards.fetcher.materialise(batch) for batch in batches]
                assert [value for batch in found for value in batch.column("b").to_pylist()] == values
                assert max(len(batch) for batch in batches) == (30 if views else 10)
    with open_shards(path, mmap=False) as shards:
        assert not any(
            is_ref(b.schema.field("b").type)
            for b in shard_batches(shards, 0, Scan(max_rows=30, max_bytes=1 << 30, views=True))
        )


COLLECTED = """
import gc, sys
import pyarrow as pa
import lading
path = sys.argv[1]
with pa.ipc.new_file(path, pa.schema([("x", pa.int64())])) as writer:
    for at in range(20):
        writer.write_batch(pa.record_batch({"x": list(range(at, at + 10))}))

def leave_in_a_cycle():
    dataset = lading.open(path)
    assert dataset[0] == {"x": 0}
    around = [dataset]
    around.append(around)

hits, collections = 0, []
gc.callbacks.append(lambda phase, info: collections.append(phase))
for later in range(60):
    gc.disable()
    gc.collect()
    leave_in_a_cycle()
    with lading.open(path) as other:
        assert other[later]["x"] >= 0
        before = len(collections)
        gc.set_threshold(gc.get_count()[0] + later)  # the collector comes so many objects after this
        gc.enable()
    gc.disable()
    hits += len(collections) > before
print("done" if hits > 1 else hits)
"""


@pytest.mark.soak
def test_a_shard_may_be_collected_while_another_is_closed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COLLECTED, str(tmp_path / "a.arrow")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "done\n"


def test_a_file_that_fills_up_its_alignment(tmp_path: Path) -> None:
    """As Rust's arrow writes it: the schema begins at byte 64, which pyarrow reads."""
    table = pa.table({"n": range(5), "t": ["x"] * 5})
    plain = arrow_bytes(table, pa.ipc.new_file)
    size = int.from_bytes(plain[-10:-6], "little")
    footer = bytearray(plain[-10 - size : -10])
    for number in range(pa.ipc.open_file(plain).num_record_batches):
        parse_footer(footer).batches["offset"][number] += 56
    filled = plain[:8] + bytes(56) + plain[8 : -10 - size] + bytes(footer) + plain[-10:]
    assert pa.ipc.open_file(filled).read_all().equals(table)
    (tmp_path / "a.arrow").write_bytes(filled)
    with lading.open(tmp_path / "a.arrow") as dataset:
        assert pa.Table.from_batches(dataset.batches()).equals(table)
    assert lading.verify(tmp_path / "a.arrow", deep=True).ok
    (tmp_path / "b.arrow").write_bytes(filled[:64] + b"\xff" * 8 + filled[72:])
    assert lading.salvage(tmp_path / "b.arrow", tmp_path / "saved").samples == 5


def test_to_be_out_of_memory_at_the_footer_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.arrow").write_bytes(arrow_bytes(pa.table({"n": range(5)})))

    def refuse(*_: Any, **__: Any) -> None:
        raise pa.lib.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pa.ipc, "open_file", refuse)
    with pytest.raises(StoreError, match="malloc"):
        len(lading.open(tmp_path / "a.arrow"))


@pytest.mark.parametrize("columns", [None, ["jpg"]])
def test_some_rows_of_a_remote_file_with_a_dictionary(columns: list[str] | None) -> None:
    labels = pa.array(["cat", "dog", "cat", "cat"]).dictionary_encode()
    table = pa.table({"jpg": [bytes([n]) * 2000 for n in range(4)], "label": labels})
    store = MemoryStore({"box://a.arrow": arrow_bytes(table, max_rows=2)})
    with lading.open("box://a.arrow", stores=Stores({"box://": store})) as ds:
        rows = ds.take([3, 0], columns).to_pylist()
    assert rows == [{name: table[name][n].as_py() for name in columns or table.column_names} for n in (3, 0)]
