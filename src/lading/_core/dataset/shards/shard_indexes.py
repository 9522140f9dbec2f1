"""Indexes of shards: from the manifest, from the cache folder, or held in memory for the next reading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from threading import Lock
from typing import Any

import pyarrow as pa

from lading._core.arrow.references import FileEntry, files_of, with_files
from lading._core.formats.base import ShardFile
from lading._core.manifest.files import ShardTables
from lading._core.manifest.index_cache import IndexCache

__all__ = ["ShardIndexes", "index_kind"]

_HELD_BYTES = 64 << 20
_NOT_IN_INDEXES = frozenset({"mmap", "roots", "workers", "allow_pickle", "views"})
"""Options of formats that say how bytes are read, and do not change the index of a shard."""


class ShardIndexes:
    """Finds, holds and keeps the indexes of shards.

    Args:
        kept: the indexes that the manifest lists, if there is a manifest.

    Attributes:
        cache: the cache folder.
    """

    def __init__(self, kept: ShardTables | None) -> None:
        self._kept, self.cache = kept, IndexCache()
        self._held: dict[int, pa.Table] = {}
        self._held_bytes = 0
        self._lock = Lock()

    def known(self, shard: int, source: ShardFile, kind: str) -> pa.Table | None:
        """The index of a shard from the manifest's files or the cache; None if neither has it."""
        with self._lock:  # a file holds the indexes of many shards, and is read once
            found = self._kept.index(shard) if self._kept is not None else None
        if found is None:
            found = self.cache.load(source, kind)
        return None if found is None else _index_of(source, found)

    def hold(self, shard: int, index: pa.Table | None) -> None:
        """Hold an index in memory for the next reading of the shard, while all held indexes take less than 64 MiB."""
        size = index.nbytes if index is not None else 0
        if index is not None and self._held_bytes + size <= _HELD_BYTES:
            self._held[shard] = index
            self._held_bytes += size

    def held(self, shard: int) -> pa.Table | None:
        """The index that is held for the next reading of a shard, if there is one."""
        return self._held.get(shard)

    def give(self, shard: int, index: pa.Table) -> None:
        """Hold an index of a shard that another process made (`held`)."""
        self._held[shard] = index

    def forget(self) -> None:
        """Drop the held indexes."""
        self._held.clear()
        self._held_bytes = 0


def index_kind(format_name: str, view: str, options: Mapping[str, Any]) -> str:
    """A text that differs for indexes of one shard under other options: those may make other samples of it.

    Options of interleaved data do not count: their index lists the members of a tar, whatever sample they belong to.
    """
    told = {name: value for name, value in options.items() if name not in _NOT_IN_INDEXES}
    return f"{format_name} {view}" + (f" {json.dumps(told, sort_keys=True, default=str)}" if told else "")


def _index_of(source: ShardFile, index: pa.Table) -> pa.Table:
    """An index with the present name of its shard: it was made under another name, or from another folder."""
    wrap = next((f.wrap for f in files_of(index.schema)), "")
    info = source.info
    entry = FileEntry(source.path, wrap, info.size_bytes if info else -1, info.version if info else "")
    return index.replace_schema_metadata(with_files(index.schema, [entry]).metadata)
