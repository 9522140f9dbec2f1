"""Files of Hugging Face's Hub, through its own client, from a server of its API (`hub_server`)."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from hub_fixture import hub_of_test, running_hub_of_module  # noqa: F401 - fixtures
from hub_server import TOKEN, HubServer
from lading._core.storage.hub import HubStore
from lading._core.storage.stores import Stores, resolve
from lading.errors import CorruptShard, NotFound, ShortRead, SourceNotFound, StoreError, UsageError

pytest.importorskip("huggingface_hub")
_DATA = os.urandom(100_000)
_REPO = "hf://datasets/org/name"
_CARD = b"""---
license: mit
configs:
- config_name: en
  default: true
  data_files:
  - {split: train, path: "en/train-*.parquet"}
  - {split: test, path: "en/test.parquet"}
- config_name: de
  data_files: "de/*.parquet"
---
# A dataset
"""


def _table(first: int, stop: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(first, stop)}), sink)
    return sink.getvalue()


def _options(hub: HubServer, **more: object) -> dict[str, Any]:
    return {"endpoint": hub.url, "retry_s": 5, **more}


def _store(hub: HubServer, **more: object) -> HubStore:
    store, _ = resolve(_REPO, Stores.of(None, _options(hub, **more)))
    assert isinstance(store, HubStore)
    return store


def _configs() -> Mapping[str, bytes]:
    return {
        "README.md": _CARD,
        **{f"en/train-{i}.parquet": _table(10 * i, 10 * i + 10) for i in range(3)},
        "en/test.parquet": _table(100, 107),
        "de/a.parquet": _table(200, 205),
        "notes/b.parquet": _table(0, 1),
    }


def test_ranges_are_read_where_the_bytes_are(hub: HubServer) -> None:
    hub.put("org/name", {"a b+ü.tar": _DATA})
    store, path = _store(hub), f"{_REPO}/a b+ü.tar"
    info = store.head(path)
    hub.asked.clear()
    for _ in range(2):
        parts = store.get_ranges(path, [(5, 10), (0, 0), (99_999, 1)], info.version)
        assert [bytes(part) for part in parts] == [_DATA[5:15], b"", _DATA[-1:]]
    assert [path.split("/")[1] for _, path in hub.asked] == ["datasets", *["large"] * 4]
    with pytest.raises(ShortRead, match="past the end of the file"):
        store.get_ranges(path, [(99_999, 2)], info.version)


@pytest.mark.parametrize("name", ["large.tar", "small.json"])
def test_a_version_names_the_bytes(hub: HubServer, name: str) -> None:
    hub.put("org/name", {name: _DATA})
    store, path = _store(hub), f"{_REPO}/{name}"
    [listed] = [info for info in store.walk(_REPO) if info.path == path]
    assert listed == store.head(path)
    hub.put("org/name", {name: _DATA[::-1]})
    assert bytes(store.get_ranges(path, [(0, 5)], listed.version)[0]) == _DATA[:5], "as it was looked up"
    assert bytes(store.get_ranges(path, [(0, 5)])[0]) == _DATA[::-1][:5]
    with pytest.raises(CorruptShard, match="replaced after it was opened"):
        HubStore(_REPO, options=_options(hub)).get_ranges(path, [(0, 5)], listed.version)


def test_an_address_whose_time_is_over_is_asked_for_again(hub: HubServer) -> None:
    hub.put("org/name", {"a.tar": _DATA})
    store, path = _store(hub), f"{_REPO}/a.tar"
    version = store.head(path).version
    store.get_ranges(path, [(0, 1)], version)
    hub.refused["GET /large"] = [403]
    assert bytes(store.get_ranges(path, [(1, 4)], version)[0]) == _DATA[1:5]
    assert hub.requests("GET /datasets") == 2


def test_an_open_dataset_stays_with_its_commit(hub: HubServer) -> None:
    hub.put("org/name", {f"{i:02}.parquet": _table(i, i + 1) for i in range(50)})
    held = lading.open(_REPO, storage_options=_options(hub))
    hub.put("org/name", {f"{i:02}.parquet": _table(i, i + 2) for i in range(50)})
    assert len(held) == len(pickle.loads(pickle.dumps(held.query)).open_shards().listing) == 50
    assert [sample["id"] for sample in held] == [*range(50)]
    assert len(lading.open(_REPO, storage_options=_options(hub))) == 100
    assert hub.requests("HEAD") < 10, "no request for each file"
    page = "https://huggingface.co/datasets/org/name/tree/main"
    assert len(lading.open(page, storage_options=_options(hub))) == 100


def test_a_busy_hub_is_asked_again(hub: HubServer) -> None:
    hub.put("org/name", {"a.tar": _DATA})
    store, path = _store(hub), f"{_REPO}/a.tar"
    hub.refused["HEAD"], hub.refused["GET /large"] = [503], [429]
    assert bytes(store.get_ranges(path, [(1, 4)])[0]) == _DATA[1:5]


def test_revisions(hub: HubServer) -> None:
    hub.put("org/name", {"a.parquet": _table(0, 3)})
    first = hub.repos["org/name"].branches["main"]
    hub.put("org/name", {"a.parquet": _table(0, 4)}, branch="refs/pr/1")
    hub.put("org/name", {"a.parquet": _table(0, 5)})
    for revision, samples in (("", 5), (f"@{first}", 3), ("@refs/pr/1", 4)):
        assert len(lading.open(f"{_REPO}{revision}", storage_options=_options(hub))) == samples
    with pytest.raises(SourceNotFound, match=r"no such revision of the repository; .* found v9"):
        lading.open(f"{_REPO}@v9", storage_options=_options(hub))


def test_configs_and_splits_of_the_card(hub: HubServer) -> None:
    hub.put("org/name", _configs())
    hub.page = 2
    options = _options(hub)
    train = lading.open(_REPO, split="train", storage_options=options)
    assert train[25] == {"id": 25}
    assert len(train) == 30
    assert [sample["id"] for sample in lading.open(_REPO, config="de", storage_options=options)] == [*range(200, 205)]


def test_a_private_repository_needs_the_token(hub: HubServer) -> None:
    hub.put("org/name", {"a.parquet": _table(0, 3), "b.jsonl": b"{}"}, private=True)
    with pytest.raises(SourceNotFound, match=r"no such repository, or a private one; .*hf auth login"):
        lading.open(_REPO, storage_options=_options(hub))
    held = lading.open(f"{_REPO}/a.parquet", storage_options=_options(hub, token=TOKEN))
    assert held[2] == {"id": 2}
    assert TOKEN not in repr(held)
    assert bytes(_store(hub, token=TOKEN).get_ranges(f"{_REPO}/b.jsonl", [(0, 2)])[0]) == b"{}"


def test_a_name_alone_opens_no_repository(hub: HubServer) -> None:
    with pytest.raises(SourceNotFound, match=r"no such file or folder\. .* write hf://datasets/org/name\.$"):
        lading.open("org/name", storage_options=_options(hub))
    with pytest.raises(SourceNotFound, match=r"For a dataset, write hf://datasets/org/name"):
        lading.open("hf://org/name", storage_options=_options(hub))
    for other in ("tests/name", "org/name.parquet", "/org/name"):
        with pytest.raises(SourceNotFound, match=r"no such file or folder$"):
            lading.open(other)


def test_offline_nothing_is_asked(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(StoreError, match=r"HF_HUB_OFFLINE is set: the Hub is not asked"):
        lading.open(_REPO, storage_options=_options(hub))
    assert not hub.asked


def test_a_file_is_not_written_alone(hub: HubServer) -> None:
    with pytest.raises(UsageError, match="written in one commit"):
        _store(hub).put_stream(f"{_REPO}/a.tar")
    with pytest.raises(NotFound):
        _store(hub).head(f"{_REPO}/a.tar")
