"""Worker processes of a job as an executor: each is a program of its own (`engine.worker`), which does tasks in turn.

They inherit the lock on the folder in which the dataset is built: while one lives, no other job takes that folder for
abandoned. The task of a process that ends without its answer is lost, and another process takes the place of that one.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any, Final, cast

from lading._core.jobs.engine.messages import read_frame, write_frame
from lading._core.jobs.engine.task import SentTask
from lading._core.processes.program import Program, died
from lading.errors import LadingError

__all__ = ["ProgramDied", "WorkerPrograms"]

_IDLE_DEATHS: Final = 3
"""How many programs may end before they ask for a task."""


class ProgramDied(Exception):
    """A worker ended without the answer to a task.

    Args:
        status: its exit status.

    Attributes:
        is_final: whether another try would end as this one: a file became shorter.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.is_final = status == -signal.SIGBUS
        self._status = status

    def error_of(self, sent: SentTask) -> LadingError:
        """Return the error of the job that loses a task for it."""
        cut = _cut_file(sent.message) if self.is_final else None
        advice = "If memory ran out, use fewer workers or smaller batches (--max-batch-bytes)."
        return died("a worker process", self._status, file=cut or sent.file, expected=None, advice=advice)


@dataclass(slots=True, eq=False)
class _Call:
    """A task that waits for a process, or that one does."""

    job: bytes
    task: bytes
    future: Future[bytes]


@dataclass(slots=True, eq=False)
class _Worker:
    """One process: the job that it knows, and its unfinished tasks, by the place at which it got them."""

    program: Program
    job: bytes | None = None
    given: int = 0
    calls: dict[int, _Call] = field(default_factory=dict)

    @classmethod
    def start(cls, lock: int | None) -> _Worker:
        fds = () if lock is None else (lock,)
        program = Program(
            "lading._core.jobs.engine.worker", stdin=subprocess.PIPE, stdout=subprocess.PIPE, fds=fds
        )  # fmt: skip
        return cls(program)

    def give(self, call: _Call) -> None:
        """Send a task, and the job if it is another one than before."""
        self.calls[self.given] = call
        stdin = self.program.process.stdin
        assert stdin is not None, "it is a pipe"
        job = () if call.job is self.job else (call.job,)
        with suppress(BrokenPipeError):  # it has ended: what it sent last, or nothing, is read next
            write_frame(stdin.fileno(), {"at": self.given}, call.task, *job)
        self.given, self.job = self.given + 1, call.job


class WorkerPrograms(Executor):
    """Processes that do tasks, one after another. A process takes its next task while files of the last one close.

    Args:
        count: number of processes.
        lock: descriptor of a lock that they hold as long as they live.
        on_counts: called by any thread with the counts of a task that is under way.

    Raises:
        UsageError: this Python does not know its own program.
    """

    def __init__(self, count: int, lock: int | None, on_counts: Callable[[Mapping[str, Any]], None]) -> None:
        self._lock, self._on_counts = lock, on_counts
        self._changing = Lock()
        self._waiting: deque[_Call] = deque()
        self._ready: deque[_Worker] = deque()
        self._workers: list[_Worker] = []
        self._threads: list[Thread] = []
        self._idle_deaths, self._closed = 0, False
        self._broken: ProgramDied | None = None
        self._start_error: BaseException | None = None
        try:
            for place in range(count):
                self._workers.append(_Worker.start(lock))
                thread = Thread(target=self._serve, args=(place,), name=f"lading-worker_{place}", daemon=True)
                self._threads.append(thread)
                thread.start()
        except BaseException:
            self.shutdown()
            raise

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:  # noqa: ARG002 - as of `Executor`
        """Have a process do a task, given as `do_task` takes it, which is the only function of these processes.

        Raises:
            UsageError, OSError: no process can be started any more.
        """
        job, task = args
        call = _Call(job, task, Future())
        with self._changing:
            if self._start_error is not None:
                raise self._start_error
            if self._broken is not None:
                call.future.set_exception(self._broken)
            elif self._ready:
                self._ready.popleft().give(call)
            else:
                self._waiting.append(call)
        return call.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as of `Executor`
        """End the processes, and wait until they have ended. Unfinished tasks are lost."""
        with self._changing:
            self._closed = True
            for worker in self._workers:
                worker.program.kill()
        for thread in self._threads:
            thread.join()

    def _serve(self, place: int) -> None:
        """Hear a process until it ends; then start another one in its place, until all of this ends."""
        while True:
            worker = self._workers[place]
            stdout = worker.program.process.stdout
            assert stdout is not None, "it is a pipe"
            pipe = io.BufferedReader(cast("io.FileIO", stdout))
            while (frame := read_frame(pipe)) is not None:
                self._hear(worker, *frame)
            if not self._replaced(place, worker):
                return

    def _hear(self, worker: _Worker, told: Mapping[str, Any], bodies: list[bytes]) -> None:
        if "counted" in told:
            self._on_counts(told)
        elif bodies:
            call = worker.calls.pop(told["at"])
            with suppress(InvalidStateError):  # nobody waits for it
                call.future.set_result(bodies[0])
        else:
            with self._changing:
                if self._waiting:
                    worker.give(self._waiting.popleft())
                else:
                    self._ready.append(worker)

    def _replaced(self, place: int, worker: _Worker) -> bool:
        """Start a process in the place of one that ended, whose tasks are lost. Return False if there is to be none."""
        with self._changing:  # nothing is given to it from now on
            self._ready = deque(each for each in self._ready if each is not worker)
        ended = ProgramDied(worker.program.end())
        with self._changing:
            if self._closed:
                return False
            self._idle_deaths += not worker.given
            lost = [*worker.calls.values()]
            try:
                if self._idle_deaths > _IDLE_DEATHS:
                    self._broken = ended
                else:
                    self._workers[place] = _Worker.start(self._lock)
            except BaseException as error:  # noqa: BLE001 - raised by `submit`
                self._start_error = error
            is_broken = self._broken is not None or self._start_error is not None
            if is_broken:
                lost += self._waiting
                self._waiting.clear()
        for call in reversed(lost):  # the last one was reading: if a file became shorter, it is one of its files
            with suppress(InvalidStateError):  # nobody waits for it
                call.future.set_exception(ended)
        return not is_broken


def _cut_file(message: Mapping[str, Any]) -> str | None:
    """Return the first file of a task that is shorter than its list says; None if no list says its size."""
    for shard in message.get("shards", ()):
        with suppress(OSError, TypeError):  # a task of a reading lists numbers
            if shard["size_bytes"] is not None and os.stat(shard["path"]).st_size < shard["size_bytes"]:
                return str(shard["path"])
    return None
