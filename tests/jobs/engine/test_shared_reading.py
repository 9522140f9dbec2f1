"""Jobs that only read, by workers and by executors: the results are those of one process."""

from __future__ import annotations

import gc
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import lading
from counted_files import CountedFiles
from damage import break_header
from lading._core.dataset.query import Query, open_shards
from lading._core.jobs.engine import executors, progress, reading
from lading._core.jobs.engine.read_task import ReadWorker
from lading._core.jobs.engine.read_workers import ReadWorkers
from lading._core.jobs.engine.reading import Reading
from lading._core.jobs.stats.stats import dataset_stats
from lading._core.jobs.verify.digest import begin_digest
from lading.errors import CorruptShard, UsageError


@pytest.fixture(autouse=True)
def _each_shard_is_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_TASK_SHARDS", 1)


@pytest.fixture
def many(docs: Path, tmp_path: Path) -> Path:
    """The documents in some ten small tars, whose indexes nobody keeps."""
    lading.convert(docs, tmp_path / "in", format="webdataset", shard_size="150kb")
    (tmp_path / "tars").mkdir()
    for tar in (tmp_path / "in").glob("*.tar"):
        tar.rename(tmp_path / "tars" / tar.name)
    return tmp_path / "tars"


def _verified(source: Any, **how: Any) -> dict[str, Any]:
    return {**asdict(lading.verify(source, **how)), "seconds": 0}


@pytest.mark.soak
@pytest.mark.filterwarnings("default")
def test_all_of_them_find_the_same_in_any_executor(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        ways: list[dict[str, Any]] = [{"workers": 1}, {"executor": "threads"}, {"executor": threads},
                                      {"executor": processes}]  # fmt: skip
        for way, how in enumerate(ways):
            monkeypatch.setenv("LADING_CACHE", str(tmp_path / f"cache-{way}"))
            digest, stats = lading.digest(many, **how), dataset_stats(many, **how)
            verified, index = _verified(many, **how), lading.index(many, **how)
            kept = sorted(path.name for path in (tmp_path / f"cache-{way}").rglob("*") if path.is_file())
            with lading.open(many) as ds:
                keys = [ds[number]["sample_id"] for number in range(index.samples)]
            found.append((digest.to_json(), stats, verified, (index.samples, index.kept, index.shards), kept, keys))
        monkeypatch.chdir(many.parent)  # the processes stand in another folder
        assert lading.digest("tars", executor=processes).to_json() == found[0][0]
    assert found[1:] == found[:1] * 3
    assert found[0][3][1] == len(found[0][4]) == len(list(many.glob("*.tar")))


@pytest.mark.soak
def test_workers_that_are_far_ahead_wait_for_the_others(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, most = lading.digest(many, workers=1).to_json(), list[int]()

    class Watched(executors.ExecutorPool):
        def _has_room(self) -> bool:
            most.append(len(self._finished))
            return super()._has_room()

    monkeypatch.setattr(executors, "_AHEAD", 0.5)  # so the answers of one of two are held back
    monkeypatch.setattr(executors, "ExecutorPool", Watched)
    monkeypatch.setattr(progress.Speed, "is_worth_workers", lambda _: True)
    assert lading.digest(many, workers=2).to_json() == expected
    assert most
    assert max(most) <= 2


@pytest.mark.soak
def test_an_index_that_is_kept_is_not_made_again(many: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("LADING_CACHE", str(cache))
    first = lading.index(many, executor="threads")
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert lading.index(many, executor="threads") == first
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


def test_bad_shards_are_findings_errors_or_left_out(docs: Path, tmp_path: Path) -> None:
    lading.convert(docs, tmp_path / "in", format="webdataset", shard_size="150kb")
    bad = sorted((tmp_path / "in").glob("*.tar"))[4]
    break_header(bad)
    source = str(tmp_path / "in" / "*.tar")
    alone, shared = _verified(source, workers=1), _verified(source, executor="threads")
    assert alone == shared
    assert bad.name in str(shared["findings"])
    for job in (lading.digest, dataset_stats, lading.index):
        with pytest.raises(CorruptShard, match=bad.name):
            job(source, executor="threads")
        with pytest.warns(UserWarning, match=bad.name):
            job(source, executor="threads", on_bad_shard="skip")


def test_what_an_executor_cannot_reach_is_refused(docs: Path) -> None:
    lading.convert(docs, "memory://shared-reading", format="webdataset")
    with pytest.raises(UsageError, match="in memory"):
        lading.digest("memory://shared-reading", executor="threads")
    for options in ({"executor": "spark"}, {"address": "10.0.0.1:6379"}, {"workers": 0}):
        with pytest.raises(UsageError, match=r"executor|workers|cluster"):
            lading.digest(docs, **options)


@pytest.mark.soak
def test_a_process_lists_the_source_once_a_run(many: Path) -> None:
    expected = lading.digest(many, workers=1).to_json()
    CountedFiles.begin()
    lading.open(f"counted://{many}")
    once = CountedFiles.listings
    for _ in range(2):
        CountedFiles.begin()
        with ThreadPoolExecutor(2) as executor:
            assert lading.digest(f"counted://{many}", executor=executor).to_json() == expected
        assert 2 * once <= CountedFiles.listings <= (2 + 1) * once  # this process plans, two threads read
        assert not [each for each in gc.get_objects() if type(each) is ReadWorker]


def test_a_process_keeps_the_workers_of_the_last_runs_of_others(many: Path) -> None:
    with open_shards(many) as dataset:
        sent = Reading(begin_digest, Query.of(many)).encode(dataset)
    workers = ReadWorkers()
    with workers.worker("first run", sent) as one, workers.worker("first run", sent) as another:
        assert one is not another
    with workers.worker("first run", sent) as again:
        assert again in (one, another)
    with workers.worker("second run", sent) as later:
        assert later not in (one, another)
    with pytest.raises(ZeroDivisionError), workers.worker("second run", sent):
        1 / 0  # noqa: B018 - a task that fails
    with workers.worker("second run", sent) as new, workers.worker("first run", sent) as old:
        assert new not in (one, another, later)
        assert old in (one, another)  # tasks of two jobs take turns
    with workers.worker("third run", sent), workers.worker("first run", sent), workers.worker("fourth run", sent):
        pass
    with workers.worker("first run", sent) as kept, workers.worker("second run", sent) as newest:
        assert kept in (one, another)
        assert newest is not new  # its run was the least recently used one


@pytest.mark.soak
def test_an_executor_gets_every_task(many: Path) -> None:
    class Counting(ThreadPoolExecutor):
        calls = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return super().submit(fn, *args, **kwargs)

    executor: Executor
    with Counting(2) as executor:
        lading.digest(many, executor=executor)
    assert executor.calls == len(list(many.glob("*.tar")))
