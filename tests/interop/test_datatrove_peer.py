"""datatrove reads what lading writes, and lading what datatrove writes: the same bytes, at the same places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading.media import MediaReader, MediaWriter
from media import pictures
from peers import import_peer

data = import_peer("datatrove.data")
readers = import_peer("datatrove.pipeline.media.media_readers.zstd")
writers = import_peer("datatrove.pipeline.media.media_writers.zstd")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

CONTENTS = [
    b"",
    b"x",
    *pictures(20),
    *(bytes(size) for size in (131_071, 131_072, 131_073, 1 << 18, 3 << 17, 1 << 20)),
    *(picture for size in (1 << 17, 1 << 18, 5_000_001) for picture in pictures(2, size)),
    *(pictures(1, size)[0][: size // 2] + bytes(range(256)) * (size // 512) for size in (200_000, 300_000, 500_000)),
]
"""The last ones change within a block, where zstd may split it."""


def peer_documents(contents: list[bytes | None]) -> list[Any]:
    """Three media a document."""
    media = [data.Media(id=str(at), type=0, url="", media_bytes=content) for at, content in enumerate(contents)]
    return [data.Document(text="", id=str(at), media=media[at : at + 3]) for at in range(0, len(media), 3)]


def places(documents: list[Any]) -> list[tuple[str, int, int]]:
    return [(one.path, one.offset, one.length) for doc in documents for one in doc.media]


def blanked(documents: list[Any]) -> Iterator[Any]:
    for doc in documents:
        for one in doc.media:
            one.media_bytes = None
        yield doc


def contents(documents: list[Any]) -> list[bytes]:
    return [one.media_bytes for doc in sorted(documents, key=lambda doc: int(doc.id)) for one in doc.media]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "name, max_file_size, level",
    [
        (None, 5 << 30, 3),
        (None, 100_000, 3),
        ("a/${rank}/part.zst", 1 << 20, 3),
        ("${rank}.x", -1, 9),
        (None, 5 << 30, -2),
    ],
)
def test_the_files_are_the_same(tmp_path: Path, name: str | None, max_file_size: int, level: int, workers: int) -> None:
    theirs, ours = peer_documents(CONTENTS), peer_documents(CONTENTS)
    peer = writers.ZstdWriter(str(tmp_path / "peer"), name, max_file_size, level)
    list(peer.run(theirs, rank=12))
    with MediaWriter(tmp_path / "own", name, max_file_size, level, workers=workers) as writer:
        list(writer.run(ours, rank=12))
    assert files(tmp_path / "own") == files(tmp_path / "peer")
    assert places(ours) == places(theirs)


@pytest.mark.parametrize("options", [{}, {"content_size": True, "checksum": True}, {"checksum": True}])
@pytest.mark.parametrize("workers, ordered", [(1, False), (3, True)])
def test_datatrove_reads_what_lading_writes(
    tmp_path: Path, options: dict[str, Any], workers: int, ordered: bool
) -> None:
    written = peer_documents(CONTENTS)
    with MediaWriter(tmp_path, **options) as writer:
        list(writer.run(written))
    peer = readers.ZstdReader(str(tmp_path), workers=workers, preserve_order=ordered)
    assert contents(list(peer.run(blanked(written)))) == CONTENTS


@pytest.mark.parametrize("workers, ordered", [(1, False), (3, True), (3, False)])
def test_lading_reads_what_datatrove_writes(tmp_path: Path, workers: int, ordered: bool) -> None:
    written = list(writers.ZstdWriter(str(tmp_path), max_file_size=1 << 20).run(peer_documents(CONTENTS)))
    reader = MediaReader(str(tmp_path), 20 << 20, workers, 4, ordered)
    assert contents(list(reader.run(blanked(written)))) == CONTENTS


def test_version_1_as_datatrove_reads_it(tmp_path: Path) -> None:
    """Nothing writes it any more; both read what `ZstdReader` expects: the length before the frame, in eight bytes."""
    written = list(writers.ZstdWriter(str(tmp_path / "two"), max_file_size=-1).run(peer_documents(CONTENTS)))
    old = (tmp_path / "two/00000.bin.zst").read_bytes()
    body = bytearray()
    for doc in written:
        for one in doc.media:
            frame, one.offset = old[one.offset : one.offset + one.length], len(body)
            body += len(one.media_bytes).to_bytes(8, "big") + frame
            one.length = None
    (tmp_path / "one").mkdir()
    (tmp_path / "one/00000.bin.zst").write_bytes(body)
    for kind in (readers.ZstdReader, MediaReader):
        reader = kind(str(tmp_path / "one"), offset_byte_size=8)
        found = contents(list(reader.run(blanked(written))))
        assert found == CONTENTS


@pytest.mark.soak
def test_records_of_web_archives(tmp_path: Path) -> None:
    warc = import_peer("datatrove.pipeline.media.media_readers.warc")
    warcio = import_peer("warcio.warcwriter")
    headers = import_peer("warcio.statusandheaders")
    io = import_peer("io")
    from lading.media import WarcReader

    written = peer_documents(CONTENTS)
    with (tmp_path / "a.warc.gz").open("wb") as out:
        writer = warcio.WARCWriter(out, gzip=True)
        for doc in written:
            for one in doc.media:
                one.path, one.offset = "a.warc.gz", out.tell()
                answer = headers.StatusAndHeaders("200 OK", [("Content-Type", "image/jpeg")], protocol="HTTP/1.1")
                body = io.BytesIO(one.media_bytes)
                kind = {"payload": body, "http_headers": answer, "length": len(one.media_bytes)}
                writer.write_record(writer.create_warc_record("http://example.org/", "response", **kind))
    for kind_of_reader in (warc.WarcReaderFast, WarcReader):
        assert contents(list(kind_of_reader(str(tmp_path)).run(blanked(written)))) == CONTENTS


@pytest.mark.parametrize(
    "block",
    [
        b"HTTP/1.1 200 OK\nContent-Type: text/html\n\nBODY one",
        b"HTTP/1.1 200 OK\nContent-Type: text/html\n\nBODY one\r\n\r\ntwo",
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n",
        pytest.param(b"x" * (2 << 20), id="no-empty-line"),
        b"HTTP/1.1 200 OK\r\nA: b\r\n Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        *(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\n\r\nnot encoded at all" % word
            for word in (b"UTF-8", b"compress", b"deflate", b"gzip")
        ),
    ],
)
def test_odd_responses_are_what_warcio_says(tmp_path: Path, block: bytes) -> None:
    archives = import_peer("warcio.archiveiterator")
    io = import_peer("io")
    from lading.media import WarcReader

    head = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://example.org/\r\n"
    head += "X-Folded: a\r\n Content-Length: 1\r\n"
    body = f"{head}Content-Length: {len(block)}\r\n\r\n".encode() + block + b"\r\n\r\n"
    (tmp_path / "a.warc").write_bytes(body)
    [told] = [record.content_stream().read() for record in archives.ArchiveIterator(io.BytesIO(body))]
    assert WarcReader(tmp_path).read_media_record({"path": "a.warc", "offset": 0, "length": None}) == told
