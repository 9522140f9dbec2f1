"""Write record batches to one Parquet file, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lading._core.arrow import views
from lading._core.arrow.byte_ranges import bitmap
from lading._core.arrow.casts import cast, without_null_values
from lading._core.arrow.older import numpy_type
from lading._core.features.huggingface import huggingface_batch
from lading._core.features.natural import is_media
from lading._core.formats.base import ShardFacts, ShardWriter
from lading._core.formats.parquet.columns import (
    ColumnPlan,
    check_columns,
    expands,
    plan_columns,
    shrinking,
    uncompressed,
    values_at_once,
)
from lading._core.formats.parquet.held_footer import HeldFooter
from lading._core.formats.parquet.options import WriteOptions
from lading._core.formats.parquet.schema import file_type, metadata_of
from lading._core.formats.text_lines import without_dictionary
from lading._core.storage.base import NativePath, Sink, extents_of, store_errors, writes_behind
from lading._core.storage.extents import NO_ROWS
from lading._core.storage.sink_file import SinkFile
from lading._core.units import parse_bytes
from lading.errors import SchemaMismatch, Unrepresentable, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS

__all__ = ["ParquetWriter"]

_MAX_ROW_GROUP_BYTES = 1 << 30
"""A page is at most 2 GiB, and never more than its row group."""
_ANY_ROWS = 1 << 62
_MAX_VALUE_BYTES = 1 << 31
_LEAST_PAGE_BYTES = 16
"""pyarrow 26 counts an empty dictionary as 6 bytes. If that fills a page, a list's first page has no rows, and the file
has fewer rows than its footer says."""
_MAX_HALF_PAGE_BYTES = 16 << 20
"""Half of the largest page of several values: readers refuse pages that expand by much from 72 MB on."""
_SAMPLE_ROWS = 4096
_AT_ONCE_BYTES = 2 << 20
"""Bytes of nested columns that are written at once: pyarrow allocates 4 bytes for each item of an array, of any type.
"""
_VIEW_BYTES = 16
_MEDIA = pa.struct([("bytes", pa.binary_view()), ("path", pa.string())])
_MAGIC = b"PAR1"
_FOOTER_BYTES_PER_CHUNK = 130


class ParquetWriter(ShardWriter):
    """Write a Parquet file.

    Holds the rows of one row group, as the batches that came. If the sink writes in the background, also those of the
    previous row group during its writing: views keep their maps until they are written.

    Args:
        sink: the output; a library writes it in place if it has a native path.
        schema: schema of the rows, checked by `check_schema`.
        options: write options.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriteOptions) -> None:
        self._sink, self._options, self._extents = sink, options, extents_of(sink)
        self._row_group_bytes, self._page_bytes = _sizes(options)
        self._row_group_rows = _most_rows(options)
        self._refused_bytes = DEFAULT_LIMITS.page_bytes - min(self._page_bytes, 2 * _MAX_HALF_PAGE_BYTES)
        self._given_schema, self._metadata = schema, metadata_of(schema)
        self._schema = pa.schema([field.with_type(_written_type(field.type)) for field in schema])
        check_columns(options, self._schema)
        self._in_seconds = {field.name for field in self._schema if _holds_seconds(field.type)}
        self._trial_rate: float | None = None
        self._handle: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._plans: list[ColumnPlan] = []
        self._values_at_once = 1
        self._earlier: pq.FileMetaData | None = None
        self._held: HeldFooter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._leaving_bytes = 0
        self._viewed_bytes = self._leaving_viewed_bytes = 0
        """Bytes that views show of the waiting rows, and of those of the last row group."""
        self._payload_bytes = self._written_bytes = 0
        self._num_samples = self._row_groups = self._said_bytes = self._marked_rows = 0

    def __del__(self) -> None:
        # After an abort, pyarrow must not write the footer.
        writer = getattr(self, "_writer", None)
        if writer is not None:
            writer.is_open = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; complete row groups go to the sink.

        Raises:
            SchemaMismatch: columns or types are not those of the shard.
            Unrepresentable: a null where the schema allows none, or a value of 2 GiB.
        """
        fitted = self._fitted(batch)
        if self._trial_rate is None and self.ratio is None and batch.num_rows:
            self._trial_rate = shrinking(plan_columns(fitted.slice(0, _SAMPLE_ROWS), self._options))
        sizes = views.row_bytes(fitted)
        self._num_samples += batch.num_rows
        self._payload_bytes += int(sizes.sum())
        ends = np.cumsum(sizes)
        at = used = 0
        while at < batch.num_rows:
            stop = int(np.searchsorted(ends, used + self._row_group_bytes - self._waiting_bytes, side="right"))
            if stop == at and not self._waiting:
                stop = at + 1
            stop = min(stop, at + self._row_group_rows - self._waiting_rows)
            if stop > at:
                self._waiting.append(fitted.slice(at, stop - at))
                self._waiting_rows += stop - at
                self._viewed_bytes += views.shown_bytes(self._waiting[-1])
                self._waiting_bytes += int(ends[stop - 1]) - used
                at, used = stop, int(ends[stop - 1])
            full = self._waiting_bytes >= self._row_group_bytes or self._waiting_rows >= self._row_group_rows
            if at < batch.num_rows or full:
                self._flush()

    def bytes_written(self) -> int:
        """Return the bytes in the file, the estimated size of the waiting rows, and the footer; never less than before.

        Waiting rows, and those of the last row group, which may be in the background, are assumed to shrink as earlier
        rows did; the first ones as `ratio` says, or as a trial of them did.
        """
        written, waiting = self._written_bytes, self._waiting_bytes + self._leaving_bytes
        done = self._payload_bytes - waiting
        rate = written / done if done else self.ratio or self._trial_rate or 1.0
        footer = sum(len(key) + len(value) for key, value in self._metadata.items())
        footer += (self._row_groups + bool(self._waiting)) * len(self._schema) * _FOOTER_BYTES_PER_CHUNK
        self._said_bytes = max(self._said_bytes, written + int(waiting * min(rate, 1.0)) + footer)
        return self._said_bytes

    def flush(self) -> bool:
        """End the row group of the waiting rows, and wait until it is in the file."""
        waited = bool(self._waiting_bytes or self._leaving_bytes)
        self._flush()
        if writes_behind(self._sink):
            self._sink.settle()
        if self._handle is not None:
            self._written_bytes = self._handle.tell()
        self._leaving_bytes = self._leaving_viewed_bytes = self._said_bytes = 0
        return waited

    def held_bytes(self) -> int:
        """Return the bytes that views show of the waiting rows, or of the last row group."""
        return self._viewed_bytes + self._leaving_viewed_bytes

    def close(self) -> ShardFacts:
        """Write the waiting rows, and the footer."""
        self._flush()
        writer, handle = self._opened()
        if writes_behind(self._sink):
            self._sink.settle()
        with self._failures():
            self._end(writer)
            if self._held is not None:
                handle.write(self._held.footer_of(self._earlier))
            size = handle.tell()
            handle.close()
        self._extents.mark(np.array([size]), np.array([NO_ROWS]))
        return ShardFacts(self._num_samples, size, self._payload_bytes)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns in the order and the types of the file."""
        if sorted(batch.schema.names) != sorted(self._schema.names) or (batch.num_rows and not len(self._schema)):
            raise SchemaMismatch(
                "columns are not those of the shard",
                file=self._sink.path,
                expected=self._schema.names or "at least one column",
                found=batch.schema.names,
            )
        if self._options.huggingface:
            with errors_at(first_row=self._num_samples, file=self._sink.path):
                batch = huggingface_batch(batch, self._given_schema)
        columns = []
        for field in self._schema:
            with errors_at(first_row=self._num_samples, file=self._sink.path, column=field.name):
                if field.name in self._in_seconds:
                    _refuse_long_times(batch.column(field.name))
                columns.append(_fit(without_null_values(batch.column(field.name)), field))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _flush(self) -> None:
        if self._waiting:
            self._opened()
            rows = pa.Table.from_batches(self._waiting, self._schema)
            if self._waiting_bytes >= self._refused_bytes:
                self._store_expanding(rows)
            writer, handle = self._opened()
            step = max(rows.num_rows * _AT_ONCE_BYTES // max(self._waiting_bytes, 1), 1)
            work = partial(self._write_row_group, writer, rows, step)
            if writes_behind(self._sink):
                self._sink.settle()
                self._written_bytes = handle.tell()
                self._sink.later(work)
            else:
                self._written_bytes = handle.tell()
                work()
            self._row_groups += 1
            self._leaving_bytes, self._leaving_viewed_bytes = self._waiting_bytes, self._viewed_bytes
            self._waiting, self._waiting_rows, self._waiting_bytes, self._viewed_bytes = [], 0, 0, 0

    def _store_expanding(self, rows: pa.Table) -> None:
        """Store columns uncompressed from these rows on if readers would refuse a page of them as a bomb."""
        found = {plan.path for plan in self._plans if expands(rows.column(plan.column), plan, self._refused_bytes)}
        if not found:
            return
        if writes_behind(self._sink):
            self._sink.settle()
        writer, handle = self._opened()
        with self._failures():
            self._end(writer)
            self._plans = [uncompressed(plan) if plan.path in found else plan for plan in self._plans]
            self._held = HeldFooter(handle)
            self._writer = self._made(self._held.file)
            self._held.begin()

    def _end(self, writer: pq.ParquetWriter) -> None:
        """Close a writer of row groups, and add them to those of earlier writers."""
        writer.add_key_value_metadata(self._metadata)
        if self._held is not None:
            self._held.end()
        writer.close()
        if self._earlier is None:
            self._earlier = writer.writer.metadata
        else:
            self._earlier.append_row_groups(writer.writer.metadata)

    def _write_row_group(self, writer: pq.ParquetWriter, rows: pa.Table, step: int) -> None:
        if any(pa.types.is_nested(getattr(kind, "storage_type", kind)) for kind in rows.schema.types):
            parts = pa.Table.from_batches(rows.to_batches(step), self._schema)
            media = [_apart(whole, self._values_at_once) if whole.type == _MEDIA else part
                     for whole, part in zip(rows.columns, parts.columns, strict=True)]  # fmt: skip
            rows = pa.Table.from_arrays(media, schema=self._schema)
        with self._failures():
            writer.write_table(rows, row_group_size=rows.num_rows)
        assert self._handle is not None, "opened for the first row group"
        self._extents.mark_extents(self._handle.tell(), self._marked_rows, self._marked_rows + rows.num_rows - 1)
        self._marked_rows += rows.num_rows

    def _opened(self) -> tuple[pq.ParquetWriter, pa.NativeFile]:
        """Return the writer, opened when the first rows have shown how to write them."""
        if self._writer is None or self._handle is None:
            first = pa.Table.from_batches(self._waiting, self._schema).slice(0, _SAMPLE_ROWS)
            columns = [pa.concat_arrays(c.chunks) if c.num_chunks else pa.nulls(0, c.type) for c in first]
            self._plans = plan_columns(pa.RecordBatch.from_arrays(columns, schema=self._schema), self._options)
            self._extents.mark(np.array([len(_MAGIC)]), np.array([NO_ROWS]))
            with self._failures():
                self._handle = _open_sink(self._sink)
                self._writer = self._made(self._handle)
        return self._writer, self._handle

    def _made(self, handle: pa.NativeFile) -> pq.ParquetWriter:
        """Return a writer by the plans, of whatever is written to the handle next."""
        plans = self._plans
        half_page = min(max(self._page_bytes // 2, _LEAST_PAGE_BYTES), _MAX_HALF_PAGE_BYTES)
        self._values_at_once = values_at_once(plans, half_page)
        return pq.ParquetWriter(
            handle,
            self._schema,
            store_schema=False,
            compression={plan.path: plan.codec for plan in plans},
            compression_level={plan.path: plan.level for plan in plans if plan.level is not None} or None,
            use_dictionary=[plan.path for plan in plans if plan.dictionary],
            write_statistics=[plan.path for plan in plans if plan.statistics],
            write_page_index=True,
            # pyarrow checks the size of a page after each of these many values: pages get between half of the
            # requested size and all of it.
            data_page_size=half_page,
            write_batch_size=self._values_at_once,
        )

    @contextmanager
    def _failures(self) -> Iterator[None]:
        with store_errors(self._sink.path):
            try:
                yield
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError) as error:
                raise Unrepresentable(
                    f"cannot be written as Parquet: {str(error).splitlines()[0]}", file=self._sink.path
                ) from error


def _sizes(options: WriteOptions) -> tuple[int, int]:
    group, page = parse_bytes(options.row_group_bytes), parse_bytes(options.page_bytes)
    for name, size in (("row_group_bytes", group), ("page_bytes", page)):
        if not 0 < size <= _MAX_ROW_GROUP_BYTES:
            raise UsageError(f"{name} is out of range", expected="1 byte to 1 GiB", found=size)
    return group, page


def _most_rows(options: WriteOptions) -> int:
    if options.row_group_rows is None:
        return _ANY_ROWS
    if options.row_group_rows < 1:
        raise UsageError("row_group_rows is out of range", expected="1 row or more", found=options.row_group_rows)
    return options.row_group_rows


def _written_type(kind: pa.DataType) -> pa.DataType:
    """Return the written type: payload is written as views, because large_binary becomes views without a copy.

    So are the bytes of media.
    """
    if is_media(kind) and [(child.name, child.nullable) for child in kind] == [("bytes", True), ("path", True)]:
        return _MEDIA
    return pa.binary_view() if views.is_bytes(kind) else file_type(kind)


def _fit(column: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and column.null_count:
        row = int(np.argmin(views.present(column)))
        raise Unrepresentable("null in a column that allows none", row=row)
    if column.type == field.type:
        return column
    if field.type == _MEDIA and not pa.types.is_null(column.type):
        return _as_media(column)
    if not pa.types.is_null(column.type) and not views.same_values(file_type(column.type), field.type):
        raise SchemaMismatch("another type than the shard's", expected=str(field.type), found=str(column.type))
    if not pa.types.is_large_binary(column.type) or not pa.types.is_binary_view(field.type):
        return cast(column, field.type)
    return _as_views(column)


def _as_media(column: pa.Array) -> pa.Array:
    """Return media, or their bytes, as structs of views and paths."""
    if not is_media(column.type) and not views.is_bytes(column.type):
        raise SchemaMismatch("another type than the shard's", expected=str(_MEDIA), found=str(column.type))
    bare = not is_media(column.type)
    path = pa.nulls(len(column), pa.string()) if bare else column.field("path").cast(pa.string())
    data = column if bare else column.field("bytes")
    data = data if pa.types.is_binary_view(data.type) else _as_views(data)
    return pa.StructArray.from_arrays([data, path], fields=list(_MEDIA), mask=column.is_null())


def _as_views(column: pa.Array) -> pa.Array:
    sizes = views.byte_lengths(column)
    if int(sizes.max(initial=0)) >= _MAX_VALUE_BYTES:
        row = int(sizes.argmax())
        raise Unrepresentable(
            "a value too large for Parquet", row=row, expected="less than 2 GiB", found=int(sizes[row])
        )
    return views.share(column)


def _apart(column: pa.ChunkedArray, most: int) -> pa.ChunkedArray:
    """Return media in arrays of at most so many values, none a slice of another; the bytes are shared.

    pyarrow 26 does not slice views in structs that may be null, which it does for more values than it takes at once.
    """
    parts = [_unsliced(chunk.slice(first, most)) for chunk in column.chunks for first in range(0, len(chunk), most)]
    return pa.chunked_array(parts, _MEDIA)


def _unsliced(media: pa.Array) -> pa.Array:
    data = media.field("bytes")
    _, shown, *buffers = data.buffers()
    shown = shown.slice(_VIEW_BYTES * data.offset, _VIEW_BYTES * len(data))
    valid = bitmap(views.present(data)) if data.null_count else None
    data = pa.Array.from_buffers(data.type, len(data), [valid, shown, *buffers])
    path = pa.concat_arrays([media.field("path")])
    return pa.StructArray.from_arrays([data, path], fields=list(_MEDIA), mask=media.is_null())


def _counts_seconds(kind: pa.DataType) -> bool:
    """Return whether a type counts seconds, which Parquet lacks: they become milliseconds."""
    return bool(kind == pa.time32("s") or (pa.types.is_timestamp(kind) and kind.unit == "s"))


def _holds_seconds(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _holds_seconds(kind.value_type)
    return _counts_seconds(kind) or any(_holds_seconds(kind.field(i).type) for i in range(kind.num_fields))


def _refuse_long_times(column: pa.Array) -> None:
    """Raise Unrepresentable, with the row, for seconds outside milliseconds; pyarrow would wrap some of them."""
    column = without_dictionary(column)
    if pa.types.is_nested(column.type):
        is_struct = pa.types.is_struct(column.type)
        for child in views.flattened(column) if is_struct else [views.listed_items(column)[0]]:
            try:
                _refuse_long_times(child)
            except Unrepresentable as error:
                error.row = None  # that of the child
                raise
    elif _counts_seconds(column.type):
        width = pa.int32() if column.type == pa.time32("s") else pa.int64()
        most = np.iinfo(numpy_type(width)).max // 1000
        seconds = column.view(width).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        wrong = np.flatnonzero((seconds > most) | (seconds < -most))
        if len(wrong):
            row = int(wrong[0])
            raise Unrepresentable("a time too long for Parquet, which counts milliseconds", row=row,
                                  expected=f"at most {most} seconds", found=int(seconds[row]))  # fmt: skip


def _open_sink(sink: Sink) -> pa.NativeFile:
    if isinstance(sink, NativePath):
        return pa.OSFile(sink.native_path, "wb")
    return pa.PythonFile(SinkFile(sink), mode="w")
