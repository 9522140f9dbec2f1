"""`lading view`: a dataset in the browser."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from lading._core.cli.options import CHOOSING, READING, Debug, Sources, Steps, Values, one_or_many, takes
from lading._core.cli.output import Output
from lading._core.cli.source import open_chosen

__all__ = ["view"]

_OWN = {"--port": 1, "--host": 1, "--token": 1, "--no-browser": 0, "--debug": 0}
"""The options of this verb alone, with the number of their values."""


@takes(CHOOSING, READING)
def view(
    *,
    sources: Sources,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, metavar="N", show_default=False, help="By default 8421, or the next free one."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen. Others than this machine need --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str, typer.Option("--token", metavar="WORDS", show_default=False, help="By default a random one.")
    ] = "",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the URL alone.")] = False,
    debug: Debug = False,
    choosing: Steps,
    reading: Values,
) -> None:
    """Show a dataset in the browser: pictures, documents, all fields.

    Serves a page on this machine until Ctrl-C. Nothing is uploaded. On another
    machine, forward the port: ssh -L 8421:127.0.0.1:8421 HOST.

    Example: lading view photos
    """
    with Output(as_json=False, debug=debug) as out:
        from lading._core.dataset.opened import opened
        from lading._core.view.serve import Address, Server
        from lading._core.view.view import Naming, View

        address, opening = Address(host, port, token), reading()
        with open_chosen(sources, opening, choosing()) as dataset:
            title = " ".join(sources)
            server = Server(View(opened(dataset), Naming(title, _words(), _python(sources, opening))), address)
            out.print([f"{title}: {server.url}", "Ctrl-C stops."])
            if not no_browser:
                server.open_browser()
            server.run()


def _words() -> str:
    """Return the words that were typed, without the options of this verb alone."""
    words, kept = iter(sys.argv[sys.argv.index("view") + 1 :] if "view" in sys.argv else []), list[str]()
    for word in words:
        name, given, _ = word.partition("=")
        if name not in _OWN:
            kept.append(word)
        elif _OWN[name] and not given:
            next(words, None)
    return shlex.join(kept)


def _python(sources: Sequence[str], opening: Mapping[str, Any]) -> str:
    given = "".join(f", {name}={value!r}" for name, value in opening.items() if value)
    return f"lading.open({one_or_many(sources)!r}{given})"
