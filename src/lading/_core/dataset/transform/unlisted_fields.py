"""Fields of documents that `fields` does not list, and steps need: they are read, and dropped behind these steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.column_steps import Drop
from lading._core.dataset.steps.sequence import before_map, unasked_columns, without_unasked
from lading._core.dataset.values.field_values import ITEMS
from lading._core.features.items import KEY, RESERVED
from lading.options import ReadOptions

__all__ = ["listed_fields", "with_needed_fields"]


def listed_fields(read: ReadOptions) -> tuple[str, ...] | None:
    """Return the fields of documents that are read; None for all."""
    if read.fields is not None:
        return tuple(read.fields)
    return None if read.interleaved is None else read.interleaved.fields


def with_needed_fields(read: ReadOptions, steps: Sequence[Step]) -> tuple[ReadOptions, tuple[Step, ...]]:
    """Return options that read the fields that conditions, orders, splits and joins need, and steps that drop them.

    The columns are dropped behind the last step that needs one of them. Columns behind a function are its own.

    Args:
        read: how the source is read, perhaps as this function returned it for fewer steps.
        steps: the steps.
    """
    fields = listed_fields(read)
    if fields is None:
        return read, tuple(steps)
    read_before, steps = unasked_columns(steps), without_unasked(steps)
    fields = tuple(name for name in fields if name not in read_before)
    listed = {*fields, *RESERVED, KEY, "key", ITEMS, *(() if read.interleaved is None else read.interleaved.roles)}
    unlisted: dict[str, None] = {}
    behind = 0
    for place, name in _needed(steps, fields):
        if name not in listed:
            unlisted[name], behind = None, place + 1
    if not unlisted:
        return (replace(read, fields=fields) if read_before else read), steps
    dropped = Drop(tuple(unlisted), unasked=True)
    return replace(read, fields=(*fields, *unlisted)), (*steps[:behind], dropped, *steps[behind:])


def _needed(steps: Sequence[Step], fields: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the places of steps that look at columns of the source, and the names of these columns there."""
    source: dict[str, str | None] = {}
    for place, step in enumerate(before_map(steps)):
        for column in step.looked_at([*fields, *source]):
            name = source.get(column, column)
            if name is not None:
                yield place, name
        source = step.sources(source)
