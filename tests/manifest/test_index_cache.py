"""Indexes in the user's cache folder: as they were made, or made again."""

from __future__ import annotations

from pathlib import Path

import pytest

import lading
from lading._core.dataset.query import open_shards
from lading._core.formats.base import ShardFile
from lading._core.manifest.index_cache import IndexCache
from lading._core.storage.local import LocalStore
from tars import tar_of


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(*((f"k{n}.txt", b"text %d" % n) for n in range(9))))
    return path


@pytest.mark.soak
def test_a_damaged_index_is_none(shard: Path, tmp_path: Path) -> None:
    cache, source = IndexCache(str(tmp_path / "cache")), ShardFile(LocalStore(), str(shard))
    with open_shards(shard) as shards:
        index = shards.open_shard(0).index()
    assert index is not None
    assert cache.store(source, "kind", index)
    assert cache.load(source, "kind") == index
    assert cache.load(source, "other") is None
    [file] = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), 5):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]):
            file.write_bytes(damaged)
            assert cache.load(source, "kind") is None, at


def test_a_damaged_index_is_made_again(shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    lading.index(shard)
    [file] = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), 100):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
        with lading.open(shard) as dataset:
            assert dataset[7] == {"__key__": "k7", "txt": "text 7"}, at
    assert lading.index(shard).kept == 1
    assert file.read_bytes() == whole
