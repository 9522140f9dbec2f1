"""What is left of a damaged CSV file: the records that have as many values as the header has names.

Quotes decide which line ends end a record, and one quote too few would turn all that follows inside out. So records are
found from the beginning of a line: it goes on to the line end with an even number of quotes before it. What is then no
record gives up its first line only, and the next line begins one.

Lines inside a value that look like records themselves are taken for such where they stand right behind a damage.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import CorruptShard, LadingError
from lading.formats._csv_scan import Records, scan
from lading.formats.protocol import Remains
from lading.formats.textfile import MAX_TOLD, Block, laid_end_to_end

__all__ = ["resync_records"]

_QUOTE, _LF = b'"\n'
_WINDOW_BYTES, _FEW_BYTES = 1 << 20, 4 << 10
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
        """All records from here on. Little is looked at behind a line that is lost, where others may be lost too."""
        window, line = _WINDOW_BYTES, 1 + int(np.count_nonzero(self._data[:at] == _LF))
        while at < len(self._data):
            piece = self._data[at : at + window]
            lines = np.flatnonzero(piece == _LF) + 1
            outside = ~np.logical_xor.accumulate(piece == _QUOTE)
            ends = lines[outside[lines - 1]][:_MOST_RECORDS]
            is_last = at + window >= len(self._data)
            if is_last and not self._ended and outside[-1] and piece[-1] != _LF:
                ends = np.append(ends, len(piece))
            if not len(ends) and not is_last and window < self._max_record_bytes:
                window *= 2
                continue
            size, error = self._settle(at, ends, line)
            if not len(ends):
                what = "the last line has no end" if outside[-1] else "a quote in this record is never closed"
                error = CorruptShard(f"line {line}: {what}", file=self._path, offset=at)
            window = min(2 * window, _WINDOW_BYTES)
            line += int(np.searchsorted(lines, size, "right"))
            if error is not None:
                self._lose(error)
                behind = np.searchsorted(lines, size, "right")
                size = int(lines[behind]) if behind < len(lines) else len(piece)
                line, window = line + 1, _FEW_BYTES
            at += size

    def _settle(self, start: int, ends: NDArray[np.int64], line: int) -> tuple[int, LadingError | None]:
        """Keep the good ones of these records, and lose bad ones that are a line, up to a bad one that is more.

        Args:
            start: where they begin in the file.
            ends: of each of them, counted from there.
            line: number of the first line.

        Returns:
            Bytes that are settled, and what is wrong with the record behind them, if anything is.
        """
        error: LadingError | None = None
        while len(ends):
            block = Block(self._data[start : start + ends[-1]].tobytes(), start, line)
            try:
                records = scan(block, self._delimiter, self._path)
            except CorruptShard as found:
                error, ends = found, ends[: np.searchsorted(ends, (found.offset or 0) - start, "right")]
                continue
            bounds, wrong = np.append(0, ends), self._wrong(records)
            num_lines = np.diff(records.line, append=line + block.data.count(b"\n"))
            count = next(iter(wrong[num_lines[wrong] > 1].tolist()), len(ends))
            kept = 0
            for bad in wrong[wrong < count].tolist():
                self._keep(start + kept, start + int(bounds[bad]))
                self._lose(self._misfit(records, bad))
                kept = int(bounds[bad + 1])
            self._keep(start + kept, start + int(bounds[count]))
            return int(bounds[count]), self._misfit(records, count) if count < len(ends) else error
        return 0, error

    def _wrong(self, records: Records) -> NDArray[np.int64]:
        """The records that have too few or too many values; blank lines are skipped."""
        cells = np.diff(records.first)
        wrong: NDArray[np.int64] = np.flatnonzero(cells != self._names)
        nothing = records.cells.take(pa.array(records.first[wrong])).is_null().to_numpy(zero_copy_only=False)
        kept: NDArray[np.int64] = wrong[(cells[wrong] != 1) | ~nothing]
        return kept

    def _misfit(self, records: Records, bad: int) -> LadingError:
        return CorruptShard(f"line {int(records.line[bad])}: not as many values as the header has names",
                            file=self._path, offset=int(records.offset[bad]), expected=self._names,
                            found=int(records.first[bad + 1] - records.first[bad]))  # fmt: skip

    def _keep(self, start: int, stop: int) -> None:
        if self.ranges and self.ranges[-1][1] == start:
            start = self.ranges.pop()[0]
        if start < stop:
            self.ranges.append((start, stop))

    def _lose(self, error: LadingError) -> None:
        self.lost_lines += 1
        if len(self.lost) < MAX_TOLD:
            self.lost.append(error)
