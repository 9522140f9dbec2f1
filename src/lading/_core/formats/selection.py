"""Some rows of a shard, in any order: the recovered part of a damaged shard, or the rows of samples together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import total_bytes
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardReader
from lading._core.storage.fetch import Fetcher

__all__ = ["selected_rows"]

_FIRST_ROWS = 64
_Read: TypeAlias = Callable[[NDArray[np.int64]], pa.Table]


def selected_rows(reader: ShardReader, rows: NDArray[np.int64] | None, *, window_rows: int = 0) -> ShardReader:
    """Return a reader with only these rows, as its rows 0, 1 …; the reader itself for None.

    Args:
        reader: the reader.
        rows: numbers of its rows, in any order.
        window_rows: rows to read at once, if their bytes allow it, although batches have fewer. If the rows are
            scattered over the shard, each reading may go through all of it.
    """
    if rows is None:
        return reader
    return _SelectedRows(reader, rows, window_rows)


class _SelectedRows(ShardReader):
    """Some rows of a reader. Peak memory of batches: twice their limit, if rows have similar sizes.

    Attributes:
        counts: counts of the reader.
    """

    def __init__(self, reader: ShardReader, rows: NDArray[np.int64], window_rows: int) -> None:
        self._reader, self._rows, self._window_rows = reader, rows, window_rows
        self.declares_types = reader.declares_types

    def schema(self) -> pa.Schema:
        """Return the reader's schema."""
        return self._reader.schema()

    def first_schema(self) -> pa.Schema | None:
        """Return the reader's first schema."""
        return self._reader.first_schema()

    def num_rows(self) -> int:
        """Return the number of selected rows."""
        return len(self._rows)

    def index(self) -> pa.Table:
        """Return the reader's index, of all rows."""
        return self._reader.index()

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by their ordinal among the selected ones."""
        return self._reader.read(self._rows if rows is None else self._rows[rows], scan)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all selected rows, in order: a few at a time, more as their sizes allow."""
        window = max(scan.max_rows, self._window_rows)
        for table in self._parts(window, scan.max_bytes, lambda rows: self._reader.read(rows, scan)):
            yield from table.combine_chunks().to_batches(max_chunksize=scan.max_rows)
        self.counts = self._reader.counts

    def _parts(self, max_rows: int, max_bytes: int, read: _Read) -> Iterator[pa.Table]:
        at, count = 0, _FIRST_ROWS
        while at < len(self._rows):
            table = read(self._rows[at : at + min(count, max_rows)])
            at += min(count, max_rows)
            size = sum(total_bytes(batch) for batch in table.to_batches())
            count = min(4 * count, max(1, max_bytes * table.num_rows // max(size, 1)))
            yield table

    def as_asked(self, fetcher: Fetcher) -> ShardReader | None:
        """Return the same rows of the reader that options ask for."""
        reader = self._reader.as_asked(fetcher)
        return None if reader is None else _SelectedRows(reader, self._rows, self._window_rows)

    def as_written(self, rows: pa.Schema, fetcher: Fetcher) -> ShardReader | None:
        """Return the same rows as they were written."""
        reader = self._reader.as_written(rows, fetcher)
        return None if reader is None else _SelectedRows(reader, self._rows, self._window_rows)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
