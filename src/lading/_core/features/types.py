"""Features: the logical type of a column, over the Arrow type in which it is stored.

A feature is a small frozen value, kept as JSON in the metadata of an Arrow field under `lading.feature`. A field
without it has the feature that its Arrow type suggests (string → Text, binary or reference → Bytes, list → Sequence,
others → Value). Bytes stay as they are stored. `decode` turns one stored value into a Python value, as `ds[i]` does;
`encode` turns a Python value into what a column of that feature stores.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.references import is_ref
from lading._core.arrow.types import arrow_type, exact_value
from lading._core.arrow.views import LIST_TYPES
from lading._core.features.encode import (
    array_bytes,
    as_bytes,
    has_shape,
    media_bytes,
    npy_bytes,
    plain_item,
    video_cell,
    video_path,
)
from lading._core.features.images import image_bytes
from lading._core.features.mds_values import decode_mds, encode_mds
from lading.errors import DataError, UnknownLabel, Unrepresentable, UsageError, WrongFeature, WrongType, errors_at

__all__ = [
    "FEATURE_KEY",
    "NUMBER_TYPES",
    "Array",
    "Array3D",
    "Audio",
    "Bytes",
    "ClassLabel",
    "Encoded",
    "Feature",
    "Image",
    "Json",
    "Place",
    "Sequence",
    "Struct",
    "Text",
    "Value",
    "Video",
    "decode",
    "encode",
    "feature_from",
    "feature_of",
    "fingerprint",
    "from_huggingface",
    "keeps_files",
    "kind_of_extension",
    "listed",
    "npy_layout",
    "python_types",
    "refuse_untold",
    "tag_by_extension",
    "with_feature",
]

FEATURE_KEY = b"lading.feature"
"""Key of a field's metadata: the feature as JSON."""

NUMBER_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""numpy's names of the number types of arrays, in every format and library that has arrays of one type."""

_WORD = re.compile(r"\w*")
_UNALIASED = ("month_interval", "day_time_interval")
"""Types that pyarrow prints and does not name."""

_NUMBERS = {pa.from_numpy_dtype(np.dtype(name)): name for name in NUMBER_TYPES}


class _Stored:
    __slots__ = ()

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature.

        Example:
            Sequence(Value("int32")).to_arrow_type()  # list<item: int32>

        Raises:
            WrongFeature: values of the feature can only be read.

        Source: stable-datasets b20399a (schema.py).
        """
        match self:
            case Video("text") | Json() | Text():
                return pa.string()
            case Image() | Audio() | Video() | Array() | Bytes():
                return pa.large_binary()
            case ClassLabel():
                return pa.int64()
            case Value(dtype):
                return arrow_type(dtype)
            case Sequence(inner):
                return pa.list_(inner.to_arrow_type())
            case Struct(fields):
                return pa.struct([(name, inner.to_arrow_type()) for name, inner in fields])
        raise WrongFeature("columns of this feature can only be read", found=str(self))


@dataclass(frozen=True, slots=True)
class Bytes(_Stored):
    """Bytes without further meaning."""


@dataclass(frozen=True, slots=True)
class Text(_Stored):
    """A string, or its UTF-8 bytes."""


@dataclass(frozen=True, slots=True)
class Json(_Stored):
    """A JSON text in UTF-8. Two spellings of one value are equal."""


@dataclass(frozen=True, slots=True)
class Image(_Stored):
    """An encoded image: the bytes of a file, or Hugging Face's `struct<bytes, path>`.

    Attributes:
        encode_format: format into which `encode` turns arrays and changed images, by Pillow's name. By default that of
            the field's ending (`thumb.jpg`), else that of the file which an image came from, else PNG.
    """

    encode_format: str | None = None


@dataclass(frozen=True, slots=True)
class Audio(_Stored):
    """Encoded audio, stored as an image is."""


@dataclass(frozen=True, slots=True)
class Video(_Stored):
    """An encoded video, stored as an image is, or in a struct of `_core.features.encode.VIDEO_FIELDS`.

    Attributes:
        storage: where `encode` keeps it: `bytes` in the table; `path` for a file next to the table; or `text` for the
            path alone, as text: the file stays where it is.
    """

    storage: str = "bytes"


@dataclass(frozen=True, slots=True)
class Array(_Stored):
    """A dense array.

    Attributes:
        dtype: numpy's name (`f4` and `np.float32` become `float32`); None if each value is a `.npy` file with its own.
        shape: extent of each dimension, None for one that varies; None if each value has its own shape. With dtype and
            shape, the bytes are the values alone: C order, little-endian.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        if self.shape is not None:
            shape = tuple(extent if extent is None else operator.index(extent) for extent in self.shape)
            object.__setattr__(self, "shape", shape)


def _dtype_name(dtype: Any) -> str:
    """Return numpy's name of a number type; an unknown text unchanged, for the later check of features."""
    if not isinstance(dtype, str):  # numpy's own, such as np.float32
        return str(np.dtype(dtype).name)
    kind = _number_type(dtype)
    return dtype if kind is None else str(kind.name)


def _number_type(name: str) -> np.dtype[Any] | None:
    """Return the number type that a text names; None for any other text: numpy would parse it as Python."""
    try:
        kind = np.dtype(name) if _DTYPE_NAME.fullmatch(name) else None
    except (TypeError, ValueError):
        return None
    return kind if kind is not None and kind.kind in _NUMBER_KINDS else None


class _ThreeDimensions(type):
    def __instancecheck__(cls, feature: object) -> bool:
        return isinstance(feature, Array) and len(feature.shape or ()) == 3  # noqa: PLR2004 - as the name says


class Array3D(metaclass=_ThreeDimensions):
    """A name of `Array` with three extents, for users of stable-datasets.

    Example:
        Array3D((2, 3, 4), "float32")  # Array("float32", (2, 3, 4))

    Raises:
        UsageError: the shape has another number of extents.
    """

    def __new__(cls, shape: Iterable[int], dtype: str = "uint8") -> Array:  # type: ignore[misc] # a name of another class
        """Return the `Array`."""
        feature = Array(dtype, tuple(shape))
        if not isinstance(feature, cls):
            raise UsageError("not a shape of three dimensions", expected="three extents", found=str(feature.shape))
        return feature


@dataclass(frozen=True, slots=True, init=False)
class ClassLabel(_Stored):
    """A whole number that is the index of a name, from 0. Other numbers are kept.

    Example:
        ClassLabel(("cat", "dog")).str2int("dog")  # 1

    Args:
        names: the names.
        num_classes: number of classes, instead of names: they are named "0", "1", ….

    Attributes:
        numbers: number of each name.

    Raises:
        UsageError: neither names nor a number.
    """

    names: tuple[str, ...]
    numbers: Mapping[str, int] = attribute(init=False, repr=False, compare=False, hash=False)

    def __init__(self, names: Iterable[str] | None = None, num_classes: int | None = None) -> None:
        if names is None and num_classes is None:
            raise UsageError("a ClassLabel needs classes", expected="names or num_classes")
        names = tuple(map(str, range(num_classes or 0)) if names is None else names)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "numbers", {name: at for at, name in reversed([*enumerate(names)])})

    @property
    def num_classes(self) -> int:
        """Return the number of names."""
        return len(self.names)

    def str2int(self, name: str) -> int:
        """Return the number of a name. Raises UnknownLabel."""
        try:
            return self.numbers[name]
        except (KeyError, TypeError):
            raise UnknownLabel("not a label of this feature", expected=self._listed(), found=repr(name)) from None

    def int2str(self, number: int) -> str:
        """Return the name of a number. Raises UnknownLabel."""
        at = operator.index(number)
        if not 0 <= at < len(self.names):
            raise UnknownLabel("not a number of a label", expected=f"0 to {len(self.names) - 1}", found=at)
        return self.names[at]

    def _listed(self) -> str:
        return f"one of {', '.join(map(str, self.names[:_MOST_NAMES]))}{', …' if len(self.names) > _MOST_NAMES else ''}"


@dataclass(frozen=True, slots=True)
class Value(_Stored):
    """A plain value of an Arrow type, by Arrow's name without storage variants. Bytes hold it as decimal text.

    Raises:
        UsageError: Arrow has no type of this name.
        WrongFeature: the name is not a text.
    """

    dtype: str

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str):
            raise WrongFeature("not the name of a type", expected="a name of Arrow's, such as int64",
                               found=repr(self.dtype))  # fmt: skip
        if _WORD.fullmatch(self.dtype) and self.dtype not in _UNALIASED:  # others, as of structs, are Arrow's text
            arrow_type(self.dtype)


@dataclass(frozen=True, slots=True)
class Encoded(_Stored):
    """A value in an encoding of MosaicML's MDS (`_core.features.mds_values`).

    Attributes:
        encoding: MDS's name of the encoding: `ndarray`, `pil`, `list[jpeg]`, `str_decimal`, `pkl` …
    """

    encoding: str


@dataclass(frozen=True, slots=True)
class Place(_Stored):
    """Position of bytes in the file that was read: kept, but not content, so it does not count in a digest."""


@dataclass(frozen=True, slots=True)
class Sequence(_Stored):
    """A list of one feature."""

    feature: Feature


@dataclass(frozen=True, slots=True)
class Struct(_Stored):
    """A struct with fields that have features.

    Attributes:
        fields: name and feature of each field.
    """

    fields: tuple[tuple[str, Feature], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple((name, feature) for name, feature in self.fields))


Feature: TypeAlias = (
    Bytes | Text | Json | Image | Audio | Video | Array | ClassLabel | Encoded | Value | Place | Sequence | Struct
)
"""The logical type of a column."""

_PLAIN: dict[str, Feature] = {
    "bytes": Bytes(),
    "text": Text(),
    "json": Json(),
    "image": Image(),
    "audio": Audio(),
    "video": Video(),
    "place": Place(),
}

_INTEGER = Value("int64")
_EXTENSIONS: dict[str, Feature] = {
    **dict.fromkeys(("jpg", "jpeg", "png", "gif", "webp", "bmp", "tif", "tiff", "avif", "heic", "heif"), Image()),
    **dict.fromkeys(("ppm", "pgm", "pbm", "pnm", "jp2", "jxl", "img", "image"), Image()),
    **dict.fromkeys(("wav", "mp3", "flac", "ogg", "oga", "opus", "m4a", "aac"), Audio()),
    **dict.fromkeys(("mp4", "m4v", "mkv", "webm", "mov", "avi", "mpg", "mpeg"), Video()),
    **dict.fromkeys(("txt", "text", "transcript", "html", "htm"), Text()),
    **dict.fromkeys(("json", "jsn"), Json()),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), _INTEGER),
    "npy": Array(),
}


def feature_of(field: pa.Field) -> Feature:
    """Return the feature in a field's metadata, else the one that its Arrow type suggests.

    Example:
        feature_of(ds.schema.field("jpg"))  # Image()

    Raises:
        DataError: this version does not know the feature.
    """
    spec = (field.metadata or {}).get(FEATURE_KEY)
    if spec is None:
        return _natural(field.type)
    with errors_at(column=field.name):
        try:
            return feature_from(orjson.loads(spec))
        except orjson.JSONDecodeError:
            raise _unknown(spec.decode("utf-8", "replace")) from None


def feature_from(spec: Any) -> Feature:
    """Return the feature of parsed JSON, as `lading.feature` holds it.

    Raises:
        DataError: this version does not know the feature, or no value can have it.
    """
    try:
        return _from_json(spec)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _unknown(repr(spec)) from None


def _unknown(spec: str) -> DataError:
    return DataError(
        "a feature that this version of lading does not know",
        expected=", ".join([*_PLAIN, "array", "class_label", "encoded", "value", "sequence", "struct"]),
        found=spec[:_SHOWN],
    )


def with_feature(field: pa.Field, feature: Feature) -> pa.Field:
    """Return the field with this feature in its metadata; other metadata stay.

    Example:
        pa.schema([with_feature(pa.field("photo", pa.large_binary()), Image())])
    """
    return field.with_metadata({**(field.metadata or {}), FEATURE_KEY: _to_text(feature)})


def tag_by_extension(name: str) -> dict[bytes, bytes]:
    """Return metadata for a WebDataset field (`"seg.png"`, `"json"`) by its last extension; empty if unknown.

    Source: webdataset 1.0.2 autodecode.py for text, numbers, JSON and arrays. Pickles, tensors and the like stay bytes.
    """
    feature = _EXTENSIONS.get(name.rpartition(".")[2].lower())
    return {} if feature is None else {FEATURE_KEY: _to_text(feature)}


def kind_of_extension(name: str) -> type | None:
    """Return the class of the feature that the last extension of a name stands for; None if unknown.

    Example:
        kind_of_extension("cat/1.jpg")  # Image
    """
    feature = _EXTENSIONS.get(name.rpartition(".")[2].lower())
    return None if feature is None else type(feature)


def _natural(kind: pa.DataType) -> Feature:
    if isinstance(kind, pa.FixedShapeTensorType) and kind.value_type in _NUMBERS:
        return Array(_NUMBERS[kind.value_type], tuple(kind.shape))
    plain = _plain(kind)
    if isinstance(plain, pa.JsonType):
        return Json()
    if pa.types.is_list(plain):
        return Sequence(feature_of(plain.value_field))
    if pa.types.is_struct(plain) and any(map(_says_more, plain)):
        return Struct(tuple((child.name, feature_of(child)) for child in plain))
    return _NATURAL.get(plain) or Value(str(plain))


def _says_more(field: pa.Field) -> bool:
    """Return whether a field, or a field inside it, names its feature, or has the type JSON."""
    kind = field.type
    if FEATURE_KEY in (field.metadata or {}) or isinstance(kind, pa.JsonType):
        return True
    return any(
        map(_says_more, [kind.value_field] if pa.types.is_list(kind) else kind if pa.types.is_struct(kind) else [])
    )


_NATURAL: dict[pa.DataType, Feature] = {pa.string(): Text(), pa.binary(): Bytes()}
_VARIANTS = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without storage variants: large, view, dictionary, fixed size, extension.

    JSON stays: its storage type, text, has another meaning.
    """
    types = pa.types
    if isinstance(kind, pa.JsonType):
        return kind
    if isinstance(kind, pa.BaseExtensionType) and not is_ref(kind):
        kind = kind.storage_type
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if isinstance(kind, LIST_TYPES):
        inner = kind.value_field
        return pa.list_(pa.field("item", _plain(inner.type), metadata=inner.metadata))
    if types.is_struct(kind):
        return pa.struct([pa.field(child.name, _plain(child.type), metadata=child.metadata) for child in kind])
    if types.is_fixed_size_binary(kind) or is_ref(kind):
        return pa.binary()
    return _VARIANTS.get(kind, kind)


def _to_json(feature: Feature) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    match feature:
        case Array(dtype, shape):
            spec = {"dtype": dtype, "shape": shape}
        case ClassLabel(names):
            spec = {"kind": "class_label", "names": names}
        case Value(dtype):
            spec = {"dtype": dtype}
        case Image(encode_format) if feature != Image():
            spec = {"encode_format": encode_format}
        case Video(storage) if feature != Video():
            spec = {"storage": storage}
        case Encoded(encoding):
            spec = {"encoding": encoding}
        case Sequence(inner):
            spec = {"feature": _to_json(inner)}
        case Struct(children):
            spec = {"fields": [[name, _to_json(inner)] for name, inner in children]}
    return {"kind": type(feature).__name__.lower(), **spec}


def _to_text(feature: Feature) -> bytes:
    return orjson.dumps(_to_json(feature), option=orjson.OPT_SORT_KEYS)


def _from_json(spec: Mapping[str, Any], depth: int = 0) -> Feature:
    if depth > _DEEP:
        raise ValueError
    made = _MAKERS.get(spec["kind"])
    return _PLAIN[spec["kind"]] if made is None else made(spec, depth + 1)


def _array_from(spec: Mapping[str, Any], _depth: int) -> Feature:
    dtype, shape = spec["dtype"], spec["shape"]
    # The bytes of objects would be addresses; those of texts would not be letters.
    if dtype is not None and _number_type(_text_of(dtype)) is None:
        raise ValueError
    if shape is not None and not _is_shape(shape):
        raise ValueError
    return Array(dtype, None if shape is None else tuple(shape))


def _is_shape(spec: Any) -> bool:
    """Return whether this is a list of extents that numpy accepts."""
    extents = isinstance(spec, list) and len(spec) <= _MOST_DIMENSIONS
    return extents and all(extent is None or (type(extent) is int and 0 <= extent < _MOST_ITEMS) for extent in spec)


def _text_of(spec: Any) -> str:
    if not isinstance(spec, str):
        raise TypeError
    return spec


def _texts_of(spec: Any) -> tuple[str, ...]:
    if not isinstance(spec, list) or not set(map(type, spec)) <= {str}:
        raise TypeError
    return tuple(spec)


_MOST_NAMES = 20
_DEEP = 64
"""Nesting limit, equal to that of Arrow's types."""
_DTYPE_NAME = re.compile(r"[<>=|]?(\?|[A-Za-z]\w*(\[\w+\])?)", re.ASCII)
_NUMBER_KINDS, _MOST_DIMENSIONS, _MOST_ITEMS = "biufcMm", 64, 1 << 63
_SHOWN = 200
_MAKERS: dict[str, Callable[[Mapping[str, Any], int], Feature]] = {
    "array": _array_from,
    "class_label": lambda spec, _: ClassLabel(_texts_of(spec["names"])),
    "encoded": lambda spec, _: Encoded(_text_of(spec["encoding"])),
    "image": lambda spec, _: Image(_text_of(spec["encode_format"]) if "encode_format" in spec else None),
    "sequence": lambda spec, depth: Sequence(_from_json(spec["feature"], depth)),
    "struct": lambda spec, depth: Struct(
        tuple((_text_of(name), _from_json(inner, depth)) for name, inner in spec["fields"])
    ),
    "value": lambda spec, _: Value(_text_of(spec["dtype"])),
    "video": lambda spec, _: Video(_text_of(spec.get("storage", "bytes"))),
}


def fingerprint(schema: pa.Schema) -> str:
    """Return 16 hex digits that are equal for schemas with the same names, types and features.

    Order of columns, nullability, other metadata and storage variants (large, view, dictionary, reference) do not show.
    """
    rows = []
    for field in schema:
        plain = _plain(field.type)
        stored = "bytes" if plain in (pa.string(), pa.binary()) else str(plain)
        rows.append([field.name, stored, _as_written(field)])
    rows.sort(key=lambda row: str(row[0]))
    return xxhash.xxh3_64_hexdigest(orjson.dumps(rows, option=orjson.OPT_SORT_KEYS))


def _as_written(field: pa.Field) -> dict[str, Any]:
    """Return the feature of a field as JSON, with its dtype as written: manifests of older versions use other names."""
    feature = feature_of(field)
    spec = _to_json(feature)
    if isinstance(feature, Array) and FEATURE_KEY in (field.metadata or {}):
        spec["dtype"] = orjson.loads(field.metadata[FEATURE_KEY])["dtype"]
    return spec


def from_huggingface(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the features in Hugging Face's metadata (Image, Audio, Video, ClassLabel, arrays, lists).

    All metadata stay. Columns that the metadata do not name stay as they are.

    Raises:
        DataError: the metadata are not valid JSON.

    Source: datasets 5.2.0 features/features.py (`Features.arrow_schema`).
    """
    text = (schema.metadata or {}).get(b"huggingface")
    spec = json_text.loads(text) if text is not None else None
    for step in ("info", "features"):
        spec = spec.get(step) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return schema
    return pa.schema([_with_spec(field, spec.get(field.name)) for field in schema], metadata=schema.metadata)


def _with_spec(field: pa.Field, spec: Any) -> pa.Field:
    feature = None if FEATURE_KEY in (field.metadata or {}) else _huggingface_feature(spec, field.type)
    return field if feature is None else with_feature(field, feature)


def _huggingface_feature(spec: Any, kind: pa.DataType) -> Feature | None:
    """Return the feature; None if the Arrow type already implies it, or does not fit it."""
    plain = _plain(kind)
    if isinstance(spec, list) and len(spec) == 1:
        spec = {"_type": "Sequence", "feature": spec[0]}
    if not isinstance(spec, dict):
        return None
    name = spec.get("_type")
    found: Feature | None = None
    if name in ("Image", "Audio", "Video") and (pa.types.is_struct(plain) or pa.types.is_binary(plain)):
        found = _PLAIN[name.lower()]
    elif name == "ClassLabel" and isinstance(spec.get("names"), list) and pa.types.is_integer(plain):
        names = tuple(map(str, spec["names"]))
        found = ClassLabel(names) if all(map(json_text.is_unicode, names)) else None
    elif name in ("Array2D", "Array3D", "Array4D", "Array5D") and pa.types.is_list(plain):
        found = _huggingface_array(spec.get("dtype"), spec.get("shape"))
    elif name in ("Sequence", "List", "LargeList") and pa.types.is_list(plain):
        inner = _huggingface_feature(spec.get("feature"), plain.value_type)
        found = None if inner is None else Sequence(inner)
    elif not isinstance(name, str) and pa.types.is_struct(plain):
        inside = [(child.name, _huggingface_feature(spec.get(child.name), child.type)) for child in plain]
        known = tuple((name, inner) for name, inner in inside if inner is not None)
        found = Struct(known) if known else None
    return found


def _huggingface_array(dtype: Any, shape: Any) -> Array | None:
    """Return the feature of an array; None if it is impossible."""
    known = isinstance(dtype, str) and dtype in NUMBER_TYPES and _is_shape(shape)
    return Array(dtype, tuple(shape)) if known else None


def keeps_files(feature: Feature) -> bool:
    """Return whether videos of a cache column, inside lists and structs too, are in external files."""
    match feature:
        case Sequence(inner):
            return keeps_files(inner)
        case Struct(fields):
            return any(keeps_files(inner) for _, inner in fields)
    return feature == Video("path")


def encode(feature: Feature, value: Any, *, assets: str | None = None) -> Any:
    """Return what a column of this feature stores for a Python value: bytes, text, numbers, lists and dicts of them.

    `decode` reverses it. An image may be bytes, a path, a Pillow image or an array; a label may be a name; JSON may be
    any value, or the bytes of a text. None stays None, and a number or label that numpy masks becomes None.

    Example:
        encode(ClassLabel(("cat", "dog")), "dog")  # 1

    Args:
        feature: feature of the column.
        value: one value.
        assets: folder for the files of `Video("path")`.

    Raises:
        Unrepresentable: the feature cannot hold this value.
        UsageError: values of this feature can only be read (`Place`: WrongFeature), or `assets` is missing.
        NotFound, StoreError: a file that the value names cannot be read.
    """
    if value is None:
        return None
    encoder = _ENCODERS.get(type(feature))
    if encoder is None:
        raise WrongFeature("values of this feature are not made of Python values", found=type(feature).__name__)
    return encoder(feature, value, assets)


def _stored_text(_feature: Text, value: Any, _assets: str | None) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = _text(Text(), bytes(value))
    if not isinstance(value, str):
        raise WrongType("this column holds text", expected="str", found=f"{type(value).__name__} {value!r:.80}")
    return value


def _stored_json(_feature: Json, value: Any, _assets: str | None) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return json_text.dumps(value)
    json_text.loads(value)
    return str(_text(Text(), bytes(value)))


@lru_cache(256)
def python_types(dtype: str) -> tuple[type, ...]:
    """Return the Python types whose values a `Value` of this dtype holds; none for times and decimals.

    Whole floats are whole numbers too, and numbers of numpy are Python's; nothing is cut or made into another kind.

    Raises:
        UsageError: there is no such type.
    """
    return _PYTHON_TYPES.get(arrow_type(dtype), ())


_PYTHON_TYPES: dict[pa.DataType, tuple[type, ...]] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), (int,)),
    **dict.fromkeys((pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), (int,)),
    **dict.fromkeys((pa.float32(), pa.float64()), (float, int)),
    pa.float16(): (float,),
    pa.bool_(): (bool,),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), (str,)),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (bytes,)),
}


_HALVES, _MOST_HALF = ("float16", "halffloat"), 65_504


def _is_half(value: int) -> bool:
    """Return whether an integer is exact in 16 bits."""
    return abs(value) <= _MOST_HALF and float(np.float16(value)) == value


def _stored_value(feature: Value, value: Any, _assets: str | None) -> Any:
    value, types = plain_item(value), python_types(feature.dtype)
    if value is None:
        return None
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if type(value) in types:
        return value
    if not types:
        return exact_value(arrow_type(feature.dtype), value)
    for kind in types:
        if isinstance(value, kind) and not isinstance(value, bool):  # a subclass, such as an enumeration of numbers
            return str.__str__(value) if kind is str else kind(value)  # for a named text, str() may return its name
        if kind in (int, float) and type(value) in (int, float) and math.isfinite(value) and kind(value) == value:
            if type(value) is int and feature.dtype in _HALVES and not _is_half(value):
                break  # pyarrow would round it
            return kind(value)
    refusal = Unrepresentable if {type(value), types[0]} <= {int, float} else WrongType
    raise refusal(
        f"a value that {feature.dtype} cannot hold",
        expected=" or ".join(kind.__name__ for kind in types),
        found=f"{type(value).__name__} {value!r:.80}",
    )


def _stored_label(feature: ClassLabel, value: Any, _assets: str | None) -> int | None:
    value = plain_item(value)
    if value is None:
        return None
    if isinstance(value, str):
        return feature.str2int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WrongType("not a label of this column", expected="a whole number or a name", found=repr(value))
    return value


def _stored_video(feature: Video, value: Any, assets: str | None) -> dict[str, Any] | str:
    if feature.storage == "text":
        return video_path(value)
    if feature.storage == "path" and assets is None:
        raise UsageError("a video that is kept as a file needs a folder for it", expected="assets=")
    return video_cell(value, assets if feature.storage == "path" else None)


def _stored_array(feature: Array, value: Any, _assets: str | None) -> bytes:
    if feature.dtype is None or feature.shape is None:
        return npy_bytes(value, feature.dtype, feature.shape)
    refuse_untold(feature)
    return array_bytes(value, feature.dtype, feature.shape)


def refuse_untold(feature: Array) -> None:
    """Raise UsageError for an array whose bytes, which have no header, do not determine its shape."""
    shape = feature.shape or ()
    if feature.dtype is not None and (shape.count(None) > 1 or (None in shape and 0 in shape)):
        raise UsageError(
            "bytes alone cannot tell this shape", expected="one extent that varies", found=str(shape),
            advice="Leave the shape out: Array(dtype) keeps it with each value.",
        )  # fmt: skip


def _stored_items(feature: Sequence, value: Any, assets: str | None) -> list[Any]:
    return [encode(feature.feature, item, assets=assets) for item in listed(value)]


def listed(value: Any) -> Any:
    """Return the items of a list, a numpy array, a tensor or the like. Raises Unrepresentable for anything else."""
    if getattr(value, "ndim", 0) and (
        value.dtype.kind in "biufcU" if isinstance(value, np.ndarray) else hasattr(value, "dtype")
    ):
        value = value.tolist()
    # Texts, bytes and dicts would give their parts; an array without dimensions has no parts.
    parts = hasattr(value, "__iter__") and getattr(value, "ndim", True)
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not parts:
        raise WrongType("this column holds lists", expected="a list", found=f"{type(value).__name__} {value!r:.80}")
    return value


def _stored_struct(feature: Struct, value: Any, assets: str | None) -> dict[str, Any]:
    fields = dict(feature.fields)
    if not isinstance(value, Mapping) or value.keys() != fields.keys():
        found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise WrongType("this column holds dicts", expected=f"the keys {sorted(fields)}", found=found)
    return {name: encode(inner, value[name], assets=assets) for name, inner in fields.items()}


_ENCODERS: dict[type, Callable[[Any, Any, str | None], Any]] = {
    Encoded: lambda feature, value, _assets: encode_mds(feature.encoding, value),
    Text: _stored_text,
    Json: _stored_json,
    Value: _stored_value,
    ClassLabel: _stored_label,
    Bytes: lambda _feature, value, _assets: as_bytes(value),
    Image: lambda feature, value, _assets: image_bytes(value, feature.encode_format),
    Audio: lambda _feature, value, _assets: media_bytes(value),
    Video: _stored_video,
    Array: _stored_array,
    Sequence: _stored_items,
    Struct: _stored_struct,
}


def decode(feature: Feature, value: Any, *, allow_pickle: bool = False) -> Any:
    """Return the Python value of one stored value, as `ds[i]` does: text as str, JSON parsed, arrays as numpy.

    Media stay bytes; a `struct<bytes, path>` of Hugging Face gives its bytes. Arrays have their own memory, None stays
    None. Nothing is unpickled unless the caller allows it: any file may call its bytes a pickle.

    Example:
        decode(Json(), b'{"lang": "en"}')  # {"lang": "en"}

    Raises:
        DataError: the bytes do not fit the feature.
    """
    if isinstance(feature, Encoded) and value is not None:
        return decode_mds(feature.encoding, value, allow_pickle=allow_pickle)
    decoder = _DECODERS.get(type(feature))
    return value if value is None or decoder is None else decoder(feature, value)


def _text(_feature: Text, value: Any) -> Any:
    try:
        return bytes(value).decode() if isinstance(value, (bytes, memoryview)) else value
    except UnicodeDecodeError as error:
        raise DataError(f"invalid UTF-8 at byte {error.start} of the value", found=error.reason) from None


def _json(_feature: Json, value: Any) -> Any:
    return json_text.loads(value) if isinstance(value, (str, bytes, memoryview)) else value


def _number(feature: Value | ClassLabel, value: Any) -> Any:
    kind = feature.dtype if isinstance(feature, Value) else "int64"
    if not isinstance(value, (bytes, memoryview)) or not ("int" in kind or kind in _FLOATS):
        return value
    try:
        return float(bytes(value)) if kind in _FLOATS else int(bytes(value))
    except ValueError:
        raise DataError(f"not a number ({kind})", found=repr(bytes(value[:40]))) from None


def _items(feature: Sequence, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DataError("not a list, although the column's feature says so", found=type(value).__name__)
    return [decode(feature.feature, item) for item in value]


def _struct(feature: Struct, value: Any) -> Any:
    if not isinstance(value, dict):
        raise DataError("not a struct, although the column's feature says so", found=type(value).__name__)
    return {**value, **{name: decode(inner, value[name]) for name, inner in feature.fields if name in value}}


def _media(_feature: Image | Audio | Video, value: Any) -> Any:
    return value["bytes"] if isinstance(value, dict) and value.get("bytes") is not None else value


def _array(feature: Array, value: Any) -> NDArray[Any]:
    shape = [-1 if extent is None else extent for extent in feature.shape or ()]
    if not isinstance(value, (bytes, memoryview)):
        try:
            array = np.asarray(value, feature.dtype)
        except (ValueError, TypeError, OverflowError):
            raise DataError(
                "not an array, although the column's feature says so", expected=str(feature), found=type(value).__name__
            ) from None
        if -1 in shape and not array.size and _begins(shape, array.shape):
            # No items: after a dimension of size zero, lists do not show further dimensions.
            shape = [*array.shape, *(max(extent, 0) for extent in shape[array.ndim :])]
        whole = shape and -1 not in shape and array.size == math.prod(shape)
        return array.reshape(shape) if whole else array
    if feature.dtype is None or feature.shape is None:
        return _expected(feature, _npy(memoryview(value)))
    kind = np.dtype(feature.dtype).newbyteorder("<")
    known = math.prod(extent for extent in shape if extent >= 0) * kind.itemsize
    if -1 in shape and known:
        shape[shape.index(-1)] = len(value) // known
    return _filled(kind, tuple(shape), memoryview(value))


def _begins(shape: list[int], found: tuple[int, ...]) -> bool:
    """Return whether an array's extents begin a shape, in which variable extents are -1."""
    return all(known in (-1, extent) for known, extent in zip(shape, found, strict=False))


def _expected(feature: Array, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of a `.npy` file, if it matches the feature."""
    dtype = array.dtype.newbyteorder("=")
    same = feature.shape is None or has_shape(array, feature.shape)
    if not same or (feature.dtype is not None and np.dtype(feature.dtype) != dtype):
        raise DataError("another array than the column's feature says", expected=str(feature),
                        found=f"{dtype} of {array.shape}")  # fmt: skip
    return array


def _filled(kind: np.dtype[Any], shape: tuple[int, ...], data: memoryview, *, fortran: bool = False) -> NDArray[Any]:
    items = math.prod(shape)
    # Items of zero bytes would be as many as a header claims, and numpy makes texts of length zero texts of length one.
    if min(shape, default=0) < 0 or items * kind.itemsize != len(data) or (items and not kind.itemsize):
        raise DataError(
            "an array of another size than its shape says", expected=f"{shape} of {kind}", found=f"{len(data)} bytes"
        )
    try:
        return np.ndarray(shape, kind, data, order="F" if fortran else "C").copy(order="K")
    except ValueError:  # (0, 1 << 62, 8) takes no bytes, but numpy refuses so large an array
        raise DataError("numpy cannot hold this array", found=f"{shape} of {kind}") from None


_FLOATS = ("halffloat", "float", "double")
_NPY_HEADER = 10_000
"""Longest header that is parsed, as in numpy (`max_header_size`)."""


def _npy(data: memoryview) -> NDArray[Any]:
    """Return the array of a `.npy` file; sizes are checked before allocation."""
    start, kind, shape, fortran = npy_layout(data)
    return _filled(kind, shape, data[start:], fortran=fortran)


def npy_layout(data: memoryview) -> tuple[int, np.dtype[Any], tuple[int, ...], bool]:
    """Return where the values of a `.npy` file begin, their type, their shape, and whether they are in Fortran order.

    Raises:
        DataError: not a `.npy` file, or one of Python objects.

    Source: numpy lib/format.py, 1.0 to 3.0.
    """
    version = bytes(data[6:7])
    start, encoding = 10 if version == b"\x01" else 12, "utf-8" if version == b"\x03" else "latin-1"
    length = int.from_bytes(data[8:start], "little")
    if bytes(data[:6]) != b"\x93NUMPY" or length > _NPY_HEADER or start + length > len(data):
        raise DataError("not an .npy file", found=repr(bytes(data[:16])))
    try:
        header = ast.literal_eval(bytes(data[start : start + length]).decode(encoding).strip())
        kind = np.lib.format.descr_to_dtype(header["descr"])
        shape, fortran = _npy_shape(header["shape"]), bool(header["fortran_order"])
    except (ValueError, SyntaxError, TypeError, KeyError, IndexError, RecursionError, MemoryError):
        raise DataError("an .npy file with a broken header", found=repr(bytes(data[start : start + 80]))) from None
    if kind.hasobject:
        raise DataError("an .npy file that holds pickled objects", advice="lading does not unpickle; convert it first.")
    return start + length, kind, shape, fortran


def _npy_shape(spec: Any) -> tuple[int, ...]:
    """Return the shape in a header, as numpy accepts it: text, sets and floats are refused."""
    if not isinstance(spec, tuple) or {*map(type, spec)} - {int}:
        raise TypeError
    return spec


_DECODERS: dict[type, Callable[[Any, Any], Any]] = {
    Text: _text,
    Json: _json,
    Value: _number,
    ClassLabel: _number,
    Sequence: _items,
    Struct: _struct,
    Array: _array,
    Image: _media,
    Audio: _media,
    Video: _media,
}
