"""Threads that read samples of one dataset by number: each has the right ones, and few files stay unpacked."""

from __future__ import annotations

import random
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakValueDictionary

import pytest

import lading
from lading._core.dataset.query import open_shards
from lading._core.dataset.shards.shards import _bound_open_shards
from train_sources import COUNT, DOCUMENT_SOURCES, DOCUMENTS, SAMPLE_SOURCES, SAMPLES, contents, write

_COMPRESSED = ("tar.gz", "tar.zst", "mds.zstd", "parquet", "media archive")
_THREADS = 4


@pytest.mark.soak
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("name", _COMPRESSED)
def test_each_thread_has_its_samples(tmp_path: Path, name: str, documents: bool) -> None:
    form = (DOCUMENT_SOURCES if documents else SAMPLE_SOURCES)[name]
    dataset = lading.open(write(tmp_path, form, documents))

    def read(thread: int) -> None:
        rng = random.Random(thread)
        for count in (1, 3, 30):
            numbers = rng.sample(range(COUNT), count)
            found = dataset._rows.as_samples(dataset.take(numbers, views=bool(thread % 2)))
            if documents:
                assert [contents(each) for each in found] == [DOCUMENTS[i] for i in numbers]
            else:
                assert found == [SAMPLES[i] for i in numbers]

    with ThreadPoolExecutor(_THREADS) as pool:
        for done in [pool.submit(read, thread) for thread in range(_THREADS)]:
            done.result()


def test_threads_open_shards_of_many_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread counts the open shards of all datasets while others open their first one."""
    with lading.writer(tmp_path / "tars") as writer:
        writer.write({"__key__": "a", "txt": "x"})
    datasets = [open_shards(tmp_path / "tars") for _ in range(100)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns within the count
    try:
        for _ in range(5):
            monkeypatch.setattr("lading._core.dataset.shards.shards._datasets", WeakValueDictionary())
            with ThreadPoolExecutor(_THREADS) as pool:
                assert [*pool.map(_bound_open_shards, datasets)] == [None] * len(datasets)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.soak
def test_few_unpacked_files_are_in_memory(tmp_path: Path) -> None:
    shards, size = 16, 4 << 20
    with lading.writer(tmp_path / "tars", rows_per_shard=1, options={"compression": "zstd"}) as writer:
        for i in range(shards):
            writer.write({"__key__": str(i), "bin": bytes([i]) * size})
    dataset = lading.open(tmp_path / "tars")

    def read(thread: int) -> bool:
        numbers = random.Random(thread).sample(range(shards), shards)
        return all(dataset.take([i], ["bin"])["bin"][0].as_py() == bytes([i]) * size for i in numbers)

    assert len(dataset) == shards
    tracemalloc.start()
    with ThreadPoolExecutor(_THREADS) as pool:
        assert all(pool.map(read, range(_THREADS)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (5 * _THREADS + 2) * size  # of a thread: its file, the value, copies of it; and two that stay open
