"""Results in their places, a bounded number of items ahead, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.media.ahead import Pace, map_ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lading-media")]


def pace(workers: int, *, ordered: bool = True, group: int = 1) -> Pace[Any]:
    return Pace(workers, ordered, group_weight=group)


@given(st.lists(st.integers(), max_size=40), st.integers(1, 4), st.booleans(), st.integers(1, 5))
def test_every_item_once(items: list[int], workers: int, ordered: bool, group: int) -> None:
    found = list(map_ahead(lambda item: item + 1, items, pace(workers, ordered=ordered, group=group)))
    expected = [item + 1 for item in items]
    assert found == expected if ordered else sorted(found) == sorted(expected)
    assert threads() == []


def test_slow_items_keep_their_place() -> None:
    def work(number: int) -> int:
        time.sleep(0.02 if number % 5 == 0 else 0)
        return number

    assert list(map_ahead(work, range(30), pace(3))) == list(range(30))


def test_as_they_come() -> None:
    gate = threading.Event()

    def work(number: int) -> int:
        if number == 0:
            assert gate.wait(10)
        return number

    results = map_ahead(work, range(3), pace(2, ordered=False))
    assert next(results) in (1, 2)
    gate.set()
    assert 0 in list(results)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("workers, group, most", [(1, 1, 1), (2, 1, 4), (3, 1, 6), (2, 5, 20)])
def test_the_look_ahead_is_bounded(workers: int, group: int, most: int, ordered: bool) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in count():
            taken.append(number)
            yield number

    results = map_ahead(lambda item: item, items(), pace(workers, ordered=ordered, group=group))
    for given_before, _ in enumerate(islice(results, 50)):
        assert len(taken) - given_before <= most
    results.close()  # type: ignore[attr-defined] # it is a generator
    assert threads() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_in_its_place(workers: int) -> None:
    def work(number: int) -> int:
        if number == 7:
            raise ValueError(number)
        return number

    found: list[int] = []
    with pytest.raises(ValueError, match="7"):
        found.extend(map_ahead(work, count(), pace(workers, group=3)))
    assert found == list(range(7))
    assert threads() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_items_comes_after_all_before_it(workers: int) -> None:
    def items() -> Iterator[int]:
        yield from range(9)
        raise KeyError("source")

    found: list[int] = []
    with pytest.raises(KeyError, match="source"):
        found.extend(map_ahead(lambda item: item, items(), pace(workers, group=4)))
    assert found == list(range(9))
    assert threads() == []
