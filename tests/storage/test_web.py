"""Files of web servers, through obstore: ranges, versions, errors, and datasets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

import lading
from fault_proxy import KINDS, fault_proxy
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.web import WebStore
from lading.errors import CorruptShard, MissingExtra, NotFound, ShortRead, SourceNotFound, StoreError, UsageError
from range_server import RangeServer, range_server
from tars import tar_of

_DATA = os.urandom(100_000)
_COUNT = 20


@pytest.fixture
def server() -> Iterator[RangeServer]:
    tars = {f"/tars/{i:02}.tar": tar_of((f"{i}.txt", b"text %d" % i)) for i in range(_COUNT)}
    with range_server({"/a/b+c=d.bin": _DATA, **tars}) as running:
        yield running


def _store(url: str, **more: object) -> WebStore:
    store, _ = resolve(f"{url}/a", Stores.of(None, {"retry_s": 0.3, **more}))
    assert isinstance(store, WebStore)
    return store


def test_ranges_of_one_version(server: RangeServer) -> None:
    store, path = _store(server.url), f"{server.url}/a/b+c=d.bin"
    info = store.head(path)
    assert (info.path, info.size_bytes) == (path, len(_DATA))
    found = store.get_ranges(path, [(5, 10), (0, 0), (99_999, 1)], info.version)
    assert [bytes(part) for part in found] == [_DATA[5:15], b"", _DATA[-1:]]
    server.files["/a/b+c=d.bin"] = _DATA[::-1]
    with pytest.raises(CorruptShard, match="replaced after it was opened"):
        store.get_ranges(path, [(5, 10)], info.version)


def test_what_is_not_there(server: RangeServer) -> None:
    store, path = _store(server.url), f"{server.url}/a/b+c=d.bin"
    with pytest.raises(NotFound):
        store.head(f"{server.url}/a/x.tar")
    for wrong in ((len(_DATA), 1), (len(_DATA) - 1, 2)):
        with pytest.raises(ShortRead, match="past the end of the file"):
            store.get_ranges(path, [wrong])


def test_a_server_without_ranges_is_told() -> None:
    with (
        range_server({"/a.bin": _DATA}, ranges=False) as server,
        pytest.raises(StoreError, match="whole files instead of ranges"),
    ):
        _store(server.url).get_ranges(f"{server.url}/a.bin", [(5, 10)])


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "whole"])  # which says: no ranges
def test_an_answer_that_is_spoiled_once_is_made_good(server: RangeServer, kind: str) -> None:
    with fault_proxy(server.url, [kind]) as proxy:
        store, path = _store(proxy.url, retry_s=60, timeout_s=0.5), f"{proxy.url}/a/b+c=d.bin"
        [data] = store.get_ranges(path, [(1000, 50_000)])
        assert bytes(data) == _DATA[1000:51_000]
        assert proxy.spoiled == {kind: 1}


@pytest.mark.soak
def test_a_dataset_of_a_web_server(server: RangeServer) -> None:
    names = f"{server.url}/tars/{{00..{_COUNT - 1}}}.tar"
    dataset = lading.open(names)
    assert [row["txt"] for row in dataset] == [f"text {i}" for i in range(_COUNT)]
    assert len(server.asked) <= 6 * _COUNT


def test_folders_need_another_package(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(SourceNotFound, match=r"To list folders, run: pip install 'lading\[http\]'"):
        lading.open(f"{server.url}/tars")


def test_names_that_obstore_would_change_take_fsspec(server: RangeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    store = _store(server.url)
    for name in ("a%20b.tar", "a.tar?signature=x", "é.tar", "a/../b.tar", "a//b.tar"):
        with pytest.raises(MissingExtra, match=r"pip install 'lading\[http\]'"):
            store.head(f"{server.url}/{name}")
    assert server.asked == []


def test_options_of_fsspec_need_its_name(server: RangeServer) -> None:
    with pytest.raises(UsageError, match="backend=fsspec"):
        _store(server.url, simple_links=True).head(f"{server.url}/a/b+c=d.bin")
    assert not isinstance(resolve(server.url, Stores.of(None, {"backend": "fsspec"}))[0], WebStore)
