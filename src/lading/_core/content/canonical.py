"""The canonical form of values, over which content digests are computed: a batch at once, by Arrow and numpy.

**The definition.** The form of a value begins with a tag of one byte, and determines its own end:

    null       nothing: a field that is null is left out, so absent equals null; `n` as an item of a list
    bool       `T`, `F`
    int        `i`, int64 little-endian, whatever its width was; beyond int64 `I`, then its decimal text as bytes
    float      `f`, binary64 little-endian after exact widening; one NaN; −0.0 differs from 0.0
    bytes      `s`, length (1 byte), bytes; if longer than 64: `h`, their xxh3-128. Strings are their UTF-8 bytes
    list       `l`, count (8 bytes), items
    struct     `{`, for each field that is not null its name (as bytes) and its value, sorted by the name's bytes, `}`
    array      `a`, dtype (numpy's name, as bytes), shape (a list of ints), values (C order, little-endian, as bytes);
               an array with nulls, or of other items than numbers and bools, is nested lists
    decimal    `d`, its text as bytes; trailing zeros count
    time       a letter, a unit and an int64: `D` date, `t` date and time, `z` the same in a known time zone (the
               instant; the zone's name does not show), `o` time of day, `u` duration; the coarsest unit that is exact:
               `d` days (dates only), `s` seconds, `m` milli-, `u` micro-, `n` nanoseconds
    JSON       the value of the text: objects are structs, lists lists; invalid JSON, or JSON nested deeper than 1,024
               levels, is bytes; a value deeper than 100 levels is `j` and its canonical text as bytes

So the storage of a value does not change its form: dictionary, large, view, fixed size, chunks, a list or its JSON
text, an array or the bytes of its values where dtype and shape are known. Long values are represented by their hash, so
that payloads are hashed in place and are not copied. Media are their stored bytes, never pixels: of Hugging Face's
struct of bytes and path, the path does not show unless the bytes are elsewhere. A map is a list of structs of `key` and
`value`.

xxh3 finds accidents, not forgeries.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.byte_ranges import ByteRanges, bitmap
from lading._core.arrow.older import numpy_type
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import (
    byte_lengths,
    flattened,
    is_bytes,
    is_text,
    is_view,
    listed_items,
    places,
    present,
    slices,
    take,
    take_values,
    with_gaps,
    without_runs,
)
from lading._core.features.natural import is_media, is_number, whole_number, whole_numbers
from lading._core.features.types import Feature, feature_of
from lading.errors import DataError, DuplicateField, Unrepresentable, UsageError, errors_at

__all__ = [
    "FORM",
    "FORMS",
    "HASH_BYTES",
    "SHORT_BYTES",
    "column_forms",
    "field_forms",
    "hash_forms",
    "hash_value",
    "hashed_forms",
    "hasher",
    "joined",
    "list_forms",
    "struct_forms",
    "value_form",
]

FORM = pa.large_binary()
"""Arrow type of a column of forms; null where the value is null."""


class _FormType(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no type information
    """Forms that replace values. The type is not registered: no file has columns of it."""

    def __init__(self) -> None:
        super().__init__(FORM, "lading.form")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> _FormType:
        return cls()


FORMS = _FormType()
"""Arrow type of a column that holds forms instead of values, computed while the values passed."""

SHORT_BYTES = 64
"""Longer values are represented by their hash."""
_JSON_BYTES = 8 << 20
"""Number of JSON texts whose values are in memory at once."""
_DEEP = 100
_MANY_VALUES, _DEEP_COLUMNS, _MOSTLY_THERE = 64, 8, 4
"""JSON values are processed by column from this many on, down to this depth, if one field in four is present."""
hash_value: Callable[[Any], bytes] = xxhash.xxh3_128_digest
"""Hash of a long value: `HASH_BYTES` bytes."""
HASH_BYTES = 16
hasher: Callable[[], Any] = xxhash.xxh3_128
"""Begins the same hash for a value that comes in parts."""


def hash_forms(forms: pa.Array) -> NDArray[np.uint8]:
    """Return the xxh3-128 of each form: shape (rows, 16), big-endian."""
    # Empty rows are all equal, and 85 KB of Parquet can hold 50 million of them.
    if len(forms) > 1 and forms[0] == forms[-1] and _all_alike(forms):
        return np.repeat(_hashes(places(forms.slice(0, 1))), len(forms), axis=0)
    return _hashes(places(forms))


def _all_alike(forms: pa.Array) -> bool:
    sizes = byte_lengths(forms)
    if forms.null_count or not (sizes == sizes[0]).all():
        return False
    _, ends, data = forms.buffers()
    begin = int(np.frombuffer(ends, np.int64)[forms.offset])
    rows = np.frombuffer(data, np.uint8, int(sizes.sum()), begin).reshape(len(forms), -1)
    return bool((rows == rows[0]).all())


def _hashes(pieces: ByteRanges) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(pieces.results(hash_value)), np.uint8).reshape(-1, 16)


def field_forms(columns: Iterable[tuple[pa.Field, pa.Array | pa.ChunkedArray]]) -> dict[str, pa.Array]:
    """Return forms of columns by name, sorted by name; places are left out.

    Raises:
        UsageError: a column holds references.
        Unrepresentable: a column's type has no canonical form.
        DuplicateField: two columns have one name. All name the column.
    """
    forms: dict[str, pa.Array] = {}
    for field, column in sorted(columns, key=lambda item: item[0].name.encode()):
        if field.name in forms:
            raise DuplicateField("this column appears twice", column=field.name)
        with errors_at(column=field.name):
            feature = feature_of(field)
            if feature.is_content:
                forms[field.name] = column_forms(column, feature)
    return forms


def column_forms(column: pa.Array | pa.ChunkedArray, feature: Feature) -> pa.Array:
    """Return forms of a column's values, in one array. Raises as `field_forms`."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    made = [chunk.storage if chunk.type == FORMS else _forms(chunk, feature) for chunk in chunks]
    return pa.concat_arrays(made or [pa.array([], FORM)])


def struct_forms(forms: Mapping[str, pa.Array], count: int) -> pa.Array:
    """Return forms of structs, one a row, from the forms of their fields, sorted by name."""
    if not forms:
        return pa.array([b"{}"] * count, FORM)
    named: list[Any] = []
    for name, form in forms.items():
        label = pa.scalar(_bytes_form(name.encode()), FORM)
        # Prepended to a form only where it must stay with it: otherwise the join below does it, with one copy less.
        named += [joined(label, form)] if form.null_count else [label, form]
    return pc.binary_join_element_wise(
        pa.scalar(b"{", FORM),
        *named,
        pa.scalar(b"}", FORM),
        pa.scalar(b"", FORM),
        null_handling="replace",
        null_replacement=b"",
    )


def joined(*parts: Any) -> pa.Array:
    """Concatenate forms row by row; null where one of them is null."""
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", FORM))


def value_form(feature: Feature, *, long: bool) -> tuple[bytes, Callable[[memoryview], bytes]] | None:
    """Return the function from bytes to form and the bytes before it; None if the form needs more than bytes.

    Args:
        feature: feature of the column.
        long: whether all values have more than `SHORT_BYTES`; then no Python runs for each value.
    """
    if feature.is_json:
        return None
    short = _number_text_form if is_number(feature) else _bytes_form
    return (_head_of(feature) + b"h", hash_value) if long else (_head_of(feature), short)


def hashed_forms(feature: Feature, hashes: NDArray[np.uint8]) -> pa.Array:
    """Return forms of long values of a column, other than JSON, from their hashes."""
    return _fixed(_head_of(feature) + b"h", hashes)


def _head_of(feature: Feature) -> bytes:
    """Return the prefix of the forms of bytes: dtype and shape, if all values of an array column share them."""
    dtype, shape = feature.array or (None, None)
    return b"" if dtype is None or not shape or None in shape else _array_head(dtype, shape)


def _bytes_form(value: bytes | memoryview) -> bytes:
    return b"s" + bytes((len(value),)) + value if len(value) <= SHORT_BYTES else b"h" + hash_value(value)


def _number_text_form(value: bytes | memoryview) -> bytes:
    """Return the form of bytes that may be the text of an int."""
    number = whole_number(value)
    return _bytes_form(value) if number is None else _int_form(number, 0)


def _forms(column: pa.Array, feature: Feature) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return _of_dictionary(column, feature)
    if is_ref(column.type):
        raise UsageError("a digest needs the bytes; this column holds references", advice="Materialise it first.")
    if isinstance(column.type, pa.FixedShapeTensorType):
        return _of_tensor(column)
    if isinstance(column.type, pa.BaseExtensionType):
        return _forms(_stored(column), feature)
    if pa.types.is_run_end_encoded(column.type):
        return _forms(without_runs(column), feature)
    if pa.types.is_nested(column.type):
        return _of_nested(column, feature)
    is_scalar = not (is_bytes(column.type) or is_text(column.type) or pa.types.is_fixed_size_binary(column.type))
    return _of_scalar(column) if is_scalar else _of_text(column, feature)


def _stored(column: pa.Array) -> pa.Array:
    """Return the storage of an extension type; for Arrow's bools in bytes the bools, whatever byte means true."""
    return pc.not_equal(column.storage, 0) if isinstance(column.type, pa.Bool8Type) else column.storage


def _of_dictionary(column: pa.Array, feature: Feature) -> pa.Array:
    """Process each value once; if a dictionary is longer than the rows, only its used entries."""
    values, indices = column.dictionary, column.indices
    if len(values) > len(indices):
        used = indices.dictionary_encode()
        values, indices = take_values(values, used.dictionary.to_numpy().astype(np.int64)), used.indices
    return _forms(values, feature).take(indices)


def _of_text(column: pa.Array, feature: Feature) -> pa.Array:
    """Return forms of text and bytes, by their feature."""
    if feature.is_json:
        return _of_json(column)
    if is_number(feature):
        numbers = whole_numbers(column)
        return pc.coalesce(_of_integers(numbers), _of_bytes(column))
    head = _head_of(feature)
    return joined(pa.scalar(head, FORM), _of_bytes(column)) if head else _of_bytes(column)


def _of_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(FORM)
    sizes = byte_lengths(column)
    if not len(sizes) or sizes.max() <= SHORT_BYTES:
        return _of_short(column, sizes)
    valid = present(column)
    short, long = np.flatnonzero(valid & (sizes <= SHORT_BYTES)), np.flatnonzero(sizes > SHORT_BYTES)
    forms = [(long, _fixed(b"h", _hashes(places(column)[long])))]
    if len(short):
        forms.append((short, _of_short(_taken(column, short), sizes[short])))
    return _scattered(len(column), forms)


def _taken(column: pa.Array, rows: NDArray[np.int64]) -> pa.Array:
    return take(column, rows) if is_view(column.type) else column.take(pa.array(rows))


def _of_short(column: pa.Array, sizes: NDArray[np.int64]) -> pa.Array:
    plain = column if pa.types.is_large_binary(column.type) else column.cast(FORM)
    return joined(pa.scalar(b"s", FORM), _fixed(b"", sizes.astype(np.uint8).reshape(-1, 1)), plain)


def _scattered(count: int, parts: Sequence[tuple[NDArray[np.int64], pa.Array]]) -> pa.Array:
    """Combine parts that know their rows into one column; null elsewhere."""
    at = np.full(count, -1, np.int64)
    done = 0
    for rows, part in parts:
        at[rows] = np.arange(done, done + len(part))
        done += len(part)
    return pa.concat_arrays([part for _, part in parts]).take(pa.array(at, mask=at < 0))


def _fixed(tag: bytes, values: NDArray[Any], like: pa.Array | None = None) -> pa.Array:
    """Return forms of fixed length: the tag and the bytes of a row; null where `like` is null."""
    width = values.dtype.itemsize * math.prod(values.shape[1:])
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    form = np.empty((len(raw), len(tag) + width), np.uint8)
    form[:, : len(tag)] = np.frombuffer(tag, np.uint8)
    form[:, len(tag) :].view(f"V{width}")[:] = raw.view(f"V{width}")  # a row at once: ten times as fast
    ends = np.arange(0, form.size + 1, form.shape[1], dtype=np.int64)
    return _over(form, ends, like)


def _over(data: Any, ends: NDArray[np.int64], like: pa.Array | None) -> pa.Array:
    """Return a large_binary column over existing bytes."""
    valid = present(like) if like is not None and like.null_count else None
    return pa.Array.from_buffers(FORM, len(ends) - 1, [bitmap(valid), pa.py_buffer(ends), pa.py_buffer(data)])


def _of_scalar(column: pa.Array) -> pa.Array:
    kind, types = column.type, pa.types
    if types.is_null(kind):
        return pa.nulls(len(column), FORM)
    if types.is_boolean(kind):
        truth = np.asarray(pc.fill_null(column, fill_value=False).to_numpy(zero_copy_only=False), np.bool_)
        return _fixed(b"", np.where(truth, ord("T"), ord("F")).astype(np.uint8), column)
    if types.is_floating(kind):
        wide = np.array(_numbers(column), "<f8")
        wide.view("<u8")[np.isnan(wide)] = 0x7FF8 << 48
        return _fixed(b"f", wide, column)
    if types.is_decimal(kind):
        return joined(pa.scalar(b"d", FORM), _of_bytes(column.cast(pa.large_string())))
    if types.is_integer(kind):
        return _of_integers(column)
    if types.is_temporal(kind) and not types.is_interval(kind):
        return _of_time(column)
    raise Unrepresentable("values of this type have no digest", found=str(kind))


def _numbers(column: pa.Array) -> NDArray[Any]:
    """Return a primitive column as numpy; null rows hold arbitrary values."""
    buffer, width = column.buffers()[1], column.type.bit_width // 8
    kind = np.dtype(f"<i{width}") if pa.types.is_temporal(column.type) else numpy_type(column.type)
    if not len(column):
        return np.zeros(0, kind)
    return np.frombuffer(buffer, kind, len(column), column.offset * width)


def _of_integers(column: pa.Array) -> pa.Array:
    values = _numbers(column)
    forms = _fixed(b"i", values.astype("<i8"), column)
    if not pa.types.is_uint64(column.type):
        return forms
    valid = present(column)
    huge = np.flatnonzero((values > np.iinfo(np.int64).max) & valid)
    if not len(huge):
        return forms
    rest = np.flatnonzero((values <= np.iinfo(np.int64).max) & valid)
    texts = pa.array([_scalar_form(value) for value in values[huge].tolist()], FORM)
    return _scattered(len(column), [(huge, texts), (rest, forms.take(pa.array(rest)))])


_COARSER = {"ns": ("us", 1000), "us": ("ms", 1000), "ms": ("s", 1000), "s": ("d", 86_400)}
_TIME = np.dtype([("unit", "u1"), ("value", "<i8")])


def _of_time(column: pa.Array) -> pa.Array:
    kind, types = column.type, pa.types
    tag = b"D" if types.is_date(kind) else b"o" if types.is_time(kind) else b"u" if types.is_duration(kind) else b"t"
    if types.is_timestamp(kind) and kind.tz is not None:
        tag = b"z"
    unit = {pa.date32(): "d", pa.date64(): "ms"}.get(kind) or kind.unit
    form = np.empty(len(column), _TIME)
    form["value"] = _numbers(
        column.view(pa.int32() if kind in (pa.date32(), pa.time32("s"), pa.time32("ms")) else pa.int64())
    )
    form["unit"] = ord(unit[0])
    while unit != ("d" if tag == b"D" else "s"):
        coarser, factor = _COARSER[unit]
        exact = (form["unit"] == ord(unit[0])) & (form["value"] % factor == 0)
        form["value"][exact] //= factor
        form["unit"][exact] = ord(coarser[0])
        unit = coarser
    return _fixed(tag, form, column)


def _of_tensor(column: pa.Array) -> pa.Array:
    """Return forms of tensors as arrays; as nested lists if values are not numbers, or a row holds a null."""
    kind, width = column.type, column.type.storage_type.list_size
    first = column.storage.offset * width
    items = column.storage.values[first : first + len(column) * width]
    axes = range(len(kind.shape)) if kind.permutation is None else kind.permutation
    place = np.arange(width).reshape(kind.shape).transpose(axes)  # of each value in the storage array
    if not (pa.types.is_integer(items.type) or pa.types.is_floating(items.type) or pa.types.is_boolean(items.type)):
        return _tensor_lists(column, items, place, np.arange(len(column)))
    forms = _tensor_arrays(column, items, place)
    gaps = with_gaps(column)
    if not gaps.any():
        return forms
    others, rows = np.flatnonzero(~gaps), np.flatnonzero(gaps)
    return _scattered(
        len(column), [(others, forms.take(pa.array(others))), (rows, _tensor_lists(column, items, place, rows))]
    )


def _tensor_arrays(column: pa.Array, items: pa.Array, place: NDArray[np.int64]) -> pa.Array:
    truth = pa.types.is_boolean(items.type)
    values = pc.fill_null(items, fill_value=False).to_numpy(zero_copy_only=False) if truth else _numbers(items)
    if column.type.permutation is not None:
        values = values.reshape(len(column), place.size)[:, place.ravel()]
    raw = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    ends = np.arange(len(column) + 1, dtype=np.int64) * place.size * raw.itemsize
    return joined(pa.scalar(_array_head(raw.dtype.name, place.shape), FORM), _of_bytes(_over(raw, ends, column)))


def _tensor_lists(column: pa.Array, items: pa.Array, place: NDArray[np.int64], rows: NDArray[np.int64]) -> pa.Array:
    at = (rows[:, None] * place.size + place.ravel()).ravel()
    forms = _forms(take_values(items, at), feature_of(pa.field("item", items.type)))
    for axis in reversed(range(place.ndim)):
        count = len(rows) * math.prod(place.shape[:axis])
        forms = list_forms(forms, np.arange(count + 1, dtype=np.int64) * place.shape[axis])
    return pc.if_else(pa.array(present(column)[rows]), forms, pa.scalar(None, FORM))


def _array_head(dtype: str, shape: Iterable[int | None]) -> bytes:
    return b"a" + _bytes_form(dtype.encode()) + _scalar_form(list(shape))


def _of_nested(column: pa.Array, feature: Feature) -> pa.Array:
    if feature.is_media and is_media(column.type):
        return _of_media(column)
    if pa.types.is_struct(column.type):
        forms = field_forms(zip(column.type, flattened(column), strict=True))
        return pc.if_else(column.is_valid(), struct_forms(forms, len(column)), pa.scalar(None, FORM))
    values, bounds = _list_parts(column)
    item = feature.item or feature_of(pa.field("item", values.type))
    return list_forms(_forms(values, item), bounds, column)


def _of_media(column: pa.Array) -> pa.Array:
    """Return forms of media as structs of bytes and path: those of the bytes, or of the path where they are elsewhere.

    A struct without either is no medium.
    """
    data, path = (flattened(column)[column.type.get_field_index(name)] for name in ("bytes", "path"))
    elsewhere = joined(pa.scalar(b"{" + _bytes_form(b"path"), FORM), _of_bytes(path), pa.scalar(b"}", FORM))
    return pc.coalesce(_of_bytes(data), elsewhere)


def _list_parts(column: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return all items of the rows, and the bounds of each row's items."""
    # No casts between kinds of lists: pyarrow 26 makes decreasing offsets of list views.
    types, kind = pa.types, column.type
    if types.is_fixed_size_list(kind):
        width = kind.list_size
        bounds = np.arange(len(column) + 1, dtype=np.int64) * width
        return column.values[column.offset * width : (column.offset + len(column)) * width], bounds
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return listed_items(column)
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind)):
        raise Unrepresentable("values of this type have no digest", found=str(kind))
    bounds = np.asarray(column.offsets.to_numpy(), np.int64)
    values = column.values
    if types.is_map(kind):
        values = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    return values[bounds[0] : bounds[-1]], bounds - bounds[0]


def list_forms(items: pa.Array, bounds: NDArray[np.int64], like: pa.Array | None = None) -> pa.Array:
    """Return forms of lists: list i has the items with forms `[bounds[i], bounds[i + 1])`; null where `like` is null.

    The forms of a list's items are contiguous, so they are copied only to prepend the count.
    """
    forms = pc.fill_null(items, b"n")
    ends, data = np.zeros(1, np.int64), pa.py_buffer(b"")
    if len(forms):
        _, raw_ends, data = forms.buffers()
        ends = np.frombuffer(raw_ends, np.int64)[forms.offset : forms.offset + len(forms) + 1]
    return joined(_fixed(b"l", np.diff(bounds).astype("<i8")), _over(data, ends[bounds], like))


def _of_json(column: pa.Array) -> pa.Array:
    texts = slices(column)
    cut = np.flatnonzero(np.diff(np.cumsum(byte_lengths(column)) // _JSON_BYTES, prepend=0)).tolist()
    return pa.concat_arrays([_of_texts(texts[first:last]) for first, last in pairwise([0, *cut, len(texts)])])


def _of_texts(texts: list[memoryview | None]) -> pa.Array:
    there = [bytes(text) for text in texts if text is not None]
    found = iter(json_text.loads_plain(there) or map(_loaded, there))
    return _value_forms([None if text is None else next(found) for text in texts])


def _loaded(text: bytes) -> Any:
    """Return the value of a JSON text; invalid JSON stays bytes."""
    try:
        return json_text.loads(text)
    except DataError:
        return text


def _value_forms(values: list[Any], depth: int = 0) -> pa.Array:
    """Return forms of JSON values: by column where many have one type, else one by one; null for None."""
    kinds = {*map(type, values)} - {type(None)}
    if len(values) >= _MANY_VALUES and len(kinds) == 1 and depth < _DEEP_COLUMNS:
        found = _column_of(kinds.pop(), values, depth)
        if found is not None:
            return found
    return pa.array([None if value is None else _scalar_form(value, depth) for value in values], FORM)


def _column_of(kind: type, values: list[Any], depth: int) -> pa.Array | None:
    """Return forms of values of one type or None; None if no column can hold them."""
    try:
        if kind is dict:
            return _of_objects(values, depth)
        if kind is list:
            items = [item for value in values if value is not None for item in value]
            bounds = np.cumsum([0, *(0 if value is None else len(value) for value in values)])
            return list_forms(_value_forms(items, depth + 1), bounds, _nulls_of(values))
        if kind is str:
            return _of_bytes(pa.array(values, pa.large_string()))
        return _of_scalar(pa.array(values, _JSON_TYPES[kind])) if kind in _JSON_TYPES else None
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or an integer beyond int64
        return None


def _of_objects(values: list[dict[str, Any] | None], depth: int) -> pa.Array | None:
    """Return forms of objects, field by field; None if most of them lack most fields."""
    there: list[dict[str, Any]] = [{} if value is None else value for value in values]
    names = dict.fromkeys(name for value in there for name in value)
    if len(names) * len(there) > _MOSTLY_THERE * sum(map(len, there)):
        return None
    ordered = sorted(names, key=str.encode)
    forms = {name: _value_forms([value.get(name) for value in there], depth + 1) for name in ordered}
    made = struct_forms(forms, len(there))
    return pc.if_else(_nulls_of(values).is_valid(), made, pa.scalar(None, FORM)) if None in values else made


def _nulls_of(values: list[Any]) -> pa.Array:
    """Return a column that is null where the values are None."""
    return pa.array([None if value is None else True for value in values], pa.bool_())


def _scalar_form(value: Any, depth: int = 0) -> bytes:
    """Return the form of one JSON value."""
    return _JSON_FORMS[type(value)](value, depth)


def _int_form(value: int, _depth: int) -> bytes:
    if -(1 << 63) <= value < 1 << 63:
        return b"i" + value.to_bytes(8, "little", signed=True)
    return b"I" + _bytes_form(b"%d" % value)


def _float_form(value: float, _depth: int) -> bytes:
    return b"f" + (_NAN if math.isnan(value) else struct.pack("<d", value))


def _list_form(value: list[Any], depth: int) -> bytes:
    if depth == _DEEP:
        return b"j" + _bytes_form(json_text.canonical(value).encode())
    return b"l" + len(value).to_bytes(8, "little") + b"".join(_scalar_form(item, depth + 1) for item in value)


def _object_form(value: dict[str, Any], depth: int) -> bytes:
    if depth == _DEEP:
        return b"j" + _bytes_form(json_text.canonical(value).encode())
    named = sorted((key.encode("utf-8", "surrogatepass"), item) for key, item in value.items() if item is not None)
    return b"{" + b"".join(_bytes_form(key) + _scalar_form(item, depth + 1) for key, item in named) + b"}"


_NAN = struct.pack("<Q", 0x7FF8 << 48)
_JSON_FORMS: dict[type, Callable[[Any, int], bytes]] = {
    type(None): lambda _, __: b"n",
    bool: lambda value, _: b"T" if value else b"F",
    str: lambda value, _: _bytes_form(value.encode("utf-8", "surrogatepass")),
    int: _int_form,
    float: _float_form,
    list: _list_form,
    dict: _object_form,
    bytes: lambda value, _: _bytes_form(value),
}
_JSON_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
