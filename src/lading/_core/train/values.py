"""How a column becomes values: an array where its type says the shape, else a list with an entry a sample.

A null is None in a list, and NaN among floats. In other arrays nothing stands for it: `Lacking` says where.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.older import numpy_type
from lading._core.arrow.types import uncut_getter, uncut_values
from lading._core.arrow.views import LIST_TYPES, is_bytes, is_text, present, without_runs
from lading._core.features.mds_values import parse_array
from lading._core.features.types import Feature, decode
from lading._core.train.collate import PYTHON_TYPES
from lading._core.train.decode import decoder_of
from lading._core.train.images import Pictures, Size
from lading._core.train.missing import Failed, Lacking
from lading.errors import DataError, LadingError

__all__ = [
    "Making",
    "Reader",
    "Spread",
    "array_reader",
    "as_stored",
    "each_value",
    "holds_arrays",
    "holds_lists_of_numbers",
    "holds_numbers",
    "list_values",
    "one_by_one",
    "pixels",
    "plain",
    "scalars",
]

Spread: TypeAlias = Callable[[Callable[[int], None], int], None]
"""Calls a function with every number below a count, perhaps in several threads, and returns when all calls have."""

Reader: TypeAlias = Callable[..., Any]
"""Makes values of a column, which it is given with a dict for errors of samples: a list with an entry a sample, or an
array. A reader of media, or one that calls a function, is given a `Making` too."""

_ArrayReader: TypeAlias = Callable[..., Lacking]
"""The same, of a column that is an array in all batches: the array, and where it lacks values."""


@dataclass(frozen=True, slots=True)
class Making:
    """How the media of some samples are decoded.

    Attributes:
        spread: shares the work out to threads.
        size: of images, unless their column has one; None for that of each image.
        rng_of: makes the generator of the sample at a place.
        check: raises CorruptShard if the values are no longer there; called before each is copied.
    """

    spread: Spread
    size: Size | None
    rng_of: Callable[[int], np.random.Generator]
    check: Callable[[], None]


def one_by_one(call: Callable[[int], None], count: int) -> None:
    """Call a function with every number below a count (`Spread`)."""
    for i in range(count):
        call(i)


def plain(column: pa.Array) -> pa.Array:
    """Return a column without extension type, dictionary and runs."""
    while True:
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = without_runs(column)
        else:
            return column


def holds_numbers(kind: pa.DataType) -> bool:
    """Return whether the values of a column are numbers or bools."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def holds_lists_of_numbers(feature: Feature, kind: pa.DataType) -> bool:
    """Return whether the values of a column are lists of numbers."""
    if not isinstance(kind, LIST_TYPES) or not holds_numbers(kind.value_type):
        return False
    return feature.is_value or (feature.item is not None and feature.item.is_scalar)


def array_reader(feature: Feature, kind: pa.DataType) -> _ArrayReader | None:
    """Return how a column is read whose values are an array in every batch; None for another column."""
    if feature.is_scalar:
        if holds_numbers(kind):
            return _numbers
        dtype = feature.to_arrow_type() if feature.is_value and is_bytes(kind) else pa.int64()
        if is_bytes(kind) and (pa.types.is_integer(dtype) or pa.types.is_floating(dtype)):
            return partial(_parsed_numbers, feature=feature, dtype=numpy_type(dtype))
    shape = _array_of(feature)
    if shape is not None:
        return partial(_stacked, feature=feature, dtype=shape[0], shape=shape[1])
    return (
        _rows_of_numbers if isinstance(kind, pa.FixedSizeListType) and holds_lists_of_numbers(feature, kind) else None
    )


def holds_arrays(feature: Feature) -> bool:
    """Return whether the values of a column are arrays, of whatever shape."""
    return feature.array is not None or parse_array(feature.mds_encoding or "") is not None


def _array_of(feature: Feature) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return type and shape of a column of arrays, if its feature says both."""
    dtype, shape = feature.array or parse_array(feature.mds_encoding or "") or (None, None)
    return (
        None
        if dtype is None or shape is None or None in shape
        else (np.dtype(dtype), tuple(n for n in shape if n is not None))
    )


# Readers of columns


def _numbers(column: pa.Array, _: Failed) -> Lacking:
    """Numbers and bools as an array; a null is NaN among floats."""
    floats = pa.types.is_floating(column.type)
    if not column.null_count:
        return Lacking(np.array(column.to_numpy(zero_copy_only=False)), holds=floats)
    whole = column if floats else column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    return Lacking(np.array(whole.to_numpy(zero_copy_only=False)), ~present(column), floats)


def scalars(column: pa.Array, _: Failed) -> Any:
    """Numbers and bools for samples: an array; with nulls a list of numbers as `samples_of` gives them."""
    if not column.null_count:
        return np.array(column.to_numpy(zero_copy_only=False))
    dtype = numpy_type(column.type)
    values: list[Any] = column.to_pylist()
    return values if dtype.name in PYTHON_TYPES else [None if each is None else dtype.type(each) for each in values]


def _parsed_numbers(column: pa.Array, failed: Failed, *, feature: Feature, dtype: np.dtype[Any]) -> Lacking:
    """Numbers in decimal text, as `_numbers`."""
    values, floats = column.to_pylist(), dtype.kind == "f"
    with suppress(ValueError, TypeError, OverflowError):  # a null, or a text that is no number
        return Lacking(np.array([*map(float if floats else int, values)], dtype), holds=floats)
    found = np.full(len(values), np.nan if floats else 0, dtype)
    for i, value in enumerate(each_value(column, failed, function=partial(decode, feature))):
        try:
            if value is not None:
                found[i] = value
        except OverflowError:
            failed[i] = DataError(f"a number that {dtype.name} cannot hold", found=repr(values[i][:40]))
    return Lacking(found, ~present(column), floats)


def _stacked(
    column: pa.Array, failed: Failed, *, feature: Feature, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> Lacking:
    """Arrays of one type and shape, as one array with a row a sample."""
    if not column.null_count and is_bytes(column.type):
        values = column.to_pylist()
        if {*map(len, values)} == {dtype.itemsize * math.prod(shape)}:
            found = np.frombuffer(bytearray().join(values), dtype.newbyteorder("<")).reshape(len(values), *shape)
            return Lacking(found.astype(dtype, copy=False))
    made = np.zeros((len(column), *shape), dtype)
    for i, value in enumerate(each_value(column, failed, function=partial(decode, feature))):
        if value is not None and (value.shape, value.dtype) == (shape, dtype):
            made[i] = value
        elif value is not None:
            failed[i] = DataError("another array than the column's feature says", expected=f"{dtype} of {shape}",
                                  found=f"{value.dtype} of {value.shape}")  # fmt: skip
    return Lacking(made, ~present(column))


def _rows_of_numbers(column: pa.Array, _: Failed) -> Lacking:
    """Lists of one size as one array with a row a sample; a null inside is NaN among floats."""
    size, there = column.type.list_size, present(column)
    if not there.all():
        column = column.take(pa.array(np.flatnonzero(there)))
    flat, floats = column.flatten(), pa.types.is_floating(column.type.value_type)
    inside = None if floats or not flat.null_count else ~present(flat).reshape(-1, size)
    rows = _numbers(flat, {}).values.reshape(-1, size)
    if there.all():
        return Lacking(rows, inside)
    made = np.zeros((len(there), size), rows.dtype)
    made[there] = rows
    missing = np.repeat(~there[:, None], size, axis=1)
    if inside is not None:
        missing[there] = inside
    return Lacking(made, missing)


def list_values(column: pa.Array, _: Failed) -> Any:
    """Lists of numbers as arrays."""
    if not column.null_count:
        flat = column.flatten()
        if not flat.null_count:
            numbers = np.array(flat.to_numpy(zero_copy_only=False))
            return np.split(numbers, np.cumsum(pc.list_value_length(column).to_numpy()[:-1])) if len(column) else []
    return [_list_value(value) for value in column]


def _list_value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    numbers = value.values
    if numbers.null_count and not pa.types.is_floating(numbers.type):
        return numbers.to_pylist()
    return np.array(numbers.to_numpy(zero_copy_only=False))


def pixels(
    column: pa.Array, failed: Failed, making: Making, *, feature: Feature, pictures: Pictures, channels_first: bool
) -> Lacking:
    """Images of one size as one array, channels last or first: (samples, height, width, 3)."""
    size = pictures.size or ()
    made = np.zeros((len(column), 3, *size) if channels_first else (len(column), *size, 3), np.uint8)
    made_of = _call_of(column, making, decoder_of("", feature, "pil", pictures), draws=pictures.draws)

    def decode_image(i: int) -> None:
        making.check()
        try:
            image = made_of(i)
        except LadingError as error:
            failed[i] = error
            return
        if image is not None:
            shown = np.asarray(image)
            made[i] = shown.transpose(2, 0, 1) if channels_first else shown

    making.spread(decode_image, len(column))
    return Lacking(made, ~present(column) if column.null_count else None)


def as_stored(feature: Feature, kind: pa.DataType) -> Reader:
    """Return how a column is read whose values are those of `ds.with_decode(False)[i]`."""
    stored = is_bytes(kind) or is_text(kind)
    if feature.is_text and is_bytes(kind):
        return partial(_batchwise, function=_texts, feature=feature)
    if feature.is_json and stored:
        return partial(_batchwise, function=_parsed, feature=feature)
    if feature.is_bytes or feature.is_text or (feature.is_media and is_bytes(kind)):
        return lambda column, _: column.to_pylist()
    if feature.is_scalar and not stored:
        return partial(each_value, function=None)
    return partial(each_value, function=partial(decode, feature))


def _texts(values: list[bytes]) -> list[str]:
    return [*map(bytes.decode, values)]


def _parsed(values: list[Any]) -> list[Any] | None:
    return json_text.loads_plain([*map(str.encode, values)] if isinstance(values[0], str) else values)


def _batchwise(
    column: pa.Array, failed: Failed, *, function: Callable[[list[Any]], list[Any] | None], feature: Feature
) -> list[Any]:
    """Values by a function of the whole batch; one by one where there are nulls, or it refuses a value."""
    if len(column) and not column.null_count:
        try:
            found = function(column.to_pylist())
        except ValueError:  # of Unicode
            found = None
        if found is not None:
            return found
    return each_value(column, failed, function=partial(decode, feature))


def each_value(
    column: pa.Array,
    failed: Failed,
    making: Making | None = None,
    *,
    function: Callable[..., Any] | None,
    draws: bool = False,
) -> list[Any]:
    """Values, by a function of each that is not null; None where it raises an error of lading's."""
    if making is None or function is None:
        values = _python(column, failed)
        if function is not None:
            for i, value in enumerate(values):
                try:
                    values[i] = None if value is None else function(value)
                except LadingError as error:
                    failed[i], values[i] = error, None
        return values
    made: list[Any] = [None] * len(column)
    made_of = _call_of(column, making, function, draws=draws)

    def make(i: int) -> None:
        making.check()
        try:
            made[i] = made_of(i)
        except LadingError as error:
            failed[i] = error

    making.spread(make, len(made))
    return made


def _python(column: pa.Array, failed: Failed) -> list[Any]:
    try:
        return uncut_values(column)
    except (ValueError, OverflowError, pa.ArrowException):
        pass
    get, values = _value_of(column), list[Any]()
    for i in range(len(column)):
        try:
            values.append(get(i))
        except DataError as error:
            failed[i] = error
            values.append(None)
    return values


def _call_of(column: pa.Array, making: Making, function: Callable[..., Any], *, draws: bool) -> Callable[[int], Any]:
    """A function from a row to what another one makes of its value; None for a null. It may take a generator too."""
    get = _value_of(column)

    def call(i: int) -> Any:
        rng = [making.rng_of(i)] if draws else []
        value = get(i)
        return None if value is None else function(value, *rng)

    return call


def _value_of(column: pa.Array) -> Callable[[int], Any]:
    """A function from a row to its value as a Python value, which raises DataError if Python cannot hold the value."""
    get = uncut_getter(column)

    def value(i: int) -> Any:
        try:
            return get(i)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise DataError("Python cannot hold this value", found=str(error)[:200]) from error

    return value
