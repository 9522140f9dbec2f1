"""Convert rows of samples to documents with media (`_core.formats.media_archive.format`), and back.

    media           one for each value of a bytes column: `id` is the column, `type` its feature
    other columns   columns of the document, unchanged

An image with its caption becomes a document with one media. The manifest records that these were rows, and their types;
without a manifest, they are documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.align import align_table
from lading._core.arrow.byte_ranges import ByteRanges, as_view
from lading._core.arrow.references import FileEntry, ref_field, with_files
from lading._core.arrow.views import is_bytes, is_text, join, places, present, take_bytes
from lading._core.content.documents import MEDIA, PLAIN_ROWS, media_lists, media_parts
from lading._core.features.stored_values import is_payload_field, rows_schema
from lading._core.features.types import feature_of
from lading._core.formats.text_lines import without_dictionary
from lading._core.interleaved.documents import Contents, DocumentForm
from lading.errors import DataError

__all__ = [
    "SampleForm",
    "documents_of_rows",
    "documents_schema",
]

_TYPES = ("image", "video", "audio")
_OTHER = len(_TYPES)
_LARGE_BYTES = 4 << 10
"""Values of this average size are copied one by one."""


def documents_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the documents for rows of this schema."""
    others = [field for field in schema if not is_payload_field(field)]
    return pa.schema([*others, pa.field("media", pa.list_(MEDIA))], metadata={PLAIN_ROWS: b""})


def documents_of_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return documents of `documents_schema`. Memory: a copy of the payload, if it comes as views."""
    schema = documents_schema(batch.schema)
    columns = [batch.column(field.name) for field in schema if field.name != "media"]
    return pa.RecordBatch.from_arrays([*columns, _media(batch)], schema=schema)


def _media(batch: pa.RecordBatch) -> pa.ListArray:
    """Return the values of bytes columns as media of their rows, by column."""
    fields = [field for field in batch.schema if is_payload_field(field)]
    payload = [without_dictionary(batch.column(field.name)) for field in fields]
    there = np.array([present(column) for column in payload], np.bool_).reshape(len(fields), batch.num_rows)
    row, column = np.nonzero(there.T)
    media = [feature_of(field).medium for field in fields]
    kinds = [_OTHER if medium is None else _TYPES.index(medium) for medium in media]
    at = column * batch.num_rows + row
    ids = pa.array([field.name for field in fields], pa.string())
    bounds = np.concatenate([[0], np.cumsum(there.sum(axis=0))])
    which = pa.array(column)
    return media_lists(ids.take(which), pa.array(kinds, pa.int64()).take(which), _joined(payload, at), bounds)


def _joined(columns: Sequence[pa.Array], at: NDArray[np.int64]) -> pa.LargeBinaryArray:
    """Return values of columns, by their place when one column follows the other; large ones are copied once."""
    if columns and all(is_bytes(column.type) or is_text(column.type) for column in columns):
        found = ByteRanges.joined([places(column) for column in columns])[at]
        if int(found.length.sum()) >= _LARGE_BYTES * len(at):
            sources = [as_view(source) for source in found.sources]

            def copy(target: memoryview, source: int, offset: int) -> None:
                target[:] = sources[source][offset : offset + len(target)]

            return take_bytes(pa.array([], pa.large_binary()), found, at, copy)
    values = [join(column).cast(pa.large_binary()) for column in columns]
    return (pa.concat_arrays(values) if values else pa.array([], pa.large_binary())).take(pa.array(at))


class SampleForm(DocumentForm):
    """Rows of samples, with their original columns.

    Args:
        schema: schema of the rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._rows = rows_schema(schema)
        self.written = documents_schema(self._rows)

    def schema(self) -> pa.Schema:
        """Return the original columns, bytes as references."""
        fields = [ref_field(field) if is_payload_field(field) else field for field in self._rows]
        return pa.schema(fields, metadata=self._rows.metadata)

    def has_media(self, columns: Sequence[str] | None) -> bool:
        """Return whether a bytes column is among these."""
        return any(is_payload_field(field) for field in self._rows if columns is None or field.name in columns)

    def apply(
        self, documents: pa.RecordBatch, columns: Sequence[str] | None, contents: Contents, *, with_references: bool
    ) -> pa.RecordBatch:
        """Return the original rows. Raises DataError for a document with two media of one column."""
        own = self.schema() if with_references else self._rows
        target = pa.schema([field for field in own if columns is None or field.name in columns])
        found = {name: documents.column(name) for name in documents.schema.names if name != "media"}
        names = [field.name for field in target if is_payload_field(field)]
        payload, files = _payload(documents, names, contents)
        batch = align_table(pa.record_batch({**found, **payload}), target)
        return batch.replace_schema_metadata(with_files(target.with_metadata(self._rows.metadata), files).metadata)


def _payload(
    documents: pa.RecordBatch, names: Sequence[str], contents: Contents
) -> tuple[dict[str, pa.Array], list[FileEntry]]:
    """Return the columns of these names, with the files of their references."""
    if not names:
        return {}, []
    media, bounds = media_parts(documents.column("media"))
    content, files = contents(media)
    row = np.repeat(np.arange(len(documents)), np.diff(bounds))
    columns = {}
    for name in names:
        own = pc.fill_null(pc.equal(media.field("id"), name), fill_value=False)
        mine = np.flatnonzero(own.to_numpy(zero_copy_only=False))
        at = np.full(len(documents), -1)
        at[row[mine]] = mine
        if np.count_nonzero(at >= 0) < len(mine):
            raise DataError("a document has two media of one column", column=name)
        columns[name] = content.take(pa.array(at, mask=at < 0))
    return columns, files
