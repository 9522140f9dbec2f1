"""Write CSV. See `_core.formats.csv.format`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.views import is_bytes, is_text, join, total_bytes
from lading._core.features.items import ITEMS_ADVICE, is_interleaved_schema
from lading._core.features.types import feature_of
from lading._core.formats.base import ShardFacts, ShardWriter
from lading._core.formats.text_lines import (
    as_text,
    check_compression,
    parse_delimiter,
    parts_of,
    refuse_long_lines,
    text_sink,
    without_dictionary,
)
from lading._core.storage.base import Sink
from lading.errors import Unrepresentable, errors_at

__all__ = ["CsvWriter", "WriteOptions"]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How CSV is written.

    Attributes:
        delimiter: Character between values. With `tab`, files are named `.tsv`.
        compression: Compression of the whole file: `gzip` (in members of some 128 KB), `zstd`, `bz2`, `xz`. By default
            none.
        compression_level: Level of the compression. By default that of the codec.
    """

    delimiter: str | int = ","
    compression: str | None = None
    compression_level: int | None = None

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        parse_delimiter(self.delimiter)
        check_compression(self.compression)


class CsvWriter(ShardWriter):
    """Write a CSV file. Memory: some 8 MiB of rows, several times.

    The header is written with the first rows, or at the end if there are none.
    """

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriteOptions) -> None:
        self._path, self._delimiter = sink.path, parse_delimiter(options.delimiter)
        items = is_interleaved_schema(schema)
        self._columns = {field.name: _texts_of(field, items=items) for field in schema}
        _check_names(schema)
        self._out = text_sink(sink, options.compression, options.compression_level)
        self._rows = self._payload = 0
        self._begun = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows, a record each. A null is an empty cell, an empty text is `""`.

        Raises:
            Unrepresentable: invalid UTF-8; names the row and the column.
        """
        self._begin()
        for part in parts_of(batch):
            records = self._records(part)
            refuse_long_lines(records, self._rows, self._path)
            self._out.write_rows(records)
            self._rows += len(part)
            self._payload += total_bytes(part)

    def bytes_written(self) -> int:
        """Return the size of the file if it ended now; with compression, a part is an estimate."""
        return self._out.tell()

    def close(self) -> ShardFacts:
        """Finish the compression, if any."""
        self._begin()
        return ShardFacts(self._rows, self._out.finish(), self._payload)

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            names = _quoted(pa.array(list(self._columns), pa.large_string()), self._delimiter + "\ufeff")
            self._out.write_head((self._delimiter.join(names.to_pylist()) + "\n").encode())

    def _records(self, batch: pa.RecordBatch) -> pa.LargeStringArray:
        cells = []
        for name, texts in self._columns.items():
            with errors_at(first_row=self._rows, column=name, file=self._path):
                cells.append(_quoted(texts(join(batch.column(name))), self._delimiter).fill_null(""))
        records = pc.binary_join_element_wise(*cells, pa.scalar(self._delimiter, pa.large_string()))
        end = pa.scalar("\n", pa.large_string())
        return pc.binary_join_element_wise(records, end, pa.scalar("", pa.large_string()))


def _check_names(schema: pa.Schema) -> None:
    """Raise Unrepresentable for names that a header cannot hold."""
    if not len(schema):
        raise Unrepresentable("a CSV file has at least one column")
    for name, count in Counter(schema.names).items():
        if count > 1 or not name:
            raise Unrepresentable("a header has each name once, and none that is empty", column=name,
                                  found=f"{count} times")  # fmt: skip


def _texts_of(field: pa.Field, *, items: bool) -> Callable[[pa.Array], pa.LargeStringArray]:
    """Return the function from values of a field to text. Raises Unrepresentable for a type without a unique text.

    Args:
        field: a column.
        items: whether it is a column of items, whose reserved columns cannot be dropped.
    """
    kind = field.type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_text(plain) or isinstance(plain, pa.JsonType):
        return as_text
    if is_bytes(plain) and feature_of(field).is_written_as_text:
        return as_text
    if pa.types.is_integer(plain) or pa.types.is_boolean(plain) or pa.types.is_null(plain):
        return lambda column: without_dictionary(column).cast(pa.large_string())
    if pa.types.is_floating(plain):
        return _float_texts
    what = (
        "CSV cannot hold bytes"
        if is_bytes(plain) or pa.types.is_fixed_size_binary(plain)
        else "CSV cannot hold values of this type"
    )
    advice = ITEMS_ADVICE if items and field.name == "binary_content" else None
    raise Unrepresentable(what, column=field.name, expected="text, numbers or bools", found=kind, advice=advice)


def _float_texts(column: pa.Array) -> pa.LargeStringArray:
    values = without_dictionary(column).cast(pa.float64())
    return pc.if_else(values.is_valid(), json_text.dumps_each(values), pa.scalar(None, pa.large_string()))


def _quoted(texts: pa.LargeStringArray, special: str) -> pa.LargeStringArray:
    """Return texts, quoted if they are empty, or hold a quote, a line end or a special character."""
    listed = "".join(f"\\x{{{ord(character):x}}}" for character in special)
    odd = pc.or_(pc.match_substring_regex(texts, f'["\\r\\n{listed}]'), pc.equal(texts, ""))
    if not pc.any(odd).as_py():
        return texts
    quote = pa.scalar('"', pa.large_string())
    inner = pc.replace_substring(texts, '"', '""')
    return pc.if_else(odd, pc.binary_join_element_wise(quote, inner, quote, pa.scalar("", pa.large_string())), texts)
