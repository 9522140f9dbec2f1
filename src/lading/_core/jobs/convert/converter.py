"""Rows of a source → rows of a destination: what one process of a conversion does with its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import as_text
from lading._core.arrow.rebatch import HELD_BATCHES
from lading._core.arrow.references import files_of, has_codec, is_ref
from lading._core.arrow.views import compacted, holds_bytes, is_text, shown_bytes
from lading._core.dataset.order.numbers import numbers_at
from lading._core.dataset.order.spooled_order import SpooledOrder
from lading._core.dataset.shards.iteration import scan_shard
from lading._core.dataset.shards.sample_digests import batch_digests
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.transform.function_spool import StepSpool
from lading._core.dataset.transform.row_filters import row_filter_of
from lading._core.dataset.transform.sample_functions import FIRST_OF_SHARD
from lading._core.dataset.transform.traced_batch import rows_of_file
from lading._core.dataset.transform.transform import Transform
from lading._core.dataset.writing.outcomes import Outcomes, failed_rows
from lading._core.formats.base import Scan, Span
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.engine.progress import Tally
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.fetch import advising, fetched_parts
from lading._core.pipeline.join import join, split_duplicate_ids
from lading._core.pipeline.write import PartWriter, write_rows
from lading._core.storage.fetch import earlier_errors
from lading._core.units import parse_bytes
from lading.errors import SchemaMismatch

__all__ = ["Converter", "bounded_options", "refuse_unknown"]

_TOGETHER_BYTES, _TOGETHER_SHARDS = 64 << 20, 64
"""Payload and shards of a batch of what is left of several small ones; so many files are mapped at once."""
_MAX_ROWS = 16_384
"""Rows of a batch: tiny ones cost some kB each on their way into a tar, and larger batches are hardly faster."""


class Converter:
    """What one process of a conversion does with its shards: scan → transform → join → fetch → write.

    Each stage takes an iterator of batches and gives one.

    Args:
        dataset: the source.
        spec: the conversion.
        spooled: the samples, where they are written in another order than that of the source; else None. Ranges of
            shards are ranges of places then.
        write_ledger: takes lines of the ledger; None where none is kept.
        on_digests: called with the content digests of each batch, `(samples, 16)`; None takes none.
        on_batch: called after every batch and every shard.
        sizes: bytes of each shard of the source, by its number, if they are known.
        max_rows: rows of a batch, at most.
        spools: as of `Transform`.
        first_samples: number of the first sample of each shard, by which spools know samples; by default samples before
            a shard are not counted.

    Attributes:
        tally: counts of the rows that were converted.
        losses: rows that were left out or changed.
        transform: the steps.
    """

    def __init__(  # noqa: PLR0913 - one value a decision of the job
        self,
        dataset: Shards,
        spec: JobPlan,
        spooled_order: SpooledOrder | None = None,
        *,
        write_ledger: Callable[[bytes], None] | None = None,
        on_digests: Callable[[NDArray[np.uint8]], None] | None = None,
        on_batch: Callable[[], None] = lambda: None,
        sizes: Sequence[int] | Mapping[int, int] = (),
        max_rows: int = _MAX_ROWS,
        spools: Sequence[StepSpool | None] = (),
        first_samples: Sequence[int] = (),
    ) -> None:
        self._sizes = sizes
        self.tally, self.losses = Tally(), Outcomes(write_ledger)
        self._dataset, self._spec, self._on_digests, self._on_batch = dataset, spec, on_digests, on_batch
        self._max_rows, self._spools, self._first_sample = max_rows, spools, 0
        self._first_samples = first_samples or range(0, FIRST_OF_SHARD * len(dataset.listing), FIRST_OF_SHARD)
        self._schema = spec.schemas.schema
        self._texts = {f.name for f in spec.schemas.schema_written or () if is_text(f.type)}
        self._holds_rows = get_format(spec.write.format).info.fixed_schema
        self._spooled_order = spooled_order
        self.transform = Transform(
            spec.steps,
            spec.view,
            dataset.fetcher,
            map_schemas=spec.schemas.mapped,
            counts=dataset.counts,
            any_members=dataset.takes_any_fields,
            spools=spools,
            image_lists=dataset.image_lists if spec.read.image_lists is None else lambda: spec.read.image_lists or (),
        )

    def begin_task(
        self,
        write_ledger: Callable[[bytes], None] | None,
        on_digests: Callable[[NDArray[np.uint8]], None] | None,
    ) -> None:
        """Count rows from zero, and give lines of the ledger and digests to others: those of another task."""
        self.tally, self.losses, self._on_digests = Tally(), Outcomes(write_ledger), on_digests

    def copy(
        self,
        shards: range,
        writer: PartWriter,
        spans: Sequence[Span | None] = (),
        is_enough: Callable[[Batch], bool] | None = None,
    ) -> bool:
        """Write the rows of some shards, with their payload or with references, as the conversion says.

        With spans, one for each of the shards, these samples alone are written; None stands for all of a shard.
        `is_enough` is called with each batch that is written. If it returns True, the rest is left, and this returns
        False.

        Raises DatasetReplaced behind the last batch if a local shard changed meanwhile.
        """
        for batch in self.ready(shards, spans):
            with batch.naming_files():
                write_rows(writer, self._dataset.fetcher, batch, behind=True, duplicate_ids="apart")
            if is_enough is not None and is_enough(batch):
                return False
        self._dataset.refuse_changed(shards if self._spooled_order is None else range(len(self._dataset.listing)))
        return True

    def ready(self, shards: range, spans: Sequence[Span | None] = ()) -> Iterator[Batch]:
        """Give the rows of some shards as a writer takes them: with the columns that are written, and with references.

        References are left where a writer may take payload from files, and where it is not to be read. `spans` is
        as in `copy`.
        """
        spec = self._spec
        # The fixed costs of a batch equal the time to move 5 MB: shards of 240 KB are converted 1.6 times as fast so.
        most = min(_TOGETHER_BYTES, spec.max_batch_bytes // 4)
        batches = join(self.rows(shards, spans), _MAX_ROWS, most, _TOGETHER_SHARDS, self._may_join)
        target = spec.schemas.written if self._spooled_order is None else spec.schemas.schema_written
        return self._fetch(batches, target)

    def rows(self, shards: range, spans: Sequence[Span | None] = ()) -> Iterator[Batch]:
        """Give the rows of some shards behind the steps, payload as references or views; `spans` as in `copy`."""
        batches = (
            self._scan(shards, spans) if self._spooled_order is None else self._in_order(self._spooled_order, shards)
        )
        return self._transform(batches, shards.start) if self._spec.steps else batches

    # Stages

    def _scan(self, shards: range, spans: Sequence[Span | None]) -> Iterator[Batch]:
        """Give the rows of some shards, with the columns of the conversion."""
        spec, schemas, schema = self._spec, self._spec.schemas, self._schema
        columns = None if schemas.columns is None else [*schemas.columns, "__key__"]
        if schema is not None and not schemas.whole:
            columns = schema.names
        fetches_all = not (spec.steps or spec.write.lazy)
        scan = Scan(
            columns, schema, self._max_rows, spec.max_batch_bytes, views=True, drifting=True, payload=fetches_all
        )
        # If rows between two samples of one id were dropped, the two would become one.
        apart = any(step.most_samples is None for step in spec.steps)
        parts = spans or [None] * len(shards)
        sizes, before = self._sizes_of(shards, parts), self.tally.source_bytes
        ends = [*accumulate(sizes, initial=0)]
        for at, (number, span) in enumerate(zip(shards, parts, strict=True)):
            if self.transform.is_done():
                return
            found = scan_shard(
                self._dataset, number, scan,
                by_index=self._dataset.manifest is not None,  # a tar of others may hold members to be reported
                row_filter=row_filter_of(spec.steps, spec.view, self._dataset.fetcher),
                span=span,
            )  # fmt: skip
            self._first_sample = self._first_samples[number] + (0 if span is None else span.first_sample)
            for batch in found:
                if schema is not None and schemas.whole:
                    refuse_unknown(batch.schema, schema, self._dataset.path(number))
                read = ends[at] + int(sizes[at] * min(batch.source_share or 0.0, 1.0)) if sizes else 0
                whole = split_duplicate_ids(batch) if apart else [batch]
                for part in (part for each in whole for part in self._parts(each)):
                    with part.naming_files():
                        aligned = part if schema is None else part.aligned(schema)
                    aligned.knowing(source_share=read / ends[-1] if ends[-1] else None)
                    self.tally.source_bytes = before + read
                    if not spec.steps:
                        self._count(aligned)
                    self.tally.samples_read += part.num_samples
                    yield aligned
                    self._first_sample += part.num_samples
                    self._on_batch()
                if self.transform.is_done():
                    break
            self.tally.shards += span is None or span.is_last
            self.tally.source_bytes = before + (ends[at + 1] if sizes else 0)
            self._on_batch()

    def _sizes_of(self, shards: range, spans: Sequence[Span | None]) -> Sequence[int]:
        """Bytes of what is read of each shard; none if they are not known."""
        if not self._sizes:
            return ()
        return [
            self._sizes[number] if span is None else span.size_bytes for number, span in zip(shards, spans, strict=True)
        ]

    def _in_order(self, spooled_order: SpooledOrder, places: range) -> Iterator[Batch]:
        """Give the samples of a range of places in their new order."""
        done = 0
        for rows in spooled_order.batches(places.start, places.stop, self._max_rows, self._spec.max_batch_bytes):
            if self.transform.is_done():
                return
            for batch in self._parts(Batch(rows, self._spec.view)):
                done += batch.num_samples
                self.tally.samples_read += batch.num_samples
                batch.knowing(source_share=done / len(places))
                if not self._spec.steps:
                    self._count(batch)
                yield batch
                self._on_batch()

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """Give a batch as the steps should get it, in parts."""
        for first, stop in self.transform.bounds(batch.num_rows):
            yield batch if stop - first == batch.num_rows else batch.slice(first, stop)

    def _transform(self, batches: Iterator[Batch], first: int) -> Iterator[Batch]:
        """Give the rows that the steps leave, as they make them; rows behind a limit are not counted.

        In a new order, `first` is the place of the first sample.
        """
        for batch in batches:
            numbers, spooled_order = batch.row_numbers, self._spooled_order
            in_file = rows_of_file(batch.rows, numbers)
            traced = self.transform.apply(
                batch.rows,
                in_file if spooled_order is None else spooled_order.origin.places(batch.rows, first),
                self._numbers(batch, first),
            )
            first += batch.num_samples
            for placed, outcome in traced.outcomes:
                known = None if numbers is None or placed is None else numbers[placed]
                self.losses.add(replace(outcome, numbers=known))
            rows = traced.batch
            if traced.outcomes and self._holds_rows:
                # Views at this stage are of pages in memory, and a table holds its rows until a row group is full.
                rows = compacted(rows, shown_bytes(batch.rows))
            left = batch
            if rows is not batch.rows:
                kept = None if numbers is None or traced.rows is None else numbers[traced.rows]
                left = Batch(rows, batch.view).knowing(row_numbers=kept, source_share=batch.source_share)
            self._count(left)
            yield left

    def _numbers(self, batch: Batch, first: int) -> NDArray[np.int64] | None:
        """The numbers of samples, by which it is kept what functions make of them."""
        if all(spool is None for spool in self._spools):
            return None
        places = np.arange(batch.num_samples)
        if self._spooled_order is None:
            return places + self._first_sample
        return numbers_at(self._spooled_order.origin.numbers, places + first)

    def _count(self, batch: Batch) -> None:
        self.tally.samples += batch.num_samples
        self.tally.rows += batch.num_rows
        self.tally.payload_bytes += batch.size_bytes

    def _fetch(self, batches: Iterator[Batch], target: pa.Schema | None) -> Iterator[Batch]:
        """Give the rows with their payload, or with references that are left to the writer or to readers.

        Rows get the columns of a target, if there is one.
        """
        spec, fetcher = self._spec, self._dataset.fetcher
        since = since_bytes = 0
        for batch in batches:
            parts = iter([batch]) if self._stays_references(batch) else self._fetched(batch)
            for part in parts:
                if self._on_digests is not None:
                    self._take_digests(part)
                rows = self._dataset.follower.to_references(part.rows, fetcher) if spec.write.lazy else part.rows
                made = part.with_rows(rows)
                with made.naming_files():
                    aligned = made if target is None else made.aligned(target).knowing(files=made.files)
                del part, made, rows
                yield aligned
                del aligned  # before as much is unpacked again
            since += batch.num_rows
            since_bytes += batch.size_bytes
            if since >= _MAX_ROWS or since_bytes >= spec.max_batch_bytes:
                # The pool keeps pages of what was: of tiny rows 35 MB after 300,000, of pages of Parquet that were
                # unpacked 60 MB after 600. A release takes 0.4 ms.
                pa.default_memory_pool().release_unused()
                since = since_bytes = 0

    def _take_digests(self, batch: Batch) -> None:
        assert self._on_digests is not None, "asked for"
        spec, parts = self._spec, iter([batch])
        if spec.write.lazy:
            parts = fetched_parts(batch, self._dataset.fetcher, spec.max_batch_bytes, views=True, earlier=False)
        for part in parts:
            self._on_digests(batch_digests(part.rows, spec.view))

    # Payload

    def _may_join(self, batch: Batch) -> bool:
        """Whether rows of other shards may join a batch: its payload lies in files, and its errors name no shard.

        Of compressed files only few are open at once.
        """
        lies_in_files = not any(holds_bytes(kind) for kind in batch.schema.types)
        return lies_in_files and self._stays_references(batch) and not any(f.wrap for f in files_of(batch.schema))

    def _stays_references(self, batch: Batch) -> bool:
        """Whether the payload may be left to the writer, which need not have it in memory."""
        spec = self._spec
        if spec.write.on_error != "error" or spec.write.lazy or self._on_digests is not None:
            return False
        references = {f.name for f in batch.schema if is_ref(f.type)}
        if not references or references & self._texts or earlier_errors(batch.rows):
            return False
        return not has_codec(batch.rows)  # ranges with a codec may unpack to more than is to be held

    def _fetched(self, batch: Batch) -> Iterator[Batch]:
        """The rows whose payload is available, in parts, where they unpack to more than is to be held."""
        spec, tally = self._spec, self.tally
        # Payload that stays where it is, is not fetched: only rows with an error already fail.
        stays = spec.write.lazy and not get_format(self._dataset.format).info.self_contained
        held = spec.max_batch_bytes if stays else spec.max_batch_bytes // HELD_BATCHES
        policy = spec.write.on_error
        drops = policy in ("drop_row", "drop_sample")
        rows, samples, size = batch.num_rows, batch.num_samples, batch.size_bytes if drops else 0
        with advising():
            for part in fetched_parts(
                batch, self._dataset.fetcher, held, columns=[] if stays else None, views=True, on_error=policy,
                on_failure=partial(self._failed, batch.row_numbers),
            ):  # fmt: skip
                rows -= part.num_rows
                samples -= part.num_samples
                size -= part.size_bytes if drops else 0
                written = spec.schemas.schema_written
                yield part if written is None else part.with_rows(as_text(part.rows, written))
                del part  # before as much is unpacked again
        if rows:
            tally.rows -= rows
            tally.samples -= samples
            tally.payload_bytes -= size

    def _failed(
        self, numbers: NDArray[np.int64] | None, batch: pa.RecordBatch, errors: Mapping[int, str], first: int
    ) -> None:
        """Note rows with unavailable payload of a part of a batch, of whose rows `numbers` are the numbers."""
        placed = None if numbers is None else numbers[first : first + batch.num_rows]
        for outcome in failed_rows(self._spec.write.on_error, batch, errors, placed):
            self.losses.add(outcome)


def bounded_options(fmt: AnyFormat, options: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """The options, with row groups no larger than a quarter of a batch, unless they are given."""
    usual = getattr(fmt.write_options({}), "row_group_bytes", None)
    if usual is None or "row_group_bytes" in options:
        return dict(options)
    return {**options, "row_group_bytes": max(min(parse_bytes(usual), max_bytes // 4), 1)}


def refuse_unknown(found: pa.Schema, known: pa.Schema, file: str) -> None:
    """Raise SchemaMismatch for a column that nobody knew of: to read on would leave it out without a word."""
    unknown = [name for name in found.names if known.get_field_index(name) < 0]
    if unknown:
        raise SchemaMismatch(
            "rows hold a column that the shard was not said to hold", file=file, column=unknown[0],
            expected=", ".join(known.names),
            advice="A manifest or index beside it is wrong, or it changed since it was looked at.",
        )  # fmt: skip
