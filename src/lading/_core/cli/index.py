"""`lading index`: index every shard, so that random access starts at once."""

from __future__ import annotations

from dataclasses import asdict

from lading._core.cli.options import READING, SHARING, Debug, Json, Sources, Values, one_or_many, takes
from lading._core.cli.output import FAILED, Output
from lading._core.cli.progress import watching
from lading._core.cli.text import count, facts, visible

__all__ = ["index"]


@takes(READING, SHARING)
def index(
    *,
    sources: Sources,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
    sharing: Values,
) -> None:
    """Index every shard, so that random access starts at once.

    The indexes are stored in the cache folder ($LADING_CACHE), not next to the
    data.

    Example: lading index docs
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.dataset import index as job
        from lading._core.jobs.engine.progress import Progress

        with watching(out, "indexing") as report:
            found = job.index(
                one_or_many(sources),
                on_progress=lambda done, shards: report(Progress(done, shards, 0, 0)),
                **sharing(),
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
