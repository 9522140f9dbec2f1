"""Sound, next to what soundfile decodes."""

from __future__ import annotations

import io

import numpy as np
import pytest

from lading._core.train.decode import decoder_of
from lading._core.train.sounds import as_sound
from lading.errors import DataError, UsageError
from lading.features import Audio

_RNG = np.random.default_rng(1)


def test_sound_is_that_of_soundfile() -> None:
    soundfile = pytest.importorskip("soundfile")
    for channels in (1, 2):
        sound = _RNG.uniform(-1, 1, (800, channels)).astype(np.float32)
        data = io.BytesIO()
        soundfile.write(data, sound, 16000, "PCM_16", format="FLAC")
        expected, rate = soundfile.read(io.BytesIO(data.getvalue()), dtype="float32", always_2d=True)
        function = decoder_of("flac", Audio(), "numpy", None)
        found = function(data.getvalue())
        assert (found["array"].dtype, found["sample_rate"]) == (np.float32, rate)
        assert np.array_equal(found["array"], expected)
        pytest.importorskip("torch")
        tensor = as_sound(data.getvalue(), torch=True)["array"]
        assert np.array_equal(tensor.numpy(), expected.T)
    with pytest.raises(DataError, match="the audio cannot be decoded"):
        as_sound(b"no sound", torch=False)
    with pytest.raises(UsageError, match="no image of Pillow"):
        decoder_of("flac", Audio(), "pil", None)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_sound_that_is_cut_is_an_error(kind: str) -> None:
    soundfile = pytest.importorskip("soundfile")
    data = io.BytesIO()
    soundfile.write(data, _RNG.uniform(-1, 1, (8000, 2)), 16000, "PCM_16", format=kind)
    for end in (-1, len(data.getvalue()) // 2):
        with pytest.raises(DataError, match=r"the audio (file is cut|cannot be decoded)"):
            as_sound(data.getvalue()[:end], torch=False)


def test_a_header_that_claims_more_sound_takes_no_memory() -> None:
    soundfile = pytest.importorskip("soundfile")
    data = io.BytesIO()
    soundfile.write(data, np.zeros((8000, 1)), 16000, "PCM_16", format="FLAC")
    claimed = bytearray(data.getvalue())
    claimed[21] |= 0x0F  # the upper bits of the number of frames (RFC 9639, 8.2)
    with pytest.raises(DataError, match=r"the audio (file is cut|cannot be decoded)"):
        as_sound(bytes(claimed), torch=False)
