"""A sink as the Python file object that libraries write to."""

from __future__ import annotations

from lading._core.storage.base import Buffer, Sink

__all__ = ["GatheringFile", "SinkFile"]

_SMALL_BYTES = 64 << 10


class SinkFile:
    """The file interface that `pyarrow` needs for sequential writing. Closing it leaves the sink to its owner."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.closed = False

    def write(self, data: Buffer) -> int:
        """Append bytes; return their number."""
        self._sink.write([data])
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._sink.tell()

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Refuse further writes."""
        self.closed = True

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False


class GatheringFile(SinkFile):
    """A `SinkFile` that collects small writes: `pyarrow` writes each buffer of a column by itself.

    Call `settle` after the last write.
    """

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._held = bytearray()

    def write(self, data: Buffer) -> int:
        """Take bytes; return their number."""
        size = memoryview(data).nbytes
        if size < _SMALL_BYTES:
            self._held += data
        if size >= _SMALL_BYTES or len(self._held) >= _SMALL_BYTES:
            self.settle()
        if size >= _SMALL_BYTES:
            self._sink.write([data])
        return size

    def tell(self) -> int:
        """Return the number of bytes taken so far."""
        return self._sink.tell() + len(self._held)

    def settle(self) -> None:
        """Write the collected bytes to the sink."""
        held, self._held = self._held, bytearray()
        if held:
            self._sink.write([held])
