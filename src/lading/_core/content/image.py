"""Images from their headers: kind and size without decoding, and extract one frame of a multi-frame file.

A frame of a TIFF is copied, not decoded: its directory and strips go into a file of their own. The compressed pixels
stay bit by bit the same, and a file that declares a huge image costs nothing.

Source: PNG 1.2 §11.2.2; ITU T.81 §B.2.2; GIF89a §18; RFC 9649 (WebP); BITMAPINFOHEADER; TIFF 6.0 §2 and BigTIFF;
ISO/IEC 23008-12 §6.5.3 (`ispe`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading._core.features.images import ORIENTATION, SIDEWAYS, TURNS
from lading.errors import BadReference, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["ImageInfo", "extract_frame", "image_info", "is_image", "is_one_frame", "tiff_frames", "usual_sizes"]

_MOST_SEGMENTS = 4096
"""Maximum number of JPEG segments or ISO boxes to walk; real files have a few dozen before the size."""

_EXIF = b"Exif\0\0"
_LARGE_BYTES = 4 << 20
"""Of a WebP file of more bytes, EXIF data at its end are not looked for."""

_SLACK_BYTES = 4096
"""Bytes by which a frame may exceed twice the size of its file: header and padding of a tiny one."""


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Kind, size and frames of an image, from its header.

    Attributes:
        mime: MIME type by content, whatever the file is called.
        stored_width: pixels, as they are stored.
        stored_height: the same.
        frames: images in the file; None if only decoding would show their number.
        orientation: how viewers turn the pixels, as EXIF counts it: 1 for upright, 5 to 8 for a quarter turn.
    """

    mime: str
    stored_width: int
    stored_height: int
    frames: int | None = None
    orientation: int = 1

    @property
    def width(self) -> int:
        """Pixels, as viewers show the image."""
        return self.stored_height if self.orientation in SIDEWAYS else self.stored_width

    @property
    def height(self) -> int:
        """Pixels, as viewers show the image."""
        return self.stored_width if self.orientation in SIDEWAYS else self.stored_height


def is_image(head: bytes | bytearray | memoryview) -> bool:
    """Return whether a file with these first bytes (16 are enough) is an image of a type that `image_info` knows."""
    view = memoryview(head).cast("B")
    return any(view[at : at + len(magic)] == magic for magic, at, _ in _PARSERS)


def image_info(data: bytes | bytearray | memoryview) -> ImageInfo | None:
    """Return kind and size of an image by its first bytes; None for an unknown kind, or a header that is broken.

    A file that is cut gives the same answer as the whole file, or None. Knows PNG, JPEG, GIF, WebP, BMP, TIFF, AVIF and
    HEIF. Never raises; time does not grow with the picture.
    """
    view = memoryview(data).cast("B")
    for magic, at, parse in _PARSERS:
        if view[at : at + len(magic)] == magic:
            try:
                info = parse(view)
            except (struct.error, IndexError, BadReference, LimitExceeded):
                return None
            return info if info is not None and info.width > 0 and info.height > 0 else None
    return None


def usual_sizes(heads: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return width and height of many images by their first bytes, equally many of each: shape (2, n).

    −1 means: ask `image_info`. That is so for all but PNG and JPEG without EXIF data. An image takes 0.4 µs
    instead of 2.
    """
    size = np.full((2, len(heads)), -1, np.int64)
    if heads.shape[1] < _PNG_BYTES:
        return size
    png = np.flatnonzero((heads[:, :8] == _PNG).all(axis=1))
    if b"eXIf" in heads[png].tobytes():
        png = np.array([row for row in png if b"eXIf" not in heads[row].tobytes()], np.int64)
    size[:, png] = np.ascontiguousarray(heads[png, 16:_PNG_BYTES]).view(">u4").T
    rows = np.flatnonzero((heads[:, :3] == _JPEG).all(axis=1))
    at = np.full(len(rows), 2)
    for _ in range(_FEW_SEGMENTS):
        inside = at + _JPEG_BYTES <= heads.shape[1]
        rows, at = rows[inside], at[inside]
        if not len(rows):
            break
        segment = heads[rows[:, None], at[:, None] + np.arange(_JPEG_BYTES)].astype(np.int64)
        begun, kind = segment[:, 0] == 0xFF, segment[:, 1]  # noqa: PLR2004 - every segment begins so
        frame = begun & _IS_FRAME[kind]
        size[:, rows[frame]] = (segment[frame] @ _JPEG_SIZE).T
        more = begun & _HAS_LENGTH[kind] & ~((kind == _APP1) & (segment[:, 4] == _EXIF[0]))
        rows, at = rows[more], at[more] + 2 + np.maximum(2, segment[more] @ _JPEG_LENGTH)
    size[:, (size <= 0).any(axis=0)] = -1
    return size


def _png(view: memoryview) -> ImageInfo:
    """Return the size, and the orientation where EXIF data lie before the pixels, as readers expect them."""
    width, height = struct.unpack_from(">II", view, 16)
    at, orientation = 8, 1
    for _ in range(_MOST_SEGMENTS):
        if at + 8 > len(view) or bytes(view[at + 4 : at + 8]) == b"IDAT":
            break
        (size,) = struct.unpack_from(">I", view, at)
        if bytes(view[at + 4 : at + 8]) == b"eXIf":
            orientation = _orientation(view[at + 8 : at + 8 + size])
            break
        at += size + 12
    return ImageInfo("image/png", width, height, orientation=orientation)


def _orientation(exif: memoryview) -> int:
    """Return the orientation in EXIF data, which are a TIFF file; 1 if they do not tell it.

    Source: Exif 3.0 §4.6.
    """
    try:
        tiff = _Tiff(exif)
        (first,) = struct.unpack_from(f"{tiff.order}I", exif, 4)
        found = tiff.numbers(tiff.entries(first), ORIENTATION)
    except (struct.error, IndexError, ValueError, BadReference, LimitExceeded):
        return 1
    return _first_turn(found)


def _first_turn(values: NDArray[Any]) -> int:
    return int(values[0]) if len(values) and int(values[0]) in TURNS else 1


def _gif(view: memoryview) -> ImageInfo:
    return ImageInfo("image/gif", *struct.unpack_from("<HH", view, 6))


def _bmp(view: memoryview) -> ImageInfo | None:
    (header,) = struct.unpack_from("<I", view, 14)
    if header == 12:  # noqa: PLR2004 - BITMAPCOREHEADER
        width, height = struct.unpack_from("<HH", view, 18)
        return ImageInfo("image/bmp", width, height, 1)
    if header not in (16, 40, 52, 56, 64, 108, 124):
        return None
    width, height = struct.unpack_from("<ii", view, 18)
    return ImageInfo("image/bmp", width, abs(height), 1)  # negative: rows from the top


def _webp(view: memoryview) -> ImageInfo | None:
    kind = bytes(view[12:16])
    if kind == b"VP8X":
        width, height = (int.from_bytes(view[at : at + 3], "little") + 1 for at in (24, 27))
        if len(view) < 30:  # noqa: PLR2004 - end of the size
            return None
        orientation = _webp_orientation(view) if view[20] & _WEBP_EXIF else 1
        return None if orientation is None else ImageInfo("image/webp", width, height, orientation=orientation)
    if kind == b"VP8L" and view[20] == 0x2F:  # noqa: PLR2004 - signature
        (bits,) = struct.unpack_from("<I", view, 21)
        return ImageInfo("image/webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 1)
    if kind == b"VP8 " and bytes(view[23:26]) == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", view, 26)
        return ImageInfo("image/webp", width & 0x3FFF, height & 0x3FFF, 1)
    return None


def _jpeg(view: memoryview) -> ImageInfo | None:
    at, orientation = 2, 1
    for _ in range(_MOST_SEGMENTS):
        if view[at] != 0xFF:  # noqa: PLR2004 - every segment begins so
            return None
        marker = view[at + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", view, at + 5)
            return ImageInfo("image/jpeg", width, height, 1, orientation)
        if marker == _APP1 and bytes(view[at + 4 : at + 10]) == _EXIF:
            orientation = _orientation(view[at + 10 : at + 2 + struct.unpack_from(">H", view, at + 2)[0]])
        if marker in _JPEG_ENDS:
            return None
        if marker == 0xFF:  # noqa: PLR2004 - a fill byte
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        else:
            at += 2 + max(2, struct.unpack_from(">H", view, at + 2)[0])
    return None


_APP1 = 0xE1
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})
_JPEG_ENDS = frozenset({0xD9, 0xDA})

_PNG, _JPEG = np.frombuffer(b"\x89PNG\r\n\x1a\n", np.uint8), np.frombuffer(b"\xff\xd8\xff", np.uint8)
_PNG_BYTES, _JPEG_BYTES = 24, 9
"""End of the size field: in the file, in its segment."""
_FEW_SEGMENTS = 8
_IS_FRAME = np.isin(np.arange(256), list(_JPEG_FRAMES))
_HAS_LENGTH = ~_IS_FRAME & ~np.isin(np.arange(256), [*_JPEG_ENDS, *_JPEG_BARE, 0xFF])
_JPEG_LENGTH = np.array([0, 0, 256, 1, 0, 0, 0, 0, 0])
_JPEG_SIZE = np.array([[0, 0, 0, 0, 0, 0, 0, 256, 1], [0, 0, 0, 0, 0, 256, 1, 0, 0]]).T


_WEBP_EXIF = 8
"""Flag of the header: there are EXIF data, behind the pixels."""


def _webp_orientation(view: memoryview) -> int | None:
    """Return the orientation that a WebP file tells; None if the bytes end before it."""
    at = 12
    for _ in range(_MOST_SEGMENTS):
        if at + 8 > len(view):
            break
        (size,) = struct.unpack_from("<I", view, at + 4)
        if bytes(view[at : at + 4]) == b"EXIF" and at + 8 + size <= len(view):
            data = view[at + 8 : at + 8 + size]
            return _orientation(data[len(_EXIF) :] if bytes(data[: len(_EXIF)]) == _EXIF else data)
        at += 8 + size + size % 2
    is_whole = len(view) >= 8 + struct.unpack_from("<I", view, 4)[0]
    return 1 if is_whole or len(view) >= _LARGE_BYTES else None


def _heif(view: memoryview) -> ImageInfo | None:
    brands = {bytes(view[at : at + 4]) for at in (8, *range(16, min(len(view), _box_end(view, 0), 256), 4))}
    mime = next((mime for mime, known in _BRANDS.items() if brands & known), None)
    if any(_box_end(view, at - 12) > len(view) for at in _boxes(view, 0, len(view), _ISPE[:1])):
        return None  # cut: a larger image may follow
    sizes = [struct.unpack_from(">II", view, at + 4) for at in _boxes(view, 0, len(view), _ISPE)]
    # Tiles, thumbnails and masks have a size too: the main image is the largest. All of them are turned alike.
    turns = [view[at] & 3 for at in _boxes(view, 0, len(view), _IROT)]
    orientation = _ANTICLOCKWISE[turns[0]] if turns else 1
    largest = max(sizes, key=lambda size: size[0] * size[1], default=None)
    return ImageInfo(mime, largest[0], largest[1], None, orientation) if mime and largest else None


_BRANDS = {
    "image/avif": {b"avif", b"avis"},
    "image/heic": {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"},
    "image/heif": {b"mif1", b"msf1"},
}
# Places of sizes: boxes in boxes; `meta` has four bytes before its children.
_ISPE = ((b"meta", 4), (b"iprp", 0), (b"ipco", 0), (b"ispe", 0))
_IROT = (*_ISPE[:3], (b"irot", 0))
_ANTICLOCKWISE = (1, 8, 3, 6)
"""Orientations by quarter turns to the left."""


def _box_end(view: memoryview, at: int) -> int:
    (size,) = struct.unpack_from(">I", view, at)
    return at + size if size else len(view)


def _boxes(view: memoryview, at: int, end: int, path: tuple[tuple[bytes, int], ...]) -> Iterator[int]:
    """Yield the starts of the contents of boxes at a path."""
    (name, skip), *rest = path
    for _ in range(_MOST_SEGMENTS):
        if at + 8 > end:
            return
        stop = min(_box_end(view, at), end)
        if view[at + 4 : at + 8] == name:
            inside = at + 8 + skip
            if rest:
                yield from _boxes(view, inside, stop, tuple(rest))
            else:
                yield inside
        if stop < at + 8:
            return
        at = stop


def _tiff_info(view: memoryview) -> ImageInfo | None:
    tiff = _Tiff(view)
    first, *others = tiff.frames()
    entries = tiff.entries(first)
    width, height = (tiff.numbers(entries, tag) for tag in (_WIDTH, _HEIGHT))
    if not len(width) or not len(height):
        return None
    turn = tiff.numbers(entries, ORIENTATION)
    return ImageInfo("image/tiff", int(width[0]), int(height[0]), 1 + len(others), _first_turn(turn))


_PARSERS: tuple[tuple[bytes, int, Callable[[memoryview], ImageInfo | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, _png),
    (b"\xff\xd8\xff", 0, _jpeg),
    (b"GIF87a", 0, _gif),
    (b"GIF89a", 0, _gif),
    (b"WEBP", 8, _webp),
    (b"ftyp", 4, _heif),
    (b"BM", 0, _bmp),
    (b"II*\0", 0, _tiff_info),
    (b"MM\0*", 0, _tiff_info),
    (b"II+\0", 0, _tiff_info),
    (b"MM\0+", 0, _tiff_info),
)

_TIFFS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_WIDTH, _HEIGHT = 256, 257
_DATA = {273: 279, 324: 325}
"""Tags with offsets of image data, and with their lengths: strips, tiles."""

_INNER = {34665, 34853, 40965}
"""Tags of nested directories: Exif, GPS, interoperability."""

_DROPPED = {330, 400}
"""Further images (thumbnails, pyramids) and fax parameters: directories that describe more than this frame."""

_OLD_JPEG = {513, 514, 519, 520, 521}
_SIZES = np.array([0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8], np.int64)
_UNSIGNED = {1: "u1", 3: "u2", 4: "u4", 13: "u4", 16: "u8", 18: "u8"}
_LONG, _LONG8 = 4, 16


class _Tiff:
    """The directories of a TIFF file. Raises BadReference if they point outside the file."""

    def __init__(self, view: memoryview, limits: Limits = DEFAULT_LIMITS) -> None:
        self.view, self.limits = view, limits
        self.order = "<" if view[0] == ord("I") else ">"
        self.big = view[2] + view[3] == ord("+")
        word = "u8" if self.big else "u4"
        self.word = np.dtype(self.order + word)
        self.count = np.dtype(self.order + ("u8" if self.big else "u2"))
        self.entry = np.dtype(
            [("tag", self.order + "u2"), ("kind", self.order + "u2"), ("count", self.word), ("at", self.word)]
        )

    def read(self, kind: np.dtype[Any], at: int, count: int) -> NDArray[Any]:
        """Return numbers or entries at a place."""
        if at < 0 or count < 0 or at + count * kind.itemsize > len(self.view):
            raise BadReference("a TIFF file that leads past its end", expected=f"{len(self.view)} bytes", found=at)
        return np.frombuffer(self.view, kind, count, at)

    def frames(self) -> list[int]:
        """Return the offsets of the directories of the frames; a cyclic chain ends where it repeats."""
        word, count = (struct.Struct(self.order + code) for code in ("QQ" if self.big else "IH"))
        found: dict[int, None] = {}
        try:
            (at,) = word.unpack_from(self.view, word.size)
            while at and at not in found:
                found[at] = None
                (entries,) = count.unpack_from(self.view, at)
                (at,) = word.unpack_from(self.view, at + count.size + entries * self.entry.itemsize)
                if len(found) > self.limits.image_frames:
                    raise self.limits.exceeded("image_frames", "a TIFF file of too many frames")
        except (struct.error, OverflowError):
            raise BadReference("a TIFF file that leads past its end", expected=f"{len(self.view)} bytes") from None
        if not found:
            raise BadReference("a TIFF file without a picture")
        return list(found)

    def entries(self, at: int) -> NDArray[Any]:
        """Return the entries of a directory, one a tag."""
        count = int(self.read(self.count, at, 1)[0])
        entries = self.read(self.entry, at + self.count.itemsize, count)
        return entries[np.unique(entries["tag"], return_index=True)[1]]

    def value(self, entry: Any) -> NDArray[np.uint8]:
        """Return the bytes of an entry's value, inline or elsewhere."""
        kind = int(entry["kind"])
        size = int(entry["count"]) * (int(_SIZES[kind]) if kind < len(_SIZES) else 0)
        if size <= self.word.itemsize:
            return np.frombuffer(entry.tobytes()[-self.word.itemsize :], np.uint8)[:size]
        return self.read(np.dtype("u1"), int(entry["at"]), size)

    def numbers(self, entries: NDArray[Any], tag: int) -> NDArray[np.int64]:
        """Return a tag's integers; nothing if the tag is missing."""
        for entry in entries[entries["tag"] == tag]:
            kind = _UNSIGNED.get(int(entry["kind"]))
            if kind is not None:
                return self.value(entry).view(self.order + kind).astype(np.int64)
        return np.zeros(0, np.int64)


def tiff_frames(data: bytes | bytearray | memoryview, limits: Limits = DEFAULT_LIMITS) -> NDArray[np.int64] | None:
    """Return the offsets of the directories of a TIFF file's frames; None for another file.

    Raises:
        BadReference: the file is broken at a directory.
        LimitExceeded: it has too many frames.
    """
    view = memoryview(data).cast("B")
    return np.array(_Tiff(view, limits).frames()) if bytes(view[:4]) in _TIFFS else None


def extract_frame(
    data: bytes | bytearray | memoryview,
    index: int,
    limits: Limits = DEFAULT_LIMITS,
    frames: NDArray[np.int64] | None = None,
) -> bytes:
    """Return one frame of an image file, as a file of its own.

    A TIFF file with one frame, and a file of another kind, is returned as it is, whatever the index. From a TIFF with
    several frames, the frame's directory, strips or tiles, and Exif data are kept; its thumbnails are not.

    Args:
        data: the file.
        index: which frame.
        limits: limits on the resources of the frame.
        frames: what `tiff_frames` gave for it, where it did: of a file of n frames each then costs its own, not n.

    Raises:
        BadReference: there is no such frame, or the file is broken where the frame should be.
        LimitExceeded: the file has too many frames, or the frame too many strips.
    """
    view = memoryview(data).cast("B")
    frames = tiff_frames(view, limits) if frames is None else frames
    if frames is None:
        return bytes(view)
    if not 0 <= index < len(frames):
        raise BadReference("no such frame in this TIFF file", expected=f"0 to {len(frames) - 1}", found=index)
    return bytes(view) if len(frames) == 1 else _Copy(_Tiff(view, limits)).of(int(frames[index]))


def is_one_frame(data: bytes | bytearray | memoryview) -> bool:
    """Return whether an image file equals its own frame 0: not a TIFF, or a complete TIFF with one frame."""
    view = memoryview(data).cast("B")
    try:
        return bytes(view[:4]) not in _TIFFS or len(_Tiff(view, _ONE_FRAME).frames()) == 1
    except (BadReference, LimitExceeded):
        return False


_ONE_FRAME = Limits(image_frames=1)


class _Copy:
    """A TIFF file being built from one frame of another, in the same byte order and width."""

    def __init__(self, source: _Tiff) -> None:
        self.source = source
        self.out = bytearray(source.view[: 16 if source.big else 8])

    def of(self, frame: int) -> bytes:
        at = self.directory(frame, depth=0)
        place = self.source.word.itemsize
        self.out[place : 2 * place] = np.array([at], self.source.word).tobytes()
        return bytes(self.out)

    def append(self, data: NDArray[np.uint8]) -> int:
        """Put data at the next even offset; return the offset."""
        self.out += b"\0" * (len(self.out) % 2)
        at = len(self.out)
        most = 2 * len(self.source.view) + _SLACK_BYTES
        if at + len(data) > (most if self.source.big else min(most, (1 << 32) - 1)):
            raise BadReference("a TIFF frame that is larger than its file")
        self.out += data.data
        return at

    def directory(self, at: int, depth: int) -> int:
        """Copy a directory and the values it names; return its new offset."""
        source = self.source
        entries = source.entries(at)
        if depth == 0:
            if np.isin(entries["tag"], list(_OLD_JPEG)).any():
                raise BadReference("a TIFF frame in the old JPEG form, which cannot be taken out of its file")
            entries = entries[~np.isin(entries["tag"], list(_DROPPED))]
        entries_copied = [self.copied(entries, entry, depth) for entry in entries]
        new = np.array([tuple(entry) for entry in entries_copied], source.entry)
        body = np.array([len(new)], source.count).tobytes() + new.tobytes() + bytes(source.word.itemsize)
        return self.append(np.frombuffer(body, np.uint8))

    def copied(self, entries: NDArray[Any], entry: Any, depth: int) -> Any:
        """Return an entry with the new offset of its value."""
        source, tag = self.source, int(entry["tag"])
        entry = entry.copy()
        if tag in _INNER and depth < len(_INNER) and len(inner := source.numbers(entries, tag)):
            entry["at"] = self.directory(int(inner[0]), depth + 1)
            return entry
        value = source.value(entry)
        if tag in _DATA and depth == 0:
            places = self.pictures(source.numbers(entries, tag), source.numbers(entries, _DATA[tag]))
            entry["kind"] = _LONG8 if source.big else _LONG
            value = places.astype(source.word).view(np.uint8)
        if value.nbytes > source.word.itemsize:
            entry["at"] = self.append(value)
        else:
            held = value.tobytes().ljust(source.word.itemsize, b"\0")
            entry["at"] = np.frombuffer(held, source.word)[0]
        return entry

    def pictures(self, places: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Copy strips or tiles; return their new offsets."""
        total = len(self.source.view)
        limits = self.source.limits
        if len(places) > limits.image_strips:
            raise limits.exceeded("image_strips", "a TIFF frame of too many strips", found=len(places))
        fit = len(places) > 0 and len(lengths) == len(places)
        if not fit or lengths.min() < 0 or lengths.sum() > total:
            raise BadReference("a TIFF frame whose strips cannot be", expected=f"at most {total} bytes in all")
        one = np.dtype("u1")
        strips = [self.source.read(one, at, size) for at, size in zip(places.tolist(), lengths.tolist(), strict=True)]
        return np.array([self.append(strip) for strip in strips], np.int64)
