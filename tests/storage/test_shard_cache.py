"""Local copies of remote shards: downloaded once, never half, never stale, deleted in the order of their use."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
import xxhash

from faults import file_size_limit
from lading._core.storage.base import Buffer, Creates, FileInfo, write_file
from lading._core.storage.cached import CachedStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.shard_cache import ShardCache, find_cache, make_cache
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.wrappers import CountingStore, WrappedStore
from lading.errors import CorruptShard, ShortRead, StoreError, UsageError

_SIZE = 100_000
_URL = "s3://bucket/train/00000.tar"


def _bytes(seed: int, size: int = _SIZE) -> bytes:
    return random.Random(seed).randbytes(size)


def _url(number: int) -> str:
    return f"s3://bucket/train/{number:05}.tar"


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore({_url(i): _bytes(i) for i in range(6)}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _kept(store: CountingStore, cache: ShardCache, *urls: str, by: WrappedStore | None = None) -> list[bool]:
    return [cache.keep(by or store, store.inner.head(url)) for url in urls]


def _names(folder: Path, ending: str = ".tar") -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(ending))


def _read(cache: ShardCache, store: CountingStore, url: str = _URL) -> bytes | None:
    found = cache.read(url, [(0, 10), (_SIZE - 10, 10)], store.inner.head(url).version)
    return None if found is None else b"".join(bytes(part) for part in found)


class TestCopies:
    """A copy is whole, of one version of one URL, and made once."""

    def test_a_file_is_downloaded_once(self, store: CountingStore, folder: Path) -> None:
        cache = ShardCache(str(folder))
        assert _read(cache, store) is None
        assert _kept(store, cache, _URL, _URL) == [True, True]
        assert store.bytes_read == _SIZE
        assert _read(cache, store) == _bytes(0)[:10] + _bytes(0)[-10:]
        [copy] = cache.copies()
        assert Path(copy.path).read_bytes() == _bytes(0)
        assert (copy.url, copy.size_bytes) == (_URL, _SIZE)

    def test_a_large_file_is_downloaded_in_parts(self, folder: Path) -> None:
        size = (17 << 20) + 3
        store = CountingStore(MemoryStore({_URL: bytes(size)}))
        assert _kept(store, ShardCache(str(folder)), _URL) == [True]
        assert sorted(store.ranges[_URL]) == [(at, min(4 << 20, size - at)) for at in range(0, size, 4 << 20)]

    def test_an_empty_file(self, folder: Path) -> None:
        store, cache = CountingStore(MemoryStore({_URL: b""})), ShardCache(str(folder))
        assert _kept(store, cache, _URL) == [True]
        assert cache.read(_URL, [(0, 0)], store.head(_URL).version) is not None

    def test_a_changed_file_is_downloaded_anew(self, store: CountingStore, folder: Path) -> None:
        cache, inner = ShardCache(str(folder)), store.inner
        _kept(store, cache, _URL)
        assert isinstance(inner, MemoryStore)
        inner.put(_URL, _bytes(99))
        assert _read(cache, store) is None
        assert _kept(store, cache, _URL) == [True]
        assert _read(cache, store) == _bytes(99)[:10] + _bytes(99)[-10:]
        assert store.bytes_read == 2 * _SIZE

    def test_files_of_one_name_are_different_files(self, folder: Path) -> None:
        urls = ["s3://a/train/0.tar", "s3://b/train/0.tar", "s3://a/val/0.tar", "s3://a/train/0.tar?version=2"]
        store = CountingStore(MemoryStore({url: _bytes(i) for i, url in enumerate(urls)}))
        cache = ShardCache(str(folder))
        assert all(_kept(store, cache, *urls))
        for i, url in enumerate(urls):
            assert _read(cache, store, url) == _bytes(i)[:10] + _bytes(i)[-10:]

    def test_a_copy_that_was_cut_by_hand_is_not_read(self, store: CountingStore, folder: Path) -> None:
        cache = ShardCache(str(folder))
        _kept(store, cache, _URL)
        os.truncate(cache.copies()[0].path, _SIZE - 5)
        assert _read(cache, store) is None
        assert _kept(store, cache, _URL) == [True]
        assert _read(cache, store) == _bytes(0)[:10] + _bytes(0)[-10:]

    def test_a_copy_that_was_written_to_by_hand_is_not_read(self, store: CountingStore, folder: Path) -> None:
        cache = ShardCache(str(folder))
        _kept(store, cache, _URL)
        with open(cache.copies()[0].path, "r+b") as file:
            file.write(b"other")
        assert _read(cache, store) is None
        assert _kept(store, cache, _URL) == [True]
        assert _read(cache, store) == _bytes(0)[:10] + _bytes(0)[-10:]

    def test_a_file_with_another_checksum_is_not_kept(self, store: CountingStore, folder: Path) -> None:
        cache, right = ShardCache(str(folder)), xxhash.xxh3_64_hexdigest(_bytes(0))
        with pytest.raises(CorruptShard, match=f"expected xxh3 {'0' * 16}, found xxh3 {right}"):
            cache.keep(store, store.head(_URL), "0" * 16)
        assert not cache.copies()
        assert cache.keep(store, store.head(_URL), right)

    def test_a_file_that_changes_during_the_download_is_not_kept(self, folder: Path) -> None:
        class Changing(MemoryStore):
            def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
                found = super().get_ranges(path, ranges, version)
                self.put(path, bytes(17 << 20))
                return found

        store = Changing({_URL: bytes(17 << 20)})
        with pytest.raises(CorruptShard, match="replaced"):
            ShardCache(str(folder)).keep(store, store.head(_URL))
        assert _names(folder) == _names(folder, ".part") == []

    def test_a_short_answer_is_not_kept(self, store: CountingStore, folder: Path) -> None:
        class Short(WrappedStore):
            def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
                return [memoryview(part)[:-1] for part in super().get_ranges(path, ranges, version)]

        with pytest.raises(ShortRead, match=r"00000\.tar"):
            ShardCache(str(folder)).keep(Short(store), store.head(_URL))
        assert _names(folder) == _names(folder, ".part") == []


class TestFolder:
    """Nothing that lading did not make is deleted."""

    def test_a_folder_with_other_files_is_refused(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "my.tar").write_bytes(b"mine")
        with pytest.raises(UsageError, match=r"other files.*my\.tar"):
            make_cache(str(folder))
        with pytest.raises(UsageError, match="not a cache"):
            find_cache(str(folder))
        assert os.listdir(folder) == ["my.tar"]

    def test_an_empty_folder_becomes_a_cache(self, folder: Path) -> None:
        folder.mkdir()
        make_cache(str(folder))
        make_cache(str(folder))
        assert os.listdir(folder) == ["CACHEDIR.TAG"]
        assert (folder / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")

    def test_the_tag_of_another_program_is_none(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n# of another program\n")
        with pytest.raises(UsageError, match="other files"):
            make_cache(str(folder))

    def test_files_that_others_put_there_stay(self, store: CountingStore, folder: Path) -> None:
        cache = ShardCache(str(folder), _SIZE)
        make_cache(str(folder))
        others = ["00000.tar", f"{'0' * 31}-{'0' * 16}.tar", "x.part", "notes.lock"]
        for name in others:
            (folder / name).write_bytes(b"x")
        assert _kept(store, cache, _url(0), _url(1)) == [True, True]
        assert len(cache.prune(0)) == 1
        assert set(others) < set(os.listdir(folder))

    def test_a_cache_can_refuse_to_replace_files_if_its_store_can(self, folder: Path) -> None:
        cache, remote = ShardCache(str(folder)), resolve("s3://bucket/a", Stores.of(None, {"anonymous": True}))[0]
        assert isinstance(remote, Creates)
        assert isinstance(CachedStore(remote, cache), Creates)
        assert not isinstance(CachedStore(MemoryStore(), cache), Creates)

    def test_local_files_are_read_in_place(self, tmp_path: Path, folder: Path) -> None:
        stores = Stores.of(None, {"cache_dir": folder, "cache_limit": "1MB"})
        assert not isinstance(resolve(str(tmp_path / "0.tar"), stores)[0], CachedStore)
        found, _ = resolve("s3://bucket/0.tar", stores)
        assert isinstance(found, CachedStore)
        assert found.cache == ShardCache(str(folder), 1 << 20)
        assert resolve("s3://bucket/1.tar", stores)[0] is found

    def test_a_limit_without_a_cache_is_refused(self) -> None:
        with pytest.raises(UsageError, match="cache_limit"):
            resolve(_URL, Stores.of(None, {"cache_limit": "1MB"}))
        for wrong in ("s3://bucket/cache", "", 5):
            with pytest.raises(UsageError, match="cache_dir is a folder"):
                Stores.of(None, {"cache_dir": wrong})


class TestLimit:
    """Copies go in the order of their last use."""

    def test_the_least_recently_used_goes_first(self, store: CountingStore, folder: Path) -> None:
        cache = ShardCache(str(folder), 3 * _SIZE)
        assert all(_kept(store, cache, _url(0), _url(1), _url(2)))
        assert _read(cache, store, _url(0)) is not None
        assert all(_kept(store, cache, _url(3)))
        assert [copy.url for copy in cache.copies()] == [_url(2), _url(0), _url(3)]

    def test_copies_that_are_read_stay(self, store: CountingStore, folder: Path) -> None:
        cache = ShardCache(str(folder), 2 * _SIZE)
        _kept(store, cache, _url(0), _url(1))
        with _reading(cache.copies()[0].path):
            assert _kept(store, cache, _url(2)) == [True]
            assert [copy.url for copy in cache.copies()] == [_url(0), _url(2)]
            with _reading(cache.copies()[1].path):
                assert _kept(store, cache, _url(3)) == [False]
                assert cache.prune(0) == []
        assert [copy.url for copy in cache.prune(_SIZE)] == [_url(0)]

    def test_without_room_for_a_file_no_copy_goes_and_one_warning_says_so(
        self, store: CountingStore, folder: Path
    ) -> None:
        cache = ShardCache(str(folder), 3 * _SIZE)
        store.inner.delete(_url(5))
        write_file(store.inner, _url(5), [_bytes(5, 3 * _SIZE)])
        _kept(store, cache, _url(0), _url(1), _url(2))
        found = CachedStore(store, cache)
        with _reading(cache.copies()[1].path):
            with pytest.warns(UserWarning, match="some shards are not cached: raise cache_limit"):
                found.keep(found.head(_url(5)))
            with warnings.catch_warnings(action="error"):
                found.keep(found.head(_url(5)))
        assert [copy.url for copy in cache.copies()] == [_url(0), _url(1), _url(2)]
        found.keep(found.head(_url(5)))
        assert [copy.url for copy in cache.copies()] == [_url(5)]

    def test_a_file_larger_than_the_limit_is_read_from_the_store(self, store: CountingStore, folder: Path) -> None:
        found = CachedStore(store, ShardCache(str(folder), _SIZE - 1))
        info = found.head(_URL)
        with pytest.warns(UserWarning, match=r"97.7 KB is larger than cache_limit"):
            found.keep(info)
        with warnings.catch_warnings(action="error"):
            found.keep(info)
        [data] = found.get_ranges(_URL, [(0, 5)], info.version)
        assert bytes(data) == _bytes(0)[:5]

    def test_without_versions_nothing_is_cached(self, store: CountingStore, folder: Path) -> None:
        found = CachedStore(store, ShardCache(str(folder)))
        with pytest.warns(UserWarning, match="neither etag nor time"):
            found.keep(FileInfo(_URL, _SIZE))
        assert store.bytes_read == 0

    def test_a_full_disk_is_a_warning(self, store: CountingStore, folder: Path) -> None:
        found = CachedStore(store, ShardCache(str(folder)))
        info = found.head(_URL)
        with file_size_limit(_SIZE // 2), pytest.warns(UserWarning, match=rf"{folder} cannot be written.*cache_limit"):
            found.keep(info)
        assert _names(folder) == _names(folder, ".part") == []
        found.keep(info)  # what failed once is not tried again
        assert store.bytes_read == 0
        assert bytes(found.get_ranges(_URL, [(0, 5)], info.version)[0]) == _bytes(0)[:5]


class TestProcesses:
    """One process downloads; locks end with their process."""

    def test_of_many_at_once_one_downloads(self, store: CountingStore, folder: Path) -> None:
        cache, info = ShardCache(str(folder)), store.head(_URL)
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(lambda _: cache.keep(store, info), range(8)))
        assert store.bytes_read == _SIZE

    @pytest.mark.mechanism("downloads at once")
    def test_of_many_processes_at_once_one_downloads(self, store: CountingStore, folder: Path, tmp_path: Path) -> None:
        asked = tmp_path / "asked"

        class Noting(WrappedStore):
            def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
                with asked.open("ab") as file:
                    file.write(b".")
                return super().get_ranges(path, ranges, version)

        children = []
        for _ in range(4):
            child = os.fork()
            if not child:
                whole = False
                try:
                    whole = all(_kept(store, ShardCache(str(folder)), *map(_url, range(6)), by=Noting(store)))
                finally:
                    os._exit(0 if whole else 1)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        assert asked.read_bytes() == b"." * 6

    def test_who_waits_too_long_is_told_who_holds_the_lock(self, store: CountingStore, folder: Path) -> None:
        began, go_on = Event(), Event()

        class Slow(WrappedStore):
            def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
                began.set()
                assert go_on.wait(60)
                return super().get_ranges(path, ranges, version)

        cache, info = ShardCache(str(folder), wait_s=0.1), store.head(_URL)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(cache.keep, Slow(store), info)
            assert began.wait(60)
            try:
                with pytest.raises(StoreError, match=rf"process {os.getpid()} on .* since 20.*cache_dir") as error:
                    cache.keep(store, info)
                assert error.value.file == _URL
            finally:
                go_on.set()
            assert slow.result()
        assert store.bytes_read == _SIZE

    @pytest.mark.mechanism("fork beside locks of the cache")
    def test_a_forked_child_does_not_keep_the_locks_of_its_parent(self, store: CountingStore, folder: Path) -> None:
        left: list[int] = []

        class Forking(WrappedStore):
            def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
                waits, ends = os.pipe()
                child = os.fork()
                if not child:  # lives on, as a worker of a loader does
                    os.close(ends)
                    os.read(waits, 1)
                    os._exit(0)
                os.close(waits)
                left.extend((ends, child))
                raise StoreError("the parent ends here", file=path)

        cache, info = ShardCache(str(folder), wait_s=0.1), store.head(_URL)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning), pytest.raises(StoreError):
            cache.keep(Forking(store), info)
        try:
            assert cache.keep(store, info)
        finally:
            os.close(left[0])
            os.waitpid(left[1], 0)

    @pytest.mark.mechanism("a download that is killed")
    @pytest.mark.cases(2)
    @pytest.mark.parametrize("moment", range(1, 14))
    def test_a_process_that_is_killed_leaves_nothing_that_counts(
        self, store: CountingStore, folder: Path, moment: int
    ) -> None:
        """At each call of the system in which it writes, names or deletes something."""
        cache = ShardCache(str(folder), 2 * _SIZE)
        _kept(store, cache, _url(3), _url(4))
        before = {copy.url for copy in cache.copies()}
        child = os.fork()
        if not child:
            _die_at(moment)
            cache.keep(store, store.head(_URL))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        for copy in cache.copies():
            assert Path(copy.path).read_bytes() == _bytes(int(copy.url[-9:-4]) if copy.url else 0)
        assert before - {_url(3)} <= {copy.url for copy in cache.copies()}
        store.reset()
        assert _kept(store, cache, _URL) == [True]
        assert _read(cache, store) == _bytes(0)[:10] + _bytes(0)[-10:]
        assert _kept(store, cache, _url(5)) == [True]
        assert _names(folder, ".part") == []
        assert len(_names(folder)) == len(_names(folder, ".tar.lock")) == 2


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Hold a copy as a reader does."""
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _die_at(moment: int) -> None:
    """Kill this process right before the call of this number."""
    calls = 0

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def made(*args: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return made

    for name in ("pwrite", "truncate", "ftruncate", "fsync", "rename", "unlink"):
        setattr(os, name, dying(getattr(os, name)))
