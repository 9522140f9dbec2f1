"""Arrow shards: the kit, types, layouts, options, limits. Expected values come from pyarrow's own reader and writer."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from arrow_files import arrow_bytes
from lading._core.arrow.references import FILES_KEY, FileEntry, RefType, with_files
from lading._core.features.types import ClassLabel, Image, with_feature
from lading._core.formats.arrow.format import FORMAT, ArrowReader
from lading._core.formats.base import Scan, ShardFacts, ShardFile
from lading._core.formats.format import AnyFormat
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore
from lading.errors import SchemaMismatch, Unrepresentable, UsageError
from lading.testing.format import FormatTests


class TestArrow(FormatTests):
    fmt: ClassVar[AnyFormat] = FORMAT
    index_has_rows: ClassVar[bool] = False
    other_options: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"compression": "zstd"},
        {"compression": "zstd", "compression_level": 19},
        {"compression": "lz4"},
        {"batch_rows": 2},
        {"batch_bytes": 1},
    )

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            "twice": pa.schema([("twice", pa.int8()), ("twice", pa.int16())]),
            "refs": pa.schema([("refs", RefType())]),
        }


class TestStreams(TestArrow):
    options: ClassVar[Mapping[str, Any]] = {"layout": "huggingface", "batch_rows": 7}

    def cannot_hold(self) -> dict[str, pa.Schema]:
        return {
            **super().cannot_hold(),
            "map": pa.schema([("a", pa.int8()), ("map", pa.map_(pa.string(), pa.int8()))]),
            "inside": pa.schema([("inside", pa.list_(pa.map_(pa.string(), pa.int8())))]),
        }


_SPARSE = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])
_DENSE = pa.UnionArray.from_dense(
    pa.array([1, 0, 1], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1]), pa.array(["a", "b"])]
)
_RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None]))
_TENSOR = pa.fixed_shape_tensor(pa.float32(), [2])

_STRUCT = pa.struct([("a", pa.binary()), ("b", pa.string())])
VALUES: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False]),
    "uint64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "half": pa.array([1.5, None, -0.0], pa.float16()),
    "double": pa.array([float("inf"), None, 1e-300]),
    "decimal": pa.array([decimal.Decimal("12345.67890"), None, decimal.Decimal("-0.00001")], pa.decimal128(38, 5)),
    "small decimal": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("0.10")], pa.decimal32(5, 2)),
    "date": pa.array([-719162, None, 2932896], pa.date32()),
    "date in ms": pa.array([86_400_000, None, -86_400_000], pa.date64()),
    "time in s": pa.array([3723, None, 0], pa.time32("s")),
    "time in us": pa.array([1, None, 86_399_999_999], pa.time64("us")),
    "timestamp in s": pa.array([1577934245, None, -2208988800], pa.timestamp("s")),
    "timestamp in Paris": pa.array([0, None, -1], pa.timestamp("us", "Europe/Paris")),
    "duration": pa.array([3, None, -3], pa.duration("s")),
    "interval": pa.array([(1, 2, 3), None, (0, 0, 0)], pa.month_day_nano_interval()),
    "string": pa.array(["é\0🎉", None, ""]),
    "large string": pa.array(["x", None, "y" * 100], pa.large_string()),
    "string view": pa.array(["short", None, "longer than twelve bytes"], pa.string_view()),
    "bytes": pa.array([b"\xff\0", None, b""]),
    "large bytes": pa.array([b"\xff\0", None, b""], pa.large_binary()),
    "bytes view": pa.array([b"short", None, b"longer than twelve bytes"], pa.binary_view()),
    "fixed bytes": pa.array([b"abc", None, b"\0\0\0"], pa.binary(3)),
    "null": pa.nulls(3),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "list of dictionaries": pa.ListArray.from_arrays([0, 2, 2, 3], pa.array(["a", "b", "a"]).dictionary_encode()),
    "list": pa.array([["a", None], None, []], pa.list_(pa.string())),
    "large list": pa.array([[b"a", None], None, []], pa.large_list(pa.binary())),
    "fixed list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int16(), 2)),
    "list view": pa.array([[1, 2], None, [3, None]], pa.list_view(pa.int16())),
    "list view of views": pa.array([["x" * 20, "y"], None, []], pa.list_view(pa.string_view())),
    "large list view of views": pa.array([[b"x" * 20, b"y"], None, []], pa.large_list_view(pa.binary_view())),
    "list of views": pa.array([[b"x" * 20, b"y"], None, []], pa.list_(pa.binary_view())),
    "struct": pa.array([{"a": b"x", "b": None}, None, {"a": None, "b": "p"}], _STRUCT),
    "no fields": pa.array([{}, None, {}], pa.struct([])),
    "map": pa.array([[("k", [1, None])], None, []], pa.map_(pa.string(), pa.list_(pa.int8()))),
    "deep": pa.array([[{"a": [1]}, None], None, [{"a": None}]], pa.list_(pa.struct([("a", pa.list_(pa.int64()))]))),
    "json": pa.array(['{"a": 1}', None, "[]"], pa.json_()),
    "tensor": pa.ExtensionArray.from_storage(_TENSOR, pa.array([[1, 2], [3, 4], [5, 6]], _TENSOR.storage_type)),
    "sparse union": _SPARSE,
    "dense union": _DENSE,
    "runs": _RUNS,
}  # fmt: skip
_PLAIN = {
    "string view": pa.large_string(),
    "bytes view": pa.large_binary(),
    "list view of views": pa.list_view(pa.large_string()),
    "large list view of views": pa.large_list_view(pa.large_binary()),
    "list of views": pa.list_(pa.large_binary()),
}


def write(table: pa.Table, **options: Any) -> tuple[bytes, ShardFacts]:
    store = MemoryStore()
    sink = store.put_stream("s.arrow")
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options(options))
    for batch in table.to_batches():
        writer.write(batch)
    facts = writer.close()
    sink.close()
    [data] = store.get_ranges("s.arrow", [(0, facts.size_bytes)])
    return bytes(data), facts


def read_by_pyarrow(data: bytes) -> pa.Table:
    make = pa.ipc.open_file if data.startswith(b"ARROW1") else pa.ipc.open_stream
    return make(data).read_all()


def opened(data: bytes, *, mapped: bool = True, **options: Any) -> ArrowReader:
    store = CountingStore(MemoryStore({"s.arrow": data}), mapped=mapped)
    return FORMAT.open(ShardFile(store, "s.arrow"), FORMAT.read_options(options))


def rows_of(data: bytes, *, mapped: bool = True, max_rows: int = 1000, **options: Any) -> list[dict[str, Any]]:
    reader = opened(data, mapped=mapped, **options)
    return [row for batch in reader.batches(Scan(max_rows=max_rows, max_bytes=1 << 20)) for row in batch.to_pylist()]


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", VALUES)
def test_values_and_types_come_back(name: str) -> None:
    table = pa.table({"column": VALUES[name], "n": [1, 2, 3]})
    expected = _PLAIN.get(name, table.schema.field("column").type)
    for options in ({}, {"compression": "lz4"}, {"batch_rows": 1}):
        data, _ = write(table, **options)
        assert opened(data).schema().field("column").type == expected
        assert rows_of(data) == table.to_pylist()
        read = read_by_pyarrow(data)
        assert read.schema.field("column").type == expected
        assert read.to_pylist() == table.to_pylist()


@pytest.mark.cases(3)
@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", VALUES)
def test_files_of_pyarrow_are_read(name: str, mapped: bool) -> None:
    table = pa.table({"column": VALUES[name], "n": [1, 2, 3]})
    expected = table.to_pylist()
    for make in (pa.ipc.new_file, pa.ipc.new_stream):
        for options in ({}, {"compression": "zstd"}, {"use_legacy_format": True}):
            data = arrow_bytes(table, make, 2, **options)
            assert rows_of(data, mapped=mapped) == expected
            reader = opened(data, mapped=mapped)
            assert reader.read(np.array([2, 0, 2, 1])).to_pylist() == [expected[i] for i in (2, 0, 2, 1)]
            assert reader.read(np.array([1]), Scan(["n"])).to_pylist() == [{"n": 2}]
            for batch in reader.batches(Scan(max_rows=1, max_bytes=1, views=True)):
                batch.validate(full=True)


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", VALUES)
def test_one_row_is_as_the_table_has_it(name: str) -> None:
    table = pa.table({"column": VALUES[name], "n": [1, 2, 3]})
    reader = opened(arrow_bytes(table, max_rows=2))
    for row, expected in enumerate(table.to_pylist()):
        found = reader.get_sample(row)
        if name == "tensor":
            found["column"] = found["column"].ravel().tolist()
        if name == "json":
            expected["column"] = None if expected["column"] is None else json.loads(expected["column"])
        assert found == expected


def test_dictionaries_that_change_within_a_stream() -> None:
    parts = [["a", "b"], ["c", None], ["b", "d"], ["a"]]
    columns = [pa.array(part).dictionary_encode() for part in parts]
    expected = [value for part in parts for value in part]
    for options in ({}, {"emit_dictionary_deltas": True}):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, pa.schema([("d", columns[0].type)]), options=pa.ipc.IpcWriteOptions(**options)
        ) as w:
            for column in columns:
                w.write_batch(pa.record_batch([column], names=["d"]))
        data = sink.getvalue().to_pybytes()
        reader = opened(data)
        order = [6, 0, 5, 1, 4, 2, 3]
        assert [reader.get_sample(row).get("d") for row in order] == [expected[row] for row in order]
        assert [row["d"] for row in rows_of(data)] == expected


def test_dictionaries_that_change_go_on_in_a_file() -> None:
    parts = [["a", "b"], ["c", None], ["b", "d"], ["a"]]
    chunks = [pa.array(part).dictionary_encode() for part in parts]
    table = pa.table({"d": pa.chunked_array(chunks)})
    data, _ = write(table, batch_rows=2)
    expected = [{"d": value} for part in parts for value in part]
    assert read_by_pyarrow(data).to_pylist() == expected
    assert rows_of(data) == expected


_WORDS = pa.dictionary(pa.int8(), pa.string())
_INSIDE: dict[str, Callable[[pa.Array], pa.Array]] = {
    "a column": lambda words: words,
    "struct": lambda words: pa.StructArray.from_arrays([words], ["a"]),
    "list": lambda words: pa.ListArray.from_arrays(list(range(0, 101, 2)), words),
    "list view": lambda words: pa.ListViewArray.from_arrays(list(range(0, 100, 2)), [2] * 50, words),
    "fixed list": lambda words: pa.FixedSizeListArray.from_arrays(words, 2),
    "map": lambda words: pa.MapArray.from_arrays(list(range(0, 101, 2)), words, words),
}


@pytest.mark.parametrize("layout", ["cache", "huggingface"])
@pytest.mark.parametrize("name", _INSIDE)
def test_dictionaries_of_more_values_than_their_indices_can_number(name: str, layout: str) -> None:
    texts = [[f"{i}-{n}" for n in range(100)] for i in range(3)]
    chunks = [_INSIDE[name](pa.array(words).dictionary_encode().cast(_WORDS)) for words in texts]
    table = pa.table({"d": pa.chunked_array(chunks)})
    if layout == "huggingface" and name in ("list view", "map"):
        with pytest.raises(Unrepresentable, match="column 'd': datasets cannot hold this type"):
            write(table, layout=layout)
        return
    data, _ = write(table, layout=layout, batch_rows=30)
    assert read_by_pyarrow(data).to_pylist() == rows_of(data) == table.to_pylist()


def _words(values: Sequence[Any], indices: Sequence[int | None], kind: pa.DataType = pa.string()) -> pa.Array:  # noqa: B008 - a value
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values, kind))


@pytest.mark.parametrize("name", ["a column", "struct", "list"])
@pytest.mark.parametrize(
    "parts",
    [
        [_words([], [None, None]), _words(["a"], [0, 0])],
        [_words([], [None, None], pa.decimal128(5, 2)), _words([1], [0, 0], pa.decimal128(5, 2))],
        [_words(["a", "a"], [0, 1]), _words(["b"], [0, 0])],
        [_words([None, "a"], [0, 1]), _words(["b", None], [0, 1])],
        [_words([-2.0], [0, None], pa.float16()), _words([0.5], [0, 0], pa.float16())],
        [_words(["a"], [0, None], pa.string_view()), _words(["b"], [0, 0], pa.string_view())],
    ],
    ids=["empty", "empty decimals", "twice", "nulls", "halves", "views"],
)
def test_dictionaries_that_pyarrow_does_not_join(name: str, parts: list[pa.Array]) -> None:
    wrapped = {**_INSIDE, "list": lambda words: pa.ListArray.from_arrays([0, 1, 2], words)}[name]
    table = pa.table({"d": pa.chunked_array([wrapped(part) for part in parts])})
    for options in ({}, {"batch_rows": 1}, {"layout": "huggingface"}):
        data, _ = write(table, **options)
        assert read_by_pyarrow(data).to_pylist() == rows_of(data) == table.to_pylist()


def test_what_lies_under_a_null_is_no_index() -> None:
    indices = pa.Array.from_buffers(
        pa.int32(), 3, [pa.py_buffer(b"\1"), pa.py_buffer(np.array([0, 2_000_000_000, -5], np.int32))]
    )
    chunks = [pa.array(["z"]).dictionary_encode(), pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)]
    data, _ = write(pa.table({"d": pa.chunked_array(chunks)}), batch_rows=1)
    assert read_by_pyarrow(data).column("d").to_pylist() == ["z", "a", None, None]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_metadata_stay(kind: pa.DataType) -> None:
    metadata = {b"lading.feature": b'{"kind": "image"}', b"other": b"kept"}
    schema = pa.schema([pa.field("jpg", kind, metadata=metadata)], {b"huggingface": b"{}", b"mine": b"\xff"})
    table = pa.table([pa.array([b"x" * 50, None, b""], kind)], schema=with_files(schema, [FileEntry("a.tar")]))
    data, _ = write(table)
    for found in (read_by_pyarrow(data).schema, opened(data).schema()):
        assert found.field("jpg").metadata == metadata
        assert found.metadata == {b"huggingface": b"{}", b"mine": b"\xff"}
        assert FILES_KEY not in found.metadata


def test_batches_do_not_show_in_the_file() -> None:
    table = pa.table(
        {
            "n": range(100),
            "t": [None if n % 7 == 0 else "x" * n for n in range(100)],
            "b": [b"y" * n for n in range(100)],
        }
    )
    for options in ({"batch_rows": 7}, {"batch_bytes": 1000}, {"layout": "huggingface", "batch_rows": 9}):
        whole, _ = write(table, **options)
        for rows in (1, 3, 64):
            chunked = pa.Table.from_batches(table.to_batches(max_chunksize=rows))
            assert write(chunked, **options)[0] == whole


def test_record_batches_keep_their_limits() -> None:
    table = pa.table({"b": [b"x" * 100] * 50 + [b"y" * 5000]})
    data, _ = write(table, batch_rows=20, batch_bytes=1000)
    reader = pa.ipc.open_file(data)
    counts = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
    assert counts == [10, 10, 10, 10, 10, 1]
    counts = [pa.ipc.open_file(write(table, batch_rows=20)[0]).get_batch(i).num_rows for i in range(3)]
    assert counts == [20, 20, 11]


def test_what_does_not_fit_the_shard_is_refused() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.large_binary())])
    writer = FORMAT.create([MemoryStore().put_stream("s.arrow")], schema, FORMAT.write_options({}))
    payload = pa.array([b"x", b"y"])
    with pytest.raises(SchemaMismatch, match=r"s.arrow: columns are not those"):
        writer.write(pa.record_batch([payload], names=["b"]))
    with pytest.raises(SchemaMismatch, match=r"s.arrow column 'a'.*expected int64, found string"):
        writer.write(pa.record_batch([pa.array(["1", "2"]), payload], names=["a", "b"]))
    writer.write(pa.record_batch([pa.array([1, 2]), payload], names=["a", "b"]))
    with pytest.raises(Unrepresentable, match=r"row 3 column 'a': null"):
        writer.write(pa.record_batch([pa.array([1, None]), payload], names=["a", "b"]))


def test_times_of_day_that_arrow_does_not_allow_are_refused() -> None:
    """24:00:00, as Parquet files may have it: whoever checks an Arrow file does not read it, and lading does."""
    times = pa.array([0, 86_399_999_999, 86_400_000_000], pa.int64()).view(pa.time64("us"))
    with pytest.raises(pa.ArrowInvalid):
        times.validate(full=True)
    writer = FORMAT.create(
        [MemoryStore().put_stream("s.arrow")], pa.schema([("t", times.type)]), FORMAT.write_options({})
    )
    writer.write(pa.record_batch([times[:2]], names=["t"]))
    with pytest.raises(Unrepresentable, match=r"s.arrow row 4 column 't': a value that time64\[us\] does not allow"):
        writer.write(pa.record_batch([times], names=["t"]))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layout": "feather"}, "no such layout; expected cache, huggingface, stream, found 'feather'"),
        ({"compression": "gzip"}, "no such compression; expected none, zstd, lz4, found 'gzip'"),
        ({"compression": "lz4", "compression_level": 3}, "only zstd has levels"),
        ({"compression": "zstd", "compression_level": 99}, "no such level of zstd; expected .* to 22, found 99"),
        ({"batch_rows": 0}, "batch_rows is out of range"),
        ({"batch_rows": "many"}, "batch_rows is out of range"),
        ({"batch_bytes": "2gb"}, "batch_bytes is out of range"),
        ({"batch_bytes": "much"}, "not a size"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FORMAT.create(
            [MemoryStore().put_stream("s.arrow")], pa.schema([("a", pa.int8())]), FORMAT.write_options(options)
        )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mmap": "no"}, "neither true nor false"),
        ({"media": "pixels"}, "media are given as they are stored, or as bytes"),
    ],
)
def test_options_of_reading_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        opened(write(pa.table({"a": [1]}))[0], **options)


def test_media_for_datasets_come_back_as_bytes() -> None:
    fields = [
        with_feature(pa.field("image", pa.large_binary()), Image()),
        with_feature(pa.field("label", pa.int16()), ClassLabel(("no", "yes"))),
    ]
    table = pa.table([pa.array([b"x", None, b""], pa.large_binary()), pa.array([1, 0, None], pa.int16())],
                     schema=pa.schema(fields))  # fmt: skip
    data, _ = write(table, layout="huggingface")
    told = json.loads(read_by_pyarrow(data).schema.metadata[b"huggingface"])
    assert told == {
        "info": {
            "features": {"image": {"_type": "Image"}, "label": {"names": ["no", "yes"], "_type": "ClassLabel"}},
        }
    }
    assert read_by_pyarrow(data).to_pylist() == [
        {"image": {"bytes": b"x", "path": None}, "label": 1},
        {"image": None, "label": 0},
        {"image": {"bytes": b"", "path": None}, "label": None},
    ]
    assert rows_of(data) == table.to_pylist()
    assert opened(data).schema().field("image").equals(fields[0], check_metadata=True)
    assert [opened(data).get_sample(row) for row in range(3)] == [
        {"image": b"x", "label": 1}, {"image": None, "label": 0}, {"image": b"", "label": None},
    ]  # fmt: skip


def test_media_of_datasets_as_bytes_where_that_is_asked_for() -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = json.dumps({"info": {"features": {"image": {"_type": "Image"}, "other": {}}}})
    schema = pa.schema([("image", kind), ("other", kind)], metadata={"huggingface": features})
    value = {"bytes": b"x", "path": "a.png"}
    data = arrow_bytes(pa.Table.from_pylist([{"image": value, "other": value}], schema=schema))
    assert rows_of(data) == [{"image": value, "other": value}]
    assert rows_of(data, media="bytes") == [{"image": b"x", "other": value}]
    assert opened(data).get_sample(0) == opened(data, media="bytes").get_sample(0) == {"image": b"x", "other": value}
    elsewhere = pa.Table.from_pylist([{"image": None}, {"image": {"bytes": None, "path": "a.png"}}], schema=schema)
    with pytest.raises(Exception, match=r"s.arrow column 'image': the bytes are not here.*found a.png"):
        rows_of(arrow_bytes(elsewhere), media="bytes")


def test_indexes_tell_of_what_was_written() -> None:
    store = MemoryStore()
    shards = []
    for name, rows in (("shard-00000.arrow", 2), ("shard-00001.arrow", 3)):
        sink = store.put_stream(f"set/{name}")
        writer = FORMAT.create([sink], pa.schema([("a", pa.int64())]), FORMAT.write_options({}))
        writer.write(pa.record_batch([pa.array(range(rows))], names=["a"]))
        shards.append((name, writer.close()))
        sink.close()
    assert FORMAT.index.write(store, "set", shards, None) == ["set/_metadata.json"]
    listed = FORMAT.index.shards(store, "set/_metadata.json", b"")
    assert listed is not None
    assert [(shard.path, shard.num_samples) for shard in listed] == [
        ("set/shard-00000.arrow", 2), ("set/shard-00001.arrow", 3),
    ]  # fmt: skip
    [data] = store.get_ranges("set/_metadata.json", [(0, store.head("set/_metadata.json").size_bytes)])
    assert json.loads(bytes(data)) == {
        "cache_format_version": 1,
        "format": "arrow",
        "layout": "arrow-shards",
        "schema_fingerprint": "",
        "num_rows": 5,
        "num_shards": 2,
        "shard_row_counts": [2, 3],
        "shard_filenames": ["shard-00000.arrow", "shard-00001.arrow"],
        "shard_size_target_bytes": None,
    }
