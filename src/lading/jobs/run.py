"""The tasks of a conversion, done by this process or by workers, and what went by."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from lading.codecs import sniff_wrap
from lading.dataset import Dataset
from lading.dataset_writer import DatasetWriter
from lading.digests import DatasetDigest
from lading.jobs.copying import Copier, Tally
from lading.jobs.pool import Workers
from lading.jobs.progress import OnProgress, Progress
from lading.jobs.spec import Conversion
from lading.jobs.tasks import Task
from lading.source import read_head
from lading.store.protocol import Buffer, Sink, Store
from lading.store.together import is_far

__all__ = ["Hiring", "Run", "is_quick"]

_QUICK_BYTES = 2 << 30
"""Source bytes for each worker, below which one process has moved them all before several have begun: on the machine
measured, two workers and one are even at 4 GB."""
_WORTH_S = 3.0
"""Time left from which on workers are worth the half second that they take to begin."""


def is_quick(dataset: Dataset, store: Store, options: Mapping[str, Any], tasks: Sequence[Task], workers: int) -> bool:
    """Whether one process is done sooner than so many: there is little, and it is only moved on this machine."""
    if sum(task.source_bytes for task in tasks) >= _QUICK_BYTES * workers or options.get("compression") is not None:
        return False
    source = dataset.source(0)
    return not is_far(store) and not is_far(source.store) and not sniff_wrap(read_head(source.store, source.path))


class Hiring:
    """Workers that a job may have, begun when they are wanted.

    Args:
        held: what they are gone with.
        count, lock, threads: as `Workers`.

    Attributes:
        workers: those that were begun; None before.
    """

    def __init__(self, held: ExitStack, count: int, lock: int | None, threads: int) -> None:
        self.workers: Workers | None = None
        self._held, self._count, self._lock, self._threads = held, count, lock, threads

    def begin(self) -> None:
        """Begin them."""
        self.workers = self._held.enter_context(Workers(self._count, lock=self._lock, threads=self._threads))


class Run:
    """The tasks of a conversion, done here or by workers, and what went by.

    Attributes:
        tally: what went by.
        losses: what was not kept.
        digest: of the samples in order; None where none is taken on the way.
    """

    def __init__(
        self,
        dataset: Dataset,
        how: Conversion,
        tasks: Sequence[Task],
        digest: DatasetDigest | None,
        ledger: Sink | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._dataset, self._how, self._tasks, self._on_progress = dataset, how, tasks, on_progress
        self._ledger, self.digest = ledger, digest
        self._copier = Copier(
            dataset, how, write_ledger=None if ledger is None else lambda lines: ledger.write([lines]),
            on_digests=None if digest is None else digest.update, tell=self._tell,
        )  # fmt: skip
        self.tally, self.losses = self._copier.tally, self._copier.losses

    def look(self, limit: int | None) -> None:
        """Read the rows, and leave it at that."""
        for _ in self._copier.rows(range(len(self._dataset.listing)), limit):
            pass

    def into(self, writer: DatasetWriter, store: Store, hiring: Hiring | None, limit: int | None) -> None:
        """Do the tasks: in this process, or have workers do them, once there are some.

        They are begun when the tasks left would take so long, as the first ones went, that it is worth the wait.
        """
        began, done_bytes = time.perf_counter(), 0
        left_bytes = sum(task.source_bytes for task in self._tasks)
        for number, task in enumerate(self._tasks):
            left_s = (time.perf_counter() - began) * left_bytes / done_bytes if done_bytes else 0
            if hiring is not None and hiring.workers is None and left_s > _WORTH_S:
                hiring.begin()
            if hiring is not None and hiring.workers is not None:
                self._by(hiring.workers, self._tasks[number:], writer, store)
                return
            writer.end_part(task.shard_bytes, task.first_row)
            self._copier.copy(range(task.first, task.stop), writer, limit)
            done_bytes, left_bytes = done_bytes + task.source_bytes, left_bytes - task.source_bytes

    def _by(self, crew: Workers, tasks: Sequence[Task], writer: DatasetWriter, store: Store) -> None:
        """Have tasks done by workers; these are gone at the end, and before anything is dropped."""
        before = self.tally

        def tell(tally: Tally) -> None:
            self.tally = Tally(*before.as_list())
            self.tally.add(tally)
            self._tell()

        with crew:
            for done in crew.run(self._how, tasks, self._dataset, writer.building, tell):
                if self.digest is not None:
                    self.digest.update(np.frombuffer(_stored(store, done.digests), np.uint8).reshape(-1, 16))
                if self._ledger is not None:
                    self._ledger.write([_stored(store, done.ledger)])
                writer.adopt(done.part, done.folder)
                self._dataset.counts.update(done.noticed)
                self.losses.tell_first(done.lost)

    def _tell(self) -> None:
        if self._on_progress is not None:
            done, total = self.tally, len(self._dataset.listing)
            self._on_progress(Progress(done.shards, total, done.samples, done.payload_bytes))


def _stored(store: Store, path: str) -> Buffer:
    [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    return data
