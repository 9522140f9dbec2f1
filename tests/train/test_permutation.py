"""A permutation is a bijection of its range, computed place by place, and nobody can tell it from a random one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.train.permutation import Permutation, derived_key


@given(count=st.integers(0, 5000), seed=st.integers(0, 2**64))
def test_every_number_comes_once(count: int, seed: int) -> None:
    found = Permutation(count, derived_key(seed)).at(np.arange(count))
    assert np.array_equal(np.sort(found), np.arange(count))


@given(count=st.integers(1, 2**62), places=st.lists(st.integers(0, 2**62), max_size=20))
def test_a_place_is_computed_by_itself(count: int, places: list[int]) -> None:
    order, asked = Permutation(count, derived_key(3)), np.array([place % count for place in places], np.int64)
    assert order.at(asked).tolist() == [int(order.at(np.array([place]))[0]) for place in asked]
    assert all(0 <= number < count for number in order.at(asked).tolist())


@pytest.mark.parametrize("place", [-1, 10])
def test_places_outside_are_refused(place: int) -> None:
    with pytest.raises(IndexError):
        Permutation(10, 0).at(np.array([place]))


def test_keys_of_other_parts_differ() -> None:
    keys = {derived_key(*parts) for parts in [(1, 2), (2, 1), ("1", 23), (12, 3), (1, 2, ""), ()]}
    assert len(keys) == 6


def test_orders_do_not_change_between_versions() -> None:
    """A state that was saved goes on with the same order after an update: these numbers must never change."""
    assert Permutation(10, derived_key(7, 0, "samples")).at(np.arange(10)).tolist() == [1, 9, 3, 5, 2, 7, 8, 6, 4, 0]


@pytest.mark.soak
@pytest.mark.parametrize("count", [5, 16, 40])
def test_every_number_is_as_likely_at_every_place(count: int) -> None:
    keys = 100 * count
    found = np.array([Permutation(count, derived_key("fair", key)).at(np.arange(3)) for key in range(keys)])
    for place in range(3):
        times = np.bincount(found[:, place], minlength=count)  # 100 each, so the sum below is chi-square
        assert np.sum((times - 100) ** 2) / 100 < count + 6 * np.sqrt(2 * count)


def test_neighbours_do_not_stay_neighbours() -> None:
    found = Permutation(100_000, derived_key(5)).at(np.arange(100_000))
    assert abs(np.corrcoef(found, np.arange(100_000))[0, 1]) < 0.02
    assert np.count_nonzero(np.abs(np.diff(found)) == 1) < 12  # 2 of a random order


@given(count=st.integers(1, 5000), key=st.integers(0, 2**64 - 1))
def test_places_are_the_inverse(count: int, key: int) -> None:
    order = Permutation(count, key)
    numbers = np.arange(count)
    assert np.array_equal(order.at(order.places(numbers)), numbers)
    with pytest.raises(IndexError):
        order.places(np.array([count]))
