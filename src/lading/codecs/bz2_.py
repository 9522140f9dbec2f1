"""bz2: streams one after another.

Zero bytes between and after them are let pass (bzip2 ignores whatever follows, with a warning); all else is damage.

Source: the file format of bzip2 1.0.8, as Python's `bz2` reads it.
"""

from __future__ import annotations

import bz2

from lading.codecs.protocol import Codec, Packer
from lading.limits import Limits

__all__ = ["CODEC"]


def _member(_limits: Limits) -> bz2.BZ2Decompressor:
    return bz2.BZ2Decompressor()


def _packer(level: int, _size_bytes: int | None) -> Packer:
    return bz2.BZ2Compressor(level)


# BZ2Decompressor says OSError for damaged data; it does no I/O.
CODEC = Codec("bz2", _member, (OSError,), padding=True, packer=_packer, levels=(1, 9, 9))
