"""Find row groups that cannot hold rows of a filter, by the statistics in the footer.

pyarrow can do this too, but not for columns with nulls, and a damaged statistic crashes the process. So its expressions
are evaluated on ranges that are read here.

Source: parquet-format 2.11.0 `parquet.thrift` (Statistics, TypeDefinedOrder).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.predicates import Predicate
from lading._core.arrow.views import child_fields, plain_type
from lading._core.formats.parquet.footer import Footer, read_statistics
from lading._core.formats.parquet.input import Input
from lading.errors import UsageError

__all__ = ["columns_of", "fitting", "possible_groups"]

_NULL_COUNT, _MAX_VALUE, _MIN_VALUE = 3, 5, 6
_WHOLE = (pa.types.is_integer, pa.types.is_date32, pa.types.is_timestamp)
_UNITS = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_FLOATS = {"FLOAT": "<f", "DOUBLE": "<d"}


def columns_of(expression: pc.Expression, names: Sequence[str]) -> list[str] | None:
    """Return the columns that an expression may name, perhaps more; None if it refers to them by number."""
    # An expression does not expose its columns, but its text has their names.
    text = str(expression)
    return None if "FieldPath(" in text else [name for name in names if name in text]


@contextmanager
def fitting(expression: pc.Expression) -> Iterator[None]:
    """Convert the error of an expression that cannot be evaluated to UsageError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"the filter does not fit the columns: {said}", found=str(expression)) from error


def possible_groups(
    file: Input, footer: Footer, schema: pa.Schema, leaves: Sequence[Sequence[int]], predicate: Predicate
) -> set[int]:
    """Return row groups in which a row may pass a predicate.

    Args:
        file: the open file.
        footer: its footer.
        schema: schema of the file's rows. Columns of other types than in the predicate tell nothing.
        leaves: for each field of the schema, the numbers of its Parquet columns.
        predicate: the filter.

    Raises:
        UsageError: the expression does not fit its schema.
    """
    names = [name for name in columns_of(predicate.expression, schema.names) or [] if schema.names.count(name) == 1]
    with fitting(predicate.expression):
        values = [
            each
            for name in names
            if name in predicate.schema.names
            for each in _values(schema.field(name), predicate.schema.field(name), leaves[schema.names.index(name)])
            if _is_stored(each.type, footer, each.leaf)
            and (footer.columns[each.leaf].kind not in _FLOATS or not _may_keep_nan(each, predicate))
        ]
        return predicate.possible([_known(values, footer, statistics) for statistics in read_statistics(file, footer)])


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of each row: a column, or a field of structs.

    Attributes:
        ref: the expression for it.
        type: its type in batches.
        leaf: the number of its Parquet column.
    """

    ref: pc.Expression
    type: pa.DataType
    leaf: int


def _values(field: pa.Field, asked: pa.Field, leaves: Sequence[int]) -> list[_Value]:
    """Return the values in a field of the file that have the same type in a predicate."""
    wanted = {path: kind for path, kind in _flat(asked) if path is not None}
    flat = [*_flat(field)]
    if len(flat) != len(leaves):
        return []
    return [
        _Value(pc.field(*path), kind, leaf)
        for (path, kind), leaf in zip(flat, leaves, strict=True)
        if path is not None and wanted.get(path) == kind
    ]


def _flat(field: pa.Field, outer: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...] | None, pa.DataType]]:
    """Yield the path and the type of each value in a field, in the order of Parquet columns; no path inside lists."""
    kind, path = plain_type(field.type), (*outer, field.name)
    if not pa.types.is_nested(kind):
        yield path, kind
    for child in child_fields(kind) if pa.types.is_nested(kind) else ():
        for inner, found in _flat(child, path):
            yield (inner if pa.types.is_struct(kind) else None), found


def _is_stored(kind: pa.DataType, footer: Footer, leaf: int) -> bool:
    """Return whether values are stored in the unit of the type in which they are read, if it has a unit."""
    if not pa.types.is_timestamp(kind):
        return True
    stored = footer.metadata.schema.column(leaf).logical_type.to_json()
    return bool(orjson.loads(stored).get("timeUnit") == _UNITS.get(kind.unit))


def _may_keep_nan(value: _Value, predicate: Predicate) -> bool:
    """Return whether a row with NaN in a column may be kept: statistics leave out NaN, which is outside all bounds."""
    try:
        return bool(predicate.possible([value.ref == pa.scalar(math.nan, value.type)]))
    except pa.ArrowInvalid:  # NaN does not exist in this type, such as integers
        return True


def _known(values: Sequence[_Value], footer: Footer, statistics: Sequence[Mapping[int, Any]]) -> pc.Expression | None:
    """Return the known facts of the rows of a row group as an expression; None if there are none."""
    known = []
    for value in values:
        facts = statistics[value.leaf]
        for number, compared in ((_MIN_VALUE, value.ref.__ge__), (_MAX_VALUE, value.ref.__le__)):
            bound = _bound(facts.get(number), footer.columns[value.leaf].kind, value.type)
            if bound is not None:
                # Each bound by itself: pyarrow simplifies `(a >= 1) | is_null(a)`, but not both bounds at once.
                known.append(compared(bound) if facts.get(_NULL_COUNT) == 0 else compared(bound) | value.ref.is_null())
    return reduce(and_, known) if known else None


def _bound(raw: Any, kind: str, arrow: pa.DataType) -> pa.Scalar | None:
    """Return a bound as a scalar; None if it is unreliable."""
    types = pa.types
    try:
        if not isinstance(raw, bytes):
            return None
        if kind in _FLOATS and types.is_floating(arrow):
            [number] = struct.unpack(_FLOATS[kind], raw)
            return None if math.isnan(number) else pa.scalar(number, arrow)
        if kind in ("INT32", "INT64") and any(holds(arrow) for holds in _WHOLE):
            return pa.scalar(int.from_bytes(raw, "little", signed=not types.is_unsigned_integer(arrow)), arrow)
        if kind == "BYTE_ARRAY" and (types.is_string(arrow) or types.is_large_string(arrow)):
            return pa.scalar(raw.decode(), arrow)
        return pa.scalar(raw, arrow) if kind == "BYTE_ARRAY" and types.is_large_binary(arrow) else None
    except (struct.error, UnicodeDecodeError, OverflowError, pa.ArrowInvalid):
        return None
