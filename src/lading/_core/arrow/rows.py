"""Convert samples (dicts) to record batches.

Without a schema, the values decide the type of a column. With a schema, each value is stored as the column's feature
and type require (`Encoders`), so that a sample from `ds[i]` is stored as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from itertools import accumulate, filterfalse
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lading._core.arrow import json_text
from lading._core.arrow.align import align_table, refuse_bare
from lading._core.arrow.older import numpy_type
from lading._core.arrow.references import is_ref
from lading._core.arrow.types import array_of_values
from lading._core.arrow.views import LIST_TYPES, is_bytes, is_text, over
from lading._core.features import types as features
from lading._core.features.by_ending import (
    by_ending,
    feature_of_ending,
    file_bytes,
    is_bytes_or_pictures,
    picture_bytes,
    sound_bytes,
    video_bytes,
)
from lading._core.features.encode import VIDEO_FIELDS, array_of, is_tensor, npy_bytes, video_cell
from lading._core.features.images import image_bytes, is_image
from lading._core.features.plain_values import listed
from lading._core.features.types import (
    Array,
    Audio,
    Bytes,
    Feature,
    Image,
    Json,
    Video,
    encode,
    feature_of,
    tag_by_extension,
    with_feature,
)
from lading.errors import LadingError, Unrepresentable, UsageError, WrongType

__all__ = ["Encoders", "column_array", "encode_value", "rows_to_batch"]

_PLAIN = frozenset((bytes, str, bool, int, float, type(None)))
_SUBCLASSES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    ((bytearray, memoryview), bytes),
    (bytes, bytes.__bytes__),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)
"""Plain Python types, and how they are stored."""
_JSON, _NPY, _NUMBER, _IMAGE, _FILE = "JSON", "an array", "a number", "an image", "a file"
_Layout: TypeAlias = tuple[str | None, tuple[int | None, ...] | None]
_IMAGES, _BYTES = "a list of images", "a list of bytes"
_OF_NUMPY = (bytes, str, bool, int, float, date, timedelta, type(None))
_MEDIA = (Image, Audio, Video)
_REFUSED = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
_LARGE_BYTES = 4 << 10
"""Average bytes of a value above which a view costs less than a copy."""


def encode_value(value: Any) -> Any:
    """Return the stored form of a value.

    Bytes, text and numbers are unchanged, arrays and tensors become `.npy`, lists and dicts JSON text, images of Pillow
    their file, or PNG. Pickle is never used. Raises UsageError for other values.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        plain = value.item()
        # numpy converts nanoseconds to a plain number, and a time that Python lacks stays a numpy value.
        if isinstance(plain, _OF_NUMPY) and not (isinstance(plain, int) and value.dtype.kind in "mM"):
            return plain
    for kind, made in _SUBCLASSES:
        if isinstance(value, kind):
            return made(value)
    if isinstance(value, np.ndarray) or is_tensor(value):
        return npy_bytes(value)
    if isinstance(value, (list, tuple, dict)):
        try:
            return json_text.dumps(value)
        except Unrepresentable as error:
            error.advice = error.advice or "Give bytes and images as a field of their own, or in a list of only these."
            raise
    if is_image(value):
        return image_bytes(value)
    known = "bytes, text, a number, a list or dict, a numpy array or a Pillow image"
    raise UsageError("a value of this type cannot be stored", found=type(value).__name__,
                     advice=f"Encode it as {known}.")  # fmt: skip


class Encoders:
    """Convert values into those that the columns of a schema store; other columns are typed by their values.

    Args:
        schema: schema of the rows; None if it names no column.

    Attributes:
        fields: the columns that the schema names.
        kinds: logical types of the other columns; numbers, text and bytes have the type of the value or of the name.
    """

    def __init__(self, schema: pa.Schema | None) -> None:
        self.fields = {} if schema is None else {field.name: field for field in schema}
        self.kinds: dict[str, str] = {}
        self._plain: set[tuple[str, type]] = set()
        """Fields and types of seen values that are stored unchanged."""
        self._others: dict[tuple[str, type], Callable[[Any], Any]] = {}
        """Fields and types of the other seen values, and their encoders."""
        self._encode = {name: _encoder(name, feature_of(field), field.type) for name, field in self.fields.items()}
        self._texts = {name for name, f in self.fields.items() if is_text(f.type) and not feature_of(f).is_json}

    def row(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Return a sample as its columns store it; no state is kept of it.

        Raises:
            UsageError: the sample is not a dict of named fields, or a value differs in kind from earlier ones in its
                column.
            LadingError: a value that cannot be stored, as in `_core.features.encode`.
        """
        if type(sample) is not dict and not isinstance(sample, Mapping):
            raise UsageError("a sample is a dict of its fields", found=f"{type(sample).__name__} {sample!r:.80}")
        row = dict(sample)
        if not self._others and self._plain.issuperset(_kinds(row)):  # a little faster than a search for others
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
        """Return the encoder for values of this field and type."""
        if not isinstance(name, str) or not json_text.is_unicode(name):
            raise UsageError("a field's name is a text", found=f"{type(name).__name__} {name!a:.80}")
        return _as_it_is if value is None else self._encode.get(name) or _encoder_by_name(name, value)

    def _learn(self, sample: Mapping[str, Any], row: Mapping[str, Any], new: Sequence[str]) -> None:
        """Record new fields and types, and the kinds of values in columns that no schema names."""
        own = [name for name in new if name not in self.fields and row[name] is not None and not _is_open(row[name])]
        kinds = {name: _kind(name, sample[name], row[name]) for name in own}
        for name, kind in kinds.items():
            if self.kinds.get(name, kind) != kind:
                raise UsageError("the values of one field are of several kinds", column=name,
                                 expected=self.kinds[name], found=f"{kind} {sample[name]!r:.80}")  # fmt: skip
        self.kinds.update(kinds)
        for name in new:
            value = sample[name]
            kinds_unchanged: Collection[Any] = (str,) if name in self._texts else () if name in self._encode else _PLAIN
            if name not in self._encode and _kind_by_name(name) is not None:
                kinds_unchanged = (bytes,)
            if value is None or type(value) in kinds_unchanged:
                self._plain.add((name, type(value)))
            elif name in self.fields or name in kinds:  # otherwise it is a null of numpy, which has no kind
                self._others[name, type(value)] = self._encoder(name, value)

    def settle(self, name: str, values: list[Any]) -> list[Any]:
        """Return encoded values of a column; lists without items are JSON, unless others hold bytes or images."""
        if name in self.fields or self.kinds.get(name, _JSON) != _JSON or not any(map(_is_open, values)):
            return values
        self.kinds[name] = _JSON
        return [json_text.dumps(value) if _is_open(value) else value for value in values]


def _encoder_by_name(name: str, value: Any) -> Callable[[Any], Any]:
    """Return the encoder for a column that no schema names: by the ending of its name, or by the value."""
    found = by_ending(name, value)
    if found is None and isinstance(value, (list, tuple)):
        items = [item for item in value if item is not None]
        if is_bytes_or_pictures(items):
            found = partial(_media_items, _kind(name, value, items) if items else None, name)
    return found or (partial(image_bytes, name=name) if is_image(value) else encode_value)


def _media_items(kind: str | None, name: str, value: Any) -> list[bytes | None]:
    """Return the bytes of a list of bytes, or of images and bytes; `kind` says of which."""
    items = [item for item in value if item is not None]
    if not is_bytes_or_pictures(items) or _kind(name, value, items) not in (kind, _BYTES):
        raise UsageError("the values of one field are of several kinds", expected=kind, found=f"{value!r:.80}")
    return [None if item is None else picture_bytes(item, None, name) for item in value]


def _is_open(stored: Any) -> bool:
    """Return whether an encoded value is a list without items: other values say whether it is JSON."""
    return isinstance(stored, list) and all(item is None for item in stored)


def _kinds(row: Mapping[str, Any]) -> Iterable[tuple[str, type]]:
    """Return fields and the types of their values."""
    return zip(row, map(type, row.values()))  # noqa: B905 - to count them takes as long as to look them up


def _kind(name: str, value: Any, stored: Any) -> str:
    """Return the kind of a value. Numbers share a kind where floats hold all of them exactly."""
    if isinstance(stored, list):
        plain = all(item is None or isinstance(item, (bytes, bytearray, memoryview)) for item in value)
        return _BYTES if plain else _IMAGES
    if isinstance(stored, (bytes, str)) and (known := _kind_by_name(name)):
        return known
    if (isinstance(value, np.ndarray) or is_tensor(value)) and isinstance(stored, bytes):
        return _NPY
    if isinstance(value, (list, tuple, dict)):
        return _JSON
    if is_image(value):
        return _IMAGE
    return _NUMBER if type(stored) in (int, float) else type(stored).__name__


def _kind_by_name(name: str) -> str | None:
    """Return the kind of the values that the ending of a name promises: files, arrays, JSON; None for others."""
    promised = feature_of_ending(name)
    if promised is None:
        return None
    return _FILE if promised.is_media else _NPY if promised.array is not None else _JSON if promised.is_json else None


def _encoder(name: str, feature: Feature, kind: pa.DataType) -> Callable[[Any], Any]:
    """Return the function that converts values to those that pyarrow takes for a column's type and feature."""
    found: Callable[[Any], Any] = _as_it_is
    if isinstance(kind, pa.FixedShapeTensorType) and feature.array is not None:
        found = partial(_tensor_items, feature.array, _items_dtype(kind.value_type))
    elif is_ref(kind) or is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        found = partial(_in_bytes, name, feature)
    elif isinstance(kind, pa.BaseExtensionType):
        found = _encoder(name, feature, kind.storage_type)
    elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        found = _encoder(name, feature, kind.value_type)
    elif is_text(kind):
        found = partial(_in_text, feature)
    elif pa.types.is_struct(kind):
        found = _struct_encoder(name, feature, kind)
    elif feature.array is not None:
        found = partial(_array_items, feature.array, _items_dtype(kind))
    elif isinstance(kind, LIST_TYPES):
        item = feature.item or feature_of(kind.value_field)
        found = partial(_list_items, _encoder(name, item, kind.value_type))
    elif not feature.is_value or _is_plain(feature):
        found = partial(encode, feature)
    return found


def _struct_encoder(name: str, feature: Feature, kind: pa.StructType) -> Callable[[Any], Any]:
    names = {child.name for child in kind}
    if feature.is_media and names == {"bytes", "path"}:
        return partial(_in_media, name, feature)
    if feature.medium == "video" and names == {*VIDEO_FIELDS}:
        return _in_video
    inner = dict(feature.children or ())
    return partial(
        _struct_items,
        {child.name: _encoder(child.name, inner.get(child.name) or feature_of(child), child.type) for child in kind},
    )


def _is_plain(feature: Feature) -> bool:
    """Return whether `encode` knows the type; pyarrow checks values of the others."""
    try:
        feature.to_arrow_type()
    except UsageError:
        return False
    return True


def _as_it_is(value: Any) -> Any:
    return value


def _in_bytes(name: str, feature: Feature, value: Any) -> bytes | None:
    if isinstance(value, (bytes, bytearray, memoryview)) and (feature.is_value or not feature.is_content):
        return bytes(value)
    stored = _media(name, feature, value) if feature.is_media else encode(feature, value)
    if feature.is_value and stored is not None:
        stored = str(stored)  # numbers in bytes are decimal text
    try:
        return stored.encode() if isinstance(stored, str) else stored
    except UnicodeEncodeError:
        raise _lone_surrogate(value) from None


def _media(name: str, feature: Feature, value: Any) -> bytes:
    if feature.medium == "image":
        return picture_bytes(value, feature.image_format, name)
    return sound_bytes(value, name) if feature.medium == "audio" else video_bytes(value, name)


def _in_text(feature: Feature, value: Any) -> Any:
    if isinstance(value, str) and not (feature.is_text or feature.is_json):
        return value
    return encode(feature, value)


def _in_media(name: str, feature: Feature, value: Any) -> dict[str, Any]:
    """Existing structs stay: their path belongs to another dataset, and is not read."""
    if isinstance(value, Mapping) and value.keys() <= {"bytes", "path"}:
        return {"bytes": value.get("bytes"), "path": value.get("path")}
    return {"bytes": _media(name, feature, value), "path": None}


def _in_video(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else video_cell(file_bytes(value, "video"))


def _items_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the type of numbers in lists, at any depth; None for other items."""
    while isinstance(kind, LIST_TYPES):
        kind = kind.value_type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return numpy_type(kind) if is_number else None


def _array_items(layout: _Layout, stored: np.dtype[Any] | None, value: Any) -> Any:
    """Return numbers as the feature has them, and in the storage type; pyarrow would cut them."""
    dtype, shape = layout
    array = array_of(value, dtype or stored, shape)
    return (array if stored is None else array_of(array, stored)).tolist()


def _tensor_items(layout: _Layout, stored: np.dtype[Any] | None, value: Any) -> Any:
    return np.ravel(_array_items(layout, stored, value)).tolist()


def _list_items(encoder: Callable[[Any], Any], value: Any) -> list[Any]:
    return [None if item is None else encoder(item) for item in listed(value)]


def _struct_items(encoders: Mapping[str, Callable[[Any], Any]], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or value.keys() - encoders.keys():
        found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise Unrepresentable("this column holds dicts", expected=f"the keys {sorted(encoders)}", found=found)
    return {name: None if value.get(name) is None else make(value[name]) for name, make in encoders.items()}


def rows_to_batch(rows: Sequence[Mapping[str, Any]], encoders: Encoders) -> pa.RecordBatch:
    """Return one batch of encoded rows, a column a field in order of first appearance; missing fields are null.

    Large bytes become `binary_view` over the given values, other bytes `large_binary`.

    Args:
        rows: samples, encoded by `encoders`.
        encoders: the encoders, which know the types of the columns.

    Raises:
        UsageError: the values of one field are of several kinds.
        Unrepresentable: no row has a field; a text is invalid Unicode, a number has more than 64 bits, with row and
            column.
        SchemaMismatch: a value does not fit the given type of its column; with row and column.
    """
    known = encoders.fields
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(known)
    refuse_bare(len(rows), len(names))
    arrays, fields = [], []
    for name in names:
        values = [row.get(name) for row in rows]
        values = encoders.settle(name, values)
        is_known = name in known
        array = column_array(name, values, known[name].type, shared=True) if is_known else _open_array(name, values)
        if is_known:
            field = known[name].with_type(_type_of(known[name].type, array))
        else:
            field = _tagged(pa.field(name, array.type), encoders.kinds.get(name))
        arrays.append(array)
        fields.append(field)
    schema = pa.schema(fields)
    if not known:
        return pa.record_batch(arrays, schema=schema)
    return align_table(pa.RecordBatch.from_arrays(arrays, names), schema)


def column_array(
    name: str,
    values: list[Any],
    kind: pa.DataType,
    place: Callable[[int], Mapping[str, Any]] = lambda row: {"row": row},
    *,
    shared: bool = False,
) -> pa.Array:
    """Return encoded values as an array of a type, in memory of their own.

    Args:
        name: name of the column, for errors.
        values: the values, as encoders store them.
        kind: the type.
        place: returns the place of a value by its number, for errors.
        shared: whether the type may be another one that `align_table` casts more carefully than pyarrow would. Then
            large bytes become views over the values.

    Raises:
        Unrepresentable: a value does not fit, or a text is invalid Unicode; names the column and the place.
        UsageError: the values of one field are of several kinds.
    """
    made = partial(_array_of, kind, name) if shared else partial(_exact_array, kind)
    try:
        return made(values)
    except LadingError:
        raise
    except _REFUSED as error:
        for row, value in enumerate(values):
            try:
                made([value])
            except _REFUSED as refused:
                raise _refused_value(kind, value, refused).at(column=name, **place(row)) from refused
        raise Unrepresentable(f"values that {kind} cannot hold in one batch", column=name, found=str(error),
                              advice="Make batches smaller.") from error  # fmt: skip


def _refused_value(kind: pa.DataType | None, value: Any, error: Exception) -> Unrepresentable:
    """Return the error for a value that pyarrow refuses; without a type, that it chooses itself."""
    if isinstance(error, UnicodeEncodeError):
        return _lone_surrogate(value)
    message = f"a value that {'Arrow' if kind is None else kind} cannot hold"
    if isinstance(error, OverflowError):
        return Unrepresentable(message, found=f"{value!r:.80}", advice="Give the column another type.")
    refusal = WrongType if isinstance(error, TypeError) else Unrepresentable
    return refusal(message, found=f"{value!r:.80} ({error})")


def _exact_array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if kind == pa.large_binary() and None not in values:
        return _joined(values)
    array = array_of_values(values, kind)
    if isinstance(array, pa.ChunkedArray):
        raise OverflowError("more than 2 GB of text in one batch")
    return array


def _joined(values: list[bytes]) -> pa.Array:
    """Return bytes as an array. pyarrow copies them in parts into memory that it enlarges, at half the speed."""
    ends = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    parts = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), parts)


def _array_of(kind: pa.DataType, name: str, values: list[Any]) -> pa.Array:
    """Return the values in a type, or in a type that `align_table` casts more carefully than pyarrow would."""
    if isinstance(kind, pa.BaseExtensionType) and not is_ref(kind):
        return pa.ExtensionArray.from_storage(kind, _array_of(kind.storage_type, name, values).cast(kind.storage_type))
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _array_of(kind.value_type, name, values)
    if is_ref(kind) or is_bytes(kind) or is_text(kind) or pa.types.is_fixed_size_binary(kind):
        return _array(name, values)
    if not pa.types.is_floating(kind):
        return array_of_values(values, kind)
    pa.array([value for value in values if type(value) is int], kind)  # refuses integers that would be rounded
    return pa.array(values, pa.float64())


def _open_array(name: str, values: list[Any]) -> pa.Array:
    """Return the values in the type that they decide. Raises as `column_array`."""
    try:
        return _array(name, values)
    except LadingError:
        raise
    except (UnicodeEncodeError, OverflowError):
        raise _misfit(name, values) from None
    except _REFUSED:
        for row, value in enumerate(values):
            try:
                _array(name, [value])
            except OverflowError:
                raise _misfit(name, values) from None
            except _REFUSED as error:
                raise _refused_value(None, value, error).at(row=row, column=name) from None
        # Each alone is accepted, so integers are mixed with floats.
        return column_array(name, values, pa.float64(), shared=True)


def _type_of(kind: pa.DataType, array: pa.Array) -> pa.DataType:
    """Return the type of a column; bytes of any length keep their type, because views share them."""
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
    if kinds == {list}:
        return pa.array(values, pa.list_(pa.large_binary()))
    if len(kinds) > 1:
        raise UsageError("the values of one field are of several kinds", column=name,
                         found=", ".join(sorted(k.__name__ for k in kinds)))  # fmt: skip
    try:
        return pa.array(values)
    except OverflowError:
        return pa.array(values, pa.uint64())


def _misfit(name: str, values: list[Any]) -> Unrepresentable:
    """Return the error for the first value that Arrow's text and numbers cannot hold."""
    for row, value in enumerate(values):
        try:
            _array(name, [value])
        except UnicodeEncodeError:
            return _lone_surrogate(value).at(row=row, column=name)
        except OverflowError:
            break
    else:
        numbers = [value for value in values if value is not None]
        return Unrepresentable("whole numbers that no type of 64 bits holds together", column=name,
                               found=f"{min(numbers)} and {max(numbers)}", advice="Give them as text.")  # fmt: skip
    return Unrepresentable("a number beyond 64 bits", row=row, column=name, found=str(value)[:80],
                           advice="Give it as text.")  # fmt: skip


def _lone_surrogate(value: Any) -> Unrepresentable:
    return Unrepresentable("a text with a lone surrogate", expected="Unicode", found=ascii(value)[:80],
                           advice="Replace it: text.encode('utf-8', 'replace').decode().")  # fmt: skip


def _tagged(field: pa.Field, kind: str | None) -> pa.Field:
    """Return the field with the feature of its values; bytes get that of a tar member of this name, never numbers."""
    if kind == _JSON:
        return with_feature(field, Json())
    if kind == _NPY:
        return with_feature(field, Array())
    if kind == _IMAGE:
        return with_feature(field, Image())
    if kind in (_IMAGES, _BYTES):
        own = pa.field(field.name, field.type.value_type, metadata=tag_by_extension(field.name))
        item = Image() if kind == _IMAGES else feature_of(own)
        return with_feature(field, features.Sequence(item)) if item.is_media else field
    if not is_bytes(field.type):
        return field
    tagged = field.with_metadata(tag_by_extension(field.name))
    return with_feature(field, Bytes()) if feature_of(tagged).is_value else tagged
