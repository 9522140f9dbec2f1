"""Convert samples of the split formats to columns: a sample is a line of JSON or of separated values.

    json            an object: {column: value}
    csv, tsv, xsv   a value a column, without quoting: no value holds the separator or the line end

Source: mosaicml-streaming 0.13.0, base/format/json and base/format/xsv.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.features.types import Text, with_feature
from lading._core.formats.mds.index import Config
from lading._core.formats.mds.samples import StoredSamples, text_column
from lading._core.formats.text_lines import body
from lading._core.storage.base import Buffer
from lading.errors import CorruptShard, DataError, DuplicateField, errors_at

__all__ = ["LineLayout", "check_line_ends", "first_line", "line_ends"]

_TYPES = {"str": pa.large_string(), "int": pa.int64(), "float": pa.float64()}
_KINDS: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (float, int)}
_READ: dict[str, Callable[[str], Any]] = {"int": int, "float": float}
_ARROWS_OWN = b"xX("
"""Parts of numbers that Arrow accepts and Python does not: `0x10`, `nan(1)`."""
_MISFITS = (OverflowError, pa.ArrowInvalid, UnicodeEncodeError)
_LINE = pa.field("line", pa.large_string())
_WINDOW_BYTES = 16 << 20


class LineLayout:
    """Layout of the samples of a split format.

    Args:
        config: properties of the shard.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._encoding = {column.name: column.encoding for column in config.columns}
        self._fields = [self.field(name, refs=False, views=False) for name in self._encoding]

    def field(self, name: str, *, refs: bool, views: bool) -> pa.Field:
        """Return the Arrow field of a column."""
        found = pa.field(name, _TYPES[self._encoding[name]])
        return with_feature(found, Text()) if self._encoding[name] == "str" else found

    def as_written(self, rows: pa.Schema) -> None:
        """Do nothing: lines hold no values whose meaning depends on these rows."""

    def decode(self, data: bytes, *, allow_pickle: bool) -> dict[str, Any]:
        """Return one sample as Python values."""
        part = StoredSamples(pa.py_buffer(data), np.array([0]), np.array([len(data)]), np.array([0]))
        try:
            arrays = self.arrays(part, self._fields)
        except DataError as error:
            error.row = error.offset = None  # the bytes alone do not show the file
            raise
        return {field.name: column[0].as_py() for field, column in zip(self._fields, arrays, strict=True)}

    def arrays(self, part: StoredSamples, fields: Sequence[pa.Field]) -> list[pa.Array]:
        """Return columns of samples. Raises CorruptShard, naming row and column, for an invalid line."""
        newline = self._config.newline.encode()
        lines = text_column(part, _LINE, part.start, part.stop - part.start)
        whole = pc.ends_with(lines, self._config.newline)
        if not pc.all(whole).as_py():
            self._fail(part, int(np.argmin(whole.to_numpy(zero_copy_only=False))), "a line without its end",
                       expected=repr(self._config.newline))  # fmt: skip
        lines = pc.utf8_slice_codeunits(lines, 0, -len(newline.decode()))
        return (
            self._of_json(part, lines, fields) if self._config.format == "json" else self._of_cells(part, lines, fields)
        )

    def _fail(self, part: StoredSamples, row: int, message: str, **more: Any) -> None:
        raise CorruptShard(message, row=int(part.rows[row]), offset=int(part.start[row]), **more)

    def _of_json(self, part: StoredSamples, lines: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Array]:
        texts = lines.view(pa.large_binary()).to_pylist()
        samples = json_text.loads_plain(texts)
        if samples is None:
            samples = []
            for row, text in enumerate(texts):
                with errors_at(row=int(part.rows[row])):
                    samples.append(json_text.loads(text, base=int(part.start[row])))
        for row, sample in enumerate(samples):
            if not isinstance(sample, dict):
                self._fail(part, row, "a line that is not an object", found=type(sample).__name__)
            if not sample.keys() <= self._encoding.keys():
                self._fail(part, row, "a line with a name that is not a column's", expected=", ".join(self._encoding),
                           found=ascii(next(name for name in sample if name not in self._encoding))[:80])  # fmt: skip
        twice = json_text.find_repeated_name(texts, samples)
        if twice is not None:
            row, name = twice
            raise DuplicateField("a line holds a name twice", row=int(part.rows[row]), offset=int(part.start[row]),
                                 expected="each name once", found=ascii(name)[:80])  # fmt: skip
        return [self._json_column(part, samples, field) for field in fields]

    def _json_column(self, part: StoredSamples, samples: list[dict[str, Any]], field: pa.Field) -> pa.Array:
        kind = _KINDS[self._encoding[field.name]]
        values = [sample.get(field.name) for sample in samples]
        for row, value in enumerate(values):
            if not isinstance(value, kind) or isinstance(value, bool):
                self._fail(part, row, "a value of another type than its column's", column=field.name,
                           expected=self._encoding[field.name], found=repr(value)[:80])  # fmt: skip
        return self._column(part, values, field)

    def _of_cells(self, part: StoredSamples, lines: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Array]:
        count = len(self._config.columns)
        cells = pc.split_pattern(lines, self._config.separator)
        found = pc.list_value_length(cells).to_numpy()
        wrong = np.flatnonzero(found != count)
        if len(wrong):
            self._fail(part, int(wrong[0]), "a line with another number of values than columns", expected=count,
                       found=int(found[wrong[0]]))  # fmt: skip
        values, order = cells.flatten(), [column.name for column in self._config.columns]
        ended = pc.match_substring(values, self._config.newline)
        if pc.any(ended).as_py():  # no writer writes that
            self._fail(part, pc.index(ended, value=True).as_py() // count, "a value that holds what ends lines",
                       found=repr(self._config.newline))  # fmt: skip
        at = np.arange(len(lines)) * count
        return [self._cell_column(part, values.take(pa.array(at + order.index(field.name))), field) for field in fields]

    def _cell_column(self, part: StoredSamples, values: pa.Array, field: pa.Field) -> pa.Array:
        """Return cells as the peer reads them, which is Python's way; Arrow is faster with most of them."""
        read = _READ.get(self._encoding[field.name])
        if read is None:
            return values
        cells = np.frombuffer(body(values), np.uint8)
        if not any((cells == byte).any() for byte in _ARROWS_OWN):
            try:
                return values.cast(field.type)
            except pa.ArrowInvalid:
                pass
        found = []
        for row, text in enumerate(values.to_pylist()):
            try:
                found.append(read(text))
            except ValueError:
                self._fail(part, row, "a value that is not a number", column=field.name, expected=str(field.type),
                           found=repr(text)[:80])  # fmt: skip
        return self._column(part, found, field)

    def _column(self, part: StoredSamples, values: list[Any], field: pa.Field) -> pa.Array:
        """Return Python values as a column. Raises DataError, naming row and column, for values that it cannot hold."""
        try:
            return pa.array(values, field.type)
        except _MISFITS:
            row, value = next(pair for pair in enumerate(values) if not _fits(pair[1], field.type))
            raise DataError(
                "a value that its column cannot hold: a number too large, or text with a lone surrogate",
                row=int(part.rows[row]), offset=int(part.start[row]), column=field.name, expected=str(field.type),
                found=ascii(value)[:80],
            ) from None  # fmt: skip


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except _MISFITS:
        return False
    return True


def first_line(config: Config) -> bytes:
    """Return the header line of a shard; empty for JSON."""
    if config.format == "json":
        return b""
    return (config.separator.join(column.name for column in config.columns) + config.newline).encode()


def check_line_ends(config: Config) -> None:
    """Raise CorruptShard if a line end may also occur inside a line, so that only `.meta` separates lines."""
    end = config.newline
    inside = not end.strip(" ") if config.format == "json" else bool({*end} & {*config.separator})
    if inside or any(end.startswith(end[size:]) for size in range(1, len(end))):
        raise CorruptShard("lines are not told apart by what ends them", found=f"newline={end!r}")


def line_ends(read: Callable[[int, int], Buffer], size_bytes: int, newline: bytes) -> NDArray[np.int64]:
    """Return the ends of lines. Memory: 8 bytes a line, and 16 MiB twice.

    Args:
        read: returns a number of bytes from an offset on.
        size_bytes: size of the file.
        newline: line end; see `check_line_ends`.
    """
    found = [np.zeros(0, np.int64)]
    for at in range(0, size_bytes, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES + len(newline) - 1, size_bytes - at)
        data = np.frombuffer(read(at, length), np.uint8)
        there = np.ones(max(length - len(newline) + 1, 0), bool)
        for number, byte in enumerate(newline):
            there &= data[number : number + len(there)] == byte
        found.append(at + np.flatnonzero(there) + len(newline))
    return np.concatenate(found)
