"""Single samples of a plain tar, and values of many, by the places in its index.

A sample is one read a member, and a decoding of each value: no table, no walk over headers. Whatever is unusual is
left to `ShardReader.read`, which reports errors with their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.arrow.older import numpy_type
from lading._core.arrow.references import unpack
from lading._core.arrow.types import uncut_values
from lading._core.arrow.views import is_text
from lading._core.features.items import KEY
from lading._core.features.types import Feature, decode, feature_of
from lading._core.formats.local_values import local_values
from lading._core.formats.webdataset.values import decode_column
from lading._core.storage.base import OpenFile
from lading.errors import DataError, LadingError

__all__ = ["Cell", "MemberPlaces", "Parse", "find_places", "parser_of", "ranges_at", "sample_reader", "typed_parser"]

Parse: TypeAlias = Callable[[bytes], Any]
"""Makes the Python value of the bytes of a member."""

_BYTES = pa.large_binary()
_PLACE_BYTES = 48
"""Memory of a reference in an index, and of whether it is there."""
_FAILURES = (LadingError, ValueError, KeyError, OverflowError, OSError, pa.ArrowException)
"""Errors of reading and decoding a sample. `ShardReader.read` reports them."""
_WHOLE_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]{0,19})")
_DECIMAL = re.compile(rb"-?[0-9]{1,17}(?:\.[0-9]{1,17})?(?:e[+-]?[0-9]{1,2})?")
_BOOLS = {b"true": True, b"false": False}


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """The places of the members of one field, a sample each.

    Attributes:
        offset: start of each payload.
        length: bytes of each.
        there: which samples have the member; None if all do.
    """

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    there: NDArray[np.bool_] | None

    def behind(self, head_bytes: int) -> Cell:
        """Return the places behind a header of each member."""
        return Cell(self.offset + head_bytes, self.length - head_bytes, self.there)


@dataclass(frozen=True, slots=True, eq=False)
class MemberPlaces:
    """The places of all members of a tar on this machine. All are inside the file.

    Attributes:
        file: the tar.
        buffer: the mapped tar; None if it is not mapped.
        keys: keys of the samples, in one buffer.
        key_ends: where each key begins there, and the end of the last.
        fields: names and features of the columns of members.
        cells: the places of each column.
    """

    file: OpenFile
    buffer: pa.Buffer | None
    keys: pa.Buffer
    key_ends: NDArray[np.int32]
    fields: pa.Schema
    cells: Mapping[str, Cell]

    @property
    def nbytes(self) -> int:
        """Return the memory of the places, as references in the index."""
        return int(self.keys.size) + self.key_ends.nbytes + _PLACE_BYTES * len(self) * len(self.cells)

    def __len__(self) -> int:
        return len(self.key_ends) - 1

    def key_getter(self) -> Callable[[int], str]:
        """Return the function from the number of a sample to its key."""
        ends, text = memoryview(self.key_ends.data), memoryview(self.keys).cast("B")
        return lambda row: str(text[ends[row] : ends[row + 1]], "utf-8")

    def key_ranges(self, rows: NDArray[np.int64]) -> ByteRanges:
        """Return the keys of samples, in memory."""
        start = self.key_ends[rows].astype(np.int64)
        return ByteRanges([self.keys], np.zeros(len(rows), np.int64), start, self.key_ends[rows + 1] - start)


def find_places(
    index: pa.Table, keys: pa.ChunkedArray, file: OpenFile, buffer: pa.Buffer | None
) -> MemberPlaces | None:
    """Return the places in an index of references; None if one of them is no plain range of the file.

    Args:
        index: a reference column a field, and the keys first.
        keys: the keys as samples have them.
        file: the tar.
        buffer: the mapped tar; None if it is not mapped.
    """
    cells: dict[str, Cell] = {}
    fields = []
    for field, column in zip(index.schema, index.columns, strict=True):
        if field.name == KEY:
            continue
        refs = unpack(column)
        there = None if bool(refs.valid.all()) else refs.valid
        offset, length = np.ascontiguousarray(refs.offset), np.ascontiguousarray(refs.length)
        odd = (refs.codec != 0) | (refs.frame >= 0) | (refs.file != 0)
        odd |= (offset < 0) | (length < 0) | (offset > file.size_bytes - length)
        if bool((odd & refs.valid).any()):
            return None
        cells[field.name] = Cell(offset, length, there)
        fields.append(field.with_type(_BYTES))
    whole = keys.combine_chunks().cast(pa.string())
    whole = whole if isinstance(whole, pa.Array) else whole.chunk(0)
    _, ends, text = whole.buffers()
    if whole.null_count or ends is None:
        return None
    key_ends = np.frombuffer(ends, np.int32, len(whole) + 1, 4 * whole.offset)
    return MemberPlaces(file, buffer, text or pa.py_buffer(b""), key_ends, pa.schema(fields), cells)


def sample_reader(
    places: MemberPlaces, cells: Mapping[str, tuple[Cell, Parse | None]], blank: Mapping[str, None], *, keyed: bool
) -> Callable[[int], dict[str, Any] | None]:
    """Return the function that reads a sample by its number; it returns None for a sample that `read` must report.

    Args:
        places: of the tar.
        cells: by column, the places of its values, and how they are decoded; None for bytes.
        blank: the columns of a sample without any member.
        keyed: whether a sample has its key.
    """
    read, check, key, none = places.file.read, places.file.check, places.key_getter(), dict(blank)
    told = [
        (name, cell.offset.data, cell.length.data, None if cell.there is None else cell.there.data, parse)
        for name, (cell, parse) in cells.items()
    ]

    def get(row: int) -> dict[str, Any] | None:
        sample: dict[str, Any] = none.copy()
        if keyed:
            sample[KEY] = key(row)
        try:
            for name, offset, length, there, parse in told:
                if there is None or there[row]:
                    value = read(offset[row], length[row])
                    if len(value) != length[row]:
                        return None
                    sample[name] = value if parse is None else parse(value)
        except _FAILURES:
            return None
        finally:
            check()
        return sample

    return get


def ranges_at(places: MemberPlaces, cell: Cell, rows: NDArray[np.int64], *, views: bool) -> ByteRanges:
    """Return the values of samples, with `views` in the map if there is one. Raises as `local_values`."""
    there = None if cell.there is None else cell.there[rows]
    return local_values(places.file, places.buffer if views else None, cell.offset[rows], cell.length[rows], there)


def parser_of(feature: Feature) -> Parse | None:
    """Return how the bytes of a member become a value, as `decode` does; None if they are the value."""
    if feature.is_bytes or feature.is_media:
        return None
    if feature.is_text:
        return _text
    if feature.is_json:
        return json_text.loads
    return partial(decode, feature)


def typed_parser(field: pa.Field, path: str) -> Parse:
    """Return how a member becomes the Python value of a column that is no payload, as `decode_column` and `decode` do.

    Args:
        field: name and type of the column.
        path: path of the tar, for errors.
    """
    kind, feature = field.type, feature_of(field)
    if is_text(kind):
        stored: Parse = _text
    elif pa.types.is_boolean(kind):
        stored = _BOOLS.__getitem__
    elif pa.types.is_integer(kind):
        stored = _whole_number(kind)
    elif pa.types.is_float64(kind):
        stored = _decimal
    else:
        stored = _by_arrow(field, path)
    if feature.is_text or (feature.is_value and not is_text(kind)):
        return stored
    return lambda data: decode(feature, stored(data))


def _text(data: bytes) -> str:
    return str(data, "utf-8")


def _whole_number(kind: pa.DataType) -> Parse:
    info = np.iinfo(numpy_type(kind))
    least, most = int(info.min), int(info.max)

    def parse(data: bytes) -> int:
        value = int(data) if _WHOLE_NUMBER.fullmatch(data) else most + 1
        if not least <= value <= most:
            raise DataError("not a number of this type")
        return value

    return parse


def _decimal(data: bytes) -> float:
    if not _DECIMAL.fullmatch(data):
        raise DataError("not a number in its usual form")
    return float(data)


def _by_arrow(field: pa.Field, path: str) -> Parse:
    key = pa.array([""])

    def parse(data: bytes) -> Any:
        column = decode_column(field, pa.array([data], _BYTES), key, path)
        return uncut_values(column.storage if isinstance(column.type, pa.ExtensionType) else column)[0]

    return parse
