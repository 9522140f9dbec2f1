"""`lading repair`: mend the damaged shards of a dataset in its place."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from lading._core.cli.options import READING, SHARING, Debug, Json, Values, takes
from lading._core.cli.output import Output, finding_text
from lading._core.cli.progress import watching
from lading._core.cli.text import count, facts, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from lading._core.jobs.salvage.repair import RepairResult

__all__ = ["repair"]

_SHOWN = 20


@takes(replace(READING, only=("limits", "storage_options")), SHARING)
def repair(
    *,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder of a dataset that lading wrote.")],
    from_copy: Annotated[
        str | None,
        typer.Option("--from", metavar="COPY", help="Take damaged shards from this copy, if it has the same bytes."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Show what would be done; change nothing.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
    reading: Values,
    sharing: Values,
) -> None:
    """Mend a dataset in its place: sound shards stay as they are.

    Damaged shards are taken from COPY, or written again with their intact
    samples. The dataset is replaced in one step. After a loss the exit status is
    1, and _lading/lost.jsonl in DIR lists every loss.

    Example: lading repair out/
    """
    with Output(as_json=as_json, debug=debug, interrupted=f"{folder} is as before") as out:
        from lading._core.jobs.salvage import repair as job

        with watching(out, "repairing") as report:
            found = job.repair(
                folder, from_copy=from_copy, dry_run=dry_run, on_progress=report, **sharing(), **reading()
            )
        out.status = 0 if found.ok else 1
        out.show({"ok": found.ok, **asdict(found)}, _text(found))


def _text(found: RepairResult) -> Iterator[RenderableType]:
    from rich.text import Text

    for finding in found.findings:
        yield from finding_text(finding, "!", "bold yellow")
    for entry in found.lost[:_SHOWN]:
        yield from finding_text(entry, "✗", "bold red")
    more = found.lost_entries - len(found.lost[:_SHOWN])
    if more > 0 and not found.dry_run:
        yield Text(f"… and {more:,} more in {visible(found.folder)}/_lading/lost.jsonl", "dim")
    if not found.changes:
        yield Text(f"nothing to repair in {count(found.shards, 'shard')}", "bold green")
        return
    yield Text("nothing is changed (--dry-run); a repair would do this:" if found.dry_run else "repaired", "bold")
    rows = [
        ("untouched", count(found.sound, "shard")),
        ("from the copy", _shards(found.copied)),
        ("salvaged", _shards(found.salvaged)),
        ("removed", _shards(found.dropped)),
        ("written again", ", ".join(map(visible, found.rewritten))),
        ("lost", _lost(found)),
        ("took", f"{found.seconds:.1f} s"),
    ]
    yield facts([(name, value) for name, value in rows if value])


def _shards(names: Sequence[str]) -> str:
    listed = ", ".join(map(visible, names[:_SHOWN]))
    return listed if len(names) <= _SHOWN else f"{count(len(names), 'shard')}: {listed} …"


def _lost(found: RepairResult) -> RenderableType:
    from rich.text import Text

    if found.ok:
        return Text("nothing", "bold green")
    return Text(f"{'' if found.counted else 'at least '}{count(found.lost_samples, 'sample')}", "bold red")
