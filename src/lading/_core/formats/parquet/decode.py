"""Decode row groups of a Parquet file to record batches, in steps of bounded size; post-process such batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lading._core.arrow import views
from lading._core.arrow.casts import with_referred_values
from lading._core.arrow.older import data_bytes
from lading._core.arrow.text_checks import holds_text
from lading._core.arrow.types import supported
from lading._core.formats.parquet.footer import ColumnChunk, Footer
from lading._core.formats.parquet.input import FOREIGN, Input, damage, damaged
from lading._core.formats.parquet.int96 import COARSEST, FINEST, WideTimes, unit_of
from lading._core.formats.parquet.pages import (
    SAFE_BYTES,
    GroupSpan,
    Page,
    Pages,
    check_lists,
    decoded_sizes,
    first_risk,
    mean_row_bytes,
    next_risk,
    plan_runs,
    rows_of_step,
)
from lading._core.formats.parquet.payload import PayloadPages, payload_pages
from lading._core.formats.parquet.schema import values_of_leaves, with_leaves
from lading.errors import CorruptShard, LadingError

__all__ = ["STEP_BYTES", "STEP_ROWS", "RowGroupDecoder", "cut"]

STEP_BYTES = 8 << 20
"""Approximate bytes decoded in one step; larger steps are slower."""
STEP_ROWS = 1 << 16

_BLAME_ROWS = 64
_BUFFER_BYTES = 256 << 10
_ALL_BUFFERS_BYTES = 32 << 20
_MIN_BUFFER_BYTES = 4 << 10
_TRUSTED_DICTIONARY_BYTES = 2 << 20
_SUSPICIOUS_RATIO = 64
_RISKED_STEPS = (2 << 30) // STEP_BYTES
_LARGE_PAGE_BYTES = 16 << 20
_STEPS_BETWEEN_RELEASES = 8


class RowGroupDecoder:
    """Decode columns of row groups.

    Args:
        file: the open file; its owner closes it.
        footer: its footer.
        binary_type: type for byte arrays that the file's own schema does not name.
        int96_unit: unit of 96-bit times; None for that of the file.
    """

    def __init__(
        self, file: Input, footer: Footer, binary_type: pa.DataType | None = None, int96_unit: str | None = None
    ) -> None:
        self._file, self._footer, self._binary_type = file, footer, binary_type
        self._apart = False
        self._wide = [leaf for leaf, column in enumerate(footer.columns) if column.kind == "INT96"]
        self._wide_unit, self._asked_unit = int96_unit or FINEST, int96_unit

    def natural_schema(self) -> pa.Schema:
        """Return pyarrow's schema, without groups that have no columns. Raises CorruptShard."""
        with damage(self._file.path, "the schema"), supported(self._file.path, self._footer.start):
            if self._wide and self._asked_unit is None:
                self._wide_unit = unit_of(self._footer.metadata.metadata or {})
            schema = with_leaves(self._open(binary_type=self._binary_type).schema_arrow)
        columns, values = self._footer.columns, values_of_leaves(schema)
        if any(found != (1, 1) for found in values):
            columns = [replace(c, row_values=a, null_values=b) for c, (a, b) in zip(columns, values, strict=True)]
            self._footer = replace(self._footer, columns=columns)
        # pyarrow cannot join nested dictionaries of two row groups.
        self._apart = any(views.holds_dictionary(kind) and not pa.types.is_dictionary(kind) for kind in schema.types)
        return schema

    def runs(self, groups: Sequence[int], leaves: Sequence[int], max_bytes: int) -> Iterator[GroupSpan]:
        """Return what is decoded in one pass, each: a row group, or several small ones together."""
        footer = self._footer
        runs = (
            GroupSpan((group,), int(footer.num_rows[group]), tuple(footer.chunk(group, leaf) for leaf in leaves))
            for group in groups
        )
        # A lower limit on pages than usual makes pages of smaller row groups checked too.
        lowered = self._file.limits.page_bytes < SAFE_BYTES
        safe_bytes = self._file.limits.page_bytes if lowered else max(SAFE_BYTES, max_bytes // 2)
        parts = ([run] for run in runs) if self._apart else (runs,)
        return chain.from_iterable(plan_runs(part, safe_bytes=safe_bytes, step_bytes=STEP_BYTES) for part in parts)

    def payload(self, run: GroupSpan, leaves: Sequence[int]) -> dict[int, PayloadPages]:
        """Return those of these columns whose values can be views of their pages.

        Raises:
            CorruptShard, LimitExceeded: as `payload_pages`.
        """
        found = {leaf: payload_pages(self._file, [c for c in run.chunks if c.leaf == leaf]) for leaf in leaves}
        return {leaf: pages for leaf, pages in found.items() if pages is not None}

    def decode(
        self, run: GroupSpan, max_rows: int, max_bytes: int, payload: Mapping[int, PayloadPages]
    ) -> Iterator[tuple[pa.RecordBatch, dict[int, pa.Array]]]:
        """Yield the rows of a run in order, step by step: columns as in the file, and those of `payload` by leaf.

        A batch may exceed `max_bytes` if sizes were estimated from an average: see `cut`.

        Raises:
            CorruptShard: pages are damaged; the message names row group and column.
            Unrepresentable: 96-bit times that do not fit their unit (`_core.formats.parquet.int96`).
        """
        ranges = [(chunk.start, chunk.stop) for chunk in run.chunks]
        self._file.expect(ranges)
        watched = bool(run.watched)
        run = run.without(payload)
        if not run.watched:
            check_lists(self._file, run.chunks)
        pages = [Pages(decoded_sizes(self._file, chunk, self._dictionary_value_bytes)) for chunk in run.watched]
        pages += [Pages(taken.sizes()) for taken in payload.values()]
        reader = self._open(run.chunks, binary_type=self._binary_type)
        times = self._wide_times(run)
        steps: Iterator[pa.RecordBatch] | None = None
        done, mean_bytes, limit = 0, mean_row_bytes(run), min(max_bytes, STEP_BYTES)
        risk, since = first_risk(limit), 0
        while done < run.num_rows:
            rows = min(max_rows, rows_of_step(mean_bytes, pages, limit, risk), run.num_rows - done)
            reader.set_batch_size(rows)
            steps = steps or reader.iter_batches(rows, run.groups, column_indices=run.leaves, use_threads=False)
            batch = self._next(steps, run, done) if run.chunks else _without_columns(rows)
            done += batch.num_rows
            risk = next_risk(risk, data_bytes(batch), limit)
            if times is not None:
                times.check(batch.num_rows)
            for cursor in pages:
                cursor.advance(batch.num_rows)
            if watched:
                self._file.release(ranges)
            since += 1
            if since >= _STEPS_BETWEEN_RELEASES and any(c.largest_bytes > _LARGE_PAGE_BYTES for c in pages):
                # The pool keeps every freed page: 725 MB in all for pages of 100 MB, which pyarrow writes by default
                # (it checks a page's size once in 1,024 values). Releasing after each step takes five times as long.
                pa.default_memory_pool().release_unused()
                since = 0
            yield batch, {leaf: taken.take(batch.num_rows) for leaf, taken in payload.items()}
        self._file.release(ranges)

    def _open(self, chunks: Sequence[ColumnChunk] = (), **options: Any) -> pq.ParquetReader:
        """Return a new reader for each pass (4 µs), because the rows of a step are a property of the whole reader.

        Small chunks are read completely: if a page header claims gigabytes that do not exist, pyarrow's buffered
        streams would fill as many with zeros.
        """
        share = max(_ALL_BUFFERS_BYTES // max(len(self._footer.columns), 1), _MIN_BUFFER_BYTES)
        small = sum(chunk.stop - chunk.start for chunk in chunks) <= STEP_BYTES
        reader = pq.ParquetReader()
        reader.open(
            self._file.handle,
            metadata=self._footer.metadata,
            pre_buffer=False,
            buffer_size=0 if small else min(_BUFFER_BYTES, share),
            page_checksum_verification=True,
            arrow_extensions_enabled=True,
            **{"coerce_int96_timestamp_unit": self._wide_unit, **options},
        )
        return reader

    def _wide_times(self, run: GroupSpan) -> WideTimes | None:
        leaves = [leaf for leaf in run.leaves if leaf in self._wide]
        if not leaves:
            return None
        units = dict.fromkeys((self._wide_unit, COARSEST, FINEST))
        readers = {unit: self._open(run.chunks, coerce_int96_timestamp_unit=unit) for unit in units}
        return WideTimes(readers, self._wide_unit, run, leaves, self._file.path)

    def _next(self, steps: Iterator[pa.RecordBatch], run: GroupSpan, done: int) -> pa.RecordBatch:
        self._file.check()
        try:
            batch = next(steps, None)
            if batch is not None:
                batch = self._checked(batch)
        except LadingError:
            raise
        except FOREIGN as error:
            raise self._blamed(run, error) from error
        if batch is None or not batch.num_rows:
            raise self._too_few(run.name, run.num_rows, done)
        return batch

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows; raises ArrowInvalid for invalid UTF-8 in strings.

        Takes 0.04 s a GB of ASCII, 0.3 s of other text.
        """
        if self._apart:
            batch = pa.RecordBatch.from_arrays([with_referred_values(c) for c in batch.columns], schema=batch.schema)
        for column in batch.columns:
            if holds_text(column.type):
                column.validate(full=True)
        return batch

    def _blamed(self, run: GroupSpan, error: Exception) -> LadingError:
        """Return the error of the first column chunk of a run that cannot be decoded by itself."""
        for chunk in run.chunks:
            place, rows = f"row group {chunk.group}", 0
            try:
                alone = self._open([chunk])
                for batch in alone.iter_batches(_BLAME_ROWS, [chunk.group], [chunk.leaf], use_threads=False):
                    rows += self._checked(batch).num_rows
            except FOREIGN as own:
                return damaged(own, self._file.path, place).at(offset=chunk.start, column=chunk.column)
            if rows != chunk.num_rows:
                return self._too_few(place, chunk.num_rows, rows).at(offset=chunk.start, column=chunk.column)
        return damaged(error, self._file.path, run.name)

    def _too_few(self, place: str, expected: int, found: int) -> CorruptShard:
        return CorruptShard(
            f"{place}: fewer rows than the footer says", file=self._file.path, expected=expected, found=found
        )

    def _dictionary_value_bytes(self, chunk: ColumnChunk, page: Page) -> int:
        """Return the bytes of the largest value of a dictionary, or an estimate between it and the average.

        To find the largest, the dictionary is decoded once more. For a dictionary of large values, such as the images
        that pyarrow's defaults put into dictionaries, that would double the work. Their sizes are assumed to be
        similar, and at most 2 GiB is risked on it.
        """
        small = page.unpacked_bytes <= _TRUSTED_DICTIONARY_BYTES
        if chunk.flat and (small or page.unpacked_bytes > _SUSPICIOUS_RATIO * page.packed_bytes):
            reader = self._open([chunk], read_dictionary=[chunk.leaf])
            with damage(self._file.path, f"row group {chunk.group}"):
                batch = next(reader.iter_batches(1, [chunk.group], [chunk.leaf], use_threads=False), None)
            if batch is not None and isinstance(batch.column(0), pa.DictionaryArray):
                return int(views.byte_lengths(batch.column(0).dictionary).max(initial=0))
        return max(page.unpacked_bytes // max(page.num_values, 1), page.unpacked_bytes // _RISKED_STEPS)


def _without_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], ["none"]).select([])


def cut(batch: pa.RecordBatch, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches within a number of rows and bytes of values, at least one row each.

    Values are shared.
    """
    # The size of all buffers is known at once, and mostly enough, unless values may share their bytes.
    repeating = any(pa.types.is_dictionary(kind) or pa.types.is_binary_view(kind) for kind in batch.schema.types)
    if batch.num_rows <= max_rows and not repeating:
        most = batch.get_total_buffer_size() + 8 * batch.num_rows
        if batch.num_rows and most <= max_bytes:
            yield batch
            return
    ends = np.cumsum(views.row_bytes(batch) + 8)
    at = 0
    while at < batch.num_rows:
        used = int(ends[at - 1]) if at else 0
        stop = int(np.searchsorted(ends, used + max_bytes, side="right"))
        stop = min(max(stop, at + 1), at + max_rows, batch.num_rows)
        yield batch.slice(at, stop - at) if stop - at < batch.num_rows else batch
        at = stop
