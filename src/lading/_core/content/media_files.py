"""Media as Python values: images as Pillow's, audio and videos as bytes that know what their headers say.

Nothing is decoded before somebody asks: Pillow reads an image's header when the image is opened, and its pixels when
they are looked at; `AudioFile.array` decodes when it is read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lading._core.content.media_info import MediaInfo, media_info
from lading._core.features.images import BROKEN, STORED, remember_source, shown_upright
from lading._core.features.types import Audio, Feature, Image, Video
from lading._core.units import format_bytes
from lading.errors import DataError, LadingError, missing_extra

__all__ = [
    "MEDIA_OF_ITEMS",
    "AudioFile",
    "BrokenFile",
    "Opening",
    "VideoFile",
    "media_features",
    "open_image",
    "open_media",
    "read_sound",
]

Opening: TypeAlias = Literal["upright", "stored"]
"""How images are opened: turned as their EXIF data say, or with their pixels as they are stored."""

_AS_BYTES = "Read the bytes instead: ds.with_decode(False)."


class _MediaFile(bytes):
    """The bytes of a file, and facts of its header."""

    @cached_property
    def info(self) -> MediaInfo | None:
        """What the header says: format, duration, rates, sizes; None if lading does not know the format."""
        return media_info(self)

    def __str__(self) -> str:
        return repr(self)

    def __reduce__(self) -> tuple[type, tuple[bytes]]:
        return type(self), (bytes(self),)


class AudioFile(_MediaFile):
    """The bytes of an audio file, which decode on demand; the package `soundfile` reads them (`lading[audio]`).

    Example:
        clip = ds[0]["wav"]
        clip.duration_s, clip.sample_rate, clip.array.shape
    """

    @cached_property
    def array(self) -> NDArray[np.float32]:
        """The samples as float32 from -1 to 1: `(time,)` of one channel, `(channels, time)` of several.

        Raises:
            DataError: the bytes are no audio that soundfile reads, or a WAV or FLAC file that is cut.
            MissingExtra: soundfile is not installed.
        """
        found = read_sound(self)[0].T
        return np.ascontiguousarray(found[0] if len(found) == 1 else found)

    @cached_property
    def _sound_info(self) -> Any:
        return _sound(lambda soundfile: soundfile.info(io.BytesIO(self)))

    @property
    def sample_rate(self) -> int:
        """Samples a second. Raises as `array`, where the header alone does not say it."""
        return int((self.info and self.info.sample_rate) or self._sound_info.samplerate)

    @property
    def channels(self) -> int:
        """Number of channels. Raises as `sample_rate`."""
        return int((self.info and self.info.channels) or self._sound_info.channels)

    @property
    def duration_s(self) -> float:
        """Duration in seconds. Raises as `sample_rate`."""
        known = self.info and self.info.duration_s
        return float(known or self._sound_info.frames / self._sound_info.samplerate)

    def __repr__(self) -> str:
        return f"<AudioFile {_shown(self)}>"


_BLOCK_NUMBERS = 1 << 20
_SLACK_S = 0.2
_UNCOUNTED = (1 << 63) - 1
"""Frames that libsndfile says of a file whose header does not."""
_EXACT_SEEKS = ("PCM_", "FLOAT", "DOUBLE", "ULAW", "ALAW", "OPUS")
"""Encodings in which libsndfile seeks to the very frame. Of MP3 and Vorbis it may seek to another one."""


def read_sound(
    data: bytes, part: Callable[[int, int], tuple[int, int]] | None = None
) -> tuple[NDArray[np.float32], int]:
    """Return what an audio file holds, float32 from -1 to 1 of (frames, channels), and the frames a second.

    PyAV decodes what soundfile does not read: AAC, the sound of videos, and files that do not say their length. Memory
    grows with the frames that are there, and not with those that a header claims.

    Args:
        data: the file.
        part: is given the number of frames and the frames a second, and returns the first frame to read and the one
            behind the last. soundfile seeks to the first one where its seeks are exact; otherwise the file is decoded
            from its begin. None reads all.

    Raises:
        DataError: the bytes are no audio that these read, or a WAV or FLAC file that is cut.
        MissingExtra: soundfile, or PyAV, is not installed.
    """
    info = media_info(data)
    by_pyav = (info is not None and info.format in _SOUND_OF_PYAV) or _is_adts(data)
    least = info.duration_s or 0 if info is not None and info.format == "mp3" else 0
    read = None if by_pyav else _sound(lambda soundfile: _blocks(soundfile, data, part, least))
    if read is None:
        return _sound_by_pyav(data, part)
    blocks, rate, there = read
    found = blocks[1] if len(blocks) == 2 else np.concatenate(blocks)  # noqa: PLR2004 - none of all, and the only one
    if info is not None and info.duration_s and (info.format == "flac" or info.codec in ("pcm", "float")):
        expected = round(info.duration_s * (info.sample_rate or rate))
        if there < expected:
            raise DataError("the audio file is cut", expected=f"{expected:,} frames", found=f"{there:,}")
    return found, rate


def _blocks(
    soundfile: Any, data: bytes, part: Callable[[int, int], tuple[int, int]] | None, least_s: float
) -> tuple[list[NDArray[np.float32]], int, int] | None:
    """Return blocks of a part, the frames a second, and how many frames the file has, as far as they were read.

    None for a file that does not say how many it has: soundfile reads none of it. Of MP3 it guesses the number by the
    first bit rate, and reads no more: None too where so many seconds are more.
    """
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        if file.frames == _UNCOUNTED or file.frames < (least_s - _SLACK_S) * file.samplerate:
            return None
        begin, end = (0, None) if part is None else part(file.frames, file.samplerate)
        at, most, blocks = begin, max(_BLOCK_NUMBERS // file.channels, 1), [np.zeros((0, file.channels), np.float32)]
        file.seekable = lambda: False  # else soundfile seeks behind each block
        if begin and file.subtype.startswith(_EXACT_SEEKS):
            file.seek(begin)
        else:
            for passed in range(0, begin, most):
                file.read(min(most, begin - passed), "float32")
        while len(block := file.read(most if end is None else min(most, end - at), "float32", always_2d=True)):
            blocks.append(block)
            at += len(block)
        return blocks, int(file.samplerate), at if end is None else file.frames - (end - at)


_SOUND_OF_PYAV = frozenset(("m4a", "mp4", "mov", "mkv", "webm", "avi"))


def _is_adts(data: bytes) -> bool:
    """Return whether bytes are AAC in ADTS frames, as files that end in aac: MPEG layers are told by the same bits."""
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xF6 == 0xF0  # noqa: PLR2004 - the bits of a frame


def _sound_by_pyav(data: bytes, part: Callable[[int, int], tuple[int, int]] | None) -> tuple[NDArray[np.float32], int]:
    """Return sound as `read_sound`. Of a long file whose part is asked for, two passes keep no more than the part."""
    try:
        import av
    except ImportError as error:
        advice = "Install it: pip install 'lading[video]'. The bytes need nothing: bytes(sample[\"m4a\"])."
        raise missing_extra(
            error, "AAC, the sound of videos, and files without a length are decoded with PyAV", "av", advice
        ) from error
    try:
        found, rate, total = _decoded(av, data, most=_UNCOUNTED if part is None else 2 * _BLOCK_NUMBERS)
        if part is None:
            return found, rate
        begin, end = part(total, rate)
        return found[begin:end] if len(found) == total else _decoded(av, data, begin, end)[0], rate
    except LadingError:  # of what chooses the part
        raise
    except (av.FFmpegError, ValueError, LookupError) as error:
        raise DataError("the audio cannot be decoded", found=str(error)[:200]) from error


def _decoded(
    av: Any, data: bytes, begin: int = 0, end: int = _UNCOUNTED, most: int = _UNCOUNTED
) -> tuple[NDArray[np.float32], int, int]:
    """Return frames from `begin` to `end`, up to `most` numbers of them; the frames a second; how many there are."""
    with av.open(io.BytesIO(data)) as file:
        known = [stream for stream in file.streams.audio if stream.codec_context is not None]
        if not known:
            raise DataError("there is no sound in this file")
        stream = known[0]
        rate, channels = stream.rate, stream.channels
        resampler = av.AudioResampler(format="flt", layout=stream.layout.name, rate=rate)
        at, blocks = 0, [np.zeros((0, channels), np.float32)]
        for frame in chain(file.decode(stream), [None]):
            for made in resampler.resample(frame):
                block = made.to_ndarray().reshape(-1, channels)
                if at + len(block) > begin and (at + len(block)) * channels <= most:
                    blocks.append(block[max(begin - at, 0) : max(end - at, 0)])
                at += len(block)
            if at >= end:
                break
    return np.concatenate(blocks), int(rate), at


_OBJECT = re.compile(r"<_io\.BytesIO object at 0x[0-9a-f]+>")


def _sound(read: Callable[[Any], Any]) -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: the package is there, and the library behind it is not
        advice = "Install it: pip install 'lading[audio]'. The bytes need nothing: bytes(sample[\"wav\"])."
        raise missing_extra(error, "audio is decoded with soundfile", "soundfile", advice) from error
    try:
        return read(soundfile)
    except LadingError:  # of what reads
        raise
    except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
        found = _OBJECT.sub("the file", str(error))[:200].rstrip(".")
        raise DataError("the audio cannot be decoded", found=found) from error


class VideoFile(_MediaFile):
    """The bytes of a video file; `_core.train.videos.frames` decodes frames, or a decoder of your choice.

    Example: `ds[0]["mp4"].duration_s`
    """

    @property
    def duration_s(self) -> float | None:
        """Duration in seconds; None if the header does not say it, as all facts here."""
        return None if self.info is None else self.info.duration_s

    @property
    def width(self) -> int | None:
        """Pixels."""
        return None if self.info is None else self.info.width

    @property
    def height(self) -> int | None:
        """Pixels."""
        return None if self.info is None else self.info.height

    @property
    def fps(self) -> float | None:
        """Frames a second."""
        return None if self.info is None else self.info.fps

    def __repr__(self) -> str:
        return f"<VideoFile {_shown(self)}>"


class BrokenFile(bytes):
    """The bytes of a file that cannot be opened, as `ds.head()` gives them in place of an image.

    Attributes:
        error: why the file cannot be opened.
    """

    error: DataError

    def __new__(cls, data: bytes, error: DataError) -> Self:
        """Return these bytes with the error."""
        made = super().__new__(cls, data)
        made.error = error
        return made

    def __reduce__(self) -> tuple[type, tuple[bytes, DataError]]:
        return type(self), (bytes(self), self.error)

    def __repr__(self) -> str:
        return f"<broken file, {format_bytes(len(self))}: {self.error.message}>"

    def __str__(self) -> str:
        return repr(self)


def _shown(file: _MediaFile) -> str:
    """Format, duration and size, as far as the header says them."""
    info = file.info
    facts = [] if info is None else [info.format, *([f"{info.duration_s:.2f} s"] if info.duration_s else [])]
    return ", ".join([*facts, format_bytes(len(file))])


def open_image(data: bytes | memoryview, *, upright: bool = True) -> Any:
    """Return the Pillow image of these bytes. Only its header is read; pixels, and errors in them, come with `load()`.

    The image shares the bytes. They are written again as they are, as long as the image still shows them.

    Args:
        data: the file.
        upright: turn the pixels as EXIF data say, when they are read. False gives them as they are stored.

    Raises:
        DataError: Pillow knows no such image, or its header is damaged.
    """
    from PIL import Image as Pillow

    stored = data if isinstance(data, bytes) else bytes(data)
    try:
        image = Pillow.open(io.BytesIO(stored))
    except (Pillow.DecompressionBombError, Pillow.DecompressionBombWarning) as error:
        raise DataError("the image has more pixels than Pillow allows", found=str(error)[:200],
                        advice=f"Raise PIL.Image.MAX_IMAGE_PIXELS. {_AS_BYTES}") from error  # fmt: skip
    except BROKEN as error:
        raise DataError("the image cannot be opened", expected="an image that Pillow reads",
                        found=f"{len(stored):,} bytes that begin with {stored[:12]!r}",
                        advice=_AS_BYTES) from error  # fmt: skip
    remember_source(image, stored)
    setattr(image, STORED, stored)
    if upright:
        with suppress(*BROKEN):  # pixels that cannot be read are an error of whoever looks at them
            image = shown_upright(image)
            setattr(image, STORED, stored)
    return image


def open_media(feature: Feature, value: Any, opening: Opening = "upright") -> Any:
    """Return media bytes as an image, an `AudioFile` or a `VideoFile`, also inside lists and structs.

    Args:
        feature: the feature, as `media_features` gives it.
        value: the value, as `lading.features.decode` gives it. None, and structs without bytes, stay as they are.
        opening: of images.

    Raises:
        DataError: as `open_image`.
    """
    return feature.changed(value, lambda leaf, inside: _opened(leaf, inside, opening))


def _opened(feature: Feature, value: Any, opening: Opening) -> Any:
    if feature.medium is None or not isinstance(value, (bytes, memoryview)):
        return value
    if feature.medium == "image":
        return open_image(value, upright=opening == "upright")
    return _OPENED[feature.medium](value)


_OPENED: Mapping[str, Callable[[Any], Any]] = {"audio": AudioFile, "video": VideoFile}

MEDIA_OF_ITEMS: Mapping[str, Feature] = {"image": Image(), "audio": Audio(), "video": Video()}
"""Features of the payload of items, by modality."""


def media_features(features: Mapping[str, Feature]) -> dict[str, Feature]:
    """Return the features of columns that hold media, also inside lists and structs, by name."""
    return {name: feature for name, feature in features.items() if any(leaf.is_media for leaf in feature.leaves())}
