"""Tasks of a conversion in any executor: threads, processes, Dask, Ray, or another `concurrent.futures.Executor`.

A task and its answer are bytes (`_core.jobs.engine.do_task`), so an executor needs nothing but `submit`.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    wait,
)
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Self, TypeVar

from lading._core.jobs.engine.dask_executor import DaskExecutor
from lading._core.jobs.engine.do_task import do_task, encode_task
from lading._core.jobs.engine.failures import Failures
from lading._core.jobs.engine.messages import decode_error, decode_message, repeat_warning
from lading._core.jobs.engine.pool import RETRIES, Order, TaskType
from lading._core.jobs.engine.progress import Tally
from lading._core.jobs.engine.ray_executor import RayExecutor
from lading._core.jobs.engine.threads import threads_each
from lading._core.storage.threads import Threads
from lading.errors import LadingError, StoreError
from lading.options import WorkerOptions

__all__ = ["ExecutorPool", "open_executor"]

_Result = TypeVar("_Result")

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
    """One try at a task.

    Attributes:
        payload: the task, as `do_task` takes it; each try builds in another folder.
        order: the same, for errors.
        retries: tries before this one.
    """

    payload: bytes
    order: Order
    retries: int = 0


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
    """Tasks in an executor. Leaving a `with` cancels those that have not begun, and waits for those that run.

    Args:
        executor: does the tasks.
        in_flight: tasks that are submitted at once, at most.
        threads: threads that each may use in another process.
        owned: whether the executor ends with this pool.
    """

    def __init__(self, executor: Executor, in_flight: int, threads: int, *, owned: bool) -> None:
        self._executor, self._in_flight, self._threads, self._owned = executor, in_flight, threads, owned
        self._running: dict[Future[bytes], _Attempt] = {}
        self._finished: dict[int, Mapping[str, Any]] = {}
        self._done = Tally()
        self._given_warnings: dict[str | tuple[str, type[Warning], int], int] = {}

    def run(
        self,
        job: Mapping[str, Any],
        tasks: Sequence[TaskType],
        order: Callable[[TaskType], Order],
        on_tally: Callable[[Tally], None],
        failures: Failures | None = None,
    ) -> Iterator[Mapping[str, Any]]:
        """Do the tasks; give the result of each in order, as soon as all results before it were given.

        Args:
            job: the conversion, under its name.
            tasks: its pieces.
            order: makes the message of a task, when it is submitted.
            on_tally: called with the counts of all finished tasks, whenever one ends.
            failures: says which tasks may fail, and gets them; None lets none fail.

        Raises:
            LadingError: the first error of a task; StoreError if the process of one task died again and again.
        """
        waiting, failures = deque(tasks), failures or Failures(0)
        for number in [task.number for task in tasks]:
            while number not in self._finished and number not in failures.found:
                while waiting and self._has_room():
                    made = order(waiting.popleft())
                    self._submit(_Attempt(encode_task(job, made.message, made.tables, self._threads), made))
                for future in wait(self._running, return_when=FIRST_COMPLETED).done:
                    self._take(future, failures)
                on_tally(self._done)
            if number in self._finished:
                yield self._finished.pop(number)

    def _has_room(self) -> bool:
        """Whether another task may begin: what is kept stays small though an early task takes long."""
        running = len(self._running)
        return running < self._in_flight and running + len(self._finished) < _AHEAD * self._in_flight

    def _submit(self, attempt: _Attempt) -> None:
        try:
            future = self._executor.submit(do_task, attempt.payload)
        except (BrokenExecutor, RuntimeError) as error:
            raise StoreError(
                "the executor takes no more tasks", file=_files(attempt.order), found=_text(error),
                advice="An executor of processes that one death breaks is no good for long jobs: executor='processes' "
                "starts another process." if isinstance(error, BrokenExecutor) else "It must be open until the end.",
            ) from error  # fmt: skip
        self._running[future] = attempt

    def _take(self, future: Future[bytes], failures: Failures) -> None:
        """Take the answer of a task. Submit it again if its process died: errors of the task itself are answers."""
        attempt = self._running.pop(future)
        try:
            data = future.result()
        except _CANNOT as error:
            raise StoreError(
                "a worker cannot begin with a task", file=_files(attempt.order), found=_text(error),
                advice="Every machine needs the same version of lading, and what it imports.",
            ) from error  # fmt: skip
        except Exception as error:
            if attempt.retries == RETRIES:
                raise _lost(attempt, error) from error
            self._submit(replace(attempt, retries=attempt.retries + 1))
            return
        answer, _ = decode_message(data)
        for warning in answer["warnings"]:
            repeat_warning(warning, self._given_warnings)
        if "error" in answer:
            failed = decode_error(answer["error"])
            failed.add_note(f"On the host {answer['host']}.")
            if failures.try_again(attempt.order.message["number"], failed):
                self._submit(attempt)
            return
        self._done.add(Tally(*answer["tally"]))
        self._finished[answer["done"]] = answer

    def close(self) -> None:
        """Cancel what has not begun, and wait for what runs. Unfinished tasks are lost."""
        running, self._running = list(self._running), {}
        for future in running:
            future.cancel()
        try:
            wait(running, timeout=_END_S)
        finally:  # a second Ctrl-C ends the wait
            if self._owned:
                self._executor.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lost(attempt: _Attempt, error: BaseException) -> LadingError:
    """The error of a task that nobody could do."""
    return StoreError(
        f"a task was lost {RETRIES + 1} times", file=_files(attempt.order), found=_text(error), advice=_ADVICE
    )  # fmt: skip


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _files(order: Order) -> str | None:
    return " to ".join(dict.fromkeys(order.files)) or None
