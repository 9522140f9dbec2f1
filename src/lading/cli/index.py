"""`lading index`: look through every shard once, so that random access need not."""

from __future__ import annotations

from dataclasses import asdict

from lading.cli.options import READING, Debug, Json, Sources, Values, one_or_many, takes
from lading.cli.output import FAILED, Output
from lading.cli.progress import watching
from lading.cli.text import count, facts, visible

__all__ = ["index"]


@takes(READING)
def index(
    *,
    sources: Sources,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
) -> None:
    """Look through every shard once, so that random access need not.

    What is found is kept in the cache folder ($LADING_CACHE), not beside the data.

    Example: lading index 'mint/*.tar'
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading.jobs import index as job
        from lading.jobs.progress import Progress

        with watching(out.err, "indexing") as tell:
            found = job.index(
                one_or_many(sources),
                on_progress=lambda done, shards: tell(Progress(done, shards, 0, 0)),
                **reading(),
            )
        if found.unkept:
            out.status = FAILED
        others = "; the others need none" if found.kept < found.shards else ""
        others = f"; that of {found.unkept:,} could not be kept" if found.unkept else others
        rows = [
            ("shards", f"{found.shards:,}"),
            ("samples", f"{found.samples:,}"),
            ("kept", f"the index of {count(found.kept, 'shard')}{others}"),
            ("in", visible(found.folder)),
        ]
        out.show(asdict(found), [facts(rows)])
