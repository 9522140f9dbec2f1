"""Steps that go by keys of samples: join, split, dedup."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias, get_args

from lading.dataset.join_table import JoinTable
from lading.errors import UsageError

__all__ = ["How", "Join", "SplitByGroup"]

How: TypeAlias = Literal["left", "inner"]
"""Of samples without a row in the table: keep them, with nulls; or leave them out."""


@dataclass(frozen=True, slots=True)
class Join:
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

    def __repr__(self) -> str:
        how = "" if self.how == "left" else f", how={self.how!r}"
        return f"join({self.table.name!r}, on={ {self.on: self.table.key}!r}{how})"


@dataclass(frozen=True, slots=True)
class SplitByGroup:
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

    def __repr__(self) -> str:
        by = self.by[0] if len(self.by) == 1 else list(self.by)
        return f"split({dict(self.shares)!r}, seed={self.seed}, by={by!r})[{self.name!r}]"
