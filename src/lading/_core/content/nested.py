"""Values inside structs, maps and lists of Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.casts import decoded
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import LIST_TYPES, child_fields, join, with_child_fields, without_runs
from lading._core.content.field_paths import FieldPath
from lading.errors import UsageError

__all__ = [
    "close_to",
    "column_values",
    "empty_batch",
    "field_named",
    "no_such_field",
    "plain",
    "plain_type",
    "value_at",
]

_SHOWN_COLUMNS = 50
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError)


def column_values(batch: pa.RecordBatch, path: FieldPath) -> pa.Array:
    """Return the values of a column, or at a path of its structs, maps and lists, in a type with kernels.

    Raises:
        UsageError: the column is missing, stands several times, or has no such field.
    """
    path = path.among(batch.schema.names)
    field = field_named(batch.schema, path)
    try:
        return value_at(batch.column(field.name), path)
    except _ARROW_ERRORS as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{field.type} cannot be read: {reason}", column=path.column) from None


def field_named(schema: pa.Schema, path: FieldPath) -> pa.Field:
    """Return the field of the column of a path.

    Raises:
        UsageError: the column is missing, or stands several times.
    """
    at = schema.get_all_field_indices(path.column)
    if len(at) == 1:
        return schema.field(at[0])
    names = schema.names
    there = ", ".join(names[:_SHOWN_COLUMNS]) + (", …" if len(names) > _SHOWN_COLUMNS else "")
    what = f"stands {len(at)} times" if at else "is not there"
    raise UsageError(f"the column {what}; there are {there or 'none'}", column=path.column,
                     advice=None if at else close_to(path.column, names))  # fmt: skip


def close_to(name: str, names: Iterable[str]) -> str | None:
    """Return advice that names the most similar of some names; None if no name is similar."""
    close = get_close_matches(name, list(names), n=1)
    return f"Did you mean {close[0]}?" if close else None


def no_such_field(path: FieldPath, whose: str, names: Sequence[str]) -> UsageError:
    """Return the error that a column lacks a field, with the fields that it has."""
    return UsageError(f"no such field; {whose} {', '.join(names)}", column=path.column, found=str(path),
                      advice=close_to(str(path.path[-1]), names))  # fmt: skip


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows of these columns."""
    fields = [field.with_type(_without_run_ends(field.type)) for field in schema]
    plain = pa.schema(fields, metadata=schema.metadata)
    return pa.record_batch([pa.nulls(0, field.type) for field in plain], plain)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type without extension, dictionary and run ends; references stay."""
    if isinstance(kind, pa.BaseExtensionType) and not is_ref(kind):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    return kind


def _without_run_ends(kind: pa.DataType) -> pa.DataType:
    """Return the type without run ends: pyarrow 26 makes invalid empty arrays of run ends inside other types."""
    if pa.types.is_run_end_encoded(kind):
        return _without_run_ends(kind.value_type)
    inner = [field.with_type(_without_run_ends(field.type)) for field in child_fields(kind)]
    return with_child_fields(kind, inner) if inner else kind


def plain(column: pa.Array) -> pa.Array:
    """Return the values in a type that pyarrow has kernels for; references and views of bytes stay unchanged."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return column if is_ref(kind) else plain(column.storage)
    if pa.types.is_dictionary(kind):
        return plain(decoded(column))
    if pa.types.is_run_end_encoded(kind):
        return plain(without_runs(column))
    return join(column) if pa.types.is_string_view(kind) else column


def value_at(column: pa.Array, path: FieldPath) -> pa.Array:
    """Return the values at a path of structs, maps and lists; null where a row has none, as in a column of nulls.

    Raises:
        UsageError: the type has no such field.
    """
    column = plain(column)
    for i, part in enumerate(path.path):
        here = FieldPath(path.column, path.path[: i + 1])
        if pa.types.is_null(column.type):
            return column
        if pa.types.is_map(column.type) and isinstance(part, str):
            column = pc.map_lookup(column, pa.scalar(part, column.type.key_type), "first")
        elif pa.types.is_struct(column.type) and isinstance(part, str):
            column = _child(column, part, here)
        elif isinstance(column.type, LIST_TYPES) and isinstance(part, int):
            column = _element(column, part)
        else:
            raise UsageError(f"{column.type} has no field {part!r}", column=path.column)
        column = plain(column)
    return column


def _child(column: pa.StructArray, name: str, path: FieldPath) -> pa.Array:
    at = column.type.get_field_index(name)
    if at < 0:
        raise no_such_field(path, "this struct has", [child.name for child in column.type])
    child = plain(column.field(at))
    if not column.null_count:
        return child
    if pa.types.is_union(child.type):
        raise UsageError(f"{child.type} in structs that may be null cannot be looked at", column=path.column)
    return pa.StructArray.from_arrays([child], [name], mask=column.is_null()).flatten()[0]


def _element(column: pa.Array, number: int) -> pa.Array:
    """Return one value of each list; null where the list is shorter."""
    length = np.asarray(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    place = number if number >= 0 else length + number
    there = (place >= 0) & (place < length)
    at = np.cumsum(length) - length + place
    return column.flatten().take(pa.array(np.where(there, at, 0), mask=~there))
