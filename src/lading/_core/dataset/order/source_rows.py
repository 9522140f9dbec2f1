"""Rows of the source of a dataset: all of some shards, samples in rising order, or a few samples by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise, zip_longest

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import union_schema
from lading._core.arrow.references import concat, files_of
from lading._core.arrow.types import unread_type
from lading._core.arrow.views import reorder, take_rows
from lading._core.content.field_paths import FieldPath
from lading._core.dataset.order.numbers import Numbers
from lading._core.dataset.shards.iteration import aligned_to, materialise_parts, shard_batches
from lading._core.dataset.shards.random_access import unfetched_rows
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step, no_such_column
from lading._core.dataset.steps.sequence import columns_asked, columns_to_read
from lading._core.dataset.transform.function_spool import StepSpool
from lading._core.dataset.transform.row_filters import advice_about_missing, row_filter_of
from lading._core.dataset.transform.traced_batch import Origin, TracedBatch
from lading._core.dataset.transform.transform import Transform
from lading._core.dataset.values.field_values import counts_items
from lading._core.features.items import KEY, sample_rows
from lading._core.features.row_layout import row_layout
from lading._core.formats.base import Scan
from lading.errors import UsageError

__all__ = [
    "FIRST_SAMPLES",
    "PASS_ROWS",
    "SourceRows",
    "one_batch",
    "other_count",
]

FIRST_SAMPLES = 64
"""Samples of a list that are read by number, of some formats with their payload."""
_SCATTERED = 16
"""Of shards of which less than one sample in so many is wanted, samples are read by number."""
PASS_ROWS = 16_384
"""Rows of a batch in a pass over the source."""


class SourceRows:
    """Rows of the shards of a source, with the columns that steps need, payload as references.

    Args:
        shards: the shards of the source.
    """

    def __init__(self, shards: Shards) -> None:
        self._shards, self._view = shards, shards.view
        self._fields: dict[str, pa.Field | None] = {}

    def has_keys(self) -> bool:
        """Whether samples have keys."""
        shards = self._shards
        return KEY in shards.schema.names or (shards.manifest is None and self.field(KEY) is not None)

    def origin(self, numbers: Numbers) -> Origin:
        """Where samples are, by their number in the source."""
        return Origin(numbers, self._shards.sample_ends(), self._shards.path_in_rows, self._view)

    def field(self, name: str) -> pa.Field | None:
        """A column of the source, as the first shard has it that has it; None if no shard has it."""
        if name not in self._fields:
            shards = self._shards
            opened = (view.schema() for _, view in shards.readable(range(len(shards.listing))))
            there = (schema.field(name) for schema in chain([shards.schema], opened) if name in schema.names)
            self._fields[name] = next(there, None)
        return self._fields[name]

    def whole_field(self, name: str) -> pa.Field | None:
        """A column of the source, with the type that holds the values of all shards; None if no shard has it.

        Raises:
            SchemaMismatch: no type holds the values of two shards.
        """
        opened = ((shard, view.schema()) for shard, view in self._shards.readable(range(len(self._shards.listing))))
        found = [
            (self._shards.path(shard), pa.schema([schema.field(name)]))
            for shard, schema in opened if name in schema.names
        ]  # fmt: skip
        typed = [each for each in found if not pa.types.is_null(each[1].field(0).type)]
        return union_schema(typed or found)[0].field(0) if found else None

    def names(self) -> list[str]:
        """The columns of all shards, where each shard has the same columns in all of its rows."""
        shards = self._shards
        opened = shards.readable(range(len(shards.listing) if shards.fixed_schema and shards.manifest is None else 0))
        return list(dict.fromkeys(chain(shards.schema.names, *(view.schema().names for _, view in opened))))

    def read(self, wanted: range, steps: Sequence[Step], scan: Scan) -> Iterator[pa.RecordBatch]:
        """Batches of some shards, with the columns that the steps need."""
        shards = self._shards
        row_filter = row_filter_of(steps, self._view, shards.fetcher)
        for number in wanted:
            names = None
            with shards.bad.skipping(number, shards.path(number)):
                names = self._to_read(steps, scan.columns, number)
            named = replace(scan, columns=names)
            found = shard_batches(shards, number, named, by_index=True, row_filter=row_filter)
            for batch in found:
                # If rows between two samples of one id were dropped, the two would become one.
                for start, stop in pairwise(shards.row_layout.distinct_bounds(batch)):
                    yield self._with_asked(batch.slice(start, stop - start), steps, scan.columns)
        if len(wanted) == len(shards.listing):
            shards.bad.refuse_all(len(shards.listing))

    def _to_read(self, steps: Sequence[Step], columns: Sequence[str] | None, shard: int) -> list[str] | None:
        """Columns to read of a shard so that steps give these columns; None for all."""
        shards, schema = self._shards, self._shards.target
        helps = any(step.asks_schema for step in steps)
        if schema is None and shards.fixed_schema and helps:
            schema = shards.open_shard(shard).schema()
        return columns_to_read(steps, columns, self._view, schema)

    def rising(
        self,
        numbers: NDArray[np.int64],
        steps: Sequence[Step],
        columns: Sequence[str] | None,
        max_bytes: int,
        map_schemas: Sequence[pa.Schema],
        spools: Sequence[StepSpool | None] = (),
    ) -> Iterator[TracedBatch]:
        """Samples of the source in rising order, each shard read once; references into compressed files as bytes.

        `numbers` are in rising order, perhaps with repeats. `spools` is as of `Transform`.
        """
        shards, view = self._shards, self._view
        again, kept = self._again(steps, spools)
        transform = Transform(
            again, view, shards.fetcher, map_schemas=map_schemas, counts=shards.counts,
            any_members=shards.takes_any_fields, image_lists=shards.image_lists, spools=kept,
        )  # fmt: skip
        ends = shards.sample_ends()
        first = np.append(True, numbers[1:] != numbers[:-1])
        distinct = numbers if first.all() else numbers[first]
        bounds = np.searchsorted(distinct, ends)
        for shard in np.flatnonzero(np.diff(bounds, prepend=0)).tolist():
            begin = int(ends[shard - 1]) if shard else 0
            mine = distinct[int(bounds[shard - 1]) if shard else 0 : int(bounds[shard])]
            whole = self._of_shard(shard, mine, begin, again, columns, max_bytes)
            for found, batch in (part for each in whole for part in _parts(transform, *each)):
                traced = transform.apply(batch, self.origin(found).places(batch), found)
                if traced.samples is None or len(traced.samples) != len(found):
                    raise other_count()
                at = 0
                for part in self._unwrapped(traced.batch, max_bytes):
                    stop = at + len(row_layout(view).firsts(part))
                    yield replace(traced, batch=part, samples=found[at:stop], rows=None)
                    at = stop

    def _again(
        self, steps: Sequence[Step], spools: Sequence[StepSpool | None]
    ) -> tuple[list[Step], list[StepSpool | None]]:
        """The steps that change rows of samples that are known, with their spools."""
        both = zip_longest(steps, spools[: len(steps)])
        again = [(step, spool) for step, spool in both if step.changes_rows(self._view)]
        return [step for step, _ in again], [spool for _, spool in again]

    def _of_shard(
        self, shard: int, numbers: NDArray[np.int64], begin: int, steps: Sequence[Step], columns: Sequence[str] | None,
        max_bytes: int,
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:  # fmt: skip
        """Samples of a shard, with their numbers, as they stand in the source; `begin` is the number of its first."""
        shards, stop, info = self._shards, int(self._shards.sample_ends()[shard]), self._shards.fmt.info
        scattered = len(numbers) * _SCATTERED < stop - begin and info.fixed_schema and info.types == "stored"
        at, size = 0, FIRST_SAMPLES
        while scattered and at < len(numbers):
            wanted = columns_to_read(steps, columns, self._view)
            some = numbers[at : at + size]
            rows = one_batch(unfetched_rows(shards, some, wanted, aligned_to(shards, wanted)))
            shards.passes.add(shard, len(some))
            yield some, self._with_asked(rows, steps, columns)
            at += len(some)
            size = min(4 * size, max(max_bytes * len(some) // max(rows.nbytes, 1), 1))
        if scattered:
            return
        seen = begin
        for batch in self.read(range(shard, shard + 1), steps, Scan(columns, max_rows=PASS_ROWS, max_bytes=max_bytes)):
            starts = row_layout(self._view).bounds(batch)
            some = numbers[slice(*np.searchsorted(numbers, (seen, seen + len(starts) - 1)))]
            if len(some):
                yield some, take_rows(batch, sample_rows(starts, some - seen))
            seen += len(starts) - 1

    def _unwrapped(self, batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows, with bytes in the place of references into files that can only be read from their start."""
        if not any(file.wrap for file in files_of(batch.schema)):
            yield batch
            return
        yield from materialise_parts(self._shards, batch, max_bytes)

    def _with_asked(
        self, batch: pa.RecordBatch, steps: Sequence[Step], columns: Sequence[str] | None
    ) -> pa.RecordBatch:
        """The batch with nulls for columns that a step needs, and that only other shards have.

        Raises:
            UsageError: no shard has a column that is asked for.
        """
        needed, fields = columns_to_read(steps, columns, self._view), []
        for name in columns_asked(steps, columns):
            if name in batch.schema.names or (needed is not None and name not in needed):
                continue
            if counts_items(FieldPath(name), batch.schema.names):
                continue
            field = self.field(name)
            if field is None:
                raise self._no_such(name, steps)
            # pyarrow has no nulls of a type without a class.
            fields.append(field if unread_type(field.type) is None else field.with_type(pa.null()))
        if not fields:
            return batch
        columns = [*batch.columns, *(pa.nulls(batch.num_rows, field.type) for field in fields)]
        return pa.record_batch(columns, pa.schema([*batch.schema, *fields], metadata=batch.schema.metadata))

    def _no_such(self, name: str, steps: Sequence[Step]) -> UsageError:
        known = self._shards.schema
        found = no_such_column(name, known.names)
        found.advice = found.advice or advice_about_missing(name, steps, known)
        return found

    def telling_missing(self, traced_batches: Iterator[TracedBatch], steps: Sequence[Step]) -> Iterator[TracedBatch]:
        """Give batches as they come; where they end with a UsageError, name the column first that no shard has.

        A column that is asked for and that a tar lacks is one of nulls: only a look at all tars tells that none has it.
        """
        try:
            yield from traced_batches
        except UsageError:
            names = self._shards.schema.names
            for name in [] if self._shards.fixed_schema else columns_asked(steps):
                if not counts_items(FieldPath(name), names) and self.field(name) is None:
                    raise self._no_such(name, steps) from None
            raise

    def made(
        self,
        numbers: NDArray[np.int64],
        steps: Sequence[Step],
        columns: Sequence[str] | None,
        map_schemas: Sequence[pa.Schema],
        counts: Counter[str] | None = None,
        spools: Sequence[StepSpool | None] = (),
    ) -> pa.Table:
        """Samples of the source, as steps make them that keep these samples; payload as references.

        Args:
            numbers: of the samples in the source, in any order, with repeats.
            steps: the steps.
            columns: columns that are wanted behind the steps, others may come along; None for all.
            map_schemas: of the functions among the steps, the schema of their rows.
            counts: as of `Transform`.
            spools: as of `Transform`.
        """
        shards, view = self._shards, self._view
        rising, places = np.unique(numbers, return_inverse=True)
        again, kept = self._again(steps, spools)
        wanted = columns_to_read(again, columns, view)
        if wanted is not None and shards.fixed_schema and KEY not in shards.schema.names:
            wanted = [name for name in wanted if name != KEY] or None
        transform = Transform(
            again, view, shards.fetcher, map_schemas=map_schemas, counts=counts, any_members=shards.takes_any_fields,
            image_lists=shards.image_lists, spools=kept,
        )  # fmt: skip
        parts: list[pa.Table] = []
        firsts: list[NDArray[np.int64]] = []
        for part, rows in self._told_apart(rising, wanted):
            whole = self._with_asked(rows, again, columns)
            traced = transform.apply(whole, self.origin(part).places(whole), part)
            if traced.samples is None or len(traced.samples) != len(part):
                raise other_count()
            firsts.append(row_layout(view).firsts(traced.batch) + sum(map(len, parts)))
            parts.append(pa.Table.from_batches([traced.batch]))
        table = parts[0] if len(parts) == 1 else concat(parts)
        if np.array_equal(rising, numbers):
            return table
        return reorder(table, sample_rows(np.append(np.concatenate(firsts), len(table)), places))

    def _told_apart(
        self, numbers: NDArray[np.int64], columns: Sequence[str] | None
    ) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
        """Samples of the source, in parts in which documents of one id are no neighbours, and would be one."""
        shards = self._shards
        rows = one_batch(unfetched_rows(shards, numbers, columns, aligned_to(shards, columns)))
        if len(row_layout(self._view).firsts(rows)) >= len(numbers):
            yield numbers, rows
            return
        for half in np.array_split(numbers, 2):
            yield from self._told_apart(half, columns)


def _parts(
    transform: Transform, numbers: NDArray[np.int64], batch: pa.RecordBatch
) -> Iterator[tuple[NDArray[np.int64], pa.RecordBatch]]:
    """Give samples as the steps should get them, in parts, with their numbers."""
    for first, stop in transform.bounds(batch.num_rows):
        whole = stop - first == batch.num_rows
        yield (numbers, batch) if whole else (numbers[first:stop], batch.slice(first, stop - first))


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch."""
    whole = rows.combine_chunks()
    batches = whole.to_batches()
    return batches[0] if batches else pa.record_batch([c.combine_chunks() for c in whole.columns], whole.schema)


class _Uncounted(UsageError, TypeError):
    """Samples that have no numbers. Being a TypeError, it lets `list(dataset)` do without a length."""


def other_count() -> UsageError:
    """Return the error for samples that have no numbers."""
    return _Uncounted("a function of map() changes the number of samples, so they have no numbers",
                      advice="Write the dataset first, and open what was written.")  # fmt: skip
