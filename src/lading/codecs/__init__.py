"""Bytes to bytes: compression, one file each."""

from lading.codecs.registry import WRAPS, decode_range, sniff_wrap, stream_decoder, stream_encoder

__all__ = ["WRAPS", "decode_range", "sniff_wrap", "stream_decoder", "stream_encoder"]
