"""Numbers of samples in the source, and what a step that chooses or orders them by these numbers is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Look", "Numbers", "numbers_at", "random_order"]

Numbers: TypeAlias = range | NDArray[np.int64]
"""Numbers of samples in the source."""


class Look(Protocol):
    """Reads values of the samples before a step, in their order."""

    @property
    def key(self) -> str | None:
        """Name of the column of keys; None if the samples have none."""

    def __call__(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield the values of columns, or of fields inside them, batch by batch: one value a sample, null where absent.

        Of a document, the value is the first one of its items that is not null.

        Raises:
            UsageError: a column that no shard has.
        """

    def rows(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the samples, payload as references; `columns=None` gives all columns."""

    def digests(self) -> Iterator[NDArray[np.uint8]]:
        """Yield the content digests of the samples without their keys, batch by batch: `(samples, 16)`."""

    def report(self, what: str, count: int) -> None:
        """Count something that the user should know of."""

    def leave_out(self, reason: str, numbers: NDArray[np.int64], kept: NDArray[np.int64]) -> None:
        """Note samples, by number in the source, that are left out for others that are kept."""


def numbers_at(numbers: Numbers, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers at some places; places below 0 count from the end. Raises IndexError."""
    count = len(numbers)
    wrong = np.flatnonzero((places < -count) | (places >= count))
    if len(wrong):
        raise IndexError(f"sample {places[wrong[0]]} of {count}")
    if isinstance(numbers, range):  # may stand for millions, where one is asked for
        if len(places) and places.min() < 0:
            places = np.where(places < 0, places + count, places)
        return places if numbers == range(count) else numbers.start + numbers.step * places
    return numbers[places]


def random_order(count: int, seed: int) -> NDArray[np.int64]:
    """Return a random order of so many samples, the same on any machine. Peak memory: 24 bytes a sample.

    NumPy promises that the numbers of a bit generator never change; of `Generator.permutation` it does not.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable").astype(np.int64, copy=False)
