"""The format contract: one shard in, batches out; batches in, one shard out.

A format translates between record batches and the bytes of one shard file. It knows nothing of jobs, processes,
progress or datasets, and does I/O only through the store it is given. `ShardReader` and `ShardWriter` have defaults for
all but a few methods. `Format` in `_core.formats.format` makes them. docs/write-a-format.md shows a whole format.

A batch holds one row a sample. A payload column is either a *reference column* (`lading.ref`: the bytes are still in
the file) or `large_binary` (they exist only in memory, such as bytes of a compressed page). The schema of a batch
with references carries its files table (`_core.arrow.references.with_files`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.align import align_table
from lading._core.arrow.byte_ranges import ByteRanges, ChunkedRanges
from lading._core.arrow.column_slices import ColumnSlices
from lading._core.arrow.predicates import Predicate
from lading._core.arrow.references import FileEntry, concat
from lading._core.features.image_lists import FIRST_DOCUMENTS, ImageLists, may_hold_lists
from lading._core.formats.findings import Finding
from lading._core.storage.base import Buffer, FileInfo, MappedFile, Mapper, Sink, Store
from lading._core.storage.fetch import Fetcher
from lading._core.storage.range_hasher import RangeHasher
from lading._core.storage.recent import RecentBytes
from lading._core.storage.stores import Stores
from lading._core.storage.traffic import ranges_of
from lading.errors import LadingError, Unrepresentable, UsageError
from lading.limits import DEFAULT_LIMITS, Limits
from lading.options import InterleavedOptions

__all__ = [
    "DEFAULT_SCAN",
    "Change",
    "DocumentReader",
    "FoundMembers",
    "MemberReader",
    "MemberWriter",
    "Members",
    "Ranges",
    "Recoverable",
    "Recovered",
    "RowFilter",
    "SampleReader",
    "Scan",
    "SchemaBefore",
    "ShardFacts",
    "ShardFile",
    "ShardReader",
    "ShardWriter",
    "Span",
    "Units",
    "map_file",
    "read_rows",
    "single_ranges",
    "sparse_member",
    "two_sinks",
]

_MANY_ROWS = 65_536
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of a shard, and in which batches.

    Attributes:
        columns: columns to read; None for all.
        schema: columns and their types, for a file that declares none. Other files ignore it.
        max_rows: rows a batch, at most.
        max_bytes: payload a batch, at most; a single larger row comes alone.
        views: payload may come as `binary_view`, or as references in some batches, where that saves a copy. A view
            keeps its whole page in memory, so take it for a sink or for use at once.
        drifting: batches of items (`_core.interleaved`) may differ in columns and types, each by its own rows, where
            a common schema would need a scan beforehand.
        payload: the payload of all rows is fetched next, so that a reader that needs values may fetch it with them.
    """

    columns: Sequence[str] | None = None
    schema: pa.Schema | None = None
    max_rows: int = _MANY_ROWS
    max_bytes: int = 64 << 20
    views: bool = False
    drifting: bool = False
    payload: bool = False

    def at_most(self, max_rows: int, max_bytes: int) -> Scan:
        """Return the same with smaller limits, where these are smaller."""
        return replace(self, max_rows=min(self.max_rows, max_rows), max_bytes=min(self.max_bytes, max_bytes))


DEFAULT_SCAN = Scan()
"""All columns, in batches of usual size."""


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A condition on rows, which is evaluated again on what a reader gives.

    Attributes:
        columns: returns the columns that the condition looks at, of all names; none if that is unknown.
        passes: returns which rows of a batch with these columns may be kept.
    """

    columns: Callable[[Sequence[str]], list[str]]
    passes: Callable[[pa.RecordBatch], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Units:
    """The parts of a shard that can be read alone: row groups, record batches, samples.

    Attributes:
        row: the first row of each unit, and the number of rows.
        offset: where the bytes of each unit begin, and where those of the last one end.
    """

    row: NDArray[np.int64]
    offset: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring samples of a shard, which begin where a unit of it does (`ShardReader.units`), or some rows behind.

    Attributes:
        first_row: its first row in the shard.
        stop_row: the row behind its last one.
        skipped_rows: rows of its first unit before its own: items of a sample that begins before.
        first_sample: its first sample in the shard. Only rows that are items have other numbers.
        stop_sample: the sample behind its last one.
        start: where its first unit begins.
        stop: where its bytes end, or a unit begins that also has the last items of its last sample.
        is_last: whether it ends with the shard.
    """

    first_row: int
    stop_row: int
    skipped_rows: int
    first_sample: int
    stop_sample: int
    start: int
    stop: int
    is_last: bool

    @property
    def num_rows(self) -> int:
        """The number of its rows."""
        return self.stop_row - self.first_row

    @property
    def num_samples(self) -> int:
        """The number of its samples."""
        return self.stop_sample - self.first_sample

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the shard."""
        return self.first_row == 0 and self.is_last

    @property
    def size_bytes(self) -> int:
        """The number of its bytes."""
        return self.stop - self.start

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield its rows out of batches that begin at its first unit; no further batch is asked for."""
        skipped, rows = self.skipped_rows, self.num_rows
        for batch in batches:
            part = batch.slice(min(skipped, batch.num_rows), rows)
            skipped, rows = max(skipped - batch.num_rows, 0), rows - part.num_rows
            if part.num_rows:
                yield part
            if not rows:
                return

    def through(self, last: Span) -> Span:
        """Return the samples from the first of these to the last of another span."""
        return replace(self, stop_row=last.stop_row, stop_sample=last.stop_sample, stop=last.stop, is_last=last.is_last)


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file to be read as a shard.

    Attributes:
        store: the store that holds it.
        path: its path in the store; also its name in errors and references.
        info: its size and version, if they are known.
        index: an earlier result of `ShardReader.index()` for this file, which a reader may use.
        entry: the shard's entry in the dataset's own index (`ListedShard.entry`); empty if there is none.
        options: options of the format for this shard alone.
        partition: columns with one value in the whole file, from the names of folders or from the dataset's own index
            (`_core.formats.hive_partitions`); empty for none. Readers ignore it: views add the columns.
        alone: whether no file has this one's name and `.idx` behind it; False if that is unknown.
        rows: the rows to read, ascending, if other rows are damaged; None for all rows. Readers ignore it: views skip
            the other rows (`_core.interleaved.open`).
        span: the samples to read, as rows 0, 1, …; None for all. Only for readers with `units`, and for `batches`.
        stands_for: the file that this one was made from; relative paths in it start there. Empty for an original.
        stands_in: the store of that file; None for an original.
        stores: further stores, for files that this one refers to.
        limits: limits on what the file may ask for.
        view: how its rows are taken, as `samples` or as `interleaved` items; for `Format.checks`.
        reported: `ShardReader.counts` after all rows were read, perhaps with those of neighbouring shards; for
            `Format.checks`. None if they were not read, because the file matches its checksum: then only the files next
            to it, and the order of its rows by `index`, need a check.
        stored_schema: columns of its rows as the manifest keeps them; None if no manifest does.
        range_hasher: hashes values while a reader walks over headers, for a caller that hashes all bytes.
        by_index: whether batches may follow `index` and leave unread what it does not name; False for callers that
            check the file.
        recent: takes the bytes of a remote file that a reader walks through, for the fetch of their references.
        row_filter: a condition that drops rows. A reader of a remote file may leave large values in the file, as
            references, and give nulls for values of rows that fail, except in the columns of the condition.
        predicate: what rows must pass behind the reader. A reader may leave out rows that fail, as if the file lacked
            them: those of a row group, by its statistics.
    """

    store: Store
    path: str
    info: FileInfo | None = None
    index: pa.Table | None = None
    entry: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    partition: str = ""
    alone: bool = False
    rows: NDArray[np.int64] | None = None
    span: Span | None = None
    stands_for: str = ""
    stands_in: Store | None = None
    stores: Stores = field(default_factory=Stores)
    limits: Limits = DEFAULT_LIMITS
    view: str = "samples"
    reported: Mapping[str, int] | None = None
    stored_schema: pa.Schema | None = None
    range_hasher: RangeHasher | None = None
    by_index: bool = False
    recent: RecentBytes | None = None
    row_filter: RowFilter | None = None
    predicate: Predicate | None = None

    def pinned(self) -> tuple[ShardFile, FileInfo]:
        """Return the file with its size and version, and these. A request to the store, if they are unknown."""
        info = self.info or self.store.head(self.path)
        return (self if self.info else replace(self, info=info)), info

    def get_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """Return one buffer per `(offset, length)`, of the version in `info`; see `Store.get_ranges`."""
        return ranges_of(self.store, self.path, ranges, self.info.version if self.info else "")

    def options_over(self, options: _Read) -> _Read:
        """Return options of reading, a dataclass, with those of this shard alone."""
        return replace(options, **self.options) if self.options else options  # type: ignore[type-var] # a dataclass

    @property
    def place(self) -> str:
        """The path from which relative paths in the file start."""
        return self.stands_for or self.path

    @property
    def place_store(self) -> Store:
        """The store of the files that relative paths lead to."""
        return self.stands_in or self.store


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What a finished shard holds.

    Attributes:
        num_samples: rows written.
        size_bytes: size of the file.
        payload_bytes: bytes of values, before framing and compression.
        entry: its entry in the dataset's own index (`ListedShard.entry`); empty if there is none.
        beside_bytes: size of its further files.
    """

    num_samples: int
    size_bytes: int
    payload_bytes: int
    entry: str = ""
    beside_bytes: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the facts in a row of a manifest's shards."""
        facts = (row["num_samples"], row["size_bytes"], row["payload_bytes"], row["entry"] or "", row["beside_bytes"])
        return cls(*facts)


class ShardReader(ABC):
    """An open shard. A reader defines `schema` and `batches`; the other methods have defaults made of these.

    In the view `samples`, a row is a sample. In the view `interleaved`, a row is an item, and consecutive rows that
    share a `sample_id` are a sample. Then `read` takes the numbers of samples, and a batch never cuts a sample. The
    methods that speak of samples have defaults for rows that are samples.

    Attributes:
        declares_types: the file declares the types of its columns. Otherwise types come from the values of this file,
            and `batches` and `read` take the types of all files as `schema`.
        slices_columns: `column_slices` can leave values in a file.
        kept_bytes: what readers of remote files keep, all together, of rows that are read at once.
        may_join: batches are as large as is convenient for the file, and may be joined.
        has_errors: rows may have errors that an earlier job recorded.
        holds_items: a row of the shard is an item.
        has_members: rows are items that are made of members of a tar.
    """

    declares_types: bool = True
    slices_columns: bool = False
    kept_bytes: int = 0
    may_join: bool = True
    has_errors: bool = True
    holds_items: bool = False
    has_members: bool = False

    @property
    def copies(self) -> bool:
        """Whether `read` returns copies, so that its rows do not keep the file open."""
        return not self.slices_columns

    @cached_property
    def counts(self) -> Counter[str]:
        """Return counts for the summary of this shard, by a short phrase ("members that are no samples, skipped")."""
        return Counter()

    @property
    def read_share(self) -> float | None:
        """Return the share of the file that is read by the latest batch of `batches`; None if nothing counts it."""
        return None

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the exact schema of all rows, by the cheapest means (a footer; a walk over headers).

        Reads no payload.
        """

    @abstractmethod
    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order. Neither the shard nor an index of it is held in memory.

        A batch has the columns that its rows have, so it may lack columns of other rows.

        Raises:
            SchemaMismatch: a value does not fit `schema`; or all columns are wanted, and a row has another one.
        """

    def first_schema(self) -> pa.Schema | None:
        """Return the schema of the first rows, if that is cheaper than `schema`; None if there are no rows."""
        return self.schema()

    def num_rows(self) -> int:
        """Return the number of rows. By default all of them are read."""
        return sum(batch.num_rows for batch in self.batches())

    def index(self) -> pa.Table | None:
        """Return the references to the rows, without payload; see `ShardFile.index`. None if an index saves nothing.

        If values are byte ranges: a row per sample, a reference column per field (and `__key__`). Otherwise a row for
        each unit that is read at once (a Parquet row group), with its `num_rows`. By default the shard is one unit.
        """
        return pa.table({"num_rows": pa.array([self.num_rows()], pa.int64())})

    def units(self) -> Units | None:
        """Return where the shard can be cut, so that the parts are read alone, and nothing is read twice.

        None if it cannot be cut. Reads headers only. Afterwards, `counts` has the counts of the whole shard that
        `batches` of a part (`ShardFile.span`) does not report.
        """
        return None

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal, in the given order, repeats allowed; all rows for None. For random access.

        By default the shard is read up to the last of these rows. Only `columns` and `schema` of `scan` count.
        """
        return read_rows(self, rows, scan)

    def rows_at_once(self) -> int:
        """Return how many rows are read, at most, to read one of the largest unit of `index`."""
        index = self.index()
        if index is None or "num_rows" not in index.column_names:
            return 1
        return max(index["num_rows"].to_pylist(), default=1)

    def rows_of_batch(self) -> int:
        """Return how many rows are read at once where most of them are wanted, else one by one; 0 for no such rows."""
        return 0

    def column_slices(
        self, rows: NDArray[np.int64], scan: Scan = DEFAULT_SCAN, *, hold: bool = True
    ) -> ColumnSlices | None:
        """Return the places of values of rows in a local file, in the given order; None if that saves nothing.

        Args:
            rows: ordinals.
            scan: `columns` count, and `views`: leave bytes in memory, for a caller that uses them there.
            hold: the result may keep the file open. Rows of many shards must not.
        """
        return None

    def sample_getter(self) -> Callable[[int], dict[str, Any] | None] | None:
        """Return what gives one row as `ds[i]` does, if that is faster than a table of one row.

        The function may return None: then the caller reads the row with `read`, which reports its errors.
        """
        return None

    @property
    def held_bytes(self) -> int | None:
        """Return the memory that the open shard takes between two reads, about; None if nothing counts it."""
        return None

    def num_samples(self) -> int:
        """Return the number of samples, by the cheapest means."""
        return self.num_rows()

    def samples_from(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first sample that begins at each of these rows of the file or behind it, and the row where.

        The rows are ascending. The number of rows is the place behind the last sample.
        """
        return rows, rows

    def samples_at_once(self) -> tuple[int, int, int]:
        """Return how many samples are read to read one, how many if most are wanted, and what is kept of both.

        See `rows_at_once`, `rows_of_batch` and `kept_bytes`.
        """
        return self.rows_at_once(), self.rows_of_batch(), self.kept_bytes

    def layout_findings(self) -> Sequence[Finding]:
        """Return problems in the order of items. Reads no payload."""
        return ()

    def settled(self, options: InterleavedOptions) -> InterleavedOptions:
        """Return the options completed with what this shard decides for the whole dataset."""
        return options

    def image_lists(self) -> ImageLists:
        """Return the lists with one entry an image, by the first documents of the shard; of items only."""
        found, counts = ImageLists(), Counter(self.counts)
        names = [field.name for field in self.schema() if may_hold_lists(field)]
        scan = Scan(["sample_id", "position", "modality", *names], max_rows=FIRST_DOCUMENTS)
        for batch in self.batches(scan) if names else ():
            found.add_rows(batch, names)
            if found.is_full:
                break
        self.counts.clear()  # these documents are read again
        self.counts.update(counts)
        return found

    @property
    def whole_samples(self) -> SampleReader | None:
        """Return this reader, if each sample is contiguous in the file."""
        return None

    @property
    def member_reader(self) -> MemberReader | None:
        """This reader, if the shard is an archive of named members."""
        return None

    @property
    def document_reader(self) -> DocumentReader | None:
        """This reader, if rows are documents with media."""
        return None

    def select(self, rows: NDArray[np.int64]) -> bool:
        """Give only these rows from now on, as rows 0, 1, …; return False if the reader cannot do that."""
        return False

    def as_asked(self, fetcher: Fetcher) -> ShardReader | None:
        """Return a reader of columns that options of reading ask for, and that need values; None if there are none.

        Args:
            fetcher: reads references.
        """
        return None

    def as_written(self, rows: pa.Schema, fetcher: Fetcher) -> ShardReader | None:
        """Return a reader of the rows that were written, with these columns; None if rows need only a cast.

        Args:
            rows: columns of the rows that were written.
            fetcher: reads references.
        """
        return None

    def detach(self) -> int | None:
        """Close files, and keep in memory what `batches` would look up again; return its bytes.

        None if the reader keeps nothing; it stays as it was then. What is kept serves one call of `batches`.
        """
        return None

    def close(self) -> None:  # noqa: B027 - a reader of bytes in memory has nothing to close
        """Close files and maps."""


SchemaBefore: TypeAlias = Callable[[], pa.Schema]
"""Return the schema of rows before a change. Some files have to be read for it."""


class Change:
    """Other columns or types of rows. By default, rows stay as they are.

    Attributes:
        declares_types: the change knows the types of all columns, whatever the file declares.
        path: path of the shard, for errors; None where readers name it.
    """

    declares_types: ClassVar[bool] = False
    path: str | None

    def schema_after(self, before: SchemaBefore) -> pa.Schema:
        """Return the schema of changed rows."""
        return before()

    def needed(self, scan: Scan, before: SchemaBefore) -> Scan | None:
        """Return what to read for a scan; None if the number of rows is enough."""
        return scan

    def apply(self, rows: _Rows, columns: Sequence[str] | None, numbers: NDArray[np.int64]) -> _Rows:
        """Return changed rows.

        Args:
            rows: rows that were read, as `needed` says.
            columns: columns of the scan; None for all.
            numbers: the number of each row in the shard.
        """
        return rows


class SampleReader(ShardReader):
    """An open shard that has each sample in one piece.

    Attributes:
        raw_bytes: size of the shard's files without compression.
        zip_bytes: size of its compressed files; None if it has none.
        unsafe_columns: columns whose values would run code when they are read.
    """

    raw_bytes: int
    zip_bytes: int | None
    unsafe_columns: Sequence[str]

    @property
    def whole_samples(self) -> SampleReader:
        """This reader."""
        return self

    @abstractmethod
    def get_sample_data(self, row: int) -> bytes:
        """Return the bytes of a sample as they are in the unpacked shard. Raises IndexError."""

    @abstractmethod
    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """Return the sample of such bytes, as `ds[i]` does."""

    def sample_getter(self) -> Callable[[int], dict[str, Any]]:
        """Return what reads a sample and decodes it."""
        decode, read = self.decode_sample, self.get_sample_data

        def get(row: int) -> dict[str, Any]:
            try:
                return decode(read(row))
            except LadingError as error:
                raise error.at(row=row) from None

        return get


@dataclass(frozen=True, slots=True)
class Members:
    """Regular members of an archive, in file order, as columns of one length.

    Attributes:
        name: full names (`pa.string`).
        header_offset: start of each, extension records included.
        offset: start of its payload.
        length: bytes of payload.
        sparse: which are sparse files, whose payload is not a range of the archive.
    """

    name: pa.Array
    header_offset: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    sparse: NDArray[np.bool_]


class FoundMembers(ABC):
    """The whole members of a damaged archive.

    Attributes:
        gaps: `(start, stop)` of the bytes between members that are not members.
    """

    gaps: Sequence[tuple[int, int]]

    @abstractmethod
    def regular(self) -> Iterator[tuple[list[bytes], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield regular members in file order: names, where they begin, where their payload begins, and its length."""

    @abstractmethod
    def errors(self, path: str) -> list[LadingError]:
        """Return an error for each gap."""

    @abstractmethod
    def beside_gaps(self, start: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return which members, given where they begin, are next to a gap; ascending."""

    @abstractmethod
    def laid_out(
        self, start: NDArray[np.int64], stop: NDArray[np.int64], lost: Sequence[LadingError], lost_samples: int
    ) -> Recovered:
        """Return an archive of some members, each from where it begins to where its payload ends."""


class MemberReader(ShardReader):
    """An open archive of named members. Layouts other than one sample a key read the members themselves."""

    @property
    def member_reader(self) -> MemberReader:
        """This reader."""
        return self

    @property
    @abstractmethod
    def files(self) -> tuple[FileEntry, ...]:
        """The files table of references into this shard: its one file."""

    @abstractmethod
    def members(self, max_members: int = _MANY_ROWS) -> Iterator[Members]:
        """Yield all regular members, whatever their names, at most `max_members` at a time.

        Raises:
            CorruptShard: the archive is damaged, or a name is not UTF-8.
        """


class DocumentReader(ShardReader):
    """An open file of documents with media, whose bytes may be in archives.

    Attributes:
        path: name of the file.
        codec: compression of records, as references name it.
        media: reads records (`_core.media.reader.RecordReader`).
    """

    path: str
    codec: str
    media: Any

    @property
    def document_reader(self) -> DocumentReader:
        """This reader."""
        return self

    @abstractmethod
    def located(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all documents in order. Their media have no bytes, except inline bytes.

        With a schema, documents have its columns in its types.
        """

    @abstractmethod
    def read_located(self, rows: NDArray[np.int64], scan: Scan = DEFAULT_SCAN) -> pa.RecordBatch:
        """Return documents by ordinal, as `located`. Only `columns` and `schema` of `scan` count."""

    @abstractmethod
    def filled(self, batch: pa.RecordBatch, max_bytes: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the documents with the bytes of their media, in parts within the limit."""

    @abstractmethod
    def is_ranges(self, documents: pa.RecordBatch) -> bool:
        """Return whether the bytes of all media are ranges of archives, so that no read is needed to locate them."""


def sparse_member(path: str, start: int) -> Unrepresentable:
    """Return the error that a member is a file with holes where only a range of the archive will do."""
    return Unrepresentable(
        "a sparse member has no range in the tar", file=path, offset=start,
        advice="Convert the shard first, as --view samples: batches hold the member's bytes.",
    )  # fmt: skip


def read_rows(reader: ShardReader, rows: NDArray[np.int64] | None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
    """Return rows by ordinal out of the batches of a reader, which are read up to the last of them.

    Raises:
        UsageError: an ordinal is outside the shard.
    """
    columns, schema = scan.columns, scan.schema
    batches = reader.batches(Scan(columns, schema))
    wanted = None if rows is None else np.unique(rows)
    parts, first = [], 0
    for batch in batches:
        if wanted is None:
            parts.append(batch)
        else:
            begin, end = np.searchsorted(wanted, (first, first + batch.num_rows))
            parts.append(batch.take(pa.array(wanted[begin:end] - first)))
        first += batch.num_rows
        if wanted is not None and (not len(wanted) or wanted[-1] < first):
            break
    if wanted is not None and len(wanted) and not 0 <= wanted[0] <= wanted[-1] < first:
        outside = wanted[0] if wanted[0] < 0 else wanted[-1]
        raise UsageError("no such row", expected=f"0 to {first - 1}", found=int(outside))
    own = reader.schema() if schema is None else schema
    target = own if columns is None else pa.schema([own.field(name) for name in columns if name in own.names])
    if not len(target):
        return pa.table({"none": pa.nulls(first if rows is None else len(rows))}).select([])
    table = concat([align_table(part, target) for part in parts]) if parts else target.empty_table()
    return table if rows is None else table.take(pa.array(np.searchsorted(np.unique(rows), rows)))


Ranges: TypeAlias = Mapping[str, ByteRanges | ChunkedRanges]
"""By the name of a column: the place of each value in a local file. For formats that pack the items of a sample into
one row, a value may have several places."""


def single_ranges(ranges: Ranges) -> dict[str, ByteRanges]:
    """Return the ranges of values with one place each, as rows have that were not packed."""
    found = {name: where for name, where in ranges.items() if isinstance(where, ByteRanges)}
    assert len(found) == len(ranges), "only rows that were packed have values in several places"
    return found


class ShardWriter(ABC):
    """A shard being written. A writer defines `write`, `bytes_written` and `close`.

    Attributes:
        encodes: rows are given to `encode` first, and its result to `write_encoded`.
        encoded_columns: columns that `encode` changes, so that their payload is loaded.
        takes_ranges: `write_ranges` can copy payload from files, without loading it into memory.
        sample_bytes: `bytes_written` is exact, and grows with each sample by its values and this number; None if it is
            an estimate.
        limit_bytes: size at which a shard ends, whatever the user requests; for writers with `sample_bytes`.
        packs: the file is compressed when it is closed. Then `raw_bytes` is exact, and `bytes_written` an estimate.
        ratio: expected bytes in the file for each byte of payload, as earlier rows took them; None if nobody knows.
    """

    takes_ranges: bool = False
    encodes: bool = False
    encoded_columns: Collection[str] = ()
    sample_bytes: int | None = None
    limit_bytes: int = 0
    packs: bool = False
    ratio: float | None = None

    @cached_property
    def counts(self) -> Counter[str]:
        """Return counts for the summary of this shard, by a short phrase."""
        return Counter()

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Append rows; return references to the written values (columns as `index()` of the reader, file 0).

        None if values are not ranges. Payload columns are binary, large_binary or binary_view.
        """

    def write_ranges(self, batch: pa.RecordBatch, ranges: Ranges) -> pa.Table | None:
        """Append rows as `write`, with the payload of some columns taken from files (`takes_ranges`).

        All reference columns are among `ranges`.
        """
        assert not ranges, "this writer takes no ranges"
        return self.write(batch)

    def encode(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Return rows in the form that `write_encoded` takes: for writers that do not know sizes beforehand.

        An encoded form is one binary column with the bytes of each sample, which `sample_bytes` counts. It fits into
        any shard of this schema and these options. By default rows stay unchanged.

        Args:
            batch: the rows.
            first_row: number of the first one, from which errors count.

        Raises:
            Unrepresentable: a value that the format cannot hold; names row and column.
        """
        return batch

    def write_encoded(self, samples: pa.RecordBatch, ranges: Ranges) -> pa.Table | None:
        """Append what `encode` returned, as `write_ranges`."""
        return self.write_ranges(samples, ranges)

    @abstractmethod
    def bytes_written(self) -> int:
        """Return the size of the file if it were closed now, as well as it is known. Splitting by size uses it."""

    def raw_bytes(self) -> int:
        """Return the size of the file before compression, by which `limit_bytes` counts."""
        return self.bytes_written()

    def flush(self) -> bool:
        """Bring waiting rows to the file, so that `bytes_written` is exact; return whether any were waiting."""
        return False

    def held_bytes(self) -> int:
        """Return the bytes of views that the sink does not have yet: the writer refers to their memory."""
        return 0

    @property
    def member_writer(self) -> MemberWriter | None:
        """This writer, if the shard is an archive of named members."""
        return None

    @abstractmethod
    def close(self) -> ShardFacts:
        """Finish the shard's bytes. The sink stays open: its owner publishes it."""


class MemberWriter(ShardWriter):
    """An archive of named members being written. Layouts other than one sample a key add the members themselves."""

    @property
    def member_writer(self) -> MemberWriter:
        """This writer."""
        return self

    @abstractmethod
    def add(
        self, members: pa.StringArray, values: ByteRanges, last: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Append members by their full names, in this order; return offsets and lengths of their payloads.

        Args:
            members: names.
            values: payloads.
            last: the last member of each sample.

        Raises:
            Unrepresentable: a name that an archive cannot hold.
        """


@dataclass(frozen=True, slots=True)
class Recovered:
    """The whole units of a damaged file, and a layout of them that the format's reader can read.

    Attributes:
        offset: where each whole range begins in the damaged file.
        target: where it begins in the new file, ascending.
        length: bytes of it.
        size_bytes: size of the new file; what no range fills is zeros.
        made: further bytes of the new file, each with its place: heads and ends that the damaged file lacks.
        lost_rows: rows of the new file that must not be read, because they lie in holes.
        lost: an error for each part that is lost, with file and offset, and with row or sample if these are known.
        lost_samples: number of samples that are known to be lost, without those of `lost_rows`.
        counted: whether that is all; otherwise more samples may be lost.
        lost_from: offset in the damaged file from which on everything is lost; None if its end is there.
        breaks: rows of the new file right before which rows may be missing; its number of rows for the end.
        unit_rows: rows of each unit of the new file that is read as a whole (a row group, a record batch); empty if
            each row is read alone.
    """

    offset: NDArray[np.int64]
    target: NDArray[np.int64]
    length: NDArray[np.int64]
    size_bytes: int
    made: Sequence[tuple[int, bytes]] = ()
    lost_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    lost: Sequence[LadingError] = ()
    lost_samples: int = 0
    counted: bool = True
    lost_from: int | None = None
    breaks: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    unit_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@runtime_checkable
class Recoverable(Protocol):
    """A format that finds the whole units of a damaged file: members, row groups, record batches, samples, lines."""

    def recover(
        self, file: ShardFile, options: Any, *, schema: pa.Schema | None = None, failed: bool = True
    ) -> Recovered | None:
        """Return the whole units of a damaged, unpacked file; return None for a file without damage.

        Args:
            file: the file, on a store that can map.
            options: options of reading, parsed.
            schema: columns of its rows as they are stored, if a manifest keeps them.
            failed: whether reading the file raised an error. A read that succeeded may have ended too early.

        Raises:
            DataError: no unit can be read.
        """


def map_file(source: ShardFile) -> MappedFile:
    """Map a damaged file. Raises UsageError if its store cannot map."""
    if not isinstance(source.store, Mapper):
        raise UsageError("a damaged file is recovered on this machine only", file=source.path)
    return source.store.map(source.path)


def two_sinks(sinks: Sequence[Sink]) -> Sequence[Sink]:
    """Check that there is a sink for each of the two files of a shard. Raises UsageError."""
    if len(sinks[1:]) != 1:
        raise UsageError("a shard of this format is two files", file=sinks[0].path, found=f"{len(sinks)} sinks")
    return sinks
