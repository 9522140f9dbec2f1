"""Which groups of samples are in a split: by a hash of the values that the samples of a group share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.content.canonical import FORM, column_forms, hash_forms, joined, struct_forms
from lading.dataset.steps.key_steps import SplitByGroup
from lading.dataset.values.sample_values import sample_values
from lading.features.items import KEY
from lading.features.types import feature_of
from lading.storage.fetch import Fetcher

__all__ = ["in_split", "value_hashes"]

_FRACTION_BITS = 53
_EXACT = 2.0**53


def in_split(step: SplitByGroup, batch: pa.RecordBatch, view: str, fetcher: Fetcher) -> NDArray[np.bool_]:
    """Return which samples of a batch are in the split.

    A sample without a value in any of the fields is a group of its own, by its key. In data without keys, all such
    samples are one group.
    """
    key = "sample_id" if view == "interleaved" else KEY
    keyed = [key] if key in batch.schema.names else []
    values = sample_values(batch, [*step.by, *keyed], view, fetcher)
    groups, own = values[: len(step.by)], values[len(step.by) :]
    hashes = value_hashes(groups, step.seed).copy()
    missing = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in groups])
    if own and missing.any():
        hashes[missing] = value_hashes([*groups, *own], step.seed)[missing]
    first = hashes[:, :8].copy().view(">u8")[:, 0]
    place = (first >> np.uint64(64 - _FRACTION_BITS)).astype(np.float64) / (1 << _FRACTION_BITS)
    low, high = step.bounds
    return (low <= place) & (place < high)


def value_hashes(columns: list[pa.Array], seed: int | None = None) -> NDArray[np.uint8]:
    """Return a hash of each row of values, `(rows, 16)`: xxh3-128 over their canonical form; nulls are left out.

    Equal values have equal hashes in every batch and format: the number 1 is that of 1.0, text that of its bytes.
    """
    count = len(columns[0])
    forms = {str(i): _forms(column) for i, column in enumerate(columns)}
    structs = struct_forms(forms, count)
    return hash_forms(structs if seed is None else joined(pa.scalar(f"{seed} ".encode(), FORM), structs))


def _forms(column: pa.Array) -> pa.Array:
    forms = column_forms(column, feature_of(pa.field("", column.type)))
    if not pa.types.is_floating(column.type):
        return forms
    # JSON numbers are of one type in each batch: integers, or floats where one number has a fraction.
    numbers = column.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), _EXACT))
    integers = pc.if_else(whole, numbers, None).cast(pa.int64())
    return pc.if_else(whole.fill_null(False), column_forms(integers, feature_of(pa.field("", pa.int64()))), forms)  # noqa: FBT003 - pyarrow takes it by position only
