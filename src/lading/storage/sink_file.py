"""A sink as the file that libraries want to write to."""

from __future__ import annotations

from lading.storage.base import Buffer, Sink

__all__ = ["GatheringFile", "SinkFile"]

_SMALL_BYTES = 64 << 10


class SinkFile:
    """What `pyarrow` needs of a Python file that is only written, forward. Closing it leaves the sink to its owner."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.closed = False

    def write(self, data: Buffer) -> int:
        """Append bytes; give their number."""
        self._sink.write([data])
        return len(data)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._sink.tell()

    def flush(self) -> None:
        """Nothing is held back here."""

    def close(self) -> None:
        """Take no more bytes."""
        self.closed = True

    def writable(self) -> bool:
        """Yes."""
        return True

    def readable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """No."""
        return False


class GatheringFile(SinkFile):
    """A `SinkFile` that writes what is small together: `pyarrow` gives each buffer of a column by itself.

    Who has written all settles it.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._held = bytearray()

    def write(self, data: Buffer) -> int:
        """Take bytes; give their number."""
        size = memoryview(data).nbytes
        if size < _SMALL_BYTES:
            self._held += data
        if size >= _SMALL_BYTES or len(self._held) >= _SMALL_BYTES:
            self.settle()
        if size >= _SMALL_BYTES:
            self._sink.write([data])
        return size

    def tell(self) -> int:
        """Bytes taken so far."""
        return self._sink.tell() + len(self._held)

    def settle(self) -> None:
        """Give the sink what is held."""
        held, self._held = self._held, bytearray()
        if held:
            self._sink.write([held])
