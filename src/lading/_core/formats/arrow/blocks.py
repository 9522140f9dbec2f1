"""The blocks of an Arrow file or stream: the places of messages with rows and dictionaries. Reads no rows.

    file      "ARROW1" 0 0, stream, footer, int32 length of the footer, "ARROW1"
    stream    message of the schema, messages of dictionaries and rows …, 0xFFFFFFFF 0x00000000
    message   0xFFFFFFFF, int32 length of the head, head, body        (before Arrow 0.15 without the first four bytes)

A file's footer has its schema and lists its messages: only the footer tells what the file holds, as in pyarrow. The
message of the schema may differ, or be missing: Arrow JS and Arrow C++ before 0.11 write none, Polars 2.1 writes its
head without the prefix. A stream is walked from head to head, on demand.

Source: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from mmap import PAGESIZE
from threading import Lock, RLock
from typing import NamedTuple
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import ReadsInto, as_view
from lading._core.arrow.ipc import (
    CONTINUED,
    DICTIONARY,
    MAGIC,
    ROWS,
    SCHEMA,
    START_BYTES,
    TAIL_BYTES,
    Message,
    RowsHeads,
    footer_bytes,
    footer_that_begins,
    parse_message,
    prefix_of,
    rows_heads,
    schema_message,
    verify_footer,
)
from lading._core.formats.base import ShardFile
from lading._core.storage.base import MappedFile, Mapper, OpenFile, store_errors
from lading._core.storage.range_reader import NEAR_BYTES, RangeReader
from lading.errors import CorruptShard, DataError, errors_at

__all__ = ["ArrowFile", "Block", "Blocks", "find_blocks", "message_bytes", "next_message"]

_AHEAD_BYTES = 64 << 10
_FORWARD_BYTES, _MOST_FORWARD_BYTES = 64 << 10, 16 << 20
"""Bytes of a remote file that are read at once, when all of it is read forward: more each time."""
_NEARBY_BYTES = 256 << 10
"""Bytes of small ranges that are held: those of later messages are read anew."""
_MOST_NEARBY_BYTES = 16 << 20
"""The same, where rows are read by number: heads are needed again, and bytes near them."""
_PREFIX = 8
_FEATHER_1 = b"FEA1"
_END_BYTES = 16 << 10
"""Of a remote file, that are read with its first ones: most footers fit."""
_END_MARK = CONTINUED + bytes(4)
_ROWS_OF_BYTE = 1 << 18
"""Maximum rows for each byte of a file: zstd packs 128 KiB of zeros, with eight rows in each byte, into four bytes."""
_MAX_HEADS_BYTES = 16 << 20
"""Bytes of all heads of a file that are stored as arrays: 40,000 batches of six columns."""
_WALKED_BYTES = 1 << 20
"""Bytes of heads that are stored as they are met; others are read again."""
_TOUCHED_BYTES, _ASK_BYTES = 256 << 20, 4 << 20
"""Bytes of maps touched out of order before pages are released: a scan of 160 MB of texts fits."""


class ArrowFile(RangeReader):
    """An Arrow file or stream: how much is read of a remote one, and which pages of a map were touched.

    Attributes:
        limits: limits on the resources that the file may take.
        nearby: ranges of the file, if it is remote and read in part.
    """

    def __init__(self, source: ShardFile, *, mmap: bool, data: pa.Buffer | None = None) -> None:
        super().__init__(source.store, source.path, source.info, mmap=mmap, data=data)
        self.limits, self._source = source.limits, source
        self.nearby: RangeReader | None = None
        self._scattered: RangeReader | None = None
        self._forward_bytes = 0
        self._forward_end = self.size_bytes if source.span is None else source.span.stop
        self._partly = pa.py_buffer(b""), 0

    def open_map(self) -> MappedFile | None:
        """Return the file, if it is mapped. Raises UsageError if it was closed, by whichever thread."""
        mapped = self.mapped
        if mapped is None:
            self.check_open()
        return mapped

    def open_file(self) -> OpenFile | None:
        """Return the file, if it is open, its size checked. Raises as `open_map`; CorruptShard for another size."""
        file = self.file
        if file is None:
            self.check_open()
        else:
            file.check()
        return file

    def read(self, offset: int, length: int) -> pa.Buffer:
        """See `RangeReader`; of a remote file that is read forward, more each time."""
        if not self._forward_bytes:
            return super().read(offset, length)
        self._forward_bytes = min(2 * self._forward_bytes, _MOST_FORWARD_BYTES)
        return self.read_on(offset, length, self._forward_bytes, max(self._forward_end, offset + length))

    def peek(self, offset: int, length: int) -> bytes:
        """See `RangeReader`. Of a remote file more is fetched, because the next range will be near."""
        self.check_open()
        if not self.is_remote:
            return super().peek(offset, length)
        held = self.held(offset, length)
        if held is not None:
            return bytes(held)
        if self.nearby is None:
            stop = max(self._forward_end, offset + length) if self._forward_bytes else self.size_bytes
            return bytes(self.read_on(offset, length, self._forward_bytes or _AHEAD_BYTES, stop))
        found, [at] = self.nearby.read_many(np.array([offset]), np.array([length]), near_bytes=NEAR_BYTES)
        return bytes(found.slice(at, length))

    def read_forward(self) -> None:
        """Read a remote file in large windows from now on: all of it will be read."""
        self.nearby = None
        if self.file is None:
            self._forward_bytes = self._forward_bytes or _FORWARD_BYTES

    def read_in_part(self, blocks: Sequence[Block] = ()) -> None:
        """Read small ranges of a remote file from now on, with the bytes near them; heads of these blocks at once."""
        if self.nearby is None or blocks or self.nearby.held_bytes > _NEARBY_BYTES:
            self.nearby = self.within(0, self.size_bytes)
        if blocks:
            places = np.array([block[:2] for block in blocks], np.int64)
            self.nearby.read_many(places[:, 0], places[:, 1], near_bytes=NEAR_BYTES)

    def nearby_of(self, offset: NDArray[np.int64], length: NDArray[np.int64]) -> RangeReader:
        """Return ranges of a remote file with the heads at these places, which are read at once.

        Small values lie before the next head, and places of values behind their own: they are read with the heads.
        """
        nearby = self._scattered
        if nearby is None or nearby.held_bytes > _MOST_NEARBY_BYTES:
            nearby = self._scattered = self.within(0, self.size_bytes)
        first = np.maximum(offset - NEAR_BYTES, 0)
        last = np.minimum(offset + length + NEAR_BYTES, self.size_bytes)
        nearby.read_many(first, last - first, near_bytes=NEAR_BYTES)
        return nearby

    @property
    def near_bytes(self) -> int:
        """Return the bytes of heads of a remote file that are held."""
        return 0 if self._scattered is None else self._scattered.held_bytes

    def read_singly(self) -> None:
        """Read from now on no more than is asked for."""
        self.nearby, self._scattered, self._forward_bytes = None, None, 0
        self.drop()

    def peek_each(self, offset: NDArray[np.int64], length: NDArray[np.int64]) -> list[bytes]:
        """Return bytes of many small ranges, neighbours together."""
        file = self.open_file()
        if file is not None:
            return list(file.read_each(offset.tolist(), length.tolist()))
        small = int(length.sum()) + 4 * NEAR_BYTES * len(length) <= _MOST_NEARBY_BYTES
        reader, near = (self.nearby_of(offset, length), NEAR_BYTES) if small else (self, 0)
        found, start = reader.read_many(offset, length, near_bytes=near)
        body = as_view(found)
        return [bytes(body[at : at + size]) for at, size in zip(start.tolist(), length.tolist(), strict=True)]

    def holds_partly(self, data: pa.Buffer, offset: int) -> None:
        """Take a message, read in part, for the place in the file from which it is; forget the one before.

        It is kept, so that nothing else gets its addresses meanwhile.
        """
        self._partly = data, offset

    def touched(self, size: int) -> None:
        """Record that about so many bytes of the map were touched out of order; after many, pages are released.

        Pages count as memory of this process as long as it holds them, and one touch may read 2 MiB.
        """
        if self.mapped is not None:
            _TOUCHED.add(self, size)

    def may_stay(self) -> bool:
        """Return whether all of the map may be touched and stay in memory for now: it then counts as touched."""
        return _TOUCHED.reserve(self)

    @staticmethod
    def times_given_back() -> int:
        """Return how often pages were released: after a change, call `may_stay` again."""
        return _TOUCHED.times

    def place(self, data: pa.Buffer) -> int:
        """Return the offset in the file of a buffer in its map, or in a message read in part; −1 for another one."""
        mapped = self.mapped
        whole, offset = self._partly if mapped is None else (mapped.buffer, 0)
        at = data.address - whole.address
        return offset + at if 0 <= at <= whole.size - data.size else -1

    def reopened(self) -> ReadsInto:
        """Return the mapped file for later reads: opened for each read if it is not open then."""
        assert isinstance(self._source.store, Mapper)
        return _Reopened(self._source.store, self.path, self.size_bytes)

    def give_back(self) -> None:
        """Release the map's pages; they are read again if touched again."""
        mapped = self.mapped
        if mapped is not None:
            mapped.release(0, self.size_bytes)

    def close(self) -> None:
        """Close file and map; later reads are errors."""
        super().close()
        self._partly = pa.py_buffer(b""), 0
        self.read_singly()


@dataclass(frozen=True, slots=True)
class _Reopened:
    """A file that is opened for each read."""

    store: Mapper
    path: str
    size_bytes: int

    def read_into(self, targets: Sequence[memoryview], offset: int) -> None:
        """See `ReadsInto`. Raises CorruptShard if the file's size has changed."""
        mapped = self.store.map(self.path)
        if mapped.size_bytes != self.size_bytes:
            raise CorruptShard("the file changed while it was read", file=self.path,
                               expected=f"{self.size_bytes} bytes", found=f"{mapped.size_bytes} bytes")  # fmt: skip
        mapped.read_into(targets, offset)


class _Touched:
    """The maps of all open shards that were touched out of order, with a bound of their bytes in memory.

    Small maps are counted completely, and touched freely. The sum for others is an estimate that may count pages twice.
    When it becomes large, the system is asked for the actual number: releasing too little memory makes every later
    touch a page fault.

    Attributes:
        times: how often pages were released.
    """

    def __init__(self) -> None:
        self.times = 0
        self._lock = Lock()
        self._whole: WeakSet[ArrowFile] = WeakSet()
        self._partly: WeakSet[ArrowFile] = WeakSet()
        self._guessed = self._reserved = self._before = 0

    def reserve(self, body: ArrowFile) -> bool:
        with self._lock:
            if body in self._whole:
                return True
            if self._reserved + body.size_bytes >= _TOUCHED_BYTES:
                self._count_reserved()
            if self._reserved + body.size_bytes >= _TOUCHED_BYTES:
                return False
            self._begin()
            self._whole.add(body)
            self._reserved += body.size_bytes
            return True

    def add(self, body: ArrowFile, size: int) -> None:
        with self._lock:
            if body in self._whole:
                return
            self._begin()
            self._partly.add(body)
            self._guessed += size
            if self._guessed + self._reserved < _TOUCHED_BYTES:
                return
            self._count_reserved()
            now = _resident_bytes()
            held = _TOUCHED_BYTES if now is None else now - self._before
            if held < _TOUCHED_BYTES:
                most = _TOUCHED_BYTES - _ASK_BYTES - self._reserved
                self._guessed = min(max(held - self._reserved, 0), most)
                return
            for each in [*self._whole, *self._partly]:
                each.give_back()
            self._whole.clear()
            self._partly.clear()
            self._guessed = self._reserved = 0
            self.times += 1

    def _begin(self) -> None:
        if not self._whole and not self._partly:
            self._before = _resident_bytes() or 0

    def _count_reserved(self) -> None:
        """Leave out maps that are gone."""
        self._reserved = sum(body.size_bytes for body in self._whole)


def _resident_bytes() -> int | None:
    """Return this process's resident memory; None if the system does not report it.

    Includes the part that belongs to files: some file systems count their mapped pages as the process's own.
    """
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(100).split()[1]) * PAGESIZE
    except OSError:
        return None


_TOUCHED = _Touched()


class Block(NamedTuple):
    """The place of a message: its offset, the bytes of prefix and head, the bytes of its body, and its rows (or −1)."""

    offset: int
    meta_bytes: int
    body_bytes: int
    rows: int = -1

    @property
    def size_bytes(self) -> int:
        """Return all bytes of the message."""
        return self.meta_bytes + self.body_bytes


class _Order(NamedTuple):
    """The messages of one dictionary, and for each the message at which the values in force begin."""

    messages: list[int]
    begins: list[int]


@dataclass(slots=True)
class Blocks:
    """The messages of a file or stream.

    Attributes:
        body: the file.
        schema: the message of the schema; of a file, made from its footer.
        schema_offset: where the schema is: of a file, its footer.
        dictionaries: messages of dictionaries; for a stream those found so far.
        batches: messages of rows; for a stream those found so far.
        needs: for each of these, how many of the dictionaries are before it.
        at: for a stream, the start of the next message; −1 when all are found.
        unended: whether a stream may lack its end mark.
        is_stream: whether there is no footer.
        orders: of the dictionaries of a stream, by their numbers: see `_Order`.
        alike: see `heads`, once computed.
        walked: the heads of a stream's record batches, as long as they are small.
        lock: held while walking on: threads that share a shard walk it once.
    """

    body: ArrowFile
    schema: bytes
    schema_offset: int
    dictionaries: list[Block]
    batches: list[Block]
    needs: list[int]
    at: int = -1
    unended: bool = False
    is_stream: bool = False
    orders: dict[int, _Order] = field(default_factory=dict)
    alike: RowsHeads | None = None
    walked: list[bytes] = field(default_factory=list)
    lock: RLock = field(default_factory=RLock)

    def find(self, number: int) -> bool:
        """Return whether there is a record batch of this number; walks a stream up to it."""
        if number >= len(self.batches):
            with self.lock:
                while self.at >= 0 and number >= len(self.batches):
                    self._step()
        return number < len(self.batches)

    def find_all(self) -> NDArray[np.int64]:
        """Return the rows of each record batch."""
        with self.lock:
            return self._find_all()

    def _find_all(self) -> NDArray[np.int64]:
        while self.at >= 0:
            self._step()
        if any(block.rows < 0 for block in self.batches):
            places = np.array([block[:2] for block in self.batches], np.int64)
            heads = self.body.peek_each(places[:, 0], places[:, 1])
            self.alike = self._alike(heads)
            if self.alike is not None:
                rows = self.alike.rows.tolist()
            else:
                rows = [
                    self.parse(block, head, ROWS, buffers=False).rows
                    for block, head in zip(self.batches, heads, strict=True)
                ]
            self.batches = [Block(*block[:3], n) for block, n in zip(self.batches, rows, strict=True)]
        return np.array([block.rows for block in self.batches], np.int64)

    def row_ends(self) -> list[int]:
        """Return for each record batch the number of rows in it and all before.

        Raises LimitExceeded for more rows than the file can hold.
        """
        rows, body = self.find_all().tolist(), self.body
        ends, most = [*accumulate(rows)], body.limits.bare_rows + _ROWS_OF_BYTE * body.size_bytes
        if ends and ends[-1] > most:
            raise body.limits.exceeded("bare_rows", "more rows than the bytes of the file can hold", file=body.path,
                                       expected=f"at most {most}", found=max(rows))  # fmt: skip
        return ends

    def heads(self) -> RowsHeads | None:
        """Return the parsed heads of all record batches; None if their structure differs, as for several writers."""
        with self.lock:
            return self._heads()

    def _heads(self) -> RowsHeads | None:
        rows = self._find_all()
        if self.alike is None and len(self.walked) == len(rows) > 0:
            self.alike = self._alike(self.walked)
        elif self.alike is None and self.is_stream and len(rows):  # the heads of a file were all parsed
            places = np.array([block[:2] for block in self.batches], np.int64)
            if bool((places[:, 1] == places[0, 1]).all()) and int(places[:, 1].sum()) <= _MAX_HEADS_BYTES:
                self.alike = self._alike(self.body.peek_each(places[:, 0], places[:, 1]))
        return self.alike

    def _alike(self, heads: Sequence[bytes]) -> RowsHeads | None:
        size = len(heads[0])
        if size * len(heads) > _MAX_HEADS_BYTES or any(len(head) != size for head in heads):
            return None
        raw = np.frombuffer(b"".join(heads), np.uint8).reshape(-1, size)
        told = raw[0, :_PREFIX].tobytes()
        head_bytes = int.from_bytes(told[len(CONTINUED) :], "little")
        if told[: len(CONTINUED)] != CONTINUED or (raw[:, :_PREFIX] != raw[0, :_PREFIX]).any():
            return None
        if not 0 < head_bytes <= size - _PREFIX:
            return None
        found = rows_heads(raw[:, _PREFIX : _PREFIX + head_bytes])
        most = np.array([block.body_bytes for block in self.batches])
        sound = found is not None and (found.rows >= 0).all() and (found.body_bytes <= most).all()
        return found if sound else None

    def parse(self, block: Block, data: bytes, kind: int, *, buffers: bool = True) -> Message:
        """Parse and check the head of a block. Raises CorruptShard if it contradicts the block."""
        with errors_at(file=self.body.path, offset=block.offset):
            prefix, head_bytes = prefix_of(data[:8])
            if head_bytes < 0 or prefix + head_bytes > block.meta_bytes:
                raise CorruptShard("not the length of the head of a message", expected=f"at most {block.meta_bytes}",
                                   found=head_bytes)  # fmt: skip
            message = parse_message(data[prefix : prefix + head_bytes], buffers=buffers)
            if message.kind != kind or message.body_bytes > block.body_bytes:
                raise CorruptShard(
                    "another message than was expected here",
                    expected=f"kind {kind} of {block.body_bytes} bytes",
                    found=f"kind {message.kind} of {message.body_bytes} bytes",
                )
            return message

    def _step(self) -> None:
        """Find the next message of a stream."""
        block, message, head = next_message(self.body, self.at, unended=self.unended)
        if block is None or message is None:
            self._check_end()
            self.at = -1
            return
        if message.kind == ROWS:
            self.batches.append(block._replace(rows=message.rows))
            self.needs.append(len(self.dictionaries))
            if len(self.batches) * len(head) <= _WALKED_BYTES:
                self.walked.append(head)
        elif message.kind == DICTIONARY and message.dictionary in self.orders:
            order = self.orders[message.dictionary]
            goes_on = message.is_delta and order.begins
            order.begins.append(order.begins[-1] if goes_on else len(order.begins))
            order.messages.append(len(self.dictionaries))
            self.dictionaries.append(block)
        else:
            raise CorruptShard("a message that holds no rows, nor a dictionary of the schema", file=self.body.path,
                               offset=self.at, found=f"kind {message.kind}")  # fmt: skip
        self.at += block.size_bytes

    def expect_dictionaries(self, numbers: Iterable[int]) -> None:
        """Set the dictionaries of the schema, before the walk begins."""
        self.orders = {number: _Order([], []) for number in numbers}

    def _check_end(self) -> None:
        """Raise CorruptShard if a stream ends again after the end mark: a message may have become such a mark."""
        last = self.body.size_bytes - len(_END_MARK)
        if self.at < last and self.body.peek(last, len(_END_MARK)) == _END_MARK:
            raise CorruptShard("the stream ends before its end", file=self.body.path, offset=self.at,
                               expected=f"its end mark at {last}", found="an end mark",
                               advice="It was damaged here, or several streams stand in one file.")  # fmt: skip

    def in_force(self, needed: int, given: int = 0) -> list[Block]:
        """Return the dictionary messages in force after the first `needed`, without those in `given`.

        In a stream, values may replace others.
        """
        if not self.is_stream:
            return self.dictionaries[given:needed]
        found: list[int] = []
        for order in self.orders.values():
            end = bisect_left(order.messages, needed)
            begin = bisect_left(order.messages, given, order.begins[end - 1] if end else 0, end)
            found += order.messages[begin:end]
        return [self.dictionaries[i] for i in sorted(found)]


def find_blocks(body: ArrowFile, *, unended: bool) -> Blocks:
    """Return the blocks of a file or stream, detected by its first bytes; reads the first head, or the footer.

    Raises:
        CorruptShard: it is neither, is cut, or its footer is damaged.
        DataError: it is big-endian, or a Feather file of version 1.
        LimitExceeded: the footer is larger than `footer_bytes`.
    """
    size = body.size_bytes
    # Of a remote file, both ends by one call.
    with body.expecting([(0, min(START_BYTES, size)), (max(size - _END_BYTES, 0), min(_END_BYTES, size))]):
        head = body.peek(0, min(START_BYTES, size))
        if head.startswith(MAGIC):
            return _of_file(body)
    if head.startswith(_FEATHER_1):
        raise DataError("a Feather file of version 1, which is no Arrow file", file=body.path,
                        advice="Read it with pyarrow.feather.read_table, and write it again.")  # fmt: skip
    block, message, schema = next_message(body, 0, unended=False)
    if block is None or message is None or message.kind != SCHEMA:
        raise CorruptShard("neither an Arrow file nor an Arrow stream: no schema", file=body.path,
                           expected="ARROW1, or the message of a schema",
                           found=repr(body.peek(0, min(16, body.size_bytes))))  # fmt: skip
    _refuse_big_endian(message, body.path, 0)
    return Blocks(body, schema, 0, [], [], [], at=block.size_bytes, unended=unended, is_stream=True)


def _of_file(body: ArrowFile) -> Blocks:
    path, end = body.path, body.size_bytes - TAIL_BYTES
    with errors_at(file=path):
        tail = body.peek(max(end, 0), min(TAIL_BYTES, body.size_bytes))
        length = footer_bytes(tail, end, START_BYTES)
    if length > body.limits.footer_bytes:
        raise body.limits.exceeded("footer_bytes", "the footer is too large", file=path, found=length)
    start = end - length
    with errors_at(file=path, offset=start), store_errors(path, MemoryError):
        data = bytes(body.read(start, length))
        verify_footer(data)
        footer, schema = footer_that_begins(data, start), schema_message(data)
        _refuse_big_endian(parse_message(schema[_PREFIX:]), path, start)
    dictionaries, batches = ([Block(at, meta, size) for at, meta, _, size in listed.tolist()]
                             for listed in (footer.dictionaries, footer.batches))  # fmt: skip
    return Blocks(body, schema, start, dictionaries, batches, [len(dictionaries)] * len(batches))


def _refuse_big_endian(schema: Message, path: str, offset: int) -> None:
    if schema.big_endian:
        raise DataError(
            "the file has the bytes of its numbers the other way round", file=path, offset=offset,
            expected="little-endian", found="big-endian", advice="Read it with pyarrow, and write it again.",
        )  # fmt: skip


@lru_cache(maxsize=64)
def _parsed(head: bytes) -> Message:
    """Return the head of a message: the shards of a dataset begin with the same schema."""
    return parse_message(head, buffers=False)


def next_message(body: ArrowFile, at: int, *, unended: bool) -> tuple[Block | None, Message | None, bytes]:
    """Return the message that begins at an offset, and its head with the prefix; None at the end of the stream."""
    left = body.size_bytes - at
    if left == 0 and unended:
        return None, None, b""
    with errors_at(file=body.path, offset=at):
        start = body.peek(at, min(left, 8))
        if len(start) < len(CONTINUED):
            raise CorruptShard(
                "the stream ends without its end mark", expected="0xFFFFFFFF 0x00000000", found=repr(start),
                advice="It was cut, or never finished. If it was written so, read it with --option unended=true.",
            )  # fmt: skip
        prefix, head_bytes = prefix_of(start)
        if head_bytes == 0:
            return None, None, b""
        if head_bytes < 0 or prefix + head_bytes > left:
            raise CorruptShard("the head of a message runs past the end of the file", expected=f"at most {left} bytes",
                               found=head_bytes)  # fmt: skip
        head = body.peek(at + prefix, head_bytes)
        message = _parsed(head)
        if message.body_bytes > left - prefix - head_bytes:
            most = left - prefix - head_bytes
            raise CorruptShard("a message runs past the end of the file", expected=f"at most {most} bytes",
                               found=message.body_bytes)  # fmt: skip
    return Block(at, prefix + head_bytes, message.body_bytes), message, start[:prefix] + head


def message_bytes(body: ArrowFile, blocks: Sequence[Block]) -> list[pa.Buffer]:
    """Return the messages themselves."""
    return [body.read(block.offset, block.size_bytes) for block in blocks]
