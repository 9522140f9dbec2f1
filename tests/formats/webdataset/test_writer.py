"""Writing WebDataset tars: what tarfile and lading read back, and what is refused."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lading
from lading._core.arrow import views
from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.arrow.references import files_of, unpack
from lading._core.formats.base import Scan, ShardFacts, ShardFile
from lading._core.formats.webdataset import writer
from lading._core.formats.webdataset.format import FORMAT
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading.errors import Unrepresentable, UsageError
from lading.testing.format import read_rows
from lading.testing.strategies import keys, sample_tables
from watched import forget_peak, peak_mb

READABLE = sample_tables(dots=False, slashes=False, fields=("jpg", "seg.png", "txt", "json", "cls", "ünï.code", ""))


def write(*batches: pa.RecordBatch | pa.Table, **options: Any) -> tuple[bytes, ShardFacts, list[pa.Table]]:
    store = MemoryStore()
    sink = store.put_stream("t.tar")
    parts = [b for batch in batches for b in (batch.to_batches() if isinstance(batch, pa.Table) else [batch])]
    writer = FORMAT.create([sink], batches[0].schema, FORMAT.write_options(options))
    refs = [writer.write(part) for part in parts]
    expected = writer.bytes_written()
    facts = writer.close()
    sink.close()
    [data] = store.get_ranges("t.tar", [(0, facts.size_bytes)])
    assert options.get("compression") or facts.size_bytes == expected
    return bytes(data), facts, refs


def table(names: list[str], **columns: Any) -> pa.RecordBatch:
    arrays = [pa.array(names, pa.string())]
    arrays += [c if isinstance(c, pa.Array) else pa.array(c, pa.large_binary()) for c in columns.values()]
    return pa.record_batch(arrays, names=["__key__", *columns])


def by_tarfile(data: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        return [(m.name, tar.extractfile(m).read()) for m in tar.getmembers()]  # type: ignore[union-attr]


def read_back(data: bytes) -> list[dict[str, Any]]:
    store = MemoryStore({"t.tar": data})
    return read_rows(FORMAT.open(ShardFile(store, "t.tar"), FORMAT.read_options({})).read(), store)


def expected_members(samples: pa.Table) -> list[tuple[str, bytes]]:
    fields = sorted(name for name in samples.column_names if name != "__key__")
    return [
        (f"{row['__key__']}.{name}", row[name])
        for row in samples.to_pylist()
        for name in fields
        if row[name] is not None
    ]


@pytest.mark.soak
@given(READABLE)
def test_tarfile_and_lading_read_what_was_written(samples: pa.Table) -> None:
    data, facts, _ = write(samples)
    assert by_tarfile(data) == expected_members(samples)
    assert read_back(data) == read_rows(samples, MemoryStore())
    assert facts.num_samples == len(samples)
    assert facts.payload_bytes == sum(len(value) for _, value in by_tarfile(data))


@given(st.lists(keys(), min_size=1, max_size=5))
def test_keys_come_back_or_are_refused(names: list[str]) -> None:
    samples = pa.Table.from_batches([table(names, txt=[b"x"] * len(names))])
    data, refused = _try_to_write(samples)
    if refused is None:
        assert read_back(data) == read_rows(samples, MemoryStore())
    else:
        assert refused.sample == names[refused.row or 0]


def _try_to_write(samples: pa.Table) -> tuple[bytes, Unrepresentable | None]:
    try:
        return write(samples)[0], None
    except Unrepresentable as error:
        return b"", error


@given(st.lists(keys(), max_size=6, unique=True))
def test_escaped_keys_stand_in_the_tar_and_come_back(names: list[str]) -> None:
    def escape(key: str) -> str:
        for character in "%.\0\n":
            key = key.replace(character, f"%{ord(character):02X}")
        return key

    names = [name for name in names if not escape(name).startswith("__")]
    samples = table(names, jpg=[b"x"] * len(names))
    data, _, [refs] = write(samples, escape="percent")
    assert [row["__key__"].decode() for row in read_back(data)] == [escape(name) for name in names]
    assert refs.column("__key__").to_pylist() == [escape(name) for name in names]
    undone = FORMAT.open(ShardFile(MemoryStore({"t.tar": data}), "t.tar"), FORMAT.read_options({"escape": "percent"}))
    assert [key for b in undone.batches(Scan(max_rows=2, max_bytes=1)) for key in b["__key__"].to_pylist()] == names
    if names:
        assert undone.read(scan=Scan(["__key__"])).column("__key__").to_pylist() == names


@pytest.mark.parametrize("key", ["a.b", "dir/.hidden", ".", "", "a\0b", "__meta__/x", "v1.0/.h"])
def test_keys_that_a_reader_would_see_differently(key: str) -> None:
    with pytest.raises(Unrepresentable, match="a reader would not see this key") as caught:
        write(table(["ok", key], jpg=[b"1", b"2"]))
    assert ("escape" in str(caught.value)) == (key not in ("", "__meta__/x"))  # where an escape would do
    assert (caught.value.row, caught.value.sample, caught.value.column) == (1, key, "jpg")


@pytest.mark.parametrize("key", ["v1.0/img", "./a", "a/b/", "__x__y", "a\nb", "é" * 300, "/a", "..a/b"])
def test_keys_that_look_odd_but_are_good(key: str) -> None:
    assert read_back(write(table([key], jpg=[b"1"]))[0]) == [{"__key__": key.encode(), "jpg": b"1"}]


def test_a_field_may_make_a_name_that_is_skipped() -> None:
    with pytest.raises(Unrepresentable):
        write(table(["__a"], b__=[b"1"]))
    assert read_back(write(table(["__a"], jpg=[b"1"]))[0]) == [{"__key__": b"__a", "jpg": b"1"}]


def test_neighbours_with_one_key() -> None:
    for batches in ([table(["a", "b", "b"], x=[b""] * 3)], [table(["a", "b"], x=[b""] * 2), table(["b"], x=[b""])]):
        with pytest.raises(Unrepresentable, match="one key") as caught:
            write(*batches)
        assert (caught.value.row, caught.value.sample) == (2, "b")
    data, _, _ = write(table(["a", "b", "a"], x=[b"1", b"2", b"3"]))
    assert len(read_back(data)) == 3


def test_samples_that_would_vanish() -> None:
    for batch in (table(["a", "b"], x=[b"", None]), table(["a"])):
        with pytest.raises(Unrepresentable, match="no value"):
            write(batch)


def test_rows_without_a_key() -> None:
    with pytest.raises(Unrepresentable, match="key"):
        write(pa.record_batch([pa.array(["a", None]), pa.array([b"1", b"2"])], names=["__key__", "x"]))
    with pytest.raises(UsageError, match="__key__"):
        write(pa.record_batch([pa.array([b"1"])], names=["x"]))


@pytest.mark.parametrize("keys", [pa.array([1]), pa.array([b"a"]), pa.nulls(1), pa.array([1]).dictionary_encode()])
def test_keys_are_text(keys: pa.Array) -> None:
    with pytest.raises(Unrepresentable, match=f"found {re.escape(str(keys.type))}") as caught:
        write(pa.record_batch([keys, pa.array([b"1"])], names=["__key__", "x"]))
    assert caught.value.column == "__key__"


def test_a_name_too_long() -> None:
    with pytest.raises(Unrepresentable, match="4096"):
        write(table(["k" * 4096], x=[b""]))


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()]
)
@pytest.mark.parametrize("size", [3, 10_000])
def test_values_of_any_type(kind: pa.DataType, size: int) -> None:
    text = ["", "x" * size, None, "é" * 20]
    padded = pa.array(["before", *text, "after"], pa.string()).cast(kind)
    data, _, _ = write(table(["a", "b", "c", "d"], cls=[b"1"] * 4, txt=padded[1:5]))
    assert [row.get("txt") for row in read_back(data)] == [None if t is None else t.encode() for t in text]


def test_values_are_written_from_where_they_lie() -> None:
    """Views over a buffer, small ones joined, large ones by reference: the same file."""
    rng = np.random.default_rng(0)
    for size in (50, 50_000):
        payload = rng.bytes(20 * size)
        column = views.from_ranges(pa.py_buffer(payload), np.arange(20) * size, np.full(20, size))
        data, _, _ = write(table([f"{i:02d}" for i in range(20)], bin=column))
        assert [value for _, value in by_tarfile(data)] == [payload[i * size :][:size] for i in range(20)]


def test_members_that_are_joined_part_by_part_are_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    names, values = [f"{i:02d}" for i in range(20)], [b"x" * i * 40 for i in range(20)]
    whole, _, [refs] = write(table(names, bin=values, txt=values[::-1]))
    for most in (1, 3, 39, 40):
        monkeypatch.setattr(writer, "_MOST_MEMBERS", most)
        data, _, [again] = write(table(names, bin=values, txt=values[::-1]))
        assert data == whole
        assert again.equals(refs)


@pytest.mark.soak
def test_a_sample_of_very_many_members_is_not_joined_at_once(tmp_path: Path) -> None:
    """50,000 members of 80 bytes, 1 KB each in the file: their headers are held, which are half of it."""
    sink = LocalStore().put_stream(str(tmp_path / "t.tar"))
    writer = FORMAT.create([sink], pa.schema([("__key__", pa.string())]), FORMAT.write_options({}))
    names = pa.array([f"a.{i}.png" for i in range(50_000)])
    values = views.places(pa.array([b"x" * 80] * 50_000, pa.large_binary()))
    forget_peak()
    before = peak_mb()
    offset, _ = writer.add(names, values, np.array([len(names) - 1]))
    assert peak_mb() - before < 135
    assert offset.tolist() == list(range(512, 50_000 * 1024, 1024))
    writer.close()
    sink.close()


def test_references_of_what_was_written() -> None:
    data, _, parts = write(table(["a", "b"], y=[b"1", None], x=[b"22", b"333"]), table(["c"], z=[b"4"]))
    assert [part.column_names for part in parts] == [["__key__", "x", "y"], ["__key__", "z"]]
    x, y, z = unpack(parts[0].column("x")), unpack(parts[0].column("y")), unpack(parts[1].column("z"))
    assert [data[o : o + n] for o, n in zip(x.offset, x.length, strict=True)] == [b"22", b"333"]
    assert y.valid.tolist() == [True, False]
    assert data[z.offset[0] : z.offset[0] + z.length[0]] == b"4"
    assert files_of(parts[0].schema)[0].url == "t.tar"


def test_members_by_their_names() -> None:
    store = MemoryStore()
    sink = store.put_stream("t.tar")
    writer = FORMAT.create([sink], pa.schema([("__key__", pa.string())]), FORMAT.write_options({}))
    names = ["doc.v1.0.jpg", "doc.v1.json", "é" * 200 + ".x"]
    values = [bytes(9000), memoryview(b"{}"), pa.py_buffer(b"x")]
    offset, length = writer.add(pa.array(names), ByteRanges.of(values), np.array([1, 2]))
    again, _ = writer.add(pa.array(["last"]), ByteRanges.of([b"y"]), np.array([0]))
    assert writer.add(pa.array([], pa.string()), ByteRanges.of([]), np.zeros(0, np.int64))[0].tolist() == []
    size = writer.close().size_bytes
    sink.close()
    [data] = store.get_ranges("t.tar", [(0, size)])
    assert by_tarfile(data) == [*zip(names, [bytes(value) for value in values], strict=True), ("last", b"y")]
    assert [bytes(data[o : o + n]) for o, n in zip(offset, length, strict=True)] == [bytes(v) for v in values]
    assert bytes(data[again[0] : again[0] + 1]) == b"y"
    for bad in ("", "a\0b"):
        with pytest.raises(Unrepresentable, match="name"):
            writer.add(pa.array([bad]), ByteRanges.of([b""]), np.array([0]))
        with pytest.raises(Unrepresentable, match="name"):
            writer.add(pa.array(["good", bad]), ByteRanges.of([b"", b""]), np.array([1]))


def test_headers_are_fixed() -> None:
    samples = table(["a"], txt=[b"x"])
    with tarfile.open(fileobj=io.BytesIO(write(samples, mtime=86_400)[0])) as tar:
        member = tar.getmembers()[0]
    # mode and owner as webdataset 1.0.2 writes them
    assert (member.mode, member.uname, member.gname, member.mtime) == (0o444, "bigdata", "bigdata", 86_400)
    assert write(samples)[0] == write(samples, mtime=0)[0]


@pytest.mark.parametrize("compression", ["gzip", "zstd", "bz2", "xz"])
def test_compressed_tars(compression: str) -> None:
    samples = table([f"{i:03d}" for i in range(50)], bin=[b"%d" % i * 500 for i in range(50)])
    data, facts, _ = write(samples, compression=compression)
    assert data == write(samples, compression=compression)[0]
    assert facts.size_bytes == len(data)
    if compression != "zstd":  # tarfile knows the others
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            assert len(tar.getmembers()) == 50
    assert FORMAT.endings(FORMAT.write_options({"compression": compression}))[0] in FORMAT.info.extensions


@pytest.mark.parametrize(
    "options",
    [{"compression": "lzma"}, {"mtime": -1}, {"mtime": 1.5}, {"escape": "drop"}, {"fields": "any"}, {"no_such": 1}],
)
def test_options_that_are_not_known(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        write(table(["a"], x=[b""]), **options)
    assert next(iter(options)) in str(caught.value)


@pytest.mark.parametrize("key", ["", "__x__/a"])
@pytest.mark.parametrize("escape", ["error", "percent"])
def test_escapes_are_advised_only_where_they_help(key: str, escape: str) -> None:
    with pytest.raises(Unrepresentable, match=r"a reader would not see this key.* Give the sample another key\.$"):
        write(table([key], txt=[b"x"]), escape=escape)


def test_columns_that_are_no_members() -> None:
    for column, kind in (("interval", pa.month_day_nano_interval()), ("list", pa.list_(pa.date32()))):
        with pytest.raises(Unrepresentable, match=column):
            FORMAT.create(
                [MemoryStore().put_stream("t")],
                pa.schema([("__key__", pa.string()), (column, kind)]),
                FORMAT.write_options({}),
            )
    lazy = FORMAT.open(
        ShardFile(MemoryStore({"t.tar": write(table(["a"], x=[b"1"]))[0]}), "t.tar"), FORMAT.read_options({})
    ).read()
    with pytest.raises(Unrepresentable, match="Read the bytes first"):
        write(lazy)


@pytest.mark.parametrize(
    "values", [pa.array([[1.0], [2.0]], pa.list_(pa.float32())), pa.array([1, 2]), pa.array([b"a", b"b"])]
)
def test_a_column_of_an_extension_type_that_nobody_knows_is_read_by_its_index_too(
    values: pa.Array, tmp_path: Path
) -> None:
    told = {"ARROW:extension:name": "of.somebody", "ARROW:extension:metadata": "x"}
    field = pa.field("x", values.type, metadata=told)
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write_batch(
            pa.table([pa.array(["a", "b"]), values], schema=pa.schema([("__key__", pa.string()), field]))
        )
    with lading.open(tmp_path / "out") as dataset:
        assert [dataset[i].get("x") for i in range(2)] == values.to_pylist()
        assert dataset.schema.field("x").metadata == {key.encode(): value.encode() for key, value in told.items()}
