"""Caches: rows in, shards out; one builder at a time; the old or the new at every instant."""

from __future__ import annotations

import array as plain
import enum
import hashlib
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image as Pillow

import lading
from lading._core.caches import layout
from lading._core.dataset.shards.shards import Shards
from lading._core.features.encode import VIDEO_FIELDS, npy_bytes
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
    Video,
    feature_of,
)
from lading._core.storage.base import FileInfo
from lading._core.storage.local import LocalStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import WrappedStore
from lading.caches import CacheMeta, cache_fingerprint, read_cache_meta, read_shard, validate_cache, write_cache
from lading.errors import (
    CorruptShard,
    DataError,
    DatasetReplaced,
    DestinationExists,
    DuplicateField,
    LadingError,
    LimitExceeded,
    NotFound,
    SchemaMismatch,
    SidecarMismatch,
    StoreError,
    Unrepresentable,
    UsageError,
)
from lading.limits import Limits


class Suit(str, enum.Enum):  # noqa: UP042 - of which str() gives the name, not the text
    HEARTS = "hearts"


class Finer(datetime):
    """A time of nanoseconds, as pandas' are."""

    nanosecond = 5


class FinerSpan(timedelta):
    nanoseconds = 5


NOON = datetime.fromisoformat("2020-01-01T12:00:00")
NUMBERS: dict[str, Feature] = {"n": Value("int64")}


def numbers(count: int, start: int = 0) -> Iterator[dict[str, int]]:
    return ({"n": i} for i in range(start, start + count))


def rows_of(meta: CacheMeta) -> list[dict[str, Any]]:
    return [row for path in meta.shard_paths for row in read_shard(path).to_pylist()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def batch_rows(path: str) -> list[int]:
    with pa.OSFile(path) as file:
        reader = pa.ipc.open_file(file)
        return [len(reader.get_batch(i)) for i in range(reader.num_record_batches)]


def test_the_name_of_a_cache_is_the_peers() -> None:
    # sha256("MyData:1.2.0:plain:train:arrow"), and without the storage, by coreutils' sha256sum
    assert cache_fingerprint("MyData", "1.2.0", "plain", "train") == "mydata_plain_train_87818ebe6eaa7376"
    assert cache_fingerprint("MyData", "1.2.0", "plain", "train", None) == "mydata_plain_train_2f41eed6fcf5eb1b"


def test_rows_in_order_with_or_without_keys(tmp_path: Path) -> None:
    meta = write_cache(numbers(2500), NUMBERS, tmp_path / "out")
    assert (meta.num_rows, meta.num_shards, meta.shard_row_counts) == (2500, 1, (2500,))
    assert rows_of(meta) == list(numbers(2500))
    assert batch_rows(meta.shard_paths[0]) == [1000, 1000, 500]
    assert read_cache_meta(tmp_path / "out") == meta
    assert validate_cache(tmp_path / "out", NUMBERS) == meta
    assert rows_of(write_cache(enumerate(numbers(3)), NUMBERS, tmp_path / "out")) == list(numbers(3))
    assert names(tmp_path) == ["out", "out.lock"]


@pytest.mark.parametrize("count", [4, 5, 6])
def test_no_shard_is_empty(count: int, tmp_path: Path) -> None:
    meta = write_cache(numbers(count), NUMBERS, tmp_path / "out", batch_size=1, shard_size=16)
    assert meta.shard_row_counts == (2,) * (count // 2) + (1,) * (count % 2)
    assert meta.shard_filenames == tuple(f"shard-{i:05d}.arrow" for i in range(len(meta.shard_row_counts)))


def test_no_rows_no_shards(tmp_path: Path) -> None:
    meta = write_cache(iter(()), NUMBERS, tmp_path / "out")
    assert (meta.num_rows, meta.num_shards) == (0, 0)
    assert names(tmp_path / "out") == ["_metadata.json"]
    assert validate_cache(tmp_path / "out", NUMBERS).num_rows == 0


def test_batches_end_by_rows_or_bytes(tmp_path: Path) -> None:
    features: dict[str, Feature] = {"image": Image()}
    sizes = [10, 10, 10, 10, 500, 10, 90, 10, 2000, 10]
    meta = write_cache(({"image": b"x" * n} for n in sizes), features, tmp_path / "out", batch_size=4, batch_bytes=100)
    assert batch_rows(meta.shard_paths[0]) == [4, 1, 2, 2, 1]


@pytest.mark.parametrize("dtype", ["string", "utf8", "str", "large_utf8", "string_view", "binary", "large_binary"])
def test_texts_and_bytes_weigh_what_they_are_however_their_type_is_spelt(dtype: str, tmp_path: Path) -> None:
    value = b"x" * 60 if "binary" in dtype else "x" * 60
    meta = write_cache(({"t": value} for _ in range(6)), {"t": Value(dtype)}, tmp_path / "out", batch_bytes=100)
    assert batch_rows(meta.shard_paths[0]) == [2, 2, 2]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compression(compression: str, tmp_path: Path) -> None:
    plain = write_cache(numbers(5000), NUMBERS, tmp_path / "plain")
    meta = write_cache(numbers(5000), NUMBERS, tmp_path / "out", compression=compression)
    assert meta.compression == compression
    assert rows_of(meta) == list(numbers(5000))
    assert os.path.getsize(meta.shard_paths[0]) < os.path.getsize(plain.shard_paths[0])


@pytest.mark.parametrize(
    "rows, error, told",
    [
        ([("a", {"n": 1}), ("b", {})], SchemaMismatch, r"row 1 sample 'b' column 'n'.*without a column.*on_missing"),
        ([{"n": 1}, {"n": 2, "m": 3}], SchemaMismatch, r"row 1 column 'm'.*not a column.*on_unknown"),
        ([{"n": 1}, {"m": 3}], SchemaMismatch, r"row 1 column 'n'"),
        ([("a", {"n": 1}), ("b", {"n": "x"})], Unrepresentable, r"row 1 sample 'b' column 'n'.*int64.*'x'"),
        ([{"n": 1}] * 300 + [{"n": 2**70}], Unrepresentable, r"row 300 column 'n'"),
        ([{"n": 1}, 7], UsageError, "row 1.*int"),
        ([{"n": 1}, pa.table({"n": [1]})], UsageError, "row 1.*Table"),
        ([pa.table({"n": [1, 2]}), {"n": 1}], UsageError, "row 2.*dict"),
        ([None], UsageError, "row 0"),
        ([("a", {"n": 1})] + [{"n": 2}] * 9 + [{"n": 2**70}], Unrepresentable, "row 10 column 'n'"),
        ([{"n": 1}, {"n": 2}, {"n": 3}] + [("d", {"n": 2**70})] * 9, Unrepresentable, "row 3 sample 'd' column 'n'"),
        ([{"n": 1}, {"n": 1.5}], Unrepresentable, "row 1 column 'n'"),
    ],
)
def test_rows_that_do_not_fit_are_errors_and_leave_nothing(
    rows: list[Any], error: type[LadingError], told: str, tmp_path: Path
) -> None:
    old = write_cache(numbers(3), NUMBERS, tmp_path / "out")
    with pytest.raises(error, match=told):
        write_cache(rows, NUMBERS, tmp_path / "out")
    assert rows_of(old) == list(numbers(3))
    assert names(tmp_path) == ["out", "out.lock"]


def test_an_error_of_the_generator_comes_as_it_is(tmp_path: Path) -> None:
    def broken() -> Iterator[dict[str, int]]:
        yield {"n": 1}
        raise FileNotFoundError("mine")

    with pytest.raises(FileNotFoundError, match=r"^mine$"):
        write_cache(broken(), NUMBERS, tmp_path / "out")
    assert names(tmp_path) == ["out.lock"]


def test_missing_and_unknown_keys_may_be_allowed(tmp_path: Path) -> None:
    rows = [{"n": 1, "m": 2}, {}, {"m": 3}]
    meta = write_cache(rows, NUMBERS, tmp_path / "out", on_missing="null", on_unknown="drop")
    assert rows_of(meta) == [{"n": 1}, {"n": None}, {"n": None}]
    table = pa.table({"m": [1, 2]})
    meta = write_cache([table], NUMBERS, tmp_path / "out", on_missing="null", on_unknown="drop")
    assert rows_of(meta) == [{"n": None}] * 2
    for options in ({"on_missing": "null"}, {"on_unknown": "drop"}):
        with pytest.raises(SchemaMismatch):
            write_cache([table], NUMBERS, tmp_path / "out", **options)


def test_a_mapping_that_makes_up_values_is_not_asked_to(tmp_path: Path) -> None:
    class Invents(dict[str, int]):
        def __missing__(self, key: str) -> int:
            return 7

    with pytest.raises(SchemaMismatch):
        write_cache([Invents(m=1)], NUMBERS, tmp_path / "out")


def test_numbers_of_numpy_are_stored(tmp_path: Path) -> None:
    features: dict[str, Feature] = {"n": Value("int8"), "f": Value("float16"), "s": Sequence(Sequence(Value("int64")))}
    meta = write_cache(
        [{"n": np.int64(3), "f": np.float32(0.5), "s": np.eye(2, dtype=int)}], features, tmp_path / "out"
    )
    assert rows_of(meta) == [{"n": 3, "f": 0.5, "s": [[1, 0], [0, 1]]}]


@pytest.mark.parametrize("workers", [1, 3])
def test_what_numpy_masks_is_null(workers: int, tmp_path: Path) -> None:
    features: dict[str, Feature] = {"n": Value("float32"), "s": Sequence(Value("float32")), "x": Array("uint8", ())}
    told = np.ma.masked_values(np.array([21.5, -999.0, 19.0]), -999.0)
    rows = ({"n": told[i], "s": told if i else [told[1]], "x": 1} for i in range(3))
    found = rows_of(write_cache(rows, features, tmp_path / "out", workers=workers))
    assert [row["n"] for row in found] == [21.5, None, 19.0]
    assert [row["s"] for row in found] == [[None], [21.5, None, 19.0], [21.5, None, 19.0]]


@pytest.mark.parametrize(
    "dtype, value",
    [
        ("int64", 1.5), ("int64", float("nan")), ("int64", True), ("int64", "1"), ("int8", 128), ("uint8", -1),
        ("int64", Decimal("1.5")), ("float32", 1e300), ("float16", 1e6), ("float64", 2**53 + 1), ("float64", "1"),
        ("float16", 2049), ("float16", np.int32(65520)),
        ("float64", True), ("bool", 1), ("string", 1), ("string", "\ud800"), ("binary", "text"),
        ("timestamp[s]", NOON.replace(microsecond=5)), ("timestamp[s]", 1.5), ("timestamp[s]", 3),
        ("timestamp[us]", NOON.replace(tzinfo=UTC)), ("date32[day]", NOON),
        ("duration[s]", timedelta(microseconds=5)), ("time32[s]", "x"),
    ],
)  # fmt: skip
def test_no_value_is_cut_or_taken_for_another(dtype: str, value: Any, tmp_path: Path) -> None:
    """pyarrow alone would store 1 for 1.5, infinity for 1e300, a day for a time, a list of letters for a text."""
    for feature, given in ((Value(dtype), value), (Sequence(Value(dtype)), [value])):
        with pytest.raises(Unrepresentable, match=r"row 1 column 'x'"):
            write_cache([{"x": None}, {"x": given}], {"x": feature}, tmp_path / "out")


@pytest.mark.parametrize(
    "dtype, values",
    [
        ("int8", [1, np.int64(2), 3.0, np.float32(4), np.array(5), None]),
        ("float32", [1, 0.5, np.float64(0.25), float("inf"), None]),
        ("float16", [1, 0.5, np.float64(0.25), -float("inf")]),
        ("bool", [True, np.False_, None]),
        ("string", ["a", np.str_("b"), None]),
        ("binary", [b"a", bytearray(b"b"), memoryview(b"c")]),
        ("timestamp[us]", [NOON.replace(microsecond=5), None]),
        ("timestamp[s]", [NOON]),
        ("date32[day]", [date(2020, 1, 1)]),
        ("duration[ms]", [timedelta(seconds=3)]),
    ],
)
def test_values_that_fit_are_kept(dtype: str, values: list[Any], tmp_path: Path) -> None:
    """One by one and in lists; what is not of the column's own type after what is."""
    features: dict[str, Feature] = {"x": Value(dtype), "s": Sequence(Value(dtype))}
    rows = [{"x": values[0], "s": []}] * 200 + [{"x": value, "s": [value, None]} for value in values]
    found = rows_of(write_cache(rows, features, tmp_path / "out"))[200:]
    assert [row["x"] for row in found] == values
    assert [row["s"] for row in found] == [[value, None] for value in values]


@pytest.mark.parametrize("value", ["abc", {"a": 1}, 3, np.array(3), np.eye(2), [["a"], "b"], [1.5], np.array([1.5])])
def test_what_is_no_list_of_the_column_is_refused(value: Any, tmp_path: Path) -> None:
    for inner in (Text(), Sequence(Text()), ClassLabel(("a",))):
        with pytest.raises(Unrepresentable, match=r"row 1 column 's'"):
            write_cache([{"s": []}, {"s": value}], {"s": Sequence(inner)}, tmp_path / "out")


ZONED = NOON.replace(tzinfo=timezone(timedelta(hours=5)))


@pytest.mark.parametrize(
    "dtype, fits, value",
    [
        ("timestamp[us]", NOON, ZONED), ("timestamp[us]", NOON, 5), ("timestamp[us]", NOON, 1.5),
        ("timestamp[us]", NOON, np.datetime64(1, "ns")), ("timestamp[us]", NOON, Finer(2020, 1, 1)),
        ("timestamp[us, tz=UTC]", ZONED, NOON), ("timestamp[us]", NOON, date(2020, 1, 1)),
        ("date32", date(2020, 1, 1), NOON), ("date32", date(2020, 1, 1), 5),
        ("duration[us]", timedelta(1), 5), ("duration[us]", timedelta(1), FinerSpan(1)),
        ("time64[us]", NOON.time(), ZONED.timetz()), ("time32[s]", NOON.time(), time(1, 2, 3, 4)),
        ("decimal128(4, 1)", Decimal("1.5"), Decimal("1.25")), ("decimal128(4, 1)", Decimal("1.5"), 1.5),
        ("float32", 1.0, 1e300), ("float16", 1.0, 1e6), ("uint64", 1, -1), ("i8", 1, 1.5), ("utf8", "a", 1),
    ],
)  # fmt: skip
def test_no_value_is_cut_whatever_stands_before_it_or_around_it(
    dtype: str, fits: Any, value: Any, tmp_path: Path
) -> None:
    """pyarrow goes by the first value, and inside a struct by none: 12:00 at +05:00 would be 7:00 among plain times."""
    inner = Struct((("a", Value(dtype)),))
    wraps: list[tuple[Feature, Callable[[Any], Any]]] = [
        (Value(dtype), lambda v: v), (Sequence(Value(dtype)), lambda v: [v]), (inner, lambda v: {"a": v}),
        (Sequence(inner), lambda v: [{"a": None}, {"a": v}]),
    ]  # fmt: skip
    for feature, wrap in wraps:
        with pytest.raises(Unrepresentable, match=r"row 1 column 'x'"):
            write_cache([{"x": wrap(fits)}, {"x": wrap(value)}], {"x": feature}, tmp_path / "out")


@pytest.mark.parametrize(
    "dtype, values, stored",
    [
        ("timestamp[ns]", [NOON, np.datetime64(1, "ns"), np.datetime64(1, "us"), np.datetime64("NaT")],
         [1577880000 * 10**9, 1, 1000, None]),
        ("timestamp[us, tz=Europe/Berlin]", [ZONED], [(1577880000 - 5 * 3600) * 10**6]),
        ("duration[ns]", [timedelta(1), np.timedelta64(7, "ns")], [86400 * 10**9, 7]),
        ("date64", [date(1, 1, 1), np.datetime64("2020-01-01")], [date(1, 1, 1), date(2020, 1, 1)]),
        ("decimal128(4, 1)", [Decimal("1.5"), 2, Decimal("1.50")], [Decimal("1.5"), Decimal("2.0"), Decimal("1.5")]),
        ("string", [Suit.HEARTS, "x"], ["hearts", "x"]),
        ("string_view", ["a"], ["a"]),
        ("float32", [math.inf, 0.5], [math.inf, 0.5]),
    ],
)  # fmt: skip
def test_values_of_one_column_may_be_of_several_types(
    dtype: str, values: list[Any], stored: list[Any], tmp_path: Path
) -> None:
    features: dict[str, Feature] = {"x": Value(dtype), "s": Struct((("a", Value(dtype)),))}
    meta = write_cache(({"x": v, "s": {"a": v}} for v in values), features, tmp_path / "out")
    found = read_shard(meta.shard_paths[0])
    expected = pa.array(stored, found["x"].type)
    assert found["x"].combine_chunks().equals(expected)
    assert found["s"].combine_chunks().field("a").equals(expected)
    assert validate_cache(tmp_path / "out", features).num_rows == len(values)


def test_what_an_open_dataset_says_of_its_columns_makes_a_cache(tmp_path: Path) -> None:
    """The names that Arrow prints are names of types: zones and decimals too."""
    table = pa.table({"t": pa.array([ZONED], pa.timestamp("ms", "+05:00")), "d": pa.array([Decimal("1.5")])})
    features = {field.name: feature_of(field) for field in table.schema}
    assert rows_of(write_cache(table.to_pylist(), features, tmp_path / "out")) == table.to_pylist()
    assert read_shard(tmp_path / "out" / "shard-00000.arrow").schema.types == table.schema.types


def test_batches_and_tables_are_fitted_and_cut(tmp_path: Path) -> None:
    features: dict[str, Feature] = {"label": ClassLabel(("cat", "dog")), "image": Image(), "n": Value("int16")}
    given = pa.table(
        {
            "n": pa.array(range(2500), pa.int64()),
            "label": pa.array(["dog", "cat", None, "dog", "dog"] * 500).dictionary_encode(),
            "image": pa.array([b"x", None] * 1250, pa.binary()),
        }
    )
    meta = write_cache([given, given.to_batches()[0]], features, tmp_path / "out")
    assert batch_rows(meta.shard_paths[0]) == [1000, 1000, 500] * 2
    table = read_shard(meta.shard_paths[0])
    assert table.schema.types == [pa.int64(), pa.large_binary(), pa.int16()]
    assert table["label"].to_pylist()[:5] == [1, 0, None, 1, 1]
    assert table["n"].to_pylist() == [*range(2500)] * 2
    small = write_cache([given], features, tmp_path / "out", batch_bytes=1000)
    assert max(batch_rows(small.shard_paths[0])) < 100


@pytest.mark.parametrize(
    "column, feature, told",
    [
        (pa.array(["cat", "cow"]), ClassLabel(("cat",)), "cow"),
        (pa.array([1, 2**20]), Value("int16"), "column 'x'"),
        (pa.array([1.0, 1e300]), Value("float32"), "column 'x'"),
        (pa.array([[1.0, 1e300]]), Sequence(Value("float16")), "column 'x'"),
        (pa.array([{"a": 1e300}]), Struct((("a", Value("float32")),)), "column 'x'"),
        (pa.array([NOON]), Value("date32[day]"), "another type"),
        (pa.array(["x"]), Image(), "another type"),
        (pa.array(["1"]), Value("int64"), "another type.*int64.*string"),
        (pa.array([1.5]), Value("int64"), "column 'x'"),
        (pa.array([b"\xff"]), Text(), "another type"),
        (pa.array([b"abc"]), Array("int16", (2,)), "4.*3"),
    ],
)
def test_columns_that_do_not_fit_are_refused(column: pa.Array, feature: Feature, told: str, tmp_path: Path) -> None:
    with pytest.raises(Unrepresentable, match=told):
        write_cache([pa.table({"x": column})], {"x": feature}, tmp_path / "out")


def test_columns_that_fit_are_fitted(tmp_path: Path) -> None:
    features: dict[str, Feature] = {
        "f": Value("float32"), "s": Sequence(Value("int8")), "t": Text(), "x": Array("int16", (2,)), "z": Bytes(),
        "null": Value("int64"),
    }  # fmt: skip
    table = pa.table(
        {
            "x": pa.array([b"\1\0\2\0", None], pa.binary(4)),
            "null": pa.nulls(2),
            "f": pa.array([0.1, float("inf")]),
            "s": pa.array([[1, None], None], pa.large_list(pa.int64())),
            "t": pa.array(["ü", None], pa.large_string()),
            "z": pa.array([b"", b"x"], pa.binary_view()),
        }
    )
    found = rows_of(write_cache([table], features, tmp_path / "out"))
    first = {"f": np.float32(0.1), "s": [1, None], "t": "ü", "x": b"\1\0\2\0", "z": b"", "null": None}
    assert found == [first, {"f": float("inf"), "s": None, "t": None, "x": None, "z": b"x", "null": None}]


@pytest.mark.parametrize("feature", [Text(), Json(), Value("string")])
def test_bytes_that_are_called_text_are_refused(feature: Feature, tmp_path: Path) -> None:
    wrong = pa.Array.from_buffers(pa.string(), 2, pa.array([b"1", b"\xff"]).buffers())
    tables = [pa.table({"c": ["1", "2", "3"]}), pa.table({"c": wrong})]
    with pytest.raises(Unrepresentable, match="row 4 column 'c': invalid UTF-8 in a text"):
        write_cache(tables, {"c": feature}, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_table_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
    with pytest.raises(SchemaMismatch, match="twice"):
        write_cache([table], NUMBERS, tmp_path / "out")


@pytest.mark.parametrize(
    "features, options",
    [
        ({}, {}),
        ({"n": Value("decimal(3)")}, {}),
        ({"n": Array("object", (1,))}, {}),
        ({"n": Array("float32", (None, None))}, {}),
        ({"n": Video("frames")}, {}),
        ([("n", Text())], {}),
        ({1: Text()}, {}),
        ({"\ud800": Text()}, {}),
        ({"n": ClassLabel(("\ud800",))}, {}),
        ({"n": Sequence(Struct((("a", Text()), ("a", Text()))))}, {}),
        (NUMBERS, {"lineage": {"a": object()}}),
        (NUMBERS, {"lineage": ["a"]}),
        (NUMBERS, {"lineage": {"a": {1: "b", "1": "c"}}}),
        (NUMBERS, {"compression": "brotli"}),
        (NUMBERS, {"batch_size": 0}),
        (NUMBERS, {"workers": 0}),
        (NUMBERS, {"shard_size": "many"}),
        (NUMBERS, {"on_missing": "drop"}),
        (NUMBERS, {"on_unknown": "null"}),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_made(
    features: dict[str, Feature], options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UsageError):
        write_cache(numbers(1), features, tmp_path / "out", **options)
    assert names(tmp_path) == []


@pytest.mark.parametrize("place", ["", "s3://bucket/cache", "memory://cache", b"cache"])
def test_a_cache_is_a_folder_of_this_machine(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="this machine"):
        write_cache(numbers(1), NUMBERS, place)
    assert names(tmp_path) == []


@pytest.mark.parametrize("place", ["/", "//", "file://", "file:///"])
def test_a_place_without_a_name_is_refused(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset variable before a slash: it would be the folder one works in."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match=r"names no folder.*Name one"):
        write_cache(numbers(1), NUMBERS, place)
    assert (names(tmp_path), names(tmp_path / "here")) == (["here"], [])


@pytest.mark.parametrize("scheme", ["file://", "FILE://"])
def test_a_cache_may_be_named_as_a_url_of_a_file(scheme: str, tmp_path: Path) -> None:
    write_cache(numbers(3), NUMBERS, f"{scheme}{tmp_path}/out")
    assert validate_cache(tmp_path / "out", NUMBERS).num_rows == 3
    assert names(tmp_path) == ["out", "out.lock"]


def test_the_folder_one_works_in_may_be_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_cache(numbers(3), NUMBERS, ".")
    assert validate_cache(tmp_path / "here", NUMBERS).num_rows == 3
    assert names(tmp_path) == ["here", "here.lock"]


def test_a_generator_may_change_the_folder_it_works_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def rows() -> Iterator[dict[str, Any]]:
        for i in range(3):
            yield {"n": i, "v": bytes([i])}
            os.chdir(tmp_path / "there")

    features: dict[str, Feature] = {"n": Value("int64"), "v": Video("path")}
    for _ in range(2):  # and in the place of the first
        monkeypatch.chdir(tmp_path / "here")
        meta = write_cache(rows(), features, "out", batch_size=1, shard_size=1)
        assert (meta.cache_dir, meta.num_shards) == ("out", 3)
        assert validate_cache(tmp_path / "here" / "out", features).num_rows == 3
        assert (names(tmp_path / "here"), names(tmp_path / "there")) == (["out", "out.lock"], [])


def test_features_told_with_lists_and_types_of_numpy_are_the_same(tmp_path: Path) -> None:
    told: Any = {
        "l": ClassLabel(["a", "b"]), "x": Array(np.float32, [np.int64(2)]), "s": Struct([["n", Value("int8")]]),
    }  # fmt: skip
    row = {"l": "b", "x": [1, 2], "s": {"n": 1}}
    meta = write_cache([row], told, tmp_path / "out")
    plain = {"l": ClassLabel(("a", "b")), "x": Array("float32", (2,)), "s": Struct((("n", Value("int8")),))}
    assert layout.fingerprint({"x": Array("<f4", (2,))}) == layout.fingerprint({"x": plain["x"]}) == "86487d480bdc3551"
    for features in (told, plain):
        assert validate_cache(tmp_path / "out", features) == meta
    assert meta.features == plain
    assert hash(told["l"]) == hash(plain["l"])


@pytest.mark.parametrize("below", ["c", "a/b/c"])
def test_a_place_below_a_file_is_refused(below: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        StoreError, match=rf"file/{below}: a part of the destination's path is not a folder; found .*/file$"
    ):
        write_cache(numbers(1), NUMBERS, tmp_path / "file" / below)
    assert names(tmp_path) == ["file"]


def test_only_a_cache_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis").write_text("x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DestinationExists, match="thesis"):
        write_cache(numbers(1), NUMBERS, tmp_path / "home")
    with pytest.raises(UsageError, match="not a folder"):
        write_cache(numbers(1), NUMBERS, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert write_cache(numbers(1), NUMBERS, tmp_path / "empty").num_rows == 1


@pytest.mark.parametrize(
    "text, broken",
    [('{"made by": "another tool"}', False), ("[]", False), ('{"cache_format_version": 2}', False),
     ('{"cache_form', True), ("\0", True)],
)  # fmt: skip
def test_a_folder_with_metadata_of_others_is_not_replaced(text: str, broken: bool, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "_metadata.json").write_text(text)
    (tmp_path / "home" / "thesis").write_text("x")
    with pytest.raises(DestinationExists, match="thesis"):
        write_cache(numbers(1), NUMBERS, tmp_path / "home")
    assert names(tmp_path / "home") == ["_metadata.json", "thesis"]
    assert names(tmp_path) == ["home"]
    (tmp_path / "home" / "thesis").unlink()
    if broken:  # then it may be a cache, and loses nothing
        assert write_cache(numbers(1), NUMBERS, tmp_path / "home").num_rows == 1
        return
    with pytest.raises(DestinationExists, match="_metadata"):
        write_cache(numbers(1), NUMBERS, tmp_path / "home")
    assert (tmp_path / "home" / "_metadata.json").read_text() == text


@pytest.mark.parametrize("text", ["", "{", "keep"])
def test_a_damaged_cache_is_replaced(text: str, tmp_path: Path) -> None:
    features = NUMBERS | {"v": Video("path")}
    rows = [{"n": 1, "v": b"film"}]
    write_cache(rows, features, tmp_path / "out")
    path = tmp_path / "out" / "_metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_rows": 7}) if text == "keep" else text)
    assert write_cache(rows, features, tmp_path / "out").num_rows == 1


def test_a_cache_behind_a_link_and_without_a_folder_above(tmp_path: Path) -> None:
    write_cache(numbers(1), NUMBERS, tmp_path / "a" / "b")
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    write_cache(numbers(2), NUMBERS, tmp_path / "link")
    assert read_cache_meta(tmp_path / "a" / "b").num_rows == 2
    assert names(tmp_path) == ["a", "link"]


def test_names_with_dots_have_locks_of_their_own(tmp_path: Path) -> None:
    for name in ("mnist_v1.0_train_x", "mnist_v1.0_test_y"):
        write_cache(numbers(1), NUMBERS, tmp_path / name)
    assert [n for n in names(tmp_path) if n.endswith(".lock")] == ["mnist_v1.0_test_y.lock", "mnist_v1.0_train_x.lock"]


def test_features_come_back_and_a_mismatch_says_what_differs(tmp_path: Path) -> None:
    many = tuple(f"class {i}" for i in range(10))
    features: dict[str, Feature] = {"x": Array("float32", (2, 3)), "label": ClassLabel(many), "t": Value("string")}
    write_cache([{"x": np.zeros((2, 3)), "label": "class 3", "t": "x"}], features, tmp_path / "out")
    meta = validate_cache(tmp_path / "out", features)
    assert meta.features == features | {"t": Text()}
    assert validate_cache(tmp_path / "out", features | {"t": Text()}) == meta
    # More than five names do not show in the peer's fingerprint.
    for other, told in (
        ({"label": ClassLabel((*many[:9], "cow"))}, "'label'.*class 9.*cow"),
        ({"x": Array("float32", (3, 2))}, r"'x'.*\(2, 3\).*\(3, 2\)"),
        ({"y": Text()}, "'y' is not in the cache"),
    ):
        with pytest.raises(SchemaMismatch, match=told):
            validate_cache(tmp_path / "out", features | other)
    with pytest.raises(SchemaMismatch, match="only in the cache"):
        validate_cache(tmp_path / "out", {"x": features["x"], "label": features["label"]})
    with pytest.raises(SchemaMismatch, match="order"):
        validate_cache(tmp_path / "out", dict(reversed(features.items())))


def test_validation_looks_at_every_file(tmp_path: Path) -> None:
    features: dict[str, Feature] = {"n": Value("int64"), "v": Video("path")}
    rows = [{"n": i, "v": bytes([i]) * 100} for i in range(4)]
    meta = write_cache(rows, features, tmp_path / "out", batch_size=2, shard_size=1)
    [first, second] = map(Path, meta.shard_paths)
    good = second.read_bytes()
    second.write_bytes(first.read_bytes())
    validate_cache(tmp_path / "out", features)
    other = write_cache(rows[:1], features, tmp_path / "other")
    second.write_bytes(Path(other.shard_paths[0]).read_bytes())
    with pytest.raises(SidecarMismatch, match=r"shard-00001\.arrow.*expected 2, found 1"):
        validate_cache(tmp_path / "out", features)
    wrong = write_cache(numbers(2), NUMBERS, tmp_path / "wrong")
    second.write_bytes(Path(wrong.shard_paths[0]).read_bytes())
    with pytest.raises(SidecarMismatch, match=r"shard-00001\.arrow.*other columns"):
        validate_cache(tmp_path / "out", features)
    second.unlink()
    with pytest.raises(NotFound, match=r"shard-00001\.arrow"):
        validate_cache(tmp_path / "out", features)
    second.write_bytes(good)
    asset = next((tmp_path / "out" / "_assets" / "video").iterdir())
    asset.unlink()
    with pytest.raises(SidecarMismatch, match=asset.name):
        validate_cache(tmp_path / "out", features)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"lading": {"features": [["n"]]}}, "not a description"),
        ({"num_shards": 2}, "num_shards"),
        ({"num_shards": True}, "num_shards"),
        ({"shard_filenames": ["a/b"]}, "shard_filenames"),
        ({"shard_row_counts": [True]}, "shard_row_counts"),
        ({"num_rows": 4}, "num_rows"),
        ({"format": "lance"}, "format"),
        ({"cache_format_version": {}}, "cache_format_version"),
        ({"cache_format_version": True}, "cache_format_version"),
        ({"schema_fingerprint": 5}, "schema_fingerprint"),
    ],
)
def test_metadata_that_contradict_themselves(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    write_cache(numbers(3), NUMBERS, tmp_path / "out")
    path = tmp_path / "out" / "_metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(LadingError, match=rf"_metadata\.json.*{told}"):
        read_cache_meta(tmp_path / "out")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"cache_format_version": 1}'])
def test_metadata_that_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "_metadata.json").write_text(text)
    with pytest.raises(LadingError, match=r"_metadata\.json"):
        read_cache_meta(tmp_path)


def test_an_older_cache_of_the_peer_is_read(tmp_path: Path) -> None:
    """Without format and layout, bytes as `binary`."""
    meta = write_cache([{"image": b"x"}], {"image": Image()}, tmp_path / "out")
    schema = pa.schema([pa.field("image", pa.binary())])
    with pa.OSFile(meta.shard_paths[0], "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(pa.table({"image": pa.array([b"x"], pa.binary())}))
    path = tmp_path / "out" / "_metadata.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in told.items() if k not in ("format", "layout", "lading")}))
    assert validate_cache(tmp_path / "out", {"image": Image()}).features is None


def test_a_damaged_shard_is_data_or_an_error_of_ours(tmp_path: Path) -> None:
    meta = write_cache(({"t": f"text {i}"} for i in range(100)), {"t": Text()}, tmp_path / "out")
    path = Path(meta.shard_paths[0])
    good = path.read_bytes()
    chance = random.Random(7)
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(3):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        path.write_bytes(bad[: chance.randrange(len(bad))] if chance.random() < 0.2 else bad)
        with suppress(CorruptShard):
            read_shard(path).to_pylist()


@pytest.mark.soak
def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    features: dict[str, Feature] = {"image": Image(), "x": Array("float32", (4,)), "name": Text(), "v": Video("path")}
    chance = np.random.default_rng(7)
    images = [chance.integers(0, 256, (chance.integers(2, 60), 40, 3), np.uint8) for _ in range(70)]
    rows = [{"image": im, "x": im[0, :4, 0], "name": f"n{i}", "v": bytes(im[0])} for i, im in enumerate(images)]
    made = {}
    for workers in (1, 2, 7):
        options = {"batch_size": 16, "batch_bytes": "20kb", "shard_size": "60kb"}
        meta = write_cache(enumerate(rows), features, tmp_path / str(workers), workers=workers, **options)
        made[workers] = [Path(path).read_bytes() for path in meta.shard_paths]
        assert [row["name"] for row in rows_of(meta)] == [row["name"] for row in rows]
    assert len(made[1]) > 2
    assert made[1] == made[2] == made[7]


@pytest.mark.parametrize("other", [bytearray, lambda text: memoryview(text).cast("H")])
def test_texts_given_as_bytes_end_their_batches_alike_with_any_number_of_workers(
    other: Callable[[bytes], Any], tmp_path: Path
) -> None:
    """They have more bytes than letters, wherever the chunk begins in which some were found that may change."""
    features: dict[str, Feature] = {"text": Text(), "x": Array("int8", (1,))}
    text = "é" * 6
    made = {}
    for workers in (1, 2, 3):
        rows = ({"text": (other if i == 30 else bytes)(text.encode()), "x": [1]} for i in range(60))
        meta = write_cache(rows, features, tmp_path / str(workers), batch_bytes=100, workers=workers)
        assert [row["text"] for row in rows_of(meta)] == [text] * 60
        made[workers] = [len(batch) for path in meta.shard_paths for batch in read_shard(path).to_batches()]
    assert made[1] == made[2] == made[3]


@pytest.mark.parametrize("batch_bytes", [33, 64, 100, 200])
def test_rows_of_nulls_end_their_batches_alike_with_any_number_of_workers(tmp_path: Path, batch_bytes: int) -> None:
    """Rows are taken in other chunks then, and a null weighs the same wherever a chunk ends."""
    features: dict[str, Feature] = {"image": Image(), "x": Array("float32", (None, 2)), "json": Json()}
    rows = [dict.fromkeys(features) for _ in range(9)]
    rows[2]["x"] = np.arange(8, dtype="float32").reshape(4, 2)
    made = {}
    for workers in (1, 2, 3):
        options = {"batch_size": 7, "batch_bytes": batch_bytes, "workers": workers}
        meta = write_cache(rows, features, tmp_path / str(workers), **options)
        made[workers] = [len(batch) for path in meta.shard_paths for batch in read_shard(path).to_batches()]
    assert made[1] == made[2] == made[3]


@pytest.mark.parametrize("workers", [1, 4])
def test_the_first_bad_row_is_told_with_any_number_of_workers(workers: int, tmp_path: Path) -> None:
    rows = [(f"k{i}", {"image": np.zeros((8, 8), np.uint8) if i not in (40, 41, 55) else 7}) for i in range(60)]
    with pytest.raises(Unrepresentable, match=r"row 40 sample 'k40' column 'image'"):
        write_cache(rows, {"image": Image()}, tmp_path / "out", workers=workers)
    assert names(tmp_path) == ["out.lock"]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_generator_may_use_its_objects_again(workers: int, tmp_path: Path) -> None:
    """One dict, one array, one list, one buffer for all rows; images that are closed when it goes on."""
    row: dict[str, Any] = {}
    array, tags, buffer = np.zeros(4, np.float32), [""], bytearray(4)
    number, text, series, items = np.zeros((), np.int64), bytearray(4), plain.array("f", bytes(16)), [b""]
    features: dict[str, Feature] = {
        "n": Value("int64"), "x": Array("float32", (4,)), "tags": Sequence(Text()), "raw": Bytes(), "video": Video(),
        "binary": Value("binary"), "json": Json(), "image": Image(), "drawn": Image(), "seen": Image(),
        "number": Value("int64"), "label": ClassLabel(tuple(map(str, range(50)))), "text": Text(),
        "series": Array("float32", (4,)), "items": Sequence(Image()),
    }  # fmt: skip

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        drawn = np.zeros((2, 2), np.uint8)
        for i in range(50):
            array[:], tags[0], buffer[:], drawn[:] = i, f"tag {i}", bytes([i]) * 4, i
            path = tmp_path / f"{i}.bmp"
            Pillow.fromarray(drawn).save(path)
            row.update(n=i, x=array, tags=tags, raw=buffer, video={"bytes": buffer}, binary=buffer, json={"tags": tags})
            number[...], text[:], series[:], items[0] = i, b"%04d" % i, plain.array("f", [i] * 4), b"%04d" % i
            row.update(number=number, label=number, text=text, series=series, items=iter(items))
            with Pillow.open(path) as image, Pillow.open(path) as seen:
                seen.load()
                seen.putpixel((0, 0), 255)
                yield i, row | {"image": image, "drawn": drawn, "seen": seen}
                seen.paste(7, (0, 0, 2, 2))
            path.unlink()

    found = rows_of(write_cache(rows(), features, tmp_path / "out", workers=workers))
    for i, row in enumerate(found):
        raw = bytes([i]) * 4
        assert (row["n"], row["tags"], row["raw"], row["binary"]) == (i, [f"tag {i}"], raw, raw)
        assert (row["video"]["bytes"], json.loads(row["json"])) == (raw, {"tags": [f"tag {i}"]})
        assert np.frombuffer(row["x"], "<f4").tolist() == np.frombuffer(row["series"], "<f4").tolist() == [i] * 4
        assert (row["number"], row["label"], row["text"], row["items"]) == (i, i, f"{i:04d}", [b"%04d" % i])
        images = [Pillow.open(io.BytesIO(row[name])) for name in ("image", "drawn", "seen")]
        assert [image.format for image in images] == ["BMP", "PNG", "BMP"]
        assert [image.tobytes() for image in images] == [raw, raw, b"\xff" + raw[1:]]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "dtype, shape, make",
    [
        ("uint8", (4,), lambda i: bytearray([i]) * 4),
        ("uint8", (4,), lambda i: memoryview(bytearray([i]) * 4)),
        ("float32", (4,), lambda i: memoryview(np.full(4, i, "f4"))),
        ("float32", (2, 2), lambda i: memoryview(np.full((2, 2), i, "f4"))),
        ("int16", (4,), lambda i: memoryview(np.full(4, i, ">i2"))),
        ("bool", (4,), lambda i: memoryview(np.full(4, i > 0, "?"))),
    ],
)
def test_buffers_are_the_arrays_that_numpy_makes_of_them(
    workers: int, dtype: str, shape: tuple[int, ...], make: Callable[[int], Any], tmp_path: Path
) -> None:
    features: dict[str, Feature] = {"x": Array(dtype, shape), "any": Array()}
    rows = ({"x": make(i), "any": make(i)} for i in range(3))
    with lading.open(write_cache(rows, features, tmp_path / "out", workers=workers).cache_dir) as dataset:
        for i, row in enumerate(dataset):
            assert (row["x"].dtype, row["x"].tolist()) == (dtype, np.full(shape, i, dtype).tolist())
            assert (row["any"].dtype, row["any"].tolist()) == (np.asarray(make(i)).dtype, row["x"].tolist())


@pytest.mark.parametrize("workers", [1, 3])
def test_an_object_that_may_have_changed_is_refused_where_it_comes_late(workers: int, tmp_path: Path) -> None:
    def rows(*, anew: bool) -> Iterator[dict[str, Any]]:
        yield from ({"n": i, "x": [0.0]} for i in range(200))
        number = np.zeros((), np.int64)
        for i in range(200, 400):
            number = np.zeros((), np.int64) if anew else number
            number[...] = i
            yield {"n": number, "x": [0.0]}

    features: dict[str, Feature] = {"n": Value("int64"), "x": Array("float32", (1,))}
    meta = write_cache(rows(anew=True), features, tmp_path / "out", workers=workers)
    assert [row["n"] for row in rows_of(meta)] == [*range(400)]
    with pytest.raises(Unrepresentable, match=r"row 20\d column 'n': an object that stood for an earlier row too"):
        write_cache(rows(anew=False), features, tmp_path / "out", workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_image_that_was_closed_is_refused_with_its_place(workers: int, tmp_path: Path) -> None:
    Pillow.new("RGB", (9, 9)).save(tmp_path / "a.png")
    with Pillow.open(tmp_path / "a.png") as left:
        pass
    closed = Pillow.open(tmp_path / "a.png")
    closed.close()
    for image in (left, closed):
        with pytest.raises(Unrepresentable, match=r"row 1 column 'x': this image cannot be encoded"):
            write_cache([{"x": b""}, {"x": image}], {"x": Image()}, tmp_path / "out", workers=workers)


def test_a_generator_may_use_one_dict_for_all_rows(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, int]]:
        row = {}
        for i in range(3000):
            row["n"] = i
            yield row

    assert rows_of(write_cache(rows(), NUMBERS, tmp_path / "out")) == list(numbers(3000))


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 3])
def test_few_rows_are_held_at_once(workers: int, tmp_path: Path) -> None:
    """Rows of 1 MB: the generator is a few batches ahead of the shards, never a thousand rows."""
    written: list[int] = []
    held: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        for i in range(120):
            parts = list(tmp_path.glob(".out*/.shard*"))
            written.append(sum(path.stat().st_size for path in parts))
            held.append((i << 20) - written[-1])
            yield {"image": bytearray(1 << 20)}

    meta = write_cache(rows(), {"image": Image()}, tmp_path / "out", workers=workers)
    assert meta.num_rows == 120
    assert max(held) <= (16 + 8 * workers) << 20
    assert max(batch_rows(meta.shard_paths[0])) <= 4


def test_a_sudden_jump_in_size_is_met_by_few_rows(tmp_path: Path) -> None:
    ahead = [0]

    def rows() -> Iterator[dict[str, str]]:
        for i in range(2000):
            if i >= 1000:
                parts = sum(path.stat().st_size for path in tmp_path.glob(".out*/.shard*"))
                ahead.append((i - 1000) * 100_000 - parts)
            yield {"t": "x" * (100_000 if i >= 1000 else 10)}

    write_cache(rows(), {"t": Text()}, tmp_path / "out")
    assert max(ahead) < 32 << 20


_EIGHT = """
import os, sys, time
from lading.caches import write_cache
from lading._core.features.types import Value

def rows():
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    time.sleep(1)
    yield from ({"n": i} for i in range(100))

waits, starts = os.pipe()
callers = []
for _ in range(8):
    callers.append(os.fork())
    if not callers[-1]:
        os.read(waits, 1)
        assert write_cache(rows(), {"n": Value("int64")}, sys.argv[1]).num_rows == 100
        os._exit(0)
os.write(starts, b"x" * 8)
print([os.waitpid(caller, 0)[1] for caller in callers])
"""


@pytest.mark.mechanism("builders of one cache at once")
def test_of_eight_callers_at_once_one_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _EIGHT, str(tmp_path / "out"), str(tmp_path / "log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [0] * 8
    assert (tmp_path / "log").read_text() == "built\n"


def test_whoever_waited_for_other_features_builds_its_own(tmp_path: Path) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow() -> Iterator[dict[str, int]]:
        begun.set()
        go.wait()
        yield {"n": 1}

    first = threading.Thread(target=write_cache, args=(slow(), NUMBERS, tmp_path / "out"))
    first.start()
    begun.wait()
    second = threading.Thread(target=write_cache, args=(iter([{"t": "x"}]), {"t": Text()}, tmp_path / "out"))
    second.start()
    sleep(0.2)
    go.set()
    first.join()
    second.join()
    assert rows_of(read_cache_meta(tmp_path / "out")) == [{"t": "x"}]


def test_the_files_of_videos_are_looked_for_inside_too_and_under_no_null(tmp_path: Path) -> None:
    features: dict[str, Feature] = {
        "v": Video("path"), "l": Sequence(Video("path")), "s": Struct((("n", Value("int64")), ("w", Video("path")))),
    }  # fmt: skip
    built = []

    def rows() -> Iterator[dict[str, Any]]:
        built.append(1)
        yield {"v": None, "l": None, "s": None}
        yield {"v": b"one", "l": [b"two", None], "s": {"n": 1, "w": b"three"}}

    for _ in range(2):
        write_cache(rows(), features, tmp_path / "out", reuse=True)
    assert len(built) == 1
    for content, column in ((b"three", "s"), (b"two", "l"), (b"one", "v")):
        [path] = [path for path in (tmp_path / "out/_assets/video").iterdir() if path.read_bytes() == content]
        path.unlink()
        with pytest.raises(SidecarMismatch, match=f"column '{column}': the file of a video is not there"):
            validate_cache(tmp_path / "out", features)
        path.write_bytes(content)
    with pytest.raises(UsageError, match="column 'l': files of videos inside lists and structs are not read"):
        lading.open(tmp_path / "out", options={"load_assets": True})


_VIDEO_TYPE = pa.struct([
    (name, {"bytes": pa.large_binary(), "size": pa.int64()}.get(name, pa.string())) for name in VIDEO_FIELDS
])  # fmt: skip
_BARE = {**dict.fromkeys(VIDEO_FIELDS), "mode": "path", "path": "../../x"}
_FILM = {
    "mode": "bytes", "path": None, "bytes": b"film", "extension": ".mp4", "media_type": "video/mp4", "size": 4,
    "checksum": hashlib.sha256(b"film").hexdigest().upper(),
}  # fmt: skip
_PAIR = Array("float32", (2,))


@pytest.mark.parametrize(
    "feature, kind, good, bad",
    [
        (Json(), pa.string(), '{"a": 1}', "not json"),
        (Array("float32", ()), pa.large_binary(), bytes(4), b"abc"),
        (Array("float32", (None, 2)), pa.large_binary(), bytes(16), bytes(12)),
        (Array("float32", (0, 2)), pa.large_binary(), b"", b"a"),
        (Array(), pa.large_binary(), npy_bytes(np.eye(2)), b"abc"),
        (Sequence(_PAIR), pa.list_(pa.large_binary()), [bytes(8), None], [b"abc"]),
        (Struct((("a", _PAIR),)), pa.struct([("a", pa.large_binary())]), {"a": bytes(8)}, {"a": b"abc"}),
        (Video(), _VIDEO_TYPE, {**_BARE, "mode": "bytes", "path": None, "bytes": b"x"}, _BARE),
        (Video("path"), _VIDEO_TYPE, None, _BARE),
        (Video("path"), _VIDEO_TYPE, _FILM, _FILM | {"bytes": None}),
        (Video(), _VIDEO_TYPE, _FILM | {"checksum": "of another kind"}, _FILM | {"size": 5}),
        (Video(), _VIDEO_TYPE, _FILM, _FILM | {"mode": "path"}),
        (Video(), _VIDEO_TYPE, _FILM, dict.fromkeys(VIDEO_FIELDS)),
        (Sequence(Video()), pa.list_(_VIDEO_TYPE), [_FILM, None], [None, _FILM | {"bytes": b"ExternalVideo"}]),
    ],
)
def test_values_of_tables_are_those_of_their_features(
    feature: Feature, kind: pa.DataType, good: Any, bad: Any, tmp_path: Path
) -> None:
    first = pa.table({"x": pa.array([good, None], kind)})
    validate_cache(write_cache([first], {"x": feature}, tmp_path / "out").cache_dir, {"x": feature})
    with lading.open(tmp_path / "out") as dataset:
        assert len([*dataset]) == 2
    with pytest.raises(Unrepresentable, match=r"row 2 column 'x'"):
        write_cache([first, pa.table({"x": pa.array([bad], kind)})], {"x": feature}, tmp_path / "out")


@pytest.mark.cases(3)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "feature, kind, good, bad",
    [
        (ClassLabel(("x", "y")), pa.string(), "y", "q"),
        (ClassLabel(("x", "y")), pa.dictionary(pa.int8(), pa.string()), "y", "q"),
        (Json(), pa.string(), "{}", "{"),
        (Value("int8"), pa.int64(), 1, 1000),
        (Value("float32"), pa.float64(), 1.5, 1e300),
        (Sequence(Value("float16")), pa.list_(pa.int64()), [1, 2], [1, 2049]),
        (_PAIR, pa.binary(), bytes(8), b"abc"),
        (Array(), pa.binary(), npy_bytes(np.eye(2)), b"abc"),
        (Video(), _VIDEO_TYPE, {**_BARE, "mode": "bytes", "path": None, "bytes": b"x"}, _BARE),
    ],
)
def test_of_tables_the_row_that_is_wrong_is_told(
    feature: Feature, kind: pa.DataType, good: Any, bad: Any, whole: bool, tmp_path: Path
) -> None:
    for row in (0, 13, 36):
        values = [good] * 37
        values[row] = values[36] = bad
        rows = pa.table({"x": pa.chunked_array([pa.array(values[at : at + 10], kind) for at in range(0, 37, 10)])})
        items = [rows.slice(0, row), rows] if whole else rows.to_batches()
        told = 2 * row if whole else row
        with pytest.raises(Unrepresentable, match=rf"^row {told} column 'x'"):
            write_cache(items, {"x": feature}, tmp_path / "out")


def test_what_is_wrong_with_all_rows_of_a_table_is_told_of_the_first(tmp_path: Path) -> None:
    good = pa.table({"n": [1, 2, 3]})
    with pytest.raises(Unrepresentable, match=r"^row 3 column 'n': a column of another type"):
        write_cache([good, pa.table({"n": ["1", "2"]})], NUMBERS, tmp_path / "out")
    with pytest.raises(SchemaMismatch, match=r"^row 3 column 'n': a row without a column"):
        write_cache([good, pa.table({"m": [1, 2]})], NUMBERS, tmp_path / "out")


@pytest.mark.parametrize(
    "feature, column",
    [
        (Sequence(Sequence(Value("int64"))), pa.array([[[]], None])),
        (Sequence(Sequence(Value("int64"))), pa.array([[[None]]])),
        (Struct((("a", Value("int8")),)), pa.array([{"a": None}, {"a": None}])),
        (Struct((("a", Value("int8")),)), pa.array([{"a": 1}, None])),
        (Text(), pa.array(["b", None], pa.string_view())),
    ],
)
def test_columns_that_say_less_than_their_feature_are_taken(feature: Feature, column: pa.Array, tmp_path: Path) -> None:
    meta = write_cache([pa.table({"x": column})], {"x": feature}, tmp_path / "out")
    assert [row["x"] for row in rows_of(meta)] == column.to_pylist()


@pytest.mark.parametrize(
    "feature, values",
    [
        (Sequence(Value("int64")), pa.array([[1, 2], [], None])),
        (Sequence(Value("int64")), pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8(), 2))),
        (Sequence(Text()), pa.array([["a", None], [], None], pa.list_(pa.string_view()))),
        (Struct((("a", Value("int8")),)), pa.array([{"a": 1}, {"a": 2}, None])),
        (Struct((("a", Text()),)), pa.array([{"a": "x"}, {"a": "y"}, None], pa.struct([("a", pa.string_view())]))),
        (Text(), pa.array(["a", "b", None], pa.string_view())),
        (Bytes(), pa.array([b"a", b"b", None], pa.binary_view())),
        (Text(), pa.array(["a", "b", None])),
        (Value("int8"), pa.array([1, 2, None])),
    ],
)
def test_dictionaries_of_tables_may_be_of_anything(feature: Feature, values: pa.Array, tmp_path: Path) -> None:
    indices = pa.array([0, None, 1, 0, 2], pa.int8())
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(part, values) for part in (indices[:1], indices[1:])])
    table = pa.table({"x": column})
    expected = [None if at is None else values[at].as_py() for at in indices.to_pylist()]
    for items in ([table], [table.slice(0, 0), *table.to_batches()]):
        meta = write_cache(items, {"x": feature}, tmp_path / "out")
        assert [row["x"] for row in rows_of(meta)] == expected


@pytest.mark.parametrize("feature", [Text(), Value("int8"), ClassLabel(("a",)), Image()])
def test_a_dictionary_of_what_is_not_of_the_column_is_refused(feature: Feature, tmp_path: Path) -> None:
    maps = pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))
    for values in (maps, pa.array([["a"], []])):
        table = pa.table({"x": pa.DictionaryArray.from_arrays(pa.array([0, 1]), values)})
        with pytest.raises(Unrepresentable, match="column 'x': a column of another type"):
            write_cache([table], {"x": feature}, tmp_path / "out")


def test_values_of_a_dictionary_that_no_row_has_do_not_matter(tmp_path: Path) -> None:
    table = pa.table({"n": pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([1, 1000]))})
    assert rows_of(write_cache([table], {"n": Value("int8")}, tmp_path / "out")) == [{"n": 1}] * 2


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_labels_of_tables_may_be_names(kind: pa.DataType, tmp_path: Path) -> None:
    labels = ClassLabel(("a", "b"))
    meta = write_cache([pa.table({"x": pa.array(["b", None, "a"], kind)})], {"x": labels}, tmp_path / "out")
    assert [row["x"] for row in rows_of(meta)] == [1, None, 0]


@pytest.mark.parametrize(
    "told",
    [
        {"lineage": {"a": float("nan")}}, {"lineage": {"a": "\ud800"}}, {"batch_size": 1.5}, {"workers": "4"},
        {"batch_bytes": None}, {"shard_size": 1.5}, {"generator": None}, {"generator": 5}, {"cache_dir": None},
        {"features": {"x": 5}}, {"features": {"x": Array("uint8", (10**30,))}}, {"features": None},
    ],
)  # fmt: skip
def test_what_is_no_argument_is_a_usage_error(told: dict[str, Any], tmp_path: Path) -> None:
    given = {"generator": [{"x": 1}], "features": {"x": Value("int64")}, "cache_dir": tmp_path / "out", **told}
    with pytest.raises(UsageError):
        write_cache(**given)
    assert not (tmp_path / "out").exists()


def test_a_cache_that_told_another_name_of_a_dtype_is_of_its_features(tmp_path: Path) -> None:
    features: dict[str, Feature] = {"x": Array("float32", (2,))}
    write_cache([{"x": [1, 2]}], features, tmp_path / "out")
    path = tmp_path / "out" / "_metadata.json"
    told = json.loads(path.read_text())
    told["lading"]["features"][0][1]["dtype"], told["schema_fingerprint"] = "f4", "0" * 16
    path.write_text(json.dumps(told))
    assert validate_cache(tmp_path / "out", features).features == features


def test_a_cache_without_rows_has_its_columns_and_keeps_them(tmp_path: Path) -> None:
    features: dict[str, Feature] = {"n": Value("int8"), "label": ClassLabel(("a", "b")), "x": Array("float32", (2,))}
    meta = write_cache([], features, tmp_path / "out")
    lading.convert(tmp_path / "out", tmp_path / "new", format="parquet", verify=True)
    for folder in ("out", "new"):
        with lading.open(tmp_path / folder) as dataset:
            assert dataset.schema.names == [*features]
            assert [feature_of(field) for field in dataset.schema] == [*features.values()]
    path = tmp_path / "out" / "_metadata.json"
    told = json.loads(path.read_text())
    for broken in ([], 7, [["n", {"kind": "value", "dtype": "no such"}]]):
        path.write_text(json.dumps({**told, "lading": {"features": broken}}))
        with (
            lading.open(meta.cache_dir) as dataset,
            pytest.raises(DataError, match=r"_metadata\.json column '(lading|n)'"),
        ):
            _ = dataset.schema


def test_a_finished_cache_may_be_reused(tmp_path: Path) -> None:
    write_cache(numbers(3), NUMBERS, tmp_path / "out")
    assert write_cache(numbers(5), NUMBERS, tmp_path / "out", reuse=True).num_rows == 3
    assert write_cache(numbers(5), NUMBERS, tmp_path / "out").num_rows == 5
    assert write_cache([{"t": "x"}], {"t": Text()}, tmp_path / "out", reuse=True).num_rows == 1
    Path(tmp_path / "out" / "shard-00000.arrow").unlink()
    assert write_cache(numbers(4), NUMBERS, tmp_path / "out", reuse=True).num_rows == 4


_POLL = """
import os, sys
import lading
from lading.caches import read_cache_meta, validate_cache
from lading._core.features.types import Value
folder, seen = sys.argv[1], set()
print("ready", flush=True)
while not os.path.exists(folder + ".stop"):
    os.stat(folder + "/_metadata.json")
    os.stat(folder + "/shard-00000.arrow")
    seen.add(read_cache_meta(folder).num_rows)
    meta = validate_cache(folder, {"n": Value("int64")})
    seen.add(meta.num_rows)
    with lading.open(folder) as dataset:
        assert [row["n"] for row in dataset] == list(range(len(dataset)))
    with lading.open(folder) as dataset:
        assert dataset[len(dataset) - 1] == {"n": len(dataset) - 1}
    if len(seen) > 20:
        open(folder + ".enough", "w").close()
"""


@pytest.mark.soak
def test_a_reader_always_finds_the_old_cache_or_the_new(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_cache(numbers(1), NUMBERS, folder)
    reader = subprocess.Popen([sys.executable, "-c", _POLL, str(folder)], stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    reader.stdout.readline()
    counts = count(2)
    while not (tmp_path / "out.enough").exists() and reader.poll() is None:
        rows = next(counts)
        write_cache(numbers(rows), NUMBERS, folder, batch_size=80, shard_size=(1 if rows % 2 else None))
    (tmp_path / "out.stop").touch()
    reader.communicate()
    assert reader.returncode == 0


_KILL = """
import os, random, signal, sys, time
from lading.caches import read_shard, validate_cache, write_cache
from lading._core.features.types import Value

folder, features, chance, counts = sys.argv[1], {"n": Value("int64")}, random.Random(7), set()

def build(rows):
    begun = time.monotonic()
    write_cache(({"n": i} for i in range(rows)), features, folder, batch_size=50, shard_size=2000)
    return time.monotonic() - begun

took = min(build(200) for _ in range(3))  # what is done once, at the first, takes as long as ten
for _ in range(50):
    finished, tell = os.pipe()
    builder = os.fork()
    if not builder:
        rows = 200
        while True:
            rows += 1
            build(rows)
            os.write(tell, b".")
    for _ in range(chance.randrange(3)):
        os.read(finished, 1)
    time.sleep(chance.uniform(0, took))
    os.kill(builder, signal.SIGKILL)
    os.waitpid(builder, 0)
    os.close(finished)
    os.close(tell)
    meta = validate_cache(folder, features)
    found = [n for path in meta.shard_paths for n in read_shard(path)["n"].to_pylist()]
    assert found == list(range(meta.num_rows))
    counts.add(meta.num_rows)
print(len(counts))
"""


@pytest.mark.mechanism("a builder of a cache that is killed")
def test_killed_at_any_moment_the_old_cache_or_the_new_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_cache(numbers(10), NUMBERS, folder)
    done = subprocess.run([sys.executable, "-c", _KILL, str(folder)], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 1
    write_cache(numbers(10), NUMBERS, folder)
    assert names(tmp_path) == ["out", "out.lock"]


@pytest.mark.soak
def test_a_shard_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "zeros.arrow"
    batch = pa.record_batch({"b": [bytes(1 << 20)]})
    with pa.ipc.new_file(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(300):
            writer.write_batch(batch)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(LimitExceeded, match=r"zeros.arrow: a compressed shard.*limits=Limits\(arrow_batch_bytes="):
        read_shard(path)
    assert read_shard(path, limits=Limits(arrow_batch_bytes=1 << 30)).nbytes > 300 << 20


_ORPHAN = """
import os, signal, sys, time
from lading.caches import write_cache
from lading._core.features.types import Value

def rows():
    yield {"n": 1}
    if not os.fork():
        time.sleep(60)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)

write_cache(rows(), {"n": Value("int64")}, sys.argv[1])
"""


def test_a_generator_does_not_build_its_own_cache(tmp_path: Path) -> None:
    """By whatever name; a cache of another place it may build."""
    (tmp_path / "link").symlink_to(tmp_path)

    def rows(inner: Path) -> Iterator[dict[str, int]]:
        write_cache([{"x": 1}], {"x": Value("int64")}, inner)
        yield {"x": 2}

    with pytest.raises(UsageError, match="built from itself"):
        write_cache(rows(tmp_path / "link" / "out"), {"x": Value("int64")}, tmp_path / "out")
    assert names(tmp_path) == ["link", "out.lock"]
    write_cache(rows(tmp_path / "inner"), {"x": Value("int64")}, tmp_path / "out")
    assert names(tmp_path) == ["inner", "inner.lock", "link", "out", "out.lock"]


@pytest.mark.soak
def test_children_of_a_builder_that_died_do_not_hold_its_lock(tmp_path: Path) -> None:
    """Such as the workers of a pool in which its generator works."""
    with subprocess.Popen([sys.executable, "-c", _ORPHAN, str(tmp_path / "out")], start_new_session=True) as builder:
        builder.wait()
        begun = monotonic()
        try:
            write_cache(numbers(3), NUMBERS, tmp_path / "out")
            waited = monotonic() - begun
        finally:
            os.killpg(builder.pid, signal.SIGKILL)
    assert waited < 30


def test_batches_may_lie_in_memory_that_is_used_again(tmp_path: Path) -> None:
    """Batches that are large enough to be written in a thread, over one array."""
    numbers = np.zeros(400_000, np.int64)

    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(8):
            numbers[:] = i
            yield pa.record_batch(
                [pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])], ["n"]
            )

    meta = write_cache(batches(), NUMBERS, tmp_path / "out", batch_size=200_000)
    found = read_shard(meta.shard_paths[0])
    assert found.column("n").num_chunks == 16
    assert (found.column("n").to_numpy() == np.repeat(np.arange(8), len(numbers))).all()


@pytest.mark.soak
@pytest.mark.parametrize("size", [8, 3 << 20], ids=["at once", "in a thread"])
def test_a_full_disk_leaves_the_old_cache(size: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_cache(numbers(10), NUMBERS, folder)
    code = f"""
import resource, signal
from lading.caches import write_cache
from lading.errors import StoreError
from lading._core.features.types import Bytes
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_cache(({{"n": bytes({size})}} for i in range(50_000)), {{"n": Bytes()}}, {str(folder)!r})
except StoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "shard-00000.arrow" in done.stdout
    assert done.stderr == ""
    assert validate_cache(folder, NUMBERS).num_rows == 10
    assert names(tmp_path) == ["out", "out.lock"]


def test_where_folders_cannot_be_exchanged_it_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(numbers(10), NUMBERS, tmp_path / "out")
    monkeypatch.setattr("lading._core.storage.exchange._LINUX_EXCHANGE", 1 << 20)  # a flag that no kernel knows
    rows = numbers(3)
    with pytest.raises(StoreError, match=r"out: this file system cannot exchange"):
        write_cache(rows, NUMBERS, tmp_path / "out")
    assert next(rows) == {"n": 0}
    assert names(tmp_path) == ["out", "out.lock"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError):
        write_cache(numbers(1), NUMBERS, tmp_path / "file" / "out")


@pytest.mark.parametrize("names", [["a", "a"], ["a", "b"]])
def test_a_shard_with_two_fields_of_one_name_is_refused(names: list[str], tmp_path: Path) -> None:
    number = pa.array([1])
    inside = pa.StructArray.from_arrays([number, number], ["x", "x"])
    columns = [number, number if names == ["a", "a"] else inside]
    batch = pa.RecordBatch.from_arrays(columns, names)
    with pa.ipc.new_file(tmp_path / "twins.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(DuplicateField, match=r"twins\.arrow"):
        read_shard(tmp_path / "twins.arrow")


def test_a_function_is_not_what_it_returns(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nothing to take rows from.*Call it"):
        write_cache(lambda: [{"n": 1}], {"n": Value("int64")}, tmp_path / "cache")  # type: ignore[arg-type]  # the fault


@pytest.mark.soak
def test_an_open_dataset_never_gives_rows_of_two_caches(tmp_path: Path) -> None:
    def build(first: int) -> None:
        write_cache(numbers(170, first), NUMBERS, tmp_path / "c", batch_size=10, shard_size=1)

    for rebuilds in (1, 2, 3):  # the number of a folder comes back
        build(0)
        with lading.open(tmp_path / "c") as streamed, lading.open(tmp_path / "c") as picked:
            rows = iter(streamed)
            got = [next(rows)["n"]]
            assert picked[0] == {"n": 0}
            for _ in range(rebuilds):
                build(1000)
            with pytest.raises(DatasetReplaced, match=r"another dataset took the place.*Open it again"):
                got.extend(row["n"] for row in rows)
            assert got == list(range(10))
            with pytest.raises(DatasetReplaced, match="another dataset took the place"):
                picked.take([0, 15, 29])
            assert picked[1] == {"n": 1}


def test_a_shards_of_few_shards_is_the_cache_that_was_opened(tmp_path: Path) -> None:
    for shards in (1, 16):
        write_cache(numbers(10 * shards), NUMBERS, tmp_path / "c", batch_size=10, shard_size=1)
        with lading.open(tmp_path / "c") as streamed, lading.open(tmp_path / "c") as picked:
            write_cache(numbers(10, 1000), NUMBERS, tmp_path / "c")
            assert [row["n"] for row in streamed] == list(range(10 * shards))
            assert picked[10 * shards - 1] == {"n": 10 * shards - 1}
            with pytest.raises(DatasetReplaced):  # its shards were given up one after the other
                next(iter(streamed))
        with lading.open(tmp_path / "c") as again:
            assert len(again) == 10


@pytest.mark.parametrize("options", [{}, {"load_assets": True}])
def test_a_cache_read_with_other_options_is_the_one_that_was_opened(options: dict[str, bool], tmp_path: Path) -> None:
    """Who converts it asks for its films once it is open."""
    write_cache(numbers(30), NUMBERS, tmp_path / "c", batch_size=10, shard_size=1)
    with lading.open(tmp_path / "c") as dataset:
        dataset._rows.shards.read_with(options)
        write_cache(numbers(10, 1000), NUMBERS, tmp_path / "c")
        assert [row["n"] for row in dataset] == list(range(30))


@pytest.mark.soak
@pytest.mark.parametrize("shards", [1, 3, 20])
def test_a_cache_that_is_exchanged_while_it_is_opened(
    shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(numbers(100), NUMBERS, tmp_path / "c", batch_size=10, shard_size=1)
    rebuilds = iter([1])
    made = lading._core.dataset.source.open.shards_of

    def exchange_first(*args: Any, **how: Any) -> Shards:
        if (number := next(rebuilds, None)) is not None:
            write_cache(numbers(10 * shards, 1000 * number), NUMBERS, tmp_path / "c", batch_size=10, shard_size=1)
        return made(*args, **how)

    monkeypatch.setattr("lading._core.dataset.source.open.shards_of", exchange_first)
    with lading.open(tmp_path / "c") as dataset:
        assert len(dataset) == 10 * shards
        assert [row["n"] for row in dataset] == list(range(1000, 1000 + 10 * shards))
    rebuilds = iter(range(2, 9))
    with pytest.raises(DatasetReplaced, match="Open it again"):
        lading.open(tmp_path / "c")
    assert next(rebuilds) == 4  # it was looked at twice


class _Afterwards(WrappedStore):
    """Does something once a file was looked at, and before it is opened."""

    def __init__(self) -> None:
        super().__init__(LocalStore())
        self.then: list[Callable[[], object]] = []

    def head(self, path: str) -> FileInfo:
        found = super().head(path)
        while self.then:
            self.then.pop()()
        return found


@pytest.mark.parametrize("read", [lambda d: d[190], lambda d: d.take([190]), lambda d: list(d.batches())])
def test_a_shard_that_goes_with_its_cache_is_not_told_as_missing(
    read: Callable[[lading.Dataset], object], tmp_path: Path
) -> None:
    write_cache(numbers(200), NUMBERS, tmp_path / "c", batch_size=10, shard_size=1)
    store = _Afterwards()
    with lading.open(tmp_path / "c", stores=Stores({"": store})) as dataset:
        store.then.append(lambda: write_cache([], NUMBERS, tmp_path / "c"))
        with pytest.raises(DatasetReplaced, match=r"another dataset took the place.*Open it again"):
            read(dataset)


@pytest.mark.parametrize(
    "column, feature",
    [
        (pa.nulls(2), Sequence(Value("int64"))),
        (pa.array([[None], None]), Sequence(Sequence(Value("int64")))),
        (pa.array([{"a": None}, None]), Struct((("a", Sequence(Value("int64"))),))),
    ],
)
def test_columns_of_nulls_are_taken_for_anything(column: pa.Array, feature: Feature, tmp_path: Path) -> None:
    meta = write_cache(iter([pa.table({"x": column})]), {"x": feature}, tmp_path / "c")
    assert [row["x"] for row in rows_of(meta)] == column.to_pylist()


def test_arrays_of_tables_are_held_against_their_feature(tmp_path: Path) -> None:
    table = pa.table({"x": [npy_bytes(np.array([1.5]))]})
    with pytest.raises(Unrepresentable, match="another array"):
        write_cache(iter([table]), {"x": Array("int8")}, tmp_path / "c")
    with pytest.raises(Unrepresentable, match="another shape"):
        write_cache([{"x": np.ones(3)}], {"x": Array(None, (2, 2))}, tmp_path / "c")


def test_of_many_labels_the_one_that_differs_is_told(tmp_path: Path) -> None:
    labels = [f"label {number}" for number in range(10_000)]
    write_cache([{"x": 1}], {"x": ClassLabel(tuple(labels))}, tmp_path / "c")
    labels[77] = "another"
    with pytest.raises(SchemaMismatch, match="label 77 is 'label 77' there and 'another' here") as caught:
        validate_cache(tmp_path / "c", {"x": ClassLabel(tuple(labels))})
    assert len(str(caught.value)) < 2000


def test_what_is_returned_is_what_is_read(tmp_path: Path) -> None:
    meta = write_cache([{"x": "a"}], {"x": Value("string")}, tmp_path / "c", lineage={})
    assert meta == read_cache_meta(tmp_path / "c")


@pytest.mark.parametrize(
    "feature",
    [
        {"kind": "array", "dtype": "int8", "shape": [2**70]},
        {"kind": "array", "dtype": "O", "shape": [1]},
        {"kind": "value", "dtype": "nope"},
        {"kind": "place"},
    ],
)
def test_features_that_no_cache_has_are_damage(feature: dict[str, Any], tmp_path: Path) -> None:
    write_cache(numbers(3), NUMBERS, tmp_path / "c")
    path = tmp_path / "c" / "_metadata.json"
    told = json.loads(path.read_text())
    told["lading"]["features"][0][1] = feature
    path.write_text(json.dumps(told))
    for look in (read_cache_meta, lambda folder: validate_cache(folder, NUMBERS)):
        with pytest.raises(DataError, match=r"_metadata\.json column 'n'"):
            look(tmp_path / "c")
    assert not lading.verify(tmp_path / "c").ok
    assert write_cache(numbers(3), NUMBERS, tmp_path / "c", reuse=True).num_rows == 3  # built again
