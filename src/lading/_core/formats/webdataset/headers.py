r"""Parse tar headers into arrays, and single members by all the rules. Pure: bytes in memory in, values out.

    member       [extension records] header, payload, zeros up to a multiple of 512
    header 512   name[100] mode[8] uid[8] gid[8] size[12] mtime[12] checksum[8] type[1] linkname[100]
                 magic[6] version[2] uname[32] gname[32] devmajor[8] devminor[8] prefix[155] zeros[12]
    end          a block of zeros (two are written), or the end of the file; `cat` puts further archives behind it

Numbers are octal text, or base-256 where the first byte is 0x80 or more. The checksum is the sum of the header's bytes
with its own field read as spaces; old tars summed signed bytes. Extension records are headers with a payload of their
own: GNU `L` (the name of the next member) and `K` (the target of its link), pax `x` (records `"%d key=value\n"` about
the next member) and `g` (about all that follow, until replaced).

`sizes`, `valid` and `names` read many regular headers at once. `read_member` reads one member of any kind, and raises
every error.

Source: POSIX.1-2017 pax, "ustar Interchange Format" and "pax Extended Header"; GNU tar 1.35 manual, "Basic Tar
Format"; Python 3.11 tarfile.py where those leave a choice (the type NUL, sizes of links, the order of records).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import as_view, room_for
from lading._core.storage.base import OpenFile
from lading.errors import CorruptShard, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "BLOCK",
    "EXTENSIONS",
    "HARD_LINK",
    "MAX_REACH",
    "NOTHING",
    "REGULAR",
    "TYPE",
    "Cursor",
    "ForwardReader",
    "Headers",
    "Sparse",
    "Window",
    "checksums",
    "is_header",
    "lone_end",
    "mark_old_folders",
    "members_behind",
    "names",
    "other_size",
    "padded",
    "plain_name",
    "read_member",
    "sizes",
    "valid",
    "widen",
]

BLOCK = 512
"""Bytes of a tar block."""

MAX_REACH = 2048
"""Headers processed together: 1 MB of them, still in the CPU cache when they are read again."""

TYPE = 156
"""Offset of the type in a header."""

HARD_LINK = ord("1")
"""Type of a member that is a further name of an earlier member."""

_LINK_NAME = slice(157, 257)
_NAME, _SIZE, _CHECKSUM, _PREFIX = slice(0, 100), slice(124, 136), slice(148, 156), slice(345, 500)
_MAGIC = slice(257, 263)
_USTAR = np.frombuffer(b"ustar\0", np.uint8)
"""The magic of POSIX; GNU's is `"ustar  "`. Only the first allows a prefix."""
_MORE_IN_HEADER, _MORE_IN_BLOCK = 482, 504
_FILLED_SIZE = slice(483, 495)
_MAX_SIZE = 1 << 60
_SPARSE_KEYS = b"GNU.sparse."
_STATED = b"path", b"linkpath", b"size"
_NUMBER = re.compile(rb" *([0-7]*) *(?:\0.*)?", re.DOTALL)
_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ")
_DECIMAL = re.compile(rb"[0-9]{1,30}")


def _of_types(types: bytes) -> NDArray[np.bool_]:
    table = np.zeros(256, np.bool_)
    table[list(types)] = True
    return table


REGULAR = _of_types(b"0\x007S")
"""By type: whether a member is a file. Links are not; a walk turns hard links into files (`walk.Walk`)."""

EXTENSIONS = _of_types(b"xXgLK")
"""By type: whether a header only describes the next one."""

_SUM_ROWS = 256
"""Headers summed at once: few enough for the CPU cache and for reused memory."""
_EVEN_BYTES = np.uint64(0x00FF00FF00FF00FF)
_EMPTY = _of_types(b"123456")
_FOLDER = ord("5")

_ZEROS_BYTES = 20 * BLOCK, 1 << 20
"""Zeros behind which a further archive is looked for: a record, as tar programs write by default, then the largest."""

_CUT = "The file was cut, or is still being written: copy it again."
_DAMAGED = "The file is damaged here: copy it again."


@dataclass(frozen=True, slots=True)
class Sparse:
    """The place of a sparse file: from its first header, extension records included, to the end of its data.

    Attributes:
        start: first byte.
        stop: end.
        size_bytes: size of the file with its holes filled, as the tar declares it.
    """

    start: int
    stop: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Headers:
    """Members in file order, as arrays of one length.

    Attributes:
        names: (n, width) uint8, padded with zeros; the width is a multiple of 8. Names hold no NUL.
        kind: type in the tar, except that an old folder (type NUL, final slash) is `5`.
        start: start of the member, its extension records included.
        offset: start of its payload.
        length: bytes of payload; 0 for links, folders and devices.
        sparse: by row, the members that are sparse files; their payload is not the file.
        links: by row, the names of the members that hard links lead to.
    """

    names: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    sparse: Mapping[int, Sparse] = field(default_factory=dict)
    links: Mapping[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kind)

    def name(self, row: int) -> bytes:
        """Return the name of one member."""
        return bytes(self.names[row].data).rstrip(b"\0")


NOTHING = Headers(
    np.zeros((0, 8), np.uint8),
    np.zeros(0, np.uint8),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
)
"""No members."""


class ForwardReader(Protocol):
    """A stream read forward, a part at a time, by a reader that also processes the values."""

    def part(self, at: int) -> tuple[memoryview, int]:
        """Return a part with the header at `at`, and the start of the part."""

    def take(self, at: int, size: int, *, text: bool) -> bool:
        """Process the value at a place; `text` marks values whose bytes are needed again.

        Returns whether the current part is no longer valid.
        """


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a tar stream in memory.

    Attributes:
        data: its bytes.
        base: its start in the stream; a multiple of 512.
        total: size of the whole stream; None while unknown.
        whole: accept only members whose payload is inside the window.
        file: the stream, if it is an open file; `data` is empty then, and parts are read where they are needed.
        memory: for parts of the file.
        forward: reads forward instead of `read`, and receives the values.
    """

    data: NDArray[np.uint8]
    base: int
    total: int | None
    whole: bool = False
    file: OpenFile | None = None
    memory: memoryview = field(default_factory=lambda: memoryview(b""))
    forward: ForwardReader | None = None

    @classmethod
    def over(cls, file: OpenFile, total: int, *, base: int = 0, forward: ForwardReader | None = None) -> Self:
        """Return a window that is a file up to an offset, read where it is needed."""
        memory = as_view(room_for(min(2 * MAX_REACH * BLOCK, file.size_bytes)))
        return cls(np.zeros(0, np.uint8), base, total, file=file, memory=memory, forward=forward)

    @property
    def stop(self) -> int:
        """Return the end of the window in the stream."""
        return self.base + len(self.data) if self.file is None or self.total is None else self.total

    def part(self, at: int, size: int) -> Window:
        """Return the part of a file from `at` on, in memory: valid until the next one."""
        data = self.memory[: max(min(size, self.stop - at), 0)]
        if self.file is not None and data:
            self.file.read_into([data], at)
        return Window(np.frombuffer(data, np.uint8), at, self.total, self.whole)

    def get(self, at: int, size: int) -> bytes | None:
        """Return bytes from `at` on, fewer at the end of the stream; None if more of the stream must be read first."""
        if self.file is not None:
            return self.file.read(at, max(min(size, self.stop - at), 0))
        if at + size > self.stop and (self.total is None or self.stop < self.total):
            return None
        return bytes(self.data.data[at - self.base : at - self.base + size])


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a walk.

    Attributes:
        at: start of the next member.
        done: whether the archive has ended.
        closed: whether it ended with a block of zeros, as it should; a file without one may have been cut between
            members.
        lone: whether non-zero bytes follow that block that are no header: perhaps a lost one.
        behind: start of the header that follows the zeros at the end; 0 if none does, or if it was read on there.
        need: the window must reach this offset before the walk can continue; 0 if it can.
        dense: whether members are small, so that whole regions are scanned.
        reach: number of headers to try at once; small after an irregularity, so that trouble does not add up.
        records: records of global pax headers about names and sizes.
        limits: limits on the resources that headers may take.
        on_concatenated: how to treat a header behind the end of an archive: `stop`, `read` or `error`.
    """

    at: int = 0
    done: bool = False
    closed: bool = False
    lone: bool = False
    behind: int = 0
    need: int = 0
    dense: bool = False
    reach: int = MAX_REACH
    records: Mapping[bytes, bytes] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    on_concatenated: str = "stop"


def padded(size: int) -> int:
    """Return the bytes of a payload, its padding included."""
    return -(-size // BLOCK) * BLOCK


def checksums(headers: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the checksums that headers, (n, 512) uint8, should hold."""
    sums = np.empty(len(headers), np.int64)
    for first in range(0, len(headers), _SUM_ROWS):
        part = headers[first : first + _SUM_ROWS]
        # Two bytes in each 16 bits of 64-bit words: 64 times 2 × 255 fits, and it takes half the time of a plain sum.
        words = part.view(np.uint64)
        pairs = words >> np.uint64(8)
        pairs &= _EVEN_BYTES
        pairs += words & _EVEN_BYTES
        lanes = np.einsum("ij->i", pairs).view(np.uint16).reshape(-1, 4).sum(axis=1, dtype=np.int64)
        sums[first : first + _SUM_ROWS] = lanes - part[:, _CHECKSUM].sum(axis=1, dtype=np.int64)
    sums += 8 * ord(" ")
    return sums


def is_header(block: bytes) -> bool:
    """Return whether 512 bytes are a tar header, by their checksum; a block of zeros is not."""
    return len(block) == BLOCK and any(block) and _checksum_fault(block) is None


def sizes(headers: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return payload sizes of headers, and which of them have one. Links, folders … have none."""
    size, good = _octal(headers[:, 124:135])
    good &= (headers[:, 135] == 0) | (headers[:, 135] == ord(" "))
    for row in np.flatnonzero(~good).tolist():
        other = other_size(headers[row].data)
        size[row], good[row] = max(other, 0), other >= 0
    size[_EMPTY[headers[:, TYPE]]] = 0
    return size, good


def other_size(header: memoryview | bytes) -> int:
    """Return a size that is not 11 octal digits; −1 if invalid, or if the field is all zeros."""
    text = bytes(header[_SIZE])
    try:
        size = _number(text) if any(text) else -1
    except ValueError:
        return -1
    return size if size <= _MAX_SIZE else -1


def valid(headers: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which headers match their own checksum. Headers after the first mismatch may be wrongly False."""
    stored, plain = _octal(headers[:, 148:154])
    plain &= (headers[:, 154] == 0) | (headers[:, 154] == ord(" "))
    good: NDArray[np.bool_] = plain & (stored == checksums(headers))
    for row in np.flatnonzero(~good).tolist():
        good[row] = is_header(headers[row].tobytes())
        if not good[row]:
            break
    return good


def mark_old_folders(headers: NDArray[np.uint8], kind: NDArray[np.uint8], size: NDArray[np.int64]) -> None:
    """Set kind and size of folders in the style of V7 tar: a type NUL and a final slash.

    A name cut to its field may end in a slash too, so members with extension records keep their type.
    """
    alone = np.append(True, ~EXTENSIONS[kind[:-1]])
    for row in np.flatnonzero((kind == 0) & alone).tolist():
        if _text(headers[row, _NAME].tobytes()).endswith(b"/"):
            kind[row], size[row] = _FOLDER, 0


def names(headers: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return names of headers, prefix included, as a matrix padded with zeros whose width is a multiple of 8."""
    lengths = _text_lengths(headers[:, _NAME])
    matrix = _padded_matrix(headers[:, _NAME], lengths)
    rows = np.flatnonzero((headers[:, _PREFIX.start] != 0) & (headers[:, _MAGIC] == _USTAR).all(axis=1))
    if not len(rows):
        return matrix
    before = _text_lengths(headers[rows, _PREFIX])[:, None]
    matrix = widen(matrix, int((before[:, 0] + 1 + lengths[rows]).max()))
    column = np.arange(matrix.shape[1])
    source = np.concatenate([headers[rows, _PREFIX], headers[rows, _NAME]], axis=1)
    at = np.where(column < before, column, 154 - before + column)
    joined = np.take_along_axis(source, np.minimum(at, source.shape[1] - 1), axis=1)
    np.copyto(joined, ord("/"), where=column == before)
    joined[column > before + lengths[rows, None]] = 0
    matrix[rows] = joined
    return matrix


def widen(matrix: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Return a matrix of names with room for names of `width` bytes."""
    missing = (width + 7 & ~7) - matrix.shape[1]
    return np.pad(matrix, ((0, 0), (0, missing))) if missing > 0 else matrix


def _text_lengths(text: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return lengths of texts that end with a NUL or with their field."""
    zero = text == 0
    lengths: NDArray[np.int64] = zero.argmax(axis=1)
    lengths[~zero[np.arange(len(text)), lengths]] = text.shape[1]
    return lengths


def _padded_matrix(text: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint8]:
    width = max(int(lengths.max(initial=0)) + 7 & ~7, 8)
    matrix = np.zeros((len(text), width), np.uint8)
    matrix[:, : text.shape[1]] = text[:, :width]
    if np.count_nonzero(matrix) != lengths.sum():  # bytes follow the NUL
        matrix[np.arange(width) >= lengths[:, None]] = 0
    return matrix


def _octal(text: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the numbers in (n, width) octal digits, and which are valid."""
    digits = text - np.uint8(ord("0"))
    weights = 8.0 ** np.arange(text.shape[1] - 1, -1, -1)
    good = np.logical_and.reduce(digits < 8, axis=1)  # noqa: PLR2004 - octal
    return np.where(good, digits.astype(np.float64) @ weights, 0).astype(np.int64), good


def _number(text: bytes) -> int:
    """Return the number in a header field; blank is 0, as in tarfile. Raises ValueError."""
    if text[0] & 0x80:
        if text[0] & 0x40:
            raise ValueError
        return int.from_bytes(bytes([text[0] & 0x7F]) + text[1:], "big")
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError
    return int(match[1] or b"0", 8)


def _text(raw: bytes) -> bytes:
    return raw.partition(b"\0")[0]


def _checksum_fault(block: bytes) -> tuple[str, str] | None:
    """Return the expected and the actual checksum, if a header's is wrong."""
    unsigned = sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")  # for one header, a tenth of numpy's time
    try:
        stored = _number(block[_CHECKSUM])
    except ValueError:
        return f"0o{unsigned:o}", repr(block[_CHECKSUM])
    if stored == unsigned:
        return None
    # Some old programs summed signed bytes.
    signed = unsigned - 256 * sum(byte > 127 for byte in block[: _CHECKSUM.start] + block[_CHECKSUM.stop :])  # noqa: PLR2004 - int8
    return None if stored == signed else (f"0o{unsigned:o}", f"0o{stored:o}")


def _pax_records(body: bytes) -> dict[bytes, bytes]:
    """Return records of a pax header, the last of equal keys. Raises ValueError with the place of an invalid one."""
    records: dict[bytes, bytes] = {}
    at, end = 0, len(body.rstrip(b"\0"))
    while at < end:
        match = _RECORD.match(body, at)
        stop = at + int(match[1]) if match else 0
        if match is None or not match.end() < stop <= len(body) or body[stop - 1] != ord("\n"):
            raise ValueError(at)
        key, equals, value = body[match.end() : stop - 1].partition(b"=")
        if not key or not equals:
            raise ValueError(at)
        records[key] = value
        at = stop
    return records


def plain_name(kind: int, body: bytes, size: int, max_name_bytes: int) -> bytes | None:
    """Return the name in an extension record of a member of this size; empty if none; None if it holds more."""
    if kind == ord("K"):
        return b""
    if kind == ord("L"):
        name = _text(body)
    else:
        try:
            records = _pax_records(body)
        except ValueError:
            return None
        if records.get(b"size", b"%d" % size) != b"%d" % size or any(k.startswith(_SPARSE_KEYS) for k in records):
            return None
        name = records.get(b"path", b"").rstrip(b"/")
    return name if len(name) <= max_name_bytes and b"\0" not in name else None


def read_member(window: Window, cursor: Cursor) -> tuple[Headers, Cursor]:
    """Return the member at the cursor, its extension records included, by all the rules.

    Returns no member if the cursor then has `done` or `need`.

    Raises:
        CorruptShard: a header or an extension record breaks the rules, or the payload is cut; the offset is that of the
            faulty header.
        LimitExceeded: an extension record, the run of them, the member's name or its map of holes is too long.
    """
    start = at = cursor.at
    records, own = dict(cursor.records), dict[bytes, bytes]()
    for _ in range(cursor.limits.tar_extensions + 1):
        block = window.get(at, BLOCK)
        if block is None:
            return NOTHING, replace(cursor, need=at + BLOCK)
        if not any(block):
            return _end(window, cursor, start, at)
        size = _check_header(block, at)
        kind = block[TYPE]
        if not EXTENSIONS[kind]:
            return _finish(window, replace(cursor, records=records), start, at, {**records, **own})
        body = _extension_body(window, at, size, cursor.limits)
        if body is None:
            return NOTHING, replace(cursor, need=at + BLOCK + size)
        stated = _name_and_size(kind, body, at)
        if kind == ord("g"):
            records = {k: v for k, v in {**records, **stated}.items() if v}
        else:
            own = {**stated, **own}  # as in tarfile, the outermost record wins
        start = at + BLOCK + padded(size) if start == at and kind == ord("g") else start
        at += BLOCK + padded(size)
    raise cursor.limits.exceeded("tar_extensions", "too many extension records before a member", offset=start)


def _end(window: Window, cursor: Cursor, start: int, at: int) -> tuple[Headers, Cursor]:
    ending = window.get(at, 2 * BLOCK)
    if ending is None:
        return NOTHING, replace(cursor, need=at + 2 * BLOCK)
    if at == 0 and not ending:
        raise CorruptShard("the file is empty", expected="a tar, which ends with two blocks of zeros", offset=0)
    if start != at:
        raise CorruptShard(
            "the archive ends after an extension record", expected="the member it tells of", offset=start
        )
    behind, need = _next_archive(window, at)
    if need:
        return NOTHING, replace(cursor, need=need)
    if behind and cursor.on_concatenated == "read":
        return read_member(window, replace(cursor, at=behind, need=0))
    if behind and cursor.on_concatenated == "error":
        raise members_behind(at, behind)
    lone = any(ending) and not behind
    if lone and cursor.on_concatenated != "stop":
        raise lone_end(at, "more bytes")
    return NOTHING, replace(cursor, done=True, closed=len(ending) >= BLOCK, lone=lone, behind=behind, need=0)


def _next_archive(window: Window, at: int) -> tuple[int, int]:
    """Return the header that follows the zeros at an end of archive, 0 if none; and how far the window must reach."""
    for size in _ZEROS_BYTES:
        zeros = window.get(at, size)
        if zeros is None:
            return 0, at + size
        other = np.flatnonzero(np.frombuffer(zeros, np.uint8)[: len(zeros) // BLOCK * BLOCK])
        if len(other):
            place = at + int(other[0]) // BLOCK * BLOCK
            return (place if is_header(zeros[place - at : place - at + BLOCK]) else 0), 0
        if len(zeros) < size:
            break
    return 0, 0


def lone_end(end: int, behind: str) -> CorruptShard:
    """Return the error that a lone block of zeros ends a tar, and what follows the block."""
    return CorruptShard(
        "a lone block of zeros ends the tar before its last member", offset=end, expected="two blocks of zeros",
        found=f"one, and {behind}",
        advice="A header may be lost here: save the members behind the zeros with 'lading salvage'.",
    )  # fmt: skip


def members_behind(end: int, behind: int) -> CorruptShard:
    """Return the error that members follow the end of an archive."""
    return CorruptShard(
        "members follow the end of the archive: tars were joined with cat, or a header is lost", offset=end,
        expected="the end of the file", found=f"a header at {behind}",
        advice="To read them too: --option on_concatenated=read.",
    )  # fmt: skip


def _check_header(block: bytes, at: int) -> int:
    """Return the size in a header, after checks."""
    fault = None if len(block) < BLOCK else _checksum_fault(block)
    if at == 0 and (fault is not None or len(block) < BLOCK):
        raise CorruptShard("not a tar", offset=0, expected="a tar header", found=repr(block[:16]))
    if len(block) < BLOCK:
        raise CorruptShard("a header is cut", offset=at, expected=f"{BLOCK} bytes", found=f"{len(block)}", advice=_CUT)
    if fault is not None:
        raise CorruptShard(
            "the checksum of a header is wrong", offset=at, expected=fault[0], found=fault[1], advice=_DAMAGED
        )
    try:
        return 0 if _EMPTY[block[TYPE]] else _number(block[_SIZE])
    except ValueError:
        raise _bad_size(at, block[_SIZE]) from None


def _bad_size(at: int, found: bytes) -> CorruptShard:
    return CorruptShard("the size of a member is not a number", offset=at, expected="0 or more", found=repr(found))


def _extension_body(window: Window, at: int, size: int, limits: Limits) -> bytes | None:
    if size > limits.tar_extension_bytes:
        raise limits.exceeded("tar_extension_bytes", "an extension record is too long", offset=at, found=size)
    body = window.get(at + BLOCK, size)
    if body is not None and len(body) < size:
        raise _cut(at, size, at + BLOCK + len(body))
    return body


def _cut(at: int, size: int, total: int) -> CorruptShard:
    expected = f"{size} bytes from {at + BLOCK} on"
    return CorruptShard("a member is cut", offset=at, expected=expected, found=f"the end at {total}", advice=_CUT)


def _name_and_size(kind: int, body: bytes, at: int) -> dict[bytes, bytes]:
    """Return the names and sizes in an extension record."""
    if kind in b"KL":
        return {b"linkpath" if kind == ord("K") else b"path": _text(body)}
    try:
        records = _pax_records(body)
    except ValueError as error:
        place = error.args[0]
        found = repr(body[place : place + 40])
        raise CorruptShard(
            "a pax record is broken",
            offset=at + BLOCK + place,
            expected="'length key=value' and a line end",
            found=found,
        ) from None
    stated = {k: v for k, v in records.items() if k in _STATED or k.startswith(_SPARSE_KEYS)}
    return {**stated, b"path": stated[b"path"].rstrip(b"/")} if b"path" in stated else stated


def _finish(
    window: Window, cursor: Cursor, start: int, at: int, records: Mapping[bytes, bytes]
) -> tuple[Headers, Cursor]:
    """Return the member whose own header is at `at`, from its header and these records."""
    block = window.get(at, BLOCK) or b""
    kind, size, offset = block[TYPE], _check_header(block, at), at + BLOCK
    if kind == 0 and start == at and _text(block[_NAME]).endswith(b"/"):
        kind, size = _FOLDER, 0
    elif b"size" in records and not _EMPTY[kind]:
        if not _DECIMAL.fullmatch(records[b"size"]):
            raise _bad_size(at, records[b"size"])
        size = int(records[b"size"])
    holes = kind == ord("S") or any(key.startswith(_SPARSE_KEYS) for key in records)
    filled = _filled_size(block, records, at, size) if holes else size
    if kind == ord("S"):
        skipped = _map_blocks(window, at, block, cursor.limits)
        if skipped is None:
            return NOTHING, replace(cursor, at=start, need=offset + cursor.limits.tar_map_blocks * BLOCK)
        offset += skipped * BLOCK
    stop = offset + size
    if window.total is not None and stop > window.total:
        raise _cut(at, size, window.total)
    largest = max(size, filled)
    if largest > _MAX_SIZE:
        raise LimitExceeded(
            "the size of a member is too large", offset=at, expected=f"at most {_MAX_SIZE}", found=largest
        )
    if window.whole and stop > window.stop:
        return NOTHING, replace(cursor, at=start, need=stop)
    found = Headers(
        _one_name(block, records, at, cursor.limits),
        np.array([kind], np.uint8),
        np.array([start], np.int64),
        np.array([offset], np.int64),
        np.array([size], np.int64),
        {0: Sparse(start, stop, filled)} if holes else {},
        {0: records.get(b"linkpath") or _text(block[_LINK_NAME])} if kind == HARD_LINK else {},
    )
    return found, replace(cursor, at=offset + padded(size), need=0, reach=16)


def _filled_size(block: bytes, records: Mapping[bytes, bytes], at: int, stored: int) -> int:
    """Return the size of a sparse file, from its header or its records; else that of the stored bytes."""
    stated = records.get(b"GNU.sparse.realsize", records.get(b"GNU.sparse.size", b"%d" % stored))
    try:
        if block[TYPE] == ord("S"):
            return _number(block[_FILLED_SIZE])
    except ValueError:
        raise _bad_size(at, block[_FILLED_SIZE]) from None
    if not _DECIMAL.fullmatch(stated):
        raise _bad_size(at, stated)
    return int(stated)


def _one_name(block: bytes, records: Mapping[bytes, bytes], at: int, limits: Limits) -> NDArray[np.uint8]:
    name = records.get(b"GNU.sparse.name") or records.get(b"path")
    if not name:  # an empty record only deletes earlier records
        return names(np.frombuffer(block, np.uint8)[None])
    if len(name) > limits.tar_name_bytes:
        raise limits.exceeded("tar_name_bytes", "a name is too long", offset=at, found=len(name))
    if b"\0" in name:
        raise CorruptShard("a name holds a NUL", offset=at, found=repr(name))
    return np.frombuffer(name + bytes(-len(name) % 8), np.uint8)[None]


def _map_blocks(window: Window, at: int, block: bytes, limits: Limits) -> int | None:
    """Return the number of blocks with the map of holes after the header of a GNU sparse member."""
    count, more = 0, block[_MORE_IN_HEADER]
    while more:
        count += 1
        if count > limits.tar_map_blocks:
            expected = f"at most {limits.tar_map_blocks} blocks"
            raise limits.exceeded(
                "tar_map_blocks", "the map of a sparse member is too long", offset=at, expected=expected
            )
        following = window.get(at + count * BLOCK, BLOCK)
        if following is None:
            return None
        if len(following) < BLOCK:
            raise _cut(at, (count + 1) * BLOCK, at + count * BLOCK + len(following))
        more = following[_MORE_IN_BLOCK]
    return count
