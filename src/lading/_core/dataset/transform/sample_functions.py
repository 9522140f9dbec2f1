"""Functions of the user's over single samples: what they are given, and what becomes of what they return.

A function gets a `FunctionSample`: a dict whose fields are read and decoded when they are looked at. What it returns
is merged into the sample. Fields that it leaves alone stay as they are stored, references included: no picture is
encoded again.
"""

from __future__ import annotations

import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.casts import cast
from lading._core.arrow.references import is_ref
from lading._core.arrow.rows import Encoders, rows_to_batch
from lading._core.arrow.views import is_bytes, take_values, without_views
from lading._core.dataset.transform.documents import Documents, ItemRow, refuse_merged, with_rows
from lading._core.dataset.transform.function_spool import SampleRows, StepSpool, called, joined
from lading._core.dataset.transform.sample import FunctionColumns, FunctionSample, Values
from lading._core.features.items import KEY, lineage_of
from lading._core.features.row_layout import row_layout
from lading._core.features.stored_values import declared_field
from lading._core.storage.fetch import Fetcher
from lading._core.storage.threads import Running
from lading.errors import FunctionError, LadingError, UsageError, WrongType

if TYPE_CHECKING:
    from lading._core.dataset.steps.filter_steps import Filter
    from lading._core.dataset.steps.map_step import Map

__all__ = ["FIRST_OF_SHARD", "SampleFilter", "SampleMap", "of_batch"]

FIRST_OF_SHARD = 1 << 40
"""Where samples before a shard are not counted, its number times this is the number of its first sample."""

_DECLARE = (
    "Return one kind of value, or name the type of the column in Python: columns={{{name!r}: …}}, such as "
    "lading.features.Image() for images, Sequence(Image()) for lists of them."
)

Failed = dict[int, str]
"""Samples for which a function raised, by their number in the batch, and what it raised."""


class _Called(ABC):
    """Calls a function for the samples of batches, and deals with what it raises."""

    def __init__(
        self, step: Map | Filter, fetcher: Fetcher, view: str, *, any_members: bool = False,
        spool: StepSpool | None = None,
    ) -> None:  # fmt: skip
        self._step, self._fetcher, self._view, self._any_members = step, fetcher, view, any_members
        self._spool, self._of_documents = spool, row_layout(view).has_items

    def each(self, values: Values, numbers: NDArray[np.int64] | None) -> Iterator[tuple[int, Any]]:
        """Give each sample's number in the batch, and what `_one` makes of it or the `_Failure`.

        Raises:
            FunctionError: the function raised, and no policy drops the sample.
        """
        for row in range(len(values)):
            try:
                yield row, self._one(FunctionSample(values, row))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
                found = self._failure(error, values, row, None if numbers is None else int(numbers[row]))
                if self._step.on_error != "drop_sample" or isinstance(found, UsageError):
                    raise found from (None if found is error else error)
                yield row, _Failure(found)

    def _values(self, batch: pa.RecordBatch) -> FunctionColumns | Documents:
        """Return the values of the samples of a batch."""
        if self._of_documents:
            return Documents(batch, self._fetcher, self._step.opening)
        return FunctionColumns(batch, self._fetcher, any_members=self._any_members, opening=self._step.opening)

    @abstractmethod
    def _one(self, sample: FunctionSample) -> Any:
        """Return what the function gives for one sample."""

    def _failure(self, error: Exception | SystemExit, values: Values, row: int, number: int | None) -> LadingError:
        place = values.place(row)
        if isinstance(error, LadingError) and not isinstance(error, FunctionError):
            return error.at(**place)
        sample = "a sample" if number is None or number >= FIRST_OF_SHARD else f"sample {number:,} of the dataset"
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
    fields = ", ".join(FunctionSample(values, row))
    return (f"The sample has the fields {fields}. If samples may lack {name!r}, read the field with "
            f".get({name!r}), or leave them out with --on-error drop_sample.")  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class _Made:
    """What a function made of samples.

    Attributes:
        columns: the columns that it made, with a row for each row behind it.
        changed: of columns that were there before, the rows in which it changed them.
        sources: the row that each row was made of, −1 for a new row.
        counts: number of rows of each sample.
        failed: samples for which it raised.
        values: the values of the rows before, if they have been looked at.
    """

    columns: pa.RecordBatch
    changed: Mapping[str, NDArray[np.bool_]]
    sources: NDArray[np.int64]
    counts: NDArray[np.int64]
    failed: Failed
    values: FunctionColumns | None = None

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.counts)

    def changed_rows(self, name: str) -> NDArray[np.bool_]:
        """The rows in which a column changed; where it was not there before, but in other shards, those with values."""
        changed = self.changed.get(name)
        return self.columns.column(name).is_valid().to_numpy(zero_copy_only=False) if changed is None else changed

    def kept(self, firsts: NDArray[np.int64]) -> SampleRows:
        """The same as rows to be kept; `firsts` are the first rows of samples before."""
        heads = np.cumsum(self.counts) - self.counts
        sources = np.where(self.sources < 0, -1, self.sources - np.repeat(firsts, self.counts))
        failed = {int(heads[sample]): text for sample, text in self.failed.items()}
        columns = [*self.columns.columns, *map(pa.array, self.changed.values())]
        columns += [pa.array(sources), _texts(failed, len(sources))]
        fields = [field.with_name(f"={field.name}") for field in self.columns.schema]
        fields += [pa.field(f"?{name}", pa.bool_()) for name in self.changed]
        fields += [pa.field("source", pa.int64()), pa.field("failed", pa.large_string())]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return SampleRows(np.arange(self.count), self.counts, rows)

    @classmethod
    def of(cls, part: SampleRows, firsts: NDArray[np.int64]) -> _Made:
        """What was kept of the samples of a batch, with their first rows."""
        rows, heads = part.rows, np.cumsum(part.counts) - part.counts
        columns = {f.name[1:]: (f, c) for f, c in zip(rows.schema, rows.columns, strict=True) if f.name[0] == "="}
        changed = {
            name[1:]: column.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - as pyarrow takes it
            for name, column in zip(rows.schema.names, rows.columns, strict=True) if name[0] == "?"
        }  # fmt: skip
        offsets = rows.column("source").to_numpy()
        sources = np.where(offsets < 0, -1, offsets + np.repeat(firsts, part.counts))
        failed = _failed(rows.column("failed").take(pa.array(heads)), np.arange(len(heads)))
        made = _no_columns(len(rows))
        if columns:
            fields = [field.with_name(name) for name, (field, _) in columns.items()]
            made = pa.RecordBatch.from_arrays([column for _, column in columns.values()], schema=pa.schema(fields))
        return cls(made, changed, sources, part.counts, failed)


@contextmanager
def _naming_sources(sources: NDArray[np.int64], columns: Callable[[], FunctionColumns]) -> Iterator[None]:
    """Errors of the body that count rows that were made name the rows of which these were made."""
    try:
        yield
    except LadingError as error:
        if error.row is not None:
            source = int(sources[error.row])
            error.at(**columns().place(error.row)).row = None if source < 0 else source
        raise


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["rows"]).select([])


def _texts(texts: Failed, count: int) -> pa.Array:
    """A column with these texts, null elsewhere."""
    return pa.array([texts.get(i) for i in range(count)] if texts else pa.nulls(count), pa.large_string())


def _failed(texts: pa.Array, samples: NDArray[np.int64]) -> Failed:
    """The texts that a column has, by sample."""
    there = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    return {int(samples[i]): texts[i].as_py() for i in there.tolist()}


class _Failure:
    """What a function raised for a sample that is dropped."""

    def __init__(self, error: LadingError) -> None:
        self.text = error.message if error.found is None else f"{error.found}"


class SampleFilter(_Called):
    """Gives the samples of a batch for which a function is true, and those for which it raised."""

    def __call__(self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> tuple[NDArray[np.bool_], Failed]:
        """Whether each sample stays, and the samples for which the function raised."""
        if self._spool is None or numbers is None:
            return self._answers(batch, numbers)
        parts = called(self._spool, batch, numbers, self._view, self._kept, whole=False)
        kept, failed = np.zeros(len(numbers), np.bool_), Failed()
        for part in parts or ():
            kept[part.samples] = part.rows.column("kept").to_numpy(zero_copy_only=False)
            failed |= _failed(part.rows.column("failed"), part.samples)
        return kept, dict(sorted(failed.items()))

    def _answers(self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> tuple[NDArray[np.bool_], Failed]:
        values = self._values(batch)
        kept, failed = np.zeros(len(values), np.bool_), Failed()
        for row, answer in self.each(values, numbers):
            if isinstance(answer, _Failure):
                failed[row] = answer.text
            else:
                kept[row] = answer
        return kept, failed

    def _kept(self, batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> SampleRows:
        kept, failed = self._answers(batch, numbers)
        rows = pa.record_batch({"kept": pa.array(kept), "failed": _texts(failed, len(kept))})
        return SampleRows(np.arange(len(kept)), np.ones(len(kept), np.int64), rows)

    def _one(self, sample: FunctionSample) -> bool:
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
        spool: what the function returned before; None: it is always called.
    """

    def __init__(
        self, step: Map, fetcher: Fetcher, view: str, schema: pa.Schema | None, *, any_members: bool = False,
        spool: StepSpool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(step, fetcher, view, any_members=any_members, spool=spool)
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
        if self._spool is None or numbers is None:
            made = self._made(batch, numbers)
        else:
            made = self._found(self._spool, batch, numbers)
        sources = made.sources
        moved = not np.array_equal(sources, np.arange(batch.num_rows))
        before = with_rows(batch, sources) if moved else batch
        with _naming_sources(sources, lambda: made.values or _stored(before, self._fetcher)):
            merged = self._merged(before, made)
        if self._of_documents:
            refuse_merged(batch, merged)
        if self._open or (not self._settled and len(made.failed) < made.count):
            self._open = {field.name for field in merged.schema if pa.types.is_null(field.type)} - {*batch.schema.names}
            self._known, self._settled = _fields(merged.schema), True
        return merged, made.failed, sources

    def _found(self, spool: StepSpool, batch: pa.RecordBatch, numbers: NDArray[np.int64]) -> _Made:
        """What the function makes of each sample, or made of it before."""

        def call(rows: pa.RecordBatch, mine: NDArray[np.int64]) -> SampleRows:
            return self._made(rows, mine).kept(row_layout(self._view).firsts(rows))

        # Values of all samples decide the types of new columns.
        parts = called(spool, batch, numbers, self._view, call, whole=not self._settled or bool(self._open))
        whole = joined(parts) if parts else None
        if whole is None:
            return self._made(batch, numbers)
        return _Made.of(whole, row_layout(self._view).firsts(batch))

    def _made(self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> _Made:
        """What the function makes of each sample."""
        fields = {**_fields(batch.schema), **self._new_fields(batch.schema)}
        # Rows that the function leaves alone have nulls here, also of columns that hold none.
        encoders = Encoders(pa.schema([field.with_nullable(nullable=True) for field in fields.values()]))
        may_make = {*fields, *self._open} if self._settled or self._declared is not None else None
        rows: list[dict[str, Any]] = []
        sources: list[int] = []
        counts: list[int] = []
        failed = Failed()
        values = self._values(batch)
        for number, returned in self.each(values, numbers):
            if isinstance(returned, _Failure):
                failed[number] = returned.text
            changes = {} if isinstance(returned, _Failure) else returned
            made = _made_rows(values, number, changes)
            counts.append(len(made))
            for source, changed in made:
                rows.append(self._encoded(encoders, changed, values, number, may_make))
                sources.append(source)
        places = np.array(sources, np.int64)
        moved = not np.array_equal(places, np.arange(batch.num_rows))
        columns = values if isinstance(values, FunctionColumns) else None

        def before() -> FunctionColumns:
            whole = with_rows(batch, places) if moved else batch
            return columns if columns is not None else _stored(whole, self._fetcher)

        with _naming_sources(places, before):
            found, changed_rows = self._columns(batch.schema, before, rows, encoders)
        return _Made(found, changed_rows, places, np.array(counts, np.int64), failed, columns)

    def _one(self, sample: FunctionSample) -> dict[str, Any]:
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

    def _columns(
        self, schema: pa.Schema, before: Callable[[], FunctionColumns], rows: list[dict[str, Any]], encoders: Encoders
    ) -> tuple[pa.RecordBatch, dict[str, NDArray[np.bool_]]]:
        """The columns that were made; of those that were there before, the rows that changed."""
        names = dict.fromkeys(name for row in rows for name in row)
        new = self._declared if self._declared is not None else {*self._new_fields(schema), *self._open}
        for name in sorted(new) if isinstance(new, set) else new:
            names.setdefault(name)
        if not names:
            return _no_columns(len(rows)), {}
        first = [{**dict.fromkeys(names), **row} for row in rows[:1]]  # names all columns, in their order
        made, changed = rows_to_batch([*first, *rows[1:]], encoders), dict[str, NDArray[np.bool_]]()
        for place, name in enumerate(made.schema.names):
            if name not in schema.names:
                continue
            declared = (self._declared or {}).get(name)
            if declared is None:
                changed[name] = np.array([name in row for row in rows], np.bool_)
                continue
            whole = self._retyped(before(), name, rows, encoders)
            made = made.set_column(place, declared.with_type(whole.type), whole)
            changed[name] = np.ones(len(rows), np.bool_)
        return made, changed

    def _merged(self, batch: pa.RecordBatch, made: _Made) -> pa.RecordBatch:
        """The rows with the columns that were made."""
        columns = made.values
        for field, column in zip(made.columns.schema, made.columns.columns, strict=True):
            place = batch.schema.get_field_index(field.name)
            if place < 0:
                batch = batch.append_column(field, column)
            elif field.name in (self._declared or ()):
                batch = batch.set_column(place, field, column)
            elif (changed := made.changed_rows(field.name)).any():
                if columns is None:
                    columns = _stored(batch, self._fetcher)
                whole = _mixed(batch.column(place), column, changed, columns, field.name)
                batch = batch.set_column(place, batch.schema.field(place).with_type(whole.type), whole)
        return batch

    def _retyped(
        self, columns: FunctionColumns, name: str, rows: Sequence[dict[str, Any]], encoders: Encoders
    ) -> pa.Array:
        """A column in the type that the user declares, also of samples in which the function left it alone."""
        values = []
        for row, changed in enumerate(rows):
            value = changed.get(name) if name in changed else columns.value(name, row)
            try:
                values.append(changed if name in changed else encoders.row({name: value}))
            except LadingError as error:
                raise error.at(**columns.place(row)) from None
        return rows_to_batch([{name: each.get(name)} for each in values], encoders).column(0)


def _stored(batch: pa.RecordBatch, fetcher: Fetcher) -> FunctionColumns:
    """The values of rows, with media as bytes."""
    return FunctionColumns(batch, fetcher, every_member=True, opening=None)


def _made_rows(values: FunctionColumns | Documents, number: int, changes: dict[str, Any]) -> list[ItemRow]:
    """The rows of a sample after these changes."""
    if isinstance(values, FunctionColumns):
        return [(number, changes)]
    try:
        return values.rows_made(number, changes)
    except LadingError as error:
        raise error.at(**values.place(number)) from None


def _fields(schema: pa.Schema) -> dict[str, pa.Field]:
    return {field.name: field for field in schema}


def _mixed(
    before: pa.Array, after: pa.Array, changed: NDArray[np.bool_], columns: FunctionColumns, name: str
) -> pa.Array:
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
