"""Values of columns in encodings of MDS for which Arrow has no type, or another one than the column's.

Arrays become `ndarray`, lists of numbers too where that is asked for, and numbers narrower ones. Python values make the
rest: pictures, lists of pictures, texts of numbers.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.casts import decoded
from lading._core.arrow.views import LIST_TYPES, is_bytes, listed_items, places, present
from lading._core.content.image import is_image
from lading._core.content.media_files import open_image
from lading._core.features.encode import as_bytes
from lading._core.features.mds_arrays import is_npy, to_ndarray
from lading._core.features.mds_values import encode_mds, parse_array
from lading._core.features.types import Feature, decode, feature_of
from lading._core.formats.mds.index import NUMBERS
from lading._core.formats.mds.nulls import refuse_gaps, zeroed
from lading._core.formats.mds.samples import TEXTS
from lading.errors import DataError, LadingError, Unrepresentable, errors_at

__all__ = [
    "OF_LISTS",
    "Recoding",
    "columns_option",
    "is_list_of_numbers",
    "is_number",
    "is_recoded",
    "rounds",
    "stored_type",
]

OF_LISTS = ("list[jpeg]", "list[png]", "jpeg_array", "jpegarray")
"""Encodings that hold lists of pictures as their files."""

_PLAIN = ("str", "json", "bytes", "jpeg", "png")
"""Encodings whose values are text and bytes of Arrow."""


def columns_option(name: str, encoding: str) -> str:
    """Return the option that asks for the encoding of a column, as it is typed."""
    return "--to-option " + shlex.quote("columns=" + json.dumps({name: encoding}, ensure_ascii=False))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are integers or floats."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_list_of_numbers(kind: pa.DataType) -> bool:
    """Return whether a type is a list of numbers, or of such lists."""
    return isinstance(kind, LIST_TYPES) and is_number(_leaf(kind))


def _leaf(kind: pa.DataType) -> pa.DataType:
    while isinstance(kind, (*LIST_TYPES, pa.FixedShapeTensorType)):
        kind = kind.value_type
    return kind


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, without storage variants. Arrays of datasets' own types are lists."""
    if pa.types.is_dictionary(kind):
        return stored_type(kind.value_type)
    if isinstance(kind, pa.JsonType) or (isinstance(kind, pa.ExtensionType) and is_list_of_numbers(kind.storage_type)):
        return kind.storage_type
    return pa.large_binary() if pa.types.is_fixed_size_binary(kind) else kind


def is_recoded(field: pa.Field, encoding: str) -> bool:
    """Return whether values of a column are made, or checked, for an encoding; otherwise they are its bytes."""
    kind = stored_type(field.type)
    if encoding in NUMBERS:
        return bool(kind != pa.from_numpy_dtype(NUMBERS[encoding]))
    if encoding in _PLAIN:
        return False
    feature = feature_of(field)
    if feature.array is not None and not is_npy(feature) and not isinstance(kind, LIST_TYPES):
        return parse_array(encoding) != feature.array
    return feature.mds_encoding != encoding


def rounds(field: pa.Field, encoding: str) -> bool:
    """Return whether an encoding holds floats of a column in fewer bits. Arrays are never rounded."""
    kind = stored_type(field.type)
    floats = pa.types.is_floating(kind) and encoding in NUMBERS
    return bool(floats and np.dtype(NUMBERS[encoding]).itemsize < kind.bit_width // 8)


@dataclass(frozen=True, slots=True)
class Recoding:
    """How values of a column come into an encoding.

    Attributes:
        field: the column.
        encoding: the encoding.
        is_asked: whether the user named it. Otherwise arrays must come back as the bytes that they were.
    """

    field: pa.Field
    encoding: str
    is_asked: bool

    def values(self, column: pa.Array, first_row: int) -> pa.Array:
        """Return the values as MDS stores them: bytes, texts or numbers; null where they are null.

        Raises:
            Unrepresentable: a value that the encoding does not hold; names row and column.
        """
        if pa.types.is_dictionary(column.type):
            column = decoded(column)
        if isinstance(column, pa.ExtensionArray) and not isinstance(column, pa.FixedShapeTensorArray):
            column = column.storage
        if pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.large_binary())
        with errors_at(first_row=first_row, column=self.field.name):
            if self.encoding in NUMBERS:
                return self._numbers(column)
            found: list[bytes | str | None] = []
            try:
                for made in self._made(column):
                    found.append(made)  # noqa: PERF402 - the number of those made is the row of an error
            except LadingError as error:
                raise error.at(row=len(found)) from None
        return pa.array(found, pa.large_string() if self.encoding in TEXTS else pa.large_binary())

    def _numbers(self, column: pa.Array) -> pa.Array:
        """Return integers that fit, or rounded floats."""
        given, there = column.fill_null(0).to_numpy(zero_copy_only=False), present(column)
        dtype = np.dtype(NUMBERS[self.encoding])
        with np.errstate(all="ignore"):
            made = given.astype(dtype)
        wrong = np.isinf(made) & np.isfinite(given) if dtype.kind == "f" else _outside(given, dtype)
        if wrong.any():
            row, fitting = int(np.argmax(wrong)), columns_option(self.field.name, _fitting(given, dtype))
            raise Unrepresentable(f"a number that {self.encoding} cannot hold", row=row, expected=_bounds(dtype),
                                  found=given[row].item(), advice=f"Write {fitting}.")  # fmt: skip
        return pa.array(made, mask=~there)

    def _made(self, column: pa.Array) -> Iterator[bytes | str | None]:
        feature = feature_of(self.field)
        if isinstance(column, pa.FixedShapeTensorArray):
            yield from self._of_tensors(column)
            return
        if is_list_of_numbers(column.type):
            yield from self._of_lists(column)
            return
        if feature.array is not None and is_bytes(column.type):
            yield from self._of_bytes(column, feature)
            return
        for value in column.to_pylist():
            _refuse_other_items(self.encoding, value)
            yield None if value is None else encode_mds(self.encoding, _python_value(feature, value))

    def _of_bytes(self, column: pa.Array, feature: Feature) -> Iterator[bytes | None]:
        keep = f"Keep the bytes as they are with {columns_option(self.field.name, 'bytes')}."
        values = f"Write the values with {columns_option(self.field.name, 'ndarray')}."
        for value in places(column).views():
            try:
                yield None if value is None else to_ndarray(feature, self.encoding, value, exact=not self.is_asked)
            except DataError as error:
                other_layout = isinstance(error, Unrepresentable) and not error.advice
                error.advice = f"{values} {keep}" if other_layout else keep
                raise

    def _of_tensors(self, column: pa.FixedShapeTensorArray) -> Iterator[bytes | None]:
        refuse_gaps(column)
        for array, is_there in zip(zeroed(column).to_numpy_ndarray(), present(column).tolist(), strict=True):
            yield as_bytes(encode_mds(self.encoding, array)) if is_there else None

    def _of_lists(self, column: pa.Array) -> Iterator[bytes | None]:
        """Yield lists as arrays of the type of their items."""
        shapes, numbers = _array_shapes(column)
        ends = np.append(0, np.cumsum(shapes.prod(axis=1)))
        for row, is_there in enumerate(present(column).tolist()):
            array = numbers[ends[row] : ends[row + 1]].reshape(shapes[row])
            try:
                yield as_bytes(encode_mds(self.encoding, array)) if is_there else None
            except Unrepresentable as error:
                error.advice = f"Write JSON, which holds all lists, with {columns_option(self.field.name, 'json')}."
                raise


def _python_value(feature: Feature, value: Any) -> Any:
    return open_image(value, upright=False) if feature.medium == "image" else decode(feature, value)


_ITEMS_ADVICE = "Drop such items with --map, or write --to webdataset, --to parquet or --to jsonl, which keep them."


def _refuse_other_items(encoding: str, value: Any) -> None:
    """Raise Unrepresentable for a list with an item that is no picture: MosaicML opens each."""
    for number, item in enumerate(value if encoding in OF_LISTS and isinstance(value, list) else ()):
        if isinstance(item, bytes) and not is_image(item[:16]):
            raise Unrepresentable("a list of pictures has an item that is none", expected=encoding,
                                  found=f"item {number}: {item[:16]!r}", advice=_ITEMS_ADVICE)  # fmt: skip
        if item is None:
            raise Unrepresentable("MDS cannot hold nulls in lists of pictures", found=f"item {number}: null",
                                  advice=_ITEMS_ADVICE)  # fmt: skip


def _outside(given: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    bounds = np.iinfo(dtype)
    outside: NDArray[np.bool_] = (given < bounds.min) | (given > bounds.max)
    return outside


def _bounds(dtype: np.dtype[Any]) -> str:
    bounds: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return f"{bounds.min} to {bounds.max}"


def _fitting(given: NDArray[Any], dtype: np.dtype[Any]) -> str:
    """Return the next wider encoding that holds these numbers: without a sign if the asked one has none, and can be."""
    if dtype.kind == "f":
        return str(given.dtype)
    signs = "iu" if given.min() < 0 or dtype.kind == "i" else "u"
    kinds = [np.dtype(f"{sign}{size}") for sign in signs for size in (1, 2, 4, 8) if size >= dtype.itemsize]
    return str(next(kind for kind in kinds if not _outside(given, kind).any()))


def _array_shapes(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the shape of each list of numbers, `(rows, dimensions)`, and all numbers; those of a null are zeros.

    Raises:
        Unrepresentable: a null in a list, or lists of several lengths in one row; names the row.
    """
    count, owner, items = len(column), np.arange(len(column)), column
    shapes: list[NDArray[np.int64]] = []
    while isinstance(items.type, LIST_TYPES):
        if shapes:
            _refuse_nulls(items, owner)
        items, ends = listed_items(items)
        sizes = np.diff(ends)
        longest, shortest = np.zeros(count, np.int64), np.full(count, np.iinfo(np.int64).max)
        np.maximum.at(longest, owner, sizes)
        np.minimum.at(shortest, owner, sizes)
        if (uneven := shortest < longest).any():
            raise Unrepresentable("lists of several lengths are no array", row=int(np.argmax(uneven)))
        shapes.append(longest)
        owner = np.repeat(owner, sizes)
    _refuse_nulls(items, owner)
    return np.stack(shapes, axis=1), items.to_numpy(zero_copy_only=False)


def _refuse_nulls(items: pa.Array, owner: NDArray[np.int64]) -> None:
    if items.null_count:
        raise Unrepresentable("a null in a list that is to be an array", row=int(owner[np.argmin(present(items))]),
                              advice="Leave the column out of columns=: lists are JSON, which holds nulls.",
                              )  # fmt: skip
