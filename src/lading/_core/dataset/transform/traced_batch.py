"""Batches on their way through the steps, and the places of their rows, which errors name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import take_rows
from lading._core.dataset.writing.outcomes import ALONG, DROPPED, FILTERED, RowOutcome
from lading._core.features.items import lineage_of, sample_rows
from lading._core.features.row_layout import row_layout
from lading._core.manifest.values import lookup
from lading.errors import LadingError

__all__ = [
    "Origin",
    "Place",
    "TracedBatch",
    "first_samples_of",
    "reported",
    "rows_of_file",
    "taken",
    "without_failed",
    "without_samples",
]

Place: TypeAlias = Callable[[int], tuple[str | None, int | None]]
"""Gives the file of a row of a batch, and the number of the row in the file; None where they are unknown."""


def rows_of_file(batch: pa.RecordBatch, numbers: Sequence[int] | NDArray[np.int64] | None) -> Place:
    """Return the places of rows that a file holds, by the number of each row in the file, if it is known."""
    files = lineage_of(batch.schema)
    file = files[0] if len(files) == 1 else None
    return lambda row: (file, None if numbers is None else int(numbers[row]))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the samples of a list are in the source; looked at for an error alone.

    Attributes:
        numbers: of the samples in the source.
        ends: number of samples in each shard of the source and all before it.
        path_of: gives the path of a shard by its number.
        view: how rows are taken.
    """

    numbers: range | NDArray[np.int64]
    ends: NDArray[np.int64]
    path_of: Callable[[int], str]
    view: str

    def places(self, batch: pa.RecordBatch, first: int = 0) -> Place:
        """Return the places of rows of consecutive samples of the list, from the sample `first` on.

        Of an item of a document only the file is known.
        """

        def place(row: int) -> tuple[str | None, int | None]:
            sample = int(np.searchsorted(row_layout(self.view).firsts(batch), row, "right")) - 1
            [shard], [at] = lookup(self.ends, np.array([self.numbers[first + sample]], np.int64))
            return self.path_of(int(shard)), row_layout(self.view).row_of(int(at))

        return place


@dataclass(frozen=True, slots=True)
class TracedBatch:
    """A batch on its way through the steps.

    Attributes:
        batch: the rows, of whole samples.
        samples: the number of each sample in the source; None once a function changed how many samples there are.
        rows: the number of each row in the batch that was read; None once a function replaced the rows.
        ends: the number of rows up to the end of each sample of the batch that was read.
        place: gives the place of a row of the batch that was read.
        outcomes: rows that were left out, each with its numbers in the batch that was read, where they are known.
    """

    batch: pa.RecordBatch
    samples: NDArray[np.int64] | None
    rows: NDArray[np.int64] | None
    ends: NDArray[np.int64]
    place: Place
    outcomes: tuple[tuple[NDArray[np.int64] | None, RowOutcome], ...] = field(default=())

    @contextmanager
    def naming_rows(self) -> Iterator[None]:
        """Errors of the body that count the rows of the batch name the file and the row in it instead.

        The row is left out where it is unknown.
        """
        try:
            yield
        except LadingError as error:
            if error.row is not None:
                row, error.row = error.row, None
                if self.rows is not None and row < len(self.rows):
                    file, known = self.place(int(self.rows[row]))
                    error.at(file=file, row=known)
            raise


def taken(traced: TracedBatch, rows: NDArray[np.int64], view: str) -> TracedBatch:
    """These rows of a batch, in rising order."""
    batch, samples = traced.batch, traced.samples
    if samples is not None:
        of_row = np.searchsorted(row_layout(view).firsts(batch), rows, side="right") - 1
        samples = samples[np.unique(of_row)]
    left = None if traced.rows is None else traced.rows[rows]
    return replace(traced, batch=take_rows(batch, rows), samples=samples, rows=left)


def without_samples(traced: TracedBatch, rows: NDArray[np.int64], why: str, view: str) -> TracedBatch:
    """A batch without the rows of some samples, which are reported."""
    outcome = RowOutcome(why, FILTERED, traced.batch, rows)
    placed = None if traced.rows is None else traced.rows[rows]
    left = np.delete(np.arange(traced.batch.num_rows), rows)
    return taken(replace(traced, outcomes=(*traced.outcomes, (placed, outcome))), left, view)


def reported(
    traced: TracedBatch, samples: NDArray[np.int64], why: tuple[str, str], view: str, details: Sequence[str] = ()
) -> TracedBatch:
    """The batch with the outcome of samples: of their first rows, and of those that go along."""
    batch, (reason, outcome) = traced.batch, why
    firsts = row_layout(view).bounds(batch)
    heads = firsts[samples]
    along = np.setdiff1d(sample_rows(firsts, samples), heads)
    told = (RowOutcome(reason, outcome, batch, heads, details), RowOutcome(ALONG, outcome, batch, along))
    placed = ((None if traced.rows is None else traced.rows[each.rows], each) for each in told)
    return replace(traced, outcomes=(*traced.outcomes, *placed))


def without_failed(
    traced: TracedBatch, failed: Mapping[int, str], view: str, kept: NDArray[np.bool_] | None = None
) -> TracedBatch:
    """The batch without samples for which a function raised, which are reported, and without those not kept."""
    firsts = row_layout(view).bounds(traced.batch)
    left = np.ones(len(firsts) - 1, np.bool_) if kept is None else kept
    if failed:
        samples, why = np.array(list(failed), np.int64), "samples for which the function raised an error"
        traced = reported(traced, samples, (why, DROPPED), view, list(failed.values()))
        left[samples] = False
    return traced if left.all() else taken(traced, sample_rows(firsts, np.flatnonzero(left)), view)


def first_samples_of(traced: TracedBatch, firsts: NDArray[np.int64], count: int) -> TracedBatch:
    """The first samples of a batch. Rows that were left out behind the last of them are not reported."""
    stop = int(firsts[count])
    outcomes = traced.outcomes
    if traced.rows is not None:
        last = int(traced.rows[stop - 1]) if stop else -1
        end = int(traced.ends[np.searchsorted(traced.ends, last, side="right")]) if stop else 0
        outcomes = tuple(
            (rows, each) if rows is None else (rows[rows < end], _chosen(each, rows < end)) for rows, each in outcomes
        )
    return replace(
        traced,
        batch=traced.batch.slice(0, stop),
        samples=None if traced.samples is None else traced.samples[:count],
        rows=None if traced.rows is None else traced.rows[:stop],
        outcomes=outcomes,
    )


def _chosen(outcome: RowOutcome, wanted: NDArray[np.bool_]) -> RowOutcome:
    """The outcome of some of its rows, with their details."""
    return replace(outcome, rows=outcome.rows[wanted], details=[*compress(outcome.details, wanted)])
