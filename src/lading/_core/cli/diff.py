"""`lading diff`: whether two datasets hold the same, and where they first differ."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lading._core.cli.options import CHOOSING, READING, Debug, Json, Steps, Values, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.source import open_chosen, open_sources
from lading._core.cli.text import columns, count, facts, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading._core.jobs.verify.diff import DiffResult

__all__ = ["diff"]


@takes(CHOOSING, READING)
def diff(  # noqa: PLR0913 - one parameter an option: the signature is the command line
    *,
    one: Annotated[str, typer.Argument(metavar="A", show_default=False, help="First dataset.")],
    other: Annotated[str, typer.Argument(metavar="B", show_default=False, help="Second dataset, of any format.")],
    number: Annotated[int, typer.Option("-n", "--number", min=0, metavar="N", help="Differences to list.")] = 10,
    any_order: Annotated[bool, typer.Option("--any-order", metavar="", help="Ignore the order of samples.")] = False,
    option_a: Annotated[
        list[str] | None,
        typer.Option("--option-a", metavar="NAME=VALUE", help="Like --option, for A only. Repeatable."),
    ] = None,
    option_b: Annotated[
        list[str] | None,
        typer.Option("--option-b", metavar="NAME=VALUE", help="Like --option, for B only. Repeatable."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
    choosing: Steps,
    reading: Values,
) -> None:
    """Compare the content of two datasets of any formats.

    The exit status is 0 if the contents are equal, 1 if not. Reading options
    apply to both datasets, --option-a and --option-b to one of them, and
    --lists to tars alone.

    Example: lading diff docs out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.verify import diff as job

        sides = [([one], reading(option_a)), ([other], reading(option_b))]
        without = [read for source, read in sides if read.get("lists") and not _has_lists(source, read)]
        for read in without if len(without) < len(sides) else ():
            del read["lists"]
        left, right = (open_chosen(source, read, choosing()) for source, read in sides)
        with left, right, watching(out, "comparing") as report:
            found = job.diff(left, right, any_order=any_order, max_differences=number, on_progress=report)
        out.status = 0 if found.equal else 1
        out.show(asdict(found), _text(one, other, found, any_order=any_order))


def _has_lists(source: list[str], read: dict[str, Any]) -> bool:
    """Return whether the format of a dataset has the option `lists`."""
    from lading._core.dataset.source.open import has_option
    from lading._core.formats.registry import get_format

    with open_sources(source, {**read, "lists": ()}) as dataset:
        return has_option(get_format(dataset.format), "lists")


def _text(one: str, other: str, found: DiffResult, *, any_order: bool) -> Iterator[RenderableType]:
    from rich.text import Text

    from lading._core.jobs.verify import diff as job

    if found.equal and found.digests[0] == found.digests[1]:
        yield Text.assemble(("equal", "bold green"), f": {count(found.counts[0], 'sample')}")
        yield facts([("digest", found.digests[0])])
        return
    if found.equal:
        yield Text.assemble(("equal", "bold green"), f": {count(found.counts[0], 'sample')}, in another order")
        return
    if found.same_samples:
        yield Text.assemble(("different order", "bold yellow"), f": the same {count(found.counts[0], 'sample')}")
        yield Text("Ignore the order with --any-order.", "dim")
    else:
        what = ("sample differs", "samples differ") if any_order else ("place differs", "places differ")
        places = count(found.differing, *what)
        yield Text.assemble(("different", "bold red"), f": {places}")
    yield facts(
        (name, Text(f"{count(number, 'sample')}, digest {digest}  {visible(source)}"))
        for name, number, digest, source in zip("AB", found.counts, found.digests, (one, other), strict=True)
    )
    if found.differences:
        yield ""
        rows = ((numbers, Text(keys, "cyan"), Text(told)) for numbers, keys, told in job.difference_rows(found))
        yield columns(("sample", "key", "differs in"), rows)
    moved = any(keys[0] != keys[1] for keys in (each["keys"] for each in found.differences))
    if not any_order and not found.same_samples and moved:
        yield Text("Samples at one place have other keys. Compare samples of one key with --any-order.", "dim")
    if found.differing > len(found.differences) > 0:
        yield Text(f"… {found.differing - len(found.differences):,} more", "dim")
