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


def resync_archives(reader: MediaArchiveReader) -> dict[str, tuple[str, Remains | None]]:
    """Archives by the path that documents give them: where they lie, and how to lay out those that were cut.

    Empty where none was.

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
        found[path] = archive.name, _laid_out(reader, path, offset, length, shift, archive.size_bytes)
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

    def moved(row: int) -> bool:
        at = int(offset[row]) - shift
        try:
            place = {"path": path, "offset": at, "length": int(length[row])}
            return at >= 0 and reader.media.read_media_record(place) is not None
        except DataError:
            return False

    first = bisect_left(range(len(offset)), x=True, key=moved)
    if first == len(offset):
        return None
    place = int(offset[first])
    now = place - shift
    what = "are missing from" if shift > 0 else "came into"
    lost = [
        CorruptShard(f"bytes {what} the archive before this one", file=path, offset=now, found=f"{abs(shift)} bytes")
    ]
    return Remains(
        np.array([0, now]), np.array([0, place]), np.array([min(now, place), size_bytes - now]), size_bytes + shift,
        lost=lost,
    )  # fmt: skip
