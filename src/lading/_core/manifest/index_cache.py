"""Indexes of other people's shards, kept in the user's cache folder so that they are made once.

The key of an index is the shard's URL as it is shown, size, version (etag or modification time), format, view, and the
options that change its samples. The folder is `$LADING_CACHE`, else `lading` in the XDG cache folder; it and its files
are for their user alone. Nothing is ever written next to the data. If the folder cannot be written, work continues and
one warning says so.

A file is an Arrow file followed by the checksum of its bytes: xxh3-64 as 16 hex digits.
"""

from __future__ import annotations

import fcntl
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa
import xxhash

from lading._core.arrow.references import with_refs
from lading._core.formats.base import ShardFile
from lading._core.storage.base import temporary_name
from lading._core.storage.hub import unpinned

__all__ = ["IndexCache", "cache_folder"]

_LAYOUT = "3"
_SUM_BYTES = 16


def cache_folder() -> str:
    """Return the folder of stored indexes: `$LADING_CACHE`, else `$XDG_CACHE_HOME/lading`, else `~/.cache/lading`."""
    own = os.environ.get("LADING_CACHE")
    if own:
        return own
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lading")


class IndexCache:
    """Index tables by shard. Holds nothing open.

    Attributes:
        folder: where they are kept.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder or cache_folder()
        self._writable = True

    def path(self, source: ShardFile, kind: str) -> str | None:
        """Return the file of a shard's index; None if versions of the shard cannot be distinguished."""
        info = source.info or source.store.head(source.path)
        if not info.version:
            return None
        url = unpinned(source.path) if "://" in source.path else os.path.abspath(source.path)
        return self.path_of((type(source.store).__name__, url, str(info.size_bytes), info.version, kind))

    def path_of(self, parts: Iterable[str]) -> str:
        """Return the file of what these texts tell apart."""
        key = "\n".join((_LAYOUT, *parts))
        return os.path.join(self.folder, f"{xxhash.xxh3_128_hexdigest(key.encode())}.arrow")

    def load(self, source: ShardFile, kind: str) -> pa.Table | None:
        """Return the index of a shard in its present version, mapped; None if it is missing or damaged."""
        return self.read(self.path(source, kind))

    def read(self, path: str | None) -> pa.Table | None:
        """Return the table of a file of the cache, mapped; None if it is missing or damaged."""
        if path is None:
            return None
        try:
            with pa.memory_map(path) as file:
                data = file.read_buffer()
        except OSError:
            return None
        checksum = data[-_SUM_BYTES:]
        index = data[:-_SUM_BYTES]
        if xxhash.xxh3_64_hexdigest(index).encode() != checksum.to_pybytes():
            return None  # the cache is optional: the index is rebuilt
        return with_refs(pa.ipc.open_file(index).read_all())

    def store(self, source: ShardFile, kind: str, index: pa.Table) -> bool:
        """Store the index of a shard; False (and one warning) if the folder cannot be written.

        Peak memory: a copy of the index.
        """
        return self.write(self.path(source, kind) if self._writable else None, index)

    def write(self, path: str | None, index: pa.Table) -> bool:
        """Store a table as a file of the cache; see `store`."""
        if path is None or not self._writable:
            return False
        written = pa.BufferOutputStream()
        with pa.ipc.new_file(written, index.schema) as writer:
            writer.write_table(index)
        data = written.getvalue()
        part = temporary_name(path, ".tmp")
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            with open(part, "xb", opener=partial(os.open, mode=0o600)) as file:  # keys and small values of the data
                file.write(data)
                file.write(xxhash.xxh3_64_hexdigest(data).encode())
            os.replace(part, path)  # not synced: after a crash of the machine, the checksum reveals a torn file
        except OSError as error:
            with suppress(OSError):
                os.unlink(part)
            self._writable = False
            warnings.warn(f"indexes are not kept: {error}", stacklevel=2)
            return False
        return True

    @contextmanager
    def making(self, path: str | None) -> Iterator[None]:
        """Hold the right to make a file of the cache: other processes and threads that want to make it wait.

        Whoever waited reads the file then. Where the folder cannot be written or has no locks, nobody waits.
        """
        fd = None if path is None else _opened_lock(path)
        try:
            if fd is not None:
                with suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            if fd is not None:
                with suppress(OSError):
                    os.unlink(f"{path}.lock")
                with suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_UN)  # a child that is forked meanwhile has it too
                os.close(fd)


def _opened_lock(path: str) -> int | None:
    """The descriptor of the lock of a file; None where the folder cannot be written."""
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return None
