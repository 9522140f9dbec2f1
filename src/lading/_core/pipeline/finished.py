"""Facts, references and checksums of finished shards, and the files that keep them beside a dataset.

`FinishedShards` gathers the facts of a dataset's shards. A process that writes a part of it for another process hands
its shards over as a `FinishedPart`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lading._core.arrow.older import data_bytes
from lading._core.arrow.references import FileEntry, files_of, with_files
from lading._core.features.items import KEY
from lading._core.formats.base import ShardFacts
from lading._core.manifest.values import EXTENTS_NAME, INDEX_NAME, shards_table
from lading._core.pipeline.repeated_keys import RepeatedKeys
from lading._core.storage.base import Store, SummedSink
from lading._core.storage.checksum import with_checksum
from lading._core.storage.sink_file import GatheringFile

__all__ = ["FinishedPart", "FinishedShard", "FinishedShards", "ShardSums"]

_FILE_SHARDS, _FILE_BYTES = 256, 64 << 20
"""A file of indexes or of extents takes shards until it has this many, or this many bytes: readers refuse large files.
"""


@dataclass(frozen=True, slots=True)
class ShardSums:
    """The checksums of a shard.

    Attributes:
        files: of its file, and of those beside it; none where none are kept.
        extents: of its files (`_core.storage.extents`); None where none are kept, or the writer knew none.
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
        counts: what was reported, by a short phrase.
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
class FinishedPart:
    """Consecutive finished shards of a dataset, built in a folder of their own for somebody else to take.

    Attributes:
        shards: rows of `_core.manifest.values.SHARDS_SCHEMA`; paths, of index files too, are below that folder.
        schema: of the first rows; None if there were none.
        columns: all columns seen, in the order of their appearance, for formats that do not fix them.
        counts: what was reported, by a short phrase.
        roles: of interleaved data: which rows each passthrough column belongs to, of those known.
    """

    shards: pa.Table
    schema: pa.Schema | None
    columns: pa.Schema
    counts: Mapping[str, int]
    roles: Mapping[str, str] = field(default_factory=dict)


class FinishedShards:
    """Facts of finished shards, in order; their references are kept in index files of many shards each.

    Args:
        store: where the dataset is built.
        folder: what it is built in.
        own: folder below that of lading's own files.

    Attributes:
        counts: what was reported, by a short phrase.
        keys: takes the keys of all samples, where somebody counts those that come again.
    """

    def __init__(self, store: Store, folder: str, own: str) -> None:
        self._index = _TableFiles(store, folder, f"{own}/{INDEX_NAME}")
        self._extents = _TableFiles(store, folder, f"{own}/{EXTENTS_NAME}", compression="lz4")
        self._facts: list[tuple[str, ShardFacts]] = []
        self._indexed: list[tuple[str, int] | None] = []
        self._measured: list[tuple[str, int] | None] = []
        self._sums: list[tuple[Sequence[str], list[ShardSums]]] = []
        self.counts: Counter[str] = Counter()
        self.keys: RepeatedKeys | None = None

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def facts(self) -> Sequence[tuple[str, ShardFacts]]:
        """Path and facts of each shard."""
        return self._facts

    def add(self, shard: FinishedShard) -> None:
        """Append a shard."""
        if self.keys is not None and shard.index is not None and KEY in shard.index.column_names:
            self.keys.add(shard.index.column(KEY))
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
        """Finish the index files; give the shards as rows of `_core.manifest.values.SHARDS_SCHEMA`.

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
        exact = [pa.concat_arrays([column, column.slice(0, 0)]) for column in batch.columns]
        batch = pa.RecordBatch.from_arrays(exact, schema=batch.schema)  # whatever lay behind the last value is left out
        full = self._batches >= _FILE_SHARDS or self._bytes >= _FILE_BYTES
        if self._writer is None or batch.schema != self._schema or full:
            self._next(batch.schema)
        assert self._writer is not None, "made just above"
        self._writer.write_batch(batch)
        self._batches += 1
        self._bytes += data_bytes(batch)
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
