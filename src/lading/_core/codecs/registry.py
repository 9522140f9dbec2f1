"""The codecs by name, and detection by the first bytes of a file."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from lading._core.codecs import bz2_, gzip_, xz_, zstd_
from lading._core.codecs.brotli_ import unpack_brotli
from lading._core.codecs.protocol import Codec, Data, StreamDecoder, StreamEncoder, unpack
from lading._core.codecs.snappy_ import unpack_snappy
from lading._core.codecs.zip_ import unpack_member
from lading.errors import LimitExceeded, UsageError
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "ENDINGS",
    "WRAPS",
    "decode_range",
    "sniff_wrap",
    "stream_decoder",
    "stream_encoder",
    "unpack_file",
    "unpacked_name",
]

_CODECS = {codec.name: codec for codec in (gzip_.CODEC, zstd_.CODEC, bz2_.CODEC, xz_.CODEC)}

WRAPS = tuple(_CODECS)
"""Names of the compressions of whole files."""

ENDINGS = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2", "xz": ".xz"}
"""File name extensions, by compression."""

_WRAP_OF = {ending: wrap for wrap, ending in ENDINGS.items()} | {".tgz": "gzip", ".zstd": "zstd"}

_GZIP_RANGE = replace(gzip_.CODEC, padding=False)  # only files have padding; a range ends with its last byte
_BZ2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")


def stream_decoder(name: str, limits: Limits = DEFAULT_LIMITS) -> StreamDecoder:
    """Return a decoder for a stream that comes in parts. Raises UsageError for an unknown name."""
    return StreamDecoder(_codec(name), limits)


def unpack_file(name: str, data: Data, max_bytes: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Unpack a whole compressed file: one of `WRAPS`, `brotli` or `snappy`.

    Peak memory: the output, at most `max_bytes`, twice at the end.

    Raises:
        CorruptShard: it is damaged or cut.
        LimitExceeded: the output exceeds `max_bytes`, or the window is too large.
        UsageError: an unknown name.
    """
    if name == "brotli":
        return unpack_brotli(data, max_bytes)
    return unpack_snappy(data, max_bytes) if name == "snappy" else unpack(_codec(name), data, max_bytes, limits)


def stream_encoder(name: str, level: int | None = None, *, size_bytes: int | None = None) -> StreamEncoder:
    """Return an encoder for a stream that comes in parts; equal parts give equal bytes.

    Args:
        name: one of `WRAPS`.
        level: None = the usual level of the codec's own tool.
        size_bytes: size of the whole input, if known. zstd writes it into its header, as some readers require, and
            fails if it was wrong.

    Raises:
        UsageError: an unknown name, or a level that the codec does not have.
    """
    codec = _codec(name)
    low, usual, high = codec.levels
    if level is not None and not (isinstance(level, int) and low <= level <= high):
        raise UsageError(f"{name} has no such level", expected=f"{low} to {high}", found=level)
    return StreamEncoder(codec.packer(usual if level is None else level, size_bytes))


def sniff_wrap(head: bytes) -> str:
    """Return the compression of a file with these first bytes: `""`, or one of `WRAPS`. Ten bytes are enough."""
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if head.startswith(zstd_.MAGIC) or zstd_.is_skippable(head):
        return "zstd"
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if head.startswith(b"BZh") and head[3:4] in b"123456789" and head[4:10] in _BZ2_BLOCKS:
        return "bz2"
    return ""


def unpacked_name(path: str) -> tuple[str, str]:
    """Return a file name without its compression extension, and the compression: `""`, or one of `WRAPS`."""
    stem, ending = posixpath.splitext(path)
    wrap = _WRAP_OF.get(ending.lower(), "")
    if ending.lower() == ".tgz":
        stem += ".tar"
    return (stem, wrap) if wrap else (path, "")


def decode_range(codec: str, data: Data, max_bytes: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Unpack the bytes of one range, by its codec (`_core.arrow.references.CODECS`).

    The whole range must be used, but for `zip`: other bytes may lie between two members. A zstd frame that should have
    no magic number may have one. Peak memory: the output, at most `max_bytes`.

    Raises:
        CorruptShard: the range is damaged, cut, or continues after its end.
        LimitExceeded: the output exceeds `max_bytes`, or the window is too large.
        UsageError: an unknown codec.
    """
    if codec == "gzip":
        return unpack(_GZIP_RANGE, data, max_bytes, limits)
    if codec in ("zstd", "zstd-magicless"):
        # A frame without magic number cannot begin with those bytes: its first byte would have the reserved bit set.
        magicless = codec == "zstd-magicless" and data[:4] != zstd_.MAGIC
        return zstd_.decode_frame(data, max_bytes, magicless=magicless, limits=limits)
    if codec == "zip":
        return unpack_member(data, max_bytes)
    if codec:
        raise UsageError("no such codec of a range", expected="zstd, zstd-magicless, gzip, zip or none",
                         found=repr(codec))  # fmt: skip
    if memoryview(data).nbytes > max_bytes:
        raise LimitExceeded("the range is too long", expected=f"at most {max_bytes}", found=memoryview(data).nbytes)
    return bytes(data)


def _codec(name: str) -> Codec:
    if name not in _CODECS:
        raise UsageError("no such compression", expected=", ".join(WRAPS), found=repr(name))
    return _CODECS[name]
