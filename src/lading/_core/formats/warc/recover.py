"""Recover the whole records of a damaged WARC file: where no record can be read, the next one is looked for."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from lading._core.formats.base import Recovered, ShardFile
from lading._core.formats.text_lines import MAX_TOLD, laid_end_to_end
from lading._core.media.warc import RecordSource, read_record
from lading.errors import DataError, LadingError, without_frames

__all__ = ["recover_records"]

_BEGIN = re.compile(rb"\nWARC/[0-9]\.")
_BEGIN_BYTES = 8


class _Mapped:
    """A map, as `RecordSource` reads it."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self.size_bytes = data.data, len(data)

    def read(self, offset: int, length: int, /) -> memoryview:
        """Return exactly these bytes."""
        return self._data[offset : offset + length]


def recover_records(data: NDArray[np.uint8], file: ShardFile) -> Recovered | None:
    """Return the whole records of an unpacked file, one after another; None if all are whole."""
    mapped = _Mapped(data)
    kept: list[tuple[int, int]] = []
    lost: list[LadingError] = []
    at = num_lost = 0
    while at < len(data):
        if data[at] in b"\r\n":
            at += 1
            continue
        source = RecordSource(mapped, at)
        try:
            read_record(source, file.limits)
        except DataError as error:
            error.offset = at
            num_lost += 1
            lost += [without_frames(error.at(file=file.path))] if num_lost <= MAX_TOLD else []
            at = _next_record(data, at + 1)
        else:
            kept.append((at, source.taken))
            at += source.taken
    if not num_lost:
        return None
    offset, length = np.array(kept, np.int64).reshape(-1, 2).T
    return laid_end_to_end(offset, length, len(data), lost, num_lost)


def _next_record(data: NDArray[np.uint8], at: int) -> int:
    """Return the next place at which a line begins as a record does, or the end of the file."""
    whole = data.data
    step = 4 << 20
    while at < len(data):
        found = _BEGIN.search(whole[at : at + step + _BEGIN_BYTES - 1])
        if found is not None:
            return at + found.start() + 1
        at += step
    return len(data)
