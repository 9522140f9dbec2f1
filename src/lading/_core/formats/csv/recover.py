"""Recover the whole records of a damaged CSV file: those with as many values as it has columns.

Quotes decide which line ends end a record, and one missing quote would turn everything behind it inside out. So a
record is looked for from the beginning of a line, up to the first line end outside quotes. If that gives no record,
only the first line is lost, and the next line is tried.

Right behind damage, lines inside a quoted value are taken for records if they look like records.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.base import Recovered, ShardFile
from lading._core.formats.csv.dialect import Dialect, QuoteState
from lading._core.formats.csv.scan import scan
from lading._core.formats.text_lines import MAX_TOLD, LineBlock, laid_end_to_end, too_long
from lading.errors import CorruptShard, LadingError, without_frames

__all__ = ["next_line", "recover_records"]

_LF, _CR = b"\n\r"
_WIDE = (
    rb"[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|"
    rb"\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}"
)
"""A character of several bytes in UTF-8."""
_LINE_BYTES, _WINDOW_BYTES = 1 << 10, 1 << 20
"""Of a file that are looked at once: at first, since most lines are short, and at most, since one may be all of it."""


def recover_records(
    data: NDArray[np.uint8],
    source: ShardFile,
    *,
    dialect: Dialect,
    names: int,
    head: bytes,
    begin: int,
    ended: bool,
    line_end: bytes = b"\n",
) -> Recovered | None:
    """Return the whole records of a file, one after another, behind a header; None if all are whole.

    Args:
        data: the file.
        source: its name in errors, and the limit on the length of a record (`line_bytes`).
        dialect: how values are spelled.
        names: number of columns.
        head: the header if it is made anew; empty otherwise.
        begin: where the records begin.
        ended: whether the last line must have an end.
        line_end: the byte that ends a line.
    """
    end_of_line, end_of_file = (rb"\r", rb"(?:\r|\Z)") if line_end == b"\r" else (rb"\r?\n", rb"\r?(?:\n|\Z)")
    alike, last = (_records(dialect, names, end, end_of_line) for end in (end_of_line, end_of_file))
    any_record = re.compile(_values(dialect, b"*+") + end_of_file)
    text, path, limits = data.data, source.path, source.limits
    most = limits.line_bytes
    kept = [(0, begin)] if begin and not head else []
    lost: list[LadingError] = []
    at, line, lost_lines = begin, 1 + _count_lines(data, 0, begin, line_end), 0
    while at < len(data):
        is_last = at + most >= len(data) and not ended
        found = (last if is_last else alike).match(text, at, at + most)
        behind = found.end() if found is not None else at
        if behind > at:
            kept.append((at, behind))
        else:
            behind = next_line(data, at, line_end)
            lost_lines += 1
            if len(lost) < MAX_TOLD:
                record = any_record.match(text, at, at + most)
                end = max(behind, record.end()) if record is not None else behind
                lost.append(
                    _error(LineBlock(text[at:end].tobytes(), at, line, line_end=line_end), path, dialect, names)
                    if end - at <= most
                    else without_frames(too_long(path, at, line, limits))
                )
        line += _count_lines(data, at, behind, line_end)
        at = behind
    if not lost_lines and not head:
        return None
    offset, stop = np.array(kept, np.int64).reshape(-1, 2).T
    num_rows = [0 if place < begin else _num_records(data[place:end], dialect, line_end) for place, end in kept]
    return laid_end_to_end(
        offset, stop - offset, len(data), lost, lost_lines, head, rows=np.array(num_rows, np.int64)
    )  # fmt: skip


def _num_records(text: NDArray[np.uint8], dialect: Dialect, line_end: bytes) -> int:
    """Return the number of records in some whole lines. A blank line is none."""
    meant, inside, _ = QuoteState(dialect).feed(text)
    ends = np.flatnonzero((meant == ord(line_end)) & ~inside)
    starts = np.append(0, ends + 1)
    starts = starts[starts < len(text)]
    blank = (text[starts] == ord(line_end)) | (
        (text[starts] == _CR) & (text[np.minimum(starts + 1, len(text) - 1)] == _LF)
    )
    return len(starts) - int(np.count_nonzero(blank))


def _records(dialect: Dialect, names: int, end: bytes, blank: bytes) -> re.Pattern[bytes]:
    """Records with so many values, and blank lines, as many as follow each other; nothing is looked at twice.

    A quote that is never closed is looked for up to the next one that is not doubled. So lines with such ones cost what
    lies between them, two times.
    """
    return re.compile(rb"(?:" + _values(dialect, rb"{%d}" % (names - 1)) + end + rb"|" + blank + rb")*+")


def _values(dialect: Dialect, more: bytes) -> bytes:
    """Values of a record; how many behind the first one."""
    mark, escape = re.escape(dialect.delimiter.encode()), re.escape(dialect.escape.encode())
    wide = _WIDE + (rb"|" + escape + rb"(?:[\x00-\x7f]|" + _WIDE + rb")" if escape else b"")
    plain = rb"(?:[^\x80-\xff\r\n" + mark + escape + rb"]++|" + wide + rb")*+"
    value = plain
    if dialect.quotes:
        quoted = rb'"(?:[^\x80-\xff"' + escape + rb']++|""|' + wide + rb')*+"'
        value = rb"(?:" + quoted + rb'|(?!")' + plain + rb")"
    return value + rb"(?:" + mark + value + rb")" + more


def next_line(data: NDArray[np.uint8], at: int, line_end: bytes) -> int:
    """Where the next line begins: behind the next line end, or where the file ends."""
    window = _LINE_BYTES
    while at < len(data):
        ends = np.flatnonzero(data[at : at + window] == ord(line_end))
        if len(ends):
            return at + int(ends[0]) + 1
        at, window = at + window, min(4 * window, _WINDOW_BYTES)
    return len(data)


def _count_lines(data: NDArray[np.uint8], begin: int, end: int, line_end: bytes) -> int:
    """How many lines end between two places."""
    windows = (data[at : min(at + _WINDOW_BYTES, end)] for at in range(begin, end, _WINDOW_BYTES))
    return sum(int(np.count_nonzero(window == ord(line_end))) for window in windows)


def _error(line: LineBlock, path: str, dialect: Dialect, names: int) -> LadingError:
    """What is wrong with a line that begins no record, or with a record that has other values than the header."""
    what, expected, found = f"line {line.line}: ", None, None
    quotes = QuoteState(dialect)
    quotes.feed(np.frombuffer(line.data, np.uint8))
    if quotes.inside or quotes.escaping:
        what += "a quote in this record is never closed, or where none may be"
    elif not line.data.endswith(line.line_end):
        what += "the last line has no end"
    else:
        try:
            expected, found = names, len(scan(line, dialect, path).cells)
        except CorruptShard as error:
            return without_frames(error)
        what += "not as many values as the file has columns"
    return CorruptShard(what, file=path, offset=line.offset, expected=expected, found=found)
