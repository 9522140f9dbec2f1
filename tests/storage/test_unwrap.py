"""Reading in the stream that a compressed file holds."""

from __future__ import annotations

import gzip
import random

import pytest

from lading._core.storage.memory import MemoryStore
from lading._core.storage.unwrap import UnwrappedFile
from lading.errors import BadReference, CorruptShard

BODY = random.Random(7).randbytes(3_000_000)


def opened(packed: bytes, keep_bytes: int = 1 << 20) -> UnwrappedFile:
    return UnwrappedFile(MemoryStore({"x.gz": packed}), "x.gz", "gzip", keep_bytes=keep_bytes)


def test_forward_and_a_little_back_need_one_pass() -> None:
    file = opened(gzip.compress(BODY, 1))
    for offset, length in [(0, 10), (500_000, 100), (499_000, 2000), (2_000_000, 0), (2_999_990, 10)]:
        assert file.read(offset, length) == BODY[offset : offset + length]
    assert file.restarts == 0


def test_far_back_starts_again_and_is_right() -> None:
    file = opened(gzip.compress(BODY, 1), keep_bytes=100_000)
    assert file.read(2_900_000, 1000) == BODY[2_900_000:2_901_000]
    assert file.read(0, 1000) == BODY[:1000]
    assert file.restarts == 1


def test_members_are_one_stream() -> None:
    file = opened(gzip.compress(BODY[:1000]) + gzip.compress(BODY[1000:5000]))
    assert file.read(900, 200) == BODY[900:1100]


@pytest.mark.parametrize("offset, length", [(2_999_999, 2), (4_000_000, 1), (-1, 1), (0, -1)])
def test_a_range_outside_is_an_error(offset: int, length: int) -> None:
    with pytest.raises(BadReference, match=r"x\.gz"):
        opened(gzip.compress(BODY, 1)).read(offset, length)


def test_a_cut_stream_is_an_error_that_names_the_file() -> None:
    packed = gzip.compress(BODY, 1)
    with pytest.raises(CorruptShard, match=r"x\.gz"):
        opened(packed[: len(packed) // 2]).read(2_900_000, 10)
