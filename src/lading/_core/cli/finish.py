"""`lading finish`: write the destination of a conversion whose ranks are done."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from lading._core.cli.convert import converted
from lading._core.cli.options import STORES, Debug, Json, Values, takes
from lading._core.cli.output import Output

__all__ = ["finish"]


@takes(STORES)
def finish(
    *,
    destination: Annotated[
        str, typer.Argument(metavar="DST", show_default=False, help="Destination of the ranks: a folder or URL.")
    ],
    as_json: Json = False,
    debug: Debug = False,
    stores: Values,
) -> None:
    """Write DST, when all ranks of 'lading convert --rank' are done.

    DST appears in one step, with the bytes that one process would write.
    Tasks that are not done are an error that names their ranks.

    Example: lading finish mint-ranks
    """
    left = f"to go on, type 'lading finish {shlex.quote(destination)}' again"
    with Output(as_json=as_json, debug=debug, interrupted=left) as out:
        from lading._core.jobs.convert.finish import finish as job

        done = job(destination, **stores())
        out.done = f"{destination} is written."
        out.show({"destination": destination, **asdict(done)}, converted([], destination, done, lazy=bool(done.roots)))
