"""`lading digest`: the content digest of a dataset."""

from __future__ import annotations

from lading._core.cli.options import CHOOSING, READING, SHARING, Debug, Json, Sources, Steps, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.source import open_chosen
from lading._core.cli.text import facts

__all__ = ["digest"]


@takes(CHOOSING, READING, SHARING)
def digest(
    *,
    sources: Sources,
    as_json: Json = False,
    debug: Debug = False,
    choosing: Steps,
    reading: Values,
    sharing: Values,
) -> None:
    """Print the content digest, which is the same in every format.

    The digest does not depend on shard boundaries. The ordered digest depends on
    the order of samples, the unordered digest does not.

    Example: lading digest out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.verify import digest as job

        with open_chosen(sources, reading(), choosing()) as dataset, watching(out, "reading") as report:
            found = job.dataset_digest(dataset, **sharing(), on_progress=report)
        rows = [("ordered", str(found.ordered)), ("unordered", found.unordered), ("samples", f"{found.count:,}")]
        out.show(found.to_json(), [facts(rows)])
