"""Open a shard as a view; detect the view of a shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lading._core.arrow.rebatch import HELD_BATCHES, rebatched
from lading._core.content.documents import is_documents
from lading._core.features.items import VIEWS, is_interleaved_schema
from lading._core.features.row_layout import row_layout
from lading._core.features.stored_values import rows_schema
from lading._core.formats.base import Ranges, Recoverable, Recovered, Scan, ShardFile, ShardReader, ShardWriter
from lading._core.formats.format import AnyFormat
from lading._core.formats.hive_partitions import WITHOUT_PARTITIONS, with_partition
from lading._core.formats.mapped import selected_rows
from lading._core.formats.stored_types import with_stored_types
from lading._core.interleaved.document_rows import SampleForm, documents_of_rows, documents_schema
from lading._core.interleaved.documents import ITEMS_COLUMN, DocumentsView, FromDocuments, PackedForm
from lading._core.interleaved.documents_writer import ITEM_DOCUMENTS, documents_of_items
from lading._core.interleaved.grouped import grouped
from lading._core.interleaved.packed import PACKED_SCHEMA, PackedView, is_packed_schema
from lading._core.interleaved.packed_writer import check_columns, pack
from lading._core.interleaved.references import Follower
from lading._core.interleaved.rows import ItemsView
from lading._core.interleaved.tar import TarDocuments, looks_interleaved
from lading._core.interleaved.tar_recover import recover_documents
from lading._core.interleaved.tar_writer import Roles, TarDocumentsWriter
from lading._core.storage.base import Sink
from lading._core.storage.fetch import ERROR_COLUMN, Fetcher, earlier_errors
from lading.errors import LadingError, Unrepresentable, UsageError
from lading.options import InterleavedOptions

__all__ = [
    "create_view_shard",
    "detect_view",
    "joined_batches",
    "open_view",
    "packer",
    "recover_shard",
    "stored_errors",
]

_MEMBERS = pa.schema([pa.field("__key__", pa.string())])


def open_view(  # noqa: PLR0913, PLR0917 - what a dataset knows of its shards
    fmt: AnyFormat,
    source: ShardFile,
    view: str,
    fetcher: Fetcher,
    follower: Follower,
    options: Any,
    interleaved: InterleavedOptions,
    schema: pa.Schema | None = None,
    members: pa.Schema | None = None,
    reader: ShardReader | None = None,
) -> ShardReader:
    """Open one shard as one of `VIEWS`.

    Args:
        fmt: format of the shard.
        source: the shard.
        view: one of `VIEWS`.
        fetcher: reads references.
        follower: finds the files of `source_ref` texts.
        options: read options of the format.
        interleaved: names of fields and policies for interleaved data.
        schema: schema of the rows, if their writer stored it.
        members: meaning of the members of tars, if known; names have the case in which they are written.
        reader: an open reader of the shard with these options, in which `detect_view` has looked; None opens one.
    """
    of_items = row_layout(view).has_items
    if not of_items and members is None and schema is not None:
        source = replace(source, stored_schema=schema)
    reader, rows = reader or fmt.open(source, source.options_over(options)), source.rows
    if rows is not None and reader.select(rows):
        rows = None
    packed = _packed_rows(reader) if of_items and reader.member_reader is None else None
    if source.partition:
        if packed is not None:
            raise UsageError("packed items have no columns of partitions", file=source.path, advice=WITHOUT_PARTITIONS)
        reader = with_partition(reader, source.partition, source.path)
    if not of_items:
        return selected_rows(_restoring(reader, fetcher, members, source.path), rows)
    if reader.member_reader is not None:
        return TarDocuments(reader.member_reader, fetcher, source, interleaved, schema)
    if packed is not None:
        return PackedView(selected_rows(packed, rows), source.path, interleaved, schema)
    if reader.document_reader is not None:
        first_row = 0 if source.span is None else source.span.first_row
        return DocumentsView(reader.document_reader, interleaved, fetcher, first_row)
    items = selected_rows(reader, rows)
    return ItemsView(grouped(items) if interleaved.regroup else items, source.place, interleaved, follower, fetcher)


def joined_batches(reader: ShardReader, scan: Scan, *, remote: bool) -> Iterator[pa.RecordBatch]:
    """Return the rows of a shard in order; with `views`, in batches as large as the limits allow (`rebatched`).

    Args:
        reader: the shard.
        scan: what to read.
        remote: whether it is in a store of high latency.
    """
    if not (scan.views and reader.may_join):
        return reader.batches(scan)
    held = scan.max_bytes // HELD_BATCHES
    batches = reader.batches(replace(scan, max_bytes=held))
    # Payload of a remote shard may be held since the walk over its headers: a batch waits for no more than that.
    return rebatched(batches, scan.max_rows, held, held if remote else scan.max_bytes)


def _restoring(reader: ShardReader, fetcher: Fetcher, rows: pa.Schema | None, path: str) -> ShardReader:
    """Return a reader that restores the original rows of a shard that stores them in another form."""
    if rows is None:
        return reader.as_asked(fetcher) or reader
    if reader.document_reader is not None:
        return FromDocuments(reader.document_reader, SampleForm(rows))
    return reader.as_written(rows, fetcher) or with_stored_types(reader, rows_schema(rows), path)


def _packed_rows(reader: ShardReader) -> ShardReader | None:
    """Return the rows of a shard with one row an interleaved sample; None if the shard is different."""
    if reader.document_reader is not None:
        return FromDocuments(reader.document_reader, PackedForm()) if _were_items(reader.first_schema()) else None
    return reader if reader.declares_types and is_packed_schema(reader.schema()) else None


def _were_items(documents: pa.Schema | None) -> bool:
    return documents is not None and {ITEMS_COLUMN, "media"} <= {*documents.names}


def recover_shard(
    fmt: AnyFormat,
    source: ShardFile,
    view: str,
    *,
    options: Any,
    interleaved: InterleavedOptions,
    schema: pa.Schema | None,
    error: LadingError | None,
) -> Recovered | None:
    """Return the whole units of a damaged file, taken as a view; None if there is nothing to mend.

    Args:
        fmt: format of the file.
        source: the file, not compressed, on a store that can map.
        view: one of `VIEWS`.
        options: options of reading, parsed.
        interleaved: names of fields and policies for interleaved data.
        schema: schema of the rows, if their writer stored it.
        error: the reader's error; None if the file was read to its end.

    Raises:
        DataError: nothing of the file can be read.
    """
    layout = row_layout(view)
    if layout.is_stored_as_members(fmt.info):
        return recover_documents(fmt, source, interleaved, error)
    if not isinstance(fmt, Recoverable):
        return None
    # Packed items and documents are stored as rows with other columns.
    kept = schema if layout.types_by_format and fmt.info.interleaved != "documents" else None
    return fmt.recover(source, options, schema=kept, failed=error is not None)


def stored_errors(view: ShardReader) -> set[int]:
    """Return rows of a shard with an error recorded by an earlier job: their data were lost before.

    Tars of documents and documents with media store no errors: the errors of their rows are new.
    """
    if not view.has_errors:
        return set()
    stored, at = set(), 0
    for batch in view.batches(Scan([ERROR_COLUMN])):
        stored |= {at + row for row in earlier_errors(batch)}
        at += len(batch)
    return stored


Packer = Callable[[pa.RecordBatch, Ranges], tuple[pa.RecordBatch, Ranges]]
"""Convert rows of a view, and the file ranges of their values, to rows of a format."""


def packer(fmt: AnyFormat, view: str, schema: pa.Schema) -> tuple[Packer, pa.Schema] | None:
    """Return the packer for rows of a view in a format, and the packed schema; None if rows stay unchanged."""
    of_items = row_layout(view).has_items
    if fmt.info.interleaved == "documents":
        if of_items:
            return _in_memory(documents_of_items), ITEM_DOCUMENTS
        return None if is_documents(schema) else (_in_memory(documents_of_rows), documents_schema(schema))
    return (pack, PACKED_SCHEMA) if of_items and fmt.info.interleaved == "packed" else None


def _in_memory(pack_rows: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Packer:
    """Return a packer for writers that cannot copy from files."""
    return lambda batch, ranges: (pack_rows(batch), ranges)


def create_view_shard(
    fmt: AnyFormat, sinks: Sequence[Sink], schema: pa.Schema, view: str, options: Any, roles: Roles
) -> ShardWriter:
    """Create one shard for rows of a view, in these files, its own first. It takes rows as `packer` makes them.

    Raises:
        Unrepresentable: a column that the format cannot hold.
        UsageError: encodings for columns that packed items do not have.
    """
    packing, layout = packer(fmt, view, schema), row_layout(view)
    if packing is not None and layout.has_items:
        if encodings := getattr(options, "columns", None):
            raise UsageError("packed items have the encodings of their layout", found=f"columns={encodings!r}")
        check_columns(schema)
    schema = schema if packing is None else packing[1]
    if layout.is_stored_as_rows(fmt.info):
        return fmt.create(sinks, schema, options)
    writer = fmt.create(sinks, _MEMBERS, options)
    if writer.member_writer is None:
        raise Unrepresentable(f"the format {fmt.name} has no layout for interleaved samples")
    return TarDocumentsWriter(writer.member_writer, schema, roles)


def detect_view(
    reader: ShardReader, fetcher: Fetcher, source: ShardFile, interleaved: InterleavedOptions
) -> str | None:
    """Return the view that a shard's first samples imply; None if undecided, as for an empty shard."""
    if reader.member_reader is not None:
        found = looks_interleaved(reader.member_reader, fetcher, source, interleaved)
        return None if found is None else VIEWS[found]
    schema = reader.first_schema()
    if schema is None:
        return None
    documents = reader.document_reader is not None and _were_items(schema)
    return VIEWS[documents or is_interleaved_schema(schema) or is_packed_schema(schema)]
