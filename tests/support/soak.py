"""Whether this is `make soak`, which does more of everything than `make test`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import TypeVar

__all__ = ["SOAK", "some", "some_pairs"]

_Case = TypeVar("_Case")
_Other = TypeVar("_Other")

SOAK = "LADING_FUZZ" in os.environ


def some(*cases: _Case, least: int = 1) -> tuple[_Case, ...]:
    """Return the first so many of them; in `make soak` all."""
    return cases if SOAK else cases[:least]


def some_pairs(cases: Iterable[_Case], others: Iterable[_Other], *, one_in: int = 2) -> list[tuple[_Case, _Other]]:
    """Return one in so many pairs of the two, with every case and every other one; in `make soak` all pairs.

    There have to be so many `cases` and so many `others`.
    """
    pairs = ((i + j, (case, other)) for (i, case), (j, other) in product(enumerate(cases), enumerate(others)))
    return [pair for number, pair in pairs if SOAK or not number % one_in]
