"""The view `interleaved` of formats whose rows are items already (Parquet and others).

Reserved columns get their canonical types, absent ones become nulls. Rows of one sample must be contiguous. Items with
external bytes get a reference to them, resolved from their `source_ref`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.align import align_table, reconcile_schema
from lading._core.arrow.batches import with_columns
from lading._core.arrow.hashing import hash_strings
from lading._core.arrow.rebatch import HELD_BATCHES, joined, rebatched, split_samples
from lading._core.arrow.references import files_of, is_ref, with_files
from lading._core.arrow.views import filled, is_text, is_view, join, present, row_bytes
from lading._core.features.items import (
    INTERLEAVED_SCHEMA,
    PAYLOAD,
    RESERVED,
    WITHOUT_BYTES,
    sample_rows,
    sample_starts,
    split_rows,
)
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardReader
from lading._core.formats.findings import Finding
from lading._core.interleaved.absent_fields import warn_absent_fields
from lading._core.interleaved.base import documents_at_once
from lading._core.interleaved.references import Followed, Follower
from lading._core.storage.fetch import ERROR_COLUMN, Fetcher, write_errors
from lading.errors import DataError, LadingError, SchemaMismatch, errors_at
from lading.options import InterleavedOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ItemsView", "followed", "texts_of_ids"]

_MOST_BYTES = 1 << 62
_OF_SOURCES = ("modality", "source_ref", ERROR_COLUMN)
"""Columns that show which items have external bytes, and where."""


class _Seen:
    """Ids of samples that were read, in 16 bytes a sample."""

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.uint64]] = []
        self._rows: list[NDArray[np.int64]] = []

    def add(self, ids: pa.Array, rows: NDArray[np.int64]) -> None:
        """Add the ids of samples, and the rows at which they begin."""
        self._hashes.append(hash_strings(ids))
        self._rows.append(rows)

    def returned(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows that begin a sample with an earlier id, and for each the row where the id appears again."""
        hashes = np.concatenate([np.zeros(0, np.uint64), *self._hashes])
        rows = np.concatenate([np.zeros(0, np.int64), *self._rows])
        order = np.argsort(hashes, kind="stable")
        same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
        return rows[order[same]], rows[order[same + 1]]


class ItemsView(ShardReader):
    """A shard of item rows, read sample by sample.

    Args:
        reader: the open shard.
        path: name of the shard in errors.
        options: only `fields` is used; the rest is for tars.
        follower: resolves `source_ref`.
        fetcher: reads external bytes, if a batch also holds items with bytes.
    """

    holds_items = True
    may_join = copies = False

    def __init__(
        self, reader: ShardReader, path: str, options: InterleavedOptions, follower: Follower, fetcher: Fetcher
    ) -> None:
        self._reader, self._path, self._options = reader, path, options
        self._follower, self._fetcher = follower, fetcher
        self._starts: NDArray[np.int64] | None = None
        self.declares_types = reader.declares_types

    def schema(self) -> pa.Schema:
        """Return the shard's schema with canonical reserved columns.

        Absent reserved columns and absent `fields` follow the others.
        """
        schema = self._own_schema()
        kept = [f for f in schema if f.name in RESERVED or self._wants(f.name)]
        absent = [INTERLEAVED_SCHEMA.field(n) for n in RESERVED if n not in schema.names]
        fields = [*kept, *absent, *(pa.field(n, pa.null()) for n in self._unknown())]
        return pa.schema(fields, metadata=schema.metadata)

    def _own_schema(self) -> pa.Schema:
        schema = self._reader.schema()
        if not self._reader.declares_types and not schema.names and not self._reader.num_rows():
            return INTERLEAVED_SCHEMA  # only rows show the columns
        for name in ("sample_id", "position", "modality"):
            if name not in schema.names:
                raise SchemaMismatch("items need this column", file=self._path, column=name, found=schema.names)
        with errors_at(file=self._path):
            return reconcile_schema(schema)

    def _unknown(self) -> list[str]:
        """Return requested columns that are missing."""
        there = {*self._reader.schema().names, *RESERVED}
        return [name for name in self._options.fields or () if name not in there]

    def _wants(self, name: str) -> bool:
        return self._options.fields is None or name in self._options.fields

    def index(self) -> None:
        """Return None: a footer is an index already."""

    def num_rows(self) -> int:
        """Return the number of items."""
        return self._reader.num_rows()

    def num_samples(self) -> int:
        """Return the number of samples; reads the id column once."""
        return len(self._bounds()) - 1

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many documents are read to read one (`ShardReader.samples_at_once`)."""
        return documents_at_once(self._reader, self.num_samples())

    def _bounds(self) -> NDArray[np.int64]:
        if self._starts is None:
            self._own_schema()  # an error if there are no items
            parts = [first for _, first in self._samples_of(self._only_ids())]
            self._starts = np.concatenate([*parts, [self._reader.num_rows()]]).astype(np.int64)
        return self._starts

    def samples_from(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first sample that begins at each of these rows or behind it, and the row where.

        Reads the id column, and refuses ids that appear again, as `batches` does.
        """
        parts = [first for _, first in self._samples_of(self._checked(self._only_ids()))]
        starts = self._starts = np.concatenate([*parts, [self._reader.num_rows()]]).astype(np.int64)
        sample = np.searchsorted(starts, rows)
        return sample, starts[sample]

    def _only_ids(self) -> Iterator[pa.RecordBatch]:
        return self._reader.batches(Scan(["sample_id"]))

    def _samples_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        """Yield the batches with rows, each with the rows of the shard at which samples begin in it."""
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
            raise DataError("an item has no sample_id", file=self._path, column="sample_id", found="null",
                            row=row + int(np.argmin(present(ids))))  # fmt: skip
        return texts_of_ids(ids, self._path)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, samples whole, reserved columns canonical.

        If all payload of a batch is external, `binary_content` is a reference column. If some is, it is read at once,
        because a column cannot hold both. Errors of a `source_ref` go into `materialize_error`.

        Raises:
            DataError: a null `sample_id`, or one that appears again after other samples; names both rows.
        """
        asked, target = self._needed(scan.schema or self.schema(), scan.columns)
        rows = self._rows(target, scan)
        held = scan.max_bytes // HELD_BATCHES
        rows = rebatched(rows, scan.max_rows, held, held) if scan.views else rows
        first = 0
        for batch in self._whole_samples(self._checked(rows), scan.max_rows, scan.max_bytes):
            aligned = self._aligned(batch, target, range(first, first + batch.num_rows))
            first += batch.num_rows
            for part in followed(aligned, self._follower, self._fetcher, self._path, scan.max_bytes):
                yield part if part.schema.names == asked else part.select(asked)
        warn_absent_fields(self._unknown(), self._path, self.counts)
        self.counts.update(self._reader.counts)

    def _rows(self, target: pa.Schema, scan: Scan) -> Iterator[pa.RecordBatch]:
        """Yield the rows as the file has them; without declared types, further columns in the given types."""
        names, reader = self._present(target), self._reader
        if scan.schema is not None and not reader.declares_types:
            own = reader.schema()
            wanted = pa.schema([(own if name in RESERVED else target).field(name) for name in names])
            return reader.batches(replace(scan, columns=names, schema=wanted, views=False))
        return reader.batches(replace(scan, columns=names, schema=None))

    def _whole_samples(
        self, batches: Iterable[pa.RecordBatch], max_rows: int, max_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the same rows in batches that cut no sample.

        Each batch waits for the next, which may continue its last sample. Only the rows of a sample in several batches
        are copied.
        """
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            if not waiting:
                waiting = [batch]
                continue
            if waiting[-1].column("sample_id")[-1].as_py() != batch.column("sample_id")[0].as_py():
                yield from self._limited(waiting, max_rows, max_bytes)
                waiting = [batch]
                continue
            last = int(sample_starts(waiting[0].column("sample_id"))[-1])
            if last:
                yield waiting[0].slice(0, last)
                waiting[0] = waiting[0].slice(last)
            starts = sample_starts(batch.column("sample_id"))
            stop = int(starts[1]) if len(starts) > 1 else batch.num_rows
            waiting.append(batch.slice(0, stop))
            if stop < batch.num_rows:
                yield from self._limited(waiting, max_rows, max_bytes)
                waiting = [batch.slice(stop)]
        if waiting:
            yield from self._limited(waiting, max_rows, max_bytes)

    def _limited(self, waiting: list[pa.RecordBatch], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield batches within the limits from parts that are within the limits."""
        if len(waiting) == 1:
            yield waiting[0]
            return
        batch = joined(self._of_one_kind(waiting))
        yield from split_samples(batch, sample_starts(batch.column("sample_id")), max_rows, max_bytes)

    def _of_one_kind(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Yield the batches with a column as bytes in all of them if some have references in it: it cannot be both."""
        kinds = zip(*(batch.schema.types for batch in batches), strict=True)
        mixed = [i for i, kind in enumerate(kinds) if len({is_ref(one) for one in kind}) > 1]
        return [self._read_columns(batch, mixed) for batch in batches] if mixed else batches

    def _read_columns(self, batch: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
        """Return the batch with those of these columns that hold references as bytes, in views."""
        read = {}
        for i in places:
            column = batch.column(i)
            if not is_ref(column.type):
                continue
            read[i], errors = self._fetcher.fetch(column, files_of(batch.schema))
            for error in errors.values():
                raise error.at(column=batch.schema.names[i])
        return with_columns(batch, read)

    @staticmethod
    def _needed(schema: pa.Schema, columns: Sequence[str] | None) -> tuple[list[str], pa.Schema]:
        """Return the requested columns, `sample_id` always; and their schema with the columns that locate payload."""
        if columns is None:
            return schema.names, schema
        wanted = {*columns, "sample_id"}
        asked = [name for name in schema.names if name in wanted]
        with_more = {*asked, *(_OF_SOURCES if PAYLOAD in wanted else ())}
        return asked, pa.schema([f for f in schema if f.name in with_more], metadata=schema.metadata)

    def _present(self, target: pa.Schema) -> list[str]:
        present = set(self._reader.schema().names)
        return [n for n in target.names if n in present]

    def _checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Refuse ids that appear again."""
        seen = _Seen()
        yield from self._seen_by(seen, batches)
        first, again = seen.returned()
        if len(again):
            raise DataError(
                f"sample ids are not contiguous: the id of row {first[0]} appears again",
                file=self._path, row=int(again[0]), column="sample_id",
                advice="Read it with --regroup, or sort it by sample_id and position.",
            )  # fmt: skip

    def _seen_by(self, seen: _Seen, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        done = 0
        for batch, first in self._samples_of(batches):
            seen.add(self._ids(batch, done).take(pa.array(first - done)), first)
            done += batch.num_rows
            yield batch

    def layout_findings(self) -> list[Finding]:
        """Return ids that are not contiguous, from the id column. Nothing for lines, which would be read completely."""
        if not self._reader.declares_types:
            return []
        self._own_schema()
        seen = _Seen()
        for _ in self._seen_by(seen, self._only_ids()):
            pass
        first, again = seen.returned()
        if not len(again):
            return []
        measured = f"ids that return after others: {len(again):,}, such as that of row {first[0]} in row {again[0]}"
        return [Finding(
            "samples in several pieces",
            measured=measured,
            why="lading refuses such rows: joining neighbours of one id would return pieces of samples.",
            weight=len(again),
            fix="copy",
            read_options={"regroup": True},
        )]  # fmt: skip

    def _aligned(self, batch: pa.RecordBatch, target: pa.Schema, rows: Sequence[int]) -> pa.RecordBatch:
        """Return the batch with the columns of the target; errors name the shard's row numbers in `rows`."""
        position = batch.schema.get_field_index("position")
        try:
            if position >= 0 and batch.column(position).null_count:
                row = int(np.argmin(present(batch.column(position))))
                raise DataError("an item has a position", column="position", row=row, found="null")
            return align_table(batch, target)
        except LadingError as error:
            error.row = None if error.row is None else rows[error.row]
            raise error.at(file=self._path) from None

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return the rows of samples by ordinal, in the given order, with their bytes, also external ones."""
        asked, target = self._needed(self.schema(), scan.columns)
        rows = sample_rows(self._bounds(), np.arange(self.num_samples()) if rows is None else rows)
        found = self._aligned(self._reader.read(rows, Scan(self._present(target))), target, rows.tolist())
        parts = [
            part
            for batch in found.combine_chunks().to_batches()
            for items in followed(batch, self._follower, self._fetcher, self._path, _MOST_BYTES)
            for part in self._fetcher.materialise_parts(
                items, sample_starts(items["sample_id"]), _MOST_BYTES, earlier=False
            )
        ]
        return pa.Table.from_batches(parts, target).select(asked) if parts else target.empty_table().select(asked)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


def followed(
    batch: pa.RecordBatch, follower: Follower, fetcher: Fetcher, path: str, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield a batch of items with external bytes, or references to them; in parts of whole samples, if it grows.

    Args:
        batch: the items, samples whole.
        follower: resolves `source_ref`.
        fetcher: reads external bytes, if some items have bytes: a column cannot hold references and bytes.
        path: name of the table in errors; relative paths are looked up next to it first.
        max_bytes: payload of a part.
    """
    wanted = _elsewhere(batch)
    if not wanted.any():
        yield batch
        return
    with errors_at(file=path):
        found = follower.follow(batch.column("source_ref"), wanted, path)
    batch = write_errors(batch, found.errors)
    sizes = row_bytes(batch) + row_bytes(pa.record_batch([found.column], ["source"]))
    bounds = split_rows(sample_starts(batch.column("sample_id")), sizes, max_bytes=max_bytes)
    for start, stop in pairwise(bounds.tolist()):
        yield _filled(batch.slice(start, stop - start), found, fetcher, start)


def _elsewhere(batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return which rows name a source for missing bytes, and have no error yet."""
    if not {PAYLOAD, *_OF_SOURCES} <= set(batch.schema.names):
        return np.zeros(batch.num_rows, np.bool_)
    content = batch.column(PAYLOAD)
    wanted = ~present(content) if content.null_count else np.zeros(batch.num_rows, np.bool_)
    if wanted.any():
        source, errors = batch.column("source_ref"), batch.column(ERROR_COLUMN)
        without = pc.is_in(batch.column("modality"), value_set=pa.array(WITHOUT_BYTES))
        wanted &= ~np.asarray(without.to_numpy(zero_copy_only=False), np.bool_)
        wanted &= _says_something(source) & ~_says_something(errors)
    return wanted


def _filled(batch: pa.RecordBatch, found: Followed, fetcher: Fetcher, start: int) -> pa.RecordBatch:
    """Return the batch with the results for its rows, which begin at `start`."""
    references = found.column.slice(start, batch.num_rows)
    place = batch.schema.get_field_index(PAYLOAD)
    own, held = batch.schema.field(place), batch.column(place)
    if held.null_count == len(held):
        batch = batch.set_column(place, own.with_type(references.type), references)
        return batch.replace_schema_metadata(with_files(batch.schema, found.files).metadata)
    read, errors = fetcher.fetch(references, found.files, sample_starts(batch["sample_id"]))
    batch = write_errors(batch, {row: error.problem for row, error in errors.items()})
    column = filled(held, read)
    column = column if pa.types.is_binary_view(held.type) else join(column)
    return batch.set_column(place, own.with_type(column.type), column)


def texts_of_ids(ids: pa.Array, path: str) -> pa.Array:
    """Return ids of samples as contiguous text, which every kernel supports. Raises SchemaMismatch for other types."""
    if is_text(ids.type) and not is_view(ids.type):
        return ids
    try:
        return join(ids).cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatch("sample ids must be text", file=path, column="sample_id",
                             expected=pa.string(), found=ids.type) from error  # fmt: skip


def _says_something(texts: pa.Array) -> NDArray[np.bool_]:
    """Return which texts are neither null nor empty."""
    said = pc.fill_null(pc.not_equal(texts, ""), fill_value=False)
    return np.asarray(said.to_numpy(zero_copy_only=False), np.bool_)
