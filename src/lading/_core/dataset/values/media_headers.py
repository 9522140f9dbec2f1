"""Facts of media columns: headers by small ranges, those of many files together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import FileEntry, Refs, files_of, is_ref, make_refs, unpack
from lading._core.arrow.views import slices
from lading._core.content.field_paths import FieldPath
from lading._core.content.image import usual_sizes
from lading._core.content.media_info import MediaBytes, MediaInfo, Needed, media_info, probe
from lading._core.content.nested import plain, value_at
from lading._core.storage.fetch import Fetcher, value_bounds

__all__ = ["media_facts"]

_MEDIA_ROWS = 1024
_MOST_ROUNDS = 12
_HEAD_BYTES = 512
_PART_BYTES = 32 << 20
_ALL = 1 << 40


def media_facts(column: pa.Array, schema: pa.Schema, fetcher: Fetcher) -> list[MediaInfo | None]:
    """Return what the headers of media say, one a row; None where there is no value, or an unknown one.

    Args:
        column: references, bytes, or Hugging Face's structs of bytes and path.
        schema: of the column's batch, with its files table.
        fetcher: reads the first bytes behind references.
    """
    column = plain(column)
    if pa.types.is_struct(column.type):
        column = plain(value_at(column, FieldPath("", ("bytes",))))
    if not is_ref(column.type):
        return [None if data is None else media_info(data) for data in slices(column)]
    refs, files = unpack(column), files_of(schema)
    found: list[MediaInfo | None] = [None] * len(column)
    headers = _Headers(refs, files, fetcher)
    for first in range(0, len(column), _MEDIA_ROWS):
        rows = first + np.flatnonzero(refs.valid[first : first + _MEDIA_ROWS])
        for row, info in headers.of(rows):
            found[row] = info
    return found


class _Headers:
    """Reads facts of media behind references: the first bytes of all, then the ranges that some need further."""

    def __init__(self, refs: Refs, files: Sequence[FileEntry], fetcher: Fetcher) -> None:
        self._refs, self._files, self._fetcher = refs, files, fetcher
        whole = (refs.length == -1) & (refs.offset == 0)  # a reference to a file
        of_file = np.array([each.size_bytes for each in files] or [-1], np.int64)
        length = np.where(whole, of_file[np.where(refs.valid, refs.file, 0).clip(0, len(of_file) - 1)], refs.length)
        self._size = np.where((refs.codec == 0) & (refs.frame < 0), length, -1)

    def of(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, MediaInfo | None]]:
        """Yield rows and their facts; rows whose bytes are unavailable or unknown are left out."""
        plain = self._size[rows] >= 0
        for row, data in self._read(rows[~plain], None):  # has to be unpacked whole
            yield row, media_info(data)
        left = rows[plain]
        asked = {
            row: Needed(0, min(_HEAD_BYTES, size))
            for row, size in zip(left.tolist(), self._size[left].tolist(), strict=True)
        }
        known = dict[int, MediaBytes]()
        for number in range(_MOST_ROUNDS):
            more = {}
            found = self._read(np.array(list(asked), np.int64), list(asked.values()))
            if number == 0:
                usual, found = _usual_images(list(found))
                yield from usual
            for row, data in found:
                if row in known:
                    known[row].add(asked[row].offset, data)
                mine = known.setdefault(row, MediaBytes(data, int(self._size[row])))
                info = probe(mine)
                if isinstance(info, Needed):
                    more[row] = info
                    continue
                del known[row]
                yield row, info
            asked = more

    def _read(
        self, rows: NDArray[np.int64], asked: Sequence[Needed] | None
    ) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yield the bytes of ranges of values, or of whole values; those that are unavailable are left out."""
        refs = self._refs
        offset, length = refs.offset[rows], refs.length[rows]
        if asked is not None:
            offset = offset + np.array([each.offset for each in asked], np.int64)
            length = np.array([each.length for each in asked], np.int64)
        places = make_refs(offset, length, file=refs.file[rows], codec=refs.codec[rows], frame=refs.frame[rows],
                           member=refs.member.take(pa.array(rows)))  # fmt: skip
        for first, stop in value_bounds(length.clip(0), _PART_BYTES):
            heads = self._fetcher.heads(places.slice(first, stop - first), self._files, None if asked is None else _ALL)
            for row, data in zip(rows[first:stop].tolist(), heads, strict=True):
                if data is not None:
                    yield row, data


_Head: TypeAlias = tuple[int, bytes | memoryview]


def _usual_images(heads: list[_Head]) -> tuple[Iterator[tuple[int, MediaInfo]], Iterator[_Head]]:
    """Return the facts of ordinary JPEG and PNG images, found for many of them at once, and the other heads."""
    whole = [(row, data) for row, data in heads if len(data) == _HEAD_BYTES]
    if not whole:
        return iter(()), iter(heads)
    matrix = np.frombuffer(b"".join([data for _, data in whole]), np.uint8).reshape(-1, _HEAD_BYTES)
    width, height = usual_sizes(matrix).tolist()
    found = {
        row: MediaInfo("image", "jpeg" if jpeg else "png", w, h, 1 if jpeg else None, stored_width=w, stored_height=h,
                       orientation=1)
        for (row, _), w, h, jpeg in zip(whole, width, height, (matrix[:, 0] == _JPEG).tolist(), strict=True)
        if w > 0
    }  # fmt: skip
    return iter(found.items()), ((row, data) for row, data in heads if row not in found)


_JPEG = 0xFF
"""The first byte of JPEG files."""
