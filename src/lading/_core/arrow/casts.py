"""Cast values at any depth: pyarrow's `cast`, plus what it lacks or does wrongly.

pyarrow 26 casts no list view to another, nor null to one, and no dictionary of lists, structs or maps. From list views
to lists it silently loses the last values. From lists and maps of run ends it loses their start. Nested lists of nulls
or run ends become longer than their values. So lists of every kind are built here. A dictionary cast to null loses all
values.

pyarrow silently changes some values; these casts are refused here. They are: fields that a struct lacks; times cut to
days, or without their days or zones; numbers other than 0 and 1 as bools; floats rounded to decimals; integers as
halves; finite numbers that become infinite; times and infinite numbers as JSON, which has none; numbers outside the
times of a day; and nulls in lists that do not allow them. Rounding texts, decimals and wider floats to floats is
accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import bitmap
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import (
    LIST_TYPES,
    child_fields,
    flattened,
    holds_dictionary,
    is_bytes,
    is_list,
    is_text,
    joins,
    listed_items,
    plain_type,
    present,
    take_values,
    with_child_fields,
    without_runs,
)

__all__ = [
    "REFUSALS",
    "cast",
    "decoded",
    "decoded_type",
    "first_refused",
    "hold_one_kind",
    "rebuilt",
    "registered",
    "unregistered",
    "unregistered_type",
    "with_referred_values",
    "without_null_values",
]

REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
"""Errors of `cast`."""

_Column = TypeVar("_Column", pa.Array, pa.ChunkedArray)
_Refused: TypeAlias = type[Exception] | tuple[type[Exception], ...]
_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_LIST_VIEWS = (pa.ListViewType, pa.LargeListViewType)
_WITH_OFFSETS = {
    pa.ListType: pa.ListArray,
    pa.LargeListType: pa.LargeListArray,
    pa.ListViewType: pa.ListViewArray,
    pa.LargeListViewType: pa.LargeListViewArray,
}


def cast(column: _Column, kind: pa.DataType) -> _Column:
    """Return the same values in another type.

    Raises:
        ArrowInvalid, ArrowNotImplementedError, ArrowTypeError: a value does not fit, or no value can.
    """
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([cast(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_dictionary(column.type) and (pa.types.is_null(kind) or not joins(column.type.value_type)):
        column = decoded(column)
    if pa.types.is_null(column.type) or (pa.types.is_null(kind) and column.null_count == len(column)):
        return pa.nulls(len(column), kind)
    was, becomes = (isinstance(k, pa.BaseExtensionType) for k in (column.type, kind))
    runs = pa.types.is_run_end_encoded(column.type) and isinstance(column.type.value_type, pa.BaseExtensionType)
    if runs or (was and not becomes):  # pyarrow cannot cast run ends of extensions
        return cast(without_runs(column) if runs else column.storage, kind)
    if becomes and not (was or isinstance(kind, pa.JsonType)):  # JSON is not its storage type, which holds any text
        return pa.ExtensionArray.from_storage(kind, cast(column, kind.storage_type))
    nested = pa.types.is_nested(column.type) and pa.types.is_nested(kind)
    return _cast_nested(column, kind) if nested else _cast_plain(column, kind)


def first_refused(column: _Column, made: Callable[[_Column], object], refusals: _Refused = REFUSALS) -> int:
    """Return the first row for which a function of a column raises, by bisection; each row is tried about twice.

    Args:
        column: a column for which the function raises.
        made: the function.
        refusals: its errors.
    """
    first, stop = 0, len(column)
    while stop - first > 1:
        middle = (first + stop) // 2
        try:
            made(column[first:middle])
            first = middle
        except refusals:
            stop = middle
    return first


def hold_one_kind(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types hold values of one kind, so that a cast keeps what they mean: numbers, text, bytes, ….

    Nulls are of every kind.
    """
    if pa.types.is_null(kind):
        return True
    if isinstance(kind, _LISTS) and isinstance(other, _LISTS):
        return hold_one_kind(kind.value_type, other.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(other):
        same = [child.name for child in kind] == [child.name for child in other]
        return same and all(hold_one_kind(one.type, two.type) for one, two in zip(kind, other, strict=True))
    return _kind_of(kind) == _kind_of(other)


def _kind_of(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "time" if kind.tz is None else "time of a zone"
    return next((name for name, belongs in _KINDS.items() if belongs(kind)), str(kind))


_KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "number": lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
    "text": is_text,
    "bytes": lambda kind: is_bytes(kind) or pa.types.is_fixed_size_binary(kind),
    "duration": pa.types.is_duration,
    "time of day": pa.types.is_time,
    "decimal": pa.types.is_decimal,
}


def _cast_nested(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        return rebuilt(_with_fields_of(column, kind), kind, cast)
    lists = is_list(column.type) and isinstance(kind, LIST_TYPES)
    if not (lists or (pa.types.is_map(column.type) and pa.types.is_map(kind))):
        return column.cast(kind)  # which refuses it
    found = rebuilt(column, kind, cast)
    _refuse_null_items(found)
    return found


def _cast_plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(column.type) and pa.types.is_floating(kind):
        column = column.cast(pa.string())  # pyarrow multiplies: 0.1 of twenty digits becomes 0.09999999999999999
    found = column.cast(kind)
    one, other = (decoded_type(k) if pa.types.is_dictionary(k) else k for k in (column.type, kind))
    loss = _loss(one, other)
    if loss is not None:
        is_lost, words = loss
        if is_lost(*(decoded(values) if pa.types.is_dictionary(values.type) else values for values in (column, found))):
            raise pa.ArrowInvalid(words)
    return found


def _loss(one: pa.DataType, other: pa.DataType) -> tuple[Callable[[pa.Array, pa.Array], bool], str] | None:
    """Return the check for silent loss between two types: it compares values and their cast."""
    types = pa.types
    whole, floating = types.is_integer(one), types.is_floating(one)
    if types.is_floating(other) and not (whole or types.is_boolean(one)):
        wider = floating and one.bit_width <= other.bit_width
        return None if wider else (_overflow, "a finite value becomes infinite")
    if types.is_timestamp(one):
        without_zone = types.is_date(other) or (types.is_timestamp(other) and other.tz is None)
        if (one.tz is not None and without_zone) or types.is_time(other):
            return _has_any, "a time loses its day or zone"
    if isinstance(other, pa.JsonType):
        return _loss_to_json(one)
    if whole and types.is_time(other):
        return _outside_day, "a number that is not a time of day"
    halves, bools = types.is_float16(other), types.is_boolean(other)
    if (
        ((halves or bools) and whole)
        or ((bools or types.is_decimal(other)) and floating)
        or (types.is_date(other) and types.is_timestamp(one))
    ):
        return _differ, "a value becomes another"
    return None


def _loss_to_json(kind: pa.DataType) -> tuple[Callable[[pa.Array, pa.Array], bool], str] | None:
    if pa.types.is_floating(kind):
        return (lambda column, _: pc.all(pc.is_finite(column)).as_py() is False), "JSON cannot hold this number"
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return _has_any, "JSON cannot hold times"
    return None


def _has_any(column: pa.Array, _: pa.Array) -> bool:
    return bool(column.null_count < len(column))


def _overflow(column: pa.Array, found: pa.Array) -> bool:
    infinite = pc.is_inf(found)
    if not pc.any(infinite).as_py():
        return False
    if pa.types.is_floating(column.type):
        expected = pc.is_inf(column)
    else:
        expected = pc.match_substring(column.cast(pa.large_string()), "inf", ignore_case=True)
    return not infinite.equals(expected)


def _outside_day(column: pa.Array, found: pa.Array) -> bool:
    least, most = pc.min_max(column).values()
    return bool(least.is_valid and (least.as_py() < 0 or most.as_py() >= _DAY[found.type.unit]))


def _differ(column: pa.Array, found: pa.Array) -> bool:
    """Return whether values changed; decimals compare by their text, because pyarrow's floats of them differ."""
    if pa.types.is_decimal(found.type):
        found = found.cast(pa.string())
    common = pa.float64() if pa.float16() in (column.type, found.type) else column.type
    return not found.cast(common, safe=False).equals(column.cast(common, safe=False))


def _with_fields_of(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a struct with the fields of another, in their order; missing fields as nulls.

    Raises:
        ArrowInvalid: another field has a value, or a field that may not be null is null.
    """
    places = [(column.type.get_field_index(child.name), child) for child in kind]
    fields = [column.type.field(i) if i >= 0 else pa.field(child.name, child.type) for i, child in places]
    stricter = [i for i, before in enumerate(fields) if before.nullable and not kind.field(i).nullable]
    if not stricter and [child.name for child in column.type] == [child.name for child in kind]:
        return column
    there = present(column)
    for i, child in enumerate(column.type):
        if kind.get_field_index(child.name) < 0 and (present(column.field(i)) & there).any():
            raise pa.ArrowInvalid(f"values of the field {child.name!r}, which {kind} lacks")
    parts = [column.field(i) if i >= 0 else pa.nulls(len(column), child.type) for i, child in places]
    for i in stricter:
        parts[i] = _without_nulls(parts[i], there, fields[i].name)
        fields[i] = fields[i].with_nullable(False)  # noqa: FBT003 - pyarrow takes it by position
    nulls = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=nulls) if parts else column


def _without_nulls(part: pa.Array, there: NDArray[np.bool_], name: str) -> pa.Array:
    """Return the values of a field that allows no nulls; values under nulls of the struct are filled."""
    valid = present(part)
    if (there & ~valid).any():
        raise pa.ArrowInvalid(f"a null in the field {name!r}, which allows none")
    if valid.all() or not valid.any():
        return part
    return take_values(part, np.where(valid, np.arange(len(part)), int(valid.argmax())))


def _refuse_null_items(column: pa.Array) -> None:
    """Raise ArrowInvalid for a null in a list or map whose values may not be null: pyarrow does not check."""
    fields, is_map = child_fields(column.type), pa.types.is_map(column.type)
    held = [column.keys, column.items] if is_map else [column.values]
    if not any(part.null_count and not field.nullable for part, field in zip(held, fields, strict=True)):
        return  # else they may still be under lists that are null
    items = listed_items(column)[0]
    parts = items.flatten() if is_map else [items]
    if any(part.null_count and not field.nullable for part, field in zip(parts, fields, strict=True)):
        raise pa.ArrowInvalid("a null where none is allowed")


def decoded(column: _Column) -> _Column:
    """Return the values of a dictionary column without dictionary, in their `plain_type`.

    pyarrow 26 cannot cast from dictionaries of lists, structs and views. Run ends are expanded: it cannot take them.
    """
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([decoded(chunk) for chunk in column.chunks], decoded_type(column.type))
    values = column.dictionary
    values = without_runs(values) if pa.types.is_run_end_encoded(values.type) else values
    return cast(values, decoded_type(column.type)).take(column.indices)


def decoded_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that `decoded` gives for a dictionary type."""
    value = kind.value_type
    return plain_type(value.value_type if pa.types.is_run_end_encoded(value) else value)


def unregistered_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as a process sees it that knows only pyarrow's types and lading's: others as their storage."""
    if isinstance(kind, pa.ExtensionType) and not is_ref(kind):
        return unregistered_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, unregistered_type(kind.value_type), kind.ordered)
    if pa.types.is_run_end_encoded(kind):
        return pa.run_end_encoded(kind.run_end_type, unregistered_type(kind.value_type))
    before = child_fields(kind)
    inner = [field.with_type(unregistered_type(field.type)) for field in before]
    return kind if inner == before else with_child_fields(kind, inner)  # rebuilding loses names inside a map


def unregistered(column: pa.Array) -> pa.Array:
    """Return the values in the `unregistered_type` of their type."""
    return registered(column, unregistered_type(column.type))


def registered(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values in another type that has the same `unregistered_type`."""
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
    """Return the same values without null dictionary entries: pyarrow can neither join nor write all of them."""
    return _with_dictionaries(column, _without_null_values)


def _without_null_values(column: pa.Array) -> pa.Array:
    if not column.dictionary.null_count:
        return column
    there = present(column.dictionary)
    places = pa.array(np.cumsum(there) - 1, column.type.index_type, mask=~there)
    values = take_values(column.dictionary, np.flatnonzero(there))
    return pa.DictionaryArray.from_arrays(places.take(column.indices), values, ordered=column.type.ordered)


def with_referred_values(column: pa.Array) -> pa.Array:
    """Return the same values, with one entry in each empty dictionary of text or bytes that is referred to.

    pyarrow reads a field that allows no nulls this way where all of its structs are null.
    """
    return _with_dictionaries(column, _with_referred_values)


def _with_referred_values(column: pa.Array) -> pa.Array:
    if len(column.dictionary) or column.null_count == len(column):
        return column
    values = pa.array([b""]).cast(column.type.value_type)
    return pa.DictionaryArray.from_arrays(column.indices, values, ordered=column.type.ordered)


def _with_dictionaries(column: pa.Array, made: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the same column, with a function applied to each dictionary in it."""
    if not holds_dictionary(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        return made(column)
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(column.type, _with_dictionaries(column.storage, made))
    return rebuilt(column, column.type, lambda part, _: _with_dictionaries(part, made))


def rebuilt(column: pa.Array, kind: pa.DataType, made: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Return a struct, map or list in another type of as many fields, with a function applied to the nested values.

    Lists of every kind, and maps, may become lists of any other kind; values outside all lists are left out. Anything
    else is cast.
    """
    if pa.types.is_struct(kind) and kind.num_fields:
        # Flattened, because under a null anything is possible: an index past a dictionary, say. But a child that allows
        # no nulls gets some value.
        flat = [part if column.type.field(i).nullable else column.field(i) for i, part in enumerate(flattened(column))]
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
    values = made(_items_of_size(column, width), kind.value_type)
    if not width:  # pyarrow divides by the list size, even by zero
        return pa.Array.from_buffers(kind, len(column), [bitmap(present(column))], children=[values])
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=column.is_null())


def _items_of_size(column: pa.Array, width: int) -> pa.Array:
    """Return the items of lists, with a fixed number per list: nulls, if needed, under lists that are null.

    Raises:
        ArrowInvalid: a list has more or fewer.
    """
    items, ends = _items(column)
    sizes = np.diff(ends)
    if (sizes == width).all():
        return items
    there = present(column)
    wrong = sizes[there & (sizes != width)]
    if len(wrong):
        raise pa.ArrowInvalid(f"a list of {wrong[0]} values where {width} must be")
    at = ends[:-1, None] + np.arange(width)
    plain = cast(items, plain_type(items.type))  # pyarrow cannot take views
    return plain.take(pa.array(at.ravel(), mask=np.repeat(~there, width)))


def _list(
    column: pa.Array, kind: pa.DataType, made: Callable[[pa.Array, pa.DataType], pa.Array], make: Any
) -> pa.Array:
    items, ends = _items(column)
    wide = pa.int64() if isinstance(kind, (pa.LargeListType, pa.LargeListViewType)) else pa.int32()
    places = [ends[:-1], np.diff(ends)] if isinstance(kind, _LIST_VIEWS) else [ends]
    numbers = [pa.array(place, wide) for place in places]
    return make.from_arrays(*numbers, made(items, kind.value_type), type=kind, mask=column.is_null())


def _items(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the items of lists of any kind, or the entries of maps, and the ends of each, after a 0.

    Without a copy, if possible. Items under null lists stay, except in list views.
    """
    if isinstance(column.type, _LIST_VIEWS):
        return listed_items(column)
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        return column.values.slice(column.offset * width, len(column) * width), np.arange(len(column) + 1) * width
    first, ends = _ends(column)
    return column.values.slice(first, int(ends[-1])), ends


def _ends(column: pa.Array) -> tuple[int, Any]:
    """Return the start of the values of lists or maps, and the ends of each relative to it, after a 0."""
    offsets = column.offsets
    first = offsets[0].as_py()
    return first, np.asarray(pc.subtract(offsets, offsets[0]).cast(pa.int64()))  # numpy takes ten times as long
