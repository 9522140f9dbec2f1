"""Frames of videos."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import public
from lading._core.features.images import BROKEN
from lading._core.train.images import size_of
from lading.errors import DataError, UsageError, missing_extra

__all__ = ["frames"]


@public("lading.train.frames")
def frames(
    count: int | None = None, *, every: int | None = None, image_size: int | tuple[int, int] | None = None
) -> Callable[[bytes], NDArray[np.uint8]]:
    """Return a function that decodes frames of a video: `uint8` of (frames, height, width, 3), upright.

    Only what the frames need is decoded: from the key frame before each.

    Example:
        lading.loader("clips/*.tar", 8, decode={"mp4": frames(count=8, image_size=224)})

    Args:
        count: this many frames, at even distances from the first to the last; shorter videos repeat frames.
        every: the first frame, and every n-th behind it, instead of a count.
        image_size: height and width, one number for both; None leaves frames as they are.

    Raises:
        UsageError: not one of `count` and `every`, or no number of at least 1. The function raises DataError for a
            video that cannot be decoded, and MissingExtra where PyAV is not installed (`lading[video]`).
    """
    numbers = [each for each in (count, every) if each is not None]
    if len(numbers) != 1 or type(numbers[0]) is not int or numbers[0] < 1:
        raise UsageError("frames takes count or every, a number of at least 1", found=f"count={count}, every={every}")
    return _Frames(count, every, size_of(image_size))


@dataclass(frozen=True, slots=True)
class _Frames:
    count: int | None
    every: int | None
    size: tuple[int, int] | None

    def __call__(self, data: bytes) -> NDArray[np.uint8]:
        try:
            import av
        except ImportError as error:
            advice = "Install it: pip install 'lading[video]'."
            raise missing_extra(error, "videos are decoded with PyAV", "av", advice) from error
        try:
            return self._read(partial(av.open, mode="r"), data)
        except DataError:
            raise
        except (av.FFmpegError, *BROKEN) as error:
            raise DataError("the video cannot be decoded", found=str(error)[:200]) from error

    def _read(self, open_video: Callable[[Any], Any], data: bytes) -> NDArray[np.uint8]:
        with open_video(io.BytesIO(data)) as container:
            if not container.streams.video:
                raise DataError("the file has no video", found=container.format.name)
            found = self._by_time(container)
        if found is None:
            with open_video(io.BytesIO(data)) as container:
                wanted = self._chosen(sum(1 for _ in container.decode(video=0)))
            with open_video(io.BytesIO(data)) as container:
                kept = {i: self._pixels(frame) for i, frame in enumerate(container.decode(video=0)) if i in wanted}
            found = [kept[i] for i in wanted]
        return np.stack(found)

    def _chosen(self, total: int) -> list[int]:
        """The frames of a video that are wanted, by number."""
        if not total:
            raise DataError("the video has no frames")
        if self.every is not None:
            return [*range(0, total, self.every)]
        return [int(place) for place in np.linspace(0, total - 1, self.count or 1).round()]

    def _by_time(self, container: Any) -> list[NDArray[np.uint8]] | None:
        """The wanted frames, found by their times; None for a file that does not keep them, or a seek that misses."""
        stream = container.streams.video[0]
        packets = [(p.pts, p.is_keyframe) for p in container.demux(stream) if p.size and not p.is_discard]
        if any(time is None for time, _ in packets):
            return None
        times = sorted(time for time, _ in packets)
        keys = np.array(sorted(time for time, is_key in packets if is_key))
        wanted = [times[i] for i in self._chosen(len(times))]
        kept: dict[int, NDArray[np.uint8]] = {}
        decoded: Iterator[Any] = iter(())
        at = None
        for time in dict.fromkeys(wanted):
            place = int(np.searchsorted(keys, time, "right")) - 1
            if place < 0:
                return None
            if at is None or keys[place] > at:
                container.seek(int(keys[place]), stream=stream)
                decoded = container.decode(stream)
            frame = next((each for each in decoded if each.pts is not None and each.pts >= time), None)
            if frame is None or frame.pts != time:
                return None
            kept[time], at = self._pixels(frame), time
        return [kept[time] for time in wanted]

    def _pixels(self, frame: Any) -> NDArray[np.uint8]:
        turns = int(frame.rotation) // 90 % 4
        height, width = (None, None) if self.size is None else self.size[::-1] if turns % 2 else self.size
        pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
        return np.ascontiguousarray(np.rot90(pixels, turns))
