"""Fields of documents that `fields` does not list, and steps need: they are read, and dropped behind these steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lading.content.conditions import as_where
from lading.content.field_paths import parse_field
from lading.dataset.steps.field_steps import Fields
from lading.dataset.steps.key_steps import Dedup, Join, SplitByGroup
from lading.dataset.steps.order_steps import Sort, Take
from lading.dataset.steps.step import Drop, Map, Rename, Step, Where
from lading.dataset.values.field_values import ITEMS
from lading.features.items import KEY, RESERVED
from lading.options import ReadOptions

__all__ = ["listed_fields", "with_needed_fields", "without_drops"]


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
    read_before = {name for step in steps if isinstance(step, Drop) and step.unasked for name in step.columns}
    fields = tuple(name for name in fields if name not in read_before)
    steps = without_drops(steps)
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


def without_drops(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps without those that drop what was read for other steps alone."""
    return tuple(step for step in steps if not (isinstance(step, Drop) and step.unasked))


def _needed(steps: Sequence[Step], fields: Sequence[str]) -> list[tuple[int, str]]:
    """Return the places of steps that look at columns of the source, and the names of these columns there."""
    needed = list[tuple[int, str]]()
    source: dict[str, str | None] = {}  # present name: name in the source; None for a column that a step adds
    for place, step in enumerate(steps):
        if isinstance(step, Map):
            break
        found = (source.get(name, name) for name in _looked_at(step, [*fields, *source]))
        needed += [(place, name) for name in found if name is not None]
        if isinstance(step, Rename):
            source |= {new: source.get(old, old) for old, new in step.names}
        elif isinstance(step, (Join, Fields)):
            source |= dict.fromkeys(step.table.schema.names if isinstance(step, Join) else step.names)
    return needed


def _looked_at(step: Step, known: Sequence[str]) -> list[str]:
    """Return the columns whose values decide which samples a step keeps, and in which order."""
    if isinstance(step, Where):
        wanted = as_where(step.condition).wanted if isinstance(step.condition, str) else ()
        return [each.field.among(known).column for each in wanted]
    if isinstance(step, Join):
        names: Sequence[str] = [step.on]
    elif isinstance(step, Take):
        names = [] if step.by is None else [step.by]
    else:
        names = (step.by or ()) if isinstance(step, (Sort, Dedup, SplitByGroup)) else ()
    return [parse_field(name, known).column for name in names]
