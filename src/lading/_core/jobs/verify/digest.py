"""Content digests of datasets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from itertools import repeat
from typing import Any, SupportsIndex, Unpack

from lading._core.arguments import public
from lading._core.content.digests import DatasetDigest
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.sample_digests import (
    DIGEST_BYTES,
    DIGEST_ROWS,
    Digested,
    digests_of,
    digests_of_batches,
)
from lading._core.dataset.shards.shards import Shards
from lading._core.jobs.engine.progress import OnProgress, Progress, reporting_passes
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.engine.read_task import Look, OnRead
from lading._core.jobs.engine.reading import Reading, look_at_shards
from lading.errors import UsageError
from lading.options import OpeningOptions, WorkerOptions

__all__ = ["all_digests", "begin_digest", "check_limit", "dataset_digest"]


def begin_digest(dataset: Shards) -> Look:
    """What `dataset_digest` does with shards."""

    def look(shards: Iterable[int], on_read: OnRead) -> Iterator[dict[str, Any]]:
        told = begun = 0

        def counted() -> Iterator[int]:
            nonlocal begun
            for shard in shards:
                begun += 1
                yield shard

        for found in digests_of(dataset, counted()):
            on_read(found.digests, len(found.digests), found.size_bytes)
            yield from repeat({}, found.shards - told)
            told = found.shards
        yield from repeat({}, begun - told)

    return look


@public("lading.digest")
def dataset_digest(
    source: Queryable,
    *,
    limit: int | None = None,
    workers: int | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    on_progress: OnProgress | None = None,
    progress: bool = True,
    **opening: Unpack[OpeningOptions],
) -> DatasetDigest:
    """Compute the content digest of a dataset. The same content has the same digest in every format.

    Example:
        lading.digest("out").ordered == lading.digest(ds.where("lang == 'en'")).ordered

    Reads everything once. Peak memory of each process: as for `Dataset.batches`.

    Args:
        source: as for `lading.open`, or a dataset. A dataset with steps is read by one process.
        limit: read at most this many samples, in one process.
        workers: processes that share the shards, at most. By default one for each core, up to eight. Further processes
            start if the rest takes longer than a few seconds.
        executor: what reads the shards, as for `lading.convert`: `threads`, `ray`, `dask`, or a
            `concurrent.futures.Executor`.
        address: address of the cluster for `ray` and `dask`.
        on_progress: called after every batch and shard.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
        opening: the other arguments of `lading.open`.

    Raises:
        UsageError: worker processes cannot reach the data, or the limit is invalid.
        StoreError: a store failed, or the workers of one task died four times. The error names the task's shards.
    """
    check_limit(limit)
    query, total = Query.of(source, **opening), DatasetDigest()
    sharing = WorkerOptions(workers=workers, executor=executor, address=address)
    if query.steps or limit is not None:
        sharing.refuse("samples behind steps, or up to a limit, are read in one process")
    with (
        query.open_shards() as dataset,
        shown_progress("reading", on_progress, progress=progress) as report,
        reporting_passes(dataset, report),
    ):
        chosen = query.samples_of(dataset)
        if limit is None and chosen is None:
            reading = Reading(begin_digest, query, sharing=sharing)
            look, shards = begin_digest(dataset), range(len(dataset.listing))
            for _ in look_at_shards(dataset, look, reading, shards, on_digests=total.update, on_progress=report):
                pass
            dataset.bad.refuse_all(len(dataset.listing))
            return total
        for part in all_digests(dataset, chosen, report, limit=limit):
            total.update(part.digests if limit is None else part.digests[: limit - total.count])
            if limit is not None and total.count >= limit:
                break
    return total


def check_limit(limit: int | None) -> None:
    """Raise UsageError for what is no number of samples."""
    if limit is not None and not (isinstance(limit, SupportsIndex) and int(limit) >= 0):
        raise UsageError("limit must be a whole number, 0 or more", found=repr(limit))


def all_digests(
    dataset: Shards,
    chosen: ChosenSamples | None,
    on_progress: OnProgress | None,
    *,
    keyed: bool = False,
    with_key: bool = True,
    limit: int | None = None,
) -> Iterator[Digested]:
    """Digests of all samples, as `digests_of` gives them, with progress reported."""
    total, samples, size_bytes = len(dataset.listing), 0, 0
    if chosen is not None:
        found_behind = chosen.traced_batches(max_rows=DIGEST_ROWS, max_bytes=DIGEST_BYTES, views=True)
        parts = digests_of_batches(dataset, (traced.batch for traced in found_behind), keyed=keyed, with_key=with_key)
    else:
        parts = digests_of(dataset, range(total), keyed=keyed, limit=limit, with_key=with_key)
    for found in parts:
        yield found
        if on_progress is not None:
            samples += len(found.digests)
            size_bytes += found.size_bytes
            on_progress(Progress(found.shards, total, samples, size_bytes))
    if on_progress is not None:
        on_progress(Progress(total, total, samples, size_bytes))
