"""Columns and features in the form of Hugging Face's datasets library.

Media are `struct<bytes: binary, path: string>`, labels int64, arrays nested lists, JSON the extension type
`arrow.json`. The features of columns are JSON in the metadata of the Arrow schema, under `huggingface`: `{"info":
{"features": {name: feature}}}`. Field metadata stay, so that lading finds its own features again. A column of bytes or
text that was converted to one of those types is marked, and read back as bytes or text.

Source: datasets 5.2.0 features/features.py (`Features.arrow_schema`, `generate_from_arrow_type`, `Array2D`, `Json`),
image.py, audio.py, video.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.byte_ranges import bitmap
from lading._core.arrow.casts import cast, decoded, rebuilt
from lading._core.arrow.older import numpy_type
from lading._core.arrow.types import arrow_type
from lading._core.arrow.views import byte_lengths, child_fields, is_bytes, is_text, present, slices, with_child_fields
from lading._core.features.casts import text_of_bytes
from lading._core.features.huggingface_types import (
    ITEM_TYPES,
    MAX_DIMENSIONS,
    MAX_ITEMS,
    MEDIA,
    NUMBER_TYPES,
    ArrayType,
    Form,
    is_media,
    keeps_media,
)
from lading._core.features.items import is_interleaved_schema
from lading._core.features.natural import is_media_list, known_feature
from lading._core.features.types import (
    FEATURE_KEY,
    Array,
    Audio,
    Bytes,
    ClassLabel,
    Feature,
    Image,
    Sequence,
    Struct,
    Video,
    feature_of,
    is_shape,
    plain_storage,
    with_feature,
)
from lading.errors import BadReference, DataError, LadingError, Unrepresentable, UsageError, errors_at

__all__ = [
    "BY_DEFAULT_KEY",
    "HUGGINGFACE_KEY",
    "from_huggingface",
    "huggingface_batch",
    "huggingface_features",
    "huggingface_schema",
    "left_out",
    "may_hold",
    "media_advice",
    "media_schema",
    "schema_of_features",
    "unwrapped",
    "unwrapped_schema",
    "without_default",
]

HUGGINGFACE_KEY = b"huggingface"
"""Key of a schema's metadata."""

BY_DEFAULT_KEY = b"lading.huggingface"
"""Key of the metadata of a schema whose features for datasets lading wrote without being asked."""

_WRAPPED_KEY = b"lading.wrapped"
_MAX_VALUE_BYTES = 1 << 31
_MAX_DEPTH = 100
_PEER_KEYS = b"stable_datasets."
"""Prefix of stable-datasets' metadata of a field."""
_EXTENSION_KEYS = (b"ARROW:extension:name", b"ARROW:extension:metadata")
_MARKS = {b"bytes": pa.large_binary(), b"string": pa.string(), b"large_string": pa.large_string()}
"""Metadata of a field: the type of a column before its conversion to one of datasets' types."""
_MEDIA_NAMES = ("Image", "Audio", "Video", "Pdf", "Nifti", "Mesh", "BioSequence", "BioStructure")
"""Features that datasets stores as bytes and path."""
_LISTS = (pa.ListType, pa.LargeListType)
_FIXED = re.compile(r"fixed_size_binary\[(\d{1,9})\]")
_NAMES = {
    pa.null(): "null", pa.bool_(): "bool", pa.float16(): "float16", pa.float32(): "float32", pa.float64(): "float64",
    pa.date32(): "date32", pa.date64(): "date64",
}  # fmt: skip
_OTHER_NAMES = {
    "float": "float32", "double": "float64", "halffloat": "float16", "utf8": "string", "large_utf8": "large_string",
    "bool_": "bool",
}  # fmt: skip
"""Further names of types that datasets accepts."""

_AS_ARROW_SAYS = (
    pa.types.is_integer, pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration, pa.types.is_binary,
    pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string, pa.types.is_fixed_size_binary,
    pa.types.is_decimal128, pa.types.is_decimal256,
)  # fmt: skip
"""Types with the same name in datasets and Arrow."""


def huggingface_features(schema: pa.Schema) -> dict[str, Any]:
    """Return the features in a schema's metadata, by column; nothing if there are none. Raises DataError."""
    text = (schema.metadata or {}).get(HUGGINGFACE_KEY)
    spec = json_text.loads(text) if text is not None else None
    for step in ("info", "features"):
        spec = spec.get(step) if isinstance(spec, dict) else None
    return spec if isinstance(spec, dict) else {}


def from_huggingface(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the features in Hugging Face's metadata (Image, Audio, Video, ClassLabel, arrays, lists).

    All metadata stay. Columns that the metadata do not name stay as they are.

    Raises:
        DataError: the metadata are not valid JSON.

    Source: datasets 5.2.0 features/features.py (`Features.arrow_schema`).
    """
    specs = huggingface_features(schema)
    if not specs:
        return schema
    return pa.schema([_with_spec(field, specs.get(field.name)) for field in schema], metadata=schema.metadata)


def _with_spec(field: pa.Field, spec: Any) -> pa.Field:
    feature = None if FEATURE_KEY in (field.metadata or {}) else _feature_here(spec, field.type)
    return field if feature is None else with_feature(field, feature)


def _feature_here(spec: Any, kind: pa.DataType) -> Feature | None:
    """Return the feature; None if the Arrow type already implies it, or does not fit it."""
    plain = plain_storage(kind)
    if isinstance(spec, list) and len(spec) == 1:
        spec = {"_type": "Sequence", "feature": spec[0]}
    if not isinstance(spec, dict):
        return None
    name = spec.get("_type")
    found: Feature | None = None
    if name in ("Image", "Audio", "Video") and (pa.types.is_struct(plain) or pa.types.is_binary(plain)):
        found = _MEDIA[name]
    elif name == "ClassLabel" and isinstance(spec.get("names"), list) and pa.types.is_integer(plain):
        names = tuple(map(str, spec["names"]))
        found = ClassLabel(names) if all(map(json_text.is_unicode, names)) else None
    elif name in ("Array2D", "Array3D", "Array4D", "Array5D") and pa.types.is_list(plain):
        found = _array_here(spec.get("dtype"), spec.get("shape"))
    elif name in ("Sequence", "List", "LargeList") and pa.types.is_list(plain):
        inner = _feature_here(spec.get("feature"), plain.value_type)
        found = None if inner is None else Sequence(inner)
    elif not isinstance(name, str) and pa.types.is_struct(plain):
        inside = [(child.name, _feature_here(spec.get(child.name), child.type)) for child in plain]
        known = tuple((name, inner) for name, inner in inside if inner is not None)
        found = Struct(known) if known else None
    return found


def _array_here(dtype: Any, shape: Any) -> Array | None:
    """Return the feature of an array; None if it is impossible."""
    known = isinstance(dtype, str) and dtype in NUMBER_TYPES and is_shape(shape)
    return Array(dtype, tuple(shape)) if known else None


_MEDIA: Mapping[Any, Feature] = {type(each).__name__: each for each in (Image(), Audio(), Video())}


def huggingface_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in datasets' types, with its features in the metadata.

    Existing features of a column stay, as far as they are true of the written type. Columns whose storage differs from
    those features, with longer offsets or as bare lists, are written as the features require.

    Raises:
        Unrepresentable: a column of a type that datasets lacks, or of labels with a repeated name; names it.
        DataError: the metadata describe a column in an impossible way.
    """
    before = huggingface_features(schema)
    fields, features = [], {}
    for field in schema:
        spec_before = before.get(field.name)
        if spec_before is not None and _has_extension(field.type):
            kind, spec = field.type, spec_before
        else:
            with errors_at(column=field.name):
                kind, spec = _fitted(_as_declared(field.type, spec_before), feature_of(field))
            spec = _renewed(spec_before, spec, kind)
        fields.append(_with_kind(field, kind))
        features[field.name] = spec
    return pa.schema(fields, metadata={**(schema.metadata or {}), HUGGINGFACE_KEY: _as_metadata(features)})


def media_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with bytes of media as datasets stores media, and the features of all columns in the metadata.

    Other columns keep their types: what datasets cannot hold has no feature. Rows of documents, and rows without media
    and labels, stay as they are.
    """
    features = [known_feature(field) for field in schema]
    items = [each.item or each for each in features]
    if is_interleaved_schema(schema) or not any(each.is_media or each.labels is not None for each in items):
        return schema
    before = huggingface_features(schema)
    fields, specs = [], {}
    for field, feature in zip(schema, features, strict=True):
        kind = _with_media(field.type, feature)
        fields.append(_with_kind(field, kind))
        spec_before, spec = before.get(field.name), _true_feature(kind, feature)
        if spec_before is not None and _has_extension(kind):  # arrays, where `datasets` is imported
            specs[field.name] = spec_before
        elif spec is not None:
            specs[field.name] = _renewed(spec_before, spec, kind)
    marks = {} if before else {BY_DEFAULT_KEY: b"true"}
    return pa.schema(fields, metadata={**(schema.metadata or {}), HUGGINGFACE_KEY: _as_metadata(specs), **marks})


def _with_media(kind: pa.DataType, feature: Feature) -> pa.DataType:
    """Return the type with media as datasets stores them; lists of bytes stay lists of bytes."""
    if feature.is_media and (is_bytes(kind) or is_media(kind)):
        return MEDIA
    if feature.item is not None and is_media_list(kind):
        return with_child_fields(kind, [kind.value_field.with_type(_with_media(kind.value_type, feature.item))])
    return kind


def _true_feature(kind: pa.DataType, feature: Feature) -> dict[str, Any] | None:
    """Return the feature of datasets for a column of this type; None if datasets cannot hold the column."""
    for meant in (feature, Bytes()):
        try:
            found, spec = _fitted(kind, meant)
        except Unrepresentable:
            continue
        if found == kind:
            return spec
    return None


def without_default(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a file without the features for datasets that lading wrote by default.

    The fields have them too, and datasets' types do not matter to formats that the rows go to.
    """
    metadata = dict(schema.metadata or {})
    if metadata.pop(BY_DEFAULT_KEY, None) is None:
        return schema
    metadata.pop(HUGGINGFACE_KEY, None)
    return schema.with_metadata(metadata or None)


def _as_metadata(features: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps({"info": {"features": features}})
    except TypeError as error:  # features in a file may have any number and depth
        raise DataError("features of Hugging Face that no column has", found=str(error)) from None


def left_out(schema: pa.Schema) -> list[str]:
    """Return names of columns that datasets cannot hold completely: structs of videos in stable-datasets' form.

    Raises Unrepresentable as `huggingface_schema`.
    """
    pairs = zip(schema, huggingface_schema(schema), strict=True)
    return [field.name for field, written in pairs if _holds_videos(field.type) and not _holds_videos(written.type)]


def _holds_videos(kind: pa.DataType) -> bool:
    own = keeps_media(kind) and not is_media(kind)
    return own or any(_holds_videos(child.type) for child in child_fields(kind))


def schema_of_features(features: dict[str, Any]) -> pa.Schema:
    """Return the schema in which datasets stores columns of these features (`Features.arrow_schema`).

    Equal to the schema of a file that is read: arrays are lists, because datasets, which registers a type for them, is
    not loaded.

    Raises:
        DataError: an invalid feature; names the column.
    """
    fields = []
    for name, spec in features.items():
        with errors_at(column=name):
            fields.append(pa.field(name, _stored_type(spec)))
    schema = pa.schema(fields, metadata={HUGGINGFACE_KEY: _as_metadata(features)})
    return pa.ipc.read_schema(schema.serialize())


def _stored_type(spec: Any, depth: int = 0) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise DataError("features are nested too deeply", expected=f"at most {_MAX_DEPTH} levels")
    if isinstance(spec, list) and len(spec) == 1:
        return pa.list_(_stored_type(spec[0], depth + 1))
    name = spec.get("_type") if isinstance(spec, dict) else ""
    if isinstance(spec, dict) and not isinstance(name, str):
        return pa.struct([(child, _stored_type(inner, depth + 1)) for child, inner in spec.items()])
    make = _STORED.get(name)
    if make is None:
        raise DataError("not a feature of datasets", found=repr(spec)[:80])
    try:
        return make(spec, depth)
    except (KeyError, TypeError, UsageError):
        raise DataError("a feature of datasets without a type", found=repr(spec)[:80]) from None


def _stored_value(spec: dict[str, Any], _depth: int) -> pa.DataType:
    size = _FIXED.fullmatch(spec["dtype"])
    return pa.binary(int(size[1])) if size else arrow_type(spec["dtype"])


def _stored_list(spec: dict[str, Any], depth: int) -> pa.DataType:
    inner, length = spec["feature"], spec.get("length", -1)
    if spec["_type"] == "Sequence" and isinstance(inner, dict) and not isinstance(inner.get("_type"), str):
        # For structs: datasets before 4.0 made it a struct of lists.
        lists = {name: {"feature": child, "length": length, "_type": "List"} for name, child in inner.items()}
        return _stored_type(lists, depth + 1)
    kind = _stored_type(inner, depth + 1)
    return pa.list_(kind, length) if type(length) is int and 0 <= length < _MAX_VALUE_BYTES else pa.list_(kind)


def _stored_array(spec: dict[str, Any], _depth: int) -> pa.DataType:
    shape = tuple(spec["shape"])
    if len(shape) != int(spec["_type"][len("Array")]) or {*map(type, shape)} - {int, type(None)}:
        raise TypeError
    return ArrayType(shape, spec["dtype"])


_TEXTS = pa.list_(pa.string())
_STORED: dict[Any, Callable[[dict[str, Any], int], pa.DataType]] = {
    "Value": _stored_value,
    "ClassLabel": lambda _, __: pa.int64(),
    "Json": lambda _, __: pa.json_(),
    **dict.fromkeys(_MEDIA_NAMES, lambda _, __: MEDIA),
    **dict.fromkeys(("List", "Sequence"), _stored_list),
    "LargeList": lambda spec, depth: pa.large_list(_stored_type(spec["feature"], depth + 1)),
    **dict.fromkeys(("Array2D", "Array3D", "Array4D", "Array5D"), _stored_array),
    "Translation": lambda spec, _: pa.struct([(language, pa.string()) for language in sorted(spec["languages"])]),
    "TranslationVariableLanguages": lambda _, __: pa.struct([("language", _TEXTS), ("translation", _TEXTS)]),
}


def _as_declared(kind: pa.DataType, before: Any) -> pa.DataType:
    """Return the storage type of a declared feature, if it differs from the column's only in its form."""
    try:
        stored = _stored_type(before)
    except DataError:
        return kind
    # Nested ones are copied where they become shorter, and may stay as they are.
    return stored if (kind, stored) == (pa.large_binary(), pa.binary()) else _refitted(kind, stored)


def _refitted(kind: pa.DataType, stored: pa.DataType) -> pa.DataType:
    """Return the type in the form of another.

    Texts and lists get its offsets, media its types, lists become its arrays.
    """
    if isinstance(stored, ArrayType):
        return stored if _refitted(kind, stored.storage_type) == stored.storage_type else kind
    if (stored == MEDIA and is_media(kind)) or (kind, stored) == (pa.large_string(), pa.string()):
        return stored
    pairs = list(zip(child_fields(kind), child_fields(stored), strict=False))
    inner = [child.with_type(_refitted(child.type, other.type)) for child, other in pairs]
    if isinstance(kind, _LISTS) and isinstance(stored, _LISTS):
        return with_child_fields(stored, inner)
    same = [child.name for child in child_fields(kind)] == [child.name for child in child_fields(stored)]
    return with_child_fields(kind, inner) if inner and type(kind) is type(stored) and same else kind


def _has_extension(kind: pa.DataType) -> bool:
    """Return whether a type is one of datasets' own, such as that of arrays, or contains one."""
    return isinstance(kind, pa.ExtensionType) or any(_has_extension(child.type) for child in child_fields(kind))


def _renewed(before: Any, spec: dict[str, Any], kind: pa.DataType) -> Any:
    """Return the feature of a column of this type, with those earlier declarations that are true.

    Examples of declarations are a sampling rate and a language. datasets refuses a folder whose types differ from those
    of its features.
    """
    if before is None:
        return spec
    if _is_struct(before) and _is_struct(spec):
        return {name: _renewed(before.get(name), inner, kind.field(name).type) for name, inner in spec.items()}
    if isinstance(before, dict) and before.get("_type") == spec.get("_type"):
        mine = {name: value for name, value in before.items() if name != "length" or value == -1}
        if "feature" in spec:
            spec = {**spec, "feature": _renewed(before.get("feature"), spec["feature"], kind.value_type)}
        return {**mine, **spec}
    try:
        return before if _stored_type(before) == kind else spec
    except DataError:  # of a class that was registered by others
        return before


def huggingface_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in the types of such a schema, columns in its order; unchanged bytes are shared.

    Raises:
        Unrepresentable: a value of 2 GiB or more among media, invalid JSON text, an array of another size than its
            shape requires.
        BadReference: a video without its bytes. All name the column, and the row if the value is not nested.
    """
    columns = []
    for field in schema:
        with errors_at(column=field.name):
            try:
                columns.append(_as_type(batch.column(field.name), field.type))
            except pa.ArrowInvalid as error:
                raise Unrepresentable(f"values that datasets' type does not hold: {error}",
                                      expected=str(field.type)) from None  # fmt: skip
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=schema.metadata))


def _with_kind(field: pa.Field, kind: pa.DataType) -> pa.Field:
    """Return the field in a type of datasets, marked if bytes or text become something else."""
    mark = _mark(field.type.value_type if pa.types.is_dictionary(field.type) else field.type, kind)
    metadata = {**(field.metadata or {}), **({} if mark is None else {_WRAPPED_KEY: mark})}
    if isinstance(kind, ArrayType):  # a file read without datasets already has the type's name
        metadata = {key: value for key, value in metadata.items() if key not in _EXTENSION_KEYS}
    return field.with_type(kind).with_metadata(metadata or None)


def _mark(before: pa.DataType, kind: pa.DataType) -> bytes | None:
    if is_bytes(before):
        return None if is_bytes(kind) else b"bytes"
    if is_text(before) and isinstance(kind, pa.JsonType):
        return b"string" if pa.types.is_string(before) else b"large_string"
    return None


def unwrapped_schema(schema: pa.Schema, *, media: str) -> pa.Schema:
    """Return the schema with lading's conversions undone; with `media="bytes"`, all media columns become bytes.

    Args:
        schema: with features in its fields (`lading.features.from_huggingface`).
        media: `stored` or `bytes`. Raises UsageError for anything else.
    """
    if media not in ("stored", "bytes"):
        raise UsageError("media are given as they are stored, or as bytes", expected="stored or bytes",
                         found=repr(media))  # fmt: skip
    fields = []
    for field in schema:
        asked = media == "bytes" and keeps_media(field.type) and feature_of(field).is_media
        fields.append(_of_bytes(field) if asked else field)
    return pa.schema([_unmarked(field) for field in fields], metadata=schema.metadata)


def _of_bytes(field: pa.Field) -> pa.Field:
    """Return the field of the bytes of media, without stable-datasets' declarations about video structs."""
    if is_media(field.type):
        return field.with_type(pa.large_binary())
    metadata = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_PEER_KEYS)}
    return with_feature(field.with_type(pa.large_binary()).with_metadata(metadata), Video())


def _unmarked(field: pa.Field) -> pa.Field:
    """Return the field with bytes or text where lading converted them, inside lists and structs too."""
    metadata = dict(field.metadata or {})
    mark = metadata.pop(_WRAPPED_KEY, None)
    if mark is not None:
        if not _may_be_wrapped(field.type) or mark not in _MARKS:
            return field.with_metadata(metadata or None)
        for key in _EXTENSION_KEYS:  # without datasets, its types are read as lists with that name
            metadata.pop(key, None)
        return field.with_type(_MARKS[mark]).with_metadata(metadata or None)
    inner = [_unmarked(child) for child in child_fields(field.type)]
    return field.with_type(with_child_fields(field.type, inner)) if inner else field


def _may_be_wrapped(kind: pa.DataType) -> bool:
    """Return whether such a type may be a conversion of bytes or text: media, JSON, or nested lists of numbers."""
    if is_media(kind) or isinstance(kind, pa.JsonType):
        return True
    inner, depth = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind, 0
    if pa.types.is_fixed_size_list(inner):
        return inner.list_size > 0 and inner.value_type in ITEM_TYPES.values()
    while pa.types.is_list(inner):
        inner, depth = inner.value_type, depth + 1
    return 0 < depth <= MAX_DIMENSIONS and inner in ITEM_TYPES.values()


def unwrapped(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in the type that a reader gives: media as their bytes, without file names; arrays and JSON too.

    Other fields of stable-datasets' structs of videos are left out (mode, extension, media type, size and checksum):
    all except the extension follow from the bytes.

    Raises:
        BadReference: bytes that are in an external file; names the first.
        DataError: lists that are not an array.
    """
    if column.type == kind:
        return column
    if not _is_wrapped(column.type, kind):
        return rebuilt(column, kind, unwrapped) if _holds_wrapped(column.type, kind) else cast(column, kind)
    if keeps_media(column.type):
        return _media_bytes(column).cast(kind)
    stored = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    return _array_bytes(stored).cast(kind) if child_fields(stored.type) else stored.cast(kind)


def _is_wrapped(kind: pa.DataType, given: pa.DataType) -> bool:
    """Return whether values of a type other than bytes or text are returned as such."""
    wrapped = isinstance(kind, pa.BaseExtensionType) or bool(child_fields(kind))
    return wrapped and (is_bytes(given) or is_text(given))


def _holds_wrapped(kind: pa.DataType, given: pa.DataType) -> bool:
    """Return whether a list, map or struct holds such values."""
    pairs = zip(child_fields(kind), child_fields(given), strict=False)
    return any(_is_wrapped(one.type, other.type) or _holds_wrapped(one.type, other.type) for one, other in pairs)


def _media_bytes(column: pa.Array) -> pa.Array:
    """Return the bytes of media. Raises BadReference for a path without bytes."""
    there, found = column.is_valid(), column.field("bytes")
    row = _first_path(column)
    if row is not None:
        raise _elsewhere(column, row, _EMBED if is_media(column.type) else _LOAD)
    return pc.if_else(there, found, None) if column.null_count else found


_LOAD = "Read the cache with --option load_assets=true, which fills in the bytes."
_EMBED = (
    "Read the column as it is with --option media=stored; or let datasets put the bytes in: "
    "load_dataset(…).save_to_disk(…)."
)


def _first_path(column: pa.Array) -> int | None:
    """Return the index of the first medium that is a path without bytes."""
    elsewhere = pc.and_(pc.and_(column.field("bytes").is_null(), column.field("path").is_valid()), column.is_valid())
    return pc.index(elsewhere, value=True).as_py() if pc.any(elsewhere).as_py() else None


def _elsewhere(column: pa.Array, row: int, advice: str) -> BadReference:
    return BadReference("the bytes are not here, but in a file of their own", found=column.field("path")[row].as_py(),
                        advice=advice)  # fmt: skip


def _array_bytes(column: pa.Array) -> pa.Array:
    """Return the items of arrays that are nested lists, in C order, little-endian. Raises DataError."""
    there, (values, sizes) = present(column), _listed(column)
    while child_fields(values.type):
        inner, widths = _listed(values)
        width = int(widths[0]) if len(widths) else 0
        if values.null_count or (widths != width).any():
            raise DataError("lists of several lengths, or nulls, are not an array", found=str(column.type))
        values, sizes = inner, sizes * width
    if values.null_count:
        raise DataError("nulls among the items of an array", found=str(column.type))
    numbers = values.to_numpy(zero_copy_only=False)
    numbers = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<"))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]) * numbers.dtype.itemsize
    buffers = [bitmap(there), pa.py_buffer(ends), pa.py_buffer(numbers)]
    return pa.Array.from_buffers(pa.large_binary(), len(column), buffers)


def _listed(column: pa.Array) -> tuple[pa.Array, Any]:
    """Return the items of lists, concatenated, and the length of each list; nulls have length 0."""
    if pa.types.is_fixed_size_list(column.type):
        sizes = np.full(len(column), column.type.list_size, np.int64)
    else:
        sizes = np.diff(column.offsets.to_numpy().astype(np.int64))
    # Not `listed_items`, which makes an 8-byte number for each item; an item of an array may have one byte.
    return column.flatten(), np.where(present(column), sizes, 0)


def _fitted(kind: pa.DataType, feature: Feature) -> Form:
    """Return the type in which datasets stores such a column, and its feature."""
    types = pa.types
    found: Form
    own = kind.form if isinstance(kind, ArrayType) else feature.huggingface(kind)
    if own is not None:
        found = own
    elif isinstance(kind, pa.JsonType):
        found = kind, {"_type": "Json"}
    elif types.is_dictionary(kind):
        found = _fitted(kind.value_type, feature)
    elif types.is_struct(kind):
        found = _fitted_struct(kind, feature)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        found = _fitted_list(kind, feature)
    else:
        name = _NAMES.get(kind) or (str(kind) if any(test(kind) for test in _AS_ARROW_SAYS) else None)
        if name is None:
            raise Unrepresentable("datasets cannot hold this type", found=str(kind))
        found = kind, {"dtype": name, "_type": "Value"}
    return found


def _fitted_struct(kind: pa.StructType, feature: Feature) -> Form:
    inner = dict(feature.children or ())
    fitted = {child.name: _fitted(child.type, inner.get(child.name) or feature_of(child)) for child in kind}
    fields = [_with_kind(child, fitted[child.name][0]) for child in kind]
    return pa.struct(fields), {name: spec for name, (_, spec) in fitted.items()}


def _fitted_list(kind: pa.DataType, feature: Feature) -> Form:
    item = feature.item or feature_of(kind.value_field)
    inside, spec = _fitted(kind.value_type, item)
    value = _with_kind(kind.value_field, inside)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size), {"feature": spec, "length": kind.list_size, "_type": "List"}
    if pa.types.is_large_list(kind):
        return pa.large_list(value), {"feature": spec, "_type": "LargeList"}
    return pa.list_(value), {"feature": spec, "_type": "List"}


def may_hold(kind: pa.DataType, spec: Any) -> bool:
    """Return whether a column of this type may have a feature as `dataset_info.json` declares it.

    Also True for features unknown to lading, and for those that datasets stored in several ways over the years.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return True
    if pa.types.is_dictionary(kind):
        return may_hold(kind.value_type, spec)
    if isinstance(spec, list) and len(spec) == 1:
        return _may_be_list(kind, {"feature": spec[0], "_type": "List"})
    if _is_struct(spec):
        children = {child.name: child.type for child in kind} if pa.types.is_struct(kind) else {}
        return children.keys() == spec.keys() and all(may_hold(children[name], inside) for name, inside in spec.items())
    test = _MAY_BE.get(spec.get("_type", "")) if isinstance(spec, dict) else None
    return test is None or test(kind, spec)


def _is_struct(spec: Any) -> bool:
    """Return whether a feature is a struct of others, which may have a field called `_type`."""
    return isinstance(spec, dict) and not isinstance(spec.get("_type"), str)


def _may_be_value(kind: pa.DataType, spec: Mapping[str, Any]) -> bool:
    known = _NAMES.get(kind) or (str(kind) if any(test(kind) for test in _AS_ARROW_SAYS) else None)
    dtype = str(spec.get("dtype"))
    if known is None:
        return not pa.types.is_nested(kind)
    return known.replace(" ", "") == _OTHER_NAMES.get(dtype, dtype).replace(" ", "")


def _may_be_label(kind: pa.DataType, _: Mapping[str, Any]) -> bool:
    return bool(kind == pa.int64())


def _may_be_media(kind: pa.DataType, _: Mapping[str, Any]) -> bool:
    return is_media(kind) or is_bytes(kind) or bool(pa.types.is_string(kind))


def _may_be_list(kind: pa.DataType, spec: Mapping[str, Any]) -> bool:
    inner, length = spec.get("feature"), spec.get("length", -1)
    if spec["_type"] == "Sequence" and _is_struct(inner) and pa.types.is_struct(kind):  # a struct of lists before
        return may_hold(kind, {name: {**spec, "feature": inside} for name, inside in dict(inner or ()).items()})
    if spec["_type"] == "LargeList":
        right = pa.types.is_large_list(kind)
    elif length == -1:
        right = pa.types.is_list(kind)
    else:
        right = pa.types.is_fixed_size_list(kind) and kind.list_size == length
    return right and may_hold(kind.value_type, inner)


_MAY_BE: Mapping[str, Callable[[pa.DataType, Mapping[str, Any]], bool]] = {
    "Value": _may_be_value,
    "ClassLabel": _may_be_label,
    "Image": _may_be_media,
    "Video": _may_be_media,
    **dict.fromkeys(("List", "LargeList", "Sequence"), _may_be_list),
}
"""Functions that test whether a type may have a feature, by the name of the feature's class."""


def media_advice(name: str, kind: pa.DataType) -> str | None:
    """Return the advice for a column of media that a format cannot hold: media with paths can be read as bytes."""
    if is_media(kind):
        made = f"lambda row: {{{name!r}: row[{name!r}]['bytes']}}, columns={{{name!r}: 'binary'}}"
        return f"Write the bytes of media alone, in Python: ds.map({made})."
    if pa.types.is_struct(kind) and {"bytes", "path"} <= {child.name for child in kind}:
        return "Read the bytes of media alone with --option media=bytes."
    return None


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values to another type, at any depth: bytes to media and arrays, text to JSON; others are cast."""
    if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(kind):
        column = decoded(column)
    if column.type == kind or (is_bytes(column.type) and is_bytes(kind)):
        found = column
    elif kind == MEDIA:
        found = _as_media(column)
    elif isinstance(kind, pa.JsonType):
        found = pa.ExtensionArray.from_storage(kind, text_of_bytes(column, pa.string()))
    elif is_bytes(column.type):
        found = _as_arrays(column, kind)
    elif isinstance(kind, ArrayType):
        found = pa.ExtensionArray.from_storage(kind, _as_type(column, kind.storage_type))
    else:
        found = rebuilt(column, kind, _inside)
    return found


def _inside(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """As `_as_type`, for nested values, whose indices are not row numbers."""
    try:
        return _as_type(column, kind)
    except LadingError as error:
        error.row = None
        raise


def _as_media(column: pa.Array) -> pa.Array:
    bare = is_bytes(column.type)
    row = None if bare or is_media(column.type) else _first_path(column)
    if row is not None:
        raise _elsewhere(column, row, _LOAD).at(row=row)
    path = pa.nulls(len(column), pa.string()) if bare else column.field("path").cast(pa.string())
    parts = [_small(column if bare else column.field("bytes")), path]
    return pa.StructArray.from_arrays(parts, fields=list(MEDIA), mask=column.is_null())


def _as_arrays(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return bytes of arrays as nested lists."""
    shape: tuple[int | None, ...]
    if isinstance(kind, ArrayType):
        item, shape = ITEM_TYPES[kind.dtype], kind.shape
    else:
        item, shape = kind.value_type, (kind.list_size if pa.types.is_fixed_size_list(kind) else None,)
    dtype = numpy_type(item).newbyteorder("<")
    block, sizes, there = math.prod(extent or 1 for extent in shape[1:]), byte_lengths(column), present(column)
    if shape[0] is None:
        wrong = sizes % (block * dtype.itemsize) != 0
    else:
        wrong = there & (sizes != shape[0] * block * dtype.itemsize)
    if wrong.any():
        row = int(wrong.argmax())
        raise Unrepresentable("an array of another size than its shape says", row=row,
                              expected=f"{list(shape)} of {dtype}", found=f"{int(sizes[row])} bytes")  # fmt: skip
    if int(sizes.sum()) // dtype.itemsize >= MAX_ITEMS:
        raise Unrepresentable("more items of arrays at once than lists of datasets hold", expected=f"< {MAX_ITEMS}",
                              advice="Write fewer rows at once.")  # fmt: skip
    numbers = np.frombuffer(b"".join(view for view in slices(column) if view is not None), dtype)
    if pa.types.is_fixed_size_list(kind):
        filled = np.zeros((len(column), kind.list_size), dtype)
        filled[there] = numbers.reshape(-1, kind.list_size)
        return pa.FixedSizeListArray.from_arrays(pa.array(filled.ravel(), item), type=kind, mask=column.is_null())
    values = pa.array(numbers, item)
    for extent in reversed(shape[1:]):
        assert extent is not None, "only the first extent varies"
        values = pa.ListArray.from_arrays(pa.array(np.arange(0, len(values) + 1, extent), pa.int32()), values)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes // (block * dtype.itemsize))])
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, mask=column.is_null())
    return pa.ExtensionArray.from_storage(kind, lists) if isinstance(kind, ArrayType) else lists.cast(kind)


def _small(column: pa.Array) -> pa.Array:
    """Return bytes with 32-bit offsets, as datasets stores media."""
    sizes = byte_lengths(column)
    if int(sizes.max(initial=0)) >= _MAX_VALUE_BYTES:
        row = int(sizes.argmax())
        raise Unrepresentable("a value too large for media of datasets", row=row, expected="less than 2 GiB",
                              found=int(sizes[row]))  # fmt: skip
    return column.cast(pa.binary())
