"""What a conversion will take: tasks, shards, requests, memory and time, found before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lading._core.dataset.dataset import Dataset
from lading._core.dataset.order.chosen import split_at_list
from lading._core.dataset.source.open import open_shards, read_of
from lading._core.dataset.source.pruning import shards_that_fit
from lading._core.dataset.source.source import Source, listed_once
from lading._core.dataset.transform.function_spool import FunctionSpool
from lading._core.formats.registry import get_format
from lading._core.jobs.conversion_job import ConversionJob
from lading._core.jobs.schedule import planned_pieces, planned_tasks
from lading._core.jobs.settle import settled
from lading._core.jobs.tasks import ALONE_BYTES, SHARD_BYTES, shard_sizes
from lading._core.jobs.trial import tried_rates
from lading._core.storage.objects import PART_BYTES
from lading._core.storage.stores import Stores
from lading._core.units import parse_bytes
from lading.errors import UsageError
from lading.options import ReadOptions, WriteOptions

__all__ = ["JobPlan", "plan_job"]

_OWN_BYTES = 250_000_000
"""Memory of a process besides its batches."""


@dataclass(frozen=True, slots=True)
class JobPlan:
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
        puts: requests that write, if the destination is an object store.
        copies: the same for requests that copy.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-able values."""
        return asdict(self)


def plan_job(
    source: Source | Dataset,
    *,
    format: str,  # noqa: A002 - the word users know
    shard_size: int | str | None = None,
    workers: int = 1,
    rate: int | str = "100MB",
    total_bytes: int | str | None = None,
    max_batch_bytes: int | str = "512MB",
    write_options: Mapping[str, Any] | None = None,
    **opening: Any,
) -> JobPlan:
    """Return what a conversion will take, before anything is written.

    Lists the source, and converts the first rows of three shards in memory to find the size of the output. The tasks
    are those of the conversion. Peak memory: some 20 MB besides the list of shards.

    Example:
        from lading._core.jobs.job_plan import plan_job
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
        UsageError: the steps need all samples first, or a number is not positive.
    """
    rate_bytes = parse_bytes(rate)
    wanted = None if total_bytes is None else parse_bytes(total_bytes)
    if rate_bytes < 1 or wanted == 0:
        raise UsageError("a rate and a size are 1 byte or more", found=f"rate={rate!r}, total_bytes={total_bytes!r}")
    write = WriteOptions(
        format=format, shard_size=shard_size, workers=workers, max_batch_bytes=max_batch_bytes, options=write_options
    )
    stores = Stores.of(opening.pop("stores", None), opening.pop("storage_options", None))
    job = ConversionJob("", ReadOptions(**opening, stores=stores), write, None, ())
    if isinstance(source, Dataset):
        job = job.of(source.source, read_of(source, job.opening), source.steps)
    else:
        job = job.of(listed_once(source), job.read, ())
    before, _ = split_at_list(job.steps)
    if before:
        raise UsageError("a job is planned in the order of its source", found=str(before[-1]),
                         advice="Leave out steps that need all samples first.")  # fmt: skip
    with open_shards(job.source, **job.opening) as every, shards_that_fit(every, job.steps) as shards:
        sizes = list(shard_sizes(shards.listing, job.stores, skip=job.read.on_bad_shard == "skip"))
        spool = FunctionSpool()
        spec = settled(job, shards, spool)
        pieces = planned_pieces(job, shards, sizes, alone=False)
        tasks = planned_tasks(shards, spec, sizes, pieces, spool, alone=False)
        rates = tried_rates(shards, spec, pieces, spool.of_steps(spec.steps))
        source_format, view, source_shards = shards.format, shards.view, len(sizes)
    size, largest, num_tasks = sum(sizes), max((task.source_bytes for task in tasks), default=0), len(tasks)
    shard_bytes = SHARD_BYTES if write.shard_size is None else parse_bytes(write.shard_size)
    if wanted is not None and size:  # a task is about one output shard, and whole source shards
        source_shards = math.ceil(source_shards * wanted / size)
        largest = max(int(shard_bytes / rates.of_source), ALONE_BYTES // 4, wanted // source_shards)
        size, num_tasks = wanted, math.ceil(wanted / largest)
    written = int(size * rates.of_source)
    num_shards = max(math.ceil(written / shard_bytes), min(num_tasks, 1))
    uploads = math.ceil(min(shard_bytes, written) / PART_BYTES) + 2  # its parts, its beginning and its end
    return JobPlan(
        source_format, get_format(format).name, view, source_shards, size, num_tasks, largest, num_shards, written,
        workers, _OWN_BYTES + 2 * parse_bytes(max_batch_bytes), rate_bytes,
        size / rate_bytes / max(min(workers, num_tasks), 1), largest / rate_bytes,
        num_shards * uploads + num_tasks, num_shards,
    )  # fmt: skip
