"""A dataset: shards in an order, opened to be looked at, iterated, and read at random.

Opening reads the head of one file. Iterating streams. Only `len`, `[i]`, `by_key` and `take` ask for an index, and a
shard's index is made when it is first needed (or found in a manifest or the index cache).
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, repeat
from operator import index as as_int
from threading import RLock
from typing import Any, Self

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.align import align_table, as_text
from lading.arrow.rebatch import across_shards, split_duplicate_ids, split_samples
from lading.arrow.references import FileEntry, files_of, is_ref, with_files
from lading.arrow.types import uncut_values
from lading.dataset.manifest_options import manifest_options, schema_as_read
from lading.dataset.random_access import taken_rows
from lading.dataset.shards import ShardList
from lading.dataset.source import Listing
from lading.errors import DataError, DatasetReplaced, LadingError, SidecarMismatch, StoreError, UsageError, errors_at
from lading.features.items import (
    INTERLEAVED_SCHEMA,
    LINEAGE_KEY,
    RESERVED,
    lineage_of,
    sample_firsts,
    sample_starts,
)
from lading.features.types import Feature, decode, feature_of
from lading.formats.base import (
    AnyFormat,
    Finding,
    Level,
    SampleReader,
    ShardFile,
)
from lading.interleaved.base import View
from lading.interleaved.open import detect_view, open_view, restored, settle
from lading.interleaved.references import Follower
from lading.interleaved.samples import SamplesView
from lading.manifest.files import ShardTables
from lading.manifest.index_cache import IndexCache
from lading.manifest.values import FOLDER, Manifest
from lading.options import InterleavedOptions, OnError
from lading.storage.fetch import ERROR_COLUMN, Fetcher, OnFailure
from lading.storage.range_hasher import RangeHasher
from lading.storage.roots import folder_of
from lading.storage.stores import Stores, is_local, resolve
from lading.units import parse_bytes

__all__ = ["Dataset"]

_OPEN_SHARDS = 64
_HELD_SHARDS = 16
_MAX_ROWS = 1024
_MAX_BYTES = 256 << 20
_DETECT_SHARDS = 16
_HELD_BYTES = 64 << 20
_NOT_IN_INDEXES = frozenset({"mmap", "roots", "workers", "allow_pickle", "views"})
"""Options of formats that say how bytes are come by, and change nothing in the index of a shard."""


class Dataset:
    """Shards of one format, taken as one view. Made by `lading.open`; closing gives up files and maps.

    Attributes:
        format: name of the format.
        view: `samples` (a row is a sample) or `interleaved` (a row is an item; a sample is the rows of a `sample_id`).
        listing: the shards.
        manifest: what lading wrote beside the shards, if it did.
        kept_shards: the shards as the manifest lists them.
        kept: what is kept of each beside them.
        target: the schema that all rows are given, if the caller asked for one.
        members: of rows that lading wrote, where shards themselves say less of them: the schema that these had.
        stored_schema: of the rows, where their writer kept it.
        format_options: options with which shards are opened.
        interleaved: names of fields and policies for interleaved data.
        named_roots: folders that the caller let references point into.
        limits: on what files may ask for.
        fetcher: what references are read with.
        follower: what finds the files that `source_ref` texts name.
        counts: what was noticed while reading, by a short phrase.
        replacements: by number, what is read in place of shards that are damaged.
        opened_as: opens the same dataset again, in another process, say; None if there is no telling how.
    """

    def __init__(  # noqa: PLR0913 - made by open_dataset only
        self,
        listing: Listing,
        fmt: AnyFormat,
        view: str,
        *,
        fetcher: Fetcher,
        stores: Stores,
        format_options: Mapping[str, Any],
        interleaved: InterleavedOptions,
        roots: Sequence[str] = (),
        target: pa.Schema | None = None,
        members: pa.Schema | None = None,
        stored_schema: pa.Schema | None = None,
        manifest: Manifest | None = None,
        kept_shards: pa.Table | None = None,
    ) -> None:
        self.listing, self.view, self.manifest, self.kept_shards = listing, view, manifest, kept_shards
        self.target, self.members, self.stored_schema = target, members, stored_schema
        self.counts: Counter[str] = Counter()
        self.replacements: dict[int, ShardFile] = {}
        self.opened_as: Callable[[], Dataset] | None = None
        self._format, self.fetcher, self._stores = fmt, fetcher, stores
        self.named_roots = roots
        self.limits = fetcher.limits
        self.follower = Follower(stores, self.roots, mmap=fetcher.mmap, limits=self.limits)
        self.interleaved = interleaved
        self.format_options = dict(format_options)
        self.cache = IndexCache()
        self.kept: ShardTables | None = None
        if kept_shards is not None and listing.own is not None:
            store, folder = resolve(listing.own, stores)
            written = manifest.view if manifest is not None else None
            self.kept = ShardTables(store, folder, kept_shards, self.limits, view=written)
        self._places = _local_places(listing, manifest, stores)
        self._identity = _identity(self._places)
        self._source: tuple[int, ShardFile] | None = None
        self._views: OrderedDict[int, View] = OrderedDict()
        self._one_of: dict[int, Callable[[int], dict[str, Any]]] = {}
        self._lock = RLock()
        self._last: list[int] = []
        self._held: dict[int, pa.Table] = {}
        self._held_bytes = 0
        self._ends: NDArray[np.int64] | None = None
        self._read_samples: dict[int, int] = {}
        self._schema: pa.Schema | None = None

    @property
    def format(self) -> str:
        """Name of the shards' format."""
        return self._format.name

    @property
    def takes_any_fields(self) -> bool:
        """Whether each sample may have fields of its own: neither the format nor a manifest says which there are."""
        return not self._format.info.fixed_schema and self.members is None

    def __repr__(self) -> str:
        return f"<lading.Dataset {self.format}, {self.view}, {len(self.listing)} shards>"

    def __reduce__(self) -> tuple[Callable[[Callable[[], Dataset]], Dataset], tuple[Callable[[], Dataset]]]:
        """How it is opened: a process that is given a dataset opens shards and maps of its own."""
        if self.opened_as is None:
            raise TypeError("only what lading.open gave can be sent to another process")
        return _open_again, (self.opened_as,)

    def close(self) -> None:
        """Give up open shards, maps and streams."""
        self._close_views()
        self.fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Shards

    @property
    def shards(self) -> ShardList:
        """The shards, each opened when it is asked for."""
        return ShardList(self)

    def path(self, shard: int) -> str:
        """Path of a shard."""
        return str(self.listing.table.column("path")[shard].as_py())

    def source(self, shard: int) -> ShardFile:
        """A shard as formats open it; checks its size where the listing says one.

        The one asked for last is remembered until it was read: to look at a file of a store is a request.
        """
        known = self._source
        if known is None or known[0] != shard:
            known = self._source = (shard, self._looked_at(shard))
        return known[1]

    def _looked_at(self, shard: int) -> ShardFile:
        if shard in self.replacements:
            return self.replacements[shard]
        with self._of_this():
            return self._found(shard)

    def _found(self, shard: int) -> ShardFile:
        """The file of a shard, if it is as long as the listing says."""
        store, path = resolve(self.path(shard), self._stores)
        info = store.head(path)
        listed = self.listing.table.column("size_bytes")[shard].as_py()
        if listed is not None and listed != info.size_bytes:
            own = f"{self.listing.folder}/{FOLDER}" if self.listing.folder is not None and self.manifest else None
            lists = self.listing.index_file or own
            raise SidecarMismatch(
                f"the size differs from what {lists} says" if lists else "the size has changed since it was listed",
                file=path, expected=f"{listed} bytes", found=f"{info.size_bytes} bytes",
                advice="The file was changed or damaged, or another one lies in its place.",
            )  # fmt: skip
        entry = self.listing.table.column("entry")[shard].as_py() or ""
        return ShardFile(store, path, info, entry=entry, limits=self.limits, stores=self._stores)

    def open_shard(self, shard: int) -> View:
        """A shard as a view; the last few stay open."""
        with self._lock:
            view = self._views.get(shard)
            if view is None:
                source = self.source(shard)
                if shard not in self.replacements:
                    source = replace(source, index=self._known_index(shard, source))
                view = self._open_view(source)
                self._views[shard] = view
                if len(self._views) > _OPEN_SHARDS:
                    # Not closed: another thread may be reading from it, and the last one to let go of it closes it.
                    oldest, _ = self._views.popitem(last=False)
                    self._one_of.pop(oldest, None)
            self._views.move_to_end(shard)
            return view

    def _open_view(self, source: ShardFile) -> View:
        with self._of_this():
            view = open_view(
                self._format, source, self.view, self.fetcher, self.follower, self.format_options, self.interleaved,
                self.stored_schema, self.members,
            )  # fmt: skip
            self.interleaved = settle(view, self.interleaved)
        return view

    @contextmanager
    def _of_this(self) -> Iterator[None]:
        """Look at a file of this dataset: if another one came meanwhile, that is said, whatever else was wrong."""
        try:
            yield
        except LadingError:
            self._refuse_another()
            raise
        self._refuse_another()

    def _refuse_another(self) -> None:
        """Raise DatasetReplaced if another dataset lies in the place of this one: rows of both would be mixed."""
        if _identity(self._places) not in ([], self._identity):
            raise DatasetReplaced("another dataset took the place of this one since it was opened",
                                  file=self._places[0], advice="Open it again.")  # fmt: skip

    def read_with(self, options: Mapping[str, Any]) -> None:
        """Read shards with these options where nobody gave others; if that is a change, open ones are opened anew."""
        told = {**options, **self.format_options}
        if told != self.format_options:
            self.format_options = told
            self._close_views()
            self.hold()

    @property
    def may_be_replaced(self) -> bool:
        """Whether another dataset may take the place of this one at once, with its lists and its shards."""
        return bool(self._places)

    def hold(self) -> None:
        """Open all shards, where they are few and that costs next to nothing: each is read from then on as it is now.

        What cannot be opened is told when it is read.

        Raises:
            DatasetReplaced: another dataset took the place of this one before all were open.
        """
        if not self._places or len(self.listing) > _HELD_SHARDS or not self._format.info.opens_at_once:
            return
        for shard in range(len(self.listing)):
            try:
                self.open_shard(shard)
            except LadingError:
                self._refuse_another()

    def hold_index(self, shard: int) -> None:
        """Keep the index of an open shard at hand for its next reading, while all such take less than 64 MiB.

        For the view `interleaved`: a reading of samples makes none.
        """
        index = self.open_shard(shard).index() if self.view == "interleaved" else None
        size = index.nbytes if index is not None else 0
        if index is not None and self._held_bytes + size <= _HELD_BYTES:
            self._held[shard] = index
            self._held_bytes += size

    def held_index(self, shard: int) -> pa.Table | None:
        """The index that is kept for the next reading of a shard, if one is."""
        return self._held.get(shard)

    def give_index(self, shard: int, index: pa.Table) -> None:
        """Keep an index that another process made of a shard (`held_index`), for the next reading."""
        self._held[shard] = index

    def layout_findings(self, shard: int) -> Iterator[Finding]:
        """Yield layout findings of a shard, of its format and of its view."""
        source = self.source(shard)
        source = replace(source, index=self._known_index(shard, source))
        yield from self._format.check(source, self.format_options, Level.LAYOUT, view=self.view)
        if self.view == "interleaved":  # opening samples may take a walk over the file
            yield from self.open_shard(shard).layout_findings()

    def alike(self, shard: int = 0) -> Mapping[str, Any]:
        """Options of writing under which the files of a copy are like a shard."""
        if not len(self.listing):
            return {}
        found = self._format.options_like(self.source(shard), self.view)
        return {**manifest_options(self.manifest, self._format), **found}

    @property
    def files_beside(self) -> bool:
        """Whether most bytes may lie in files beside the shards' own, which no listing tells."""
        return self._format.info.files_name_each_other

    def _known_index(self, shard: int, source: ShardFile) -> pa.Table | None:
        """The index of a shard from the manifest's files or the cache; None if neither has it."""
        found = self.kept.index(shard) if self.kept is not None else None
        if found is None:
            found = self.cache.load(source, self._index_kind())
        return None if found is None else _index_of(source, found)

    def _index_kind(self) -> str:
        """What tells indexes of one shard apart: options of its format may make other samples of it.

        Those of interleaved data do not count: their index lists a tar's members, whatever they belong to.
        """
        told = {name: value for name, value in self.format_options.items() if name not in _NOT_IN_INDEXES}
        return f"{self.format} {self.view}" + (f" {json.dumps(told, sort_keys=True, default=str)}" if told else "")

    def keep_index(self, shard: int) -> bool | None:
        """Make the index of a shard and keep it in the cache; False if it cannot be kept, None if there is none."""
        source = self.source(shard)
        if self._known_index(shard, source) is not None:
            return True
        index = self.open_shard(shard).index()
        return None if index is None else self.cache.store(source, self._index_kind(), index)

    def detect_view(self) -> str | None:
        """The view that the first samples of the first non-empty shard ask for that can be read; None without one."""
        broken: LadingError | None = None
        for number in range(min(len(self.listing), _DETECT_SHARDS)):
            try:
                found = self._view_of(number)
            except (DataError, StoreError) as error:
                broken = broken or error
                continue
            if found is not None:
                return found
        if broken is not None:
            raise broken
        return None

    def _view_of(self, number: int) -> str | None:
        reader = self._format.open_shard(self.source(number), self.format_options)
        try:
            return detect_view(reader, self.fetcher, self.interleaved)
        finally:
            reader.close()

    @property
    def schema(self) -> pa.Schema:
        """Schema of the manifest, if that is of this view, or of the first shard that is not empty.

        Other shards may hold more fields then.
        """
        if self._schema is None:
            if self.target is not None:
                self._schema = self.target
            elif self.members is not None:
                self._schema = restored(self._format, self.members)
            elif self.manifest is not None and (self.manifest.view, self.manifest.format) == (self.view, self.format):
                self._schema = schema_as_read(self.manifest.schema, self._format, self.view, self.format_options)
            else:
                self._schema = self._first_schema()
        return self._schema

    def _first_schema(self) -> pa.Schema:
        """The schema of the first shard that has more than keys: a tar without samples has a column of these."""
        found = pa.schema([])
        index = self.listing.index_file
        if not len(self.listing):
            if index is not None:
                found = self._format.listed_schema(*resolve(index, self._stores), self.limits) or found
            fits = self.view != "interleaved" or "sample_id" in found.names
            return found if fits else INTERLEAVED_SCHEMA
        for number in range(min(len(self.listing), _DETECT_SHARDS)):
            schema = self.open_shard(number).schema()
            if set(schema.names) - {"__key__"}:
                return schema
            found = found if len(found) else schema
        return found

    def forget_shards(self) -> None:
        """Close all shards, and forget what was found in them: the listing, or `replacements`, is another one."""
        self._close_views()
        self._held.clear()
        self._held_bytes = 0
        self._read_samples.clear()
        self._source = self._ends = self._schema = None
        self._last = []

    def _close_views(self) -> None:
        with self._lock:
            for view in self._views.values():
                view.close()
            self._views.clear()
            self._one_of.clear()

    # Random access

    def sample_ends(self) -> NDArray[np.int64]:
        """Number of samples in each shard and all before it: 8 bytes a shard."""
        if self._ends is None:
            listed = self.listing.table.column("num_samples").to_pylist()
            known = [self._read_samples.get(i, n) for i, n in enumerate(listed)]
            counts = [self.open_shard(i).num_samples() if n is None else n for i, n in enumerate(known)]
            self._ends = np.cumsum(np.array(counts, np.int64))
        return self._ends

    def __len__(self) -> int:
        ends = self.sample_ends()
        return int(ends[-1]) if len(ends) else 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One sample as a dict of Python values: media as bytes, text as str, JSON parsed, arrays as numpy.

        In the view `interleaved`: `sample_id`, the sample's own fields, and `items`, a list of dicts.
        """
        index = as_int(index)  # sums of numpy's small ones would come out too small
        ends = self._last or self._sample_list()
        at = index + ends[-1] if index < 0 else index
        if not 0 <= at < ends[-1]:
            raise IndexError(f"sample {index} of {ends[-1]}")
        shard = bisect_right(ends, at)
        return self.one(shard, at - ends[shard - 1] if shard else at)

    def _sample_list(self) -> list[int]:
        """Number of samples in each shard and all before it, as Python has numbers: for one at a time."""
        self._last = self.sample_ends().tolist() or [0]
        return self._last

    def one(self, shard: int, ordinal: int) -> dict[str, Any]:
        """One sample of a shard."""
        get_sample = self._one_of.get(shard)
        if get_sample is None:
            view = self.counted_shard(shard)
            known = view.get_sample if isinstance(view, SamplesView) and self.target is None else None
            get_sample = self._one_of[shard] = known or partial(self._one_of_table, shard, view)
        return get_sample(ordinal)

    def whole_samples(self, shard: int) -> SampleReader | None:
        """The open reader of a shard, if it has each sample in one piece, and nobody asked for another schema."""
        view = self.counted_shard(shard)
        return view.whole_samples if isinstance(view, SamplesView) and self.target is None else None

    def _one_of_table(self, shard: int, view: View, ordinal: int) -> dict[str, Any]:
        with errors_at(file=self.path(shard)):
            found = self.materialised(view.read(np.array([ordinal])))
            [sample] = self._samples(found if self.target is None else align_table(found, self.target))
            return sample

    def counted_shard(self, shard: int) -> View:
        """An open shard that holds as many samples as it should."""
        view = self.open_shard(shard)
        self._check_count(shard, view.num_samples())
        return view

    def counted_samples(self, shard: int) -> int:
        """Samples in a shard, by the cheapest means.

        Raises:
            SidecarMismatch: the manifest or an index says another number.
        """
        return self.counted_shard(shard).num_samples()

    @property
    def holds_its_bytes(self) -> bool:
        """Whether all bytes of samples lie in the shards themselves: tables of items may lead to other files."""
        return self.view == "samples" or not self._format.info.fixed_schema

    def take(
        self, indices: Sequence[int] | NDArray[np.int64], columns: Sequence[str] | None = None, *, views: bool = False
    ) -> pa.Table:
        """Rows of samples by ordinal, in the order asked for, repeats allowed; payload as `large_binary`.

        Columns come in the order asked for; one that the shards of these rows lack, and the schema has, is null. If
        none are asked for, a few rows of a tar with a `.tar.idx` have the fields of these rows alone, unless its schema
        was asked for before: that takes a walk over the tar. Reads nothing but their ranges; of a remote store
        identical ones once, neighbours together. With `views` payload is `binary_view`, over mapped files where it lies
        in such: bytes move when a value is looked at, and nothing holds all of them.

        Raises:
            IndexError: an ordinal is outside the dataset.
            UsageError: a column that neither the schema nor a shard of these rows has.
        """
        _refuse_no_columns(columns)
        target, hidden = self.aligned_to(columns), self.hidden(columns)
        if target is not None:
            columns = self._columns_of(target)
        wanted = np.asarray(indices) if len(indices) else np.zeros(0, np.int64)
        if wanted.dtype.kind not in "iu" or wanted.ndim != 1:
            found_as = f"{wanted.dtype}, {wanted.ndim} dimensions"
            raise UsageError("samples are taken by a list of whole numbers", found=found_as)
        found = taken_rows(self, wanted.astype(np.int64), columns, target, views=views)
        if target is None:
            return found
        return align_table(found, pa.schema([field for field in target if field.name not in hidden]))

    def _check_count(self, shard: int, found: int) -> None:
        """Hold the number of samples in a shard against what the manifest or an index says, if one does."""
        listed = self.listing.table.column("num_samples")[shard].as_py()
        if listed is not None and listed != found:
            raise SidecarMismatch(
                f"the number of samples differs from what {self.listing.index_file or 'the manifest'} says",
                file=self.path(shard), expected=listed, found=found,
            )  # fmt: skip

    def by_key(self, key: str) -> dict[str, Any]:
        """The first sample with this key (`__key__`, or `sample_id` of interleaved data).

        Looks through the keys of one shard after another. Raises KeyError.
        """
        column = "sample_id" if self.view == "interleaved" else "__key__"
        for number in range(len(self.listing)):
            at = 0
            for batch in self.open_shard(number).batches(max_rows=65_536, max_bytes=_MAX_BYTES, columns=[column]):
                keys = batch.column(column)
                if pa.types.is_dictionary(keys.type):
                    keys = keys.dictionary_decode()
                if self.view == "interleaved":
                    keys = keys.take(pa.array(sample_starts(keys)))
                try:
                    wanted = pa.scalar(key, keys.type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError):
                    break  # no key of this shard can be that
                found = pa.compute.index(keys, wanted).as_py()
                if found >= 0:
                    return self.one(number, at + found)
                at += len(keys)
        raise KeyError(key)

    def materialised(self, table: pa.Table, *, views: bool = False) -> pa.Table:
        """The rows with bytes in the place of references; with `views`, of large values, as views of mapped files."""
        if not any(is_ref(field.type) for field in table.schema):
            return table  # joining its chunks would copy all of it once more
        whole = table.combine_chunks()
        batches = whole.to_batches() or [pa.record_batch([c.combine_chunks() for c in whole.columns], whole.schema)]
        if not views:
            batches = [self.fetcher.read_large(batch) for batch in batches]
        return pa.Table.from_batches([self.fetcher.materialise(batch, views=views, earlier=False) for batch in batches])

    # Iteration

    def batches(
        self,
        *,
        max_rows: int = _MAX_ROWS,
        max_bytes: int | str = _MAX_BYTES,
        columns: Sequence[str] | None = None,
        lazy: bool = False,
        views: bool = False,
        on_error: OnError = "error",
        shards_per_batch: int | None = 1,
    ) -> Iterator[pa.RecordBatch]:
        """All rows in order, by the batch; a sample is never cut.

        Payload columns are `large_binary`; with `views` `binary_view` over mapped files, good for use at once (the
        pages behind a batch are given back when the next is asked for); with `lazy` references, and no payload is
        read. Each batch's schema metadata names its files (`lading.source_files`). A field that appears late joins the
        schema then, and stays.

        Args:
            max_rows: rows a batch, at most (a larger interleaved sample stays whole).
            max_bytes: payload a batch, at most (a larger sample stays whole).
            columns: columns to give, in this order; None for all.
            lazy: leave references as they are.
            views: give views instead of copies.
            on_error: for a row whose bytes cannot be had: `error`, `warn` (null, and a warning), `drop_row`,
                `drop_sample`; dropped rows are counted.
            shards_per_batch: consecutive shards that a batch may hold rows of, so that small files make batches as
                large as large ones do; None for as many as the limits allow.
        """
        _refuse_no_columns(columns)
        max_rows, most_bytes = _count(max_rows), parse_bytes(max_bytes)
        hidden = self.hidden(columns)
        asked = columns if self.view == "samples" and self.target is None else None
        columns = columns if columns is None else [*columns, *hidden]
        row = 0

        def of_shards() -> Iterator[pa.RecordBatch]:
            """Batches of all shards; `row` is the first of the last one in its shard."""
            nonlocal row
            for number in range(len(self.listing)):
                row = 0
                for batch in self.shard_batches(number, max_rows, most_bytes, columns, views=views):
                    yield batch
                    row += batch.num_rows

        found = of_shards()
        if asked is not None:
            found = self._refusing_unknown(found, asked)
        if shards_per_batch != 1:
            found = across_shards(found, max_rows, most_bytes, shards_per_batch)
        seen = pa.schema([])
        for batch in found:
            seen, padded = _pad(seen, batch)
            if asked is not None:
                padded = _in_order(padded, asked)
            if lazy:
                yield padded.drop_columns(hidden)
                continue
            first_row = row if shards_per_batch == 1 else None
            for done in self._with_bytes(padded, most_bytes, first_row, views=views, on_error=on_error):
                yield done.drop_columns(hidden)
                self.fetcher.release()

    def _with_bytes(
        self, batch: pa.RecordBatch, max_bytes: int, first_row: int | None, *, views: bool, on_error: OnError
    ) -> Iterator[pa.RecordBatch]:
        """A batch in parts with their bytes; errors tell a row as its shard counts it, where the batch begins there."""
        dropped = batch.num_rows
        with errors_at(first_row=first_row):
            for part in self.materialise_parts(batch, max_bytes, on_error=on_error, views=views):
                done = as_text(part, self.target)
                dropped -= done.num_rows
                yield done
        if dropped:
            self.counts["rows without bytes, dropped"] += dropped

    def _refusing_unknown(self, batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Batches as they come, unless a column was asked for that neither the manifest nor any shard has.

        Shards are looked at if the manifest, or else the first rows, lack it; where there are no rows, no column is
        missed.
        """
        first = None if self.manifest is not None else next(batches, None)
        if not len(self.listing) or (first is None and self.manifest is None):
            return
        known = dict.fromkeys((first.schema if first is not None else self.schema).names)
        if not self._format.info.fixed_schema:
            known["__key__"] = None  # tars always have keys, also where rows had none before they were written
        for number in range(len(self.listing)):
            if known.keys() >= {*columns}:
                break
            known |= dict.fromkeys(self.open_shard(number).schema().names)
        for name in columns:
            if name not in known:
                raise UsageError("no such column", expected=", ".join(known), found=repr(name))
        if first is not None:
            yield first
        yield from batches

    def shard_batches(
        self,
        shard: int,
        max_rows: int,
        max_bytes: int,
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        *,
        views: bool = False,
        drifting: bool = False,
        passed: RangeHasher | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of one shard, references as they are; the shard is closed at the end, if nobody else reads from it.

        With `views`, payload that lies in memory comes as `binary_view`, large values of a mapped file as references,
        in batches as large as the limits allow. With `drifting`, batches may differ in columns and types. `passed`
        takes what of a mapped file a reader passes by that walks over its headers.

        Raises:
            DataError: documents of one id follow each other in a tar: as rows they would be one sample.
        """
        self._one_of.pop(shard, None)
        view = opened = self._views.pop(shard, None)  # what lies in its place now may be another one
        if view is None:
            source = self.source(shard)
            view = self._open_view(
                source if shard in self.replacements else replace(source, index=self._held.get(shard), passed=passed)
            )
        samples = 0
        last: str | None = None
        replacement = self.replacements.get(shard)
        path = resolve(self.path(shard), self._stores)[1] if replacement is None else replacement.path
        lineage = {LINEAGE_KEY: orjson.dumps([path])}
        try:
            limits = {"max_rows": max_rows, "max_bytes": max_bytes}
            target = self.aligned_to(columns)
            if target is not None:
                columns, schema = self._columns_of(target), None
            for found in view.batches(
                **limits, columns=columns, schema=schema, views=views, drifting=drifting and target is None
            ):
                batch = found if target is None else align_table(found, target)
                if self.view == "interleaved" and batch.num_rows:
                    ids = batch.column("sample_id")
                    if last is not None and ids[0].as_py() == last:  # no sample lies in two batches
                        raise self._duplicate_ids(shard, last, samples)
                    last = ids[-1].as_py()
                samples += len(sample_firsts(batch, self.view))
                yield batch.replace_schema_metadata({**(batch.schema.metadata or {}), **lineage})
            self._check_count(shard, samples)
            self._read_samples[shard] = samples
            self.counts.update(view.counts)
        finally:
            if opened is None:  # else another thread may be reading from it, and the last one to let go of it closes it
                view.close()
            self._source = None

    def _duplicate_ids(self, shard: int, sample: str, ordinal: int) -> DataError:
        """The error that a sample of a shard has the id of the one before."""
        by_name = self.interleaved.sample_id_field is None
        return DataError(
            "documents of one id follow each other", file=self.path(shard), sample=sample, column="sample_id",
            expected="ids that tell neighbours apart", found=f"the same for samples {ordinal - 1} and {ordinal}",
            advice="The ids are the names of their JSON members: rename these, or take the tar with --view samples."
            if by_name else "Take the names of their JSON members as ids: --option sample_id_field=null.",
        )  # fmt: skip

    def aligned_to(self, columns: Sequence[str] | None) -> pa.Schema | None:
        """The schema to which rows are read; None if nobody asked for one.

        It has these columns of it, those that tell samples apart, and the `hidden` one.
        """
        if self.target is None:
            return None
        target = self.target.append(INTERLEAVED_SCHEMA.field(ERROR_COLUMN)) if self.hidden(None) else self.target
        if columns is None:
            return target
        for name in columns:
            if name not in target.names:
                raise UsageError("no such column", expected=", ".join(self.target.names), found=repr(name))
        always = ("sample_id", "position") if self.view == "interleaved" else ()
        return pa.schema([f for f in target if f.name in columns or f.name in always])

    def hidden(self, columns: Sequence[str] | None) -> list[str]:
        """The column of errors, where payload is read and nobody asked for it: a policy goes by it."""
        asked = columns if columns is not None else None if self.target is None else self.target.names
        if self.view != "interleaved" or asked is None or "binary_content" not in asked or ERROR_COLUMN in asked:
            return []
        return [ERROR_COLUMN]

    def _columns_of(self, target: pa.Schema) -> list[str] | None:
        """What to ask a view for; where rows are samples, a column that a shard lacks may not be asked for."""
        return target.names if self.view == "interleaved" else None

    def materialise(
        self,
        batch: pa.RecordBatch,
        *,
        columns: Sequence[str] | None = None,
        views: bool = False,
        on_error: OnError = "error",
        earlier: bool = True,
        on_failure: OnFailure | None = None,
    ) -> pa.RecordBatch:
        """A lazy batch of this dataset with its bytes; see `Fetcher.materialise`."""
        return self.fetcher.materialise(
            batch, columns, on_error=on_error, views=views, earlier=earlier, on_failure=on_failure
        )

    def materialise_parts(
        self,
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
        drops = self.view == "interleaved" and on_error in ("drop_row", "drop_sample")
        whole = split_duplicate_ids(batch) if drops else [batch]
        found = (split_samples(one, sample_firsts(one, self.view), len(one), max_bytes) for one in whole)
        first = 0
        for some in chain.from_iterable(found):
            with errors_at(first_row=first):
                yield from self.fetcher.materialise_parts(
                    some, sample_firsts(some, self.view), max_bytes, columns, on_error, views=views, earlier=earlier,
                    on_failure=on_failure,
                )  # fmt: skip
            first += len(some)

    def roots(self) -> list[str]:
        """The folders that references in tables may point into: those of the shards, and those the caller named."""
        own = {folder_of(path) or "." for path in self.listing.table.column("path").to_pylist()}
        return [*sorted(own), *self.named_roots]

    def release(self, held_bytes: int = 0) -> None:
        """Give back mapped pages that were touched; see `Fetcher.release`."""
        self.fetcher.release(held_bytes)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.samples()

    def samples(self, *, raw: bool = False) -> Iterator[dict[str, Any]]:
        """All samples in order, each a dict as `[i]` gives it.

        A value is read when its sample's turn comes, so let a sample go before the next where memory and speed matter.

        Args:
            raw: give every value as its column has it (bytes for a member of a tar, unless a manifest says more),
                nothing decoded. Only for the view `samples`.
        """
        if self.view == "interleaved":
            for batch in self.batches(views=True):
                yield from self._samples(pa.Table.from_batches([batch]))
            return
        for batch in self.batches(lazy=True):
            yield from self._each(batch, raw=raw)

    def _each(self, batch: pa.RecordBatch, *, raw: bool) -> Iterator[dict[str, Any]]:
        shards = lineage_of(batch.schema)
        with errors_at(file=shards[0] if len(shards) == 1 else None):
            yield from self._dicts(batch, raw=raw)

    def _dicts(self, batch: pa.RecordBatch, *, raw: bool) -> Iterator[dict[str, Any]]:
        names, files = batch.schema.names, files_of(batch.schema)
        columns = [
            self.fetcher.values(column, files) if is_ref(column.type) else _python(name, column)
            for name, column in zip(names, batch.columns, strict=True)
        ]
        rows = zip(*columns, strict=True) if columns else repeat((), batch.num_rows)
        if raw and not any(column.null_count for column in batch.columns):
            yield from map(dict, map(zip, repeat(names), rows))  # no step of Python a sample
            return
        features = [feature_of(field) for field in batch.schema]
        pickles = bool(self.format_options.get("allow_pickle"))  # an option only of formats that have pickles
        for row in rows:
            cells = zip(names, features, row, strict=True)
            yield {n: value if raw else _decoded(n, f, value, pickles) for n, f, value in cells if value is not None}

    def head(self, count: int = 5) -> list[dict[str, Any]]:
        """The first samples, as `[i]` gives them, without an index; what cannot be had is None, with a warning."""
        found: list[dict[str, Any]] = []
        for batch in self.batches(max_rows=max(count, 1) if self.view == "samples" else 64, on_error="warn"):
            found += self._samples(pa.Table.from_batches([batch]))
            if len(found) >= count:
                break
        return found[:count]

    def _samples(self, table: pa.Table) -> list[dict[str, Any]]:
        if not table.num_columns:  # its batches would not tell how many rows there are
            return [{} for _ in range(table.num_rows)]
        rows = [row for batch in table.to_batches() for row in self._each(batch, raw=False)]
        if self.view == "samples":
            return rows
        starts = [*sample_firsts(table, self.view).tolist(), len(rows)]
        return [_document(rows[a:b]) for a, b in pairwise(starts)]


def _python(name: str, column: pa.Array) -> list[Any]:
    """The values of a column. Raises DataError for what Python cannot have: a date before the year 1, nanoseconds."""
    if isinstance(column.type, pa.ExtensionType):  # who registered the type may give other values, and only of some
        column = column.storage
    try:
        return uncut_values(column)
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError("a value that Python cannot have", column=name, found=str(error)[:200]) from error


def _decoded(name: str, feature: Feature, value: Any, pickles: bool) -> Any:
    try:  # not `errors_at`, which costs as much as most decoding
        return decode(feature, value, allow_pickle=pickles)
    except LadingError as error:
        raise error.at(column=name) from None


def _open_again(opened_as: Callable[[], Dataset]) -> Dataset:
    return opened_as()


def _refuse_no_columns(columns: Sequence[str] | None) -> None:
    """A batch without columns has no rows either, so nobody could be right."""
    if columns is not None and not len(columns):
        raise UsageError("no column is asked for", advice="Name one, or leave columns out for all of them.")


def _count(rows: int) -> int:
    """A number of rows that a batch may have. Raises UsageError."""
    try:
        count = as_int(rows)
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError("no number of rows", expected="a whole number, 1 or more", found=repr(rows)[:80])
    return count


def _in_order(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The batch with its columns in the order that was asked for."""
    names = batch.schema.names
    wanted = [name for name in dict.fromkeys(columns) if name in names]
    return batch if wanted == names else batch.select(wanted)


def _local_places(listing: Listing, manifest: Manifest | None, stores: Stores) -> list[str]:
    """The folder of a dataset and what in it lists the shards, where another dataset may take their place at once."""
    folder = listing.folder
    if folder is None and listing.index_file is not None:
        folder = folder_of(listing.index_file) or "."
    lists = [listing.index_file] if listing.index_file is not None else []
    lists += [f"{folder}/{FOLDER}"] if manifest is not None else []
    places = [resolve(place, stores) for place in ([] if folder is None else [folder, *lists])]
    return [path for store, path in places if is_local(store)]


def _identity(places: Sequence[str]) -> list[tuple[int, int, int]]:
    """What tells a folder and its lists from others that are put in their place; empty if one is not there.

    Of the folder the time does not count: somebody may put a file into it. But its number may come back.
    """
    try:
        found = [os.stat(place) for place in places]
    except OSError:
        return []
    return [(each.st_dev, each.st_ino, each.st_mtime_ns if i else 0) for i, each in enumerate(found)]


def _index_of(source: ShardFile, index: pa.Table) -> pa.Table:
    """An index with the shard's present name: it was made under another, or from another folder."""
    wrap = next((f.wrap for f in files_of(index.schema)), "")
    info = source.info
    entry = FileEntry(source.path, wrap, info.size_bytes if info else -1, info.version if info else "")
    return index.replace_schema_metadata(with_files(index.schema, [entry]).metadata)


def _document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """An interleaved sample: its id, its own fields, its items."""
    own: dict[str, Any] = {"sample_id": rows[0].get("sample_id")}
    items = []
    for row in rows:
        if row.get("modality") == "metadata":
            own.update({k: v for k, v in row.items() if k not in RESERVED})
        else:
            items.append({k: v for k, v in row.items() if k != "sample_id"})
    return {**own, "items": items}


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
