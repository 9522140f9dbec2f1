"""Writing MDS's split formats: what is refused, where shards end, both files. The peer's bytes: `tests/interop`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lading
from in_process import by_tasks
from lading._core.dataset.dataset import Dataset
from lading._core.features.types import Encoded, Json, Text, with_feature
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.mds import lines_writer
from lading._core.formats.mds.format import FORMAT
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, DataError, LimitExceeded, SidecarMismatch, Unrepresentable, UsageError

_SCHEMA = pa.schema([("text", pa.string()), ("n", pa.int64()), ("f", pa.float64())])
_KINDS: list[dict[str, Any]] = [
    {"kind": "json"}, {"kind": "csv"}, {"kind": "tsv", "newline": "\r\n"}, {"kind": "xsv", "separator": "||"},
]  # fmt: skip


def _table(count: int, size: int = 10) -> pa.Table:
    return pa.table([["x" * size] * count, range(count), np.arange(count) / 7], schema=_SCHEMA)


def _write(out: Path, table: pa.Table, batch_rows: int = 1000, **options: Any) -> list[dict[str, Any]]:
    with lading.writer(out, format="mds", options=options) as writer:
        for batch in table.to_batches(max_chunksize=batch_rows):
            writer.write_batch(batch)
    index = json.loads((out / "index.json").read_text())
    return list(index["shards"])


def _rows(place: Path) -> list[dict[str, Any]]:
    with lading.open(place) as dataset:
        return list(dataset)


def _change_lines(path: Path, lines: list[bytes]) -> None:
    """Give a shard other lines, as many as it has; `.meta` and index say where they lie, and no manifest more."""
    meta, index = path.with_name(path.name + ".meta"), path.with_name("index.json")
    old, told = meta.read_bytes(), json.loads(index.read_text())
    assert len(lines) == path.read_bytes().count(b"\n")
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    ends = np.cumsum([0, *(len(line) + 1 for line in lines)])
    count = int.from_bytes(old[:4], "little")
    meta.write_bytes(old[:4] + ends[-1 - count :].astype("<u4").tobytes() + old[4 * (count + 2) :])
    told["shards"][0]["raw_data"]["bytes"] = path.stat().st_size
    index.write_text(json.dumps(told))
    shutil.rmtree(path.with_name("_lading"))


@pytest.mark.cases(3)
@pytest.mark.parametrize("written, given, column", [
    (b'"abcdef"', b'"\\udc69"', "text"),
    (b"1234567890123456789", b"9" * 19, "n"),
    (b"0.24680135791357924", b"9" * 19, "f"),
])  # fmt: skip
@pytest.mark.parametrize("read", [lambda ds: list(ds.batches()), lambda ds: ds[1], lambda ds: ds.take([0, 1])])
def test_what_no_column_holds_names_file_row_and_column(
    written: bytes, given: bytes, column: str, read: Callable[[Dataset], object], tmp_path: Path
) -> None:
    """The peer gives Python's own: half of a character out of an escape, an integer of any size."""
    table = pa.table([["abcdef"] * 3, [1234567890123456789] * 3, [0.24680135791357924] * 3], schema=_SCHEMA)
    _write(tmp_path / "out", table, kind="json")
    path = tmp_path / "out" / "shard.00000.json"
    first, second, third = path.read_bytes().splitlines(keepends=True)
    assert written in second
    path.write_bytes(first + second.replace(written, given) + third)
    with lading.open(tmp_path / "out" / "index.json") as dataset, pytest.raises(DataError, match="cannot hold") as told:
        read(dataset)
    assert (told.value.file, told.value.row, told.value.column) == (str(path), 1, column)


@pytest.mark.parametrize("given, found", [
    (b'{"n": 1, "m": 2}', "m"),
    (b'{"n": 1, "n": 2}', "n"),
    (b'{"n": 1 , "n"\t: 2}', "n"),
])  # fmt: skip
@pytest.mark.parametrize("read", [lambda ds: list(ds.batches()), lambda ds: ds[1], lambda ds: ds.take([0, 1])])
def test_a_name_that_no_column_takes_is_an_error(
    given: bytes, found: str, read: Callable[[Dataset], object], tmp_path: Path
) -> None:
    """The peer gives what `json.loads` does: further names too, and the last of two values."""
    _write(tmp_path / "out", pa.table({"n": [1] * 3}), kind="json")
    path = tmp_path / "out" / "shard.00000.json"
    _change_lines(path, [b'{"n": 1}', given, b'{"n": 1}'])
    with lading.open(tmp_path / "out") as dataset, pytest.raises(DataError, match=f"found '{found}'") as told:
        read(dataset)
    assert (told.value.file, told.value.row, told.value.found) == (str(path), 1, repr(found))
    assert not lading.verify(tmp_path / "out", deep=True).ok


def _with_cell(out: Path, cell: str, encoding: str) -> Path:
    """A shard of CSV with a cell between two others."""
    number = "1.5" if encoding == "float" else "7"
    _write(out, pa.table({"n": [json.loads(number)] * 3}), kind="csv")
    _change_lines(out / "shard.00000.csv", [b"n", number.encode(), cell.encode(), number.encode()])
    return out


_INTEGERS = ["+5", " 5", "5\t", "05", "-0", "1_0", "\u0663", "0x10", "0XfF", "5.0", "", "nan"]
_FLOATS = ["+.5", " 5", "1_0.5", "1E5", "5.", "-Infinity", "1e400", "nan(1)", "0x1p3", ""]


@pytest.mark.parametrize(
    "encoding, read, near, cell",
    [*(("int", int, 7, cell) for cell in _INTEGERS), *(("float", float, 1.5, cell) for cell in _FLOATS)],
)
def test_a_number_of_csv_is_what_python_takes_for_one(
    encoding: str, read: Callable[[str], float], near: float, cell: str, tmp_path: Path
) -> None:
    """The peer gives `int(cell)`, and `float(cell)`."""
    with lading.open(_with_cell(tmp_path / "out", cell, encoding)) as dataset:
        try:
            expected = read(cell)
        except ValueError:
            with pytest.raises(CorruptShard, match="not a number") as caught:
                list(dataset.batches())
            assert (caught.value.row, caught.value.column) == (1, "n")
        else:
            assert list(dataset) == [{"n": near}, {"n": expected}, {"n": near}]


def test_an_integer_of_csv_that_is_too_large_is_named(tmp_path: Path) -> None:
    with (
        lading.open(_with_cell(tmp_path / "out", "9" * 19, "int")) as dataset,
        pytest.raises(DataError, match="too large") as caught,
    ):
        list(dataset.batches())
    assert (caught.value.row, caught.value.column) == (1, "n")


@pytest.mark.parametrize("options", _KINDS)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_what_is_written_is_read(options: dict[str, Any], compression: str | None, tmp_path: Path) -> None:
    table = _table(300)
    shards = _write(tmp_path / "new", table, 70, **options, compression=compression, hashes=["md5"], size_limit="2kb")
    assert len(shards) > 3
    for place in (tmp_path / "new", tmp_path / "new" / "index.json"):
        assert _rows(place) == table.to_pylist()
        assert lading.verify(place).ok
    with lading.open(tmp_path / "new" / "index.json", options={"verify": True}) as dataset:
        assert dataset[299] == dataset.shards[len(shards) - 1].get_item(shards[-1]["samples"] - 1)
    assert lading.diff(tmp_path / "new", tmp_path / "new" / "index.json").equal


@pytest.mark.soak
@pytest.mark.parametrize("options", _KINDS)
def test_workers_write_the_same_files(options: dict[str, Any], tmp_path: Path) -> None:
    with lading.writer(tmp_path / "source", format="parquet", shard_size=5000) as writer:
        writer.write_batch(_table(1000))
    for workers in (1, 2):
        lading.convert(tmp_path / "source", tmp_path / str(workers), format="mds", shard_size=2000, **by_tasks(workers),
                       options={**options, "compression": "gz"}, verify=True)  # fmt: skip
    names = sorted(path.name for path in (tmp_path / "1").iterdir() if path.is_file())
    assert sum(".meta" in name for name in names) == sum(".meta" not in name for name in names) - 1 > 2
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    for place in (tmp_path / "2", tmp_path / "2" / "index.json"):
        assert lading.diff(tmp_path / "source", place).equal
        assert lading.verify(place).ok


def test_parts_of_many_writers_are_merged(tmp_path: Path) -> None:
    for rank in (0, 1):
        with lading.writer(tmp_path / "new", format="mds", rank=rank, options={"kind": "csv"}) as writer:
            writer.write_batch(_table(10))
    lading.merge(tmp_path / "new")
    for place in (tmp_path / "new", tmp_path / "new" / "index.json"):
        assert _rows(place) == _table(10).to_pylist() * 2
    shard = json.loads((tmp_path / "new" / "index.json").read_text())["shards"][1]
    assert [shard[key]["basename"] for key in ("raw_data", "raw_meta")] == ["00001-000000.csv", "00001-000000.csv.meta"]


def test_a_copy_knows_both_files_of_a_shard(tmp_path: Path) -> None:
    _write(tmp_path / "new", _table(10), kind="tsv", compression="br:1")
    [shard] = lading.compat.mosaicml.LocalCopy(tmp_path / "new").shards
    assert list(shard) == _rows(tmp_path / "new")
    assert shard.evict() == shard.get_zip_size()
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"_lading", "index.json"}


def test_a_shard_ends_before_the_line_that_would_pass_the_limit(tmp_path: Path) -> None:
    # Lines of "x,0\n"; the header does not count.
    table = pa.table({"a": ["x"] * 9, "b": [0] * 9})
    assert [shard["samples"] for shard in _write(tmp_path / "a", table, 4, kind="csv", size_limit=12)] == [3, 3, 3]
    assert [shard["samples"] for shard in _write(tmp_path / "b", table, 4, kind="csv", size_limit=11)] == [
        2,
        2,
        2,
        2,
        1,
    ]
    assert [shard["samples"] for shard in _write(tmp_path / "c", table, 4, kind="csv", size_limit=1)] == [1] * 9


def test_a_dataset_without_samples_has_a_schema(tmp_path: Path) -> None:
    for options in _KINDS:
        out = tmp_path / options["kind"]
        with lading.writer(out, format="mds", schema=_SCHEMA, options=options):
            pass
        for place in (out, out / "index.json"):
            with lading.open(place) as dataset:
                assert len(dataset) == 0
                assert sorted(dataset.schema.names) == ["f", "n", "text"]


def test_a_body_that_fails_publishes_nothing(tmp_path: Path) -> None:
    with suppress(RuntimeError), lading.writer(tmp_path / "new", format="mds", options={"kind": "json"}) as writer:
        writer.write_batch(_table(10))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_more_than_a_shard_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_writer, "MAX_BYTES", 3000)
    with pytest.raises(LimitExceeded, match="4 GiB"):
        _write(tmp_path / "new", _table(1, size=4000), kind="csv", size_limit=None)
    assert len(_write(tmp_path / "other", _table(200, size=40), kind="csv", size_limit=None)) > 1


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize("column", [
    pa.array([b"\xff"]), pa.array([True]), pa.array([None]), pa.array([[1]]), pa.array([{"a": 1}]),
    pa.array([0], pa.timestamp("us")), pa.array([0], pa.duration("s")), pa.array([b"123"], pa.binary(3)),
    pa.array([1]).cast(pa.decimal128(38)),
], ids=lambda column: str(column.type))  # fmt: skip
def test_columns_that_lines_cannot_hold(kind: str, column: pa.Array, tmp_path: Path) -> None:
    with pytest.raises(Unrepresentable, match="column 'odd'"):
        _write(tmp_path / "new", pa.table({"text": ["a"], "odd": column}), kind=kind)
    assert list(tmp_path.iterdir()) == []


def test_items_of_documents_are_refused(tmp_path: Path) -> None:
    schema = lading._core.features.items.INTERLEAVED_SCHEMA
    rows = pa.Table.from_pylist([{"sample_id": "a", "position": 0, "modality": "text", "text_content": "b"}], schema)
    with (
        pytest.raises(Unrepresentable, match="column 'content'"),
        lading.writer(tmp_path / "new", format="mds", view="interleaved", options={"kind": "json"}) as writer,
    ):
        writer.write_batch(rows)


@pytest.mark.parametrize("options, name, values", [
    ({"kind": "csv"}, "t", ["a", "b", "c,d"]),
    ({"kind": "csv"}, "t", ["a", "b", "c\nd"]),
    ({"kind": "tsv"}, "t", ["a", "b", "\t"]),
    ({"kind": "xsv", "separator": "."}, "t", [np.nan, np.inf, 3.5]),
    ({"kind": "xsv", "separator": "-"}, "t", [1, 2, -3]),
    ({"kind": "csv", "newline": "1"}, "t", [2, 3, 41]),
    ({"kind": "xsv", "separator": ",,"}, "a", ["a", "b", "c,"]),
    ({"kind": "xsv", "separator": "abab"}, "a", ["a", "b", "ab"]),
    ({"kind": "csv"}, "t", ["a", "b", None]),
    ({"kind": "json"}, "t", [1.5, 2.5, None]),
    ({"kind": "json"}, "t", pa.array([1, 2, 2**63], pa.uint64())),
    ({"kind": "csv"}, "t", pa.array([1, 2, 2**64 - 1], pa.uint64())),
])  # fmt: skip
@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
def test_values_that_would_not_come_back_are_named(
    options: dict[str, Any], name: str, values: Any, batch_rows: int, tmp_path: Path
) -> None:
    table = pa.table({name: values, "m": ["x"] * 3})
    if values[0] == "a" and options["kind"] != "xsv":
        assert _write(tmp_path / "json", table.slice(0, 2), kind="json")
    with pytest.raises(Unrepresentable) as caught:
        _write(tmp_path / "new", table, batch_rows, **options, size_limit=20)
    # Columns are sorted by name: behind `m` comes the end of the line.
    assert (caught.value.column, caught.value.row) == (name, 2)
    assert not (tmp_path / "new").exists()


@pytest.mark.soak
def test_rows_are_counted_from_the_first_one_written(tmp_path: Path) -> None:
    table = pa.concat_tables([_table(80_000), pa.table([["\t"], [1], [1.0]], schema=_SCHEMA)]).combine_chunks()
    with pytest.raises(Unrepresentable) as caught:
        _write(tmp_path / "new", table, 70_000, kind="tsv", size_limit="64kb")
    assert (caught.value.column, caught.value.row) == ("text", 80_000)


def test_names_that_would_part_the_first_line(tmp_path: Path) -> None:
    table = pa.table({"a,b": [1], "c": [2]})
    with pytest.raises(Unrepresentable, match="column 'a,b'"):
        _write(tmp_path / "csv", table, kind="csv")
    assert _write(tmp_path / "json", table, kind="json")[0]["columns"] == {"a,b": "int", "c": "int"}
    with pytest.raises(Unrepresentable, match="one column at least"):
        _write(tmp_path / "none", table.select([]), kind="csv")


@pytest.mark.soak
def test_numbers_of_any_width_keep_their_values(tmp_path: Path) -> None:
    table = pa.table({
        "f16": pa.array([0.1, np.nan, 65504], pa.float16()), "f32": pa.array([0.1, -np.inf, -0.0], pa.float32()),
        "i8": pa.array([-128, 0, 127], pa.int8()), "u64": pa.array([0, 1, 2**63 - 1], pa.uint64()),
        "words": pa.array(["a", "b", "a"]).dictionary_encode(), "numbers": pa.array([5, 6, 5]).dictionary_encode(),
    })  # fmt: skip
    with lading.writer(tmp_path / "source", format="parquet") as writer:
        writer.write_batch(table)
    for options in _KINDS:
        out = tmp_path / options["kind"]
        lading.convert(tmp_path / "source", out, format="mds", options=options, verify=True)
        for place in (out, out / "index.json"):
            assert lading.diff(tmp_path / "source", place).equal


def test_bytes_that_are_text(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "tar", format="webdataset") as writer:
        writer.write_batch(pa.table({"__key__": ["a", "b"], "txt": ["é".encode(), b""]}))
    lading.convert(tmp_path / "tar", tmp_path / "new", format="mds", options={"kind": "json"}, verify=True)
    assert [row["txt"] for row in _rows(tmp_path / "new")] == ["é", ""]
    text = with_feature(pa.field("t", pa.binary()), Text())
    with pytest.raises(Unrepresentable, match="UTF-8") as caught:
        _write(tmp_path / "bad", pa.table([pa.array([b"a", b"\xff"])], schema=pa.schema([text])), kind="csv")
    assert (caught.value.column, caught.value.row) == ("t", 1)


@pytest.mark.parametrize("field", [
    with_feature(pa.field("j", pa.string()), Json()), with_feature(pa.field("j", pa.binary()), Json()),
    with_feature(pa.field("j", pa.string()), Encoded("str_decimal")), pa.field("j", pa.json_()),
    pa.field("j", pa.binary()),
])  # fmt: skip
def test_text_that_means_more_is_asked_for_as_text(field: pa.Field, tmp_path: Path) -> None:
    table = pa.table([pa.array(["1.50"]).cast(field.type)], schema=pa.schema([field]))
    with pytest.raises(Unrepresentable, match="column 'j'"):
        _write(tmp_path / "new", table, kind="tsv")
    assert _write(tmp_path / "text", table, kind="tsv", columns={"j": "str"})[0]["column_encodings"] == ["str"]
    assert _rows(tmp_path / "text" / "index.json") == [{"j": "1.50"}]


def test_a_shard_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path / "new", _table(10), kind="csv", hashes=["xxh64"])
    meta = tmp_path / "new" / "shard.00000.csv.meta"
    good = meta.read_bytes()
    for bad in (good[:-1], good.replace(b'"int"', b'"str"'), good[:4] + b"\1" + good[5:], good[:6] + b"\7" + good[7:]):
        meta.write_bytes(bad)
        result = lading.verify(tmp_path / "new")
        named = {Path(finding["file"]).name for finding in result.findings}
        assert named
        assert named <= {meta.name, "shard.00000.csv"}
    meta.write_bytes(good.replace(b" ", b"\n", 1))
    with (
        pytest.raises(SidecarMismatch, match="xxh64"),
        lading.open(tmp_path / "new", options={"verify": True}) as dataset,
    ):
        dataset[0]
    meta.unlink()
    with pytest.raises(lading.LadingError, match=r"csv\.meta"), lading.open(tmp_path / "new") as dataset:
        dataset[0]


def test_a_store_that_is_no_disk() -> None:
    store = MemoryStore()
    sinks = [store.put_stream(f"far/shard.00000.tsv{end}") for end in ("", ".meta")]
    writer = FORMAT.create(sinks, _SCHEMA, FORMAT.write_options({"kind": "tsv"}))
    [batch] = _table(3).to_batches()
    assert writer.write(batch) is None
    assert writer.write(batch.slice(3)) is None
    with pytest.raises(Unrepresentable, match=r"far/shard\.00000\.tsv row 3 column 'text'"):
        writer.write(pa.record_batch([["\t"], [1], [1.0]], schema=_SCHEMA))
    facts = writer.close()
    assert next(sink.close().size_bytes for sink in sinks) == facts.size_bytes
    assert facts.payload_bytes == sum(len(f"{i}{i / 7}") + 10 for i in range(3))
    with pytest.raises(UsageError, match="two files"):
        FORMAT.create([store.put_stream("x")], _SCHEMA, FORMAT.write_options({"kind": "tsv"}))


_WORDS = st.text("ab,\n", max_size=3)


@given(
    rows=st.lists(st.tuples(_WORDS, _WORDS, _WORDS), min_size=1, max_size=3),
    separator=st.text("ab,\n", min_size=1, max_size=3),
    newline=st.text("ab,\n", min_size=1, max_size=2),
)
def test_what_the_peers_reader_would_part_elsewhere_is_refused(
    rows: list[tuple[str, str, str]], separator: str, newline: str
) -> None:
    store = MemoryStore()
    sinks = [store.put_stream(f"s.xsv{end}") for end in ("", ".meta")]
    batch = pa.record_batch(
        [pa.array(column, pa.string()) for column in zip(*rows, strict=True)], names=["X", "Y", "Z"]
    )
    writer = FORMAT.create(
        sinks, batch.schema, FORMAT.write_options({"kind": "xsv", "separator": separator, "newline": newline})
    )
    # As the peer writes and reads: values that hold a mark fail there, others are joined, and parted again.
    marked = any(mark in value for row in rows for value in row for mark in (separator, newline))
    parted = [tuple(separator.join(row).split(separator)) for row in rows]
    if marked or parted != rows:
        with pytest.raises(Unrepresentable):
            writer.write(batch)
        return
    writer.write(batch)
    facts = writer.close()
    for sink in sinks:
        sink.close()
    reader = FORMAT.open(ShardFile(store, "s.xsv", entry=facts.entry), FORMAT.read_options({}))
    assert [tuple(row.values()) for row in reader.read().to_pylist()] == rows


@given(
    rows=st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.floats()), min_size=1, max_size=5),
    name=st.text(max_size=3).filter(lambda name: name not in "nf"),
)
def test_lines_of_json_are_those_of_pythons_json(rows: list[tuple[str, int, float]], name: str) -> None:
    store = MemoryStore()
    sinks = [store.put_stream(f"s.json{end}") for end in ("", ".meta")]
    schema = pa.schema([(name, pa.string()), ("n", pa.int64()), ("f", pa.float64())])
    batch = pa.RecordBatch.from_arrays([*map(pa.array, zip(*rows, strict=True))], names=schema.names).cast(schema)
    writer = FORMAT.create(sinks, schema, FORMAT.write_options({"kind": "json"}))
    writer.write(batch)
    facts = writer.close()
    sizes = [sink.close().size_bytes for sink in sinks]
    expected = [json.dumps(dict(zip(schema.names, row, strict=True)), sort_keys=True) + "\n" for row in rows]
    [body, meta] = (
        bytes(store.get_ranges(f"s.json{end}", [(0, size)])[0]) for end, size in zip(("", ".meta"), sizes, strict=True)
    )
    assert body.decode() == "".join(expected)
    assert np.frombuffer(meta, "<u4", len(rows) + 2).tolist() == [len(rows), 0, *np.cumsum([*map(len, expected)])]
    reader = FORMAT.open(ShardFile(store, "s.json", entry=facts.entry), FORMAT.read_options({}))
    assert repr(reader.read(scan=Scan([name, "n", "f"])).select(schema.names).to_pylist()) == repr(
        [dict(zip(schema.names, row, strict=True)) for row in rows]
    )


@pytest.mark.parametrize("broken", ["raw_meta", "newline"])
def test_an_entry_that_lacks_what_lines_need(broken: str, tmp_path: Path) -> None:
    _write(tmp_path / "new", _table(1), kind="json")
    path = tmp_path / "new" / "index.json"
    index = json.loads(path.read_text())
    index["shards"][0][broken] = None
    path.write_text(json.dumps(index))
    with pytest.raises(DataError), lading.open(path) as dataset:
        dataset[0]
