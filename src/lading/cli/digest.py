"""`lading digest`: the content digest of a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.options import READING, Debug, Json, Sources, Values, Workers, one_or_many, takes
from lading.cli.output import Output
from lading.cli.progress import watching
from lading.cli.text import facts

__all__ = ["Limit", "digest"]

Limit = Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="Samples to read, at most.")]


@takes(READING)
def digest(
    *,
    sources: Sources,
    limit: Limit = None,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
) -> None:
    """Print the content digest, which is the same in every format.

    The digest does not depend on shard boundaries. The ordered digest depends on
    the order of samples, the unordered digest does not.

    Example: lading digest out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading.jobs import digest as job

        with watching(out.err, "reading") as tell:
            found = job.dataset_digest(
                one_or_many(sources), limit=limit, workers=workers, **reading(), on_progress=tell
            )
        rows = [("ordered", str(found.ordered)), ("unordered", found.unordered), ("samples", f"{found.count:,}")]
        out.show(found.to_json(), [facts(rows)])
