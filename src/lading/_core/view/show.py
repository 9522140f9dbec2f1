"""`ds.show()`: the page of `lading view` out of Python and notebooks."""

from __future__ import annotations

from html import escape
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from lading._core.dataset.opened import OpenDataset, opened
from lading._core.dataset.query import Queryable
from lading._core.jobs.engine.progress_bars import in_notebook
from lading._core.secret_urls import cleaned
from lading._core.view.naming import Naming
from lading._core.view.serve import Address, Server
from lading._core.view.view import View
from lading.errors import UsageError

__all__ = ["ShownDataset", "show"]

_FRAME_PIXELS = 640
_MOST_PORT = 65_535


class ShownDataset:
    """A page that shows a dataset, until it is closed or the process ends.

    Attributes:
        url: of the page, with the token that it needs.
    """

    def __init__(self, server: Server, title: str) -> None:
        self.url = server.url
        self._server, self._title, self._is_closed = server, title, False

    def wait(self) -> None:
        """Wait until the page is closed. Ctrl-C closes it, and the program goes on behind this line."""
        try:
            self._server.wait()
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Stop the server."""
        if not self._is_closed:
            self._is_closed = True
            self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{self._title}: {'closed' if self._is_closed else self.url}"

    def _repr_html_(self) -> str:
        """A link and a frame, which gets the page under the name by which the notebook is open: cookies need that."""
        if self._is_closed:
            return escape(repr(self))
        own = escape(self.url)
        near = escape(self.url.replace(f"//{urlsplit(self.url).hostname}:", "//localhost:", 1))
        name = f"lading-{urlsplit(self.url).port}"
        return (
            f'<p><a href="{own}" target="_blank" rel="noreferrer">{escape(self._title)}: open the page</a></p>'
            f'<iframe id="{name}" src="{near}" width="100%" height="{_FRAME_PIXELS}" style="border: 0"></iframe>'
            f'<script>if (location.hostname === "127.0.0.1") document.getElementById("{name}").src = "{own}";</script>'
        )


def show(
    data: OpenDataset, port: int | None = None, *, compare: Queryable | None = None, browser: bool = True
) -> ShownDataset:
    """Serve the page of a dataset from a thread of this process, as `Dataset.show`."""
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 < port <= _MOST_PORT):
        raise UsageError("a port is a whole number", expected=f"1 to {_MOST_PORT}", found=f"port={port!r}"[:80])
    title = _title(data)
    other = None
    if compare is not None:
        compared = opened(compare)
        other = View(compared, Naming(_title(compared), "", None))
    server = Server(View(data, Naming(title, "", "ds"), other=other), Address(port=port))
    server.start()
    if browser and not in_notebook():
        server.open_browser()
    return ShownDataset(server, title)


def _title(data: OpenDataset) -> str:
    return cleaned(str(data.query.source))
