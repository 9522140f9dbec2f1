"""Convert samples of MDS to columns, many samples at a time.

    sample    uint32 size of the value of each column whose values vary in size; the values, in the order of columns

Source: mosaicml-streaming 0.13.0, base/format/mds/writer.py and reader.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.column_slices import ColumnValues, Numbers
from lading._core.arrow.references import RefType, make_refs
from lading._core.arrow.views import from_ranges, join
from lading._core.features.encode import array_of
from lading._core.features.mds_values import parse_array
from lading._core.features.types import (
    Array,
    Bytes,
    Encoded,
    Feature,
    Image,
    Json,
    Text,
    decode,
    feature_of,
    with_feature,
)
from lading._core.formats.local_values import local_values
from lading._core.formats.mds.index import NUMBERS, MDSColumn
from lading._core.formats.mds.nulls import marks_of
from lading._core.storage.base import MappedFile
from lading._core.storage.range_reader import NEAR_BYTES, RangeReader
from lading.errors import CorruptShard, DataError, LadingError, errors_at

__all__ = ["TEXTS", "SampleLayout", "StoredSamples", "text_column"]

_CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
          "f2": "e", "f4": "f", "f8": "d"}  # fmt: skip
TEXTS = ("str", "json", "str_int", "str_float", "str_decimal")
_FEATURES: dict[str, Feature] = {
    "str": Text(), "json": Json(), "bytes": Bytes(), "png": Image(), "jpeg": Image(),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """Samples in memory, or in a file.

    Attributes:
        data: source of their bytes: memory that begins at `base`, or a file of which only the wanted bytes are read.
        start: first byte of each sample.
        stop: end of each sample.
        rows: number of each in the shard.
        base: first byte in memory.
    """

    data: pa.Buffer | RangeReader
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    rows: NDArray[np.int64]
    base: int = 0

    def find(self, offset: NDArray[np.int64], length: NDArray[np.int64]) -> tuple[pa.Buffer, NDArray[np.int64]]:
        """Return memory with ranges of the samples, and the start of each range there."""
        if isinstance(self.data, pa.Buffer):
            return self.data, offset - self.base
        return self.data.read_many(offset, length, near_bytes=NEAR_BYTES)


class SampleLayout:
    """Layout of samples of MDS.

    Args:
        columns: columns of the shard.
    """

    def __init__(self, columns: Sequence[MDSColumn]) -> None:
        self._columns = {column.name: i for i, column in enumerate(columns)}
        self._all = columns
        self._varying = [i for i, column in enumerate(columns) if column.size is None]
        self._sizes = struct.Struct(f"<{len(self._varying)}I")
        self._marks = marks_of(columns)
        self._restored: list[tuple[str, Callable[[Any], Any]]] = []
        self._plan = [(column.name, column.size, _value_of(column.encoding)) for column in columns]

    def field(self, name: str, *, refs: bool, views: bool) -> pa.Field:
        """Return the Arrow field of a column, payload as references, views or bytes."""
        encoding = self._all[self._columns[name]].encoding
        if encoding in NUMBERS:
            return pa.field(name, pa.from_numpy_dtype(NUMBERS[encoding]))
        if encoding in TEXTS:
            return with_feature(pa.field(name, pa.large_string()), _FEATURES.get(encoding) or Encoded(encoding))
        kind = RefType() if refs else pa.binary_view() if views else pa.large_binary()
        return with_feature(pa.field(name, kind), _payload_feature(encoding))

    def as_written(self, rows: pa.Schema) -> None:
        """Make `decode` return the arrays and lists that were written, by these rows."""
        for column in self._all:
            with suppress(DataError):  # a feature of a later version, whose values are the bytes
                feature = feature_of(rows.field(column.name)) if column.name in rows.names else Bytes()
                stored = parse_array(column.encoding)
                if column.encoding == "bytes" and feature.array is not None:
                    self._restored.append((column.name, partial(decode, feature)))
                if stored is not None and feature.item is not None:
                    self._restored.append((column.name, np.ndarray.tolist))
                if stored is not None and feature.array is not None and feature.array[0] not in (None, stored[0]):
                    self._restored.append((column.name, partial(array_of, dtype=feature.array[0])))

    def decode(self, data: bytes, *, allow_pickle: bool) -> dict[str, Any]:
        """Return one sample as Python values; without Arrow, which takes ten times as long for one sample."""
        try:
            sizes = self._sizes.unpack_from(data)
        except struct.error:
            sizes = ()
        at, turn, sample = self._sizes.size, iter(sizes), {}
        if len(sizes) == len(self._varying):
            for name, size, value_of in self._plan:
                end = at + (next(turn) if size is None else size)
                try:
                    sample[name] = value_of(data[at:end], allow_pickle)
                except LadingError as error:
                    raise error.at(column=name) from None
                except UnicodeDecodeError as error:
                    raise CorruptShard("invalid UTF-8 in a text", column=name, found=error.reason) from None
                except struct.error:
                    break
                at = end
        if at != len(data) or len(sample) < len(self._all):
            raise CorruptShard("the sizes of a sample's values are not its own", expected=len(data), found=at)
        if self._marks or self._restored:
            self._settle(sample)
        return sample

    def _settle(self, sample: dict[str, Any]) -> None:
        """Make marked values None, leave out their marks, and restore arrays and lists as they were written."""
        for name, mark in self._marks.items():
            found = sample.pop(mark)
            _check_marks(mark, np.array([found]))
            if found:
                sample[name] = None
        for name, restore in self._restored:
            with errors_at(column=name):
                sample[name] = None if sample[name] is None else restore(sample[name])

    def slices(
        self, part: StoredSamples, names: Sequence[str], file: MappedFile, *, views: bool
    ) -> dict[str, ColumnValues]:
        """Return numbers of samples, and the places of texts and bytes.

        Args:
            part: samples of the file.
            names: columns.
            file: the file.
            views: whether bytes may stay in the map.

        Raises:
            CorruptShard: sizes of values that do not add up to the sample.
        """
        offset, length = self._places(part)
        found: dict[str, ColumnValues] = {}
        for name in names:
            i = self._columns[name]
            valid, encoding = self._valid(name, offset, part), self._all[i].encoding
            if encoding in NUMBERS:
                found[name] = Numbers(_numbers_at(part, offset[i], NUMBERS[encoding], 1)[:, 0], valid)
            else:
                shown = file.buffer if views or encoding in TEXTS else None
                found[name] = local_values(file, shown, offset[i], length[i].astype(np.int64), valid)
        return found

    def arrays(self, part: StoredSamples, fields: Sequence[pa.Field]) -> list[pa.Array]:
        """Return columns of samples.

        Raises:
            CorruptShard: sizes of values that do not add up to the sample; invalid UTF-8 in a text. Names row and
                column.
        """
        offset, length = self._places(part)
        arrays = []
        for field in fields:
            i = self._columns[field.name]
            dtype = NUMBERS.get(self._all[i].encoding)
            valid = self._valid(field.name, offset, part)
            size = length[i].astype(np.int64)
            if dtype is not None:
                numbers = _numbers_at(part, offset[i], dtype, 1)[:, 0]
                arrays.append(pa.array(numbers, mask=None if valid is None else ~valid))
            elif pa.types.is_large_string(field.type):
                arrays.append(text_column(part, field, offset[i], size, valid))
            elif field.type == RefType():
                arrays.append(make_refs(offset[i], size, valid=valid))
            else:
                found = from_ranges(*part.find(offset[i], size), size, valid)
                arrays.append(found if pa.types.is_binary_view(field.type) else join(found))
        return arrays

    def _valid(self, name: str, offset: list[NDArray[np.int64]], part: StoredSamples) -> NDArray[np.bool_] | None:
        """Return which values of a column are not null; None if none can be null."""
        mark = self._marks.get(name)
        if mark is None:
            return None
        marks = _numbers_at(part, offset[self._columns[mark]], np.uint8, 1)[:, 0]
        _check_marks(mark, marks, part.rows)
        return np.asarray(marks == 0, np.bool_)

    def _places(self, part: StoredSamples) -> tuple[list[NDArray[np.int64]], list[NDArray[np.uint32]]]:
        """Return the places of the values of each column, and their sizes."""
        head = 4 * len(self._varying)
        short = np.flatnonzero(part.stop - part.start < head)
        if len(short):
            row = int(short[0])
            raise CorruptShard("a sample without the sizes of its values", offset=int(part.start[row]),
                               row=int(part.rows[row]), expected=f"at least {head} bytes",
                               found=int(part.stop[row] - part.start[row]))  # fmt: skip
        sizes = iter(_numbers_at(part, part.start, np.uint32, len(self._varying)).T)
        length = [next(sizes) if c.size is None else np.full(len(part.start), c.size, np.uint32) for c in self._all]
        at, offset = part.start + head, []
        for each in length:
            offset.append(at)
            at = at + each
        wrong = np.flatnonzero(at != part.stop)
        if len(wrong):
            row = int(wrong[0])
            raise CorruptShard("the sizes of a sample's values are not its own", offset=int(part.start[row]),
                               row=int(part.rows[row]), expected=f"{int(part.stop[row] - part.start[row])} bytes",
                               found=int(at[row] - part.start[row]))  # fmt: skip
        return offset, length


def _numbers_at(part: StoredSamples, start: NDArray[np.int64], kind: type[np.generic], count: int) -> NDArray[Any]:
    """Return consecutive numbers from each of these places on."""
    dtype = np.dtype(kind).newbyteorder("<")
    found, start = part.find(start, np.full(len(start), dtype.itemsize * count))
    data = np.frombuffer(found, np.uint8)
    # As if a number began at every byte; only the selected ones are copied.
    places = max(len(data) - dtype.itemsize * count + 1, 0)
    return np.ndarray((places, count), dtype, data, strides=(1, dtype.itemsize))[start]


def _value_of(encoding: str) -> Callable[[bytes, bool], Any]:
    """Return the function from the bytes of a value to its Python value."""
    dtype = NUMBERS.get(encoding)
    if dtype is not None:
        unpack = struct.Struct("<" + _CODES[np.dtype(dtype).str[1:]]).unpack
        return lambda data, _: unpack(data)[0]
    if encoding == "str":
        return lambda data, _: data.decode()
    feature = _FEATURES.get(encoding) if encoding in TEXTS else _payload_feature(encoding)
    if feature is not None and (feature.is_bytes or feature.medium == "image"):
        return lambda data, _: data
    known = feature or Encoded(encoding)
    return lambda data, allow_pickle: decode(known, data, allow_pickle=allow_pickle)


def _payload_feature(encoding: str) -> Feature:
    dtype, shape = parse_array(encoding) or (None, None)
    if dtype is not None and shape is not None:
        return Array(dtype, shape)
    return _FEATURES.get(encoding) or Encoded(encoding)


def _check_marks(name: str, marks: NDArray[np.uint8], rows: NDArray[np.int64] | None = None) -> None:
    """Raise CorruptShard for a null mask that is neither 0 nor 1."""
    wrong = np.flatnonzero(marks > 1)
    if len(wrong):
        row = None if rows is None else int(rows[wrong[0]])
        raise CorruptShard("a mark of nulls is 0 or 1", column=name, row=row, found=int(marks[wrong[0]]))


def text_column(
    part: StoredSamples,
    field: pa.Field,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    valid: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return values as text. Raises CorruptShard, naming row and column, for invalid UTF-8."""
    found = join(from_ranges(*part.find(offset, length), length, valid))
    try:
        return found.cast(pa.large_string())
    except pa.ArrowInvalid:
        for row, value in enumerate(found):
            try:
                (value.as_py() or b"").decode()
            except UnicodeDecodeError as error:
                raise CorruptShard("invalid UTF-8 in a text", offset=int(offset[row]) + error.start, column=field.name,
                                   row=int(part.rows[row]), found=error.reason) from None  # fmt: skip
        raise
