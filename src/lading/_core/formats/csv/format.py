r"""CSV: a header of names, then a record a sample; a delimiter separates values.

    id,text,n                         names, each once
    a,"one, ""two""
    three",7                          quotes around a value with a delimiter, a quote (doubled) or a line end
    b,,8                              nothing: null
    c,"",9                            quotes around nothing: an empty text

UTF-8; lines end with LF, CR LF or CR, as the header does. Plain, or compressed as a whole (gzip, zstd, bz2, xz,
detected by content). Every column is text, so that `007` stays unchanged, unless the reader gives it a type. Blank
lines are skipped, and counted; in a file with one column, a blank line is a null. A last line without a line end is
read and counted: many programs write none, but the file may also have been cut inside its last value.

pyarrow 26's own CSV reader is not used. It silently accepts an unclosed quote and characters behind a closing quote,
drops one of two columns with one name, reports no line for invalid UTF-8, and needs to know the longest record
beforehand.

Source: RFC 4180. A quote inside an unquoted value is a plain character, as for Python's csv, pandas and pyarrow. An
empty cell and `""` differ as in PostgreSQL's COPY and pyarrow.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.arrow.views import is_text
from lading._core.codecs import ENDINGS
from lading._core.formats.base import Recovered, ShardFile, map_file
from lading._core.formats.csv.reader import UNENDED, CsvReader, ReadOptions
from lading._core.formats.csv.writer import CsvWriter, WriteOptions
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import Format, FormatInfo, Written
from lading._core.formats.text_lines import open_text, parse_delimiter, refuse_wide
from lading._core.storage.base import Sink
from lading._core.storage.stores import without_query
from lading.errors import CorruptShard

__all__ = ["FORMAT", "CsvFormat", "CsvReader", "CsvWriter", "ReadOptions", "WriteOptions"]

_SHOWN, _HEAD_BYTES = 60, 64
_TSV = tuple(".tsv" + packed for packed in ("", *ENDINGS.values()))


class CsvFormat(Format[ReadOptions, WriteOptions]):
    """CSV and TSV."""

    info = FormatInfo(
        name="csv",
        extensions=(*(".csv" + packed for packed in ("", *ENDINGS.values())), *_TSV),
        read_options=ReadOptions,
        write_options=WriteOptions,
        types="text",
        hive_partitions=True,
        leftovers=r"_SUCCESS|\..*\.crc",  # of Spark
    )

    def open(self, file: ShardFile, options: ReadOptions) -> CsvReader:
        """Open a file; read its first bytes.

        Raises:
            NotFound, StoreError: no such file, or no regular file.
        """
        by_name = "tab" if without_query(file.path).lower().endswith(_TSV) else ","
        return CsvReader(open_text(file), options, parse_delimiter(options.delimiter or by_name))

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> CsvWriter:
        """Begin a file.

        Raises:
            Unrepresentable: a column that is not text and has no unique text form.
        """
        [sink] = sinks
        return CsvWriter(sink, schema, options)

    def recover(
        self, file: ShardFile, options: ReadOptions, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the whole records. Raises DataError if nothing tells the names of the columns, or for UTF-16."""
        data = np.frombuffer(memoryview(map_file(file).buffer), np.uint8)
        packed = next((wrap for wrap, ending in ENDINGS.items() if file.place.lower().endswith(ending)), "")
        refuse_wide(data[:_HEAD_BYTES].tobytes(), packed, file.place)
        if packed and failed:  # what came out of a damaged stream may end inside a value
            options = replace(options, unended="error")
        return self.open(file, options).recover(data, None if schema is None else schema.names)

    def checks(self, file: ShardFile, options: ReadOptions, level: Level) -> Iterator[Finding]:
        """Yield that the last line has no end, if reading the rows counted this."""
        if level in (Level.BESIDE, Level.LAYOUT) or UNENDED not in (file.reported or {}):
            return
        last = open_text(file).last_bytes(_SHOWN)
        if not last.endswith((b"\n", b"\r")):
            yield Finding.of(CorruptShard(
                "the last line has no end: the file may have been cut inside its last value", file=file.path,
                expected="a line end", found=f"{last!r}",
                advice="If the file is complete, add the line end: echo >> " + shlex.quote(file.path),
            ))  # fmt: skip

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return the delimiter among the read options, unless file names imply it."""
        delimiter = options.delimiter
        read_options = {} if parse_delimiter(delimiter) in (",", "\t") else {"delimiter": delimiter}
        return Written(
            read_options, needs_schema=True, lost_types=[field.name for field in schema if not is_text(field.type)]
        )

    def endings(self, options: WriteOptions) -> tuple[str]:
        """Return `.csv` or `.tsv`, and the ending of the compression."""
        kind = ".tsv" if parse_delimiter(options.delimiter) == "\t" else ".csv"
        return (kind + ENDINGS.get(options.compression or "", ""),)

    def options_like(self, source: ShardFile, view: str) -> dict[str, Any]:
        """Return the compression, and the tab of a `.tsv`."""
        wrap = open_text(source).entry.wrap
        tab = {"delimiter": "tab"} if without_query(source.path).lower().endswith(_TSV) else {}
        return {"compression": wrap, **tab} if wrap else tab


FORMAT = CsvFormat()
"""The format that the registry loads."""
