"""The step that makes columns out of fields inside columns, and how it is applied."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.json_columns import build_column
from lading._core.arrow.views import LIST_TYPES, present
from lading._core.content.field_paths import FieldPath, Use, Wanted, parse_field
from lading._core.content.nested import field_named
from lading._core.dataset.steps.base import Applied, AppliedEach, Columns, Known, Step, StepContext, no_such_column
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.dataset.values.field_values import field_type, lacks_child, read_fields
from lading._core.dataset.values.json_values import FieldColumn
from lading._core.features.items import lineage_of
from lading._core.features.types import Json, feature_of, with_feature
from lading._core.storage.fetch import Fetcher
from lading.errors import DataError, UsageError, errors_at

__all__ = ["Fields", "fields_among", "typed_fields"]


@dataclass(frozen=True, slots=True)
class Fields(Step):
    """Add columns with the values of fields inside other columns.

    Attributes:
        fields: where the values are, and the column that holds them.
    """

    fields: tuple[tuple[FieldPath, pa.Field], ...]

    changes_columns: ClassVar[bool] = True
    keeps_names: ClassVar[bool] = False
    reads_values: ClassVar[bool] = True
    asks_schema: ClassVar[bool] = True

    @property
    def adds(self) -> tuple[str, ...]:
        """Names of the columns that are added."""
        return tuple(column.name for _, column in self.fields)

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return the columns that are read."""
        return tuple(dict.fromkeys(path.column for path, _ in self.fields))

    def columns_needed(self, wanted: Columns, known: Known) -> Columns:  # noqa: ARG002 - as of all steps
        """Return the wanted columns, but those that are added, and the columns that are read."""
        left = wanted if wanted.inverted else wanted.without(self.adds)
        return left.with_(*self.named(()))

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with the new columns. Raises UsageError for a column that is missing, or there already."""
        for name in self.named(()):
            if name not in schema.names:
                raise no_such_column(name, schema.names)
        for path, column in self.fields:
            field_named(schema, path)
            _refuse_twice(column.name, schema.names)
        return pa.schema([*schema, *(column for _, column in self.fields)], metadata=schema.metadata)

    def begin(self, context: StepContext) -> Applied:
        """Return the step at work."""
        return AppliedEach(partial(self._applied, context.fetcher))

    def _applied(self, fetcher: Fetcher, traced: TracedBatch) -> TracedBatch:
        return replace(traced, batch=_with_fields(self, traced.batch, fetcher))

    def __repr__(self) -> str:
        return f"fields({', '.join(map(repr, self.adds))})"


def fields_among(names: Sequence[str], schema: pa.Schema) -> dict[str, FieldPath]:
    """Return the names that are fields inside columns, and where these are."""
    return {
        name: path
        for name in names
        if isinstance(name, str) and name not in schema.names and ("." in name or "[" in name)
        if (path := parse_field(name, schema.names)).path and path.column in schema.names
    }


def typed_fields(wanted: Mapping[str, FieldPath], firsts: Mapping[str, pa.RecordBatch], fetcher: Fetcher) -> Fields:
    """Return the step that adds these fields, with the types that they have in a first batch of rows of each column.

    A field whose values the first rows lack, or that holds objects or values of several kinds, becomes JSON text.
    """
    columns = []
    for name, path in wanted.items():
        first = firsts[path.column]
        source = field_named(first.schema, path)
        kind = field_type(source, path.path)
        if kind is None:
            [found] = read_fields(first, [Wanted(path)], fetcher)
            kind = found.values.type
        if isinstance(kind, pa.JsonType) or pa.types.is_null(kind):
            columns.append((path, with_feature(pa.field(name, pa.string()), Json())))
        else:
            columns.append((path, pa.field(name, kind)))
    return Fields(tuple(columns))


def _refuse_twice(name: str, names: Collection[str]) -> None:
    if name in names:
        raise UsageError("a column has this name already", found=repr(name))


def _with_fields(step: Fields, batch: pa.RecordBatch, fetcher: Fetcher) -> pa.RecordBatch:
    """Return the batch with the columns of the step; null where a struct lacks the field, and other shards have it.

    Raises:
        DataError: a value does not fit the type of its column; names the sample.
    """
    here = [each for each in step.fields if each[1].name not in batch.schema.names]
    there = {
        c.name: Wanted(path, _use(c)) for path, c in here if not lacks_child(field_named(batch.schema, path), path)
    }
    found = dict(zip(there, read_fields(batch, list(there.values()), fetcher), strict=True))
    columns = [
        _fitted(found[column.name], column, batch) if column.name in found else pa.nulls(batch.num_rows, column.type)
        for _, column in here
    ]
    schema = pa.schema([*batch.schema, *(column for _, column in here)], metadata=batch.schema.metadata)
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)


def _use(column: pa.Field) -> Use:
    if feature_of(column).is_json:
        return "any"
    kind = column.type
    if pa.types.is_string(kind):
        return "text"
    return "number" if kind in (pa.int64(), pa.float64()) else "bool" if pa.types.is_boolean(kind) else "any"


def _fitted(found: FieldColumn, column: pa.Field, batch: pa.RecordBatch) -> pa.Array:
    values = found.values
    if found.others is not None:
        raise _misfit(column, batch, int(np.argmax(found.others)))
    if feature_of(column).is_json:
        return _as_json(values)
    if pa.types.is_list(column.type) and isinstance(values.type, pa.JsonType):  # lists of no items, or of several types
        lists = [None if text is None else json_text.loads(text) for text in values.storage.to_pylist()]
        return build_column(column, lists, "")
    try:
        return values.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = next((row for row, value in enumerate(values) if not _casts(value, column.type)), 0)
        raise _misfit(column, batch, row) from None


def _as_json(values: pa.Array) -> pa.Array:
    if isinstance(values.type, pa.JsonType):
        return values.storage.cast(pa.string())
    if isinstance(values.type, LIST_TYPES):
        return pa.array([None if v is None else json_text.dumps(v) for v in values.to_pylist()], pa.string())
    texts = json_text.dumps_each(values).cast(pa.string())
    return pc.if_else(pa.array(present(values)), texts, pa.scalar(None, pa.string()))


def _casts(value: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _misfit(column: pa.Field, batch: pa.RecordBatch, row: int) -> DataError:
    names, files = batch.schema.names, lineage_of(batch.schema)
    key = next((name for name in ("__key__", "sample_id") if name in names), None)
    error = DataError(
        "a value of another type than in the first samples", expected=str(column.type), column=column.name,
        advice=f"Take the column it is in, and make one with map: "
               f"ds.map(function, columns={{{column.name.rpartition('.')[2]!r}: 'float64'}}).",
    )  # fmt: skip
    with errors_at(
        file=files[0] if len(files) == 1 else None,
        sample=None if key is None else str(batch.column(key)[row].as_py()),
        row=row,
    ):
        raise error
