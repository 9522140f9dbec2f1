"""What is left of a damaged shard, by the checksums of its extents: exactly what they say is whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lading.errors import LadingError
from lading.formats.base import AnyFormat, Recovered, RowsStandAlone, ShardFile
from lading.jobs.damage import FileExtents
from lading.storage.extents import NO_ROWS

__all__ = ["known_recovered"]

_MOST_LOST_ROWS = 1 << 26
"""In the damaged extents of a file. Nobody keeps how many items there are, so that a file of extents that was changed
may tell of more rows than there is memory for."""


def known_recovered(
    fmt: AnyFormat, source: ShardFile, files: Sequence[FileExtents], differing: Sequence[LadingError]
) -> Recovered | None:
    """How to lay out a shard anew without what is damaged in any of its files; None if that is not known.

    Where rows stand alone, those that are damaged are left out of the file; elsewhere they leave a hole, since other
    bytes tell places. What holds no rows is put back.

    Args:
        fmt: of the shard.
        source: the shard.
        files: those of its files of which extents are kept.
        differing: what is wrong with its files (`lading.jobs.checksums.check_shard`).
    """
    lost = [error for error in differing if error.row is not None]
    own = next((file for file in files if file.path == source.path), None)
    others = [file for file in files if file is not own]
    if any(_num_lost_rows(file) > _MOST_LOST_ROWS for file in files):
        return None
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *map(_lost_rows, others)]))
    beside = {file.path: _with_holes(file) for file in others if (file.found != file.begin)[file.found >= 0].any()}
    if own is None:
        intact = not any(error.file == source.path for error in differing)
        size = source.info.size_bytes if source.info is not None else 0
        place, length = np.zeros(1, np.int64), np.array([size])
        if not intact or not len(files):
            return None
        return Recovered(place, place, length, size, lost_rows=rows, lost=lost, beside=beside)
    size = own.extents["size_bytes"].to_numpy()
    copies = own.extents["copy"]
    there = own.found >= 0
    put_back = np.flatnonzero(~there & (own.extents["first_row"].to_numpy() == NO_ROWS))
    if any(not copies[number].is_valid for number in put_back.tolist()):
        return None
    own_rows = _lost_rows(own)
    target, total = own.begin, int(size.sum())
    breaks = np.zeros(0, np.int64)
    head = copies[0].as_py() or b""
    if isinstance(fmt, RowsStandAlone) and fmt.rows_stand_alone(source.path, head):
        kept = there.copy()
        kept[put_back] = True
        target = np.cumsum(size * kept) - size * kept
        total = int((size * kept).sum())
        rows = np.setdiff1d(rows, own_rows)
        rows -= np.searchsorted(own_rows, rows)
        breaks, gone = np.unique(own_rows - np.arange(len(own_rows))), len(own_rows)
    else:
        rows, gone = np.union1d(rows, own_rows), 0
    made = [(int(target[number]), copies[number].as_py()) for number in put_back.tolist()]
    return Recovered(
        own.found[there], target[there], size[there], total, made, rows, lost, gone, breaks=breaks, beside=beside
    )


def _with_holes(file: FileExtents) -> Recovered:
    """A file with everything where it was, and holes where it is damaged."""
    size, there = file.extents["size_bytes"].to_numpy(), file.found >= 0
    return Recovered(file.found[there], file.begin[there], size[there], int(size.sum()))


def _num_lost_rows(file: FileExtents) -> float:
    """How many rows a file's damaged extents hold, at most."""
    first, last = (file.extents[name].to_numpy()[file.lost] for name in ("first_row", "last_row"))
    return float((last - first).sum(dtype=np.float64)) + len(first)


def _lost_rows(file: FileExtents) -> NDArray[np.int64]:
    """The rows that a file's damaged extents hold, ascending."""
    first, last = (file.extents[name].to_numpy()[file.lost] for name in ("first_row", "last_row"))
    some = [np.arange(a, b + 1) for a, b in zip(first.tolist(), last.tolist(), strict=True) if a != NO_ROWS]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *some]))
