"""Batches of samples of similar size: which bucket each sample is in, and the batches of an epoch.

A bucket holds samples of similar size, and has a fixed number of samples a batch. An epoch goes through its order, and
gives a batch whenever a bucket has enough samples. So batches come in random order where the order is shuffled, and
hold samples that are near each other in the order. At the end of an epoch, what is left of the buckets is put together.

The number of samples of each bucket decides the number of batches: it is the same in every epoch of a dataset. In a
block shuffle each lane of a round is such an epoch of its own, if it has samples for many batches: so blocks are read
once, and the number of batches differs a little.

Example:
    buckets = Buckets.of(np.array([[5.0], [7.0], [40.0]]), max_padding=0.3, bound=40)
    SizedOrder(order, buckets).batches.ends
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard

import numpy as np
import xxhash
from numpy.typing import NDArray

from lading._core.train.order import Order

if TYPE_CHECKING:
    from lading._core.train.feed import EpochOrder

__all__ = ["LEFT_OUT", "Batches", "Buckets", "SizedOrder"]

LEFT_OUT: Final = -1
"""The bucket of samples that are in no batch: too large, where the user leaves those out."""

_AT_ONCE: Final = 1 << 20
"""Positions of an order that are computed at once: a random order takes 40 bytes for each."""
_MOST_LEFT: Final = 0.25
"""Share of the samples of a lane of a round that do not fill batches of their bucket."""
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
        most_merged: share by which the smallest sample of a batch may be below the largest one, where the batch is of
            what is left of several buckets; 0 for batches of one bucket each.
        resolutions: height and width of the images of each bucket; empty where images keep their sizes.
    """

    of: NDArray[np.int32]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    bound: float = inf
    batch_size: int | None = None
    most_merged: float = 0.0
    resolutions: tuple[tuple[int, int], ...] = ()

    @classmethod
    def by_size(
        cls,
        sides: NDArray[np.float64],
        max_padding: float,
        *,
        bound: float = inf,
        batch_size: int | None = None,
        most_merged: float = 0.0,
        leaves_out: bool = False,
    ) -> Buckets:
        """Buckets of samples of which the smallest one has at least `1 - max_padding` of the size of the largest one.

        Args:
            sides: of each sample: its length; or its width and height. `(samples, 1)` or `(samples, 2)`, none below 0.
            max_padding: share of a batch that is padding, at most; below 1.
            bound: see the attributes. Larger samples are batches of their own.
            batch_size: see the attributes.
            most_merged: see the attributes.
            leaves_out: whether samples above the bound are in no bucket.

        Memory: 60 bytes a sample, of which 4 stay.
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
        used, places = np.unique(key, return_inverse=True)
        left_out = np.count_nonzero(used == LEFT_OUT)  # 1 or 0: it comes before all buckets
        of, count = (places.reshape(-1) - left_out).astype(np.int32), len(used) - left_out
        lows, highs = np.full((count, len(steps)), inf), np.zeros((count, len(steps)))
        there = of != LEFT_OUT
        for i, side in enumerate(sides.T):
            np.minimum.at(lows[:, i], of[there], side[there])
            np.maximum.at(highs[:, i], of[there], side[there])
        return cls(of, lows, highs, bound, batch_size, most_merged)

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
        return cls(of, whole, whole, bound, batch_size, resolutions=tuple(resolutions))

    @cached_property
    def most(self) -> NDArray[np.int64]:
        """Samples of a batch of each bucket."""
        return np.array([self.most_of(high) for high in self.highs], np.int64)

    @cached_property
    def lowest(self) -> NDArray[np.int64]:
        """The first of the buckets whose samples may be in a batch with those of each bucket."""
        found = np.arange(len(self.highs))
        for k in found.tolist() if self.most_merged else ():
            low, high, j = self.lows[k], self.highs[k], k - 1
            while j >= 0:
                low, high = np.minimum(low, self.lows[j]), np.maximum(high, self.highs[j])
                if low.prod() < (1 - self.most_merged) * high.prod():
                    break
                found[k], j = j, j - 1
        return found

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
    bucket: NDArray[np.int64]
    most: NDArray[np.int64]
    whole: int
    resolutions: tuple[tuple[int, int], ...] = ()

    @classmethod
    def none(cls) -> Batches:
        """No batch."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), 0)

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

    Memory: 8 bytes a sample; 60 while it is made.
    """

    def __init__(self, order: EpochOrder, buckets: Buckets) -> None:
        self._order = order
        numbers = np.empty(order.num_samples, np.int64)
        for begin in range(0, len(numbers), _AT_ONCE):
            end = min(begin + _AT_ONCE, len(numbers))
            numbers[begin:end] = order.at(np.arange(begin, end))
        of = buckets.of[numbers]
        cut = _by_round(order, of, buckets) if _cuts_rounds(order, buckets) else _by_bucket(of, buckets)
        lengths, most, bucket, lasts = cut.lengths, cut.most, cut.bucket, cut.lasts
        ends = np.cumsum(lengths)
        moved = np.repeat(cut.begins - (ends - lengths), lengths)
        self._numbers = numbers[cut.places[moved + np.arange(len(moved))]]
        self._lasts = lasts
        whole = int(np.count_nonzero(lengths == most))
        self.batches = Batches(ends, bucket, most, whole, buckets.resolutions)
        self.num_samples = len(self._numbers)

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
        until = number + int(np.argmax(np.append(self._lasts[number : batches.whole] >= end, [True])))
        return self.num_samples if until >= batches.whole else batches.position(until)


class _Cut(NamedTuple):
    """Batches, in the order in which they come.

    Attributes:
        places: of samples in the order; those of a batch are neighbours.
        begins: where the places of each batch begin.
        lengths: number of samples of each.
        most: samples that each may have.
        bucket: of each; of several, the one of the largest samples.
        lasts: the last place of each in the order.
    """

    places: NDArray[np.int64]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    most: NDArray[np.int64]
    bucket: NDArray[np.int64]
    lasts: NDArray[np.int64]

    @classmethod
    def of(cls, places: NDArray[np.int64], batches: _Batches) -> _Cut:
        """Batches that have no order yet."""
        begins, lengths = batches.begins, batches.lengths
        bounds = np.stack([begins, begins + lengths], 1).reshape(-1)
        lasts = np.maximum.reduceat(np.append(places, -1), bounds)[::2] if len(begins) else begins
        return cls(places, begins, lengths, batches.most, batches.bucket, lasts)

    def sorted(self, by: NDArray[np.int64]) -> _Cut:
        """The batches in another order."""
        return _Cut(self.places, *(each[by] for each in self[1:]))


class _Batches(NamedTuple):
    """Batches of neighbours in a list of samples: where each begins, and as `_Cut` has them."""

    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    most: NDArray[np.int64]
    bucket: NDArray[np.int64]


# Buckets that are filled over a whole epoch


def _by_bucket(of: NDArray[np.int32], buckets: Buckets) -> _Cut:
    """Cut an epoch: batches come where the order has their last sample; those that are not full come at the end.

    Args:
        of: the bucket of the sample at each place.
        buckets: what a batch may have.
    """
    places = np.argsort(of, kind="stable")  # the samples of a bucket together, each bucket in the order
    counts = np.bincount(of + 1, minlength=len(buckets.most) + 1)
    begins, counts = np.cumsum(counts)[:-1], counts[1:]
    number = counts // buckets.most
    of_each = np.repeat(np.arange(len(number)), number)
    within = np.arange(len(of_each)) - np.repeat(np.cumsum(number) - number, number)
    most = buckets.most[of_each]
    whole = _Batches(begins[of_each] + within * most, most, most, of_each)
    left = counts - number * buckets.most
    rest = np.concatenate([np.zeros(0, np.int64), *(
        places[begins[k] + counts[k] - left[k] : begins[k] + counts[k]] for k in np.flatnonzero(left)[::-1]
    )])  # fmt: skip
    last = _merged(left, buckets, len(places))
    both = _Batches(*map(np.concatenate, zip(whole, last, strict=True)))
    found = _Cut.of(np.concatenate([places, rest]), both)
    return found.sorted(np.lexsort((found.lasts, found.lengths < found.most)))


def _merged(left: NDArray[np.int64], buckets: Buckets, begin: int) -> _Batches:
    """Cut what is left of the buckets, the largest sizes first, from a place on."""
    lengths, limits, bucket = list[int](), list[int](), list[int]()
    sides = np.zeros(buckets.highs.shape[1])
    for k in np.flatnonzero(left)[::-1].tolist():
        new = int(left[k])
        while new:
            wider, room = np.maximum(sides, buckets.highs[k]), 0
            if lengths and k >= buckets.lowest[bucket[-1]]:
                room = buckets.most_of(wider) - lengths[-1]
            if room <= 0:
                wider, room = buckets.highs[k], int(buckets.most[k])
                lengths.append(0)
                limits.append(0)
                bucket.append(k)
            sides, taken = wider, min(room, new)
            lengths[-1] += taken
            limits[-1] = buckets.most_of(sides)
            new -= taken
    found = np.array(lengths, np.int64)
    return _Batches(begin + np.cumsum(found) - found, found, np.array(limits, np.int64), np.array(bucket, np.int64))


# Batches of each round of a block shuffle


def _cuts_rounds(order: EpochOrder, buckets: Buckets) -> TypeGuard[Order]:
    """Whether batches hold samples of one lane of one round each, so that ranks read blocks of their own, once.

    That is so where a lane of a round has samples for many batches of all buckets, and batches have any number of
    samples.
    """
    if not isinstance(order, Order) or order.shuffle.kind != "block" or buckets.bound == inf or buckets.resolutions:
        return False
    counts = np.bincount(buckets.of[buckets.of != LEFT_OUT], minlength=len(buckets.most))
    shuffle = order.shuffle
    parts = -(-order.num_samples // (shuffle.block * shuffle.window * shuffle.lanes)) * shuffle.lanes
    left = np.minimum(buckets.most / 2, counts / parts).sum() * parts
    return bool(left <= _MOST_LEFT * len(buckets.of))


def _by_round(order: Order, of: NDArray[np.int32], buckets: Buckets) -> _Cut:
    """Cut each lane of each round by itself, the largest samples first; the lanes then give batches in turn.

    Where a lane has fewer batches than others, some of its batches are halved: so ranks keep their lanes.
    """
    lanes, part = order.shuffle.lanes, order.parts()
    places = np.argsort(part * (len(buckets.most) + 1) - of, kind="stable")
    places = places[of[places] != LEFT_OUT]
    of_each, part_of_each = of[places], part[places]
    parts, at = np.unique(part_of_each, return_index=True)
    ends = np.append(at[1:], len(places))
    # Where the first sample of a lane of a round is that may not be in a batch with the sample at a place. Two sides of
    # several buckets may be larger together than those of one.
    lowest = buckets.lowest if buckets.highs.shape[1] == 1 else np.arange(len(buckets.highs))
    lane = np.repeat(np.arange(len(parts)), ends - at) * (len(lowest) + 1)
    stops = np.searchsorted(lane - of_each, lane - lowest[of_each], "right")
    which, found = np.arange(len(parts)), list[tuple[NDArray[np.int64], ...]]()
    while len(which):
        until = np.minimum(at[which] + buckets.most[of_each[at[which]]], ends[which])
        until = np.minimum(until, stops[at[which]])
        found.append((which, at[which], until))
        at[which] = until
        which = which[until < ends[which]]
    owner, begins, until = (np.concatenate(each) for each in zip(*found, strict=True)) if found else [parts] * 3
    owner, begins, lengths = _halved(parts, owner, begins, until - begins, lanes)
    by = np.argsort(begins)  # in any other order, `_Cut.of` looks at places between batches, too
    owner, begins, lengths = owner[by], begins[by], lengths[by]
    cut = _Cut.of(places, _Batches(begins, lengths, lengths, of_each[begins].astype(np.int64)))
    by = np.lexsort((cut.lasts, owner))
    turn = np.arange(len(by)) - np.searchsorted(owner[by], owner[by])  # number of a batch in its lane of its round
    return cut.sorted(by[np.lexsort((parts[owner[by]] % lanes, turn, parts[owner[by]] // lanes))])


def _halved(
    parts: NDArray[np.int64],
    owner: NDArray[np.int64],
    begins: NDArray[np.int64],
    lengths: NDArray[np.int64],
    lanes: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Halve batches until each lane of a round has as many as the others, as far as batches have two samples."""
    count = np.bincount(owner, minlength=len(parts))
    rounds = parts // lanes
    most = np.maximum.reduceat(count, np.flatnonzero(np.diff(rounds, prepend=-1))) if len(parts) else count
    lacking = np.repeat(most, np.unique(rounds, return_counts=True)[1]) - count
    by = np.lexsort((-lengths, owner))
    rank = np.arange(len(by)) - np.searchsorted(owner[by], owner[by])
    cut = by[(rank < lacking[owner[by]]) & (lengths[by] > 1)]
    first = lengths[cut] - lengths[cut] // 2
    more = (owner[cut], begins[cut] + first, lengths[cut] // 2)
    lengths = lengths.copy()
    lengths[cut] = first
    owner, begins, lengths = (np.concatenate(each) for each in zip((owner, begins, lengths), more, strict=True))
    return owner, begins, lengths


def _steps(sizes: NDArray[np.float64], max_padding: float) -> NDArray[np.int64]:
    """A number for each size: sizes of one number differ by less than a share, and smaller sizes have smaller ones."""
    largest, smallest = sizes.max(initial=0), sizes[sizes > 0].min(initial=inf)
    if not max_padding or largest == 0:
        return np.unique(sizes, return_inverse=True)[1].reshape(-1)
    count = int(np.ceil(np.log(smallest / largest) / np.log(1 - max_padding))) + 1
    edges = largest * (1 - max_padding) ** np.arange(count, 0, -1)
    return np.where(sizes > 0, np.searchsorted(edges, sizes) + 1, 0)
