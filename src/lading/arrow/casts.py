"""Values in another type, at any depth: what pyarrow's `cast` does, and what it leaves out or does wrongly.

pyarrow 26 casts no list view to another one, nor null to one, and no dictionary of lists, structs or maps. Of list
views made lists it loses the last values, without a word, and of lists and maps of run ends the place where they begin;
of lists of nulls or run ends inside others it makes some that are longer than what they hold. So lists are made here,
of every kind. Of a dictionary made null it loses all values.

Some values it makes others without a word, which are refused here: fields that a struct lacks, times cut to days, their
days or zones left out, numbers other than 0 and 1 as bools, floats rounded to decimals, whole numbers to halves, finite
ones that become infinite, times and infinite numbers as JSON, which has none, numbers that are no time of a day, and
nulls in lists that allow none. That texts, decimals and wider floats are rounded to floats is their nature.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.arrow.byte_ranges import bitmap
from lading.arrow.references import is_ref
from lading.arrow.views import (
    LIST_TYPES,
    child_fields,
    flattened,
    holds_dictionary,
    is_list,
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
    "first_refused",
    "rebuilt",
    "registered",
    "unregistered",
    "unregistered_type",
    "with_referred_values",
    "without_null_values",
]

_Column = TypeVar("_Column", pa.Array, pa.ChunkedArray)
_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_LIST_VIEWS = (pa.ListViewType, pa.LargeListViewType)
_WITH_OFFSETS = {
    pa.ListType: pa.ListArray,
    pa.LargeListType: pa.LargeListArray,
    pa.ListViewType: pa.ListViewArray,
    pa.LargeListViewType: pa.LargeListViewArray,
}


def cast(column: _Column, kind: pa.DataType) -> _Column:
    """The same values in another type.

    Raises:
        ArrowInvalid, ArrowNotImplementedError, ArrowTypeError: a value does not fit, or none does.
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
    if runs or (was and not becomes):  # of run ends of extensions pyarrow has no cast
        return cast(without_runs(column) if runs else column.storage, kind)
    if becomes and not (was or isinstance(kind, pa.JsonType)):  # JSON is not what it is stored in: any text
        return pa.ExtensionArray.from_storage(kind, cast(column, kind.storage_type))
    nested = pa.types.is_nested(column.type) and pa.types.is_nested(kind)
    return _cast_nested(column, kind) if nested else _cast_plain(column, kind)


def first_refused(column: pa.Array, kind: pa.DataType) -> int:
    """The first row that pyarrow refuses to cast, of a column of which it refuses one."""
    return bisect_left(range(len(column)), 1, key=lambda row: _is_refused(column[: row + 1], kind))


def _is_refused(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowInvalid:
        return True
    return False


def _cast_nested(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        return rebuilt(_picked(column, kind), kind, cast)
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
    """What pyarrow may lose without a word from one type to the other: how to tell by values and what they became."""
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
        return _outside_day, "a number that is no time of a day"
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
        return (lambda column, _: pc.all(pc.is_finite(column)).as_py() is False), "JSON has no such number"
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        return _has_any, "JSON has no times"
    return None


def _has_any(column: pa.Array, _: pa.Array) -> bool:
    return bool(column.null_count < len(column))


def _overflow(column: pa.Array, found: pa.Array) -> bool:
    infinite = pc.is_inf(found)
    if not pc.any(infinite).as_py():
        return False
    if pa.types.is_floating(column.type):
        told = pc.is_inf(column)
    else:
        told = pc.match_substring(column.cast(pa.large_string()), "inf", ignore_case=True)
    return not infinite.equals(told)


def _outside_day(column: pa.Array, found: pa.Array) -> bool:
    least, most = pc.min_max(column).values()
    return bool(least.is_valid and (least.as_py() < 0 or most.as_py() >= _DAY[found.type.unit]))


def _differ(column: pa.Array, found: pa.Array) -> bool:
    """Whether values are others than they were; decimals go by their text, since pyarrow makes other floats of them."""
    if pa.types.is_decimal(found.type):
        found = found.cast(pa.string())
    common = pa.float64() if pa.float16() in (column.type, found.type) else column.type
    return not found.cast(common, safe=False).equals(column.cast(common, safe=False))


def _picked(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A struct with the fields of another, in their order; those that it lacks as nulls.

    Raises:
        ArrowInvalid: it has values in another field, or a null where none may be.
    """
    picked = [(column.type.get_field_index(child.name), child) for child in kind]
    fields = [column.type.field(i) if i >= 0 else pa.field(child.name, child.type) for i, child in picked]
    stricter = [i for i, before in enumerate(fields) if before.nullable and not kind.field(i).nullable]
    if not stricter and [child.name for child in column.type] == [child.name for child in kind]:
        return column
    there = present(column)
    for i, child in enumerate(column.type):
        if kind.get_field_index(child.name) < 0 and (present(column.field(i)) & there).any():
            raise pa.ArrowInvalid(f"values of the field {child.name!r}, which {kind} lacks")
    parts = [column.field(i) if i >= 0 else pa.nulls(len(column), child.type) for i, child in picked]
    for i in stricter:
        parts[i] = _without_nulls(parts[i], there, fields[i].name)
        fields[i] = fields[i].with_nullable(False)  # noqa: FBT003 - pyarrow takes it by position
    nulls = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=nulls) if parts else column


def _without_nulls(part: pa.Array, there: NDArray[np.bool_], name: str) -> pa.Array:
    """Values of a field that allows no nulls: some value in the place of those under nulls of their struct."""
    valid = present(part)
    if (there & ~valid).any():
        raise pa.ArrowInvalid(f"a null in the field {name!r}, which allows none")
    if valid.all() or not valid.any():
        return part
    return take_values(part, np.where(valid, np.arange(len(part)), int(valid.argmax())))


def _refuse_null_items(column: pa.Array) -> None:
    """Raise ArrowInvalid for a null in a list or map whose values may be none: pyarrow looks for none."""
    fields, is_map = child_fields(column.type), pa.types.is_map(column.type)
    held = [column.keys, column.items] if is_map else [column.values]
    if not any(part.null_count and not field.nullable for part, field in zip(held, fields, strict=True)):
        return  # else they may still lie under lists that are null
    items = listed_items(column)[0]
    parts = items.flatten() if is_map else [items]
    if any(part.null_count and not field.nullable for part, field in zip(parts, fields, strict=True)):
        raise pa.ArrowInvalid("a null where none may be")


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
    return _with_dictionaries(column, _without_null_values)


def _without_null_values(column: pa.Array) -> pa.Array:
    if not column.dictionary.null_count:
        return column
    there = present(column.dictionary)
    places = pa.array(np.cumsum(there) - 1, column.type.index_type, mask=~there)
    values = take_values(column.dictionary, np.flatnonzero(there))
    return pa.DictionaryArray.from_arrays(places.take(column.indices), values, ordered=column.type.ordered)


def with_referred_values(column: pa.Array) -> pa.Array:
    """The same values, with one in each dictionary of text or bytes that has none but is referred to.

    That is how pyarrow reads a field that allows no nulls where all of its structs are null.
    """
    return _with_dictionaries(column, _with_referred_values)


def _with_referred_values(column: pa.Array) -> pa.Array:
    if len(column.dictionary) or column.null_count == len(column):
        return column
    values = pa.array([b""]).cast(column.type.value_type)
    return pa.DictionaryArray.from_arrays(column.indices, values, ordered=column.type.ordered)


def _with_dictionaries(column: pa.Array, made: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The same column, with what a function makes of each dictionary in it."""
    if not holds_dictionary(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        return made(column)
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(column.type, _with_dictionaries(column.storage, made))
    return rebuilt(column, column.type, lambda part, _: _with_dictionaries(part, made))


def rebuilt(column: pa.Array, kind: pa.DataType, made: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """A struct, map or list in another type of as many fields, of what a function makes of the values inside.

    Lists of every kind, and maps, may become lists of any other; values that are in no list are left out. Anything else
    is cast.
    """
    if pa.types.is_struct(kind) and kind.num_fields:
        # Flattened, since under a null there may be anything: an index past a dictionary, say. But a child that allows
        # no nulls gets some.
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
    if not width:  # of lists of nothing pyarrow divides by their size
        return pa.Array.from_buffers(kind, len(column), [bitmap(present(column))], children=[values])
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=column.is_null())


def _items_of_size(column: pa.Array, width: int) -> pa.Array:
    """The items of lists, so many of each one: nulls, if need be, under lists that are null.

    Raises:
        ArrowInvalid: a list has more or less.
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
    plain = cast(items, plain_type(items.type))  # of views pyarrow takes none
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
    """The items of lists of any kind, or the entries of maps, and where each one ends, behind a 0: no copy, if it can.

    Those under lists that are null stay, but of list views.
    """
    if isinstance(column.type, _LIST_VIEWS):
        return listed_items(column)
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        return column.values.slice(column.offset * width, len(column) * width), np.arange(len(column) + 1) * width
    first, ends = _ends(column)
    return column.values.slice(first, int(ends[-1])), ends


def _ends(column: pa.Array) -> tuple[int, Any]:
    """Where the values of lists or maps begin, and from there where each one ends, behind a 0."""
    offsets = column.offsets
    first = offsets[0].as_py()
    return first, np.asarray(pc.subtract(offsets, offsets[0]).cast(pa.int64()))  # numpy takes ten times as long
