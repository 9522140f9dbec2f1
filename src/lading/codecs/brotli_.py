"""Brotli: one stream, with no mark to be known by. Read only, and whole."""

from __future__ import annotations

import pyarrow as pa

from lading.codecs.protocol import PIECE_BYTES, Data
from lading.errors import CorruptShard, LimitExceeded

__all__ = ["unpack_brotli"]


def unpack_brotli(data: Data, max_bytes: int) -> bytes:
    """What a stream unpacks to. Raises CorruptShard; LimitExceeded if more than `max_bytes` come out."""
    if not memoryview(data).nbytes:
        raise CorruptShard("the brotli stream is empty", offset=0)
    pieces: list[bytes] = []
    total = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "brotli") as stream:
            while piece := stream.read(PIECE_BYTES):
                total += len(piece)
                if total > max_bytes:
                    limit = f"at most {max_bytes} bytes"
                    raise LimitExceeded("the brotli stream unpacks to too much", expected=limit, found="more")
                pieces.append(piece)
    except OSError as error:
        raise CorruptShard("the brotli stream is damaged", offset=total, found=str(error)) from error
    return b"".join(pieces)
