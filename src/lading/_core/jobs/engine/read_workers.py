"""Open datasets of readings, kept between the tasks of a run (`_core.jobs.engine.do_task`)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import pyarrow as pa

from lading._core.jobs.engine.progress import Tally
from lading._core.jobs.engine.read_task import ReadWorker
from lading._core.storage.background import Background

__all__ = ["READ_WORKERS", "ReadWorkers", "read_task"]

_OTHER_RUNS = 3
"""How many runs of other processes keep their workers."""


class ReadWorkers:
    """Workers of readings that wait for the next task of their run: at most as many as there were tasks at once.

    A run that this process began keeps its workers until the run ends. Nobody reports the end of runs of other
    processes: the three that were used last keep their workers. Threads may share this.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew in a forked child, which has no task."""
        self._lock = Lock()
        self._free: dict[str, list[ReadWorker]] = {}
        self._own: set[str] = set()

    @contextmanager
    def run(self) -> Iterator[str]:
        """Begin a run of this process; give the name of the run, which no other run has."""
        name = secrets.token_hex(8)
        with self._lock:
            self._own.add(name)
            self._free[name] = []
        try:
            yield name
        finally:
            with self._lock:
                self._own.discard(name)
                ended = self._free.pop(name)
            _close(ended)

    @contextmanager
    def worker(self, run: str, sent: str) -> Iterator[ReadWorker]:
        """Give a worker for a task of a run. It is kept, unless the task fails.

        Args:
            run: name of the run.
            sent: the reading, for a worker that begins.
        """
        worker = self._free_worker(run) or ReadWorker(sent)
        kept = False
        try:
            yield worker
            with self._lock:
                kept = run in self._free
                if kept:
                    self._free[run].append(worker)
        finally:
            if not kept:
                worker.close()

    def _free_worker(self, run: str) -> ReadWorker | None:
        older: list[ReadWorker] = []
        with self._lock:
            free = self._free[run] = self._free.pop(run, [])  # behind all others: it is used last
            others = [name for name in self._free if name not in self._own]
            for name in others[:-_OTHER_RUNS]:
                older += self._free.pop(name)
            found = free.pop() if free else None
        _close(older)
        return found


def _close(workers: list[ReadWorker]) -> None:
    for worker in workers:
        worker.close()


READ_WORKERS = ReadWorkers()
"""Those of this process."""


def read_task(
    run: str,
    sent: str,
    task: Mapping[str, Any],
    tables: Sequence[pa.Table | None],  # noqa: ARG001 - a task of a conversion has indexes
    closing: Background,  # noqa: ARG001 - a task of a conversion has files
    on_tally: Callable[[Tally], None],
    report: Callable[[Mapping[str, Any]], None],
) -> None:
    """Do a task of a reading (`engine.do_task`), and report its answer.

    Args:
        run: name of the run.
        sent: the reading, as `Reading.encode` gives it.
        task: the task.
        tables: none.
        closing: closes nothing.
        on_tally: is given counts on the way.
        report: is given the answer.
    """
    with READ_WORKERS.worker(run, sent) as worker:
        report(worker.do(task, on_tally))


os.register_at_fork(after_in_child=READ_WORKERS.forget)
