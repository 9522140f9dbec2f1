"""Values picked out of many places, put together: as pyarrow would have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lading._core.arrow import column_slices
from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.arrow.column_slices import Numbers, as_array, put

KINDS = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]


class _File:
    """A file whose bytes are read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_into(self, targets: Sequence[memoryview], offset: int) -> None:
        for target in targets:
            target[:] = self._data[offset : offset + len(target)]
            offset += len(target)


def _byte_ranges(values: list[bytes | None], *, in_file: bool) -> ByteRanges:
    """Values that lie somewhere in bytes, backwards."""
    data, places = b"head", []
    for value in reversed(values):
        places.append((-1, 0, 0) if value is None else (0, len(data), len(value)))
        data += b"-" + (value or b"")
    source, offset, length = np.array([*reversed(places)], np.int64).reshape(-1, 3).T.copy()
    return ByteRanges([_File(data) if in_file else pa.py_buffer(data)], source, offset + (source == 0), length)


@pytest.mark.soak
@given(
    parts=st.lists(
        st.tuples(st.lists(st.none() | st.binary(max_size=30).map(lambda b: b.hex().encode())), st.booleans()),
        min_size=1, max_size=4,
    ),
    kind=st.sampled_from(KINDS), few=st.sampled_from([0, 256]), views=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_pieces_of_many_shards(
    parts: list[tuple[list[bytes | None], bool]], kind: pa.DataType, few: int, views: bool, seed: int
) -> None:
    count = sum(len(values) for values, _ in parts)
    rows = np.random.default_rng(seed).permutation(count)
    places = np.split(rows, np.cumsum([len(values) for values, _ in parts])[:-1])
    expected: list[Any] = [None] * count
    for (values, _), place in zip(parts, places, strict=True):
        for value, row in zip(values, place.tolist(), strict=True):
            expected[row] = value
    whole = put([_byte_ranges(values, in_file=in_file) for values, in_file in parts], places, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_slices, "_FEW", few)
        found = as_array(whole, kind, views=views)
    found.validate(full=True)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    assert found.to_pylist() == [each.decode() if text and each is not None else each for each in expected]
    lies_in_memory = not any(in_file and any(values) for values, in_file in parts)
    if not (views and not text and lies_in_memory):
        assert found.type == kind


@pytest.mark.parametrize("kind", [pa.int16(), pa.float64(), pa.bool_(), pa.timestamp("ms")], ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_numbers_of_many_shards(kind: pa.DataType, nulls: bool) -> None:
    form = {pa.int16(): np.int16, pa.float64(): np.float64, pa.bool_(): np.bool_, pa.timestamp("ms"): np.int64}[kind]
    values, there = np.arange(9).astype(form), np.arange(9) % 3 != 1
    places = [np.array([8, 0, 4, 3]), np.array([1, 2, 5, 6, 7])]
    parts = [Numbers(values[places[0]]), Numbers(values[places[1]], there[places[1]] if nulls else None)]
    found = as_array(put(parts, places, 9), kind)
    found.validate(full=True)
    gone = [row in places[1] and not there[row] and nulls for row in range(9)]
    expected = pa.array(np.arange(9), pa.int64()).cast(kind)
    assert found.equals(pa.array([None if g else v for g, v in zip(gone, expected.to_pylist(), strict=True)], kind))


def test_more_bytes_than_small_offsets_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_slices, "_MAX_SMALL", 10)
    for in_file in (False, True):
        assert as_array(_byte_ranges([b"12345", b"67890"], in_file=in_file), pa.binary()).type == pa.binary()
        assert as_array(_byte_ranges([b"12345", b"678901"], in_file=in_file), pa.binary()).type == pa.large_binary()
        assert as_array(_byte_ranges([b"12345", b"678901"], in_file=in_file), pa.string()).type == pa.large_string()
