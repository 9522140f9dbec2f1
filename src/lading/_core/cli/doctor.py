"""`lading doctor`: problems of a dataset's layout, and the command that fixes each."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lading._core.cli.options import READING, Debug, Json, Sources, Values, one_or_many, takes
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.text import count, visible
from lading._core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading._core.jobs.verify.doctor import Diagnosis

__all__ = ["doctor"]


@takes(READING)
def doctor(
    *,
    sources: Sources,
    sample: Annotated[
        str,
        typer.Option(
            "--sample", metavar="PART", help="Open a part of the shards (1%, 0.01): at least one, evenly spread."
        ),
    ] = "100%",
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
) -> None:
    """Find layout problems, and print the command that fixes them.

    Reads listings, headers, footers and indexes, no payload. The exit status
    is 1 if there is a problem.

    Example: lading doctor out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.verify import doctor as job

        with watching(out, "checking") as report:
            found = job.doctor(one_or_many(sources), sample=sample, **reading(), on_progress=report)
        out.status = 0 if found.ok else 1
        out.show({"ok": found.ok, **asdict(found)}, _text(found))


def _text(found: Diagnosis) -> Iterator[RenderableType]:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    for finding in found.findings:
        many = f", in {finding.shards:,} of {count(found.shards, 'shard')}" if finding.shards > 1 else ""
        yield Text.assemble(("✗ ", "bold red"), (visible(finding.problem), "bold"), many)
        measured = Text(f"{visible(finding.shard)}: {visible(finding.measured)}", overflow="fold")
        yield Padding(Group(measured, Text(finding.why, "dim")), (0, 0, 0, 2))
    label = ("no problems", "bold green") if found.ok else (count(len(found.findings), "problem"), "bold red")
    of_all = f" ({found.shards:,} of them opened)" if found.shards < found.all_shards else ""
    in_all = f" in {count(found.all_shards, 'shard')} of {found.format}, {format_bytes(found.size_bytes)}{of_all}"
    yield Text.assemble(label, in_all)
    fixed = {f.problem: f.command for f in found.findings if f.command}
    unsolved = ", ".join(visible(f.problem) for f in found.findings if f.command is None)
    for command in dict.fromkeys(fixed.values()):
        yield Text(f"fix for {', '.join(map(visible, fixed))}:" if unsolved else "fix:")
        yield Text(f"  {visible(command)}", "cyan", no_wrap=True)
    if unsolved:
        yield Text(f"no command of lading fixes {unsolved}")
