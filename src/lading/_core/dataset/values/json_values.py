"""Values inside JSON documents, as plain Arrow arrays."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.content.field_paths import Part, Use

__all__ = ["FieldColumn", "json_at", "typed_json"]

_NOTHING = (None,)
_JSON_TEXT = pa.json_(pa.string())
_TYPES_OF_USE: dict[Use, frozenset[type]] = {
    "text": frozenset({str}),
    "number": frozenset({int, float}),
    "bool": frozenset({bool}),
    "length": frozenset({str, list, dict}),
    "list": frozenset({list}),
}
_EMPTY_OF_USE = {"text": pa.string(), "number": pa.int64(), "bool": pa.bool_()}
_EXACT = 1 << 53


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """Values of a field, one a row.

    Attributes:
        values: the values; null where there is none, or one that the use cannot take.
        others: which rows have a value that the use cannot take; None if no row has.
    """

    values: pa.Array
    others: NDArray[np.bool_] | None = None


def json_at(documents: list[Any], path: tuple[Part, ...]) -> list[Any]:
    """Return the values at a path of JSON values; None where there is none."""
    for part in path:
        if isinstance(part, str):
            documents = [each.get(part) if type(each) is dict else None for each in documents]
        else:
            low, high = (part, part + 1) if part >= 0 else (part, part + 1 or None)
            documents = [(each[low:high] or _NOTHING)[0] if type(each) is list else None for each in documents]
    return documents


def typed_json(values: list[Any], use: Use = "any") -> FieldColumn:
    """Return JSON values as an Arrow array of the type that all of them have; see `field_values`."""
    if use == "presence":
        return FieldColumn(pa.array([None if value is None else True for value in values], pa.bool_()))
    kinds = {*map(type, values)} - {NoneType}
    others = np.zeros(len(values), np.bool_)
    if use != "any" and not kinds <= _TYPES_OF_USE[use]:
        others |= [value is not None and type(value) not in _TYPES_OF_USE[use] for value in values]
        kinds &= _TYPES_OF_USE[use]
        values = [None if other else value for value, other in zip(values, others.tolist(), strict=True)]
    if use == "length":
        column = _only_lengths(values)
    elif use == "list":
        column = _lists_of_json(values)
    elif not kinds:
        column = pa.nulls(len(values), _EMPTY_OF_USE.get(use, pa.null()))
    else:
        column = _of_one_type(values, kinds)
        if column is None and use == "any":
            column = _json_texts(values)
        elif column is None:  # numbers beyond 64 bits, texts that are no Unicode
            fits = [value is None or _fits(value, mixed=len(kinds) > 1) for value in values]
            others |= ~np.array(fits, np.bool_)
            kept = [value if fit else None for value, fit in zip(values, fits, strict=True)]
            column = typed_json(kept, use).values
    return FieldColumn(column, others if others.any() else None)


def _of_one_type(values: list[Any], kinds: set[type]) -> pa.Array | None:
    """Return scalars, or lists of scalars, of one type; None if no type holds all of them exactly."""
    try:
        if kinds <= {int, float} and len(kinds) > 1:
            exact = all(type(value) is not int or abs(value) <= _EXACT for value in values)
            return pa.array(values, pa.float64()) if exact else None
        if kinds == {list}:
            inner = {type(each) for value in values if value is not None for each in value} - {NoneType}
            kind = _SCALARS.get(next(iter(inner))) if len(inner) == 1 else None
            return pa.array(values, pa.list_(kind)) if kind is not None else None
        kind = _SCALARS.get(next(iter(kinds))) if len(kinds) == 1 else None
        return pa.array(values, kind) if kind is not None else None
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None


_SCALARS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}


def _fits(value: Any, *, mixed: bool) -> bool:
    if isinstance(value, str):
        return json_text.is_unicode(value)
    return not isinstance(value, int) or (abs(value) <= _EXACT if mixed else -(1 << 63) <= value < 1 << 63)


def _only_lengths(values: list[Any]) -> pa.Array:
    """Return lists of nulls that are as long as these values."""
    length = np.array([0 if value is None else len(value) for value in values], np.int64)
    offsets = pa.array(np.append(0, np.cumsum(length)), mask=np.array([*(value is None for value in values), False]))
    return pa.LargeListArray.from_arrays(offsets, pa.nulls(int(length.sum())))


def _lists_of_json(values: list[Any]) -> pa.Array:
    """Return lists as lists of JSON texts of their items, whatever types these have; a null item is null."""
    texts = pa.array(
        [None if value is None else [None if each is None else json_text.dumps(each) for each in value]
         for value in values],
        pa.large_list(pa.string()),
    )  # fmt: skip
    items = pa.ExtensionArray.from_storage(_JSON_TEXT, texts.values)
    return pa.LargeListArray.from_arrays(texts.offsets, items, mask=texts.is_null() if texts.null_count else None)


def _json_texts(values: list[Any]) -> pa.Array:
    texts = pa.array([None if value is None else json_text.dumps(value) for value in values], pa.string())
    return pa.ExtensionArray.from_storage(_JSON_TEXT, texts)
