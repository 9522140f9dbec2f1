"""Queries in SQL over datasets: DuckDB runs them, and asks lading for the columns and the rows that they need.

DuckDB reads a `pyarrow.dataset.Dataset` through `scanner(columns, filter)`: the columns by name, and an expression of
the conditions that the reader can check. It trusts that the rows pass the expression, and stops to read when a limit is
reached. It asks for whole columns; `statement` finds the fields inside them in the text of the query.

The connection sees nothing but the datasets: no files, no extensions, no variables of Python, no settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from lading._core.arrow.references import FileEntry
from lading._core.arrow.views import child_fields
from lading._core.content.field_paths import FieldPath
from lading._core.content.nested import close_to
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.values.field_values import advice_about
from lading._core.features.types import Audio, Bytes, Image, Video, with_feature
from lading._core.storage.temporary import temporary_folder
from lading._core.tables.media_columns import place_fields
from lading._core.tables.sql.statement import Statement, parsed
from lading._core.tables.table import JsonAs, MediaAs, RowTest, Table
from lading.errors import LadingError, SourceNotFound, UsageError, missing_extra

__all__ = ["OnRows", "OpenNamed", "Result", "Showing", "query_result"]

OpenNamed: TypeAlias = Callable[[str], OpenDataset]
"""Opens the dataset that a query names in quotes: `photos/*.tar`."""

_SETTINGS = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",
}
"""In this order: later ones refuse changes of settings."""

_FEATURES = {place_fields(each, any_medium=False): each for each in (Image(), Audio(), Video())}
"""What media are, by the struct that shows them."""

_HUGE = "HUGEINT"
"""DuckDB's type of sums of whole numbers."""


OnRows: TypeAlias = Callable[[int], None]
"""Called with the number of rows of each batch that DuckDB read; raises to end the query."""


@dataclass(frozen=True, slots=True)
class Showing:
    """How a query sees columns: as `Table` has them."""

    media: MediaAs = "reference"
    json: JsonAs = "typed"


@dataclass(frozen=True, slots=True)
class Result:
    """The rows that a query gives.

    Attributes:
        batches: the rows, read when they are asked for.
        schema: their columns.
        tables: the tables that were read, by name.
    """

    batches: Iterator[pa.RecordBatch]
    schema: pa.Schema
    tables: Mapping[str, Table]

    def places(self) -> tuple[pa.Field, ...]:
        """Return the columns that hold whole places of media, as columns of these media."""
        shown = {kind for table in self.tables.values() for kind in table.places.values()}
        return tuple(
            with_feature(pa.field(field.name, pa.large_binary()), _FEATURES.get(field.type, Bytes()))
            for field in self.schema
            if field.type in shown
        )

    def documents(self) -> tuple[pa.Field, ...]:
        """Return the columns that hold whole JSON in which some values are JSON text."""
        mixed = {kind for table in self.tables.values() for kind in table.mixed_json}
        return tuple(field for field in self.schema if field.type in mixed)

    def files(self) -> tuple[FileEntry, ...]:
        """Return the files in which places of media were shown so far."""
        return tuple(dict.fromkeys(each for table in self.tables.values() for each in table.files))


@contextmanager
def query_result(
    text: str, given: Mapping[str, OpenDataset], open_named: OpenNamed, how: Showing, *, rows: int, on_rows: OnRows
) -> Iterator[Result]:
    """Run a query; its rows are read inside the context. Memory: four fifths of the machine's, then temporary files.

    Args:
        text: one SELECT.
        given: datasets by the name that the query has for them.
        open_named: opens names that are not among these.
        how: how columns of media and of JSON are shown.
        rows: of a batch of the result, at most.
        on_rows: is told of each batch that DuckDB read.

    Raises:
        UsageError: the text is not SQL, or names a table or a column that is not there.
        LadingError: a dataset cannot be read, or values do not fit.
        MissingExtra: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise missing_extra(error, "SQL is run by DuckDB", "duckdb", "Run: pip install 'lading[sql]'.") from error
    with ExitStack() as held:
        folder = held.enter_context(temporary_folder())
        connection = held.enter_context(duckdb.connect(config={"temp_directory": folder}))
        for name, value in _SETTINGS.items():
            connection.execute(f"set {name} = {value}")
        statement = parsed(connection, text, given)
        opened, failures = _named(statement, given, open_named), list[BaseException]()
        tables = {name: Table(each, media=how.media, json=how.json) for name, each in opened.items()}
        with _as_lading(statement, opened, failures):
            for name, table in tables.items():
                columns = _columns(opened[name], table, statement)
                scanned = _Scanned(table, columns, failures, on_rows)
                _refuse_other_names(name, list(scanned.schema))
                connection.register(name, scanned)
            relation = connection.sql(text)
            kinds = [str(kind) for kind in relation.types]
            read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch  # before DuckDB 2
            reader = read(rows)
        names = _different(reader.schema.names)
        mixed = [kind for table in tables.values() for kind in table.mixed_json]
        schema = pa.schema(
            [field.with_type(_usual(field.type, kind, mixed)).with_name(name)
             for field, kind, name in zip(reader.schema, kinds, names, strict=True)]
        )  # fmt: skip

        def batches() -> Iterator[pa.RecordBatch]:
            while True:
                with _as_lading(statement, opened, failures):
                    batch = next(reader, None)
                if batch is None:
                    return
                yield _in_usual_types(batch, schema)

        yield Result(batches(), schema, tables)


def _named(statement: Statement, given: Mapping[str, OpenDataset], open_named: OpenNamed) -> dict[str, OpenDataset]:
    """Return the datasets by name: those that are given, and those that the query names.

    Raises:
        UsageError: there is no such table; or SQL takes two names for one.
    """
    found = dict(given)
    for each in statement.tables:
        if each.schema:
            name = f"{each.schema}.{each.name}"
            raise UsageError("a name of a file without quotes", found=name, advice=f"Write: from '{name}'.")
        if each.name.lower() not in {name.lower() for name in given}:
            found[each.name] = _opened(each.name, given, open_named)
    folded = dict[str, str]()
    for name in found:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            raise UsageError("SQL takes these names for one: it ignores capitals", found=f"{other}, {name}",
                             advice="Give one of them another name: lading.sql(…, name=lading.open(…)).")  # fmt: skip
    return found


def _opened(name: str, given: Mapping[str, OpenDataset], open_named: OpenNamed) -> OpenDataset:
    try:
        return open_named(name)
    except SourceNotFound:
        if not name.isidentifier():
            raise
    advice = close_to(name, [*given]) or (
        f"Name files in quotes: from 'photos/*.tar' (in Python also a dataset: lading.sql(…, {name}=ds))."
    )
    raise UsageError(
        "no such table, file or folder", found=name, expected=", ".join(given) or None, advice=advice
    ) from None


def _columns(rows: OpenDataset, table: Table, statement: Statement) -> list[str]:
    """Return the columns that a query may need of a table, as `Table.schema_of` takes them.

    A column that is cheap to read comes first: DuckDB reads the first one where it only counts rows.
    """
    if statement.takes_all:
        return [*table.schema.names]
    asked = statement.columns(rows.schema_with(sorted(statement.unknown(rows.first_schema.names))).names)
    if not asked:
        return []
    cheap = [name for name in table.reader([]).schema.names if name not in asked]
    whole = table.schema_of([*asked])
    return [*cheap, *(each for field in whole for each in _fields(field, asked[field.name]))]


def _refuse_other_names(place: str, fields: Sequence[pa.Field]) -> None:
    """Raise UsageError for names that are one to DuckDB, which would give the first, and for empty ones."""
    known = dict[str, str]()
    for field in fields:
        other = known.setdefault(field.name.lower(), field.name)
        if other != field.name or not field.name:
            raise UsageError("SQL takes these names for one: it ignores capitals" if field.name else "a name is empty",
                             file=place, found=f"{other}, {field.name}" if field.name else None,
                             advice="--json-as text shows JSON as text; ds.rename(…) and ds.select(…) give other"
                                    " columns.")  # fmt: skip
        _refuse_other_names(place, child_fields(field.type))


class _Scanned(pyarrow.dataset.Dataset):  # type: ignore[misc] # pyarrow has no type information
    """A table as DuckDB reads it: with the columns and the fields that the query names.

    Args:
        table: the table.
        columns: as of `Table.schema_of`; none for one that is cheap to read.
        failures: gets an error of reading, which DuckDB knows by its text alone.
        on_rows: called with the number of rows of each batch.
    """

    def __init__(self, table: Table, columns: Sequence[str], failures: list[BaseException], on_rows: OnRows) -> None:
        self._table, self._names, self._failures, self._on_rows = table, columns, failures, on_rows
        self._schema = table.reader([]).schema if not self._names else table.schema_of(self._names)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the query may name; structs have the fields alone that it names."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_: Any) -> _Scan:  # noqa: A002 - as pyarrow names it
        """Return some columns of the rows that pass a condition."""
        tops = self._schema.names if columns is None else columns
        if not self._names:
            return _Scan(self, [], None)
        wanted = [name for top in tops for name in _names_in(self._schema.field(top), self._names)]
        return _Scan(self, wanted, None if filter is None else RowTest.of(filter, _looked_at(filter, self._schema)))

    def batches(self, columns: Sequence[str], test: RowTest | None) -> pa.RecordBatchReader:
        """Return a stream of rows."""
        reader = self._table.reader(columns, test)

        def counted() -> Iterator[pa.RecordBatch]:
            try:
                for batch in reader:
                    self._on_rows(batch.num_rows)
                    yield batch
            except GeneratorExit:  # DuckDB needs no more rows
                raise
            except BaseException as error:
                self._failures.append(error)
                raise

        return pa.RecordBatchReader.from_batches(reader.schema, counted())


@dataclass(frozen=True, slots=True)
class _Scan:
    """What DuckDB takes for a `pyarrow.dataset.Scanner`: that of pyarrow would read all batches ahead."""

    source: _Scanned
    columns: Sequence[str]
    test: RowTest | None

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a stream of the rows."""
        return self.source.batches(self.columns, self.test)


def _fields(column: pa.Field, fields: set[str] | None) -> list[str]:
    """Return the names of some fields of a column, in its order; of the column if a field is unknown."""
    if fields is None or not pa.types.is_struct(column.type):
        return [column.name]
    named = [child.name for child in column.type if child.name.lower() in fields]
    if {name.lower() for name in named} != fields:  # DuckDB's error lists the fields
        return [column.name]
    return [str(FieldPath(column.name, (name,))) for name in named]


def _names_in(column: pa.Field, names: Sequence[str]) -> list[str]:
    """Return those of the names that name this column, or fields of it."""
    inside = (
        [str(FieldPath(column.name, (child.name,))) for child in column.type] if pa.types.is_struct(column.type) else []
    )
    known = {column.name, *inside}
    return [name for name in names if name in known]


def _looked_at(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns, and the fields of structs, without which an expression cannot be evaluated.

    pyarrow does not say which these are: it is asked to evaluate the expression without each of them.
    """
    found: list[str] = []
    for place, field in enumerate(schema):
        if _is_possible(expression, schema.remove(place)):
            continue
        children = list(field.type) if pa.types.is_struct(field.type) else []
        inside = []
        for child in children:
            others = pa.struct([other for other in children if other.name != child.name])
            if not _is_possible(expression, schema.set(place, field.with_type(others))):
                inside.append(str(FieldPath(field.name, (child.name,))))
        found += inside or [field.name]
    return found


def _is_possible(expression: pc.Expression, schema: pa.Schema) -> bool:
    try:
        pa.table([pa.nulls(0, field.type) for field in schema], schema=schema).filter(expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError):
        return False
    return True


# What comes back


def _different(names: Sequence[str]) -> list[str]:
    """Return names of which none is there twice: `n` and `n_1`, as DuckDB's tables have them."""
    found = list[str]()
    for name in names:
        more = (f"{name}_{number}" for number in count(1))
        found.append(name if name not in found else next(each for each in more if each not in {*names, *found}))
    return found


def _usual(kind: pa.DataType, name: str, mixed: Sequence[pa.DataType]) -> pa.DataType:
    """Return the type of a column of the result. One like a whole column of JSON is JSON, with JSON text inside."""
    return pa.int64() if name == _HUGE else next((each for each in mixed if each == kind), kind)


def _in_usual_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with sums of whole numbers as int64. Raises UsageError for a larger one."""
    columns = []
    for field, column in zip(schema, batch.columns, strict=True):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowInvalid as error:
            raise UsageError("a whole number of more than 64 bits", column=field.name, found=str(error)[:80],
                             advice=f"Cast it: {field.name}::double, or ::varchar.") from None  # fmt: skip
    return pa.record_batch(columns, schema)


@contextmanager
def _as_lading(
    statement: Statement, tables: Mapping[str, OpenDataset], failures: Sequence[BaseException]
) -> Iterator[None]:
    """Raise errors of reading as they were, and those of DuckDB as lading's."""
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        if failures:
            raise failures[0] from None
        if isinstance(error, LadingError):
            raise
        raise _explained(error, statement, tables) from None


def _explained(error: Exception, statement: Statement, tables: Mapping[str, OpenDataset]) -> LadingError:
    import duckdb

    kind, _, message = str(error).partition(": ")
    first, *more = [line.strip() for line in message.splitlines() if line.strip()]
    if isinstance(error, duckdb.OutOfMemoryException):
        return LadingError("the query needs more memory than DuckDB takes of this machine", found=first,
                           advice="Ask for fewer columns, or group by fewer values.")  # fmt: skip
    if isinstance(error, duckdb.PermissionException):
        return UsageError("SQL here reads datasets alone, and changes nothing", found=first,
                          advice="Name a file itself: from 'table.csv'.")  # fmt: skip
    if "Values were not provided" in first:
        return UsageError("SQL here has no parameters", found=first.rpartition(": ")[2],
                          advice="Values can be rows: where json.lang = (select lang from v),"
                                 " and v=[{'lang': 'en'}].")  # fmt: skip
    absent = re.match(r'Referenced (column|table) "(.*)" not found', first)
    if isinstance(error, duckdb.BinderException) and absent is not None:
        return _absent(absent[1], absent[2], tables, statement)
    candidates = next((line for line in more if line.startswith(("Candidate Entries", "Did you mean"))), None)
    return UsageError(f"{kind}: {first}".removesuffix("!"), advice=candidates)


def _absent(kind: str, name: str, tables: Mapping[str, OpenDataset], statement: Statement) -> UsageError:
    """Return the error for a column or a table that is not there."""
    columns = "; ".join(f"{table}: {', '.join(rows.columns)}" for table, rows in tables.items())
    if kind == "table":
        advice = close_to(name, [*tables])
    elif f'"{name}"' in statement.text:
        advice = f"Texts stand in single quotes: '{name}'."
    else:
        advice = next(
            filter(None, (advice_about(FieldPath(name), each.first_schema) for each in tables.values())), None
        )
    what = "column" if kind == "column" else "table or column"
    return UsageError(f"no such {what} in the query", found=name, expected=columns or None, advice=advice)
