"""The one write path, for every format: names, splitting, references, statistics, and a commit.

Shards are written where nobody looks, their names made from a template with the writer's rank and the caller's tags,
so that many writers need no coordination. A new shard begins when one reaches its size. At the end, and only then,
everything appears, the manifest last; if the body of the `with` fails, nothing does.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from string import Template
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.align import align_table
from lading.commit import Staging, check_destination
from lading.digests import DatasetDigest
from lading.errors import SchemaMismatch, UsageError
from lading.fetch import Fetcher
from lading.formats.protocol import ShardFacts, ShardWriter
from lading.formats.registry import get_format
from lading.interleaved import sample_firsts, without_source
from lading.layouts.mint_write import MintShardWriter, Roles
from lading.layouts.open import VIEWS, create_view_shard
from lading.manifest import INDEX_NAME, Manifest, shards_table
from lading.manifest_files import lading_folder, save_manifest
from lading.ref import FileEntry, concat, is_ref, with_files
from lading.rows import encode_value, rows_to_batch
from lading.store.open import Stores, resolve
from lading.store.protocol import Sink, Store, aborting
from lading.store.sink_file import SinkFile
from lading.units import parse_bytes
from lading.views import is_bytes, row_bytes

__all__ = ["DatasetWriter", "WriteSummary"]

_BUFFER_ROWS = 1000
_BUFFER_BYTES = 16 << 20
_FIRST_ROWS = 1024
_INDEX_SHARDS = 256


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """What a writer wrote.

    Attributes:
        num_samples: samples.
        num_shards: files.
        size_bytes: bytes of these files.
        payload_bytes: bytes of values, before framing and compression.
        counts: what was noticed, by a short phrase.
    """

    num_samples: int
    num_shards: int
    size_bytes: int
    payload_bytes: int
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _OpenShard:
    """A shard being written, its sink, and the references of what went into it."""

    path: str
    sink: Sink
    writer: ShardWriter | MintShardWriter
    index: list[pa.Table] = field(default_factory=list)
    num_samples: int = 0
    counted_bytes: int = 0


class DatasetWriter:
    """Writes samples as shards of one format; publishes on success, leaves nothing on failure.

    Args:
        destination: folder of the dataset, a path or URL.
        format: name of the format.
        view: `samples` (a row is a sample) or `interleaved` (rows are items of `INTERLEAVED_SCHEMA`, samples whole).
        schema: columns of all rows; by default those of the first batch. Formats without a fixed schema take any.
        shard_size: a new shard begins before a sample that would pass this, in bytes or as text (`"256MB"`).
        name: `string.Template` of a shard's name without ending: `${rank}`, `${shard}` (its number) and the tags. A
            template without `${shard}` gets the number as a prefix (`000_`), as datatrove's writers do.
        rank: number of this writer among many that write into one folder at once; each publishes its own shards and its
            own manifest. None: this writer makes the whole dataset, which appears in one step.
        tags: values for the template.
        overwrite: replace what is at the destination; by default a destination that holds something is refused.
        options: options of the format.
        roles: for interleaved data: which rows each passthrough column belongs to.
        stores: which store serves which URL.

    Raises:
        DestinationExists: the destination holds something and `overwrite` is not set.
        UsageError: an unknown view, or a template with a name that no tag gives.
    """

    def __init__(  # noqa: PLR0913 - one value a decision; a value object would only move them
        self,
        destination: str | os.PathLike[str],
        *,
        format: str = "webdataset",  # noqa: A002 - the word users know
        view: str = "samples",
        schema: pa.Schema | None = None,
        shard_size: int | str = "256MB",
        name: str | None = None,
        rank: int | None = None,
        tags: Mapping[str, str] | None = None,
        overwrite: bool = False,
        options: Mapping[str, Any] | None = None,
        roles: Mapping[str, str] | None = None,
        stores: Stores | None = None,
    ) -> None:
        if view not in VIEWS:
            raise UsageError("no such view", expected=" or ".join(VIEWS), found=repr(view))
        self._stores = stores or Stores()
        self._store, self._destination = resolve(os.fspath(destination).rstrip("/"), self._stores)
        self._format, self._view = get_format(format), view
        self._schema = None if schema is None else _written_schema(schema)
        self._shard_bytes = parse_bytes(shard_size)
        self._rank, self._tags = rank, dict(tags or {})
        self._template = _template(name, rank)
        self._options = dict(options or {})
        self._roles = Roles(dict(roles or {}))
        check_destination(self._store, self._destination, overwrite=overwrite or rank is not None)
        self._overwrite = overwrite
        self._staging = Staging.begin(self._store, self._destination, shared=rank is not None)
        self._fetcher = Fetcher(self._stores)
        self._open: _OpenShard | None = None
        self._rows: list[dict[str, Any]] = []
        self._originals: list[Mapping[str, Any]] = []
        self._row_bytes = 0
        self._shards: list[tuple[str, ShardFacts]] = []
        self._indexed: list[tuple[str, int] | None] = []
        self._columns: dict[str, pa.Field] = {}
        self._index = _IndexFiles(self._store, self._staging, rank)
        self._closing = _Closing()
        self._bytes_per_payload = 1.0
        self._digest: DatasetDigest | None = None
        self._finished = self._done = self._dropped = False
        self.counts: Counter[str] = Counter()

    # Rows in

    def write(self, sample: Mapping[str, Any]) -> None:
        """Append one sample: a dict of field → bytes, text, number, or what JSON or a numpy array can hold.

        `__key__` names it (a number if it is missing). Rows are gathered and written by the batch.
        """
        self._refuse_finished()
        if self._view != "samples":
            raise UsageError("an interleaved sample is many rows", advice="Write them as a table with write_batch.")
        row = {name: encode_value(name, value) for name, value in sample.items()}
        self._rows.append(row)
        self._originals.append(sample)
        self._row_bytes += sum(len(v) for v in row.values() if isinstance(v, (bytes, str)))
        if len(self._rows) >= _BUFFER_ROWS or self._row_bytes >= _BUFFER_BYTES:
            with self._dropping():
                self._flush_rows()

    def _flush_rows(self) -> None:
        rows, originals = self._rows, self._originals
        self._rows, self._originals, self._row_bytes = [], [], 0
        if rows:
            self._write_all([rows_to_batch(rows, originals)])

    def write_batch(self, rows: pa.RecordBatch | pa.Table) -> pa.Table | None:
        """Append rows; give the references (file, offset, length) of what was written, None if values are no ranges.

        Reference columns are read from where they point. The references name files as they will be called after the
        commit. Interleaved samples must be whole within the call. A call that fails drops everything, as `abort`
        does: what of its rows was written, and of those held back before, nobody could say.
        """
        self._refuse_finished()
        with self._dropping():
            self._flush_rows()
            batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
            if self._view == "interleaved" and len(batches) > 1:
                batches = rows.combine_chunks().to_batches()
            return self._write_all(batches)

    def _write_all(self, batches: Sequence[pa.RecordBatch]) -> pa.Table | None:
        written = [table for batch in batches if batch.num_rows for table in self._write_one(batch)]
        return concat(written) if written else None

    def _refuse_finished(self) -> None:
        if self._finished or self._done:
            raise UsageError("this writer is finished", file=self._destination, advice="Open another one.")

    def _write_one(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        batch = self._fitted(batch)
        sizes = row_bytes(batch)
        starts = sample_firsts(batch, self._view)
        ends = np.append(starts[1:], batch.num_rows)
        size_at = np.concatenate([[0], np.cumsum(sizes)])
        if any(is_ref(f.type) for f in batch.schema):
            batch = self._fetcher.materialise(batch, views=True)
        yield from self._write_samples(batch, size_at, starts, ends)
        self._fetcher.release(self.held_bytes())

    def _write_samples(
        self, batch: pa.RecordBatch, size_at: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Iterator[pa.Table]:
        done = 0
        while done < len(starts):
            shard = self._open or self._begin()
            count = self._samples_that_fit(shard, size_at, starts, ends, done)
            if not count:
                self._finish_shard()
                continue
            first, last = int(starts[done]), int(ends[done + count - 1])
            table = self._write_slice(
                shard, batch.slice(first, last - first), count, int(size_at[last] - size_at[first])
            )
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
        room = (self._shard_bytes - shard.writer.bytes_written()) / self._bytes_per_payload
        limit = size_at[starts[done]] + max(room, 0)
        count = int(np.searchsorted(size_at[ends[done:]], limit, "right"))
        if shard.counted_bytes == 0:
            count = min(count, _FIRST_ROWS)
        return max(count, 1) if shard.num_samples == 0 else count

    def _write_slice(self, shard: _OpenShard, rows: pa.RecordBatch, count: int, payload: int) -> pa.Table | None:
        table = shard.writer.write(rows)
        shard.num_samples += count
        shard.counted_bytes += payload
        if shard.counted_bytes:
            self._bytes_per_payload = max(shard.writer.bytes_written() / shard.counted_bytes, 0.01)
        if table is None:
            return None
        shard.index.append(table)
        entry = FileEntry(self._staging.final(shard.path))
        return table.cast(with_files(table.schema, [entry]))

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the columns of the schema, if the format holds it to one."""
        if self._schema is None:
            self._schema = _written_schema(batch.schema)
        if not self._format.fixed_schema and self._view == "samples":
            for written in _written_schema(batch.schema):
                self._columns.setdefault(written.name, written)
            return batch
        extra = [name for name in batch.schema.names if name not in self._schema.names]
        if extra:
            raise SchemaMismatch(
                "rows hold a column that the schema of this writer does not", column=extra[0],
                expected=", ".join(self._schema.names), advice="Give the writer schema= with all columns.",
            )  # fmt: skip
        # Bytes stay as they come, references and views too: to cast them would copy the payload.
        own = {f.name: f.type for f in batch.schema if is_ref(f.type) or is_bytes(f.type)}
        target = pa.schema(
            [f.with_type(own[f.name]) if f.name in own and is_bytes(f.type) else f for f in self._schema]
        )
        return batch if batch.schema.equals(target) else align_table(batch, target)

    def held_bytes(self) -> int:
        """Payload that was given but is not in a file yet: buffers behind it must stay as they are."""
        return 0 if self._open is None else self._open.writer.held_bytes()

    # Shards

    def _begin(self) -> _OpenShard:
        number = len(self._shards)
        path = self._shard_name(number)
        sink = self._store.put_stream(self._staging.path(path))
        with aborting(sink):
            schema = self._schema or pa.schema([])
            writer = create_view_shard(self._format, sink, schema, self._view, self._options, self._roles)
        self._open = _OpenShard(path, sink, writer)
        return self._open

    def _shard_name(self, number: int) -> str:
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
        if name.startswith(("/", ".")) or ".." in name.split("/"):
            raise UsageError("a shard's name must stay inside the dataset's folder", found=name)
        return name + self._format.extension(self._options)

    def _finish_shard(self) -> None:
        shard = self._open
        if shard is None:
            return
        facts = shard.writer.close()
        self._closing.start(shard.sink)
        self._open = None
        if isinstance(shard.writer, MintShardWriter):
            self.counts.update(shard.writer.counts)
        self._indexed.append(self._index.add(shard.index))
        self._shards.append((shard.path, replace(facts, num_samples=shard.num_samples)))

    # The end

    def add_digest(self, digest: DatasetDigest) -> None:
        """The content digest of what was written, to be kept in the manifest."""
        self._digest = digest

    def finish(self) -> str:
        """Finish the last shard, write sidecars and manifest; give the folder where it all lies, still out of sight.

        What lies there can be opened and looked at before `close` gives it its name.
        """
        if self._dropped:
            raise UsageError("nothing is left to finish: the writer was aborted", file=self._destination)
        if self._finished:
            return self._staging.folder
        with self._dropping():
            self._flush_rows()
            if self._format.fixed_schema and not self._shards and self._open is None and self._schema is not None:
                self._begin()  # a dataset without rows still has a schema, and a file that says so
            self._finish_shard()
            self._closing.wait()
            self._index.close()
            self._write_manifest()
        self._finished = True
        return self._staging.folder

    def close(self) -> WriteSummary:
        """Finish, and make everything visible."""
        if self._done and not self._dropped:
            return self._summary()
        self.finish()
        with self._dropping():
            self._staging.commit()
        self._done = True
        self._closing.stop()
        self._fetcher.close()
        return self._summary()

    def _write_manifest(self) -> None:
        folder, facts = self._staging.folder, [f for _, f in self._shards]
        sidecars = [] if self._rank is not None else self._format.write_sidecars(self._store, folder, self._shards)
        shards = shards_table(
            [path for path, _ in self._shards],
            [f.num_samples for f in facts],
            [f.size_bytes for f in facts],
            [f.payload_bytes for f in facts],
            index_file=[at and at[0] for at in self._indexed],
            index_batch=[at and at[1] for at in self._indexed],
        )
        summary = self._summary()
        schema = self._schema or pa.schema([])
        if self._columns:
            schema = pa.schema(list(self._columns.values()), metadata=schema.metadata)
        reading = {**_READING.get((self._format.name, self._view), {}), **self._roles.options()}
        manifest = Manifest(
            self._format.name,
            self._view,
            schema,
            summary.num_samples,
            summary.num_shards,
            summary.size_bytes,
            summary.payload_bytes,
            options={"interleaved": reading} if reading else {},
            counts=summary.counts,
            digests=self._digest.to_json() if self._digest is not None else {},
            sidecars=tuple(path.removeprefix(folder + "/") for path in sidecars),
            rank=self._rank,
        )
        save_manifest(self._store, folder, manifest, shards)

    def _summary(self) -> WriteSummary:
        facts = [f for _, f in self._shards]
        return WriteSummary(
            sum(f.num_samples for f in facts),
            len(facts),
            sum(f.size_bytes for f in facts),
            sum(f.payload_bytes for f in facts),
            dict(self.counts),
        )

    def abort(self) -> None:
        """Drop everything that was written; nothing of it was ever visible."""
        if self._done:
            return
        self._done = self._dropped = True
        with ExitStack() as last:  # the last first, each whatever came of the others
            last.callback(self._staging.drop)
            last.callback(self._fetcher.close)
            last.callback(self._index.abort)
            last.callback(self._closing.stop)
            if self._open is not None:
                last.callback(self._open.sink.abort)
        self._open = None

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


_READING = {("webdataset", "interleaved"): {"sample_id_field": "sample_id"}}
"""Options with which lading's reader gets back what its writer was given."""


def _template(name: str | None, rank: int | None) -> Template:
    return Template(name or ("shard-${shard}" if rank is None else "${rank}-${shard}"))


def _written_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what reaches a file: references have become bytes, and views values."""
    fields = [
        f.with_type(pa.large_binary()) if is_ref(f.type) or pa.types.is_binary_view(f.type) else f for f in schema
    ]
    return without_source(pa.schema(fields, metadata=schema.metadata))


class _Closing:
    """Brings a finished shard to disk while the next is being written; one at a time, so that they cannot pile up.

    A quarter of a GB takes a fast disk 65 ms and a slow one seconds, and nobody needs the processor meanwhile.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "lading-close")
        self._pending: Future[None] | None = None

    def start(self, sink: Sink) -> None:
        """Close a sink out of sight, when the one before is closed. Raises what that one raised."""
        self.wait()
        self._pending = self._thread.submit(_close, sink)

    def wait(self) -> None:
        """Wait for the last sink. Raises what its closing raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def stop(self) -> None:
        """Wait, whatever came of it, and end the thread."""
        self._thread.shutdown()


def _close(sink: Sink) -> None:
    with aborting(sink):
        sink.close()


class _IndexFiles:
    """The references of finished shards, as batches of Arrow files of many shards each."""

    def __init__(self, store: Store, staging: Staging, rank: int | None) -> None:
        self._store, self._staging, self._folder = store, staging, lading_folder(rank)
        self._sink: Sink | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._schema: pa.Schema | None = None
        self._files = self._batches = 0

    def add(self, tables: list[pa.Table]) -> tuple[str, int] | None:
        """Keep the references of one shard; give file and batch where they are, None if there are none."""
        if not tables:
            return None
        [batch] = concat(tables).combine_chunks().to_batches()
        if self._writer is None or batch.schema != self._schema or self._batches >= _INDEX_SHARDS:
            self._next(batch.schema)
        assert self._writer is not None, "made just above"
        self._writer.write_batch(batch)
        self._batches += 1
        return self._name(), self._batches - 1

    def _next(self, schema: pa.Schema) -> None:
        self.close()
        self._sink = self._store.put_stream(self._staging.path(self._name()))
        self._writer = pa.ipc.new_file(SinkFile(self._sink), schema)
        self._schema, self._batches = schema, 0

    def _name(self) -> str:
        return f"{self._folder}/{INDEX_NAME.format(self._files)}"

    def close(self) -> None:
        """Finish the file at hand."""
        if self._writer is not None and self._sink is not None:
            self._writer.close()
            self._sink.close()
            self._files += 1
        self._writer = self._sink = None

    def abort(self) -> None:
        """Drop the file at hand."""
        if self._sink is not None:
            self._sink.abort()
