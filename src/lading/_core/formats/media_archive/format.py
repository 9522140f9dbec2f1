"""Media archives: documents in JSON Lines or Parquet, and the bytes of their media in archives next to them.

    00000.jsonl.gz       {"text": …, "id": …, "media": [{"id", "type", "url", "alt", "path", "offset", "length",
                         "media_bytes", "metadata"}, …], "metadata": {…}}   a line a document; or 00000.parquet
    000_00000.bin.zst    records, one behind the other (`_core.media.records`); `path` names the archive

A sample is a document: the columns of its file, with `media` as a list of structs that have the bytes from the archive
(`_core.content.documents`). Fields that a line omits are empty: text, media, metadata. A document without text is
kept, although the peer's readers skip it.

Any JSON Lines and any Parquet may hold documents, so a file alone is never detected: name the format. A folder that
holds archives too is detected.

Source: datatrove 0.10.1, pipeline/media, pipeline/readers/{jsonl,parquet}.py, pipeline/writers/{jsonl,parquet}.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.content.documents import is_documents
from lading._core.formats.base import Recoverable, Recovered, ShardFile, two_sinks
from lading._core.formats.format import Format, FormatInfo, Presets, Written
from lading._core.formats.media_archive.reader import MediaArchiveReader, ReadOptions, documents_format
from lading._core.formats.media_archive.recover import doubtful_documents
from lading._core.formats.media_archive.writer import MediaArchiveWriter, WriteOptions
from lading._core.formats.registry import get_format
from lading._core.formats.text_lines import open_text
from lading._core.storage.base import Sink

__all__ = ["FORMAT", "MediaArchiveFormat", "MediaArchiveReader", "MediaArchiveWriter", "ReadOptions", "WriteOptions"]


class MediaArchiveFormat(Format[ReadOptions, WriteOptions]):
    """Documents and media archives."""

    info = FormatInfo(
        name="media_archive",
        extensions=(".jsonl.gz", ".jsonl", ".jsonl.zst", ".jsonl.bz2", ".jsonl.xz", ".parquet"),
        read_options=ReadOptions,
        write_options=WriteOptions,
        presets=Presets(read_deep={"check_digests": True}),
        beside=r".*\.bin\.zst",
        interleaved="documents",
        self_contained=True,
        files_name_each_other=True,
    )

    def matches(self, path: str, head: bytes) -> bool:
        """Return False: any JSON Lines and any Parquet file may hold documents. Users name this format."""
        return False

    def open(self, file: ShardFile, options: ReadOptions) -> MediaArchiveReader:
        """Open a file of documents. An archive is opened when a record in it is read.

        Raises:
            NotFound, StoreError: no such file, or no regular file.
        """
        return MediaArchiveReader(file, options)

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return whether reading needs the columns of rows: for rows that are not documents."""
        return Written(needs_schema=not is_documents(schema))

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> MediaArchiveWriter:
        """Create a file of documents and an archive.

        Raises:
            SchemaMismatch: a column `media` that does not hold media.
            Unrepresentable: rows that are not documents; a column that the file of documents cannot hold.
        """
        return MediaArchiveWriter(two_sinks(sinks), schema, options)

    def recover(
        self, file: ShardFile, options: ReadOptions, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the whole documents, without those whose media records may be those of others. Raises DataError."""
        documents = get_format(documents_format(file))
        assert isinstance(documents, Recoverable), "both are"
        recovered = documents.recover(file, documents.read_options({}), failed=failed)
        if recovered is not None and recovered.lost:
            # A damaged media record costs one document, not a row group of documents.
            return replace(recovered, unit_rows=np.zeros(0, np.int64))
        with closing(self.open(file, options)) as reader:
            rows, lost = doubtful_documents(reader, file.path)
        size, begin = file.store.head(file.path).size_bytes, np.zeros(1, np.int64)
        return Recovered(begin, begin, np.array([size]), size, lost_rows=rows, lost=lost) if lost else None

    def endings(self, options: WriteOptions) -> tuple[str, str]:
        """Return the ending of the documents' file, and that of the archive."""
        return options.ending, ".bin.zst"

    def options_like(self, source: ShardFile, view: str) -> dict[str, Any]:
        """Return the format of the documents' file, and how lines are compressed: Parquet holds more than JSON does."""
        if documents_format(source) == "parquet":
            return {"documents": "parquet"}
        return {"compression": open_text(source).entry.wrap or None}


FORMAT = MediaArchiveFormat()
"""The format that the registry loads."""
