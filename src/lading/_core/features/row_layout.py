"""The two meanings of a row: a sample, or an item of a sample.

What differs between the two is here, each fact and each small function under one name. `view` is the word of users for
the choice (`view="interleaved"`): a text in options, manifests and journals. `row_layout` returns its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.views import present, take_values
from lading._core.features.items import (
    INTERLEAVED_SCHEMA,
    KEY,
    METADATA_POSITION,
    RESERVED,
    duplicate_id_bounds,
    sample_firsts,
    samples_with,
)
from lading._core.features.types import feature_of

__all__ = ["ITEMS", "SAMPLES", "RowLayout", "row_layout"]

if TYPE_CHECKING:
    from lading._core.formats.format import FormatInfo

_Numbers = TypeVar("_Numbers", int, NDArray[np.int64])

_ERROR, _NO_COLUMNS = "materialize_error", pa.schema([])


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The meaning of a row: `SAMPLES` or `ITEMS`.

    Attributes:
        view: its name in options, manifests and messages.
        key: name of the column with the keys of samples.
        has_items: whether a row is an item. A sample then has several rows: neighbours with one key.
        columns_vary: whether a shard may lack columns that others have. A read of such a column is refused there.
        types_by_format: whether the format decides types and names of columns. Items have theirs in every format.
        always_kept: columns that a selection keeps unasked.
        placing: columns that tell the sample of a row, and its place there.
        reserved: columns whose names have a fixed meaning.
        required: columns without which rows do not have this layout.
        counting: columns that are read to count samples and items; empty where shards tell their number of samples.
        payload: columns of bytes that an error policy judges; their errors are in `materialize_error`.
        references: columns that lead from a row to its payload, or say why there is none.
        uncounted: columns of which statistics count no values.
        words: columns that describe the item in a few words: statistics count the words, not their lengths.
        empty_schema: columns of a dataset without rows.
    """

    view: str
    key: str
    has_items: bool
    columns_vary: bool
    types_by_format: bool
    always_kept: tuple[str, ...]
    placing: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    counting: tuple[str, ...] = ()
    payload: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    empty_schema: pa.Schema = _NO_COLUMNS

    @property
    def is_keyed(self) -> bool:
        """Whether all samples have a key."""
        return self.key in self.required

    # Rows and samples

    def firsts(self, rows: pa.RecordBatch | pa.Table) -> NDArray[np.int64]:
        """Return the first row of each sample. Raises DataError for an item without id."""
        return sample_firsts(rows, self.view)

    def bounds(self, rows: pa.RecordBatch | pa.Table) -> NDArray[np.int64]:
        """Return the first row of each sample, and the number of rows."""
        return np.append(self.firsts(rows), rows.num_rows)

    def row_of(self, samples: _Numbers) -> _Numbers | None:
        """Return the rows of samples by the samples' numbers; None where the two differ."""
        return None if self.has_items else samples

    def keys(self, rows: pa.RecordBatch | pa.Table, firsts: NDArray[np.int64] | None = None) -> pa.Array:
        """Return the key of each sample. The rows have the column of keys; `firsts` as `firsts` returns them."""
        column = rows.column(self.key)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if not self.has_items:
            return column
        return take_values(column, self.firsts(rows) if firsts is None else firsts)

    def values(self, rows: pa.RecordBatch, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the value of each sample in columns of these rows: of its items the first value that is not null."""
        if not self.has_items:
            return [*columns]
        starts = self.firsts(rows)
        found: list[pa.Array] = [take_values(column, _first_values(column, starts)) for column in columns]
        return found

    def distinct_bounds(self, rows: pa.RecordBatch, starts: NDArray[np.int64] | None = None) -> list[int]:
        """Return bounds of parts, from 0 to the number of rows, without two samples of one id.

        If the rows between such samples are dropped, the two samples would become one. `starts` as of
        `duplicate_id_bounds`.
        """
        return duplicate_id_bounds(rows.column(self.key), starts) if self.has_items else [0, rows.num_rows]

    def batches(self, table: pa.Table) -> list[pa.RecordBatch]:
        """Return the batches of a table of whole samples, without cutting a sample."""
        found: list[pa.RecordBatch] = (table.combine_chunks() if self.has_items else table).to_batches()
        return found

    def as_samples(self, rows: list[dict[str, Any]], firsts: Iterable[int]) -> list[dict[str, Any]]:
        """Return a dict for each sample, from a dict for each row; `firsts` are the first rows of samples."""
        if not self.has_items:
            return rows
        return [_document(rows[first:stop]) for first, stop in pairwise([*map(int, firsts), len(rows)])]

    # Formats

    def is_stored_as_rows(self, info: FormatInfo) -> bool:
        """Return whether a format stores the columns of rows as they are: not items as members of a tar."""
        return info.fixed_schema or not self.has_items

    def is_stored_as_members(self, info: FormatInfo) -> bool:
        """Return whether a row is a member of a tar: an item in a format that has members."""
        return self.has_items and info.interleaved == "members"

    def may_refer(self, info: FormatInfo) -> bool:
        """Return whether rows in a format may refer to payload in other files: items in a table."""
        return self.has_items and info.fixed_schema

    # Columns

    def columns_asked(self, schema: pa.Schema) -> list[str] | None:
        """Return the columns to ask a shard for, to give it this schema; None for all."""
        return None if self.columns_vary else list(schema.names)

    def image_columns(self, schema: pa.Schema) -> list[str]:
        """Return the columns that hold images."""
        if self.has_items:
            return [*self.payload]
        return [field.name for field in schema if feature_of(field).medium == "image"]

    # Filters

    def has_image(self, rows: pa.RecordBatch, name: str) -> NDArray[np.bool_]:
        """Return the rows with an image in a column of images. Items that an error policy judges have none."""
        if not self.has_items:
            return present(rows.column(name))
        image = np.asarray(pc.equal(rows.column("modality"), "image").to_numpy(zero_copy_only=False), np.bool_)
        return image & ~present(rows.column(_ERROR)) if _ERROR in rows.schema.names else image

    def judged(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return the rows that a filter may reject: not the metadata row of a sample with items."""
        if not self.has_items:
            return np.ones(rows.num_rows, np.bool_)
        item = np.asarray(rows.column("position").to_numpy() != METADATA_POSITION, np.bool_)
        return item | ~samples_with(item, self.firsts(rows))


def _first_values(column: pa.Array, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of each sample that has its first value; its first row if it has none."""
    rows = np.where(present(column), np.arange(len(column)), len(column))
    firsts: NDArray[np.int64] = np.minimum.reduceat(rows, starts) if len(starts) else starts
    ends = np.append(starts[1:], len(column))
    return np.where(firsts < ends, firsts, starts)


def _document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sample of these items: its id, its own fields, its items."""
    own: dict[str, Any] = {"sample_id": rows[0].get("sample_id")}
    items = []
    for row in rows:
        if row.get("modality") == "metadata":
            own.update({k: v for k, v in row.items() if k not in RESERVED})
        else:
            items.append({k: v for k, v in row.items() if k != "sample_id"})
    return {**own, "items": items}


SAMPLES = RowLayout("samples", KEY, has_items=False, columns_vary=True, types_by_format=True, always_kept=(KEY,))
"""A row is a sample."""

ITEMS = RowLayout(
    "interleaved",
    "sample_id",
    has_items=True,
    columns_vary=False,
    types_by_format=False,
    always_kept=RESERVED,
    placing=("sample_id", "position"),
    reserved=RESERVED,
    required=("sample_id", "position", "modality"),
    counting=("sample_id", "modality"),
    payload=("binary_content",),
    references=("source_ref", _ERROR),
    uncounted=("sample_id", "position", "source_ref"),
    words=("modality", "content_type", _ERROR),
    empty_schema=INTERLEAVED_SCHEMA,
)
"""A row is an item of a sample."""

_BY_VIEW = {layout.view: layout for layout in (SAMPLES, ITEMS)}


def row_layout(view: str) -> RowLayout:
    """Return the layout of rows in a view, one of `VIEWS`."""
    return _BY_VIEW[view]
