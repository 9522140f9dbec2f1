"""Datasets behind a cache of shards: the first epoch reads each shard once, the next ones read nothing of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.shard_cache import find_cache
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore
from lading.compat.mosaicml import LocalCopy
from lading.errors import UsageError

_COUNT, _BYTES, _SHARDS = 60, 5000, 3
_FORMATS = ("webdataset", "mds", "arrow", "parquet", "jsonl", "mds-zstd")


class _Remote(MemoryStore):
    request_bytes = FsspecStore.request_bytes


def _sample(number: int) -> dict[str, Any]:
    text = random.Random(number).randbytes(_BYTES // 2).hex()
    return {"__key__": f"{number:03}", "txt": text, "cls": number}


def _write(store: MemoryStore, name: str, first: int = 0) -> None:
    form, _, compression = name.partition("-")
    options = {"compression": compression} if compression else {}
    with lading.writer(
        f"far://{name}", format=form, rows_per_shard=_COUNT // _SHARDS, options=options, overwrite=True,
        stores=Stores({"far://": store}),
    ) as writer:  # fmt: skip
        for number in range(first, first + _COUNT):
            writer.write(_sample(number))


@pytest.fixture(scope="module")
def written() -> MemoryStore:
    store = _Remote({})
    for name in _FORMATS:
        _write(store, name)
    return store


@pytest.fixture
def far(written: MemoryStore) -> CountingStore:
    return CountingStore(written)


def _open(store: CountingStore, name: str, cache: Path, **more: Any) -> lading.Dataset:
    return lading.open(f"far://{name}", stores=Stores({"far://": store}), cache_dir=cache, **more)


def _of_shards(store: CountingStore) -> int:
    """Bytes that were read of shards, and not of what lists them."""
    return sum(length for path, ranges in store.ranges.items() for _, length in ranges if not _lists(path))


def _lists(path: str) -> bool:
    return "/shard" not in path or "/_lading/" in path


def _batches(dataset: lading.Dataset) -> Iterator[str]:
    for batch in dataset.batches():
        yield from batch.column("__key__").to_pylist()


def _loader(dataset: lading.Dataset) -> Iterator[str]:
    for batch in lading.loader(dataset, 8, shuffle=True, seed=1):
        yield from batch["__key__"]


def _numbers(dataset: lading.Dataset) -> Iterator[str]:
    for number in range(0, _COUNT, 10):
        yield dataset[number]["__key__"]


_READS = (_batches, _loader, _numbers)


@pytest.mark.parametrize("name", _FORMATS)
def test_the_second_epoch_reads_nothing_of_the_shards(far: CountingStore, tmp_path: Path, name: str) -> None:
    shards = sum(one.size_bytes for one in far.inner.walk(f"far://{name}/") if not _lists(one.path))
    for read in _READS:
        cache = tmp_path / read.__name__
        found = sorted(read(_open(far, name, cache)))
        assert found == [f"{i:03}" for i in range(0, _COUNT, 1 if read is not _numbers else 10)]
        # A loader looks at the first shard before it reads samples, and of a compressed one that is all of it.
        looked_at = shards // _SHARDS if read is _loader else 0
        assert shards <= _of_shards(far) <= 1.05 * (shards + looked_at)
        far.reset()
        assert sorted(read(_open(far, name, cache))) == found
        assert _of_shards(far) == 0


def test_opening_and_counting_download_nothing(far: CountingStore, tmp_path: Path) -> None:
    dataset = _open(far, "parquet", tmp_path / "cache")
    assert len(dataset) == _COUNT
    assert dataset.schema.names
    assert find_cache(str(tmp_path / "cache")).copies() == []
    assert dataset[0]["cls"] == 0
    assert len(find_cache(str(tmp_path / "cache")).copies()) == 1


def test_a_changed_dataset_is_read_anew(tmp_path: Path) -> None:
    store = _Remote({})
    for first in (0, 100):
        _write(store, "mds", first)
        found = list(_batches(_open(CountingStore(store), "mds", tmp_path / "cache")))
        assert found == [f"{i:03}" for i in range(first, first + _COUNT)]


# A loader reads several shards at once: whether one of them finds the room taken is a matter of timing.
@pytest.mark.filterwarnings("ignore:copies that are read or downloaded now fill the cache:UserWarning")
def test_with_room_for_one_shard_all_is_read_and_the_source_stays(
    written: MemoryStore, far: CountingStore, tmp_path: Path
) -> None:
    before = {info.path: info for info in written.walk("far://")}
    for read in _READS:
        dataset = _open(far, "arrow", tmp_path / "cache", cache_limit="110KB")
        assert {*read(dataset)} >= {f"{i:03}" for i in range(0, _COUNT, 10)}
        assert len(find_cache(str(tmp_path / "cache")).copies()) == 1
    assert {info.path: info for info in written.walk("far://")} == before


def test_a_conversion_reads_through_it(far: CountingStore, tmp_path: Path) -> None:
    dataset = _open(far, "webdataset", tmp_path / "cache")
    dataset.write(tmp_path / "out", format="mds")
    assert list(_batches(lading.open(tmp_path / "out"))) == [f"{i:03}" for i in range(_COUNT)]
    assert len(find_cache(str(tmp_path / "cache")).copies()) == _SHARDS


def test_tasks_read_parts_of_a_large_shard_from_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lading._core.jobs.convert.tasks.ALONE_BYTES", 0)
    far = CountingStore(_Remote({}))
    with lading.writer("far://mds", format="mds", stores=Stores({"far://": far})) as writer:
        for number in range(_COUNT):
            writer.write(_sample(number))
    [size] = [one.size_bytes for one in far.inner.walk("far://mds/") if not _lists(one.path)]
    for name, most in (("first", 1.05 * size), ("second", 0)):
        far.reset()
        dataset = _open(far, "mds", tmp_path / "cache")
        assert dataset.write(tmp_path / name, format="mds", shard_size="50KB", workers=1).shards > 4
        assert _of_shards(far) <= most
        assert list(_batches(lading.open(tmp_path / name))) == [f"{i:03}" for i in range(_COUNT)]


def test_local_copies_read_through_it(far: CountingStore, tmp_path: Path) -> None:
    stores = Stores({"far://": far})
    for name in ("one", "other"):
        copy = LocalCopy(tmp_path / name, remote="far://mds", stores=stores, cache_dir=tmp_path / "cache")
        assert [copy[i]["cls"] for i in (0, 25, 59)] == [0, 25, 59]
        shards = _of_shards(far)
        copy.shards[0].evict()
        assert copy[0]["cls"] == 0
        assert _of_shards(far) == shards
    assert shards == sum(one.size_bytes for one in find_cache(str(tmp_path / "cache")).copies() if "shard" in one.url)


def test_arguments_that_do_not_fit(far: CountingStore, tmp_path: Path) -> None:
    dataset = _open(far, "mds", tmp_path / "cache")
    with pytest.raises(UsageError, match=r"cache_dir.*lading\.open"):
        lading.loader(dataset, cache_dir=tmp_path / "cache")
    with pytest.raises(UsageError, match="cache_limit is given without a cache"):
        lading.open("far://mds", cache_limit="1GB")
    with pytest.raises(UsageError, match="other files"):
        lading.open("far://mds", cache_dir=tmp_path)
