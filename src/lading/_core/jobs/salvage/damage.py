"""Which extents of a shard's files are intact, and their places in the damaged files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.manifest.files import ShardTables
from lading._core.storage.base import FileInfo, Store
from lading._core.storage.extents import ExtentSums
from lading._core.storage.stores import Stores, resolve
from lading.errors import NotFound

__all__ = ["FileExtents", "file_extents"]

_LOST = -1
_STEP_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class FileExtents:
    """The extents of a file as they were written, and their state now.

    Attributes:
        path: path of the file.
        info: the file as it is now; None if it is missing.
        extents: rows of `_core.storage.extents.EXTENTS_SCHEMA`.
        begin: offset of each extent as written.
        found: offset of each extent now; −1 for damaged ones.
        sums: checksum of the bytes at the written offset; 0 past the end of the file.
    """

    path: str
    info: FileInfo | None
    extents: pa.Table
    begin: NDArray[np.int64]
    found: NDArray[np.int64]
    sums: NDArray[np.uint64]

    @property
    def lost(self) -> NDArray[np.int64]:
        """Numbers of the damaged extents."""
        return np.flatnonzero(self.found == _LOST)


def file_extents(kept: ShardTables, number: int, stores: Stores) -> Iterator[FileExtents]:
    """Compare the files of a shard that have extents in the manifest with these, the shard's own file first.

    If a file is shorter or longer than written, extents after the first damage are also compared at their moved place.
    Reads a file once, or twice if its size changed. Memory: 40 bytes an extent.

    Raises:
        CorruptShard: the file of extents is broken.
        StoreError: the store failed.
    """
    extents = kept.extents(number)
    if extents is None:
        return
    path = kept.path(number)
    beside = kept.shards["beside_xxh3"][number].as_py() or ()
    paths = [path, *(posixpath.join(posixpath.dirname(path), file["name"]) for file in beside)]
    of_file = extents["file"].to_numpy()
    for file, name in enumerate(paths):
        first, last = np.searchsorted(of_file, [file, file + 1]).tolist()
        if first < last:
            yield _compare(name, extents.slice(first, last - first), stores)


def _compare(path: str, extents: pa.Table, stores: Stores) -> FileExtents:
    store, name = resolve(path, stores)
    expected, size = extents["xxh3"].to_numpy(), extents["size_bytes"].to_numpy()
    ends = np.cumsum(size)
    begin, found = ends - size, np.full(len(ends), _LOST)
    sums = np.zeros(len(ends), np.uint64)
    try:
        info = store.head(name)
    except NotFound:
        return FileExtents(path, None, extents, begin, found, sums)
    present = int(np.searchsorted(ends, info.size_bytes, "right"))
    sums[:present] = _sums(store, info, 0, ends[:present])
    same = sums == expected
    same[present:] = False
    found[same] = begin[same]
    moved = info.size_bytes - int(ends[-1])
    first = max(int(np.argmin(same)), int(np.searchsorted(begin, -moved)))
    if moved and not same.all() and first < len(ends):
        moved_same = _sums(store, info, int(begin[first]) + moved, ends[first:] + moved) == expected[first:]
        elsewhere = first + np.flatnonzero(moved_same & ~same[first:])
        found[elsewhere] = begin[elsewhere] + moved
    return FileExtents(path, info, extents, begin, found, sums)


def _sums(store: Store, info: FileInfo, begin: int, ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the checksums of contiguous parts of a file."""
    if not len(ends):
        return np.zeros(0, np.uint64)
    sums = ExtentSums()
    sums.mark_extents(ends - begin, np.zeros(len(ends)), np.zeros(len(ends)))
    for at in range(begin, int(ends[-1]), _STEP_BYTES):
        [data] = store.get_ranges(info.path, [(at, min(_STEP_BYTES, int(ends[-1]) - at))])
        sums.update(memoryview(data))
    table = sums.extents(0)
    assert table is not None
    found: NDArray[np.uint64] = table["xxh3"].to_numpy()
    return found
