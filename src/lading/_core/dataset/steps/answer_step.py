"""The step that makes samples of rows of a query: places become the bytes there, and typed JSON is JSON again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow import json_text
from lading._core.arrow.references import FileEntry, files_of, make_refs, ref_field, with_files
from lading._core.arrow.views import present
from lading._core.content.nested import plain
from lading._core.dataset.steps.base import Applied, AppliedEach, Step, StepContext
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.features.json_inside import documents_of
from lading._core.features.types import Json, with_feature
from lading.errors import BadReference, errors_at

__all__ = ["AsSamples"]


@dataclass(frozen=True, slots=True)
class AsSamples(Step):
    """Take the bytes at places in place of the places, and JSON in place of structs and lists with JSON text inside.

    Bytes are read when samples are.

    Attributes:
        places: columns of media, as they become; before, structs with `url`, `offset` and `length`.
        files: the files that places may name. All others are an error.
        documents: columns of JSON, as they are before.
    """

    places: tuple[pa.Field, ...]
    files: tuple[FileEntry, ...]
    documents: tuple[pa.Field, ...]

    changes_columns: ClassVar[bool] = True
    keeps_names: ClassVar[bool] = False

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return the names of the columns."""
        return tuple(field.name for field in (*self.places, *self.documents))

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with references and JSON."""
        made = [*map(ref_field, self.places), *map(_json_field, self.documents)]
        known = {field.name: field for field in made}
        return pa.schema([known.get(field.name, field) for field in schema], metadata=schema.metadata)

    def begin(self, context: StepContext) -> Applied:  # noqa: ARG002 - nothing is read
        """Return the step at work."""
        return AppliedEach(partial(_as_samples, self))

    def __repr__(self) -> str:
        return f"as_samples({', '.join(self.named(()))})"


def _as_samples(step: AsSamples, traced: TracedBatch) -> TracedBatch:
    batch = _at_places(step.places, step.files, traced.batch) if step.places else traced.batch
    return replace(traced, batch=_as_documents(step.documents, batch))


def _at_places(columns: Sequence[pa.Field], files: Sequence[FileEntry], batch: pa.RecordBatch) -> pa.RecordBatch:
    before = files_of(batch.schema)
    urls = pa.array([each.url for each in files], pa.string())
    for field in columns:
        place = batch.schema.get_field_index(field.name)
        if place < 0:
            continue
        column = plain(batch.column(place))
        there = present(column)
        url, offset, length = (pc.struct_field(column, name) for name in ("url", "offset", "length"))
        file = pc.index_in(url.cast(pa.string()), value_set=urls)
        _refuse(column, there & ~(present(offset) & present(length)), field.name,
                "these bytes have no place of their own: they are in a compressed file, or in a cell of a table",
                "Let the query take the bytes: --media bytes.")  # fmt: skip
        _refuse(column, there & ~present(file), field.name, "a place in a file that the query did not read", None)
        refs = make_refs(
            offset.fill_null(0).to_numpy(), length.fill_null(0).to_numpy(),
            file=(file.fill_null(0).to_numpy() + len(before)).astype(np.int32), valid=there,
        )  # fmt: skip
        batch = batch.set_column(place, ref_field(field), refs)
    return batch.replace_schema_metadata(with_files(batch.schema, [*before, *files]).metadata)


def _refuse(column: pa.Array, wrong: np.ndarray, name: str, problem: str, advice: str | None) -> None:
    """Raise BadReference for the first wrong row."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        row = int(rows[0])
        raise BadReference(problem, row=row, column=name, found=repr(column[row].as_py())[:200], advice=advice)


def _json_field(field: pa.Field) -> pa.Field:
    return with_feature(pa.field(field.name, pa.large_string()), Json())


def _as_documents(columns: Sequence[pa.Field], batch: pa.RecordBatch) -> pa.RecordBatch:
    for field in columns:
        place = batch.schema.get_field_index(field.name)
        if place >= 0:
            with errors_at(column=field.name):
                values = documents_of(batch.column(place), field.type)
            texts = [None if value is None else json_text.dumps(value) for value in values]
            batch = batch.set_column(place, _json_field(field), pa.array(texts, pa.large_string()))
    return batch
