"""Which extents of a shard's files are intact, and where they lie now."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import NotFound
from lading.extents import ExtentSums
from lading.manifest_files import KeptTables
from lading.store.checksum import Checksum, add_file
from lading.store.open import Stores, resolve
from lading.store.protocol import FileInfo, Store

__all__ = ["FileExtents", "file_extents"]

_LOST = -1


@dataclass(frozen=True, slots=True)
class FileExtents:
    """The extents of a file as they were written, and what became of them.

    Attributes:
        path: of the file.
        info: of the file as it is; None if it is gone.
        extents: rows of `lading.extents.EXTENTS_SCHEMA`.
        begin: where each began.
        found: where each lies now; −1 for those that are damaged.
        sums: checksum of what lies now where each began; 0 behind the end of the file.
    """

    path: str
    info: FileInfo | None
    extents: pa.Table
    begin: NDArray[np.int64]
    found: NDArray[np.int64]
    sums: NDArray[np.uint64]

    @property
    def lost(self) -> NDArray[np.int64]:
        """Numbers of the extents that are damaged."""
        return np.flatnonzero(self.found == _LOST)


def file_extents(kept: KeptTables, number: int, stores: Stores) -> Iterator[FileExtents]:
    """The files of a shard of which extents are kept, its own first, each looked at.

    Where bytes were cut out of a file or came into it, what lies behind is found in its new place. Reads a file once,
    or twice if its size is another. Memory: 40 bytes an extent.

    Raises:
        CorruptShard: the file of extents is broken.
        StoreError: the store failed.
    """
    extents = kept.extents(number)
    if extents is None:
        return
    path = kept.path(number)
    beside = kept.shards["beside_xxh3"][number].as_py() or ()
    paths = [path, *(posixpath.join(posixpath.dirname(path), told["name"]) for told in beside)]
    of_file = extents["file"].to_numpy()
    for file, name in enumerate(paths):
        first, last = np.searchsorted(of_file, [file, file + 1]).tolist()
        if first < last:
            yield _looked_at(name, extents.slice(first, last - first), stores)


def _looked_at(path: str, extents: pa.Table, stores: Stores) -> FileExtents:
    store, name = resolve(path, stores)
    expected, size = extents["xxh3"].to_numpy(), extents["size_bytes"].to_numpy()
    ends = np.cumsum(size)
    begin, found = ends - size, np.full(len(ends), _LOST)
    sums = np.zeros(len(ends), np.uint64)
    try:
        info = store.head(name)
    except NotFound:
        return FileExtents(path, None, extents, begin, found, sums)
    there = int(np.searchsorted(ends, info.size_bytes, "right"))
    sums[:there] = _sums(store, info, 0, ends[:there])
    same = sums == expected
    same[there:] = False
    found[same] = begin[same]
    moved = info.size_bytes - int(ends[-1])
    # Behind the first that is damaged, all may have moved as the end of the file has.
    first = max(int(np.argmin(same)), int(np.searchsorted(begin, -moved)))
    if moved and not same.all() and first < len(ends):
        behind = _sums(store, info, int(begin[first]) + moved, ends[first:] + moved) == expected[first:]
        elsewhere = first + np.flatnonzero(behind & ~same[first:])
        found[elsewhere] = begin[elsewhere] + moved
    return FileExtents(path, info, extents, begin, found, sums)


def _sums(store: Store, info: FileInfo, begin: int, ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Checksums of parts of a file that follow each other."""
    taken = ExtentSums()
    marks = np.append(begin, ends)[int(begin == 0) :]
    taken.mark_extents(marks, np.zeros(len(marks)), np.zeros(len(marks)))
    add_file(Checksum(taken), store, info)
    told = taken.extents(0)
    if told is None:
        return np.zeros(0, np.uint64)
    found: NDArray[np.uint64] = told["xxh3"].to_numpy()[int(begin > 0) :][: len(ends)]
    return found
