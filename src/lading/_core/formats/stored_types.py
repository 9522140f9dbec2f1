"""Read rows of files without column types in the types that the manifest stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import align_table
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardReader
from lading.errors import SchemaMismatch, errors_at

__all__ = ["StoredTypes"]


class StoredTypes(ShardReader):
    """A text shard whose rows have the columns that they were written with.

    Args:
        reader: the open shard.
        schema: schema of the written rows.
        path: path of the shard, for errors.

    Attributes:
        counts: counts of the reader.
    """

    def __init__(self, reader: ShardReader, schema: pa.Schema, path: str) -> None:
        self._reader, self._schema, self._path = reader, schema, path
        self._checked = not reader.declares_types

    def schema(self) -> pa.Schema:
        """Return the columns as they were written."""
        return self._schema

    def num_rows(self) -> int:
        """Return the number of rows."""
        return self._reader.num_rows()

    def index(self) -> pa.Table:
        """Return the reader's index."""
        return self._reader.index()

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal, in the given order. Raises as `batches`."""
        target = self._chosen(scan.columns)
        with errors_at(file=self._path):
            if rows is not None and not self._reader.declares_types:
                names = None if scan.columns is None else target.names
                return self._reader.read(rows, Scan(names, self._schema))
            return align_table(self._reader.read(rows, Scan(target.names)), target)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order.

        Raises:
            SchemaMismatch: a value does not have its column's type, or the file has other columns than were written.
        """
        target = self._chosen(scan.columns)
        reader = self._reader
        if not reader.declares_types:
            names = None if scan.columns is None else target.names
            yield from reader.batches(replace(scan, columns=names, schema=self._schema, views=False))
        else:
            for batch in reader.batches(replace(scan, columns=target.names, schema=None)):
                with errors_at(file=self._path):
                    yield align_table(batch, target)
        self.counts = self._reader.counts

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _check_names(self) -> None:
        """Raise SchemaMismatch for a file with other columns, if it names its columns; checked once."""
        if self._checked:
            return
        expected, found = self._schema.names, self._reader.schema().names
        if sorted(found) != sorted(expected):
            raise SchemaMismatch("the columns of the file are not those that the manifest says were written",
                                 file=self._path, expected=", ".join(expected), found=", ".join(found),
                                 advice="Read it with the options of its writer: --option delimiter=tab.")  # fmt: skip
        self._checked = True

    def _chosen(self, columns: Sequence[str] | None) -> pa.Schema:
        self._check_names()
        known = dict.fromkeys(self._schema.names)
        names = known if columns is None else [name for name in dict.fromkeys(columns) if name in known]
        return pa.schema([self._schema.field(name) for name in names], metadata=self._schema.metadata)
