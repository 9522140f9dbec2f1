"""Repair: damaged shards are mended in the place of the dataset, and sound ones stay as they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lading
from lading._core.storage.base import write_file
from lading._core.storage.memory import MemorySink, MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, UsageError
from tars import tar_of

FORMATS = ["webdataset", "parquet", "mds", "jsonl", "arrow", "media_archive"]


def written(out: Path, fmt: str = "webdataset", **options: object) -> Path:
    columns: dict[str, list[object]] = {"txt": [f"text {n} " * 50 for n in range(120)]}
    if fmt != "jsonl":
        random = np.random.default_rng(0)
        columns["bin"] = [random.bytes(500) for _ in range(120)]
    with lading.writer(out, format=fmt, rows_per_shard=30, options=options) as writer:
        writer.write_batch(pa.table(columns))
    return out


def shards(out: Path) -> list[Path]:
    listed = pa.ipc.open_file(out / "_lading" / "shards.arrow").read_all()
    return [out / path for path in listed["path"].to_pylist()]


def texts(out: Path) -> list[str]:
    with lading.open(out) as dataset:
        return [row["txt"] for row in dataset.with_decode(True)]


def flipped(path: Path, at: int) -> None:
    body = path.read_bytes()
    path.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])


def states(paths: list[Path]) -> list[tuple[int, int]]:
    return [(path.stat().st_ino, path.stat().st_mtime_ns) for path in paths]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.cases(3)
def test_a_damaged_shard_is_written_again_and_sound_ones_are_untouched(fmt: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out", fmt)
    (out / "README.md").write_text("about these data")
    before, paths = texts(out), shards(out)
    flipped(paths[1], len(paths[1].read_bytes()) // 2)
    sound = states([paths[0], *paths[2:]])
    planned = lading.repair(out, dry_run=True)
    assert states([paths[0], *paths[2:]]) == sound
    assert not (out / "_lading" / "lost.jsonl").exists()
    done = lading.repair(out)
    assert (planned.salvaged, planned.lost_samples) == (done.salvaged, done.lost_samples)
    assert [*done.salvaged, *done.dropped] == [str(paths[1].relative_to(out))]  # a row group may be all of a shard
    assert states([paths[0], *paths[2:]]) == sound
    after = texts(out)
    assert [text for text in before if text in after] == after  # in order
    assert len(after) == len(before) - done.lost_samples
    assert 1 <= done.lost_samples <= 30
    found = lading.verify(out, deep=True)
    assert (found.findings, found.samples) == ([], len(after))
    assert len((out / "_lading" / "lost.jsonl").read_text().splitlines()) == done.lost_entries >= 1
    assert lading.info(out).lost_samples == done.lost_samples
    assert (out / "README.md").read_text() == "about these data"
    again = lading.repair(out)
    assert (again.changes, again.ok, lading.info(out).lost_samples) == (False, True, done.lost_samples)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("fmt", ["media_archive", "webdataset"])
def test_shards_come_from_a_copy_with_the_same_bytes(fmt: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out", fmt)
    shutil.copytree(out, tmp_path / "copy")
    digest = lading.digest(out).ordered
    paths = shards(out)
    paths[0].write_bytes(paths[0].read_bytes()[:100])
    paths[2].unlink()
    done = lading.repair(out, from_copy=tmp_path / "copy")
    assert (done.copied, done.salvaged, done.ok) == ([paths[0].name, paths[2].name], [], True)
    assert lading.verify(out, deep=True).ok
    assert (lading.digest(out).ordered, lading.info(out).lost_samples) == (digest, None)


def test_a_copy_with_other_bytes_is_not_used(tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    shutil.copytree(out, tmp_path / "copy")
    name = shards(out)[1].name
    flipped(out / name, 600)
    flipped(tmp_path / "copy" / name, 9000)
    done = lading.repair(out, from_copy=tmp_path / "copy")
    assert (done.copied, done.salvaged, done.lost_samples) == ([], [name], 1)
    assert [finding["file"] for finding in done.findings] == [str(tmp_path / "copy" / name)]
    assert lading.verify(out).ok


@pytest.mark.parametrize("name", ["index.json", "_lading/manifest.json", "_lading/index-000000.arrow",
                                  "_lading/extents-000000.arrow"])  # fmt: skip
@pytest.mark.cases(4)
def test_damaged_lists_and_indexes_are_written_again(name: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    digest = lading.digest(out).ordered
    body = (out / name).read_bytes()
    (out / name).write_bytes(body[:200])
    sound = states(shards(out))
    done = lading.repair(out)
    assert (done.rewritten, done.ok, states(shards(out))) == ([name], True, sound)
    assert lading.verify(out, deep=True).findings == []
    assert lading.digest(out).ordered == digest


def test_changed_bytes_are_listed_where_only_files_have_checksums(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "out", format="webdataset", checksums="files") as writer:
        writer.write_batch(pa.table({"txt": ["one" * 100, "two" * 100]}))
    [path] = shards(tmp_path / "out")
    flipped(path, 600)
    done = lading.repair(tmp_path / "out")
    assert (done.salvaged, done.lost_entries) == ([path.name], 1)
    assert "samples with other bytes" in str(done.lost[0]["message"])
    assert lading.verify(tmp_path / "out", deep=True).ok


def test_parts_of_ranks_become_one_dataset(tmp_path: Path) -> None:
    for rank in range(2):
        with lading.writer(tmp_path / "out", format="jsonl", rank=rank) as writer:
            writer.write_batch(pa.table({"n": range(rank * 100, rank * 100 + 100)}))
    flipped(min((tmp_path / "out").glob("*.jsonl")), 5)
    done = lading.repair(tmp_path / "out")
    assert lading.verify(tmp_path / "out", deep=True).findings == []
    with lading.open(tmp_path / "out") as dataset:
        assert len(dataset) == 200 - done.lost_samples


def test_on_a_store_mended_shards_have_new_names() -> None:
    store = MemoryStore()
    stores = Stores({"box://": store})
    with lading.writer("box://data", format="webdataset", rows_per_shard=30, stores=stores) as writer:
        writer.write_batch(pa.table({"txt": [f"text {n} " * 50 for n in range(120)]}))
    before = {info.path for info in store.walk("box://data")}
    path = sorted(path for path in before if path.endswith(".tar"))[1]
    body = bytes(store.get_ranges(path, [(0, store.head(path).size_bytes)])[0])
    write_file(store, path, [body[:600] + bytes([body[600] ^ 1]) + body[601:]])
    done = lading.repair("box://data", stores=stores)
    after = {info.path for info in store.walk("box://data")}
    assert ([Path(path).name], 1) == (done.salvaged, done.lost_samples)
    assert path in before - after
    assert lading.verify("box://data", stores=stores, deep=True).findings == []
    assert not lading.repair("box://data", stores=stores).changes


class _Died(BaseException):
    pass


class _Dying(MemoryStore):
    """A store whose process dies before a change of a file."""

    left = 1000

    def put_stream(self, path: str) -> MemorySink:
        self._change()
        return super().put_stream(path)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Died


@pytest.mark.parametrize("moment", range(20))
def test_a_repair_of_a_store_that_dies_at_any_change_is_ended_by_the_next(moment: int) -> None:
    store = _Dying()
    stores = Stores({"box://": store})
    with lading.writer("box://data", format="mds", rows_per_shard=30, stores=stores) as writer:
        writer.write_batch(pa.table({"txt": [f"text {n} " * 50 for n in range(120)]}))
    path = sorted(info.path for info in store.walk("box://data") if info.path.endswith(".mds"))[1]
    body = bytes(store.get_ranges(path, [(0, store.head(path).size_bytes)])[0])
    write_file(store, path, [body[:900] + bytes([body[900] ^ 1]) + body[901:]])
    store.left = moment
    try:
        lading.repair("box://data", stores=stores)
        assert moment > 8, "fewer changes than were to be tried"
    except _Died:
        store.left = 1000
        if any(info.path.endswith("repairing.json") for info in store.walk("box://data")):
            with pytest.raises(UsageError, match="Run: lading repair box://data"):
                lading.salvage("box://data", "box://saved", stores=stores)
        lading.repair("box://data", stores=stores)
    assert lading.verify("box://data", stores=stores, deep=True).findings == []
    ledger = "box://data/_lading/lost.jsonl"
    [lost] = bytes(store.get_ranges(ledger, [(0, store.head(ledger).size_bytes)])[0]).splitlines()
    names = {info.path.rpartition("/")[2] for info in store.walk("box://data")}
    assert (b'"sample"' in lost or b'"row"' in lost, Path(path).name in names) == (True, False)
    assert not {"repairing.json", "lost.jsonl.new"} & names


def test_a_later_loss_is_listed_behind_the_earlier_one(tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    first, second, *_ = shards(out)
    flipped(first, 600)
    lading.repair(out)
    flipped(second, 600)
    assert lading.repair(out).lost_samples == 1
    entries = [json.loads(line) for line in (out / "_lading" / "lost.jsonl").read_text().splitlines()]
    assert [entry["file"] for entry in entries] == [str(first), str(second)]
    assert lading.info(out).lost_samples == 2
    assert lading.verify(out).ok


def test_what_has_no_manifest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("a.txt", b"1")))
    with pytest.raises(UsageError, match="manifest") as caught:
        lading.repair(tmp_path)
    assert "lading salvage" in str(caught.value.advice)


def test_without_any_sample_nothing_is_changed(tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    for path in shards(out):
        path.write_bytes(b"gone")
    with pytest.raises(DataError, match="no sample could be saved"):
        lading.repair(out)
    assert all(path.read_bytes() == b"gone" for path in shards(out))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.soak
def test_a_repair_that_is_killed_leaves_the_old_dataset_and_can_be_run_again(tmp_path: Path) -> None:
    out = written(tmp_path / "out")
    flipped(shards(out)[1], 600)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    script = (
        "import os, sys, lading\n"
        "from lading._core.manifest.commit import Staging\n"
        "Staging.commit = lambda self, **_: os.kill(os.getpid(), 9)\n"
        "lading.repair(sys.argv[1])\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, os.fspath(out)], check=False)
    assert killed.returncode == -9
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert lading.repair(out).lost_samples == 1
    assert lading.verify(out).ok
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
