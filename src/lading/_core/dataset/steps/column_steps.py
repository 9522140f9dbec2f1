"""The steps that choose, drop and rename columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import pyarrow as pa

from lading._core.dataset.steps.base import (
    Applied,
    AppliedEach,
    Columns,
    Known,
    Step,
    StepContext,
    no_such_column,
    refuse_no_names,
    shown_names,
)
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.features.row_layout import RowLayout, row_layout
from lading.errors import UsageError

__all__ = ["Drop", "Rename", "Select"]


class _ColumnStep(Step, ABC):
    """A step that names columns of its rows, and looks at no value."""

    __slots__ = ()

    changes_columns: ClassVar[bool] = True
    asks_schema: ClassVar[bool] = True

    @abstractmethod
    def apply(self, batch: pa.RecordBatch, view: str) -> pa.RecordBatch:
        """Return the rows with the columns that the step leaves, under the names that it gives."""

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work. Behind a function it refuses missing columns; else other shards have them."""
        return AppliedEach(partial(self._applied, context))

    def _applied(self, context: StepContext, traced: TracedBatch) -> TracedBatch:
        if context.behind_function and traced.batch.num_rows:  # a function is not called with no rows
            self._refuse_absent(traced.batch.schema.names)
        return replace(traced, batch=self.apply(traced.batch, context.view))

    def _refuse_absent(self, names: Sequence[str]) -> None:
        for name in self.named(()):
            if name not in names:
                raise no_such_column(name, names)


@dataclass(frozen=True, slots=True)
class Select(_ColumnStep):
    """Keep these columns, in this order, behind keys of samples and reserved columns of items, which always stay."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse to select nothing, and names that are no texts."""
        if not self.columns:
            raise UsageError("no column is selected", advice="Name one, or leave columns out for all of them.")
        refuse_no_names(self.columns)

    @property
    def selected(self) -> tuple[str, ...]:
        """The columns that it selects."""
        return self.columns

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return its columns."""
        return self.columns

    def left(self, names: Columns, view: str) -> Columns:
        """Return its columns, and those that always stay."""
        return Columns.of(name for name in (*self.columns, *row_layout(view).always_kept) if name in names)

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:
        """Return those of its columns that are wanted."""
        return Columns.of(name for name in (*self.columns, *known.row_layout.always_kept) if name in wanted)

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:
        """Return the schema with its columns. Raises UsageError for one that is not there."""
        self._refuse_absent(schema.names)
        return pa.schema([schema.field(name) for name in self._kept(schema.names, view)], metadata=schema.metadata)

    def apply(self, batch: pa.RecordBatch, view: str) -> pa.RecordBatch:
        """Return the rows with its columns."""
        kept = self._kept(batch.schema.names, view)
        if not kept:  # rows without columns would be none
            return pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], [self.columns[0]])
        return batch.select(kept) if kept != batch.schema.names else batch

    def _kept(self, names: Sequence[str], view: str) -> list[str]:
        """Return those of the names that it keeps, in its order."""
        always = row_layout(view).always_kept
        first = [name for name in names if name in always]
        return [*first, *(name for name in dict.fromkeys(self.columns) if name in names and name not in always)]

    def __repr__(self) -> str:
        return f"select({shown_names(self.columns)})"


@dataclass(frozen=True, slots=True)
class Drop(_ColumnStep):
    """Leave these columns out.

    Attributes:
        columns: their names.
        unasked: whether the columns were read for earlier steps alone; see `_core.dataset.transform.unlisted_fields`.
    """

    columns: tuple[str, ...]
    unasked: bool = False

    def __post_init__(self) -> None:
        """Refuse names that are no texts."""
        refuse_no_names(self.columns)

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return its columns."""
        return self.columns

    def refuse_for(self, layout: RowLayout) -> None:
        """Raise UsageError for a column without which rows are no items."""
        wrong = [name for name in self.columns if name in layout.required]
        if wrong:
            raise _needed_by_items(wrong[0], self)

    def left(self, names: Columns, view: str) -> Columns:  # noqa: ARG002 - as of all steps
        """Return the names without its columns."""
        return names.without(self.columns)

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:  # noqa: ARG002 - as of all steps
        """Return the wanted columns without its own."""
        return wanted.without(self.columns)

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema without its columns. Raises UsageError for one that is not there."""
        self._refuse_absent(schema.names)
        return pa.schema([field for field in schema if field.name not in self.columns], metadata=schema.metadata)

    def apply(self, batch: pa.RecordBatch, view: str) -> pa.RecordBatch:  # noqa: ARG002 - as of all such steps
        """Return the rows without its columns."""
        kept = [name for name in batch.schema.names if name not in self.columns]
        if not kept:
            raise UsageError("no column is left", found=repr(self))
        return batch.select(kept) if kept != batch.schema.names else batch

    def __repr__(self) -> str:
        return f"drop({shown_names(self.columns)})"


@dataclass(frozen=True, slots=True)
class Rename(_ColumnStep):
    """Give columns new names: pairs of the old and the new name."""

    names: tuple[tuple[str, str], ...]

    keeps_names: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse names that are no texts, and one new name for two columns."""
        refuse_no_names([name for pair in self.names for name in pair])
        new = [name for _, name in self.names]
        if len({*new}) < len(new):
            raise UsageError("two columns get one name", found=shown_names(new))

    @classmethod
    def of(cls, names: Mapping[str, str]) -> Rename:
        """The step that gives each key of the mapping its value as name."""
        return cls(tuple(names.items()))

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return the old names."""
        return tuple(old for old, _ in self.names)

    def sources(self, source: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the names in the source of the new names too."""
        return {**source, **{new: source.get(old, old) for old, new in self.names}}

    def refuse_for(self, layout: RowLayout) -> None:
        """Raise UsageError for a reserved column of items."""
        wrong = [name for pair in self.names for name in pair if name in layout.reserved]
        if wrong:
            raise _needed_by_items(wrong[0], self)

    def left(self, names: Columns, view: str) -> Columns:  # noqa: ARG002 - as of all steps
        """Return the names with the new in place of the old ones."""
        return names.without(self.named(())).with_(*(new for _, new in self.names))

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:  # noqa: ARG002 - as of all steps
        """Return the wanted columns under their old names."""
        return wanted.named({new: old for old, new in self.names})

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with the new names. Raises UsageError for a column that is not there, or there twice."""
        self._refuse_absent(schema.names)
        return self._renamed(schema)

    def apply(self, batch: pa.RecordBatch, view: str) -> pa.RecordBatch:  # noqa: ARG002 - as of all such steps
        """Return the rows with the new names."""
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._renamed(batch.schema))

    def _renamed(self, schema: pa.Schema) -> pa.Schema:
        new = dict(self.names)
        found = [new.get(name, name) for name in schema.names]
        if len({*found}) < len(found):
            twice = next(name for name in found if found.count(name) > 1)
            raise UsageError("a column has this name already", expected="a name that no other column has",
                             found=repr(twice), advice="Give another name, or drop the other column first.",
                             )  # fmt: skip
        fields = [field.with_name(name) for field, name in zip(schema, found, strict=True)]
        return pa.schema(fields, metadata=schema.metadata)

    def __repr__(self) -> str:
        return f"rename({dict(self.names)!r})"


def _needed_by_items(name: str, step: Step) -> UsageError:
    return UsageError("items need this column, under its own name", column=name, found=repr(step))
