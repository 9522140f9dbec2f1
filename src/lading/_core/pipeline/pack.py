"""Rows as the format stores them: with keys, packed to one row a sample, or encoded to bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.hashing import hash_strings
from lading._core.arrow.views import is_text
from lading._core.features.items import KEY
from lading._core.formats.base import ShardWriter
from lading._core.interleaved.open import packer
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.shard_kind import ShardKind

__all__ = ["KeyNumbers", "Packed", "equal_keys_apart", "pack"]

_KEY_DIGITS = 9


@dataclass(slots=True)
class KeyNumbers:
    """Gives keys to rows without one: the number of each row.

    Attributes:
        next_row: number of the next row.
        prefix: text before these numbers.
    """

    next_row: int = 0
    prefix: str = ""

    def keyed(self, batch: Batch) -> Batch:
        """Return the batch with a key for each row."""
        numbers = pa.array(np.arange(self.next_row, self.next_row + batch.num_rows)).cast(pa.string())
        self.next_row += batch.num_rows
        keys = pc.binary_join_element_wise(self.prefix, pc.utf8_lpad(numbers, _KEY_DIGITS, "0"), "")
        schema = batch.schema.insert(0, pa.field(KEY, pa.string()))
        return batch.with_rows(pa.RecordBatch.from_arrays([keys, *batch.rows.columns], schema=schema))


def equal_keys_apart(batch: Batch) -> Iterator[Batch]:
    """Give the rows in parts in which no neighbours have one key: readers of tars would join them to one sample."""
    names = batch.schema.names
    keys = batch.rows.column(KEY) if KEY in names else pa.nulls(0)
    keys = keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys
    if not is_text(keys.type):
        yield batch
        return
    same = pc.fill_null(pc.equal(keys[1:], keys[:-1]), fill_value=False)
    bounds = [0, *(np.flatnonzero(same.to_numpy(zero_copy_only=False)) + 1).tolist(), batch.num_rows]
    for first, stop in pairwise(bounds):
        yield batch.slice(first, stop)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows as a format stores them.

    Attributes:
        batch: the rows.
        bounds: rows of the samples: those of sample i are `bounds[i]:bounds[i + 1]`.
        size_at: payload before each row, and of all of them.
        ids: hashes of the samples' ids, where a file has each id once; else None.
        named: the rows before packing, for errors.
    """

    batch: Batch
    bounds: NDArray[np.int64]
    size_at: NDArray[np.int64]
    ids: NDArray[np.uint64] | None
    named: Batch

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self.bounds) - 1


def pack(batch: Batch, kind: ShardKind, writer: ShardWriter, first_row: int) -> Packed:
    """Return rows as the format stores them.

    Args:
        batch: the rows, without references.
        kind: of the shards.
        writer: of the open shard.
        first_row: number of the first row, for errors of values that the format cannot hold.
    """
    packing = packer(kind.format, kind.view, batch.schema)
    stored, bounds = batch, np.append(batch.starts, batch.num_rows)
    if packing is not None:
        rows, ranges = packing[0](batch.rows, batch.ranges)
        stored, bounds = Batch(rows, "samples", ranges), np.arange(rows.num_rows + 1)
    if writer.encodes:
        stored = Batch(writer.encode(stored.rows, first_row), "samples", stored.ranges)
    ids = None
    if packing is None and kind.row_layout.may_refer(kind.format.info):
        ids = hash_strings(kind.row_layout.keys(batch.rows, batch.starts))
    size_at = np.concatenate([[0], np.cumsum(stored.row_bytes)])
    return Packed(stored, bounds, size_at, ids, batch)
