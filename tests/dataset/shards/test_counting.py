"""The numbers of samples in shards that no list counts are those that pyarrow counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.storage.base import Buffer
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore, WrappedStore
from lading.errors import CorruptShard, DatasetReplaced

MANY = 80


def _bytes(rows: Sequence[int], *, stream: bool, width: int = 1) -> bytes:
    """A file or stream with a record batch of each of these numbers of rows."""
    sink, schema = pa.BufferOutputStream(), pa.schema([("txt", pa.string())])
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, schema) as writer:
        for count in rows:
            writer.write_batch(pa.record_batch({"txt": pa.array(["x" * width] * count, pa.string())}, schema=schema))
    return bytes(sink.getvalue())


@pytest.fixture
def shards(tmp_path: Path) -> tuple[Path, list[int]]:
    """Many streams and files of few batches, some of them large, and the rows of each."""
    random, counts = np.random.default_rng(0), []
    for i in range(MANY):
        rows = random.integers(0, 5, i % 4).tolist()
        counts.append(sum(rows))
        data = _bytes(rows, stream=i % 2 == 0, width=60_000 if i % 8 < 2 else 1)
        (tmp_path / f"{i:03}.arrow").write_bytes(data)
    return tmp_path, counts


def test_many_shards_are_counted_by_their_heads(shards: tuple[Path, list[int]]) -> None:
    folder, counts = shards
    dataset = lading.open(folder)
    assert len(dataset) == sum(counts)
    assert dataset._rows.shards.num_open <= 1
    assert dataset._rows.layout.shard_ends.tolist() == np.cumsum(counts).tolist()
    assert [len(shard) for shard in dataset.shards] == counts


def test_a_shard_that_is_cut_is_named_or_skipped(shards: tuple[Path, list[int]]) -> None:
    folder, counts = shards
    bad = next(i for i in range(MANY) if i % 2 == 0 and counts[i] and i % 8 >= 2)
    file = folder / f"{bad:03}.arrow"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CorruptShard, match=file.name):
        len(lading.open(folder))
    with pytest.warns(UserWarning, match=file.name):
        assert len(lading.open(folder, on_bad_shard="skip")) == sum(counts) - counts[bad]


def test_a_shard_that_changes_after_the_count_is_refused(shards: tuple[Path, list[int]]) -> None:
    folder, counts = shards
    dataset = lading.open(folder)
    assert len(dataset) == sum(counts)
    last = max(i for i in range(MANY) if counts[i])
    os.utime(folder / f"{last:03}.arrow", ns=(0, 0))
    with pytest.raises(DatasetReplaced, match=f"{last:03}.arrow"):
        dataset[sum(counts[:last])]


def test_footers_of_many_parquet_files_are_counted(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 9, MANY).tolist()
    for i, count in enumerate(counts):
        pq.write_table(
            pa.table({"n": pa.array(range(count), pa.int64())}), tmp_path / f"{i:03}.parquet", row_group_size=3
        )
    dataset = lading.open(tmp_path)
    assert (len(dataset), dataset._rows.shards.num_open <= 1) == (sum(counts), True)
    firsts = lading.open(tmp_path, options={"filter": pc.field("n") < 3})
    assert len(firsts) == sum(min(count, 3) for count in counts)
    (tmp_path / "079.parquet").write_bytes((tmp_path / "079.parquet").read_bytes()[:-9])
    with pytest.raises(CorruptShard, match=r"079\.parquet"):
        len(lading.open(tmp_path))


class _Meeting(WrappedStore):
    """A store whose files can be read by two who ask at the same time."""

    def __init__(self, inner: MemoryStore, path: str) -> None:
        super().__init__(inner)
        self.request_bytes = FsspecStore.request_bytes
        self._path, self._both, self._met = path, threading.Barrier(2, timeout=60), set[str]()

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        if path > self._path and path not in self._met:
            self._met.add(path)
            self._both.wait()
        return super().get_ranges(path, ranges, version)


def test_remote_shards_are_counted_at_the_same_time() -> None:
    files = {f"far://many/{i:03}.arrow": _bytes([i, 2], stream=i % 2 == 0) for i in range(20)}
    store = _Meeting(MemoryStore(files), "far://many/009.arrow")
    dataset = lading.open("far://many", stores=Stores({"far://": store}))
    assert len(dataset) == sum(range(20)) + 40


def test_counts_of_many_remote_shards_are_kept_for_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path))
    inner = MemoryStore({f"far://many/{i:03}.arrow": _bytes([i], stream=False) for i in range(MANY)})

    def requests(samples: int) -> int:
        store = CountingStore(inner)
        store.request_bytes = FsspecStore.request_bytes
        assert len(lading.open("far://many", stores=Stores({"far://": store}))) == samples
        return store.requests["get_ranges"]

    assert requests(sum(range(MANY))) >= MANY
    assert requests(sum(range(MANY))) <= 2  # of the first shard, by which the format is known
    inner.put("far://many/000.arrow", _bytes([100], stream=False))
    assert requests(sum(range(MANY)) + 100) >= MANY
