"""What is left of a damaged CSV file: the records that have as many values as the header has names.

Quotes decide which line ends end a record, and one quote too few would turn all that follows inside out. So records are
found from the beginning of a line: it goes on to the line end with an even number of quotes before it. What is then no
record gives up its first line only, and the next line begins one.

Lines inside a value that look like records themselves are taken for such where they stand right behind a damage.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.errors import CorruptShard, DataError, LadingError
from lading.formats._csv_scan import scan
from lading.formats.protocol import Remains
from lading.formats.textfile import MAX_TOLD, Block, laid_end_to_end

__all__ = ["resync_records"]

_QUOTE, _LF = b'"\n'
_WINDOW_BYTES = 1 << 20
_MOST_RECORDS = 1 << 16


def resync_records(
    data: NDArray[np.uint8],
    path: str,
    *,
    delimiter: str,
    names: int,
    head: bytes,
    begin: int,
    max_record_bytes: int,
    ended: bool,
) -> Remains | None:
    """The records of a file, one after another, behind a header; None if all that is in it are such.

    Args:
        data: the file.
        path: its name in errors.
        delimiter: what stands between values.
        names: how many the header has.
        head: the header, if it has to be made anew; empty to leave it.
        begin: where the records begin.
        max_record_bytes: longest record.
        ended: whether the last line must have an end.
    """
    finder = _Finder(data, path, delimiter, names, max_record_bytes, ended=ended)
    finder.find(begin)
    if not finder.lost_lines and not head:
        return None
    kept = [(0, begin), *finder.ranges] if not head else finder.ranges
    offset, stop = np.array(kept, np.int64).reshape(-1, 2).T
    return laid_end_to_end(offset, stop - offset, finder.lost, finder.lost_lines, head)


class _Finder:
    """Finds records.

    Attributes:
        ranges: `[start, stop)` of records that follow each other.
        lost: what there is to say of lines that are no records.
        lost_lines: how many these are.
    """

    def __init__(
        self,
        data: NDArray[np.uint8],
        path: str,
        delimiter: str,
        names: int,
        max_record_bytes: int,
        *,
        ended: bool,
    ) -> None:
        self._data, self._path, self._delimiter, self._names = data, path, delimiter, names
        self._max_record_bytes, self._ended = max_record_bytes, ended
        self.ranges: list[tuple[int, int]] = []
        self.lost: list[LadingError] = []
        self.lost_lines = 0

    def find(self, at: int) -> None:
        """All records from here on."""
        count, window, line = _MOST_RECORDS, _WINDOW_BYTES, 1 + int(np.count_nonzero(self._data[:at] == _LF))
        while at < len(self._data):
            piece = self._data[at : at + window]
            lines = np.append(0, np.flatnonzero(piece == _LF) + 1)
            ended = at + window >= len(self._data)
            if ended and lines[-1] < len(piece):
                lines = np.append(lines, len(piece))
            ends = lines[1:][~np.logical_xor.accumulate(piece == _QUOTE)[lines[1:] - 1]]
            if not len(ends) and not ended and window < self._max_record_bytes:
                window *= 2
                continue
            stop = at + int(ends[min(count, len(ends)) - 1]) if len(ends) else at
            error = self._error(at, stop, line) if stop > at else self._unclosed(at, line)
            if error is None:
                self._keep(at, stop)
                line += int(np.count_nonzero(self._data[at:stop] == _LF))
                at, count, window = stop, min(2 * count, _MOST_RECORDS), _WINDOW_BYTES
            elif count > 1 and len(ends) > 1:
                count = min(count, len(ends)) // 2
            else:
                self._lose(error)
                at += int(lines[1]) if len(lines) > 1 else len(piece)
                line += 1

    def _error(self, start: int, stop: int, line: int) -> LadingError | None:
        """What is wrong with records, if anything is."""
        if self._ended and self._data[stop - 1] != _LF:
            return CorruptShard(f"line {line}: the last line has no end", file=self._path, offset=start)
        try:
            records = scan(Block(self._data[start:stop].tobytes(), start, line), self._delimiter, self._path)
        except DataError as error:
            return error
        cells = np.diff(records.first)
        wrong = np.flatnonzero(cells != self._names)
        nothing = records.cells.is_null().to_numpy(zero_copy_only=False)
        wrong = wrong[(cells[wrong] != 1) | ~nothing[records.first[wrong]]]  # blank lines are skipped
        if not len(wrong):
            return None
        bad = int(wrong[0])
        return CorruptShard(f"line {int(records.line[bad])}: not as many values as the header has names",
                            file=self._path, offset=int(records.offset[bad]), expected=self._names,
                            found=int(cells[bad]))  # fmt: skip

    def _unclosed(self, at: int, line: int) -> LadingError:
        return CorruptShard(f"line {line}: a quote in this record is never closed", file=self._path, offset=at)

    def _keep(self, start: int, stop: int) -> None:
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        self.ranges.append((start, stop))

    def _lose(self, error: LadingError) -> None:
        self.lost_lines += 1
        if len(self.lost) < MAX_TOLD:
            self.lost.append(error)
