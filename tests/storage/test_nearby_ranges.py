"""Ranges read with the bytes near them, against slices of the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from lading._core.storage.memory import MemoryStore
from lading._core.storage.nearby_ranges import NearbyRanges
from lading.errors import ShortRead
from lading.testing import CountingStore

DATA = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8).tobytes()


def _store() -> CountingStore:
    return CountingStore(MemoryStore({"a": DATA}))


def _nearby(store: CountingStore, start: int = 0, stop: int = len(DATA)) -> NearbyRanges:
    return NearbyRanges(store, lambda ranges: store.get_ranges("a", ranges), start, stop)


def _check(nearby: NearbyRanges, offset: list[int], length: list[int]) -> None:
    found, at = nearby.find(np.array(offset, np.int64), np.array(length, np.int64))
    data = bytes(found)
    values = [data[i : i + n] for i, n in zip(at.tolist(), length, strict=True)]
    assert values == [DATA[i : i + n] for i, n in zip(offset, length, strict=True)]


def test_bytes_near_a_range_are_read_once() -> None:
    store = _store()
    nearby = _nearby(store)
    _check(nearby, [100_000, 300_000], [8, 8])
    assert store.requests["get_ranges"] == 2
    _check(nearby, [300_100, 99_000, 100_500], [50, 20, 0])
    assert store.requests["get_ranges"] == 2
    _check(nearby, [500_000, 300_100, 500_000], [100_000, 50, 10])
    assert store.requests["get_ranges"] == 3
    assert store.bytes_read <= 100_016 + 3 * 4096


def test_no_byte_outside_the_bounds_is_read() -> None:
    store = _store()
    _check(_nearby(store, 1000, 2000), [1000, 1990], [4, 10])
    assert [(offset, offset + length) for offset, length in store.ranges["a"]] == [(1000, 2000)]


@pytest.mark.parametrize("seed", range(20))
def test_any_ranges(seed: int) -> None:
    random, nearby = np.random.default_rng(seed), _nearby(_store())
    for _ in range(5):
        offset = random.integers(0, len(DATA) - 50_000, 30)
        length = random.choice([0, 1, 100, 5_000, 50_000], 30)
        _check(nearby, offset.tolist(), length.tolist())


def test_a_range_past_the_end_is_an_error() -> None:
    with pytest.raises(ShortRead):
        _check(_nearby(_store()), [len(DATA) - 2], [10])
