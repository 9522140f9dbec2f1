"""Write documents, and their media as records of an archive. See `_core.formats.media_archive.format`."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.views import is_text, present, slices
from lading._core.codecs import ENDINGS
from lading._core.content.documents import (
    BYTES,
    PLACE,
    PLAIN_ROWS,
    document_columns,
    documents_of,
    media_parts,
    stored_columns,
    stored_media,
    with_fields,
)
from lading._core.features.types import decode, feature_of
from lading._core.formats.base import ShardFacts, ShardWriter
from lading._core.formats.registry import get_format
from lading._core.formats.text_lines import check_compression
from lading._core.media.ahead import Pace, map_ahead
from lading._core.media.writer import RecordPacker, check_level
from lading._core.storage.base import Sink, extents_of
from lading.errors import CorruptShard, SchemaMismatch, Unrepresentable, UsageError, errors_at

__all__ = ["MediaArchiveWriter", "WriteOptions"]

_GROUP_BYTES = 2 << 20
"""Media that a thread takes at once."""
_HELD_BYTES = 8 << 20
"""Records that are held before they are written."""

_ADVICE = "Open documents with --from media_archive: their nulls are read as empty."
_LINES_ADVICE = "Write documents as Parquet with --to-option documents=parquet."
_PLACE_ADVICE = "Read documents that have archives with --from media_archive; else leave these fields out."


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How documents and their media are written.

    Attributes:
        documents: `jsonl` or `parquet`.
        compression: Compression of JSON Lines: `gzip` (in members of some 128 KB), `zstd`, `bz2`, `xz`, or none.
        compression_level: Level of each record, a zstd frame.
        workers: Threads that compress. The bytes are the same with any number.
        content_size: Write the unpacked size into each frame. datatrove reads such frames.
        checksum: Write a checksum into each frame, so that damage is found. datatrove reads such frames.
    """

    documents: Literal["jsonl", "parquet"] = "jsonl"
    compression: str | None = "gzip"
    compression_level: int = 3
    workers: int = 1
    content_size: bool = False
    checksum: bool = False

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        if self.documents not in ("jsonl", "parquet"):
            raise UsageError("no such file of documents", expected="jsonl or parquet", found=repr(self.documents))
        if self.workers < 1:
            raise UsageError("workers must be 1 or more", expected="at least one worker", found=self.workers)
        check_compression(self.compression)
        check_level(self.compression_level)

    @property
    def ending(self) -> str:
        """Return the ending of the names of documents' files."""
        return ".parquet" if self.documents == "parquet" else ".jsonl" + ENDINGS.get(self.compression or "", "")


class MediaArchiveWriter(ShardWriter):
    """Write documents, and the archive of their media. Memory: that of the documents' file.

    Args:
        sinks: sinks of the documents and of the archive.
        schema: schema of the documents.
        options: write options.

    Raises:
        Unrepresentable: rows that are not documents; a column `media` that does not hold media; a column, or a field of
            media, that the file of documents cannot hold.
    """

    def __init__(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> None:
        self._documents_sink, self._archive = sinks
        self._columns = _columns(schema)
        self._no_places = [name for name in PLACE if not _is_place(schema, name)]
        self._as_text = options.documents == "jsonl"
        if "media" not in schema.names:
            raise Unrepresentable("rows without a list of media are not documents", column="media",
                                  expected="media: list of structs with media_bytes", found=", ".join(schema.names),
                                  advice="Give it interleaved samples, or rows with such a column.")  # fmt: skip
        if self._as_text:
            at = self._columns.get_field_index("media")
            field = self._columns.field(at)
            stored = pa.list_(stored_media(field.type.value_type))
            self._columns = self._columns.set(at, field.with_type(stored))
        self._written = stored_columns(self._columns) if self._as_text else self._columns
        write_options: Mapping[str, Any] = {"compression": options.compression} if self._as_text else {}
        try:
            fmt = get_format(options.documents)
            self._documents: ShardWriter = fmt.create(
                [self._documents_sink], self._written, fmt.write_options(write_options)
            )
        except Unrepresentable as error:
            if self._as_text and fmt.name == "jsonl":  # its options belong to JSON Lines alone
                error.advice = _LINES_ADVICE
            raise
        self._packer = RecordPacker(options.compression_level, content_size=options.content_size,
                                    checksum=options.checksum, plain=False)  # fmt: skip
        self._pace: Pace[memoryview] = Pace(options.workers, ordered=True, weigh=len, group_weight=_GROUP_BYTES)
        self._name = posixpath.basename(self._archive.path)
        self._rows = self._archived = self._payload = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append documents.

        Raises:
            Unrepresentable: a null where documents have none; invalid media, or media that already have locations;
                names row and column. Or as the file of documents raises.
        """
        if PLAIN_ROWS not in (self._columns.metadata or {}):
            self._refuse_nulls(batch)
        try:
            with errors_at(first_row=self._rows):
                rows = documents_of(batch, self._columns)
        except CorruptShard as error:
            raise Unrepresentable(error.message, column=error.column, row=error.row, expected=error.expected,
                                  found=error.found) from None  # fmt: skip
        at = rows.schema.get_field_index("media")
        self._refuse_places(rows.column(at))
        media = self._placed(rows.column(at))
        columns = [*rows.columns[:at], _texts(media) if self._as_text else media, *rows.columns[at + 1 :]]
        self._documents.write(pa.RecordBatch.from_arrays(columns, schema=self._written))
        self._rows += len(rows)

    def _refuse_nulls(self, batch: pa.RecordBatch) -> None:
        for name in ("text", "media", "metadata"):
            at = batch.schema.get_field_index(name)
            column = batch.column(at) if at >= 0 else None
            if column is not None and column.null_count:
                row = self._rows + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
                raise Unrepresentable("a document's text, media and metadata are empty, and not null", column=name,
                                      row=row, file=self._documents_sink.path, advice=_ADVICE)  # fmt: skip

    def _refuse_places(self, media: pa.Array) -> None:
        """Raise Unrepresentable for values in the fields of record locations."""
        items, bounds = media_parts(media)
        for name in self._no_places:
            found = items.field(name)
            if found.null_count < len(found):
                first = int(np.argmax(present(found)))
                row = self._rows + int(np.searchsorted(bounds, first, "right")) - 1
                raise Unrepresentable("this field of media says where their record is written, and nothing else",
                                      column=f"media.{name}", row=row, found=repr(found[first].as_py())[:40],
                                      file=self._documents_sink.path, advice=_PLACE_ADVICE)  # fmt: skip

    def _placed(self, media: pa.Array) -> pa.Array:
        """Return the media with the locations of their written records instead of their bytes."""
        items, bounds = media_parts(media)
        content = slices(items.field(BYTES))
        size = np.zeros(len(content), np.int64)
        there = np.array([data is not None for data in content], np.bool_)
        row = self._rows + np.repeat(np.arange(len(media)), np.diff(bounds))
        frames: list[bytes] = []
        held = first = 0
        packed = map_ahead(self._pack, [data for data in content if data is not None], self._pace)
        for i, (payload, record) in zip(np.flatnonzero(there).tolist(), packed, strict=True):
            frames += record
            size[i] = sum(map(len, record))
            held += int(size[i])
            self._payload += payload
            if held >= _HELD_BYTES:  # records of a whole batch would take as much memory as the batch
                self._append(frames, size[first : i + 1], row[first : i + 1])
                frames, held, first = [], 0, i + 1
        begin = self._archived - int(size[:first].sum())
        self._append(frames, size[first:], row[first:])
        offset = begin + np.cumsum(size) - size
        places = {
            "path": pa.array([self._name]).take(pa.array(np.zeros(len(size), np.int32), mask=~there)),
            "offset": pa.array(offset, mask=~there),
            "length": pa.array(size, mask=~there),
            BYTES: pa.nulls(len(size), pa.large_binary()),
        }
        return with_fields(media, places)

    def _append(self, frames: Sequence[bytes], size: NDArray[np.int64], row: NDArray[np.int64]) -> None:
        """Append records of media to the archive: their frames, sizes and rows."""
        extents_of(self._archive).mark(self._archived + np.cumsum(size), row)
        self._archive.write(frames)
        self._archived += int(size.sum())

    def _pack(self, data: memoryview) -> tuple[int, Sequence[bytes]]:
        return self._packer.pack(data, None)

    def bytes_written(self) -> int:
        """Return the bytes of both files so far."""
        return self._documents.bytes_written() + self._archived

    def held_bytes(self) -> int:
        """Return what the file of documents holds: the archive has every record."""
        return self._documents.held_bytes()

    def close(self) -> ShardFacts:
        """Finish the file of documents."""
        facts = self._documents.close()
        return ShardFacts(
            self._rows, facts.size_bytes, facts.payload_bytes + self._payload, beside_bytes=self._archived
        )


def _columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of documents with this schema. Raises Unrepresentable for a column `media` without media."""
    field = schema.field("media") if "media" in schema.names else None
    try:
        if field is None or not is_text(field.type) or feature_of(field).is_json:
            return document_columns(schema, sparse=False)
    except SchemaMismatch:
        pass  # named as it is, for the writer's caller
    raise Unrepresentable(
        "documents have a column of this name, and it holds media",
        column="media",
        expected="a list of structs with media_bytes",
        found=str(schema.field("media").type)[:200],
    )


def _is_place(schema: pa.Schema, name: str) -> bool:
    """Return whether a field of media is known to locate old records, so that it is replaced."""
    kind = schema.field("media").type if "media" in schema.names else None
    if not isinstance(kind, (pa.ListType, pa.LargeListType)) or not isinstance(kind.value_type, pa.StructType):
        return False
    at = kind.value_type.get_field_index(name)
    return at >= 0 and not feature_of(kind.value_type.field(at)).is_content


def _texts(media: pa.Array) -> pa.Array:
    """Return lists of media as JSON texts."""
    items, bounds = media_parts(media)
    feature = feature_of(pa.field("media", items.type))
    objects = [decode(feature, one) for one in items.to_pylist()]
    ends = bounds.tolist()
    return pa.array([json_text.dumps(objects[a:b]) for a, b in pairwise(ends)], pa.string())
