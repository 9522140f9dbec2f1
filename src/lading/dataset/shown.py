"""A dataset as text and as HTML: what it is, its columns, its steps. No payload is read for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from itertools import islice

import pyarrow as pa

from lading.arrow.references import is_ref
from lading.dataset.chosen import ChosenSamples, has_map
from lading.dataset.iteration import shard_batches
from lading.dataset.shards import Shards
from lading.dataset.source import Source
from lading.dataset.steps import Step
from lading.errors import LadingError
from lading.features.types import feature_of

__all__ = ["as_html", "as_text"]

_FIRST_ROWS, _FIRST_BYTES = 8, 1 << 20
_MOST_SHOWN = 40


def as_text(shards: Shards, source: Source, steps: Sequence[Step], chosen: ChosenSamples | None) -> str:
    """What a dataset is, a line a fact, a line a column, a line a step."""
    facts = "\n".join(f"  {name:<8} {value}" for name, value in _facts(shards, source, steps))
    columns = _columns(shards, chosen)
    width = max((len(name) for name, _ in columns), default=0)
    listed = [f"    {name:<{width}}  {kind}".rstrip() for name, kind in columns]
    parts = [f"lading.Dataset: {shards.format}, {shards.view}", facts]
    parts += ["\n".join(["  columns", *listed])] if columns else []
    parts += ["\n".join(["  steps", *(f"    {step!r}" for step in steps)])] if steps else []
    return "\n".join(parts)


def as_html(shards: Shards, source: Source, steps: Sequence[Step], chosen: ChosenSamples | None) -> str:
    """The same as small tables, for notebooks."""
    facts = _table(_facts(shards, source, steps))
    columns = _table(_columns(shards, chosen))
    listed = "".join(f"<li><code>{escape(repr(step))}</code></li>" for step in steps)
    title = f"<b>lading.Dataset</b>: {escape(shards.format)}, {escape(shards.view)}"
    return f"<div>{title}{facts}{columns}{f'<ol>{listed}</ol>' if steps else ''}</div>"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = (f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{''.join(cells)}</table>"


def _facts(shards: Shards, source: Source, steps: Sequence[Step]) -> list[tuple[str, str]]:
    named = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    more = f" and {len(named) - 1:,} more" if len(named) > 1 else ""
    count = shards.known_count
    known = "not counted yet" if count is None else f"{count:,} before the steps" if steps else f"{count:,}"
    return [
        ("source", f"{os.fspath(named[0])}{more}" if named else ""),
        ("shards", f"{len(shards.listing):,}"),
        ("samples", known),
    ]


def _columns(shards: Shards, chosen: ChosenSamples | None) -> list[tuple[str, str]]:
    """Name and logical type of each column, as far as the first rows tell them; a function is not called for it."""
    if chosen is not None and has_map(chosen.steps):
        return [("…", "what map() returns")]
    try:
        fields = list(islice(_fields(shards, chosen), _MOST_SHOWN + 1))
    except LadingError as error:
        return [("…", f"unknown: {error.message}")]
    told = [(field.name, _kind(field)) for field in fields[:_MOST_SHOWN]]
    return [*told, ("…", "")] if len(fields) > _MOST_SHOWN else told


def _fields(shards: Shards, chosen: ChosenSamples | None) -> Iterator[pa.Field]:
    if shards.knows_schema:
        yield from shards.schema if chosen is None else chosen.schema
        return
    # To find the schema of a tar is a walk over all of it.
    for number in range(len(shards.listing)):
        if chosen is not None:
            first = next((each.batch for each in chosen.portions(max_rows=_FIRST_ROWS, max_bytes=_FIRST_BYTES)), None)
        else:
            first = next(shard_batches(shards, number, _FIRST_ROWS, _FIRST_BYTES), None)
        if first is not None or chosen is not None:
            yield from first.schema if first is not None else ()
            return


def _kind(field: pa.Field) -> str:
    """The logical type of a column: image, json, text … or its Arrow type."""
    kind = type(feature_of(field)).__name__.lower()
    if kind != "value":
        return kind
    return "bytes" if is_ref(field.type) else str(field.type)
