"""A dataset as users hold it: a source, how it is read, and the steps that choose and change its rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.content.field_paths import FieldPath, parse_field
from lading._core.content.media_files import Opening
from lading._core.content.nested import empty_batch, field_named
from lading._core.dataset import shown
from lading._core.dataset.column_values import Column
from lading._core.dataset.key_verbs import KeyVerbs
from lading._core.dataset.layout import Layout, layout_of
from lading._core.dataset.layout_verbs import LayoutVerbs
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.order.chosen_access import access_to
from lading._core.dataset.order.numbers import numbers_at
from lading._core.dataset.order_verbs import OrderVerbs
from lading._core.dataset.query import HoldsQuery, Query
from lading._core.dataset.sample_list import SampleList
from lading._core.dataset.shards import iteration
from lading._core.dataset.shards.bad_shards import SkippedShard
from lading._core.dataset.shards.iteration import Batching
from lading._core.dataset.shards.sample_access import SampleAccess, ordinals
from lading._core.dataset.shards.shard import ShardList
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.pruning import shards_that_fit
from lading._core.dataset.source.source import Source
from lading._core.dataset.step_verbs import StepVerbs
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.cast_step import flat_fields
from lading._core.dataset.steps.field_steps import Fields, fields_among, typed_fields
from lading._core.dataset.steps.key_steps import Join
from lading._core.dataset.steps.order_steps import Rows, Sort
from lading._core.dataset.steps.sequence import has_map, without_unasked
from lading._core.dataset.transform.unlisted_fields import listed_fields, with_needed_fields
from lading._core.dataset.values.absent_fields import AbsentFields
from lading._core.dataset.values.field_values import columns_of, field_type, field_values, lacks_child
from lading._core.dataset.values.python_values import rows_as_dicts, samples_as_dicts
from lading._core.dataset.values.sample_values import sample_values
from lading._core.dataset.writing.outcomes import Outcomes
from lading._core.features.items import KEY
from lading._core.formats.registry import format_of_name
from lading._core.manifest.values import lookup
from lading._core.units import parse_bytes
from lading._core.visible import visible_lines
from lading.errors import LadingError, UsageError
from lading.options import OnError, ReadOptions

if TYPE_CHECKING:
    from lading._core.jobs.convert.summary import ConvertSummary
    from lading._core.jobs.dataset.export import ExportSummary
    from lading._core.jobs.stats.values import Stats
    from lading._core.train.loader import Loader

__all__ = ["Dataset"]

_DOCUMENT_ROWS = 64
_TYPED_ROWS = 1024
_SHOWN_KEYS = 3


class Dataset(StepVerbs, OrderVerbs, KeyVerbs, LayoutVerbs, HoldsQuery):
    """A source, how it is read, and steps. Immutable: every step gives a new dataset, and reads nothing.

    Rows are read when they are iterated, taken by number, written, or looked at. Datasets can be pickled: another
    process opens the source again.

    Example:
        ds = lading.open("docs/*.parquet").where("lang == 'en'").select("text")
        ds.write("english", format="jsonl")
    """

    __slots__ = (
        "_access", "_chosen", "_counts", "_fitting", "_media", "_query", "_sample", "_shards",
    )  # fmt: skip

    def __init__(self, query: Query, shards: Shards, *, media: Opening | None = "upright") -> None:
        """Made by `lading.open`.

        Args:
            query: the dataset as a value.
            shards: its shards, open.
            media: how samples give media; None for bytes.
        """
        self._query, self._media, self._shards = query.replace(), media, shards
        self._fitting = fitting = shards_that_fit(shards, query.steps)
        self._counts = Counter(fitting.listing.left_out)
        chooses = any(step.cut is None for step in query.steps)
        self._chosen = ChosenSamples(fitting, query.steps) if chooses else None
        self._access = access_to(fitting, self._chosen, media=media)
        self._sample = self._access.sample

    @classmethod
    def _of(cls, query: Query) -> Self:
        """Open a query. Its options of reading then say the format and the view that were found."""
        shards = query.source.open(query.read)
        return cls(query.reading(format=shards.format, view=shards.view if shards.view_is_known else None), shards)

    @property
    def query(self) -> Query:
        """The dataset as a value: a source, how it is read, and the steps.

        Example: `ds.limit(3).query.steps == (Limit(3),)`
        """
        return self._query.replace(opened=self)

    def _with(self, *steps: Step) -> Self:
        return self._reading(*with_needed_fields(self.read, (*self.steps, *steps)))

    def _reading(self, read: ReadOptions, steps: tuple[Step, ...]) -> Self:
        """The dataset with these steps, and perhaps other fields of documents."""
        fields = listed_fields(read)
        shards = self._shards if fields == listed_fields(self.read) else self._shards.with_fields(fields)
        other = type(self)(self._query.replace(read=read, steps=steps), shards, media=self._media)
        return other._following(self, len(self._behind_steps.steps))  # noqa: SLF001 - of the same class

    def _divided(self, steps: Mapping[str, Step]) -> dict[str, Self]:
        """Datasets that have one of these steps each, and share what functions before it make."""
        parts = {name: self._with(step) for name, step in steps.items()}
        first, count = next(iter(parts.values())), len(self._behind_steps.steps)
        return {name: part._following(first, count) for name, part in parts.items()}  # noqa: SLF001 - of the same class

    def _following(self, before: Dataset, count: int) -> Self:
        """The dataset with what the functions of so many first steps made for another one."""
        chosen = before._chosen
        if self._chosen is not None and chosen is not None and self is not before:
            self._chosen.follow(chosen, count)
        return self

    def _looking_at(self, names: Sequence[str]) -> Self:
        """The dataset with these columns too, where `fields` leaves them out: to look at their values."""
        read, _ = with_needed_fields(self.read, (*self.steps, Sort.of(names, descending=False)))
        same = listed_fields(read) == listed_fields(self.read)
        return self if same else self._reading(read, without_unasked(self.steps))

    def _open_other(self, source: Source, view: str) -> Dataset:
        return self._of(Query.of(source, view=view, stores=self.read.stores))

    def _field(self, name: str) -> str:
        if name not in ("key", KEY):
            return name
        layout = self._shards.row_layout
        if layout.is_keyed:
            return layout.key
        names = self._shards.schema.names
        return "key" if name == "key" and "key" in names and KEY not in names else KEY

    def _refuse_absent(self, names: Sequence[str], schema: pa.Schema | None = None) -> None:
        looked_at = self._looking_at(names)
        if looked_at is not self:
            looked_at._refuse_absent(names)  # noqa: SLF001 - of the same class
            return
        schema = self._first_schema if schema is None else schema
        if not {*columns_of(names, schema)} <= {*schema.names}:
            schema = self._schema_with([*names, *columns_of(names)])
        lacked = {
            n for n in listed_fields(self.read) or () if n in schema.names and pa.types.is_null(schema.field(n).type)
        }
        paths = {n: path for n in names if (path := parse_field(n, schema.names)).path or n in lacked}
        if not paths:
            return
        absent, whole = AbsentFields([*paths]), dict[str, pa.Schema]()
        looked = self._behind_steps
        columns = columns_of(paths, schema)
        for portion in looked.portions(columns, _TYPED_ROWS, self._most_bytes, steps=looked.steps):
            batch = portion.batch
            lacking = {name for name, path in paths.items() if _lacks(batch, path)}
            for name in lacking - {*whole}:
                whole[name] = self._schema_with([paths[name].column], whole=True)
                field_type(field_named(whole[name], paths[name]), paths[name].path)  # raises if no shard has the field
            with portion.naming_rows():
                found = field_values(batch, [name for name in paths if name not in lacking], self._shards.fetcher)
            absent.see(batch.schema.names, [pa.nulls(batch.num_rows) if n in lacking else found.pop(0) for n in paths])
            if not absent.left:
                return
        absent.refuse(self._shards)

    def _refuse_unmatched(self, join: Join) -> None:
        looked_at = self._looking_at([join.on])
        if looked_at is not self:
            looked_at._refuse_unmatched(join)  # noqa: SLF001 - of the same class
            return
        if has_map(self.steps):  # the function would run twice
            return
        # Steps that choose samples may take long, and a sample that they leave has a row only if one of the source has.
        steps = [step.without_choice() for step in self.steps if step.changes_columns]
        chosen, found = ChosenSamples(self._shards, steps), list[object]()
        columns = chosen.columns_behind([join.on], steps)
        for portion in chosen.portions(columns, _TYPED_ROWS, steps=steps):
            with portion.naming_rows():
                [keys] = sample_values(portion.batch, [join.on], self.view, self._shards.fetcher)
            if (join.table.find(keys, join.on) >= 0).any():
                return
            found = found or keys.slice(0, _SHOWN_KEYS).to_pylist()
        if found:
            raise join.table.no_match(join.on, found)

    def _schema_with(self, names: Sequence[str] | None, *, whole: bool = False) -> pa.Schema:
        chosen = ChosenSamples(self._fitting, ()) if self._chosen is None else self._chosen
        return chosen.schema_with(names, whole=whole)

    def _fields(self, columns: Sequence[str]) -> Fields | None:
        names = [name for name in columns if isinstance(name, str) and ("." in name or "[" in name)]
        if not names:
            return None
        schema = self._first_schema
        if not {*columns_of(names, schema)} <= {*schema.names}:
            schema = self._schema_with([*names, *columns_of(names)])
        wanted = fields_among(columns, schema)
        if not wanted:
            return None
        firsts = self._first_rows(wanted, schema)
        step = typed_fields(wanted, firsts, self._shards.fetcher)
        self._refuse_absent(list(wanted), schema)
        return step

    def _first_rows(self, wanted: Mapping[str, FieldPath], schema: pa.Schema) -> dict[str, pa.RecordBatch]:
        """Rows with values of each column that holds these fields; none where all shards must be asked for its type."""
        columns = list(dict.fromkeys(path.column for path in wanted.values()))
        found: dict[str, pa.RecordBatch] = {}
        for batch in self._looked_at(_TYPED_ROWS, columns):
            there = (name for name in columns if name in batch.schema.names and name not in found)
            found |= {name: batch for name in there if batch.column(name).null_count < batch.num_rows}
            if len(found) == len(columns):
                break
        found = {name: found.get(name, empty_batch(schema)) for name in columns}
        if lacking := [path.column for path in wanted.values() if _lacks(found[path.column], path)]:
            whole = empty_batch(self._schema_with(lacking, whole=True))
            found |= dict.fromkeys(lacking, whole)
        return found

    def _flat(self, columns: Sequence[str]) -> dict[str, Fields]:
        schema = self._schema_with(columns or None, whole=True)
        names = columns or [each.name for each in schema if pa.types.is_struct(each.type)]
        absent = next((name for name in names if name not in schema.names), None)
        if absent is not None:
            raise UsageError("no such column", expected=", ".join(schema.names), found=repr(absent))
        key = [KEY] if KEY in schema.names else []
        looked = self._behind_steps
        looks = {
            name: looked.portions_with_bytes([*key, name], iteration.MAX_ROWS, self._most_bytes, self._policy)
            for name in names
        }
        return {name: flat_fields(name, schema.field(name), found) for name, found in looks.items()}

    def __reduce__(self) -> tuple[Callable[..., Dataset], tuple[object, ...]]:
        """A process that is given a dataset opens the source again, with files and maps of its own."""
        return _reopened, (type(self), self._query, self._media)

    def with_decode(self, decode: bool = True, *, upright: bool = True) -> Self:
        """The dataset with media as images, audio and videos (the default), or as the bytes that are stored.

        Text, numbers, JSON and arrays are Python values either way. `batches` and `take` always give bytes.

        Example:
            jpeg_bytes = ds.with_decode(False)[0]["jpg"]
            ds.with_decode(upright=False).map(crop_boxes)  # boxes in stored coordinates

        Args:
            decode: open media. False gives bytes.
            upright: turn images as their EXIF data say, here and for the functions of later steps. False gives pixels
                as they are stored; an image that such a function changes keeps the tag that says how to turn it.
        """
        media: Opening | None = None if not decode else "upright" if upright else "stored"
        return type(self)(self._query, self._shards, media=media)

    @property
    def _opening(self) -> Opening:
        return self._media or "upright"

    # What it is

    @property
    def source(self) -> Source:
        """The source, as `lading.open` took it."""
        return self._query.source.names

    @property
    def read(self) -> ReadOptions:
        """How the source is read."""
        return self._query.read

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in their order.

        Example: `ds.limit(3).steps == (Limit(3),)`
        """
        return self._query.steps

    @property
    def format(self) -> str:
        """Name of the shards' format.

        Example: `lading.open("docs.parquet").format == "parquet"`
        """
        return self._shards.format

    @property
    def view(self) -> str:
        """`samples`: a row is a sample. `interleaved`: a row is an item; a sample is the rows of a `sample_id`."""
        return self._shards.view

    @property
    def schema(self) -> pa.Schema:
        """The columns behind the steps. Columns of references are payload that is read when it is asked for.

        The manifest says them; else the footers of all shards of Parquet, Arrow and MDS, up to 1,000. Of other sources
        they are those of the first shard that is not empty; see `schema_is_partial`. If no type holds the values of all
        shards, a column has the type that it has in the first one. Behind a function of `map` the columns are those of
        the first batch that it returns.

        Example: `ds.schema.names`
        """
        return self._fitting.whole.schema if self._chosen is None else self._chosen.whole_schema

    @property
    def schema_is_partial(self) -> bool:
        """Whether `schema` is that of the first shard, and other shards may hold more columns or other types.

        Example: `lading.open("photos/*.tar").schema_is_partial`
        """
        return self._fitting.whole.is_partial

    @property
    def _first_schema(self) -> pa.Schema:
        """The columns behind the steps, as far as the manifest or the first shard says them."""
        return self._shards.schema if self._chosen is None else self._chosen.schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns of `schema`."""
        return list(self.schema.names)

    @property
    def layout(self) -> Layout:
        """How samples lie: bounds of shards, sizes, what is read at once, a fingerprint. Opens one shard.

        Behind conditions one pass over their columns counts the samples that are left.

        Example: `ds.layout.fingerprint`
        """
        return layout_of(self._fitting, self._chosen)

    @property
    def shards(self) -> ShardList:
        """The shards of the source, each opened when it is asked for. Steps do not change them; media are bytes.

        Example: `len(ds.shards)`, `ds.shards[0].path`
        """
        return ShardList(self._shards, SampleAccess(self._shards))

    @property
    def counts(self) -> Counter[str]:
        """What `batches` or a loop over samples left out and reported, the last one that began, by a short phrase.

        The phrases are those of `write`, for the steps and for what readers report. Files that are no shards of the
        dataset are counted from the start. Reading by number, `head` and datasets made of this one change nothing.

        Example: `list(english); english.counts["not where lang == 'en', filtered"]`
        """
        return Counter(self._counts)

    @property
    def skipped_shards(self) -> list[SkippedShard]:
        """The shards that were left out so far, in order; empty unless `on_bad_shard="skip"`.

        Example: `[(bad.file, str(bad.error)) for bad in ds.skipped_shards]`
        """
        return [bad for _, bad in sorted(self._shards.bad.skipped.items())]

    def __repr__(self) -> str:
        return visible_lines(shown.as_text(self._shards, self._query, self._chosen))

    def _repr_html_(self) -> str:
        return visible_lines(shown.as_html(self._shards, self._query, self._chosen))

    def _ipython_key_completions_(self) -> list[str]:
        return shown.column_names(self._shards, self._chosen)

    def close(self) -> None:
        """Give up open shards, maps and streams. They are opened again when something is read."""
        self._shards.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Rows in order

    def batches(  # noqa: PLR0913 - one argument a decision of the user; all by keyword
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
        max_batch_bytes: int | str | None = None,
        on_materialize_error: OnError | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order, as Arrow record batches; a sample is never cut.

        Payload columns are `large_binary`; with `views` `binary_view` over mapped files, good for use at once (the
        pages behind a batch are given back when the next is asked for); with `lazy` references, and no payload is
        read. Each batch's schema metadata names its files (`lading.source_files`). A column that appears late joins the
        schema then, and stays.

        Example: `for batch in ds.batches(max_rows=256, columns=["jpg", "cls"]): ...`

        Args:
            max_rows: rows a batch, at most (a larger interleaved sample stays whole).
            max_bytes: payload a batch, at most (a larger sample stays whole). By default 256 MB, or as opened.
            columns: columns to give, in this order; None for all.
            lazy: leave references as they are.
            views: give views instead of copies.
            on_error: for a row whose payload is unavailable: `error`, `warn` (null, and a warning), `drop_row`,
                `drop_sample`; dropped rows are counted. By default `error`, or as opened.
            shards_per_batch: consecutive shards that a batch may hold rows of, so that small files make batches as
                large as large ones do; None for as many as the limits allow.
            fields: passthrough columns of documents to give, beside the reserved ones; absent columns are nulls.
            max_batch_bytes: NeMo Curator's name of `max_bytes`.
            on_materialize_error: NeMo Curator's name of `on_error`.
        """
        read = self if fields is None else self._with_fields(fields)
        most = next(size for size in (max_bytes, max_batch_bytes, self._most_bytes) if size is not None)
        policy = on_error or on_materialize_error or self._policy
        how = Batching(max_rows, most, columns, lazy, views, policy, shards_per_batch)
        return self._counted(read, how)

    def _counted(self, read: Dataset, how: Batching) -> Iterator[pa.RecordBatch]:
        """The rows of a dataset by the batch; `counts` of this one say what was left out and reported so far."""
        shards, chosen, outcomes, reported = read._fitting, read._chosen, Outcomes(), Counter[str]()
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
        if self._chosen is None:
            return iteration.batches(self._shards, how, outcomes)
        return self._chosen.batches(how, outcomes)

    @property
    def _behind_steps(self) -> ChosenSamples:
        return self._chosen or ChosenSamples(self._fitting, ())

    def _looked_at(
        self, max_rows: int, columns: Sequence[str] | None, *, lazy: bool = True, on_error: OnError | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows by the batch, for a look that `counts` do not show."""
        how = Batching(max_rows, self._most_bytes, columns, lazy, on_error=on_error or self._policy)
        return self._in_order(how, Outcomes())

    @property
    def _most_bytes(self) -> int:
        most = self.read.max_batch_bytes
        return iteration.MAX_BYTES if most is None else parse_bytes(most)

    @property
    def _policy(self) -> OnError:
        return self.read.on_materialize_error or "error"

    def _with_fields(self, fields: Sequence[str]) -> Dataset:
        """This dataset with other passthrough columns of documents."""
        read, steps = with_needed_fields(replace(self.read, fields=tuple(fields)), without_unasked(self.steps))
        return self._of(self._query.replace(read=read, steps=steps))

    def samples(self, *, raw: bool = False) -> Iterator[dict[str, Any]]:
        """All samples in order, each a dict as `ds[i]` gives it; the same as `iter(ds)`.

        A value is read when its sample's turn comes, so let a sample go before the next where memory and speed matter.

        Example: `for sample in ds.samples(): print(sample["__key__"])`

        Args:
            raw: give every value as its column has it: text, JSON and arrays of a tar as bytes too, which
                `with_decode(False)` still parses. Only for the view `samples`.
        """
        if self._shards.has_items:
            for batch in self.batches(views=True):
                yield from samples_as_dicts(self._shards, pa.Table.from_batches([batch]))
            return
        for batch in self.batches(lazy=True):
            yield from rows_as_dicts(self._shards, batch, raw=raw, media=None if raw else self._media)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.samples()

    def head(self, count: int = 5) -> SampleList:
        """The first samples, as `ds[i]` gives them, without an index. Unavailable payload is None, with a warning.

        An image that cannot be opened is a `_core.content.media_files.BrokenFile`: its bytes and the error. The list
        shows itself with thumbnails and players in a notebook.

        Example: `ds.head(2)`
        """
        found: list[dict[str, Any]] = []
        labels: dict[str, Sequence[str]] = {}
        rows = _DOCUMENT_ROWS if self._shards.has_items else max(count, 1)
        for batch in self._looked_at(rows, None, lazy=False, on_error="warn"):
            labels |= shown.labels_of(batch.schema)
            table = pa.Table.from_batches([batch])
            found += samples_as_dicts(self._shards, table, media=self._media, keep_broken=True)
            if len(found) >= count:
                break
        return SampleList(found[:count], labels)

    # Samples by number and by key

    def __len__(self) -> int:
        """Number of samples. Behind `where`, `filter` and `image_bounds` one pass over their columns counts them.

        `list(ds)` asks for the number too; a loop does not.
        """
        return len(self._access)

    def __getitem__(self, index: Any) -> Any:
        """One sample by its number, a dataset of the samples of a slice or a list, or the values of a column.

        A sample is a dict of Python values: images as Pillow's, audio and videos as bytes that know their header
        (`_core.content.media_files`), text as str, JSON parsed, arrays as numpy, labels and numbers as numbers.
        `with_decode(False)` gives media as bytes. A null is None: every column is in every sample. Only tars whose
        columns no manifest of lading's declares differ: a sample has the members that are there, and a column of bytes
        that is null is absent. In the view `interleaved` it has `sample_id`, the fields of the
        document, and `items`, a list of dicts with `binary_content` as bytes.

        `ds[name]` takes a column, or a field inside one such as `json.lang`: its values are read when they are asked
        for, by number, by slice, or in order.

        Example: `ds[0]`, `ds[-1]`, `ds[:100]`, `ds[[5, 1, 3]]`, `ds["txt"][:10]`, `ds["json.lang"].to_pylist()`

        Raises:
            IndexError: the number is outside the dataset.
            UsageError: there is no such column.
            DataError: an image cannot be opened. Pillow reads pixels later: errors in them come with `load()`.
        """
        if type(index) is int:
            return self._sample(index)
        if isinstance(index, slice):
            return self._with(Rows(index.start, index.stop, index.step))
        if isinstance(index, str):
            known = shown.column_names(self._shards, self._chosen)
            return Column.of(self, index, known, self._schema_with, partial(self._first_values, index))
        if isinstance(index, (list, tuple, np.ndarray)):
            return self._with(Rows(numbers=tuple(ordinals(index).tolist())))
        return self._sample(index)

    def _first_values(self, name: str) -> shown.FirstValues:
        """The first values of a column, or of a field inside one, to be shown."""
        if not shown.are_near(self._shards, self.steps):  # to make a column of a field may call a function
            return shown.FirstValues(name, self._shards, self.steps)
        try:
            return shown.FirstValues(name, self._shards, self.select(name).steps)
        except LadingError as error:
            return shown.FirstValues(name, self._shards, self.steps, str(error))

    def take(
        self, indices: Sequence[int] | NDArray[np.int64], columns: Sequence[str] | None = None, *, views: bool = False
    ) -> pa.Table:
        """Rows of samples by number, in the order asked for, repeats allowed; payload as `large_binary`.

        Numbers below 0 count from the end.

        Columns come in the order asked for; one that the shards of these rows lack, and the schema has, is null. If
        none are asked for, a few rows of a tar with a `.tar.idx` have the fields of these rows alone, unless its schema
        was asked for before: that takes a walk over the tar. Reads nothing but their ranges; of a remote store
        identical ones once, neighbours together. With `views` payload is `binary_view`, over mapped files where it lies
        in such: bytes move when a value is looked at, and nothing holds all of them.

        Example: `ds.take([7, 0, 7], ["jpg"])`

        Raises:
            IndexError: a number is outside the dataset.
            UsageError: a column that neither the schema nor a shard of these rows has.
        """
        return self._access.take(indices, columns, views=views)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Samples by number, each as `ds[i]` gives it, read at once: PyTorch's `DataLoader` asks for batches so."""
        return self._access.samples(indices)

    def as_samples(self, rows: pa.Table) -> list[dict[str, Any]]:
        """The samples of rows that `take` gave, each a dict as `ds[i]` gives it; media are bytes.

        Neighbours of one `sample_id` are one document.

        Example: `ds.as_samples(ds.take([7, 0]))`
        """
        return samples_as_dicts(self._shards, rows)

    def place_of(self, index: int) -> tuple[str, int]:
        """The file of a sample, and its number in that file. Raises IndexError.

        Example: `ds.place_of(1234)  # ("train/00001.tar", 234)`
        """
        numbers = range(len(self)) if self._chosen is None else self._chosen.numbers
        number = numbers_at(numbers, ordinals([index]))
        shard, row = lookup(self._fitting.sample_ends(), number)
        return self._fitting.path(int(shard[0])), int(row[0])

    def by_key(self, key: str) -> dict[str, Any]:
        """The first sample with this key (`__key__`, or `sample_id` of interleaved data).

        Looks through the keys of one shard after another. Raises KeyError.

        Example: `ds.by_key("000017")`
        """
        return self._access.by_key(key)

    def stats(self, **options: Any) -> Stats:
        """Compute statistics in one pass: of columns, fields of JSON, lengths of texts, sizes of images.

        Payload of media is not read, but for the headers. Counts, bounds, means and deviations are exact. Quantiles and
        histograms are exact up to 16,384 values a column, and those of an even sample of 16,384 values beyond (about
        0.4 % of the ranks off). Distinct values are exact up to 16,384, and estimated beyond (about 0.8 % off). Counts
        of the most frequent values are exact up to 4,096 distinct values, and lower bounds beyond. The result says
        which are approximate, and is the same with any number of workers.

        Peak memory: that of `batches`, and up to 1 MB for each name.

        Example:
            stats = lading.open("photos/*.tar").stats()
            stats.columns["jpg.width"].median, stats.columns["json.lang"].top

        Args:
            options: `top`, the number of most frequent values. `workers`, the processes that share the shards, at most
                (by default one a core, up to eight, for jobs of more than a few seconds; behind steps one).
                `executor` and `address`, as for `lading.convert`. `on_progress`, called after every batch and shard.
                `progress`, whether a bar may appear after two seconds, in a terminal or a notebook.

        Raises:
            UsageError: workers are asked for, and cannot read these data; `top` is negative.
        """
        from lading._core.jobs.stats.stats import dataset_stats

        return dataset_stats(self, **options)

    # Payload and files

    def materialise(
        self,
        batch: pa.RecordBatch,
        *,
        columns: Sequence[str] | None = None,
        views: bool = False,
        on_error: OnError = "error",
    ) -> pa.RecordBatch:
        """A lazy batch of this dataset with its payload in the place of references.

        Example: `ds.materialise(next(ds.batches(lazy=True)), columns=["json"])`

        Args:
            batch: the batch.
            columns: columns to read; None for all.
            views: as of `batches`.
            on_error: as of `batches`.
        """
        return self._shards.fetcher.materialise(batch, columns, on_error=on_error, views=views)

    def write(self, destination: str | os.PathLike[str], format: str | None = None, **options: Any) -> ConvertSummary:  # noqa: A002 - the word users know
        """Write the dataset; the same as `lading.convert(ds, destination, format=format, …)`.

        Example: `ds.write("out", format="parquet", workers=8)`

        Args:
            destination: folder of the new dataset. A name that ends in `.parquet`, `.tar.gz` or such is one file.
            format: format to write; by default the ending of the destination names it.
            options: the other arguments of `lading.convert`.

        Raises:
            UsageError: no format is given, and the destination has no ending of one.
        """
        from lading._core.jobs.convert.convert import convert

        return convert(self, destination, format=format or format_of_name(os.fspath(destination)), **options)

    def loader(self, batch_size: int = 1, **options: Any) -> Loader:
        """Batches for training, one epoch after the other; the same as `lading.loader(ds, batch_size, …)`.

        Example: `for batch in ds.loader(64, shuffle=True, collate="torch"): ...`

        Args:
            batch_size: samples a batch.
            options: the other arguments of `lading.loader`.
        """
        from lading._core.train.loader import loader

        return loader(self, batch_size, **options)

    def export(self, destination: str | os.PathLike[str], *, overwrite: bool = False) -> ExportSummary:
        """Write samples as loose files into a folder, and return what was written.

        Example: `ds.limit(100).export("look")  # look/000001.jpg, look/000001.txt, …`

        A field of bytes is a file `KEY.FIELD` with the stored bytes. Media of a table have the extension of their
        format: `KEY.jpg`, or `KEY.COLUMN.jpg` where there are several such columns. Each item of a list of media is a
        file, such as `KEY.COLUMN.0.jpg`, and `KEY.COLUMN.json` lists these, as in a tar. All other values of a sample
        are one file `KEY.json` (`KEY.columns.json` where the samples have a field `json`). Documents are a JSON file
        each, and their images, as in an interleaved tar. Slashes in keys make folders. Samples without a key have
        their number.

        A hidden file `.lading-export.json` marks the folder, so that a later export may replace it.
        `lading.open(destination, format="files")` reads the files back. The destination appears in one step at the end.
        Peak memory: that of one batch of 256 samples or 64 MB. Documents need the size of their tar beside the
        destination until the end.

        Args:
            destination: the folder.
            overwrite: replace the folder, in one step at the end. It must be of an earlier export, or a dataset.

        Raises:
            DestinationExists: the folder is not empty, or it is to be replaced and holds something else.
            Unrepresentable: a key or a field that is no safe name of a file; two that have one name; a value that JSON
                does not hold.
        """
        from lading._core.jobs.dataset.export import export

        return export(self, destination, overwrite=overwrite)


def _reopened(kind: type[Dataset], query: Query, media: Opening | None) -> Dataset:
    """A dataset in another process."""
    return kind._of(query).with_decode(media is not None, upright=media != "stored")  # noqa: SLF001 - of this module


def _lacks(batch: pa.RecordBatch, path: FieldPath) -> bool:
    """Whether rows lack the column of a field, or have structs without the field."""
    return path.column not in batch.schema.names or lacks_child(field_named(batch.schema, path), path)
