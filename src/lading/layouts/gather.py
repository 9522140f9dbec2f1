"""Batches made larger or smaller without copying payload: what is done once a batch shall not be done too often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.interleaved import split_rows
from lading.ref import is_ref
from lading.views import row_bytes, share

__all__ = ["gathered", "joined", "split_samples"]

_ENOUGH_BYTES = 32 << 20


def gathered(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of some 32 MiB, payload as views; never more than `max_rows` or `max_bytes` together.

    A batch with references passes as it is. Other columns are copied; readers give a few MiB at a time, and the work
    of a batch (some 100 calls of 10 µs) then costs as much as to move its bytes.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if any(is_ref(field.type) for field in batch.schema):
            yield batch  # its payload is not in memory, and the reader has kept to the limits already
            continue
        shared, more = _shared(batch), int(row_bytes(batch).sum())
        full = rows + batch.num_rows > max_rows or size + more > min(max_bytes, _ENOUGH_BYTES)
        if waiting and (full or shared.schema != waiting[0].schema):
            yield joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(shared)
        rows, size = rows + batch.num_rows, size + more
    if waiting:
        yield joined(waiting)


def _shared(batch: pa.RecordBatch) -> pa.RecordBatch:
    for i, field in enumerate(batch.schema):
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            column = share(batch.column(i))
            batch = batch.set_column(i, field.with_type(column.type), column)
    return batch


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several of one schema; their payload is shared where it comes as views."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def split_samples(
    batch: pa.RecordBatch, starts: NDArray[np.int64], max_rows: int, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that keep the limits and cut no sample; `starts` are the first rows of samples."""
    bounds = split_rows(starts, row_bytes(batch), max_rows=max_rows, max_bytes=max_bytes)
    for start, stop in pairwise(bounds.tolist()):
        yield batch.slice(start, stop - start)
