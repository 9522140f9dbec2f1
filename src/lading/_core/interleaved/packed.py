"""Read interleaved samples from rows of three columns, for formats without nulls and lists of bytes.

    sample_id   text
    items       JSON: a list with an object for each item, in order. It holds the item's columns by name; nulls are left
                out (in a JSON column, `null` is that JSON value). `bytes` is the length of its payload, if it has one.
    content     bytes: the payload of all items, one after another

The bytes of `items[i]` begin in `content` at the sum of the lengths before it. Computing this place touches no payload:
a reference stays a reference.

A format with lists of bytes gives the content as a list: a value for each item with a payload, in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.align import reconcile_schema
from lading._core.arrow.json_columns import column_type, kinds_of
from lading._core.arrow.rebatch import split_samples
from lading._core.arrow.references import concat, files_of, is_ref, make_refs, unpack, with_files
from lading._core.arrow.views import byte_lengths, from_ranges, is_bytes, is_text, join, present
from lading._core.features.items import INTERLEAVED_SCHEMA, MEANT_NULLS_KEY, RESERVED, split_rows, without_source
from lading._core.features.types import Json, feature_of, with_feature
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardReader
from lading._core.interleaved.absent_fields import warn_absent_fields
from lading._core.interleaved.base import documents_at_once
from lading.errors import DataError, LadingError, SchemaMismatch, errors_at
from lading.options import InterleavedOptions

__all__ = ["CONTENT", "ITEMS", "LENGTH", "PACKED_SCHEMA", "PackedView", "is_packed_schema"]

ITEMS, CONTENT = "items", "content"
LENGTH = "bytes"
"""Name, in an item's object, of the length of its payload."""

PACKED_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        with_feature(pa.field(ITEMS, pa.large_string(), nullable=False), Json()),
        pa.field(CONTENT, pa.large_binary(), nullable=False),
    ]
)
"""The columns of such rows."""

_ELSEWHERE = ("sample_id", "binary_content")
"""Columns of items that are not in their objects."""

_WINDOW_SAMPLES = 1024
_WINDOW_BYTES = 4 << 20
"""Samples, and bytes of JSON, that are parsed at once: Python values take many times their memory."""

_ABSENT = object()
_AS_THEY_ARE = "Take the rows as they are, with --view samples."


def is_packed_schema(schema: pa.Schema) -> bool:
    """Return whether rows are packed samples: exactly these three columns, with their types and features."""
    if sorted(schema.names) != sorted(PACKED_SCHEMA.names):
        return False
    ids, items, content = (schema.field(name) for name in PACKED_SCHEMA.names)
    texts = is_text(ids.type) and is_text(items.type) and feature_of(items).is_json
    payload = is_ref(content.type) or is_bytes(content.type)
    return texts and payload and feature_of(ids).is_text and feature_of(content).is_bytes


class PackedView(ShardReader):
    """A shard of packed rows, read as items.

    Args:
        reader: the open shard.
        path: name of the shard in errors.
        options: only `fields` is used; the rest is for tars.
        schema: columns and types of the items, if stored; else the values decide.
    """

    may_join = copies = False

    def __init__(
        self, reader: ShardReader, path: str, options: InterleavedOptions, schema: pa.Schema | None = None
    ) -> None:
        self._reader, self._path, self._options = reader, path, options
        self._known = None if schema is None else reconcile_schema(without_source(schema))
        self._natural: dict[str, int] | None = None
        self.declares_types = schema is not None

    def schema(self) -> pa.Schema:
        """Return reserved columns, then the others in order of appearance; without a stored schema, reads all JSON."""
        if self._known is None and self._natural is None:
            self._natural = {}
            for row, packed in self._windows(Scan(["sample_id", ITEMS])):
                with errors_at(file=self._path):
                    parsed = _Items.of(packed, row)
                for name, kinds in parsed.kinds().items():
                    self._natural[name] = self._natural.get(name, 0) | kinds
        return self._schema(self._natural or {})

    def _schema(self, natural: dict[str, int]) -> pa.Schema:
        """Return the schema of rows whose other columns hold these kinds of values, if no schema was stored."""
        if self._known is None:
            fields = [*INTERLEAVED_SCHEMA, *(column_type(name, kinds) for name, kinds in natural.items())]
        else:
            absent = [field for field in INTERLEAVED_SCHEMA if field.name not in self._known.names]
            fields = [*self._known, *absent]
        wanted = self._options.fields
        if wanted is not None:
            there = {field.name for field in fields}
            fields = [field for field in fields if field.name in RESERVED or field.name in wanted]
            fields += [pa.field(name, pa.null()) for name in wanted if name not in there]
        own = self._reader.schema()
        payload = own.field(CONTENT).type
        payload = payload.value_type if pa.types.is_list(payload) else payload
        payload = payload if is_ref(payload) else pa.large_binary()
        fields = [field.with_type(payload) if field.name == "binary_content" else field for field in fields]
        return with_files(pa.schema(fields), files_of(own))

    def index(self) -> None:
        """Return None: the format knows the places of rows."""

    def num_samples(self) -> int:
        """Return the number of rows."""
        return self._reader.num_rows()

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many documents are read to read one (`ShardReader.samples_at_once`)."""
        return documents_at_once(self._reader, self.num_samples())

    def _windows(self, scan: Scan) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """Yield rows of the shard in order, few enough to be parsed at once, with their numbers."""
        row = 0
        most = min(scan.max_rows, _WINDOW_SAMPLES)
        for batch in self._reader.batches(Scan(scan.columns, max_rows=most, max_bytes=scan.max_bytes)):
            for part in _small_parts(batch):
                yield np.arange(row, row + part.num_rows), part
                row += part.num_rows

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, samples whole; `binary_content` as references if the format gives references.

        Raises:
            DataError: JSON that is not a list of items, or names a column twice; lengths that do not add up to the
                content; a sample without items, or with the id of the one before it. Names file and row.
            SchemaMismatch: a value does not fit the type of its column.
        """
        drifting = scan.drifting and scan.schema is None and self._known is None
        target = None if drifting else self._chosen(scan.schema, scan.columns)
        absent = dict.fromkeys(self._options.fields or ())
        last = None
        for row, packed in self._windows(replace(scan, columns=self._columns_for(scan.columns))):
            with errors_at(file=self._path):
                last = _refuse_neighbours(packed.column("sample_id"), row, last)
                items = _Items.of(packed, row)
                absent = {name: None for name in absent if name not in items.names}
                fields = self._selected(self._schema(items.kinds()), scan.columns) if target is None else target
                batch = self._built(items, fields, views=scan.views)
            yield from split_samples(batch, items.starts, scan.max_rows, scan.max_bytes)
        warn_absent_fields(absent, self._path, self.counts)
        self.counts.update(self._reader.counts)

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the rows of samples by ordinal, in the given order."""
        samples = np.arange(self.num_samples()) if rows is None else rows
        target = self._chosen(None, scan.columns)
        parts = []
        for first in range(0, len(samples), _WINDOW_SAMPLES):
            row = samples[first : first + _WINDOW_SAMPLES]
            found = self._reader.read(row, Scan(self._columns_for(scan.columns))).combine_chunks()
            for batch in found.to_batches():
                for part in _small_parts(batch):
                    with errors_at(file=self._path):
                        parts.append(self._built(_Items.of(part, row[: part.num_rows]), target, views=False))
                    row = row[part.num_rows :]
        return concat(parts) if parts else target.empty_table()

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    @staticmethod
    def _columns_for(columns: Sequence[str] | None) -> list[str] | None:
        return None if columns is None or "binary_content" in columns else ["sample_id", ITEMS]

    def _chosen(self, schema: pa.Schema | None, columns: Sequence[str] | None) -> pa.Schema:
        """Return the schema of rows with these columns, with the types of `schema`."""
        if schema is None:
            reserved = columns is not None and {*columns} <= {*RESERVED}
            return self._selected(self._schema({}) if reserved else self.schema(), columns)
        own = self._schema({})
        payload = own.field("binary_content").type
        fields = [field.with_type(payload) if field.name == "binary_content" else field for field in schema]
        return self._selected(with_files(pa.schema(fields, metadata=schema.metadata), files_of(own)), columns)

    @staticmethod
    def _selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
        """Return these columns of a schema, and those that identify samples and items."""
        always = ("sample_id", "position")
        kept = [field for field in schema if columns is None or field.name in columns or field.name in always]
        # An item without bytes was written without them.
        return pa.schema(kept, metadata={**(schema.metadata or {}), MEANT_NULLS_KEY: b""})

    def _built(self, items: _Items, target: pa.Schema, *, views: bool) -> pa.RecordBatch:
        """Return the items as rows of this schema; bytes in memory as views, if requested."""
        unknown = [] if self._known is None else [n for n in items.names if n not in {*self._known.names, *RESERVED}]
        if unknown:
            raise SchemaMismatch("an item has a column that the manifest does not", column=unknown[0],
                                 row=items.row_naming(unknown[0]))  # fmt: skip
        columns = [items.payload(views=views) if f.name == "binary_content" else items.column(f) for f in target]
        fields = [field.with_type(column.type) for field, column in zip(target, columns, strict=True)]
        # The files of references may differ in each batch.
        schema = with_files(pa.schema(fields, metadata=target.metadata), files_of(items.packed.schema))
        return pa.record_batch(columns, schema=schema)


def _small_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts whose JSON may be parsed at once."""
    sizes = byte_lengths(batch.column(ITEMS))
    bounds = split_rows(np.arange(len(sizes)), sizes, max_bytes=_WINDOW_BYTES)
    for start, stop in pairwise(bounds.tolist()):
        yield batch.slice(start, stop - start)


def _refuse_neighbours(ids: pa.Array, row: NDArray[np.int64], last: str | None) -> str | None:
    """Raise DataError for a row with the id of the row before it; return the last id.

    As items, the two would be one sample.
    """
    if not len(ids):
        return last
    if ids.null_count:
        raise DataError("an item has no sample_id", row=int(row[np.argmin(present(ids))]), column="sample_id",
                        found="null")  # fmt: skip
    same = np.flatnonzero(pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)) + 1
    if ids[0].as_py() == last:
        same = np.zeros(1, np.int64)
    if len(same):
        raise DataError("two neighbouring samples have one id", row=int(row[same[0]]), column="sample_id",
                        found=ids[int(same[0])].as_py(), expected="different ids for neighbours",
                        advice=_AS_THEY_ARE)  # fmt: skip
    return str(ids[-1].as_py())


@dataclass(frozen=True, slots=True)
class _Items:
    """The parsed items of some rows.

    Attributes:
        packed: the rows.
        row: number of each in the shard.
        values: each item's object.
        names: all columns in the objects, in order of appearance.
        plain: whether integers beyond 64 bits and lone surrogates are excluded.
        starts: the first item of each row.
        sample: for each item, the index of its row.
        length: bytes of each item's payload; 0 without one.
        has_bytes: which items have a payload.
    """

    packed: pa.RecordBatch
    row: NDArray[np.int64]
    values: list[dict[str, Any]]
    names: list[str]
    plain: bool
    starts: NDArray[np.int64]
    sample: NDArray[np.int64]
    length: NDArray[np.int64]
    has_bytes: NDArray[np.bool_]

    @classmethod
    def of(cls, packed: pa.RecordBatch, row: NDArray[np.int64]) -> _Items:
        """Parse rows.

        Raises:
            DataError: they do not have this layout; names row and column.
        """
        documents, plain = _documents(packed.column(ITEMS), row)
        counts = np.array([len(document) for document in documents], np.int64)
        if (counts == 0).any():
            raise DataError("a sample without items", row=int(row[np.argmin(counts)]), column=ITEMS)
        sample = np.repeat(np.arange(len(counts)), counts)
        values = list(chain.from_iterable(documents))
        if set(map(type, values)) - {dict}:
            odd = next(i for i, value in enumerate(values) if type(value) is not dict)
            raise DataError("an item is an object", row=int(row[sample[odd]]), column=ITEMS,
                            found=type(values[odd]).__name__, advice=_AS_THEY_ARE)  # fmt: skip
        names = list(dict.fromkeys(chain.from_iterable(values)))
        length, has_bytes = _lengths(values, row, sample)
        names = [name for name in names if name != LENGTH]
        found = cls(packed, row, values, names, plain, np.cumsum(counts) - counts, sample, length, has_bytes)
        for name in () if plain else names:
            if not json_text.is_unicode(name):
                raise DataError("a name that is not valid Unicode", column=ITEMS, row=found.row_naming(name),
                                found=ascii(name)[:80], advice=_AS_THEY_ARE)  # fmt: skip
        for name in _ELSEWHERE:
            if name in names:
                raise DataError("an item has a column that stands elsewhere", column=name,
                                row=found.row_naming(name))  # fmt: skip
        found._check_content()
        return found

    def row_naming(self, name: str) -> int:
        """Return the row of the first item that names a column."""
        return int(self.row[self.sample[next(i for i, item in enumerate(self.values) if name in item)]])

    def kinds(self) -> dict[str, int]:
        """Return the kinds of values in the columns that are not reserved."""
        names = [name for name in self.names if name not in RESERVED]
        return {name: kinds_of([item.get(name) for item in self.values], plain=self.plain) for name in names}

    def _check_content(self) -> None:
        """Raise DataError for lengths that do not add up to the content, if the rows have it."""
        if CONTENT not in self.packed.schema.names or not len(self.row):
            return
        content = self.packed.column(CONTENT)
        if pa.types.is_list(content.type):
            self._check_count(np.asarray(pc.list_value_length(content).to_numpy(), np.int64))
            return
        size, declared = _sizes(self.packed.column(CONTENT)), np.add.reduceat(self.length, self.starts)
        # Sums of lengths of nearly 2^63 can overflow to anything.
        wrong = np.flatnonzero((size != declared) | (np.maximum.reduceat(self.length, self.starts) > size))
        if len(wrong):
            at = int(wrong[0])
            raise DataError("the lengths of a sample's items do not add up to its content", row=int(self.row[at]),
                            column=CONTENT, expected=f"{int(size[at])} bytes",
                            found=f"{sum(self.length[self.sample == at].tolist())} bytes")  # fmt: skip

    def _check_count(self, count: NDArray[np.int64]) -> None:
        """Raise DataError if the numbers of values and of items with a payload differ."""
        declared = np.add.reduceat(self.has_bytes.astype(np.int64), self.starts)
        wrong = np.flatnonzero(count != declared)
        if len(wrong):
            at = int(wrong[0])
            raise DataError("not as many payloads as items that have one", row=int(self.row[at]), column=CONTENT,
                            expected=int(declared[at]), found=int(count[at]))  # fmt: skip

    def payload(self, *, views: bool) -> pa.Array:
        """Return the payload of each item, in place in the content: as references, views or copies."""
        content = self.packed.column(CONTENT)
        if pa.types.is_list(content.type):
            at = np.cumsum(self.has_bytes) - 1
            return content.flatten().take(pa.array(at, mask=~self.has_bytes))
        ends = np.cumsum(self.length)
        within = ends - self.length
        within -= within[self.starts][self.sample]
        if is_ref(content.type):
            refs = unpack(content)
            offset, file = refs.offset[self.sample] + within, refs.file[self.sample]
            return make_refs(offset, self.length, file=file, valid=self.has_bytes)
        whole = join(content).cast(pa.large_binary())
        _, places, body = whole.buffers()
        offset = np.frombuffer(places, np.int64)[whole.offset : whole.offset + len(whole)][self.sample] + within
        found = from_ranges(body or pa.py_buffer(b""), offset, self.length, self.has_bytes)
        return found if views else join(found)

    def column(self, field: pa.Field) -> pa.Array:
        """Return a column of this type.

        Raises:
            SchemaMismatch: a value does not fit; names column and row.
            DataError: a required value of an item is missing.
        """
        if field.name == "sample_id":
            return self.packed.column("sample_id").take(pa.array(self.sample)).cast(field.type)
        if feature_of(field).is_json:
            stored = (item.get(field.name, _ABSENT) for item in self.values)
            found = pa.array(
                [None if value is _ABSENT else json_text.dumps(value) for value in stored], pa.large_string()
            )
            kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
            found = found.cast(kind)
            return found if kind == field.type else pa.ExtensionArray.from_storage(field.type, found)
        values = [item.get(field.name) for item in self.values]
        if not field.nullable and None in values:
            raise DataError("an item lacks what every item has", row=int(self.row[self.sample[values.index(None)]]),
                            column=field.name, found="null")  # fmt: skip
        try:
            return pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError):
            self._refuse_misfit(field, values)
            raise

    def _refuse_misfit(self, field: pa.Field, values: list[Any]) -> None:
        for number, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:
                raise SchemaMismatch("a value does not fit the type of its column", column=field.name,
                                     row=int(self.row[self.sample[number]]), expected=field.type,
                                     found=str(error)) from None  # fmt: skip


def _documents(column: pa.Array, row: NDArray[np.int64]) -> tuple[list[list[Any]], bool]:
    """Return the lists of items of rows, and whether orjson and Python's `json` agree."""
    texts = column.cast(pa.large_binary()).to_pylist()
    if any(text is None for text in texts):
        raise DataError("a sample without items", row=int(row[texts.index(None)]), column=ITEMS, found="null")
    found = json_text.loads_plain(texts)
    plain = found is not None
    if found is None:
        found = []
        for number, text in zip(row.tolist(), texts, strict=True):
            try:  # not `errors_at`, which costs as much as the parsing
                found.append(json_text.loads(text))
            except LadingError as error:
                raise error.at(row=number, column=ITEMS) from None
    for number, document in zip(row.tolist(), found, strict=True):
        if type(document) is not list:
            raise DataError("the items of a sample are a list", row=number, column=ITEMS,
                            found=type(document).__name__, advice=_AS_THEY_ARE)  # fmt: skip
    twice = json_text.find_repeated_name(texts, found)
    if twice is not None:
        raise DataError("an object names a column twice", row=int(row[twice[0]]), column=ITEMS, found=repr(twice[1]))
    return found, plain


def _lengths(
    values: list[dict[str, Any]], row: NDArray[np.int64], sample: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the length of each item's payload, and which items have one. Raises DataError for an invalid length."""
    declared = [value.get(LENGTH) for value in values]
    if set(map(type, declared)) - {int, type(None)} or any(n is not None and not 0 <= n < 1 << 63 for n in declared):
        odd = next(i for i, n in enumerate(declared) if n is not None and not (type(n) is int and 0 <= n < 1 << 63))
        raise DataError("not the length of a payload", row=int(row[sample[odd]]), column=f"{ITEMS}.{LENGTH}",
                        expected="0 or more", found=repr(declared[odd])[:40])  # fmt: skip
    lengths = pa.array(declared, pa.int64())
    return np.asarray(lengths.fill_null(0).to_numpy(), np.int64), present(lengths)


def _sizes(content: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of each row's content."""
    if not is_ref(content.type):
        return byte_lengths(content)
    refs = unpack(content)
    return np.where(refs.valid, refs.length, 0)
