"""Nulls in MDS, which has none: an extra mask column for each column that may hold nulls.

    lading.null:NAME   uint8: 1 where NAME is null, and holds a placeholder; 0 elsewhere

Other readers see one more column of numbers. The placeholder is empty if an encoding has an empty value. Otherwise it
is the smallest value that every reader of the encoding accepts: 0, the JSON `null`, a black image of one pixel.
"""

from __future__ import annotations

import base64
import pickle
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ByteRanges, ChunkedRanges
from lading._core.arrow.views import filled, join, present, with_gaps
from lading._core.features.mds_values import parse_array
from lading._core.formats.mds.index import NUMBERS, MDSColumn
from lading.errors import Unrepresentable, UsageError

__all__ = [
    "NULLS",
    "Marks",
    "Values",
    "check_nulls",
    "marked_columns",
    "marks_of",
    "nothing_of",
    "refuse_gaps",
    "zeroed",
]

Values: TypeAlias = pa.Array | ByteRanges | ChunkedRanges
"""Values of a column: in memory, or in files, in one range or in several each."""

NULLS = "lading.null:"
"""Prefix of the name of a mask column; the name of its column follows."""

_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAIVcZHVkU4V1bHWWjoWeyP/ZyLe3yP////L/////////////////////////////////////////"
    "////////////2wBDAY6WlsivyP/Z2f//////////////////////////////////////////////////////////////////////////wAAR"
    "CAABAAEDAREAAhEBAxEB/8QAFAABAAAAAAAAAAAAAAAAAAAABP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/xAAUAQEAAAAAAAAAAAAAAAAAAAAA"
    "/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEQMRAD8AOD//2Q=="
)
_PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mNgYGAAAAAEAAHI6uv5AAAAAElFTkSuQmCC")
_JPEGS = struct.pack("<2I", 1, len(_JPEG)) + _JPEG
_NOTHING = {
    "str": b"", "bytes": b"", "json": b"null", "str_int": b"0", "str_float": b"0.0", "str_decimal": b"0",
    "jpeg": _JPEG, "png": _PNG, "pil": struct.pack("<3I", 1, 1, 3) + b"RGB" + bytes(3), "pkl": pickle.dumps(None, 4),
    "list[pil]": bytes(8), "list[jpeg]": bytes(8), "list[png]": bytes(8), "jpeg_array": _JPEGS, "jpegarray": _JPEGS,
}  # fmt: skip
"""Placeholders, for encodings whose values vary in size; for images one black pixel."""


def check_nulls(nulls: object) -> None:
    """Raise UsageError for an option `nulls` that is neither `error` nor `mask` nor a list of columns."""
    names = (
        isinstance(nulls, Sequence) and not isinstance(nulls, (str, bytes)) and all(isinstance(n, str) for n in nulls)
    )
    if nulls not in ("error", "mask") and not names:
        raise UsageError(
            "unknown way to write nulls", expected="error, mask, or a list of columns", found=f"nulls={nulls!r}"
        )


def marks_of(columns: Sequence[MDSColumn]) -> dict[str, str]:
    """Return the mask columns of a shard: the name of each column with nulls, and of its mask."""
    names = {column.name for column in columns}
    return {
        column.name.removeprefix(NULLS): column.name
        for column in columns
        if column.encoding == "uint8" and column.name.startswith(NULLS) and column.name.removeprefix(NULLS) in names
    }


def marked_columns(schema: pa.Schema, nulls: str | Sequence[str]) -> list[str]:
    """Return the columns that get masks: all that the schema allows to be null, or the named ones.

    Raises:
        Unrepresentable: a column has the name of another column's mask.
        UsageError: a named column is missing.
    """
    known = {*schema.names}
    for name in schema.names:
        if name.startswith(NULLS) and name.removeprefix(NULLS) in known:
            raise Unrepresentable("the name of a column is that of another one's nulls", column=name)
    if nulls == "error":
        return []
    if nulls == "mask":
        return [field.name for field in schema if field.nullable]
    for name in nulls:
        if name not in known:
            raise UsageError("nulls are given for a missing column", column=name,
                             expected=", ".join(schema.names))  # fmt: skip
    return list(dict.fromkeys(nulls))


def nothing_of(column: MDSColumn) -> bytes:
    """Return the placeholder of an encoding."""
    if column.size is not None:
        return bytes(column.size)
    dtype, _ = parse_array(column.encoding) or (None, None)
    if column.encoding in _NOTHING:
        return _NOTHING[column.encoding]
    return bytes([8, 4, 1, 0]) if dtype is None else bytes([4, 1]) + bytes(np.dtype(dtype).itemsize)


@dataclass(frozen=True, slots=True)
class Marks:
    """The columns of a shard being written that may hold nulls, by name."""

    columns: Mapping[str, MDSColumn]

    def marks(self, given: Mapping[str, Values]) -> dict[str, pa.Array]:
        """Return the mask columns."""
        return {NULLS + name: pa.array(~_there(given[name]), pa.uint8()) for name in self.columns}

    def without_nulls(self, name: str, values: Values) -> Values:
        """Return a column of numbers or arrays with zeros where it is null; others unchanged.

        Other columns can be filled only as bytes.
        """
        if name not in self.columns or not isinstance(values, pa.Array) or not values.null_count:
            return values
        if isinstance(values, pa.FixedShapeTensorArray):
            return zeroed(values)
        return values.fill_null(0) if self.columns[name].encoding in NUMBERS else values

    def as_bytes(self, name: str, values: Values, given: Values) -> Values:
        """Return a column of bytes or text with placeholders where the given values were null."""
        there = _there(given) if name in self.columns else np.ones(1, np.bool_)
        if there.all():
            return values
        nothing = nothing_of(self.columns[name])
        assert not isinstance(values, ChunkedRanges), "all of them are there"
        if isinstance(values, ByteRanges):
            return ByteRanges.joined([values, ByteRanges.of([nothing])])[
                np.where(there, np.arange(len(there)), len(there))
            ]
        if pa.types.is_binary_view(values.type):
            return filled(values, pa.array([nothing] * len(values), pa.large_binary()))
        values = join(values)
        return pc.if_else(pa.array(there), values, pa.scalar(nothing, pa.large_binary()).cast(values.type))


def _there(values: Values) -> NDArray[np.bool_]:
    return present(values) if isinstance(values, pa.Array) else values.there


def refuse_gaps(values: pa.FixedShapeTensorArray) -> None:
    """Raise Unrepresentable for an array with a null among its values; names the row."""
    gaps = with_gaps(values)
    if gaps.any():
        raise Unrepresentable("MDS cannot hold an array with nulls", row=int(np.argmax(gaps)), advice="Fill it.")


def zeroed(values: pa.FixedShapeTensorArray) -> pa.FixedShapeTensorArray:
    """Return arrays with zeros where they are null."""
    storage = values.storage
    if not storage.null_count:
        return values
    size = storage.type.list_size
    body = np.array(storage.values.slice(storage.offset * size, len(storage) * size)).reshape(-1, size)
    body[~present(storage)] = 0
    whole = pa.FixedSizeListArray.from_arrays(pa.array(body.reshape(-1), storage.type.value_type), type=storage.type)
    return pa.ExtensionArray.from_storage(values.type, whole)
