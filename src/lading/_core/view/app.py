"""The server's answers: the page, JSON for it, and bytes of the dataset. Only who has the token gets any."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lading._core.units import whole_number
from lading._core.view.guard import Guard
from lading._core.view.marks import Mark, Marked, as_file
from lading._core.view.newest_first import NewestFirst
from lading._core.view.raw import bytes_of
from lading._core.view.selection import Selection
from lading._core.view.threads import in_thread
from lading._core.view.values import ValuePlace
from lading._core.view.view import View
from lading.errors import LadingError, UsageError

__all__ = ["app_of"]

_MOST_ROWS, _MOST_PIXELS, _MOST_WAIT_S = 500, 1_600, 30
_MOST_DIFFERENCES, _OTHER = 50, "b"
_GIVEN_UP = 499  # as nginx has it; nobody reads it
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


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
        "count": lambda view, asked: view.count(_selection(asked), _wait_s(asked)),
        "fields": lambda view, _: view.statistics.fields(),
        "find": _find,
        "statistics": _statistics,
        "ids": lambda view, asked: view.ids(_selection(asked), *_range(asked)),
        "marks": lambda view, asked: view.marks.since(_number(asked, "since", 0)),
        "rows": _rows,
        "sample": lambda view, asked: view.sample(_selection(asked), _number(asked, "number")),
        "problems": _problems,
        "pictures": _pictures,
        "compare": lambda view, asked: view.comparison(_selection(asked), _wait_s(asked)),
        "differences": _differences,
        "row": lambda view, asked: view.number_of_row(
            _selection(asked), asked.query_params.get("file", ""), _number(asked, "row")
        ),
        "waveform": lambda view, asked: _drawn(view, asked, "waveform", 600).facts,
        "array": lambda view, asked: _drawn(view, asked, "array", 600).facts,
    }

    def question(view: View, asked: Request) -> Response:
        name = asked.path_params["name"]
        return (
            _as_json(api[name](view, asked)) if name in api else _as_json({"error": f"no such question: {name}"}, 404)
        )

    routes = [
        Route("/", _answering(view, _page)),
        Route("/page/{name}", _answering(view, _page)),
        Route("/api/mark", _answering(view, _mark), methods=["POST"]),
        Route("/marks/{kind}", _answering(view, _file_of_marks)),
        Route("/api/{name}", _answering(view, question)),
        Route("/picture/{what}", _answering(view, _picture, 8)),
        Route("/raw", _answering(view, _bytes, 16)),
    ]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return Guard(app, token, any_host=any_host)


def _answering(
    view: View, work: Callable[[View, Request], Response], most_threads: int = 40
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint whose answer is made in a thread of its own kind, and whose errors are answers too.

    Pictures that take long to decode do not keep rows waiting. Of requests that wait the newest is next. One that its
    browser gave up, because it was scrolled past, is not answered.
    """
    turns = NewestFirst(most_threads)

    async def answer(request: Request) -> Response:
        try:
            async with turns:
                if request.method == "GET" and await request.is_disconnected():
                    return Response(status_code=_GIVEN_UP)
                return await in_thread(partial(work, _shown(view, request), request))
        except LadingError as error:
            return _as_json({"error": str(error)}, 400 if isinstance(error, UsageError) else 500)
        except Exception as error:  # noqa: BLE001 - the page says it, and the server goes on
            text = f"internal error: {type(error).__name__}: {error}"
            return _as_json({"error": f"{text}. This is a bug of lading, not a fault of the data."}, 500)

    return answer


def _shown(view: View, asked: Request) -> View:
    """The dataset of the samples that are asked for: number `b7` is sample 7 of the one that is compared."""
    is_other = asked.query_params.get("number", "").startswith(_OTHER)
    return view.other if is_other and view.other is not None else view


def _as_json(value: Any, status: int = 200) -> Response:
    try:
        body = orjson.dumps(value)
    except TypeError:  # text that UTF-8 has no bytes for, or whole numbers of more than 64 bits
        body = json.dumps(value, default=str).encode()
    return Response(body, status, media_type="application/json")


def _page(_: View, asked: Request) -> Response:
    name = asked.path_params.get("name", "index.html")
    kind = _TYPES.get(name.rpartition(".")[2])
    found = {file.name: file for file in files("lading._core.view").joinpath("page").iterdir()}.get(name)
    if kind is None or found is None:
        return _as_json({"error": f"no such page: {name}"}, 404)
    return Response(found.read_bytes(), media_type=kind)


def _rows(view: View, asked: Request) -> dict[str, Any]:
    columns = asked.query_params.getlist("column")
    return view.page(_selection(asked), *_range(asked), columns or None)


def _mark(view: View, asked: Request) -> Response:
    said = {name: asked.query_params.get(name, "") for name in ("id", "mark", "label")}
    return _as_json({"at": view.marks.set(said["id"], Mark(said["mark"], said["label"]))})


def _file_of_marks(view: View, asked: Request) -> Response:
    """A file of keys to save: `/marks/txt?of=keep@12`."""
    marked, kind = Marked.parse(asked.query_params.get("of", "")), asked.path_params["kind"]
    body = as_file(view.marks.table(marked), kind)
    headers = {"Content-Disposition": f'attachment; filename="{marked.file}.{kind}"'}
    return Response(body, media_type="application/octet-stream", headers=headers)


def _differences(view: View, asked: Request) -> dict[str, Any]:
    start = _number(asked, "start")
    stop = min(_number(asked, "stop"), start + _MOST_DIFFERENCES)
    return view.differences(_selection(asked), asked.query_params.get("kind", ""), start, stop)


def _statistics(view: View, asked: Request) -> dict[str, Any]:
    seen, wait_s = _number(asked, "seen", 0), _wait_s(asked)
    whole = asked.query_params.get("whole") == "1"
    return view.statistics.of(_selection(asked), seen, wait_s, whole=whole)


def _find(view: View, asked: Request) -> dict[str, Any]:
    return {"number": view.find(_selection(asked), asked.query_params.get("key", ""))}


def _problems(view: View, asked: Request) -> dict[str, Any]:
    if depth := asked.query_params.get("start"):
        view.checks.problems.start(depth)
    if "stop" in asked.query_params:
        view.checks.problems.stop()
    return view.checks.problems.state(_wait_s(asked))


def _pictures(view: View, asked: Request) -> dict[str, Any]:
    selection = _selection(asked)
    if "start" in asked.query_params:
        view.checks.look_at_pictures(selection, view.rows(selection).data)
    if "stop" in asked.query_params:
        view.checks.stop_pictures()
    return view.checks.pictures(selection, _wait_s(asked))


def _drawn(view: View, asked: Request, what: str, usual_size: int) -> Any:
    size = _number(asked, "size", usual_size, _MOST_PIXELS)
    if what not in ("thumbnail", "poster", "waveform", "array"):
        raise UsageError("no such picture", found=what)
    return view.draw(what, _selection(asked), _place(asked), max(size, 1))


def _picture(view: View, asked: Request) -> Response:
    drawn = _drawn(view, asked, asked.path_params["what"], 256)
    if not drawn.picture:
        return _as_json({"error": drawn.facts.get("error", "no picture")}, 415)
    return _kept(view, asked, Response(drawn.picture, media_type=drawn.facts["mime"]))


def _bytes(view: View, asked: Request) -> Response:
    return _kept(view, asked, bytes_of(view.value(_selection(asked), _place(asked)), asked))


def _kept(view: View, asked: Request, found: Response) -> Response:
    """A browser keeps an answer whose URL says that it is of this run: another dataset may be at this port next."""
    if asked.query_params.get("run") == view.run:
        found.headers["Cache-Control"] = "private, max-age=3600"
    return found


def _selection(asked: Request) -> Selection:
    return Selection.of(asked.query_params)


def _place(asked: Request) -> ValuePlace:
    return ValuePlace(_number(asked, "number"), asked.query_params.get("column", ""), _number(asked, "item", 0))


def _range(asked: Request) -> tuple[int, int]:
    start = _number(asked, "start")
    return start, min(_number(asked, "stop"), start + _MOST_ROWS)


def _wait_s(asked: Request) -> int:
    return _number(asked, "wait", 0, _MOST_WAIT_S)


def _number(asked: Request, name: str, usual: int | None = None, most: int = 1 << 62) -> int:
    text = asked.query_params.get(name)
    if text is not None and name == "number":
        text = text.removeprefix(_OTHER)
    if text is None and usual is not None:
        return usual
    found = None if text is None else whole_number(text)
    if found is None:
        raise UsageError(f"{name} is a whole number, 0 or more", found=repr(text and text[:100]))
    return min(found, most)
