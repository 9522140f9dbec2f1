"""The part of an epoch that a rank reads: which positions of the order are in each of its batches.

A step takes the next `world_size × batch_size` positions, of which each rank takes every `world_size`-th. So all ranks
have the same number of batches, and the samples of a step do not depend on how many ranks share them.

Where batches are made by size, a step takes the next `world_size` batches of the order, one for each rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lading._core.train.buckets import Batches

__all__ = ["Last", "Share", "SizedShare"]

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
    def left_out(self) -> int:
        """Samples of the epoch that are in no batch."""
        return self.num_samples - self.after(0, self.num_batches()) if self.last == "drop" else 0

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

    def has(self, position: int) -> bool:
        """Whether a step may begin or end at a position."""
        return position <= self.num_samples

    @property
    def step(self) -> dict[str, int]:
        """How long a step of all ranks is, as states of worker processes keep it."""
        return {"step_samples": self.batch_size * self.world_size}

    def behind(self, position: int, steps: int, step: Mapping[str, Any]) -> int:
        """The position behind so many steps of a job that may have had other ranks (`step`)."""
        return min(position + steps * int(step.get("step_samples", 0)), self.num_samples)

    def steps_until(self, position: int, end: int) -> int:
        """How many steps begin before a position."""
        return -(-(end - position) // self.step_samples)

    def others(self, position: int, count: int) -> NDArray[np.int64]:
        """The positions of so many samples that may stand in the place of another one, the nearest first."""
        return np.arange(position + 1, position + 1 + min(count, self.num_samples - 1))

    def image_size(self, position: int) -> tuple[int, int] | None:  # noqa: ARG002 - batches by size need it
        """None: the images of all batches have one size, or their own."""
        return None

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


@dataclass(frozen=True, slots=True)
class SizedShare(Share):
    """What a rank reads of an epoch whose batches are made by size. `batch_size` is the average.

    Attributes:
        batches: of the epoch.
    """

    batches: Batches = field(default_factory=Batches.none)

    @classmethod
    def of(cls, share: Share, batches: Batches) -> SizedShare:
        """The share of a rank in some batches."""
        count, average = batches.num_samples, -(-batches.num_samples // max(len(batches), 1))
        return cls(count, max(average, 1), share.last, share.rank, share.world_size, share.every, batches)

    @property
    def _step_batches(self) -> int:
        return self.world_size * self.every

    def num_batches(self, position: int = 0) -> int:
        """Batches of every rank from a position on."""
        done, last = self.batches.done(position), self.last == "drop"
        left = max((self.batches.whole if last else len(self.batches)) - done, 0)
        of_rank = left // self.world_size if last else -(-left // self.world_size)
        return -(-of_rank // self.every)

    def after(self, position: int, steps: int = 1) -> int:
        """The position behind so many steps."""
        return self.batches.position(self.batches.done(position) + steps * self._step_batches)

    def has(self, position: int) -> bool:
        """Whether a batch begins or ends at a position."""
        return self.batches.position(self.batches.done(position)) == position

    @property
    def step(self) -> dict[str, int]:
        """How long a step of all ranks is, as states of worker processes keep it."""
        return {"step_batches": self.world_size}

    def behind(self, position: int, steps: int, step: Mapping[str, Any]) -> int:
        """The position behind so many steps of a job that may have had other ranks (`step`)."""
        return self.batches.position(self.batches.done(position) + steps * int(step.get("step_batches", 0)))

    def steps_until(self, position: int, end: int) -> int:
        """How many steps begin before a position."""
        return -(-(self.batches.done(end) - self.batches.done(position)) // self._step_batches)

    def others(self, position: int, count: int) -> NDArray[np.int64]:
        """The positions of so many samples of the same bucket, of the next batches first."""
        batches, mine = self.batches, self.batches.done(position % self.num_samples)
        alike = np.flatnonzero(batches.bucket == batches.bucket[mine])
        after = np.roll(alike, -int(np.searchsorted(alike, mine)))  # of this batch, of those behind it, of others
        each = (np.arange(batches.begins[i], batches.ends[i]) for i in after.tolist())
        found = (place for places in each for place in places.tolist() if place != position % self.num_samples)
        return np.fromiter(islice(found, count), np.int64)

    def image_size(self, position: int) -> tuple[int, int] | None:
        """Height and width of the images of a batch; None where images keep their sizes."""
        batches = self.batches
        if not batches.resolutions:
            return None
        return batches.resolutions[batches.bucket[batches.done(position % self.num_samples)]]

    def positions(self, position: int, steps: int) -> list[NDArray[np.int64]]:
        """The positions of the next batches of this rank; those from `num_samples` on are padding.

        A rank for which no batch is left has one of the first ones again. With `pad`, a batch that may have more
        samples has its own again.
        """
        first = self.batches.done(position) + self.rank
        return [self._of_batch(first + step * self._step_batches) for step in range(steps)]

    def _of_batch(self, number: int) -> NDArray[np.int64]:
        batches, again = self.batches, number >= len(self.batches)
        number %= len(batches)
        mine = np.arange(batches.begins[number], batches.ends[number])
        if self.last == "pad":
            more = np.resize(mine, int(batches.most[number]) - len(mine)) + self.num_samples
            mine = np.concatenate([mine, more])
        return mine % self.num_samples + self.num_samples if again else mine
