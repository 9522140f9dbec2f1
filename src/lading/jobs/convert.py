"""Convert: any shards to shards of another format, in one process or several."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.align import SchemaPolicy
from lading.commit import Staging, check_destination
from lading.dataset import Dataset, open_dataset
from lading.dataset_writer import DatasetWriter, WriteSummary
from lading.digests import DatasetDigest
from lading.errors import DataError, UsageError
from lading.formats.protocol import Format
from lading.formats.registry import get_format, is_built_in
from lading.jobs.copying import Tally, copy_rows, read_rows
from lading.jobs.digest import dataset_digest
from lading.jobs.plan import make_plan
from lading.jobs.pool import Workers
from lading.jobs.progress import OnProgress, Progress
from lading.jobs.spec import Conversion
from lading.jobs.tasks import Task, plan_tasks
from lading.jobs.threads import threads_each, using_threads
from lading.layouts.options import InterleavedOptions
from lading.store.memory import MemoryStore
from lading.store.open import Stores, is_local, resolve
from lading.store.protocol import Store
from lading.units import parse_bytes

__all__ = ["ConvertSummary", "Progress", "convert"]


@dataclass(frozen=True, slots=True)
class ConvertSummary:
    """What a conversion did.

    Attributes:
        source_format: of the source.
        format: of the destination.
        view: how rows were taken.
        source_shards: files read.
        shards: files written.
        samples: samples written.
        rows: rows written (items, for interleaved data).
        size_bytes: bytes of the files written.
        payload_bytes: bytes of values.
        seconds: wall-clock time of the whole job.
        digest: content digest of what was written, if it was verified.
        verified: the destination was read back and has the source's digest.
        counts: what was noticed (dropped, renamed …), by a short phrase.
        differences: how the source's shards differ in their schemas.
        dry_run: nothing was written.
    """

    source_format: str
    format: str
    view: str
    source_shards: int
    shards: int
    samples: int
    rows: int
    size_bytes: int
    payload_bytes: int
    seconds: float
    digest: str | None = None
    verified: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    differences: Sequence[str] = ()
    dry_run: bool = False


def convert(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    format: str,  # noqa: A002 - the word users know
    source_format: str | None = None,
    view: str | None = None,
    columns: Sequence[str] | None = None,
    shard_size: int | str = "256MB",
    max_batch_bytes: int | str = "512MB",
    limit: int | None = None,
    schema_policy: SchemaPolicy = "union",
    overwrite: bool = False,
    verify: bool = False,
    dry_run: bool = False,
    workers: int = 1,
    threads: int | None = None,
    source_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    interleaved: InterleavedOptions | None = None,
    stores: Stores | None = None,
    on_progress: OnProgress | None = None,
) -> ConvertSummary:
    """Read every sample of a source and write it to a new dataset, losing nothing.

    The schema of all shards is found first; the destination appears in one step at the end. The source is cut into
    tasks of about one output shard, and the output is the same bytes with any number of workers. Peak memory of each
    process: 250 MB and twice `max_batch_bytes`.

    Args:
        source: as `lading.open` takes it.
        destination: folder of the new dataset.
        format: format to write.
        source_format: format of the source, where it is not recognised.
        view: `samples` or `interleaved`; by default the data say it.
        columns: columns to keep (beside keys and reserved ones); None keeps all.
        shard_size: about the size of a shard. A new one begins there, and where a task ends (`lading.jobs.tasks`).
        max_batch_bytes: payload held at once.
        limit: samples to convert, at most; the first ones, by one process.
        schema_policy: `union`, `strict` or `intersect`, for shards that differ.
        overwrite: replace what is at the destination.
        verify: read the destination back and compare content digests.
        dry_run: plan and read, write nothing; one process does it.
        workers: processes that read and write. With one it is this process; more are started as programs of their own.
        threads: threads that each process may use; by default this machine's cores, shared out among the workers.
        source_options: options of the source's format.
        options: options of the format written.
        interleaved: names of fields and policies for interleaved data.
        stores: which store serves which URL.
        on_progress: called after every batch, whichever process took it.

    Raises:
        DestinationExists: the destination holds something.
        UsageError: the destination lies inside the source; workers are asked for that could not reach the data.
        DataError: the data are bad; with `verify`, the destination does not hold what the source does.
        StoreError: among others, a worker died; names the source shards it had.
    """
    began = time.perf_counter()
    for name, count in (("workers", workers), ("threads", threads)):
        if count is not None and count < 1:
            raise UsageError("a job has one process, and that one thread, at least", found=f"{name}={count}")
    own_stores, stores = stores, stores or Stores()
    max_bytes, shard_bytes = parse_bytes(max_batch_bytes), parse_bytes(shard_size)
    with (
        using_threads(threads),
        ExitStack() as held,
        open_dataset(
            source, format=source_format, view=view, options=source_options, interleaved=interleaved, stores=stores
        ) as dataset,
    ):
        _refuse_inside(dataset, destination, stores)
        store, path = resolve(os.fspath(destination).rstrip("/"), stores)
        check_destination(store, path, overwrite=overwrite)
        target = get_format(format)
        if workers > 1:
            _refuse_out_of_reach(dataset, target, store, own_stores)
        copying = dataset.format == target.name and dataset.view == "samples" and columns is None
        if copying:
            reading, writing = target.copy_options
            dataset.format_options = {**reading, **dataset.format_options}
            options = {**writing, **(options or {})}
        tasks = plan_tasks(dataset.listing, shard_bytes, stores)
        helpers = 1 if dry_run or limit is not None else min(workers, len(tasks))
        staging = crew = None
        if helpers > 1:
            # Begun before the plan: what workers import takes as long as a look at a few GB.
            staging = Staging.begin(store, path, shared=False)
            held.callback(staging.drop)  # nothing is left to drop after the commit
            crew = held.enter_context(Workers(helpers, lock=staging.lock, threads=threads or threads_each(workers)))
        plan = make_plan(dataset, target, columns=columns, policy=schema_policy)
        digest = DatasetDigest() if verify and not dry_run else None
        how = Conversion(
            source_format=dataset.format,
            source_options=dataset.format_options,
            view=dataset.view,
            interleaved=dataset.interleaved,
            index_file=dataset.listing.index_file,
            columns=None if columns is None else tuple(columns),
            schema=plan.schema,
            format=target.name,
            options=_bounded(target, options or {}, max_bytes),
            roles=plan.roles,
            max_batch_bytes=max_bytes,
            digests=digest is not None and not copying,
        )
        run = _Run(dataset, how, tasks, DatasetDigest() if how.digests else None, on_progress)
        summary = WriteSummary(0, 0, 0, 0)
        if dry_run:
            run.look(limit)
        else:
            writer = DatasetWriter(
                destination, format=format, view=how.view, schema=how.schema, shard_size=shard_bytes,
                overwrite=overwrite, options=how.options, roles=how.roles, stores=stores, staging=staging,
            )  # fmt: skip
            with writer:
                if crew is None:
                    run.here(writer, limit)
                else:
                    run.by(crew, writer, store)
                if digest is not None:
                    # A copy is read again as others read it: names that were kept as they are show in a digest.
                    digest = run.digest or dataset_digest(
                        source, limit=limit, view=how.view, format=source_format, options=source_options, stores=stores
                    )
                    writer.add_digest(digest)
                    _compare(digest, writer.finish(), stores)
            summary = writer.close()
        return ConvertSummary(
            dataset.format, target.name, dataset.view, run.tally.shards, summary.num_shards, run.tally.samples,
            run.tally.rows, summary.size_bytes, run.tally.payload_bytes, time.perf_counter() - began,
            digest=None if digest is None else digest.ordered, verified=digest is not None,
            counts=dict(Counter(summary.counts) + dataset.counts), differences=plan.differences, dry_run=dry_run,
        )  # fmt: skip


def _bounded(fmt: Format, options: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """The options, with row groups no larger than a quarter of a batch, unless they are given."""
    usual = getattr(fmt.write_options() if fmt.write_options is not None else None, "row_group_bytes", None)
    if usual is None or "row_group_bytes" in options:
        return dict(options)
    return {**options, "row_group_bytes": min(parse_bytes(usual), max_bytes // 4)}


class _Run:
    """The tasks of a conversion, done here or by workers, and what went by.

    Attributes:
        tally: what went by.
        digest: of the samples in order; None where none is taken on the way.
    """

    def __init__(
        self,
        dataset: Dataset,
        how: Conversion,
        tasks: Sequence[Task],
        digest: DatasetDigest | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._dataset, self._how, self._tasks, self._on_progress = dataset, how, tasks, on_progress
        self.tally, self.digest = Tally(), digest

    def look(self, limit: int | None) -> None:
        """Read the rows, and leave it at that."""
        for _ in read_rows(self._dataset, self._how, range(len(self._dataset.listing)), self.tally, limit=limit,
                           tell=self._tell):  # fmt: skip
            pass

    def here(self, writer: DatasetWriter, limit: int | None) -> None:
        """Do the tasks in this process."""
        update = None if self.digest is None else self.digest.update
        for task in self._tasks:
            writer.end_part(task.shard_bytes)
            shards = range(task.first, task.stop)
            rows = read_rows(self._dataset, self._how, shards, self.tally, limit=limit, tell=self._tell)
            copy_rows(self._dataset, rows, writer, update)

    def by(self, crew: Workers, writer: DatasetWriter, store: Store) -> None:
        """Have the tasks done by workers; these are gone at the end, and before anything is dropped."""

        def tell(tally: Tally) -> None:
            self.tally = tally
            self._tell()

        with crew:
            for done in crew.run(self._how, self._tasks, self._dataset, writer.building, tell):
                if self.digest is not None:
                    self.digest.update(_stored_digests(store, done.digests))
                writer.adopt(done.part, done.folder)
                self._dataset.counts.update(done.noticed)

    def _tell(self) -> None:
        if self._on_progress is not None:
            done, total = self.tally, len(self._dataset.listing)
            self._on_progress(Progress(done.shards, total, done.samples, done.payload_bytes))


def _stored_digests(store: Store, path: str) -> NDArray[np.uint8]:
    [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    return np.frombuffer(data, np.uint8).reshape(-1, 16)


def _refuse_out_of_reach(dataset: Dataset, target: Format, store: Store, stores: Stores | None) -> None:
    """What lives in this process alone, another one cannot open."""
    advice = "Convert with workers=1."
    for name in (dataset.format, target.name):
        if not is_built_in(name):
            raise UsageError("workers know lading's own formats only", found=repr(name), advice=advice)
    if stores is not None and stores.by_prefix:
        raise UsageError(
            "workers open data by URL, and stores of your own are objects of this process",
            found=", ".join(repr(prefix) for prefix in stores.by_prefix), advice=advice,
        )  # fmt: skip
    if isinstance(store, MemoryStore) or any(
        isinstance(resolve(path)[0], MemoryStore) for path in dataset.listing.table.column("path").to_pylist()
    ):
        raise UsageError("what is in memory, no other process sees", found="memory://", advice=advice)


def _refuse_inside(dataset: Dataset, destination: str | os.PathLike[str], stores: Stores) -> None:
    """A destination that holds the source's files would replace them; one inside a source folder would join it."""
    store, path = resolve(os.fspath(destination).rstrip("/"), stores)
    if not is_local(store):
        return
    target = os.path.realpath(path)
    named = os.path.realpath(dataset.listing.folder) if dataset.listing.folder is not None else None
    if named is not None and f"{target}/".startswith(f"{named}/"):
        raise UsageError("the destination lies inside the source", file=path, found=f"the source is {named}")
    folders = {os.path.dirname(p) for p in dataset.listing.table.column("path").to_pylist() if "://" not in p}
    for folder in folders:
        if f"{os.path.realpath(folder or '.')}/".startswith(f"{target}/"):
            raise UsageError("the destination holds files of the source", file=path, found=f"source files in {folder}")


def _compare(digest: DatasetDigest, folder: str, stores: Stores) -> None:
    """Read back what was written, before anybody sees it."""
    found = dataset_digest(folder, stores=stores)
    if found.ordered != digest.ordered or found.count != digest.count:
        raise DataError(
            "the destination does not hold what the source does", file=folder,
            expected=f"{digest.count} samples, digest {digest.ordered}",
            found=f"{found.count} samples, digest {found.ordered}",
            advice="Compare the two with 'lading diff' and report this as a bug.",
        )  # fmt: skip
