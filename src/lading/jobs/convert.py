"""Convert: any shards to shards of another format, one process."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lading.align import SchemaPolicy, align_table
from lading.commit import check_destination
from lading.dataset import Dataset, open_dataset
from lading.dataset_writer import DatasetWriter, WriteSummary
from lading.digests import DatasetDigest
from lading.errors import DataError, UsageError
from lading.formats.protocol import Format
from lading.formats.registry import get_format
from lading.interleaved import sample_firsts
from lading.jobs.digest import batch_digests, dataset_digest
from lading.jobs.plan import Plan, make_plan
from lading.jobs.progress import OnProgress, Progress
from lading.layouts.options import InterleavedOptions
from lading.store.open import Stores, is_local, resolve
from lading.units import parse_bytes
from lading.views import row_bytes

__all__ = ["ConvertSummary", "Progress", "convert"]

_MAX_ROWS = 65_536


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
    source_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    interleaved: InterleavedOptions | None = None,
    stores: Stores | None = None,
    on_progress: OnProgress | None = None,
) -> ConvertSummary:
    """Read every sample of a source and write it to a new dataset, losing nothing.

    The schema of all shards is found first; the destination appears in one step at the end. Peak memory: 250 MB and
    twice `max_batch_bytes`.

    Args:
        source: as `lading.open` takes it.
        destination: folder of the new dataset.
        format: format to write.
        source_format: format of the source, where it is not recognised.
        view: `samples` or `interleaved`; by default the data say it.
        columns: columns to keep (beside keys and reserved ones); None keeps all.
        shard_size: size at which a new shard begins.
        max_batch_bytes: payload held at once.
        limit: samples to convert, at most.
        schema_policy: `union`, `strict` or `intersect`, for shards that differ.
        overwrite: replace what is at the destination.
        verify: read the destination back and compare content digests.
        dry_run: plan and read, write nothing.
        source_options: options of the source's format.
        options: options of the format written.
        interleaved: names of fields and policies for interleaved data.
        stores: which store serves which URL.
        on_progress: called after every batch.

    Raises:
        DestinationExists: the destination holds something.
        UsageError: the destination lies inside the source.
        DataError: the data are bad; with `verify`, the destination does not hold what the source does.
    """
    began = time.perf_counter()
    stores, max_bytes = stores or Stores(), parse_bytes(max_batch_bytes)
    with open_dataset(
        source, format=source_format, view=view, options=source_options, interleaved=interleaved, stores=stores
    ) as dataset:
        _refuse_inside(dataset, destination, stores)
        store, path = resolve(os.fspath(destination).rstrip("/"), stores)
        check_destination(store, path, overwrite=overwrite)
        target = get_format(format)
        copying = dataset.format == target.name and dataset.view == "samples" and columns is None
        if copying:
            reading, writing = target.copy_options
            dataset.format_options = {**reading, **dataset.format_options}
            options = {**writing, **(options or {})}
        plan = make_plan(dataset, target, columns=columns, policy=schema_policy)
        rows = _Rows(dataset, plan, columns, max_bytes, limit, on_progress)
        digest = DatasetDigest() if verify and not dry_run else None
        summary = WriteSummary(0, 0, 0, 0)
        if dry_run:
            for _ in rows.batches():
                pass
        else:
            writer = DatasetWriter(
                destination, format=format, view=dataset.view, schema=plan.schema, shard_size=shard_size,
                overwrite=overwrite, options=_bounded(target, options or {}, max_bytes), roles=plan.roles,
                stores=stores,
            )  # fmt: skip
            with writer:
                _copy(dataset, rows, writer, None if copying else digest)
                if copying and digest is not None:
                    # Read again as others read it: names that were kept as they are show in a digest.
                    digest = dataset_digest(source, limit=limit, view=dataset.view, format=source_format,
                                            options=source_options, stores=stores)  # fmt: skip
                if digest is not None:
                    writer.add_digest(digest)
                    _compare(digest, writer.finish(), stores)
            summary = writer.close()
        return ConvertSummary(
            dataset.format, target.name, dataset.view, rows.shards_done, summary.num_shards, rows.samples, rows.rows,
            summary.size_bytes, rows.payload_bytes, time.perf_counter() - began,
            digest=None if digest is None else digest.ordered, verified=digest is not None,
            counts=dict(Counter(summary.counts) + dataset.counts), differences=plan.differences, dry_run=dry_run,
        )  # fmt: skip


def _bounded(fmt: Format, options: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """The options, with row groups no larger than a quarter of a batch, unless they are given."""
    usual = getattr(fmt.write_options() if fmt.write_options is not None else None, "row_group_bytes", None)
    if usual is None or "row_group_bytes" in options:
        return dict(options)
    return {**options, "row_group_bytes": min(parse_bytes(usual), max_bytes // 4)}


def _copy(dataset: Dataset, rows: _Rows, writer: DatasetWriter, digest: DatasetDigest | None) -> None:
    for batch in rows.batches():
        done = dataset.materialise(batch, views=True)
        if digest is not None:
            digest.update(batch_digests(done, dataset.view))
        writer.write_batch(done)
        dataset.release(writer.held_bytes())


class _Rows:
    """The rows of a source as the plan wants them, counted as they pass."""

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        columns: Sequence[str] | None,
        max_bytes: int,
        limit: int | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._dataset, self._plan, self._columns = dataset, plan, columns
        self._max_bytes, self._limit, self._on_progress = max_bytes, limit, on_progress
        self.shards_done = self.samples = self.rows = self.payload_bytes = 0

    def batches(self) -> Any:
        """Batches with references; no more samples than the limit."""
        schema = self._plan.schema
        columns = None if self._columns is None else [*self._columns, "__key__"]
        for number in range(len(self._dataset.listing)):
            if self._limit is not None and self.samples >= self._limit:
                return
            if schema is not None:
                columns = schema.names
            for batch in self._dataset.shard_batches(number, _MAX_ROWS, self._max_bytes, columns, schema, views=True):
                fitted = batch if schema is None else align_table(batch, schema)
                yield self._counted(fitted)
                if self._limit is not None and self.samples >= self._limit:
                    break
            self.shards_done += 1
            self._tell()

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        starts = sample_firsts(batch, self._dataset.view)
        if self._limit is not None and self.samples + len(starts) > self._limit:
            batch = batch.slice(0, int(starts[self._limit - self.samples]))
            starts = starts[: self._limit - self.samples]
        self.samples += len(starts)
        self.rows += batch.num_rows
        self.payload_bytes += int(row_bytes(batch).sum())
        self._tell()
        return batch

    def _tell(self) -> None:
        if self._on_progress is not None:
            total = len(self._dataset.listing)
            self._on_progress(Progress(self.shards_done, total, self.samples, self.payload_bytes))


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
