"""Values in encodings of MosaicML's MDS for which Arrow has no type, from Python values and to them.

    ndarray[:dtype[:d0,d1,…]]     [dtype byte] [ndim << 2 | k, ndim extents of 2^k bytes] values in C order, little-
                                  endian; without the dtype byte or the shape where the encoding names them
    pil                           uint32 width, height, size of the mode; mode; pixels
    list[pil], list[jpeg], …      uint32 0, uint32 n, uint32 size × n, elements
    jpeg_array, jpegarray         uint32 n, uint32 size × n, JPEGs
    str_int, str_float, …         text
    pkl                           a pickle, which runs code when it is read

All sizes are checked against the actual bytes before memory is allocated.

Source: mosaicml-streaming 0.13.0, base/format/mds/encodings.py.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading._core.features.encode import array_of, plain_item
from lading._core.features.images import image_bytes, is_image, orientation_of, turned
from lading.errors import DataError, Unrepresentable, WrongType

__all__ = ["DTYPES", "array_head", "array_layout", "decode_mds", "encode_mds", "is_encoding", "parse_array"]

DTYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32", 34: "float32",
    64: "uint64", 65: "int64", 66: "float64",
}  # fmt: skip
"""Types of array values, by their byte codes."""

_CODES = {name: code for code, name in DTYPES.items()}

_BITS = {
    "1": 1, "L": 8, "P": 8, "LA": 16, "PA": 16, "La": 16, "RGB": 24, "YCbCr": 24, "LAB": 24, "HSV": 24, "RGBA": 32,
    "RGBa": 32, "RGBX": 32, "CMYK": 32, "I": 32, "F": 32, "I;16": 16, "I;16L": 16, "I;16B": 16, "I;16N": 16,
}  # fmt: skip
"""Bits of a pixel, by Pillow's name of the mode; rows are padded to whole bytes."""

_MAX_EMPTY = (1 << 16) - 1
"""Maximum extent of an image without pixels: Pillow takes 8 bytes for each of its rows, and no data vouch for them."""
_PICKLE = "pkl"
_MAX_EXTENTS = 63
_DIGITS = 4300
"""Maximum digits of a number as text: Python takes quadratic time for them."""


def is_encoding(name: str) -> bool:
    """Return whether `decode_mds` knows this encoding; for arrays, whether dtype and shape are possible."""
    return name == _PICKLE or name in _DECODERS or parse_array(name) is not None


def parse_array(encoding: str) -> tuple[str | None, tuple[int, ...] | None] | None:
    """Return dtype and shape of an array encoding, each None if the values have it; None for other encodings."""
    kind, *parts = encoding.split(":")
    if kind != "ndarray" or len(parts) > 2 or (parts and parts[0] not in DTYPES.values()):  # noqa: PLR2004 - dtype, shape
        return None
    if len(parts) > 1 and parts[1].count(",") >= _MAX_EXTENTS:
        return None
    try:
        shape = tuple(map(int, parts[1].split(","))) if len(parts) > 1 else None
    except ValueError:
        return None
    return None if shape is not None and min(shape) < 1 else (parts[0] if parts else None, shape)


def decode_mds(encoding: str, value: bytes | memoryview | str, *, allow_pickle: bool = False) -> Any:
    """Return the Python value: a numpy array, a Pillow image, a list of images or of their bytes, int, float, Decimal.

    A pickle stays bytes unless it is allowed: reading a pickle runs any code in it.

    Raises:
        DataError: the bytes do not match the encoding.
    """
    if encoding == _PICKLE:
        return _unpickled(value) if allow_pickle else value
    if not isinstance(value, (bytes, bytearray, memoryview, str)):
        raise DataError("not a value of MDS, although the column's feature says so", expected=encoding,
                        found=type(value).__name__)  # fmt: skip
    decoder = _DECODERS.get(encoding)
    if decoder is not None:
        return decoder(value)
    array = parse_array(encoding)
    if array is None:
        raise DataError("not an encoding of MDS", found=repr(encoding))
    return _array(_bytes(value), *array)


def encode_mds(encoding: str, value: Any) -> bytes | str:
    """Return a Python value as the peer's writer stores it. Bytes must be a value of this encoding already.

    Raises:
        Unrepresentable: the encoding cannot hold the value, or is that of pickles.
        DataError: bytes that are nothing of the encoding.
        WrongType: a value of another kind.
    """
    array = parse_array(encoding)
    if isinstance(value, (bytes, bytearray, memoryview)) and (encoding in (*_DECODERS, _PICKLE) or array is not None):
        if encoding != _PICKLE:
            decode_mds(encoding, bytes(value))
        return bytes(value)
    if encoding in _ENCODERS:
        return _ENCODERS[encoding](value)
    if array is None:
        raise Unrepresentable("lading writes no pickles", expected="another encoding of MDS", found=encoding)
    return _array_bytes(value, *array)


def _array_bytes(value: Any, dtype: str | None, shape: tuple[int, ...] | None) -> bytes:
    array = array_of(value, dtype, shape)
    if array.dtype.kind == "f" and getattr(value, "dtype", None) != array.dtype:
        _refuse_rounded(array, array_of(value))
    head = array_head(array.dtype, array.shape, dtype, shape)
    return head + array.astype(array.dtype.newbyteorder("<")).tobytes()


def _refuse_rounded(array: NDArray[Any], given: NDArray[Any]) -> None:
    """Raise Unrepresentable for floats that the dtype of an encoding would round; the peer refuses another dtype."""
    changed = (array != given) & ~np.isnan(given)
    if changed.any():
        raise Unrepresentable(
            f"values that {array.dtype} would round", found=f"{given.dtype} {given[changed][0].item()!r}",
            advice=f'Round first: np.asarray(value, "{array.dtype}"). Or keep all bits: columns={{"name": "ndarray"}}.',
        )  # fmt: skip


def array_head(
    kind: np.dtype[Any], shape: tuple[int, ...], named: str | None, named_shape: tuple[int, ...] | None
) -> bytes:
    """Return the bytes before the values of an array, little-endian and in C order, in an encoding of arrays.

    Args:
        kind: dtype of the array.
        shape: its shape.
        named: dtype in the encoding, as `parse_array` gives it; None if each value has its own.
        named_shape: likewise the shape.

    Raises:
        Unrepresentable: MDS has no code for the dtype, or the array has no items or no dimensions.
    """
    code = _CODES.get(kind.name)
    if code is None or 0 in shape or not 1 <= len(shape) <= _MAX_EXTENTS:
        raise Unrepresentable(
            "an array that MDS cannot hold", expected="at least one number, of int8 to uint64 or float16 to float64",
            found=f"{kind} of shape {shape}", advice='Keep a .npy file: columns={"name": "bytes"}.',
        )  # fmt: skip
    head = b"" if named is not None else bytes([code])
    if named_shape is not None:
        return head
    width = next(k for k in range(4) if max(shape) < 1 << (8 << k))
    return head + bytes([len(shape) << 2 | width]) + np.array(shape, f"<u{1 << width}").tobytes()


def _raw_image(value: Any) -> bytes:
    if not is_image(value):
        raise WrongType("not an image", expected="an image of Pillow's", found=type(value).__name__)
    value = turned(value, orientation_of(value))  # raw pixels have no place for a tag
    mode: bytes = value.mode.encode()
    return b"".join([np.array([value.width, value.height, len(mode)], "<u4").tobytes(), mode, value.tobytes()])


def _image_file(value: Any, *, kind: str) -> bytes:
    return image_bytes(value, None if isinstance(value, bytes) else kind)


def _list_bytes(value: Any, *, head: bytes, element: Callable[[Any], bytes]) -> bytes:
    if not isinstance(value, (list, tuple)):
        raise WrongType("not a list", expected="a list of images", found=type(value).__name__)
    made = [element(item) for item in value]
    return b"".join([head, np.array([len(made), *map(len, made)], "<u4").tobytes(), *made])


def _digits(value: Any, *, kind: type) -> str:
    found = value if isinstance(value, str) else plain_item(value)
    if isinstance(found, str):
        _number(found, kind=kind)
        return found
    if isinstance(found, bool) or not isinstance(found, kind):
        raise WrongType(
            "not a number of this kind", expected=kind.__name__, found=f"{type(value).__name__} {value!r:.40}"
        )
    return str(found)


def _bytes(value: bytes | memoryview | str) -> memoryview:
    return memoryview(value.encode() if isinstance(value, str) else value)


def _array(data: memoryview, dtype: str | None, shape: tuple[int, ...] | None) -> NDArray[Any]:
    kind, extents, at = array_layout(data, dtype, shape)
    return np.ndarray(extents, kind, data[at:]).copy()


def array_layout(
    data: memoryview, dtype: str | None, shape: tuple[int, ...] | None
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return dtype and shape of an array in an encoding with this dtype and shape, and where its values begin.

    Raises:
        DataError: the bytes do not match the encoding.
    """
    at = 0
    if dtype is None:
        number = data[0] if len(data) else None
        dtype, at = DTYPES.get(number) if number is not None else None, 1
        if dtype is None:
            raise DataError("an array of an unknown type", expected=f"a byte of {[*DTYPES]}", found=number)
    if shape is None:
        shape, at = _shape(data, at)
    kind = np.dtype(dtype).newbyteorder("<")
    if math.prod(shape) * kind.itemsize != len(data) - at:
        raise DataError("an array of another size than its shape says", expected=f"{list(shape)} of {dtype}",
                        found=f"{len(data) - at} bytes")  # fmt: skip
    return kind, shape, at


def _shape(data: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    count, width = divmod(data[at], 4) if at < len(data) else (0, 0)
    end = at + 1 + (count << width)
    if not count or end > len(data):
        raise DataError("an array without its shape", expected="1 to 63 extents", found=f"{len(data)} bytes")
    extents = np.frombuffer(data[at + 1 : end], f"<u{1 << width}").tolist()
    if 0 in extents:
        raise DataError("an array with an extent of 0", found=extents[:8])
    return tuple(extents), end


def _numbers(data: memoryview, at: int, count: int) -> list[int]:
    """Return `count` uint32 from a place on. Raises DataError if the bytes end before."""
    if at + 4 * count > len(data):
        raise DataError("a value that ends too early", expected=f"{at + 4 * count} bytes", found=len(data))
    return list(np.frombuffer(data[at : at + 4 * count], "<u4").tolist())


def _image(value: bytes | memoryview | str) -> Any:
    data = _bytes(value)
    width, height, size = _numbers(data, 0, 3)
    mode = bytes(data[12 : 12 + size]).decode("latin-1") if size <= 8 else ""  # noqa: PLR2004 - names are short
    bits, pixels = _BITS.get(mode), data[12 + size :]
    if bits is None:
        raise DataError("an image of an unknown mode", expected=", ".join(_BITS), found=bytes(data[12:28]))
    if (width * bits + 7) // 8 * height != len(pixels):
        raise DataError("an image with another number of pixels than its size says",
                        expected=f"{width} × {height} of mode {mode}", found=f"{len(pixels)} bytes")  # fmt: skip
    if not pixels and max(width, height) > _MAX_EMPTY:
        raise DataError("an image without pixels", expected=f"extents up to {_MAX_EMPTY}", found=f"{width} × {height}")
    from PIL import Image

    try:
        return Image.frombytes(mode, (width, height), bytes(pixels))
    except (ValueError, OverflowError) as error:
        raise DataError("an image that Pillow does not take", found=str(error)) from None


def _elements(data: memoryview, at: int) -> Iterator[memoryview]:
    """Return the elements after a count at a place, and their sizes; they must fill the value exactly."""
    [count] = _numbers(data, at, 1)
    sizes = _numbers(data, at + 4, count)
    start = at + 4 + 4 * count
    if start + sum(sizes) != len(data):
        raise DataError("a list of another size than its elements", expected=f"{sum(sizes)} bytes",
                        found=f"{len(data) - start}")  # fmt: skip
    for size in sizes:
        yield data[start : start + size]
        start += size


def _list(value: bytes | memoryview | str, *, at: int, element: Callable[[memoryview], Any] = bytes) -> list[Any]:
    return [element(part) for part in _elements(_bytes(value), at)]


def _number(value: bytes | memoryview | str, *, kind: Callable[[str], Any]) -> Any:
    text = value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")
    try:
        return kind(text)
    except (ValueError, InvalidOperation):
        raise DataError("not a number", expected=f"at most {_DIGITS} digits", found=repr(text[:40])) from None


def _unpickled(value: bytes | memoryview | str) -> Any:
    try:
        return pickle.loads(_bytes(value))  # noqa: S301 - the user asked for it by name: allow_pickle
    except Exception as error:  # a pickle may raise anything
        raise DataError("a pickle that cannot be read", found=f"{type(error).__name__}: {error}") from error


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "pil": _image,
    "list[pil]": partial(_list, at=4, element=_image),
    "list[jpeg]": partial(_list, at=4),
    "list[png]": partial(_list, at=4),
    "jpeg_array": partial(_list, at=0),
    "jpegarray": partial(_list, at=0),
    "str_int": partial(_number, kind=int),
    "str_float": partial(_number, kind=float),
    "str_decimal": partial(_number, kind=Decimal),
}

_JPEGS = partial(_list_bytes, head=b"", element=partial(_image_file, kind="JPEG"))
_LIST_HEAD = bytes(4)
_ENCODERS: dict[str, Callable[[Any], bytes | str]] = {
    "pil": _raw_image,
    "list[pil]": partial(_list_bytes, head=_LIST_HEAD, element=_raw_image),
    "list[jpeg]": partial(_list_bytes, head=_LIST_HEAD, element=partial(_image_file, kind="JPEG")),
    "list[png]": partial(_list_bytes, head=_LIST_HEAD, element=partial(_image_file, kind="PNG")),
    "jpeg_array": _JPEGS,
    "jpegarray": _JPEGS,
    "str_int": partial(_digits, kind=int),
    "str_float": partial(_digits, kind=float),
    "str_decimal": partial(_digits, kind=Decimal),
}
