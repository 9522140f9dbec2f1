"""The steps that choose or order samples by their numbers in the source.

Example:
    Shuffle(seed=7), Sample(0.01), Sort(("json.score",), (True,)), Take(("dog-17", "cat-03"))
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import index as as_int
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.dataset.order.numbers import numbers_at, random_order
from lading._core.dataset.order.order_sort import sorted_places
from lading._core.dataset.steps.base import Applied, OrderStep, StepContext, columns_of_names
from lading._core.dataset.transform.traced_batch import TracedBatch, first_samples_of, taken
from lading._core.features.items import sample_rows
from lading._core.features.row_layout import row_layout
from lading.errors import NoSuchSample, UsageError

if TYPE_CHECKING:
    from lading._core.dataset.order.numbers import Look, Numbers

__all__ = ["Limit", "Missing", "Rows", "Sample", "Shuffle", "Sort", "Take", "refuse_no_seed"]

Missing: TypeAlias = Literal["error", "skip"]
"""For a key that no sample has: raise an error, or leave it out and count it."""

_SHOWN_KEYS, _SHOWN_ROWS, _SHOWN_MISSING = 3, 4, 5


@dataclass(frozen=True, slots=True)
class Limit(OrderStep):
    """Keep the first samples, at most so many."""

    count: int

    counts_samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what is no number of samples."""
        if not isinstance(self.count, (int, np.integer)) or isinstance(self.count, bool) or self.count < 0:
            raise UsageError("limit must be a whole number, 0 or more", found=repr(self.count))

    @property
    def needs_all(self) -> bool:
        """It does not: it ends behind the last of its samples."""
        return False

    @property
    def most_samples(self) -> int | None:
        """The number of samples."""
        return self.count

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:  # noqa: ARG002 - as of all steps
        """Return the first numbers."""
        return numbers[: self.count]

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        return _Counter(slice(0, self.count, 1), context.view, context.skipped)

    def __repr__(self) -> str:
        return f"limit({self.count})"


@dataclass(frozen=True, slots=True)
class Rows(OrderStep):
    """Take samples by number: a slice of them, or a list in any order, with repeats.

    Attributes:
        start, stop, step: of a slice.
        numbers: of a list; None for a slice.
    """

    start: int | None = None
    stop: int | None = None
    step: int | None = None
    numbers: tuple[int, ...] | None = None

    counts_samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a step of 0, and bounds that are no whole numbers."""
        for name in ("start", "stop", "step"):
            bound = getattr(self, name)
            try:
                object.__setattr__(self, name, None if bound is None else as_int(bound))
            except TypeError:
                raise UsageError("bounds of a slice are whole numbers", found=repr(bound)[:80]) from None
        if self.step == 0:
            raise UsageError("the step of a slice is not 0", found=repr(self))

    @property
    def slice(self) -> slice:
        """The slice."""
        return slice(self.start, self.stop, self.step)

    @property
    def needs_all(self) -> bool:
        """Whether the samples cannot be taken in one pass from the first one on: their number must be known."""
        start, stop, step = self.start or 0, self.stop, self.step or 1
        return not (self.numbers is None and start >= 0 and (stop is None or stop >= 0) and step > 0)

    @property
    def skips(self) -> int:
        """Samples before the first of a slice."""
        return self.start or 0

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:  # noqa: ARG002 - as of all steps
        """Return the numbers in the slice, or those at the places of the list."""
        if self.numbers is None:
            return numbers[self.slice]
        try:
            return numbers_at(numbers, np.array(self.numbers, np.int64))
        except IndexError as error:
            raise NoSuchSample("a number is not that of a sample", expected=f"less than {len(numbers):,}",
                               found=str(error), advice="Leave it out: samples count from 0.") from None  # fmt: skip

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        return Applied() if self.needs_all else _Counter(self.slice, context.view, context.skipped)

    def __repr__(self) -> str:
        if self.numbers is None:
            bounds = ["" if bound is None else str(bound) for bound in (self.start, self.stop, self.step)]
            return f"[{':'.join(bounds if bounds[2] else bounds[:2])}]"
        more = f", … {len(self.numbers):,} numbers" if len(self.numbers) > _SHOWN_ROWS else ""
        return f"[[{', '.join(map(str, self.numbers[:_SHOWN_ROWS]))}{more}]]"


@dataclass(frozen=True, slots=True)
class Shuffle(OrderStep):
    """Put all samples in a random order, which depends only on the seed and on their number."""

    seed: int = 0

    only_orders: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a seed that is no whole number."""
        refuse_no_seed(self.seed)

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:  # noqa: ARG002 - as of all steps
        """Return the numbers in a random order."""
        return numbers_at(numbers, random_order(len(numbers), self.seed))

    def __repr__(self) -> str:
        return f"shuffle(seed={self.seed})"


@dataclass(frozen=True, slots=True)
class Sample(OrderStep):
    """Keep randomly chosen samples, in their order.

    Attributes:
        size: a number of samples (int), or a fraction of them (float, above 0 and up to 1).
        seed: another seed chooses other samples.
    """

    size: int | float
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse no samples, and fractions above one."""
        refuse_no_seed(self.seed)
        size: object = self.size
        whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
        if not whole and not isinstance(size, (float, np.floating)):
            raise UsageError("a sample is a fraction or a number of samples", expected="such as 0.01 or 1000",
                             found=repr(size)[:80])  # fmt: skip
        if whole and self.size < 1:
            raise UsageError("a sample has at least one sample", expected="a whole number from 1, or a fraction "
                             "above 0 and up to 1.0", found=str(size))  # fmt: skip
        if not whole and not 0 < self.size <= 1:
            more = f"For a number of samples write {int(self.size)}." if self.size > 1 and self.size % 1 == 0 else None
            raise UsageError("a fraction is above 0 and at most 1.0", found=str(size), advice=more)

    def count(self, total: int) -> int:
        """Return the number of samples to keep of so many.

        Raises:
            UsageError: there are not so many, or none is left.
        """
        if isinstance(self.size, (int, np.integer)):
            if self.size > total:
                raise UsageError("the dataset has fewer samples than were asked for", expected=f"at most {total:,}",
                                 found=f"{self.size:,}")  # fmt: skip
            return int(self.size)
        count = int(self.size * total + 0.5)
        if total and not count:
            raise UsageError("the fraction leaves no sample", found=f"{self.size} of {total:,}",
                             advice=f"Take a number of samples, or a fraction of {1 / total:.2g} or more.")  # fmt: skip
        return count

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:  # noqa: ARG002 - as of all steps
        """Return randomly chosen numbers, in their order."""
        count = self.count(len(numbers))
        return numbers_at(numbers, np.sort(random_order(len(numbers), self.seed)[:count]))

    def __repr__(self) -> str:
        return f"sample({self.size}, seed={self.seed})"


@dataclass(frozen=True, slots=True)
class Sort(OrderStep):
    """Order samples by the values of columns, or of fields inside them.

    Attributes:
        by: the columns, the most important one first.
        descending: for each column, whether the largest value comes first.
    """

    by: tuple[str, ...]
    descending: tuple[bool, ...]

    only_orders: ClassVar[bool] = True
    phase: ClassVar[str] = "reading the values to sort by"

    def __post_init__(self) -> None:
        """Refuse no column, names that are no texts, and another number of directions."""
        if not self.by:
            raise UsageError("no column to sort by", advice="Name one.")
        for name in self.by:
            if not isinstance(name, str):
                raise UsageError("a column is named by a text", found=repr(name)[:80])
        wrong = [each for each in self.descending if not isinstance(each, bool)]
        if wrong or len(self.descending) != len(self.by):
            raise UsageError("descending is true or false, for all columns or for each", expected=f"{len(self.by)} "
                             "truth values", found=repr(list(self.descending))[:80])  # fmt: skip

    @classmethod
    def of(cls, by: str | Sequence[str], descending: bool | Sequence[bool]) -> Sort:
        """The step for arguments as users give them."""
        names = (by,) if isinstance(by, str) or not isinstance(by, Iterable) else tuple(by)
        ways = (descending,) * len(names) if isinstance(descending, bool) else tuple(descending)
        return cls(names, ways)

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the columns of its fields."""
        return columns_of_names(self.by, known)

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:
        """Return the numbers by the values of the columns."""
        return numbers_at(numbers, sorted_places(look(self.by), self.by, self.descending))

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.by))
        by = names if len(self.by) == 1 else f"[{names}]"
        if not any(self.descending):
            return f"sort({by})"
        return f"sort({by}, descending={True if all(self.descending) else list(self.descending)})"


@dataclass(frozen=True, slots=True)
class Take(OrderStep):
    """Take samples by their keys, in the order of the keys; a key that several samples have takes all of them.

    Attributes:
        keys: the keys.
        by: the column that holds keys; None for `__key__` (of documents `sample_id`).
        missing: what happens for a key that no sample has.
    """

    keys: tuple[str | int, ...]
    by: str | None = None
    missing: Missing = "error"

    phase: ClassVar[str] = "looking for the keys"

    def __post_init__(self) -> None:
        """Refuse keys that are neither texts nor whole numbers, and unknown policies."""
        if self.missing not in get_args(Missing):
            raise UsageError("no such policy", expected=" or ".join(get_args(Missing)),
                             found=f"missing={self.missing!r}")  # fmt: skip
        kinds = {bool if isinstance(key, bool) else type(key) for key in self.keys}
        if kinds not in (set(), {str}, {int}):
            raise UsageError("keys are texts, or all whole numbers", found=repr(list(self.keys))[:80])

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the column of its keys."""
        return columns_of_names([] if self.by is None else [self.by], known)

    def numbers_after(self, numbers: Numbers, look: Look) -> Numbers:
        """Return the numbers of the samples with the keys."""
        column = self.by or look.key
        if column is None:
            return _by_number(self, numbers)
        distinct = list(dict.fromkeys(self.keys))
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
            _refuse_missing(self, [distinct[i] for i in missing[:_SHOWN_MISSING]], len(missing), column)
            look.report("keys that no sample has, left out", len(missing))
        by_key = place[np.argsort(key, kind="stable")]
        at = {each: i for i, each in enumerate(distinct)}
        asked = np.fromiter((at[each] for each in self.keys), np.int64, len(self.keys))
        return numbers_at(numbers, by_key[sample_rows(np.concatenate(([0], np.cumsum(counts))), asked)])

    def __repr__(self) -> str:
        more = f", … {len(self.keys):,} keys" if len(self.keys) > _SHOWN_KEYS else ""
        by = "" if self.by is None else f", by={self.by!r}"
        skip = "" if self.missing == "error" else f", missing={self.missing!r}"
        return f"take_keys([{', '.join(map(repr, self.keys[:_SHOWN_KEYS]))}{more}]{by}{skip})"


def refuse_no_seed(seed: object) -> None:
    """Raise UsageError for a seed that is no whole number."""
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise UsageError("a seed is a whole number, 0 or more", found=f"seed={seed!r}"[:80])


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


class _Counter(Applied):
    """Takes a slice of the samples that pass, with a start, a stop and a step that count forward."""

    def __init__(self, chosen: slice, view: str, seen: int) -> None:
        self._start, self._stop, self._step = chosen.start or 0, chosen.stop, chosen.step or 1
        self._view, self._seen = view, seen

    def is_done(self) -> bool:
        """Whether the last sample of the slice has passed."""
        return self._stop is not None and self._seen >= self._stop

    def __call__(self, traced: TracedBatch) -> TracedBatch:
        """Return the samples of the slice."""
        firsts = row_layout(self._view).bounds(traced.batch)
        count = len(firsts) - 1
        stop = count if self._stop is None else max(min(count, self._stop - self._seen), 0)
        skip = max(self._start - self._seen, 0)
        if self._seen > self._start:
            skip = (self._start - self._seen) % self._step
        self._seen += count
        if self.is_done():
            traced = first_samples_of(traced, firsts, stop)
        if skip == 0 and self._step == 1:
            return traced
        wanted = np.arange(skip, stop, self._step, dtype=np.int64)
        return taken(traced, sample_rows(firsts[: stop + 1], wanted), self._view)
