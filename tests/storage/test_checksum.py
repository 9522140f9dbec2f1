"""Checksums of files, taken while they are written and read again; expected values are those of xxhash itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.storage.base import NativePath, Store, write_file, writes_behind
from lading._core.storage.checksum import Checksum, file_checksum, file_checksums, with_checksum
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore

BODY = np.random.default_rng(0).bytes(5_000_000)
EXPECTED = xxhash.xxh3_64(BODY).hexdigest()


@pytest.fixture(params=["local", "memory", "counting", "counting-memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, str]:
    if request.param == "local":
        return LocalStore(), str(tmp_path / "a.bin")
    if request.param == "memory":
        return MemoryStore(), "memory://checksum/a.bin"
    if request.param == "counting":
        return CountingStore(LocalStore()), str(tmp_path / "a.bin")
    return CountingStore(MemoryStore()), "memory://checksum/a.bin"


@pytest.mark.parametrize("sizes", [[0], [1], [65_536], [65_537, 1], [4_000_000, 1_000_000]])
def test_bytes_in_any_pieces_have_the_sum_of_the_whole(sizes: list[int]) -> None:
    total, at = Checksum(), 0
    for size in sizes:
        total.update(BODY[at : at + size])
        at += size
    assert total.hexdigest() == xxhash.xxh3_64(BODY[:at]).hexdigest()
    assert total.size_bytes == at


def test_a_sink_tells_the_sum_of_its_file(place: tuple[Store, str]) -> None:
    store, path = place
    sink = with_checksum(store.put_stream(path))
    sink.write([BODY[:10], memoryview(BODY)[10:100_000]])
    sink.write([pa.py_buffer(BODY)[100_000:]])
    assert sink.checksum() == EXPECTED
    info = sink.close()
    assert file_checksum(store, info) == EXPECTED
    assert file_checksums(store, path.rpartition("/")[0], [path]) == {"a.bin": EXPECTED}


@pytest.mark.parametrize("count", [1, 40, 4000])
def test_pieces_that_go_from_file_to_file_count_too(count: int, tmp_path: Path) -> None:
    store = LocalStore()
    write_file(store, str(tmp_path / "source"), [BODY])
    file = store.map(str(tmp_path / "source"))
    bounds = np.linspace(0, len(BODY), count + 1).astype(np.int64)
    source = np.arange(count) % 2  # now out of the file, now out of memory
    sink = with_checksum(store.put_stream(str(tmp_path / "a.bin")))
    assert writes_behind(sink)
    sink.write_pieces(ByteRanges([file, pa.py_buffer(BODY)], source, bounds[:-1], np.diff(bounds)))
    assert sink.checksum() == EXPECTED
    sink.close()
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_what_a_native_library_writes_is_read_again(tmp_path: Path) -> None:
    sink = with_checksum(LocalStore().put_stream(str(tmp_path / "a.bin")))
    assert isinstance(sink, NativePath)
    with pa.OSFile(sink.native_path, "wb") as file:
        file.write(BODY)
    assert sink.checksum() == EXPECTED
    sink.close()


def test_an_empty_file_has_a_sum(place: tuple[Store, str]) -> None:
    store, path = place
    sink = with_checksum(store.put_stream(path))
    assert sink.checksum() == xxhash.xxh3_64(b"").hexdigest()
    assert file_checksum(store, sink.close()) == xxhash.xxh3_64(b"").hexdigest()
