"""The server of `lading view` and `ds.show()`: where it listens, and how it ends."""

from __future__ import annotations

import secrets
import socket
import webbrowser
from dataclasses import dataclass, field
from threading import Thread
from urllib.parse import quote

from lading._core.view.view import View
from lading.errors import StoreError, UsageError, missing_extra

__all__ = ["Address", "Server"]

_PORT = 8421
_TRIED = 20
_WAITING = 128
_LOCAL = "127.0.0.1"
_OWN_NAMES = (_LOCAL, "localhost", "::1")
_ALL = {"0.0.0.0": _LOCAL, "::": "::1"}  # noqa: S104 - the user asks for it
"""Addresses that stand for all of this machine, with the one to open here."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the page is served.

    Attributes:
        host: the address to listen at; others than this machine reach `0.0.0.0`.
        port: by default 8421, or the next free one.
        token: that the URL needs; by default a random one.
    """

    host: str = _LOCAL
    port: int | None = None
    token: str = field(default="")

    def __post_init__(self) -> None:
        """Refuse a host that others reach, without a token that the user chose."""
        if not self.is_own and not self.token:
            raise UsageError("others can reach this server: it needs a token of your choice", found=f"host {self.host}",
                             advice="Add --token WORDS. Or forward the port of this machine alone: "
                             f"ssh -L {self.port or _PORT}:{_LOCAL}:{self.port or _PORT} HOST.")  # fmt: skip

    @property
    def is_own(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in _OWN_NAMES

    def url(self, port: int) -> str:
        """Return the URL of the page here."""
        shown = _ALL.get(self.host, self.host)
        return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


class Server:
    """A server that shows a dataset, until it is closed.

    Args:
        view: the dataset.
        address: where to listen.

    Attributes:
        url: of the page, with the token.

    Raises:
        MissingExtra: starlette or uvicorn is not installed.
        StoreError: the port is taken.
        UsageError: a step names a column that is not there.
    """

    def __init__(self, view: View, address: Address) -> None:
        try:
            import uvicorn

            from lading._core.view.app import app_of
        except ImportError as error:
            package = "starlette" if error.name == "starlette" else "uvicorn"
            advice = "Run: pip install 'lading[view]'."
            raise missing_extra(error, f"the page is served by {package}", package, advice) from error
        view.refuse_wrong_steps()
        self._view, token = view, address.token or secrets.token_urlsafe(16)
        self._socket = _listen(address)
        view.drawers.start()
        self.url = f"{address.url(self._socket.getsockname()[1])}?token={quote(token, safe='')}"
        app = app_of(view, token, any_host=not address.is_own)
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, timeout_graceful_shutdown=1, lifespan="off", ws="none",
            server_header=False,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread: Thread | None = None

    def run(self) -> None:
        """Serve until an interrupt."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._view.close()

    def start(self) -> None:
        """Serve in a thread."""
        self._thread = Thread(target=self.run, name="lading-view", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self.wait()
        self._socket.close()

    def open_browser(self) -> bool:
        """Open the page in a browser; return whether there is one."""
        try:
            return webbrowser.open(self.url)
        except webbrowser.Error:
            return False


def _listen(address: Address) -> socket.socket:
    """A socket at the address; of the next ports where the usual one is taken."""
    ports = [address.port] if address.port is not None else [*range(_PORT, _PORT + _TRIED), 0]
    for port in ports:
        made = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((address.host, port))
            made.listen(_WAITING)  # who connects before the server runs waits instead of being refused
        except OSError as error:
            made.close()
            if port == ports[-1]:
                found = f"{address.host}:{port or ports[0]}: {error.strerror}"
                advice = "Choose another port or address: --port N, --host ADDRESS."
                raise StoreError("the server cannot listen there", found=found, advice=advice) from error
            continue
        return made
    raise AssertionError(ports)
