"""Batches of samples of similar size: which bucket each sample is in, and the batches of an epoch.

A bucket holds samples of similar size, and has a fixed number of samples a batch. An epoch goes through its order, and
gives a batch whenever a bucket has enough samples. So batches come in random order where the order is shuffled, and
hold samples that are near each other in the order. At the end of an epoch, what is left of the buckets is put together.

The number of samples of each bucket decides the number of batches: it is the same in every epoch of a dataset.

Example:
    buckets = Buckets.of(np.array([[5.0], [7.0], [40.0]]), max_padding=0.3, bound=40)
    SizedOrder(order, buckets).batches.ends
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lading._core.train.feed import EpochOrder

__all__ = ["LEFT_OUT", "Batches", "Buckets", "SizedOrder"]

LEFT_OUT: Final = -1
"""The bucket of samples that are in no batch: too large, where the user leaves those out."""

_AT_ONCE: Final = 1 << 20
"""Positions of an order that are computed at once: a random order takes 40 bytes for each."""
_SAME: Final = 1e-9
"""Aspect ratios whose logarithms differ by less are one."""


@dataclass(frozen=True, eq=False)
class Buckets:
    """The bucket of each sample, and how many samples a batch of each bucket has. Smaller sizes come first.

    Attributes:
        of: the bucket of each sample, by its number; `LEFT_OUT` for none.
        lows: the smallest sides of the samples of each bucket: `(buckets, sides)`.
        highs: the largest ones.
        bound: the padded size of a batch, at most: the largest sides of its samples, and their number, multiplied.
        batch_size: samples of a batch, at most; None for any number.
        merges: whether what is left of several buckets at the end of an epoch may make a batch.
        resolutions: height and width of the images of each bucket; empty where images keep their sizes.
    """

    of: NDArray[np.int32]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    bound: float = inf
    batch_size: int | None = None
    merges: bool = True
    resolutions: tuple[tuple[int, int], ...] = ()

    @classmethod
    def by_size(
        cls,
        sides: NDArray[np.float64],
        max_padding: float,
        *,
        bound: float = inf,
        batch_size: int | None = None,
        merges: bool = True,
        leaves_out: bool = False,
    ) -> Buckets:
        """Buckets of samples of which the smallest one has at least `1 - max_padding` of the size of the largest one.

        Args:
            sides: of each sample: its length; or its width and height. `(samples, 1)` or `(samples, 2)`, none below 0.
            max_padding: share of a batch that is padding, at most; below 1.
            bound: see the attributes. Larger samples are batches of their own.
            batch_size: see the attributes.
            merges: see the attributes.
            leaves_out: whether samples above the bound are in no bucket.

        Memory: 40 bytes a sample, of which 4 stay.
        """
        steps = [_steps(side, 1 - (1 - max_padding) ** (1 / sides.shape[1])) for side in sides.T]
        key = steps[0]
        if len(steps) > 1:  # neighbours in shape are neighbours: at the end of an epoch they are put together
            shape = steps[0] - steps[1]
            across = int(steps[0].max(initial=0) + steps[1].max(initial=0)) + 1
            key = (shape - shape.min(initial=0)) * across + steps[0] + steps[1]
        too_large = sides.prod(axis=1) > bound
        if leaves_out:
            key[too_large] = LEFT_OUT
        else:  # apart from samples of their step that are not
            key = 2 * key + too_large
        used = np.flatnonzero(np.bincount(key + 1)) - 1
        places = np.full(int(key.max(initial=0)) + 2, LEFT_OUT, np.int32)
        places[used[used != LEFT_OUT] + 1] = np.arange(np.count_nonzero(used != LEFT_OUT))
        of = places[key + 1]
        count = np.count_nonzero(used != LEFT_OUT)
        lows, highs = np.full((count, len(steps)), inf), np.zeros((count, len(steps)))
        there = of != LEFT_OUT
        for i, side in enumerate(sides.T):
            np.minimum.at(lows[:, i], of[there], side[there])
            np.maximum.at(highs[:, i], of[there], side[there])
        return cls(of, lows, highs, bound, batch_size, merges)

    @classmethod
    def by_shape(
        cls,
        sides: NDArray[np.float64],
        resolutions: Sequence[tuple[int, int]],
        *,
        bound: float = inf,
        batch_size: int | None = None,
    ) -> Buckets:
        """A bucket for each resolution, with the images whose aspect ratio is nearest to its own.

        Of resolutions with one aspect ratio, an image has the one whose area is nearest to its own.

        Args:
            sides: width and height of each image: `(samples, 2)`.
            resolutions: height and width.
            bound: see the attributes; of pixels after the resize.
            batch_size: see the attributes.
        """
        whole = np.array(resolutions, np.float64).reshape(-1, 2)[:, ::-1]
        shapes, areas = np.log(whole[:, 0] / whole[:, 1]), np.log(whole.prod(axis=1))
        of, size = np.zeros(len(sides), np.int32), _AT_ONCE // 16
        for begin in range(0, len(sides), size):
            part = sides[begin : begin + size]
            far = np.abs(np.log(part[:, :1] / part[:, 1:]) - shapes)
            near = far <= far.min(axis=1, keepdims=True) + _SAME
            by_area = np.where(near, np.abs(np.log(part.prod(axis=1, keepdims=True)) - areas), inf)
            of[begin : begin + size] = by_area.argmin(axis=1)
        return cls(of, whole, whole, bound, batch_size, merges=False, resolutions=tuple(resolutions))

    @cached_property
    def most(self) -> NDArray[np.int64]:
        """Samples of a batch of each bucket."""
        return np.array([self.most_of(high) for high in self.highs], np.int64)

    def most_of(self, sides: NDArray[np.float64]) -> int:
        """How many samples with these largest sides a batch may have; at least one."""
        size = float(sides.prod())
        fits = min(self.bound // size if size and self.bound < inf else inf, self.batch_size or inf, len(self.of))
        return max(int(fits), 1)

    @cached_property
    def digest(self) -> str:
        """16 hex digits, the same where the batches of an order are the same."""
        found = xxhash.xxh3_64(self.of.astype("<i4").tobytes())
        found.update(self.most.astype("<i8").tobytes())
        found.update(self.highs.astype("<f8").tobytes())
        return found.hexdigest()


@dataclass(frozen=True, eq=False)
class Batches:
    """The batches of an epoch, which are neighbours in its order: those with all their samples first.

    Attributes:
        ends: where each batch ends.
        bucket: of each batch; of several, the one of the largest samples.
        most: samples that each batch may have.
        whole: number of the batches that have as many; only the last ones have fewer.
        resolutions: of the buckets, as `Buckets` has them.
    """

    ends: NDArray[np.int64]
    bucket: NDArray[np.int32]
    most: NDArray[np.int64]
    whole: int
    resolutions: tuple[tuple[int, int], ...] = ()

    @classmethod
    def none(cls) -> Batches:
        """No batch."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64), 0)

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def num_samples(self) -> int:
        """Samples in all batches."""
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """Where each batch begins."""
        return np.append(np.zeros(1, np.int64), self.ends)[:-1]

    def done(self, position: int) -> int:
        """Number of the batches that end at or before a position."""
        return int(np.searchsorted(self.ends, position, "right"))

    def position(self, batches: int) -> int:
        """Where so many batches end."""
        return int(self.ends[min(batches, len(self)) - 1]) if batches and len(self) else 0


class SizedOrder:
    """The order of an epoch, put into batches of samples of similar size (`EpochOrder`).

    Args:
        order: of all samples.
        buckets: of the samples.

    Attributes:
        num_samples: positions of the epoch, without samples that are in no bucket.
        batches: of the epoch.

    Memory: 8 bytes a sample; 40 while it is made.
    """

    def __init__(self, order: EpochOrder, buckets: Buckets) -> None:
        self._order = order
        numbers = np.empty(order.num_samples, np.int64)
        for begin in range(0, len(numbers), _AT_ONCE):
            end = min(begin + _AT_ONCE, len(numbers))
            numbers[begin:end] = order.at(np.arange(begin, end))
        of = buckets.of[numbers]
        places = np.argsort(of, kind="stable")  # the samples of a bucket together, each bucket in the order
        counts = np.bincount(of + 1, minlength=len(buckets.most) + 1)
        begins = np.cumsum(counts)[:-1]
        cut = [*_cut(counts[1:], begins, buckets, places)]
        lengths = np.concatenate([np.zeros(0, np.int64), *(each.lengths for each in cut)])
        taken = np.concatenate([np.zeros(0, np.int64), *(each.places for each in cut)])
        most = np.concatenate([np.zeros(0, np.int64), *(each.most for each in cut)])
        bucket = np.concatenate([np.zeros(0, np.int32), *(each.bucket for each in cut)])
        del of, places
        ends = np.cumsum(lengths)
        lasts = np.maximum.reduceat(taken, ends - lengths) if len(ends) else ends
        by_place = np.lexsort((lasts, lengths < most))  # where the order has the last sample of each
        self._lasts, lengths = lasts[by_place], lengths[by_place]
        moved = np.repeat((ends[by_place] - lengths) - (np.cumsum(lengths) - lengths), lengths)
        self._numbers = numbers[taken[moved + np.arange(len(taken))]]
        self.batches = Batches(
            np.cumsum(lengths), bucket[by_place], most[by_place], int(np.count_nonzero(lengths == most[by_place])),
            buckets.resolutions,
        )  # fmt: skip
        self.num_samples = len(taken)

    def at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the samples at some positions."""
        found: NDArray[np.int64] = self._numbers[positions]
        return found

    @property
    def reads_rounds(self) -> bool:
        """Whether samples up to `round_end` should be read at once."""
        return self._order.reads_rounds

    def round_end(self, position: int) -> int:
        """Where the last batch ends before the next round of the order begins.

        A batch may have samples of rounds before: the buckets keep some from each round to the next.
        """
        batches = self.batches
        number = batches.done(position)
        if number >= batches.whole:
            return max(position, self.num_samples)
        end = self._order.round_end(int(self._lasts[number]))
        until = int(np.searchsorted(self._lasts[: batches.whole], end))
        return self.num_samples if until >= batches.whole else batches.position(until)


class _Cut(NamedTuple):
    """Batches that are cut from the samples of buckets: where the order has their samples, and how many each has."""

    places: NDArray[np.int64]
    lengths: NDArray[np.int64]
    most: NDArray[np.int64]
    bucket: NDArray[np.int32]


def _cut(
    counts: NDArray[np.int64], begins: NDArray[np.int64], buckets: Buckets, places: NDArray[np.int64]
) -> Iterator[_Cut]:
    """Cut the samples of each bucket into batches, and what is left of them.

    Args:
        counts: samples of each bucket.
        begins: where each bucket begins in `places`.
        buckets: what a batch may have.
        places: of the samples, the buckets one after the other.
    """
    most = buckets.most
    whole = counts // most * most
    for k in np.flatnonzero(counts).tolist():
        number = int(whole[k] // most[k])
        mine = places[begins[k] : begins[k] + whole[k]]
        yield _Cut(mine, np.full(number, most[k]), np.full(number, most[k]), np.full(number, k, np.int32))
    left = counts - whole
    lengths, limits, bucket = list[int](), list[int](), list[int]()
    sides, room = np.zeros(buckets.highs.shape[1]), 0
    rest = [np.zeros(0, np.int64)]
    for k in np.flatnonzero(left)[::-1].tolist():
        rest.append(places[begins[k] + whole[k] : begins[k] + counts[k]])
        new = int(left[k])
        while new:
            wider = np.maximum(sides, buckets.highs[k])
            if lengths and buckets.merges and (room := buckets.most_of(wider) - lengths[-1]) > 0:
                sides = wider
            else:
                sides, room = buckets.highs[k], int(most[k])
                lengths.append(0)
                limits.append(0)
                bucket.append(k)
            lengths[-1] += min(room, new)
            limits[-1] = buckets.most_of(sides)
            new -= min(room, new)
    yield _Cut(np.concatenate(rest), np.array(lengths, np.int64), np.array(limits, np.int64),
               np.array(bucket, np.int32))  # fmt: skip


def _steps(sizes: NDArray[np.float64], max_padding: float) -> NDArray[np.int64]:
    """A number for each size: sizes of one number differ by less than a share, and smaller sizes have smaller ones."""
    largest, smallest = sizes.max(initial=0), sizes[sizes > 0].min(initial=inf)
    if not max_padding or largest == 0:
        return np.unique(sizes, return_inverse=True)[1].reshape(-1)
    count = int(np.ceil(np.log(smallest / largest) / np.log(1 - max_padding))) + 1
    edges = largest * (1 - max_padding) ** np.arange(count, 0, -1)
    return np.where(sizes > 0, np.searchsorted(edges, sizes) + 1, 0)
