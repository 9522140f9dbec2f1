"""The schedule of a conversion: its tasks, and the processes that may share them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lading._core.arrow.rebatch import HELD_BATCHES
from lading._core.codecs import sniff_wrap
from lading._core.dataset.order.chosen import ChosenSamples, split_at_list
from lading._core.dataset.order.numbers import Numbers
from lading._core.dataset.order.spooled_order import SpooledOrder
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.shards.spans import may_be_cut, refuse_same_ids, spans_of
from lading._core.dataset.source.source import read_head
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.column_steps import Select
from lading._core.dataset.steps.sequence import names_behind
from lading._core.dataset.transform.function_spool import FunctionSpool
from lading._core.features.items import KEY
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.jobs.convert.call_ahead import Calls, call_tasks, order_call_tasks
from lading._core.jobs.convert.converter import Converter
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.open_job import OpenJob
from lading._core.jobs.convert.settle import settled
from lading._core.jobs.convert.tasks import (
    ALONE_BYTES,
    SHARD_BYTES,
    Piece,
    Task,
    is_large,
    is_one_task,
    plan_tasks,
    shard_sizes,
    spooled_tasks,
)
from lading._core.jobs.convert.trial import tried_rates, tried_ratio
from lading._core.jobs.engine.executors import ExecutorPool, open_executor, worker_programs
from lading._core.jobs.engine.loop import LazyPool
from lading._core.jobs.engine.threads import threads_each
from lading._core.jobs.journal.begin import done_before
from lading._core.manifest.commit import Staging
from lading._core.manifest.values import lookup
from lading._core.pipeline.cutting import ONE_SHARD, Cut
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.storage.base import Store
from lading._core.storage.concurrent import is_remote
from lading._core.units import count, parse_bytes
from lading.errors import UsageError
from lading.options import WriteOptions

__all__ = ["Schedule", "are_few", "make_schedule", "planned_pieces", "planned_tasks", "start_workers"]

_PIECES_OF_SHARD = 64
"""Pieces of a source for a shard of the output, so that tasks fit whole shards."""
_QUICK_BYTES = 2 << 30
"""Source bytes for each worker, below which one process has moved them all before several have begun: on the machine
measured, two workers and one are even at 4 GB."""
_FEW_TASKS = 4
"""Tasks for each worker, below which slow functions are called before: the last tasks would leave workers idle."""
_LOOKED_UP = 1 << 16
"""Numbers of samples whose shards are looked up at once."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is known of a conversion before the first row is written.

    Attributes:
        spec: the conversion as every process does it; of samples in a new order, the steps behind that.
        tasks: its pieces.
        sizes: bytes of each shard of the source.
        staging: the folder to build in, if several processes may do the work.
        pool: these processes.
        spooled: the samples, if they are written in another order.
        chosen: the same, with what was left out before their order was known.
        source_shards: shards that were read for it.
        samples_read: samples of these shards; None where the samples are written in the order of the source.
        apart: whether any process may do the tasks, in any order.
        spool: what functions made so far.
    """

    spec: JobPlan
    tasks: Sequence[Task]
    sizes: Sequence[int]
    staging: Staging | None = None
    pool: LazyPool | None = None
    spooled_order: SpooledOrder | None = None
    chosen: ChosenSamples | None = None
    source_shards: int = 0
    samples_read: int | None = None
    apart: bool = False
    spool: FunctionSpool = field(default_factory=FunctionSpool)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps of the conversion, those before a new order too."""
        before = () if self.chosen is None else self.chosen.steps
        return (*before, *self.spec.steps)


def make_schedule(opened: OpenJob, spool: FunctionSpool) -> Schedule:
    """Plan a conversion into one file or into shards; put samples in their new order, where it has one.

    The ledger, if there is one, gets lines of the rows that are left out before the new order is known. The spool takes
    what functions make.
    """
    job, shards, ledger, alone = opened.job, opened.shards, opened.ledger, opened.to.is_file
    before, behind = split_at_list(job.steps)
    sizes = list(shard_sizes(shards.listing, job.stores, skip=job.read.on_bad_shard == "skip"))
    apart = not alone and _is_apart(job, behind)
    # A job that goes on finds the place where it builds by its plan.
    shares = apart and job.write.shares and not job.write.goes_on
    staging, pool = opened.to.whole, None
    if not before:
        pieces = planned_pieces(job, shards, sizes, alone=alone)
        count = _about_tasks(job.write, sizes, pieces, alone=alone)
        calls = call_tasks(shards, sizes, _workers(job.write)) if _calls_ahead(opened, spool, count) else []
        if shares:
            most = len(pieces) if count > 1 else len(calls)
            staging, pool = start_workers(opened, sizes, most, staging, early=count > 1)
        spec = settled(job, shards, spool)
        _call(opened, calls, spec, sizes, spool, pool)
        tasks = _numbered(planned_tasks(shards, spec, sizes, pieces, spool, alone=alone), shards, spec, None)
        if len(tasks) == 1 and not job.write.sharing.is_elsewhere:
            pool = None  # the workers were there to call functions
        return Schedule(spec, tasks, sizes, staging, pool, apart=apart, spool=spool)
    if job.columns is not None:
        job = replace(job.with_steps((*job.steps, Select(job.columns))), columns=None)
    whole = settled(job, shards, spool)
    _call_before_order(opened, whole, sizes, spool)
    write_ledger = None if ledger is None else lambda lines: ledger.write([lines])
    chosen = ChosenSamples(shards, before, write_ledger=write_ledger, spool=spool)
    spec, spooled_order, source_shards, samples_read = _spooled_order(
        whole, chosen, shards, opened.held, to_file=job.write.shares and (apart or job.may_call_ahead)
    )  # fmt: skip
    _call_in_order(opened, spec, sizes, spool, spooled_order, len(whole.steps) - len(spec.steps))
    tasks = _numbered(
        _spooled_tasks(shards, whole, spec, spooled_order, spool, alone=alone), shards, spec, spooled_order
    )
    if shares:
        parts = [task.source_bytes for task in tasks]
        staging, pool = start_workers(opened, parts, len(parts), staging)
    return Schedule(
        spec, tasks, sizes, staging, pool, spooled_order, chosen, source_shards, samples_read, apart, spool
    )  # fmt: skip


def _call(
    opened: OpenJob, tasks: Sequence[Task], spec: JobPlan, sizes: Sequence[int], spool: FunctionSpool,
    pool: LazyPool | None = None, **place: Any,
) -> None:  # fmt: skip
    """Call functions in parts of a source, which has a `place` as `Calls` takes it, by the workers of the job.

    Without workers, others are there for the calls alone.
    """
    if not tasks:
        return
    with ExitStack() as held:
        on_progress = opened.job.in_phase("calling functions")
        Calls(opened.shards, spec, sizes, spool, on_progress=on_progress, **place).run(
            tasks, pool or _lazy_pool(opened, held, _workers(opened.write), spool.lock)
        )


def _call_before_order(opened: OpenJob, whole: JobPlan, sizes: Sequence[int], spool: FunctionSpool) -> None:
    """Call the functions before the first step that needs all samples, which one process reads."""
    shards = opened.shards
    first = next(i for i, step in enumerate(whole.steps) if step.needs_all)
    spec = replace(whole, steps=whole.steps[:first])
    if any(step.is_spooled for step in spec.steps) and _calls_ahead(opened, spool, 1):
        begins = [0, *shards.sample_ends().tolist()][:-1]
        _call(opened, call_tasks(shards, sizes, _workers(opened.write)), spec, sizes, spool, first_samples=begins)


def _call_in_order(
    opened: OpenJob, spec: JobPlan, sizes: Sequence[int], spool: FunctionSpool, spooled_order: SpooledOrder,
    first_step: int,
) -> None:  # fmt: skip
    """Call the functions behind the last step that needs all samples, if the tasks will be few."""
    write, total = opened.write, int(spooled_order.sizes.sum())
    alone = opened.to.is_file or _is_undivided(write) or total < ALONE_BYTES
    count = 1 if alone else total // (_shard_size(write) or SHARD_BYTES)
    if any(step.is_spooled for step in spec.steps) and _calls_ahead(opened, spool, count):
        tasks = order_call_tasks(spooled_order, _workers(write))
        _call(opened, tasks, spec, sizes, spool, first_step=first_step, spooled_order=spooled_order)


def are_few(tasks: int, workers: int) -> bool:
    """Return whether tasks are so few that the last ones leave workers idle for a large part of the time."""
    return workers > 1 and tasks < _FEW_TASKS * workers


def _calls_ahead(opened: OpenJob, spool: FunctionSpool, tasks: int) -> bool:
    """Whether functions are called before the tasks, so many of which are expected, if the functions are slow."""
    job, write = opened.job, opened.write
    if not (write.shares and job.may_call_ahead and are_few(tasks, _workers(write))):
        return False
    if opened.rank is not None and (tasks > 1 or opened.rank[0] > 0):
        return False  # ranks share the tasks: the first one does the only task
    if write.resume and opened.to.whole is None and done_before(*opened.to.place, None) is not None:
        return False  # the job has ended, or is refused as another one
    return spool.lasts or not write.sharing.is_elsewhere  # other machines do not see a temporary folder


def _workers(write: WriteOptions) -> int:
    """How many processes or threads may do the work; those of this machine, where an executor knows how many."""
    return threads_each(1) if write.workers == 1 else write.workers


def _about_tasks(write: WriteOptions, sizes: Sequence[int], pieces: Sequence[Piece], *, alone: bool) -> int:
    """About how many tasks a conversion in the order of its source will have."""
    size, is_cut = _shard_size(write), any(piece.span is not None for piece in pieces)
    if alone or _is_undivided(write) or (not is_cut and is_one_task(sizes, size)):
        return 1
    return max(sum(sizes) // max(SHARD_BYTES if size is None else size, ALONE_BYTES // 4), 2)


def _is_apart(job: Job, behind: Sequence[Step]) -> bool:
    """Whether any process may do the tasks; `behind` are the steps behind the last one that needs all samples."""
    target = get_format(job.write.format)
    alone = (
        job.write.dry_run
        or job.write.counts_samples
        or any(step.counts_samples for step in behind)
        # Which columns a function over batches gives tars is found on the way, by the process that writes all of it.
        or (job.maps_batches and not target.info.fixed_schema)
        # Workers do not know what their shards will be called.
        or target.info.files_name_each_other
    )
    return not alone


def start_workers(
    opened: OpenJob, sizes: Sequence[int], most_tasks: int, staging: Staging | None, *, early: bool = True
) -> tuple[Staging | None, LazyPool | None]:
    """The folder to build in and the workers, if there is work for several processes; no more than there are tasks.

    Args:
        opened: the conversion.
        sizes: bytes of the parts of the source that are left.
        most_tasks: tasks, at most.
        staging: the folder, if there is one already.
        early: whether workers may start before the first task, if the work is slow.
    """
    write, to, held = opened.write, opened.to, opened.held
    elsewhere = write.sharing.is_elsewhere
    count = min(_workers(write), most_tasks)
    if count <= 1 and not elsewhere:
        return staging, None
    staging = staging or Staging.begin(to.store, to.path, shared=False)
    held.callback(staging.drop)  # nothing is left to drop after the commit
    pool = _lazy_pool(opened, held, count, staging.lock)
    slow = write.verify or opened.job.looks_at_values
    if elsewhere or (early and (slow or not is_quick(opened.shards, to.store, write.options or {}, sizes, count))):
        pool.begin(count)  # before the plan: what workers import takes as long as a look at a few GB
    return staging, pool


def _lazy_pool(opened: OpenJob, held: ExitStack, count: int, lock: int | None) -> LazyPool:
    """The workers, which have not begun: so many, or those of an executor. They hold the lock as long as they live."""
    write = opened.write

    def start(_: int) -> ExecutorPool:
        if write.sharing.is_elsewhere:
            return open_executor(write.sharing, write.threads)
        return worker_programs(count, lock=lock, threads=write.threads or threads_each(count))

    return LazyPool(held, start)


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


def _spooled_order(
    spec: JobPlan, chosen: ChosenSamples, shards: Shards, held: ExitStack, *, to_file: bool
) -> tuple[JobPlan, SpooledOrder, int, int]:
    """Put the samples of a conversion in their new order, which are chosen by the steps before.

    Returns the conversion with the steps behind, the samples, and the numbers of shards and samples that were read.
    """
    before, behind = split_at_list(spec.steps)
    numbers = chosen.numbers
    most = spec.max_batch_bytes // HELD_BATCHES
    spooled_order = held.enter_context(
        chosen.spooled_order(numbers, before, chosen.columns_needed(behind), most, to_file=to_file)
    )
    ends = shards.sample_ends()
    reading = (i for i, step in enumerate(chosen.steps) if step.phase or not (step.keeps_samples or step.over_numbers))
    first_reading = next(reading, None)
    looked_at: Numbers = range(0) if first_reading is None else chosen.numbers_behind(first_reading)
    there = np.zeros(len(ends), np.bool_)
    for some in (numbers, looked_at):
        for first in range(0, len(some), _LOOKED_UP):
            there[lookup(ends, np.asarray(some[first : first + _LOOKED_UP], np.int64))[0]] = True
    mapped = spec.schemas.mapped[sum(step.makes_columns for step in before) :]
    lists = spec.read.image_lists
    read = replace(spec.read, image_lists=None if lists is None else names_behind(before, lists))
    rest = replace(spec, read=read, steps=tuple(behind), schemas=replace(spec.schemas, mapped=mapped))
    return rest, spooled_order, int(there.sum()), int(np.diff(ends, prepend=0)[there].sum())


def planned_pieces(job: Job, shards: Shards, sizes: Sequence[int], *, alone: bool) -> list[Piece]:
    """The source in pieces that are read alone: shards, and spans of large ones that are worth several tasks."""
    size = _shard_size(job.write)
    if alone or _is_undivided(job.write) or any(step.counts_samples for step in job.steps) or not may_be_cut(shards):
        return [Piece(number, whole) for number, whole in enumerate(sizes)]
    step, pieces = (SHARD_BYTES if size is None else size) // _PIECES_OF_SHARD, list[Piece]()
    has_more = shards.files_beside
    for number, whole in enumerate(sizes):
        is_cut = is_large(whole, sizes, size, has_more=has_more)
        found = spans_of(shards, number, 1 if has_more else step) if is_cut else []
        pieces += [Piece(number, part.size_bytes, part) for part in found] or [Piece(number, whole)]
    return pieces


def planned_tasks(
    shards: Shards, spec: JobPlan, sizes: Sequence[int], pieces: Sequence[Piece], spool: FunctionSpool, *,
    alone: bool,
) -> list[Task]:  # fmt: skip
    """The tasks of a conversion in the order of its source; one (`alone`) for one file."""
    size = _shard_size(spec.write)
    is_cut = any(piece.span is not None for piece in pieces)
    if alone or _is_undivided(spec.write) or (not is_cut and is_one_task(sizes, size)):
        return _one_task(len(sizes), sum(sizes), _cut(shards, spec, spool, alone=alone))
    tasks = plan_tasks(pieces, size, tried_rates(shards, spec, pieces, spool.of_steps(spec.steps)))
    for task in tasks[1:]:
        if task.spans and task.spans[0] is not None and task.spans[0].first_row:
            refuse_same_ids(shards, task.first, task.spans[0].first_sample)
    return tasks


def _spooled_tasks(
    shards: Shards, whole: JobPlan, spec: JobPlan, spooled_order: SpooledOrder, spool: FunctionSpool, *, alone: bool
) -> list[Task]:
    """The tasks of a conversion whose samples are written in another order; `whole` has all of its steps."""
    total = int(spooled_order.sizes.sum())
    if alone or _is_undivided(spec.write) or total < ALONE_BYTES:
        return _one_task(spooled_order.count, total, _cut(shards, whole, spool, alone=alone))
    spools = spool.of_steps(spec.steps, len(whole.steps) - len(spec.steps))
    return spooled_tasks(spooled_order, _shard_size(spec.write), tried_ratio(shards, spec, spooled_order, spools))


def _shard_size(write: WriteOptions) -> int | None:
    return None if write.shard_size is None else parse_bytes(write.shard_size)


def _is_undivided(write: WriteOptions) -> bool:
    """Whether one process counts the samples, or nothing is written."""
    return write.counts_samples or write.dry_run


def _one_task(stop: int, size: int, cut: Cut) -> list[Task]:
    return [Task(0, 0, stop, size, cut)] if stop else []


def _cut(shards: Shards, spec: JobPlan, spool: FunctionSpool, *, alone: bool) -> Cut:
    """Where the only task cuts its output into shards.

    Raises:
        UsageError: there are fewer samples than shards.
    """
    write = spec.write
    if alone:
        return ONE_SHARD
    if write.dry_run or not write.counts_samples:
        return Cut(_shard_size(write) or SHARD_BYTES)
    if write.rows_per_shard is not None:
        return Cut(SHARD_BYTES, samples=write.rows_per_shard)
    wanted = write.num_shards or 1
    total = _samples_left(shards, spec, spool)
    if total < wanted:
        raise UsageError("there are fewer samples than shards", expected=f"at most --num-shards {total}",
                         found=count(wanted, "shard"))  # fmt: skip
    return Cut(SHARD_BYTES, samples=total // wanted, longer=total % wanted)


def _samples_left(shards: Shards, spec: JobPlan, spool: FunctionSpool) -> int:
    """How many samples are left behind all steps."""
    if split_at_list(spec.steps)[0] or not any(step.is_spooled for step in spec.steps):
        return len(ChosenSamples(shards, spec.steps, spool=spool).numbers)
    with shards.reporting_to(Counter()):
        converter = Converter(shards, spec, spools=spool.of_steps(spec.steps))
        return sum(batch.num_samples for batch in converter.rows(range(len(shards.listing))))


def _numbered(tasks: list[Task], shards: Shards, spec: JobPlan, spooled_order: SpooledOrder | None) -> list[Task]:
    """The tasks, with the numbers of their first rows where rows without keys are to be members of tars.

    There each is named by its number in the source, or by its place in a new order, whoever does its task: a row that
    is left out leaves a gap.
    """
    fmt, write = get_format(spec.write.format), spec.write
    roles = Roles(dict(spec.schemas.roles))
    kind = ShardKind(fmt, spec.view, fmt.write_options(write.options or {}), roles, write.checksums)
    schema, changes = spec.schemas.schema_written, any(step.replaces_batches for step in spec.steps)
    # What a function makes of rows may be more than they were; then one process does it all, and counts on.
    if len(tasks) <= 1 or changes or not kind.takes_members or schema is None or KEY in schema.names:
        return tasks
    if spooled_order is not None:
        return [replace(task, first_row=task.first) for task in tasks]
    ends = [0, *shards.sample_ends().tolist()]
    begins = [task.spans[0] if task.spans else None for task in tasks]
    return [
        replace(task, first_row=ends[task.first] + (begin.first_sample if begin is not None else 0))
        for task, begin in zip(tasks, begins, strict=True)
    ]
