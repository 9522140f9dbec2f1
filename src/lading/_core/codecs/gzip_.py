"""gzip: members one after another; zero bytes between and after them are accepted, as in `gzip -d`.

Source: RFC 1952.
"""

from __future__ import annotations

import zlib

from lading._core.codecs.protocol import Codec, Data, MemberPacker
from lading.limits import Limits

__all__ = ["CODEC", "pack_text"]

_GZIP_BITS = 31  # largest window, and the gzip header and trailer around the deflate stream
_USUAL_LEVEL = 6
_LONG_LINE_BYTES, _SAMPLE_BYTES = 16 << 10, 4 << 10


def pack_text(text: Data, level: int | None = None) -> bytes:
    """Return text as one gzip member; equal text gives equal bytes.

    Bytes in base64 are packed by the frequency of their characters alone: a search for repetitions takes four times as
    long, and finds nothing.
    """
    level = _USUAL_LEVEL if level is None else level
    strategy = (
        zlib.Z_HUFFMAN_ONLY if level and _repeats_nothing(memoryview(text).cast("B")) else zlib.Z_DEFAULT_STRATEGY
    )
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_BITS, strategy=strategy)
    return packer.compress(text) + packer.flush()


def _repeats_nothing(text: memoryview) -> bool:
    """Return whether the middle of the text is in a long line, in which a search finds no repetitions."""
    begin = (len(text) - _LONG_LINE_BYTES) // 2
    line = bytes(text[begin : begin + _LONG_LINE_BYTES]) if begin >= 0 else b"\n"
    if b"\n" in line:
        return False
    sample = line[:_SAMPLE_BYTES]
    searched, counted = (
        zlib.compressobj(_USUAL_LEVEL, zlib.DEFLATED, _GZIP_BITS, strategy=strategy)
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)
    )
    size = len(counted.compress(sample) + counted.flush())
    return len(searched.compress(sample) + searched.flush()) >= size


class _Member:
    """`zlib.decompressobj` with the interface of the other decompressors: it returns unread input, they keep it."""

    __slots__ = ("_inner", "_kept", "needs_input")

    def __init__(self, _limits: Limits) -> None:
        self._inner = zlib.decompressobj(wbits=_GZIP_BITS)
        self._kept = b""
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        piece = self._inner.decompress(self._kept + data if self._kept else data, max(max_length, 0))
        self._kept = self._inner.unconsumed_tail
        # A full output may mean that zlib holds more of the input it has taken.
        self.needs_input = not self._kept and len(piece) != max_length
        return piece


def _packer(level: int, _size_bytes: int | None) -> MemberPacker:
    # zlib writes a header without name or time, so equal input gives equal bytes.
    return zlib.compressobj(level, zlib.DEFLATED, _GZIP_BITS)


CODEC = Codec("gzip", _Member, (zlib.error,), padding=True, packer=_packer, levels=(0, _USUAL_LEVEL, 9))
