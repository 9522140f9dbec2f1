"""Leave out shards whose partition a condition rejects, so that nobody opens them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.formats.hive_partitions import values_of

__all__ = ["shards_that_fit"]


def shards_that_fit(shards: Shards, steps: Sequence[Step]) -> Shards:
    """Return the shards without those whose partition fits no row of the steps; the same ones if all may fit.

    One shard stays in any case: it tells the columns.
    """
    partitions = shards.listing.table.column("partition")
    if partitions.null_count == len(partitions):
        return shards
    conditions = []
    for step in steps:
        if step.over_numbers or not step.keeps_names:  # conditions behind it speak of other columns, or of fewer rows
            break
        if step.row_condition is not None:
            conditions.append(step.row_condition)
    coded = partitions.combine_chunks().dictionary_encode()
    fits = [
        not any(each.rejects(values_of(text, stated=True)) for each in conditions)
        for text in coded.dictionary.to_pylist()
    ]
    kept = pa.array(fits, pa.bool_()).take(coded.indices)
    if kept.true_count == len(kept):
        return shards
    table = shards.listing.table.filter(kept) if kept.true_count else shards.listing.table.slice(0, 1)
    return shards.with_listing(table, {"shards of other partitions, left out": len(partitions) - len(table)})
