"""The shards of a source, opened when they are asked for: what every job reads from.

To open a source reads the head of one file. A shard's index is made when it is first needed, or found in a manifest
or in the cache of indexes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import RLock, local
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from lading._core.arrow.predicates import Predicate
from lading._core.dataset.shards.bad_shards import BadShards
from lading._core.dataset.shards.counting import count_samples
from lading._core.dataset.shards.open_views import OpenViews
from lading._core.dataset.shards.passes import Passes
from lading._core.dataset.shards.shard_indexes import ShardIndexes, index_kind
from lading._core.dataset.shards.whole_schema import WholeSchema, whole_schema
from lading._core.dataset.source.identity import SourceIdentity
from lading._core.dataset.source.manifest_options import manifest_options, schema_as_read
from lading._core.dataset.source.source import Listing
from lading._core.features.row_layout import RowLayout, row_layout
from lading._core.features.types import Feature
from lading._core.formats.base import RowFilter, SampleReader, ShardFile, ShardReader, Span
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import AnyFormat
from lading._core.formats.mapped import Mapped
from lading._core.interleaved.open import detect_view, open_view
from lading._core.interleaved.references import Follower
from lading._core.interleaved.typed import OtherTypes, retyped
from lading._core.manifest.files import ShardTables
from lading._core.manifest.values import FOLDER, Manifest
from lading._core.storage.base import FileInfo
from lading._core.storage.cached import CachedStore
from lading._core.storage.concurrent import is_remote
from lading._core.storage.descriptors import files_limit
from lading._core.storage.fetch import Fetcher
from lading._core.storage.index_json import POINTER_BYTES, refuse_pointer
from lading._core.storage.range_hasher import RangeHasher
from lading._core.storage.roots import StoredRoots, folder_of, real_place
from lading._core.storage.stores import Stores, resolve, resolve_folder
from lading.errors import DatasetReplaced, LadingError, NotFound, SidecarMismatch
from lading.limits import Limits
from lading.options import InterleavedOptions, OnBadShard

__all__ = ["DETECT_SHARDS", "Getter", "ReadPlan", "Shards", "hold_few", "layout_findings", "options_like"]

_MOST_DROPPED = 64
"""So many shards stay open, and more while all together take less memory."""
_SHARE_OF_FILES = 4
_HELD_SHARDS = 16
_DETACHED_BYTES = 64 << 20

DETECT_SHARDS = 16
"""Shards that are looked at to find the view or the schema of a source."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How the rows of shards are read, settled before the first shard is opened.

    Attributes:
        view: `samples` (a row is a sample) or `interleaved` (a row is an item; a sample is the rows of a `sample_id`).
        format_options: options with which shards are opened.
        interleaved: names of fields and policies for interleaved data.
        roots: folders that the caller lets references point into.
        target: the schema that all rows are given, if the caller asked for one.
        types: types that the caller gives to some columns.
        members: the schema that rows had which lading wrote, where the shards themselves say less of them.
        stored_schema: the schema of the rows, where their writer kept it.
        on_bad_shard: what an error of a shard is.
        source: arguments of `lading salvage`, for the advice of errors; None for no such advice.
        stored_roots: folders that the manifest lets references point into.
        image_lists: columns with one entry an image; None if nobody looked for them.
    """

    view: str
    format_options: Mapping[str, Any] = field(default_factory=dict)
    interleaved: InterleavedOptions = field(default_factory=InterleavedOptions)
    roots: Sequence[str] = ()
    target: pa.Schema | None = None
    types: pa.Schema | None = None
    members: pa.Schema | None = None
    stored_schema: pa.Schema | None = None
    on_bad_shard: OnBadShard = "error"
    source: str | None = None
    stored_roots: StoredRoots = field(default_factory=StoredRoots)
    image_lists: tuple[str, ...] | None = None


@dataclass(slots=True)
class Getter:
    """How single samples of an open shard are read.

    Attributes:
        view: the shard.
        get_sample: gives one sample by its ordinal, or None for a sample that is read as a row of a table; None if all
            are.
        blank: nulls of all columns of the dataset, if the shard lacks some; else empty.
        is_near: whether its file is on this machine, where samples need not be read at once.
        media: features of the columns that hold media, by name; None until a sample needs them.
    """

    view: ShardReader
    get_sample: Callable[[int], dict[str, Any] | None] | None
    blank: Mapping[str, None]
    is_near: bool
    media: Mapping[str, Feature | None] | None = None


class Shards:
    """Shards of one format, read as one view. Made by `open_shards`; `close` gives up files and maps.

    Attributes:
        listing: the shards.
        fmt: their format.
        stores: which store serves which URL.
        view, target, types, members, stored_schema, format_options, interleaved: as in `ReadPlan`.
        view_is_known: whether the caller, a manifest or a sample says the view; without samples it is a guess.
        manifest: what lading wrote next to the shards, if it did.
        kept_shards: the shards as the manifest lists them.
        kept: what the manifest's files hold of each shard.
        named_roots, stored_roots: folders that the caller, and the manifest, let references point into.
        limits: the most that files may ask for.
        fetcher: reads references.
        predicate: see `ShardFile.predicate`.
        follower: finds the files that `source_ref` texts name.
        indexes: finds and holds the indexes of shards.
        identity: recognises a dataset that took the place of this one.
        bad: the shards that could not be read, and what is done about them.
        passes: reports how far a pass over all shards is.
        read_samples: by number, samples of the shards that were read to their end.
        replacements: by number, what is read in place of shards that are damaged.
        getters: of open shards, by number, how single samples are read; dropped with their shard.
    """

    def __init__(
        self,
        listing: Listing,
        fmt: AnyFormat,
        plan: ReadPlan,
        *,
        fetcher: Fetcher,
        stores: Stores,
        manifest: Manifest | None = None,
        kept_shards: pa.Table | None = None,
    ) -> None:
        self.listing, self.manifest, self.kept_shards = listing, manifest, kept_shards
        self.view, self.target, self.members = plan.view, plan.target, plan.members
        self.types = plan.types
        self.view_is_known = True
        self.stored_schema, self.interleaved, self.named_roots = plan.stored_schema, plan.interleaved, plan.roots
        self.format_options = dict(plan.format_options)
        self.read_options: Any = fmt.read_options(self.format_options)
        self.fmt, self.stores, self.fetcher, self.limits = fmt, stores, fetcher, fetcher.limits
        self.predicate: Predicate | None = None
        self.stored_roots = plan.stored_roots
        stored = plan.stored_roots.named([real_place(root, stores) for root in plan.roots])
        self.follower = Follower(stores, self.roots, mmap=fetcher.mmap, limits=self.limits, stored=stored)
        self.kept: ShardTables | None = None
        if kept_shards is not None and listing.own is not None:
            store, folder = resolve_folder(listing.own, stores)
            written = manifest.view if manifest is not None else None
            self.kept = ShardTables(store, folder, kept_shards, self.limits, view=written)
        self.indexes = ShardIndexes(self.kept)
        self.identity = SourceIdentity(listing, manifest, stores)
        self._counts = Counter[str](listing.left_out)
        self._reporting = local()
        self.bad = BadShards(plan.on_bad_shard, plan.source)
        self.passes = Passes()
        self.replacements: dict[int, ShardFile] = {}
        self.getters: dict[int, Getter] = {}
        self._views = OpenViews()
        self._detected: tuple[ShardFile, ShardReader] | None = None
        self._infos: dict[int, FileInfo] = {}  # of open shards in stores with a cache
        self._detached: dict[int, tuple[ShardReader, FileInfo | None]] = {}
        self._detached_bytes = 0
        self._lock = RLock()
        self._opening: dict[int, RLock] = {}
        self._views_opened = False
        self._source: tuple[int, ShardFile] | None = None
        self._ends: NDArray[np.int64] | None = None
        self._versions: NDArray[np.uint64] | None = None  # hashes, 0 where a shard was not opened
        self.read_samples: dict[int, int] = {}
        self._schema: pa.Schema | None = None
        self._image_lists = plan.image_lists

    @property
    def format(self) -> str:
        """Name of the shards' format."""
        return self.fmt.name

    @property
    def fixed_schema(self) -> bool:
        """Whether all rows of a shard have the columns that its schema names."""
        return self.fmt.info.fixed_schema

    @property
    def takes_any_fields(self) -> bool:
        """Whether each sample may have fields of its own: neither the format nor a manifest says which there are."""
        return not self.fmt.info.fixed_schema and self.members is None

    @property
    def row_layout(self) -> RowLayout:
        """The meaning of a row."""
        return row_layout(self.view)

    @property
    def has_items(self) -> bool:
        """Whether rows are items of documents."""
        return self.row_layout.has_items

    @property
    def holds_its_bytes(self) -> bool:
        """Whether all bytes of samples lie in the shards themselves: tables of items may lead to other files."""
        return not self.row_layout.may_refer(self.fmt.info)

    @property
    def files_beside(self) -> bool:
        """Whether most bytes may lie in other files than the shards, which no listing names."""
        return self.fmt.info.files_name_each_other

    def close(self) -> None:
        """Give up open shards, maps and streams."""
        self._close_views()
        self.fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def counts(self) -> Counter[str]:
        """What was reported while reading, by a short phrase."""
        counts: Counter[str] | None = getattr(self._reporting, "counts", None)
        return self._counts if counts is None else counts

    @contextmanager
    def reporting_to(self, counts: Counter[str]) -> Iterator[None]:
        """Have this thread report to other counts, such as those of a look at rows that are read again later."""
        before = self.counts
        self._reporting.counts = counts
        try:
            yield
        finally:
            self._reporting.counts = before

    # Files

    def path(self, shard: int) -> str:
        """Path of a shard."""
        return str(self.listing.value("path", shard))

    def is_remote(self, shard: int) -> bool:
        """Whether a shard is in a store of high latency."""
        return is_remote(resolve(self.path(shard), self.stores)[0])

    def roots(self) -> list[str]:
        """The folders that references in tables may point into.

        They are those of the shards, those near them that the manifest keeps, and those that the caller named.
        """
        own = {folder_of(path) or "." for path in self.listing.table.column("path").to_pylist()}
        return [*sorted(own), *self.stored_roots.trusted, *self.named_roots]

    def source(self, shard: int) -> ShardFile:
        """A shard as formats open it; checks its size where the listing says one.

        The last one is remembered until it was read: to look at a file of a store is a request.
        """
        known = self._source
        if known is None or known[0] != shard:
            with self.bad.advising():
                known = self._source = (
                    shard, replace(self._find(shard), recent=self.fetcher.recent, predicate=self.predicate)
                )  # fmt: skip
        return known[1]

    def _find(self, shard: int) -> ShardFile:
        """The file of a shard, if it is as long as the listing says, or its replacement."""
        if shard in self.replacements:
            return self.replacements[shard]
        with self.identity.watching():
            return self._listed(shard)

    def _listed(self, shard: int) -> ShardFile:
        own = f"{self.listing.folder}/{FOLDER}" if self.listing.folder is not None and self.manifest else None
        if self.fmt.loose is not None:
            return _loose_files(self.listing, shard, self.stores, self.limits)
        return _listed_file(self.listing, shard, own, self.stores, self.limits)

    def rows_by_heads(self, numbers: Sequence[int]) -> list[int] | None:
        """The rows of each of these local shards, none of which is opened; None where the format must open them."""
        heads, counts = self.fmt.heads, list[int]()
        if heads is None:
            return None
        with self.bad.advising(), self.identity.watching():
            for shard in numbers:
                self.passes.add(len(counts))
                source = self._listed(shard)
                self._refuse_replaced(shard, source)
                count = heads.count_rows(source, source.options_over(self.read_options))
                if count is None:
                    return None
                counts.append(count)
        return counts

    def path_in_rows(self, shard: int) -> str:
        """The path that the rows of a shard name as their file."""
        replacement = self.replacements.get(shard)
        return resolve(self.path(shard), self.stores)[1] if replacement is None else replacement.path

    def release(self, held_bytes: int = 0) -> None:
        """Give back mapped pages that were touched; see `Fetcher.release`."""
        self.fetcher.release(held_bytes)

    # Open shards

    def detect_view(self, shard: int) -> str | None:
        """Return the view that the first samples of a shard imply; None if undecided, as for an empty shard.

        The open file serves `view_of`, if that opens the same shard next.
        """
        source, found = self.source(shard), None
        reader = self.fmt.open(source, source.options_over(self.read_options))
        try:
            found = detect_view(reader, self.fetcher, source, self.interleaved)
        finally:
            self.fetcher.recent.clear()
            if found is None:
                reader.close()
        if found is not None:
            self._detected = source, reader
            _bound_open_shards(self)
        return found

    def _take_detected(self, source: ShardFile | None = None) -> ShardReader | None:
        """Return the reader of `detect_view`, if it is of this file; close that of another file."""
        with self._lock:
            (file, reader), self._detected = self._detected or (None, None), None
        if reader is None or file is source:
            return reader
        reader.close()
        return None

    def open_shard(self, shard: int) -> ShardReader:
        """A shard as a view; the last few stay open."""
        with self._lock:
            view = self._known_view(shard)
            if view is not None:
                return view
            # The first one may decide how all are read. Others open at the same time: it takes requests.
            lock = self._opening.setdefault(shard, RLock()) if self._views_opened else self._lock
        with lock:
            view = self._known_view(shard)
            if view is not None:
                return view
            source = self.indexed(shard)
            with self._lock:
                self._refuse_replaced(shard, source)
                if isinstance(source.store, CachedStore) and source.info is not None:
                    self._infos[shard] = source.info
            view = self.view_of(source)
            with self._lock:
                self._views_opened = True
                self._opening.pop(shard, None)
                self._views.add(shard, view)
                while self._views.is_full:
                    self.drop_oldest()
        _bound_open_shards(self)
        return view

    def _refuse_replaced(self, shard: int, source: ShardFile) -> None:
        """Raise DatasetReplaced if a shard was opened before, and its file is another one now, by its time or etag."""
        if source.info is None or not source.info.version or shard in self.replacements:
            return
        if self._versions is None:
            self._versions = np.zeros(len(self.listing), np.uint64)
        known, now = self._versions[shard], np.uint64(xxhash.xxh3_64_intdigest(source.info.version.encode()) | 1)
        if known and known != now:
            raise _replaced(source.path)
        self._versions[shard] = now

    def refuse_changed(self, numbers: Iterable[int]) -> None:
        """Raise DatasetReplaced if a local shard was replaced or changed since it was opened; others are left out.

        Stores compare the version with each request.
        """
        for shard in numbers:
            if self._versions is not None and self._versions[shard] and not self.is_remote(shard):
                self._refuse_replaced(shard, self._find(shard))

    def _known_view(self, shard: int) -> ShardReader | None:
        with self._lock:
            return self._detached[shard][0] if shard in self._detached else self._views.get(shard)

    @property
    def num_open(self) -> int:
        """Number of shards that stay open."""
        return len(self._views) + (self._detected is not None)

    @property
    def num_droppable(self) -> int:
        """Number of those that `drop_oldest` may drop."""
        return max(len(self._views) - 1, 0) + (self._detected is not None)

    def drop_oldest(self) -> None:
        """Drop the least recently used open shard, unless it is the only one."""
        with self._lock:
            self._take_detected()
            if len(self._views) > 1:
                # Not closed: another thread may be reading from it, and the last one to let go of it closes it.
                oldest = self._views.pop_oldest()
                self.getters.pop(oldest, None)
                self._infos.pop(oldest, None)

    def readable(self, shards: Iterable[int]) -> Iterator[tuple[int, ShardReader]]:
        """Give the number and the view of each of these shards; bad shards are an error, or left out."""
        for shard in shards:
            view = None
            with self.bad.skipping(shard, self.path(shard)):
                view = self.open_shard(shard)
            if view is not None:
                yield shard, view

    def indexed(self, shard: int) -> ShardFile:
        """A shard as formats open it, with its index where the manifest or the cache has it."""
        source = self.source(shard)
        index = None if shard in self.replacements else self.indexes.known(shard, source, self.index_kind)
        return source if index is None else replace(source, index=index)

    @property
    def index_kind(self) -> str:
        """A text that differs for indexes of one shard that are made under other options."""
        return index_kind(self.format, self.view, self.format_options)

    def view_of(self, source: ShardFile) -> ShardReader:
        """Open the file of a shard as a view."""
        with self.bad.advising(), self.identity.watching():
            view = open_view(
                self.fmt, source, self.view, self.fetcher, self.follower, self.read_options, self.interleaved,
                self.stored_schema, self.members, reader=self._take_detected(source),
            )  # fmt: skip
            self.interleaved = view.settled(self.interleaved)
        if self.types is None:
            return view
        fills = not self.row_layout.columns_vary
        return Mapped(view, OtherTypes(self.types, self.fetcher, source.path, fills=fills))

    @contextmanager
    def one_pass(
        self,
        shard: int,
        range_hasher: RangeHasher | None = None,
        *,
        by_index: bool = False,
        row_filter: RowFilter | None = None,
        span: Span | None = None,
    ) -> Iterator[ShardReader]:
        """A shard as a view for one pass over it; closed at the end, if nobody else reads from it.

        Args:
            shard: its number.
            range_hasher: takes the values of a mapped file that a reader passes while it walks over headers.
            by_index: whether samples of a remote shard may be read by its index, without a walk over its headers.
            row_filter: see `ShardFile.row_filter`.
            span: the samples to read; None for all.
        """
        self._cache_shard(shard)
        own = self._scanned_in_part(shard, by_index=by_index and span is None, row_filter=row_filter)
        if span is not None:
            own = replace(own or self.source(shard), span=span)
        if own is not None:
            part = self.view_of(own)
            try:
                yield part
                self.counts.update(part.counts)
            finally:
                part.close()
                self._source = None
            return
        self.getters.pop(shard, None)
        with self._lock:
            view = opened = self._views.pop(shard)  # by now another file may be in its place
        if view is None and range_hasher is None:
            view = self._take_detached(shard)
        if view is None:
            source = self.source(shard)
            held = self.indexes.held(shard)
            if shard not in self.replacements and not (held is None and range_hasher is None):
                source = replace(source, index=held, range_hasher=range_hasher)
            view = self.view_of(source)
        try:
            yield view
            self.counts.update(view.counts)
        finally:
            if opened is None:  # else another thread may be reading from it, and the last one to let go of it closes it
                view.close()
            self._source = None

    def _scanned_in_part(self, shard: int, *, by_index: bool, row_filter: RowFilter | None) -> ShardFile | None:
        """A remote shard with its index, or with filtered rows; None where a scan reads all of it."""
        if self.has_items or not (row_filter is not None if self.fixed_schema else by_index):
            return None
        if shard in self.replacements or not self.is_remote(shard):
            return None
        if self.fixed_schema:
            return replace(self.source(shard), row_filter=row_filter)
        source = self.indexed(shard)
        index = self.indexes.held(shard) if source.index is None else source.index
        return None if index is None else replace(source, index=index, by_index=True)

    def detach(self, shard: int) -> None:
        """Keep an open shard for its next pass, without its file, while all such take less than 64 MiB."""
        with self._lock:
            view = self._views.peek(shard)
            if shard in self.replacements or self._detached_bytes >= _DETACHED_BYTES:
                return
            size = None if view is None else view.detach()
            if view is not None and size is not None:
                self._views.pop(shard)
                self._detached[shard] = view, self.source(shard).info
                self._detached_bytes += size
                self.getters.pop(shard, None)

    def _take_detached(self, shard: int) -> ShardReader | None:
        """The view of `detach`, if the file of the shard is the same by size and time."""
        view, info = self._detached.pop(shard, (None, None))
        if view is None:
            return None
        self._source = None  # look again
        return view if self.source(shard).info == info else None

    def read_with(self, options: Mapping[str, Any]) -> None:
        """Read shards with these options where nobody gave others; if that is a change, reopen the open shards."""
        told = {**options, **self.format_options}
        if told != self.format_options:
            self.format_options, self.read_options = told, self.fmt.read_options(told)
            self._close_views()
            hold_few(self)

    def read_plan(self) -> ReadPlan:
        """How another process reads the shards: as they are read here."""
        return ReadPlan(
            self.view, self.format_options, self.interleaved, self.named_roots, self.target, self.types, self.members,
            self.stored_schema, self.bad.policy, self.bad.source, self.stored_roots, self._image_lists,
        )  # fmt: skip

    def is_same_source(self, other: Shards) -> bool:
        """Whether others are these shards in the same version, as far as it is listed, and are read as these."""
        listed = ["path", "entry", "size_bytes", "version"]
        read = ["view", "interleaved", "target", "types", "members", "stored_schema"]
        one, two = (each.listing.table.select(listed) for each in (self, other))
        mine, others = (each.read_plan() for each in (self, other))
        return one.equals(two) and all(getattr(mine, name) == getattr(others, name) for name in read)

    def sources(self) -> Sequence[Shards]:
        """The shards of each source: these."""
        return [self]

    def with_listing(self, table: pa.Table, left_out: Mapping[str, int]) -> Shards:
        """Return the same shards, read in the same way, with another table of them; nothing is open of it yet.

        Args:
            table: the table.
            left_out: counts of what it lacks, by a short phrase.
        """
        listing = replace(self.listing, table=table, left_out={**self.listing.left_out, **left_out})
        made = Shards(listing, self.fmt, self.read_plan(), fetcher=self.fetcher, stores=self.stores)
        made.view_is_known = self.view_is_known
        return made

    def with_fields(self, fields: tuple[str, ...] | None) -> Shards:
        """Return the same shards with other passthrough columns of documents; None for all. Nothing is open of it yet.

        The manifest and the listing are those of these shards: no request is made.
        """
        plan = replace(self.read_plan(), interleaved=replace(self.interleaved, fields=fields))
        made = Shards(
            self.listing, self.fmt, plan, fetcher=self.fetcher, stores=self.stores, manifest=self.manifest,
            kept_shards=self.kept_shards,
        )  # fmt: skip
        made.view_is_known = self.view_is_known
        return made

    def forget_shards(self) -> None:
        """Close all shards, and forget what was found in them: the listing or `replacements` was changed."""
        self._close_views()
        self.indexes.forget()
        self.read_samples.clear()
        self._source = self._ends = self._schema = None
        vars(self).pop("whole", None)

    def _close_views(self) -> None:
        with self._lock:
            self._take_detected()
            self._views.close()
            self._detached.clear()
            self._detached_bytes = 0
            self.getters.clear()
            self._infos.clear()

    def whole_samples(self, shard: int) -> SampleReader | None:
        """The open reader of a shard, if it has each sample in one piece, and nobody asked for another schema."""
        view = self.shard_to_read(shard)
        return view.whole_samples if self.target is None else None

    # Schema

    @property
    def knows_schema(self) -> bool:
        """Whether `schema` is known, or a footer or header says it: that of a tar takes a walk over all of it."""
        told = self.target is not None or self.members is not None or self.manifest is not None
        return told or self._schema is not None or self.fixed_schema

    @property
    def schema(self) -> pa.Schema:
        """Schema of the manifest, if that is of this view, or of the first shard that is not empty.

        Other shards may hold more fields then.
        """
        if self._schema is None:
            self._schema = self.with_types(_found_schema(self))
        return self._schema

    def image_lists(self) -> tuple[str, ...]:
        """The columns whose lists have one entry an image, though nobody names them.

        The first documents decide, those of the first shard with images. Empty where options name such fields.
        """
        if self._image_lists is None:
            looked_for = self.has_items and self.interleaved.per_image_fields is None
            self._image_lists = self._find_image_lists() if looked_for else ()
        return self._image_lists

    def _find_image_lists(self) -> tuple[str, ...]:
        with self.reporting_to(Counter()):
            for number, view in self.readable(range(min(len(self.listing), DETECT_SHARDS))):
                with self.bad.skipping(number, self.path(number)):
                    found = view.image_lists()
                    if found.with_images:
                        return found.names
        return ()

    @cached_property
    def whole(self) -> WholeSchema:
        """The columns of all shards, as far as a manifest or at most 1,000 footers say them."""
        return whole_schema(self)

    @property
    def schema_is_told(self) -> bool:
        """Whether the caller or a manifest says the columns."""
        return self.target is not None or self.members is not None or _fits_manifest(self)

    @property
    def has_footers(self) -> bool:
        """Whether each shard says its columns and their types in a footer or header."""
        info = self.fmt.info
        return info.fixed_schema and info.types == "stored" and self.open_shard(0).declares_types

    def with_types(self, schema: pa.Schema) -> pa.Schema:
        """The schema with the types that the caller gives to some columns."""
        return schema if self.types is None else retyped(schema, self.types, fills=not self.row_layout.columns_vary)

    # Numbers of samples

    def sample_ends(self) -> NDArray[np.int64]:
        """Number of samples in each shard and all before it: 8 bytes a shard. A shard that is skipped has none."""
        if self._ends is None:
            listed = self.listing.table.column("num_samples").to_pylist()
            known = [0 if i in self.bad.skipped else self.read_samples.get(i, n) for i, n in enumerate(listed)]
            counts = np.array([0 if n is None else n for n in known], np.int64)
            unknown = [i for i, n in enumerate(known) if n is None]
            if unknown:
                with self.passes.during("counting the samples"):
                    counts[unknown] = count_samples(self, unknown)
            self._ends = np.cumsum(counts)
        return self._ends

    @property
    def known_count(self) -> int | None:
        """Number of samples, if a list says it or the shards were counted; None if they would have to be read."""
        if self._ends is None and self.listing.table.column("num_samples").null_count:
            return None
        return int(self.sample_ends()[-1]) if len(self.listing) else 0

    def counted_shard(self, shard: int) -> ShardReader:
        """An open shard. Raises SidecarMismatch if a list says another number of samples."""
        view = self.open_shard(shard)
        _check_count(self.listing, shard, view.num_samples())
        return view

    def shard_to_read(self, shard: int) -> ShardReader:
        """An open shard whose samples are read, in the cache of its store if that has one.

        Raises as `counted_shard`.
        """
        if shard in self._infos or self._known_view(shard) is None:
            self._cache_shard(shard)  # before it is opened: some formats read all of a file for its index
        return self.counted_shard(shard)

    def _cache_shard(self, shard: int) -> None:
        """Have the whole file of a shard in the cache of its store, if that has one."""
        store, _ = resolve(self.path(shard), self.stores)
        if isinstance(store, CachedStore) and self.fmt.loose is None and shard not in self.replacements:
            info = self._infos.get(shard) or self.source(shard).info
            if info is not None:
                checksum = None if self.kept is None else self.kept.shards["xxh3"][shard].as_py()
                store.keep(info, checksum or "")

    def count_read(self, shard: int, samples: int) -> None:
        """Take note of the samples of a shard that was read whole. Raises as `counted_shard`."""
        _check_count(self.listing, shard, samples)
        self.read_samples[shard] = samples


_datasets: WeakValueDictionary[int, Shards] = WeakValueDictionary()
"""Datasets of this process that have opened shards, by `id`: threads may add one while another thread looks at all."""


def _bound_open_shards(latest: Shards) -> None:
    """Drop open shards of the datasets that have most, while all together have more than a share of the files allowed.

    An open Parquet file takes one of the process's descriptors (`ulimit -n`). Called without a lock held.
    """
    _datasets[id(latest)] = latest
    for _ in range(_MOST_DROPPED):
        every = [each for reference in _datasets.valuerefs() if (each := reference()) is not None]
        most = max(every, key=lambda each: each.num_droppable)
        if not most.num_droppable or sum(each.num_open for each in every) <= files_limit() // _SHARE_OF_FILES:
            return
        most.drop_oldest()


def _found_schema(shards: Shards) -> pa.Schema:
    """The columns of a source, as the caller, a manifest or the first shards say."""
    if shards.target is not None:
        return shards.target
    if shards.members is not None and not shards.format_options.get("lists"):
        return shards.fmt.schema_as_read(shards.members, shards.read_options, restored=True)
    if shards.manifest is not None and _fits_manifest(shards):
        return schema_as_read(shards.manifest.schema, shards.fmt, shards.view, shards.read_options, shards.interleaved)
    if not len(shards.listing):
        return _listed_schema(shards.fmt, shards.listing.index_file, shards.view, shards.stores, shards.limits)
    looked_at = range(min(len(shards.listing), DETECT_SHARDS))
    return _first_schema(_schemas(shards, looked_at))


def _fits_manifest(shards: Shards) -> bool:
    """Whether a manifest says the columns in this view; it does not if options make lists of them."""
    manifest = shards.manifest
    if manifest is None or shards.format_options.get("lists"):
        return False
    return (manifest.view, manifest.format) == (shards.view, shards.format)


def _schemas(shards: Shards, looked_at: Iterable[int]) -> Iterator[pa.Schema]:
    for number in looked_at:
        with shards.bad.skipping(number, shards.path(number)):
            yield shards.open_shard(number).schema()


def hold_few(shards: Shards) -> None:
    """Open all shards, where they are few and that costs next to nothing: each is read from then on as it is now.

    A shard that cannot be opened is an error when it is read. Files of partitions are left closed: a condition may need
    few of them.

    Raises:
        DatasetReplaced: another dataset took the place of this one before all were open.
    """
    partitions = shards.listing.table.column("partition")
    many = len(shards.listing) > _HELD_SHARDS or partitions.null_count < len(partitions)
    if many or not shards.identity.may_change or not shards.fmt.info.opens_at_once:
        return
    for shard in range(len(shards.listing)):
        try:
            shards.open_shard(shard)
        except LadingError:
            shards.identity.refuse_another()


def layout_findings(shards: Shards, shard: int) -> Iterator[Finding]:
    """Yield layout findings of a shard, of its format and of its view."""
    file = replace(shards.indexed(shard), view=shards.view)
    yield from shards.fmt.checks(file, shards.read_options, Level.LAYOUT)
    if shards.has_items:  # opening samples may take a walk over the file
        yield from shards.open_shard(shard).layout_findings()


def options_like(shards: Shards, shard: int = 0) -> Mapping[str, Any]:
    """Options of writing under which the files of a copy are like a shard."""
    if not len(shards.listing):
        return {}
    source = replace(shards.source(shard), stored_schema=shards.members)
    found = shards.fmt.options_like(source, shards.view)
    return {**manifest_options(shards.manifest, shards.fmt), **found}


def _listed_schema(fmt: AnyFormat, index: str | None, view: str, stores: Stores, limits: Limits) -> pa.Schema:
    """The schema of a source without shards, as its index file says."""
    found = pa.schema([])
    if index is not None:
        found = fmt.index.schema(*resolve(index, stores), limits) or found
    layout = row_layout(view)
    is_absent = layout.is_keyed and layout.key not in found.names
    return layout.empty_schema if is_absent else found


def _first_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The first schema with more than keys: a tar without samples has a column of these."""
    found = pa.schema([])
    for schema in schemas:
        if {*schema.names} - {"__key__"}:
            return schema
        found = found if len(found) else schema
    return found


def _loose_files(listing: Listing, shard: int, stores: Stores, limits: Limits) -> ShardFile:
    """A list of loose files as a shard, under the path of the first one; another list is another version."""
    path, entry = (str(listing.value(name, shard) or "") for name in ("path", "entry"))
    store, path = resolve(path, stores)
    size = listing.value("size_bytes", shard) or 0
    info = FileInfo(path, size, xxhash.xxh3_64_hexdigest(entry.encode()))
    return ShardFile(store, path, info, entry=entry, limits=limits, stores=stores)


def _listed_file(listing: Listing, shard: int, own: str | None, stores: Stores, limits: Limits) -> ShardFile:
    """The file of a shard, if it is as long as the listing says; `own` is lading's own list of the shards."""
    store, path = resolve(str(listing.value("path", shard)), stores)
    lists = listing.named_by or own
    listed = listing.value("size_bytes", shard)
    version = listing.value("version", shard) or ""
    try:
        far = is_remote(store) and version and (listed or 0) > 0
        info = FileInfo(path, listed, version) if far else store.head(path)
    except NotFound as error:
        if lists is not None:
            error.message += f", though {lists} lists it"
        raise
    if listed is not None and listed != info.size_bytes:
        raise SidecarMismatch(
            f"the size differs from what {lists} says" if lists else "the size has changed since it was listed",
            file=path, expected=f"{listed} bytes", found=f"{info.size_bytes} bytes",
            advice="The file was changed, damaged or replaced.",
        )  # fmt: skip
    if version and info.version != version:
        raise _replaced(path)
    if info.size_bytes in POINTER_BYTES:
        refuse_pointer(bytes(store.get_ranges(path, [(0, info.size_bytes)])[0]), path)
    entry = listing.value("entry", shard) or ""
    partition = listing.value("partition", shard) or ""
    alone = bool(listing.value("alone", shard))
    return ShardFile(store, path, info, entry=entry, partition=partition, alone=alone, limits=limits, stores=stores)


def _replaced(path: str) -> DatasetReplaced:
    return DatasetReplaced(
        "the file was replaced or changed since the dataset was opened", file=path,
        advice="Open the dataset again. Do not write to data that is being read: write new files.",
    )  # fmt: skip


def _check_count(listing: Listing, shard: int, found: int) -> None:
    """Compare the number of samples in a shard with what the manifest or an index says, if one does."""
    listed = listing.value("num_samples", shard)
    if listed is not None and listed != found:
        raise SidecarMismatch(
            f"the number of samples differs from what {listing.index_file or 'the manifest'} says",
            file=listing.value("path", shard), expected=listed, found=found,
        )  # fmt: skip
