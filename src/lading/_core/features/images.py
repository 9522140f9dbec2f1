"""Encode pictures: images of Pillow's and arrays become files, in the format that their field's name says.

An image that lading opens remembers its file in `info`, which Pillow's own functions hand on to the images they make.
So a changed image is encoded as the file was: its format, lossless or lossy; an unchanged image keeps its bytes.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cache
from os import PathLike
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from lading._core.features.encode import media_bytes
from lading.errors import StoreError, Unrepresentable, WrongType

__all__ = [
    "BROKEN",
    "ORIENTATION",
    "SIDEWAYS",
    "STORED",
    "TURNS",
    "ImageSource",
    "encoded_source",
    "held",
    "image_bytes",
    "image_format",
    "is_image",
    "orientation_of",
    "refuse_lost_turn",
    "remember_field",
    "remember_source",
    "shown_upright",
    "source_of",
    "turned",
]

STORED: Final = "_lading_stored"
"""Attribute of the image that lading opened, and of no image that is made of it: the bytes of its file."""
_SOURCE: Final = "lading"
"""Key in `info` of an image of Pillow's."""
ORIENTATION: Final = 0x0112
"""The tag of EXIF data that says how to turn the pixels."""
TURNS: Final = range(1, 9)
"""Values of the tag; 1 for upright pixels."""
SIDEWAYS: Final = range(5, 9)
"""Those that exchange width and height."""
_BYTES_OR_FILES = (bytes, bytearray, memoryview, str, PathLike, Mapping)
_UNCHANGING = (type(None), bool, int, float, complex, str, PathLike, bytes, Decimal, date, time, timedelta, np.generic)
_PICTURE_DTYPES = ("bool", "uint8", "uint16")
_ANYWHERE = ("RGBA", "LA", "PA", "P")
"""Modes that most formats lack, and PNG has."""
_HOLDS_WHAT_IT_TAKES = ("PNG", "JPEG", "MPO", "TIFF")
_JPEG: Mapping[str, Any] = {"quality": 95, "subsampling": 0}
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "JPEG": _JPEG,
    "MPO": _JPEG,
    "WEBP": {"quality": 95},
    "AVIF": {"quality": 95},
}
_LOSSY = ("JPEG", "MPO", "WEBP", "AVIF")
_HAVE_FRAMES = ("GIF", "WEBP", "PNG", "TIFF", "AVIF")
_HAVE_EXIF = ("JPEG", "MPO", "PNG", "WEBP", "AVIF", "TIFF")
_COLOURS: Mapping[str, bytes] = {
    "1": b"GRAY", "L": b"GRAY", "LA": b"GRAY", "I;16": b"GRAY", "CMYK": b"CMYK", "LAB": b"Lab ",
}  # fmt: skip
"""Colour space of an ICC profile that belongs to a mode; that of other modes is `RGB `."""
_NOT_ENCODED = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    struct.error,
)
"""Errors of Pillow for an image that a format cannot hold; AssertionError for a file that was closed."""
BROKEN = (*_NOT_ENCODED, EOFError, AttributeError, SyntaxError, MemoryError)
"""Errors of Pillow's readers, and of other decoders, for bytes that are no file of theirs."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageSource:
    """The file that an image came from.

    Attributes:
        stored: its bytes.
        format: by Pillow's name.
        is_lossless: a WebP file whose pixels are exact.
    """

    stored: bytes
    format: str
    is_lossless: bool = False

    def __eq__(self, other: object) -> bool:
        """All are equal: Pillow compares the `info` of images, and the same pixels may come from two files."""
        return isinstance(other, ImageSource)

    def __hash__(self) -> int:
        return hash(ImageSource)

    def __reduce__(self) -> tuple[type, tuple[bytes, str, bool]]:
        """Leave the bytes out: another process gets the pixels anyway."""
        return type(self), (b"", self.format, self.is_lossless)


def source_of(image: Any) -> ImageSource | None:
    """Return the file that an image came from, if lading opened it, or the image that it was made of."""
    found = getattr(image, "info", {}).get(_SOURCE)
    return found if isinstance(found, ImageSource) else None


def remember_source(image: Any, stored: bytes, name: str | None = None) -> None:
    """Let an image, and the images that Pillow makes of it, know the file it came from.

    Args:
        image: the image.
        stored: bytes of the file.
        name: Pillow's name of the format; by default that of the image.
    """
    name = name or image.format
    if name:
        image.info[_SOURCE] = ImageSource(stored, name, name == "WEBP" and _is_lossless_webp(stored))


def _is_lossless_webp(stored: bytes) -> bool:
    """Return whether the first frame of a WebP file is lossless.

    Source: https://developers.google.com/speed/webp/docs/riff_container
    """
    at = 12
    while at + 8 <= len(stored):
        kind, size = stored[at : at + 4], int.from_bytes(stored[at + 4 : at + 8], "little")
        if kind in (b"VP8L", b"VP8 "):
            return kind == b"VP8L"
        at += 24 if kind == b"ANMF" else 8 + size + size % 2  # a frame holds its own chunks behind 16 bytes
    return False


def remember_field(image: Any, stored: Any) -> None:
    """Let an image without a file take that of the field which it replaces, if that is an image."""
    if source_of(image) is not None or not isinstance(stored, (bytes, memoryview)):
        return
    from PIL import Image

    with suppress(*_NOT_ENCODED), Image.open(io.BytesIO(stored)) as file:
        remember_source(image, bytes(stored), file.format)


def refuse_lost_turn(value: Any, stored: Any) -> None:
    """Refuse a picture that was made anew of stored pixels: nothing in it says that they are still to be turned.

    Args:
        value: an image, an array or a tensor that takes the place of a field.
        stored: the value of the field.

    Raises:
        Unrepresentable: the file is to be turned, and the picture has no EXIF data.
    """
    if not isinstance(stored, (bytes, memoryview)) or (is_image(value) and (source_of(value) or "exif" in value.info)):
        return
    from PIL import Image

    turn = 1
    with suppress(*BROKEN), Image.open(io.BytesIO(stored)) as file:
        turn = orientation_of(file)
    if turn != 1:
        raise Unrepresentable(
            "a picture made anew of stored pixels does not say how it is to be turned",
            expected="an image with EXIF data", found=f"{type(value).__name__}, of a file with orientation {turn}",
            advice='Keep the tag: image = Image.fromarray(…), image.info["exif"] = sample["jpg"].info["exif"]; or work '
            "on upright pixels, without with_decode(upright=False).",
        )  # fmt: skip


def is_image(value: Any) -> bool:
    """Return whether this is an image of Pillow, which is not imported for it."""
    return hasattr(value, "getbands") and hasattr(value, "save")


def image_format(name: str) -> str | None:
    """Return Pillow's name of the format that the ending of a field's name stands for; None for other names.

    Example: `image_format("thumb.jpg")  # "JPEG"`
    """
    from PIL import Image

    Image.init()
    found = Image.EXTENSION.get(f".{name.rpartition('.')[2].lower()}")
    return found if found in Image.SAVE else None


def image_bytes(value: Any, encode_format: str | None = None, name: str = "") -> bytes:
    """Return the encoded image of a value: bytes, a path, a Pillow image or an array.

    Bytes and files stay as they are. So does a Pillow image that still shows the file it was opened from. Others are
    encoded in `encode_format`, or the format of the ending of `name`, or that of the file they came from, or PNG. JPEG
    gets quality 95 without subsampling; a lossless WebP stays lossless. The ICC profile is kept if it is of the mode.
    An image whose pixels are still to be turned keeps the tag that says so.

    Args:
        value: the value. An array is of (height, width) or (height, width, channels).
        encode_format: format that is asked for, by Pillow's name.
        name: of the field.

    Raises:
        WrongType: the value is something else, or an array of other numbers or dimensions.
        Unrepresentable: the format cannot hold the array or mode.
        NotFound, StoreError: as `media_bytes`.
    """
    if isinstance(value, _BYTES_OR_FILES):
        return media_bytes(value)
    from PIL import Image

    wanted = encode_format or image_format(name)
    if isinstance(value, Image.Image):
        stored = encoded_source(value)
        if stored is not None and (wanted is None or _is_of_format(stored, wanted)):
            return stored
        _warn_of_lost_frames(value, wanted, name)
        return _encoded(value, wanted, name) if wanted else _encoded_alike(value, name)
    if isinstance(value, np.ndarray):
        return _encoded(_picture(value), wanted or "PNG", name)
    raise WrongType("not an image", expected="bytes, a path, a Pillow image or an array",
                    found=f"{type(value).__name__} {value!r:.80}")  # fmt: skip


def _warn_of_lost_frames(image: Any, wanted: str | None, name: str) -> None:
    """Warn if a changed image came from a file of several frames, unless another format is wanted, as of a thumbnail.

    The second image of an MPO file is not counted.
    """
    source = source_of(image)
    if source is None or not source.stored or source.format not in _HAVE_FRAMES:
        return
    if wanted and wanted.upper() != source.format:
        return
    from PIL import Image

    with suppress(*BROKEN), Image.open(io.BytesIO(source.stored)) as file:
        if getattr(file, "is_animated", False):
            warnings.warn(f"{name or 'an image'}: a function changed a picture of several frames, and one frame is "
                          "written. Return the bytes of a file to keep all.", stacklevel=2)  # fmt: skip


def _is_of_format(stored: bytes, wanted: str) -> bool:
    from PIL import Image

    with Image.open(io.BytesIO(stored)) as image:
        return image.format == wanted.upper() or (image.format, wanted.upper()) == ("MPO", "JPEG")


def encoded_source(image: Any) -> bytes | None:
    """Return the bytes of the file that an image was read from, if the image still shows them."""
    if getattr(image, "turns_when_read", False):
        return bytes(getattr(image, STORED))
    return None if hasattr(image, "tell") and image.tell() != 0 else _shown_source(image)


def _shown_source(image: Any) -> bytes | None:
    from PIL import Image

    file, source = getattr(image, "fp", None), source_of(image)
    if file is not None and image.format and _is_unread(image):
        with suppress(OSError, ValueError):
            at = file.tell()
            file.seek(0)
            data = bytes(file.read())
            file.seek(at)
            with Image.open(io.BytesIO(data)) as again:
                return data if _seen_alike(image, again) else None
    name = getattr(image, "filename", "") if image.format else ""
    with suppress(OSError, ValueError, AssertionError, StoreError):  # a closed file may raise anything
        data = (source.stored if source else b"") or (media_bytes(name) if name else b"")
        if not data:
            return None
        with Image.open(io.BytesIO(data)) as again:
            turn = 1 if orientation_of(image) != 1 else orientation_of(again)
            sides = sorted(again.size) if turn > 1 else [*again.size]
            if sides != (sorted(image.size) if turn > 1 else [*image.size]) or again.mode != image.mode:
                return None  # without a look at its pixels
            again.load()
            return data if _shows(image, turned(again, turn)) else None
    return None


def _shows(image: Any, other: Any) -> bool:
    """Return whether two images have the same pixels, palettes and transparency."""
    if image.mode != other.mode or image.size != other.size:
        return False
    alike = image.getpalette() == other.getpalette() and image.info.get("transparency") == other.info.get(
        "transparency"
    )
    return bool(alike and image.tobytes() == other.tobytes())


def _is_unread(image: Any) -> bool:
    """Return whether no pixel was read yet, so that none was changed.

    Some formats, such as WebP, have no tiles then.
    """
    if getattr(image, "tile", None):
        return True
    try:
        return getattr(image, "im", None) is None
    except AssertionError:  # Pillow's sign that no pixels are loaded
        return True
    except ValueError:  # it was closed
        return False


def _seen_alike(image: Any, other: Any) -> bool:
    """Return whether two unread images of one file show the same: `draft` and palettes change an image."""
    palettes = [None if each.palette is None else (each.palette.mode, each.palette.palette) for each in (image, other)]
    one, two = ((each.mode, each.size, each.tile, each.info.get("transparency")) for each in (image, other))
    return bool(one == two and palettes[0] == palettes[1])


def orientation_of(image: Any) -> int:
    """Return how the pixels of an image are to be turned, as EXIF says it: 1 if they are upright, or nothing is known.

    Source: Exif 3.0, tag 0x0112.
    """
    if not {"exif", "Raw profile type exif"} & image.info.keys():
        return 1
    try:
        found = image.getexif().get(ORIENTATION)
    except BROKEN:  # of damaged EXIF data nothing is known; the pixels are whole
        return 1
    return found if found in TURNS else 1


def turned(image: Any, orientation: int) -> Any:
    """Return an image whose pixels are turned as its EXIF data say, and which says so no more; its format is kept."""
    if orientation == 1:
        return image
    from PIL import ImageOps

    made = ImageOps.exif_transpose(image)
    made.format = image.format
    return made


_TURNED_WHEN_READ: Final = ("JPEG", "PNG", "WEBP")
"""Formats whose readers leave the turn to others."""


def shown_upright(image: Any) -> Any:
    """Return an image of a file upright. Its pixels are turned when they are read, its size is known before."""
    if image.format == "PNG" and "exif" not in image.info and b"eXIf" in getattr(image, STORED, b""):
        image.load()  # it stands behind the pixels
    orientation = orientation_of(image)
    if orientation == 1:
        return image
    if image.format not in _TURNED_WHEN_READ or getattr(image, "n_frames", 1) > 1 or not _is_unread(image):
        return turned(image, orientation)
    kind: Any = type(image)
    image.__class__ = _turning(kind)
    if orientation in SIDEWAYS:
        image._size = image.size[::-1]  # noqa: SLF001 - as Pillow's reader of TIFF does
    return image


@cache
def _turning(kind: Any) -> Any:
    """Return a class of images that turn when their pixels are read, and are of this class from then on."""

    class Turning(kind):  # type: ignore[misc] # Pillow's class of a format
        turns_when_read = True

        def load(self) -> Any:
            stored_size = self.size[::-1] if orientation_of(self) in SIDEWAYS else self.size
            self.__class__, self._size = kind, stored_size
            self.load()
            from PIL import ImageOps

            ImageOps.exif_transpose(self, in_place=True)
            return self.load()

        def draft(self, _mode: str | None, _size: tuple[int, int] | None) -> None:
            """Change nothing: what a decoder could leave out is counted in stored pixels."""

        def __eq__(self, other: object) -> bool:
            self.load()
            return bool(self == other)

        def __reduce_ex__(self, protocol: Any) -> Any:
            self.load()
            return self.__reduce_ex__(protocol)

        __hash__ = kind.__hash__

    Turning.__name__, Turning.__qualname__, Turning.__module__ = kind.__name__, kind.__qualname__, kind.__module__
    return Turning


def _encoded_alike(image: Any, name: str) -> bytes:
    """Return a Pillow image in the format of its file, or as PNG. If both fail, the error is that of its own format."""
    from PIL import Image

    Image.init()
    source = source_of(image)
    own = source.format if source else image.format
    if own not in Image.SAVE or (image.mode in _ANYWHERE and own not in ("WEBP", "AVIF")):
        return _encoded(image, "PNG", name)
    try:
        return _encoded(image, own, name)
    except Unrepresentable:
        with suppress(Unrepresentable):
            return _encoded(image, "PNG", name)
        raise


def _picture(array: NDArray[Any]) -> Any:
    """Return an array as a Pillow image, if that preserves it: other types would be cut to 8 or 16 bits."""
    from PIL import Image

    if np.ma.is_masked(array):
        raise Unrepresentable("a picture with values left out", expected="an array without a mask")
    flat = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array  # noqa: PLR2004 - one channel
    try:
        if flat.dtype.name not in _PICTURE_DTYPES or not flat.size or flat.ndim not in (2, 3):
            raise TypeError  # noqa: TRY301 - the same answer as Pillow's own
        return Image.fromarray(np.ascontiguousarray(flat, flat.dtype.newbyteorder("=")))
    except (TypeError, ValueError):
        raise WrongType(
            "an array that is not an image",
            expected="bool, uint8 or uint16 of (height, width), or uint8 of (height, width, 1 to 4)",
            found=f"{array.dtype} of {array.shape}",
        ) from None


def _encoded(image: Any, encode_format: str, name: str) -> bytes:
    out, kind = io.BytesIO(), encode_format.upper()
    try:
        image.save(out, format=encode_format, **_parameters(image, kind))
        _refuse_another(image, out, kind)
    except _NOT_ENCODED as error:
        raise Unrepresentable(
            f"this image cannot be encoded as {encode_format}",
            found=f"mode {image.mode}, {image.width} × {image.height}: {str(error) or 'it was closed'}",
            advice=_advice(image, kind, name),
        ) from error
    return out.getvalue()


def _advice(image: Any, kind: str, name: str) -> str:
    if image.mode in ("1", "L", "RGB") or kind not in ("JPEG", "MPO", "WEBP", "BMP", "AVIF"):
        return "Convert it, or encode it yourself and give its bytes."
    field = name or "image"
    return f'Return {{"{field}": image.convert("RGB")}}, or give the image to a field that ends in png.'


def _parameters(image: Any, kind: str) -> dict[str, Any]:
    """Return the parameters by which Pillow saves an image as its file was."""
    source, parameters = source_of(image), {**_PARAMETERS.get(kind, {})}
    if kind == "WEBP" and source is not None and source.is_lossless:
        parameters = {"lossless": True, "exact": True}
    profile = image.info.get("icc_profile")
    fits = isinstance(profile, bytes) and profile[16:20] == _COLOURS.get(image.mode, b"RGB ")
    parameters["icc_profile"] = profile if fits else None
    if (orientation := orientation_of(image)) != 1:
        if kind not in _HAVE_EXIF:
            raise ValueError("it is still to be turned, and this format has no tag that says so")
        from PIL import Image

        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        parameters["exif"] = exif
    return parameters


def _refuse_another(image: Any, file: IO[bytes], kind: str) -> None:
    """Raise ValueError, or Pillow's error, unless a file shows the image: its size, its depth, its pixels.

    Formats that are known to refuse images they cannot hold are not checked; lossy formats change pixels.
    """
    if kind in _HOLDS_WHAT_IT_TAKES and image.mode != "I":  # older Pillows cut these to 16 bits in PNG
        return
    from PIL import Image

    try:
        again = Image.open(file)
    except Image.DecompressionBombError as error:
        raise ValueError(f"it could not be opened again: {error}") from error
    with again:
        if again.size != image.size or _depth(again) < min(_depth(image), 2):
            raise ValueError(f"it would be read back in mode {again.mode}, {again.width} × {again.height}")
        seen_in = "RGBA" if image.mode == "P" else image.mode  # colours may have other numbers in another palette
        if kind not in _LOSSY and again.convert(seen_in).tobytes() != image.convert(seen_in).tobytes():
            raise ValueError("it would be read back with other pixels")


def _depth(image: Any) -> int:
    """Return the bytes of a band's value. Of four bytes, rarely more than two are in use; pixels decide."""
    from PIL import ImageMode

    return np.dtype(ImageMode.getmode(image.mode).typestr).itemsize


def held(value: Any) -> Any:
    """Return a copy of a value that its owner may change or close: arrays, images, lists.

    Paths stay paths.

    Raises:
        TypeError: an unknown kind of value; it may refer to data that others change.
        ValueError: an image that was closed.
    """
    if isinstance(value, _UNCHANGING):
        return value
    if isinstance(value, (bytearray, np.ndarray)):
        return value.copy()
    if isinstance(value, memoryview) and value.format == "B" and value.ndim == 1:
        return memoryview(bytes(value))  # numpy would make a text of bytes
    if isinstance(value, (list, tuple)):
        return [held(item) for item in value]
    if isinstance(value, Mapping):
        return {name: held(item) for name, item in value.items()}
    if not hasattr(value, "getbands"):
        raise TypeError(type(value).__name__)
    return encoded_source(value) or _image_copy(value)


def _image_copy(image: Any) -> Any:
    """Return a copy of a Pillow image."""
    copied = image.copy()
    copied.format = image.format  # a copy has neither format nor file
    return copied
