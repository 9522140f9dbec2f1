"""Indexes as JSON: one version of a file is read, also of one that is replaced meanwhile."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from lading._core.storage.base import FileInfo
from lading._core.storage.index_json import load_index
from lading._core.storage.memory import MemoryStore
from lading._core.storage.wrappers import CountingStore, WrappedStore
from lading.errors import DataError, LimitExceeded, ShortRead
from lading.limits import Limits


class _ReplacedStore(WrappedStore):
    """Replaces a file each time that somebody has looked at its size, as long as there are versions."""

    def __init__(self, versions: Sequence[bytes]) -> None:
        self._files = MemoryStore({"i.json": versions[0]})
        self._later = iter(versions[1:])
        super().__init__(self._files)

    def head(self, path: str) -> FileInfo:
        info = self._files.head(path)
        for data in self._later:
            self._files.put(path, data)
            break
        return info


def _version(rows: int) -> bytes:
    return json.dumps({"rows": list(range(rows))}).encode()


@pytest.mark.parametrize("rows", [(1, 9), (9, 1), (9, 1, 5), (1, 2, 3, 4), (1, 9, 1)], ids=str)
def test_of_an_index_that_is_replaced_one_version_is_read(rows: Sequence[int]) -> None:
    told = load_index(_ReplacedStore([_version(count) for count in rows]), "i.json")
    assert told in [json.loads(_version(count)) for count in rows[1:]]


def test_an_index_that_is_replaced_each_time_is_an_error() -> None:
    with pytest.raises(DataError, match="the index is not valid JSON"):
        load_index(_ReplacedStore([_version(count) for count in range(1, 40)]), "i.json")
    with pytest.raises(ShortRead):
        load_index(_ReplacedStore([_version(count) for count in range(40, 1, -1)]), "i.json")


def test_a_sound_index_is_asked_for_once_and_a_broken_one_too() -> None:
    store = CountingStore(MemoryStore({"i.json": _version(3), "broken.json": b"{"}))
    assert load_index(store, "i.json") == {"rows": [0, 1, 2]}
    assert store.requests == {"head": 1, "get_ranges": 1}
    with pytest.raises(DataError, match=r"broken.json.*the index is not valid JSON"):
        load_index(store, "broken.json")
    assert store.requests["get_ranges"] == 2
    with pytest.raises(LimitExceeded):
        load_index(store, "i.json", Limits(index_bytes=4))
    assert store.requests["get_ranges"] == 2
