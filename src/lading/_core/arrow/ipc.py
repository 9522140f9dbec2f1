"""Parse the heads of Arrow IPC messages and the footer of an Arrow file, as far as they locate data.

Every place is checked to be inside the given bytes. Schemas are left to pyarrow.

    file      "ARROW1" 0 0, messages, footer, int32 length of the footer, "ARROW1"
    message   0xFFFFFFFF, int32 length of the head, head, body        (before Arrow 0.15 without the first four bytes)
    table     int32 back to its vtable; vtable: uint16 its size, uint16 size of the table, uint16 place of each field
    vector    uint32 count, items; a field that is a table or vector holds a uint32 distance to it

Source: https://arrow.apache.org/docs/format/Columnar.html, arrow 26 format/Message.fbs and File.fbs; they are
flatbuffers, https://flatbuffers.dev/internals/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.types import supported
from lading.errors import CorruptShard, errors_at

__all__ = [
    "CONTINUED",
    "DICTIONARY",
    "MAGIC",
    "MAX_RATIO",
    "MOST_START_BYTES",
    "ROWS",
    "SCHEMA",
    "START_BYTES",
    "TAIL_BYTES",
    "FileFooter",
    "Message",
    "RowsHeads",
    "dictionary_ids",
    "footer_bytes",
    "footer_that_begins",
    "needs_dictionaries",
    "open_footer",
    "parse_footer",
    "parse_message",
    "prefix_of",
    "rows_heads",
    "schema_message",
    "start_of_file",
    "unpacked_bytes",
    "unpacked_sizes",
    "verify_footer",
]

MAGIC = b"ARROW1"
CONTINUED = b"\xff\xff\xff\xff"
START_BYTES, TAIL_BYTES = 8, len(MAGIC) + 4
MOST_START_BYTES = 64
"""A file may have zeros up to here after the magic: Rust's arrow pads to the alignment that it writes with."""
"""Bytes of a file: before its messages, and after its footer."""

MAX_RATIO = 100
"""Data that expands by less than this factor is always accepted."""
SCHEMA, DICTIONARY, ROWS = 1, 2, 3
"""Kinds of messages: the schema, values of a dictionary, a record batch."""

_BLOCK = np.dtype([("offset", "<i8"), ("meta", "<i4"), ("pad", "<i4"), ("body", "<i8")])
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])
_NODE = np.dtype([("length", "<i8"), ("nulls", "<i8")])
_CODECS = ("lz4", "zstd")
_UINT8, _UINT16, _UINT32 = struct.Struct("<B"), struct.Struct("<H"), struct.Struct("<I")
_INT8, _INT16, _INT32, _INT64 = (struct.Struct(f"<{letter}") for letter in "bhiq")


@dataclass(frozen=True, slots=True)
class Message:
    """The head of a message.

    Attributes:
        kind: `SCHEMA`, `DICTIONARY`, `ROWS`, or the number of a kind that lading does not read.
        body_bytes: bytes of buffers after the head.
        rows: rows of a record batch, or values of a dictionary.
        values: length of the longest array, at any depth; 0 if not computed.
        buffers: `offset` and `length` of each buffer in the body; None if not computed.
        codec: `lz4` or `zstd` if buffers are compressed; else empty, also if not computed.
        big_endian: whether a schema says that the most significant byte of every number comes first.
        dictionary: number of the dictionary to which these values belong.
        is_delta: whether the values are appended to the dictionary's earlier values.
    """

    kind: int
    body_bytes: int
    rows: int = 0
    values: int = 0
    buffers: NDArray[np.void] | None = None
    codec: str = ""
    big_endian: bool = False
    dictionary: int = 0
    is_delta: bool = False


@dataclass(frozen=True, slots=True)
class FileFooter:
    """The lists in the footer of a file: `offset`, `meta` (bytes of the head) and `body` of each block."""

    dictionaries: NDArray[np.void]
    batches: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class RowsHeads:
    """The heads of record batches without compression, by batch.

    Attributes:
        head_bytes: length of each head, without the prefix.
        rows: rows of each batch.
        body_bytes: bytes after each head.
        nodes: rows and nulls of each array: (batches, arrays, 2).
        buffers: offset and length of each buffer in the body: (batches, buffers, 2).
    """

    head_bytes: int
    rows: NDArray[np.int64]
    body_bytes: NDArray[np.int64]
    nodes: NDArray[np.int64]
    buffers: NDArray[np.int64]


class _Table:
    """A flatbuffers table in some bytes.

    Attributes:
        start: its place.
    """

    __slots__ = ("_data", "_size", "_vtable", "start")

    def __init__(self, data: bytes | memoryview, place: int) -> None:
        self._data, self.start = data, place
        self._vtable = place - _number(data, _INT32, place)
        self._size = _number(data, _UINT16, self._vtable)

    def number(self, field: int, form: struct.Struct) -> int:
        """Return a number; 0 if the table lacks it."""
        at = self.place(field)
        return 0 if at < 0 else _number(self._data, form, at)

    def table(self, field: int) -> _Table | None:
        """Return a table; None if it is missing."""
        at = self.place(field)
        return None if at < 0 else _Table(self._data, at + _number(self._data, _UINT32, at))

    def vector(self, field: int, item: np.dtype[np.void]) -> NDArray[np.void]:
        """Return the items of a vector; nothing if it is missing."""
        at, size = self.span(field, item.itemsize)
        return np.frombuffer(self._data, item, size // item.itemsize, at)

    def tables(self, field: int) -> list[_Table]:
        """Return the tables of a vector; nothing if it is missing."""
        begin, size = self.span(field, 4)
        return [_Table(self._data, at + _number(self._data, _UINT32, at)) for at in range(begin, begin + size, 4)]

    def span(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Return the start of the items of a vector, and their total bytes."""
        at = self.place(field)
        if at < 0:
            return 0, 0
        at += _number(self._data, _UINT32, at)
        count = _number(self._data, _UINT32, at)
        if at + 4 + count * item_bytes > len(self._data):
            raise CorruptShard("a list in the head of a message runs past its end", found=f"{count} items")
        return at + 4, count * item_bytes

    def place(self, field: int) -> int:
        """Return the place of a field; −1 if the table lacks it."""
        entry = 4 + 2 * field
        offset = _number(self._data, _UINT16, self._vtable + entry) if entry + 2 <= self._size else 0
        return self.start + offset if offset else -1


def _number(data: bytes | memoryview, form: struct.Struct, at: int) -> int:
    if at < 0:
        raise CorruptShard("the head of a message points before its start", found=at)
    try:
        found: int = form.unpack_from(data, at)[0]
    except struct.error:
        raise CorruptShard(
            "the head of a message points past its end", expected=f"below {len(data)}", found=at
        ) from None
    return found


def _root(data: bytes | memoryview) -> _Table:
    return _Table(data, _number(data, _UINT32, 0))


def parse_message(data: bytes | memoryview, *, buffers: bool = True) -> Message:
    """Parse the head of a message, without its length prefix.

    Args:
        data: the head.
        buffers: whether to parse the buffers too; without, it takes a third of the time.

    Raises:
        CorruptShard: it points outside itself, or has impossible values: negative sizes, buffers outside the body, a
            first column with another number of rows.
    """
    root = _root(data)
    kind, body_bytes = root.number(1, _UINT8), root.number(3, _INT64)
    head = root.table(2)
    if body_bytes < 0 or head is None:
        raise CorruptShard("not the head of a message", found=f"kind {kind}, a body of {body_bytes} bytes")
    if kind == SCHEMA:
        return Message(kind, body_bytes, big_endian=bool(head.number(0, _UINT16)))
    dictionary, is_delta = 0, False
    if kind == DICTIONARY:
        dictionary, is_delta = head.number(0, _INT64), bool(head.number(2, _UINT8))
        head = head.table(1)
    if kind not in (DICTIONARY, ROWS):
        return Message(kind, body_bytes)
    if head is None:
        raise CorruptShard("a dictionary without values")
    rows = head.number(0, _INT64)
    if rows < 0:
        raise CorruptShard("not a number of rows", found=rows)
    if not buffers:
        return Message(kind, body_bytes, rows, dictionary=dictionary, is_delta=is_delta)
    lengths = head.vector(1, _NODE)["length"]
    if len(lengths) and lengths[0] != rows:
        raise CorruptShard("not the rows of the first column", expected=int(lengths[0]), found=rows)
    values = int(lengths.max(initial=rows))
    return Message(kind, body_bytes, rows, values, _buffers(head, body_bytes), _codec(head),
                   dictionary=dictionary, is_delta=is_delta)  # fmt: skip


def dictionary_ids(data: bytes) -> set[int]:
    """Return the numbers of the dictionaries of columns, from the head of a schema that pyarrow has verified."""
    head = _root(data).table(2)
    return set() if head is None else {number for column in head.tables(1) for number in _ids_of(column)}


def _ids_of(column: _Table) -> Iterator[int]:
    encoding = column.table(4)
    if encoding is not None:
        yield encoding.number(0, _INT64)
    for child in column.tables(5):
        yield from _ids_of(child)


def rows_heads(heads: NDArray[np.uint8]) -> RowsHeads | None:
    """Parse the heads of many record batches at once, without the prefix: (batches, bytes).

    Returns None unless they differ only in numbers, as those of one writer do, and nothing is compressed. Only the
    first head is parsed completely; after None, the caller finds the error of any of them.
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


def parse_footer(data: bytes) -> FileFooter:
    """Parse the footer of a file. Raises CorruptShard if it points outside itself."""
    root = _root(data)
    return FileFooter(root.vector(2, _BLOCK), root.vector(3, _BLOCK))


def footer_bytes(tail: bytes, end: int, start: int) -> int:
    """Return the length of the footer that ends before the tail of a file, at `end`, and begins after `start`.

    Raises:
        CorruptShard: the tail does not describe a footer.
    """
    if tail[4:] != MAGIC:
        raise CorruptShard("the file does not end as an Arrow file does", offset=max(end + 4, 0), expected=repr(MAGIC),
                           found=repr(tail[4:]), advice="It was cut, or never finished.")  # fmt: skip
    length = int.from_bytes(tail[:4], "little", signed=True)
    if not 0 < length <= end - start:
        raise CorruptShard("not the length of a footer in this file", offset=end, found=length)
    return length


def start_of_file(head: bytes) -> int:
    """Return the start of the schema of a file, from its first `MOST_START_BYTES` bytes; 0 for a stream."""
    if len(head) < START_BYTES or not head.startswith(MAGIC):
        return 0
    filled = len(head[START_BYTES:]) - len(head[START_BYTES:].lstrip(b"\0"))
    return START_BYTES + filled // START_BYTES * START_BYTES


def schema_message(footer: bytes) -> bytes:
    """Return the schema of a footer as the message with which a stream begins. Raises CorruptShard.

    The message is a table before the bytes of the footer, whose schema it points to, so the schema keeps the numbers of
    its dictionaries.
    """
    schema = _root(footer).table(1)
    if schema is None:
        raise CorruptShard("a footer without a schema")
    # 4 bytes to the table at 16; its vtable at 4, with three fields; the table: version, kind, distance to the schema.
    head = bytearray(32)
    struct.pack_into("<I5H", head, 0, 16, 10, 12, 4, 6, 8)
    struct.pack_into("<ihBxI", head, 16, 12, _root(footer).number(0, _INT16), SCHEMA, 8 + schema.start)
    head += footer + bytes(-len(footer) % 8)
    return CONTINUED + _INT32.pack(len(head)) + bytes(head)


def footer_that_begins(data: bytes, start: int) -> FileFooter:
    """Parse the footer that begins at `start` of a file. Raises CorruptShard if its blocks are not before it."""
    footer = parse_footer(data)
    _check_places(np.concatenate([footer.dictionaries, footer.batches]), start)
    return footer


def open_footer(data: bytes) -> pa.ipc.RecordBatchFileReader:
    """Open a footer as the end of a file without messages; raises pyarrow's error if it is damaged."""
    image = b"".join([MAGIC, bytes(START_BYTES - len(MAGIC)), data, _INT32.pack(len(data)), MAGIC])
    # Unchanged: rows of a big-endian file keep that order, whatever its schema says.
    options = pa.ipc.IpcReadOptions(ensure_native_endian=False, use_threads=False)
    return pa.ipc.open_file(pa.BufferReader(image), options=options)


def verify_footer(data: bytes) -> None:
    """Raise CorruptShard if pyarrow finds a footer damaged: one flipped bit can make a field appear missing.

    Raises:
        DataError: the schema has a type that pyarrow does not have.
    """
    try:
        with supported():
            open_footer(data)
    except MemoryError:  # a subclass of pyarrow's own error
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise CorruptShard("the footer cannot be read", found=said) from error


def _check_places(listed: NDArray[np.void], end: int) -> None:
    """Raise CorruptShard for blocks outside the file, or that are listed so often that they multiply few bytes."""
    offset, meta, body = (listed[name].astype(np.int64) for name in ("offset", "meta", "body"))
    sound = (offset >= START_BYTES) & (meta >= START_BYTES) & (body >= 0) & (offset <= end) & (body <= end)
    if not bool(sound.all()) or bool((offset + meta + body > end).any()):
        bad = int(np.argmin(sound & (offset + np.minimum(meta, end) + np.minimum(body, end) <= end)))
        raise CorruptShard("the footer lists a block outside the file", expected=f"{START_BYTES} to {end}",
                           found=f"{int(body[bad])} bytes at {int(offset[bad])}")  # fmt: skip
    total = float((meta + body).sum(dtype=np.float64))
    if total > MAX_RATIO * end:
        raise CorruptShard("the footer lists the same blocks again and again", expected=f"at most {MAX_RATIO * end} "
                           "bytes in all", found=f"{total:.0f}")  # fmt: skip


def prefix_of(start: bytes) -> tuple[int, int]:
    """Return the bytes of a message's prefix and of its head, from its first eight bytes.

    Raises CorruptShard if cut.
    """
    old = start[:4] != CONTINUED
    length = start[:4] if old else start[4:8]
    if len(length) < len(CONTINUED):
        raise CorruptShard("a message is cut", found=repr(start))
    return (4 if old else 8), int.from_bytes(length, "little", signed=True)


def needs_dictionaries(kind: pa.DataType) -> bool:
    """Return whether values of a type need dictionary messages: it is a dictionary, or holds one, at any depth."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    inner = (kind.field(i).type for i in range(kind.num_fields))
    return bool(pa.types.is_dictionary(kind)) or any(map(needs_dictionaries, inner))


def unpacked_bytes(message: Message, body: memoryview) -> int:
    """Return the bytes of a message's buffers; for compressed ones the declared size. Nothing is unpacked.

    A compressed buffer begins with an int64; −1 means that it is stored uncompressed.

    Raises:
        CorruptShard: a buffer declares an impossible size.
    """
    if not message.codec:
        return message.body_bytes
    total = 0
    assert message.buffers is not None
    for offset, length in message.buffers.tolist():
        if not length:
            continue
        if length < _INT64.size:
            raise CorruptShard("a compressed buffer is too short to say its size", found=f"{length} bytes")
        [size] = _INT64.unpack_from(body, offset)
        if size < -1:
            raise CorruptShard("a compressed buffer of a negative size", found=size)
        total += length if size < 0 else size
    return total


def unpacked_sizes(file: pa.Buffer, number: int | None = None) -> list[int]:
    """Return the unpacked bytes of each dictionary and record batch of an Arrow file, reading only heads.

    Args:
        file: the file.
        number: of the only record batch that counts; None for all of them.

    Raises:
        CorruptShard: it is not an Arrow file, or its footer or a head is damaged.
    """
    view = memoryview(file)
    end = len(view) - TAIL_BYTES
    length = footer_bytes(bytes(view[max(end, 0) :]), end, START_BYTES)
    footer = footer_that_begins(bytes(view[end - length : end]), end - length)
    sizes = []
    batches = footer.batches if number is None else footer.batches[number : number + 1]
    for at, meta_bytes, _, body_bytes in np.concatenate([footer.dictionaries, batches]).tolist():
        block = view[at : at + meta_bytes + body_bytes]
        with errors_at(offset=at):
            prefix, head_bytes = prefix_of(bytes(block[:8]))
            if not 0 < head_bytes <= meta_bytes - prefix:
                raise CorruptShard("the head of a message runs past its block", expected=f"at most {meta_bytes} bytes",
                                   found=head_bytes)  # fmt: skip
            # The body begins after the head, whatever length the footer declares for the head.
            body = block[prefix + head_bytes :]
            message = parse_message(bytes(block[prefix : prefix + head_bytes]))
            if message.body_bytes > len(body):
                raise CorruptShard("a message runs past its block", expected=f"at most {len(body)} bytes",
                                   found=message.body_bytes)  # fmt: skip
            sizes.append(unpacked_bytes(message, body))
    return sizes
