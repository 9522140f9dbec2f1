r"""Make tar headers of members, many at a time. Pure.

Headers are USTAR with fixed owner, mode and time, so equal members give equal bytes. A name of more than 100 bytes or
outside ASCII, and a payload of 8 GiB and more, do not fit into USTAR and go into a pax header before the member's own.

    [pax header 512, its records "%d key=value\n", zeros]  header 512     payload     zeros

Source: POSIX.1-2017 pax; owner and mode as webdataset 1.0.2 writes them (writer.py, `TarWriter`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["END", "make_heads"]

END = bytes(1024)
"""The end of an archive: two blocks of zeros."""

_BLOCK = 512
_NAME_BYTES = 100
_MAX_SIZE = 8**11
_PAX_NAME = "././@PaxHeader"
_DIGITS = 3 * np.arange(10, -1, -1)


def make_heads(
    names: pa.StringArray, size: NDArray[np.int64], mtime: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the blocks before each member's payload.

    Args:
        names: names of the members; none is null or holds a NUL.
        size: bytes of their payloads.
        mtime: time of all of them, in seconds from 1970 on.

    Returns:
        Blocks, (m, 512) uint8, and bounds: those of member i are `bounds[i]:bounds[i + 1]`.
    """
    long = pc.greater(pc.binary_length(names), _NAME_BYTES)
    special = np.asarray(pc.or_(long, pc.invert(pc.string_is_ascii(names))).to_numpy(zero_copy_only=False), np.bool_)
    named, special = special, special | (size >= _MAX_SIZE)
    rows = np.flatnonzero(special)
    if not len(rows):
        return _headers(names, size, b"0", mtime), np.arange(len(names) + 1)
    records = [_records(names[row].as_py() if named[row] else None, int(size[row])) for row in rows.tolist()]
    short = [names[row].as_py().encode("ascii", "replace")[:_NAME_BYTES].decode() for row in rows.tolist()]
    plain = pc.replace_with_mask(names, pa.array(special), pa.array(short, pa.string()))
    headers = _headers(plain, np.where(size < _MAX_SIZE, size, 0), b"0", mtime)
    return _with_records(headers, rows, records, mtime)


def _records(name: str | None, size: int) -> bytes:
    """Return records of a pax header for values that do not fit."""
    body = b"" if name is None else _record(b"path", name.encode())
    return body if size < _MAX_SIZE else body + _record(b"size", b"%d" % size)


def _record(key: bytes, value: bytes) -> bytes:
    """Return one record; its length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _with_records(
    headers: NDArray[np.uint8], rows: NDArray[np.int64], records: Sequence[bytes], mtime: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the headers, with a pax header and its records before those of `rows`."""
    sizes = np.array([len(body) for body in records], np.int64)
    count = np.ones(len(headers), np.int64)
    count[rows] += 1 + -(-sizes // _BLOCK)
    bounds = np.append(0, np.cumsum(count))
    blocks = np.zeros((int(bounds[-1]), _BLOCK), np.uint8)
    blocks[bounds[1:] - 1] = headers
    blocks[bounds[rows]] = _headers(pa.array([_PAX_NAME] * len(rows)), sizes, b"x", mtime)
    flat = blocks.reshape(-1)
    for row, body in zip(rows.tolist(), records, strict=True):
        start = (int(bounds[row]) + 1) * _BLOCK
        flat[start : start + len(body)] = np.frombuffer(body, np.uint8)
    return blocks, bounds


def _headers(names: pa.StringArray, size: NDArray[np.int64], kind: bytes, mtime: int) -> NDArray[np.uint8]:
    """Return one header a member, (n, 512); names are ASCII and fit."""
    template = _template(kind, mtime)
    headers = np.tile(template, (len(names), 1))
    wide = pc.utf8_rpad(names, _NAME_BYTES, "\0").buffers()[2]
    name = np.frombuffer(wide, np.uint8)[: len(names) * _NAME_BYTES].reshape(-1, _NAME_BYTES)
    digits = (size[:, None] >> _DIGITS & 7).astype(np.uint8)
    headers[:, :_NAME_BYTES] = name
    headers[:, 124:135] = digits + np.uint8(ord("0"))
    # The template has its sizes as zeros ("0"), so the sum is the template's plus the inserted bytes.
    total = int(template.sum()) + name.sum(axis=1, dtype=np.int64) + digits.sum(axis=1, dtype=np.int64)
    headers[:, 148:154] = (total[:, None] >> _DIGITS[-6:] & 7) + ord("0")
    headers[:, 154] = 0
    return headers


def _template(kind: bytes, mtime: int) -> NDArray[np.uint8]:
    text = b"".join((
        bytes(100), b"0000444\0", b"0000000\0" * 2, b"00000000000\0", b"%011o\0" % mtime, b" " * 8, kind, bytes(100),
        b"ustar\00000", b"bigdata".ljust(32, b"\0") * 2,
    ))  # fmt: skip
    return np.frombuffer(text.ljust(_BLOCK, b"\0"), np.uint8)
