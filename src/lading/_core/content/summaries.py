"""Summaries of many values in bounded memory: numbers, and how often each value occurs.

Summaries of parts are merged to that of the whole. What a summary keeps depends on the values and on the order in which
parts are merged, and on no random number: the same parts give the same facts in every process.

Quantiles are those of all values up to `EXACT_VALUES`; of more values, those of a sample of this size (the values whose
places hash lowest). Distinct values are counted up to `EXACT_VALUES`, and estimated by the lowest hashes beyond. The
most frequent values are exact up to `TOP_VALUES` distinct ones, and lower bounds beyond.

Source: Chan, Golub, LeVeque, Updating Formulae and a Pairwise Algorithm (1979); Bar-Yossef et al., Counting Distinct
Elements in a Data Stream (2002), algorithm 2; Misra, Gries, Finding Repeated Elements (1982); Agarwal et al., Mergeable
Summaries (2012); Vigna's splitmix64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT_VALUES", "TOP_VALUES", "Counts", "Histogram", "Keys", "NumberSummary", "mixed"]

EXACT_VALUES = 16_384
"""Values whose quantiles, and distinct values whose number, are exact. Beyond, both are about 0.8 % off (2 in 3)."""

TOP_VALUES = 4096
"""Distinct values that are counted exactly."""

_BINS = 20
_TAIL = 0.01
_FAR = 3.0
_EXACT_INT = float(1 << 53)
_NO_HASHES, _NO_NUMBERS = np.zeros(0, np.uint64), np.zeros(0, np.float64)
_RANGE = float(1 << 64)


def mixed(numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Return an evenly spread 64-bit hash of each integer."""
    found: NDArray[np.uint64] = np.asarray(numbers).astype(np.int64, copy=False).view(np.uint64)
    found = found + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values are in each of some ranges.

    Attributes:
        edges: of the ranges, rising; each range ends before the next begins, and the last one includes its end.
        counts: of the values in each range, one fewer than edges.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(slots=True)
class NumberSummary:
    """Count, bounds, mean, deviation and a sample of numbers. NaN is no number.

    Attributes:
        count: numbers so far.
        low: the least one, exactly.
        high: the greatest one, exactly.
        mean: their mean.
    """

    count: int = 0
    low: int | float | None = None
    high: int | float | None = None
    mean: float = 0.0
    _squares: float = 0.0
    _places: NDArray[np.uint64] = field(default_factory=lambda: _NO_HASHES, repr=False)
    _sample: NDArray[np.float64] = field(default_factory=lambda: _NO_NUMBERS, repr=False)

    def add(self, values: NDArray[Any], places: NDArray[np.uint64]) -> None:
        """Add numbers; `places` is a hash of the place of each, different for all values of the column."""
        if values.dtype.kind == "f":
            there = ~np.isnan(values)
            values, places = values[there], places[there]
        if not len(values):
            return
        floats = values.astype(np.float64, copy=False)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no deviation
            mean = float(floats.mean())
            squares = float(((floats - mean) ** 2).sum())
        self._join(len(values), values.min().item(), values.max().item(), mean, squares)
        self._keep(places, floats)

    def merge(self, other: NumberSummary) -> None:
        """Add the numbers of another summary."""
        if other.count:
            self._join(other.count, other.low, other.high, other.mean, other._squares)
            self._keep(other._places, other._sample)

    def _join(self, count: int, low: Any, high: Any, mean: float, squares: float) -> None:
        total = self.count + count
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        if math.isfinite(mean) and math.isfinite(self.mean):
            apart = mean - self.mean
            self._squares += squares + apart * apart * self.count * count / total
            self.mean += apart * count / total
        else:
            self._squares, self.mean = math.nan, self.mean + mean
        self.count = total

    def _keep(self, places: NDArray[np.uint64], values: NDArray[np.float64]) -> None:
        if len(self._places) == EXACT_VALUES:
            low = places < self._places.max()
            places, values = places[low], values[low]
        places, values = np.concatenate([self._places, places]), np.concatenate([self._sample, values])
        if len(places) > EXACT_VALUES:
            least = np.argpartition(places, EXACT_VALUES)[:EXACT_VALUES]
            places, values = places[least], values[least]
        self._places, self._sample = places, values

    @property
    def is_exact(self) -> bool:
        """Whether quantiles and histogram are those of all values."""
        return self.count <= EXACT_VALUES

    @property
    def std(self) -> float | None:
        """The standard deviation of a sample (n − 1); None for fewer than two numbers."""
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 and self._squares >= 0 else None

    def quantiles(self, parts: tuple[float, ...]) -> list[float]:
        """Return the values below which these parts of the numbers are, interpolated; there is a number."""
        with np.errstate(invalid="ignore", over="ignore"):  # between infinite values
            found = np.quantile(self._sample, parts)
        if not np.isfinite(found).all():
            found = np.quantile(self._sample, parts, method="lower")
        return [min(max(value, float(self.low or 0)), float(self.high or 0)) for value in found.tolist()]

    def histogram(self) -> Histogram | None:
        """Return the numbers in up to 20 ranges, equally wide but for long tails; None if there is no finite one."""
        finite = self._sample[np.isfinite(self._sample)]
        if not len(finite):
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            edges = _edges(finite, self.low, self.high, whole=isinstance(self.low, int) and isinstance(self.high, int))
        counts = np.histogram(finite, edges)[0]
        if not self.is_exact:  # rounded, so that the sum stays
            ends = np.rint(np.cumsum(counts) * (self.count / len(self._sample)))
            counts = np.diff(ends, prepend=0)
        return Histogram(tuple(edges.tolist()), tuple(counts.astype(int).tolist()))


def _edges(values: NDArray[np.float64], low: Any, high: Any, *, whole: bool) -> NDArray[np.float64]:
    least, most = (float(bound) if math.isfinite(bound) else None for bound in (low, high))
    least = float(values.min()) if least is None else least
    most = float(values.max()) if most is None else most
    if whole and most - least < _BINS and max(-least, most) < _EXACT_INT:
        return np.arange(least, most + 2) - 0.5
    if most == least:
        return np.array([least, most])
    first, last = np.quantile(values, [_TAIL, 1 - _TAIL]).tolist()
    inner = last - first
    if inner > 0 and most - least > _FAR * inner:  # a few far values would leave one bar
        bounds = np.linspace(first, last, _BINS - 1)
        return np.unique([least, *bounds, most])
    edges = np.unique(np.linspace(least, most, _BINS + 1))
    return edges if np.isfinite(edges).all() else np.array([least, 0.0, most])  # wider than any float


@dataclass(slots=True)
class Counts:
    """How many distinct values there are, and the most frequent ones. Values are told apart by 64-bit hashes."""

    _lowest: NDArray[np.uint64] = field(default_factory=lambda: _NO_HASHES, repr=False)
    _hashes: NDArray[np.uint64] = field(default_factory=lambda: _NO_HASHES, repr=False)
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    _shown: NDArray[Any] = field(default_factory=lambda: np.zeros(0, object), repr=False)
    _missed: int = 0

    def add(self, hashes: NDArray[np.uint64], counts: NDArray[np.int64], shown: NDArray[Any]) -> None:
        """Add values: a hash of each, how often it occurs, and the value as it is shown."""
        self._add_lowest(hashes)
        every, places, inverse = np.unique(
            np.concatenate([self._hashes, hashes]), return_index=True, return_inverse=True
        )
        total = np.zeros(len(every), np.int64)
        np.add.at(total, inverse, np.concatenate([self._counts, counts]))
        self._hashes, self._counts = every, total
        self._shown = np.concatenate([self._shown, shown])[places]
        if len(every) > TOP_VALUES:
            self._forget_rare()

    def merge(self, other: Counts) -> None:
        """Add the values of another summary."""
        self.add(other._hashes, other._counts, other._shown)
        self._add_lowest(other._lowest)
        self._missed += other._missed

    def _add_lowest(self, hashes: NDArray[np.uint64]) -> None:
        if len(self._lowest) > EXACT_VALUES:
            hashes = hashes[hashes < self._lowest[-1]]
        if len(hashes):
            self._lowest = np.unique(np.concatenate([self._lowest, hashes]))[: EXACT_VALUES + 1]

    def _forget_rare(self) -> None:
        """Take the count of the first value that is too many from all values, so that no count is too high."""
        less = int(np.partition(self._counts, -TOP_VALUES - 1)[-TOP_VALUES - 1])
        self._counts = self._counts - less
        left = self._counts > 0
        self._hashes, self._counts, self._shown = self._hashes[left], self._counts[left], self._shown[left]
        self._missed += less

    @property
    def is_exact(self) -> bool:
        """Whether `distinct` is exact."""
        return len(self._lowest) <= EXACT_VALUES

    @property
    def distinct(self) -> int:
        """The number of distinct values, or an estimate: see `is_exact`."""
        if self.is_exact:
            return len(self._lowest)
        return round(EXACT_VALUES * _RANGE / float(self._lowest[-1]))

    @property
    def top_is_exact(self) -> bool:
        """Whether the counts of `top` are exact; else each is too low by at most `missed`."""
        return not self._missed

    def top(self, number: int) -> list[tuple[Any, int]]:
        """Return the most frequent values and their counts, those of one count in the order of the values."""
        order = sorted(range(len(self._counts)), key=lambda i: (-self._counts[i], str(self._shown[i])))
        return [(self._shown[i], int(self._counts[i])) for i in order[:number]]


@dataclass(slots=True)
class Keys:
    """How many keys occur again: exactly up to a number of keys, and estimated from so many beyond.

    Attributes:
        most: hashes that are held, at most.
        seen: keys so far.
    """

    most: int = 4 << 20
    seen: int = 0
    _hashes: list[NDArray[np.uint64]] = field(default_factory=list, repr=False)
    _held: int = 0
    _below: int = 1 << 64

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Add the hashes of keys."""
        self.seen += len(hashes)
        self._take(hashes)

    def merge(self, other: Keys) -> None:
        """Add the keys of another summary."""
        self.seen += other.seen
        if other._below < self._below:
            self._narrow(other._below)
        for hashes in other._hashes:
            self._take(hashes)

    def _take(self, hashes: NDArray[np.uint64]) -> None:
        if not self.is_exact:
            hashes = hashes[hashes < np.uint64(self._below)]
        if len(hashes):
            self._hashes.append(hashes)
            self._held += len(hashes)
        while self._held > self.most:
            self._narrow(self._below // 2)

    def _narrow(self, below: int) -> None:
        self._below = below
        every = np.concatenate(self._hashes) if self._hashes else _NO_HASHES
        self._hashes = [every[every < np.uint64(below)]]
        self._held = len(self._hashes[0])

    @property
    def is_exact(self) -> bool:
        """Whether `repeated` is exact."""
        return self._below == 1 << 64

    @property
    def repeated(self) -> int:
        """The number of keys that came before, or an estimate: see `is_exact`."""
        every = np.concatenate(self._hashes) if self._hashes else _NO_HASHES
        return round((len(every) - len(np.unique(every))) * (_RANGE / self._below))
