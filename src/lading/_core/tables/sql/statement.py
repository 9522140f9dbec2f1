"""What a query in SQL names: its tables and its columns, as DuckDB's own parser reads it.

DuckDB asks for whole columns, and asks only when a query runs. To read `jpg.width` of a picture and nothing else of it,
lading looks at the text of the query. All that is found here only narrows the columns that DuckDB is told of: a column
that was overlooked is an error of DuckDB's, never another result.

Source: DuckDB's `json_serialize_sql`, <https://duckdb.org/docs/stable/data/json/sql_to_and_from_json>.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from lading.errors import UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["Statement", "TableName", "parsed"]

_NO_NAMES = frozenset(
    ("alias", "catalog", "catalog_name", "class", "function_name", "qualified_name", "schema",
     "schema_name", "table_name", "type")
)  # fmt: skip
"""Keys of a parsed query under which no column is named."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table that a query reads.

    Attributes:
        name: as it is written, without quotes: `ds`, `photos/*.tar`.
        schema: the part before a dot outside quotes, such as `photos` of `photos.tar`; usually empty.
    """

    name: str
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A query.

    Attributes:
        text: as it is written.
        tables: the tables that it reads, each once; those that it makes itself (`with x as …`) are left out.
        takes_all: whether its meaning depends on all columns of its tables.
        paths: the columns that it names, with the fields inside them: `("ds", "json", "lang")`.
        words: further names of columns, as `using (id)` has them.
        made: names that it gives to columns of its result.
    """

    text: str
    tables: tuple[TableName, ...]
    takes_all: bool
    paths: frozenset[tuple[str, ...]]
    words: frozenset[str]
    made: frozenset[str]

    def unknown(self, names: Iterable[str]) -> set[str]:
        """Return the columns that it names and that are not among some; names of other tables are among them."""
        known = {*(name.lower() for name in names), *self.made}
        return {part for path in self.paths if known.isdisjoint(path) for part in path}

    def columns(self, names: Iterable[str]) -> dict[str, set[str] | None]:
        """Return the columns among some that the query may need: each with its fields, or None for all of it.

        Names are compared as SQL does: `JSON.Lang` is `json.lang`. Fields are in lower case.
        """
        if self.takes_all:
            return dict.fromkeys(names)
        found: dict[str, set[str] | None] = {}
        for name in names:
            fields = self._fields(name.lower())
            if fields is None or fields:
                found[name] = fields
        return found

    def _fields(self, column: str) -> set[str] | None:
        """The fields of a column that are named; None if all of it is, and none if it is not."""
        if column in self.words:
            return None
        found = set[str]()
        for path in self.paths:
            for place, part in enumerate(path):
                if part == column and place + 1 == len(path):
                    return None
                if part == column:
                    found.add(path[place + 1])
        return found


def parsed(connection: DuckDBPyConnection, text: str, given: Collection[str] = ()) -> Statement:
    """Return a query in SQL.

    Args:
        connection: to any database; its parser is asked.
        text: the query.
        given: names of tables that are there already.

    Raises:
        UsageError: the text is no SQL, or something else than one query.
    """
    [[serialized]] = connection.execute(
        "select json_serialize_sql(?::varchar, skip_null := true, skip_empty := true, skip_default := true)", [text]
    ).fetchall()
    answer = orjson.loads(serialized)
    if answer["error"]:
        if answer["error_type"] == "parser":
            raise UsageError(f"not SQL: {answer['error_message']}", found=_around(text, answer.get("position")))
        raise UsageError("SQL here is one SELECT, which changes no tables, files or settings", found=text[:80],
                         advice="lading sql QUERY DST writes the result (in Python: .write).")  # fmt: skip
    statements = answer["statements"]
    if len(statements) != 1:
        raise UsageError("SQL here is one SELECT", found=f"{len(statements)} of them" if statements else "no text")
    nodes = [*_nodes(statements[0], frozenset())]
    made = {each["key"].lower() for node, _ in nodes for each in node.get("cte_map", {}).get("map", ())}
    read = {TableName(node["table_name"], node.get("schema_name", "")): None for node, _ in nodes if _reads(node)}
    tables = [each for each in read if each.name.lower() not in made]
    paths = frozenset(
        tuple(part.lower() for part in node["column_names"]) for node, _ in nodes if node.get("class") == "COLUMN_REF"
    )
    rows = {
        node[key].lower() for node, _ in nodes for key in ("alias", "table_name") if key in node and "class" not in node
    }
    takes_all = (
        any(path[-1] in rows for path in paths)  # a table's name for a whole row
        or any(each.lower() in made for each in given)  # which of both is meant depends on the place
        or any(_takes_all(node, sources - made) for node, sources in nodes)
    )
    named = frozenset(node["alias"].lower() for node, _ in nodes if "alias" in node and "class" in node)
    return Statement(text, tuple(tables), takes_all, paths, frozenset(_words(statements[0])), named)


def _nodes(statement: object, sources: frozenset[str]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield all objects of a parsed query, each with the names of the tables that its SELECT reads itself."""
    pending = [(statement, sources)]
    for value, around in pending:
        if isinstance(value, dict):
            inner = around
            if "from_table" in value:
                inner = frozenset(node["table_name"].lower() for node in _joined(value["from_table"]) if _reads(node))
            yield value, inner
            pending += [(each, inner) for each in value.values()]
        elif isinstance(value, list):
            pending += [(each, around) for each in value]


def _joined(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a SELECT takes rows from, without looking into inner queries."""
    pending = [source]
    for node in pending:
        yield node
        pending += [node[key] for key in ("left", "right", "source") if key in node]


def _reads(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "BASE_TABLE"


def _takes_all(node: Mapping[str, Any], sources: Collection[str]) -> bool:
    """Whether the meaning of a node depends on all columns of the tables of its SELECT."""
    return (
        (node.get("type") in ("STAR", "PIVOT") and bool(sources))
        or node.get("ref_type") == "NATURAL"
        or (_reads(node) and "column_name_alias" in node)  # names by place
    )


def _words(value: object) -> Iterator[str]:
    """Yield the texts of a parsed query that may name columns, other than paths."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value.lower()
        elif isinstance(value, Mapping) and value.get("class") != "CONSTANT":
            skipped = {*_NO_NAMES, *(["column_names"] if value.get("class") == "COLUMN_REF" else [])}
            pending += [each for key, each in value.items() if key not in skipped]
        elif isinstance(value, list):
            pending += value


def _around(text: str, position: str | None) -> str:
    """Return the part of a text where an error is."""
    start = 0 if position is None else int(position)
    return repr(text.encode()[start : start + 40].decode(errors="replace")) if text[start:].strip() else "the end"
