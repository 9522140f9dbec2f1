"""What a conversion will take: tasks, shards, requests, memory and time, found before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.dataset.transform.function_spool import FunctionSpool, StepSpool
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.schedule import are_few, planned_pieces, planned_tasks
from lading._core.jobs.convert.settle import settled
from lading._core.jobs.convert.tasks import ALONE_BYTES, SHARD_BYTES, shard_sizes
from lading._core.jobs.convert.trial import tried_rates
from lading._core.storage.objects import PART_BYTES
from lading._core.units import parse_bytes
from lading.errors import UsageError
from lading.options import WriteOptions

__all__ = ["Estimate", "plan_job"]

_OWN_BYTES = 250_000_000
"""Memory of a process besides its batches."""

_LISTED = 1000
"""Files in an answer of an object store that lists them."""
_GETS_OF_SHARD, _GET_BYTES = 3, 2_500_000
"""Requests for a shard of any size, and the bytes for each further one, as counted at a test server: tars of 200 KB
take 3, Parquet 2, MDS and JSON Lines 3; a tar of 96 MB with values of 256 KB takes 24 more than one of 32 MB."""
_SHARD_PLAN_BYTES = 300
"""Memory that the plan takes for a shard: its row in the listing (143 bytes), its size and its piece (149)."""

_Order: TypeAlias = tuple[Step, tuple[Step, ...]]
"""A step that only orders samples, and the other steps before it."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a conversion will take.

    Attributes:
        source_format: format of the source.
        format: format of the destination.
        view: how rows are taken.
        source_shards: number of shards of the source.
        source_bytes: bytes of the source.
        tasks: number of tasks: pieces that any worker does alone.
        task_bytes: source bytes of the largest task.
        shards: expected number of shards that are written.
        size_bytes: expected bytes of these shards, by a trial of a few rows.
        workers: number of tasks that are done at once.
        memory_bytes: the most that each process takes.
        rate_bytes: source bytes that a worker converts in a second: an assumption, not a measurement.
        seconds: time that all workers take at that rate.
        redone_seconds: time that a killed job takes to do again what it had begun.
        puts: number of requests that write, if the destination is an object store.
        copies: number of requests that copy.
        first: steps that read all samples before the first task: the time of that is not in the plan.
        spool_bytes: what functions before these steps make, which is kept until the job ends: expected by the samples
            that were looked at, as if filters before them left out none. None: the samples are not counted, or none of
            those that were looked at came to a function.
        functions: functions of the user, whose time is not in the plan.
        lists: number of requests that list the source, if it is in an object store.
        gets: about the number of requests that read the source.
        planner_bytes: memory of the process that plans the job and commits it, besides `memory_bytes`.
        calls_first: whether functions are called by all workers before the tasks, if they are slow.
    """

    source_format: str
    format: str
    view: str
    source_shards: int
    source_bytes: int
    tasks: int
    task_bytes: int
    shards: int
    size_bytes: int
    workers: int
    memory_bytes: int
    rate_bytes: int
    seconds: float
    redone_seconds: float
    puts: int
    copies: int
    first: tuple[str, ...] = ()
    spool_bytes: int | None = 0
    functions: tuple[str, ...] = ()
    lists: int = 0
    gets: int = 0
    planner_bytes: int = 0
    calls_first: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-able values."""
        return asdict(self)


def plan_job(
    source: Queryable,
    *,
    format: str,  # noqa: A002 - the word users know
    shard_size: int | str | None = None,
    workers: int = 1,
    rate: int | str = "100MB",
    total_bytes: int | str | None = None,
    max_batch_bytes: int | str = "512MB",
    write_options: Mapping[str, Any] | None = None,
    **opening: Any,
) -> Estimate:
    """Return what a conversion will take, before anything is written.

    Lists the source, and converts the first rows of three shards in memory to find the size of the output. The tasks
    are those of the conversion; behind steps that order samples, their number is an estimate. Peak memory: some 20 MB
    besides the list of shards.

    Example:
        from lading._core.jobs.convert.estimate import plan_job
        plan_job("sample/*.tar", format="parquet", workers=256, total_bytes="100TB").seconds / 3600

    Args:
        source: as for `lading.open`, or a dataset with its steps.
        format: format to write.
        shard_size: size of a shard on disk, as for `lading.convert`.
        workers: tasks that are done at once.
        rate: source bytes that a worker converts in a second. The last line of a conversion says the rate.
        total_bytes: plan for so many bytes of such shards. By default the source is all there is.
        max_batch_bytes: payload held in memory at once.
        write_options: options of the format written.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: steps choose from all samples, such as `dedup`, or a number is not positive.
    """
    rate_bytes = parse_bytes(rate)
    wanted = None if total_bytes is None else parse_bytes(total_bytes)
    if rate_bytes < 1 or wanted == 0:
        raise UsageError("a rate and a size are 1 byte or more", found=f"rate={rate!r}, total_bytes={total_bytes!r}")
    write = WriteOptions(
        format=format, shard_size=shard_size, workers=workers, max_batch_bytes=max_batch_bytes, options=write_options
    )
    query = Query.of(source, **opening)
    job = Job.of(query, write)
    functions = tuple(str(step) for step in job.steps if step.calls_function)
    job, orders = _in_source_order(job)
    before = orders[-1][1] if orders else ()
    with job.query.open_shards() as shards:
        sizes = list(shard_sizes(shards.listing, job.stores, skip=job.read.on_bad_shard == "skip"))
        spool = FunctionSpool()
        spec = settled(job, shards, spool)
        _refuse_no_columns(orders, shards, spool)
        pieces = planned_pieces(job, shards, sizes, alone=False)
        tasks = [] if orders else planned_tasks(shards, spec, sizes, pieces, spool, alone=False)
        rates = tried_rates(shards, spec, pieces, spool.of_steps(spec.steps))
        kept = _kept_bytes(list(filter(None, spool.of_steps(before))), shards.known_count)
        source_format, view, source_shards = shards.format, shards.view, len(sizes)
    size, largest, num_tasks = sum(sizes), max((task.source_bytes for task in tasks), default=0), len(tasks)
    shard_bytes = SHARD_BYTES if write.shard_size is None else parse_bytes(write.shard_size)
    if wanted is not None and size:
        source_shards = math.ceil(source_shards * wanted / size)
        kept = None if kept is None else int(kept * wanted / size)
    if (wanted is not None or orders) and size:  # a task is about one output shard
        size = wanted or size
        least = max(ALONE_BYTES // 4, size // source_shards)  # it has whole source shards, other than in a new order
        if orders:
            least = size if size < ALONE_BYTES else 1
        largest = min(max(int(shard_bytes / rates.of_source), least), size)
        num_tasks = math.ceil(size / largest)
    written = int(size * rates.of_source)
    num_shards = max(math.ceil(written / shard_bytes), min(num_tasks, 1))
    uploads = math.ceil(min(shard_bytes, written) / PART_BYTES) + 2  # its parts, its beginning and its end
    return Estimate(
        source_format, get_format(format).name, view, source_shards, size, num_tasks, largest, num_shards, written,
        workers, _OWN_BYTES + 2 * parse_bytes(max_batch_bytes), rate_bytes,
        size / rate_bytes / max(min(workers, num_tasks), 1), largest / rate_bytes,
        num_shards * uploads + num_tasks, num_shards, tuple(str(step) for step, _ in orders), kept, functions,
        math.ceil(source_shards / _LISTED), _GETS_OF_SHARD * source_shards + size // _GET_BYTES,
        _SHARD_PLAN_BYTES * source_shards,
        calls_first=job.may_call_ahead and not orders and are_few(num_tasks, workers),
    )  # fmt: skip


def _in_source_order(job: Job) -> tuple[Job, list[_Order]]:
    """Return a job without the steps that only order samples, and these steps.

    Raises:
        UsageError: a step chooses from all samples: how many are left is not known.
    """
    steps, orders = list[Step](), list[_Order]()
    for step in job.steps:
        if step.only_orders:
            orders.append((step, tuple(steps)))
        elif step.needs_all:
            raise UsageError("how many samples are left behind this step is not known before", found=str(step),
                             advice="Plan the job without it: that is the most it takes, but for one more pass over "
                             "the samples before the tasks.")  # fmt: skip
        else:
            steps.append(step)
    return job.with_steps(steps), orders


def _refuse_no_columns(orders: Sequence[_Order], shards: Shards, spool: FunctionSpool) -> None:
    """Refuse to order samples by columns that they do not have."""
    for step, before in orders:
        chosen = ChosenSamples(shards, before, spool=spool)
        chosen.columns_behind(step.looked_at(chosen.schema.names), before)


def _kept_bytes(functions: Sequence[StepSpool], count: int | None) -> int | None:
    """Return the bytes of what functions make of so many samples, expected by the samples they were called for.

    None if there is no number, or if a function was called for no sample.
    """
    if not functions or count == 0:
        return 0
    sizes = [each.bytes_a_sample for each in functions]
    return int(sum(sizes) * count) if count is not None and all(sizes) else None
