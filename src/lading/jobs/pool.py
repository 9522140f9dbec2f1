"""Worker processes of a job, and what they do, in order.

Workers are programs of their own (`lading.jobs.worker`), so that no state of this process is forked or pickled, and a
notebook needs nothing special. They lie in a process group of their own: an interrupt from the terminal reaches this
process alone, which ends them. They inherit the lock on the place where the dataset is built: as long as one lives, no
other job takes that place for abandoned.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

import orjson
import pyarrow as pa

from lading.errors import LadingError, StoreError, UsageError
from lading.jobs.messages import decode_error, repeat_warning, write_message
from lading.jobs.progress import Tally

__all__ = ["Numbered", "Order", "Workers"]

_READ_BYTES = 1 << 16


class Numbered(Protocol):
    """A task, of whatever job."""

    @property
    def number(self) -> int:
        """Its place among the tasks."""


_Task = TypeVar("_Task", bound=Numbered)


@dataclass(frozen=True, slots=True)
class Order:
    """A task as a worker is told it.

    Attributes:
        told: JSON-able values; `number` is its place among the tasks.
        tables: Arrow tables that go along.
        files: the first and the last that are read, for errors to name.
    """

    told: Mapping[str, Any]
    tables: Sequence[pa.Table | None] = ()
    files: tuple[str, str] = ("", "")


@dataclass(slots=True)
class _Worker:
    """One process, the orders it has not finished, and what it said of the next message."""

    process: subprocess.Popen[bytes]
    orders: list[Order] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)

    @property
    def ears(self) -> int:
        """Descriptor that it listens to."""
        assert self.process.stdin is not None, "it is a pipe"
        return self.process.stdin.fileno()

    @property
    def mouth(self) -> int:
        """Descriptor that it speaks on."""
        assert self.process.stdout is not None, "it is a pipe"
        return self.process.stdout.fileno()


class Workers:
    """Processes that do the tasks of a job. Leaving a `with` ends them, whatever they do, and waits for that.

    Args:
        count: how many.
        lock: descriptor of a lock for them to hold as long as they live.
        threads: threads that each may use.
    """

    def __init__(self, count: int, *, lock: int | None, threads: int) -> None:
        self._threads = threads
        self._all: list[_Worker] = []
        self._done, self._running = Tally(), dict[int, Tally]()
        self._finished: dict[int, Mapping[str, Any]] = {}
        self._given_warnings: dict[str | tuple[str, type[Warning], int], int] = {}
        for _ in range(count):
            self._all.append(_Worker(_start(lock)))

    def run(
        self,
        job: Mapping[str, Any],
        tasks: Sequence[_Task],
        order: Callable[[_Task], Order],
        tell: Callable[[Tally], None],
    ) -> Iterator[Mapping[str, Any]]:
        """Have the tasks done; give what a worker says of each, in order, as soon as that of all before it was given.

        Args:
            job: what is to be done, as JSON-able values under its name (`lading.jobs.worker`).
            tasks: pieces of it.
            order: makes of a task what a worker is told, when one asks for it.
            tell: called with what went by in all workers, whenever one says so.

        Raises:
            LadingError: whatever a worker met; StoreError where one died, which names the source shards it had.
        """
        waiting = map(order, tasks)
        with selectors.DefaultSelector() as ready:
            for worker in self._all:
                ready.register(worker.mouth, selectors.EVENT_READ, worker)
                _say(worker, {**job, "threads": self._threads})
            for number in [task.number for task in tasks]:
                while number not in self._finished:
                    for key, _ in ready.select():
                        self._listen(key.data, waiting)
                    tell(self._so_far())
                yield self._finished.pop(number)

    def _listen(self, worker: _Worker, waiting: Iterator[Order]) -> None:
        """Take what a worker says, and give it a task where it asks for one."""
        data = os.read(worker.mouth, _READ_BYTES)
        if not data:
            raise _died(worker)
        worker.heard += data
        if b"\n" not in data:
            return
        *lines, worker.heard = worker.heard.split(b"\n")
        for line in lines:
            told = orjson.loads(line)
            if "error" in told:
                raise decode_error(told["error"])
            if "warning" in told:
                repeat_warning(told["warning"], self._given_warnings)
            elif "ready" in told:
                self._give(worker, next(waiting, None))
            elif "progress" in told:
                self._running[told["progress"]] = Tally(*told["tally"])
            else:
                self._finish(worker, told)

    def _give(self, worker: _Worker, order: Order | None) -> None:
        if order is None:
            _say(worker, {})
            return
        worker.orders.append(order)
        _say(worker, order.told, order.tables)

    def _finish(self, worker: _Worker, told: Mapping[str, Any]) -> None:
        number = told["done"]
        self._running.pop(number, None)
        self._done.add(Tally(*told["tally"]))
        self._finished[number] = told
        worker.orders = [order for order in worker.orders if order.told["number"] != number]

    def _so_far(self) -> Tally:
        total = Tally()
        for tally in (self._done, *self._running.values()):
            total.add(tally)
        return total

    def close(self) -> None:
        """End the processes and wait until they are gone. What they were doing is lost."""
        for worker in self._all:
            worker.process.kill()
        for worker in self._all:
            worker.process.wait()
            for pipe in (worker.process.stdin, worker.process.stdout):
                assert pipe is not None, "both are pipes"
                pipe.close()
        self._all.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(lock: int | None) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise UsageError("this Python names no program to start workers with", advice="Work with workers=1.")
    # The modules that this process finds, in the same order; `-P` keeps those of the current folder out otherwise.
    path = [entry or os.getcwd() for entry in sys.path if os.pathsep not in entry]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "lading.jobs.worker"],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        pass_fds=() if lock is None else (lock,),
        process_group=0,
    )


def _say(worker: _Worker, told: Mapping[str, Any], tables: Sequence[pa.Table | None] = ()) -> None:
    with suppress(BrokenPipeError):  # it is gone; what it said before, or that it said nothing, is heard next
        write_message(worker.ears, told, tables)


def _died(worker: _Worker) -> LadingError:
    """The error that a worker is gone without a word."""
    worker.process.kill()  # changes nothing where it has ended, and does not wait for ever where it has not
    status = worker.process.wait()
    paths = [file for order in worker.orders for file in order.files]
    return StoreError(
        "a worker process died", file=" to ".join(dict.fromkeys(paths[:1] + paths[-1:])) or None,
        found=f"signal {-status} ({_signal_name(-status)})" if status < 0 else f"exit status {status}",
        advice="If memory ran out, use fewer workers or smaller batches (max_batch_bytes).",
    )  # fmt: skip


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of real time"
