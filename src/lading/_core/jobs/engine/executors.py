"""Tasks of a job in any executor: worker programs, threads, Dask, Ray, or another `concurrent.futures.Executor`.

A task and its answer are bytes (`_core.jobs.engine.do_task`), so an executor needs nothing but `submit`.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Self, TypeAlias, TypeVar

from lading._core.jobs.engine.dask_executor import DaskExecutor
from lading._core.jobs.engine.do_task import do_task, encode_job
from lading._core.jobs.engine.failures import Failures
from lading._core.jobs.engine.messages import decode_error, decode_message, repeat_warning
from lading._core.jobs.engine.programs import ProgramDied, WorkerPrograms
from lading._core.jobs.engine.progress import Tally
from lading._core.jobs.engine.ray_executor import RayExecutor
from lading._core.jobs.engine.task import SentTask, TaskType
from lading._core.jobs.engine.threads import threads_each
from lading._core.storage.threads import Threads
from lading.errors import LadingError, StoreError
from lading.options import WorkerOptions

__all__ = ["RETRIES", "ExecutorPool", "open_executor", "worker_programs"]

_Result = TypeVar("_Result")
_Events: TypeAlias = "SimpleQueue[Future[bytes] | Mapping[str, Any]]"

RETRIES: Final = 3
"""How often a task is tried again whose process died."""

_IN_FLIGHT: Final = 64
"""Tasks that wait or run at once in an executor that does not say how many workers it has; at least, in a cluster:
more workers may come while tasks wait."""
_AHEAD: Final = 4
"""Tasks that run, or whose answers wait for that of an earlier task, at most: so many times those in flight."""
_END_S: Final = 60.0
"""How long the end of a job waits for tasks that run. What they write later is never published."""
_CANNOT: Final = (ImportError, AttributeError, TypeError, pickle.PickleError)
"""What unpickling a task raises where lading, or what it imports, is missing: another try would fail too."""
_ADVICE: Final = (
    "Every machine needs lading and what functions import. If memory ran out, use fewer workers or smaller batches "
    "(--max-batch-bytes)."
)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One try at a task; each builds in another folder.

    Attributes:
        job: the job, as `do_task` takes it.
        sent: the task.
        retries: tries before this one.
    """

    job: bytes
    sent: SentTask
    retries: int = 0

    @property
    def task(self) -> bytes:
        """The task, as `do_task` takes it."""
        return self.sent.encode()


def worker_programs(count: int, *, lock: int | None, threads: int) -> ExecutorPool:
    """Start processes of lading's own, and return the pool of them.

    Args:
        count: number of processes.
        lock: descriptor of a lock that they hold as long as they live.
        threads: threads that each may use.
    """
    events: _Events = SimpleQueue()
    return ExecutorPool(WorkerPrograms(count, lock, events.put), 2 * count, threads, owned=True, events=events)


def open_executor(sharing: WorkerOptions, threads: int | None) -> ExecutorPool:
    """Return the pool of the executor that is asked for, other than lading's own processes.

    Args:
        sharing: names the executor, and how many tasks are in flight.
        threads: threads of each task; None takes one, because an executor has as many tasks at once as it has cores.

    Raises:
        MissingExtra: Ray or Dask is asked for, and not installed.
        StoreError: it cannot be reached.
        UsageError: Dask is asked for, and nothing tells its address.
    """
    threads = threads or 1
    if sharing.executor in ("ray", "dask"):
        cluster = (RayExecutor if sharing.executor == "ray" else DaskExecutor)(sharing.address)
        return ExecutorPool(cluster, _most(sharing, max(2 * cluster.cpus, _IN_FLIGHT)), threads, owned=True)
    if sharing.executor == "threads":
        count = _most(sharing, threads_each(1))
        return ExecutorPool(_ThreadsExecutor(count), 2 * count, threads, owned=True)
    assert isinstance(sharing.executor, Executor), "options refuse other values"
    known = getattr(sharing.executor, "_max_workers", None)  # of the standard library's, and of those made like them
    most = 2 * known if isinstance(known, int) else _IN_FLIGHT
    return ExecutorPool(sharing.executor, _most(sharing, most), threads, owned=False)


def _most(sharing: WorkerOptions, otherwise: int) -> int:
    return otherwise if sharing.workers is None or sharing.workers == 1 else sharing.workers


class _ThreadsExecutor(Executor):
    """Does tasks in threads of this process, for which its end does not wait for ever."""

    def __init__(self, count: int) -> None:
        self._pool = Threads(count, "lading-task")

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Call a function in a thread; return its future result."""
        return self._pool.submit(partial(fn, *args, **kwargs))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as of `Executor`
        """Drop what has not begun."""
        self._pool.stop()


class ExecutorPool:
    """The tasks of a job in an executor, which has `submit`. Their results come in the order of the tasks.

    Leaving a `with` cancels tasks that have not begun, and waits for those that run; those of processes of lading's own
    end at once.

    Args:
        executor: does the tasks.
        in_flight: tasks that are submitted at once, at most.
        threads: threads that each may use in another process.
        owned: whether the executor ends with this pool.
        events: tasks that have ended, and counts of those under way, for an executor that tells them.
    """

    def __init__(
        self, executor: Executor, in_flight: int, threads: int, *, owned: bool, events: _Events | None = None
    ) -> None:
        self._executor, self._in_flight, self._threads, self._owned = executor, in_flight, threads, owned
        self._events: _Events = events or SimpleQueue()
        self._running: dict[Future[bytes], _Attempt] = {}
        self._finished: dict[int, Mapping[str, Any]] = {}
        self._done, self._under_way = Tally(), dict[int, Tally]()
        self._given_warnings: dict[str | tuple[str, type[Warning], int], int] = {}

    def run(
        self,
        job: Mapping[str, Any],
        tasks: Sequence[TaskType],
        sent: Callable[[TaskType], SentTask],
        on_tally: Callable[[Tally], None],
        failures: Failures | None = None,
    ) -> Iterator[Mapping[str, Any]]:
        """Do the tasks; give the result of each in order, as soon as all results before it were given.

        Args:
            job: the conversion or the reading, under its name.
            tasks: pieces of the job.
            sent: makes the message of a task, when it is submitted.
            on_tally: called with the counts of all tasks, whenever one ends or tells its counts.
            failures: says which tasks may fail, and gets them; None lets none fail.

        Raises:
            LadingError: the first error of a task; StoreError if the process of one task died again and again.
        """
        waiting, failures, encoded = deque(tasks), failures or Failures(0), encode_job(job, self._threads)
        self._done, self._under_way = Tally(), {}
        for number in [task.number for task in tasks]:
            while number not in self._finished and number not in failures.found:
                while waiting and self._has_room():
                    self._submit(_Attempt(encoded, sent(waiting.popleft())))
                self._take_next(failures)
                on_tally(self._so_far())
            if number in self._finished:
                yield self._finished.pop(number)

    def _has_room(self) -> bool:
        """Whether another task may begin: what is kept stays small though an early task takes long."""
        running = len(self._running)
        return running < self._in_flight and running + len(self._finished) < _AHEAD * self._in_flight

    def _submit(self, attempt: _Attempt) -> None:
        try:
            future = self._executor.submit(do_task, attempt.job, attempt.task)
        except (BrokenExecutor, RuntimeError) as error:
            raise StoreError(
                "the executor takes no more tasks", file=attempt.sent.file, found=_text(error),
                advice="An executor of processes that one death breaks is no good for long jobs: executor='processes' "
                "starts another process." if isinstance(error, BrokenExecutor) else "It must be open until the end.",
            ) from error  # fmt: skip
        self._running[future] = attempt
        future.add_done_callback(self._events.put)

    def _take_next(self, failures: Failures) -> None:
        """Wait for what happens next, and take it with all that has happened."""
        event = self._events.get()
        while True:
            if isinstance(event, Future):
                if event in self._running:  # or an earlier run of this executor was left
                    self._take(event, failures)
            else:
                self._under_way[event["counted"]] = Tally(*event["tally"])
            try:
                event = self._events.get_nowait()
            except Empty:
                return

    def _take(self, future: Future[bytes], failures: Failures) -> None:
        """Take the answer of a task. Submit it again if its process died: errors of the task itself are answers."""
        attempt = self._running.pop(future)
        self._under_way.pop(attempt.sent.number, None)
        try:
            data = future.result()
        except _CANNOT as error:
            raise StoreError(
                "a worker cannot begin with a task", file=attempt.sent.file, found=_text(error),
                advice="Every machine needs the same version of lading, and what it imports.",
            ) from error  # fmt: skip
        except Exception as error:
            if attempt.retries == RETRIES or (isinstance(error, ProgramDied) and error.is_final):
                raise _lost(attempt, error) from error
            self._submit(replace(attempt, retries=attempt.retries + 1))
            return
        self._take_answer(attempt, decode_message(data)[0], failures)

    def _take_answer(self, attempt: _Attempt, answer: Mapping[str, Any], failures: Failures) -> None:
        for warning in answer["warnings"]:
            repeat_warning(warning, self._given_warnings)
        if "error" in answer:
            failed = decode_error(answer["error"])
            if "host" in answer:
                failed.add_note(f"On the host {answer['host']}.")
            if failures.try_again(attempt.sent.number, failed):
                self._submit(attempt)
            return
        self._done.add(Tally(*answer["tally"]))
        self._finished[answer["done"]] = answer

    def _so_far(self) -> Tally:
        total = Tally()
        for tally in (self._done, *self._under_way.values()):
            total.add(tally)
        return total

    def close(self) -> None:
        """Cancel what has not begun, and wait for what runs. Unfinished tasks are lost."""
        futures, self._running = list(self._running), {}
        try:
            # An executor need not say when it has seen that a future is cancelled, without which `wait` goes on.
            wait([future for future in futures if not future.cancel()], timeout=_END_S)
        finally:  # a second Ctrl-C ends the wait
            if self._owned:
                self._executor.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lost(attempt: _Attempt, error: BaseException) -> LadingError:
    """The error of a task that nobody could do."""
    if isinstance(error, ProgramDied):
        return error.error_of(attempt.sent)
    lost = f"a task was lost {RETRIES + 1} times"
    return StoreError(lost, file=attempt.sent.file, found=_text(error), advice=_ADVICE)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
