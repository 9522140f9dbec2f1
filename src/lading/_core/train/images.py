"""Images as pixels: upright, in RGB, resized to a size by stretching, cropping or padding, cut and mirrored at random.

An image draws the same numbers whatever is done with them. So images of one sample that are drawn for alike, such as a
photo and its mask in two columns, are cut and mirrored alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isqrt, sqrt
from typing import Any, Final, Literal, TypeAlias, TypeGuard, get_args

import numpy as np

from lading._core.arguments import public, shown_call
from lading._core.content.media_files import open_image
from lading._core.features.images import BROKEN, SIDEWAYS, orientation_of
from lading._core.train.tensors import torch_here
from lading.errors import DataError, UsageError

__all__ = [
    "AS_THEY_ARE",
    "Fit",
    "ImageSize",
    "Pictures",
    "Size",
    "Way",
    "as_pixels",
    "aspect_buckets",
    "images",
    "is_several",
    "refuse_wrong_fit",
    "rgb_image",
    "size_of",
    "sizes_of",
]

Way: TypeAlias = Literal["pil", "numpy", "torch"]
"""An image of Pillow's, arrays, or tensors."""

Fit: TypeAlias = Literal["stretch", "crop", "pad", "shortest"]
"""How an image comes to a size: proportions change; what juts out is cut off on both sides; black bars fill the rest;
or the shorter side has the size, and the longer one follows."""

Size: TypeAlias = tuple[int, int]
"""Height and width."""

ImageSize: TypeAlias = int | Size | Sequence[Size] | None
"""Height and width, a number for both; several sizes, of which each batch has one; None for the size of each image."""

_Box: TypeAlias = tuple[float, float, float, float]
"""Left, upper, right and lower edge, in pixels."""

_FORMATS_WITH_DRAFT: Final = ("JPEG", "MPO")
_TURNS: Final = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
"""Pillow's `Transpose` for values of the orientation in EXIF data, as in `PIL.ImageOps.exif_transpose`."""
_LEFT_IS_RIGHT: Final = (2, 3, 6, 7)
_TOP_IS_BOTTOM: Final = (3, 4, 7, 8)
"""Orientations whose pixels are mirrored before height and width change places."""
_LEFT_TO_RIGHT: Final = 0
"""Pillow's `Transpose` that mirrors an image."""
_BILINEAR: Final = 2
_ROUNDING: Final = 1e-6
_RATIO: Final = (3 / 4, 4 / 3)
_TRIES: Final = 10
_OF_A_TRY: Final = 4
_NUMBERS: Final = 1 + _TRIES * _OF_A_TRY
"""That an image draws: one for whether it is mirrored, and those of each try to cut it."""


@dataclass(frozen=True, slots=True, repr=False)
class Pictures:
    """How the images of a column become pixels.

    Attributes:
        size: height and width; None for those of each image, or of the loader's `image_size`.
        fit: how an image comes to the size; None for that of the loader.
        random_crop: least and most share of the area that is kept of an image; None keeps what the fit does.
        ratio: least and most proportion, width to height, of what is kept, in proportions of the size.
        flip: probability that an image is mirrored.
    """

    size: Size | None = None
    fit: Fit | None = None
    random_crop: tuple[float, float] | None = None
    ratio: tuple[float, float] = _RATIO
    flip: float = 0.0

    def __repr__(self) -> str:
        return shown_call("lading.train.images", self)

    @property
    def draws(self) -> bool:
        """Whether the images of a sample need its generator."""
        return self.random_crop is not None or self.flip > 0

    @property
    def is_even(self) -> bool:
        """Whether all images have one size."""
        return self.size is not None and (self.fit != "shortest" or self.random_crop is not None)

    def within(self, size: Size | None, fit: Fit) -> Pictures:
        """These, with the size and the fit of a loader where they have none."""
        return replace(self, size=self.size or size, fit=self.fit or fit)


AS_THEY_ARE: Final = Pictures()


_OF_OTHERS: Final = {
    "scale": "Write random_crop=(0.08, 1): the least and the most share of the area.",
    "crop": 'Write fit="crop" for the middle, or random_crop=(0.08, 1).',
    "center_crop": 'Write fit="crop".',
    "p": "Write flip=0.5.",
    "image_size": "Write size=224, or leave it to the loader.",
}
"""Arguments of torchvision's transforms, and of the loader."""


@public("lading.train.images", _OF_OTHERS)
def images(
    size: int | Size | None = None,
    *,
    fit: Fit | None = None,
    random_crop: tuple[float, float] | None = None,
    ratio: tuple[float, float] = _RATIO,
    flip: float = 0.0,
) -> Pictures:
    """Say how the images of a column become pixels: resized, cropped and mirrored at random.

    The column is an array, as with `image_size`, and JPEGs are decoded no larger than needed. What is random is drawn
    from the seed, the epoch and the place of the sample in the order: a resumed job draws the same numbers, with any
    ranks and workers. Columns of a sample with equal arguments are cut and mirrored alike; images in one list are not.

    Example:
        crops = lading.train.images(224, random_crop=(0.08, 1), flip=0.5)
        lading.loader("train/*.tar", 64, shuffle=True, decode={"jpg": crops})

    Args:
        size: height and width, one number for both; by default the `image_size` of the loader.
        fit: how images come to the size, as `lading.loader` takes it; by default as there.
        random_crop: least and most share of an image's area. The part of a random share, proportion and place is
            stretched to the size: torchvision's `RandomResizedCrop` has `(0.08, 1)`.
        ratio: least and most proportion of the part, width to height, as a multiple of that of the size; `(1, 1)` keeps
            proportions. Where ten draws do not fit into the image, it is the largest part in the middle.
        flip: probability that an image is mirrored, left to right.

    Raises:
        UsageError: an argument is wrong, or changes nothing beside the others.
    """
    found = Pictures(size_of(size, "size"), fit, random_crop, ratio, flip)
    if random_crop is not None and not _are_bounds(random_crop, 1):
        raise UsageError("random_crop is the least and the most share of an image's area", expected="such as (0.08, 1)",
                         found=repr(random_crop))  # fmt: skip
    if not _are_bounds(ratio) or (random_crop is None and ratio != _RATIO):
        raise UsageError("ratio is the least and the most proportion of a random crop",
                         expected="such as (3/4, 4/3), with random_crop", found=repr(ratio))  # fmt: skip
    if type(flip) not in (int, float) or not 0 <= flip <= 1:
        raise UsageError("flip is a probability", expected="a number from 0 to 1", found=repr(flip))
    if fit is not None and random_crop is not None:
        raise UsageError("a random crop is stretched to the size", found=f"fit={fit!r} with random_crop",
                         advice="Leave fit out. random_crop with ratio=(1, 1) keeps proportions.")  # fmt: skip
    if fit not in (None, *get_args(Fit)) or found.size is not None:
        refuse_wrong_fit(fit, sizes_of(found.size))
    return found


def _are_bounds(value: Any, most: float = inf) -> bool:
    """Whether a value is two numbers above 0, the smaller first."""
    if not isinstance(value, (tuple, list)) or [type(each) in (int, float) for each in value] != [True, True]:
        return False
    return bool(0 < value[0] <= value[1] <= most and value[1] < inf)


def size_of(given: int | Size | None, name: str = "image_size") -> Size | None:
    """Return height and width, for which one number may stand. Raises UsageError for other values of an argument."""
    if given is None:
        return None
    size = given if isinstance(given, (tuple, list)) else (given, given)
    wrong = any(isinstance(each, bool) or not isinstance(each, (int, np.integer)) or each < 1 for each in size)
    if len(size) != 2 or wrong:  # noqa: PLR2004 - height and width
        raise UsageError(f"{name} is a number of at least 1, or height and width", found=repr(given)[:200],
                         expected=f"such as {name}=224 or {name}=(224, 320)")  # fmt: skip
    return int(size[0]), int(size[1])


def is_several(image_size: ImageSize) -> TypeGuard[Sequence[Size]]:
    """Return whether an `image_size` is a list of sizes, of which each batch has one."""
    if not isinstance(image_size, (tuple, list)) or not image_size:
        return False
    return all(isinstance(each, (tuple, list)) for each in image_size)


def sizes_of(image_size: ImageSize) -> tuple[Size, ...]:
    """Return the sizes that batches may have: none, one, or those of a list. Raises UsageError for other values."""
    one: Any = image_size  # or no size, which `size_of` refuses
    sizes = [size for each in (one if is_several(image_size) else [one]) if (size := size_of(each)) is not None]
    if len({*sizes}) < len(sizes):
        raise UsageError("image_size has a size twice", found=repr(image_size)[:200], advice="Name each size once.")
    return tuple(sizes)


def refuse_wrong_fit(fit: Fit | None, sizes: Sequence[Size]) -> None:
    """Raise UsageError for a `fit` that is none, has no size, or does not suit the sizes."""
    if fit is None:
        return
    if fit not in get_args(Fit):
        raise UsageError("no such fit", expected=", ".join(get_args(Fit)), found=repr(fit))
    if not sizes:
        raise UsageError("fit says how images come to a size, and there is none", found=f"fit={fit!r}",
                         advice="Add image_size=224, or leave fit out.")  # fmt: skip
    if fit == "shortest" and (len(sizes) > 1 or sizes[0][0] != sizes[0][1]):
        raise UsageError("the shortest side is one number", expected="such as image_size=224",
                         found=f"image_size={sizes[0] if len(sizes) == 1 else [*sizes]}",
                         advice='For images of one height and width: fit="crop" or fit="pad".')  # fmt: skip


def as_pixels(data: Any, way: Way, pictures: Pictures = AS_THEY_ARE, rng: np.random.Generator | None = None) -> Any:
    """Return an image in RGB, upright: Pillow's, or `uint8` (height, width, 3) of numpy, (3, height, width) of torch.

    The orientation in EXIF data is applied. Grey and palette images become RGB; transparency is left out; of 16 bits
    the upper 8 are kept; of several frames the first one. Images are resized bilinear with antialiasing. A JPEG is
    decoded at a half, quarter or eighth of its size where the result is no larger, which is several times faster.

    Args:
        data: the file, or an image of Pillow's.
        way: what is given.
        pictures: size, and how the image comes to it.
        rng: of the sample, if they draw.

    Raises:
        DataError: the image is damaged, has more pixels than Pillow allows, or pixels of 32 bits.
        MissingExtra: torch is not installed.
    """
    image = rgb_image(data, pictures, rng)
    if way == "pil":
        return image
    pixels = np.asarray(image)
    return torch_here().from_numpy(pixels.transpose(2, 0, 1).copy()) if way == "torch" else pixels.copy()


def rgb_image(data: Any, pictures: Pictures = AS_THEY_ARE, rng: np.random.Generator | None = None) -> Any:
    """Return an image of Pillow's, as `as_pixels` describes it."""
    image = open_image(data, upright=False) if isinstance(data, (bytes, memoryview)) else data
    from PIL import Image as Pillow

    numbers = rng.random(_NUMBERS).tolist() if rng is not None and pictures.draws else ()
    try:
        image = _upright(image, pictures, numbers)
        return image.transpose(_LEFT_TO_RIGHT) if numbers and numbers[0] < pictures.flip else image
    except DataError:
        raise
    except (*BROKEN, Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise DataError("the image cannot be decoded", found=str(error)[:200]) from error


def _upright(image: Any, pictures: Pictures, numbers: Sequence[float]) -> Any:
    if image.format not in _FORMATS_WITH_DRAFT:
        image.load()  # readers of TIFF and AVIF turn the image by themselves
    turn = orientation_of(image)
    if pictures.size is None:
        image = _as_rgb(image)
        image.load()
    else:
        image = _resized(image, turn, pictures, numbers)
    if turn in _TURNS:
        image = image.transpose(_TURNS[turn])
    if pictures.size is not None and pictures.fit == "pad" and image.size != pictures.size[::-1]:
        image = _padded(image, pictures.size)
    return image


def _resized(image: Any, turn: int, pictures: Pictures, numbers: Sequence[float]) -> Any:
    """The part of an image that is kept, resized, with its pixels still as they are stored."""
    upright_size = image.size[::-1] if turn in SIDEWAYS else image.size
    if pictures.random_crop is None:
        box, size = _kept(upright_size, pictures)
    else:
        box, size = _cut(upright_size, pictures, numbers)
    if turn in SIDEWAYS:
        size = size[::-1]
    box = _as_stored(box, upright_size, turn)
    stored_width, stored_height = image.size
    wanted = (stored_width * size[0] / (box[2] - box[0]), stored_height * size[1] / (box[3] - box[1]))
    drafted = image.draft("RGB", (ceil(wanted[0] - _ROUNDING), ceil(wanted[1] - _ROUNDING)))
    image = _as_rgb(image)
    if drafted is not None:  # what is decoded small has a last row and column of fewer pixels than the others
        across, down = drafted[1][2] / stored_width, drafted[1][3] / stored_height
        box = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
    if image.size != size or box != (0, 0, *size):
        image = image.resize(size, resample=_BILINEAR, box=box, reducing_gap=2.0)
    image.load()
    return image


def _kept(image_size: tuple[int, int], pictures: Pictures) -> tuple[_Box, tuple[int, int]]:
    """The part of an upright image that a fit keeps, and the width and height that this part gets."""
    assert pictures.size is not None, "the caller has looked"
    (width, height), (to_height, to_width) = image_size, pictures.size
    whole, wider = (0.0, 0.0, float(width), float(height)), width * to_height - height * to_width
    if pictures.fit == "shortest":
        long = int(to_width * max(width, height) / min(width, height))
        _refuse_large(long * to_width)
        return whole, (long, to_height) if width > height else (to_width, long)
    if pictures.fit == "pad" and wider:
        narrow = max(round(height / width * to_width), 1) if wider > 0 else max(round(width / height * to_height), 1)
        return whole, (to_width, narrow) if wider > 0 else (narrow, to_height)
    if pictures.fit == "crop" and wider > 0:
        kept = to_width * height / to_height
        return ((width - kept) / 2, 0.0, (width + kept) / 2, float(height)), (to_width, to_height)
    if pictures.fit == "crop":
        kept = to_height * width / to_width
        return (0.0, (height - kept) / 2, float(width), (height + kept) / 2), (to_width, to_height)
    return whole, (to_width, to_height)


def _refuse_large(pixels: int) -> None:
    """Raise DataError for a result larger than an image may be: a line of pixels whose shorter side gets a size."""
    from PIL import Image as Pillow

    if Pillow.MAX_IMAGE_PIXELS is not None and pixels > Pillow.MAX_IMAGE_PIXELS:
        raise DataError("the resized image has more pixels than Pillow allows", found=f"{pixels:,}",
                        expected=f"{Pillow.MAX_IMAGE_PIXELS:,} at most",
                        advice='Cut it: fit="crop". Or raise PIL.Image.MAX_IMAGE_PIXELS.')  # fmt: skip


def _cut(image_size: tuple[int, int], pictures: Pictures, numbers: Sequence[float]) -> tuple[_Box, tuple[int, int]]:
    """The part of an upright image that a random crop keeps, and the width and height that this part gets.

    Source: torchvision's `RandomResizedCrop`, whose proportions of height and width are those of a square.
    """
    assert pictures.size is not None, "the caller has looked"
    assert pictures.random_crop is not None, "the caller has looked"
    (width, height), size = image_size, pictures.size[::-1]
    least, most = pictures.random_crop
    narrow, wide = (each * size[0] / size[1] for each in pictures.ratio)
    for first in range(1, _NUMBERS, _OF_A_TRY):
        share, proportion, across, down = numbers[first : first + _OF_A_TRY]
        area = width * height * (least + (most - least) * share)
        ratio = narrow * (wide / narrow) ** proportion
        kept = round(sqrt(area * ratio)), round(sqrt(area / ratio))
        if 0 < kept[0] <= width and 0 < kept[1] <= height:
            left = min(int(across * (width - kept[0] + 1)), width - kept[0])
            upper = min(int(down * (height - kept[1] + 1)), height - kept[1])
            return (left, upper, left + kept[0], upper + kept[1]), size
    ratio = min(max(width / height, narrow), wide)
    kept = max(min(width, round(height * ratio)), 1), max(min(height, round(width / ratio)), 1)
    left, upper = (width - kept[0]) // 2, (height - kept[1]) // 2
    return (left, upper, left + kept[0], upper + kept[1]), size


def _as_stored(box: _Box, upright_size: tuple[int, int], turn: int) -> _Box:
    """A part of an upright image as a part of the pixels that are stored."""
    (left, upper, right, lower), (width, height) = box, upright_size
    if turn in _LEFT_IS_RIGHT:
        left, right = width - right, width - left
    if turn in _TOP_IS_BOTTOM:
        upper, lower = height - lower, height - upper
    return (upper, left, lower, right) if turn in SIDEWAYS else (left, upper, right, lower)


def _padded(image: Any, size: Size) -> Any:
    """An image in the middle of a black one."""
    from PIL import Image as Pillow

    height, width = size
    canvas = Pillow.new("RGB", (width, height))
    canvas.paste(image, (round((width - image.width) / 2), round((height - image.height) / 2)))
    return canvas


def _as_rgb(image: Any) -> Any:
    mode = image.mode
    if mode == "RGB":
        return image
    if mode in ("I", "F"):
        raise DataError("pixels of 32 bits do not become 8 bits", expected="an image of 8 or 16 bits",
                        found=f"mode {mode}", advice="Give a function: decode={column: function}.")  # fmt: skip
    if mode.startswith("I;16"):
        from PIL import Image as Pillow

        image = Pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))  # `convert` would make most of them white
    elif mode == "P" and isinstance(image.info.get("transparency"), bytes):
        image = image.convert("RGBA")
    return image.convert("RGB")


@public("lading.train.aspect_buckets")
def aspect_buckets(pixels: int, step: int = 64, most_ratio: float = 2.0) -> list[Size]:
    """Return sizes of about so many pixels and of many proportions, as (height, width), the widest first.

    Each picture is resized and cropped to the size whose proportions are nearest to its own. The sizes are those of
    NovelAI and of kohya's trainers: to each multiple of `step` the largest other side of no more pixels, and a square.

    Example:
        sizes = lading.train.aspect_buckets(512 * 512)    # [(384, 640), (448, 576), (512, 512), (576, 448), (640, 384)]
        lading.loader("train/*.tar", 32, image_size=sizes)

    Args:
        pixels: that a size has, at most.
        step: sides are multiples of it.
        most_ratio: of the longer side to the shorter one; 4 for all sizes that kohya's trainers have.

    Raises:
        UsageError: there is no such size, or an argument is no number of at least 1.
    """
    wrong = type(pixels) is not int or type(step) is not int or type(most_ratio) not in (int, float)
    if wrong or step < 1 or not 1 <= most_ratio < inf or pixels < step * step:
        raise UsageError("aspect_buckets takes pixels for at least a square of step × step, and a ratio of at least 1",
                         found=f"pixels={pixels!r}, step={step!r}, most_ratio={most_ratio!r}")  # fmt: skip
    square = isqrt(pixels) // step * step
    found = {(square, square)}
    for side in range(step, int(sqrt(most_ratio * pixels)) + 1, step):
        other = pixels // side // step * step
        if other and max(side / other, other / side) <= most_ratio:
            found |= {(side, other), (other, side)}
    return sorted(found)
