"""Recover the samples of a damaged MDS shard.

    uint32 n, uint32 offset[n + 1], JSON of the columns, samples

A sample begins with the sizes of its values. They add up to the distance between two offsets: then the sample is at its
place. Without it, the sample is lost. The number of samples and the columns are known by the head, or by an index.

If bytes are missing from the file or came into it, the samples before that place are whole, up to the last one, whose
values may be hit. All others are lost. Samples of one fixed size do not tell where the place is: all are lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from lading._core.formats.base import Recovered, ShardFile
from lading._core.formats.mds.index import MDSColumn, MDSEntry, parse_config, parse_entry, tells_columns
from lading._core.storage.base import MappedFile
from lading.errors import CorruptShard, DataError, LadingError, errors_at
from lading.limits import Limits

__all__ = ["recover_samples"]

_NUMBER_BYTES = 4
_MAX_JSON_BYTES = 1 << 20
_FIT_SAMPLES = 64 << 10
"""Samples that are checked together."""


def recover_samples(mapped: MappedFile, source: ShardFile) -> Recovered | None:
    """Return the samples that are at their places; None if the head is sound and the file has its size.

    Raises:
        DataError: nothing tells the columns, or where samples lie.
    """
    with errors_at(file=source.path):
        entry = parse_entry(source.entry, source.limits) if source.entry else None
        view = memoryview(mapped.buffer)
        data = np.frombuffer(view, np.uint8) if view.nbytes else np.zeros(0, np.uint8)
        head = _read_head(data, entry, source.limits)
        samples = _Samples(data, head.columns, head.count)
        moved = (int(head.offset[-1]) if entry is None else entry.raw.size_bytes) - len(data)
        there = samples.fits(head.offset)
        if moved:
            there = samples.before_move(there, head.offset)
        elif head.is_sound and there.all():
            return None
    offset = head.offset if moved else _rising(head.offset, there, len(data))
    return _laid_out(head, offset, there, moved, source.path)


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a shard.

    Attributes:
        count: number of samples.
        offset: where each sample begins and the last one ends, as the head says.
        columns: the columns.
        json: their JSON; empty if it is damaged.
        is_sound: whether count and JSON are sound.
    """

    count: int
    offset: NDArray[np.int64]
    columns: Sequence[MDSColumn]
    json: bytes
    is_sound: bool


def _read_head(data: NDArray[np.uint8], entry: MDSEntry | None, limits: Limits) -> _Head:
    """Return the head, with the columns of the index if there is one.

    Raises:
        CorruptShard: nothing tells the columns.
    """
    stated = int(data[:_NUMBER_BYTES].view("<u4")[0]) if len(data) >= _NUMBER_BYTES else 0
    count = stated if entry is None else entry.samples
    text = _json_at(data, _NUMBER_BYTES * (count + 2), entry, limits)
    if entry is None and not text:
        raise CorruptShard("the JSON of the columns is damaged, and no index has them", offset=0,
                           advice="Open the shard by its index.json, if there is one.")  # fmt: skip
    end = _NUMBER_BYTES * (count + 2)
    if end > len(data):
        raise CorruptShard("the file ends in its head", offset=len(data), expected=f"the places of {count} samples")
    columns = entry.config.columns if entry is not None else parse_config(orjson.loads(text), limits=limits).columns
    offset = np.zeros(count + 1, np.int64)
    offset[:] = data[_NUMBER_BYTES:end].view("<u4")
    return _Head(count, offset, columns, text, bool(text) and stated == count)


def _json_at(data: NDArray[np.uint8], start: int, entry: MDSEntry | None, limits: Limits) -> bytes:
    """Return the JSON of the columns that begins here; empty if it is damaged, or has other columns than the index."""
    text = data[start : start + _MAX_JSON_BYTES].tobytes()
    with suppress(ValueError, RecursionError, DataError, AttributeError):
        _, size = json.JSONDecoder().raw_decode(text.decode("latin-1"))
        found = orjson.loads(text[:size])
        if entry is not None and isinstance(found, dict) and not tells_columns(found):
            return text[:size]
        config = parse_config(found, limits=limits)
        if entry is None or config == entry.config:
            return text[:size]
    return b""


class _Samples:
    """The samples of a shard, by the sizes of their values.

    Args:
        data: the file.
        columns: the columns.
        count: number of samples.
    """

    def __init__(self, data: NDArray[np.uint8], columns: Sequence[MDSColumn], count: int) -> None:
        self._data, self._count = data, count
        self._varying = sum(column.size is None for column in columns)
        self._fixed = sum(column.size or 0 for column in columns) + _NUMBER_BYTES * self._varying

    def fits(self, offset: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which samples have the sizes that these offsets tell; the last one may end behind the file."""
        width = _NUMBER_BYTES * self._varying
        # The numbers that begin at every byte of the file. Only those that are looked at are made.
        numbers = np.ndarray(max(len(self._data) - _NUMBER_BYTES + 1, 0), "<u4", self._data, strides=(1,))
        fits = np.zeros(self._count, np.bool_)
        for first in range(0, self._count, _FIT_SAMPLES):
            start = offset[first : first + _FIT_SAMPLES + 1]
            length, start = np.diff(start), start[:-1]
            inside = (start > 0) & (start + width <= len(self._data)) & (length >= self._fixed)
            rows, sizes = np.flatnonzero(inside), np.full(int(inside.sum()), self._fixed)
            for number in range(self._varying):
                sizes += numbers[start[rows] + _NUMBER_BYTES * number]
            fits[first + rows] = sizes == length[rows]
        return fits

    def before_move(self, there: NDArray[np.bool_], offset: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which samples are before the place where bytes are missing or came in.

        Samples without a byte in values of varying size fit anywhere: they do not count.

        Raises:
            CorruptShard: nothing tells.
        """
        if not self._varying:
            raise CorruptShard("bytes are missing or came in, and samples of one size do not tell where",
                               expected=f"{int(offset[-1])} bytes", found=f"{len(self._data)} bytes")  # fmt: skip
        leading = len(there) if there.all() else int(np.argmin(there))
        telling = np.flatnonzero(np.diff(offset)[:leading] > self._fixed)
        last = int(telling[-1]) if len(telling) else 0
        found: NDArray[np.bool_] = np.arange(len(there)) < last
        return found


def _laid_out(head: _Head, offset: NDArray[np.int64], there: NDArray[np.bool_], moved: int, path: str) -> Recovered:
    """Return the file with its head made anew; the samples that are not there are holes."""
    rows = np.flatnonzero(there)
    start, length = offset[rows], np.diff(offset)[rows]
    made = np.concatenate([[head.count], offset]).astype("<u4").tobytes() + head.json
    size = max(int(offset[-1]), len(made), int((start + length).max(initial=0)))
    what = "a sample is not at its place"
    if moved:
        what = f"bytes {'are missing' if moved > 0 else 'were inserted'} here or before"
    lost: list[LadingError] = [
        CorruptShard(what, file=path, row=row, offset=int(offset[row])) for row in np.flatnonzero(~there).tolist()
    ]
    if not head.is_sound:
        lost.insert(0, CorruptShard("the head is damaged; it was made anew", file=path, offset=0,
                                    expected=f"the places of {head.count} samples"))  # fmt: skip
    return Recovered(start, start, length, size, [(0, made)], np.flatnonzero(~there), lost)


def _rising(offset: NDArray[np.int64], there: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Return the offsets in a file of its size; those next to no whole sample are that of the sound one before."""
    sound = np.append(there, False) | np.append(False, there)
    found = offset[np.maximum.accumulate(np.where(sound, np.arange(len(offset)), int(np.argmax(sound))))]
    found[-1] = offset[-1] if sound[-1] else size
    return found
