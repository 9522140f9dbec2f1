"""Calls that are repeated, and reads through a proxy that spoils answers."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event, Timer

import obstore
import pytest
from obstore.store import S3Store

import lading
from fault_proxy import BEFORE, KINDS, fault_proxy
from lading._core.storage.base import write_file
from lading._core.storage.objects import ObjectStore
from lading._core.storage.retries import Retries
from lading._core.storage.stores import Stores
from lading.errors import StoreError
from object_server import BUCKET, options

_DATA = os.urandom(100_000)
_PATH = f"s3://{BUCKET}/a"


@pytest.fixture(scope="module")
def server(server: str) -> str:
    obstore.put(S3Store(BUCKET, client_options={"allow_http": True}, **options(server)), "a", _DATA)
    return server


def _store(url: str, *, retry_s: float = 60.0, timeout_s: float = 1.0) -> ObjectStore:
    return ObjectStore(f"s3://{BUCKET}", options={**options(url), "retry_s": retry_s, "timeout_s": timeout_s})


def _busy() -> None:
    error = StoreError("busy", file="a")
    error.errno = errno.EBUSY
    raise error


def test_waits_grow_up_to_the_longest() -> None:
    waits: list[float] = []
    with pytest.raises(StoreError, match=r"a: busy \(the last of \d attempts in \d\.\d s\)") as caught:
        _waiting(waits, 9, longest_s=4).call(_busy)
    assert f"{len(waits) + 1} attempts" in str(caught.value)
    for wait, longest in zip(waits, (1, 2, 4, 4, 4), strict=False):
        assert longest / 2 <= wait <= longest
    assert 5 <= sum(waits) <= 9  # a further wait would end behind the deadline


def _waiting(waits: list[float], deadline_s: float, host: str = "", longest_s: float = 5) -> Retries:
    return Retries(deadline_s, host, backoff_s=1, longest_s=longest_s, sleep=waits.append, clock=lambda: sum(waits))


def _refused() -> None:
    error = StoreError("nobody takes the connection", file="a")
    error.errno = errno.ECONNREFUSED
    raise error


@pytest.mark.parametrize("call, longest", [(_refused, 5), (_busy, 15)])
def test_a_server_that_never_answered_is_given_up_soon(call: Callable[[], None], longest: float) -> None:
    host, waits = f"http://{longest}", list[float]()
    with pytest.raises(StoreError, match="attempts"):
        _waiting(waits, 180, host).call(call, is_first=True)
    assert longest - 5 <= sum(waits) <= longest
    _waiting([], 180, host).call(lambda: None, is_first=True)  # it answers
    waits.clear()
    with pytest.raises(StoreError, match="attempts"):
        _waiting(waits, 180, host).call(call, is_first=True)
    assert 175 <= sum(waits) <= 180


def test_a_library_that_waits_for_ever_is_left_behind() -> None:
    never = Event()
    with pytest.raises(StoreError, match=r"s3://b/a: no answer within 0\.1 s"):
        Retries(host="http://silent", silent_s=0.1).call(never.wait, "s3://b/a", is_first=True)
    never.set()


def test_a_line_every_ten_seconds_says_what_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    waits: list[float] = []
    with pytest.raises(StoreError):
        _waiting(waits, 60).call(_busy, "s3://b/a")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:2] == ["waiting for s3://b/a: busy (10 s of 60 s)", "waiting for s3://b/a: busy (20 s of 60 s)"]
    assert len(lines) == int(sum(waits)) // 10


def test_an_outage_of_several_seconds_ends_nothing(server: str) -> None:
    """obstore alone gave up after ten tries, within seconds."""
    with fault_proxy(server) as proxy:
        store = _store(proxy.url)
        store.head(_PATH)
        proxy.share, proxy.kinds = 1, ("503",)
        timer = Timer(1.5, setattr, (proxy, "share", 0))
        timer.start()
        [data] = store.get_ranges(_PATH, [(1000, 50_000)])
        info = write_file(store, f"s3://{BUCKET}/outage", [data])
        assert (bytes(data), info.size_bytes) == (_DATA[1000:51_000], 50_000)
        assert proxy.spoiled["503"] >= 5


@pytest.mark.cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_spoiled_once_is_made_good(server: str, kind: str) -> None:
    with fault_proxy(server, [kind]) as proxy:
        store = _store(proxy.url)
        version = store.head(_PATH).version
        [data] = store.get_ranges(_PATH, [(1000, 50_000)], version)
        assert bytes(data) == _DATA[1000:51_000]
        assert proxy.spoiled == {kind: 1}
        assert proxy.requests["GET"] == 2
        assert proxy.ranges[0] == "bytes=1000-50999"


@pytest.mark.cases(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_spoils_every_answer_is_an_error_that_says_so(server: str, kind: str) -> None:
    with fault_proxy(server, share=1, kinds=[kind]) as proxy:
        with pytest.raises(StoreError) as caught:
            _store(proxy.url, retry_s=0.3, timeout_s=0.2).get_ranges(_PATH, [(1000, 50_000)])
        assert caught.value.file == _PATH
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_parts_of_an_upload_that_fail_are_sent_again(server: str, seed: int) -> None:
    data = os.urandom((24 << 20) + 1)
    with fault_proxy(server, share=0.3, kinds=BEFORE, seed=seed) as proxy:
        info = write_file(_store(proxy.url, timeout_s=2.0), f"s3://{BUCKET}/parts", [data])
        assert info.size_bytes == len(data)
        assert proxy.spoiled
    [found] = _store(server).get_ranges(info.path, [(0, len(data))], info.version)
    assert bytes(found) == data


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_deletions_that_fail_are_repeated(server: str, seed: int) -> None:
    """obstore repeats them after a busy server, and not after a broken connection."""
    folder, sound = f"s3://{BUCKET}/deleted", _store(server)
    for name in "ab":
        write_file(sound, f"{folder}/{name}", [b"x"])
    with fault_proxy(server, share=0.5, kinds=["reset", "503"], seed=seed) as proxy:
        _store(proxy.url).delete(folder)
    assert [*sound.walk(folder)] == []


@pytest.mark.cases(1)
@pytest.mark.parametrize("size", [0, 1000, 20 << 20])
@pytest.mark.parametrize("kind", BEFORE)
def test_an_upload_that_always_fails_ends_and_says_so(server: str, kind: str, size: int) -> None:
    path = f"s3://{BUCKET}/never"
    with fault_proxy(server, share=1, kinds=[kind]) as proxy:
        with pytest.raises(StoreError, match=r"does not answer|503 Service Unavailable|429 Too Many") as caught:
            write_file(_store(proxy.url, retry_s=0.3, timeout_s=0.2), path, [bytes(size)])
        assert caught.value.file == path
        assert len(str(caught.value).splitlines()) == 1
    assert [*_store(server).walk(path)] == []


def test_a_changed_byte_is_seen_by_checksums_only(server: str) -> None:
    """Object stores send no checksum of a range."""
    with fault_proxy(server, ["flip"]) as proxy:
        [data] = _store(proxy.url).get_ranges(_PATH, [(1000, 50_000)])
        assert [n for n in range(50_000) if data[n] != _DATA[1000 + n]] == [25_000]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    (folder / "a.jsonl").write_text("".join(f'{{"n": {n}, "text": "{"t" * n}{n}"}}\n' for n in range(300)))
    return folder / "a.jsonl"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_conversion_through_a_fifth_of_spoiled_answers(server: str, source: Path, seed: int) -> None:
    there, back = f"s3://{BUCKET}/{seed}/mds", f"s3://{BUCKET}/{seed}/tar"
    sound = Stores({"s3://": _store(server)})
    rows = lading.open(source, stores=sound)
    rows.write(there, format="mds", shard_size=10_000, progress=False)
    with fault_proxy(server, share=0.2, seed=seed) as proxy:
        spoiled = lading.open(there, stores=Stores({"s3://": _store(proxy.url)}))
        spoiled.write(back, format="webdataset", shard_size=50_000, progress=False)
        assert sum(proxy.spoiled.values()) >= 5
    assert lading.digest(back, stores=sound) == lading.digest(rows)


@pytest.mark.soak
def test_a_conversion_from_a_server_that_spoils_every_answer_ends(server: str, source: Path) -> None:
    there = f"s3://{BUCKET}/lost"
    lading.open(source, stores=Stores({"s3://": _store(server)})).write(there, format="mds", progress=False)
    with fault_proxy(server, share=1, kinds=["503"]) as proxy:
        stores = Stores({"s3://": _store(proxy.url, retry_s=0.3)})
        with pytest.raises(StoreError, match=rf"{there}.*: 503 Service Unavailable") as caught:
            lading.convert(there, f"{there}-tar", format="webdataset", stores=stores, progress=False)
        assert (caught.value.file or "").startswith(there)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2])
def test_a_conversion_to_a_server_that_spoils_every_answer_ends(server: str, source: Path, workers: int) -> None:
    target = f"s3://{BUCKET}/never-tar"
    with fault_proxy(server, share=1, kinds=["503"]) as proxy:
        failing = {**options(proxy.url), "retry_s": 0.3}
        with pytest.raises(StoreError, match=r": 503 Service Unavailable") as caught:
            lading.convert(
                source, target, format="webdataset", shard_size=10_000, workers=workers, progress=False,
                storage_options={target: failing},
            )  # fmt: skip
        assert (caught.value.file or "").startswith(f"s3://{BUCKET}/")


@pytest.mark.soak
def test_a_changed_byte_of_a_dataset_is_found_by_its_checksum(server: str, source: Path) -> None:
    place = f"s3://{BUCKET}/verified"
    sound = Stores({"s3://": _store(server)})
    lading.open(source, stores=sound).write(place, format="mds", progress=False)
    assert not lading.verify(place, stores=sound, deep=True, progress=False).findings
    with fault_proxy(server, share=1, kinds=["flip"]) as proxy:
        proxy.only = "shard.00000.mds"
        spoiled = Stores({"s3://": _store(proxy.url)})
        [finding, *_] = lading.verify(place, stores=spoiled, deep=True, progress=False).findings
        assert proxy.spoiled
    assert finding["file"] == f"{place}/shard.00000.mds"
