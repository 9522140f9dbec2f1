"""Views of one shard of a concatenated dataset: behind the steps of its part, and with the columns of all parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.json_columns import fit_json
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import is_bytes
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.order.numbers import Numbers
from lading._core.dataset.order.source_rows import other_count
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.sequence import has_map
from lading._core.dataset.writing.outcomes import Outcomes
from lading._core.features.casts import cast_column
from lading._core.features.items import KEY
from lading._core.features.natural import in_natural_type
from lading._core.features.row_layout import row_layout
from lading._core.formats.base import DEFAULT_SCAN, Change, Scan, SchemaBefore, ShardReader
from lading._core.interleaved.typed import fetched_column
from lading._core.storage.fetch import Fetcher

__all__ = ["PartColumns", "PartSchema", "StepsView"]

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
_KEY_DIGITS = 9


class StepsView(ShardReader):
    """One shard, or all shards of a part, behind the steps of the part.

    Args:
        chosen: the samples behind the steps.
        shards: the shards of the part.
        number: the shard; None for all of them, where steps count samples or put them in order.
        numbers: numbers of the samples in the part, by shard, that were found before; added to.
    """

    may_join = copies = False

    def __init__(
        self, chosen: ChosenSamples, shards: Shards, number: int | None, numbers: dict[int | None, Numbers]
    ) -> None:
        self._chosen, self._shards, self._number, self._known = chosen, shards, number, numbers

    def schema(self) -> pa.Schema:
        """Return the columns behind the steps."""
        of_shard = self._number is not None and self._shards.target is None
        whole = self._shards.open_shard(self._number).schema() if of_shard else self._shards.schema  # type: ignore[arg-type] # a number
        return self._chosen.schema_from(whole)

    def index(self) -> None:
        """Return None: an index is of a file."""

    def num_samples(self) -> int:
        """Return the number of samples; behind a condition, one pass counts them."""
        return len(self._numbers())

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield the rows behind the steps."""
        outcomes = Outcomes()
        self._chosen.note_before_list(outcomes)
        for traced in self._chosen.traced_batches(
            scan.columns, scan.max_rows, scan.max_bytes, views=scan.views, shards=self._read, outcomes=outcomes
        ):
            yield self._asked(traced.batch, scan)
        self.counts.update((self._shards.counts | self._chosen.reported) + outcomes.counts)
        self._shards.counts.clear()

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the rows of samples by ordinal behind the steps."""
        numbers = np.asarray(self._numbers(), np.int64)
        numbers = numbers if rows is None else numbers[rows]
        return self._asked(self._chosen.made(numbers, self._chosen.steps, scan.columns), scan)

    def _asked(self, rows: _Rows, scan: Scan) -> _Rows:
        """The rows without columns that only the steps looked at."""
        if not scan.columns:
            return rows
        placing = row_layout(self._shards.view).placing
        return rows.select([name for name in rows.schema.names if name in scan.columns or name in placing])

    def close(self) -> None:
        """Leave the shards open: they are the part's."""

    @property
    def _read(self) -> range | None:
        return None if self._number is None else range(self._number, self._number + 1)

    def _numbers(self) -> Numbers:
        """The number in the part of each sample."""
        if self._number not in self._known:
            self._known[self._number] = self._chosen.numbers if self._number is None else self._passed(self._number)
        return self._known[self._number]

    def _passed(self, shard: int) -> NDArray[np.int64]:
        chosen, ends = self._chosen, self._shards.sample_ends()
        begin = int(ends[shard - 1]) if shard else 0
        found = [np.zeros(0, np.int64)]
        columns: list[str] | None = None if has_map(chosen.steps) else []
        for traced in chosen.traced_batches(columns, steps=chosen.steps, empty=True, shards=self._read):
            if traced.samples is None:
                raise other_count()
            found.append(traced.samples)
        return np.concatenate(found) + begin


@dataclass(frozen=True, slots=True)
class PartSchema:
    """The columns that rows of a part get.

    Attributes:
        own: the columns of the part, with its own types.
        all: the columns of all parts.
        prefix: text before the number in keys of rows without one; empty if rows get no keys.
    """

    own: pa.Schema
    all: pa.Schema
    prefix: str = ""

    def schema(self, schema: pa.Schema, *, whole: bool = False) -> pa.Schema:
        """Return the schema of rows that had this schema; with `whole`, also with the columns that they lack."""
        fields = [self.field(field, self._type(field)) for field in schema]
        more = [field for field in self.all if field.name not in schema.names]
        made = [field for field in more if field.name == KEY and self.prefix]
        rest = [field for field in more if whole and field not in made]
        return pa.schema(made + fields + rest, metadata=schema.metadata)

    def _type(self, field: pa.Field) -> pa.DataType:
        """The type that a column gets. Payload in files, and in views, stays there."""
        if self.all.get_field_index(field.name) < 0:
            return field.type
        wanted = self.all.field(field.name).type
        stays = is_ref(field.type) or pa.types.is_binary_view(field.type)
        return field.type if stays and is_bytes(wanted) else wanted

    def field(self, field: pa.Field, kind: pa.DataType) -> pa.Field:
        """Return a column of rows with this type, and the metadata that all parts have for it."""
        known = self.all.get_field_index(field.name) >= 0
        more = self.all.field(field.name).metadata or {} if known else {}
        return pa.field(field.name, kind, metadata={**(field.metadata or {}), **more})


@dataclass(frozen=True, slots=True)
class PartColumns(Change):
    """The columns of all parts, for a shard of one part.

    Attributes:
        columns: the columns.
        typed: whether the shard declares types, behind the steps of the part.
        fetcher: reads payload that becomes text or numbers.
        path: path of the shard, for errors.
        first: number of its first row in the part, for keys.
    """

    declares_types: ClassVar[bool] = True

    columns: PartSchema
    typed: bool
    fetcher: Fetcher
    path: str
    first: int

    def schema_after(self, before: SchemaBefore) -> pa.Schema:
        """Return the columns that the shard has, and keys; rows have nulls for those of other parts."""
        return self.columns.schema(before())

    def needed(self, scan: Scan, before: SchemaBefore) -> Scan:
        """Return the scan of the shard's own columns, at least one, in the types of its part."""
        columns = scan.columns
        if columns is not None:
            columns = [name for name in columns if name in self.columns.own.names] or before().names[:1]
        return replace(scan, columns=columns, schema=None if self.typed else self.columns.own)

    def apply(self, rows: _Rows, columns: Sequence[str] | None, numbers: NDArray[np.int64]) -> _Rows:
        """Return the rows with their new types and keys.

        Raises:
            SchemaMismatch: a value does not fit.
        """
        if isinstance(rows, pa.Table) and not self.typed:  # rows by number have types of their own
            rows = fit_json(rows, self.columns.own)
        target = self.columns.schema(rows.schema, whole=True)
        if columns is not None:
            target = pa.schema([f for f in target if f.name in columns or f.name in rows.schema.names], target.metadata)
        arrays = [self._column(rows, field, numbers) for field in target]
        return type(rows).from_arrays(arrays, schema=target)

    def _column(self, rows: _Rows, field: pa.Field, numbers: NDArray[np.int64]) -> Any:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            is_made = field.name == KEY and bool(self.columns.prefix)
            return self._keys(numbers) if is_made else pa.nulls(rows.num_rows, field.type)
        column, before = rows.column(at), rows.schema.field(at)
        if before.type == field.type:
            return column
        if is_ref(before.type):
            column = fetched_column(rows.select([field.name]), self.fetcher)
        if is_bytes(column.type) and pa.types.is_integer(field.type):
            whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            return in_natural_type(whole, field.with_type(pa.int64())).cast(field.type)
        return cast_column(column, field, before=before)

    def _keys(self, numbers: NDArray[np.int64]) -> pa.Array:
        texts = pc.utf8_lpad(pa.array(numbers + self.first).cast(pa.string()), _KEY_DIGITS, "0")
        return pc.binary_join_element_wise(self.columns.prefix, texts, "")
