"""Convert: any shards to shards of another format, in one process or several."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc

from lading.content.digests import DatasetDigest
from lading.dataset.iteration import hidden_columns
from lading.dataset.open import open_shards
from lading.dataset.shards import Shards
from lading.dataset.source import Source, listed_once, write_splits
from lading.dataset.steps import Function
from lading.dataset.writer import DatasetWriter, WriteSummary
from lading.errors import DataError, DestinationExists, SeveralSplits, UsageError
from lading.features.items import KEY
from lading.formats.base import AnyFormat
from lading.formats.registry import get_format
from lading.interleaved.tar_writer import Roles
from lading.jobs.converter import bounded_options, changed_schema
from lading.jobs.digest import check_limit, dataset_digest
from lading.jobs.filters import Filters
from lading.jobs.plan import as_members, make_plan, refuse_inside, take_files_in
from lading.jobs.progress import OnProgress, Progress
from lading.jobs.reading import refuse_out_of_reach
from lading.jobs.run import LazyWorkerPool, Run, is_quick
from lading.jobs.spec import Conversion
from lading.jobs.splits import each_split, folder_of_splits, refuse_each_other
from lading.jobs.tasks import Task, plan_tasks
from lading.jobs.threads import threads_each, using_threads
from lading.limits import DEFAULT_LIMITS, Limits
from lading.manifest.commit import Staging, check_destination, find_destination, is_there
from lading.options import Drop, InterleavedOptions, OnError, SchemaPolicy
from lading.pipeline.columns import written_schema
from lading.pipeline.shard_kind import ShardKind
from lading.storage.base import Sink, Store, aborting
from lading.storage.memory import MemoryStore
from lading.storage.roots import is_inside, real_place
from lading.storage.stores import Stores, resolve
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
        lost: the first few rows that were not kept: file, key, reason, outcome, detail.
        differences: how the source's shards differ in their schemas.
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
    lost: Sequence[Mapping[str, Any]] = ()
    differences: Sequence[str] = ()
    dry_run: bool = False
    splits: Mapping[str, ConvertSummary] = field(default_factory=dict)


def convert(  # noqa: PLR0913 - one argument a decision of the user; all but two by keyword
    source: Source,
    destination: str | os.PathLike[str],
    *,
    format: str,  # noqa: A002 - the word users know
    source_format: str | None = None,
    view: str | None = None,
    columns: Sequence[str] | None = None,
    where: str | pc.Expression | None = None,
    filter: Function | None = None,  # noqa: A002 - the word users know
    map: Function | None = None,  # noqa: A002 - the word users know
    min_aspect_ratio: float | None = None,
    max_aspect_ratio: float | None = None,
    min_side: int | None = None,
    max_side: int | None = None,
    drop: Drop = "row",
    on_error: OnError = "error",
    ledger: str | os.PathLike[str] | None = None,
    lazy: bool = False,
    shard_size: int | str = "256MB",
    checksums: str = "samples",
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
    roots: Sequence[str | os.PathLike[str]] = (),
    stores: Stores | None = None,
    limits: Limits = DEFAULT_LIMITS,
    on_progress: OnProgress | None = None,
) -> ConvertSummary:
    """Read every sample of a source and write it to a new dataset, losing nothing but what is filtered out.

    Bytes that a source keeps in files of their own (videos of a cache) are taken in, unless `source_options` say not.
    Of a source that lists several datasets (a `DatasetDict`) each becomes one, in a folder below the destination of its
    own, and they are listed there too, so that they stay several.

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
        where: condition on rows (`lading.content.conditions`), or an Arrow expression; other rows are left out.
        filter: called with each batch, payload as references or as `large_binary`; gives a truth value a row.
        map: called with each batch that is left; gives the batch to be written in its place. Called once with no rows,
            to find its columns.
        min_aspect_ratio: least width / height of images, which are looked at by their first bytes.
        max_aspect_ratio: most of it.
        min_side: least pixels of an image's shorter side.
        max_side: most pixels of its longer side.
        drop: whether a row that a filter leaves out goes alone, or takes its interleaved `sample` along.
        on_error: for a row whose bytes cannot be had, or that came with an error: `error`, `warn` (it is written
            without them), `drop_row`, `drop_sample`.
        ledger: file to be written with a line of JSON for every row that was not kept as it was.
        lazy: leave bytes where they are, and write references to them. Only for items in a format with columns.
        shard_size: about the size of a shard. A new one begins there, and where a task ends (`lading.jobs.tasks`).
        checksums: as `lading.writer` takes it.
        max_batch_bytes: payload held at once.
        limit: samples to convert, at most: the first that no filter leaves out, by one process. It counts them before
            `map` makes more or fewer of them, and before those go whose bytes cannot be had.
        schema: the columns to be written, as `lading.open` takes them.
        schema_overrides: types of reserved columns, and further columns to be written, as `lading.open` takes them.
        schema_policy: `union`, `strict` or `intersect`, for shards that differ.
        overwrite: replace what is at the destination.
        verify: read the destination back and compare content digests.
        dry_run: plan and read, write nothing; one process does it. Options and columns that the format refuses are
            errors; values that it cannot hold are found by who writes them.
        workers: processes that read and write, at most. With one it is this process; more are started as programs of
            their own, when there is so much to do that it is worth the half second that they take to begin.
        threads: threads that each process may use; by default this machine's cores, shared out among the workers. With
            two, a process writes while it reads.
        source_options: options of the source's format.
        options: options of the format written.
        interleaved: names of fields and policies for interleaved data.
        roots: folders that references in tables may point into, beside those of the source.
        stores: which store serves which URL.
        limits: the most that files of the source may ask for, as `lading.open` takes them.
        on_progress: called after every batch, whichever process took it.

    Raises:
        DestinationExists: the destination holds something.
        UsageError: the destination lies inside the source; workers are asked for that could not reach the data.
        DataError: the data are bad; with `verify`, the destination does not hold what the source does.
        StoreError: among others, a worker died; names the source shards it had.
    """
    asked = {name: value for name, value in locals().items() if name not in ("source", "destination")}
    source, began = listed_once(source), time.perf_counter()
    _refuse_misuse(on_error, schema_policy, limit, workers=workers, threads=threads)
    stores, max_bytes, shard_bytes = stores or Stores(), parse_bytes(max_batch_bytes), parse_bytes(shard_size)
    try:
        opened = _opened(source, asked)
    except SeveralSplits as error:
        return _of_splits(error, source, destination, asked)
    with using_threads(threads), ExitStack() as held, opened as dataset:
        source_options = take_files_in(dataset, source_options)
        store, path = find_destination(destination, stores)
        _refuse_harm(dataset, destination, stores, lazy=lazy, overwrite=overwrite)
        check_destination(store, path, overwrite=overwrite)
        told = held.enter_context(_kept_ledger(ledger, destination, stores, dry_run=dry_run))
        target = get_format(format)
        filters = Filters(where, min_aspect_ratio, max_aspect_ratio, min_side, max_side, filter, drop)
        _refuse_lazy(dataset, target, lazy=lazy)
        if workers > 1:
            refuse_out_of_reach(
                [dataset.format, target.name],
                [*dataset.listing.table["path"].to_pylist(), os.fspath(destination)],
                asked["stores"],
            )
        filtered = map is not None or filters.active
        whole = columns is None and dataset.target is None and schema_policy == "union"
        copying = whole and not filtered and dataset.format == target.name and dataset.view == "samples"
        options, members = as_members(dataset, target, options) if copying else (options, None)
        tasks = plan_tasks(dataset.listing, shard_bytes, stores)
        alone = (
            dry_run
            or limit is not None
            # Which items a column of a function's own belongs to in tars is found on the way, by who writes all of it.
            or (map is not None and not target.info.fixed_schema)
            # Workers do not know what their shards will be called.
            or target.info.files_name_each_other
        )
        helpers = 1 if alone else min(workers, len(tasks))
        staging = hiring = None
        if helpers > 1:
            staging = Staging.begin(store, path, shared=False)
            held.callback(staging.drop)  # nothing is left to drop after the commit
            hiring = LazyWorkerPool(held, helpers, staging.lock, threads or threads_each(workers))
            if map or verify or filters.looks or not is_quick(dataset, store, options or {}, tasks, helpers):
                hiring.begin()  # before the plan: what workers import takes as long as a look at a few GB
        plan = make_plan(dataset, target, columns=columns, policy=schema_policy, filtered=filtered,
                         looked_at=map is not None or filters.looks)  # fmt: skip
        written = _written(plan.schema, hidden_columns(dataset, None), map)
        digest = _begun_digest(target, written or plan.schema, options or {}) if verify and not dry_run else None
        how = Conversion(
            source_format=dataset.format,
            source_options=dataset.format_options,
            view=dataset.view,
            interleaved=dataset.interleaved,
            members=dataset.members,
            stored_schema=dataset.stored_schema,
            index_file=dataset.listing.index_file,
            columns=None if columns is None else tuple(columns),
            whole=whole,
            schema=plan.schema,
            format=target.name,
            options=bounded_options(target, options or {}, max_bytes),
            roles=plan.roles,
            max_batch_bytes=max_bytes,
            digests=digest is not None and not copying,
            asked=dataset.target is not None,
            # A worker sees the shards of its task only; references may lead to the folders of all.
            roots=tuple(dataset.roots()),
            filters=filters,
            change=map,
            written=written,
            on_error=on_error,
            lazy=lazy,
            ledger=told is not None,
            checksums=checksums,
            limits=limits,
        )
        run = Run(dataset, how, tasks if dry_run else _numbered(tasks, dataset, how),
                  DatasetDigest() if how.digests else None, told, on_progress)  # fmt: skip
        summary = WriteSummary(0, 0, 0, 0)
        if dry_run:
            _rehearse(run, how, path, shard_bytes, limit)
        else:
            writer = DatasetWriter(
                destination, format=format, view=how.view, schema=how.written or how.schema, shard_size=shard_bytes,
                overwrite=overwrite, options=how.options, roles=how.roles, members=members, checksums=checksums,
                stores=stores, staging=staging,
            )  # fmt: skip
            with writer:
                run.into(writer, store, hiring, limit)
                if digest is not None:
                    # A copy is read again as others read it: names that were kept as they are show in a digest.
                    digest = run.digest or dataset_digest(
                        source, limit=limit, view=view, format=source_format, options=source_options,
                        interleaved=interleaved, roots=roots, stores=stores, limits=limits, workers=workers,
                    )  # fmt: skip
                    _compare(digest, writer, stores, how.roots if lazy else (), limits, workers)
                _end(writer, told)
            summary = writer.close()
        return ConvertSummary(
            dataset.format, target.name, dataset.view, run.tally.shards, summary.num_shards, run.tally.samples,
            run.tally.rows, summary.size_bytes, run.tally.payload_bytes, time.perf_counter() - began,
            digest=None if digest is None else digest.ordered, verified=digest is not None,
            counts=dict(Counter(summary.counts) + dataset.counts + run.losses.counts), lost=run.losses.first,
            differences=plan.differences, dry_run=dry_run,
        )  # fmt: skip


def _opened(source: Source, asked: Mapping[str, Any]) -> Shards:
    """The source as the arguments of `convert` say."""
    names = ("view", "interleaved", "roots", "schema", "schema_overrides", "stores", "limits")
    told = {name: asked[name] for name in names}
    return open_shards(source, format=asked["source_format"], options=asked["source_options"], **told)


def _of_splits(
    error: SeveralSplits, source: Source, destination: str | os.PathLike[str], asked: Mapping[str, Any]
) -> ConvertSummary:
    """Convert each split of a source; gives what was done of all, as of one dataset."""
    began, stores = time.perf_counter(), asked["stores"] or Stores()
    folder = folder_of_splits(source, error, stores)
    if folder is None:
        raise error
    for name in ("limit", "ledger"):
        if asked[name] is not None:
            raise UsageError(f"a {name} is of one split", file=folder, found=", ".join(error.splits),
                             advice=f"Convert one of their folders, such as {folder}/{error.splits[0]}.")  # fmt: skip
    refuse_each_other(folder, destination, stores)
    for name in error.splits:  # before each is written into a folder out of sight, which holds nothing of it
        with _opened(f"{folder}/{name}", asked) as dataset:
            take_files_in(dataset, asked["source_options"])
            _refuse_harm(dataset, destination, stores, lazy=asked["lazy"], overwrite=asked["overwrite"])

    def write(one: str, to: str, stores: Stores) -> ConvertSummary:
        return convert(one, to, **{**asked, "stores": stores})

    def index(store: Store, place: str) -> None:
        target = get_format(asked["format"])
        if not target.write_splits(store, place, error.splits, target.write_options(asked["options"] or {})):
            write_splits(store, place, error.splits)

    splits = each_split(
        folder, error.splits, destination, write, index, stores=stores, overwrite=asked["overwrite"],
        dry_run=asked["dry_run"],
    )  # fmt: skip
    each = list(splits.values())
    counts: Counter[str] = Counter()
    for one in each:
        counts.update(one.counts)
    numbers = ("source_shards", "shards", "samples", "rows", "size_bytes", "payload_bytes")
    return replace(
        each[0], **{name: sum(getattr(one, name) for one in each) for name in numbers},
        seconds=time.perf_counter() - began, digest=None, verified=all(one.verified for one in each),
        counts=dict(counts), lost=[row for one in each for row in one.lost],
        differences=[told for one in each for told in one.differences], splits=splits,
    )  # fmt: skip


def _refuse_misuse(on_error: str, schema_policy: str, limit: int | None, **counts: int | None) -> None:
    for word, known in ((on_error, get_args(OnError)), (schema_policy, get_args(SchemaPolicy))):
        if word not in known:
            raise UsageError("no such policy", expected=", ".join(known), found=repr(word))
    check_limit(limit)
    for name, count in counts.items():
        if count is not None and count < 1:
            raise UsageError("a job has one process, and that one thread, at least", found=f"{name}={count}")


def _refuse_harm(
    dataset: Shards, destination: str | os.PathLike[str], stores: Stores, *, lazy: bool, overwrite: bool
) -> None:
    """The destination must not replace what the source leads to, nor what `lazy` references in it would lead to."""
    refuse_inside(dataset, destination, stores)
    replaced = os.fspath(destination)
    if not lazy or not overwrite or not is_there(replaced, stores):
        return
    place = real_place(replaced, stores)
    for folder in [real_place(root, stores) for root in dataset.roots()]:
        if is_inside(place, folder) or is_inside(folder, place):
            raise UsageError(
                "the destination may hold what references would lead to", file=replaced, found=f"a root, {folder}",
                advice="Write to another folder, and remove this one when you have looked.",
            )  # fmt: skip


def _refuse_lazy(dataset: Shards, target: AnyFormat, *, lazy: bool) -> None:
    """Raise UsageError for bytes that cannot be left elsewhere: only tables of items hold references."""
    if not lazy:
        return
    if not target.info.fixed_schema or dataset.view != "interleaved" or target.info.self_contained:
        raise UsageError(
            "only tables of items hold references to bytes elsewhere", found=f"{target.name}, as {dataset.view}",
            advice="Write Parquet, or the bytes too.",
        )  # fmt: skip


def _refuse_ledger(ledger: str, destination: str | os.PathLike[str], stores: Stores) -> None:
    """A ledger replaces no file, and does not lie in the destination."""
    if not ledger or is_inside(real_place(ledger, stores), real_place(os.fspath(destination), stores)):
        raise UsageError("the ledger needs a file of its own, outside the destination", found=repr(ledger))
    if is_there(ledger, stores):
        raise DestinationExists("the file for the ledger is there already", file=ledger)


@contextmanager
def _kept_ledger(
    ledger: str | os.PathLike[str] | None, destination: str | os.PathLike[str], stores: Stores, *, dry_run: bool
) -> Iterator[Sink | None]:
    """The file for the ledger, if there is to be one; who writes it closes it, and on failure nothing is left of it."""
    if ledger is not None:
        _refuse_ledger(os.fspath(ledger), destination, stores)
    if ledger is None or dry_run:
        yield None
        return
    store, own = resolve(os.fspath(ledger), stores)
    sink = store.put_stream(own)
    with aborting(sink):
        yield sink


def _written(schema: pa.Schema | None, hidden: Sequence[str], change: Function | None) -> pa.Schema | None:
    """The schema of what is written, where it differs from that of the rows read."""
    if schema is None:
        return None
    if change is not None:
        return changed_schema(schema, change)
    return pa.schema([f for f in schema if f.name not in hidden], metadata=schema.metadata) if hidden else None


def _begun_digest(target: AnyFormat, schema: pa.Schema | None, options: Mapping[str, Any]) -> DatasetDigest:
    """The digest by which what is written will be compared.

    Raises:
        UsageError: bytes become text, or a column less than it is, and would never be found to be what the source has.
    """
    back = None if schema is None else target.written(written_schema(schema), target.write_options(options))
    if back is not None and back.text_columns:
        raise UsageError("bytes that are written as text cannot be compared with those of the source",
                         column=back.text_columns[0],
                         advice="Convert without --verify, or to a format that holds bytes.")  # fmt: skip
    if back is not None and back.reduced_columns:
        raise UsageError("videos for datasets are less than the structs of the source, and cannot be compared",
                         column=back.reduced_columns[0],
                         advice="Read the source with media=bytes, or leave out --verify.")  # fmt: skip
    return DatasetDigest()


def _numbered(tasks: list[Task], dataset: Shards, how: Conversion) -> list[Task]:
    """The tasks, with the numbers of their first rows where rows without keys are to be members of tars.

    There each is named by its number in the source, whoever does its task: a row that is left out leaves a gap.
    """
    fmt = get_format(how.format)
    kind = ShardKind(fmt, how.view, fmt.write_options(how.options), Roles(dict(how.roles)), how.checksums)
    schema = how.written or how.schema
    # What a function makes of rows may be more than they were; then one process does it all, and counts on.
    if len(tasks) == 1 or how.change is not None or not kind.takes_members or schema is None or KEY in schema.names:
        return tasks
    ends = [0, *dataset.sample_ends().tolist()]
    return [replace(task, first_row=ends[task.first]) for task in tasks]


def _rehearse(run: Run, how: Conversion, place: str, shard_bytes: int, limit: int | None) -> None:
    """Write a dataset without rows, in memory: options or columns may be refused. Then read the rows."""
    with DatasetWriter(
        place, format=how.format, view=how.view, schema=how.written or how.schema, shard_size=shard_bytes,
        options=how.options, roles=how.roles, checksums=how.checksums, stores=Stores({place: MemoryStore()}),
    ):  # fmt: skip
        pass
    run.look(limit)


def _end(writer: DatasetWriter, ledger: Sink | None) -> None:
    """Finish what is out of sight, and bring out the ledger: nothing else appears if that cannot."""
    writer.finish()
    if ledger is not None:
        ledger.close()


def _compare(
    digest: DatasetDigest, writer: DatasetWriter, stores: Stores, roots: Sequence[str], limits: Limits, workers: int
) -> None:
    """Read back what was written, with its digest, before anybody sees it."""
    writer.add_digest(digest)
    folder = writer.finish()
    found = dataset_digest(folder, stores=stores, roots=roots, limits=limits, workers=workers)
    if found.ordered != digest.ordered or found.count != digest.count:
        raise DataError(
            "the destination does not hold what the source does", file=folder,
            expected=f"{digest.count} samples, digest {digest.ordered}",
            found=f"{found.count} samples, digest {found.ordered}",
            advice="Compare the two with 'lading diff' and report this as a bug.",
        )  # fmt: skip
