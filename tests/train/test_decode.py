"""Arrays next to what peers decode, functions of users, damaged media."""

from __future__ import annotations

import contextlib
import io
import warnings
from functools import partial

import numpy as np
import pytest
from PIL import Image as Pillow

from lading._core.train.decode import as_tensors, decoder_of
from lading._core.train.images import Pictures, as_pixels
from lading._core.train.sounds import as_sound
from lading._core.train.sounds import sound as sound_at
from lading._core.train.videos import frames
from lading.errors import DataError, FunctionError, MissingExtra
from lading.features import Image
from sound_and_video import sound_file, video_file

_RNG = np.random.default_rng(1)
_PIXELS = np.asarray(Pillow.fromarray(_RNG.integers(0, 256, (6, 8, 3), np.uint8)).resize((80, 60), 2))


def _image_file(kind: str) -> bytes:
    data = io.BytesIO()
    Pillow.fromarray(_PIXELS).save(data, kind)
    return data.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "WAV", "FLAC", "OGG", "mp4",
                                  "OGG window", "mp4 window"])  # fmt: skip
def test_damaged_files_give_values_or_our_errors(kind: str) -> None:
    if kind == "mp4":
        data, function = video_file(12), frames(count=3)
    elif kind == "mp4 window":
        data, function = video_file(12), frames(fps=5, seconds=0.6, at="middle")
    elif kind == "OGG window":
        data, function = (
            sound_file(_RNG.uniform(-1, 1, (2000, 2)), kind="OGG"),
            sound_at(8_000, seconds=0.05, at="middle"),
        )
    elif kind in ("WAV", "FLAC", "OGG"):
        data = sound_file(_RNG.uniform(-1, 1, (2000, 2)), kind=kind)
        function = partial(as_sound, torch=False)
    else:
        data, function = _image_file(kind), lambda file: as_pixels(file, "numpy", Pictures((9, 9)))
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
        decoder_of("jpg", Image(), lambda _: 1 // 0)(b"")
    with pytest.raises(MissingExtra):
        decoder_of("jpg", Image(), _missing)(b"")


def _missing(_: bytes) -> None:
    raise MissingExtra("a package")
