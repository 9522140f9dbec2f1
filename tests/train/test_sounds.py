"""Sound, next to what soundfile decodes and soxr resamples."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from lading._core.content.media_files import AudioFile
from lading._core.train.decode import decoder_of
from lading._core.train.sounds import as_sound, sound
from lading.errors import DataError, UsageError
from lading.features import Audio
from sound_and_video import sound_file, sound_of_video

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


_SOUND = _RNG.uniform(-1, 1, (44_100, 2)).astype(np.float32)  # one second, or more at lower rates


def _whole(data: bytes, rate: int) -> np.ndarray[Any, Any]:
    """(channels, samples) of a file at a rate, by soundfile and soxr."""
    soxr = pytest.importorskip("soxr")
    found, stored = pytest.importorskip("soundfile").read(io.BytesIO(data), dtype="float32", always_2d=True)
    return np.asarray(soxr.resample(found, stored, rate)).T


@pytest.mark.parametrize("kind, stored", [("FLAC", 44_100), ("WAV", 22_050), ("OGG", 16_000), ("MP3", 48_000)])
def test_a_window_is_a_part_of_the_resampled_sound(kind: str, stored: int) -> None:
    data = sound_file(_SOUND, stored, kind)
    for rate in (8_000, 16_000, 44_100, 48_000):
        whole = _whole(data, rate)
        assert np.array_equal(sound(rate)(data), whole)
        assert np.array_equal(sound(rate, mono=True)(data), _whole(sound_of(data, stored), rate)[0])
        for start, stop in ((0, 0.25), (0.1, 0.7), (0.333, 0.9), (0.5, None)):
            wanted = slice(round(start * rate), None if stop is None else round(stop * rate))
            np.testing.assert_allclose(sound(rate, start=start, stop=stop)(data), whole[:, wanted], atol=2e-6)
        assert np.array_equal(sound(rate, start=0.25, seconds=0.5)(data), sound(rate, start=0.25, stop=0.75)(data))
        room = whole.shape[1] - rate // 4
        for at, first in (("start", 0), ("middle", (room + 1) // 2)):
            found = sound(rate, seconds=0.25, at=at)(data)
            np.testing.assert_allclose(found, whole[:, first : first + rate // 4], atol=2e-6)


@pytest.mark.parametrize(
    "kind, subtype, rate",
    [("MP3", None, 22_050), ("MP3", None, 44_100), ("OGG", "VORBIS", 22_050), ("OGG", "VORBIS", 44_100),
     ("OGG", "OPUS", 48_000), ("WAV", "GSM610", 8_000)],
)  # fmt: skip
def test_a_window_far_behind_is_the_same_part(kind: str, subtype: str | None, rate: int) -> None:
    """libsndfile seeks to other frames of MP3 with a variable bit rate and of Vorbis, and refuses to seek in GSM."""
    data = sound_file(_tone(6, rate), rate, kind, subtype)
    whole = sound(rate, mono=True)(data)
    for start in np.arange(0.1, 5.7, 0.31):
        first = round(float(start) * rate)
        found = sound(rate, mono=True, start=float(start), seconds=0.2)(data)
        np.testing.assert_allclose(found, whole[first : first + len(found)], atol=2e-3)


@pytest.mark.parametrize("kind", ["MP3", "OGG"])
def test_a_long_sound_is_that_of_soundfile(kind: str) -> None:
    """soundfile reads it at once: between reads it would seek."""
    data = sound_file(_tone(30, 44_100), 44_100, kind)
    expected, _ = pytest.importorskip("soundfile").read(io.BytesIO(data), dtype="float32", always_2d=True)
    assert np.array_equal(as_sound(data, torch=False)["array"], expected)
    found = sound(44_100, mono=True, start=26, seconds=3)(data)
    assert np.array_equal(found, expected[26 * 44_100 : 29 * 44_100, 0])


def test_an_mp3_file_that_does_not_say_its_length_is_read_to_its_end() -> None:
    """libsndfile guesses by the bit rate of the first frame, and would end after a sixth of it."""
    pytest.importorskip("av")
    loud_first = np.concatenate([_RNG.normal(0, 0.2, 5 * 44_100), np.zeros(25 * 44_100)])
    data = sound_file(loud_first, 44_100, "MP3")
    uncounted = data[data.index(b"\xff\xfb", 4) :]  # without the first frame, which has the count
    expected, _ = pytest.importorskip("soundfile").read(io.BytesIO(data), dtype="float32", always_2d=True)
    found = as_sound(uncounted, torch=False)["array"]
    assert len(found) == pytest.approx(len(expected), abs=2 * 1152 + 1000)
    assert AudioFile(uncounted).duration_s == pytest.approx(30, abs=0.1)


def _tone(seconds: int, rate: int) -> np.ndarray[Any, Any]:
    time = np.arange(seconds * rate) / rate
    return np.asarray(np.sin(2 * np.pi * (300 + 75 * time) * time) * np.sin(3 * time) ** 2)


def sound_of(data: bytes, rate: int) -> bytes:
    """The mean of the channels as a file of floats."""
    found, _ = pytest.importorskip("soundfile").read(io.BytesIO(data), dtype="float32")
    return sound_file(found.mean(axis=1), rate, "WAV", "FLOAT")


def test_random_windows_lie_anywhere_with_the_same_chance() -> None:
    count = np.arange(1000, dtype=np.float32) / 1000
    data, rng = sound_file(count, 1000, "WAV", "FLOAT"), np.random.default_rng(2)
    function = sound(1000, seconds=0.996, mono=True, at="random")
    found = [function(data, rng) for _ in range(500)]
    firsts = [round(float(each[0]) * 1000) for each in found]
    assert all(np.array_equal(each, count[first : first + 996]) for each, first in zip(found, firsts, strict=True))
    assert sorted(set(firsts)) == [0, 1, 2, 3, 4]
    assert min(map(firsts.count, range(5))) > 60  # of 100 expected
    with pytest.raises(UsageError, match="needs a generator"):
        function(data)


def test_a_sound_that_is_shorter_is_an_error_or_filled_up() -> None:
    data = sound_file(_SOUND[:8000], 16_000)
    for options in ({"seconds": 1}, {"start": 0.25, "stop": 1.25}):
        with pytest.raises(DataError, match=r"shorter than the window.*0\.500 seconds.*pad=True"):
            sound(16_000, **options)(data)
        for rate in (16_000, 8_000):
            found = sound(rate, **options, pad=True)(data)
            there = round((0.5 - options.get("start", 0)) * rate)
            assert found.shape == (2, rate)
            np.testing.assert_allclose(found[:, :there], _whole(data, rate)[:, -there:], atol=2e-6)
            assert not found[:, there:].any()
    with pytest.raises(DataError, match="begins behind the sound"):
        sound(16_000, start=0.5, stop=1, pad=True)(data)


def test_only_the_window_is_decoded() -> None:
    """Of a FLAC file that is cut, the first half is there; only what lies behind is an error."""
    data = sound_file(_SOUND, 44_100)
    cut = data[: len(data) // 2]
    assert np.array_equal(sound(44_100, stop=0.3)(cut), sound(44_100, stop=0.3)(data))
    for options in ({}, {"start": 0.7}, {"start": 0.4, "stop": 0.6}):
        with pytest.raises(DataError, match=r"the audio (file is cut|cannot be decoded)"):
            sound(44_100, **options)(cut)


def test_a_file_that_does_not_say_its_length() -> None:
    data = bytearray(sound_file(_SOUND, 16_000))
    data[21], data[22:26] = data[21] & 0xF0, bytes(4)  # the number of frames (RFC 9639, 8.2)
    whole = _whole(sound_file(_SOUND, 16_000), 8_000)
    assert np.array_equal(sound(8_000)(bytes(data)), whole)
    np.testing.assert_allclose(sound(8_000, start=1, stop=2)(bytes(data)), whole[:, 8_000:16_000], atol=2e-6)


def test_the_sound_of_a_video_is_cut_too() -> None:
    """Of a long file, which is decoded twice, and of a short one."""
    for seconds in (25, 1):
        data = sound_of_video(np.tile(_SOUND, (seconds, 1)))
        whole = sound(44_100)(data)
        total = whole.shape[1]
        assert np.array_equal(whole.T, _by_pyav(data))
        for start, stop in ((0.25, 0.5), (total / 44_100 - 0.5, None)):
            wanted = slice(round(start * 44_100), None if stop is None else round(stop * 44_100))
            assert np.array_equal(sound(44_100, start=start, stop=stop)(data), whole[:, wanted])
        first = (total - 22_050 + 1) // 2
        assert np.array_equal(sound(44_100, seconds=0.5, at="middle")(data), whole[:, first : first + 22_050])


def _by_pyav(data: bytes) -> np.ndarray[Any, Any]:
    with pytest.importorskip("av").open(io.BytesIO(data)) as file:
        return np.concatenate([frame.to_ndarray().T for frame in file.decode(audio=0)])


def test_a_rate_that_no_sound_has_takes_no_memory() -> None:
    for options in ({}, {"stop": 1}):
        with pytest.raises(DataError, match="implausible"):
            sound(16_000, **options)(sound_file(_SOUND, 1, "WAV"))


def test_windows_of_one_length_are_one_array_of_a_batch(tmp_path: Path) -> None:
    files = [sound_file(_SOUND[: 8_000 + 100 * i], rate) for i, rate in enumerate((16_000, 44_100, 8_000))]
    with lading.writer(tmp_path / "speech", format="webdataset") as writer:
        for i, file in enumerate(files):
            writer.write({"__key__": f"{i}", "flac": file})
    decode = {"flac": sound(16_000, mono=True, seconds=0.25, at="middle", pad=True)}
    [batch] = lading.loader(tmp_path / "speech", 3, decode=decode)
    assert (batch["flac"].shape, batch["flac"].dtype) == ((3, 4000), np.float32)
    assert np.array_equal(batch["flac"], [decode["flac"](file) for file in files])


def test_a_window_takes_numbers_of_numpy() -> None:
    """As the fields of a sample are, such as a column of float32 of Parquet."""
    data = sound_file(_SOUND, 16_000)
    found = sound(np.int64(16_000), start=np.float32(0.5), stop=np.int32(2))(data)
    assert np.array_equal(found, sound(16_000, start=0.5, stop=2)(data))


@pytest.mark.parametrize(
    "options, match",
    [
        ({"rate": 16}, "at least 1,000 samples"),
        ({"rate": 16e3}, "at least 1,000 samples"),
        ({"start": -1}, "start is a number of seconds"),
        ({"stop": "3"}, "stop is a number of seconds"),
        ({"seconds": float("nan")}, "seconds is a number of seconds"),
        ({"start": 2, "stop": 2}, "ends behind its start"),
        ({"seconds": 0}, "seconds above 0"),
        ({"seconds": 1, "stop": 2}, "or a stop"),
        ({"seconds": 1, "start": 2, "at": "middle"}, "without start="),
        ({"rate": bytes(9999)}, r"such as sound\(16_000\)"),
        ({"at": "random"}, "with seconds="),
        ({"seconds": 1, "at": "end"}, "start, middle or random"),
        ({"start": 1, "pad": True}, "pad fills up windows"),
    ],
)
def test_wrong_windows_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        sound(**{"rate": 16_000, **options})
