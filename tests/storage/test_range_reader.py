"""Ranges of a file, against slices of the same bytes, and the requests that they cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.range_reader import MOST_HELD_BYTES, NEAR_BYTES, RangeReader
from lading.errors import CorruptShard, ShortRead, UsageError
from lading.testing import CountingStore

DATA = np.random.default_rng(0).integers(0, 256, 1 << 20, np.uint8).tobytes()
MIB = 1 << 20


def _store() -> CountingStore:
    return CountingStore(MemoryStore({"a": DATA}))


def _check(reader: RangeReader, offset: list[int], length: list[int], near_bytes: int = NEAR_BYTES) -> None:
    found, at = reader.read_many(np.array(offset, np.int64), np.array(length, np.int64), near_bytes=near_bytes)
    data = bytes(found)
    values = [data[i : i + n] for i, n in zip(at.tolist(), length, strict=True)]
    assert values == [DATA[i : i + n] for i, n in zip(offset, length, strict=True)]


def test_bytes_near_a_range_are_read_once() -> None:
    store = _store()
    reader = RangeReader(store, "a")
    _check(reader, [100_000, 300_000], [8, 8])
    assert store.requests["get_ranges"] == 2
    _check(reader, [300_100, 99_000, 100_500], [50, 20, 0])
    assert store.requests["get_ranges"] == 2
    _check(reader, [500_000, 300_100, 500_000], [100_000, 50, 10])
    assert store.requests["get_ranges"] == 3
    assert store.bytes_read <= 100_016 + 3 * 4096


def test_no_byte_outside_the_bounds_is_read() -> None:
    store = _store()
    _check(RangeReader(store, "a").within(1000, 2000), [1000, 1990], [4, 10])
    assert [(offset, offset + length) for offset, length in store.ranges["a"]] == [(1000, 2000)]


@pytest.mark.parametrize("seed", range(20))
def test_any_ranges(seed: int) -> None:
    random, reader = np.random.default_rng(seed), RangeReader(_store(), "a")
    for _ in range(5):
        offset = random.integers(0, len(DATA) - 50_000, 30)
        length = random.choice([0, 1, 100, 5_000, 50_000], 30)
        _check(reader, offset.tolist(), length.tolist(), int(random.choice([0, NEAR_BYTES])))
        ahead = [(int(i), int(n)) for i, n in zip(offset[:3] // 2, length[:3], strict=True)]
        with reader.expecting(ahead):
            reader.expect(ahead)
            assert [bytes(reader.read(i, n)) for i, n in ahead] == [DATA[i : i + n] for i, n in ahead]


@pytest.mark.parametrize("mmap", [False, True])
def test_a_local_file_is_read_without_requests(tmp_path: Path, mmap: bool) -> None:
    (tmp_path / "a").write_bytes(DATA)
    reader = RangeReader(LocalStore(), str(tmp_path / "a"), mmap=mmap)
    _check(reader, [500_000, 10, 300_000], [100_000, 5, 0])
    assert bytes(reader.read(7, 9)) == reader.peek(7, 9) == DATA[7:16]
    assert reader.peek(len(DATA) - 2, 10) == DATA[-2:]
    (tmp_path / "a").write_bytes(DATA[:100])
    with pytest.raises(CorruptShard):
        reader.read(7, 9)


def test_bytes_in_memory() -> None:
    _check(RangeReader(_store(), "a", data=pa.py_buffer(DATA)), [5, 3], [10, 0])


def test_a_range_past_the_end_is_an_error() -> None:
    with pytest.raises(ShortRead):
        _check(RangeReader(_store(), "a"), [len(DATA) - 2], [10])


def test_a_closed_reader_is_an_error() -> None:
    reader = RangeReader(_store(), "a")
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        reader.read(0, 1)


def test_expected_ranges_are_requested_together_and_once() -> None:
    store = _store()
    reader = RangeReader(store, "a")
    reader.expect([(0, 100), (500, 100), (900_000, 50)], gap_bytes=1000)
    assert store.ranges["a"] == [(0, 600), (900_000, 50)]
    reader.expect([(0, 100), (500, 200)], gap_bytes=1000)
    assert store.ranges["a"][2:] == [(600, 100)]
    assert bytes(reader.read(500, 100)) == DATA[500:600]
    assert store.requests["get_ranges"] == 3


def test_a_file_read_forward_needs_few_requests_and_no_byte_twice() -> None:
    store = _store()
    reader = RangeReader(store, "a")
    for at in range(0, len(DATA) - 1000, 700):
        assert bytes(reader.read_on(at, 1000, 100_000, len(DATA))) == DATA[at : at + 1000]
    assert store.requests["get_ranges"] <= 12
    assert store.bytes_read <= len(DATA)


def test_windows_that_are_under_way_are_taken_in_their_order() -> None:
    store = _store()
    reader = RangeReader(store, "a").within(0, 250_000)
    assert reader.window(0, 100_000) == DATA[:100_000]
    reader.ahead(100_000, 100_000, 3)
    assert reader.window(100_000, 1) == DATA[100_000:200_000]
    assert reader.window(200_000, 1) == DATA[200_000:250_000]
    assert not len(reader.window(250_000, 1))
    assert sorted(store.ranges["a"]) == [(0, 100_000), (100_000, 100_000), (200_000, 50_000)]
    reader.close()


def test_readers_together_hold_no_more_than_the_bound() -> None:
    store = CountingStore(MemoryStore({name: bytes(40 * MIB) for name in "ab"}))
    first, second = RangeReader(store, "a"), RangeReader(store, "b")
    for reader in (first, second):
        reader.expect([(0, 40 * MIB)])
    assert (first.held_bytes, second.held_bytes) == (0, 40 * MIB)


def test_ranges_in_use_are_held_whatever_others_read() -> None:
    store = CountingStore(MemoryStore({name: bytes(40 * MIB) for name in "ab"}))
    batches = [RangeReader(store, name).within(0, 40 * MIB) for name in "ab"]
    for _ in range(3):
        for batch in batches:
            batch.read_many(np.array([0]), np.array([40 * MIB]), near_bytes=NEAR_BYTES)
    assert store.requests["get_ranges"] == 2


def test_ranges_of_one_call_may_be_more_than_the_bound() -> None:
    size = MOST_HELD_BYTES // 2 + MIB
    reader = RangeReader(CountingStore(MemoryStore({"a": bytes(2 * size)})), "a")
    one, two = np.array([0, size]), np.array([size, size])
    for part in (slice(0, 1), slice(1, 2), slice(0, 2)):
        found, at = reader.read_many(one[part], two[part], near_bytes=1)
        assert found.size >= size * len(at)
