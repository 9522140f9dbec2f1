"""Samples of items may come in several calls of `write_batch`; an id that returns later is an error."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.arrow.references import files_of, unpack
from lading._core.pipeline.seen_ids import SeenIds, long_hashes
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, SchemaMismatch, UsageError

FORMATS = ["webdataset", "parquet", "arrow", "mds", "media_archive"]
SCHEMA = pa.schema(
    [
        ("sample_id", pa.string()), ("position", pa.int32()), ("modality", pa.string()), ("content_type", pa.string()),
        ("text_content", pa.string()), ("binary_content", pa.large_binary()), ("lang", pa.string()),
    ]
)  # fmt: skip


def items(name: str, count: int, lang: str | None = "en") -> list[dict[str, Any]]:
    """The metadata row, then texts and images in turn."""
    rows: list[dict[str, Any]] = [{"sample_id": name, "position": -1, "modality": "metadata", "lang": lang}]
    for i in range(count):
        content: dict[str, Any] = {"modality": "text", "content_type": "text/plain", "text_content": f"{name} {i}"}
        if i % 2:
            content = {"modality": "image", "content_type": "image/jpeg", "binary_content": f"{name} {i}".encode()}
        rows.append({"sample_id": name, "position": i, **content})
    return rows


def table(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


ROWS = [row for name, count in {"a": 3, "b": 0, "c": 1, "d": 6}.items() for row in items(name, count)]


def write(place: Path, calls: list[pa.Table], **how: Any) -> None:
    with lading.writer(place, view="interleaved", **how) as writer:
        for rows in calls:
            writer.write_batch(rows)


def values(written: list[pa.Table | None]) -> list[Any]:
    """Where the written values are: file, offset and length of each."""
    found = []
    for part in written:
        if part is not None:
            for name in part.column_names:
                if pa.types.is_struct(getattr(part.schema.field(name).type, "storage_type", pa.null())):
                    refs, files = unpack(part.column(name)), files_of(part.schema)
                    urls = [files[file].url for file in refs.file.tolist()]
                    found += zip(urls, refs.offset.tolist(), refs.length.tolist(), strict=True)
    return found


@pytest.mark.parametrize("fmt", FORMATS)
def test_rows_may_be_cut_anywhere(fmt: str) -> None:
    stores = Stores({"box://": MemoryStore()})
    whole = table(ROWS)
    with lading.writer("box://one", format=fmt, view="interleaved", stores=stores) as writer:
        expected = [writer.write_batch(whole), writer.end_sample()]
    digest = lading.digest("box://one", stores=stores)
    for cuts in (range(1, len(ROWS)), [2], [3, 9, 11]):
        written = []
        with lading.writer("box://many", format=fmt, view="interleaved", stores=stores, overwrite=True) as writer:
            for first, stop in pairwise([0, *cuts, len(ROWS)]):
                written.append(writer.write_batch(whole.slice(first, stop - first)))
            written.append(writer.end_sample())
            assert writer.end_sample() is None
        places = [(url.replace("many", "one"), *place) for url, *place in values(written)]
        assert places == values(expected)
        with lading.open("box://many", stores=stores) as many:
            assert [d["sample_id"] for d in many] == ["a", "b", "c", "d"]
        assert lading.digest("box://many", stores=stores) == digest


def test_the_last_sample_of_a_call_is_returned_by_the_next(tmp_path: Path) -> None:
    """In tars: a member an image, and the JSON."""
    with lading.writer(tmp_path / "out", format="webdataset", view="interleaved") as writer:
        names = [writer.write_batch(table(items(name, 2))) for name in ("a", "b")]
        names.append(writer.end_sample())
    assert [None if part is None else part["name"].to_pylist() for part in names] == [
        None, ["a.1.jpg", "a.json"], ["b.1.jpg", "b.json"],
    ]  # fmt: skip


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("size", [1, "256MB"])
def test_an_id_that_returns_is_an_error(tmp_path: Path, fmt: str, size: int | str) -> None:
    """In the same call or in another one, in the same shard or in another one."""
    again = table(items("b", 1))
    for calls in ([table(ROWS), again], [table([*ROWS, *items("b", 1)])], [table([row]) for row in [*ROWS, *ROWS]]):
        with pytest.raises(DataError, match=r"sample ids are not contiguous.*duplicate_ids='apart'") as caught:
            write(tmp_path / "out", calls, format=fmt, shard_size=size)
        assert (caught.value.sample, caught.value.column) == ("a" if len(calls) > 2 else "b", "sample_id")
        assert caught.value.row == len(ROWS)
        assert not list(tmp_path.iterdir())


def test_a_sample_that_was_ended_takes_no_more_rows(tmp_path: Path) -> None:
    writer = lading.writer(tmp_path / "out", format="parquet", view="interleaved")
    writer.write_batch(table(items("a", 2)))
    writer.end_sample()
    with pytest.raises(DataError, match="'a'"):
        writer.write_batch(table(items("a", 2)))
    with pytest.raises(UsageError, match="finished"):
        writer.end_sample()


@pytest.mark.parametrize("fmt", ["webdataset", "parquet"])
def test_samples_of_one_id_apart(tmp_path: Path, fmt: str) -> None:
    """Each is whole within its call, whatever comes before it."""
    with lading.writer(tmp_path / "out", format=fmt, view="interleaved") as writer:
        writer.write_batch(table(items("z", 1)))  # waits, and is written first
        for count in (1, 2):
            writer.write_batch(table(items("a", count)), duplicate_ids="apart")
    with lading.open(tmp_path / "out") as ds:
        assert [(d["sample_id"], len(d["items"])) for d in ds] == [("z", 1), ("a", 1), ("a", 2)]


def test_calls_may_differ_in_columns_and_types(tmp_path: Path) -> None:
    large = pa.schema([pa.field(f.name, pa.large_string() if f.type == pa.string() else f.type) for f in SCHEMA])
    fewer = pa.schema([field for field in SCHEMA if field.name not in ("lang", "binary_content")])
    rows = items("a", 5)
    with lading.writer(tmp_path / "out", format="parquet", view="interleaved") as writer:
        writer.write_batch(table(items("0", 2)))
        writer.write_batch(table(rows[:3]))
        writer.write_batch(table(rows[3:4], large))
        writer.write_batch(table([{k: v for k, v in row.items() if k in fewer.names} for row in rows[4:]], SCHEMA))
    with lading.open(tmp_path / "out") as ds:
        assert [len(d["items"]) for d in ds] == [2, 5]
        assert {d["lang"] for d in ds} == {"en"}
    wrong = pa.schema([f.with_type(pa.int64()) if f.name == "lang" else f for f in SCHEMA])
    last = table([{"sample_id": "a", "position": 7, "modality": "text", "lang": 1}], wrong)
    with pytest.raises(SchemaMismatch, match="lang"):
        write(tmp_path / "no", [table(rows[:3]), last], format="parquet")


def test_a_policy_takes_samples_of_several_calls_as_whole(tmp_path: Path) -> None:
    rows = items("a", 4)
    bad = {**rows[2], "materialize_error": "404"}
    schema = SCHEMA.append(pa.field("materialize_error", pa.string()))
    with lading.writer(tmp_path / "out", format="parquet", view="interleaved", on_error="drop_sample") as writer:
        for row in [*rows[:2], bad, *rows[3:], *items("b", 1)]:
            writer.write_batch(table([row], schema))
    assert writer.counts["rows without bytes, dropped"] == len(rows)
    assert [d["sample_id"] for d in lading.open(tmp_path / "out")] == ["b"]


def test_rows_that_wait_are_counted_as_held(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset", view="interleaved") as writer:
        writer.write_batch(table([{**items("a", 2)[2], "binary_content": b"x" * 100_000}]))
        assert writer.held_bytes() > 100_000
        writer.end_sample()
        assert writer.held_bytes() < 100_000


def test_hashes_of_ids() -> None:
    """Many ids in any order of batches, against a set; a hash may end with a zero byte."""
    numbers = np.random.default_rng(1)
    seen, known = SeenIds(), set[str]()
    for _ in range(200):
        names = [str(n) for n in numbers.integers(0, 5_000, 20)]
        fresh = next((i for i, name in enumerate(names) if name in known or name in names[:i]), len(names))
        assert seen.distinct(long_hashes(pa.array(names, pa.large_string()).cast(pa.large_binary()))) == fresh
        known.update(names[:fresh])
    many = long_hashes(pa.array([str(n).encode() for n in range(100_000)], pa.large_binary()))
    assert SeenIds().distinct(many) == 100_000
    assert many.nbytes == 16 * 100_000
