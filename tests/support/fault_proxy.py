"""A proxy in front of a server, which spoils answers: by a plan, or a share of them at random from a seed.

    reset   the connection is reset in the middle of the body
    stall   nothing follows the middle of the body, until the client goes
    503     busy, as an answer
    429     too many requests, with Retry-After
    cut     half of the body, and Content-Length says so
    short   half of the body, and Content-Length promises all of it
    flip    one byte of the body has other bits
    whole   the whole file with status 200, though a range was asked for

Requests that are not GET are spoiled before the server sees them: reset, stall, 503 or 429.
"""

from __future__ import annotations

import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

BEFORE = ("reset", "stall", "503", "429")
KINDS = (*BEFORE, "cut", "short", "whole")
"""Faults that a client can see."""
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class FaultProxy(ThreadingHTTPServer):
    """The proxy.

    Args:
        target: URL of the server.
        plan: the faults of the next requests with a body to answer, in order; "" for none.
        share: share of the further requests that are spoiled.
        kinds: faults to choose from.
        seed: of the choice.

    Attributes:
        only: requests for other paths are not spoiled.
        requests: by method; `spoiled`: faults by kind; `ranges`: values of Range; `sent_bytes`: of bodies.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, target: str, plan: Sequence[str] = (), *, share: float = 0, kinds: Sequence[str] = KINDS, seed: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.target, self.plan, self.share, self.kinds = urlsplit(target).netloc, list(plan), share, tuple(kinds)
        self.only = ""
        self.requests: Counter[str] = Counter()
        self.spoiled: Counter[str] = Counter()
        self.ranges: list[str] = []
        self.sent_bytes = 0
        self.ended = Event()
        self._random, self._lock = random.Random(seed), Lock()

    def fault(self, method: str, path: str, wanted: str | None) -> str:
        """The fault of the next request."""
        with self._lock:
            self.requests[method] += 1
            self.ranges += [wanted] if wanted else []
            kinds = [kind for kind in self.kinds if (method == "GET" or kind in BEFORE) and (wanted or kind != "whole")]
            kind = ""
            if self.only not in path:
                return kind
            if method == "GET" and self.plan:
                kind = self.plan.pop(0)
            elif kinds and self._random.random() < self.share:
                kind = self._random.choice(kinds)
            self.spoiled.update([kind] if kind else [])
            return kind

    def count(self, size: int) -> None:
        """Count bytes of an answer."""
        with self._lock:
            self.sent_bytes += size

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy
    disable_nagle_algorithm = True
    wbufsize = -1

    def _serve(self) -> None:
        sent = self._body()
        fault = self.server.fault(self.command, self.path, self.headers.get("Range"))
        if self.command != "GET" and fault in ("reset", "stall"):
            self._break(fault)
            return
        if fault in ("503", "429"):
            self._answer(int(fault), [("Retry-After", "0")], b"busy")
            return
        asked = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        if fault == "whole":
            asked.pop("Range", asked.pop("range", None))
        connection = HTTPConnection(self.server.target)
        connection.request(self.command, self.path, sent, asked)
        with connection.getresponse() as answer:
            body = answer.read()
            length = None if self.command != "HEAD" else answer.getheader("Content-Length", "0")
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        connection.close()
        half = len(body) // 2
        if fault == "flip" and body:
            body = body[:half] + bytes([body[half] ^ 1]) + body[half + 1 :]
        if fault == "cut":
            body = body[:half]
        if fault in ("reset", "stall", "short") and body:
            self._answer(answer.status, headers, body[:half], str(len(body)))
            self._break(fault)
            return
        self._answer(answer.status, headers, body, length)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names of http.server

    def _body(self) -> bytes:
        if self.headers.get("Expect") or self.headers.get("Transfer-Encoding"):
            raise NotImplementedError
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, headers: Sequence[tuple[str, str]], body: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
        self.server.count(len(body))

    def _break(self, fault: str) -> None:
        self.close_connection = True
        if fault == "stall":
            self.server.ended.wait(60)
        if fault == "reset":  # with linger 0, closing sends RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of http.server
        """Nothing is logged."""


@contextmanager
def fault_proxy(
    target: str, plan: Sequence[str] = (), *, share: float = 0, kinds: Sequence[str] = KINDS, seed: int = 0
) -> Iterator[FaultProxy]:
    """A running proxy (`FaultProxy`)."""
    with FaultProxy(target, plan, share=share, kinds=kinds, seed=seed) as proxy:
        thread = Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended.set()
            proxy.shutdown()
            thread.join()
