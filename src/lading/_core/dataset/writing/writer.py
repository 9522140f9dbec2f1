"""The one write path, for every format: names, splitting, references, statistics, and a commit.

Shards are written where nobody looks, their names made from a template with the writer's rank and the caller's tags,
so that many writers need no coordination. A new shard begins when one reaches its size. At the end, and only then,
everything appears, the manifest last; if the body of the `with` fails, nothing does.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from string import Template
from typing import Any, Self, get_args

import pyarrow as pa

from lading._core.arguments import public
from lading._core.arrow.align import refuse_bare, refuse_duplicate_names
from lading._core.arrow.references import concat
from lading._core.arrow.rows import Encoders, rows_to_batch
from lading._core.arrow.streams import ArrowStream, stream_of
from lading._core.content.digests import DatasetDigest
from lading._core.dataset.writing.open_sample import OpenSample, has_ids
from lading._core.dataset.writing.single_file import check_file, is_file_name, lost_without_manifest, options_of_file
from lading._core.features.items import VIEWS
from lading._core.formats.base import ShardFacts
from lading._core.formats.registry import format_of_name, get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.manifest.commit import Staging, check_destination, check_shared, find_destination
from lading._core.manifest.files import ShardTables, lading_folder, save_manifest
from lading._core.manifest.values import FOLDER, Manifest, leads_outside
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.cutting import ONE_SHARD, Cut
from lading._core.pipeline.fetch import advising, fetched_parts
from lading._core.pipeline.finished import FinishedPart, FinishedShard, FinishedShards, ShardSums
from lading._core.pipeline.open_shard import BuildFolder
from lading._core.pipeline.pack import KeyNumbers
from lading._core.pipeline.repeated_keys import RepeatedKeys
from lading._core.pipeline.shard_kind import CHECKSUMS, OnDuplicateId, ShardKind
from lading._core.pipeline.write import PartWriter, write_rows
from lading._core.result_text import ResultText
from lading._core.storage.background import Background
from lading._core.storage.base import Buffer, aborting
from lading._core.storage.checksum import file_checksums, with_checksum
from lading._core.storage.fetch import Fetcher, earlier_errors
from lading._core.storage.roots import kept_roots
from lading._core.storage.stores import Stores
from lading._core.units import parse_bytes
from lading.errors import LadingError, UsageError, errors_at
from lading.options import OnError

__all__ = ["DatasetWriter", "WriteSummary"]

_BUFFER_ROWS = 1000
_BUFFER_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class WriteSummary(ResultText):
    """What a writer wrote.

    Attributes:
        num_samples: samples.
        num_shards: files.
        size_bytes: bytes of these files.
        payload_bytes: bytes of values, before framing and compression.
        counts: what was reported, by a short phrase.
        notes: what readers of the format make less of than lading, and the option that changes it.
    """

    num_samples: int
    num_shards: int
    size_bytes: int
    payload_bytes: int
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()


@public("lading.writer")
class DatasetWriter:
    """Write samples as the shards of a dataset, which appears when the writer is closed without an error.

    Example:
        with lading.writer("out", format="webdataset", shard_size="256MB") as writer:
            writer.write({"__key__": "a", "jpg": jpeg_bytes, "json": {"caption": "a photo"}})

    Args:
        destination: folder of the dataset, a path or URL. A name that ends in `.parquet`, `.tar` or such is one file,
            without a manifest next to it; a slash at the end makes it a folder.
        format: name of the format. By default the ending of a file names it; a folder is `webdataset`.
        view: `samples` (a row is a sample) or `interleaved` (rows are items of `INTERLEAVED_SCHEMA`, samples are
            whole).
        schema: columns of all rows. By default those of the first batch with rows, or of an empty batch if there is no
            other. Formats without a fixed schema take any columns.
        shard_size: size of a shard on disk, in bytes or as text (`"256MB"`). A new shard begins before a sample that
            would exceed it. Of compressed files, the size is an estimate until they are finished.
        name: `string.Template` of a shard's name without extension: `${rank}`, `${shard}` (its number) and the tags. A
            template without `${shard}` gets the number as a prefix (`000_`), as in datatrove.
        rank: number of this writer among several that write into one folder. Each rank publishes its own shards and
            manifest. The names of ranks must differ: by `${rank}`, the default, or by tags or words. A name that is
            taken is refused at the end. The next writer of a rank removes what a dead one left. It replaces a published
            rank only with `overwrite`. None: this writer makes the whole dataset, which appears in one step.
        tags: values for the template.
        overwrite: replace the dataset at the destination. By default a destination that is not empty is refused.
        options: options of the format.
        roles: for interleaved data: which rows each passthrough column belongs to.
        members: for rows that are members of another tar: the schema of their values, if it is known.
        checksums: checksums for `verify` and `salvage`: of `samples` (and files), of `files`, or `none` but those of
            lading's own files.
        on_error: for a row with unavailable payload, or with an earlier error: `error`, `warn` (write the row without
            payload), `drop_row`, `drop_sample`. Dropped rows are counted. None writes rows with an earlier error as
            they are.
        on_materialize_error: NeMo Curator's name of `on_error`.
        stores: which store serves which URL.
        storage_options: options of object stores, such as `{"endpoint": "http://minio:9000"}`, also by URL prefix.
        staging: place where the dataset is built, if it exists already. This writer then owns the place.
        roots: folders that references in the rows lead to; the manifest keeps them for readers.
        rows_per_shard: samples of a shard, in place of its size.
        cut: where shards end, for a job that plans it; then the two are ignored.

    Raises:
        DestinationExists: the destination is not empty, at the beginning or at the end, and `overwrite` is not set.
        DuplicateField: the schema names a column, or a field of a struct, twice.
        UsageError: an unknown view, or a template with unknown names or invalid shard names.
    """

    def __init__(  # noqa: PLR0913 - one value a decision; a value object would only move them
        self,
        destination: str | os.PathLike[str],
        *,
        format: str | None = None,  # noqa: A002 - the word users know
        view: str = "samples",
        schema: pa.Schema | None = None,
        shard_size: int | str = "256MB",
        name: str | None = None,
        rank: int | None = None,
        tags: Mapping[str, str] | None = None,
        overwrite: bool = False,
        options: Mapping[str, Any] | None = None,
        roles: Mapping[str, str] | None = None,
        members: pa.Schema | None = None,
        checksums: str = "samples",
        on_error: OnError | None = "error",
        on_materialize_error: OnError | None = None,
        stores: Stores | None = None,
        storage_options: Mapping[str, Any] | None = None,
        staging: Staging | None = None,
        roots: Sequence[str] = (),
        rows_per_shard: int | None = None,
        cut: Cut | None = None,
    ) -> None:
        stores = Stores.of(stores, storage_options)
        self._is_file = rank is None and is_file_name(destination)
        self._kept_roots = kept_roots(roots, os.fspath(destination), stores)
        if view not in VIEWS:
            raise UsageError("no such view", expected=" or ".join(VIEWS), found=repr(view))
        if checksums not in CHECKSUMS:
            raise UsageError("no such checksums", expected=", ".join(CHECKSUMS), found=repr(checksums))
        self._stores = stores or Stores()
        self._store, self._destination = find_destination(destination, self._stores)
        by_name = format_of_name(os.fspath(destination)) if self._is_file else "webdataset"
        fmt = get_format(by_name if format is None else format)
        if self._is_file:
            options, cut = options_of_file(destination, fmt, options or {}), ONE_SHARD
        self._kind = ShardKind(fmt, view, fmt.write_options(options or {}), Roles(dict(roles or {})), checksums)
        self._overwrite, self._on_error = overwrite, on_materialize_error or on_error
        if self._on_error not in (*get_args(OnError), None):
            raise UsageError("no such policy", expected=", ".join(get_args(OnError)), found=repr(self._on_error))
        self._rank, self._tags, self._members = rank, dict(tags or {}), members
        self._template = _template(name, rank)
        self._shard_name(0)  # one that nobody can have is refused now
        refuse_duplicate_names(pa.schema([]) if schema is None else schema)
        if self._is_file:
            check_file(self._store, self._destination, overwrite=overwrite)
        elif rank is None:
            again = staging is not None and staging.had_begun
            check_destination(self._store, self._destination, overwrite=overwrite, again=again)
        else:
            check_shared(self._store, self._destination, lading_folder(rank), overwrite=overwrite)
        self._staging = staging or Staging.begin(self._store, self._destination, shared=rank is not None)
        self._fetcher = Fetcher(self._stores)
        cut = cut or Cut(parse_bytes(shard_size), samples=rows_per_shard)
        self._closing = Background("lading-close")
        self._shards = FinishedShards(self._store, self._staging.folder, lading_folder(rank))
        self._part = PartWriter(
            BuildFolder(self._store, self._staging.folder, self._final_folder), self._kind, self._shards,
            closing=self._closing, name=self._shard_name, cut=cut, schema=schema,
            keys=KeyNumbers(prefix="" if rank is None else f"{rank:05d}-"),
        )  # fmt: skip
        self._given_schema = schema
        self._rows: list[dict[str, Any]] = []
        self._row_bytes = 0
        self._open_sample = OpenSample()
        self._digest: DatasetDigest | None = None
        self._more: dict[str, str] = {}
        self._notes: list[str] = []
        self._finished = self._done = self._dropped = False

    @property
    def counts(self) -> Counter[str]:
        """What was reported so far, by a short phrase."""
        return self._shards.counts

    # Rows in

    def write(self, sample: Mapping[str, Any]) -> None:
        """Append one sample: a dict of field → bytes, text, number, or any value that JSON or a numpy array can hold.

        Example:
            writer.write({"__key__": "a", "jpg": jpeg_bytes, "json": {"caption": "a photo"}})

        Columns of the `schema` take values as `ds[i]` gives them, or as `_core.features.encode` takes them: arrays,
        images, any value for JSON. A text for JSON is a JSON string; encoded JSON is given as bytes. In other columns a
        list of bytes or images becomes a list of bytes, any other list or dict JSON, and an array a `.npy` file. In a
        list, a uint8 array of (height, width, 3) is an image. Bytes mean what their name means in a tar (image, text,
        JSON, array), but never a number. Integers in a column with floats become floats. The first 1,000 samples
        decide the types, if the format has one schema: give `schema` if later samples have other types.

        `__key__` names the sample. In tars, samples without a key get a number. Rows are collected and written in
        batches.
        """
        self._refuse_finished()
        if self._kind.row_layout.has_items:
            raise UsageError("an interleaved sample is many rows", advice="Write them as a table with write_batch.")
        try:  # not `errors_at`, which costs as much as most encoding
            row = self._encoders.row(sample)
        except LadingError as error:
            if isinstance(error, UsageError) and error.column is not None:
                error.advice = error.advice or "Write one kind of value, or name the types: schema=pa.schema([…])."
            raise error.at(row=self._part.num_rows + len(self._rows)) from None
        self._rows.append(row)
        self._row_bytes += sum(len(v) for v in row.values() if isinstance(v, (bytes, str)))
        self._row_bytes += sum(_weight(v) for v in row.values() if isinstance(v, (list, dict)))
        if len(self._rows) >= _BUFFER_ROWS or self._row_bytes >= _BUFFER_BYTES:
            with self._dropping():
                self._flush_rows()

    @cached_property
    def _encoders(self) -> Encoders:
        asked = self._kind.format.written(pa.schema([]), self._kind.options).asked_fields
        given = self._given_schema
        fields = [field for field in asked or () if given is None or field.name not in given.names]
        return Encoders(pa.schema([*(given or ()), *fields]) if fields else given)

    def _flush_rows(self) -> None:
        """Write all rows that wait."""
        self._end_sample()
        self._write_rows()

    def _write_rows(self) -> None:
        rows = self._rows
        self._rows, self._row_bytes = [], 0
        if rows:
            with errors_at(first_row=self._part.num_rows):
                batch = rows_to_batch(rows, self._encoders)
            self._write(batch, behind=False, duplicate_ids="error")

    def write_batch(
        self, rows: pa.RecordBatch | ArrowStream, *, behind: bool = False, duplicate_ids: OnDuplicateId = "error"
    ) -> pa.Table | None:
        """Append rows. Return references (file, offset, length) to the written values, or None if values are no ranges.

        Example:
            writer.write_batch(pa.table({"id": [1, 2], "text": ["a", "b"]}))

        Rows are a record batch, a table, a data frame of pandas or polars, or anything else with `__arrow_c_stream__`.
        Reference columns are read from where they point. The returned references name the files after the commit.
        A call that fails drops the whole dataset, as `abort` does.

        The rows of an interleaved sample may come in several calls, one after the other. So the last sample of a call
        is written when the next sample begins: that call returns its references. `end_sample` writes it earlier. An id
        that returns later is a DataError that names the sample. Memory: the rows of the last sample, and 16 bytes a
        sample.

        With `behind` the rows may be written while the caller makes the next ones, so their memory must not change
        before `close`. Without `behind`, that holds only for the rows that `held_bytes` counts: formats that write
        shards or row groups at their end hold rows until then.

        With `duplicate_ids="apart"`, interleaved samples are whole within a call. A sample with an earlier id is
        another sample: where readers would join the two, it begins another file. In tars of samples, "apart" keeps
        neighbours with one `__key__` apart, and by default these are a DataError.
        """
        self._refuse_finished()
        layout = self._kind.row_layout
        with self._dropping():
            self._write_rows()
            if isinstance(rows, pa.RecordBatch):
                batches = [rows]
            else:
                table = rows if isinstance(rows, pa.Table) else stream_of(rows).read_all()
                refuse_bare(table.num_rows, table.num_columns)
                # Samples of items are whole within the call, not within a chunk.
                batches = layout.batches(table) or [_no_rows(table.schema)]
            written = [
                self._write(part, behind=behind, duplicate_ids=duplicate_ids)
                for batch in batches
                for part in (
                    self._whole_samples(batch, duplicate_ids) if layout.has_items and batch.num_rows else [batch]
                )
            ]
        return _all_of(written)

    def end_sample(self) -> pa.Table | None:
        """Write the interleaved sample that waits for more rows. Return its references, as `write_batch` does.

        Rows of the sample that come later are a DataError then.
        """
        self._refuse_finished()
        with self._dropping():
            return self._end_sample()

    def _end_sample(self) -> pa.Table | None:
        rows = self._open_sample.end()
        return None if rows is None else self._write(rows, behind=False, duplicate_ids="error")

    def _whole_samples(self, rows: pa.RecordBatch, duplicate_ids: OnDuplicateId) -> Iterator[pa.RecordBatch]:
        """Give the rows of samples that are whole; those of the last one wait for the next call."""
        if duplicate_ids == "error" and has_ids(rows):
            yield from self._open_sample.add(rows, self._part.num_rows + self._open_sample.num_rows)
            return
        ended = self._open_sample.end()
        yield from [rows] if ended is None else [ended, rows]

    def _write(self, rows: pa.RecordBatch, *, behind: bool, duplicate_ids: OnDuplicateId) -> pa.Table | None:
        batch = Batch(rows, self._kind.view)
        fails = self._on_error not in ("error", None) or (self._on_error and earlier_errors(rows))
        written = [
            write_rows(self._part, self._fetcher, part, behind=behind, duplicate_ids=duplicate_ids)
            for part in (self._without_failures(batch) if fails else [batch])
        ]
        return _all_of(written)

    def _without_failures(self, batch: Batch) -> Iterator[Batch]:
        """The batch with its payload, without the rows that fail, or with nulls in them."""
        left = batch.num_rows
        policy = self._on_error or "error"
        with advising():
            for part in fetched_parts(batch, self._fetcher, _BUFFER_BYTES, views=True, on_error=policy):
                left -= part.num_rows
                yield part
        if left:
            self.counts["rows without bytes, dropped"] += left

    def _refuse_finished(self) -> None:
        if self._finished or self._done:
            raise UsageError("this writer is finished", file=self._destination, advice="Open another one.")

    def held_bytes(self) -> int:
        """Payload that was given but is not in a file yet: buffers behind it must stay as they are."""
        return self._part.held_bytes() + self._open_sample.held_bytes

    # Parts

    @property
    def part(self) -> PartWriter:
        """The writer of the shards, for a job whose pipeline ends there. A job that fails aborts this writer."""
        self._refuse_finished()
        return self._part

    def count_keys(self, keys: RepeatedKeys) -> None:
        """Give the keys of all samples to a counter, where references of the samples have keys: in tars."""
        self._shards.keys = keys

    def end_part(self, cut: Cut, first_row: int | None = None) -> None:
        """End the open shard: what comes next is written as if nothing had come before.

        Parts written so make the same dataset as parts that other processes write and `adopt` takes.

        Args:
            cut: where the shards end that come next.
            first_row: number of the first row that comes next, by which rows without keys are named in tars; by default
                they are counted on.
        """
        self._refuse_finished()
        with self._dropping():
            self._flush_rows()
            self._part.end_part(cut, first_row)

    def adopt(self, part: FinishedPart, folder: str) -> None:
        """Append the finished shards that another process built in a folder, under names of this dataset.

        The files stay in the folder until the commit, so that a job that dies finds them. A call that fails drops
        nothing, since others may still be building: end them, then `abort`.

        Args:
            part: the shards.
            folder: where they lie, on this writer's store, below `tasks`.
        """
        self._refuse_finished()
        self._flush_rows()
        self._part.end_shard()
        kept = ShardTables(self._store, folder, part.shards)
        for number, row in enumerate(part.shards.to_pylist()):
            path = self._shard_name(len(self._shards))
            facts = self._renamed(ShardFacts.of(row), path)
            files = self._files_of(path)
            for old, new in zip(self._files_of(row["path"]), files, strict=True):
                self._staging.adopt(f"{folder}/{old}", new)
            beside = [posixpath.basename(file) for file in files[:-1]]
            told = [row["xxh3"], *(other["xxh3"] for other in row["beside_xxh3"] or ())]
            sums = ShardSums([] if row["xxh3"] is None else told, kept.extents(number))
            self._shards.add(FinishedShard(path, facts, kept.index(number), {}, beside, [sums]))
        self.counts.update(part.counts)
        self._kind.roles.learn(part.roles)
        columns = self._part.columns
        columns.see(part.columns)
        if columns.schema is None:
            columns.schema = part.schema

    def _renamed(self, facts: ShardFacts, path: str) -> ShardFacts:
        """What a shard holds that was built under another name."""
        entry, _ = self._kind.format.index.renamed(facts.entry, posixpath.basename(path))
        return replace(facts, entry=entry)

    def _files_of(self, path: str) -> list[str]:
        """The files of a shard, those beside it first."""
        own, *beside = self._kind.file_names(path)
        return [*beside, own]

    @property
    def tasks(self) -> str:
        """The folder in which other processes build parts, out of sight, each attempt at one in a folder of its own."""
        return self._staging.tasks

    @property
    def built(self) -> Stores:
        """The stores by which the folder that `finish` returns can be read."""
        if self._staging.store is self._store:
            return self._stores
        return self._stores.and_for({self._staging.folder: self._staging.store})

    # Names

    @property
    def _final_folder(self) -> str:
        return posixpath.dirname(self._destination) or "." if self._is_file else self._destination

    def _shard_name(self, number: int) -> str:
        if self._is_file:
            if number:
                raise UsageError("the rows do not fit into one file: samples of one id are not adjacent",
                                 file=self._destination, advice="Write a folder, or sort the rows.")  # fmt: skip
            return posixpath.basename(self._destination)
        ending = self._kind.format.endings(self._kind.options)[0]
        if self._template is None:
            return self._kind.format.info.shard_name.format(number) + ending
        values = {**self._tags, "shard": f"{number:06d}"}
        if self._rank is not None:
            values["rank"] = f"{self._rank:05d}"
        try:
            name = self._template.substitute(values)
        except (KeyError, ValueError) as error:
            raise UsageError("the name template asks for a value that nobody gives", found=self._template.template,
                             expected=", ".join(f"${{{v}}}" for v in values)) from error  # fmt: skip
        if "shard" not in self._template.get_identifiers():
            folder, _, base = name.rpartition("/")
            name = f"{folder}/{number:03d}_{base}" if folder else f"{number:03d}_{base}"
        if name.startswith(".") or FOLDER in name.split("/") or leads_outside(name):
            raise UsageError("a shard's name must stay inside the dataset's folder", found=repr(name),
                             expected=f"words with / between them, none of them empty, . or {FOLDER}")  # fmt: skip
        return name + ending

    # The end

    def add_digest(self, digest: DatasetDigest) -> None:
        """The content digest of what was written, to be kept in the manifest."""
        self._digest = digest

    def add_file(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a further file of lading's own beside the manifest, which tells its checksum."""
        path = f"{lading_folder(self._rank)}/{name}"
        with self._dropping(), aborting(with_checksum(self._store.put_stream(self._staging.path(path)))) as sink:
            for piece in pieces:
                sink.write([piece])
            self._more[path] = sink.checksum()
            sink.close()

    def finish(self) -> str:
        """Finish the last shard, indexes and manifest. Return the hidden folder of the dataset.

        The dataset in that folder can be opened and verified before `close` publishes it.
        """
        if self._dropped:
            raise UsageError("nothing is left to finish: the writer was aborted", file=self._destination)
        if self._finished:
            return self._staging.folder
        with self._dropping():
            self._flush_rows()
            self._part.end_shard()
            columns = self._part.columns
            if columns.schema is None:
                columns.schema = columns.without_rows
            if not len(self._shards) and columns.schema is not None:
                # A dataset without rows still has a schema that its format must hold, and mostly a file that says so.
                self._part.begin_shard()
                if self._kind.format.info.fixed_schema or self._is_file:
                    self._part.end_shard()
                else:
                    self._part.abort()
            self._closing.wait()
            self._write_manifest()
        self._finished = True
        return self._staging.folder

    def close(self) -> WriteSummary:
        """Finish, and publish the dataset."""
        if self._done and not self._dropped:
            return self.summary
        self.finish()
        with self._dropping():
            apart = self._template is not None and "rank" in self._template.get_identifiers()
            if self._is_file:
                self._staging.commit_file(self._shard_name(0), overwrite=self._overwrite)
            else:
                self._staging.commit(overwrite=self._overwrite, apart=apart)
        self._done = True
        self._closing.stop()
        self._fetcher.close()
        return self.summary

    def _write_manifest(self) -> None:
        folder, kind, store = self._staging.folder, self._kind, self._staging.store
        sidecars, facts = list[str](), self._shards.facts
        if self._rank is None and not self._is_file:
            sidecars += kind.format.index.write(store, folder, facts, kind.options)
        shards, summary = self._shards.close(), self.summary
        columns = self._part.columns
        schema = columns.schema or kind.row_layout.empty_schema
        if columns.seen:
            schema = pa.schema(list(columns.seen.values()), metadata=schema.metadata)
        if self._is_file:
            if not facts:
                raise UsageError("a file of no rows needs columns", file=self._destination, advice="Give a schema.")
            self.counts.update(lost_without_manifest(kind, schema))
        back = kind.format.written(schema, kind.options)
        if len(schema) and kind.row_layout.types_by_format:
            self._notes = [back.note] if back.note else []
            schema = schema if back.schema is None else back.schema()
        options: dict[str, Any] = {}
        if self._members is not None or kind.restores(schema):
            schema, options = self._members or schema, {"members": "typed"}
        of_members = kind.row_layout.is_stored_as_members(kind.format.info)
        roles = {**(_DOCUMENTS if of_members else {}), **kind.roles.options(schema.names)}
        if roles:
            options = {"interleaved": roles}
        # Options of rows say nothing of tars of documents, whose members have names by a rule of their own.
        if kind.row_layout.is_stored_as_rows(kind.format.info) and back.read_options:
            options["reading"] = back.read_options
        if self._kept_roots:
            options["roots"] = self._kept_roots
        manifest = Manifest(
            kind.format.name,
            kind.view,
            schema,
            summary.num_samples,
            summary.num_shards,
            summary.size_bytes,
            summary.payload_bytes,
            options=options,
            counts=summary.counts,
            digests=self._digest.to_json() if self._digest is not None else {},
            sidecars=tuple(path.removeprefix(folder + "/") for path in sidecars),
            files={**self._more, **self._shards.own_checksums, **file_checksums(self._store, folder, sidecars)},
            rank=self._rank,
        )
        save_manifest(self._store, folder, manifest, shards)

    @property
    def summary(self) -> WriteSummary:
        """What is written so far; all of it after `finish`."""
        facts = [f for _, f in self._shards.facts]
        return WriteSummary(
            sum(f.num_samples for f in facts),
            len(facts),
            sum(f.size_bytes + f.beside_bytes for f in facts),
            sum(f.payload_bytes for f in facts),
            dict(self.counts),
            self._notes,
        )

    def abort(self) -> None:
        """Drop everything that was written; nothing of it was ever visible."""
        if self._done:
            return
        self._done = self._dropped = True
        with ExitStack() as last:  # the last first, each whatever came of the others
            last.callback(self._staging.drop)
            last.callback(self._fetcher.close)
            last.callback(self._shards.abort)
            last.callback(self._closing.stop)
            last.callback(self._part.abort)

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """Abort if the body fails."""
        with ExitStack() as failed:
            failed.callback(self.abort)
            yield
            failed.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


_DOCUMENTS = {"sample_id_field": "sample_id"}
"""Options with which lading's reader of documents in tars gets back what its writer was given."""


def _weight(value: Any) -> int:
    """Bytes of texts and bytes inside lists and dicts."""
    if isinstance(value, (bytes, str)):
        return len(value)
    return sum(map(_weight, value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()))


def _template(name: str | None, rank: int | None) -> Template | None:
    """The template of names; None where the format names its shards."""
    return None if name is None and rank is None else Template(name or "${rank}-${shard}")


def _all_of(written: Iterable[pa.Table | None]) -> pa.Table | None:
    """All references of what was written; None if there are none."""
    tables = [table for table in written if table is not None]
    return concat(tables) if len(tables) > 1 else next(iter(tables), None)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in schema], schema)
