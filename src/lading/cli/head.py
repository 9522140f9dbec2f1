"""`lading head`: look at samples."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.options import CHOOSING, READING, Debug, Json, Sources, Values, takes
from lading.cli.output import Output
from lading.cli.source import open_chosen

__all__ = ["head"]


@takes(CHOOSING, READING)
def head(
    *,
    sources: Sources,
    number: Annotated[int, typer.Option("-n", "--number", min=0, metavar="N", help="Samples to show.")] = 5,
    start: Annotated[
        int,
        typer.Option(
            "--at", min=0, metavar="N", help="Number of the first sample, from 0. Builds an index if there is none."
        ),
    ] = 0,
    full: Annotated[
        bool,
        typer.Option("--full", metavar="", help="Show whole texts and all items; with --json also bytes, in base64."),
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
    choosing: Values,
    reading: Values,
) -> None:
    """Show samples: fields, sizes, pictures, the beginning of texts.

    Items of interleaved documents are shown in order. With --json each sample is
    a line, and media are described by size and type.

    Example: lading head mint/00000.tar -n 2
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading.cli.samples import as_json as sample_json
        from lading.cli.samples import as_text, read_samples

        rows = choosing()
        names = rows.pop("columns", None)  # exactly these columns, without keys
        with open_chosen(sources, reading(), rows) as dataset:
            shown = 0
            for sample in read_samples(dataset, number, start, names):
                value = sample_json(sample, full=full) if as_json else None
                out.show(value, as_text(sample, full=full), indent=None)
                shown += 1
            if not shown:
                out.print(["no sample there"])
