"""Decode stored values into what a model takes: pixels, sound, arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from lading._core.content.media_files import VideoFile
from lading._core.features.types import Feature, Image, decode
from lading._core.storage.threads import Running
from lading._core.train.images import AS_THEY_ARE, Pictures, Way, as_pixels
from lading._core.train.sounds import as_sound
from lading._core.train.tensors import torch_here
from lading.errors import DataError, FunctionError, LadingError, UsageError, missing_extra

__all__ = [
    "Decode",
    "as_tensors",
    "decoder_of",
    "holds_images",
    "holds_media",
    "of_function",
    "takes_rng",
]

Decode: TypeAlias = Way | Pictures | Callable[..., Any] | None
"""What the values of a column become: an image of Pillow's, an array, a tensor; pixels by `lading.train.images`; the
result of a function of the value that `ds.with_decode(False)[i]` has, such as the bytes of an image; or that value
itself for None. A function with an attribute `draws` that is True is given the generator of the sample, too."""

_IMAGES_OF_MDS = {"list[pil]", "list[jpeg]", "list[png]", "jpeg_array", "jpegarray"}
_SAFETENSORS = "safetensors"


def decoder_of(
    name: str, feature: Feature, way: Callable[..., Any] | Way | None, pictures: Pictures = AS_THEY_ARE
) -> Callable[..., Any]:
    """Return the function that decodes a stored value of a column, which is not None.

    It is given the generator of the sample, too, if the way or the pictures draw.

    Args:
        name: of the column.
        feature: of the column.
        way: what the value becomes.
        pictures: how images become pixels.

    Raises:
        UsageError: the way does not suit the feature.
    """
    if callable(way):
        return lambda value, *rng: _called(way, decode(feature, value), *rng)
    if way is None:
        return partial(decode, feature)
    if feature.is_bytes:
        if _is_safetensors(name):
            return lambda value: as_tensors(value, way)
        feature = Image()  # the user says so
    if way == "torch" and feature.array is not None:
        return lambda value: torch_here().from_numpy(decode(feature, value))
    if way == "pil" and "audio" in _media_in(feature):
        raise UsageError("audio is no image of Pillow's", expected="numpy, torch, None or a function",
                         found=f"decode={{{name!r}: 'pil'}}")  # fmt: skip
    if not holds_media(name, feature) and feature.array is None:
        raise UsageError("only media, arrays and bytes can be decoded in this way", expected="None or a function",
                         found=f"decode={{{name!r}: {way!r}}} of a column of {type(feature).__name__}")  # fmt: skip
    return lambda value, rng=None: _media(feature, decode(feature, value), way, pictures, rng)


def takes_rng(way: Decode) -> bool:
    """Return whether a decoder is given the generator of the sample beside each value."""
    return getattr(way, "draws", False) is True


def holds_media(name: str, feature: Feature) -> bool:
    """Return whether values of a column are decoded by default: media, also inside lists and structs; safetensors."""
    return bool(_media_in(feature)) or (feature.is_bytes and _is_safetensors(name))


def holds_images(feature: Feature) -> bool:
    """Return whether a column holds images, also inside lists and structs."""
    return "image" in _media_in(feature)


def _is_safetensors(name: str) -> bool:
    return name.rpartition(".")[2].lower() == _SAFETENSORS


def _media_in(feature: Feature) -> set[str]:
    """Return the kinds of media in a column, also inside lists and structs."""
    encoded = {"pil", *_IMAGES_OF_MDS}
    return {leaf.medium or "image" for leaf in feature.leaves() if leaf.is_media or leaf.mds_encoding in encoded}


def _media(feature: Feature, value: Any, way: Way, pictures: Pictures, rng: np.random.Generator | None = None) -> Any:
    """Return a value with its media decoded, also inside lists and structs."""
    return feature.changed(value, lambda leaf, inside: _medium(leaf, inside, way, pictures, rng))


def _medium(feature: Feature, value: Any, way: Way, pictures: Pictures, rng: np.random.Generator | None) -> Any:
    if feature.mds_encoding in _IMAGES_OF_MDS:
        return [as_pixels(item, way, pictures, rng) for item in value]
    if value is None or not (feature.is_media or feature.mds_encoding == "pil"):
        return value
    stored = _stored(value)
    if stored is None or feature.medium == "video":
        return stored if stored is None else VideoFile(stored)
    return (
        as_sound(stored, torch=way == "torch") if feature.medium == "audio" else as_pixels(stored, way, pictures, rng)
    )


def _stored(value: Any) -> Any:
    """Return bytes, or an image of Pillow's; None for a struct of Hugging Face without bytes and path."""
    if not isinstance(value, dict):
        return value
    if value.get("path") is None:
        return None
    raise DataError("the column has the path of the file, and not its bytes", found=repr(value["path"])[:200],
                    advice="Write the dataset with the bytes inside, or read the file in a transform=.")  # fmt: skip


# Arrays


def as_tensors(data: bytes, way: Way) -> dict[str, Any]:
    """Return the arrays, or tensors, of a safetensors file, by name.

    Raises:
        DataError: the bytes are no safetensors file, or numpy lacks the type of an array.
        MissingExtra: safetensors, or torch, is not installed.
    """
    if way == "torch":
        torch_here()
    try:
        files: Any = import_module("safetensors.torch" if way == "torch" else "safetensors.numpy")
    except ImportError as error:
        advice = "Install it: pip install 'lading[safetensors]'. Or take the bytes: decode=False."
        raise missing_extra(error, "safetensors files are read with safetensors", "safetensors", advice) from error
    try:
        found: dict[str, Any] = files.load(bytes(data))
    except Exception as error:
        raise DataError("the safetensors file cannot be decoded", found=f"{type(error).__name__}: {error}"[:200],
                        advice="Tensors know more types than arrays: decode={column: 'torch'}."
                        ) from error  # fmt: skip
    return found


# Functions of users


def of_function(verb: str, error: Exception, key: Any = None) -> LadingError:
    """Return the error of a user's function as an error of lading's."""
    if isinstance(error, LadingError):
        return error
    made = FunctionError(
        f"the function of {verb} raised an error", sample=key, found=f"{type(error).__name__}: {error}",
        advice="Correct the function.",
    )  # fmt: skip
    made.__cause__ = error
    return made


def _called(function: Callable[..., Any], value: Any, *rng: np.random.Generator) -> Any:
    try:
        with Running(function):
            return function(value, *rng)
    except LadingError:
        raise
    except Exception as error:
        raise of_function("decode", error) from error
