"""A web server of files in memory, with ranges and etags, as nginx serves them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from urllib.parse import unquote

from serving import AnsweringHandler, serving


class RangeServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        files: content by path: `/a/b.tar`.
        asked: method and path of every request.
        ranges: whether it gives ranges; else whole files.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, files: Mapping[str, bytes], *, ranges: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.ranges = dict(files), ranges
        self.asked: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(AnsweringHandler):
    protocol_version = "HTTP/1.1"
    server: RangeServer
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:  # noqa: N802 - name of http.server
        self.server.asked.append((self.command, self.path))
        body = self.server.files.get(unquote(self.path))
        if body is None:
            self._answer(404, {}, b"")
            return
        headers = {"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'}
        if self.headers.get("If-Match", headers["ETag"]) != headers["ETag"]:
            self._answer(412, headers, b"")
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None or not self.server.ranges:
            self._answer(200, headers, body)
            return
        start, stop = int(wanted[1]), min(int(wanted[2]) + 1, len(body))
        if start >= stop:
            self._answer(416, {"Content-Range": f"bytes */{len(body)}"}, b"")
            return
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
        self._answer(206, headers, body[start:stop])

    do_HEAD = do_GET  # noqa: N815 - names of http.server


@contextmanager
def range_server(files: Mapping[str, bytes], *, ranges: bool = True) -> Iterator[RangeServer]:
    """A running server (`RangeServer`)."""
    with serving(RangeServer(files, ranges=ranges)) as server:
        yield server
