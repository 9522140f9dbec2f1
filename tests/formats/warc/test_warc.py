"""WARC files as rows: records as ISO 28500 spells them, and those of warcio in the golden files."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lading
from golden_cases import Golden
from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.registry import find_format
from lading._core.formats.warc.format import FORMAT
from lading._core.formats.warc.reader import WarcShardReader
from lading._core.storage.memory import MemoryStore
from lading.errors import CorruptShard, LimitExceeded, UsageError
from lading.limits import DEFAULT_LIMITS, Limits

_ALL = 1 << 40


def record(kind: str, block: bytes, *headers: str) -> bytes:
    lines = ["WARC/1.1", f"WARC-Type: {kind}", *headers, f"Content-Length: {len(block)}", "", ""]
    return "\r\n".join(lines).encode() + block + b"\r\n\r\n"


def response(number: int, body: bytes, *headers: str) -> bytes:
    http = "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode() + body
    return record("response", http, f"WARC-Target-URI: <http://a.b/{number}>", f"WARC-Record-ID: <urn:uuid:{number}>",
                  "WARC-Date: 2024-01-01T00:00:00Z", "Content-Type: application/http")  # fmt: skip


RECORDS = [
    record("warcinfo", b"software: x\r\n", "X: 1", "X: 2", "X: 3"),
    response(1, b"<p>1</p>", "Content-Type: text/html", "Set-Cookie: a", "Set-Cookie: b"),
    response(2, gzip.compress(b"<p>2</p>" * 99), "Content-Encoding: gzip"),
    response(3, b"4\r\nchun\r\n2\r\nks\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
    response(4, gzip.compress(b"cut" * 9999)[:-9], "Content-Encoding: gzip"),
    record("resource", b"\x89PNG", "WARC-Target-URI: ftp://a.b/c.png", "Content-Type: image/png"),
]
CONTENT = [b"software: x\r\n", b"<p>1</p>", b"<p>2</p>" * 99, b"chunks", gzip.compress(b"cut" * 9999)[:-9], b"\x89PNG"]


def reader(data: bytes, path: str = "t.warc", limits: Limits = DEFAULT_LIMITS) -> WarcShardReader:
    return FORMAT.open(ShardFile(MemoryStore({path: data}), path, limits=limits), FORMAT.read_options({}))


def rows(data: bytes, path: str = "t.warc") -> list[dict[str, Any]]:
    """All rows, streamed, read whole and read at random, which must agree."""
    opened = reader(data, path)
    streamed = pa.Table.from_batches(opened.batches(Scan(max_rows=2, max_bytes=_ALL)), opened.schema())
    assert opened.read() == streamed
    order = np.arange(opened.num_rows())[::-1]
    assert opened.read(order) == streamed.take(pa.array(order))
    assert opened.read(order, Scan(["uri"])) == streamed.take(pa.array(order)).select(["uri"])
    return streamed.to_pylist()


@pytest.mark.parametrize("way", ["plain", "gzip", "more line ends"])
def test_a_record_is_a_row(way: str) -> None:
    data = b"".join(map(gzip.compress, RECORDS)) if way == "gzip" else b"".join(RECORDS)
    data = b"\r\n\r\n".join(RECORDS) if way == "more line ends" else data
    found = rows(data, "t.warc.gz" if way == "gzip" else "t.warc")
    assert [row["content"] for row in found] == CONTENT
    assert found[1] | {"headers": None} == {
        "record_type": "response",
        "record_id": "<urn:uuid:1>",
        "uri": "http://a.b/1",
        "date": "2024-01-01T00:00:00Z",
        "content_type": "application/http",
        "headers": None,
        "http_status": 200,
        "http_headers": '{"Content-Type":"text/html","Set-Cookie":["a","b"]}',
        "content": b"<p>1</p>",
    }
    assert json.loads(found[0]["headers"]) == {"WARC-Type": "warcinfo", "X": ["1", "2", "3"], "Content-Length": "13"}
    assert [row["http_status"] for row in found] == [None, 200, 200, 200, 200, None]
    opened = reader(data, "t.warc.gz" if way == "gzip" else "t.warc")
    list(opened.batches(Scan(max_rows=9, max_bytes=_ALL)))
    assert opened.counts == {"responses that are not encoded as their headers say, kept as they were sent": 1}


def test_it_is_known_by_name_and_content() -> None:
    assert find_format("a.warc.gz", b"\x1f\x8b").name == "warc"
    assert find_format("a.WARC", b"").name == "warc"
    assert find_format("a", RECORDS[0]).name == "warc"


@pytest.mark.parametrize("size", [1, 40, 1000])
@pytest.mark.parametrize("packed", [True, False])
def test_a_cut_file_gives_the_records_before(packed: bool, size: int) -> None:
    parts = list(map(gzip.compress, RECORDS)) if packed else RECORDS
    data = b"".join(parts)[:-size] if size < 1000 else parts[0] + parts[1][:50]
    batches = reader(data).batches(Scan(max_rows=1, max_bytes=_ALL))
    whole = 5 if size < 1000 else 1
    for _ in range(whole):
        next(batches)
    with pytest.raises(CorruptShard, match=r"t\.warc") as caught:
        next(batches)
    assert caught.value.offset == len(b"".join(parts[:whole]))


def test_what_is_no_warc() -> None:
    with pytest.raises(CorruptShard, match="the file is empty"):
        rows(b"")
    with pytest.raises(CorruptShard, match="no WARC record begins here"):
        rows(b"<html>")
    with pytest.raises(CorruptShard, match="gzip member of its own, as 'warcio recompress'"):
        rows(gzip.compress(b"".join(RECORDS)))
    with pytest.raises(LimitExceeded, match="range_bytes"):
        reader(RECORDS[2], limits=Limits(range_bytes=300)).read()
    with pytest.raises(UsageError, match="no such row"):
        reader(RECORDS[0]).read(np.array([1]))


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\r\n\r", b"\nx", b"x\n"])
def test_a_record_that_does_not_end_with_two_line_ends(end: bytes) -> None:
    head = b"WARC/1.0\nWARC-Type: resource\nContent-Length: 2\n\n"
    with pytest.raises(CorruptShard, match=r"t\.warc @ 0: the (archive ends before|WARC record does not end)"):
        rows(head + b"ab" + end)


@pytest.mark.soak
@pytest.mark.parametrize("packed", [True, False])
def test_every_verb(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("t.warc.gz" if packed else "t.warc")
    path.write_bytes(b"".join(map(gzip.compress, RECORDS)) if packed else b"".join(RECORDS))
    assert lading.info(path).samples == 6
    assert lading.verify(path, deep=True).ok
    with lading.open(tmp_path) as dataset:
        assert dataset[3]["content"] == b"chunks"
        assert dataset[1]["http_headers"] == {"Content-Type": "text/html", "Set-Cookie": ["a", "b"]}
    for form in ("parquet", "webdataset"):
        assert lading.convert(path, tmp_path / "out" / form, format=form, verify=True).samples == 6


@pytest.mark.parametrize("packed", [True, False])
def test_salvage(tmp_path: Path, packed: bool) -> None:
    damaged = [bytearray(gzip.compress(one) if packed else one) for one in RECORDS]
    damaged[2][len(damaged[2]) // 2 if packed else 0] ^= 0xFF
    path = tmp_path / ("t.warc.gz" if packed else "t.warc")
    path.write_bytes(b"".join(damaged))
    saved = lading.salvage(path, tmp_path / "out", format="parquet")
    with lading.open(tmp_path / "out") as dataset:
        found = [row["content"] for row in dataset.samples(raw=True)]
    assert found == CONTENT[:2] + CONTENT[3:]
    assert saved.lost


@pytest.mark.parametrize("case", ["warc-gz", "warc-plain"])
def test_files_of_warcio(golden: Golden, case: str) -> None:
    [path] = (golden("datatrove") / case / "warc").iterdir()
    data = path.read_bytes()
    found = dict(zip(reader(data).index()["record_offset"].to_pylist(), rows(data, path.name), strict=True))
    expected = json.loads((golden("datatrove") / case / "expected.json").read_text())
    for sample in expected["samples"]:
        for media in sample["media"]["items"]:
            told = {name: value.get("value", value.get("sha256")) for name, value in media["fields"].items()}
            row = found[int(told["offset"])]
            assert hashlib.sha256(row["content"]).hexdigest() == told["media_bytes"]
            assert row["uri"] == told["url"]
