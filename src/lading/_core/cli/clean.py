"""`lading clean`: remove what killed or failed jobs left beside a destination, or half in it."""

from __future__ import annotations

from typing import Annotated

import typer

from lading._core.cli.options import STORES, Debug, Json, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.text import facts, visible
from lading._core.units import format_bytes

__all__ = ["clean"]


@takes(STORES)
def clean(
    *,
    destination: Annotated[
        str, typer.Argument(metavar="DST", show_default=False, help="Destination of the jobs: a folder, file or URL.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Show what would be removed.")] = False,
    as_json: Json = False,
    debug: Debug = False,
    stores: Values,
) -> None:
    """Remove what killed or failed jobs left beside DST.

    A complete DST stays as it is. On an object store, a job that was killed
    may have left DST unfinished: then DST is removed too. On disk, nothing
    is removed that a living process builds. On an object store, and with
    ranks, make sure that no job writes to DST.

    Example: lading clean mint-parquet --dry-run
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.convert.clean import clean as job

        done = job(destination, dry_run=dry_run, **stores())
        verb = "would remove" if dry_run else "removed"
        rows = [(verb, f"{visible(path)}: {format_bytes(size)}") for path, size in done.removed.items()]
        value = {"removed": dict(done.removed), "size_bytes": done.size_bytes, "dry_run": dry_run}
        out.show(value, [facts(rows or [(verb, "nothing")])])
