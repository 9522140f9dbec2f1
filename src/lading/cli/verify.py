"""`lading verify`: read everything, and compare it with the manifest and index files."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lading.cli.options import CHECKING, SHARING, Debug, Json, Sources, Values, one_or_many, takes
from lading.cli.output import Output, finding_text
from lading.cli.progress import watching
from lading.cli.text import count, facts, visible
from lading.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading.jobs.verify import VerifyResult

__all__ = ["verify"]


@takes(CHECKING, SHARING)
def verify(
    *,
    sources: Sources,
    deep: Annotated[
        bool,
        typer.Option("--deep", metavar="", help="Also compare every file that lading wrote with its checksum."),
    ] = False,
    sample: Annotated[
        str,
        typer.Option(
            "--sample", metavar="PART", help="Verify a part of the shards (1%, 0.01): at least one, evenly spread."
        ),
    ] = "100%",
    max_findings: Annotated[
        int, typer.Option("--max-findings", min=1, metavar="N", help="Stop after so many findings.")
    ] = 100,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
    sharing: Values,
) -> None:
    """Read everything, and compare it with the manifest and index files.

    Lists all problems; the exit status is 1 if there is one. With --deep, one
    flipped bit is found. Shards that match their checksum are not read again.

    Example: lading verify out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading.jobs import verify as job

        with watching(out.err, "verifying") as report:
            found = job.verify(
                one_or_many(sources),
                deep=deep,
                sample=sample,
                max_findings=max_findings,
                **sharing(),
                **reading(),
                on_progress=report,
            )
        out.status = 0 if found.ok else 1
        out.show({"ok": found.ok, **asdict(found)}, _text(found, sources))


_ANOTHER_FIX = re.compile(r"columns |--root")
"""Advice where nothing is damaged: other columns can be read, or the payload is in another folder."""


def _text(found: VerifyResult, sources: list[str]) -> Iterator[RenderableType]:
    from rich.text import Text

    for finding in found.findings:
        yield from finding_text(finding, "✗", "bold red")
    label = ("no problems", "bold green") if found.ok else (count(len(found.findings), "problem"), "bold red")
    of_all = f" of {found.all_shards}" if found.shards < found.all_shards else ""
    yield Text.assemble(label, f" in {count(found.shards, 'shard')}{of_all}")
    yield facts(
        [
            ("read", f"{count(found.samples, 'sample')}, {format_bytes(found.size_bytes)}, {found.seconds:.1f} s"),
            ("checked against", ", ".join(found.checked) or "nothing: there is no manifest and no index"),
            ("digest", found.digest or f"none: {_why_not(found)}"),
        ]
    )
    if any(not _ANOTHER_FIX.search(str(finding.get("advice"))) for finding in found.findings):
        yield Text("to save the intact samples:")
        command = f"lading salvage {found.salvage or shlex.join(sources)} DST"
        yield Text(f"  {visible(command)}", "cyan", no_wrap=True)


def _why_not(found: VerifyResult) -> str:
    """Return why there is no digest."""
    if found.undigested is not None:
        return f"values of {visible(found.undigested)} have no digest"
    if found.ok and "checksums" in found.checked:
        return "shards that match their checksums are not read again"
    return "not all samples were read"
