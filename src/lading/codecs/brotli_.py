"""Brotli: one stream, with no mark to be known by. Read only, and whole.

Pieces are read as buffers: pyarrow's `read` loses the bytes it makes room for where it raises.
"""

from __future__ import annotations

import pyarrow as pa

from lading.codecs.protocol import PIECE_BYTES, Data
from lading.errors import CorruptShard, LimitExceeded

__all__ = ["begins_brotli", "unpack_brotli"]

_CUT = "Truncated"
"""In what pyarrow says of a stream that is sound so far."""


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
