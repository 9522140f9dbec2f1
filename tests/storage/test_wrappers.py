"""Stores around stores."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import pytest

from lading._core.storage.base import Buffer, FileInfo, Mapper, NativePath
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.retries import Retries
from lading._core.storage.wrappers import CountingStore, RetryingStore, WrappedStore
from lading.errors import NotFound, ShortRead, StoreError

_FILES = {"a": b"0123456789", "b/c": b"xyz"}


class Flaky(WrappedStore):
    """Fails with each of these errors once, then works."""

    def __init__(self, errors: Sequence[StoreError]) -> None:
        super().__init__(MemoryStore(_FILES))
        self.errors = list(errors)

    def head(self, path: str) -> FileInfo:
        if self.errors and not isinstance(self.errors[0], ShortRead):
            raise self.errors.pop(0)
        return super().head(path)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        if self.errors:
            raise self.errors.pop(0)
        return super().get_ranges(path, ranges, version)

    def delete(self, path: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        super().delete(path)


class StatusError(Exception):
    """As HTTP libraries have it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class ServerDisconnectedError(Exception):
    """As aiohttp has it: neither an OSError nor a number."""


def caused(cause: Exception | None = None, number: int | None = None) -> StoreError:
    error = StoreError("it failed")
    error.__cause__ = cause
    error.errno = number
    return error


def retrying(errors: Sequence[StoreError]) -> tuple[RetryingStore, list[float]]:
    waits: list[float] = []
    retries = Retries(9, backoff_s=2, sleep=waits.append, clock=lambda: sum(waits))
    return RetryingStore(Flaky(errors), retries), waits


PASSING = [
    caused(ConnectionResetError()),
    caused(TimeoutError()),
    caused(number=errno.ECONNRESET),
    caused(number=errno.EBUSY),
    caused(StatusError(503)),
    caused(StatusError(429)),
    caused(ServerDisconnectedError()),
    ShortRead("cut"),
]
LASTING = [caused(), caused(number=errno.EACCES), caused(StatusError(403)), caused(StatusError(400)), NotFound("gone")]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_tried_again(error: StoreError) -> None:
    store, waits = retrying([error, error])
    assert [bytes(b) for b in store.get_ranges("a", [(2, 3)])] == [b"234"]
    assert 1 <= waits[0] <= 2 <= waits[1] <= 4


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts_is_not(error: StoreError) -> None:
    store, waits = retrying([error])
    with pytest.raises(StoreError) as caught:
        store.get_ranges("a", [(2, 3)])
    assert caught.value is error
    assert waits == []


def test_the_last_error_comes_through() -> None:
    errors = [caused(number=errno.EIO) for _ in range(20)]
    store, waits = retrying(errors)
    with pytest.raises(StoreError) as caught:
        store.head("a")
    assert caught.value is errors[len(waits)]
    assert len(waits) >= 2


def test_head_walk_and_delete_are_tried_again() -> None:
    store, _ = retrying([caused(number=errno.EIO)])
    assert store.head("a").size_bytes == 10
    store, _ = retrying([caused(number=errno.EIO)])
    store.delete("a")
    assert [info.path for info in store.walk("")] == ["b/c"]


def test_a_range_outside_the_file_is_not_asked_for_again() -> None:
    store, waits = retrying([ShortRead("past the end")])
    with pytest.raises(ShortRead, match="past the end"):
        store.get_ranges("a", [(2, 30)])
    assert waits == []


def test_requests_and_bytes_are_counted() -> None:
    store = CountingStore(MemoryStore(_FILES))
    store.head("a")
    store.get_ranges("a", [(0, 4), (8, 2)])
    store.get_ranges("b/c", [(0, 3)])
    with pytest.raises(ShortRead):
        store.get_ranges("a", [(9, 5)])
    list(store.walk(""))
    sink = store.put_stream("new")
    sink.write([b"12345"])
    sink.close()
    store.put_stream("never").abort()
    store.publish("new", "newer")
    store.delete("newer")
    expected = {"head": 1, "get_ranges": 4, "walk": 1, "put_stream": 2, "close": 1, "publish": 1, "delete": 1}
    assert store.requests == expected
    assert (store.bytes_read, store.bytes_written) == (14, 5)
    assert store.ranges == {"a": [(0, 4), (8, 2), (9, 5)], "b/c": [(0, 3)]}
    store.reset()
    assert (store.requests, store.bytes_read, store.ranges) == ({}, 0, {})


def test_the_size_of_a_file_whose_answer_was_cut_is_asked_for_again_too() -> None:
    store, waits = retrying([ShortRead("cut"), caused(number=errno.EBUSY)])
    assert [bytes(b) for b in store.get_ranges("a", [(2, 3)])] == [b"234"]
    assert len(waits) == 2


def test_maps_are_passed_on_only_if_asked_for() -> None:
    assert not isinstance(CountingStore(MemoryStore()), Mapper)
    assert isinstance(CountingStore(MemoryStore(), mapped=True), Mapper)
    assert isinstance(RetryingStore(MemoryStore()), Mapper)
    assert not isinstance(RetryingStore(CountingStore(MemoryStore())), Mapper)


def test_native_paths_are_passed_on(tmp_path: os.PathLike[str]) -> None:
    for store, native in ((CountingStore(LocalStore()), True), (CountingStore(MemoryStore()), False)):
        sink = store.put_stream(f"{os.fspath(tmp_path)}/a")
        assert isinstance(sink, NativePath) == native
        sink.abort()
