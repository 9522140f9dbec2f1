"""Rows of a source → rows of a destination: what one process of a conversion does with its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.align import align_table
from lading.dataset import Dataset
from lading.interleaved import sample_firsts
from lading.jobs.digest import batch_digests
from lading.jobs.spec import Conversion
from lading.views import row_bytes

__all__ = ["Tally", "copy_rows", "read_rows"]

_MAX_ROWS = 65_536


@dataclass(slots=True)
class Tally:
    """What went by so far.

    Attributes:
        shards: source shards that are done.
        samples: samples.
        rows: rows; items, for interleaved data.
        payload_bytes: bytes of values.
    """

    shards: int = 0
    samples: int = 0
    rows: int = 0
    payload_bytes: int = 0

    def as_list(self) -> list[int]:
        """The numbers, as the constructor takes them."""
        return [self.shards, self.samples, self.rows, self.payload_bytes]

    def add(self, other: Tally) -> None:
        """Add what another process counted."""
        self.shards += other.shards
        self.samples += other.samples
        self.rows += other.rows
        self.payload_bytes += other.payload_bytes


class _Writer(Protocol):
    """What takes rows: a `DatasetWriter`, or a `PartWriter`."""

    def write_batch(self, rows: pa.RecordBatch) -> Any: ...

    def held_bytes(self) -> int: ...


def read_rows(
    dataset: Dataset,
    how: Conversion,
    shards: range,
    tally: Tally,
    *,
    limit: int | None = None,
    tell: Callable[[], None] = lambda: None,
) -> Iterator[pa.RecordBatch]:
    """The rows of some shards as a conversion wants them, payload as references or views; whole samples a batch.

    Args:
        dataset: the source.
        how: what is wanted of it.
        shards: which shards, by number.
        tally: where what goes by is added.
        limit: samples in the tally, at most.
        tell: called after every batch and every shard.
    """
    columns = None if how.columns is None else [*how.columns, "__key__"]
    if how.schema is not None:
        columns = how.schema.names
    for number in shards:
        if limit is not None and tally.samples >= limit:
            return
        for batch in dataset.shard_batches(number, _MAX_ROWS, how.max_batch_bytes, columns, how.schema, views=True):
            fitted = batch if how.schema is None else align_table(batch, how.schema)
            yield _counted(fitted, how.view, tally, limit)
            tell()
            if limit is not None and tally.samples >= limit:
                break
        tally.shards += 1
        tell()


def _counted(batch: pa.RecordBatch, view: str, tally: Tally, limit: int | None) -> pa.RecordBatch:
    starts = sample_firsts(batch, view)
    if limit is not None and tally.samples + len(starts) > limit:
        batch = batch.slice(0, int(starts[limit - tally.samples]))
        starts = starts[: limit - tally.samples]
    tally.samples += len(starts)
    tally.rows += batch.num_rows
    tally.payload_bytes += int(row_bytes(batch).sum())
    return batch


def copy_rows(
    dataset: Dataset,
    rows: Iterator[pa.RecordBatch],
    writer: _Writer,
    on_digests: Callable[[NDArray[np.uint8]], None] | None,
) -> None:
    """Write rows with their bytes.

    Args:
        dataset: where the rows come from.
        rows: as `read_rows` gives them.
        writer: what takes them.
        on_digests: called with the content digests of each batch, `(samples, 16)`; None takes none.
    """
    for batch in rows:
        done = dataset.materialise(batch, views=True)
        if on_digests is not None:
            on_digests(batch_digests(done, dataset.view))
        writer.write_batch(done)
        dataset.release(writer.held_bytes())
