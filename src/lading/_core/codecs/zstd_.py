"""zstd: streams of frames, skippable frames among them; and single frames, with or without their magic number.

Streams are unpacked by Python's `compression.zstd` (`backports.zstd` before 3.14). It bounds its output and its window,
and it tells a cut frame from a whole one. Single frames go through python-zstandard, which takes frames without a magic
number. Their headers are read here first, so that no frame sets aside more memory than its blocks can give.

    frame            magic 28 b5 2f fd, header, blocks, [4 bytes checksum]
    header           descriptor, [1 byte window], [0–4 bytes dictionary], [1–8 bytes content size]
    block            uint24: bit 0 last, bits 1–2 type (0 raw, 1 one byte repeated, 2 compressed), the rest size; body
    skippable frame  magic 50…5f 2a 4d 18, uint32 size, body

Source: RFC 8878, section 3.1.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass

import zstandard

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from lading._core.codecs.protocol import Codec, Data, MemberPacker, StreamDecoder, refuse_lack_of_memory, unpack
from lading.errors import CorruptShard, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["CODEC", "MAGIC", "decode_frame", "decode_sized_frame", "frame_end", "is_skippable"]

MAGIC = b"\x28\xb5\x2f\xfd"
"""First bytes of a frame."""
_SKIPPABLE_TAIL = b"\x2a\x4d\x18"
_SKIPPABLE_NIBBLE = 5
_BLOCK_HEADER_BYTES = 3
_MAX_BLOCK_BYTES = 128 << 10
_RAW, _REPEATED, _COMPRESSED = 0, 1, 2
_SIZE_BITS = 0xE0
"""Bit of a descriptor: the header has the content size."""
_MOST_RAW_BLOCKS = 1 << 14
"""Number of stored blocks whose places are remembered: a gigabyte of them has half as many, a hostile frame millions.
"""
_NOT_PLAIN_BITS = 0x0F
"""Bits of a descriptor: a checksum, a dictionary, or a reserved bit."""


_LIMIT = "zstd_window_bytes"
_LEAST_WINDOW_BYTES, _LARGEST_WINDOW_BYTES = 1 << 10, 1 << 31
"""The smallest and largest window that libzstd can be configured to allow."""

_SHORT = 2  # bytes of a content size that counts from 256, because a smaller one fits into one byte

_own = threading.local()
"""Decompressors of this thread: creating one takes 8 µs, and it serves any number of frames, one at a time."""


def _content_size_bytes(descriptor: int) -> int:
    return (descriptor >> 5 & 1, 2, 4, 8)[descriptor >> 6]


def _header_size(descriptor: int) -> int:
    """Return the length of a frame header from its first byte, without the magic number."""
    window = 1 - (descriptor >> 5 & 1)
    return 1 + window + (0, 1, 2, 4)[descriptor & 3] + _content_size_bytes(descriptor)


_HEADER_SIZES = bytes(map(_header_size, range(256)))


def _content_size(header: memoryview) -> int | None:
    """Return the content size in a frame header."""
    digits = _content_size_bytes(header[0])
    if not digits:
        return None
    return int.from_bytes(header[len(header) - digits :], "little") + (256 if digits == _SHORT else 0)


def _checksum_size(descriptor: int) -> int:
    return 4 if descriptor >> 2 & 1 else 0


def _member(limits: Limits) -> zstd.ZstdDecompressor:
    largest = min(max(limits.zstd_window_bytes, _LEAST_WINDOW_BYTES), _LARGEST_WINDOW_BYTES)
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: largest.bit_length() - 1})


def is_skippable(head: bytes | bytearray) -> bool:
    """Return whether a skippable frame begins here, by its first four bytes."""
    return len(head) >= len(MAGIC) and head[0] >> 4 == _SKIPPABLE_NIBBLE and head[1:4] == _SKIPPABLE_TAIL


@dataclass(slots=True)
class _Survey:
    """A frame without its magic number, measured by its headers.

    Attributes:
        end: its end; beyond the data if it is cut.
        most: an upper bound of its unpacked size.
        declared: the content size in its header.
        raw: places of its content, if all blocks are stored raw and nothing else needs checking.
    """

    end: int
    most: int
    declared: int | None
    raw: list[tuple[int, int]] | None


def _survey(frame: memoryview) -> _Survey:
    size = len(frame)
    if not size:
        raise zstandard.ZstdError("nothing there")
    descriptor = frame[0]
    at = _HEADER_SIZES[descriptor]
    declared = _content_size(frame[:at]) if descriptor & _SIZE_BITS else None
    raw: list[tuple[int, int]] | None = None if descriptor & _NOT_PLAIN_BITS else []
    last = most = 0
    while not last and at <= size:
        header = int.from_bytes(frame[at : at + _BLOCK_HEADER_BYTES], "little")
        last, kind, length = header & 1, header >> 1 & 3, header >> 3
        if kind > _COMPRESSED or length > _MAX_BLOCK_BYTES:
            raise zstandard.ZstdError(f"block of type {kind} and size {length}")
        at += _BLOCK_HEADER_BYTES
        if kind == _RAW:
            if raw is not None and length:
                raw.append((at, at + length))
                raw = raw if len(raw) < _MOST_RAW_BLOCKS else None
            at += length
            most += length
        else:
            raw = None
            at += 1 if kind == _REPEATED else length
            most += length if kind == _REPEATED else _MAX_BLOCK_BYTES
    return _Survey(at + _checksum_size(descriptor), most, declared, raw)


def _survey_whole(frame: memoryview) -> _Survey:
    survey = _survey(frame)
    if survey.end > len(frame):
        raise zstandard.ZstdError(f"the frame ends too early, after {len(frame)} bytes")
    if survey.declared is not None and survey.declared > survey.most:
        declared, most = survey.declared, survey.most
        raise zstandard.ZstdError(f"the header says {declared} bytes, and the blocks give {most} at most")
    return survey


def _unpacked(view: memoryview, survey: _Survey, size_bytes: int, *, magicless: bool) -> bytes:
    """Unpack a whole frame to at most the given size.

    Incompressible data, such as most images, is stored raw: passing it through zstd takes twice as long.
    """
    if survey.declared == 0:
        # python-zstandard 0.25 gives nothing for such a frame, whatever its blocks hold: one flipped bit is enough.
        return unpack(CODEC, MAGIC + bytes(view) if magicless else view, size_bytes)
    if survey.raw is None or survey.most > size_bytes or survey.declared not in (None, survey.most):
        return _decompressor(magicless).decompress(view, max_output_size=max(size_bytes, 1))
    shift = 0 if magicless else len(MAGIC)
    return b"".join([view[start + shift : stop + shift] for start, stop in survey.raw])


def frame_end(data: Data) -> int | None:
    """Return the length of the frame without magic number that begins here; None if it is cut.

    Reads only headers. Raises CorruptShard if it is not a frame.
    """
    view = memoryview(data)
    try:
        end = _survey(view.cast("B") if view.nbytes else view).end
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    return end if end <= view.nbytes else None


def decode_frame(data: Data, max_bytes: int, *, magicless: bool = False, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Unpack a range: exactly one frame without its magic number, or any number of frames with theirs.

    Allocates no more than the blocks of the frame can give, whatever its header declares. If that exceeds `max_bytes`,
    the output is counted before it is kept. Peak memory: the output.

    Raises:
        CorruptShard: the range is damaged, or is not used completely.
        LimitExceeded: the output exceeds `max_bytes`, or the window is too large.
    """
    view = memoryview(data)
    view = view.cast("B") if view.nbytes else view
    if not magicless and view[:4] != MAGIC:
        return unpack(CODEC, view, max_bytes, limits)
    frame = view if magicless else view[4:]
    try:
        survey = _survey_whole(frame)
        end, most, declared = survey.end, survey.most, survey.declared
        if end == len(frame) and most <= max_bytes:
            return _unpacked(view, survey, most, magicless=magicless)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    if declared is not None and declared > max_bytes:
        raise LimitExceeded("the zstd frame unpacks to too much", expected=f"at most {max_bytes}", found=declared)
    if magicless and end < len(frame):
        raise CorruptShard("bytes follow the zstd frame", expected=f"{end} bytes", found=f"{len(view)} bytes")
    whole = MAGIC + bytes(view) if magicless else view
    _check_size(whole, max_bytes, limits)
    return unpack(CODEC, whole, max_bytes, limits)


def decode_sized_frame(data: Data, size_bytes: int, *, magicless: bool = False) -> bytes:
    """Unpack exactly one frame of known size. Peak memory: that size.

    Raises CorruptShard if the frame is damaged, gives more or less, or is not used completely.
    """
    view = memoryview(data)
    view = view.cast("B") if view.nbytes else view
    frame = view if magicless else view[len(MAGIC) :]
    try:
        survey = _survey(frame)
        end, most, declared = survey.end, survey.most, survey.declared
        if end == len(frame) and most >= size_bytes and declared in (None, size_bytes):
            content = _unpacked(view, survey, size_bytes, magicless=magicless)
            if len(content) == size_bytes:
                return content
            declared = len(content)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    unpacked = most if declared is None else declared
    found = f"{unpacked} bytes" if end == len(frame) else f"one of {end} bytes in {len(frame)}"
    raise CorruptShard("the zstd frame has another size", expected=f"{size_bytes} bytes", found=found)


def _check_size(stream: Data, max_bytes: int, limits: Limits) -> None:
    """Raise LimitExceeded if a stream gives more than allowed, without keeping the output."""
    total = 0
    for piece in StreamDecoder(CODEC, limits).feed(stream):
        total += len(piece)
        if total > max_bytes:
            raise LimitExceeded(
                "the zstd frame unpacks to too much", expected=f"at most {max_bytes} bytes", found="more"
            )


def _damaged(error: zstandard.ZstdError) -> CorruptShard:
    refuse_lack_of_memory(error)
    return CorruptShard("the zstd frame is damaged", found=str(error))


def _decompressor(magicless: bool) -> zstandard.ZstdDecompressor:
    kinds: dict[bool, zstandard.ZstdDecompressor] | None = getattr(_own, "kinds", None)
    if kinds is None:
        formats = {False: zstandard.FORMAT_ZSTD1, True: zstandard.FORMAT_ZSTD1_MAGICLESS}
        kinds = _own.kinds = {key: zstandard.ZstdDecompressor(format=value) for key, value in formats.items()}
    return kinds[magicless]


def _packer(level: int, size_bytes: int | None) -> MemberPacker:
    packer = zstandard.ZstdCompressor(level=level, write_checksum=True)
    return packer.compressobj(size=-1 if size_bytes is None else size_bytes)


CODEC = Codec("zstd", _member, (zstd.ZstdError,), padding=False, packer=_packer, levels=(1, 3, 22), limit=_LIMIT)
