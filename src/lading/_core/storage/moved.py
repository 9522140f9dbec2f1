"""Read files under their final names before they have them: a dataset is read back before it is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from lading._core.storage.base import Buffer, FileInfo, Store, file_infos
from lading._core.storage.cached import CachedStore
from lading._core.storage.fsspec import FsspecStore
from lading._core.storage.objects import ObjectStore
from lading._core.storage.stores import resolve
from lading._core.storage.wrappers import WrappedStore

__all__ = ["MovedStore"]


class MovedStore(WrappedStore):
    """A store some of whose files are read from other paths. A copy in another process opens local stores by URL.

    Args:
        inner: the wrapped store.
        places: where the bytes of a file are, by its path.
    """

    def __init__(self, inner: Store, places: Mapping[str, str]) -> None:
        super().__init__(inner)
        self._places = dict(places)

    def __reduce__(self) -> tuple[Callable[..., MovedStore], tuple[dict[str, str], Store | None]]:
        inner = self.inner.inner if isinstance(self.inner, CachedStore) else self.inner
        sent = isinstance(inner, (ObjectStore, FsspecStore))  # they have options of their own
        return _opened, (self._places, inner if sent else None)

    def head(self, path: str) -> FileInfo:
        """Return the facts of the file."""
        return replace(self.inner.head(self._places.get(path, path)), path=path)

    def walk(self, prefix: str) -> Iterator[FileInfo]:
        """Yield the files below a folder, by path in code-point order."""
        below = [path for path in self._places if path.startswith(prefix.rstrip("/") + "/")]
        moved = file_infos(self.inner, [self._places[path] for path in below])
        infos = [replace(info, path=path) for path, info in zip(below, moved, strict=True)]
        yield from sorted([*self.inner.walk(prefix), *infos], key=lambda info: info.path)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[Buffer]:
        """Return one buffer per range."""
        return self.inner.get_ranges(self._places.get(path, path), ranges, version)


def _opened(places: dict[str, str], inner: Store | None) -> MovedStore:
    return MovedStore(inner or resolve(next(iter(places.values())))[0], places)
