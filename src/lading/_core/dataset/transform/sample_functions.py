"""Functions of the user's over single samples: what they are given, and what becomes of what they return.

A function gets a `Sample`: a dict whose fields are read and decoded when they are looked at. What it returns is merged
into the sample. Fields that it leaves alone stay as they are stored, references included: no picture is encoded again.
"""

from __future__ import annotations

import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.casts import cast
from lading._core.arrow.references import is_ref
from lading._core.arrow.rows import Encoders, rows_to_batch
from lading._core.arrow.views import is_bytes, take_values, without_views
from lading._core.dataset.transform.documents import Documents, ItemRow, refuse_merged, with_rows
from lading._core.dataset.transform.sample import Columns, Sample, Values
from lading._core.features.items import KEY, lineage_of
from lading._core.features.stored_values import declared_field
from lading._core.storage.fetch import Fetcher
from lading._core.storage.threads import Running
from lading.errors import FunctionError, LadingError, UsageError, WrongType

if TYPE_CHECKING:
    from lading._core.dataset.steps.filter_steps import Filter
    from lading._core.dataset.steps.map_step import Map

__all__ = ["SampleFilter", "SampleMap", "of_batch"]

_DECLARE = (
    "Return one kind of value, or name the type of the column in Python: columns={{{name!r}: …}}, such as "
    "lading.features.Image() for images, Sequence(Image()) for lists of them."
)

Failed = dict[int, str]
"""Samples for which a function raised, by their number in the batch, and what it raised."""


class _Called(ABC):
    """Calls a function for the samples of batches, and deals with what it raises."""

    def __init__(self, step: Map | Filter, fetcher: Fetcher, view: str, *, any_members: bool = False) -> None:
        self._step, self._fetcher, self._view, self._any_members = step, fetcher, view, any_members

    def each(self, values: Values, numbers: NDArray[np.int64] | None) -> Iterator[tuple[int, Any]]:
        """Give each sample's number in the batch, and what `_one` makes of it or the `_Failure`.

        Raises:
            FunctionError: the function raised, and no policy drops the sample.
        """
        for row in range(len(values)):
            try:
                yield row, self._one(Sample(values, row))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
                found = self._failure(error, values, row, None if numbers is None else int(numbers[row]))
                if self._step.on_error != "drop_sample" or isinstance(found, UsageError):
                    raise found from (None if found is error else error)
                yield row, _Failure(found)

    def _values(self, batch: pa.RecordBatch) -> Columns | Documents:
        """Return the values of the samples of a batch."""
        if self._view == "interleaved":
            return Documents(batch, self._fetcher)
        return Columns(batch, self._fetcher, any_members=self._any_members, opening=self._step.opening)

    @abstractmethod
    def _one(self, sample: Sample) -> Any:
        """Return what the function gives for one sample."""

    def _failure(self, error: Exception | SystemExit, values: Values, row: int, number: int | None) -> LadingError:
        place = values.place(row)
        if isinstance(error, LadingError) and not isinstance(error, FunctionError):
            return error.at(**place)
        sample = "a sample" if number is None else f"sample {number:,} of the dataset"
        return FunctionError(
            f"the function of {self._step.verb}() raised an error for {sample}", **place, found=_trace(error),
            advice=_lacking(error, values, row)
            or "Correct the function, or leave such samples out with --on-error drop_sample.",
        )  # fmt: skip


_MOST, _FRAMES = 500, 5
_OWN = os.path.dirname(os.path.abspath(__file__))


def _lacking(error: Exception | SystemExit, values: Values, row: int) -> str | None:
    """Return what to do if the function looked at a field that the sample lacks."""
    if not isinstance(error, KeyError) or not isinstance(name := error.args[0] if error.args else None, str):
        return None
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    if not raised_in.startswith(_OWN) or values.has(name, row):
        return None  # the key of another dict
    return (f"The sample has the fields {', '.join(Sample(values, row))}. If samples may lack {name!r}, read the field "
            f"with .get({name!r}), or leave them out with --on-error drop_sample.")  # fmt: skip


def _trace(error: Exception | SystemExit) -> str:
    """The error of a user's function, and the lines of the function that led to it."""
    frames = [
        f"{os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}: {(frame.line or '').strip()}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_OWN)
    ]
    return "; ".join([f"{type(error).__name__}: {error}"[:_MOST], *frames[-_FRAMES:]])


def of_batch(function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch, verb: str) -> Any:
    """Return what a function over batches returns.

    Raises:
        FunctionError: the function raised; names the file, and the first sample of the batch.
    """
    try:
        with Running(function):
            return function(without_views(batch))
    except LadingError:
        raise
    except (Exception, SystemExit) as error:
        files = lineage_of(batch.schema)
        key = next((name for name in (KEY, "sample_id") if name in batch.schema.names), None)
        first = "" if key is None or not batch.num_rows else f" from sample {batch.column(key)[0].as_py()!r}"
        raise FunctionError(
            f"the function of {verb}() raised an error for the batch of {batch.num_rows:,} rows{first}",
            file=files[0] if len(files) == 1 else None, found=_trace(error), advice="Correct the function.",
        ) from error  # fmt: skip


class _Failure:
    """What a function raised for a sample that is dropped."""

    def __init__(self, error: LadingError) -> None:
        self.text = error.message if error.found is None else f"{error.found}"


class SampleFilter(_Called):
    """Gives the samples of a batch for which a function is true, and those for which it raised."""

    def __call__(self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> tuple[NDArray[np.bool_], Failed]:
        """Whether each sample stays, and the samples for which the function raised."""
        values = self._values(batch)
        kept, failed = np.zeros(len(values), np.bool_), Failed()
        for row, answer in self.each(values, numbers):
            if isinstance(answer, _Failure):
                failed[row] = answer.text
            else:
                kept[row] = answer
        return kept, failed

    def _one(self, sample: Sample) -> bool:
        with Running(self._step.function):
            answer = self._step.function(sample)
        if answer is None or isinstance(answer, (bool, int, np.bool_)):
            return bool(answer)
        raise UsageError("the function must return true or false for a sample", found=f"{type(answer).__name__}",
                         advice="A function over record batches goes to filter_batches.")  # fmt: skip


class SampleMap(_Called):
    """Merges what a function returns for each sample into the rows of batches.

    Args:
        step: the step.
        fetcher: reads what the function looks at.
        view: how rows are taken.
        schema: of the rows behind the step; None before the first of them: they decide the types of new columns.
        any_members: samples may lack members; see `Shards.takes_any_fields`.
    """

    def __init__(
        self, step: Map, fetcher: Fetcher, view: str, schema: pa.Schema | None, *, any_members: bool = False
    ) -> None:
        super().__init__(step, fetcher, view, any_members=any_members)
        self._declared = (
            None if step.columns is None else {name: declared_field(name, kind) for name, kind in step.columns}
        )
        self._known = {} if schema is None else _fields(schema)
        self._settled = schema is not None
        self._open = set[str]()
        """New columns that are null so far: the first value decides their type."""

    def __call__(
        self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None
    ) -> tuple[pa.RecordBatch, Failed, NDArray[np.int64]]:
        """The rows with new and changed columns, the samples for which the function raised, and the sources of rows.

        The source is the row that a row was made of, −1 for a new row.
        """
        fields = {**_fields(batch.schema), **self._new_fields(batch.schema)}
        # Rows that the function leaves alone have nulls here, also of columns that hold none.
        encoders = Encoders(pa.schema([field.with_nullable(nullable=True) for field in fields.values()]))
        may_make = {*fields, *self._open} if self._settled or self._declared is not None else None
        rows: list[dict[str, Any]] = []
        sources: list[int] = []
        failed = Failed()
        values = self._values(batch)
        for number, returned in self.each(values, numbers):
            if isinstance(returned, _Failure):
                failed[number] = returned.text
            changes = {} if isinstance(returned, _Failure) else returned
            for source, changed in _made_rows(values, number, changes):
                rows.append(self._encoded(encoders, changed, values, number, may_make))
                sources.append(source)
        moved = sources != [*range(batch.num_rows)]
        before = with_rows(batch, np.array(sources, np.int64)) if moved else batch
        columns = values if isinstance(values, Columns) else Columns(before, self._fetcher, every_member=True)
        try:
            made = self._merged(before, columns, rows, encoders)
        except LadingError as error:
            if error.row is not None:  # of the rows that were made
                source = sources[error.row]
                error.at(**columns.place(error.row)).row = None if source < 0 else source
            raise
        if isinstance(values, Documents):
            refuse_merged(batch, made)
        if self._open or (not self._settled and len(failed) < len(values)):
            self._open = {field.name for field in made.schema if pa.types.is_null(field.type)} - {*batch.schema.names}
            self._known, self._settled = _fields(made.schema), True
        return made, failed, np.array(sources, np.int64)

    def _one(self, sample: Sample) -> dict[str, Any]:
        with Running(self._step.function):
            return sample.changes(self._step.function(sample))

    def _new_fields(self, schema: pa.Schema) -> dict[str, pa.Field]:
        """Columns that the function adds, or whose type it changes."""
        if self._declared is not None:
            return self._declared
        taken = {*schema.names, *self._open}
        return {name: field for name, field in self._known.items() if name not in taken}

    def _encoded(
        self, encoders: Encoders, changes: dict[str, Any], values: Values, row: int, may_make: set[str] | None
    ) -> dict[str, Any]:
        """The changes as columns store them; the function may make these fields, or any with None."""
        if not changes:
            return {}
        if may_make is not None and not changes.keys() <= may_make:
            late = [name for name in changes if name not in may_make]
            rest = "that columns= does not name" if self._declared is not None else "that the first samples lack"
            raise UsageError(f"the function returns a field {rest}", column=late[0], found=f"{changes[late[0]]!r:.80}",
                             advice=_DECLARE.format(name=late[0]), **values.place(row))  # fmt: skip
        try:
            return encoders.row(changes)
        except LadingError as error:
            name = error.column or ""
            if name in self._known and pa.types.is_null(self._known[name].type):
                error = WrongType("the first samples have nothing in this field, so its type is not known", column=name,
                                  found=f"{changes[name]!r:.80}")  # fmt: skip
            error.advice = error.advice or (_DECLARE.format(name=name) if name in changes else None)
            raise error.at(**values.place(row)) from None

    def _merged(
        self, batch: pa.RecordBatch, columns: Columns, rows: list[dict[str, Any]], encoders: Encoders
    ) -> pa.RecordBatch:
        names = dict.fromkeys(name for row in rows for name in row)
        new = self._declared if self._declared is not None else {*self._new_fields(batch.schema), *self._open}
        for name in sorted(new) if isinstance(new, set) else new:
            names.setdefault(name)
        if not names:
            return batch
        first = [{**dict.fromkeys(names), **row} for row in rows[:1]]  # names all columns, in their order
        made = rows_to_batch([*first, *rows[1:]], encoders)
        for field, column in zip(made.schema, made.columns, strict=True):
            place = batch.schema.get_field_index(field.name)
            if place < 0:
                batch = batch.append_column(field, column)
                continue
            changed = np.array([field.name in row for row in rows])
            declared = (self._declared or {}).get(field.name)
            if declared is not None:
                whole = self._retyped(columns, field.name, rows, encoders)
                batch = batch.set_column(place, declared.with_type(whole.type), whole)
            elif changed.any():
                whole = _mixed(batch.column(place), column, changed, columns, field.name)
                batch = batch.set_column(place, batch.schema.field(place).with_type(whole.type), whole)
        return batch

    def _retyped(self, columns: Columns, name: str, rows: Sequence[dict[str, Any]], encoders: Encoders) -> pa.Array:
        """A column in the type that the user declares, also of samples in which the function left it alone."""
        values = []
        for row, changed in enumerate(rows):
            value = changed.get(name) if name in changed else columns.value(name, row)
            try:
                values.append(changed if name in changed else encoders.row({name: value}))
            except LadingError as error:
                raise error.at(**columns.place(row)) from None
        return rows_to_batch([{name: each.get(name)} for each in values], encoders).column(0)


def _made_rows(values: Columns | Documents, number: int, changes: dict[str, Any]) -> list[ItemRow]:
    """The rows of a sample after these changes."""
    if isinstance(values, Columns):
        return [(number, changes)]
    try:
        return values.rows_made(number, changes)
    except LadingError as error:
        raise error.at(**values.place(number)) from None


def _fields(schema: pa.Schema) -> dict[str, pa.Field]:
    return {field.name: field for field in schema}


def _mixed(before: pa.Array, after: pa.Array, changed: NDArray[np.bool_], columns: Columns, name: str) -> pa.Array:
    """The values of a column that a function changed in some rows."""
    if is_ref(before.type) or is_bytes(before.type):
        if changed.all():
            return after
        new = after.to_pylist()
        values = [new[row] if changed[row] else columns.stored(name, row) for row in range(len(new))]
        return pa.array(values, pa.large_binary())
    whole = cast(after, before.type)
    if changed.all():
        return whole
    places = np.where(changed, np.arange(len(changed)) + len(changed), np.arange(len(changed)))
    return take_values(pa.concat_arrays([before, whole]), places)
