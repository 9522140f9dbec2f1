"""Read plain text: lines in batches, and at random. See `_core.formats.text.format`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.text_checks import is_utf8
from lading._core.arrow.views import from_ranges, join
from lading._core.features.items import split_rows
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardReader
from lading._core.formats.text_lines import BOM, TextFile, changed, to_utf8, too_long
from lading.errors import CorruptShard, UsageError

__all__ = ["ReadOptions", "TextReader"]

_SCHEMA = pa.schema([("text", pa.string())])
_INDEX_SCHEMA = pa.schema([(name, pa.int64()) for name in ("num_rows", "offset", "length")])
_UNIT_BYTES, _UNIT_ROWS = 64 << 10, 4096
_LF, _CR = b"\n\r"
_SHOWN = 40
_WAYS = ("line", "file")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How plain text is read.

    Attributes:
        sample_by: What a sample is: a `line`, or a whole `file`.
    """

    sample_by: Literal["line", "file"] = "line"

    def __post_init__(self) -> None:
        """Refuse other words."""
        if self.sample_by not in _WAYS:
            raise UsageError("no such way to cut texts", expected="line, or file for a whole file as a sample",
                             found=f"sample_by={self.sample_by!r}")  # fmt: skip


class TextReader(ShardReader):
    """An open text."""

    def __init__(self, file: TextFile, options: ReadOptions) -> None:
        self._file, self._whole = file, options.sample_by == "file"
        given = file.source.index
        self._index = given if given is not None and given.schema.names == _INDEX_SCHEMA.names else None

    def schema(self) -> pa.Schema:
        """Return the one column, `text`."""
        return _SCHEMA

    @property
    def read_share(self) -> float:
        """Return the share of the file that is read by the latest batch."""
        return self._file.read_share

    def num_rows(self) -> int:
        """Return the number of lines, by a pass over the file; 1 for a whole file."""
        return int(np.sum(self.index()["num_rows"].to_numpy()))

    def index(self) -> pa.Table:
        """Return a row for each part of some 64 KiB: `num_rows`, and `offset` and `length` in the unpacked text."""
        if self._index is None:
            parts = [np.array([[1], [0], [self._file.entry.size_bytes]])] if self._whole else list(self._units())
            columns = np.concatenate([np.zeros((3, 0), np.int64), *parts], axis=1)
            self._index = pa.table([pa.array(column) for column in columns], schema=_INDEX_SCHEMA)
        return self._index

    def _units(self) -> Iterator[NDArray[np.int64]]:
        """Yield the columns of the index."""
        for block in self._file.blocks():
            start, _, end = _lines_of(block.data, block.offset)
            bounds = split_rows(np.arange(len(start)), end - start, max_bytes=_UNIT_BYTES, max_rows=_UNIT_ROWS)
            first, stop = bounds[:-1], bounds[1:]
            if len(start):
                yield np.array([stop - first, block.offset + start[first], end[stop - 1] - start[first]])

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all lines in order, some MiB at a time; or the whole text.

        Raises:
            CorruptShard: invalid UTF-8, or a damaged compressed stream.
            LimitExceeded: a line, or a whole text, is longer than `line_bytes`.
        """
        if self._whole:
            data = self._whole_text()
            yield _batch(self._values(data, np.zeros(1, np.int64), np.array([len(data)]), 0, 0), scan)
            return
        row = 0
        for block in self._file.blocks():
            start, length, end = _lines_of(block.data, block.offset)
            bounds = split_rows(np.arange(len(start)), end - start, max_bytes=scan.max_bytes, max_rows=scan.max_rows)
            for first, stop in pairwise(bounds.tolist()):
                yield _batch(self._values(block.data, start[first:stop], length[first:stop], block.offset, row), scan)
                row += stop - first

    def _whole_text(self) -> bytes:
        """Return all bytes of the text, without a byte order mark."""
        limits, parts, size = self._file.source.limits, [], 0
        for piece in self._file.pieces():
            parts.append(piece)
            size += len(piece)
            if size > limits.line_bytes:
                raise limits.exceeded("line_bytes", "the text is too long for a sample", file=self._file.path)
        return b"".join(parts).removeprefix(BOM)

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return lines by number, in the given order; reads the parts of the file that hold them.

        Raises:
            UsageError: a number is outside the file.
            CorruptShard: as `batches`; or the file has changed since its index was made.
        """
        if rows is None or self._whole:
            found = [*self.batches()] or [pa.record_batch([pa.array([], pa.string())], schema=_SCHEMA)]
            table = pa.Table.from_batches(found)
            return _chosen(table if rows is None else table.take(pa.array(rows)), scan)
        wanted = np.asarray(rows, np.int64)
        count, offset, length = (column.to_numpy() for column in self.index().columns)
        ends = np.cumsum(count)
        total = int(ends[-1]) if len(ends) else 0
        outside = np.flatnonzero((wanted < 0) | (wanted >= total))
        if len(outside):
            raise UsageError("no such row", file=self._file.path, expected=f"0 to {total - 1}",
                             found=int(wanted[outside[0]]))  # fmt: skip
        ordinals, place = np.unique(wanted, return_inverse=True)
        unit_of = np.searchsorted(ends, ordinals, "right")
        units = np.unique(unit_of).tolist()
        parts = [pa.array([], pa.string())]
        ranges = [(int(offset[unit]), int(length[unit])) for unit in units]
        for unit, data in zip(units, self._file.read_each(ranges), strict=True):
            start, size, _ = _lines_of(data, int(offset[unit]))
            if len(start) != count[unit]:
                raise changed(self._file.path, int(offset[unit]), f"{int(count[unit])} lines", f"{len(start)}")
            first = int(ends[unit] - count[unit])
            mine = ordinals[unit_of == unit] - first
            parts.append(self._values(data, start[mine], size[mine], int(offset[unit]), first))
        table = pa.table([pa.concat_arrays(parts)], schema=_SCHEMA)
        return _chosen(table.take(pa.array(place)), scan)

    def _values(
        self, data: bytes, start: NDArray[np.int64], length: NDArray[np.int64], offset: int, row: int
    ) -> pa.Array:
        """Return ranges of a part of the file as texts.

        Args:
            data: the bytes of the part.
            start: of each text.
            length: of each text.
            offset: of the part in the file.
            row: of the first text, for errors.
        """
        most = self._file.source.limits.line_bytes
        if int(length.max(initial=0)) > most:
            at = int(length.argmax())
            raise too_long(self._file.path, offset + int(start[at]), row + at + 1, self._file.source.limits)
        values = join(from_ranges(pa.py_buffer(data), start, length))
        try:
            return values.cast(pa.large_string()).cast(pa.string())
        except pa.ArrowInvalid:
            at = next(at for at, value in enumerate(values) if not is_utf8(value.as_py()))
            text = values[at].as_py()
            raise CorruptShard(
                "the text is invalid UTF-8" if self._whole else f"line {row + at + 1}: invalid UTF-8",
                file=self._file.path, offset=offset + int(start[at]), found=repr(text[:_SHOWN]),
                advice=f"Bring the file to UTF-8, from Windows for example with: "
                f"{to_utf8(self._file.path, 'WINDOWS-1252')}",
            ) from None  # fmt: skip


def _lines_of(data: bytes, offset: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return start and length of each line in a part of a file, and where the line ends with its line end.

    As Python's universal newlines: LF, CR LF or CR end a line.
    """
    body = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(body == _LF)
    if b"\r" in data:
        returns = np.flatnonzero(body == _CR)
        behind = body[np.minimum(returns + 1, len(body) - 1)]
        ends = np.sort(np.concatenate([ends, returns[(behind != _LF) | (returns == len(body) - 1)]]))
    first = len(BOM) if not offset and data.startswith(BOM) else 0
    stop = ends + 1
    if len(body) > (int(stop[-1]) if len(stop) else first):
        ends, stop = np.append(ends, len(body)), np.append(stop, len(body))
    start = np.append(first, stop[:-1]).astype(np.int64) if len(stop) else np.zeros(0, np.int64)
    length = ends - start
    pairs = (length > 0) & (stop > ends) & (body[np.minimum(ends, len(body) - 1)] == _LF)
    pairs[pairs] = body[ends[pairs] - 1] == _CR
    return start, length - pairs, stop


def _batch(values: pa.Array, scan: Scan) -> pa.RecordBatch:
    batch = pa.record_batch([values], schema=_SCHEMA)
    return batch if scan.columns is None else batch.select([name for name in _SCHEMA.names if name in scan.columns])


def _chosen(table: pa.Table, scan: Scan) -> pa.Table:
    return table if scan.columns is None else table.select([name for name in _SCHEMA.names if name in scan.columns])
