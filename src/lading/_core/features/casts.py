"""Cast columns to the type of a field: the one cast of steps, schemas, types that users name, formats and caches.

Values keep what they mean, or the cast is an error with the row. `_core.arrow.casts` casts Arrow types; this module
knows references, what bytes and JSON mean, and how errors name the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.casts import REFUSALS, cast, decoded, first_refused, hold_one_kind
from lading._core.arrow.json_columns import is_nested_json
from lading._core.arrow.references import is_ref
from lading._core.arrow.text_checks import is_utf8
from lading._core.arrow.views import is_bytes, is_text, join, slices
from lading._core.features.json_inside import documents_of
from lading._core.features.types import feature_of
from lading.errors import SchemaMismatch, Unrepresentable

__all__ = ["cast_column", "cast_labels", "json_texts", "shown", "text_of_bytes"]

_TEXT = pa.large_string()
_SHOWN = 40


def cast_column(column: Any, field: pa.Field, *, before: pa.Field | None = None, exact: bool = False) -> Any:
    """Return a column in the type of a field.

    References and views stay where the field has bytes, references also for text: they share payload, and a cast would
    copy it.

    Args:
        column: array or chunked array.
        field: name and type that the values get.
        before: the field of the values, if their feature counts too: bytes become text, JSON strings their text, lists
            and structs the text of JSON. Otherwise only the type counts.
        exact: whether the result has the type of the field and no other, and whether values stay of their kind: no text
            becomes a number, and no number a time.

    Raises:
        SchemaMismatch: a value does not fit; names column, row and types.
    """
    kind = field.type
    if before is not None:
        column = _plain_values(column, before, field)
    if column.type == kind or (not exact and _stays(column.type, kind)):
        return column
    if exact and pa.types.is_dictionary(column.type):
        column = decoded(column)
    if exact and not hold_one_kind(column.type, kind):
        raise SchemaMismatch("a column of another type", column=field.name, expected=kind, found=column.type)
    try:
        return cast(column, kind)
    except REFUSALS as error:
        row = first_refused(column, lambda part: cast(part, kind))
        raise SchemaMismatch(
            f"a value does not fit the column's type ({error})",
            column=field.name,
            row=row,
            expected=str(kind),
            found=f"{column.type} {str(column[row])[:_SHOWN]}" if len(column) else str(column.type),
        ) from None


def _stays(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values keep their type: those that share payload, and bytes where references are."""
    binary = is_bytes(kind) or bool(pa.types.is_fixed_size_binary(kind))
    if is_ref(given):
        return is_ref(kind) or binary or is_text(kind)  # text of files is cast after it was read: `as_text`
    if is_ref(kind):
        return is_bytes(given) or bool(pa.types.is_fixed_size_binary(given))
    return binary and bool(pa.types.is_binary_view(given))


def _plain_values(column: Any, before: pa.Field, field: pa.Field) -> Any:
    """Return the values of bytes and JSON that a cast to the type of the field takes."""
    if is_bytes(column.type) and not is_bytes(field.type):
        column = cast_column(join(column), field.with_type(_TEXT))
    if feature_of(before).is_json and is_text(column.type):
        column = pa.array([_plain_text(text) for text in column.to_pylist()], _TEXT)
    if is_text(field.type) and is_nested_json(column.type):
        column = json_texts(column)
    return column


def json_texts(column: Any) -> pa.Array:
    """Return the JSON texts of values: lists, structs, whatever JSON has."""
    return pa.array([None if value is None else json_text.dumps(value) for value in documents_of(column)], _TEXT)


def _plain_text(text: str | None) -> str | None:
    """Return the text of a JSON value: a string's own, the JSON of others."""
    value = None if text is None else json_text.loads(text)
    return value if isinstance(value, str) or value is None else text


def cast_labels(texts: Any, labels: Sequence[str], kind: pa.DataType) -> tuple[Any, int | None]:
    """Return the numbers of names of labels in a type, and the first row whose text is no name; None if all are."""
    texts = texts.cast(_TEXT)  # views cannot be looked up
    numbers = pc.index_in(texts, pa.array(labels, _TEXT))
    if numbers.null_count == texts.null_count:
        return numbers.cast(kind), None
    unknown = np.asarray(pc.and_(texts.is_valid(), numbers.is_null()).to_numpy(zero_copy_only=False))
    return numbers.cast(kind), int(unknown.argmax())


def text_of_bytes(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the text that bytes are, in a type of text.

    Raises:
        Unrepresentable: invalid UTF-8, with row; or more text than the type holds at once.
    """
    try:
        return join(column).cast(_TEXT).cast(kind)
    except pa.ArrowInvalid as error:
        for row, value in enumerate(slices(column)):
            if value is not None and not is_utf8(value):
                raise Unrepresentable("invalid UTF-8 in a text", row=row, found=shown(bytes(value))) from None
        raise Unrepresentable(f"texts that are too long: {error}") from None


def shown(value: bytes) -> str:
    """Return the beginning of bytes, for errors."""
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + b"...")
