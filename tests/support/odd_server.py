"""A web server that answers as those behind old lists of URLs do: moved, gone, slow, endless, packed, with a page."""

from __future__ import annotations

import gzip
import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image

from serving import serving

__all__ = ["OddServer", "odd_server", "picture"]


def picture(width: int = 8, height: int = 6, kind: str = "JPEG") -> bytes:
    """Return an encoded image."""
    file = io.BytesIO()
    Image.new("RGB", (width, height), (width, 90, 40)).save(file, kind)
    return file.getvalue()


class OddServer(ThreadingHTTPServer):
    """The server. `/ok…` is an image; see `_ANSWERS` for the other paths.

    Attributes:
        asked: path of every request.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answers: Mapping[str, Callable[[OddHandler], None]]) -> None:
        super().__init__(("127.0.0.1", 0), OddHandler)
        self.answers = {**_ANSWERS, **answers}
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are no errors."""


class OddHandler(BaseHTTPRequestHandler):
    """Answers one request after another."""

    protocol_version = "HTTP/1.1"
    server: OddServer
    wbufsize = -1

    def do_GET(self) -> None:
        """Answer by the path."""
        path = self.path.partition("?")[0]
        self.server.asked.append(self.path)
        answer = self.server.answers.get(path)
        if answer is not None:
            with suppress(OSError):
                answer(self)
        elif path.startswith("/ok"):
            self.give(picture())
        else:
            self.give(b"gone", status=404, kind="text/plain")

    def give(self, body: bytes, *, status: int = 200, kind: str = "image/jpeg", **headers: str) -> None:
        """Send an answer; headers with `_` for `-`."""
        self.send_response_only(status)
        every = {"Content-Type": kind, "Content-Length": str(len(body))}
        every |= {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in every.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def drip(self, head: bytes, part: bytes, pause_s: float = 0.0) -> None:
        """Send bytes without end."""
        self.wfile.write(head)
        while True:
            self.wfile.write(part)
            self.wfile.flush()
            time.sleep(pause_s)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of http.server
        """Nothing is logged."""


def _cut(handler: OddHandler) -> None:
    body = picture()
    handler.give(body, Content_Length=str(len(body) + 100))
    handler.close_connection = True


_OK, _CHUNKED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_ANSWERS: dict[str, Callable[[OddHandler], None]] = {
    "/png": lambda h: h.give(picture(kind="PNG"), kind="image/png"),
    "/moved": lambda h: h.give(b"", status=302, Location="/ok/moved.jpg"),
    "/loop": lambda h: h.give(b"", status=302, Location="/loop"),
    "/to-file": lambda h: h.give(b"", status=302, Location="file:///etc/passwd"),
    "/cut": _cut,
    "/slow": lambda h: h.drip(_OK + b"Content-Length: 100000\r\n\r\n", b"x", 0.1),
    "/slow-head": lambda h: h.drip(_OK + b"X-Slow: ", b"x", 0.1),
    "/endless": lambda h: h.drip(_CHUNKED, b"10000\r\n" + bytes(65536) + b"\r\n"),
    "/endless-chunk": lambda h: h.drip(_CHUNKED, b"0" * 65536),
    "/huge": lambda h: h.give(b"", Content_Length=str(1 << 40)),
    "/bomb": lambda h: h.give(gzip.compress(bytes(64 << 20), 1), Content_Encoding="gzip"),
    "/packed": lambda h: h.give(gzip.compress(picture()), Content_Encoding="gzip"),
    "/brotli": lambda h: h.give(picture(), Content_Encoding="br"),
    "/page": lambda h: h.give(b"<!DOCTYPE html><p>gone", kind="text/html"),
    "/page-as-image": lambda h: h.give(b"\n<html>gone"),
    "/wav": lambda h: h.give(b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0"),
    "/noise": lambda h: h.give(bytes(range(1, 200))),
    "/empty": lambda h: h.give(b""),
}


@contextmanager
def odd_server(answers: Mapping[str, Callable[[OddHandler], None]] | None = None) -> Iterator[OddServer]:
    """A running server (`OddServer`), with further answers by path."""
    with serving(OddServer(answers or {})) as server:
        yield server
