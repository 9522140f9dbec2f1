"""Columns as Hugging Face's datasets keeps them, and the features it is told of them.

Media are `struct<bytes: binary, path: string>`, labels int64; what a column means stands as JSON in the metadata of the
Arrow schema, under `huggingface`: `{"info": {"features": {name: feature}}}`. Field metadata stay, so that lading finds
its own features again; a column of bytes that became such a struct is marked, and read as bytes.

Source: datasets 5.2.0 features/features.py (`Features.arrow_schema`, `generate_from_arrow_type`), image.py, audio.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lading import jsontext
from lading.arrow_values import arrow_type
from lading.casts import cast, rebuilt
from lading.errors import BadReference, DataError, Unrepresentable, UsageError, errors_at
from lading.features import Audio, ClassLabel, Feature, Image, Sequence, Struct, Video, feature_of
from lading.views import byte_lengths, child_fields, is_bytes, with_child_fields

__all__ = [
    "HUGGINGFACE_KEY",
    "huggingface_batch",
    "huggingface_features",
    "huggingface_schema",
    "is_media",
    "may_hold",
    "schema_of_features",
    "unwrapped",
    "unwrapped_schema",
]

HUGGINGFACE_KEY = b"huggingface"
"""Key of a schema's metadata."""

_WRAPPED_KEY = b"lading.wrapped"
_MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_MEDIA_FEATURES = (Image, Audio, Video)
_MAX_VALUE_BYTES = 1 << 31
_MAX_DEPTH = 100
_MEDIA_NAMES = ("Image", "Audio", "Video", "Pdf", "Nifti", "Mesh", "BioSequence", "BioStructure")
"""What datasets keeps as bytes and path."""
_FIXED = re.compile(r"fixed_size_binary\[(\d{1,9})\]")
_NAMES = {
    pa.null(): "null", pa.bool_(): "bool", pa.float16(): "float16", pa.float32(): "float32", pa.float64(): "float64",
    pa.date32(): "date32", pa.date64(): "date64",
}  # fmt: skip
_OTHER_NAMES = {
    "float": "float32", "double": "float64", "halffloat": "float16", "utf8": "string", "large_utf8": "large_string",
    "bool_": "bool",
}  # fmt: skip
"""Names of types that datasets takes, too."""

_AS_ARROW_SAYS = (
    pa.types.is_integer, pa.types.is_time, pa.types.is_timestamp, pa.types.is_duration, pa.types.is_binary,
    pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string, pa.types.is_fixed_size_binary,
    pa.types.is_decimal128, pa.types.is_decimal256,
)  # fmt: skip
"""Types that datasets calls by the name that Arrow has for them."""


def huggingface_features(schema: pa.Schema) -> dict[str, Any]:
    """What a schema's metadata tell of features, by column; nothing if they tell nothing. Raises DataError."""
    text = (schema.metadata or {}).get(HUGGINGFACE_KEY)
    told = jsontext.loads(text) if text is not None else None
    for step in ("info", "features"):
        told = told.get(step) if isinstance(told, dict) else None
    return told if isinstance(told, dict) else {}


def huggingface_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in datasets' types, with its features in the metadata.

    What the metadata told of a column before stays where its type stays.

    Raises:
        Unrepresentable: a column of a type that datasets does not have; names it.
    """
    before = huggingface_features(schema)
    fields, features = [], {}
    for field in schema:
        if field.name in before and _has_extension(field.type):
            kind, told = field.type, before[field.name]
        else:
            with errors_at(column=field.name):
                kind, told = _fitted(field.type, feature_of(field))
        fields.append(_with_kind(field, kind))
        features[field.name] = _renewed(before.get(field.name), told) if kind == field.type else told
    text = orjson.dumps({"info": {"features": features}})
    return pa.schema(fields, metadata={**(schema.metadata or {}), HUGGINGFACE_KEY: text})


def schema_of_features(features: dict[str, Any]) -> pa.Schema:
    """The schema in which datasets keeps columns of these features (`Features.arrow_schema`), which its metadata tell.

    Arrays are lists, as pyarrow has them without datasets.

    Raises:
        DataError: a feature that is none; names the column.
    """
    fields = []
    for name, told in features.items():
        with errors_at(column=name):
            fields.append(pa.field(name, _stored_type(told)))
    return pa.schema(fields, metadata={HUGGINGFACE_KEY: orjson.dumps({"info": {"features": features}})})


def _stored_type(told: Any, depth: int = 0) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise DataError("features inside each other, too deep", expected=f"at most {_MAX_DEPTH} levels")
    if isinstance(told, list) and len(told) == 1:
        return pa.list_(_stored_type(told[0], depth + 1))
    name = told.get("_type") if isinstance(told, dict) else ""
    if isinstance(told, dict) and not isinstance(name, str):
        return pa.struct([(child, _stored_type(inner, depth + 1)) for child, inner in told.items()])
    make = _STORED.get(name)
    if make is None:
        raise DataError("not a feature of datasets", found=repr(told)[:80])
    try:
        return make(told, depth)
    except (KeyError, TypeError, UsageError):
        raise DataError("a feature of datasets that does not tell its type", found=repr(told)[:80]) from None


def _stored_value(told: dict[str, Any], _depth: int) -> pa.DataType:
    size = _FIXED.fullmatch(told["dtype"])
    return pa.binary(int(size[1])) if size else arrow_type(told["dtype"])


def _stored_list(told: dict[str, Any], depth: int) -> pa.DataType:
    inner, length = told["feature"], told.get("length", -1)
    if told["_type"] == "Sequence" and isinstance(inner, dict) and not isinstance(inner.get("_type"), str):
        # Of structs: datasets before 4.0 made it a struct of lists.
        lists = {name: {"feature": child, "length": length, "_type": "List"} for name, child in inner.items()}
        return _stored_type(lists, depth + 1)
    kind = _stored_type(inner, depth + 1)
    return pa.list_(kind, length) if type(length) is int and 0 <= length < _MAX_VALUE_BYTES else pa.list_(kind)


def _stored_array(told: dict[str, Any], _depth: int) -> pa.DataType:
    kind = arrow_type(told["dtype"])
    for _ in range(int(told["_type"][len("Array")])):
        kind = pa.list_(kind)
    return kind


_TEXTS = pa.list_(pa.string())
_STORED: dict[Any, Callable[[dict[str, Any], int], pa.DataType]] = {
    "Value": _stored_value,
    "ClassLabel": lambda _, __: pa.int64(),
    "Json": lambda _, __: pa.json_(),
    **dict.fromkeys(_MEDIA_NAMES, lambda _, __: _MEDIA),
    **dict.fromkeys(("List", "Sequence"), _stored_list),
    "LargeList": lambda told, depth: pa.large_list(_stored_type(told["feature"], depth + 1)),
    **dict.fromkeys(("Array2D", "Array3D", "Array4D", "Array5D"), _stored_array),
    "Translation": lambda told, _: pa.struct([(language, pa.string()) for language in told["languages"]]),
    "TranslationVariableLanguages": lambda _, __: pa.struct([("language", _TEXTS), ("translation", _TEXTS)]),
}


def _has_extension(kind: pa.DataType) -> bool:
    """Whether it is a type of datasets' own, such as that of arrays, or holds one."""
    return isinstance(kind, pa.ExtensionType) or any(_has_extension(child.type) for child in child_fields(kind))


def _renewed(before: Any, now: Any) -> Any:
    """What was told of a column before, its values in the types that they have now: bytes and times may have others.

    datasets refuses a folder whose types are not those that its features say.
    """
    if not isinstance(before, dict) or not isinstance(now, dict) or ("_type" in before) != ("_type" in now):
        return now if before is None else before
    if before.get("_type") == now.get("_type") == "Value":
        return {**before, "dtype": now["dtype"]}
    shared = before.keys() & now.keys() - {"_type"}
    return {**before, **{name: _renewed(before[name], now[name]) for name in shared}}


def huggingface_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the types of such a schema, columns in its order; bytes that are no media stay as they come.

    Raises:
        Unrepresentable: a value of 2 GiB or more among media; names column and row.
    """
    columns = []
    for field in schema:
        with errors_at(column=field.name):
            columns.append(_as_type(batch.column(field.name), field.type))
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=schema.metadata))


def _with_kind(field: pa.Field, kind: pa.DataType) -> pa.Field:
    """The field in a type of datasets, marked if that puts bytes in a struct."""
    if not is_bytes(field.type) or kind != _MEDIA:
        return field.with_type(kind)
    return field.with_type(kind).with_metadata({**(field.metadata or {}), _WRAPPED_KEY: b"bytes"})


def unwrapped_schema(schema: pa.Schema, *, media: str) -> pa.Schema:
    """The schema with media as bytes: those that lading wrapped, and with `media="bytes"` all columns of media.

    Args:
        schema: with features in its fields (`lading.features.from_huggingface`).
        media: `stored` or `bytes`. Raises UsageError for anything else.
    """
    if media not in ("stored", "bytes"):
        raise UsageError("media are given as they are stored, or as bytes", expected="stored or bytes",
                         found=repr(media))  # fmt: skip
    fields = []
    for field in schema:
        asked = media == "bytes" and is_media(field.type) and isinstance(feature_of(field), _MEDIA_FEATURES)
        fields.append(field.with_type(pa.large_binary()) if asked else field)
    return pa.schema([_unmarked(field) for field in fields], metadata=schema.metadata)


def _unmarked(field: pa.Field) -> pa.Field:
    """The field with bytes where lading put them in a struct, inside lists and structs too."""
    metadata = dict(field.metadata or {})
    if metadata.pop(_WRAPPED_KEY, None) is not None:
        kind = pa.large_binary() if is_media(field.type) else field.type
        return field.with_type(kind).with_metadata(metadata or None)
    inner = [_unmarked(child) for child in child_fields(field.type)]
    return field.with_type(with_child_fields(field.type, inner)) if inner else field


def unwrapped(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values in the type that a reader gives: wrapped media as their bytes, without the names of files; else cast.

    Raises:
        BadReference: bytes that are in a file of their own; names the first.
    """
    if column.type == kind:
        return column
    if not is_bytes(kind) or not is_media(column.type):
        return rebuilt(column, kind, unwrapped) if _holds_media(column.type) else cast(column, kind)
    there, found, path = column.is_valid(), column.field("bytes"), column.field("path")
    if column.null_count:
        found = pc.if_else(there, found, None)
    elsewhere = pc.and_(pc.and_(found.is_null(), path.is_valid()), there)
    if pc.any(elsewhere).as_py():
        first = path[pc.index(elsewhere, value=True).as_py()].as_py()
        raise BadReference("the bytes are not here, but in a file of their own", found=first,
                           advice="Read the column with media=stored.")  # fmt: skip
    return found.cast(kind)


def _fitted(kind: pa.DataType, feature: Feature) -> tuple[pa.DataType, dict[str, Any]]:
    """The type in which datasets keeps such a column, and its feature."""
    types = pa.types
    found: tuple[pa.DataType, dict[str, Any]]
    if isinstance(feature, _MEDIA_FEATURES) and (is_bytes(kind) or is_media(kind)):
        found = _MEDIA, {"_type": type(feature).__name__}
    elif isinstance(feature, ClassLabel) and types.is_integer(kind) and not types.is_uint64(kind):
        found = pa.int64(), {"names": list(feature.names), "_type": "ClassLabel"}
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
            raise Unrepresentable("datasets has no such type", found=str(kind),
                                  advice="Cast the column, or leave it out.")  # fmt: skip
        found = kind, {"dtype": name, "_type": "Value"}
    return found


def _fitted_struct(kind: pa.StructType, feature: Feature) -> tuple[pa.DataType, dict[str, Any]]:
    inner = dict(feature.fields) if isinstance(feature, Struct) else {}
    fitted = {child.name: _fitted(child.type, inner.get(child.name) or feature_of(child)) for child in kind}
    fields = [_with_kind(child, fitted[child.name][0]) for child in kind]
    return pa.struct(fields), {name: told for name, (_, told) in fitted.items()}


def _fitted_list(kind: pa.DataType, feature: Feature) -> tuple[pa.DataType, dict[str, Any]]:
    item = feature.feature if isinstance(feature, Sequence) else feature_of(kind.value_field)
    inside, told = _fitted(kind.value_type, item)
    value = _with_kind(kind.value_field, inside)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size), {"feature": told, "length": kind.list_size, "_type": "List"}
    if pa.types.is_large_list(kind):
        return pa.large_list(value), {"feature": told, "_type": "LargeList"}
    return pa.list_(value), {"feature": told, "_type": "List"}


def may_hold(kind: pa.DataType, told: Any) -> bool:
    """Whether a column of this type may be of a feature as `dataset_info.json` tells it.

    Yes, too, of features that lading does not know, and of those that datasets stored in several ways over the years.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return True
    if pa.types.is_dictionary(kind):
        return may_hold(kind.value_type, told)
    if isinstance(told, list) and len(told) == 1:
        return _may_be_list(kind, {"feature": told[0], "_type": "List"})
    if _is_struct(told):
        children = {child.name: child.type for child in kind} if pa.types.is_struct(kind) else {}
        return children.keys() == told.keys() and all(may_hold(children[name], inside) for name, inside in told.items())
    test = _MAY_BE.get(told.get("_type", "")) if isinstance(told, dict) else None
    return test is None or test(kind, told)


def _is_struct(told: Any) -> bool:
    """Whether a feature is a struct of others, which may have a field called `_type`."""
    return isinstance(told, dict) and not isinstance(told.get("_type"), str)


def _may_be_value(kind: pa.DataType, told: Mapping[str, Any]) -> bool:
    known = _NAMES.get(kind) or (str(kind) if any(test(kind) for test in _AS_ARROW_SAYS) else None)
    dtype = str(told.get("dtype"))
    if known is None:
        return not pa.types.is_nested(kind)
    return known.replace(" ", "") == _OTHER_NAMES.get(dtype, dtype).replace(" ", "")


def _may_be_label(kind: pa.DataType, _: Mapping[str, Any]) -> bool:
    return bool(kind == pa.int64())


def _may_be_media(kind: pa.DataType, _: Mapping[str, Any]) -> bool:
    return is_media(kind) or is_bytes(kind) or bool(pa.types.is_string(kind))


def _may_be_list(kind: pa.DataType, told: Mapping[str, Any]) -> bool:
    inner, length = told.get("feature"), told.get("length", -1)
    if told["_type"] == "Sequence" and _is_struct(inner) and pa.types.is_struct(kind):  # was kept as a struct of lists
        return may_hold(kind, {name: {**told, "feature": inside} for name, inside in dict(inner or ()).items()})
    if told["_type"] == "LargeList":
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
"""Whether a type may be that of a feature, by the name of its class."""


def is_media(kind: pa.DataType) -> bool:
    """Whether it is a struct of `bytes` and `path`."""
    return bool(pa.types.is_struct(kind) and {child.name for child in kind} == {"bytes", "path"})


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values in another type: bytes as media, and whatever lies around them; else cast."""
    if column.type == kind or (is_bytes(column.type) and is_bytes(kind)):
        return column
    if kind == _MEDIA:
        bare = is_bytes(column.type)
        path = pa.nulls(len(column), pa.string()) if bare else column.field("path").cast(pa.string())
        parts = [_small(column if bare else column.field("bytes")), path]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    return rebuilt(column, kind, _as_type)


def _holds_media(kind: pa.DataType) -> bool:
    """Whether a list, map or struct holds media."""
    return any(is_media(child.type) or _holds_media(child.type) for child in child_fields(kind))


def _small(column: pa.Array) -> pa.Array:
    """Bytes with 32-bit offsets, as datasets has media."""
    sizes = byte_lengths(column)
    if int(sizes.max(initial=0)) >= _MAX_VALUE_BYTES:
        row = int(sizes.argmax())
        raise Unrepresentable("a value too large for media of datasets", row=row, expected="less than 2 GiB",
                              found=int(sizes[row]))  # fmt: skip
    return column.cast(pa.binary())
