"""Write a split-format shard: a file of lines, and `.meta` with their offsets. See `_core.formats.mds.lines`.

A line is built before its shard is known, because its size decides that. The same rows and options give the bytes that
the peer writes. Values that the peer's reader would not restore are refused: a separator in a value, or an integer
outside int64.

Source: mosaicml-streaming 0.13.0, base/format/json and base/format/xsv.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.views import byte_lengths, is_bytes, is_text, join, present
from lading._core.features.types import Text, feature_of
from lading._core.formats.base import Ranges, ShardFacts, ShardWriter
from lading._core.formats.mds.files import MAX_BYTES, OutFile, WriteOptions, columns_as, named
from lading._core.formats.mds.index import Column
from lading._core.formats.text_lines import as_text, body, parts_of, without_dictionary
from lading._core.storage.base import Sink
from lading._core.storage.extents import NO_ROWS
from lading.errors import LimitExceeded, Unrepresentable, errors_at

__all__ = ["LineWriter"]

_MOST_INTEGER = (1 << 63) - 1
_SHOWN = 80
_TRIAL_BYTES = 4 << 20

_Texts = Callable[[pa.Array], pa.LargeStringArray]


@dataclass(frozen=True, slots=True)
class _Line:
    """How rows become lines.

    Attributes:
        texts: functions from the values of each column, by name, to text.
        before: text before the value of each column.
        end: text after the last value.
        never: texts that no value may hold.
        never_last: texts with which a value may not end if another follows: together with the separator they look like
            an earlier separator.
    """

    texts: Mapping[str, _Texts]
    before: Sequence[str]
    end: str
    never: Sequence[str] = ()
    never_last: Sequence[str] = ()

    @property
    def framing_bytes(self) -> int:
        """Return the bytes of a line without its values."""
        return len("".join([*self.before, self.end]).encode())

    def lines(self, batch: pa.RecordBatch, first_row: int) -> pa.LargeStringArray:
        """Return the lines of rows. Raises Unrepresentable, naming row and column."""
        parts: list[pa.LargeStringScalar | pa.LargeStringArray] = []
        for before, (name, texts) in zip(self.before, self.texts.items(), strict=True):
            with errors_at(first_row=first_row, column=name):
                values = self._checked(join(batch.column(name)), texts, last=len(parts) == 2 * len(self.texts) - 2)
            parts += [_text(before), values]
        return pc.binary_join_element_wise(*parts, _text(self.end), _text(""))

    def _checked(self, column: pa.Array, texts: _Texts, *, last: bool) -> pa.LargeStringArray:
        there = present(column)
        if not there.all():
            raise Unrepresentable("lines of MDS cannot hold nulls", row=int(np.argmin(there)))
        values = texts(column)
        whole = bytes(body(values)) if self.never else b""
        for odd in (odd for odd in self.never if odd.encode() in whole):  # 50 times as fast as checking value by value
            _refuse(values, pc.match_substring(values, odd), f"a value that holds {odd!r}, which ends values or lines")
        for odd in () if last else self.never_last:
            _refuse(values, pc.ends_with(values, odd), f"a value that ends with {odd!r}, which begins the separator")
        return values


def _refuse(values: pa.Array, wrong: pa.BooleanArray, message: str) -> None:
    """Raise Unrepresentable for the first invalid value."""
    if pc.any(wrong).as_py():
        row = pc.index(wrong, value=True).as_py()
        raise Unrepresentable(message, row=row, found=repr(values[row].as_py())[:_SHOWN],
                              advice="These formats have no quotes. Write JSON with --to-option kind=json.",
                              )  # fmt: skip


def _word(kind: pa.DataType) -> str | None:
    """Return the name of the split formats for values of a type; None if there is none."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    if isinstance(kind, pa.JsonType) or is_text(plain) or is_bytes(plain):
        return "str"
    if pa.types.is_integer(plain):
        return "int"
    return "float" if pa.types.is_floating(plain) else None


def _encoding(field: pa.Field) -> str:
    """Return the encoding of a column: text is read as text, so JSON must be requested."""
    word, feature = _word(field.type), type(feature_of(field))
    if word is None or (word == "str" and feature is not Text):
        raise Unrepresentable("lines of MDS's split formats hold text, integers and floats", column=field.name,
                              found=field.type if word is None else f"{feature.__name__} as {field.type}",
                              advice="Write shards of MDS with --to-option kind=mds.")  # fmt: skip
    return word


def _columns_of(schema: pa.Schema, options: WriteOptions) -> list[Column]:
    """Return the columns of a shard of these rows, sorted by name.

    Raises:
        Unrepresentable: a type or a name that lines cannot hold, or no columns.
        UsageError, DataError: an encoding for a missing column, or an unknown encoding.
    """
    found = columns_as(schema, options, _encoding)
    if not found:
        raise Unrepresentable("a shard of lines has at least one column")
    for field, column in found:
        if column.encoding != _word(field.type):
            raise Unrepresentable("the requested encoding holds other values", column=column.name,
                                  expected=column.encoding, found=field.type)  # fmt: skip
        odd = [text for text in (options.line_end, options.between) if text in column.name]
        if options.kind != "json" and odd:
            raise Unrepresentable(f"a name that holds {odd[0]!r}, which ends values or lines", column=column.name)
    return [column for _, column in found]


def _line_of(columns: Sequence[Column], options: WriteOptions) -> _Line:
    count = len(columns)
    if options.kind == "json":
        before = [f"{', ' if i else '{'}{json.dumps(column.name)}: " for i, column in enumerate(columns)]
        texts = {column.name: _JSON_TEXTS[column.encoding] for column in columns}
        return _Line(texts, before, "}" + options.line_end)
    mark = options.between
    # ",," after "a," is ",,,", which is split one character too early.
    overlaps = [mark[:size] for size in range(1, len(mark)) if mark.startswith(mark[size:])]
    texts = {column.name: _TEXTS[column.encoding] for column in columns}
    return _Line(texts, ["", *[mark] * (count - 1)], options.line_end, (options.line_end, mark), overlaps)


def _int_texts(column: pa.Array) -> pa.LargeStringArray:
    values = without_dictionary(column)
    if pa.types.is_uint64(values.type):
        over = pc.greater(values, pa.scalar(_MOST_INTEGER, pa.uint64()))
        if pc.any(over).as_py():
            row = pc.index(over, value=True).as_py()
            raise Unrepresentable("an integer beyond 64 bits with a sign", row=row, expected=f"at most {_MOST_INTEGER}",
                                  found=values[row].as_py(), advice=None)  # fmt: skip
    return values.cast(pa.large_string())


def _float_texts(column: pa.Array) -> pa.LargeStringArray:
    return pa.array(map(str, _floats(column).to_pylist()), pa.large_string())


def _json_float_texts(column: pa.Array) -> pa.LargeStringArray:
    return json_text.dumps_each(_floats(column))


def _floats(column: pa.Array) -> pa.DoubleArray:
    return without_dictionary(column).cast(pa.float64())


def _json_str_texts(column: pa.Array) -> pa.LargeStringArray:
    """Return texts as JSON in ASCII, as Python's `json` writes it by default."""
    texts = as_text(column)
    if not pc.any(pc.match_substring_regex(texts, _SPELLED_OTHERWISE)).as_py():
        return json_text.dumps_each(texts)
    return pa.array(map(json.encoder.encode_basestring_ascii, texts.to_pylist()), pa.large_string())


_SPELLED_OTHERWISE = r"[^\x00-\x7e]"
"""Characters that are spelled differently there than by `json_text`."""
_TEXTS: Mapping[str, _Texts] = {"str": as_text, "int": _int_texts, "float": _float_texts}
_JSON_TEXTS: Mapping[str, _Texts] = {"str": _json_str_texts, "int": _int_texts, "float": _json_float_texts}


def _text(text: str) -> pa.LargeStringScalar:
    return pa.scalar(text, pa.large_string())


class LineWriter(ShardWriter):
    """Write a split-format shard. Memory: 4 bytes a sample; with compression all of it, twice at the end.

    Args:
        sinks: its file of lines, and its `.meta`.
        schema: schema of the rows.
        options: write options.

    Attributes:
        sample_bytes: 0: a sample is its line.
        limit_bytes: size at which a shard ends; the peer counts lines only.
    """

    encodes = True
    sample_bytes = 0

    def __init__(self, sinks: Sequence[Sink], schema: pa.Schema, options: WriteOptions) -> None:
        columns = _columns_of(schema, options)
        names, encodings = [c.name for c in columns], [c.encoding for c in columns]
        self._config = {**options.config(), "newline": options.line_end}
        head = b""
        if options.kind == "json":
            self._config["columns"] = dict(zip(names, encodings, strict=True))
        else:
            self._config |= {"column_names": names, "column_encodings": encodings}
            self._config |= {"separator": options.between} if options.kind == "xsv" else {}
            head = (options.between.join(names) + options.line_end).encode()
        self._line, self._path = _line_of(columns, options), sinks[0].path
        self._data, self._meta = (OutFile(sink, options) for sink in sinks)
        self._sizes: list[NDArray[np.int64]] = [np.array([len(head)])]
        self._samples = self._lines_bytes = 0
        self._last, self.packs = b"", self._data.packs
        self.limit_bytes = min(options.most_bytes, MAX_BYTES - len(head))
        _mark_head(self._data, head)
        self._data.write(head)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append samples. Returns None: lines hold values as text.

        Raises:
            Unrepresentable: a value that a line cannot hold; names row and column.
            LimitExceeded: the shard would exceed 4 GiB.
        """
        with errors_at(file=self._path):
            self.write_encoded(self.encode(batch, self._samples), {})

    def encode(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return rows as lines: see `ShardWriter.encode`."""
        lines, row = [], first_row
        for part in parts_of(batch):
            lines.append(self._line.lines(part, row).cast(pa.large_binary()))
            row += len(part)
        whole = lines[0] if len(lines) == 1 else pa.concat_arrays(lines or [pa.array([], pa.large_binary())])
        return pa.record_batch([whole], names=["line"])

    def write_encoded(self, samples: pa.RecordBatch, ranges: Ranges) -> None:
        """Append lines from `encode`. Raises LimitExceeded: the shard would exceed 4 GiB."""
        if not len(samples):
            return
        lines = samples.column(0)
        size = byte_lengths(lines)
        total = int(size.sum())
        if self._data.size_bytes + total > MAX_BYTES:
            raise LimitExceeded("a shard of MDS is smaller than 4 GiB", file=self._path,
                                found=self._data.size_bytes + total,
                                advice="Begin shards earlier with --to-option size_limit=1GB.")  # fmt: skip
        rows = np.arange(self._samples, self._samples + len(lines))
        self._data.mark(self._data.size_bytes + np.cumsum(size), rows)
        self._data.write(body(lines))
        self._last = bytes(memoryview(body(lines))[:_TRIAL_BYTES]) if self.packs else b""
        self._sizes.append(size)
        self._samples, self._lines_bytes = self._samples + len(lines), self._lines_bytes + total

    def bytes_written(self) -> int:
        """Return the size of the lines, by which the peer ends its shards; with compression, an estimate."""
        if not self.packs:
            return self._lines_bytes
        if self.ratio is not None:
            return int(self._lines_bytes * self.ratio)
        return int(self._lines_bytes * self._data.packed_share(self._lines_bytes, lambda: self._last))

    def raw_bytes(self) -> int:
        """Return the size of the lines before compression."""
        return self._lines_bytes

    def close(self) -> ShardFacts:
        """Finish both files."""
        offset = np.cumsum(np.concatenate(self._sizes))
        numbers = np.append(self._samples, offset).astype("<u4").tobytes()
        meta = numbers + json.dumps(self._config, sort_keys=True).encode()
        _mark_head(self._meta, meta)
        self._meta.write(meta)
        raw_data, zip_data = self._data.close()
        raw_meta, zip_meta = self._meta.close()
        entry = {
            **self._config, "samples": self._samples, "raw_data": raw_data, "zip_data": zip_data,
            "raw_meta": raw_meta, "zip_meta": zip_meta,
        }  # fmt: skip
        text = json.dumps(named(entry, posixpath.basename(self._path)), sort_keys=True)
        payload = self._lines_bytes - self._samples * self._line.framing_bytes
        size, beside = ((packed or raw)["bytes"] for raw, packed in ((raw_data, zip_data), (raw_meta, zip_meta)))
        return ShardFacts(self._samples, size, payload, text, beside)


def _mark_head(file: OutFile, head: bytes) -> None:
    """Mark the start of a file, which holds no rows."""
    file.mark(np.array([len(head)]), np.array([NO_ROWS]))
