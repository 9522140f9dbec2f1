"""Payloads of web archives, by hand-made records; damage is an error with its place."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import brotli
import pytest

import lading
from lading.errors import CorruptShard, DataError, LimitExceeded, UsageError
from lading.limits import Limits
from lading.media import WarcReader
from media import medium

_BODY = b"what the server sent " * 40
_NOISE = random.Random(5).randbytes(4000) + _BODY
_HTTP = b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n"


def zipped(data: bytes) -> bytes:
    """A gzip member without a time: names of tests are made of it, and must be the same in every process."""
    return gzip.compress(data, mtime=0)


def record(block: bytes, kind: str = "response", length: int | None = None, uri: str = "http://example.org/") -> bytes:
    size = len(block) if length is None else length
    head = f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\ncontent-length:{size}"
    return head.encode() + b"\r\n\r\n" + block + b"\r\n\r\n"


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nTrailer: x\r\n\r\n"


def read(folder: Path, body: bytes, name: str = "a.warc", offset: int = 0, **options: Any) -> bytes | None:
    (folder / name).write_bytes(body)
    return WarcReader(folder, **options).read_media_record(medium(path=name, offset=offset))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize(
    "block, kind, payload",
    [
        (_HTTP + b"\r\n" + _BODY, "response", _BODY),
        (_HTTP + b"\r\n", "response", b""),
        (b"HTTP/1.1 304 Not Modified", "revisit", b""),
        (_HTTP + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(_BODY[:7], _BODY[7:]), "response", _BODY),
        (_HTTP + b"Transfer-Encoding: chunked\r\n\r\n" + _BODY, "response", _BODY),
        (_HTTP + b"CONTENT-ENCODING: gzip\r\n\r\n" + zipped(_BODY), "response", _BODY),
        (_HTTP + b"Content-Encoding: gzip\r\n\r\n" + _BODY, "response", _BODY),
        (_HTTP + b"Content-Encoding: x-gzip\r\n\r\n" + zipped(_BODY) * 2, "response", _BODY * 2),
        (_HTTP + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(_BODY), "response", _BODY),
        (_HTTP + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(_BODY)[2:-4], "response", _BODY),
        (_HTTP + b"Content-Encoding: br\r\n\r\n" + brotli.compress(_BODY), "response", _BODY),
        (_HTTP + b"Content-Encoding: identity\r\n\r\n" + _BODY, "response", _BODY),
        (_HTTP + b"Content-Encoding: gzip, br\r\n\r\n" + brotli.compress(zipped(_BODY)), "response", _BODY),
        (
            _HTTP + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(zipped(_BODY)),
            "response",
            _BODY,
        ),
        (_HTTP + b"\r\n" + _BODY, "resource", _HTTP + b"\r\n" + _BODY),
        (bytes(3 << 20), "conversion", bytes(3 << 20)),
    ],
)
def test_payloads(tmp_path: Path, packed: bool, before: int, block: bytes, kind: str, payload: bytes) -> None:
    def stored(whole: bytes) -> bytes:
        return zipped(whole) if packed else whole

    first, wanted, last = (stored(record(body, kind)) for body in (b"first" * before, block, b"last"))
    reader = WarcReader(tmp_path)
    (tmp_path / "a.warc").write_bytes(first + wanted + last)
    found = reader.read_media_record(medium(path="a.warc", offset=len(first)))
    assert found == payload
    assert (reader.stats.payload_bytes, reader.stats.stored_bytes) == (len(payload), len(wanted))


@pytest.mark.parametrize("packed", [False, True])
def test_cut_at_every_byte(tmp_path: Path, packed: bool) -> None:
    whole = record(_HTTP + b"\r\n" + _BODY[:50])
    body = zipped(whole) if packed else whole
    for size in range(len(body)):
        with pytest.raises(DataError, match=r"a\.warc @ 0"):
            read(tmp_path, body[:size])


@pytest.mark.soak
def test_flipped_bits_in_a_gzip_member_never_change_the_payload(tmp_path: Path) -> None:
    """The header holds a time and names that nobody reads; the last byte of a deflate stream has bits to spare."""
    body = zipped(record(_HTTP + b"\r\n" + _BODY[:50]))
    unseen = 0
    for bit in range(80, 8 * len(body)):
        flipped = bytearray(body)
        flipped[bit // 8] ^= 1 << bit % 8
        with suppress(CorruptShard):
            assert read(tmp_path, bytes(flipped)) == _BODY[:50]
            unseen += 1
    assert unseen < 8


@pytest.mark.parametrize(
    "block",
    [
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nno size\r\n",
        b"Content-Encoding: gzip\r\n\r\n" + zipped(_BODY)[:-1],
        b"Content-Encoding: gzip\r\n\r\n" + zipped(_BODY)[:30] + b"\xff" * 30,
        b"Content-Encoding: gzip\r\n\r\n" + zipped(_BODY) + bytes(3) + zipped(_BODY)[:-9],
        b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(_BODY) + b"more",
        b"Content-Encoding: br\r\n\r\n" + brotli.compress(_BODY)[:-3],
        b"Content-Encoding: br\r\n\r\n" + brotli.compress(_NOISE)[:100] + b"\xff" * 100,
        b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(_NOISE)[:100] + b"\xff" * 100,
    ],
)
def test_damaged_responses(tmp_path: Path, block: bytes) -> None:
    with pytest.raises(CorruptShard, match=r"a\.warc @ 0"):
        read(tmp_path, record(_HTTP + block))


@pytest.mark.parametrize(
    "body",
    [
        b"no record\r\n\r\n",
        record(b"x", length=0),
        record(b"x", length=2),
        record(b"x", length=1 << 40),
        b"WARC/1.0\r\nContent-Length: -1\r\n\r\n",
        b"WARC/1.0\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"WARC/1.0\r\n\r\n",
        b"WARC/1.0 " + bytes(3 << 20),
        zipped(record(b"x") + b"more"),
    ],
)
def test_damaged_records(tmp_path: Path, body: bytes) -> None:
    with pytest.raises((CorruptShard, LimitExceeded), match=r"a\.warc @ 0"):
        read(tmp_path, body)


@pytest.mark.cases(1)
@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br"])
def test_what_unpacks_to_too_much(tmp_path: Path, encoding: bytes) -> None:
    zeros = bytes(30 << 20)
    packed = {b"gzip": zipped, b"deflate": zlib.compress, b"br": lambda data: brotli.compress(data, quality=3)}
    body = record(_HTTP + b"Content-Encoding: " + encoding + b"\r\n\r\n" + packed[encoding](zeros))
    assert read(tmp_path, body, limits=Limits(range_bytes=30 << 20)) == zeros
    with pytest.raises(LimitExceeded, match="range_bytes"):
        read(tmp_path, body, limits=Limits(range_bytes=29 << 20))


@pytest.mark.soak
def test_a_gzip_member_that_never_ends(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded):
        read(tmp_path, zipped(record(bytes(30 << 20))), limits=Limits(range_bytes=29 << 20))
    with pytest.raises(CorruptShard, match="no WARC record"):
        read(tmp_path, zipped(bytes(30 << 20)))


@pytest.mark.parametrize("size", [*range((256 << 10) - 260, (256 << 10) - 60, 7), 1 << 20])
def test_a_last_member_whose_end_zlib_holds_back(tmp_path: Path, size: int) -> None:
    assert read(tmp_path, zipped(record(bytes(size), "conversion"))) == bytes(size)


@pytest.mark.parametrize("body", [_BODY, b"\xff\xff\xff\xff", b""])
@pytest.mark.parametrize("word", [b"UTF-8", b"compress", b"zstd", b"deflate", b"br", b"gzip"])
def test_bodies_that_are_not_encoded_as_told_or_as_anybody_knows(tmp_path: Path, word: bytes, body: bytes) -> None:
    assert read(tmp_path, record(_HTTP + b"Content-Encoding: " + word + b"\r\n\r\n" + body)) == body


@pytest.mark.parametrize("rest", [b"\0", bytes(2), b"more", b"<!-- from the cache -->", b"\x1f"])
@pytest.mark.parametrize("members", [1, 2])
def test_what_follows_the_gzip_of_a_response_is_passed_over(tmp_path: Path, members: int, rest: bytes) -> None:
    """As warcio 1.8.1 does behind a first member; servers append to what they have compressed."""
    body = record(_HTTP + b"Content-Encoding: gzip\r\n\r\n" + zipped(_BODY) * members + rest)
    assert read(tmp_path, body) == _BODY * members


def test_a_second_member_whose_first_byte_is_damaged_is_not_passed_over(tmp_path: Path) -> None:
    second = bytearray(zipped(_BODY))
    second[0] ^= 1
    with pytest.raises(CorruptShard):
        read(tmp_path, record(_HTTP + b"Content-Encoding: gzip\r\n\r\n" + zipped(_BODY) + bytes(second)))


@pytest.mark.parametrize(
    "block, payload",
    [
        (b"HTTP/1.1 200 OK\nContent-Type: text/html\n\nBODY one\r\n\r\ntwo", b"BODY one\r\n\r\ntwo"),
        (b"HTTP/1.1 200 OK\nContent-Encoding: gzip\n\n" + zipped(_BODY), _BODY),
        (b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n" + chunked(_BODY[:7], _BODY[7:]), _BODY),
        (b"HTTP/1.1 200 OK\r\nA: b\n\r\nbody", b"body"),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n", b""),
    ],
)
def test_headers_whose_lines_end_with_a_line_feed(tmp_path: Path, block: bytes, payload: bytes) -> None:
    assert read(tmp_path, record(block)) == payload


@pytest.mark.parametrize("told", [b"20", b"\r\n 20", b"20\r\nX-Foo: a\r\n Content-Length: 1\r\n\tContent-Length: 2"])
@pytest.mark.parametrize("before", [b"", b"X-Foo: a\r\n Content-Length: 1\r\n\tContent-Length: 2\r\n"])
def test_folded_headers_of_records(tmp_path: Path, told: bytes, before: bytes) -> None:
    body = b"WARC/1.1\r\n" + before + b"Content-Length: " + told + b"\r\n\r\n" + bytes(20) + b"\r\n\r\n"
    assert read(tmp_path, body) == bytes(20)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_folded_headers_of_responses(tmp_path: Path, end: bytes) -> None:
    lines = [b"HTTP/1.1 200 OK", b"X-Foo: a", b" Content-Encoding: br", b"Content-Encoding:", b"\tgzip", b"", b""]
    assert read(tmp_path, record(end.join(lines) + zipped(_BODY))) == _BODY


def _with_digest(digest: str, block: bytes) -> bytes:
    return record(block, uri=f"http://example.org/\r\nWARC-Block-Digest: {digest}")


@pytest.mark.parametrize("kind, name", [("sha1", "sha1"), ("sha256", "SHA-256"), ("md5", "md5")])
@pytest.mark.parametrize("spelled", ["base32", "hex"])
def test_a_record_is_held_against_the_digest_of_its_block(tmp_path: Path, kind: str, name: str, spelled: str) -> None:
    """One bit of the empty line made a body vanish; WARC 1.1, 5.8 and 5.9: the algorithm, a colon, and the value."""
    block = _HTTP + b"\r\n" + _BODY
    digest = hashlib.new(kind, block, usedforsecurity=False).digest()
    text = digest.hex().upper() if spelled == "hex" else base64.b32encode(digest).decode()
    whole = _with_digest(f"{name}:{text}", block)
    assert read(tmp_path, whole, check_digests=True) == _BODY
    damaged = bytearray(whole)
    damaged[whole.index(_BODY) - 2] ^= 4
    with pytest.raises(CorruptShard, match="digest says"):
        read(tmp_path, bytes(damaged), check_digests=True)


@pytest.mark.parametrize("digest", ["", "sha1", "sha1:", "crc32:00000000", "sha1:2jmj7l5rSw0yVb/vlWAYkK/YBwk="])
def test_digests_that_nobody_knows_are_passed_over(tmp_path: Path, digest: str) -> None:
    """Of another kind, or in another spelling, as base 64."""
    assert read(tmp_path, _with_digest(digest, _HTTP + b"\r\n" + _BODY), check_digests=True) == _BODY


@pytest.mark.parametrize("view", ["samples", "interleaved"])
def test_a_deep_verification_looks_at_digests(tmp_path: Path, view: str) -> None:
    block = _HTTP + b"\r\n" + _BODY
    whole = _with_digest(f"sha1:{hashlib.sha1(block, usedforsecurity=False).hexdigest()}", block)
    (tmp_path / "d.jsonl").write_text(json.dumps({"id": "d", "media": [medium(path="a.warc", offset=0)]}))
    for body, wrong in ((whole, 0), (whole.replace(_BODY, _BODY[:-1] + b"x"), 1)):
        (tmp_path / "a.warc").write_bytes(body)
        done = lading.verify(tmp_path / "d.jsonl", format="media_archive", view=view, options={"archives": "warc"},
                             deep=True)  # fmt: skip
        assert len(done.findings) == wrong


def test_headers_of_responses_that_are_too_long(tmp_path: Path) -> None:
    head = _HTTP + b"ab\n" * 1000 + b"\r\n"
    assert read(tmp_path, record(head + _BODY), limits=Limits(warc_header_bytes=len(head))) == _BODY
    limits = Limits(warc_header_bytes=len(head) - 3)
    with pytest.raises(LimitExceeded, match=r"a\.warc @ 0: .*--max warc_header_bytes"):
        read(tmp_path, record(head + _BODY), limits=limits)
    assert read(tmp_path, record(head[:-2]), limits=limits) == b""


def test_responses_without_an_empty_line(tmp_path: Path) -> None:
    """They have headers only, of whatever length, as for warcio 1.8.1."""
    assert read(tmp_path, record(b"x" * (2 << 20))) == b""


@pytest.mark.parametrize("word", [b"gzip", b"br", b"deflate", b"none that is known"])
def test_responses_that_are_encoded_too_often(tmp_path: Path, word: bytes) -> None:
    def block(count: int) -> bytes:
        return _HTTP + b"Content-Encoding: " + b",".join([word] * count) + b"\r\n\r\n" + _BODY

    assert read(tmp_path, record(block(10))) == _BODY
    with pytest.raises(LimitExceeded, match=r"a\.warc @ 0: .* at most 10 encodings, found 11\. No option"):
        read(tmp_path, record(block(11)))


@pytest.mark.soak
def test_many_chunks_take_the_memory_of_what_they_hold(tmp_path: Path) -> None:
    body = record(_HTTP + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nX\r\n" * 200_000 + b"0\r\n\r\n")
    reader = WarcReader(tmp_path)
    (tmp_path / "a.warc").write_bytes(body)
    tracemalloc.start()
    assert reader.read_media_record(medium(path="a.warc", offset=0)) == b"X" * 200_000
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 5 * len(body)


def test_documents_in_threads(tmp_path: Path) -> None:
    bodies = [zipped(record(_HTTP + b"\r\n%d" % at)) for at in range(30)]
    (tmp_path / "a.warc.gz").write_bytes(b"".join(bodies))
    media = [medium(path="a.warc.gz", offset=sum(map(len, bodies[:at])), length=5) for at in range(30)]
    reader = WarcReader(tmp_path, 3, preserve_order=True)
    found = [doc["media"][0]["media_bytes"] for doc in reader.run([{"media": [one]} for one in media])]
    assert found == [b"%d" % at for at in range(30)]
    with pytest.raises(UsageError):
        WarcReader(tmp_path, 0)
