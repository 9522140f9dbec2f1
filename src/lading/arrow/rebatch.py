"""Batches made larger or smaller without copying payload: what is done once a batch shall not be done too often."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.align import align_table, union_schema
from lading.arrow.batches import with_columns
from lading.arrow.references import concat, is_ref
from lading.arrow.views import row_bytes, share, total_bytes
from lading.features.items import LINEAGE_KEY, duplicate_id_bounds, lineage_of, split_rows
from lading.features.types import Json, feature_of

__all__ = ["HELD_BATCHES", "across_shards", "joined", "rebatched", "split_duplicate_ids", "split_samples"]

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
        shared = _shared(batch)
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
        yield joined(waiting)


def _shared(batch: pa.RecordBatch) -> pa.RecordBatch:
    kinds = enumerate(batch.schema.types)
    held = [i for i, kind in kinds if pa.types.is_binary(kind) or pa.types.is_large_binary(kind)]
    return with_columns(batch, {i: share(batch.column(i)) for i in held})


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of several of one schema; their payload is shared where it comes as views."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def across_shards(
    batches: Iterable[pa.RecordBatch],
    max_rows: int,
    max_bytes: int,
    max_shards: int | None,
    only: Callable[[pa.RecordBatch], bool] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that rows of several shards may share; the lineage of each names all of them.

    Rows of two shards stay apart where one has payload in memory and the other references, where a column has another
    type, and where the last sample of one has the id of the next one's first: they would become one sample.

    Args:
        batches: of one shard each, as its lineage says.
        max_rows: most rows of a batch.
        max_bytes: most payload of a batch.
        max_shards: most shards of a batch; None for any number.
        only: if it is given, only batches of the same columns for which it holds share one; others are given before the
            next is asked for.
    """
    waiting: list[pa.RecordBatch] = []
    files: list[str] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        alone = only is not None and not only(batch)
        more = total_bytes(batch)
        [file] = lineage_of(batch.schema)
        shards = len({*files, file})
        full = rows + batch.num_rows > max_rows or size + more > max_bytes or shards > (max_shards or shards)
        if waiting and (alone or full or not _may_share(waiting, batch, alike=only is not None)):
            yield _shared_by(waiting, files)
            waiting, files, rows, size = [], [], 0, 0
        if alone:
            yield batch
            del batch  # before as much is read again
            continue
        waiting.append(batch)
        files += [] if file in files else [file]
        rows, size = rows + batch.num_rows, size + more
    if waiting:
        yield _shared_by(waiting, files)


def _may_share(waiting: list[pa.RecordBatch], batch: pa.RecordBatch, *, alike: bool) -> bool:
    """Whether a batch fits to those that wait, and, with `alike`, has the same columns."""
    last = waiting[-1]
    if alike:
        fit = (batch.schema.names, batch.schema.types) == (last.schema.names, last.schema.types)
    else:
        fit = all(_same_kind(one.schema, batch.schema) for one in waiting)
    if not fit or "sample_id" not in batch.schema.names or "sample_id" not in last.schema.names:
        return fit
    return bool(last.column("sample_id")[-1].as_py() != batch.column("sample_id")[0].as_py())


def _same_kind(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether columns of one name have one type, both as JSON or neither, or one of the two has no values."""
    there = {*other.names}
    pairs = [(field, other.field(field.name)) for field in one if field.name in there]
    return all(
        (a.type == b.type and _is_json(a) == _is_json(b)) or pa.types.is_null(a.type) or pa.types.is_null(b.type)
        for a, b in pairs
    )


def _is_json(field: pa.Field) -> bool:
    return isinstance(feature_of(field), Json)


def _shared_by(batches: list[pa.RecordBatch], files: list[str]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    schema, _ = union_schema((lineage_of(batch.schema)[0], batch.schema) for batch in batches)
    whole = concat([align_table(batch, schema) for batch in batches]).combine_chunks()
    [batch] = whole.to_batches() or [pa.record_batch([c.combine_chunks() for c in whole.columns], whole.schema)]
    return batch.replace_schema_metadata({**(batch.schema.metadata or {}), LINEAGE_KEY: orjson.dumps(files)})


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


def split_duplicate_ids(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The same items in batches that hold no two samples of one id: if what stands between such goes, they are one."""
    for start, stop in pairwise(duplicate_id_bounds(batch.column("sample_id"))):
        yield batch.slice(start, stop - start)
