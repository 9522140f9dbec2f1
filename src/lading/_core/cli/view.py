"""`lading view`: a dataset in the browser."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import typer

from lading._core.cli.options import CHOOSING, READING, Debug, Sources, Steps, Values, one_or_many, takes
from lading._core.cli.output import Output
from lading._core.cli.signals import Terminated
from lading._core.cli.source import open_chosen

__all__ = ["view"]

_OWN = {"--compare": 1, "--port": 1, "--host": 1, "--token": 1, "--no-browser": 0, "--debug": 0}
"""The options of this verb alone, with the number of their values."""


@takes(CHOOSING, READING)
def view(  # noqa: PLR0913 - one argument a decision of the user
    *,
    sources: Sources,
    compare: Annotated[
        str,
        typer.Option(
            "--compare", metavar="B", show_default=False, help="A dataset of any format: show what differs, by key."
        ),
    ] = "",
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
    words: Sequence[str],
    choosing: Steps,
    reading: Values,
) -> None:
    """Show a dataset in the browser: pictures, documents, all fields.

    Serves a page on this machine until Ctrl-C. Nothing is uploaded. On another
    machine, forward the port: ssh -L 8421:127.0.0.1:8421 HOST.

    Example: lading view photos
    """
    with Output(as_json=False, debug=debug) as out:
        from lading._core.view.drawers import Drawers

        with ExitStack() as held:
            drawers = Drawers()
            held.callback(drawers.close)
            drawers.start()  # a process that decodes is ready by the time the dataset is open

            from rich.text import Text

            from lading._core.cli.naming import naming_of
            from lading._core.dataset.opened import opened
            from lading._core.dataset.query import Query
            from lading._core.view.naming import Naming
            from lading._core.view.serve import Address, Server
            from lading._core.view.view import View
            from lading.errors import DataError

            address, opening, steps = Address(host, port, token), reading(), choosing()
            # Pages of a map stay in memory, and a file that becomes shorter under one ends the process.
            opening, naming = {**opening, "mmap": False}, naming_of(words, _OWN, sources, opening, steps)

            def shown(names: Sequence[str], naming: Naming, **more: Any) -> View:
                try:
                    dataset = held.enter_context(open_chosen(names, opening, steps))
                    return View(opened(dataset), naming, **more)
                except DataError as error:  # the page says what is damaged, and what helps
                    return View(error, naming, Query.of(one_or_many(names), **opening), **more)

            other = shown([compare], naming_of([], _OWN, [compare], opening, steps)) if compare else None
            server = Server(shown(sources, naming, other=other, drawers=drawers), address)
            out.print([Text(f"{naming.title}: {server.url}", no_wrap=True), "Ctrl-C stops."])
            if not no_browser:
                server.open_browser()
            try:
                server.run()
            except Terminated as ended:
                if ended.number != signal.SIGINT:
                    raise
                out.print(["stopped"])
