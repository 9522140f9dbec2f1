"""Extents of a file: the same in whatever pieces rows are told and bytes come; their sums are those of xxhash."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lading._core.storage.extents import EXTENTS_SCHEMA, NO_ROWS, ExtentSums

BODY = np.random.default_rng(0).bytes(2_000_000)


def _taken(sizes: NDArray[np.int64], rows: NDArray[np.int64], told: list[int], given: int) -> pa.RecordBatch:
    """The extents, rows told in groups of these sizes, and the bytes of each group given in pieces of this size."""
    taken, ends, at = ExtentSums(), np.cumsum(sizes), 0
    bounds = [0, *np.unique(np.clip(np.cumsum(told), 0, len(ends))).tolist(), len(ends)]
    for a, b in pairwise(bounds):
        taken.mark(ends[a:b], rows[a:b])
        stop = int(ends[b - 1]) if b > a else at
        while at < stop:
            size = min(given, stop - at)
            taken.update(memoryview(BODY)[at : at + size])
            at += size
    found = taken.extents(3)
    assert found is not None
    return found


def _check(found: pa.RecordBatch, size_bytes: int) -> None:
    """The extents cover the file, and each has the sum of its bytes; those without rows have these."""
    assert found.schema.equals(EXTENTS_SCHEMA)
    at = 0
    for one in found.to_pylist():
        data = BODY[at : at + one["size_bytes"]]
        assert one["xxh3"] == xxhash.xxh3_64_intdigest(data)
        assert one["copy"] == (data if one["first_row"] == NO_ROWS else None)
        assert one["file"] == 3
        at += one["size_bytes"]
    assert at == size_bytes


@given(
    st.lists(
        st.one_of(st.integers(0, 40), st.integers(0, 3000), st.integers(60_000, 140_000)), min_size=1, max_size=12
    ),
    st.lists(st.integers(1, 5), max_size=12),
    st.sampled_from([1000, 65_536, 2_000_000]),
    st.booleans(),
)
def test_pieces_do_not_matter(sizes: list[int], told: list[int], size: int, head: bool) -> None:
    lengths = np.array([100, *sizes])
    rows = np.arange(len(lengths)) - head
    found = _taken(lengths, rows, told, size)
    _check(found, int(lengths.sum()))
    assert found.equals(_taken(lengths, rows, [], 500_000))
    told = [(one["first_row"], one["last_row"], one["size_bytes"]) for one in found.to_pylist()]
    assert told == [(row, row, size) for row, size in zip(rows.tolist(), lengths.tolist(), strict=True) if size]


def test_many_small_rows_share_an_extent_of_eight_kilobytes() -> None:
    count = 6_096
    found = _taken(np.full(count, 100), np.arange(count), [], 10_000)
    _check(found, 100 * count)
    size, last = found["size_bytes"].to_pylist(), found["last_row"].to_pylist()
    assert (size[:4096], last[:4096]) == ([100] * 4096, [*range(4096)])
    assert len(size) - 4096 == pytest.approx(2000 * 100 / 8192, abs=2)
    assert max(size) <= 8192 + 100
    assert _taken(np.full(count, 100), np.arange(count), [7000, 7000, 3000, 1, 2], 999).equals(found)


def test_rows_that_are_read_at_once_are_told_when_they_are_there() -> None:
    taken = ExtentSums()
    taken.mark(np.array([4]), np.array([NO_ROWS]))
    for at in range(0, 10_004, 1001):
        taken.update(memoryview(BODY)[at : min(at + 1001, 10_004)])
    taken.mark_extents(10_004, 0, 99)
    taken.update(memoryview(BODY)[10_004:10_100])
    taken.mark(np.array([10_100]), np.array([NO_ROWS]))
    found = taken.extents(3)
    assert found is not None
    _check(found, 10_100)
    assert [(e["first_row"], e["last_row"]) for e in found.to_pylist()] == [(-1, -1), (0, 99), (-1, -1)]


def test_what_nobody_told_of_has_no_extents() -> None:
    taken = ExtentSums()
    taken.update(memoryview(BODY))
    assert taken.extents(0) is None


@pytest.mark.parametrize("size", [100, 20_000])
def test_bytes_that_are_not_told_of_are_a_fault_of_who_writes(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They came into the checksum of small rows before them."""
    monkeypatch.setattr("lading._core.storage.extents._ALONE_ROWS", 0)
    taken = ExtentSums()
    taken.mark(np.array([size]), np.array([0]))
    taken.update(memoryview(BODY)[: size + 1])
    with pytest.raises(AssertionError, match="as many bytes came as were told"):
        taken.extents(0)


def test_too_much_without_rows_is_not_copied() -> None:
    taken = ExtentSums()
    taken.mark(np.array([17 << 20]), np.array([NO_ROWS]))
    for _ in range(17):
        taken.update(memoryview(bytes(1 << 20)))
    found = taken.extents(0)
    assert found is not None
    assert found["copy"].to_pylist() == [None]
