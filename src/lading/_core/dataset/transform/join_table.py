"""The table of a join: loaded once in each process, and looked up by its key."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.free_memory import release_freed
from lading._core.arrow.hashing import NameTable, equal_neighbours
from lading._core.arrow.views import is_bytes, is_text
from lading._core.features.items import KEY
from lading._core.storage.temporary import temporary_folder, writing
from lading.errors import UsageError

__all__ = ["JoinTable", "TableSource", "text_or_integers"]

_BY_VALUE_BYTES = 1 << 20
"""A larger table in memory travels to other processes through a temporary file."""
_SHOWN = 3
_KEY_NAMES = (KEY, "key", "sample_id", "id")
"""Columns of a table that hold the keys of samples, where nobody names one; the first that is there counts."""


class TableSource(Protocol):
    """A dataset, as far as a join needs it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""

    def batches(self, *, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order."""


class JoinTable:
    """Rows that are found by their key. They are loaded when they are first looked at.

    Memory: the key and the columns, and 16 bytes a row.

    Args:
        source: a dataset, or a table in memory.
        name: of the table, for reports.
        key: column with the keys; None for the first of `__key__`, `key`, `sample_id`, `id` that is there.
        columns: columns to add; None for all but the key.
        untyped: all columns are text, as in CSV: numbers are recognised.
    """

    def __init__(
        self, source: TableSource | pa.Table, name: str, key: str | None, columns: tuple[str, ...] | None, *,
        untyped: bool = False,
    ) -> None:  # fmt: skip
        self._source, self.name, self._untyped = source, name, untyped
        self._columns, self._asked_key = columns, key
        self._file: str | None = None

    def __reduce__(self) -> tuple[Callable[..., JoinTable], tuple[Any, ...]]:
        """Another process opens the dataset again, or the temporary file of a large table."""
        given = self.name, self._asked_key, self._columns
        if not isinstance(self._source, pa.Table):
            return _again, (self._source, *given, self._untyped)
        if self._source.nbytes <= _BY_VALUE_BYTES:
            return _again, (self._source.combine_chunks(), *given, self._untyped)
        if self._file is None:
            held = ExitStack()
            self._file = _written(self._source, held.enter_context(temporary_folder()))
            weakref.finalize(self, held.close)
        return _of_file, (self._file, *given)

    # Columns

    @cached_property
    def key(self) -> str:
        """Name of the column with the keys."""
        names = self._source.schema.names
        if self._asked_key is None:
            found = [name for name in _KEY_NAMES if name in names]
            if not found:
                raise UsageError("the table has no column with the keys of samples", file=self.name,
                                 expected=" or ".join(_KEY_NAMES), found=", ".join(names),
                                 advice="Name its column: --on __key__=COLUMN.")  # fmt: skip
            return found[0]
        if self._asked_key not in names:
            raise UsageError("the table has no such column", file=self.name, expected=", ".join(names),
                             found=repr(self._asked_key),
                             advice=f"Name the field and the column: --on FIELD={names[0]}.")  # fmt: skip
        return self._asked_key

    @cached_property
    def values(self) -> pa.Table:
        """The columns that are added, a row for each row of the table.

        Raises:
            UsageError: the table has no such column, or no row.
        """
        rows = self._loaded
        if self._columns is None:
            names = [name for name in rows.column_names if name not in (self.key, KEY)]
        else:
            names = list(self._columns)
        rows = rows.select(names)
        return _typed(rows) if self._untyped else rows

    @property
    def schema(self) -> pa.Schema:
        """The columns that are added."""
        return self.values.schema

    @property
    def rows(self) -> pa.Table:
        """All rows, with their keys."""
        return self._loaded

    @cached_property
    def _loaded(self) -> pa.Table:
        key, source, columns = self.key, self._source, self._columns
        wanted = None if columns is None else list(dict.fromkeys([key, *columns]))
        if isinstance(source, pa.Table):
            found = source if wanted is None else source.select(self._refusing_unknown(wanted, source.column_names))
        else:
            parts = [pa.Table.from_batches([batch]) for batch in source.batches(columns=wanted)]
            found = pa.concat_tables(parts, promote_options="permissive") if parts else source.schema.empty_table()
        if not len(found):
            raise UsageError("the table of the join has no row", file=self.name, expected="at least one row")
        plain = pa.table({name: _plain(found.column(name)) for name in found.column_names})
        kept = [plain.schema.field(f.name).with_metadata(f.metadata) for f in found.schema]
        del found
        return plain.cast(pa.schema(kept)).combine_chunks()

    def _refusing_unknown(self, wanted: list[str], names: Sequence[str]) -> list[str]:
        for name in wanted:
            if name not in names:
                raise UsageError("the table has no such column", file=self.name, expected=", ".join(names),
                                 found=repr(name))  # fmt: skip
        return wanted

    # Rows

    def find(self, keys: pa.Array, field: str) -> NDArray[np.int64]:
        """Return the row of each key, −1 where there is none.

        Args:
            keys: values of the samples' field.
            field: its name.

        Raises:
            UsageError: keys of the samples and of the table are of different types, or a key is in several rows.
        """
        wanted = text_or_integers(keys, field)
        if wanted.null_count == len(wanted):
            return np.full(len(wanted), -1, np.int64)
        if is_text(self._keys.type) and pa.types.is_integer(wanted.type) and self._untyped:
            there, index = self._by_integer
        elif self._keys.type == wanted.type:
            there, index = self._by_key
        else:
            raise UsageError(
                "the keys of the samples and of the table are of different types", file=self.name, column=self.key,
                expected=f"{keys.type}, as in {field!r}", found=self._loaded.schema.field(self.key).type,
                advice=f"Cast one of them first, such as ds.cast({{{self.key!r}: 'string'}}).",
            )  # fmt: skip
        at = index.find(wanted)
        return np.where(at >= 0, there[np.maximum(at, 0)], -1) if len(there) else at

    def no_match(self, field: str, keys: Sequence[object]) -> UsageError:
        """Return the error that no sample has a row, with the first keys of both sides.

        Args:
            field: name of the samples' field.
            keys: values of it.
        """
        own = self._keys.drop_null().slice(0, _SHOWN).to_pylist()
        return UsageError(
            "no sample has a row in the table", file=self.name, column=self.key,
            expected=f"keys as in the samples' {field!r}: {', '.join(map(repr, keys[:_SHOWN]))}",
            found=", ".join(map(repr, own)) or "nulls",
            advice="Name the field and the column that hold the same keys: --on FIELD=COLUMN. Keys are equal as a "
            "whole, with folder and extension.",
        )  # fmt: skip

    def check(self) -> None:
        """Load the table, and raise the errors that its rows have whatever the samples are.

        Raises:
            UsageError: a column is missing, there is no row, or a key is in several rows.
        """
        _ = self.values, self._by_key

    @cached_property
    def _keys(self) -> pa.Array:
        return text_or_integers(_whole(self._loaded.column(self.key)), self.key)

    @cached_property
    def _by_key(self) -> tuple[NDArray[np.int64], NameTable | _Integers]:
        return self._unique(self._keys)

    @cached_property
    def _by_integer(self) -> tuple[NDArray[np.int64], NameTable | _Integers]:
        try:
            return self._unique(self._keys.cast(pa.int64()))
        except pa.ArrowInvalid as error:
            raise UsageError("the keys of the samples are whole numbers, and those of the table are not",
                             file=self.name, column=self.key, found=str(error)) from error  # fmt: skip

    def _unique(self, keys: pa.Array) -> tuple[NDArray[np.int64], NameTable | _Integers]:
        """The rows with a key, and the look-up of their keys. Raises UsageError for a key in several rows."""
        there = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        known = keys.take(pa.array(there)) if len(there) < len(keys) else keys
        release_freed()  # of the pass over the table
        index = NameTable(known) if is_text(known.type) else _Integers(known)
        counts = known.take(pa.array(index.clashing())).value_counts()  # all keys would take 200 bytes each
        if pc.any(pc.greater(counts.field(1), 1)).as_py():
            several = counts.filter(pc.greater(counts.field(1), 1))
            first = several.field(0)[0]
            rows = np.flatnonzero(pc.equal(keys, first).fill_null(False).to_numpy(zero_copy_only=False))  # noqa: FBT003 - pyarrow takes it by position only
            shown = " and ".join(map(str, rows[:_SHOWN])) + (" …" if len(rows) > _SHOWN else "")
            of_all = f"; {len(several):,} such keys" if len(several) > 1 else ""
            raise UsageError(
                "a key is in several rows of the table, so which row to join is unknown", file=self.name,
                column=self.key, found=f"{first.as_py()!r} in rows {shown}{of_all}",
                advice=f"Keep the first row of each key: lading convert TABLE NEW --dedup {self.key}.",
            )  # fmt: skip
        release_freed()
        return there, index


class _Integers:
    """A look-up of integers: 16 bytes each."""

    def __init__(self, keys: pa.Array) -> None:
        numbers = keys.to_numpy(zero_copy_only=False)
        self._order = np.argsort(numbers, kind="stable")
        self._sorted = numbers[self._order]

    def clashing(self) -> NDArray[np.int64]:
        """Return the positions of integers that are there again."""
        return np.sort(self._order[equal_neighbours(self._sorted)])

    def find(self, wanted: pa.Array) -> NDArray[np.int64]:
        """Return the position of each wanted integer, −1 where it is missing or null."""
        numbers = wanted.fill_null(0).to_numpy(zero_copy_only=False)
        if not len(self._sorted) or not len(numbers):
            return np.full(len(numbers), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, numbers), len(self._sorted) - 1)
        same = (self._sorted[at] == numbers) & wanted.is_valid().to_numpy(zero_copy_only=False)
        return np.where(same, self._order[at], -1)


_EXACT, _ROUNDED = 2.0**53, 0.5
"""Floats up to here hold each whole number; larger ones may stand for several, and are refused as fractions are."""


def text_or_integers(keys: pa.Array, name: str) -> pa.Array:
    """Return keys as `large_string` or `int64`: only these are compared, and without loss. NaN is null.

    Raises:
        UsageError: keys of another type, or bytes that are invalid UTF-8.
    """
    plain = _plain(keys)
    try:
        if is_text(plain.type) or is_bytes(plain.type) or pa.types.is_null(plain.type):
            return plain.cast(pa.large_string())
        if pa.types.is_floating(plain.type):  # pandas has whole numbers so, where one is missing
            numbers = plain.cast(pa.float64())
            exact = pc.if_else(pc.is_nan(numbers), None, numbers)
            return pc.if_else(pc.less_equal(pc.abs(exact), _EXACT), exact, _ROUNDED).cast(pa.int64())
        if pa.types.is_integer(plain.type):
            return plain.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise UsageError("values of this field cannot be keys", column=name, found=str(error),
                         advice="Cast them to texts on both sides.") from error  # fmt: skip
    raise UsageError("values of this field cannot be keys", column=name, expected="texts or whole numbers",
                     found=keys.type, advice="Cast them to texts on both sides.")  # fmt: skip


def _plain(column: Any) -> Any:
    """The column without a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):  # they may be too long together
        column = column.cast(pa.large_string() if pa.types.is_string(column.type) else pa.large_binary())
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _typed(rows: pa.Table) -> pa.Table:
    """The rows with texts that are all whole numbers, numbers, or true and false, as such."""
    for i, field in enumerate(rows.schema):
        texts = rows.column(i)
        if not is_text(field.type) or texts.null_count == len(texts):
            continue
        for kind in (pa.int64(), pa.float64(), pa.bool_()):
            with suppress(pa.ArrowInvalid):
                values = texts.cast(kind)
                exact = pa.types.is_floating(kind) or values.cast(field.type).equals(texts)
                if exact:  # 007 is a text
                    rows = rows.set_column(i, field.with_type(kind), values)
                    break
    return rows


def _again(source: Any, name: str, key: str | None, columns: tuple[str, ...] | None, untyped: bool) -> JoinTable:
    return JoinTable(source, name, key, columns, untyped=untyped)


def _of_file(path: str, name: str, key: str | None, columns: tuple[str, ...] | None) -> JoinTable:
    try:
        with pa.memory_map(path) as file:
            table = pa.ipc.open_file(file).read_all()
    except FileNotFoundError:
        raise UsageError("the table of a join in memory is gone: it lives as long as the process that joined it",
                         file=name, advice="Write the table to a Parquet file, and join that.") from None  # fmt: skip
    return JoinTable(table, name, key, columns)


def _written(table: pa.Table, folder: str) -> str:
    """Write a table to a temporary file; return its path."""
    path = os.path.join(folder, "table.arrow")
    with writing(folder), pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path
