"""Bytes of remote files that a walk over headers has read, for the fetch that follows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import Buffer
from lading._core.arrow.references import FileEntry
from lading._core.storage.fetch_plan import FetchPlan

__all__ = ["SPARE_BYTES", "RecentBytes"]

Ask: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], tuple[FetchPlan, list[pa.Buffer]]]
"""Read ranges of a file by offset and length: return the plan of the requests, and their answers."""

SPARE_BYTES = 16 << 20
"""Bytes of two large windows of a walk: it may be so far ahead of the batch that is fetched."""
_MOST_PARTS = 64
"""A range whose held beginning is a smaller part of it is read whole: to join the two copies it."""


class RecentBytes:
    """The latest windows of files that were read forward. Threads may share it.

    Attributes:
        most_bytes: windows are dropped, the oldest first, while all together are longer.
    """

    def __init__(self) -> None:
        self.most_bytes = SPARE_BYTES
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

    def read(
        self, file: FileEntry, offset: NDArray[np.int64], length: NDArray[np.int64], ask: Ask
    ) -> tuple[NDArray[np.int32], NDArray[np.int64], list[pa.Buffer]]:
        """Return the buffer of each range of a file and its start there, and the buffers.

        `ask` reads what the windows do not hold. A range that is held in parts gets a buffer of its own.
        """
        buffers, which, start, begins = self._find(file, offset, length)
        more = which < 0
        if not more.any():
            return which, start, buffers
        rest = length.copy()
        for row, parts in begins.items():
            rest[row] -= sum(part.size for part in parts)
        if buffers and int(rest[more].sum()) > SPARE_BYTES:
            self.clear(but_last=True)  # else both the windows and the answers are in memory
        plan, answers = ask((offset + length - rest)[more], rest[more])
        which[more], start[more] = len(buffers) + plan.request_of, plan.offset_in
        buffers += answers
        for row, parts in begins.items():
            parts.append(buffers[which[row]].slice(int(start[row]), int(rest[row])))
            which[row], start[row] = len(buffers), 0
            buffers.append(pa.py_buffer(b"".join(parts)))
        return which, start, buffers

    def _find(
        self, file: FileEntry, offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> tuple[list[pa.Buffer], NDArray[np.int32], NDArray[np.int64], dict[int, list[pa.Buffer]]]:
        """Return buffers with ranges; the buffer of each range (−1: not held whole) and its start there.

        Also return, by number of a range of which a good part is held, the bytes that it begins with.
        """
        with self._lock:
            mine = [(start, data) for other, start, data in self._windows if other == file]
        which, start_in = np.full(len(offset), -1, np.int32), np.zeros(len(offset), np.int64)
        begins: dict[int, list[pa.Buffer]] = {}
        if not mine:
            return [], which, start_in, begins
        starts = np.array([start for start, _ in mine])
        stops = starts + [data.size for _, data in mine]
        owner = np.searchsorted(starts, offset, "right") - 1
        begun = (owner >= 0) & (offset <= stops[owner])
        inside = begun & (offset + length <= stops[owner])
        which[inside], start_in[inside] = owner[inside], (offset - starts[owner])[inside]
        buffers = [data for _, data in mine]
        for row in np.flatnonzero(begun & ~inside).tolist():  # at most one a window, or what is not held
            size = int(length[row])
            parts = _beginning(mine[int(owner[row]) :], int(offset[row]), size)
            if sum(part.size for part in parts) == size:
                which[row] = len(buffers)
                buffers.append(pa.py_buffer(b"".join(parts)))
            elif _MOST_PARTS * sum(part.size for part in parts) >= size:
                begins[row] = parts
        used, which[which >= 0] = np.unique(which[which >= 0], return_inverse=True)
        return [buffers[number] for number in used.tolist()], which, start_in, begins


def _beginning(windows: list[tuple[int, pa.Buffer]], at: int, size: int) -> list[pa.Buffer]:
    """Return the bytes of a range that begins in the first of these windows, up to the first byte that is not held."""
    parts, stop = list[pa.Buffer](), at + size
    for start, data in windows:
        if not start <= at < min(start + data.size, stop):
            break
        parts.append(data.slice(at - start, min(stop - start, data.size) - (at - start)))
        at += parts[-1].size
    return parts
