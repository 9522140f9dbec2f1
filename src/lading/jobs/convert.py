"""Convert: any shards to shards of another format, in one process or several."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lading.arrow.rebatch import HELD_BATCHES
from lading.arrow.views import is_text
from lading.content.digests import DatasetDigest, undigested
from lading.dataset.dataset import Dataset
from lading.dataset.order.arranged import Arranged
from lading.dataset.order.chosen import MOST_FIRST_ROWS, ChosenSamples, has_open_types, split_at_list
from lading.dataset.shards.bad_shards import BadShards
from lading.dataset.shards.iteration import hidden_columns
from lading.dataset.shards.shards import Shards
from lading.dataset.source.open import open_shards, read_of
from lading.dataset.source.pruning import shards_that_fit
from lading.dataset.source.source import Source, listed_once, write_splits
from lading.dataset.steps.cast_step import Cast
from lading.dataset.steps.field_steps import Fields
from lading.dataset.steps.key_steps import Join
from lading.dataset.steps.repartition import Repartition
from lading.dataset.steps.step import Drop as DropColumns
from lading.dataset.steps.step import (
    Filter,
    Function,
    ImageBounds,
    Limit,
    Map,
    OnFunctionError,
    Rename,
    Rows,
    Select,
    Step,
    Where,
)
from lading.dataset.transform.columns import columns_to_read
from lading.dataset.transform.concat import Parts
from lading.dataset.transform.part_shards import repeated_keys
from lading.dataset.transform.transform import Transform
from lading.dataset.writing.single_file import check_file, is_file_name, options_of_file
from lading.dataset.writing.writer import DatasetWriter, WriteSummary
from lading.errors import DataError, SeveralSplits, Unrepresentable, UsageError
from lading.features.items import KEY
from lading.features.natural import is_number, known_feature, natural_schema
from lading.features.stored_values import is_payload
from lading.formats.base import AnyFormat
from lading.formats.registry import format_of_name, get_format
from lading.interleaved.tar_writer import Roles
from lading.jobs.converter import Converter, bounded_options
from lading.jobs.digest import dataset_digest
from lading.jobs.left_out import note_left_out
from lading.jobs.plan import Plan, as_members, make_plan, take_files_in
from lading.jobs.progress import OnProgress, Progress
from lading.jobs.progress_bars import shown_progress
from lading.jobs.reading import refuse_out_of_reach
from lading.jobs.refusals import ledger_file, refuse_harm, refuse_references
from lading.jobs.run import LazyWorkerPool, Run, is_quick
from lading.jobs.spec import Conversion
from lading.jobs.splits import each_split, folder_of_splits, refuse_each_other
from lading.jobs.tasks import ALONE_BYTES, SHARD_BYTES, Task, arranged_tasks, is_one_task, plan_tasks, shard_sizes
from lading.jobs.threads import threads_each, using_threads
from lading.jobs.trial import tried_rates, tried_ratio
from lading.limits import DEFAULT_LIMITS, Limits
from lading.manifest.commit import Staging, check_destination, find_destination
from lading.manifest.hugging_face import save_data_files
from lading.manifest.values import FOLDER, lookup
from lading.options import (
    Checksums,
    Drop,
    InterleavedOptions,
    OnBadShard,
    OnError,
    ReadOptions,
    SchemaPolicy,
    WriteOptions,
)
from lading.pipeline.columns import written_schema
from lading.pipeline.cutting import ONE_SHARD, Cut
from lading.pipeline.shard_kind import ShardKind
from lading.spelling import names_value
from lading.storage.base import Sink, Store
from lading.storage.memory import MemoryStore
from lading.storage.roots import StoredRoots, kept_roots, real_place
from lading.storage.stores import Stores
from lading.units import count, parse_bytes

__all__ = ["ConvertSummary", "Progress", "convert"]

_FIRST_ROWS = 1024
_LOOKED_UP = 1 << 16
"""Numbers of samples whose shards are looked up at once."""
"""Rows at the beginning by which functions show their columns."""


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
        counts: what was reported (dropped, renamed …), by a short phrase.
        filtered_rows: rows that filters rejected.
        filtered: the first few of them: file, row in it from 0, key, reason, outcome.
        lost_rows: rows that `on_error` dropped or kept without payload, and rows dropped with them.
        lost: the first few of them: file, row, key, reason, outcome, detail.
        skipped_shards: the shards that were left out (`on_bad_shard="skip"`): file and error.
        differences: how the source's shards differ in their schemas.
        roots: folders of payload that readers of the destination must name (`lazy`): a manifest is not trusted with
            folders that are neither in the destination nor next to it.
        dry_run: nothing was written.
        splits: of a source that lists several datasets, what was done of each, by name; all else is of them together,
            and no digest.
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
    filtered_rows: int = 0
    filtered: Sequence[Mapping[str, Any]] = ()
    lost_rows: int = 0
    lost: Sequence[Mapping[str, Any]] = ()
    skipped_shards: Sequence[Mapping[str, Any]] = ()
    differences: Sequence[str] = ()
    dry_run: bool = False
    roots: Sequence[str] = ()
    splits: Mapping[str, ConvertSummary] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the facts that are there, without single rows: a notebook shows this behind `ds.write(…)`."""
        facts = (
            (each.name, getattr(self, each.name)) for each in fields(self) if each.name not in ("filtered", "lost")
        )
        told = (f"{name}={value:.2f}" if name == "seconds" else f"{name}={value!r}" for name, value in facts if value)
        return f"ConvertSummary({', '.join(told)})"


def convert(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    source: Source | Dataset | Mapping[str, Dataset],
    destination: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002 - the word users know
    source_format: str | None = None,
    split: str | None = None,
    view: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | pc.Expression | None = None,
    filter: Function | None = None,  # noqa: A002 - the word users know
    map: Function | None = None,  # noqa: A002 - the word users know
    filter_batches: Function | None = None,
    map_batches: Function | None = None,
    min_aspect_ratio: float | None = None,
    max_aspect_ratio: float | None = None,
    min_side: int | None = None,
    max_side: int | None = None,
    drop: Drop = "row",
    on_error: OnError = "error",
    on_materialize_error: OnError | None = None,
    ledger: str | os.PathLike[str] | None = None,
    lazy: bool = False,
    shard_size: int | str | None = None,
    num_shards: int | None = None,
    rows_per_shard: int | None = None,
    checksums: Checksums = "samples",
    max_batch_bytes: int | str = "512MB",
    limit: int | None = None,
    schema: pa.Schema | None = None,
    schema_overrides: Mapping[str, pa.DataType] | pa.Schema | None = None,
    schema_policy: SchemaPolicy = "union",
    overwrite: bool = False,
    verify: bool = False,
    dry_run: bool = False,
    workers: int = 1,
    threads: int | None = None,
    source_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    interleaved: InterleavedOptions | None = None,
    fields: Sequence[str] | None = None,
    regroup: bool = False,
    roots: Sequence[str | os.PathLike[str]] = (),
    hive_partitioning: bool = True,
    stores: Stores | None = None,
    on_bad_shard: OnBadShard = "error",
    limits: Limits = DEFAULT_LIMITS,
    on_progress: OnProgress | None = None,
    progress: bool = True,
) -> ConvertSummary:
    """Write a source, or a dataset with its steps, as a new dataset in any format.

    Example:
        lading.convert("mint/*.tar", "out", format="parquet", where="n_words > 500", verify=True, workers=8)

    lading scans the schema of all shards first. The destination appears in one step at the end. The source is divided
    into tasks of whole output shards, so the output bytes do not depend on the number of workers. Peak memory of
    each process: 250 MB and twice `max_batch_bytes`.

    Videos that a cache stores in separate files are stored in the output, unless `source_options` say otherwise. Each
    split of a source with several splits (a `DatasetDict`) becomes a dataset in a folder of its own.

    Args:
        source: as for `lading.open`, or a dataset. The steps of a dataset come before those of the arguments. Or
            datasets by name, as `ds.split` gives them: each is written into a folder of its name, all in one step.
        destination: folder of the new dataset. A name that ends in `.parquet`, `.tar.gz` or such is one file, without
            a manifest next to it; a slash at the end makes it a folder.
        format: format to write. By default the ending of the destination names it.
        source_format: format of the source, if it is not detected.
        split: split to convert, as for `lading.open`.
        view: `samples` or `interleaved`. By default the data decide.
        columns: columns to keep, besides keys and reserved columns. None keeps all.
        where: condition on rows (`lading.content.conditions`), or an Arrow expression. Other rows are dropped.
        filter: function that gets each sample, a dict of decoded values, and returns whether it is kept, as
            `Dataset.filter`.
        map: function that gets each remaining sample, and returns a dict of new and changed fields, as `Dataset.map`.
            It is called for the first samples once more beforehand, to find the columns.
        filter_batches: as `filter`, for a function over Arrow batches (`Dataset.filter_batches`).
        map_batches: as `map`, for a function over Arrow batches (`Dataset.map_batches`), behind `map`.
        min_aspect_ratio: drop images narrower than this ratio (width / height).
        max_aspect_ratio: drop images wider than this ratio.
        min_side: drop images whose shorter side has fewer pixels.
        max_side: drop images whose longer side has more pixels.
        drop: where a filter rejects an item of a document, drop the item (`row`) or the document (`sample`).
        on_error: for a row with unavailable payload, or with an earlier error: `error`, `warn` (write the row without
            payload), `drop_row`, `drop_sample`. For `error`, a dataset that was opened with a policy keeps that. With
            `drop_sample`, samples for which `filter` or `map` raises are dropped too.
        on_materialize_error: NeMo Curator's name of `on_error`.
        ledger: file for one JSON line for each row that was filtered or lost, and each bad shard that was skipped.
        lazy: write references to the payload where it is now. Only for items, in a format with columns.
        shard_size: size of a shard on disk. All but the last are within a tenth, if samples are small. By default
            about 256 MB.
        num_shards: number of shards, in place of their size. Their numbers of samples differ by at most one, the first
            shards have more. In one process.
        rows_per_shard: samples of a shard, in place of its size. In one process.
        checksums: as for `lading.writer`.
        max_batch_bytes: payload held in memory at once.
        limit: keep at most this many samples, the first ones that pass the filters; in one process. The count precedes
            `map` and `on_error`.
        schema: columns to write, as for `lading.open`.
        schema_overrides: types of some columns, as for `lading.open`; all other columns stay as they are.
        schema_policy: for shards with different columns: `union`, `strict` or `intersect`.
        overwrite: replace the dataset at the destination.
        verify: read the destination back and compare content digests.
        dry_run: read and plan in one process, but write nothing. Options and columns that the format refuses are
            errors. Values that the format refuses are not found.
        workers: processes that share the work, at most. Further processes start if they save time.
        threads: threads of each process. By default the workers share the cores. With two threads, a process reads and
            writes at once.
        source_options: options of the source's format.
        options: options of the format written.
        interleaved: names of fields and policies for interleaved data.
        fields: passthrough columns of documents to keep, as for `lading.open`.
        regroup: join the rows or members of a sample wherever they are in the shard, as for `lading.open`.
        roots: folders that references may point into, besides the folders of the source.
        hive_partitioning: take folders such as `year=2023` for columns of the rows in them.
        stores: which store serves which URL.
        on_bad_shard: for a shard that is damaged, missing or unreadable: `error`, or `skip`. `skip` leaves the whole
            shard out, with a warning. The summary and the ledger list such shards.
        limits: limits on what files of the source may ask for, as for `lading.open`.
        on_progress: called after every batch of any process.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.

    Raises:
        DestinationExists: the destination is not empty.
        UsageError: the destination is inside the source, or worker processes cannot reach the data.
        DataError: the data are bad. With `verify`, the destination differs from the source.
        StoreError: a store failed, or a worker died. The error names the worker's shards.
    """
    opened = source.read.on_materialize_error if isinstance(source, Dataset) and on_error == "error" else None
    asked = {**locals(), "on_error": on_materialize_error or opened or on_error}
    asked["format"] = format or format_of_name(os.fspath(destination))
    bounds = ImageBounds(min_side, max_side, min_aspect_ratio, max_aspect_ratio, drop)
    of_functions: OnFunctionError = "drop_sample" if on_error == "drop_sample" else "error"
    steps = (
        None if where is None else Where(where, drop),
        None if bounds == ImageBounds(drop=drop) else bounds,
        None if filter is None else Filter(filter, on_error=of_functions),
        None if filter_batches is None else Filter(filter_batches, drop, batched=True),
        None if limit is None else Limit(limit),
        None if map is None else Map(map, on_error=of_functions),
        None if map_batches is None else Map(map_batches, batched=True),
    )
    job = _Job(
        ReadOptions(
            format=source_format, split=split, view=view, options=source_options, interleaved=interleaved,
            fields=fields, regroup=regroup, roots=roots, schema=schema, schema_overrides=schema_overrides,
            hive_partitioning=hive_partitioning, stores=stores or Stores(), on_bad_shard=on_bad_shard, limits=limits,
        ),
        WriteOptions(**{name: asked[name] for name in WriteOptions.__dataclass_fields__}),
        None if columns is None else tuple(columns),
        tuple(step for step in steps if step is not None),
    )  # fmt: skip
    with shown_progress("converting", on_progress, progress=progress) as report:
        job = replace(job, on_progress=report)
        if isinstance(source, Dataset):
            opening = {**job.opening, "stores": stores}
            job = _repartitioned(replace(job, read=read_of(source, opening), steps=(*source.steps, *job.steps)))
            return _convert(job, source.source, destination)
        if isinstance(source, Mapping):
            return _convert_parts(replace(job, read=replace(job.read, stores=stores)), source, destination)
        source = listed_once(source)
        try:
            return _convert(job, source, destination)
        except SeveralSplits as error:
            return _convert_splits(job, error, source, destination)


@dataclass(frozen=True, slots=True)
class _Job:
    """A conversion as its user asked for it.

    Attributes:
        read: how the source is read.
        write: how the destination is written.
        columns: columns to keep; None keeps all.
        steps: which rows are kept, and how they change.
        on_progress: called after every batch.
    """

    read: ReadOptions
    write: WriteOptions
    columns: tuple[str, ...] | None
    steps: tuple[Step, ...]
    on_progress: OnProgress | None = None

    @property
    def stores(self) -> Stores:
        """Which store serves which URL."""
        return self.read.stores or Stores()

    @property
    def limit(self) -> int | None:
        """The most samples to convert."""
        return min((step.count for step in self.steps if isinstance(step, Limit)), default=None)

    @property
    def chooses(self) -> bool:
        """Whether rows are left out or changed, but for those behind a limit."""
        return not all(isinstance(step, Limit) for step in self.steps)

    @property
    def opening(self) -> dict[str, Any]:
        """Arguments of `open_shards`."""
        return {each.name: getattr(self.read, each.name) for each in fields(self.read)}

    def has(self, *kinds: type[Step]) -> bool:
        """Whether a step is of one of these kinds."""
        return any(isinstance(step, kinds) for step in self.steps)

    @property
    def maps_batches(self) -> bool:
        """Whether a function replaces batches."""
        return any(isinstance(step, Map) and step.batched for step in self.steps)

    def copies(self, shards: Shards) -> bool:
        """Whether samples become samples of the same format, and nothing changes."""
        kept = self.keeps_columns(shards) and not self.chooses
        kept = kept and shards.types is None
        return kept and shards.format == get_format(self.write.format).name and shards.view == "samples"

    def keeps_columns(self, shards: Shards) -> bool:
        """Whether every column of the source is written."""
        return self.columns is None and shards.target is None and self.write.schema_policy == "union"


def _repartitioned(job: _Job) -> _Job:
    """The job without `Repartition` steps; the last one says where shards end, unless an argument does."""
    found = [step for step in job.steps if isinstance(step, Repartition)]
    rest, write = tuple(step for step in job.steps if not isinstance(step, Repartition)), job.write
    if found and write.shard_size is None and not write.counts_samples:
        write = replace(write, **asdict(found[-1]))
    return replace(job, steps=rest, write=write)


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is known of a conversion before the first row is written.

    Attributes:
        spec: the conversion as every process does it; of samples in a new order, what comes behind that.
        tasks: its pieces.
        sizes: bytes of each shard of the source.
        staging: the folder to build in, if several processes may do the work.
        pool: these processes.
        arranged: the samples, if they are written in another order.
        source_shards: shards that were read for it.
    """

    spec: Conversion
    tasks: list[Task]
    sizes: Sequence[int]
    staging: Staging | None = None
    pool: LazyWorkerPool | None = None
    arranged: Arranged | None = None
    source_shards: int = 0


def _planned(job: _Job, shards: Shards, held: ExitStack, place: tuple[Store, str], *, alone: bool) -> _Planned:
    """Plan a conversion into one file (`alone`) or into shards; put samples in their new order, where it has one."""
    before, behind = split_at_list(job.steps)
    sizes = list(shard_sizes(shards.listing, job.stores, skip=job.read.on_bad_shard == "skip"))
    shares = not alone and _may_share(job, behind)
    if not before:
        staging, pool = _workers(job, shards, held, sizes, place) if shares else (None, None)
        spec = _settled(job, shards)
        return _Planned(spec, _tasks(shards, spec, sizes, alone=alone), sizes, staging, pool)
    if job.columns is not None:
        job = replace(job, steps=(*job.steps, Select(job.columns)), columns=None)
    whole = _settled(job, shards)
    spec, arranged, source_shards = _arranged(whole, shards, held, to_file=shares)
    tasks = _arranged_tasks(shards, whole, spec, arranged, alone=alone)
    parts = [task.source_bytes for task in tasks]
    staging, pool = _workers(job, shards, held, parts, place) if shares else (None, None)
    return _Planned(spec, tasks, sizes, staging, pool, arranged, source_shards)


def _convert(job: _Job, source: Source, destination: str | os.PathLike[str]) -> ConvertSummary:
    """Convert a source that is one dataset."""
    began, write, stores = time.perf_counter(), job.write, job.stores
    with using_threads(write.threads), ExitStack() as held, open_shards(source, **job.opening) as every:
        shards = held.enter_context(shards_that_fit(every, job.steps))
        job = replace(job, read=replace(job.read, options=take_files_in(shards, job.read.options)))
        target = get_format(write.format)
        store, path = find_destination(destination, stores)
        refuse_harm(shards, destination, stores, write)
        if is_file_name(destination):
            write = _into_file(write, destination, shards, (store, path))
            job = replace(job, write=write)
        else:
            check_destination(store, path, overwrite=write.overwrite)
        ledger = held.enter_context(ledger_file(destination, stores, write))
        if write.lazy:
            refuse_references(shards, target)
        if write.workers > 1:
            paths = [*shards.listing.table["path"].to_pylist(), os.fspath(destination)]
            refuse_out_of_reach([*(each.format for each in shards.sources()), target.name], paths, shards.stores)
        copies, members = job.copies(shards), None
        if copies:
            options, members = as_members(shards, target, write.options)
            write = replace(write, options=options)
        if isinstance(source, Parts) and target.info.interleaved == "members":
            shards.counts["samples with a key that an earlier sample has"] += repeated_keys(shards)
        job = replace(job, write=write)
        planned = _planned(job, shards, held, (store, path), alone=is_file_name(destination))
        spec, tasks, arranged = planned.spec, planned.tasks, planned.arranged
        checked = write.verify and not write.dry_run
        if checked:
            _refuse_unverifiable(target, spec)
            spec = replace(spec, digests=not copies)
        tasks = tasks if write.dry_run else _numbered(tasks, shards, spec, arranged)
        digests = DatasetDigest() if spec.digests else None
        run = Run(shards, spec, tasks, digests, ledger, job.on_progress, planned.sizes, arranged)
        summary, digest = WriteSummary(0, 0, 0, 0), None
        if write.dry_run:
            _rehearse(run, spec, path)
            note_left_out(shards, run.losses, listed=False)
        else:
            with _writer(spec, destination, job, members=members, staging=planned.staging) as writer:
                run.into(writer, store, planned.pool)
                shards.bad.refuse_all(len(shards.listing))
                if checked:
                    # A copy is read again as others read it: names that were kept as they are show in a digest.
                    digest = run.digest or dataset_digest(source, limit=job.limit, workers=write.workers, **job.opening)
                    _compare(digest, writer, job, spec.read.roots if write.lazy else ())
                note_left_out(shards, run.losses, listed=ledger is not None)
                _end(writer, ledger, shards.bad)
            summary = writer.close()
        formats = " + ".join(dict.fromkeys(each.format for each in shards.sources()))
        return ConvertSummary(
            formats, target.name, shards.view, run.tally.shards + planned.source_shards, summary.num_shards,
            run.tally.samples, run.tally.rows, summary.size_bytes, run.tally.payload_bytes, time.perf_counter() - began,
            digest=None if digest is None else digest.ordered, verified=digest is not None,
            counts=dict(Counter(summary.counts) + shards.counts + run.losses.counts + run.unmatched),
            filtered_rows=run.losses.rows["filtered"], filtered=run.losses.first["filtered"],
            lost_rows=run.losses.rows["lost"], lost=run.losses.first["lost"],
            skipped_shards=shards.bad.listed(), differences=spec.plan.differences, dry_run=write.dry_run,
            roots=_needed_roots(spec, destination, stores) if write.lazy else (),
        )  # fmt: skip


def _needed_roots(spec: Conversion, destination: str | os.PathLike[str], stores: Stores) -> list[str]:
    """The folders that readers of lazy output must name: those that they do not open because of the manifest."""
    folder = os.fspath(destination)
    return [*StoredRoots.of(kept_roots(spec.read.roots, folder, stores), folder, stores).refused]


def _may_share(job: _Job, behind: Sequence[Step]) -> bool:
    """Whether several processes may do the work; `behind` are the steps behind the last one that needs all samples."""
    target = get_format(job.write.format)
    alone = (
        job.write.dry_run
        or job.write.workers == 1
        or job.write.counts_samples
        or any(isinstance(step, (Limit, Rows)) for step in behind)
        # Which columns a function over batches gives tars is found on the way, by the process that writes all of it.
        or (job.maps_batches and not target.info.fixed_schema)
        # Workers do not know what their shards will be called.
        or target.info.files_name_each_other
    )
    return not alone


def _arranged(spec: Conversion, shards: Shards, held: ExitStack, *, to_file: bool) -> tuple[Conversion, Arranged, int]:
    """Put the samples of a conversion in their new order.

    Returns the conversion with the steps behind, the samples, and the number of shards that were read.
    """
    before, behind = split_at_list(spec.steps)
    chosen = ChosenSamples(shards, before)
    numbers = chosen.numbers
    most = spec.max_batch_bytes // HELD_BATCHES
    arranged = held.enter_context(
        chosen.arranged(numbers, before, chosen.columns_needed(behind), most, to_file=to_file)
    )
    ends = shards.sample_ends()
    there = np.zeros(len(ends), np.bool_)
    for first in range(0, len(numbers), _LOOKED_UP):
        there[lookup(ends, np.asarray(numbers[first : first + _LOOKED_UP], np.int64))[0]] = True
    mapped = spec.plan.mapped[sum(isinstance(step, Map) for step in before) :]
    rest = replace(spec, steps=tuple(behind), plan=replace(spec.plan, mapped=mapped))
    return rest, arranged, int(there.sum())


def _workers(
    job: _Job, shards: Shards, held: ExitStack, sizes: Sequence[int], place: tuple[Store, str]
) -> tuple[Staging | None, LazyWorkerPool | None]:
    """The folder to build in and the workers, if there is work for several processes."""
    write = job.write
    count = min(write.workers, len(sizes))
    if count <= 1:
        return None, None
    store, path = place
    staging = Staging.begin(store, path, shared=False)
    held.callback(staging.drop)  # nothing is left to drop after the commit
    pool = LazyWorkerPool(held, count, staging.lock, write.threads or threads_each(write.workers))
    slow = write.verify or job.has(Map, Where, Filter)
    if slow or not is_quick(shards, store, write.options or {}, sizes, count):
        pool.begin()  # before the plan: what workers import takes as long as a look at a few GB
    return staging, pool


def _into_file(
    write: WriteOptions, destination: str | os.PathLike[str], shards: Shards, place: tuple[Store, str]
) -> WriteOptions:
    """The options of writing one file.

    Raises:
        UsageError: the file is one of the source, or options ask for more than one file.
        DestinationExists: the file is there.
    """
    name, target = os.fspath(destination), get_format(write.format)
    if write.lazy or write.shard_size is not None or write.counts_samples:
        raise UsageError("one file holds all rows, and their payload", file=name,
                         found="--lazy" if write.lazy else "a number or size of shards",
                         advice=f"Name a folder: {name}/ is one, by the slash at its end.")  # fmt: skip
    mine = real_place(name, shards.stores)
    if mine in {real_place(path, shards.stores) for path in shards.listing.table.column("path").to_pylist()}:
        raise UsageError("the destination is a file of the source", file=name, advice="Choose another name.")
    check_file(*place, overwrite=write.overwrite)
    return replace(write, options=options_of_file(destination, target, write.options or {}))


def _tasks(shards: Shards, spec: Conversion, sizes: Sequence[int], *, alone: bool) -> list[Task]:
    """The tasks of a conversion; one (`alone`) for one file."""
    if alone:
        return [Task(0, 0, len(sizes), sum(sizes), ONE_SHARD)] if sizes else []
    write = spec.write
    size = None if write.shard_size is None else parse_bytes(write.shard_size)
    if write.counts_samples or write.dry_run or is_one_task(sizes, size):
        cut = _cut_by_count(shards, spec) if write.counts_samples and not write.dry_run else Cut(size or SHARD_BYTES)
        return [Task(0, 0, len(sizes), sum(sizes), cut)] if sizes else []
    return plan_tasks(sizes, size, tried_rates(shards, spec, sizes))


def _arranged_tasks(
    shards: Shards, whole: Conversion, spec: Conversion, arranged: Arranged, *, alone: bool
) -> list[Task]:
    """The tasks of a conversion whose samples are written in another order; `whole` has all of its steps."""
    write, total = spec.write, int(arranged.sizes.sum())
    size = None if write.shard_size is None else parse_bytes(write.shard_size)
    if alone or write.counts_samples or write.dry_run or total < ALONE_BYTES:
        cut = ONE_SHARD if alone else Cut(size or SHARD_BYTES)
        if write.counts_samples and not write.dry_run:
            cut = _cut_by_count(shards, whole)
        return [Task(0, 0, arranged.count, total, cut)] if arranged.count else []
    return arranged_tasks(arranged, size, tried_ratio(shards, spec, arranged))


def _cut_by_count(shards: Shards, spec: Conversion) -> Cut:
    """Where shards end that have equal numbers of samples.

    Raises:
        UsageError: there are fewer samples than shards, or a function changes their number.
    """
    if spec.write.rows_per_shard is not None:
        return Cut(SHARD_BYTES, samples=spec.write.rows_per_shard)
    wanted = spec.write.num_shards or 1
    total = len(ChosenSamples(shards, spec.steps).numbers)
    if total < wanted:
        raise UsageError("there are fewer samples than shards", expected=f"at most --num-shards {total}",
                         found=count(wanted, "shard"))  # fmt: skip
    return Cut(SHARD_BYTES, samples=total // wanted, longer=total % wanted)


def _settled(job: _Job, shards: Shards) -> Conversion:
    """The conversion as every process does it, found by a look at all shards; of a function by its first rows."""
    write, target = job.write, get_format(job.write.format)
    plan = make_plan(
        shards, target, columns=job.columns, policy=write.schema_policy, filtered=job.chooses,
        looked_at=job.has(Map, Where, Filter),
    )  # fmt: skip
    hidden, written = hidden_columns(shards, None), None
    if plan.schema is not None and hidden:
        written = pa.schema([f for f in plan.schema if f.name not in hidden], metadata=plan.schema.metadata)
    plan = replace(plan, columns=job.columns, whole=job.keeps_columns(shards), written=written)
    if shards.view == "interleaved":  # values of a table are of the whole document
        joined = [name for step in job.steps if isinstance(step, Join) for name in step.table.schema.names]
        plan = replace(plan, roles={**plan.roles, **dict.fromkeys(joined, "sample")})
    every = plan.schema
    if every is not None:
        Transform(job.steps, shards.view, shards.fetcher).check(every)
    if job.has(Select, DropColumns, Rename, Join, Fields, Cast):
        plan = _without_unread(plan, job.steps, shards.view)
    options = bounded_options(target, write.options or {}, parse_bytes(write.max_batch_bytes))
    target_schema = None if shards.target is None else plan.schema
    # A worker sees the shards of its task only; references may lead to the folders of all.
    read = replace(shards.read_plan(), roots=tuple(shards.roots()), target=target_schema)
    spec = Conversion(
        shards.format, read, replace(write, options=options), job.steps, plan,
        index_file=shards.listing.index_file, limits=job.read.limits,
    )  # fmt: skip
    mapped = _mapped(spec, shards) if job.has(Map) else ()
    if not job.maps_batches:
        plan = replace(plan, mapped=mapped)
    if every is not None and (mapped or job.has(Select, DropColumns, Rename, Join, Fields, Cast)):
        steps = Transform(job.steps, shards.view, shards.fetcher, map_schemas=mapped)
        plan = replace(plan, mapped=mapped, written=_as_found(steps.check(written or every), every))
    if write.workers > 1 and job.has(Map, Filter):
        spec.encode()  # a function that workers cannot be sent is refused for little data too
    return replace(spec, plan=plan)


def _as_found(schema: pa.Schema, source: pa.Schema) -> pa.Schema:
    """The schema, where what should be numbers in files is text, if the first values of the source are none."""
    texts = {field.name for field in source if is_number(known_feature(field)) and is_text(field.type)}
    fields = [f.with_type(pa.string()) if f.name in texts and is_payload(f.type) else f for f in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _without_unread(plan: Plan, steps: Sequence[Step], view: str) -> Plan:
    """The plan without the columns of the source that no step needs, and that are not written."""
    needed = None if plan.schema is None else columns_to_read(steps, None, view, plan.schema)
    if plan.schema is None or needed is None or needed == plan.schema.names:
        return plan
    kept = pa.schema([each for each in plan.schema if each.name in needed], metadata=plan.schema.metadata)
    return replace(plan, schema=kept, whole=False)


def _mapped(spec: Conversion, shards: Shards) -> tuple[pa.Schema, ...]:
    """The schemas that functions give their rows, found by their first rows; empty if there are no rows."""
    if split_at_list(spec.steps)[0]:
        return ChosenSamples(shards, spec.steps).map_schemas
    before, look = Counter(shards.counts), Converter(shards, spec, max_rows=_FIRST_ROWS)
    rows = 0
    for batch in look.rows(range(len(shards.listing))):
        rows += batch.num_rows
        known = [each.schema for each in look.transform.maps if each.schema is not None]
        settled = not any(has_open_types(schema, shards.schema) for schema in known) or rows >= MOST_FIRST_ROWS
        if settled and len(known) == len(look.transform.maps):
            break
    shards.counts.clear()
    shards.counts.update(before)
    found = [each.schema for each in look.transform.maps]
    return tuple(found) if None not in found else ()


def _writer(
    spec: Conversion,
    destination: str | os.PathLike[str],
    job: _Job,
    *,
    members: pa.Schema | None,
    staging: Staging | None,
) -> DatasetWriter:
    write = spec.write
    return DatasetWriter(
        destination, format=write.format, view=spec.view, schema=spec.plan.schema_written,
        overwrite=write.overwrite, options=write.options, roles=spec.plan.roles, members=members,
        checksums=write.checksums, stores=job.stores, staging=staging, roots=spec.read.roots if write.lazy else (),
    )  # fmt: skip


def _convert_splits(
    job: _Job, error: SeveralSplits, source: Source, destination: str | os.PathLike[str]
) -> ConvertSummary:
    """Convert each split of a source; the summary is of all of them, as of one dataset."""
    began, stores, write = time.perf_counter(), job.stores, job.write
    folder = folder_of_splits(source, error, stores)
    if folder is None:
        raise error
    if is_file_name(destination):
        raise UsageError("one file holds one split", file=os.fspath(destination), found=", ".join(error.splits),
                         advice=f"Choose one of them: --split {error.splits[0]}. Or name a folder.")  # fmt: skip
    for name, asked in (("limit", job.has(Limit)), ("ledger", write.ledger is not None)):
        if asked:
            raise UsageError(f"a {name} is of one split", file=folder, found=", ".join(error.splits),
                             advice=f"Choose one of them: --split {error.splits[0]}.")  # fmt: skip
    refuse_each_other(folder, destination, stores)

    jobs = {name: _job_of_split(job, error, source, folder, name) for name in error.splits}
    for mine, place in jobs.values():  # before each is written into a folder out of sight, which holds nothing of it
        with open_shards(place, **mine.opening) as shards:
            take_files_in(shards, job.read.options)
            refuse_harm(shards, destination, stores, write)

    def convert_one(name: str, to: str, stores: Stores) -> ConvertSummary:
        mine, place = jobs[name]
        return _convert(replace(mine, read=replace(mine.read, stores=stores)), place, to)

    splits = each_split(
        error.splits, destination, convert_one, partial(_write_index, write, error.splits), stores=stores,
        overwrite=write.overwrite, dry_run=write.dry_run,
    )  # fmt: skip
    return _together(splits, began)


def _convert_parts(job: _Job, parts: Mapping[str, Dataset], destination: str | os.PathLike[str]) -> ConvertSummary:
    """Write datasets by name, such as those of `Dataset.split`, each into a folder of its name."""
    began, write, stores = time.perf_counter(), job.write, job.read.stores or Stores()
    place = os.fspath(destination)
    if is_file_name(destination):
        raise UsageError("several splits need a folder", file=place, found=", ".join(parts))
    if write.ledger is not None or job.has(Limit):
        raise UsageError("a limit or a ledger is of one split", found=", ".join(parts),
                         advice="Limit the dataset before; for ledgers, write one split at a time.")  # fmt: skip
    jobs = {}
    for name, part in parts.items():
        if not isinstance(part, Dataset):
            raise UsageError("splits are datasets by name", found=f"{name!r}: {type(part).__name__}")
        if not re.fullmatch(r"\w[\w.-]*", name) or name == FOLDER:
            raise UsageError("the name of a split becomes a folder", expected="letters, digits, '_', '-' and '.'",
                             found=repr(name), advice=f"{FOLDER} is lading's own: choose another name.")  # fmt: skip
        read = read_of(part, {**job.opening, "stores": job.read.stores})
        mine = _repartitioned(replace(job, read=read, steps=(*part.steps, *job.steps)))
        jobs[name] = mine, part.source
        with open_shards(part.source, **mine.opening) as shards:
            take_files_in(shards, mine.read.options)
            refuse_harm(shards, destination, stores, write)

    def convert_one(name: str, to: str, stores: Stores) -> ConvertSummary:
        mine, source = jobs[name]
        read = replace(mine.read, stores=Stores({**mine.stores.by_prefix, **stores.by_prefix}))
        done = _convert(replace(mine, read=read), source, to)
        if not done.samples:
            raise UsageError(f"the split {name!r} would be empty", file=place,
                             advice="Give it a larger fraction, or another seed.")  # fmt: skip
        return done

    splits = each_split(
        list(jobs), destination, convert_one, partial(_write_index, write, list(jobs)), stores=stores,
        overwrite=write.overwrite, dry_run=write.dry_run,
    )  # fmt: skip
    done = _together(splits, began)
    if len({repr(part.source) for part in parts.values()}) == 1:  # each split reads the same shards
        done = replace(done, source_shards=max(one.source_shards for one in splits.values()))
    return done


def _write_index(write: WriteOptions, names: Sequence[str], store: Store, place: str) -> None:
    target = get_format(write.format)
    if target.write_splits(store, place, names, target.write_options(write.options or {})):
        return
    write_splits(store, place, names)
    shards = {name: [info.path[len(place) + 1 :] for info in store.walk(f"{place}/{name}")] for name in names}
    save_data_files(store, place, write.format, {
        name: [path for path in paths if f"/{FOLDER}/" not in path] for name, paths in shards.items()
    })  # fmt: skip


def _together(splits: Mapping[str, ConvertSummary], began: float) -> ConvertSummary:
    """The summary of several splits, as of one dataset."""
    each = list(splits.values())
    counts: Counter[str] = Counter()
    for one in each:
        counts.update(one.counts)
    numbers = (
        "source_shards", "shards", "samples", "rows", "size_bytes", "payload_bytes", "filtered_rows", "lost_rows",
    )  # fmt: skip
    return replace(
        each[0], **{name: sum(getattr(one, name) for one in each) for name in numbers},
        seconds=time.perf_counter() - began, digest=None, verified=all(one.verified for one in each),
        counts=dict(counts), filtered=[row for one in each for row in one.filtered],
        lost=[row for one in each for row in one.lost],
        roots=[*dict.fromkeys(root for one in each for root in one.roots)],
        skipped_shards=[shard for one in each for shard in one.skipped_shards],
        differences=[found for one in each for found in one.differences], splits=splits,
    )  # fmt: skip


def _job_of_split(job: _Job, error: SeveralSplits, source: Source, folder: str, name: str) -> tuple[_Job, Source]:
    """The conversion of one split, and its source."""
    if error.by_name:
        return replace(job, read=replace(job.read, split=name)), source
    return job, f"{folder}/{name}"


def _refuse_unverifiable(target: AnyFormat, spec: Conversion) -> None:
    """Refuse to verify where bytes become text, or a column becomes less: the digests would always differ.

    Raises:
        UsageError: names the column.
        Unrepresentable: values of columns have no digest.
    """
    schema = spec.plan.schema_written
    if schema is None:
        return
    without = [field for field in schema if undigested(pa.schema([field])) is not None]
    if without:
        names = names_value([field.name for field in without])
        raise Unrepresentable("values of this type have no digest to compare", column=without[0].name,
                              found=without[0].type, advice="Convert without --verify, or leave out such columns with "
                              f"--drop-columns {names}.")  # fmt: skip
    rows = natural_schema(written_schema(schema), typed=target.info.fixed_schema, nested=target.info.stores_structs)
    back = target.written(rows, target.write_options(spec.write.options or {}))
    if back.text_columns:
        raise UsageError("bytes that are written as text cannot be compared with those of the source",
                         column=back.text_columns[0],
                         advice="Convert without --verify, or to a format that holds bytes.")  # fmt: skip
    if back.reduced_columns:
        raise UsageError("videos for datasets are less than the structs of the source, and cannot be compared",
                         column=back.reduced_columns[0],
                         advice="Read the source with --option media=bytes, or leave out --verify.")  # fmt: skip


def _numbered(tasks: list[Task], shards: Shards, spec: Conversion, arranged: Arranged | None) -> list[Task]:
    """The tasks, with the numbers of their first rows where rows without keys are to be members of tars.

    There each is named by its number in the source, or by its place in a new order, whoever does its task: a row that
    is left out leaves a gap.
    """
    fmt, write = get_format(spec.write.format), spec.write
    roles = Roles(dict(spec.plan.roles))
    kind = ShardKind(fmt, spec.view, fmt.write_options(write.options or {}), roles, write.checksums)
    schema, changes = spec.plan.schema_written, any(isinstance(step, Map) and step.batched for step in spec.steps)
    # What a function makes of rows may be more than they were; then one process does it all, and counts on.
    if len(tasks) == 1 or changes or not kind.takes_members or schema is None or KEY in schema.names:
        return tasks
    if arranged is not None:
        return [replace(task, first_row=task.first) for task in tasks]
    ends = [0, *shards.sample_ends().tolist()]
    return [replace(task, first_row=ends[task.first]) for task in tasks]


def _rehearse(run: Run, spec: Conversion, place: str) -> None:
    """Write a dataset without rows, in memory: options or columns may be refused. Then read the rows."""
    write = spec.write
    with DatasetWriter(
        place, format=write.format, view=spec.view, schema=spec.plan.schema_written,
        options=write.options, roles=spec.plan.roles, checksums=write.checksums, stores=Stores({place: MemoryStore()}),
    ):  # fmt: skip
        pass
    run.look()


def _end(writer: DatasetWriter, ledger: Sink | None, bad: BadShards) -> None:
    """Finish what is out of sight, and bring out the ledger: nothing else appears if that cannot."""
    writer.finish()
    if ledger is not None:
        ledger.write([orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in bad.entries()])
        ledger.close()


def _compare(digest: DatasetDigest, writer: DatasetWriter, job: _Job, roots: Sequence[str]) -> None:
    """Read back what was written, with its digest, before anybody sees it."""
    writer.add_digest(digest)
    folder = writer.finish()
    found = dataset_digest(folder, stores=job.stores, roots=roots, limits=job.read.limits, workers=job.write.workers)
    if found.ordered != digest.ordered or found.count != digest.count:
        raise DataError(
            "the destination does not hold what the source does", file=folder,
            expected=f"{count(digest.count, 'sample')}, digest {digest.ordered}",
            found=f"{count(found.count, 'sample')}, digest {found.ordered}",
            advice="Compare the two with 'lading diff' and report this as a bug.",
        )  # fmt: skip
