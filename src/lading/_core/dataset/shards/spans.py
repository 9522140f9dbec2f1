"""Cut a large shard into spans, which tasks read alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lading._core.dataset.shards.shards import Shards
from lading._core.formats.base import Scan, Span
from lading.errors import DataError

__all__ = ["may_be_cut", "refuse_same_ids", "spans_of"]

_MOST = 1 << 14


def may_be_cut(shards: Shards) -> bool:
    """Return whether parts of a shard together give the rows, counts and errors of the whole shard.

    Not where a bad shard is left out as a whole, where samples are gathered from all of a file, where each shard
    reports the fields that it lacks, and where steps of a concatenated dataset come first.
    """
    of_items = shards.has_items
    gathered = shards.row_layout.is_stored_as_members(shards.fmt.info) or (of_items and shards.interleaved.regroup)
    is_one = [*shards.sources()] == [shards]
    return is_one and shards.bad.policy == "error" and not gathered and not (of_items and shards.interleaved.fields)


def spans_of(shards: Shards, shard: int, step_bytes: int) -> list[Span]:
    """Return a shard as spans of about so many bytes, or of one unit if that has more; none if it has no units.

    Reads headers, and the ids of items. The counts that no span reports are added to those of the shards.
    """
    source = shards.source(shard)
    reader = shards.fmt.open(source, source.options_over(shards.read_options))
    try:
        units, counts = reader.units(), reader.counts
    finally:
        reader.close()
    if units is None:
        return []
    step = max(step_bytes, int(units.offset[-1]) // _MOST, 1)
    samples, rows = units.row, units.row
    if shards.has_items:
        samples, rows = shards.open_shard(shard).samples_from(units.row)
    skipped = rows - units.row
    # Where few units begin with a sample, two tasks read those rows of a unit in which a sample of the first one ends.
    begins = np.flatnonzero(skipped == 0 if 2 * np.count_nonzero(skipped) <= len(rows) else np.diff(rows, append=-1))
    _, first = np.unique(units.offset[begins[:-1]] // step, return_index=True)
    bounds = np.append(begins[first], begins[-1]).tolist()
    row, skip, sample, offset = (column.tolist() for column in (rows, skipped, samples, units.offset))
    found = [
        Span(row[a], row[b], skip[a], sample[a], sample[b], offset[a], offset[b], is_last=b == bounds[-1])
        for a, b in pairwise(bounds)
    ]
    if len(found) <= 1:
        return []
    shards.counts.update(counts)
    return found


def refuse_same_ids(shards: Shards, shard: int, sample: int) -> None:
    """Refuse a document that has the id of the one before: no pass over the shard sees both.

    Raises:
        DataError: names both samples.
    """
    if not shards.has_items:
        return
    rows = shards.open_shard(shard).read(np.array([sample - 1, sample]), Scan(["sample_id"]))
    first, last = rows.column("sample_id")[0].as_py(), rows.column("sample_id")[-1].as_py()
    if first == last:
        raise DataError(
            "two neighbouring documents have one id", file=shards.path(shard), sample=first, column="sample_id",
            expected="different ids for neighbours", found=f"the same for samples {sample - 1} and {sample}",
        )  # fmt: skip
