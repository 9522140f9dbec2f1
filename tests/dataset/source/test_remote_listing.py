"""Requests of opening and reading many shards of a remote store: one listing tells their sizes and versions."""

from __future__ import annotations

import fsspec
import pytest

import lading
from lading._core.storage.base import Store, write_file
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import CorruptShard
from lading.testing import CountingStore
from tars import tar_of

COUNT = 40
NAMES = [f"memory://many/{i:03}.tar" for i in range(COUNT)]
SOURCES = ["memory://many", "memory://many/*.tar", f"memory://many/{{000..{COUNT - 1:03}}}.tar", NAMES]


@pytest.fixture(params=["memory", "fsspec"])
def far(request: pytest.FixtureRequest) -> CountingStore:
    """A store with many shards, which says that a request is slow."""
    inner: Store = MemoryStore()
    if request.param == "fsspec":
        files = fsspec.filesystem("memory", skip_instance_cache=True)
        files.store, files.pseudo_dirs = {}, [""]
        inner = FsspecStore(files)
    for i, name in enumerate(NAMES):
        write_file(inner, name, [tar_of((f"{i}.txt", b"text"))])
    counting = CountingStore(inner)
    counting.request_bytes = FsspecStore.request_bytes
    return counting


@pytest.mark.parametrize("source", SOURCES, ids=["folder", "glob", "braces", "list"])
def test_opening_lists_once(far: CountingStore, source: str | list[str]) -> None:
    dataset = lading.open(source, stores=Stores({"memory://": far}))
    assert len(dataset.shards) == COUNT
    assert far.requests["walk"] <= 2  # of them one for a manifest
    assert far.requests["head"] <= 3
    assert far.requests["get_ranges"] <= 5


def test_the_shard_that_shows_the_view_is_opened_once(far: CountingStore) -> None:
    dataset = lading.open(NAMES[:1], stores=Stores({"memory://": far}))
    opened = far.requests["get_ranges"]
    assert dataset.schema.names == ["__key__", "txt"]
    assert far.requests["get_ranges"] == opened + 1  # the headers


@pytest.mark.soak
def test_reading_asks_for_no_head_of_a_shard(far: CountingStore) -> None:
    dataset = lading.open("memory://many", stores=Stores({"memory://": far}))
    assert dataset.schema.names == ["__key__", "txt"]
    assert len(dataset) == COUNT
    dataset.write("memory://out", format="jsonl", workers=1, progress=False)
    lading.info("memory://many", stores=Stores({"memory://": far}))
    assert far.requests["head"] <= 20  # of what is written, and of the first shard
    assert far.requests["walk"] <= 12


def test_sidecars_that_were_listed_are_read(far: CountingStore) -> None:
    write_file(far.inner, f"{NAMES[0]}.idx", [b"not an index"])
    dataset = lading.open("memory://many", stores=Stores({"memory://": far}))
    with pytest.raises(lading.errors.SidecarMismatch, match="idx"):
        len(dataset)


@pytest.mark.parametrize("far", ["memory"], indirect=True)  # of fsspec's, a file that is written again is the same
def test_a_shard_replaced_since_it_was_listed(far: CountingStore) -> None:
    dataset = lading.open("memory://many", stores=Stores({"memory://": far}))
    write_file(far.inner, NAMES[7], [tar_of(("7.txt", b"next"))])
    with pytest.raises(CorruptShard, match=r"(?s)replaced after it was opened.*Open the dataset again"):
        list(dataset)
