"""Bytes of remote files that a walk over headers has read, for the fetch that follows it."""

from __future__ import annotations

from collections import deque
from threading import Lock

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.byte_ranges import Buffer
from lading.arrow.references import FileEntry

__all__ = ["SPARE_BYTES", "RecentBytes"]

SPARE_BYTES = 16 << 20
"""Bytes of two large windows of a walk: it may be so far ahead of the batch that is fetched."""


class RecentBytes:
    """The latest windows of files that were read forward. Threads may share it.

    Attributes:
        most_bytes: windows are dropped, the oldest first, while all together are longer.
    """

    def __init__(self) -> None:
        self.most_bytes = 0
        self._windows: deque[tuple[FileEntry, int, pa.Buffer]] = deque()
        self._size = 0
        self._lock = Lock()

    def add(self, file: FileEntry, start: int, data: Buffer) -> None:
        """Take a window of a file. A window that starts before the last one of its file begins a new pass."""
        with self._lock:
            if any(file == other and start <= at for other, at, _ in self._windows):
                self._keep([window for window in self._windows if window[0] != file])
            self._windows.append((file, start, pa.py_buffer(data)))
            self._size += len(data)
            while self._size > self.most_bytes and len(self._windows) > 1:
                self._size -= self._windows.popleft()[2].size

    def clear(self, *, but_last: bool = False) -> None:
        """Drop all windows; with `but_last`, all but the last one."""
        with self._lock:
            self._keep(list(self._windows)[-1:] if but_last else [])

    def _keep(self, windows: list[tuple[FileEntry, int, pa.Buffer]]) -> None:
        self._windows = deque(windows)
        self._size = sum(data.size for *_, data in windows)

    def find(
        self, file: FileEntry, offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> tuple[list[pa.Buffer], NDArray[np.int32], NDArray[np.int64]]:
        """Return buffers, the buffer that holds each range or −1, and the start of each range in its buffer.

        A range that windows hold in parts gets a buffer of its own.
        """
        with self._lock:
            mine = [(start, data) for other, start, data in self._windows if other == file]
        which, start_in = np.full(len(offset), -1, np.int32), np.zeros(len(offset), np.int64)
        if not mine:
            return [], which, start_in
        starts = np.array([start for start, _ in mine])
        stops = starts + [data.size for _, data in mine]
        owner = np.searchsorted(starts, offset, "right") - 1
        begun = (owner >= 0) & (offset <= stops[owner])
        inside = begun & (offset + length <= stops[owner])
        which[inside], start_in[inside] = owner[inside], (offset - starts[owner])[inside]
        buffers = [data for _, data in mine]
        for row in np.flatnonzero(begun & ~inside).tolist():  # at most one a window, or what is not held
            value = _across(mine[int(owner[row]) :], int(offset[row]), int(offset[row] + length[row]))
            if value is not None:
                which[row] = len(buffers)
                buffers.append(value)
        used, which[which >= 0] = np.unique(which[which >= 0], return_inverse=True)
        return [buffers[number] for number in used.tolist()], which, start_in


def _across(windows: list[tuple[int, pa.Buffer]], at: int, stop: int) -> pa.Buffer | None:
    """Return the bytes of a range that begins in the first of these windows; None if some are not held."""
    parts = []
    for start, data in windows:
        if not start <= at <= start + data.size:
            break
        parts.append(data.slice(at - start, min(stop - start, data.size) - (at - start)))
        at += parts[-1].size
        if at == stop:
            return pa.py_buffer(b"".join(parts))
    return None
