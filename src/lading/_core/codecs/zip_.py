"""One compressed member of a zip archive: its local header, the deflate stream, and perhaps a data descriptor.

Such a record tells its own size and checksum, so a range of an archive needs no other facts to be unpacked and checked.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header) and 4.3.9 (data descriptor).
"""

from __future__ import annotations

import struct
import zlib

from lading._core.codecs.protocol import Data
from lading.errors import CorruptShard, LimitExceeded

__all__ = ["DEFLATED", "LOCAL_HEADER_BYTES", "STORED", "begin_of_data", "unpack_member"]

STORED, DEFLATED = 0, 8
"""Methods of compression."""

LOCAL_HEADER_BYTES = 30
"""Size of a local header without the name and the extra field behind it."""

_SIGNATURE, _DESCRIPTOR = b"PK\x03\x04", b"PK\x07\x08"
_SIZES_BEHIND = 1 << 3
"""Flag of a member whose checksum and sizes are in a data descriptor behind its data."""
_HEADER = struct.Struct("<4s2xHH4xI8xHH")
"""Signature, flags, method, CRC-32, and the lengths of the name and of the extra field."""


def begin_of_data(header: Data, method: int) -> int:
    """Return the number of bytes from the start of a local header to the data of its member.

    Raises:
        CorruptShard: there is no local header, or that of a member with another method.
    """
    begin, _, _ = _parsed(memoryview(header).cast("B"), method)
    return begin


def _parsed(view: memoryview, method: int) -> tuple[int, int, int]:
    """Return where the data begins, the flags, and the CRC-32."""
    begin = bytes(view[: len(_SIGNATURE)])
    if len(view) < LOCAL_HEADER_BYTES or begin != _SIGNATURE:
        raise CorruptShard(
            "no member of the zip begins there", expected=repr(_SIGNATURE), found=repr(begin),
            advice="The archive is damaged, or was changed by a program that left its directory.",
        )  # fmt: skip
    _, flags, found, checksum, name_bytes, extra_bytes = _HEADER.unpack_from(view)
    if found != method:
        raise CorruptShard("the member and the directory of the zip name different methods of compression",
                           expected=f"method {method}", found=f"method {found}")  # fmt: skip
    return LOCAL_HEADER_BYTES + name_bytes + extra_bytes, flags, checksum


def unpack_member(data: Data, max_bytes: int) -> bytes:
    """Return the bytes of a deflated member, by its record; bytes behind the record do not count.

    Peak memory: the output, at most `max_bytes`.

    Raises:
        CorruptShard: the record is damaged or cut, or the checksum differs.
        LimitExceeded: the output exceeds `max_bytes`.
    """
    view = memoryview(data).cast("B")
    begin, flags, checksum = _parsed(view, DEFLATED)
    member = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        body = member.decompress(view[begin:], max_bytes + 1)
    except zlib.error as error:
        raise CorruptShard("the deflate stream is damaged", found=str(error)) from error
    if len(body) > max_bytes:
        raise LimitExceeded("the member unpacks to too much", expected=f"at most {max_bytes} bytes", found="more")
    if not member.eof:
        raise CorruptShard("the deflate stream ends too early", found=f"{len(body)} bytes")
    expected = {checksum}
    if flags & _SIZES_BEHIND:
        behind = member.unused_data[: len(_DESCRIPTOR) + 4]
        begins = (0, 4) if behind.startswith(_DESCRIPTOR) else (0,)  # the signature may be left out
        expected = {int.from_bytes(behind[at : at + 4], "little") for at in begins}
    if zlib.crc32(body) not in expected:
        raise CorruptShard("the checksum of the member differs", found=f"CRC-32 {zlib.crc32(body):08x}",
                           expected=" or ".join(f"{each:08x}" for each in sorted(expected)))  # fmt: skip
    return body
