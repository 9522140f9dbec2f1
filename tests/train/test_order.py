"""The order of an epoch is a function of the data, the seed, the epoch and the shuffle; each position by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.train.order import Order, Shuffle
from lading.errors import UsageError

_SHUFFLES = st.one_of(
    st.just(Shuffle("none")),
    st.just(Shuffle("global")),
    st.builds(Shuffle, st.just("block"), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5)),
)
_SHARDS = st.lists(st.integers(0, 40), max_size=12).map(lambda sizes: np.cumsum(np.array(sizes, np.int64)))


@given(ends=_SHARDS, shuffle=_SHUFFLES, seed=st.integers(0, 99), epoch=st.integers(0, 3))
def test_an_epoch_has_every_sample_once(ends: np.ndarray, shuffle: Shuffle, seed: int, epoch: int) -> None:
    order = Order(ends, shuffle, seed, epoch)
    assert np.array_equal(np.sort(order.at(np.arange(order.num_samples))), np.arange(order.num_samples))


@given(ends=_SHARDS, shuffle=_SHUFFLES, data=st.data())
def test_a_position_is_computed_by_itself(ends: np.ndarray, shuffle: Shuffle, data: st.DataObject) -> None:
    order = Order(ends, shuffle, 3, 1)
    whole = order.at(np.arange(order.num_samples))
    asked = data.draw(st.lists(st.integers(0, max(order.num_samples - 1, 0)), max_size=order.num_samples))
    assert np.array_equal(Order(ends, shuffle, 3, 1).at(np.array(asked, np.int64)), whole[asked])


@given(ends=_SHARDS, shuffle=_SHUFFLES)
def test_rounds_divide_the_epoch_and_read_their_blocks_alone(ends: np.ndarray, shuffle: Shuffle) -> None:
    order = Order(ends, shuffle, 5, 0)
    bounds, blocks_seen = [0], set[tuple[int, int]]()
    while bounds[-1] < order.num_samples:
        bounds.append(order.round_end(bounds[-1]))
        assert bounds[-1] > bounds[-2]
        if shuffle.kind == "block":
            numbers = order.at(np.arange(bounds[-2], bounds[-1]))
            shard = np.searchsorted(ends, numbers, "right")
            within = numbers - np.concatenate(([0], ends))[shard]
            blocks = {*zip(shard.tolist(), (within // shuffle.block).tolist(), strict=True)}
            assert not blocks & blocks_seen
            assert len(blocks) <= shuffle.window * shuffle.lanes
            blocks_seen |= blocks
    assert bounds[-1] == order.num_samples


def test_ranks_read_blocks_of_their_own() -> None:
    """With as many ranks as lanes, nearly every block of a round is read by one rank."""
    order = Order(np.array([64 * 100]), Shuffle("block", 100, window=8, lanes=8), 1, 0)
    readers: dict[int, set[int]] = {}
    for rank in range(8):
        for number in order.at(np.arange(rank, 6400, 8)).tolist():
            readers.setdefault(number // 100, set()).add(rank)
    assert sum(len(ranks) > 1 for ranks in readers.values()) <= 7  # those where one lane ends and another begins


def test_seeds_and_epochs_and_kinds_give_other_orders() -> None:
    kinds = [Shuffle("global"), Shuffle("block", 10)]
    orders = [
        tuple(Order(np.array([1000]), kind, seed, epoch).at(np.arange(1000)).tolist())
        for kind in kinds
        for seed in (1, 2)
        for epoch in (0, 1)
    ]
    assert len({*orders}) == len(orders)


def test_orders_do_not_change_between_versions() -> None:
    """A state that was saved goes on with the same order after an update: these numbers must never change."""
    order = Order(np.array([5, 12]), Shuffle("block", 3, window=2, lanes=2), 7, 1)
    assert order.at(np.arange(12)).tolist() == [7, 1, 6, 0, 11, 2, 5, 10, 8, 9, 3, 4]


@pytest.mark.parametrize("position", [-1, 12])
@pytest.mark.parametrize("shuffle", [Shuffle("none"), Shuffle("global"), Shuffle("block", 3)])
def test_positions_outside_are_refused(position: int, shuffle: Shuffle) -> None:
    with pytest.raises(IndexError):
        Order(np.array([12]), shuffle, 0, 0).at(np.array([position]))


def test_wrong_shuffles_are_refused() -> None:
    with pytest.raises(UsageError, match="expected none, global, block, found 'reservoir'"):
        Shuffle("reservoir")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least 1"):
        Shuffle("block", 0)
