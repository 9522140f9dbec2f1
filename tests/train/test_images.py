"""Pixels of images, next to what Pillow and other peers decode."""

from __future__ import annotations

import io
import warnings
from math import inf
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageOps

from lading._core.train.images import Fit, Pictures, as_pixels, aspect_buckets
from lading.errors import DataError, UsageError

_RNG = np.random.default_rng(1)
_PIXELS = np.asarray(Pillow.fromarray(_RNG.integers(0, 256, (6, 8, 3), np.uint8)).resize((80, 60), 2))


def _file(image: Any, kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("turn", range(9))
def test_images_stand_upright_as_hugging_face_gives_them(kind: str, turn: int) -> None:
    features = pytest.importorskip("datasets").features
    exif = Pillow.Exif()
    if turn:
        exif[0x0112] = turn
    data = _file(Pillow.fromarray(_PIXELS), kind, exif=exif)
    upright = features.Image().decode_example({"bytes": data, "path": None}).convert("RGB")
    assert np.array_equal(as_pixels(data, "numpy"), np.asarray(upright))
    assert as_pixels(data, "pil").size == upright.size
    small = np.asarray(upright.resize((20, 30), 2)).astype(int)
    assert np.abs(as_pixels(data, "numpy", Pictures((30, 20))).astype(int) - small).mean() < 4


def test_pixels_are_those_of_pillow() -> None:
    torch = pytest.importorskip("torch")
    data = _file(Pillow.fromarray(_PIXELS), "PNG")
    assert np.array_equal(as_pixels(data, "numpy"), _PIXELS)
    found = as_pixels(data, "torch")
    assert (found.dtype, found.is_contiguous()) == (torch.uint8, True)
    assert np.array_equal(found.numpy(), _PIXELS.transpose(2, 0, 1))
    found = as_pixels(data, "numpy", Pictures((15, 25)))
    assert np.array_equal(found, np.asarray(Pillow.fromarray(_PIXELS).resize((25, 15), 2, reducing_gap=2.0)))
    found[0] = 0  # the memory is its own


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = Pillow.fromarray(_PIXELS).convert(mode)
    kind = {"CMYK": "JPEG", "YCbCr": "JPEG"}.get(mode, "PNG")
    data = _file(image, kind)
    with Pillow.open(io.BytesIO(data)) as stored:
        assert np.array_equal(as_pixels(data, "numpy"), np.asarray(stored.convert("RGB")))
    assert as_pixels(data, "numpy", Pictures((7, 9))).shape == (7, 9, 3)


def test_transparency_is_left_out_without_a_warning() -> None:
    image = Pillow.fromarray(_PIXELS).quantize(8)
    data = _file(image, "PNG", transparency=bytes(range(8)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(as_pixels(data, "numpy"), np.asarray(image.convert("RGB")))


def test_of_sixteen_bits_the_upper_eight_are_kept() -> None:
    grey = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    for kind in ("PNG", "TIFF"):
        found = as_pixels(_file(Pillow.fromarray(grey), kind), "numpy")
        assert np.array_equal(found, np.repeat((grey // 256)[..., None], 3, 2))
    for dtype in (np.int32, np.float32):
        with pytest.raises(DataError, match="32 bits"):
            as_pixels(_file(Pillow.fromarray(grey.astype(dtype)), "TIFF"), "numpy")


def test_of_several_frames_the_first_is_taken() -> None:
    first, second = Pillow.new("RGB", (4, 4), "red"), Pillow.new("RGB", (4, 4), "blue")
    for kind in ("GIF", "TIFF", "WEBP"):
        options: dict[str, Any] = {"save_all": True, "append_images": [second]}
        options |= {"lossless": True} if kind == "WEBP" else {}
        assert as_pixels(_file(first, kind, **options), "numpy")[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("size", [None, (5, 5)])
def test_a_file_that_is_cut_is_an_error(kind: str, size: Any) -> None:
    data = _file(Pillow.fromarray(_PIXELS), kind)
    for part in (0.05, 0.5, 0.9):
        with pytest.raises(DataError, match="the image cannot be"):
            as_pixels(data[: int(len(data) * part)], "numpy", Pictures(size))


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\xff\xd8\xff", b"RIFF1234WEBP", b"II*\0" + bytes(20), bytes(100)])
def test_what_is_no_image_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match="the image cannot be opened"):
        as_pixels(data, "numpy")


@pytest.mark.parametrize("pixels", [400, 1500])
def test_an_image_with_too_many_pixels_is_an_error(monkeypatch: pytest.MonkeyPatch, pixels: int) -> None:
    """Above twice the limit Pillow raises; above the limit Pillow warns, which the tests make an error."""
    monkeypatch.setattr(Pillow, "MAX_IMAGE_PIXELS", pixels)
    with pytest.raises(DataError, match=r"more pixels than Pillow allows.*MAX_IMAGE_PIXELS"):
        as_pixels(_file(Pillow.new("RGB", (50, 40)), "PNG"), "numpy")


def test_damaged_exif_data_leave_the_image_as_it_is() -> None:
    data = _file(Pillow.fromarray(_PIXELS), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert as_pixels(data, "numpy").shape == _PIXELS.shape


def test_exif_transpose_of_pillow_agrees_on_all_turns() -> None:
    for turn in range(1, 9):
        exif = Pillow.Exif()
        exif[0x0112] = turn
        data = _file(Pillow.fromarray(_PIXELS), "PNG", exif=exif)
        with Pillow.open(io.BytesIO(data)) as image:
            assert np.array_equal(as_pixels(data, "numpy"), np.asarray(ImageOps.exif_transpose(image)))


_BY_PILLOW: dict[Fit, Any] = {
    "stretch": lambda image, size: image.resize(size, 2),
    "crop": lambda image, size: ImageOps.fit(image, size, 2),
    "pad": lambda image, size: ImageOps.pad(image, size, 2),
}


@pytest.mark.parametrize("fit", [*_BY_PILLOW])
@pytest.mark.parametrize("size", [(30, 30), (30, 40), (25, 70), (59, 20), (90, 100)])
def test_fits_are_those_of_pillow(fit: Fit, size: tuple[int, int]) -> None:
    for pixels in (_PIXELS, _PIXELS.transpose(1, 0, 2), _PIXELS[:33, :77]):
        image = Pillow.fromarray(np.ascontiguousarray(pixels))
        expected = np.asarray(_BY_PILLOW[fit](image, size[::-1]))
        assert np.array_equal(as_pixels(_file(image, "PNG"), "numpy", Pictures(size, fit)), expected)


@pytest.mark.parametrize("turn", range(1, 9))
def test_fits_of_turned_jpegs_that_are_decoded_small(turn: int) -> None:
    """Eight times the size, so that the decoder gives an eighth, a quarter or a half."""
    exif = Pillow.Exif()
    exif[0x0112] = turn
    large = Pillow.fromarray(_PIXELS).resize((641, 483), 2)
    data = _file(large, "JPEG", exif=exif, quality=95)
    with Pillow.open(io.BytesIO(data)) as stored:
        upright = ImageOps.exif_transpose(stored)
    for fit, by_pillow in _BY_PILLOW.items():
        for size in ((48, 40), (70, 100), (130, 60), (250, 300)):
            expected = np.asarray(by_pillow(upright, size[::-1])).astype(int)
            found = as_pixels(data, "numpy", Pictures(size, fit)).astype(int)
            assert found.shape == expected.shape
            assert np.abs(found - expected).mean() < 1


@pytest.mark.parametrize("size, width", [(30, 40), (45, 60), (7, 9)])
def test_the_shortest_side_gets_the_size(size: int, width: int) -> None:
    """The longer side is rounded down, as by torchvision's `Resize(size)`: 7 × 80 / 60 = 9.3."""
    shortest = Pictures((size, size), "shortest")
    expected = Pillow.fromarray(_PIXELS).resize((width, size), 2, reducing_gap=2.0)
    assert np.array_equal(as_pixels(_file(Pillow.fromarray(_PIXELS), "PNG"), "numpy", shortest), np.asarray(expected))
    high = Pillow.fromarray(np.ascontiguousarray(_PIXELS.transpose(1, 0, 2)))
    assert as_pixels(_file(high, "PNG"), "numpy", shortest).shape == (width, size, 3)


def test_a_line_whose_shorter_side_would_take_all_memory_is_an_error() -> None:
    with pytest.raises(DataError, match=r'more pixels than Pillow allows.*100,000,000.*fit="crop"'):
        as_pixels(_file(Pillow.new("RGB", (100, 1)), "PNG"), "numpy", Pictures((1000, 1000), "shortest"))


def test_images_as_thin_as_a_line_keep_a_pixel() -> None:
    line = _file(Pillow.new("RGB", (400, 1), "red"), "PNG")
    for fit in ("stretch", "crop", "pad"):
        found = as_pixels(line, "numpy", Pictures((8, 8), fit))  # type: ignore[arg-type]
        assert found.shape == (8, 8, 3)
        assert found[..., 0].max() == 255


def test_aspect_buckets_are_those_of_kohya() -> None:
    """As its trainers log them for --resolution=512: --min_bucket_reso 256, --max_bucket_reso 1024, steps of 64."""
    wide = [(256, 832), (256, 896), (256, 960), (256, 1024), (320, 704), (320, 768), (384, 640), (448, 576)]
    sizes = [*wide, (512, 512), *((width, height) for height, width in wide)]
    assert aspect_buckets(512 * 512, most_ratio=4) == sorted(sizes)
    assert aspect_buckets(512 * 512) == [(384, 640), (448, 576), (512, 512), (576, 448), (640, 384)]
    assert aspect_buckets(1 << 20, step=1024) == [(1024, 1024)]
    for wrong in (
        {"pixels": 4095}, {"pixels": 5e5}, {"pixels": 1 << 18, "step": 0}, {"pixels": 1, "most_ratio": 0.5},
        {"pixels": 1 << 18, "most_ratio": "2"}, {"pixels": 1 << 18, "most_ratio": inf},
    ):  # fmt: skip
        with pytest.raises(UsageError, match="aspect_buckets takes pixels"):
            aspect_buckets(**wrong)  # type: ignore[arg-type]
