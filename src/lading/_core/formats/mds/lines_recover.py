"""Recover the lines of a damaged shard of a split format of MDS, and make its first line anew.

`.meta` tells where each line begins. A line is whole if a line end stands right before and behind it, and none inside.
If bytes are missing from the file or came into it, only the lines that surely lie before that place are whole: two
halves of lines may look like one. If `.meta` is damaged, lines are the bytes between line ends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.base import Recovered, ShardFile
from lading._core.formats.mds.index import parse_entry
from lading._core.formats.mds.lines import check_line_ends, first_line, line_ends
from lading._core.formats.mds.reader import meta_places
from lading._core.formats.text_lines import laid_end_to_end
from lading._core.storage.base import MappedFile
from lading.errors import CorruptShard, DataError, LadingError, StoreError, errors_at, is_damage

__all__ = ["recover_lines"]


def recover_lines(mapped: MappedFile, source: ShardFile) -> Recovered | None:
    """Return the lines that are whole; None if all end where they should.

    Raises:
        DataError: line ends do not tell lines apart.
    """
    with errors_at(file=source.path):
        entry = parse_entry(source.entry, source.limits)
        check_line_ends(entry.config)
        size = memoryview(mapped.buffer).nbytes
        stop = line_ends(mapped.read, size, entry.config.newline.encode())
    start, head = np.append(0, stop)[: len(stop)], first_line(entry.config)
    names = int(bool(head))
    lost: list[LadingError] = []
    if mapped.read(0, len(head)) != head:
        lost.append(CorruptShard("the line of names is damaged; it was made anew", file=source.path, offset=0))
    try:
        place = meta_places(source, entry)
    except (DataError, StoreError) as error:
        if not is_damage(error):
            raise
        lost.append(error)
        kept, missing = np.stack([start, stop])[:, names:], max(entry.samples + names - len(stop), 0)
    else:
        moved = int(place[-1]) - size
        if not moved and not lost:
            return None
        there = _are_lines(place, start, stop)
        if moved:
            there &= np.arange(len(there)) < _before_move(place, moved, start, stop, there)
        kept, missing = np.stack([place[:-1], place[1:]])[:, there], len(there) - int(there.sum())
        lost += _errors(np.flatnonzero(~there), place, moved, source.path)
    found = laid_end_to_end(kept[0], kept[1] - kept[0], size, lost, missing, head)
    return replace(found, options={"walk_lines": True}, counted=True)


def _before_move(
    place: NDArray[np.int64],
    moved: int,
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    there: NDArray[np.bool_],
) -> int:
    """Return how many lines surely lie before the place where bytes are missing or came in.

    Args:
        place: where each line should begin, and the last one end.
        moved: how many bytes are missing; negative if some came in.
        start: where lines begin in the file.
        stop: where they end.
        there: which lines are at their places.
    """
    leading = len(there) if there.all() else int(np.argmin(there))
    behind = _are_lines(place - moved, start, stop)
    shifted = len(behind) if behind.all() else int(np.argmin(behind[::-1]))
    # All lines from here on may have moved: the place may be as early as in the line before.
    first = int(place[max(len(there) - shifted - 1, 0)]) - max(moved, 0)
    return min(leading, int(np.searchsorted(place[1:], first, "right")))


def _are_lines(place: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which lines that should lie between these places do."""
    if not len(start):
        return np.zeros(len(place) - 1, bool)
    at = np.minimum(np.searchsorted(start, place[:-1]), len(start) - 1)
    found: NDArray[np.bool_] = (start[at] == place[:-1]) & (stop[at] == place[1:])
    return found


def _errors(rows: NDArray[np.int64], place: NDArray[np.int64], moved: int, path: str) -> list[LadingError]:
    """Return an error for each run of lost rows."""
    what = "bytes are missing from lines" if moved > 0 else "bytes came into lines" if moved else "lines without ends"
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
    return [
        CorruptShard(what, file=path, row=int(run[0]), offset=int(place[run[0]]), found=f"{len(run)} lines")
        for run in runs
    ]
