"""Write record batches into one Arrow file, or one stream in the form of Hugging Face's datasets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa

from lading._core.arrow import views
from lading._core.arrow.batches import with_columns
from lading._core.arrow.casts import cast, rebuilt, without_null_values
from lading._core.arrow.ipc import MAX_RATIO
from lading._core.arrow.text_checks import holds, refuse_bad_values
from lading._core.features.huggingface import huggingface_batch, huggingface_schema
from lading._core.formats.arrow.schema import stored_schema
from lading._core.formats.base import ShardFacts, ShardWriter
from lading._core.storage.base import NativePath, Sink, extents_of, store_errors, writes_behind
from lading._core.storage.extents import NO_ROWS
from lading._core.storage.sink_file import SinkFile
from lading._core.units import parse_bytes
from lading.errors import SchemaMismatch, Unrepresentable, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS

__all__ = ["ArrowWriter", "WriteOptions"]

_LAYOUTS = ("cache", "huggingface", "stream")
_COMPRESSIONS = ("none", "zstd", "lz4")
_MAX_BATCH_BYTES = 1 << 30
_MAGIC = b"ARROW1\0\0"
"""First bytes of a file; the schema message, with which a stream begins, follows."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How an Arrow shard is written.

    Attributes:
        layout: `cache`: Arrow files and the index of a stable-datasets cache. `huggingface`: Arrow streams, the indexes
            with which `datasets.load_from_disk` opens the folder, and columns in the types of datasets. `stream`: Arrow
            streams without an index.
        compression: Compression of buffers: `none`, `zstd` or `lz4`. datasets and stable-datasets read all of them.
        compression_level: Level of `zstd`. By default that of the codec.
        batch_rows: Rows of a record batch, at most.
        batch_bytes: Bytes of values in a record batch with more than one row, at most.
    """

    layout: str = "cache"
    compression: str = "none"
    compression_level: int | None = None
    batch_rows: int = 1000
    batch_bytes: int | str = 1 << 20

    def __post_init__(self) -> None:
        """Refuse unknown values. Raises UsageError."""
        for name, known in (("layout", _LAYOUTS), ("compression", _COMPRESSIONS)):
            if getattr(self, name) not in known:
                raise UsageError(f"no such {name}", expected=", ".join(known), found=repr(getattr(self, name)))
        if self.compression_level is not None and self.compression != "zstd":
            raise UsageError("only zstd has levels", found=f"compression_level={self.compression_level}")
        for name, value, most in (
            ("batch_rows", self.batch_rows, 1 << 31),
            ("batch_bytes", parse_bytes(self.batch_bytes), _MAX_BATCH_BYTES),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
                raise UsageError(f"{name} is out of range", expected=f"1 to {most}", found=value)


class ArrowWriter(ShardWriter):
    """Write an Arrow file or stream.

    Holds the rows of one record batch. The same rows make the same bytes, however they are batched.

    Args:
        sink: the output; a library writes it in place if it has a native path.
        schema: schema of the rows, checked by `check_schema`.
        options: write options.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriteOptions) -> None:
        self._sink, self._options, self._extents = sink, options, extents_of(sink)
        self._batch_bytes = parse_bytes(options.batch_bytes)
        if options.compression != "none":
            self._batch_bytes = min(self._batch_bytes, DEFAULT_LIMITS.arrow_batch_bytes // 2)
        self._rows_schema = self._schema = stored_schema(schema)
        if options.layout == "huggingface":
            with errors_at(file=sink.path):
                self._schema = huggingface_schema(self._rows_schema)
            self._rows_schema = _narrowed(self._rows_schema, self._schema)
        self._holds_times = any(holds(kind, pa.types.is_time) for kind in self._rows_schema.types)
        self._codec = _codec(options)
        self._handle: pa.NativeFile | None = None
        self._writer: pa.ipc.RecordBatchWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._viewed_bytes = 0
        self._payload_bytes = self._num_samples = self._said_bytes = self._flushed_rows = 0
        self._bare_rows = 0
        self._dictionaries: dict[int, pa.Array] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; complete record batches go to the sink.

        Raises:
            SchemaMismatch: columns or types are not those of the shard.
            Unrepresentable: a null where the schema allows none, a time of day that Arrow does not allow, or a value
                that datasets cannot hold.
        """
        fitted = self._fitted(batch)
        sizes = views.row_bytes(fitted)
        self._payload_bytes += int(sizes.sum())
        ends = np.cumsum(sizes)
        at = used = 0
        while at < batch.num_rows:
            stop = int(np.searchsorted(ends, used + self._batch_bytes - self._waiting_bytes, side="right"))
            stop = min(stop, at + self._options.batch_rows - self._waiting_rows)
            if stop <= at and not self._waiting:
                stop = at + 1
            if stop > at:
                self._waiting.append(fitted.slice(at, stop - at))
                self._viewed_bytes += views.shown_bytes(self._waiting[-1])
                self._waiting_rows += stop - at
                self._waiting_bytes += int(ends[stop - 1]) - used
                at, used = stop, int(ends[stop - 1])
            if at < batch.num_rows or self._waiting_rows == self._options.batch_rows:
                self._flush()
        self._num_samples += batch.num_rows

    def bytes_written(self) -> int:
        """Return the bytes in the file, plus the estimated size of the waiting rows; never less than before.

        Waiting rows are assumed to take as much as earlier rows did; the first ones as `ratio` says.
        """
        written = self._handle.tell() if self._handle is not None else 0
        done = self._payload_bytes - self._waiting_bytes
        rate = written / done if done else self.ratio or 1.0
        self._said_bytes = max(self._said_bytes, written + int(self._waiting_bytes * rate))
        return self._said_bytes

    def flush(self) -> bool:
        """End the record batch of the waiting rows."""
        waited, self._said_bytes = bool(self._waiting), 0
        self._flush()
        return waited

    def held_bytes(self) -> int:
        """Return the bytes that views among the waiting rows show."""
        return self._viewed_bytes

    def close(self) -> ShardFacts:
        """Write the waiting rows, and the end."""
        self._flush()
        writer, handle = self._opened()
        with self._failures():
            writer.close()
            size = handle.tell()
            handle.close()
        self._extents.mark(np.array([size]), np.array([NO_ROWS]))
        return ShardFacts(self._num_samples, size, self._payload_bytes)

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns in the order of the file, payload and text unchanged."""
        if sorted(batch.schema.names) != sorted(self._rows_schema.names):
            raise SchemaMismatch("columns are not those of the shard", file=self._sink.path,
                                 expected=self._rows_schema.names, found=batch.schema.names)  # fmt: skip
        if self._holds_times:
            with errors_at(first_row=self._num_samples, file=self._sink.path):
                refuse_bad_values(batch, pa.types.is_time)
        columns = []
        for field in self._rows_schema:
            with errors_at(first_row=self._num_samples, file=self._sink.path, column=field.name):
                columns.append(_fit(without_null_values(batch.column(field.name)), field))
        if not columns:
            return batch
        return pa.RecordBatch.from_arrays(columns, names=self._rows_schema.names)

    def _flush(self) -> None:
        if not self._waiting:
            return
        parts, rows = self._waiting, self._waiting_rows
        self._waiting, self._waiting_rows, self._waiting_bytes, self._viewed_bytes = [], 0, 0, 0
        with self._failures(), errors_at(file=self._sink.path):
            batch = parts[0] if not len(self._rows_schema) else self._joined(parts)
            if self._options.layout == "huggingface":
                with errors_at(first_row=self._flushed_rows):
                    batch = huggingface_batch(batch, self._schema) if len(self._schema) else batch
            assert batch.num_rows == rows or not len(self._schema)
            writer, handle = self._opened()
            begin = handle.tell()
            writer.write_batch(self._with_one_dictionary(batch))
            self._refuse_unread(batch, handle.tell() - begin)
            self._extents.mark_extents(handle.tell(), self._flushed_rows, self._flushed_rows + rows - 1)
        self._flushed_rows += rows

    def _refuse_unread(self, batch: pa.RecordBatch, written: int) -> None:
        """Raise Unrepresentable for a record batch that readers refuse by default."""
        size = batch.get_total_buffer_size()
        if self._codec is not None and size > DEFAULT_LIMITS.arrow_batch_bytes and size > MAX_RATIO * written:
            raise Unrepresentable(
                "a record batch that expands more than readers accept", row=self._flushed_rows,
                expected=f"at most {MAX_RATIO} times {written} bytes", found=f"{size} bytes",
                advice="Write it without compression.",
            )  # fmt: skip
        self._bare_rows += max(batch.num_rows - 8 * size, 0)
        if self._bare_rows > DEFAULT_LIMITS.bare_rows:
            raise Unrepresentable(
                "more rows without bytes than readers accept", row=self._flushed_rows,
                expected=f"at most {DEFAULT_LIMITS.bare_rows} in a file", found=self._bare_rows,
                advice="Add a column with values, or write another format.",
            )  # fmt: skip

    def _joined(self, parts: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return one record batch in the types of the rows."""
        columns = []
        for i, field in enumerate(self._rows_schema):
            columns.append(_one_piece([part.column(i) for part in parts], field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._rows_schema)

    def _with_one_dictionary(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with dictionaries that extend the earlier ones: a file cannot replace a dictionary."""
        places = count()

        def going_on(column: pa.Array, kind: pa.DataType) -> pa.Array:
            if not pa.types.is_dictionary(kind):
                return rebuilt(column, kind, going_on) if views.holds_dictionary(kind) else column
            place = next(places)
            known = self._dictionaries.get(place)
            if known is None:
                column = _with_distinct_values(column)
            elif not column.dictionary.equals(known):
                column = _joined_to(known, column)
            self._dictionaries[place] = column.dictionary
            return column

        found = {}
        for i, field in enumerate(batch.schema):
            if views.holds_dictionary(field.type) and self._options.layout != "huggingface":
                with errors_at(column=field.name), self._failures():
                    found[i] = going_on(batch.column(i), field.type)
        return with_columns(batch, found)

    def _opened(self) -> tuple[pa.ipc.RecordBatchWriter, pa.NativeFile]:
        if self._writer is None or self._handle is None:
            is_file = self._options.layout == "cache"
            if writes_behind(self._sink):
                self._sink.settle()
            head = self._schema.serialize().size + (len(_MAGIC) if is_file else 0)
            self._extents.mark(np.array([head]), np.array([NO_ROWS]))
            with self._failures():
                self._handle = _open_sink(self._sink)
                options = pa.ipc.IpcWriteOptions(compression=self._codec, use_threads=False,
                                                 emit_dictionary_deltas=is_file)  # fmt: skip
                make = pa.ipc.new_file if is_file else pa.ipc.new_stream
                self._writer = make(self._handle, self._schema, options=options)
        return self._writer, self._handle

    @contextmanager
    def _failures(self) -> Iterator[None]:
        with store_errors(self._sink.path):
            try:
                yield
            except pa.ArrowException as error:
                raise Unrepresentable(
                    f"cannot be written as Arrow: {str(error).splitlines()[0]}", file=self._sink.path
                ) from error


def _narrowed(rows: pa.Schema, written: pa.Schema) -> pa.Schema:
    """Return the schema of rows with 32-bit offsets for the bytes and text that are written so."""
    pairs = zip(rows, written, strict=True)
    fields = [one.with_type(other.type) if views.same_values(one.type, other.type) else one for one, other in pairs]
    return pa.schema(fields, metadata=rows.metadata)


def _codec(options: WriteOptions) -> pa.Codec | str | None:
    if options.compression == "none":
        return None
    if options.compression_level is None:
        return options.compression
    low, high = pa.Codec.minimum_compression_level("zstd"), pa.Codec.maximum_compression_level("zstd")
    if not low <= options.compression_level <= high:
        raise UsageError("no such level of zstd", expected=f"{low} to {high}", found=options.compression_level)
    return pa.Codec("zstd", options.compression_level)


def _fit(column: pa.Array, field: pa.Field) -> pa.Array:
    if not field.nullable and column.null_count:
        row = int(np.argmin(views.present(column)))
        raise Unrepresentable("null in a column that allows none", row=row)
    same = column.type == field.type or (views.is_bytes(column.type) and views.is_bytes(field.type))
    if not same and not pa.types.is_null(column.type) and not views.same_values(column.type, field.type):
        raise SchemaMismatch("another type than the shard's", expected=str(field.type), found=str(column.type))
    return column if same else cast(column, field.type)


def _one_piece(pieces: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return values in the type of their column, in buffers that end with the last value.

    pyarrow would write bytes after the last value of a slice as padding. Views are copied, once; of one piece of bytes
    or text only the offsets are.
    """
    if len({piece.type for piece in pieces}) > 1:
        pieces = [cast(piece, kind) for piece in pieces]
    if len(pieces) > 1:
        return cast(pa.concat_arrays(pieces), kind)
    [piece] = pieces
    if piece.type != kind:
        return cast(piece, kind)
    if views.is_bytes(kind) or views.is_text(kind):
        return views.cut_out(piece)
    return pa.concat_arrays([piece, piece.slice(0, 0)])


def _joined_to(values: pa.Array, column: pa.Array) -> pa.Array:
    """Return a dictionary column whose dictionary extends these values."""
    kind = column.type
    empty = pa.DictionaryArray.from_arrays(pa.array([], kind.index_type), values, ordered=kind.ordered)
    # Not `unify_dictionaries`: it looks up indices under nulls, which may be out of range.
    return pa.concat_arrays([empty, column])


def _with_distinct_values(column: pa.Array) -> pa.Array:
    """Return a dictionary column whose dictionary can be extended: each value in it once, and at least one.

    pyarrow 26 does not extend an empty dictionary. The dictionary of a column of nulls may be empty.
    """
    kind = column.type.value_type
    if len(column.dictionary):
        return _joined_to(column.dictionary.slice(0, 0), column)
    if views.is_text(kind) or views.is_bytes(kind):
        values = pa.array([""]).cast(kind)
    else:
        values = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(kind.bit_width // 8 + 1))])
    return pa.DictionaryArray.from_arrays(column.indices, values, ordered=column.type.ordered)


def _open_sink(sink: Sink) -> pa.NativeFile:
    if isinstance(sink, NativePath):
        return pa.OSFile(sink.native_path, "wb")
    return pa.PythonFile(SinkFile(sink), mode="w")
