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
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.dataset.order.dedup import find_duplicates
from lading.dataset.order.order_sort import sorted_places
from lading.dataset.steps.key_steps import Dedup, Split
from lading.dataset.steps.order_steps import Sample, Shuffle, Sort, Take
from lading.dataset.steps.step import Limit, Rows, Step
from lading.errors import NoSuchSample, UsageError
from lading.features.items import sample_rows
from lading.units import count

__all__ = [
    "Look",
    "Numbers",
    "is_over_numbers",
    "needs_all",
    "numbers_after",
    "numbers_at",
    "over_numbers",
    "phase_of",
    "random_order",
]

Numbers: TypeAlias = range | NDArray[np.int64]
"""Numbers of samples in the source."""


_SHOWN_KEYS = 5


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


_Function: TypeAlias = Callable[[Any, Numbers, Look], Numbers]
_Registered = TypeVar("_Registered", bound=_Function)
_FUNCTIONS: dict[type, _Function] = {}
_PHASES: dict[type, str] = {}


def over_numbers(kind: type, phase: str = "") -> Callable[[_Registered], _Registered]:
    """Register the function that gives the numbers behind a step of this type.

    Args:
        kind: the type of the step.
        phase: what the step does while it reads all samples, as a progress bar says it; empty if it reads none.
    """

    def register(function: _Registered) -> _Registered:
        _FUNCTIONS[kind], _PHASES[kind] = function, phase
        return function

    return register


def is_over_numbers(step: Step) -> bool:
    """Whether a step chooses or orders samples by their numbers alone, and changes no row."""
    return type(step) in _FUNCTIONS


def needs_all(step: Step) -> bool:
    """Whether a step over numbers needs all samples before it; others stop or skip in one pass."""
    streams = isinstance(step, Limit) or (isinstance(step, Rows) and step.streams)
    return is_over_numbers(step) and not streams


def phase_of(step: Step) -> str:
    """What a step over numbers does while it reads all samples, as a progress bar says it; empty if it reads none."""
    return _PHASES[type(step)]


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
        if len(places) and places.min() < 0:
            places = np.where(places < 0, places + count, places)
        return places if numbers == range(count) else numbers.start + numbers.step * places
    return numbers[places]


@over_numbers(Limit)
def _limited(step: Limit, numbers: Numbers, _look: Look) -> Numbers:
    return numbers[: step.count]


@over_numbers(Rows)
def _listed(step: Rows, numbers: Numbers, _look: Look) -> Numbers:
    if step.numbers is None:
        return numbers[step.slice]
    try:
        return numbers_at(numbers, np.array(step.numbers, np.int64))
    except IndexError as error:
        raise NoSuchSample("a number is not that of a sample", expected=f"less than {len(numbers):,}",
                           found=str(error), advice="Leave it out: samples count from 0.") from None  # fmt: skip


def random_order(count: int, seed: int) -> NDArray[np.int64]:
    """Return a random order of so many samples, the same on any machine. Peak memory: 24 bytes a sample.

    NumPy promises that the numbers of a bit generator never change; of `Generator.permutation` it does not.
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable").astype(np.int64, copy=False)


@over_numbers(Shuffle)
def _shuffled(step: Shuffle, numbers: Numbers, _look: Look) -> Numbers:
    return numbers_at(numbers, random_order(len(numbers), step.seed))


@over_numbers(Sample)
def _sampled(step: Sample, numbers: Numbers, _look: Look) -> Numbers:
    count = step.count(len(numbers))
    return numbers_at(numbers, np.sort(random_order(len(numbers), step.seed)[:count]))


@over_numbers(Sort, "reading the values to sort by")
def _sorted(step: Sort, numbers: Numbers, look: Look) -> Numbers:
    return numbers_at(numbers, sorted_places(look(step.by), step.by, step.descending))


@over_numbers(Take, "looking for the keys")
def _taken(step: Take, numbers: Numbers, look: Look) -> Numbers:
    column = step.by or look.key
    if column is None:
        return _by_number(step, numbers)
    distinct = list(dict.fromkeys(step.keys))
    wanted = pa.array(distinct, pa.int64() if distinct and isinstance(distinct[0], int) else pa.large_string())
    keys, places, first = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for [values] in look([column]):
        found = pc.index_in(_comparable(values, wanted.type), value_set=wanted)
        rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
        keys.append(found.drop_null().to_numpy().astype(np.int64))
        places.append(rows + first)
        first += len(values)
    key, place = np.concatenate(keys), np.concatenate(places)
    counts = np.bincount(key, minlength=len(distinct))
    missing = np.flatnonzero(counts == 0)
    if len(missing):
        _refuse_missing(step, [distinct[i] for i in missing[:_SHOWN_KEYS]], len(missing), column)
        look.report("keys that no sample has, left out", len(missing))
    by_key = place[np.argsort(key, kind="stable")]
    at = {each: i for i, each in enumerate(distinct)}
    asked = np.fromiter((at[each] for each in step.keys), np.int64, len(step.keys))
    return numbers_at(numbers, by_key[sample_rows(np.concatenate(([0], np.cumsum(counts))), asked)])


def _comparable(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Keys of samples in the type of the keys that are asked for: texts, or whole numbers."""
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    fits = pa.types.is_integer if pa.types.is_integer(kind) else lambda each: not pa.types.is_nested(each)
    if not fits(plain.type) and not pa.types.is_null(plain.type):
        raise UsageError("keys of another type", expected=str(plain.type), found=str(kind))
    return plain.cast(kind)


def _refuse_missing(step: Take, first: Sequence[str | int], count: int, column: str) -> None:
    """Raise UsageError for keys that no sample has, unless they are to be skipped."""
    if step.missing == "skip":
        return
    advice = "Leave them out of the list (in Python also: missing='skip')."
    if step.by is None and count == len({*step.keys}) and all(_is_number(key) for key in first):
        advice = "If these are numbers of samples, write 'number' as the first line of the file."
    shown = ", ".join(f"{key!r:.80}" for key in first) + (" …" if count > len(first) else "")
    raise UsageError(f"{count:,} of {len({*step.keys}):,} keys are not in the dataset", column=column, found=shown,
                     advice=advice)  # fmt: skip


def _by_number(step: Take, numbers: Numbers) -> Numbers:
    """The samples whose numbers are listed, of a dataset without keys."""
    wrong = next((key for key in step.keys if not _is_number(key)), None)
    if wrong is not None:
        raise UsageError("the samples have no keys", expected="numbers of samples", found=repr(wrong),
                         advice="Name the column that holds these values: take_keys(…, by='url').")  # fmt: skip
    return numbers_at(numbers, np.array([int(key) for key in step.keys], np.int64))


def _is_number(key: str | int) -> bool:
    return isinstance(key, int) or (key.isascii() and key.isdigit())


@over_numbers(Split)
def _of_split(step: Split, numbers: Numbers, _look: Look) -> Numbers:
    names, counts = [name for name, _ in step.shares], step.counts(len(numbers))
    at = names.index(step.name)
    if not counts[at]:
        asked = f"{count(len(numbers), 'sample')} for {step!r}"
        raise UsageError(f"the split {step.name!r} would be empty", found=asked,
                         advice="Give it a larger fraction, or a number of samples.")  # fmt: skip
    first = sum(counts[:at])
    return numbers_at(numbers, np.sort(random_order(len(numbers), step.seed)[first : first + counts[at]]))


@over_numbers(Dedup, "looking for duplicates")
def _without_duplicates(step: Dedup, numbers: Numbers, look: Look) -> Numbers:
    found = find_duplicates(step, look)
    if found.nulls:
        look.report(f"samples without a value of {step.shown}, kept", found.nulls)
    if not len(found.dropped):
        return numbers
    look.leave_out(f"duplicates by {step.shown}", numbers_at(numbers, found.dropped), numbers_at(numbers, found.kept))
    kept = np.ones(found.count, np.bool_)
    kept[found.dropped] = False
    return numbers_at(numbers, np.flatnonzero(kept))
