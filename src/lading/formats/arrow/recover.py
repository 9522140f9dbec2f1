"""What is left of a damaged Arrow file or stream: its messages, one after another, as a stream.

Where a footer can be read and stands in its place, it says where messages begin, and nothing else is taken for one: one
is whole if its head says that it ends where the next begins.

Else the walk goes from message to message. Where it meets none, the next one is looked for: eight bytes that say that a
message goes on and how long its head is, and behind them a head that can be. The message before is lost if the next one
is found inside it. Inside it a message is taken only if the walk from there comes further than it should have ended:
values may be Arrow messages themselves. Those of a stream in a value are passed over: a stream has one schema, and
behind its end mark comes nothing but the footer of a file.

Where the walk stops, bytes may have come into the message before, or gone from it. So that one is lost too, unless its
end is where it should be: what follows still begins as other messages do, or is an end mark.

The schema stands at the beginning of both, and in the footer of a file. Where it is damaged, the other one is taken, or
the one that a manifest kept. Dictionaries are needed by all record batches behind them: where one may be lost, so are
these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.ipc import (
    CONTINUED,
    DICTIONARY,
    MAGIC,
    MOST_START_BYTES,
    ROWS,
    SCHEMA,
    START_BYTES,
    TAIL_BYTES,
    Footer,
    Message,
    footer_bytes,
    footer_that_begins,
    needs_dictionaries,
    open_footer,
    parse_message,
    start_of_file,
)
from lading.arrow.text_checks import check_names
from lading.errors import CorruptShard, DataError, LadingError
from lading.formats.base import Recovered
from lading.storage.base import MappedFile

__all__ = ["may_hold_dictionary", "resync_messages", "resync_stream"]

_PREFIX_BYTES = 8
_END_MARK = CONTINUED + bytes(4)
_MAX_HEAD_BYTES = 64 << 20
_STEP_BYTES = 4 << 20
_ALIKE = ((0, 8), (8, 16), (16, 16))
"""Where parts of a head lie that tell it from values, and their bytes: its prefix, and what says which fields it has,
as in all others. What comes behind are numbers that repeat, as values do."""
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


def resync_messages(mapped: MappedFile, path: str, schema: pa.Schema | None) -> Recovered:
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
    made = b"" if head is not None else _schema_message(walker.data[walker.footer_start :].tobytes(), path, schema)
    kept = [m for m in found if m.message.kind in (DICTIONARY, ROWS)]
    kept = _with_dictionaries(kept, walker.dictionary_gaps, walker.data, made, head)
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
    return Recovered(offset, target, length, end + len(_END_MARK), [*pieces, (end, _END_MARK)], lost=lost,
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


def resync_stream(mapped: MappedFile, path: str) -> Recovered | None:
    """The messages of a stream that was read to its end, if that came too early; None if it did not.

    Four bytes of zeros are an end to readers, as a damage may be. Streams from before Arrow 0.15 are left alone.
    """
    begin = mapped.read(0, min(len(MAGIC), mapped.size_bytes))
    if not begin.startswith((CONTINUED, MAGIC)):
        return None
    walker = _Walker(mapped)
    walker.walk()
    if begin == MAGIC:
        listed = int(np.count_nonzero(walker.blocks()[:, 2] == ROWS))  # one that was zeroed lists nothing
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


def _schema_message(footer: bytes, path: str, schema: pa.Schema | None) -> bytes:
    """The message of the schema, out of the footer or made of what a manifest kept. Raises CorruptShard."""
    if footer:
        try:
            found = open_footer(footer[:-TAIL_BYTES]).schema
            check_names(found)
            return bytes(found.serialize())
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            pass  # damaged too
    if schema is None:
        raise CorruptShard(
            "the schema is damaged, or may be, and nothing else says what the columns are", file=path, offset=0
        )
    return bytes(schema.serialize())


def _blocks(footer: Footer) -> NDArray[np.int64]:
    """Where each message begins and ends that a footer lists, and of which kind it is; ascending."""
    blocks = np.concatenate([footer.dictionaries, footer.batches])
    kind = np.repeat([DICTIONARY, ROWS], [len(footer.dictionaries), len(footer.batches)])
    found: NDArray[np.int64] = np.stack([blocks["offset"], blocks["offset"] + blocks["meta"] + blocks["body"], kind], 1)
    return found[np.argsort(found[:, 0])]


class _Walker:
    """A walk over messages that goes on behind what is damaged.

    Attributes:
        data: the file.
        footer_start: where the footer begins; the end of the file if nothing says that there is one.
        messages: those that are whole.
        gaps: `[start, stop)` of what lies between some of them.
        dictionary_gaps: those of them in which a dictionary may have been.
    """

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped = mapped
        self._view = memoryview(mapped.buffer)
        self.data = np.frombuffer(self._view, np.uint8) if self._view.nbytes else np.zeros(0, np.uint8)
        self.footer_start = self._find_footer()
        self.messages: list[_Found] = []
        self.gaps: list[tuple[int, int]] = []
        self.dictionary_gaps = self.gaps
        self._kinds: tuple[int, ...] = (SCHEMA, DICTIONARY, ROWS)
        self._parts: set[tuple[int, bytes]] = set()

    def walk(self) -> None:
        """Find all messages."""
        start = start_of_file(self.data[:MOST_START_BYTES].tobytes())
        schema = self._schema(start) or self._schema(START_BYTES)
        if schema is not None and not may_hold_dictionary(self.data[schema.offset : schema.stop].tobytes()):
            self._kinds = (SCHEMA, ROWS)
        listed = self._listed(schema)
        if listed is not None:
            self._take(start, schema, listed)
        else:
            self._search(start)

    def _schema(self, at: int) -> _Found | None:
        """The message of the schema, if it begins here."""
        found = self._message(at)
        return found if found is not None and found.message.kind == SCHEMA else None

    def _take(self, start: int, schema: _Found | None, listed: NDArray[np.int64]) -> None:
        """Take the messages that a footer lists, and that are whole."""
        self.dictionary_gaps = []
        begin = schema.offset if schema is not None else int(listed[0, 0])
        if start < begin:
            self.gaps.append((start, begin))
        if schema is not None:
            self.messages.append(schema)
        for at, stop, kind in listed.tolist():
            self._mapped.check()
            found = self._message(at)
            if found is not None and found.stop == stop and found.message.kind == kind:
                self.messages.append(found)
                continue
            before = self.gaps.pop()[0] if self.gaps and self.gaps[-1][1] == at else at
            self.gaps.append((before, stop))
            if kind == DICTIONARY:
                self.dictionary_gaps.append((at, stop))

    def _search(self, start: int) -> None:
        """Take the messages that follow one another, and look for the next where none follows."""
        at, size = start, len(self.data)
        stops: list[tuple[int, _Found | None, int]] = []
        while at < size:
            known = len(self.messages)
            stop, ended = self._run(at, self.messages)
            self._note(self.messages[known:])
            before = self.messages[-1] if self.messages else None
            if (ended and self._is_end(stop)) or self._ends_in_zeros(stop, before):
                break
            at = self._find_next(stop, before)
            if ended and at == size and not self._begins_alike(stop):
                break  # an end mark, whatever stands behind it
            stops.append((stop, before, at))
        hurt: set[int] = set()
        for stop, before, at in stops:
            if before is not None and not self._ends_there(before, at):
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

    def _find_footer(self) -> int:
        end = len(self.data) - TAIL_BYTES
        try:
            return end - footer_bytes(self.data[max(end, 0) :].tobytes(), end, START_BYTES)
        except DataError:
            return len(self.data)

    def blocks(self) -> NDArray[np.int64]:
        """What the footer lists; nothing if there is none that can be read."""
        start = self.footer_start
        footer = self.data[start:-TAIL_BYTES].tobytes()
        try:
            return _blocks(footer_that_begins(footer, start))
        except DataError:
            return np.zeros((0, 3), np.int64)

    def is_moved(self) -> bool:
        """Whether the end mark of a file does not stand where the footer says that the last message ends."""
        mark = self.footer_start - len(_END_MARK)
        blocks = self.blocks()
        return self._is_mark(mark) and len(blocks) > 0 and mark != blocks[-1, 1]

    def _is_mark(self, at: int) -> bool:
        return at >= 0 and self.data[at : at + len(_END_MARK)].tobytes() == _END_MARK

    def _listed(self, schema: _Found | None) -> NDArray[np.int64] | None:
        """What the footer lists, if that is all from the schema to the end mark before it; else it may be wrong."""
        blocks, mark = self.blocks(), self.footer_start - len(_END_MARK)
        if not len(blocks) or (schema is not None and schema.stop != blocks[0, 0]):
            return None
        return blocks if np.array_equal(blocks[:, 1], np.append(blocks[1:, 0], mark)) else None

    def _note(self, messages: list[_Found]) -> None:
        """Keep parts of the heads of messages, with their places in these, as what others begin with."""
        for found in messages:
            if found.message.kind != SCHEMA:
                self._parts |= {(n, part) for n, part in self._parts_at(found.offset)
                                if len(part) - part.count(0) >= _LEAST_TOLD}  # fmt: skip

    def _parts_at(self, at: int) -> set[tuple[int, bytes]]:
        return {(place, self.data[at + place : at + place + size].tobytes()) for place, size in _ALIKE}

    def _begins_alike(self, at: int) -> bool:
        """Whether what stands here begins as messages do that were found."""
        return not self._parts.isdisjoint(self._parts_at(at))

    def _ends_there(self, before: _Found, at: int) -> bool:
        """Whether a message behind which no other begins ends where it says; `at`: the next that is found."""
        stop = before.stop
        return at >= stop and (self._begins_alike(stop) or self._is_mark(stop) or self._is_half_a_mark(stop))

    def _is_half_a_mark(self, at: int) -> bool:
        """Whether the last bytes of the file are here, as many as an end mark has, and half of them are its."""
        left, half = self.data[at:].tobytes(), len(_END_MARK) // 2
        return len(left) == len(_END_MARK) and (left[:half] == _END_MARK[:half] or left[half:] == _END_MARK[half:])

    def _run(self, at: int, messages: list[_Found]) -> tuple[int, bool]:
        """The messages from here on; where they stop, and whether that is at an end mark."""
        while True:
            self._mapped.check()
            if self._is_mark(at):
                return at, True
            found = self._message(at)
            if found is None or (messages and found.message.kind == SCHEMA):
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
            message = parse_message(self._view[at + _PREFIX_BYTES : at + _PREFIX_BYTES + length])
        except DataError:
            return None
        found = _Found(at, _PREFIX_BYTES + length, message)
        return found if message.kind in self._kinds and found.stop <= len(self.data) else None

    def _find_next(self, stop: int, before: _Found | None) -> int:
        """Where the next message begins, the walk having stopped here; the end of the file if there is none."""
        first = tried = before.offset + _PREFIX_BYTES if before is not None else stop
        last = len(self.data)
        for at in self._candidates(first):
            if at < tried:
                continue
            run: list[_Found] = []
            end, ended = self._run(at, run)
            real = ended and self._is_end(end)
            early = ended and not real and not self._begins_alike(end)
            if run and run[0].message.kind == SCHEMA and (self.messages or early):
                # A stream in a value. If it has no end mark, it may go on in the messages that are looked for.
                goes_on = real and not self._is_mark(at - len(_END_MARK))
                tried, last = at + 1 if goes_on else end, len(self.data)
                continue
            if early:
                tried, last = max(end, at + 1), at
            elif at >= stop or end > stop or ended:
                return at
            else:
                tried = max(run[-1].offset if run else at, at) + 1
        return last  # its end mark is one after all: nothing comes behind it

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
            places = start + np.flatnonzero(likely[:_STEP_BYTES])
            for place in places[self._may_be(places)].tolist():
                if self._message(place) is not None or self._is_end(place):
                    yield place

    def _may_be(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Where the head of a message may follow its prefix, by the kind that it tells; or the prefix is an end mark.

        What `parse_message` would find, of all places at once: values may look like prefixes everywhere.
        """
        length, at = self._numbers(places + 4, "<u4"), places + _PREFIX_BYTES
        table = self._numbers(at, "<u4")
        vtable = table - self._numbers(at + table, "<i4")
        kind = table + self._numbers(at + vtable + 6, "<u2")
        inside = (table + 4 <= length) & (vtable >= 0) & (vtable + 8 <= length) & (kind < length)
        found: NDArray[np.bool_] = (inside & np.isin(self._numbers(at + kind, "u1"), self._kinds)) | (length == 0)
        return found

    def _numbers(self, places: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
        """Numbers that stand at places; of those outside the file some other one."""
        size = np.dtype(kind).itemsize
        places = np.clip(places, 0, len(self.data) - size)
        found: NDArray[np.int64] = self.data[places[:, None] + np.arange(size)].view(kind)[:, 0].astype(np.int64)
        return found

    def _is_end(self, at: int) -> bool:
        """Whether an end mark stands here with nothing behind it but a footer, or zeros."""
        behind = at + len(_END_MARK)
        if not self._is_mark(at):
            return False
        return behind == len(self.data) or self._is_tail(at) or not (self.data[-1] or self.data[behind:].any())

    def _is_tail(self, at: int) -> bool:
        """Whether what stands here is no more than the end of a file: at most an end mark and the footer."""
        return self.footer_start < len(self.data) and at >= self.footer_start - 2 * len(_END_MARK)
