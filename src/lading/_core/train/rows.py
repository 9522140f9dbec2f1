"""Rows of samples by their numbers: in tables, of each dataset, with the bytes of each batch.

Values of local files stay in the maps of the files until a batch is made. Those of remote stores are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref
from lading._core.arrow.views import held_buffers, is_bytes, is_text, is_view, row_bytes, total_bytes
from lading._core.dataset.opened import OpenDataset
from lading._core.features.row_layout import row_layout
from lading._core.storage.local import LocalMap, maps_of
from lading._core.train.feed import Parts

__all__ = ["PADDING", "DatasetRows", "RowReader"]

PADDING: Final = "__padding__"
"""Column that says which samples of a batch fill it up, and come again in the epoch."""

_SMALL_BYTES: Final = 4 << 10
"""Of a value on average: to copy one takes less than to check its file, which takes 5 µs."""


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """Rows of those samples of a batch that one dataset has.

    Attributes:
        dataset: of the samples.
        table: the rows.
        places: of the samples in the batch.
        mapped: numbers of the columns whose values are left in maps of files.
    """

    dataset: OpenDataset
    table: pa.Table
    places: NDArray[np.int64]
    mapped: Sequence[int] = ()

    def maps(self) -> list[LocalMap]:
        """The maps of files that values are left in."""
        return maps_of(buffer for i in self.mapped for buffer in held_buffers(self.table.column(i)))

    def padded(self, padding: NDArray[np.bool_]) -> pa.Table:
        """The rows with the column that says which are of samples that fill up the batch."""
        bounds = row_layout(self.dataset.view).bounds(self.table)
        return self.table.append_column(PADDING, pa.array(np.repeat(padding[self.places], np.diff(bounds))))


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads the rows of samples.

    Attributes:
        parts: the samples.
        columns: columns to read; None for all.
        decodes: whether values are decoded: of rows that are not, small values stay views.
        views: whether values stay in the maps of files. Views of the answers of a remote store would keep the gaps
            between samples in memory.
    """

    parts: Parts
    columns: Sequence[str] | None
    decodes: bool
    views: bool

    def batches(self, numbers: NDArray[np.int64], lengths: Sequence[int]) -> tuple[list[list[DatasetRows]], list[int]]:
        """Return the rows of consecutive batches by dataset, and the bytes of each batch.

        Args:
            numbers: of the samples of all batches.
            lengths: number of the samples of each batch.
        """
        bounds, found = np.cumsum([0, *lengths]), [list[DatasetRows]() for _ in lengths]
        firsts, sizes = [first for first, _ in self.parts], [0] * len(lengths)
        part = np.searchsorted(firsts, numbers, "right") - 1
        for i in np.unique(part).tolist():
            first, dataset = self.parts[i]
            mine = np.flatnonzero(part == i)
            for table, row in self._taken(dataset, numbers[mine] - first):
                places, mine = np.split(mine, [len(row) - 1])
                size = np.cumsum(np.concatenate([[0], *map(row_bytes, table.to_batches())]))
                mapped = [i for i, column in enumerate(table.columns) if maps_of(held_buffers(column))]
                for batch, (begin, end) in enumerate(pairwise(np.searchsorted(places, bounds).tolist())):
                    if begin < end:
                        rows = table.slice(row[begin], row[end] - row[begin])
                        sizes[batch] += int(size[row[end]] - size[row[begin]])
                        found[batch].append(DatasetRows(dataset, rows, places[begin:end] - bounds[batch], mapped))
        return found, sizes

    def _taken(self, dataset: OpenDataset, numbers: NDArray[np.int64]) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
        """Rows of samples in tables, with the first row of each sample and the end of the last one.

        One table, unless documents of one id are neighbours: only tables of their own tell these apart.
        """
        columns, views = self._columns_of(dataset), self.views
        table = dataset.take(numbers, columns, views=views)
        if views and self.decodes:  # else tables would differ in their types
            table = _without_small_views(table)
        if not row_layout(dataset.view).has_items:
            schema = dataset.first_schema
            if columns is not None:
                schema = pa.schema([schema.field(name) for name in columns if name in schema.names])
            table = _with_all(table, schema, views=views)
        row = row_layout(dataset.view).bounds(table)
        if len(row) == len(numbers) + 1:
            yield table, row
        else:
            for half in np.array_split(numbers, 2):
                yield from self._taken(dataset, half)

    def _columns_of(self, dataset: OpenDataset) -> Sequence[str] | None:
        """The columns that are read of a dataset: of several, those that it has, or one; of documents whole items."""
        names = self.columns
        if names is None:
            return None
        layout = row_layout(dataset.view)
        if layout.has_items:
            asked = {*names, *(layout.always_kept if "items" in names else layout.required)}
            return [name for name in dataset.columns if name in asked]
        if len(self.parts) == 1:
            return names
        return [name for name in names if name in dataset.columns] or dataset.columns[:1]


def _without_small_views(table: pa.Table) -> pa.Table:
    """The rows with small values copied out of the maps of files: before a batch is made, its maps must be checked."""
    for i, field in enumerate(table.schema):
        column = table.column(i)
        if is_view(field.type) and sum(map(total_bytes, table.select([i]).to_batches())) < _SMALL_BYTES * len(column):
            maps = maps_of(held_buffers(column))
            for mapped in maps:
                mapped.check()
            kind = pa.large_string() if is_text(field.type) else pa.large_binary()
            table = table.set_column(i, field.with_type(kind), column.cast(kind))
            for mapped in maps:
                mapped.check()
    return table


def _with_all(table: pa.Table, schema: pa.Schema, *, views: bool) -> pa.Table:
    """The rows with all columns of a schema, in its order, and with its types where no row has a value.

    A tar has no column, or one without a feature, where all samples lack the field.
    """
    given = {
        field.name: field
        for field, column in zip(table.schema, table.columns, strict=True)
        if field.name not in schema.names or column.null_count < len(column)
    }
    if [*given][: len(schema)] == schema.names:
        return table
    stored = pa.binary_view() if views else pa.large_binary()
    stored = next((field.type for field in given.values() if is_bytes(field.type)), stored)
    fields = [given.get(field.name, field) for field in schema]
    fields += [field for field in table.schema if field.name not in schema.names]
    for i, field in enumerate(fields):
        if field.name not in given and (is_ref(field.type) or is_bytes(field.type)):
            fields[i] = field.with_type(stored)
    columns = [
        table.column(field.name) if field.name in given else pa.nulls(len(table), field.type) for field in fields
    ]
    return pa.table(columns, pa.schema(fields, table.schema.metadata))
