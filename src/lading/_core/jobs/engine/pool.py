"""Worker processes of a job, and their results in order.

Each worker is a program of its own (`engine.worker`). Workers inherit the lock on the folder in which the dataset
is built: while one lives, no other job takes that folder for abandoned.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self, TypeVar

import orjson
import pyarrow as pa

from lading._core.jobs.engine.failures import TASK, Failures
from lading._core.jobs.engine.messages import decode_error, repeat_warning, write_message
from lading._core.jobs.engine.progress import Tally
from lading._core.processes.program import how_it_ended, start_program
from lading.errors import CorruptShard, LadingError, StoreError

__all__ = ["RETRIES", "Crew", "Numbered", "Order", "TaskType", "Workers"]

_READ_BYTES = 1 << 16

RETRIES: Final = 3
"""How often a task is tried again whose process died."""
_AHEAD: Final = 8
"""Answers of a process, on average, that wait for that of an earlier task, before processes get no more tasks."""
_NO_TASK: Final = -1
"""The number under which deaths of processes without a task are counted."""


class Numbered(Protocol):
    """A task, of whatever job."""

    @property
    def number(self) -> int:
        """Its place among the tasks."""


TaskType = TypeVar("TaskType", bound=Numbered)
"""A task of one job."""


@dataclass(frozen=True, slots=True)
class Order:
    """A task as it is sent to a worker.

    Attributes:
        message: JSON-able values; `number` is its place among the tasks.
        tables: Arrow tables that follow the message.
        files: the first and the last file that is read, for errors.
    """

    message: Mapping[str, Any]
    tables: Sequence[pa.Table | None] = ()
    files: tuple[str, str] = ("", "")


class Crew(Protocol):
    """Whoever does the tasks of a job: `Workers`, or an executor (`_core.jobs.engine.executors`)."""

    def run(
        self,
        job: Mapping[str, Any],
        tasks: Sequence[TaskType],
        order: Callable[[TaskType], Order],
        on_tally: Callable[[Tally], None],
        failures: Failures | None = None,
    ) -> Iterator[Mapping[str, Any]]:
        """Do the tasks; give the result of each in order (`Workers.run`)."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(slots=True)
class _Worker:
    """One process, its unfinished orders, the first bytes of its next message, and whether an error ended it."""

    process: subprocess.Popen[bytes]
    orders: list[Order] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    failed: bool = False

    @property
    def stdin_fd(self) -> int:
        """Descriptor of its standard input."""
        assert self.process.stdin is not None, "it is a pipe"
        return self.process.stdin.fileno()

    @property
    def stdout_fd(self) -> int:
        """Descriptor of its standard output."""
        assert self.process.stdout is not None, "it is a pipe"
        return self.process.stdout.fileno()


class Workers:
    """Processes that do the tasks of a job. Leaving a `with` ends them at once, and waits until they have ended.

    Args:
        count: number of processes.
        lock: descriptor of a lock that they hold as long as they live.
        threads: threads that each may use.
    """

    def __init__(self, count: int, *, lock: int | None, threads: int) -> None:
        self._lock, self._threads = lock, threads
        self._lost: list[Order] = []
        self._idle: list[_Worker] = []
        self._failures = Failures(0)
        self._deaths: Counter[int] = Counter()
        self._all: list[_Worker] = []
        self._done, self._running = Tally(), dict[int, Tally]()
        self._finished: dict[int, Mapping[str, Any]] = {}
        self._given_warnings: dict[str | tuple[str, type[Warning], int], int] = {}
        for _ in range(count):
            self._all.append(_Worker(_start(lock)))

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
            job: the job, under its name (`_core.jobs.engine.worker`).
            tasks: pieces of the job.
            order: makes the message of a task, when a worker asks for one.
            on_tally: called with the counts of all workers, whenever one reports.
            failures: says which tasks may fail, and gets them; None lets none fail.

        Raises:
            LadingError: any error of a worker; StoreError if the processes of one task died again and again, with its
                source shards.
        """
        waiting, self._failures = map(order, tasks), failures or Failures(0)
        with selectors.DefaultSelector() as ready:
            for worker in self._all:
                ready.register(worker.stdout_fd, selectors.EVENT_READ, worker)
                _send(worker, {**job, "threads": self._threads})
            for number in [task.number for task in tasks]:
                while number not in self._finished and number not in self._failures.found:
                    for key, _ in ready.select():
                        if not self._receive(key.data, waiting):
                            ready.unregister(key.fd)
                            worker = self._replace(key.data)
                            ready.register(worker.stdout_fd, selectors.EVENT_READ, worker)
                            _send(worker, {**job, "threads": self._threads})
                    on_tally(self._so_far())
                if number in self._finished:
                    yield self._finished.pop(number)
                while self._idle and self._has_room():
                    self._give(self._idle.pop(0), next(waiting, None))

    def _has_room(self) -> bool:
        """Whether another task may begin: what is kept stays small though an early task takes long."""
        return len(self._finished) < _AHEAD * len(self._all)

    def _replace(self, worker: _Worker) -> _Worker:
        """Start a process in the place of one that died, whose tasks are tried again.

        Raises:
            LadingError: a task died too often, or processes without a task; or a file became shorter.
        """
        error = _died(worker)
        numbers = [order.message["number"] for order in worker.orders]
        if not worker.failed:
            dead = numbers or [_NO_TASK]
            self._deaths.update(dead)
            if isinstance(error, CorruptShard) or max(self._deaths[number] for number in dead) > RETRIES:
                raise error
        for number in numbers:
            self._running.pop(number, None)
        self._lost += worker.orders
        self._idle = [each for each in self._idle if each is not worker]
        _close_pipes(worker)
        another = _Worker(_start(self._lock))
        self._all[self._all.index(worker)] = another
        return another

    def _receive(self, worker: _Worker, waiting: Iterator[Order]) -> bool:
        """Read messages of a worker, and send it a task if it asks for one. Return False if the worker has ended."""
        data = os.read(worker.stdout_fd, _READ_BYTES)
        if not data:
            return False
        worker.received += data
        if b"\n" not in data:
            return True
        *lines, worker.received = worker.received.split(b"\n")
        for line in lines:
            message = orjson.loads(line)
            if "error" in message:
                self._fail(worker, decode_error(message["error"]))
                return False
            if "warning" in message:
                repeat_warning(message["warning"], self._given_warnings)
            elif "ready" in message:
                if self._lost:
                    self._give(worker, self._lost.pop())
                elif worker.orders or self._has_room():  # an error of an order may show at the next one
                    self._give(worker, next(waiting, None))
                else:
                    self._idle.append(worker)
            elif "progress" in message:
                self._running[message["progress"]] = Tally(*message["tally"])
            else:
                self._finish(worker, message)
        return True

    def _fail(self, worker: _Worker, error: BaseException) -> None:
        """Take the error with which a worker ended, which says its task."""
        failed = [order for order in worker.orders if order.message["number"] == vars(error).get(TASK)]
        if not failed:
            raise error
        if not self._failures.try_again(failed[0].message["number"], error):
            worker.orders.remove(failed[0])
        worker.failed = True

    def _give(self, worker: _Worker, order: Order | None) -> None:
        if order is None:
            _send(worker, {})
            return
        worker.orders.append(order)
        _send(worker, order.message, order.tables)

    def _finish(self, worker: _Worker, message: Mapping[str, Any]) -> None:
        number = message["done"]
        self._running.pop(number, None)
        self._done.add(Tally(*message["tally"]))
        self._finished[number] = message
        worker.orders = [order for order in worker.orders if order.message["number"] != number]

    def _so_far(self) -> Tally:
        total = Tally()
        for tally in (self._done, *self._running.values()):
            total.add(tally)
        return total

    def close(self) -> None:
        """End the processes and wait until they have ended. Unfinished tasks are lost."""
        for worker in self._all:
            worker.process.kill()
        for worker in self._all:
            worker.process.wait()
            _close_pipes(worker)
        self._all.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(lock: int | None) -> subprocess.Popen[bytes]:
    fds = () if lock is None else (lock,)
    return start_program("lading._core.jobs.engine.worker", stdin=subprocess.PIPE, stdout=subprocess.PIPE, fds=fds)


def _send(worker: _Worker, message: Mapping[str, Any], tables: Sequence[pa.Table | None] = ()) -> None:
    with suppress(BrokenPipeError):  # it has ended; its last message, or none, is read next
        write_message(worker.stdin_fd, message, tables)


def _close_pipes(worker: _Worker) -> None:
    for pipe in (worker.process.stdin, worker.process.stdout):
        assert pipe is not None, "both are pipes"
        pipe.close()


def _died(worker: _Worker) -> LadingError:
    """The error of a worker that ended without a message."""
    worker.process.kill()  # changes nothing where it has ended, and does not wait for ever where it has not
    status = worker.process.wait()
    paths = [file for order in worker.orders for file in order.files]
    if status == -signal.SIGBUS:
        return CorruptShard(
            "the file became shorter while a worker read it",
            file=_cut_file(worker.orders) or " to ".join(paths) or None, found=f"signal {-status} (SIGBUS)",
            advice="Do not write to data that is being read; write a new file, and rename it.",
        )  # fmt: skip
    return StoreError(
        "a worker process died", file=" to ".join(dict.fromkeys(paths[:1] + paths[-1:])) or None,
        found=how_it_ended(status),
        advice="If memory ran out, use fewer workers or smaller batches (--max-batch-bytes).",
    )  # fmt: skip


def _cut_file(orders: Sequence[Order]) -> str | None:
    """Return the first file of these tasks that is shorter than its list says; None if no list says its size."""
    for shard in (each for order in orders for each in order.message.get("shards", ())):
        with suppress(OSError):
            if shard["size_bytes"] is not None and os.stat(shard["path"]).st_size < shard["size_bytes"]:
                return str(shard["path"])
    return None
