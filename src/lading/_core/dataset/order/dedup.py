"""Find the samples that are equal in some fields, or in all that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lading._core.dataset.order.duplicates import DuplicateFinder
from lading._core.dataset.order.groups import value_hashes

if TYPE_CHECKING:
    from lading._core.dataset.order.numbers import Look

__all__ = ["Duplicates", "LeftOut", "find_duplicates"]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Which samples are duplicates.

    Attributes:
        count: number of all samples.
        nulls: number of samples that lack a value, and equal no other.
        dropped: places of the duplicates, rising.
        kept: of each, the place of the equal sample that is kept.
    """

    count: int
    nulls: int
    dropped: NDArray[np.int64]
    kept: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Samples that a step over numbers leaves out, for reports and ledgers.

    Attributes:
        reason: a short phrase.
        numbers: of the samples, in the source.
        kept: of each, the number of the sample that is kept instead.
    """

    reason: str
    numbers: NDArray[np.int64]
    kept: NDArray[np.int64]


def find_duplicates(look: Look, by: Sequence[str] | None, *, keep_last: bool) -> Duplicates:
    """Find the samples that are equal in some fields, or in their content (`by=None`).

    Reads the values of all samples, or their payload, once. Memory is bounded, as `DuplicateFinder` says.
    """
    first = nulls = 0
    with DuplicateFinder() as finder:
        for hashes, there in _hashes(look, by):
            places = np.arange(first, first + len(hashes))
            finder.add(hashes[there], places[there])
            first += len(hashes)
            nulls += len(hashes) - int(there.sum())
        return Duplicates(first, nulls, *finder.duplicates(keep_last=keep_last))


def _hashes(look: Look, by: Sequence[str] | None) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
    """Give the hash of each sample, and whether it has all values; a null equals nothing."""
    if by is None:
        for digests in look.digests():
            yield digests, np.ones(len(digests), np.bool_)
        return
    for columns in look(by):
        there = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
        yield value_hashes(columns), there
