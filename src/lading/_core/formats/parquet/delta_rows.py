"""Rows of a Delta Lake table out of those of one of its files. See `_core.formats.parquet.delta_log`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardFile, Units
from lading._core.formats.parquet.deletion_vectors import deleted_rows
from lading._core.formats.parquet.delta_types import fitted, names_in_file, table_schema
from lading._core.formats.parquet.footer import Footer
from lading._core.formats.parquet.input import Input
from lading._core.formats.parquet.options import ReadOptions
from lading._core.formats.parquet.pages import GroupSpan
from lading._core.formats.parquet.reader import ParquetReader
from lading.errors import UsageError, errors_at

__all__ = ["DeltaReader"]


class DeltaReader(ParquetReader):
    """The rows of a file that are in the table, with the table's columns but those of partitions.

    Columns that the file lacks are null; other columns of the file are left out. Deleted rows have no ordinals.

    Args:
        source: the open file.
        footer: its footer.
        options: how it is read.
        file: the file; its `entry` has the columns of the table, and perhaps a deletion vector.

    Raises:
        UsageError: options about the rows of the file are given.
    """

    def __init__(self, source: Input, footer: Footer, options: ReadOptions, file: ShardFile) -> None:
        if options.filter is not None or options.row_groups is not None:
            raise UsageError("filter and row_groups are options of plain Parquet files", file=file.path,
                             found="a file of a Delta Lake table", advice="Choose rows with --where.")  # fmt: skip
        # No row filter: the file may have other names of columns.
        super().__init__(source, footer, options, None, file.span)
        told = orjson.loads(file.entry)
        self._shard, self._vector, self._log = file, told.get("vector"), told["log"]
        columns = table_schema(told["fields"], told["mode"])
        with errors_at(file=file.path):
            self._names = names_in_file(columns, super().schema())
        self._table = pa.schema([field.remove_metadata() for field in columns])

    def schema(self) -> pa.Schema:
        """Return the columns of the table."""
        return self._table

    @cached_property
    def _deleted(self) -> NDArray[np.int64]:
        """Numbers of the deleted rows, ascending."""
        if self._vector is None:
            return np.zeros(0, np.int64)
        return deleted_rows(
            self._vector, self._vector["file"], super().num_rows(), log=self._log, stores=self._shard.stores,
            limits=self._shard.limits,
        )  # fmt: skip

    def num_rows(self) -> int:
        """Return the number of rows that are not deleted."""
        return super().num_rows() - len(self._deleted)

    def units(self) -> Units | None:
        """Return the row groups; None if rows are deleted."""
        return super().units() if self._vector is None else None

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal among those that are not deleted. Raises as `batches`."""
        target = self._target(scan.columns)
        if asked := self._asked(target):
            batches = super().read(rows, Scan(asked)).to_batches()
        else:
            batches = [_bare(self.num_rows() if rows is None else len(self._ordinals_of(np.asarray(rows, np.int64))))]
        return pa.Table.from_batches([self._fitted(batch, target) for batch in batches], target)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows that are not deleted, in order. Where the file lacks all columns, it is not read.

        Raises:
            SchemaMismatch: a value does not fit the type that its column has in the table.
        """
        target = self._target(scan.columns)
        if asked := self._asked(target):
            for batch in super().batches(replace(scan, columns=asked)):
                yield self._fitted(batch, target)
        else:
            for start in range(0, count := self.num_rows(), scan.max_rows):
                yield self._fitted(_bare(min(scan.max_rows, count - start)), target)

    def _target(self, columns: Sequence[str] | None) -> pa.Schema:
        if columns is None:
            return self._table
        return pa.schema([self._table.field(name) for name in dict.fromkeys(columns) if name in self._table.names])

    def _asked(self, target: pa.Schema) -> list[str]:
        """Return the columns of the file that hold some of the table."""
        return [self._names[name] for name in target.names if name in self._names]

    def _fitted(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        """Return rows of the file as rows of the table. Views stay views."""
        columns, fields = [], []
        for field in target:
            own = self._names.get(field.name)
            with errors_at(file=self._shard.path):
                column = pa.nulls(len(batch), field.type) if own is None else fitted(batch.column(own), field)
            columns.append(column)
            fields.append(field.with_type(column.type))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)) if fields else batch.select([])

    def _kept(self, run: GroupSpan) -> NDArray[np.bool_] | None:
        """For each row of a run, whether it is not deleted; None for all rows."""
        first = int(self._footer.num_rows[: run.groups[0]].sum())
        count = sum(map(self._rows_of, run.groups))
        begin, end = np.searchsorted(self._deleted, (first, first + count))
        if begin == end:
            return None
        kept = np.ones(count, np.bool_)
        kept[self._deleted[begin:end] - first] = False
        return kept

    def _ordinals_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers in the file of rows that are not deleted."""
        numbers = super()._ordinals_of(rows)
        # A deleted row lies before the rows whose number is not below the number of rows that are left before it.
        left = self._deleted - np.arange(len(self._deleted))
        return numbers + np.searchsorted(left, numbers, side="right")


def _bare(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(rows)], ["none"])
