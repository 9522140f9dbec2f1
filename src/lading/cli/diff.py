"""`lading diff`: whether two datasets hold the same, and where they first differ."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lading.cli.options import READING, Debug, Json, Values, takes
from lading.cli.output import Output
from lading.cli.progress import watching
from lading.cli.text import columns, count, facts, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading.jobs.digest import DiffResult

__all__ = ["diff"]


@takes(READING)
def diff(  # noqa: PLR0913 - one parameter an option: the signature is the command line
    *,
    one: Annotated[str, typer.Argument(metavar="A", show_default=False, help="A dataset.")],
    other: Annotated[str, typer.Argument(metavar="B", show_default=False, help="Another, of any format.")],
    number: Annotated[int, typer.Option("-n", "--number", min=0, metavar="N", help="Differences to describe.")] = 10,
    any_order: Annotated[
        bool, typer.Option("--any-order", metavar="", help="The same samples in another order are no difference.")
    ] = False,
    option_a: Annotated[
        list[str] | None,
        typer.Option("--option-a", metavar="NAME=VALUE", help="As --option, of A only. Repeatable."),
    ] = None,
    option_b: Annotated[
        list[str] | None,
        typer.Option("--option-b", metavar="NAME=VALUE", help="As --option, of B only. Repeatable."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
) -> None:
    """Compare the content of two datasets, whatever their formats.

    The exit status is 0 if they hold the same, 1 if not. Options of reading hold
    for both, but --option-a and --option-b.

    Example: lading diff mint/ out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading.jobs import digest as job

        both = (reading(option_a), reading(option_b))
        with watching(out.err, "comparing") as tell:
            found = job.diff(one, other, max_differences=number, options=both, on_progress=tell)
        same = found.equal or (any_order and found.same_samples)
        out.status = 0 if same else 1
        out.show(asdict(found), _text(one, other, found))


def _text(one: str, other: str, found: DiffResult) -> Iterator[RenderableType]:
    from rich.text import Text

    if found.equal:
        yield Text.assemble(("equal", "bold green"), f": {count(found.counts[0], 'sample')}")
        yield facts([("digest", found.digests[0])])
        return
    if found.same_samples:
        yield Text.assemble(("different order", "bold yellow"), f": the same {count(found.counts[0], 'sample')}")
    else:
        places = count(found.differing, "place differs", "places differ")
        yield Text.assemble(("different", "bold red"), f": {places}")
    yield facts(
        (name, Text(f"{count(number, 'sample')}, digest {digest}  {visible(source)}"))
        for name, number, digest, source in zip("AB", found.counts, found.digests, (one, other), strict=True)
    )
    if found.differences:
        yield ""
        yield columns(("sample", "key", "differs in"), [_row(**d) for d in found.differences])
    if found.differing > len(found.differences) > 0:
        yield Text(f"… {found.differing - len(found.differences):,} more", "dim")


def _row(sample: int, keys: tuple[str | None, str | None], fields: list[str]) -> tuple[RenderableType, ...]:
    from rich.text import Text

    names = [visible(str(key)) for key in dict.fromkeys(keys) if key is not None]
    return f"{sample:,}", Text(" / ".join(names) or "(no key)", "cyan"), Text(visible(", ".join(fields)) or "order")
