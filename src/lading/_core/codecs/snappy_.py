"""Snappy: one raw block, its length as a variable-length number and then the data. No streaming.

Packing and unpacking use different libraries. The packed bytes of libraries differ, and ours must equal those of
python-snappy, which MosaicML Streaming uses: a wrapper around cramjam.

Source: snappy's format_description.txt.
"""

from __future__ import annotations

import pyarrow as pa

from lading._core.codecs.protocol import Data
from lading.errors import CorruptShard, LimitExceeded, missing_extra

__all__ = ["pack_snappy", "unpack_snappy"]

_MOST_LENGTH_BYTES = 5
_MORE = 128


def pack_snappy(data: Data) -> bytes:
    """Pack bytes into a block, as python-snappy does. Raises MissingExtra if cramjam is not installed."""
    try:
        from cramjam import snappy
    except ImportError as error:
        advice = "Run: pip install 'lading[snappy]'."
        raise missing_extra(error, "writing snappy needs cramjam", "cramjam", advice) from error
    return bytes(snappy.compress_raw(data))


def unpack_snappy(data: Data, max_bytes: int) -> bytes:
    """Unpack a block. Raises CorruptShard; LimitExceeded before allocation if it declares more than `max_bytes`."""
    head, length = bytes(memoryview(data)[:_MOST_LENGTH_BYTES]), 0
    for at, byte in enumerate(head):
        length |= byte % _MORE << 7 * at
        if byte < _MORE:
            break
    else:
        raise CorruptShard("the snappy block has no length", offset=0, found=head.hex())
    if length > max_bytes:
        raise LimitExceeded("the snappy block unpacks to too much", expected=f"at most {max_bytes} bytes", found=length)
    try:
        return bytes(pa.Codec("snappy").decompress(pa.py_buffer(data), length, asbytes=True))
    except OSError as error:
        raise CorruptShard("the snappy block is damaged", offset=0, found=str(error)) from error
