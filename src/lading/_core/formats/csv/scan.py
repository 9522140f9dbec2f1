"""Split bytes of CSV into cells, many records at a time; no I/O. See `_core.formats.csv.format`.

numpy finds quotes, delimiters and line ends; those in quotes do not count (`_core.formats.csv.dialect`). 4 MB take 20
ms. The end of the header decides which byte ends a line: CR alone, as old Macintosh programs and some
spreadsheets write it, or LF.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.formats.csv.dialect import Dialect, QuoteState
from lading._core.formats.text_lines import LineBlock, blocks_of, to_utf8
from lading.errors import CorruptShard
from lading.limits import Limits

__all__ = ["PLAIN_QUOTES", "Records", "record_blocks", "scan"]

_QUOTE, _LF, _CR = b'"\n\r'
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a file.

    Attributes:
        cells: the values of all records, one after another; null for empty cells without quotes.
        first: index of each record's first cell, and at the end the number of cells.
        offset: start of each record in the stream.
        size: bytes of each record, its end included.
        line: number of its first line, counted from 1.
    """

    cells: pa.StringArray
    first: NDArray[np.int64]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    line: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offset)

    def only(self, keep: NDArray[np.bool_]) -> Records:
        """Return some of the records."""
        count = np.diff(self.first)
        cells = self.cells.filter(pa.array(np.repeat(keep, count)))
        first = np.append(0, np.cumsum(count[keep]))
        return Records(cells, first, self.offset[keep], self.size[keep], self.line[keep])

    def columns(self, wanted: Iterable[int], start: int, stop: int) -> Iterator[pa.StringArray]:
        """Return cells of some records by column; these records must have equally many cells."""
        for column in wanted:
            yield self.cells.take(pa.array(self.first[start:stop] + column))


def record_blocks(
    pieces: Iterable[bytes], dialect: Dialect, path: str, limits: Limits, *, ended: bool
) -> Iterator[LineBlock]:
    """Yield whole records, each with its line end except perhaps the last. Memory: two pieces and the longest record.

    Args:
        pieces: the text.
        dialect: how values are spelled.
        path: its name in errors.
        limits: limits on a record that spans pieces.
        ended: whether the last line must have an end.

    Raises:
        LimitExceeded: a record is too long, or a record that spans pieces has too many values.
        CorruptShard: a quote is never closed, an escape escapes nothing, or a line end is missing that must be there.
    """
    quotes, cells, block = QuoteState(dialect), 0, LineBlock(b"", 0, 1)
    line_end, returned = b"", False  # unknown before the end of the header; whether the last byte is a carriage return

    def ends_of(piece: bytes) -> tuple[int, int]:
        nonlocal cells, line_end, returned
        codes, within, _ = quotes.feed(np.frombuffer(piece, np.uint8))
        if not line_end:
            line_end, returned = _line_end(codes, within, returned=returned)
        ends = np.flatnonzero((codes == ord(line_end or b"\n")) & ~within)
        # Scanning a value takes 50 bytes, however short it is: a record of 60 MB of commas took 3.5 GB.
        cells = 0 if len(ends) else cells + int(np.count_nonzero((codes == ord(dialect.delimiter)) & ~within))
        if cells > limits.table_columns:
            line = block.line + block.data.count(line_end or b"\n")
            raise limits.exceeded("table_columns", f"line {line}: too many values", file=path,
                                  offset=block.offset + len(block.data))  # fmt: skip
        return (int(ends[0]), int(ends[-1]) + 1) if len(ends) else (-1, 0)

    line = 1
    for block in blocks_of(pieces, ends_of, path, limits):
        only_header = not line_end and returned  # a header that ends with the file
        if line_end == b"\r" or only_header:
            whole = block.whole or only_header
            block = replace(block, line=line, line_end=b"\r", whole=whole)  # noqa: PLW2901 - `ends_of` reads it
            line += block.data.count(b"\r")
        if not block.whole and (quotes.inside or quotes.escaping):
            raise _unclosed(block, path, escaping=quotes.escaping)
        if not block.whole and ended:
            raise CorruptShard(
                f"line {block.line}: the last line has no end", file=path, offset=block.offset, expected="a line end",
                found=f"{block.data[-_SHOWN:]!r}",
                advice="The file may have been cut. If it is complete, add the line end: echo >> " + shlex.quote(path),
            )  # fmt: skip
        yield block


def _unclosed(block: LineBlock, path: str, *, escaping: bool) -> CorruptShard:
    """Return the error for a last record that ends inside quotes, or with an escape."""
    if escaping:
        what, expected = "the last record ends with an escape", "a character behind it"
        advice = "The file may have been cut. If the character is a plain one, leave out the option escape."
    else:
        what, expected = "a quote in this record is never closed", '"…", a quote inside doubled'
        advice = f"Close it; the file may also have been cut. {PLAIN_QUOTES}"
    return CorruptShard(f"line {block.line}: {what}", file=path, offset=block.offset, expected=expected,
                        found=f"{block.data[:_SHOWN]!r}", advice=advice)  # fmt: skip


def _line_end(codes: NDArray[np.uint8], within: NDArray[np.bool_], *, returned: bool) -> tuple[bytes, bool]:
    """Return the byte that ends lines, empty if unknown, and whether the text so far ends with a carriage return.

    Args:
        codes: a piece of the header.
        within: which bytes are inside quotes.
        returned: whether a carriage return outside quotes is right before the piece.
    """
    if returned and len(codes):
        return (b"\n" if codes[0] == _LF else b"\r"), False
    ends = np.flatnonzero(((codes == _LF) | (codes == _CR)) & ~within)
    if not len(ends):
        return b"", returned
    first = int(ends[0])
    if codes[first] == _LF:
        return b"\n", False
    if first + 1 == len(codes):
        return b"", True
    return (b"\n" if codes[first + 1] == _LF else b"\r"), False


def scan(block: LineBlock, dialect: Dialect, path: str) -> Records:
    """Return the records of a block.

    Raises:
        CorruptShard: a quote or a line end in a forbidden place, or invalid UTF-8.
    """
    mark, quotes = block.line_end, QuoteState(dialect)
    codes = np.frombuffer(block.data, np.uint8)
    meant, within, escapes = quotes.feed(codes)
    line_ends = np.flatnonzero(codes == ord(mark))
    if quotes.inside or quotes.escaping:
        raise _unclosed(block, path, escaping=quotes.escaping)
    if not len(meant) or meant[-1] != ord(mark):
        codes, meant = (np.append(known, np.uint8(ord(mark))) for known in (codes, meant))
        within = np.append(within, np.False_)
    outside = ~within
    stops = ((meant == ord(dialect.delimiter)) | (meant == ord(mark))) & outside
    stop = np.flatnonzero(stops)
    start = np.append(0, stop[:-1] + 1)
    is_last = meant[stop] == ord(mark)
    returns = is_last & (stop > start) & (meant[stop - 1] == _CR) & (mark == b"\n")
    end = stop - returns
    dropped = stops
    dropped[end[returns]] = True
    bare = (meant == (_CR if mark == b"\n" else _LF)) & outside & ~dropped
    if bare.any():
        what = "a carriage return without a line feed" if mark == b"\n" else "a line feed, where CR ends other lines"
        raise _bad(block, path, line_ends, int(np.argmax(bare)), what, _ENDS)
    opens = np.flatnonzero((meant == _QUOTE) & within)
    if len(opens):
        closes = np.flatnonzero(within[:-1] & outside[1:]) + 1
        ends = np.zeros(len(codes) + 1, np.bool_)
        ends[end] = True
        doubled = closes[:-1] + 1 == opens[1:]
        good = ends[closes + 1] | np.append(doubled, False)
        if not good.all():
            raise _bad(block, path, line_ends, int(closes[np.argmin(good)]), "a quote inside a quoted value")
        dropped[opens] = True
        dropped[closes[ends[closes + 1]]] = True
    dropped[escapes] = True
    gone = np.flatnonzero(dropped)
    bounds = np.append(start - np.searchsorted(gone, start), len(codes) - len(gone)).astype(np.int32)
    filled = (end > start).astype(np.uint8)
    bitmap = pa.py_buffer(np.packbits(filled, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(bounds), pa.py_buffer(codes[~dropped])]
    cells = pa.Array.from_buffers(pa.string(), len(start), buffers)
    _check_text(cells, block, path, line_ends)
    first = np.append(0, np.flatnonzero(is_last) + 1)
    begin = start[first[:-1]]
    size = np.diff(np.append(begin, len(block.data)))
    return Records(cells, first, block.offset + begin, size, block.line + np.searchsorted(line_ends, begin))


def _check_text(cells: pa.StringArray, block: LineBlock, path: str, line_ends: NDArray[np.int64]) -> None:
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        try:
            block.data.decode()
        except UnicodeDecodeError as error:
            what = f"invalid UTF-8 ({error.reason})"
            advice = f"Bring the file to UTF-8, from Windows for example with: {to_utf8(path, 'WINDOWS-1252')}"
            raise _bad(block, path, line_ends, error.start, what, advice) from None
        raise


_ENDS = "All lines end alike: with LF, with CR LF, or with CR. Other line ends stand in quotes."
_QUOTING = 'A value with a quote, delimiter or line end in it stands in quotes, a quote in it doubled: "…""…".'
PLAIN_QUOTES = "If quotes are plain characters in this file: --option quoting=none."
"""What to do if a file does not use quotes."""
_IN_QUOTES = f"{_QUOTING} {PLAIN_QUOTES}"


def _bad(
    block: LineBlock, path: str, line_ends: NDArray[np.int64], at: int, what: str, advice: str = _IN_QUOTES
) -> CorruptShard:
    line = block.line + int(np.searchsorted(line_ends, at))
    return CorruptShard(
        f"line {line}: {what}", file=path, offset=block.offset + at, found=f"{block.data[at : at + _SHOWN]!r}",
        advice=advice,
    )  # fmt: skip
