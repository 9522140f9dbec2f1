"""Convert JSON values to Arrow columns without loss.

A field whose values are all of one JSON type becomes a column of that type. A field becomes a string column of JSON
texts with the feature Json if it mixes types (also integers and floats: `1` and `1.0` differ), or if it holds lists,
objects, integers beyond 64 bits or text with lone surrogates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.casts import cast, registered, unregistered_type
from lading._core.arrow.views import LIST_TYPES, is_text
from lading._core.features.json_inside import with_texts_inside
from lading._core.features.types import Json, feature_of, with_feature
from lading.errors import SchemaMismatch

__all__ = [
    "Kinds",
    "build_column",
    "column_type",
    "fit_json",
    "is_json_type",
    "is_nested_json",
    "kinds_of",
    "mixed_columns",
    "union_json_schemas",
    "wider_column",
]

_BOOL, _INT, _LONG, _FLOAT, _STRING, _NESTED = 1, 2, 4, 8, 16, 32
_TYPES = {0: pa.null(), _BOOL: pa.bool_(), _INT: pa.int64(), _FLOAT: pa.float64(), _STRING: pa.string()}
_KINDS = {type(None): 0, bool: _BOOL, int: _INT, float: _FLOAT, str: _STRING}
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 63) - 1


def _kind(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _INT if _MIN_INT <= value <= _MAX_INT else _LONG
    if isinstance(value, float):
        return _FLOAT
    if isinstance(value, str):
        return _STRING if value.isascii() or json_text.is_unicode(value) else _LONG
    return _NESTED


class Kinds:
    """The JSON types in the fields of many documents; a few bytes a field."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._entries: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        """Return the names of fields in order of appearance."""
        return list(self._seen)

    def add(self, fields: dict[str, Any], per_item: set[str]) -> None:
        """Count one document; for the fields in `per_item` count the list's entries."""
        for name, value in fields.items():
            self._seen[name] = self._seen.get(name, 0) | _kind(value)
            if name in per_item and isinstance(value, list):
                for entry in value:
                    self._entries[name] = self._entries.get(name, 0) | _kind(entry)

    def of(self, name: str, *, per_item: bool) -> int:
        """Return the types seen in a field, or in the entries of its lists."""
        return (self._entries if per_item else self._seen).get(name, 0)


def kinds_of(values: Sequence[Any], *, plain: bool = False) -> int:
    """Return the types of values, for `column_type`.

    Args:
        values: values of one field.
        plain: whether integers beyond 64 bits and lone surrogates are excluded, so that values need no check.
    """
    if plain:
        return reduce(or_, (_KINDS.get(kind, _NESTED) for kind in set(map(type, values))), 0)
    return reduce(or_, map(_kind, values), 0)


def column_type(name: str, kinds: int) -> pa.Field:
    """Return the field of a column that holds all values of these types exactly."""
    if kinds in _TYPES:
        return pa.field(name, _TYPES[kinds])
    return with_feature(pa.field(name, pa.string()), Json())


def build_column(target: pa.Field, values: list[Any], path: str) -> pa.Array:
    """Return a column of Python values from JSON, in the target's type.

    Raises:
        SchemaMismatch: a value does not fit the type; names file and column.
    """
    try:
        if feature_of(target).is_json:
            return pa.array([None if v is None else json_text.dumps(v) for v in values], target.type)
        # pyarrow cannot make lists of values of a registered extension type.
        column = pa.array(with_texts_inside(values, target), unregistered_type(target.type))
        _refuse_others(values, column)
        return registered(column, target.type)
    except _REFUSALS as error:
        found = next((f"{value!r:.60}: " for value in values if _is_refused(value, target.type)), "")
        raise SchemaMismatch("a value does not fit the type of its column", file=path, column=target.name,
                             expected=target.type, found=f"{found}{error}") from error  # fmt: skip


_REFUSALS = (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError)


def _is_refused(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], unregistered_type(kind))
    except _REFUSALS:
        return True
    return False


_MADE_OTHERS: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = (
    (pa.types.is_integer, frozenset({bool, float})),
    (pa.types.is_floating, frozenset({bool, str})),
    (pa.types.is_struct, frozenset({list, str})),
    (lambda kind: isinstance(kind, LIST_TYPES), frozenset({str, dict})),
)
"""JSON types that pyarrow silently converts to another type. It refuses every other mismatch."""


def _made_others(kind: pa.DataType) -> frozenset[type]:
    return next((types for is_kind, types in _MADE_OTHERS if is_kind(_value_type(kind))), frozenset())


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _refuse_others(values: list[Any], column: pa.Array) -> None:
    """Raise ArrowInvalid if pyarrow changed values: a text into a list of its letters, for example.

    Values are checked one by one only where their types allow such a change.
    """
    others = _made_others(column.type)
    if not others.isdisjoint(map(type, values)):
        odd = next(value for value in values if type(value) in others)
        raise pa.ArrowInvalid(f"{odd!r:.60}")
    if _holds_infinite(column):
        cast(pa.array(values, pa.float64()), _value_type(column.type))  # which refuses values that became infinite
    elif pa.types.is_struct(column.type):
        _refuse_others_inside(list(filter(None, values)), column)
    elif isinstance(column.type, LIST_TYPES) and _made_others(column.type.value_type):
        _refuse_others(list(chain.from_iterable(filter(None, values))), column.flatten())


def _refuse_others_inside(objects: list[dict[str, Any]], column: pa.StructArray) -> None:
    names, children = [child.name for child in column.type], column.flatten()
    taken = sum(len(child) - child.null_count for child in children)
    if sum(map(len, objects)) != taken and not {*names}.issuperset(chain.from_iterable(objects)):
        odd = next(name for value in objects for name in value if name not in names)
        raise pa.ArrowInvalid(f"an object with the name {odd!r:.60}")
    if not any(_made_others(child.type) for child in children):
        return
    found = set(map(type, chain.from_iterable(map(dict.values, objects))))
    for name, child in zip(names, children, strict=True):
        others = _made_others(child.type)
        if others and (pa.types.is_nested(child.type) or not others.isdisjoint(found) or _holds_infinite(child)):
            _refuse_others([value.get(name) for value in objects], child)


def _holds_infinite(column: pa.Array) -> bool:
    """Return whether a column of floats of less than 64 bits holds infinite values."""
    column = column.dictionary if pa.types.is_dictionary(column.type) else column
    narrow = pa.types.is_floating(column.type) and column.type != pa.float64()
    return narrow and bool(pc.any(pc.is_inf(column)).as_py())


def union_json_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the schema whose columns hold the values of all: columns that differ in type become JSON texts."""
    fields: dict[str, pa.Field] = {}
    metadata = None
    for schema in schemas:
        metadata = metadata or schema.metadata
        for field in schema:
            fields[field.name] = _union(fields[field.name], field) if field.name in fields else field
    return pa.schema(list(fields.values()), metadata=metadata)


def mixed_columns(schemas: Iterable[tuple[str, pa.Schema]]) -> list[str]:
    """Return a line for each column that `union_json_schemas` makes JSON because files have other types in it.

    Args:
        schemas: name and schema of each file.
    """
    fields: dict[str, pa.Field] = {}
    types: dict[str, dict[str, str]] = {}
    for file, schema in schemas:
        for field in schema:
            fields[field.name] = _union(fields[field.name], field) if field.name in fields else field
            if not pa.types.is_null(field.type) and not feature_of(field).is_json:
                types.setdefault(field.name, {}).setdefault(str(field.type), file)
    return [
        f"column of several types: {name} ({', '.join(f'{kind} in {file}' for kind, file in found.items())})"
        for name, found in types.items()
        if len(found) > 1 and feature_of(fields[name]).is_json
    ]


def fit_json(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with columns as JSON texts where this schema, from `union_json_schemas`, has those."""
    for i, field in enumerate(rows.schema):
        target = schema.field(field.name)
        if feature_of(target).is_json and not feature_of(field).is_json:
            column = rows.column(i).combine_chunks()
            texts = pc.if_else(column.is_valid(), json_text.dumps_each(column), pa.scalar(None, pa.large_string()))
            rows = rows.set_column(i, target, texts.cast(target.type))
    return rows


def wider_column(one: pa.Field, other: pa.Field) -> pa.Field:
    """Return the column that holds the values of either, as JSON: types that are equal in JSON are merged."""
    if one.type == other.type:
        return one if feature_of(one).is_json == feature_of(other).is_json else _union(one, other)
    if pa.types.is_dictionary(one.type) or pa.types.is_dictionary(other.type):
        return wider_column(_decoded(one), _decoded(other))
    for alike, kind in _ALIKE:
        if alike(one.type) and alike(other.type):
            return pa.field(one.name, kind)
    return _union(one, other)


def _decoded(field: pa.Field) -> pa.Field:
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


_ALIKE: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (lambda kind: pa.types.is_integer(kind) and kind != pa.uint64(), pa.int64()),
    (pa.types.is_unsigned_integer, pa.uint64()),
    (pa.types.is_floating, pa.float64()),
    (is_text, pa.string()),
)


def _union(one: pa.Field, other: pa.Field) -> pa.Field:
    if pa.types.is_null(one.type) or one.equals(other, check_metadata=True):
        return other
    if pa.types.is_null(other.type):
        return one
    return with_feature(pa.field(one.name, pa.string()), Json())


def is_json_type(kind: pa.DataType) -> bool:
    """Return whether JSON holds a column of this type exactly, each value as a text, number, bool or null."""
    if pa.types.is_dictionary(kind):
        return is_json_type(kind.value_type)
    return any(
        test(kind)
        for test in (
            pa.types.is_null,
            pa.types.is_boolean,
            pa.types.is_integer,
            pa.types.is_floating,
            pa.types.is_string,
            pa.types.is_large_string,
        )
    )


def is_nested_json(kind: pa.DataType) -> bool:
    """Return whether JSON holds a column of lists or structs exactly: their values have types that JSON has."""
    if pa.types.is_struct(kind):
        names = [child.name for child in kind]
        return len({*names}) == len(names) and all(_is_inside_json(child.type) for child in kind)
    return isinstance(kind, LIST_TYPES) and _is_inside_json(kind.value_type)


def _is_inside_json(kind: pa.DataType) -> bool:
    return is_json_type(kind) or pa.types.is_string_view(kind) or is_nested_json(kind)
