"""The heads of Arrow IPC messages and the footer of an Arrow file: as much of them as says what lies where.

Every place is checked to lie inside the bytes given. Schemas are left to pyarrow.

    table     int32 back to its vtable; vtable: uint16 its size, uint16 size of the table, uint16 place of each field
    vector    uint32 count, items; a field that is a table or vector holds a uint32 distance to it

Source: https://arrow.apache.org/docs/format/Columnar.html, arrow 26 format/Message.fbs and File.fbs; they are
flatbuffers, https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lading.errors import CorruptShard

__all__ = [
    "DICTIONARY",
    "ROWS",
    "SCHEMA",
    "Footer",
    "Message",
    "RowsHeads",
    "parse_footer",
    "parse_message",
    "rows_heads",
]

SCHEMA, DICTIONARY, ROWS = 1, 2, 3
"""Kinds of messages: the schema, values of a dictionary, a record batch."""

_BLOCK = np.dtype([("offset", "<i8"), ("meta", "<i4"), ("pad", "<i4"), ("body", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])
_CODECS = ("lz4", "zstd")
_UINT8, _UINT16, _UINT32 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I")
_INT8, _INT32, _INT64 = struct.Struct("<b"), struct.Struct("<i"), struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Message:
    """The head of a message.

    Attributes:
        kind: `SCHEMA`, `DICTIONARY`, `ROWS`, or the number of what lading does not read.
        body_bytes: bytes of buffers behind the head.
        rows: rows of a record batch, or values of a dictionary.
        buffers: `offset` and `length` of each buffer in the body; None if nobody looked.
        codec: `lz4` or `zstd` if buffers are compressed; else empty, as where nobody looked.
    """

    kind: int
    body_bytes: int
    rows: int = 0
    buffers: NDArray[np.void] | None = None
    codec: str = ""


@dataclass(frozen=True, slots=True)
class Footer:
    """What the footer of a file lists: `offset`, `meta` (bytes of the head) and `body` of each block."""

    dictionaries: NDArray[np.void]
    batches: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class RowsHeads:
    """What the heads of record batches say, batch by batch. Nothing is compressed.

    Attributes:
        head_bytes: of each, without the prefix.
        rows: of each.
        body_bytes: behind each head.
        nodes: rows and nulls of each array: (batches, arrays, 2).
        buffers: offset and length of each buffer in the body: (batches, buffers, 2).
    """

    head_bytes: int
    rows: NDArray[np.int64]
    body_bytes: NDArray[np.int64]
    nodes: NDArray[np.int64]
    buffers: NDArray[np.int64]


class _Table:
    """A flatbuffers table in some bytes."""

    __slots__ = ("_data", "_place", "_size", "_vtable")

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._vtable = place - _number(data, _INT32, place)
        self._size = _number(data, _UINT16, self._vtable)

    def number(self, field: int, form: struct.Struct) -> int:
        """A number; 0 if the table does not hold it."""
        at = self.place(field)
        return 0 if at < 0 else _number(self._data, form, at)

    def table(self, field: int) -> _Table | None:
        """A table; None if it is not there."""
        at = self.place(field)
        return None if at < 0 else _Table(self._data, at + _number(self._data, _UINT32, at))

    def vector(self, field: int, item: np.dtype[np.void]) -> NDArray[np.void]:
        """Items of a vector; none if it is not there."""
        at, size = self.span(field, item.itemsize)
        return np.frombuffer(self._data, item, size // item.itemsize, at)

    def span(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Where the items of a vector begin, and all their bytes."""
        at = self.place(field)
        if at < 0:
            return 0, 0
        at += _number(self._data, _UINT32, at)
        count = _number(self._data, _UINT32, at)
        if at + 4 + count * item_bytes > len(self._data):
            raise CorruptShard("a list in the head of a message runs past its end", found=f"{count} items")
        return at + 4, count * item_bytes

    def place(self, field: int) -> int:
        """Where a field stands; −1 if the table does not hold it."""
        entry = 4 + 2 * field
        offset = _number(self._data, _UINT16, self._vtable + entry) if entry + 2 <= self._size else 0
        return self._place + offset if offset else -1


def _number(data: bytes, form: struct.Struct, at: int) -> int:
    if at < 0:
        raise CorruptShard("the head of a message points before its start", found=at)
    try:
        found: int = form.unpack_from(data, at)[0]
    except struct.error:
        raise CorruptShard(
            "the head of a message points past its end", expected=f"below {len(data)}", found=at
        ) from None
    return found


def _root(data: bytes) -> _Table:
    return _Table(data, _number(data, _UINT32, 0))


def parse_message(data: bytes, *, buffers: bool = True) -> Message:
    """The head of a message, without the prefix that says its length.

    Args:
        data: the head.
        buffers: whether to look at the buffers too; without, it takes a third of the time.

    Raises:
        CorruptShard: it points outside itself, or says what cannot be: negative sizes, buffers outside the body.
    """
    root = _root(data)
    kind, body_bytes = root.number(1, _UINT8), root.number(3, _INT64)
    head = root.table(2)
    if body_bytes < 0 or head is None:
        raise CorruptShard("not the head of a message", found=f"kind {kind}, a body of {body_bytes} bytes")
    if kind == DICTIONARY:
        head = head.table(1)
    if kind not in (DICTIONARY, ROWS):
        return Message(kind, body_bytes)
    if head is None:
        raise CorruptShard("a dictionary without values")
    rows = head.number(0, _INT64)
    if rows < 0:
        raise CorruptShard("not a number of rows", found=rows)
    if not buffers:
        return Message(kind, body_bytes, rows)
    return Message(kind, body_bytes, rows, _buffers(head, body_bytes), _codec(head))


def rows_heads(heads: NDArray[np.uint8]) -> RowsHeads | None:
    """The heads of many record batches at once, without the prefix: (batches, bytes).

    None unless they differ in numbers alone, as those of one writer do, and nothing is compressed. The first one is
    parsed, so it is for who gets None to say what is wrong with any of them.
    """
    first = heads[0].tobytes()
    try:
        root = _root(first)
        head = root.table(2)
        if root.number(1, _UINT8) != ROWS or head is None or head.table(3) is not None:
            return None
        nodes, buffers = head.span(1, _BUFFER.itemsize), head.span(2, _BUFFER.itemsize)
        spans = [(head.place(0), 8), (root.place(3), 8), nodes, buffers]
    except CorruptShard:
        return None
    if any(at <= 0 or at + size > heads.shape[1] for at, size in spans):
        return None
    fixed = np.ones(heads.shape[1], np.bool_)
    for at, size in spans:
        fixed[at : at + size] = False
    if (heads[:, fixed] != heads[0, fixed]).any():
        return None
    numbers = [np.ascontiguousarray(heads[:, at : at + size]).view("<i8") for at, size in spans]
    rows, body_bytes = numbers[0][:, 0], numbers[1][:, 0]
    return RowsHeads(heads.shape[1], rows, body_bytes, *(part.reshape(len(heads), -1, 2) for part in numbers[2:]))


def _buffers(head: _Table, body_bytes: int) -> NDArray[np.void]:
    found = head.vector(2, _BUFFER)
    offset, length = found["offset"], found["length"]
    if len(found) and (min(offset.min(), length.min()) < 0 or bool((offset > body_bytes - length).any())):
        raise CorruptShard("a buffer lies outside its message", expected=f"at most {body_bytes} bytes",
                           found=f"{int(length.max())} bytes at {int(offset.max())}")  # fmt: skip
    return found


def _codec(head: _Table) -> str:
    compression = head.table(3)
    if compression is None:
        return ""
    codec = compression.number(0, _INT8)
    if codec not in range(len(_CODECS)) or compression.number(1, _INT8):
        raise CorruptShard("buffers compressed in a way that is not known", expected=" or ".join(_CODECS), found=codec)
    return _CODECS[codec]


def parse_footer(data: bytes) -> Footer:
    """What the footer of a file lists. Raises CorruptShard if it points outside itself."""
    root = _root(data)
    return Footer(root.vector(2, _BLOCK), root.vector(3, _BLOCK))
