"""A remote store whose shards are read from local copies (`_core.storage.shard_cache`)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from lading._core.storage.base import Buffer, Copies, Creates, FileInfo, Store
from lading._core.storage.shard_cache import ShardCache
from lading._core.storage.traffic import note_copied
from lading._core.storage.wrappers import WrappedStore
from lading._core.units import format_bytes
from lading.errors import LadingError

__all__ = ["CachedStore"]


class CachedStore(WrappedStore):
    """A store that has copies of the files that `keep` names. All else goes to the wrapped store.

    Ranges are read from a copy if they are asked for with its version, so a changed file is never read from an old
    copy.

    Args:
        inner: the wrapped store.
        cache: the copies.
    """

    def __init__(self, inner: Store, cache: ShardCache) -> None:
        super().__init__(inner)
        if isinstance(inner, Copies):
            self.copy_all, self.folders = inner.copy_all, inner.folders
        if isinstance(inner, Creates):
            self.create = inner.create
        self.cache = cache
        self._warned: set[str] = set()
        self._is_broken = False

    def keep(self, info: FileInfo, checksum: str = "") -> None:
        """Have a copy of a file in the cache, with this checksum if it is known; see `ShardCache.keep`.

        A file that cannot be kept is read from the store, and one warning says why: the store does not tell versions
        apart, the file is larger than the limit, other copies at hand leave no room, or the cache cannot be written.
        What cannot be written once is not tried again.
        """
        cache = self.cache
        if self._is_broken:
            return
        if not info.version:
            self._warn("the store says neither etag nor time of a file, so its files are not cached")
            return
        if cache.limit_bytes is not None and info.size_bytes > cache.limit_bytes:
            size, limit = format_bytes(info.size_bytes), format_bytes(cache.limit_bytes)
            self._warn(f"a shard of {size} is larger than cache_limit ({limit}), so it is not cached")
            return
        try:
            if not cache.keep(self.inner, info, checksum):
                self._warn(
                    f"copies that are read or downloaded now fill the cache {cache.folder}, so some shards are not "
                    "cached: raise cache_limit, or use fewer workers"
                )
        except LadingError:
            raise
        except OSError as error:
            self._is_broken = True
            self._warn(
                f"the cache {cache.folder} cannot be written ({error.strerror or error}), so shards are read from the "
                "store: free some space, lower cache_limit, or name another cache_dir"
            )

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one buffer per range, of the copy of this version or of the wrapped store."""
        found = self.cache.read(path, ranges, version) if version else None
        if found is None:
            return self.inner.get_ranges(path, ranges, version)
        note_copied(ranges)
        return found

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, stacklevel=2)
