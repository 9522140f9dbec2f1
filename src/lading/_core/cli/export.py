"""`lading export`: samples as loose files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lading._core.cli.options import CHOOSING, READING, Debug, Json, Sources, Steps, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.source import open_chosen
from lading._core.cli.text import by_outcome, count, facts, visible
from lading._core.units import format_bytes

__all__ = ["export"]


@takes(CHOOSING, READING)
def export(
    *,
    sources: Sources,
    destination: Annotated[str, typer.Argument(metavar="DIR", show_default=False, help="Folder of the files.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar="", help="Replace the export or dataset DIR, in one step at the end.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
    choosing: Steps,
    reading: Values,
) -> None:
    """Write samples as loose files, such as 0001.jpg and 0001.txt.

    A field of bytes is a file, with the same bytes. Other values of a sample are
    one JSON file. 'lading convert DIR ... --from files' reads the files back.

    Example: lading export photos look --limit 2
    """
    left = f"nothing half-written is {'read' if '://' in destination else 'left'} at {destination}"
    with Output(as_json=as_json, debug=debug, interrupted=left) as out:
        from lading._core.jobs.dataset.export import export as job

        with open_chosen(sources, reading(), choosing()) as dataset, watching(out, "exporting") as report:
            done = job(dataset, destination, overwrite=overwrite, on_progress=report)
        wrote = f"{visible(destination)}: {count(done.files, 'file')}, {format_bytes(done.size_bytes)}"
        rows = [("read", count(done.samples, "sample")), ("wrote", wrote), ("took", f"{done.seconds:.1f} s")]
        for label, lines in by_outcome(done.counts).items():
            rows += [(label if i == 0 else "", visible(line)) for i, line in enumerate(lines)]
        out.show({"destination": destination, **asdict(done)}, [facts(rows)])
