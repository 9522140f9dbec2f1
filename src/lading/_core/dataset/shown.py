"""A dataset as text and as HTML: what it is, its columns, its steps; as HTML also its first samples. And one column.

The text of a dataset reads no payload. HTML, and both of a column, read the first samples, some MB at most, and never
raise. None of them calls a user's function, sorts, or looks for samples beyond the first rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Any

import pyarrow as pa

from lading._core.arrow.references import files_of, is_ref, unpack
from lading._core.arrow.types import uncut_values
from lading._core.content.preview import Previews, Truncated, table_html, value_text
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.query import Query
from lading._core.dataset.shards.iteration import shard_batches
from lading._core.dataset.shards.shards import DETECT_SHARDS, Shards
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.sequence import has_map
from lading._core.features.types import Feature, decode, feature_of
from lading._core.formats.base import Scan
from lading._core.units import format_bytes
from lading.errors import LadingError

__all__ = ["FirstValues", "are_near", "as_html", "as_text", "column_names", "first_samples", "labels_of"]

_FIRST_ROWS, _FIRST_BYTES = 8, 1 << 20
_MOST_SHOWN = 40
_SAMPLES, _PREVIEW_ROWS, _LOOKED_AT = 5, 64, 4
"""Samples in HTML; rows of a batch that is looked at for them; and batches."""
_PREVIEW_BYTES, _VALUE_BYTES = 24 << 20, 4 << 20
_MOST_SKIPPED = 1000


def as_text(shards: Shards, query: Query, chosen: ChosenSamples | None) -> str:
    """What a dataset is, a line a fact, a line a column, a line a step."""
    steps, facts = query.steps, _lines(_facts(shards, query))
    columns = _columns(shards, chosen)
    width = max((len(name) for name, _ in columns), default=0)
    listed = [f"    {name:<{width}}  {kind}".rstrip() for name, kind in columns]
    parts = [f"lading.Dataset: {shards.format}, {shards.view}", facts]
    parts += ["\n".join([f"  columns{_first_alone(shards)}", *listed])] if columns else []
    parts += ["\n".join(["  steps", *(f"    {step!r}" for step in steps)])] if steps else []
    return "\n".join(parts)


def _first_alone(shards: Shards) -> str:
    """Say that the columns are those of the first shard, if other shards may hold more."""
    if len(shards.listing) < 2 or (shards.knows_schema and not shards.whole.is_partial):  # noqa: PLR2004 - several
        return ""
    return f" (first shard of {len(shards.listing):,})"


def _lines(facts: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"  {name:<8} {value}" for name, value in facts)


def as_html(shards: Shards, query: Query, chosen: ChosenSamples | None) -> str:
    """The same as small tables, for notebooks, with the first samples."""
    steps, facts = query.steps, _table(_facts(shards, query))
    columns = _table(_columns(shards, chosen))
    listed = "".join(f"<li><code>{escape(repr(step))}</code></li>" for step in steps)
    title = f"<b>lading.Dataset</b>: {escape(shards.format)}, {escape(shards.view)}"
    alone = f"<i>{_first_alone(shards).strip()}</i>" if _first_alone(shards) else ""
    told = f"<div style='display:flex;gap:2em;align-items:flex-start'>{facts}{columns}{alone}</div>"
    return f"<div>{title}{told}{f'<ol>{listed}</ol>' if steps else ''}{_first_samples(shards, steps)}</div>"


def _first_samples(shards: Shards, steps: Sequence[Step]) -> str:
    """The first samples as a table; or why they are not shown."""
    if not are_near(shards, steps):
        return "<p><code>ds.head()</code> shows the first samples.</p>"
    try:
        samples, labels = first_samples(shards, ChosenSamples(shards, steps) if steps else None)
    except Exception as error:  # noqa: BLE001 - a dataset that cannot be read is shown all the same
        return f"<p><i>{escape(str(error))}</i></p>"
    return table_html(samples, Previews(labels=labels)) if samples else "<p>No sample among the first rows.</p>"


def are_near(shards: Shards, steps: Sequence[Step]) -> bool:
    """Whether the first samples behind steps are found without a function, an order, or a pass over shards."""
    counted = shards.known_count is not None
    for step in steps:
        if step.counts_samples:
            near = counted or (not step.needs_all and step.skips <= _MOST_SKIPPED)
        else:
            near = not (step.over_numbers or step.calls_function)
        if not near:
            return False
    return True


def first_samples(
    shards: Shards, chosen: ChosenSamples | None
) -> tuple[list[dict[str, Any]], dict[str, Sequence[str]]]:
    """The first samples, with the first bytes alone of large values; and the names of the labels of columns."""
    if chosen is None:
        batches = (
            batch for number in range(min(len(shards.listing), DETECT_SHARDS))
            for batch in shard_batches(shards, number, Scan(max_rows=_PREVIEW_ROWS, max_bytes=_PREVIEW_BYTES))
        )  # fmt: skip
    else:
        found = chosen.traced_batches(max_rows=_PREVIEW_ROWS, max_bytes=_PREVIEW_BYTES, empty=True)
        batches = (traced.batch for traced in found)
    samples: list[dict[str, Any]] = []
    labels: dict[str, Sequence[str]] = {}
    for batch in islice(batches, _LOOKED_AT):
        labels |= labels_of(batch.schema)
        samples += _samples_of(shards, batch, _SAMPLES - len(samples))
        if len(samples) >= _SAMPLES:
            break
    return samples, labels


def labels_of(schema: pa.Schema) -> dict[str, Sequence[str]]:
    """Names of the numbers of columns of labels."""
    features = {field.name: feature_of(field) for field in schema}
    return {name: feature.labels for name, feature in features.items() if feature.labels is not None}


def _samples_of(shards: Shards, batch: pa.RecordBatch, count: int) -> list[dict[str, Any]]:
    layout = shards.row_layout
    firsts = layout.firsts(batch).tolist()[: count + 1]
    stop = firsts[count] if len(firsts) > count else batch.num_rows
    rows = _values(shards, batch.slice(0, min(stop, _PREVIEW_ROWS)))
    return layout.as_samples(rows, [first for first in firsts if first < len(rows)])[:count]


def _values(shards: Shards, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as dicts; media as bytes."""
    payload = sum(is_ref(column.type) for column in batch.columns) * batch.num_rows
    most, columns = min(_VALUE_BYTES, _PREVIEW_BYTES // max(payload, 1)), []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        feature = feature_of(field)
        if is_ref(column.type):
            sizes = unpack(column).length.tolist()
            heads = shards.fetcher.heads(column, files_of(batch.schema), most)
            columns.append([_decoded(feature, _cut(head, size, most)) for head, size in zip(heads, sizes, strict=True)])
        else:
            plain = column.storage if isinstance(column.type, pa.ExtensionType) else column
            columns.append([_decoded(feature, value) for value in uncut_values(plain)])
    rows = zip(*columns, strict=True)
    return [{n: v for n, v in zip(batch.schema.names, row, strict=True) if v is not None} for row in rows]


def _cut(head: bytes | memoryview | None, size: int, most: int) -> bytes | None:
    if head is None:
        return None
    return Truncated(bytes(head), size) if size > most else bytes(head)


def _decoded(feature: Feature, value: Any) -> Any:
    """A value as `ds[i]` gives it, where that is possible."""
    if isinstance(value, Truncated):
        return value.decode("utf-8", "replace") if (feature.is_text or feature.is_json) else value
    try:
        return decode(feature, value)
    except LadingError:
        return value


@dataclass(frozen=True, slots=True)
class FirstValues:
    """The first values of a column, with its type and the number of samples.

    Attributes:
        name: the column.
        shards: the shards of its dataset.
        steps: the steps of its dataset; the column stands behind them, if the first samples are near.
        error: why there are no values; empty if there is no error so far.
    """

    name: str
    shards: Shards
    steps: Sequence[Step]
    error: str = ""

    def as_text(self) -> str:
        """The column as lines of text, a line a value."""
        values, _, why = self._found()
        lines = [f"    {value_text(value)}" for value in values] or [f"    {why}"]
        more = ["    …"] if len(values) == _SAMPLES and self._count() != f"{_SAMPLES}" else []
        return "\n".join([f"lading.Column: {self.name}", _lines(self._facts()), "  values", *lines, *more])

    def as_html(self) -> str:
        """The column as a table, with thumbnails and players."""
        values, labels, why = self._found()
        rows = [{self.name: value} for value in values]
        told = table_html(rows, Previews(labels=labels)) if rows else f"<p>{escape(why)}</p>"
        return f"<div><b>lading.Column</b>: {escape(self.name)}{_table(self._facts())}{told}</div>"

    def _found(self) -> tuple[list[Any], dict[str, Sequence[str]], str]:
        """The first values, the names of labels, and why there are no values."""
        if self.error:
            return [], {}, self.error
        if not are_near(self.shards, self.steps):
            return [], {}, f"ds[{self.name!r}][:{_SAMPLES}] reads the first values."
        try:
            samples, labels = first_samples(self.shards, self._chosen())
        except Exception as error:  # noqa: BLE001 - a column that cannot be read is shown all the same
            return [], {}, str(error)
        return [sample.get(self.name) for sample in samples], labels, "No sample among the first rows."

    def _facts(self) -> list[tuple[str, str]]:
        kind = dict(_columns(self.shards, self._chosen())).get(self.name)
        return [*([("type", kind)] if kind else []), ("samples", self._count())]

    def _count(self) -> str:
        return _count(self.shards, self.steps)

    def _chosen(self) -> ChosenSamples | None:
        return ChosenSamples(self.shards, self.steps) if self.steps else None


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = (f"<tr><th style='text-align:left'>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table>{''.join(cells)}</table>"


def _facts(shards: Shards, query: Query) -> list[tuple[str, str]]:
    names = query.source.names
    named = [str(query.source)] if isinstance(names, (str, os.PathLike)) else list(names)
    more = f" and {len(named) - 1:,} more" if len(named) > 1 else ""
    return [
        ("source", f"{os.fspath(named[0])}{more}" if named else ""),
        ("shards", f"{len(shards.listing):,}"),
        ("samples", _count(shards, query.steps)),
        *_size(shards),
    ]


def _count(shards: Shards, steps: Sequence[Step]) -> str:
    """The number of samples, as far as it is known without reading them."""
    count = shards.known_count
    if (
        count is not None
        and steps
        and all(step.counts_samples or (step.changes_columns and step.keeps_samples) for step in steps)
    ):
        with suppress(LadingError):
            return f"{len(ChosenSamples(shards, steps).numbers):,}"
    return "not counted yet" if count is None else f"{count:,} before the steps" if steps else f"{count:,}"


def _size(shards: Shards) -> list[tuple[str, str]]:
    """The size of the shards on disk, where a list says it of all."""
    sizes = shards.listing.table.column("size_bytes")
    return [] if sizes.null_count else [("size", format_bytes(pa.compute.sum(sizes, min_count=0).as_py()))]


def column_names(shards: Shards, chosen: ChosenSamples | None) -> list[str]:
    """Names of the columns, as far as the first rows tell them, and as `_columns` finds them."""
    if chosen is not None and has_map(chosen.steps):
        return []
    return [field.name for field in _fields(shards, chosen)]


def _columns(shards: Shards, chosen: ChosenSamples | None) -> list[tuple[str, str]]:
    """Name and logical type of each column, as far as the first rows tell them; a function is not called for it."""
    if chosen is not None and has_map(chosen.steps):
        return _columns_before_map(shards, chosen.steps)
    try:
        fields = list(islice(_fields(shards, chosen), _MOST_SHOWN + 1))
    except LadingError as error:
        return [("…", f"unknown: {error.message}")]
    told = [(field.name, feature_of(field).kind) for field in fields[:_MOST_SHOWN]]
    return [*told, ("…", "")] if len(fields) > _MOST_SHOWN else told


def _columns_before_map(shards: Shards, steps: Sequence[Step]) -> list[tuple[str, str]]:
    """The columns that the first function over samples gets, which it adds to; those of a function over batches."""
    place, first = next((at, step) for at, step in enumerate(steps) if step.makes_columns)
    if first.replaces_batches:
        return [("…", "what map_batches() returns")]
    before = ChosenSamples(shards, steps[:place]) if place else None
    return [*_columns(shards, before), ("…", "and what map() returns")]


def _fields(shards: Shards, chosen: ChosenSamples | None) -> Iterator[pa.Field]:
    if shards.knows_schema:
        yield from shards.whole.schema if chosen is None else chosen.whole_schema
        return
    # To find the schema of a tar is a walk over all of it, and the first sample behind a condition may be far away.
    steps = [] if chosen is None else [step for step in chosen.steps if step.changes_columns and step.keeps_samples]
    if steps:
        found = ChosenSamples(shards, steps).traced_batches(max_rows=_FIRST_ROWS, max_bytes=_FIRST_BYTES)
        batches = (traced.batch for traced in found)
    else:
        numbers = range(len(shards.listing))
        scan = Scan(max_rows=_FIRST_ROWS, max_bytes=_FIRST_BYTES)
        batches = (batch for number in numbers for batch in shard_batches(shards, number, scan))
    first = next(batches, None)
    yield from first.schema if first is not None else ()
