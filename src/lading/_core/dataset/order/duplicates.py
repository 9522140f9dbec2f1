"""Find equal hashes among any number of them, in bounded memory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lading._core.arrow.free_memory import release_freed
from lading._core.storage.temporary import temporary_folder, writing

__all__ = ["DuplicateFinder"]

_ENTRY = np.dtype([("high", np.uint64), ("low", np.uint64), ("place", np.int64)])
_HELD_BYTES = 16 << 20
"""Hashes that are held in memory; to sort so many takes some 60 MB."""
_PARTITIONS = 256


class DuplicateFinder:
    """Takes hashes of 16 bytes with their places, and finds those that are equal.

    More than `held_bytes` go to temporary files, one for each first byte of a hash: 24 bytes a hash on disk. Memory:
    four times `held_bytes`, or of many hashes a 64th of all of them; and 16 bytes a duplicate.

    Args:
        held_bytes: hashes in memory before they are written to files.
    """

    def __init__(self, held_bytes: int = _HELD_BYTES) -> None:
        self._most, self._held, self._size = held_bytes, list[NDArray[np.void]](), 0
        self._stack, self._folder = ExitStack(), ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stack.close()

    def add(self, hashes: NDArray[np.uint8], places: NDArray[np.int64]) -> None:
        """Add hashes, `(count, 16)`, and the place of each, which is larger than those before."""
        entries = np.empty(len(places), _ENTRY)
        words = np.ascontiguousarray(hashes).view(">u8").reshape(-1, 2)
        entries["high"], entries["low"], entries["place"] = words[:, 0], words[:, 1], places
        self._held.append(entries)
        self._size += entries.nbytes
        if self._size > self._most:
            self._spill()

    def _in_memory(self) -> NDArray[np.void]:
        return np.concatenate([np.zeros(0, _ENTRY), *self._held])

    def _spill(self) -> None:
        """Write what is held to the files of its first bytes."""
        if not self._folder:
            self._folder = self._stack.enter_context(temporary_folder())
        entries = self._in_memory()
        first = (entries["high"] >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(first, kind="stable")
        bounds = np.searchsorted(first[order], np.arange(_PARTITIONS + 1))
        entries = entries[order]
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            with writing(self._folder), open(self._file(part), "ab") as file:
                file.write(entries[bounds[part] : bounds[part + 1]].tobytes())
        self._held, self._size = [], 0
        del entries, first, order
        release_freed()

    def _file(self, part: int) -> str:
        return os.path.join(self._folder, f"{part:02x}")

    def duplicates(self, *, keep_last: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of the duplicates, rising, and of each the place of the equal one that is kept."""
        if not self._folder:
            found = [_duplicates(self._in_memory(), keep_last=keep_last)]
        else:
            self._spill()
            parts = [self._file(part) for part in range(_PARTITIONS)]
            found = [
                _duplicates(np.fromfile(part, _ENTRY), keep_last=keep_last) for part in parts if os.path.exists(part)
            ]
        dropped, kept = (np.concatenate([part[i] for part in found]) for i in (0, 1))
        order = np.argsort(dropped)
        return dropped[order], kept[order]


def _duplicates(entries: NDArray[np.void], *, keep_last: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    high, low, place = entries["high"], entries["low"], entries["place"]
    order = np.lexsort((-place if keep_last else place, low, high))
    high, low, place = high[order], low[order], place[order]
    again = np.zeros(len(place), np.bool_)
    again[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    firsts = np.flatnonzero(~again)
    kept = place[firsts[np.cumsum(~again) - 1]] if len(place) else place
    return place[again], kept[again]
