"""Functions of the user's over single samples: what they are given, and what becomes of what they return.

A function gets a `Sample`: a dict whose fields are read and decoded when they are looked at. What it returns is merged
into the sample. Fields that it leaves alone stay as they are stored, references included: no picture is encoded again.
"""

from __future__ import annotations

import os
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.casts import cast
from lading.arrow.references import files_of, is_ref, unpack
from lading.arrow.rows import Encoders, rows_to_batch
from lading.arrow.types import uncut_values
from lading.arrow.views import is_bytes, take_values, without_views
from lading.content.media_files import media_features, open_media
from lading.dataset.steps.step import Filter, Map
from lading.dataset.values.python_values import members_among
from lading.errors import DataError, FunctionError, LadingError, UsageError, WrongType
from lading.features.encode import encoded_source
from lading.features.items import KEY, lineage_of
from lading.features.stored_values import declared_field
from lading.features.types import Bytes, Text, Value, decode, feature_of
from lading.storage.fetch import Fetcher

__all__ = ["Sample", "SampleFilter", "SampleMap", "of_batch"]

_WINDOW_BYTES, _WINDOW_ROWS = 8 << 20, 256
"""Payload of one column that is read at once, when a function looks at it."""
_UNCHANGING = frozenset((str, int, float, bool, bytes, type(None)))
_DECLARE = "Return one kind of value, or name the type of the column in Python: columns={{{name!r}: …}}."

Failed = dict[int, str]
"""Rows for which a function raised, and what it raised."""


class Sample(MutableMapping[str, Any]):
    """A sample as a function gets it: a dict as `ds[i]` gives it, whose fields are read when they are looked at.

    Example:
        def add_length(sample):
            sample["length"] = len(sample["txt"])
            return sample
    """

    __slots__ = ("_columns", "_own", "_read", "_row")

    def __init__(self, columns: _Columns, row: int) -> None:
        self._columns, self._row = columns, row
        self._read: dict[str, Any] = {}
        self._own: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name in self._own:
            return self._own[name]
        if name in self._read:
            return self._read[name]
        value = self._columns.value(name, self._row)
        if value is None and name in self._columns.members:
            raise KeyError(name)
        self._read[name] = value
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        raise UsageError("fields are not removed from single samples", found=repr(name),
                         advice=f"Leave the column out of the dataset: ds.drop({name!r}).")  # fmt: skip

    def __contains__(self, name: object) -> bool:
        return name in self._own or self._columns.has(name, self._row)

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self._columns.names if self._columns.has(name, self._row))
        yield from (name for name in self._own if not self._columns.has(name, self._row))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Sample {', '.join(map(repr, self))}>"

    def changes(self, made: Any) -> dict[str, Any]:
        """Return the new and changed fields of what a function returned for this sample."""
        if made is self:
            given: Mapping[str, Any] = {**self._read, **self._own}
        elif made is None:
            if self._own:
                raise UsageError("the function changes the sample and returns nothing", found=", ".join(self._own),
                                 advice="Write `return sample` at its end.")  # fmt: skip
            return {}
        elif isinstance(made, Mapping):
            given = made
        else:
            raise UsageError(
                "the function must return a dict of new and changed fields, or None", found=type(made).__name__,
                advice="A function over record batches goes to map_batches.",
            )  # fmt: skip
        read = self._read
        return {
            name: value
            for name, value in given.items()
            if name not in read or value is not read[name] or self._columns.is_changed(name, self._row, value)
        }


class _Columns:
    """The columns of a batch as Python values, read when they are looked at."""

    def __init__(self, batch: pa.RecordBatch, fetcher: Fetcher, *, any_members: bool) -> None:
        self.batch, self.names, self._fetcher = batch, batch.schema.names, fetcher
        self.members = members_among(batch.schema) if any_members else frozenset[str]()
        self._places = {name: place for place, name in enumerate(self.names)}
        self._lists: dict[str, list[Any]] = {}
        self._windows: dict[str, tuple[int, int, list[Any]]] = {}
        self._ends: dict[str, NDArray[np.int64]] = {}
        self._decoders: dict[str, Callable[[Any], Any] | None] = {}

    def has(self, name: object, row: int) -> bool:
        """Whether the sample of a row has a column: a member that a sample lacks is not there."""
        place = self._places.get(name)
        return place is not None and (name not in self.members or bool(self.batch.column(place)[row].is_valid))

    def value(self, name: str, row: int) -> Any:
        """The decoded value; None if it is null. Raises KeyError for an unknown column."""
        stored = self.stored(name, row)
        if name not in self._decoders:
            self._decoders[name] = _decoder(self.batch.schema.field(name))
        decoded = self._decoders[name]
        return stored if stored is None or decoded is None else decoded(stored)

    def stored(self, name: str, row: int) -> Any:
        """The value as it is stored."""
        known = self._lists.get(name)
        if known is not None:
            return known[row]
        column = self.batch.column(self._places[name])
        if is_ref(column.type):
            return self._payload(name, column, row)
        plain = column.storage if isinstance(column.type, pa.ExtensionType) else column
        try:
            self._lists[name] = uncut_values(plain)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            raise DataError("Python cannot hold this value", column=name, found=str(error)[:200]) from error
        return self._lists[name][row]

    def _payload(self, name: str, column: pa.Array, row: int) -> Any:
        start, stop, values = self._windows.get(name, (0, 0, []))
        if not start <= row < stop:
            self._windows.pop(name, None)
            if name not in self._ends:
                refs = unpack(column)
                self._ends[name] = np.cumsum(np.where(refs.valid, refs.length, 0).clip(0))
            ends = self._ends[name]
            before = int(ends[row - 1]) if row else 0
            most = int(np.searchsorted(ends, before + _WINDOW_BYTES, side="right"))
            start, stop = row, min(max(most, row + 1), row + _WINDOW_ROWS)
            values = list(self._fetcher.values(column.slice(start, stop - start), files_of(self.batch.schema)))
            self._windows[name] = (start, stop, values)
        return values[row - start]

    def is_changed(self, name: str, row: int, value: Any) -> bool:
        """Whether a value that a function looked at is another one now."""
        if type(value) in _UNCHANGING or isinstance(value, bytes):
            return False
        if hasattr(value, "getbands"):
            return encoded_source(value) is None
        fresh = self.value(name, row)
        return not _equal(fresh, value)

    def place(self, row: int) -> dict[str, Any]:
        """Where a row is: its file and its key, as far as they are known."""
        files = lineage_of(self.batch.schema)
        key = self.stored(KEY, row) if KEY in self._places else None
        known = {"file": files[0] if len(files) == 1 else None, "sample": key}
        return {name: value for name, value in known.items() if value is not None}


def _decoder(field: pa.Field) -> Callable[[Any], Any] | None:
    feature = feature_of(field)
    if isinstance(feature, (Bytes, Text, Value)) and not (is_ref(field.type) or is_bytes(field.type)):
        return None
    media = media_features({field.name: feature})

    def decoded(stored: Any) -> Any:
        try:
            value = decode(feature, stored)
            return open_media(feature, value) if media else value
        except LadingError as error:
            raise error.at(column=field.name) from None

    return decoded


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        floats = one.dtype.kind in "fc"
        return (
            isinstance(other, np.ndarray)
            and one.dtype == other.dtype
            and np.array_equal(one, other, equal_nan=bool(floats))
        )
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if hasattr(one, "getbands"):
        return encoded_source(other) is not None
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN


class _Called(ABC):
    """Calls a function for the samples of batches, and deals with what it raises."""

    def __init__(self, step: Map | Filter, fetcher: Fetcher, *, any_members: bool = False) -> None:
        self._step, self._fetcher, self._any_members = step, fetcher, any_members
        self._verb = "map" if isinstance(step, Map) else "filter"

    def each(self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> Iterator[tuple[int, Any]]:
        """Give each row, and what `_one` makes of it or the `_Failure`.

        Raises:
            FunctionError: the function raised, and no policy drops the sample.
        """
        columns = self._columns(batch)
        for row in range(batch.num_rows):
            try:
                yield row, self._one(Sample(columns, row))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's function raises
                found = self._failure(error, columns, row, None if numbers is None else int(numbers[row]))
                if self._step.on_error != "drop_sample" or isinstance(found, UsageError):
                    raise found from (None if found is error else error)
                yield row, _Failure(found)

    def _columns(self, batch: pa.RecordBatch) -> _Columns:
        return _Columns(batch, self._fetcher, any_members=self._any_members)

    @abstractmethod
    def _one(self, sample: Sample) -> Any:
        """Return what the function gives for one sample."""

    def _failure(self, error: Exception | SystemExit, columns: _Columns, row: int, number: int | None) -> LadingError:
        place = columns.place(row)
        if isinstance(error, LadingError) and not isinstance(error, FunctionError):
            return error.at(**place)
        sample = "a sample" if number is None else f"sample {number:,} of the dataset"
        return FunctionError(
            f"the function of {self._verb}() raised an error for {sample}", **place, found=_trace(error),
            advice="Correct the function, or leave such samples out with --on-error drop_sample.",
        )  # fmt: skip


_MOST, _FRAMES = 500, 5
_OWN = os.path.dirname(os.path.abspath(__file__))


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
        """The rows that stay, and the rows for which the function raised."""
        kept, failed = np.zeros(batch.num_rows, np.bool_), Failed()
        for row, answer in self.each(batch, numbers):
            if isinstance(answer, _Failure):
                failed[row] = answer.text
            else:
                kept[row] = answer
        return kept, failed

    def _one(self, sample: Sample) -> bool:
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
        schema: of the rows behind the step; None before the first of them: they decide the types of new columns.
        any_members: samples may lack members; see `Shards.takes_any_fields`.
    """

    def __init__(self, step: Map, fetcher: Fetcher, schema: pa.Schema | None, *, any_members: bool = False) -> None:
        super().__init__(step, fetcher, any_members=any_members)
        self._declared = (
            None if step.columns is None else {name: declared_field(name, kind) for name, kind in step.columns}
        )
        self._known = {} if schema is None else _fields(schema)
        self._settled = schema is not None
        self._open = set[str]()
        """New columns that are null so far: the first value decides their type."""

    def __call__(self, batch: pa.RecordBatch, numbers: NDArray[np.int64] | None) -> tuple[pa.RecordBatch, Failed]:
        """The rows with new and changed columns, and the rows for which the function raised."""
        encoders = Encoders(pa.schema(list({**_fields(batch.schema), **self._new_fields(batch.schema)}.values())))
        rows: list[dict[str, Any]] = []
        failed = Failed()
        columns = self._columns(batch)
        for row, changes in self.each(batch, numbers):
            if isinstance(changes, _Failure):
                failed[row], changed = changes.text, {}
            else:
                changed = self._encoded(encoders, changes, columns, row, batch.schema)
            rows.append(changed)
        made = self._merged(batch, columns, rows, encoders)
        if self._open or (not self._settled and len(failed) < batch.num_rows):
            self._open = {field.name for field in made.schema if pa.types.is_null(field.type)} - {*batch.schema.names}
            self._known, self._settled = _fields(made.schema), True
        return made, failed

    def _one(self, sample: Sample) -> dict[str, Any]:
        return sample.changes(self._step.function(sample))

    def _new_fields(self, schema: pa.Schema) -> dict[str, pa.Field]:
        """Columns that the function adds, or whose type it changes."""
        if self._declared is not None:
            return self._declared
        taken = {*schema.names, *self._open}
        return {name: field for name, field in self._known.items() if name not in taken}

    def _encoded(
        self, encoders: Encoders, changes: dict[str, Any], columns: _Columns, row: int, schema: pa.Schema
    ) -> dict[str, Any]:
        if not changes:
            return {}
        known = {*schema.names, *self._new_fields(schema), *self._open}
        late = [name for name in changes if name not in known] if self._settled or self._declared is not None else []
        if late:
            rest = "that columns= does not name" if self._declared is not None else "that the first samples lack"
            raise UsageError(f"the function returns a field {rest}", column=late[0], found=f"{changes[late[0]]!r:.80}",
                             advice=_DECLARE.format(name=late[0]), **columns.place(row))  # fmt: skip
        try:
            return encoders.row(changes)
        except LadingError as error:
            name = error.column or ""
            if name in self._known and pa.types.is_null(self._known[name].type):
                error = WrongType("the first samples have nothing in this field, so its type is not known", column=name,
                                  found=f"{changes[name]!r:.80}")  # fmt: skip
            error.advice = error.advice or (_DECLARE.format(name=name) if name in changes else None)
            raise error.at(**columns.place(row)) from None

    def _merged(
        self, batch: pa.RecordBatch, columns: _Columns, rows: list[dict[str, Any]], encoders: Encoders
    ) -> pa.RecordBatch:
        names = dict.fromkeys(name for row in rows for name in row)
        new = self._declared if self._declared is not None else {*self._new_fields(batch.schema), *self._open}
        for name in sorted(new) if isinstance(new, set) else new:
            names.setdefault(name)
        if not names:
            return batch
        made = rows_to_batch([{**dict.fromkeys(names), **row} for row in rows], encoders)
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

    def _retyped(self, columns: _Columns, name: str, rows: Sequence[dict[str, Any]], encoders: Encoders) -> pa.Array:
        """A column in the type that the user declares, also of samples in which the function left it alone."""
        values = []
        for row, changed in enumerate(rows):
            value = changed.get(name) if name in changed else columns.value(name, row)
            try:
                values.append(changed if name in changed else encoders.row({name: value}))
            except LadingError as error:
                raise error.at(**columns.place(row)) from None
        return rows_to_batch([{name: each.get(name)} for each in values], encoders).column(0)


def _fields(schema: pa.Schema) -> dict[str, pa.Field]:
    return {field.name: field for field in schema}


def _mixed(before: pa.Array, after: pa.Array, changed: NDArray[np.bool_], columns: _Columns, name: str) -> pa.Array:
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
