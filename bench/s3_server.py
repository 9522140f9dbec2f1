"""Serve a folder as S3 does, for reading: buckets are its folders. Every request is counted.

    python s3_server.py FOLDER [--wait-ms 30]

Prints its URL, and ends with its standard input. `GET /-/counts` gives requests by kind and bytes of answers since the
last such request, as JSON; `GET /-/wait/30` makes each later request wait so many milliseconds first.

moto, which the tests use, reads all of an object for every range of it. Here a range costs what it is long.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socketserver
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_PAGE = 1000
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class Server(socketserver.ThreadingTCPServer):
    """The server; a thread a connection."""

    daemon_threads = True
    request_queue_size = 256
    allow_reuse_address = True

    def __init__(self, folder: Path, wait_s: float) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.folder, self.wait_s = folder, wait_s
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def count(self, kind: str, size: int) -> None:
        with self.lock:
            self.counts.update({kind: 1, "bytes": size})

    def taken(self) -> bytes:
        with self.lock:
            taken, self.counts = self.counts, Counter()
        return json.dumps(taken).encode()


class _Connection(socketserver.StreamRequestHandler):
    server: Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with suppress(ConnectionError):
            while line := self.rfile.readline():
                method, target, _ = line.decode("latin-1").split(" ")
                headers = {}
                while (field := self.rfile.readline().decode("latin-1").strip()) != "":
                    name, _, value = field.partition(":")
                    headers[name.lower()] = value.strip()
                self._answer(method, urlsplit(target), headers)

    def _answer(self, method: str, target, headers: dict[str, str]) -> None:
        bucket, _, key = unquote(target.path)[1:].partition("/")
        if bucket == "-":
            word, _, value = key.partition("/")
            if word == "wait":
                self.server.wait_s = float(value) / 1000
            self._send("200 OK", {}, self.server.taken() if word == "counts" else b"")
            return
        time.sleep(self.server.wait_s)
        if not key:
            body = listing(self.server.folder / bucket, parse_qs(target.query))
            self.server.count("list", len(body))
            self._send("200 OK", {"Content-Type": "application/xml"}, b"" if method == "HEAD" else body)
            return
        self._send_file(method, self.server.folder / bucket / key, headers)

    def _send_file(self, method: str, path: Path, headers: dict[str, str]) -> None:
        try:
            file = os.open(path, os.O_RDONLY)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            self.server.count("missing", 0)
            body = b"" if method == "HEAD" else b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
            self._send("404 Not Found", {}, body)
            return
        try:
            facts = os.fstat(file)
            told = {"ETag": etag(facts), "Last-Modified": formatdate(facts.st_mtime, usegmt=True)}
            if headers.get("if-match", told["ETag"]) != told["ETag"]:
                self._send("412 Precondition Failed", told, b"")
                return
            start, stop, status = 0, facts.st_size, "200 OK"
            if wanted := _RANGE.fullmatch(headers.get("range", "")):
                start, stop = int(wanted[1]), min(int(wanted[2] or facts.st_size) + 1, facts.st_size)
                told["Content-Range"] = f"bytes {start}-{stop - 1}/{facts.st_size}"
                status = "206 Partial Content"
            self.server.count("head" if method == "HEAD" else "get", 0 if method == "HEAD" else stop - start)
            self._send(status, {**told, "Content-Type": "binary/octet-stream"}, b"", stop - start)
            while method != "HEAD" and start < stop:
                start += os.sendfile(self.connection.fileno(), file, start, stop - start)
        finally:
            os.close(file)

    def _send(self, status: str, headers: dict[str, str], body: bytes, length: int | None = None) -> None:
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
        lines.append(f"Content-Length: {len(body) if length is None else length}")
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def etag(facts: os.stat_result) -> str:
    return f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'


def listing(bucket: Path, query: dict[str, list[str]]) -> bytes:
    """A page of ListObjectsV2."""
    prefix, delimiter, after = (query.get(name, [""])[0] for name in ("prefix", "delimiter", "continuation-token"))
    most = min(int(query.get("max-keys", [str(_PAGE)])[0]), _PAGE)
    keys = sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())
    shown: dict[str, bool] = {}
    for key in keys:
        if key.startswith(prefix) and key > after:
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            shown.setdefault(key if end < 0 else key[: end + 1], end < 0)
    page = [*shown.items()][:most]
    parts = [f"<Name>{bucket.name}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"]
    parts.append(f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(len(shown) > most).lower()}</IsTruncated>")
    if len(shown) > most:
        last = page[-1][0]
        token = last if page[-1][1] else max(key for key in keys if key.startswith(last))
        parts.append(f"<NextContinuationToken>{escape(token)}</NextContinuationToken>")
    for name, is_key in page:
        if not is_key:
            parts.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            continue
        facts = (bucket / name).stat()
        changed = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(facts.st_mtime))
        parts.append(f"<Contents><Key>{escape(name)}</Key><LastModified>{changed}</LastModified><ETag>")
        parts.append(f"{escape(etag(facts))}</ETag><Size>{facts.st_size}</Size></Contents>")
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<?xml version="1.0"?><ListBucketResult xmlns="{space}">{"".join(parts)}</ListBucketResult>'.encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wait-ms", type=float, default=0)
    args = parser.parse_args()
    with Server(args.folder, args.wait_ms / 1000) as server:
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
