"""All columns that a format cannot hold, in one error, with options that work.

A format's writer raises an error for the first such column. Here the rows are tried again without that column, in
memory, until the rest is accepted. Each option that the advice names was tried as well.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref
from lading._core.arrow.views import plain_type, present, take_rows, take_values, without_views
from lading._core.features.casts import cast_column
from lading._core.features.natural import is_number, known_feature
from lading._core.interleaved.tar_writer import Roles
from lading._core.interleaved.typed import retyped
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.open_shard import BuildFolder, begin_shard
from lading._core.pipeline.pack import pack
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.spelling import names_value
from lading._core.storage.memory import MemoryStore
from lading.errors import DataError, LadingError, Unrepresentable

__all__ = ["all_misfits"]

_TRIED_BYTES = 64 << 20
_PROBED_ROWS = 256
_TYPES = (pa.int64(), pa.float32(), pa.float64(), pa.string())
"""Types to which a column may be converted, the first that the values and the format take."""


def all_misfits(error: Unrepresentable, kind: ShardKind, batch: Batch) -> Unrepresentable:
    """Return the error of all columns that the format cannot hold; the error itself if no column is at fault.

    Args:
        error: the error of the first column.
        kind: of the shards.
        batch: the rows, with keys; payload may be references.
    """
    if error.column in batch.row_layout.required:
        return error  # items are none without these columns
    rows = _Rows.of(kind, batch)
    found: dict[str, Unrepresentable] = {}
    misfit: LadingError | None = error
    while misfit is not None:
        if misfit.message == error.message and misfit.sample and found:  # whatever the columns are
            return error
        if not isinstance(misfit, Unrepresentable) or misfit.column not in rows.schema.names:
            break
        found[str(misfit.column)] = misfit
        rows = rows.without(str(misfit.column))
        misfit = rows.error()
    if not found:
        return error
    advice = _advice(found, rows, batch)
    if len(found) == 1:
        error.advice = advice
        return error
    whole = Unrepresentable(f"{len(found)} columns do not fit the format {kind.format.name}", advice=advice)
    whole.columns, whole.details = tuple(found), tuple(_shown(each) for each in found.values())
    return whole.at(file=error.file)


def _shown(error: Unrepresentable) -> str:
    return Unrepresentable(error.message, column=error.column, row=error.row, expected=error.expected,
                           found=error.found).problem  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that are tried."""

    kind: ShardKind
    rows: pa.RecordBatch

    @classmethod
    def of(cls, kind: ShardKind, batch: Batch) -> _Rows:
        """Return rows of a batch, without the payload of references; as many as take 64 MiB."""
        fields = [f.with_type(pa.large_binary()) if is_ref(f.type) else f for f in batch.schema]
        columns = [
            _hollow(c, f) if is_ref(c.type) else c for c, f in zip(batch.rows.columns, batch.schema, strict=True)
        ]
        tried = Batch(without_views(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))), batch.view)
        if tried.size_bytes > _TRIED_BYTES:
            tried = tried.slice(0, int(tried.starts[1]) if tried.num_samples > 1 else tried.num_rows)
        return cls(kind, tried.rows)

    @property
    def schema(self) -> pa.Schema:
        return self.rows.schema

    @property
    def stand_alone(self) -> bool:
        """Whether a row can be written, or left out, without its neighbours."""
        return not self.kind.row_layout.has_items

    def without(self, name: str) -> _Rows:
        """Return the rows without a column."""
        return replace(self, rows=self.rows.drop_columns([name]))

    def with_column(self, field: pa.Field, values: pa.Array) -> _Rows:
        """Return the first rows with another column."""
        count = min(len(values), _PROBED_ROWS) if self.stand_alone else len(values)
        columns = [*self.rows.slice(0, count).columns, values[:count]]  # an extension type becomes the field's
        return replace(self, rows=pa.RecordBatch.from_arrays(columns, schema=self.schema.append(field)))

    def only(self, rows: NDArray[np.int64], column: _Column) -> LadingError | None:
        """Return why these rows cannot be written with a column; None if they can."""
        rest = replace(self, rows=take_rows(self.rows, rows[rows < len(self.rows)]))
        return rest.with_column(column.field, take_values(column.values, rows)).error()

    def error(self) -> LadingError | None:
        """Return why a shard of these rows cannot be written; None if it can."""
        if not self.rows.num_columns:
            return None
        kind = replace(self.kind, roles=Roles(dict(self.kind.roles.of)), checksums="none")
        folder = BuildFolder(MemoryStore(), "trial")
        try:
            shard = begin_shard(folder, kind, "trial", self.schema)
        except LadingError as error:
            return error
        try:
            batch = Batch(self.rows, kind.view)
            packed = pack(batch, kind, shard.writer, 0)
            shard.write(packed.batch, packed.num_samples, "trial")
        except LadingError as error:
            return error
        finally:
            shard.abort()
        return None


def _hollow(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return empty bytes in the place of references, or what else their column takes; nulls stay."""
    feature = known_feature(field)
    value = b"null" if feature.is_json else b"0" if is_number(feature) else b""
    return pa.array([value if there else None for there in column.is_valid().to_pylist()], pa.large_binary())


def _advice(found: dict[str, Unrepresentable], rest: _Rows, batch: Batch) -> str:
    """Return options under which the columns fit, then those that leave the columns out."""
    remedies: list[tuple[str, str]] = []
    for name, error in found.items():
        column = _Column(batch.schema.field(name), batch.rows.column(name))
        remedies += _remedies(column, error, rest)
    by_kind = {kind: [text for one, text in remedies if one == kind] for kind in ("say", "type", "rename", "where")}
    said = list(dict.fromkeys(by_kind["say"]))
    if by_kind["type"]:
        said.append(f"Convert values with {' '.join(by_kind['type'])}.")
    if by_kind["rename"]:
        said.append(f"Rename with {' '.join(by_kind['rename'])}.")
    if by_kind["where"]:
        said.append(f"Leave out rows without values with --where {shlex.quote(' and '.join(by_kind['where']))}.")
    kept = rest.kind.row_layout.always_kept
    others = [text for kind, text in remedies if kind == "drop" and text not in kept]
    every = [name for name in found if name not in kept]
    if others:
        said.append(f"Leave out {_counted(others)} with --drop-columns {names_value(others)}.")
    if every and every != others:
        said.append(f"Or leave out {_counted(every)} with --drop-columns {names_value(every)}.")
    return " ".join(said)


def _remedies(column: _Column, error: Unrepresentable, rest: _Rows) -> Iterator[tuple[str, str]]:
    """Yield what makes a column fit: sentences, options, a condition, or its name if nothing does."""
    name = column.field.name
    if error.advice:
        yield "say", error.advice
        if "--" in error.advice:
            return
    option, more = _type_option(column, rest)
    if option:
        yield "type", option
        if more is not None:
            yield ("say", more.advice) if more.advice else ("where", f"{name} is not null")
    elif new := _new_name(column, rest):
        yield "rename", f"--rename {shlex.quote(f'{name}={new}')}"
    elif _fits_without_nulls(column, rest):
        yield "where", f"{name} is not null"
    else:
        yield "drop", name


def _counted(names: Sequence[str]) -> str:
    return f"the column {names[0]!r}" if len(names) == 1 else f"{len(names)} columns"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that does not fit."""

    field: pa.Field
    values: pa.Array

    def written(self) -> _Column:
        """Return the column without references, in which trials are written."""
        if not is_ref(self.field.type):
            return self
        return _Column(self.field.with_type(pa.large_binary()), _hollow(self.values, self.field))


def _type_option(column: _Column, rest: _Rows) -> tuple[str | None, LadingError | None]:
    """Return the option that gives a column a type that its values and the format take.

    Where the format takes the type and no nulls, the error of the nulls comes with the option.
    """
    field, values = column.field, column.values
    if is_ref(field.type) or "=" in field.name:
        return None, None
    there = np.flatnonzero(present(values))
    for kind in _candidates(plain_type(field.type)):
        new = retyped(pa.schema([field]), pa.schema([pa.field(field.name, kind)]), fills=False).field(0)
        try:
            cast = cast_column(values, new, before=field)
        except DataError:
            continue
        option = f"--type {shlex.quote(f'{field.name}={_TYPE_NAMES.get(kind, str(kind))}')}"
        error = rest.with_column(new, cast).error()
        if error is None:
            return option, None
        if rest.stand_alone and len(there) < len(values) and rest.only(there, _Column(new, cast)) is None:
            return option, error
    return None, None


_TYPE_NAMES = {pa.float32(): "float32", pa.float64(): "float64"}


def _candidates(kind: pa.DataType) -> Iterator[pa.DataType]:
    for candidate in _TYPES:
        if candidate == pa.int64() and not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            continue
        if pa.types.is_floating(candidate) and not pa.types.is_floating(kind):
            continue
        yield candidate


def _new_name(column: _Column, rest: _Rows) -> str | None:
    """Return a name under which the format takes a column."""
    old, written = column.field.name, column.written()
    plain = re.sub(r"[^0-9A-Za-z_]+", "_", old).strip("_").lower() or "column"
    for name in (plain, f"{plain}_1", f"{plain}_2", f"column_{plain}") if "=" not in old else ():
        free = name not in rest.schema.names and name != old
        if free and rest.with_column(written.field.with_name(name), written.values).error() is None:
            return name
    return None


def _fits_without_nulls(column: _Column, rest: _Rows) -> bool:
    """Return whether the format takes a column without its nulls, which a condition can leave out."""
    there = np.flatnonzero(present(column.values))
    nulls = len(there) < len(column.values)
    if not rest.stand_alone or not nulls or not column.field.name.isidentifier():
        return False
    return rest.only(there, column.written()) is None
