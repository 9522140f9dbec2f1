"""Arrow types by name; exact conversion of Python values to Arrow and back.

With a given type, pyarrow silently takes a number, a day or a time of another zone as a time, and drops everything
finer than the unit. Without a type, it decides by the first of many values. Therefore times, days and decimals are
checked one by one before pyarrow sees them. Converting to Python, pyarrow drops the nanoseconds of times of day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.views import LIST_TYPES, is_text
from lading.errors import DataError, Unrepresentable, UsageError

__all__ = [
    "array_of_values",
    "arrow_type",
    "exact_value",
    "names_of",
    "python_values",
    "supported",
    "uncut_getter",
    "uncut_values",
    "unread_type",
]

_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_DECIMAL = re.compile(r"(decimal(?:32|64|128|256))\((\d+), (-?\d+)\)")
_FINE = str(pa.time64("ns"))
_WRAPPED = (pa.DictionaryScalar, pa.RunEndEncodedScalar, pa.ExtensionScalar, pa.UnionScalar)
_NANOSECONDS = {"D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@lru_cache(256)
def arrow_type(name: str) -> pa.DataType:
    """Return the type with this name, as Arrow prints it: `int64`, `timestamp[us, tz=UTC]`, `decimal128(10, 2)`.

    Raises:
        UsageError: an unknown type or time zone.
    """
    try:
        if zoned := _ZONED.fullmatch(name):
            pa.lib.string_to_tzinfo(zoned[2])
            return pa.timestamp(zoned[1], zoned[2])
        if decimal := _DECIMAL.fullmatch(name):
            return getattr(pa, decimal[1])(int(decimal[2]), int(decimal[3]))
        return pa.type_for_alias(name)
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise UsageError(
            "not the name of a type", expected="a name of Arrow's, such as int64", found=repr(name)
        ) from None


def unread_type(kind: pa.DataType) -> pa.DataType | None:
    """Return a type, itself or one inside it, of which pyarrow has no array: intervals of months, of days and times."""
    if isinstance(kind, pa.BaseExtensionType):
        return unread_type(kind.storage_type)
    coded = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    inner = [kind.value_type] if coded else [kind.field(i).type for i in range(kind.num_fields)]
    found = next((each for each in map(unread_type, inner) if each is not None), None)
    if found is not None or inner:
        return found
    try:
        pa.nulls(0, kind)
    except KeyError:
        return kind
    return None


@contextmanager
def supported(file: str | None = None, offset: int | None = None) -> Iterator[None]:
    """Return pyarrow's error for a schema with a type that it does not have as DataError: the file may be sound.

    Args:
        file: the file of the schema.
        offset: where the schema is.
    """
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        said = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(
            "the schema has a type that is not supported", file=file, offset=offset,
            expected="types that pyarrow reads", found=said,
            advice="With the program that wrote the file, write the column in another type (128-bit integers as "
            "decimal128 or text), or leave the column out.",
        ) from error  # fmt: skip


def array_of_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return Python values in a type; in chunks if they exceed 2 GB.

    Raises:
        ArrowException, TypeError, ValueError, OverflowError: pyarrow refuses them, or a float, also a nested one, is
            too large for its type.
    """
    array = pa.array(values, kind)
    if (found := _infinities(array)) and found > _infinities_of(values):
        raise pa.ArrowInvalid("a number is too large")
    return array


def _infinities(array: pa.Array | pa.ChunkedArray) -> int:
    """Return the number of infinite floats, also nested: pyarrow silently turns a float that is too large into one."""
    if isinstance(array, pa.ChunkedArray):
        return sum(map(_infinities, array.chunks))
    if pa.types.is_map(array.type):
        return _infinities(array.keys) + _infinities(array.items)
    if isinstance(array.type, LIST_TYPES):
        return _infinities(pc.list_flatten(array))
    if pa.types.is_struct(array.type):
        return sum(map(_infinities, array.flatten()))
    return int(pc.sum(pc.is_inf(array)).as_py() or 0) if pa.types.is_floating(array.type) else 0


def _infinities_of(value: Any) -> int:
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return int(np.count_nonzero(np.isinf(value)))
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_infinities_of, value)) if isinstance(value, (list, tuple)) else value in (math.inf, -math.inf)


def exact_value(kind: pa.DataType, value: Any) -> Any:
    """Return a value (not text, bytes, a number or a bool) as pyarrow stores it in this type without loss.

    NaT becomes null.

    Raises:
        Unrepresentable: the value is of another kind, has no zone or has one contrary to the type, or is finer than the
            type's unit.
    """
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return _of_numpy(kind, value)
    if type(value).__name__ == "NaTType":
        return None
    if not _belongs(kind, value):
        raise _misfit(kind, value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if hasattr(kind, "unit") and _fraction(value) % _NANOSECONDS[kind.unit]:
        raise _misfit(kind, value)
    return value


def _belongs(kind: pa.DataType, value: Any) -> bool:
    """Return whether a value is of the kind that a type holds, whatever its precision."""
    types = pa.types
    if types.is_timestamp(kind):
        # pyarrow drops the part of a zone offset that is finer than seconds.
        zone = value.utcoffset() if isinstance(value, datetime) else None
        zoned = zone is not None and not zone.microseconds
        return isinstance(value, datetime) and (zone is None if kind.tz is None else zoned)
    if types.is_date(kind):
        return isinstance(value, date) and not isinstance(value, datetime)
    if types.is_time(kind):
        return isinstance(value, time) and value.tzinfo is None
    if types.is_duration(kind):
        return isinstance(value, timedelta)
    if types.is_decimal(kind):
        return isinstance(value, (Decimal, int)) and not isinstance(value, bool)
    return types.is_interval(kind) and isinstance(value, pa.MonthDayNano)


def _fraction(value: Any) -> int:
    """Return the nanoseconds after the last full second; also of pandas' times, which are finer than microseconds."""
    if isinstance(value, timedelta):
        return value.microseconds * 1000 + int(getattr(value, "nanoseconds", 0))
    return int(getattr(value, "microsecond", 0)) * 1000 + int(getattr(value, "nanosecond", 0))


def _of_numpy(kind: pa.DataType, value: np.datetime64 | np.timedelta64) -> Any:
    if np.isnat(value):
        return None
    unit, count = np.datetime_data(value.dtype)
    if pa.types.is_date(kind) and isinstance(value, np.datetime64) and unit == "D" and isinstance(value.item(), date):
        return value.item()
    times = pa.types.is_timestamp(kind) and kind.tz is None and isinstance(value, np.datetime64)
    if not (times or (pa.types.is_duration(kind) and isinstance(value, np.timedelta64))) or unit not in _NANOSECONDS:
        raise _misfit(kind, value)
    whole, rest = divmod(int(value.astype(np.int64)) * count * _NANOSECONDS[unit], _NANOSECONDS[kind.unit])
    if rest or abs(whole) >= 1 << 63:
        raise _misfit(kind, value)
    return type(value)(whole, kind.unit)


def uncut_values(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python values.

    Raises:
        ValueError, OverflowError, ArrowException: Python cannot hold a value, or would cut it.
    """
    found: list[Any] = list(map(_exactly, column)) if _is_cut(column.type) else column.to_pylist()
    return found


def uncut_getter(column: pa.Array) -> Callable[[int], Any]:
    """Return a function from a row to its value as a Python value. The function raises as `uncut_values`."""
    if _is_cut(column.type):
        return lambda row: _exactly(column[row])
    return lambda row: column[row].as_py()


def _is_cut(kind: pa.DataType) -> bool:
    """Return whether a type, or one inside it, has digits that pyarrow drops because Python cannot hold them."""
    return _FINE in str(kind)


def _exactly(value: pa.Scalar) -> Any:
    if _has_nanoseconds(value):
        raise ValueError("a time of day with nanoseconds")
    return value.as_py()


def _has_nanoseconds(value: pa.Scalar) -> bool:
    """Return whether a time of day, at any depth, is finer than microseconds."""
    if not value.is_valid or not _is_cut(value.type):
        return False
    if isinstance(value, pa.Time64Scalar):
        return bool(value.value % 1000)
    if isinstance(value, _WRAPPED):
        return _has_nanoseconds(value.value)
    inside = [value[i] for i in range(len(value.type))] if isinstance(value, pa.StructScalar) else value.values
    return any(map(_has_nanoseconds, inside))


def _misfit(kind: pa.DataType, value: Any) -> Unrepresentable:
    return Unrepresentable(
        f"a value that {kind} cannot hold",
        expected="one of its kind, no finer than its unit, with a zone if it has one",
        found=f"{type(value).__name__} {value!r:.80}",
    )


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; times that Python cannot hold, and times with nanoseconds, as texts.

    The result does not depend on whether pandas is installed.
    """
    if "[ns" not in str(column.type):
        with suppress(ValueError, OverflowError):  # after the year 9999, or of a zone that this machine lacks
            found: list[Any] = column.to_pylist()
            return found
    return [_python(value) for value in column]


def names_of(column: pa.Array | pa.ChunkedArray) -> list[str | int | None]:
    """Return names of rows for people and for JSON: texts and integers unchanged, everything else as text."""
    values = python_values(column)
    return values if is_text(column.type) else [v if v is None or isinstance(v, (str, int)) else str(v) for v in values]


def _python(value: pa.Scalar) -> Any:
    """Return a value as a Python value; times with nanoseconds, or outside Python's range, as Arrow prints them."""
    if not value.is_valid or "[ns" not in str(value.type):
        with suppress(ValueError, OverflowError):
            return value.as_py()
    if isinstance(value, (pa.DictionaryScalar, pa.RunEndEncodedScalar, pa.ExtensionScalar)):
        return _python(value.value)
    if isinstance(value, pa.StructScalar):
        return {field.name: _python(value[i]) for i, field in enumerate(value.type)}
    if isinstance(value, pa.MapScalar):
        return [(_python(entry[0]), _python(entry[1])) for entry in value.values]
    if isinstance(value, pa.ListScalar):
        return [_python(item) for item in value.values]
    return _printed(value)


def _printed(value: pa.Scalar) -> str:
    """Return a value as Arrow prints it."""
    try:
        return str(value.cast(pa.string()).as_py())
    except pa.ArrowInvalid:  # of an unknown zone: the same moment in UTC
        return str(value.cast(pa.timestamp(value.type.unit, "UTC")).cast(pa.string()).as_py())
