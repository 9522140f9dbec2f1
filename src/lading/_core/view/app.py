"""The server's answers: the page, JSON for it, and bytes of the dataset. Only who has the token gets any."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lading._core.content.media_info import media_info
from lading._core.view.selection import Selection
from lading._core.view.view import View
from lading.errors import LadingError, UsageError

__all__ = ["app_of"]

_LOCAL = ("127.0.0.1", "localhost", "[::1]")
_MOST_ROWS, _MOST_PIXELS = 500, 1_600
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors http://127.0.0.1:* http://localhost:*"
)
_DATA_POLICY = "default-src 'none'; sandbox"
_KEPT = {"Cache-Control": "private, max-age=3600"}
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_SHOWN = {
    "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp",
    "avif": "image/avif", "wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg",
    "opus": "audio/ogg", "aac": "audio/aac", "m4a": "audio/mp4", "mp4": "video/mp4", "webm": "video/webm",
    "mov": "video/mp4", "mkv": "video/webm",
}  # fmt: skip
"""Content types of bytes by their own header: nothing else is given another type than bytes."""


def app_of(view: View, token: str, *, any_host: bool = False) -> ASGIApp:
    """Return the application that shows a dataset.

    Args:
        view: the dataset.
        token: without which nothing is answered.
        any_host: answer under any name of this machine; by default only under those of the machine itself, so that no
            page of the web can reach the server under a name of its own.
    """
    api: Mapping[str, Callable[[View, Request], Any]] = {
        "dataset": lambda view, _: view.dataset(),
        "count": lambda view, asked: view.count(Selection.of(asked.query_params), _number(asked, "wait", 0, 30)),
        "rows": _rows,
        "sample": lambda view, asked: view.sample(Selection.of(asked.query_params), _number(asked, "number")),
        "waveform": lambda view, asked: _drawn(view, asked, "waveform", 600).facts,
        "array": lambda view, asked: _drawn(view, asked, "array", 600).facts,
    }

    async def answer(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in api:
            return JSONResponse({"error": f"no such question: {name}"}, 404)
        try:
            return JSONResponse(await run_in_threadpool(api[name], view, request))
        except LadingError as error:
            return JSONResponse({"error": str(error)}, 400 if isinstance(error, UsageError) else 500)

    async def picture(request: Request) -> Response:
        what = request.path_params["what"]
        try:
            drawn = await run_in_threadpool(_drawn, view, request, what, 256)
        except LadingError as error:
            return Response(str(error), 404, media_type="text/plain")
        if not drawn.picture:
            return Response(str(drawn.facts.get("error", "no picture")), 415, media_type="text/plain")
        return Response(drawn.picture, media_type=drawn.facts["mime"], headers=_KEPT)

    async def raw(request: Request) -> Response:
        try:
            value = await run_in_threadpool(_payload, view, request)
        except LadingError as error:
            return Response(str(error), 404, media_type="text/plain")
        return _ranged(request, value)

    routes = [
        Route("/", _page),
        Route("/page/{name}", _page),
        Route("/api/{name}", answer),
        Route("/picture/{what}", picture),
        Route("/raw", raw),
    ]
    return _Guard(Starlette(routes=routes), token, any_host=any_host)


async def _page(request: Request) -> Response:
    name = request.path_params.get("name", "index.html")
    kind = _TYPES.get(name.rpartition(".")[2])
    file = files("lading._core.view").joinpath("page", name)
    if kind is None or "/" in name or "\\" in name or not file.is_file():
        return Response("no such page", 404, media_type="text/plain")
    return Response(file.read_bytes(), media_type=kind)


def _rows(view: View, asked: Request) -> dict[str, Any]:
    start = _number(asked, "start")
    stop = min(_number(asked, "stop"), start + _MOST_ROWS)
    columns = asked.query_params.getlist("column")
    return view.page(Selection.of(asked.query_params), start, stop, columns or None)


def _drawn(view: View, asked: Request, what: str, usual_size: int) -> Any:
    size = _number(asked, "size", usual_size, _MOST_PIXELS)
    place = _number(asked, "number"), asked.query_params.get("column", ""), _number(asked, "item", 0)
    if what not in ("thumbnail", "waveform", "array"):
        raise UsageError("no such picture", found=what)
    return view.draw(what, Selection.of(asked.query_params), *place, max(size, 1))


def _payload(view: View, asked: Request) -> memoryview:
    rows = view.rows(Selection.of(asked.query_params))
    return rows.payload(_number(asked, "number"), asked.query_params.get("column", ""), _number(asked, "item", 0))


def _ranged(request: Request, value: memoryview) -> Response:
    """The bytes of a value, or the range of them that is asked for."""
    info = media_info(value)
    kind = _SHOWN.get(info.format, "application/octet-stream") if info is not None else "application/octet-stream"
    headers = {"Accept-Ranges": "bytes", **_KEPT}
    start, stop = _range_of(request.headers.get("range", ""), len(value))
    if start is None:
        return Response(bytes(value), media_type=kind, headers=headers)
    if start >= stop:
        return Response(b"", 416, headers={**headers, "Content-Range": f"bytes */{len(value)}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(value)}"
    return Response(bytes(value[start:stop]), 206, media_type=kind, headers=headers)


def _range_of(header: str, size: int) -> tuple[int | None, int]:
    """The first byte and the byte behind the last one; None and the size for no range, or several.

    Source: RFC 9110 §14.1.2.
    """
    unit, _, span = header.partition("=")
    first, dash, last = span.strip().partition("-")
    if unit.strip() != "bytes" or not dash or not (first or last) or not (first + last).isdecimal():
        return None, size
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


def _number(asked: Request, name: str, usual: int | None = None, most: int = 1 << 62) -> int:
    text = asked.query_params.get(name)
    if text is None and usual is not None:
        return usual
    if text is None or not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name} is a whole number, 0 or more", found=repr(text))
    return min(int(text), most)


class _Guard:
    """Refuses requests without the token, or under another name than this machine's; adds the headers of safety.

    Args:
        app: the application behind it.
        token: in the URL, or in the cookie that the first request sets.
        any_host: as of `app_of`.
    """

    def __init__(self, app: ASGIApp, token: str, *, any_host: bool) -> None:
        self._app, self._token, self._any_host = app, token, any_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        request = Request(scope)
        refused = self._refused(request)
        answer: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app if refused is None else refused
        policy = _PAGE_POLICY if request.url.path == "/" or request.url.path.startswith("/page/") else _DATA_POLICY
        safe = {
            "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }  # fmt: skip

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in safe.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        await answer(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        if not self._any_host and name not in _LOCAL:
            return Response("this server answers as localhost alone", 403, media_type="text/plain")
        cookie = f"lading-{request.url.port or 80}"
        given = request.query_params.get("token")
        if given is not None and _is_same(given, self._token):
            left = request.url.remove_query_params("token")
            found = RedirectResponse(left.path + (f"?{left.query}" if left.query else ""), 303)
            found.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return found
        if not _is_same(request.cookies.get(cookie, ""), self._token):
            return Response("open the URL that lading view printed: it has the token", 403, media_type="text/plain")
        if (
            request.method not in ("GET", "HEAD")
            and request.headers.get("sec-fetch-site", "same-origin") != "same-origin"
        ):
            return Response("only the page itself may change marks", 403, media_type="text/plain")
        return None


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
