"""A local store whose finished shards go to a repository of the Hub, and leave the disk."""

from __future__ import annotations

import os
import re
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from lading._core.dataset.source.source import claimed_by
from lading._core.formats.registry import get_format
from lading._core.manifest.values import FOLDER
from lading._core.storage.base import FileInfo, NativePath, Sink, native_path
from lading._core.storage.hub import HubStore
from lading._core.storage.local import LocalStore
from lading._core.storage.threads import Threads
from lading._core.storage.wrappers import WrappedStore

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

__all__ = ["Uploads"]

_OF_TASK = re.compile(r"/tasks/task-[^/]+/\d+$")
"""A shard of one of several tasks, which gets its name at the end."""
_WAITING = 2
"""Shards on the disk that are not uploaded yet, at most, besides the one that is written."""


class Uploads(WrappedStore):
    """The store.

    A shard is uploaded while the next one is written. Its bytes then become a hole of the same size: the job that wrote
    it goes on as with any file. Small files that the Hub keeps in git stay, until the commit.

    Args:
        hub: the store of the repository.
        url: of the repository.
        repo: its name.
        revision: the branch.
        name: format of the shards.
        threads: upload them.

    Attributes:
        schema: schema of the first shard of Parquet.
    """

    def __init__(self, hub: HubStore, url: str, repo: str, revision: str | None, name: str, threads: Threads) -> None:
        super().__init__(LocalStore(), mapped=False)
        self._hub, self._url, self._name, self._threads = hub, url, name, threads
        self._repo, self._revision = repo, revision
        self._uploads: list[Future[None]] = []
        self._added: dict[int, CommitOperationAdd] = {}
        self.schema: Any = None

    def put_stream(self, path: str) -> Sink:
        """Return a sink whose file is uploaded when it is closed, if it is a shard."""
        sink, claimed = self.inner.put_stream(path), claimed_by(path)
        of_task = _OF_TASK.search(path) is not None
        if FOLDER in path.split("/") or not (of_task or claimed is get_format(self._name)):
            return sink
        return _Uploaded(self, sink)

    def publish(self, source: str, target: str, *, replace: bool = True) -> None:
        """Give a file or folder its final name, when all uploads have ended."""
        self.wait()
        self.inner.publish(source, target, replace=replace)

    def wait(self, most: int = 0) -> None:
        """Wait until at most so many uploads run. Raises StoreError for one that failed."""
        while len(self._uploads) > most:
            self._uploads.pop(0).result()

    def take(self, info: FileInfo) -> None:
        """Upload a shard in the background."""
        if self.schema is None and self._name == "parquet":
            self.schema = pq.read_schema(native_path(info.path))
        self.wait(_WAITING - 1)
        self._uploads.append(self._threads.submit(partial(self._upload, native_path(info.path), info.size_bytes)))

    def added(self, path: str, name: str) -> CommitOperationAdd:
        """Return the part of a commit that gives a shard its name in the repository."""
        from huggingface_hub import CommitOperationAdd

        added = self._added[os.stat(native_path(path)).st_ino]
        if added.path_or_fileobj != b"":
            return CommitOperationAdd(name, native_path(path))
        added.path_in_repo = name
        return added

    def _upload(self, path: str, size: int) -> None:
        from huggingface_hub import CommitOperationAdd

        before = os.stat(path)
        added = CommitOperationAdd(f"shard{get_format(self._name).info.extensions[0]}", path)
        call = partial(self._hub.api.preupload_lfs_files, self._repo, [added], repo_type="dataset",
                       revision=self._revision, free_memory=True)  # fmt: skip
        self._hub.ask(call, self._url, is_first=False)
        self._added[before.st_ino] = added
        if added.path_or_fileobj == b"":  # as the client says that it uploaded the file
            os.truncate(path, 0)
            os.truncate(path, size)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


class _Uploaded:
    def __init__(self, store: Uploads, inner: Sink) -> None:
        self._store, self._inner, self.path = store, inner, inner.path
        if isinstance(inner, NativePath):
            self.native_path = inner.native_path
        self.write, self.tell, self.abort = inner.write, inner.tell, inner.abort

    def close(self) -> FileInfo:
        info = self._inner.close()
        self._store.take(info)
        return info
