"""Writing JSON Lines: what Python's json and lading read back, spelling, and what is refused."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import lading
from lading._core.content.digests import sample_digests
from lading._core.features.types import Array, ClassLabel, Feature, Image, Json, Text, Value, with_feature
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.jsonl.format import FORMAT
from lading._core.storage.memory import MemoryStore
from lading.errors import SchemaMismatch, Unrepresentable, UsageError
from lading.limits import DEFAULT_LIMITS
from registered import NamedType


def write(table: pa.Table, *, batch_rows: int = 5, **options: Any) -> bytes:
    store = MemoryStore()
    sink = store.put_stream("d.jsonl")
    writer = FORMAT.create([sink], table.schema, FORMAT.write_options(options))
    for batch in table.to_batches(max_chunksize=batch_rows):
        writer.write(batch)
    facts = writer.close()
    assert facts.size_bytes == sink.close().size_bytes
    assert facts.num_samples == table.num_rows
    [data] = store.get_ranges("d.jsonl", [(0, facts.size_bytes)])
    return bytes(data)


def read(data: bytes) -> pa.Table:
    return FORMAT.open(ShardFile(MemoryStore({"d.jsonl": data}), "d.jsonl"), FORMAT.read_options({})).read()


def by_json(data: bytes) -> list[Any]:
    assert not data or data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_COLUMNS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.uint64(): st.integers(0, (1 << 64) - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.string_view(): _TEXT,
    pa.dictionary(pa.int32(), pa.string()): _TEXT,
    pa.list_(pa.int64()): st.lists(st.none() | st.integers(-9, 9), max_size=3),
    pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]): st.fixed_dictionaries(
        {"a": st.none() | st.floats(), "b": st.none() | st.lists(_TEXT, max_size=2)}
    ),
    pa.null(): st.none(),
}


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(st.sampled_from(list(_COLUMNS)), min_size=1, max_size=4))
    names = draw(st.lists(_TEXT, min_size=len(kinds), max_size=len(kinds), unique=True))
    rows = draw(st.integers(0, 8))
    columns = [
        pa.array(draw(st.lists(st.none() | _COLUMNS[k], min_size=rows, max_size=rows)), k)
        if not pa.types.is_string_view(k)
        else pa.array(draw(st.lists(st.none() | _TEXT, min_size=rows, max_size=rows)), pa.string()).cast(k)
        for k in kinds
    ]
    return pa.table(columns, names=names)


@pytest.mark.soak
@given(_tables())
def test_any_table_is_read_by_python_and_comes_back_with_one_digest(table: pa.Table) -> None:
    data = write(table)
    assert json.dumps(by_json(data)) == json.dumps(table.to_pylist())
    found = read(data)
    assert found.column_names == (table.column_names if table.num_rows else [])
    assert sample_digests(found).tolist() == sample_digests(table).tolist()


def test_lines_are_compact_and_hold_every_column() -> None:
    table = pa.table({"id": ["a", None], "n": [1, 2], "x": [0.5, 1e16], "s": [[1, 2], None], "none": pa.nulls(2)})
    assert write(table) == (
        b'{"id":"a","n":1,"x":0.5,"s":[1, 2],"none":null}\n{"id":null,"n":2,"x":1e+16,"s":null,"none":null}\n'
    )
    assert write(pa.table({"none": pa.nulls(2)}).select([])) == b"{}\n{}\n"


def test_texts_are_escaped_as_json_has_it_and_else_left_as_they_are() -> None:
    texts = ['"\\/\b\f\n\r\t\x00\x1f', "é日本🎉\u2028\x7f", ""]
    data = write(pa.table({'quo"te\n': texts}))
    assert [row['quo"te\n'] for row in by_json(data)] == texts
    assert "é日本🎉\u2028\x7f".encode() in data


def test_bytes_are_text_where_their_feature_says_so() -> None:
    fields = [
        with_feature(pa.field("txt", pa.large_binary()), Text()),
        with_feature(pa.field("cls", pa.large_binary()), Value("int64")),
        with_feature(pa.field("json", pa.binary()), Json()),
        with_feature(pa.field("label", pa.int64()), ClassLabel(("a", "b"))),
    ]
    pretty = b'\xef\xbb\xbf{\n  "a": [1,\r\n 2.0]}\n'
    columns = [["é".encode(), None], [b"7", b"8"], [pretty, None], [0, 1]]
    table = pa.table([pa.array(v, f.type) for v, f in zip(columns, fields, strict=True)], schema=pa.schema(fields))
    data = write(table)
    assert by_json(data) == [
        {"txt": "é", "cls": "7", "json": {"a": [1, 2.0]}, "label": 0},
        {"txt": None, "cls": "8", "json": None, "label": 1},
    ]
    # Text of numbers is a number only with its feature, which the line does not have.
    again = read(data).drop_columns(["cls"])
    assert sample_digests(again).tolist() == sample_digests(table.drop_columns(["cls"])).tolist()


@pytest.mark.parametrize(
    "value, message",
    [
        (b"{", r"d\.jsonl row 6 column 'j': a value of a JSON column is not valid JSON.*broken JSON"),
        (b"\xff", r"row 6 column 'j': invalid UTF-8; found b'\\xff'"),
        (b'{"a": {"b": 1, "b": 2}}', r"row 6 column 'j': an object in this column holds a name twice; found 'b'"),
        (b"", r"row 6 column 'j': a value of a JSON column is not valid JSON"),
        (b'{"a": "one\ntwo"}', r"row 6 column 'j': a value of a JSON column is not valid JSON.*control character"),
        (b'{"one\rtwo": 1}', r"row 6 column 'j': a value of a JSON column is not valid JSON.*control character"),
        (b'{"a"\n: 1, "a"\r\n: 2}', r"row 6 column 'j': an object in this column holds a name twice; found 'a'"),
    ],
)
def test_json_that_no_reader_would_get_back_is_refused(value: bytes, message: str) -> None:
    field = with_feature(pa.field("j", pa.large_binary()), Json())
    table = pa.table([pa.array([b"1"] * 6 + [value], pa.large_binary())], schema=pa.schema([field]))
    with pytest.raises(Unrepresentable, match=message):
        write(table)


def test_types_that_somebody_registered_are_written_as_they_are_stored() -> None:
    pairs, raw = pa.array([[1, 2], None], pa.list_(pa.int8())), pa.array([b"ab", None])
    named = [pa.ExtensionArray.from_storage(NamedType(column.type), column) for column in (pairs, raw)]
    stored, registered = (
        pa.table({"p": p, "l": pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), p), "b": b})
        for p, b in ((pairs, raw), named)
    )
    with pytest.raises(Unrepresentable, match="column 'b': JSON cannot hold bytes"):
        write(registered)
    assert write(registered, bytes="base64") == write(stored, bytes="base64")
    lines = write(registered.select(["p", "l"]))
    assert by_json(lines) == [{"p": [1, 2], "l": [[1, 2], None]}, {"p": None, "l": []}]
    reader = FORMAT.open(ShardFile(MemoryStore({"d.jsonl": lines}), "d.jsonl"), FORMAT.read_options({}))
    target = registered.select(["p", "l"])
    [batch] = reader.batches(Scan(schema=target.schema, max_rows=9, max_bytes=1 << 20))
    assert pa.Table.from_batches([batch]).equals(target)


def test_a_text_that_is_no_utf8_is_told_by_its_row() -> None:
    field = with_feature(pa.field("t", pa.large_binary()), Text())
    table = pa.table([pa.array([b"good"] * 7 + [b"\xc3"], pa.large_binary())], schema=pa.schema([field]))
    with pytest.raises(Unrepresentable, match=r"row 7 column 't': invalid UTF-8"):
        write(table)


def test_bytes_are_refused_or_base64_if_asked_for() -> None:
    field = with_feature(pa.field("jpg", pa.large_binary()), Image())
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)):
        table = pa.table(
            [pa.array([b"\xff\xd8", None], pa.binary()).cast(kind)], schema=pa.schema([field.with_type(kind)])
        )
        with pytest.raises(Unrepresentable, match=r"column 'jpg': JSON cannot hold bytes; found .*'bytes': 'base64'"):
            write(table)
        assert by_json(write(table, bytes="base64")) == [{"jpg": "/9g="}, {"jpg": None}]


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.mark.soak
def test_gzip_is_many_members_that_each_begin_with_a_line() -> None:
    table = pa.table({"a": [f"{n} " * (n % 300) for n in range(1000)]})
    packed, plain = write(table, compression="gzip"), write(table)
    assert packed == write(table, compression="gzip", batch_rows=333)
    members, rest = [], packed
    while rest:
        member = zlib.decompressobj(31)
        members.append(member.decompress(rest))
        assert member.eof
        rest = member.unused_data
    assert b"".join(members) == plain
    assert len(members) == -(-len(plain) // (128 << 10))
    assert all(member.endswith(b"\n") and member.startswith(b'{"a"') for member in members)
    assert read(packed).equals(read(plain))
    assert gzip.decompress(write(table.slice(0, 0), compression="gzip")) == b""


@pytest.mark.cases(3)
@pytest.mark.parametrize("compression", _UNPACK)
def test_compressed_files_are_those_of_the_codec(compression: str) -> None:
    table = pa.table({"n": range(1000)})
    packed = write(table, compression=compression, compression_level=2)
    assert _UNPACK[compression](packed) == write(table)
    assert FORMAT.endings(FORMAT.write_options({"compression": compression}))[0].startswith(".jsonl.")


@pytest.mark.soak
def test_a_large_batch_is_written_in_parts() -> None:
    table = pa.table({"text": ["x" * 1_000_000] * 30, "n": [math.pi] * 30})
    assert by_json(write(table, batch_rows=30)) == table.to_pylist()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"compression": "lz4"}, "no such compression; expected gzip, zstd, bz2, xz, found compression='lz4'"),
        ({"bytes": "hex"}, "no such policy; expected error or base64, found bytes='hex'"),
        ({"compression": "gzip", "compression_level": 99}, "gzip has no such level"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write(pa.table({"a": [1]}), **options)


@pytest.mark.cases(3)
@pytest.mark.parametrize("feature", [None, Image(), Array("uint8", (1,))])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1), pa.dictionary(pa.int8(), pa.binary())])
def test_the_manifest_says_that_base64_is_bytes(tmp_path: Path, kind: pa.DataType, feature: Feature | None) -> None:
    field = pa.field("b", kind)
    field = field if feature is None else with_feature(field, feature)
    values = pa.array([b"\xff", b"a"], pa.binary(1) if pa.types.is_fixed_size_binary(kind) else pa.binary())
    column = values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values.cast(kind)
    table = pa.table([pa.array([1, 2], pa.int8()), column], schema=pa.schema([pa.field("n", pa.int8()), field]))
    with lading.writer(tmp_path, format="jsonl", options={"bytes": "base64"}) as writer:
        writer.write_batch(table)
    with lading.open(tmp_path) as dataset:
        [batch] = dataset.batches()
        read = pa.large_binary() if feature is None or not pa.types.is_fixed_size_binary(kind) else kind
        assert dataset.schema.types == batch.schema.types == [pa.int8(), read]
        assert batch.to_pylist() == [{"n": 1, "b": b"\xff"}, {"n": 2, "b": b"a"}]
    assert [row["b"] for row in lading.open(tmp_path / "*.jsonl")] == ["/w==", "YQ=="]


@pytest.mark.soak
@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_lines_that_readers_refuse_are_not_written(compression: str | None) -> None:
    most = DEFAULT_LIMITS.line_bytes
    table = pa.table({"t": pa.array(["a", "b" * (most - len('{"t":""}\n')), "c" * most], pa.large_string())})
    with pytest.raises(Unrepresentable, match=r"d.jsonl row 2: a line longer than readers accept; .*such as parquet"):
        write(table, compression=compression)
    if compression is None:
        assert read(write(table.slice(0, 2))).equals(table.slice(0, 2).cast(pa.schema([("t", pa.string())])))


@pytest.mark.soak
def test_many_columns_are_read_back() -> None:
    table = pa.table({f"column {i}": [i, i + 1] for i in range(5000)})
    assert read(write(table)).equals(table)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_columns_that_first_appear_late_are_written(tmp_path: Path, compression: str | None) -> None:
    rows = [{"id": at, **({"late": {"at": at}} if at == 2500 else {}), **({"s": "x"} if at > 1200 else {})}
            for at in range(2600)]  # fmt: skip
    with lading.writer(tmp_path / "out", format="jsonl", options={"compression": compression}) as writer:
        for row in rows:
            writer.write(row)
    [file] = (tmp_path / "out").glob("*.jsonl*")
    lines = (gzip.decompress(file.read_bytes()) if compression else file.read_bytes()).splitlines()
    found = [{name: value for name, value in json.loads(line).items() if value is not None} for line in lines]
    assert found == rows
    ds = lading.open(tmp_path / "out")
    assert ds[0] == {"id": 0, "s": None, "late": None}
    assert ds[2500] == {"id": 2500, "s": "x", "late": {"at": 2500}}
    assert not lading.verify(tmp_path / "out", deep=True).findings


def test_a_given_schema_takes_no_further_column(tmp_path: Path) -> None:
    writer = lading.writer(tmp_path / "out", format="jsonl", schema=pa.schema([("id", pa.int64())]))
    writer.write_batch(pa.table({"id": [1]}))
    with pytest.raises(SchemaMismatch, match="late"):
        writer.write_batch(pa.table({"id": [1], "late": [2]}))
