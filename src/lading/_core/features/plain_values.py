"""Plain values of columns: which Python values they store and give, checks of names, and weights of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.arrow.types import arrow_type, exact_value
from lading._core.features.encode import plain_item
from lading.errors import DataError, Unrepresentable, UsageError, WrongType

__all__ = [
    "check_texts",
    "listed",
    "number_of",
    "python_types",
    "stored_value",
    "text_of",
    "weight_of_any",
    "weight_of_list",
    "weight_of_numbers",
]


def check_texts(names: Collection[Any], what: str, *, twice: bool = False) -> None:
    """Raise UsageError for a name that is no text, or that appears `twice` although it may not."""
    for name in names:
        try:
            encoded = isinstance(name, str) and name.encode()
        except UnicodeEncodeError:
            encoded = False
        if encoded is False:
            raise UsageError(f"no {what}", expected="a text", found=ascii(name))
    if not twice and len(set(names)) < len(names):
        raise UsageError(f"a {what} appears twice", found=repr(names))


@lru_cache(256)
def python_types(dtype: str) -> tuple[type, ...]:
    """Return the Python types whose values a `Value` of this dtype holds; none for times and decimals.

    Whole floats are whole numbers too, and numbers of numpy are Python's; nothing is cut or made into another kind.

    Raises:
        UsageError: there is no such type.
    """
    return _PYTHON_TYPES.get(arrow_type(dtype), ())


_PYTHON_TYPES: dict[pa.DataType, tuple[type, ...]] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (int,)),
    **dict.fromkeys((pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), (int,)),
    **dict.fromkeys((pa.float32(), pa.float64()), (float, int)),
    pa.float16(): (float,),
    pa.bool_(): (bool,),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), (str,)),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (bytes,)),
}


_HALVES, _MOST_HALF = ("float16", "halffloat"), 65_504


def _is_half(value: int) -> bool:
    """Return whether an integer is exact in 16 bits."""
    return abs(value) <= _MOST_HALF and float(np.float16(value)) == value


def stored_value(dtype: str, value: Any) -> Any:
    """Return what a column of a plain type stores for a value. Raises Unrepresentable (WrongType)."""
    value, types = plain_item(value), python_types(dtype)
    if value is None:
        return None
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if type(value) in types:
        return value
    if not types:
        return exact_value(arrow_type(dtype), value)
    for kind in types:
        if isinstance(value, kind) and not isinstance(value, bool):  # a subclass, such as an enumeration of numbers
            return str.__str__(value) if kind is str else kind(value)  # for a named text, str() may return its name
        if kind in (int, float) and type(value) in (int, float) and math.isfinite(value) and kind(value) == value:
            if type(value) is int and dtype in _HALVES and not _is_half(value):
                break  # pyarrow would round it
            return kind(value)
    refusal = Unrepresentable if {type(value), types[0]} <= {int, float} else WrongType
    raise refusal(
        f"a value that {dtype} cannot hold",
        expected=" or ".join(kind.__name__ for kind in types),
        found=f"{type(value).__name__} {value!r:.80}",
    )


def listed(value: Any) -> Any:
    """Return the items of a list, a numpy array, a tensor or the like. Raises Unrepresentable for anything else."""
    if getattr(value, "ndim", 0) and (
        value.dtype.kind in "biufcU" if isinstance(value, np.ndarray) else hasattr(value, "dtype")
    ):
        value = value.tolist()
    # Texts, bytes and dicts would give their parts; an array without dimensions has no parts.
    parts = hasattr(value, "__iter__") and getattr(value, "ndim", True)
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not parts:
        raise WrongType("this column holds lists", expected="a list", found=f"{type(value).__name__} {value!r:.80}")
    return value


def text_of(value: Any) -> Any:
    """Return the text of bytes; other values unchanged. Raises DataError for invalid UTF-8."""
    try:
        return bytes(value).decode() if isinstance(value, (bytes, memoryview)) else value
    except UnicodeDecodeError as error:
        raise DataError(f"invalid UTF-8 at byte {error.start} of the value", found=error.reason) from None


_FLOATS = ("halffloat", "float", "double")


def number_of(dtype: str, value: Any) -> Any:
    """Return the number whose text these bytes are; other values unchanged."""
    if not isinstance(value, (bytes, memoryview)) or not ("int" in dtype or dtype in _FLOATS):
        return value
    try:
        return float(bytes(value)) if dtype in _FLOATS else int(bytes(value))
    except ValueError:
        raise DataError(f"not a number ({dtype})", found=repr(bytes(value[:40]))) from None


def weight_of_numbers(value: Any) -> int:
    """Return the bytes of a list of numbers."""
    return 8 * len(value)


def weight_of_list(weigh: Callable[[Any], int], value: Any) -> int:
    """Return the bytes of a list, by a function that weighs its items."""
    return sum(weigh(item) for item in value if item is not None)


def weight_of_any(value: Any) -> int:
    """Return the approximate bytes of a value, with those inside lists and dicts."""
    if isinstance(value, dict):
        return sum(map(weight_of_any, value.values()))
    return sum(map(weight_of_any, value)) if isinstance(value, list) else len(value) if hasattr(value, "__len__") else 8
