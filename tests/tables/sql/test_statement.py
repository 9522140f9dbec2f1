"""What a query names, as DuckDB's parser reads it."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from lading._core.tables.sql.statement import TableName, parsed
from lading.errors import UsageError

_COLUMNS = ["__key__", "jpg", "json", "txt", "n"]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        yield found


@pytest.mark.parametrize(
    "text, columns",
    [
        ("select json.lang, count(*) from ds group by 1", {"json": {"lang"}}),
        ("select count(*) from ds where JSON.Lang = 'txt'", {"json": {"lang"}}),
        ("select ds.jpg.width, t.n from ds join t using (txt)", {"jpg": {"width"}, "n": None, "txt": None}),
        ("select jpg, jpg.width from ds", {"jpg": None}),
        ("select json['lang'] from ds", {"json": None}),
        ("select (json).lang from ds", {"json": None}),
        ("select json.lang as txt from ds", {"json": {"lang"}}),
        ("with x as (select json.lang l from ds) select * from x", {"json": {"lang"}}),
        ("select * from (select n from ds), range(3)", {"n": None}),
        ("select list_transform(json.tags, x -> x) from ds order by n", {"json": {"tags"}, "n": None}),
        ("select row_number() over (partition by json.lang order by jpg.width) from ds",
         {"json": {"lang"}, "jpg": {"width"}}),
        ("select 1 from ds", {}),
    ],
)  # fmt: skip
def test_columns_and_their_fields_are_found(
    connection: duckdb.DuckDBPyConnection, text: str, columns: dict[str, set[str] | None]
) -> None:
    assert parsed(connection, text, ["ds"]).columns(_COLUMNS) == columns


@pytest.mark.parametrize(
    "text",
    [
        "select * from ds",
        "from ds",
        "select d.* exclude (jpg) from ds d",
        "select columns('j.*') from ds",
        "select ds from ds",
        "select count(d) from ds d",
        "select count(*) from ds natural join t",
        "select a from ds t(a, b)",
        "from ds pivot (count(*) for n in (1, 2))",
        "unpivot ds on n",
        "summarize ds",
        "select n from x where exists (select * from ds)",
        "with ds as (select * from ds) select n from ds",
    ],
)
def test_all_columns_are_taken_where_the_meaning_depends_on_them(
    connection: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert parsed(connection, text, ["ds"]).columns(_COLUMNS) == dict.fromkeys(_COLUMNS)


def test_tables_are_found_but_not_those_that_the_query_makes(connection: duckdb.DuckDBPyConnection) -> None:
    text = "with x as (select n from 'a/*.tar') select n from x join ds using (n) union select n from photos.tar"
    assert set(parsed(connection, text).tables) == {TableName("a/*.tar"), TableName("ds"), TableName("tar", "photos")}


@pytest.mark.parametrize(
    "text, error",
    [
        ("selec 1", 'not SQL: syntax error at or near "selec"'),
        ("", "found no text"),
        ("select 1; select 2", "found 2 of them"),
        ("copy ds to 'x.csv'", "SQL here is one SELECT"),
        ("create table x as select 1", "SQL here is one SELECT"),
        ("attach 'x.db'", "SQL here is one SELECT"),
        ("install httpfs", "SQL here is one SELECT"),
        ("set threads = 1", "SQL here is one SELECT"),
    ],
)
def test_all_but_one_select_is_refused(connection: duckdb.DuckDBPyConnection, text: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        parsed(connection, text)
    assert error in str(raised.value)
