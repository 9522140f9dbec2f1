"""Read a shard of an MDS dataset, of any kind. See `_core.formats.mds.format`.

Kinds differ in how the bytes of a sample become values (`samples` for MDS, `lines` for the split formats). This module
holds what they share: files that may be compressed, offsets of samples, checks, batches.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.byte_ranges import as_view, room_for
from lading._core.arrow.column_slices import ColumnSlices
from lading._core.arrow.references import FileEntry, RefType, is_ref, make_refs, with_files
from lading._core.arrow.views import is_text
from lading._core.codecs import WRAPS, new_hash, unpack_file
from lading._core.features.items import split_rows
from lading._core.formats.base import DEFAULT_SCAN, SampleReader, Scan, ShardFile, Units
from lading._core.formats.mds.index import (
    COMPRESSIONS,
    Config,
    EntryFile,
    MDSEntry,
    meta_name,
    parse_config,
    parse_entry,
    tells_columns,
)
from lading._core.formats.mds.lines import LineLayout, check_line_ends, first_line, line_ends
from lading._core.formats.mds.nulls import marks_of
from lading._core.formats.mds.samples import SampleLayout, StoredSamples
from lading._core.formats.mds.stored_schema import given_field, in_type, is_rearranged, written_schema
from lading._core.storage.fetch import Fetcher
from lading._core.storage.range_reader import RangeReader
from lading._core.storage.traffic import ranges_of
from lading._core.storage.unwrap import unwrapped
from lading.errors import (
    CorruptShard,
    DataError,
    LadingError,
    LimitExceeded,
    NotFound,
    SidecarMismatch,
    UsageError,
    errors_at,
)
from lading.limits import Limits, raised_by

__all__ = ["MdsReader", "ReadOptions", "parse_object", "same_bytes"]

_MAX_REQUEST_BYTES = 64 << 20
_HEAD_BYTES = 1 << 10
"""Of the head of a remote shard, without the places of samples: it is read at once."""
_READER_BYTES = 16 << 10
"""Memory of a reader without the places of samples, about."""
_READ_BYTES = 8 << 10
"""Neighbouring samples with a smaller average size are read together; of others, only what is wanted."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a shard is read.

    Attributes:
        allow_pickle: `ds[i]` unpickles values of `pkl` columns, which runs any code in them. False gives their bytes.
        verify: Check files against the hashes in the index when a shard is opened.
        mmap: Map local files. False reads them through `pread`, as jobs do.
        walk_lines: Find lines of a split format by their line ends, for shards with a damaged or missing `.meta`.
    """

    allow_pickle: bool = False
    verify: bool = False
    mmap: bool = True
    walk_lines: bool = False


@dataclass(frozen=True, slots=True)
class _Listed:
    """The index entry of a file, and how to read it."""

    raw: EntryFile | None
    packed: EntryFile | None
    options: ReadOptions


def _opened(source: ShardFile, path: str, compression: str, listed: _Listed) -> RangeReader:
    """Return the uncompressed bytes of a file, checked against its index entry.

    Raises:
        SidecarMismatch: the size, or with `verify` a hash, differs from the index.
        DataError, StoreError: it cannot be read.
    """
    source = source if path == source.path else replace(source, path=path, info=None)
    if compression:
        reader = RangeReader(source.store, path, data=_unpacked(source, compression, listed))
    else:
        reader = RangeReader(source.store, path, source.info, mmap=listed.options.mmap)
    size = reader.size_bytes
    if listed.raw is not None and size != listed.raw.size_bytes:
        raise SidecarMismatch("the size differs from what the index says", file=path,
                              expected=f"{listed.raw.size_bytes} bytes", found=f"{size} bytes")  # fmt: skip
    if listed.options.verify and listed.raw is not None:
        starts = range(0, size, _MAX_REQUEST_BYTES)
        _compare(path, listed.raw, (reader.read(at, min(_MAX_REQUEST_BYTES, size - at)) for at in starts))
    return reader


def _unpacked(source: ShardFile, compression: str, listed: _Listed) -> pa.Buffer:
    """Return the decompressed bytes of a file."""
    limits = source.limits
    if listed.raw is not None and listed.raw.size_bytes > limits.shard_bytes:
        raise limits.exceeded("shard_bytes", "a compressed shard is too large to be held", file=source.path,
                              found=listed.raw.size_bytes)  # fmt: skip
    source, info = source.pinned()
    [packed] = source.get_ranges([(0, info.size_bytes)])
    if listed.options.verify and listed.packed is not None:
        _compare(source.path, listed.packed, [packed])
    with errors_at(file=source.path):
        if listed.raw is None:
            with raised_by("shard_bytes"):
                return pa.py_buffer(unpack_file(compression, packed, limits.shard_bytes, limits))
        try:
            return pa.py_buffer(unpack_file(compression, packed, listed.raw.size_bytes, limits))
        except LimitExceeded as error:
            if error.advice:  # of the memory that it takes
                raise
            raise SidecarMismatch("the file unpacks to more than the index says", found=error.found,
                                  expected=f"{listed.raw.size_bytes} bytes") from error  # fmt: skip


def _compare(path: str, file: EntryFile, parts: Iterator[pa.Buffer] | Sequence[pa.Buffer]) -> None:
    """Raise SidecarMismatch for bytes whose hash differs from the index."""
    with errors_at(file=path):
        hashes = {name: new_hash(name) for name in file.hashes}
    for part in parts:
        for each in hashes.values():
            each.update(part)
    for name, each in hashes.items():
        if each.hexdigest() != file.hashes[name]:
            raise SidecarMismatch(f"the {name} of the file differs from what the index says", file=path,
                                  expected=file.hashes[name], found=each.hexdigest())  # fmt: skip


class MdsReader(SampleReader):
    """An open shard. Memory: 4 bytes a sample; a compressed shard is decompressed, and held completely.

    Attributes:
        counts: empty, because nothing is left out.
        config: common properties of the samples, from the index or the shard's header.
        raw_bytes: size of the shard's files without compression.
        zip_bytes: size of its compressed files; None if it has none.
        slices_columns: whether the shard is mapped, so that values are found by their places.
        unsafe_columns: columns of pickles.
    """

    kept_bytes = 128 << 20  # as a dataset keeps shards open

    def __init__(self, source: ShardFile, options: ReadOptions) -> None:
        self._source, self._path, self._options = source, source.path, options
        with errors_at(file=source.path):
            entry = parse_entry(source.entry, source.limits) if source.entry else None
        compression = _compression(source.path, entry)
        raw, zipped = (entry.raw, entry.packed) if entry else (None, None)
        walked = options.walk_lines and entry is not None and entry.raw_meta is not None
        self._body = _opened(source, source.path, compression, _Listed(None if walked else raw, zipped, options))
        with errors_at(file=source.path):
            if entry is None and not _is_mds(source.path):
                raise UsageError("a shard of a split format is opened by its index", advice="Open the index.json.")
            self._offset, self.config = self._walked(entry.config) if walked and entry else self._begin(entry)
            self._layout = self._laid_out()
        if source.span is not None:
            self._offset = self._offset[source.span.first_row : source.span.stop_row + 1]
        marks = marks_of(self.config.columns).values()
        self._names = [column.name for column in self.config.columns if column.name not in marks]
        self._written = pa.schema([])
        self._sliced: tuple[Sequence[str] | None, pa.Schema, list[str]] | None = None
        self._place = memoryview(self._offset.data)
        self.raw_bytes, self.zip_bytes = self._sizes(entry, compression)
        self.slices_columns = self._body.mapped is not None and self.config.format == "mds"
        self.unsafe_columns = [column.name for column in self.config.columns if column.encoding == "pkl"]

    def _walked(self, config: Config) -> tuple[NDArray[np.int64], Config]:
        """Return the starts of lines, and the end of the last, by scanning for line ends."""
        check_line_ends(config)
        read, size = self._body.peek, self._body.size_bytes
        place = np.append(0, line_ends(read, size, config.newline.encode()))
        if int(place[-1]) != size:
            raise CorruptShard("the last line has no end", offset=int(place[-1]), found=f"{size} bytes")
        place = place if config.format == "json" else place[1:]
        if not len(place):
            raise CorruptShard("the line of names is missing", offset=0)
        return place.astype(np.uint32), config

    def _begin(self, entry: MDSEntry | None) -> tuple[NDArray[np.int64], Config]:
        """Return the starts of samples, and the end of the last; and the shard's own header."""
        split = entry is not None and entry.raw_meta is not None
        head = _meta(self._source, entry, self._options) if split and entry is not None else self._body
        with errors_at(file=head.path), _advising() if split else nullcontext():
            size = _HEAD_BYTES + (4 * entry.samples if entry is not None else 0)
            with head.expecting([(0, min(size, head.size_bytes))]):
                offset, text = _read_head(head, self._body.size_bytes, self._source.limits, split=split)
            if entry is None:
                return offset, parse_config(parse_object(text) or {}, limits=self._source.limits)
        _check_header(head.path, len(offset) - 1, text, entry, self._source.limits)
        return offset, entry.config

    def header(self) -> tuple[str, int, bytes]:
        """Return the JSON in the shard's header, or in its `.meta`: the file, the offset in it, and the text."""
        entry = parse_entry(self._source.entry, self._source.limits) if self._source.entry else None
        split = entry is not None and entry.raw_meta is not None
        head = _meta(self._source, entry, self._options) if split and entry is not None else self._body
        with errors_at(file=head.path):
            offset, text = _read_head(head, self._body.size_bytes, self._source.limits, split=split)
        return head.path, 4 * (len(offset) + 1), text

    def _sizes(self, entry: MDSEntry | None, compression: str) -> tuple[int, int | None]:
        """Return the bytes of the shard's files, uncompressed and compressed: from the index, else the actual ones."""
        if entry is None:
            packed = self._source.store.head(self._path).size_bytes if compression else None
            return self._body.size_bytes, packed
        raw = entry.raw.size_bytes + (entry.raw_meta.size_bytes if entry.raw_meta else 0)
        meta = entry.packed_meta.size_bytes if entry.packed_meta else 0
        return raw, None if entry.packed is None else entry.packed.size_bytes + meta

    def _laid_out(self) -> SampleLayout | LineLayout:
        """Return the layout of samples. Raises SidecarMismatch if the header line has other names."""
        config = self.config
        if config.format == "mds":
            return SampleLayout(config.columns)
        if config.format != "json":
            found = self._body.read(0, int(self._offset[0]))
            names = first_line(config)
            if bytes(found) != names:
                raise SidecarMismatch("the first line has other names than the index says", offset=0,
                                      expected=repr(names)[:200], found=repr(bytes(found)[:200]))  # fmt: skip
        return LineLayout(config)

    def close(self) -> None:
        """Close the map; existing references and bytes stay valid."""
        self._body.close()

    def as_written(self, rows: pa.Schema, fetcher: Fetcher) -> MdsReader:
        """Give the columns of these rows as they were, from now on: see `_core.formats.mds.stored_schema`."""
        self._written, self._sliced = written_schema(rows), None
        self._layout.as_written(self._written)
        order = {name: i for i, name in enumerate(rows.names)}
        self._names.sort(key=lambda name: order.get(name, len(order)))
        return self

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the places of samples, and of a shard that is held in memory."""
        whole = self._body.whole if self._body.file is None else None
        return _READER_BYTES + self._offset.nbytes + (0 if whole is None else whole.size)

    def rows_at_once(self) -> int:
        """Return 1; of a compressed shard all rows."""
        return 1 if self.zip_bytes is None else self.num_rows()

    def num_rows(self) -> int:
        """Return the number of samples: from the shard's header."""
        return len(self._offset) - 1

    def units(self) -> Units | None:
        """Return the samples, by the shard's header; None for a compressed shard."""
        places = self._offset.astype(np.int64)
        return None if self.zip_bytes is not None else Units(np.arange(len(places)), places)

    def get_sample_data(self, row: int) -> bytes:
        """Return the bytes of a sample.

        Read, not mapped: equally fast, and a file that is cut meanwhile is an error.
        """
        if not 0 <= row < len(self._place) - 1:
            raise IndexError(f"sample {row} of {len(self._place) - 1} in {self._path}")
        start, stop = self._place[row], self._place[row + 1]
        data = self._body.peek(start, stop - start)
        if len(data) != stop - start:
            raise CorruptShard("the file became shorter while it was open", file=self._path, row=row, offset=start,
                               expected=f"{stop - start} bytes", found=len(data))  # fmt: skip
        return data

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        """Return the sample of these bytes, as `ds[i]` gives it."""
        try:
            sample = self._layout.decode(data, allow_pickle=self._options.allow_pickle)
        except LadingError as error:
            raise error.at(file=self._path) from None
        return {name: sample[name] for name in self._names if name in sample} if len(self._written) else sample

    def schema(self) -> pa.Schema:
        """Return the columns in MDS's order: numbers, text, and references to the rest.

        The rest is bytes for a compressed shard, and for a remote one unless its rows are filtered.

        After `as_written`, in the order and types of the written rows.
        """
        return self._schema(None, views=False)

    def _schema(self, columns: Sequence[str] | None, *, views: bool) -> pa.Schema:
        fields = [self._field(name, views=views) for name in self._names if columns is None or name in columns]
        return with_files(pa.schema(fields, metadata=self._written.metadata), self._files())

    def _field(self, name: str, *, views: bool) -> pa.Field:
        refs = self._body.file is not None or (self._source.row_filter is not None and self._body.is_remote)
        own = self._layout.field(name, refs=refs, views=views)
        return given_field(own, self._written.field(name)) if name in self._written.names else own

    def _files(self) -> list[FileEntry]:
        info = self._source.info
        return [FileEntry(self._path, "", self._body.size_bytes, info.version if info else "")]

    def index(self) -> pa.Table:
        """Return the shard as one unit, from its first sample to its last: its own header has the offsets."""
        count = self.num_rows()
        start, stop = self._offset[[0, count]].astype(np.int64)
        schema = with_files(pa.schema([("num_rows", pa.int64()), ("samples", RefType())]), self._files())
        whole = make_refs(np.array([start]), np.array([stop - start]))
        return pa.table([pa.array([count]), whole], schema=schema).slice(0, min(count, 1))

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return samples by ordinal, in the given order. Requests only these samples from a store."""
        wanted = np.arange(self.num_rows()) if rows is None else rows
        schema = self._schema(scan.columns, views=False)
        return pa.Table.from_batches([self._batch(self._part(wanted, schema), schema)])

    def column_slices(
        self, rows: NDArray[np.int64], scan: Scan = DEFAULT_SCAN, *, hold: bool = True
    ) -> ColumnSlices | None:
        """Return values of samples in place, in the given order; None for a shard that is not mapped.

        Raises:
            CorruptShard: as `read`.
        """
        mapped, layout = self._body.mapped, self._layout
        if mapped is None or not isinstance(layout, SampleLayout):
            return None
        asked = None if scan.columns is None else tuple(scan.columns)
        known = self._sliced  # another thread may ask for other columns
        if known is None or known[0] != asked:
            known = self._sliced = (asked, *self._slice_schema(layout, asked))
        _, schema, stored = known
        if not len(schema):
            return None
        with errors_at(file=self._path):
            found = layout.slices(self._part(rows, schema), stored, mapped, views=scan.views and hold)
        rest = [name for name in schema.names if name not in found]
        return ColumnSlices(schema, found, self.read(rows, Scan(rest)) if rest else None)

    def _slice_schema(self, layout: SampleLayout, columns: Sequence[str] | None) -> tuple[pa.Schema, list[str]]:
        """Return the columns of slices, and which of them are found by their places."""
        given, stored = [], []
        for name in (name for name in self._names if columns is None or name in columns):
            own, field = layout.field(name, refs=False, views=False), self._field(name, views=False)
            field = field.with_type(own.type) if is_ref(field.type) else field
            given.append(field)
            same = own.type == field.type and not is_rearranged(own, field)
            if same or (is_text(own.type) and is_text(field.type)):
                stored.append(name)
        return pa.schema(given, metadata=self._written.metadata), stored

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all samples in order. Peak memory: numbers and text of a batch; all of it if nothing is mapped.

        Of a remote shard whole samples are read; but only the wanted columns, and bytes near them, where payload is not
        wanted or rows are filtered.
        """
        schema = self._schema(scan.columns, views=scan.views)
        ends = self._offset.astype(np.int64)
        sizes = ends[1:] - ends[:-1]
        bounds = split_rows(np.arange(len(sizes)), sizes, max_rows=scan.max_rows, max_bytes=scan.max_bytes).tolist()
        for first, stop in pairwise(bounds):
            part = self._part(np.arange(first, stop), schema)
            yield self._batch(part, schema)
            if self._body.mapped is not None:
                self._body.mapped.release(int(part.start[0]), int(part.stop[-1]))

    def _batch(self, part: StoredSamples, schema: pa.Schema) -> pa.RecordBatch:
        with errors_at(file=self._path):
            stored = [self._stored(field) for field in schema]
            found = self._layout.arrays(part, stored)
            arrays = [in_type(column, *fields) for column, *fields in zip(found, schema, stored, strict=True)]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(part.rows), pa.struct([])))
        fields = [field.with_type(column.type) for column, field in zip(arrays, schema, strict=True)]
        return pa.record_batch(arrays, schema=pa.schema(fields, metadata=schema.metadata))

    def _stored(self, field: pa.Field) -> pa.Field:
        """Return the field as stored; references and views as requested, all else in memory."""
        own = self._layout.field(field.name, refs=False, views=False)
        return field if is_ref(field.type) or pa.types.is_binary_view(field.type) else own

    def _part(self, rows: NDArray[np.int64], schema: pa.Schema) -> StoredSamples:
        """Return samples in place, or read from the store as far as these columns need it."""
        start, stop = self._offset[rows].astype(np.int64), self._offset[rows + 1].astype(np.int64)
        body = self._body
        if body.file is not None:
            body.file.check()
        if body.whole is not None:
            return StoredSamples(body.whole, start, stop, rows)
        if body.file is not None:
            size = int((stop - start).sum())
            small = 0 < size < _READ_BYTES * len(rows)
            if not small or int(stop.max() - start.min()) != size:
                return StoredSamples(body, start, stop, rows)
            first = int(start.min())
            window = room_for(size)
            body.file.read_into([as_view(window)], first)
            return StoredSamples(window, start, stop, rows, first)
        if len(rows) and self._leaves_payload(schema):
            return StoredSamples(body.within(int(start.min()), int(stop.max())), start, stop, rows)
        data, at = body.read_many(start, stop - start)
        return StoredSamples(data, at, at + stop - start, rows)

    def _leaves_payload(self, schema: pa.Schema) -> bool:
        """Return whether these are some columns of samples, and their bytes stay in the file."""
        held = any(pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) for kind in schema.types)
        return (
            self.config.format == "mds"
            and not held
            and (len(schema) < len(self._names) or any(map(is_ref, schema.types)))
        )


def same_bytes(source: ShardFile, raw: str, packed: str, compression: str, listed: EntryFile) -> bool:
    """Return whether a file next to a shard decompresses to the same bytes.

    Peak memory: 64 MiB; all of it for brotli and snappy.

    Raises:
        DataError, StoreError: one of the two cannot be read, or the uncompressed one does not have the given size.
    """
    plain = _opened(source, raw, "", _Listed(listed, None, ReadOptions(mmap=False)))
    begin = at = 0
    window = pa.py_buffer(b"")
    for piece in _byte_ranges(source, packed, compression, listed):
        if at + piece.size > plain.size_bytes:
            return False
        if at + piece.size > begin + window.size:
            size = min(max(_MAX_REQUEST_BYTES, piece.size), plain.size_bytes - at)
            begin, window = at, plain.read(at, size)
        if not window.slice(at - begin, piece.size).equals(piece):
            return False
        at += piece.size
    return at == plain.size_bytes


def _byte_ranges(source: ShardFile, path: str, compression: str, listed: EntryFile) -> Iterator[pa.Buffer]:
    """Yield the decompressed bytes of a file; all at once if its compression cannot stream."""
    if compression in WRAPS:
        info = source.store.head(path)
        get_ranges = partial(ranges_of, source.store, path, version=info.version)
        yield from map(pa.py_buffer, unwrapped(get_ranges, path, compression, info.size_bytes, source.limits))
    else:
        yield _opened(source, path, compression, _Listed(listed, None, ReadOptions(mmap=False))).whole


def _check_header(path: str, samples: int, text: bytes, entry: MDSEntry, limits: Limits) -> None:
    """Check a shard's header, or its `.meta`, against the index.

    Raises:
        SidecarMismatch: another number of samples, or other columns.
        DataError: invalid columns.
    """
    if samples != entry.samples:
        raise SidecarMismatch("the number of samples differs from what the index says", file=path,
                              expected=entry.samples, found=samples)  # fmt: skip
    header = parse_object(text)
    if header is None or not tells_columns(header):
        return
    with errors_at(file=path):
        found = parse_config(header, limits=limits)
    if found != entry.config:
        raise SidecarMismatch("the columns differ from what the index says", file=path,
                              expected=_shown(entry.config), found=_shown(found))  # fmt: skip


def _compression(path: str, entry: MDSEntry | None) -> str:
    """Return the compression of a shard's file: by its ending, and by the index, which may list both forms."""
    if entry is not None and posixpath.basename(path) == posixpath.basename(entry.raw.name):
        return ""
    if entry is not None and entry.packed is not None:
        return entry.compression
    return COMPRESSIONS.get(posixpath.splitext(path)[1][1:], "")


def _meta(source: ShardFile, entry: MDSEntry, options: ReadOptions) -> RangeReader:
    """Return the `.meta` next to a split-format shard, or next to the file that this one replaces."""
    path, compression = source.place, _compression(source.place, entry)
    own, meta = (entry.packed, entry.packed_meta) if compression else (entry.raw, entry.raw_meta)
    assert own is not None
    assert meta is not None
    if f"/{path}".endswith(f"/{own.name}"):
        path = path.removesuffix(own.name) + meta.name
    else:  # the entry is older than the shard's name, which changes when a dataset adopts a worker's output
        path = meta_name(path, posixpath.splitext(path)[1] if compression else "")
    listed = _Listed(entry.raw_meta, entry.packed_meta, options)
    with _advising():
        return _opened(replace(source, store=source.place_store), path, compression, listed)


@contextmanager
def _advising() -> Iterator[None]:
    """Have an error of a `.meta` that is missing or damaged say how lines are read without it."""
    try:
        yield
    except (DataError, NotFound) as error:
        error.advice = error.advice or "Read lines by their ends with --option walk_lines=true, without this file."
        raise


def _shown(config: Config) -> str:
    """Return the columns, for a message."""
    return f"{config.format} with " + ", ".join(f"{column.name}: {column.encoding}" for column in config.columns)


def _is_mds(path: str) -> bool:
    return ".mds" in posixpath.basename(path).lower()


def _read_head(head: RangeReader, size: int | None, limits: Limits, *, split: bool) -> tuple[NDArray[np.int64], bytes]:
    """Return the starts and ends of samples in `size` bytes, or in as many as they say, and the JSON after them.

    Raises:
        CorruptShard: offsets out of order, or beyond the file.
        LimitExceeded: the JSON is larger than `index_bytes`, or has more than `index_values`.
    """
    if head.size_bytes < 4:  # noqa: PLR2004 - bytes of the count
        raise CorruptShard("the file is too short for a count of samples", found=f"{head.size_bytes} bytes")
    data = head.read(0, 4)
    count = int(np.frombuffer(data, "<u4")[0])
    end = 4 * (count + 2)
    if end > head.size_bytes:
        raise CorruptShard("the file is too short for the places of its samples", offset=4,
                           expected=f"{count + 1} numbers", found=f"{head.size_bytes} bytes")  # fmt: skip
    data = head.read(4, 4 * (count + 1))
    offset = np.frombuffer(data, "<u4").copy()  # not through the map: touching lost pages kills the process
    size = int(offset[-1]) if size is None else size
    stop = head.size_bytes if split else int(offset[0])
    if not split and not end <= stop <= size:
        raise CorruptShard("the first sample begins inside the head, or beyond the file", offset=4,
                           expected=f"{end} to {size}", found=stop)  # fmt: skip
    backwards = np.flatnonzero(offset[1:] < offset[:-1])
    if len(backwards):
        row = int(backwards[0])
        raise CorruptShard("a sample ends before it begins", row=row, offset=4 * (row + 2),
                           expected=f"at least {int(offset[row])}", found=int(offset[row + 1]))  # fmt: skip
    if int(offset[-1]) != size:
        raise CorruptShard("the samples do not end where the file does", offset=4 * (count + 1), expected=size,
                           found=int(offset[-1]))  # fmt: skip
    if stop - end > limits.index_bytes:
        raise limits.exceeded("index_bytes", "what the shard says of itself is too large", offset=end, found=stop - end)
    text = head.read(end, stop - end)
    limits.check_values(text, offset=end)
    return offset, bytes(text)


def parse_object(text: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object in a header; None if it is something else."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
