"""What pyarrow 23 to 25 lack of pyarrow 26, by other ways. Nothing else in lading asks for what a pyarrow has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lading._core.arrow.views import is_view

__all__ = ["count_rows", "data_bytes", "numpy_type"]

_VIEW_BYTES = 16


def count_rows(file: pa.RecordBatchFileReader) -> int:
    """Return the number of rows of an Arrow file, by the heads of its batches."""
    if hasattr(file, "count_rows"):
        return int(file.count_rows())
    return sum(file.get_batch(number).num_rows for number in range(file.num_record_batches))


def data_bytes(rows: pa.RecordBatch) -> int:
    """Return the bytes of the rows, about as `nbytes` counts them; of nested views, all that they look at."""
    try:
        return int(rows.nbytes)
    except pa.ArrowTypeError:  # of views
        return sum(map(_column_bytes, rows.columns))


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return the numpy type of numbers or bools; `to_pandas_dtype` imports pandas, which may be missing."""
    dtype: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def _column_bytes(column: pa.Array) -> int:
    if is_view(column.type):
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, _VIEW_BYTES // 4)
        return int(views[column.offset : column.offset + len(column), 0].sum()) + _VIEW_BYTES * len(column)
    try:
        return int(column.nbytes)
    except pa.ArrowTypeError:
        return int(column.get_total_buffer_size())
