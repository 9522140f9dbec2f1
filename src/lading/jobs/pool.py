"""Worker processes of a conversion, and what they do, in order.

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
from typing import Any, Self

import orjson
import pyarrow as pa

from lading.dataset import Dataset
from lading.errors import LadingError, StoreError, UsageError
from lading.jobs.copying import Tally
from lading.jobs.ledger import LEDGER_NAME
from lading.jobs.messages import decode_error, decode_part, repeat_warning, write_message
from lading.jobs.spec import Conversion
from lading.jobs.tasks import Task
from lading.part_writer import Part

__all__ = ["FinishedTask", "Workers"]

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """What a worker made of a task.

    Attributes:
        part: the shards it wrote.
        folder: where they lie.
        noticed: what was noticed while reading, by a short phrase.
        lost: the first few rows that were not kept, as `Loss.entries` gives them.
    """

    part: Part
    folder: str
    noticed: Mapping[str, int]
    lost: Sequence[Mapping[str, Any]]

    @property
    def digests(self) -> str:
        """The file with the content digests of its samples, 16 bytes each, if they were asked for."""
        return f"{self.folder}/digests"

    @property
    def ledger(self) -> str:
        """The file with lines of the rows that were not kept, if they were asked for."""
        return f"{self.folder}/{LEDGER_NAME}"


@dataclass(slots=True)
class _Worker:
    """One process, the tasks it has not finished, and what it said of the next message."""

    process: subprocess.Popen[bytes]
    tasks: list[Task] = field(default_factory=list)
    heard: bytes = b""

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
    """Processes that do the tasks of a conversion. Leaving a `with` ends them, whatever they do, and waits for that.

    Args:
        count: how many.
        lock: descriptor of a lock for them to hold as long as they live.
        threads: threads that each may use.
    """

    def __init__(self, count: int, *, lock: int | None, threads: int) -> None:
        self._threads = threads
        self._all: list[_Worker] = []
        self._done, self._running = Tally(), dict[int, Tally]()
        self._finished: dict[int, FinishedTask] = {}
        self._given_warnings: dict[str | tuple[str, type[Warning], int], int] = {}
        for _ in range(count):
            self._all.append(_Worker(_start(lock)))

    def run(
        self, how: Conversion, tasks: Sequence[Task], dataset: Dataset, folder: str, tell: Callable[[Tally], None]
    ) -> Iterator[FinishedTask]:
        """Have the tasks done; give what came of each, in order, as soon as that of all before it was given.

        Args:
            how: what is to be done.
            tasks: pieces of the source.
            dataset: the source.
            folder: where the workers build, each task in a folder of its own below it.
            tell: called with what went by in all workers, whenever one says so.

        Raises:
            LadingError: whatever a worker met; StoreError where one died, which names the source shards it had.
        """
        opening = {"conversion": how.to_json(), "threads": self._threads}
        waiting = iter(tasks)
        with selectors.DefaultSelector() as ready:
            for worker in self._all:
                ready.register(worker.mouth, selectors.EVENT_READ, worker)
                _say(worker, opening)
            for number in [task.number for task in tasks]:
                while number not in self._finished:
                    for key, _ in ready.select():
                        self._listen(key.data, waiting, dataset, folder)
                    tell(self._so_far())
                yield self._finished.pop(number)

    def _listen(self, worker: _Worker, waiting: Iterator[Task], dataset: Dataset, folder: str) -> None:
        """Take what a worker says, and give it a task where it asks for one."""
        data = os.read(worker.mouth, _READ_BYTES)
        if not data:
            raise _died(worker, dataset)
        *lines, worker.heard = (worker.heard + data).split(b"\n")
        for line in lines:
            told = orjson.loads(line)
            if "error" in told:
                raise decode_error(told["error"])
            if "warning" in told:
                repeat_warning(told["warning"], self._given_warnings)
            elif "ready" in told:
                self._give(worker, next(waiting, None), dataset, folder)
            elif "progress" in told:
                self._running[told["progress"]] = Tally(*told["tally"])
            else:
                self._finish(worker, told, folder)

    def _give(self, worker: _Worker, task: Task | None, dataset: Dataset, folder: str) -> None:
        if task is None:
            _say(worker, {})
            return
        worker.tasks.append(task)
        shards = range(task.first, task.stop)
        told = {
            "number": task.number,
            "folder": _folder(folder, task.number),
            "shard_bytes": task.shard_bytes,
            "first_row": task.first_row,
            "shards": dataset.listing.table.slice(task.first, len(shards)).to_pylist(),
        }
        _say(worker, told, [dataset.held_index(number) for number in shards])

    def _finish(self, worker: _Worker, told: Mapping[str, Any], folder: str) -> None:
        number = told["done"]
        self._running.pop(number, None)
        self._done.add(Tally(*told["tally"]))
        part = decode_part(told["part"])
        self._finished[number] = FinishedTask(part, _folder(folder, number), told["noticed"], told["lost"])
        worker.tasks = [task for task in worker.tasks if task.number != number]

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
        raise UsageError("this Python names no program to start workers with", advice="Convert with workers=1.")
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


def _died(worker: _Worker, dataset: Dataset) -> LadingError:
    """The error that a worker is gone without a word."""
    worker.process.kill()  # changes nothing where it has ended, and does not wait for ever where it has not
    status = worker.process.wait()
    paths = [dataset.path(number) for task in worker.tasks for number in (task.first, task.stop - 1)]
    return StoreError(
        "a worker process died", file=" to ".join(dict.fromkeys(paths[:1] + paths[-1:])) or None,
        found=f"signal {-status} ({_signal_name(-status)})" if status < 0 else f"exit status {status}",
        advice="If memory ran out, use fewer workers or smaller batches (max_batch_bytes).",
    )  # fmt: skip


def _folder(folder: str, number: int) -> str:
    return f"{folder}/task-{number:06d}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "of real time"
