"""Conversions by several processes: the same bytes as by one, and what becomes of failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from damage import break_header
from in_process import by_tasks
from lading._core.formats import registry
from lading._core.jobs.convert import schedule
from lading._core.jobs.engine import progress
from lading._core.jobs.engine.progress import Progress
from lading._core.storage.local import LocalStore
from lading._core.storage.staging import sweep_stale
from lading._core.storage.stores import Stores
from lading.errors import CorruptShard, StoreError, UsageError
from processes import Watch, busy_workers, children, gone, open_files, wait_until_gone
from tars import write_hollow_tar


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def many(docs: Path, tmp_path: Path) -> dict[str, Path]:
    """The documents in some ten small shards, as tars and as Parquet."""
    for fmt in ("webdataset", "parquet"):
        lading.convert(docs, tmp_path / fmt, format=fmt, shard_size="150kb")
    return {fmt: tmp_path / fmt for fmt in ("webdataset", "parquet")}


@pytest.mark.mechanism("workers of a conversion")
@pytest.mark.cases(1)
@pytest.mark.parametrize("start, target, view", [
    ("webdataset", "parquet", "samples"), ("parquet", "webdataset", "interleaved"),
    ("webdataset", "webdataset", "samples"), ("webdataset", "webdataset", "interleaved"),
    ("parquet", "webdataset", "samples"), ("webdataset", "parquet", "interleaved")])  # fmt: skip
def test_the_same_bytes_with_any_number_of_workers(
    start: str, target: str, view: str, docs: Path, tmp_path: Path
) -> None:
    summaries = []
    source = tmp_path / "source"
    lading.convert(docs, source, format=start, view=view, shard_size="150kb")
    for workers in (1, 3):
        done = lading.convert(source, tmp_path / f"out{workers}", format=target, view=view, shard_size="300kb",
                              workers=workers, verify=True)  # fmt: skip
        summaries.append({**asdict(done), "seconds": None})
    assert summaries[0] == summaries[1]
    assert summaries[0]["shards"] > 3
    assert summaries[0]["digest"] == lading.digest(source, view=view).ordered
    found = contents(tmp_path / "out1")
    assert found == contents(tmp_path / "out3")
    names = [name for name in found if name.startswith("shard-")]
    assert min(names).startswith("shard-000000.")
    assert len(names) == summaries[0]["shards"]
    assert lading.verify(tmp_path / "out3").ok
    assert children(os.getpid()) == []


@pytest.mark.soak
def test_foreign_tars_are_taken_as_the_first_of_them_is(docs: Path, tmp_path: Path) -> None:
    """What the first shard settles (which field names the documents) holds for all workers."""
    source = str(docs / "*.tar")
    for workers in (1, 2):
        lading.convert(source, tmp_path / f"out{workers}", format="parquet", shard_size="1mb", **by_tasks(workers),
                       columns=["title"])  # fmt: skip
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")


@pytest.mark.soak
def test_parts_of_a_dataset_through_a_remote_kind_of_store(many: dict[str, Path], tmp_path: Path) -> None:
    """fsspec's own local files: a store that gives names by moving."""
    for workers in (1, 2):
        lading.convert(many["webdataset"], f"local://{tmp_path}/out{workers}", format="parquet", shard_size="300kb",
                       workers=workers)  # fmt: skip
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2") != {}


@pytest.mark.mechanism("progress of workers")
def test_progress_is_the_sum_of_all_workers(many: dict[str, Path], tmp_path: Path) -> None:
    told: list[Progress] = []
    done = lading.convert(many["webdataset"], tmp_path / "out", format="parquet", shard_size="300kb", workers=2,
                          on_progress=told.append)  # fmt: skip
    assert told[-1] == Progress(done.source_shards, done.source_shards, done.samples, done.payload_bytes, share=1.0)
    assert done.source_shards > 3
    assert sorted(told, key=lambda p: p.samples) == told


@pytest.mark.soak
@pytest.mark.parametrize("target", ["webdataset", "parquet"])
@pytest.mark.parametrize("worth_s, most", [(1e9, 0), (0, 2)])
def test_workers_for_little_are_begun_only_when_the_first_task_shows_their_worth(
    target: str, worth_s: float, most: int, many: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_QUICK_BYTES", 1 << 40)
    monkeypatch.setattr(progress, "_WORTH_S", worth_s)
    ledger = {n: tmp_path / f"ledger{n}" for n in (1, 2)}
    watch = Watch()
    options: dict[str, Any] = {"format": target, "shard_size": "15kb", "max_side": 900}
    lading.convert(many["webdataset"], tmp_path / "out1", ledger=ledger[1], **options)
    done = lading.convert(many["webdataset"], tmp_path / "out2", ledger=ledger[2], workers=2, on_progress=watch,
                          **options)  # fmt: skip
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")
    assert ledger[1].read_bytes() == ledger[2].read_bytes() != b""
    assert watch.told[-1] == Progress(
        done.source_shards, done.source_shards, done.samples, done.payload_bytes, share=1.0
    )
    assert sorted(watch.told, key=lambda p: p.samples) == watch.told
    assert (watch.counts[0], max(watch.counts)) == (0, most)


@pytest.mark.soak
@pytest.mark.parametrize("heavy", ["compressed", "where", "verify", "compression"])
def test_workers_for_what_takes_long_are_begun_at_once(
    heavy: str, many: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_QUICK_BYTES", 1 << 40)
    source = many["webdataset"]
    options: dict[str, Any] = {
        "where": {"where": "position >= 0"}, "verify": {"verify": True},
        "compression": {"options": {"compression": "gzip"}},
    }.get(heavy, {})  # fmt: skip
    if heavy == "compressed":
        source = tmp_path / "gz"
        lading.convert(many["webdataset"], source, format="webdataset", shard_size="150kb",
                       options={"compression": "gzip"})  # fmt: skip
    watch = Watch()
    lading.convert(source, tmp_path / "out", format="webdataset", shard_size="300kb", workers=2,
                   on_progress=watch, **options)  # fmt: skip
    assert watch.counts[0] == 2


@pytest.mark.soak
def test_a_limit_takes_the_first_samples(many: dict[str, Path], tmp_path: Path) -> None:
    for workers in (1, 2):
        done = lading.convert(many["parquet"], tmp_path / f"out{workers}", format="webdataset", shard_size="300kb",
                              limit=7, workers=workers, verify=True)  # fmt: skip
        assert done.samples == 7
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")
    assert lading.digest(tmp_path / "out1").ordered == lading.digest(many["parquet"], limit=7).ordered


@pytest.mark.soak
@pytest.mark.parametrize("options", [{}, {"view": "samples"}, {"min_side": 10}, {"on_error": "drop_row"}])
@pytest.mark.parametrize("target", ["webdataset", "parquet"])
@pytest.mark.parametrize("start", ["webdataset", "parquet"])
def test_threads_change_nothing_and_are_given_back(
    start: str, target: str, options: dict[str, Any], docs: Path, tmp_path: Path
) -> None:
    """One thread writes in turn with reading, two at the same time; a store of another kind gets all from memory."""
    before = pa.cpu_count(), pa.io_thread_count()
    source = tmp_path / "source"
    view = options.get("view", "interleaved")
    lading.convert(docs, source, format=start, view=view, shard_size="150kb")
    for name, scheme, threads in (("alone", "", 1), ("both", "", 2), ("other", "local://", 2)):
        out = f"{scheme}{tmp_path / name}"
        lading.convert(source, out, format=target, shard_size="300kb", threads=threads, **{"view": view, **options})
    assert contents(tmp_path / "alone") == contents(tmp_path / "both") == contents(tmp_path / "other") != {}
    assert (pa.cpu_count(), pa.io_thread_count()) == before


class _Named:
    """A format that only this process knows."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.name = inner, "of this process"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.soak
def test_what_workers_could_not_reach_is_refused(
    many: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = many["parquet"], tmp_path / "out"
    for options in ({"workers": 0}, {"workers": -1}, {"threads": 0}):
        with pytest.raises(UsageError, match=next(iter(options))):
            lading.convert(source, out, format="webdataset", **options)
    with pytest.raises(UsageError, match="stores of your own"):
        lading.convert(source, out, format="webdataset", workers=2, stores=Stores({str(tmp_path): LocalStore()}))
    with pytest.raises(UsageError, match="in memory"):
        lading.convert(source, "memory://workers/out", format="webdataset", workers=2)
    lading.convert(source, "memory://workers/in", format="webdataset")
    with pytest.raises(UsageError, match="in memory"):
        lading.convert("memory://workers/in", out, format="parquet", workers=2)
    monkeypatch.setitem(registry._registered, "of this process", _Named(registry.get_format("parquet")))
    with pytest.raises(UsageError, match="of this process"):
        lading.convert(source, out, format="of this process", workers=2)
    assert not out.exists()
    assert children(os.getpid()) == []
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.soak
def test_a_bad_shard_is_the_same_error_and_the_old_dataset_stays(many: dict[str, Path], tmp_path: Path) -> None:
    bad = sorted(many["webdataset"].glob("*.tar"))[4]
    break_header(bad)
    lading.convert(many["parquet"], tmp_path / "out", format="parquet")
    before = contents(tmp_path / "out")
    told = []
    for workers in (1, 2):
        with pytest.raises(CorruptShard) as caught:
            lading.convert(str(many["webdataset"] / "*.tar"), tmp_path / "out", format="webdataset", view="samples",
                           shard_size="150kb", overwrite=True, workers=workers)  # fmt: skip
        told.append((str(caught.value), caught.value.to_dict()))
    assert told[0] == told[1]
    assert bad.name in told[0][0]
    assert contents(tmp_path / "out") == before
    assert children(os.getpid()) == []
    lading.clean(tmp_path / "out")  # tasks before the bad shard may have been finished: they are kept
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.mechanism("a worker that is killed")
@pytest.mark.parametrize("deaths", [2, pytest.param(99, marks=pytest.mark.soak)])
def test_a_task_whose_worker_is_killed_is_tried_again_and_named_at_last(deaths: int, tmp_path: Path) -> None:
    for number in range(4):
        write_hollow_tar(tmp_path / f"large-{number}.tar", 16, 2 << 20)
    (tmp_path / "out").mkdir()
    killed: list[int] = []

    def kill(_: Progress) -> None:
        for pid in busy_workers(os.getpid()) if len(killed) < deaths else ():
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    def written(out: str, **options: Any) -> None:
        lading.convert(str(tmp_path / "large-{0..3}.tar"), tmp_path / out, format="webdataset", max_batch_bytes="2mb",
                       shard_size="16mb", **options)  # fmt: skip

    if deaths == 2:
        written("alone")
        written("out", workers=2, on_progress=kill)
        assert len(killed) >= deaths
        assert contents(tmp_path / "out") == contents(tmp_path / "alone")
        assert children(os.getpid()) == []
        return
    with pytest.raises(StoreError, match=r"large-\d\.tar: a worker process died; found signal 9 \(SIGKILL\)") as caught:
        written("out", workers=2, on_progress=kill)
    assert len(killed) > 3
    assert caught.value.exit_status == 3
    assert children(os.getpid()) == []
    assert list((tmp_path / "out").iterdir()) == []
    lading.clean(tmp_path / "out")  # tasks whose worker lived may have been finished
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


CONVERT = """
import sys, lading
from lading._core.jobs.convert import schedule
schedule._QUICK_BYTES = 0  # workers at once, as `workers_for_little` has it for this process
lading.convert(sys.argv[1], sys.argv[2], format="webdataset", workers=2, overwrite=True, max_batch_bytes="16mb")
"""


@pytest.mark.mechanism("workers whose parent is killed")
def test_workers_end_with_whoever_started_them(many: dict[str, Path], tmp_path: Path) -> None:
    for number in range(3):
        write_hollow_tar(tmp_path / f"large-{number}.tar", 32, 32 << 20)
    lading.convert(many["parquet"], tmp_path / "out", format="parquet")
    before = contents(tmp_path / "out")
    source, out = str(tmp_path / "large-{0..2}.tar"), str(tmp_path / "out")
    job = subprocess.Popen([sys.executable, "-c", CONVERT, source, out])
    busy: list[int] = []
    while job.poll() is None and not busy:
        busy = busy_workers(job.pid)
    workers = children(job.pid)
    opened = [open_files(pid) for pid in workers]
    job.kill()
    job.wait()
    assert len(workers) == 2
    # What holds the lock is not swept, so no other job builds where a worker may still write.
    assert all(any(path.endswith(".lock") for path in paths) for paths in opened)
    wait_until_gone(workers)
    assert all(map(gone, workers))
    assert contents(tmp_path / "out") == before
    assert len(sweep_stale(out)) == 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_references_may_lead_to_the_folders_of_all_shards(workers: int, tmp_path: Path) -> None:
    for name, path in (("a", "own.png"), ("b", "../a/own.png")):
        (tmp_path / name).mkdir()
        row = {"sample_id": name, "position": 0, "modality": "image", "source_ref": f'{{"path": "{path}"}}'}
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / name / "t.parquet")
    (tmp_path / "a" / "own.png").write_bytes(b"picture")
    tables = [tmp_path / name / "t.parquet" for name in ("a", "b")]
    lading.convert(tables, tmp_path / "out", format="parquet", shard_size=1, **by_tasks(workers))
    with lading.open(tmp_path / "out") as dataset:
        found = [value for batch in dataset.batches() for value in batch["binary_content"].to_pylist()]
    assert found == [b"picture", b"picture"]
