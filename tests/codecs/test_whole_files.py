"""Compressed files that are unpacked whole, and hashes of files."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from random import Random

import pyarrow as pa
import pytest
import xxhash
import zstandard

from lading._core.codecs import begins_brotli, new_hash, pack_snappy, pieces_of_brotli, unpack_file
from lading.errors import CorruptShard, DataError, LimitExceeded, MissingExtra, UsageError

BODY = bytes(range(256)) * 2000
PACKED = {
    "brotli": pa.Codec("brotli").compress(BODY, asbytes=True),
    "snappy": pa.Codec("snappy").compress(BODY, asbytes=True),
    "zstd": zstandard.compress(BODY),
    "gzip": gzip.compress(BODY),
    "bz2": bz2.compress(BODY),
}


@pytest.mark.parametrize("name", PACKED)
def test_what_goes_in_comes_out(name: str) -> None:
    assert unpack_file(name, PACKED[name], len(BODY)) == BODY
    assert unpack_file(name, pa.py_buffer(PACKED[name]), len(BODY)) == BODY
    with pytest.raises(LimitExceeded):
        unpack_file(name, PACKED[name], len(BODY) - 1)


@pytest.mark.parametrize("name", PACKED)
def test_a_cut_file_is_damaged(name: str) -> None:
    data = PACKED[name]
    for cut in {0, 1, 5, len(data) // 2, len(data) - 1}:
        with pytest.raises(CorruptShard):
            unpack_file(name, data[:cut], len(BODY))
    with pytest.raises(CorruptShard):
        unpack_file(name, data + b"more", len(BODY))


def up_to_the_damage(data: bytes) -> bytes:
    found: list[pa.Buffer] = []
    with pytest.raises(CorruptShard):
        found.extend(pieces_of_brotli(data))  # which takes what comes before the error, too
    return b"".join(found)


def test_all_of_a_brotli_stream_comes_out_up_to_its_damage() -> None:
    body = Random(0).randbytes(300_000)  # which does not pack: what stands before a place comes out before it
    data = pa.Codec("brotli").compress(body, asbytes=True)
    assert b"".join(pieces_of_brotli(data)) == body
    assert up_to_the_damage(data + b"more") == body
    for cut in (1000, 100_001, 200_001, len(data) - 1):
        there = up_to_the_damage(data[:cut])
        assert body.startswith(there)
        assert cut - 100 <= len(there) <= cut


def unpack_cut(name: str) -> None:
    with pytest.raises(DataError):
        unpack_file(name, PACKED[name][:-1], len(BODY))


@pytest.mark.parametrize(
    "look", [*(partial(unpack_cut, name) for name in PACKED), partial(begins_brotli, PACKED["brotli"][:64])]
)
def test_what_is_cut_leaves_no_memory_behind(look: Callable[[], object]) -> None:
    look()
    tracemalloc.start()
    for _ in range(20):
        look()
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 1 << 20


def test_a_snappy_block_that_says_too_much_takes_no_memory() -> None:
    with pytest.raises(LimitExceeded):
        unpack_file("snappy", b"\xff\xff\xff\xff\x0f", 1 << 20)
    with pytest.raises(CorruptShard, match="no length"):
        unpack_file("snappy", b"\xff" * 9, 1 << 20)


@pytest.mark.parametrize("body", [b"", b"a", BODY, bytes(100_000)])
def test_snappy_packs_what_it_unpacks(body: bytes) -> None:
    assert unpack_file("snappy", pack_snappy(body), len(body)) == body
    assert pack_snappy(pa.py_buffer(body)) == pack_snappy(body)


def test_packing_snappy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert unpack_file("snappy", PACKED["snappy"], len(BODY)) == BODY
    with pytest.raises(MissingExtra, match=r"pip install 'lading\[snappy\]'"):
        pack_snappy(BODY)


def test_an_unknown_compression() -> None:
    with pytest.raises(UsageError, match="compression"):
        unpack_file("lz77", b"", 1)


@pytest.mark.parametrize("name", ["md5", "sha1", "sha256", "blake2b", "sha3_512"])
def test_hashes_of_hashlib(name: str) -> None:
    found = new_hash(name)
    found.update(b"ab")
    found.update(memoryview(b"c"))
    assert found.hexdigest() == hashlib.new(name, b"abc").hexdigest()


def test_hashes_of_xxhash() -> None:
    for name in ("xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"):
        found = new_hash(name)
        found.update(b"abc")
        assert found.hexdigest() == getattr(xxhash, f"{name}_hexdigest")(b"abc")


@pytest.mark.parametrize("name", ["shake_128", "crc32", ""])
def test_unknown_hashes(name: str) -> None:
    with pytest.raises(DataError, match="hash"):
        new_hash(name)
