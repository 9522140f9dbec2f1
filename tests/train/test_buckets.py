"""Batches of samples of similar size: each sample once, within the bound, as many batches in every epoch."""

from __future__ import annotations

import tracemalloc
from itertools import chain
from math import inf, log

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lading._core.train.buckets import Batches, Buckets, SizedOrder, _cuts_rounds
from lading._core.train.order import Order, Shuffle
from lading._core.train.share import Last, SizedShare

_SHUFFLES = st.sampled_from([Shuffle("none"), Shuffle("global"), Shuffle("block", 3, 2, 2)])
_LENGTHS = st.lists(st.integers(0, 60), min_size=1, max_size=50).map(lambda values: np.array(values, float)[:, None])
_AREAS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=50).map(
    lambda values: np.array(values, float)
)
_PADDINGS = st.sampled_from([0.0, 0.1, 0.5, 0.9])
_LASTS = st.sampled_from(["short", "pad", "drop"])


def _order(count: int, shuffle: Shuffle, epoch: int) -> Order:
    return Order(np.array([count // 3, count]), shuffle, seed=1, epoch=epoch)


def _batches(order: SizedOrder) -> list[NDArray[np.int64]]:
    """The numbers of the samples of each batch."""
    return np.split(order.at(np.arange(order.num_samples)), order.batches.ends[:-1])


@given(sides=_LENGTHS | _AREAS, padding=_PADDINGS, bound=st.integers(1, 200) | st.just(inf),
       batch_size=st.none() | st.integers(1, 7), merged=st.sampled_from([0.0, 0.3]), leaves_out=st.booleans(),
       shuffle=_SHUFFLES, epoch=st.integers(0, 2))  # fmt: skip
def test_each_sample_is_in_one_batch_within_the_bound(
    sides: NDArray[np.float64], padding: float, bound: float, batch_size: int | None, merged: float, leaves_out: bool,
    shuffle: Shuffle, epoch: int,
) -> None:  # fmt: skip
    buckets = Buckets.by_size(
        sides, padding, bound=bound, batch_size=batch_size, most_merged=merged, leaves_out=leaves_out
    )
    base = _order(len(sides), shuffle, epoch)
    order = SizedOrder(base, buckets)
    sizes, batches = sides.prod(axis=1), order.batches
    wanted = np.flatnonzero(sizes <= bound) if leaves_out else np.arange(len(sides))
    assert sorted(order.at(np.arange(order.num_samples)).tolist()) == wanted.tolist()
    if not _cuts_rounds(base, buckets):
        assert len(batches) == len(SizedOrder(_order(len(sides), shuffle, epoch + 1), buckets).batches)
    for i, numbers in enumerate(_batches(order) if len(wanted) else []):
        padded = sides[numbers].max(axis=0).prod() * len(numbers)
        assert padded <= bound or len(numbers) == 1
        assert len(numbers) <= min(batches.most[i], batch_size or inf)
        assert (len(numbers) == batches.most[i]) == (i < batches.whole)
        assert padded == 0 or 1 - sizes[numbers].sum() / padded <= max(padding, merged) + 1e-9


def test_memory_does_not_grow_with_the_number_of_sizes() -> None:
    sides = np.random.default_rng(0).integers(1, 5000, (20_000, 2)).astype(float)
    tracemalloc.start()
    try:
        Buckets.by_size(sides, 0.0, bound=4e6)
        assert tracemalloc.get_traced_memory()[1] < 200 * len(sides)
    finally:
        tracemalloc.stop()


@given(
    seed=st.integers(0, 1000), window=st.integers(20, 60), lanes=st.integers(1, 4), merged=st.sampled_from([0.0, 0.6])
)
def test_batches_of_a_block_shuffle_are_of_one_lane_of_a_round(
    seed: int, window: int, lanes: int, merged: float
) -> None:
    """A rank of as many as there are lanes, or of half as many, reads blocks that no other rank reads."""
    shuffle, count, bound = Shuffle("block", 4, window, lanes), 1000, 90
    lengths = np.random.default_rng(seed).integers(20, 60, count).astype(float)
    buckets = Buckets.by_size(lengths[:, None], 0.4, bound=bound, most_merged=merged)
    base = Order(np.array([333, count]), shuffle, seed=seed, epoch=0)
    assert _cuts_rounds(base, buckets)
    order = SizedOrder(base, buckets)
    part = np.empty(count, np.int64)
    part[base.at(np.arange(count))] = base.parts()
    parts = []
    for numbers in _batches(order):
        assert lengths[numbers].max() * len(numbers) <= bound
        assert lengths[numbers].min() >= (1 - max(merged, 0.4)) * lengths[numbers].max()
        [mine] = {*part[numbers].tolist()}
        parts.append(mine)
    assert sorted(order.at(np.arange(count)).tolist()) == [*range(count)]
    assert [each // lanes for each in parts] == sorted(each // lanes for each in parts)
    for a_round in {each // lanes for each in parts}:
        of_round = [each % lanes for each in parts if each // lanes == a_round]
        if len({of_round.count(lane) for lane in range(lanes)}) == 1:
            assert of_round == [*range(lanes)] * (len(of_round) // lanes)
        [begin] = [parts.index(each) for each in parts if each // lanes == a_round][:1]
        end = order.round_end(int(order.batches.begins[begin]))
        assert end == order.batches.position(begin + len(of_round))


@given(sides=_LENGTHS, shuffle=_SHUFFLES)
def test_batches_follow_the_order_of_their_last_samples(sides: NDArray[np.float64], shuffle: Shuffle) -> None:
    """As a loop would give them that puts each sample into its bucket, and gives the bucket when it is full."""
    buckets = Buckets.by_size(sides, 0.5, bound=100)
    base = _order(len(sides), shuffle, 0)
    assume(not _cuts_rounds(base, buckets))
    order, held, streamed = SizedOrder(base, buckets), dict[int, list[int]](), list[list[int]]()
    for number in base.at(np.arange(len(sides))).tolist():
        mine = held.setdefault(int(buckets.of[number]), [])
        mine.append(number)
        if len(mine) == buckets.most[buckets.of[number]]:
            streamed.append(held.pop(int(buckets.of[number])))
    found = [numbers.tolist() for numbers in _batches(order)]
    assert [each for each in found if each in streamed] == streamed
    left = sorted(chain.from_iterable(held.values()))
    assert sorted(chain.from_iterable(each for each in found if each not in streamed)) == left


@given(sides=st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4000)), min_size=1, max_size=20),
       sizes=st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64)), min_size=1, max_size=9, unique=True),
)  # fmt: skip
def test_images_go_to_the_resolution_of_the_nearest_shape(
    sides: list[tuple[int, int]], sizes: list[tuple[int, int]]
) -> None:
    buckets = Buckets.by_shape(np.array(sides, float), sizes, batch_size=2)
    for (width, height), bucket in zip(sides, buckets.of.tolist(), strict=True):
        far = [abs(log(width / height) - log(w / h)) for h, w in sizes]
        assert far[bucket] <= min(far) + 1e-6
    order = SizedOrder(_order(len(sides), Shuffle("global"), 0), buckets)
    shares = SizedShare(order.num_samples, 2, batches=order.batches)
    for position, numbers in zip(order.batches.begins.tolist(), _batches(order), strict=True):
        assert {sizes[buckets.of[number]] for number in numbers} == {shares.image_size(position)}
        assert len(numbers) <= 2


_CUTS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=25)


def _made(cuts: list[tuple[int, bool]]) -> Batches:
    """Batches of some lengths; those that may have one more sample come last."""
    cuts = sorted(cuts, key=lambda each: each[1])
    lengths = np.array([length for length, _ in cuts], np.int64)
    most = lengths + np.array([short for _, short in cuts], np.int64)
    return Batches(np.cumsum(lengths), np.arange(len(cuts), dtype=np.int64) % 3, most, sum(not s for _, s in cuts))


@given(cuts=_CUTS, world=st.integers(1, 6), last=_LASTS, done=st.integers(0, 25), every=st.integers(1, 3))
def test_ranks_have_each_batch_once_in_as_many_steps(
    cuts: list[tuple[int, bool]], world: int, last: Last, done: int, every: int
) -> None:
    batches = _made(cuts)
    count, start = batches.num_samples, batches.position(min(done, len(batches)))
    shares = [SizedShare(count, 1, last, rank, world, 1, batches) for rank in range(world)]
    [steps] = {share.num_batches(start) for share in shares}
    given = [share.positions(start, steps) for share in shares]
    real = sorted(p for p in chain.from_iterable(np.concatenate([*each, []]).tolist() for each in given) if p < count)
    end = shares[0].after(start, steps)
    assert real == [*range(start, end)]
    assert last == "drop" or end == count
    assert shares[0].has(end)
    assert all(len(each) for rank in given for each in rank)
    if last != "short":
        assert all(len(each) in batches.most for rank in given for each in rank)
    assert shares[0].pads or not any((each >= count).any() for rank in given for each in rank)
    # Worker processes take turns.
    of_workers = [
        SizedShare(count, 1, last, 0, world, every, batches).positions(begin, left)
        for i in range(every)
        for begin in [shares[0].after(start, i)]
        for left in [SizedShare(count, 1, last, 0, world, every, batches).num_batches(begin)]
    ]
    turns = [of_workers[i % every][i // every].tolist() for i in range(steps)]
    assert turns == [each.tolist() for each in given[0]]


@given(cuts=_CUTS, position=st.integers(0, 100))
def test_samples_of_the_same_bucket_stand_in_for_each_other(cuts: list[tuple[int, bool]], position: int) -> None:
    batches = _made(cuts)
    if not batches.num_samples:
        return
    position %= batches.num_samples
    bucket = np.repeat(batches.bucket, np.diff(batches.ends, prepend=0))
    others = SizedShare(batches.num_samples, 1, batches=batches).others(position, 1000)
    alike = np.flatnonzero(bucket == bucket[position])
    assert sorted(others.tolist()) == [each for each in alike.tolist() if each != position]
