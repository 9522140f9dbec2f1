"""Binary views: payloads without a copy. Only this module builds, takes, measures and compacts them.

A `binary_view` value is 16 bytes: `int32 length`, then either up to 12 bytes inline, or a 4-byte prefix, `int32 buffer`
and `int32 offset` (Arrow columnar format, "Variable-size Binary View Layout"). pyarrow 26 has no `take`, `filter`,
`concat` of lengths … for them, and pickles every buffer with each view. So views are made at the last step before a
sink and go no further. Offsets are 32 bits: a larger buffer is given as overlapping segments.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.byte_ranges import ByteRanges, as_view, bitmap, room_for
from lading._core.arrow.references import RefType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = [
    "LIST_TYPES",
    "SEGMENT_BYTES",
    "byte_lengths",
    "child_fields",
    "compacted",
    "cut_out",
    "filled",
    "flattened",
    "from_ranges",
    "gather",
    "held_buffers",
    "holds_bytes",
    "holds_dictionary",
    "is_bytes",
    "is_list",
    "is_text",
    "is_view",
    "join",
    "joins",
    "listed_items",
    "listed_values",
    "masked",
    "over",
    "places",
    "plain_type",
    "present",
    "reorder",
    "row_bytes",
    "same_values",
    "share",
    "shown_bytes",
    "slices",
    "take",
    "take_bytes",
    "take_rows",
    "take_values",
    "total_bytes",
    "with_child_fields",
    "with_gaps",
    "without_runs",
    "without_views",
]

SEGMENT_BYTES = 1 << 30
"""Segments of a large buffer start at multiples of this and are twice as long, so every shorter value fits into one."""

LIST_TYPES = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)
"""Types of lists, of all variants."""

_INLINE_BYTES = 12
_MAX_OFFSET = (1 << 31) - 1
_LARGE_BYTES = 4 << 10
_INDEX_BITS = 32
_LISTS = (*LIST_TYPES, pa.MapType)
_WITHOUT_VIEWS = {pa.binary_view(): pa.large_binary(), pa.string_view(): pa.large_string()}
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_SMALL = {
    **dict.fromkeys((pa.binary_view(), pa.large_binary()), pa.binary()),
    **dict.fromkeys((pa.string_view(), pa.large_string()), pa.string()),
}
_LIST_TYPES = {
    pa.ListType: pa.list_,
    pa.LargeListType: pa.large_list,
    pa.ListViewType: pa.list_view,
    pa.LargeListViewType: pa.large_list_view,
}


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is bytes of any length: binary, large_binary or binary_view."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is bytes, or a struct, map or list that holds bytes; references hold none."""
    return is_bytes(kind) or any(holds_bytes(child.type) for child in child_fields(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text: string, large_string or string_view."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of any variant, or a map."""
    return isinstance(kind, _LISTS)


def is_list_of_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is a list or a large list of bytes."""
    return bool((pa.types.is_list(kind) or pa.types.is_large_list(kind)) and is_bytes(kind.value_type))


def is_view(kind: pa.DataType) -> bool:
    """Return whether a type is a view: binary_view or string_view."""
    return kind in _WITHOUT_VIEWS


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which readers give values and files keep them, so that batches can always be joined.

    At any depth, large strings and binaries replace views. Dictionaries stay only if pyarrow `joins` their values, with
    indices of at least 32 bits: later rows may bring more values than 8 or 16 bits can number. Dictionaries of run ends
    are replaced, because pyarrow 26 mostly cannot cast them. Run ends of extensions are replaced, because it cannot
    join them. Extensions that hold a dictionary become their storage type, because their storage cannot be changed.
    """
    return _swapped(kind, _WITHOUT_VIEWS)


def joins(kind: pa.DataType) -> bool:
    """Return whether pyarrow 26 can merge two dictionaries of such values.

    It cannot for lists, structs, extensions and nulls, and it silently changes half floats.
    """
    plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(is_text(kind) or is_bytes(kind) or (plain and not pa.types.is_float16(kind)))


def holds_dictionary(kind: pa.DataType) -> bool:
    """Return whether a type is a dictionary, or a struct, map, list or extension that holds one."""
    if isinstance(kind, pa.BaseExtensionType):
        return holds_dictionary(kind.storage_type)
    return bool(pa.types.is_dictionary(kind)) or any(holds_dictionary(child.type) for child in child_fields(kind))


def same_values(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether two types differ at most in the layout of strings, binaries (small, large, view) and indices."""
    return bool(_swapped(plain_type(one), _SMALL) == _swapped(plain_type(other), _SMALL))


def _swapped(kind: pa.DataType, leaves: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        value = kind.value_type
        if pa.types.is_run_end_encoded(value):
            return _swapped(value.value_type, leaves)
        value = _swapped(value, leaves)
        index = kind.index_type if kind.index_type.bit_width >= _INDEX_BITS else pa.int32()
        return pa.dictionary(index, value, kind.ordered) if joins(value) else value
    if pa.types.is_run_end_encoded(kind) and isinstance(kind.value_type, pa.BaseExtensionType):
        return _swapped(kind.value_type, leaves)
    if isinstance(kind, pa.BaseExtensionType) and holds_dictionary(kind):
        return _swapped(kind.storage_type, leaves)
    inner = [field.with_type(_swapped(field.type, leaves)) for field in child_fields(kind)]
    return with_child_fields(kind, inner) if inner else leaves.get(kind, kind)


def child_fields(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields inside a struct, a map (key and item) or a list of any kind; nothing for other types."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_fixed_size_list(kind) or type(kind) in _LIST_TYPES else []


def with_child_fields(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Return the type with its `child_fields` replaced; it must have some."""
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(*fields, kind.keys_sorted)
    [item] = fields
    return pa.list_(item, kind.list_size) if pa.types.is_fixed_size_list(kind) else _LIST_TYPES[type(kind)](item)


def present(column: pa.Array) -> NDArray[np.bool_]:
    """Return which values are not null."""
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def list_lengths(column: pa.Array) -> NDArray[np.int64]:
    """Return the number of items of each list; 0 for a null."""
    return np.asarray(pc.list_value_length(column).fill_null(0)).astype(np.int64)


def make_lists(kind: pa.DataType, lengths: NDArray[np.int64], items: pa.Array, there: NDArray[np.bool_]) -> pa.Array:
    """Return lists of items that follow each other; `kind` is that of a list or a large list."""
    ends = np.append(0, np.cumsum(lengths)).astype(np.int64 if pa.types.is_large_list(kind) else np.int32)
    return pa.Array.from_buffers(kind, len(lengths), [bitmap(there), pa.py_buffer(ends)], children=[items])


def flattened(column: pa.StructArray) -> list[pa.Array]:
    """Return the values of each field of a struct, null where the struct is null.

    Run ends and unions stay unchanged: pyarrow 26 makes invalid arrays of the former and crashes on the latter. All
    fields stay if no struct is null: for no structs at all, pyarrow makes invalid arrays of nested run ends too.
    """
    fields = [column.field(i) for i in range(column.type.num_fields)]
    if not column.null_count:
        return fields
    kinds = [child.type for child in column.type]
    rest = [i for i, kind in enumerate(kinds) if not (pa.types.is_run_end_encoded(kind) or pa.types.is_union(kind))]
    if len(rest) == len(kinds):
        return list(column.flatten())  # all at once: one by one they take ten times as long
    if rest:  # not by `struct_field`, which returns an extension over views without their bytes
        parts = pa.StructArray.from_arrays([fields[i] for i in rest], list(map(str, rest)), mask=column.is_null())
        for i, part in zip(rest, parts.flatten(), strict=True):
            fields[i] = part
    return fields


def with_gaps(column: pa.FixedShapeTensorArray) -> NDArray[np.bool_]:
    """Return which arrays of one shape have a null among their values."""
    stored, width = column.storage, column.type.storage_type.list_size
    items = stored.values[stored.offset * width : (stored.offset + len(stored)) * width]
    if not items.null_count:
        return np.zeros(len(column), np.bool_)
    return present(column) & ~present(items).reshape(len(column), width).all(axis=1)


def from_ranges(
    buffer: pa.Buffer,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    valid: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return views of the ranges `[offset, offset + length)` of a buffer; null where `valid` is False.

    Returns `large_binary` (a copy) if one value is 2 GiB or more, which a view cannot be. The caller has checked that
    every range is inside the buffer. Touches the first bytes of every value.
    """
    return gather([buffer], np.zeros(len(offset), np.int32), offset, length, valid)


def gather(
    buffers: Sequence[pa.Buffer],
    which: NDArray[np.int32],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    valid: NDArray[np.bool_] | None = None,
    *,
    prefixes: bool = True,
) -> pa.Array:
    """Return views of ranges of several buffers.

    Value i is `buffers[which[i]][offset[i] : offset[i] + length[i]]`. Without `prefixes`, only the views themselves are
    filled, and no payload is touched. Such views are valid only for copying, at once, in a thread that does not hold
    Python's lock.
    """
    count = len(offset)
    if valid is not None:
        length = np.where(valid, length, 0)
        offset = np.where(valid, offset, 0)
    if count and int(length.max()) > _MAX_OFFSET:
        return _joined(buffers, which, offset, length, valid)
    segments: list[pa.Buffer] = []
    first = np.zeros(len(buffers), np.int32)
    for i, buffer in enumerate(buffers):
        first[i] = len(segments)
        segments += _segments(buffer)
    view = np.zeros((count, 4), np.int32)
    view[:, 0] = length
    raw = view.view(np.uint8)
    touched = np.arange(count) if prefixes else np.flatnonzero(length <= _INLINE_BYTES)
    order = touched[np.argsort(which[touched], kind="stable")] if len(buffers) > 1 else touched
    bounds = np.searchsorted(which[order], np.arange(len(buffers) + 1))
    for buffer, (begin, end) in zip(buffers, pairwise(bounds.tolist()), strict=True):
        if begin < end:
            _fill_prefixes(raw, np.frombuffer(buffer, np.uint8), offset, length, order[begin:end])
    long = length > _INLINE_BYTES
    view[long, 2] = first[which[long]] + (offset[long] // SEGMENT_BYTES).astype(np.int32)
    view[long, 3] = offset[long] % SEGMENT_BYTES
    for i in np.flatnonzero(length >= SEGMENT_BYTES).tolist():
        # Too long for a shared segment: it has its own.
        view[i, 2:] = len(segments), 0
        segments.append(buffers[which[i]].slice(int(offset[i]), int(length[i])))
    return pa.Array.from_buffers(pa.binary_view(), count, [bitmap(valid), pa.py_buffer(view), *segments])


def over(values: Sequence[bytes | None]) -> pa.Array:
    """Return views of Python's bytes in place; `large_binary` (a copy) if one is 2 GiB or more."""
    length = np.array([0 if value is None else len(value) for value in values], np.int64)
    if int(length.max(initial=0)) > _MAX_OFFSET:
        return pa.array(values, pa.large_binary())
    heads = b"".join((value or b"")[:_INLINE_BYTES].ljust(_INLINE_BYTES, b"\0") for value in values)
    view = np.zeros((len(values), 4), np.int32)
    view[:, 0] = length
    view[:, 1:] = np.frombuffer(heads, np.int32).reshape(-1, 3)
    long = length > _INLINE_BYTES
    view[long, 2], view[long, 3] = np.arange(np.count_nonzero(long)), 0
    own = [pa.py_buffer(value) for value in values if value is not None and len(value) > _INLINE_BYTES]
    valid = np.array([value is not None for value in values], np.bool_)
    return pa.Array.from_buffers(pa.binary_view(), len(values), [bitmap(valid), pa.py_buffer(view), *own])


def _segments(buffer: pa.Buffer) -> list[pa.Buffer]:
    if buffer.size <= SEGMENT_BYTES:
        return [buffer]
    starts = range(0, buffer.size, SEGMENT_BYTES)
    return [buffer.slice(start, min(_MAX_OFFSET, buffer.size - start)) for start in starts]


def _fill_prefixes(
    raw: NDArray[np.uint8],
    source: NDArray[np.uint8],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    long = rows[length[rows] > _INLINE_BYTES]
    if len(long):
        raw[long, 4:8] = source[offset[long, None] + np.arange(4)]
    short = rows[(length[rows] <= _INLINE_BYTES) & (length[rows] > 0)]
    if len(short):
        at = offset[short, None] + np.arange(_INLINE_BYTES)
        inside = np.arange(_INLINE_BYTES) < length[short, None]
        raw[short, 4:16] = np.where(inside, source[np.minimum(at, len(source) - 1)], 0)


def _joined(
    buffers: Sequence[pa.Buffer],
    which: NDArray[np.int32],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    valid: NDArray[np.bool_] | None,
) -> pa.Array:
    ends = np.zeros(len(offset) + 1, np.int64)
    np.cumsum(length, out=ends[1:])
    body = pa.allocate_buffer(int(ends[-1]))
    target = np.frombuffer(body, np.uint8)
    sources = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
    for i in range(len(offset)):
        target[ends[i] : ends[i + 1]] = sources[which[i]][offset[i] : offset[i] + length[i]]
    return pa.Array.from_buffers(pa.large_binary(), len(offset), [bitmap(valid), pa.py_buffer(ends), body])


def byte_lengths(column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the lengths in bytes of the values of a string, binary, large or view column; 0 where null."""
    if isinstance(column, pa.ChunkedArray):
        parts = [byte_lengths(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)
    count, start = len(column), column.offset
    buffers = column.buffers()
    if count == 0:
        return np.zeros(0, np.int64)
    kind = column.type
    if is_view(kind):
        sizes = _items(buffers[1], np.int32, 4 * start, 4 * count)[::4].astype(np.int64)
    elif pa.types.is_fixed_size_binary(kind):
        sizes = np.full(count, kind.byte_width, np.int64)
    else:
        wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
        ends = _items(buffers[1], np.int64 if wide else np.int32, start, count + 1)
        sizes = np.diff(ends).astype(np.int64)
    if column.null_count:
        sizes = np.where(present(column), sizes, 0)
    return sizes


def _items(buffer: pa.Buffer, kind: type[np.signedinteger[Any]], first: int, count: int) -> NDArray[Any]:
    """Return the numbers in a buffer, which may end with an incomplete one."""
    return np.frombuffer(buffer, kind, count, first * np.dtype(kind).itemsize)


def held_buffers(column: pa.ChunkedArray) -> list[pa.Buffer]:
    """Return the buffers of the values of a column: of views, those that its rows refer to."""
    found: list[pa.Buffer | None] = []
    for chunk in column.chunks:
        buffers = chunk.buffers()
        if is_view(chunk.type):
            view = np.frombuffer(buffers[1], np.int32).reshape(-1, 4)[chunk.offset : chunk.offset + len(chunk)]
            used = {*view[view[:, 0] > _INLINE_BYTES, 2].tolist()}
            buffers = [*buffers[:2], *(buffers[2 + each] for each in used)]
        found += buffers
    return [buffer for buffer in found if buffer is not None]


def row_bytes(batch: pa.RecordBatch, each: int = 0) -> NDArray[np.int64]:
    """Return the bytes of each row: text, payload (of references too), numbers, and the contents of lists and structs.

    Args:
        batch: the rows.
        each: additional bytes counted for each value, also for nested ones.
    """
    total = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        total += _value_bytes(column, each)
    return total


def total_bytes(batch: pa.RecordBatch) -> int:
    """Return the sum of `row_bytes`, computed directly: for batches of few rows, row sizes would dominate the cost."""
    return sum(map(_all_bytes, batch.columns))


def _all_bytes(column: pa.Array) -> int:
    kind = column.type
    plain = is_text(kind) or is_bytes(kind)
    if pa.types.is_primitive(kind):
        return len(column) * int((kind.bit_width + 7) // 8)
    if (plain or isinstance(kind, RefType)) and column.null_count == len(column):
        return 0
    if plain and not is_view(kind):
        return int(pc.sum(pc.binary_length(column)).as_py())
    return int(_value_bytes(column).sum())


def _value_bytes(column: pa.Array, each: int = 0) -> NDArray[np.int64]:
    kind = column.type
    if isinstance(kind, RefType):
        sizes = column.storage.field("length").fill_null(0).to_numpy(zero_copy_only=False)
        sizes = np.where(present(column), np.maximum(sizes, 0), 0)
    elif isinstance(kind, pa.BaseExtensionType):
        return _value_bytes(column.storage, each)
    elif pa.types.is_run_end_encoded(kind):
        return _value_bytes(column.values, each)[_runs_of(column, np.arange(len(column)))]
    elif is_text(kind) or is_bytes(kind):
        sizes = byte_lengths(column)
    elif pa.types.is_dictionary(kind):
        known = np.append(_value_bytes(column.dictionary, each), 0)
        places = column.indices.cast(pa.int64())  # 8 bits cannot number a place after 128 values
        sizes = known[places.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
    elif pa.types.is_struct(kind):
        sizes = sum((_value_bytes(child, each) for child in flattened(column)), np.zeros(len(column), np.int64))
    elif pa.types.is_fixed_size_list(kind):  # nulls take as much as other values
        bounds = _fixed_bounds(column)
        sizes = _range_bytes(column.values, bounds[:-1], bounds[1:], each)
    elif is_list(kind):
        sizes = _range_bytes(column.values, *_list_bounds(column), each)
    else:
        sizes = np.full(len(column), _width(kind) or 0)
    return np.asarray(sizes + each if each else sizes, np.int64)


def _width(kind: pa.DataType) -> int | None:
    """Return the bytes of any value of a type, null or not; None if sizes may differ."""
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        return int((kind.bit_width + 7) // 8)
    return 0 if pa.types.is_null(kind) else None


def _range_bytes(
    values: pa.Array, starts: NDArray[np.int64], ends: NDArray[np.int64], each: int = 0
) -> NDArray[np.int64]:
    """Return the bytes of ranges of values; for numbers from their count, without a temporary for each value.

    For others, such as text, as the difference of a running sum between start and end.
    """
    kind, width = values.type, _width(values.type)
    if width is not None:
        return (ends - starts) * (width + each)
    if is_list(kind) and not _is_list_view(kind) and len(values) and not values.null_count:
        if pa.types.is_fixed_size_list(kind):
            first, last = ((values.offset + at) * kind.list_size for at in (starts, ends))
        else:
            offsets = values.offsets.to_numpy()
            first, last = (offsets[at].astype(np.int64) for at in (starts, ends))
        return _range_bytes(values.values, first, last, each) + (ends - starts) * each
    begin, end = (int(starts.min()), int(ends.max())) if len(starts) else (0, 0)
    running = np.zeros(end - begin + 1, np.int64)
    np.cumsum(_value_bytes(values.slice(begin, end - begin), each), out=running[1:])
    sizes: NDArray[np.int64] = running[ends - begin] - running[starts - begin]
    return sizes


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _list_bounds(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and end of each list of any kind among all values; nulls are empty."""
    if pa.types.is_fixed_size_list(column.type):
        bounds = _fixed_bounds(column)
    else:
        bounds = column.offsets.to_numpy().astype(np.int64)
    starts, ends = bounds[: len(column)], bounds[1:]
    if _is_list_view(column.type):
        ends = starts + column.sizes.to_numpy()
    return np.where(present(column), starts, ends) if column.null_count else starts, ends


def _fixed_bounds(column: pa.Array) -> NDArray[np.int64]:
    """Return the starts of fixed-size lists among all values, and the end of the last."""
    return np.arange(column.offset, column.offset + len(column) + 1) * int(column.type.list_size)


def take(column: pa.Array, indices: NDArray[np.int64]) -> pa.Array:
    """Return rows of a view column, in the given order; the payload is shared."""
    buffers = column.buffers()
    view = _items(buffers[1], np.int32, 4 * column.offset, 4 * len(column)).reshape(-1, 4)
    valid = None
    if column.null_count:
        valid = present(column)[indices]
    taken = pa.py_buffer(np.ascontiguousarray(view[indices]))
    return pa.Array.from_buffers(column.type, len(indices), [bitmap(valid), taken, *buffers[2:]])


def take_values(column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """Return values in the given order, of any type.

    pyarrow 26 has no kernel for run ends, nor for views inside lists.
    """
    return _copied(column, rows) if _is_large([column]) else _taken(column, rows)


def _taken(column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    if is_view(column.type):
        return take(column, rows)
    if pa.types.is_run_end_encoded(column.type):
        return _taken_runs(column, rows)
    try:
        return column.take(pa.array(rows))
    except pa.ArrowNotImplementedError:
        return pa.concat_arrays([column.slice(row, 1) for row in rows.tolist()] or [column.slice(0, 0)])


def _taken_runs(column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    """Return rows of a run-end encoded column: adjacent rows of one run become one run."""
    runs = _runs_of(column, rows)
    last = np.flatnonzero(np.append(np.diff(runs) != 0, True)) if len(runs) else runs
    ends = pa.array(last + 1, column.type.run_end_type)
    return pa.RunEndEncodedArray.from_arrays(ends, _taken(column.values, runs[last]), column.type)


def _runs_of(column: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the run of each row."""
    runs: NDArray[np.int64] = np.searchsorted(column.run_ends.to_numpy(), column.offset + rows, side="right")
    return runs


def listed_items(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the items of a list column of any kind, one list after another, and the ends of the lists, after a 0.

    Null lists are empty. pyarrow's `flatten` cannot make an empty array of every type. No item is copied if the items
    are in this order already.
    """
    starts, stops = _list_bounds(column)
    sizes = stops - starts
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    filled = np.flatnonzero(sizes)
    if bool((starts[filled[1:]] == stops[filled[:-1]]).all()):
        return column.values.slice(int(starts[filled[0]]) if len(filled) else 0, int(ends[-1])), ends
    at = np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])
    return take_values(column.values, at), ends


def listed_values(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the items of a list column of any kind, and the row of each; null lists have no items."""
    values, ends = listed_items(column)
    return values, np.repeat(np.arange(len(column)), np.diff(ends))


def without_runs(column: pa.Array) -> pa.Array:
    """Return the values of a run-end encoded column, repeated; pyarrow 26 has no kernel for views."""
    return take_values(column.values, _runs_of(column, np.arange(len(column))))


def _is_large(chunks: Sequence[pa.Array]) -> bool:
    """Return whether values are bytes with a large average size, counting everything in their buffers."""
    if not chunks or not is_bytes(chunks[0].type) or pa.types.is_binary_view(chunks[0].type):
        return False
    size = sum(data.size for chunk in chunks if (data := chunk.buffers()[2]) is not None)
    return bool(size >= _LARGE_BYTES * max(sum(map(len, chunks)), 1))


def _copied(column: pa.Array | pa.ChunkedArray, rows: NDArray[np.int64]) -> pa.Array:
    """As `take_values`, for large values: chunks need not be joined."""
    found = places(column)
    sources = [as_view(source) for source in found.sources]

    def copy(target: memoryview, source: int, offset: int) -> None:
        target[:] = sources[source][offset : offset + len(target)]

    return take_bytes(column, found[rows], rows, copy)


def take_bytes(
    column: pa.Array | pa.ChunkedArray,
    found: ByteRanges,
    rows: NDArray[np.int64],
    copy: Callable[[memoryview, int, int], None],
) -> pa.Array:
    """Return rows of a binary or large_binary column, in the given order, in memory of the exact size.

    pyarrow's `take` grows its memory step by step, up to twice the need. If the type cannot hold the total, the type
    raises.

    Args:
        column: the column.
        found: where the values of these rows are.
        rows: the row numbers.
        copy: fills a target with bytes of a chunk, by its number, from an offset on.
    """
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(found.length, out=ends[1:])
    small = pa.types.is_binary(column.type)
    if small and int(ends[-1]) > _MAX_OFFSET:
        return column.take(pa.array(rows))
    data = room_for(int(ends[-1]))
    target = as_view(data)
    bounds = zip(found.source.tolist(), found.offset.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    for source, offset, begin, end in bounds:
        if begin < end:
            copy(target[begin:end], source, offset)
    offsets = pa.py_buffer(ends.astype(np.int32) if small else ends)
    return pa.Array.from_buffers(column.type, len(rows), [bitmap(found.source >= 0), offsets, data])


def reorder(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return rows by number, in the given order; text and bytes beyond 32-bit offsets become large.

    Chunks of large values are not joined, so that memory is taken only for the requested rows.
    """
    fields, columns, index = [], [], pa.array(rows)
    for field, column in zip(table.schema, table.columns, strict=True):
        wide = _LARGE.get(field.type)
        if wide is not None and int(byte_lengths(column)[rows].sum()) >= 1 << 31:
            field, column = field.with_type(wide), column.cast(wide)  # noqa: PLW2901 - its wider variant
        fields.append(field)
        plain = pa.types.is_primitive(field.type) or (is_text(field.type) and not pa.types.is_string_view(field.type))
        if plain:
            columns.append(column.take(index))
        elif _is_large(column.chunks):
            columns.append(_copied(column, rows))
        else:
            columns.append(take_values(column.combine_chunks(), rows))
    return pa.table(columns, schema=pa.schema(fields, metadata=table.schema.metadata))


def take_rows(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    """Return rows of a batch, in the given order; views share their payload, other columns are copied.

    A batch whose rows are all taken in order is returned without a copy.
    """
    if not batch.num_columns:
        return batch.slice(0, len(rows))
    if len(rows) == batch.num_rows and bool((np.diff(rows) == 1).all()):
        return batch
    return pa.RecordBatch.from_arrays([_taken(c, rows) for c in batch.columns], schema=batch.schema)


def compacted(batch: pa.RecordBatch, before_bytes: int) -> pa.RecordBatch:
    """Return the rows with views copied as `large_binary` where they show at most half of the given bytes.

    For callers that hold the rest of a batch: a few views keep whole pages, or whatever buffer they point into.
    """
    return batch if 2 * shown_bytes(batch) > before_bytes else without_views(batch)


def shown_bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes that the views of a batch show, also those in structs."""
    return sum(map(_shown_bytes, batch.columns))


def _shown_bytes(column: pa.Array) -> int:
    if pa.types.is_struct(column.type):
        return sum(_shown_bytes(column.field(i)) for i in range(column.type.num_fields))
    return int(byte_lengths(column).sum()) if pa.types.is_binary_view(column.type) else 0


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with views copied as `large_binary` or `large_string`, as most Arrow kernels need them."""
    for i, field in enumerate(batch.schema):
        column = join(batch.column(i))
        if column.type != field.type:
            batch = batch.set_column(i, field.with_type(column.type), column)
    return batch


def filled(column: pa.Array, other: pa.Array) -> pa.Array:
    """Return the values of one bytes column, and where it is null those of another, as views of both.

    Returns `large_binary` (a copy) if one value is 2 GiB or more.
    """
    first, second = share(column), share(other)
    if not (pa.types.is_binary_view(first.type) and pa.types.is_binary_view(second.type)):
        return pa.compute.coalesce(join(first), join(second))
    here, there = present(first), present(second)
    own, more = first.buffers(), second.buffers()
    parts = [
        np.frombuffer(buffers[1], np.int32).reshape(-1, 4)[part.offset : part.offset + len(part)]
        for part, buffers in ((first, own), (second, more))
    ]
    view = np.where(here[:, None], *parts)
    view[~here & (view[:, 0] > _INLINE_BYTES), 2] += len(own) - 2
    payload = [*own[2:], *more[2:]]
    return pa.Array.from_buffers(pa.binary_view(), len(view), [bitmap(here | there), pa.py_buffer(view), *payload])


def masked(column: pa.Array, keep: NDArray[np.bool_]) -> pa.Array:
    """Return the values of a bytes column where `keep` is True, null elsewhere; views stay views."""
    if not pa.types.is_binary_view(column.type):
        return pa.compute.if_else(pa.array(keep), column, None)
    buffers = column.buffers()
    view = buffers[1].slice(16 * column.offset, 16 * len(column))
    return pa.Array.from_buffers(column.type, len(column), [bitmap(keep & present(column)), view, *buffers[2:]])


def share(column: pa.Array) -> pa.Array:
    """Return a binary or large_binary column as views of the same bytes; a view column unchanged.

    Returns `large_binary` if one value is 2 GiB or more.
    """
    if pa.types.is_binary_view(column.type) or not len(column):
        return column.cast(pa.binary_view())
    buffers, start = column.buffers(), column.offset
    wide = pa.types.is_large_binary(column.type)
    ends = _items(buffers[1], np.int64 if wide else np.int32, start, len(column) + 1).astype(np.int64)
    if int(ends[-1]) <= _MAX_OFFSET:
        return column.cast(pa.binary_view())
    valid = present(column) if column.null_count else None
    return from_ranges(buffers[2], ends[:-1], np.diff(ends), valid)


def cut_out(column: pa.Array) -> pa.Array:
    """Return the values of a binary, string or large column in buffers without other bytes; the bytes are shared."""
    buffers, count = column.buffers(), len(column)
    wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    kind = np.int64 if wide else np.int32
    ends = _items(buffers[1], kind, column.offset, count + 1) if count else np.zeros(1, kind)
    data = None if buffers[2] is None else buffers[2].slice(int(ends[0]), int(ends[-1] - ends[0]))
    offsets = pa.py_buffer(ends - ends[0])
    return pa.Array.from_buffers(column.type, count, [bitmap(present(column)), offsets, data])


def join(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the same values as `large_binary` (or `large_string`), in memory of their own."""
    kind = column.type
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    return column.cast(pa.large_string()) if pa.types.is_string_view(kind) else column


def slices(column: pa.Array | pa.ChunkedArray) -> list[memoryview | None]:
    """Return the values of a string, binary, large or view column as memory views; None where null. No copy."""
    return places(column).views()


def places(column: pa.Array | pa.ChunkedArray) -> ByteRanges:
    """Return where the values of a string, binary, large or view column are."""
    if isinstance(column, pa.ChunkedArray):
        return ByteRanges.joined([places(chunk) for chunk in column.chunks])
    buffers, first, count = column.buffers(), column.offset, len(column)
    if not count:
        return ByteRanges.absent(0)
    if is_view(column.type):
        view = _items(buffers[1], np.int32, 4 * first, 4 * count).reshape(-1, 4).astype(np.int64)
        length, inline = view[:, 0], view[:, 0] <= _INLINE_BYTES
        source = np.where(inline, 0, view[:, 2] + 1)
        offset = np.where(inline, 16 * np.arange(first, first + count) + 4, view[:, 3])
        found = ByteRanges(buffers[1:], source, offset, length)
    else:
        wide = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
        ends = _items(buffers[1], np.int64 if wide else np.int32, first, count + 1).astype(np.int64)
        found = ByteRanges([buffers[2] or b""], np.zeros(count, np.int64), ends[:-1], np.diff(ends))
    if not column.null_count:
        return found
    there = present(column)
    return ByteRanges(found.sources, np.where(there, found.source, -1), found.offset, np.where(there, found.length, 0))
