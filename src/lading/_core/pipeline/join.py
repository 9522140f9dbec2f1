"""Join small batches of several shards: work that is done once a batch costs less then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import orjson
import pyarrow as pa

from lading._core.arrow.align import align_table, union_schema
from lading._core.arrow.references import concat
from lading._core.features.items import LINEAGE_KEY
from lading._core.features.types import feature_of
from lading._core.pipeline.batch import Batch

__all__ = ["join", "split_duplicate_ids"]


def join(
    batches: Iterable[Batch],
    max_rows: int,
    max_bytes: int,
    max_shards: int | None,
    only: Callable[[Batch], bool] | None = None,
) -> Iterator[Batch]:
    """Give the same rows in batches that may hold rows of several shards; the lineage of a batch names all of them.

    Rows of two shards stay apart if one has payload in memory and the other has references, if a column has another
    type, and if the last sample of one has the id of the next one's first sample: readers would join the two.

    Args:
        batches: of one shard each, as their lineage says.
        max_rows: most rows of a batch.
        max_bytes: most payload of a batch.
        max_shards: most shards of a batch; None for any number.
        only: accepts batches that may be joined, if they have the same columns too. Others are given before the next
            batch is asked for. By default all are accepted, with other columns too.
    """
    waiting: list[Batch] = []
    files: list[str] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        # Samples that were taken by number name no file, or several: they come as they are.
        alone = len(batch.files) != 1 or (only is not None and not only(batch))
        file = batch.files[0] if batch.files else ""
        shards = len(files) + (not files or files[-1] != file)
        full = (
            rows + batch.num_rows > max_rows or size + batch.size_bytes > max_bytes or shards > (max_shards or shards)
        )
        if waiting and (alone or full or not _fits(waiting, batch, alike=only is not None)):
            yield _joined(waiting, files)
            waiting, files, rows, size = [], [], 0, 0
        if alone:
            yield batch
            del batch  # before as much is read again
            continue
        waiting.append(batch)
        files += [] if files and files[-1] == file else [file]
        rows, size = rows + batch.num_rows, size + batch.size_bytes
    if waiting:
        yield _joined(waiting, files)


def split_duplicate_ids(batch: Batch) -> list[Batch]:
    """Return the same rows in batches that hold no two documents of one id."""
    bounds = batch.row_layout.distinct_bounds(batch.rows)
    return [batch.slice(first, stop) for first, stop in pairwise(bounds)]


def _fits(waiting: list[Batch], batch: Batch, *, alike: bool) -> bool:
    """Whether a batch may be joined to those that wait; with `alike`, only if it has the same columns."""
    last = waiting[-1]
    if alike:
        one, other = batch.schema, last.schema
        fits = bool(one.equals(other)) or (one.names, one.types) == (other.names, other.types)
    else:
        fits = all(_same_types(one.schema, batch.schema) for one in waiting)
    names = batch.schema.names
    if not fits or "sample_id" not in names or "sample_id" not in last.schema.names:
        return fits
    return bool(last.rows.column("sample_id")[-1].as_py() != batch.rows.column("sample_id")[0].as_py())


def _same_types(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether columns of one name have one type, and are JSON in both or in none; a column of nulls fits to all."""
    there = {*other.names}
    pairs = [(field, other.field(field.name)) for field in one if field.name in there]
    return all(
        (a.type == b.type and _is_json(a) == _is_json(b)) or pa.types.is_null(a.type) or pa.types.is_null(b.type)
        for a, b in pairs
    )


def _is_json(field: pa.Field) -> bool:
    return feature_of(field).is_json


def _joined(batches: Sequence[Batch], files: list[str]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    parts = [batch.rows for batch in batches]
    first = parts[0].schema.remove_metadata()
    if not all(part.schema.remove_metadata().equals(first, check_metadata=True) for part in parts[1:]):
        schema, _ = union_schema((batch.files[0], batch.schema) for batch in batches)
        parts = [align_table(part, schema) for part in parts]
    whole = concat(parts).combine_chunks()
    [rows] = whole.to_batches() or [pa.record_batch([c.combine_chunks() for c in whole.columns], whole.schema)]
    rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), LINEAGE_KEY: orjson.dumps(files)})
    firsts = np.cumsum([0, *(batch.num_rows for batch in batches[:-1])])
    starts = np.concatenate([batch.starts + first for batch, first in zip(batches, firsts, strict=True)])
    made = Batch(rows, batches[0].view)
    size, share = sum(batch.size_bytes for batch in batches), batches[-1].source_share
    return made.knowing(starts=starts, size_bytes=size, source_share=share)
