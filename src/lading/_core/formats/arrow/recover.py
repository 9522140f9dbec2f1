"""Recover the record batches of a damaged Arrow file or stream, as a stream.

If a footer can be read, and lists messages up to its own place, each listed message is whole whose head says that it
ends where the footer says. Otherwise the messages that follow each other from the beginning on are whole, up to the
first place where none begins. All behind that place is lost, and so is the message before it, unless a head begins
where it ends.

The schema is in the footer of a file; without a footer it is the first message. If both are damaged, it is the one of a
manifest. If a dictionary is lost, all rows that need dictionaries are lost.
"""

from __future__ import annotations

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
        CorruptShard: nothing tells the columns, or where messages begin.
    """
    if not failed and not mapped.read(0, min(len(MAGIC), mapped.size_bytes)).startswith((CONTINUED, MAGIC)):
        return None  # a stream from before Arrow 0.15
    walker = _Walker(mapped)
    listed = walker.listed()
    if listed is not None and not failed:
        return None
    head, made = walker.schema, b""
    if head is None:
        made = _schema_message(walker, path, schema, is_listed=listed is not None)
    if listed is not None:
        walker.take(listed)
    elif head is not None:
        walker.walk(head.stop)
    if not failed and not walker.gaps:
        return None
    told = _read_schema(made or walker.bytes_of(head))
    needed = told is None or any(map(needs_dictionaries, told.types))
    kept = [m for m in walker.messages if m.message.kind == DICTIONARY or not (needed and walker.lacks_dictionary)]
    if listed is not None:  # dictionaries may stand behind the rows, as Polars writes them
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
    gone = len(walker.messages) - len(kept)
    if gone:
        lost.append(
            CorruptShard("record batches may need a dictionary that is lost", file=path, found=f"{gone} messages")
        )
    rows = np.array([m.message.rows for m in kept if m.message.kind == ROWS], np.int64)
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
    gone = np.array([start for start, _ in walker.gaps], np.int64)
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


def _schema_message(walker: _Walker, path: str, schema: pa.Schema | None, *, is_listed: bool) -> bytes:
    """Return the message of the schema in the footer, or of a manifest's.

    Raises:
        CorruptShard: nothing says the schema, or where messages begin.
        DataError: the schema has a type that pyarrow does not have.
    """
    if is_listed and walker.footer_schema is not None:
        return schema_message(walker.footer)
    if is_listed and schema is not None:
        return bytes(schema.serialize())
    with suppress(pa.ArrowException, OSError, UnicodeDecodeError), supported(path, 0):
        walker.read_schema()
    what = "the schema is damaged, or may be, and nothing else tells the columns and where messages begin"
    raise CorruptShard(what, file=path, offset=0)


class _Walker:
    """The messages of a file.

    Attributes:
        data: the file.
        footer: the bytes of its footer; empty if there is none.
        footer_schema: the schema in it; None if it is damaged.
        schema: the message of the schema; None if it is damaged, or not the schema of the footer.
        messages: the record batches and dictionaries that are whole.
        gaps: `(start, stop)` of the bytes between messages that are not messages.
        lacks_dictionary: whether a gap is a dictionary.
    """

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped = mapped
        self._view = memoryview(mapped.buffer)
        self.data = np.frombuffer(self._view, np.uint8) if self._view.nbytes else np.zeros(0, np.uint8)
        self._footer_start = self._find_footer()
        self.footer = self.data[self._footer_start : -TAIL_BYTES].tobytes()
        self.footer_schema = _footer_schema(self.footer)
        self.messages: list[_Found] = []
        self.gaps: list[tuple[int, int]] = []
        self.lacks_dictionary = False
        self._start = start_of_file(self.data[:MOST_START_BYTES].tobytes())
        self.schema = self._find_schema()

    def bytes_of(self, found: _Found | None) -> bytes:
        """Return the bytes of a message."""
        return b"" if found is None else self.data[found.offset : found.stop].tobytes()

    def read_schema(self) -> pa.Schema:
        """Return the schema of the footer, or of the first message. Raises pyarrow's error."""
        if self.footer:
            return open_footer(self.footer).schema
        return pa.ipc.read_schema(pa.py_buffer(self._view).slice(self._start))

    def _find_schema(self) -> _Found | None:
        for at in (self._start, START_BYTES):
            found = self._message(at, (SCHEMA,))
            schema = None if found is None else _read_schema(self.bytes_of(found))
            if schema is not None and (self.footer_schema is None or schema.equals(self.footer_schema)):
                return found
        return None

    def _find_footer(self) -> int:
        end = len(self.data) - TAIL_BYTES
        try:
            return end - footer_bytes(self.data[max(end, 0) :].tobytes(), end, START_BYTES)
        except DataError:
            return len(self.data)

    def listed(self) -> NDArray[np.int64] | None:
        """Return start, stop and kind of each message that the footer lists, ascending.

        Return None without a footer, and for one that may be damaged, or is not at the place that its messages tell.
        """
        try:
            footer = footer_that_begins(self.footer, self._footer_start)
        except DataError:
            return None
        blocks = np.concatenate([footer.dictionaries, footer.batches])
        kind = np.repeat([DICTIONARY, ROWS], [len(footer.dictionaries), len(footer.batches)])
        stop = blocks["offset"] + blocks["meta"] + blocks["body"]
        found: NDArray[np.int64] = np.stack([blocks["offset"], stop, kind], axis=1)
        found = found[np.argsort(blocks["offset"], kind="stable")]
        rising = all((np.diff(each["offset"]) > 0).all() for each in (footer.dictionaries, footer.batches))
        apart = len(found) > 0 and bool((found[:-1, 1] <= found[1:, 0]).all())
        return found if rising and apart and self._is_end_of_rows(int(found[-1, 1])) else None

    def _is_end_of_rows(self, stop: int) -> bool:
        """Return whether only an end mark is between here and the footer; none if the last message holds no mark."""
        between = self.data[stop : self._footer_start].tobytes()
        if between == _END_MARK:
            return True
        is_none = stop <= self._footer_start and between in (b"", bytes(_LEGACY_END_BYTES))
        return is_none and not self._is_mark(self._footer_start - len(_END_MARK))

    def take(self, listed: NDArray[np.int64]) -> None:
        """Take the messages that a footer lists and that are whole."""
        for at, stop, kind in listed.tolist():
            self._mapped.check()
            found = self._message(at, (kind,), listed=True)
            if found is not None and found.stop == stop:
                self.messages.append(found)
                continue
            before = self.gaps.pop()[0] if self.gaps and self.gaps[-1][1] == at else at
            self.gaps.append((before, stop))
            self.lacks_dictionary |= kind == DICTIONARY

    def walk(self, at: int) -> None:
        """Take the messages that follow one another from here on."""
        while (found := self._message(at, (DICTIONARY, ROWS))) is not None:
            self._mapped.check()
            self.messages.append(found)
            at = found.stop
        if self._is_end(at) or self._ends_in_zeros(at):
            return
        if self.messages and not (self._is_mark(at) or self._head(at) is not None):
            at = self.messages.pop().offset
        self.gaps.append((at, len(self.data)))

    def _message(self, at: int, kinds: tuple[int, ...], *, listed: bool = False) -> _Found | None:
        """Return the whole message of one of these kinds that begins here; None if there is none.

        A message that is `listed` in a footer may lack the first four bytes, as before Arrow 0.15.
        """
        found = self._head(at, listed=listed)
        return found if found is not None and found.message.kind in kinds and found.stop <= len(self.data) else None

    def _head(self, at: int, *, listed: bool = False) -> _Found | None:
        """Return the message whose head is here, whether or not the file has all of it."""
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
        return _Found(at, at + prefix + length + message.body_bytes, message)

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
        is_tail = self._footer_start < len(self.data) and at >= self._footer_start - 2 * len(_END_MARK)
        return self._is_mark(at) and (is_tail or not self.data[behind:].any())
