"""The steps that choose or order samples as a whole. `lading.dataset.order.order` gives the numbers behind them.

Example:
    Shuffle(seed=7), Sample(0.01), Sort(("json.score",), (True,)), Take(("dog-17", "cat-03"))
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from lading.dataset.steps.base import StepBase, columns_of_names
from lading.errors import UsageError

__all__ = ["Missing", "Sample", "Shuffle", "Sort", "Take", "refuse_no_seed"]

Missing: TypeAlias = Literal["error", "skip"]
"""For a key that no sample has: raise an error, or leave it out and count it."""

_SHOWN_KEYS = 3


@dataclass(frozen=True, slots=True)
class Shuffle(StepBase):
    """Put all samples in a random order, which depends only on the seed and on their number."""

    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a seed that is no whole number."""
        refuse_no_seed(self.seed)

    def __repr__(self) -> str:
        return f"shuffle(seed={self.seed})"


@dataclass(frozen=True, slots=True)
class Sample(StepBase):
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

    def __repr__(self) -> str:
        return f"sample({self.size}, seed={self.seed})"


@dataclass(frozen=True, slots=True)
class Sort(StepBase):
    """Order samples by the values of columns, or of fields inside them.

    Attributes:
        by: the columns, the most important one first.
        descending: for each column, whether the largest value comes first.
    """

    by: tuple[str, ...]
    descending: tuple[bool, ...]

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

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.by))
        by = names if len(self.by) == 1 else f"[{names}]"
        if not any(self.descending):
            return f"sort({by})"
        return f"sort({by}, descending={True if all(self.descending) else list(self.descending)})"


@dataclass(frozen=True, slots=True)
class Take(StepBase):
    """Take samples by their keys, in the order of the keys; a key that several samples have takes all of them.

    Attributes:
        keys: the keys.
        by: the column that holds keys; None for `__key__` (of documents `sample_id`).
        missing: what happens for a key that no sample has.
    """

    keys: tuple[str | int, ...]
    by: str | None = None
    missing: Missing = "error"

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

    def __repr__(self) -> str:
        more = f", … {len(self.keys):,} keys" if len(self.keys) > _SHOWN_KEYS else ""
        by = "" if self.by is None else f", by={self.by!r}"
        skip = "" if self.missing == "error" else f", missing={self.missing!r}"
        return f"take_keys([{', '.join(map(repr, self.keys[:_SHOWN_KEYS]))}{more}]{by}{skip})"


def refuse_no_seed(seed: object) -> None:
    """Raise UsageError for a seed that is no whole number."""
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise UsageError("a seed is a whole number, 0 or more", found=f"seed={seed!r}"[:80])
