"""Threads for reads that may take long: a process that ends does not wait for a store that does not answer.

Python waits for the threads of `concurrent.futures` before a process ends, so Ctrl-C would wait for a server.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar
from weakref import WeakSet

__all__ = ["Threads"]

_T = TypeVar("_T")
_Task: TypeAlias = tuple[Future[Any], Callable[[], Any]]

_END_S = 1.0
"""How long the end of the process waits for tasks that run: a thread that stops in the middle of native code may end
the process with an error."""
_FORK_S = 5.0
"""How long a fork waits for tasks that run: a lock that one of them holds would never be free in the child."""


class Threads:
    """Threads that do tasks in their order. They are started as they are needed, and end with `stop`.

    A fork waits for the tasks that run at the moment, for five seconds at most. The child has none of the threads.

    Args:
        count: threads, at most.
        name: of the threads.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._workers: list[_Worker] = []
        self._stopped, self._lock = False, Lock()
        _pools.add(self)

    def submit(self, task: Callable[[], _T]) -> Future[_T]:
        """The result of a task that a thread does later. A task that comes after `stop` is cancelled."""
        future: Future[_T] = Future()
        with self._lock:  # nothing comes into the queue behind what ends the threads
            if self._stopped:
                future.cancel()
                return future
            self._tasks.put((future, task))
            if len(self._workers) < self._count:
                self._workers.append(_Worker(self._tasks, f"{self._name}_{len(self._workers)}"))
        return future

    def stop(self) -> None:
        """Cancel the tasks that have not begun. Each thread ends with the task that it does; nobody waits for them."""
        with self._lock:
            self._stopped = True
        with suppress(Empty):
            while (task := self._tasks.get_nowait()) is not None:
                task[0].cancel()
        for _ in self._workers:
            self._tasks.put(None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the threads have ended."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for worker in self._workers:
            worker.thread.join(None if until is None else max(until - time.monotonic(), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()


class _Worker:
    """A thread, and the lock that it holds while it does a task."""

    __slots__ = ("__weakref__", "busy", "thread")

    def __init__(self, tasks: SimpleQueue[_Task | None], name: str) -> None:
        self.busy = RLock()
        _workers.add(self)
        self.thread = Thread(target=_work, args=(tasks, self.busy), name=name, daemon=True)
        self.thread.start()


def _work(tasks: SimpleQueue[_Task | None], busy: RLock) -> None:
    while (task := tasks.get()) is not None:
        future, call = task
        with busy:
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # noqa: BLE001 - raised by `result`
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
        del task, future, call  # what they hold, while the thread waits for the next


_pools: WeakSet[Threads] = WeakSet()
_workers: WeakSet[_Worker] = WeakSet()
_held: list[Any] = []


@atexit.register
def _end() -> None:
    pools = list(_pools)
    for pool in pools:
        pool.stop()
    until = time.monotonic() + _END_S
    for pool in pools:
        pool.wait(max(until - time.monotonic(), 0))


def _before_fork() -> None:
    until = time.monotonic() + _FORK_S
    locks = [worker.busy for worker in list(_workers)]
    _held.extend(lock for lock in locks if lock.acquire(timeout=max(until - time.monotonic(), 0)))


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    _held.clear()
    _pools.clear()
    _workers.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
