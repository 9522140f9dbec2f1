"""`lading info`: format, counts and columns of a dataset."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lading._core.cli.options import CHOOSING, READING, Debug, Json, Sources, Steps, Values, takes
from lading._core.cli.output import Output, finding_text
from lading._core.cli.progress import watching
from lading._core.cli.source import open_chosen
from lading._core.cli.text import columns, count, facts, visible
from lading._core.units import format_bytes
from lading.errors import SeveralSplits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from lading._core.jobs.stats.info import Info

__all__ = ["info"]


@takes(CHOOSING, READING)
def info(
    *,
    sources: Sources,
    as_json: Json = False,
    debug: Debug = False,
    choosing: Steps,
    reading: Values,
) -> None:
    """Show format, shards, samples, bytes and columns of a dataset.

    Reads headers and footers, no payload. Counts items of interleaved documents
    by modality. With steps such as --where, samples and columns are those behind
    the steps. Shards and size are those of the source. Of a source with several
    splits, lists the splits.

    Example: lading info docs
    """
    with Output(as_json=as_json, debug=debug) as out:
        from lading._core.jobs.stats import info as job

        read, rows = reading(), choosing()

        def fails(found: Info) -> bool:
            return bool(found.bad_shards) and read.get("on_bad_shard") != "skip"

        try:
            dataset = open_chosen(sources, read, rows)
        except SeveralSplits as error:
            if len(sources) > 1:
                raise
            found_of = {}
            for split in error.splits:
                chosen = open_chosen(sources, {**read, "split": split}, rows)
                with chosen, watching(out, split) as report:
                    found_of[split] = job.info(chosen, on_progress=report)
            out.status = int(any(map(fails, found_of.values())))
            values = {split: _value(found) for split, found in found_of.items()}
            out.show({"splits": values}, _splits(sources[0], read.get("config"), found_of))
            return
        with dataset, watching(out, "looking") as report:
            found = job.info(dataset, on_progress=report)
        out.status = int(fails(found))
        out.show(_value(found), _text(sources, found))


def _value(found: Info) -> dict[str, Any]:
    named = [dict(zip(("name", "type", "kind"), column, strict=True)) for column in found.columns]
    return {**asdict(found), "columns": named}


def _splits(source: str, config: str | None, found: Mapping[str, Info]) -> Iterator[RenderableType]:
    """A source of several splits: a line each, and what shows more of one."""
    from rich.text import Text

    yield Text(visible(source), "bold")
    yield columns(
        (count(len(found), "split"), "format", "shards", "samples", "size"),
        [
            (Text(visible(name), "cyan"), each.format, f"{each.shards:,}", _samples(each),
             format_bytes(each.size_bytes))
            for name, each in found.items()
        ],
    )  # fmt: skip
    chosen = ["--config", config] if config else []
    yield f"One of them: {shlex.join(['lading', 'info', source, *chosen, '--split', next(iter(found))])}"


def _text(sources: Sequence[str], found: Info) -> Iterator[RenderableType]:
    from rich.text import Text

    from lading._core.features.row_layout import row_layout

    of_items = row_layout(found.view).has_items
    yield Text(visible(" ".join(sources)), "bold")
    rows = [
        ("format", found.format),
        ("view", found.view + (" (a row is an item of a document)" if of_items else "")),
        ("shards", f"{found.shards:,}"),
        ("samples", f"{found.samples:,}" + (" behind the steps" if found.steps else "")),
    ]
    if of_items:
        by_modality = ", ".join(f"{number:,} {visible(name)}" for name, number in found.modalities.items())
        rows.append(("items", f"{found.rows:,}: {by_modality}" if by_modality else f"{found.rows:,}"))
    of_source = " of the source, without the steps" if found.steps else ""
    rows.append(("size", format_bytes(found.size_bytes) + of_source))
    rows.append(("manifest", "lading's" if found.manifest else "none"))
    if found.lost_samples is not None:
        lost = f"{count(found.lost_samples, 'sample')}, before: see _lading/lost.jsonl"
        rows.append(("lost", lost))
    rows += [("warning", f"{number:,} {visible(what)}") for what, number in found.counts.items()]
    if found.bad_shards:
        rows.append(("bad", f"{count(len(found.bad_shards), 'shard')}, not counted:"))
    yield facts((name, Text(value)) for name, value in rows)
    for bad in found.bad_shards:
        yield from finding_text(bad["error"], "✗", "bold red")
    yield ""
    of_first = f" (first shard of {found.shards:,})" if found.schema_is_partial else ""
    yield columns(
        (count(len(found.columns), "column") + of_first, "type", "stored as"),
        [
            (Text(visible(name), "cyan"), Text(visible(kind)), Text(_stored(stored, kind), "dim"))
            for name, stored, kind in found.columns
        ],
    )


def _samples(found: Info) -> str:
    bad = f", without {count(len(found.bad_shards), 'bad shard')}" if found.bad_shards else ""
    return f"{found.samples:,}{bad}"


def _stored(stored: str, kind: str) -> str:
    """Return the Arrow type of a column; nothing for bytes of files, and where the name of the type is the same."""
    return "" if stored in ("reference", kind) else visible(stored)
