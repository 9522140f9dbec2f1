"""`lading merge`: one dataset from the parts in a folder."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer

from lading._core.cli.options import READING, Debug, Json, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.text import facts, visible

__all__ = ["merge"]


@takes(replace(READING, only=("limits", "storage_options")))
def merge(
    *,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder with the parts, a path or URL.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar="", help="Replace a manifest or index in FOLDER itself.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
) -> None:
    """Make one dataset of the parts in a folder.

    Parts come from writers with different ranks, or are datasets in subfolders.
    No shard is read or moved.

    Example: lading merge parts
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.dataset import merge as job

        found = job.merge(folder, overwrite=overwrite, **reading())
        rows = [
            ("parts", f"{found.parts:,}"),
            ("shards", f"{found.shards:,}"),
            ("samples", f"{found.samples:,}"),
            ("wrote", ", ".join(map(visible, found.written))),
        ]
        out.show(asdict(found), [facts(rows)])
