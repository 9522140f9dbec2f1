"""Pixels and arrays, next to what peers decode; damaged media."""

from __future__ import annotations

import contextlib
import io
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageOps

from lading._core.train.decode import as_pixels, as_tensors, decoder_of
from lading._core.train.sounds import as_sound
from lading._core.train.videos import frames
from lading.errors import DataError, FunctionError, MissingExtra
from lading.features import Image
from sound_and_video import sound_file, video_file

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
    assert np.abs(as_pixels(data, "numpy", (30, 20)).astype(int) - small).mean() < 4


def test_pixels_are_those_of_pillow() -> None:
    torch = pytest.importorskip("torch")
    data = _file(Pillow.fromarray(_PIXELS), "PNG")
    assert np.array_equal(as_pixels(data, "numpy"), _PIXELS)
    found = as_pixels(data, "torch")
    assert (found.dtype, found.is_contiguous()) == (torch.uint8, True)
    assert np.array_equal(found.numpy(), _PIXELS.transpose(2, 0, 1))
    found = as_pixels(data, "numpy", (15, 25))
    assert np.array_equal(found, np.asarray(Pillow.fromarray(_PIXELS).resize((25, 15), 2, reducing_gap=2.0)))
    found[0] = 0  # the memory is its own


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = Pillow.fromarray(_PIXELS).convert(mode)
    kind = {"CMYK": "JPEG", "YCbCr": "JPEG"}.get(mode, "PNG")
    data = _file(image, kind)
    with Pillow.open(io.BytesIO(data)) as stored:
        assert np.array_equal(as_pixels(data, "numpy"), np.asarray(stored.convert("RGB")))
    assert as_pixels(data, "numpy", (7, 9)).shape == (7, 9, 3)


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
            as_pixels(data[: int(len(data) * part)], "numpy", size)


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


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "WAV", "FLAC", "OGG", "mp4"])
def test_damaged_files_give_values_or_our_errors(kind: str) -> None:
    if kind == "mp4":
        data, function = video_file(12), frames(count=3)
    elif kind in ("WAV", "FLAC", "OGG"):
        data = sound_file(_RNG.uniform(-1, 1, (2000, 2)), kind=kind)
        function = partial(as_sound, torch=False)
    else:
        data, function = _file(Pillow.fromarray(_PIXELS), kind), lambda file: as_pixels(file, "numpy", (9, 9))
    sound = 0
    for _ in range(300):
        damaged = np.frombuffer(bytearray(data), np.uint8)
        places = _RNG.integers(0, _RNG.choice([40, 400, len(data)]), _RNG.integers(1, 5)) % len(data)
        damaged[places] = _RNG.integers(0, 256, len(places))
        with warnings.catch_warnings(), contextlib.suppress(DataError):
            warnings.simplefilter("ignore")
            function(damaged.tobytes()[: _RNG.choice([len(data), _RNG.integers(len(data))])])
            sound += 1
    assert 0 < sound < 300


def test_safetensors() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    torch = pytest.importorskip("torch")
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array([1, 2])}
    data = safetensors.save(arrays)
    found = as_tensors(data, "numpy")
    assert {name: each.tolist() for name, each in found.items()} == {name: x.tolist() for name, x in arrays.items()}
    assert as_tensors(data, "torch")["a"].dtype == torch.float16
    with pytest.raises(DataError, match="the safetensors file cannot be decoded"):
        as_tensors(data[:-1], "numpy")


def test_an_error_of_a_function_is_one_of_lading() -> None:
    with pytest.raises(FunctionError, match="ZeroDivisionError"):
        decoder_of("jpg", Image(), lambda _: 1 // 0, None)(b"")
    with pytest.raises(MissingExtra):
        decoder_of("jpg", Image(), _missing, None)(b"")


def _missing(_: bytes) -> None:
    raise MissingExtra("a package")


def test_exif_transpose_of_pillow_agrees_on_all_turns() -> None:
    for turn in range(1, 9):
        exif = Pillow.Exif()
        exif[0x0112] = turn
        data = _file(Pillow.fromarray(_PIXELS), "PNG", exif=exif)
        with Pillow.open(io.BytesIO(data)) as image:
            assert np.array_equal(as_pixels(data, "numpy"), np.asarray(ImageOps.exif_transpose(image)))
