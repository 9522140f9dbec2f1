"""Read ranges of one file: neighbours in one request, ahead of what comes, and held within a bound of the process.

What may be wanted again is held: 64 MiB of all remote files together, or the last answers of one of them. The reader
that did not read for the longest time forgets it. What is in use is held besides, and bounded by its user: the window
of a file that is read forward, what the body of a `with` expects, and the ranges of a batch (`RangeReader.within`).
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import TypeAlias
from weakref import ref

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import as_view, room_for
from lading._core.storage.base import Buffer, FileInfo, MappedFile, Mapper, OpenFile, Store
from lading._core.storage.fetch_plan import GAPS_A_REQUEST, plan_ranges
from lading._core.storage.threads import Threads
from lading._core.storage.traffic import ranges_of
from lading._core.storage.windows import BUFFER_BYTES, read_together
from lading.errors import UsageError

__all__ = ["MOST_HELD_BYTES", "NEAR_BYTES", "RangeReader"]

MOST_HELD_BYTES = 64 << 20
"""Bytes of remote files that the readers of a process hold for later reads."""
NEAR_BYTES = 2 << 10
"""Bytes that are read before and behind small ranges, because they are often wanted next."""
_MAX_REQUEST_BYTES = 64 << 20
_LOCAL_GAP_BYTES = 8 << 10
"""A gap in a local file that costs as much to read as another call."""
_MOST_WINDOWS = 3
"""Windows under way at once."""
_ALL_BYTES = 1 << 62


class RangeReader:
    """A file in the version that was seen: mapped, open, in memory, or read by range. Threads may share it.

    Args:
        store: the store of the file.
        path: its path in the store; also its name in errors.
        info: its size and version, if they are known.
        mmap: map the file, if the store can.
        data: the bytes of the file, if they are in memory already.

    Attributes:
        path: see above.
        size_bytes: size of the file.
        version: its version; empty if it is unknown.
        file: the file, if it is open, mapped or not.
        mapped: the file, if it is mapped.

    Raises:
        NotFound, StoreError: the file is missing, or is not a file.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        info: FileInfo | None = None,
        *,
        mmap: bool = False,
        data: pa.Buffer | None = None,
    ) -> None:
        self.path, self.version, self._store, self._data = path, "", store, data
        self.file: OpenFile | None = None
        self.mapped: MappedFile | None = None
        self._closed = False
        if data is not None:
            self.size_bytes = int(data.size)
        elif isinstance(store, Mapper):
            if mmap:
                self.file = self.mapped = store.map(path)
                self._data = self.mapped.buffer
            else:
                self.file = store.open_file(path)
            self.size_bytes = self.file.size_bytes
        else:
            known = store.head(path) if info is None else info
            self.size_bytes, self.version = known.size_bytes, known.version
        self._bounds, self._is_in_use = (0, self.size_bytes), False
        self._held, self._lock = _Held(), Lock()
        self._last = _Held()
        """What `read_on` read last."""
        self._expected: list[_Held] = []
        self._windows: deque[Future[Buffer]] = deque()
        """Windows that are under way, one behind the other."""
        self._window = 0, 0
        """Start of the first of them, and end of the last one."""
        self._threads: Threads | None = None
        self._process = os.getpid()

    def within(self, start: int, stop: int) -> RangeReader:
        """Return a reader of a remote file for ranges that are in use, such as those of a batch.

        It reads near bytes in these bounds alone, and holds what it read until it is dropped: other readers would read
        the ranges of a batch again for each column.
        """
        made = RangeReader(self._store, self.path, FileInfo(self.path, self.size_bytes, self.version))
        made._bounds, made._is_in_use = (start, stop), True
        return made

    @property
    def is_remote(self) -> bool:
        """Return whether the bytes are read by range."""
        return self.file is None and self._data is None

    @property
    def whole(self) -> pa.Buffer | None:
        """Return all bytes, if in memory or mapped. Raises UsageError if the reader was closed."""
        self.check_open()
        return self._data

    @property
    def held_bytes(self) -> int:
        """Return the bytes of a remote file that are held."""
        return self._held.nbytes

    @property
    def gap_bytes(self) -> int:
        """Return the bytes of a remote file that cost as much as another request next to others."""
        return self._store.request_bytes // GAPS_A_REQUEST

    def peek(self, offset: int, length: int) -> bytes:
        """Return the bytes of a small range; fewer at the end of a local file. A map is read, not touched.

        Raises:
            UsageError: the reader was closed.
            CorruptShard: the size of a local file has changed.
        """
        file = self.file
        if file is None:
            return bytes(self.read(offset, length))
        data = file.read(offset, length)
        file.check()
        return data

    def read(self, offset: int, length: int) -> pa.Buffer:
        """Return the bytes of a range inside the file. Raises as `peek`."""
        self.check_open()
        file, data = self.file, self._data  # another thread may close
        if file is not None:
            file.check()
        if data is not None:
            return data.slice(offset, length)
        if file is not None:
            data = room_for(length)
            file.read_into([as_view(data)], offset)
            return data
        held = self.held(offset, length)
        return pa.py_buffer(self.get_ranges([(offset, length)])[0]) if held is None else held

    def held(self, offset: int, length: int) -> pa.Buffer | None:
        """Return the bytes of a range of a remote file if they are held, other than by `read_on`."""
        with self._lock:
            every = [each.from_place(offset) for each in (self._held, *self._expected)]
        return next((data.slice(0, length) for data in every if data is not None and data.size >= length), None)

    def held_from(self, offset: int) -> pa.Buffer | None:
        """Return the bytes of a remote file from a place on, as far as they are held together; None if none are."""
        with self._lock:
            return self._held.from_place(offset)

    def read_on(self, offset: int, length: int, more: int, stop: int) -> pa.Buffer:
        """Return the bytes of a range of a remote file that is read forward.

        If they are not held, `more` bytes from there on are read, up to `stop`, and held until this reads again.
        """
        found = self.held(offset, length)
        if found is not None:
            return found
        with self._lock:
            rest = self._last.from_place(offset) or pa.py_buffer(b"")
        if rest.size >= length:
            return rest.slice(0, length)
        at = offset + rest.size
        [read] = self.get_ranges([(at, min(offset + max(length, more), stop) - at)])
        data = pa.py_buffer(b"".join([rest, read]) if rest.size else read)
        last = _Held()
        last.add(data, np.array([offset]), np.array([data.size]), np.zeros(1, np.int64))
        with self._lock:
            self._last = last
        return data.slice(0, length)

    def read_many(
        self, offset: NDArray[np.int64], length: NDArray[np.int64], *, near_bytes: int = 0
    ) -> tuple[pa.Buffer, NDArray[np.int64]]:
        """Return memory with all ranges, and the start of each range there.

        With `near_bytes`, so many bytes before and behind each range of a remote file are read too. All of them are
        held, and not read again. Raises as `read`.
        """
        self.check_open()
        file, whole = self.file, self._data
        if whole is not None:
            return whole, offset
        if file is not None:
            plan = plan_ranges(offset, length, max_gap_bytes=_LOCAL_GAP_BYTES, max_request_bytes=BUFFER_BYTES)
            [found], _, at = read_together(file, plan, _ALL_BYTES)
            return found, at
        if not near_bytes:
            data, _, begin, places = self._requested(offset, length)
            return data, places if len(begin) else offset
        read: list[_Part] = []
        while True:
            with self._lock:
                for part in read:
                    self._held.add(*part)
                which, places = self._held.find(offset, length)
                rows = np.flatnonzero((which < 0) & (length > 0))
                if not len(rows):
                    found = self._held.joined(which, places, offset, length)
                    if read:
                        self._bound(1)
                    return found
            start, stop = self._bounds
            first = np.maximum(offset[rows] - near_bytes, min(start, int(offset[rows].min())))
            ends = offset[rows] + length[rows]
            last = np.minimum(ends + near_bytes, max(stop, int(ends.max())))
            data, requests, begin, _ = self._requested(first, last - first)
            read = [(data, *requests, begin)]

    def expect(self, ranges: Sequence[tuple[int, int]], gap_bytes: int | None = None) -> list[tuple[int, int]]:
        """Fetch the ranges of a remote file that are read next, and hold them; return the `(offset, length)` fetched.

        Neighbours are fetched together, what is held already is not fetched. Ranges of more than 64 MiB are not fetched
        here.
        """
        if not self.is_remote:
            return []
        with self._lock:
            missing = [part for offset, length in ranges for part in self._held.missing(offset, offset + length)]
        starts, stops = np.array(missing, np.int64).reshape(-1, 2).T
        gap = self.gap_bytes if gap_bytes is None else gap_bytes
        plan = plan_ranges(starts, stops - starts, max_gap_bytes=gap, max_request_bytes=_MAX_REQUEST_BYTES)
        requests = [request for request in plan.requests if request[1]]
        if 0 < sum(length for _, length in requests) <= MOST_HELD_BYTES:
            self.fetch(requests)
        return requests

    @contextmanager
    def expecting(self, ranges: Sequence[tuple[int, int]]) -> Iterator[None]:
        """As `expect`, however many bytes: they are held for the body of a `with`, whatever else is read."""
        if not self.is_remote or not ranges:
            yield
            return
        offset, length = np.array(ranges, np.int64).T
        plan = plan_ranges(offset, length, max_gap_bytes=self.gap_bytes, max_request_bytes=_MAX_REQUEST_BYTES)
        own = _Held()
        for request, data in zip(plan.requests, self.get_ranges(plan.requests), strict=True):
            own.add(pa.py_buffer(data), *np.array([*request, 0], np.int64).reshape(3, 1))
        with self._lock:
            self._expected = [*self._expected, own]  # another thread may read from this file
        try:
            yield
        finally:
            with self._lock:
                self._expected = [one for one in self._expected if one is not own]

    def fetch(self, requests: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Return these `(offset, length)` of a remote file, a request each, and hold them."""
        answers = [pa.py_buffer(data) for data in self.get_ranges(requests)]
        with self._lock:
            for (offset, length), data in zip(requests, answers, strict=True):
                self._held.add(data, np.array([offset]), np.array([length]), np.zeros(1, np.int64))
            self._bound(len(answers))
        return answers

    def ahead(self, start: int, size: int, count: int) -> None:
        """Have so many windows of this size under way, one behind the other, from a place on; `window` takes them.

        One thread walks over a file. A forked child has none of the threads: there, windows are read as they are taken.
        """
        if self._process != os.getpid():
            return
        if start != self._window[0] or not self._windows:
            self._forget_windows(start)
        if self._threads is None:
            self._threads = Threads(_MOST_WINDOWS, "lading-window")
        while len(self._windows) < count and self._window[1] < self._bounds[1]:
            self._windows.append(self._threads.submit(partial(self._read_window, self._window[1], size)))
            self._window = self._window[0], self._window[1] + size

    def window(self, start: int, size: int) -> Buffer:
        """Return the window under way that begins here, else so many bytes as are inside the bounds; empty at the end.

        The window is not held.
        """
        if self._process != os.getpid():
            return self._read_window(start, size)
        if start != self._window[0] or not self._windows:
            self._forget_windows(start)
            return self._read_window(start, size)
        data = self._windows.popleft().result()
        self._window = start + len(data), self._window[1]
        return data

    def _forget_windows(self, start: int) -> None:
        for window in self._windows:
            window.cancel()
        self._windows.clear()
        self._window = start, start

    def _read_window(self, start: int, size: int) -> Buffer:
        size = min(size, self._bounds[1] - start)
        return self.get_ranges([(start, size)])[0] if size > 0 else b""

    def drop(self) -> None:
        """Forget what is held, but for what a `with` expects."""
        if self._held.nbytes or self._last.nbytes:
            with self._lock:
                self._held, self._last = _Held(), _Held()

    def close(self) -> None:
        """Close file, map and memory; later reads are errors. Buffers stay valid."""
        self._closed = True  # first: a thread that finds no file must know why
        self.file, self.mapped, self._data = None, None, None
        if self._threads is not None:
            self._threads.stop()
        self.drop()

    def check_open(self) -> None:
        """Raise UsageError if the reader was closed, by whichever thread."""
        if self._closed:
            raise UsageError("the shard was closed", file=self.path, advice="Open it again.")

    def get_ranges(self, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """Return the bytes of each `(offset, length)` of a remote file, a request each; none are held."""
        self.check_open()
        return ranges_of(self._store, self.path, ranges, self.version)

    def _requested(
        self, offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> tuple[pa.Buffer, tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64], NDArray[np.int64]]:
        """Return memory with ranges; the start and length of each request, its start there, and that of each range."""
        plan = plan_ranges(offset, length, max_gap_bytes=self.gap_bytes, max_request_bytes=_MAX_REQUEST_BYTES)
        answers = self.get_ranges(plan.requests)
        begin = np.cumsum(plan.length) - plan.length
        data = pa.py_buffer(answers[0] if len(answers) == 1 else b"".join(map(memoryview, answers)))
        return data, (plan.offset, plan.length), begin, begin[plan.request_of] + plan.offset_in

    def _bound(self, keep: int) -> None:
        """Forget what was not used for long, but for so many buffers."""
        if not self._is_in_use:
            self._held.shrink(MOST_HELD_BYTES, keep)
            _PROCESS.note(self, self._held.nbytes)

    def _drop_if_idle(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._held = _Held()
            finally:
                self._lock.release()


_Part: TypeAlias = tuple[pa.Buffer, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Memory; offset in the file and length of each range in it; start of each there."""


_NO_RANGES = np.zeros((4, 0), np.int64)


class _Held:
    """Ranges of a file in memory; the buffer that was not used for the longest time comes first.

    Attributes:
        nbytes: bytes of all buffers.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._buffers: OrderedDict[int, pa.Buffer] = OrderedDict()
        self._next = 0
        self._ranges = _NO_RANGES
        """Start and stop of each range, both ascending; number of its buffer, and start there."""

    def add(
        self, data: pa.Buffer, offset: NDArray[np.int64], length: NDArray[np.int64], begin: NDArray[np.int64]
    ) -> None:
        """Add ranges that a buffer holds; those that are inside others are not looked up any more."""
        number, self._next = self._next, self._next + 1
        more = np.array([offset, offset + length, np.full(len(offset), number), begin])
        every = np.concatenate([self._ranges, more], axis=1)
        every = every[:, np.lexsort((-every[1], every[0]))]
        reach = np.maximum.accumulate(every[1])
        self._ranges = every[:, np.append(True, every[1][1:] > reach[:-1])]
        self._buffers[number] = data
        self.nbytes += data.size
        if self._ranges.shape[1] < every.shape[1]:
            for gone in set(self._buffers) - set(self._ranges[2].tolist()):
                self.nbytes -= self._buffers.pop(gone).size

    def find(self, offset: NDArray[np.int64], length: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of the buffer with each range, −1 if none holds it whole, and its start there."""
        starts, stops, number, begin = self._ranges
        if not len(starts):
            return np.full(len(offset), -1), np.zeros(len(offset), np.int64)
        owner = np.maximum(np.searchsorted(starts, offset, "right") - 1, 0)
        held = (starts[owner] <= offset) & (offset + length <= stops[owner])
        return np.where(held, number[owner], -1), np.where(held, begin[owner] + offset - starts[owner], 0)

    def from_place(self, offset: int) -> pa.Buffer | None:
        """Return the rest of the range that holds a byte; its buffer is the one used last."""
        starts, stops, number, begin = self._ranges
        owner = int(np.searchsorted(starts, offset, "right")) - 1
        if owner < 0 or offset >= stops[owner]:
            return None
        data = self.use(int(number[owner]))
        return data.slice(int(begin[owner] + offset - starts[owner]), int(stops[owner]) - offset)

    def missing(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts `[start, stop)` of a range that are not held."""
        for begin, end in self._ranges[:2].T.tolist():
            if end > start and begin < stop:
                if start < begin:
                    yield start, begin
                start = max(start, end)
        if start < stop:
            yield start, stop

    def use(self, number: int) -> pa.Buffer:
        """Return a buffer, as the one used last."""
        self._buffers.move_to_end(number)
        return self._buffers[number]

    def joined(
        self, which: NDArray[np.int64], begin: NDArray[np.int64], offset: NDArray[np.int64], length: NDArray[np.int64]
    ) -> tuple[pa.Buffer, NDArray[np.int64]]:
        """Return one buffer with ranges that were found, and the start of each there."""
        numbers = np.unique(which[which >= 0]).tolist()
        if not numbers:
            return pa.py_buffer(b""), begin
        if len(numbers) > 1:
            data = pa.py_buffer(b"".join([self._buffers[number] for number in numbers]))
            size = [self._buffers.pop(number).size for number in numbers]
            mine = np.isin(self._ranges[2], numbers)
            order = np.searchsorted(numbers, self._ranges[2, mine])
            self._ranges[3, mine] += (np.cumsum(size) - size)[order]
            self._ranges[2, mine] = numbers[0]
            self._buffers[numbers[0]] = data
            begin = self.find(offset, length)[1]
        return self.use(numbers[0]), begin

    def shrink(self, most_bytes: int, keep: int) -> None:
        """Forget the least recently used buffers until the others are small enough; keep so many in any case."""
        gone = []
        while len(self._buffers) > keep and self.nbytes > most_bytes:
            number, data = self._buffers.popitem(last=False)
            self.nbytes -= data.size
            gone.append(number)
        if gone:
            self._ranges = self._ranges[:, ~np.isin(self._ranges[2], gone)]


class _Process:
    """The readers of this process that hold ranges, the one that read least recently first."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[ref[RangeReader], int] = OrderedDict()
        self._lock = Lock()

    def note(self, reader: RangeReader, size: int) -> None:
        """Note how much a reader holds that read just now; if all hold too much, others forget theirs."""
        too_many: list[ref[RangeReader]] = []
        with self._lock:
            for gone in [each for each in self._sizes if each() is None]:
                del self._sizes[gone]
            self._sizes[ref(reader)] = size
            self._sizes.move_to_end(ref(reader))
            while len(self._sizes) > 1 and sum(self._sizes.values()) > MOST_HELD_BYTES:
                too_many.append(self._sizes.popitem(last=False)[0])
        for each in too_many:
            other = each()
            if other is not None:
                other._drop_if_idle()  # noqa: SLF001 - of this module


_PROCESS = _Process()
