"""A dataset on a store is whole or not there: no reader takes a part of it, and the error says what to type next."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from dying_store import DyingStore, Killed
from lading._core.dataset.source.source import list_source
from lading._core.storage.base import FileInfo, Store, write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore, WrappedStore
from lading.compat.mosaicml import LocalCopy
from lading.errors import NotFound, StoreError, UnfinishedDataset
from object_server import BUCKET, options

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


@pytest.fixture(scope="module")
def dying(server: str) -> Iterator[DyingStore]:
    return DyingStore(f"s3://{BUCKET}", options=options(server))


def test_each_dataset_of_several_is_marked(dying: DyingStore) -> None:
    """Manifests come last: of a split too."""
    root = f"s3://{BUCKET}/{secrets.token_hex(8)}"
    stores = Stores({f"s3://{BUCKET}": dying})
    ds = lading.open([*_tars(dying, root)], stores=stores)
    dying.dies_at = "val/shard-000000.jsonl"
    with pytest.raises(Killed):
        lading.convert(ds.split({"train": 0.5, "val": 0.5}), f"{root}/out", format="jsonl")
    assert [info.path for info in dying.walk(f"{root}/out/train") if info.path.endswith(".jsonl")] != []
    for place in ("out", "out/train", "out/val"):
        with pytest.raises(UnfinishedDataset, match=f"with resume=True, or .*'lading clean {root}/out'"):
            lading.open(f"{root}/{place}", stores=stores)
    dying.dies_at = "nothing"
    parts = ds.split({"train": 0.5, "val": 0.5})
    done = lading.convert(parts, f"{root}/out", format="jsonl", resume=True)
    assert done.samples == 4
    assert {name: len(lading.open(f"{root}/out", split=name, stores=stores)) for name in ("train", "val")} == {
        "train": done.splits["train"].samples, "val": done.splits["val"].samples,
    }  # fmt: skip


def _tars(store: Store, root: str) -> Iterator[str]:
    for number in range(2):
        place = f"{root}/in/{number}"
        with lading.writer(place, format="webdataset", stores=Stores({"": store})) as writer:
            for sample in range(2):
                writer.write({"txt": f"{number} {sample}"})
        yield place


class _Refusing(WrappedStore):
    """A server that says of absent files what it says of forbidden ones; it lists nothing."""

    def head(self, path: str) -> FileInfo:
        try:
            return super().head(path)
        except NotFound:
            raise StoreError("permission denied", file=path) from None

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        raise StoreError("permission denied", file=prefix)


def test_a_server_that_refuses_to_say_what_is_absent_has_no_marker() -> None:
    store = MemoryStore()
    _written("box://a/out", store, "webdataset")
    stores = Stores({"box://": _Refusing(store)})
    assert len(list_source("box://a/out/shard-{000000..000002}.tar", stores)) == 3


def test_a_web_server_without_listings_is_asked_for_the_marker() -> None:
    store = MemoryStore()
    _written("https://host/out", store, "mds")
    store.delete("https://host/out/_lading/manifest.json")
    write_file(store, "https://host/out/_lading/committing.json", [_MARKER])

    class Silent(WrappedStore):
        def walk(self, _: str) -> Iterator[FileInfo]:
            return iter(())

    with pytest.raises(UnfinishedDataset, match="its owner completes it"):
        lading.open("https://host/out", stores=Stores({"https://": Silent(store)}))
