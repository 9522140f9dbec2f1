"""Errors for fields that no sample has: their names are checked when the rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any

import orjson
import pyarrow as pa

from lading._core.arrow.views import is_text
from lading._core.content.field_paths import FieldPath, Wanted, parse_field
from lading._core.content.nested import close_to
from lading._core.dataset.shards.iteration import MAX_BYTES, shard_batches
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.dataset.transform.row_filters import of_other_kind, without
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.dataset.values.field_values import read_fields
from lading._core.dataset.writing.outcomes import ALONG, Outcomes
from lading._core.formats.base import Scan
from lading.errors import DataError, UsageError

__all__ = ["AbsentFields", "no_sample_has", "refuse_absent_fields", "refusing_absent_columns"]

_LOOKED_AT, _MOST_BATCHES = 256, 64
_SHOWN_NAMES, _MOST_LEVELS = 50, 8


def refuse_absent_fields(shards: Shards, steps: Sequence[Step], outcomes: Outcomes) -> None:
    """Raise UsageError if every row was left out because it lacks the same field.

    Args:
        shards: the source.
        steps: the steps.
        outcomes: what became of all rows, none of which is left.
    """
    for place, step in enumerate(steps):
        for wanted in () if step.row_condition is None else step.row_condition.wanted:
            of_kind = (of_other_kind(wanted),) if wanted.field.path else ()
            reasons = tuple(f"{reason}, " for reason in (without(wanted.field), *of_kind))
            count = sum(number for what, number in outcomes.counts.items() if what.startswith(reasons))
            along = sum(number for what, number in outcomes.counts.items() if what.startswith(f"{ALONG}, "))
            if count and count == sum(outcomes.rows.values()) - along:
                raise no_sample_has(shards, wanted, steps[:place])


def refusing_absent_columns(
    found: Iterable[TracedBatch], steps: Sequence[Step], check: Callable[[], object]
) -> Iterator[TracedBatch]:
    """Give batches as they come, and at their end check selected columns in which no row had a value.

    Each tar has columns of its own, so only their end tells.

    Args:
        found: all rows behind the steps.
        steps: the steps.
        check: raises UsageError for a column that no shard has.
    """
    wanted = {name for step in steps for name in step.selected}
    rows = 0
    for traced in found:
        rows += traced.batch.num_rows
        wanted -= {name for name in wanted if _has_values(traced.batch, name)}
        yield traced
    if rows and wanted:
        check()


def _has_values(batch: pa.RecordBatch, name: str) -> bool:
    return name in batch.schema.names and batch.column(name).null_count < batch.num_rows


class AbsentFields:
    """Notes which fields inside columns no sample has: to order or compare samples by them would do nothing.

    Args:
        names: of columns and fields.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._found, self._columns, self._rows = names, set[str](), list[str](), 0

    @property
    def left(self) -> bool:
        """Whether a field is still to be found."""
        return len(self._found) < len({*self._names})

    def see(self, columns: list[str], values: Sequence[pa.Array]) -> None:
        """Note the values of each name in some rows, which have these columns."""
        self._columns, self._rows = columns, self._rows + len(values[0])
        self._found.update(n for n, each in zip(self._names, values, strict=True) if each.null_count < len(each))

    def refuse(self, shards: Shards) -> None:
        """Raise UsageError if no row had a value of one of the fields."""
        listed = shards.interleaved.fields or ()
        for name in self._names if self._rows else ():
            field = parse_field(name, self._columns)
            if name not in self._found and (field.path or name in listed):
                raise no_sample_has(shards, Wanted(field))


_KINDS = {"text": "a text", "number": "a number", "bool": "true or false", "length": "a text or a list",
          "list": "a list"}  # fmt: skip


def no_sample_has(shards: Shards, wanted: Wanted, steps: Sequence[Step] = ()) -> UsageError:
    """Return the error that no sample has a field, with the names that the first samples have there.

    Args:
        shards: the source.
        wanted: the field.
        steps: those before the rows that lack the field.
    """
    field = wanted.field
    if not field.path:
        fields = shards.with_fields(None).schema.names
        return UsageError("no such column", expected=", ".join(fields), found=repr(field.column),
                          advice=close_to(field.column, fields))  # fmt: skip
    above = FieldPath(field.column, field.path[:-1])
    column = field.column
    for step in reversed(steps):
        column = step.sources({}).get(column) or column
    if column not in shards.schema.names:
        return UsageError("no sample has this field", column=field.column, found=repr(str(field)),
                          advice="A step makes the column. ds.head(1) shows what is in it.")  # fmt: skip
    objects = _objects_at(shards, FieldPath(column, above.path))
    inside = list(dict.fromkeys(name for each in objects for name in each))
    names = [str(FieldPath(field.column, (*above.path, name))) for name in inside]
    if str(field) in names and wanted.use in _KINDS:
        is_list = any(isinstance(each.get(str(field.path[-1])), list) for each in objects)
        return UsageError(
            f"no sample has {_KINDS[wanted.use]} in this field", column=field.column, found=repr(str(field)),
            advice=f"It is a list: 'x' in {field}." if is_list else "Texts stand in quotes, numbers do not.",
        )  # fmt: skip
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
    deeper = _path_to(field.path[-1], objects)
    meant = f"Did you mean {FieldPath(field.column, (*above.path, *deeper))}?" if deeper else None
    return UsageError("no sample has this field", column=field.column, expected=shown or None, found=repr(str(field)),
                      advice=meant or close_to(str(field.path[-1]), inside))  # fmt: skip


def _path_to(name: str | int, objects: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the shortest path to a field of this name in objects inside objects; empty if there is none."""
    level: dict[tuple[str, ...], Mapping[str, Any]] = {
        (key,): value for each in objects for key, value in each.items() if isinstance(value, dict)
    }
    for _ in range(_MOST_LEVELS):
        found = next((path for path, value in level.items() if name in value), None)
        if found is not None:
            return (*found, str(name))
        level = {
            (*path, key): inner
            for path, value in level.items()
            for key, inner in value.items()
            if isinstance(inner, dict)
        }
    return ()


def _objects_at(shards: Shards, path: FieldPath) -> list[dict[str, Any]]:
    """Return the objects at a path, in the first samples that have any."""
    scan = Scan([path.column], max_rows=_LOOKED_AT, max_bytes=MAX_BYTES)
    batches = chain.from_iterable(shard_batches(shards, i, scan) for i in range(len(shards.listing)))
    return next(filter(None, (_objects_of(shards, batch, path) for batch in islice(batches, _MOST_BATCHES))), [])


def _objects_of(shards: Shards, batch: pa.RecordBatch, path: FieldPath) -> list[dict[str, Any]]:
    try:
        [column] = read_fields(batch, [Wanted(path)], shards.fetcher)
    except (UsageError, DataError):
        return []  # its JSON is broken elsewhere
    values = column.values.storage if isinstance(column.values.type, pa.JsonType) else column.values
    objects = []
    for text in values.drop_null().to_pylist() if is_text(values.type) else ():
        with suppress(ValueError):  # of a text that is no JSON
            objects.append(orjson.loads(text))
    return [each for each in objects if isinstance(each, dict)]
