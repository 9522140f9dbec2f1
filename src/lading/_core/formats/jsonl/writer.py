"""Write JSON Lines. See `_core.formats.jsonl.format`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.casts import unregistered, unregistered_type
from lading._core.arrow.json_columns import is_nested_json
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import is_bytes, is_text, join, total_bytes
from lading._core.features.items import ITEMS_ADVICE, is_interleaved_schema
from lading._core.features.json_inside import documents_of
from lading._core.features.natural import has_items
from lading._core.features.types import feature_of
from lading._core.formats.base import ShardFacts, ShardWriter
from lading._core.formats.jsonl.base64_values import base64_texts, holds_base64
from lading._core.formats.text_lines import (
    as_text,
    check_compression,
    parts_of,
    refuse_long_lines,
    text_sink,
    without_dictionary,
)
from lading._core.storage.base import Sink
from lading.errors import DataError, Unrepresentable, UsageError, errors_at

__all__ = ["JsonlWriter", "WriteOptions", "check_schema"]

_BYTES_ADVICE = "Write bytes as base64 text with --to-option bytes=base64."


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How JSON Lines are written.

    Attributes:
        compression: Compression of the whole file: `gzip` (in members of some 128 KB), `zstd`, `bz2`, `xz`. By default
            none.
        compression_level: Level of the compression. By default that of the codec.
        bytes: Columns of bytes are an `error`; or `base64` writes them as text, which is bytes again by the manifest.
            Lists of bytes are always written in base64.
    """

    compression: str | None = None
    compression_level: int | None = None
    bytes: Literal["error", "base64"] = "error"

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        check_compression(self.compression)
        if self.bytes not in ("error", "base64"):
            raise UsageError("no such policy", expected="error or base64", found=f"bytes={self.bytes!r}")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its name, its label in a line, and the function from its values to JSON texts."""

    name: str
    label: str
    texts: Callable[[pa.Array], pa.LargeStringArray]

    @classmethod
    def of(cls, field: pa.Field, options: WriteOptions) -> Self:
        """Return the column of this field. Raises Unrepresentable for a type that JSON does not have."""
        with errors_at(column=field.name):
            texts = _texts_of(field, base64_too=options.bytes == "base64")
        return cls(field.name, json_text.dumps(field.name) + ":", texts)


class JsonlWriter(ShardWriter):
    """Write a file of JSON Lines. Memory: some 8 MiB of rows, several times."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: WriteOptions) -> None:
        self._path = sink.path
        self._options = options
        self._columns = [_Column.of(field, options) for field in schema]
        self._out = text_sink(sink, options.compression, options.compression_level)
        self._rows = self._payload = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows, a line each, with every column; a null is written as `null`.

        Rows may bring columns that earlier rows lack.

        Raises:
            Unrepresentable: a value that would not be read back; names the row and the column.
        """
        for name in batch.schema.names[len(self._columns) :]:
            self._columns.append(_Column.of(batch.schema.field(name), self._options))
        for part in parts_of(batch):
            lines = self._lines(part)
            refuse_long_lines(lines, self._rows, self._path)
            self._out.write_rows(lines)
            self._rows += len(part)
            self._payload += total_bytes(part)

    def bytes_written(self) -> int:
        """Return the size of the file if it ended now; with compression, a part is an estimate."""
        return self._out.tell()

    def close(self) -> ShardFacts:
        """Finish the compression, if any."""
        return ShardFacts(self._rows, self._out.finish(), self._payload)

    def _lines(self, batch: pa.RecordBatch) -> pa.LargeStringArray:
        parts: list[pa.LargeStringScalar | pa.LargeStringArray] = []
        before = "{"
        for column in self._columns:
            parts += [_text(before + column.label), self._texts(column, batch)]
            before = ","
        if not parts:
            return pa.array(["{}\n"] * len(batch), pa.large_string())
        return pc.binary_join_element_wise(*parts, _text("}\n"), _text(""))

    def _texts(self, column: _Column, batch: pa.RecordBatch) -> pa.LargeStringArray:
        with errors_at(first_row=self._rows, column=column.name, file=self._path):
            return column.texts(join(batch.column(column.name)))


def check_schema(schema: pa.Schema) -> None:
    """Raise Unrepresentable for a schema with a repeated name, or with the bytes of items."""
    for name, count in Counter(schema.names).items():
        if count > 1:
            raise Unrepresentable("an object holds each name once", column=name, found=f"{count} times")
    if is_interleaved_schema(schema) and "binary_content" in schema.names:
        kind = schema.field("binary_content").type
        if not pa.types.is_null(kind):
            # In base64 they would be read as the bytes themselves: column names identify items.
            raise Unrepresentable("JSON cannot hold the bytes of items", found=kind,
                                  column="binary_content", advice=ITEMS_ADVICE)  # fmt: skip


def _texts_of(field: pa.Field, *, base64_too: bool) -> Callable[[pa.Array], pa.LargeStringArray]:
    """Return the function from values of a field to JSON texts; registered extension types use their storage."""
    stored = unregistered_type(field.type)
    texts = _plain_texts_of(field.with_type(stored), base64_too=base64_too)
    return texts if stored == field.type else lambda column: texts(unregistered(column))


def _plain_texts_of(field: pa.Field, *, base64_too: bool) -> Callable[[pa.Array], pa.LargeStringArray]:
    kind, feature = field.type, feature_of(field)
    if is_ref(kind):
        raise Unrepresentable("a reference is not a value", found=kind, advice="Read the bytes first.")
    if isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, pa.JsonType):
        raise Unrepresentable("JSON cannot hold this type exactly", found=kind)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if isinstance(kind, pa.JsonType) or (feature.is_json and (is_text(plain) or is_bytes(plain))):
        return _json_texts
    if is_text(plain) or (is_bytes(plain) and (feature.is_text or feature.is_scalar)):
        return _string_texts
    if holds_base64(field):
        if base64_too or has_items(kind):
            return base64_texts
        raise Unrepresentable("JSON cannot hold bytes", found=kind, advice=_BYTES_ADVICE)
    if pa.types.is_integer(plain) or pa.types.is_boolean(plain) or pa.types.is_null(plain):
        return _number_texts
    if pa.types.is_floating(plain):
        return _float_texts
    if not is_nested_json(kind):
        raise Unrepresentable("JSON cannot hold this type exactly", found=kind)
    return _nested_texts


def _string_texts(column: pa.Array) -> pa.LargeStringArray:
    return json_text.dumps_each(as_text(column))


def _number_texts(column: pa.Array) -> pa.LargeStringArray:
    return without_dictionary(column).cast(pa.large_string()).fill_null("null")


def _float_texts(column: pa.Array) -> pa.LargeStringArray:
    return json_text.dumps_each(without_dictionary(column).cast(pa.float64()))


def _nested_texts(column: pa.Array) -> pa.LargeStringArray:
    return pa.array(map(json_text.dumps, documents_of(column)), pa.large_string())


def _json_texts(column: pa.Array) -> pa.LargeStringArray:
    """Return JSON texts unchanged, on one line each, if each can be read back."""
    texts = as_text(column).fill_null("null")
    if pc.any(pc.starts_with(texts, "\ufeff")).as_py():
        texts = pc.replace_substring_regex(texts, "^\ufeff", "")
    data = [text.encode() for text in texts.to_pylist()]
    values = json_text.loads_plain(data)
    if values is None:
        values = []
        for row, text in enumerate(data):
            try:
                values.append(json_text.loads(text))
            except DataError as error:
                raise Unrepresentable(f"a value of a JSON column is not valid JSON: {error.message}", row=row,
                                      found=repr(text[:40])) from None  # fmt: skip
    repeated = json_text.find_repeated_name(data, values)
    if repeated is not None:
        row, name = repeated
        raise Unrepresentable("an object in this column holds a name twice", row=row, found=repr(name))
    if pc.any(pc.match_substring_regex(texts, r"[\n\r]")).as_py():
        # Only now: after the check for valid JSON, line ends are only between values.
        texts = pc.replace_substring_regex(texts, r"[\n\r]", " ")
    return texts


def _text(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, pa.large_string())
