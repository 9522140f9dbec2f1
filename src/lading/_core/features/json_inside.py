"""JSON texts inside structs and lists: values of several kinds, which Arrow has no other type for.

In a JSON document such a value stands as itself, and not as a text: `{"a": 5}` for the text `5` of the field `a`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lading._core.arrow import json_text
from lading._core.arrow.views import LIST_TYPES
from lading._core.features.types import feature_of
from lading.errors import errors_at

__all__ = ["documents_of", "holds_json_text", "with_texts_inside"]


def holds_json_text(field: pa.Field) -> bool:
    """Return whether values of a field, or values inside them, are JSON text."""
    if feature_of(field).is_json:
        return True
    if pa.types.is_struct(field.type):
        return any(map(holds_json_text, field.type))
    return isinstance(field.type, LIST_TYPES) and holds_json_text(field.type.value_field)


def documents_of(column: pa.Array, kind: pa.DataType | None = None) -> list[Any]:
    """Return the values of a column of structs or lists as JSON documents hold them.

    Args:
        column: the values.
        kind: the type whose fields say where JSON texts are; by default that of the column.

    Raises:
        DataError: a JSON text inside is invalid; names the row.
    """
    field = pa.field("", kind or column.type)
    values: list[Any] = column.to_pylist()
    if not holds_json_text(field):
        return values
    found = []
    for row, value in enumerate(values):
        with errors_at(row=row):
            found.append(_changed(value, field, json_text.loads))
    return found


def with_texts_inside(values: list[Any], field: pa.Field) -> list[Any]:
    """Return values of JSON documents with JSON texts where the type of their field has those."""
    return [_changed(value, field, json_text.dumps) for value in values] if holds_json_text(field) else values


def _changed(value: Any, field: pa.Field, change: Callable[[Any], Any]) -> Any:
    if value is None:
        return None
    if feature_of(field).is_json:
        return change(value)
    if type(value) is dict and pa.types.is_struct(field.type) and holds_json_text(field):
        known = {child.name: child for child in field.type}
        return {name: _changed(each, known[name], change) if name in known else each for name, each in value.items()}
    if type(value) is list and isinstance(field.type, LIST_TYPES) and holds_json_text(field):
        return [_changed(each, field.type.value_field, change) for each in value]
    return value
