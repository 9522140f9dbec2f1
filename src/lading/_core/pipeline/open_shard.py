"""One shard being written: its files, how many samples still fit, and the references of what was written."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lading._core.arrow.references import FileEntry, concat, with_files
from lading._core.features.items import KEY
from lading._core.formats.base import ShardWriter
from lading._core.interleaved.open import create_view_shard
from lading._core.pipeline.batch import Batch
from lading._core.pipeline.finished import FinishedShard, ShardSums
from lading._core.pipeline.seen_ids import SeenIds
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.storage.background import Background
from lading._core.storage.base import Sink, Store, TakesChecksum, writes_behind
from lading._core.storage.checksum import with_checksum

__all__ = ["BuildFolder", "OpenShard", "begin_shard"]


@dataclass(frozen=True, slots=True)
class BuildFolder:
    """The folder in which shards are built, out of sight.

    Attributes:
        store: where the folder lies.
        path: its path.
        final: the folder's name after the commit, for references and errors; None if nobody knows it yet.
    """

    store: Store
    path: str
    final: str | None = None


@dataclass(slots=True)
class OpenShard:
    """A shard being written.

    Attributes:
        path: below the folder it is built in.
        sinks: of its files, its own first.
        writer: the format's writer.
        index: references of the rows written.
        num_samples: samples written.
        payload_bytes: bytes of their values.
        ids: ids of the samples, for files in which every id is unique.
    """

    path: str
    sinks: list[Sink]
    writer: ShardWriter
    index: list[pa.Table] = field(default_factory=list)
    num_samples: int = 0
    payload_bytes: int = 0
    ids: SeenIds = field(default_factory=SeenIds)

    def write(self, batch: Batch, num_samples: int, file: str) -> pa.Table | None:
        """Write rows; return references of them in the named file, None if values are no ranges.

        Args:
            batch: the rows, as the pack stage gives them.
            num_samples: samples in them.
            file: the shard's name in references.
        """
        writer = self.writer
        if writer.encodes:
            table = writer.write_encoded(batch.rows, batch.ranges)
        else:
            table = writer.write_ranges(batch.rows, batch.ranges) if batch.ranges else writer.write(batch.rows)
        self.num_samples += num_samples
        self.payload_bytes += batch.size_bytes
        if table is None:
            return None
        self.index.append(table)
        return table.cast(with_files(table.schema, [FileEntry(file)]))

    def settle(self) -> None:
        """Wait until all rows are in the files, so that the caller may change what they lie in."""
        for sink in self.sinks:
            if writes_behind(sink):
                sink.settle()

    def finish(self, kind: ShardKind, closing: Background, *, behind: bool) -> FinishedShard:
        """Finish the shard; another thread brings its files to disk.

        With `behind`, rows may still be written after the call.
        """
        with ExitStack() as failed:
            for sink in self.sinks:
                failed.callback(sink.abort)
            facts = self.writer.close()
            if not behind:
                self.settle()
            sums: list[ShardSums] = []
            closing.start(partial(_close, self.sinks, sums, kind.checksums))
            failed.pop_all()
        counts = dict(self.writer.counts)
        index = concat(self.index) if self.index else None
        facts = replace(facts, num_samples=self.num_samples)
        beside = [posixpath.basename(sink.path) for sink in self.sinks[1:]]
        return FinishedShard(self.path, facts, index, counts, beside, sums)

    def abort(self) -> None:
        """Drop the files."""
        for sink in self.sinks:
            sink.abort()


def begin_shard(folder: BuildFolder, kind: ShardKind, path: str, schema: pa.Schema) -> OpenShard:
    """Begin a shard of rows of this schema; nothing is left of it on failure."""
    if kind.takes_members and KEY not in schema.names:
        schema = schema.insert(0, pa.field(KEY, pa.string()))
    with ExitStack() as failed:
        sinks = []
        for name in kind.file_names(path):
            sink = folder.store.put_stream(f"{folder.path}/{name}")
            failed.callback(sink.abort)
            summed = kind.checksums != "none"
            sinks.append(with_checksum(sink, extents=kind.checksums == "samples") if summed else sink)
        writer = create_view_shard(kind.format, sinks, schema, kind.view, kind.options, kind.roles)
        failed.pop_all()
    return OpenShard(path, sinks, writer)


def _close(sinks: Sequence[Sink], sums: list[ShardSums], checksums: str) -> None:
    """Close the files of a shard, its own last, and give their checksums, its own first."""
    with ExitStack() as failed:
        for sink in sinks:
            failed.callback(sink.abort)
        summed = [sink for sink in sinks if isinstance(sink, TakesChecksum) and checksums != "none"]
        files = [sink.checksum() for sink in summed]
        found = [sink.extents.extents(file) for file, sink in enumerate(summed) if checksums == "samples"]
        known = [one for one in found if one is not None]
        sums.append(ShardSums(files, pa.Table.from_batches(known) if known else None))
        for sink in reversed(sinks):
            sink.close()
        failed.pop_all()
