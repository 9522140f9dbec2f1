"""One row of an Arrow file as Python values, without Arrow kernels: 0.1 to 0.6 µs a value instead of 2.

If all columns are plain, values are found by their places in the file, and no record batch is opened. Otherwise a
batch's columns are opened once: numbers as memory views of their type, text and bytes as offsets and data. pyarrow
reads all other columns (lists, structs, times …).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lading._core.arrow.types import uncut_getter
from lading._core.arrow.views import is_bytes, is_text, present
from lading._core.features.huggingface_types import is_media
from lading._core.features.types import Audio, Feature, Image, Video, decode
from lading._core.formats.arrow.blocks import ArrowFile
from lading._core.formats.arrow.large import LARGE_BYTES
from lading._core.formats.arrow.places import Places, PlainColumn
from lading._core.storage.base import MappedFile
from lading.errors import DataError, LadingError

__all__ = ["MISPLACED", "PlacedRow", "Row", "placed_rows", "row_reader"]

Row = Callable[[int], dict[str, Any]]
"""Returns one row of a batch, by its number there, as `ds[i]` does."""

PlacedRow = Callable[[int, int], dict[str, Any]]
"""Returns one row by the number of its record batch and its number there."""

_FAILURES = (LadingError, ValueError, OverflowError, pa.ArrowException)
"""Errors for invalid UTF-8, dates before the year 1, unknown time zones, and values that features refuse."""
MISPLACED = (*_FAILURES, struct.error, IndexError)
"""Errors of a `PlacedRow` for an irregular file: opening the batch reports the problem."""
_MEDIA = (Image, Audio, Video)
_OFFSETS = {4: "i", 8: "q"}
_NUMBERS: dict[pa.DataType, Any] = {
    pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float32(): "f", pa.float64(): "d",
    pa.uint8(): "B", pa.uint16(): "H", pa.uint32(): "I", pa.uint64(): "Q",
}  # fmt: skip


def placed_rows(body: ArrowFile, places: Places, schema: pa.Schema, features: Sequence[Feature]) -> PlacedRow | None:
    """Return a function that reads rows of a mapped file by the places of their values, decoded by these features.

    None if some columns need pyarrow. Values are touched if the whole map may stay in memory, else
    read: for few values among many, a page fault takes twice as long, and reads 64 KiB and more into memory.
    """
    mapped, touches = body.open_map(), body.may_stay()
    assert mapped is not None
    source = _Mapped(mapped) if touches else _Read(mapped)
    cells: dict[str, Callable[[int, int], Any]] = {}
    seen = bytearray(len(places.rows))
    check = partial(_check_offsets, places, source, seen)
    for number, (field, feature) in enumerate(zip(schema, features, strict=True)):
        column = places.columns.get(number)
        plain = None if column is None else _placed_cell(column, source)
        if column is None or plain is None:
            return None
        stored = plain if column.nulls is None else _placed_or_none(plain, column, source)
        cells[field.name] = stored if _is_stored(feature, field.type) else _decoded(stored, feature)
    pairs = list(cells.items())

    def whole(batch: int, row: int) -> dict[str, Any]:
        if not seen[batch]:
            check(batch)
        return {name: cell(batch, row) for name, cell in pairs}

    if not touches:
        return whole
    size_is_same = mapped.check

    def touched(batch: int, row: int) -> dict[str, Any]:
        size_is_same()
        return whole(batch, row)

    return touched


def _check_offsets(places: Places, source: _Source, seen: bytearray, batch: int) -> None:
    """Raise IndexError if offsets of a batch run backwards or outside: some row would get its neighbour's bytes."""
    for column in places.columns.values():
        if column.data_bytes is not None:
            width, count = column.width, int(places.rows[batch]) + 1
            ends = np.frombuffer(source.piece(int(column.first[batch]) * width, count * width), f"<i{width}")
            if int(ends[0]) < 0 or bool((ends[1:] < ends[:-1]).any()) or int(ends[-1]) > int(column.data_bytes[batch]):
                raise IndexError(batch)
    seen[batch] = 1


class _Source(Protocol):
    """Values of a file by their places."""

    def numbers(self, form: str) -> Callable[[int], Any]:
        """Return a function that reads the number at a multiple of its width."""

    def pairs(self, form: str) -> Callable[[int], tuple[int, int]]:
        """Return a function that reads that number and the next one."""

    def piece(self, at: int, length: int) -> bytes | memoryview:
        """Return the bytes of a range."""


class _Mapped:
    """Values in place in the map, except large ones."""

    def __init__(self, mapped: MappedFile) -> None:
        self._raw, self._read = memoryview(mapped.buffer).cast("B"), mapped.read

    def numbers(self, form: str) -> Callable[[int], Any]:
        """See `_Source`."""
        width = struct.calcsize(f"={form}")
        whole: Any = self._raw[: len(self._raw) // width * width]
        number: Callable[[int], Any] = whole.cast(form).__getitem__
        return number

    def pairs(self, form: str) -> Callable[[int], tuple[int, int]]:
        """See `_Source`."""
        number = self.numbers(form)
        return lambda at: (number(at), number(at + 1))

    def piece(self, at: int, length: int) -> bytes | memoryview:
        """See `_Source`."""
        return self._raw[at : at + length] if length < LARGE_BYTES else _whole(self._read(at, length), length)


class _Read:
    """Values by `pread`."""

    def __init__(self, mapped: MappedFile) -> None:
        self._read = mapped.read

    def numbers(self, form: str) -> Callable[[int], Any]:
        """See `_Source`."""
        one, read = struct.Struct(f"<{form}"), self._read
        unpack, width = one.unpack, one.size
        return lambda at: unpack(read(at * width, width))[0]

    def pairs(self, form: str) -> Callable[[int], tuple[int, int]]:
        """See `_Source`."""
        two, read = struct.Struct(f"<2{form}"), self._read
        unpack: Callable[[bytes], Any] = two.unpack
        width, size = two.size // 2, two.size
        return lambda at: unpack(read(at * width, size))

    def piece(self, at: int, length: int) -> bytes:
        """See `_Source`."""
        return _whole(self._read(at, length), length)


def _whole(found: bytes, length: int) -> bytes:
    """Return the bytes read. Raises IndexError if the file ended before."""
    if len(found) != length:
        raise IndexError(length)
    return found


def _placed_cell(column: PlainColumn, source: _Source) -> Callable[[int, int], Any] | None:
    """Return a function that returns a stored value, even under a null; None if only pyarrow can."""
    first, kind = column.first.data, column.kind
    if column.data is None or column.data_bytes is None:
        if pa.types.is_boolean(kind):
            return _bit(first, source)
        form = _NUMBERS.get(kind)
        if form is None:
            return None
        number = source.numbers(form)
        return lambda batch, row: number(first[batch] + row)
    data, limit, text, piece = column.data.data, column.data_bytes.data, is_text(kind), source.piece
    pair = source.pairs(_OFFSETS[column.width])

    def place(batch: int, row: int) -> tuple[int, int]:
        start, stop = pair(first[batch] + row)
        if not 0 <= start <= stop <= limit[batch]:
            raise IndexError(row)
        return data[batch] + start, stop - start

    if text:
        return lambda batch, row: str(piece(*place(batch, row)), "utf-8")
    return lambda batch, row: bytes(piece(*place(batch, row)))


def _placed_or_none(
    plain: Callable[[int, int], Any], column: PlainColumn, source: _Source
) -> Callable[[int, int], Any]:
    assert column.nulls is not None
    nulls, there = column.nulls.data, _bit(column.bits.data, source)
    return lambda batch, row: None if nulls[batch] and not there(batch, row) else plain(batch, row)


def _bit(first: memoryview[int], source: _Source) -> Callable[[int, int], bool]:
    octet = source.numbers("B")
    return lambda batch, row: bool(octet(first[batch] + (row >> 3)) >> (row & 7) & 1)


def _decoded(stored: Callable[[int, int], Any], feature: Feature) -> Callable[[int, int], Any]:
    return lambda batch, row: decode(feature, stored(batch, row))


def row_reader(batch: pa.RecordBatch, features: Sequence[Feature], body: ArrowFile) -> Row:
    """Return a function that reads rows of a checked batch (`_core.formats.arrow.decode`), decoded by these features.

    Raises DataError, naming the column, for invalid UTF-8, values that Python cannot hold (a date
    before the year 1), and values that a feature refuses.
    """
    cells = [
        (name, _cell(column, feature, body))
        for name, column, feature in zip(batch.schema.names, batch.columns, features, strict=True)
    ]

    def checked(row: int) -> dict[str, Any]:
        sample = {}
        for name, cell in cells:
            try:
                sample[name] = cell(row)
            except LadingError as error:
                raise error.at(column=name) from None
            except _FAILURES as error:
                raise DataError("Python cannot hold this value", column=name, found=str(error)[:200]) from None
        return sample

    def whole(row: int) -> dict[str, Any]:
        try:
            return {name: cell(row) for name, cell in cells}
        except _FAILURES:
            return checked(row)

    return whole


def _cell(column: pa.Array, feature: Feature, body: ArrowFile) -> Callable[[int], Any]:
    """Return a function that returns a value of a column."""
    plain = _plain_cell(column, body)
    if plain is None:
        whole = _whole_cell(column, feature)
        return whole if not is_media(column.type) or not feature.is_media else _media_cell(column, whole, body)
    stored = plain if not column.null_count else _or_none(plain, column)
    if _is_stored(feature, column.type):
        return stored
    return lambda row: decode(feature, stored(row))


def _whole_cell(column: pa.Array, feature: Feature) -> Callable[[int], Any]:
    if isinstance(column.type, pa.ExtensionType):  # the package that registered the type may return other values
        column = column.storage
    stored = uncut_getter(column)
    return lambda row: decode(feature, stored(row))


def _media_cell(column: pa.StructArray, whole: Callable[[int], Any], body: ArrowFile) -> Callable[[int], Any]:
    """Return the bytes of media, if present; else pyarrow's value of the row."""
    inside = column.field("bytes")
    plain = _plain_cell(inside, body)
    if plain is None:
        return whole
    there = (present(column) & present(inside)).tolist()
    return lambda row: plain(row) if there[row] else whole(row)


def _is_stored(feature: Feature, kind: pa.DataType) -> bool:
    """Return whether the stored value is the final value."""
    if is_text(kind):
        return feature.is_text
    if is_bytes(kind):
        return feature.is_bytes or feature.is_media
    return feature.is_scalar


def _or_none(plain: Callable[[int], Any], column: pa.Array) -> Callable[[int], Any]:
    there = present(column).tolist()
    return lambda row: plain(row) if there[row] else None


def _plain_cell(column: pa.Array, body: ArrowFile) -> Callable[[int], Any] | None:
    """Return a function that returns a stored value, even under a null; None if only pyarrow can."""
    kind, buffers, first, count = column.type, column.buffers(), column.offset, len(column)
    form = _NUMBERS.get(kind)
    if form is not None and buffers[1] is not None:
        numbers = memoryview(buffers[1]).cast("B")
        width = kind.bit_width // 8
        typed: memoryview[Any] = numbers[first * width : (first + count) * width].cast(form)
        return typed.__getitem__
    if not (is_text(kind) or is_bytes(kind)) or "view" in str(kind) or buffers[1] is None or buffers[2] is None:
        return None
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    width = 8 if wide else 4
    ends = memoryview(buffers[1]).cast("B")[first * width : (first + count + 1) * width].cast("q" if wide else "i")
    data, mapped, place = memoryview(buffers[2]).cast("B"), body.mapped, body.place(buffers[2])
    if mapped is None or place < 0:
        if is_text(kind):
            return lambda row: str(data[ends[row] : ends[row + 1]], "utf-8")
        return lambda row: bytes(data[ends[row] : ends[row + 1]])
    # Read, not touched: a page fault takes several times as long, and reads 64 KiB and more into memory.
    read = mapped.read
    if is_text(kind):
        return lambda row: str(read(place + ends[row], ends[row + 1] - ends[row]), "utf-8")
    return lambda row: read(place + ends[row], ends[row + 1] - ends[row])
