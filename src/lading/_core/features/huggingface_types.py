"""The Arrow types of media and arrays in Hugging Face's datasets library.

Source: datasets 5.2.0 features/features.py (`Array2D` …), image.py, audio.py, video.py.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lading._core.arrow import json_text
from lading._core.arrow.types import arrow_type
from lading._core.features.encode import VIDEO_FIELDS

__all__ = ["ITEM_TYPES", "MAX_DIMENSIONS", "MAX_ITEMS", "MEDIA", "NUMBER_TYPES", "ArrayType", "Form", "array_form",
           "is_media", "keeps_media"]  # fmt: skip

Form: TypeAlias = tuple[pa.DataType, dict[str, Any]]
"""The type in which datasets stores a column, and its feature there."""

NUMBER_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""numpy's names of the number types of arrays, in every format and library that has arrays of one type."""

MEDIA = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
ITEM_TYPES = {name: pa.from_numpy_dtype(np.dtype(name)) for name in NUMBER_TYPES}
"""Item types of the arrays of datasets."""
MAX_DIMENSIONS, MAX_ITEMS = 5, 1 << 31


class ArrayType(pa.ExtensionType):  # type: ignore[misc] # pyarrow has no type information
    """The type of datasets' arrays of 2 to 5 dimensions, serialised as datasets does.

    Not registered, because datasets registers it.

    Args:
        shape: extent of each dimension; of the first one it may be None.
        dtype: numpy's name of the type of the items.
    """

    def __init__(self, shape: tuple[int | None, ...], dtype: str) -> None:
        self.shape, self.dtype = shape, dtype
        storage = arrow_type(dtype)
        for _ in shape:
            storage = pa.list_(storage)
        super().__init__(storage, f"datasets.features.features.Array{len(shape)}DExtensionType")

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __arrow_ext_serialize__(self) -> bytes:
        return json_text.dumps([list(self.shape), self.dtype]).encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> ArrayType:
        shape, dtype = json_text.loads(serialized)
        return cls(tuple(shape), dtype)

    @property
    def form(self) -> Form:
        """Return this type, and the feature of its columns."""
        return self, {"shape": list(self.shape), "dtype": self.dtype, "_type": f"Array{len(self.shape)}D"}


def array_form(dtype: str | None, shape: tuple[int | None, ...] | None) -> Form | None:
    """Return the form of arrays of this type and shape; None if datasets has no feature for them.

    It has none without a common dtype or shape, with no dimension or more than five, with an extent that varies after
    the first or is zero (Parquet loses lists of size zero), and of complex numbers.
    """
    if dtype not in ITEM_TYPES or not shape or len(shape) > MAX_DIMENSIONS:
        return None
    if any(extent is None for extent in shape[1:]) or any(extent is not None and extent < 1 for extent in shape):
        return None
    if len(shape) > 1:
        return ArrayType(shape, dtype).form
    length = -1 if shape[0] is None else shape[0]
    if length >= MAX_ITEMS:
        return None
    spec = {"feature": {"dtype": dtype, "_type": "Value"}, **({} if length < 0 else {"length": length})}
    return pa.list_(ITEM_TYPES[dtype], length), {**spec, "_type": "List"}


def is_media(kind: pa.DataType) -> bool:
    """Return whether a type is a struct of `bytes` and `path`."""
    return bool(pa.types.is_struct(kind) and {child.name for child in kind} == {"bytes", "path"})


def keeps_media(kind: pa.DataType) -> bool:
    """Return whether a type is a struct of `bytes` and `path`, or a video struct of stable-datasets."""
    if is_media(kind):
        return True
    names = {child.name for child in kind} if pa.types.is_struct(kind) else set()
    return names == {*VIDEO_FIELDS}
