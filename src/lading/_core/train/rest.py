"""What is left of an epoch whose data changed while it ran: the samples of its order that nobody was given.

They have an order of their own: that of the whole epoch over the data of today, without the samples that were given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lading._core.train.order import Order

__all__ = ["Rest", "RestOrder", "numbers_in_order", "positions_left"]

_AT_ONCE: Final = 1 << 16
"""Positions: an order of blocks takes the more time for each, the more blocks are asked for at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """What is left of an epoch.

    Attributes:
        epoch: its number.
        left: positions of the order of the whole epoch whose samples were not given, rising. 8 bytes a sample.
        before: the states of the epoch at which the data changed, the oldest first.
    """

    epoch: int
    left: NDArray[np.int64]
    before: tuple[Mapping[str, Any], ...]


class RestOrder:
    """The order of what is left of an epoch (`EpochOrder`).

    Args:
        order: of the whole epoch.
        left: the positions that are left, rising.

    Attributes:
        num_samples: positions that are left.
    """

    def __init__(self, order: Order, left: NDArray[np.int64]) -> None:
        self._order, self._left, self.num_samples = order, left, len(left)

    @property
    def reads_rounds(self) -> bool:
        """Whether samples up to `round_end` should be read at once."""
        return self._order.reads_rounds

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the samples at some positions."""
        return self._order.at(self._left[positions])

    def round_end(self, position: int) -> int:
        """Where the round of a position ends."""
        if position >= self.num_samples:
            return position
        return int(np.searchsorted(self._left, self._order.round_end(int(self._left[position]))))


def positions_left(order: Order, seen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the positions of an order whose samples were not seen; `seen` has a value for each sample."""
    if not seen.any():
        return np.arange(order.num_samples)
    left = [np.flatnonzero(~seen[numbers]) + begin for begin, numbers in numbers_in_order(order, order.num_samples)]
    return np.concatenate([np.zeros(0, np.int64), *left])


def numbers_in_order(order: Order | RestOrder, count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the numbers of the first samples of an order, some at once, each time with the first position."""
    for begin in range(0, count, _AT_ONCE):
        yield begin, order.at(np.arange(begin, min(begin + _AT_ONCE, count)))
