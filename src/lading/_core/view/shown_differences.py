"""What the page shows of the differences between two datasets: the fields that differ, with both values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import pyarrow as pa

from lading._core.content.digests import differing_columns, differing_items
from lading._core.dataset.values.field_values import ITEMS
from lading._core.features.items import KEY
from lading._core.units import format_bytes
from lading._core.view.cells import LONG, SHORT, CellLimits, PageCell, cells_of, keys_of
from lading._core.view.rows import SelectedSamples
from lading._core.view.word_changes import field_changes, word_changes
from lading.errors import LadingError, LimitExceeded

__all__ = ["described"]

_COMPARED: Final = CellLimits(100_000, LONG.items)
_MEASURED: Final = CellLimits(SHORT.characters, LONG.items)
_LISTED = 200
_MOST_BYTES = 256 << 20


def described(pair: tuple[int | None, int | None], one: SelectedSamples, other: SelectedSamples) -> dict[str, Any]:
    """Return what the page shows of a difference.

    `a` and `b` are the numbers of the sample. A sample that one dataset has alone comes with its `cells`. Of others
    `fields` are those that differ, and `items` those of documents: `a` and `b` are what the page shows of the values,
    `words` the changes of texts, `changes` those inside JSON.

    Args:
        pair: the number of the sample in both datasets; None where a dataset lacks the sample.
        one: the samples of the first dataset.
        other: those of the second one.
    """
    a, b = pair
    found: dict[str, Any] = {"a": a, "b": b, "key": None}
    try:
        if a is None or b is None:
            rows, number = (one, a) if b is None else (other, b)
            assert number is not None
            batch = rows.sample(number)
            [cells] = cells_of(rows.data, batch, None, SHORT)
            shown = {name: cell.as_json() for name, cell in cells.items()}
            return {**found, "key": keys_of(rows.data, batch)[0], "cells": shown}
        sides = one.sample(a), other.sample(b)
        found["key"] = keys_of(one.data, sides[0])[0]
        return {**found, **_changes(sides, (one, other), (a, b))}
    except LadingError as error:
        return {**found, "error": str(error)}


def _changes(
    sides: tuple[pa.RecordBatch, pa.RecordBatch],
    rows: tuple[SelectedSamples, SelectedSamples],
    numbers: tuple[int, int],
) -> dict[str, Any]:
    """The fields and items that differ, with both values. Raises LimitExceeded for a sample of large values."""
    for side, batch in zip(rows, sides, strict=True):
        [shown] = cells_of(side.data, batch, None, _MEASURED)
        size = sum(_length(cell) for cell in shown.values())
        if size > _MOST_BYTES:
            raise LimitExceeded("the values of the sample are too large to find the fields that differ",
                                expected=f"at most {format_bytes(_MOST_BYTES)}", found=format_bytes(size),
                                advice="'lading diff A B --any-order' names the fields.")  # fmt: skip
    whole = [side.data.take([number], views=True) for side, number in zip(rows, numbers, strict=True)]
    items: list[dict[str, Any]] = []
    if all(side.data.shards.has_items for side in rows):
        items = differing_items(*whole)
        names = {name for item in items if item["modality"] == "metadata" for name in item["fields"]}
        items = [item for item in items if item["modality"] != "metadata"]
    else:
        names = {*differing_columns(*whole)} - {KEY}
    ordered = [name for name in dict.fromkeys([*whole[0].schema.names, *whole[1].schema.names]) if name in names]
    cells = [
        cells_of(side.data, batch, [name for name in ordered if name in batch.schema.names], _COMPARED)[0]
        for side, batch in zip(rows, sides, strict=True)
    ]
    return {
        "fields": [{"name": name, **_both(cells[0].get(name), cells[1].get(name))} for name in ordered],
        "items": _items(items[:_LISTED], sides, rows) if items else [],
        "more_items": max(0, len(items) - _LISTED),
    }


def _length(cell: PageCell) -> int:
    return (cell.length or 0) + sum(map(_length, cell.items or ()))


def _both(one: PageCell | None, other: PageCell | None) -> dict[str, Any]:
    """Two values: what is shown of each, and what differs in texts and in JSON."""
    both: dict[str, Any] = {
        "a": None if one is None else one.as_json(),
        "b": None if other is None else other.as_json(),
    }
    if one is None or other is None or one.text is None or other.text is None or "error" in (one.kind, other.kind):
        return both
    if {one.kind, other.kind} & {"json"} and one.length is other.length is None:
        changes = field_changes(one.text, other.text)
        if changes:
            return {**both, "changes": [asdict(change) for change in changes[:_LISTED]],
                    "more_changes": max(0, len(changes) - _LISTED)}  # fmt: skip
    return {**both, "words": word_changes(one.text, other.text)}


def _items(
    differing: Sequence[dict[str, Any]],
    sides: tuple[pa.RecordBatch, pa.RecordBatch],
    rows: tuple[SelectedSamples, SelectedSamples],
) -> list[dict[str, Any]]:
    """The items of two documents that differ, with both values, and their places in the documents."""
    places = [_places(batch) for batch in sides]
    cells = [_items_by_row(side, batch) for side, batch in zip(rows, sides, strict=True)]
    found = []
    for item in differing:
        at: dict[str, int | None] = {}
        values: list[PageCell | None] = []
        for side, known, shown in zip("AB", places, cells, strict=True):
            there = known[item["position"], item["modality"]] if item.get("only_in", side) == side else []
            at[side.lower()] = place = there.pop(0) if there else None
            values.append(None if place is None else shown.get(place))
        found.append({**item, "at": at, **_both(*values)})
    return found


def _items_by_row(rows: SelectedSamples, batch: pa.RecordBatch) -> dict[int, PageCell]:
    """What is shown of the items of a document, by their row."""
    items = cells_of(rows.data, batch, [ITEMS], _COMPARED)[0][ITEMS].items or []
    return {(item.facts or {}).get("item", place): item for place, item in enumerate(items)}


def _places(batch: pa.RecordBatch) -> dict[tuple[int, str], list[int]]:
    """The rows of a document by position and modality."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for row, item in enumerate(batch.select(["position", "modality"]).to_pylist()):
        found[item["position"], item["modality"]].append(row)
    return found
