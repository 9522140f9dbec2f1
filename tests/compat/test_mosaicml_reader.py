"""`Reader`, sentence by sentence as the peer documents it, and a `LocalCopy` that fetches its shards."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.compat.mosaicml import FileInfo, Reader, reader_from_json
from lading.errors import DataError, NotFound, SidecarMismatch, SourceNotFound, UsageError


class _Words(Reader):
    """The smallest subclass: two methods, and the six arguments."""

    def get_sample_data(self, idx: int) -> bytes:
        return f"word {idx}".encode()

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        return {"text": data.decode()}


def _words(tmp_path: Path, compression: str | None = None) -> _Words:
    """A reader of two files in the split `train`, unpacked and compressed ones."""
    reader = _Words(str(tmp_path), "train", compression, ["sha1"], 3, "100kb")
    packed = FileInfo("a.zip", 3, {}) if compression else None
    reader.file_pairs += [
        (FileInfo("a.raw", 10, {}), packed),
        (FileInfo("b.raw", 20, {}), packed and FileInfo("b.zip", 4, {})),
    ]
    (tmp_path / "train").mkdir()
    for pair in reader.file_pairs:
        for file in filter(None, pair):
            (tmp_path / "train" / file.basename).write_bytes(bytes(file.bytes))
    return reader


def _listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}


# class Reader(dirname, split, compression, hashes, samples, size_limit)


def test_the_six_arguments_are_enough() -> None:
    reader = _Words("set", None, None, [], 3, None)
    assert (reader.dirname, reader.split, reader.compression, reader.hashes) == ("set", "", None, [])
    assert (reader.samples, reader.size_limit, reader.size, len(reader)) == (3, None, 3, 3)
    assert (reader.get_raw_size(), reader.get_zip_size(), reader.get_max_size(), reader.evict()) == (0, None, 0, 0)
    named = _Words(dirname="set", split="val", compression="zstd:7", hashes=["md5"], samples=1, size_limit=1 << 26)
    assert (named.split, named.compression, named.hashes, named.size_limit) == ("val", "zstd:7", ["md5"], 1 << 26)


def test_a_size_limit_in_human_readable_format() -> None:
    assert _Words("set", None, None, [], 3, "100kb").size_limit == 100 * 1024
    for wrong in ("many", -1):
        with pytest.raises(ValueError, match="size"):
            _Words("set", None, None, [], 3, wrong)


def test_get_sample_data_and_decode_sample_are_abstract() -> None:
    assert Reader.__abstractmethods__ == {"get_sample_data", "decode_sample"}
    with pytest.raises(TypeError, match="abstract"):
        Reader("set", None, None, [], 3, None)  # type: ignore[abstract] # what is refused

    class Super(_Words):
        def decode_sample(self, data: bytes) -> dict[str, Any]:
            return Reader.decode_sample(self, data)  # type: ignore[safe-super] # what is refused

    with pytest.raises(NotImplementedError):
        Super("set", None, None, [], 3, None)[0]


def test_random_access_to_the_samples_of_a_shard() -> None:
    reader = _Words("set", None, None, [], 3, None)
    assert reader.get_item(1) == reader[1] == reader[-2] == reader[np.int64(1)] == {"text": "word 1"}
    every = [{"text": f"word {i}"} for i in range(3)]
    assert list(reader) == reader[:] == reader[[0, 1, 2]] == reader[np.arange(3)] == every
    assert reader[::-2] == [every[2], every[0]]
    assert reader[[[0], [2, 1]]] == [[every[0]], [every[2], every[1]]]
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            reader[wrong]
    for odd in ("text", 1.5, None):
        with pytest.raises(ValueError, match="number"):
            reader[odd]


# Sizes


def test_raw_zip_max_and_persistent_size(tmp_path: Path) -> None:
    reader = _words(tmp_path, "zstd")
    assert (reader.get_raw_size(), reader.get_zip_size(), reader.get_max_size()) == (30, 7, 37)
    assert (reader.get_persistent_size(keep_zip=True), reader.get_persistent_size(keep_zip=False)) == (37, 30)


def test_zip_size_is_none_without_compression(tmp_path: Path) -> None:
    reader = _words(tmp_path)
    assert (reader.get_zip_size(), reader.get_max_size(), reader.get_persistent_size(keep_zip=True)) == (None, 30, 30)


# Files


def test_evict_removes_all_files_of_the_shard_and_gives_the_bytes(tmp_path: Path) -> None:
    reader = _words(tmp_path, "zstd")
    (tmp_path / "train" / "other").write_bytes(b"stays")
    (tmp_path / "train" / "b.zip").unlink()
    assert reader.evict() == 33
    assert os.listdir(tmp_path / "train") == ["other"]
    assert reader.evict() == 0


@pytest.mark.parametrize(
    "compression, keep, there, left",
    [
        ("zstd", True, "a.raw b.raw a.zip b.zip", "a.raw b.raw a.zip b.zip"),
        ("zstd", True, "a.raw b.raw", ""),  # "necessary when local is the remote": what is not there in both is nothing
        ("zstd", True, "a.zip b.zip", "a.zip b.zip"),
        ("zstd", False, "a.raw b.raw", "a.raw b.raw"),
        ("zstd", False, "a.zip b.zip", "a.zip b.zip"),
        ("zstd", False, "a.raw a.zip b.zip", "a.zip b.zip"),
        ("zstd", True, "a.raw b.raw a.zip", ""),
        (None, True, "a.raw b.raw", "a.raw b.raw"),
        (None, False, "a.raw", ""),
        (None, False, "", ""),
    ],
)
def test_set_up_local_brings_files_to_a_consistent_state(
    tmp_path: Path, compression: str | None, keep: bool, there: str, left: str
) -> None:
    reader = _words(tmp_path, compression)
    for path in (tmp_path / "train").iterdir():
        if path.name not in there.split():
            path.unlink()
    sizes = {"a.raw": 10, "b.raw": 20, "a.zip": 3, "b.zip": 4}
    present = reader.set_up_local(_listing(tmp_path), keep)
    assert bool(present) == bool(left)
    assert present == sum(sizes[name] for name in left.split())
    assert sorted(os.listdir(tmp_path / "train")) == sorted(left.split())


def test_compressed_files_without_a_compression_are_a_value_error(tmp_path: Path) -> None:
    reader = _words(tmp_path, "zstd")
    reader.compression = None
    with pytest.raises(ValueError, match=r"a\.zip: a shard without compression has compressed files"):
        reader.set_up_local(_listing(tmp_path), safe_keep_zip=True)
    assert len(_listing(tmp_path)) == 4


# from_json


def test_from_json_gives_a_subclass_its_arguments_and_files(golden: Golden) -> None:
    folder = golden("mds") / "comp-zstd3"
    entry = json.loads((folder / "index.json").read_text())["shards"][0]
    reader = _Words.from_json(folder, None, entry)
    assert (reader.samples, reader.compression, reader.hashes) == (entry["samples"], "zstd:3", entry["hashes"])
    assert reader.file_pairs == [(FileInfo(**entry["raw_data"]), FileInfo(**entry["zip_data"]))]
    assert reader.get_max_size() == entry["raw_data"]["bytes"] + entry["zip_data"]["bytes"]
    for changes in ({"version": 1}, {"raw_data": {"basename": 3}}, {"size_limit": "much"}):
        with pytest.raises(ValueError, match="expected"):
            _Words.from_json(folder, None, {**entry, **changes})


@pytest.mark.parametrize("case", ["comp-none", "text-json", "text-xsv-zstd", "raw-and-zip"])
def test_from_json_reads_every_kind_of_shard(golden: Golden, case: str) -> None:
    folder = golden("mds") / case
    entry = json.loads((folder / "index.json").read_text())["shards"][0]
    with lading.open(folder) as dataset:
        for read in (reader_from_json, lading.compat.mosaicml.MDSShard.from_json):
            shard = read(str(folder), None, entry)
            assert isinstance(shard, Reader)
            assert repr(list(shard)) == repr([dataset[i] for i in range(len(shard))])
            assert [raw.basename for raw, _ in shard.file_pairs][-1] == entry["raw_data"]["basename"]
    with pytest.raises(ValueError, match="version"):
        reader_from_json(str(folder), None, {**entry, "version": 1})


# An opened dataset


def test_evict_on_an_opened_shard_says_how_to_get_a_local_copy(golden: Golden, tmp_path: Path) -> None:
    folder = shutil.copytree(golden("mds") / "comp-none", tmp_path / "set")
    with lading.open(folder) as dataset:
        with pytest.raises(UsageError) as caught:
            dataset.shards[1].evict()
        with pytest.raises(UsageError):
            dataset.shards[1].set_up_local(set(), safe_keep_zip=True)
    [advice] = [line for line in (caught.value.advice or "").split("`") if "LocalCopy" in line]
    assert advice == f"lading.compat.mosaicml.LocalCopy({str(folder)!r}).shards[1].evict()"
    assert eval(advice, {"lading": lading}) > 0
    lading.convert(pa_jsonl(tmp_path), tmp_path / "rows", format="parquet")
    with lading.open(tmp_path / "rows") as rows, pytest.raises(UsageError, match="MDS"):
        rows.shards[0].evict()


def pa_jsonl(tmp_path: Path) -> Path:
    """A file of one row that is not MDS."""
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n')
    return tmp_path / "a.jsonl"


def test_evict_on_an_opened_remote_shard_names_the_remote() -> None:
    with lading.writer("memory://evict/set", format="mds") as writer:
        writer.write_batch(pa.table({"n": [1]}))
    with lading.open("memory://evict/set") as dataset, pytest.raises(UsageError) as caught:
        dataset.shards[0].evict()
    assert "remote='memory://evict/set'" in str(caught.value)


# A local copy with a remote


def _remote(golden: Golden, case: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden("mds") / case, tmp_path / "remote"))


@pytest.mark.parametrize("case", ["comp-none", "comp-zstd3", "comp-br", "comp-snappy", "text-json-zstd", "raw-and-zip"])
def test_shards_are_fetched_when_a_sample_is_read(golden: Golden, case: str, tmp_path: Path) -> None:
    remote, local = _remote(golden, case, tmp_path), tmp_path / "local"
    copy = lading.compat.mosaicml.LocalCopy(local, remote=remote)
    assert os.listdir(local) == ["index.json"]
    with lading.open(remote) as dataset:
        assert len(copy) == copy.size == len(dataset)
        assert repr(copy[-1]) == repr(dataset[len(dataset) - 1])
        assert repr(copy[:3]) == repr([dataset[i] for i in range(3)])
        last = copy.shards[-1]
        raws = {os.path.basename(path) for path in last.paths(packed=False)}
        assert raws <= {*os.listdir(local)}, "unpacked, and no compressed file is kept"
        assert last.evict() == last.get_raw_size()
        assert not raws & {*os.listdir(local)}
        assert repr(list(copy)) == repr(list(dataset.samples())), "an evicted shard is fetched again"
    assert not [name for name in os.listdir(local) if name.endswith((".zstd", ".br", ".snappy", ".tmp"))]


def test_a_split_is_fetched_into_its_folder(golden: Golden, tmp_path: Path) -> None:
    copy = lading.compat.mosaicml.LocalCopy(tmp_path / "local", "val", remote=_remote(golden, "splits", tmp_path))
    with lading.open(tmp_path / "remote", split="val") as dataset:
        assert list(copy) == list(dataset)
    assert sorted(os.listdir(tmp_path / "local")) == ["val"]


def test_compressed_files_are_kept_where_asked_for(golden: Golden, tmp_path: Path) -> None:
    copy = lading.compat.mosaicml.LocalCopy(
        tmp_path / "local", remote=_remote(golden, "comp-zstd3", tmp_path), keep_zip=True
    )
    shard = copy.shards[0]
    assert copy.prepare_shard(shard) == shard.get_max_size() == shard.get_persistent_size(keep_zip=True)
    assert copy.prepare_shard(shard) == 0
    again = lading.compat.mosaicml.LocalCopy(tmp_path / "local", remote=tmp_path / "remote")
    assert again.prepare_shard(again.shards[0]) == -(shard.get_zip_size() or 0), "not kept any more"
    assert again.shards[0].evict() == shard.get_raw_size()
    # Without a remote, and where it is the folder itself, the compressed file is all that there is.
    for remote in (None, tmp_path / "remote"):
        own = lading.compat.mosaicml.LocalCopy(tmp_path / "remote", remote=remote)
        own.shards[0].prepare()
        assert all(map(os.path.exists, own.shards[0].paths(packed=True)))
        own.shards[0]._remove(packed=False)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_downloads_are_validated_by_hash(compression: str | None, tmp_path: Path) -> None:
    remote, local = tmp_path / "remote", tmp_path / "local"
    with lading.writer(remote, format="mds", options={"compression": compression, "hashes": ["sha1"]}) as writer:
        writer.write_batch(pa.table({"n": [1, 2, 3]}))
    copy = lading.compat.mosaicml.LocalCopy(local, remote=remote, validate_hash="sha1")
    shard = copy.shards[0]
    path = remote / os.path.basename((shard.paths(packed=True) or shard.paths(packed=False))[0])
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(ValueError, match="sha1") as caught:
        shard[0]
    assert isinstance(caught.value, SidecarMismatch)
    path.write_bytes(body[:-1])
    with pytest.raises(SidecarMismatch, match="size"):
        shard[0]
    assert os.listdir(local) == ["index.json"], "nothing that is damaged is kept"
    path.write_bytes(body)
    assert repr(shard[0]) == repr(lading.open(remote)[0])
    with pytest.raises(ValueError, match="no hash of this name"):
        lading.compat.mosaicml.LocalCopy(tmp_path / "other", remote=remote, validate_hash="md4").shards[0].prepare()


def test_what_is_nowhere_is_not_found(golden: Golden, tmp_path: Path) -> None:
    remote, local = _remote(golden, "comp-none", tmp_path), tmp_path / "local"
    copy = lading.compat.mosaicml.LocalCopy(local, remote=remote)
    copy[0]
    for path in remote.glob("*.mds"):
        path.unlink()
    copy[0]
    copy.shards[0].evict()
    with pytest.raises(FileNotFoundError, match="remote/shard"):
        copy[0]
    with pytest.raises(NotFound, match="remote="):
        lading.compat.mosaicml.LocalCopy(local).shards[0].prepare()
    with pytest.raises(SourceNotFound, match=r"nowhere/index\.json"):
        lading.compat.mosaicml.LocalCopy(tmp_path / "third", remote=tmp_path / "nowhere")
    with pytest.raises(IndexError):
        copy[len(copy)]


def test_a_remote_may_be_any_store(golden: Golden, tmp_path: Path) -> None:
    folder, store = golden("mds") / "comp-zstd3", MemoryStore()
    for path in folder.iterdir():
        sink = store.put_stream(f"s3://bucket/set/{path.name}")
        sink.write([path.read_bytes()])
        sink.close()
    copy = lading.compat.mosaicml.LocalCopy(tmp_path, remote="s3://bucket/set/", stores=Stores({"s3://bucket": store}))
    assert repr(list(copy)) == repr(list(lading.open(folder)))


def test_an_index_that_lies_about_an_unpacked_size(golden: Golden, tmp_path: Path) -> None:
    remote = _remote(golden, "comp-zstd3", tmp_path)
    index = json.loads((remote / "index.json").read_text())
    for change in (-1, 1):
        changed = json.loads(json.dumps(index))
        changed["shards"][0]["raw_data"]["bytes"] += change
        (remote / "index.json").write_text(json.dumps(changed))
        with pytest.raises(DataError, match="unpacks to"):
            lading.compat.mosaicml.LocalCopy(tmp_path / str(change), remote=remote)[0]


def test_shards_of_an_opened_dataset_are_indexed_alike(golden: Golden) -> None:
    with lading.open(golden("mds") / "comp-none") as dataset:
        shard, every = dataset.shards[0], [repr(sample) for sample in dataset.shards[0]]
        for index in (slice(0, 3), [0, 1, 2], np.arange(3), slice(-1, None, -2)):
            wanted = np.arange(len(shard))[index]
            assert [repr(sample) for sample in shard[index]] == [every[i] for i in wanted]
        for wrong in (len(shard), -len(shard) - 1):
            with pytest.raises(IndexError):
                shard[wrong]
        with pytest.raises(ValueError, match="number"):
            shard["text"]


def test_data_loaders_may_send_a_copy_to_their_workers(golden: Golden, tmp_path: Path) -> None:
    copy = lading.compat.mosaicml.LocalCopy(tmp_path / "local", remote=_remote(golden, "comp-zstd3", tmp_path))
    first = repr(copy[0])
    again = pickle.loads(pickle.dumps(copy))
    copy.shards[0].evict()
    assert repr(again[0]) == first
    assert repr(pickle.loads(pickle.dumps(copy.shards[1]))[0]) == repr(copy.shards[1][0])


def test_threads_may_fetch_one_shard_at_once(golden: Golden, tmp_path: Path) -> None:
    remote = _remote(golden, "comp-zstd3", tmp_path)
    with lading.open(remote) as dataset:
        expected = [repr(dataset[i]) for i in range(len(dataset))]
    copies = [lading.compat.mosaicml.LocalCopy(tmp_path / "local", remote=remote) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda copy: [repr(copy[i]) for i in range(len(copy))], copies))
    assert found == [expected] * 4


def test_reads_go_on_while_another_thread_evicts(golden: Golden, tmp_path: Path) -> None:
    remote = _remote(golden, "comp-zstd3", tmp_path)
    copy, evicting, done = lading.compat.mosaicml.LocalCopy(tmp_path / "local", remote=remote), Event(), Event()
    with lading.open(remote) as dataset:
        expected = [repr(sample) for sample in dataset]

    def evict() -> int:
        freed = 0
        while not done.is_set():
            freed += sum(shard.evict() for shard in copy.shards)
            evicting.set()
        return freed

    def read(begin: int) -> list[str]:
        evicting.wait()
        return [repr(copy[(begin + 7 * i) % len(copy)]) for i in range(100)]

    with ThreadPoolExecutor(4) as pool:
        freed, reads = pool.submit(evict), [pool.submit(read, begin) for begin in range(3)]
        try:
            found = [each.result() for each in reads]
        finally:
            done.set()
    assert found == [[expected[(begin + 7 * i) % len(copy)] for i in range(100)] for begin in range(3)]
    assert freed.result() > copy.shards[0].get_raw_size()
