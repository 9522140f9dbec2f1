"""Bytes in memory and ranges of files → a file, in few calls.

A call that moves a few megabytes costs what copying them costs, and lets other threads run meanwhile; thousands of
small ones cost half as much again, and each has to wait for its turn with the interpreter: up to 5 ms.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from lading.store.protocol import Buffer, FileRange, MappedFile, Part

__all__ = ["Appender"]

_BLOCK_BYTES = 2 << 20
"""Bytes of one call. What is written goes through a block that stays in the cache: `writev` from where the bytes lie
takes a sixth longer on tmpfs, and from mapped files twice as long on ext4. Blocks of 1 to 8 MB are equally fast."""
_MOST_BUFFERS = 1000
"""Of one call that reads; the system takes 1,024."""
_GAP_BYTES = 32 << 10
"""Between two ranges of one file that are read by one call, at most: a header of a tar, a little JSON."""


class _Reading:
    """One call that reads several ranges of a file; what lies between them goes to a buffer that nobody looks at."""

    def __init__(self, file: MappedFile, offset: int) -> None:
        self.file, self.offset, self.end = file, offset, offset
        self.targets: list[memoryview] = []

    def follows(self, file: MappedFile, offset: int) -> bool:
        """Whether a range can be read by the same call."""
        return self.file is file and 0 <= offset - self.end <= _GAP_BYTES and len(self.targets) < _MOST_BUFFERS

    def add(self, offset: int, target: memoryview, between: memoryview) -> None:
        """Read a range that follows into the target."""
        if offset > self.end:
            self.targets.append(between[: offset - self.end])
        self.targets.append(target)
        self.end = offset + len(target)

    def do(self) -> None:
        """Read."""
        self.file.read_into(self.targets, self.offset)


class Appender:
    """Appends parts to an open file. Holds a block of up to 2 MB, which no other thread may use meanwhile."""

    def __init__(self) -> None:
        self._block = memoryview(bytearray())
        self._between = memoryview(bytearray(_GAP_BYTES))
        self._reading: _Reading | None = None

    def append(self, fd: int, parts: Sequence[Part]) -> None:
        """Write the parts in order where the descriptor stands.

        Raises:
            OSError: of the system.
            ShortRead: a file ends before a range does.
        """
        self._reading, used = None, 0
        sources = [part if isinstance(part, FileRange) else _bytes_of(part) for part in parts]
        wanted = min(_BLOCK_BYTES, sum(source.nbytes for source in sources))
        if len(self._block) < wanted:
            self._block = memoryview(bytearray(wanted))
        for source in sources:
            at, size = 0, source.nbytes
            while at < size:
                if used == len(self._block):
                    self._write(fd, used)
                    used = 0
                target = self._block[used : used + size - at]
                if isinstance(source, FileRange):
                    self._read(source.file, source.offset + at, target)
                else:
                    target[:] = source[at : at + len(target)]
                at, used = at + len(target), used + len(target)
        self._write(fd, used)

    def _read(self, file: MappedFile, offset: int, target: memoryview) -> None:
        if self._reading is None or not self._reading.follows(file, offset):
            self._do_reading()
            self._reading = _Reading(file, offset)
        self._reading.add(offset, target, self._between)

    def _do_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.do()

    def _write(self, fd: int, used: int) -> None:
        """Write what is in the block."""
        self._do_reading()
        data = self._block[:used]
        while data:
            data = data[os.write(fd, data) :]


def _bytes_of(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else view
