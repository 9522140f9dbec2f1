"""Who is answered: only requests with the token, under a name of this machine. All answers get headers of safety."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Guard"]

_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors http://127.0.0.1:* http://localhost:*"
)
_DATA_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"
_SAFE = {
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}  # fmt: skip
"""Headers of all answers that have none of their own by these names."""


class Guard:
    """Refuses requests without the token, under another name than this machine's, or from pages of others.

    A URL with the token sets a cookie of this server alone, so that the token leaves the URL.

    Args:
        app: the application behind it.
        token: in the URL of the first request.
        any_host: answer under any name of this machine.
    """

    def __init__(self, app: ASGIApp, token: str, *, any_host: bool) -> None:
        self._app, self._token, self._any_host = app, token, any_host
        self._secret = secrets.token_urlsafe(16)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope)
        refused = self._refused(request)
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app if refused is None else refused
        is_page = request.url.path == "/" or request.url.path.startswith("/page/")
        safe = {**_SAFE, "Content-Security-Policy": _PAGE_POLICY if is_page else _DATA_POLICY}

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                names = {name.lower() for name, _ in given}
                more = [(name.lower().encode(), value.encode()) for name, value in safe.items()]
                message["headers"] = given + [header for header in more if header[0] not in names]
            await send(message)

        await answer(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        name, _, port = host.rpartition(":") if ":" in host.rpartition("]")[2] else (host, "", "80")
        if not self._any_host and name not in _LOCAL:
            return _no("this server answers as localhost alone")
        if not (port.isascii() and port.isdigit()):
            return _no("the name of the server has no port")
        cookie = f"lading-{port}"  # browsers send cookies of all ports to each
        given = request.query_params.get("token")
        if given is not None and request.url.path == "/" and _is_same(given, self._token):
            left = request.url.remove_query_params("token").query
            found = RedirectResponse(f"/?{left}" if left else "/", 303)
            found.set_cookie(cookie, self._secret, httponly=True, samesite="strict")
            return found
        if not _is_same(request.cookies.get(cookie, ""), self._secret):
            return _no("open the URL that lading view printed: it has the token")
        if not _is_of_the_page(request, host):
            return _no("only the page itself may ask this")
        return None


def _is_of_the_page(request: Request, host: str) -> bool:
    """Whether no other page made the browser ask; only the page as a whole may be opened from elsewhere.

    Pages of other ports of this machine are of the same site, and so have its cookies.
    """
    come_from, to_where = request.headers.get("sec-fetch-site"), request.headers.get("sec-fetch-mode")
    if request.method in ("GET", "HEAD"):
        is_opened = to_where == "navigate" and request.url.path == "/"
        return come_from in (None, "same-origin", "none") or is_opened
    origin = request.headers.get("origin")
    return come_from in (None, "same-origin") and origin in (None, f"http://{host}", f"https://{host}")


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _no(why: str) -> Response:
    return JSONResponse({"error": why}, 403)
