"""Brotli: one stream, without a magic number. Read only: completely, or up to the damage.

The stream is read through buffers: pyarrow's `read` loses bytes that it has unpacked when it raises.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa

from lading._core.codecs.protocol import PIECE_BYTES, Data
from lading.errors import CorruptShard, LimitExceeded

__all__ = ["begins_brotli", "pieces_of_brotli", "unpack_brotli"]

_CUT = "Truncated"
"""Part of pyarrow's message about a stream that is valid so far."""
_FED_BYTES = 64 << 10
_READ_BYTES = (64 << 10, 64, 1)
"""Bytes read at once. A failing read gives nothing, so it is repeated in smaller steps."""


def unpack_brotli(data: Data, max_bytes: int) -> bytes:
    """Unpack a stream. Raises CorruptShard; LimitExceeded for more than `max_bytes`."""
    if not memoryview(data).nbytes:
        raise CorruptShard("the brotli stream is empty", offset=0)
    pieces: list[pa.Buffer] = []
    total = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "brotli") as stream:
            while piece := stream.read_buffer(PIECE_BYTES):
                total += len(piece)
                if total > max_bytes:
                    limit = f"at most {max_bytes} bytes"
                    raise LimitExceeded("the brotli stream unpacks to too much", expected=limit, found="more")
                pieces.append(piece)
    except OSError as error:
        raise CorruptShard("the brotli stream is damaged", offset=total, found=str(error)) from error
    return b"".join(pieces)


def begins_brotli(begin: Data) -> bool:
    """Return whether a stream may begin with these bytes. One in twenty other texts passes by its first 64 bytes."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(begin)), "brotli") as stream:
            stream.read_buffer(PIECE_BYTES)
    except OSError as error:
        return _CUT in str(error)
    return True


def pieces_of_brotli(data: Data) -> Iterator[pa.Buffer]:
    """Yield the unpacked stream up to its damage, to the last byte. Raises CorruptShard there.

    Everything before the damage is unpacked three times.
    """
    total, fast = 0, memoryview(data).nbytes
    found = _CUT
    for size in _READ_BYTES:
        fed = _Fed(data, fast)
        try:
            with pa.CompressedInputStream(pa.PythonFile(fed, "r"), "brotli") as stream:
                for at in range(0, total, _READ_BYTES[0]):  # which was yielded already
                    stream.read_buffer(min(_READ_BYTES[0], total - at))
                while piece := stream.read_buffer(size):
                    total += len(piece)
                    yield piece
        except OSError as error:
            found, fast = str(error), min(fast, max(fed.at - _FED_BYTES, 0))
        else:
            return
    raise CorruptShard("the brotli stream is damaged", offset=total, found=found)


class _Fed(io.RawIOBase):
    """A file of these bytes that gives single bytes from a place on.

    The decoder loses the input that it reads along with damage.
    """

    def __init__(self, data: Data, fast: int) -> None:
        self._view, self._fast = memoryview(data), fast
        self.at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1, /) -> bytes:  # noqa: ARG002 - the reader takes fewer than it asks for
        """Return the next bytes."""
        some = bytes(self._view[self.at : self.at + (_FED_BYTES if self.at < self._fast else 1)])
        self.at += len(some)
        return some
