"""Epochs that are not one pass over the data: so many samples of passes one after another, or samples drawn by weights.

Both compute any position by itself, as `Order` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import xxhash
from numpy.typing import NDArray

from lading._core.train.order import Order
from lading._core.train.permutation import derived_key, random_floats

__all__ = ["DrawnOrder", "PassesOrder", "Weights", "places_of_passes"]

_KEPT_ORDERS = 4


def places_of_passes(
    passes: NDArray[np.int64], places: NDArray[np.int64], order_of: Callable[[int], Order]
) -> NDArray[np.int64]:
    """Return the numbers of the samples at some places, each of a pass."""
    found, by_pass = np.empty(len(places), np.int64), np.argsort(passes, kind="stable")
    numbers, firsts = np.unique(passes[by_pass], return_index=True)
    for number, mine in zip(numbers.tolist(), np.split(by_pass, firsts[1:]), strict=False):
        found[mine] = order_of(number).at(places[mine])
    return found


class PassesOrder:
    """An epoch of so many samples. It goes on in the pass over the data in which the epoch before it ended.

    Args:
        order_of: gives the order of a pass, by its number.
        epoch: number of the epoch.
        epoch_size: samples of each epoch.

    Attributes:
        num_samples: samples of the epoch.
    """

    def __init__(self, order_of: Callable[[int], Order], epoch: int, epoch_size: int) -> None:
        self._order_of, self._begin = lru_cache(_KEPT_ORDERS)(order_of), epoch * epoch_size
        self._count = order_of(0).num_samples
        self.num_samples = epoch_size if self._count else 0

    @property
    def reads_rounds(self) -> bool:
        """Whether samples up to `round_end` should be read at once."""
        return self._order_of(0).reads_rounds

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the samples at some positions."""
        passes, places = np.divmod(positions + self._begin, max(self._count, 1))
        return places_of_passes(passes, places, self._order_of)

    def round_end(self, position: int) -> int:
        """Where the round of a position ends; a round ends with its pass, too."""
        number, place = divmod(position + self._begin, max(self._count, 1))
        end = position + self._order_of(number).round_end(place) - place
        return max(min(end, self.num_samples), position)


@dataclass(frozen=True, eq=False)
class Weights:
    """How likely each sample is drawn.

    Attributes:
        ends: sum of the weights of each sample and all before it; float64, one a sample.
    """

    ends: NDArray[np.float64]

    @classmethod
    def of(cls, weights: NDArray[np.float64]) -> Weights:
        """Return the value for weights of at least 0, of which one is more."""
        return cls(np.cumsum(weights / weights.max()))

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits, the same for the same weights."""
        return xxhash.xxh3_64_hexdigest(self.ends.astype("<f8").tobytes())


class DrawnOrder:
    """An epoch of samples that are drawn by their weights, each independently of all others.

    A sample may come several times in an epoch, or not at all.

    Args:
        weights: of the samples.
        seed: of the user.
        epoch: number of the epoch.
        num_samples: samples of the epoch.

    Attributes:
        num_samples: samples of the epoch.
    """

    reads_rounds = False

    def __init__(self, weights: Weights, seed: int, epoch: int, num_samples: int) -> None:
        self._ends, self.num_samples = weights.ends, num_samples
        self._key = derived_key(seed, epoch, "draws")

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the samples at some positions."""
        drawn = random_floats(self._key, positions) * self._ends[-1]
        order, found = np.argsort(drawn), np.empty(len(drawn), np.int64)
        found[order] = np.searchsorted(self._ends, drawn[order], "right")  # sorted: a quarter of the time
        return found

    def round_end(self, position: int) -> int:
        """The end of the epoch: samples come from everywhere."""
        return max(position, self.num_samples)
