"""Features: the logical type of a column, over the Arrow type in which it is stored.

A feature is a small frozen value, kept as JSON in the metadata of an Arrow field under `lading.feature`. A field
without it has the feature that its Arrow type suggests (string → Text, binary or reference → Bytes, list → Sequence,
others → Value). Bytes stay as they are stored. `decode` turns one stored value into a Python value, as `ds[i]` does;
`encode` turns a Python value into what a column of that feature stores.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from lading._core.arrow import json_text
from lading._core.arrow.references import is_ref
from lading._core.arrow.types import arrow_type
from lading._core.arrow.views import LIST_TYPES, is_bytes, is_text
from lading._core.features.base import Feature
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
from lading._core.features.huggingface_types import ITEM_TYPES, MEDIA, NUMBER_TYPES, Form, array_form, keeps_media
from lading._core.features.images import image_bytes
from lading._core.features.mds_values import decode_mds, encode_mds
from lading._core.features.npy import filled, npy_array
from lading._core.features.plain_values import (
    check_texts,
    listed,
    number_of,
    python_types,
    stored_value,
    text_of,
    weight_of_list,
    weight_of_numbers,
)
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
    "check_feature",
    "decode",
    "encode",
    "feature_from",
    "feature_of",
    "feature_of_extension",
    "fingerprint",
    "is_shape",
    "keeps_files",
    "plain_storage",
    "refuse_untold",
    "tag_by_extension",
    "with_feature",
]

FEATURE_KEY = b"lading.feature"
"""Key of a field's metadata: the feature as JSON."""

_BYTES, _TEXTS, _NUMBERED = (frozenset((kind, type(None))) for kind in (bytes, str, int))
_LISTED = frozenset((list, tuple, type(None)))
_WORD = re.compile(r"\w*")
_UNALIASED = ("month_interval", "day_time_interval")
"""Types that pyarrow prints and does not name."""

_NUMBERS = {kind: name for name, kind in ITEM_TYPES.items()}


@dataclass(frozen=True, slots=True)
class Bytes(Feature):
    """Bytes without further meaning."""

    is_bytes: ClassVar[bool] = True

    @property
    def unchanged(self) -> frozenset[type]:
        """Return the types of Python values that are stored unchanged."""
        return _BYTES

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.large_binary()

    def encode(self, value: Any, _assets: str | None, /) -> bytes:
        """Return what a column stores for a value that is not None."""
        return as_bytes(value)

    def weigher(self) -> Callable[[Any], int]:
        """Return the function from an encoded value to its approximate bytes."""
        return len


class _Decoded(Feature):
    __slots__ = ()

    def check_column(self, column: Any) -> None:
        """Raise Unrepresentable for a value that cannot be decoded."""
        try:
            for value in column.to_pylist():
                decode(self, value)
        except DataError as error:
            raise Unrepresentable(f"not a value of this column: {error.message}", expected=str(self),
                                  found=error.found) from error  # fmt: skip


@dataclass(frozen=True, slots=True)
class Text(Feature):
    """A string, or its UTF-8 bytes."""

    is_text: ClassVar[bool] = True

    @property
    def unchanged(self) -> frozenset[type]:
        """Return the types of Python values that are stored unchanged."""
        return _TEXTS

    @property
    def may_change(self) -> bool:
        """Return whether values may be mutable objects, or files that disappear."""
        return False

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.string()

    def natural_type(self) -> pa.DataType:
        """Return the type in which formats with types store its bytes."""
        return pa.string()

    def encode(self, value: Any, _assets: str | None, /) -> str:
        """Return what a column stores for a value that is not None."""
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = text_of(bytes(value))
        if not isinstance(value, str):
            raise WrongType("this column holds text", expected="str", found=f"{type(value).__name__} {value!r:.80}")
        return value

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value."""
        return text_of(value)

    def weigher(self) -> Callable[[Any], int]:
        """Return the function from an encoded value to its approximate bytes."""
        return len


@dataclass(frozen=True, slots=True)
class Json(_Decoded):
    """A JSON text in UTF-8. Two spellings of one value are equal."""

    is_json: ClassVar[bool] = True

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.string()

    def natural_type(self) -> pa.DataType:
        """Return the type in which formats with types store its bytes."""
        return pa.string()

    def huggingface(self, kind: pa.DataType) -> Form | None:
        """Return the form of a column of this type in datasets."""
        return (pa.json_(), {"_type": "Json"}) if is_bytes(kind) or is_text(kind) else None

    def encode(self, value: Any, _assets: str | None, /) -> str:
        """Return what a column stores for a value that is not None."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            return json_text.dumps(value)
        json_text.loads(value)
        return str(text_of(bytes(value)))

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value."""
        return json_text.loads(value) if isinstance(value, (str, bytes, memoryview)) else value


class _Media(Feature):
    __slots__ = ()

    is_costly: ClassVar[bool] = True

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.large_binary()

    def huggingface(self, kind: pa.DataType) -> Form | None:
        """Return the form of a column of this type in datasets."""
        return (MEDIA, {"_type": type(self).__name__}) if is_bytes(kind) or keeps_media(kind) else None

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value."""
        return value["bytes"] if isinstance(value, dict) and value.get("bytes") is not None else value


@dataclass(frozen=True, slots=True)
class Image(_Media):
    """An encoded image: the bytes of a file, or Hugging Face's `struct<bytes, path>`.

    Attributes:
        encode_format: format into which `encode` turns arrays and changed images, by Pillow's name. By default that of
            the field's ending (`thumb.jpg`), else that of the file which an image came from, else PNG.
    """

    encode_format: str | None = None

    medium: ClassVar[Literal["image", "audio", "video"] | None] = "image"

    @property
    def unchanged(self) -> frozenset[type]:
        """Return the types of Python values that are stored unchanged."""
        return _BYTES

    @property
    def image_format(self) -> str | None:
        """Return `encode_format`."""
        return self.encode_format

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature."""
        check_texts([self.encode_format or "PNG"], "format of an image")

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "image", **({} if self.encode_format is None else {"encode_format": self.encode_format})}

    def encode(self, value: Any, _assets: str | None, /) -> bytes:
        """Return what a column stores for a value that is not None."""
        return image_bytes(value, self.encode_format)

    def weigher(self) -> Callable[[Any], int]:
        """Return the function from an encoded value to its approximate bytes."""
        return len


@dataclass(frozen=True, slots=True)
class Audio(_Media):
    """Encoded audio, stored as an image is."""

    medium: ClassVar[Literal["image", "audio", "video"] | None] = "audio"

    @property
    def unchanged(self) -> frozenset[type]:
        """Return the types of Python values that are stored unchanged."""
        return _BYTES

    def encode(self, value: Any, _assets: str | None, /) -> bytes:
        """Return what a column stores for a value that is not None."""
        return media_bytes(value)

    def weigher(self) -> Callable[[Any], int]:
        """Return the function from an encoded value to its approximate bytes."""
        return len


@dataclass(frozen=True, slots=True)
class Video(_Media):
    """An encoded video, stored as an image is, or in a struct of `_core.features.encode.VIDEO_FIELDS`.

    Attributes:
        storage: where `encode` keeps it: `bytes` in the table; `path` for a file next to the table; or `text` for the
            path alone, as text: the file stays where it is.
    """

    storage: str = "bytes"

    medium: ClassVar[Literal["image", "audio", "video"] | None] = "video"

    @property
    def is_path(self) -> bool:
        """Return whether a column has the path alone, as text."""
        return self.storage == "text"

    def normal(self) -> Feature:
        """Return text for paths."""
        return Text() if self.is_path else self

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.string() if self.is_path else pa.large_binary()

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature."""
        if self.storage not in ("bytes", "path", "text"):
            raise UsageError("unknown storage of videos", expected="bytes, path or text", found=repr(self.storage))

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "video", **({} if self.storage == "bytes" else {"storage": self.storage})}

    def encode(self, value: Any, assets: str | None, /) -> dict[str, Any] | str:
        """Return what a column stores for a value that is not None."""
        if self.is_path:
            return video_path(value)
        if self.storage == "path" and assets is None:
            raise UsageError("a video that is kept as a file needs a folder for it", expected="assets=")
        return video_cell(value, assets if self.storage == "path" else None)


@dataclass(frozen=True, slots=True)
class Array(_Decoded):
    """A dense array.

    Attributes:
        dtype: numpy's name (`f4` and `np.float32` become `float32`); None if each value is a `.npy` file with its own.
        shape: extent of each dimension, None for one that varies; None if each value has its own shape. With dtype and
            shape, the bytes are the values alone: C order, little-endian.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None

    is_costly: ClassVar[bool] = True

    @property
    def array(self) -> tuple[str | None, tuple[int | None, ...] | None]:
        """Return dtype and shape."""
        return self.dtype, self.shape

    def __post_init__(self) -> None:
        if self.dtype is not None:
            object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        if self.shape is not None:
            shape = tuple(extent if extent is None else operator.index(extent) for extent in self.shape)
            object.__setattr__(self, "shape", shape)

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.large_binary()

    def huggingface(self, kind: pa.DataType) -> Form | None:
        """Return the form of a column of this type in datasets."""
        return array_form(self.dtype, self.shape) if is_bytes(kind) else None

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature."""
        _check_array(self.dtype, self.shape)
        refuse_untold(self)

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "array", "dtype": self.dtype, "shape": self.shape}

    def check_column(self, column: Any) -> None:
        """Raise Unrepresentable for bytes of another length than the shape requires."""
        if self.dtype is None or self.shape is None:
            _Decoded.check_column(self, column)
            return
        size = math.prod(n for n in self.shape if n is not None) * np.dtype(self.dtype).itemsize
        lengths = pc.unique(pc.binary_length(column)).drop_null().to_numpy(zero_copy_only=False)
        wrong = lengths[lengths % size != 0 if None in self.shape else lengths != size]
        if len(wrong):
            raise Unrepresentable(
                "bytes of another length than the arrays of this column have",
                expected=f"a multiple of {size}" if None in self.shape else size, found=wrong[:8].tolist(),
            )  # fmt: skip

    def encode(self, value: Any, _assets: str | None, /) -> bytes:
        """Return what a column stores for a value that is not None."""
        if self.dtype is None or self.shape is None:
            return npy_bytes(value, self.dtype, self.shape)
        refuse_untold(self)
        return array_bytes(value, self.dtype, self.shape)

    def decode(self, value: Any) -> NDArray[Any]:
        """Return the Python value of a stored value."""
        shape = [-1 if extent is None else extent for extent in self.shape or ()]
        if not isinstance(value, (bytes, memoryview)):
            return self._of_items(value, shape)
        if self.dtype is None or self.shape is None:
            return self._expected(npy_array(memoryview(value)))
        kind = np.dtype(self.dtype).newbyteorder("<")
        known = math.prod(extent for extent in shape if extent >= 0) * kind.itemsize
        if -1 in shape and known:
            shape[shape.index(-1)] = len(value) // known
        return filled(kind, tuple(shape), memoryview(value))

    def _of_items(self, value: Any, shape: list[int]) -> NDArray[Any]:
        try:
            array = np.asarray(value, self.dtype)
        except (ValueError, TypeError, OverflowError):
            raise DataError(
                "not an array, although the column's feature says so", expected=str(self), found=type(value).__name__
            ) from None
        if -1 in shape and not array.size and _begins(shape, array.shape):
            # No items: after a dimension of size zero, lists do not show further dimensions.
            shape = [*array.shape, *(max(extent, 0) for extent in shape[array.ndim :])]
        whole = shape and -1 not in shape and array.size == math.prod(shape)
        return array.reshape(shape) if whole else array

    def _expected(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array of a `.npy` file, if it matches the feature."""
        dtype = array.dtype.newbyteorder("=")
        same = self.shape is None or has_shape(array, self.shape)
        if not same or (self.dtype is not None and np.dtype(self.dtype) != dtype):
            raise DataError("another array than the column's feature says", expected=str(self),
                            found=f"{dtype} of {array.shape}")  # fmt: skip
        return array


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


def _check_array(dtype: str | None, shape: tuple[int | None, ...] | None) -> None:
    try:
        known = dtype is None or np.dtype(dtype).kind in "biufc"
    except TypeError:
        known = False
    if not known:
        raise UsageError("not a dtype of an array", expected="a name of numpy's, such as float32", found=repr(dtype))
    for extent in shape or ():
        if extent is not None and not (isinstance(extent, int) and 0 <= extent < _MOST_ITEMS):
            raise UsageError(
                "not a shape of an array", expected="whole numbers, one of them perhaps None", found=str(shape)
            )


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


class _Scalar(Feature):
    __slots__ = ()

    is_scalar: ClassVar[bool] = True

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value."""
        return number_of("int64", value)


@dataclass(frozen=True, slots=True, init=False)
class ClassLabel(_Scalar):
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

    @property
    def kind(self) -> str:
        """Return the name of the type that users see."""
        return "label"

    @property
    def unchanged(self) -> frozenset[type]:
        """Return the types of Python values that are stored unchanged."""
        return _NUMBERED

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

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the names."""
        return self.names

    @property
    def may_change(self) -> bool:
        """Return whether values may be mutable objects, or files that disappear."""
        return False

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

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.int64()

    def huggingface(self, kind: pa.DataType) -> Form | None:
        """Return the form of labels. Raises Unrepresentable for repeated names, which datasets refuses."""
        if not pa.types.is_integer(kind) or pa.types.is_uint64(kind):
            return None
        if len(set(self.names)) < len(self.names):
            [(repeated, count), *_] = Counter(self.names).most_common(1)
            raise Unrepresentable(
                "labels of datasets have names of their own",
                expected="each name once",
                found=f"{repeated!r} {count} times",
                advice="Rename them, or leave the column out.",
            )
        return pa.int64(), {"names": list(self.names), "_type": "ClassLabel"}

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature."""
        check_texts(self.names, "name of a label", twice=True)

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "class_label", "names": self.names}

    def encode(self, value: Any, _assets: str | None, /) -> int | None:
        """Return what a column stores for a value that is not None."""
        value = plain_item(value)
        if value is None:
            return None
        if isinstance(value, str):
            return self.str2int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise WrongType("not a label of this column", expected="a whole number or a name", found=repr(value))
        return value

    def weigher(self) -> None:
        """Return None: numbers do not matter."""


@dataclass(frozen=True, slots=True)
class Value(_Scalar):
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

    @property
    def kind(self) -> str:
        """Return the name of the type that users see."""
        return self.type_name

    @property
    def type_name(self) -> str:
        """Return Arrow's name of the type."""
        return self.dtype

    @property
    def may_change(self) -> bool:
        """Return whether values may be mutable objects, or files that disappear."""
        return "binary" in self.dtype

    @property
    def unchanged(self) -> frozenset[type]:
        """Return the types of Python values that are stored unchanged, whatever they hold."""
        return _BYTES if self.may_change else frozenset((type(None),))

    def normal(self) -> Feature:
        """Return the feature that the Arrow type suggests."""
        return feature_of(pa.field("", arrow_type(self.dtype)))

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return arrow_type(self.dtype)

    def natural_type(self) -> pa.DataType | None:
        """Return the type in which formats with types store its bytes."""
        return pa.int64() if self.dtype == "int64" else None

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature."""
        check_texts([self.dtype], "type of a value")

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "value", "dtype": self.dtype}

    def encode(self, value: Any, _assets: str | None, /) -> Any:
        """Return what a column stores for a value that is not None."""
        return stored_value(self.dtype, value)

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value."""
        return number_of(self.dtype, value)

    def stores_unchanged(self, values: list[Any]) -> bool:
        """Return whether a column stores all of these values unchanged."""
        known = python_types(self.dtype)
        return bool(known) and {*known, type(None)}.issuperset(map(type, values))

    def weigher(self) -> Callable[[Any], int] | None:
        """Return the function from an encoded value to its approximate bytes."""
        return len if python_types(self.dtype) in ((str,), (bytes,)) else None


@dataclass(frozen=True, slots=True)
class Encoded(Feature):
    """A value in an encoding of MosaicML's MDS (`_core.features.mds_values`).

    Attributes:
        encoding: MDS's name of the encoding: `ndarray`, `pil`, `list[jpeg]`, `str_decimal`, `pkl` …
    """

    encoding: str

    @property
    def kind(self) -> str:
        """Return the name of the type that users see."""
        return self.encoding

    @property
    def mds_encoding(self) -> str:
        """Return MDS's name of the encoding."""
        return self.encoding

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "encoded", "encoding": self.encoding}

    def encode(self, value: Any, _assets: str | None, /) -> Any:
        """Return what a column stores for a value that is not None."""
        return encode_mds(self.encoding, value)

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value."""
        return decode_mds(self.encoding, value)

    def unpickle(self, value: Any) -> Any:
        """Return the Python value of a stored value, which may be a pickle."""
        return decode_mds(self.encoding, value, allow_pickle=True)


@dataclass(frozen=True, slots=True)
class Place(Feature):
    """Position of bytes in the file that was read: kept, but not content, so it does not count in a digest."""

    is_content: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Sequence(Feature):
    """A list of one feature."""

    feature: Feature

    @property
    def kind(self) -> str:
        """Return the name of the type that users see."""
        return f"list<{self.feature.kind}>"

    @property
    def item(self) -> Feature:
        """Return the feature of the items."""
        return self.feature

    def leaves(self) -> Iterator[Feature]:
        """Yield the features at the bottom of its lists and structs."""
        yield from self.feature.leaves()

    def leaf_values(self, value: Any, name: str) -> Iterator[tuple[str, Feature, Any]]:
        """Yield the values inside a stored value that are not None, with feature and name of the field."""
        if not isinstance(value, list):
            yield from Feature.leaf_values(self, value, name)
            return
        for item in value:
            yield from self.feature.leaf_values(item, name)

    def changed(self, value: Any, change: Callable[[Feature, Any], Any]) -> Any:
        """Return a value with a function applied to its values at the bottom of lists and structs."""
        return [self.feature.changed(item, change) for item in value] if isinstance(value, list) else value

    def with_leaves(self, change: Callable[[Feature], Feature]) -> Feature:
        """Return the feature with a function applied to the features at the bottom."""
        return Sequence(self.feature.with_leaves(change))

    def typed(self, leaf_type: Callable[[Feature], pa.DataType]) -> pa.DataType:
        """Return the type of a column, by a function that gives the types at the bottom."""
        return pa.list_(self.feature.typed(leaf_type))

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.list_(self.feature.to_arrow_type())

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature."""
        check_feature(self.feature)

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "sequence", "feature": self.feature.spec()}

    def encode(self, value: Any, assets: str | None, /) -> list[Any]:
        """Return what a column stores for a value that is not None."""
        return [encode(self.feature, item, assets=assets) for item in listed(value)]

    def decode(self, value: Any) -> list[Any]:
        """Return the Python value of a stored value."""
        if not isinstance(value, list):
            raise DataError("not a list, although the column's feature says so", found=type(value).__name__)
        return [decode(self.feature, item) for item in value]

    def leaf_columns(self, column: Any) -> Iterator[tuple[Feature, Any]]:
        """Yield the columns inside the lists."""
        yield from self.feature.leaf_columns(pc.list_flatten(column))

    def stores_unchanged(self, values: list[Any]) -> bool:
        """Return whether a column stores all of these values unchanged."""
        # Not lists of lists, which pyarrow would make of texts.
        if not _LISTED.issuperset(map(type, values)) or not (self.feature.is_text or self.feature.is_value):
            return False
        return self.feature.stores_unchanged(list(chain.from_iterable(filter(None, values))))

    def weigher(self) -> Callable[[Any], int]:
        """Return the function from an encoded value to its approximate bytes."""
        weigh = self.feature.weigher()
        return weight_of_numbers if weigh is None else partial(weight_of_list, weigh)


@dataclass(frozen=True, slots=True)
class Struct(Feature):
    """A struct with fields that have features.

    Attributes:
        fields: name and feature of each field.
    """

    fields: tuple[tuple[str, Feature], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple((name, feature) for name, feature in self.fields))

    @property
    def kind(self) -> str:
        """Return the name of the type that users see."""
        return f"struct<{', '.join(f'{name}: {feature.kind}' for name, feature in self.fields)}>"

    @property
    def children(self) -> tuple[tuple[str, Feature], ...]:
        """Return the fields."""
        return self.fields

    def leaves(self) -> Iterator[Feature]:
        """Yield the features at the bottom of its lists and structs."""
        for _, inner in self.fields:
            yield from inner.leaves()

    def leaf_values(self, value: Any, name: str) -> Iterator[tuple[str, Feature, Any]]:
        """Yield the values inside a stored value that are not None, with feature and name of the field."""
        if not isinstance(value, dict):
            yield from Feature.leaf_values(self, value, name)
            return
        for child, inner in self.fields:
            yield from inner.leaf_values(value.get(child), child)

    def changed(self, value: Any, change: Callable[[Feature, Any], Any]) -> Any:
        """Return a value with a function applied to its values at the bottom of lists and structs."""
        if not isinstance(value, dict):
            return value
        return value | {name: inner.changed(value[name], change) for name, inner in self.fields if name in value}

    def with_leaves(self, change: Callable[[Feature], Feature]) -> Feature:
        """Return the feature with a function applied to the features at the bottom."""
        return Struct(tuple((name, inner.with_leaves(change)) for name, inner in self.fields))

    def typed(self, leaf_type: Callable[[Feature], pa.DataType]) -> pa.DataType:
        """Return the type of a column, by a function that gives the types at the bottom."""
        return pa.struct([(name, inner.typed(leaf_type)) for name, inner in self.fields])

    def to_arrow_type(self) -> pa.DataType:
        """Return the Arrow type of a column that is made for this feature."""
        return pa.struct([(name, inner.to_arrow_type()) for name, inner in self.fields])

    def check(self) -> None:
        """Raise UsageError if no column can be made for this feature."""
        check_texts([name for name, _ in self.fields], "name of a field")
        for _, inner in self.fields:
            check_feature(inner)

    def spec(self) -> dict[str, Any]:
        """Return the feature as JSON."""
        return {"kind": "struct", "fields": [[name, inner.spec()] for name, inner in self.fields]}

    def leaf_columns(self, column: Any) -> Iterator[tuple[Feature, Any]]:
        """Yield the columns inside the structs."""
        for (_, inner), child in zip(self.fields, column.flatten(), strict=True):
            yield from inner.leaf_columns(child)

    def encode(self, value: Any, assets: str | None, /) -> dict[str, Any]:
        """Return what a column stores for a value that is not None."""
        fields = dict(self.fields)
        if not isinstance(value, Mapping) or value.keys() != fields.keys():
            found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise WrongType("this column holds dicts", expected=f"the keys {sorted(fields)}", found=found)
        return {name: encode(inner, value[name], assets=assets) for name, inner in fields.items()}

    def decode(self, value: Any) -> Any:
        """Return the Python value of a stored value."""
        if not isinstance(value, dict):
            raise DataError("not a struct, although the column's feature says so", found=type(value).__name__)
        return {**value, **{name: decode(inner, value[name]) for name, inner in self.fields if name in value}}


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
    feature = feature_of_extension(name)
    return {} if feature is None else {FEATURE_KEY: _to_text(feature)}


def feature_of_extension(name: str) -> Feature | None:
    """Return the feature that the last extension of a name stands for; None if unknown.

    Example:
        feature_of_extension("cat/1.jpg")  # Image()
    """
    return _EXTENSIONS.get(name.rpartition(".")[2].lower())


def _natural(kind: pa.DataType) -> Feature:
    if isinstance(kind, pa.FixedShapeTensorType) and kind.value_type in _NUMBERS:
        return Array(_NUMBERS[kind.value_type], tuple(kind.shape))
    plain = plain_storage(kind)
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


def plain_storage(kind: pa.DataType) -> pa.DataType:
    """Return the type without storage variants: large, view, dictionary, fixed size, extension.

    JSON stays: its storage type, text, has another meaning.
    """
    types = pa.types
    if isinstance(kind, pa.JsonType):
        return kind
    if isinstance(kind, pa.BaseExtensionType) and not is_ref(kind):
        kind = kind.storage_type
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_storage(kind.value_type)
    if isinstance(kind, LIST_TYPES):
        inner = kind.value_field
        return pa.list_(pa.field("item", plain_storage(inner.type), metadata=inner.metadata))
    if types.is_struct(kind):
        return pa.struct([pa.field(child.name, plain_storage(child.type), metadata=child.metadata) for child in kind])
    if types.is_fixed_size_binary(kind) or is_ref(kind):
        return pa.binary()
    return _VARIANTS.get(kind, kind)


def _to_text(feature: Feature) -> bytes:
    return orjson.dumps(feature.spec(), option=orjson.OPT_SORT_KEYS)


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
    if shape is not None and not is_shape(shape):
        raise ValueError
    return Array(dtype, None if shape is None else tuple(shape))


def is_shape(spec: Any) -> bool:
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
        plain = plain_storage(field.type)
        stored = "bytes" if plain in (pa.string(), pa.binary()) else str(plain)
        rows.append([field.name, stored, _as_written(field)])
    rows.sort(key=lambda row: str(row[0]))
    return xxhash.xxh3_64_hexdigest(orjson.dumps(rows, option=orjson.OPT_SORT_KEYS))


def _as_written(field: pa.Field) -> dict[str, Any]:
    """Return the feature of a field as JSON, with its dtype as written: manifests of older versions use other names."""
    feature = feature_of(field)
    spec = feature.spec()
    if feature.array is not None and FEATURE_KEY in (field.metadata or {}):
        spec["dtype"] = orjson.loads(field.metadata[FEATURE_KEY])["dtype"]
    return spec


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
    if not isinstance(feature, Feature):
        raise WrongFeature("values of this feature are not made of Python values", found=type(feature).__name__)
    return feature.encode(value, assets)


def decode(feature: Feature, value: Any, *, allow_pickle: bool = False) -> Any:
    """Return the Python value of one stored value, as `ds[i]` does: text as str, JSON parsed, arrays as numpy.

    Media stay bytes; a `struct<bytes, path>` of Hugging Face gives its bytes. Arrays have their own memory, None stays
    None. Nothing is unpickled unless the caller allows it: any file may call its bytes a pickle.

    Example:
        decode(Json(), b'{"lang": "en"}')  # {"lang": "en"}

    Raises:
        DataError: the bytes do not fit the feature.
    """
    if value is None:
        return None
    return feature.unpickle(value) if allow_pickle else feature.decode(value)


def check_feature(feature: Any) -> None:
    """Raise UsageError if no column can be made for a feature, or if it is none (WrongFeature)."""
    if not isinstance(feature, Feature):
        raise WrongFeature("not a feature", expected="a feature such as Image()", found=str(feature))
    feature.check()


def keeps_files(feature: Feature) -> bool:
    """Return whether videos of a cache column, inside lists and structs too, are in external files."""
    return Video("path") in feature.leaves()


def refuse_untold(feature: Array) -> None:
    """Raise UsageError for an array whose bytes, which have no header, do not determine its shape."""
    shape = feature.shape or ()
    if feature.dtype is not None and (shape.count(None) > 1 or (None in shape and 0 in shape)):
        raise UsageError(
            "bytes alone cannot tell this shape", expected="one extent that varies", found=str(shape),
            advice="Leave the shape out: Array(dtype) keeps it with each value.",
        )  # fmt: skip


def _begins(shape: list[int], found: tuple[int, ...]) -> bool:
    """Return whether an array's extents begin a shape, in which variable extents are -1."""
    return all(known in (-1, extent) for known, extent in zip(shape, found, strict=False))
