"""Make batches larger or smaller without copying payload: work that is done once a batch costs less then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.batches import with_columns
from lading.arrow.references import is_ref
from lading.arrow.views import row_bytes, share, total_bytes
from lading.features.items import split_rows

__all__ = ["HELD_BATCHES", "joined", "rebatched", "split_samples"]

HELD_BATCHES = 4
"""Batches that may be in memory at once on their way: one read, one waiting for it, one written, and what is split."""
_SMALL_ROW_BYTES = 32 << 10
_ENOUGH_BYTES, _LARGE_BYTES = 32 << 20, 4 << 20


def rebatched(
    batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int, most_referred: int
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of some 32 MiB, payload in memory as views; those of references as large as they may be.

    Never more than `max_rows` together, or `max_bytes`; of references to large values `most_referred`. What goes with
    small ones (headers, names, copies, since views would hold what lies between) takes as much memory as they do.

    Other columns are copied; readers give a few MiB at a time, and the work of a batch (some 100 calls of 10 µs) then
    costs as much as to move its bytes.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = total_bytes(batch)
        if more >= _LARGE_BYTES and any(pa.types.is_nested(field.type) for field in batch.schema):
            # What stands in lists can be no view: it would be copied.
            if waiting:
                yield joined(waiting)
                waiting, rows, size = [], 0, 0
            yield batch
            continue
        held = _binary_columns(batch)
        shared = with_columns(batch, {i: share(batch.column(i)) for i in held}) if held else batch
        # References hold nothing in memory, and mean something with the files of their own batch only.
        refers = any(is_ref(kind) for kind in shared.schema.types)
        enough = max_bytes if refers else min(max_bytes, _ENOUGH_BYTES)
        if refers and more >= _SMALL_ROW_BYTES * batch.num_rows:
            enough = most_referred
        full = rows + batch.num_rows > max_rows or size + more > enough
        if waiting and (full or not shared.schema.equals(waiting[0].schema, check_metadata=refers)):
            yield joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(shared)
        rows, size = rows + batch.num_rows, size + more
    if waiting:
        yield waiting[0] if len(waiting) == 1 else joined(waiting)


def _binary_columns(batch: pa.RecordBatch) -> list[int]:
    kinds = enumerate(batch.schema.types)
    return [i for i, kind in kinds if pa.types.is_binary(kind) or pa.types.is_large_binary(kind)]


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several of one schema; their payload is shared where it comes as views."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def split_samples(
    batch: pa.RecordBatch, starts: NDArray[np.int64], max_rows: int, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that keep the limits and cut no sample; `starts` are the first rows of samples."""
    if len(starts) and batch.num_rows <= max_rows and total_bytes(batch) <= max_bytes:
        yield batch
        return
    bounds = split_rows(starts, row_bytes(batch), max_rows=max_rows, max_bytes=max_bytes)
    for start, stop in pairwise(bounds.tolist()):
        yield batch.slice(start, stop - start)
