"""Statistics of a dataset, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, Unpack

import pyarrow as pa

from lading._core.arguments import public
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.iteration import materialise_parts, shard_batches
from lading._core.dataset.shards.shards import Shards
from lading._core.formats.base import Scan
from lading._core.jobs.engine.progress import OnProgress, Progress, reporting_passes
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.engine.read_task import NO_DIGESTS, Look, OnRead
from lading._core.jobs.engine.reading import Reading, look_at_shards
from lading._core.jobs.stats.media_facts import MediaFacts
from lading._core.jobs.stats.summaries import Summaries, is_read
from lading._core.jobs.stats.values import Stats, stats_of
from lading._core.processes.pickled import decode_value, encode_value
from lading.errors import UsageError
from lading.options import OpeningOptions, WorkerOptions

__all__ = ["begin_stats", "dataset_stats", "first_stats"]

_MAX_ROWS, _MAX_BYTES = 16_384, 64 << 20
_TOP = 10


@public("ds.stats")
def dataset_stats(
    source: Queryable,
    *,
    top: int = _TOP,
    workers: int | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    on_progress: OnProgress | None = None,
    progress: bool = True,
    **opening: Unpack[OpeningOptions],
) -> Stats:
    """Return statistics of a dataset; see `Dataset.stats`. `opening` are the other arguments of `lading.open`."""
    if top < 0:
        raise UsageError("top must be 0 or more", found=f"top={top}")
    query = Query.of(source, **opening)
    sharing = WorkerOptions(workers=workers, executor=executor, address=address)
    if query.steps:
        sharing.refuse("samples behind steps are counted in one process")
    with (
        query.open_shards() as dataset,
        shown_progress("reading", on_progress, progress=progress) as report,
        reporting_passes(dataset, report),
    ):
        found, chosen = Summaries(dataset.view), query.samples_of(dataset)
        if chosen is not None:
            batches = (traced.batch for traced in chosen.traced_batches(max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES))
            for size in _add_all(dataset, batches, found):
                if report is not None:
                    report(Progress(0, len(dataset.listing), found.samples, size))
            return stats_of(found, top)
        reading = Reading(begin_stats, query, sharing=sharing)
        shards = range(len(dataset.listing))
        for told in look_at_shards(
            dataset, begin_stats(dataset), reading, shards, on_digests=lambda _: None, on_progress=report
        ):
            found.merge(decode_value(told["summaries"]))
        dataset.bad.refuse_all(len(dataset.listing))
        return stats_of(found, top)


def first_stats(
    data: OpenDataset, count: int, *, top: int = _TOP, on_progress: OnProgress | None = None
) -> tuple[Stats, bool]:
    """Return statistics of the first samples of an open dataset, and whether there are no more. Others are not read.

    Args:
        data: the dataset.
        count: of samples, at least; those of one batch are not divided. Whether more follow is not looked at.
        top: most frequent values of each column.
        on_progress: called after every batch.
    """
    found = Summaries(data.view)
    for size in _add_all(data.shards, data.looked_at(count, None), found):
        if on_progress is not None:
            on_progress(Progress(0, len(data.shards.listing), found.samples, size))
        if found.samples >= count:
            return stats_of(found, top), False
    return stats_of(found, top), True


def begin_stats(dataset: Shards) -> Look:
    """Return what `dataset_stats` does with shards: each has summaries of its own, so that workers change nothing."""

    def look(shards: Iterable[int], on_read: OnRead) -> Iterator[dict[str, Any]]:
        for shard in shards:
            found, samples, size = Summaries(dataset.view, shard), 0, 0
            batches = shard_batches(dataset, shard, Scan(max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES, views=True))
            for total in _add_all(dataset, batches, found):
                on_read(NO_DIGESTS, found.samples - samples, total - size)
                samples, size = found.samples, total
            yield {"summaries": encode_value(found, {})}

    return look


def _add_all(dataset: Shards, batches: Iterator[pa.RecordBatch], found: Summaries) -> Iterator[int]:
    """Add batches to summaries; gives the bytes so far after each."""
    add_media = MediaFacts(dataset.fetcher)
    for batch in batches:
        read = [one.name for one in batch.schema if is_read(one)]
        for part in materialise_parts(dataset, batch, _MAX_BYTES, columns=read) if read else [batch]:
            found.add(part, add_media)
            yield found.size_bytes
        dataset.release()
