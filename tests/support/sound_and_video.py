"""Files of sound and video for tests."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

__all__ = ["sound_file", "video_file"]


def sound_file(sound: Any, rate: int = 16_000, kind: str = "FLAC", subtype: str | None = None) -> bytes:
    """Return (frames, channels) of floats as soundfile writes them."""
    data = io.BytesIO()
    pytest.importorskip("soundfile").write(data, sound, rate, subtype, format=kind)
    return data.getvalue()


def video_file(count: int, kind: str = "mp4", codec: str = "mpeg4", gop: int = 7) -> bytes:
    """Return a video of 64 × 48 pixels and 10 frames a second, whose frames get brighter."""
    av = pytest.importorskip("av")
    data = io.BytesIO()
    with av.open(data, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=10, options={"g": str(gop), "bf": "2" if codec == "mpeg4" else "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 40 + 4 * i, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return data.getvalue()
