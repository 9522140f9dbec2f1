"""Rows of a source → rows of a destination: what one process of a conversion does with its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.align import align_table
from lading.dataset import Dataset
from lading.errors import UsageError
from lading.interleaved import sample_firsts, without_source
from lading.jobs.digest import batch_digests
from lading.jobs.filters import Hook, Sieve
from lading.jobs.ledger import DROPPED, DROPPED_ALONG, KEPT, Loss, Losses
from lading.jobs.spec import Conversion
from lading.views import row_bytes

__all__ = ["Copier", "Tally", "changed_schema"]

_MAX_ROWS = 16_384
"""Rows of a batch: tiny ones cost some kB each on their way into a tar, and larger batches are hardly faster."""


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


class Copier:
    """Takes the rows of source shards to where they are written, as a conversion says: what one process of it does.

    Rows are read as references, sifted, fetched, and written, a batch at a time.

    Args:
        dataset: the source.
        how: what is wanted of it.
        write_ledger: takes lines of the ledger; None where none is kept.
        on_digests: called with the content digests of each batch, `(samples, 16)`; None takes none.
        tell: called after every batch and every shard.

    Attributes:
        tally: what went by; of rows, those that were kept.
        losses: what was not kept.
    """

    def __init__(
        self,
        dataset: Dataset,
        how: Conversion,
        *,
        write_ledger: Callable[[bytes], None] | None = None,
        on_digests: Callable[[NDArray[np.uint8]], None] | None = None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally, self.losses = Tally(), Losses(write_ledger)
        self._dataset, self._how, self._on_digests, self._tell = dataset, how, on_digests, tell
        self._sieve = Sieve(how.filters, how.view, dataset.fetcher)

    def rows(self, shards: range, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of some shards, sifted, payload as references or views; whole samples a batch.

        Args:
            shards: which shards, by number.
            limit: samples that were kept in all, at most.
        """
        how = self._how
        columns = None if how.columns is None else [*how.columns, "__key__"]
        if how.schema is not None:
            columns = how.schema.names
        for number in shards:
            if limit is not None and self.tally.samples >= limit:
                return
            found = self._dataset.shard_batches(number, _MAX_ROWS, how.max_batch_bytes, columns, how.schema, views=True)
            for batch in found:
                fitted = batch if how.schema is None else align_table(batch, how.schema)
                yield self._sifted(fitted, limit)
                self._tell()
                if limit is not None and self.tally.samples >= limit:
                    break
            self.tally.shards += 1
            self._tell()

    def _sifted(self, batch: pa.RecordBatch, limit: int | None) -> pa.RecordBatch:
        batch, lost = self._sieve.sift(batch)
        for loss in lost:
            self.losses.add(loss)
        if self._how.change is not None and batch.num_rows:
            batch = _changed(batch, self._how.change, self._how.written)
        starts = sample_firsts(batch, self._how.view)
        room = len(starts) if limit is None else limit - self.tally.samples
        if len(starts) > room:
            batch, starts = batch.slice(0, int(starts[room])), starts[:room]
        self.tally.samples += len(starts)
        self.tally.rows += batch.num_rows
        self.tally.payload_bytes += int(row_bytes(batch).sum())
        return batch

    def copy(self, shards: range, writer: _Writer, limit: int | None = None) -> None:
        """Write the rows of some shards, with their bytes or without, as the conversion says."""
        for batch in self.rows(shards, limit):
            done = self._fetched(batch) if self._on_digests is not None or not self._how.lazy else batch
            if self._on_digests is not None:
                self._on_digests(batch_digests(done, self._how.view))
            writer.write_batch(self._dataset.without_bytes(batch) if self._how.lazy else done)
            self._dataset.release(writer.held_bytes())

    def _fetched(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        how, before = self._how, batch.num_rows
        done = self._dataset.materialise(batch, views=True, on_error=how.on_error, on_failure=self._failed)
        if done.num_rows < before:
            self.tally.rows -= before - done.num_rows
            self.tally.samples -= len(sample_firsts(batch, how.view)) - len(sample_firsts(done, how.view))
        return done

    def _failed(self, batch: pa.RecordBatch, errors: Mapping[int, str]) -> None:
        fate = {"warn": KEPT, "drop_row": DROPPED, "drop_sample": DROPPED_ALONG}[self._how.on_error]
        rows = np.array(list(errors), np.int64)
        self.losses.add(Loss("rows whose bytes cannot be had", fate, batch, rows, list(errors.values())))


def changed_schema(schema: pa.Schema, change: Hook) -> pa.Schema:
    """The columns that a function of the user's gives for rows of this schema, found by giving it none.

    Raises:
        UsageError: it gives something else than a batch.
    """
    empty = pa.record_batch([pa.array([], f.type) for f in schema], schema)
    return without_source(_changed(empty, change, None).schema)


def _changed(batch: pa.RecordBatch, change: Hook, schema: pa.Schema | None) -> pa.RecordBatch:
    """What a function of the user's makes of a batch, with the columns that it is to have.

    Raises:
        UsageError: it gives something else than a batch. SchemaMismatch: columns or types differ from those it gave
            for no rows.
    """
    made = change(batch)
    if not isinstance(made, pa.RecordBatch):
        raise UsageError("the function gives a record batch", found=type(made).__name__)
    made = made.replace_schema_metadata({**(batch.schema.metadata or {}), **(made.schema.metadata or {})})
    return made if schema is None else align_table(made, schema)
