"""`lading salvage`: write the sound samples of a damaged dataset to a new one."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lading._core.cli.options import CHECKING, SHARING, WRITING, Debug, Json, Sources, Values, one_or_many, takes
from lading._core.cli.output import Output, finding_text
from lading._core.cli.progress import watching
from lading._core.cli.text import count, facts, visible
from lading._core.units import format_bytes
from lading.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lading._core.jobs.salvage.salvage import SalvageResult

__all__ = ["salvage"]

_READING = replace(CHECKING, without=(*CHECKING.without, "lists"))
_SHOWN = 20
_TAILS_SHOWN = 3


@takes(replace(WRITING, only=("format", "options", "shard_size", "overwrite"), optional=True), _READING, SHARING)
def salvage(
    *,
    sources: Sources,
    destination: Annotated[
        str, typer.Argument(metavar="DST", show_default=False, help="Folder of the new dataset, or one file.")
    ],
    as_json: Json = False,
    debug: Debug = False,
    writing: Values,
    reading: Values,
    sharing: Values,
) -> None:
    """Write the intact samples of a damaged dataset, and list the losses.

    DST has the format of SRC, or Parquet where lading only reads that, unless
    --to or its ending names another. After a loss the exit status is 1, and
    _lading/lost.jsonl in DST lists every loss. A DST such as saved.tar or
    saved.parquet is one file; its list is saved.tar.lost.jsonl.
    --workers and --executor share the reading of SRC; one process writes DST.

    Example: lading salvage broken saved
    """
    left, made = f"nothing half-written is left at {destination}", f"{destination} is written."
    with Output(as_json=as_json, debug=debug, interrupted=left, done=made) as out:
        from lading._core.jobs.salvage import salvage as job

        read = reading()
        if read.pop("schema_overrides", None):
            raise UsageError("a salvage keeps columns as they are", found="--type", advice="Convert what was saved.")
        renamed = {"format": "source_format", "options": "source_options"}
        with watching(out, "salvaging") as report:
            saved = job.salvage(
                one_or_many(sources), destination, on_progress=report,
                **{renamed.get(name, name): value for name, value in read.items()}, **writing(), **sharing(),
            )  # fmt: skip
        out.status = 0 if saved.ok else 1
        out.show({"ok": saved.ok, "destination": destination, **asdict(saved)}, _text(destination, saved))


def _text(destination: str, saved: SalvageResult) -> Iterator[RenderableType]:
    from rich.text import Text

    for finding in saved.findings:
        yield from finding_text(finding, "!", "bold yellow")
    more = saved.all_findings - len(saved.findings)
    if more > 0:
        yield Text(f"… and {more:,} more findings", "dim")
    for entry in saved.lost[:_SHOWN]:
        yield from finding_text(entry, "✗", "bold red")
    more = saved.lost_entries - len(saved.lost[:_SHOWN])
    if more > 0:
        yield Text(f"… and {more:,} more in {visible(saved.lost_list or '')}", "dim")
    samples = f": {count(saved.samples, 'sample')} in {count(saved.shards, 'shard')} of {saved.format}, "
    rows = [
        ("read", Text(f"{count(saved.source_shards, 'shard')} of {saved.source_format}, as {saved.view}")),
        ("saved", Text.assemble((visible(destination), "bold"), samples + format_bytes(saved.size_bytes))),
        ("lost", _lost(saved)),
        ("took", Text(f"{saved.seconds:.1f} s")),
    ]
    yield facts(rows)


def _lost(saved: SalvageResult) -> Any:
    from rich.text import Text

    if saved.ok:
        return Text("nothing", "bold green")
    tails = [f"everything after byte {tail['offset']:,} of {visible(str(tail['file']))}" for tail in saved.lost_tails]
    more = len(tails) - _TAILS_SHOWN
    shown = [*tails[:_TAILS_SHOWN], *([f"the ends of {count(more, 'more file')}"] if more > 0 else [])]
    samples = "" if saved.counted else "at least "
    samples += count(saved.lost_samples, "sample") if saved.lost_samples else ""
    if not saved.lost_samples:
        samples = "" if tails else "samples or values of an unknown number"
    return Text(", and ".join([*([samples] if samples else []), *shown]), "bold red")
