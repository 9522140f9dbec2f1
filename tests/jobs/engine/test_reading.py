"""Digests and verifications by several processes: the same as by one, and what becomes of failures."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import lading
from damage import break_header
from in_process import by_tasks
from lading._core.dataset.shards import sample_digests
from lading._core.features.types import Value
from lading._core.jobs.engine import progress, reading
from lading._core.jobs.engine.executors import ExecutorPool, worker_programs
from lading._core.jobs.engine.progress import Progress
from lading._core.jobs.engine.threads import using_threads
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.caches import write_cache
from lading.errors import CorruptShard, StoreError, UsageError
from lading.limits import Limits
from processes import Watch, children, reading_workers
from tars import tar_of, write_hollow_tar, write_long_named_tars


@pytest.fixture(autouse=True)
def workers_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Every shard is a task, and workers do the first one too; of a job that is over nothing may be left."""
    monkeypatch.setattr(progress, "_WORTH_S", -1)
    monkeypatch.setattr(reading, "_TASK_BYTES", 1)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    yield
    assert children(os.getpid()) == [*(tmp_path / "temporary").iterdir()] == []


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "mds", "arrow"])
def test_the_same_digest_with_any_number_of_workers(fmt: str, docs: Path, tmp_path: Path) -> None:
    done = lading.convert(docs, tmp_path / "out", format=fmt, shard_size="150kb", verify=True)
    assert done.shards > 3
    watches = [Watch() for _ in range(3)]
    for workers, watch in enumerate(watches, 1):
        found = lading.digest(tmp_path / "out", workers=workers, on_progress=watch)
        assert (found.ordered, found.count) == (done.digest, done.samples)
        assert watch.told[-1] == watches[0].told[-1]
        assert sorted(watch.told, key=lambda p: p.samples) == watch.told
    assert [max(watch.counts) for watch in watches] == [0, 2, 3]
    assert watches[0].told[-1].shards_done == done.shards


@pytest.mark.soak
def test_workers_open_the_source_as_it_was_opened(docs: Path, tmp_path: Path) -> None:
    """The names are longer than is usual: a worker that did not know would refuse them."""
    source = sorted(docs.glob("*.tar"))
    opening: dict[str, Any] = {"view": "samples", "limits": Limits(tar_name_bytes=10_000), "mmap": False}
    found = [lading.digest(source, workers=workers, **opening) for workers in (1, 2)]
    assert found[0] == found[1] != lading.digest(source)
    long = write_long_named_tars(tmp_path)
    found = [lading.digest(long, workers=workers, **opening) for workers in (1, 2)]
    assert found[0] == found[1]
    assert found[0].count == 2


@pytest.mark.soak
def test_sources_may_come_from_a_generator(docs: Path, tmp_path: Path) -> None:
    shards = sorted(docs.glob("*.tar"))
    assert lading.verify(iter(shards), workers=1).shards == len(shards)
    assert lading.digest(iter(shards), **by_tasks(2)) == lading.digest(shards, workers=1)
    assert lading.convert(iter(shards), tmp_path / "out", format="webdataset", verify=True).verified


@pytest.mark.soak
def test_workers_take_items_as_samples(tmp_path: Path) -> None:
    """Whatever a manifest says of the items; or who opened a tar in which no document can be read."""
    options = lading.options.InterleavedOptions(per_image_fields=("w",))
    for number in range(2):
        document = {"texts": [None], "images": [f"{number}.jpg"], "w": [1]}
        (tmp_path / f"{number}.tar").write_bytes(tar_of((f"{number}.json", json.dumps(document).encode())))
        (tmp_path / f"bad-{number}.tar").write_bytes(tar_of((f"{number}.json", b'{"te')))
    shards = [tmp_path / f"{number}.tar" for number in range(2)]
    lading.convert(shards, tmp_path / "out", format="webdataset", interleaved=options, shard_size=1, on_error="warn")
    for source, opening in (
        (str(tmp_path / "out"), {"view": "samples"}),
        (str(tmp_path / "bad-{0..1}.tar"), {"interleaved": options}),
    ):
        found = [lading.digest(source, workers=workers, **opening) for workers in (1, 2)]
        assert found[0] == found[1]
        assert found[0].count == 2


@pytest.mark.soak
@pytest.mark.parametrize("deep", [True, False])
def test_the_same_findings_with_any_number_of_workers(deep: bool, docs: Path, tmp_path: Path) -> None:
    lading.convert(docs, tmp_path / "out", format="webdataset", shard_size="150kb")
    whole = [lading.verify(tmp_path / "out", deep=deep, workers=workers) for workers in (1, 2)]
    assert whole[0].ok
    assert {**asdict(whole[0]), "seconds": 0} == {**asdict(whole[1]), "seconds": 0}
    shards = sorted((tmp_path / "out").glob("*.tar"))
    for number in (1, 3):
        break_header(shards[number])
    shards[2].unlink()
    watch = Watch()
    found = [lading.verify(tmp_path / "out", deep=deep, workers=workers, on_progress=watch) for workers in (1, 2)]
    assert {**asdict(found[0]), "seconds": 0} == {**asdict(found[1]), "seconds": 0}
    named = {Path(str(finding["file"])).name for finding in found[0].findings}
    assert named == {shard.name for shard in shards[1:4]}  # the index is right, whatever became of them
    assert max(watch.counts) == 2
    few = [lading.verify(tmp_path / "out", deep=deep, workers=n, max_findings=1) for n in (1, 2)]
    assert (few[0].findings, few[0].more) == (few[1].findings, few[1].more)
    assert [Path(str(finding["file"])).name for finding in few[0].findings] == [shard.name for shard in shards[1:4]]
    assert few[0].problems == found[0].problems


@pytest.mark.soak
def test_a_bad_shard_is_the_same_error(docs: Path, tmp_path: Path) -> None:
    lading.convert(docs, tmp_path / "out", format="webdataset", shard_size="150kb")
    bad = sorted((tmp_path / "out").glob("*.tar"))[2]
    break_header(bad)
    told = []
    for workers in (1, 2):
        with pytest.raises(CorruptShard) as caught:
            lading.digest(tmp_path / "out", workers=workers)
        told.append(caught.value.to_dict())
    assert told[0] == told[1]
    assert told[0]["file"] == str(bad)


@pytest.mark.soak
@pytest.mark.parametrize("deaths, members", [(1, 20), (99, 200)])
def test_a_task_whose_worker_is_killed_is_tried_again_and_named_at_last(
    deaths: int, members: int, tmp_path: Path
) -> None:
    for number in range(4):
        write_hollow_tar(tmp_path / f"large-{number}.tar", members, 16 << 20)
    source = str(tmp_path / "large-{0..3}.tar")
    killed: list[int] = []

    def kill(_: Progress) -> None:
        for pid in reading_workers(os.getpid(), "/large-")[:1] if len(killed) < deaths else ():
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    if deaths == 1:
        assert lading.digest(source, workers=2, on_progress=kill) == lading.digest(source, workers=1)
        assert len(killed) == 1
        return
    with pytest.raises(StoreError, match=r"large-\d\.tar: a worker process died; found signal 9 \(SIGKILL\)"):
        lading.digest(source, workers=2, on_progress=kill)
    assert len(killed) > 3


@pytest.mark.soak
def test_what_workers_could_not_reach_is_refused_or_done_alone(docs: Path, tmp_path: Path) -> None:
    """Only who asks for workers is told that there can be none."""
    store = MemoryStore()
    stores = Stores({"box://": store})
    lading.convert(docs, "box://out", format="webdataset", shard_size="150kb", stores=stores)
    with pytest.raises(UsageError, match="stores of your own"):
        lading.digest("box://out", stores=stores, workers=2)
    with pytest.raises(UsageError, match="stores of your own"):
        lading.verify("box://out", stores=stores, workers=2)
    with pytest.raises(UsageError, match="workers must be 1 or more"):
        lading.verify("box://out", stores=stores, workers=0)
    watch = Watch()
    assert lading.digest("box://out", stores=stores, on_progress=watch) == lading.digest(docs)
    assert max(watch.counts) == 0


@pytest.mark.soak
def test_a_source_that_changes_before_workers_open_it_is_an_error(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = sorted(docs.glob("*.tar"))
    folder = tmp_path / "growing"
    folder.mkdir()
    for number in range(9):
        (folder / f"{number}.tar").symlink_to(shards[0])

    def grow(told: Progress) -> None:
        if told.shards_done == 1 and not (folder / "99.tar").exists():
            monkeypatch.setattr(progress, "_WORTH_S", -1)
            (folder / "99.tar").symlink_to(shards[0])

    monkeypatch.setattr(progress, "_WORTH_S", 1e9)  # the first shards are looked at here
    monkeypatch.setattr(sample_digests, "DIGEST_BYTES", 1)
    with pytest.raises(StoreError, match="the source changed while it was read"):
        lading.digest(folder, workers=2, on_progress=grow)


def test_no_place_for_what_workers_leave_is_an_error_that_names_it(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreError, match="gone"):
        lading.digest(sorted(map(str, docs.glob("*.tar"))), workers=2)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_of_a_list_without_sizes_that_is_not_there_is_a_finding(workers: int, tmp_path: Path) -> None:
    out = tmp_path / "cache"
    write_cache(({"n": n} for n in range(30)), {"n": Value("int64")}, out, batch_size=5, shard_size=1)
    shards = sorted(out.glob("*.arrow"))
    assert len(shards) > 3
    shards[1].unlink()
    found = lading.verify(out, **by_tasks(workers))
    assert [Path(str(finding["file"])).name for finding in found.findings] == [shards[1].name]
    assert found.samples == 25


def test_where_python_has_no_name_nobody_has_to_say_that_one_process_does_it(
    docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "")
    source = sorted(map(str, docs.glob("*.tar")))
    watch = Watch()
    found = lading.digest(source, on_progress=watch)
    assert max(watch.counts) == 0
    assert found == lading.digest(source, workers=1)
    with pytest.raises(UsageError, match="cannot start worker processes"):
        lading.digest(source, workers=2)


def test_no_folder_for_temporary_files_is_an_error(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found in ['/tmp']")

    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "gettempdir", none)
        with pytest.raises(StoreError, match=r"no folder for temporary files.*TMPDIR"):
            lading.digest(sorted(map(str, docs.glob("*.tar"))), workers=2)


@pytest.mark.soak
def test_workers_take_no_more_threads_than_the_process_may(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def noting(count: int, *, lock: int | None, threads: int) -> ExecutorPool:
        asked.append(threads)
        return worker_programs(count, lock=lock, threads=threads)

    monkeypatch.setattr(reading, "worker_programs", noting)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    with using_threads(1):
        lading.digest(sorted(map(str, docs.glob("*.tar"))), workers=2)
    assert asked == [1]


@pytest.mark.soak
def test_progress_counts_shards_that_have_their_checksum(docs: Path, tmp_path: Path) -> None:
    done = lading.convert(docs, tmp_path / "out", format="webdataset", shard_size="150kb")
    for workers in (1, 2):
        watch = Watch()
        assert lading.verify(tmp_path / "out", **by_tasks(workers), on_progress=watch).ok
        last = watch.told[-1]
        assert (last.shards_done, last.samples, last.payload_bytes) == (done.shards, done.samples, done.size_bytes)
