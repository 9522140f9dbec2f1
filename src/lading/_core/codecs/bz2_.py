"""bz2: streams one after another.

Zero bytes between and after streams are accepted (bzip2 ignores any trailing bytes, with a warning); everything else is
damage.

Source: the file format of bzip2 1.0.8, as Python's `bz2` reads it.
"""

from __future__ import annotations

import bz2

from lading._core.codecs.protocol import Codec, MemberPacker
from lading.limits import Limits

__all__ = ["CODEC"]


def _member(_limits: Limits) -> bz2.BZ2Decompressor:
    return bz2.BZ2Decompressor()


def _packer(level: int, _size_bytes: int | None) -> MemberPacker:
    return bz2.BZ2Compressor(level)


# BZ2Decompressor raises OSError for damaged data; it does no I/O.
CODEC = Codec("bz2", _member, (OSError,), padding=True, packer=_packer, levels=(1, 9, 9))
