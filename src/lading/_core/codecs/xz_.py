"""xz: streams one after another, with the format's zero padding between and after them.

Source: The .xz File Format 1.2.1, section 2.2 (padding is a multiple of four there; any number is accepted here).
"""

from __future__ import annotations

import lzma

from lading._core.codecs.protocol import Codec, MemberPacker
from lading.limits import Limits

__all__ = ["CODEC"]


def _member(limits: Limits) -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.xz_memory_bytes)


def _packer(level: int, _size_bytes: int | None) -> MemberPacker:
    return lzma.LZMACompressor(lzma.FORMAT_XZ, preset=level)


CODEC = Codec("xz", _member, (lzma.LZMAError,), padding=True, packer=_packer, levels=(0, 6, 9), limit="xz_memory_bytes")
