"""`lading stats`: what the columns of a dataset hold."""

from __future__ import annotations

from typing import Annotated

import typer

from lading._core.cli.options import CHOOSING, READING, SHARING, Debug, Json, Sources, Steps, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.source import open_chosen

__all__ = ["stats"]


@takes(CHOOSING, READING, SHARING)
def stats(
    *,
    sources: Sources,
    top: Annotated[
        int, typer.Option("--top", min=0, metavar="N", help="Most frequent values to show of each column.")
    ] = 10,
    as_json: Json = False,
    debug: Debug = False,
    choosing: Steps,
    reading: Values,
    sharing: Values,
) -> None:
    """Show statistics of columns: bounds, histograms, frequent values.

    Looks into JSON, and measures images by their headers. Names such as
    json.lang, len(txt) and jpg.width are those that --where takes.

    Example: lading stats docs --limit 1000
    """
    with Output(as_json=as_json, debug=debug) as out:
        from rich.text import Text

        from lading._core.jobs.stats import stats as job
        from lading._core.jobs.stats.text import as_text

        with open_chosen(sources, reading(), choosing()) as dataset, watching(out, "reading") as report:
            found = job.dataset_stats(dataset, top=top, **sharing(), on_progress=report)
        width = out.out.width if not as_json else 0
        lines = () if as_json else as_text(found, width).splitlines()
        out.show(found.to_dict(), (Text(line, no_wrap=True) for line in lines))
