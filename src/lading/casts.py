"""Values in another type, at any depth: what pyarrow's `cast` does, and what it leaves out or does wrongly.

pyarrow 26 casts no list view to another one, nor null to one; and of list views made lists it loses the last values,
without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lading.views import child_fields, plain_type, present, with_child_fields

__all__ = ["cast", "rebuilt"]

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
        return column  # not cast: pyarrow makes too short a child of the type null within a struct
    if not _holds_list_views(column.type) and not _holds_list_views(kind):
        return column.cast(kind)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([cast(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    return _relisted(_relisted(column, _with_lists(plain_type(column.type))).cast(_with_lists(kind)), kind)


def _holds_list_views(kind: pa.DataType) -> bool:
    return isinstance(kind, _LIST_VIEWS) or any(_holds_list_views(child.type) for child in child_fields(kind))


def _with_lists(kind: pa.DataType) -> pa.DataType:
    """The type with large lists in the place of list views, at any depth."""
    inner = [child.with_type(_with_lists(child.type)) for child in child_fields(kind)]
    if isinstance(kind, _LIST_VIEWS):
        return pa.large_list(*inner)
    return with_child_fields(kind, inner) if inner else kind


def _relisted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else rebuilt(column, kind, _relisted)


def rebuilt(column: pa.Array, kind: pa.DataType, made: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """A struct, map or list in another type of as many fields, of what a function makes of the values inside.

    Lists may become list views, and the reverse; values that are in no list are left out. Anything else is cast.
    """
    if pa.types.is_struct(kind):
        # Flattened, since under a null there may be anything: an index past a dictionary, say.
        parts = [made(part, child.type) for part, child in zip(column.flatten(), kind, strict=True)]
        if not parts:
            return column.cast(kind)
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        values = made(column.values.slice(column.offset * width, len(column) * width), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=column.is_null())
    if pa.types.is_map(kind):
        first, ends = _ends(column)
        keys, items = (part.slice(first, int(ends[-1])) for part in (column.keys, column.items))
        parts = [made(keys, kind.key_type), made(items, kind.item_type)]
        return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), *parts, type=kind, mask=column.is_null())
    make: Any = _WITH_OFFSETS.get(type(kind))
    if make is None:
        return column.cast(kind)
    if isinstance(column.type, _LIST_VIEWS):
        values, sizes = column.flatten(), np.where(present(column), column.sizes.to_numpy().astype(np.int64), 0)
        ends = np.concatenate([[0], np.cumsum(sizes)])
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
