"""Write a shard of MDS. See `_core.formats.mds.format`.

A shard's header holds the offsets of its samples, so nothing can be written before all are known. Values are held until
then; values in files only as byte ranges. The same rows and options give the bytes that the peer writes.

Source: mosaicml-streaming 0.13.0, base/format/mds/writer.py and base/format/base/writer.py.
"""

from __future__ import annotations

import json
import posixpath
import shlex
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.batches import with_columns
from lading._core.arrow.byte_ranges import ByteRanges, ChunkedRanges, in_memory
from lading._core.arrow.casts import decoded
from lading._core.arrow.json_columns import is_nested_json
from lading._core.arrow.views import byte_lengths, is_bytes, is_list_of_bytes, is_text, join, places, present
from lading._core.features.casts import json_texts
from lading._core.features.huggingface import media_advice
from lading._core.features.mds_arrays import array_encoding, is_npy
from lading._core.features.mds_values import is_encoding, parse_array
from lading._core.features.natural import extension_of
from lading._core.features.types import Bytes, Encoded, Feature, Image, Json, Text, feature_of, with_feature
from lading._core.formats.base import Ranges, ShardFacts, ShardWriter
from lading._core.formats.mds.files import MAX_BYTES, OutFile, WriteOptions, columns_as, named
from lading._core.formats.mds.index import NUMBERS, MDSColumn
from lading._core.formats.mds.nulls import NULLS, Marks, Values, marked_columns, refuse_gaps
from lading._core.formats.mds.recode import (
    OF_LISTS,
    Recoding,
    columns_option,
    is_list_of_numbers,
    is_number,
    is_recoded,
    rounds,
    stored_type,
)
from lading._core.formats.mds.samples import TEXTS
from lading._core.storage.base import Sink
from lading._core.storage.extents import NO_ROWS
from lading.errors import LimitExceeded, Unrepresentable, UsageError, errors_at

__all__ = ["MdsWriter", "asked_fields", "columns_of", "rounded_columns"]

_SMALL_BYTES = 2048
"""Values with a smaller average size are joined: 0.07 µs each instead of 0.5, and no 32 bytes for each place."""
_JOINED_BYTES = 2 << 20
_TRIAL_BYTES = 4 << 20
"""Bytes of small samples that are joined at once."""


def columns_of(schema: pa.Schema, options: WriteOptions) -> list[MDSColumn]:
    """Return the columns of a shard of these rows, sorted by name, including null masks.

    Raises:
        Unrepresentable: a type without an MDS encoding; the name of another column's mask.
        UsageError: an encoding, or nulls, for a missing column.
        DataError: an encoding that MDS does not have.
    """
    marks = [pa.field(NULLS + name, pa.uint8()) for name in marked_columns(schema, options.nulls)]
    found = columns_as(pa.schema([*schema, *marks]), options, _encoding)
    for field, column in found:
        _check_type(column, stored_type(field.type))
    return [column for _, column in found]


def asked_fields(encodings: Mapping[str, str]) -> pa.Schema | None:
    """Return the columns of these encodings, as samples are encoded for them; None if there are none.

    Values for `bytes` are encoded as those of columns without an encoding: arrays as `.npy` files.

    Raises:
        UsageError: an encoding that MDS does not have, or that of pickles.
    """
    fields = [_asked_field(name, encoding) for name, encoding in encodings.items() if encoding != "bytes"]
    return pa.schema(fields) if fields else None


def rounded_columns(schema: pa.Schema, encodings: Mapping[str, str]) -> list[str]:
    """Return the columns of floats that encodings hold in fewer bits."""
    return [
        name for name, encoding in encodings.items() if name in schema.names and rounds(schema.field(name), encoding)
    ]


def _asked_field(name: str, encoding: str) -> pa.Field:
    if encoding in NUMBERS:
        return pa.field(name, pa.from_numpy_dtype(NUMBERS[encoding]))
    feature = _ASKED.get(encoding) or Encoded(encoding)
    if feature.mds_encoding is not None and (not is_encoding(encoding) or encoding == "pkl"):
        raise UsageError("no encoding that lading writes", column=name, found=repr(encoding),
                         expected=", ".join([*_ASKED, *NUMBERS, "ndarray[:dtype[:shape]]", "pil", "list[jpeg]",
                                             "jpeg_array", "str_int"]))  # fmt: skip
    return with_feature(pa.field(name, pa.large_string() if encoding in TEXTS else pa.large_binary()), feature)


_ASKED: dict[str, Feature] = {
    "str": Text(), "json": Json(), "bytes": Bytes(), "jpeg": Image("JPEG"), "png": Image("PNG"),
}  # fmt: skip


def _encoding(column: pa.Field) -> str:
    """Return MDS's encoding of a column."""
    kind, feature = stored_type(column.type), feature_of(column)
    if feature.mds_encoding is not None:
        return feature.mds_encoding
    if feature.array is not None and not (is_nested_json(kind) and not is_list_of_numbers(kind)):
        encoding = array_encoding(feature)
        if encoding is not None and _axes_in_order(column.type):
            return encoding
        if not is_npy(feature) and not is_nested_json(kind):
            raise Unrepresentable("MDS cannot hold arrays of this kind", column=column.name, expected="int8 to uint64 "
                                  "or float16 to float64, a shape without zeros, axes in their order",
                                  found="{} of shape {}".format(*feature.array) if encoding is None else kind,
                                  advice=f"Write their bytes with {columns_option(column.name, 'bytes')}."
                                  if is_bytes(kind) else None)  # fmt: skip
    found = _plain_encoding(column, kind, feature)
    if found is not None:
        return found
    raise Unrepresentable("MDS cannot hold the type of this column", column=column.name, found=kind,
                          expected="numbers, bools, text, bytes, images, arrays of one shape, lists, structs",
                          advice=media_advice(column.name, kind))  # fmt: skip


def _plain_encoding(column: pa.Field, kind: pa.DataType, feature: Feature) -> str | None:
    """Return MDS's encoding of a column by its stored type; None for other types."""
    if is_list_of_bytes(kind):
        return "list[png]" if extension_of(column) == "png" else "list[jpeg]"
    if is_bytes(kind) and feature.medium == "image":
        return "png" if extension_of(column) == "png" else "jpeg"
    if is_bytes(kind) or is_text(kind):
        plain = "bytes" if is_bytes(kind) else "str"
        return "json" if feature.is_json else "str" if feature.is_text else plain
    if kind == pa.int64():
        return "int"
    if pa.types.is_boolean(kind) or is_nested_json(kind):
        return "json"
    return next((name for name, dtype in NUMBERS.items() if pa.from_numpy_dtype(dtype) == kind), None)


def _axes_in_order(kind: pa.DataType) -> bool:
    axes = list(getattr(kind, "permutation", None) or [])
    return axes == sorted(axes)


def _check_type(column: MDSColumn, kind: pa.DataType) -> None:
    """Raise Unrepresentable for a type whose values do not match a requested encoding."""
    dtype = NUMBERS.get(column.encoding)
    if isinstance(kind, pa.FixedShapeTensorType):
        fits = _axes_in_order(kind) and _holds_tensors(column.encoding, feature_of(pa.field(column.name, kind)))
    elif column.encoding == "json" and (pa.types.is_boolean(kind) or is_nested_json(kind)):
        fits = True
    elif is_list_of_bytes(kind):
        fits = column.encoding in OF_LISTS
    elif is_list_of_numbers(kind):
        fits = parse_array(column.encoding) is not None
    elif dtype is not None and is_number(kind):
        fits = pa.types.is_integer(kind) == np.issubdtype(dtype, np.integer)
    elif column.encoding in ("str_int", "str_float") and not is_text(kind):
        fits = pa.types.is_integer(kind) if column.encoding == "str_int" else kind == pa.float64()
    else:
        fits = pa.from_numpy_dtype(dtype) == kind if dtype else is_bytes(kind) or is_text(kind)
    if not fits:
        raise Unrepresentable("the requested encoding holds other values", column=column.name, expected=column.encoding,
                              found=kind, advice=_fitting_advice(column, kind))  # fmt: skip


def _holds_tensors(encoding: str, own: Feature) -> bool:
    if own.array is None or encoding == "bytes":
        return own.array is not None
    dtype, shape = parse_array(encoding) or (None, ())
    same_kind = dtype is None or (np.dtype(dtype).kind == "f") == (np.dtype(own.array[0]).kind == "f")
    return same_kind and shape in (None, own.array[1])


def _fitting_advice(column: MDSColumn, kind: pa.DataType) -> str | None:
    if isinstance(kind, pa.FixedShapeTensorType):
        return f"Write arrays with {columns_option(column.name, 'ndarray')}." if _axes_in_order(kind) else None
    dtype = NUMBERS.get(column.encoding)
    if dtype is None:
        return None
    return f"Cast the column first with --type {shlex.quote(f'{column.name}={np.dtype(dtype)}')}."


class MdsWriter(ShardWriter):
    """Write a shard. Memory: all of it, except values in files; twice that with compression or hashes.

    Attributes:
        takes_ranges: whether values may be copied from files.
        sample_bytes: bytes of a sample in the file, without its values.
        limit_bytes: size at which a shard ends.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriteOptions) -> None:
        self._sink, self._out = sink, OutFile(sink, options)
        self._columns = columns_of(schema, options)
        marked = marked_columns(schema, options.nulls)
        self._marks = Marks({column.name: column for column in self._columns if column.name in marked})
        self._varying = [column for column in self._columns if column.size is None]
        own = {column.name: column.encoding for column in self._columns if column.name in schema.names}
        self._recoded = {name: Recoding(schema.field(name), encoding, name in (options.columns or {}))
                         for name, encoding in own.items() if is_recoded(schema.field(name), encoding)}  # fmt: skip
        self.encodes, self.encoded_columns = bool(self._recoded), frozenset(self._recoded)
        self._config = {
            **options.config(), "column_names": [c.name for c in self._columns],
            "column_encodings": [c.encoding for c in self._columns], "column_sizes": [c.size for c in self._columns],
        }  # fmt: skip
        self._header = json.dumps(self._config, sort_keys=True).encode()
        self.takes_ranges, self.packs = self._out.takes_ranges, self._out.packs
        self.sample_bytes = 4 * len(self._varying) + 4
        self.limit_bytes = min(options.most_bytes, MAX_BYTES)
        self._parts: list[ByteRanges] = []
        self._sizes: list[NDArray[np.int64]] = []
        self._samples = self._body = self._payload = self._held = 0

    def encode(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return rows with values in the encodings of their columns, where Arrow has no type for these."""
        found = {name: recoding.values(batch.column(name), first_row) for name, recoding in self._recoded.items()}
        return with_columns(batch, {batch.schema.get_field_index(name): column for name, column in found.items()})

    def write(self, batch: pa.RecordBatch) -> None:
        """Append samples. Returns None: their offsets are known when the shard is closed.

        Raises:
            Unrepresentable: a null, or an array whose size does not match its shape; names row and column.
            LimitExceeded: the shard would exceed 4 GiB.
        """
        self.write_ranges(batch, {})

    def write_ranges(self, batch: pa.RecordBatch, ranges: Ranges) -> None:
        """As `write`, with values of some columns copied from files."""
        if not len(batch):
            return
        rows = {name: ranges.get(name) or batch.column(name) for name in batch.schema.names}
        given = {**rows, **self._marks.marks(rows)} if self._marks.columns else rows
        self._refuse_nulls(given)
        values = {c.name: self._plain(c, given[c.name]) for c in self._columns}
        length = {name: byte_lengths(found) if isinstance(found, pa.Array) else found.length
                  for name, found in values.items()}  # fmt: skip
        for column in self._columns:
            self._check_size(column, length[column.name])
        heads = np.zeros((len(batch), len(self._varying)), "<u4")
        sizes = sum(length.values(), np.full(len(batch), heads.shape[1] * 4))
        total = self._body + int(sizes.sum())
        if 4 * (self._samples + len(batch) + 2) + len(self._header) + total > MAX_BYTES:
            raise LimitExceeded("a shard of MDS is smaller than 4 GiB", file=self._sink.path, found=total,
                                advice="Begin shards earlier with --to-option size_limit=1GB.")  # fmt: skip
        for i, column in enumerate(self._varying):
            heads[:, i] = length[column.name]
        parts = [_fixed(heads.tobytes(), len(batch)), *values.values()]
        whole = not ranges and total - self._body < _SMALL_BYTES * len(parts) * len(batch)
        part = _put_together(parts, total - self._body) if whole else _woven(parts, len(batch))
        self._parts.append(part)
        self._sizes.append(sizes)
        self._held += int(part.length[~part.in_file].sum())
        self._samples, self._body = self._samples + len(batch), total
        self._payload += int(sum(int(each.sum()) for each in length.values()))

    def _refuse_nulls(self, given: Mapping[str, Values]) -> None:
        for name, values in given.items():
            if isinstance(values, pa.FixedShapeTensorArray):
                with errors_at(first_row=self._samples, file=self._sink.path, column=name):
                    refuse_gaps(values)
            if name in self._marks.columns:
                continue
            there = present(values) if isinstance(values, pa.Array) else values.there
            if not there.all():
                row = self._samples + int(np.argmin(there))
                raise Unrepresentable("MDS cannot hold nulls", file=self._sink.path, column=name, row=row,
                                      advice="Mark nulls with --to-option nulls=mask.")  # fmt: skip

    def _plain(self, column: MDSColumn, given: Values) -> Values:
        """Return a column as bytes, none null. Raises as `_as_bytes`."""
        if isinstance(given, pa.DictionaryArray):  # dictionary entries may be null
            given = decoded(given)
        found = self._as_bytes(column, self._marks.without_nulls(column.name, given))
        return self._marks.as_bytes(column.name, found, given)

    def _as_bytes(self, column: MDSColumn, given: Values) -> Values:
        """Return a column as bytes. Raises Unrepresentable for invalid UTF-8 in a text."""
        if isinstance(given, ChunkedRanges) or (isinstance(given, ByteRanges) and column.encoding not in TEXTS):
            return given
        if isinstance(given, ByteRanges):
            given = in_memory(given)
        if isinstance(given.type, pa.JsonType):
            given = given.storage
        if pa.types.is_boolean(given.type) or is_nested_json(given.type):
            return _json_texts(given)
        if column.encoding in TEXTS and not is_text(given.type):
            try:
                return given.cast(pa.large_binary()).cast(pa.large_string())
            except pa.ArrowInvalid as error:
                raise Unrepresentable(
                    "invalid UTF-8 in a column of text", file=self._sink.path, column=column.name,
                    expected=column.encoding, found=str(error),
                    advice=f"Write bytes with {columns_option(column.name, 'bytes')}.",
                ) from None  # fmt: skip
        return _in_memory(column, given)

    def _check_size(self, column: MDSColumn, length: NDArray[np.int64]) -> None:
        """Raise Unrepresentable for a value whose size differs from its column's."""
        wrong = np.flatnonzero(length != column.size) if column.size is not None else length[:0]
        if len(wrong):
            row = int(wrong[0])
            raise Unrepresentable("a value of another size than its encoding says", file=self._sink.path,
                                  column=column.name, row=self._samples + row, expected=f"{column.size} bytes",
                                  found=f"{int(length[row])} bytes")  # fmt: skip

    def bytes_written(self) -> int:
        """Return the size of the shard if it ended now; with compression, an estimate."""
        raw = self.raw_bytes()
        if not self.packs:
            return raw
        if self.ratio is not None:
            return int(self._payload * self.ratio)
        return int(raw * self._out.packed_share(raw, self._some_bytes))

    def raw_bytes(self) -> int:
        """Return the size of the shard if it ended now, before compression."""
        return 4 * (self._samples + 2) + len(self._header) + self._body

    def _some_bytes(self) -> bytes:
        found, size = [], 0
        for part in reversed(self._parts):
            for view in part.views():
                if view is not None and size < _TRIAL_BYTES:
                    found.append(bytes(memoryview(view)[: _TRIAL_BYTES - size]))
                    size += len(found[-1])
        return b"".join(found)

    def held_bytes(self) -> int:
        """Return all bytes in memory: nothing is written before the shard is closed."""
        return self._held

    def close(self) -> ShardFacts:
        """Write the shard."""
        sizes = np.concatenate([np.zeros(1, np.int64), *self._sizes])
        offset = 4 * (self._samples + 2) + len(self._header) + np.cumsum(sizes)
        head = np.append(self._samples, offset).astype("<u4").tobytes() + self._header
        self._out.mark(offset, np.arange(NO_ROWS, self._samples))
        self._out.write_pieces(ByteRanges.of([head]))
        for part in self._parts:
            self._out.write_pieces(part)
        raw, packed = self._out.close()
        entry = {**self._config, "samples": self._samples, "raw_data": raw, "zip_data": packed}
        entry = named(entry, posixpath.basename(self._sink.path))
        return ShardFacts(self._samples, (packed or raw)["bytes"], self._payload, json.dumps(entry, sort_keys=True))


def _json_texts(column: pa.Array) -> pa.Array:
    """Return the values as JSON; null where they are null."""
    if pa.types.is_boolean(column.type):
        return column.cast(pa.large_string())
    return json_texts(column)


def _in_memory(column: MDSColumn, given: pa.Array) -> pa.Array:
    """Return a column as bytes: numbers as they are in memory."""
    dtype = NUMBERS.get(column.encoding)
    if isinstance(given, pa.FixedShapeTensorArray):
        matrix = np.ascontiguousarray(given.to_numpy_ndarray())
        return _fixed(matrix.astype(matrix.dtype.newbyteorder("<"), copy=False).tobytes(), len(given))
    if dtype is not None:
        numbers = np.ascontiguousarray(given.to_numpy(), np.dtype(dtype).newbyteorder("<"))
        return _fixed(numbers.tobytes(), len(given))
    return given.cast(pa.large_binary()) if pa.types.is_fixed_size_binary(given.type) else given


def _fixed(data: bytes, count: int) -> pa.Array:
    """Return values of one size as adjacent ranges."""
    ends = np.arange(count + 1) * (len(data) // count)
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _put_together(parts: Sequence[pa.Array], size: int) -> ByteRanges:
    """Join small values of several columns, row by row: as Arrow columns they take up to 8 more bytes each."""
    count = len(parts[0])
    rows = max(_JOINED_BYTES * count // max(size, 1), 1)
    starts = range(0, count, rows)
    return ByteRanges.of([_joined([column.slice(start, rows) for column in parts]) for start in starts])


def _joined(parts: Sequence[pa.Array]) -> pa.Buffer:
    """Return values of several columns, row by row, in one buffer."""
    columns = [join(part).cast(pa.large_binary()) for part in parts]
    whole = pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))
    _, ends, body = whole.buffers()
    first, last = np.frombuffer(ends, np.int64)[[whole.offset, whole.offset + len(whole)]].tolist()
    return (body or pa.py_buffer(b"")).slice(first, last - first)


def _woven(parts: Sequence[Values], count: int) -> ByteRanges:
    """Return values of several columns, row by row, as ranges in place."""
    found = ByteRanges.joined([_byte_ranges(part) for part in parts])
    if not any(isinstance(part, ChunkedRanges) for part in parts):
        return found[np.arange(len(parts) * count).reshape(len(parts), count).T.reshape(-1)]
    own = np.arange(count)
    rows = [np.repeat(own, np.diff(part.bounds)) if isinstance(part, ChunkedRanges) else own for part in parts]
    return found[np.argsort(np.concatenate(rows), kind="stable")]


def _byte_ranges(part: Values) -> ByteRanges:
    if isinstance(part, ChunkedRanges):
        return part.pieces
    return part if isinstance(part, ByteRanges) else places(part)
