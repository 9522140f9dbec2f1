"""What is left of a damaged Arrow file or stream: its messages, one after another, as a stream.

The walk goes from message to message. Where it meets none, the next one is looked for: eight bytes that say that a
message goes on and how long its head is, and behind them a head that can be. The message before is lost if the next one
is found inside it. Inside it a message is taken only if the walk from there comes further than it should have ended:
values may be Arrow messages themselves.

The schema stands at the beginning of both, and in the footer of a file. Where it is damaged, the other one is taken, or
the one that a manifest kept. Dictionaries are needed by all record batches behind them: where one may be lost, so are
these.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import CorruptShard, DataError, LadingError
from lading.formats._arrow_blocks import CONTINUED, MAGIC
from lading.formats._arrow_flat import DICTIONARY, ROWS, SCHEMA, Message, parse_footer, parse_message
from lading.formats.protocol import Remains
from lading.store.protocol import MappedFile
from lading.texts import check_names

__all__ = ["resync_messages", "resync_stream"]

_START, _PREFIX_BYTES, _TAIL_BYTES = 8, 8, 10
_END_MARK = CONTINUED + bytes(4)
_MAX_HEAD_BYTES = 64 << 20
_STEP_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Found:
    """A message: where it begins, the bytes of prefix and head, and what its head says."""

    offset: int
    meta_bytes: int
    message: Message

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.offset + self.meta_bytes + self.message.body_bytes


def resync_messages(mapped: MappedFile, path: str, schema: pa.Schema | None) -> Remains:
    """The messages that are whole, as a stream.

    Args:
        mapped: the file.
        path: its name in errors.
        schema: of its rows, if a manifest keeps it.

    Raises:
        CorruptShard: nothing says what the columns are.
    """
    walker = _Walker(mapped)
    walker.walk()
    found = walker.messages
    head = next((m for m in found if m.message.kind == SCHEMA), None)
    if head is not None and _read_schema(walker.data[head.offset : head.stop].tobytes()) is None:
        head = None
    made = b"" if head is not None else _schema_message(walker.data, path, schema)
    kept = [m for m in found if m.message.kind in (DICTIONARY, ROWS)]
    kept = _with_dictionaries(kept, walker.gaps, walker.data, made, head)
    parts = [*([head] if head is not None else []), *kept]
    offset = np.array([m.offset for m in parts], np.int64)
    length = np.array([m.stop - m.offset for m in parts], np.int64)
    target = len(made) + np.cumsum(length) - length
    end = len(made) + int(length.sum())
    lost: list[LadingError] = [
        CorruptShard("no message can be read here", file=path, offset=start, expected="a message of the stream",
                     found=f"{stop - start} damaged bytes")
        for start, stop in walker.gaps
    ]  # fmt: skip
    gone = sum(m.message.kind == ROWS for m in found) - sum(m.message.kind == ROWS for m in kept)
    if gone:
        lost.append(
            CorruptShard("a dictionary may be lost that record batches need", file=path, found=f"{gone} of them")
        )
    pieces = [(0, made)] if made else []
    return Remains(offset, target, length, end + len(_END_MARK), [*pieces, (end, _END_MARK)], lost=lost,
                   breaks=_breaks(kept, walker))  # fmt: skip


def _breaks(kept: list[_Found], walker: _Walker) -> NDArray[np.int64]:
    """Rows among those of the messages kept right before which others may be missing; their number for the end."""
    batches = [m for m in kept if m.message.kind == ROWS]
    first = np.cumsum([0, *(m.message.rows for m in batches)])
    starts = np.array([m.offset for m in batches], np.int64)
    dropped = {m.offset for m in walker.messages if m.message.kind == ROWS} - {m.offset for m in batches}
    gone = [*(start for start, _ in walker.gaps), *dropped]
    found: NDArray[np.int64] = np.unique(first[np.searchsorted(starts, np.array(gone, np.int64))])
    return found


def resync_stream(mapped: MappedFile, path: str) -> Remains | None:
    """The messages of a stream that was read to its end, if that came too early; None if it did not.

    Four bytes of zeros are an end to readers, as a damage may be. Streams from before Arrow 0.15 are left alone.
    """
    begin = mapped.read(0, min(len(MAGIC), mapped.size_bytes))
    if not begin.startswith((CONTINUED, MAGIC)):
        return None
    walker = _Walker(mapped)
    walker.walk()
    if begin == MAGIC:  # a footer that was zeroed lists nothing
        [length] = struct.unpack("<i", walker.data[-_TAIL_BYTES : -len(MAGIC)].tobytes())
        listed = len(parse_footer(walker.data[-_TAIL_BYTES - length : -_TAIL_BYTES].tobytes()).batches)
        found = sum(m.message.kind == ROWS for m in walker.messages)
        return resync_messages(mapped, path, None) if found > listed else None
    return resync_messages(mapped, path, None) if walker.gaps else None


def _with_dictionaries(
    kept: list[_Found], gaps: list[tuple[int, int]], data: NDArray[np.uint8], made: bytes, head: _Found | None
) -> list[_Found]:
    """The messages but for the rows behind a gap that may have held a dictionary of theirs."""
    schema = _read_schema(made or (data[head.offset : head.stop].tobytes() if head is not None else b""))
    needed = schema is None or any(pa.types.is_dictionary(field.type) for field in schema)
    if not gaps or not needed:
        return kept
    rows = [m.offset for m in kept if m.message.kind == ROWS]
    dictionaries = [m.offset for m in kept if m.message.kind == DICTIONARY]
    if rows and dictionaries and max(dictionaries) < min(rows) < gaps[0][0]:
        return kept  # all dictionaries come first, as in files
    return [m for m in kept if m.offset < gaps[0][0]]


def _read_schema(message: bytes) -> pa.Schema | None:
    """The schema of a message; None if it is damaged."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        check_names(schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    return schema


def _schema_message(data: NDArray[np.uint8], path: str, schema: pa.Schema | None) -> bytes:
    """The message of the schema, out of the footer or made of what a manifest kept. Raises CorruptShard."""
    tail = data[-_TAIL_BYTES:].tobytes()
    [length] = struct.unpack("<i", tail[:4]) if len(tail) == _TAIL_BYTES else [0]
    if tail[4:] == MAGIC and 0 < length <= len(data) - _TAIL_BYTES:
        image = MAGIC + bytes(2) + data[-_TAIL_BYTES - length :].tobytes()
        try:
            found = pa.ipc.open_file(pa.BufferReader(image)).schema
            check_names(found)
            return bytes(found.serialize())
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            pass  # damaged too
    if schema is None:
        raise CorruptShard("the schema is damaged, and nothing else says what the columns are", file=path, offset=0)
    return bytes(schema.serialize())


class _Walker:
    """A walk over messages that goes on behind what is damaged.

    Attributes:
        data: the file.
        messages: those that are whole.
        gaps: `[start, stop)` of what lies between some of them.
    """

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped = mapped
        view = memoryview(mapped.buffer)
        self.data = np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)
        self.messages: list[_Found] = []
        self.gaps: list[tuple[int, int]] = []

    def walk(self) -> None:
        """Find all messages."""
        is_file = self.data[: len(MAGIC)].tobytes() == MAGIC
        at, size = _START if is_file else 0, len(self.data)
        while at < size:
            stop, ended = self._run(at, self.messages)
            if ended or not self.data[stop:].any():
                return
            before = self.messages[-1] if self.messages else None
            at = self._find_next(stop, before)
            if at >= size and self._is_tail(stop):
                return
            if before is not None and at < before.stop:
                self.messages.pop()
                stop = before.offset
            self.gaps.append((min(stop, at), at))

    def _run(self, at: int, messages: list[_Found]) -> tuple[int, bool]:
        """The messages from here on; where they stop, and whether that is at the end mark."""
        while True:
            self._mapped.check()
            if self.data[at : at + len(_END_MARK)].tobytes() == _END_MARK:
                return at, True
            found = self._message(at)
            if found is None:
                return at, False
            messages.append(found)
            at = found.stop

    def _message(self, at: int) -> _Found | None:
        """The message that begins here, if one does."""
        prefix = self.data[at : at + _PREFIX_BYTES].tobytes()
        if len(prefix) < _PREFIX_BYTES or not prefix.startswith(CONTINUED):
            return None
        length = int.from_bytes(prefix[4:], "little")
        if not 0 < length <= min(_MAX_HEAD_BYTES, len(self.data) - at - _PREFIX_BYTES):
            return None
        try:
            message = parse_message(self.data[at + _PREFIX_BYTES : at + _PREFIX_BYTES + length].tobytes())
        except DataError:
            return None
        found = _Found(at, _PREFIX_BYTES + length, message)
        return found if message.kind in (SCHEMA, DICTIONARY, ROWS) and found.stop <= len(self.data) else None

    def _find_next(self, stop: int, before: _Found | None) -> int:
        """Where the next message begins, the walk having stopped here; the end of the file if there is none."""
        first = tried = before.offset + before.meta_bytes if before is not None else stop
        for at in self._candidates(first):
            if at < tried:
                continue
            run: list[_Found] = []
            end, ended = self._run(at, run)
            if at >= stop or end > stop or ended:
                return at
            tried = max(run[-1].offset if run else at, at) + 1
        return len(self.data)

    def _candidates(self, at: int) -> Iterator[int]:
        """Places from `at` on where a message, or the end mark, may begin, ascending."""
        for start in range(at, len(self.data), _STEP_BYTES):
            self._mapped.check()
            piece = self.data[start : start + _STEP_BYTES + _PREFIX_BYTES]
            count = len(piece) - _PREFIX_BYTES + 1
            if count <= 0:
                return
            likely = piece[:count] == CONTINUED[0]
            for place in range(1, len(CONTINUED)):
                likely &= piece[place : place + count] == CONTINUED[0]
            likely &= piece[_PREFIX_BYTES - 1 : _PREFIX_BYTES - 1 + count] < max(_MAX_HEAD_BYTES >> 24, 1)
            for row in np.flatnonzero(likely[:_STEP_BYTES]).tolist():
                if self._message(start + row) is not None or self._is_end(start + row):
                    yield start + row

    def _is_end(self, at: int) -> bool:
        """Whether an end mark stands here with nothing behind it but a footer."""
        if self.data[at : at + len(_END_MARK)].tobytes() != _END_MARK:
            return False
        return at + len(_END_MARK) == len(self.data) or self._is_tail(at)

    def _is_tail(self, at: int) -> bool:
        """Whether what stands here is no more than the end of a file: at most an end mark and the footer."""
        tail = self.data[-_TAIL_BYTES:].tobytes()
        if len(tail) < _TAIL_BYTES or tail[4:] != MAGIC:
            return False
        [length] = struct.unpack("<i", tail[:4])
        return bool(length > 0 and at >= len(self.data) - _TAIL_BYTES - length - 2 * len(_END_MARK))
