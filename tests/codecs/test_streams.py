"""Streams of every codec, packed by Python's own modules and python-zstandard."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lading._core.codecs import ENDINGS, WRAPS, sniff_wrap, stream_decoder, stream_encoder, unpacked_name
from lading._core.codecs.protocol import PIECE_BYTES, Codec, StreamDecoder
from lading.errors import CorruptShard, LimitExceeded, UsageError

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_DATA = random.Random(0).randbytes(200_000) + b"compressible " * 30_000
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data),
}
_ALL = pytest.mark.parametrize("name", WRAPS)


def unpacked(name: str, data: bytes, step: int = 1 << 20) -> bytes:
    decoder = stream_decoder(name)
    pieces = [piece for at in range(0, len(data), step) for piece in decoder.feed(data[at : at + step])]
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)
    decoder.finish()
    return b"".join(pieces)


def test_the_names_are_those_of_the_files_table() -> None:
    assert set(WRAPS) == set(_PACKERS) == {"gzip", "zstd", "bz2", "xz"}


@pytest.mark.cases(3)
@_ALL
@pytest.mark.parametrize("step", [1 << 20, 65_537, 997])
def test_a_stream_in_parts_of_any_size(name: str, step: int) -> None:
    assert unpacked(name, _PACKERS[name](_DATA), step) == _DATA


@_ALL
def test_byte_by_byte(name: str) -> None:
    assert unpacked(name, _PACKERS[name](_DATA[:3000]) * 2, 1) == _DATA[:3000] * 2


@pytest.mark.cases(3)
@_ALL
def test_members_are_read_to_the_last(name: str) -> None:
    parts = [_DATA, b"", b"second", _DATA[:70_000], b""]
    assert unpacked(name, b"".join(map(_PACKERS[name], parts))) == b"".join(parts)


@_ALL
def test_thousands_of_small_members(name: str) -> None:
    member = _PACKERS[name](b"record")
    assert unpacked(name, member * 3000) == b"record" * 3000


@_ALL
def test_an_empty_member_is_an_empty_stream(name: str) -> None:
    assert unpacked(name, _PACKERS[name](b"")) == b""


@_ALL
def test_nothing_at_all_is_no_stream(name: str) -> None:
    with pytest.raises(CorruptShard, match=f"{name} stream is empty"):
        unpacked(name, b"")


@pytest.mark.cases(3)
@_ALL
def test_a_cut_stream_is_never_shorter_data(name: str) -> None:
    packed = _PACKERS[name](_DATA[:1000]) + _PACKERS[name](_DATA[1000:2000])
    whole = {len(_PACKERS[name](_DATA[:1000])), len(packed)}
    for size in range(len(packed)):
        if size not in whole:
            with pytest.raises(CorruptShard, match=name):
                unpacked(name, packed[:size])


@_ALL
def test_damage_is_an_error_or_seen_by_nobody(name: str) -> None:
    """Bits that mean nothing (a gzip header's time) may change; the data may not."""
    data = _DATA[:600]
    packed = _PACKERS[name](data)
    for at in range(len(packed)):
        flipped = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        try:
            assert unpacked(name, flipped) == data
        except (CorruptShard, LimitExceeded):
            continue


@pytest.mark.cases(3)
@_ALL
def test_errors_say_where_in_the_unpacked_stream(name: str) -> None:
    with pytest.raises(CorruptShard) as caught:
        unpacked(name, _PACKERS[name](_DATA) + b"garbage garbage garbage")
    assert caught.value.offset == len(_DATA)


@pytest.mark.parametrize("name", ["gzip", "bz2", "xz"])
def test_zeros_after_and_between_members_are_padding(name: str) -> None:
    packed = _PACKERS[name](b"one") + bytes(512) + _PACKERS[name](b"two") + bytes(100_000)
    assert unpacked(name, packed) == b"onetwo"
    with pytest.raises(CorruptShard):
        unpacked(name, bytes(4) + packed)


def test_zstd_has_no_padding() -> None:
    """As the tool: `zstd -d` says "unknown header" and fails."""
    with pytest.raises(CorruptShard):
        unpacked("zstd", _PACKERS["zstd"](b"one") + bytes(512))


@pytest.mark.cases(1)
@_ALL
def test_a_bomb_costs_what_is_taken_of_it(name: str) -> None:
    packed = _PACKERS[name](bytes(64 << 20))
    pieces = stream_decoder(name).feed(packed)
    first = [next(pieces) for _ in range(3)]
    assert all(len(piece) <= PIECE_BYTES for piece in first)
    assert len(packed) < 70_000


def test_a_zstd_bomb_of_repeated_bytes_comes_in_pieces() -> None:
    """Blocks of 4 bytes that give 128 KiB each: 32 KiB of input for 1 GiB."""
    repeated = (128 << 10) << 3 | 1 << 1
    blocks = struct.pack("<I", repeated | ord("z") << 24) * 8191 + struct.pack("<I", repeated | 1 | ord("z") << 24)
    pieces = stream_decoder("zstd").feed(_ZSTD_MAGIC + b"\x00\x58" + blocks)
    assert next(pieces) == b"z" * PIECE_BYTES
    assert next(pieces) == b"z" * PIECE_BYTES


def test_zstd_frames_of_every_header() -> None:
    data = _DATA[:5000]
    frames = b""
    for size, checksum in ((True, True), (True, False), (False, True), (False, False)):
        frames += zstandard.ZstdCompressor(write_content_size=size, write_checksum=checksum).compress(data)
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    frames += b"".join(packer.compress(data[at : at + 700]) for at in range(0, 5000, 700)) + packer.flush()
    assert unpacked("zstd", frames, 333) == data * 5


def test_skippable_zstd_frames_are_skipped() -> None:
    skip = struct.pack("<II", 0x184D2A53, 100_000) + bytes(100_000)
    frame = _PACKERS["zstd"](b"data")
    assert unpacked("zstd", skip + frame + skip + frame, 4096) == b"datadata"
    assert sniff_wrap(skip[:16]) == "zstd"
    with pytest.raises(CorruptShard, match="too early"):
        unpacked("zstd", frame + skip[:-1])


@pytest.mark.parametrize(
    "error",
    [
        zstandard.ZstdError("zstd decompressor error: Allocation error : not enough memory"),
        zlib.error("Error -4 while decompressing data: out of memory"),
    ],
)
def test_memory_that_the_machine_lacks_is_no_fault_of_the_stream(error: Exception) -> None:
    """In the words of zstd 1.5.7, lib/common/error_private.c, and of Python's zlib module."""

    class Member:
        eof, needs_input, unused_data = False, True, b""

        def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
            raise error

    codec = Codec("zstd", lambda _: Member(), (type(error),), padding=False, packer=lambda *_: zlib.compressobj(),
                  levels=(1, 1, 1), limit="zstd_window_bytes")  # fmt: skip
    with pytest.raises(MemoryError):
        list(StreamDecoder(codec).feed(b"frame"))


@pytest.mark.soak
def test_a_window_that_takes_too_much_memory_is_refused() -> None:
    window_of_1_gib = (30 - 10) << 3
    with pytest.raises(LimitExceeded, match="zstd"):
        unpacked("zstd", _ZSTD_MAGIC + bytes([0x00, window_of_1_gib]) + b"\x01\x00\x00")
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    with pytest.raises(LimitExceeded, match="xz"):
        unpacked("xz", lzma.compress(b"data", filters=filters))


@pytest.mark.cases(3)
@_ALL
def test_what_is_packed_unpacks_with_the_codecs_own_library(name: str) -> None:
    read: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.decompress,
        "bz2": bz2.decompress,
        "xz": lzma.decompress,
        "zstd": lambda data: zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read(),
    }
    for level in (None, 1, 9):
        encoder = stream_encoder(name, level)
        packed = b"".join(encoder.feed(_DATA[at : at + 99_999]) for at in range(0, len(_DATA), 99_999))
        packed += encoder.finish()
        assert read[name](packed) == _DATA
        assert unpacked(name, packed) == _DATA
        assert sniff_wrap(packed[:10]) == name


@pytest.mark.cases(3)
@_ALL
def test_packing_is_repeatable(name: str) -> None:
    def pack() -> bytes:
        encoder = stream_encoder(name)
        return encoder.feed(memoryview(_DATA)) + encoder.feed(b"") + encoder.finish()

    assert pack() == pack()


def test_gzip_headers_hold_no_time_and_no_name() -> None:
    """RFC 1952: FLG (byte 3) and MTIME (bytes 4 to 7)."""
    encoder = stream_encoder("gzip")
    assert (encoder.feed(b"x") + encoder.finish())[3:8] == bytes(5)


def test_zstd_writes_the_content_size_if_it_is_known() -> None:
    encoder = stream_encoder("zstd", size_bytes=len(_DATA))
    packed = encoder.feed(_DATA) + encoder.finish()
    assert zstandard.get_frame_parameters(packed).content_size == len(_DATA)
    assert zstandard.get_frame_parameters(packed).has_checksum


@pytest.mark.parametrize("name, level", [("gzip", 10), ("gzip", -1), ("zstd", 23), ("zstd", 0), ("bz2", 0), ("xz", 10)])
def test_levels_that_are_none(name: str, level: int) -> None:
    with pytest.raises(UsageError, match=f"{name} has no such level"):
        stream_encoder(name, level)


@pytest.mark.parametrize("level", [1.5, "fast", [1]])
def test_levels_that_are_no_whole_numbers(level: Any) -> None:
    with pytest.raises(UsageError, match=f"gzip has no such level; expected 0 to 9, found {re.escape(str(level))}"):
        stream_encoder("gzip", level)


@pytest.mark.parametrize("make", [stream_decoder, stream_encoder])
def test_unknown_names(make: Callable[[str], object]) -> None:
    with pytest.raises(UsageError, match="gzip, zstd, bz2, xz"):
        make("br")


@pytest.mark.parametrize(
    "head", [b"", b"\x1f", b"BZh", b"BZh9 is text", b"PAR1", bytes(16), b"\x28\xb5\x2f", b"BZhx1AY&SY"]
)
def test_what_is_not_compressed(head: bytes) -> None:
    assert sniff_wrap(head) == ""


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 200), st.sampled_from(WRAPS))
@settings(max_examples=60)
def test_unpacking_undoes_packing(parts: list[bytes], step: int, name: str) -> None:
    packed = b""
    for part in parts:
        encoder = stream_encoder(name, 1)
        packed += encoder.feed(part) + encoder.finish()
    assert unpacked(name, packed, step) == b"".join(parts)


@given(st.binary(max_size=200), st.sampled_from(WRAPS))
def test_any_bytes_are_data_or_an_error(data: bytes, name: str) -> None:
    heads = {"gzip": b"\x1f\x8b\x08\x00", "zstd": _ZSTD_MAGIC, "bz2": b"BZh91AY&SY", "xz": b"\xfd7zXZ\0"}
    for start in (b"", heads[name]):
        try:
            unpacked(name, start + data)
        except (CorruptShard, LimitExceeded):
            continue


def test_gzip_of_other_writers() -> None:
    """A member with a name, a comment, an extra field and a header checksum (RFC 1952, FLG bits 1 to 4)."""
    body = zlib.compressobj(wbits=-15)
    deflated = body.compress(b"data") + body.flush()
    head = b"\x1f\x8b\x08\x1e" + struct.pack("<IBB", 123, 0, 3) + struct.pack("<H", 4) + b"extr" + b"name\0" + b"note\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    assert unpacked("gzip", head + deflated + struct.pack("<II", zlib.crc32(b"data"), 4)) == b"data"


def test_every_codec_has_an_ending() -> None:
    assert tuple(ENDINGS) == WRAPS


@pytest.mark.parametrize(
    "path, told",
    [
        ("a/b.x.gz", ("a/b.x", "gzip")),
        ("a/b.x.zst", ("a/b.x", "zstd")),
        ("a/b.x.bz2", ("a/b.x", "bz2")),
        ("a/b.x.xz", ("a/b.x", "xz")),
        ("a.mds.zstd", ("a.mds", "zstd")),
        ("a.tgz", ("a.tar", "gzip")),
        ("A.TAR.GZ", ("A.TAR", "gzip")),
        ("a.tar", ("a.tar", "")),
        ("b.gz/a", ("b.gz/a", "")),
    ],
)
def test_what_names_of_compressed_files_tell(path: str, told: tuple[str, str]) -> None:
    assert unpacked_name(path) == told
