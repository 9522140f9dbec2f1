"""Facts of media files from their headers: size, duration, rates, codec; nothing is decoded.

Most facts are in the first bytes. The index of an MP4 file may be at its end, and the length of an Ogg file is there:
`probe` says which further range it needs, so that a caller can read the ranges of many files together.

Source: RFC 2361 and EBU Tech 3306 (WAV, RF64); RFC 9639 (FLAC); RFC 3533, RFC 7845 and Vorbis I (Ogg); ISO/IEC 11172-3,
13818-3 and the Xing and VBRI headers (MP3); ISO/IEC 14496-12 and QuickTime (MP4, MOV); RFC 8794 and 9559 (Matroska).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lading._core.content.image import image_info, is_image

__all__ = ["MediaBytes", "MediaInfo", "Needed", "media_info", "probe"]

_IMAGE_BYTES = (64 << 10, 4 << 20)
_MOST_BOXES = 4096
_WINDOW = 16 << 10
_TAILS = (8 << 10, 66 << 10)
"""Last bytes of an Ogg file that hold a page: a page has up to 65,307 bytes."""

_PADDING = 64 << 10


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """What the header of an image, audio or video file says; None where the header does not say it.

    Attributes:
        kind: `image`, `audio` or `video`.
        format: by content, in lower case: `jpeg`, `png`, `wav`, `mp3`, `mp4` …
        width: pixels, as viewers show the image or video: turned as its header says.
        height: the same.
        frames: images in the file.
        duration_s: seconds.
        sample_rate: audio samples a second.
        channels: audio channels.
        fps: video frames a second.
        codec: name of the codec, of the video if there is one.
        stored_width: pixels, as they are stored.
        stored_height: the same.
        orientation: how viewers turn images, as EXIF counts it: 1 for upright, 6 for a quarter to the right.
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
    stored_width: int | None = None
    stored_height: int | None = None
    orientation: int | None = None

    @property
    def aspect_ratio(self) -> float | None:
        """Width / height, as viewers show the image or video; None where a side is unknown or 0."""
        return self.width / self.height if self.width is not None and self.height else None


@dataclass(frozen=True, slots=True)
class Needed:
    """A range of the file that `probe` needs."""

    offset: int
    length: int


class _More(Exception):
    """A range that is not known yet."""

    def __init__(self, offset: int, length: int) -> None:
        super().__init__(offset, length)
        self.needed = Needed(offset, length)


class MediaBytes:
    """The known ranges of a media file.

    Args:
        head: the first bytes.
        size_bytes: size of the file; None if it is unknown.
    """

    def __init__(self, head: bytes | bytearray | memoryview, size_bytes: int | None = None) -> None:
        self.head = memoryview(head).cast("B")
        self.size_bytes = size_bytes
        self._parts = [(0, self.head)]

    def add(self, offset: int, data: bytes | memoryview) -> None:
        """Add a range."""
        view = memoryview(data).cast("B")
        if offset == 0 and len(view) > len(self.head):
            self.head = view
        self._parts.append((offset, view))

    def read(self, offset: int, length: int, window: int = _WINDOW) -> bytes:
        """Return a range, shorter at the end of the file. Asks for `window` bytes where the range is not known."""
        stop = offset + length if self.size_bytes is None else min(offset + length, self.size_bytes)
        for first, view in self._parts:
            if first <= offset and stop <= first + len(view):
                return bytes(view[offset - first : stop - first])
        if self.size_bytes is None:
            raise struct.error("past the known bytes")
        if offset >= self.size_bytes:
            return b""
        raise _More(offset, min(max(length, window), self.size_bytes - offset))

    @property
    def is_whole(self) -> bool:
        """Whether the first bytes are all of the file."""
        return self.size_bytes is None or len(self.head) >= self.size_bytes


def media_info(head: bytes | bytearray | memoryview, size_bytes: int | None = None) -> MediaInfo | None:
    """Return the facts in the first bytes of a media file; None for an unknown kind, or a header that is cut.

    Never raises. Facts that lie elsewhere in the file are None: give all of the file to get them.

    Example:
        media_info(data).duration_s  # → 2.5

    Args:
        head: the first bytes, or all.
        size_bytes: size of the file, if the first bytes are not all.
    """
    known = MediaBytes(head, len(head) if size_bytes is None else size_bytes)
    found = probe(known)
    if not isinstance(found, Needed):
        return found
    found = probe(MediaBytes(head))  # facts that lie elsewhere stay unknown
    return None if isinstance(found, Needed) else found


def probe(known: MediaBytes) -> MediaInfo | Needed | None:
    """Return the facts of a media file, the range that is needed to know them, or None for an unknown kind.

    Reads at most a few small ranges: add the needed one to `known`, and call again, a dozen times at most.
    """
    head = known.head
    try:
        if is_image(head):
            image = _image(known)
            if image is not None:
                return image
        for magic, at, parse in _PARSERS:
            if head[at : at + len(magic)] == magic:
                return parse(known)
        if _is_mp3(head):
            return _mp3(known)
    except _More as more:
        return more.needed
    except (struct.error, IndexError, ValueError, OverflowError, ZeroDivisionError):
        return None
    return None


def _image(known: MediaBytes) -> MediaInfo | None:
    found = image_info(known.head)
    if found is not None:
        return MediaInfo(
            "image", found.mime.removeprefix("image/"), found.width, found.height, found.frames,
            stored_width=found.stored_width, stored_height=found.stored_height, orientation=found.orientation,
        )  # fmt: skip
    if bytes(known.head[4:8]) == b"ftyp" and bytes(known.head[8:12]) not in _STILL_BRANDS:
        return None
    most = next((most for most in _IMAGE_BYTES if len(known.head) < most), 0)
    if most and not known.is_whole:
        raise _More(0, min(most, known.size_bytes or most))
    return None


_STILL_BRANDS = {b"avif", b"avis", b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"}


# WAV, AVI


def _riff(known: MediaBytes) -> MediaInfo | None:
    kind = bytes(known.head[8:12])
    if kind == b"AVI ":
        return _avi(known)
    if kind != b"WAVE":
        return None
    at, form, wide = 12, b"", 0
    for _ in range(_MOST_BOXES):
        name, size = struct.unpack("<4sI", known.read(at, 8))
        if name == b"ds64":
            (wide,) = struct.unpack("<Q", known.read(at + 16, 8))
        elif name == b"fmt ":
            form = known.read(at + 8, min(size, 40))
        elif name == b"data":
            tag, channels, rate, byte_rate = struct.unpack_from("<HHII", form)
            if tag == _EXTENSIBLE and len(form) >= 26:  # noqa: PLR2004 - up to the subformat
                (tag,) = struct.unpack_from("<H", form, 24)
            length: int | None = wide if size == _UNKNOWN and wide else size
            if size in (0, _UNKNOWN) and not wide:  # written to a pipe
                length = None if known.size_bytes is None else known.size_bytes - at - 8
            seconds = None if length is None or not byte_rate else length / byte_rate
            return MediaInfo("audio", "wav", duration_s=seconds, sample_rate=rate, channels=channels,
                             codec=_WAV_CODECS.get(tag, f"0x{tag:04x}"))  # fmt: skip
        at += 8 + size + size % 2
    return None


_UNKNOWN, _EXTENSIBLE = 0xFFFFFFFF, 0xFFFE
_WAV_CODECS = {1: "pcm", 2: "adpcm", 3: "float", 6: "alaw", 7: "mulaw", 0x55: "mp3"}


def _avi(known: MediaBytes) -> MediaInfo:
    head = known.read(0, 120)
    micros, _, _, _, frames = struct.unpack_from("<5I", head, 32)
    width, height = struct.unpack_from("<II", head, 64)
    codec = bytes(head[112:116]).strip(b"\0 ").decode("ascii", "replace").lower() if head[100:104] == b"strh" else None
    codec = _AVI_CODECS.get(codec or "", codec)
    fps = 1e6 / micros if micros else None
    seconds = frames * micros / 1e6 if micros and frames else None
    return MediaInfo("video", "avi", width, height, frames or None, seconds, fps=fps, codec=codec or None)


_AVI_CODECS = {"fmp4": "mpeg4", "xvid": "mpeg4", "divx": "mpeg4", "dx50": "mpeg4", "x264": "h264"}


# FLAC, Ogg


def _flac(known: MediaBytes, at: int = 0) -> MediaInfo:
    return _stream_info(known.read(at + 8, 34), "flac")


def _stream_info(block: bytes, kind: str) -> MediaInfo:
    (bits,) = struct.unpack_from(">Q", block, 10)
    rate, channels, total = bits >> 44, (bits >> 41 & 7) + 1, bits & ((1 << 36) - 1)
    return MediaInfo("audio", kind, duration_s=total / rate if total else None, sample_rate=rate, channels=channels,
                     codec="flac")  # fmt: skip


def _ogg(known: MediaBytes) -> MediaInfo | None:
    start = 27 + known.read(26, 1)[0]
    packet = known.read(start, 64)
    if packet[:7] == b"\x01vorbis":
        channels, rate = struct.unpack_from("<BI", packet, 11)
        found, skip = MediaInfo("audio", "ogg", sample_rate=rate, channels=channels, codec="vorbis"), 0
    elif packet[:8] == b"OpusHead":
        channels, skip = struct.unpack_from("<BH", packet, 9)
        found = MediaInfo("audio", "ogg", sample_rate=48_000, channels=channels, codec="opus")
    elif packet[:5] == b"\x7fFLAC":
        found, skip = replace(_stream_info(packet[17:], "ogg"), duration_s=None), 0
    else:
        return None
    last = _last_position(known)
    seconds = None if last is None or not found.sample_rate else max(last - skip, 0) / found.sample_rate
    return replace(found, duration_s=seconds)


def _last_position(known: MediaBytes) -> int | None:
    """Return the position in samples at the end of an Ogg file."""
    if known.size_bytes is None:
        return None
    for length in _TAILS:
        begin = max(known.size_bytes - length, 0)
        tail = known.read(begin, known.size_bytes - begin)
        at = tail.rfind(b"OggS")
        while at >= 0:
            (position,) = struct.unpack_from("<q", tail, at + 6)
            if position >= 0:
                return int(position)
            at = tail.rfind(b"OggS", 0, at)
    return None


# MP3


def _id3(known: MediaBytes) -> MediaInfo | None:
    size = 0
    for byte in known.read(6, 4):
        size = size << 7 | byte & 0x7F
    at = 10 + size + (10 if known.read(5, 1)[0] & 0x10 else 0)
    head = known.read(at, 4)
    if head == b"fLaC":
        return _flac(known, at)
    while head[:1] == b"\0" and at < 10 + size + _PADDING:  # padding that the tag does not count
        at += 1
        head = known.read(at, 4)
    return _mp3(known, at)


def _is_mp3(head: memoryview) -> bool:
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:  # noqa: PLR2004 - a frame's header
        return False
    return _frame(bytes(head[:4])) is not None


def _frame(head: bytes) -> tuple[int, int, int, int, int] | None:
    """Return bits a second, rate, channels, samples a frame and the size of the side information of a frame."""
    (bits,) = struct.unpack(">I", head)
    version, layer, rate_at, bitrate_at = bits >> 19 & 3, bits >> 17 & 3, bits >> 10 & 3, bits >> 12 & 15
    if bits >> 21 != 0x7FF or version == 1 or layer != 1 or rate_at == 3 or bitrate_at in (0, 15):  # noqa: PLR2004 - reserved
        return None
    new = version == 3  # noqa: PLR2004 - MPEG 1
    rate = (44_100, 48_000, 32_000)[rate_at] >> (0 if new else 1 if version == 2 else 2)  # noqa: PLR2004 - MPEG 2, 2.5
    mono = bits >> 6 & 3 == 3  # noqa: PLR2004 - one channel
    kilobits = (_MPEG1 if new else _MPEG2)[bitrate_at]
    side = (17 if mono else 32) if new else (9 if mono else 17)
    return kilobits * 1000, rate, 1 if mono else 2, 1152 if new else 576, side


_MPEG1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)


def _mp3(known: MediaBytes, at: int = 0) -> MediaInfo | None:
    frame = _frame(known.read(at, 4))
    if frame is None:
        return None
    bit_rate, rate, channels, samples, side = frame
    head = known.read(at, 4 + side + _XING_BYTES)
    frames = trimmed = 0
    if head[4 + side : 8 + side] in (b"Xing", b"Info") and head[11 + side] & 1:
        (frames,) = struct.unpack_from(">I", head, 12 + side)
        trimmed = _encoder_delay(head[4 + side :])
    elif head[36:40] == b"VBRI":
        (frames,) = struct.unpack_from(">I", head, 50)
    if not frames and known.is_whole:
        frames = _uncounted_frames(known.head, at)
    if frames:
        seconds: float | None = (frames * samples - trimmed) / rate
    else:
        seconds = None if known.size_bytes is None else (known.size_bytes - at) * 8 / bit_rate
    return MediaInfo("audio", "mp3", duration_s=seconds, sample_rate=rate, channels=channels, codec="mp3")


_XING_BYTES = 160
_ALIKE_FRAMES = 1000
"""After so many frames of one bit rate all of the file is taken to have it."""


def _uncounted_frames(head: memoryview, at: int) -> int:
    """Return the number of frames of a file that does not say it; 0 where they have one bit rate, which says it too."""
    count, first, varies = 0, 0, False
    while at + 4 <= len(head) and (count < _ALIKE_FRAMES or varies):
        frame = _frame(bytes(head[at : at + 4]))
        if frame is None:
            break
        bit_rate, rate, _, samples, _ = frame
        first = first or bit_rate
        varies |= bit_rate != first
        count += 1
        at += samples // 8 * bit_rate // rate + (head[at + 2] >> 1 & 1)
    return count if varies else 0


def _encoder_delay(xing: bytes) -> int:
    """Return the samples that an encoder put before and behind the audio, as LAME and others write them."""
    flags = xing[7]
    at = 8 + 4 * (flags & 1) + 4 * (flags >> 1 & 1) + 100 * (flags >> 2 & 1) + 4 * (flags >> 3 & 1)
    if xing[at : at + 4] not in (b"LAME", b"Lavf", b"Lavc"):
        return 0
    high, middle, low = xing[at + 21 : at + 24]
    return (high << 4 | middle >> 4) + ((middle & 15) << 8 | low)


# MP4, MOV


@dataclass(frozen=True, slots=True)
class _Box:
    name: bytes
    start: int
    stop: int


def _boxes(known: MediaBytes, at: int, stop: int | None) -> Iterator[_Box]:
    """Yield the boxes of a range; `start` is behind the header."""
    for _ in range(_MOST_BOXES):
        if stop is not None and at + 8 > stop:
            return
        head = known.read(at, 16)
        size, name = struct.unpack_from(">I4s", head)
        start = at + 8
        if size == 1:
            (size,) = struct.unpack_from(">Q", head, 8)
            start = at + 16
        end = at + size if size else stop if stop is not None else known.size_bytes
        if end is None or end < start:
            return
        yield _Box(name, start, end)
        at = end


def _find(known: MediaBytes, box: _Box, *names: bytes) -> _Box | None:
    for name in names:
        found = next((each for each in _boxes(known, box.start, box.stop) if each.name == name), None)
        if found is None:
            return None
        box = found
    return box


def _mp4(known: MediaBytes) -> MediaInfo | None:
    brand = bytes(known.head[8:12]) if bytes(known.head[4:8]) == b"ftyp" else b"qt  "
    movie = next((box for box in _boxes(known, 0, known.size_bytes) if box.name == b"moov"), None)
    if movie is None:
        return None
    found = MediaInfo("audio", _MP4_FORMATS.get(brand, "mp4"), duration_s=_movie_seconds(known, movie))
    for box in _boxes(known, movie.start, movie.stop):
        if box.name == b"trak":
            found = _with_track(known, box, found)
    return found if found.duration_s else _with_fragments(known, movie, found)


def _with_fragments(known: MediaBytes, movie: _Box, found: MediaInfo) -> MediaInfo:
    """Add the facts of a file whose samples lie in fragments, as those for streaming: each tells its own times.

    Of a file that is not in memory the first fragments tell the frames a second. Its duration and number of frames stay
    unknown where it has more fragments.
    """
    extends = _find(known, movie, b"mvex", b"trex")
    track = next((box for box in _boxes(known, movie.start, movie.stop)
                  if box.name == b"trak" and _handler(known, box) in (b"vide", b"soun")), None)  # fmt: skip
    head = None if track is None else _find(known, track, b"mdia", b"mdhd")
    if extends is None or track is None or head is None:
        return found
    tracks = _find(known, track, b"tkhd")
    if tracks is None:
        return found
    (number,) = struct.unpack(">I", known.read(tracks.start + (20 if known.read(tracks.start, 1)[0] else 12), 4))
    _, usual = struct.unpack(">II", known.read(extends.start + 8, 8))
    scale, most = _scaled(known, head)[0], _MOST_FRAGMENTS if known.is_whole else _FEW_FRAGMENTS
    frames = ticks = seen = 0
    for box in _boxes(known, movie.stop, known.size_bytes):
        if box.name != b"moof":
            continue
        if seen == most:
            break
        seen += 1
        for part in _boxes(known, box.start, box.stop):
            count, time = _run(known, part, number, usual) if part.name == b"traf" else (0, 0)
            frames, ticks = frames + count, ticks + time
    else:
        found = replace(found, duration_s=ticks / scale if ticks and scale else None)
    if found.kind == "video" and ticks:
        found = replace(found, frames=frames if found.duration_s else None, fps=frames * scale / ticks)
    return found


_MOST_FRAGMENTS, _FEW_FRAGMENTS = 100_000, 8


def _handler(known: MediaBytes, track: _Box) -> bytes:
    found = _find(known, track, b"mdia", b"hdlr")
    return b"" if found is None else known.read(found.start + 8, 4)


def _run(known: MediaBytes, fragment: _Box, number: int, usual: int) -> tuple[int, int]:
    """Return the samples of a track in a fragment, and their time.

    Source: ISO/IEC 14496-12 §8.8.7 (`tfhd`) and §8.8.8 (`trun`).
    """
    head = _find(known, fragment, b"tfhd")
    if head is None:
        return 0, 0
    flags, track = struct.unpack(">II", known.read(head.start, 8))
    if track != number:
        return 0, 0
    if flags & 8:
        at = head.start + 8 + (8 if flags & 1 else 0) + (4 if flags & 2 else 0)
        (usual,) = struct.unpack(">I", known.read(at, 4))
    frames = ticks = 0
    for box in _boxes(known, fragment.start, fragment.stop):
        if box.name != b"trun":
            continue
        flags, count = struct.unpack(">II", known.read(box.start, 8))
        frames += count
        if not flags & 0x100:
            ticks += count * usual
            continue
        each = 4 * sum(bool(flags & bit) for bit in (0x100, 0x200, 0x400, 0x800))
        first = box.start + 8 + (4 if flags & 1 else 0) + (4 if flags & 4 else 0)
        data = known.read(first, min(count * each, box.stop - first))
        ticks += sum(struct.unpack_from(">I", data, at)[0] for at in range(0, len(data) - each + 1, each))
    return frames, ticks


_MP4_FORMATS = {b"qt  ": "mov", b"M4A ": "m4a", b"M4B ": "m4a"}


def _movie_seconds(known: MediaBytes, movie: _Box) -> float | None:
    head = _find(known, movie, b"mvhd")
    if head is None:
        return None
    scale, duration = _scaled(known, head)
    if not duration:
        fragments = _find(known, movie, b"mvex", b"mehd")
        if fragments is not None:
            data = known.read(fragments.start, 12)
            (duration,) = struct.unpack_from(">Q" if data[0] else ">I", data, 4)
    return duration / scale if duration and scale else None


def _scaled(known: MediaBytes, box: _Box) -> tuple[int, int]:
    """Return units a second and the duration in them, of a movie or a track."""
    data = known.read(box.start, 36)
    scale, duration = struct.unpack_from(">IQ" if data[0] else ">II", data, 20 if data[0] else 12)
    return scale, duration if duration not in (_UNKNOWN, (1 << 64) - 1) else 0


def _with_track(known: MediaBytes, track: _Box, found: MediaInfo) -> MediaInfo:
    media = _find(known, track, b"mdia")
    handler = None if media is None else _find(known, media, b"hdlr")
    if media is None or handler is None:
        return found
    kind = known.read(handler.start + 8, 4)
    entry = _find(known, media, b"minf", b"stbl", b"stsd")
    if entry is None or kind not in (b"vide", b"soun"):
        return found
    sample = known.read(entry.start + 8, 36)
    codec = sample[4:8].strip(b"\0 ").decode("latin-1").lower()
    if kind == b"soun":
        channels, rate = struct.unpack(">H6xI", known.read(entry.start + 8 + 24, 12))
        sound = {} if found.sample_rate else {"channels": channels, "sample_rate": rate >> 16 or None}
        return replace(found, codec=found.codec or _MP4_CODECS.get(codec, codec), **sound)
    if found.kind == "video":
        return found
    width, height = struct.unpack(">HH", known.read(entry.start + 8 + 32, 4))
    times, head = _find(known, media, b"minf", b"stbl", b"stts"), _find(known, media, b"mdhd")
    orientation = _track_orientation(known, track)
    shown = (height, width) if orientation in (6, 8) else (width, height)
    more: dict[str, Any] = {"kind": "video", "width": shown[0], "height": shown[1], "stored_width": width,
                            "stored_height": height, "orientation": orientation,
                            "codec": _MP4_CODECS.get(codec, codec)}  # fmt: skip
    if times is not None and head is not None:
        frames, ticks = _frames(known, times)
        scale, _ = _scaled(known, head)
        more |= {"frames": frames or None, "fps": frames * scale / ticks if frames and ticks else None}
    return replace(found, **more)


_MATRICES = {(1, 0, 0, 1): 1, (0, 1, -1, 0): 6, (-1, 0, 0, -1): 3, (0, -1, 1, 0): 8}


def _track_orientation(known: MediaBytes, track: _Box) -> int:
    """Return how players turn the frames of a track, as EXIF counts it: a matrix in its head says it."""
    head = _find(known, track, b"tkhd")
    if head is None:
        return 1
    at = head.start + (52 if known.read(head.start, 1)[0] else 40)
    a, b, _, c, d = struct.unpack(">5i", known.read(at, 20))
    signs = tuple((value > 0) - (value < 0) for value in (a, b, c, d))
    return _MATRICES.get(signs, 1)


_MP4_CODECS = {"avc1": "h264", "avc3": "h264", "hvc1": "hevc", "hev1": "hevc", "av01": "av1", "vp09": "vp9",
               "mp4a": "aac", "mp4v": "mpeg4", "fl": "flac"}  # fmt: skip
_MOST_RUNS = 8192


def _frames(known: MediaBytes, times: _Box) -> tuple[int, int]:
    """Return the number of frames in a table of runs of equal times, and their time; 0 if it has too many runs.

    The duration of a track counts the delay of frames that are shown in another order, and this time does not.
    """
    (runs,) = struct.unpack(">I", known.read(times.start + 4, 4))
    if runs > _MOST_RUNS:
        return 0, 0
    data = known.read(times.start + 8, runs * 8)
    pairs = [*struct.iter_unpack(">II", data[: len(data) // 8 * 8])]
    return sum(count for count, _ in pairs), sum(count * each for count, each in pairs)


# Matroska, WebM

_SEGMENT, _INFO, _TRACKS, _CLUSTER, _ENTRY, _DOC_TYPE = 0x18538067, 0x1549A966, 0x1654AE6B, 0x1F43B675, 0xAE, 0x4282
_SCALE, _DURATION, _TYPE, _CODEC, _VIDEO, _AUDIO = 0x2AD7B1, 0x4489, 0x83, 0x86, 0xE0, 0xE1
_WIDTH, _HEIGHT, _RATE, _CHANNELS, _FRAME_TIME = 0xB0, 0xBA, 0xB5, 0x9F, 0x23E383
_EBML = 0x1A45DFA3


def _number(data: bytes, at: int, *, keep: bool) -> tuple[int, int]:
    """Return a number of variable length and where it ends; with `keep`, its length mark stays (an id)."""
    first = data[at]
    length = 9 - first.bit_length()
    value = int.from_bytes(data[at : at + length], "big")
    return value if keep else value & ((1 << 7 * length) - 1), at + length


def _elements(known: MediaBytes, at: int, stop: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield the elements of a range: id, start and end of the content. One of unknown size goes to the end."""
    for _ in range(_MOST_BOXES):
        if stop is not None and at + 2 > stop:
            return
        head = known.read(at, 12)
        name, i = _number(head, 0, keep=True)
        size, j = _number(head, i, keep=False)
        start = at + j
        unknown = size == (1 << 7 * (j - i)) - 1
        at = (stop if stop is not None else known.size_bytes or start) if unknown else start + size
        yield name, start, at


def _matroska(known: MediaBytes) -> MediaInfo | None:
    found, is_webm = MediaInfo("audio", "mkv"), False
    for name, start, stop in _elements(known, 0, known.size_bytes):
        if name == _EBML:
            is_webm = any(
                known.read(a, b - a) == b"webm" for each, a, b in _elements(known, start, stop) if each == _DOC_TYPE
            )
        elif name == _SEGMENT:
            for inner, first, last in _elements(known, start, stop):
                if inner == _INFO:
                    values = _values(known, first, last)
                    scale = int.from_bytes(values.get(_SCALE, b""), "big") or 1_000_000
                    length = _float(values.get(_DURATION, b""))
                    found = replace(found, duration_s=length * scale / 1e9 if length else None)
                elif inner == _TRACKS:
                    for entry, a, b in _elements(known, first, last):
                        found = _with_entry(known, a, b, found) if entry == _ENTRY else found
                    break
                elif inner == _CLUSTER:
                    break
            break
    return replace(found, format="webm") if is_webm else found


def _values(known: MediaBytes, start: int, stop: int) -> dict[int, bytes]:
    return {name: known.read(a, min(b - a, 256)) for name, a, b in _elements(known, start, stop)}


def _float(data: bytes) -> float:
    return float(struct.unpack(">f" if len(data) == 4 else ">d", data)[0]) if len(data) in (4, 8) else 0.0  # noqa: PLR2004 - bytes


def _with_entry(known: MediaBytes, start: int, stop: int, found: MediaInfo) -> MediaInfo:
    values = {name: (a, b) for name, a, b in _elements(known, start, stop)}

    def data(name: int) -> bytes:
        a, b = values.get(name, (0, 0))
        return known.read(a, min(b - a, 256)) if b > a else b""

    codec = data(_CODEC).rstrip(b"\0").decode("latin-1").partition("_")[2].partition("/")[0].lower()
    codec = _MATROSKA_CODECS.get(data(_CODEC).rstrip(b"\0").decode("latin-1"), codec)
    if _VIDEO in values and found.kind != "video":
        size = _values(known, *values[_VIDEO])
        width, height = (int.from_bytes(size.get(name, b""), "big") or None for name in (_WIDTH, _HEIGHT))
        frame = int.from_bytes(data(_FRAME_TIME), "big")
        fps = 1e9 / frame if frame else None
        return replace(found, kind="video", width=width, height=height, fps=fps, codec=codec)
    if _AUDIO in values and found.sample_rate is None:
        sound = _values(known, *values[_AUDIO])
        rate = round(_float(sound.get(_RATE, b""))) or 8000
        channels = int.from_bytes(sound.get(_CHANNELS, b""), "big") or 1
        return replace(found, sample_rate=rate, channels=channels, codec=found.codec or codec)
    return found


_MATROSKA_CODECS = {"V_MPEG4/ISO/AVC": "h264", "V_MPEGH/ISO/HEVC": "hevc", "A_MPEG/L3": "mp3"}

_PARSERS: tuple[tuple[bytes, int, Callable[[MediaBytes], MediaInfo | None]], ...] = (
    (b"RIFF", 0, _riff),
    (b"RF64", 0, _riff),
    (b"fLaC", 0, _flac),
    (b"OggS", 0, _ogg),
    (b"ID3", 0, _id3),
    (b"ftyp", 4, _mp4),
    (b"moov", 4, _mp4),
    (b"mdat", 4, _mp4),
    (b"wide", 4, _mp4),
    (b"\x1a\x45\xdf\xa3", 0, _matroska),
)
