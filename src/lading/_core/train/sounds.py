"""Sound as arrays or tensors."""

from __future__ import annotations

from typing import Any

from lading._core.content.media_files import read_sound
from lading._core.train.tensors import torch_here

__all__ = ["as_sound"]


def as_sound(data: bytes, *, torch: bool) -> dict[str, Any]:
    """Return `{"array", "sample_rate"}`: float32 of -1 to 1, (frames, channels) of numpy, (channels, frames) of torch.

    Raises:
        DataError: the bytes are no audio that soundfile reads, or a WAV or FLAC file that is cut.
        MissingExtra: soundfile, or torch, is not installed.
    """
    array, rate = read_sound(data)
    return {"array": torch_here().from_numpy(array.T.copy()) if torch else array, "sample_rate": rate}
