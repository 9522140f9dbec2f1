"""The view `interleaved` of documents with media (`_core.formats.media_archive.format`).

    a document          position −1   metadata      the columns of the document but id, text and media
    its text            0             text          no item if it is empty
    its media           1, 2, …       image, video, audio or document, by its type; `media_id`, `media_url` …

Positions begin at 0 if there is no text. The bytes of media are references into their archives. If some media of a
batch have no length (version 1), are inline in the document, or are in web archives, all are read at once, because a
column cannot hold both.
"""

from __future__ import annotations

import posixpath
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.align import align_table
from lading._core.arrow.casts import cast
from lading._core.arrow.rebatch import split_samples
from lading._core.arrow.references import CODECS, FileEntry, RefType, make_refs, with_files
from lading._core.arrow.views import byte_lengths, present
from lading._core.content.documents import BYTES, FAILED, MEDIA, MISSING, PLACE, by_number, media_parts
from lading._core.features.items import (
    INTERLEAVED_SCHEMA,
    MEANT_NULLS_KEY,
    METADATA_POSITION,
    RESERVED,
    sample_starts,
)
from lading._core.features.types import feature_of
from lading._core.formats.base import DEFAULT_SCAN, DocumentReader, Scan, ShardReader
from lading._core.interleaved.absent_fields import warn_absent_fields
from lading._core.interleaved.base import documents_at_once
from lading._core.interleaved.packed import CONTENT, ITEMS, PACKED_SCHEMA
from lading._core.media.archives import outside
from lading._core.media.documents import MediaStats
from lading._core.storage.fetch import Fetcher, write_errors
from lading.errors import BadReference, DataError, SchemaMismatch, StoreError, errors_at
from lading.options import InterleavedOptions

__all__ = [
    "ITEMS_COLUMN",
    "MODALITIES",
    "Contents",
    "DocumentForm",
    "DocumentsView",
    "FromDocuments",
    "PackedForm",
]

MODALITIES = ("image", "video", "audio", "document")
"""Modalities of media, by the number of their type."""

ITEMS_COLUMN = "lading_items"
"""Column of documents that were items: the original items."""

_MOST_BYTES = 1 << 62
"""Number of rows that are read at once on request by number."""
_MODALITIES = ("metadata", "text", *MODALITIES)
_METADATA, _TEXT, _FIRST_TYPE = range(3)
_CONTENT_TYPES = ("application/json", "text/plain")
_ITEMS = ("id", "text", "media")
_OWN = ("type", BYTES, *PLACE)
"""Fields of a media that are not passed through."""


class DocumentsView(ShardReader):
    """A shard of documents, read item by item.

    Args:
        reader: the open shard.
        options: only `fields` is used; the rest is for tars.
        fetcher: reads the references.
        first_row: number in the file of the first document that is read, which may be its id.
    """

    has_errors = may_join = copies = False

    def __init__(
        self, reader: DocumentReader, options: InterleavedOptions, fetcher: Fetcher, first_row: int = 0
    ) -> None:
        self._reader, self._options, self._fetcher = reader, options, fetcher
        self._missing, self._first_row = 0, first_row
        self.declares_types = reader.declares_types

    def schema(self) -> pa.Schema:
        """Return the reserved columns, those of documents, and those of media; absent `fields` follow the others."""
        own = self._reader.schema()
        columns = [field for field in own if field.name not in _ITEMS]
        media = own.field("media").type.value_type if "media" in own.names else ()
        columns += [field.with_name(f"media_{field.name}") for field in media if field.name not in _OWN]
        for name, count in Counter([*RESERVED, *(field.name for field in columns)]).items():
            if count > 1:
                raise SchemaMismatch("a column of documents has the name of one of items", file=self._reader.path,
                                     column=name, advice="Take the documents as samples.")  # fmt: skip
        kept = [field for field in columns if self._options.fields is None or field.name in self._options.fields]
        absent = [pa.field(name, pa.null()) for name in self._unknown(columns)]
        nullable = [pa.field(f.name, f.type, metadata=f.metadata) for f in kept]
        return pa.schema([*INTERLEAVED_SCHEMA, *nullable, *absent])

    def _unknown(self, columns: Sequence[pa.Field]) -> list[str]:
        return [name for name in self._options.fields or () if name not in {field.name for field in columns}]

    def index(self) -> None:
        """Return None: the documents hold the locations of their media."""

    def num_samples(self) -> int:
        """Return the number of documents."""
        return self._reader.num_rows()

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many documents are read to read one (`ShardReader.samples_at_once`)."""
        return documents_at_once(self._reader, self.num_samples())

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all items in order, documents whole.

        Raises:
            DataError: two neighbouring documents with one id, a media of an unknown type, or an error of the reader.
        """
        target = _chosen(scan.schema or self.schema(), scan.columns)
        before, self._missing = self._reader.media.stats, 0
        last: object = None
        row = 0
        for documents in self._reader.located(replace(scan, columns=None, schema=None)):
            for items in self._items(documents, row + np.arange(len(documents)), scan.max_bytes):
                with errors_at(file=self._reader.path):
                    last = _refuse_neighbours(items, last)
                starts = sample_starts(items.column("sample_id"))
                for part in split_samples(items, starts, scan.max_rows, scan.max_bytes):
                    yield _aligned(part, target)
            row += len(documents)
        self.counts.update(self._reader.counts)
        _report_missing(self.counts, self._missing, before, self._reader.media.stats)
        if self._options.fields:
            warn_absent_fields(
                [f.name for f in self.schema() if pa.types.is_null(f.type)], self._reader.path, self.counts
            )

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the items of documents by ordinal, in the given order, with their bytes."""
        samples = np.arange(self.num_samples()) if rows is None else rows
        target = _chosen(self.schema(), scan.columns)
        documents = self._reader.read_located(samples)
        parts = [
            part
            for items in self._items(documents, samples, None)
            for part in self._fetcher.materialise_parts(
                _aligned(items, target), sample_starts(items["sample_id"]), _MOST_BYTES, earlier=False
            )
        ]
        return pa.Table.from_batches(parts) if parts else target.empty_table()

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _items(
        self, documents: pa.RecordBatch, rows: NDArray[np.int64], max_bytes: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Return the items of documents: their bytes as references, or, if that is impossible, as bytes."""
        if self._reader.is_ranges(documents):
            yield self._of(documents, rows, with_references=True)
            return
        done = 0
        for filled in self._reader.filled(documents, max_bytes):
            yield self._of(filled, rows[done : done + len(filled)], with_references=False)
            done += len(filled)

    def _of(self, documents: pa.RecordBatch, rows: NDArray[np.int64], *, with_references: bool) -> pa.RecordBatch:
        with errors_at(file=self._reader.path):
            places = _Places.of(documents, rows)
            ids = _ids(documents, rows + self._first_row, posixpath.basename(self._reader.path))
        files: list[FileEntry] = []
        errors: dict[int, DataError] = {}
        if with_references:
            content, files, errors = _references(self._reader, places.media)
        else:
            content = places.media.field(BYTES)
        self._missing += _count_missing(places.media, content)
        found = {
            "sample_id": ids.take(pa.array(places.document)),
            "position": pa.array(places.position, pa.int32()),
            "modality": pa.array(_MODALITIES).take(pa.array(places.kind)),
            "content_type": _at(pa.array(_CONTENT_TYPES), np.where(places.kind <= _TEXT, places.kind, -1)),
            "text_content": _at(_texts(documents), np.where(places.kind == _TEXT, places.document, -1)),
            "binary_content": _at(content, places.item),
        }
        own = np.where(places.kind == _METADATA, places.document, -1)
        found |= {name: _at(documents.column(name), own) for name in documents.schema.names if name not in _ITEMS}
        found |= {f"media_{field.name}": _at(places.media.field(field.name), places.item)
                  for field in places.media.type if field.name not in _OWN}  # fmt: skip
        rest = {name: pa.nulls(len(own), INTERLEAVED_SCHEMA.field(name).type) for name in RESERVED if name not in found}
        told = {field.name: field.metadata for field in documents.schema}
        told |= {f"media_{field.name}": field.metadata for field in places.media.type}
        order = list(dict.fromkeys((*RESERVED, *found)))
        columns = [{**found, **rest}[name] for name in order]
        fields = [pa.field(name, column.type, metadata=None if name in RESERVED else told[name])
                  for name, column in zip(order, columns, strict=True)]  # fmt: skip
        batch = pa.record_batch(columns, schema=pa.schema(fields))
        row_of = {int(item): row for row, item in enumerate(places.item.tolist()) if item >= 0} if errors else {}
        batch = write_errors(batch, {row_of[item]: error.problem for item, error in errors.items()})
        listed = with_files(batch.schema, files).metadata if with_references else {}
        return batch.replace_schema_metadata({**listed, MEANT_NULLS_KEY: b""})


Contents: TypeAlias = Callable[[pa.StructArray], tuple[pa.Array, list[FileEntry]]]
"""Return the bytes of media as references, with their files; or as bytes, without files."""


class DocumentForm(ABC):
    """Rows that were written as documents.

    Attributes:
        written: the columns of the documents, if known.
        counts_missing: whether a media without record and bytes is lost; else the row has none.
    """

    written: pa.Schema | None = None
    counts_missing: bool = False

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the restored columns, bytes as references."""

    @abstractmethod
    def has_media(self, columns: Sequence[str] | None) -> bool:
        """Return whether the bytes of media belong to these columns."""

    @abstractmethod
    def apply(
        self, documents: pa.RecordBatch, columns: Sequence[str] | None, contents: Contents, *, with_references: bool
    ) -> pa.RecordBatch:
        """Return the restored rows: the bytes of media as `contents` gives them, references or not."""


class FromDocuments(ShardReader):
    """Read documents whose rows had another form, and restore that form.

    Args:
        reader: the open shard.
        form: the form of the rows.
    """

    def __init__(self, reader: DocumentReader, form: DocumentForm) -> None:
        self._reader, self._form = reader, form
        self._missing = 0

    def schema(self) -> pa.Schema:
        """Return the restored columns, bytes as references."""
        return self._form.schema()

    def num_rows(self) -> int:
        """Return the number of documents."""
        return self._reader.num_rows()

    def index(self) -> pa.Table | None:
        """Return the reader's index."""
        return self._reader.index()

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal, in the given order."""
        wanted = np.arange(self.num_rows()) if rows is None else rows
        documents = self._reader.read_located(wanted, Scan(schema=self._form.written))
        return pa.Table.from_batches(self._parts(documents, scan.columns, None))

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order.

        Raises:
            BadReference: a path of a media leads outside.
            DataError: the documents do not match their declared content.
        """
        before, self._missing = self._reader.media.stats, 0
        for documents in self._reader.located(replace(scan, columns=None, schema=self._form.written)):
            yield from self._parts(documents, scan.columns, scan.max_bytes)
        self.counts = Counter(self._reader.counts)
        _report_missing(self.counts, self._missing, before, self._reader.media.stats)

    def _parts(
        self, documents: pa.RecordBatch, columns: Sequence[str] | None, max_bytes: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the restored rows: their bytes as references, or, if that is impossible, as bytes."""
        located = not self._form.has_media(columns) or self._reader.is_ranges(documents)
        for part in (documents,) if located else self._reader.filled(documents, max_bytes):
            contents = self._references if located else _inline
            with errors_at(file=self._reader.path):
                made = self._form.apply(part, columns, self._counted(contents), with_references=located)
            yield made

    def _references(self, media: pa.StructArray) -> tuple[pa.Array, list[FileEntry]]:
        content, files, errors = _references(self._reader, media)
        if errors:
            raise errors[min(errors)]
        return content, files

    def _counted(self, contents: Contents) -> Contents:
        """Return the same, which also counts media without record and bytes."""

        def counted(media: pa.StructArray) -> tuple[pa.Array, list[FileEntry]]:
            content, files = contents(media)
            self._missing += _count_missing(media, content)
            return content, files

        return counted if self._form.counts_missing else contents

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def _inline(media: pa.StructArray) -> tuple[pa.Array, list[FileEntry]]:
    """Return the bytes of media that are in their documents."""
    return media.field(BYTES).cast(pa.large_binary()), []


class PackedForm(DocumentForm):
    """Items as rows of `_core.interleaved.packed`: `content` is a list of references."""

    counts_missing = True

    def schema(self) -> pa.Schema:
        """Return the schema of packed rows."""
        content = pa.field(CONTENT, pa.list_(RefType()), nullable=False)
        return PACKED_SCHEMA.set(PACKED_SCHEMA.get_field_index(CONTENT), content)

    def has_media(self, columns: Sequence[str] | None) -> bool:
        """Return whether the column `content` is among these."""
        return columns is None or CONTENT in columns

    def apply(
        self, documents: pa.RecordBatch, columns: Sequence[str] | None, contents: Contents, *, with_references: bool
    ) -> pa.RecordBatch:
        """Return packed rows. Raises DataError for a document without an id."""
        found = {"sample_id": _column_of_texts(documents, "id"), ITEMS: documents.column(ITEMS_COLUMN)}
        if found["sample_id"].null_count:
            raise DataError("a document that was items has an id", column="id", found="null",
                            advice="Take the documents as samples.")  # fmt: skip
        files: list[FileEntry] = []
        if self.has_media(columns):
            media, bounds = media_parts(documents.column("media"))
            content, files = contents(media)
            found[CONTENT] = pa.ListArray.from_arrays(pa.array(bounds.astype(np.int32)), content)
        batch = pa.record_batch(found)
        return batch.replace_schema_metadata(with_files(batch.schema, files).metadata)


@dataclass(frozen=True, slots=True)
class _Places:
    """The items of some documents, in order.

    Attributes:
        document: number of the document of each.
        position: position in the document.
        kind: number of the modality in `_MODALITIES`.
        item: index of the media of each, −1 for others.
        media: the media of all documents.
    """

    document: NDArray[np.int64]
    position: NDArray[np.int64]
    kind: NDArray[np.int64]
    item: NDArray[np.int64]
    media: pa.StructArray

    @classmethod
    def of(cls, documents: pa.RecordBatch, rows: NDArray[np.int64]) -> _Places:
        """Return the items of these documents. Raises DataError for a media of an unknown type."""
        count = len(documents)
        at = documents.schema.get_field_index("media")
        media, bounds = media_parts(documents.column(at) if at >= 0 else _no_media(count))
        of_media = np.repeat(np.arange(count), np.diff(bounds))
        has_text = byte_lengths(_texts(documents)) > 0
        with_text = np.flatnonzero(has_text)
        document = np.concatenate([np.arange(count), with_text, of_media])
        own = np.arange(len(of_media))
        position = np.concatenate([np.full(count, METADATA_POSITION), np.zeros(len(with_text), np.int64),
                                   own - bounds[of_media] + has_text[of_media]])  # fmt: skip
        kind = np.concatenate([np.full(count, _METADATA), np.full(len(with_text), _TEXT),
                               _FIRST_TYPE + _types(media, rows[of_media])])  # fmt: skip
        item = np.concatenate([np.full(count + len(with_text), -1), own])
        order = np.lexsort((position, document))
        return cls(document[order], position[order], kind[order], item[order], media)


def _no_media(count: int) -> pa.ListArray:
    """Return empty media for the documents of a file without such a column."""
    return pa.array([[]] * count, pa.list_(MEDIA))


def _references(
    reader: DocumentReader, media: pa.StructArray
) -> tuple[pa.Array, list[FileEntry], dict[int, DataError]]:
    """Return references to the records of media (null if there is none), the files, and the errors by media.

    A missing or short file is found when the reference is followed, and becomes an error of its row.
    """
    paths = media.field("path").dictionary_encode()
    which = paths.indices.fill_null(-1).to_numpy().astype(np.int64)
    offset, length = (media.field(name).fill_null(-1).to_numpy() for name in ("offset", "length"))
    there = (which >= 0) & present(media.field("offset"))
    files: list[FileEntry] = []
    errors: dict[int, DataError] = {}
    names = paths.dictionary.to_pylist()
    for path, mine in zip(names, by_number(np.where(there, which, -1), len(names)), strict=True):
        try:
            archive = reader.media.archive(path)
        except BadReference as error:
            files.append(FileEntry(str(error.file)))
            if not isinstance(error.__cause__, StoreError):
                errors.update(dict.fromkeys(mine.tolist(), error))
            continue
        files.append(FileEntry(archive.name, "", archive.size_bytes))
        for item in mine[((offset < 0) | (length < 0))[mine]].tolist():
            errors[item] = outside(archive, int(offset[item]), int(length[item]))
    there[list(errors)] = False
    file = np.where(there, which, 0).astype(np.int32)
    codec = CODECS.index(reader.codec)
    return make_refs(offset, length, file=file, codec=codec, valid=there), files, errors


def _count_missing(media: pa.StructArray, content: pa.Array) -> int:
    """Return the number of media without record and bytes."""
    named = present(media.field("path")) & present(media.field("offset"))
    return int(np.count_nonzero(~named & ~present(content)))


def _types(media: pa.StructArray, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    types = media.field("type") if media.type.get_field_index("type") >= 0 else pa.nulls(len(media))
    found = np.asarray(_cast(types, pa.int64(), "media.type").fill_null(-1).to_numpy(), np.int64)
    wrong = np.flatnonzero((found < 0) | (found >= len(_MODALITIES) - _FIRST_TYPE))
    if len(wrong):
        at = int(wrong[0])
        raise DataError("a media of an unknown type", column="media.type", row=int(rows[at]), found=types[at].as_py(),
                        expected="0 (image), 1 (video), 2 (audio) or 3 (document)",
                        advice="Take the documents as samples.")  # fmt: skip
    return found


def _texts(documents: pa.RecordBatch) -> pa.Array:
    return _column_of_texts(documents, "text").fill_null("")


def _ids(documents: pa.RecordBatch, rows: NDArray[np.int64], name: str) -> pa.Array:
    """Return ids of documents as texts; a missing id becomes file and row, as in the peer."""
    ids = _column_of_texts(documents, "id")
    return ids if not ids.null_count else pc.coalesce(ids, pa.array([f"{name}/{row}" for row in rows.tolist()]))


def _column_of_texts(documents: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column as texts; a JSON column, needed because of other documents, gives the text of its values."""
    at = documents.schema.get_field_index(name)
    if at < 0:
        return pa.nulls(len(documents), pa.string())
    given = documents.column(at)
    if feature_of(documents.schema.field(at)).is_json:
        values = [None if text is None else json_text.loads(text) for text in given.to_pylist()]
        texts = [
            v if v is None or (isinstance(v, str) and json_text.is_unicode(v)) else json_text.dumps(v) for v in values
        ]
        return pa.array(texts, pa.string())
    return _cast(given, pa.string(), name)


def _cast(values: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Return the values in this type. Raises SchemaMismatch, naming the column, if a value has no such form."""
    try:
        return cast(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch("a value does not fit an item's column", column=name, expected=kind, found=values.type,
                             advice="Take the documents as samples.") from error  # fmt: skip


def _at(values: pa.Array, places: NDArray[np.int64]) -> pa.Array:
    """Return the values at these places; null if the place is negative."""
    return values.take(pa.array(places, mask=places < 0))


def _refuse_neighbours(items: pa.RecordBatch, last: object) -> object:
    """Raise DataError for neighbouring documents with one id; return the id of the last document."""
    ids = items.column("sample_id").filter(pc.equal(items.column("modality"), _MODALITIES[_METADATA]))
    repeated = pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    if ids[0].as_py() == last or repeated.any():
        repeated_id = ids[0].as_py() if ids[0].as_py() == last else ids[int(np.argmax(repeated))].as_py()
        raise DataError("two documents that follow each other have one id, and their items would be one sample",
                        column="id", found=repr(repeated_id), advice="Give them ids of their own.")  # fmt: skip
    return ids[-1].as_py()


def _report_missing(counts: Counter[str], missing: int, before: MediaStats, after: MediaStats) -> None:
    """Count media without record, and those whose record was unavailable; warn unless a reader warned already."""
    failed, untold = after.failed - before.failed, missing - (after.missing - before.missing)
    counts.update({name: count for name, count in ((MISSING, missing), (FAILED, failed)) if count})
    if untold:
        warnings.warn(f"{untold} media name no path or no offset and have no bytes", stacklevel=3)


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    return pa.schema([f for f in schema if f.name in columns or f.name == "sample_id"], metadata=schema.metadata)


def _aligned(items: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return the items with these columns; references stay, and so do bytes."""
    for i, field in enumerate(items.schema):
        at = target.get_field_index(field.name)
        if at >= 0 and feature_of(target.field(at)).is_json and not feature_of(field).is_json:
            # JSON because other shards hold other types in this column.
            values = items.column(i)
            texts = pc.if_else(values.is_valid(), json_text.dumps_each(values), pa.scalar(None, pa.large_string()))
            items = items.set_column(i, target.field(at), texts.cast(target.field(at).type))
    own = items.schema.field("binary_content").type
    at = target.get_field_index("binary_content")
    return align_table(items, target if at < 0 else target.set(at, target.field(at).with_type(own)))
