"""Steps that choose and rename columns: what they make of rows and of schemas, and which columns they ask for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from lading.content.conditions import as_where
from lading.content.field_paths import Wanted
from lading.dataset.steps.cast_step import Cast, cast_schema
from lading.dataset.steps.field_steps import Fields, fields_schema
from lading.dataset.steps.key_steps import Join, SplitByGroup
from lading.dataset.steps.step import Drop, Filter, ImageBounds, Map, Rename, Select, Step, Where, before_map
from lading.dataset.transform.joined import joined_schema
from lading.dataset.values.field_values import ITEMS, columns_of
from lading.errors import UsageError
from lading.features.items import RESERVED
from lading.features.types import Image, feature_of

__all__ = [
    "after_columns",
    "always_kept",
    "choose_columns",
    "columns_asked",
    "columns_to_read",
    "refuse_lost_columns",
    "sources_behind",
]

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)

_OF_ITEMS = ("sample_id", "position", "modality")
"""Columns without which rows are no items."""


def choose_columns(step: Select | Drop | Rename, rows: _Rows, view: str, *, strict: bool = False) -> _Rows:
    """The rows with the columns that a step leaves, under the names that it gives.

    Args:
        step: the step.
        rows: the rows.
        view: how they are taken.
        strict: raise UsageError for a column that is not there; else it is taken for one that nobody needs.
    """
    for name in _named(step) if strict else ():
        _refuse_absent(name, rows.schema.names)
    if isinstance(step, Rename):
        new = _renamed(step, rows.schema.names)
        fields = [field.with_name(name) for field, name in zip(rows.schema, new, strict=True)]
        return type(rows).from_arrays(rows.columns, schema=pa.schema(fields, metadata=rows.schema.metadata))
    kept = _kept(step, rows.schema.names, view)
    if not kept and isinstance(step, Select):  # rows without columns would be none
        return type(rows).from_arrays([pa.nulls(rows.num_rows)], [step.columns[0]])
    if not kept:
        raise UsageError("no column is left", found=repr(step))
    return rows.select(kept) if kept != rows.schema.names else rows


def after_columns(step: Select | Drop | Rename | Join | Fields | Cast, schema: pa.Schema, view: str) -> pa.Schema:
    """The schema that a step of columns leaves. Raises UsageError for a column that is not there."""
    for name in _named(step):
        _refuse_absent(name, schema.names)
    if isinstance(step, Join):
        return joined_schema(step, schema)
    if isinstance(step, Cast):
        return cast_schema(step, schema)
    if isinstance(step, Fields):
        return fields_schema(step, schema)
    if isinstance(step, Rename):
        new = _renamed(step, schema.names)
        fields = [field.with_name(name) for field, name in zip(schema, new, strict=True)]
        return pa.schema(fields, metadata=schema.metadata)
    kept = {*_kept(step, schema.names, view)}
    return pa.schema([field for field in schema if field.name in kept], metadata=schema.metadata)


def _kept(step: Select | Drop, names: Sequence[str], view: str) -> list[str]:
    if isinstance(step, Drop):
        return [name for name in names if name not in step.columns]
    always = always_kept(view)
    return [name for name in names if name in step.columns or name in always]


def always_kept(view: str) -> tuple[str, ...]:
    """Columns that a selection keeps unasked."""
    return tuple(RESERVED) if view == "interleaved" else ("__key__",)


def _renamed(step: Rename, names: Sequence[str]) -> list[str]:
    new = dict(step.names)
    found = [new.get(name, name) for name in names]
    if len({*found}) < len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise UsageError("a column has this name already", expected="a name that no other column has",
                         found=repr(twice), advice="Give another name, or drop the other column first.")  # fmt: skip
    return found


def _refuse_absent(name: str, names: Iterable[str]) -> None:
    if name not in names:
        raise UsageError("no such column", expected=", ".join(names), found=repr(name))


def refuse_lost_columns(steps: Sequence[Step], view: str) -> None:
    """Raise UsageError for a column that an earlier step has dropped, renamed or not selected; nothing is read."""
    left: set[str] | None = None  # all that is left, where a selection says it
    gone = set[str]()
    for i, step in enumerate(steps):
        if isinstance(step, Map):
            left, gone = None, set()
            continue
        for name in _named(step, _added(steps[:i])):
            if name in gone or (left is not None and name not in left):
                raise UsageError("no such column: an earlier step leaves it out", found=repr(name),
                                 expected=None if left is None else ", ".join(sorted(left)))  # fmt: skip
        if view == "interleaved" and isinstance(step, (Drop, Rename)):
            _refuse_bare_items(step)
        if isinstance(step, Select):
            left, gone = {*step.columns, *always_kept(view)} - gone, gone - {*step.columns}
        elif isinstance(step, Drop):
            gone |= {*step.columns}
            left = None if left is None else left - gone
        elif isinstance(step, Rename):
            old, new = {name for name, _ in step.names}, {name for _, name in step.names}
            gone = (gone | old) - new
            left = None if left is None else (left - old) | new
        elif added := _added([step]):
            gone, left = gone - added, None if left is None else left | added


def _added(steps: Sequence[Step]) -> set[str]:
    """The columns that steps add."""
    joined = (step.table.schema.names for step in steps if isinstance(step, Join))
    return {*chain(*joined, *(step.names for step in steps if isinstance(step, Fields)))}


def _refuse_bare_items(step: Drop | Rename) -> None:
    """Raise UsageError for a step that takes from items what they need, or gives a reserved column another name."""
    if isinstance(step, Drop):
        wrong = [name for name in step.columns if name in _OF_ITEMS]
    else:
        wrong = [name for pair in step.names for name in pair if name in RESERVED]
    if wrong:
        raise UsageError("items need this column, under its own name", column=wrong[0], found=repr(step))


def _condition_columns(step: Where, added: Collection[str]) -> tuple[str, ...]:
    """Columns that a condition names; none of a pyarrow expression, which does not say them."""
    wanted = _text_wanted(step.condition) if isinstance(step.condition, str) else ()
    return tuple(dict.fromkeys(each.field.among(added).column for each in wanted))


@lru_cache(maxsize=64)
def _text_wanted(condition: str) -> tuple[Wanted, ...]:
    return as_where(condition).wanted


def _named(step: Step, added: Collection[str] = ()) -> tuple[str, ...]:
    """Columns that a step names, where earlier steps added some."""
    if isinstance(step, (Select, Drop)):
        return step.columns
    if isinstance(step, (Rename, Cast)):
        return tuple(name for name, _ in step.names) if isinstance(step, Rename) else step.names
    if isinstance(step, (Join, SplitByGroup)):
        return tuple(columns_of([step.on] if isinstance(step, Join) else step.by))
    if isinstance(step, Fields):
        return tuple(step.sources)
    return _condition_columns(step, added) if isinstance(step, Where) else ()


def columns_asked(steps: Sequence[Step], columns: Sequence[str] | None = None) -> list[str]:
    """Columns of the source that steps name before the first `Map`, and those that are asked for behind the steps."""
    asked: dict[str | None, None] = {}
    source: dict[str, str | None] = {}
    of_source = before_map(steps)
    for i, step in enumerate(of_source):
        asked |= dict.fromkeys(source.get(name, name) for name in _named(step, _added(steps[:i])))
        source = sources_behind(step, source)
    if len(of_source) == len(steps):
        asked |= dict.fromkeys(source.get(name, name) for name in columns or ())
    return [name for name in asked if name is not None]


def sources_behind(step: Step, source: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the names in the source that columns have behind a step.

    Args:
        step: the step, which comes before any `Map`.
        source: the same before the step: names of columns that have other names in the source; None for those that
            steps add.
    """
    if isinstance(step, Rename):
        return {**source, **{new: source.get(old, old) for old, new in step.names}}
    return {**source, **dict.fromkeys(_added([step]))}


def columns_to_read(
    steps: Sequence[Step], columns: Sequence[str] | None, view: str, schema: pa.Schema | None = None
) -> list[str] | None:
    """Columns of the source that must be read so that the steps give these columns; None for all.

    Args:
        steps: the steps.
        columns: columns that are asked for behind the steps; None for all.
        view: how rows are taken.
        schema: of the source, where it is known: without it, some steps need all columns.
    """
    need: set[str] | None = None if columns is None else {*columns, *(_OF_ITEMS if view == "interleaved" else ())}
    for i, step in reversed([*enumerate(steps)]):
        if isinstance(step, (Filter, Map)):
            need = None
        elif isinstance(step, Select):
            own = {*step.columns, *always_kept(view)}
            need = own if need is None else need & own
        elif isinstance(step, Rename) and need is not None:
            old = {new: old for old, new in step.names}
            need = {old.get(name, name) for name in need}
        elif isinstance(step, (Join, SplitByGroup, Fields)) and need is not None:
            need = _before_added(step, need, view, schema)
        elif isinstance(step, Where) and need is not None:
            need = _before_condition(step, need, _added(steps[:i]))
        elif isinstance(step, ImageBounds) and need is not None:
            need = None if schema is None else need | {*_image_columns(schema, view)}
    if need is None and schema is not None and not any(isinstance(step, (Filter, Map)) for step in steps):
        need = _all_but_dropped(steps, schema)
    if need is None or schema is None:
        return sorted(need or ()) or None
    found = [name for name in schema.names if name in need]
    # Rows that are only counted need a column. One that the steps keep can be read, others perhaps cannot.
    kept = None if found or columns is None else columns_to_read(steps, None, view, schema)
    return found or (kept or schema.names)[:1]


def _before_condition(step: Where, need: set[str], added: Collection[str]) -> set[str] | None:
    """Columns that are needed before a condition; None for all: an expression does not say which ones it asks for."""
    named = {*_condition_columns(step, added)}
    if named and need.issuperset(_OF_ITEMS):  # which tell the number of items
        named -= {ITEMS}
        return need | named
    return need | named if named else None


def _before_added(step: Join | SplitByGroup | Fields, need: set[str], view: str, schema: pa.Schema | None) -> set[str]:
    """Columns that are needed before a step that adds columns, or a split by groups."""
    if isinstance(step, Fields):
        return (need - {*step.names}) | {*step.sources}
    if isinstance(step, Join):
        return (need - {*step.table.schema.names}) | {*columns_of([step.on], schema)}
    return need | {*columns_of(step.by, schema), *always_kept(view)[:1]}


def _image_columns(schema: pa.Schema, view: str) -> list[str]:
    if view == "interleaved":
        return ["binary_content", "source_ref", "materialize_error"]
    return [field.name for field in schema if isinstance(feature_of(field), Image)]


def _all_but_dropped(steps: Sequence[Step], schema: pa.Schema) -> set[str] | None:
    """All columns but those that the first steps drop; None if they drop none."""
    gone = set[str]()
    for step in steps:
        if isinstance(step, Drop):
            gone |= {*step.columns}
        elif isinstance(step, (Where, ImageBounds, Rename, Join, SplitByGroup, Fields)):
            break
    return {*schema.names} - gone if gone else None
