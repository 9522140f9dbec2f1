"""Batches on their way through the steps, and the places of their rows, which errors name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.dataset.writing.outcomes import RowOutcome
from lading.errors import LadingError
from lading.features.items import lineage_of, sample_firsts
from lading.manifest.values import lookup

__all__ = ["Origin", "Place", "Portion", "rows_of_file"]

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
            sample = int(np.searchsorted(sample_firsts(batch, self.view), row, "right")) - 1
            [shard], [at] = lookup(self.ends, np.array([self.numbers[first + sample]], np.int64))
            return self.path_of(int(shard)), int(at) if self.view == "samples" else None

        return place


@dataclass(frozen=True, slots=True)
class Portion:
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
        """Errors of the body that count the rows of the portion name the file and the row in it instead.

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
