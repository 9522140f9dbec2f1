"""The unit that every stage of the pipeline takes and gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import align_table
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import row_bytes, total_bytes
from lading._core.features.items import lineage_of
from lading._core.features.row_layout import RowLayout, row_layout
from lading._core.formats.base import Ranges
from lading.errors import DataError

__all__ = ["Batch"]


@dataclass(frozen=True)
class Batch:
    """Rows of whole samples, with sample starts and sizes that are computed once and sliced along.

    Attributes:
        rows: the rows; payload as bytes, views or references.
        view: `samples` or `interleaved`.
        ranges: columns whose values the writer takes from files of this machine, and where these values lie.
    """

    rows: pa.RecordBatch
    view: str
    ranges: Ranges = field(default_factory=dict)

    @property
    def row_layout(self) -> RowLayout:
        """The meaning of a row."""
        return row_layout(self.view)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.rows.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self.rows.schema

    @cached_property
    def files(self) -> Sequence[str]:
        """The files that the rows came from."""
        return lineage_of(self.rows.schema)

    @property
    def has_references(self) -> bool:
        """Whether values of a column are references."""
        return any(is_ref(kind) for kind in self.rows.schema.types)

    @cached_property
    def row_numbers(self) -> NDArray[np.int64] | None:
        """Number of each row in its shard; None unless its reader says it (`knowing`)."""
        return None

    @cached_property
    def source_share(self) -> float | None:
        """Share of the source that is read with the last row; None unless its reader says it (`knowing`)."""
        return None

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First row of each sample."""
        return self.row_layout.firsts(self.rows)

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self.starts)

    @cached_property
    def row_bytes(self) -> NDArray[np.int64]:
        """Bytes of each row's values, including values that lie in files."""
        if not self.ranges:
            return row_bytes(self.rows)
        sizes = row_bytes(self.rows.drop_columns(list(self.ranges)))
        for where in self.ranges.values():
            sizes += where.length
        return sizes

    @cached_property
    def size_bytes(self) -> int:
        """Bytes of all values."""
        if self.ranges or "row_bytes" in vars(self):
            return int(self.row_bytes.sum())
        return total_bytes(self.rows)

    def slice(self, first: int, stop: int) -> Batch:
        """Return rows from `first` to before `stop`; both must be bounds of samples."""
        if first == 0 and stop == self.num_rows:
            return self
        ranges = {name: where[first:stop] for name, where in self.ranges.items()}
        part, known = Batch(self.rows.slice(first, stop - first), self.view, ranges), vars(self)
        if "starts" in known:
            begin, end = np.searchsorted(self.starts, (first, stop))
            part.knowing(starts=self.starts[begin:end] - first)
        if self.row_numbers is not None:
            part.knowing(row_numbers=self.row_numbers[first:stop])
        if "row_bytes" in known:
            part.knowing(row_bytes=self.row_bytes[first:stop])
        return part.knowing(source_share=self.source_share)

    def with_rows(self, rows: pa.RecordBatch, *, ranges: Ranges | None = None, same_sizes: bool = False) -> Batch:
        """Return the same samples with other columns.

        Args:
            rows: as many rows as before, of the same samples.
            ranges: columns whose values the writer takes from files; by default as before.
            same_sizes: whether every value has as many bytes as before.
        """
        if rows is self.rows and ranges is None:
            return self
        made = Batch(rows, self.view, self.ranges if ranges is None else ranges)
        wanted = ("starts", "row_numbers", "source_share", *(("row_bytes", "size_bytes") if same_sizes else ()))
        return made.knowing(**{name: value for name, value in vars(self).items() if name in wanted})

    def aligned(self, schema: pa.Schema) -> Batch:
        """Return the same samples with the columns of a schema; see `align_table`."""
        own = self.rows.schema
        if own.remove_metadata().equals(schema.remove_metadata(), check_metadata=True):
            more = {*(schema.metadata or {})} - {*(own.metadata or {})}
            if not more and all(field.nullable for field in own):
                return self
        return self.with_rows(align_table(self.rows, schema))

    def knowing(self, **known: Any) -> Batch:
        """Set properties that were found on the way; return this batch."""
        vars(self).update(known)
        return self

    @contextmanager
    def naming_files(self) -> Iterator[None]:
        """Let errors of the body's data name the files of these rows: writers count rows in another way."""
        try:
            yield
        except DataError as error:
            if files := self.files:
                more = f" and {len(files) - 1} other files" if len(files) > 1 else ""
                error.message += f" (in rows of {files[0]}{more})"
            raise
