"""Encode Python values into stored bytes: files, images, arrays, videos.

`lading.features.decode` reverses it. Files that a value names belong to the caller and are read as they are.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import LadingError, NotFound, StoreError, Unrepresentable, WrongType

__all__ = [
    "VIDEO_FIELDS",
    "array_bytes",
    "array_of",
    "as_bytes",
    "has_shape",
    "is_sha256",
    "is_tensor",
    "media_bytes",
    "npy_bytes",
    "plain_item",
    "video_cell",
    "video_path",
]

VIDEO_FIELDS = ("mode", "path", "bytes", "extension", "media_type", "size", "checksum")
"""Fields of the struct in which a cache stores a video."""

_BUFFERS = (bytes, bytearray, memoryview)
_PATHS = (str, os.PathLike)
_BLOCK_BYTES = 1 << 20
_FIRST_INEXACT = 1 << 53
"""From here on, 64-bit floats skip some integers."""
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_FIRST_VIDEO_EXTENSION = ".mp4"
_VIDEO_TYPES = {
    ".mp4": "video/mp4",
    ".m4v": "video/x-m4v",
    ".mov": "video/quicktime",
    ".avi": "video/x-msvideo",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".mpg": "video/mpeg",
    ".mpeg": "video/mpeg",
}


def as_bytes(value: Any) -> bytes:
    """Return the bytes of a value that is bytes already. Raises Unrepresentable."""
    if isinstance(value, _BUFFERS):
        return bytes(value)
    raise _misfit("this column holds bytes", "bytes", value)


def media_bytes(value: Any) -> bytes:
    """Return bytes as they are; for a path the bytes of the file; for `{"bytes": …, "path": …}` whichever is there.

    Raises:
        Unrepresentable: the value is something else.
        NotFound, StoreError: the file is missing, is not a regular file, or cannot be read.
    """
    if isinstance(value, Mapping) and value and value.keys() <= {"bytes", "path"}:
        value = value.get("path") if value.get("bytes") is None else value["bytes"]
    if isinstance(value, _PATHS):
        with _open(value) as file:
            return file.read()
    if isinstance(value, _BUFFERS):
        return bytes(value)
    raise _misfit("not media", "bytes, or the path of a file", value)


def is_tensor(value: Any) -> bool:
    """Return whether this is a tensor that numpy can take, as of torch, which is not imported for it."""
    known = hasattr(value, "__array__") and hasattr(value, "dtype") and hasattr(value, "shape")
    return known and not isinstance(value, np.generic)


def array_of(
    value: Any, dtype: str | np.dtype[Any] | None = None, shape: Sequence[int | None] | None = None
) -> NDArray[Any]:
    """Return the value as an array, of this dtype and shape if given. Everything that `np.asarray` takes is accepted.

    Floats may round to narrower ones, as the dtype requires; any other value must be kept exactly.

    Raises:
        Unrepresentable: another shape, or values that the dtype cannot hold.
    """
    kind = None if dtype is None else np.dtype(dtype)
    array = _as_array(value, kind)
    if shape is not None:
        _refuse_shape(array, shape)
    return array if kind is None or array.dtype == kind else _cast(array, kind)


def array_bytes(value: Any, dtype: str, shape: Sequence[int | None]) -> bytes:
    """Return the values of an array of this type and shape: C order, little-endian. Raises as `array_of`."""
    return array_of(value, np.dtype(dtype).newbyteorder("<"), shape).tobytes()


def has_shape(array: NDArray[Any], shape: Sequence[int | None]) -> bool:
    """Return whether an array has these extents; None matches any."""
    return array.ndim == len(shape) and all(extent in (None, n) for extent, n in zip(shape, array.shape, strict=True))


def _refuse_shape(array: NDArray[Any], shape: Sequence[int | None]) -> None:
    if not has_shape(array, shape):
        raise Unrepresentable("an array of another shape", expected=_spelled(shape), found=_spelled(array.shape))


def _cast(array: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    numbers = array.dtype.kind in "biuf" and kind.kind in "biuf"
    if not numbers and array.dtype.kind != kind.kind:
        raise Unrepresentable("an array of another type", expected=str(kind), found=str(array.dtype))
    with np.errstate(all="ignore"):
        cast = array.astype(kind, casting="unsafe")
        if array.dtype.kind == kind.kind and kind.kind in "fc":
            same = np.array_equal(np.isinf(cast), np.isinf(array))
        else:
            back = cast.astype(array.dtype, casting="unsafe")  # 2**53 + 1 equals its float, but not the other way round
            same = np.array_equal(cast, array, equal_nan=True) and np.array_equal(back, array, equal_nan=True)
    if not same:
        raise Unrepresentable(f"values that {kind} cannot hold", found=f"an array of {array.dtype}")
    return cast


def npy_bytes(value: Any, dtype: str | None = None, shape: Sequence[int | None] | None = None) -> bytes:
    """Return an array as a `.npy` file in C order, of this dtype and shape if given. Raises as `array_of`.

    So equal arrays have equal bytes, whatever their memory looks like.
    """
    out = io.BytesIO()
    np.save(out, np.asarray(array_of(value, dtype, shape), order="C"), allow_pickle=False)
    return out.getvalue()


def _as_array(value: Any, kind: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Return numpy's array of a value, if that keeps it exactly; integers may need the requested type."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, RuntimeError, np.ma.MaskError) as error:  # a tensor with a gradient, a masked number
        raise _misfit("not an array", "what numpy makes an array of", value, error) from error
    if array.dtype.hasobject:
        raise _misfit("an array of Python objects cannot be stored", "numbers", value)
    listed = isinstance(value, (list, tuple)) and array.dtype.kind in "fc"
    may_be_masked = _is_of_arrays(value) or (listed and np.isnan(array).any())
    if np.ma.is_masked(value) or (may_be_masked and _has_masked(value)):
        raise _misfit("an array with values left out cannot be stored", "an array without a mask", value)
    if isinstance(value, (list, tuple)) and array.dtype.kind in "US" and len(_types_in(value)) > 1:
        raise _misfit("texts and other values do not go together in one array", "an array of one type", value)
    if listed and not _keeps_whole_numbers(array, value):
        if kind is not None and kind.kind in "iu" and _types_in(value) == {int}:
            with suppress(OverflowError):  # for Python's own numbers; numpy's would wrap around
                return np.array(_plain_items(value), kind).reshape(array.shape)
        raise _misfit("whole numbers of this size do not go with floats in one array", "an array of one type", value)
    return array


def _plain_items(value: Sequence[Any]) -> list[Any]:
    """Return the items of lists, at any depth, as Python objects."""
    return [plain_item(item) for item in np.asarray(value, object).ravel()]


def _types_in(value: Sequence[Any]) -> set[type]:
    return {*map(type, _plain_items(value))}


def _is_of_arrays(value: Any) -> bool:
    """Return whether this is a list of arrays, at any depth, judged by the first: checking each number is slow."""
    listed = False
    while isinstance(value, (list, tuple)) and value:
        listed, value = True, value[0]
    return listed and isinstance(value, np.ndarray)


def _has_masked(value: Any) -> bool:
    return any(map(_has_masked, value)) if isinstance(value, (list, tuple)) else bool(np.ma.is_masked(value))


def _keeps_whole_numbers(array: NDArray[Any], value: Sequence[Any]) -> bool:
    """Return whether lists that numpy turns into floats keep all their integers exactly.

    numpy makes floats of integers mixed with floats, and of uint64 mixed with other integers.
    """
    if not (np.abs(array) >= _FIRST_INEXACT).any():
        return True
    pairs = zip(_plain_items(value), array.ravel().tolist(), strict=True)
    return all(type(number) is not int or number == made for number, made in pairs)


def _spelled(shape: Sequence[int | None]) -> str:
    return "(" + ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"


def video_cell(value: Any, assets: str | None = None) -> dict[str, Any]:
    """Return a video as a struct of `VIDEO_FIELDS`: its bytes inside, or stored as a file in `assets`.

    The file is named after its content, `{sha256}{extension}`, and its name is the struct's `path`.

    Args:
        value: a path, bytes (`.mp4` by default), or a mapping with `path` or `bytes`, and optional `extension` and
            `checksum`, which are kept; a SHA-256 must be that of the bytes.
        assets: the folder, created when needed; without it the bytes are stored inside.

    Raises:
        Unrepresentable: the value is something else, or a SHA-256 does not match the bytes.
        NotFound, StoreError: as `media_bytes`, or the file cannot be written.
    """
    fields = value if isinstance(value, Mapping) else {}
    if fields.keys() - {*VIDEO_FIELDS}:
        raise _misfit("not a video", "a mapping of " + ", ".join(VIDEO_FIELDS), sorted(fields.keys() - {*VIDEO_FIELDS}))
    source = value
    if fields:
        source = fields.get("path") if fields.get("bytes") is None else fields["bytes"]
    if not isinstance(source, (*_BUFFERS, *_PATHS)):
        raise _misfit("not a video", "bytes, or the path of a file", source)
    ending = os.path.splitext(os.fspath(source))[1] if isinstance(source, _PATHS) else _FIRST_VIDEO_EXTENSION
    extension = _extension(fields.get("extension") or ending)
    with _open(source) if isinstance(source, _PATHS) else io.BytesIO(source) as file:
        data, name = None, None
        if assets is None:
            data = file.read()
            size, digest = len(data), hashlib.sha256(data).hexdigest()
        else:
            size, digest = _keep(file, assets, extension)
            name = digest + extension
    media_type = _VIDEO_TYPES.get(extension, "application/octet-stream")
    mode = "bytes" if assets is None else "path"
    checksum = fields.get("checksum") or digest
    if is_sha256(checksum) and checksum.lower() != digest:  # otherwise the video would look damaged
        raise Unrepresentable("a video with the checksum of another", expected=f"sha256 {digest}", found=checksum)
    return dict(zip(VIDEO_FIELDS, (mode, name, data, extension, media_type, size, checksum), strict=True))


def video_path(value: Any) -> str:
    """Return the path of a video as text; the file stays where it is and is not opened. Raises Unrepresentable."""
    path = os.fspath(value) if isinstance(value, _PATHS) else value
    if not isinstance(path, str):
        raise _misfit("this column holds paths of videos", "a path", value)
    return path


def is_sha256(checksum: Any) -> bool:
    """Return whether a checksum is a SHA-256, as 64 hex digits."""
    return isinstance(checksum, str) and _SHA256.fullmatch(checksum) is not None


def _extension(name: Any) -> str:
    extension = "." + str(name).lower().removeprefix(".")
    if not extension[1:].isalnum():
        raise Unrepresentable(
            "a video needs an extension", expected="letters and digits, such as .mp4", found=repr(name)
        )
    return extension


def _keep(file: IO[bytes], assets: str, extension: str) -> tuple[int, str]:
    """Copy a file under the name of its content; return size and digest.

    Equal files, also of other threads, become one.
    """
    made = os.path.join(assets, f".{secrets.token_hex(8)}.tmp")
    digest, size = hashlib.sha256(), 0
    try:
        os.makedirs(assets, exist_ok=True)
        with open(made, "xb") as out:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                out.write(block)
                size += len(block)
            out.flush()
            os.fsync(out.fileno())
        os.replace(made, os.path.join(assets, digest.hexdigest() + extension))
    except OSError as error:
        with suppress(OSError):
            os.unlink(made)
        raise StoreError(f"the file cannot be kept: {error.strerror}", file=assets) from error
    return size, digest.hexdigest()


@contextmanager
def _open(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a regular file for reading. Raises NotFound, StoreError."""
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):  # opening a pipe would block
            raise StoreError("not a file", file=name, expected="a regular file")
        with open(name, "rb") as file:
            yield file
    except FileNotFoundError as error:
        raise NotFound("no such file", file=name) from error
    except (OSError, ValueError) as error:
        if isinstance(error, LadingError):
            raise
        raise StoreError(f"the file cannot be read: {error}", file=ascii(name)) from error


def _misfit(message: str, expected: str, value: Any, error: Exception | None = None) -> WrongType:
    shown = repr(value) if isinstance(value, (str, int, float, list)) else str(error or "")
    return WrongType(message, expected=expected, found=f"{type(value).__name__} {shown[:80]}".strip())


def plain_item(value: Any) -> Any:
    """Return a numpy number, or the only one of an array or tensor, as a Python number; None if it is masked.

    Anything else is unchanged, also numpy's dates.
    """
    number = isinstance(value, np.generic)
    if not number and not isinstance(value, np.ndarray) and hasattr(value, "item") and hasattr(value, "dtype"):
        with suppress(ValueError, RuntimeError):  # it has several numbers
            return value.item()
    if isinstance(value, np.ndarray) and value.size == 1:
        if np.ma.is_masked(value):  # a masked value is meaningless
            return None
        number = True
    return value.item() if number and value.dtype.kind in "biufcUS" else value
