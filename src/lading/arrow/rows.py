"""Samples as dicts → record batches.

Without a schema the values say what a column holds. With one, each is stored as the column's feature and type say
(`Encoders`), so that a sample as `ds[i]` gives it becomes what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from itertools import filterfalse
from typing import Any

import numpy as np
import pyarrow as pa

from lading import features
from lading.arrow import json_text
from lading.arrow.align import align_table, refuse_bare
from lading.arrow.references import is_ref
from lading.arrow.types import array_of_values
from lading.arrow.views import LIST_TYPES, is_bytes, is_text, over
from lading.errors import LadingError, Unrepresentable, UsageError
from lading.features.encode import VIDEO_FIELDS, array_of, media_bytes, npy_bytes, video_cell
from lading.features.types import (
    Array,
    Audio,
    Bytes,
    Encoded,
    Feature,
    Image,
    Json,
    Place,
    Struct,
    Text,
    Value,
    Video,
    encode,
    feature_of,
    python_types,
    tag_by_extension,
    with_feature,
)

__all__ = ["Encoders", "encode_value", "rows_to_batch"]

_PLAIN = frozenset((bytes, str, bool, int, float, type(None)))
_SUBCLASSES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    ((bytearray, memoryview), bytes),
    (bytes, bytes.__bytes__),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)
"""What is stored as a plain value of Python, and how."""
_JSON, _NPY, _NUMBER = "JSON", "an array", "a number"
_OF_NUMPY = (bytes, str, bool, int, float, date, timedelta, type(None))
_MEDIA = (Image, Audio, Video)
_REFUSED = (pa.ArrowException, TypeError, ValueError)
_LARGE_BYTES = 4 << 10
"""Bytes of a value in the mean above which a view costs less than a copy."""


def encode_value(value: Any) -> Any:
    """A value as it is stored: bytes, text and numbers as they are, arrays as `.npy`, lists and dicts as JSON text.

    Pickle is never used. Raises UsageError for what has no such form.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        plain = value.item()
        # Of nanoseconds numpy gives a number that is no time any more, of what Python lacks the value itself.
        if isinstance(plain, _OF_NUMPY) and not (isinstance(plain, int) and value.dtype.kind in "mM"):
            return plain
    for kind, made in _SUBCLASSES:
        if isinstance(value, kind):
            return made(value)
    if isinstance(value, np.ndarray):
        return npy_bytes(value)
    if isinstance(value, (list, tuple, dict)):
        return json_text.dumps(value)
    raise UsageError("a value of this type cannot be stored", found=type(value).__name__,
                     advice="Encode it as bytes, text, a number, a list or dict, or a numpy array.")  # fmt: skip


class Encoders:
    """How values become what the columns of a schema store; those of columns that it does not name say it themselves.

    Args:
        schema: of the rows; None if it names no column.

    Attributes:
        fields: of the columns that the schema names.
        kinds: what values of other columns are; numbers, text and bytes mean what they are, or what the name says.
    """

    def __init__(self, schema: pa.Schema | None) -> None:
        self.fields = {} if schema is None else {field.name: field for field in schema}
        self.kinds: dict[str, str] = {}
        self._plain: set[tuple[str, type]] = set()
        """Fields and types of values that are stored as they are, of those seen."""
        self._others: dict[tuple[str, type], Callable[[Any], Any]] = {}
        """Fields and types of the other values seen, and what makes of them those that are stored."""
        self._encode = {name: _encoder(feature_of(field), field.type) for name, field in self.fields.items()}

    def row(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """A sample as its columns store it, of which nothing is kept.

        Raises:
            UsageError: this is no dict of named fields, or a value is of another kind than those before in its column.
            LadingError: a value that cannot be stored, as `lading.features.encode` says.
        """
        if type(sample) is not dict and not isinstance(sample, Mapping):
            raise UsageError("a sample is a dict of its fields", found=f"{type(sample).__name__} {sample!r:.80}")
        row = dict(sample)
        if not self._others and self._plain.issuperset(_kinds(row)):  # a little faster than to look for others
            return row
        new: list[str] = []
        for pair in filterfalse(self._plain.__contains__, _kinds(row)):
            name = pair[0]
            value, encoder = row[name], self._others.get(pair)
            if encoder is None:
                encoder = self._encoder(name, value)
                new.append(name)
            try:
                row[name] = encoder(value)
            except LadingError as error:
                raise error.at(column=name) from None
        if new:
            self._learn(sample, row, new)
        return row

    def _encoder(self, name: str, value: Any) -> Callable[[Any], Any]:
        """What makes those that are stored of values of this field and type."""
        if not isinstance(name, str) or not json_text.is_unicode(name):
            raise UsageError("a field's name is a text", found=f"{type(name).__name__} {name!a:.80}")
        return _as_it_is if value is None else self._encode.get(name, encode_value)

    def _learn(self, sample: Mapping[str, Any], row: Mapping[str, Any], new: Sequence[str]) -> None:
        """Note the fields and types that are new, and what kinds of values the columns hold that no schema names."""
        own = [name for name in new if name not in self.fields and row[name] is not None]
        kinds = {name: _kind(sample[name], row[name]) for name in own}
        for name, kind in kinds.items():
            if self.kinds.get(name, kind) != kind:
                raise UsageError("the values of one field are of several kinds", column=name,
                                 expected=self.kinds[name], found=f"{kind} {sample[name]!r:.80}")  # fmt: skip
        self.kinds.update(kinds)
        for name in new:
            value = sample[name]
            if value is None or (name not in self._encode and type(value) in _PLAIN):
                self._plain.add((name, type(value)))
            elif name in self.fields or name in kinds:  # else it is a null of numpy's, which tells no kind
                self._others[name, type(value)] = self._encode.get(name, encode_value)


def _kinds(row: Mapping[str, Any]) -> Iterable[tuple[str, type]]:
    """Fields and types of their values."""
    return zip(row, map(type, row.values()))  # noqa: B905 - to count them takes as long as to look them up


def _kind(value: Any, stored: Any) -> str:
    """What a value is besides what is stored of it. Numbers go together where floats hold all of them."""
    if isinstance(value, np.ndarray):
        return _NPY
    if isinstance(value, (list, tuple, dict)):
        return _JSON
    return _NUMBER if type(stored) in (int, float) else type(stored).__name__


def _encoder(feature: Feature, kind: pa.DataType) -> Callable[[Any], Any]:
    """What makes of values those that pyarrow takes for a type, of what a column of that type and feature means."""
    found: Callable[[Any], Any] = _as_it_is
    if isinstance(kind, pa.FixedShapeTensorType) and isinstance(feature, Array):
        found = partial(_tensor_items, feature, _items_dtype(kind.value_type))
    elif is_ref(kind) or is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        found = partial(_in_bytes, feature)
    elif isinstance(kind, pa.BaseExtensionType):
        found = _encoder(feature, kind.storage_type)
    elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        found = _encoder(feature, kind.value_type)
    elif is_text(kind):
        found = partial(_in_text, feature)
    elif pa.types.is_struct(kind):
        found = _struct_encoder(feature, kind)
    elif isinstance(feature, Array):
        found = partial(_array_items, feature, _items_dtype(kind))
    elif isinstance(kind, LIST_TYPES):
        item = feature.feature if isinstance(feature, features.Sequence) else feature_of(kind.value_field)
        found = partial(_list_items, _encoder(item, kind.value_type))
    elif not isinstance(feature, Value) or _is_plain(feature):
        found = partial(encode, feature)
    return found


def _struct_encoder(feature: Feature, kind: pa.StructType) -> Callable[[Any], Any]:
    names = {child.name for child in kind}
    if isinstance(feature, _MEDIA) and names == {"bytes", "path"}:
        return partial(_in_media, feature)
    if isinstance(feature, Video) and names == {*VIDEO_FIELDS}:
        return _in_video
    inner = dict(feature.fields) if isinstance(feature, Struct) else {}
    return partial(
        _struct_items, {child.name: _encoder(inner.get(child.name) or feature_of(child), child.type) for child in kind}
    )


def _is_plain(feature: Value) -> bool:
    """Whether it is of a type that `encode` knows; pyarrow judges values of the others."""
    try:
        python_types(feature.dtype)
    except UsageError:
        return False
    return True


def _as_it_is(value: Any) -> Any:
    return value


def _in_bytes(feature: Feature, value: Any) -> bytes | None:
    if isinstance(value, (bytes, bytearray, memoryview)) and isinstance(feature, (Encoded, Place, Value)):
        return bytes(value)
    stored = media_bytes(value) if isinstance(feature, Video) else encode(feature, value)
    if isinstance(feature, Value) and stored is not None:
        stored = str(stored)  # numbers in bytes are decimal text
    return stored.encode() if isinstance(stored, str) else stored


def _in_text(feature: Feature, value: Any) -> Any:
    if isinstance(value, str) and not isinstance(feature, (Text, Json)):
        return value
    return encode(feature, value)


def _in_media(feature: Feature, value: Any) -> dict[str, Any]:
    """What is a struct already stays: its path is another's, and is not read."""
    if isinstance(value, Mapping):
        return {"bytes": value.get("bytes"), "path": value.get("path")}
    return {"bytes": media_bytes(value) if isinstance(feature, Video) else encode(feature, value), "path": None}


def _in_video(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else video_cell(value)


def _items_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """The type of numbers in lists, however deep; None for other items."""
    while isinstance(kind, LIST_TYPES):
        kind = kind.value_type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if is_number else None


def _array_items(feature: Array, stored: np.dtype[Any] | None, value: Any) -> Any:
    """Numbers as the feature says, and as those of another type in which they are stored: pyarrow would cut them."""
    array = array_of(value, feature.dtype or stored, feature.shape)
    return (array if stored is None else array_of(array, stored)).tolist()


def _tensor_items(feature: Array, stored: np.dtype[Any] | None, value: Any) -> Any:
    return np.ravel(_array_items(feature, stored, value)).tolist()


def _list_items(encoder: Callable[[Any], Any], value: Any) -> list[Any]:
    return [None if item is None else encoder(item) for item in features.listed(value)]


def _struct_items(encoders: Mapping[str, Callable[[Any], Any]], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or value.keys() - encoders.keys():
        found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise Unrepresentable("this column holds dicts", expected=f"the keys {sorted(encoders)}", found=found)
    return {name: None if value.get(name) is None else make(value[name]) for name, make in encoders.items()}


def rows_to_batch(rows: Sequence[Mapping[str, Any]], encoders: Encoders) -> pa.RecordBatch:
    """One batch of encoded rows, a column a field in order of first appearance; missing fields are null.

    Large bytes come as `binary_view` over the values given, other bytes as `large_binary`.

    Args:
        rows: samples as `encoders` gave them.
        encoders: which know what the columns hold.

    Raises:
        UsageError: the values of one field are of several kinds.
        Unrepresentable: no row has a field; a text is no Unicode, a number has more than 64 bits, with row and column.
        SchemaMismatch: a value does not fit the type that was told of its column; with row and column.
    """
    told = encoders.fields
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(told)
    refuse_bare(len(rows), len(names))
    arrays, fields = [], []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            array = _array(name, values) if name not in told else _array_of(told[name].type, name, values)
        except LadingError:
            raise
        except (UnicodeEncodeError, OverflowError):
            raise _misfit(name, values) from None
        except _REFUSED:
            raise _refused(told[name].type if name in told else None, name, values) from None
        if name in told:
            field = told[name].with_type(_type_of(told[name].type, array))
        else:
            field = _tagged(pa.field(name, array.type), encoders.kinds.get(name))
        arrays.append(array)
        fields.append(field)
    schema = pa.schema(fields)
    if not told:
        return pa.record_batch(arrays, schema=schema)
    return align_table(pa.RecordBatch.from_arrays(arrays, names), schema)


def _array_of(kind: pa.DataType, name: str, values: list[Any]) -> pa.Array:
    """The values in a type, or in one that `align_table` casts to it with more care than pyarrow takes them."""
    if isinstance(kind, pa.BaseExtensionType) and not is_ref(kind):
        return pa.ExtensionArray.from_storage(kind, _array_of(kind.storage_type, name, values).cast(kind.storage_type))
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _array_of(kind.value_type, name, values)
    if is_ref(kind) or is_bytes(kind) or is_text(kind) or pa.types.is_fixed_size_binary(kind):
        return _array(name, values)
    if not pa.types.is_floating(kind):
        return array_of_values(values, kind)
    pa.array([value for value in values if type(value) is int], kind)  # refuses whole numbers that would be rounded
    return pa.array(values, pa.float64())


def _refused(kind: pa.DataType | None, name: str, values: list[Any]) -> Unrepresentable:
    """The error for the first value that pyarrow does not take for a type, or for any; then for that of all numbers."""
    told = "Arrow" if kind is None else kind
    for row, value in enumerate(values):
        try:
            _array(name, [value]) if kind is None else _array_of(kind, name, [value])
        except OverflowError:
            return _misfit(name, values)
        except _REFUSED as error:
            return Unrepresentable(f"a value that {told} cannot hold", row=row, column=name,
                                   found=f"{value!r:.80} ({error})")  # fmt: skip
    if kind is None:  # each alone is taken, so they are whole numbers beside floats
        return _refused(pa.float64(), name, values)
    return Unrepresentable(f"values that {kind} cannot hold in one batch", column=name)


def _type_of(kind: pa.DataType, array: pa.Array) -> pa.DataType:
    """The type of a column, but bytes of any length as they come: views share them."""
    if not (is_ref(kind) or is_bytes(kind)):
        return kind
    return array.type if is_bytes(array.type) else pa.large_binary()


def _array(name: str, values: list[Any]) -> pa.Array:
    kinds = {type(v) for v in values if v is not None}
    if kinds == {bytes}:
        large = sum(map(len, filter(None, values))) >= _LARGE_BYTES * len(values)
        return over(values) if large else pa.array(values, pa.large_binary())
    if kinds == {str}:
        return pa.array(values, pa.large_string() if sum(map(len, filter(None, values))) > 1 << 29 else pa.string())
    if kinds == {int, float}:
        return pa.array(values, pa.float64())
    if len(kinds) > 1:
        raise UsageError("the values of one field are of several kinds", column=name,
                         found=", ".join(sorted(k.__name__ for k in kinds)))  # fmt: skip
    try:
        return pa.array(values)
    except OverflowError:
        return pa.array(values, pa.uint64())


def _misfit(name: str, values: list[Any]) -> Unrepresentable:
    """The error for the first value that Arrow's text and numbers cannot hold."""
    for row, value in enumerate(values):
        try:
            _array(name, [value])
        except UnicodeEncodeError:
            return Unrepresentable("a text with half of a character", row=row, column=name, expected="Unicode",
                                   found=ascii(value)[:80])  # fmt: skip
        except OverflowError:
            break
    else:
        numbers = [value for value in values if value is not None]
        return Unrepresentable("whole numbers that no type of 64 bits holds together", column=name,
                               found=f"{min(numbers)} and {max(numbers)}", advice="Give them as text.")  # fmt: skip
    return Unrepresentable("a number beyond 64 bits", row=row, column=name, found=str(value)[:80],
                           advice="Give it as text.")  # fmt: skip


def _tagged(field: pa.Field, kind: str | None) -> pa.Field:
    """The field with what its values mean; bytes are what a member of their name is in a tar, but never numbers."""
    if kind == _JSON:
        return with_feature(field, Json())
    if kind == _NPY:
        return with_feature(field, Array())
    if not is_bytes(field.type):
        return field
    tagged = field.with_metadata(tag_by_extension(field.name))
    return with_feature(field, Bytes()) if isinstance(feature_of(tagged), Value) else tagged
