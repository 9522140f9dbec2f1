"""Add the columns of a table to rows, by key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.dataset.steps.key_steps import Join
from lading.dataset.transform.join_table import JoinTable
from lading.dataset.values.sample_values import sample_values
from lading.errors import UsageError
from lading.features.items import sample_firsts
from lading.storage.fetch import Fetcher

__all__ = ["Joiner", "joined_schema"]


def joined_schema(step: Join, schema: pa.Schema) -> pa.Schema:
    """Return the schema behind a join. Raises UsageError for columns that are on both sides."""
    _refuse_both(step.table, schema.names)
    return pa.schema([*schema, *step.table.schema], metadata=schema.metadata)


def _refuse_both(table: JoinTable, names: Sequence[str]) -> None:
    both = [name for name in table.schema.names if name in names]
    if both:
        others = [name for name in table.schema.names if name not in both]
        choice = (
            f"Choose columns of the table with --join-columns {','.join(others)}, or rename" if others else "Rename"
        )
        raise UsageError("columns are in the samples and in the table", file=table.name, found=", ".join(both),
                         advice=f"{choice} those of the table first, with --rename {both[0]}={both[0]}_2.")  # fmt: skip


class Joiner:
    """Joins batches with a table.

    Attributes:
        step: the join.
        found: which rows of the table a sample was found for.
    """

    def __init__(self, step: Join, view: str, fetcher: Fetcher) -> None:
        self.step, self._view, self._fetcher = step, view, fetcher
        self.found = np.zeros(len(step.table.values), np.bool_)

    def places(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the table's row of each sample, −1 where there is none."""
        [keys] = sample_values(batch, [self.step.on], self._view, self._fetcher)
        places = self.step.table.find(keys, self.step.on)
        self.found[places[places >= 0]] = True
        return places

    def joined(self, batch: pa.RecordBatch, places: NDArray[np.int64]) -> pa.RecordBatch:
        """Return the batch with the columns of the table; in a document the values stand on its first row."""
        table = self.step.table
        _refuse_both(table, batch.schema.names)
        rows = places
        if self._view == "interleaved":
            rows = np.full(batch.num_rows, -1, np.int64)
            rows[sample_firsts(batch, self._view)] = places
        index = pa.array(rows, mask=rows < 0)
        columns = [*batch.columns, *(column.take(index).combine_chunks() for column in table.values.columns)]
        schema = pa.schema([*batch.schema, *table.schema], metadata=batch.schema.metadata)
        return pa.RecordBatch.from_arrays(columns, schema=schema)
