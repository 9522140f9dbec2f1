"""Find the documents whose media records are surely theirs, in archives that bytes are missing from or came into.

Documents tell where each record lies. If an archive ends before its last record, bytes are missing; then the records
behind that place may be those of other documents. A record is certain if it can be read at its place, if nothing can be
read there so many bytes earlier, and if this holds for all records before it and for the next one. An archive that is
longer may hold records that no document names, unless its unreadable records leave room for the further bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading._core.content.documents import PLACE, media_parts
from lading._core.formats.base import Scan
from lading._core.formats.media_archive.reader import MediaArchiveReader
from lading.errors import CorruptShard, DataError, LadingError

__all__ = ["doubtful_documents"]

_MAX_ROWS, _MAX_BYTES = 4096, 8 << 20


def doubtful_documents(reader: MediaArchiveReader, path: str) -> tuple[NDArray[np.int64], list[LadingError]]:
    """Return the rows of documents whose records may be those of others, and an error for each archive.

    Raises:
        DataError: the documents cannot be read.
    """
    lost: list[LadingError] = []
    rows = [np.zeros(0, np.int64)]
    for name, records in _records(reader).items():
        try:
            archive = reader.media.archive(name)
        except DataError:
            continue  # no record of it can be read
        row, offset, length = records[:, np.argsort(records[1], kind="stable")]
        certain = _are_certain(reader, name, archive.size_bytes, offset, length)
        if not certain.all():
            rows.append(row[~certain])
            first, end = int(offset[~certain].min()), int((offset + length).max())
            what = f"records from byte {first} of {name} on may be those of other documents"
            lost.append(CorruptShard(what, file=path, expected=f"an archive of {end} bytes",
                                     found=f"{archive.size_bytes} bytes"))  # fmt: skip
    return np.unique(np.concatenate(rows)), lost


def _records(reader: MediaArchiveReader) -> dict[str, NDArray[np.int64]]:
    """Return, by archive, row of the document, offset and length of all records that have both."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    first = 0
    for batch in reader.located(Scan(["media"], max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES)):
        if "media" in batch.schema.names:
            items, bounds = media_parts(batch.column("media"))
            row = first + np.repeat(np.arange(batch.num_rows), np.diff(bounds))
            paths = items.field(PLACE[0]).dictionary_encode()
            which = paths.indices.fill_null(-1).to_numpy()
            offset, length = (items.field(name).fill_null(-1).to_numpy().astype(np.int64) for name in PLACE[1:])
            records = np.stack([row, offset, length])
            for number, name in enumerate(paths.dictionary.to_pylist()):
                mine = records[:, (which == number) & (offset >= 0) & (length >= 0)]
                found.setdefault(name, []).append(mine)
        first += batch.num_rows
    joined = {name: np.concatenate(parts, axis=1) for name, parts in found.items()}
    return {name: records for name, records in joined.items() if records.size}


def _are_certain(
    reader: MediaArchiveReader, name: str, size_bytes: int, offset: NDArray[np.int64], length: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which records of an archive, by ascending offset, are not those of other documents."""

    def read(by_bytes: int) -> NDArray[np.bool_]:
        """Return which records can be read so many bytes before their places."""
        return np.array([_reads(reader, name, at - by_bytes, size) for at, size in zip(offset, length, strict=True)])

    missing, here = int((offset + length).max()) - size_bytes, read(0)
    # Bytes of unreadable records that follow each other: further bytes need that room.
    runs = np.split(np.where(here, 0, length), np.flatnonzero(here))
    if here.all() or not missing or (missing < 0 and max(int(run.sum()) for run in runs) < -missing):
        return np.ones(len(here), np.bool_)
    good = here & ~read(missing)
    leading = len(good) if good.all() else int(np.argmin(good))
    certain: NDArray[np.bool_] = np.arange(len(good)) < leading - 1
    return certain


def _reads(reader: MediaArchiveReader, name: str, offset: int, length: int) -> bool:
    """Return whether a record can be read."""
    try:
        place = {"path": name, "offset": int(offset), "length": int(length)}
        return offset >= 0 and reader.media.read_media_record(place) is not None
    except DataError:
        return False
