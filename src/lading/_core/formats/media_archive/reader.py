"""Read documents with their media. See `_core.formats.media_archive.format`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import present, row_bytes
from lading._core.content.documents import (
    BYTES,
    FAILED,
    MISSING,
    PLACE,
    document_columns,
    documents_of,
    media_parts,
    stored_columns,
    with_bytes,
)
from lading._core.formats.base import DEFAULT_SCAN, DocumentReader, Scan, ShardFile, ShardReader, Units
from lading._core.formats.format import MEDIA_FOLDER, ROOTS
from lading._core.formats.mapped import selected_rows
from lading._core.formats.registry import get_format
from lading._core.media.reader import MediaReader, RecordReader
from lading._core.media.warc import WarcReader
from lading._core.storage.roots import folder_of
from lading._core.storage.stores import resolve
from lading.errors import LadingError, UsageError, errors_at

__all__ = ["FAILED", "MISSING", "MediaArchiveReader", "ReadOptions", "documents_format"]

"""Names of the counts of media."""

_MAGIC_BYTES = 4
"""Magic of Parquet, at both of its ends."""
_LOCATED_ROWS, _LOCATED_BYTES = 256, 8 << 20
"""Documents that are processed together: their records are read one by one."""
_FILLED_BYTES = 8 << 20
"""Bytes of media of a batch: they exist twice meanwhile, as unpacked records and as a column."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How documents and their media are read.

    Attributes:
        media: Folder or URL of the archives. By default the folder of the documents.
        archives: `zstd`, `none` (uncompressed records) or `warc`.
        workers: Threads that read records.
        offset_byte_size: Bytes of the length prefix of version 1.
        on_error: A media record that is unavailable is an `error`; or `warn` gives no bytes, and counts it.
        roots: Further folders that paths of media may lead to. Absolute paths and URLs may lead there only.
        check_digests: Compare records of web archives with their `WARC-Block-Digest`. `verify --deep` does so.
    """

    media: str | None = field(default=None, metadata=MEDIA_FOLDER)
    archives: Literal["zstd", "none", "warc"] = "zstd"
    workers: int = 1
    offset_byte_size: int = 4
    on_error: Literal["error", "warn"] = "error"
    roots: str | Sequence[str] = field(default=(), metadata=ROOTS)
    check_digests: bool = False

    def __post_init__(self) -> None:
        """Refuse unknown words; accept a single root as a list of one, not of its letters."""
        if isinstance(self.roots, str):
            object.__setattr__(self, "roots", (self.roots,))
        if self.archives not in ("zstd", "none", "warc"):
            raise UsageError("no such archives", expected="zstd, none or warc", found=f"archives={self.archives!r}")


class MediaArchiveReader(DocumentReader):
    """An open file of documents, and the archives that hold their media.

    Attributes:
        counts: reports of the last complete pass, by a short phrase.
        path: name of the documents' file.
        media: reader of the records.
        options: read options.
        codec: compression of records, as references name it.
    """

    def __init__(self, source: ShardFile, options: ReadOptions) -> None:
        self.path, self.options = source.path, options
        documents = documents_format(source)
        self._sparse = documents == "jsonl"
        self.declares_types = not self._sparse
        fmt = get_format(documents)
        self._documents: ShardReader = fmt.open(source, fmt.read_options({}))
        self.media = _record_reader(source, options)
        self.codec = "" if options.archives == "none" else "zstd-magicless"
        self._schema: pa.Schema | None = None
        self._kept = None if source.stored_schema is None else source.stored_schema.names

    def schema(self) -> pa.Schema:
        """Return the columns of documents; for JSON Lines this takes a pass over the file."""
        if self._schema is None:
            with errors_at(file=self.path):
                self._schema = self._columns(self._documents.schema())
        return self._schema

    def first_schema(self) -> pa.Schema | None:
        """Return the columns of the first documents; None if there are none."""
        found = self._documents.first_schema()
        with errors_at(file=self.path):
            return None if found is None else self._columns(found)

    def select(self, rows: NDArray[np.int64]) -> bool:
        """Read these documents alone."""
        self._documents = selected_rows(self._documents, rows)
        return True

    def _columns(self, schema: pa.Schema) -> pa.Schema:
        return document_columns(schema, sparse=self._sparse, kept=self._kept)

    def num_rows(self) -> int:
        """Return the number of documents."""
        return self._documents.num_rows()

    def index(self) -> pa.Table:
        """Return that of the documents' file: the documents hold the locations of records."""
        return self._documents.index()

    def units(self) -> Units | None:
        """Return those of the documents' file."""
        return self._documents.units()

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return documents by ordinal with their media; only their records are read."""
        if rows is not None and scan.schema is not None and not self.declares_types:
            found = list(self.filled(self.read_located(rows, scan), None))
            return pa.Table.from_batches(found, _chosen(scan.schema, scan.columns))
        batches = self._documents.read(rows, Scan(self._stored(scan.columns))).combine_chunks().to_batches()
        schema = _chosen(self.schema(), scan.columns)
        found = [part for batch in self._shaped(batches, schema, rows) for part in self.filled(batch, None)]
        return pa.Table.from_batches(found, schema)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all documents in order with the bytes of their media; without the column `media`, no record is read.

        Peak memory: `max_bytes` of media twice, and of 2 × `workers` documents.

        Raises:
            CorruptShard, DuplicateField: a line, or its media, are invalid.
            BadReference, CorruptShard, LimitExceeded: a record is unavailable; not with `on_error="warn"`.
        """
        given = None if self.declares_types else scan.schema
        yield from self._all(self.located(replace(scan, schema=given)), scan.max_bytes)

    def _all(self, located: Iterator[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
        before = self.media.stats
        for batch in located:
            yield from self.filled(batch, min(max_bytes, _FILLED_BYTES))
        after = self.media.stats
        if missing := after.missing - before.missing:
            self.counts[MISSING] += missing
        if failed := after.failed - before.failed:
            self.counts[FAILED] += failed

    def located(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all documents in order, their media without bytes except inline ones.

        With a schema, they have its columns in its types.
        """
        typed = None if scan.schema is None or self.declares_types else stored_columns(scan.schema)
        stored = self._stored(scan.columns) if typed is None else scan.columns
        inner = replace(scan.at_most(_LOCATED_ROWS, _LOCATED_BYTES), columns=stored, schema=typed, views=False)
        chosen = _chosen(self.schema() if scan.schema is None else scan.schema, scan.columns)
        yield from self._shaped(self._documents.batches(inner), chosen, None)
        self.counts = Counter(self._documents.counts)

    def read_located(self, rows: NDArray[np.int64], scan: Scan = DEFAULT_SCAN) -> pa.RecordBatch:
        """Return documents by ordinal, as `located` yields them."""
        typed = None if scan.schema is None or self.declares_types else stored_columns(scan.schema)
        stored = self._stored(scan.columns) if typed is None else scan.columns
        table = self._documents.read(rows, Scan(stored, typed))
        found, chosen = table.combine_chunks().to_batches(), _chosen(scan.schema or self.schema(), scan.columns)
        return (
            next(self._shaped(found, chosen, rows))
            if found
            else pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in chosen.types], schema=chosen)
        )

    def is_ranges(self, documents: pa.RecordBatch) -> bool:
        """Return whether the bytes of all media are ranges of archives, so that no read is needed to locate them.

        False with `on_error="warn"`: only reading a record shows whether it is available.
        """
        if self.options.archives == "warc" or self.options.on_error == "warn" or "media" not in documents.schema.names:
            return False
        items, _ = media_parts(documents.column("media"))
        path, offset, length = (present(items.field(name)) for name in PLACE)
        return not bool((path & offset & ~length).any() or present(items.field(BYTES)).any())

    def close(self) -> None:
        """Close open files."""
        self._documents.close()
        self.media.close()

    def _shaped(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield each batch with these columns; errors name the file's row numbers in `rows`; None is all."""
        row = 0
        for batch in batches:
            try:
                with errors_at(file=self.path, first_row=row):
                    shaped = documents_of(batch, schema)
            except LadingError as error:
                if rows is not None and error.row is not None:
                    error.row = int(rows[error.row])
                raise
            yield shaped
            row += len(batch)

    def _stored(self, columns: Sequence[str] | None) -> list[str] | None:
        """Return the existing ones of the requested columns; at least one, to count rows by."""
        if columns is None:
            return None
        names = self._documents.schema().names
        return [name for name in dict.fromkeys(columns) if name in names] or names[:1]

    def filled(self, batch: pa.RecordBatch, max_bytes: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the documents with the bytes of their media, in parts within the limit."""
        if "media" not in batch.schema.names:
            yield batch
            return
        at = batch.schema.get_field_index("media")
        sizes = row_bytes(batch)
        first = held = 0
        content: list[bytes | None] = []
        for row, found in enumerate(self._read(batch)):
            more = int(sizes[row]) + sum(map(len, filter(None, found)))
            if max_bytes is not None and row > first and held + more > max_bytes:
                yield _put(batch.slice(first, row - first), at, content)
                first, held, content = row, 0, []
            content += found
            held += more
        yield _put(batch.slice(first), at, content)

    def _read(self, batch: pa.RecordBatch) -> Iterator[list[bytes | None]]:
        """Return the bytes of each document's media; None if they are inline, or missing everywhere."""
        media = batch.column("media")
        items, bounds = media_parts(media)
        named = [name for name in ("id", *PLACE) if items.type.get_field_index(name) >= 0]
        locations = zip(*(items.field(name).to_pylist() for name in named), strict=True)
        there = present(items.field(BYTES)).tolist()
        ids = batch.column("id").to_pylist() if "id" in batch.schema.names else [None] * len(batch)
        flat = [{**dict(zip(named, one, strict=True)), BYTES: b"" if own else None}
                for one, own in zip(locations, there, strict=True)]  # fmt: skip
        ends = bounds.tolist()
        documents = ({"id": ids[i], "media": flat[ends[i] : ends[i + 1]]} for i in range(len(batch)))
        for document in self.media.run(documents):
            yield [one[BYTES] if one["path"] is not None and one["offset"] is not None else None
                   for one in document["media"]]  # fmt: skip


def documents_format(source: ShardFile) -> Literal["jsonl", "parquet"]:
    """Return the format of a file of documents: Parquet by its name, or by the magic at either end."""
    parquet = get_format("parquet")
    if parquet.matches(source.path, b""):
        return "parquet"
    source, info = source.pinned()
    size = info.size_bytes
    most = min(size, _MAGIC_BYTES)
    ends = source.get_ranges([(0, most), (size - most, most)])
    return "parquet" if any(parquet.matches(source.path, bytes(end)) for end in ends) else "jsonl"


def _put(batch: pa.RecordBatch, at: int, content: list[bytes | None]) -> pa.RecordBatch:
    return batch.set_column(at, batch.schema.field(at), with_bytes(batch.column(at), content))


def _record_reader(source: ShardFile, options: ReadOptions) -> RecordReader:
    """Return a reader of the records in the archives of these documents."""
    folder = options.media if options.media is not None else folder_of(source.place) or "."
    # The documents' store serves names with its own scheme. Without a scheme it would serve all names.
    scheme = _scheme(source.place)
    others = {} if scheme else {url: resolve(url, source.stores)[0] for url in (folder, *options.roots) if _scheme(url)}
    own = {f"{scheme}://" if scheme else "": source.place_store}
    stores = source.stores.and_for({**others, **own})
    kept: dict[str, Any] = {"preserve_order": True, "on_error": options.on_error, "roots": list(options.roots),
                            "stores": stores, "limits": source.limits}  # fmt: skip
    if options.archives == "warc":
        return WarcReader(folder, options.workers, check_digests=options.check_digests, **kept)
    return MediaReader(folder, workers=options.workers, offset_byte_size=options.offset_byte_size,
                       codec=options.archives, **kept)  # fmt: skip


def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    """Return the existing requested columns, in the given order."""
    known = dict.fromkeys(schema.names)
    wanted = known if columns is None else [name for name in dict.fromkeys(columns) if name in known]
    return pa.schema([schema.field(name) for name in wanted], metadata=schema.metadata)


def _scheme(url: str) -> str:
    return url.partition("://")[0] if "://" in url else ""
