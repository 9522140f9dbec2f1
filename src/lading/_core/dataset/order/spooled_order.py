"""Samples in another order than that of the source, without all of them in memory.

The source is read once, in its own order. Each row goes to its place in the new order: payload stays a reference where
the format has references; values that only exist unpacked (rows of Parquet, members of a `.tar.gz`) go along. Rows are
held up to 64 MB. More go to a temporary file in sorted runs, cut into buckets of neighbouring places. A range of places
is read back from the buckets that it touches, of every run, and put in order.

So each row group and each compressed file is unpacked once, and each byte of payload is read once, when its sample's
turn comes. Temporary files are as large as the references, or as the unpacked rows. Any process that gets the folder
can read any range of places.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.free_memory import release_freed
from lading._core.arrow.references import FileEntry, files_of, is_ref, renumbered, unpack, with_files, with_refs
from lading._core.arrow.views import reorder, row_bytes, without_views
from lading._core.dataset.transform.traced_batch import Origin
from lading._core.features.items import sample_rows, split_rows, without_source
from lading._core.features.row_layout import row_layout
from lading._core.storage.temporary import temporary_folder, writing

__all__ = ["HELD_BYTES", "Spool", "SpooledOrder", "Unite"]

Unite: TypeAlias = Callable[[Sequence[pa.Table]], pa.Table]
"""Makes one table of rows of several shards."""

HELD_BYTES = 24 << 20
"""Rows that are held before they go to the temporary file, which takes as much again."""

_BUCKET_BYTES, _BUCKET_PAYLOAD, _MOST_BUCKETS = 16 << 20, 128 << 20, 4096
_MOST_BLOCKS = 1 << 16
_FLUSH_PARTS = 8
"""Rows go to the temporary file in so many parts, because those in their new order are copies."""
_ROWS, _FACTS, _NUMBERS = "rows", "spooled.npz", "numbers.npy"


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of some samples: the place of each sample, how many rows it has, and the rows."""

    places: NDArray[np.int64]
    counts: NDArray[np.int64]
    rows: pa.Table

    def chosen(self, samples: NDArray[np.int64]) -> _Part:
        """Some of these samples, in the given order."""
        bounds = np.concatenate(([0], np.cumsum(self.counts)))
        rows = reorder(self.rows, sample_rows(bounds, samples))
        return _Part(self.places[samples], self.counts[samples], rows)

    def within(self, first: int, stop: int) -> _Part:
        """The samples whose places are in a range, of samples in the order of their places."""
        low, high = np.searchsorted(self.places, (first, stop)).tolist()
        before, count = int(self.counts[:low].sum()), int(self.counts[low:high].sum())
        return _Part(self.places[low:high], self.counts[low:high], self.rows.slice(before, count))


def _sorted(unite: Unite, files: Sequence[FileEntry], parts: Sequence[_Part]) -> _Part:
    """The samples of all parts, at least one, in the order of their places."""
    places, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("places", "counts"))
    whole = _Part(places, counts, _united(unite, files, [part.rows for part in parts]))
    if bool((places[1:] >= places[:-1]).all()):
        return whole
    return _Part(places, counts, whole.rows.combine_chunks()).chosen(np.argsort(places, kind="stable"))


def _by_bucket(whole: _Part, bucket: int, buckets: int) -> Iterator[tuple[int, _Part]]:
    """Yield the number and the samples, in the order of their places, of each bucket that has any."""
    order = np.argsort(whole.places, kind="stable")
    cuts = np.searchsorted(whole.places, np.arange(buckets + 1) * bucket, sorter=order)
    step = -(-buckets // _FLUSH_PARTS)
    for first in range(0, buckets, step):
        stop = min(first + step, buckets)
        some = whole.chosen(order[cuts[first] : cuts[stop]])
        for number in np.flatnonzero(np.diff(cuts[first : stop + 1])).tolist():
            low = (first + number) * bucket
            yield first + number, some.within(low, low + bucket)


def _united(unite: Unite, files: Sequence[FileEntry], parts: Sequence[pa.Table]) -> pa.Table:
    """One table of rows whose references all name files of one table, which the rows do not hold."""
    if len(parts) == 1:
        return parts[0]
    told = {(each.name, is_ref(each.type)) for part in parts for each in part.schema}
    if len(told) > len({name for name, _ in told}):  # bytes must be read to stand next to bytes
        parts = [part.replace_schema_metadata(with_files(part.schema, files).metadata) for part in parts]
    return unite(parts)


@dataclass(frozen=True, slots=True)
class SpooledOrder:
    """Samples that can be read by ranges of places in their new order.

    Attributes:
        count: number of places.
        block: places of a block.
        sizes: payload and other bytes of each block: conversions cut tasks at blocks.
        view: how rows are taken.
        unite: makes one table of rows of several shards.
        origin: where the samples are in the source.
        files: the files table of all references.
        bucket: places of a bucket; 0 if there are no rows.
        chunks: of the temporary file, a row a run and bucket: bucket, first byte, samples, byte behind.
        folder: of the temporary file.
        held: rows that are in memory.
    """

    count: int
    block: int
    sizes: NDArray[np.int64]
    view: str
    unite: Unite
    origin: Origin
    files: Sequence[FileEntry]
    bucket: int = 0
    chunks: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    folder: str = ""
    held: Sequence[_Part] = ()

    def bounds(self, max_bytes: int) -> list[tuple[int, int, int]]:
        """Return ranges of places of equal size, about so many bytes: first place, place behind, bytes.

        They end at blocks.
        """
        size_at = np.concatenate(([0], np.cumsum(self.sizes)))
        parts = max(round(int(size_at[-1]) / max_bytes), 1)
        cuts = np.searchsorted(size_at, np.arange(parts + 1) * (size_at[-1] / parts))
        cuts = np.unique(np.concatenate((cuts[1:-1], [0, len(self.sizes)])))
        places = np.minimum(cuts * self.block, self.count)
        sizes = size_at[cuts[1:]] - size_at[cuts[:-1]]
        return list(zip(places[:-1].tolist(), places[1:].tolist(), sizes.tolist(), strict=True))

    def batches(self, first: int, stop: int, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the samples of a range of places in order, payload as references where the source has them.

        No batch holds two samples of one id. Peak memory: twice 24 MB, or the largest sample.
        """
        for low, high in self._windows(first, stop):
            parts = [part for part in self._parts(low, high) if len(part.places)]
            if not parts:
                continue
            whole = _sorted(self.unite, self.files, parts)
            del parts
            yield from self._cut(whole, max_rows, max_bytes)
            del whole

    def _windows(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of places of which the rows fit into memory."""
        if not self.bucket:
            yield first, stop
            return
        sizes = np.bincount(self.chunks[:, 0], self.chunks[:, 3] - self.chunks[:, 1])
        for bucket in range(first // self.bucket, -(-stop // self.bucket)):
            low, high = max(first, bucket * self.bucket), min(stop, (bucket + 1) * self.bucket)
            pieces = -(-int(sizes[bucket]) // HELD_BYTES) if bucket < len(sizes) else 1
            cuts = np.unique(np.linspace(low, high, max(pieces, 1) + 1).astype(np.int64))
            yield from pairwise(cuts.tolist())

    def _parts(self, first: int, stop: int) -> Iterator[_Part]:
        yield from (part.within(first, stop) for part in self.held)
        if not len(self.chunks) or first == stop:
            return
        with open(os.path.join(self.folder, _ROWS), "rb") as file:
            for _, begin, samples, end in self.chunks[self.chunks[:, 0] == first // self.bucket].tolist():
                file.seek(begin)
                numbers = np.frombuffer(file.read(16 * samples), np.int64)
                body = pa.py_buffer(file.read(end - begin - 16 * samples))
                rows = with_refs(pa.ipc.open_stream(body).read_all())
                yield _Part(numbers[:samples], numbers[samples:], rows).within(first, stop)

    def _cut(self, part: _Part, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        whole = part.rows.combine_chunks()
        [batch] = whole.to_batches() or [pa.record_batch([c.combine_chunks() for c in whole.columns], whole.schema)]
        starts = np.cumsum(part.counts) - part.counts
        cuts = split_rows(starts, row_bytes(batch), max_bytes=max_bytes, max_rows=max_rows)
        for low, high in pairwise(cuts.tolist()):
            piece = batch.slice(low, high - low)
            for first, stop in pairwise(
                row_layout(self.view).distinct_bounds(piece, starts[(starts >= low) & (starts < high)] - low)
            ):
                yield self._naming_files(piece.slice(first, stop - first))

    def _naming_files(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with a files table of the files that its references name."""
        names = [i for i, kind in enumerate(batch.schema.types) if is_ref(kind)]
        if not names or not self.files:
            return batch
        refs = [unpack(batch.column(i)) for i in names]
        used = np.unique(np.concatenate([each.file[each.valid] for each in refs]))
        numbers = np.zeros(len(self.files), np.int32)
        numbers[used] = np.arange(len(used))
        columns = list(batch.columns)
        for i in names:
            columns[i] = renumbered(columns[i], numbers)
        schema = with_files(batch.schema, [self.files[i] for i in used.tolist()])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def save(self) -> None:
        """Write next to the temporary file what other processes need to read it."""
        with writing(self.folder):
            np.save(os.path.join(self.folder, _NUMBERS), np.asarray(self.origin.numbers, np.int64))
            np.savez(
                os.path.join(self.folder, _FACTS), sizes=self.sizes, chunks=self.chunks,
                numbers=[self.count, self.block, self.bucket], ends=self.origin.ends,
                paths=np.frombuffer(orjson.dumps([*map(self.origin.path_of, range(len(self.origin.ends)))]), np.uint8),
                files=np.frombuffer(with_files(pa.schema([]), self.files).serialize(), np.uint8),
            )  # fmt: skip

    @classmethod
    def opened(cls, folder: str, view: str, unite: Unite) -> Self:
        """Open what another process has saved."""
        with np.load(os.path.join(folder, _FACTS)) as facts:
            count, block, bucket = facts["numbers"].tolist()
            files = files_of(pa.ipc.read_schema(pa.py_buffer(facts["files"].tobytes())))
            numbers = np.load(os.path.join(folder, _NUMBERS), mmap_mode="r")
            paths = orjson.loads(facts["paths"].tobytes())
            origin = Origin(numbers, facts["ends"], paths.__getitem__, view)
            return cls(count, block, facts["sizes"], view, unite, origin, files, bucket, facts["chunks"], folder)


class Spool:
    """Takes rows in the order of the source, each sample with its place in the new order.

    Args:
        count: number of places.
        view: how rows are taken.
        unite: makes one table of rows of several shards.
        origin: where the samples are in the source, by their places.
        to_file: put all rows into the temporary file, for other processes.

    Leaving a `with` removes the temporary file.
    """

    def __init__(self, count: int, view: str, unite: Unite, origin: Origin, *, to_file: bool = False) -> None:
        self._count, self._view, self._unite, self._to_file = count, view, unite, to_file
        self._origin = origin
        self._block = max(-(-count // _MOST_BLOCKS), 1)
        self._sizes = np.zeros(-(-count // self._block), np.int64)
        self._files: dict[FileEntry, int] = {}
        self._numbers: dict[bytes, NDArray[np.int32]] = {}
        self._held: list[_Part] = []
        self._size = self._bucket = 0
        self._chunks: list[tuple[int, int, int, int]] = []
        self._stack, self._folder = ExitStack(), ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, batch: pa.RecordBatch, starts: NDArray[np.int64], places: NDArray[np.int64]) -> None:
        """Take samples: their rows, the first row of each, and their places."""
        if not len(places):
            return
        sizes = np.add.reduceat(row_bytes(batch), starts)
        np.add.at(self._sizes, places // self._block, sizes)
        counts = np.diff(np.append(starts, batch.num_rows)).astype(np.int64)
        rows = pa.Table.from_batches([self._renumbered(without_views(batch))])
        self._held.append(_Part(places, counts, rows))
        self._size += rows.nbytes
        if self._size >= HELD_BYTES:
            self._flush()

    def finish(self) -> SpooledOrder:
        """Return the samples in their new order; they can be read while this spool is open."""
        if self._chunks or self._to_file:
            self._flush()
        elif self._held:
            # Batches end at buckets in memory too: they are the same, and so are the pages of Parquet, in workers.
            self._bucket = self._bucket_of(sum(len(part.places) for part in self._held))
            self._held = [_sorted(self._unite, [*self._files], self._held)]
        chunks = np.array(self._chunks, np.int64).reshape(-1, 4)
        made = SpooledOrder(
            self._count, self._block, self._sizes, self._view, self._unite, self._origin, list(self._files),
            self._bucket, chunks, self._folder, self._held,
        )  # fmt: skip
        if self._to_file:
            made.save()
        return made

    def _renumbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without a files table of their own, and without the names of their files."""
        schema = without_source(batch.schema)
        if not any(is_ref(kind) for kind in schema.types):
            return batch.replace_schema_metadata(schema.metadata)
        table = (batch.schema.metadata or {}).get(b"lading.files", b"")
        if table not in self._numbers:
            entries = files_of(batch.schema)
            numbers = [self._files.setdefault(entry, len(self._files)) for entry in entries]
            self._numbers = {table: np.array(numbers, np.int32)}
        numbers_of = self._numbers[table]
        columns = [renumbered(c, numbers_of) if is_ref(c.type) and len(numbers_of) else c for c in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _flush(self) -> None:
        """Append the rows that are held to the temporary file, sorted, a chunk a bucket."""
        if not self._folder:
            self._folder = self._stack.enter_context(temporary_folder())
        held, self._held = self._held, []
        if not held and self._chunks:
            return
        if not self._bucket:
            self._bucket = self._bucket_of(sum(len(part.places) for part in held))
        with writing(self._folder), open(os.path.join(self._folder, _ROWS), "ab") as file:
            if not held:  # readers want the file
                return
            places, counts = (np.concatenate([getattr(part, name) for part in held]) for name in ("places", "counts"))
            rows = _united(self._unite, [*self._files], [part.rows for part in held])
            del held
            whole = _Part(places, counts, rows.combine_chunks())
            del rows
            release_freed()
            for bucket, part in _by_bucket(whole, self._bucket, -(-self._count // self._bucket)):
                begin = file.tell()
                file.write(part.places.tobytes() + part.counts.tobytes())
                with pa.ipc.new_stream(file, part.rows.schema) as stream:
                    stream.write_table(part.rows)
                self._chunks.append((bucket, begin, len(part.places), file.tell()))
        self._size = 0
        del whole, part
        release_freed()

    def _bucket_of(self, samples: int) -> int:
        """Places of a bucket: its rows fit into memory, and its payload is no more than that of a usual task."""
        held, payload = (size * self._count // max(samples, 1) for size in (self._size, int(self._sizes.sum())))
        buckets = min(max(held // _BUCKET_BYTES, payload // _BUCKET_PAYLOAD, 1), _MOST_BUCKETS)
        return max(-(-self._count // buckets), 1)
