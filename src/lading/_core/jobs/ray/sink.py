"""A dataset of Ray Data, written as a dataset of lading's: each write task makes shards of its own.

An attempt at a write task has a folder of its own, as an attempt at a task of a conversion has. The driver takes the
files of the attempts whose answers Ray gives it, and publishes them in one step. Others go with the hidden folder.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arguments import public
from lading._core.arrow.align import align_table
from lading._core.content.nested import empty_batch
from lading._core.dataset.writing.single_file import is_file_name
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.features.items import INTERLEAVED_SCHEMA, RESERVED, VIEWS
from lading._core.features.row_layout import ITEMS, row_layout
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.jobs.convert.summary import ConvertSummary
from lading._core.jobs.engine.hosts import refuse_other_version, refuse_unseen
from lading._core.jobs.engine.messages import decode_part, encode_part
from lading._core.jobs.engine.reading import refuse_out_of_reach
from lading._core.jobs.engine.threads import using_threads
from lading._core.jobs.ray.source import ray_data
from lading._core.manifest.commit import check_destination, find_destination
from lading._core.manifest.values import FOLDER, own_version
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.columns import written_schema
from lading._core.pipeline.cutting import Cut
from lading._core.pipeline.finished import FinishedPart, FinishedShards
from lading._core.pipeline.open_shard import BuildFolder
from lading._core.pipeline.pack import KeyNumbers
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.pipeline.write import PartWriter, write_rows
from lading._core.storage.background import Background
from lading._core.storage.fetch import Fetcher
from lading._core.storage.roots import absolute_path
from lading._core.storage.stores import Stores, resolve
from lading.errors import DataError, LadingError, SchemaMismatch, Unrepresentable, UsageError
from lading.options import parse_shard_size

__all__ = ["write_ray"]

_TAKEN_SHARE: Final = 0.8
"""Bytes of the blocks that a write task takes together, as a share of a shard: a block more may come."""
_SLACK: Final = 0.3
"""Share by which the shards of a write task may differ from the size that is asked for, so that they are equal."""
_TENSORS: Final = frozenset(("ray.data.arrow_tensor", "ray.data.arrow_tensor_v2"))
_RAGGED: Final = "ray.data.arrow_variable_shaped_tensor"
"""Ray's columns of arrays that all have one shape."""


@public("lading.ray.write_ray")
def write_ray(  # noqa: PLR0913 - one argument a decision of the user; most by keyword
    dataset: Any,
    destination: str | os.PathLike[str],
    format: str = "webdataset",  # noqa: A002 - the word users know
    *,
    view: str | None = None,
    schema: pa.Schema | None = None,
    shard_size: int | str = "256MB",
    overwrite: bool = False,
    options: Mapping[str, Any] | None = None,
    checksums: str = "samples",
    storage_options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
) -> ConvertSummary:
    """Write a `ray.data.Dataset` as a dataset in any format, which appears in one step at the end.

    Example:
        rows = lading.ray.to_ray("s3://bucket/mint/*.tar").map_batches(caption, batch_format="pyarrow")
        lading.ray.write_ray(rows, "s3://bucket/captioned", format="parquet")

    A write task takes blocks of about `shard_size` together, and writes them as shards of its own. So shards end where
    Ray's blocks do. Their order is that of the write tasks. It is that of the rows if Ray keeps it:
    `ray.data.DataContext.get_current().execution_options.preserve_order = True`.

    A write task that Ray repeats adds nothing twice. If a task fails, nothing appears. The peak memory of a task is
    250 MB and twice its blocks, which Ray gives it all at once.

    Args:
        dataset: the rows. Arrays that all have one shape become lists of fixed size.
        destination: folder of the new dataset, a path or URL that all nodes see.
        format: format to write.
        view: `samples` (a row is a sample) or `interleaved` (rows are items of documents, and all items of a document
            are in one block). By default the columns of the first block decide.
        schema: columns of all rows, such as `ds.schema`: absent columns are nulls, values are cast. By default those of
            the first block; other blocks must have columns of these kinds. Other libraries, and batches of numpy and
            pandas, lose the features of columns (JSON, images): a schema gives them again.
        shard_size: size of a shard on disk, and of the blocks that a write task takes together.
        overwrite: replace the dataset at the destination.
        options: options of the format.
        checksums: as for `lading.writer`.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        concurrency: write tasks that run at once, at most.
        ray_remote_args: resources of each write task, such as `{"num_cpus": 2}`.

    Returns:
        What was written, as `lading.convert` returns it; the source format is `ray`, and no source shards are counted.

    Raises:
        MissingExtra: Ray Data is not installed.
        DestinationExists: the destination is not empty, and `overwrite` is not set.
        SchemaMismatch: blocks have different columns.
        DataError: the format cannot hold the rows, or a document is in several blocks.
        UsageError: the destination is one file, or the format cannot be written by several processes.
    """
    began = time.perf_counter()
    place, stores = absolute_path(os.fspath(destination)), Stores.of(None, storage_options) or Stores()
    target, store_and_path = get_format(format), find_destination(place, stores)
    if is_file_name(place):
        raise UsageError("write tasks of Ray make files of their own, and the destination is one file", file=place,
                         advice=f"Name a folder: {place}/ is one, by the slash at its end.")  # fmt: skip
    if target.info.files_name_each_other:
        raise UsageError("files of this format name each other, so one process writes them", found=format,
                         advice="Write another format, and convert it.")  # fmt: skip
    if view is not None and view not in VIEWS:
        raise UsageError("no such view", expected=" or ".join(VIEWS), found=repr(view))
    refuse_out_of_reach([target.name], [place], stores)
    check_destination(*store_and_path, overwrite=overwrite)
    target.write_options(options or {})
    job = _WriteJob(
        target.name, view or "samples", dict(options or {}), checksums, parse_shard_size(shard_size),
        stores.for_workers, None if schema is None else written_schema(schema), is_given=schema is not None,
        sender=(own_version(), platform.node()),
    )  # fmt: skip
    kind = type("LadingDatasink", (_Sink, ray_data().Datasink), {})
    sink: Any = kind(job, place, stores, overwrite=overwrite, finds_view=view is None)
    try:
        dataset.write_datasink(sink, concurrency=concurrency, ray_remote_args=dict(ray_remote_args or {}))
    except BaseException as error:
        sink.abort()
        own = _own_error(error)
        if own is None:
            raise
        raise own from None
    summary: ConvertSummary = sink.summary
    return replace(summary, seconds=time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _WriteJob:
    """What a write task is sent besides its blocks.

    Attributes:
        format: of the shards.
        view: what a row is.
        options: of the format.
        checksums: which are kept.
        shard_bytes: size of a shard.
        stores: options of stores; secrets may be among them.
        schema: columns of all rows; None if they are unknown.
        is_given: whether the caller said the schema, so that values are cast to it.
        tasks: the folder of all attempts.
        sender: version of lading, and name of the machine that sent this.
    """

    format: str
    view: str
    options: Mapping[str, Any] = field(repr=False)
    checksums: str
    shard_bytes: int
    stores: Stores = field(repr=False)
    schema: pa.Schema | None
    is_given: bool
    sender: tuple[str | None, str]
    tasks: str = ""

    @property
    def kind(self) -> ShardKind:
        """The properties of the shards."""
        fmt = get_format(self.format)
        return ShardKind(fmt, self.view, fmt.write_options(self.options), Roles(), self.checksums)


@dataclass(frozen=True, slots=True)
class _Written:
    """The answer of a write task.

    Attributes:
        task: its number.
        folder: of this attempt.
        part: its shards, as `encode_part` gives them.
        num_rows: of its shards.
        begins: id and position of each item that begins a block, unless the block goes on with the document before it.
        ends: id and position of each item that ends a block, unless the next block goes on with its document.
    """

    task: int
    folder: str
    part: dict[str, Any]
    num_rows: int
    begins: Sequence[tuple[str, int]] = ()
    ends: Sequence[tuple[str, int]] = ()


class _Sink:
    """What `ray.data.Datasink` asks of a sink; mixed into that class, which only is there with Ray.

    The driver begins, commits and drops. Write tasks get a copy with nothing but the job.
    """

    def __init__(self, job: _WriteJob, destination: str, stores: Stores, *, overwrite: bool, finds_view: bool) -> None:
        self._job, self._destination, self._stores = job, destination, stores
        self._overwrite, self._finds_view = overwrite, finds_view
        self._writer: DatasetWriter | None = None
        self.summary = ConvertSummary("ray", job.format, job.view, 0, 0, 0, 0, 0, 0, 0.0)

    def __getstate__(self) -> dict[str, Any]:
        return {"_job": self._job}

    def get_name(self) -> str:
        """Return the name of the write tasks."""
        return "Lading"

    @property
    def min_bytes_per_write(self) -> int:
        """Return the bytes of the blocks that a write task takes together, at least."""
        return int(_TAKEN_SHARE * self._job.shard_bytes)

    def on_write_start(self, schema: Any = None) -> None:
        """Begin to build the dataset. The columns of the first block decide what is not given."""
        found = schema if isinstance(schema, pa.Schema) else None
        job = self._job if self._job.schema is not None else replace(self._job, schema=_without_tensors(found))
        if self._finds_view:
            job = replace(job, view="interleaved" if _holds_items(job.schema or schema) else "samples")
        self._writer = DatasetWriter(
            self._destination, format=job.format, view=job.view, shard_size=job.shard_bytes, overwrite=self._overwrite,
            options=job.options, checksums=job.checksums, stores=self._stores,
        )  # fmt: skip
        self._job = replace(job, tasks=self._writer.tasks)

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Written:
        """Write blocks as shards, in a folder of this attempt."""
        version, sender = self._job.sender
        refuse_other_version(version, sender)
        refuse_unseen("destination", self._job.tasks, sender)
        accessor = import_module("ray.data.block").BlockAccessor
        tables = [accessor.for_block(block).to_arrow() for block in blocks]
        with using_threads(1):  # Ray counts a core for each task
            return _write(self._job, tables, ctx.task_idx)

    def on_write_complete(self, write_result: Any) -> None:
        """Take the shards in the order of the write tasks, and publish them."""
        if self._writer is None:  # there was no block
            self.on_write_start()
        assert self._writer is not None, "begun"
        done = sorted((each for each in write_result.write_returns if each is not None), key=lambda each: each.task)
        parts = [decode_part(each.part) for each in done]
        _refuse_cut_documents(done)
        _refuse_other_columns(parts, self._destination)
        for each, part in zip(done, parts, strict=True):
            self._writer.adopt(part, each.folder)
        if not any(len(part.shards) for part in parts) and self._job.schema is not None:
            self._writer.write_batch(empty_batch(self._job.schema))
        made = self._writer.close()
        self.summary = replace(
            self.summary, view=self._job.view, shards=made.num_shards, samples=made.num_samples,
            rows=sum(each.num_rows for each in done), size_bytes=made.size_bytes, payload_bytes=made.payload_bytes,
            counts=made.counts,
        )  # fmt: skip

    def on_write_failed(self, error: Exception) -> None:
        """Drop all that was written."""
        del error
        self.abort()

    def abort(self) -> None:
        """Drop all that was written, unless it is published."""
        if self._writer is not None:
            self._writer.abort()


def _write(job: _WriteJob, blocks: Sequence[pa.Table], task: int) -> _Written:
    """Write the rows of a task's blocks as finished shards, in a folder of this attempt."""
    store, folder = resolve(f"{job.tasks}/task-{task:06d}-{secrets.token_hex(8)}", job.stores)
    kind, closing, fetcher = job.kind, Background("lading-close"), Fetcher(job.stores)
    total, done = sum(block.nbytes for block in blocks), 0
    shards = FinishedShards(store, folder, FOLDER)
    writer = PartWriter(
        BuildFolder(store, folder), kind, shards, closing=closing, name="{:06d}".format,
        cut=Cut(job.shard_bytes, total, _SLACK), schema=job.schema if job.is_given else None,
        keys=KeyNumbers(prefix=f"{task:06d}-"),
    )  # fmt: skip
    if job.schema is not None and not job.is_given:
        writer.columns.schema = writer.columns.written(job.schema)
    with ExitStack() as held, ExitStack() as failed:
        held.callback(fetcher.close)
        held.callback(closing.stop)
        failed.callback(shards.abort)
        failed.callback(writer.abort)
        layout = row_layout(job.view)
        for table in _whole_documents(blocks) if layout.has_items else blocks:
            for found in _arrow_rows(table, job.view):
                rows = _aligned(found, job.schema) if job.is_given and job.schema is not None else found
                done += rows.nbytes
                batch = Batch(rows, job.view).knowing(source_share=done / total if total else None)
                write_rows(writer, fetcher, batch, behind=True, duplicate_ids="apart")
        writer.end_shard()
        closing.wait()
        columns = pa.schema(list(writer.columns.seen.values()))
        part = FinishedPart(shards.close(), writer.columns.schema, columns, shards.counts, kind.roles.of)
        failed.pop_all()
    begins, ends = _open_ends(blocks) if layout.has_items else ((), ())
    return _Written(task, folder, encode_part(part), writer.num_rows, begins, ends)


def _whole_documents(blocks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Give the rows of blocks in tables of whole documents: the last one of a block may continue in the next one."""
    left: pa.Table | None = None
    for block in blocks:
        if left is not None:
            try:
                table = pa.concat_tables([left, block], promote_options="permissive")
            except pa.ArrowException as error:
                raise SchemaMismatch(
                    "blocks of one dataset differ in columns", found=str(error)[:200],
                    advice="Cast the columns, or give lading.ray.write_ray a schema.",
                ) from error  # fmt: skip
        else:
            table = block
        if table.num_rows:
            [ids] = table.select(["sample_id"]).combine_chunks().to_batches()
            last = int(ITEMS.firsts(ids)[-1])
            if last:
                yield table.slice(0, last)
            left = table.slice(last)
    if left is not None:
        yield left


def _arrow_rows(table: pa.Table, view: str) -> Iterator[pa.RecordBatch]:
    """Give the rows of a block without types of Ray's; the items of documents in one batch."""
    schema = _without_tensors(table.schema)
    assert schema is not None, "given"
    columns = [
        column if column.type == each.type else pa.chunked_array([_lists(chunk) for chunk in column.chunks], each.type)
        for column, each in zip(table.columns, schema, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=schema)
    yield from row_layout(view).batches(table)


def _aligned(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the columns, types and features of a schema; absent columns are nulls.

    Raises:
        SchemaMismatch: another column, or a value that the type of its column does not hold.
    """
    extra = next((name for name in rows.schema.names if name not in schema.names), None)
    if extra is not None:
        raise SchemaMismatch("rows hold a column that the schema lacks", column=extra,
                             expected=", ".join(schema.names),
                             advice="Drop the column, or give lading.ray.write_ray a schema with it.")  # fmt: skip
    return align_table(rows, schema)


def _without_tensors(schema: pa.Schema | None) -> pa.Schema | None:
    """Return the columns with lists in the place of Ray's arrays: of fixed size for arrays of one shape.

    Raises:
        Unrepresentable: a column of another type of Ray's.
    """
    if schema is None:
        return None
    fields = []
    for each in schema:
        name = getattr(each.type, "extension_name", "")
        if name in _TENSORS:
            kind = each.type.storage_type.value_type
            for size in reversed(each.type.shape):
                kind = pa.list_(kind, size)
            fields.append(each.with_type(kind))
        elif name == _RAGGED and each.type.ndim == 1:
            fields.append(each.with_type(each.type.storage_type.field("data").type))
        elif name.startswith("ray."):
            raise Unrepresentable(
                "a type of Ray's that no format holds", column=each.name, expected="types of Arrow",
                found=str(each.type), advice="Make bytes, texts, lists or arrays of one shape of the values.",
            )  # fmt: skip
        else:
            fields.append(each)
    return pa.schema(fields, metadata=schema.metadata)


def _lists(tensors: pa.Array) -> pa.Array:
    """Return arrays of one shape as lists of fixed size, and arrays of one axis as lists."""
    if tensors.type.extension_name == _RAGGED:
        return pc.struct_field(tensors.storage, "data")
    values = tensors.storage.flatten()
    for size in reversed(tensors.type.shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def _holds_items(schema: Any) -> bool:
    """Whether rows are items of documents: all reserved columns are there, with types of their kinds.

    The types of pandas are not looked at: texts are objects there.
    """
    if schema is None or not {*RESERVED} <= {*schema.names}:
        return False
    return not isinstance(schema, pa.Schema) or all(
        pa.types.is_integer(schema.field(each.name).type) == pa.types.is_integer(each.type)
        for each in INTERLEAVED_SCHEMA
    )


def _open_ends(blocks: Iterable[pa.Table]) -> tuple[Sequence[tuple[str, int]], Sequence[tuple[str, int]]]:
    """Return the items that begin blocks, and those that end blocks: id and position (`_Written`)."""
    begins, ends = list[tuple[str, int]](), list[tuple[str, int]]()
    for block in blocks:
        if not block.num_rows:
            continue
        first, last = (
            (str(block["sample_id"][at].as_py()), int(block["position"][at].as_py())) for at in (0, block.num_rows - 1)
        )
        if ends and ends[-1][0] == first[0] and ends[-1][1] < first[1]:
            ends[-1] = last
        else:
            begins.append(first)
            ends.append(last)
    return begins, ends


def _refuse_cut_documents(done: Sequence[_Written]) -> None:
    """Raise DataError for a document that ends a block, and goes on in a block that was not written next to it."""
    lowest = dict[str, int]()
    for name, position in (end for each in done for end in each.ends):
        lowest[name] = min(position, lowest.get(name, position))
    for name, position in (begin for each in done for begin in each.begins):
        if position > lowest.get(name, position):
            raise DataError(
                "a document was cut: its items are in several blocks of Ray's", sample=name,
                expected="all items of a document in one block",
                advice="Give batch_size=None to map_batches, and do not repartition or limit rows of documents.",
            )  # fmt: skip


def _refuse_other_columns(parts: Sequence[FinishedPart], destination: str) -> None:
    """Raise SchemaMismatch where write tasks wrote other columns, which they do if Ray told them none."""
    known = [part.schema for part in parts if part.schema is not None and len(part.shards)]
    for other in known[1:]:
        if not other.equals(known[0]):
            raise SchemaMismatch("blocks of one dataset differ in columns", file=destination,
                                 expected=str(known[0])[:500], found=str(other)[:500],
                                 advice="Give lading.ray.write_ray a schema.")  # fmt: skip


def _own_error(error: BaseException) -> LadingError | None:
    """Return lading's error behind one of Ray's; None if there is none."""
    seen: BaseException | None = error
    while seen is not None:
        cause = getattr(seen, "cause", None)
        if isinstance(cause, LadingError):
            return cause
        if type(seen).__module__ == "lading.errors":
            assert isinstance(seen, LadingError), "of that module"
            return seen
        seen = cause if isinstance(cause, BaseException) else seen.__cause__
    return None
