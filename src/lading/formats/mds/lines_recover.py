"""What is left of a damaged shard of a split format: the lines that are known to be whole, its first line made anew.

`.meta` says where each line should begin. Where bytes are missing or came in, the lines before the place are those that
end where they should, and those behind it the ones that do so many bytes earlier or later. Two halves of lines that
became one may be as long as a line: nothing but the lines around them tells, and those are lost with it then. Where
`.meta` is damaged itself, lines are what lies between line ends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lading.errors import CorruptShard, DataError, LadingError, StoreError, errors_at
from lading.formats.base import Recovered, ShardFile
from lading.formats.mds.index import parse_entry
from lading.formats.mds.lines import check_line_ends, first_line, line_ends
from lading.formats.mds.reader import meta_places
from lading.formats.text_lines import laid_end_to_end
from lading.storage.base import MappedFile

__all__ = ["resync_lines"]


def resync_lines(mapped: MappedFile, source: ShardFile) -> Recovered | None:
    """The lines that are whole; None if all end where they should.

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
        lost.append(error)
        kept, missing = np.stack([start, stop])[:, names:], max(entry.samples + names - len(stop), 0)
    else:
        shift = int(place[-1]) - size
        if not shift and not lost:
            return None
        lines = np.append(np.zeros(names, np.int64), place)
        there, behind = _whole(lines, shift, start, stop)
        there[:names] = True
        moved = np.where(np.arange(len(there)) < behind, 0, shift)
        kept = (np.stack([lines[:-1], lines[1:]]) - moved)[:, there][:, names:]
        missing = len(there) - int(there.sum())
        lost += _told(np.flatnonzero(~there) - names, place, shift, source.path)
    found = laid_end_to_end(kept[0], kept[1] - kept[0], lost, missing, head)
    return replace(found, options={"walk_lines": True})


def _whole(
    lines: NDArray[np.int64], shift: int, start: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], int]:
    """Which lines are whole, and the first of those that lie `shift` bytes before their places.

    Args:
        lines: where each should begin, and the last one end.
        shift: how many bytes are missing; negative if some came in.
        start: where the lines begin that there are.
        stop: where they end.
    """
    count = len(lines) - 1
    there = _are_lines(lines, start, stop)
    if not shift:
        return there, count
    before = _leading(there)
    behind = count - _leading(_are_lines(lines - shift, start, stop)[::-1])
    if behind <= before or int(lines[behind]) - shift <= int(lines[before]):
        # Nothing is left over between the two: halves of lines may be taken for one, wherever the place may have been.
        missing = max(shift, 0)
        first, last = lines[max(behind - 1, 0)] - missing, lines[min(before + 1, count)] + missing
        before, behind = int(np.searchsorted(lines[1:], first, "right")), int(np.searchsorted(lines[:-1], last))
    number = np.arange(count)
    return (number < before) | (number >= behind), behind


def _are_lines(lines: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of them are lines that there are, no more and no less."""
    if not len(start):
        return np.zeros(len(lines) - 1, bool)
    at = np.minimum(np.searchsorted(start, lines[:-1]), len(start) - 1)
    found: NDArray[np.bool_] = (start[at] == lines[:-1]) & (stop[at] == lines[1:])
    return found


def _leading(true: NDArray[np.bool_]) -> int:
    return len(true) if true.all() else int(np.argmin(true))


def _told(rows: NDArray[np.int64], place: NDArray[np.int64], shift: int, path: str) -> list[LadingError]:
    """What there is to say of rows that are lost: once of those that follow each other."""
    what = "bytes are missing from lines" if shift > 0 else "bytes came into lines" if shift else "lines without ends"
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1) if len(rows) else []
    return [
        CorruptShard(what, file=path, row=int(run[0]), offset=int(place[run[0]]), found=f"{len(run)} lines")
        for run in runs
    ]
