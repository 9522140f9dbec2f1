"""Read one Arrow file or stream as a shard: rows in order, at random, one by one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from operator import index as as_int
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow import views as binary_views
from lading._core.arrow.batches import copied, with_columns
from lading._core.arrow.casts import without_null_values
from lading._core.arrow.column_slices import ColumnSlices, ColumnValues, as_array
from lading._core.arrow.ipc import ROWS
from lading._core.arrow.references import FileEntry, is_ref, with_files
from lading._core.features.huggingface import HUGGINGFACE_KEY, unwrapped
from lading._core.features.items import split_rows
from lading._core.features.types import Feature, feature_of
from lading._core.formats.arrow.assets import Assets, filled_schema, has_assets, refuse_nested
from lading._core.formats.arrow.blocks import ArrowFile, find_blocks
from lading._core.formats.arrow.decode import KEPT_BYTES, Decoder, Loaded, check_text, damage
from lading._core.formats.arrow.gather import gather_columns
from lading._core.formats.arrow.index import parse_entry
from lading._core.formats.arrow.large import LARGE_BYTES, is_large, read_large, references, touched_bytes
from lading._core.formats.arrow.listed import unlisted_messages
from lading._core.formats.arrow.places import Places, find_places
from lading._core.formats.arrow.rows import MISPLACED, PlacedRow, Row, placed_rows, row_reader
from lading._core.formats.arrow.scattered import may_be_large, rows_of
from lading._core.formats.arrow.schema import given_schema, schema_hash
from lading._core.formats.base import DEFAULT_SCAN, Scan, ShardFile, ShardReader, Units
from lading._core.formats.format import ROOTS
from lading._core.formats.refused import Refusal, first_of_each, refuse_columns, unread_columns
from lading.errors import LadingError, ShortRead, SidecarMismatch, UsageError, errors_at

__all__ = ["ArrowReader", "ReadOptions", "count_rows"]

_SMALL_BYTES = 64 << 10
"""Of a local file that is read at once where only its heads are wanted: each costs as much as 16 KB of values."""
_RELEASE_BYTES, _LATE_BYTES = 16 << 20, 64 << 20
"""Pages are released after each record batch. Each time this many bytes were read, the pages of the same amount before
are released again: a consumer that merges batches touches the last ones late."""
_TOUCH_BYTES = 2 << 20
"""Bytes of a map that one touch may read into memory."""
_REPORTED_BYTES = 1 << 20
_READER_BYTES, _HEAD_BYTES = 16 << 10, 256
"""Memory of a reader, and of a column of a record batch in it, about."""
_RUN_ROWS = 256
_BATCHES_TOGETHER = 64
"""Record batches of a remote file whose heads are read together."""
_TOGETHER_BYTES = 16 << 20
"""Of record batches of a remote file that are requested at once, to read some of their rows."""
_MOST_OF = 0.9
"""Share of the rows of record batches of a remote file for which all of the batches are read."""
_UNLISTED = "rows of record batches that the footer does not list, left out"
_LEFT = "videos in files of their own, left there (load_assets=true reads them)"

_INDEX_SCHEMA = pa.schema(
    [
        ("record_batch", pa.int32()),
        ("first_row", pa.int64()),
        ("num_rows", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How an Arrow file or stream is read.

    Attributes:
        mmap: Map local files. False reads them through `pread`, as jobs do.
        media: `stored`; or `bytes`: media that datasets stores as a struct of bytes and path, and videos of a cache,
            come as bytes alone, as in other formats.
        load_assets: Read the bytes of videos that stable-datasets stores as files next to its shards (`_assets/video`).
            convert and salvage do so unless this is false.
        roots: Further folders that `_assets`, `_assets/video` and the files in it may link to.
        unended: Accept a stream without its end mark. Such a stream may be truncated.
    """

    mmap: bool = True
    media: str = "stored"
    load_assets: bool = False
    roots: str | Sequence[str] = field(default=(), metadata=ROOTS)
    unended: bool = False

    def __post_init__(self) -> None:
        """Accept a single root as a list of one root, not of its letters."""
        if isinstance(self.roots, str):
            object.__setattr__(self, "roots", (self.roots,))


def count_rows(source: ShardFile, options: ReadOptions) -> int:
    """Return the rows of a file or stream by the heads of its messages alone. Raises as `find_blocks`."""
    size = 0 if source.info is None else source.info.size_bytes
    data = pa.py_buffer(source.get_ranges([(0, size)])[0]) if 0 < size <= _SMALL_BYTES else None
    body = ArrowFile(source, mmap=False, data=data)
    try:
        ends = find_blocks(body, unended=options.unended).row_ends()
    finally:
        body.close()
    return ends[-1] if ends else 0


@lru_cache(maxsize=2)
def _columns(
    stored: pa.Schema, _message: bytes, features: str, media: str
) -> tuple[pa.Schema, Sequence[Feature], Mapping[str, Refusal]]:
    """Return the schema of batches, its features, and the columns that cannot be read.

    Shards of a dataset have equal schemas in most cases. The message of the schema tells those apart that differ in
    their metadata. Raises as `given_schema`.
    """
    schema = given_schema(stored, features, media=media)
    return schema, [feature_of(field) for field in schema], unread_columns(stored)


class ArrowReader(ShardReader):
    """An open Arrow file or stream.

    Types are the `plain_type`s of the file's own, because pyarrow has few kernels for views and cannot join every
    dictionary. For a mapped file without compression, nothing else is copied, and values are views of the map.

    Attributes:
        counts: videos whose bytes are in external files and were not requested; rows that a footer does not list.
    """

    slices_columns = True
    kept_bytes = KEPT_BYTES

    def __init__(self, source: ShardFile, options: ReadOptions) -> None:
        self._path, self._filtered = source.path, source.row_filter is not None
        self._span = source.span
        self._body = ArrowFile(source, mmap=options.mmap)
        self._blocks = find_blocks(self._body, unended=options.unended)
        self._decoder = Decoder(self._blocks)
        stored = self._decoder.schema
        with errors_at(file=source.path), damage(source.path):
            entry = parse_entry(source.entry)
            self._schema, self._features, self._refused = _columns(
                stored, self._blocks.schema, entry.features, options.media
            )
        if entry.schema and entry.schema != schema_hash(stored):
            raise SidecarMismatch(
                "the columns differ from those of the dataset's first shard", file=source.path,
                found=", ".join(f"{f.name}: {f.type}" for f in stored)[:500],
            )  # fmt: skip
        if options.load_assets:
            refuse_nested(self._schema)
        videos = Assets(source, stored, options.roots) if has_assets(stored) else None
        if options.load_assets:
            self._schema = filled_schema(self._schema)
        self._assets = videos if options.load_assets else None
        self._left_alone = None if options.load_assets else videos
        self._all = tuple(range(len(self._schema)))
        self._ends: list[int] | None = None
        self._touched = self._cost = 0
        self._near: tuple[int, int, Row] = (0, 0, _no_row)
        self._read_to = 0
        self._placing = Lock()
        self._places: tuple[Places | None] | None = None
        self._is_plain: bool | None = None
        self._placed: _Placed | None = None

    def close(self) -> None:
        """Close the map; returned data stay valid."""
        self._places, self._placed, self._near = (None,), None, (0, 0, _no_row)
        self._decoder.close()
        self._body.close()

    @property
    def held_bytes(self) -> int | None:
        """Return the memory of the places of values, if all columns are found by places; of heads of a remote file."""
        if self._body.near_bytes:
            return _READER_BYTES + self._body.near_bytes
        places = None if self._places is None else self._places[0]
        if places is None or len(places.columns) < len(self._schema):
            return None
        return _READER_BYTES + _HEAD_BYTES * len(places.rows) * len(places.columns)

    def schema(self) -> pa.Schema:
        """Return the schema of the batches, from the head of the file."""
        return first_of_each(self._schema) if self._refused else self._schema

    @property
    def read_share(self) -> float | None:
        """Return the share of a remote stream that is read by the latest batch: to count its rows would take a walk."""
        is_remote_stream = self._blocks.is_stream and self._body.file is None and self._body.size_bytes
        return self._read_to / self._body.size_bytes if is_remote_stream else None

    def num_rows(self) -> int:
        """Return the number of rows: the heads of all messages are read, once."""
        if self._span is not None:
            return self._span.num_rows
        ends = self._row_ends()
        return ends[-1] if ends else 0

    def index(self) -> pa.Table:
        """Return a row a record batch.

        `record_batch`, `first_row`, `num_rows`; `offset` and `length` of its message.
        """
        ends = np.array(self._row_ends(), np.int64)
        rows = np.diff(ends, prepend=0)
        places = np.array([(b.offset, b.size_bytes) for b in self._blocks.batches], np.int64).reshape(-1, 2)
        columns = [np.arange(len(rows)), ends - rows, rows, places[:, 0], places[:, 1]]
        arrays = [pa.array(column).cast(field.type) for column, field in zip(columns, _INDEX_SCHEMA, strict=True)]
        return pa.table(arrays, schema=_INDEX_SCHEMA).filter(pa.array(rows > 0))

    def units(self) -> Units | None:
        """Return the record batches, by the heads of all messages.

        None for a remote stream, whose heads are far from each other, and if a footer lists them in another order.
        """
        if self._blocks.is_stream and self._body.file is None:
            return None
        index = self.index()
        row, rows, offset, length = (index[name].to_numpy() for name in ("first_row", "num_rows", "offset", "length"))
        if not len(index) or bool((np.diff(offset) <= 0).any()):
            return None
        self._count_unlisted()
        return Units(np.append(row, row[-1] + rows[-1]), np.append(offset, offset[-1] + length[-1]))

    @property
    def is_huggingface(self) -> bool:
        """Return whether this is a stream with the features of Hugging Face's datasets."""
        return self._blocks.is_stream and HUGGINGFACE_KEY in (self._decoder.schema.metadata or {})

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return rows by ordinal; only record batches with such rows are read.

        A `string` or `binary` column of more than 2 GiB may come as its large variant. Peak memory: twice the requested
        rows, and one record batch if it cannot be mapped.

        Raises:
            UsageError: an ordinal is outside the shard.
            CorruptShard: a record batch is damaged.
        """
        chosen = self._chosen(scan.columns)
        schema = self._subschema(chosen)
        ends = np.array(self._row_ends(), np.int64)
        wanted = np.arange(self.num_rows()) if rows is None else np.asarray(rows, np.int64)
        self._refuse_outside(wanted)
        found = self._gathered(wanted, chosen)
        if found is not None:
            return found
        number = np.searchsorted(ends, wanted, "right")
        order = None if bool((np.diff(number) >= 0).all()) else np.argsort(number, kind="stable")
        sorted_number, sorted_rows = (number, wanted) if order is None else (number[order], wanted[order])
        parts = self._by_batch(sorted_number, sorted_rows, chosen)
        if not chosen:
            return pa.table({"none": pa.nulls(len(wanted))}).select([])
        table = pa.Table.from_batches(parts, schema)
        if order is None:
            return table
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return binary_views.reorder(table, place)

    def rows_at_once(self) -> int:
        """Return 1 for a remote file of which large values are read alone, else the rows of a record batch."""
        size = sum(block.body_bytes for block in self._blocks.batches)
        is_large = size >= LARGE_BYTES * max(self.num_rows(), 1)
        return 1 if is_large and self._scatters(self._all) else super().rows_at_once()

    def rows_of_batch(self) -> int:
        """Return the rows of a record batch, if large values are read alone."""
        return super().rows_at_once() if self.rows_at_once() == 1 else 0

    def _scatters(self, chosen: Sequence[int]) -> bool:
        """Return whether rows of a remote file are read without the large values of others."""
        kinds = [self._decoder.schema.field(i).type for i in chosen]
        whole = self._body.file is not None or self._assets is not None or self._decoder.has_dictionaries
        if whole or not any(map(may_be_large, kinds)):
            return False
        if self._is_plain is None:
            self._is_plain = self._blocks.heads() is not None
        return self._is_plain

    def column_slices(
        self, rows: NDArray[np.int64], scan: Scan = DEFAULT_SCAN, *, hold: bool = True
    ) -> ColumnSlices | None:
        """Return values of rows in place, in the given order; None if that saves nothing.

        Columns that are not plain (`_core.formats.arrow.places`) are read. With `views` all bytes stay in the map, for
        callers that use them there. With `hold=False` the result does not keep the file open.

        Raises:
            UsageError, CorruptShard: as `read`.
        """
        chosen = self._chosen(scan.columns)
        self._refuse_outside(rows)
        found = self._plain_slices(rows, chosen, views=scan.views, hold=hold)
        if found is None:
            return None
        rest = [self._schema.field(i).name for i in chosen if self._schema.field(i).name not in found]
        read = self.read(rows, Scan(rest)) if rest else None
        return ColumnSlices(self._subschema(chosen), found, read if hold or read is None else copied(read))

    def _plain_slices(
        self, rows: NDArray[np.int64], chosen: tuple[int, ...], *, views: bool = False, hold: bool = True
    ) -> dict[str, ColumnValues] | None:
        """Return values of the plain columns; None if there are none, or rows must be read batch by batch."""
        places = self._find_places()
        plain = [] if places is None else [i for i in chosen if i in places.columns]
        if places is None or not plain or _are_runs(rows):
            return None
        ends = places.ends
        number = np.searchsorted(ends, rows, "right")
        inside = rows - np.append(0, ends)[number]
        columns = [places.columns[i] for i in plain]
        found = gather_columns(self._body, columns, number, inside, views=views, hold=hold)
        if found is None:
            return None
        return {self._schema.field(i).name: column for i, column in zip(plain, found, strict=True)}

    def _gathered(self, rows: NDArray[np.int64], chosen: tuple[int, ...]) -> pa.Table | None:
        """Return rows of plain columns only; None if they must be read batch by batch."""
        places = self._find_places()
        if places is None or any(i not in places.columns for i in chosen):
            return None
        found = self._plain_slices(rows, chosen)
        if found is None:
            return None
        schema = self._subschema(chosen)
        try:
            columns = [as_array(found[field.name], field.type) for field in schema]
            for column in columns:
                check_text(column)
        except (pa.ArrowInvalid, ShortRead):
            return None
        kinds = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
        return pa.table(columns, pa.schema(kinds, metadata=schema.metadata))

    def _find_places(self) -> Places | None:
        """Return the places of values in a mapped file, for columns that are returned as stored."""
        with self._placing:
            if self._places is None:
                mapped = self._body.mapped is not None and self._assets is None
                found = find_places(self._blocks, self._decoder.schema) if mapped else None
                if found is not None:
                    kinds = self._schema.types
                    given = {i: column for i, column in found.columns.items() if column.kind == kinds[i]}
                    found = replace(found, columns=given)
                self._places = (found,)
            return self._places[0]

    def _by_batch(
        self, number: NDArray[np.int64], rows: NDArray[np.int64], chosen: tuple[int, ...]
    ) -> list[pa.RecordBatch]:
        schema = self._subschema(chosen)
        scattered = self._scattered(number, rows, chosen)
        if scattered is not None:
            return [self._given(batch, schema, at) for at, batch in scattered]
        return [
            self._given(_take(batch, mine, self._body), schema, at)
            for at, batch, mine in self._touched_batches(number, rows, chosen)
        ]

    def _scattered(
        self, number: NDArray[np.int64], rows: NDArray[np.int64], chosen: tuple[int, ...]
    ) -> list[tuple[int, pa.RecordBatch]] | None:
        """Return the number of each record batch with requested rows, and these rows; None if it is read as a whole."""
        if not self._scatters(chosen):
            return None
        left = [may_be_large(self._decoder.schema.field(i).type) for i in chosen]
        touched, begins, counts = np.unique(number, return_index=True, return_counts=True)
        ends = np.array(self._row_ends(), np.int64)
        first = np.append(0, ends)[touched]
        many = int(counts.sum()) >= _MOST_OF * int((ends[touched] - first).sum())
        if many or not self._decoder.unread(touched.tolist(), chosen):
            return None
        bounds = np.append(begins, len(number)).tolist()
        wanted = [(at, rows[i:j] - start) for at, start, (i, j) in zip(
            touched.tolist(), first.tolist(), pairwise(bounds), strict=True
        )]  # fmt: skip
        found = rows_of(self._decoder.load_scattered(wanted, chosen, left), self._body)
        return [*zip(touched.tolist(), found, strict=True)]

    def _touched_batches(
        self, number: NDArray[np.int64], rows: NDArray[np.int64], chosen: tuple[int, ...]
    ) -> Iterator[tuple[int, pa.RecordBatch, NDArray[np.int64]]]:
        """Yield the number of each record batch with requested rows, the batch, and the rows' numbers in it."""
        ends = self._row_ends()
        touched, begins = np.unique(number, return_index=True)
        parts = [*zip(touched.tolist(), pairwise(np.append(begins, len(number)).tolist()), strict=True)]
        sizes = np.array([self._blocks.batches[at].size_bytes for at, _ in parts], np.int64)
        for first, last in pairwise(split_rows(np.arange(len(parts)), sizes, max_bytes=_TOGETHER_BYTES).tolist()):
            unread = self._decoder.unread([at for at, _ in parts[first:last]], chosen)
            with self._body.expecting([(block.offset, block.size_bytes) for block in unread]):
                for at, (begin, stop) in parts[first:last]:
                    batch = self._decoder.load(at, chosen).batch
                    yield at, batch, rows[begin:stop] - (ends[at] - batch.num_rows)
                    self._body.touched(min(touched_bytes(batch, self._body), (stop - begin) * _TOUCH_BYTES))

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, by record batch, cut at the limits; columns that the file lacks are left out.

        With `views`, large values of a local file come as references, other payload as `binary_view` of the same
        bytes. So they do from a remote file whose rows are filtered. Peak memory: nothing for a mapped file without
        compression, and for an open one what is not a reference; else one record batch, the smallest unit that can be
        fetched or decompressed; and 32 MB for a remote file.

        Raises:
            CorruptShard: a message is damaged.
            LimitExceeded: it declares more than it can have.
        """
        chosen = self._chosen(scan.columns)
        if self._span is None:
            self._count_unlisted()
            yield from self._batches(chosen, scan, 0)
        else:
            first = 0
            while self._blocks.find(first) and self._blocks.batches[first].offset < self._span.start:
                first += 1
            yield from self._span.of(self._batches(chosen, scan, first))
        self._body.read_singly()

    def _batches(self, chosen: tuple[int, ...], scan: Scan, first: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all record batches from the first one on."""
        schema, number, released = self._subschema(chosen), first, 0
        in_part = self._is_read_in_part(schema)
        views = scan.views or (in_part and self._filtered)
        left = [self._assets is None and views and binary_views.is_bytes(kind) for kind in schema.types]
        self._read_next(number, first, in_part=in_part)
        while self._blocks.find(number):
            block = self._blocks.batches[number]
            found = self._decoder.load_partly(number, chosen, left)
            if found is None and in_part:
                in_part = False
                self._read_next(number, first, in_part=False)
            batch, unread = found or (self._decoder.load(number, chosen, keep=False).batch, [])
            self._read_to = block.offset + block.size_bytes
            for part in self._cut(batch, scan.max_rows, scan.max_bytes):
                given = self._given(part, schema, number)
                if self._left_alone is not None:
                    self.counts[_LEFT] += self._left_alone.count(part)
                yield self._to_references(given, unread) if views else given
                if block.size_bytes >= _RELEASE_BYTES:
                    self._release(block.offset, block.size_bytes)
            self._release(block.offset, block.size_bytes)
            end = block.offset + block.size_bytes
            if end - released >= _RELEASE_BYTES:
                late = max(released - _LATE_BYTES, 0)
                self._release(late, end - late)
                released = end
            number += 1
            self._read_next(number, first, in_part=in_part)

    def _is_read_in_part(self, schema: pa.Schema) -> bool:
        """Return whether a pass reads these columns of a remote file in part: their payload is not wanted at once."""
        some = len(schema) < len(self._schema) and not any(map(_may_be_payload, schema.types))
        return self._body.file is None and self._assets is None and (self._filtered or some)

    def _read_next(self, number: int, first: int, *, in_part: bool) -> None:
        """Decide how the next record batch of a remote file is read, by a pass over all from the first one on."""
        if self._body.file is not None:
            return
        if not in_part:
            self._body.read_forward()
        elif self._blocks.is_stream:
            self._body.read_in_part()
        elif (number - first) % _BATCHES_TOGETHER == 0:
            self._body.read_in_part(self._blocks.batches[number : number + _BATCHES_TOGETHER])

    def _count_unlisted(self) -> None:
        if not self._blocks.is_stream:
            rows = sum(message.rows for _, message in unlisted_messages(self._blocks) if message.kind == ROWS)
            self.counts.update({_UNLISTED: rows} if rows else {})

    def sample_getter(self) -> Callable[[int], dict[str, Any]]:
        """Return a function that reads a row from the buffers of its values."""
        return self.get_sample

    def get_sample(self, row: int) -> dict[str, Any]:
        """Return one row as `ds[i]` gives it. Raises IndexError."""
        row = as_int(row)  # sums of numpy's small integers would overflow
        placed = self._placed
        if placed is None or placed.times != self._body.times_given_back():
            placed = self._placed = self._place_rows()
        ends, get = placed.ends, placed.get
        if not 0 <= row < ends[-1]:
            raise IndexError(f"sample {row} of {ends[-1]} in {self._path}")
        if get is None:
            return self._row_of_batch(row)
        number = bisect_right(ends, row)
        try:
            return get(number, row - ends[number - 1] if number else row)
        except MISPLACED:
            # Reading the batch reports the problem and its place.
            return self._row_of_batch(row)

    def _place_rows(self) -> _Placed:
        """Return a function from row to values by their places, if possible."""
        self._chosen(None)
        times = self._body.times_given_back()  # before anything is counted as touched
        ends, places = self._row_ends() or [0], self._find_places()
        get = None if places is None else placed_rows(self._body, places, self._schema, self._features)
        return _Placed(times, ends, get)

    def _row_of_batch(self, row: int) -> dict[str, Any]:
        mapped = self._body.open_map()
        if mapped is not None:
            mapped.check()
        first, stop, reader = self._near
        if not first <= row < stop:
            first, _, reader = self._near = self._row_reader(row)
        self._touched += self._cost
        if self._touched >= _REPORTED_BYTES:
            self._body.touched(self._touched)
            self._touched = 0
        try:
            return reader(row - first)
        except LadingError as error:
            raise error.at(file=self._path, row=row) from None

    def _row_reader(self, row: int) -> tuple[int, int, Row]:
        """Return the first row of a record batch, the row after its last, and a function that returns its rows."""
        ends = self._row_ends()
        number = bisect_right(ends, row)
        loaded: Loaded = self._decoder.load(number, self._all)
        batch, stop = loaded.batch, ends[number]
        first = stop - batch.num_rows
        self._cost = loaded.touched_bytes = loaded.touched_bytes or min(touched_bytes(batch, self._body), _TOUCH_BYTES)
        if loaded.row is None:
            with damage(self._path), errors_at(file=self._path):
                if self._assets is None:
                    loaded.row = self._plain_reader(batch)
                else:
                    loaded.row = self._assets.row_reader(batch, self._plain_reader, self._features)
        return first, stop, loaded.row

    def _plain_reader(self, batch: pa.RecordBatch) -> Row:
        columns = [
            unwrapped(column, field.type) if pa.types.is_nested(column.type) else column
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        plain = pa.RecordBatch.from_arrays(columns, names=self._schema.names)
        return row_reader(plain, self._features, self._body)

    def _row_ends(self) -> list[int]:
        """Return for each record batch the number of rows in it and all before."""
        if self._ends is None:
            self._ends = self._blocks.row_ends()
        return self._ends

    def _chosen(self, columns: Sequence[str] | None) -> tuple[int, ...]:
        """Return columns by number, in the given order, once each. Raises the error of one that cannot be read."""
        refuse_columns(self._refused, columns, self._schema.names, self._path)
        if columns is None:
            return self._all
        return tuple(dict.fromkeys(i for name in columns for i in self._schema.get_all_field_indices(name)))

    def _subschema(self, chosen: Sequence[int]) -> pa.Schema:
        if chosen == self._all:
            return self._schema
        return pa.schema([self._schema.field(i) for i in chosen], metadata=self._schema.metadata)

    def _refuse_outside(self, rows: NDArray[np.int64]) -> None:
        count = self.num_rows()
        outside = np.flatnonzero((rows < 0) | (rows >= count))
        if len(outside):
            raise UsageError("no such row", file=self._path, expected=f"0 to {count - 1}", found=int(rows[outside[0]]))

    def _cut(self, batch: pa.RecordBatch, max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows in parts within the limits; nothing for zero rows."""
        if not batch.num_rows:
            return
        if batch.num_rows == 1:  # 60,000 such batches took 2 s here
            yield batch
            return
        sizes = binary_views.row_bytes(batch)
        if self._assets is not None:
            sizes = sizes + self._assets.sizes(batch)
        bounds = split_rows(np.arange(len(sizes)), sizes, max_rows=max_rows, max_bytes=max_bytes).tolist()
        for first, stop in pairwise(bounds):
            yield batch if stop - first == batch.num_rows else batch.slice(first, stop - first)

    def _given(self, batch: pa.RecordBatch, schema: pa.Schema, number: int) -> pa.RecordBatch:
        """Return rows in the types of the schema, text checked, external files read on demand."""
        if not len(schema):
            return batch
        offset, columns = self._blocks.batches[number].offset, []
        for column, name in zip(batch.columns, schema.names, strict=True):
            with errors_at(file=self._path, column=name), damage(self._path, offset, name):
                check_text(column)
        filled = batch if self._assets is None else self._assets.filled(batch)
        for column, name, kind in zip(filled.columns, schema.names, schema.types, strict=True):
            with errors_at(file=self._path, column=name), damage(self._path, offset, name):
                columns.append(unwrapped(without_null_values(column), kind))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _to_references(self, batch: pa.RecordBatch, unread: Sequence[bool]) -> pa.RecordBatch:
        """Return the rows with large values of a local file as references, other payload as views.

        Args:
            batch: the rows.
            unread: of which columns large values were not read, so that they can be nothing but references.
        """
        lighter = {}
        for i, column in enumerate(batch.columns):
            if is_large(column, self._body):
                lighter[i] = references(column, np.arange(len(column)), self._body)
            elif binary_views.is_bytes(column.type):
                lighter[i] = binary_views.share(column)
        batch = with_columns(batch, lighter)
        assert all(is_ref(kind) for kind, left in zip(batch.schema.types, unread, strict=bool(unread)) if left)
        return batch.replace_schema_metadata(self._named(batch.schema).metadata)

    def _named(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema that names this file, for references."""
        return with_files(schema, [FileEntry(self._path, "", self._body.size_bytes, "")])

    def _release(self, offset: int, length: int) -> None:
        if self._body.mapped is not None:
            self._body.mapped.release(offset, offset + length)


@dataclass(frozen=True, slots=True)
class _Placed:
    """How one row is found.

    Attributes:
        times: number of page releases when touching rows was allowed.
        ends: for each record batch, the number of rows in it and all before.
        get: function that returns a row by its places; None if its batch must be opened.
    """

    times: int
    ends: list[int]
    get: PlacedRow | None


def _may_be_payload(kind: pa.DataType) -> bool:
    return binary_views.is_bytes(kind) or pa.types.is_nested(kind)


def _no_row(row: int) -> dict[str, Any]:
    raise IndexError(row)


def _are_runs(rows: NDArray[np.int64]) -> bool:
    """Return whether most rows are neighbours, which need no copy."""
    return len(rows) >= _RUN_ROWS and len(rows) >= _RUN_ROWS * (1 + int(np.count_nonzero(np.diff(rows) != 1)))


def _take(batch: pa.RecordBatch, rows: NDArray[np.int64], body: ArrowFile) -> pa.RecordBatch:
    """Return rows in the given order; neighbours without a copy."""
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        return batch.slice(int(rows[0]), len(rows))
    if not batch.num_columns:
        return batch.slice(0, 0)
    columns = [
        read_large(c, rows, body) if is_large(c, body) else binary_views.take_values(c, rows) for c in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
