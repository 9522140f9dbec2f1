"""Pieces in memory and in files go into a file in their order, however they lie."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import file_size_limit
from lading._core.arrow.byte_ranges import ByteRanges
from lading._core.storage import appender
from lading._core.storage.base import Buffer, MappedFile, WritesBehind
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, LadingError, StoreError

STORE = LocalStore()
BODY = np.random.default_rng(0).bytes(40_000)


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("body") / "body"
    path.write_bytes(BODY)
    return str(path)


def piece(file: MappedFile, offset: int, length: int) -> ByteRanges:
    return ByteRanges([file], np.array([0]), np.array([offset]), np.array([length]))


def buffer(body: Buffer) -> ByteRanges:
    return ByteRanges.of([body])


PLACES = st.tuples(st.integers(0, len(BODY)), st.integers(0, 9_000)).map(lambda p: (p[0], min(p[1], len(BODY) - p[0])))


@given(st.lists(st.tuples(st.booleans(), PLACES), max_size=30), st.integers(1, 3000), st.sampled_from([1, 3, 1000]))
def test_pieces_of_any_kind_follow_each_other(
    body: str, parts: list[tuple[bool, tuple[int, int]]], block_bytes: int, most_runs: int
) -> None:
    """Blocks and calls far smaller than usual, so that ranges are cut by them in every way."""
    files = [STORE.map(body), MemoryStore({"b": BODY}).map("b")]
    with pytest.MonkeyPatch.context() as small:
        small.setattr(appender, "_BLOCK_BYTES", block_bytes)
        small.setattr(appender, "_MOST_RUNS", most_runs)
        given_pieces = ByteRanges.joined(
            [
                piece(files[i % 2], at, size) if in_file else ByteRanges.of([BODY[at : at + size]])
                for i, (in_file, (at, size)) in enumerate(parts)
            ]
        )
        target = os.memfd_create("parts")
        try:
            appender.Appender().append(target, given_pieces)
            found = os.pread(target, len(BODY) * len(parts) + 1, 0)
        finally:
            os.close(target)
    assert found == b"".join(BODY[at : at + size] for _, (at, size) in parts)


@pytest.mark.parametrize("second", [25_536, 30_000], ids=["at the end of a piece", "inside of a piece"])
@pytest.mark.parametrize("most_buffers", [1, 2, 1000])
def test_a_call_may_write_less_than_it_is_given(
    monkeypatch: pytest.MonkeyPatch, most_buffers: int, second: int
) -> None:
    """A pipe that nobody reads takes 64 KiB; a signal ends the call then, and the reading begins."""
    monkeypatch.setattr(appender, "_MOST_BUFFERS", most_buffers)
    parts = [BODY, b"", BODY[:second], BODY * 3, BODY]
    source, target = os.pipe()
    with ThreadPoolExecutor(1) as pool, os.fdopen(source, "rb") as reading:
        found: list[Future[bytes]] = []
        handler = signal.signal(signal.SIGALRM, lambda *_: found.append(pool.submit(reading.read)))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            appender.Appender().append(target, ByteRanges.of(parts))
        finally:
            signal.signal(signal.SIGALRM, handler)
            os.close(target)
        assert [one.result() for one in found] == [b"".join(parts)]


def foreign(path: str) -> None:
    """What a native library does."""
    with open(path, "ab") as file:
        file.write(b"foreign")


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sink_takes_what_lies_in_files(threads: int, body: str, tmp_path: Path) -> None:
    before = pa.cpu_count()
    pa.set_cpu_count(threads)
    try:
        file = STORE.map(body)
        sink = STORE.put_stream(str(tmp_path / "new"))
        assert isinstance(sink, WritesBehind)
        sink.write_pieces(ByteRanges.joined([buffer(b"head"), piece(file, 0, 30_000), buffer(pa.py_buffer(b"mid"))]))
        sink.write_pieces(piece(file, 31_000, 9_000))
        sink.later(lambda: foreign(sink.native_path))
        sink.settle()
        assert sink.tell() == 4 + 30_000 + 3 + 9_000 + 7
        sink.close()
    finally:
        pa.set_cpu_count(before)
    assert (tmp_path / "new").read_bytes() == b"head" + BODY[:30_000] + b"mid" + BODY[31_000:] + b"foreign"


def test_what_fails_out_of_sight_is_raised_by_the_next_call_and_leaves_nothing(tmp_path: Path) -> None:
    little, much = [[b"more"]], [buffer(bytes(5 << 20))]
    asked = [("write", little), ("write_pieces", much), ("tell", []), ("settle", []), ("close", [])]
    for ask, arguments in asked:
        sink = STORE.put_stream(str(tmp_path / "new"))
        with file_size_limit(1000):
            sink.write_pieces(buffer(bytes(5000)))
            with pytest.raises(StoreError, match="too large"):
                getattr(sink, ask)(*arguments)
            if ask != "close":
                for _ in range(9):
                    with suppress(StoreError):
                        sink.write_pieces(buffer(b"little"))
            with pytest.raises(StoreError, match="too large"):
                sink.close()  # again: what was given later would stand in the place of what is missing
        assert list(tmp_path.iterdir()) == []
        sink.abort()
        with pytest.raises(ValueError, match="closed"):
            sink.write_pieces(buffer(b"more"))


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(BODY)
    file = STORE.map(str(source))
    os.truncate(source, 10_000)
    sink = STORE.put_stream(str(tmp_path / "new"))
    sink.write_pieces(piece(file, 5_000, 20_000))
    with pytest.raises(CorruptShard) as caught:
        sink.close()
    assert isinstance(caught.value, LadingError)
    assert caught.value.file == str(source)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
