"""Arrays of `.npy` files, and of values alone; sizes are checked before memory is taken.

Source: numpy lib/format.py, 1.0 to 3.0.
"""

from __future__ import annotations

import ast
import math
from functools import lru_cache
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lading.errors import DataError

__all__ = ["filled", "npy_array", "npy_layout"]

_NPY_HEADER = 10_000
"""Longest header that is parsed, as in numpy (`max_header_size`)."""
_PARSING: Final = Lock()


def filled(kind: np.dtype[Any], shape: tuple[int, ...], data: memoryview, *, fortran: bool = False) -> NDArray[Any]:
    """Return an array over a copy of these values. Raises DataError for another size than the shape says."""
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


def npy_array(data: memoryview) -> NDArray[Any]:
    """Return the array of a `.npy` file; sizes are checked before allocation."""
    start, kind, shape, fortran = npy_layout(data)
    return filled(kind, shape, data[start:], fortran=fortran)


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
        kind, shape, fortran = _npy_header(bytes(data[start : start + length]).decode(encoding))
    except (ValueError, SyntaxError, TypeError, KeyError, IndexError, RecursionError, MemoryError):
        raise DataError("an .npy file with a broken header", found=repr(bytes(data[start : start + 80]))) from None
    if kind.hasobject:
        raise DataError("an .npy file that holds pickled objects", advice="lading does not unpickle; convert it first.")
    return start + length, kind, shape, fortran


@lru_cache(maxsize=128)
def _npy_header(text: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return the type, the shape and the order that a header says.

    Python 3.11 counts the depth of what `ast` parses for all threads together. Two at once raise SystemError.
    """
    with _PARSING:
        header = ast.literal_eval(text.strip())
    return np.lib.format.descr_to_dtype(header["descr"]), _npy_shape(header["shape"]), bool(header["fortran_order"])


def _npy_shape(spec: Any) -> tuple[int, ...]:
    """Return the shape in a header, as numpy accepts it: text, sets and floats are refused."""
    if not isinstance(spec, tuple) or {*map(type, spec)} - {int}:
        raise TypeError
    return spec
