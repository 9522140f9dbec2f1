"""The samples that the steps of a dataset choose, as the steps make them: in order, or by their number in the source.

In order, shards stream through the steps. Numbers of samples that are left are found in one pass, which reads only the
columns that the steps look at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.free_memory import release_freed
from lading._core.arrow.views import take_rows
from lading._core.content.field_paths import FieldPath, parse_field
from lading._core.dataset.order.dedup import LeftOut
from lading._core.dataset.order.numbers import Look, Numbers
from lading._core.dataset.order.source_rows import (
    FIRST_SAMPLES,
    PASS_ROWS,
    SourceRows,
    one_batch,
    other_count,
)
from lading._core.dataset.order.spooled_order import Spool, SpooledOrder
from lading._core.dataset.shards.iteration import (
    MAX_BYTES,
    Batching,
    finished,
    hidden_columns,
    materialise_parts,
    padded,
)
from lading._core.dataset.shards.random_access import uniting
from lading._core.dataset.shards.sample_digests import DIGEST_BYTES, DIGEST_ROWS, digests_of, digests_of_batches
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.sequence import (
    columns_asked,
    columns_to_read,
    has_map,
    lists_behind,
    refuse_lost_columns,
)
from lading._core.dataset.transform.function_spool import FunctionSpool, StepSpool
from lading._core.dataset.transform.traced_batch import TracedBatch
from lading._core.dataset.transform.transform import Transform
from lading._core.dataset.values.absent_fields import AbsentFields, no_sample_has, refusing_absent_columns
from lading._core.dataset.values.field_values import advice_about, columns_of, counts_items
from lading._core.dataset.values.sample_values import sample_values
from lading._core.dataset.writing.outcomes import Outcomes
from lading._core.features.items import KEY, sample_rows, without_source
from lading._core.features.row_layout import row_layout
from lading._core.formats.base import Scan
from lading.errors import UsageError
from lading.options import OnError

__all__ = ["MOST_FIRST_ROWS", "ChosenSamples", "has_open_types", "in_order", "split_at_list"]

MOST_FIRST_ROWS = 4096
"""Rows that are looked at for the types of columns that a function adds, where the first ones have nothing in them."""

_FIRST_ROWS = 1024


class ChosenSamples:
    """The samples of shards behind the steps of a dataset.

    Args:
        shards: the shards of the source.
        steps: the steps.
        map_schemas: of the first functions, the schemas of their rows, if they are known.
        write_ledger: takes lines of the rows that are left out before the last step that needs all samples.
        spool: takes what functions make; by default of these samples alone, in memory and a temporary folder.

    Attributes:
        steps: the steps.
        left_out: samples that steps over numbers left out for others, by the number of steps before.
        outcomes: the rows that were left out before the last step that needs all samples, once they are found.
        reported: what readers and steps reported while the numbers of samples before that last step were found.

    Raises:
        UsageError: a step names a column that an earlier step leaves out.
    """

    def __init__(
        self,
        shards: Shards,
        steps: Sequence[Step],
        map_schemas: Sequence[pa.Schema] = (),
        write_ledger: Callable[[bytes], None] | None = None,
        spool: FunctionSpool | None = None,
    ) -> None:
        refuse_lost_columns(steps, shards.view)
        self._shards, self.steps = shards, tuple(steps)
        self._map_schemas: list[pa.Schema] = [*map_schemas]
        self._source = SourceRows(shards)
        self._found: dict[int, Numbers] = {}
        self.left_out: dict[int, LeftOut] = {}
        self._write_ledger = write_ledger
        self.outcomes, self.reported = Outcomes(), Counter[str]()
        self.spool = FunctionSpool() if spool is None else spool

    def follow(self, before: ChosenSamples, count: int) -> None:
        """Take what the functions of so many first steps made of the same samples, if these have the same first steps.

        Behind a function comes a step that needs all samples: both keep what it made. Else it goes over to these
        samples, because the results of a look are used once.
        """
        same = [one is two for one, two in zip(before.steps[:count], self.steps, strict=False)]
        if before._shards is not self._shards or not all(same) or len(same) < count:
            return
        self._map_schemas = before._map_schemas[: sum(step.makes_columns for step in self.steps[:count])]
        for place, step in enumerate(self.steps[:count]):
            if step.is_spooled:
                keeps = before._is_kept(place)
                self.spool.take(place, before.spool.of(place) if keeps else before.spool.forget(place))

    def give(self, spool: FunctionSpool, shards: Shards, steps: Sequence[Step]) -> None:
        """Give what functions made to a job that reads the same samples, if its first steps are these."""
        for place, (mine, step) in enumerate(zip(self.steps, steps, strict=False)):
            if mine is not step or not self._shards.is_same_source(shards):
                return
            found = self.spool.of(place) if self._is_kept(place) else self.spool.forget(place)
            if step.is_spooled and found is not None:
                spool.of(place).take(found)

    # In order

    def batches(self, how: Batching, outcomes: Outcomes) -> Iterator[pa.RecordBatch]:
        """The rows in order, a batch at a time; see `Dataset.batches`. Adds the rows that are left out to outcomes."""
        shards, columns = self._shards, how.columns
        if columns is not None:
            columns = [*columns, *hidden_columns(shards, columns)]
        target = None if shards.target is None or has_map(self.steps) else self._schema_of(self.steps, shards.target)
        self.note_before_list(outcomes)
        traced_batches = self.traced_batches(columns, how.max_rows, how.most_bytes, views=how.views, outcomes=outcomes)
        found = (traced.batch for traced in traced_batches)
        for batch in padded(found, how, shards.view):
            asked = batch if columns is None else in_order(batch, columns, shards.view)
            yield from finished(shards, asked, how, target, outcomes)

    def note_before_list(self, outcomes: Outcomes) -> None:
        """Find the samples behind the last step that needs all of them; add those left out before to outcomes."""
        before, _ = split_at_list(self.steps)
        if before:
            self._numbers(before)
        outcomes.add_json(self.outcomes.to_json())
        for each in self.left_out.values():
            outcomes.add_filtered(each.reason, len(each.numbers))

    def traced_batches(
        self,
        columns: Sequence[str] | None = None,
        max_rows: int = PASS_ROWS,
        max_bytes: int = MAX_BYTES,
        *,
        views: bool = False,
        steps: Sequence[Step] | None = None,
        empty: bool = False,
        shards: range | None = None,
        outcomes: Outcomes | None = None,
    ) -> Iterator[TracedBatch]:
        """The rows in order, payload as references, in batches that say which samples of the source they are.

        Args:
            columns: columns that are wanted behind the steps, others may come along; None for all.
            max_rows: rows of a batch that is read, at most.
            max_bytes: payload of a batch that is read, at most.
            views: as of `shard_batches`.
            steps: the first steps of the dataset, to stop behind them; by default all of them. With this the samples
                will be read again, and what functions make is kept for that.
            empty: give batches without rows too, of a function that changed the number of samples.
            shards: the shards to read, by number, if no step counts samples; by default all of them.
            outcomes: takes the rows that are left out behind the last step that needs all samples.
        """
        found = self._traced_batches(
            columns, max_rows, max_bytes, views=views, steps=steps, empty=empty, shards=shards, outcomes=outcomes
        )
        is_whole = steps is None and shards is None
        return refusing_absent_columns(found, self.steps, lambda: self.schema) if is_whole else found

    def _traced_batches(
        self, columns: Sequence[str] | None, max_rows: int, max_bytes: int, *, views: bool,
        steps: Sequence[Step] | None, empty: bool, shards: range | None, outcomes: Outcomes | None,
    ) -> Iterator[TracedBatch]:  # fmt: skip
        counts = self._shards.counts if steps is None else None  # another pass would count again
        looks = steps is not None
        steps = self.steps if steps is None else steps
        before, rest = split_at_list(steps)
        first, skipped = (0, 0) if before else self._skipped(rest)
        known = self._map_schemas[sum(step.makes_columns for step in before) :]
        lists = partial(lists_behind, before, self._shards.image_lists)
        transform = Transform(
            rest, self._view, self._shards.fetcher, map_schemas=known, skipped=skipped, counts=counts,
            any_members=self._shards.takes_any_fields, image_lists=lists,
            spools=() if shards else self._spools(len(before), len(steps), looks=looks, passes=not looks),
        )  # fmt: skip
        if not before:
            every = shards or range(len(self._shards.listing))
            wanted = range(max(first, every.start), every.stop)
            scan = Scan(columns, max_rows=max_rows, max_bytes=max_bytes, views=views)
            read = self._source.read(wanted, rest, scan)
            found = self._source.telling_missing(transform.traced_batches(read, outcomes), rest)
            yield from (traced for traced in found if empty or traced.batch.num_rows)
            if outcomes is not None and shards is None:
                outcomes.counts.update(transform.unmatched)
            absent = transform.absent_field()
            if absent is not None and len(wanted) == len(self._shards.listing):
                raise no_sample_has(self._shards, absent, rest)
            return
        numbers = self._numbers(before)
        needed = self.columns_needed(rest, columns)
        listed = self._listed(numbers, before, needed, max_rows, max_bytes)
        for traced in transform.traced_batches(listed, outcomes, self._source.origin(numbers).places, numbers):
            if empty or traced.batch.num_rows:
                yield traced
        if outcomes is not None:
            outcomes.counts.update(transform.unmatched)

    def traced_with_bytes(
        self, columns: Sequence[str], max_rows: int, max_bytes: int, on_error: OnError
    ) -> Iterator[TracedBatch]:
        """The same with payload, in parts of up to `max_bytes`; for a look, which `Shards.counts` do not show."""
        for traced in self.traced_batches(columns, max_rows, max_bytes, steps=self.steps):
            first, rows = 0, traced.rows if on_error == "error" else None
            with traced.naming_rows():
                for part in materialise_parts(self._shards, traced.batch, max_bytes, on_error=on_error):
                    stop = first + part.num_rows
                    yield replace(traced, batch=part, samples=None, rows=None if rows is None else rows[first:stop])
                    first = stop

    def columns_needed(self, rest: Sequence[Step], columns: Sequence[str] | None = None) -> list[str] | None:
        """Columns that steps behind a list need of its rows; None for all."""
        needed = columns_to_read(rest, columns, self._view)
        if needed is not None and KEY in needed and KEY not in columns_asked(rest, columns) and not self.has_keys():
            needed = [name for name in needed if name != KEY] or None
        return needed

    @property
    def _view(self) -> str:
        return self._shards.view

    def _listed(
        self, numbers: Numbers, steps: Sequence[Step], columns: Sequence[str] | None, max_rows: int, max_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Samples of the source in the order of a list, as steps make them that end with the list.

        The first ones are read by number, so that they come at once. For the others the source is read once.
        """
        begin = 0
        while begin < min(len(numbers), FIRST_SAMPLES):
            wanted = np.asarray(numbers[begin : begin + min(max_rows, FIRST_SAMPLES)], np.int64)
            if self._shards.has_items:  # the rows of a sample and of itself again would be one sample
                wanted = wanted[: _before_repeats(wanted)]
            made = self._source.made(
                wanted, steps, columns, self._map_schemas, self._shards.counts, self._spools(0, len(steps))
            )
            yield one_batch(made)
            begin += len(wanted)
        if begin < len(numbers):
            with self.spooled_order(numbers[begin:], steps, columns, max_bytes) as found:
                yield from found.batches(0, found.count, max_rows, max_bytes)

    @contextmanager
    def spooled_order(
        self, numbers: Numbers, steps: Sequence[Step], columns: Sequence[str] | None, max_bytes: int, *,
        to_file: bool = False,
    ) -> Iterator[SpooledOrder]:  # fmt: skip
        """Samples of the source in the order of a list, for reading by ranges; the source is read once for it.

        Args:
            numbers: of the samples in the source, in any order, with repeats.
            steps: steps that keep these samples.
            columns: columns that are wanted behind the steps, others may come along; None for all.
            max_bytes: payload of a batch that is read, at most.
            to_file: let other processes read the samples too.
        """
        shards, listed = self._shards, np.asarray(numbers, np.int64)
        order = np.argsort(listed, kind="stable")
        rising = listed[order]
        release_freed()  # of steps that looked at all samples
        self._find_map_schemas(sum(step.makes_columns for step in steps))
        origin = self._source.origin(listed)
        with Spool(len(listed), self._view, uniting(shards), origin, to_file=to_file) as spool:
            with shards.passes.during("reading for the new order"):
                kept = self._spools(0, len(steps))
                for traced in self._source.rising(rising, steps, columns, max_bytes, self._map_schemas, kept):
                    self._place(spool, traced, rising, order)
            yield spool.finish()

    def _place(self, spool: Spool, traced: TracedBatch, rising: NDArray[np.int64], order: NDArray[np.int64]) -> None:
        """Add the samples of a batch, each as often as its number is in the list."""
        samples, batch = traced.samples, traced.batch
        assert samples is not None, "as `rising` gives them"
        first, stop = np.searchsorted(rising, samples, "left"), np.searchsorted(rising, samples, "right")
        starts = row_layout(self._view).firsts(batch)
        for _ in range(int((stop - first).max(initial=0))):
            there = np.flatnonzero(first < stop)
            if len(there) == len(samples):
                spool.add(batch, starts, order[first])
            else:
                rows = sample_rows(np.append(starts, batch.num_rows), there)
                counts = np.diff(np.append(starts, batch.num_rows))[there]
                spool.add(take_rows(batch, rows), np.cumsum(counts) - counts, order[first[there]])
            first = first + 1

    def _skipped(self, steps: Sequence[Step]) -> tuple[int, int]:
        """The first shard that a leading slice needs, and the number of samples before it, where a list says it."""
        leading = next((step for step in steps if not _changes_columns(step)), None)
        start = 0 if leading is None else leading.skips
        shard = samples = 0
        for count in self._shards.listing.table.column("num_samples").to_pylist() if start else ():
            if count is None or samples + count > start:
                break
            shard, samples = shard + 1, samples + count
        return shard, samples

    # Columns

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns behind the steps; behind a `Map`, those of the first batch with rows."""
        return self.schema_from(self._shards.schema)

    @cached_property
    def whole_schema(self) -> pa.Schema:
        """The same, where the source has the columns of all shards, as far as they are known; see `Shards.whole`."""
        return self.schema_from(self._shards.whole.schema)

    def schema_from(self, schema: pa.Schema) -> pa.Schema:
        """The same, where the source has these columns."""
        return self._schema_of(self.steps, schema)

    def schema_with(self, names: Sequence[str] | None, *, whole: bool = False) -> pa.Schema:
        """The columns behind the steps, with those that the first shard lacks and another shard has.

        Behind a function of `map`, and where the rows are given a schema, these are the columns of `schema`.

        Args:
            names: the columns that are wanted behind the steps; None for those of all shards.
            whole: give structs the fields that they have in any shard.
        """
        shards, schema = self._shards, self._shards.schema
        if shards.target is not None or has_map(self.steps):
            return self.schema
        for name in self._source.names() if names is None else columns_asked(self.steps, names):
            place = schema.get_field_index(name)
            field = schema.field(place) if place >= 0 else self._source.field(name)
            if field is None:
                continue
            kind = field.type
            if shards.manifest is None and (pa.types.is_null(kind) or (whole and pa.types.is_struct(kind))):
                field = self._source.whole_field(name) or field
            schema = schema.append(field) if place < 0 else schema.set(place, field)
        return self.schema_from(schema)

    def _schema_of(self, steps: Sequence[Step], schema: pa.Schema) -> pa.Schema:
        self._find_map_schemas(sum(step.makes_columns for step in steps))
        known = iter(self._map_schemas)
        for step in steps:
            if step.makes_columns:
                schema = next(known)
            elif step.changes_columns:
                missing = [name for name in columns_asked([step]) if name not in schema.names]
                for field in filter(None, map(self._source.field, missing)):
                    schema = schema.append(field)
                schema = step.schema_after(schema, self._view)
        return schema

    @property
    def map_schemas(self) -> tuple[pa.Schema, ...]:
        """Of each `Map`, the schema of its rows."""
        self._find_map_schemas(len(self.steps))
        return tuple(self._map_schemas)

    def _find_map_schemas(self, count: int) -> None:
        """Find the schemas of the first maps: each is that of the first batch with rows."""
        places = [i for i, step in enumerate(self.steps) if step.makes_columns]
        for place in places[len(self._map_schemas) : count]:
            before, rows = self._schema_of(self.steps[:place], self._shards.schema), 0
            schema = before  # where there are no rows, the function is not called
            with self._shards.reporting_to(Counter()):
                for traced in self.traced_batches(steps=self.steps[: place + 1], max_rows=_FIRST_ROWS):
                    schema, rows = without_source(traced.batch.schema), rows + traced.batch.num_rows
                    if rows >= MOST_FIRST_ROWS or not has_open_types(schema, before):
                        break
            self._map_schemas.append(schema)

    def has_keys(self) -> bool:
        """Whether samples have keys."""
        return self._source.has_keys()

    def look(self) -> Look:
        """What reads values of the samples behind all steps."""
        return _Look(self, self._shards, self.steps)

    # By number

    @cached_property
    def numbers(self) -> Numbers:
        """The number in the source of each sample behind the steps; a pass over the data finds it, if one is needed.

        Raises:
            UsageError: a function changes the number of samples.
        """
        return self._numbers(self.steps)

    def know(self, numbers: NDArray[np.int64]) -> None:
        """Take the numbers behind all steps from a pass over the samples in order, whose last batch has come."""
        self._found[len(self.steps)] = numbers

    def numbers_behind(self, count: int) -> Numbers:
        """The numbers behind so many steps; see `numbers`."""
        return self._numbers(self.steps[:count])

    def _numbers(self, steps: Sequence[Step]) -> Numbers:
        """The numbers behind the first steps of the dataset; found once behind each step that needs all samples."""
        begin = max((i + 1 for i, step in enumerate(steps) if _may_leave_out(step)), default=0)
        known = max((count for count in self._found if begin <= count <= len(steps)), default=None)
        if known is not None:
            begin, found = known, self._found[known]
        elif begin == 0:
            ends = self._shards.sample_ends()
            found = range(int(ends[-1]) if len(ends) else 0)
        else:  # a function may change the number of samples in any batch: only a pass over all of them tells
            found = self._found[begin] = self._passed(steps[:begin])
        for i, step in enumerate(steps[begin:], begin):
            if step.over_numbers:
                reported = Counter[str]()
                with self._shards.passes.during(step.phase), self._shards.reporting_to(reported):
                    found = step.numbers_after(found, _Look(self, self._shards, steps[:i]))
                self.reported |= reported
            if step.needs_all:
                self._found[i + 1] = found
        return found

    def columns_behind(self, names: Sequence[str], steps: Sequence[Step]) -> list[str]:
        """The columns behind the first steps that hold these columns, and fields inside them.

        Raises:
            UsageError: there is no such column.
        """
        schema = self._schema_of(steps, self._shards.schema)
        items = [name for name in names if counts_items(parse_field(name, schema.names), schema.names)]
        columns = columns_of([name for name in names if name not in items], schema)
        for name in columns:
            if name not in schema.names and (has_map(steps) or self._source.field(name) is None):
                raise UsageError("no such column", expected=", ".join(schema.names), found=repr(name),
                                 advice=advice_about(FieldPath(name), schema))  # fmt: skip
        return list(dict.fromkeys([*columns, *self._shards.row_layout.required])) if items else columns

    def _passed(self, steps: Sequence[Step]) -> NDArray[np.int64]:
        """The numbers of the samples that pass steps, found by reading what the steps look at."""
        found = [np.zeros(0, np.int64)]
        before_list = len(steps) <= len(split_at_list(self.steps)[0])  # else reading in order finds them again
        write_ledger = self._write_ledger if before_list else None
        columns = None if has_map(steps) else [] if write_ledger is None else self._keys()
        outcomes, reported = Outcomes(write_ledger), Counter[str]()
        with self._shards.passes.during("choosing samples"), self._shards.reporting_to(reported):
            for traced in self.traced_batches(columns, steps=steps, empty=True, outcomes=outcomes):
                if traced.samples is None:
                    raise other_count()
                found.append(traced.samples)
        if before_list:
            self.outcomes.add_json(outcomes.to_json())
            self.reported |= reported
        return np.concatenate(found)

    def _keys(self) -> list[str]:
        """The column that names samples, if they have one."""
        layout = self._shards.row_layout
        return [layout.key] if layout.is_keyed or self.has_keys() else []

    def made(self, numbers: NDArray[np.int64], steps: Sequence[Step], columns: Sequence[str] | None) -> pa.Table:
        """Samples of the source by number, as first steps make them; see `SourceRows.made`."""
        kept = self._spools(0, len(steps))
        return self._source.made(numbers, steps, columns, self._map_schemas, spools=kept)

    def _is_kept(self, place: int) -> bool:
        """Whether what the function of a step makes is kept in any case: a step behind it needs all samples."""
        return any(later.needs_all for later in self.steps[place + 1 :])

    def _spools(self, first: int, stop: int, *, looks: bool = False, passes: bool = False) -> list[StepSpool | None]:
        """What the functions of some steps made, where that is kept.

        It is kept of functions before a step that needs all samples. Of others a look is kept, for the pass that
        follows alone: a function may give other values in each pass.
        """
        found: list[StepSpool | None] = []
        for place, step in enumerate(self.steps[first:stop], first):
            if not step.is_spooled:
                found.append(None)
            elif looks or self._is_kept(place):
                found.append(self.spool.of(place))
            else:
                found.append(self.spool.forget(place) if passes else None)
        return found


class _Look:
    """Reads values of the samples behind the first steps of a dataset; see `_core.dataset.order.numbers.Look`."""

    def __init__(self, chosen: ChosenSamples, shards: Shards, steps: Sequence[Step]) -> None:
        self._chosen, self._shards, self._steps = chosen, shards, steps

    @property
    def key(self) -> str | None:
        """Name of the column of keys; None if the samples have none."""
        layout = self._shards.row_layout
        return layout.key if layout.is_keyed or self._chosen.has_keys() else None

    def report(self, what: str, count: int) -> None:
        """Count something that the user should know of."""
        self._shards.counts[what] += count

    def leave_out(self, reason: str, numbers: NDArray[np.int64], kept: NDArray[np.int64]) -> None:
        """Note samples that are left out for others that are kept."""
        self._chosen.left_out[len(self._steps)] = LeftOut(reason, numbers, kept)

    def digests(self) -> Iterator[NDArray[np.uint8]]:
        """Yield the content digests of the samples without their keys."""
        shards = self._shards
        if self._steps:
            traced_batches = self._chosen.traced_batches(None, DIGEST_ROWS, DIGEST_BYTES, views=True, steps=self._steps)
            found = digests_of_batches(shards, (traced.batch for traced in traced_batches), with_key=False)
        else:
            found = digests_of(shards, range(len(shards.listing)), with_key=False)
        for part in found:
            yield part.digests

    def __call__(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        view = self._shards.view
        columns = self._chosen.columns_behind(names, self._steps)
        absent = AbsentFields(names)
        for traced in self._chosen.traced_batches(columns, steps=self._steps):
            with traced.naming_rows():
                values = sample_values(traced.batch, names, view, self._shards.fetcher)
            absent.see(traced.batch.schema.names, values)
            yield values
        absent.refuse(self._shards)

    def rows(self, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        for traced in self._chosen.traced_batches(columns, steps=self._steps):
            yield traced.batch


def split_at_list(steps: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    """The steps up to the last one that needs all samples, and the steps behind it.

    Steps that directly follow and only count samples, or choose columns, belong to the first part.
    """
    last = max((i + 1 for i, step in enumerate(steps) if step.needs_all), default=0)
    for i, step in enumerate(steps[last:], last) if last else ():
        if step.over_numbers:
            last = i + 1
        elif not _changes_columns(step):
            break
    return steps[:last], steps[last:]


def _changes_columns(step: Step) -> bool:
    """Whether a step changes columns, and keeps all samples."""
    return step.changes_columns and step.keeps_samples


def _may_leave_out(step: Step) -> bool:
    """Whether only a pass over the rows tells which samples are left behind a step, or how many there are."""
    return not (step.keeps_samples or step.over_numbers)


def has_open_types(schema: pa.Schema, before: pa.Schema) -> bool:
    """Whether columns that a function added are null in all rows so far."""
    return any(pa.types.is_null(field.type) and field.name not in before.names for field in schema)


def _before_repeats(numbers: NDArray[np.int64]) -> int:
    """How many of the numbers come before the first one that is repeated."""
    _, firsts = np.unique(numbers, return_index=True)
    again = np.ones(len(numbers), np.bool_)
    again[firsts] = False
    return int(np.argmax(again)) if again.any() else len(numbers)


def in_order(batch: pa.RecordBatch, columns: Sequence[str], view: str) -> pa.RecordBatch:
    """The batch with the columns that are asked for, in this order; of items with those that tell them apart."""
    for name in columns:
        if name not in batch.schema.names:
            raise UsageError("no such column", expected=", ".join(batch.schema.names), found=repr(name))
    first = [name for name in row_layout(view).placing if name in batch.schema.names]
    return batch.select(list(dict.fromkeys([*first, *columns])))
