"""Values in another type, at any depth: what pyarrow's `cast` does, and what it leaves out or does wrongly.

pyarrow 26 casts no list view to another one, nor null to one, and no dictionary of lists, structs or maps; of list
views made lists it loses the last values, without a word; and of lists of the type null inside a struct it makes some
that are longer than what they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lading.pieces import bitmap
from lading.ref import is_ref
from lading.views import (
    child_fields,
    holds_dictionary,
    joins,
    listed_items,
    plain_type,
    present,
    take_values,
    with_child_fields,
    without_runs,
)

__all__ = [
    "cast",
    "decoded",
    "decoded_type",
    "rebuilt",
    "registered",
    "unregistered",
    "unregistered_type",
    "without_null_values",
]

_Column = TypeVar("_Column", pa.Array, pa.ChunkedArray)
_LIST_VIEWS = (pa.ListViewType, pa.LargeListViewType)
_WITH_OFFSETS = {
    pa.ListType: pa.ListArray,
    pa.LargeListType: pa.LargeListArray,
    pa.ListViewType: pa.ListViewArray,
    pa.LargeListViewType: pa.LargeListViewArray,
}


def cast(column: _Column, kind: pa.DataType) -> _Column:
    """The values in another type, each checked as pyarrow checks it.

    Raises:
        ArrowInvalid, ArrowNotImplementedError, ArrowTypeError: a value does not fit, or none does.
    """
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([cast(chunk, kind) for chunk in column.chunks], kind)
    if _has_only_nulls(column.type):
        return pa.nulls(len(column), kind)
    if pa.types.is_dictionary(column.type) and not joins(column.type.value_type):
        column = decoded(column)
    if not child_fields(kind) and not child_fields(column.type):
        return column.cast(kind)
    if _is_alike(column.type, kind):
        return rebuilt(column, kind, cast)
    return _relisted(_relisted(column, _with_lists(plain_type(column.type))).cast(_with_lists(kind)), kind)


def decoded(column: pa.Array) -> pa.Array:
    """The values of a dictionary column, each as often as it is there, in their `plain_type`.

    pyarrow 26 has no cast from dictionaries of lists, structs and views. Run ends are undone: it cannot take them.
    """
    values = column.dictionary
    values = without_runs(values) if pa.types.is_run_end_encoded(values.type) else values
    return cast(values, decoded_type(column.type)).take(column.indices)


def decoded_type(kind: pa.DataType) -> pa.DataType:
    """The type in which the values of such a dictionary are `decoded`."""
    value = kind.value_type
    return plain_type(value.value_type if pa.types.is_run_end_encoded(value) else value)


def _has_only_nulls(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind.value_type if pa.types.is_dictionary(kind) else kind))


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether one can be rebuilt as the other: as many fields of the same names, none of which forbids nulls anew."""
    if pa.types.is_fixed_size_list(one) and (
        not pa.types.is_fixed_size_list(other) or one.list_size != other.list_size
    ):
        return False
    lists = type(one) in _WITH_OFFSETS and type(other) in _WITH_OFFSETS
    if not lists and type(one) is not type(other):
        return False
    before, after = child_fields(one), child_fields(other)
    named = not pa.types.is_struct(one) or [child.name for child in before] == [child.name for child in after]
    return named and all(b.nullable or not a.nullable for a, b in zip(before, after, strict=True))


def _with_lists(kind: pa.DataType) -> pa.DataType:
    """The type with large lists in the place of list views, at any depth."""
    inner = [child.with_type(_with_lists(child.type)) for child in child_fields(kind)]
    if isinstance(kind, _LIST_VIEWS):
        return pa.large_list(*inner)
    return with_child_fields(kind, inner) if inner else kind


def _relisted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return cast(column, kind) if pa.types.is_dictionary(column.type) else rebuilt(column, kind, _relisted)


def unregistered_type(kind: pa.DataType) -> pa.DataType:
    """The type as a process has it that knows no types but pyarrow's own and lading's: others as they are stored."""
    if isinstance(kind, pa.ExtensionType) and not is_ref(kind):
        return unregistered_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, unregistered_type(kind.value_type), kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, unregistered_type(kind.value_type))
    before = child_fields(kind)
    inner = [field.with_type(unregistered_type(field.type)) for field in before]
    return kind if inner == before else with_child_fields(kind, inner)  # what is made again loses names inside a map


def unregistered(column: pa.Array) -> pa.Array:
    """The values in the `unregistered_type` of their own."""
    return registered(column, unregistered_type(column.type))


def registered(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in another type that has the same `unregistered_type`."""
    if column.type == kind:
        return column
    if isinstance(column.type, pa.ExtensionType):
        return registered(column.storage, kind)
    if isinstance(kind, pa.ExtensionType):
        return pa.ExtensionArray.from_storage(kind, registered(column, kind.storage_type))
    if pa.types.is_dictionary(kind):
        values = registered(column.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(column.indices, values, ordered=kind.ordered)
    return rebuilt(column, kind, registered)


def without_null_values(column: pa.Array) -> pa.Array:
    """The same values, those of a dictionary that are null by no index: pyarrow neither joins nor writes them all."""
    if not holds_dictionary(column.type):
        return column
    if not pa.types.is_dictionary(column.type):
        return rebuilt(column, column.type, lambda part, _: without_null_values(part))
    if not column.dictionary.null_count:
        return column
    there = present(column.dictionary)
    places = pa.array(np.cumsum(there) - 1, column.type.index_type, mask=~there)
    values = take_values(column.dictionary, np.flatnonzero(there))
    return pa.DictionaryArray.from_arrays(places.take(column.indices), values, ordered=column.type.ordered)


def rebuilt(column: pa.Array, kind: pa.DataType, made: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """A struct, map or list in another type of as many fields, of what a function makes of the values inside.

    Lists may become list views, and the reverse; values that are in no list are left out. Anything else is cast.
    """
    if pa.types.is_struct(kind) and kind.num_fields:
        # Flattened, since under a null there may be anything: an index past a dictionary, say. But of run ends pyarrow
        # makes arrays that are none, and a child that allows no nulls gets some.
        as_is = [pa.types.is_run_end_encoded(child.type) or not child.nullable for child in column.type]
        flat = [column.field(i) if as_is[i] else part for i, part in enumerate(column.flatten())]
        parts = [made(part, child.type) for part, child in zip(flat, kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_fixed_size_list(kind):
        return _fixed_list(column, kind, made)
    if pa.types.is_map(kind):
        first, ends = _ends(column)
        keys, items = (part.slice(first, int(ends[-1])) for part in (column.keys, column.items))
        parts = [made(keys, kind.key_type), made(items, kind.item_type)]
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), *parts, type=kind, mask=column.is_null())
    make: Any = _WITH_OFFSETS.get(type(kind))
    return column.cast(kind) if make is None else _list(column, kind, made, make)


def _fixed_list(column: pa.Array, kind: pa.DataType, made: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    width = kind.list_size
    values = made(column.values.slice(column.offset * width, len(column) * width), kind.value_type)
    if not width:  # of lists of nothing pyarrow divides by their size
        return pa.Array.from_buffers(kind, len(column), [bitmap(present(column))], children=[values])
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=column.is_null())


def _list(
    column: pa.Array, kind: pa.DataType, made: Callable[[pa.Array, pa.DataType], pa.Array], make: Any
) -> pa.Array:
    if isinstance(column.type, _LIST_VIEWS):
        values, ends = listed_items(column)
    else:
        first, ends = _ends(column)
        values = column.values.slice(first, int(ends[-1]))
    wide = pa.int64() if isinstance(kind, (pa.LargeListType, pa.LargeListViewType)) else pa.int32()
    places = [ends[:-1], np.diff(ends)] if isinstance(kind, _LIST_VIEWS) else [ends]
    numbers = [pa.array(place, wide) for place in places]
    return make.from_arrays(*numbers, made(values, kind.value_type), type=kind, mask=column.is_null())


def _ends(column: pa.Array) -> tuple[int, Any]:
    """Where the values of lists or maps begin, and from there where each one ends, behind a 0."""
    ends = np.asarray(column.offsets.to_numpy(), np.int64)
    return int(ends[0]), ends - ends[0]
