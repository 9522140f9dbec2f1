"""Read rows of files without column types in the types that the manifest stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import align_table
from lading._core.formats.base import Change, Scan, SchemaBefore, ShardReader
from lading._core.formats.mapped import Mapped
from lading.errors import SchemaMismatch

__all__ = ["with_stored_types"]

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def with_stored_types(reader: ShardReader, schema: pa.Schema, path: str) -> ShardReader:
    """Return a reader whose rows have the columns that they were written with.

    Batches and `read` raise SchemaMismatch for a value without its column's type, and for a file with other columns
    than were written.

    Args:
        reader: the open shard.
        schema: schema of the written rows.
        path: path of the shard, for errors.
    """
    return Mapped(reader, _StoredTypes(schema, path, casts=reader.declares_types))


class _StoredTypes(Change):
    """The columns that rows were written with.

    Args:
        schema: schema of the written rows.
        path: path of the shard, for errors.
        casts: the file declares types, which may be others; else its reader makes values of the stored types.
    """

    declares_types = True

    def __init__(self, schema: pa.Schema, path: str, *, casts: bool) -> None:
        self._schema, self.path, self._casts = schema, path, casts
        self._checked = not casts

    def schema_after(self, before: SchemaBefore) -> pa.Schema:
        """Return the columns as they were written."""
        return self._schema

    def needed(self, scan: Scan, before: SchemaBefore) -> Scan:
        """Return the scan of the written columns. Raises SchemaMismatch for a file with other columns."""
        self._check_names(before)
        names = self._chosen(scan.columns).names
        if self._casts:
            return replace(scan, columns=names, schema=None)
        return replace(scan, columns=None if scan.columns is None else names, schema=self._schema, views=False)

    def apply(self, rows: _Rows, columns: Sequence[str] | None, numbers: NDArray[np.int64]) -> _Rows:
        """Return the rows in the stored types."""
        return align_table(rows, self._chosen(columns)) if self._casts else rows

    def _check_names(self, before: SchemaBefore) -> None:
        """Raise SchemaMismatch for a file with other columns, if it names its columns; checked once."""
        if self._checked:
            return
        expected, found = self._schema.names, before().names
        if sorted(found) != sorted(expected):
            raise SchemaMismatch("the columns of the file are not those that the manifest says were written",
                                 file=self.path, expected=", ".join(expected), found=", ".join(found),
                                 advice="Read it with the options of its writer: --option delimiter=tab.")  # fmt: skip
        self._checked = True

    def _chosen(self, columns: Sequence[str] | None) -> pa.Schema:
        known = dict.fromkeys(self._schema.names)
        names = known if columns is None else [name for name in dict.fromkeys(columns) if name in known]
        return pa.schema([self._schema.field(name) for name in names], metadata=self._schema.metadata)
