"""Arrays as MDS's `ndarray` holds them, and as columns of arrays do: `.npy` files, or values of a known shape."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from lading._core.features.encode import array_bytes, as_bytes
from lading._core.features.mds_values import DTYPES, array_head, array_layout, decode_mds, encode_mds, parse_array
from lading._core.features.npy import npy_layout
from lading._core.features.stored_values import npy_header
from lading._core.features.types import Feature, decode
from lading.errors import Unrepresentable

__all__ = ["array_encoding", "from_ndarray", "is_npy", "to_ndarray"]

_FIRST = 10
"""Bytes of a `.npy` file of version 1 before its header."""
_HEADERS = 4096
"""Headers of `.npy` files that are remembered: a header says a dtype and a shape."""


def array_encoding(feature: Feature) -> str | None:
    """Return MDS's encoding of a column of arrays; None if MDS holds none of them.

    Example:
        array_encoding(Array("float32", (None, 4)))  # "ndarray:float32": each value has its shape
    """
    dtype, shape = feature.array or (None, None)
    if shape is not None and (not shape or 0 in shape or (dtype is not None and shape.count(None) > 1)):
        return None
    if dtype is None:
        return "ndarray"
    whole = shape is not None and None not in shape
    name = f"ndarray:{dtype}" + (":" + ",".join(map(str, shape or ())) if whole else "")
    return None if parse_array(name) is None else name


def is_npy(feature: Feature) -> bool:
    """Return whether bytes of a column of arrays are `.npy` files; otherwise they are the values alone."""
    return feature.array is None or None in feature.array


def to_ndarray(feature: Feature, encoding: str, value: memoryview, *, exact: bool) -> bytes:
    """Return the bytes of an array as MDS's encoding has them.

    Args:
        feature: feature of the column.
        encoding: encoding of arrays.
        value: bytes of the column.
        exact: refuse a `.npy` file that would come back as other bytes, although with equal values.

    Raises:
        Unrepresentable: MDS, or the encoding, cannot hold the array.
        DataError: the bytes are not an array.
    """
    if not is_npy(feature):
        return as_bytes(encode_mds(encoding, decode(feature, value)))
    start = _FIRST + int.from_bytes(value[8:_FIRST], "little")
    known = _as_numpy_writes(bytes(value[:start]), encoding) if bytes(value[6:7]) == b"\x01" else None
    if known is not None and start + known[1] == len(value):
        return b"".join([known[0], value[start:]])
    array = decode(feature, value)
    dtype, _ = parse_array(encoding) or (None, None)
    if dtype not in (None, array.dtype.name):
        raise Unrepresentable("an array of another type than its encoding", expected=encoding, found=str(array.dtype))
    made = as_bytes(encode_mds(encoding, array))
    if exact:
        raise Unrepresentable("a .npy file whose layout MDS would not give back", found=_other_layout(value),
                              expected="C order, little-endian, the header that numpy writes")  # fmt: skip
    return made


def _other_layout(value: memoryview) -> str:
    """Return what differs between a `.npy` file and the file that numpy writes for its array."""
    _, kind, _, fortran = npy_layout(value)
    if fortran or kind.byteorder == ">":
        return "Fortran order" if fortran else "big-endian"
    version = f"{value[6]}.{value[7]}"
    return "a header that numpy would write in other words" if version == "1.0" else f"a header of version {version}"


@lru_cache(_HEADERS)
def _as_numpy_writes(header: bytes, encoding: str) -> tuple[bytes, int] | None:
    """Return MDS's head of an array and the bytes of its values, by the header of its `.npy` file.

    None if MDS cannot hold the array, or numpy writes another header for it.
    """
    _, kind, shape, fortran = npy_layout(memoryview(header))
    dtype, extents = parse_array(encoding) or (None, None)
    if fortran or kind.name not in DTYPES.values() or kind.byteorder == ">" or header != npy_header(kind, shape):
        return None
    if dtype not in (None, kind.name) or extents not in (None, shape) or not shape or 0 in shape:
        return None
    return array_head(kind, shape, dtype, extents), int(np.prod(shape)) * kind.itemsize


def from_ndarray(feature: Feature, encoding: str, value: memoryview) -> bytes:
    """Return the bytes of an array as its column has them; `to_ndarray` reversed. Raises DataError."""
    dtype, shape = feature.array or (None, None)
    if dtype is not None and shape is not None:
        return array_bytes(decode_mds(encoding, value), dtype, shape)
    named: Any = parse_array(encoding)
    kind, extents, at = array_layout(value, *named)
    return b"".join([_header(kind, extents), value[at:]])


_header = lru_cache(_HEADERS)(npy_header)
