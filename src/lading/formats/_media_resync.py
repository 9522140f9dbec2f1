"""What is left of media archives that were cut, or that bytes came into: each record where the documents say.

The documents say where records lie, and so where their archive should end. If it ends earlier, so many bytes are
missing, and the records behind the cut lie so much earlier: the first that unpacks there says where. So it is with
bytes too many, and later.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lading.errors import CorruptShard, DataError
from lading.formats._media_documents import PLACE, media_parts
from lading.formats._media_read import MediaArchiveReader
from lading.formats.protocol import Remains

__all__ = ["resync_archives"]

_MAX_ROWS, _MAX_BYTES = 4096, 8 << 20


def resync_archives(reader: MediaArchiveReader, known: Mapping[str, Remains]) -> dict[str, tuple[str, Remains | None]]:
    """Archives by the path that documents give them: where they lie, and how to lay out those that were cut.

    Empty where none was. Those that are `known`, by their paths, are laid out so.

    Raises:
        DataError: the documents cannot be read.
    """
    found: dict[str, tuple[str, Remains | None]] = {}
    for path, (offset, length) in _records(reader).items():
        if os.path.isabs(path) or "://" in path:
            continue
        try:
            archive = reader.media.archive(path)
        except DataError:
            continue
        shift = int((offset + length).max()) - archive.size_bytes
        told = known.get(archive.name)
        found[path] = archive.name, told or _laid_out(reader, path, offset, length, shift, archive.size_bytes)
    return found if any(remains is not None for _, remains in found.values()) else {}


def _records(reader: MediaArchiveReader) -> Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Offset and length of all records that tell both, by path, by ascending offset."""
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for batch in reader.located(max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES, columns=["media"]):
        items, _ = media_parts(batch.column("media")) if "media" in batch.schema.names else (None, None)
        if items is None:
            continue
        paths = items.field(PLACE[0]).dictionary_encode()
        which = paths.indices.fill_null(-1).to_numpy()
        offset, length = (items.field(name).fill_null(-1).to_numpy().astype(np.int64) for name in PLACE[1:])
        for number, path in enumerate(paths.dictionary.to_pylist()):
            mine = (which == number) & (offset >= 0) & (length >= 0)
            parts.setdefault(path, []).append(np.stack([offset[mine], length[mine]]))
    joined = {path: np.unique(np.concatenate(found, axis=1), axis=1) for path, found in parts.items()}
    return {path: (places[0], places[1]) for path, places in joined.items() if places.size}


def _laid_out(
    reader: MediaArchiveReader,
    path: str,
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    shift: int,
    size_bytes: int,
) -> Remains | None:
    """The archive with the records that have moved at their places; None if none has."""
    if not shift or reader.options.archives != "zstd":
        return None

    def moved(row: np.int64) -> bool:
        at = int(offset[row]) - shift
        try:
            place = {"path": path, "offset": at, "length": int(length[row])}
            return at >= 0 and reader.media.read_media_record(place) is not None
        except DataError:
            return False

    in_doubt = _is_one(offset, length, -shift) | _is_one(offset, length, shift)
    sure = np.append(np.flatnonzero(~in_doubt), len(offset))
    at = bisect_left(sure[:-1], x=True, key=moved)
    behind, first = int(sure[at - 1]) + 1 if at else 0, int(sure[at])  # of those that have not moved; that has moved
    doubts = int(np.count_nonzero(in_doubt[behind:first]))
    if first == len(offset) and not doubts:
        return None
    place = int(offset[first]) if first < len(offset) else size_bytes + shift
    now = place - shift
    # The cut ends in the last that has not moved, or bytes came in there. What they touch may be read all the same.
    ends = offset + length
    kept = int(max(ends[ends <= int(offset[behind - 1]) - max(shift, 0)], default=0)) if behind else 0
    found = f"{abs(shift)} bytes"
    if doubts:
        found += f", as long as records are: nobody can tell which is which of {doubts} before it"
    what = "are missing from" if shift > 0 else "came into"
    lost = [CorruptShard(f"bytes {what} the archive before this one", file=path, offset=now, found=found)]
    return Remains(
        np.array([0, now]), np.array([0, place]), np.array([kept, size_bytes - now]),
        size_bytes + shift, lost=lost,
    )  # fmt: skip


def _is_one(offset: NDArray[np.int64], length: NDArray[np.int64], shift: int) -> NDArray[np.bool_]:
    """Which records would be taken for another one of the same length where they are so far from their places."""
    at = np.minimum(np.searchsorted(offset, offset + shift), len(offset) - 1)
    found: NDArray[np.bool_] = (offset[at] == offset + shift) & (length[at] == length)
    return found
