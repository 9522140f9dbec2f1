"""Functions that worker processes can import."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["no_first_items", "with_length"]


def no_first_items(batch: pa.RecordBatch) -> pa.Array:
    """Return whether each row is not at position 0."""
    return pc.not_equal(batch.column("position"), 0)


def with_length(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the length of each text."""
    length = pc.utf8_length(batch.column("text_content")).cast(pa.int64())
    return batch.append_column("length", length)
