"""Convert messages of Arrow IPC to record batches that are safe to touch.

pyarrow reads a message's body without checks: offsets may run backwards or out of their buffer, indices past a
dictionary. Every batch is checked here before it is returned, without a look at values. Text is checked for valid UTF-8
only for the rows that are returned. Compressed buffers declare their size, and are refused before allocation if it is
out of proportion.

How pyarrow 26 is used here: `read_record_batch` takes 1.5 µs and no copy, but decompresses with threads, and a process
that forks may not have any. So compressed messages and messages with dictionaries go through a stream reader (18 µs),
which is fed the messages that it needs, one after another.
"""

from __future__ import annotations

import io
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.ipc import (
    DICTIONARY,
    MAX_RATIO,
    ROWS,
    Message,
    dictionary_ids,
    needs_dictionaries,
    prefix_of,
    unpacked_bytes,
)
from lading._core.arrow.text_checks import check_names
from lading._core.arrow.types import supported
from lading._core.arrow.views import is_text
from lading._core.formats.arrow.blocks import Block, Blocks, message_bytes
from lading._core.formats.arrow.partial import Partial
from lading._core.formats.arrow.scattered import ScatteredRows
from lading._core.storage.base import store_errors
from lading._core.storage.range_reader import NEAR_BYTES
from lading.errors import CorruptShard, LadingError, errors_at

__all__ = ["KEPT_BYTES", "Decoder", "Loaded", "check_text", "damage"]

KEPT_BYTES = 64 << 20
_MAPPED_BATCH_BYTES = 4 << 10
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


@contextmanager
def damage(path: str, offset: int | None = None, column: str | None = None) -> Iterator[None]:
    """Return pyarrow's error for unreadable bytes as CorruptShard; lack of memory as StoreError."""
    try:
        yield
    except LadingError:
        raise
    except MemoryError:
        with store_errors(path, MemoryError):
            raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise CorruptShard(
            "the Arrow data cannot be read", file=path, offset=offset, column=column, found=said,
            advice="The file is damaged, or uses what pyarrow does not know.",
        ) from error  # fmt: skip


@dataclass(slots=True)
class Loaded:
    """A record batch, checked except for its text.

    Attributes:
        batch: the rows.
        row: function that returns one row of it, once created.
        touched_bytes: approximate bytes of a map that the check touched.
    """

    batch: pa.RecordBatch
    row: Any = None
    touched_bytes: int = 0


class _Kept:
    """The batches loaded last, of all open shards together: the newest, and 64 MiB of others.

    A shard may be closed at any moment, also by the garbage collector, in the middle of a method of this class. Closing
    therefore never waits.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[int, int, tuple[int, ...]], tuple[int, Loaded]] = OrderedDict()
        self._closed: deque[int] = deque()
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: tuple[int, int, tuple[int, ...]]) -> Loaded | None:
        with self._lock:
            self._sweep()
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[1]

    def put(self, key: tuple[int, int, tuple[int, ...]], size: int, loaded: Loaded) -> None:
        with self._lock:
            self._sweep()
            before = self._found.pop(key, None)
            self._bytes += size - (before[0] if before else 0)
            self._found[key] = size, loaded
            while self._bytes > KEPT_BYTES and len(self._found) > 1:
                self._bytes -= self._found.popitem(last=False)[1][0]

    def drop(self, shard: int) -> None:
        """Drop the batches of a shard: at once, or by the thread that uses the cache now or next."""
        self._closed.append(shard)
        if self._lock.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._lock.release()

    def _sweep(self) -> None:
        while self._closed:
            shard = self._closed.popleft()
            for key in [key for key in self._found if key[0] == shard]:
                self._bytes -= self._found.pop(key)[0]


_KEPT = _Kept()
_NUMBERS = count()


class Decoder:
    """Decode the record batches of one file or stream.

    Args:
        blocks: places of its messages.

    Attributes:
        schema: of the rows.
        has_dictionaries: whether a column needs dictionaries, without which pyarrow reads no record batch.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._body, self._limits = blocks, blocks.body, blocks.body.limits
        self._schema_message = pa.py_buffer(blocks.schema)
        self._number = next(_NUMBERS)
        self._lock = Lock()
        self._fed: _Fed | None = None
        self._counting = Lock()
        self._bare: set[int] = set()
        self._bare_rows = 0
        with damage(self._body.path, blocks.schema_offset):
            with supported(self._body.path, blocks.schema_offset):
                self.schema = pa.ipc.read_schema(self._schema_message)
            if len(self.schema) > self._limits.table_columns:
                raise self._limits.exceeded("table_columns", "too many columns", file=self._body.path,
                                            found=len(self.schema))  # fmt: skip
            check_names(self.schema)
        self.has_dictionaries = any(map(needs_dictionaries, self.schema.types))
        if self.has_dictionaries:
            prefix, head_bytes = prefix_of(blocks.schema[:8])
            blocks.expect_dictionaries(dictionary_ids(blocks.schema[prefix : prefix + head_bytes]))

    def load_partly(
        self, number: int, columns: Sequence[int], left: Sequence[bool]
    ) -> tuple[pa.RecordBatch, list[bool]] | None:
        """Return a record batch of an open or remote file, and of which columns large values were not read.

        Returns None if it must be read as a whole: it is compressed, or refers to dictionaries.

        Args:
            number: of the batch.
            columns: as in `load`, which raises the same errors.
            left: whether the large values of a column stay in the file.
        """
        file, block = self._body.nearby or self._body.open_file(), self._blocks.batches[number]
        in_part = self._body.nearby is not None or any(left)
        if self._body.mapped is not None or file is None or self.has_dictionaries or not in_part:
            return None
        found = Partial(file, block.offset, block.size_bytes)
        found.read((0, block.meta_bytes))
        if self._blocks.parse(block, bytes(found.data.slice(0, block.meta_bytes)), ROWS).codec:
            return None
        message = self._checked(block, found.data, ROWS)
        with damage(self._body.path, block.offset):
            batch = self._plain(found.data, columns)
            unread = found.read_columns(batch, left)
        self._body.holds_partly(found.data, block.offset)
        self._check(block, message, batch)
        return batch, unread

    def load_scattered(
        self, wanted: Sequence[tuple[int, NDArray[np.int64]]], columns: Sequence[int], left: Sequence[bool]
    ) -> list[ScatteredRows]:
        """Return rows of record batches of a remote file, read but for the large values of columns that are left.

        The batches are not compressed, and refer to no dictionaries: `Blocks.heads` knows them.

        Args:
            wanted: numbers of batches, and rows of each.
            columns: as in `load`, which raises the same errors.
            left: as in `load_partly`.
        """
        blocks = [self._blocks.batches[number] for number, _ in wanted]
        places = np.array([block[:2] for block in blocks], np.int64)
        nearby = self._body.nearby_of(places[:, 0], places[:, 1])
        opened: list[tuple[Block, Partial, Message, pa.RecordBatch]] = []
        small: list[tuple[int, int]] = []
        for block in blocks:
            found = Partial(nearby, block.offset, block.size_bytes)
            found.read((0, block.meta_bytes))
            message = self._checked(block, found.data, ROWS)
            with damage(self._body.path, block.offset):
                batch = self._plain(found.data, columns)
                small += [(block.offset + start, size) for start, size in found.parts_of(batch, left)[1]]
            opened.append((block, found, message, batch))
        offset, length = np.array(small, np.int64).reshape(-1, 2).T
        nearby.read_many(offset, length, near_bytes=NEAR_BYTES)
        rows = []
        for (block, found, message, batch), (_, mine) in zip(opened, wanted, strict=True):
            found.read_columns(batch, left)
            self._check(block, message, batch)
            rows.append(ScatteredRows(batch, found.data, block.offset, mine))
        return rows

    def load(self, number: int, columns: Sequence[int], *, keep: bool = True) -> Loaded:
        """Return a record batch with these columns, in this order; with `keep`, cache it.

        Raises:
            CorruptShard: it is damaged.
            LimitExceeded: it declares more rows or bytes than it can have.
        """
        key = (self._number, number, tuple(columns))
        found = _KEPT.get(key)
        if found is None:
            batch, size = self._decoded(number, columns)
            found = Loaded(batch)
            if keep:
                _KEPT.put(key, size, found)
        return found

    def unread(self, numbers: Sequence[int], columns: Sequence[int]) -> list[Block]:
        """Return the messages of those of some record batches that are not cached with these columns."""
        keys = [(self._number, number, tuple(columns)) for number in numbers]
        return [self._blocks.batches[key[1]] for key in keys if _KEPT.get(key) is None]

    def close(self) -> None:
        """Drop cached batches."""
        _KEPT.drop(self._number)
        self._fed = None

    def __del__(self) -> None:
        _KEPT.drop(self._number)

    def _decoded(self, number: int, columns: Sequence[int]) -> tuple[pa.RecordBatch, int]:
        block = self._blocks.batches[number]
        data = self._body.read(block.offset, block.size_bytes)
        message = self._checked(block, data, ROWS)
        with damage(self._body.path, block.offset):
            if len(self.schema) and (self.has_dictionaries or message.codec):
                with self._lock:
                    batch = self._streamed(data, self._blocks.needs[number], columns)
            else:
                batch = self._plain(data, columns)
        self._check(block, message, batch)
        in_memory = self._body.mapped is None or self.has_dictionaries or message.codec
        return batch, batch.get_total_buffer_size() if in_memory else _MAPPED_BATCH_BYTES + block.meta_bytes

    def _plain(self, data: pa.Buffer, columns: Sequence[int]) -> pa.RecordBatch:
        """Return a batch over a message without dictionaries and compression."""
        batch = pa.ipc.read_record_batch(data, self.schema)
        if len(columns) != len(self.schema) or list(columns) != list(range(len(columns))):
            return batch.select(list(columns)) if columns else _bare(batch.num_rows)
        return batch

    def _check(self, block: Block, message: Message, batch: pa.RecordBatch) -> None:
        if batch.num_rows != message.rows:
            raise CorruptShard("another number of rows than was declared", file=self._body.path, offset=block.offset,
                               expected=message.rows, found=batch.num_rows)  # fmt: skip
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            with damage(self._body.path, block.offset, name):
                _check_structure(column)

    def _checked(self, block: Block, data: pa.Buffer, kind: int) -> Message:
        """Return the head of a message, after a check of its declared sizes."""
        message = self._blocks.parse(block, bytes(data.slice(0, block.meta_bytes)), kind)
        with errors_at(file=self._body.path, offset=block.offset):
            # The body begins after the head, whatever length a file's footer declares for the head.
            unpacked = unpacked_bytes(message, memoryview(data)[sum(prefix_of(bytes(data.slice(0, 8)))) :])
            most = max(self._limits.arrow_batch_bytes, MAX_RATIO * message.body_bytes)
            if unpacked > most:
                raise self._limits.exceeded(
                    "arrow_batch_bytes", "a compressed batch says that it is much larger than it seems",
                    found=f"{unpacked} bytes", expected=f"at most {most} of {message.body_bytes} packed",
                )  # fmt: skip
            if message.values > 8 * unpacked:
                self._refuse_bare(block, message.values - 8 * unpacked)
        return message

    def _refuse_bare(self, block: Block, rows: int) -> None:
        """Count rows, or values inside them, for which a message has no bytes.

        There are few of them in a file, not in each of its batches.
        """
        with self._counting:
            if block.offset not in self._bare:
                self._bare.add(block.offset)
                self._bare_rows += rows
            found = self._bare_rows
        most = self._limits.bare_rows
        if found > most:
            raise self._limits.exceeded("bare_rows", "more rows than the bytes of the batches can hold",
                                        expected=f"at most {most} more", found=found)  # fmt: skip

    def _streamed(self, data: pa.Buffer, needed: int, columns: Sequence[int]) -> pa.RecordBatch:
        """Return a batch from a stream reader that has read the dictionaries before it."""
        fed = self._fed
        if fed is None or fed.columns != tuple(columns) or fed.dictionaries > needed or fed.failed:
            fed = self._fed = _Fed(self._schema_message, tuple(columns))
        if fed.dictionaries < needed:
            fed.failed = True  # until it has them all
            for block in self._blocks.in_force(needed, fed.dictionaries):
                [values] = message_bytes(self._body, [block])
                message = self._checked(block, values, DICTIONARY)
                if not self._blocks.is_stream and message.dictionary in fed.numbers and not message.is_delta:
                    raise CorruptShard("a file may extend a dictionary, but not replace it", file=self._body.path,
                                       offset=block.offset, found=f"dictionary {message.dictionary} again")  # fmt: skip
                fed.feed(values, message.dictionary)
            fed.dictionaries, fed.failed = needed, False
        batch = fed.next_batch(data)
        names = [self.schema.field(i).name for i in columns]
        return batch.select(names) if columns else _bare(batch.num_rows)


class _Fed:
    """A stream reader with the messages that it is given.

    Attributes:
        columns: columns that it reads.
        dictionaries: number of dictionary messages that it was given.
        numbers: the dictionaries that it was given, by their numbers.
        failed: whether it cannot be used any more.
    """

    def __init__(self, schema_message: pa.Buffer, columns: tuple[int, ...]) -> None:
        self.columns, self.dictionaries, self.failed = columns, 0, False
        self.numbers: set[int] = set()
        self._messages = _Messages()
        self._messages.add(schema_message)
        # Without columns, the number of rows would be lost.
        options = pa.ipc.IpcReadOptions(included_fields=sorted(columns) or [0], use_threads=False)
        self._reader = pa.ipc.open_stream(pa.PythonFile(self._messages, mode="r"), options=options)

    def feed(self, message: pa.Buffer, number: int) -> None:
        """Feed one more message of the dictionary of this number."""
        self.numbers.add(number)
        self._messages.add(message)

    def next_batch(self, message: pa.Buffer) -> pa.RecordBatch:
        """Feed the message of a batch, and return the batch."""
        self.failed = True
        self._messages.add(message)
        batch = self._reader.read_next_batch()
        self.failed = False
        return batch


class _Messages(io.RawIOBase):
    """Messages one after another, as a file; reads do not copy."""

    def __init__(self) -> None:
        self._left: list[pa.Buffer] = []
        self._at = 0

    def add(self, message: pa.Buffer) -> None:
        """Append a message."""
        self._left.append(message)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> Any:
        while self._left and self._at >= self._left[0].size:
            self._left.pop(0)
            self._at = 0
        if not self._left:
            return b""
        part = self._left[0].slice(self._at, self._left[0].size - self._at if size < 0 else size)
        self._at += part.size
        return part


def check_text(column: pa.Array) -> None:
    """Raise ArrowInvalid for text that is not UTF-8."""
    if is_text(column.type):
        column.validate(full=True)


def _check_structure(column: pa.Array) -> None:
    """Raise ArrowInvalid if touching a value would touch other memory."""
    kind = _BYTES.get(column.type)
    if kind is not None:
        buffers, at = column.buffers(), column.offset
        column = pa.Array.from_buffers(kind, len(column), buffers, column.null_count, at)
    column.validate(full=True)


def _bare(rows: int) -> pa.RecordBatch:
    """Return the number of rows without columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["none"]).select([])
