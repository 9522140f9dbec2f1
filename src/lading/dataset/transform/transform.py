"""Apply the steps of a dataset to batches of rows, in the order in which the user wrote them.

A batch holds whole samples and stays one. Payload stays references: no step reads it, but for the first bytes of
images. Of documents single items may go, or whole samples; a sample goes when none of its items is left, and its
metadata row never goes before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.align import align_table
from lading.arrow.views import take_rows
from lading.content.conditions import as_where
from lading.content.field_paths import Wanted
from lading.dataset.order.groups import in_split
from lading.dataset.steps.cast_step import Cast, cast_rows
from lading.dataset.steps.field_steps import Fields, with_fields
from lading.dataset.steps.key_steps import Join, SplitByGroup
from lading.dataset.steps.step import (
    Drop,
    Filter,
    Function,
    ImageBounds,
    Limit,
    Map,
    Rename,
    Rows,
    Select,
    Step,
    Where,
    names_behind,
)
from lading.dataset.transform.columns import after_columns, choose_columns
from lading.dataset.transform.joined import Joiner
from lading.dataset.transform.portion import Place, Portion, rows_of_file
from lading.dataset.transform.row_filters import FailsCondition, Rejects, check_types, left_rows, rejects_of
from lading.dataset.transform.sample_functions import SampleFilter, SampleMap, of_batch
from lading.dataset.writing.outcomes import ALONG, DROPPED, FILTERED, FILTERED_ALONG, Outcomes, RowOutcome
from lading.errors import UsageError
from lading.features.items import lineage_of, sample_firsts, sample_rows, without_source
from lading.interleaved.image_lists import follow_images, without_entries
from lading.storage.fetch import Fetcher

__all__ = ["Places", "Transform"]


Places: TypeAlias = Callable[[pa.RecordBatch, int], Place]
"""Gives the places of the rows of a batch, and is told the number of samples in the batches before it."""

_Apply: TypeAlias = Callable[[Portion], Portion]


class Transform:
    """The steps of a dataset, applied to one batch after another.

    Args:
        steps: in their order. Those that need all samples (`lading.dataset.order.order`) change no row here:
            `ChosenSamples` reads the samples behind them.
        view: how rows are taken.
        fetcher: reads the first bytes of images.
        map_schemas: of each `Map`, the schema of its rows; without it, the first batch with rows decides.
        skipped: samples before the first batch, which the first slice is not shown.
        counts: counts of what is worth a report, by a short phrase; added to.
        any_members: samples may lack members; see `Shards.takes_any_fields`.
        image_lists: gives the columns whose lists have one entry an image; asked where a step may drop or move images.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        view: str,
        fetcher: Fetcher,
        *,
        map_schemas: Sequence[pa.Schema] = (),
        skipped: int = 0,
        counts: Counter[str] | None = None,
        any_members: bool = False,
        image_lists: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._image_lists, self._before = image_lists, list[Step]()
        self._counts = Counter[str]() if counts is None else counts
        self._joiners: list[Joiner] = []
        self.view, self._fetcher, self._first = view, fetcher, skipped
        self._any_members = any_members
        self._counters: list[_Counter] = []
        self.maps: list[_Mapped | _MappedSamples] = []
        self._conditions: list[FailsCondition] = []
        given = iter(map_schemas)
        self._applied: list[_Apply] = []
        for step in steps:
            self._applied.append(self._applied_step(step, given, skipped))
            self._before.append(step)
        self._steps = steps

    def _applied_step(self, step: Step, schemas: Iterator[pa.Schema], skipped: int) -> _Apply:
        if isinstance(step, (Select, Drop, Rename)):
            return partial(_with_columns, step, self.view, strict=bool(self.maps))
        if isinstance(step, Map) or (isinstance(step, Filter) and not step.batched):
            return self._applied_function(step, schemas)
        if isinstance(step, (Where, ImageBounds, Filter)):
            rejects = rejects_of(step, self.view, self._fetcher)
            if isinstance(rejects, FailsCondition):
                self._conditions.append(rejects)
            return partial(_filtered, rejects, step.drop, self.view, self._lists() if step.drop == "row" else ())
        if isinstance(step, (Join, SplitByGroup, Fields, Cast)):
            return self._applied_by_field(step)
        if not isinstance(step, (Limit, Rows)):
            return _unchanged
        chosen = slice(0, step.count, 1) if isinstance(step, Limit) else step.slice
        self._counters.append(_Counter(chosen, self.view, 0 if self._counters else skipped))
        return self._counters[-1]

    def _lists(self) -> Sequence[str]:
        """The lists with one entry an image, as the steps so far name them."""
        return names_behind(self._before, self._image_lists())

    def _applied_by_field(self, step: Join | SplitByGroup | Fields | Cast) -> _Apply:
        if isinstance(step, Cast):
            return partial(_cast, step, self._fetcher)
        if isinstance(step, Fields):
            return partial(_with_fields, step, self._fetcher)
        if isinstance(step, SplitByGroup):
            return partial(_of_split, step, self.view, self._fetcher)
        self._joiners.append(Joiner(step, self.view, self._fetcher))
        return partial(self._joined, self._joiners[-1])

    def _applied_function(self, step: Filter | Map, schemas: Iterator[pa.Schema]) -> _Apply:
        if isinstance(step, Filter):
            return partial(
                _filtered_by_function,
                SampleFilter(step, self._fetcher, self.view, any_members=self._any_members),
                self.view,
            )
        known = next(schemas, None)
        if step.batched:
            self.maps.append(_Mapped(step.function, self.view, known, self._lists()))
        else:
            mapped = SampleMap(step, self._fetcher, self.view, known, any_members=self._any_members)
            self.maps.append(_MappedSamples(mapped, self.view, known, self._lists()))
        return self.maps[-1]

    def is_done(self) -> bool:
        """Whether no row of the batches that follow will be kept."""
        return any(counter.is_done() for counter in self._counters)

    @property
    def unmatched(self) -> Counter[str]:
        """Rows of joined tables for which there was no sample so far."""
        found = Counter[str]()
        for joiner in self._joiners:
            found[f"rows of {joiner.step.table.name} without a sample"] += int(np.sum(~joiner.found))
        return +found

    def absent_field(self) -> Wanted | None:
        """A field that a condition asks for, if no row had such a value, and the condition was true for none."""
        failing = (each.absent for each in self._conditions if not each.has_kept)
        return next((fields[0] for fields in failing if fields), None)

    def check(self, schema: pa.Schema) -> pa.Schema:
        """The schema after the steps, for rows of this schema; nothing behind a function of unknown schema is checked.

        Raises:
            UsageError: a condition does not fit, or a column is missing.
        """
        maps = iter(self.maps)
        for step in self._steps:
            if isinstance(step, (Select, Drop, Rename, Join, Fields, Cast)):
                schema = after_columns(step, schema, self.view)
            elif isinstance(step, Where):
                check_types(as_where(step.condition), schema, self._fetcher)
            elif isinstance(step, Map):
                known = next(maps).schema
                if known is None:
                    return schema
                schema = known
        return schema

    def apply(self, batch: pa.RecordBatch, place: Place | None = None) -> Portion:
        """The rows of one batch that are left, as the steps make them, and the outcomes of the others.

        Args:
            batch: the rows.
            place: gives the place of a row of the batch, for errors.

        Raises:
            UsageError: a condition or a function does not fit the columns.
        """
        ends = np.append(sample_firsts(batch, self.view)[1:], batch.num_rows)[: batch.num_rows]
        samples = np.arange(self._first, self._first + len(ends))
        self._first += len(ends)
        portion = Portion(batch, samples, np.arange(batch.num_rows), ends, place or rows_of_file(batch, None))
        for apply in self._applied:
            with portion.naming_rows():
                portion = apply(portion)
        left = [(rows, each) for rows, each in portion.outcomes if len(each.rows)]
        return replace(portion, outcomes=tuple(left))

    def _joined(self, joiner: Joiner, portion: Portion) -> Portion:
        """The samples with the columns of a table; of an inner join, those with a row in it."""
        batch, step = portion.batch, joiner.step
        places = joiner.places(batch)
        missing = places < 0
        if missing.any():
            why = f"samples without a row in {step.table.name}"
            if step.how == "left":
                self._counts[why] += int(missing.sum())
            else:
                firsts = np.append(sample_firsts(batch, self.view), batch.num_rows)
                portion = _without(portion, sample_rows(firsts, np.flatnonzero(missing)), why, self.view)
                places = places[~missing]
        return replace(portion, batch=joiner.joined(portion.batch, places))

    def portions(
        self, batches: Iterable[pa.RecordBatch], outcomes: Outcomes | None = None, places: Places | None = None
    ) -> Iterator[Portion]:
        """The rows that are left of batches, in portions; reads no further than is needed.

        Portions without rows are left out, but for those of a function that changed the number of samples.

        Args:
            batches: the rows.
            outcomes: takes the rows that are left out.
            places: gives the places of rows. Without it, the batches are all rows of shards, in order: then outcomes
                have the numbers of rows.
        """
        waiting, file, row, samples = iter(batches), [""], 0, 0
        while not self.is_done() and (batch := next(waiting, None)) is not None:
            before, file = file, lineage_of(batch.schema)
            row = row if file == before else 0
            of_file = rows_of_file(batch, range(row, row + batch.num_rows))
            portion = self.apply(batch, of_file if places is None else places(batch, samples))
            if outcomes is not None:
                for placed, each in portion.outcomes:
                    outcomes.add(each if placed is None or places is not None else replace(each, numbers=row + placed))
            row, samples = row + batch.num_rows, samples + len(portion.ends)
            if portion.batch.num_rows or portion.samples is None:
                yield portion


def _of_split(step: SplitByGroup, view: str, fetcher: Fetcher, portion: Portion) -> Portion:
    """The samples of a split. The others are in other splits, so they are not reported."""
    batch = portion.batch
    if not batch.num_rows:
        return portion
    firsts = np.append(sample_firsts(batch, view), batch.num_rows)
    return _taken(portion, sample_rows(firsts, np.flatnonzero(in_split(step, batch, view, fetcher))), view)


def _unchanged(portion: Portion) -> Portion:
    return portion


def _with_columns(step: Select | Drop | Rename, view: str, portion: Portion, *, strict: bool) -> Portion:
    strict = strict and portion.batch.num_rows > 0  # a function is not called with no rows
    return replace(portion, batch=choose_columns(step, portion.batch, view, strict=strict))


def _cast(step: Cast, fetcher: Fetcher, portion: Portion) -> Portion:
    return replace(portion, batch=cast_rows(step, portion.batch, fetcher))


def _with_fields(step: Fields, fetcher: Fetcher, portion: Portion) -> Portion:
    return replace(portion, batch=with_fields(step, portion.batch, fetcher))


def _filtered(rejects: Rejects, drop: str, view: str, lists: Sequence[str], portion: Portion) -> Portion:
    batch = portion.batch
    if not batch.num_rows:
        return portion
    kept, found = left_rows(rejects, batch, view, drop)
    left = without_entries(batch, kept, lists)
    if kept.all():
        return portion
    outcome = FILTERED_ALONG if drop == "sample" else FILTERED
    told = [RowOutcome(why, outcome, batch, np.flatnonzero(failing & ~kept)) for why, failing in found.items()]
    bad = np.logical_or.reduce(list(found.values()))
    told.append(RowOutcome(ALONG, FILTERED, batch, np.flatnonzero(~bad & ~kept)))
    rows = portion.rows
    placed = tuple((None if rows is None else rows[each.rows], each) for each in told)
    return _taken(replace(portion, batch=left, outcomes=(*portion.outcomes, *placed)), np.flatnonzero(kept), view)


def _without(portion: Portion, rows: NDArray[np.int64], why: str, view: str) -> Portion:
    """A portion without the rows of some samples, which are reported."""
    outcome = RowOutcome(why, FILTERED, portion.batch, rows)
    placed = None if portion.rows is None else portion.rows[rows]
    left = np.delete(np.arange(portion.batch.num_rows), rows)
    return _taken(replace(portion, outcomes=(*portion.outcomes, (placed, outcome))), left, view)


def _taken(portion: Portion, rows: NDArray[np.int64], view: str) -> Portion:
    """These rows of a portion, in rising order."""
    batch, samples = portion.batch, portion.samples
    if samples is not None:
        of_row = np.searchsorted(sample_firsts(batch, view), rows, side="right") - 1
        samples = samples[np.unique(of_row)]
    left = None if portion.rows is None else portion.rows[rows]
    return replace(portion, batch=take_rows(batch, rows), samples=samples, rows=left)


class _Counter:
    """Takes a slice of the samples that pass, with a start, a stop and a step that count forward."""

    def __init__(self, chosen: slice, view: str, seen: int) -> None:
        self._start, self._stop, self._step = chosen.start or 0, chosen.stop, chosen.step or 1
        self._view, self._seen = view, seen

    def is_done(self) -> bool:
        """Whether the last sample of the slice has passed."""
        return self._stop is not None and self._seen >= self._stop

    def __call__(self, portion: Portion) -> Portion:
        firsts = np.append(sample_firsts(portion.batch, self._view), portion.batch.num_rows)
        count = len(firsts) - 1
        stop = count if self._stop is None else max(min(count, self._stop - self._seen), 0)
        skip = max(self._start - self._seen, 0)
        if self._seen > self._start:
            skip = (self._start - self._seen) % self._step
        self._seen += count
        if self.is_done():
            portion = _before(portion, firsts, stop)
        if skip == 0 and self._step == 1:
            return portion
        wanted = np.arange(skip, stop, self._step, dtype=np.int64)
        return _taken(portion, sample_rows(firsts[: stop + 1], wanted), self._view)


def _before(portion: Portion, firsts: NDArray[np.int64], count: int) -> Portion:
    """The first samples of a portion. Rows that were left out behind the last of them are not reported."""
    stop = int(firsts[count])
    outcomes = portion.outcomes
    if portion.rows is not None:
        last = int(portion.rows[stop - 1]) if stop else -1
        end = int(portion.ends[np.searchsorted(portion.ends, last, side="right")]) if stop else 0
        outcomes = tuple(
            (rows, each) if rows is None else (rows[rows < end], replace(each, rows=each.rows[rows < end]))
            for rows, each in outcomes
        )
    return replace(
        portion,
        batch=portion.batch.slice(0, stop),
        samples=None if portion.samples is None else portion.samples[:count],
        rows=None if portion.rows is None else portion.rows[:stop],
        outcomes=outcomes,
    )


class _Mapped:
    """Has a function of the user's replace batches.

    Attributes:
        schema: of the rows that it gives; None before the first of them.
    """

    def __init__(self, function: Function, view: str, schema: pa.Schema | None, lists: Sequence[str]) -> None:
        self._function, self._view, self.schema, self._lists = function, view, schema, lists
        self._other_count = False

    def __call__(self, portion: Portion) -> Portion:
        batch = portion.batch
        if not batch.num_rows:
            return portion
        made = of_batch(self._function, batch, "map_batches")
        if not isinstance(made, pa.RecordBatch):
            raise UsageError("the function must return a record batch", found=type(made).__name__,
                             advice="A function over single samples goes to map.")  # fmt: skip
        if len(set(made.schema.names)) < len(made.schema):
            raise UsageError("the function gives several columns one name", found=", ".join(made.schema.names),
                             advice="Replace a column with set_column.")  # fmt: skip
        made = made.replace_schema_metadata({**(batch.schema.metadata or {}), **(made.schema.metadata or {})})
        if self._view == "interleaved":
            _refuse_broken(made)
        made = follow_images(batch, made, None, self._lists)
        if self.schema is not None:
            made = _aligned(made, self.schema, batch.schema)
        elif made.num_rows:
            self.schema = without_source(made.schema)
        self._other_count |= len(sample_firsts(made, self._view)) != len(sample_firsts(batch, self._view))
        return replace(portion, batch=made, samples=None if self._other_count else portion.samples, rows=None)


class _MappedSamples:
    """Has a function of the user's change samples; those for which it raises are left out, if a policy says so.

    Attributes:
        schema: of the rows behind it; None before the first of them.
    """

    def __init__(self, mapped: SampleMap, view: str, schema: pa.Schema | None, lists: Sequence[str]) -> None:
        self._mapped, self._view, self.schema, self._lists = mapped, view, schema, lists
        self._is_given = schema is not None

    def __call__(self, portion: Portion) -> Portion:
        batch = portion.batch
        if not batch.num_rows:
            return portion
        made, failed, sources = self._mapped(batch, portion.samples)
        made = follow_images(batch, made, sources, self._lists)
        if self.schema is not None:
            if not self._is_given:
                self.schema = _with_found_types(self.schema, made.schema)
            made = _aligned(made, self.schema, batch.schema)
        elif len(failed) < len(sample_firsts(made, self._view)):
            self.schema = without_source(made.schema)
        moved = not np.array_equal(sources, np.arange(batch.num_rows))
        portion = replace(portion, batch=made, rows=None if moved else portion.rows)
        return _without_failed(portion, failed, self._view)


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


def _filtered_by_function(function: SampleFilter, view: str, portion: Portion) -> Portion:
    batch = portion.batch
    if not batch.num_rows:
        return portion
    kept, failed = function(batch, portion.samples)
    left_out = ~kept
    left_out[list(failed)] = False
    portion = _reported(portion, np.flatnonzero(left_out), ("left out by the function", FILTERED), view)
    return _without_failed(portion, failed, view, kept)


def _without_failed(
    portion: Portion, failed: Mapping[int, str], view: str, kept: NDArray[np.bool_] | None = None
) -> Portion:
    """The portion without samples for which a function raised, which are reported, and without those not kept."""
    firsts = np.append(sample_firsts(portion.batch, view), portion.batch.num_rows)
    left = np.ones(len(firsts) - 1, np.bool_) if kept is None else kept
    if failed:
        samples, why = np.array(list(failed), np.int64), "samples for which the function raised an error"
        portion = _reported(portion, samples, (why, DROPPED), view, list(failed.values()))
        left[samples] = False
    return portion if left.all() else _taken(portion, sample_rows(firsts, np.flatnonzero(left)), view)


def _reported(
    portion: Portion, samples: NDArray[np.int64], why: tuple[str, str], view: str, details: Sequence[str] = ()
) -> Portion:
    """The portion with the outcome of samples: of their first rows, and of those that go along."""
    batch, (reason, outcome) = portion.batch, why
    firsts = np.append(sample_firsts(batch, view), batch.num_rows)
    heads = firsts[samples]
    along = np.setdiff1d(sample_rows(firsts, samples), heads)
    told = (RowOutcome(reason, outcome, batch, heads, details), RowOutcome(ALONG, outcome, batch, along))
    placed = ((None if portion.rows is None else portion.rows[each.rows], each) for each in told)
    return replace(portion, outcomes=(*portion.outcomes, *placed))


def _refuse_broken(batch: pa.RecordBatch) -> None:
    """Raise UsageError for rows that a function made of whole samples, and that are none any more."""
    missing = [name for name in ("sample_id", "position", "modality") if name not in batch.schema.names]
    if missing:
        raise UsageError("the function drops a column that items need", column=missing[0])
    runs = len(sample_firsts(batch, "interleaved"))
    if len(batch.column("sample_id").unique()) < runs:
        raise UsageError(
            "the function separates rows of one sample",
            column="sample_id",
            advice="Rows of a sample must be neighbours, and samples must have different ids.",
        )
