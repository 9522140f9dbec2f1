"""Materialise references: read the bytes of references in bulk.

Local files are mapped, and values are views of the map; or they are read, neighbours together, and values are views of
what was read. Other stores get few coalesced range requests. A compressed
file is read forward through one decompressor. Each error is tied to its row before the policy `on_error` is applied.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Final, Self, TypeAlias, TypeVar, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arguments import public
from lading._core.arrow.batches import with_columns
from lading._core.arrow.byte_ranges import ByteRanges, as_view, in_memory, room_for
from lading._core.arrow.references import CODECS, FileEntry, Refs, files_of, is_ref, unpack, with_files
from lading._core.arrow.views import from_ranges, gather, join, present, slices, take_rows
from lading._core.codecs import decode_range
from lading._core.content.image import extract_frame, tiff_frames
from lading._core.features.items import (
    MEANT_NULLS_KEY,
    WITHOUT_BYTES,
    lineage_of,
    sample_starts,
    samples_with,
    split_rows,
)
from lading._core.storage.base import MappedFile, Mapper, OpenFile, Store, check_version
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.descriptors import allowed_files
from lading._core.storage.fetch_plan import GAPS_A_REQUEST, FetchPlan, plan_ranges
from lading._core.storage.recent import RecentBytes
from lading._core.storage.roots import ELSEWHERE
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.traffic import ranges_of
from lading._core.storage.unwrap import UnwrappedFile
from lading._core.storage.windows import BUFFER_BYTES, read_together
from lading._core.units import count
from lading.errors import BadReference, CorruptShard, LadingError, LimitExceeded, NotFound, ShortRead, UsageError
from lading.limits import DEFAULT_LIMITS, Growth, Limits, raised_by
from lading.options import OnError

__all__ = [
    "ERROR_COLUMN", "FEWER", "Fetcher", "OnFailure", "earlier_errors", "materialise", "value_bounds", "write_errors",
]  # fmt: skip

OnFailure: TypeAlias = Callable[[pa.RecordBatch, dict[int, str], int], None]
"""Called with a part of a batch, the errors by row of the part, in order, and the first row of the part in the batch.
The rows are not dropped yet."""

ERROR_COLUMN = "materialize_error"
"""Column of interleaved items that holds a row's error as text."""

_MAX_STREAMS = 2
"""Number of compressed files kept open: each holds up to 64 MiB of its latest output."""

_Opened = TypeVar("_Opened")
_Answer: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64], list[pa.Buffer]] | LadingError
_Range: TypeAlias = tuple[int, int, int, int]
"""File, offset, length and codec of a reference."""
_OF_THE_FILE = (NotFound, CorruptShard, BadReference)
"""Errors about the references into one file; every other error of a store concerns the store itself."""

_ALL_BYTES = (1 << 63) - 1
_MIN_VIEW_BYTES = 1 << 10
"""Values with a smaller average size are copied: views of them would keep the gaps between them in memory."""
_MIN_RANGE_BYTES = 8 << 10
"""Values with a smaller average size are read together: a single range costs a microsecond or two."""
_COPY_GAP_BYTES, _VIEW_GAP_BYTES = 8 << 10, 2 << 10
"""Gaps in a local file that are read too: that costs less than another call. Under views, they stay in memory."""
_WINDOW_BYTES = 1 << 20
_SMALL_FILE_BYTES = 1 << 20
"""Most bytes of a file's only value for which a read costs less than a map, or than the plan of several reads."""
_FEW_VALUES, _FEW_BYTES = 64, 64 << 10
"""Values, and bytes, of a window whose values are copied one by one: for more, a call of Arrow costs less."""
_WINDOWS_TOGETHER = 256
"""Windows of few values whose copies share a buffer."""
_MAX_REQUEST_BYTES = 8 << 20
FEWER: Final = 4
"""Gaps of twice the usual size are read where that divides the number of requests by so much. All samples are a little
larger than the gap then, and latency costs more than the bytes."""
_UNPACKED_BYTES = 32 << 20
"""Bytes of packed values that are unpacked at once, for callers that take values one at a time."""


@dataclass(slots=True)
class _Located:
    """Where the values of a column are in memory: `buffers[which[i]]` from `offset[i]`, `length[i]` bytes.

    If `most_bytes` is given, at most `most_bytes[i]` bytes of value i are wanted.
    """

    buffers: list[pa.Buffer]
    which: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    valid: NDArray[np.bool_]
    errors: dict[int, LadingError] = field(default_factory=dict)
    most_bytes: NDArray[np.int64] | None = None

    def fail(self, rows: Iterable[int], error: LadingError) -> None:
        """Tie an error to rows that have none yet; a missing file is an error of the reference to it."""
        if isinstance(error, NotFound):
            error = BadReference("the reference names no file", file=error.file, found=error.message)
        for row in rows:
            self.errors.setdefault(row, error)
            self.valid[row] = False

    def replace(self, row: int, data: bytes) -> None:
        """Replace the bytes of a value."""
        self.which[row] = len(self.buffers)
        self.buffers.append(pa.py_buffer(data))
        self.offset[row], self.length[row] = 0, len(data)

    def part(self, first: int, stop: int) -> _Located:
        """Return the part for some rows, with only their buffers."""
        rows = slice(first, stop)
        errors = {row - first: error for row, error in self.errors.items() if first <= row < stop}
        used, which = np.unique(self.which[rows], return_inverse=True)
        buffers = [self.buffers[number] for number in used.tolist()] if self.buffers else []
        return _Located(buffers, which.astype(np.int32), self.offset[rows], self.length[rows], self.valid[rows], errors)


@dataclass(frozen=True, slots=True)
class _PlainRanges:
    """References that are ranges of open files: the length of each (0 where null), and the rows of each file."""

    length: NDArray[np.int64]
    files: list[tuple[OpenFile, NDArray[np.int64]]]

    def pieces(self, refs: Refs) -> ByteRanges:
        """Return the same values as byte ranges of files."""
        return ByteRanges([file for file, _ in self.files], self._file_of(refs), refs.offset, self.length)

    def read_each(self, refs: Refs, most_bytes: int = _ALL_BYTES) -> Iterator[bytes | None]:
        """Yield the first bytes of each value, all by default, each read on demand; None where null."""
        readings: list[Iterator[bytes]] = []
        for file, rows in self.files:
            length = np.minimum(self.length[rows], most_bytes)
            readings.append(file.read_each(refs.offset[rows].tolist(), length.tolist()))
        if len(readings) == 1 and bool(refs.valid.all()):
            return readings[0]
        return (None if number < 0 else next(readings[number]) for number in self._file_of(refs).tolist())

    def _file_of(self, refs: Refs) -> NDArray[np.int64]:
        """Return the file number of each row, −1 where null."""
        which = np.full(len(refs.valid), -1)
        for number, (_, rows) in enumerate(self.files):
            which[rows] = number
        return which


class Fetcher:
    """Open files behind references, kept between batches; close the fetcher when done. Threads may share it.

    Args:
        stores: store of each URL.
        mmap: False reads local files through `pread` into memory, so that a file truncated by another process cannot
            kill this one.
        max_open: number of files kept open at once; None for as many as the process's limit of open files allows.
        limits: limits on the resources that files may take.

    Attributes:
        recent: bytes of remote files that readers have read already.
    """

    def __init__(
        self,
        stores: Stores | None = None,
        *,
        mmap: bool = True,
        max_open: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.stores = stores or Stores()
        self.mmap = mmap
        self.limits = limits
        self._max_open = allowed_files() if max_open is None else max_open
        self._files: OrderedDict[str, OpenFile] = OrderedDict()
        self._maps: OrderedDict[str, MappedFile] = OrderedDict()
        self._unwrapped: OrderedDict[str, UnwrappedFile] = OrderedDict()
        self._touched: deque[tuple[MappedFile, int, int, int]] = deque()
        self._lock = Lock()
        self.recent = RecentBytes()

    def close(self) -> None:
        """Close files, maps and streams; existing views stay valid."""
        self._files.clear()
        self._maps.clear()
        self._touched.clear()
        self._unwrapped.clear()
        self.recent.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def release(self, held_bytes: int = 0) -> None:
        """Release the mapped pages behind existing views: mapped pages count as resident memory.

        Existing views stay valid; touching them reads their pages again. The latest `held_bytes` of payload are
        therefore not released: the caller still holds and touches them.
        """
        with self._lock:
            behind = sum(payload for *_, payload in self._touched)
            while self._touched and behind - self._touched[0][3] >= held_bytes:
                mapped, start, stop, payload = self._touched.popleft()
                mapped.release(start, stop)
                behind -= payload

    def forget_views(self) -> None:
        """Leave the pages behind all existing views to those who hold them: `release` does not release them."""
        with self._lock:
            self._touched.clear()

    def materialise(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[str] | None = None,
        on_error: OnError = "error",
        *,
        views: bool = False,
        earlier: bool = True,
        on_failure: OnFailure | None = None,
    ) -> pa.RecordBatch:
        """Return the batch with its reference columns (all, or the named ones) as bytes.

        The columns are `large_binary` in memory of their own. With `views`, large values become `binary_view` columns
        over mapped files; pass these to a sink or a consumer only. Fields keep their metadata; the files table stays.

        The policy also covers errors that the rows already have (in `materialize_error`); with `earlier=False` such
        rows are kept unchanged. Under policies other than `error`, failed rows are reported to `on_failure`; without
        it, `warn` warns.

        Raises:
            BadReference: under `on_error="error"`, for the first row whose payload is unavailable.
            StoreError: the store failed; no policy covers that.
        """
        [whole] = self.materialise_parts(
            batch, None, 0, columns, on_error, views=views, earlier=earlier, on_failure=on_failure
        )
        return whole

    def materialise_parts(
        self,
        batch: pa.RecordBatch,
        starts: NDArray[np.int64] | None,
        max_bytes: int,
        columns: Sequence[str] | None = None,
        on_error: OnError = "error",
        *,
        views: bool = False,
        earlier: bool = True,
        on_failure: OnFailure | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the result of `materialise` in parts: the unpacked size of ranges with a codec is unknown beforehand.

        A part ends with the sample whose unpacked bytes reach `max_bytes`. Samples without packed values are included.
        Raises as `materialise`.

        Args:
            batch: the rows.
            starts: first row of each sample; None gives one part.
            max_bytes: of unpacked values, after which a part ends.
            columns: as in `materialise`; so are all that follow.
            on_error: see there.
            views: see there.
            earlier: see there.
            on_failure: see there.
        """
        wanted = [n for n in (batch.schema.names if columns is None else columns) if is_ref(batch.schema.field(n).type)]
        files, before = files_of(batch.schema), len(self._touched)
        places = {name: i for i, name in enumerate(batch.schema.names)}
        refs = {name: unpack(batch.column(name)) for name in wanted}
        located = self._locate_columns(refs, files)
        came = earlier_errors(batch) if earlier else {}
        copied = True
        samples, most = (np.arange(len(batch)), None) if starts is None else (starts, max_bytes)
        for first, stop in _unpacked(located, refs, files, self.limits, len(batch), samples, most):
            one = first == 0 and stop == len(batch)
            rows = batch if one else batch.slice(first, stop - first)
            mine = located if one else {name: at.part(first, stop) for name, at in located.items()}
            earlier_here = {row - first: text for row, text in came.items() if first <= row < stop}
            part = rows
            keep: NDArray[np.bool_] | None = None
            if on_error != "error" or earlier_here or any(at.errors for at in mine.values()):
                part, keep = _apply_policy(rows, mine, earlier_here, on_error, on_failure, first)
            made = {}
            for name in wanted:
                at = mine[name] if keep is None else _kept(mine[name], keep)
                shown = views and int(at.length.sum()) >= _MIN_VIEW_BYTES * int(at.valid.sum())
                copied = copied and not shown
                made[places[name]] = _build(at, views=shown)
            yield with_columns(part, made)
            del mine, part, made  # before as much is unpacked again
        with self._lock:
            while copied and len(self._touched) > before:
                mapped, start, stop, _ = self._touched.pop()
                mapped.release(start, stop)

    def heads(
        self, column: pa.Array, files: Sequence[FileEntry], most_bytes: int | None
    ) -> Iterator[bytes | memoryview | None]:
        """Return the first bytes of each value (all with None); None where it is null or unavailable.

        A value that must be unpacked first (a compressed range, one image of several) is read completely. Its unpacked
        bytes are released before many more are produced.

        Raises:
            StoreError: the store failed.
        """
        refs = unpack(column)
        ranges = None if most_bytes is None else self._plain_ranges(refs, files)
        if ranges is not None and most_bytes is not None:
            # Not through the map: a page fault costs twice as much as a small read, and leaves a page to release.
            return ranges.read_each(refs, most_bytes)
        return self._heads(refs, files, _ALL_BYTES if most_bytes is None else most_bytes)

    def _heads(self, refs: Refs, files: Sequence[FileEntry], most_bytes: int) -> Iterator[bytes | memoryview | None]:
        most = np.where((refs.codec == 0) & (refs.frame < 0), most_bytes, _ALL_BYTES)
        at = self._locate(replace(refs, length=np.minimum(refs.length, most)), files, most)
        each = np.arange(len(refs.valid))  # the values of one sample are not in memory together
        for first, stop in _unpacked({"": at}, {"": refs}, files, self.limits, len(each), each, _UNPACKED_BYTES):
            for value in slices(_build(at.part(first, stop), views=True)):
                # A copy, because a view would hold all unpacked bytes.
                yield value if value is None or len(value) <= most_bytes else bytes(value[:most_bytes])

    def fetch(
        self, column: pa.Array, files: Sequence[FileEntry], starts: NDArray[np.int64] | None = None
    ) -> tuple[pa.Array, dict[int, LadingError]]:
        """Return the values of a reference column as views, null where unavailable, and the errors by row.

        Args:
            column: the references.
            files: their files table.
            starts: first row of each sample; None treats each value as a sample.

        Raises:
            StoreError: the store failed.
        """
        refs = unpack(column)
        at, samples = self._locate(refs, files), np.arange(len(refs.valid)) if starts is None else starts
        for _ in _unpacked({"": at}, {"": refs}, files, self.limits, len(refs.valid), samples, None):
            pass
        return _build(at, views=True), at.errors

    def values(self, column: pa.Array, files: Sequence[FileEntry]) -> Iterator[bytes | None]:
        """Yield the values of a reference column one at a time, each read on demand; None where null.

        For loops over samples: a value that is released before the next one leaves its memory for reuse.

        Raises:
            BadReference: a range is outside its file.
        """
        refs = unpack(column)
        found = self._plain_ranges(refs, files)
        if found is not None:
            return found.read_each(refs)
        if self._are_files(refs, files):
            return self._values_of_files(refs, files)
        return self._unpacked_values(column, refs, files)

    def _are_files(self, refs: Refs, files: Sequence[FileEntry]) -> bool:
        """Return whether values are plain ranges of local files that are too many to be kept open."""
        if refs.codec[refs.valid].any() or (refs.frame[refs.valid] >= 0).any() or (refs.length[refs.valid] < 0).any():
            return False
        numbers = np.unique(refs.file[refs.valid]).tolist()
        named = [files[number] for number in numbers if 0 <= number < len(files)]
        stores = {id(store): store for store, _ in (resolve(file.url, self.stores) for file in named)}
        local = all(isinstance(store, Mapper) for store in stores.values())
        return local and len(named) == len(numbers) and not any(file.wrap for file in named)

    def _values_of_files(self, refs: Refs, files: Sequence[FileEntry]) -> Iterator[bytes | None]:
        """Yield values, each out of a file that is opened for it. Memory of one value serves the next."""
        places = zip(refs.file.tolist(), refs.offset.tolist(), refs.length.tolist(), refs.valid.tolist(), strict=True)
        for row, (number, offset, length, valid) in enumerate(places):
            if not valid:
                yield None
                continue
            entry = files[number]
            store, path = resolve(entry.url, self.stores)
            try:
                file = cast("Mapper", store).open_file(path)
                check_version(path, entry.version, file.version)
                data = file.read(offset, length)
            except NotFound as error:
                raise BadReference("the reference names no file", file=error.file, row=row,
                                   found=error.message) from error  # fmt: skip
            if len(data) < length:
                raise BadReference(
                    "the reference runs past the end of the file", file=entry.url, offset=offset, row=row,
                    expected=f"{length} bytes", found=f"{len(data)} bytes",
                    advice="The file was cut or replaced since the reference was made.",
                )  # fmt: skip
            yield data

    def _unpacked_values(self, column: pa.Array, refs: Refs, files: Sequence[FileEntry]) -> Iterator[bytes | None]:
        """Yield values, unpacking a few at a time: neither packed nor unpacked bytes may grow with the column."""
        schema = with_files(pa.schema([("value", column.type)]), files)
        rows = np.arange(len(column))
        for first, stop in value_bounds(np.where(refs.valid, refs.length, 0).clip(0), _UNPACKED_BYTES):
            batch = pa.record_batch([column.slice(first, stop - first)], schema=schema)
            try:
                for part in self.materialise_parts(batch, rows[: stop - first], _UNPACKED_BYTES, views=True):
                    yield from (None if value is None else bytes(value) for value in slices(part.column("value")))
                    del part  # before as much is unpacked again
            except LadingError as error:
                error.row = None if error.row is None else first + error.row
                raise
            self.release()

    def file_ranges(self, batch: pa.RecordBatch) -> dict[str, ByteRanges]:
        """Return the checked local byte ranges of reference columns.

        For a sink that copies from files. Two kinds of columns are left out: those with other references, and those
        with small values, which are faster to read together. Nothing is returned if rows arrived with an error.
        """
        found: dict[str, ByteRanges] = {}
        if earlier_errors(batch):
            return found
        files = files_of(batch.schema)
        for name in (f.name for f in batch.schema if is_ref(f.type)):
            refs = unpack(batch.column(name))
            plain = self._plain_ranges(refs, files)
            if plain is None or int(plain.length.sum()) < _MIN_RANGE_BYTES * np.count_nonzero(refs.valid):
                continue
            found[name] = plain.pieces(refs)
        return found

    def pieces_to_read(self, batch: pa.RecordBatch, wanted: Mapping[str, NDArray[np.bool_]]) -> dict[str, ByteRanges]:
        """Return the local byte ranges of reference columns, for callers that read all their bytes once.

        Files are then read in their own order (`_core.storage.windows`). Columns that are not plain ranges of local
        files are left out. So are columns of which most values are wanted, if the values are so small that a call for
        each costs more.

        Args:
            batch: the references.
            wanted: names of columns, and which of their values.
        """
        files = files_of(batch.schema)
        refs = {name: unpack(batch.column(name)) for name in wanted}
        count = {name: int(np.count_nonzero(one.valid)) for name, one in refs.items()}
        # The reference to a whole file does not hold its length.
        size = sum(
            int(np.where(one.length < 0, _MIN_RANGE_BYTES, one.length)[one.valid].sum()) for one in refs.values()
        )
        small = size < _MIN_RANGE_BYTES * sum(count.values())
        wanted_refs = {name: replace(one, valid=one.valid & wanted[name]) for name, one in refs.items()}
        found = {}
        for name, one in wanted_refs.items():
            few = 2 * np.count_nonzero(one.valid) <= count[name]
            plain = self._plain_ranges(one, files) if few or not small else None
            if plain is not None:
                found[name] = plain.pieces(one)
        return found

    def read_large(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its columns of large values read, as `file_ranges` allows; no map is touched."""
        found = self.file_ranges(batch).items()
        return with_columns(batch, {batch.schema.get_field_index(name): in_memory(pieces) for name, pieces in found})

    def _plain_ranges(self, refs: Refs, files: Sequence[FileEntry]) -> _PlainRanges | None:
        """Return the references by file, if all are ranges of few files of this machine and are inside them."""
        rows = np.flatnonzero(refs.valid)
        numbers = np.unique(refs.file[rows]).tolist()
        if refs.codec[rows].any() or (refs.frame[rows] >= 0).any() or len(numbers) > self._max_open:
            return None
        found = _PlainRanges(np.where(refs.valid, refs.length, 0), [])
        for number in numbers:
            entry = files[number] if 0 <= number < len(files) else None
            if entry is None or entry.wrap:
                return None
            store, path = resolve(entry.url, self.stores)
            if not isinstance(store, Mapper):
                return None
            try:
                file = self._open(store, path)
                check_version(path, entry.version, file.version)
                file.check()
            except _OF_THE_FILE:
                return None
            mine = rows[refs.file[rows] == number]
            length, good = _clipped(refs.offset[mine], refs.length[mine], file.size_bytes)
            if not good.all():
                return None
            found.length[mine] = length
            found.files.append((file, mine))
        return found

    def _locate_columns(self, refs: Mapping[str, Refs], files: Sequence[FileEntry]) -> dict[str, _Located]:
        """Return where the ranges of each column are in memory; of remote files, neighbours in all columns together."""
        stores = [resolve(file.url, self.stores)[0] for file in files]
        if len(refs) < 2 or not stores or not all(is_remote(store) for store in stores):  # noqa: PLR2004 - to join
            return {name: self._locate(one, files) for name, one in refs.items()}
        every = self._locate(_joined(list(refs.values())), files)
        ends = np.cumsum([0, *(len(one.valid) for one in refs.values())]).tolist()
        found = {}
        for name, (first, stop) in zip(refs, pairwise(ends), strict=True):
            found[name] = every.part(first, stop)
            for error in found[name].errors.values():
                error.row = None if error.row is None else error.row - first
        return found

    def _locate(self, refs: Refs, files: Sequence[FileEntry], most_bytes: NDArray[np.int64] | None = None) -> _Located:
        """Return where the ranges are in memory."""
        count = len(refs.offset)
        at = _Located(
            [], np.zeros(count, np.int32), refs.offset.copy(), np.where(refs.valid, refs.length, 0), refs.valid.copy(),
            most_bytes=most_bytes,
        )  # fmt: skip
        asked: list[tuple[NDArray[np.int64], Callable[[], _Answer], bool]] = []
        by_file = _by_file(refs)
        few = len(by_file) <= self._max_open  # reading from many files by turns opens them again and again
        for number, rows in by_file:
            if not 0 <= number < len(files):
                at.fail(rows.tolist(), BadReference("the reference names no file of its table", found=number))
                continue
            entry = files[number]
            store, path = resolve(entry.url, self.stores)
            try:
                if entry.wrap:
                    self._read_unwrapped(at, rows, entry, store, path)
                elif len(rows) == 1 and not is_remote(store) and _read_one(at, int(rows[0]), entry, store, path):
                    continue
                elif few and isinstance(store, Mapper):
                    (self._view_map if self.mmap else self._read_file)(at, rows, entry, store, path)
                else:
                    asked.append((rows, partial(_ask, at, rows, entry, store, path, self.recent), is_remote(store)))
            except _OF_THE_FILE as error:
                at.fail(rows.tolist(), error)
        answers = concurrent_map([ask for _, ask, _ in asked], remote=any(far for *_, far in asked))
        for (rows, *_), answer in zip(asked, answers, strict=True):
            _take_answer(at, rows, answer)
        return at

    def _view_map(self, at: _Located, rows: NDArray[np.int64], entry: FileEntry, store: Mapper, path: str) -> None:
        mapped = self._map(store, path)
        check_version(path, entry.version, mapped.version)
        mapped.check()
        rows = _inside(at, rows, entry, mapped.size_bytes)
        if len(rows):
            at.which[rows] = len(at.buffers)
            at.buffers.append(mapped.buffer)
            start, stop = int(at.offset[rows].min()), int((at.offset[rows] + at.length[rows]).max())
            self._touched.append((mapped, start, stop, int(at.length[rows].sum())))

    def _read_file(self, at: _Located, rows: NDArray[np.int64], entry: FileEntry, store: Mapper, path: str) -> None:
        """Read the ranges of a file, neighbours together."""
        file = self._open(store, path)
        check_version(path, entry.version, file.version)
        file.check()
        rows = _inside(at, rows, entry, file.size_bytes)
        offset, length = at.offset[rows], at.length[rows]
        copied = int(length.sum()) < _MIN_VIEW_BYTES * len(rows)
        gap, most = (_COPY_GAP_BYTES, _WINDOW_BYTES) if copied else (_VIEW_GAP_BYTES, BUFFER_BYTES)
        plan = plan_ranges(offset, length, max_gap_bytes=gap, max_request_bytes=most)
        if copied and int(plan.length.sum()) >= _MIN_RANGE_BYTES * len(plan.length):
            _copy_windows(file, plan, at, rows)
        else:
            buffers, which, at.offset[rows] = read_together(file, plan)
            at.which[rows] = len(at.buffers) + which
            at.buffers += buffers

    def _open(self, store: Mapper, path: str) -> OpenFile:
        if self.mmap:
            return self._map(store, path)
        return self._recent(self._files, path, partial(store.open_file, path), self._max_open)

    def _map(self, store: Mapper, path: str) -> MappedFile:
        return self._recent(self._maps, path, partial(store.map, path), self._max_open)

    def _read_unwrapped(self, at: _Located, rows: NDArray[np.int64], entry: FileEntry, store: Store, path: str) -> None:
        def opened() -> UnwrappedFile:
            return UnwrappedFile(store, path, entry.wrap, version=entry.version, limits=self.limits)

        stream = self._recent(self._unwrapped, path, opened, _MAX_STREAMS)
        with stream.turn:
            for row in rows[np.argsort(at.offset[rows], kind="stable")].tolist():
                try:
                    at.replace(row, stream.read(int(at.offset[row]), int(at.length[row])))
                except BadReference as error:
                    at.fail([row], error)

    def _recent(self, kept: OrderedDict[str, _Opened], path: str, opened: Callable[[], _Opened], most: int) -> _Opened:
        """Return the opened object of a path from a cache that keeps the `most` last used."""
        with self._lock:
            if path in kept:
                kept.move_to_end(path)
                return kept[path]
            while len(kept) >= most:
                kept.popitem(last=False)
        made = opened()  # outside of the lock: a store may be slow, and nobody else needs to wait
        with self._lock:
            return kept.setdefault(path, made)


def _joined(parts: Sequence[Refs]) -> Refs:
    """Return the references of several columns, one after the other."""
    return Refs(
        **{
            each.name: pa.concat_arrays([part.member for part in parts])
            if each.name == "member"
            else np.concatenate([getattr(part, each.name) for part in parts])
            for each in fields(Refs)
        }
    )


def _by_file(refs: Refs) -> list[tuple[int, NDArray[np.int64]]]:
    """Return the number of each file that valid references name, and their rows."""
    rows = np.flatnonzero(refs.valid)
    rows = rows[np.argsort(refs.file[rows], kind="stable")]
    numbers, begins = np.unique(refs.file[rows], return_index=True)
    return list(zip(numbers.tolist(), np.split(rows, begins[1:]), strict=True)) if len(rows) else []


def _read_one(at: _Located, row: int, entry: FileEntry, store: Store, path: str) -> bool:
    """Read a small value, the only one of its file; False if another way is better, or tells what is wrong."""
    offset, length = int(at.offset[row]), int(at.length[row])
    if not 0 <= length <= _SMALL_FILE_BYTES or not 0 <= offset <= entry.size_bytes - length:
        return False
    try:
        [data] = ranges_of(store, path, [(offset, length)], entry.version)
    except ShortRead:  # the file became shorter since it was listed
        return False
    at.which[row], at.offset[row] = len(at.buffers), 0
    at.buffers.append(pa.py_buffer(data))
    if at.most_bytes is not None:
        at.length[row] = min(length, int(at.most_bytes[row]))
    return True


def value_bounds(length: NDArray[np.int64], max_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of parts of values that have at most so many bytes; a larger value is a part of its own."""
    yield from pairwise(split_rows(np.arange(len(length)), length, max_bytes=max_bytes).tolist())


def _clipped(
    offset: NDArray[np.int64], length: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the lengths of ranges clipped to a file, and which are inside it. Length −1 is the rest of the file."""
    length = np.where(length == -1, size - offset, length)
    return length, (offset >= 0) & (length >= 0) & (offset <= size) & (length <= size - offset)


def _inside(at: _Located, rows: NDArray[np.int64], entry: FileEntry, size: int) -> NDArray[np.int64]:
    """Return the rows whose ranges are inside the file, cut to the wanted bytes; the others fail."""
    at.length[rows], good = _clipped(at.offset[rows], at.length[rows], size)
    for row in rows[~good].tolist():
        at.fail([row], BadReference(
            "the reference runs past the end of the file", file=entry.url, offset=int(at.offset[row]), row=row,
            expected=f"{int(at.length[row])} bytes", found=f"a file of {size} bytes",
            advice="The file was cut or replaced since the reference was made.",
        ))  # fmt: skip
    inside = rows[good]
    if at.most_bytes is not None:
        at.length[inside] = np.minimum(at.length[inside], at.most_bytes[inside])
    return inside


def _ask(
    at: _Located, rows: NDArray[np.int64], entry: FileEntry, store: Store, path: str, recent: RecentBytes
) -> _Answer:
    """Return the valid rows of one file, the buffer of each and its start there, and the buffers; or the file's error.

    May run concurrently with others of the same column: it touches only its own rows.
    """
    try:
        size = entry.size_bytes if entry.size_bytes >= 0 else store.head(path).size_bytes
        inside = _inside(at, rows, entry, size)
        asked = partial(_asked, store=store, path=path, version=entry.version)
        try:
            return inside, *recent.read(entry, at.offset[inside], at.length[inside], asked)
        except ShortRead:
            now = store.head(path).size_bytes
            if now >= size:
                raise
            inside = _inside(at, rows, entry, now)  # the file became shorter since it was listed
            plan, answers = asked(at.offset[inside], at.length[inside])
            return inside, plan.request_of, plan.offset_in, answers
    except _OF_THE_FILE as error:
        return error


def _asked(
    offset: NDArray[np.int64], length: NDArray[np.int64], store: Store, path: str, version: str
) -> tuple[FetchPlan, list[pa.Buffer]]:
    gap = store.request_bytes // GAPS_A_REQUEST
    plan, wide = (
        plan_ranges(offset, length, max_gap_bytes=most, max_request_bytes=_MAX_REQUEST_BYTES) for most in (gap, 2 * gap)
    )
    plan = wide if FEWER * len(wide.length) <= len(plan.length) else plan
    return plan, [pa.py_buffer(b) for b in ranges_of(store, path, plan.requests, version)]


def _copy_windows(file: OpenFile, plan: FetchPlan, at: _Located, rows: NDArray[np.int64]) -> None:
    """Copy small values out of windows of a file: memory that is used again costs no page faults."""
    order = np.argsort(plan.request_of, kind="stable")
    bounds = np.searchsorted(plan.request_of[order], np.arange(len(plan.length) + 1)).tolist()
    window = room_for(int(plan.length.max()))
    body = as_view(window)
    few: list[NDArray[np.int64]] = []
    copies: list[bytes] = []
    for (offset, size), first, stop in zip(plan.requests, bounds[:-1], bounds[1:], strict=True):
        file.read_into([body[:size]], offset)
        mine = order[first:stop]
        length = at.length[rows[mine]]
        if len(mine) <= _FEW_VALUES and size <= _FEW_BYTES:
            starts = plan.offset_in[mine].tolist()
            few.append(rows[mine])
            copies.append(b"".join([body[i : i + n] for i, n in zip(starts, length.tolist(), strict=True)]))
            if len(copies) == _WINDOWS_TOGETHER:
                _keep_copies(at, few, copies)
            continue
        copied = join(from_ranges(window, plan.offset_in[mine], length))
        at.which[rows[mine]] = len(at.buffers)
        at.offset[rows[mine]] = np.cumsum(length) - length
        at.buffers.append(copied.buffers()[2])
    _keep_copies(at, few, copies)


def _keep_copies(at: _Located, few: list[NDArray[np.int64]], copies: list[bytes]) -> None:
    """Take the copied values of these rows into one buffer, and empty both lists."""
    if not few:
        return
    rows = np.concatenate(few)
    at.which[rows] = len(at.buffers)
    at.offset[rows] = np.cumsum(at.length[rows]) - at.length[rows]
    at.buffers.append(pa.py_buffer(b"".join(copies)))
    few.clear()
    copies.clear()


def _take_answer(at: _Located, rows: NDArray[np.int64], answer: _Answer) -> None:
    if isinstance(answer, LadingError):
        at.fail(rows.tolist(), answer)
        return
    inside, which, start, buffers = answer
    at.which[inside] = len(at.buffers) + which
    at.offset[inside] = start
    at.buffers += buffers


def _unpacked(
    located: Mapping[str, _Located],
    refs: Mapping[str, Refs],
    files: Sequence[FileEntry],
    limits: Limits,
    count: int,
    samples: NDArray[np.int64],
    max_bytes: int | None,
) -> Iterator[tuple[int, int]]:
    """Unpack ranges with a codec and pick frames, one by one; yield the bounds of complete rows.

    Each yield covers so many samples, by their first rows, that their unpacked bytes reach `max_bytes`, or all of them.
    The bytes of earlier samples are released.
    """
    names = list(located)
    packed = [np.flatnonzero(at.valid & ((refs[n].codec != 0) | (refs[n].frame >= 0))) for n, at in located.items()]
    row = np.concatenate([np.zeros(0, np.int64), *packed])
    column = np.repeat(np.arange(len(names)), [len(rows) for rows in packed])
    order = np.lexsort((column, row))
    sample = np.searchsorted(samples, row, "right") - 1
    begun: list[tuple[_Located, int]] = []
    tiffs, growth = _Tiffs(limits), Growth(limits)
    first = size = last = 0
    places = zip(row[order].tolist(), column[order].tolist(), sample[order].tolist(), strict=True)
    for at_row, at_column, mine in places:
        if mine != last:
            growth = Growth(limits)
        if max_bytes is not None and mine != last and size >= max_bytes:
            stop = int(samples[mine])
            yield first, stop
            for at, buffer in begun:
                at.buffers[buffer] = _GONE
            begun, first, size = [], stop, 0
        at, last = located[names[at_column]], mine
        if _unpack_value(at, refs[names[at_column]], files, tiffs, growth, at_row):
            begun.append((at, len(at.buffers) - 1))
            size += int(at.length[at_row])
    yield first, count


_GONE = pa.py_buffer(b"")


class _Tiffs:
    """Extract frames of image files; the frame table of a TIFF is read once, however many rows refer to it.

    Args:
        limits: limits on the resources that such files may take.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._found: dict[_Range, NDArray[np.int64] | LadingError | None] = {}

    def frame(self, place: _Range, data: bytes | memoryview, index: int) -> bytes:
        """Return one frame of the image file at a location. Raises as `extract_frame`."""
        if place not in self._found:
            try:
                self._found[place] = tiff_frames(data, self.limits)
            except (BadReference, LimitExceeded) as error:
                self._found[place] = error
        found = self._found[place]
        if isinstance(found, LadingError):
            raise copy(found)  # the location in the message is that of the row
        return extract_frame(data, index, self.limits, found)


def _unpack_value(
    at: _Located, refs: Refs, files: Sequence[FileEntry], tiffs: _Tiffs, growth: Growth, row: int
) -> bool:
    """Return whether the value could be unpacked."""
    limits = tiffs.limits
    body = memoryview(at.buffers[at.which[row]]).cast("B")
    data: bytes | memoryview = body[at.offset[row] : at.offset[row] + at.length[row]]
    try:
        if refs.codec[row]:
            with raised_by("range_bytes"):
                data = decode_range(_codec(int(refs.codec[row])), data, limits.range_bytes, limits)
        place = (int(refs.file[row]), int(refs.offset[row]), int(refs.length[row]), int(refs.codec[row]))
        if refs.frame[row] >= 0:
            data = tiffs.frame(place, data, int(refs.frame[row]))
        growth.add(place, len(data), int(at.length[row]))
        at.replace(row, bytes(data))
    except (CorruptShard, BadReference, LimitExceeded) as error:
        at.fail([row], error.at(file=files[refs.file[row]].url, offset=int(refs.offset[row]), row=row))
        return False
    return True


def _codec(number: int) -> str:
    if not 0 <= number < len(CODECS):
        raise BadReference("the reference names no codec", found=number)
    return CODECS[number]


def _build(at: _Located, *, views: bool) -> pa.Array:
    column = gather(at.buffers, at.which, at.offset, at.length, at.valid)
    return column if views else join(column)


def _kept(at: _Located, keep: NDArray[np.bool_]) -> _Located:
    return _Located(at.buffers, at.which[keep], at.offset[keep], at.length[keep], at.valid[keep])


def warn_failed(messages: Mapping[int, str]) -> None:
    """Warn of rows whose payload is unavailable, of which the messages say why."""
    without = count(len(messages), "row has no bytes", "rows have no bytes")
    warnings.warn(f"{without}; the first: {next(iter(messages.values()))}", stacklevel=4)


def _apply_policy(
    batch: pa.RecordBatch,
    located: dict[str, _Located],
    earlier: dict[int, str],
    on_error: OnError,
    on_failure: OnFailure | None,
    first: int,
) -> tuple[pa.RecordBatch, NDArray[np.bool_] | None]:
    """Return the batch with errors recorded or rows dropped, and which rows were kept (None = all).

    Errors count rows from `first` on, the place of the batch in its source.
    """
    if on_error not in get_args(OnError):
        raise UsageError("no such policy", expected=", ".join(get_args(OnError)), found=repr(on_error))
    errors = {row: e.at(column=name) for name, at in located.items() for row, e in at.errors.items()}
    if on_error == "error":
        if errors or earlier:
            row = min([*errors, *earlier])
            missing = BadReference(earlier.get(row, ""), file=_lineage(batch), row=first + row, advice=ELSEWHERE)
            raise errors.get(row) or missing
        return batch, None
    errors = {**_empty(batch, located), **errors}
    errors = {row: error for row, error in errors.items() if row not in earlier}
    if not errors and not earlier:
        return batch, None
    for error in errors.values():
        error.row = None  # the row number is next to the text, and counts in this batch
    messages = dict(sorted({**{row: error.problem for row, error in errors.items()}, **earlier}.items()))
    batch = write_errors(batch, messages)
    if on_failure is not None:
        on_failure(batch, messages, first)
    elif on_error == "warn":
        warn_failed(messages)
    if on_error == "warn":
        return batch, None
    bad = np.zeros(batch.num_rows, np.bool_)
    bad[list(messages)] = True
    if on_error == "drop_sample" and "sample_id" in batch.schema.names:
        bad = samples_with(bad, sample_starts(batch.column("sample_id")))
    return take_rows(batch, np.flatnonzero(~bad)), ~bad


def _empty(batch: pa.RecordBatch, located: dict[str, _Located]) -> dict[int, LadingError]:
    """Return which items of a table lack payload and source, although they should have payload.

    No read failed, so `error` accepts them, as it accepts every null. The other policies name or drop them.
    """
    nulls_are_meant = MEANT_NULLS_KEY in (batch.schema.metadata or {})
    if nulls_are_meant or not {"modality", "binary_content"} <= set(batch.schema.names):
        return {}
    at = located.get("binary_content")
    there = present(batch.column("binary_content")) if at is None else at.valid
    modality = batch.column("modality").cast(pa.string())  # pyarrow cannot look up values in views
    without = pc.is_in(modality, value_set=pa.array(WITHOUT_BYTES))
    rows = np.flatnonzero(~there & ~np.asarray(without.to_numpy(zero_copy_only=False), np.bool_))
    return {row: BadReference("the item has no bytes, and names no source", row=row) for row in rows.tolist()}


def _lineage(batch: pa.RecordBatch) -> str | None:
    """Return the files that a batch came from, if it records them."""
    return ", ".join(lineage_of(batch.schema)) or None


def earlier_errors(batch: pa.RecordBatch) -> dict[int, str]:
    """Return the errors in the column `materialize_error`, by row."""
    if ERROR_COLUMN not in batch.schema.names:
        return {}
    column = batch.column(ERROR_COLUMN)
    if column.null_count == len(column):
        return {}
    return {i: text for i, text in enumerate(column.to_pylist()) if text}


def write_errors(batch: pa.RecordBatch, errors: Mapping[int, str]) -> pa.RecordBatch:
    """Return the batch with these errors in its column `materialize_error`, by row; existing errors stay."""
    if not errors or ERROR_COLUMN not in batch.schema.names:
        return batch
    texts = batch.column(ERROR_COLUMN).to_pylist()
    for row, error in errors.items():
        texts[row] = texts[row] or error
    i = batch.schema.get_field_index(ERROR_COLUMN)
    field = batch.schema.field(i)
    field = field.with_type(pa.string()) if pa.types.is_null(field.type) else field
    return batch.set_column(i, field, pa.array(texts, field.type))


@public("lading.features.materialise")
def materialise(
    batch: pa.RecordBatch,
    columns: Sequence[str] | None = None,
    on_error: OnError = "error",
    *,
    stores: Stores | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> pa.RecordBatch:
    """Return a batch with its payload: reference columns become `large_binary`.

    Example:
        texts = lading.features.materialise(batch, ["json"])["json"].to_pylist()

    Opens and closes the files.

    Args:
        batch: batch with reference columns, as `Dataset.batches(lazy=True)` and functions of `map` and `filter` get it.
        columns: columns to read; None for all.
        on_error: for a row with unavailable payload: `error`, `warn`, `drop_row` or `drop_sample`.
        stores: which store serves which URL.
        limits: limits on what the files may ask for.

    Raises:
        BadReference: payload is unavailable, under `on_error="error"`.
        StoreError: a store failed.
    """
    with Fetcher(stores, limits=limits) as fetcher:
        return fetcher.materialise(batch, columns, on_error)
