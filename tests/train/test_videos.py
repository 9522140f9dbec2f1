"""Frames of videos, next to what PyAV decodes from the first frame on."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest

from lading._core.train.videos import frames
from lading.errors import DataError, UsageError
from sound_and_video import video_file


@pytest.mark.parametrize("kind, codec", [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("avi", "mpeg4"), ("mpegts", "mpeg4"),
                                         ("webm", "libvpx")])  # fmt: skip
@pytest.mark.parametrize(
    "options", [{"count": 1}, {"count": 3}, {"count": 8}, {"count": 40}, {"every": 1}, {"every": 9}]
)
def test_frames_are_those_of_a_decoder_from_the_first_on(kind: str, codec: str, options: dict[str, int]) -> None:
    av = pytest.importorskip("av")
    data = video_file(30, kind, codec)
    with av.open(io.BytesIO(data)) as container:
        whole = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(whole) == 30
    numbers = range(0, 30, options["every"]) if "every" in options else np.linspace(0, 29, options["count"]).round()
    found = frames(**options)(data)
    assert found.dtype == np.uint8
    assert np.array_equal(found, [whole[int(i)] for i in numbers])


def test_frames_of_a_size_and_a_shortvideo_file() -> None:
    found = frames(count=4, image_size=(12, 16))(video_file(2))
    assert found.shape == (4, 12, 16, 3)
    assert (found[0] == found[1]).all()
    assert (found[2] == found[3]).all()


def test_frames_stand_upright() -> None:
    """The matrix of a track turns its frames clockwise (ISO 14496-12, 8.3.2)."""
    av = pytest.importorskip("av")
    data = io.BytesIO()
    half = np.zeros((48, 64, 3), np.uint8)
    half[:24] = 255  # the upper half is white
    with av.open(data, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(half, format="rgb24")))
        container.mux(stream.encode())
    one, whole = 1 << 16, 1 << 30
    stored, turned = (
        struct.pack(">9i", *matrix)
        for matrix in ((one, 0, 0, 0, one, 0, 0, 0, whole), (0, one, 0, -one, 0, 0, 0, 0, whole))
    )
    track = data.getvalue().index(b"tkhd")
    at = data.getvalue().index(stored, track)
    file = data.getvalue()[:at] + turned + data.getvalue()[at + len(stored) :]
    for size, shape in ((None, (64, 48)), ((40, 20), (40, 20))):
        [found] = frames(count=1, image_size=size)(file)
        assert found.shape == (*shape, 3)
        middle = shape[1] // 2
        assert found[:, middle + 4 :].mean() > 200
        assert found[:, : middle - 4].mean() < 50


def test_frames_of_what_is_novideo_file() -> None:
    pytest.importorskip("av")
    for data in (b"", b"no video", video_file(30)[:400]):
        with pytest.raises(DataError, match="video"):
            frames(count=2)(data)
    sound = io.BytesIO()
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(sound, np.zeros(800), 8000, format="WAV")
    with pytest.raises(DataError, match="the file has no video"):
        frames(count=2)(sound.getvalue())


@pytest.mark.parametrize("options", [{}, {"count": 0}, {"every": 0}, {"count": 2, "every": 2}])
def test_wrong_numbers_of_frames_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="count or every"):
        frames(**options)


@pytest.mark.parametrize("options", [{"count": 2.5}, {"every": "8"}, {"count": 2, "image_size": 0},
                                     {"count": 2, "image_size": (2,)}])  # fmt: skip
def test_wrong_values_of_frames_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a number of at least 1"):
        frames(**options)
