"""What the steps of a dataset make together: names, the columns that they ask for, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from lading._core.dataset.steps.base import Columns, Known, Step
from lading._core.dataset.steps.column_steps import Drop
from lading._core.features.row_layout import row_layout
from lading.errors import UsageError

__all__ = [
    "before_map",
    "columns_asked",
    "columns_to_read",
    "has_map",
    "lists_behind",
    "names_behind",
    "refuse_lost_columns",
    "unasked_columns",
    "without_unasked",
]


def has_map(steps: Iterable[Step]) -> bool:
    """Return whether a function makes the rows."""
    return any(step.makes_columns for step in steps)


def names_behind(steps: Sequence[Step], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that columns have behind steps."""
    for step in steps:
        new = {old: name for name, old in step.sources({}).items() if old is not None}
        names = [new.get(name, name) for name in names]
    return tuple(names)


def lists_behind(steps: Sequence[Step], image_lists: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Return the names that the lists of images have behind steps."""
    return names_behind(steps, image_lists())


def before_map(steps: Sequence[Step]) -> Sequence[Step]:
    """Return the steps before the first function over samples or batches that gives columns: they name the source's."""
    return steps[: next((place for place, step in enumerate(steps) if step.makes_columns), None)]


def unasked_columns(steps: Iterable[Step]) -> set[str]:
    """Return the columns that were read for other steps alone."""
    return {name for step in steps if isinstance(step, Drop) and step.unasked for name in step.columns}


def without_unasked(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps without those that drop what was read for other steps alone."""
    return tuple(step for step in steps if not (isinstance(step, Drop) and step.unasked))


def refuse_lost_columns(steps: Sequence[Step], view: str) -> None:
    """Raise UsageError for a column that an earlier step has dropped, renamed or not selected; nothing is read."""
    left = Columns.all_but()
    for step, added in _with_added(steps):
        for name in step.named(added):
            if name not in left:
                raise UsageError("no such column: an earlier step leaves it out", found=repr(name),
                                 expected=None if left.inverted else ", ".join(sorted(left.names)))  # fmt: skip
        step.refuse_for(row_layout(view))
        left = step.left(left, view)


def _with_added(steps: Sequence[Step]) -> Iterator[tuple[Step, Collection[str]]]:
    """Yield each step with the columns that the steps before it add."""
    added: dict[str, None] = {}
    for step in steps:
        yield step, tuple(added)
        added |= dict.fromkeys(step.adds)


def columns_asked(steps: Sequence[Step], columns: Sequence[str] | None = None) -> list[str]:
    """Return the columns of the source that steps name before the first `Map`, and those asked for behind the steps."""
    asked: dict[str | None, None] = {}
    source: dict[str, str | None] = {}
    of_source = before_map(steps)
    for step, added in _with_added(of_source):
        asked |= dict.fromkeys(source.get(name, name) for name in step.named(added))
        source = step.sources(source)
    if len(of_source) == len(steps):
        asked |= dict.fromkeys(source.get(name, name) for name in columns or ())
    return [name for name in asked if name is not None]


def columns_to_read(
    steps: Sequence[Step], columns: Sequence[str] | None, view: str, schema: pa.Schema | None = None
) -> list[str] | None:
    """Return the columns of the source that must be read so that the steps give these columns; None for all.

    Args:
        steps: the steps.
        columns: columns that are asked for behind the steps; None for all.
        view: how rows are taken.
        schema: of the source, where it is known: without it, some steps need all columns.
    """
    wanted = Columns.all_but()
    if columns is not None:
        wanted = Columns.of([*columns, *row_layout(view).required])
    for step, added in reversed([*_with_added(steps)]):
        wanted = step.columns_needed(wanted, Known(view, added, schema))
    if wanted == Columns.all_but():
        return None
    if schema is None:
        return None if wanted.inverted else sorted(wanted.names) or None
    found = [name for name in schema.names if name in wanted]
    # Rows that are only counted need a column. One that the steps keep can be read, others perhaps cannot.
    kept = None if found or columns is None else columns_to_read(steps, None, view, schema)
    return found or (kept or schema.names)[:1]
