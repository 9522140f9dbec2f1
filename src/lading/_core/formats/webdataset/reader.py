"""Read a WebDataset tar: batches, index, random access, members. See `_core.formats.webdataset.format`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.column_slices import ColumnSlices
from lading._core.arrow.references import FileEntry, RefType, make_refs, unpack, with_files
from lading._core.features.items import split_rows
from lading._core.features.types import feature_of, tag_by_extension
from lading._core.formats.base import DEFAULT_SCAN, MemberReader, Members, Scan, Units, sparse_member
from lading._core.formats.webdataset.header_walk import RETURNING, Pass
from lading._core.formats.webdataset.headers import BLOCK, REGULAR, Headers, is_header
from lading._core.formats.webdataset.index import read_idx, sidecar_mismatch
from lading._core.formats.webdataset.keys import unescaped
from lading._core.formats.webdataset.pieces import pieces_by_headers, pieces_by_index, warn_pieces
from lading._core.formats.webdataset.places import MemberPlaces, find_places, parser_of, ranges_at, sample_reader
from lading._core.formats.webdataset.samples import KEY, MemberRows, cut, is_sprawl, join_rows, regroup, texts
from lading._core.formats.webdataset.walk import OnConcatenated, TarFile, Walk, end_counts
from lading._core.storage.base import MappedFile
from lading._core.storage.concurrent import is_remote
from lading.errors import CorruptShard, DataError, LadingError, UsageError, errors_at

__all__ = ["ReadOptions", "TarReader"]

_INDEX_ROWS = 1 << 20
_CHECKED_ENTRIES = 64
_FEW_ROWS = 64
_READER_BYTES = 16 << 10
"""Memory of a reader that holds no members, about."""
_KEPT_BYTES, _KEPT_FIELDS = 8 << 20, 256
"""Members that a reader keeps from a survey for the reading that follows: those of 80,000 samples, for example."""
_SHOWN_STARTS = 4
_NO_LIMIT = 1 << 62

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a tar is read.

    Attributes:
        on_duplicate: A second member with the same key and field in one sample: `error`, `keep_first` or `keep_last`.
        regroup: Join the members of one key wherever they are in the shard. This reads the headers of the whole shard
            first.
        sidecar: `use` the `.tar.idx` next to a tar, which must agree with the tar, or `ignore` it. A remote tar is
            compared where it is read whole, single samples by their own headers.
        mmap: Map local files. False reads them through `pread`, as jobs do.
        lower_case: Give field names in lower case, as webdataset does.
        on_concatenated: Members behind the end of the archive, as `cat a.tar b.tar` leaves them: `stop` before them, as
            webdataset does, and count the tar; `read` them, as `tar --ignore-zeros` does; or `error`.
            With `read` and `error`, a lone block of zeros with other bytes behind it is an error too.
        escape: `percent` for keys that were written with `escape=percent`: `%2E` means a dot. The manifest of tars that
            lading wrote says so by itself.
        lists: Names of columns of lists whose items are members of their own: `["image"]` for `image.0.jpg`,
            `image.1.png` …, and `image.json` if it is there.
    """

    on_duplicate: Literal["error", "keep_first", "keep_last"] = "error"
    regroup: bool = False
    sidecar: Literal["use", "ignore"] = "use"
    mmap: bool = True
    lower_case: bool = True
    on_concatenated: OnConcatenated = "stop"
    escape: Literal["none", "percent"] = "none"
    lists: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Refuse unknown words."""
        for name, value, known in (
            ("on_duplicate", self.on_duplicate, ("error", "keep_first", "keep_last")),
            ("sidecar", self.sidecar, ("use", "ignore")),
            ("on_concatenated", self.on_concatenated, ("stop", "read", "error")),
            ("escape", self.escape, ("none", "percent")),
        ):
            if value not in known:
                raise UsageError("no such policy", expected=" or ".join(known), found=f"{name}={value!r}")
        if not isinstance(self.lists, str) and ("" in self.lists or len({*self.lists}) < len(self.lists)):
            raise UsageError("lists must be different names", expected='such as ["image"]',
                             found=f"lists={self.lists!r:.80}")  # fmt: skip


class TarReader(MemberReader):
    """An open tar, whose values are the bytes of members.

    Args:
        tar: the file.
        options: how it is read.
        warns: whether a warning tells that samples are in several pieces. Samples that lading wrote are whole.

    Attributes:
        counts: reports of the last complete pass, by a short phrase.
    """

    slices_columns = True

    def __init__(self, tar: TarFile, options: ReadOptions, *, warns: bool = True) -> None:
        self._tar, self._options = tar, options
        self._warns = warns and not options.regroup
        self._fields: list[str] | None = None
        self._surveyed: tuple[Pass, list[MemberRows]] | None = None
        self._samples = 0
        self._places: tuple[MemberPlaces | None] | None = None
        self._asked = 0
        self._entries: NDArray[np.int64] | None = None
        self._entries_read = options.sidecar == "ignore" or bool(tar.entry.wrap) or tar.source.alone
        given = tar.source.index
        # An index of the view `interleaved` has other columns, and one of a copied tar has names in their given case.
        names = [] if given is None or options.regroup else given.column_names
        named = not options.lower_case or all(name == name.lower() for name in names)
        self._index = given if KEY in names and named else None

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Return the files table of the references of this shard: only this file."""
        return (self._tar.entry,)

    @property
    def holds_values(self) -> bool:
        """Return whether batches hold values: a compressed file can only be read forward."""
        return bool(self._tar.entry.wrap) and not self._options.regroup

    @property
    def held_bytes(self) -> int | None:
        """Return the bytes of the places of members, or of the members of a survey, if they were found."""
        places = None if self._places is None else self._places[0]
        if places is None and self._surveyed is not None:
            return _READER_BYTES + sum(rows.nbytes for rows in self._surveyed[1])
        return None if places is None else _READER_BYTES + places.nbytes

    def detach(self) -> int | None:
        """Close the tar, and keep the members that `schema` found."""
        if self._surveyed is None:
            return None
        self._tar = replace(self._tar, file=None)
        return _READER_BYTES + sum(rows.nbytes for rows in self._surveyed[1])

    def close(self) -> None:
        """Close the map; existing references and bytes stay valid."""
        self._surveyed, self._places = None, (None,)
        self._tar = replace(self._tar, file=None)

    def schema(self) -> pa.Schema:
        """Return `__key__`, then the fields by first appearance: references, or `large_binary` if compressed."""
        names = self._survey() if self._index is None else self._index.column_names[1:]
        kind = pa.large_binary() if self.holds_values else RefType()
        fields = [pa.field(n, kind, metadata=tag_by_extension(n) or None) for n in names]
        return with_files(pa.schema([pa.field(KEY, pa.string()), *fields]), self.files)

    def rows_at_once(self) -> int:
        """Return 1; of a compressed tar all samples."""
        return self.num_rows() if self._tar.entry.wrap else 1

    def num_rows(self) -> int:
        """Return the number of samples.

        From an index, from the sidecar (some of its entries are checked), or from a walk over headers.
        """
        if self._index is not None:
            return len(self._index)
        entries = self._sidecar()
        if entries is not None and self._fields is None and not self._options.regroup:
            self._check_some(entries)
            self._look_at_end(int(entries[-1]))
            return len(entries) - 1
        self._survey()
        return self._samples

    def index(self) -> pa.Table:
        """Return `__key__` and a reference column a field, a row a sample; reads no payload. Cached in the reader.

        Keys are those in the tar, whatever `escape` says, so that every reader can use an index.

        Raises:
            Unrepresentable: a sparse member, which is not a range of the tar.
            LimitExceeded: the samples' fields differ so much that a table of them would be nearly empty, or their keys
                take more than `tar_keys_bytes`.
        """
        if self._index is None:
            surveyed, self._surveyed = self._surveyed, None
            walk = self._pass() if surveyed is None else surveyed[0]
            parts = walk.held_rows() if surveyed is None else surveyed[1]
            self._refuse_sparse([s.start for part in parts for s in part.sparse.values()])
            self._refuse_sprawl(parts, len(walk.splitter.fields))
            whole = self._samples_of(iter(parts), walk, _INDEX_ROWS, _NO_LIMIT, None)
            batches = [walk.batch(rows, [KEY, *walk.splitter.fields]) for rows in whole]
            empty = with_files(pa.schema([pa.field(KEY, pa.string())]), self.files)
            self._index = pa.Table.from_batches(batches, batches[0].schema if batches else empty)
            self._note(walk)
        return self._index

    def units(self) -> Units | None:
        """Return the samples, by a walk over the headers, or of a remote tar by its sidecar.

        None for a compressed tar, for a remote one without a sidecar, if members of one key are joined, and if global
        records tell names or sizes.
        """
        if self._tar.entry.wrap or self._options.regroup:
            return None
        if self._tar.file is None:
            entries = self._sidecar()
            return None if entries is None else _units_at(entries)
        walk = self._pass(named=False)
        starts = [rows.start[rows.new] for rows in walk.rows()]
        self.counts = Counter({RETURNING: walk.returning} if walk.returning else {})
        self._look_for_pieces(walk)
        return None if walk.has_records else _units_at(np.concatenate([*starts, [walk.end]]).astype(np.int64))

    def read(self, rows: NDArray[np.int64] | None = None, scan: Scan = DEFAULT_SCAN) -> pa.Table:
        """Return samples by ordinal as references, in the given order; with a sidecar, few of them need no walk.

        A column that these rows lack is null if it is requested by name, or known: with a sidecar, after `schema` was
        called.

        Raises:
            SidecarMismatch: the sidecar's entry for a row is not one whole sample. In a remote tar the neighbours,
                which may hold the rest of it, are not checked.
            Unrepresentable, LimitExceeded: as `index`.
        """
        entries = None if self._index is not None or self._options.regroup else self._sidecar()
        if entries is not None and rows is not None and 0 < len(rows) <= _FEW_ROWS:
            return self._with_keys(self._read_few(rows, scan.columns, entries))
        table = self.index() if rows is None else self.index().take(pa.array(rows))
        table = self._with_keys(table)
        if scan.columns is None:
            return table
        known = {*table.column_names}
        for name in [name for name in scan.columns if name not in known]:
            nowhere = make_refs(*np.zeros((2, len(table)), np.int64), valid=np.zeros(len(table), np.bool_))
            table = table.append_column(name, nowhere)
        wanted = {*scan.columns}
        return table.select([name for name in table.column_names if name in wanted])

    def find_places(self, rows: int) -> MemberPlaces | None:
        """Return the places of all members of a plain tar of this machine; None if samples are read otherwise.

        A tar with a sidecar and without an index is walked over only when many of its samples were read by the sidecar.

        Args:
            rows: number of samples that are read now.
        """
        if self._places is None:
            entries = None if self._index is not None or self._options.regroup else self._sidecar()
            self._asked += rows
            if entries is not None and self._asked <= max(_FEW_ROWS, len(entries) // _FEW_ROWS):
                return None
            self._places = (self._found_places(),)
        return self._places[0]

    def _found_places(self) -> MemberPlaces | None:
        file = self._tar.file
        if file is None:
            return None
        try:
            self._index = self.index().combine_chunks()
        except LadingError:  # `read` reports the error of an index, and does without one where it can
            return None
        keys = self._with_keys(self._index).column(KEY)
        buffer = cast("MappedFile", file).buffer if self._options.mmap else None
        return find_places(self._index, keys, file, buffer)

    def sample_getter(self) -> Callable[[int], dict[str, Any] | None] | None:
        """Return what reads the members of one sample by their places; None if the tar is compressed or remote."""
        if self._tar.file is None:
            return None
        get: Callable[[int], dict[str, Any] | None] | None = None

        def sample(row: int) -> dict[str, Any] | None:
            nonlocal get
            if get is None:
                places = self.find_places(1)
                if places is None:
                    return None
                cells = {f.name: (places.cells[f.name], parser_of(feature_of(f))) for f in places.fields}
                get = sample_reader(places, cells, {}, keyed=True)
            return get(row)

        return sample

    def column_slices(
        self, rows: NDArray[np.int64], scan: Scan = DEFAULT_SCAN, *, hold: bool = True
    ) -> ColumnSlices | None:
        """Return the places of members; None if samples are read otherwise. See `ShardReader.column_slices`."""
        places = self.find_places(len(rows))
        names = [] if places is None else [n for n in (KEY, *places.cells) if scan.columns is None or n in scan.columns]
        if places is None or not names or not 0 <= int(rows.min()) <= int(rows.max()) < len(places):
            return None
        key = pa.field(KEY, pa.string())
        schema = pa.schema([key if name == KEY else places.fields.field(name) for name in names])
        found = {
            name: places.key_ranges(rows)
            if name == KEY
            else ranges_at(places, places.cells[name], rows, views=scan.views and hold)
            for name in names
        }
        return ColumnSlices(schema, found, None)

    def batches(self, scan: Scan = DEFAULT_SCAN) -> Iterator[pa.RecordBatch]:
        """Yield all samples in order, none of them cut: references for plain tars, values for compressed ones.

        Peak memory: 50 MB; for compressed tars also twice `max_bytes`, or twice the largest sample; with sparse
        members, `max_bytes`, or the largest sample, with their holes filled.

        Raises:
            CorruptShard: at the first damaged header or span of compressed data; earlier samples are yielded first.
            DuplicateField, LimitExceeded, SidecarMismatch: see `ReadOptions`.
        """
        if self._tar.source.by_index and self._index is not None and not self.holds_values:
            yield from self._by_index(self._index, scan.max_rows, scan.max_bytes, scan.columns)
            return
        surveyed, self._surveyed = self._surveyed, None
        walk = self._pass() if surveyed is None else surveyed[0]
        if self.holds_values:
            batches = walk.stream_batches(max_rows=scan.max_rows, max_bytes=scan.max_bytes, columns=scan.columns)
        else:
            held = surveyed[1] if surveyed is not None else walk.held_rows() if self._options.regroup else None
            parts = walk.rows() if held is None else iter(held)
            found = self._samples_of(parts, walk, scan.max_rows, scan.max_bytes, scan.columns)
            batches = (walk.batch(rows, scan.columns) for rows in found)
        yield from batches if self._options.escape == "none" else map(self._with_keys, batches)
        self._note(walk)

    def _by_index(
        self, index: pa.Table, max_rows: int, max_bytes: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all samples as `batches` does, as references out of an index."""
        size = np.zeros(len(index), np.int64)
        for name in index.column_names[1:]:
            if columns is None or name in columns:
                refs = unpack(index.column(name).combine_chunks())
                size += np.where(refs.valid, refs.length, 0)
        bounds = split_rows(np.arange(len(index)), size, max_bytes=max_bytes, max_rows=max_rows)
        for first, stop in pairwise(bounds.tolist()):
            rows = TarReader.read(self, np.arange(first, stop), Scan(columns))
            if columns is None:  # as a walk gives them
                rows = rows.select([n for n in rows.column_names if n == KEY or rows.column(n).null_count < len(rows)])
            fields = [f.with_metadata(tag_by_extension(f.name) or None) if f.name != KEY else f for f in rows.schema]
            schema = with_files(pa.schema(fields), self.files)
            yield pa.record_batch([column.combine_chunks() for column in rows.columns], schema=schema)

    def members(self, max_members: int = 65_536) -> Iterator[Members]:
        """Yield all regular members, whatever their names, streaming, `max_members` at a time.

        Raises:
            CorruptShard: the tar is damaged, or a name is invalid UTF-8.
        """
        waiting: list[Members] = []
        with errors_at(file=self._tar.path):
            walk = Walk(self._tar, reach=max_members)
            for found in walk:
                waiting.append(self._regular(found))
                while sum(len(part.name) for part in waiting) >= max_members:
                    joined = _join_members(waiting)
                    waiting = [_part(joined, slice(max_members, None))]
                    yield _part(joined, slice(max_members))
        self.counts = Counter(end_counts(walk.cursor))
        if any(len(part.name) for part in waiting):
            yield _join_members(waiting)

    def count_samples(self) -> int:
        """Return the number of samples as WebDataset groups members: adjacent ones of one key.

        Walks over the headers. An existing sidecar, unless ignored, is checked against their starts, whatever the names
        of fields.

        Raises:
            SidecarMismatch: they disagree.
            StoreError: the sidecar cannot be read.
            CorruptShard: the tar is damaged.
        """
        walk = self._pass(named=False)
        for _ in walk.rows():
            pass
        return walk.samples

    def _with_keys(self, rows: _Rows) -> _Rows:
        """Return rows with their original keys, if they were escaped."""
        at = rows.schema.get_field_index(KEY)
        if self._options.escape == "none" or at < 0:
            return rows
        return rows.set_column(at, rows.schema.field(at), unescaped(rows.column(at)))

    # Passes

    def _pass(self, *, named: bool = True) -> Pass:
        lower_case, on_duplicate = self._options.lower_case, self._options.on_duplicate
        entries = None if self._tar.source.span is not None else self._sidecar()
        return Pass(self._tar, lower_case=lower_case, on_duplicate=on_duplicate, entries=entries, named=named)

    def _note(self, walk: Pass) -> None:
        self._fields, self._samples = walk.splitter.fields, walk.samples
        if self._options.regroup:
            self._samples -= walk.returning
        self.counts = Counter(walk.counts())
        self._look_for_pieces(walk)

    def _look_for_pieces(self, walk: Pass) -> None:
        """Warn if members of a sample do not stand together; once for a reader.

        A tar that would have to be fetched or unpacked again for that is left to `verify`.
        """
        index = self._index
        if not self._warns or not walk.returning or (index is None and self._tar.file is None):
            return
        self._warns = False
        lower_case = self._options.lower_case
        pieces = pieces_by_headers(self._tar, lower_case=lower_case) if index is None else pieces_by_index(index)
        if pieces is not None:
            warn_pieces(self._tar.path, pieces)

    def _look_at_end(self, start: int) -> None:
        """Count what the end of a local tar shows, from the end of its last sample on; elsewhere it is a request."""
        if not is_remote(self._tar.source.store) and not self._tar.entry.wrap:
            walk = Walk(self._tar, start, links="none")
            for _ in walk:
                pass
            self.counts = Counter(end_counts(walk.cursor))

    def _survey(self) -> list[str]:
        """Find all fields, by a walk over the headers if there was none yet."""
        if self._fields is None:
            walk = self._pass()
            kept, size = list[MemberRows](), 0
            for rows in walk.rows():
                size += rows.nbytes
                if size <= _KEPT_BYTES:
                    kept.append(rows)
                else:
                    kept.clear()
            self._note(walk)
            # With many fields, batches are limited by the fields seen so far: they would differ from those of a walk.
            few = len(walk.splitter.fields) <= _KEPT_FIELDS
            self._surveyed = (walk, kept) if size <= _KEPT_BYTES and few and not self.holds_values else None
        assert self._fields is not None
        return self._fields

    def _samples_of(
        self, parts: Iterator[MemberRows], walk: Pass, max_rows: int, max_bytes: int, columns: Sequence[str] | None
    ) -> Iterator[MemberRows]:
        if self._options.regroup:
            every = join_rows([*parts])
            parts = iter([regroup(every)] if len(every) else [])
        return cut(parts, walk.splitter.fields, max_rows=max_rows, max_bytes=max_bytes, columns=columns)

    def _refuse_sparse(self, starts: Sequence[int]) -> None:
        if starts:
            raise sparse_member(self._tar.path, starts[0])

    def _refuse_sprawl(self, parts: Sequence[MemberRows], fields: int) -> None:
        members, samples = sum(map(len, parts)), sum(len(part.keys) for part in parts)
        limits = self._tar.source.limits
        if is_sprawl(samples, fields, members, limits):
            raise limits.exceeded(
                "tar_cells",
                "the samples' fields differ too much for one table",
                file=self._tar.path,
                expected=f"at most {limits.tar_cells} places without a value",
                found=f"{samples} samples, {fields} fields, {members} values",
                advice="Do keys hold dots? What follows the first dot is the field. Try --view interleaved.",
            )

    def _regular(self, found: Headers) -> Members:
        rows = np.flatnonzero(REGULAR[found.kind])
        names = texts(found, rows, found.names[rows], np.count_nonzero(found.names[rows], axis=1))
        sparse = np.isin(rows, [*found.sparse])
        return Members(names, found.start[rows], found.offset[rows], found.length[rows], sparse)

    # The sidecar

    def _sidecar(self) -> NDArray[np.int64] | None:
        """Return the starts of samples, and the end, from the `.idx` next to the tar, if it exists and is used."""
        if not self._entries_read:
            self._entries = read_idx(self._tar.source.store, self._tar.path, self._tar.entry.size_bytes)
            self._entries_read = True
        return self._entries

    def _check_some(self, entries: NDArray[np.int64]) -> None:
        """Check whether some entries, first and last included, are headers, and whether the tar ends there."""
        size, last = self._tar.entry.size_bytes, len(entries) - 1
        some = np.unique(np.linspace(0, last - 1, min(_CHECKED_ENTRIES, last)).astype(np.int64))
        starts = entries[some].tolist()
        blocks = self._tar.read_each([(at, min(BLOCK, max(size - at, 0))) for at in starts])
        for number, at, block in zip(some.tolist(), starts, blocks, strict=True):
            if not is_header(block):
                raise sidecar_mismatch(self._tar.path, 8 * number, f"a sample at {at}", "no header there")
        more = len(self._part(entries, last, last + 1, self._pass()).keys)
        if more:
            raise sidecar_mismatch(self._tar.path, 8 * last, f"{last} samples", f"{more} more")

    def _part(self, entries: NDArray[np.int64], first: int, stop: int, walk: Pass) -> MemberRows:
        """Return members between two entries, or from the first of them to the end of the tar."""
        start, end = int(entries[first]), int(entries[stop]) if stop < len(entries) else None
        try:
            return walk.part(start, end)
        except CorruptShard as error:
            raise sidecar_mismatch(self._tar.path, 8 * first, f"members from {start} on", error.message) from error

    def _one(self, entries: NDArray[np.int64], row: int, walk: Pass, *, beside: int) -> MemberRows:
        """Return a sample.

        Some samples before and after it must also begin at their sidecar entries: they may be parts of it.
        """
        first, stop = max(row - beside, 0), min(row + 1 + beside, len(entries) - 1)
        try:
            found = self._part(entries, first, stop, walk)
        except DataError:
            if not beside:
                raise
            return self._one(entries, row, walk, beside=0)  # a neighbour may be damaged: reading it reports that
        starts, expected = found.start[found.new], entries[first:stop]
        if not np.array_equal(starts, expected):
            said, there = f"samples at {expected.tolist()}", f"at {starts[:_SHOWN_STARTS].tolist()}"
            raise sidecar_mismatch(self._tar.path, 8 * first, said, there)
        return found.samples(row - first, row - first + 1)

    def _read_few(self, rows: NDArray[np.int64], columns: Sequence[str] | None, entries: NDArray[np.int64]) -> pa.Table:
        """Return rows by the sidecar: only the headers of their samples are read.

        In local tars, the headers of their neighbours are read too.
        """
        wanted, back = np.unique(rows, return_inverse=True)
        walk = self._pass()
        beside = int(self._tar.file is not None)  # in a remote tar they may need further requests
        whole = join_rows([self._one(entries, row, walk, beside=beside) for row in wanted.tolist()])
        self._refuse_sparse([place.start for place in whole.sparse.values()])
        if columns is None and self._fields is not None:
            columns = [KEY, *self._fields]
        return pa.Table.from_batches([walk.batch(whole, columns)]).take(pa.array(back))


def _units_at(places: NDArray[np.int64]) -> Units:
    """Return samples as units, by their starts and the end; members before the first one are read with it."""
    offset = places.copy()
    offset[0] = 0
    return Units(np.arange(len(places)), offset)


def _join_members(parts: Sequence[Members]) -> Members:
    return Members(
        pa.concat_arrays([part.name for part in parts]),
        np.concatenate([part.header_offset for part in parts]),
        np.concatenate([part.offset for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.sparse for part in parts]),
    )


def _part(of: Members, rows: slice) -> Members:
    return Members(of.name[rows], of.header_offset[rows], of.offset[rows], of.length[rows], of.sparse[rows])
