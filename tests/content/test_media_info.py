"""Facts of media headers, against PyAV (`media/*`), soundfile and Python's `wave`."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lading.content.media_info import MediaBytes, MediaInfo, Needed, media_info, probe

MEDIA = Path(__file__).parent / "media"

FACTS: dict[str, MediaInfo] = {
    "a.avi": MediaInfo("video", "avi", 64, 48, 15, 0.6, fps=25.0, codec="mpeg4"),
    "a.m4a": MediaInfo("audio", "m4a", duration_s=0.774, sample_rate=44_100, channels=2, codec="aac"),
    "a.mkv": MediaInfo("video", "mkv", 64, 48, None, 0.647, 44_100, 1, 25.0, "h264"),
    "a.mov": MediaInfo("video", "mov", 64, 48, 15, 0.6, fps=25.0, codec="mpeg4"),
    "a.mp3": MediaInfo("audio", "mp3", duration_s=0.75, sample_rate=44_100, channels=2, codec="mp3"),
    "a.opus": MediaInfo("audio", "ogg", duration_s=0.7565, sample_rate=48_000, channels=1, codec="opus"),
    "a.webm": MediaInfo("audio", "webm", duration_s=0.764, sample_rate=48_000, channels=1, codec="opus"),
    "end.mp4": MediaInfo("video", "mp4", 64, 48, 15, 0.624, 44_100, 1, 25.0, "h264"),
    "frag.mp4": MediaInfo("video", "mp4", 64, 48, codec="h264"),
    "front.mp4": MediaInfo("video", "mp4", 64, 48, 15, 0.6, fps=25.0, codec="h264"),
    "vp9.webm": MediaInfo("video", "webm", 64, 48, None, 0.614, 48_000, 1, 25.0, "vp9"),
}
"""As PyAV 18 tells them of the same files; without the samples before the first one of Opus, which it counts."""


def _probed(data: bytes, head: int = 512) -> tuple[MediaInfo | None, int]:
    """The facts, and how many bytes were read for them."""
    known, read = MediaBytes(data[:head], len(data)), min(head, len(data))
    for _ in range(12):
        found = probe(known)
        if not isinstance(found, Needed):
            return found, read
        assert found.length > 0
        assert found.offset + found.length <= len(data)
        known.add(found.offset, data[found.offset : found.offset + found.length])
        read += found.length
    raise AssertionError("asks without end")


@pytest.mark.parametrize("name", FACTS)
def test_files_of_ffmpeg(name: str) -> None:
    data = (MEDIA / name).read_bytes()
    assert media_info(data) == FACTS[name]
    assert _probed(data)[0] == FACTS[name]


def test_an_index_at_the_end_is_read_alone() -> None:
    data = (MEDIA / "end.mp4").read_bytes()
    at = data.index(b"mdat") - 4
    (size,) = struct.unpack_from(">I", data, at)
    grown = (
        data[:at] + struct.pack(">I", size + (8 << 20)) + data[at + 4 : at + size] + bytes(8 << 20) + data[at + size :]
    )
    found, read = _probed(grown)
    assert found == FACTS["end.mp4"]
    assert read < 32 << 10


@pytest.mark.parametrize(
    "kind, subtype, format_, codec",
    [
        ("WAV", "PCM_16", "wav", "pcm"),
        ("WAV", "FLOAT", "wav", "float"),
        ("WAVEX", "PCM_24", "wav", "pcm"),
        ("RF64", "PCM_16", "wav", "pcm"),
        ("FLAC", "PCM_16", "flac", "flac"),
        ("OGG", "VORBIS", "ogg", "vorbis"),
        ("MP3", "MPEG_LAYER_III", "mp3", "mp3"),
    ],
)
def test_files_of_libsndfile(kind: str, subtype: str, format_: str, codec: str) -> None:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    audio = np.random.default_rng(0).normal(0, 0.1, (110_250, 2))
    soundfile.write(file, audio, 22_050, format=kind, subtype=subtype)
    data = file.getvalue()
    found, read = _probed(data)
    assert found == MediaInfo("audio", format_, duration_s=5.0, sample_rate=22_050, channels=2, codec=codec)
    assert read < 10_000


def test_a_tag_of_any_size_before_mp3() -> None:
    audio = (MEDIA / "a.mp3").read_bytes()
    at = audio.index(b"\xff\xfb") if audio.startswith(b"ID3") else 0
    size = 300_000
    sizes = bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))
    tagged = b"ID3\x04\0\0" + sizes + bytes(size) + audio[at:]
    found, read = _probed(tagged)
    assert found == FACTS["a.mp3"]
    assert read < 40_000


def test_images_with_much_before_their_size() -> None:
    file = io.BytesIO()
    Image.new("RGB", (300, 200)).save(file, "JPEG", icc_profile=bytes(200_000))
    assert _probed(file.getvalue())[0] == MediaInfo("image", "jpeg", 300, 200, 1)


@pytest.mark.parametrize("name", [*FACTS])
def test_cut_files_give_fewer_facts_and_no_error(name: str) -> None:
    data = (MEDIA / name).read_bytes()
    for cut in range(0, len(data), 7):
        media_info(data[:cut])
        found = media_info(data[:cut], len(data))
        assert found is None or found.kind in ("audio", "video")


@pytest.mark.parametrize("name", [*FACTS])
def test_damaged_files_give_no_error(name: str) -> None:
    data = (MEDIA / name).read_bytes()
    random = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(data)
        for at in random.integers(0, min(len(data), 2000), 4):
            broken[at] = random.integers(256)
        media_info(bytes(broken))
        _probed(bytes(broken))


def test_what_is_no_media_file() -> None:
    assert media_info(b"") is None
    assert media_info(b"a text that is no picture") is None
    assert media_info(b"RIFF\0\0\0\0NOPE" + bytes(64)) is None
