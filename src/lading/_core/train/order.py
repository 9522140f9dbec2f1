"""The order of an epoch: a function of the number of samples, the seed, the epoch and the kind of shuffle.

Nothing else changes it: no rank, no number of ranks or workers, no machine. Any position is computed by itself, so a
loader can begin anywhere.

Kinds of shuffle:

- `none`: the order of the source.
- `global`: any order of all samples is equally near. Every batch reads from everywhere.
- `block`: for data of which neighbours are read together. Blocks of neighbours are put in a random order; a number of
  them make a round. The samples of a round are dealt out to lanes, each of which shuffles its own. Position `q` of
  a round is of lane `q % lanes`: ranks that take every n-th position read blocks of their own.

Example:
    order = Order(np.array([1000, 1800]), Shuffle("block", 100), seed=7, epoch=0)
    order.at(np.arange(64))
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lading._core.train.permutation import Permutation, derived_key
from lading.errors import UsageError

__all__ = ["LANES", "Kind", "Order", "Shuffle", "shuffle_of"]

Kind: TypeAlias = Literal["none", "global", "block"]

_AT_ONCE: Final = 1 << 20
"""Positions that are computed at once, where all of an epoch are asked for."""
_WINDOW: Final = 8
LANES: Final = 8
"""Of a round, unless the user says otherwise: ranks of a machine."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """How an epoch is shuffled.

    Attributes:
        kind: `none`, `global` or `block`.
        block: samples of a block, at most; blocks do not cross shards. 0 where there are no blocks.
        window: blocks that a lane shuffles at once.
        lanes: parts of a round. As many ranks read their blocks alone; fewer ranks read several lanes.
    """

    kind: Kind
    block: int = 0
    window: int = _WINDOW
    lanes: int = LANES

    def __post_init__(self) -> None:
        """Refuse other kinds, and sizes that are no sizes."""
        if self.kind not in get_args(Kind):
            raise UsageError("no such shuffle", expected=", ".join(get_args(Kind)), found=repr(self.kind))
        if self.kind == "block" and min(self.block, self.window, self.lanes) < 1:
            raise UsageError("a block, a window and the number of lanes must be at least 1", found=repr(self))

    def as_dict(self) -> dict[str, Any]:
        """The values that matter, as JSON has them."""
        return asdict(self) if self.kind == "block" else {"kind": self.kind}


def shuffle_of(values: Any) -> Shuffle:
    """Return the shuffle of a state, from `Shuffle.as_dict`. Raises UsageError for something else."""
    try:
        return Shuffle(**values)
    except TypeError:
        raise UsageError("this is no state of a loader: it has no shuffle", found=repr(values)[:80]) from None


class Order:
    """The order of one epoch.

    Args:
        shard_ends: number of samples in each shard and all before it.
        shuffle: how it is shuffled.
        seed: of the user.
        epoch: its number.

    Memory: of a block shuffle 8 bytes a shard, and 24 a shard that ends with a shorter block; else none.
    """

    def __init__(self, shard_ends: NDArray[np.int64], shuffle: Shuffle, seed: int, epoch: int) -> None:
        self.num_samples = int(shard_ends[-1]) if len(shard_ends) else 0
        self.shuffle = shuffle
        self._ends, self._seed, self._epoch = shard_ends, seed, epoch

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the samples at some positions. Raises IndexError for a position outside of the epoch."""
        if self.shuffle.kind == "global":
            return self._permutation(self.num_samples, "samples").at(positions)
        if len(positions) and not (positions.min() >= 0 and int(positions.max()) < self.num_samples):
            raise IndexError(f"positions {positions.min()} to {positions.max()} of {self.num_samples}")
        return positions if self.shuffle.kind == "none" else self._of_blocks(positions)

    @property
    def reads_rounds(self) -> bool:
        """Whether samples up to `round_end` should be read at once."""
        return self.shuffle.kind == "block"

    def round_end(self, position: int) -> int:
        """Where the round of a position ends: what is read of its blocks is used before this position."""
        if self.shuffle.kind != "block":
            return self.num_samples
        return int(self._rounds_at(np.array([position]))[2][0]) if position < self.num_samples else position

    def parts(self) -> NDArray[np.int64]:
        """The lane of a round that each position is of: of a block shuffle, which reads each by itself."""
        found = np.empty(self.num_samples, np.int64)
        for first in range(0, len(found), _AT_ONCE):
            positions = np.arange(first, min(first + _AT_ONCE, len(found)))
            rounds, begins, _ = self._rounds_at(positions)
            found[positions] = rounds * self.shuffle.lanes + (positions - begins) % self.shuffle.lanes
        return found

    def _permutation(self, count: int, *use: Any) -> Permutation:
        return Permutation(count, derived_key(self._seed, self._epoch, *use))

    # Blocks

    @cached_property
    def _block_ends(self) -> NDArray[np.int64]:
        """The number of blocks in each shard and all before it."""
        counts: NDArray[np.int64] = -(-np.diff(self._ends, prepend=0) // self.shuffle.block)
        return np.cumsum(counts)

    @cached_property
    def _block_order(self) -> Permutation:
        return self._permutation(int(self._block_ends[-1]), "blocks")

    @cached_property
    def _shorter(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The blocks that are shorter than others, in the random order.

        Their places, the positions where they end, and how many samples they all lack before each, and after the last.
        """
        lacking = -np.diff(self._ends, prepend=0) % self.shuffle.block
        which = np.flatnonzero(lacking)
        places = self._block_order.places(self._block_ends[which] - 1)
        order = np.argsort(places)
        lacked = np.append(0, np.cumsum(lacking[which][order]))
        return places[order], (places[order] + 1) * self.shuffle.block - lacked[1:], lacked

    def _begins(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The positions at which blocks of the random order begin; behind the last, where it ends."""
        places, _, lacked = self._shorter
        begins: NDArray[np.int64] = blocks * self.shuffle.block - lacked[np.searchsorted(places, blocks)]
        return begins

    def _blocks_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which block of the random order each position is in, were the samples of a round not shuffled."""
        _, ends, lacked = self._shorter
        blocks: NDArray[np.int64] = (
            positions + lacked[np.searchsorted(ends, positions, "right")]
        ) // self.shuffle.block
        return blocks

    def _rounds_at(
        self, positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The round of each position, where it begins, and where it ends."""
        size = self.shuffle.window * self.shuffle.lanes
        rounds = self._blocks_at(positions) // size
        last = np.minimum((rounds + 1) * size, self._block_order.count)
        return rounds, self._begins(rounds * size), self._begins(last)

    def _of_blocks(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(positions):
            return positions
        lanes = self.shuffle.lanes
        rounds, begins, ends = self._rounds_at(positions)
        within = positions - begins
        rows = np.empty(len(positions), np.int64)
        uses, first, of_use = np.unique(rounds * lanes + within % lanes, return_index=True, return_inverse=True)
        for use, (number, at) in enumerate(zip(uses.tolist(), first.tolist(), strict=True)):
            mine = np.flatnonzero(of_use == use)
            a_round, lane = divmod(number, lanes)
            length, extra = divmod(int(ends[at] - begins[at]), lanes)
            begin = int(begins[at]) + lane * length + min(lane, extra)
            places = within[mine] // lanes
            rows[mine] = begin + self._permutation(length + (lane < extra), "lane", a_round, lane).at(places)
        place = self._blocks_at(rows)
        number = self._block_order.at(place)
        shard = np.searchsorted(self._block_ends, number, "right")
        block = number - np.where(shard > 0, self._block_ends[shard - 1], 0)
        first = np.where(shard > 0, self._ends[shard - 1], 0) + block * self.shuffle.block
        found: NDArray[np.int64] = first + rows - self._begins(place)
        return found
