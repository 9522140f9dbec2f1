"""`lading verify`: read everything, and hold it against what manifest and sidecars say."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lading.cli.options import READING, Debug, Json, Sources, Values, Workers, one_or_many, takes
from lading.cli.output import Output, finding_text
from lading.cli.progress import watching
from lading.cli.text import count, facts, visible
from lading.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading.jobs.verify import VerifyResult

__all__ = ["verify"]


@takes(READING)
def verify(
    *,
    sources: Sources,
    deep: Annotated[
        bool,
        typer.Option("--deep", metavar="", help="Hold every file that lading wrote against its checksum, too."),
    ] = False,
    sample: Annotated[
        str,
        typer.Option(
            "--sample", metavar="PART", help="Look at a part of the shards (1%, 0.01): at least one, evenly spread."
        ),
    ] = "100%",
    max_findings: Annotated[
        int, typer.Option("--max-findings", min=1, metavar="N", help="Stop after so many findings.")
    ] = 100,
    workers: Workers = None,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
) -> None:
    """Read everything, and hold it against manifest and index files.

    The exit status is 1 if anything is wrong; what is wrong is listed. With --deep one flipped bit shows; samples of
    shards that have the bytes that were written are not read again then.

    Example: lading verify out/
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading.jobs import verify as job

        with watching(out.err, "verifying") as tell:
            found = job.verify(
                one_or_many(sources),
                deep=deep,
                sample=sample,
                max_findings=max_findings,
                workers=workers,
                **reading(),
                on_progress=tell,
            )
        out.status = 0 if found.ok else 1
        out.show({"ok": found.ok, **asdict(found)}, _text(found))


def _text(found: VerifyResult) -> Iterator[RenderableType]:
    from rich.text import Text

    for finding in found.findings:
        yield from finding_text(finding, "✗", "bold red")
    label = ("all is well", "bold green") if found.ok else (count(len(found.findings), "finding"), "bold red")
    of_all = f" of {found.all_shards}" if found.shards < found.all_shards else ""
    yield Text.assemble(label, f" in {count(found.shards, 'shard')}{of_all}")
    yield facts(
        [
            ("looked at", f"{count(found.samples, 'sample')}, {format_bytes(found.size_bytes)}, {found.seconds:.1f} s"),
            ("held against", ", ".join(found.checked) or "nothing: there is neither a manifest nor a sidecar"),
            ("digest", found.digest or f"not taken: {_why_not(found)}"),
        ]
    )


def _why_not(found: VerifyResult) -> str:
    """Why there is no digest."""
    if found.undigested is not None:
        return f"there is none of values such as those of {visible(found.undigested)}"
    return "not all samples were read"
