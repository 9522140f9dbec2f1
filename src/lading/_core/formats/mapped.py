"""A reader of the rows of another reader: with other columns or types, or only some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import total_bytes
from lading._core.features.image_lists import ImageLists
from lading._core.formats.base import DEFAULT_SCAN, Change, Scan, ShardReader
from lading._core.formats.findings import Finding
from lading._core.storage.fetch import Fetcher
from lading.errors import errors_at
from lading.options import InterleavedOptions

__all__ = ["Mapped", "selected_rows"]

_FIRST_ROWS = 64


class _NoChange(Change):
    path = None


_NO_CHANGE = _NoChange()


class Mapped(ShardReader):
    """The rows of a reader, changed. What concerns the file comes from the reader: counts, index, memory.

    Values come from `read` and `batches` alone: what gives values in another way has the columns of the file.

    Args:
        reader: the reader.
        change: the columns and types of rows.
        rows: numbers of the rows to give, in any order, as rows 0, 1 …; None for all.
        window_rows: see `selected_rows`.
    """

    def __init__(
        self,
        reader: ShardReader,
        change: Change = _NO_CHANGE,
        rows: NDArray[np.int64] | None = None,
        window_rows: int = 0,
    ) -> None:
        self._reader, self._change, self._rows, self._window_rows = reader, change, rows, window_rows
        self._schema_before: pa.Schema | None = None
        self.declares_types = change.declares_types or reader.declares_types
        self.kept_bytes, self.may_join = reader.kept_bytes, reader.may_join
        self.has_errors, self.holds_items = reader.has_errors, reader.holds_items
        self.has_members = reader.has_members and not change.declares_types

    # Rows

    def schema(self) -> pa.Schema:
        """Return the schema of changed rows."""
        return self._change.schema_after(self._before)

    def first_schema(self) -> pa.Schema | None:
        """Return the schema of the reader's first rows, changed."""
        found = self._reader.first_schema()
        return None if found is None else self._change.schema_after(lambda: found)

    def _before(self) -> pa.Schema:
        if self._schema_before is None:
            self._schema_before = self._reader.schema()
        return self._schema_before

    def num_rows(self) -> int:
        """Return the number of rows."""
        return self._reader.num_rows() if self._rows is None else len(self._rows)

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal, in the given order."""
        if self._rows is not None:
            rows = self._rows if rows is None else self._rows[rows]
        with errors_at(file=self._change.path):
            found = self._found(rows, self._change.needed(scan, self._before))
            with errors_at(first_row=None):
                return self._change.apply(found, scan.columns, np.arange(found.num_rows) if rows is None else rows)

    def _found(self, rows: NDArray[np.int64] | None, needed: Scan | None) -> pa.Table:
        """Return what the reader has of rows; rows without columns if nothing of them is needed."""
        if needed is None:
            return pa.Table.from_batches([_without_columns(self.num_rows() if rows is None else len(rows))])
        return self._reader.read(rows, needed)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; if they are selected, a few at a time, more as their sizes allow.

        Memory of selected rows: at most twice the limit of a batch, if rows have similar sizes.
        """
        needed = self._change.needed(scan, self._before)
        first = 0
        for batch in self._counted(scan.max_rows) if needed is None else self._batches(needed):
            numbers = np.arange(first, first + len(batch))
            with errors_at(file=self._change.path, first_row=first):
                changed = self._change.apply(
                    batch, scan.columns, numbers if self._rows is None else self._rows[numbers]
                )
            yield changed
            first += len(batch)

    def _counted(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield rows without columns: the file is not read."""
        count = self.num_rows()
        for start in range(0, count, max_rows):
            yield _without_columns(min(max_rows, count - start))

    def _batches(self, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Yield the reader's rows, or those that are selected."""
        if self._rows is None:
            yield from self._reader.batches(scan)
            return
        at, count, most = 0, _FIRST_ROWS, max(scan.max_rows, self._window_rows)
        while at < len(self._rows):
            table = self._reader.read(self._rows[at : at + min(count, most)], scan)
            at += min(count, most)
            size = sum(total_bytes(batch) for batch in table.to_batches())
            count = min(4 * count, max(1, scan.max_bytes * table.num_rows // max(size, 1)))
            yield from table.combine_chunks().to_batches(max_chunksize=scan.max_rows)

    def select(self, rows: NDArray[np.int64]) -> bool:
        """Give only these rows from now on, if the reader can do that, and gives all of its rows."""
        return self._rows is None and self._reader.select(rows)

    def as_asked(self, fetcher: Fetcher) -> ShardReader | None:
        """Return the same rows of the reader that options ask for, with the same change."""
        return self._same_of(self._reader.as_asked(fetcher))

    def as_written(self, rows: pa.Schema, fetcher: Fetcher) -> ShardReader | None:
        """Return the same rows as they were written; None after a change of columns."""
        return self._same_of(self._reader.as_written(rows, fetcher)) if self._change is _NO_CHANGE else None

    def _same_of(self, reader: ShardReader | None) -> ShardReader | None:
        return None if reader is None else Mapped(reader, self._change, self._rows, self._window_rows)

    # Samples

    @property
    def copies(self) -> bool:
        """Whether the reader returns copies."""
        return self._reader.copies

    def num_samples(self) -> int:
        """Return the number of samples."""
        return self._reader.num_samples() if self._rows is None else len(self._rows)

    def samples_from(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first sample that begins at each of these rows or behind it, and the row where."""
        return self._reader.samples_from(rows)

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many samples of the shard are read to read one."""
        return self._reader.samples_at_once()

    def layout_findings(self) -> Sequence[Finding]:
        """Return problems in the order of items."""
        return self._reader.layout_findings()

    def settled(self, options: InterleavedOptions) -> InterleavedOptions:
        """Return the options completed with what the shard decides."""
        return self._reader.settled(options)

    def image_lists(self) -> ImageLists:
        """Return the lists with one entry an image."""
        return self._reader.image_lists()

    # The file

    @property
    def counts(self) -> Counter[str]:
        """Counts of the reader."""
        return self._reader.counts

    @property
    def read_share(self) -> float | None:
        """Return the share of the file that is read by the latest batch."""
        return self._reader.read_share

    @property
    def held_bytes(self) -> int | None:
        """Return the memory that the reader takes between two reads."""
        return self._reader.held_bytes

    def index(self) -> pa.Table | None:
        """Return the reader's index, of all its rows."""
        return self._reader.index()

    def rows_at_once(self) -> int:
        """Return how many rows the reader reads to read one."""
        return self._reader.rows_at_once()

    def rows_of_batch(self) -> int:
        """Return how many rows the reader reads at once where most of them are wanted."""
        return self._reader.rows_of_batch()

    def detach(self) -> int | None:
        """Close files, and keep what `batches` would look up again; None for selected rows, which `read` reads."""
        return self._reader.detach() if self._rows is None else None

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def _without_columns(count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(count)], ["none"]).select([])


def selected_rows(reader: ShardReader, rows: NDArray[np.int64] | None, *, window_rows: int = 0) -> ShardReader:
    """Return a reader with only these rows, as its rows 0, 1 …; the reader itself for None.

    Args:
        reader: the reader.
        rows: numbers of its rows, in any order.
        window_rows: rows to read at once, if their bytes allow it, although batches have fewer. If the rows are
            scattered over the shard, each reading may go through all of it.
    """
    return reader if rows is None else Mapped(reader, rows=rows, window_rows=window_rows)
