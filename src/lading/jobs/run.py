"""The tasks of a conversion, done by this process or by workers, and their progress."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lading.codecs import sniff_wrap
from lading.content.digests import DatasetDigest
from lading.dataset.order.arranged import Arranged
from lading.dataset.shards.shards import Shards
from lading.dataset.source.source import read_head
from lading.dataset.values.absent_fields import refuse_absent_fields
from lading.dataset.writing.outcomes import LEDGER_NAME
from lading.dataset.writing.writer import DatasetWriter
from lading.features.items import KEY
from lading.jobs.converter import Converter
from lading.jobs.do_task import Attempt
from lading.jobs.journal import Journal
from lading.jobs.messages import DIGESTS_NAME, decode_part, decode_skipped, encode_skipped, plain_value
from lading.jobs.pool import Crew, Order
from lading.jobs.progress import OnProgress, Progress, Speed, Tally
from lading.jobs.records import record_path
from lading.jobs.spec import Conversion
from lading.jobs.tasks import Task
from lading.pipeline.repeated_keys import RepeatedKeys
from lading.storage.background import Background
from lading.storage.base import Buffer, Sink, Store, native_path
from lading.storage.concurrent import is_remote
from lading.storage.stores import is_local

__all__ = ["LazyWorkerPool", "Run", "is_quick"]

_Answer: TypeAlias = Mapping[str, Any]

_QUICK_BYTES = 2 << 30
"""Source bytes for each worker, below which one process has moved them all before several have begun: on the machine
measured, two workers and one are even at 4 GB."""


def is_quick(dataset: Shards, store: Store, options: Mapping[str, Any], sizes: Sequence[int], workers: int) -> bool:
    """Whether one process is faster than several: the data are small, local, and only copied."""
    if sum(sizes) >= _QUICK_BYTES * workers or options.get("compression") is not None:
        return False
    for number in range(len(dataset.listing)):
        with dataset.bad.skipping(number, dataset.path(number)):
            source = dataset.source(number)
            wrap = sniff_wrap(read_head(source.store, source.path))
            return not is_remote(store) and not is_remote(source.store) and not wrap
    return True


class LazyWorkerPool:
    """Workers that start when the job needs them.

    Args:
        held: ends the workers when it closes.
        start: starts them.

    Attributes:
        workers: the workers; None before they start.
    """

    def __init__(self, held: ExitStack, start: Callable[[], Crew]) -> None:
        self.workers: Crew | None = None
        self._held, self._start = held, start

    def begin(self) -> None:
        """Start the workers."""
        self.workers = self._held.enter_context(self._start())


class Run:
    """Does the tasks of a conversion, in this process or in workers.

    Args:
        dataset: the source.
        spec: the conversion.
        tasks: its pieces.
        digest: takes content digests of the samples; None takes none.
        ledger: file of the rows that are lost; None where none is kept.
        on_progress: called after every batch.
        arranged: the samples in another order than that of the source; tasks are ranges of places then.
        journal: where finished tasks are recorded, if any process may do the tasks in any order.

    Attributes:
        tally: counts of the rows that were converted.
        losses: rows that were left out or changed.
        digest: content digest of the samples in order; None if the conversion takes none.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - one value a decision of the job; a value object would only move them
        self,
        dataset: Shards,
        spec: Conversion,
        tasks: Sequence[Task],
        digest: DatasetDigest | None,
        ledger: Sink | None,
        on_progress: OnProgress | None,
        sizes: Sequence[int] = (),
        arranged: Arranged | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._sizes, self._arranged, self._journal = sizes, arranged, journal
        self._dataset, self._spec, self._tasks, self._on_progress = dataset, spec, tasks, on_progress
        self._ledger, self.digest, self._shared = ledger, digest, False
        self._converter = Converter(
            dataset, spec, arranged, write_ledger=None if ledger is None else lambda lines: ledger.write([lines]),
            on_digests=None if digest is None else digest.update, on_batch=self._on_batch,
            sizes=sizes,
        )  # fmt: skip
        self.tally, self.losses = self._converter.tally, self._converter.losses
        self._on_tally: Callable[[], None] = lambda: None

    @property
    def unmatched(self) -> Counter[str]:
        """Rows of joined tables for which there was no sample, where this process has read all samples."""
        return Counter() if self._shared else self._converter.transform.unmatched

    def look(self, keys: RepeatedKeys | None = None) -> None:
        """Read the rows, and write nothing. `keys` gets the keys of the samples."""
        count = len(self._dataset.listing) if self._arranged is None else self._arranged.count
        for batch in self._converter.rows(range(count)):
            if keys is not None and KEY in batch.schema.names:
                keys.add(batch.rows.column(KEY))
        self._refuse_absent_fields()

    def into(self, writer: DatasetWriter, store: Store, pool: LazyWorkerPool | None) -> None:
        """Do the tasks in this process, or in workers once these have started. Tasks that the journal has, are done.

        Workers start when the time of the first tasks shows that the remaining tasks are worth the wait.
        """
        if self._journal is None:
            for task in self._tasks:
                writer.end_part(task.cut, task.first_row)
                self._converter.copy(range(task.first, task.stop), writer.part, task.stretches)
        else:
            self._by_attempts(self._journal, writer, store, pool)
        self._refuse_absent_fields()

    def _refuse_absent_fields(self) -> None:
        if not self.tally.samples:
            refuse_absent_fields(self._dataset, self._spec.steps, self.losses)

    def _by_attempts(self, journal: Journal, writer: DatasetWriter, store: Store, pool: LazyWorkerPool | None) -> None:
        """Do each task in a folder of its own. Their results are taken in the order of the tasks."""
        results = _InOrder(self._tasks, journal.done)
        for answer in journal.done.values():
            self.tally.add(Tally(*answer["tally"]))
        self._shared = bool(journal.done)
        self._take(results, writer, store)
        left = [task for task in self._tasks if task.number not in journal.done]
        speed = Speed(sum(task.source_bytes for task in left))
        closing = Background("lading-close")
        try:
            for number, task in enumerate(left):
                if pool is not None and pool.workers is None and speed.is_worth_workers():
                    pool.begin()
                if pool is not None and pool.workers is not None:
                    closing.wait()
                    self._by(pool.workers, left[number:], results, writer, store)
                    break
                self._attempt(task, writer, store, closing, results.add)
                self._take(results, writer, store)
                speed.add(task.source_bytes)
            closing.wait()
        finally:
            closing.stop()
        self._take(results, writer, store)

    def _attempt(
        self, task: Task, writer: DatasetWriter, store: Store, closing: Background, report: Callable[[_Answer], None]
    ) -> None:
        """Do a task in this process, with the shards that are open here."""
        dataset, converter = self._dataset, self._converter
        before, tally = Counter(dataset.counts), Tally(*self.tally.as_list())
        with Attempt(store, self._spec, self._order(writer.tasks, task).message, closing) as attempt:
            converter.begin_task(attempt.write_ledger, attempt.on_digests)
            self._on_tally = lambda: self._add_to(tally, converter.tally)
            converter.copy(range(task.first, task.stop), attempt.writer, task.stretches)
            self._on_tally()
            skipped = dataset.bad.skipped.items() if self._arranged is None else ()
            attempt.finish(
                report, reported=dict(dataset.counts - before), tally=converter.tally.as_list(),
                outcomes=plain_value(converter.losses.to_json()),
                skipped=encode_skipped({n - task.first: bad for n, bad in skipped if task.first <= n < task.stop}),
            )  # fmt: skip
        dataset.counts.clear()  # what the task adds comes with its answer
        dataset.counts.update(before)

    def _add_to(self, before: Tally, more: Tally) -> None:
        self.tally = Tally(*before.as_list())
        self.tally.add(more)

    def _by(self, crew: Crew, tasks: Sequence[Task], results: _InOrder, writer: DatasetWriter, store: Store) -> None:
        """Have workers do tasks. They end before anything that failed is deleted."""
        before, self._shared = self.tally, True

        def on_tally(tally: Tally) -> None:
            self._add_to(before, tally)
            self._report_progress()

        if is_local(store):  # machines that do not see it, say so
            os.makedirs(native_path(writer.tasks), exist_ok=True)
        with crew:
            orders = partial(self._order, writer.tasks)
            for message in crew.run({"conversion": self._spec.encode()}, tasks, orders, on_tally):
                results.add(message)
                self._take(results, writer, store)

    def _take(self, results: _InOrder, writer: DatasetWriter, store: Store) -> None:
        """Take the results of the tasks that are next in order into the dataset."""
        for task, answer in results.next():
            folder = answer["folder"]
            if self.digest is not None:
                digests = _stored(store, f"{folder}/{DIGESTS_NAME}")
                self.digest.update(np.frombuffer(digests, np.uint8).reshape(-1, 16))
            if self._ledger is not None:
                self._ledger.write([_stored(store, f"{folder}/{LEDGER_NAME}")])
            writer.adopt(decode_part(answer["part"]), folder)
            self._dataset.counts.update(answer["reported"])
            first = 0 if self._arranged is not None else task.first
            for number, skipped in decode_skipped(answer["skipped"]).items():
                self._dataset.bad.add(first + number, skipped)
            self.losses.add_json(answer["outcomes"])

    def _order(self, tasks: str, task: Task) -> Order:
        """Return the message of a task to a worker, which adds a token of the attempt to the folder's name."""
        assert self._journal is not None, "else nobody else does tasks"
        arranged, first, stop = self._arranged, task.first, task.stop
        if arranged is not None:  # a worker needs no shard of the source but one, which tells how they are read
            first, stop = 0, 1
        message = {
            "number": task.number,
            "folder": f"{tasks}/task-{task.number:06d}",
            "record": record_path(self._journal.folder, task.number),
            "cut": asdict(task.cut),
            "sizes": self._sizes[task.first : task.stop],
            "first_row": task.first_row,
            "stretches": [each and asdict(each) for each in task.stretches],
            "shards": self._dataset.listing.table.slice(first, stop - first).to_pylist(),
            "arranged": None if arranged is None else [arranged.folder, task.first, task.stop],
        }
        indexes = [self._dataset.indexes.held(number) for number in range(first, stop) if arranged is None]
        return Order(message, indexes, (self._dataset.path(first), self._dataset.path(stop - 1)))

    def _on_batch(self) -> None:
        self._on_tally()
        self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            done, total = self.tally, len(self._dataset.listing)
            shards = done.shards
            if self._arranged is not None:  # shards are not written one by one
                shards = total * done.samples // max(self._arranged.count, done.samples, 1)
            self._on_progress(Progress(shards, total, done.samples, done.payload_bytes))


class _InOrder:
    """Results of tasks, as they come; given in the order of the tasks. Threads may add."""

    def __init__(self, tasks: Sequence[Task], done: Mapping[int, _Answer]) -> None:
        self._found, self._waiting = dict(done), deque(tasks)

    def add(self, answer: _Answer) -> None:
        """Add the answer of a task."""
        self._found[answer["done"]] = answer

    def next(self) -> Iterator[tuple[Task, _Answer]]:
        """Yield the tasks whose answers are there, up to the first without one."""
        while self._waiting and self._waiting[0].number in self._found:
            task = self._waiting.popleft()
            yield task, self._found.pop(task.number)


def _stored(store: Store, path: str) -> Buffer:
    [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    return data
