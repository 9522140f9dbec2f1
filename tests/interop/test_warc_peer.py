"""warcio writes, and lading reads the same records as warcio."""

from __future__ import annotations

import gc
import gzip
import io
import json
import zlib
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import lading
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.warc.format import FORMAT
from lading._core.storage.memory import MemoryStore
from peers import import_peer

writer = import_peer("warcio.warcwriter")
headers = import_peer("warcio.statusandheaders")
iterator = import_peer("warcio.archiveiterator")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

BODIES = [
    (b"", []),
    (b"<html>\xff</html>", [("Content-Type", "text/html"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]),
    (gzip.compress(b"packed" * 999), [("Content-Encoding", "gzip")]),
    (zlib.compress(b"packed" * 999), [("Content-Encoding", "deflate")]),
    (b"5\r\nchunk\r\n0\r\n\r\n", [("Transfer-Encoding", "chunked")]),
    (b"x" * 5_000_000, []),
]


@pytest.mark.cases(1)
@pytest.mark.parametrize("packed", [True, False])
def test_records(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("t.warc.gz" if packed else "t.warc")
    with path.open("wb") as file:
        out = writer.WARCWriter(file, gzip=packed)
        out.write_record(out.create_warcinfo_record("t.warc", {"software": "a test", "é": "ü"}))
        for number, (body, fields) in enumerate(BODIES):
            http = headers.StatusAndHeaders("200 OK", fields, protocol="HTTP/1.1")
            response = out.create_warc_record(f"http://a.b/{number}", "response", io.BytesIO(body), http_headers=http)
            ask = headers.StatusAndHeaders("GET / HTTP/1.1", [("Host", "a.b")], is_http_request=True)
            request = out.create_warc_record(f"http://a.b/{number}", "request", io.BytesIO(b""), http_headers=ask)
            out.write_request_response_pair(request, response)
        out.write_record(out.create_warc_record("urn:x", "metadata", io.BytesIO(b"k: v"), warc_content_type="text/x"))
    with lading.open(path) as dataset:
        found = list(dataset.samples(raw=True))
        assert [dataset[i]["record_id"] for i in range(len(dataset))] == [row["record_id"] for row in found]
    with path.open("rb") as file:
        for row, record in zip(found, iterator.ArchiveIterator(file), strict=True):
            assert row["record_type"] == record.rec_type
            assert row.get("content", b"") == record.content_stream().read()
            own = record.rec_headers
            for column, name in (("record_id", "WARC-Record-ID"), ("uri", "WARC-Target-URI"), ("date", "WARC-Date"),
                                 ("content_type", "Content-Type")):  # fmt: skip
                assert row.get(column) == own.get_header(name)
            assert json.loads(row["headers"]) == dict(own.headers)
            if record.rec_type == "response":
                assert str(row["http_status"]) == record.http_headers.get_statuscode()
            if record.http_headers is not None:
                told = json.loads(row["http_headers"])
                for name, value in told.items():
                    assert [v for n, v in record.http_headers.headers if n == name] == (
                        value if isinstance(value, list) else [value]
                    )
    gc.collect()  # warcio leaves files open


URIS = ["http://a.b/1", "<http://a.b/2>", "http://a.b/a b c", "<http://a.b/d e>", "<http://a.b/f", "http://a.b/g>",
        "http://a.b/\r\n folded"]  # fmt: skip


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("version", ["WARC/0.18", "WARC/1.0"])
@pytest.mark.parametrize("ends", [["\n"], ["\r\n"], ["\n", "\r\n"], ["\r\n", "\n"]])
def test_line_ends_and_uris(ends: list[str], version: str, packed: bool) -> None:
    """Lines end with LF as in ClueWeb09, with CR LF, or with both; a block is as long as its record says."""
    parts = []
    for number, uri in enumerate(URIS):
        http = b"HTTP/1.1 200 OK\nA: b\n\n<p>%d\r\n\r\n</p>\n\n" % number
        lines = [version, "WARC-Type: response", f"WARC-Target-URI: {uri}", "WARC-Date: 2009-01-13T18:05:10Z",
                 f"WARC-Record-ID: <urn:uuid:{number}>", f"Content-Length: {len(http)}", ""]  # fmt: skip
        head = "".join(line + end for line, end in zip(lines, cycle(ends), strict=False)).encode()
        parts.append(head + http + 2 * ends[0].encode())
    data = b"".join(map(gzip.compress, parts) if packed else parts)
    expected = [
        {"record_type": one.rec_type, "uri": one.rec_headers.get_header("WARC-Target-URI"),
         "content": one.content_stream().read()}
        for one in iterator.ArchiveIterator(io.BytesIO(data))
    ]  # fmt: skip
    opened = FORMAT.open(ShardFile(MemoryStore({"t.warc": data}), "t.warc"), FORMAT.read_options({}))
    columns = Scan(["record_type", "uri", "content"])
    assert opened.read(scan=columns).to_pylist() == expected
    assert opened.read(np.array([len(URIS) - 1]), columns).to_pylist() == expected[-1:]
    if not packed:
        damaged = b"".join([*parts[:2], parts[2].replace(b"Length: ", b"Length: x"), *parts[3:]])
        found = FORMAT.recover(ShardFile(MemoryStore({"t.warc": damaged}), "t.warc"), FORMAT.read_options({}))
        assert found is not None
        kept = [damaged[at : at + size] for at, size in zip(found.offset, found.length, strict=True)]
        assert (kept, found.lost_samples) == ([*parts[:2], *parts[3:]], 1)
