"""Which extents of a shard's files are intact, and where they lie now."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from lading.errors import NotFound
from lading.manifest.files import ShardTables
from lading.storage.base import FileInfo, Store
from lading.storage.extents import ExtentSums
from lading.storage.stores import Stores, resolve

__all__ = ["FileExtents", "file_extents"]

_LOST = -1
_REACH_BYTES = 64 << 10
"""How much further than its neighbours what lies between two damages is looked for, to either side."""
_MOST_SUMMED_BYTES = 1 << 30
"""Of one such search, some tenths of a second: of large extents it gets less far, by 1 KB for those of 1 MB."""
_MOST_SUMMED_IN_FILE = 16 << 30
"""Of all such searches in a file, about a second: many damages inside large extents leave nothing to be found."""
_FEWEST_LOST = 3
"""Between two that are damaged lies a third."""
_TELLING_BYTES = 64
"""Fewer may stand anywhere."""
_STEP_BYTES = 8 << 20


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


def file_extents(kept: ShardTables, number: int, stores: Stores) -> Iterator[FileExtents]:
    """The files of a shard of which extents are kept, its own first, each looked at.

    Where bytes were cut out of a file or came into it, what lies behind is found in its new place; and so is what lies
    between two such places, if it is not 64 KB further than what lies around it. Reads a file once, or twice if
    something moved. Memory: 40 bytes an extent.

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
    _find_between(store, info, FileExtents(path, info, extents, begin, found, sums))
    return FileExtents(path, info, extents, begin, found, sums)


def _find_between(store: Store, info: FileInfo, file: FileExtents) -> None:
    """Find what lies between two places where bytes were cut out or came in, and tell so in `found`."""
    runs, left = _lost_runs(file.found, 0, len(file.found)), _MOST_SUMMED_IN_FILE
    while runs and left > 0:
        first, stop = runs.pop()
        for probe in _probes(file, first, stop):
            shift, summed = _shift_of(store, info, file, probe, first, stop)
            left -= summed
            if shift is not None:
                _find_moved(store, info, file, first, stop, shift)
                runs += _lost_runs(file.found, first, stop)
                break


def _lost_runs(found: NDArray[np.int64], first: int, stop: int) -> list[tuple[int, int]]:
    """Runs of extents, among these, that are lost and so many that one may lie between two that are damaged."""
    edges = np.flatnonzero(np.diff(found[first:stop] == _LOST, prepend=np.False_, append=np.False_)) + first
    return [(a, b) for a, b in edges.reshape(-1, 2).tolist() if b - a >= _FEWEST_LOST]


def _probes(file: FileExtents, first: int, stop: int) -> list[int]:
    """Extents of a run that tell where it lies: of each third the smallest that may be intact and is like no other."""
    size, sums = (file.extents[name].to_numpy()[first + 1 : stop - 1] for name in ("size_bytes", "xxh3"))
    _, same, count = np.unique(sums, return_inverse=True, return_counts=True)
    alike = (count[same] > 1) | (size < _TELLING_BYTES)
    thirds = [third for third in np.array_split(np.arange(len(sums)), 3) if len(third)]
    return [first + 1 + int(third[np.lexsort((size[third], alike[third]))[0]]) for third in thirds]


def _shift_of(
    store: Store, info: FileInfo, file: FileExtents, probe: int, first: int, stop: int
) -> tuple[int | None, int]:
    """How far an extent of a run lies from where it began, if that is about as far as its neighbours; else None.

    Told with it is how many bytes were summed.
    """
    summed = 0
    begin, size = int(file.begin[probe]), int(file.extents["size_bytes"][probe].as_py())
    told, digest = file.extents["xxh3"][probe].as_py(), xxhash.xxh3_64_intdigest
    reach, (room, end) = min(_REACH_BYTES, _MOST_SUMMED_BYTES // size), _room(info, file, first, stop)
    for shift in {int(file.found[at] - file.begin[at]) for at in (first - 1, stop) if 0 <= at < len(file.found)} or {0}:
        low, high = max(room, begin + shift - reach), min(end, begin + shift + reach + size)
        if high - low >= size:
            [data] = store.get_ranges(info.path, [(low, high - low)])
            view = memoryview(data)
            tries = high - low - size + 1
            at = next((at for at in range(tries) if digest(view[at : at + size]) == told), None)
            summed += size * (tries if at is None else at + 1)
            if at is not None:
                return low + at - begin, summed
    return None, summed


def _room(info: FileInfo, file: FileExtents, first: int, stop: int) -> tuple[int, int]:
    """Where a run of extents can lie: between the neighbours that were found."""
    low = 0 if first == 0 else int(file.found[first - 1]) + file.extents["size_bytes"][first - 1].as_py()
    return low, info.size_bytes if stop == len(file.found) else int(file.found[stop])


def _find_moved(store: Store, info: FileInfo, file: FileExtents, first: int, stop: int, shift: int) -> None:
    """Tell in `found` which extents of a run lie so far from where they began."""
    low, high = _room(info, file, first, stop)
    place = file.begin[first:stop] + shift
    ends = place + file.extents["size_bytes"].to_numpy()[first:stop]
    inside = np.flatnonzero((place >= low) & (ends <= high))
    place, ends, numbers = place[inside], ends[inside], first + inside
    there = _sums(store, info, int(place[0]), ends) == file.extents["xxh3"].to_numpy()[numbers]
    file.found[numbers[there]] = place[there]


def _sums(store: Store, info: FileInfo, begin: int, ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Checksums of parts of a file that follow each other."""
    if not len(ends):  # the file ends before the first does
        return np.zeros(0, np.uint64)
    taken = ExtentSums()
    taken.mark_extents(ends - begin, np.zeros(len(ends)), np.zeros(len(ends)))
    for at in range(begin, int(ends[-1]), _STEP_BYTES):
        [data] = store.get_ranges(info.path, [(at, min(_STEP_BYTES, int(ends[-1]) - at))])
        taken.update(memoryview(data))
    told = taken.extents(0)
    assert told is not None
    found: NDArray[np.uint64] = told["xxh3"].to_numpy()
    return found
