"""The step that reads payload from places: structs of a file, an offset and a length become the bytes there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.references import FileEntry, files_of, make_refs, ref_field, with_files
from lading._core.arrow.views import present
from lading._core.content.nested import plain
from lading._core.dataset.steps.base import Applied, AppliedEach, Step, StepContext
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading.errors import BadReference

__all__ = ["AtPlaces"]


@dataclass(frozen=True, slots=True)
class AtPlaces(Step):
    """Take the bytes at places in place of the places: they are read when samples are.

    Attributes:
        columns: the columns, under their names, as they become; before, structs with `url`, `offset` and `length`.
        files: the files that places may name. All others are an error.
    """

    columns: tuple[pa.Field, ...]
    files: tuple[FileEntry, ...]

    changes_columns: ClassVar[bool] = True
    keeps_names: ClassVar[bool] = False

    def named(self, added: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - as of all steps
        """Return the names of the columns."""
        return tuple(field.name for field in self.columns)

    def schema_after(self, schema: pa.Schema, view: str) -> pa.Schema:  # noqa: ARG002 - as of all steps
        """Return the schema with references."""
        known = {field.name: ref_field(field) for field in self.columns}
        return pa.schema([known.get(field.name, field) for field in schema], metadata=schema.metadata)

    def begin(self, context: StepContext) -> Applied:  # noqa: ARG002 - nothing is read
        """Return the step at work."""
        return AppliedEach(partial(_at_places, self.columns, self.files))

    def __repr__(self) -> str:
        return f"at_places({', '.join(field.name for field in self.columns)})"


def _at_places(columns: Sequence[pa.Field], files: Sequence[FileEntry], traced: TracedBatch) -> TracedBatch:
    batch = traced.batch
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
    batch = batch.replace_schema_metadata(with_files(batch.schema, [*before, *files]).metadata)
    return replace(traced, batch=batch)


def _refuse(column: pa.Array, wrong: np.ndarray, name: str, problem: str, advice: str | None) -> None:
    """Raise BadReference for the first wrong row."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        row = int(rows[0])
        raise BadReference(problem, row=row, column=name, found=repr(column[row].as_py())[:200], advice=advice)
