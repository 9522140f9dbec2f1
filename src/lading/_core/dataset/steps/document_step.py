"""The step that makes JSON of structs in which some values are JSON text: the JSON that they were."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from lading._core.arrow import json_text
from lading._core.dataset.steps.base import Applied, AppliedEach, Step, StepContext
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.features.types import Json, feature_of, with_feature
from lading.errors import errors_at

__all__ = ["AsDocuments"]


@dataclass(frozen=True, slots=True)
class AsDocuments(Step):
    """Make JSON of structs and lists with JSON text inside.

    Attributes:
        columns: the columns, as they are before.
    """

    columns: tuple[pa.Field, ...]

    changes_columns: ClassVar[bool] = True
    keeps_names: ClassVar[bool] = False

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return the names of the columns."""
        return tuple(field.name for field in self.columns)

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with JSON."""
        known = {field.name: _made(field) for field in self.columns}
        return pa.schema([known.get(field.name, field) for field in schema], metadata=schema.metadata)

    def begin(self, context: StepContext) -> Applied:  # noqa: ARG002 - nothing is read
        """Return the step at work."""
        return AppliedEach(partial(_as_documents, self.columns))

    def __repr__(self) -> str:
        return f"as_documents({', '.join(field.name for field in self.columns)})"


def _made(field: pa.Field) -> pa.Field:
    return with_feature(pa.field(field.name, pa.large_string()), Json())


def _as_documents(columns: Sequence[pa.Field], traced: TracedBatch) -> TracedBatch:
    batch = traced.batch
    for field in columns:
        place = batch.schema.get_field_index(field.name)
        if place >= 0:
            with errors_at(column=field.name):
                values = [_document(value, field) for value in batch.column(place).to_pylist()]
            texts = [None if value is None else json_text.dumps(value) for value in values]
            batch = batch.set_column(place, _made(field), pa.array(texts, pa.large_string()))
    return replace(traced, batch=batch)


def _document(value: Any, field: pa.Field) -> Any:
    if value is None:
        return None
    if feature_of(field).is_json:
        return json_text.loads(value)
    if pa.types.is_struct(field.type):
        return {child.name: _document(value[child.name], child) for child in field.type}
    return [_document(each, field.type.value_field) for each in value] if isinstance(value, list) else value
