"""What is left of media archives that were cut, or that bytes came into: each record where the documents say.

A record that can be read where it is told has not moved. Of those behind the last that can, the archive's end says how
far: it ends so much earlier or later than they do. But others may lie there that these documents do not name; so what
has moved must be read there, and where it cannot, frames as long as these records are looked for, in a row as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from lading.codecs.zstd_ import frame_end, frames_of_length
from lading.errors import CorruptShard, DataError
from lading.formats.base import Recovered
from lading.formats.documents import PLACE, by_number, media_parts
from lading.formats.media_archive.reader import MediaArchiveReader
from lading.media.archives import Archive

__all__ = ["resync_archives"]

_MAX_ROWS, _MAX_BYTES = 4096, 8 << 20
_IN_A_ROW = 3
"""Records that must be read so far from their places, one behind the other, if there are as many."""
_MOST_TRIED = 1000
"""Places that are tried for one record."""
_SEARCHED_BYTES, _MOST_PROBED_BYTES = 1 << 20, 16 << 20

_Reads = Callable[[int, int], bool]
"""Whether a record so far from its place, by its number and how far, can be read."""


def resync_archives(
    reader: MediaArchiveReader, known: Mapping[str, Recovered]
) -> dict[str, tuple[str, Recovered | None]]:
    """Archives by the path that documents give them: where they lie, and how to lay out those that were cut.

    Empty where none was. Those that are `known`, by their paths, are laid out so.

    Raises:
        DataError: the documents cannot be read.
    """
    found: dict[str, tuple[str, Recovered | None]] = {}
    for path, (offset, length) in _records(reader).items():
        if os.path.isabs(path) or "://" in path:
            continue
        try:
            archive = reader.media.archive(path)
        except DataError:
            continue
        told = known.get(archive.name)
        found[path] = archive.name, told or _laid_out(reader, archive, path, offset, length)
    return found if any(remains is not None for _, remains in found.values()) else {}


def _records(reader: MediaArchiveReader) -> Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Offset and length of all records that tell both, by path, by ascending offset."""
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for batch in reader.located(max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES, columns=["media"]):
        items, _ = media_parts(batch.column("media")) if "media" in batch.schema.names else (None, None)
        if items is None:
            continue
        paths = items.field(PLACE[0]).dictionary_encode()
        which = paths.indices.fill_null(-1).to_numpy().astype(np.int64)
        offset, length = (items.field(name).fill_null(-1).to_numpy().astype(np.int64) for name in PLACE[1:])
        there, told = (offset >= 0) & (length >= 0), paths.dictionary.to_pylist()
        for path, mine in zip(told, by_number(np.where(there, which, -1), len(told)), strict=True):
            parts.setdefault(path, []).append(np.stack([offset[mine], length[mine]]))
    joined = {path: np.unique(np.concatenate(found, axis=1), axis=1) for path, found in parts.items()}
    return {path: (places[0], places[1]) for path, places in joined.items() if places.size}


def _laid_out(
    reader: MediaArchiveReader, archive: Archive, path: str, offset: NDArray[np.int64], length: NDArray[np.int64]
) -> Recovered | None:
    """The archive with the records that have moved at their places; None if none has."""
    if reader.options.archives != "zstd":
        return None

    def reads(row: int, shift: int) -> bool:
        at = int(offset[row]) - shift
        try:
            place = {"path": path, "offset": at, "length": int(length[row])}
            return at >= 0 and reader.media.read_media_record(place) is not None
        except DataError:
            return False

    here = np.array([reads(row, 0) for row in range(len(offset))])
    if here.all():
        return None
    size_bytes, ends = archive.size_bytes, offset + length
    for shift in _shifts(archive, offset, length, here, reads):
        in_doubt = _is_one(offset, length, -shift) | _is_one(offset, length, shift)
        kept = np.flatnonzero(here & ~in_doubt)
        behind = int(kept[-1]) + 1 if len(kept) else 0  # of those that have not moved
        sure = np.flatnonzero(~in_doubt)
        first = _first_moved(archive, ends, sure[sure >= behind], length, shift, reads)
        doubts = int(np.count_nonzero(in_doubt[behind:first]))
        if first < len(offset) or (doubts and _may_have_moved(offset, here, shift)):
            break
    else:
        return None
    place = int(offset[first]) if first < len(offset) else size_bytes + shift
    now = place - shift
    # The cut ends in the last that has not moved, or bytes came in there. What they touch may be read all the same.
    intact = int(max(ends[ends <= int(offset[behind - 1]) - max(shift, 0)], default=0)) if behind else 0
    found = f"{abs(shift)} bytes"
    if doubts:
        found += f", as long as records are: nobody can tell which is which of {doubts} before it"
    what = "are missing from" if shift > 0 else "came into"
    lost = [CorruptShard(f"bytes {what} the archive before this one", file=path, offset=now, found=found)]
    return Recovered(
        np.array([0, now]), np.array([0, place]), np.array([intact, size_bytes - now]),
        size_bytes + shift, lost=lost,
    )  # fmt: skip


def _shifts(
    archive: Archive, offset: NDArray[np.int64], length: NDArray[np.int64], here: NDArray[np.bool_], reads: _Reads
) -> Iterator[int]:
    """By how much records may have moved: as the archive's end says; then as the records say, if that is one number."""
    ends = offset + length
    shift = int(ends.max()) - archive.size_bytes
    alone = int(offset[-1]) >= max(archive.size_bytes, int(ends[:-1].max(initial=0)) + 1)
    if shift and not alone:  # one that is told far behind the others and the archive tells nothing of these
        yield shift
    kept = np.flatnonzero(here)
    behind, begin = (int(kept[-1]) + 1, int(offset[kept[-1]]) + 1) if len(kept) else (0, 0)
    moved = np.arange(behind, len(offset))
    for probe in sorted({behind, (behind + len(offset)) // 2, len(offset) - 1} & set(moved.tolist())):
        beside = moved[max(min(probe - behind, len(moved) - _IN_A_ROW), 0) :][:_IN_A_ROW].tolist()
        found = []
        for at in _frames(archive, begin, int(length[probe])):
            shift = int(offset[probe]) - at
            apart = offset[beside[0]] - shift >= begin
            if len(beside) > 1 and shift and apart and all(reads(row, shift) for row in beside):
                found.append(shift)
            if len(found) > 1:
                return
        if found:
            yield found[0]
            return


def _frames(archive: Archive, begin: int, length: int) -> Iterator[int]:
    """Where frames of a length begin, from a place on; not more than are tried."""
    tried = 0
    if not 0 < length <= _MOST_PROBED_BYTES:
        return
    for at in range(begin, archive.size_bytes - length + 1, _SEARCHED_BYTES):
        data = archive.read(at, min(_SEARCHED_BYTES - 1 + length, archive.size_bytes - at))
        for place in frames_of_length(data, length).tolist():
            yield at + place
            tried += 1
            if tried == _MOST_TRIED:
                return


def _first_moved(
    archive: Archive,
    ends: NDArray[np.int64],
    rows: NDArray[np.int64],
    length: NDArray[np.int64],
    shift: int,
    reads: _Reads,
) -> int:
    """The first of these that can be read so far from its place, as those behind it; the number of all if none can.

    Those that are all of one length may be others that no document names, if such lie behind the last that one does.
    """
    there = [int(row) for row in rows if reads(int(row), shift)]
    if not np.ptp(length[there or [0]]) and _is_frames(archive, int(ends.max())):
        return len(ends)
    first = next((row for row in there if set(rows[rows >= row][:_IN_A_ROW].tolist()) <= set(there)), len(ends))
    torn = rows[rows < first]  # the bytes that are missing are of these, or came into one
    fits = len(torn) < _IN_A_ROW or ends[torn[-1]] - length[torn[-1]] - ends[torn[0]] <= max(shift, 0)
    return first if fits else len(ends)


def _is_frames(archive: Archive, at: int) -> bool:
    """Whether frames lie here, up to the archive's end or some in a row."""
    for number in range(_IN_A_ROW):
        if at >= archive.size_bytes:
            return number > 0 and at == archive.size_bytes
        try:
            end = frame_end(archive.read(at, min(_MOST_PROBED_BYTES, archive.size_bytes - at)))
        except DataError:
            return False
        if end is None:
            return False
        at += end
    return True


def _may_have_moved(offset: NDArray[np.int64], here: NDArray[np.bool_], shift: int) -> bool:
    """Whether bytes may have come in where none that can be read begins, but one that cannot; any may be missing."""
    kept = np.flatnonzero(here)
    apart = np.diff(offset[kept], prepend=0) >= -shift
    return shift > 0 or bool((apart & (np.diff(kept, prepend=-1) > 1)).any())


def _is_one(offset: NDArray[np.int64], length: NDArray[np.int64], shift: int) -> NDArray[np.bool_]:
    """Which records would be taken for another one of the same length where they are so far from their places."""
    at = np.minimum(np.searchsorted(offset, offset + shift), len(offset) - 1)
    found: NDArray[np.bool_] = (offset[at] == offset + shift) & (length[at] == length)
    return found
