"""`lading verify`: compare a dataset with its manifest, checksums and indexes."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from lading._core.cli.options import CHECKING, SHARING, Debug, Json, Sources, Values, one_or_many, takes
from lading._core.cli.output import Output, finding_text
from lading._core.cli.progress import watching
from lading._core.cli.text import count, facts, visible
from lading._core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading._core.jobs.verify.verify import VerifyResult

__all__ = ["verify"]


@takes(CHECKING, SHARING)
def verify(  # noqa: PLR0913 - one argument an option
    *,
    sources: Sources,
    quick: Annotated[
        bool, typer.Option("--quick", metavar="", help="Only open shards, and compare counts and sizes.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", metavar="", help="Also read every sample, and compute the content digest.")
    ] = False,
    decode: Annotated[
        bool,
        typer.Option("--decode", metavar="", help="Also decode every image, sound, JSON text, array and video header."),
    ] = False,
    sample: Annotated[
        str,
        typer.Option(
            "--sample", metavar="PART", help="Verify a part of the shards (1%, 0.01): at least one, evenly spread."
        ),
    ] = "100%",
    max_findings: Annotated[
        int, typer.Option("--max-findings", min=1, metavar="N", help="List so many findings of each shard.")
    ] = 10,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
    sharing: Values,
) -> None:
    """Compare a dataset with its checksums, its manifest and its indexes.

    Names every damaged shard; the exit status is 1 if there is a problem.
    Shards without checksums are read, sample by sample.

    Example: lading verify out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.verify import verify as job

        def tell(shards: int, size_bytes: int) -> None:
            out.note(f"reads {format_bytes(size_bytes)} in {count(shards, 'remote shard')}")

        with watching(out, "verifying") as report:
            found = job.verify(
                one_or_many(sources),
                quick=quick,
                deep=deep,
                decode=decode,
                sample=sample,
                max_findings=max_findings,
                **sharing(),
                **reading(),
                on_remote=tell,
                on_progress=report,
            )
        out.status = 0 if found.ok else 1
        out.show(
            {"ok": found.ok, "problems": found.problems, "summary": found.summary, **asdict(found)},
            _text(found, sources),
        )


def _text(found: VerifyResult, sources: list[str]) -> Iterator[RenderableType]:
    from rich.text import Text

    from lading._core.jobs.verify.verify import mending_commands

    left = dict(found.more)
    for file, findings in groupby(found.findings, lambda finding: str(finding.get("file"))):
        for finding in findings:
            is_note = finding["level"] == "note"
            yield from finding_text(finding, "!" if is_note else "✗", "bold yellow" if is_note else "bold red")
        if file in left:
            yield _more(file, left.pop(file))
    yield from (_more(file, more) for file, more in left.items())
    label = ("no problems", "bold green") if found.ok else (count(found.problems, "problem"), "bold red")
    of_all = f" of {found.all_shards}" if found.shards < found.all_shards else ""
    yield Text.assemble(label, f" in {count(found.shards, 'shard')}{of_all}")
    yield Text(found.summary, no_wrap=True, overflow="ignore")
    yield facts(
        [
            ("verified", f"{count(found.samples, 'sample')}, {format_bytes(found.size_bytes)}, {found.seconds:.1f} s"),
            ("compared with", ", ".join(found.checked) or "nothing: there is no manifest and no index"),
            ("digest", found.digest or f"none: {_why_not(found)}"),
        ]
    )
    for column, why in found.undecoded.items():
        yield Text(f"not decoded: {visible(column)}: {visible(why)}", "yellow")
    checked = "checksums" in found.checked
    for purpose, command in mending_commands(found.findings, sources, found.salvage, has_checksums=checked):
        yield Text(f"{purpose}:")
        yield Text(f"  {visible(command)}", "cyan", no_wrap=True)


def _more(file: str, more: int) -> RenderableType:
    from rich.text import Text

    return Text(f"  … and {more:,} more in {visible(file)} (--max-findings lists more)", "dim")


def _why_not(found: VerifyResult) -> str:
    """Return why there is no digest."""
    if found.undigested is not None:
        return f"values of {visible(found.undigested)} have no digest"
    if found.ok and "checksums" in found.checked and found.depth == "files":
        return "shards that match their checksums are not read again: --deep"
    return "not all samples were read"
