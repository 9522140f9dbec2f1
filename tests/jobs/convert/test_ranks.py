"""Ranks: processes that share the tasks of a conversion by their numbers, and `finish`."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lading
from killed import Killer, killer
from lading._core.jobs.convert.ranks import rank_of
from lading._core.jobs.engine.progress import Progress
from lading._core.storage.stores import Stores, resolve
from lading.errors import DestinationExists, UsageError
from lading.options import WriteOptions
from object_server import BUCKET, options
from several_tasks import contents, write_tars

_OPTIONS: dict[str, Any] = {"format": "parquet", "shard_size": "183kb"}
_ADVICE = "when all ranks are done"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five tars, which are five tasks."""
    return write_tars(tmp_path_factory.mktemp("data") / "source", 60, "200kb")


@pytest.fixture(scope="module")
def killing() -> Iterator[Killer]:
    with killer() as program:
        yield program


def test_ranks_write_the_bytes_of_one_process_and_finish_says_who_is_missing(source: Path, tmp_path: Path) -> None:
    whole = lading.convert(source, tmp_path / "whole", **_OPTIONS)
    results = tmp_path / "results"
    with pytest.raises(UsageError, match="no ranks have written"):
        lading.finish(results / "out")
    told: list[Progress] = []
    tell: dict[str, Any] = {"on_progress": told.append, **_OPTIONS}
    did = [lading.convert(source, results / "out", rank=rank, world_size=3, **tell) for rank in (2, 0)]
    assert {each.num_shards for each in told if not each.phase} == {1, 2}  # of its own shards
    assert (told[-1].shards_done, told[-1].share) == (2, 1.0)
    assert [_ADVICE in each.unfinished for each in did] == [True, True]
    with pytest.raises(UsageError, match=r"tasks 1, 4.* 1 of world_size=3"):
        lading.finish(results / "out")
    assert not (results / "out").exists()
    # An ordinary job beside them leaves their folder alone, and their records count with another number of ranks.
    lading.convert(source, results / "other", **_OPTIONS)
    did.append(lading.convert(source, results / "out", rank=0, world_size=1, **_OPTIONS))
    assert _ADVICE not in did[-1].unfinished
    assert did[-1].samples == whole.samples
    finished = lading.finish(results / "out")
    assert contents(results / "out") == contents(tmp_path / "whole")
    assert sorted(os.listdir(results)) == ["other", "out"]
    assert whole.samples_read == whole.samples == did[-1].samples_read
    same = (
        "samples", "rows", "shards", "size_bytes", "payload_bytes", "source_shards", "counts", "format", "samples_read",
    )  # fmt: skip
    assert [getattr(finished, name) for name in same] == [getattr(whole, name) for name in same]
    with pytest.raises(DestinationExists):
        lading.convert(source, results / "out", rank=0, world_size=3, **_OPTIONS)


@pytest.mark.soak
def test_finish_may_be_killed_and_repeated(source: Path, killing: Killer, tmp_path: Path) -> None:
    lading.convert(source, tmp_path / "whole", **_OPTIONS)
    ranks, counted = tmp_path / "ranks", tmp_path / "counted"
    lading.convert(source, ranks / "out", rank=0, world_size=1, **_OPTIONS)
    shutil.copytree(ranks, counted)
    _, changes = killing.convert(None, str(counted / "out"))
    for kill_at in range(4, changes, 17):
        place = tmp_path / f"killed-at-{kill_at}"
        shutil.copytree(ranks, place)
        assert killing.convert(None, str(place / "out"), kill_at)[0] == -signal.SIGKILL
        assert killing.convert(None, str(place / "out"))[0] == 0
        assert (contents(place / "out"), os.listdir(place)) == (contents(tmp_path / "whole"), ["out"]), kill_at


def test_ranks_of_other_jobs_are_an_error_of_finish(source: Path, tmp_path: Path) -> None:
    lading.convert(source, tmp_path / "out", rank=0, world_size=1, **_OPTIONS)
    with pytest.warns(UserWarning, match="ranks of another job"):
        lading.convert(source, tmp_path / "out", rank=0, world_size=1, where="txt != '7'", **_OPTIONS)
    with pytest.raises(UsageError, match=r"ranks of different jobs.*kind=Where"):
        lading.finish(tmp_path / "out")
    assert len(lading.clean(tmp_path / "out").removed) == 2
    assert os.listdir(tmp_path) == []


@pytest.mark.soak
def test_a_rank_deletes_no_record_of_files_that_it_does_not_see(source: Path, tmp_path: Path) -> None:
    """A network file system may list them later."""
    lading.convert(source, tmp_path / "out", rank=0, world_size=2, **_OPTIONS)
    [job] = tmp_path.glob(".out.lading-job-*")
    (job / "tasks").rename(tmp_path / "unseen")
    lading.convert(source, tmp_path / "out", rank=1, world_size=2, **_OPTIONS)
    with pytest.raises(UsageError, match="tasks 0, 2, 4"):
        lading.finish(tmp_path / "out")
    for attempt in (tmp_path / "unseen").iterdir():
        attempt.rename(job / "tasks" / attempt.name)
    assert lading.finish(tmp_path / "out").samples == 60


@pytest.mark.soak
def test_ranks_on_an_object_store(source: Path, tmp_path: Path, server: str) -> None:
    stores, place = {"storage_options": options(server)}, f"s3://{BUCKET}/ranks/out"
    lading.convert(source, tmp_path / "whole", **_OPTIONS)
    for rank in (1, 0):
        lading.convert(source, place, rank=rank, world_size=2, **_OPTIONS, **stores)
    lading.finish(place, **stores)
    store, _ = resolve(place, Stores.of(None, stores["storage_options"]))
    files = {info.path: info.size_bytes for info in store.walk(place.removesuffix("/out"))}
    found = {path.removeprefix(f"{place}/"): bytes(*store.get_ranges(path, [(0, files[path])])) for path in files}
    assert found == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "world_size, environment, expected",
    [
        (None, {"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        (None, {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "8"}, (4, 8)),
        # Only some tasks of an array are started again: the number is stated, and ranks are the numbers of the tasks.
        (8, {"SLURM_ARRAY_TASK_ID": "5", "SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_COUNT": "1"}, (5, 8)),
        # Of srun, whose step may have fewer processes than the job has tasks; an array's number counts first.
        (None, {"SLURM_PROCID": "3", "SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "8"}, (3, 8)),
        (None, {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8)),
        (8, {"SLURM_ARRAY_TASK_ID": "5", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (5, 8)),
        (8, {"JOB_COMPLETION_INDEX": "7"}, (7, 8)),
    ],
)
def test_the_environment_names_the_rank(
    world_size: int | None, environment: dict[str, str], expected: tuple[int, int]
) -> None:
    """Variables as torchrun, Slurm and Kubernetes document them."""
    assert rank_of(WriteOptions(format="parquet", rank="auto", world_size=world_size), environment) == expected


@pytest.mark.parametrize(
    "rank, world_size, environment, message",
    [
        ("auto", None, {}, "names no rank"),
        ("auto", None, {"JOB_COMPLETION_INDEX": "7"}, "the number of ranks is not known"),
        ("auto", None, {"RANK": "one"}, "RANK=one"),
        (8, 8, {}, "expected 0 to 7, found 8"),
        ("first", 8, {}, "rank='first'"),
    ],
)
def test_a_rank_that_is_not_known_is_an_error(
    rank: int | str, world_size: int | None, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        rank_of(WriteOptions(format="parquet", rank=rank, world_size=world_size), environment)


@pytest.mark.parametrize(
    "more", [{"verify": True}, {"dry_run": True}, {"resume": True}, {"ledger": "lost.jsonl"}, {"num_shards": 2}]
)
def test_what_one_process_must_do_is_refused(more: dict[str, Any], source: Path, tmp_path: Path) -> None:
    asked = {**_OPTIONS, "shard_size": None, **more}
    with pytest.raises(UsageError, match=r"ranks cannot do this|one process does this"):
        lading.convert(source, tmp_path / "out", rank=0, world_size=2, **asked)
    assert os.listdir(tmp_path) == []


def test_a_rank_without_a_task_says_so(tmp_path: Path) -> None:
    folder = write_tars(tmp_path / "in", 4, "1MB")
    did = [lading.convert(folder, tmp_path / "out", format="parquet", rank=rank, world_size=8) for rank in (0, 7)]
    assert "rank 0 of 8 is done" in did[0].unfinished
    assert "rank 7 of 8 has no task: the job is 1 task" in did[1].unfinished
    assert "at most 1 rank;" in did[1].unfinished
