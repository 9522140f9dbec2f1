"""Files of text records, plain or compressed as a whole: read in pieces or by range, and write.

Offsets count in the unpacked stream. Shared by the formats of lines; this module knows nothing about records.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.casts import decoded
from lading._core.arrow.references import FileEntry
from lading._core.arrow.text_checks import is_utf8
from lading._core.arrow.views import byte_lengths, row_bytes
from lading._core.codecs import ENDINGS, WRAPS, StreamEncoder, pack_text, sniff_wrap, stream_encoder
from lading._core.features.items import split_rows
from lading._core.formats.base import Recovered, ShardFile
from lading._core.storage.base import Buffer, Sink, extents_of
from lading._core.storage.extents import NO_ROWS
from lading._core.storage.fetch_plan import GAPS_A_REQUEST, plan_ranges
from lading._core.storage.unwrap import UnwrappedFile, unwrapped
from lading.errors import CorruptShard, DataError, LadingError, LimitExceeded, Unrepresentable, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "BOM",
    "MAX_TOLD",
    "LineBlock",
    "TextFile",
    "TextSink",
    "as_text",
    "blocks_of",
    "body",
    "changed",
    "check_compression",
    "laid_end_to_end",
    "line_blocks",
    "open_text",
    "parse_delimiter",
    "parts_of",
    "refuse_long_lines",
    "refuse_wide",
    "text_sink",
    "to_utf8",
    "too_long",
    "without_dictionary",
]

BOM = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which some programs write before a text."""

MAX_TOLD = 10_000
"""Number of lines that are reported one by one, if many of a damaged file are lost."""

_READ_BYTES = 4 << 20
_SHORT_BYTES, _SHORT_LINE = 1 << 20, 16
_HEAD_BYTES = 16
_GROUP_BYTES = 16 << 20
_PART_BYTES, _PART_ROWS = 8 << 20, 1 << 16
"""Bytes of rows that become text at once."""
_MEMBER_BYTES = 128 << 10
"""Approximate bytes of text in a gzip member. Text takes 2 to 4 % more than in one member; with 64 KB it is 4 to 8 %.
"""


_WIDE_MARKS = (
    (b"\xff\xfe\0\0", "UTF-32"), (b"\0\0\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"),
)  # fmt: skip
_WIDE_BYTES, _LEAST_WIDE_BYTES = 64, 4
"""Bytes that show whether a text without a mark is UTF-16, at most and at least."""
_UNPACK = {"gzip": "gzip -dc", "zstd": "zstd -dc", "bz2": "bzip2 -dc", "xz": "xz -dc"}


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Whole lines of a file, each with its end except perhaps the last of all.

    Attributes:
        data: the bytes.
        offset: their start in the stream.
        line: number of the first line, counted from 1.
        whole: whether the last line has its end.
        line_end: byte that ends a line: a line feed, or a carriage return in files with carriage returns alone.
    """

    data: bytes
    offset: int
    line: int
    whole: bool = True
    line_end: bytes = b"\n"


class TextFile:
    """A text file to read.

    Attributes:
        source: the file.
        entry: the file as references name it, its compression included.
    """

    def __init__(self, source: ShardFile, entry: FileEntry) -> None:
        self.source, self.entry = source, entry
        self._read_bytes = 0

    @property
    def read_share(self) -> float:
        """Return the share of the file that was read, in the latest pass over it."""
        return self._read_bytes / self.entry.size_bytes if self.entry.size_bytes else 1.0

    @property
    def path(self) -> str:
        """Return its name in errors."""
        return self.source.path

    def pieces(self) -> Iterator[bytes]:
        """Yield the text from its beginning, some MiB at a time; very short lines one MiB at a time.

        Raises:
            CorruptShard: the compressed stream is damaged or cut.
            DataError: the text is UTF-16 or UTF-32.
        """
        first = True
        for piece in self._read():
            if first:
                refuse_wide(piece, self.entry.wrap, self.path)
                first = False
            # A line takes some 100 bytes in addition to its own, however short it is: 4 MB of line ends took 500 MB.
            step = _SHORT_BYTES if piece.count(b"\n") * _SHORT_LINE > len(piece) else _READ_BYTES
            yield from (piece[at : at + step] for at in range(0, len(piece), step)) if len(piece) > step else [piece]

    def last_bytes(self, count: int) -> bytes:
        """Return the end of the text, at most some bytes; a compressed file is read to its end."""
        size, last = self.entry.size_bytes, b""
        if not self.entry.wrap:
            [data] = self.source.get_ranges([(max(size - count, 0), min(count, size))])
            return bytes(data)
        for piece in self._read():
            last = (last + piece)[-count:] if len(piece) < count else piece[-count:]
        return last

    def _read(self) -> Iterator[bytes]:
        size = self.entry.size_bytes
        if self.entry.wrap:
            yield from unwrapped(self.source.get_ranges, self.path, self.entry.wrap, size, self.source.limits,
                                 self._note_read)  # fmt: skip
            return
        for at in range(0, size, _READ_BYTES):
            [data] = self.source.get_ranges([(at, min(_READ_BYTES, size - at))])
            self._note_read(at + len(data))
            yield bytes(data)

    def _note_read(self, count: int) -> None:
        self._read_bytes = count

    def blocks(self) -> Iterator[LineBlock]:
        """Yield all lines, some MiB at a time. Peak memory: two pieces and the longest line.

        Raises:
            LimitExceeded: a line that spans pieces is longer than `line_bytes`.
            CorruptShard: the compressed stream is damaged or cut.
        """
        return line_blocks(self.pieces(), self.path, self.source.limits)

    def read_each(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield bytes of each `(offset, length)`; request ranges of a compressed file by ascending offset.

        That holds between calls too: unpacking continues where it stopped. Peak memory: 16 MiB or one range. For a
        compressed file also the latest 16 MiB of output, for the last two such files of this process.
        """
        if self.entry.wrap:
            with errors_at(file=self.path):
                # Removed, so that a concurrent reading gets its own.
                stream = _STREAMS.pop(self, None) or self._unwrapped()
                yield from (stream.read(offset, length) for offset, length in ranges)
                _STREAMS[self] = stream
                for oldest in list(_STREAMS)[:-_MOST_STREAMS]:
                    _STREAMS.pop(oldest, None)
            return
        group: list[tuple[int, int]] = []
        size = 0
        for wanted in ranges:
            if group and size + wanted[1] > _GROUP_BYTES:
                yield from self._read_group(group)
                group, size = [], 0
            group.append(wanted)
            size += wanted[1]
        if group:
            yield from self._read_group(group)

    def _read_group(self, group: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield bytes of ranges, neighbours by one request."""
        offset, length = np.array(group, np.int64).T
        gap = self.source.store.request_bytes // GAPS_A_REQUEST
        plan = plan_ranges(offset, length, max_gap_bytes=gap, max_request_bytes=_GROUP_BYTES)
        answers = [memoryview(data) for data in self.source.get_ranges(plan.requests)]
        places = zip(plan.request_of.tolist(), plan.offset_in.tolist(), length.tolist(), strict=True)
        return (bytes(answers[request][at : at + size]) for request, at, size in places)

    def _unwrapped(self) -> UnwrappedFile:
        source, wrap = self.source, self.entry.wrap
        version = self.entry.version
        return UnwrappedFile(
            source.store, self.path, wrap, version=version, keep_bytes=_GROUP_BYTES, limits=source.limits
        )


def refuse_wide(text: bytes, wrap: str, path: str) -> None:
    """Raise DataError for a text that begins as UTF-16 or UTF-32, as some spreadsheets and editors write it.

    A byte order mark tells, or zeros in every second byte.

    Args:
        text: the first bytes.
        wrap: compression of the file, for the advice.
        path: its name in errors.
    """
    encoding = next((name for mark, name in _WIDE_MARKS if text.startswith(mark)), "")
    head = text[:_WIDE_BYTES]
    if not encoding and len(head) >= _LEAST_WIDE_BYTES and 0 in head:
        zeros = not any(head[0::2]), not any(head[1::2])
        encoding = {(False, True): "UTF-16LE", (True, False): "UTF-16BE"}.get(zeros, "")
    if not encoding:
        return
    advice = f"Bring it to UTF-8: {to_utf8(path, encoding, wrap)}"
    raise DataError(f"the text is {encoding}", file=path, offset=0, expected="UTF-8",
                    found=f"first bytes {text[:4]!r}", advice=advice)  # fmt: skip


def to_utf8(path: str, encoding: str, wrap: str | None = None) -> str:
    """Return the command that writes a text in this encoding into another file, in UTF-8.

    Args:
        path: the file.
        encoding: as `iconv` calls it.
        wrap: compression of the file; by default that of its ending.
    """
    if wrap is None:
        wrap = next((packed for packed, ending in ENDINGS.items() if path.lower().endswith(ending)), "")
    name = path.removesuffix(ENDINGS.get(wrap, ""))
    stem, dot, ending = name.rpartition(".")
    target = shlex.quote(f"{stem}.utf-8.{ending}" if dot else f"{name}.utf-8")
    convert = f"iconv -f {encoding} -t UTF-8"
    command = f"{_UNPACK[wrap]} {shlex.quote(path)} | {convert}" if wrap else f"{convert} {shlex.quote(path)}"
    return f"{command} > {target}"


_MOST_STREAMS = 2
_STREAMS: WeakKeyDictionary[TextFile, UnwrappedFile] = WeakKeyDictionary()
"""Streams of the files unpacked last; each holds 16 MiB, and the window of its compression."""


def line_blocks(pieces: Iterable[bytes], path: str, limits: Limits) -> Iterator[LineBlock]:
    """Yield all lines of a text in pieces; see `TextFile.blocks`."""
    return blocks_of(pieces, _line_ends, path, limits)


def _line_ends(piece: bytes) -> tuple[int, int]:
    return piece.find(b"\n"), piece.rfind(b"\n") + 1


def blocks_of(
    pieces: Iterable[bytes], ends_of: Callable[[bytes], tuple[int, int]], path: str, limits: Limits
) -> Iterator[LineBlock]:
    """Yield whole records, as many at a time as end in a piece; at the end the rest, which has no end.

    Args:
        pieces: the text.
        ends_of: called with each piece in order; returns the end of the first record that ends in it, and the end of
            the last one, which is 0 if none ends there.
        path: its name in errors.
        limits: limits on a record that spans pieces.

    Raises:
        LimitExceeded: a record is too long.
    """
    offset, line = 0, 1
    begun: list[bytes] = []
    size = 0
    for piece in pieces:
        first, last = ends_of(piece)
        if begun and size + (first if last else len(piece)) > limits.line_bytes:
            begun.clear()  # an error keeps this frame: six of them, in a salvage, kept 64 MB each
            raise too_long(path, offset, line, limits)
        if last:
            block = LineBlock(b"".join([*begun, piece[:last]]), offset, line)
            yield block
            offset, line = offset + len(block.data), line + block.data.count(b"\n")
            begun, size = [], 0
        begun.append(piece[last:])
        size += len(piece) - last
    if size:
        yield LineBlock(b"".join(begun), offset, line, whole=False)


def too_long(path: str, offset: int, line: int, limits: Limits) -> LimitExceeded:
    """Return the error for a line, or a record, that begins here and is longer than `line_bytes`."""
    return limits.exceeded("line_bytes", f"line {line} is too long", file=path, offset=offset)


def changed(path: str, offset: int, expected: str, found: str) -> CorruptShard:
    """Return the error for a part of a file, from this offset on, that differs from its index."""
    return CorruptShard("the file is not the one that was looked at before", file=path, offset=offset,
                        expected=expected, found=found)  # fmt: skip


def open_text(source: ShardFile) -> TextFile:
    """Read a file's size and first bytes.

    Raises:
        NotFound, StoreError: it is missing, or is not a regular file.
        CorruptShard: it is empty, although its name says that it is compressed.
    """
    source, info = source.pinned()
    if not info.size_bytes and source.path.lower().endswith(tuple(ENDINGS.values())):
        raise CorruptShard("the compressed file is empty", file=source.path, expected="a compressed text")
    [head] = source.get_ranges([(0, min(info.size_bytes, _HEAD_BYTES))])
    return TextFile(source, FileEntry(source.path, sniff_wrap(bytes(head)), info.size_bytes, info.version))


def laid_end_to_end(
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    size_bytes: int,
    lost: Sequence[LadingError],
    lost_samples: int,
    head: bytes = b"",
    *,
    rows: NDArray[np.int64] | None = None,
) -> Recovered:
    """Return the whole lines of a damaged file, one after another, behind a head that is made anew.

    Args:
        offset: where each range of whole lines begins.
        length: bytes of each.
        size_bytes: size of the damaged file.
        lost: errors of the others.
        lost_samples: number of the others.
        head: the head; empty if none is made.
        rows: number of rows in each range; one by default.
    """
    target = len(head) + np.cumsum(length) - length
    made = [(0, head)] if head else []
    size = len(head) + int(length.sum())
    ends = np.cumsum(np.ones(len(offset), np.int64) if rows is None else rows)
    gaps = np.append(offset[1:], size_bytes) > offset + length
    stop = int(offset[-1] + length[-1]) if len(offset) else 0
    return Recovered(
        offset, target, length, size, made, lost=lost, lost_samples=lost_samples, counted=False,
        lost_from=stop if stop < size_bytes else None, breaks=np.append(0, ends[gaps]),
    )  # fmt: skip


def check_compression(compression: str | None) -> None:
    """Raise UsageError for an unknown compression of whole files."""
    if compression not in (None, *WRAPS):
        raise UsageError("no such compression", expected=", ".join(WRAPS), found=f"compression={compression!r}")


def parse_delimiter(text: str | int, option: str = "delimiter") -> str:
    """Return a separator of values: one character, or `tab`. Raises UsageError for an invalid one, with the option."""
    delimiter = "\t" if text == "tab" else str(text)  # on the command line, 5 is parsed as a number
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise UsageError(f"no such {option}", expected="tab, or one ASCII character, no quote and no line end",
                         found=f"{option}={text!r}")  # fmt: skip
    return delimiter


def without_dictionary(column: pa.Array) -> pa.Array:
    """Return the values without dictionary or extension type."""
    stored = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    return decoded(stored) if pa.types.is_dictionary(stored.type) else stored


def as_text(column: pa.Array) -> pa.LargeStringArray:
    """Return text, or the bytes of a text, as large strings. Raises Unrepresentable for invalid UTF-8."""
    values = without_dictionary(column)
    try:
        return values.cast(pa.large_string())
    except pa.ArrowInvalid:
        row = next(i for i, value in enumerate(values) if not is_utf8(value.as_py() or b""))
        raise Unrepresentable("invalid UTF-8", row=row, found=repr(values[row].as_py()[:40])) from None


def body(texts: pa.LargeStringArray) -> pa.Buffer:
    """Return the concatenated texts of a column, without a copy."""
    _, ends, data = texts.buffers()
    first, last = np.frombuffer(ends, np.int64)[[texts.offset, texts.offset + len(texts)]].tolist()
    return pa.py_buffer(b"") if data is None else data.slice(first, last - first)


def refuse_long_lines(lines: pa.LargeStringArray, first_row: int, path: str) -> None:
    """Raise Unrepresentable, with the row, for a line that readers refuse by default."""
    most = DEFAULT_LIMITS.line_bytes
    sizes = byte_lengths(lines)
    if int(sizes.max(initial=0)) > most:
        row = int(sizes.argmax())
        raise Unrepresentable(
            "a line longer than readers accept", file=path, row=first_row + row, expected=f"at most {most} bytes",
            found=int(sizes[row]), advice="Write another format, such as parquet, or leave out its largest column with "
            "--drop-columns.",
        )  # fmt: skip


def text_sink(sink: Sink, compression: str | None, level: int | None) -> TextSink:
    """Return an object that writes text to a sink, compressed or not."""
    if compression is None:
        return _PlainText(sink)
    encoder = stream_encoder(compression, level)
    return _TextInMembers(sink, level) if compression == "gzip" else _PackedText(sink, encoder)


class TextSink(Protocol):
    """Writes text to a sink."""

    def write_head(self, text: bytes) -> None:
        """Append text before the rows."""

    def write_rows(self, texts: pa.LargeStringArray) -> None:
        """Append rows, each as its text."""

    def tell(self) -> int:
        """Return the size of the file if it ended now; with compression, a part is an estimate."""

    def finish(self) -> int:
        """Finish the text; return the size of the file."""


class _PlainText:
    """Plain text: every row has its place in the file."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._extents = sink, extents_of(sink)
        self._at = self._rows = 0
        self.tell = self.finish = sink.tell

    def write_head(self, text: bytes) -> None:
        """Append text before the rows."""
        self._write(text, np.array([len(text)]), np.array([NO_ROWS]))

    def write_rows(self, texts: pa.LargeStringArray) -> None:
        """Append rows, each as its text."""
        self._write(body(texts), np.cumsum(byte_lengths(texts)), np.arange(self._rows, self._rows + len(texts)))
        self._rows += len(texts)

    def _write(self, data: Buffer, ends: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        self._extents.mark(self._at + ends, rows)
        self._at += int(ends[-1]) if len(ends) else 0
        self._sink.write([data])


class _PackedText:
    """Text in one compressed stream, in which rows have no place."""

    def __init__(self, sink: Sink, encoder: StreamEncoder) -> None:
        self._sink, self._encoder = sink, encoder
        self.tell = encoder.packed_bytes

    def write_head(self, text: bytes) -> None:
        """Append text before the rows."""
        self._sink.write([self._encoder.feed(text)])

    def write_rows(self, texts: pa.LargeStringArray) -> None:
        """Append rows, each as its text."""
        self._sink.write([self._encoder.feed(body(texts))])

    def finish(self) -> int:
        """Finish the text; return the size of the file."""
        self._sink.write([self._encoder.finish()])
        return self._sink.tell()


class _TextInMembers:
    """Text in many small gzip members: after damage, the next member can be read again.

    A member ends with the first row that crosses a multiple of 128 KB of text, independent of batches. It is held until
    then.
    """

    def __init__(self, sink: Sink, level: int | None) -> None:
        self._sink, self._extents, self._level = sink, extents_of(sink), level
        self._held: list[bytes] = []
        self._at = self._rows = self._first = self._packed = 0

    def write_head(self, text: bytes) -> None:
        """Append text before the rows."""
        self._held.append(text)
        self._end_member(NO_ROWS, NO_ROWS)

    def write_rows(self, texts: pa.LargeStringArray) -> None:
        """Append rows, each as its text."""
        ends = self._at + np.cumsum(byte_lengths(texts))
        done = 0
        for last in np.flatnonzero(np.diff(ends // _MEMBER_BYTES, prepend=self._at // _MEMBER_BYTES)).tolist():
            part = body(texts.slice(done, last + 1 - done))
            done = last + 1
            self._end_member(self._first, self._rows + last, part)
            self._first = self._rows + done
        if done < len(texts):
            self._held.append(body(texts.slice(done)).to_pybytes())
        self._rows += len(texts)
        self._at = int(ends[-1]) if len(ends) else self._at

    def _end_member(self, first: int, last: int, rest: Buffer = b"") -> None:
        member = pack_text(b"".join([*self._held, rest]) if self._held else rest, self._level)
        self._held.clear()
        self._packed += len(member)
        self._extents.mark_extents(self._packed, first, last)
        self._sink.write([member])

    def finish(self) -> int:
        """Finish the text; return the size of the file."""
        if self._first < self._rows:
            self._end_member(self._first, self._rows - 1)
        elif not self._packed:  # an empty file would not be a compressed one
            self._end_member(NO_ROWS, NO_ROWS)
        return self._sink.tell()

    def tell(self) -> int:
        """Return the bytes of finished members, and as many for the text of the open one as these took."""
        held = sum(map(len, self._held))
        done = self._at - held
        return self._packed + int(held * (min(self._packed / done, 1.0) if done > 0 else 1.0))


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in parts small enough to become text at once."""
    if len(batch):
        bounds = split_rows(np.arange(len(batch)), row_bytes(batch), max_rows=_PART_ROWS, max_bytes=_PART_BYTES)
        for start, stop in pairwise(bounds.tolist()):
            yield batch.slice(start, stop - start)
