"""Datasets as lazy frames of polars: the columns, rows and number of rows that a query needs are all that is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
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
        test = None if predicate is None else RowTest(tuple(predicate.meta.root_names()), _Keeps(predicate))
        if test is not None and not test.columns:  # a constant
            if not polars.select(predicate).item():
                return
            test = None
        for batch in table.reader(columns, test, rows):
            frame = polars.from_arrow(batch)
            yield frame if columns or columns is None else frame.select([])

    schema = polars.from_arrow(table.schema.empty_table()).schema
    return register_io_source(source, schema=schema)


class _Keeps:
    """Which rows a predicate of polars keeps."""

    def __init__(self, predicate: pl.Expr) -> None:
        self._predicate = predicate

    def __call__(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        kept = polars_module().from_arrow(batch).select(keep=self._predicate)["keep"]
        return np.asarray(kept.fill_null(value=False).to_numpy(), np.bool_)
