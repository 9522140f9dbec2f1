"""The tasks of a conversion, done by this process or by workers, and what went by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from lading.codecs import sniff_wrap
from lading.content.digests import DatasetDigest
from lading.dataset.outcomes import LEDGER_NAME
from lading.dataset.shards import Shards
from lading.dataset.source import read_head
from lading.dataset.writer import DatasetWriter
from lading.jobs.converter import Converter
from lading.jobs.messages import DIGESTS_NAME, decode_part
from lading.jobs.pool import Order, Workers
from lading.jobs.progress import OnProgress, Progress, Speed, Tally
from lading.jobs.spec import Conversion
from lading.jobs.tasks import Task
from lading.storage.base import Buffer, Sink, Store
from lading.storage.concurrent import is_remote

__all__ = ["LazyWorkerPool", "Run", "is_quick"]

_QUICK_BYTES = 2 << 30
"""Source bytes for each worker, below which one process has moved them all before several have begun: on the machine
measured, two workers and one are even at 4 GB."""


def is_quick(dataset: Shards, store: Store, options: Mapping[str, Any], tasks: Sequence[Task], workers: int) -> bool:
    """Whether one process is done sooner than so many: there is little, and it is only moved on this machine."""
    if sum(task.source_bytes for task in tasks) >= _QUICK_BYTES * workers or options.get("compression") is not None:
        return False
    source = dataset.source(0)
    return not is_remote(store) and not is_remote(source.store) and not sniff_wrap(read_head(source.store, source.path))


class LazyWorkerPool:
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
        dataset: Shards,
        how: Conversion,
        tasks: Sequence[Task],
        digest: DatasetDigest | None,
        ledger: Sink | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._dataset, self._how, self._tasks, self._on_progress = dataset, how, tasks, on_progress
        self._ledger, self.digest = ledger, digest
        self._copier = Converter(
            dataset, how, write_ledger=None if ledger is None else lambda lines: ledger.write([lines]),
            on_digests=None if digest is None else digest.update, tell=self._tell,
        )  # fmt: skip
        self.tally, self.losses = self._copier.tally, self._copier.losses

    def look(self) -> None:
        """Read the rows, and leave it at that."""
        for _ in self._copier.rows(range(len(self._dataset.listing))):
            pass

    def into(self, writer: DatasetWriter, store: Store, pool: LazyWorkerPool | None) -> None:
        """Do the tasks: in this process, or have workers do them, once there are some.

        They are begun when the tasks left would take so long, as the first ones went, that it is worth the wait.
        """
        speed = Speed(sum(task.source_bytes for task in self._tasks))
        for number, task in enumerate(self._tasks):
            if pool is not None and pool.workers is None and speed.is_worth_workers():
                pool.begin()
            if pool is not None and pool.workers is not None:
                self._by(pool.workers, self._tasks[number:], writer, store)
                return
            writer.end_part(task.shard_bytes, task.first_row)
            self._copier.copy(range(task.first, task.stop), writer.part)
            speed.add(task.source_bytes)

    def _by(self, crew: Workers, tasks: Sequence[Task], writer: DatasetWriter, store: Store) -> None:
        """Have tasks done by workers; these are gone at the end, and before anything is dropped."""
        before = self.tally

        def tell(tally: Tally) -> None:
            self.tally = Tally(*before.as_list())
            self.tally.add(tally)
            self._tell()

        with crew:
            orders = partial(self._order, writer.building)
            for told in crew.run({"conversion": self._how.encode()}, tasks, orders, tell):
                folder = _folder(writer.building, told["done"])
                if self.digest is not None:
                    digests = _stored(store, f"{folder}/{DIGESTS_NAME}")
                    self.digest.update(np.frombuffer(digests, np.uint8).reshape(-1, 16))
                if self._ledger is not None:
                    self._ledger.write([_stored(store, f"{folder}/{LEDGER_NAME}")])
                writer.adopt(decode_part(told["part"]), folder)
                self._dataset.counts.update(told["noticed"])
                self.losses.add_first(told["lost"])

    def _order(self, building: str, task: Task) -> Order:
        """A task as a worker is told it: it builds in a folder of its own."""
        shards = range(task.first, task.stop)
        told = {
            "number": task.number,
            "folder": _folder(building, task.number),
            "shard_bytes": task.shard_bytes,
            "first_row": task.first_row,
            "shards": self._dataset.listing.table.slice(task.first, len(shards)).to_pylist(),
        }
        files = self._dataset.path(task.first), self._dataset.path(task.stop - 1)
        return Order(told, [self._dataset.indexes.held(number) for number in shards], files)

    def _tell(self) -> None:
        if self._on_progress is not None:
            done, total = self.tally, len(self._dataset.listing)
            self._on_progress(Progress(done.shards, total, done.samples, done.payload_bytes))


def _folder(building: str, number: int) -> str:
    return f"{building}/task-{number:06d}"


def _stored(store: Store, path: str) -> Buffer:
    [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    return data
