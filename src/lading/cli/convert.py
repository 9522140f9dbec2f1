"""`lading convert`: shards of one format into shards of another."""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lading.cli.options import (
    READ_PANEL,
    WRITE_PANEL,
    Debug,
    Json,
    Overwrite,
    Reading,
    ShardSize,
    Sources,
    ToOption,
    column_names,
    name_list,
    named_options,
    one_or_many,
    reads,
)
from lading.cli.output import Output
from lading.cli.progress import watching
from lading.cli.text import count, facts, visible
from lading.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from lading.jobs.convert import ConvertSummary
    from lading.options import InterleavedOptions

__all__ = ["convert"]

_FILTERS, _WORK, _DOCUMENTS = "What is left out", "Who does it", "Interleaved documents"


class SchemaChoice(StrEnum):
    """What to do with shards whose columns differ."""

    UNION = "union"
    STRICT = "strict"
    INTERSECT = "intersect"


class DropChoice(StrEnum):
    """What goes with a row that a filter leaves out."""

    ROW = "row"
    SAMPLE = "sample"


class ChecksumChoice(StrEnum):
    """Of what checksums are kept."""

    SAMPLES = "samples"
    FILES = "files"
    NONE = "none"


class ErrorChoice(StrEnum):
    """What becomes of a row whose bytes cannot be had."""

    ERROR = "error"
    WARN = "warn"
    DROP_ROW = "drop_row"
    DROP_SAMPLE = "drop_sample"


Names = str | None


@reads
def convert(  # noqa: PLR0913 - one parameter an option: the signature is the command line
    *,
    sources: Sources,
    destination: Annotated[str, typer.Argument(metavar="DST", show_default=False, help="Folder of the new dataset.")],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="FORMAT", help="Format to write.", rich_help_panel=WRITE_PANEL, show_default=False
        ),
    ],
    names: Annotated[
        Names,
        typer.Option(
            "--columns",
            metavar="A,B",
            help="Columns to keep, beside keys, also as a JSON list; all by default.",
            rich_help_panel=READ_PANEL,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Samples to convert, at most.", rich_help_panel=READ_PANEL)
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Rows to keep, such as \"lang == 'en' and score > 0.5\".", rich_help_panel=_FILTERS
        ),
    ] = None,
    min_aspect_ratio: Annotated[
        float | None,
        typer.Option(min=0, metavar="X", help="Least width / height of images.", rich_help_panel=_FILTERS),
    ] = None,
    max_aspect_ratio: Annotated[
        float | None, typer.Option(min=0, metavar="X", help="Most of it.", rich_help_panel=_FILTERS)
    ] = None,
    min_side: Annotated[
        int | None,
        typer.Option(min=0, metavar="PX", help="Least of the shorter side of images.", rich_help_panel=_FILTERS),
    ] = None,
    max_side: Annotated[
        int | None,
        typer.Option(min=0, metavar="PX", help="Most of the longer side of images.", rich_help_panel=_FILTERS),
    ] = None,
    drop: Annotated[
        DropChoice,
        typer.Option(
            metavar="WHAT",
            help="What goes where a row fails: that row, or the whole sample of a document.",
            rich_help_panel=_FILTERS,
        ),
    ] = DropChoice.ROW,
    on_error: Annotated[
        ErrorChoice,
        typer.Option(
            metavar="POLICY",
            help="Rows whose bytes cannot be had: error, warn (written without), drop_row or drop_sample.",
            rich_help_panel=_FILTERS,
        ),
    ] = ErrorChoice.ERROR,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write a line of JSON for every row that was not kept.", rich_help_panel=_FILTERS
        ),
    ] = None,
    schema: Annotated[
        SchemaChoice,
        typer.Option(
            metavar="POLICY",
            help="Where shards differ in columns: union takes all, intersect the common ones, strict refuses.",
            rich_help_panel=READ_PANEL,
        ),
    ] = SchemaChoice.UNION,
    max_batch_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="Payload held in memory at once.", rich_help_panel=READ_PANEL)
    ] = "512MB",
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes that share the work, at most; the output is the same.",
            rich_help_panel=_WORK,
        ),
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Threads a process may use; by default the cores shared out among the workers. With two, it writes "
            "while it reads.",
            rich_help_panel=_WORK,
        ),
    ] = None,
    shard_size: ShardSize = "256MB",
    checksums: Annotated[
        ChecksumChoice,
        typer.Option(
            metavar="WHICH",
            help="Checksums to keep: of samples, by which verify and salvage name damaged ones, of files, or none.",
            rich_help_panel=WRITE_PANEL,
        ),
    ] = ChecksumChoice.SAMPLES,
    to_option: ToOption = None,
    lazy: Annotated[
        bool,
        typer.Option(
            "--lazy/--materialise",
            metavar="",
            help="Leave the bytes of items where they are, and write references to them; or write all bytes.",
            rich_help_panel=WRITE_PANEL,
        ),
    ] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Read and plan, write nothing.", rich_help_panel=WRITE_PANEL)
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", metavar="", help="Read DST back and compare content digests.", rich_help_panel=WRITE_PANEL
        ),
    ] = False,
    kept_fields: Annotated[
        Names,
        typer.Option(
            "--fields", metavar="A,B", help="Fields of the JSON to keep; all by default.", rich_help_panel=_DOCUMENTS
        ),
    ] = None,
    per_image_fields: Annotated[
        Names,
        typer.Option(metavar="A,B", help="Fields with one entry an image.", rich_help_panel=_DOCUMENTS),
    ] = None,
    per_text_fields: Annotated[
        Names,
        typer.Option(metavar="A,B", help="Fields with one entry a text.", rich_help_panel=_DOCUMENTS),
    ] = None,
    sample_id_field: Annotated[
        Names,
        typer.Option(metavar="NAME", help="Field that names the document.", rich_help_panel=_DOCUMENTS),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
    reading: Reading,
) -> None:
    """Convert shards to another format, losing nothing.

    DST appears in one step at the end; if anything fails, it stays as it was.

    Example: lading convert 'mint/*.tar' out/ --to parquet --verify
    """
    left, made = f"nothing half-written is left at {destination}", "" if dry_run else f"{destination} is written."
    with Output(as_json=as_json, debug=debug, interrupted=left, done=made) as out:
        from lading.jobs import convert as job

        told = reading()
        documents = _documents(
            told["interleaved"],
            fields=name_list(kept_fields),
            per_image_fields=name_list(per_image_fields),
            per_text_fields=name_list(per_text_fields),
            sample_id_field=sample_id_field,
        )
        with watching(out.err, "converting") as tell:
            done = job.convert(
                one_or_many(sources), destination, format=to, source_format=told["format"], view=told["view"],
                columns=column_names(names), where=where, min_aspect_ratio=min_aspect_ratio,
                max_aspect_ratio=max_aspect_ratio, min_side=min_side, max_side=max_side, drop=drop.value,
                on_error=on_error.value, ledger=ledger, lazy=lazy, roots=told["roots"], limits=told["limits"],
                schema_overrides=told["schema_overrides"],
                shard_size=shard_size, checksums=checksums.value, max_batch_bytes=max_batch_bytes, limit=limit,
                schema_policy=schema.value, overwrite=overwrite, verify=verify, dry_run=dry_run,
                source_options=told["options"], options=named_options(to_option), interleaved=documents,
                workers=workers, threads=threads, on_progress=tell,
            )  # fmt: skip
        out.show({"destination": destination, **asdict(done)}, _text(destination, done))


def _documents(given: InterleavedOptions | None, **flags: Any) -> InterleavedOptions | None:
    """Options of interleaved data: those of `--option`, with those that have a flag of their own; None if none."""
    from lading.options import InterleavedOptions

    told = {name: value for name, value in flags.items() if value is not None}
    return replace(given or InterleavedOptions(), **told) if told else given


def _lost(entry: Mapping[str, Any]) -> str:
    """One row that was not kept, on a line."""
    name = entry.get("sample_id", entry.get("__key__"))
    where = " ".join(
        part
        for part in (
            str(entry.get("file", "")),
            f"sample {name!r}" if name is not None else "",
            f"position {entry['position']}" if "position" in entry else "",
        )
        if part
    )
    return visible(f"{where}: {entry.get('detail', entry['reason'])}")


def _text(destination: str, done: ConvertSummary) -> Iterator[RenderableType]:
    from rich.text import Text

    samples = count(done.samples, "sample")
    if done.view == "interleaved":
        samples += f" ({count(done.rows, 'item')})"
    read = f"{count(done.source_shards, 'shard')} of {done.source_format}, as {done.view}: {samples}, "
    rows = [("read", Text(read + format_bytes(done.payload_bytes)))]
    if done.dry_run:
        rows.append(("wrote", Text.assemble(("nothing", "bold"), " (dry run)")))
    else:
        wrote = f": {count(done.shards, 'shard')} of {done.format}, {format_bytes(done.size_bytes)}"
        rows.append(("wrote", Text.assemble((visible(destination), "bold"), wrote)))
    if done.splits:
        told = (f"{visible(name)} {count(one.samples, 'sample')}" for name, one in done.splits.items())
        rows.append(("splits", Text(", ".join(told))))
    speed = f", {format_bytes(int(done.payload_bytes / done.seconds))}/s" if done.seconds > 0 else ""
    rows.append(("took", Text(f"{done.seconds:.1f} s{speed}")))
    rows += [("noticed", Text(f"{number:,} {visible(what)}", "yellow")) for what, number in done.counts.items()]
    rows += [("lost", Text(_lost(entry), "yellow")) for entry in done.lost]
    rows += [("schemas", Text(visible(difference), "yellow")) for difference in done.differences]
    if done.verified:
        read_back = " when read back" + (f": digest {done.digest}" if done.digest else "")
        rows.append(("verified", Text.assemble(("equal", "bold green"), read_back)))
    yield facts(rows)
