"""Random reads in the decompressed stream of a compressed file.

Offsets count in the decompressed stream. Reading goes forward. The last `keep_bytes` stay in memory, so that a short
step back (an image before its JSON) costs nothing. A read further back starts again from the beginning: correct,
counted in `restarts`, and slow. Threads may share a file: they read in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from threading import RLock

from lading._core.codecs import stream_decoder
from lading._core.storage.base import Buffer, Store
from lading._core.storage.traffic import ranges_of
from lading.errors import BadReference, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["UnwrappedFile", "plausible_bytes", "unwrapped"]

_READ_BYTES = 1 << 20
_PLAUSIBLE_RATIO = 1000


def plausible_bytes(size_bytes: int, limits: Limits) -> int:
    """Return the largest plausible decompressed size of a compressed file of this size."""
    return max(limits.stream_bytes, _PLAUSIBLE_RATIO * size_bytes)


def unwrapped(
    get_ranges: Callable[[Sequence[tuple[int, int]]], Sequence[Buffer]],
    path: str,
    wrap: str,
    size_bytes: int,
    limits: Limits = DEFAULT_LIMITS,
    on_read: Callable[[int], None] = lambda _: None,
) -> Iterator[bytes]:
    """Yield the decompressed bytes in parts of at most 1 MiB; the file is read by the MiB.

    `on_read` is called with the number of compressed bytes that are read.

    Raises:
        CorruptShard: the compressed stream is damaged or cut.
        LimitExceeded: decompression needs too large a window, or gives much more than such a file should.
    """
    decoder = stream_decoder(wrap, limits)
    most, given = plausible_bytes(size_bytes, limits), 0
    with errors_at(file=path):
        for at in range(0, size_bytes, _READ_BYTES):
            [data] = get_ranges([(at, min(_READ_BYTES, size_bytes - at))])
            on_read(at + len(data))
            for piece in decoder.feed(data):
                given += len(piece)
                if given > most:
                    raise limits.exceeded(
                        "stream_bytes", "the compressed file unpacks to much more than its size", offset=given,
                        expected=f"at most {most} bytes of {size_bytes}",
                    )  # fmt: skip
                yield piece
        decoder.finish()


class UnwrappedFile:
    """Random reads in the decompressed stream of one file. Peak memory: `keep_bytes` plus the requested range.

    Attributes:
        restarts: number of reads further back than `keep_bytes`.
        turn: held by the thread that reads. A thread that reads several ranges holds it around them, because ranges of
            two threads by turns would start again each time.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        wrap: str,
        *,
        version: str = "",
        keep_bytes: int = 64 << 20,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._store, self._path, self._wrap, self._keep, self._limits = store, path, wrap, keep_bytes, limits
        info = store.head(path)
        self._size, self._version = info.size_bytes, version or info.version
        self._byte_ranges: deque[tuple[int, bytes]] = deque()
        self._kept = self._end = 0
        self._stream = self._from_start()
        self.restarts = 0
        self.turn = RLock()

    def _from_start(self) -> Iterator[bytes]:
        # Not a generator of this object: one that holds its owner would keep the bytes until a collection.
        get_ranges = partial(ranges_of, self._store, self._path, version=self._version)
        return unwrapped(get_ranges, self._path, self._wrap, self._size, self._limits)

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes of one range.

        Raises:
            BadReference: the stream ends before the range does.
            CorruptShard: the compressed stream is damaged.
        """
        if offset < 0 or length < 0:
            raise BadReference("a range cannot be negative", file=self._path, offset=offset, found=length)
        with self.turn:
            return self._read(offset, length)

    def _read(self, offset: int, length: int) -> bytes:
        if offset < (self._byte_ranges[0][0] if self._byte_ranges else self._end):
            self.restarts += 1
            self._byte_ranges.clear()
            self._kept = self._end = 0
            self._stream = self._from_start()
        self._forward(offset, offset + length)
        parts = []
        for start, piece in reversed(self._byte_ranges):  # most reads are of the latest bytes
            if start + len(piece) <= offset:
                break
            if start < offset + length:
                parts.append(piece[max(offset - start, 0) : offset + length - start])
        return b"".join(reversed(parts))

    def _forward(self, offset: int, stop: int) -> None:
        while self._end < stop:
            piece = next(self._stream, None)
            if piece is None:
                raise BadReference(
                    "the reference runs past the end of the unwrapped stream",
                    file=self._path,
                    offset=offset,
                    expected=f"{stop - offset} bytes",
                    found=f"a stream of {self._end} bytes",
                )
            self._byte_ranges.append((self._end, piece))
            self._end += len(piece)
            self._kept += len(piece)
            while self._kept > self._keep and self._byte_ranges[0][0] + len(self._byte_ranges[0][1]) <= offset:
                self._kept -= len(self._byte_ranges.popleft()[1])
