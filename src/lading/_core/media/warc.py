"""Read media from web archives: a record by its offset gives what the server sent.

    record      WARC/1.0 CRLF, headers, CRLF, as many bytes as Content-Length says, CRLF CRLF; in .warc.gz a gzip member
    response    status line, headers, CRLF, body: chunked or not, and perhaps compressed once more
    otherwise   the bytes themselves

Lines may end with LF alone, as those of ClueWeb09 (WARC/0.18) do.

The module parses records itself, without fastwarc. Version 2.0.1 of that gives, without an error, the first 363 of 400
bytes of a record whose gzip member is cut, and two records as one if a length is wrong. And unpacked bytes must be
counted before they are kept.

Source: WARC 1.1 (ISO 28500:2017); RFC 9112, section 7.1; warcio 1.8.1 for what a payload is: chunks are joined and the
content's encoding is undone, unless the body does not begin as its header says, since some crawlers undo both and keep
the headers. datatrove 0.10.1, `pipeline/media/media_readers/warc.py`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lading._core.arguments import public
from lading._core.codecs import begins_brotli, stream_decoder, unpack_file
from lading._core.media.archives import Archive
from lading._core.media.reader import OnError, RecordReader
from lading._core.media.records import Unpacked
from lading._core.storage.base import Buffer
from lading._core.storage.stores import Stores
from lading.errors import CorruptShard, DataError, LimitExceeded
from lading.limits import DEFAULT_LIMITS, Limits, raised_by

__all__ = [
    "RecordSource",
    "WarcReader",
    "WarcRecord",
    "bare_uri",
    "header_lines",
    "http_parts",
    "payload_of",
    "read_record",
]

_GZIP = b"\x1f\x8b"
_MEMBER = _GZIP + b"\x08"
"""First bytes of a member; with another first byte it is a damaged member, not appended data."""
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15
_STEP_BYTES = 256 << 10
_BEGIN = b"WARC/"
_END, _END_LF = b"\r\n\r\n", b"\n\n"
_HTTP_RECORDS = ("request", "response", "revisit")
_EMPTY_LINE = re.compile(rb"\n\r?\n")
"""Ends of headers; some servers end lines with a line feed alone."""
_FOLD = re.compile(rb"\r?\n(?=[ \t])")
"""Start of a continued header line."""
_MOST_ENCODINGS = 10
"""Maximum nesting of a body's encodings, each of which may unpack to the limit; urllib3 2.8.0 accepts five."""
_LINE_END = b"\r\n"
_CHUNK = re.compile(rb"[ \t]*([0-9a-fA-F]{1,17})[ \t]*(?:;[^\r\n]*)?\r\n")
"""The line before a chunk: its size."""
_MAX_DIGITS = 18
_DIGESTS = ("md5", "sha1", "sha256")
"""Digests of blocks, in base 32 or hexadecimal."""
_BEGIN_BYTES = 64
"""Bytes of a body that show whether it is encoded as its headers say; later damage is reported."""


@public("lading.media.WarcReader")
class WarcReader(RecordReader):
    """Read the media of documents from web archives, plain or with one gzip member a record.

    The `length` of a media is only a hint: the record states its own length.

    Args:
        data_folder: folder below which the paths of media lie.
        workers: threads; one reads in the caller's thread.
        preserve_order: yield documents in their order, not as they are ready.
        limits: on what a record and its payload may unpack to (`range_bytes`), those of a document (`sample_bytes`),
            and a record's headers.
        on_error: if a record is unavailable: `error`, or `warn` (leave out the bytes and count it).
        roots: further folders that paths may lead to; absolute paths and URLs may lead there only.
        stores: store for URLs with certain beginnings.
        check_digests: check each record against the digest of its block; reading takes up to four times as long.

    Raises:
        UsageError: an option has an invalid value.

    Source: datatrove 0.10.1, `pipeline/media/media_readers/warc.py` (`WarcReaderFast`).
    """

    def __init__(
        self,
        data_folder: str | os.PathLike[str],
        workers: int = 1,
        preserve_order: bool = False,
        *,
        limits: Limits = DEFAULT_LIMITS,
        on_error: OnError = "error",
        roots: Sequence[str] = (),
        stores: Stores | None = None,
        check_digests: bool = False,
    ) -> None:
        super().__init__(
            data_folder,
            _STEP_BYTES,
            workers,
            preserve_order=preserve_order,
            on_error=on_error,
            roots=roots,
            stores=stores,
            limits=limits,
        )
        self._check_digests = check_digests

    def _read(self, archive: Archive, offset: int, length: int | None, ahead: int) -> Unpacked:  # noqa: ARG002 - hints
        source = RecordSource(archive, offset)
        try:
            with raised_by("range_bytes"):
                record = read_record(source, self._limits)
                if self._check_digests:
                    _check_digest(record)
                return payload_of(record, self._limits), source.taken
        except DataError as error:
            error.offset = offset  # codecs count offsets in unpacked bytes
            raise error.at(file=archive.name) from error.__cause__


@dataclass(frozen=True, slots=True)
class WarcRecord:
    """A record.

    Attributes:
        head: its headers, a line each.
        headers: their values, by name in lower case.
        block: its content.
    """

    head: bytes
    headers: dict[bytes, bytes]
    block: bytes


class ByteSource(Protocol):
    """A file of known size that is read by range."""

    @property
    def size_bytes(self) -> int:
        """Return its size."""

    def read(self, offset: int, length: int, /) -> Buffer:
        """Return exactly these bytes, which are inside the file."""


class RecordSource:
    """The bytes of an archive from an offset on, unpacked if a gzip member begins there."""

    def __init__(self, archive: ByteSource, offset: int) -> None:
        self._archive, self._start, self._at = archive, offset, offset
        self._body = bytearray()
        self._member = None
        if bytes(archive.read(offset, min(len(_GZIP), max(archive.size_bytes - offset, 1)))) == _GZIP:
            self._member = zlib.decompressobj(_GZIP_BITS)
        self._waiting = b""
        self._full = self._ended = False

    @property
    def taken(self) -> int:
        """Return the archive bytes of the record, as far as it was read."""
        return self._at - self._start - (len(self._body) if self._member is None else len(self._waiting))

    def headers(self, limits: Limits) -> bytes:
        """Return the bytes before an empty line, and skip that line."""
        searched = 0
        while (found := _EMPTY_LINE.search(self._body, max(searched - len(_END), 0))) is None:
            searched = len(self._body)
            if searched and not self._body.startswith(_BEGIN[:searched]):
                raise CorruptShard("no WARC record begins here", expected="headers", found=bytes(self._body[:40]))
            if searched > limits.warc_header_bytes:
                raise limits.exceeded("warc_header_bytes", "the headers of the WARC record are too long")
            self._more()
        start, stop = found.span()
        return self.take(stop)[:start]

    def end(self) -> None:
        """Skip the two line ends behind a block."""
        found = self.take(len(_END_LF))
        if found != _END_LF:
            found += self.take(len(_END) - len(found))
        if found not in (_END, _END_LF):
            raise CorruptShard("the WARC record does not end where it says", expected="two empty lines", found=found)

    def take(self, count: int) -> bytes:
        """Return exactly this many bytes."""
        while len(self._body) < count:
            self._more()
        with memoryview(self._body) as body:
            taken = bytes(body[:count])
        del self._body[:count]
        return taken

    def finish(self) -> None:
        """Go to the end of the gzip member, which must hold nothing more; this verifies its checksum."""
        while self._member is not None and not self._ended and not self._body:
            self._more()
        if self._member is not None and self._body:
            raise CorruptShard(
                "bytes follow the WARC record in its gzip member", found=bytes(self._body[:40]),
                advice="Each record needs a gzip member of its own, as 'warcio recompress' writes them.",
            )  # fmt: skip

    def _more(self) -> None:
        if self._member is None:
            self._body += self._fresh()
            return
        if self._ended:
            raise CorruptShard("the gzip member ends before the WARC record does")
        try:
            # After a full output, zlib may hold more of the input it has taken.
            data = self._waiting or (b"" if self._full else self._fresh())
            piece = self._member.decompress(data, _STEP_BYTES)
        except zlib.error as error:
            raise CorruptShard("the gzip member is damaged", found=str(error)) from error
        self._body += piece
        self._full = len(piece) == _STEP_BYTES
        self._ended = self._member.eof
        self._waiting = self._member.unused_data if self._ended else self._member.unconsumed_tail

    def _fresh(self) -> bytes:
        there = min(_STEP_BYTES, self._archive.size_bytes - self._at)
        if there <= 0:
            raise CorruptShard("the archive ends before the WARC record does")
        data = bytes(self._archive.read(self._at, there))
        self._at += there
        return data


def read_record(source: RecordSource, limits: Limits) -> WarcRecord:
    """Return the record at the beginning of a source. Raises CorruptShard, LimitExceeded."""
    head = source.headers(limits)
    first, _, rest = head.partition(b"\n")
    if not first.startswith(_BEGIN):
        raise CorruptShard("no WARC record begins here", expected="WARC/", found=first[:40])
    headers = _headers(rest)
    told = headers.get(b"content-length", b"")
    if not told.isdigit() or len(told) > _MAX_DIGITS:
        raise CorruptShard("the WARC record does not say how long it is", expected="Content-Length", found=told[:40])
    if int(told) > limits.range_bytes:
        raise _too_much(limits, int(told))
    block = source.take(int(told))
    source.end()
    source.finish()
    return WarcRecord(rest, headers, block)


def _check_digest(record: WarcRecord) -> None:
    """Check a block against the digest in its record, if kind and spelling are known."""
    name, _, told = record.headers.get(b"warc-block-digest", b"").decode("latin-1").partition(":")
    kind, told = name.strip().lower().replace("-", ""), told.strip().rstrip("=").lower()
    if kind not in _DIGESTS:
        return
    digest = hashlib.new(kind, record.block, usedforsecurity=False).digest()
    found = {len(text): text for text in (digest.hex(), base64.b32encode(digest).decode().rstrip("=").lower())}
    if told != found.get(len(told), told):
        raise CorruptShard("the WARC record is not what its digest says", expected=f"{kind}:{told}",
                           found=found[len(told)])  # fmt: skip


def http_parts(record: WarcRecord, limits: Limits) -> tuple[bytes | None, bytes]:
    """Return the status line and headers of an HTTP record, and its body as it was sent; None and the block of others.

    Raises:
        LimitExceeded: the headers are too long.
    """
    http = bare_uri(_text(record.headers.get(b"warc-target-uri", b""))).lower().startswith(("http:", "https:"))
    if not http or record.headers.get(b"warc-type", b"").decode("latin-1").lower() not in _HTTP_RECORDS:
        return None, record.block
    empty = _EMPTY_LINE.search(record.block)
    if empty is None:
        return record.block, b""  # a response of headers only
    if empty.end() > limits.warc_header_bytes:
        raise limits.exceeded("warc_header_bytes", "the headers of the response are too long")
    return record.block[: empty.start()], record.block[empty.end() :]


def payload_of(record: WarcRecord, limits: Limits) -> bytes:
    """Return the body of the server's response, decoded, or the block of another kind of record.

    Raises:
        CorruptShard: the body is not encoded as its headers say.
        LimitExceeded: it unpacks to too much.
    """
    head, body = http_parts(record, limits)
    if head is None or not body:
        return body
    headers = _headers(head.partition(b"\n")[2])
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = _joined_chunks(body)
    encodings = headers.get(b"content-encoding", b"").lower().split(b",")
    if len(encodings) > _MOST_ENCODINGS:
        raise LimitExceeded(
            "the response is encoded too often", expected=f"at most {_MOST_ENCODINGS} encodings",
            found=len(encodings), advice="No option raises this limit.",
        )  # fmt: skip
    for encoding in reversed(encodings):
        body = _decoded(encoding.strip().decode("latin-1"), body, limits)
    return body


def bare_uri(text: str) -> str:
    """Return a URI as warcio gives it: without the brackets that wget writes around it, spaces as `%20`."""
    bare = text[1:-1] if text.startswith("<") and text.endswith(">") else text
    return bare.replace(" ", "%20")


def header_lines(lines: bytes) -> list[tuple[str, str]]:
    """Return all headers in order, names as they are spelled; invalid lines are skipped."""
    found = []
    for line in _FOLD.sub(b"", lines).split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found.append((_text(name.strip()), _text(value.strip())))
    return found


def _text(raw: bytes) -> str:
    """Return the text of a header: UTF-8, or Latin-1 as warcio reads what is none."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _headers(lines: bytes) -> dict[bytes, bytes]:
    """Return headers by name in lower case; the first of a name counts, and invalid lines are skipped."""
    headers: dict[bytes, bytes] = {}
    for line in _FOLD.sub(b"", lines).split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    return headers


def _joined_chunks(body: bytes) -> bytes:
    """Return the joined chunks of a body; the body unchanged if it does not begin with a chunk."""
    begin = _CHUNK.match(body)
    if begin is None:
        return body
    joined, view, at = bytearray(), memoryview(body), 0
    while begin is not None and (size := int(begin[1], 16)):
        start = begin.end()
        at = start + size + len(_LINE_END)
        if body[at - len(_LINE_END) : at] != _LINE_END:
            raise CorruptShard("a chunk of the response does not end where it says", expected=f"{size} bytes")
        joined += view[start : start + size]
        begin = _CHUNK.match(body, at)
    if begin is None:
        raise CorruptShard("the chunks of the response end too early", expected="a chunk", found=body[at : at + 20])
    return bytes(joined)


def _decoded(encoding: str, body: bytes, limits: Limits) -> bytes:
    """Return a body without its encoding; unchanged if it does not begin that way, or the encoding is unknown."""
    if not body:
        return body
    if encoding in {"gzip", "x-gzip"} and body.startswith(_GZIP):
        return _gunzipped(body, limits)
    if encoding == "deflate":
        zlib_header = body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0  # noqa: PLR2004 - RFC 1950
        bits = _ZLIB_BITS if zlib_header else _RAW_BITS
        return _inflated(body, bits, limits) if _begins_deflated(body, bits) else body
    if encoding == "br" and begins_brotli(body[:_BEGIN_BYTES]):
        return unpack_file("brotli", body, limits.range_bytes)
    return body


def _gunzipped(body: bytes, limits: Limits) -> bytes:
    """Return the unpacked gzip members of a body; trailing data that is not a member is skipped, as the peer does."""
    decoder = stream_decoder("gzip", limits)
    pieces, total = [], 0
    try:
        for piece in decoder.feed(body):
            total += len(piece)
            if total > limits.range_bytes:
                raise _too_much(limits)
            pieces.append(piece)
        decoder.finish()
    except CorruptShard:
        rest = body[decoder.whole_bytes :].lstrip(b"\0")
        if not decoder.whole_bytes or rest.startswith(_GZIP) or rest[1 : len(_MEMBER)] == _MEMBER[1:]:
            raise
    return b"".join(pieces)


def _begins_deflated(body: bytes, bits: int) -> bool:
    try:
        zlib.decompressobj(bits).decompress(body[:_BEGIN_BYTES])
    except zlib.error:
        return False
    return True


def _inflated(body: bytes, bits: int, limits: Limits) -> bytes:
    member = zlib.decompressobj(bits)
    try:
        content = member.decompress(body, limits.range_bytes + 1)
    except zlib.error as error:
        raise CorruptShard("the response's encoding is damaged", found=str(error)) from error
    if len(content) > limits.range_bytes:
        raise _too_much(limits)
    if not member.eof or member.unused_data:
        found = "bytes after its end" if member.eof else f"its end after {len(content)} bytes"
        raise CorruptShard("the response's encoding is damaged", found=found)
    return content


def _too_much(limits: Limits, found: int | None = None) -> LimitExceeded:
    told = "more" if found is None else f"{found} bytes"
    return limits.exceeded("range_bytes", "the WARC record is too long", found=told)
