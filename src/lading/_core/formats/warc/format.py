"""WARC: the records of a web crawl, a record a sample. Read-only.

    record      WARC/1.0 CRLF, headers, CRLF, as many bytes as Content-Length says, CRLF CRLF
    .warc       records behind each other
    .warc.gz    the same, each record in a gzip member of its own

The columns are those that warcio's records have:

    record_type                    response, request, warcinfo, metadata, conversion …
    record_id, uri, date           the headers WARC-Record-ID, WARC-Target-URI, WARC-Date; of a URI in brackets the URI,
                                   a space as %20
    content_type                   the header Content-Type of the record
    headers                        all headers of the record, as JSON; a header that comes twice has a list
    http_status, http_headers      of HTTP records; null for others
    content                        the body of a response, chunks joined and decoded, as `content_stream()` gives it;
                                   the block of other records

A body that is not encoded as its headers say is kept as it was sent, and counted: crawlers cut long responses.

Source: WARC 1.1 (ISO 28500:2017); warcio 1.8.1; `_core.media.warc`, which reads single records for documents.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lading._core.formats.base import Recovered, ShardFile, map_file
from lading._core.formats.format import Format, FormatInfo, NoOptions
from lading._core.formats.warc.reader import WarcShardReader
from lading._core.formats.warc.recover import recover_records

__all__ = ["FORMAT", "WarcFormat"]


class WarcFormat(Format[NoOptions, NoOptions]):
    """WARC files."""

    info = FormatInfo(name="warc", extensions=(".warc", ".warc.gz"))

    def matches(self, path: str, head: bytes) -> bool:
        """Return whether the name or the first bytes are those of a WARC file."""
        return super().matches(path, head) or head.startswith(b"WARC/")

    def open(self, file: ShardFile, options: NoOptions) -> WarcShardReader:
        """Open a file; read its size.

        Raises:
            NotFound, StoreError: no such file, or no regular file.
        """
        return WarcShardReader(file)

    def recover(
        self,
        file: ShardFile,
        options: NoOptions,
        *,
        schema: pa.Schema | None = None,
        failed: bool = True,
    ) -> Recovered | None:
        """Return the whole records of an unpacked file; None if all are."""
        return recover_records(np.frombuffer(memoryview(map_file(file).buffer), np.uint8), file)


FORMAT = WarcFormat()
"""The format that the registry loads."""
