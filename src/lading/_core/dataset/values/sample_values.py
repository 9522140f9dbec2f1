"""Values of fields, one a sample."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lading._core.arrow.references import is_ref
from lading._core.dataset.values.field_values import field_values
from lading._core.features.row_layout import row_layout
from lading._core.storage.fetch import Fetcher

__all__ = ["sample_values"]


def sample_values(batch: pa.RecordBatch, names: Sequence[str], view: str, fetcher: Fetcher) -> list[pa.Array]:
    """Return the values of fields, one a sample; of a document the first one of its items that is not null.

    Payload is read for columns of it, and for nothing else. Raises as `field_values`.
    """
    columns = field_values(batch, names, fetcher)
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        if is_ref(column.type):
            columns[i] = fetcher.materialise(batch.select([name])).column(0)
    return row_layout(view).values(batch, columns)
