"""Sound as arrays or tensors: whole files as they are, or a window at a rate of the user's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import is_number, public, shown_call
from lading._core.content.media_files import read_sound
from lading._core.train.tensors import torch_here
from lading.errors import DataError, UsageError, missing_extra

__all__ = ["At", "as_sound", "share_of", "sound", "window_of"]

At: TypeAlias = Literal["start", "middle", "random"]
"""Where a window of some seconds lies."""

_LEAST_RATE = 1000
_MOST_RATIO = 256
"""Of the rate that is asked for to the rate that a header says, which may be any number."""
_MARGIN = 256
"""Samples of the lower rate at each side of a window that the filter of soxr sees: it reaches no further than 128."""


def as_sound(data: bytes, *, torch: bool) -> dict[str, Any]:
    """Return `{"array", "sample_rate"}`: float32 of -1 to 1, (frames, channels) of numpy, (channels, frames) of torch.

    Raises:
        DataError: the bytes are no audio that soundfile reads, or a WAV or FLAC file that is cut.
        MissingExtra: soundfile, or torch, is not installed.
    """
    array, rate = read_sound(data)
    return {"array": torch_here().from_numpy(array.T.copy()) if torch else array, "sample_rate": rate}


@public("lading.train.sound")
def sound(
    rate: int,
    *,
    mono: bool = False,
    start: float | None = None,
    stop: float | None = None,
    seconds: float | None = None,
    at: At | None = None,
    pad: bool = False,
) -> Callable[..., NDArray[np.float32]]:
    """Return a function that decodes sound at one rate: float32 of -1 to 1, (channels, samples), (samples,) of `mono`.

    Example:
        lading.loader("speech/*.tar", 8, decode={"flac": sound(16_000, mono=True, seconds=5, at="random", pad=True)})

    A window is cut out of the resampled sound. Of WAV, FLAC and Opus only what it needs is decoded; MP3 and Vorbis are
    decoded from the begin on. All windows of `seconds`, and of `start` to `stop`, have one length: a column of
    them, of sounds with as many channels, is one array.

    Args:
        rate: samples a second, such as `16_000`. soxr resamples files of another rate.
        mono: take the mean of the channels.
        start: first second of the window.
        stop: second at which the window ends.
        seconds: length of the window, instead of `stop`; without `start` it lies where `at` says.
        at: where a window of `seconds` lies: `start`, which is the default, `middle`, or `random`: from the seed, the
            epoch and the place of the sample in the order, so that a resumed job draws the same windows.
        pad: put zeros behind a sound that is shorter than the window. By default this is an error.

    Raises:
        UsageError: an argument is wrong. The function raises DataError for a sound that cannot be decoded or is too
            short, and MissingExtra where soundfile or soxr is not installed (`lading[audio]`).
    """
    if not isinstance(rate, (int, np.integer)) or rate < _LEAST_RATE:
        raise UsageError(f"rate is a number of at least {_LEAST_RATE:,} samples a second", found=repr(rate)[:80],
                         expected="such as sound(16_000)")  # fmt: skip
    start, stop, seconds = window_of(start, stop, seconds, at)
    if pad and stop is None and seconds is None:
        raise UsageError("pad fills up windows", expected="stop= or seconds= too", found="pad=True")
    return _Sound(int(rate), mono, start or 0.0, stop, seconds, at or "start", pad)


def window_of(
    start: float | None, stop: float | None, seconds: float | None, at: At | None
) -> tuple[float | None, float | None, float | None]:
    """Return a window as start and stop, or as seconds that may lie anywhere.

    Raises:
        UsageError: arguments of a window are wrong, or exclude each other.
    """
    for name, value in (("start", start), ("stop", stop), ("seconds", seconds)):
        if value is not None and not (is_number(value) and 0 <= value < math.inf):
            raise UsageError(f"{name} is a number of seconds of at least 0", found=repr(value)[:80])
    start, stop, seconds = (value.item() if isinstance(value, np.number) else value for value in (start, stop, seconds))
    if seconds is not None and (stop is not None or not seconds):
        raise UsageError("a window has seconds above 0, or a stop", found=f"stop={stop}, seconds={seconds}")
    if stop is not None and stop <= (start or 0):
        raise UsageError("a window ends behind its start", found=f"start={start}, stop={stop}")
    if at is not None and (seconds is None or start is not None or at not in get_args(At)):
        raise UsageError("at says where a window of some seconds lies", expected="start, middle or random, with "
                         "seconds= and without start=", found=f"at={at!r}, start={start}, seconds={seconds}"
                         )  # fmt: skip
    return (start, start + seconds, None) if seconds is not None and start is not None else (start, stop, seconds)


@dataclass(frozen=True, slots=True, repr=False)
class _Sound:
    rate: int
    mono: bool = False
    start: float = 0.0
    stop: float | None = None
    seconds: float | None = None
    at: At = "start"
    pad: bool = False

    def __repr__(self) -> str:
        return shown_call("lading.train.sound", self)

    @property
    def draws(self) -> bool:
        """Whether a call takes a generator."""
        return self.at == "random"

    def __call__(self, data: bytes, rng: np.random.Generator | None = None) -> NDArray[np.float32]:
        first = total = begin = 0

        def part(frames: int, rate: int) -> tuple[int, int]:
            """The frames that the window needs."""
            nonlocal first, total, begin
            total = -((rate - 2 * frames * self.rate) // (2 * rate))  # as soxr makes; of a half, one less
            first = self._first(total, rng)
            last = total if self._length is None else min(first + self._length, total)
            if rate == self.rate:
                return first, last
            margin = math.ceil(_MARGIN * max(rate / self.rate, 1))
            step = rate // math.gcd(rate, self.rate)  # frames at which a sample of the new rate lies
            begin = max(first * rate // self.rate - margin, 0) // step * step
            return begin, min(-(-last * rate // self.rate) + margin, frames)

        whole = self._length is None and not self.start
        found, rate = read_sound(data, None if whole else part)
        if self.mono:
            found = found.mean(axis=1, keepdims=True)
        if rate != self.rate:
            made = _resampled(np.ascontiguousarray(found), rate, self.rate)
            found = made[first - begin * self.rate // rate :][: self._length]
        if not whole:
            found = self._filled(found, first, total)
        return np.ascontiguousarray(found[:, 0] if self.mono else found.T)

    @property
    def _length(self) -> int | None:
        """Samples of the window; None for all behind its start."""
        if self.seconds is not None:
            return round(self.seconds * self.rate)
        return None if self.stop is None else round(self.stop * self.rate) - round(self.start * self.rate)

    def _first(self, total: int, rng: np.random.Generator | None) -> int:
        """The first sample of the window, of so many."""
        if self.seconds is None:
            return min(round(self.start * self.rate), total)
        return int(share_of(self.at, rng) * (max(total - round(self.seconds * self.rate), 0) + 1))

    def _filled(self, found: NDArray[np.float32], first: int, total: int) -> NDArray[np.float32]:
        """The window as long as it is to be."""
        there = f"{total / self.rate:.3f} seconds"
        if self.start and first == total:
            raise DataError("the window begins behind the sound", expected=f"more than {self.start} seconds",
                            found=there)  # fmt: skip
        lacking = 0 if self._length is None else self._length - len(found)
        if lacking > 0 and not self.pad:
            raise DataError("the sound is shorter than the window", expected=f"{self.seconds or self.stop} seconds",
                            found=there, advice="pad=True puts zeros behind it.")  # fmt: skip
        return np.pad(found, ((0, lacking), (0, 0))) if lacking > 0 else found


def share_of(at: At, rng: np.random.Generator | None) -> float:
    """Return the place of a window as a share of the room that it has: from 0, and below 1.

    Raises:
        UsageError: a random place needs a generator.
    """
    if at != "random":
        return 0.0 if at == "start" else 0.5
    if rng is None:
        raise UsageError("a random window needs a generator", expected="numpy.random.Generator",
                         advice="A loader gives it to decode=. Elsewhere: function(data, rng).")  # fmt: skip
    return float(rng.random())


def _resampled(found: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    if wanted > rate * _MOST_RATIO:
        raise DataError("the rate of the sound is implausible", found=f"{rate} samples a second")
    try:
        import soxr
    except ImportError as error:
        advice = "Install it: pip install 'lading[audio]'."
        raise missing_extra(error, "sound is resampled with soxr", "soxr", advice) from error
    made: NDArray[np.float32] = soxr.resample(found, rate, wanted)
    return made
