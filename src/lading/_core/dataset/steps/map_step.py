"""The step that changes samples or batches by a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import align_table
from lading._core.content.media_files import Opening
from lading._core.dataset.steps.base import Applied, Columns, StepContext, refuse_no_names
from lading._core.dataset.steps.functions import (
    Function,
    FunctionStep,
    OnFunctionError,
    refuse_no_function,
    shown_error,
    shown_function,
    shown_spool,
)
from lading._core.dataset.transform.function_spool import SampleRows, StepSpool, called, kept_rows, whole_rows
from lading._core.dataset.transform.sample_functions import SampleMap, of_batch
from lading._core.dataset.transform.traced_batch import TracedBatch, without_failed
from lading._core.features.image_lists import follow_images
from lading._core.features.items import without_source
from lading._core.features.row_layout import ITEMS, row_layout
from lading._core.features.stored_values import declared_field
from lading.errors import UsageError

__all__ = ["Map"]


@dataclass(frozen=True, slots=True)
class Map(FunctionStep):
    """Merge the dict that a function returns into its sample; or replace each batch by the batch that it returns.

    Attributes:
        function: called with each sample, a dict of decoded values; or with each batch.
        columns: name and declared type of new and changed columns; None: the first samples decide.
        on_error: as of `Filter`.
        batched: as of `Filter`.
        opening: as of `Filter`.
        spool: as of `Filter`.
    """

    function: Function
    columns: tuple[tuple[str, Any], ...] | None = None
    on_error: OnFunctionError = "error"
    batched: bool = False
    opening: Opening = "upright"
    spool: bool = field(default=True, compare=False)

    keeps_names: ClassVar[bool] = False
    makes_columns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse values that cannot be called, unknown policies, and types that columns cannot have."""
        refuse_no_function(self.function, self.on_error)
        for name, kind in self.columns or ():
            refuse_no_names([name])
            declared_field(name, kind)

    @property
    def keeps_samples(self) -> bool:
        """Whether each sample stays one sample, in its place."""
        return not self.batched and self.on_error == "error"

    @property
    def replaces_batches(self) -> bool:
        """Whether the function replaces batches."""
        return self.batched

    @property
    def verb(self) -> str:
        """Name of the method that makes the step."""
        return "map_batches" if self.batched else "map"

    def left(self, names: Columns, view: str) -> Columns:  # noqa: ARG002 - as of all steps
        """Return any names: nobody knows which columns the function gives."""
        return Columns.all_but()

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        lists = context.image_lists()
        if self.batched:
            return _MappedBatches(self.function, context.view, context.schema, lists, context.spool)
        mapped = SampleMap(
            self, context.fetcher, context.view, context.schema, any_members=context.any_members, spool=context.spool
        )
        return _MappedSamples(mapped, context.view, context.schema, lists)

    def __repr__(self) -> str:
        if self.batched:
            return f"map_batches({shown_function(self.function)}{shown_spool(self.spool)})"
        columns = "" if self.columns is None else f", columns={dict(self.columns)!r}"
        return f"map({shown_function(self.function)}{columns}{shown_error(self.on_error)}{shown_spool(self.spool)})"


class _MappedBatches(Applied):
    """Has a function of the user's replace batches.

    Attributes:
        schema: of the rows that it gives; None before the first of them.
    """

    def __init__(
        self, function: Function, view: str, schema: pa.Schema | None, lists: Sequence[str], spool: StepSpool | None
    ) -> None:
        self._function, self._view, self.schema, self._lists = function, view, schema, lists
        self._spool, self._other_count = spool, False

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        batch = traced.batch
        if not batch.num_rows:
            return traced
        made = self._found(batch, traced.samples)
        made = follow_images(batch, made, None, self._lists)
        if self.schema is not None:
            made = _aligned(made, self.schema, batch.schema)
        elif made.num_rows:
            self.schema = without_source(made.schema)
        self._other_count |= len(row_layout(self._view).firsts(made)) != len(row_layout(self._view).firsts(batch))
        return replace(traced, batch=made, samples=None if self._other_count else traced.samples, rows=None)

    def _found(self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> pa.RecordBatch:
        """What the function makes of the rows, or made of them before."""
        if self._spool is None or numbers is None or self._other_count:
            return self._made(batch)
        fresh = list[tuple[pa.RecordBatch, pa.RecordBatch]]()

        def call(rows: pa.RecordBatch, _: object) -> SampleRows | None:
            fresh.append((rows, self._made(rows)))
            return kept_rows(*fresh[0], self._view)

        parts = called(self._spool, batch, numbers, self._view, call, whole=True)
        if fresh and fresh[0][0].num_rows == batch.num_rows:
            return fresh[0][1]
        whole = None if parts is None else whole_rows(parts, batch, self._view)
        return self._made(batch) if whole is None else whole

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        made = of_batch(self._function, batch, "map_batches")
        if not isinstance(made, pa.RecordBatch):
            raise UsageError("the function must return a record batch", found=type(made).__name__,
                             advice="A function over single samples goes to map.")  # fmt: skip
        if len(set(made.schema.names)) < len(made.schema):
            raise UsageError("the function gives several columns one name", found=", ".join(made.schema.names),
                             advice="Replace a column with set_column.")  # fmt: skip
        made = made.replace_schema_metadata({**(batch.schema.metadata or {}), **(made.schema.metadata or {})})
        if row_layout(self._view).has_items:
            _refuse_broken(made)
        return made


class _MappedSamples(Applied):
    """Has a function of the user's change samples; those for which it raises are left out, if a policy says so.

    Attributes:
        schema: of the rows behind it; None before the first of them.
    """

    def __init__(self, mapped: SampleMap, view: str, schema: pa.Schema | None, lists: Sequence[str]) -> None:
        self._mapped, self._view, self.schema, self._lists = mapped, view, schema, lists
        self._is_given = schema is not None

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        batch = traced.batch
        if not batch.num_rows:
            return traced
        made, failed, sources = self._mapped(batch, traced.samples)
        made = follow_images(batch, made, sources, self._lists)
        if self.schema is not None:
            if not self._is_given:
                self.schema = _with_found_types(self.schema, made.schema)
            made = _aligned(made, self.schema, batch.schema)
        elif len(failed) < len(row_layout(self._view).firsts(made)):
            self.schema = without_source(made.schema)
        moved = not np.array_equal(sources, np.arange(batch.num_rows))
        traced = replace(traced, batch=made, rows=None if moved else traced.rows)
        return without_failed(traced, failed, self._view)


def _with_found_types(schema: pa.Schema, made: pa.Schema) -> pa.Schema:
    """The schema, where columns that were null so far have the types of later rows."""
    found = {field.name: field for field in made}
    return pa.schema([found.get(f.name, f) if pa.types.is_null(f.type) else f for f in schema], schema.metadata)


def _aligned(made: pa.RecordBatch, schema: pa.Schema, before: pa.Schema) -> pa.RecordBatch:
    """What a function made, in the schema of its first rows.

    As without the function, a column that only later shards have joins the columns then.
    """
    known = {*schema.names}
    late = [field for field in made.schema if field.name not in known and field.name in before.names]
    return align_table(made, pa.schema([*schema, *late], metadata=schema.metadata))


def _refuse_broken(batch: pa.RecordBatch) -> None:
    """Raise UsageError for rows that a function made of whole samples, and that are none any more."""
    missing = [name for name in ("sample_id", "position", "modality") if name not in batch.schema.names]
    if missing:
        raise UsageError("the function drops a column that items need", column=missing[0])
    runs = len(ITEMS.firsts(batch))
    if len(batch.column("sample_id").unique()) < runs:
        raise UsageError(
            "the function separates rows of one sample",
            column="sample_id",
            advice="Rows of a sample must be neighbours, and samples must have different ids.",
        )
