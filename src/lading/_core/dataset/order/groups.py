"""Which groups of samples are in a split: by a hash of the values that the samples of a group share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.content.canonical import FORM, column_forms, hash_forms, joined, struct_forms
from lading._core.dataset.values.sample_values import sample_values
from lading._core.features.natural import whole_numbers
from lading._core.features.row_layout import row_layout
from lading._core.features.types import feature_of
from lading._core.storage.fetch import Fetcher

__all__ = ["group_places", "value_hashes"]

_FRACTION_BITS = 53
_EXACT = 2.0**53
_HUGE = r"\A-?[1-9][0-9]{18,}\z"
"""Texts of integers beyond int64, among the texts of more than 18 digits."""


def group_places(
    batch: pa.RecordBatch, by: Sequence[str], seed: int, view: str, fetcher: Fetcher
) -> NDArray[np.float64]:
    """Return where the group of each sample lies among all groups, from 0 to below 1.

    A text goes with the integer whose shortest decimal form it is: `"7"` goes with 7, `"07"` is a group of its own.

    A sample without a value in any of the fields is a group of its own, by its key. In data without keys, all such
    samples are one group.
    """
    key = row_layout(view).key
    keyed = [key] if key in batch.schema.names else []
    values = sample_values(batch, [*by, *keyed], view, fetcher)
    groups, own = values[: len(by)], values[len(by) :]
    hashes = _group_hashes(groups, seed).copy()
    missing = np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in groups])
    if own and missing.any():
        hashes[missing] = _group_hashes([*groups, *own], seed)[missing]
    first = hashes[:, :8].copy().view(">u8")[:, 0]
    return (first >> np.uint64(64 - _FRACTION_BITS)).astype(np.float64) / (1 << _FRACTION_BITS)


def value_hashes(columns: list[pa.Array]) -> NDArray[np.uint8]:
    """Return a hash of each row of values, `(rows, 16)`: xxh3-128 over their canonical form; nulls are left out.

    Equal values have equal hashes in every batch and format: the number 1 is that of 1.0, text that of its bytes.
    """
    return hash_forms(_rows([_forms(column) for column in columns]))


def _group_hashes(columns: list[pa.Array], seed: int) -> NDArray[np.uint8]:
    rows = _rows([_with_texts_as_integers(_forms(column)) for column in columns])
    return hash_forms(joined(pa.scalar(f"{seed} ".encode(), FORM), rows))


def _rows(columns: list[pa.Array]) -> pa.Array:
    return struct_forms({str(i): forms for i, forms in enumerate(columns)}, len(columns[0]))


def _with_texts_as_integers(forms: pa.Array) -> pa.Array:
    """Return forms where texts of integers have the forms of these integers."""
    is_short = pc.fill_null(pc.starts_with(forms, b"s"), fill_value=False)
    if not pc.any(is_short).as_py():
        return forms
    texts = pc.if_else(is_short, forms, pa.scalar(None, FORM))
    texts = pc.binary_replace_slice(texts, 0, 2, b"")  # without tag and length; binary_slice of pyarrow 26 fails
    numbers = whole_numbers(texts)
    huge = pc.and_(numbers.is_null(), pc.match_substring_regex(texts, _HUGE))
    if pc.any(huge).as_py():
        forms = pc.if_else(pc.fill_null(huge, fill_value=False), joined(pa.scalar(b"I", FORM), forms), forms)
    return pc.coalesce(column_forms(numbers, feature_of(pa.field("", numbers.type))), forms)


def _forms(column: pa.Array) -> pa.Array:
    forms = column_forms(column, feature_of(pa.field("", column.type)))
    if not pa.types.is_floating(column.type):
        return forms
    # JSON numbers are of one type in each batch: integers, or floats where one number has a fraction.
    numbers = column.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), _EXACT))
    integers = pc.if_else(whole, numbers, None).cast(pa.int64())
    return pc.if_else(whole.fill_null(False), column_forms(integers, feature_of(pa.field("", pa.int64()))), forms)  # noqa: FBT003 - pyarrow takes it by position only
