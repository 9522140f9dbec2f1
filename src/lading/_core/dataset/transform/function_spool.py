"""What functions of the user's made of samples, kept by the number of each sample, so that they are called once.

Kept are the columns that a function made or changed, and the answers of filters; payload that it left alone is not.
They are Arrow IPC streams: up to 16 MB in memory, more in a file a step. A chunk of the file has a header with its
size and checksum, so that a chunk that a killed process left torn is known, and cut off. Other processes that call the
function for some of the samples have files of their own, NAME.TOKEN, next to it.
"""

from __future__ import annotations

import os
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import concat, is_ref, with_refs
from lading._core.arrow.views import reorder, take_rows, without_views
from lading._core.features.items import sample_rows
from lading._core.features.row_layout import row_layout
from lading._core.storage.temporary import temporary_folder
from lading.errors import LadingError, StoreError

if TYPE_CHECKING:
    from lading._core.dataset.steps.base import Step

__all__ = ["FunctionSpool", "SampleRows", "StepSpool", "called", "joined", "kept_rows", "whole_rows"]

_HELD_BYTES, _CHUNK_BYTES = 16 << 20, 1 << 20
_MAGIC, _HEAD = b"LFS1", struct.Struct("<4sIQQ")
"""Of a chunk in the file: a mark, the CRC-32 of what follows the header, the number of samples, the bytes behind it."""
_FIRST_PIECE, _MOST_PIECE, _PIECE_SECONDS = 16, 4096, 2.0
"""Samples for which a function is called before what it made is put into a file that outlives a killed process."""
_STEP_NAME = "function-{:03d}"
_NAMES, _ROWS = b"lading.columns", "?"
"""Of what a function over batches made: the names of all columns, and a column that only counts rows."""


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Rows that a function made of samples.

    Attributes:
        samples: the samples, by their numbers in the source or by their places in a batch.
        counts: number of rows of each sample.
        rows: the rows, sample by sample.
    """

    samples: NDArray[np.int64]
    counts: NDArray[np.int64]
    rows: pa.RecordBatch

    def chosen(self, places: NDArray[np.int64]) -> SampleRows:
        """Return some of the samples."""
        bounds = np.concatenate(([0], np.cumsum(self.counts)))
        return SampleRows(self.samples[places], self.counts[places], take_rows(self.rows, sample_rows(bounds, places)))


@dataclass(slots=True)
class _Chunk:
    first: int
    last: int
    held: SampleRows | None = None
    path: str = ""
    begin: int = 0
    size: int = 0


class StepSpool:
    """What the function of one step made of samples.

    Args:
        folder: gives the folder of the file; asked when there is more than memory may hold.
        name: of the file.
        lasts: whether the file is to outlive a killed process: then nothing waits in memory.

    Attributes:
        records: whether what the function makes from now on is kept.
        lasts: see above.
        piece: samples for which the function is called before what it made is kept, if the file is to last.
        asked: samples that came to the function so far; of some it was kept what the function made.
        seconds: time that calls of the function took so far.
    """

    def __init__(self, folder: Callable[[], str], name: str, *, lasts: bool = False) -> None:
        self.records, self.lasts, self.piece = True, lasts, _FIRST_PIECE
        self.asked, self.seconds = 0, 0.0
        self._folder, self._name, self._pid = folder, name, os.getpid()
        self._chunks: list[_Chunk] = []
        self._bounds = np.zeros((0, 2), np.int64)
        self._held, self._end = 0, 0
        self._added_bytes, self._added = 0, 0
        self._recent: tuple[_Chunk, SampleRows] | None = None
        self._lock, self._lock_pid = threading.RLock(), self._pid

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self._chunks)

    def _guard(self) -> threading.RLock:
        """Return the lock; a forked child has one of its own: a thread that only its parent has may hold the other."""
        if self._lock_pid != os.getpid():
            self._lock, self._lock_pid = threading.RLock(), os.getpid()
        return self._lock

    @property
    def bytes_a_sample(self) -> float:
        """Bytes that what the function made takes, on the average of the samples for which it was called so far."""
        return self._added_bytes / max(self._added, 1)

    @property
    def seconds_a_sample(self) -> float:
        """Time that the function takes, on the average of the samples for which it was called so far."""
        return self.seconds / max(self._added, 1)

    @property
    def path(self) -> str:
        """The path of the file."""
        return os.path.join(self._folder(), self._name)

    def add(self, made: SampleRows) -> None:
        """Keep what the function made of samples that are not kept yet.

        Raises:
            StoreError: the file cannot be written.
        """
        if not self.records or not len(made.samples) or os.getpid() != self._pid:
            return
        made = replace(made, rows=without_views(made.rows))
        with self._guard():
            self._chunks.append(_Chunk(int(made.samples.min()), int(made.samples.max()), made))
            size = made.rows.nbytes + 16 * len(made.samples)
            self._held, self._added_bytes = self._held + size, self._added_bytes + size
            self._added += len(made.samples)
            if self.lasts or self._held >= _HELD_BYTES:
                self.flush()

    def take(self, other: StepSpool) -> None:
        """Keep what another spool keeps of further samples."""
        for chunk in list(other._chunks):
            part = other._loaded(chunk)
            known, _ = self.find(part.samples)
            self.add(part.chosen(np.flatnonzero(~known)))

    def find(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.bool_], list[SampleRows]]:
        """Return which samples are kept, and what the function made of them, by their places among the numbers.

        Raises:
            StoreError: the file cannot be read.
        """
        left, found = np.ones(len(numbers), np.bool_), []
        with self._guard():
            for chunk in self._touched(numbers):
                part = self._loaded(chunk)
                order = np.argsort(part.samples, kind="stable")
                at = np.searchsorted(part.samples, numbers, sorter=order)
                at = order[np.minimum(at, len(order) - 1)]
                hit = np.flatnonzero(left & (part.samples[at] == numbers))
                if len(hit):
                    found.append(replace(part.chosen(at[hit]), samples=hit))
                    left[hit] = False
                if not left.any():
                    break
        return ~left, found

    def _touched(self, numbers: NDArray[np.int64]) -> list[_Chunk]:
        """Return the chunks that may hold some of the samples."""
        if len(self._bounds) != len(self._chunks):
            self._bounds = np.array([(chunk.first, chunk.last) for chunk in self._chunks], np.int64).reshape(-1, 2)
        rising = np.sort(numbers)
        low = np.searchsorted(rising, self._bounds[:, 0], "left")
        high = np.searchsorted(rising, self._bounds[:, 1], "right")
        return [self._chunks[i] for i in np.flatnonzero(low < high).tolist()]

    def _loaded(self, chunk: _Chunk) -> SampleRows:
        if chunk.held is not None:
            return chunk.held
        if self._recent is None or self._recent[0] is not chunk:
            self._recent = chunk, _decoded(_read(chunk))
        return self._recent[1]

    # The file

    def flush(self) -> None:
        """Put what memory holds into the file.

        Raises:
            StoreError: the file cannot be written.
        """
        with self._guard():
            held = [chunk for chunk in self._chunks if chunk.held is not None]
            if not held or os.getpid() != self._pid:
                return
            kept = [chunk for chunk in self._chunks if chunk.held is None]
            path = self.path
            with _writing(os.path.dirname(path), lasts=self.lasts), open(path, "r+b" if self._end else "wb") as file:
                for part in _merged([chunk.held for chunk in held if chunk.held is not None]):
                    begin = self._end + _HEAD.size
                    size = _write_chunk(file, self._end, part)
                    first, last = int(part.samples.min()), int(part.samples.max())
                    kept.append(_Chunk(first, last, None, path, begin, size))
                    self._end = begin + size
            self._chunks, self._held = kept, 0
            self._bounds = np.zeros((0, 2), np.int64)

    def save(self) -> list[str]:
        """Put all into files, and return their paths."""
        self.flush()
        return list(dict.fromkeys(chunk.path for chunk in self._chunks))

    def reopen(self) -> None:
        """Take what other processes left in the file, and in files of their own, if the file is to last.

        The torn end of a file is cut off.
        """
        folder, name = os.path.split(self.path)
        theirs = sorted(each for each in os.listdir(folder) if each.startswith(f"{name}."))
        for path in [self.path, *(os.path.join(folder, each) for each in theirs)]:
            if os.path.exists(path):
                os.truncate(path, self.take_file(path, checked=True))

    def take_file(self, path: str, *, checked: bool = False) -> int:
        """Take what is kept in a file; return where its last whole chunk ends. Chunks may be checked before."""
        end = 0
        with open(path, "rb") as file:
            for begin, size, samples in _whole_chunks(file, checked=checked):
                self._chunks.append(_Chunk(int(samples.min()), int(samples.max()), None, path, begin, size))
                end = begin + size
        if path == self.path:
            self._end = end
        return end


class FunctionSpool:
    """What the functions of a dataset made of samples: a `StepSpool` for each step, by its place among the steps.

    Args:
        folder: where their files lie. By default a temporary folder, which is made when memory does not hold them, and
            removed with this object.
        lasting: of the first steps, the names of their files, which lie in that folder and outlive the process.
        files: files that other processes wrote, by the places of their steps: then nothing is kept, unless there are
            `own` files.
        own: files of this process, by the places of their steps, for what functions make of other samples.
        lock: descriptor of a lock that holds the folder as long as one process has it.
    """

    def __init__(
        self, folder: str | None = None, *, lasting: Sequence[str] = (),
        files: Mapping[int, Sequence[str]] | None = None, own: Mapping[int, str] | None = None, lock: int | None = None,
    ) -> None:  # fmt: skip
        self._given, self._made, self._lasting, self._files, self._own = folder, "", lasting, files, own or {}
        self.lock = lock
        self._steps: dict[int, StepSpool] = {}
        self._stack = ExitStack()
        self._end = weakref.finalize(self, _close, self._stack, os.getpid())

    @property
    def lasts(self) -> bool:
        """Whether some files outlive the process, in the folder that was given."""
        return bool(self._lasting)

    def of(self, place: int) -> StepSpool:
        """Return what the function of a step made."""
        if place not in self._steps:
            self._steps[place] = self._opened(place)
        return self._steps[place]

    def _opened(self, place: int) -> StepSpool:
        if self._files is not None:
            folder, name = os.path.split(self._own.get(place, ""))
            step = StepSpool(lambda: folder, name, lasts=True)
            step.records = bool(name)
            for path in self._files.get(place, ()):
                step.take_file(path)
            return step
        if place >= len(self._lasting):
            return StepSpool(self._folder, _STEP_NAME.format(place))
        step = StepSpool(self._lasting_folder, self._lasting[place], lasts=True)
        step.reopen()
        return step

    def of_steps(self, steps: Sequence[Step], first: int = 0) -> list[StepSpool | None]:
        """Return the same for each of some steps, the first of which has a place; None for one without a function."""
        return [self.of(first + i) if step.is_spooled else None for i, step in enumerate(steps)]

    def take(self, place: int, step: StepSpool | None) -> None:
        """Take what the function of a step made."""
        if step is not None:
            step.records = True
            self._steps[place] = step

    def forget(self, place: int) -> StepSpool | None:
        """Return what the function of a step made, and keep it no longer."""
        step = self._steps.pop(place, None)
        if step is not None:
            step.records = False
        return step

    def shared(self, count: int, lasting: Sequence[str]) -> FunctionSpool:
        """Return a spool of other steps that has what the first functions made in common with this one.

        Args:
            count: number of steps in common.
            lasting: of the other steps, as of this class; names of other steps than those in common differ.
        """
        other = FunctionSpool(self._given, lasting=() if self._given is None else lasting, lock=self.lock)
        for place in range(count):
            other.take(place, self.of(place))
        return other

    def ends(self, first: int = 0) -> None:
        """Keep nothing more of the steps from this one on."""
        for place, step in self._steps.items():
            step.records = step.records and place < first

    def save(self) -> dict[int, list[str]]:
        """Return the files from which other processes read all that is kept, by the places of their steps."""
        return {place: paths for place, step in self._steps.items() if (paths := step.save())}

    def is_empty(self) -> bool:
        """Return whether nothing is kept."""
        return not any(len(step) for step in self._steps.values())

    def close(self) -> None:
        """Remove the temporary folder."""
        self._end()

    def _lasting_folder(self) -> str:
        assert self._given is not None, "else nothing lasts"
        return self._given

    def _folder(self) -> str:
        if not self._made:
            self._made = self._stack.enter_context(temporary_folder())
        return self._made


def called(
    spool: StepSpool, batch: pa.RecordBatch, numbers: NDArray[np.int64], view: str,
    call: Callable[[pa.RecordBatch, NDArray[np.int64]], SampleRows | None], *, whole: bool,
) -> list[SampleRows] | None:  # fmt: skip
    """Call a function for those samples of a batch that are not kept, and keep what it makes.

    Args:
        spool: what the function made before.
        batch: the rows.
        numbers: of its samples in the source.
        view: how rows are taken.
        call: calls the function for rows, and the numbers of their samples; returns what it made, by the places of the
            samples in these rows. None: that is not to be kept.
        whole: call the function for all samples at once.

    Returns:
        What was made, by the places of samples in the batch; None if `call` returns None.
    """
    known, parts = spool.find(numbers)
    spool.asked += len(numbers)
    firsts, left = row_layout(view).bounds(batch), np.flatnonzero(~known)
    for samples in [left] if whole or not spool.lasts or not spool.records else _pieces(spool, left):
        if not len(samples):
            continue
        rows, began = sample_rows(firsts, samples), time.monotonic()
        with _naming(rows):
            made = call(take_rows(batch, rows), numbers[samples])
        spool.seconds += time.monotonic() - began
        if made is None:
            return None
        spool.add(replace(made, samples=numbers[samples]))
        parts.append(replace(made, samples=samples))
    return parts


def joined(parts: Sequence[SampleRows]) -> SampleRows | None:
    """Return the rows of all samples, in their order; None if columns differ in type, other than by being null."""
    if len(parts) == 1:
        return parts[0]
    fields: dict[str, pa.Field] = {}
    for field in (field for part in parts for field in part.rows.schema):
        if field.name not in fields or pa.types.is_null(fields[field.name].type):
            fields[field.name] = field
        elif field.type not in (fields[field.name].type, pa.null()):
            return None
    schema = pa.schema(list(fields.values()))
    whole = pa.Table.from_batches([_with_columns(part.rows, schema) for part in parts])
    samples, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("samples", "counts"))
    order = np.argsort(samples, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(counts)))
    rows = _one_batch(reorder(whole, sample_rows(bounds, order)))
    return SampleRows(samples[order], counts[order], rows)


def kept_rows(before: pa.RecordBatch, made: pa.RecordBatch, view: str) -> SampleRows | None:
    """Return what is kept of rows that a function over batches made: columns that are not those that it got.

    None: it made another number of samples.
    """
    firsts = row_layout(view).firsts(made)
    if len(firsts) != len(row_layout(view).firsts(before)):
        return None
    given = without_views(before)
    own = [name for name in made.schema.names if not _is_same(given, made, name)]
    if any(is_ref(made.schema.field(name).type) for name in own):
        own = made.schema.names  # references name files of a table of their own
    metadata = {**(made.schema.metadata or {}), _NAMES: orjson.dumps(made.schema.names)}
    fields = [*(made.schema.field(name) for name in own), pa.field(_ROWS, pa.null())]
    rows = pa.RecordBatch.from_arrays([*(made.column(name) for name in own), pa.nulls(len(made))],
                                      schema=pa.schema(fields, metadata=metadata))  # fmt: skip
    return SampleRows(np.arange(len(firsts)), np.diff(np.append(firsts, len(made))), rows)


def _is_same(given: pa.RecordBatch, made: pa.RecordBatch, name: str) -> bool:
    """Whether a column is the one that the function got."""
    place = given.schema.get_field_index(name)
    if place < 0 or len(given) != len(made):
        return False
    field, column, other = given.schema.field(place), given.column(place), made.column(name)
    same = field.equals(made.schema.field(name), check_metadata=True) and column.offset == other.offset
    return same and [b and b.address for b in column.buffers()] == [b and b.address for b in other.buffers()]


def whole_rows(parts: Sequence[SampleRows], batch: pa.RecordBatch, view: str) -> pa.RecordBatch | None:
    """Return rows as a function over batches made them, of what was kept and of the rows that it got.

    None if the columns differ in type.
    """
    firsts = row_layout(view).bounds(batch)
    tables = [_completed(part, take_rows(batch, sample_rows(firsts, part.samples))) for part in parts]
    if any(not table.schema.equals(tables[0].schema) for table in tables):
        return None
    samples, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("samples", "counts"))
    order, bounds = np.argsort(samples, kind="stable"), np.concatenate(([0], np.cumsum(counts)))
    return _one_batch(reorder(concat(tables), sample_rows(bounds, order))) if len(tables) > 1 else tables[0]


def _completed(part: SampleRows, before: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the columns that the function left as they were."""
    given, metadata = without_views(before), dict(part.rows.schema.metadata or {})
    names: list[str] = orjson.loads(metadata.pop(_NAMES))
    own = [name in part.rows.schema.names for name in names]
    if not all(own):
        metadata |= given.schema.metadata or {}
    sources = [part.rows if mine else given for mine in own]
    fields = [rows.schema.field(name) for rows, name in zip(sources, names, strict=True)]
    columns = [rows.column(name) for rows, name in zip(sources, names, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks()
    columns = [column.chunk(0) if column.num_chunks else column.combine_chunks() for column in whole.columns]
    return pa.RecordBatch.from_arrays(columns, schema=whole.schema)


def _with_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with nulls in columns that they lack."""
    columns = []
    for field in schema:
        place = rows.schema.get_field_index(field.name)
        found = None if place < 0 else rows.column(place)
        columns.append(found if found is not None and found.type == field.type else pa.nulls(len(rows), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _pieces(spool: StepSpool, samples: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield samples, so many that the function takes some seconds for them."""
    done = 0
    while done < len(samples):
        began, piece = time.monotonic(), samples[done : done + spool.piece]
        yield piece
        done += len(piece)
        slow = time.monotonic() - began > _PIECE_SECONDS
        spool.piece = max(spool.piece // 2, 1) if slow else min(spool.piece * 2, _MOST_PIECE)


@contextmanager
def _naming(rows: NDArray[np.int64]) -> Iterator[None]:
    """Errors of the body that count rows among these name the row of the whole batch."""
    try:
        yield
    except LadingError as error:
        if error.row is not None and error.row < len(rows):
            error.row = int(rows[error.row])
        raise


def _merged(parts: Sequence[SampleRows]) -> Iterator[SampleRows]:
    """Yield the same in larger parts: neighbours that have the same columns."""
    waiting: list[SampleRows] = []
    for part in [*parts, None]:
        if waiting and (
            part is None
            or part.rows.schema != waiting[0].rows.schema
            or part.rows.schema.metadata != waiting[0].rows.schema.metadata
            or sum(each.rows.nbytes for each in waiting) >= _CHUNK_BYTES
        ):
            samples, counts = (np.concatenate([getattr(w, name) for w in waiting]) for name in ("samples", "counts"))
            rows = waiting[0].rows if len(waiting) == 1 else pa.concat_batches([each.rows for each in waiting])
            yield SampleRows(samples, counts, rows)
            waiting = []
        if part is not None:
            waiting.append(part)


class _Summed:
    """A file whose checksum is taken while it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.checksum, self.size, self.closed = file, 0, 0, False

    def write(self, data: bytes | pa.Buffer) -> int:
        """Write, and add to the checksum."""
        written = self._file.write(data)
        self.checksum, self.size = zlib.crc32(data, self.checksum), self.size + written
        return written


def _write_chunk(file: BinaryIO, begin: int, part: SampleRows) -> int:
    """Write a chunk, its header last: until then it is torn. Return its size."""
    file.seek(begin)
    file.write(bytes(_HEAD.size))
    sink = _Summed(file)
    sink.write(len(part.samples).to_bytes(8, "little"))
    sink.write(part.samples.astype(np.int64).tobytes() + part.counts.astype(np.int64).tobytes())
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), part.rows.schema) as stream:
        stream.write_batch(part.rows)
    file.flush()
    file.seek(begin)
    file.write(_HEAD.pack(_MAGIC, sink.checksum, len(part.samples), sink.size))
    return sink.size


def _read(chunk: _Chunk) -> bytes:
    """Read the bytes of a chunk. Raises StoreError if the file is gone, or shorter than it was."""
    try:
        with open(chunk.path, "rb") as file:
            file.seek(chunk.begin)
            body = file.read(chunk.size)
        found = f"{len(body):,} of {chunk.size:,} bytes at byte {chunk.begin:,}" if len(body) < chunk.size else None
    except OSError as error:
        found = str(error)
    if found is not None:
        raise StoreError(
            "what functions made cannot be read", file=chunk.path, found=found,
            advice="Something else removed or changed the file. Open the dataset again, or start the job again: the "
            "functions are called again.",
        )  # fmt: skip
    return body


def _decoded(body: bytes) -> SampleRows:
    count = int.from_bytes(body[:8], "little")
    table = pa.ipc.open_stream(pa.py_buffer(body)[8 + 16 * count :]).read_all()
    [rows] = with_refs(table).to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    samples, counts = (np.frombuffer(body, np.int64, count, 8 + 8 * count * i) for i in range(2))
    return SampleRows(samples, counts, rows)


def _whole_chunks(file: BinaryIO, *, checked: bool) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Yield first byte, size and samples of each chunk up to the first that is torn."""
    at, stop = 0, os.fstat(file.fileno()).st_size
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        magic, checksum, count, size = _HEAD.unpack(head)
        at += _HEAD.size
        if magic != _MAGIC or at + size > stop:
            return
        body = file.read(size if checked else 8 + 8 * count)
        if checked and zlib.crc32(body) != checksum:
            return
        yield at, size, np.frombuffer(body, np.int64, count, 8)
        at += size
        file.seek(at)


@contextmanager
def _writing(folder: str, *, lasts: bool) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        other = "Let TMPDIR, or --temp-dir of a job, name a larger one" if not lasts else "Make space there"
        raise StoreError(
            "what functions made could not be kept", file=folder, found=str(error),
            advice=f"{other}, or let the functions be called again: map(…, spool=False).",
        ) from error  # fmt: skip


def _close(stack: ExitStack, process: int) -> None:
    if os.getpid() == process:  # a forked one leaves the folder
        stack.close()
