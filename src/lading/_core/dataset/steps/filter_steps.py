"""The steps that leave rows out: by a condition, by the size of images, by a function."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import ClassVar, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.content.conditions import Condition, as_where
from lading._core.content.field_paths import Wanted
from lading._core.content.media_files import Opening
from lading._core.dataset.steps.base import Applied, AppliedEach, Columns, Known, Step, StepContext
from lading._core.dataset.steps.functions import (
    Function,
    FunctionStep,
    OnFunctionError,
    refuse_no_function,
    refuse_other_error,
    shown_error,
    shown_function,
    shown_spool,
)
from lading._core.dataset.transform.function_spool import SampleRows, called, joined
from lading._core.dataset.transform.row_filters import (
    UNREADABLE,
    FailsCondition,
    OutOfBounds,
    Rejects,
    check_types,
    fails_function,
    left_rows,
)
from lading._core.dataset.transform.sample_functions import SampleFilter
from lading._core.dataset.transform.traced_batch import TracedBatch, reported, taken, without_failed
from lading._core.dataset.values.field_values import ITEMS
from lading._core.dataset.writing.outcomes import ALONG, DROPPED, FILTERED, FILTERED_ALONG, RowOutcome
from lading._core.features.image_lists import without_entries
from lading._core.features.row_layout import row_layout
from lading._core.storage.fetch import Fetcher
from lading.errors import UsageError
from lading.options import Drop as DropPolicy

__all__ = ["Filter", "ImageBounds", "Where"]


class _FilterStep(Step):
    """A step that leaves rows out. Of documents it leaves items out, or the documents that have such items."""

    __slots__ = ()

    drop: DropPolicy

    @property
    def keeps_samples(self) -> bool:
        """Some it leaves out."""
        return False

    def changes_rows(self, view: str) -> bool:
        """Return whether it takes single items of documents."""
        return row_layout(view).has_items and self.drop == "row"

    def _filtering(self, rejects: Rejects, context: StepContext) -> _Filtered:
        lists = context.image_lists() if self.drop == "row" else ()
        return _Filtered(rejects, self.drop, context.view, lists)


class _Filtered(Applied):
    """Leaves out the rows that a function over batches rejects."""

    def __init__(self, rejects: Rejects, drop: str, view: str, lists: Sequence[str]) -> None:
        self._rejects, self._drop, self._view, self._lists = rejects, drop, view, lists

    def _rejects_of(self, traced: TracedBatch) -> Rejects:  # noqa: ARG002 - functions need it
        return self._rejects

    def absent_field(self) -> Wanted | None:
        """Return a field that the condition asks for and no row had, if the condition was true for none."""
        rejects = self._rejects
        if not isinstance(rejects, FailsCondition) or rejects.has_kept or not rejects.absent:
            return None
        return rejects.absent[0]

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        """Return the rows that are left, and the outcomes of the others."""
        batch = traced.batch
        if not batch.num_rows:
            return traced
        kept, found = left_rows(self._rejects_of(traced), batch, self._view, self._drop)
        left = without_entries(batch, kept, self._lists)
        if kept.all():
            return traced
        outcome = FILTERED_ALONG if self._drop == "sample" else FILTERED
        told = [
            RowOutcome(why, DROPPED if why == UNREADABLE else outcome, batch, np.flatnonzero(failing & ~kept))
            for why, failing in found.items()
        ]
        bad = np.logical_or.reduce(list(found.values()))
        told.append(RowOutcome(ALONG, FILTERED, batch, np.flatnonzero(~bad & ~kept)))
        rows = traced.rows
        placed = tuple((None if rows is None else rows[each.rows], each) for each in told)
        return taken(
            replace(traced, batch=left, outcomes=(*traced.outcomes, *placed)), np.flatnonzero(kept), self._view
        )


class _FilteredByFunction(_Filtered):
    """Leaves out the rows for which a function over batches is not true."""

    def __init__(self, function: Function, drop: str, context: StepContext) -> None:
        rejects = partial(fails_function, function)
        super().__init__(rejects, drop, context.view, context.image_lists() if drop == "row" else ())
        self._spool = context.spool

    def _rejects_of(self, traced: TracedBatch) -> Rejects:
        return self._rejects if self._spool is None else partial(self._found, traced.samples)

    def _found(self, numbers: NDArray[np.int64] | None, batch: pa.RecordBatch) -> Mapping[str, NDArray[np.bool_]]:
        """The rejected rows, as the function says or said before."""
        if self._spool is None or numbers is None:
            return self._rejects(batch)
        parts = called(self._spool, batch, numbers, self._view, self._rejected, whole=True)
        whole = joined(parts) if parts else None
        if whole is None:
            return self._rejects(batch)
        return {name: whole.rows.column(name).to_numpy(zero_copy_only=False) for name in whole.rows.schema.names}

    def _rejected(self, batch: pa.RecordBatch, _: object) -> SampleRows:
        rows = pa.record_batch({why: pa.array(failing) for why, failing in self._rejects(batch).items()})
        counts = np.diff(row_layout(self._view).bounds(batch))
        return SampleRows(np.arange(len(counts)), counts, rows)


@dataclass(frozen=True, slots=True)
class Where(_FilterStep):
    """Keep the rows for which a condition holds.

    Attributes:
        condition: a text (`_core.content.conditions`), or a pyarrow expression.
        drop: of documents: drop the items that fail (`row`), or the documents that have such items (`sample`).
        on_error: for a sample whose values cannot be read, such as broken JSON: `error`, or `drop_sample`.
    """

    condition: str | pc.Expression
    drop: DropPolicy = "row"
    on_error: OnFunctionError = "error"

    def __post_init__(self) -> None:
        """Refuse a text that is no condition, and unknown policies."""
        _refuse_other_policy(self.drop)
        refuse_other_error(self.on_error)
        as_where(self.condition)

    def __eq__(self, other: object) -> bool:
        """Compare expressions with their own method: their `==` makes another expression."""
        if not isinstance(other, Where):
            return NotImplemented
        one, two = self.condition, other.condition
        if isinstance(one, str) or isinstance(two, str):
            same = isinstance(one, str) and isinstance(two, str) and one == two
        else:
            same = one.equals(two)
        return same and (self.drop, self.on_error) == (other.drop, other.on_error)

    def __hash__(self) -> int:
        return hash((str(self.condition), self.drop, self.on_error))

    @property
    def row_condition(self) -> Condition:
        """The condition, parsed."""
        return _parsed(self.condition) if isinstance(self.condition, str) else as_where(self.condition)

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the columns of its condition; an expression of pyarrow does not say them."""
        wanted = self.row_condition.wanted
        return list(dict.fromkeys(each.field.among(known).column for each in wanted))

    def named(self, added: Collection[str]) -> tuple[str, ...]:
        """Return the columns of its condition."""
        return tuple(self.looked_at(added))

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:
        """Return the wanted columns and those of its condition; all, if an expression does not say them."""
        names = {*self.looked_at(known.added)}
        layout = known.row_layout
        if names and layout.has_items and all(name in wanted for name in layout.required):  # they count the items
            return wanted.with_(*(names - {ITEMS}))
        return wanted.with_(*names) if names else Columns.all_but()

    def check(self, schema: pa.Schema, fetcher: Fetcher) -> None:
        """Raise UsageError if the condition does not fit the columns."""
        check_types(self.row_condition, schema, fetcher)

    @property
    def sent(self) -> dict[str, object]:
        """The condition."""
        return {"where": self.condition}

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        drops = self.on_error == "drop_sample"
        rejects = FailsCondition(self.row_condition, context.view, context.fetcher, drops_unreadable=drops)
        return self._filtering(rejects, context)

    def __repr__(self) -> str:
        return f"where({_shown_condition(self.condition)}{_shown_policy(self.drop)}{shown_error(self.on_error)})"


@dataclass(frozen=True, slots=True)
class ImageBounds(_FilterStep):
    """Keep the rows whose images are within bounds, which are inclusive.

    An image whose size cannot be read is outside all bounds.

    Attributes:
        min_side: least pixels of an image's shorter side.
        max_side: most pixels of its longer side.
        min_aspect_ratio: least width / height.
        max_aspect_ratio: most width / height.
        drop: as of `Where`.
    """

    min_side: int | None = None
    max_side: int | None = None
    min_aspect_ratio: float | None = None
    max_aspect_ratio: float | None = None
    drop: DropPolicy = "row"

    asks_schema: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse bounds that no image can be within."""
        _refuse_other_policy(self.drop)
        for low, high in (("min_aspect_ratio", "max_aspect_ratio"), ("min_side", "max_side")):
            least, most = getattr(self, low), getattr(self, high)
            if any(bound is not None and not bound >= 0 for bound in (least, most)):
                raise UsageError("a bound must be a number, 0 or more", found=f"{low}={least}, {high}={most}")
            if least is not None and most is not None and least > most:
                raise UsageError("no image is within these bounds", found=f"{low}={least}, {high}={most}")

    def fit(self, width: NDArray[np.int64], height: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which images are within the bounds."""
        ratio, short, long = width / height, np.minimum(width, height), np.maximum(width, height)
        fits = np.ones(len(width), np.bool_)
        for values, least, most in (
            (ratio, self.min_aspect_ratio, self.max_aspect_ratio),
            (short, self.min_side, None),
            (long, None, self.max_side),
        ):
            fits &= (values >= least) if least is not None else True
            fits &= (values <= most) if most is not None else True
        return fits

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:
        """Return the wanted columns and those of images; all, if they are unknown."""
        if known.schema is None:
            return Columns.all_but()
        layout = known.row_layout
        return wanted.with_(*layout.image_columns(known.schema), *layout.references)

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        return self._filtering(OutOfBounds(self, context.view, context.fetcher), context)

    def __repr__(self) -> str:
        names = ("min_side", "max_side", "min_aspect_ratio", "max_aspect_ratio")
        bounds = [f"{name}={getattr(self, name)}" for name in names if getattr(self, name) is not None]
        return f"image_bounds({', '.join(bounds)}{_shown_policy(self.drop)})"


@dataclass(frozen=True, slots=True)
class Filter(FunctionStep, _FilterStep):
    """Keep the samples for which a function says true.

    Attributes:
        function: called with each sample, a dict of decoded values; or with each batch, for a truth value of every row.
        drop: as of `Where`, of a function over batches.
        on_error: for a function over samples that raises: `error`, or `drop_sample`.
        batched: whether the function is called with batches.
        opening: how a function over samples gets images.
        spool: keep what the function gives, so that it is called once a sample, whatever steps follow.
    """

    function: Function
    drop: DropPolicy = "row"
    on_error: OnFunctionError = "error"
    batched: bool = False
    opening: Opening = "upright"
    spool: bool = field(default=True, compare=False)

    def __post_init__(self) -> None:
        """Refuse values that cannot be called, and unknown policies."""
        _refuse_other_policy(self.drop)
        refuse_no_function(self.function, self.on_error)

    @property
    def verb(self) -> str:
        """Name of the method that makes the step."""
        return "filter_batches" if self.batched else "filter"

    def changes_rows(self, view: str) -> bool:
        """Return whether it takes single items of documents."""
        return self.batched and super(Filter, self).changes_rows(view)

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        if self.batched:
            return _FilteredByFunction(self.function, self.drop, context)
        function = SampleFilter(
            self, context.fetcher, context.view, any_members=context.any_members, spool=context.spool
        )
        return AppliedEach(partial(_filtered_by_function, function, context.view))

    def __repr__(self) -> str:
        more = f"{_shown_policy(self.drop)}{shown_error(self.on_error)}{shown_spool(self.spool)}"
        return f"{self.verb}({shown_function(self.function)}{more})"


@lru_cache(maxsize=64)
def _parsed(condition: str) -> Condition:
    return as_where(condition)


def _refuse_other_policy(drop: str) -> None:
    if drop not in get_args(DropPolicy):
        raise UsageError("no such choice", expected=" or ".join(get_args(DropPolicy)), found=f"drop={drop!r}")


def _shown_condition(condition: str | pc.Expression) -> str:
    return repr(condition) if isinstance(condition, str) else str(condition)


def _shown_policy(drop: str) -> str:
    return "" if drop == "row" else f", drop={drop!r}"


def _filtered_by_function(function: SampleFilter, view: str, traced: TracedBatch) -> TracedBatch:
    batch = traced.batch
    if not batch.num_rows:
        return traced
    kept, failed = function(batch, traced.samples)
    left_out = ~kept
    left_out[list(failed)] = False
    traced = reported(traced, np.flatnonzero(left_out), ("left out by the function", FILTERED), view)
    return without_failed(traced, failed, view, kept)
