"""Merge or split batches without copying payload, so that the fixed cost of a batch matters less."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.batches import with_columns
from lading._core.arrow.references import is_ref
from lading._core.arrow.views import row_bytes, share, total_bytes
from lading._core.features.items import split_rows

__all__ = ["HELD_BATCHES", "joined", "rebatched", "split_samples"]

HELD_BATCHES = 4
"""Batches that may be in memory at once on their way: one read, one waiting, one written, and the one that is split."""
_SMALL_ROW_BYTES = 32 << 10
_ENOUGH_BYTES, _LARGE_BYTES = 32 << 20, 4 << 20


def rebatched(
    batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int, most_referred: int
) -> Iterator[pa.RecordBatch]:
    """Return the same rows in batches of about 32 MiB, with payload in memory as views.

    Batches of references may be as large as the limits allow: never more than `max_rows` or `max_bytes`, and
    `most_referred` for references to large values. The columns next to small values (headers, names, copies, because
    views would hold the gaps) take as much memory as the values.

    Other columns are copied. Readers give a few MiB at a time; the fixed work of such a batch (some 100 calls of 10 µs)
    costs as much as moving its bytes.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        more = total_bytes(batch)
        if more >= _LARGE_BYTES and any(pa.types.is_nested(field.type) for field in batch.schema):
            # Values inside lists cannot be views: they would be copied.
            if waiting:
                yield joined(waiting)
                waiting, rows, size = [], 0, 0
            yield batch
            continue
        held = _binary_columns(batch)
        shared = with_columns(batch, {i: share(batch.column(i)) for i in held}) if held else batch
        # References hold nothing in memory, and are valid only with the files of their own batch.
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
    """Return one batch of several with one schema; payload that comes as views is shared."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def split_samples(
    batch: pa.RecordBatch, starts: NDArray[np.int64], max_rows: int, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Return the same rows in batches within the limits, without cutting samples.

    Args:
        batch: the rows.
        starts: first rows of samples.
        max_rows: limit of rows.
        max_bytes: limit of bytes.
    """
    if len(starts) and batch.num_rows <= max_rows and total_bytes(batch) <= max_bytes:
        yield batch
        return
    bounds = split_rows(starts, row_bytes(batch), max_rows=max_rows, max_bytes=max_bytes)
    for start, stop in pairwise(bounds.tolist()):
        yield batch.slice(start, stop - start)
