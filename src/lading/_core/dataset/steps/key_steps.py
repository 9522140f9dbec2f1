"""Steps that go by keys of samples: join, split, dedup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import floor, fsum, isnan
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.dataset.order.dedup import find_duplicates
from lading._core.dataset.order.groups import group_places
from lading._core.dataset.order.numbers import numbers_at, random_order
from lading._core.dataset.steps.base import (
    Applied,
    AppliedEach,
    Columns,
    Known,
    OrderStep,
    Step,
    StepContext,
    columns_of_names,
    no_such_column,
)
from lading._core.dataset.transform.join_table import JoinTable
from lading._core.dataset.transform.traced_batch import TracedBatch, taken, without_samples
from lading._core.dataset.values.field_values import columns_of
from lading._core.dataset.values.sample_values import sample_values
from lading._core.features.items import sample_rows
from lading._core.units import count
from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.dataset.order.numbers import Look, Numbers

__all__ = ["Dedup", "How", "Join", "Keep", "Split", "SplitByGroup", "has_split", "split_by_group"]

How: TypeAlias = Literal["left", "inner"]
"""Of samples without a row in the table: keep them, with nulls; or leave them out."""

Keep: TypeAlias = Literal["first", "last"]
"""Which of several equal samples is kept."""


@dataclass(frozen=True, slots=True)
class Join(Step):
    """Add the columns of a table's row to each sample with the same key.

    Attributes:
        table: the table.
        on: field of the samples that holds the key.
        how: `left` keeps samples without a row, `inner` leaves them out.
    """

    table: JoinTable
    on: str
    how: How = "left"

    changes_columns: ClassVar[bool] = True
    keeps_names: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    asks_schema: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse another kind of join."""
        if self.how not in get_args(How):
            raise UsageError("no such join", expected=" or ".join(get_args(How)), found=f"how={self.how!r}")

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the column of its key."""
        return columns_of_names([self.on], known)

    @property
    def keeps_samples(self) -> bool:
        """Whether samples without a row stay."""
        return self.how == "left"

    def without_choice(self) -> Join:
        """Return the join that keeps all samples."""
        return replace(self, how="left")

    @property
    def adds(self) -> tuple[str, ...]:
        """The columns of the table."""
        return tuple(self.table.schema.names)

    @property
    def adds_to_samples(self) -> tuple[str, ...]:
        """The columns of the table."""
        return self.adds

    def named(self, added: Collection[str]) -> tuple[str, ...]:
        """Return the column of its key."""
        return tuple(self.looked_at(added))

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:
        """Return the wanted columns of the samples, and that of the key."""
        left = wanted if wanted.inverted else wanted.without(self.adds)
        return left.with_(*columns_of([self.on], known.schema))

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with the columns of the table. Raises UsageError for columns that are on both sides."""
        for name in self.named(()):
            if name not in schema.names:
                raise no_such_column(name, schema.names)
        _refuse_both(self.table, schema.names)
        return pa.schema([*schema, *self.table.schema], metadata=schema.metadata)

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        return _Joined(self, context)

    def __repr__(self) -> str:
        how = "" if self.how == "left" else f", how={self.how!r}"
        return f"join({self.table.name!r}, on={ {self.on: self.table.key}!r}{how})"


@dataclass(frozen=True, slots=True)
class SplitByGroup(Step):
    """Keep the samples of one split, where samples with the same values of some fields are in the same split.

    Attributes:
        shares: of all splits, their names and fractions, in order.
        name: of the split.
        by: the fields.
        seed: another seed puts groups into other splits.
    """

    shares: tuple[tuple[str, float], ...]
    name: str
    by: tuple[str, ...]
    seed: int = 0

    reads_values: ClassVar[bool] = True

    @property
    def bounds(self) -> tuple[float, float]:
        """The fractions of all groups between which the split lies; the last split ends at 1."""
        names = [name for name, _ in self.shares]
        at, ends = names.index(self.name), list(accumulate(share for _, share in self.shares))
        return (ends[at - 1] if at else 0.0), (ends[at] if at + 1 < len(ends) else 1.0)

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the columns of its fields."""
        return columns_of_names(self.by, known)

    @property
    def keeps_samples(self) -> bool:
        """Only those of the split."""
        return False

    def changes_rows(self, view: str) -> bool:  # noqa: ARG002 - of any view
        """It changes none."""
        return False

    def named(self, added: Collection[str]) -> tuple[str, ...]:
        """Return the columns of its fields."""
        return tuple(self.looked_at(added))

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:
        """Return the wanted columns, those of its fields and the key."""
        return wanted.with_(*columns_of(self.by, known.schema), known.row_layout.key)

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work. Samples of other splits are not reported."""
        return AppliedEach(partial(_of_split, self, context))

    def __repr__(self) -> str:
        by = self.by[0] if len(self.by) == 1 else list(self.by)
        return f"split({dict(self.shares)!r}, seed={self.seed}, by={by!r})[{self.name!r}]"


def split_by_group(steps: Iterable[Step]) -> SplitByGroup | None:
    """Return the first of some steps that keeps a split by groups, if one does."""
    return next((step for step in steps if isinstance(step, SplitByGroup)), None)


def has_split(steps: Iterable[Step]) -> bool:
    """Return whether a step keeps a split of exact size."""
    return any(isinstance(step, Split) for step in steps)


@dataclass(frozen=True, slots=True)
class Split(OrderStep):
    """Keep the samples of one split of exact size, chosen at random, in the order of the source.

    Attributes:
        shares: of all splits: a fraction, a number of samples, or None for the rest.
        name: of the split.
        seed: another seed chooses other samples.
    """

    shares: tuple[tuple[str, float | int | None], ...]
    name: str
    seed: int = 0

    def counts(self, total: int) -> list[int]:
        """Return the number of samples of each split; fractions by largest remainder.

        Raises:
            UsageError: there are fewer samples than the splits ask for, or more.
        """
        exact = [
            share * total if isinstance(share, float) else float("nan" if share is None else share)
            for _, share in self.shares
        ]
        rest = [i for i, share in enumerate(exact) if isnan(share)]
        counts = [0 if isnan(share) else floor(share) for share in exact]
        if not rest:
            left = round(fsum(exact)) - sum(counts)
            largest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
            for i in largest[:left]:
                counts[i] += 1
        else:
            counts = [0 if isnan(share) else round(share) for share in exact]
            counts[rest[0]] = total - sum(counts)
        if sum(counts) != total or min(counts) < 0:
            asked = ", ".join(f"{name} {count:,}" for (name, _), count in zip(self.shares, counts, strict=True))
            raise UsageError("the splits do not add up to the samples that are there", expected=count(total, "sample"),
                             found=asked, advice="One may be the rest: --split-into train=rest,val=0.1.")  # fmt: skip
        return counts

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:  # noqa: ARG002 - as of all steps
        """Return the numbers of the samples of the split, in their order."""
        names, counts = [name for name, _ in self.shares], self.counts(len(numbers))
        at = names.index(self.name)
        if not counts[at]:
            asked = f"{count(len(numbers), 'sample')} for {self!r}"
            raise UsageError(f"the split {self.name!r} would be empty", found=asked,
                             advice="Give it a larger fraction, or a number of samples.")  # fmt: skip
        first = sum(counts[:at])
        return numbers_at(numbers, np.sort(random_order(len(numbers), self.seed)[first : first + counts[at]]))

    def __repr__(self) -> str:
        return f"split({dict(self.shares)!r}, seed={self.seed})[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class Dedup(OrderStep):
    """Keep one of the samples that are equal in some fields.

    Attributes:
        by: the fields; None for the content: all of a sample but its key.
        keep: the `first` or the `last` one.
    """

    by: tuple[str, ...] | None
    keep: Keep = "first"

    phase: ClassVar[str] = "looking for duplicates"

    def __post_init__(self) -> None:
        """Refuse no field, and another choice."""
        if self.by is not None and not self.by:
            raise UsageError("duplicates are equal in at least one field", found="by=[]")
        if self.keep not in get_args(Keep):
            raise UsageError("no such choice", expected=" or ".join(get_args(Keep)), found=f"keep={self.keep!r}")

    @property
    def shown(self) -> str:
        """Return the fields as text, for reports."""
        return "content" if self.by is None else " and ".join(self.by)

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the columns of its fields."""
        return columns_of_names(self.by or (), known)

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:
        """Return the numbers without those of duplicates."""
        found = find_duplicates(look, self.by, keep_last=self.keep == "last")
        if found.nulls:
            look.report(f"samples without a value of {self.shown}, kept", found.nulls)
        if not len(found.dropped):
            return numbers
        look.leave_out(
            f"duplicates by {self.shown}", numbers_at(numbers, found.dropped), numbers_at(numbers, found.kept)
        )
        kept = np.ones(found.count, np.bool_)
        kept[found.dropped] = False
        return numbers_at(numbers, np.flatnonzero(kept))

    def __repr__(self) -> str:
        by = "content" if self.by is None else self.by[0] if len(self.by) == 1 else list(self.by)
        keep = "" if self.keep == "first" else f", keep={self.keep!r}"
        return f"dedup(by={by!r}{keep})"


class _Joined(Applied):
    """A join at work.

    Attributes:
        found: which rows of the table a sample was found for.
    """

    def __init__(self, step: Join, context: StepContext) -> None:
        self._step, self._context = step, context
        self.found = np.zeros(len(step.table.values), np.bool_)

    def unmatched(self) -> Counter[str]:
        """Return the rows of the table for which there was no sample so far."""
        return Counter({f"rows of {self._step.table.name} without a sample": int(np.sum(~self.found))})

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        """Return the samples with the columns of the table; of an inner join, those with a row in it."""
        step, context = self._step, self._context
        places = self._places(traced.batch)
        missing = places < 0
        if missing.any():
            why = f"samples without a row in {step.table.name}"
            if step.how == "left":
                context.counts[why] += int(missing.sum())
            else:
                firsts = context.row_layout.bounds(traced.batch)
                lost = sample_rows(firsts, np.flatnonzero(missing))
                traced = without_samples(traced, lost, why, context.view)
                places = places[~missing]
        return replace(traced, batch=self._with_columns(traced.batch, places))

    def _places(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the table's row of each sample, −1 where there is none."""
        [keys] = sample_values(batch, [self._step.on], self._context.view, self._context.fetcher)
        places = self._step.table.find(keys, self._step.on)
        self.found[places[places >= 0]] = True
        return places

    def _with_columns(self, batch: pa.RecordBatch, places: NDArray[np.int64]) -> pa.RecordBatch:
        """Return the batch with the columns of the table; in a document the values stand on its first row."""
        table = self._step.table
        _refuse_both(table, batch.schema.names)
        rows = np.full(batch.num_rows, -1, np.int64)
        rows[self._context.row_layout.firsts(batch)] = places
        index = pa.array(rows, mask=rows < 0)
        columns = [*batch.columns, *(column.take(index).combine_chunks() for column in table.values.columns)]
        schema = pa.schema([*batch.schema, *table.schema], metadata=batch.schema.metadata)
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_split(step: SplitByGroup, context: StepContext, traced: TracedBatch) -> TracedBatch:
    batch = traced.batch
    if not batch.num_rows:
        return traced
    firsts = context.row_layout.bounds(batch)
    low, high = step.bounds
    places = group_places(batch, step.by, step.seed, context.view, context.fetcher)
    wanted = np.flatnonzero((low <= places) & (places < high))
    return taken(traced, sample_rows(firsts, wanted), context.view)


def _refuse_both(table: JoinTable, names: Sequence[str]) -> None:
    both = [name for name in table.schema.names if name in names]
    if both:
        others = [name for name in table.schema.names if name not in both]
        choice = (
            f"Choose columns of the table with --join-columns {','.join(others)}, or rename" if others else "Rename"
        )
        raise UsageError("columns are in the samples and in the table", file=table.name, found=", ".join(both),
                         advice=f"{choice} those of the table first, with --rename {both[0]}={both[0]}_2.")  # fmt: skip
