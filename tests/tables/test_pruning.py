"""Conditions of SQL and polars: which row groups and files are not read, and that no row is lost to it."""

from __future__ import annotations

import operator
from datetime import date
from functools import reduce
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lading
from counted_files import CountedFiles
from lading.errors import LadingError

_GROUPS, _ROWS = 50, 2000
_END = 64 << 10
"""Bytes at the end of a remote file that are read with its footer: for its columns, and for its rows."""


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 50 row groups, sorted by day, of some 16 KB each."""
    path = tmp_path_factory.mktemp("sales") / "sales.parquet"
    days = np.arange(_GROUPS * _ROWS) // _ROWS
    dates = np.datetime64("2024-01-01") + days
    table = pa.table({
        "day": np.char.add("day ", np.char.zfill(days.astype(str), 2)),
        "date": dates,
        "time": dates.astype("datetime64[us]"),
        "about": pa.StructArray.from_arrays([pa.array(days), pa.array(np.arange(len(days)))], ["day", "number"]),
        "x": np.random.default_rng(1).integers(0, 1 << 62, len(days)),
    })  # fmt: skip
    pq.write_table(table, path, row_group_size=_ROWS)
    return path


@pytest.mark.parametrize(
    "sql, polars",
    [
        ("day = 'day 07'", pl.col("day") == "day 07"),
        ("day in ('day 07', 'none')", pl.col("day").is_in(["day 07", "none"])),
        ("date = date '2024-01-08'", pl.col("date") == date(2024, 1, 8)),
        ("time = '2024-01-08'", None),
        ("about.day > 6 and x >= 0 and about.day < 8", pl.col("about").struct.field("day").is_between(7, 7)),
    ],
)
def test_a_condition_reads_the_row_groups_that_may_have_such_rows(sales: Path, sql: str, polars: pl.Expr) -> None:
    [[expected]] = duckdb.sql(f"select sum(x) from '{sales}' where {sql}").fetchall()
    CountedFiles.begin()
    ds = lading.open(f"counted://{sales}")
    queries = [lambda: lading.sql(f"select sum(x)::hugeint::varchar s from ds where {sql}", ds=ds)[0]["s"]]
    if polars is not None:
        frame = ds.to_polars(lazy=True)
        queries.append(lambda: str(sum(frame.filter(polars).select("x").collect()["x"].to_list())))
    for query in queries:
        CountedFiles.begin()
        assert query() == str(expected)
        group = sales.stat().st_size / _GROUPS
        assert CountedFiles.read_bytes < 2 * _END + 2 * group


def test_a_limit_ends_the_reading_of_what_is_left(sales: Path) -> None:
    CountedFiles.begin()
    ds = lading.open(f"counted://{sales}")
    CountedFiles.begin()
    assert lading.sql("select x from ds where day >= 'day 07' limit 3", ds=ds).to_arrow().num_rows == 3
    assert ds.to_polars(lazy=True).filter(pl.col("day") >= "day 07").head(3).collect().height == 3
    assert CountedFiles.read_bytes < 1.2 * sales.stat().st_size


@pytest.fixture
def by_year(tmp_path: Path) -> Path:
    """A file a year; the last one has a column more."""
    for year in (2020, 2021, 2022):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        more = {"extra": [0.5] * 10} if year == 2022 else {}
        pq.write_table(pa.table({"x": np.arange(10) + year, **more}), folder / "a.parquet")
    return tmp_path


def test_files_of_other_partitions_are_not_read(by_year: Path) -> None:
    ds = lading.open(by_year)
    frame = ds.to_polars(lazy=True)
    other = by_year / "year=2022/a.parquet"
    other.write_bytes(b"PAR1" + bytes(60) + other.read_bytes()[64:])  # damaged pages, and a sound footer
    assert lading.sql("select count(x) n from ds where year = 2021", ds=ds)[0]["n"] == 10
    assert frame.filter((pl.col("year") == 2021) & (pl.col("x") > 2025)).select("x").collect().height == 5
    assert lading.sql("select count(*) n from ds where year = 1990", ds=ds)[0]["n"] == 0
    with pytest.raises(LadingError, match="2022"):
        lading.sql("select sum(x) from ds where year > 2021", ds=ds)[0]


def test_a_column_of_other_files_is_null(by_year: Path) -> None:
    ds = lading.open(by_year)
    assert lading.sql("select count(extra) n, count(*) rows from ds where year = 2021", ds=ds)[0] == {
        "n": 0,
        "rows": 10,
    }
    frame = ds.to_polars(lazy=True).filter(pl.col("year") == 2021)
    assert frame.select("extra").collect()["extra"].to_list() == [None] * 10


def test_steps_that_count_samples_come_first(by_year: Path) -> None:
    ds = lading.open(by_year).limit(12)
    assert lading.sql("select count(*) n from ds where year = 2021", ds=ds)[0]["n"] == 2
    assert ds.to_polars(lazy=True).filter(pl.col("year") == 2021).collect().height == 2


_VALUES = {
    "n": st.integers(-3, 3),
    "x": st.sampled_from([float("nan"), -0.0, 0.0, 1.5, float("inf")]),
    "s": st.sampled_from(["", "a", "ä", "b" * 100, "\U0001f389"]),
    "d": st.dates(date(1969, 12, 30), date(1970, 1, 3)),
    "b": st.booleans(),
}
_ROW = st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, values in _VALUES.items()})
_TYPES = {"n": pa.int64(), "x": pa.float64(), "s": pa.string(), "d": pa.date32(), "b": pa.bool_()}
_SIGNS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@st.composite
def _condition(draw: st.DrawFn) -> tuple[str, pl.Expr]:
    """A condition in SQL and for polars. They differ for NaN, so each is compared with its own program."""
    name = draw(st.sampled_from([*_VALUES]))
    column = pl.col(name)
    values = draw(_VALUES[name]), draw(_VALUES[name])
    kind = draw(st.sampled_from([*_SIGNS, "in", "between", "is null", "is not null"]))
    if kind == "in":
        return f"{name} in ({_sql(values[0])}, {_sql(values[1])})", column.is_in(values)
    if kind == "between":
        return f"{name} between {_sql(values[0])} and {_sql(values[1])}", column.is_between(*map(pl.lit, values))
    if kind in _SIGNS:
        return f"{name} {kind} {_sql(values[0])}", _SIGNS[kind](column, pl.lit(values[0]))
    return f"{name} {kind}", column.is_null() if kind == "is null" else column.is_not_null()


def _sql(value: Any) -> str:
    if isinstance(value, float):
        return f"'{value}'::double"
    return f"date '{value}'" if isinstance(value, date) else repr(value)


@pytest.mark.soak
@given(st.lists(_ROW, max_size=20), st.lists(_condition(), min_size=1, max_size=3), st.integers(1, 4), st.booleans())
def test_no_row_is_lost(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], conditions: list[Any], size: int, negated: bool
) -> None:
    inner = pa.schema(_TYPES)
    table = pa.Table.from_pylist(rows, inner)
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(table, path, row_group_size=size)
    ds, sign = lading.open(path), "not " if negated else ""
    query = f"select * from ds where {sign}({' and '.join(text for text, _ in conditions)})"
    with duckdb.connect() as connection:
        connection.register("ds", table)
        expected = connection.sql(query).to_arrow_table().to_pylist()
    assert str(lading.sql(query, ds=ds).to_arrow().to_pylist()) == str(expected), query
    test = reduce(operator.and_, [each for _, each in conditions])
    test = ~test if negated else test
    wanted = pl.from_arrow(table)
    assert isinstance(wanted, pl.DataFrame)
    assert str(ds.to_polars(lazy=True).filter(test).collect().rows()) == str(wanted.filter(test).rows()), str(test)
