"""The view `interleaved` of a format whose rows are items already (Parquet and the like).

Reserved columns get their canonical types, absent ones come as nulls; rows of one sample must stand together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.align import align_table, reconcile_schema
from lading.errors import DataError, SchemaMismatch, errors_at
from lading.formats.protocol import ShardReader
from lading.hashing import hash_strings
from lading.interleaved import INTERLEAVED_SCHEMA, RESERVED, sample_rows, sample_starts
from lading.layouts.gather import gathered, joined, split_samples
from lading.layouts.options import InterleavedOptions
from lading.views import present

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ItemsView"]

_ID_ROWS = 65_536
_ID_BYTES = 64 << 20


class ItemsView:
    """A shard of item rows, taken sample by sample.

    Args:
        reader: the open shard.
        path: its name in errors.
        options: `fields` is looked at; the rest is for tars.
    """

    def __init__(self, reader: ShardReader, path: str, options: InterleavedOptions) -> None:
        self._reader, self._path, self._options = reader, path, options
        self._starts: NDArray[np.int64] | None = None
        self.counts: Counter[str] = Counter()

    def schema(self) -> pa.Schema:
        """The shard's schema with canonical reserved columns; absent ones and absent `fields` come after the others."""
        schema = self._own_schema()
        kept = [f for f in schema if f.name in RESERVED or self._wants(f.name)]
        absent = [INTERLEAVED_SCHEMA.field(n) for n in RESERVED if n not in schema.names]
        unknown = [n for n in self._options.fields or () if n not in schema.names and n not in RESERVED]
        fields = [*kept, *absent, *(pa.field(n, pa.null()) for n in unknown)]
        return pa.schema(fields, metadata=schema.metadata)

    def _own_schema(self) -> pa.Schema:
        schema = self._reader.schema()
        for name in ("sample_id", "position", "modality"):
            if name not in schema.names:
                raise SchemaMismatch("items need this column", file=self._path, column=name, found=schema.names)
        with errors_at(file=self._path):
            return reconcile_schema(schema)

    def _wants(self, name: str) -> bool:
        return self._options.fields is None or name in self._options.fields

    def index(self) -> None:
        """Nothing: a footer is an index already."""

    def num_samples(self) -> int:
        """Number of samples; reads the column of ids once."""
        return len(self._bounds()) - 1

    def _bounds(self) -> NDArray[np.int64]:
        if self._starts is None:
            batches = self._reader.batches(max_rows=_ID_ROWS, max_bytes=_ID_BYTES, columns=["sample_id"])
            parts = [first for _, first in self._samples_of(batches)]
            self._starts = np.concatenate([*parts, [self._reader.num_rows()]]).astype(np.int64)
        return self._starts

    def _samples_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        """The batches that hold rows, each with the rows of the shard at which a sample begins in it."""
        row, last = 0, None
        for batch in batches:
            if batch.num_rows:
                ids = self._ids(batch, row)
                starts = sample_starts(ids)
                yield batch, row + (starts[1:] if ids[0].as_py() == last else starts)
                last = ids[-1].as_py()
                row += batch.num_rows

    def _ids(self, batch: pa.RecordBatch, row: int) -> pa.Array:
        ids = batch.column("sample_id")
        if ids.null_count:
            raise DataError("an item belongs to a sample", file=self._path, column="sample_id", found="null",
                            row=row + int(np.argmin(present(ids))))  # fmt: skip
        return ids

    def batches(
        self,
        *,
        max_rows: int,
        max_bytes: int,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        views: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order, samples whole, reserved columns canonical.

        Raises:
            DataError: a null `sample_id`, or one that comes back after other samples; both rows are named.
        """
        target = self._chosen(schema or self.schema(), columns)
        limits = {"max_rows": max_rows, "max_bytes": max_bytes}
        rows = self._reader.batches(**limits, columns=self._present(target), views=views)
        rows = gathered(rows, max_rows, max_bytes) if views else rows
        for batch in _whole_samples(self._checked(rows), max_rows, max_bytes):
            yield self._aligned(batch, target)
        self.counts.update(self._reader.counts)

    @staticmethod
    def _chosen(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
        """The columns asked for, `sample_id` always."""
        if columns is None:
            return schema
        kept = [schema.field(n) for n in schema.names if n in columns or n == "sample_id"]
        return pa.schema(kept, metadata=schema.metadata)

    def _present(self, target: pa.Schema) -> list[str]:
        present = set(self._reader.schema().names)
        return [n for n in target.names if n in present]

    def _checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Refuse ids that come back: 16 bytes a sample are kept of those that went by."""
        done = 0
        hashes: list[NDArray[np.uint64]] = []
        rows: list[NDArray[np.int64]] = []
        for batch, first in self._samples_of(batches):
            ids = batch.column("sample_id").take(pa.array(first - done))
            hashes.append(hash_strings(ids.cast(pa.large_string())))
            rows.append(first)
            done += batch.num_rows
            yield batch
        if hashes:
            self._refuse_returning(np.concatenate(hashes), np.concatenate(rows))

    def _refuse_returning(self, hashes: NDArray[np.uint64], rows: NDArray[np.int64]) -> None:
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
        if len(same):
            first, again = int(rows[order[same[0]]]), int(rows[order[same[0] + 1]])
            raise DataError(
                f"the rows of a sample do not stand together: the id of row {first} comes back",
                file=self._path, row=again, column="sample_id",
                advice="Sort the file by sample_id and position.",
            )  # fmt: skip

    def _aligned(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        position = batch.schema.get_field_index("position")
        if position >= 0 and batch.column(position).null_count:
            row = int(np.argmin(present(batch.column(position))))
            raise DataError("an item has a position", file=self._path, column="position", row=row, found="null")
        with errors_at(file=self._path):
            return align_table(batch, target)

    def read(self, samples: NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of samples by ordinal, in the order asked for."""
        target = self._chosen(self.schema(), columns)
        found = self._reader.read(sample_rows(self._bounds(), samples), self._present(target))
        return self._aligned(found, target)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def _whole_samples(batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that cut no sample: the last sample of each waits for the next.

    Only the rows of a sample that lies in several batches are copied together.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        starts = sample_starts(batch.column("sample_id"))
        first = 0
        if waiting and waiting[-1].column("sample_id")[-1].as_py() == batch.column("sample_id")[0].as_py():
            first = int(starts[1]) if len(starts) > 1 else batch.num_rows
            waiting.append(batch.slice(0, first))
        if waiting and first < batch.num_rows:
            yield from _split(joined(waiting), max_rows, max_bytes)
            waiting = []
        last = int(starts[-1]) if len(starts) else 0
        if first < last:
            yield from _split(batch.slice(first, last - first), max_rows, max_bytes)
        if first < batch.num_rows:
            waiting = [batch.slice(last)]
    if waiting:
        yield from _split(joined(waiting), max_rows, max_bytes)


def _split(batch: pa.RecordBatch, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    return split_samples(batch, sample_starts(batch.column("sample_id")), max_rows, max_bytes)
