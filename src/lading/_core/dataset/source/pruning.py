"""Leave out shards whose partition a condition rejects, and row groups whose statistics a predicate rejects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lading._core.arrow.predicates import Predicate
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.formats.hive_partitions import values_of

__all__ = ["shards_that_fit", "shards_that_pass"]


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


def shards_that_pass(shards: Shards, steps: Sequence[Step], predicate: Predicate) -> Shards:
    """Return the shards without those whose partition cannot pass a predicate; the others may leave out rows that fail.

    They are the same ones where a row that is left out would change other rows, or an error.

    Args:
        shards: the shards.
        steps: their steps.
        predicate: what rows must pass behind the steps. It is evaluated on the rows that are left.
    """
    stores_types = shards.fixed_schema and shards.fmt.info.types == "stored"
    is_plain = all(step.keeps_samples and step.keeps_names and not step.over_numbers for step in steps)
    partitions = shards.listing.table.column("partition")
    is_parted = partitions.null_count < len(partitions)
    is_own = [*shards.sources()] == [shards] and shards.bad.policy == "error" and not shards.has_items
    if not (is_own and is_plain and (stores_types or is_parted)):
        return shards
    coded = partitions.combine_chunks().dictionary_encode()
    known = [_known(values_of(text, stated=True), predicate.schema) for text in coded.dictionary.to_pylist()]
    fits = np.isin(coded.indices.fill_null(-1).to_numpy(), [-1, *predicate.possible(known)])
    table = shards.listing.table.filter(pa.array(fits)) if fits.any() else shards.listing.table.slice(0, 1)
    place = table.schema.get_field_index("num_samples")
    counts = table.schema.field(place)
    made = shards.with_listing(table.set_column(place, counts, pa.nulls(len(table), counts.type)), {})
    made.predicate = predicate
    return made


def _known(values: pa.RecordBatch, schema: pa.Schema) -> pc.Expression | None:
    """Return what is known of the rows of a partition, over the columns of a schema that have its types."""
    known = []
    for field, column in zip(values.schema, values.columns, strict=True):
        if field.name in schema.names and schema.field(field.name).type == field.type:
            value, ref = column[0], pc.field(field.name)
            known.append(ref == value if value.is_valid else ref.is_null())
    return reduce(and_, known) if known else None
