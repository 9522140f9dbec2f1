"""Ranges that are compressed one by one, as in media archives."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest
import zstandard

from lading._core.arrow.references import CODECS
from lading._core.codecs import decode_range
from lading._core.codecs.zstd_ import decode_sized_frame, frame_end
from lading.errors import CorruptShard, LimitExceeded, UsageError

_MAX = 1 << 30
_DATA = random.Random(1).randbytes(300_000) + b"compressible " * 9000
_MAGIC = b"\x28\xb5\x2f\xfd"


def datatrove_frame(data: bytes, *, size: bool = False, checksum: bool = False) -> bytes:
    """A record as datatrove 0.10.1 writes it: no magic number, no checksum, no content size."""
    options = {"format": zstandard.FORMAT_ZSTD1_MAGICLESS, "write_content_size": size, "write_checksum": checksum}
    params = zstandard.ZstdCompressionParameters.from_level(3, **options)
    packer = zstandard.ZstdCompressor(compression_params=params).compressobj()
    return packer.compress(data) + packer.flush()


def _zip_member(data: bytes) -> bytes:
    """A member as zipfile writes it, with its header."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", data)
        return body.getvalue()[: archive.start_dir]


def packed(codec: str, data: bytes) -> bytes:
    if codec == "zstd":
        return zstandard.ZstdCompressor().compress(data)
    if codec == "gzip":
        return gzip.compress(data)
    if codec == "zip":
        return _zip_member(data)
    return datatrove_frame(data) if codec else data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [_DATA, b"", b"x"], ids=["long", "empty", "one"])
def test_every_codec_of_references(codec: str, data: bytes) -> None:
    body = packed(codec, data)
    for kind in (bytes, bytearray, memoryview, pa.py_buffer):
        assert decode_range(codec, kind(body), _MAX) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: str) -> None:
    body = packed(codec, _DATA)
    assert decode_range(codec, body, len(_DATA)) == _DATA
    with pytest.raises(LimitExceeded):
        decode_range(codec, body, len(_DATA) - 1)
    with pytest.raises(LimitExceeded):
        decode_range(codec, body, 0)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_cut_range_is_never_shorter_data(codec: str) -> None:
    body = packed(codec, _DATA[-5000:])
    for size in range(len(body)):
        with pytest.raises(CorruptShard):
            decode_range(codec, body[:size], _MAX)
    body = packed(codec, _DATA)
    for size in (len(body) // 2, len(body) - 1, 131_075 + 9):
        with pytest.raises(CorruptShard):
            decode_range(codec, body[:size], _MAX)


@pytest.mark.parametrize("codec", [each for each in CODECS[1:] if each != "zip"])  # of which the end is not known
@pytest.mark.parametrize("tail", [b"\0", bytes(64), b"garbage"])
def test_a_range_is_used_up_exactly(codec: str, tail: bytes) -> None:
    with pytest.raises(CorruptShard):
        decode_range(codec, packed(codec, _DATA) + tail, _MAX)


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_members_one_after_another_are_one_value(codec: str) -> None:
    assert decode_range(codec, packed(codec, b"one") + packed(codec, b"two"), _MAX) == b"onetwo"


def test_one_magicless_frame_is_all_there_is() -> None:
    with pytest.raises(CorruptShard, match="bytes follow"):
        decode_range("zstd-magicless", datatrove_frame(b"one") * 2, _MAX)


@pytest.mark.parametrize("size", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_magicless_headers(size: bool, checksum: bool) -> None:
    body = datatrove_frame(_DATA, checksum=checksum)
    assert decode_range("zstd-magicless", body, _MAX) == _DATA
    body = zstandard.ZstdCompressor(write_content_size=size, write_checksum=checksum).compress(_DATA)
    assert decode_range("zstd-magicless", body.removeprefix(_MAGIC), _MAX) == _DATA


def test_a_skippable_frame_first() -> None:
    skip = struct.pack("<II", 0x184D2A50, 3) + b"abc"
    assert decode_range("zstd", skip + packed("zstd", b"x"), _MAX) == b"x"


@pytest.mark.parametrize("declared", [1 << 62, 10_000_000_000, 301])
def test_a_declared_size_is_not_believed(declared: int) -> None:
    """A single-segment header of 8 bytes of content size before one raw block of 300 bytes."""
    frame = b"\xe0" + struct.pack("<Q", declared) + (300 << 3 | 1).to_bytes(3, "little") + bytes(300)
    for codec, body in (("zstd", _MAGIC + frame), ("zstd-magicless", frame)):
        with pytest.raises(CorruptShard, match=str(declared)):
            decode_range(codec, body, 1 << 63)


def test_a_declared_size_above_the_limit_is_refused_at_once() -> None:
    with pytest.raises(LimitExceeded, match="427000"):
        decode_range("zstd", packed("zstd", _DATA + bytes(10_000)), 400_000)


def test_a_bomb_of_repeated_bytes_stops_at_the_limit() -> None:
    repeated = (128 << 10) << 3 | 1 << 1
    frame = b"\x00\x58" + struct.pack("<I", repeated) * 50_000 + struct.pack("<I", repeated | 1)
    with pytest.raises(LimitExceeded):
        decode_range("zstd-magicless", frame, 3 << 20)


def test_a_flipped_byte_is_an_error_where_there_is_a_checksum() -> None:
    body = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(_DATA))
    body[len(body) // 2] ^= 1
    with pytest.raises(CorruptShard):
        decode_range("zstd", bytes(body), _MAX)


def test_threads_have_their_own_decompressors() -> None:
    bodies = [packed("zstd", bytes([n]) * 50_000) for n in range(40)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda body: decode_range("zstd", body, _MAX), bodies))
    assert found == [bytes([n]) * 50_000 for n in range(40)]


def test_unknown_codecs() -> None:
    with pytest.raises(UsageError, match="'br'"):
        decode_range("br", b"", 1)


@pytest.mark.parametrize("magic", [False, True])
def test_frames_of_blocks_that_hold_their_content(magic: bool) -> None:
    """Blocks that do not compress are taken as they are; with other blocks among them zstd does it."""
    data = random.Random(2).randbytes(400_000)
    for content in (data, data[:1], data[: 1 << 17], data[:150_000] + bytes(200_000) + data[150_000:]):
        body = packed("zstd", content) if magic else datatrove_frame(content)
        codec = "zstd" if magic else "zstd-magicless"
        assert decode_range(codec, body, _MAX) == content
        assert decode_range(codec, body + (b"" if not magic else body), _MAX) == content * (1 + magic)
        assert decode_sized_frame(body, len(content), magicless=not magic) == content


def test_a_frame_of_very_many_small_blocks() -> None:
    """What a writer makes that flushes after every byte; or one that wants memory taken for each block."""
    for size in (0, 1):
        block = (size << 3).to_bytes(3, "little") + b"x" * size
        frame = b"\x00\x58" + block * 50_000 + b"\x01\x00\x00"
        assert decode_range("zstd-magicless", frame, _MAX) == b"x" * size * 50_000


def test_the_end_of_a_frame() -> None:
    for data in (_DATA, b"", b"x"):
        body = datatrove_frame(data, checksum=True)
        assert frame_end(body + b"next") == len(body)
        assert [frame_end(body[:size]) for size in range(1, len(body), 997)] == [None] * len(range(1, len(body), 997))
    for body in (b"", b"\x00\x58\xff\xff\xff"):
        with pytest.raises(CorruptShard):
            frame_end(body)


@pytest.mark.parametrize("declared", [False, True])
def test_a_frame_of_known_size(declared: bool) -> None:
    for data in (_DATA, _DATA[:1000], bytes(1000), b""):
        body = zstandard.ZstdCompressor(write_content_size=declared).compress(data).removeprefix(_MAGIC)
        assert decode_sized_frame(body, len(data), magicless=True) == data
        for size in {len(data) + 1, max(len(data) - 1, 0), 0, 1 << 40} - {len(data)}:
            with pytest.raises(CorruptShard):
                decode_sized_frame(body, size, magicless=True)
        for broken in (body[:-1], body + b"\0"):
            with pytest.raises(CorruptShard):
                decode_sized_frame(broken, len(data), magicless=True)


@pytest.mark.soak
def test_more_than_may_come_out_is_counted_and_not_kept() -> None:
    """A gigabyte of zeros in compressed blocks, of which nothing tells how much comes out."""
    body = datatrove_frame(bytes(1 << 30))
    tracemalloc.start()
    with pytest.raises(LimitExceeded):
        decode_range("zstd-magicless", body, 900 << 20)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("size", [False, True])
def test_a_flipped_bit_of_a_short_record_never_empties_it(size: bool, checksum: bool) -> None:
    """libzstd's one-call way gives nothing for a frame that says it is of nothing, whatever its blocks hold."""
    data = b"hello world, this is small"
    body = datatrove_frame(data, size=size, checksum=checksum)
    for at in range(8 * len(body)):
        flipped = bytearray(body)
        flipped[at // 8] ^= 1 << at % 8
        for read in (
            lambda: decode_range("zstd-magicless", flipped, _MAX),  # noqa: B023 - called at once
            lambda: decode_range("zstd", _MAGIC + flipped, _MAX),  # noqa: B023 - called at once
            lambda: decode_sized_frame(flipped, 0, magicless=True),  # noqa: B023 - called at once
        ):
            with suppress(CorruptShard, LimitExceeded):
                assert read() != b""


def test_frames_of_nothing() -> None:
    for size, checksum in ((False, False), (True, False), (True, True)):
        body = datatrove_frame(b"", size=size, checksum=checksum)
        assert decode_range("zstd-magicless", body, _MAX) == decode_range("zstd", _MAGIC + body, _MAX) == b""
        assert decode_sized_frame(body, 0, magicless=True) == b""
