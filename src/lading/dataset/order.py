"""Steps over numbers: each gives the numbers, in the source, of the samples behind it.

Such a step needs all samples before it: a shuffle, a sample, a sort, a list of numbers. It reads no payload. A module
with such a step registers its function; `ChosenSamples` calls `numbers_after`.

Example:
    @over_numbers(Reversed)
    def _reversed(step: Reversed, numbers: Numbers, look: Look) -> Numbers:
        return numbers[::-1]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.dataset.steps import Limit, Rows, Shuffle, Step

__all__ = ["Look", "Numbers", "is_over_numbers", "needs_all", "numbers_after", "numbers_at", "over_numbers"]

Numbers: TypeAlias = range | NDArray[np.int64]
"""Numbers of samples in the source."""


class Look(Protocol):
    """Reads values of the samples before a step, in their order."""

    def __call__(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield the values of columns, or of fields inside them, batch by batch: one value a sample, null where absent.

        Of a document, the value is the first one of its items that is not null.

        Raises:
            UsageError: a column that no shard has.
        """

    def rows(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the samples, payload as references; `columns=None` gives all columns."""


_Function: TypeAlias = Callable[[Any, Numbers, Look], Numbers]
_Registered = TypeVar("_Registered", bound=_Function)
_FUNCTIONS: dict[type, _Function] = {}


def over_numbers(kind: type) -> Callable[[_Registered], _Registered]:
    """Register the function that gives the numbers behind a step of this type."""

    def register(function: _Registered) -> _Registered:
        _FUNCTIONS[kind] = function
        return function

    return register


def is_over_numbers(step: Step) -> bool:
    """Whether a step chooses or orders samples by their numbers alone, and changes no row."""
    return type(step) in _FUNCTIONS


def needs_all(step: Step) -> bool:
    """Whether a step over numbers needs all samples before it; others stop or skip in one pass."""
    streams = isinstance(step, Limit) or (isinstance(step, Rows) and step.streams)
    return is_over_numbers(step) and not streams


def numbers_after(step: Step, numbers: Numbers, look: Look) -> Numbers:
    """Return the numbers, in the source, of the samples behind a step.

    Args:
        step: the step.
        numbers: of the samples before the step, in their order.
        look: reads values of these samples.

    Raises:
        UsageError: the step does not fit these samples.
        IndexError: a list names a sample that is not there.
    """
    return _FUNCTIONS[type(step)](step, numbers, look)


def numbers_at(numbers: Numbers, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers at some places; places below 0 count from the end. Raises IndexError."""
    count = len(numbers)
    wrong = np.flatnonzero((places < -count) | (places >= count))
    if len(wrong):
        raise IndexError(f"sample {places[wrong[0]]} of {count}")
    if isinstance(numbers, range):  # may stand for millions, where one is asked for
        return numbers.start + numbers.step * np.where(places < 0, places + count, places)
    return numbers[places]


@over_numbers(Limit)
def _limited(step: Limit, numbers: Numbers, _look: Look) -> Numbers:
    return numbers[: step.count]


@over_numbers(Rows)
def _listed(step: Rows, numbers: Numbers, _look: Look) -> Numbers:
    return numbers[step.slice] if step.numbers is None else numbers_at(numbers, np.array(step.numbers, np.int64))


@over_numbers(Shuffle)
def _shuffled(step: Shuffle, numbers: Numbers, _look: Look) -> Numbers:
    return numbers_at(numbers, np.random.Generator(np.random.PCG64(step.seed)).permutation(len(numbers)))
