"""Layouts of a damaged shard by the checksums of its extents: exactly the parts that are as they were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.base import Recovered, ShardFile
from lading._core.jobs.salvage.damage import FileExtents
from lading._core.storage.extents import NO_ROWS
from lading.errors import LadingError

__all__ = ["known_layouts"]

_MOST_LOST_ROWS = 1 << 26
"""Rows in the damaged extents of a file. A changed file of extents may tell more rows than there is memory for."""


def known_layouts(
    source: ShardFile, files: Sequence[FileExtents], differing: Sequence[LadingError], *, independent: bool
) -> list[Recovered]:
    """Return how to lay out a shard without what is damaged in any of its files; the first layout that reads is right.

    The first layout leaves damaged rows out of the file. The second one has holes instead, for formats whose bytes
    tell places. Damaged parts without rows are put back if a copy of them was kept.

    Args:
        source: the shard.
        files: those of its files of which extents are kept.
        differing: the errors of its files (`_core.jobs.verify.checksums.check_shard`).
        independent: whether no row needs another one: rows may be left out of the file.
    """
    lost = [error for error in differing if error.row is not None]
    own = next((file for file in files if file.path == source.path), None)
    others = [(file, file.found != file.begin) for file in files if file is not own]
    if any(_num_rows(file, file.found < 0) > _MOST_LOST_ROWS for file in files):
        return []
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(_rows(file, bad) for file, bad in others)]))
    if own is None:
        size = source.info.size_bytes if source.info is not None else 0
        if not len(files) or any(error.file == source.path for error in differing):
            return []
        place = np.zeros(1, np.int64)
        return [Recovered(place, place, np.array([size]), size, lost_rows=rows, lost=lost)]
    size = own.extents["size_bytes"].to_numpy()
    copies = own.extents["copy"]
    there = own.found >= 0
    put_back = np.flatnonzero(~there & (own.extents["first_row"].to_numpy() == NO_ROWS))
    if any(not copies[number].is_valid for number in put_back.tolist()):
        return []
    gone = _rows(own, ~there)

    texts = [copies[number].as_py() for number in put_back.tolist()]
    holes = Recovered(
        own.found[there], own.begin[there], size[there], int(size.sum()),
        [*zip(own.begin[put_back].tolist(), texts, strict=True)], np.union1d(rows, gone), lost,
    )  # fmt: skip
    if not independent:
        return [holes]
    kept = there.copy()
    kept[put_back] = True
    rest = np.setdiff1d(rows, gone)
    ends = np.cumsum(size * kept)
    begin = ends - size * kept
    cut = replace(
        holes, target=begin[there], size_bytes=int(ends[-1]),
        made=[*zip(begin[put_back].tolist(), texts, strict=True)], lost_rows=rest - np.searchsorted(gone, rest),
        lost_samples=len(gone), breaks=np.unique(gone - np.arange(len(gone))),
    )  # fmt: skip
    return [cut, holes]


def _num_rows(file: FileExtents, bad: NDArray[np.bool_]) -> float:
    """Return how many rows these extents of a file hold, at most."""
    first, last = (file.extents[name].to_numpy()[bad] for name in ("first_row", "last_row"))
    return float((last - first).sum(dtype=np.float64)) + len(first)


def _rows(file: FileExtents, bad: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the rows that these extents of a file hold, ascending."""
    first, last = (file.extents[name].to_numpy()[bad] for name in ("first_row", "last_row"))
    some = [np.arange(a, b + 1) for a, b in zip(first.tolist(), last.tolist(), strict=True) if a != NO_ROWS]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *some]))
