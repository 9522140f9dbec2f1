"""Conversions in executors: the same bytes as by one process, and what becomes of lost tasks and of errors."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import lading
from damage import break_header
from lading._core.jobs.convert.tasks import Task
from lading._core.jobs.engine import executors
from lading._core.jobs.engine.executors import ExecutorPool
from lading._core.jobs.engine.messages import decode_message, encode_message
from lading._core.jobs.engine.progress import Progress, Tally
from lading._core.jobs.engine.task import SentTask
from lading._core.pipeline.cutting import ONE_SHARD
from lading.errors import CorruptShard, StoreError, UsageError


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def many(docs: Path, tmp_path: Path) -> Path:
    """The documents in some ten small tars."""
    lading.convert(docs, tmp_path / "source", format="webdataset", shard_size="150kb")
    return tmp_path / "source"


def dataset(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for the hash of its job, which tells functions apart by what they hold."""
    return {name: data for name, data in contents(folder).items() if name != "_lading/job.json"}


def spawned(count: int = 2, **more: Any) -> ProcessPoolExecutor:
    """Processes that know nothing of this one."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), **more)


def leftovers(folder: Path) -> list[str]:
    """Hidden files, in which something is built."""
    return [p.name for p in folder.iterdir() if p.name.startswith(".")]


@pytest.mark.soak
@pytest.mark.filterwarnings("default")  # each process says what it met; the sender repeats it
def test_the_same_bytes_whoever_does_the_tasks(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By relative paths too: the processes stand in another folder."""
    monkeypatch.chdir(tmp_path)
    told: list[Progress] = []

    def written(name: str, source: str = "source/*.tar", **how: Any) -> dict[str, bytes]:
        done = lading.convert(source, f"out-{name}", format="parquet", shard_size="300kb",
                              where="position >= 0", max_side=900, verify=True, ledger=f"ledger-{name}",
                              **how)  # fmt: skip
        assert done.shards > 3
        return {**contents(tmp_path / f"out-{name}"), "ledger": (tmp_path / f"ledger-{name}").read_bytes()}

    expected = written("alone")
    assert expected["ledger"]
    assert written("workers", workers=2) == expected
    assert written("processes", executor="processes") == expected
    assert written("threads", executor="threads", on_progress=told.append) == expected
    expected = written("absolute", f"{many}/*.tar")  # references to the source say where it is
    with ThreadPoolExecutor(2) as threads:
        assert written("pool", executor=threads, workers=3) == expected
    with spawned(initializer=os.chdir, initargs=("/",)) as processes:
        assert written("spawned", executor=processes) == expected
    work = [each for each in told if not each.phase]
    assert work == sorted(work, key=lambda p: p.samples)
    assert work[-1].shards_done == work[-1].num_shards > 3
    assert leftovers(tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("how", ["shuffled", "to tars", "functions"])
def test_orders_and_functions_in_executors(how: str, many: Path, tmp_path: Path) -> None:
    whole = lading.open(many, view="samples")
    chosen = {"shuffled": whole.shuffle(seed=3), "functions": whole.map(lambda s: {"n": len(s)}),
              "to tars": whole}[how]  # fmt: skip
    target = "webdataset" if how == "to tars" else "parquet"
    with spawned() as processes:
        for name, options in (("alone", {}), ("there", {"executor": processes}), ("here", {"executor": "threads"})):
            chosen.write(tmp_path / name, target, shard_size="300kb", **options)
    assert contents(tmp_path / "alone") == contents(tmp_path / "there") == contents(tmp_path / "here") != {}


class Respawning(Executor):
    """Processes; a new pool takes the place of one that a death broke."""

    def __init__(self) -> None:
        self._pool, self.submitted = spawned(1), 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.submitted += 1
        try:
            return self._pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._pool = spawned(1)
            return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def dying(marker: Path, often: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function over samples in whose process a kill comes in the middle of a task, so many times."""
    this, calls = os.getpid(), list[int]()

    def step(sample: dict[str, Any]) -> dict[str, Any]:
        calls.extend([len(sample)] if os.getpid() != this else [])
        if len(calls) == 3 and len(list(marker.iterdir())) < often:
            (marker / f"{time.monotonic_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"seen": 1}

    return step


@pytest.mark.soak
def test_a_task_whose_process_dies_is_tried_again(many: Path, tmp_path: Path) -> None:
    marker = tmp_path / "deaths"
    marker.mkdir()
    source = lading.open(many, view="samples")
    source.map(dying(marker, 0)).write(tmp_path / "alone", "parquet", shard_size="300kb")
    with Respawning() as executor:
        done = source.map(dying(marker, 2)).write(tmp_path / "out", "parquet", shard_size="300kb", executor=executor,
                                                  workers=2)  # fmt: skip
    assert len(list(marker.iterdir())) == 2
    assert executor.submitted > done.shards
    assert dataset(tmp_path / "out") == dataset(tmp_path / "alone")
    assert leftovers(tmp_path) == []


@pytest.mark.soak
def test_a_task_that_nobody_survives_is_an_error_that_names_its_shards(many: Path, tmp_path: Path) -> None:
    marker = tmp_path / "deaths"
    marker.mkdir()
    source = lading.open(many, view="samples").map(dying(marker, 99))
    with Respawning() as executor, pytest.raises(StoreError, match=r"\.tar.*: a task was lost 4 times.*BrokenProcess"):
        source.write(tmp_path / "out", "parquet", shard_size="300kb", executor=executor, workers=2)
    assert not (tmp_path / "out").exists()
    with spawned(1) as executor, pytest.raises(StoreError, match="the executor takes no more tasks"):
        source.write(tmp_path / "out", "parquet", shard_size="300kb", executor=executor)
    lading.clean(tmp_path / "out")  # finished tasks were kept
    assert leftovers(tmp_path) == []


class Bare(Executor):
    """A machine without lading: tasks fail while they are unpickled."""

    submitted = 0

    def submit(self, fn: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        self.submitted += 1
        code = "try: pickle.load(sys.stdin.buffer)\nexcept Exception as e: sys.stdout.buffer.write(pickle.dumps(e))"
        there = [sys.executable, "-I", "-S", "-c", f"import pickle, sys\n{code}"]
        future: Future[Any] = Future()
        future.set_exception(
            pickle.loads(subprocess.run(there, input=pickle.dumps(fn), check=True, capture_output=True).stdout)
        )
        return future


@pytest.mark.mechanism("a machine without lading")
def test_a_machine_without_lading_is_an_error_at_once(many: Path, tmp_path: Path) -> None:
    with Bare() as executor, pytest.raises(StoreError, match=r"\.tar.*ModuleNotFoundError: No module named 'lading'"):
        lading.convert(many, tmp_path / "out", format="parquet", view="samples", shard_size="150kb", executor=executor,
                       workers=2)  # fmt: skip
    assert executor.submitted == 2  # in flight, and none again
    assert leftovers(tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_an_error_of_a_task_is_raised_once_with_its_place(kind: str, many: Path, tmp_path: Path) -> None:
    bad = sorted(many.glob("*.tar"))[4]
    break_header(bad)
    told = []
    with ThreadPoolExecutor(2) if kind == "threads" else spawned() as executor:
        for options in ({}, {"executor": executor}):
            with pytest.raises(CorruptShard) as caught:
                lading.convert(str(many / "*.tar"), tmp_path / "out", format="webdataset", view="samples",
                               shard_size="150kb", **options)  # fmt: skip
            told.append((str(caught.value), caught.value.to_dict()))
    assert told[0] == told[1]
    assert bad.name in told[0][0]
    assert not (tmp_path / "out").exists()
    lading.clean(tmp_path / "out")  # finished tasks were kept
    assert leftovers(tmp_path) == []


def sent(task: Task) -> SentTask:
    """A task that is no task: its error comes back."""
    return SentTask({"number": task.number, "folder": "/", "shards": [], "spooled_order": None})


def some_tasks(count: int) -> list[Task]:
    """Tasks without shards."""
    return [Task(number, 0, 0, 0, ONE_SHARD) for number in range(count)]


def test_the_first_error_and_an_interrupt_cancel_what_has_not_begun() -> None:
    begun, futures, interrupts = list[int](), list[Future[Any]](), False

    class Slow(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            def call() -> Any:
                begun.append(1)
                if interrupts:
                    _wait_until(lambda: len(futures) == 4 and all(each.cancelled() for each in futures[1:]))
                return fn(*args, **kwargs)

            futures.append(super().submit(call))
            return futures[-1]

    def interrupted(task: Task) -> SentTask:
        if interrupts and task.number == 4:
            raise KeyboardInterrupt
        return sent(task)

    for error in (EOFError, KeyboardInterrupt):
        begun.clear()
        futures.clear()
        interrupts = error is KeyboardInterrupt
        with Slow(1) as executor, ExecutorPool(executor, 5, 1, owned=False) as pool, pytest.raises(error):
            list(pool.run({"conversion": ""}, some_tasks(50), interrupted, lambda _: None))
        assert len(begun) <= (1 if interrupts else 5)


def test_an_interrupt_does_not_wait_for_tasks_that_were_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker programs never look at their cancelled futures: `shutdown` ends them."""
    waited = list[list[Future[Any]]]()

    class Silent(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            return Future()

    def interrupted(task: Task) -> SentTask:
        if task.number == 2:
            raise KeyboardInterrupt
        return sent(task)

    monkeypatch.setattr(executors, "wait", lambda futures, timeout: waited.append(futures))
    with ExecutorPool(Silent(), 5, 1, owned=True) as pool, pytest.raises(KeyboardInterrupt):
        list(pool.run({"conversion": ""}, some_tasks(50), interrupted, lambda _: None))
    assert waited == [[]]


def test_one_slow_task_does_not_let_all_others_answer_before() -> None:
    told = list[int]()

    class AtOnce(Executor):
        """All but the first task end at once."""

        first: Future[bytes] | None = None

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            del fn, kwargs
            message, _ = decode_message(args[1])
            told.append(message["number"])
            future: Future[bytes] = Future()
            if self.first is None:
                self.first = future
            else:
                future.set_result(answer(told[-1]))
            return future

    def answer(number: int) -> bytes:
        return encode_message({"done": number, "tally": Tally().as_list(), "warnings": []})

    class Waiting(SimpleQueue[Any]):
        """Where the pool hears of tasks; the first one ends when nothing else is to be heard."""

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if block and self.empty():
                assert executor.first is not None, "it alone does not end by itself"
                assert told == list(range(8))
                executor.first.set_result(answer(0))
            return super().get(block, timeout)

    executor = AtOnce()
    with ExecutorPool(executor, 2, 1, owned=False, events=Waiting()) as pool:
        done = [each["done"] for each in pool.run({"conversion": ""}, some_tasks(50), sent, lambda _: None)]
    assert done == told == list(range(50))


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.002)


@pytest.mark.soak
def test_no_more_tasks_than_asked_for_are_in_flight(many: Path, tmp_path: Path) -> None:
    class Counting(ThreadPoolExecutor):
        now = most = 0
        full = threading.Event()

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.most == 3:
                self.full.set()
            future = super().submit(lambda: self.full.wait(9) and fn(*args, **kwargs))
            future.add_done_callback(self._ended)
            return future

        def _ended(self, _: Future[Any]) -> None:
            self.now -= 1

    with Counting(2) as executor:
        lading.convert(many, tmp_path / "out", format="webdataset", shard_size="15kb", executor=executor, workers=3)
    assert executor.most == 3


@pytest.mark.soak
def test_what_is_no_executor_is_refused(many: Path, tmp_path: Path) -> None:
    for options in ({"executor": "spark"}, {"executor": 3}, {"address": "10.0.0.1:6379"}):
        with pytest.raises(UsageError, match="executor"):
            lading.convert(many, tmp_path / "out", format="parquet", **options)
    lading.convert(many, "memory://executors/in", format="webdataset")
    with pytest.raises(UsageError, match="in memory"):
        lading.convert("memory://executors/in", tmp_path / "out", format="parquet", executor="threads")


@pytest.mark.soak
def test_tallies_are_of_finished_tasks(many: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    done = lading.convert(many, tmp_path / "out", format="parquet", shard_size="300kb", executor="threads",
                          on_progress=told.append)  # fmt: skip
    assert told[-1] == Progress(done.source_shards, done.source_shards, done.samples, done.payload_bytes, share=1.0)
