"""Mix datasets in exact proportions: which source each position of the mixture comes from, by arithmetic.

Source `a` with the weight `w` has its sample `j` at the time `(j + 1/2) / w`, and the mixture is all samples by time.
So among any number of neighbours each source has its share, within one sample for each source. How many samples of each
source come before a position is known without those before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lading._core.arguments import is_number
from lading.errors import UsageError

__all__ = ["ENDLESS", "Proportions", "Stop", "shares_by_temperature"]

Stop: TypeAlias = Literal["first", "all", "never"]
"""When an epoch of a mixture ends: when a source would have to begin again; when all were seen; never."""

ENDLESS: Final = 1 << 48
"""Samples of an epoch that never ends."""


def shares_by_temperature(counts: Mapping[str, int], temperature: float) -> dict[str, float]:
    """Return the shares of datasets of these numbers of samples, as samples ** (1 / temperature), with the sum 1.

    Example: `shares_by_temperature({"en": 10_000, "sw": 100}, 2)` gives 10 / 11 and 1 / 11.

    Source: N. Arivazhagan et al., "Massively multilingual neural machine translation in the wild" (2019), section 4.2;
        of XLM-R and mT5 the exponent α is 1 / temperature.

    Raises:
        UsageError: the temperature is not above 0.
    """
    if not is_number(temperature) or not temperature > 0:
        raise UsageError("a temperature is a number above 0", found=repr(temperature)[:80])
    logs = np.log(np.array([*counts.values()], np.float64)) / temperature
    shares = np.exp(logs - logs.max())
    return dict(zip(counts, (shares / shares.sum()).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Proportions:
    """The shares of sources in a mixture, and from which positions on they hold.

    Attributes:
        begins: the first position of each span of constant weights; the first is 0.
        weights: (spans, sources), each row with the sum 1.
    """

    begins: Sequence[int]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, weights: Mapping[str, float], schedule: Mapping[int, Mapping[str, float]]) -> Proportions:
        """The proportions of weights, and of those that replace them from given positions on."""
        begins = [0, *sorted(schedule)]
        rows = [[*weights.values()], *([schedule[at].get(name, 0.0) for name in weights] for at in begins[1:])]
        table = np.array(rows, np.float64)
        return cls(begins, table / table.sum(axis=1, keepdims=True))

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        """Samples of each source before each span."""
        found = [np.zeros(self.weights.shape[1], np.int64)]
        for i, begin in enumerate(self.begins[1:]):
            found.append(found[-1] + self._within(i, np.array([begin - self.begins[i]]))[0])
        return np.array(found)

    def counts(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Samples of each source before each position: (positions, sources)."""
        span = np.searchsorted(self.begins, positions, "right") - 1
        found = np.empty((len(positions), self.weights.shape[1]), np.int64)
        for i in np.unique(span).tolist():
            mine = span == i
            found[mine] = self._before[i] + self._within(i, positions[mine] - self.begins[i])
        return found

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The source of each position, and which of the source's samples it is, from 0."""
        before, after = self.counts(positions), self.counts(positions + 1)
        source = np.argmax(after - before, axis=1)
        return source, before[np.arange(len(positions)), source]

    def position(self, source: int, count: int) -> int:
        """The first position before which a source has so many samples; `ENDLESS` if it never has."""
        low, high = 0, ENDLESS
        while low < high:
            middle = (low + high) // 2
            if self.counts(np.array([middle]))[0, source] >= count:
                high = middle
            else:
                low = middle + 1
        return low

    def _within(self, span: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Samples of each source before places of a span, counted from its begin."""
        weights = self.weights[span]
        sources = np.count_nonzero(weights)
        sooner = np.maximum(places - sources, 0)  # by this time, fewer samples have come than places
        counts: NDArray[np.int64] = np.maximum(np.ceil(sooner[:, None] * weights - 0.5), 0).astype(np.int64)
        left = places - counts.sum(axis=1)
        with np.errstate(divide="ignore"):
            while len(rows := np.flatnonzero(left)):
                next_one = np.argmin((counts[rows] + 0.5) / weights, axis=1)
                counts[rows, next_one] += 1
                left[rows] -= 1
        return counts
