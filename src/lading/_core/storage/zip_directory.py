"""The central directory of a zip archive, as columns: what members there are, and where.

Read once, from the end of the archive; no member is touched. Names are UTF-8 where they say so, or are valid UTF-8;
otherwise code page 437, as the format has it. Directories are left out. A file that is no regular file (a link, a
device) has the size −1.

Source: APPNOTE.TXT 6.3.10, sections 4.3.12 to 4.3.16, 4.4.17 (names), 4.5.3 (zip64) and 4.6.9 (names in Unicode).
"""

from __future__ import annotations

import stat
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from lading._core.codecs.zip_ import DEFLATED, LOCAL_HEADER_BYTES, STORED
from lading._core.units import format_bytes
from lading.errors import CorruptShard, DuplicateField, LimitExceeded, UsageError

__all__ = ["ZipDirectory", "read_directory"]

_END, _LOCATOR, _END64, _ENTRY = b"PK\x05\x06", b"PK\x06\x07", b"PK\x06\x06", b"PK\x01\x02"
_END_BYTES, _LOCATOR_BYTES, _END64_BYTES, _ENTRY_BYTES = 22, 20, 56, 46
_MOST_COMMENT_BYTES = 0xFFFF
_MOST_DIRECTORY_BYTES = 1 << 30
_LEAST_READ = _END_BYTES + _LOCATOR_BYTES + _END64_BYTES + _MOST_COMMENT_BYTES
_MOST_GROWTH = 1032
"""By which deflate can make data smaller, at most."""
_ENCRYPTED: Final = 1 | 1 << 6 | 1 << 13
_IS_UTF8 = 1 << 11
_ZIP64, _UNICODE_NAME = 0x0001, 0x7075
_UNKNOWN32 = 0xFFFFFFFF
_MS_DOS, _UNIX = 0, 3
_FIELDS = np.dtype(
    [
        ("signature", "S4"), ("made", "u1"), ("system", "u1"), ("needed", "<u2"), ("flags", "<u2"), ("method", "<u2"),
        ("time", "<u4"), ("crc", "<u4"), ("packed", "<u4"), ("size", "<u4"), ("name", "<u2"), ("extra", "<u2"),
        ("comment", "<u2"), ("disk", "<u2"), ("internal", "<u2"), ("external", "<u4"), ("offset", "<u4"),
    ]
)  # fmt: skip
_METHODS = {9: "deflate64", 12: "bzip2", 14: "LZMA", 93: "zstd", 95: "xz", 98: "PPMd", 99: "AES encryption"}

_Read = Callable[[int, int], bytes]
"""Return the bytes of an `(offset, length)`."""


@dataclass(frozen=True, slots=True, eq=False)
class ZipDirectory:
    """The files of an archive, by name in code-point order.

    Attributes:
        version: version of the archive.
        size_bytes: its size.
        names: of the files.
        method: `STORED` or `DEFLATED`.
        crc: the CRC-32 of each file.
        size, packed: bytes of each file, and of its data in the archive; the size is −1 for what is no regular file.
        header: place of each local header.
        room: bytes from there to the next member, or to the directory.
        data: place of the data of stored members as far as the directory tells it; else −1. Nothing but a local header
            is between two members, so its length follows from the place of the next member.
    """

    version: str
    size_bytes: int
    names: list[str]
    method: NDArray[np.uint16]
    crc: NDArray[np.uint32]
    size: NDArray[np.int64]
    packed: NDArray[np.int64]
    header: NDArray[np.int64]
    room: NDArray[np.int64]
    data: NDArray[np.int64]

    def find(self, name: str) -> int:
        """Return the number of a file; −1 if there is none of this name."""
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else -1

    def below(self, folder: str) -> range:
        """Return the numbers of the files below a folder (with its final slash, or empty for all)."""
        if not folder:
            return range(len(self.names))
        behind = f"{folder[:-1]}{chr(ord('/') + 1)}"
        return range(bisect_left(self.names, folder), bisect_left(self.names, behind))


def read_directory(path: str, size_bytes: int, version: str, read: _Read, ahead_bytes: int) -> ZipDirectory:
    """Read the directory of an archive: one read of its end, and another if the directory is longer.

    Args:
        path: the archive, for errors.
        size_bytes: its size.
        version: its version.
        read: reads a range of it.
        ahead_bytes: bytes that cost as little as another read.

    Raises:
        CorruptShard: the file is no zip, is cut, or contradicts itself: members overlap, or claim more bytes than
            their data can hold.
        DuplicateField: two files have one name.
        UsageError: a file is encrypted or compressed in another way; or the archive is one part of several.
    """
    start = max(size_bytes - max(ahead_bytes, _LEAST_READ), 0)
    tail = read(start, size_bytes - start)
    at = _end_of(path, tail, size_bytes)
    count, length, begin, stop = _bounds(path, tail, start, at, read)
    shift = stop - length - begin
    if shift < 0 or length < 0:
        raise CorruptShard("the directory of the zip does not lie where the archive says", file=path, offset=stop,
                           expected=f"{length} bytes from {begin} on", found=f"a file of {size_bytes} bytes",
                           advice=_AGAIN)  # fmt: skip
    if length > _MOST_DIRECTORY_BYTES:
        raise LimitExceeded("the directory of the zip is too large", file=path,
                            expected=format_bytes(_MOST_DIRECTORY_BYTES), found=format_bytes(length))  # fmt: skip
    first = stop - length
    body = tail[first - start : stop - start] if first >= start else read(first, length)
    return _parsed(path, size_bytes, version, body, count, shift, first)


_AGAIN = (
    "The file is damaged, or its download was cut: download it again. Or make a whole archive of what is left, "
    "for lading salvage: zip -FF DAMAGED.zip --out WHOLE.zip"
)


def _end_of(path: str, tail: bytes, size_bytes: int) -> int:
    """Return where the end of central directory record is in the last bytes of an archive."""
    at = last = tail.rfind(_END)
    while at >= 0:
        comment_bytes = int.from_bytes(tail[at + 20 : at + _END_BYTES], "little")
        if at + _END_BYTES + comment_bytes == len(tail):
            return at
        at = tail.rfind(_END, 0, at)
    if last < 0 or last + _END_BYTES > len(tail):
        raise CorruptShard("the directory at the end of the zip is missing", file=path, offset=size_bytes,
                           advice=_AGAIN)  # fmt: skip
    return last  # bytes follow that belong to no archive


def _bounds(path: str, tail: bytes, start: int, at: int, read: _Read) -> tuple[int, int, int, int]:
    """Return the number of entries, the length and the stated place of the directory, and where it ends."""
    disk, of_directory, _, count, length, begin = struct.unpack_from("<4H2I", tail, at + 4)
    stop, near = start + at, at - _LOCATOR_BYTES
    if near >= 0 and tail.startswith(_LOCATOR, near):
        place = near - _END64_BYTES
        if place >= 0 and tail.startswith(_END64, place):
            end, stop = tail[place : place + _END64_BYTES], start + place
        else:
            [stop] = struct.unpack_from("<Q", tail, near + 8)
            end = read(stop, _END64_BYTES) if stop + _END64_BYTES <= start + near else b""
        if not end.startswith(_END64):
            raise CorruptShard("the zip64 record of the zip is missing", file=path, offset=stop, advice=_AGAIN)
        disk, of_directory, _, count, length, begin = struct.unpack_from("<2I4Q", end, 16)
    if disk or of_directory:
        raise UsageError("the archive is the last part of several", file=path, found=f"part {disk + 1}",
                         advice="Join the parts with Info-ZIP: zip -s 0 -O WHOLE.zip PARTS.zip")  # fmt: skip
    return count, length, begin, stop


def _parsed(path: str, size_bytes: int, version: str, body: bytes, count: int, shift: int, first: int) -> ZipDirectory:
    starts = np.fromiter(_entries(path, body, first), np.int64)
    if len(starts) != count and len(starts) & 0xFFFF != count:  # some programs keep the last 16 bits
        raise CorruptShard("the directory of the zip has another number of members", file=path, offset=first,
                           expected=count, found=len(starts), advice=_AGAIN)  # fmt: skip
    windows = sliding_window_view(np.frombuffer(body.ljust(_ENTRY_BYTES), np.uint8), _ENTRY_BYTES)
    fixed = windows[starts].reshape(-1).view(_FIELDS)
    about = zip(*(fixed[name].tolist() for name in _OF_NAMES), strict=True)  # no tuples of a million members at once
    names = [_name(body, at, entry) for at, entry in zip(starts.tolist(), about, strict=True)]
    size, packed, header = (fixed[name].astype(np.int64) for name in ("size", "packed", "offset"))
    for row in np.flatnonzero((size == _UNKNOWN32) | (packed == _UNKNOWN32) | (header == _UNKNOWN32)).tolist():
        _fill_in(body, int(starts[row]), fixed[row], row, size, packed, header)
    header += shift
    is_file = np.array([not name.endswith("/") for name in names], np.bool_)
    kind = np.where(fixed["system"] == _UNIX, fixed["external"] >> 28, 0)
    irregular = is_file & ~np.isin(kind, (0, stat.S_IFREG >> 12))
    room, data = _places(path, fixed, packed, header, first)
    _refuse(path, names, is_file, fixed, size, packed)
    size[irregular] = -1
    rows = np.array(sorted(np.flatnonzero(is_file).tolist(), key=names.__getitem__), np.int64)
    names = [names[row] for row in rows.tolist()]
    for before, name in pairwise(names):
        if before == name:
            raise DuplicateField("two members of the zip have one name", file=f"{path}/{name}",
                                 advice="Unpack it, and look which of them is meant.")  # fmt: skip
    return ZipDirectory(version, size_bytes, names, fixed["method"][rows], fixed["crc"][rows], size[rows],
                        packed[rows], header[rows], room[rows], data[rows])  # fmt: skip


def _entries(path: str, body: bytes, first: int) -> Iterator[int]:
    """Yield the start of each entry; the last one ends with the directory."""
    lengths, at = struct.Struct("<3H"), 0
    while at < len(body):
        if not body.startswith(_ENTRY, at) or at + _ENTRY_BYTES > len(body):
            break
        yield at
        at += _ENTRY_BYTES + sum(lengths.unpack_from(body, at + 28))
    if at != len(body):
        raise CorruptShard("the directory of the zip is damaged", file=path, offset=first + at, advice=_AGAIN)


_OF_NAMES = ["name", "extra", "flags", "system"]


def _name(body: bytes, at: int, entry: tuple[int, int, int, int]) -> str:
    """Return the name of a member; its folders are separated by slashes."""
    length, extra, flags, system = entry
    stored = body[at + _ENTRY_BYTES : at + _ENTRY_BYTES + length]
    if stored.isascii():
        name = stored.decode()
    else:
        name = _of_unicode(stored, _extra_field(body, at, length, extra, _UNICODE_NAME), flags)
    if "\\" in name and "/" not in name and system == _MS_DOS:  # as PowerShell 5 writes them
        name = name.replace("\\", "/")
    return name.lstrip("/")


def _of_unicode(stored: bytes, given: bytes, flags: int) -> str:
    if len(given) > 5 and int.from_bytes(given[1:5], "little") == zlib.crc32(stored):  # noqa: PLR2004 - version, CRC-32
        return given[5:].decode("utf-8", "surrogateescape")
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored.decode("utf-8", "surrogateescape") if flags & _IS_UTF8 else stored.decode("cp437")


def _extra_field(body: bytes, at: int, name: int, extra: int, wanted: int) -> bytes:
    """Return an extra field of an entry; empty if it has none."""
    at += _ENTRY_BYTES + name
    stop = min(at + extra, len(body))
    while at + 4 <= stop:
        kind, length = struct.unpack_from("<2H", body, at)
        if kind == wanted:
            return body[at + 4 : min(at + 4 + length, stop)]
        at += 4 + length
    return b""


def _fill_in(
    body: bytes, at: int, entry: np.void, row: int, size: NDArray[np.int64], packed: NDArray[np.int64],
    header: NDArray[np.int64],
) -> None:  # fmt: skip
    """Take the large numbers of a member out of its zip64 field: those that its entry has no room for, in order."""
    found = _extra_field(body, at, int(entry["name"]), int(entry["extra"]), _ZIP64)
    for column in (size, packed, header):
        if column[row] == _UNKNOWN32 and len(found) >= 8:  # noqa: PLR2004 - a number
            column[row] = int.from_bytes(found[:8], "little") & (1 << 63) - 1
            found = found[8:]


def _places(
    path: str, fixed: NDArray[np.void], packed: NDArray[np.int64], header: NDArray[np.int64], directory: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the room of each member, and the place of its data where that follows."""
    order = np.argsort(header, kind="stable")
    stops = np.append(header[order][1:], directory)
    room = np.empty_like(header)
    room[order] = stops - header[order]
    least = LOCAL_HEADER_BYTES + fixed["name"].astype(np.int64)
    bad = np.flatnonzero((header < 0) | (room - least < packed))
    if len(bad):
        row = int(bad[0])
        raise CorruptShard("the members of the zip overlap, or lie outside of it", file=path, offset=int(header[row]),
                           expected=f"{int(packed[row])} bytes of a member", found=f"room for {int(room[row])}",
                           advice=_AGAIN)  # fmt: skip
    extra = room - least - packed
    # The extra fields of both headers are alike; that of times has 4 bytes for each of up to two more times here. Some
    # programs write them into the directory alone.
    alike = (extra == 0) | np.isin(extra - fixed["extra"], (0, 4, 8))
    follows = alike & (fixed["flags"] & 1 << 3 == 0) & (fixed["method"] == STORED)
    return room, np.where(follows, header + room - packed, -1)


def _refuse(
    path: str, names: list[str], is_file: NDArray[np.bool_], fixed: NDArray[np.void], size: NDArray[np.int64],
    packed: NDArray[np.int64],
) -> None:  # fmt: skip
    """Raise the error of the first member that cannot be read."""
    encrypted = is_file & (fixed["flags"] & _ENCRYPTED != 0)
    other = is_file & ~np.isin(fixed["method"], (STORED, DEFLATED))
    stored = fixed["method"] == STORED
    impossible = is_file & np.where(stored, size != packed, size > _MOST_GROWTH * packed)
    for row in np.flatnonzero(encrypted | other | impossible)[:1].tolist():
        file, method = f"{path}/{names[row]}", int(fixed["method"][row])
        if encrypted[row]:
            raise UsageError("the member of the zip is encrypted", file=file,
                             advice=f"Unpack it with its password: unzip {path} -d FOLDER")  # fmt: skip
        if other[row]:
            raise UsageError("the member of the zip is compressed in a way that lading does not read", file=file,
                             expected="stored or deflate", found=_METHODS.get(method, f"method {method}"),
                             advice="Unpack it with another program.")  # fmt: skip
        raise CorruptShard("the member of the zip claims more bytes than its data can hold", file=file,
                           expected=f"at most {int(packed[row]) * (1 if stored[row] else _MOST_GROWTH)} bytes",
                           found=f"{int(size[row])} bytes", advice=_AGAIN)  # fmt: skip
    for name in names:
        if "\0" in name or (".." in name and ".." in name.split("/")):
            raise CorruptShard("the name of a member leads out of the zip", file=path, found=repr(name)[:200])
