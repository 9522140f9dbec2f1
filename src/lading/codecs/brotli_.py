"""Brotli: one stream, with no mark to be known by. Read only, and whole, or up to its damage.

Pieces are read as buffers: pyarrow's `read` loses the bytes it makes room for where it raises.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa

from lading.codecs.protocol import PIECE_BYTES, Data
from lading.errors import CorruptShard, LimitExceeded

__all__ = ["begins_brotli", "pieces_of_brotli", "unpack_brotli"]

_CUT = "Truncated"
"""In what pyarrow says of a stream that is sound so far."""
_FED_BYTES = 64 << 10
_READ_BYTES = (64 << 10, 64, 1)
"""Read at once: where that fails nothing comes out, so that it is asked for again in smaller steps."""


def unpack_brotli(data: Data, max_bytes: int) -> bytes:
    """What a stream unpacks to. Raises CorruptShard; LimitExceeded if more than `max_bytes` come out."""
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
    """Whether a stream may begin with these bytes. Of texts that are none, one in twenty may by its first 64 bytes."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(begin)), "brotli") as stream:
            stream.read_buffer(PIECE_BYTES)
    except OSError as error:
        return _CUT in str(error)
    return True


def pieces_of_brotli(data: Data) -> Iterator[pa.Buffer]:
    """What comes out of a stream up to its damage, to the last byte. Raises CorruptShard there.

    Of a damaged one all before the damage is unpacked three times.
    """
    total, fast = 0, memoryview(data).nbytes
    found = _CUT
    for size in _READ_BYTES:
        fed = _Fed(data, fast)
        try:
            with pa.CompressedInputStream(pa.PythonFile(fed, "r"), "brotli") as stream:
                for at in range(0, total, _READ_BYTES[0]):  # which has come out already
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
    """A file of these bytes, which gives single ones from a place on: what the decoder is given with a damage is lost.

    Attributes:
        at: how many were read.
    """

    def __init__(self, data: Data, fast: int) -> None:
        self._view, self._fast = memoryview(data), fast
        self.at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1, /) -> bytes:  # noqa: ARG002 - the reader takes fewer than it asks for
        """The next bytes."""
        some = bytes(self._view[self.at : self.at + (_FED_BYTES if self.at < self._fast else 1)])
        self.at += len(some)
        return some
