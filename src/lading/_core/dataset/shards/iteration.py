"""Read the rows of shards in order, a batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from operator import index as as_int
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from lading._core.arrow.align import align_table, as_text
from lading._core.arrow.references import is_ref
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.writing.outcomes import Outcomes, failed_rows
from lading._core.features.items import INTERLEAVED_SCHEMA, LINEAGE_KEY
from lading._core.formats.base import RowFilter, Scan, ShardReader, Span
from lading._core.interleaved.open import joined_batches
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.fetch import fetched_parts
from lading._core.pipeline.join import join
from lading._core.storage.fetch import ERROR_COLUMN, OnFailure, warn_failed
from lading._core.storage.range_hasher import RangeHasher
from lading._core.storage.recent import SPARE_BYTES
from lading._core.storage.traffic import refuse_stopped
from lading._core.units import parse_bytes
from lading.errors import CorruptShard, DataError, UsageError, errors_at
from lading.options import OnError

__all__ = [
    "MAX_BYTES",
    "MAX_ROWS",
    "Batching",
    "aligned_to",
    "batches",
    "finished",
    "hidden_columns",
    "materialise_parts",
    "padded",
    "refuse_no_columns",
    "scan_shard",
    "shard_batches",
]

MAX_ROWS = 1024
"""Rows of a batch, where nobody says another number."""

_HELD_BYTES = 64 << 20
"""Batches of a shard that are held until it is read to its end, where bad shards are skipped; larger ones are read
twice."""

MAX_BYTES = 256 << 20
"""Payload of a batch, where nobody says another number."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How rows are given by the batch; see `Dataset.batches`."""

    max_rows: int = MAX_ROWS
    max_bytes: int | str = MAX_BYTES
    columns: Sequence[str] | None = None
    lazy: bool = False
    views: bool = False
    on_error: OnError = "error"
    shards_per_batch: int | None = 1

    def __post_init__(self) -> None:
        """Refuse no columns and no rows."""
        refuse_no_columns(self.columns)
        object.__setattr__(self, "max_rows", _count(self.max_rows))

    @property
    def most_bytes(self) -> int:
        """`max_bytes` as a number."""
        return parse_bytes(self.max_bytes)


def batches(shards: Shards, how: Batching, outcomes: Outcomes) -> Iterator[pa.RecordBatch]:
    """All rows in order, a batch at a time; see `Dataset.batches`. Adds the rows that a policy drops to outcomes."""
    columns, hidden = how.columns, hidden_columns(shards, how.columns)
    asked = columns if shards.row_layout.columns_vary and shards.target is None else None
    row = 0

    def of_shards() -> Iterator[pa.RecordBatch]:
        """Batches of all shards; `row` is the first of the last one in its shard."""
        nonlocal row
        wanted = columns if columns is None else [*columns, *hidden]
        for number in range(len(shards.listing)):
            row = 0
            scan = Scan(wanted, None, how.max_rows, how.most_bytes, views=how.views, payload=not how.lazy)
            for batch in shard_batches(shards, number, scan, by_index=True):
                yield batch
                row += batch.num_rows
        shards.bad.refuse_all(len(shards.listing))

    found = of_shards()
    if asked is not None:
        found = _refusing_unknown(shards, found, asked)
    for batch in padded(found, how, shards.view):
        ordered = batch if asked is None else _in_order(batch, asked)
        first_row = row if how.shards_per_batch == 1 else None
        yield from finished(shards, ordered, how, shards.target, outcomes, first_row)


def padded(found: Iterator[pa.RecordBatch], how: Batching, view: str) -> Iterator[pa.RecordBatch]:
    """Batches with the columns of those before them; rows of small shards together, where that is asked for."""
    if how.shards_per_batch != 1:
        joined = join((Batch(rows, view) for rows in found), how.max_rows, how.most_bytes, how.shards_per_batch)
        found = (batch.rows for batch in joined)
    seen = pa.schema([])
    for batch in found:
        seen, whole = _pad(seen, batch)
        yield whole


def finished(
    shards: Shards,
    batch: pa.RecordBatch,
    how: Batching,
    target: pa.Schema | None,
    outcomes: Outcomes,
    first_row: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """A batch as it is given to the user: with its payload or without, and without columns that nobody asked for.

    Rows whose payload is unavailable are added to the outcomes, unless they are an error.
    """
    hidden = hidden_columns(shards, how.columns)
    if how.lazy:
        yield batch.drop_columns(hidden)
        return
    for done in _with_bytes(shards, batch, how, target, outcomes, first_row):
        yield done.drop_columns(hidden)
        shards.fetcher.release()


def _with_bytes(
    shards: Shards,
    batch: pa.RecordBatch,
    how: Batching,
    target: pa.Schema | None,
    outcomes: Outcomes,
    first_row: int | None,
) -> Iterator[pa.RecordBatch]:
    """A batch in parts with their payload; errors name a row as its shard counts it, if the first row is known."""

    def on_failure(rows: pa.RecordBatch, errors: dict[int, str], _first: int) -> None:
        if how.on_error == "warn":
            warn_failed(errors)
        for outcome in failed_rows(how.on_error, rows, errors):
            outcomes.add(outcome)

    with errors_at(first_row=first_row):
        for part in materialise_parts(
            shards, batch, how.most_bytes, on_error=how.on_error, views=how.views, on_failure=on_failure
        ):
            yield as_text(part, target)


def _refusing_unknown(
    shards: Shards, found: Iterator[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches as they come, unless a column was asked for that neither the manifest nor any shard has.

    Shards are looked at if the manifest, or else the first rows, lack it; where there are no rows, no column is
    missed.
    """
    first = None if shards.manifest is not None else next(found, None)
    if not len(shards.listing) or (first is None and shards.manifest is None):
        return
    known = dict.fromkeys((first.schema if first is not None else shards.schema).names)
    if not shards.fixed_schema:
        known["__key__"] = None  # tars always have keys, also where rows had none before they were written
    for _, view in shards.readable(range(len(shards.listing))):
        if known.keys() >= {*columns}:
            break
        known |= dict.fromkeys(view.schema().names)
    for name in columns:
        if name not in known:
            raise UsageError("no such column", expected=", ".join(known), found=repr(name))
    if first is not None:
        yield first
    yield from found


def shard_batches(shards: Shards, shard: int, scan: Scan, **more: Any) -> Iterator[pa.RecordBatch]:
    """Rows of `scan_shard`, as record batches; arguments as there."""
    for batch in scan_shard(shards, shard, scan, **more):
        refuse_stopped()
        if shards.passes.is_on:
            shards.passes.add(shard, batch.num_samples)
        yield batch.rows
    shards.passes.add(shard + 1)


def scan_shard(
    shards: Shards,
    shard: int,
    scan: Scan,
    *,
    by_index: bool = False,
    row_filter: RowFilter | None = None,
    range_hasher: RangeHasher | None = None,
    span: Span | None = None,
) -> Iterator[Batch]:
    """Batches of one shard, references as they are; the shard is closed at the end, if nobody else reads from it.

    With `views`, payload that lies in memory comes as `binary_view`, large values of a mapped file as references,
    in batches as large as the limits allow. With `drifting`, batches may differ in columns and types. A
    `range_hasher` gets the ranges of a mapped file that a reader skips while it walks over headers. With `by_index`,
    samples of a remote shard with an index are read without a walk over its headers. With a `row_filter`, values of
    rows that fail may be null, and large values of a remote shard may be references. With a `span`, these samples
    alone are read. Where bad shards are skipped, a shard is read to its end before its first batch is given.
    """
    scanned = partial(_scanned, shards, shard, scan, by_index=by_index, row_filter=row_filter, span=span)
    whole = partial(scanned, range_hasher=range_hasher)
    return whole() if shards.bad.policy == "error" else _if_sound(shards, shard, scanned, whole)


def _if_sound(
    shards: Shards, shard: int, look: Callable[[], Iterator[Batch]], whole: Callable[[], Iterator[Batch]]
) -> Iterator[Batch]:
    """Yield the batches of a shard after a look at all of them; none of a bad shard.

    Args:
        shards: the shards.
        shard: the number of the shard.
        look: reads the shard.
        whole: reads it again, if its batches are too large to be held.
    """
    held: list[Batch] | None = []
    counts, size, path = Counter(shards.counts), 0, shards.path(shard)
    with shards.bad.skipping(shard, path):
        if shard in shards.bad.skipped:
            return
        for batch in look():
            size += batch.rows.nbytes
            if size > _HELD_BYTES:
                held = None
            if held is not None:
                held.append(batch)
            del batch
    if shard in shards.bad.skipped:
        return
    if held is not None:
        yield from held
        return
    shards.counts.clear()
    shards.counts.update(counts)
    yield from whole()


def _scanned(
    shards: Shards,
    shard: int,
    scan: Scan,
    *,
    by_index: bool,
    row_filter: RowFilter | None,
    range_hasher: RangeHasher | None = None,
    span: Span | None = None,
) -> Iterator[Batch]:
    """Batches of one shard, as they are read; see `scan_shard`."""
    target = aligned_to(shards, scan.columns)
    if target is not None:
        scan = replace(scan, columns=shards.row_layout.columns_asked(target), schema=None, drifting=False)
    # A view gives what its reader found in batches of a part of the limit, and holds one while it looks for the next.
    shards.fetcher.recent.most_bytes = scan.max_bytes + SPARE_BYTES
    files = [shards.path_in_rows(shard)]
    lineage = {LINEAGE_KEY: orjson.dumps(files)}
    samples, first = 0, 0 if span is None else span.first_row
    last: str | None = None
    with ExitStack() as held:
        held.enter_context(shards.bad.advising())
        if span is not None:
            held.enter_context(errors_at(first_row=first))
        view = held.enter_context(
            shards.one_pass(shard, range_hasher, by_index=by_index, row_filter=row_filter, span=span)
        )
        for found in joined_batches(view, scan, remote=scan.views and shards.is_remote(shard)):
            rows = found if target is None else align_table(found, target)
            if shards.has_items and rows.num_rows:
                ids = rows.column("sample_id")
                if last is not None and ids[0].as_py() == last:  # no sample lies in two batches
                    raise _duplicate_ids(shards, shard, last, samples)
                last = ids[-1].as_py()
            rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), **lineage})
            numbers = np.arange(first, first + rows.num_rows)
            batch = Batch(rows, shards.view).knowing(files=files, row_numbers=numbers)
            done = samples + batch.num_samples
            batch.knowing(
                source_share=_share_read(shards, shard, view, batch, done)
                if span is None
                else done / max(span.num_samples, 1)
            )
            samples, first = samples + batch.num_samples, first + rows.num_rows
            yield batch
        if span is None:
            shards.count_read(shard, samples)
        elif samples != span.num_samples:
            raise _changed(shards, shard, span, samples)


def _changed(shards: Shards, shard: int, span: Span, found: int) -> CorruptShard:
    """The error that a shard has other samples than when it was cut into tasks."""
    return CorruptShard(
        "a part of the shard has another number of samples than before", file=shards.path(shard),
        offset=span.start, expected=f"{span.num_samples:,} up to {span.stop}", found=f"{found:,}",
        advice="The file was changed meanwhile.",
    )  # fmt: skip


def _share_read(shards: Shards, shard: int, view: ShardReader, batch: Batch, samples: int) -> float | None:
    """Share of a shard that is read with the last row of a batch, the last of so many samples; None if unknown."""
    if view.read_share is not None:
        return view.read_share
    count = shards.listing.value("num_samples", shard)
    if count is None and not shards.has_items and shards.fmt.info.opens_at_once:
        count = view.num_samples()
    if count:
        return samples / int(count)
    size = shards.listing.value("size_bytes", shard)
    lasts = [column[-1].as_py() for column in batch.rows.columns if batch.num_rows and is_ref(column.type)]
    end = max(((last["offset"] or 0) + (last["length"] or 0) for last in lasts if last is not None), default=0)
    return end / size if size and end <= size else None


def _duplicate_ids(shards: Shards, shard: int, sample: str, ordinal: int) -> DataError:
    """The error that a sample of a shard has the id of the one before."""
    by_name = shards.interleaved.sample_id_field is None
    return DataError(
        "two neighbouring documents have one id", file=shards.path(shard), sample=sample, column="sample_id",
        expected="different ids for neighbours", found=f"the same for samples {ordinal - 1} and {ordinal}",
        advice="The ids are the names of their JSON members: rename these, or take the tar with --view samples."
        if by_name else "Take the names of their JSON members as ids: --option sample_id_field=null.",
    )  # fmt: skip


def aligned_to(shards: Shards, columns: Sequence[str] | None) -> pa.Schema | None:
    """The schema to which rows are read; None if nobody asked for one.

    It has these columns of it, those that tell samples apart, and those of `hidden_columns`.
    """
    if shards.target is None:
        return None
    hidden = hidden_columns(shards, None)
    target = shards.target.append(INTERLEAVED_SCHEMA.field(ERROR_COLUMN)) if hidden else shards.target
    if columns is None:
        return target
    for name in columns:
        if name not in target.names:
            raise UsageError("no such column", expected=", ".join(shards.target.names), found=repr(name))
    return pa.schema([f for f in target if f.name in columns or f.name in shards.row_layout.placing])


def hidden_columns(shards: Shards, columns: Sequence[str] | None) -> list[str]:
    """The column of errors, where payload is read and nobody asked for it: a policy goes by it."""
    asked = columns if columns is not None else None if shards.target is None else shards.target.names
    if asked is None or ERROR_COLUMN in asked or not {*shards.row_layout.payload} & {*asked}:
        return []
    return [ERROR_COLUMN]


def materialise_parts(
    shards: Shards,
    batch: pa.RecordBatch,
    max_bytes: int,
    *,
    columns: Sequence[str] | None = None,
    views: bool = False,
    on_error: OnError = "error",
    earlier: bool = True,
    on_failure: OnFailure | None = None,
) -> Iterator[pa.RecordBatch]:
    """As `materialise`, in parts of whole samples of up to `max_bytes`, packed or unpacked.

    A larger sample stays whole. So nothing holds all of a batch, and pages of what was packed go with each part.
    Where rows may be dropped, no part has two samples of one id, which those between them keep apart.
    """
    parts = fetched_parts(
        Batch(batch, shards.view), shards.fetcher, max_bytes, columns=columns, views=views, on_error=on_error,
        earlier=earlier, on_failure=on_failure,
    )  # fmt: skip
    for part in parts:
        yield part.rows
        del part  # before as much is unpacked again


def refuse_no_columns(columns: Sequence[str] | None) -> None:
    """A batch without columns has no rows either, so nobody could be right."""
    if columns is not None and not len(columns):
        raise UsageError("no column is selected", advice="Name one, or leave columns out for all of them.")


def _count(rows: int) -> int:
    """A number of rows that a batch may have. Raises UsageError."""
    try:
        count = as_int(rows)
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError("not a number of rows", expected="a whole number, 1 or more", found=repr(rows)[:80])
    return count


def _in_order(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch with its columns in the order that was asked for."""
    names = batch.schema.names
    wanted = [name for name in dict.fromkeys(columns) if name in names]
    return batch if wanted == names else batch.select(wanted)


def _pad(seen: pa.Schema, batch: pa.RecordBatch) -> tuple[pa.Schema, pa.RecordBatch]:
    """The columns seen so far, with those of this batch; and the batch with all of them."""
    if batch.schema.names == seen.names:
        return batch.schema, batch
    own, before = {*batch.schema.names}, {*seen.names}
    missing = [f for f in seen if f.name not in own]
    fields = [batch.schema.field(f.name) if f.name in own else f for f in seen]
    fields += [f for f in batch.schema if f.name not in before]
    schema = pa.schema(fields, metadata=batch.schema.metadata)
    if missing or schema.names != batch.schema.names:
        batch = align_table(batch, schema)
    return schema, batch
