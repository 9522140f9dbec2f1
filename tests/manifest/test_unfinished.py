"""A dataset on a store is whole or not there: no reader takes a part of it, and the error says what to type next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lading
from lading.compat.mosaicml import LocalCopy
from lading.errors import UnfinishedDataset
from lading.storage.base import Store, write_file
from lading.storage.memory import MemoryStore
from lading.storage.stores import Stores
from lading.storage.wrappers import CountingStore

_MARKER = b'{"began":"2026-11-29T21:48:32Z","part":""}'


def _written(folder: str, store: Store, fmt: str = "jsonl", **more: Any) -> None:
    with lading.writer(folder, format=fmt, rows_per_shard=1, stores=Stores({"": store}), **more) as writer:
        for number in range(3):
            writer.write({"txt": str(number)})


@pytest.fixture
def half() -> Stores:
    """MDS, of which a commit has put two of three shards there."""
    store = MemoryStore()
    _written("box://all/out", store, "mds")
    for name in ("_lading/manifest.json", "shard.00002.mds"):
        store.delete(f"box://all/out/{name}")
    write_file(store, "box://all/out/_lading/committing.json", [_MARKER])
    return Stores({"box://": store})


_READERS: dict[str, Callable[[Stores, Path], Any]] = {
    "folder": lambda stores, _: lading.open("box://all/out", stores=stores),
    "folder above": lambda stores, _: lading.open("box://all", stores=stores),
    "two folders": lambda stores, _: lading.open(["box://all/out", "box://all/out"], stores=stores),
    "pattern": lambda stores, _: lading.open("box://all/out/*.mds", stores=stores),
    "pattern of folders": lambda stores, _: lading.open("box://all/**/*.mds", stores=stores),
    "pattern of what is to come": lambda stores, _: lading.open("box://all/out/*.00002.mds", stores=stores),
    "braces": lambda stores, _: lading.open("box://all/out/shard.{00000..00001}.mds", stores=stores),
    "info": lambda stores, _: lading.info("box://all/out", stores=stores),
    "digest": lambda stores, _: lading.digest("box://all/out", stores=stores),
    "convert": lambda stores, tmp: lading.convert("box://all/out", tmp / "o", format="parquet", stores=stores),
    "salvage": lambda stores, tmp: lading.salvage("box://all/out", tmp / "o", stores=stores),
    "verify": lambda stores, _: lading.verify("box://all/out", stores=stores),
    "merge": lambda stores, _: lading.merge("box://all", stores=stores),
    "compat": lambda stores, tmp: LocalCopy(tmp / "cache", remote="box://all/out", stores=stores),
}


@pytest.mark.cases(len(_READERS))
@pytest.mark.parametrize("reader", _READERS)
def test_no_reader_takes_a_part_for_the_whole(reader: str, half: Stores, tmp_path: Path) -> None:
    with pytest.raises(UnfinishedDataset, match="unfinished since 2026-11-29T21:48:32Z") as caught:
        _READERS[reader](half, tmp_path)
    assert caught.value.file == "box://all/out"
    assert "'lading clean box://all/out'" in str(caught.value)


def test_what_lies_beside_an_unfinished_dataset_is_read(half: Stores) -> None:
    _written("box://all/other", half.by_prefix["box://"])
    assert len(lading.open("box://all/other/*.jsonl", stores=half)) == 3
    assert len(lading.open("box://all/other", stores=half)) == 3


def test_a_dataset_with_its_manifest_is_complete_whatever_else_is_there(half: Stores) -> None:
    store = half.by_prefix["box://"]
    _written("box://b/out", store)
    write_file(store, "box://b/out/_lading/committing.json", [_MARKER])
    for source in ("box://b/out", "box://b/out/*.jsonl", "box://b/out/shard-{000000..000002}.jsonl"):
        assert len(lading.open(source, stores=half)) == 3


def _requests(source: str, store: MemoryStore) -> Counter[str]:
    counting = CountingStore(store)
    lading.open(source, stores=Stores({"box://": counting}))
    return counting.requests


def test_the_look_costs_no_request_where_a_store_lists() -> None:
    store = MemoryStore()
    _written("box://a/out", store)
    assert _requests("box://a/out", store) == {"head": 2, "get_ranges": 2}  # the manifest and the list of shards
    store.delete("box://a/out/_lading")
    assert _requests("box://a/out", store)["walk"] == 2  # of lading's own files, and of all
    assert _requests("box://a/out/*.jsonl", store)["walk"] == 1


def test_a_writer_of_many_that_died_leaves_no_dataset() -> None:
    """Its list of shards comes first, its manifest last."""
    store = MemoryStore()
    _written("box://ranks", store, rank=3)
    store.delete("box://ranks/_lading/00003/manifest.json")
    with pytest.raises(UnfinishedDataset, match="start the same writer again"):
        lading.open("box://ranks", stores=Stores({"box://": store}))
