"""Arrow types by their names, values of Python that one of them holds exactly, and values of Arrow in Python.

Told a type, pyarrow takes a number, a day or a time of another zone for a time without a word, and leaves out what is
finer than its unit; left to find a type, it goes by the first of many values. So times, days and decimals are checked
one by one before it sees them. Into Python it takes times of a day without their nanoseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading.arrow.views import LIST_TYPES, is_text
from lading.errors import Unrepresentable, UsageError

__all__ = ["array_of_values", "arrow_type", "exact_value", "names_of", "python_values", "uncut_getter", "uncut_values"]

_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]")
_DECIMAL = re.compile(r"(decimal(?:32|64|128|256))\((\d+), (-?\d+)\)")
_FINE = str(pa.time64("ns"))
_WRAPPED = (pa.DictionaryScalar, pa.RunEndEncodedScalar, pa.ExtensionScalar, pa.UnionScalar)
_NANOSECONDS = {"D": 86_400 * 10**9, "h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@lru_cache(256)
def arrow_type(name: str) -> pa.DataType:
    """The type that has this name, or prints as it: `int64`, `timestamp[us, tz=UTC]`, `decimal128(10, 2)`.

    Raises:
        UsageError: there is none, or no such zone.
    """
    try:
        if zoned := _ZONED.fullmatch(name):
            pa.lib.string_to_tzinfo(zoned[2])
            return pa.timestamp(zoned[1], zoned[2])
        if decimal := _DECIMAL.fullmatch(name):
            return getattr(pa, decimal[1])(int(decimal[2]), int(decimal[3]))
        return pa.type_for_alias(name)
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise UsageError("no type of a value", expected="a name of Arrow's, such as int64", found=repr(name)) from None


def array_of_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Values of Python in a type; in chunks where they pass 2 GB.

    Raises:
        ArrowException, TypeError, ValueError, OverflowError: pyarrow does not take them, or a float, inside too, is too
            large for its type.
    """
    array = pa.array(values, kind)
    if (found := _infinities(array)) and found > _infinities_of(values):
        raise pa.ArrowInvalid("a number is too large")
    return array


def _infinities(array: pa.Array | pa.ChunkedArray) -> int:
    """How many there are, inside too: a float that is too large for its type becomes one without a word."""
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
    """A value that is none of text, bytes, numbers and bools, as pyarrow stores it in this type without a loss.

    A time that is none (NaT) is null.

    Raises:
        Unrepresentable: it is of another kind, of no zone or of one where the type says otherwise, or finer than the
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
    """Whether a value is of the kind that a type holds, however fine it is."""
    types = pa.types
    if types.is_timestamp(kind):
        # pyarrow leaves out what a zone is finer than seconds.
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
    """Nanoseconds beyond the last second; of pandas' times too, which have more than microseconds."""
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
    """The values of a column as Python's.

    Raises:
        ValueError, OverflowError, ArrowException: Python cannot have one, or it would be cut.
    """
    found: list[Any] = list(map(_exactly, column)) if _is_cut(column.type) else column.to_pylist()
    return found


def uncut_getter(column: pa.Array) -> Callable[[int], Any]:
    """What gives one value of a column, by its row, as Python's. Raises as `uncut_values`."""
    if _is_cut(column.type):
        return lambda row: _exactly(column[row])
    return lambda row: column[row].as_py()


def _is_cut(kind: pa.DataType) -> bool:
    """Whether a type is one, or has one inside, of which pyarrow leaves digits out where Python has none."""
    return _FINE in str(kind)


def _exactly(value: pa.Scalar) -> Any:
    if _has_nanoseconds(value):
        raise ValueError("a time of day with nanoseconds")
    return value.as_py()


def _has_nanoseconds(value: pa.Scalar) -> bool:
    """Whether a time of a day, at any depth, is finer than microseconds."""
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
    """The values of a column; times that Python cannot have, and those with nanoseconds, as texts.

    What is a text does not depend on pandas being there.
    """
    if "[ns" not in str(column.type):
        with suppress(ValueError, OverflowError):  # beyond the year 9999, or of a zone that is not known here
            found: list[Any] = column.to_pylist()
            return found
    return [_python(value) for value in column]


def names_of(column: pa.Array | pa.ChunkedArray) -> list[str | int | None]:
    """What names rows, for people and for JSON: texts and whole numbers as they are, all else as texts."""
    values = python_values(column)
    return values if is_text(column.type) else [v if v is None or isinstance(v, (str, int)) else str(v) for v in values]


def _python(value: pa.Scalar) -> Any:
    """A value as Python has it; a time with nanoseconds, or that Python cannot have, as Arrow prints it."""
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
    """A value as Arrow prints it."""
    try:
        return str(value.cast(pa.string()).as_py())
    except pa.ArrowInvalid:  # of a zone that nobody knows: the same moment, told in UTC
        return str(value.cast(pa.timestamp(value.type.unit, "UTC")).cast(pa.string()).as_py())
