"""A sink as the file that libraries want to write to."""

from __future__ import annotations

from lading.store.protocol import Buffer, Sink

__all__ = ["SinkFile"]


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
