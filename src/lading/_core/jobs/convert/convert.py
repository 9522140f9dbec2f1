"""Convert: any shards to shards of another format, in one process or several."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arguments import STEPS, public
from lading._core.dataset.query import HoldsQuery, Query, Queryable
from lading._core.dataset.steps.filter_steps import Filter, ImageBounds, Where
from lading._core.dataset.steps.functions import Function, OnFunctionError
from lading._core.dataset.steps.map_step import Map
from lading._core.dataset.steps.order_steps import Limit
from lading._core.formats.registry import format_of_name
from lading._core.jobs.convert.convert_one import convert_one
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.splits import (
    convert_splits,
    jobs_of_splits,
    refuse_parts,
)
from lading._core.jobs.convert.summary import ConvertSummary
from lading._core.jobs.convert.to_standard_output import to_standard_output
from lading._core.jobs.engine.progress import OnProgress, Progress
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.storage.base import Store
from lading._core.storage.roots import absolute_path
from lading._core.storage.stores import Stores
from lading._core.storage.temporary import temporary_files_in
from lading.errors import SeveralSplits, UsageError
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import (
    Checksums,
    Drop,
    InterleavedOptions,
    OnBadShard,
    OnError,
    SchemaPolicy,
    WriteOptions,
    refuse_two_names,
)

__all__ = ["ConvertSummary", "Progress", "convert"]


@public("lading.convert", {**STEPS, "select": "Write columns=[…]."})
def convert(  # noqa: PLR0913 - one argument a decision of the user; all but three by keyword
    source: Queryable | Mapping[str, HoldsQuery],
    destination: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - the word users know
    *,
    source_format: str | None = None,
    split: str | None = None,
    config: str | None = None,
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
    temp_dir: str | os.PathLike[str] | None = None,
    limit: int | None = None,
    schema: pa.Schema | None = None,
    schema_overrides: Mapping[str, pa.DataType] | pa.Schema | None = None,
    schema_policy: SchemaPolicy = "union",
    overwrite: bool = False,
    verify: bool = False,
    resume: bool = False,
    force: bool = False,
    rank: int | str | None = None,
    world_size: int | None = None,
    max_failures: int = 0,
    dry_run: bool = False,
    workers: int = 1,
    executor: str | Executor | None = None,
    address: str | None = None,
    threads: int | None = None,
    source_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    interleaved: InterleavedOptions | None = None,
    fields: Sequence[str] | None = None,
    regroup: bool = False,
    lists: Sequence[str] = (),
    roots: Sequence[str | os.PathLike[str]] = (),
    hive_partitioning: bool = True,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
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
            a manifest next to it; a slash at the end makes it a folder. `-` is standard output.
        format: format to write. By default the ending of the destination names it.
        source_format: format of the source, if it is not detected.
        split: split to convert, as for `lading.open`.
        config: config to convert, as for `lading.open`.
        view: `samples` or `interleaved`. By default the data decide.
        columns: columns to keep, in this order, behind keys and reserved columns. None keeps all.
        where: condition on rows (`_core.content.conditions`), or an Arrow expression. Other rows are dropped.
        filter: function that gets each sample, a dict of decoded values, and returns whether it is kept, as
            `Dataset.filter`.
        map: function that gets each remaining sample, and returns a dict of new and changed fields, as `Dataset.map`.
            The first samples decide the columns.
        filter_batches: as `filter`, for a function over Arrow batches (`Dataset.filter_batches`).
        map_batches: as `map`, for a function over Arrow batches (`Dataset.map_batches`), behind `map`.
        min_aspect_ratio: drop images narrower than this ratio (width / height).
        max_aspect_ratio: drop images wider than this ratio.
        min_side: drop images whose shorter side has fewer pixels.
        max_side: drop images whose longer side has more pixels.
        drop: where a filter rejects an item of a document, drop the item (`row`) or the document (`sample`).
        on_error: for a row with unavailable payload, or with an earlier error: `error`, `warn` (write the row without
            payload), `drop_row`, `drop_sample`. For `error`, a dataset that was opened with a policy keeps that. With
            `drop_sample`, samples are dropped too for which `filter` or `map` raises, and those whose values `where`
            cannot read.
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
        temp_dir: local folder for what functions made, for new orders and other temporary files. `resume` finds what
            functions made there, also if the destination is remote or one file. By default functions' results lie next
            to a local folder, and all else in `TMPDIR`.
        limit: keep at most this many samples, the first ones that pass the filters; in one process. The count precedes
            `map` and `on_error`.
        schema: columns to write, as for `lading.open`.
        schema_overrides: types of some columns, as for `lading.open`; all other columns stay as they are.
        schema_policy: for shards with different columns: `union`, `strict` or `intersect`.
        overwrite: replace the dataset at the destination.
        verify: read the destination back and compare content digests.
        resume: go on where the same job died or failed. Tasks that were finished are not done again, and the output is
            the same bytes. If the job has ended, nothing is done (`ConvertSummary.done_before`). Without an unfinished
            job, the job begins. So a script may always say so.
        force: with `resume`, go on also where functions hold values of which nothing shows whether they are the same,
            such as a model. Without it, that is an error.
        rank: do only the tasks of this rank, from 0: every `world_size`-th task that nobody has done. `auto` takes both
            from the environment (`RANK`, `SLURM_ARRAY_TASK_ID`, `SLURM_PROCID`, `JOB_COMPLETION_INDEX`). The
            destination appears by `lading.finish`, when all ranks are done.
        world_size: number of ranks.
        max_failures: tasks that may fail by bad data or by a function, after a second try, while the others go on.
            Then the job fails, with all of them in one error, and keeps the finished tasks. 0 ends the job with the
            first error.
        dry_run: read and plan in one process, but write nothing. Options and columns that the format refuses are
            errors. Values that the format refuses are not found.
        workers: processes that share the work, at most. Further processes start if they save time.
        executor: what does the tasks: `processes` (the default), `threads`, `ray`, `dask`, or any
            `concurrent.futures.Executor`. The output is the same bytes.
            `workers` is then the number of tasks at once; 1 leaves that number to the executor. Relative paths are
            made absolute for all but `processes` and `threads`.
        address: address of the cluster for `ray`, by default that of `RAY_ADDRESS` or of this machine; for `dask`, by
            default that of the client of this process or of `DASK_SCHEDULER_ADDRESS`.
        threads: threads of each process. By default the workers share the cores. With two threads, a process reads and
            writes at once.
        source_options: options of the source's format.
        options: options of the format written.
        interleaved: names of fields and policies for interleaved data.
        fields: passthrough columns of documents to keep, as for `lading.open`.
        regroup: join the rows or members of a sample wherever they are in the shard, as for `lading.open`.
        lists: columns of lists whose items are members of tars, as for `lading.open`.
        roots: folders that references may point into, besides the folders of the source.
        hive_partitioning: take folders such as `year=2023` for columns of the rows in them.
        stores: which store serves which URL.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        on_bad_shard: for a shard that is damaged, missing or unreadable: `error`, or `skip`. `skip` leaves the whole
            shard out, with a warning. The summary and the ledger list such shards.
        limits: limits on what files of the source may ask for, as for `lading.open`.
        on_progress: called after every batch of any process.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.

    Raises:
        DestinationExists: the destination is not empty.
        UsageError: the destination is inside the source, or worker processes cannot reach the data; with `resume`, the
            unfinished job is another one; the source is being written (`UnfinishedDataset`); `temp_dir` is no folder.
        DataError: the data are bad. With `verify`, the destination differs from the source.
        StoreError: a store failed, or the workers of one task died four times. The error names the task's shards.
    """
    held = Query.held_by(source)
    opened = held.read.on_materialize_error if held is not None and on_error == "error" else None
    asked = {**locals(), "on_error": on_materialize_error or opened or on_error}
    asked["format"] = format or format_of_name(os.fspath(destination))
    refuse_two_names(on_error=None if on_error == "error" else on_error, on_materialize_error=on_materialize_error)
    bounds = ImageBounds(min_side, max_side, min_aspect_ratio, max_aspect_ratio, drop)
    of_functions: OnFunctionError = "drop_sample" if on_error == "drop_sample" else "error"
    asked_steps = (
        None if where is None else Where(where, drop, of_functions),
        None if bounds == ImageBounds(drop=drop) else bounds,
        None if filter is None else Filter(filter, on_error=of_functions),
        None if filter_batches is None else Filter(filter_batches, drop, batched=True),
        None if limit is None else Limit(limit),
        None if map is None else Map(map, on_error=of_functions),
        None if map_batches is None else Map(map_batches, batched=True),
    )
    steps = [step for step in asked_steps if step is not None]
    if drop != "row" and where is filter is filter_batches is None and bounds == ImageBounds(drop=drop):
        raise UsageError("drop belongs to a condition, and there is none", found=f"drop={drop!r}",
                         advice="Add where= or bounds of images, or leave drop out.")  # fmt: skip
    write = WriteOptions(**{name: asked[name] for name in WriteOptions.__dataclass_fields__})
    opening: dict[str, Any] = {
        "format": source_format, "split": split, "config": config, "view": view, "options": source_options,
        "interleaved": interleaved, "fields": fields, "regroup": regroup, "lists": lists, "roots": roots,
        "schema": schema, "schema_overrides": schema_overrides, "hive_partitioning": hive_partitioning,
        "stores": stores, "on_bad_shard": on_bad_shard, "limits": limits,
    }  # fmt: skip
    piped: Mapping[str, Store] = {}
    if destination == "-":
        destination, write, piped = to_standard_output(write)
    destination = absolute_path(os.fspath(destination)) if write.sharing.leaves_process else destination
    with (
        shown_progress("converting", on_progress, progress=progress) as report,
        temporary_files_in(write.temp_dir),
    ):

        def job_of(one: Queryable) -> Job:
            job = Job.of(Query.of(one, **opening), write, columns, steps, report)
            job = job.with_storage_options(storage_options)
            return job.reading(stores=job.stores.and_for(piped)) if piped else job

        if isinstance(source, Mapping):
            refuse_parts(source, write, steps, destination)
            return convert_splits({name: job_of(part) for name, part in source.items()}, destination)
        job = job_of(source)
        try:
            return convert_one(job, destination)
        except SeveralSplits as error:
            if held is not None:
                raise
            return convert_splits(jobs_of_splits(job, error, destination), destination)
