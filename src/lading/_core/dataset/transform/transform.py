"""Apply the steps of a dataset to batches of rows, in the order in which the user wrote them.

A batch holds whole samples and stays one. Payload stays references: no step reads it, but for the first bytes of
images. Of documents single items may go, or whole samples; a sample goes when none of its items is left, and its
metadata row never goes before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.content.field_paths import Wanted
from lading._core.dataset.order.numbers import Numbers, numbers_at
from lading._core.dataset.steps.base import Applied, Step, StepContext
from lading._core.dataset.steps.sequence import has_map, lists_behind
from lading._core.dataset.transform.function_spool import StepSpool
from lading._core.dataset.transform.traced_batch import Place, TracedBatch, rows_of_file
from lading._core.dataset.writing.outcomes import Outcomes
from lading._core.features.items import lineage_of
from lading._core.features.row_layout import row_layout
from lading._core.storage.fetch import Fetcher

__all__ = ["Places", "Transform"]


Places: TypeAlias = Callable[[pa.RecordBatch, int], Place]
"""Gives the places of the rows of a batch, and is told the number of samples in the batches before it."""


class Transform:
    """The steps of a dataset, applied to one batch after another.

    Args:
        steps: in their order. Those that need all samples (`Step.needs_all`) change no row here:
            `ChosenSamples` reads the samples behind them.
        view: how rows are taken.
        fetcher: reads the first bytes of images.
        map_schemas: of each `Map`, the schema of its rows; without it, the first batch with rows decides.
        skipped: samples before the first batch, which the first slice is not shown.
        counts: counts of what is worth a report, by a short phrase; added to.
        any_members: samples may lack members; see `Shards.takes_any_fields`.
        image_lists: gives the columns whose lists have one entry an image; asked where a step may drop or move images.
        spools: for each step what its function made before, if that is kept; by default functions are always called.
    """

    def __init__(  # noqa: PLR0913 - what steps need to work, which each of them gets in one value
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
        spools: Sequence[StepSpool | None] = (),
    ) -> None:
        self.view, self._fetcher, self._first, self._steps = view, fetcher, skipped, steps
        context = StepContext(view, fetcher, Counter() if counts is None else counts, any_members=any_members)
        given = iter(map_schemas)
        self._applied: list[Applied] = []
        for place, (step, spool) in enumerate(zip_longest(steps, spools)):
            context = replace(
                context,
                image_lists=partial(lists_behind, steps[:place], image_lists),
                behind_function=has_map(steps[:place]),
                schema=next(given, None) if step.makes_columns else None,
                skipped=0 if any(each.counts_samples for each in steps[:place]) else skipped,
                spool=spool,
            )
            self._applied.append(step.begin(context))

    @property
    def map_schemas(self) -> list[pa.Schema | None]:
        """Of each `Map`, the schema of its rows, as far as it is known."""
        return [at.schema for step, at in zip(self._steps, self._applied, strict=True) if step.makes_columns]

    def bounds(self, count: int) -> Iterator[tuple[int, int]]:
        """Give the bounds of the parts in which the steps should get the rows of a batch, one after another.

        Each is asked for when the steps have had the one before: then they know how much they make of a row.
        """
        first = 0
        while first < count or not first:
            wanted = [most for each in self._applied if (most := each.most_rows()) is not None]
            stop = min([count, *(first + most for most in wanted)])
            yield first, stop
            if stop == count or self.is_done():
                return
            first = stop

    def is_done(self) -> bool:
        """Whether no row of the batches that follow will be kept."""
        return any(each.is_done() for each in self._applied)

    @property
    def unmatched(self) -> Counter[str]:
        """Rows of joined tables for which there was no sample so far."""
        return sum((each.unmatched() for each in self._applied), Counter[str]())

    def absent_field(self) -> Wanted | None:
        """A field that a condition asks for, if no row had such a value, and the condition was true for none."""
        return next(filter(None, (each.absent_field() for each in self._applied)), None)

    def check(self, schema: pa.Schema) -> pa.Schema:
        """The schema after the steps, for rows of this schema; nothing behind a function of unknown schema is checked.

        Raises:
            UsageError: a condition does not fit, or a column is missing.
        """
        for step, applied in zip(self._steps, self._applied, strict=True):
            if step.makes_columns and applied.schema is None:
                return schema
            step.check(schema, self._fetcher)
            schema = applied.schema if applied.schema is not None else step.schema_after(schema, self.view)
        return schema

    def apply(
        self, batch: pa.RecordBatch, place: Place | None = None, numbers: NDArray[np.int64] | None = None
    ) -> TracedBatch:
        """The rows of one batch that are left, as the steps make them, and the outcomes of the others.

        Args:
            batch: the rows.
            place: gives the place of a row of the batch, for errors.
            numbers: of the samples in the source; by default they follow those of the batch before.

        Raises:
            UsageError: a condition or a function does not fit the columns.
        """
        ends = row_layout(self.view).bounds(batch)[1:]
        samples = np.arange(self._first, self._first + len(ends)) if numbers is None else numbers
        self._first += len(ends)
        traced = TracedBatch(batch, samples, np.arange(batch.num_rows), ends, place or rows_of_file(batch, None))
        for apply in self._applied:
            with traced.naming_rows():
                traced = apply(traced)
        left = [(rows, each) for rows, each in traced.outcomes if len(each.rows)]
        return replace(traced, outcomes=tuple(left))

    def traced_batches(
        self,
        batches: Iterable[pa.RecordBatch],
        outcomes: Outcomes | None = None,
        places: Places | None = None,
        numbers: Numbers | None = None,
    ) -> Iterator[TracedBatch]:
        """The rows that are left of batches, in batches; reads no further than is needed.

        Batches without rows are left out, but for those of a function that changed the number of samples.

        Args:
            batches: the rows.
            outcomes: takes the rows that are left out.
            places: gives the places of rows. Without it, the batches are all rows of shards, in order: then outcomes
                have the numbers of rows.
            numbers: of the samples in the source; by default they are in its order.
        """
        waiting, file, row, samples = self._parts(batches), [""], 0, 0
        while not self.is_done() and (batch := next(waiting, None)) is not None:
            before, file = file, lineage_of(batch.schema)
            row = row if file == before else 0
            of_file = rows_of_file(batch, range(row, row + batch.num_rows))
            count = len(row_layout(self.view).firsts(batch)) if numbers is not None else 0
            mine = None if numbers is None else numbers_at(numbers, np.arange(samples, samples + count))
            traced = self.apply(batch, of_file if places is None else places(batch, samples), mine)
            if outcomes is not None:
                for placed, each in traced.outcomes:
                    outcomes.add(each if placed is None or places is not None else replace(each, numbers=row + placed))
            row, samples = row + batch.num_rows, samples + len(traced.ends)
            if traced.batch.num_rows or traced.samples is None:
                yield traced

    def _parts(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from (batch.slice(first, stop - first) for first, stop in self.bounds(batch.num_rows))
