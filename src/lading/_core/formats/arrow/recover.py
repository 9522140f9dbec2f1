"""Recover the record batches of a damaged Arrow file or stream, as a stream.

If a footer can be read, and lists messages that are all whole, or that follow each other up to its place, the footer
rules, as in reading. Of the latter a message is whole if its head says that it ends where the next one begins.

Otherwise the walk goes from message to message. Where it meets none, the next one is looked for: a prefix that
tells the length of a head, and behind it the head of a record batch or dictionary. The message before is lost, unless
an end mark, or a part of a head as others have, stands where it ends. Values may be streams themselves: what begins
with the message of a schema, or ends with an end mark before the file does, is passed over.

The schema is in the footer of a file; without a footer it is the first message, which Polars 2.1 writes without its
prefix; else it is the one of a manifest. Record batches behind damage that may have hit one of their dictionaries are
lost. In a file, all rows need all dictionaries, which may stand behind them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.ipc import (
    CONTINUED,
    DICTIONARY,
    MAGIC,
    MOST_START_BYTES,
    ROWS,
    SCHEMA,
    START_BYTES,
    TAIL_BYTES,
    Message,
    footer_bytes,
    footer_that_begins,
    needs_dictionaries,
    open_footer,
    parse_message,
    prefix_of,
    schema_message,
    start_of_file,
)
from lading._core.arrow.text_checks import check_names
from lading._core.arrow.types import supported
from lading._core.formats.arrow.assets import with_assets
from lading._core.formats.base import Recovered
from lading._core.storage.base import MappedFile
from lading.errors import CorruptShard, DataError, LadingError

__all__ = ["recover_messages"]

_PREFIX_BYTES = 8
_END_MARK = CONTINUED + bytes(4)
_MAX_HEAD_BYTES = 64 << 20
_STEP_BYTES = 4 << 20
_PARTS, _LEAST_BYTES = ((0, 8), (8, 16), (16, 16)), 4
"""Parts of a head that tell it from values, and how many of their bytes must not be zero."""
_LEGACY_END_BYTES = 4


@dataclass(frozen=True, slots=True)
class _Found:
    """A message: where it begins and ends, and its head."""

    offset: int
    stop: int
    message: Message


def recover_messages(mapped: MappedFile, path: str, schema: pa.Schema | None, *, failed: bool) -> Recovered | None:
    """Return the whole messages as a stream; None if the file was read to its end, and that is where it should be.

    Args:
        mapped: the file.
        path: its name in errors.
        schema: columns of its rows, if a manifest keeps them.
        failed: whether reading the file raised an error.

    Raises:
        CorruptShard: nothing tells the columns.
    """
    if not failed and not mapped.read(0, min(len(MAGIC), mapped.size_bytes)).startswith((CONTINUED, MAGIC)):
        return None  # a stream from before Arrow 0.15
    walker = _Walker(mapped)
    walker.walk()
    if not failed and not walker.gaps:
        return None
    found, head = walker.messages, walker.schema
    made = b"" if head is not None else _schema_message(walker, path, schema)
    kept = walker.with_their_dictionaries(made)
    if walker.is_file:  # in which they may stand behind the rows, as Polars writes them
        kept = sorted(kept, key=lambda each: each.message.kind == ROWS)
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
    gone = len(found) - len(kept)
    if gone:
        lost.append(
            CorruptShard("record batches may need a dictionary that is lost", file=path, found=f"{gone} messages")
        )
    rows = np.array([m.message.rows for m in kept if m.message.kind == ROWS], np.int64)
    told = _read_schema(made if head is None else walker.data[head.offset : head.stop].tobytes())
    alone = told is not None and bool(with_assets(told))  # each row may need a file of its own
    last = walker.gaps[-1] if walker.gaps else (0, 0)
    return Recovered(
        offset, target, length, end + len(_END_MARK), [*([(0, made)] if made else []), (end, _END_MARK)], lost=lost,
        counted=not lost, lost_from=last[0] if last[1] >= len(walker.data) else None,
        breaks=_breaks(kept, rows, walker), unit_rows=np.zeros(0, np.int64) if alone else rows,
    )  # fmt: skip


def _breaks(kept: list[_Found], rows: NDArray[np.int64], walker: _Walker) -> NDArray[np.int64]:
    """Return the rows of the kept messages right before which others may be missing; their number for the end."""
    starts = np.array([m.offset for m in kept if m.message.kind == ROWS], np.int64)
    dropped = {m.offset for m in walker.messages if m.message.kind == ROWS} - {*starts.tolist()}
    gone = np.array([*(start for start, _ in walker.gaps), *dropped], np.int64)
    found: NDArray[np.int64] = np.unique(np.append(0, np.cumsum(rows))[np.searchsorted(starts, gone)])
    return found


def _read_schema(message: bytes) -> pa.Schema | None:
    """Return the schema of a message; None if it is damaged."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(message))
        check_names(schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    return schema


def _footer_schema(footer: bytes) -> pa.Schema | None:
    """Return the schema of a footer; None if it is damaged, or there is none."""
    try:
        schema = open_footer(footer).schema if footer else None
        check_names(schema or ())
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    return schema


def _schema_message(walker: _Walker, path: str, schema: pa.Schema | None) -> bytes:
    """Return the message of the schema in the footer or without prefix, or of a manifest's.

    Raises:
        CorruptShard: nothing says the schema.
        DataError: the schema has a type that pyarrow does not have.
    """
    if walker.footer_schema is not None:
        return schema_message(walker.footer)
    if walker.bare_schema:
        return walker.bare_schema
    if schema is None:
        with suppress(pa.ArrowException, OSError, UnicodeDecodeError), supported(path, 0):
            walker.read_schema()
        what = "the schema is damaged, or may be, and nothing else tells the columns"
        raise CorruptShard(what, file=path, offset=0)
    return bytes(schema.serialize())


class _Walker:
    """A walk over messages that goes on behind damage.

    Attributes:
        data: the file.
        footer: the bytes of its footer; empty if there is none.
        footer_schema: the schema in it; None if it is damaged.
        schema: the message of the schema; None if it is damaged, or not the schema of the footer.
        bare_schema: the same, made of a head without a prefix; empty if there is none.
        messages: the record batches and dictionaries that are whole.
        gaps: `(start, stop)` of the bytes between messages that are not messages.
    """

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped = mapped
        self._view = memoryview(mapped.buffer)
        self.data = np.frombuffer(self._view, np.uint8) if self._view.nbytes else np.zeros(0, np.uint8)
        self._footer_start = self._find_footer()
        self.footer = self.data[self._footer_start : -TAIL_BYTES].tobytes()
        self.footer_schema = _footer_schema(self.footer)
        self.bare_schema = b""
        self.messages: list[_Found] = []
        self.gaps: list[tuple[int, int]] = []
        self._dictionary_gaps = self.gaps
        self._start = start_of_file(self.data[:MOST_START_BYTES].tobytes())
        self._needs_dictionaries = True
        self._parts: set[tuple[int, bytes]] = set()
        self.schema = self._find_schema()

    def read_schema(self) -> pa.Schema:
        """Return the schema of the footer, or of the first message. Raises pyarrow's error."""
        if self.footer:
            return open_footer(self.footer).schema
        return pa.ipc.read_schema(pa.py_buffer(self._view).slice(self._start))

    def _find_schema(self) -> _Found | None:
        for at in (self._start, START_BYTES):
            found = self._message(at, (SCHEMA,))
            schema = None if found is None else _read_schema(self.data[found.offset : found.stop].tobytes())
            if schema is not None and (self.footer_schema is None or schema.equals(self.footer_schema)):
                self._needs_dictionaries = any(map(needs_dictionaries, schema.types))
                return found
        return None

    def _bare_schema(self, start: int, stop: int) -> bytes:
        """Return the message of the schema whose head, without a prefix, is all that stands in a range."""
        head = self.data[start:stop].tobytes()[:_MAX_HEAD_BYTES]
        message = CONTINUED + len(head).to_bytes(4, "little") + head
        schema = _read_schema(message)
        if schema is None:
            return b""
        self._needs_dictionaries = any(map(needs_dictionaries, schema.types))
        return message

    @property
    def is_file(self) -> bool:
        """Return whether the bytes begin as those of a file."""
        return self._start > 0

    def walk(self) -> None:
        """Find all messages."""
        listed = self._listed()
        if listed is None:
            self._search(self._start if self.schema is None else self.schema.stop)
        else:
            self._take(listed)

    def with_their_dictionaries(self, schema: bytes) -> list[_Found]:
        """Return the messages but for the rows behind damage that may have hit a dictionary of theirs."""
        gaps = self._dictionary_gaps
        told = _read_schema(schema) if schema else None
        needed = self._needs_dictionaries if told is None else any(map(needs_dictionaries, told.types))
        if not gaps or not needed:
            return self.messages
        rows = [m.offset for m in self.messages if m.message.kind == ROWS]
        dictionaries = [m.offset for m in self.messages if m.message.kind == DICTIONARY]
        if rows and dictionaries and max(dictionaries) < min(rows) < gaps[0][0]:
            return self.messages  # all dictionaries come first, as in files
        return [m for m in self.messages if m.offset < gaps[0][0]]

    def _find_footer(self) -> int:
        end = len(self.data) - TAIL_BYTES
        try:
            return end - footer_bytes(self.data[max(end, 0) :].tobytes(), end, START_BYTES)
        except DataError:
            return len(self.data)

    def _listed(self) -> NDArray[np.int64] | None:
        """Return start, stop and kind of each message that the footer lists; None for a footer that may be damaged.

        They are ascending if one is damaged.
        """
        try:
            footer = footer_that_begins(self.footer, self._footer_start)
        except DataError:
            return None
        blocks = np.concatenate([footer.dictionaries, footer.batches])
        kind = np.repeat([DICTIONARY, ROWS], [len(footer.dictionaries), len(footer.batches)])
        stop = blocks["offset"] + blocks["meta"] + blocks["body"]
        listed: NDArray[np.int64] = np.stack([blocks["offset"], stop, kind], axis=1)
        found = listed[np.argsort(blocks["offset"], kind="stable")]
        follow = len(found) and np.array_equal(found[:-1, 1], found[1:, 0]) and self._is_end_of_rows(int(found[-1, 1]))
        if follow and all((np.diff(each["offset"]) > 0).all() for each in (footer.dictionaries, footer.batches)):
            return found
        return listed if len(listed) and self.footer_schema is not None and self._are_whole(listed) else None

    def _is_end_of_rows(self, stop: int) -> bool:
        """Return whether only an end mark is between here and the footer; none if the last message holds no mark."""
        between = self.data[stop : self._footer_start].tobytes()
        if between == _END_MARK:
            return True
        is_none = stop <= self._footer_start and between in (b"", bytes(_LEGACY_END_BYTES))
        return is_none and not self._is_mark(self._footer_start - len(_END_MARK))

    def _are_whole(self, listed: NDArray[np.int64]) -> bool:
        """Return whether messages begin and end as listed, with nothing but messages between them and the footer."""
        for at, stop, kind in listed.tolist():
            self._mapped.check()
            found = self._message(at, (kind,), listed=True)
            if found is None or found.stop != stop:
                return False
        offset, stop = np.unique(listed[:, :2], axis=0).T
        *between, last = zip(stop.tolist(), [*offset[1:].tolist(), self._footer_start], strict=True)
        return all(self._behind(*each) == each[1] for each in between) and self._is_end_of_rows(self._behind(*last))

    def _behind(self, at: int, stop: int) -> int:
        """Return where the messages end that follow each other from here on, up to a place."""
        while at < stop and (found := self._message(at, (SCHEMA, DICTIONARY, ROWS))) is not None:
            at = found.stop
        return at

    def _take(self, listed: NDArray[np.int64]) -> None:
        """Take the messages that a footer lists and that are whole."""
        self._dictionary_gaps = []
        begin = self._start if self.schema is None else self.schema.stop
        if begin < listed[0, 0] and self.footer_schema is None:
            self.gaps.append((self._start, int(listed[0, 0])))
        for at, stop, kind in listed.tolist():
            self._mapped.check()
            found = self._message(at, (kind,), listed=True)
            if found is not None and found.stop == stop:
                self.messages.append(found)
                continue
            before = self.gaps.pop()[0] if self.gaps and self.gaps[-1][1] == at else at
            self.gaps.append((before, stop))
            if kind == DICTIONARY:
                self._dictionary_gaps.append((at, stop))

    def _search(self, start: int) -> None:
        """Take the messages that follow one another, and look for the next where none follows."""
        at, size = start, len(self.data)
        if self.schema is None:
            first = next((at for at in self._candidates(start) if self._message(at, (DICTIONARY, ROWS))), size)
            self.bare_schema = self._bare_schema(start, first) if self.is_file else b""
            at = first if self.bare_schema else self._find_next(start)
            if not self.bare_schema and self.footer_schema is None:
                self.gaps.append((start, at))
        while at < size:
            run, stop, ended = self._run(at)
            self.messages += run
            self._parts |= {part for found in run for part in self._parts_at(found.offset)}
            if (ended and self._is_end(stop)) or self._ends_in_zeros(stop):
                return
            before = self.messages[-1] if self.messages else None
            if before is not None and before.stop == stop and not self._ends_there(stop):
                self.messages.pop()
                stop = before.offset
            at = self._find_next(stop + (before is not None and before.offset == stop) * _PREFIX_BYTES)
            if at < size or not self._is_tail(stop):
                self.gaps.append((stop, at))

    def _run(self, at: int) -> tuple[list[_Found], int, bool]:
        """Return the messages that follow each other from here on, where they stop, and if an end mark is there."""
        run: list[_Found] = []
        while True:
            self._mapped.check()
            if self._is_mark(at):
                return run, at, True
            found = self._message(at, (DICTIONARY, ROWS))
            if found is None:
                return run, at, False
            run.append(found)
            at = found.stop

    def _message(self, at: int, kinds: tuple[int, ...], *, listed: bool = False) -> _Found | None:
        """Return the message of one of these kinds that begins here; None if there is none.

        A message that is `listed` in a footer may lack the first four bytes, as before Arrow 0.15.
        """
        start = self.data[at : at + _PREFIX_BYTES].tobytes()
        if len(start) < _PREFIX_BYTES or not (listed or start.startswith(CONTINUED)):
            return None
        prefix, length = prefix_of(start)
        if not 0 < length <= min(_MAX_HEAD_BYTES, len(self.data) - at - prefix):
            return None
        try:
            message = parse_message(self._view[at + prefix : at + prefix + length])
        except DataError:
            return None
        found = _Found(at, at + prefix + length + message.body_bytes, message)
        return found if message.kind in kinds and found.stop <= len(self.data) else None

    def _find_next(self, start: int) -> int:
        """Return where the next message or the end mark of the stream begins; the end of the file if none does."""
        tried = start
        for at in self._candidates(start):
            if at < tried:
                continue
            if self._is_end(at):
                return at
            inner = self._message(at, (SCHEMA,))
            run, end, ended = self._run(at if inner is None else inner.stop)
            closed = ended and not self._is_end(end) and not self._ends_in_zeros(end)
            if run and inner is None and not closed:
                return at
            tried = max(end + closed * len(_END_MARK), at + 1)  # a stream in a value, or the rest of one
        return len(self.data)

    def _parts_at(self, at: int) -> set[tuple[int, bytes]]:
        """Return the parts of a head that tell it from values, each with its place, if they are not almost zeros."""
        parts = {(place, self.data[at + place : at + place + size].tobytes()) for place, size in _PARTS}
        return {(place, part) for place, part in parts if len(part) - part.count(0) >= _LEAST_BYTES}

    def _ends_there(self, stop: int) -> bool:
        """Return whether a message surely ends here: an end mark follows, half of one, or a part of a head."""
        left, half = self.data[stop : stop + len(_END_MARK) + 1].tobytes(), len(_END_MARK) // 2
        is_half = len(left) == len(_END_MARK) and (left[:half] == _END_MARK[:half] or left[half:] == _END_MARK[half:])
        return self._is_mark(stop) or is_half or not self._parts.isdisjoint(self._parts_at(stop))

    def _ends_in_zeros(self, stop: int) -> bool:
        """Return whether nothing but zeros follows, four of them at least or none: readers take them for an end.

        If the end mark lies in the message before, bytes are missing from that.
        """
        zeros = len(self.data) - stop
        swallowed = zeros < len(_END_MARK) and self._is_mark(len(self.data) - len(_END_MARK))
        return not self.data[stop:].any() and not 0 < zeros < _LEGACY_END_BYTES and not swallowed

    def _is_mark(self, at: int) -> bool:
        return at >= 0 and self.data[at : at + len(_END_MARK)].tobytes() == _END_MARK

    def _is_end(self, at: int) -> bool:
        """Return whether an end mark stands here with nothing behind it but a footer, or zeros."""
        behind = at + len(_END_MARK)
        if not self._is_mark(at):
            return False
        return behind == len(self.data) or self._is_tail(at) or not (self.data[-1] or self.data[behind:].any())

    def _is_tail(self, at: int) -> bool:
        """Return whether nothing stands here but the end of a file: at most an end mark and the footer."""
        return self._footer_start < len(self.data) and at >= self._footer_start - 2 * len(_END_MARK)

    def _candidates(self, at: int) -> Iterator[int]:
        """Yield places from `at` on where a message or the end mark may begin, ascending."""
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
            yield from places[self._may_be(places)].tolist()

    def _may_be(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return where the head of a message may follow its prefix, or the prefix is an end mark.

        It tells what `parse_message` would, for all places at once: values may look like prefixes everywhere.
        """
        length, at = self._numbers(places + 4, "<u4"), places + _PREFIX_BYTES
        table = self._numbers(at, "<u4")
        vtable = table - self._numbers(at + table, "<i4")
        kind = table + self._numbers(at + vtable + 6, "<u2")
        inside = (table + 4 <= length) & (vtable >= 0) & (vtable + 8 <= length) & (kind < length)
        kinds = (SCHEMA, DICTIONARY, ROWS)
        found: NDArray[np.bool_] = (inside & np.isin(self._numbers(at + kind, "u1"), kinds)) | (length == 0)
        return found

    def _numbers(self, places: NDArray[np.int64], kind: str) -> NDArray[np.int64]:
        """Return the numbers that stand at some places; any number for a place outside the file."""
        size = np.dtype(kind).itemsize
        places = np.clip(places, 0, len(self.data) - size)
        found: NDArray[np.int64] = self.data[places[:, None] + np.arange(size)].view(kind)[:, 0].astype(np.int64)
        return found
