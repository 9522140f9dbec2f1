"""Codecs: compression, one file each; and hashes."""

from lading._core.codecs.brotli_ import begins_brotli, pieces_of_brotli
from lading._core.codecs.gzip_ import pack_text
from lading._core.codecs.hashes import Hash, new_hash
from lading._core.codecs.protocol import StreamEncoder
from lading._core.codecs.registry import (
    ENDINGS,
    WRAPS,
    decode_range,
    sniff_wrap,
    stream_decoder,
    stream_encoder,
    unpack_file,
    unpacked_name,
)
from lading._core.codecs.snappy_ import pack_snappy

__all__ = [
    "ENDINGS",
    "WRAPS",
    "Hash",
    "StreamEncoder",
    "begins_brotli",
    "decode_range",
    "new_hash",
    "pack_snappy",
    "pack_text",
    "pieces_of_brotli",
    "sniff_wrap",
    "stream_decoder",
    "stream_encoder",
    "unpack_file",
    "unpacked_name",
]
