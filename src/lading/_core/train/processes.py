"""Worker processes of a loader: each makes every n-th batch of an epoch, and the loop is given them in order.

A worker is a program of its own (`_core.train.worker`), which opens the source again and runs the same reading as
without workers. Batches come through files without a name (`_core.processes.shared_files`). A worker is at most two
batches ahead of the loop, besides those that it makes. Workers that have given a whole epoch wait for the next one.
They end with a loop that ends early, and with the loader.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import time
import traceback
import warnings
import weakref
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from lading._core.processes.pickled import to_bytes
from lading._core.processes.program import Program, died, end_all
from lading._core.processes.shared_files import receive_value, send_value
from lading._core.train.ranks import cores_of_rank
from lading.errors import LadingError, StoreError, UsageError

if TYPE_CHECKING:
    from lading._core.train.loader import Loader
    from lading._core.train.metrics import LoopCounts
    from lading._core.train.skipped import SkippedSample

__all__ = ["ADVICE", "Epoch", "Failed", "Made", "More", "Processes", "Warned"]

ADVICE: Final = "Or work without processes: workers=0."
_AHEAD: Final = 2
_LOOK_MS: Final = 1000
_START_S: Final = 120.0
"""A worker imports what functions need, and opens the source."""
_GRACE_S: Final = 5.0
"""A worker has the same timeout, and says what its functions are at; unless they hold Python's lock."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What a worker is to make: every n-th batch of an epoch.

    Attributes:
        number: of the epoch.
        position: of its first batch.
        every: number of workers.
        ahead: batches that it may send at first.
    """

    number: int
    position: int
    every: int
    ahead: int


@dataclass(frozen=True, slots=True)
class More:
    """A worker may send one more batch."""


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning of a worker."""

    message: str
    category: type[Warning]
    filename: str
    lineno: int


@dataclass(frozen=True, slots=True)
class Made:
    """A batch.

    Attributes:
        batch: as the loop is given it.
        skipped: samples that were left out for it.
        counts: what was done for it.
        warned: warnings since the last batch.
    """

    batch: Any
    skipped: list[SkippedSample]
    counts: LoopCounts
    warned: list[Warned]


@dataclass(frozen=True, slots=True)
class Failed:
    """An error in the place of a batch.

    Attributes:
        error: the error.
        causes: the errors that it came from.
        trace: all of them, in the words of the worker.
    """

    error: BaseException
    causes: list[BaseException]
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """The error as other processes can hold it; one that cannot be pickled becomes a RuntimeError."""
        chain, seen = [error], {id(error)}
        while (cause := chain[-1].__cause__) is not None and id(cause) not in seen:
            chain.append(cause)
            seen.add(id(cause))
        trace = "".join(traceback.format_exception(error))
        first, *causes = map(_sendable, chain)
        return cls(first, causes, trace)

    def raised(self, worker: str) -> BaseException:
        """The error, to be raised, with the worker's traceback as a note."""
        last = self.error
        for cause in self.causes:
            last.__cause__, last = cause, cause
        self.error.add_note(f"In {worker}:\n{self.trace}")
        return self.error


class Processes:
    """The workers of a loader. They are started with its first loop.

    Args:
        count: number of workers.

    Raises:
        UsageError: this system cannot send descriptors of files.
    """

    def __init__(self, count: int) -> None:
        if not hasattr(socket, "send_fds"):
            raise UsageError(
                "this system cannot share batches between processes", found=f"workers={count}",
                advice="Use threads, which is the default, or a DataLoader of loader.to_torch().",
            )  # fmt: skip
        self.count = count
        self._idle: _Group | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_idle": None}

    def batches(self, loader: Loader, epoch: int, position: int) -> Generator[Any, None, None]:
        """The next batches of a loader's epoch, from a position on.

        Raises:
            LadingError: as without workers; StoreError if a worker has died, or answers nothing in time.
        """
        num_batches = loader.share_of(epoch).num_batches(position)
        group, self._idle = self._idle, None
        if group is None or group.process != os.getpid():
            group = _Group(self.count, loader)
        whole = False
        try:
            for number, worker in enumerate(group.workers):
                worker.send(Epoch(epoch, loader.position_after(epoch, position, number), self.count, _AHEAD))
            for i in range(num_batches):
                worker = group.workers[i % self.count]
                try:
                    made = worker.receive(f"batch {i} of the loop, which begins with this sample", loader.timeout_s)
                except _WorkerError as lost:
                    raise loader.reader(epoch).placed(lost.error, loader.position_after(epoch, position, i)) from None
                if i + _AHEAD * self.count < num_batches:
                    worker.send(More())
                loader.note(made.skipped, made.counts)
                for one in made.warned:
                    warnings.warn_explicit(one.message, one.category, one.filename, one.lineno, registry=group.warned)
                batch, whole = made.batch, i == num_batches - 1
                del made
                yield batch
                del batch
        finally:
            if whole and self._idle is None:
                self._idle = group
            else:
                group.close()


class _Group:
    """Worker processes of one loop after the other. They end when nobody has the group any more.

    Attributes:
        workers: the processes.
        process: the id of this process: a forked one has no workers.
        warned: which warnings were given.
    """

    def __init__(self, count: int, loader: Loader) -> None:
        sent = to_bytes(loader.without_reports(), loader.given, ADVICE)
        self.workers: list[_Worker] = []
        self.process = os.getpid()
        self.warned: dict[str | tuple[str, type[Warning], int], int] = {}
        self.close = weakref.finalize(self, _end, self.workers, self.process)
        try:
            for number in range(count):
                self.workers.append(_Worker.start(f"worker {number} of {count}", max(cores_of_rank() // count, 1)))
            for worker in self.workers:
                worker.send(sent)
        except BaseException:
            self.close()
            raise


def _end(workers: list[_Worker], owner: int) -> None:
    """Kill processes and wait until they have ended; a fork of their owner only forgets them."""
    for worker in workers:
        worker.socket.close()
    if os.getpid() == owner:
        end_all(worker.program for worker in workers)


@dataclass(slots=True)
class _Worker:
    """One process."""

    name: str
    program: Program
    socket: socket.socket
    poll: select.poll = field(default_factory=select.poll)
    answers: bool = False

    @classmethod
    def start(cls, name: str, threads: int) -> _Worker:
        ours, theirs = socket.socketpair()
        environment: Mapping[str, str] = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(threads)}
        try:
            with theirs:
                program = Program(
                    "lading._core.train.worker", str(theirs.fileno()), str(os.getpid()), stdin=subprocess.DEVNULL,
                    stdout=None, fds=(theirs.fileno(),), environment=environment, advice=ADVICE,
                )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        made = cls(f"{name} (process {program.process.pid})", program, ours)
        made.poll.register(ours, select.POLLIN)
        return made

    def send(self, value: object) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended: what it sent last is read next
            send_value(self.socket, value)

    def receive(self, what: str, timeout_s: float | None) -> Made:
        """Wait for the next batch, as long as the process lives.

        Args:
            what: the batch, for errors.
            timeout_s: that the worker may take, if it cannot say so itself; None for ever.
        """
        late = _GRACE_S if self.answers else _START_S
        until = inf if timeout_s is None else time.monotonic() + timeout_s + late
        while not self.poll.poll(_LOOK_MS) and self.program.is_alive():
            if time.monotonic() > until:
                raise _WorkerError(StoreError(
                    f"{self.name} does not answer", expected=f"{what}, within {timeout_s:g} s", found="none",
                    advice=f"Look at the functions that it calls. If they are slow, give a larger timeout. {ADVICE}",
                ))  # fmt: skip
        if not self.poll.poll(0):
            raise _WorkerError(self._died(what))
        try:
            found = receive_value(self.socket)
        except EOFError:
            raise _WorkerError(self._died(what)) from None
        if isinstance(found, Failed):
            raise found.raised(self.name)
        assert isinstance(found, Made), "nothing else is sent"
        self.answers = True
        return found

    def _died(self, what: str) -> LadingError:
        advice = f"If memory ran out, use fewer workers, smaller batches or less ahead_bytes. {ADVICE}"
        return died(self.name, self.program.end(), file=None, expected=what, advice=advice)


class _WorkerError(Exception):
    """A worker gave no batch.

    Attributes:
        error: says why, and not yet which samples the batch has.
    """

    def __init__(self, error: LadingError) -> None:
        super().__init__(str(error))
        self.error = error


def _sendable(error: BaseException) -> BaseException:
    """The error if it can be pickled and made again; else one that says the same."""
    import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever the error's own class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
