"""Frames of videos: of the whole, or of windows of some seconds."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import is_number, public, shown_call
from lading._core.features.images import BROKEN
from lading._core.train.images import size_of
from lading._core.train.sounds import At, share_of, window_of
from lading.errors import DataError, LadingError, UsageError, missing_extra

__all__ = ["frames"]

_MOST_FPS = 1000
_MOST_REPEATS = 100
"""Of a frame in a whole video: damaged times may say that it lasts for years."""
_SAME_S = 1e-6
"""Seconds by which times differ that are the same."""


@public("lading.train.frames")
def frames(  # noqa: PLR0913 - all but one by keyword
    count: int | None = None,
    *,
    every: int | None = None,
    fps: float | None = None,
    start: float | None = None,
    stop: float | None = None,
    seconds: float | None = None,
    at: At | None = None,
    clips: int | None = None,
    pad: bool = False,
    image_size: int | tuple[int, int] | None = None,
) -> Callable[..., NDArray[np.uint8]]:
    """Return a function that decodes frames of a video: `uint8` of (frames, height, width, 3), upright.

    Only what the frames need is decoded: from the key frame before each.

    Example:
        lading.loader("clips/*.tar", 8, decode={"mp4": frames(count=8, image_size=224)})
        lading.loader("clips/*.tar", 8, decode={"mp4": frames(count=8, seconds=2, at="random", image_size=224)})

    Args:
        count: this many frames, at even distances from the first to the last; where there are fewer, frames repeat.
        every: the first frame, and every n-th behind it, instead of a count.
        fps: frames a second, instead of a count: at each time the frame that is shown then.
        start: second at which a window begins, from the first frame of the video on; the frame that is shown then is
            the first. Without a window, all of the video.
        stop: second at which the window ends: frames that begin before it.
        seconds: length of the window, instead of `stop`; without `start` it lies where `at` says.
        at: where a window of `seconds` lies: `start`, which is the default, `middle`, or `random`: from the seed, the
            epoch and the place of the sample in the order, so that a resumed job draws the same windows.
        clips: this many windows of `seconds`, at even distances from the first that fits to the last, or with
            `at="random"` anywhere: (clips, frames, height, width, 3).
        pad: repeat the last frame behind a video that is shorter than the window. By default this is an error.
        image_size: height and width to which frames are stretched, one number for both; None leaves frames as they are.

    Raises:
        UsageError: an argument is wrong, or not one of `count`, `every` and `fps`. The function raises DataError for a
            video that cannot be decoded or is too short, and MissingExtra where PyAV is not installed
            (`lading[video]`).
    """
    numbers = [each for each in (count, every) if each is not None]
    if len(numbers) + (fps is not None) != 1 or not all(map(_is_count, numbers)):
        raise UsageError("frames takes count or every, a number of at least 1, or fps",
                         found=f"count={count!r:.80}, every={every!r:.80}, fps={fps!r:.80}")  # fmt: skip
    if fps is not None and not (is_number(fps) and 0 < fps <= _MOST_FPS):
        raise UsageError("fps is a number of frames a second", expected=f"above 0, at most {_MOST_FPS:,}",
                         found=repr(fps))  # fmt: skip
    start, stop, seconds = window_of(start, stop, seconds, at)
    if clips is not None and (seconds is None or not _is_count(clips) or at in ("start", "middle")):
        raise UsageError("clips is a number of windows of some seconds", found=f"clips={clips!r}, at={at!r}",
                         expected='seconds=, without start=, and no at= but "random"')  # fmt: skip
    if pad and stop is None and seconds is None:
        raise UsageError("pad fills up windows", expected="stop= or seconds= too", found="pad=True")
    count, every, clips = (None if each is None else int(each) for each in (count, every, clips))
    fps = None if fps is None else float(fps)
    return _Frames(count, every, fps, start or 0.0, stop, seconds, at or "start", clips, pad, size_of(image_size))


def _is_count(value: object) -> bool:
    """Whether a value is a whole number of at least 1, of Python's or numpy's."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


@dataclass(frozen=True, slots=True, repr=False)
class _Frames:
    count: int | None = None
    every: int | None = None
    fps: float | None = None
    start: float = 0.0
    stop: float | None = None
    seconds: float | None = None
    at: At = "start"
    clips: int | None = None
    pad: bool = False
    image_size: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return shown_call("lading.train.frames", self)

    @property
    def draws(self) -> bool:
        """Whether a call takes a generator."""
        return self.at == "random"

    def __call__(self, data: bytes, rng: np.random.Generator | None = None) -> NDArray[np.uint8]:
        try:
            import av
        except ImportError as error:
            advice = "Install it: pip install 'lading[video]'."
            raise missing_extra(error, "videos are decoded with PyAV", "av", advice) from error
        try:
            return self._read(partial(av.open, mode="r"), data, rng)
        except LadingError:
            raise
        except (av.FFmpegError, *BROKEN) as error:
            raise DataError("the video cannot be decoded", found=str(error)[:200]) from error

    def _read(
        self, open_video: Callable[[Any], Any], data: bytes, rng: np.random.Generator | None
    ) -> NDArray[np.uint8]:
        with open_video(io.BytesIO(data)) as container:
            if not container.streams.video:
                raise DataError("the file has no video", found=container.format.name)
            places = self._places(rng)
            found = self._by_time(container, places)
        if found is None:
            with open_video(io.BytesIO(data)) as container:
                wanted = self._chosen(*_decoded_times(container), places)
            needed = {*wanted}
            with open_video(io.BytesIO(data)) as container:
                kept = {i: self._pixels(frame) for i, frame in enumerate(container.decode(video=0)) if i in needed}
            found = [kept[i] for i in wanted]
        made = np.stack(found)
        return made if self.clips is None else made.reshape(self.clips, -1, *made.shape[1:])

    # Which frames

    def _places(self, rng: np.random.Generator | None) -> list[float]:
        """Where windows of some seconds lie, as shares of the room that they have."""
        if self.clips is None:
            return [share_of(self.at, rng)]
        if self.at == "random":
            return sorted(share_of(self.at, rng) for _ in range(self.clips))
        return [*np.linspace(0, 1, self.clips)]

    def _chosen(self, times: NDArray[np.float64], end: float, places: Sequence[float]) -> list[int]:
        """The frames that are wanted, by number, one window after the other.

        Args:
            times: at which the frames begin, in seconds from the first on.
            end: of the last frame.
            places: of windows, as shares of the room that they have.
        """
        if not len(times):
            raise DataError("the video has no frames")
        if self.seconds is None:
            return self._window(times, end, self.start, self.stop)
        room = max(end - self.seconds, 0.0)
        windows = [self._window(times, end, room * place, room * place + self.seconds) for place in places]
        return [number for window in windows for number in window]

    def _window(self, times: NDArray[np.float64], end: float, start: float, stop: float | None) -> list[int]:
        step = end / len(times)
        if start >= end and start:
            raise DataError("the window begins behind the video", expected=f"more than {start} seconds",
                            found=f"{end:.3f} seconds")  # fmt: skip
        if stop is not None and stop > end + step / 2 and not self.pad:
            raise DataError("the video is shorter than the window", expected=f"{self.seconds or stop} seconds",
                            found=f"{end:.3f} seconds", advice="pad=True repeats the last frame.")  # fmt: skip
        first = int(np.searchsorted(times, start + _SAME_S, "right")) - 1
        if self.fps is not None:
            count = max(math.ceil(((stop or end) - start) * self.fps - _SAME_S), 1)
            if stop is None and count > _MOST_REPEATS * len(times):
                raise DataError(f"each frame would be repeated more than {_MOST_REPEATS} times",
                                found=f"{len(times):,} frames in {end:,.0f} seconds, fps={self.fps}",
                                advice="Give count= instead of fps=, or a window.")  # fmt: skip
            moments = start + np.arange(count) / self.fps
            return [*map(int, np.searchsorted(times, moments + _SAME_S, "right") - 1)]
        behind = len(times) if stop is None else int(np.searchsorted(times, stop - _SAME_S, "left"))
        total = behind - first
        if stop is not None and stop > end:
            total += round((stop - end) / step)
        places = range(0, total, self.every) if self.every is not None else np.linspace(0, total - 1, self.count or 1)
        return [min(first + round(place), len(times) - 1) for place in places]

    # Decoding

    def _by_time(self, container: Any, places: Sequence[float]) -> list[NDArray[np.uint8]] | None:
        """The wanted frames, found by their times; None for a file that does not keep them, or a seek that misses."""
        stream = container.streams.video[0]
        packets = [
            (p.pts, p.is_keyframe, p.duration or 0) for p in container.demux(stream) if p.size and not p.is_discard
        ]
        if any(time is None for time, *_ in packets):
            return None
        packets.sort()
        times = [time for time, *_ in packets]
        keys = np.array([time for time, is_key, _ in packets if is_key])
        last = packets[-1][2] if packets else 0
        begins = np.array([time - times[0] for time in times], np.float64) * float(stream.time_base)
        wanted = [times[i] for i in self._chosen(begins, _end(begins, last * float(stream.time_base), stream), places)]
        kept: dict[int, NDArray[np.uint8]] = {}
        decoded: Iterator[Any] = iter(())
        at = None
        for time in sorted({*wanted}):
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
        size = self.image_size or (None, None)
        height, width = size[::-1] if turns % 2 else size
        pixels = frame.to_ndarray(format="rgb24", width=width, height=height)
        return np.ascontiguousarray(np.rot90(pixels, turns))


def _decoded_times(container: Any) -> tuple[NDArray[np.float64], float]:
    """Return when the frames of a video begin, in seconds from the first on, and when the last one ends."""
    stream = container.streams.video[0]
    times = [frame.time for frame in container.decode(stream)]
    if all(time is not None for time in times) and all(one < other for one, other in pairwise(times)):
        begins = np.array([time - times[0] for time in times], np.float64)
    else:
        begins = np.arange(len(times)) / _rate(stream)
    return begins, _end(begins, 0.0, stream)


def _end(begins: NDArray[np.float64], last_s: float, stream: Any) -> float:
    """Return when a video ends; of a last frame without a duration, after as long as the frames take."""
    if not len(begins):
        return 0.0
    mean = float(begins[-1]) / max(len(begins) - 1, 1)
    return float(begins[-1]) + (last_s or mean or 1 / _rate(stream))


def _rate(stream: Any) -> float:
    return float(stream.average_rate or stream.guessed_rate or 25)
