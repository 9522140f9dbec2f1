"""Which store serves which URL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Never

import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.retries import Retries
from lading._core.storage.stores import Stores, is_local, resolve
from lading._core.storage.wrappers import CountingStore, RetryingStore
from lading.errors import LadingError, MissingExtra, NotFound, ShortRead, StoreError, UsageError


@pytest.mark.parametrize(
    "url", ["a/b.tar", "/a", "file:///a/b", "FILE:///a", "a:b", "c:/x", "", "x::y", "weird:name.tar"]
)
def test_paths_are_local(url: str) -> None:
    store, path = resolve(url)
    assert isinstance(store, LocalStore)
    assert store is resolve("other")[0]
    assert path == url


def test_the_scheme_of_files_is_read_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    store, path = resolve(f"FILE://{tmp_path}/a")
    assert store.head(path).size_bytes == 1


def test_memory_is_one_store_for_the_process() -> None:
    store, path = resolve("memory://a/b")
    assert isinstance(store, MemoryStore)
    assert store is resolve("memory://other")[0]
    assert path == "memory://a/b"


def test_remote_stores_are_one_a_place_and_connect_to_nothing() -> None:
    store, path = resolve("hf://datasets/a/b")
    assert isinstance(store, FsspecStore)
    assert store is resolve("hf://datasets/other")[0]
    assert store is not resolve("hf://buckets/a/b")[0]
    assert path == "hf://datasets/a/b"


@pytest.mark.parametrize("url", ["pipe:cat x", "zip://x::file:///etc/passwd", "s3://a::b"])
def test_commands_and_nested_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        resolve(url)


def test_an_unknown_scheme() -> None:
    store, path = resolve("nosuch://x/y")
    with pytest.raises(UsageError, match="nosuch://"):
        store.head(path)


@pytest.mark.parametrize("url, cure", [("s3://b/x", "s3"), ("gs://b/x", "gcs"), ("https://h/x", "http")])
def test_a_package_that_is_not_there(url: str, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("s3fs", "gcsfs", "aiohttp"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    with pytest.raises(MissingExtra, match=rf"pip install 'lading\[{cure}\]'"):
        FsspecStore(url).head(url)


def test_a_caller_may_say_otherwise() -> None:
    mine, deeper, rest = MemoryStore(), MemoryStore(), MemoryStore()
    stores = Stores({"s3://bucket/": mine, "s3://bucket/deep/": deeper})
    assert resolve("s3://bucket/x", stores) == (mine, "s3://bucket/x")
    assert resolve("s3://bucket/deep/x", stores) == (deeper, "s3://bucket/deep/x")
    assert isinstance(resolve("hf://other/x", stores)[0], FsspecStore)
    assert resolve("anything", Stores({"": rest})) == (rest, "anything")
    assert resolve("pipe:x", Stores({"": rest}))[0] is rest
    assert isinstance(resolve("x", Stores())[0], LocalStore)


def test_what_is_local_stays_so_when_it_is_wrapped() -> None:
    assert is_local(LocalStore())
    assert is_local(RetryingStore(CountingStore(LocalStore())))
    assert not is_local(CountingStore(MemoryStore()))


@pytest.mark.soak
def test_opening_imports_no_backend_and_starts_no_thread() -> None:
    code = (
        "import sys, threading; from lading._core.storage.stores import resolve; resolve('s3://b/x'); resolve('memory://x');"
        "assert threading.active_count() == 1;"
        "assert not {'fsspec.asyn', 's3fs', 'aiohttp', 'obstore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Counted(MemoryFileSystem):
    """A file system that knows in which process it was made."""

    protocol = "counted"
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.made_in = os.getpid()


def test_a_forked_child_connects_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    fsspec.register_implementation("counted", Counted, clobber=True)
    store = FsspecStore("counted://x")
    made: AbstractFileSystem = store.fs
    assert store.fs is made
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert store.fs is not made
    assert store.fs.made_in == -1


class Fails(MemoryFileSystem):
    """Fails as told."""

    protocol = "fails"
    cachable = False

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def info(self, path: str, **options: object) -> dict[str, object]:
        raise self.error


@pytest.mark.parametrize(
    "error, kind, text",
    [
        (FileNotFoundError("x"), NotFound, "no such file"),
        (PermissionError(13, "Permission denied"), StoreError, "permission denied. Check the permissions"),
        (TimeoutError(), StoreError, "TimeoutError"),
        (ConnectionResetError(104, "Connection reset by peer"), StoreError, "connection reset by peer"),
    ],
)
def test_errors_of_backends_are_ours(error: Exception, kind: type[LadingError], text: str) -> None:
    with pytest.raises(kind) as caught:
        FsspecStore(Fails(error), retries=Retries(deadline_s=0)).head("fails://a/b")
    assert text.lower() in str(caught.value).lower()
    assert caught.value.file == "fails://a/b"
    assert caught.value.__cause__ is error


def test_a_server_that_ignores_ranges_is_an_error() -> None:
    class Whole(MemoryFileSystem):
        cachable = False

        def cat_file(self, path: str, start: object = None, end: object = None, **options: object) -> bytes:
            return bytes(1000)

    with pytest.raises(StoreError, match="whole files instead of ranges"):
        FsspecStore(Whole()).get_ranges("memory://a", [(0, 10)])


def test_a_refused_range_is_a_short_read_if_it_lies_outside() -> None:
    """s3fs 2026.9 gives EINVAL for HTTP 416, which a server sends where no byte of a range is there."""

    class Strict(MemoryFileSystem):
        cachable = False

        def cat_file(self, path: str, start: object = None, end: object = None, **options: object) -> bytes:
            raise OSError(22, "The requested range is not satisfiable")

    fs = Strict()
    fs.pipe_file("memory://strict/a", bytes(100))
    with pytest.raises(ShortRead, match="a file of 100 bytes"):
        FsspecStore(fs).get_ranges("memory://strict/a", [(100, 5)])
    with pytest.raises(StoreError, match="not satisfiable"):
        FsspecStore(fs).get_ranges("memory://strict/a", [(10, 5)])


def test_what_a_backend_cannot_do_is_a_wrong_call() -> None:
    class ReadOnly(MemoryFileSystem):
        cachable = False

        def _open(self, path: str, mode: str = "rb", **options: object) -> Never:
            raise NotImplementedError

    with pytest.raises(UsageError, match="cannot do that"):
        FsspecStore(ReadOnly()).put_stream("memory://read/only")


def test_a_server_that_does_not_say_the_size() -> None:
    class Vague(MemoryFileSystem):
        cachable = False

        def info(self, path: str, **options: object) -> dict[str, object]:
            return {"name": path, "size": None, "type": "file"}

    with pytest.raises(StoreError, match="does not say how long"):
        FsspecStore(Vague()).head("memory://a")


def test_an_upload_that_lost_something_is_an_error(tmp_path: Path) -> None:
    class Lossy(MemoryFileSystem):
        cachable = False

        def cp_file(self, path1: str, path2: str, **options: object) -> None:
            self.pipe_file(path2, b"short")

    sink = FsspecStore(Lossy()).put_stream("memory://lossy/a")
    sink.write([b"something longer"])
    with pytest.raises(StoreError, match="expected 16 bytes, found 5 bytes"):
        sink.close()
    assert not Lossy().find("memory://lossy")


def test_an_upload_in_place_that_lost_something_is_deleted() -> None:
    class Upload(AbstractBufferedFile):
        def _initiate_upload(self) -> None:
            pass

        def _upload_chunk(self, final: bool = False) -> bool:
            if final:
                MemoryFileSystem().pipe_file(self.path, b"short")
            return True

    class Lossy(MemoryFileSystem):
        cachable = False

        def _open(self, path: str, mode: str = "rb", **_: object) -> Upload:
            return Upload(self, path, mode)

    sink = FsspecStore(Lossy(), atomic_put=True).put_stream("memory://lossy/b")
    sink.write([b"something longer"])
    with pytest.raises(StoreError, match="expected 16 bytes, found 5 bytes"):
        sink.close()
    assert not Lossy().find("memory://lossy")


def test_an_upload_that_cannot_be_looked_at_or_deleted_tells_of_the_first() -> None:
    class Stuck(MemoryFileSystem):
        cachable = False

        def info(self, path: str, **options: object) -> dict[str, object]:
            if path.endswith("/stuck/a"):
                raise OSError("cannot look")
            return dict(super().info(path, **options))

        def rm_file(self, path: str) -> None:
            if path.endswith("/stuck/a"):
                raise OSError("cannot delete")
            super().rm_file(path)

    sink = FsspecStore(Stuck()).put_stream("memory://stuck/a")
    sink.write([b"something"])
    with pytest.raises(StoreError, match="cannot look"):
        sink.close()


def test_what_was_there_stays_where_its_name_is_not_given_to_another() -> None:
    class Fixed(MemoryFileSystem):
        cachable = False

        def cp_file(self, path1: str, path2: str, **options: object) -> None:
            raise OSError("cannot copy")

    MemoryFileSystem().pipe_file("memory://fixed/a", b"old")
    sink = FsspecStore(Fixed()).put_stream("memory://fixed/a")
    sink.write([b"new"])
    with pytest.raises(StoreError, match="cannot copy"):
        sink.close()
    assert Fixed().find("memory://fixed") == ["/fixed/a"]
    assert Fixed().cat("memory://fixed/a") == b"old"


def test_the_old_manifest_goes_first_and_the_new_one_comes_last() -> None:
    """A marker is there meanwhile."""

    class Recorded(MemoryFileSystem):
        cachable = False
        steps: list[str] = []  # noqa: RUF012 - fsspec makes one instance, this test looks at it

        def cp_file(self, path1: str, path2: str, **options: object) -> None:
            self.steps.append(f"put {path2.partition('/out/')[2]}")
            super().cp_file(path1, path2)

        def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
            self.steps.append(f"delete {path.partition('/out/')[2]}")
            super().rm(path, recursive, maxdepth)

    fs = Recorded()
    for name in ("new/_lading/manifest.json", "new/a", "new/b", "out/_lading/manifest.json", "out/a", "out/z"):
        fs.pipe_file(f"memory://recorded/{name}", b"x")
    FsspecStore(fs).publish("memory://recorded/new", "memory://recorded/out")
    assert Recorded.steps[:-1] == [
        "put _lading/committing.json",
        "delete _lading/manifest.json",
        "put a",
        "put b",
        "delete z",
        "put _lading/manifest.json",
        "delete _lading/committing.json",
    ]
