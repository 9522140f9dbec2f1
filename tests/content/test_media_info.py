"""Facts of media headers, against PyAV (`media/*`), soundfile and Python's `wave`."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from lading._core.content.image import usual_sizes
from lading._core.content.media_files import read_sound
from lading._core.content.media_info import MediaBytes, MediaInfo, Needed, media_info, probe

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
    "frag.mp4": MediaInfo("video", "mp4", 64, 48, 15, 0.6, fps=25.0, codec="h264"),
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


def _of_viewers(found: MediaInfo | None) -> MediaInfo:
    """The facts without those of the stored pixels."""
    assert found is not None
    return replace(found, stored_width=None, stored_height=None, orientation=None)


@pytest.mark.parametrize("name", FACTS)
def test_files_of_ffmpeg(name: str) -> None:
    data = (MEDIA / name).read_bytes()
    assert _of_viewers(media_info(data)) == FACTS[name]
    assert _of_viewers(_probed(data)[0]) == FACTS[name]


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_sizes_are_those_of_a_viewer(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.new("RGB", (300, 200)).save(file, kind, exif=exif)
    with Image.open(file) as image:
        shown = ImageOps.exif_transpose(image).size
    found = _probed(file.getvalue())[0]
    assert found is not None
    assert ((found.width, found.height), found.stored_width, found.stored_height, found.orientation) == (
        shown, 300, 200, orientation
    )  # fmt: skip
    assert usual_sizes(np.frombuffer(file.getvalue()[:512].ljust(512, b"\0"), np.uint8)[None]).tolist() in (
        [[shown[0]], [shown[1]]], [[-1], [-1]]
    )  # fmt: skip


@pytest.mark.parametrize(
    "matrix, shown", [((0, 1, -1, 0), (48, 64)), ((-1, 0, 0, -1), (64, 48)), ((0, -1, 1, 0), (48, 64))]
)
def test_a_video_that_players_turn(matrix: tuple[int, int, int, int], shown: tuple[int, int]) -> None:
    data = bytearray((MEDIA / "front.mp4").read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    a, b, c, d = (value << 16 for value in matrix)
    data[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    found = media_info(bytes(data))
    assert found is not None
    assert ((found.width, found.height), found.stored_width, found.stored_height) == (shown, 64, 48)


def test_frames_a_second_of_videos_whose_frames_are_shown_in_another_order() -> None:
    av = pytest.importorskip("av")
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=24, options={"bf": "3"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(48):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 5 * number, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    found = media_info(file.getvalue())
    assert found is not None
    assert found.fps == 24


def test_an_index_at_the_end_is_read_alone() -> None:
    data = (MEDIA / "end.mp4").read_bytes()
    at = data.index(b"mdat") - 4
    (size,) = struct.unpack_from(">I", data, at)
    grown = (
        data[:at] + struct.pack(">I", size + (8 << 20)) + data[at + 4 : at + size] + bytes(8 << 20) + data[at + size :]
    )
    found, read = _probed(grown)
    assert _of_viewers(found) == FACTS["end.mp4"]
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
    assert _of_viewers(_probed(file.getvalue())[0]) == MediaInfo("image", "jpeg", 300, 200, 1)


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


@pytest.mark.parametrize("name", ["a.m4a", "end.mp4", "a.mp3"])
def test_sound_is_decoded_by_a_library_that_knows_it(name: str) -> None:
    pytest.importorskip("av")
    samples, rate = read_sound((MEDIA / name).read_bytes())
    facts = FACTS[name]
    assert (rate, samples.shape[1]) == (facts.sample_rate, facts.channels)
    assert abs(len(samples) / rate - (facts.duration_s or 0)) < 0.1
    assert np.isfinite(samples).all()
