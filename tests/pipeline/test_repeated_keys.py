"""Keys that come again are counted as a set of the keys counts them."""

from __future__ import annotations

import random

import pyarrow as pa

from lading._core.pipeline.repeated_keys import RepeatedKeys


def test_keys_that_come_again() -> None:
    generator = random.Random(0)
    keys = [f"{generator.randrange(3000)}" for _ in range(5000)]
    counter = RepeatedKeys()
    assert counter.count() == 0
    for first in range(0, 5000, 700):
        counter.add(pa.array([*keys[first : first + 700], None]))
    assert counter.count() == len(keys) - len(set(keys))
    counter.add(pa.chunked_array([keys[:2], [], ["new"]], pa.string()))
    assert counter.count() == len(keys) + 3 - len({*keys, "new"})
