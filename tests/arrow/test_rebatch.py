"""Small batches made larger, within the limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.arrow.rebatch import rebatched
from lading._core.arrow.references import FileEntry, files_of, is_ref, make_refs, unpack, with_files
from lading._core.arrow.views import row_bytes
from lading._core.dataset.query import open_shards
from lading._core.dataset.shards.iteration import shard_batches
from lading._core.formats.base import Scan


def batches(count: int, rows: int, size: int) -> list[pa.RecordBatch]:
    made = []
    for i in range(count):
        values = pa.array([bytes([i + 1]) * size] * rows, pa.large_binary())
        made.append(pa.record_batch({"__key__": [f"{i}-{j}" for j in range(rows)], "bin": values}))
    return made


@pytest.mark.parametrize("max_rows, max_bytes", [(1 << 20, 1 << 30), (25, 1 << 30), (1 << 20, 30_000), (1, 1)])
def test_rows_are_the_same_and_limits_are_kept(max_rows: int, max_bytes: int) -> None:
    given = batches(20, 10, 1000)
    got = list(rebatched(given, max_rows, max_bytes, max_bytes))
    assert pa.Table.from_batches(got).to_pylist() == pa.Table.from_batches(given).to_pylist()
    for batch in got:
        assert batch.num_rows <= max(max_rows, 10)
        assert row_bytes(batch).sum() <= max(max_bytes, 10 * 1010)
    assert len(got) < 20 or max_rows < 20 or max_bytes < 20_000


def test_payload_is_shared() -> None:
    given = batches(3, 5, 10_000)
    [got] = rebatched(given, 1 << 20, 1 << 30, 1 << 30)
    places = {buffer.address for batch in given for buffer in batch.column("bin").buffers()[2:]}
    assert {buffer.address for buffer in got.column("bin").buffers()[2:]} == places


def test_other_schemas_stand_alone() -> None:
    one, two = batches(2, 3, 10)
    two = two.append_column("more", pa.array(np.arange(3)))
    assert [b.schema.names for b in rebatched([one, two, one], 100, 1000, 1000)] == [
        ["__key__", "bin"],
        ["__key__", "bin", "more"],
        ["__key__", "bin"],
    ]


def test_references_keep_to_the_bytes_they_stand_for(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out") as writer:
        for i in range(300):
            writer.write({"__key__": f"{i:03d}", "bin": bytes([i % 251]) * 100_000})
    with open_shards(tmp_path / "out") as shards:
        sizes = [int(row_bytes(b).sum()) for b in shard_batches(shards, 0, Scan(max_bytes=2_000_000, views=True))]
    assert len(sizes) >= 15
    assert max(sizes) <= 2_001_000  # keys are text of their own


@pytest.mark.parametrize("size, most", [(1 << 15, 1 << 20), ((1 << 15) - 1, 1 << 18)])
def test_references_to_large_values_may_be_more(size: int, most: int) -> None:
    def refs(first: int) -> pa.RecordBatch:
        column = make_refs(np.arange(first, first + 4) * size, np.full(4, size))
        schema = with_files(pa.schema([pa.field("bin", column.type)]), [FileEntry("x")])
        return pa.record_batch([column], schema=schema)

    got = list(rebatched([refs(first) for first in range(0, 64, 4)], 1000, 1 << 18, 1 << 20))
    assert max(int(row_bytes(batch).sum()) for batch in got) <= most
    assert len(got) == 64 * size // most + (64 * size % most > 0)
    offsets = np.concatenate([unpack(batch.column("bin")).offset for batch in got])
    assert offsets.tolist() == (np.arange(64) * size).tolist()


def test_references_are_joined_with_those_of_the_same_files_and_rows_keep_their_order() -> None:
    """Also where a column is of references in some batches, and of bytes in others."""

    def refs(url: str, *offsets: int) -> pa.RecordBatch:
        column = make_refs(np.array(offsets), np.ones(len(offsets), np.int64))
        schema = with_files(pa.schema([pa.field("bin", column.type)]), [FileEntry(url)])
        return pa.record_batch([column], schema=schema)

    def values(*some: bytes) -> pa.RecordBatch:
        return pa.record_batch({"bin": pa.array(some, pa.large_binary())})

    given = [values(b"a"), refs("x", 1, 2), refs("x", 3), refs("y", 4), values(b"b"), values(b"c"), refs("y", 5)]
    got = list(rebatched(given, 100, 1000, 1000))
    told = [
        (files_of(batch.schema)[0].url, unpack(batch.column("bin")).offset.tolist())
        if is_ref(batch.schema.field("bin").type)
        else batch.column("bin").to_pylist()
        for batch in got
    ]
    assert told == [[b"a"], ("x", [1, 2, 3]), ("y", [4]), [b"b", b"c"], ("y", [5])]
