"""Encode values as files of the ending that their field has: `jpg`, `wav`, `json`, `cls`, `npy`.

Bytes are written as they are, whatever they hold. A `os.PathLike` is read where files go: a text comes from data, and
a path in a row must not read a file of the machine.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from typing import Any, Final

import numpy as np

from lading._core.arrow import json_text
from lading._core.features.encode import is_tensor, media_bytes, npy_bytes, plain_item
from lading._core.features.images import encoded_source, image_bytes, image_format, is_image
from lading._core.features.types import Array, Audio, Feature, Image, Json, Video, feature_of_extension
from lading.errors import Unrepresentable, WrongType, missing_extra

__all__ = [
    "by_ending",
    "feature_of_ending",
    "file_bytes",
    "is_bytes_or_pictures",
    "picture_bytes",
    "sound_bytes",
    "video_bytes",
]

_BUFFERS = (bytes, bytearray, memoryview)
_NO_ARRAYS: Final = frozenset(
    ("pth", "pt", "pkl", "pickle", "pyd", "npz", "ten", "tb", "safetensors", "msgpack", "mp", "parquet", "pdf")
)
"""Endings of files of other programs: an array under one would be a `.npy` file under another name."""
_COLUMN_NAMES: Final = frozenset(("img", "image"))
"""Endings of images that are names of columns more often, and stand for no format."""
_SOUND_FORMATS: Mapping[str, str] = {"wav": "WAV", "flac": "FLAC", "ogg": "OGG", "oga": "OGG", "mp3": "MP3"}
_SUBTYPES: Mapping[tuple[str, str], str] = {
    ("WAV", "int16"): "PCM_16", ("WAV", "int32"): "PCM_32", ("WAV", "float32"): "FLOAT", ("WAV", "float64"): "DOUBLE",
    ("FLAC", "int16"): "PCM_16",
}  # fmt: skip
"""Types of samples that a file holds exactly."""
_FRAMES_AT_ONCE: Final = 1 << 16
"""Of a million, libvorbis overflows the stack of the process."""
_RATE: Final = 'Give {"array": samples, "sampling_rate": 16000}, or the bytes of a file.'


def feature_of_ending(name: str) -> Feature | None:
    """Return the feature that the ending of a field's name promises; None if it promises nothing."""
    return None if name.rpartition(".")[2].lower() in _COLUMN_NAMES else feature_of_extension(name)


def by_ending(name: str, value: Any) -> Callable[[Any], Any] | None:
    """Return the encoder of values like this one for a field of this name; None where the name promises nothing.

    Raises:
        WrongType: an array, a tensor or an image goes to an ending that stands for something else.
    """
    promised, ending = feature_of_ending(name), name.rpartition(".")[2].lower()
    array = isinstance(value, np.ndarray) or is_tensor(value)
    if promised in _ENCODERS:
        return partial(_ENCODERS[promised], name=name)
    is_plain = promised is not None and (promised.is_text or promised.is_value)
    if (array and ending in _NO_ARRAYS) or (is_image(value) and (is_plain or ending in _NO_ARRAYS)):
        what = "an array" if array else "an image"
        raise WrongType(f"{what} is no {ending}", found=f"{type(value).__name__} in the field {name!r}",
                        advice="Give its bytes, or call the field npy for an array, png for an image.")  # fmt: skip
    return partial(_number, name=name) if promised is not None and promised.is_value and array else None


def is_bytes_or_pictures(values: Iterable[Any]) -> bool:
    """Return whether all values are bytes or pictures: images, and arrays of uint8 with (height, width, 3).

    A list of such values is a list of bytes; other lists are JSON.
    """
    return all(isinstance(value, _BUFFERS) or is_image(value) or _is_picture(value) for value in values)


def _is_picture(value: Any) -> bool:
    if not (isinstance(value, np.ndarray) or is_tensor(value)):
        return False
    shape = tuple(value.shape)
    return len(shape) == len("hwc") and shape[2] == len("rgb") and str(value.dtype).endswith("uint8")


def file_bytes(value: Any, what: str) -> bytes:
    """Return the bytes of a file: bytes as they are, the content of a `PathLike`, the bytes of Hugging Face's struct.

    Raises:
        WrongType: the value is something else, such as a path as text.
        NotFound, StoreError: the file is missing, or cannot be read.
    """
    found = _given_bytes(value, what)
    if found is None:
        raise WrongType(f"no {what}", expected="bytes, or a path as pathlib.Path",
                        found=f"{type(value).__name__} {value!r:.80}")  # fmt: skip
    return found


def _given_bytes(value: Any, what: str) -> bytes | None:
    """Return the bytes of what is a file already; None for other values. Raises WrongType for a text."""
    if isinstance(value, Mapping) and value and value.keys() <= {"bytes", "path"}:
        value = value["path"] if value.get("bytes") is None else value["bytes"]
    if isinstance(value, _BUFFERS):
        return bytes(value)
    if isinstance(value, PathLike):
        return media_bytes(value)
    if isinstance(value, str):
        raise WrongType(f"a text is no {what}", expected="bytes, or a path as pathlib.Path", found=repr(value)[:80],
                        advice="To read a file, give pathlib.Path(…): a text may come from data.")  # fmt: skip
    return None


def picture_bytes(value: Any, encode_format: str | None = None, name: str = "") -> bytes:
    """Return the file of a picture: of bytes, a `PathLike`, an image of Pillow's, an array or a tensor.

    Raises: as `file_bytes` and `_core.features.images.image_bytes`.
    """
    found = _given_bytes(value, "image")
    if found is not None:
        return found
    return image_bytes(np.asarray(value) if is_tensor(value) else value, encode_format, name)


def sound_bytes(value: Any, name: str = "") -> bytes:
    """Return the file of a sound: of bytes, a `PathLike`, or samples with their rate, in the format of a name's ending.

    Samples are `{"array": …, "sampling_rate": …}`: `(time,)`, or `(channels, time)`. WAV holds int16, int32, float32
    and float64 exactly, FLAC int16.

    Raises:
        Unrepresentable: samples without a rate, or of a type that the format does not hold exactly.
        MissingExtra: soundfile is not installed.
        WrongType, NotFound, StoreError: as `file_bytes`.
    """
    found = _given_bytes(value, "sound")
    if found is not None:
        return found
    if not isinstance(value, Mapping) or not {"array", "sampling_rate"} <= value.keys():
        shown = getattr(value, "shape", None) or f"{value!r:.80}"
        raise Unrepresentable("samples of a sound need a rate", expected="an array with its sampling rate, or bytes",
                              found=f"{type(value).__name__} {shown}", advice=_RATE)  # fmt: skip
    samples, rate = np.asarray(value["array"]), plain_item(value["sampling_rate"])
    ending = name.rpartition(".")[2].lower()
    kind = _SOUND_FORMATS.get(ending, "WAV")
    subtype = _SUBTYPES.get((kind, samples.dtype.name))
    if kind in ("WAV", "FLAC") and subtype is None:
        held = ", ".join(dtype for each, dtype in _SUBTYPES if each == kind)
        raise Unrepresentable(f"samples that {kind} would round", expected=held, found=str(samples.dtype),
                              advice="Convert them: (samples * 32767).round().astype('int16').")  # fmt: skip
    if samples.ndim not in (1, 2) or not isinstance(rate, int):
        raise Unrepresentable("no samples of a sound", expected="(time,) or (channels, time), and a whole rate",
                              found=f"shape {samples.shape}, rate {rate!r}")  # fmt: skip
    try:
        import soundfile
    except (ImportError, OSError) as error:
        advice = "Run: pip install 'lading[audio]'."
        raise missing_extra(error, "sound is encoded with soundfile", "soundfile", advice) from error
    out, frames = io.BytesIO(), samples.T
    try:
        with soundfile.SoundFile(
            out, "w", rate, 1 if frames.ndim == 1 else frames.shape[1], subtype, format=kind
        ) as file:
            for begin in range(0, len(frames), _FRAMES_AT_ONCE):
                file.write(frames[begin : begin + _FRAMES_AT_ONCE])
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:
        raise Unrepresentable("the sound cannot be encoded", found=str(error)[:200]) from error
    return out.getvalue()


def video_bytes(value: Any, name: str = "") -> bytes:  # noqa: ARG001 - called as the encoders of other endings
    """Return the file of a video: of bytes, or a `PathLike`. Raises as `file_bytes`."""
    return file_bytes(value, "video")


def _picture(value: Any, name: str) -> bytes:
    found = _given_bytes(value, "image")
    if found is None and image_format(name) is None and not (is_image(value) and (found := encoded_source(value))):
        raise Unrepresentable(f"images cannot be encoded as {name.rpartition('.')[2]}", expected="bytes of such a file",
                              found=type(value).__name__)  # fmt: skip
    return picture_bytes(value, None, name) if found is None else found


def _json(value: Any, name: str) -> str | bytes:
    """Return JSON text; bytes are JSON already."""
    if isinstance(value, _BUFFERS):
        return bytes(value)
    if is_image(value):
        raise WrongType("an image is no JSON", found=f"{type(value).__name__} in the field {name!r}")
    return json_text.dumps(value)


def _array(value: Any, name: str) -> bytes:
    if isinstance(value, _BUFFERS):
        return bytes(value)
    if is_image(value) or isinstance(value, (str, Mapping)):
        raise WrongType("not an array", found=f"{type(value).__name__} in the field {name!r}")
    return npy_bytes(value)


def _number(value: Any, name: str) -> Any:
    """Return the number of a tensor, or of an array of one element."""
    found = plain_item(value)
    if isinstance(found, np.ndarray) or is_tensor(found):
        raise WrongType("several numbers in a field of one", expected="a number",
                        found=f"shape {tuple(found.shape)} in the field {name!r}")  # fmt: skip
    return found


_ENCODERS: Mapping[Feature | None, Callable[..., Any]] = {
    Image(): _picture, Audio(): sound_bytes, Video(): video_bytes, Json(): _json, Array(): _array,
}  # fmt: skip
