"""gzip: members one after another; zero bytes between and after them are accepted, as in `gzip -d`.

Source: RFC 1952.
"""

from __future__ import annotations

import zlib

from lading.codecs.protocol import Codec, Packer
from lading.limits import Limits

__all__ = ["CODEC"]

_GZIP_BITS = 31  # largest window, and the gzip header and trailer around the deflate stream


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


def _packer(level: int, _size_bytes: int | None) -> Packer:
    # zlib writes a header without name or time, so equal input gives equal bytes.
    return zlib.compressobj(level, zlib.DEFLATED, _GZIP_BITS)


CODEC = Codec("gzip", _Member, (zlib.error,), padding=True, packer=_packer, levels=(0, 6, 9))
