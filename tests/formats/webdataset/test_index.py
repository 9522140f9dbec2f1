"""wids indexes: read, checked, written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golden_cases import Golden
from lading._core.formats.base import ShardFacts, ShardFile
from lading._core.formats.dataset_index import ListedShard
from lading._core.formats.findings import Level
from lading._core.formats.webdataset.format import FORMAT
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore
from lading.errors import BadReference, DataError, LimitExceeded
from lading.limits import Limits
from tars import energon_index, tar_of

KIND = "wids-shard-index-v1"


def listed(
    text: str | bytes, files: dict[str, int] | None = None, path: str = "data/index.json"
) -> list[ListedShard] | None:
    data = text.encode() if isinstance(text, str) else text
    store = MemoryStore({path: data, **{name: bytes(size) for name, size in (files or {}).items()}})
    return FORMAT.index.shards(store, path, data[:1024])


def index(*shards: Any, **more: Any) -> str:
    return json.dumps({"__kind__": KIND, "wids_version": 1, "shardlist": shards, **more})


def test_the_peer_s_own_index(golden: Golden) -> None:
    path = golden("wds") / "wids-index" / "index.json"
    spec = json.loads(path.read_text())["shardlist"]
    shards = FORMAT.index.shards(LocalStore(), str(path), path.read_bytes()[:1024])
    assert shards == [
        ListedShard(str(path.parent / s["url"]), s["nsamples"], s["filesize"], {"md5": s["md5sum"]}) for s in spec
    ]


def test_what_is_no_wids_index() -> None:
    assert listed("{}") is None
    assert listed('{"__kind__": "something else", "shardlist": []}') is None
    assert listed("[" * 1000) is None
    assert listed(index(), path="data/index.txt") is None


def test_shards_lie_below_the_index() -> None:
    files = {"data/a.tar": 5, "data/sub/b.tar": 6, "s3://b/x/c.tar": 7}
    found = listed(index({"url": "a.tar"}, {"url": "./sub/b.tar", "filesize": 6}, name="n"), files)
    assert found == [ListedShard("data/a.tar"), ListedShard("data/sub/b.tar", None, 6)]
    url = index({"url": "s3://b/x/c.tar", "filesize": 7})
    assert listed(url, files, "s3://b/x/index.json") == [ListedShard("s3://b/x/c.tar", None, 7)]
    assert listed(index({"url": "a.tar"}), {"a.tar": 5}, "index.json") == [ListedShard("a.tar")]


@pytest.mark.parametrize(
    "url",
    ["../x.tar", "/etc/passwd", "sub/../../x.tar", "http://host/x.tar", "s3://other/x.tar", "", "file:///x", "a\0b"],
)
def test_shards_that_leave_the_folder(url: str) -> None:
    for path in ("data/index.json", "s3://b/x/index.json"):
        with pytest.raises(BadReference) as caught:
            listed(index({"url": "a.tar"}, {"url": url}), {}, path)
        assert (caught.value.file, caught.value.row) == (path, 1)
        assert repr(url) in str(caught.value)


@pytest.mark.parametrize(
    "shards",
    [["a.tar"], [{}], [{"url": 1}], [{"url": "a", "nsamples": -1}], [{"url": "a", "filesize": "9"}],
     [{"url": "a", "filesize": True}], [{"url": "a", "md5sum": 5}], [{"url": "a"}, {"url": "./a"}]],
)  # fmt: skip
def test_indexes_that_are_broken(shards: list[Any]) -> None:
    with pytest.raises(DataError, match=r"index\.json"):
        listed(index(*shards))


@pytest.mark.parametrize(
    "text", ['{"__kind__": "', f'{{"__kind__": "{KIND}", "shardlist": 5}}', '{"__kind__": ' + "[" * 5000]
)
def test_indexes_that_are_no_json(text: str) -> None:
    with pytest.raises(DataError, match=r"index\.json"):
        listed(text)


def test_an_index_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    with path.open("wb") as file:
        file.write(b'{"__kind__": 1}')
        file.truncate((256 << 20) + 1)
    with pytest.raises(LimitExceeded, match=r"index\.json"):
        FORMAT.index.shards(LocalStore(), str(path), b'{"__kind__": 1}')


def test_no_shard_is_looked_at() -> None:
    names = [f"{i:04d}.tar" for i in range(500)]
    text = index(*({"url": name, "filesize": 3} for name in names))
    store = CountingStore(MemoryStore({"d/index.json": text.encode()}))
    found = FORMAT.index.shards(store, "d/index.json", text.encode()[:1024])
    assert found == [ListedShard(f"d/{name}", None, 3) for name in names]
    assert sum(store.requests.values()) < 5


def test_an_index_is_written_beside_the_shards() -> None:
    store = MemoryStore({"out/a.tar": bytes(5), "out/sub/b.tar": bytes(6)})
    facts = [("out/a.tar", ShardFacts(1, 5, 3)), ("sub/b.tar", ShardFacts(2, 6, 4))]
    assert FORMAT.index.write(store, "out", facts, None) == ["out/index.json"]
    [text] = store.get_ranges("out/index.json", [(0, store.head("out/index.json").size_bytes)])
    # keys and spelling: golden wds/wids-index
    assert json.loads(bytes(text)) == {
        "__kind__": KIND,
        "wids_version": 1,
        "shardlist": [
            {"url": "a.tar", "nsamples": 1, "filesize": 5},
            {"url": "sub/b.tar", "nsamples": 2, "filesize": 6},
        ],
    }
    found = FORMAT.index.shards(store, "out/index.json", bytes(text)[:1024])
    assert found == [ListedShard("out/a.tar", 1, 5), ListedShard("out/sub/b.tar", 2, 6)]


def _cut_off(store: CountingStore, index_bytes: int) -> int:
    shard = ShardFile(store, "a.tar", limits=Limits(index_bytes=index_bytes))
    return sum(found.lost_samples for found in FORMAT.checks(shard, FORMAT.read_options({}), Level.QUICK))


def test_an_index_of_samples_beyond_the_limit_is_not_read() -> None:
    data = tar_of(*((f"{number}.txt", b"1") for number in range(6)))
    idx = energon_index(data)
    store = CountingStore(MemoryStore({"a.tar": data[:2048], "a.tar.idx": idx}))
    assert _cut_off(store, len(idx)) == 4
    assert _cut_off(store, len(idx) - 1) == 0
    store = CountingStore(MemoryStore({"a.tar": data[:2048], "a.tar.idx": bytes(1 << 20)}))
    assert _cut_off(store, 1 << 19) == 0
    assert store.bytes_read < 1 << 16
