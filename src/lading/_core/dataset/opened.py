"""A dataset that is open in this process: its shards, and what reads them behind its steps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.predicates import Predicate
from lading._core.content.field_paths import FieldPath, parse_field
from lading._core.content.media_files import Opening
from lading._core.content.nested import empty_batch, field_named
from lading._core.dataset import shown
from lading._core.dataset.column_values import Column
from lading._core.dataset.layout import Layout, layout_of
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.order.chosen_access import access_to
from lading._core.dataset.order.numbers import numbers_at
from lading._core.dataset.query import HoldsQuery, Query, Queryable
from lading._core.dataset.sample_list import SampleList
from lading._core.dataset.shards import iteration
from lading._core.dataset.shards.iteration import Batching
from lading._core.dataset.shards.sample_access import ordinals
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.pruning import shards_that_fit, shards_that_pass
from lading._core.dataset.source.source import Source
from lading._core.dataset.steps.base import Step, no_such_column
from lading._core.dataset.steps.cast_step import flat_fields
from lading._core.dataset.steps.column_steps import Drop, Select
from lading._core.dataset.steps.field_steps import Fields, fields_among, typed_fields
from lading._core.dataset.steps.key_steps import Join
from lading._core.dataset.steps.media_steps import MediaFiles, MediaUrls, media_names
from lading._core.dataset.steps.order_steps import Rows, Sort
from lading._core.dataset.steps.sequence import has_map, without_unasked
from lading._core.dataset.transform.unlisted_fields import listed_fields, with_needed_fields
from lading._core.dataset.values.absent_fields import AbsentFields
from lading._core.dataset.values.field_values import columns_of, field_type, field_values, lacks_child
from lading._core.dataset.values.python_values import rows_as_dicts, samples_as_dicts
from lading._core.dataset.values.sample_values import sample_values
from lading._core.dataset.writing.outcomes import Outcomes
from lading._core.features.items import KEY
from lading._core.manifest.values import lookup
from lading._core.storage.roots import absolute_path, folder_of
from lading._core.units import parse_bytes
from lading._core.visible import visible_lines
from lading.errors import LadingError, UsageError
from lading.options import OnError, ReadOptions

__all__ = ["OpenDataset", "opened"]

_DOCUMENT_ROWS = 64
_TYPED_ROWS = 1024
_SHOWN_KEYS = 3


class OpenDataset(HoldsQuery):
    """The samples of a query: what training and jobs read, and what a dataset of the user stands on.

    Steps give another one, which shares the open shards. A copy made by pickle opens the source again.

    Attributes:
        shards: the shards of the source, open.
        fitting: those of them whose partition fits the steps.
        chosen: the samples behind the steps, with what their functions made already; None without such steps.
        access: the samples by number and by key.
        media: how samples give media; None for bytes.
    """

    __slots__ = ("_counts", "_query", "access", "chosen", "fitting", "media", "shards")

    def __init__(self, query: Query, shards: Shards, *, media: Opening | None = "upright") -> None:
        self._query, self.media, self.shards = query.replace(), media, shards
        self.fitting = fitting = shards_that_fit(shards, query.steps)
        self._counts = Counter(fitting.listing.left_out)
        chooses = any(step.cut is None for step in query.steps)
        self.chosen = ChosenSamples(fitting, query.steps) if chooses else None
        self.access = access_to(fitting, self.chosen, media=media)

    @classmethod
    def of(cls, query: Query) -> OpenDataset:
        """Open a query. Its options of reading then say the format and the view that were found."""
        shards = query.source.open(query.read)
        return cls(query.reading(format=shards.format, view=shards.view if shards.view_is_known else None), shards)

    @property
    def query(self) -> Query:
        """The dataset as a value."""
        return self._query.replace(opened=self)

    @property
    def opening(self) -> Opening:
        """How functions over samples get images."""
        return self.media or "upright"

    def of_first_shards(self, count: int) -> OpenDataset:
        """Return the dataset as it would be without the shards behind the first ones."""
        shards = self.fitting
        table, counts = shards.listing.table.slice(0, count), np.diff(shards.sample_ends()[:count], prepend=0)
        place = table.schema.get_field_index("num_samples")
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array(counts, field.type))
        return OpenDataset(self._query, shards.with_listing(table, {}), media=self.media)

    # With other steps

    def with_steps(self, *steps: Step) -> OpenDataset:
        """Return the dataset with more steps."""
        return self._reading(*with_needed_fields(self._query.read, (*self._query.steps, *steps)))

    def with_media(self, media: Opening | None) -> OpenDataset:
        """Return the dataset with media that samples give in another way."""
        return OpenDataset(self._query, self.shards, media=media)

    def passing(self, predicate: Predicate) -> OpenDataset:
        """Return the dataset without some of the rows that fail a predicate; the caller drops the others."""
        shards = shards_that_pass(self.fitting, self._query.steps, predicate)
        return self if shards is self.fitting else OpenDataset(self._query, shards, media=self.media)

    def selected(self, columns: tuple[str, ...]) -> OpenDataset:
        """Return the dataset with these columns, or fields inside columns, alone."""
        return self.with_fields(columns).with_steps(Select(columns))

    def with_fields(self, columns: Sequence[str]) -> OpenDataset:
        """Return the dataset with further columns for those of these that are fields inside columns."""
        fields = self._fields(columns)
        return self if fields is None else self.with_steps(fields)

    def with_media_from(
        self, column: str, name: str | None, *, fetch: bool, fetch_private: bool, on_error: OnError
    ) -> OpenDataset:
        """Return the dataset with the files that a column names; see `Dataset.media_from`."""
        schema = self.first_schema
        if column not in schema.names:
            schema = self.schema_with([column])
        if column not in schema.names:
            raise no_such_column(column, schema.names)
        if fetch_private and not fetch:
            raise UsageError("fetch_private goes with fetch", found="--fetch-private alone", advice="Add --fetch.")
        first = next((b for b in self.looked_at(_TYPED_ROWS, [column]) if b.column(column).null_count < len(b)), None)
        values = first.column(column).drop_null() if first is not None else pa.array([], pa.string())
        facts = (column, *media_names(column, name, values), on_error)
        if fetch:
            step: Step = MediaUrls(*facts, private=fetch_private)
        else:
            paths = self.shards.listing.table.column("path").to_pylist()
            own = {absolute_path(folder_of(path)) or os.getcwd() for path in paths}
            roots = [absolute_path(root) for root in self.shards.named_roots]
            step = MediaFiles(*facts, folders=tuple(sorted(own)), roots=tuple(roots))
        step.schema_after(schema, self.view)
        return self.with_steps(step)

    def flattened(self, columns: Sequence[str]) -> OpenDataset:
        """Return the dataset with a column for each field of these columns of structs; of all such columns if none."""
        steps = [step for name, fields in self._flat(columns).items() for step in (fields, Drop((name,)))]
        return self.with_steps(*steps)

    def at(self, index: slice | Sequence[int] | NDArray[np.int64]) -> OpenDataset:
        """Return the dataset of the samples of a slice, or of a list of numbers."""
        if isinstance(index, slice):
            return self.with_steps(Rows(index.start, index.stop, index.step))
        return self.with_steps(Rows(numbers=tuple(ordinals(index).tolist())))

    def _reading(self, read: ReadOptions, steps: tuple[Step, ...]) -> OpenDataset:
        """The dataset with these steps, and perhaps other fields of documents."""
        fields = listed_fields(read)
        shards = self.shards if fields == listed_fields(self._query.read) else self.shards.with_fields(fields)
        other = OpenDataset(self._query.replace(read=read, steps=steps), shards, media=self.media)
        return other.following(self, len(self._behind_steps.steps))

    def divided(self, steps: Mapping[str, Step]) -> dict[str, OpenDataset]:
        """Return datasets that have one of these steps each, and share what functions before it make."""
        parts = {name: self.with_steps(step) for name, step in steps.items()}
        first, count = next(iter(parts.values())), len(self._behind_steps.steps)
        return {name: part.following(first, count) for name, part in parts.items()}

    def following(self, before: OpenDataset, count: int) -> OpenDataset:
        """Return the dataset with what the functions of so many first steps made for another one."""
        chosen = before.chosen
        if self.chosen is not None and chosen is not None and self is not before:
            self.chosen.follow(chosen, count)
        return self

    def _looking_at(self, names: Sequence[str]) -> OpenDataset:
        """The dataset with these columns too, where `fields` leaves them out: to look at their values."""
        read, _ = with_needed_fields(self._query.read, (*self._query.steps, Sort.of(names, descending=False)))
        same = listed_fields(read) == listed_fields(self._query.read)
        return self if same else self._reading(read, without_unasked(self._query.steps))

    def other(self, source: Source, view: str) -> OpenDataset:
        """Open another source, with the stores of this one."""
        return OpenDataset.of(Query.of(source, view=view, stores=self._query.read.stores))

    def field(self, name: str) -> str:
        """Return the field that a user names: `key` is the key of samples, where no column is called so."""
        if name not in ("key", KEY):
            return name
        layout = self.shards.row_layout
        if layout.is_keyed:
            return layout.key
        names = self.shards.schema.names
        return "key" if name == "key" and "key" in names and KEY not in names else KEY

    def refuse_absent(self, names: Sequence[str], schema: pa.Schema | None = None) -> None:
        """Raise UsageError if no sample has a value of one of these fields inside columns."""
        looked_at = self._looking_at(names)
        if looked_at is not self:
            looked_at.refuse_absent(names)
            return
        schema = self.first_schema if schema is None else schema
        if not {*columns_of(names, schema)} <= {*schema.names}:
            schema = self.schema_with([*names, *columns_of(names)])
        listed = [name for name in listed_fields(self._query.read) or () if name in schema.names]
        lacked = {name for name in listed if pa.types.is_null(schema.field(name).type)}
        paths = {n: path for n in names if (path := parse_field(n, schema.names)).path or n in lacked}
        if not paths:
            return
        absent, whole = AbsentFields([*paths]), dict[str, pa.Schema]()
        looked = self._behind_steps
        columns = columns_of(paths, schema)
        for traced in looked.traced_batches(columns, _TYPED_ROWS, self._most_bytes, steps=looked.steps):
            batch = traced.batch
            lacking = {name for name, path in paths.items() if _lacks(batch, path)}
            for name in lacking - {*whole}:
                whole[name] = self.schema_with([paths[name].column], whole=True)
                field_type(field_named(whole[name], paths[name]), paths[name].path)  # raises if no shard has the field
            with traced.naming_rows():
                found = field_values(batch, [name for name in paths if name not in lacking], self.shards.fetcher)
            absent.see(batch.schema.names, [pa.nulls(batch.num_rows) if n in lacking else found.pop(0) for n in paths])
            if not absent.left:
                return
        absent.refuse(self.shards)

    def refuse_unmatched(self, join: Join) -> None:
        """Raise UsageError if no sample of the source has a row in the table of a join."""
        looked_at = self._looking_at([join.on])
        if looked_at is not self:
            looked_at.refuse_unmatched(join)
            return
        if has_map(self._query.steps):  # the function would run twice
            return
        # Steps that choose samples may take long, and a sample that they leave has a row only if one of the source has.
        steps = [step.without_choice() for step in self._query.steps if step.changes_columns]
        chosen, found = ChosenSamples(self.shards, steps), list[object]()
        columns = chosen.columns_behind([join.on], steps)
        for traced in chosen.traced_batches(columns, _TYPED_ROWS, steps=steps):
            with traced.naming_rows():
                [keys] = sample_values(traced.batch, [join.on], self.view, self.shards.fetcher)
            if (join.table.find(keys, join.on) >= 0).any():
                return
            found = found or keys.slice(0, _SHOWN_KEYS).to_pylist()
        if found:
            raise join.table.no_match(join.on, found)

    def schema_with(self, names: Sequence[str] | None, *, whole: bool = False) -> pa.Schema:
        """Return the columns behind the steps with those of the names that any shard has; `whole` asks all shards."""
        chosen = ChosenSamples(self.fitting, ()) if self.chosen is None else self.chosen
        return chosen.schema_with(names, whole=whole)

    def _fields(self, columns: Sequence[str]) -> Fields | None:
        names = [name for name in columns if isinstance(name, str) and ("." in name or "[" in name)]
        if not names:
            return None
        schema = self.first_schema
        if not {*columns_of(names, schema)} <= {*schema.names}:
            schema = self.schema_with([*names, *columns_of(names)])
        wanted = fields_among(columns, schema)
        if not wanted:
            return None
        firsts = self._first_rows(wanted, schema)
        step = typed_fields(wanted, firsts, self.shards.fetcher)
        self.refuse_absent(list(wanted), schema)
        return step

    def _first_rows(self, wanted: Mapping[str, FieldPath], schema: pa.Schema) -> dict[str, pa.RecordBatch]:
        """Rows with values of each column that holds these fields; none where all shards must be asked for its type."""
        columns = list(dict.fromkeys(path.column for path in wanted.values()))
        found: dict[str, pa.RecordBatch] = {}
        for batch in self.looked_at(_TYPED_ROWS, columns):
            there = (name for name in columns if name in batch.schema.names and name not in found)
            found |= {name: batch for name in there if batch.column(name).null_count < batch.num_rows}
            if len(found) == len(columns):
                break
        found = {name: found.get(name, empty_batch(schema)) for name in columns}
        if lacking := [path.column for path in wanted.values() if _lacks(found[path.column], path)]:
            whole = empty_batch(self.schema_with(lacking, whole=True))
            found |= dict.fromkeys(lacking, whole)
        return found

    def _flat(self, columns: Sequence[str]) -> dict[str, Fields]:
        schema = self.schema_with(columns or None, whole=True)
        names = columns or [each.name for each in schema if pa.types.is_struct(each.type)]
        absent = next((name for name in names if name not in schema.names), None)
        if absent is not None:
            raise UsageError("no such column", expected=", ".join(schema.names), found=repr(absent))
        key = [KEY] if KEY in schema.names else []
        looked = self._behind_steps
        looks = {
            name: looked.traced_with_bytes([*key, name], iteration.MAX_ROWS, self._most_bytes, self.policy)
            for name in names
        }
        return {name: flat_fields(name, schema.field(name), found) for name, found in looks.items()}

    def __reduce__(self) -> tuple[Callable[..., OpenDataset], tuple[object, ...]]:
        return _opened_again, (self._query, self.media)

    # What it is

    @property
    def view(self) -> str:
        """How rows are taken."""
        return self.shards.view

    @property
    def schema(self) -> pa.Schema:
        """The columns behind the steps; those of the first shard where `schema_is_partial`."""
        return self.fitting.whole.schema if self.chosen is None else self.chosen.whole_schema

    @property
    def schema_is_partial(self) -> bool:
        """Whether `schema` is that of the first shard, and other shards may hold more columns or other types."""
        return self.fitting.whole.is_partial

    @property
    def first_schema(self) -> pa.Schema:
        """The columns behind the steps, as far as the manifest or the first shard says them."""
        return self.shards.schema if self.chosen is None else self.chosen.schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns of `schema`."""
        return list(self.schema.names)

    @property
    def layout(self) -> Layout:
        """How samples lie: bounds of shards, sizes, what is read at once, a fingerprint. Opens one shard."""
        return layout_of(self.fitting, self.chosen)

    @property
    def counts(self) -> Counter[str]:
        """What `batches` or a loop over samples left out and reported, the last one that began, by a short phrase."""
        return Counter(self._counts)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns that the first samples show."""
        return shown.column_names(self.shards, self.chosen)

    def __repr__(self) -> str:
        return visible_lines(shown.as_text(self.shards, self._query, self.chosen))

    def html(self) -> str:
        """Return the same for notebooks, with the first samples."""
        return visible_lines(shown.as_html(self.shards, self._query, self.chosen))

    # Rows in order

    def batches(
        self,
        *,
        max_rows: int = iteration.MAX_ROWS,
        max_bytes: int | str | None = None,
        columns: Sequence[str] | None = None,
        lazy: bool = False,
        views: bool = False,
        on_error: OnError | None = None,
        shards_per_batch: int | None = 1,
        fields: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, as `Dataset.batches`."""
        read = self if fields is None else self._with_fields(fields)
        most = self._most_bytes if max_bytes is None else max_bytes
        how = Batching(max_rows, most, columns, lazy, views, on_error or self.policy, shards_per_batch)
        return self._counted(read, how)

    def _counted(self, read: OpenDataset, how: Batching) -> Iterator[pa.RecordBatch]:
        """The rows of a dataset by the batch; `counts` of this one say what was left out and reported so far."""
        shards, chosen, outcomes, reported = read.fitting, read.chosen, Outcomes(), Counter[str]()
        found = read._in_order(how, outcomes)
        counts = self._counts = Counter(shards.listing.left_out)
        while True:
            try:
                with shards.reporting_to(reported):
                    batch = next(found, None)
            finally:
                again = Counter[str]() if chosen is None else chosen.reported
                counts.clear()
                counts.update(Counter(shards.listing.left_out) + outcomes.counts + (reported | again))
            if batch is None:
                return
            yield batch
            del batch  # before as much is read again

    def _in_order(self, how: Batching, outcomes: Outcomes) -> Iterator[pa.RecordBatch]:
        if self.chosen is None:
            return iteration.batches(self.shards, how, outcomes)
        return self.chosen.batches(how, outcomes)

    @property
    def key(self) -> str | None:
        """Name of the column of keys; None if the samples have none."""
        layout = self.shards.row_layout
        if layout.is_keyed:
            return layout.key
        is_known = self.shards.knows_schema or has_map(self._query.steps)
        names = self.first_schema.names if is_known else self.column_names  # a tar is not read for its schema
        return layout.key if layout.key in names else None

    def values(self, names: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield the values of columns, or of fields inside them, of all samples in order; see `order.numbers.Look`."""
        looked_at = self._looking_at(names)
        return (looked_at.chosen or ChosenSamples(looked_at.fitting, ())).look()(names)

    @property
    def _behind_steps(self) -> ChosenSamples:
        return self.chosen or ChosenSamples(self.fitting, ())

    def looked_at(
        self, max_rows: int, columns: Sequence[str] | None, *, lazy: bool = True, on_error: OnError | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows by the batch, for a look that `counts` do not show."""
        how = Batching(max_rows, self._most_bytes, columns, lazy, on_error=on_error or self.policy)
        return self._in_order(how, Outcomes())

    @property
    def _most_bytes(self) -> int:
        most = self._query.read.max_batch_bytes
        return iteration.MAX_BYTES if most is None else parse_bytes(most)

    @property
    def policy(self) -> OnError:
        """What is done about a row whose payload is unavailable."""
        return self._query.read.on_materialize_error or "error"

    def _with_fields(self, fields: Sequence[str]) -> OpenDataset:
        """This dataset with other passthrough columns of documents."""
        read = replace(self._query.read, fields=tuple(fields))
        read, steps = with_needed_fields(read, without_unasked(self._query.steps))
        return OpenDataset.of(self._query.replace(read=read, steps=steps))

    def samples(self, *, raw: bool = False) -> Iterator[dict[str, Any]]:
        """Yield all samples in order, each as `ds[i]` gives it; with `raw` every value as its column has it."""
        if self.shards.has_items:
            if raw:
                raise UsageError("raw is for rows that are samples", found="raw=True for documents",
                                 advice="Write with_decode(False) for the bytes of items.")  # fmt: skip
            for batch in self.batches(views=True):
                yield from samples_as_dicts(self.shards, pa.Table.from_batches([batch]), media=self.media)
            return
        for batch in self.batches(lazy=True):
            yield from rows_as_dicts(self.shards, batch, raw=raw, media=None if raw else self.media)

    def head(self, count: int = 5) -> SampleList:
        """Return the first samples, as `Dataset.head`."""
        found: list[dict[str, Any]] = []
        labels: dict[str, Sequence[str]] = {}
        rows = _DOCUMENT_ROWS if self.shards.has_items else max(count, 1)
        for batch in self.looked_at(rows, None, lazy=False, on_error="warn"):
            labels |= shown.labels_of(batch.schema)
            table = pa.Table.from_batches([batch])
            found += samples_as_dicts(self.shards, table, media=self.media, keep_broken=True)
            if len(found) >= count:
                break
        return SampleList(found[:count], labels)

    # Samples by number

    def __len__(self) -> int:
        return len(self.access)

    def column(self, name: str) -> Column:
        """Return the values of a column, or of a field inside one. Raises UsageError if there is none."""
        return Column.of(self, name, self.column_names, self.schema_with, partial(self._first_values, name))

    def _first_values(self, name: str) -> shown.FirstValues:
        """The first values of a column, or of a field inside one, to be shown."""
        if not shown.are_near(self.shards, self._query.steps):  # to make a column of a field may call a function
            return shown.FirstValues(name, self.shards, self._query.steps)
        try:
            return shown.FirstValues(name, self.shards, self.selected((name,)).query.steps)
        except LadingError as error:
            return shown.FirstValues(name, self.shards, self._query.steps, str(error))

    def take(
        self,
        indices: int | Sequence[int] | NDArray[np.int64],
        columns: Sequence[str] | None = None,
        *,
        views: bool = False,
    ) -> pa.Table:
        """Return rows of samples by number, as `Dataset.take`."""
        return self.access.take(indices, columns, views=views)

    def lazily(self, indices: Sequence[int] | NDArray[np.int64], columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of samples by number, as `take`, with payload as references where the format has them."""
        return self.access.lazily(indices, columns)

    def as_samples(self, rows: pa.Table) -> list[dict[str, Any]]:
        """Return the samples of rows that `take` gave, each a dict as `ds[i]` gives it; media are bytes.

        Neighbours of one `sample_id` are one document.
        """
        return samples_as_dicts(self.shards, rows)

    def materialise(
        self,
        batch: pa.RecordBatch,
        *,
        columns: Sequence[str] | None = None,
        views: bool = False,
        on_error: OnError = "error",
    ) -> pa.RecordBatch:
        """Return a lazy batch of this dataset with its payload in the place of references; of some columns, or all."""
        return self.shards.fetcher.materialise(batch, columns, on_error=on_error, views=views)

    def place_of(self, index: int) -> tuple[str, int]:
        """Return the file of a sample, and its number in that file. Raises IndexError."""
        numbers = range(len(self)) if self.chosen is None else self.chosen.numbers
        number = numbers_at(numbers, ordinals([index]))
        shard, row = lookup(self.fitting.sample_ends(), number)
        return self.fitting.path(int(shard[0])), int(row[0])


def opened(source: Queryable, **opening: Any) -> OpenDataset:
    """Return a dataset that is open already, or open what is named with the other arguments of `lading.open`."""
    query = Query.of(source, **opening)
    return OpenDataset.of(query) if query.opened is None else query.opened


def _opened_again(query: Query, media: Opening | None) -> OpenDataset:
    """Open a dataset in another process."""
    return OpenDataset.of(query).with_media(media)


def _lacks(batch: pa.RecordBatch, path: FieldPath) -> bool:
    """Whether rows lack the column of a field, or have structs without the field."""
    return path.column not in batch.schema.names or lacks_child(field_named(batch.schema, path), path)
