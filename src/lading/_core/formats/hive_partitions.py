"""Hive partitions: columns whose values stand in the names of folders, `year=2023/lang=en/part-0.parquet`.

    folder                            column
    year=2023                         `year`: int32, if all values of the dataset are such numbers; else string
    lang=__HIVE_DEFAULT_PARTITION__   null, as for a file without such a folder
    city=S%C3%A3o%20Paulo             values and names are URL-encoded

Source: pyarrow 26.0.1, `dataset(partitioning="hive")`. There the folder wins over a column of the same name in the
file, or the two types are an error. Here the column of the file stays, and must hold the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.types import arrow_type
from lading._core.formats.base import Change, Scan, SchemaBefore, ShardReader
from lading._core.formats.mapped import Mapped
from lading.errors import DataError, SchemaMismatch

__all__ = ["WITHOUT_PARTITIONS", "partitions_of", "values_of", "with_partition"]

_NULL = "__HIVE_DEFAULT_PARTITION__"
WITHOUT_PARTITIONS = "Leave partitions out with --no-hive-partitioning."
"""Advice where partitions are in the way."""

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def partitions_of(paths: pa.ChunkedArray) -> pa.Array | None:
    """Return the partition of each file as text for `values_of`; None if no folder is a partition.

    Args:
        paths: of all files of the dataset, with the folders that may be partitions.

    Raises:
        DataError: a value is invalid UTF-8.
    """
    if not pc.any(pc.match_substring(paths, "=")).as_py():
        return None
    plain = pc.replace_substring_regex(paths, r"^(https?://[^?#]*).*$", r"\1")  # a query is no folder
    folders = pc.replace_substring_regex(plain, r"[^/]*$", "").combine_chunks().dictionary_encode()
    parsed = [_parsed(folder) for folder in folders.dictionary.to_pylist()]
    names = list(dict.fromkeys(name for found in parsed for name in found))
    if not names:
        return None
    kinds = {name: _kind([found.get(name) for found in parsed]) for name in names}
    texts = [
        orjson.dumps([[name, str(kinds[name]), name in found, _value(kinds[name], found.get(name))] for name in names])
        for found in parsed
    ]
    return pa.array([text.decode() for text in texts], pa.string()).take(folders.indices)


def _parsed(folder: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for part in folder.split("/"):
        name, equals, value = part.partition("=")
        if equals:
            found.setdefault(_unquoted(name, folder), None if value == _NULL else _unquoted(value, folder))
    return found


def _unquoted(text: str, folder: str) -> str:
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise DataError("the value of a partition is invalid UTF-8", file=folder, found=repr(text),
                        advice=WITHOUT_PARTITIONS) from None  # fmt: skip


def _kind(values: Sequence[str | None]) -> pa.DataType:
    """Return int32 if all values are such numbers as pyarrow reads them, else string."""
    given = pa.array([value for value in values if value is not None], pa.string())
    try:
        given.cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32() if len(given) else pa.string()


def _value(kind: pa.DataType, text: str | None) -> int | str | None:
    found: int | str | None = pa.scalar(text, pa.string()).cast(kind).as_py()
    return found


def values_of(partition: str, *, stated: bool = False) -> pa.RecordBatch:
    """Return the columns of a partition as one row; with `stated` without those that only other files' folders have.

    Args:
        partition: a JSON list of columns: name, Arrow type, whether the file has a value, the value or a text of it.
        stated: leave out columns without a value for the file.
    """
    columns = [column for column in orjson.loads(partition) if column[2] or not stated]
    schema = pa.schema([pa.field(name, arrow_type(kind)) for name, kind, *_ in columns])
    values = [pa.array([value]).cast(field.type) for (*_, value), field in zip(columns, schema, strict=True)]
    return pa.record_batch(values, schema)


def with_partition(reader: ShardReader, partition: str, path: str) -> ShardReader:
    """Return a reader whose rows have the columns of a partition too; the reader itself if there are none.

    Args:
        reader: reads the file.
        partition: of `partitions_of`; empty for none.
        path: path of the file, for errors.
    """
    if not partition:
        return reader
    values, stated = values_of(partition), values_of(partition, stated=True).schema.names
    return Mapped(reader, _PartitionColumns(values, frozenset(stated), reader.declares_types, path))


@dataclass(frozen=True, slots=True)
class _PartitionColumns(Change):
    """Columns that have one value in the whole file.

    Attributes:
        values: the columns, as one row.
        stated: names of those that the folders of this file have.
        own_known: whether the file declares its columns, rather than its values.
        path: path of the file, for errors.
    """

    values: pa.RecordBatch
    stated: frozenset[str]
    own_known: bool
    path: str

    def _absent(self, before: SchemaBefore) -> frozenset[str]:
        """Names of the columns that are known to be no columns of the file; values tell it of some formats."""
        names = self.values.schema.names
        return frozenset(names).difference(before().names if self.own_known else names)

    def schema_after(self, before: SchemaBefore) -> pa.Schema:
        """Return the columns of the file, and those of its partition."""
        schema = before()
        more = [field for field in self.values.schema if field.name not in schema.names]
        return pa.schema([*schema, *more], metadata=schema.metadata)

    def needed(self, scan: Scan, before: SchemaBefore) -> Scan | None:
        """Return the columns to read of the file; None for columns of the partition alone."""
        absent = self._absent(before)
        columns = None if scan.columns is None else [name for name in scan.columns if name not in absent]
        if columns == []:
            return None
        schema = scan.schema
        if schema is not None:
            schema = pa.schema([field for field in schema if field.name not in absent], metadata=schema.metadata)
        return replace(scan, columns=columns, schema=schema)

    def apply(self, rows: _Rows, columns: Sequence[str] | None, numbers: NDArray[np.int64]) -> _Rows:
        """Return the rows with the columns of the partition too.

        Raises:
            SchemaMismatch: the file has another value than its folder.
        """
        for name in self.values.schema.names:
            if columns is not None and name not in columns:
                continue
            value, at = self.values.column(name)[0], rows.schema.get_field_index(name)
            if at < 0:
                fields = [*rows.schema, self.values.schema.field(name)]
                column: Any = pa.repeat(value, rows.num_rows)
                schema = pa.schema(fields, metadata=rows.schema.metadata)
                rows = type(rows).from_arrays([*rows.columns, column], schema=schema)
            elif name in self.stated:
                column = self._agreed(rows.column(at), name, value)
                rows = rows.set_column(at, rows.schema.field(at), column)
        return rows

    def _agreed(self, column: pa.Array | pa.ChunkedArray, name: str, value: pa.Scalar) -> pa.Array | pa.ChunkedArray:
        """Return a column of the file, with the folder's value for nulls. Raises SchemaMismatch for another value."""
        found: list[Any] = [f"a column of {column.type}"]
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            plain = column.cast(value.type)
            found = column.filter(pc.not_equal(plain, value) if value.is_valid else pc.is_valid(plain))[:1].to_pylist()
            if not found and (not value.is_valid or not column.null_count):
                return column
            if not found:
                return pc.fill_null(column, value.cast(column.type))
        raise SchemaMismatch("the file and the folder of its partition have different values", file=self.path,
                             column=name, expected=f"{value.as_py()!r}, as the folder says", found=repr(found[0]),
                             advice=WITHOUT_PARTITIONS)  # fmt: skip
