"""What a loader reads from a remote store: each block once, few requests, nothing but heads before the first batch.

The store counts its requests, and says of itself that a request is slow.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import lading
from lading._core.storage.base import Buffer
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.retries import Retries
from lading._core.storage.stores import Stores
from lading._core.storage.wrappers import CountingStore, RetryingStore, WrappedStore
from lading._core.train.order import Shuffle
from lading.errors import StoreError, UsageError

_COUNT, _BYTES, _SHARDS, _BATCH = 160, 100_000, 16, 8
_RANGES = ("webdataset", "mds", "arrow", "jsonl")
_UNITS = ("mds-zstd", "arrow-zstd", "parquet")
_KEYS = [f"{i:04}" for i in range(_COUNT)]
_HEADS = 96 << 10
"""Of a shard, at most, before the first batch."""


class _Remote(MemoryStore):
    request_bytes = FsspecStore.request_bytes


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    """The samples in each format, and in tars of Python's."""
    random, store = np.random.default_rng(0), _Remote({})
    images = [random.bytes(_BYTES) for _ in range(_COUNT)]
    rows = [
        {"__key__": k, "jpg": i, "json": f'{{"n": {n}}}'} for n, (k, i) in enumerate(zip(_KEYS, images, strict=True))
    ]
    for name in ("webdataset", "mds", "arrow", *_UNITS):
        form, _, compression = name.partition("-")
        options: dict[str, Any] = {"compression": compression} if compression else {}
        options |= {"batch_bytes": "500KB"} if form == "arrow" else {}
        with lading.writer(
            f"far://{name}", format=form, rows_per_shard=_COUNT // _SHARDS, options=options,
            stores=Stores({"far://": store}),
        ) as writer:  # fmt: skip
            for row in rows:
                writer.write(row)
    for shard in range(_SHARDS):
        mine = rows[shard * 10 : shard * 10 + 10]
        lines = [f'{{"__key__": "{row["__key__"]}", "jpg": "{row["jpg"].hex()[:_BYTES]}"}}\n' for row in mine]
        store.put(f"far://jsonl/{shard:02}.jsonl", "".join(lines).encode())
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as tar:
            for row in mine:
                for name in ("jpg", "json"):
                    data = row[name] if isinstance(row[name], bytes) else row[name].encode()
                    member = tarfile.TarInfo(f"{row['__key__']}.{name}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        store.put(f"far://foreign/{shard:02}.tar", file.getvalue())
    return store


@pytest.fixture
def far(store: MemoryStore) -> CountingStore:
    return CountingStore(store)


def _open(store: Any, name: str) -> lading.Dataset:
    return lading.open(f"far://{name}", stores=Stores({"far://": store}))


def _size(store: MemoryStore, name: str) -> int:
    return sum(info.size_bytes for info in store.walk(f"far://{name}") if "_lading" not in info.path)


def _keys(loader: Any) -> list[str]:
    return [key for batch in loader for key in batch["__key__"]]


def _read(far: CountingStore, name: str, world: int, **options: Any) -> tuple[list[str], int, int]:
    """The keys that all ranks give, each with a dataset of its own, and the bytes and requests of all."""
    found: list[str] = []
    for rank in range(world):
        loader = lading.loader(_open(far, name), _BATCH, rank=rank, world_size=world, decode=False, **options)
        found += _keys(loader)
    return found, far.bytes_read, far.requests["get_ranges"]


@pytest.mark.soak
@pytest.mark.parametrize("world, most", [(1, 1.1), (4, 1.2)])
@pytest.mark.parametrize("shuffle", ["block", False])
@pytest.mark.parametrize("name", [*_RANGES, *_UNITS])
def test_each_block_is_read_once(far: CountingStore, name: str, shuffle: Any, world: int, most: float) -> None:
    size = _size(far.inner, name)
    listed = {"jsonl": size}.get(name, 0)  # lines are found by a pass over the file
    if shuffle is False and name in _UNITS:
        most *= world  # in the order of the source, ranks take turns: each reads all units
    keys, read, requests = _read(far, name, world, shuffle=shuffle)
    assert sorted(keys) == _KEYS
    assert read - world * listed * 1.1 <= most * size + world * _SHARDS * _HEADS
    assert requests <= world * (12 * _SHARDS) + 1.2 * _COUNT


@pytest.mark.soak
@pytest.mark.parametrize("name", ["webdataset", "mds", "arrow"])
def test_a_global_shuffle_reads_little_more_than_its_samples(far: CountingStore, name: str) -> None:
    keys, read, requests = _read(far, name, 4, shuffle="global")
    assert sorted(keys) == _KEYS
    assert read <= 1.5 * _size(far.inner, name) + 4 * _SHARDS * _HEADS
    assert requests <= 4 * 6 * _SHARDS + 1.2 * _COUNT


def test_tars_without_an_index_are_walked_over_once(far: CountingStore) -> None:
    dataset, size = _open(far, "foreign"), _size(far.inner, "foreign")
    looked = far.bytes_read
    assert len(dataset) == _COUNT
    assert far.bytes_read - looked <= 1.05 * size
    far.reset()
    assert sorted(_keys(lading.loader(dataset, _BATCH, shuffle="block", decode=False))) == _KEYS
    assert far.bytes_read <= 1.05 * size


@pytest.mark.parametrize("name", [*_RANGES[:-1], "arrow-zstd", "parquet"])
def test_opening_reads_heads(far: CountingStore, name: str) -> None:
    loader = lading.loader(_open(far, name), 1, shuffle=False, decode=False, ahead_bytes=1)
    assert far.bytes_read <= 3 * _HEADS
    next(iter(loader))
    assert far.bytes_read <= 4 * _HEADS + 16 * _BYTES
    assert sum(far.requests.values()) <= 24


@pytest.mark.soak
@pytest.mark.parametrize("name", ["webdataset", "mds", "arrow-zstd", "parquet"])
def test_a_resumed_epoch_reads_one_round_again(far: CountingStore, name: str) -> None:
    options: dict[str, Any] = {
        "shuffle": Shuffle("block", 10, window=1, lanes=4),
        "decode": False,
        "ahead_bytes": "9MB",
    }
    first = lading.loader(_open(far, name), _BATCH, **options)
    seen: list[str] = []
    for batch in first:
        seen += batch["__key__"]
        if len(seen) == 7 * _BATCH:
            break
    loader = lading.loader(_open(far, name), _BATCH, **options)
    loader.load_state_dict(first.state_dict())
    far.reset()
    left = _keys(loader)
    assert sorted(seen + left) == _KEYS
    assert far.bytes_read <= 1.1 * (len(left) + 40) * _BYTES + _SHARDS * _HEADS


class _Failing(WrappedStore):
    """A store that fails from some request on, some times."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner, mapped=False)
        self.after = self.times = 0

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        self.after -= 1
        if self.after < 0 < self.times:
            self.times -= 1
            raise StoreError("the server is busy", file=path) from _Busy()
        return super().get_ranges(path, ranges, version)


class _Busy(Exception):
    status = 503


@pytest.mark.soak
@pytest.mark.parametrize("name", ["webdataset", "mds", "arrow", "parquet"])
def test_a_busy_server_is_asked_again_or_is_an_error_that_names_the_shard(store: MemoryStore, name: str) -> None:
    failing = _Failing(store)
    patient = RetryingStore(failing, Retries(sleep=lambda _: None))
    loader = lading.loader(_open(patient, name), _BATCH, shuffle="block", decode=False, ahead_bytes="2MB")
    failing.after, failing.times = 8, 3
    assert sorted(_keys(loader)) == _KEYS
    assert failing.times == 0
    loader = lading.loader(_open(failing, name), _BATCH, shuffle="block", decode=False, ahead_bytes="2MB")
    failing.after, failing.times = 8, 1 << 30
    with pytest.raises(StoreError, match="the server is busy") as raised:
        _keys(loader)
    assert f"far://{name}/" in str(raised.value.file)


@pytest.fixture
def copied(store: MemoryStore, tmp_path: Path) -> Path:
    """A copy of remote tars on the local disk."""
    for name in ("foreign", "webdataset"):
        for info in store.walk(f"far://{name}"):
            file = tmp_path / info.path.removeprefix("far://")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(store.get_ranges(info.path, np.array([[0, info.size_bytes]]))[0]))
    return tmp_path


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_state_moves_between_a_store_and_a_copy(store: MemoryStore, copied: Path, shuffle: bool) -> None:
    options: Any = {"shuffle": shuffle, "seed": 3, "columns": ["__key__"]}
    there = [
        lambda size, name=name: lading.loader(_open(store, name), size, **options) for name in ("foreign", "webdataset")
    ]
    here = [lambda size, name=name: lading.loader(copied / name, size, **options) for name in ("foreign", "webdataset")]
    both = [lading.mix({"a": (each(1).datasets[0].query, 1)}, seed=3) for each in (there[0], here[0])]
    there.append(lambda size: lading.loader(both[0], size, shuffle=shuffle, columns=["__key__"]))
    here.append(lambda size: lading.loader(both[1], size, shuffle=shuffle, columns=["__key__"]))
    for one, other in zip([*there, *here], [*here, *there], strict=True):
        whole, loader = _keys(one(8)), one(8)
        first = next(iter(loader))["__key__"]
        again = other(8)
        again.load_state_dict(loader.state_dict())
        assert first + _keys(again) == whole
        assert again.state_dict()["shuffle"] == loader.state_dict()["shuffle"]


def test_a_shuffle_that_the_user_chose_is_not_changed_by_a_state(store: MemoryStore, copied: Path) -> None:
    state = lading.loader(_open(store, "foreign"), 8, shuffle=True).state_dict()
    with pytest.raises(UsageError, match="the shuffle differs"):
        lading.loader(copied / "foreign", 8, shuffle="global").load_state_dict(state)
    with pytest.raises(UsageError, match="this is no state of a loader"):
        lading.loader(copied / "foreign", 8, shuffle=True).load_state_dict({**state, "shuffle": 5})


def test_states_of_remote_data_that_0_1_made_are_accepted(store: MemoryStore) -> None:
    loader = lading.loader(_open(store, "foreign"), 8, columns=["__key__"])
    names = "\0".join(["samples", *(f"n/{shard:02}.tar" for shard in range(_SHARDS))])  # "foreign", one character short
    sizes = [info.size_bytes for info in store.walk("far://foreign")]
    numbers = np.array([*range(10, _COUNT + 1, 10), *sizes], "<i8")
    old = xxhash.xxh3_64_hexdigest(names.encode() + numbers.tobytes())
    assert old != loader.state_dict()["fingerprint"]
    loader.load_state_dict({**loader.state_dict(), "fingerprint": old, "position": 24})
    assert next(iter(loader))["__key__"] == _KEYS[24:32]
