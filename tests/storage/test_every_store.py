"""Every store under the same tests."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from lading._core.storage.base import Store
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.local import LocalStore
from lading._core.storage.memory import MemoryStore
from lading._core.storage.retries import Retries
from lading._core.storage.wrappers import CountingStore, RetryingStore, WrappedStore
from lading.testing import StoreTests


class _OnDisk(StoreTests):
    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path / "root")

    def put_raw(self, store: Store, path: str, data: bytes) -> None:
        file = Path(path.removeprefix("file://"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def get_raw(self, store: Store, path: str) -> bytes | None:
        file = Path(path.removeprefix("file://"))
        return file.read_bytes() if file.exists() else None

    def list_raw(self, store: Store, root: str) -> list[str]:
        scheme = "file://" if root.startswith("file://") else ""
        found = Path(root.removeprefix("file://")).rglob("*")
        return sorted(f"{scheme}{path}" for path in found if not path.is_dir())


class TestLocalStore(_OnDisk):
    @pytest.fixture
    def store(self) -> Store:
        return LocalStore()


class TestLocalUrls(TestLocalStore):
    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/root"


class TestLocalThroughFsspec(_OnDisk):
    @pytest.fixture
    def store(self) -> Store:
        return FsspecStore(LocalFileSystem())


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()

    @pytest.fixture
    def root(self) -> str:
        return "any/thing"

    def memory(self, store: Store) -> MemoryStore:
        while isinstance(store, WrappedStore):
            store = store.inner
        assert isinstance(store, MemoryStore)
        return store

    def put_raw(self, store: Store, path: str, data: bytes) -> None:
        self.memory(store)._files[path] = (data, next(self.memory(store)._versions))

    def get_raw(self, store: Store, path: str) -> bytes | None:
        return self.memory(store)._files.get(path, (None, 0))[0]

    def list_raw(self, store: Store, root: str) -> list[str]:
        return sorted(path for path in self.memory(store)._files if path.startswith(f"{root}/"))


class TestCountingStore(TestMemoryStore):
    @pytest.fixture
    def store(self) -> Store:
        return CountingStore(MemoryStore(), mapped=True)


class TestRetryingStore(TestMemoryStore):
    @pytest.fixture
    def store(self) -> Store:
        return RetryingStore(
            MemoryStore(), Retries(sleep=lambda _: pytest.fail("nothing here is worth a second attempt"))
        )


class TestMemoryThroughFsspec(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return FsspecStore("memory://")

    @pytest.fixture
    def root(self) -> str:
        return f"memory://{secrets.token_hex(8)}"

    def put_raw(self, store: Store, path: str, data: bytes) -> None:
        MemoryFileSystem().pipe_file(path, data)

    def get_raw(self, store: Store, path: str) -> bytes | None:
        file = MemoryFileSystem.store.get(path.replace("memory://", "/"))
        return file.getvalue() if file is not None else None

    def list_raw(self, store: Store, root: str) -> list[str]:
        lead = root.replace("memory://", "/") + "/"
        return sorted("memory:/" + path for path in MemoryFileSystem.store if path.startswith(lead))


class _Upload(AbstractBufferedFile):
    """A file that appears when its upload is complete, as on S3; parts of 1 KiB."""

    DEFAULT_BLOCK_SIZE = 1024

    def _initiate_upload(self) -> None:
        self.parts: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts.append(self.buffer.getvalue())
        if final:
            MemoryFileSystem().pipe_file(self.path, b"".join(self.parts))
        return True


class _ObjectFileSystem(MemoryFileSystem):
    """A file system of whole uploads: no rename, no folders."""

    protocol = "memory"
    cachable = False

    def _open(self, path: str, mode: str = "rb", **options: Any) -> AbstractBufferedFile:
        return _Upload(self, path, mode, **{k: v for k, v in options.items() if k != "autocommit"})

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        raise PermissionError("would make a bucket")


class TestObjectStore(TestMemoryThroughFsspec):
    @pytest.fixture
    def store(self) -> Store:
        return FsspecStore(_ObjectFileSystem(), atomic_put=True)
