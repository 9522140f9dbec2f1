"""Files of sound and video for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

__all__ = ["sound_file", "sound_of_video", "video_file"]


def sound_file(sound: Any, rate: int = 16_000, kind: str = "FLAC", subtype: str | None = None) -> bytes:
    """Return (frames, channels) of floats as soundfile writes them."""
    data, channels = io.BytesIO(), 1 if np.ndim(sound) == 1 else np.shape(sound)[1]
    with pytest.importorskip("soundfile").SoundFile(data, "w", rate, channels, subtype, format=kind) as file:
        for begin in range(0, len(sound), rate):  # of much more at once, libvorbis overflows the stack
            file.write(sound[begin : begin + rate])
    return data.getvalue()


def sound_of_video(sound: Any, rate: int = 44_100) -> bytes:
    """Return an MP4 file whose only stream is (frames, 2) of floats in AAC."""
    av = pytest.importorskip("av")
    data = io.BytesIO()
    with av.open(data, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=rate, layout="stereo")
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(sound.T), format="fltp", layout="stereo")
        frame.sample_rate = rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return data.getvalue()


def video_file(
    count: int, kind: str = "mp4", codec: str = "mpeg4", gop: int = 7, *, times: Sequence[int] | None = None
) -> bytes:
    """Return a video of 64 × 48 pixels, whose frames get brighter: 10 a second, or at these milliseconds."""
    av = pytest.importorskip("av")
    data = io.BytesIO()
    with av.open(data, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=10, options={"g": str(gop), "bf": "2" if codec == "mpeg4" else "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 40 + 4 * i, np.uint8), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[i], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return data.getvalue()
