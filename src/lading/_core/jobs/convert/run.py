"""The tasks of a conversion, done by this process or by workers, and their progress."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from math import ceil
from queue import Empty, SimpleQueue
from typing import TypeAlias

from lading._core.content.digests import DatasetDigest
from lading._core.dataset.values.absent_fields import refuse_absent_fields
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.items import KEY
from lading._core.jobs.convert.convert_task import Attempt, sent_source
from lading._core.jobs.convert.converter import Converter
from lading._core.jobs.convert.open_job import OpenJob
from lading._core.jobs.convert.schedule import Schedule
from lading._core.jobs.convert.tasks import Task
from lading._core.jobs.engine.executors import ExecutorPool
from lading._core.jobs.engine.failures import Failures
from lading._core.jobs.engine.loop import LazyPool, do_tasks
from lading._core.jobs.engine.messages import encode_skipped, plain_value
from lading._core.jobs.engine.progress import Progress, Tally
from lading._core.jobs.engine.task import SentTask
from lading._core.jobs.journal.journal import Journal
from lading._core.jobs.journal.records import record_path
from lading._core.jobs.journal.results import Results, TaskResult
from lading._core.pipeline.repeated_keys import RepeatedKeys
from lading._core.storage.background import Background
from lading._core.storage.base import Store, native_path
from lading._core.storage.stores import is_local
from lading._core.units import count
from lading.errors import LadingError, StoreError

__all__ = ["Run"]

_Take: TypeAlias = Callable[[Task, TaskResult], None]


@dataclass(frozen=True, slots=True)
class _TaskPlace:
    """Where tasks are done.

    Attributes:
        journal: where finished tasks are recorded.
        folder: of the attempts at tasks.
        store: of both.
    """

    journal: Journal
    folder: str
    store: Store


class Run:
    """Does the tasks of a conversion, in this process or in workers.

    Args:
        opened: the conversion.
        schedule: its plan.
        journal: where finished tasks are recorded, if any process may do the tasks in any order.

    Attributes:
        schedule: the plan.
        spec: the conversion as every process does it.
        tally: counts of the rows that were converted.
        losses: rows that were left out or changed.
        digest: content digest of the samples in order; None if the conversion takes none.
        keys: keys of the samples, where equal ones are counted.
    """

    def __init__(self, opened: OpenJob, schedule: Schedule, journal: Journal | None) -> None:
        self.schedule, self.spec, self.keys = schedule, schedule.spec, RepeatedKeys()
        self._sizes, self._spooled_order, self._journal = schedule.sizes, schedule.spooled_order, journal
        self._dataset, self._tasks, self._on_progress = opened.shards, schedule.tasks, opened.job.on_progress
        self._ledger, self._store, self._shared = opened.ledger, opened.to.store, False
        self.digest = digest = DatasetDigest() if self.spec.digests else None
        self._spool, self._first_step = schedule.spool, len(schedule.steps) - len(self.spec.steps)
        self._spooled = dict[int, list[str]]()
        ledger = opened.ledger
        self._converter = Converter(
            self._dataset, self.spec, self._spooled_order,
            write_ledger=None if ledger is None else lambda lines: ledger.write([lines]),
            on_digests=None if digest is None else digest.update, on_batch=self._on_batch, sizes=self._sizes,
            spools=self._spool.of_steps(self.spec.steps, self._first_step),
        )  # fmt: skip
        self.tally, self.losses = self._converter.tally, self._converter.losses
        self._on_tally: Callable[[], None] = lambda: None
        self._failures = Failures(self.spec.write.max_failures)
        self._mine = self._tasks

    @property
    def unmatched(self) -> Counter[str]:
        """Rows of joined tables for which there was no sample, where this process has read all samples."""
        return Counter() if self._shared else self._converter.transform.unmatched

    def look(self, *, counts_keys: bool) -> None:
        """Read the rows, and write nothing. The keys of the samples are counted if that is asked for."""
        count = len(self._dataset.listing) if self._spooled_order is None else self._spooled_order.count
        for batch in self._converter.rows(range(count)):
            if counts_keys and KEY in batch.schema.names:
                self.keys.add(batch.rows.column(KEY))
        self._refuse_absent_fields()

    def into(self, writer: DatasetWriter, pool: LazyPool | None) -> None:
        """Do the tasks in this process, or in workers once these have started. Tasks that the journal has, are done.

        Workers start when the time of the first tasks shows that the remaining tasks are worth the wait.
        """
        if self._journal is None:
            for task in self._tasks:
                writer.end_part(task.cut, task.first_row)
                self._converter.copy(range(task.first, task.stop), writer.part, task.spans)
        else:
            place = _TaskPlace(self._journal, writer.tasks, self._store)
            self._by_attempts(self._tasks, place, pool, partial(self._adopt, writer))
        self._refuse_absent_fields()

    def some_into(
        self, folder: str, pool: LazyPool | None, rank: int, ranks: int, take: Callable[[TaskResult], None]
    ) -> None:
        """Do the tasks of a rank that the journal lacks, in a folder; `take` gets the answers of all its tasks."""
        assert self._journal is not None, "ranks share it"
        place = _TaskPlace(self._journal, folder, self._store)
        self._mine = mine = [task for task in self._tasks if task.number % ranks == rank]
        self._by_attempts(mine, place, pool, lambda _, answer: take(answer))

    def _refuse_absent_fields(self) -> None:
        if not self.tally.samples:
            refuse_absent_fields(self._dataset, self.spec.steps, self.losses)

    def _by_attempts(self, tasks: Sequence[Task], place: _TaskPlace, pool: LazyPool | None, take: _Take) -> None:
        """Do each task in a folder of its own. Their results are taken in the order of the tasks."""
        done = {task.number: place.journal.done[task.number] for task in tasks if task.number in place.journal.done}
        results = _InOrder(tasks, done, take)
        for answer in done.values():
            self.tally.add(Tally(*answer["tally"]))
        self._shared = bool(done)
        results.take()
        left = [task for task in tasks if task.number not in done]
        with closing(do_tasks(_Attempts(self, place), left, pool)) as answers:
            for answer in answers:
                results.add(answer)
                results.take()
        self._failures.raise_all()
        results.refuse_missing()

    def here(self, tasks: Iterator[Task], place: _TaskPlace) -> Iterator[TaskResult]:
        """Do tasks in this process; files of one close while the next one begins."""
        behind, found = Background("lading-close"), SimpleQueue[TaskResult]()
        try:
            for task in tasks:
                self._try(task, place, behind, found.put)
                yield from _taken_from(found)
            behind.wait()
        finally:
            behind.stop()
        yield from _taken_from(found)

    def by(self, pool: ExecutorPool, tasks: Sequence[Task], place: _TaskPlace) -> Iterator[TaskResult]:
        """Have workers do tasks. They end before anything that failed is deleted."""
        before, self._shared = self.tally, True

        def on_tally(tally: Tally) -> None:
            self._add_to(before, tally)
            self._report_progress()

        if is_local(place.store):  # machines that do not see it, say so
            os.makedirs(native_path(place.folder), exist_ok=True)
        if any(step.is_spooled for step in self.spec.steps):
            self._spooled = self._spool.save()
        with pool:
            job = {"conversion": self.spec.encode()}
            yield from pool.run(job, tasks, partial(self.sent, place.folder), on_tally, self._failures)

    def _try(self, task: Task, place: _TaskPlace, behind: Background, report: Callable[[TaskResult], None]) -> None:
        """Do a task in this process; if it fails, once more, unless tasks may not fail."""
        before, tally = Counter(self._dataset.counts), self.tally.as_list()
        for _ in range(2):
            try:
                self._attempt(task, place, behind, report)
            except LadingError as error:
                self._dataset.counts.clear()
                self._dataset.counts.update(before)
                self.tally = Tally(*tally)
                if not self._failures.try_again(task.number, error):
                    break
            else:
                break

    def _attempt(self, task: Task, place: _TaskPlace, behind: Background, report: Callable[[TaskResult], None]) -> None:
        """Do a task in this process, with the shards that are open here."""
        dataset, converter = self._dataset, self._converter
        before, tally = Counter(dataset.counts), Tally(*self.tally.as_list())
        with Attempt(place.store, self.spec, self.sent(place.folder, task).message, behind) as attempt:
            converter.begin_task(attempt.write_ledger, attempt.on_digests)
            self._on_tally = lambda: self._add_to(tally, converter.tally)
            converter.copy(range(task.first, task.stop), attempt.writer, task.spans)
            self._on_tally()
            skipped = dataset.bad.skipped.items() if self._spooled_order is None else ()
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

    def _adopt(self, writer: DatasetWriter, task: Task, answer: TaskResult) -> None:
        """Take the result of a task into the dataset."""
        first, dataset = 0 if self._spooled_order is not None else task.first, self._dataset
        results = Results(dataset.counts, dataset.bad, self.losses, self.digest, self._ledger)
        results.take(writer, self._store, answer, first)

    def sent(self, tasks: str, task: Task) -> SentTask:
        """Return the message of a task to a worker, which adds a token of the attempt to the folder's name."""
        assert self._journal is not None, "else nobody else does tasks"
        spool = self._spooled, self._first_step
        sent = sent_source(self._dataset, task, self._sizes, self._spooled_order, spool)
        written = {
            "folder": f"{tasks}/task-{task.number:06d}",
            "record": record_path(self._journal.folder, task.number),
            "cut": asdict(task.cut),
            "first_row": task.first_row,
        }
        return replace(sent, message={**sent.message, **written})

    def _on_batch(self) -> None:
        self._on_tally()
        self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            done, (shards, size) = self.tally, self._whole
            share = (done.source_bytes if self._spooled_order is None else done.samples_read) / size if size else None
            finished = done.shards if self._spooled_order is None else int(shards * (share or 0))
            self._on_progress(Progress(finished, shards, done.samples_read, done.payload_bytes, share=share))

    @cached_property
    def _whole(self) -> tuple[int, int]:
        """Number of shards that the tasks of this process and its workers read, and their bytes.

        In a new order shards are not written one by one: it is their part of all shards, and their samples.
        """
        if self._spooled_order is not None:
            samples = sum(task.stop - task.first for task in self._mine)
            return ceil(len(self._dataset.listing) * samples / max(self._spooled_order.count, 1)), samples
        ends = [
            sum(span is None or span.is_last for span in task.spans) if task.spans else task.stop - task.first
            for task in self._mine
        ]
        return sum(ends), sum(task.source_bytes for task in self._mine)


@dataclass(frozen=True, slots=True)
class _Attempts:
    """The tasks of a run, each done in a folder of its own."""

    run: Run
    place: _TaskPlace

    def here(self, tasks: Iterator[Task]) -> Iterator[TaskResult]:
        """Do tasks in this process."""
        return self.run.here(tasks, self.place)

    def by(self, pool: ExecutorPool, tasks: Sequence[Task]) -> Iterator[TaskResult]:
        """Have workers do tasks."""
        return self.run.by(pool, tasks, self.place)


def _taken_from(answers: SimpleQueue[TaskResult]) -> Iterator[TaskResult]:
    """Give what is there."""
    with suppress(Empty):
        while True:
            yield answers.get_nowait()


class _InOrder:
    """Results of tasks, as they come; taken in the order of the tasks."""

    def __init__(self, tasks: Sequence[Task], done: Mapping[int, TaskResult], take: _Take) -> None:
        self._found, self._waiting, self._take, self._total = dict(done), deque(tasks), take, len(tasks)

    def add(self, answer: TaskResult) -> None:
        """Add the answer of a task."""
        self._found[answer["done"]] = answer

    def take(self) -> None:
        """Take the answers that are there, up to the first task without one."""
        while self._waiting and self._waiting[0].number in self._found:
            task = self._waiting.popleft()
            self._take(task, self._found.pop(task.number))

    def refuse_missing(self) -> None:
        """Refuse to end with tasks that have no answer: the output would lack their rows.

        Raises:
            StoreError: says how many they are.
        """
        if self._waiting:
            missing = [task.number for task in self._waiting if task.number not in self._found]
            raise StoreError(
                "the job ended without the results of all tasks", expected=f"{count(self._total, 'task')}",
                found=f"no result of {count(len(missing), 'task')}, the first of them number {missing[0]}",
                advice="Report this as a bug. Nothing was published, and the finished tasks are kept.",
            )  # fmt: skip
