"""Pieces of bytes by column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lading._core.arrow.byte_ranges import ByteRanges, as_file, as_view
from lading._core.storage.memory import MemoryStore


def test_buffers_of_every_kind_are_taken_joined_and_shown() -> None:
    one = ByteRanges.of([b"abc", bytearray(b"de"), memoryview(np.array([1, 2], np.uint16)), pa.py_buffer(b"f"), b""])
    two = ByteRanges([b"0123456789"], np.array([0, -1, 0]), np.array([2, 0, 9]), np.array([3, 0, 1]))
    both = ByteRanges.joined([one, ByteRanges.absent(1), two])
    expected = [b"abc", b"de", b"\1\0\2\0", b"f", b"", None, b"234", None, b"9"]
    assert [None if v is None else bytes(v) for v in both.views()] == expected
    assert len(both) == len(expected)
    assert both.there.tolist() == [v is not None for v in expected]
    assert both.length.tolist() == [len(v or b"") for v in expected]
    assert [bytes(v or b"") for v in both[np.array([6, 0])].views()] == [b"234", b"abc"]
    assert [bytes(v or b"") for v in both[3:5].views()] == [b"f", b""]
    assert ByteRanges.joined([]).views() == []
    assert both[both.there].results(bytes) == [value for value in expected if value is not None]
    assert two[two.there].results(bytes) == [b"234", b"9"]
    assert ByteRanges.joined([]).results(bytes) == []


def test_files_and_memory_are_told_apart() -> None:
    file = MemoryStore({"f": b"123"}).map("f")
    pieces = ByteRanges([b"x", file], np.array([1, 0, -1]), np.array([0, 0, 0]), np.array([3, 1, 0]))
    assert pieces.in_file.tolist() == [True, False, False]
    assert as_file(pieces.sources[1]) is file
    assert as_view(pieces.sources[0]) == b"x"
    with pytest.raises(AssertionError):
        pieces.views()
