"""Columns of a Delta Lake table: their Arrow types, and where a file has them.

    Delta                     Arrow
    long, integer, short, …   int64, int32, int16, int8; double, float, bool, string, date32
    decimal(p, s)             decimal128(p, s)
    timestamp                 timestamp[us, tz=UTC]
    timestamp_ntz             timestamp[us]
    binary                    large_binary, as in all Parquet files
    struct, array, map        struct, list, map
    void                      null

Files have columns under physical names (column mapping by `name`), or under ids (by `id`). A field of such a table says
in its metadata how a file calls the column.

Source: Delta Lake's PROTOCOL.md, Schema Serialization Format, Column Mapping.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lading._core.arrow.align import refuse_duplicate_names
from lading._core.arrow.casts import rebuilt
from lading._core.arrow.views import flattened
from lading._core.features.casts import cast_column
from lading.errors import DataError, UsageError, errors_at

__all__ = ["fitted", "name_in_log", "names_in_file", "table_schema"]

_PRIMITIVES = {
    "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(),
    "double": pa.float64(), "float": pa.float32(), "boolean": pa.bool_(), "binary": pa.large_binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "void": pa.null(),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_MOST_DIGITS = 38
_DEEPEST = 50

_NAME, _ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
_IN_FILE = b"delta.column"
_FIELD_ID = b"PARQUET:field_id"


def table_schema(fields: Any, mode: str) -> pa.Schema:
    """Return the columns of a table.

    Args:
        fields: the fields of its schema, parsed from JSON.
        mode: of column mapping: `none`, `name` or `id`.

    Raises:
        DataError: they are no columns.
        UsageError: lading does not read the type of a column.
    """
    schema = pa.schema(_fields(fields, mode, 0))
    refuse_duplicate_names(schema)
    return schema


def name_in_log(told: Mapping[str, Any], mode: str) -> str:
    """Return the name of a column in partition values of the log."""
    return str(told["name"] if mode == "none" else told["metadata"][_NAME])


def _fields(told: Any, mode: str, depth: int) -> list[pa.Field]:
    if not isinstance(told, list) or depth > _DEEPEST:
        raise DataError("not a list of columns", expected="columns with name, type and metadata",
                        found=reprlib.repr(told)[:80])  # fmt: skip
    return [_field(each, mode, depth) for each in told]


def _field(told: Any, mode: str, depth: int) -> pa.Field:
    name = told.get("name") if isinstance(told, dict) else None
    if not isinstance(name, str):
        raise DataError("a column without a name", found=reprlib.repr(told)[:80])
    with errors_at(column=name):
        kind, metadata = _type(told.get("type"), mode, depth), told.get("metadata") or {}
        if mode == "none":
            return pa.field(name, kind)
        physical, number = (metadata.get(key) for key in (_NAME, _ID)) if isinstance(metadata, dict) else (None, None)
        if not isinstance(physical, str) or not isinstance(number, int):
            raise DataError("a column without its name and id in the files", expected=f"{_NAME} and {_ID}",
                            found=reprlib.repr(metadata)[:80])  # fmt: skip
        return pa.field(name, kind, metadata={_IN_FILE: f"#{number}" if mode == "id" else f"={physical}"})


def _type(told: Any, mode: str, depth: int) -> pa.DataType:
    if isinstance(told, str):
        decimal = _DECIMAL.fullmatch(told)
        if decimal is not None and 1 <= int(decimal[1]) <= _MOST_DIGITS and int(decimal[2]) <= int(decimal[1]):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if told in _PRIMITIVES:
            return _PRIMITIVES[told]
    kind = told.get("type") if isinstance(told, dict) else None
    if kind == "struct":
        return pa.struct(_fields(told.get("fields"), mode, depth + 1))
    if kind == "array" and depth < _DEEPEST:
        return pa.list_(_type(told.get("elementType"), mode, depth + 1))
    if kind == "map" and depth < _DEEPEST:
        return pa.map_(_type(told.get("keyType"), mode, depth + 1), _type(told.get("valueType"), mode, depth + 1))
    raise UsageError("lading does not read this type of Delta Lake", expected=", ".join(_PRIMITIVES),
                     found=reprlib.repr(told)[:80])  # fmt: skip


def _place(field: pa.Field) -> str:
    """Return how a file calls a column of the table: `=name`, or `#id`."""
    place: str = (field.metadata or {}).get(_IN_FILE, b"=" + field.name.encode()).decode()
    return place


def _places(fields: Sequence[pa.Field]) -> dict[str, int]:
    """Return fields of a file by the names and ids that they have there, by number."""
    found: dict[str, int] = {}
    for number, field in enumerate(fields):
        found.setdefault(f"={field.name}", number)
        if number_of := (field.metadata or {}).get(_FIELD_ID):
            found.setdefault(f"#{number_of.decode()}", number)
    return found


def names_in_file(schema: pa.Schema, own: pa.Schema) -> dict[str, str]:
    """Return the name in a file of each column of the table that the file has, by its name in the table.

    Raises:
        DataError: the table has ids of columns, and the file has none.
    """
    places = _places(list(own))
    by_id = any(_place(field).startswith("#") for field in schema)
    if by_id and not any(place.startswith("#") for place in places):
        raise DataError("the file has no ids of columns", expected="field_id of each column, as the table maps by id",
                        found=", ".join(own.names[:20]))  # fmt: skip
    return {field.name: own.names[places[_place(field)]] for field in schema if _place(field) in places}


def fitted(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column of a file in its type in the table; fields that the file lacks are null.

    Raises:
        SchemaMismatch: a value does not fit the type; names the column, or the field of a struct as `column.field`.
    """
    kind = field.type
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        places, parts = _places(list(column.type)), flattened(column)
        children = [
            fitted(parts[places[_place(child)]], child.with_name(f"{field.name}.{child.name}"))
            if _place(child) in places else pa.nulls(len(column), child.type) for child in kind
        ]  # fmt: skip
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_nested(kind) and pa.types.is_nested(column.type):
        return rebuilt(column, kind, lambda part, inner: fitted(part, field.with_type(inner)))
    return cast_column(column, field)
