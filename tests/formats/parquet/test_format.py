"""Parquet shards: the kit, types, sizes, options, limits. Expected values come from pyarrow's own reader and writer."""

from __future__ import annotations

import decimal
import io
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lading._core.arrow.references import FILES_KEY, FileEntry, RefType, with_files
from lading._core.arrow.views import from_ranges
from lading._core.features.types import Image, with_feature
from lading._core.formats.base import Scan, ShardFacts, ShardFile
from lading._core.formats.format import AnyFormat
from lading._core.formats.parquet.format import FORMAT, ParquetReader
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading.errors import SchemaMismatch, StoreError, Unrepresentable, UsageError
from lading.testing.format import FormatTests

_MB = 1 << 20
_NOISE = np.random.default_rng(7).bytes(4 * _MB)


class TestParquet(FormatTests):
    fmt: ClassVar[AnyFormat] = FORMAT
    index_has_rows: ClassVar[bool] = False
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"row_group_bytes": 1},
        {"row_group_bytes": "1kb", "page_bytes": "100b"},
        {"row_group_rows": 2},
        {"compression": "gzip", "compression_level": 1, "media_compression": "snappy"},
        {"compression": {"__key__": "brotli"}},
        {"compression": "none"},
    )

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            "no_fields": pa.schema([("a", pa.int8()), ("no_fields", pa.struct([]))]),
            "interval": pa.schema([("interval", pa.month_day_nano_interval())]),
            "twice": pa.schema([("twice", pa.int8()), ("twice", pa.int16())]),
            "refs": pa.schema([("refs", RefType())]),
            "scale": pa.schema([("scale", pa.decimal128(5, -2))]),
            "of_none": pa.schema([("of_none", pa.list_(pa.list_(pa.int8(), 0)))]),
            "tensor": pa.schema([("tensor", pa.fixed_shape_tensor(pa.int64(), (0, 2)))]),
        }


def _write(table: pa.Table, **options: Any) -> tuple[bytes, ShardFacts]:
    store = MemoryStore()
    sink = store.put_stream("s.parquet")
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options(options))
    for batch in table.to_batches():
        assert writer.write(batch) is None
    facts = writer.close()
    sink.close()
    [data] = store.get_ranges("s.parquet", [(0, facts.size_bytes)])
    return bytes(data), facts


def _by_pyarrow(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
    return bytes(sink.getvalue().to_pybytes())


def _open(data: bytes, **options: Any) -> ParquetReader:
    return FORMAT.open(ShardFile(MemoryStore({"s.parquet": data}), "s.parquet"), FORMAT.read_options(options))


def _all(data: bytes, columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
    reader = _open(data, **options)
    batches = list(reader.batches(Scan(columns, max_rows=1000, max_bytes=_MB)))
    return pa.Table.from_batches(batches, batches[0].schema if batches else reader.schema())


def _metadata(data: bytes) -> pq.FileMetaData:
    return pq.read_metadata(io.BytesIO(data))


_WORDS = pa.dictionary(pa.int32(), pa.string())
_HF_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False]),
    "uint64": (pa.uint64(), [2**64 - 1, None, 0]),
    "half": (pa.float16(), [1.5, None, -0.0]),
    "double": (pa.float64(), [float("inf"), None, 1e-300]),
    "decimal": (pa.decimal128(38, 5), [decimal.Decimal("12345.67890"), None, decimal.Decimal("-0.00001")]),
    "wide decimal": (pa.decimal256(60, 2), [decimal.Decimal("1" * 50 + ".25"), None, decimal.Decimal("0.10")]),
    "date": (pa.date32(), [-719162, None, 2932896]),
    "date in ms": (pa.date64(), [86_400_000, None, -86_400_000]),
    "time in s": (pa.time32("s"), [3723, None, 0]),
    "time in ns": (pa.time64("ns"), [1, None, 86_399_999_999_999]),
    "timestamp in s": (pa.timestamp("s"), [1577934245, None, -2208988800]),
    "timestamp in Paris": (pa.timestamp("us", "Europe/Paris"), [0, None, -1]),
    "timestamp in ns": (pa.timestamp("ns"), [2**62, None, 1]),
    "duration": (pa.duration("s"), [3, None, -3]),
    "string": (pa.string(), ["é\0🎉", None, ""]),
    "large string": (pa.large_string(), ["x", None, "y" * 100]),
    "string view": (pa.string_view(), ["short", None, "longer than twelve bytes"]),
    "fixed bytes": (pa.binary(3), [b"abc", None, b"\0\0\0"]),
    "null": (pa.null(), [None, None, None]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"]),
    "dictionaries inside": (
        pa.map_(_WORDS, pa.list_(pa.struct([("a", _WORDS)]))), [[("k", [{"a": "b"}, None])], None, []],
    ),
    "list": (pa.list_(pa.string()), [["a", None], None, []]),
    "large list": (pa.large_list(pa.binary()), [[b"a", None], None, []]),
    "fixed list": (pa.list_(pa.int16(), 2), [[1, 2], None, [3, None]]),
    "list of views": (pa.list_(pa.binary_view()), [[b"x" * 20, b"y"], None, []]),
    "struct": (_HF_IMAGE, [{"bytes": b"x", "path": None}, None, {"bytes": None, "path": "p"}]),
    "map": (pa.map_(pa.string(), pa.list_(pa.int8())), [[("k", [1, None])], None, []]),
    "deep": (pa.list_(pa.struct([("a", pa.list_(pa.int64()))])), [[{"a": [1]}, None], None, [{"a": None}]]),
    "list of s": (pa.list_(pa.time32("s")), [[3723, None], None, []]),
    "large list of s": (pa.large_list(pa.timestamp("s", "UTC")), [[1577934245, None], None, []]),
    "fixed list of days": (pa.list_(pa.date64(), 2), [[86_400_000, None], None, [0, -86_400_000]]),
    "struct of s": (pa.struct([("a", pa.struct([("b", pa.time32("s"))]))]), [{"a": {"b": 1}}, None, {"a": None}]),
    "map of s": (pa.map_(pa.timestamp("s"), pa.list_(pa.date64())), [[(1, [86_400_000, None])], None, []]),
    "dictionary of decimals": (pa.dictionary(pa.int8(), pa.decimal128(5, 2)), None),
    "fixed list of json": (pa.list_(pa.json_(), 1), None),
    "list view of s": (pa.list_view(pa.timestamp("s")), [[1577934245, None], None, []]),
    "deep list view of s": (
        pa.large_list_view(pa.struct([("a", pa.map_(pa.string(), pa.time32("s")))])), [[{"a": [("k", 1)]}], None, []],
    ),
    "list view of views": (pa.list_view(pa.string_view()), [["x" * 20, None], None, ["y"]]),
    "large list view of views": (pa.large_list_view(pa.binary_view()), [[b"x" * 20, None], None, [b"y"]]),
    "json": (pa.json_(), ['{"a": 1}', None, "[]"]),
    "tensor": (pa.fixed_shape_tensor(pa.float32(), [2]), None),
}  # fmt: skip


def _column(name: str) -> pa.Array:
    kind, values = _VALUES[name]
    if values is not None:
        return pa.array(values, kind)
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(
            pa.array([1, None, 0], kind.index_type), pa.array([1, 2], kind.value_type)
        )
    if pa.types.is_fixed_size_list(kind):
        texts = pa.ExtensionArray.from_storage(kind.value_type, pa.array(["1", None, "{}"]))
        return pa.FixedSizeListArray.from_arrays(texts, type=kind)
    storage = pa.array([[1, 2], [3, 4], [5, 6]], kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)


def _python(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    nanoseconds = pa.types.is_temporal(column.type) and str(column.type).endswith("[ns]")
    return (column.cast(pa.int64()) if nanoseconds else column).to_pylist()


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", _VALUES)
def test_values_and_types_come_back(name: str) -> None:
    table = pa.table({"column": _column(name), "n": [1, 2, 3]})
    data, _ = _write(table)
    read = _all(data)
    assert _python(read.column("column")) == _python(table.column("column"))
    plain = {
        "string view": pa.large_string(),
        "list of views": pa.list_(pa.large_binary()),
        "dictionary": _WORDS,
        "dictionary of decimals": pa.decimal128(5, 2),
        "dictionaries inside": pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.string())]))),
        "list view of views": pa.list_view(pa.large_string()),
        "large list view of views": pa.large_list_view(pa.large_binary()),
    }
    assert read.schema.field("column").type == plain.get(name, table.schema.field("column").type)
    assert _open(data).schema() == read.schema
    taken = _open(data).read(np.array([2, 0, 2])).column("column")
    assert _python(taken) == [_python(table.column("column"))[i] for i in (2, 0, 2)]
    by_pyarrow = pq.read_table(io.BytesIO(data)).column("column")
    if name not in ("time in s", "timestamp in s", "date in ms", "fixed list of days") and " of s" not in name:
        assert by_pyarrow.type == read.schema.field("column").type
    assert _python(by_pyarrow) == _python(table.column("column"))


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", _VALUES)
def test_files_of_pyarrow_are_read(name: str) -> None:
    table = pa.table({"column": _column(name), "n": [1, 2, 3]})
    for options in ({}, {"store_schema": False}, {"data_page_version": "2.0", "compression": "zstd"}):
        data = _by_pyarrow(table, **options)
        expected = _python(pq.read_table(io.BytesIO(data)).column("column"))
        assert _python(_all(data).column("column")) == expected
        assert _python(_all(data, mmap=True).column("column")) == expected


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_payload_is_large_binary_for_everyone(kind: pa.DataType) -> None:
    metadata = {b"lading.feature": b'{"kind": "image"}', b"other": b"kept"}
    schema = pa.schema([pa.field("jpg", kind, metadata=metadata)], {b"huggingface": b"{}", b"mine": b"\xff"})
    table = pa.table([pa.array([b"x" * 50, None, b""], kind)], schema=with_files(schema, [FileEntry("a.tar")]))
    data, _ = _write(table, huggingface=False)
    told = pq.read_schema(io.BytesIO(data))
    assert told.field("jpg").type == (pa.binary() if kind == pa.binary() else pa.large_binary())
    for found in (told, _open(data).schema()):
        assert found.field("jpg").metadata == metadata
        assert found.metadata == {b"huggingface": b"{}", b"mine": b"\xff"}
        assert FILES_KEY not in found.metadata
    assert _open(data).schema().field("jpg").type == pa.large_binary()


def test_batches_of_different_payload_types_go_into_one_shard() -> None:
    values = [[b"a" * 30, None], [b"b"], [b"", b"c" * 2000]]
    kinds = [pa.binary_view(), pa.binary(), pa.large_binary()]
    sink = (store := MemoryStore()).put_stream("s.parquet")
    writer = FORMAT.create([sink], pa.schema([("bin", pa.binary()), ("s", pa.string())]), FORMAT.write_options({}))
    for part, kind in zip(values, kinds, strict=True):
        text = pa.array(["t"] * len(part), pa.large_string())
        writer.write(pa.record_batch([text, pa.array(part, kind)], names=["s", "bin"]))
    writer.close()
    sink.close()
    read = FORMAT.open(ShardFile(store, "s.parquet"), FORMAT.read_options({})).read()
    assert read.column("bin").to_pylist() == [value for part in values for value in part]
    assert read.column_names == ["bin", "s"]


def test_batches_may_have_dictionaries_of_their_own() -> None:
    parts = [pa.array(["a", "b", "a"]).dictionary_encode(), pa.array(["c", None]).dictionary_encode()]
    table = pa.table({"d": pa.chunked_array(parts)})
    assert _all(_write(table)[0]).column("d").to_pylist() == ["a", "b", "a", "c", None]


def test_dictionaries_with_nulls_among_their_values() -> None:
    parts = [pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([None, text])) for text in "ab"]
    table = pa.table({"d": pa.chunked_array(parts)})
    assert pq.read_table(io.BytesIO(_write(table)[0])).column("d").to_pylist() == [None, "a", None, "b"]


def test_dictionaries_of_more_values_than_their_indices_can_number() -> None:
    texts = [[f"{i}-{n}" for n in range(100)] for i in range(3)]
    words = [pa.array(part).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())) for part in texts]
    rows = [pa.StructArray.from_arrays([part], ["a"]) for part in words]
    table = pa.table({"d": pa.chunked_array(words), "s": pa.chunked_array(rows)})
    for options in ({}, {"row_group_bytes": 1000}):
        data, _ = _write(table, **options)
        assert pq.read_table(io.BytesIO(data)).to_pylist() == _all(data).to_pylist() == table.to_pylist()


def test_dictionaries_inside_others_of_several_row_groups() -> None:
    rows = [[{"a": f"{i}-{n}"} for n in range(5)] for i in range(3)]
    kind = pa.struct([("a", pa.dictionary(pa.int32(), pa.string()))])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([("s", kind)])) as writer:
        for part in rows:
            writer.write_table(pa.table({"s": pa.array(part, kind)}))
    data = sink.getvalue().to_pybytes()
    expected = [row for part in rows for row in part]
    assert _all(data).column("s").to_pylist() == expected
    assert _open(data).read(np.array([12, 0, 7])).column("s").to_pylist() == [expected[i] for i in (12, 0, 7)]


@pytest.mark.parametrize(
    "make",
    [lambda words: words, lambda words: pa.StructArray.from_arrays([words], ["a"])],
    ids=["column", "field"],
)
def test_extensions_that_hold_dictionaries_are_what_they_are_stored_in(make: Callable[[pa.Array], pa.Array]) -> None:
    """pyarrow 26 joins none of a few bits, and ends the process for those inside others, of two row groups."""
    parts = [pa.array([f"{i}-{n}" for n in range(100)]).dictionary_encode() for i in range(3)]
    words = [part.cast(pa.dictionary(pa.int8(), pa.string())) for part in parts]
    kind = pa.opaque(words[0].type, "words", "me")
    named = [make(pa.ExtensionArray.from_storage(kind, part)) for part in words]
    table = pa.table({"c": pa.chunked_array(named)})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=100)
    plain = make(pa.array([], _WORDS)).type
    assert _open(sink.getvalue()).schema().types == [plain]
    for data in (sink.getvalue(), _write(table)[0], _write(table, row_group_bytes=1000)[0]):
        read = _all(data)
        assert "extension" not in str(read.schema.types)
        for found in (read, pa.table(pa.concat_batches(read.to_batches())), pq.read_table(io.BytesIO(_write(read)[0]))):
            assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("value", [pa.string(), pa.binary()], ids=str)
def test_dictionaries_that_allow_no_nulls_of_structs_that_are_all_null(value: pa.DataType) -> None:
    """pyarrow gives them no value, and indices of one."""
    kind = pa.struct([pa.field("a", pa.dictionary(pa.int8(), value), nullable=False)])
    parts = [pa.array(rows, kind) for rows in ([None, None], [{"a": "x"}, None], [None, {"a": "y"}])]
    inner = [pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), part) for part in parts]
    table = pa.table({"s": pa.chunked_array(parts), "l": pa.chunked_array(inner)})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2)
    data = sink.getvalue()
    for batch in (read := _all(data)).to_batches():
        batch.validate(full=True)
    for found in (read, read.combine_chunks(), _all(_write(read)[0])):
        assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    "kind, number",
    [
        (pa.duration("s"), -5),
        (pa.timestamp("us", "Europe/Paris"), 5),
        (pa.timestamp("s"), 5),
        (pa.time32("s"), 5),
        (pa.date64(), 86_400_000),
    ],
    ids=str,
)
def test_dictionaries_of_times_give_times_of_their_type(kind: pa.DataType, number: int) -> None:
    """In pyarrow's files too, of which it tells the types and gives others."""
    values = pa.array([number], kind)
    words = pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), values)
    table = pa.table({"c": words, "s": pa.StructArray.from_arrays([words], ["a"])})
    expected = [values[0].as_py(), None, values[0].as_py()]
    for data in (_write(table)[0], _by_pyarrow(table)):
        read = _all(data)
        assert _open(data).schema().types == read.schema.types == [kind, pa.struct([("a", kind)])]
        assert read.column("c").to_pylist() == [row["a"] for row in read.column("s").to_pylist()] == expected


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.struct([("a", pa.list_view(pa.string_view()))])], ids=str)
def test_dictionaries_of_nested_values_are_written_as_those(kind: pa.DataType) -> None:
    values = pa.array([["x", None], []], kind) if pa.types.is_list(kind) else pa.array([{"a": ["x"]}, None], kind)
    words = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int8()), values)
    table = pa.table({"c": words, "s": pa.StructArray.from_arrays([words], ["a"])})
    [x, other] = values.to_pylist()
    data, _ = _write(table)
    for read in (_all(data), pq.read_table(io.BytesIO(data))):
        assert read.column("c").to_pylist() == [x, None, other, x]
        assert [row["a"] for row in read.column("s").to_pylist()] == [x, None, other, x]


@pytest.mark.parametrize(
    "beside",
    [pa.array(["x"] * 2).dictionary_encode(), pa.array(["x"] * 2, pa.string_view()), pa.array([1, 2], pa.time32("s"))],
    ids=lambda beside: str(beside.type),
)
def test_structs_that_are_null_may_have_fields_that_are_not(beside: pa.Array) -> None:
    fields = [pa.field("a", pa.int32(), nullable=False), pa.field("b", beside.type)]
    nulls = pa.array([False, True])
    column = pa.StructArray.from_arrays([pa.array([1, 2], pa.int32()), beside], fields=fields, mask=nulls)
    table = pa.table({"s": column})
    for data in (_write(table)[0], _write(_all(_by_pyarrow(table)))[0]):
        assert _all(data).to_pylist() == pq.read_table(io.BytesIO(data)).to_pylist() == table.to_pylist()


def test_a_feature_of_a_later_version_is_no_hindrance() -> None:
    told = {b"lading.feature": b'{"kind": "hologram"}'}
    schema = pa.schema([pa.field("h", pa.large_binary(), metadata=told)])
    data, _ = _write(pa.table([pa.array([b"x"], pa.large_binary())], schema=schema))
    assert _open(data).schema().field("h").metadata == told


def test_rows_of_errors_count_in_the_shard() -> None:
    writer = FORMAT.create(
        [MemoryStore().put_stream("s.parquet")],
        pa.schema([pa.field("a", pa.int64(), nullable=False)]),
        FORMAT.write_options({}),
    )
    writer.write(pa.record_batch([pa.array([1, 2, 3])], names=["a"]))
    with pytest.raises(Unrepresentable, match="row 4 column 'a'"):
        writer.write(pa.record_batch([pa.array([4, None])], names=["a"]))


def test_what_does_not_fit_the_shard_is_refused() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.large_binary())])
    writer = FORMAT.create([MemoryStore().put_stream("s.parquet")], schema, FORMAT.write_options({}))
    payload = pa.array([b"x", b"y"])
    with pytest.raises(SchemaMismatch, match="columns are not those"):
        writer.write(pa.record_batch([payload], names=["b"]))
    with pytest.raises(SchemaMismatch, match=r"s.parquet column 'a'.*expected int64, found string"):
        writer.write(pa.record_batch([pa.array(["1", "2"]), payload], names=["a", "b"]))
    with pytest.raises(Unrepresentable, match=r"row 1 column 'a': null"):
        writer.write(pa.record_batch([pa.array([1, None]), payload], names=["a", "b"]))


@pytest.mark.parametrize("nest, most", [(pa.list_, 49), (lambda kind: pa.struct([("a", kind)]), 98)])
def test_columns_nested_deeper_than_pyarrow_reads(nest: Callable[[pa.DataType], pa.DataType], most: int) -> None:
    """It writes them, and then says: "Parquet schema too deeply nested"."""
    kind: pa.DataType = pa.int8()
    for _ in range(most):
        kind = nest(kind)
    for deep, fits in ((kind, True), (nest(kind), False)):
        sink = pa.BufferOutputStream()
        pq.ParquetWriter(sink, pa.schema([("a", deep)])).close()
        file = pa.BufferReader(sink.getvalue())
        ours = MemoryStore().put_stream("s.parquet")
        if fits:
            assert pq.read_schema(file).field("a").type.num_fields == 1
            FORMAT.create([ours], pa.schema([("a", deep)]), FORMAT.write_options({}))
        else:
            with pytest.raises(OSError, match="too deeply nested"):
                pq.read_schema(file)
            with pytest.raises(Unrepresentable, match="column 'a': Parquet cannot hold this type"):
                FORMAT.create([ours], pa.schema([("a", deep)]), FORMAT.write_options({}))


def test_a_value_that_no_reader_could_hold() -> None:
    """Nothing of it is touched: the map is larger than the memory of some machines."""
    buffer = pa.py_buffer(mmap.mmap(-1, 3 << 30))
    ends = pa.py_buffer(np.array([0, 5, 5 + (1 << 31)], np.int64))
    column = pa.Array.from_buffers(pa.large_binary(), 2, [None, ends, buffer])
    writer = FORMAT.create(
        [MemoryStore().put_stream("s.parquet")], pa.schema([("b", pa.large_binary())]), FORMAT.write_options({})
    )
    with pytest.raises(Unrepresentable, match=r"row 1 column 'b': .*expected less than 2 GiB, found 2147483648"):
        writer.write(pa.record_batch([column], names=["b"]))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "kind, width, most",
    [
        (pa.time32("s"), pa.int32(), 2_147_483),
        (pa.timestamp("s"), pa.int64(), 9_223_372_036_854_775),
        (pa.timestamp("s", "UTC"), pa.int64(), 9_223_372_036_854_775),
    ],
)
def test_times_that_milliseconds_do_not_hold_are_refused(
    kind: pa.DataType, width: pa.DataType, most: int, sign: int
) -> None:
    """pyarrow 26 wraps the first without a word, and does not name the column of the others."""
    times = pa.array([5, None, sign * (most + 1)], width).view(kind)
    for column, said in (
        (times, f"row 2 column 't': .*found -?{most + 1}"),
        (times.dictionary_encode(), f"row 2 column 't': .*found -?{most + 1}"),
        (pa.StructArray.from_arrays([times], ["a"]), "column 't'"),
        (pa.ListArray.from_arrays([0, 1, 3, 3], times), "column 't'"),
        (pa.MapArray.from_arrays([0, 1, 3, 3], pa.array(["a", "b", "c"]), times), "column 't'"),
        (pa.MapArray.from_arrays([0, 1, 2, 2], times.take([0, 2]), pa.array([1, None])), "column 't'"),
    ):
        writer = FORMAT.create(
            [MemoryStore().put_stream("s")], pa.schema([pa.field("t", column.type)]), FORMAT.write_options({})
        )
        with pytest.raises(Unrepresentable, match=said):
            writer.write(pa.record_batch([column], names=["t"]))
    fits = pa.array([most, -most], width).view(kind)
    found = _all(_write(pa.table({"t": fits}))[0])
    assert found["t"].chunk(0).view(width).to_pylist() == [most, -most]


def test_times_beside_nulls_in_maps_that_begin_later() -> None:
    """pyarrow 26 makes lists of such maps whose nulls are too few, and ends the process."""
    beside = pa.struct([("p", pa.null()), ("q", pa.list_(pa.null())), ("s", pa.timestamp("s"))])
    rows = [[("a", {"q": [None, None], "s": 1}), ("b", {"q": [None], "s": 2})]] * 4
    table = pa.table({"m": pa.array(rows, pa.map_(pa.string(), beside))}).slice(3)
    assert _all(_write(table)[0]).to_pylist() == table.to_pylist()


def test_payload_far_into_a_large_map() -> None:
    mapped = mmap.mmap(-1, 3 << 30)
    mapped[(5 << 29) : (5 << 29) + 20] = b"0123456789abcdefghij"
    buffer = pa.py_buffer(mapped)
    ends = pa.py_buffer(np.array([5 << 29, (5 << 29) + 20], np.int64))
    wide = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, buffer])
    view = from_ranges(buffer, np.array([5 << 29]), np.array([20]))
    for column in (wide, view):
        data, _ = _write(pa.table({"b": column}))
        assert _all(data).column("b").to_pylist() == [b"0123456789abcdefghij"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"compression": "lzma"}, "no such compression; expected none, snappy, gzip, brotli, lz4, zstd, found 'lzma'"),
        ({"media_compression": "jpeg"}, "no such compression"),
        ({"compression": {"absent": "zstd"}}, "compression is given for a missing column.*found 'absent'"),
        ({"compression_level": 99}, "no such level of zstd; expected .* to 22, found 99"),
        ({"row_group_bytes": "2gb"}, "row_group_bytes is out of range"),
        ({"row_group_rows": 0}, "row_group_rows is out of range"),
        ({"page_bytes": 0}, "page_bytes is out of range"),
        ({"row_group_bytes": "much"}, "not a size"),
        ({"row_groups": 1}, "expected row_group_bytes, row_group_rows, page_bytes, compression, .*found 'row_groups'"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FORMAT.create(
            [MemoryStore().put_stream("s.parquet")], pa.schema([("a", pa.int64())]), FORMAT.write_options(options)
        )


def test_rows_need_a_column() -> None:
    data, facts = _write(pa.table({}))
    assert (facts.num_samples, _open(data).num_rows(), len(_open(data).schema())) == (0, 0, 0)
    writer = FORMAT.create([MemoryStore().put_stream("s.parquet")], pa.schema([]), FORMAT.write_options({}))
    with pytest.raises(SchemaMismatch, match="at least one column"):
        writer.write(pa.record_batch([pa.array([1, 2])], names=["a"]).select([]))


# How files are laid out.


def test_row_groups_are_sized_in_bytes() -> None:
    rows = [_NOISE[i * 100 : i * 100 + size] for i, size in enumerate([1000] * 50 + [30_000] + [10] * 200)]
    table = pa.table({"bin": pa.array(rows, pa.large_binary())})
    data, facts = _write(table, row_group_bytes=10_000)
    metadata = _metadata(data)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [10, 10, 10, 10, 10, 1, 200]
    assert facts.payload_bytes == sum(map(len, rows))
    assert _all(data).equals(table)


def test_row_groups_have_so_many_rows_at_most() -> None:
    table = pa.table({"n": pa.array(range(500))})
    data, _ = _write(pa.Table.from_batches(table.to_batches(max_chunksize=7)), row_group_rows=200)
    metadata = _metadata(data)
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [200, 200, 100]
    assert _all(data).equals(table)


def test_small_batches_are_gathered_into_a_row_group() -> None:
    table = pa.table({"bin": pa.array([b"%d" % i for i in range(500)], pa.binary_view())})
    data, _ = _write(pa.Table.from_batches(table.to_batches(max_chunksize=3)))
    assert _metadata(data).num_row_groups == 1


def test_each_column_is_written_as_suits_it() -> None:
    count = 400
    table = pa.table(
        {
            "jpg": pa.array([_NOISE[i * 2000 : i * 2000 + 2000] for i in range(count)], pa.large_binary()),
            "raw": pa.array([bytes([i % 7]) * 2000 for i in range(count)], pa.large_binary()),
            "sha": pa.array([_NOISE[i * 20 : i * 20 + 20] for i in range(count)], pa.large_binary()),
            "text": pa.array([f"a sentence, number {i}, " * 20 for i in range(count)]),
            "label": pa.array(["cat", "dog"] * (count // 2)),
            "n": pa.array(range(count)),
            "hf": pa.array([{"bytes": _NOISE[i * 40 : i * 40 + 3000], "path": f"{i}.jpg"} for i in range(count)]),
        }
    )
    group = _metadata(_write(table)[0]).row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    codecs = {path: chunk.compression for path, chunk in chunks.items()}
    assert codecs == {**dict.fromkeys(chunks, "ZSTD"), "jpg": "UNCOMPRESSED", "hf.bytes": "UNCOMPRESSED"}
    assert {path for path, chunk in chunks.items() if chunk.has_dictionary_page} == {"label"}
    payload = {"jpg", "raw", "hf.bytes"}
    assert {path for path, chunk in chunks.items() if chunk.is_stats_set} == set(chunks) - payload
    assert {path for path, chunk in chunks.items() if chunk.has_column_index} == set(chunks) - payload
    assert all(chunk.has_offset_index for chunk in chunks.values())


def test_compression_can_be_chosen_by_column() -> None:
    table = pa.table({"jpg": [_NOISE[:500]] * 3, "a": ["text"] * 3, "b": ["text"] * 3})
    data, _ = _write(table, compression={"a": "gzip", "jpg": "snappy"}, media_compression="none")
    group = _metadata(data).row_group(0)
    assert [group.column(i).compression for i in range(3)] == ["SNAPPY", "GZIP", "ZSTD"]


def _page_bytes(data: bytes, column: int) -> list[int]:
    """Unpacked sizes of the pages of a column, by their headers."""
    chunk = _metadata(data).row_group(0).column(column)
    at, stop, sizes = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size, []
    while at < stop:
        header = _compact(data, at)
        sizes.append(header[2])
        at = header["end"] + header[3]
    return sizes


def _compact(data: bytes, at: int) -> dict[Any, Any]:
    """The first fields of a page header (type, unpacked size, size): i32 each; the nested struct is stepped over."""
    found: dict[Any, Any] = {}
    for number in (1, 2, 3):
        assert data[at] == 0x15
        at, value, shift = at + 1, 0, 0
        while data[at] & 0x80:
            value, at, shift = value | (data[at] & 0x7F) << shift, at + 1, shift + 7
        value, at = value | data[at] << shift, at + 1
        found[number] = value >> 1
    return {**found, "end": data.index(b"\x00\x00", at) + 2}


@pytest.mark.cases(3)
@pytest.mark.parametrize("size", [300, 20_000, 700_000, 3 * _MB])
def test_pages_of_payload_are_as_large_as_asked_for(size: int) -> None:
    rows = [_NOISE[i : i + size] for i in range(min(200, 12 * _MB // size))]
    data, _ = _write(pa.table({"bin": pa.array(rows, pa.large_binary())}))
    pages = _page_bytes(data, 0)
    assert sum(pages) >= size * len(rows)
    assert max(pages) <= max(_MB, size) + 4096
    assert min(pages[:-1], default=_MB) >= min(_MB // 2, size)


@pytest.mark.parametrize("rows", [[[1, 2, 3]], [[17]], [None], [[]], [[5], [5], None, [5, 5]]])
@pytest.mark.parametrize("size", [1, 2, 8, 13])
def test_pages_of_a_few_bytes_hold_all_rows(size: int, rows: list[list[int] | None]) -> None:
    """pyarrow 26 loses rows of lists where a page is smaller than an empty dictionary."""
    table = pa.table({"k": range(len(rows)), "p": pa.array(rows, pa.list_(pa.int64()))})
    assert _all(_write(table, page_bytes=size)[0]).column("p").to_pylist() == rows


def test_bytes_written_is_near_to_the_size_of_the_file() -> None:
    texts = [f"row {i}: " + "words and more words, " * 40 for i in range(4000)]
    payload = [_NOISE[i * 900 : i * 900 + 1500] for i in range(4000)]
    table = pa.table({"text": texts, "bin": pa.array(payload, pa.large_binary())})
    for size in (256 << 10, 64 * _MB):
        sink = MemoryStore().put_stream("s.parquet")
        writer = FORMAT.create([sink], table.schema, FORMAT.write_options({"row_group_bytes": size}))
        for batch in table.to_batches(max_chunksize=100):
            writer.write(batch)
        said = writer.bytes_written()
        assert abs(said / writer.close().size_bytes - 1) < 0.1


def test_a_native_sink_is_written_in_place(tmp_path: Path) -> None:
    store, path = LocalStore(), str(tmp_path / "folder" / "s.parquet")
    table = pa.table({"bin": pa.array([_NOISE[:100_000], None], pa.binary_view())})
    sink = store.put_stream(path)
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options({"row_group_bytes": 50_000}))
    writer.write(table.to_batches()[0])
    assert not Path(path).exists()
    facts = writer.close()
    assert sink.close().size_bytes == facts.size_bytes == os.path.getsize(path)
    assert pq.read_table(path).column("bin").to_pylist() == [_NOISE[:100_000], None]


def test_a_dropped_writer_leaves_nothing(tmp_path: Path) -> None:
    stores = [(LocalStore(), str(tmp_path / "s.parquet")), (MemoryStore(), "s.parquet")]
    for store, path in stores:
        sink = store.put_stream(path)
        writer = FORMAT.create(
            [sink], pa.schema([("bin", pa.large_binary())]), FORMAT.write_options({"row_group_bytes": 10})
        )
        writer.write(pa.record_batch([pa.array([b"x" * 100] * 3, pa.large_binary())], names=["bin"]))
        sink.abort()
        del writer
        assert list(store.walk(str(tmp_path))) == []


def test_a_full_disk_is_a_store_error() -> None:
    class Full:
        path = "full.parquet"
        native_path = "/dev/full"

    writer = FORMAT.create([Full()], pa.schema([("a", pa.int64())]), FORMAT.write_options({}))  # type: ignore[arg-type] # no sink to close
    writer.write(pa.record_batch([pa.array(range(1000))], names=["a"]))
    with pytest.raises(StoreError, match=r"full.parquet: .*No space left"):
        writer.close()


_POOLS: list[pa.MemoryPool] = []
"""Pools outlive what was allocated of them."""


@pytest.mark.soak
@pytest.mark.parametrize("tensor", [False, True], ids=["list", "tensor"])
def test_lists_of_numbers_are_written_in_parts(*, tensor: bool) -> None:
    """pyarrow makes 4 bytes for each item of an array, whatever its width."""
    count, width = 8, 1 << 20
    items = pa.array(np.arange(count * width) % 199, pa.uint8())
    lists = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32) * width, items)
    if tensor:
        kind = pa.fixed_shape_tensor(pa.uint8(), (width,))
        lists = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(items, width))
    table = pa.table({"a": lists, "n": range(count)})
    before = pa.default_memory_pool()
    _POOLS.append(pa.proxy_memory_pool(pa.system_memory_pool()))
    pa.set_memory_pool(_POOLS[-1])
    try:
        data, _ = _write(table, row_group_bytes="64mb")
    finally:
        pa.set_memory_pool(before)
    assert _POOLS[-1].max_memory() < 3 * count * width
    assert pq.read_metadata(io.BytesIO(data)).num_row_groups == 1
    assert pq.read_table(io.BytesIO(data)).equals(table)


@pytest.mark.soak
@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view(), "media"])
@pytest.mark.parametrize("rows_at_once", [1, 97, 3000])
def test_media_of_many_pages_and_row_groups(kind: pa.DataType | str, rows_at_once: int) -> None:
    values = [None if row % 7 == 3 else _NOISE[row : row + row % 900] for row in range(3000)]
    paths = [None if value is None or row % 2 else f"{row}.jpg" for row, value in enumerate(values)]
    stored = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [None if data is None else {"bytes": data, "path": path} for data, path in zip(values, paths, strict=True)]
    field = with_feature(pa.field("jpg", stored if kind == "media" else kind), Image())
    whole = pa.table([pa.array(rows if kind == "media" else values, field.type)], schema=pa.schema([field]))
    table = pa.Table.from_batches(whole.slice(100).to_batches(rows_at_once))
    data, facts = _write(table, row_group_bytes="300kb", page_bytes="10kb")
    found = pq.read_table(io.BytesIO(data))
    assert found.schema.field("jpg").type == stored
    assert facts.num_samples == 2900
    expected = [row and {"bytes": row["bytes"], "path": row["path"] if kind == "media" else None} for row in rows]
    assert found["jpg"].to_pylist() == expected[100:]
