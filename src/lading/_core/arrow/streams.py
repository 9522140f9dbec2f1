"""Tables of other libraries, as streams of record batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Protocol, TypeGuard

import pyarrow as pa

from lading.errors import UsageError

__all__ = ["ArrowStream", "is_hugging_face", "is_table", "kind_of", "stream_of"]

_BATCH_ROWS = 1000


class ArrowStream(Protocol):
    """A table by Arrow's PyCapsule interface: of pyarrow, pandas, polars, DuckDB and many others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with the rows as a stream of record batches."""


def is_table(rows: object) -> TypeGuard[ArrowStream]:
    """Whether `stream_of` takes the rows: they have Arrow's interface, or are of Hugging Face's datasets."""
    return hasattr(rows, "__arrow_c_stream__") or is_hugging_face(rows)


def stream_of(rows: ArrowStream | Mapping[str, Any]) -> pa.RecordBatchReader:
    """Return rows as a stream of record batches: of a table, a `datasets.Dataset`, or a dict of columns.

    Raises:
        UsageError: values that Arrow does not hold, or an array in place of a table.
    """
    if is_hugging_face(rows):
        return _stream_of_hugging_face(rows)
    try:
        return pa.RecordBatchReader.from_stream(pa.table(rows) if isinstance(rows, Mapping) else rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError("these rows make no Arrow table", file=kind_of(rows), found="; ".join(map(str, error.args)),
                         advice="Give columns of different names, with values of one type.") from error  # fmt: skip


def kind_of(rows: object) -> str:
    """Return what rows are, for people: `pandas.DataFrame`."""
    kind = type(rows)
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}".removeprefix("builtins.")


def is_hugging_face(rows: object) -> bool:
    """Whether rows are those of a `datasets.Dataset` or `IterableDataset`."""
    library = sys.modules.get("datasets")  # whoever has such an object has imported it
    return library is not None and isinstance(rows, (library.Dataset, library.IterableDataset))


def _stream_of_hugging_face(dataset: Any) -> pa.RecordBatchReader:
    """The rows with their features; media are bytes as they are stored."""
    tables: Iterator[pa.Table] = dataset.with_format("arrow").iter(_BATCH_ROWS)
    if dataset.features is None:  # of a stream, whose first rows say it
        first = next(tables, None)
        if first is None:
            raise UsageError("the dataset has neither rows nor features", file=kind_of(dataset))
        schema, tables = first.schema, chain([first], tables)
    else:
        schema = dataset.features.arrow_schema
    batches = (batch for table in tables for batch in table.cast(schema).to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)
