"""Functions of a conversion that several processes call before its tasks.

A source of less than 64 MB is one task, so that its shards do not depend on the number of processes. Where functions
take most of the time, they are called before, by as many processes as there are: for spans of the shards, or of places
of a new order. What they make is kept as that of functions before a step that needs all samples is
(`_core.dataset.transform.function_spool`). Then the task writes its shards as ever, and calls no function again.

Functions before a step that needs all samples are called so whatever the number of tasks: else the process that finds
the new order would call them alone. Functions between two such steps are left to that process.

Reading twice and keeping what was made is worth it only for slow functions. The first parts are done here, and tell.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from lading._core.dataset.order.spooled_order import SpooledOrder
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.shards.spans import may_be_cut, spans_of
from lading._core.dataset.transform.function_spool import FunctionSpool
from lading._core.jobs.convert.convert_task import sent_source
from lading._core.jobs.convert.converter import Converter
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.tasks import Piece, Task, piece_task
from lading._core.jobs.engine.loop import LazyPool
from lading._core.jobs.engine.progress import OnProgress, Progress, Tally, is_worth_workers
from lading._core.jobs.engine.task import SentTask
from lading._core.pipeline.cutting import ONE_SHARD

__all__ = ["Calls", "call_tasks", "order_call_tasks"]

_PARTS = 16
"""Parts for each worker: the last of them leave the others idle for a short time only."""
_LOOK_S = 0.1
"""Time after which it is known whether functions are slow."""


def call_tasks(shards: Shards, sizes: Sequence[int], workers: int) -> list[Task]:
    """Return a source as parts in which functions are called: some for each worker, as far as the shards can be cut."""
    step, pieces = max(sum(sizes) // (workers * _PARTS), 1), list[Piece]()
    can_cut = may_be_cut(shards)
    with shards.reporting_to(Counter()):  # the tasks of the job report
        for number, size in enumerate(sizes):
            spans = spans_of(shards, number, step) if can_cut and size > 2 * step else []
            pieces += [Piece(number, span.size_bytes, span) for span in spans] or [Piece(number, size)]
    tasks, first, total = list[Task](), 0, 0
    for stop, piece in enumerate(pieces, 1):
        total += piece.size_bytes
        if total >= step or stop == len(pieces):
            tasks.append(piece_task(len(tasks), pieces[first:stop], ONE_SHARD))
            first, total = stop, 0
    return tasks


def order_call_tasks(spooled_order: SpooledOrder, workers: int) -> list[Task]:
    """Return the same of samples in a new order."""
    step = int(spooled_order.sizes.sum()) // (workers * _PARTS)
    return [
        Task(number, first, stop, size, ONE_SHARD)
        for number, (first, stop, size) in enumerate(spooled_order.bounds(max(step, 1)))
    ]


class Calls:
    """Calls the functions of a conversion for parts of its source, and keeps what they make.

    Args:
        shards: the source.
        spec: the conversion.
        sizes: bytes of each shard.
        spool: takes what the functions make; its steps begin at `first_step`.
        spooled_order: the samples, if they are written in another order.
        first_samples: as of `Converter`.
        on_progress: called after every batch.
    """

    def __init__(
        self, shards: Shards, spec: JobPlan, sizes: Sequence[int], spool: FunctionSpool, *, first_step: int = 0,
        spooled_order: SpooledOrder | None = None, first_samples: Sequence[int] = (),
        on_progress: OnProgress | None = None,
    ) -> None:  # fmt: skip
        last = max(i + 1 for i, step in enumerate(spec.steps) if step.is_spooled)
        self._shards, self._sizes, self._spool, self._on_progress = shards, sizes, spool, on_progress
        self._spec = spec = replace(spec, steps=spec.steps[:last])
        self._first_step, self._spooled_order, self._first_samples = first_step, spooled_order, first_samples
        spools = spool.of_steps(spec.steps, first_step)
        self._places = [first_step + place for place, each in enumerate(spools) if each is not None]
        self._spools = [each for each in spools if each is not None]
        self._unused = Counter[str]()  # the tasks report the same
        with shards.reporting_to(self._unused):
            self._converter = Converter(
                shards, spec, spooled_order, on_batch=lambda: self._report(self._converter.tally), sizes=sizes,
                spools=spools, first_samples=first_samples,
            )  # fmt: skip

    def run(self, tasks: Sequence[Task], pool: LazyPool) -> None:
        """Call the functions in parts. The first ones are called here; if they are slow, workers do the rest.

        Raises:
            LadingError: the first error of a part.
        """
        began, before = time.monotonic(), [(each.asked, each.seconds) for each in self._spools]
        left, done, left_bytes = deque(tasks), 0, sum(task.source_bytes for task in tasks)
        while left:
            elapsed, calls, took, came = time.monotonic() - began, 0.0, 0.0, 0
            for each, (asked, seconds) in zip(self._spools, before, strict=True):
                calls += (each.asked - asked) * each.seconds_a_sample  # of some what they made was kept before
                took, came = took + each.seconds - seconds, came + each.asked - asked
            if is_worth_workers((calls - elapsed + took) * left_bytes / max(done, 1)):
                self._by(pool, list(left))
                return
            if elapsed > _LOOK_S and (took or not came):  # of a job that goes on, what the first parts made may be kept
                return
            task = left.popleft()
            with self._shards.reporting_to(self._unused):
                for _ in self._converter.rows(range(task.first, task.stop), task.spans):
                    pass  # the functions are called
            done, left_bytes = done + task.source_bytes, left_bytes - task.source_bytes

    def _by(self, pool: LazyPool, tasks: Sequence[Task]) -> None:
        """Have workers call the functions."""
        if pool.pool is None:
            pool.begin(len(tasks))
        assert pool.pool is not None, "it began"
        job, before = {"calls": self._spec.encode()}, Tally(*self._converter.tally.as_list())
        known, own = self._spool.save(), {place: self._spool.of(place).path for place in self._places}

        def sent(task: Task) -> SentTask:
            found = sent_source(self._shards, task, self._sizes, self._spooled_order, (known, self._first_step),
                                self._first_samples)  # fmt: skip
            folder = next(iter(own.values()))  # which every machine must see
            return replace(found, message={**found.message, "folder": folder, "own": [*own.items()]})

        def on_tally(tally: Tally) -> None:
            total = Tally(*before.as_list())
            total.add(tally)
            self._report(total)

        for answer in pool.pool.run(job, tasks, sent, on_tally):
            for place, path in answer["files"]:
                self._spool.of(place).take_file(path)

    def _report(self, done: Tally) -> None:
        if self._on_progress is not None:
            total = sum(self._sizes) if self._spooled_order is None else 0
            share = done.source_bytes / total if total else None
            shards = len(self._shards.listing)
            self._on_progress(Progress(done.shards, shards, done.samples_read, done.payload_bytes, share=share))
