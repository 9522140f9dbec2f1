"""Values of fields, one a sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref
from lading._core.arrow.views import present
from lading._core.dataset.values.field_values import field_values
from lading._core.features.items import sample_firsts
from lading._core.storage.fetch import Fetcher

__all__ = ["first_values", "sample_values"]


def sample_values(batch: pa.RecordBatch, names: Sequence[str], view: str, fetcher: Fetcher) -> list[pa.Array]:
    """Return the values of fields, one a sample; of a document the first one of its items that is not null.

    Payload is read for columns of it, and for nothing else. Raises as `field_values`.
    """
    columns = field_values(batch, names, fetcher)
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        if is_ref(column.type):
            columns[i] = fetcher.materialise(batch.select([name])).column(0)
    if view == "samples":
        return columns
    starts = sample_firsts(batch, view)
    return [column.take(pa.array(first_values(column, starts))) for column in columns]


def first_values(column: pa.Array, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of each document that has its first value; its first row if it has none."""
    rows = np.where(present(column), np.arange(len(column)), len(column))
    firsts: NDArray[np.int64] = np.minimum.reduceat(rows, starts) if len(starts) else starts
    ends = np.append(starts[1:], len(column))
    return np.where(firsts < ends, firsts, starts)
