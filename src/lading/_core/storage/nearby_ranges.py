"""Read small ranges of a remote file together with the bytes near them, which are often wanted next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.storage.base import Buffer, Store
from lading._core.storage.fetch_plan import GAPS_A_REQUEST, plan_ranges

__all__ = ["NearbyRanges"]

_NEAR_BYTES = 2 << 10
"""Bytes that are read before and behind each range."""
_MAX_REQUEST_BYTES = 64 << 20


class NearbyRanges:
    """Ranges of a remote file. All bytes that were read are held, and not read again.

    Args:
        store: the store of the file.
        read: reads ranges of the file.
        start: first byte that may be read.
        stop: end of these bytes.
    """

    def __init__(
        self, store: Store, read: Callable[[Sequence[tuple[int, int]]], Sequence[Buffer]], start: int, stop: int
    ) -> None:
        self._read, self._start, self._stop = read, start, stop
        self._gap = store.request_bytes // GAPS_A_REQUEST
        self._data: pa.Buffer = pa.py_buffer(b"")
        self._windows = np.zeros((3, 0), np.int64)

    def find(self, offset: NDArray[np.int64], length: NDArray[np.int64]) -> tuple[pa.Buffer, NDArray[np.int64]]:
        """Return memory with all ranges, and the start of each range there. Ranges that are not held are read."""
        held, place = self._held(offset, length)
        rows = np.flatnonzero(~held & (length > 0))
        if not len(rows):
            return self._data, place
        first = np.maximum(offset[rows] - _NEAR_BYTES, min(self._start, int(offset[rows].min())))
        last = np.minimum(
            offset[rows] + length[rows] + _NEAR_BYTES, max(self._stop, int((offset + length)[rows].max()))
        )
        plan = plan_ranges(first, last - first, max_gap_bytes=self._gap, max_request_bytes=_MAX_REQUEST_BYTES)
        parts = [pa.py_buffer(part) for part in self._read(plan.requests)]
        begins = self._data.size + np.cumsum(plan.length) - plan.length
        place[rows] = begins[plan.request_of] + plan.offset_in + offset[rows] - first
        alone = not self._data.size and len(parts) == 1
        self._data = parts[0] if alone else pa.py_buffer(b"".join(map(memoryview, [self._data, *parts])))
        windows = np.concatenate([self._windows, [plan.offset, plan.offset + plan.length, begins]], axis=1)
        self._windows = windows[:, np.argsort(windows[0], kind="stable")]
        return self._data, place

    @property
    def held_bytes(self) -> int:
        """Return the number of bytes that are held."""
        return int(self._data.size)

    def _held(
        self, offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which ranges are held, and the start of each of them in memory."""
        starts, stops, begins = self._windows
        if not len(starts):
            return np.zeros(len(offset), np.bool_), np.zeros(len(offset), np.int64)
        owner = np.maximum(np.searchsorted(starts, offset, "right") - 1, 0)
        held = (starts[owner] <= offset) & (offset + length <= stops[owner])
        return held, np.where(held, begins[owner] + offset - starts[owner], 0)
