"""Steps that go by keys of samples: join, split, dedup."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import floor, fsum, isnan
from typing import Literal, TypeAlias, get_args

from lading.dataset.steps.base import StepBase, columns_of_names
from lading.dataset.transform.join_table import JoinTable
from lading.errors import UsageError
from lading.units import count

__all__ = ["Dedup", "How", "Join", "Keep", "Split", "SplitByGroup", "split_by_group"]

How: TypeAlias = Literal["left", "inner"]
"""Of samples without a row in the table: keep them, with nulls; or leave them out."""

Keep: TypeAlias = Literal["first", "last"]
"""Which of several equal samples is kept."""


@dataclass(frozen=True, slots=True)
class Join(StepBase):
    """Add the columns of a table's row to each sample with the same key.

    Attributes:
        table: the table.
        on: field of the samples that holds the key.
        how: `left` keeps samples without a row, `inner` leaves them out.
    """

    table: JoinTable
    on: str
    how: How = "left"

    def __post_init__(self) -> None:
        """Refuse another kind of join."""
        if self.how not in get_args(How):
            raise UsageError("no such join", expected=" or ".join(get_args(How)), found=f"how={self.how!r}")

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the column of its key."""
        return columns_of_names([self.on], known)

    def __repr__(self) -> str:
        how = "" if self.how == "left" else f", how={self.how!r}"
        return f"join({self.table.name!r}, on={ {self.on: self.table.key}!r}{how})"


@dataclass(frozen=True, slots=True)
class SplitByGroup(StepBase):
    """Keep the samples of one split, where samples with the same values of some fields are in the same split.

    Attributes:
        shares: of all splits, their names and fractions, in order.
        name: of the split.
        by: the fields.
        seed: another seed puts groups into other splits.
    """

    shares: tuple[tuple[str, float], ...]
    name: str
    by: tuple[str, ...]
    seed: int = 0

    @property
    def bounds(self) -> tuple[float, float]:
        """The fractions of all groups between which the split lies; the last split ends at 1."""
        names = [name for name, _ in self.shares]
        at, ends = names.index(self.name), list(accumulate(share for _, share in self.shares))
        return (ends[at - 1] if at else 0.0), (ends[at] if at + 1 < len(ends) else 1.0)

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the columns of its fields."""
        return columns_of_names(self.by, known)

    def __repr__(self) -> str:
        by = self.by[0] if len(self.by) == 1 else list(self.by)
        return f"split({dict(self.shares)!r}, seed={self.seed}, by={by!r})[{self.name!r}]"


def split_by_group(steps: Iterable[object]) -> SplitByGroup | None:
    """Return the first of some steps that keeps a split by groups, if one does."""
    return next((step for step in steps if isinstance(step, SplitByGroup)), None)


@dataclass(frozen=True, slots=True)
class Split(StepBase):
    """Keep the samples of one split of exact size, chosen at random, in the order of the source.

    Attributes:
        shares: of all splits: a fraction, a number of samples, or None for the rest.
        name: of the split.
        seed: another seed chooses other samples.
    """

    shares: tuple[tuple[str, float | int | None], ...]
    name: str
    seed: int = 0

    def counts(self, total: int) -> list[int]:
        """Return the number of samples of each split; fractions by largest remainder.

        Raises:
            UsageError: there are fewer samples than the splits ask for, or more.
        """
        exact = [
            share * total if isinstance(share, float) else float("nan" if share is None else share)
            for _, share in self.shares
        ]
        rest = [i for i, share in enumerate(exact) if isnan(share)]
        counts = [0 if isnan(share) else floor(share) for share in exact]
        if not rest:
            left = round(fsum(exact)) - sum(counts)
            largest = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
            for i in largest[:left]:
                counts[i] += 1
        else:
            counts = [0 if isnan(share) else round(share) for share in exact]
            counts[rest[0]] = total - sum(counts)
        if sum(counts) != total or min(counts) < 0:
            asked = ", ".join(f"{name} {count:,}" for (name, _), count in zip(self.shares, counts, strict=True))
            raise UsageError("the splits do not add up to the samples that are there", expected=count(total, "sample"),
                             found=asked, advice="One may be the rest: --split-into train=rest,val=0.1.")  # fmt: skip
        return counts

    def __repr__(self) -> str:
        return f"split({dict(self.shares)!r}, seed={self.seed})[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class Dedup(StepBase):
    """Keep one of the samples that are equal in some fields.

    Attributes:
        by: the fields; None for the content: all of a sample but its key.
        keep: the `first` or the `last` one.
    """

    by: tuple[str, ...] | None
    keep: Keep = "first"

    def __post_init__(self) -> None:
        """Refuse no field, and another choice."""
        if self.by is not None and not self.by:
            raise UsageError("duplicates are equal in at least one field", found="by=[]")
        if self.keep not in get_args(Keep):
            raise UsageError("no such choice", expected=" or ".join(get_args(Keep)), found=f"keep={self.keep!r}")

    @property
    def shown(self) -> str:
        """Return the fields as text, for reports."""
        return "content" if self.by is None else " and ".join(self.by)

    def looked_at(self, known: Collection[str]) -> list[str]:
        """Return the columns of its fields."""
        return columns_of_names(self.by or (), known)

    def __repr__(self) -> str:
        by = "content" if self.by is None else self.by[0] if len(self.by) == 1 else list(self.by)
        keep = "" if self.keep == "first" else f", keep={self.keep!r}"
        return f"dedup(by={by!r}{keep})"
