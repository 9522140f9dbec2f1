"""zstd: frames one after another, skippable frames among them; and single frames, with or without their magic number.

python-zstandard can neither limit what one streaming call gives, nor tell a cut frame from a whole one. So frames are
walked here: the header, then blocks of a 3-byte header each, of which none gives more than 128 KiB. Nothing but frames
may follow a frame, as the zstd tool has it.

    frame            magic 28 b5 2f fd, header, blocks, [4 bytes checksum]
    header           descriptor, [1 byte window], [0–4 bytes dictionary], [1–8 bytes content size]
    block            uint24: bit 0 last, bits 1–2 type (0 raw, 1 one byte repeated, 2 compressed), the rest size; body
    skippable frame  magic 50…5f 2a 4d 18, uint32 size, body

Source: RFC 8878, section 3.1.
"""

from __future__ import annotations

import threading

import zstandard

from lading.codecs.protocol import Codec, Data, Packer, unpack
from lading.errors import CorruptShard, LimitExceeded

__all__ = ["CODEC", "MAGIC", "decode_frame", "is_skippable"]

MAGIC = b"\x28\xb5\x2f\xfd"
"""First bytes of a frame."""
_SKIPPABLE_TAIL = b"\x2a\x4d\x18"
_SKIPPABLE_NIBBLE = 5
_HEAD_BYTES = 8
"""Header of a skippable frame; every other frame is longer."""
_BLOCK_HEADER_BYTES = 3
_MAX_BLOCK_BYTES = 128 << 10
_REPEATED, _COMPRESSED = 1, 2

_SHORT = 2  # bytes of a content size that counts from 256, since a smaller one fits into one byte

_own = threading.local()
"""Decompressors of this thread: one takes 8 µs to make and serves any number of frames, one at a time."""


def _content_size_bytes(descriptor: int) -> int:
    return (descriptor >> 5 & 1, 2, 4, 8)[descriptor >> 6]


def _header_size(descriptor: int) -> int:
    """Length of a frame header by its first byte, without the magic number."""
    window = 1 - (descriptor >> 5 & 1)
    return 1 + window + (0, 1, 2, 4)[descriptor & 3] + _content_size_bytes(descriptor)


def _content_size(header: memoryview) -> int | None:
    """The size of the content that a frame header gives."""
    digits = _content_size_bytes(header[0])
    if not digits:
        return None
    return int.from_bytes(header[len(header) - digits :], "little") + (256 if digits == _SHORT else 0)


def _checksum_size(descriptor: int) -> int:
    return 4 if descriptor >> 2 & 1 else 0


def _block(header: bytes | bytearray | memoryview) -> tuple[bool, int, int]:
    """Of a block header: whether the block is the last, its length with the header, the most that comes out of it."""
    value = int.from_bytes(header, "little")
    kind, size = value >> 1 & 3, value >> 3
    if kind > _COMPRESSED or size > _MAX_BLOCK_BYTES:
        raise zstandard.ZstdError(f"block of type {kind} and size {size}")
    body = 1 if kind == _REPEATED else size
    return bool(value & 1), _BLOCK_HEADER_BYTES + body, _MAX_BLOCK_BYTES if kind == _COMPRESSED else size


class _Member:
    """One frame, or one skippable frame, unpacked some blocks at a time."""

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor().decompressobj()
        self._waiting = bytearray()
        self._stage = "frame"
        self._checksum = self._skip = 0
        self.needs_input = True
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return self._stage == "end"

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        """Take input, give what comes out of as many whole blocks as surely fit into `max_length` (at least one)."""
        self._waiting += data
        end = most = 0
        self.needs_input = False
        while self._stage not in ("skip", "end"):
            size, gives = self._measure(end)
            if end + size > len(self._waiting):
                self.needs_input = True
                break
            if most and most + gives > max_length > 0:
                break
            self._pass(end)
            end += size
            most += gives
        if self._stage == "skip":
            end = min(self._skip, len(self._waiting))
            self._skip -= end
            self._stage, self.needs_input = ("skip", True) if self._skip else ("end", False)
            piece = b""
        else:
            piece = self._inner.decompress(bytes(self._waiting[:end])) if end else b""
        del self._waiting[:end]
        if self._stage == "end":
            self.unused_data = bytes(self._waiting)
        return piece

    def _measure(self, at: int) -> tuple[int, int]:
        """Length of the part at `at` of what waits (or of what it takes to know it), and the most that it gives."""
        there = self._waiting[at : at + _HEAD_BYTES]
        if self._stage == "checksum":
            return self._checksum, 0
        if self._stage == "block":
            if len(there) < _BLOCK_HEADER_BYTES:
                return _BLOCK_HEADER_BYTES, 0
            return _block(there[:_BLOCK_HEADER_BYTES])[1:]
        if len(there) < _HEAD_BYTES or is_skippable(there):
            return _HEAD_BYTES, 0
        if there[:4] != MAGIC:
            raise zstandard.ZstdError(f"no frame begins with {there[:4].hex()}")
        return 4 + _header_size(there[4]), 0

    def _pass(self, at: int) -> None:
        """Go on behind the part that begins at `at`."""
        there = self._waiting[at : at + _HEAD_BYTES]
        if self._stage == "frame" and is_skippable(there):
            self._stage, self._skip = "skip", _HEAD_BYTES + int.from_bytes(there[4:], "little")
        elif self._stage == "frame":
            self._stage, self._checksum = "block", _checksum_size(there[4])
        elif self._stage == "checksum" or (there[0] & 1 and not self._checksum):
            self._stage = "end"
        elif there[0] & 1:
            self._stage = "checksum"


def is_skippable(head: bytes | bytearray) -> bool:
    """Whether a skippable frame begins here, by its first four bytes."""
    return len(head) >= len(MAGIC) and head[0] >> 4 == _SKIPPABLE_NIBBLE and head[1:4] == _SKIPPABLE_TAIL


def _survey(frame: memoryview) -> tuple[int, int, int | None]:
    """Of a frame without its magic number: where it ends, the most it gives, the content size it declares."""
    if not len(frame):
        raise zstandard.ZstdError("nothing there")
    at = _header_size(frame[0])
    declared = _content_size(frame[:at])
    last, most = False, 0
    while not last:
        last, size, gives = _block(frame[at : at + _BLOCK_HEADER_BYTES])
        at += size
        most += gives
        if at > len(frame):
            break
    at += _checksum_size(frame[0])
    if at > len(frame):
        raise zstandard.ZstdError(f"the frame ends too early, after {len(frame)} bytes")
    if declared is not None and declared > most:
        raise zstandard.ZstdError(f"the header says {declared} bytes, and the blocks give {most} at most")
    return at, most, declared


def decode_frame(data: Data, max_bytes: int, *, magicless: bool = False) -> bytes:
    """What one range unpacks to: exactly one frame without its magic number, or any frames that have theirs.

    Sets aside no more than the blocks of the frame can give, whatever its header says. Peak memory: that.

    Raises:
        CorruptShard: the range is damaged, or is not used up exactly.
        LimitExceeded: more than `max_bytes` come out.
    """
    view = memoryview(data)
    view = view.cast("B") if view.nbytes else view
    if not magicless and view[:4] != MAGIC:
        return unpack(CODEC, view, max_bytes)
    try:
        end, most, declared = _survey(view if magicless else view[4:])
        alone = end == len(view) - (0 if magicless else len(MAGIC))
        if alone and most <= max_bytes:
            return _decompressor(magicless).decompress(view, max_output_size=max(most, 1))
    except zstandard.ZstdError as error:
        raise CorruptShard("the zstd frame is damaged", found=str(error)) from error
    if declared is not None and declared > max_bytes:
        raise LimitExceeded("the zstd frame unpacks to too much", expected=f"at most {max_bytes}", found=declared)
    if magicless and not alone:
        raise CorruptShard("bytes follow the zstd frame", expected=f"{end} bytes", found=f"{len(view)} bytes")
    return unpack(CODEC, MAGIC + bytes(view) if magicless else view, max_bytes)


def _decompressor(magicless: bool) -> zstandard.ZstdDecompressor:
    kinds: dict[bool, zstandard.ZstdDecompressor] | None = getattr(_own, "kinds", None)
    if kinds is None:
        formats = {False: zstandard.FORMAT_ZSTD1, True: zstandard.FORMAT_ZSTD1_MAGICLESS}
        kinds = _own.kinds = {key: zstandard.ZstdDecompressor(format=value) for key, value in formats.items()}
    return kinds[magicless]


def _packer(level: int, size_bytes: int | None) -> Packer:
    packer = zstandard.ZstdCompressor(level=level, write_checksum=True)
    return packer.compressobj(size=-1 if size_bytes is None else size_bytes)


CODEC = Codec("zstd", _Member, (zstandard.ZstdError,), padding=False, packer=_packer, levels=(1, 3, 22))
