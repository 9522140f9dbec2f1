"""Rows → finished shards: what every process that writes a dataset does, whether it writes all of it or a part.

A `PartWriter` splits rows into shards and finishes them. `FinishedShards` keeps their facts, and their references in
index files. A process that writes a part for another one hands both over as a `Part`.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading import features
from lading.arrow.align import align_table, refuse_bare, refuse_duplicate_names, union_schema
from lading.arrow.hashing import hash_strings
from lading.arrow.json_columns import wider_column
from lading.arrow.references import FileEntry, concat, files_of, is_ref, with_files
from lading.arrow.text_checks import refuse_bad_values
from lading.arrow.views import LIST_TYPES, child_fields, is_bytes, is_text, plain_type, row_bytes
from lading.errors import DataError, SchemaMismatch, errors_at
from lading.features.items import RESERVED, sample_firsts, without_source
from lading.features.types import FEATURE_KEY, Audio, ClassLabel, Feature, Image, Struct, Text, Value, Video, feature_of
from lading.formats.base import (
    AnyFormat,
    ExactSizes,
    Ranges,
    RangeWriter,
    SampleEncoder,
    ShardFacts,
    ShardWriter,
)
from lading.formats.media_archive.format import MediaArchiveFormat
from lading.formats.webdataset.format import KEY, WebdatasetFormat, npy_head
from lading.interleaved.document_rows import is_documents
from lading.interleaved.open import create_view_shard, packer
from lading.interleaved.tar_writer import Roles, TarDocumentsWriter
from lading.manifest.values import EXTENTS_NAME, INDEX_NAME, shards_table
from lading.storage.background import Background
from lading.storage.base import Sink, Store, SummedSink, TakesChecksum, writes_behind
from lading.storage.checksum import with_checksum
from lading.storage.fetch import Fetcher
from lading.storage.sink_file import GatheringFile

__all__ = [
    "CHECKSUMS",
    "FinishedShard",
    "FinishedShards",
    "OnDuplicateId",
    "Part",
    "PartWriter",
    "ShardKind",
    "ShardSums",
    "written_schema",
]

_FIRST_ROWS = 1024
_FILE_SHARDS, _FILE_BYTES = 256, 64 << 20
"""A file of indexes or of extents takes shards until it has so many, or so many bytes: readers refuse large files."""
_KEY_DIGITS = 9
_AS_STORED = (Image, Audio, Video, ClassLabel)
"""Features whose values are read as if nobody said anything of them."""
_TYPE = re.compile(r"(?:large_|fixed_size_)?([a-z]+)(?:_view)?\d*(?:\[\w+(, tz=.+)?\])?")
_NUMBERS = ("int", "uint", "halffloat", "float", "double")

OnDuplicateId: TypeAlias = Literal["error", "apart"]
"""What a sample is whose id an earlier one of its shard has; in a tar, whose key the one before has."""

CHECKSUMS = ("samples", "files", "none")
"""Of what checksums are kept: of files and their extents, of files, or of lading's own files only."""


@dataclass(frozen=True, slots=True)
class ShardKind:
    """What the shards of a dataset have in common.

    Attributes:
        format: their format.
        view: `samples` or `interleaved`.
        options: of the format.
        roles: for interleaved data: which rows each passthrough column belongs to.
        checksums: of what checksums are kept, one of `CHECKSUMS`.
    """

    format: AnyFormat
    view: str
    options: Mapping[str, Any]
    roles: Roles
    checksums: str = "samples"

    @property
    def takes_members(self) -> bool:
        """Whether rows become members of tars: each has a key, and the manifest says what its members stand for.

        Members that come from another tar (`fields="given"`) stand for what they stood for there.
        """
        return self.takes_keys and self.options.get("fields", "sorted") == "sorted"

    @property
    def takes_keys(self) -> bool:
        """Whether rows become members of tars, whose readers take neighbours of one key for one sample."""
        return isinstance(self.format, WebdatasetFormat) and self.view == "samples"

    def restores(self, schema: pa.Schema) -> bool:
        """Whether rows of this schema come back as they were only where the manifest says what they were."""
        if self.view != "samples":
            return False
        is_archive = isinstance(self.format, MediaArchiveFormat) and not is_documents(schema)
        return self.takes_members or is_archive or not self.format.info.keeps_types


@dataclass(frozen=True, slots=True)
class ShardSums:
    """The checksums of a shard.

    Attributes:
        files: of its file, and of those beside it; none where none are kept.
        extents: of its files (`lading.storage.extents`); None where none are kept, or the writer knew none.
    """

    files: Sequence[str]
    extents: pa.Table | None


@dataclass(frozen=True, slots=True)
class FinishedShard:
    """A shard whose bytes are complete.

    Attributes:
        path: below the folder it is built in.
        facts: what it holds.
        index: references of what it holds; None where values are no ranges.
        counts: what was noticed, by a short phrase.
        beside: names of the files beside it, in its folder.
        sums: one, which comes when the files are on disk.
    """

    path: str
    facts: ShardFacts
    index: pa.Table | None
    counts: Mapping[str, int]
    beside: Sequence[str] = ()
    sums: list[ShardSums] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive finished shards of a dataset, built in a folder of their own for somebody else to take.

    Attributes:
        shards: rows of `lading.manifest.values.SHARDS_SCHEMA`; paths, of index files too, are below that folder.
        schema: of the first rows; None if there were none.
        columns: all columns seen, in the order of their appearance, for formats that do not fix them.
        counts: what was noticed, by a short phrase.
        roles: of interleaved data: which rows each passthrough column belongs to, of those known.
    """

    shards: pa.Table
    schema: pa.Schema | None
    columns: pa.Schema
    counts: Mapping[str, int]
    roles: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _OpenShard:
    """A shard being written, the sinks of its files, its own first, and the references of what went into it."""

    path: str
    sinks: list[Sink]
    writer: ShardWriter | TarDocumentsWriter
    index: list[pa.Table] = field(default_factory=list)
    num_samples: int = 0
    counted_bytes: int = 0
    ids: list[NDArray[np.uint64]] = field(default_factory=list)
    """Hashes of its samples' ids, in few sorted runs, where readers refuse an id that comes back."""


class PartWriter:
    """Writes rows as shards below a folder; a new shard begins where one reaches its size.

    Args:
        store: where the folder lies.
        folder: what the shards are built in.
        kind: what they have in common.
        fetcher: what references in rows are followed with.
        closing: what brings finished shards to disk while the next is being written: a quarter of a GB takes a fast
            disk 65 ms and a slow one seconds. Its owner waits for it, and the fetcher's closes that.
        name: called for the path of each new shard below the folder.
        on_shard: called with each shard when its bytes are complete, on disk or not.
        shard_bytes: a new shard begins before a sample that would pass this.
        schema: columns of all rows. Without it, formats with a fixed schema take the columns of the first batch, and
            others any.
        final: the folder's name in references, and in errors of values; without it these name no shard.
        first_row: number of the first row, where rows are to have keys and have none: they get their numbers.
        key_prefix: what stands before these numbers.

    Attributes:
        schema: columns of all rows, or of the first batch; None before.
        columns: all columns seen, for formats that do not fix them.
        without_rows: columns of the first batch that had no rows; None before. They bind no rows that come after.
        num_rows: rows that were taken; errors that name no file count from the first of them.
    """

    def __init__(  # noqa: PLR0913 - one value a decision of the owner
        self,
        store: Store,
        folder: str,
        kind: ShardKind,
        *,
        fetcher: Fetcher,
        closing: Background,
        name: Callable[[], str],
        on_shard: Callable[[FinishedShard], None],
        shard_bytes: int,
        schema: pa.Schema | None = None,
        final: str | None = None,
        first_row: int = 0,
        key_prefix: str = "",
    ) -> None:
        self._checked: pa.Schema | None = None
        self.schema = None if schema is None else written_schema(schema)
        self.without_rows: pa.Schema | None = None
        self._takes_any = not kind.format.info.fixed_schema and (schema is None or kind.view == "samples")
        self.columns: dict[str, pa.Field] = {}
        self._store, self._folder, self._kind = store, folder, kind
        self._fetcher, self._closing = fetcher, closing
        self._name, self._on_shard, self._shard_bytes = name, on_shard, shard_bytes
        self._final = final
        self._open: _OpenShard | None = None
        self._last_id: str | None = None
        self._bytes_per_payload = 1.0
        self._behind = False
        self._duplicate_ids: OnDuplicateId = "error"
        self._is_given = schema is not None
        self.num_rows = self._encoded = 0
        self._next_row, self._key_prefix = first_row, key_prefix

    def write_batch(
        self, rows: pa.RecordBatch | pa.Table, *, behind: bool = False, duplicate_ids: OnDuplicateId = "error"
    ) -> pa.Table | None:
        """Append rows; give the references of what was written, None if values are no ranges.

        Interleaved samples must be whole within the call. With `behind` the sink may still be writing them afterwards,
        so that whatever they lie in must stay as it is until the shards are finished. A file of items has an id once:
        `duplicate_ids` says what a later sample of the same id is, an error or the first of another shard; the same of
        neighbours in a tar that have one key.

        Raises:
            DuplicateField: two columns have one name, or two fields of a struct; no format keeps both.
            Unrepresentable: invalid UTF-8, or another value that its type does not allow.
            DataError: an id that comes back.
        """
        with self._told_outside():
            return self._write(rows, behind=behind, duplicate_ids=duplicate_ids)

    @contextmanager
    def _told_outside(self) -> Iterator[None]:
        """Errors of data name shards as they will be called: nobody knows the folder in which they are built."""
        try:
            yield
        except DataError as error:
            if error.file is not None and error.file.startswith(f"{self._folder}/"):
                name = error.file.removeprefix(self._folder)
                error.file, error.row = (None, None) if self._final is None else (self._final + name, error.row)
            raise

    def _write(self, rows: pa.RecordBatch | pa.Table, *, behind: bool, duplicate_ids: OnDuplicateId) -> pa.Table | None:
        refuse_bare(rows.num_rows, rows.num_columns)
        if self._checked is None or not rows.schema.equals(self._checked):
            refuse_duplicate_names(rows.schema)
            self._checked = rows.schema
        if not rows.num_rows and rows.num_columns and self.without_rows is None:
            self.without_rows = written_schema(rows.schema)
        with errors_at(first_row=self.num_rows):
            refuse_bad_values(rows)
        batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        if self._kind.view == "interleaved" and len(batches) > 1:
            batches = rows.combine_chunks().to_batches()
        self._behind, self._duplicate_ids = behind, duplicate_ids
        written = [table for batch in batches if batch.num_rows for table in self._write_one(batch)]
        if self._open is not None:
            self._settle(self._open)
        return concat(written) if written else None

    def _settle(self, shard: _OpenShard) -> None:
        """Wait until all is in the files that the caller may change after this call."""
        for sink in shard.sinks if not self._behind else ():
            if writes_behind(sink):
                sink.settle()

    def _write_one(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        with errors_at(first_row=self.num_rows):
            batch = self._keyed(self._fitted(batch))
        self.num_rows += batch.num_rows
        for part in self._apart(batch):
            yield from self._write_apart(part)

    def _apart(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in parts, in none of which neighbours have one key, where these go to tars and are to stay apart."""
        has_keys = self._kind.takes_keys and KEY in batch.schema.names  # else the format's writer says so
        keys = batch.column(KEY) if has_keys and self._duplicate_ids == "apart" else pa.nulls(0)
        keys = keys.dictionary_decode() if pa.types.is_dictionary(keys.type) else keys
        if not is_text(keys.type):
            yield batch
            return
        same = pc.fill_null(pc.equal(keys[1:], keys[:-1]), fill_value=False)
        bounds = [0, *(np.flatnonzero(same.to_numpy(zero_copy_only=False)) + 1).tolist(), len(batch)]
        for first, last in pairwise(bounds):
            yield batch.slice(first, last - first)

    def _write_apart(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        ranges: Ranges = {}
        if self._goes_on(batch):
            self.end_shard()
        starts = sample_firsts(batch, self._kind.view)
        ends = np.append(starts[1:], batch.num_rows)
        if any(is_ref(f.type) for f in batch.schema):
            shard = self._open or self._begin()
            takes = isinstance(shard.writer, RangeWriter) and shard.writer.takes_ranges
            ranges = self._fetcher.file_ranges(batch) if takes else {}
            left = [f.name for f in batch.schema if is_ref(f.type) and f.name not in ranges]
            batch = self._fetcher.materialise(batch, left, views=True)
        packing = packer(self._kind.format, self._kind.view, batch.schema)
        if packing is not None:
            batch, ranges = packing[0](batch, ranges)
            starts, ends = np.arange(batch.num_rows), np.arange(batch.num_rows) + 1
        encoder = (self._open or self._begin()).writer
        if isinstance(encoder, SampleEncoder):
            batch = encoder.encode(batch, self._encoded)
        self._encoded += batch.num_rows
        size_at = np.concatenate([[0], np.cumsum(_row_bytes(batch, ranges))])
        as_items = self._kind.view == "interleaved" and packing is None and self._kind.format.info.fixed_schema
        ids = hash_strings(batch.column("sample_id").take(pa.array(starts))) if as_items else None
        yield from self._write_samples(batch, ranges, size_at, starts, ends, ids)
        self._fetcher.release(self.held_bytes())

    def _goes_on(self, batch: pa.RecordBatch) -> bool:
        """Whether a reader of the open shard would take the first sample of the batch for more of its last one."""
        by_key = self._kind.takes_keys
        name = KEY if by_key else "sample_id"
        if name not in batch.schema.names or not (by_key or self._kind.view == "interleaved"):
            return False
        ids, last = batch.column(name), self._last_id
        self._last_id = ids[-1].as_py()
        if by_key and self._duplicate_ids == "error":  # the format's writer says so
            return False
        return self._open is not None and last is not None and bool(ids[0].as_py() == last)

    def _write_samples(
        self,
        batch: pa.RecordBatch,
        ranges: Ranges,
        size_at: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        ids: NDArray[np.uint64] | None,
    ) -> Iterator[pa.Table]:
        done = 0
        while done < len(starts):
            shard = self._open or self._begin()
            count = self._samples_that_fit(shard, size_at, starts, ends, done)
            if ids is not None and count:
                fitting, count = count, _new_ids(shard.ids, ids[done : done + count])
                if self._duplicate_ids == "error" and count < fitting:
                    again = batch.column("sample_id")[int(starts[done + count])].as_py()
                    raise DataError("the rows of a sample do not stand together: its id comes back", column="sample_id",
                                    found=repr(again),
                                    advice="Sort the rows by sample_id and position.")  # fmt: skip
            if not count:
                self.end_shard()
                continue
            first, last = int(starts[done]), int(ends[done + count - 1])
            rows = batch.slice(first, last - first), {name: found[first:last] for name, found in ranges.items()}
            table = self._write_slice(shard, *rows, count, int(size_at[last] - size_at[first]))
            if table is not None:
                yield table
            done += count

    def _samples_that_fit(
        self,
        shard: _OpenShard,
        size_at: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        done: int,
    ) -> int:
        """How many samples go into the open shard: none if it is full, at least one if it is empty.

        A sample's size in the file is not known before it is written, so payload is scaled by what earlier rows took.
        """
        writer, own = shard.writer, size_at[ends[done:]] - size_at[starts[done]]
        if isinstance(writer, ExactSizes):
            room = min(self._shard_bytes, writer.limit_bytes) - writer.bytes_written()
            own = own + writer.sample_bytes * (ends[done:] - starts[done])
            count = int(np.searchsorted(own, room, "right"))
            return max(count, 1) if shard.num_samples == 0 else count
        room = int((self._shard_bytes - writer.bytes_written()) / self._bytes_per_payload)
        count = int(np.searchsorted(own, max(room, 0), "right"))
        if shard.counted_bytes == 0:
            count = min(count, _FIRST_ROWS)
        return max(count, 1) if shard.num_samples == 0 else count

    def _write_slice(
        self, shard: _OpenShard, rows: pa.RecordBatch, ranges: Ranges, count: int, payload: int
    ) -> pa.Table | None:
        into, table = shard.writer, None
        try:
            if isinstance(into, SampleEncoder):
                into.write_encoded(rows)
            elif ranges and isinstance(into, RangeWriter):
                table = into.write_ranges(rows, ranges)
            else:
                table = into.write(rows)
        except DataError as error:
            row = -1 if error.row is None else error.row - shard.num_samples
            if self._kind.view == "samples" and KEY in rows.schema.names and 0 <= row < len(rows):
                error.at(sample=rows.column(KEY)[row].as_py())
            raise
        shard.num_samples += count
        shard.counted_bytes += payload
        if shard.counted_bytes:
            self._bytes_per_payload = max(shard.writer.bytes_written() / shard.counted_bytes, 0.01)
        if table is None:
            return None
        shard.index.append(table)
        return table.cast(with_files(table.schema, [FileEntry(f"{self._final or self._folder}/{shard.path}")]))

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns of the schema, if the format holds it to one."""
        if self.schema is None:
            self.schema = written_schema(batch.schema)
        if self._takes_any:
            self.see(written_schema(batch.schema))
            return batch
        known = {*self.schema.names}
        extra = [name for name in batch.schema.names if name not in known]
        if extra:
            raise SchemaMismatch(
                "rows hold a column that the schema of this writer does not", column=extra[0],
                expected=", ".join(self.schema.names), advice="Give the writer schema= with all columns.",
            )  # fmt: skip
        for written in written_schema(batch.schema):
            known = self.schema.field(written.name)
            self._refuse_other_meaning(known, written)
            if not (self._is_given or _hold_one_kind(known.type, written.type)):
                raise SchemaMismatch(
                    "values of another kind than those of the first rows", column=known.name, expected=known.type,
                    found=written.type, advice="Cast them, or say with schema= what the column holds.",
                )  # fmt: skip
        # Bytes stay as they come, references and views too: to cast them would copy the payload.
        own = {f.name: f.type for f in batch.schema if is_ref(f.type) or is_bytes(f.type)}
        target = pa.schema([f.with_type(own[f.name]) if f.name in own and is_bytes(f.type) else f for f in self.schema])
        try:
            return batch if batch.schema.equals(target) else align_table(batch, target)
        except SchemaMismatch as error:
            if not self._is_given:
                error.advice = error.advice or "The first rows said what columns hold: say it with schema= instead."
            raise

    def see(self, columns: pa.Schema) -> None:
        """Count these columns among those seen.

        Raises:
            SchemaMismatch: of samples: no type holds the values of a column and those seen before, or some rows have
                keys and others none.
        """
        if self._kind.view == "samples":
            self._see_members(columns)
            return
        for written in columns:
            known = self.columns.setdefault(written.name, written)
            if written.name not in RESERVED and known is not written:
                self.columns[written.name] = wider_column(known, written)

    def _see_members(self, columns: pa.Schema) -> None:
        begun = bool(self.columns) and bool(len(columns))
        if begun and (KEY in self.columns) != (KEY in columns.names):
            raise SchemaMismatch("some rows have keys and others have none", column=KEY)
        lacking = self.columns.keys() ^ {*columns.names} if begun else ()
        for written in columns:
            known = self.columns.setdefault(written.name, written)
            if not known.equals(written, check_metadata=True):
                self._refuse_other_meaning(known, written)
                self.columns[written.name] = _wider_member(known, written)
        for known in [self.columns[name] for name in lacking if not self.columns[name].nullable]:
            self.columns[known.name] = known.with_nullable(True)  # noqa: FBT003 - pyarrow takes it by position

    def _refuse_other_meaning(self, known: pa.Field, written: pa.Field) -> None:
        """Raise SchemaMismatch for a column whose values would be read as others, as JSON, arrays, labels.

        Rows that say nothing mean what the caller's schema says; and media and labels, by which nothing is read. Of
        plain values that are stored as such the types of columns say how wide they are, and how fine.
        """
        told = [(field.metadata or {}).get(FEATURE_KEY) for field in (known, written)]
        if told[0] == told[1] or pa.types.is_null(known.type) or pa.types.is_null(written.type):
            return
        expected, found = feature_of(known), feature_of(written)
        if None in told and (self._is_given or isinstance(expected if told[0] else found, _AS_STORED)):
            return
        if all(
            isinstance(feature, _AS_STORED) and not isinstance(feature, ClassLabel) for feature in (expected, found)
        ):
            return
        if not _are_alike(expected, known.type, found, written.type):
            raise SchemaMismatch("rows of one column mean different things", column=known.name,
                                 expected=f"{expected!s:.200}", found=f"{found!s:.200}",
                                 advice="Write them as columns of other names, or as values of one kind.")  # fmt: skip

    def _keyed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a key for each row, if its format wants one and there is none: the row's number."""
        if not self._kind.takes_members or KEY in batch.schema.names:
            return batch
        numbers = pa.array(np.arange(self._next_row, self._next_row + len(batch))).cast(pa.string())
        self._next_row += len(batch)
        keys = pc.binary_join_element_wise(self._key_prefix, pc.utf8_lpad(numbers, _KEY_DIGITS, "0"), "")
        schema = batch.schema.insert(0, pa.field(KEY, pa.string()))
        return pa.RecordBatch.from_arrays([keys, *batch.columns], schema=schema)

    def held_bytes(self) -> int:
        """Payload that was given but is not in a file yet: buffers behind it must stay as they are."""
        return 0 if self._open is None else self._open.writer.held_bytes()

    def begin_shard(self) -> None:
        """Begin a shard, though there may be no rows for it."""
        with self._told_outside():
            self._begin()

    def _begin(self) -> _OpenShard:
        path, kind = self._name(), self._kind
        with ExitStack() as failed:
            sinks = [self._sink(name, failed) for name in (path, *kind.format.extra_files(path, kind.options))]
            schema = self.schema or pa.schema([])
            if kind.takes_members and KEY not in schema.names:
                schema = schema.insert(0, pa.field(KEY, pa.string()))
            writer = create_view_shard(kind.format, sinks, schema, kind.view, kind.options, kind.roles)
            failed.pop_all()
        self._open = _OpenShard(path, sinks, writer)
        return self._open

    def _sink(self, name: str, failed: ExitStack) -> Sink:
        sink = self._store.put_stream(f"{self._folder}/{name}")
        failed.callback(sink.abort)
        told = self._kind.checksums
        return sink if told == "none" else with_checksum(sink, extents=told == "samples")

    def end_shard(self) -> None:
        """Finish the open shard, if there is one, and have it brought to disk."""
        shard, self._open = self._open, None
        if shard is None:
            return
        with self._told_outside(), ExitStack() as failed:
            for sink in shard.sinks:
                failed.callback(sink.abort)
            facts = shard.writer.close()
            self._settle(shard)
            sums: list[ShardSums] = []
            self._closing.start(partial(_close, shard.sinks, sums, self._kind.checksums))
            failed.pop_all()
        counts = dict(shard.writer.counts) if isinstance(shard.writer, TarDocumentsWriter) else {}
        if self._kind.takes_members and KEY not in self.columns:
            counts["rows without a key, named by their numbers"] = shard.num_samples
        index = concat(shard.index) if shard.index else None
        facts = replace(facts, num_samples=shard.num_samples)
        beside = [posixpath.basename(sink.path) for sink in shard.sinks[1:]]
        self._on_shard(FinishedShard(shard.path, facts, index, counts, beside, sums))

    def end_part(self, shard_bytes: int, first_row: int | None = None) -> None:
        """Finish the open shard; what comes next is written as if nothing had come before.

        Args:
            shard_bytes: size at which its shards end.
            first_row: number of its first row; by default they are counted on.
        """
        self.end_shard()
        self._next_row = self._next_row if first_row is None else first_row
        self._shard_bytes, self._bytes_per_payload = shard_bytes, 1.0

    def abort(self) -> None:
        """Drop the open shard."""
        shard, self._open = self._open, None
        if shard is not None:
            for sink in shard.sinks:
                sink.abort()


def _new_ids(runs: list[NDArray[np.uint64]], hashes: NDArray[np.uint64]) -> int:
    """How many samples a shard takes before one whose id it has by then; notes their ids among the runs."""
    ordered, count = np.sort(hashes), len(hashes)
    if (ordered[1:] == ordered[:-1]).any() or any(_held(run, ordered).any() for run in runs):
        known = np.ones(len(hashes), np.bool_)
        known[np.unique(hashes, return_index=True)[1]] = False
        for run in runs:
            known |= _held(run, hashes)
        count = int(known.argmax())
        ordered = np.sort(hashes[:count])
    while runs and len(runs[-1]) <= len(ordered):
        ordered = np.sort(np.concatenate([runs.pop(), ordered]))
    runs += [ordered] if len(ordered) else []
    return count


def _held(run: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which hashes a sorted run has."""
    held: NDArray[np.bool_] = run[np.minimum(np.searchsorted(run, hashes), len(run) - 1)] == hashes
    return held


def _row_bytes(batch: pa.RecordBatch, ranges: Ranges) -> NDArray[np.int64]:
    """Bytes of each row, with what lies in files: of a reference alone nobody knows how much it comes to."""
    sizes = row_bytes(batch.drop_columns(list(ranges)))
    for found in ranges.values():
        sizes += found.length
    return sizes


def written_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what reaches a file: references have become bytes, and views values, at any depth."""
    fields = [f.with_type(pa.large_binary() if is_ref(f.type) else plain_type(f.type)) for f in schema]
    return without_source(pa.schema(fields, metadata=schema.metadata))


def _are_alike(one: Feature, kind: pa.DataType, other: Feature, second: pa.DataType) -> bool:
    """Whether values of the other feature, stored in the second type, are read as what they are by the one too.

    Nulls are nothing else by any feature; where there were only nulls, plain values and text may follow.
    """
    kind, second = _unwrapped(kind), _unwrapped(second)
    if one == other or pa.types.is_null(second):
        return True
    match one, other:
        case _, Value() | Text() if pa.types.is_null(kind):
            return True
        case Value(dtype), Value(second_dtype):
            said = _class_of(dtype) == _class_of(str(kind)) and _class_of(second_dtype) == _class_of(str(second))
            return said and _differ_in_width(kind, second)
        case features.Sequence(ours), features.Sequence(theirs) if _all_are(LIST_TYPES, kind, second):
            return _are_alike(ours, kind.value_type, theirs, second.value_type)
        case Struct(ours), Struct(theirs) if _all_are(pa.StructType, kind, second):
            own, others = ({child.name: child.type for child in struct} for struct in (kind, second))
            return len(ours) == len(theirs) and all(
                name == named and _are_alike(inner, own.get(name, pa.null()), found, others.get(name, pa.null()))
                for (name, inner), (named, found) in zip(ours, theirs, strict=True)
            )
    return False


def _all_are(types: Any, *kinds: pa.DataType) -> bool:
    return all(isinstance(kind, types) for kind in kinds)


def _class_of(name: str) -> tuple[str, str | None]:
    """What values there are in the type of a name, without width, unit and layout, and the zone of times."""
    found = _TYPE.match(name)
    word, zone = found.groups() if found else (name, None)
    return "number" if word in _NUMBERS else word, zone


def _hold_one_kind(kind: pa.DataType, second: pa.DataType) -> bool:
    """Whether values of the second type may be cast to the first one: no texts to numbers, say, or numbers to times.

    Text and bytes are one, and times in whatever zone.
    """

    def kind_of(name: str) -> object:
        word, zone = _class_of(name)
        return "string" if word == "binary" else word, zone is not None

    return _differ_in_width(kind, second, kind_of)


def _differ_in_width(kind: pa.DataType, second: pa.DataType, class_of: Callable[[str], object] = _class_of) -> bool:
    """Whether two types differ at most in how wide, how fine and in what layout values are, or in nulls, inside too."""
    kind, second = _unwrapped(kind), _unwrapped(second)
    if pa.types.is_null(kind) or pa.types.is_null(second):
        return True
    if class_of(str(kind)) != class_of(str(second)):
        return False
    if pa.types.is_struct(kind):
        pairs = [(child, second.field(child.name)) for child in kind if second.get_field_index(child.name) >= 0]
    else:
        pairs = list(zip(child_fields(kind), child_fields(second), strict=True))
    return all(_differ_in_width(child.type, found.type, class_of) for child, found in pairs)


def _unwrapped(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary, or of runs; of an extension what it is stored in."""
    if isinstance(kind, pa.BaseExtensionType):
        return _unwrapped(kind.storage_type)
    wrapped = pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)
    return _unwrapped(kind.value_type) if wrapped else kind


def _wider_member(known: pa.Field, written: pa.Field) -> pa.Field:
    """The field whose type holds the values of both: as members, text and bytes are one."""
    if npy_head(known) != npy_head(written):
        raise SchemaMismatch("arrays of several types or shapes", column=known.name)
    known = known.with_nullable(known.nullable or written.nullable)
    if known.type == written.type:
        return known
    if all(is_text(field.type) or is_bytes(field.type) for field in (known, written)):
        texts = is_text(known.type) and is_text(written.type)
        return known.with_type(pa.large_string() if texts else pa.large_binary())
    [field], _ = union_schema([("rows before", pa.schema([known])), ("these rows", pa.schema([written]))])
    return field


def _close(sinks: Sequence[Sink], sums: list[ShardSums], checksums: str) -> None:
    """Close the files of a shard, its own last, and tell which of `CHECKSUMS` they have, its own first."""
    with ExitStack() as failed:
        for sink in sinks:
            failed.callback(sink.abort)
        summed = [sink for sink in sinks if isinstance(sink, TakesChecksum) and checksums != "none"]
        files = [sink.checksum() for sink in summed]
        told = [sink.extents.extents(file) for file, sink in enumerate(summed) if checksums == "samples"]
        known = [one for one in told if one is not None]
        sums.append(ShardSums(files, pa.Table.from_batches(known) if known else None))
        for sink in reversed(sinks):
            sink.close()
        failed.pop_all()


class FinishedShards:
    """Facts of finished shards, in order; their references are kept in index files of many shards each.

    Args:
        store: where the dataset is built.
        folder: what it is built in.
        own: folder below that of lading's own files.

    Attributes:
        counts: what was noticed, by a short phrase.
    """

    def __init__(self, store: Store, folder: str, own: str) -> None:
        self._index = _TableFiles(store, folder, f"{own}/{INDEX_NAME}")
        self._extents = _TableFiles(store, folder, f"{own}/{EXTENTS_NAME}", compression="lz4")
        self._facts: list[tuple[str, ShardFacts]] = []
        self._indexed: list[tuple[str, int] | None] = []
        self._measured: list[tuple[str, int] | None] = []
        self._sums: list[tuple[Sequence[str], list[ShardSums]]] = []
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def facts(self) -> Sequence[tuple[str, ShardFacts]]:
        """Path and facts of each shard."""
        return self._facts

    def add(self, shard: FinishedShard) -> None:
        """Append a shard."""
        self._indexed.append(None if shard.index is None else self._index.add(_unplaced(shard.index)))
        self._facts.append((shard.path, shard.facts))
        self._sums.append((shard.beside, shard.sums))
        self.counts.update(shard.counts)
        self._keep_extents()

    def _keep_extents(self) -> None:
        """Write those of the shards that are on disk."""
        while len(self._measured) < len(self._sums) and (sums := self._sums[len(self._measured)][1]):
            self._measured.append(None if sums[0].extents is None else self._extents.add(sums[0].extents))
            sums[0] = replace(sums[0], extents=None)

    @property
    def own_checksums(self) -> Mapping[str, str]:
        """Checksums of lading's own files, when they are finished, by path below the dataset's folder."""
        return {**self._index.checksums, **self._extents.checksums}

    def close(self) -> pa.Table:
        """Finish the index files; give the shards as rows of `lading.manifest.values.SHARDS_SCHEMA`.

        Their files must be on disk: until then nobody knows their checksums.
        """
        self._keep_extents()
        self._index.close()
        self._extents.close()
        facts = [f for _, f in self._facts]
        more: dict[str, Sequence[Any]] = {
            "index_file": [at and at[0] for at in self._indexed],
            "index_batch": [at and at[1] for at in self._indexed],
            "entry": [f.entry or None for f in facts],
            "beside_bytes": [f.beside_bytes for f in facts],
            "xxh3": [sums.files[0] if sums.files else None for _, [sums] in self._sums],
            "beside_xxh3": [
                [{"name": n, "xxh3": t} for n, t in zip(names, sums.files[1:], strict=True)] if sums.files else None
                for names, [sums] in self._sums
            ],
            "extents_file": [at and at[0] for at in self._measured],
            "extents_batch": [at and at[1] for at in self._measured],
        }
        paths = [path for path, _ in self._facts]
        samples, sizes = [f.num_samples for f in facts], [f.size_bytes for f in facts]
        return shards_table(paths, samples, sizes, [f.payload_bytes for f in facts], more)

    def abort(self) -> None:
        """Drop the files at hand."""
        with ExitStack() as both:
            both.callback(self._index.abort)
            both.callback(self._extents.abort)


class _TableFiles:
    """A table a shard, as batches of Arrow files of many shards each.

    Args:
        store: where they go.
        folder: where the dataset is built.
        name: of the files below it, with a place for their number.
        compression: of their buffers; what is not compressed can be mapped.

    Attributes:
        checksums: of finished files, by path below the dataset's folder.
    """

    def __init__(self, store: Store, folder: str, name: str, compression: str | None = None) -> None:
        self._store, self._folder, self._template = store, folder, name
        self._options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
        self._sink: SummedSink | None = None
        self._file: GatheringFile | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._schema: pa.Schema | None = None
        self._files = self._batches = self._bytes = 0
        self.checksums: dict[str, str] = {}

    def add(self, table: pa.Table) -> tuple[str, int]:
        """Keep what there is of one shard; give file and batch where it is."""
        [batch] = table.combine_chunks().to_batches()
        full = self._batches >= _FILE_SHARDS or self._bytes >= _FILE_BYTES
        if self._writer is None or batch.schema != self._schema or full:
            self._next(batch.schema)
        assert self._writer is not None, "made just above"
        self._writer.write_batch(batch)
        self._batches += 1
        self._bytes += batch.nbytes
        return self._name(), self._batches - 1

    def _next(self, schema: pa.Schema) -> None:
        self.close()
        self._sink = with_checksum(self._store.put_stream(f"{self._folder}/{self._name()}"))
        self._file = GatheringFile(self._sink)
        self._writer = pa.ipc.new_file(self._file, schema, options=self._options)
        self._schema, self._batches, self._bytes = schema, 0, 0

    def _name(self) -> str:
        return self._template.format(self._files)

    def close(self) -> None:
        """Finish the file at hand."""
        if self._writer is not None and self._sink is not None and self._file is not None:
            self._writer.close()
            self._file.settle()
            self.checksums[self._name()] = self._sink.checksum()
            self._sink.close()
            self._files += 1
        self._writer = self._file = self._sink = None

    def abort(self) -> None:
        """Drop the file at hand."""
        if self._sink is not None:
            self._sink.abort()


def _unplaced(index: pa.Table) -> pa.Table:
    """An index without the name that its shard has while it is built: readers know the shard by its row."""
    wraps = [FileEntry("", f.wrap) for f in files_of(index.schema)]
    return index.replace_schema_metadata(with_files(index.schema, wraps).metadata) if wraps else index
