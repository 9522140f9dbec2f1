r"""JSON Lines: a JSON object a line, a line a sample.

    {"id":"a/0","text":"one\ntwo","score":0.5,"tags":["x","y"]}      UTF-8, lines end with LF or CR LF
    {"id":"a/1","text":null,"score":1.0,"tags":[]}

Plain, or compressed as a whole (gzip, zstd, bz2, xz, detected by content). There is no header. The columns, and the
types that hold all of their values exactly, are known after a pass over all lines (`_core.arrow.json_columns`): a
field that mixes types, holds lists or objects, or integers beyond 64 bits, is JSON text. An absent field is a null.
Blank lines are skipped, and counted; a byte order mark at the beginning is ignored.

A `.json` file may also hold one array of objects. It is read in the same way, an element a row; the content decides.

A file that ends after a whole line is complete, with or without a line end: a file that was cut between two lines looks
the same.

pyarrow 26's own JSON reader is not used. It makes floats of `1` next to `1.0` and of integers beyond 64 bits, and times
of texts that look like times. It accepts two objects on a line, and refuses a field of several types.

Lines are written compactly, without spaces, as orjson and pandas (so datatrove and Hugging Face datasets) do, every
column in every line, from the first rows that have it. Numbers are spelled as in Python's `json`, including `NaN` and
`Infinity`, which RFC 8259 lacks.

Source: https://jsonlines.org, RFC 8259; datatrove 0.10.1 pipeline/writers/jsonl.py, datasets 5.2.0 io/json.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lading._core.arrow.json_columns import is_nested_json
from lading._core.arrow.views import is_text
from lading._core.codecs import ENDINGS
from lading._core.features.types import feature_of
from lading._core.formats.base import Recovered, ShardFile
from lading._core.formats.format import Format, FormatInfo, Written
from lading._core.formats.jsonl.base64_values import becomes_base64
from lading._core.formats.jsonl.reader import JSON_NAMES, JsonlReader, ReadOptions, is_json_name
from lading._core.formats.jsonl.writer import JsonlWriter, WriteOptions, check_schema
from lading._core.formats.text_lines import open_text
from lading._core.storage.base import Sink

__all__ = ["FORMAT", "JsonlFormat", "JsonlReader", "JsonlWriter", "ReadOptions", "WriteOptions"]


class JsonlFormat(Format[ReadOptions, WriteOptions]):
    """JSON Lines."""

    info = FormatInfo(
        name="jsonl",
        extensions=tuple(name + packed for packed in ("", *ENDINGS.values()) for name in (".jsonl", ".ndjson")),
        when_named=JSON_NAMES,
        read_options=ReadOptions,
        write_options=WriteOptions,
        stores_structs=True,
        types="inferred",
        hive_partitions=True,
        leftovers=r"_SUCCESS|\..*\.crc",  # of Spark
    )
    late_columns = True

    def matches(self, path: str, head: bytes) -> bool:
        """Return whether the name is that of JSON Lines, or `.json`."""
        return super().matches(path, head) or is_json_name(path)

    def open(self, file: ShardFile, options: ReadOptions) -> JsonlReader:
        """Open a file; read its first bytes.

        Raises:
            NotFound, StoreError: no such file, or no regular file.
        """
        return JsonlReader(open_text(file))

    def create(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> JsonlWriter:
        """Begin a file.

        Raises:
            Unrepresentable: a column that JSON does not hold exactly.
        """
        [sink] = sinks
        check_schema(schema)
        return JsonlWriter(sink, schema, options)

    def recover(
        self, file: ShardFile, options: ReadOptions, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the lines that are documents. Raises LimitExceeded for a line that is too long."""
        return self.open(file, options).recover()

    def written(self, schema: pa.Schema, options: WriteOptions) -> Written:
        """Return the columns whose types JSON lacks."""
        return Written(needs_schema=True, lost_types=[field.name for field in schema if not _has_type(field)])

    def endings(self, options: WriteOptions) -> tuple[str]:
        """Return `.jsonl`, and the ending of the compression."""
        return (".jsonl" + ENDINGS.get(options.compression or "", ""),)

    def options_like(self, source: ShardFile, view: str) -> dict[str, Any]:
        """Return the compression, and base64 for columns of bytes that the manifest names."""
        wrap = open_text(source).entry.wrap
        encoded = any(map(becomes_base64, source.stored_schema or ()))
        return {**({"compression": wrap} if wrap else {}), **({"bytes": "base64"} if encoded else {})}


def _has_type(field: pa.Field) -> bool:
    """Whether JSON has the type of a column."""
    kind = field.type
    exact = (is_text, is_nested_json, pa.types.is_boolean, pa.types.is_int64, pa.types.is_float64, pa.types.is_null)
    return feature_of(field).is_json or isinstance(kind, pa.JsonType) or any(is_a(kind) for is_a in exact)


FORMAT = JsonlFormat()
"""The format that the registry loads."""
