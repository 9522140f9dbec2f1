"""Threads for work that nobody may want any more: a loop that is left early, a store that does not answer.

They are daemons, because Python waits without end for others: Ctrl-C would wait for a server. Python ends a daemon at
exit, wherever it next asks for the interpreter's lock. In C++ of torch that aborts the process. So the end of the
process waits for functions of the user, and lets what runs longer do no harm (`_leave`).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread, local
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar
from weakref import WeakSet

from lading._core.storage.traffic import counted_too

__all__ = ["Running", "Threads", "refuse_left"]

_T = TypeVar("_T")
_Task: TypeAlias = tuple[Future[Any], Callable[[], Any]]

_WAIT: Final = "LADING_EXIT_WAIT_S"
_FUNCTION_S: Final = 30.0
"""How long the end of the process waits for functions of the user, unless the environment says otherwise."""
_READ_S: Final = 1.0
"""How long it waits for all else: a store may never answer."""
_LOOK_S: Final = 0.1
_FORK_S: Final = 5.0
"""How long a fork waits for tasks that run: a lock that one of them holds would never be free in the child."""


class _Left(BaseException):
    """Ends a task whose result nobody takes; no handler of errors is for it."""


@dataclass(slots=True, eq=False)
class _Tasks:
    """What the threads of a pool do, and whether the pool was stopped."""

    queue: SimpleQueue[_Task | None] = field(default_factory=SimpleQueue)
    stopped: bool = False


class Threads:
    """Threads that do tasks in their order. They are started as they are needed, and end with `stop`.

    A fork waits for the tasks that run at the moment, for five seconds at most. The child has none of the threads.

    Args:
        count: threads, at most.
        name: of the threads.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._tasks, self._lock = _Tasks(), Lock()
        self._workers: list[_Worker] = []
        _pools.add(self)

    def submit(self, task: Callable[[], _T]) -> Future[_T]:
        """The result of a task that a thread does later. A task that comes after `stop` is cancelled."""
        future: Future[_T] = Future()
        with self._lock:  # nothing comes into the queue behind what ends the threads
            if self._tasks.stopped:
                future.cancel()
                return future
            self._tasks.queue.put((future, counted_too(task)))
            if len(self._workers) < self._count:
                self._workers.append(_Worker(self._tasks, f"{self._name}_{len(self._workers)}"))
        return future

    def stop(self) -> None:
        """Cancel the tasks that have not begun, and end those that run before their next function (`Running`).

        Nobody waits for the threads. A second call does nothing: it may come when Python has cleared this module.
        """
        with self._lock:
            if self._tasks.stopped:
                return
            self._tasks.stopped = True
        with suppress(Empty):
            while (task := self._tasks.queue.get_nowait()) is not None:
                task[0].cancel()
        for _ in self._workers:
            self._tasks.queue.put(None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the threads have ended."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for worker in self._workers:
            worker.join(None if until is None else max(until - time.monotonic(), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def __del__(self) -> None:
        self.stop()


class Running:
    """Says that this thread calls a function of the user: the body of a `with`.

    The end of the process waits for the function, and names it if it does not end. In a thread of a pool that was
    stopped, the task ends instead.

    Args:
        function: the function.
    """

    __slots__ = ("_functions", "_of")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._of = function
        self._functions: list[Callable[..., Any]] | None = None

    def __enter__(self) -> None:
        worker: _Worker | None = getattr(_here, "worker", None)
        if worker is not None:
            refuse_left()
            self._functions = worker.functions
            self._functions.append(self._of)

    def __exit__(self, *_: object) -> None:
        if self._functions is not None:
            self._functions.pop()


def refuse_left() -> None:
    """End the task of this thread if its pool was stopped."""
    worker: _Worker | None = getattr(_here, "worker", None)
    if worker is not None and worker.tasks.stopped:
        raise _Left


class _Worker(Thread):
    """A thread of a pool. It is held until it has ended, whatever becomes of the pool.

    Attributes:
        tasks: what it does.
        busy: held while it does a task.
        functions: of the user, that it runs: each one is called by the one before.
    """

    def __init__(self, tasks: _Tasks, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.tasks, self.busy = tasks, RLock()
        self.functions: list[Callable[..., Any]] = []
        _workers.add(self)
        atexit.unregister(_end)
        atexit.register(_end)  # the last that is registered is the first that is called: the libraries still work
        self.start()

    def run(self) -> None:
        """Do tasks until there is none."""
        _here.worker = self
        while (task := self.tasks.queue.get()) is not None:
            future, call = task
            with self.busy:
                if future.set_running_or_notify_cancel():
                    try:
                        result = call()
                    except BaseException as error:  # noqa: BLE001 - raised by `result`
                        future.set_exception(error)
                    else:
                        future.set_result(result)
                        del result
            del task, future, call  # what they hold, while the thread waits for the next
        _workers.discard(self)


_pools: WeakSet[Threads] = WeakSet()
_workers: set[_Worker] = set()
_held: list[Any] = []
_here = local()


def _end() -> None:
    """Wait for tasks that run. A Ctrl-C ends the wait."""
    for pool in list(_pools):
        pool.stop()
    begun, most = time.monotonic(), _wait_s()
    running, functions = [*_workers], list[str]()
    with suppress(KeyboardInterrupt, SystemExit):
        while running := [worker for worker in [*_workers] if worker.is_alive()]:
            functions = sorted({_name(each) for worker in running for each in worker.functions[:1]})
            left = begun + (most if functions else min(most, _READ_S)) - time.monotonic()
            if left <= 0:
                break
            running[0].join(min(left, _LOOK_S))
        if running and functions:
            _say(f"{', '.join(functions)} did not end within {most:g} s, and is cut off; {_WAIT} sets the time")
    if running:
        _leave()


def _wait_s() -> float:
    text = os.environ.get(_WAIT, "")
    with suppress(ValueError):
        if (found := float(text or _FUNCTION_S)) >= 0:
            return found
    _say(f"{_WAIT} must be a number of seconds, from 0; found {text!r}, so {_FUNCTION_S:g} is used")
    return _FUNCTION_S


def _say(text: str) -> None:
    with suppress(AttributeError, OSError, ValueError):  # standard error may be gone
        sys.stderr.write(f"lading: {text}\n")


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}".removeprefix("__main__.")


def _leave() -> None:
    """Let the process end while threads run.

    A thread that C++ does not let Python end waits for ever, where it would abort the process. Nothing of C libraries
    runs at the very end: OpenBLAS waits there for calculations of threads that are no more.
    """
    libc = ctypes.CDLL(None)
    with suppress(AttributeError):  # another C library than that of GNU, which ends threads without C++
        libc.on_exit(libc._exit, None)  # noqa: SLF001 - the name of the function
    with suppress(AttributeError, OSError):
        ctypes.CDLL("libstdc++.so.6")._ZSt13set_terminatePFvvE(libc.pause)  # noqa: SLF001 - std::set_terminate


def _before_fork() -> None:
    until = time.monotonic() + _FORK_S
    locks = [worker.busy for worker in [*_workers]]
    _held.extend(lock for lock in locks if lock.acquire(timeout=max(until - time.monotonic(), 0)))


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    _held.clear()
    _pools.clear()
    _workers.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
