"""Standard output as a store, for one file that is written once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from lading._core.storage.base import Buffer, FileInfo, Sink, store_errors
from lading._core.storage.memory import MemoryStore
from lading.errors import StoreError, UsageError

__all__ = ["PREFIX", "StandardOutput"]

PREFIX = "stdout://"
"""URLs of the store."""


class _ReaderGone(StoreError, BrokenPipeError):
    """Nobody reads standard output any more. Commands end quietly then, as `head` lets them."""


class StandardOutput(MemoryStore):
    """A store whose file of one name goes to standard output as it is written.

    Its other files are in memory: what a writer keeps next to the file, which nobody reads.

    Args:
        name: name of the file, in whatever folder.
    """

    request_bytes = 0

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        if sys.stdout is None:
            raise UsageError("there is no standard output")
        sys.stdout.flush()
        self._stream: BinaryIO = sys.stdout.buffer

    def put_stream(self, path: str) -> Sink:
        """Return a sink for a new file."""
        if path.rpartition("/")[2] != self._name:
            return super().put_stream(path)
        return _Piped(self, path, self._stream)


class _Piped:
    """The file that goes to standard output. `abort` cannot take back what was written."""

    __slots__ = ("_size", "_store", "_stream", "path")

    def __init__(self, store: StandardOutput, path: str, stream: BinaryIO) -> None:
        self.path, self._store, self._stream, self._size = path, store, stream, 0

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append the buffers in order. Raises StoreError."""
        with _errors():
            for buffer in buffers:
                view = memoryview(buffer).cast("B")
                self._stream.write(view)
                self._size += view.nbytes

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._size

    def close(self) -> FileInfo:
        """Write what waits in the buffer. The store then has a file of the name, which stands for the bytes."""
        with _errors():
            self._stream.flush()
        return self._store.put(self.path, b"")

    def abort(self) -> None:
        """Do nothing."""


@contextmanager
def _errors() -> Iterator[None]:
    try:
        with store_errors("standard output"):
            yield
    except StoreError as error:
        if isinstance(error.__cause__, BrokenPipeError):
            raise _ReaderGone("nobody reads standard output any more") from error
        raise
