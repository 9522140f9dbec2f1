"""Samples as dicts → record batches."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from lading import jsontext
from lading.align import refuse_bare
from lading.errors import Unrepresentable, UsageError
from lading.features import FEATURE_KEY, Array, Json, tag_by_extension, with_feature
from lading.views import over

__all__ = ["encode_value", "rows_to_batch"]

_OF_NUMPY = (bytes, str, bool, int, float, date, timedelta, type(None))
_LARGE_BYTES = 4 << 10
"""Bytes of a value in the mean above which a view costs less than a copy."""


def encode_value(name: str, value: Any) -> Any:
    """A value as it is stored: bytes, text and numbers as they are, arrays as `.npy`, lists and dicts as JSON text.

    Pickle is never used. Raises UsageError for what has no such form.
    """
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if value is None or isinstance(value, (bytes, str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        plain = value.item()
        # Of nanoseconds numpy gives a number that is no time any more, of what Python lacks the value itself.
        if isinstance(plain, _OF_NUMPY) and not (isinstance(plain, int) and value.dtype.kind in "mM"):
            return plain
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise UsageError("an array of Python objects cannot be stored", found=f"field {name!r}")
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        return buffer.getvalue()
    if isinstance(value, (list, tuple, dict)):
        return jsontext.dumps(value)
    raise UsageError("a value of this type cannot be stored", found=f"field {name!r}: {type(value).__name__}",
                     advice="Encode it as bytes, text, a number, a list or dict, or a numpy array.")  # fmt: skip


def rows_to_batch(rows: Sequence[Mapping[str, Any]], originals: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """One batch of encoded rows, a column a field in order of first appearance; missing fields are null.

    Large bytes come as `binary_view` over the values given, other bytes as `large_binary`.

    Args:
        rows: values as `encode_value` gave them.
        originals: the values before, which say what a column of text or bytes means.

    Raises:
        UsageError: the values of one field are of several kinds.
        Unrepresentable: no row has a field; a text is no Unicode, a number has more than 64 bits, with row and column.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    refuse_bare(len(rows), len(names))
    arrays, fields = [], []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            array = _array(name, values)
        except (UnicodeEncodeError, OverflowError):
            raise _misfit(name, values) from None
        field = pa.field(name, array.type, metadata=tag_by_extension(name) or None)
        if FEATURE_KEY not in (field.metadata or {}):
            field = _tagged(field, next((o[name] for o in originals if o.get(name) is not None), None))
        arrays.append(array)
        fields.append(field)
    return pa.record_batch(arrays, schema=pa.schema(fields))


def _array(name: str, values: list[Any]) -> pa.Array:
    kinds = {type(v) for v in values if v is not None}
    if kinds == {bytes}:
        large = sum(map(len, filter(None, values))) >= _LARGE_BYTES * len(values)
        return over(values) if large else pa.array(values, pa.large_binary())
    if kinds == {str}:
        return pa.array(values, pa.large_string() if sum(map(len, filter(None, values))) > 1 << 29 else pa.string())
    if kinds == {bytes, str}:
        return pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.large_binary())
    if len(kinds) > 1:
        raise UsageError("the values of one field are of several kinds", found=f"field {name!r}: "
                         + ", ".join(sorted(k.__name__ for k in kinds)))  # fmt: skip
    return pa.array(values)


def _misfit(name: str, values: list[Any]) -> Unrepresentable:
    """The error for the first value that Arrow's text and numbers cannot hold."""
    for row, value in enumerate(values):
        try:
            _array(name, [value])
        except UnicodeEncodeError:
            return Unrepresentable("a text with half of a character", row=row, column=name, expected="Unicode",
                                   found=ascii(value)[:80])  # fmt: skip
        except OverflowError:
            break
    return Unrepresentable("a number beyond 64 bits", row=row, column=name, found=str(value)[:80],
                           advice="Give it as text.")  # fmt: skip


def _tagged(field: pa.Field, example: Any) -> pa.Field:
    if isinstance(example, (dict, list, tuple)):
        return with_feature(field, Json())
    return with_feature(field, Array()) if isinstance(example, np.ndarray) else field
