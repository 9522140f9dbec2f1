"""A dataset of lading's as a dataset of Ray Data: each shard is a read task, or several if it is large.

A read task reads as a task of a conversion does (`convert.converter`): the source is looked at once, and all blocks
have one schema.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from inspect import signature
from itertools import pairwise
from typing import Any, Final, Unpack

import numpy as np
import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow.align import align_table
from lading._core.arrow.rebatch import split_samples
from lading._core.arrow.views import without_views
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.shards.spans import may_be_cut, refuse_same_ids, spans_of
from lading._core.dataset.source.source import LISTING_SCHEMA, Listing
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.sequence import columns_to_read
from lading._core.dataset.transform.part_shards import planned_shards
from lading._core.features.row_layout import row_layout
from lading._core.formats.base import Span
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.jobs.convert.converter import Converter
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.schemas import take_files_in
from lading._core.jobs.convert.settle import settled
from lading._core.jobs.convert.tasks import Piece as Part
from lading._core.jobs.convert.tasks import is_large, piece_task, shard_sizes
from lading._core.jobs.engine.hosts import refuse_other_version, refuse_unseen
from lading._core.jobs.engine.reading import refuse_out_of_reach
from lading._core.jobs.engine.threads import using_threads
from lading._core.manifest.values import own_version
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.columns import WrittenColumns
from lading._core.pipeline.cutting import ONE_SHARD
from lading._core.pipeline.fetch import fetched
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, UsageError, missing_extra
from lading.options import OpeningOptions, WriteOptions

__all__ = ["ray_data", "to_ray"]

_FORMAT: Final = "arrow"
"""Blocks have the types that this format stores."""
_USUAL_BLOCK: Final = 128 << 20
_PART_OF_BLOCK: Final = 4
"""Payload of a table, as a part of Ray's largest block: Ray cuts a block of 1.5 times that size anywhere."""
_MOST_SMALL_TASKS: Final = 200
_TASK_BYTES: Final = 32 << 20
"""More than so many read tasks have at least this size."""
_CUT_BYTES: Final = 128 << 20
"""Bytes of a read task that reads a part of a large shard."""
_COUNTING: Final = "__bsp_stub"
"""Ray's name of the column of a block that has rows and no column."""
_ADVICE: Final = {
    "Limit": "Use limit() of the Ray dataset.",
    "Shuffle": "Use random_shuffle() of the Ray dataset.",
    "Sort": "Use sort() of the Ray dataset.",
    "Sample": "Use random_sample() of the Ray dataset.",
}


def ray_data() -> Any:
    """Return the module `ray.data`. Raises MissingExtra."""
    try:
        import_module("ray")
        return import_module("ray.data")
    except ImportError as error:
        raise missing_extra(error, "this needs Ray Data", "ray", "Run: pip install 'lading[ray]'.") from error


@public("lading.ray.to_ray")
def to_ray(
    source: Queryable,
    *,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **opening: Unpack[OpeningOptions],
) -> Any:
    """Return a `ray.data.Dataset` of a source, or of a dataset with its steps.

    Example:
        rows = lading.ray.to_ray(lading.open("s3://bucket/mint/*.tar").where("json.lang == 'en'").select("jpg", "json"))
        rows.map_batches(caption, batch_format="pyarrow")

    Headers and footers of all shards are read at once, for the schema. Rows are read by Ray's tasks: one a shard, one
    for several small shards, or several for a large one. Steps run in these tasks, so columns and rows that steps leave
    out are not read. `select_columns` of the Ray dataset does the same.

    Columns have the types that lading writes to Arrow files: text and JSON are strings, `cls` is int64; images, audio
    and arrays are bytes. Features are in the metadata of the fields. Rows of documents are their items, and all items
    of a document are in one block. The order is that of the source if Ray keeps it:
    `ray.data.DataContext.get_current().execution_options.preserve_order = True`.

    Peak memory of a task: 250 MB and two of Ray's largest blocks, which have 128 MB each by default.

    Args:
        source: as for `lading.open`, or a dataset.
        override_num_blocks: read tasks, at most. By default a shard is a task. Of more than 200 shards, neighbours of
            less than 32 MB are one task. A shard of more than 192 MB is cut into tasks of 128 MB where its format has
            units that are read alone, if it has more than a part in 64 of all bytes.
        concurrency: read tasks that run at once, at most.
        ray_remote_args: resources of each read task, such as `{"num_cpus": 2}`.
        opening: the other arguments of `lading.open`.

    Raises:
        MissingExtra: Ray Data is not installed.
        UsageError: a step counts or orders all samples, such as `limit` and `shuffle`, or a function cannot be pickled.
        DataError: raised by the tasks: the data are bad, or a document is larger than half a block.
    """
    query = Query.of(source, **opening)
    _refuse_counting(query.steps)
    if override_num_blocks is not None and override_num_blocks < 1:
        raise UsageError("there is no read task", expected="1 or more", found=f"{override_num_blocks=}")
    data = ray_data()
    block = data.DataContext.get_current().target_max_block_size or _USUAL_BLOCK
    job = _job_of(query, block)
    with job.query.open_shards() as shards:
        job = job.reading(options=take_files_in(shards, job.read.options))
        paths = shards.listing.table["path"].to_pylist()
        refuse_out_of_reach([each.format for each in shards.sources()], paths, shards.stores)
        spec = settled(job, shards)
        tasks = _pieces(shards, job, override_num_blocks)
    if not tasks:
        return data.from_arrow((_columns(spec).schema or pa.schema([])).empty_table())
    kind = type("LadingDatasource", (_Source, data.Datasource), {})
    return data.read_datasource(
        kind(spec, tasks, block // 2), override_num_blocks=len(tasks), concurrency=concurrency,
        ray_remote_args=dict(ray_remote_args or {}),
    )  # fmt: skip


def _job_of(query: Query, block: int) -> Job:
    """Return the reading as a conversion into Arrow files, without its destination."""
    policy = query.read.on_materialize_error or "error"
    write = WriteOptions(format=_FORMAT, executor="ray", on_error=policy, max_batch_bytes=block // _PART_OF_BLOCK)
    return Job.of(query, write).with_absolute_paths()


def _refuse_counting(steps: Sequence[Step]) -> None:
    for step in steps:
        if step.over_numbers:
            more = _ADVICE.get(type(step).__name__, "")
            raise UsageError(
                "tasks of Ray read shards apart, and this step needs all samples", found=repr(step)[:200],
                advice=f"{more} Or write the dataset first, and give lading.ray.to_ray what was written.".strip(),
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Piece:
    """The shards of a read task.

    Attributes:
        shards: rows of the listing.
        spans: what is read of each shard, None for all of a shard; empty if all shards are read to their ends.
        num_rows: their rows behind the steps; None if it is not known.
        size_bytes: of what is read.
    """

    shards: list[dict[str, Any]]
    spans: tuple[Span | None, ...]
    num_rows: int | None
    size_bytes: int


def _pieces(shards: Shards, job: Job, asked: int | None) -> list[_Piece]:
    """Cut the source into read tasks, of about equal bytes: as many as are asked for, at most."""
    table = shards.listing.table
    sizes = list(shard_sizes(shards.listing, job.stores, skip=job.read.on_bad_shard == "skip"))
    parts, counts = _parts(shards, sizes), table.column("num_samples").to_pylist()
    if not parts:
        return []
    is_known = not job.chooses and not shards.has_items and job.write.on_error == "error"
    is_known = is_known and job.read.on_bad_shard == "error" and None not in counts
    ends = np.cumsum([part.size_bytes for part in parts])
    total = int(ends[-1])
    most = asked or max(_MOST_SMALL_TASKS, -(-total // _TASK_BYTES))
    stops = np.arange(1, len(parts) + 1)
    if most < len(parts):  # each ends where its share of the bytes does
        stops = np.unique(np.searchsorted(ends, np.arange(1, most + 1) * (total / most)) + 1)
        stops = np.unique(np.append(stops[stops < len(parts)], len(parts)))
    pieces = []
    for first, stop in pairwise([0, *stops.tolist()]):
        task = piece_task(0, parts[first:stop], ONE_SHARD)
        begin = task.spans[0] if task.spans else None
        if begin is not None and begin.first_row:
            refuse_same_ids(shards, task.first, begin.first_sample)
        spans = task.spans or (None,) * (task.stop - task.first)
        read = [
            count if span is None else span.num_rows
            for count, span in zip(counts[task.first : task.stop], spans, strict=True)
        ]
        rows = table.slice(task.first, task.stop - task.first).to_pylist()
        pieces.append(_Piece(rows, task.spans, sum(read) if is_known else None, task.source_bytes))
    return pieces


def _parts(shards: Shards, sizes: Sequence[int]) -> list[Part]:
    """Return the source in parts that are read alone: shards, and spans of large ones."""
    may, parts = may_be_cut(shards) and not shards.files_beside, list[Part]()
    for number, size in enumerate(sizes):
        is_cut = may and is_large(size, sizes, _CUT_BYTES)
        found = spans_of(shards, number, _CUT_BYTES) if is_cut else ()
        parts += [Part(number, part.size_bytes, part) for part in found] or [Part(number, size)]
    return parts


class _Source:
    """What `ray.data.Datasource` asks of a source; mixed into that class, which only is there with Ray.

    Args:
        spec: how rows are read.
        pieces: the shards of each read task.
        most: bytes of a document, at most.
        names: columns that are read; None for all.
    """

    def __init__(self, spec: JobPlan, pieces: Sequence[_Piece], most: int, names: Sequence[str] | None = None) -> None:
        super().__init__()
        self._spec, self._pieces, self._most, self._names = spec, pieces, most, names
        self._sent: Any = None

    def get_name(self) -> str:
        """Return the name of the read tasks."""
        return "Lading"

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of the shards, which may be compressed."""
        return sum(piece.size_bytes for piece in self._pieces)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: object = None
    ) -> list[Any]:
        """Return the read tasks, always the same: their number is that of the blocks that Ray is asked for."""
        ray, data, block = (import_module(name) for name in ("ray", "ray.data", "ray.data.block"))
        del parallelism, data_context
        if self._sent is None:  # once: joined tables and schemas may be large
            spec = _narrowed(self._spec, self._names)
            self._sent = ray.put(spec.encode()), _schema_given(spec, self._names)
        reference, schema = self._sent
        names, most, sender = self._names, self._most, (own_version(), platform.node())

        def task(piece: _Piece) -> Any:
            def read() -> Iterator[pa.Table]:
                refuse_other_version(*sender)
                for shard in piece.shards:
                    refuse_unseen("source", shard["path"], sender[1])
                return _tables(ray.get(reference), piece, names, most)

            facts = block.BlockMetadata(
                num_rows=piece.num_rows, size_bytes=piece.size_bytes, exec_stats=None,
                input_files=[shard["path"] for shard in piece.shards],
            )  # fmt: skip
            return data.ReadTask(read, facts, schema=schema, per_task_row_limit=per_task_row_limit)

        return [task(piece) for piece in self._pieces]

    # Columns that Ray's planner asks for, as Ray 2.60 has them; older versions choose columns of the blocks.

    def supports_projection_pushdown(self) -> bool:
        """Return whether only some columns can be read."""
        asked = signature(super().apply_projection).parameters  # type: ignore[misc] # of the class that this is mixed into
        return list(asked) == ["projection_map"] and _columns(self._spec).schema is not None

    def get_projection_map(self) -> dict[str, str] | None:
        """Return the columns that are read; None for all."""
        return None if self._names is None else {name: name for name in self._names}

    def apply_projection(self, projection_map: Mapping[str, str] | None) -> _Source:
        """Return the source with these columns alone, of those it has."""
        names = self._names
        if projection_map is not None:
            names = [name for name in projection_map if names is None or name in names]
        return type(self)(self._spec, self._pieces, self._most, names)


def _narrowed(spec: JobPlan, names: Sequence[str] | None) -> JobPlan:
    """Return the reading of only these columns behind the steps, where the schema is known."""
    schemas = spec.schemas
    if names is None or schemas.schema is None or schemas.schema_written is None:
        return spec
    kept = {*names, *spec.row_layout.placing} or {_smallest(schemas.schema_written)}
    written = pa.schema([f for f in schemas.schema_written if f.name in kept], metadata=schemas.schema_written.metadata)
    needed = columns_to_read(spec.steps, [*kept], spec.view, schemas.schema)
    if needed is None:
        return replace(spec, schemas=replace(schemas, written=written))
    schema = pa.schema([f for f in schemas.schema if f.name in needed], metadata=schemas.schema.metadata)
    return replace(spec, schemas=replace(schemas, schema=schema, written=written, whole=False))


def _smallest(schema: pa.Schema) -> str:
    """Return the column of the smallest values, for rows that are only counted."""
    widths = [each.type.bit_width if pa.types.is_primitive(each.type) else 1 << 16 for each in schema]
    return str(schema.names[int(np.argmin(widths))])


def _columns(spec: JobPlan) -> WrittenColumns:
    """Return the columns of the rows, as Arrow files have them."""
    fmt = get_format(_FORMAT)
    return WrittenColumns(ShardKind(fmt, spec.view, fmt.write_options({}), Roles()), spec.schemas.schema_written)


def _schema_given(spec: JobPlan, names: Sequence[str] | None) -> pa.Schema | None:
    schema = _columns(spec).schema
    return None if schema is None else _chosen(schema.empty_table(), names).schema


def _chosen(table: pa.Table, names: Sequence[str] | None) -> pa.Table:
    """Return the table with these columns; None for all. Without columns it has Ray's own, which counts the rows."""
    if names is None or names:
        return table if names is None else table.select(names)
    return pa.table({_COUNTING: pa.nulls(table.num_rows)})


def _tables(text: str, piece: _Piece, names: Sequence[str] | None, most: int) -> Iterator[pa.Table]:
    """Read the shards of a task; give their rows behind the steps as tables of whole documents."""
    spec = JobPlan.decode(text)
    listing = Listing(pa.Table.from_pylist(piece.shards, LISTING_SCHEMA), index_file=spec.index_file)
    fetcher = Fetcher(spec.stores, mmap=False, limits=spec.limits)
    columns, is_empty = _columns(spec), True
    with (
        using_threads(1),  # Ray counts a core for each task
        planned_shards(listing, spec.source_format, spec.read, fetcher=fetcher, stores=spec.stores) as dataset,
    ):
        for batch in Converter(dataset, spec).ready(range(len(listing)), piece.spans):
            with batch.naming_files():
                rows = _plain(batch, columns, fetcher)
            for part in _bounded(rows, spec.view, most):
                is_empty = False
                yield _chosen(pa.Table.from_batches([part]), names)
            fetcher.release()
    if is_empty and columns.schema is not None:
        yield _chosen(columns.schema.empty_table(), names)


def _plain(batch: Batch, columns: WrittenColumns, fetcher: Fetcher) -> pa.RecordBatch:
    """Return rows with their payload, in types that all of Arrow knows."""
    target = columns.target(batch.schema)
    if target is not None:
        batch = batch.with_rows(columns.align(batch.rows, target))
    read = fetched(batch, fetcher, in_files=())
    rows = without_views(columns.in_natural_types(read.rows))
    assert columns.schema is not None, "given, or of the first batch"
    return align_table(rows, columns.schema).replace_schema_metadata(columns.schema.metadata)


def _bounded(rows: pa.RecordBatch, view: str, most: int) -> Iterator[pa.RecordBatch]:
    """Give rows in batches of whole samples that Ray does not cut, if it cuts what is larger.

    Raises:
        DataError: a document is larger.
    """
    layout = row_layout(view)
    if not layout.has_items or rows.nbytes <= most:
        yield from [rows] if rows.num_rows else []
        return
    for part in split_samples(rows, layout.firsts(rows), rows.num_rows, most // 2):
        if part.nbytes > most:
            raise DataError(
                "a document is larger than half a block of Ray's, and Ray would cut it",
                sample=part.column("sample_id")[0].as_py(), expected=f"at most {most:,} bytes",
                found=f"{part.nbytes:,}", advice="Set ray.data.DataContext.get_current().target_max_block_size to more "
                "than twice as much, before lading.ray.to_ray.",
            )  # fmt: skip
        yield part
