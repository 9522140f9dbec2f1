"""What is left of a damaged Arrow file or stream: its messages, one after another, as a stream.

The walk goes from message to message. Where it meets none, the next one is looked for: eight bytes that say that a
message goes on and how long its head is, and behind them a head that can be. The message before is lost if the next one
is found inside it. Inside it a message is taken only if the walk from there comes further than it should have ended:
values may be Arrow messages themselves.

Where the walk stops, bytes may have come into the message before, or gone from it. So that one is lost too, unless its
end is where it should be: the head behind it still begins as those of other messages do, or the footer lists both it
and what is found next at these places, and stands itself where the last message that it lists ends.

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
from lading.formats.protocol import Remains
from lading.ipc import (
    CONTINUED,
    DICTIONARY,
    MAGIC,
    ROWS,
    SCHEMA,
    Footer,
    Message,
    needs_dictionaries,
    parse_footer,
    parse_message,
)
from lading.store.protocol import MappedFile
from lading.texts import check_names

__all__ = ["may_hold_dictionary", "resync_messages", "resync_stream"]

_START, _PREFIX_BYTES, _TAIL_BYTES = 8, 8, 10
_END_MARK = CONTINUED + bytes(4)
_MAX_HEAD_BYTES = 64 << 20
_STEP_BYTES = 4 << 20
_ALIKE_BYTES, _ALIKE_PLACES = 16, (0, 8, 16)
"""As much of a head as tells it from values, and where: its prefix and what says which fields it has, as in all others.
What comes behind are numbers that repeat, as values do."""
_LEAST_TOLD = 4
"""Bytes of these that are no zeros."""
_LEGACY_END_BYTES = 4
"""Zeros that readers take for the end of a stream."""


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
    if begin == MAGIC:
        footer = walker.footer()
        listed = len(footer[1].batches) if footer is not None else 0  # one that was zeroed lists nothing
        found = sum(m.message.kind == ROWS for m in walker.messages)
        return resync_messages(mapped, path, None) if found > listed or walker.is_moved() else None
    return resync_messages(mapped, path, None) if walker.gaps else None


def _with_dictionaries(
    kept: list[_Found], gaps: list[tuple[int, int]], data: NDArray[np.uint8], made: bytes, head: _Found | None
) -> list[_Found]:
    """The messages but for the rows behind a gap that may have held a dictionary of theirs."""
    schema = made or (data[head.offset : head.stop].tobytes() if head is not None else b"")
    if not gaps or not may_hold_dictionary(schema):
        return kept
    rows = [m.offset for m in kept if m.message.kind == ROWS]
    dictionaries = [m.offset for m in kept if m.message.kind == DICTIONARY]
    if rows and dictionaries and max(dictionaries) < min(rows) < gaps[0][0]:
        return kept  # all dictionaries come first, as in files
    return [m for m in kept if m.offset < gaps[0][0]]


def may_hold_dictionary(schema: bytes) -> bool:
    """Whether columns need dictionaries, by the message of their schema; so they do if that is damaged."""
    found = _read_schema(schema)
    return found is None or any(map(needs_dictionaries, found.types))


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
            # As it is: rows of a big-endian file are in that order whatever its schema is made to say.
            as_told = pa.ipc.IpcReadOptions(ensure_native_endian=False)
            found = pa.ipc.open_file(pa.BufferReader(image), options=as_told).schema
            check_names(found)
            return bytes(found.serialize())
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            pass  # damaged too
    if schema is None:
        raise CorruptShard(
            "the schema is damaged, or may be, and nothing else says what the columns are", file=path, offset=0
        )
    return bytes(schema.serialize())


def _end(footer: Footer) -> int:
    """Where the last message ends that a footer lists."""
    blocks = np.concatenate([footer.dictionaries, footer.batches])
    return int((blocks["offset"] + blocks["meta"] + blocks["body"]).max(initial=0))


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
        stops: list[tuple[int, _Found | None, int]] = []
        while at < size:
            stop, ended = self._run(at, self.messages)
            before = self.messages[-1] if self.messages else None
            if ended or self._ends_in_zeros(stop, before):
                break
            at = self._find_next(stop, before)
            stops.append((stop, before, at))
        listed, alike = self._listed() if is_file else set(), self._alike()
        hurt: set[int] = set()
        for stop, before, at in stops:
            if before is not None and not self._ends_there(before, at, listed, alike):
                hurt.add(before.offset)
                self.gaps.append((before.offset, at))
            elif at < size or not self._is_tail(stop):
                self.gaps.append((stop, at))
        self.messages = [m for m in self.messages if m.offset not in hurt]

    def _ends_in_zeros(self, stop: int, before: _Found | None) -> bool:
        """Whether nothing but zeros follows, and none of an end mark that should follow lies in the message before."""
        zeros = len(self.data) - stop
        if self.data[stop:].any() or 0 < zeros < _LEGACY_END_BYTES:
            return False
        cut = zeros < len(_END_MARK) and self.data[-len(_END_MARK) :].tobytes() == _END_MARK
        return before is None or not cut

    def footer(self) -> tuple[int, Footer] | None:
        """Where the footer begins and what it lists; None if there is none that can be read."""
        tail = self.data[-_TAIL_BYTES:].tobytes()
        [length] = struct.unpack("<i", tail[:4]) if tail[4:] == MAGIC else [0]
        start = len(self.data) - _TAIL_BYTES - length
        if not 0 < length <= start + length:
            return None
        try:
            return start, parse_footer(self.data[start:-_TAIL_BYTES].tobytes())
        except DataError:
            return None

    def is_moved(self) -> bool:
        """Whether the end mark of a file does not stand where the footer says that the last message ends."""
        found = self.footer()
        if found is None:
            return False
        start, footer = found
        mark = start - len(_END_MARK)
        return self.data[mark:start].tobytes() == _END_MARK and mark != _end(footer)

    def _listed(self) -> set[tuple[int, int, int]]:
        """Place, bytes of the head and of the body of each message that the footer lists, if it stands behind them."""
        found = self.footer()
        if found is None or found[0] != _end(found[1]) + len(_END_MARK):
            return set()
        blocks = np.concatenate([found[1].dictionaries, found[1].batches])
        return {(at, meta, body) for at, meta, _, body in blocks.tolist()}

    def _alike(self) -> set[tuple[int, bytes]]:
        """Parts of the heads that were found, with their places in these."""
        parts = {
            (place, self.data[m.offset + place : m.offset + place + _ALIKE_BYTES].tobytes())
            for m in self.messages
            if m.message.kind in (DICTIONARY, ROWS)
            for place in _ALIKE_PLACES
        }
        return {(place, part) for place, part in parts if len(part) - part.count(0) >= _LEAST_TOLD}

    def _ends_there(
        self, before: _Found, at: int, listed: set[tuple[int, int, int]], alike: set[tuple[int, bytes]]
    ) -> bool:
        """Whether a message behind which no other begins ends where it says; `at`: the next that is found."""
        stop = before.stop
        if at < stop:
            return False
        parts = {(place, self.data[stop + place : stop + place + _ALIKE_BYTES].tobytes()) for place in _ALIKE_PLACES}
        if parts & alike:
            return True
        in_place = before.message.kind == SCHEMA or self._block(before.offset) in listed
        return bool(listed) and in_place and (at == len(self.data) or self._is_end(at) or self._block(at) in listed)

    def _block(self, at: int) -> tuple[int, int, int]:
        """What a footer would list of the message here."""
        found = self._message(at)
        return (at, found.meta_bytes, found.message.body_bytes) if found is not None else (at, 0, 0)

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
