"""Datasets as lazy frames of polars: the columns, rows and number of rows that a query needs are all that is read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.tables.table import RowTest, Table
from lading.errors import missing_extra

if TYPE_CHECKING:
    import polars as pl

__all__ = ["polars_module", "scan_with_polars"]


def polars_module() -> Any:
    """Return the module `polars`. Raises MissingExtra."""
    try:
        import polars as pl
    except ImportError as error:
        raise missing_extra(error, "frames of polars are made with polars", "polars",
                            "pip install 'lading[polars]'.") from None  # fmt: skip
    return pl


def scan_with_polars(table: Table) -> pl.LazyFrame:
    """Return a lazy frame over a table. Each `collect` reads the data anew, and only what the query needs.

    Raises:
        MissingExtra: polars is not installed.
    """
    polars = polars_module()
    from polars.io.plugins import register_io_source

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        test = None
        if predicate is not None:
            names = tuple(predicate.meta.root_names())
            if names:
                test = RowTest(names, _Keeps(predicate), _expression(predicate, table.schema_of(names)))
            elif not polars.select(predicate).item():
                return
        for batch in table.reader(columns, test, rows):
            frame = polars.from_arrow(batch)
            yield frame if columns or columns is None else frame.select([])

    schema = polars.from_arrow(table.schema.empty_table()).schema
    return register_io_source(source, schema=schema)


_SIGNS: tuple[Callable[[Any, Any], Any], ...] = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge
)  # fmt: skip


def _expression(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Return an expression of pyarrow that is true where a predicate is, and perhaps elsewhere; None if none is known.

    Polars shows the parts of an expression, and not what joins them: each known way to join them is tried.
    """
    conjuncts, known = [predicate], list[pc.Expression]()
    for each in conjuncts:
        parts = each.meta.pop()[::-1]
        if len(parts) == 2 and (parts[0] & parts[1]).meta.eq(each):  # noqa: PLR2004 - a pair
            conjuncts += parts
        elif parts and (value := _value(parts[0], schema)) is not None:
            column, kind = value
            found = _checked(each, parts, column, kind)
            known += [] if found is None else [found]
    return reduce(operator.and_, known) if known else None


def _value(part: pl.Expr, schema: pa.Schema) -> tuple[pc.Expression, pa.DataType] | None:
    """Return the column, or the field of structs, that a part of an expression is, with its type; None for others."""
    names = part.meta.root_names()
    if len(names) != 1:
        return None
    field = schema.field(names[0])
    pending: list[tuple[pl.Expr, tuple[str, ...], pa.DataType]] = [
        (polars_module().col(field.name), (field.name,), field.type)
    ]
    for expression, path, kind in pending:
        if expression.meta.eq(part):
            return pc.field(*path), kind
        if pa.types.is_struct(kind):
            pending += [(expression.struct.field(each.name), (*path, each.name), each.type) for each in kind]
    return None


def _checked(each: pl.Expr, parts: Sequence[pl.Expr], column: pc.Expression, kind: pa.DataType) -> pc.Expression | None:
    """Return the expression for a comparison of a column with literals, or for a check of nulls; None for others."""
    own, *others = parts
    if not others:
        if own.is_null().meta.eq(each):
            return column.is_null()
        return column.is_valid() if own.is_not_null().meta.eq(each) else None
    found = [_literals(other, kind) for other in others]
    if len(others) == 1 and found[0] and own.is_in(others[0]).meta.eq(each):
        return column.isin(pa.array(found[0], kind))
    literals = [pa.scalar(value, kind) for values in found for value in values or ()]
    if len(literals) != len(others):
        return None
    if len(literals) == 2 and own.is_between(others[0], others[1]).meta.eq(each):  # noqa: PLR2004 - a pair
        return (column >= literals[0]) & (column <= literals[1])
    return next((sign(column, literals[0]) for sign in _SIGNS if sign(own, others[0]).meta.eq(each)), None)


def _literals(part: pl.Expr, kind: pa.DataType) -> list[object] | None:
    """Return the values of a literal, or of a list; None where polars may compare a column of this type otherwise.

    Polars takes NaN for the greatest number, and may order categories by their place.
    """
    python = next((python for holds, python in _COMPARED_ALIKE if holds(kind)), None)
    if python is None or not part.meta.is_literal():
        return None
    series = polars_module().select(part).to_series()
    values: list[object] = (series.explode() if series.dtype == polars_module().List else series).to_list()
    try:
        pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    return values if all(type(value) is python for value in values) else None


_COMPARED_ALIKE: tuple[tuple[Callable[[pa.DataType], bool], type], ...] = (
    (pa.types.is_integer, int),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_date32, date),
)
"""Types that polars and pyarrow compare in the same way, with the type of a value in Python."""


class _Keeps:
    """Which rows a predicate of polars keeps."""

    def __init__(self, predicate: pl.Expr) -> None:
        self._predicate = predicate

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        kept = polars_module().from_arrow(batch).select(keep=self._predicate)["keep"]
        return np.asarray(kept.fill_null(value=False).to_numpy(), np.bool_)
