"""`lading convert`: shards of one format into shards of another."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lading._core.cli.options import (
    CHOOSING,
    READING,
    SPLITTING,
    WRITING,
    Debug,
    Json,
    Sources,
    Steps,
    Values,
    one_or_many,
    takes,
)
from lading._core.cli.output import Output
from lading._core.cli.progress import watching
from lading._core.cli.source import open_chosen
from lading._core.cli.text import by_outcome, count, facts, visible
from lading._core.units import format_bytes
from lading.errors import SeveralSplits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from lading._core.api.dataset import Dataset
    from lading._core.cli.steps import TypedSteps
    from lading._core.dataset.query import Query
    from lading._core.jobs.convert.summary import ConvertSummary

__all__ = ["chosen", "convert", "converted"]


@takes(replace(WRITING, optional=True), CHOOSING, SPLITTING, READING)
def convert(
    *,
    sources: Sources,
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DST",
            show_default=False,
            help="Folder of the new dataset, or one file such as out.parquet. - is standard output.",
        ),
    ],
    as_json: Json = False,
    debug: Debug = False,
    writing: Values,
    choosing: Steps,
    reading: Values,
    splitting: Values,
) -> None:
    """Convert shards to another format, without loss.

    Examples:
      lading convert docs out/ --to parquet --verify
      lading convert photos wide/ --to webdataset --where "jpg.width >= 96"
      lading convert photos few.parquet --dedup content --sample 10%

    DST appears in one step at the end. After a failure it stays as it was.
    Steps such as --where and --sample apply in the order in which they are typed.
    """
    piped = destination == "-"
    left = f"nothing half-written is {'read' if '://' in destination else 'left'} at {destination}"
    with Output(as_json=as_json, debug=debug, interrupted="" if piped else left, piped=piped) as out:
        from lading._core.formats.registry import format_of_name
        from lading._core.jobs.convert import convert as job

        write, steps, splits = writing(), choosing(), splitting()
        out.done = "" if write["dry_run"] or write.get("rank") is not None else f"{destination} is written."
        write["format"] = write.get("format") or format_of_name(destination)
        with watching(out, "converting") as report, ExitStack() as held:
            if splits:
                dataset = held.enter_context(
                    open_chosen(sources, reading(), steps, on_error=write["on_error"], splits=True)
                )
                shares, by = splits.get("split_into", {}), splits.get("split_by")
                source: Query | Dataset | dict[str, Dataset] = dataset.split(shares, seed=steps.seed or 0, by=by)
            else:
                source = chosen(sources, reading(), steps, held, destination, write)
            done = job.convert(source, destination, on_progress=report, **write)
        out.show(
            {"destination": destination, **asdict(done)}, converted(sources, destination, done, lazy=write["lazy"])
        )


def chosen(
    sources: Sequence[str],
    reading: Mapping[str, Any],
    steps: TypedSteps,
    held: ExitStack,
    destination: str,
    write: Mapping[str, Any],
) -> Query | Dataset | dict[str, Dataset]:
    """Open sources with the steps asked for; of a source with several splits each, with the same steps."""
    from lading._core.dataset.query import Query
    from lading._core.jobs.convert.splits import places_of_splits
    from lading._core.storage.stores import Stores

    policy = write["on_error"]
    if len(sources) == 1 and not steps.steps and steps.seed is None:
        return Query.of(sources[0], **reading)  # the job lists the source, and splits: once
    try:
        return held.enter_context(open_chosen(sources, reading, steps, on_error=policy))
    except SeveralSplits as error:
        asked = (("limit", "limit" in steps), ("ledger", write.get("ledger") is not None))
        of_one = [name for name, given in asked if given]
        stores = Stores.of(None, reading.get("storage_options")) or Stores()
        places = places_of_splits(one_or_many(sources), error, destination, stores, of_one=of_one)
    return {
        name: held.enter_context(open_chosen([place], {**reading, "split": split}, steps, on_error=policy))
        for name, (place, split) in places.items()
    }


def _outcomes(done: ConvertSummary) -> Iterator[tuple[str, str]]:
    """Give the counts of a conversion, and the first rows that are lost: a label and a line."""
    rows = by_outcome(done.counts)
    for label in ("filtered", "lost"):
        yield from ((label if i == 0 else "", line) for i, line in enumerate(rows[label]))
    yield from (("", f"  {_row(entry, tells_reason=len(rows['lost']) > 1)}") for entry in done.lost)
    yield from (("warning", line) for line in rows["warning"])
    yield from (("note", line) for line in done.notes)


def _row(entry: Mapping[str, Any], *, tells_reason: bool) -> str:
    """Return a row that was lost on one line; with the reason, unless the line above says it of all."""
    name = entry.get("sample_id", entry.get("__key__"))
    where = " ".join(
        part
        for part in (
            str(entry.get("file", "")),
            f"row {entry['row']}" if "row" in entry else "",
            f"sample {name!r}" if name is not None else "",
            f"position {entry['position']}" if "position" in entry else "",
        )
        if part
    )
    told = entry.get("detail", entry["reason"] if tells_reason else None)
    return where if told is None else f"{where}: {told}"


def _skipped(shard: Mapping[str, Any]) -> str:
    """Return a shard that was left out, on one line."""
    return visible(f"{shard['file']}: {shard['error']['message']}")


def _payload(roots: Sequence[str]) -> str:
    """Return where lazy output has its payload, and what readers must give."""
    if not roots:
        return "in the source: readers find its folder near the destination (after a move of one: --root)"
    options = " ".join(f"--root {shlex.quote(root)}" for root in roots)
    return visible(f"in the source: readers need {options} (in Python: roots={[*roots]})")


def converted(
    sources: Sequence[str], destination: str, done: ConvertSummary, *, lazy: bool
) -> Iterator[RenderableType]:
    """Give what a conversion did, as lines for people."""
    from rich.text import Text

    from lading._core.features.row_layout import row_layout

    if done.done_before:
        there = f"{count(done.samples, 'sample')} in {count(done.shards, 'shard')} of {done.format}"
        told = f" is complete: {there}, {format_bytes(done.size_bytes)}"
        before = Text.assemble((visible(destination), "bold"), told)
        yield facts([("done before", before)])
        return
    has_items = row_layout(done.view).has_items
    items = f" ({count(done.rows, 'item')})" if has_items else ""
    kept = f"{count(done.samples, 'sample')}{items}, {format_bytes(done.payload_bytes)}"
    keeps_all = done.samples == done.samples_read and not (has_items and done.filtered_rows + done.lost_rows)
    skipped = f"{done.source_shards - len(done.skipped_shards)} of " if done.skipped_shards else ""
    read = f"{skipped}{count(done.source_shards, 'shard')} of {done.source_format}, as {done.view}: "
    rows = [("read", Text(read + (kept if keeps_all else count(done.samples_read, "sample"))))]
    if not keeps_all:
        rows.append(("kept", Text(kept)))
    if done.dry_run:
        rows.append(("wrote", Text.assemble(("nothing", "bold"), " (dry run)")))
    elif done.unfinished:
        wrote = f" yet at {visible(destination)}: {count(done.shards, 'shard')} of {done.format} wait beside it"
        rows += [("wrote", Text.assemble(("nothing", "bold"), wrote)), ("left", Text(visible(done.unfinished)))]
    else:
        wrote = f": {count(done.shards, 'shard')} of {done.format}, {format_bytes(done.size_bytes)}"
        rows.append(("wrote", Text.assemble((visible(destination), "bold"), wrote)))
    if done.tasks_before:
        rows.append(("resumed", Text(f"done before: {done.tasks_before:,} of {count(done.tasks, 'task')}")))
    if lazy:
        rows.append(("payload", Text(_payload(done.roots))))
    if done.splits:
        splits = (f"{visible(name)} {count(one.samples, 'sample')}" for name, one in done.splits.items())
        rows.append(("splits", Text(", ".join(splits))))
    speed = f", {format_bytes(int(done.payload_bytes / done.seconds))}/s" if done.seconds > 0 else ""
    rows.append(("took", Text(f"{done.seconds:.1f} s{speed}")))
    rows += [(label, Text(visible(line), "yellow")) for label, line in _outcomes(done)]
    rows += [("skipped", Text(_skipped(shard), "yellow")) for shard in done.skipped_shards]
    if any("lading salvage" in str(shard["error"].get("advice")) for shard in done.skipped_shards):
        command = visible(shlex.join(["lading", "salvage", *sources, "DST"]))
        rows.append(("", Text(f"'{command}' saves the intact samples of bad shards", "yellow")))
    rows += [
        ("" if number else "schemas", Text(visible(difference), "yellow"))
        for number, difference in enumerate(done.differences)
    ]
    if done.verified:
        read_back = " when read back" + (f": digest {done.digest}" if done.digest else "")
        rows.append(("verified", Text.assemble(("equal", "bold green"), read_back)))
    yield facts(rows)
