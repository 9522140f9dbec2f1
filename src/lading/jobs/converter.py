"""Rows of a source → rows of a destination: what one process of a conversion does with its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.align import align_table, as_text
from lading.arrow.rebatch import HELD_BATCHES, across_shards, split_duplicate_ids
from lading.arrow.references import files_of, has_codec, is_ref
from lading.arrow.views import compacted, holds_bytes, is_text, shown_bytes, total_bytes, without_views
from lading.dataset.iteration import materialise_parts, shard_batches
from lading.dataset.outcomes import ALONG, DROPPED, DROPPED_ALONG, KEPT, Outcomes, RowOutcome
from lading.dataset.shards import Shards
from lading.dataset.steps import Function, Limit
from lading.dataset.transform import Transform
from lading.errors import DataError, SchemaMismatch, UsageError
from lading.features.items import lineage_of, sample_firsts, sample_starts, samples_with, without_source
from lading.formats.base import AnyFormat
from lading.formats.registry import get_format
from lading.jobs.digest import batch_digests
from lading.jobs.progress import Tally
from lading.jobs.spec import Conversion
from lading.pipeline.batch import Batch
from lading.pipeline.write import PartWriter, write_rows
from lading.storage.fetch import earlier_errors
from lading.units import parse_bytes

__all__ = ["Converter", "bounded_options", "changed_schema", "refuse_unknown"]

_TOGETHER_BYTES, _TOGETHER_SHARDS = 64 << 20, 64
"""Payload and shards of a batch of what is left of several small ones; so many files are mapped at once."""
_MAX_ROWS = 16_384
"""Rows of a batch: tiny ones cost some kB each on their way into a tar, and larger batches are hardly faster."""


class Converter:
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
        dataset: Shards,
        how: Conversion,
        *,
        write_ledger: Callable[[bytes], None] | None = None,
        on_digests: Callable[[NDArray[np.uint8]], None] | None = None,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally, self.losses = Tally(), Outcomes(write_ledger)
        self._dataset, self._how, self._on_digests, self._tell = dataset, how, on_digests, tell
        self._texts = {f.name for f in how.schema or () if is_text(f.type)}
        self._holds_rows = get_format(how.format).info.fixed_schema
        self._filters = Transform(how.filters.steps, how.view, dataset.fetcher)
        self._limit: int | None = None
        if how.schema is not None:
            self._filters.check(how.schema)

    def rows(self, shards: range, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of some shards, sifted, payload as references or views; whole samples a batch.

        Args:
            shards: which shards, by number.
            limit: samples that filters leave in all, at most, whatever becomes of them.
        """
        how = self._how
        if limit != self._limit:
            self._limit = limit
            self._filters = Transform([*how.filters.steps, Limit(limit or 0)], how.view, self._dataset.fetcher)
        columns = None if how.columns is None else [*how.columns, "__key__"]
        if how.schema is not None and not how.whole:
            columns = how.schema.names
        for number in shards:
            if self._filters.is_done():
                return
            found = shard_batches(
                self._dataset, number, _MAX_ROWS, how.max_batch_bytes, columns, how.schema, views=True, drifting=True
            )
            if how.view == "interleaved" and (how.filters.active or how.change is not None):
                found = chain.from_iterable(map(split_duplicate_ids, found))
            for batch in found:
                if how.schema is not None and how.whole:
                    refuse_unknown(batch.schema, how.schema, self._dataset.path(number))
                with _errors_in(batch):
                    fitted = batch if how.schema is None else align_table(batch, how.schema)
                yield self._changed(self._filtered(fitted))
                self._tell()
                if self._filters.is_done():
                    break
            self.tally.shards += 1
            self._tell()

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that filters and the limit leave."""
        portion = self._filters.apply(batch)
        kept = portion.batch
        for _, outcome in portion.outcomes:
            self.losses.add(outcome)
        self.tally.samples += len(sample_firsts(kept, self._how.view))
        self.tally.rows += kept.num_rows
        self.tally.payload_bytes += total_bytes(kept)
        # Views at this stage are of pages in memory, and a table holds its rows until a row group is full.
        return compacted(kept, shown_bytes(batch)) if self._holds_rows and portion.outcomes else kept

    def _changed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        how = self._how
        if how.change is None or not batch.num_rows:
            return batch
        made = _made_by(how.change, batch)
        if how.view == "interleaved":
            _refuse_broken(made)
        made = made if how.written is None else align_table(made, how.written)
        self.tally.rows += made.num_rows - batch.num_rows
        self.tally.samples += len(sample_firsts(made, how.view)) - len(sample_firsts(batch, how.view))
        return made

    def copy(self, shards: range, writer: PartWriter, limit: int | None = None) -> None:
        """Write the rows of some shards, with their bytes or without, as the conversion says."""
        how = self._how
        # What is done once a batch takes as long as to move 5 MB: shards of 240 KB go 1.6 times as fast so.
        together = min(_TOGETHER_BYTES, how.max_batch_bytes // 4)
        rows = across_shards(self.rows(shards, limit), _MAX_ROWS, together, _TOGETHER_SHARDS, self._may_share)
        since = since_bytes = 0
        for batch in rows:
            for done in [batch] if self._is_fetched_by_writer(batch) else self._fetched(batch):
                if self._on_digests is not None:
                    whole = self._contents(done) if how.lazy else [done]
                    for part in whole:
                        self._on_digests(batch_digests(part, how.view))
                kept = self._dataset.follower.to_references(done, self._dataset.fetcher) if how.lazy else done
                with _errors_in(kept):
                    fitted = kept if how.written is None else align_table(kept, how.written)
                    rows_written = Batch(fitted, how.view)
                    write_rows(writer, self._dataset.fetcher, rows_written, behind=True, duplicate_ids="apart")
            since += batch.num_rows
            since_bytes += total_bytes(batch)
            if since >= _MAX_ROWS or since_bytes >= how.max_batch_bytes:
                # The pool keeps pages of what was: of tiny rows 35 MB after 300,000, of pages of Parquet that were
                # unpacked 60 MB after 600. A release takes 0.4 ms.
                pa.default_memory_pool().release_unused()
                since = since_bytes = 0

    def _may_share(self, batch: pa.RecordBatch) -> bool:
        """Whether rows of other shards may go along: nothing is told of them by their shard, or held by their views.

        Of compressed files only few are open at once.
        """
        kinds, files = batch.schema.types, files_of(batch.schema)
        lies_in_files = not any(holds_bytes(kind) for kind in kinds) and not any(file.wrap for file in files)
        return lies_in_files and self._is_fetched_by_writer(batch)

    def _is_fetched_by_writer(self, batch: pa.RecordBatch) -> bool:
        """Whether the bytes may be left to the writer, which need not have them in memory."""
        how = self._how
        plain = how.on_error == "error" and not how.lazy and self._on_digests is None
        references = {f.name for f in batch.schema if is_ref(f.type)}
        # What ranges with a codec unpack to may be more than is to be held.
        plain = plain and not has_codec(batch)
        return plain and bool(references) and not references & self._texts and not earlier_errors(batch)

    def _contents(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return materialise_parts(self._dataset, batch, self._how.max_batch_bytes, views=True, earlier=False)

    def _fetched(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows whose bytes can be had, with these; in parts, where they unpack to more than is to be held."""
        how, tally = self._how, self.tally
        # What is left where it is, is not fetched: only rows with an error already fail.
        left = how.lazy and not get_format(self._dataset.format).info.self_contained
        columns: list[str] | None = [] if left else None
        held = how.max_batch_bytes if left else how.max_batch_bytes // HELD_BATCHES
        rows, samples, size = batch.num_rows, len(sample_firsts(batch, how.view)), total_bytes(batch)
        for done in materialise_parts(
            self._dataset, batch, held, columns=columns, views=True, on_error=how.on_error, on_failure=self._failed
        ):
            rows -= done.num_rows
            samples -= len(sample_firsts(done, how.view))
            size -= total_bytes(done)
            yield as_text(done, how.schema)
        if rows:
            tally.rows -= rows
            tally.samples -= samples
            tally.payload_bytes -= size

    def _failed(self, batch: pa.RecordBatch, errors: Mapping[int, str]) -> None:
        outcome = {"warn": KEPT, "drop_row": DROPPED, "drop_sample": DROPPED_ALONG}[self._how.on_error]
        rows = np.array(list(errors), np.int64)
        self.losses.add(RowOutcome("rows whose bytes cannot be had", outcome, batch, rows, list(errors.values())))
        if outcome == DROPPED_ALONG and "sample_id" in batch.schema.names:
            failing = np.isin(np.arange(batch.num_rows), rows)
            along = samples_with(failing, sample_starts(batch.column("sample_id"))) & ~failing
            self.losses.add(RowOutcome(ALONG, DROPPED, batch, np.flatnonzero(along)))


@contextmanager
def _errors_in(batch: pa.RecordBatch) -> Iterator[None]:
    """Errors of the body's data say which files these rows came from: rows that are written count otherwise."""
    try:
        yield
    except DataError as error:
        if files := lineage_of(batch.schema):
            more = f" and {len(files) - 1} other files" if len(files) > 1 else ""
            error.message += f" (in rows of {files[0]}{more})"
        raise


def bounded_options(fmt: AnyFormat, options: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """The options, with row groups no larger than a quarter of a batch, unless they are given."""
    usual = getattr(fmt.write_options({}), "row_group_bytes", None)
    if usual is None or "row_group_bytes" in options:
        return dict(options)
    return {**options, "row_group_bytes": max(min(parse_bytes(usual), max_bytes // 4), 1)}


def changed_schema(schema: pa.Schema, change: Function) -> pa.Schema:
    """The columns that a function of the user's gives for rows of this schema, found by giving it none.

    Raises:
        UsageError: it gives something else than a batch.
    """
    empty = pa.record_batch([pa.array([], f.type) for f in schema], schema)
    return without_source(_made_by(change, empty).schema)


def refuse_unknown(found: pa.Schema, known: pa.Schema, file: str) -> None:
    """Raise SchemaMismatch for a column that nobody knew of: to read on would leave it out without a word."""
    unknown = [name for name in found.names if known.get_field_index(name) < 0]
    if unknown:
        raise SchemaMismatch(
            "rows hold a column that the shard was not said to hold", file=file, column=unknown[0],
            expected=", ".join(known.names),
            advice="A manifest or index beside it is wrong, or it changed since it was looked at.",
        )  # fmt: skip


def _refuse_broken(batch: pa.RecordBatch) -> None:
    """Raise UsageError for rows that a function of the user's made of whole samples, and that are none any more."""
    missing = [name for name in ("sample_id", "position", "modality") if name not in batch.schema.names]
    if missing:
        raise UsageError("the function leaves out a column that items need", column=missing[0])
    runs = len(sample_firsts(batch, "interleaved"))
    if len(batch.column("sample_id").unique()) < runs:
        raise UsageError("the function takes rows of one sample apart", column="sample_id",
                         advice="Rows of a sample stand together, and samples have different ids.")  # fmt: skip


def _made_by(change: Function, batch: pa.RecordBatch) -> pa.RecordBatch:
    """What a function of the user's makes of a batch. Raises UsageError if that is no batch."""
    made = change(without_views(batch))
    if not isinstance(made, pa.RecordBatch):
        raise UsageError("the function gives a record batch", found=type(made).__name__)
    return made.replace_schema_metadata({**(batch.schema.metadata or {}), **(made.schema.metadata or {})})
