"""The part of an epoch that a rank reads: which positions of the order are in each of its batches.

A step takes the next `world_size × batch_size` positions, of which each rank takes every `world_size`-th. So all ranks
have the same number of batches, and the samples of a step do not depend on how many ranks share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Last", "Share"]

Last: TypeAlias = Literal["short", "pad", "drop"]
"""What is done where the samples do not fill the last step: a shorter batch; samples of the epoch again; leave out."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a rank reads of an epoch.

    Attributes:
        num_samples: of the epoch.
        batch_size: samples of a rank in a step.
        last: what is done with the last step.
        rank: of this process.
        world_size: number of ranks.
        every: one batch of so many of the rank is read, where worker processes take turns.
    """

    num_samples: int
    batch_size: int
    last: Last = "short"
    rank: int = 0
    world_size: int = 1
    every: int = 1

    @property
    def step_samples(self) -> int:
        """Positions from the begin of a batch to that of the next."""
        return self.batch_size * self.world_size * self.every

    @property
    def pads(self) -> bool:
        """Whether the last step may hold samples of the epoch again: batches of such a loader say which they are."""
        return self.last == "pad" or (self.last == "short" and self.world_size > 1)

    def num_batches(self, position: int = 0) -> int:
        """Batches of every rank from a position on."""
        left, step = max(self.num_samples - position, 0), self.batch_size * self.world_size
        of_rank = left // step if self.last == "drop" else -(-left // step)
        return -(-of_rank // self.every)

    def after(self, position: int, steps: int = 1) -> int:
        """The position behind so many steps."""
        return min(position + steps * self.step_samples, self.num_samples)

    def positions(self, position: int, steps: int) -> list[NDArray[np.int64]]:
        """The positions of the next batches of this rank; those from `num_samples` on are padding.

        Padding takes samples from the begin of the epoch: use them modulo `num_samples`.
        """
        return [
            self._of_step(start) for start in range(position, position + steps * self.step_samples, self.step_samples)
        ]

    def _of_step(self, start: int) -> NDArray[np.int64]:
        mine = start + self.rank + self.world_size * np.arange(self.batch_size)
        if self.last == "short":
            there = int(np.searchsorted(mine, self.num_samples))
            mine = mine[: max(there, 1)]  # a rank that has no sample left must not lack the step
        return mine
