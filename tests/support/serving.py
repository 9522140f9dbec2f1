"""What the servers of the tests share: a thread that runs one, and answers of a known length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from threading import Thread
from typing import TypeVar

__all__ = ["AnsweringHandler", "serving"]

_Server = TypeVar("_Server", bound=BaseServer)


class AnsweringHandler(BaseHTTPRequestHandler):
    """Answers with a status, headers and a body; logs nothing."""

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of http.server
        """Nothing is logged."""


@contextmanager
def serving(server: _Server) -> Iterator[_Server]:
    """Run a server in a thread, and close it at the end."""
    with server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
