"""Read `metadata.csv`, `metadata.jsonl` and `metadata.parquet`: further columns of files, by `file_name`.

A `file_name` is relative to the folder of its table. Source: Hugging Face datasets 5.2.0, folder_based_builder.py.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.align import align_table, union_schema
from lading._core.formats.base import ShardFile
from lading._core.formats.registry import find_format
from lading._core.storage.base import FileInfo, Store
from lading.errors import DataError, SchemaMismatch, errors_at
from lading.limits import Limits

__all__ = ["FILE_NAME", "Metadata", "read_metadata"]

FILE_NAME = "file_name"


@dataclass(frozen=True, slots=True, eq=False)
class Metadata:
    """Further columns of files.

    Attributes:
        columns: a row a file.
        rows: row of each file, by its path.
        table: path of the first table.
    """

    columns: pa.Table
    rows: dict[str, int]
    table: str

    def of(self, groups: Sequence[Sequence[str]]) -> pa.Table:
        """Return a row for each group of paths: that of the first path with one; nulls where there is none.

        Raises:
            DataError: two files of one group have a row each.
        """
        wanted = []
        for paths in groups:
            found = [self.rows[path] for path in paths if path in self.rows]
            if len(found) > 1:
                raise DataError("two files of one sample have metadata", file=self.table, found=", ".join(paths))
            wanted.append(found[0] if found else None)
        return self.columns.take(pa.array(wanted, pa.int64()))


@lru_cache(maxsize=4)
def read_metadata(store: Store, tables: tuple[tuple[str, int, str], ...], limits: Limits) -> Metadata:
    """Return the rows of metadata tables; held in memory, and for the other shards of their folder.

    Args:
        store: the store of the tables.
        tables: path, size and version of each.
        limits: limits on what they may ask for.

    Raises:
        DataError: a table lacks `file_name`, names a file twice or one outside its folder, or has other columns.
    """
    parts = [_read(store, path, FileInfo(path, size, version), limits) for path, size, version in tables]
    try:
        schema, _ = union_schema((path, part.schema) for (path, *_), part in zip(tables, parts, strict=True))
    except SchemaMismatch as error:
        raise error.at(file=tables[0][0]) from None
    rows: dict[str, int] = {}
    for (path, *_), part in zip(tables, parts, strict=True):
        folder = posixpath.dirname(path)
        for row, name in enumerate(part.column(FILE_NAME).to_pylist()):
            place = _place(folder, name, path, row)
            if place in rows:
                raise DataError("the metadata name a file twice", file=path, row=row, column=FILE_NAME, found=name)
            rows[place] = len(rows)
    whole = pa.concat_tables([align_table(part, schema) for part in parts])
    return Metadata(whole.drop_columns([FILE_NAME]), rows, tables[0][0])


def _read(store: Store, path: str, info: FileInfo, limits: Limits) -> pa.Table:
    fmt = find_format(path, b"")
    with closing(fmt.open(ShardFile(store, path, info, limits=limits), fmt.read_options({}))) as reader:
        table = reader.read().combine_chunks()
    if FILE_NAME not in table.column_names:
        raise DataError("the metadata name no files", file=path, expected=f"a column {FILE_NAME}",
                        found=", ".join(table.column_names))  # fmt: skip
    with errors_at(file=path):
        at = table.schema.get_field_index(FILE_NAME)
        try:
            names = pc.cast(table.column(at), pa.string())
        except pa.ArrowException as error:
            raise DataError("a column of names is no text", column=FILE_NAME, found=str(error)[:80]) from None
    table = table.set_column(at, FILE_NAME, names).replace_schema_metadata()
    return _with_numbers(table) if path.endswith(".csv") else table


def _with_numbers(table: pa.Table) -> pa.Table:
    """Return the columns of a CSV file with whole numbers, decimals and truth values where all values are such.

    An identifier such as `007` stays text: as a number it would lose its zeros.
    """
    for at, name in enumerate(table.column_names):
        column = table.column(at)
        if name == FILE_NAME or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            continue
        plain = pc.if_else(pc.equal(column, ""), None, column)
        for pattern, kind in _NUMBERS:
            if plain.null_count == len(plain) or not pc.all(pc.match_substring_regex(plain, pattern)).as_py():
                continue
            with suppress(pa.ArrowInvalid):  # a number of more than 64 bits
                table = table.set_column(at, name, pc.cast(plain, kind))
                break
    return table


_NUMBERS = (
    (r"^(?:0|-?[1-9][0-9]*)$", pa.int64()),
    (r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$", pa.float64()),
    (r"^(?:[Tt]rue|[Ff]alse|TRUE|FALSE)$", pa.bool_()),
)
"""What a whole column of CSV is, by its values."""


def _place(folder: str, name: str | None, table: str, row: int) -> str:
    """Return the path of a file that a table names. Raises DataError for one outside the folder of the table."""
    plain = posixpath.normpath(name or "..")
    if name is None or "://" in name or plain.startswith(("/", "..")) or "\0" in name:
        raise DataError("the metadata name a file outside their folder", file=table, row=row, column=FILE_NAME,
                        expected="a relative path", found=repr(name)[:80])  # fmt: skip
    return posixpath.join(folder, plain)
