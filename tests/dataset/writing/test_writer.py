"""The write path: names, splitting, references, and that nothing half-written is ever seen."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
import weakref
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from cost import costs_at_most
from lading._core.arrow.references import FileEntry, files_of, is_ref, make_refs, unpack, with_files
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.encode import npy_bytes
from lading._core.features.types import (
    Array,
    Bytes,
    ClassLabel,
    Feature,
    Image,
    Json,
    Sequence,
    Struct,
    Text,
    Value,
    with_feature,
)
from lading._core.formats.base import ShardFacts, ShardWriter
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.manifest.files import ShardTables
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.cutting import Cut
from lading._core.pipeline.finished import FinishedPart, FinishedShard, FinishedShards, ShardSums
from lading._core.pipeline.open_shard import BuildFolder
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.pipeline.write import PartWriter, write_rows
from lading._core.storage.background import Background
from lading._core.storage.fetch import Fetcher
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.caches import write_cache
from lading.errors import DestinationExists, DuplicateField, SchemaMismatch, StoreError, Unrepresentable, UsageError
from lading.limits import DEFAULT_LIMITS

FORMATS = ("webdataset", "parquet")


def table(count: int, size: int = 100, first: int = 0) -> pa.Table:
    keys = [f"k{i:05d}" for i in range(first, first + count)]
    return pa.table({"__key__": keys, "bin": pa.array([k.encode() * (size // 6) for k in keys], pa.large_binary())})


def written(folder: Path, fmt: str, samples: list[dict[str, Any]], **options: Any) -> None:
    with lading.writer(folder, format=fmt, **options) as writer:
        for sample in samples:
            writer.write(sample)


def rows(folder: Path | str, **opening: Any) -> list[dict[str, Any]]:
    with lading.open(folder, **opening) as dataset:
        return list(dataset.with_decode(False))


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_is_written_is_read(fmt: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format=fmt) as writer:
        writer.write_batch(table(10))
        writer.write_batch(table(5, first=10))
    assert rows(tmp_path / "out") == table(15).to_pylist()
    with lading.open(tmp_path / "out") as dataset:
        assert len(dataset) == 15
        assert dataset[-1]["__key__"] == "k00014"
        assert dataset.by_key("k00003")["bin"] == b"k00003" * 16


@pytest.mark.soak
@pytest.mark.parametrize("fmt", FORMATS)
def test_shards_begin_at_a_size(fmt: str, tmp_path: Path) -> None:
    options = {"row_group_bytes": 50_000} if fmt == "parquet" else {}
    rng = np.random.default_rng(1)
    noise = pa.array([rng.bytes(10_000) for _ in range(100)], pa.large_binary())
    with lading.writer(tmp_path / "out", format=fmt, shard_size=200_000, options=options) as writer:
        for at in range(0, 100, 5):
            writer.write_batch(table(100).set_column(1, "bin", noise).slice(at, 5))
    with lading.open(tmp_path / "out") as dataset:
        sizes = [Path(shard.path).stat().st_size for shard in dataset.shards]
        assert len(sizes) in range(5, 8)
        assert max(sizes) < 270_000
        assert [s["__key__"] for s in dataset] == table(100).column("__key__").to_pylist()
        assert [len(s) for s in dataset.shards] == [n for n in map(len, dataset.shards) if n]


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "mds", "jsonl", "csv", "webdataset", "media_archive"])
def test_columns_without_rows_are_kept_as_schema_keeps_them(fmt: str, tmp_path: Path) -> None:
    none = pa.schema([("n", pa.int64()), ("txt", pa.string())]).empty_table()
    with lading.writer(tmp_path / "told", format=fmt, schema=none.schema):
        pass
    with lading.open(tmp_path / "told") as told:
        expected = told.schema, len(told.shards)
    for number, rows in enumerate((none, pa.RecordBatch.from_pylist([], none.schema))):
        with lading.writer(tmp_path / f"{number}", format=fmt) as writer:
            writer.write_batch(rows)
            writer.write_batch(pa.table({"other": pa.nulls(0)}))
        with lading.open(tmp_path / f"{number}") as dataset:
            assert (dataset.schema, len(dataset.shards), len(dataset)) == (*expected, 0)
        assert lading.verify(tmp_path / f"{number}").ok


def test_columns_without_rows_bind_no_rows(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        writer.write_batch(pa.table({"n": pa.nulls(0)}))
        writer.write_batch(pa.table({"n": ["a"], "m": [1]}))
    with lading.open(tmp_path / "out") as dataset:
        assert [*dataset] == [{"n": "a", "m": 1}]


def test_a_first_sample_above_the_size_makes_no_empty_shard(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset", shard_size="4kb") as writer:
        writer.write_batch(table(3, size=60_000))
    with lading.open(tmp_path / "out") as dataset:
        assert [len(s) for s in dataset.shards] == [1, 1, 1]


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_body_that_fails_leaves_nothing(fmt: str, tmp_path: Path) -> None:
    def body() -> None:
        with lading.writer(tmp_path / "out", format=fmt) as writer:
            writer.write_batch(table(10))
            raise RuntimeError("in the body")

    with pytest.raises(RuntimeError, match="in the body"):
        body()
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.soak
def test_nothing_is_visible_before_the_end(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", shard_size="10kb") as writer:
        writer.write_batch(table(100, size=1000))
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out" / "_lading" / "manifest.json").exists()


def test_a_full_destination_is_refused_and_then_replaced(tmp_path: Path) -> None:
    for first in (0, 100):
        with lading.writer(tmp_path / "out", overwrite=bool(first)) as writer:
            writer.write_batch(table(3, first=first))
    with pytest.raises(DestinationExists, match="out"):
        lading.writer(tmp_path / "out")
    assert [s["__key__"] for s in rows(tmp_path / "out")] == ["k00100", "k00101", "k00102"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_failing_replacement_keeps_the_old(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        writer.write_batch(table(3))
    writer = lading.writer(tmp_path / "out", format="parquet", overwrite=True)
    writer.write_batch(table(3, first=7))
    with pytest.raises(SchemaMismatch):
        writer.write_batch(table(3).append_column("more", pa.array([1, 2, 3])))
    writer.abort()
    assert [s["__key__"] for s in rows(tmp_path / "out")] == ["k00000", "k00001", "k00002"]


@pytest.mark.parametrize("count", [10, 10_000], ids=["at the end", "while the next shards are written"])
def test_a_shard_that_cannot_be_closed_is_an_error_and_leaves_nothing(count: int, tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "out", shard_size=100_000)
    [staging] = (path for path in tmp_path.iterdir() if path.is_dir())
    (staging / "dataset" / "shard-000000.tar" / "in the way").mkdir(parents=True)

    def finish() -> None:
        writer.write_batch(table(count))
        writer.close()

    with pytest.raises(StoreError, match=r"shard-000000\.tar"):
        finish()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="aborted"):
        writer.close()
    with pytest.raises(UsageError, match="finished"):
        writer.write_batch(table(1))


def test_a_row_that_no_shard_can_hold_drops_what_was_taken_before_it(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "out")
    writer.write_batch(table(5))
    keys = pa.array(["fine", "a\0b"])
    with pytest.raises(Unrepresentable, match=r"a\\x00b"):
        writer.write_batch(pa.table({"__key__": keys, "txt": pa.array([b"1", b"2"], pa.large_binary())}))
    with pytest.raises(UsageError, match="aborted"):
        writer.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
def test_large_values_of_samples_are_plain_bytes_in_the_schema(fmt: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(3).bytes(180_000)
    values = [noise[9000 * i :][:9000] if i % 3 else None for i in range(20)]
    with lading.writer(tmp_path / "out", format=fmt, shard_size="50kb") as writer:
        for i, value in enumerate(values):
            writer.write({"__key__": f"{i:02}", "bin": value, "txt": "t"})
    with lading.open(tmp_path / "out") as dataset:
        assert dataset.schema.field("bin").type == pa.large_binary()
        assert len(dataset.shards) > 1
        assert [row.get("bin") for row in dataset] == values


def test_nothing_is_added_to_what_is_finished(tmp_path: Path) -> None:
    writer = DatasetWriter(tmp_path / "out")
    writer.write_batch(table(10))
    writer.finish()
    with pytest.raises(UsageError, match="finished"):
        writer.write_batch(table(1))
    with pytest.raises(UsageError, match="finished"):
        writer.write({"txt": "late"})
    assert writer.close().num_samples == 10
    assert writer.close().num_samples == 10
    assert len(rows(tmp_path / "out")) == 10


@pytest.mark.soak
def test_ranks_write_into_one_folder_without_coordination(tmp_path: Path) -> None:
    writers = [lading.writer(tmp_path / "out", rank=rank, shard_size="8kb") for rank in range(3)]
    for rank, writer in enumerate(writers):
        writer.write_batch(table(20, size=600, first=20 * rank))
    for writer in reversed(writers):
        writer.close()
    names = sorted(p.name for p in (tmp_path / "out").glob("*.tar"))
    assert names[0] == "00000-000000.tar"
    assert {n[:5] for n in names} == {"00000", "00001", "00002"}
    assert [s["__key__"] for s in rows(tmp_path / "out")] == table(60).column("__key__").to_pylist()


def test_names_from_a_template(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "a", name="${lang}/${rank}", tags={"lang": "de"}, rank=7, shard_size="3kb") as writer:
        writer.write_batch(table(4, size=2000))
    assert sorted(str(p.relative_to(tmp_path / "a")) for p in (tmp_path / "a").rglob("*.tar"))[:2] == [
        "de/000_00007.tar",
        "de/001_00007.tar",
    ]
    with pytest.raises(UsageError, match="lang"), lading.writer(tmp_path / "b", name="${lang}-${shard}") as writer:
        writer.write_batch(table(1))


@pytest.mark.parametrize(
    "name", ["step:${shard}", "a//${shard}", "a/./${shard}", "../${shard}", "/${shard}", "a\\${shard}", "a\n${shard}",
             ".${shard}", "_lading/${shard}", "a/_lading/${shard}", "${shard}/"],
)  # fmt: skip
def test_names_that_no_shard_can_have_are_refused_at_the_beginning(name: str, tmp_path: Path) -> None:
    """As a manifest, which comes last, refuses them; among lading's own files nobody looks for shards."""
    with pytest.raises(UsageError, match="inside the dataset's folder"):
        lading.writer(tmp_path / "out", name=name)
    assert list(tmp_path.iterdir()) == []


def test_references_of_what_was_written(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", shard_size="20kb") as writer:
        written = writer.write_batch(table(50, size=1000))
    assert written is not None
    assert written.column("__key__").to_pylist() == table(50).column("__key__").to_pylist()
    refs, files = unpack(written.column("bin")), files_of(written.schema)
    assert len(files) > 1
    for row, want in enumerate(table(50, size=1000).column("bin").to_pylist()):
        body = Path(files[refs.file[row]].url).read_bytes()
        assert body[refs.offset[row] : refs.offset[row] + refs.length[row]] == want


def test_dicts_of_python_values(tmp_path: Path) -> None:
    sample = {"__key__": "a", "jpg": b"\xff\xd8", "json": {"caption": "ü", "n": [1, 2.5]}, "txt": "hé",
              "npy": np.arange(6, dtype=np.int16).reshape(2, 3)}  # fmt: skip
    for fmt in FORMATS:
        with lading.writer(tmp_path / fmt, format=fmt) as writer:
            writer.write(sample)
        with lading.open(tmp_path / fmt).with_decode(False) as dataset:
            got = dataset[0]
        assert {k: v for k, v in got.items() if k != "npy"} == {k: v for k, v in sample.items() if k != "npy"}
        assert got["npy"].dtype == np.int16
        assert got["npy"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    "value, says",
    [("a\ud800", "a text with a lone surrogate"), (1 << 64, "a number beyond 64 bits; found 18446744073709551616")],
)
def test_values_of_python_that_arrow_does_not_have(tmp_path: Path, fmt: str, value: Any, says: str) -> None:
    samples = [{"__key__": str(n), "x": type(value)(n)} for n in range(1002)]
    with pytest.raises(Unrepresentable, match=f"row 1002 column 'x': {says}"):
        written(tmp_path / "out", fmt, [*samples, {"__key__": "z", "x": value}])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [np.datetime64(1, "ns"), np.timedelta64(1, "ns"), np.longdouble(1), np.complex64(1)])
def test_values_of_numpy_that_python_does_not_have(tmp_path: Path, value: np.generic) -> None:
    with (
        pytest.raises(
            UsageError, match=f"column 'x': a value of this type cannot be stored; found {type(value).__name__}"
        ),
        lading.writer(tmp_path / "out", format="parquet") as writer,
    ):
        writer.write({"x": value})


@pytest.mark.parametrize("fmt", ["parquet", "webdataset", "arrow"])
def test_what_a_field_holds_comes_back_whatever_its_name(tmp_path: Path, fmt: str) -> None:
    fields: dict[str, list[Any]] = {
        "text": [["a", "b"], [1]], "id": [[1, 2]], "html": [{"a": 1}], "inx": [b"007", b"\1\2"],
        "json": ["hello", "[1]"], "cls": [2.5], "cls2": ["x"], "index": [3], "a.json": [b"[1]"],
        "npy": [npy_bytes([1, 2])],
    }  # fmt: skip
    count = max(map(len, fields.values()))
    samples = [{name: values[i % len(values)] for name, values in fields.items()} for i in range(count)]
    written(tmp_path / "out", fmt, samples)
    found = [{name: row[name] for name in fields} for row in rows(tmp_path / "out")]
    # What is JSON or an array by its name may be given as its bytes.
    assert [row.pop("npy").tolist() for row in found] == [[1, 2]] * count
    assert found == [{**{k: v for k, v in sample.items() if k != "npy"}, "a.json": [1]} for sample in samples]


def test_arrays_come_back_whatever_their_field_is_called(tmp_path: Path) -> None:
    written(tmp_path / "out", "parquet", [{"img": np.arange(2)}])
    [row] = rows(tmp_path / "out")
    assert row["img"].tolist() == [0, 1]


@pytest.mark.parametrize("between", [0, 1000])
@pytest.mark.parametrize(
    "first, second",
    [
        ({"a": 1}, "123"), ("123", {"a": 1}), (["a"], b"a"), (np.arange(2), b"abc"), (b"abc", np.arange(2)),
        ("a", b"b"), (1, "a"), (1, True),
    ],
)  # fmt: skip
def test_values_of_several_kinds_in_one_field_are_refused(
    tmp_path: Path, first: Any, second: Any, between: int
) -> None:
    with lading.writer(tmp_path / "out") as writer:
        for _ in range(between + 1):
            writer.write({"x": first})
        with pytest.raises(UsageError, match=f"row {between + 1} column 'x': the values of one field are of several"):
            writer.write({"x": second})
        writer.write({"x": first})
    assert len(rows(tmp_path / "out")) == between + 2


class Number(enum.IntEnum):
    ONE = 1


class Word(str):  # noqa: SLOT000 - what users have
    """A text with a name of its own."""

    def __str__(self) -> str:
        return "another"


@pytest.mark.parametrize(
    "values, expected",
    [
        ([1, 2.5], [1.0, 2.5]),
        ([1.5, None, np.float64(2)], [1.5, None, 2.0]),
        ([np.float32(0.5), 3], [0.5, 3.0]),
        (["a", np.str_("b"), Word("c")], ["a", "b", "c"]),
        ([Number.ONE, 2], [1, 2]),
        ([b"a", np.bytes_(b"b"), bytearray(b"c")], [b"a", b"b", b"c"]),
        ([True, np.bool_(0)], [True, False]),
        ([1, 1 << 63, None, (1 << 64) - 1], [1, 1 << 63, None, (1 << 64) - 1]),
    ],
)
def test_values_that_go_together(tmp_path: Path, values: list[Any], expected: list[Any]) -> None:
    written(tmp_path / "out", "parquet", [{"x": value} for value in values])
    found = [row.get("x") for row in rows(tmp_path / "out")]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize(
    "values, says",
    [
        ([0.5, (1 << 53) + 1], r"row 1 column 'x': a value that double cannot hold; found 9007199254740993 "),
        ([-1, 1 << 63], "column 'x': whole numbers that no type of 64 bits holds together; found -1 and 92233"),
        ([1, 1 << 64], "row 1 column 'x': a number beyond 64 bits"),
        ([np.ma.masked_array([1, 2], [True, False])], "row 0 column 'x': an array with values left out"),
        ([np.ma.masked], "row 0 column 'x': an array with values left out"),
        ([np.array([None])], "row 0 column 'x': an array of Python objects cannot be stored"),
    ],
)
def test_values_without_a_schema_that_nothing_holds(tmp_path: Path, values: list[Any], says: str) -> None:
    with pytest.raises(Unrepresentable, match=says):
        written(tmp_path / "out", "parquet", [{"x": value} for value in values])


def test_a_number_that_the_asked_type_cannot_hold_is_named_with_the_type(tmp_path: Path) -> None:
    says = r"row 1 column 'x': a value that int64 cannot hold; found 9223372036854775808\. Give .* another type"
    with pytest.raises(Unrepresentable, match=says):
        written(tmp_path / "out", "mds", [{"x": 1}, {"x": 1 << 63}], options={"columns": {"x": "int64"}})


@pytest.mark.parametrize("sample", [{1: b"x"}, {None: b"x"}, {"\ud800": "x"}, [1], "text", None])
def test_what_is_no_sample_is_a_wrong_call(tmp_path: Path, sample: Any) -> None:
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        writer.write({"x": 1})
        with pytest.raises(UsageError, match=r"row 1: a (sample|field's name) is a "):
            writer.write(sample)
    assert rows(tmp_path / "out") == [{"x": 1}]


def test_a_dict_may_be_used_again(tmp_path: Path) -> None:
    sample: dict[str, Any] = {}
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        for i in range(2):
            sample["x"] = {"n": i}
            writer.write(sample)
        sample.clear()
    assert rows(tmp_path / "out") == [{"x": {"n": 0}}, {"x": {"n": 1}}]


@pytest.mark.parametrize("feature", [Image(), Array()])
def test_nothing_is_kept_of_the_values_given(tmp_path: Path, feature: Feature) -> None:
    """Decoded pictures take many times the bytes that are counted for them."""
    schema = pa.schema([with_feature(pa.field("x", pa.large_binary()), feature)])
    value = np.zeros((4, 4), np.uint8)
    kept = weakref.ref(value)
    with lading.writer(tmp_path / "out", schema=schema) as writer:
        writer.write({"x": value, "npy": value})
        del value
        assert kept() is None


def test_rows_count_from_the_first_in_errors_of_later_batches(tmp_path: Path) -> None:
    late = [{"x": None if i < 1200 else "late"} for i in range(1300)]
    with pytest.raises(SchemaMismatch, match="row 1200 column 'x'") as failed:
        written(tmp_path / "out", "parquet", late)
    assert failed.value.advice is not None, "what the first rows said, schema= would say otherwise"
    assert "schema=" in failed.value.advice
    broken = pa.table({"x": pa.array([b"a", b"\xff"]).view(pa.string())})
    writer = lading.writer(tmp_path / "out", format="parquet")
    writer.write_batch(pa.table({"x": ["a", "b"]}))
    with pytest.raises(Unrepresentable, match="row 3 column 'x'"):
        writer.write_batch(broken)


def meaning(feature: Feature | None, *values: Any, kind: pa.DataType | None = None) -> pa.Table:
    column = pa.array(values, kind)
    field = pa.field("x", column.type)
    return pa.table([column], pa.schema([field if feature is None else with_feature(field, feature)]))


@pytest.mark.parametrize("fmt", ["parquet", "webdataset", "jsonl", "mds"])
@pytest.mark.parametrize(
    "first, second",
    [
        (meaning(ClassLabel(("cat", "dog")), 0), meaning(ClassLabel(("dog", "cat")), 0)),
        (meaning(Json(), "[1]"), meaning(None, "hello")),
        (meaning(None, "hello"), meaning(Json(), "[1]")),
        (meaning(Json(), "[1]"), meaning(Text(), "hello")),
    ],
)
def test_rows_of_one_column_that_mean_other_things_are_refused(
    tmp_path: Path, fmt: str, first: pa.Table, second: pa.Table
) -> None:
    writer = lading.writer(tmp_path / "out", format=fmt)
    writer.write_batch(first)
    with pytest.raises(SchemaMismatch, match="column 'x': rows of one column mean different things; expected "):
        writer.write_batch(second)


NUMBERS = (meaning(Value("int64"), 1), meaning(Value("int32"), 2, kind=pa.int32()))
LISTS = (
    meaning(Sequence(Value("int64")), [1], kind=pa.list_(pa.int64())),
    meaning(Sequence(Value("int32")), [2], kind=pa.list_(pa.int32())),
)
STRUCTS = (
    meaning(Struct((("n", Value("int64")), ("t", Text()))), {"n": 1, "t": "a"}),
    meaning(
        Struct((("n", Value("int32")), ("t", Text()))),
        {"n": 2},
        kind=pa.struct([("n", pa.int32()), ("t", pa.string())]),
    ),
)


@pytest.mark.parametrize("fmt", ["parquet", "webdataset", "arrow"])
@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize(
    "first, second", [NUMBERS, LISTS, STRUCTS, (meaning(Image(), b"a"), meaning(Image("JPEG"), b"b"))]
)
def test_rows_of_one_meaning_may_be_stored_in_other_types(
    tmp_path: Path, fmt: str, first: pa.Table, second: pa.Table, *, is_told: bool
) -> None:
    with lading.writer(tmp_path / "out", format=fmt, schema=first.schema if is_told else None) as writer:
        writer.write_batch(first)
        writer.write_batch(second)
    found = [row["x"] for row in rows(tmp_path / "out")]
    assert found == [row["x"] for row in (first.to_pylist() + second.to_pylist())]


def of_kind(feature: Feature, kind: pa.DataType, value: Any) -> pa.Table:
    return meaning(feature, value, kind=kind)


def label_and(name: str, feature: Feature, kind: pa.DataType, value: Any) -> pa.Table:
    """A struct whose feature must be told: of a label and one more field."""
    struct = pa.struct([("label", pa.int64()), (name, kind)])
    return meaning(
        Struct((("label", ClassLabel(("cat", "dog"))), (name, feature))), {"label": 1, name: value}, kind=struct
    )


MOMENT = dt.datetime(2024, 5, 6, 7, 8, 9)  # noqa: DTZ001 - columns without a zone
UTC_MOMENT = MOMENT.replace(tzinfo=dt.UTC)
HALF_AN_HOUR = dt.timedelta(minutes=30)
SAME_KINDS = [
    (Sequence(Value("int64")), pa.list_(pa.int64()), [1], Sequence(Value("null")), pa.list_(pa.null()), [None]),
    (Value("timestamp[us]"), pa.timestamp("us"), MOMENT, Value("timestamp[s]"), pa.timestamp("s"), MOMENT),
    (Value("timestamp[us, tz=UTC]"), pa.timestamp("us", "UTC"), UTC_MOMENT,
     Value("timestamp[s, tz=UTC]"), pa.timestamp("s", "UTC"), UTC_MOMENT),
    (Value("time64[us]"), pa.time64("us"), MOMENT.time(), Value("time32[s]"), pa.time32("s"), MOMENT.time()),
    (Value("date32"), pa.date32(), MOMENT.date(), Value("date64"), pa.date64(), MOMENT.date()),
    (Value("duration[us]"), pa.duration("us"), HALF_AN_HOUR, Value("duration[s]"), pa.duration("s"), HALF_AN_HOUR),
    (Value("decimal128(10, 2)"), pa.decimal128(10, 2), Decimal("1.25"),
     Value("decimal128(5, 2)"), pa.decimal128(5, 2), Decimal("7.50")),
    (Value("string"), pa.string(), "a", Value("large_string"), pa.large_string(), "b"),
    (Value("binary"), pa.binary(), b"a", Value("large_binary"), pa.large_binary(), b"b"),
    (Sequence(Value("string")), pa.list_(pa.string()), ["a"],
     Sequence(Value("large_string")), pa.list_(pa.large_string()), ["b"]),
    (Value("map<string, int64>"), pa.map_(pa.string(), pa.int64()), [("a", 1)],
     Value("map<string, int32>"), pa.map_(pa.string(), pa.int32()), [("b", 2)]),
    (Value("struct<a: int64>"), pa.struct([("a", pa.int64())]), {"a": 1},
     Value("struct<a: null>"), pa.struct([("a", pa.null())]), {"a": None}),
    (Value("int64"), pa.dictionary(pa.int32(), pa.int64()), 1,
     Value("int32"), pa.dictionary(pa.int32(), pa.int32()), 2),
]  # fmt: skip


@pytest.mark.parametrize(
    "first, second",
    [
        *((of_kind(*case[:2], case[2]), of_kind(*case[3:5], case[5])) for case in SAME_KINDS),
        *((label_and("x", *case[:3]), label_and("x", *case[3:])) for case in SAME_KINDS),
        (label_and("note", Text(), pa.string(), "a"), label_and("note", Value("null"), pa.null(), None)),
        (
            label_and("boxes", Sequence(Value("float64")), pa.list_(pa.float64()), [1.5]),
            label_and("boxes", Sequence(Value("null")), pa.list_(pa.null()), []),
        ),
    ],
)
def test_plain_values_of_a_class_may_be_of_other_widths_and_layouts(
    tmp_path: Path, first: pa.Table, second: pa.Table
) -> None:
    with lading.writer(tmp_path / "out", format="parquet") as writer:
        writer.write_batch(first)
        writer.write_batch(second)
    with lading.open(tmp_path / "out") as dataset:
        found = [value for batch in dataset.batches() for value in batch.column("x").to_pylist()]
    assert found == first.column("x").to_pylist() + second.column("x").to_pylist()


def test_datasets_of_which_one_has_empty_lists_are_joined(tmp_path: Path) -> None:
    boxes = Sequence(Value("float64"))
    parts = [
        label_and("boxes", boxes, pa.list_(pa.float64()), [1.5]),
        label_and("boxes", Sequence(Value("null")), pa.list_(pa.null()), []),
    ]
    with ExitStack() as opened:
        writer = opened.enter_context(lading.writer(tmp_path / "out", format="parquet"))
        for number, part in enumerate(parts):
            with lading.writer(tmp_path / str(number), format="parquet") as one:
                one.write_batch(part)
            for batch in opened.enter_context(lading.open(tmp_path / str(number))).batches():
                writer.write_batch(batch)
    assert [row["x"] for row in rows(tmp_path / "out")] == [{"label": 1, "boxes": [1.5]}, {"label": 1, "boxes": []}]


@pytest.mark.parametrize(
    "first, second",
    [
        (
            of_kind(Value("timestamp[s]"), pa.timestamp("s"), MOMENT),
            of_kind(Value("timestamp[us]"), pa.timestamp("us"), MOMENT.replace(microsecond=1)),
        ),
        (
            of_kind(Value("time32[s]"), pa.time32("s"), MOMENT.time()),
            of_kind(Value("time64[us]"), pa.time64("us"), MOMENT.time().replace(microsecond=1)),
        ),
        (
            of_kind(Value("duration[s]"), pa.duration("s"), HALF_AN_HOUR),
            of_kind(Value("duration[us]"), pa.duration("us"), dt.timedelta(microseconds=1)),
        ),
        (
            of_kind(Value("decimal128(5, 2)"), pa.decimal128(5, 2), Decimal("1.25")),
            of_kind(Value("decimal128(10, 2)"), pa.decimal128(10, 2), Decimal("12345678.25")),
        ),
        (
            of_kind(Value("decimal128(5, 1)"), pa.decimal128(5, 1), Decimal("1.5")),
            of_kind(Value("decimal128(5, 2)"), pa.decimal128(5, 2), Decimal("1.25")),
        ),
        (
            of_kind(Value("map<string, int32>"), pa.map_(pa.string(), pa.int32()), [("a", 1)]),
            of_kind(Value("map<string, int64>"), pa.map_(pa.string(), pa.int64()), [("a", 1 << 40)]),
        ),
        (
            of_kind(Sequence(Value("null")), pa.list_(pa.null()), [None]),
            of_kind(Sequence(Value("int64")), pa.list_(pa.int64()), [1]),
        ),
    ],
)
def test_values_of_a_class_that_do_not_fit_are_refused(tmp_path: Path, first: pa.Table, second: pa.Table) -> None:
    writer = lading.writer(tmp_path / "out", format="parquet")
    writer.write_batch(first)
    with pytest.raises(SchemaMismatch, match="a value does not fit the column's type"):
        writer.write_batch(second)


def test_numbers_in_bytes_are_what_is_said_of_them(tmp_path: Path) -> None:
    writer = lading.writer(tmp_path / "out", format="parquet")
    writer.write_batch(meaning(Value("int64"), b"1"))
    with pytest.raises(SchemaMismatch, match="mean different things"):
        writer.write_batch(meaning(Value("float64"), b"1.5"))


@pytest.mark.parametrize(
    "first, second",
    [
        (meaning(Value("int64"), 1), meaning(Value("string"), "007")),
        (meaning(Value("int64"), 1), meaning(Value("timestamp[us]"), 1, kind=pa.timestamp("us"))),
        (meaning(Value("int64"), 1), meaning(Value("bool"), True)),
        (meaning(Value("int64"), "1"), meaning(Value("string"), "x")),
        (meaning(Value("int64"), "1"), meaning(Value("int32"), "1")),
        (meaning(Sequence(Value("int64")), [b"1"]), meaning(Sequence(Value("string")), [b"x"])),
        (meaning(Sequence(Value("int64")), [b"1"]), meaning(Sequence(Value("float64")), [b"1.5"])),
        (
            meaning(Struct((("n", Value("int64")),)), {"n": b"1"}),
            meaning(Struct((("n", Value("string")),)), {"n": b"x"}),
        ),
        (
            of_kind(Value("timestamp[us]"), pa.timestamp("us"), MOMENT),
            of_kind(Value("timestamp[us, tz=UTC]"), pa.timestamp("us", "UTC"), UTC_MOMENT),
        ),
        (
            of_kind(Value("map<string, int64>"), pa.map_(pa.string(), pa.int64()), [("a", 1)]),
            of_kind(Value("map<string, string>"), pa.map_(pa.string(), pa.string()), [("a", "007")]),
        ),
        (
            of_kind(Sequence(Value("null")), pa.list_(pa.null()), []),
            of_kind(Sequence(Json()), pa.list_(pa.string()), ["[1]"]),
        ),
    ],
)
def test_only_numbers_stored_as_such_may_be_of_another_width(tmp_path: Path, first: pa.Table, second: pa.Table) -> None:
    writer = lading.writer(tmp_path / "out", format="parquet")
    writer.write_batch(first)
    with pytest.raises(SchemaMismatch, match="mean different things"):
        writer.write_batch(second)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(
    "schema, first, second",
    [
        (None, meaning(ClassLabel(("cat", "dog")), 0), meaning(None, 1)),
        (None, meaning(Image(), b"a"), meaning(None, b"b")),
        (None, meaning(None, "a"), meaning(Text(), "b")),
        (meaning(Json(), "1").schema, meaning(None, "[1]"), meaning(Json(), "2")),
        (meaning(None, "1").schema, meaning(None, "[1]"), meaning(Json(), "2")),
    ],
)
def test_rows_that_say_nothing_mean_what_others_say(
    tmp_path: Path, fmt: str, schema: pa.Schema | None, first: pa.Table, second: pa.Table
) -> None:
    with lading.writer(tmp_path / "out", format=fmt, schema=schema) as writer:
        writer.write_batch(first)
        writer.write_batch(second)
    assert len(rows(tmp_path / "out")) == 2


@pytest.mark.parametrize("fmt, name", [("mds", "shard.00001.mds"), ("webdataset", "shard-000002.tar")])
def test_values_that_a_format_cannot_hold_are_told_by_the_shard_that_was_to_be(
    tmp_path: Path, fmt: str, name: str
) -> None:
    """Nobody knows the folder it was built in, and it is gone."""
    samples = [{"__key__": f"k{i}", "x": None if i == 1500 else "x" * 999} for i in range(1501)]
    with pytest.raises(Unrepresentable) as caught, lading.writer(tmp_path / "out", format=fmt, shard_size="1mb") as to:
        to.write_batch(pa.Table.from_pylist(samples))
    assert (caught.value.file, caught.value.sample) == (str(tmp_path / "out" / name), "k1500")
    assert not list(tmp_path.iterdir())


def test_any_store(tmp_path: Path) -> None:
    stores = Stores({"box://": MemoryStore()})
    with DatasetWriter("box://out", stores=stores) as writer:
        writer.write_batch(table(4))
    assert rows("box://out", stores=stores) == table(4).to_pylist()


def test_what_rows_lie_in_may_change_after_the_call(tmp_path: Path) -> None:
    body = bytearray(300_000)
    with lading.writer(tmp_path / "a") as writer:
        for number in range(8):
            body[:] = bytes([number]) * len(body)
            ends = pa.py_buffer(np.array([0, len(body)], np.int64))
            column = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(body)])
            writer.write_batch(pa.record_batch({"__key__": [str(number)], "bin": column}))
    with lading.open(tmp_path / "a") as dataset:
        assert [dataset[i]["bin"] for i in range(8)] == [bytes([i]) * len(body) for i in range(8)]


def test_whole_files_count_with_their_size(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(100_000))
    refs = make_refs(np.zeros(20, np.int64), np.full(20, -1))
    schema = with_files(pa.schema([("__key__", pa.string()), ("bin", refs.type)]), [FileEntry(str(tmp_path / "body"))])
    with lading.writer(tmp_path / "a", shard_size="250kb") as writer:
        writer.write_batch(pa.record_batch([[f"{i:02d}" for i in range(20)], refs], schema=schema))
        assert writer.close().num_shards == 10


def test_columns_of_items_keep_their_types_in_the_manifest_of_tars(tmp_path: Path) -> None:
    """Batches may store them in other ways; JSON does not tell the ways of a passthrough column apart either."""
    rows = {"sample_id": ["a"], "position": pa.array([0], pa.int32()), "modality": ["image"],
            "n": pa.array([None], pa.int32()), "binary_content": pa.array([b"x"], pa.binary())}  # fmt: skip
    other = {**rows, "sample_id": pa.array(["b"], pa.large_string()), "position": pa.array([0], pa.int64()),
             "n": pa.array([None], pa.int64()), "binary_content": pa.array([b"x"], pa.large_binary())}  # fmt: skip
    with lading.writer(tmp_path / "a", view="interleaved") as writer:
        for batch in (rows, other):
            writer.write_batch(pa.record_batch(batch))
    with lading.open(tmp_path / "a") as dataset:
        types = {f.name: f.type for f in dataset.schema}
        assert (types["sample_id"], types["position"], types["n"]) == (pa.string(), pa.int32(), pa.int64())
        assert types["binary_content"] in (pa.binary(), pa.large_binary())
        list(dataset.batches())


@pytest.mark.parametrize("options", [{}, {"huggingface": True}])
@pytest.mark.parametrize(
    "given, read",
    [
        (pa.list_(pa.time32("s")), pa.list_(pa.time32("s"))),
        (pa.struct([("a", pa.date64())]), pa.struct([("a", pa.date64())])),
        (pa.binary(), pa.large_binary()),
        (pa.dictionary(pa.int8(), pa.int64()), pa.int64()),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string())),
    ],
)
def test_the_manifest_of_parquet_tells_the_types_that_are_read(
    tmp_path: Path, given: pa.DataType, read: pa.DataType, options: dict[str, Any]
) -> None:
    with lading.writer(tmp_path / "out", format="parquet", options=options) as writer:
        writer.write_batch(pa.table({"x": pa.nulls(2, given)}))
    with lading.open(tmp_path / "out") as dataset:
        [batch] = dataset.batches()
        assert dataset.schema.field("x").type == batch.schema.field("x").type == read


@pytest.mark.parametrize(
    "layout, given, read",
    [
        ("cache", pa.string_view(), pa.large_string()),
        ("cache", pa.list_(pa.binary_view()), pa.list_(pa.large_binary())),
        ("cache", pa.list_view(pa.string_view()), pa.list_view(pa.large_string())),
        ("cache", pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.string())),
        ("cache", pa.list_(pa.dictionary(pa.uint8(), pa.int8())), pa.list_(pa.dictionary(pa.int32(), pa.int8()))),
        ("huggingface", pa.string_view(), pa.large_string()),
        ("huggingface", pa.list_(pa.dictionary(pa.int32(), pa.string())), pa.list_(pa.string())),
    ],
)
def test_the_manifest_of_arrow_tells_the_types_that_are_read(
    tmp_path: Path, layout: str, given: pa.DataType, read: pa.DataType
) -> None:
    with lading.writer(tmp_path / "out", format="arrow", options={"layout": layout}) as writer:
        writer.write_batch(pa.table({"x": pa.nulls(1, given)}))
    with lading.open(tmp_path / "out") as dataset:
        [batch] = dataset.batches()
        assert dataset.schema.field("x").type == batch.schema.field("x").type == read


_ITEM = {"sample_id": pa.array(["a"]), "position": pa.array([-1], pa.int32()), "modality": pa.array(["metadata"])}
_PAIR = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])


@pytest.mark.parametrize("fmt", ["arrow", "csv", "jsonl", "mds", "media_archive", "parquet", "webdataset"])
@pytest.mark.parametrize(
    "view, columns, more, twice",
    [
        ("samples", {"__key__": pa.array(["a"])}, ["x", "x"], "x"),
        ("samples", {"__key__": pa.array(["a"])}, ["__key__"], "__key__"),
        ("samples", {"__key__": pa.array(["a"]), "pair": _PAIR}, [], "pair"),
        ("interleaved", _ITEM, ["x", "x"], "x"),
        ("interleaved", _ITEM, ["sample_id"], "sample_id"),
    ],
)
def test_two_columns_of_one_name_are_refused(
    tmp_path: Path, fmt: str, view: str, columns: dict[str, pa.Array], more: list[str], twice: str
) -> None:
    arrays = [*columns.values(), *(pa.array(["b"]) for _ in more)]
    batch = pa.RecordBatch.from_arrays(arrays, names=[*columns, *more])
    for given, schema in ((batch, None), (pa.Table.from_batches([batch]), None), (batch, batch.schema)):
        with (
            pytest.raises(DuplicateField, match=f"column '{twice}': "),
            lading.writer(tmp_path / "out", format=fmt, view=view, schema=schema) as writer,
        ):
            writer.write_batch(given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fmt", ["arrow", "csv", "jsonl", "mds", "media_archive", "parquet", "webdataset"])
@pytest.mark.parametrize("view, column", [("samples", "__key__"), ("samples", "c"), ("interleaved", "text_content")])
def test_bytes_that_are_called_text_are_refused(tmp_path: Path, fmt: str, view: str, column: str) -> None:
    wrong = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    sample = {"__key__": pa.array(["a", "b"]), "c": pa.array(["a", "b"])}
    item = {"sample_id": ["a", "b"], "position": [0, 0], "modality": ["text", "text"], "text_content": ["a", "b"]}
    rows = pa.table({**(item if view == "interleaved" else sample), column: wrong})
    with (
        pytest.raises(Unrepresentable, match=f"row 1 column '{column}': invalid UTF-8 in a text"),
        lading.writer(tmp_path / "out", format=fmt, view=view) as writer,
    ):
        writer.write_batch(rows)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fmt", ["arrow", "parquet", "webdataset"])
@pytest.mark.parametrize("kind, number", [(pa.decimal128(3, 0), 100_000), (pa.date64(), 86_400_001)], ids=str)
def test_values_that_their_type_does_not_allow_are_refused(
    tmp_path: Path, fmt: str, kind: pa.DataType, number: int
) -> None:
    """pyarrow writes others in their place, -31072 for 100000 into Parquet; or files that nobody reads."""
    stored = b"".join(value.to_bytes(kind.bit_width // 8, "little") for value in (0, number))
    column = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(stored)])
    with (
        pytest.raises(Unrepresentable, match=r"row 1 column 'c': a value that .* does not allow"),
        lading.writer(tmp_path / "out", format=fmt) as writer,
    ):
        writer.write_batch(pa.table({"c": column}))
    assert not list(tmp_path.iterdir())


_VIEWS = pa.array(["ü" * 20, "b"], pa.string_view())
_INSIDE_OTHERS = {
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), _VIEWS),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int16()), _VIEWS),
    "list view": pa.ListViewArray.from_arrays([1, 0, 0], [1, 2, 0], _VIEWS),
    "map": pa.MapArray.from_arrays([0, 1, 2, 2], pa.array(["k", "l"]), _VIEWS.cast(pa.string()).dictionary_encode()),
}


@pytest.mark.parametrize("name", _INSIDE_OTHERS)
@pytest.mark.parametrize("fmt", ["arrow", "csv", "jsonl", "mds", "media_archive", "parquet", "webdataset"])
def test_views_and_dictionaries_come_back_or_are_refused_by_name(tmp_path: Path, fmt: str, name: str) -> None:
    table = pa.table({"__key__": ["a", "b", "c"], "n": [1, 2, 3], "x": _INSIDE_OTHERS[name]})
    options = {"documents": "parquet"} if fmt == "media_archive" else {}
    try:
        with lading.writer(tmp_path / "out", format=fmt, options=options) as writer:
            writer.write_batch(table)
    except Unrepresentable as error:
        assert error.column == "x"  # noqa: PT017 - which are refused is told by each format's own tests
        assert not list(tmp_path.iterdir())
        return
    with lading.open(tmp_path / "out") as dataset:
        found = pa.Table.from_batches(list(dataset.batches()))
        assert found.column("x").to_pylist() == table.column("x").to_pylist()
        assert dataset.schema.field("x").type == found.schema.field("x").type


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for fmt in FORMATS:
        for name in ("a", "b"):
            with lading.writer(tmp_path / fmt / name, format=fmt) as writer:
                writer.write_batch(table(100))
        files = [sorted((tmp_path / fmt / name).glob("shard*")) for name in ("a", "b")]
        assert [p.read_bytes() for p in files[0]] == [p.read_bytes() for p in files[1]]


def all_bytes(store: MemoryStore | LocalStore, folder: str) -> dict[str, bytes]:
    """Every file below a folder, by its path in it."""
    infos = list(store.walk(folder))
    return {i.path[len(folder) :]: bytes(store.get_ranges(i.path, [(0, i.size_bytes)])[0]) for i in infos}


@pytest.mark.parametrize("kept", ["local", "memory"])
@pytest.mark.parametrize(
    "fmt, options", [("webdataset", {}), ("parquet", {}), ("mds", {}), ("mds", {"compression": "zstd"})]
)
def test_parts_of_other_processes_make_the_same_dataset(
    fmt: str, options: dict[str, Any], kept: str, tmp_path: Path
) -> None:
    """Three parts, the second of them empty, a column that appears late: by one writer, and by one for each part."""
    store, root = (LocalStore(), str(tmp_path)) if kept == "local" else (MemoryStore(), "memory://x")
    stores = Stores({root: store})
    late = table(30, first=100).append_column("more", pa.array([b"m"] * 30, pa.large_binary()))
    if fmt != "webdataset":
        late = late.drop_columns(["more"])
    parts = [[table(40, 500), table(30, 500, first=40)], [], [late]]

    whole = DatasetWriter(f"{root}/whole", format=fmt, options=options, stores=stores)
    for rows_of in parts:
        whole.end_part(Cut(10_000))
        for rows_in in rows_of:
            whole.write_batch(rows_in)
    whole.close()

    writer = DatasetWriter(f"{root}/adopted", format=fmt, options=options, stores=stores)
    for number, rows_of in enumerate(parts):
        folder = f"{writer.tasks}/{number}"
        shards, closing = FinishedShards(store, folder, "own"), Background("closing")
        kind = ShardKind(get_format(fmt), "samples", get_format(fmt).write_options(options), Roles())
        part = PartWriter(BuildFolder(store, folder), kind, shards, closing=closing, name=str, cut=Cut(10_000))
        for rows_in in rows_of:
            for batch in rows_in.to_batches():
                write_rows(part, Fetcher(stores), Batch(batch, "samples"))
        part.end_shard()
        closing.stop()
        columns = pa.schema(list(part.columns.seen.values()))
        writer.adopt(FinishedPart(shards.close(), part.columns.schema, columns, shards.counts), folder)
    writer.close()
    found = all_bytes(store, f"{root}/adopted")
    assert found == all_bytes(store, f"{root}/whole")
    assert len([name for name in found if name.startswith("/shard")]) >= 2


@pytest.mark.parametrize("rank", [None, 3])
def test_a_process_may_go_to_another_folder_while_it_writes(
    rank: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    for _ in range(2):  # and in the place of the first
        monkeypatch.chdir(tmp_path / "here")
        with lading.writer("out", format="parquet", shard_size=1, rank=rank, overwrite=True) as writer:
            writer.write({"n": 1})
            monkeypatch.chdir(tmp_path / "there")
            writer.write({"n": 2})
    assert rows(tmp_path / "here" / "out") == [{"n": 1}, {"n": 2}]
    assert [path.name for path in tmp_path.glob("*/*")] == ["out"]


def test_an_error_of_the_last_step_names_the_destination_as_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "out", "parquet", [{"n": 0}])
    writer = lading.writer("out", format="parquet", overwrite=True)
    writer.write({"n": 1})
    monkeypatch.setattr("lading._core.storage.exchange._LINUX_EXCHANGE", 1 << 20)  # a flag that no kernel knows
    with pytest.raises(StoreError, match=r"^out: this file system cannot exchange"):
        writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.soak
def test_indexes_of_many_rows_go_to_several_files_that_readers_take() -> None:
    """256 shards of 256 MB of 2 KB texts would otherwise have one of 1.4 GB, which no reader takes."""
    store, rows = MemoryStore(), 2_000_000
    shards = FinishedShards(store, "box://out", "_lading")
    for first in range(0, 6 * rows, rows):
        index = pa.table({"offset": np.arange(first, first + rows), "length": np.arange(rows)})
        shards.add(FinishedShard(f"{first:09}", ShardFacts(rows, 1, 1), index, {}, sums=[ShardSums([], None)]))
    listed = shards.close()
    sizes = [info.size_bytes for info in store.walk("box://out")]
    assert len(sizes) > 1
    assert max(sizes) < DEFAULT_LIMITS.manifest_bytes // 8
    kept = ShardTables(store, "box://out", listed)
    firsts = [table["offset"][0].as_py() for row in range(6) if (table := kept.index(row)) is not None]
    assert firsts == list(range(0, 6 * rows, rows))


_SAMPLES = [
    {
        "k": i, "list": np.arange(8, dtype="f4").reshape(2, 4) + i, "npy": np.ones((i + 1, 2)), "image": b"picture",
        "json": {"a": [1, "x"]} if i else "hello", "label": i % 2, "numbers": [1.5, 2.0], "text": "tä", "bytes": b"xy",
    }
    for i in range(3)
]  # fmt: skip
_FEATURES: dict[str, Feature] = {
    "k": Value("int64"), "list": Array("float32", (None, 4)), "npy": Array(), "image": Image(), "json": Json(),
    "label": ClassLabel(("x", "y")), "numbers": Sequence(Value("float32")), "text": Text(), "bytes": Bytes(),
}  # fmt: skip


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "webdataset"])
def test_samples_written_back_with_their_schema_are_the_same(fmt: str, tmp_path: Path) -> None:
    """What `ds[i]` gives of any column becomes what it was, in every format that holds it."""
    write_cache(_SAMPLES, _FEATURES, tmp_path / "in")
    lading.convert(tmp_path / "in", tmp_path / "from", format=fmt)
    with (
        lading.open(tmp_path / "from").with_decode(False) as dataset,
        lading.writer(tmp_path / "out", format=fmt, schema=dataset.schema) as writer,
    ):
        for sample in dataset:
            writer.write(sample)
    assert lading.digest(tmp_path / "out") == lading.digest(tmp_path / "in")
    assert lading.verify(tmp_path / "out", deep=True).findings == []
    with lading.open(tmp_path / "out").with_decode(False) as dataset:
        assert [sample["list"].tolist() for sample in dataset] == [sample["list"].tolist() for sample in _SAMPLES]


def test_values_that_their_column_cannot_hold_are_told_with_their_row(tmp_path: Path) -> None:
    schema = pa.schema([with_feature(pa.field("x", pa.large_binary()), Array("float32", (3,)))])
    with lading.writer(tmp_path / "out", schema=schema) as writer:
        writer.write({"x": [1, 2, 3]})
        with pytest.raises(Unrepresentable) as caught:
            writer.write({"x": [1, 2]})
    assert (caught.value.row, caught.value.column) == (1, "x")


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_what_waits_is_not_counted_anew_for_each_batch(fmt: str) -> None:
    """Each write asks for it: 500 batches of 300 columns took half a minute."""
    batch = pa.record_batch({f"c{n}": pa.array([b"x"], pa.binary_view()) for n in range(40)})

    def waiting(count: int) -> ShardWriter:
        writer = get_format(fmt).create(
            [MemoryStore().put_stream("shard")], batch.schema, get_format(fmt).write_options({})
        )
        for _ in range(count):
            writer.write(batch)
        assert writer.held_bytes() == 40 * count
        return writer

    one, many = waiting(1), waiting(200)
    assert costs_at_most(
        20, lambda: [many.held_bytes() for _ in range(20)], lambda: [one.held_bytes() for _ in range(20)]
    )


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "csv"])
@pytest.mark.parametrize(
    "first, second",
    [
        (pa.array([12345]), pa.array(["01234"])),
        (pa.array([True]), pa.array(["FALSE"])),
        (pa.array([True]), pa.array([1])),
        (pa.array([1.5]), pa.array([True])),
        (pa.array(["1.5"]), pa.array([2.5])),
        (pa.array([1.5]), pa.array([Decimal("1.23456789012345678901")])),
    ],
    ids=lambda column: str(column.type),
)
def test_batches_of_another_kind_than_the_first_one_are_refused(
    fmt: str, first: pa.Array, second: pa.Array, tmp_path: Path
) -> None:
    writer = lading.writer(tmp_path / "a", format=fmt)
    writer.write_batch(pa.table({"x": first}))
    with pytest.raises(SchemaMismatch, match="differ in kind") as caught:
        writer.write_batch(pa.table({"x": second}))
    assert caught.value.column == "x"


JSON = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[1]"]))
TIME = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
UUID = uuid.UUID(int=1)


@pytest.mark.parametrize(
    "first, second, values",
    [
        (pa.array([1.5]), pa.array([2.5], pa.float32()), [1.5, 2.5]),
        (pa.array([1]), pa.array([2], pa.uint8()), [1, 2]),
        (pa.array(["a"]), pa.array(["b", "b"]).dictionary_encode(), ["a", "b", "b"]),
        (pa.array([[1]]), pa.array([[2]], pa.large_list(pa.int8())), [[1], [2]]),
        (pa.array([TIME]), pa.array([TIME], pa.timestamp("s", "+00:00")), [TIME, TIME]),
        (pa.array([b"a"]), pa.array(["b"]), [b"a", b"b"]),
        (pa.array([{"a": "x"}]), pa.array([{"a": b"y"}]), [{"a": "x"}, {"a": "y"}]),
        (pa.array([{"a": "x"}]), pa.StructArray.from_arrays([JSON], ["a"]), [{"a": "x"}, {"a": "[1]"}]),
        (pa.DictionaryArray.from_arrays(pa.array([0]), JSON), JSON, ["[1]", "[1]"]),
        (pa.array([b"x" * 16], pa.binary(16)), pa.array([UUID.bytes], pa.uuid()), [b"x" * 16, UUID.bytes]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_batches_of_one_kind_may_be_of_another_width(
    first: pa.Array, second: pa.Array, values: list[Any], tmp_path: Path
) -> None:
    with lading.writer(tmp_path / "a", format="parquet") as writer:
        writer.write_batch(pa.table({"x": first}))
        writer.write_batch(pa.table({"x": second}))
    with lading.open(tmp_path / "a") as dataset:
        found = pa.Table.from_batches(dataset.batches())["x"]
    assert [value.as_py() for value in found] == values


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "mds", "webdataset"])
def test_batches_of_references_are_written_as_what_they_lead_to(fmt: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "a", format="webdataset") as writer:
        writer.write_batch(pa.table({"__key__": ["a", "b"], "jpg": [b"x" * 5000, b"y"]}))
    with lading.open(tmp_path / "a") as dataset, lading.writer(tmp_path / "b", format=fmt) as writer:
        for batch in dataset.batches(lazy=True):
            assert is_ref(batch.schema.field("jpg").type)
            writer.write_batch(batch)
    assert lading.digest(tmp_path / "b") == lading.digest(tmp_path / "a")
