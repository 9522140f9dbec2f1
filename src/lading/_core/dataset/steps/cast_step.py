"""The steps that give columns other types, and that make columns of the fields of JSON objects and structs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.json_columns import column_type, kinds_of
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import byte_lengths, is_bytes, is_text, present
from lading._core.content.field_paths import FieldPath
from lading._core.content.nested import plain
from lading._core.dataset.steps.base import Applied, AppliedEach, Step, StepContext, no_such_column
from lading._core.dataset.steps.field_steps import Fields
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.dataset.values.field_values import field_type, field_values
from lading._core.features.casts import cast_column, cast_labels
from lading._core.features.items import KEY, lineage_of
from lading._core.features.natural import is_media
from lading._core.features.stored_values import declared_field
from lading._core.features.types import Bytes, Json, feature_of, with_feature
from lading._core.storage.fetch import Fetcher, value_bounds
from lading.errors import DataError, LadingError, SchemaMismatch, UsageError, errors_at

__all__ = ["Cast", "flat_fields"]

_PARSED_BYTES = 4 << 20
_INTEGERS_AND_FLOATS = 2 | 8
"""As `_core.arrow.json_columns` counts the kinds of JSON numbers."""
_MOST_INSIDE, _MOST_LEVELS = 100, 16
"""Names in an object inside JSON that become columns, and levels of objects: with more, names are ids of things."""


@dataclass(frozen=True, slots=True)
class Cast(Step):
    """Give columns other types; a value that the type cannot hold is an error.

    Attributes:
        columns: the columns, under their names, as they become.
    """

    columns: tuple[pa.Field, ...]

    changes_columns: ClassVar[bool] = True
    keeps_names: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    asks_schema: ClassVar[bool] = True

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Cast:
        """Return the step that gives each key of the mapping its value as type."""
        fields = (declared_field(name, kind) for name, kind in columns.items())
        return cls(tuple(with_feature(f, Bytes()) if feature_of(f).is_bytes else f for f in fields))

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return the names of the columns."""
        return tuple(field.name for field in self.columns)

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with the new types. Raises UsageError for a column that is missing."""
        known = {field.name: field for field in self.columns}
        for name in known:
            if name not in schema.names:
                raise no_such_column(name, schema.names)
        return pa.schema([known.get(field.name, field) for field in schema], metadata=schema.metadata)

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        return AppliedEach(partial(self._applied, context.fetcher))

    def _applied(self, fetcher: Fetcher, traced: TracedBatch) -> TracedBatch:
        return replace(traced, batch=_cast_rows(self, traced.batch, fetcher))

    def __repr__(self) -> str:
        return f"cast({', '.join(f'{field.name}: {field.type}' for field in self.columns)})"


def _cast_rows(step: Cast, batch: pa.RecordBatch, fetcher: Fetcher) -> pa.RecordBatch:
    """Return the rows with columns in their new types.

    Raises:
        SchemaMismatch: a value does not fit; names file, sample and column.
    """
    for target in step.columns:
        place = batch.schema.get_field_index(target.name)
        if place < 0:  # only other shards have the column
            continue
        try:
            column = _cast(batch, place, target, fetcher)
        except LadingError as error:
            raise _placed(error, batch, target.name) from None
        batch = batch.set_column(place, target.with_type(column.type), column)
    return batch


def _placed(error: LadingError, batch: pa.RecordBatch, name: str) -> LadingError:
    """The error with the file and the key of its row."""
    files = lineage_of(batch.schema)
    if error.row is not None and KEY in batch.schema.names:
        error.at(sample=str(batch.column(KEY)[error.row].as_py()))
    return error.at(file=files[0] if len(files) == 1 else None, column=name)


def _cast(batch: pa.RecordBatch, place: int, target: pa.Field, fetcher: Fetcher) -> pa.Array:
    field, column = batch.schema.field(place), batch.column(place)
    stored_as_bytes = is_ref(column.type) or is_bytes(column.type)
    if is_bytes(target.type) and stored_as_bytes:
        return column
    goal = feature_of(target)
    if feature_of(field).is_json and (goal.is_json or goal.is_text):
        one = fetcher.materialise(pa.record_batch([column], pa.schema([field], metadata=batch.schema.metadata)))
        return cast_column(one.column(0), target)
    [values] = field_values(batch, [field.name], fetcher)
    if goal.labels is not None and is_text(values.type):
        return _labels(values, goal.labels)
    made = cast_column(values, target)
    if goal.labels is not None:
        outside = pc.index(pc.or_(pc.less(made, 0), pc.greater_equal(made, len(goal.labels))), value=True).as_py()
        if outside >= 0:
            raise _no_label(made, outside, f"0 to {len(goal.labels) - 1}")
    if goal.is_json:
        _refuse_broken(made)
    return made


def _refuse_broken(texts: pa.Array) -> None:
    """Raise DataError, with the row, for a text that is no JSON."""
    stored = plain(texts).cast(pa.large_binary())
    for first, stop in value_bounds(byte_lengths(stored), _PARSED_BYTES):
        some = stored.slice(first, stop - first).fill_null(b"null").to_pylist()
        if json_text.loads_plain(some) is None:
            for row, text in enumerate(some, first):
                with errors_at(row=row):
                    json_text.loads(text)


def _labels(values: pa.Array, labels: tuple[str, ...]) -> pa.Array:
    numbers, unknown = cast_labels(values, labels, pa.int64())
    if unknown is not None:
        raise _no_label(values, unknown, f"one of {', '.join(labels)}")
    return numbers


def _no_label(values: pa.Array, row: int, expected: str) -> SchemaMismatch:
    return SchemaMismatch("not a label of the feature", row=row, expected=expected, found=repr(values[row].as_py()))


def flat_fields(name: str, field: pa.Field, traced_batches: Iterable[TracedBatch]) -> Fields:
    """Return the step that makes a column of each field of a column's structs or JSON objects, and of those inside.

    Args:
        name: name of the column.
        field: the column.
        traced_batches: all rows of it, with payload; read only where the column holds JSON.

    Raises:
        UsageError: the column holds neither.
        DataError: a JSON value is no object.
    """
    if pa.types.is_struct(field.type) and not feature_of(field).is_json:
        paths = _struct_paths(FieldPath(name), field.type)
        return Fields(tuple((path, pa.field(_name(path), field_type(field, path.path) or pa.null())) for path in paths))
    if not feature_of(field).is_json:
        raise UsageError("a column that holds neither JSON objects nor structs", column=name,
                         found="bytes of files" if is_ref(field.type) else str(field.type),
                         advice="Flatten another column.")  # fmt: skip
    seen = _Values()
    for traced in traced_batches:
        if name in traced.batch.schema.names:  # else only other shards have the column
            with traced.naming_rows():
                _look(name, traced.batch, seen)
    columns = tuple(_json_fields(name, (), seen))
    if not columns:
        raise UsageError("no sample has a field in this column", column=name)
    return Fields(columns)


def _name(path: FieldPath) -> str:
    return ".".join(map(str, (path.column, *path.path)))


def _struct_paths(path: FieldPath, kind: pa.StructType) -> Iterator[FieldPath]:
    """Give the paths of the fields of a struct, and of structs inside it but those of media."""
    for child in kind:
        inner = FieldPath(path.column, (*path.path, child.name))
        if pa.types.is_struct(child.type) and child.type.num_fields and not is_media(child.type):
            yield from _struct_paths(inner, child.type)
        else:
            yield inner


@dataclass(slots=True)
class _Values:
    """The JSON types of the values of a field in many documents; a few bytes a field.

    Attributes:
        kinds: types of the values that are neither lists nor objects.
        items: types of the items of lists.
        has_lists: whether a value is a list.
        has_objects: whether a value is an object.
        inside: the values of each field of the objects, by its name.
    """

    kinds: int = 0
    items: int = 0
    has_lists: bool = False
    has_objects: bool = False
    inside: dict[str, _Values] = dataclass_field(default_factory=dict)

    def add(self, value: Any) -> None:
        """Count a value."""
        if isinstance(value, dict):
            self.has_objects = True
            for name, each in value.items():
                self.inside.setdefault(name, _Values()).add(each)
        elif isinstance(value, list):
            self.has_lists = True
            self.items |= kinds_of(value)
        else:
            self.kinds |= kinds_of([value])

    @property
    def is_flat(self) -> bool:
        """Whether all values are objects whose fields become columns: few names, and not ids of things."""
        return self.has_objects and not self.has_lists and not self.kinds and 0 < len(self.inside) <= _MOST_INSIDE

    def column(self, name: str) -> pa.Field:
        """Return the column that holds all values exactly: of one type, of lists of one type, else JSON."""
        kind = None
        if self.has_lists and not (self.has_objects or self.kinds):
            kind = _type_of(name, self.items)
            kind = None if kind is None else pa.list_(kind)
        elif not (self.has_lists or self.has_objects):
            kind = _type_of(name, self.kinds)
        return with_feature(pa.field(name, pa.string()), Json()) if kind is None else pa.field(name, kind)


def _type_of(name: str, kinds: int) -> pa.DataType | None:
    """Return the type of values of these types of JSON; None if only JSON holds all of them, or there is none."""
    if kinds == _INTEGERS_AND_FLOATS:
        return pa.float64()
    made = column_type(name, kinds)
    return None if feature_of(made).is_json or pa.types.is_null(made.type) else made.type


def _json_fields(column: str, above: tuple[str, ...], seen: _Values) -> Iterator[tuple[FieldPath, pa.Field]]:
    for name, values in seen.inside.items():
        path = (*above, name)
        if values.is_flat and len(path) < _MOST_LEVELS:
            yield from _json_fields(column, path, values)
        else:
            found = FieldPath(column, path)
            yield found, values.column(_name(found))


def _look(name: str, batch: pa.RecordBatch, seen: _Values) -> None:
    column = batch.column(name)
    there = present(column)
    for row, text in enumerate(column.to_pylist()):
        if not there[row]:
            continue
        try:
            value = json_text.loads(text)
        except LadingError as error:
            raise _placed(error.at(row=row), batch, name) from None
        if not isinstance(value, dict):
            raise _placed(DataError("a JSON value without fields", row=row, expected="an object",
                                    found=f"{value!r:.80}"), batch, name)  # fmt: skip
        seen.add(value)
