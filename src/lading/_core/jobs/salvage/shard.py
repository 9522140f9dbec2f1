"""Salvage one shard: read it, recover its whole units if that fails, and drop the rows that cannot be read.

`save_shard` reads everything and writes nothing but temporary files. Its result is a shard that reads without an error.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import present
from lading._core.features.items import METADATA_POSITION, sample_starts, samples_with
from lading._core.features.row_layout import row_layout
from lading._core.formats.base import Recoverable, Recovered, Scan, ShardFile, ShardReader
from lading._core.formats.findings import Finding, Level
from lading._core.formats.format import AnyFormat
from lading._core.interleaved.open import detect_view, joined_batches, open_view, recover_shard, stored_errors
from lading._core.interleaved.references import Follower
from lading._core.interleaved.rows import texts_of_ids
from lading._core.jobs.salvage.files import TemporaryFiles, is_packed
from lading._core.jobs.stats.headers import broken_headers, key_of
from lading._core.storage.base import Mapper
from lading._core.storage.fetch import Fetcher, earlier_errors
from lading.errors import (
    BadReference,
    CorruptShard,
    DataError,
    LadingError,
    SidecarMismatch,
    StoreError,
    UsageError,
    is_damage,
    suppress_damage,
)
from lading.options import InterleavedOptions

__all__ = ["SavedShard", "ShardReading", "find_view", "save_shard", "sound_samples", "without_sidecar", "wrong_sidecar"]

_MAX_ROWS, _MAX_BYTES = 16_384, 128 << 20
_MOST_PROBES = 20_000
"""Reads of parts of one shard. What is not told apart by then is lost together."""
_MOST_BROKEN = 100
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class ShardReading:
    """How the shards of a source are read.

    Attributes:
        format: their format.
        view: how rows are taken.
        options: options of the format, parsed.
        interleaved: names of fields and policies for interleaved data.
        schema: columns of the rows, if a manifest keeps them.
        members: for tars, the columns that members stand for, if a manifest keeps them.
        fetcher: reads the bytes of references.
        follower: finds the files that `source_ref` texts name.
        index_file: the index by which shards are read, if there is one and no manifest.
    """

    format: AnyFormat
    view: str
    options: Any
    interleaved: InterleavedOptions
    schema: pa.Schema | None
    members: pa.Schema | None
    fetcher: Fetcher
    follower: Follower
    index_file: str | None = None

    def options_of(self, source: ShardFile) -> Any:
        """Return the options of reading one shard."""
        return source.options_over(self.options)


@dataclass(frozen=True, slots=True)
class SavedShard:
    """The samples of a shard that can be saved.

    Attributes:
        source: a shard that reads without an error; None if there is no such sample.
        samples: number of samples in it.
        lost: an error for each part that is lost.
        lost_samples: number of samples that are known to be lost.
        counted: whether that is all; otherwise more samples may be lost.
        lost_from: offset in the file from which on everything is lost; None if its end is there.
        by_checksums: whether checksums say that the saved samples are those that were written.
        findings: further problems of the shard, which cost no sample.
        missing: saved rows whose references lead to bytes that are unavailable.
    """

    source: ShardFile | None
    samples: int = 0
    lost: Sequence[LadingError] = field(default_factory=list)
    lost_samples: int = 0
    counted: bool = True
    lost_from: int | None = None
    by_checksums: bool = False
    findings: Sequence[LadingError] = field(default_factory=list)
    missing: Sequence[LadingError] = field(default_factory=list)


def save_shard(
    reading: ShardReading, source: ShardFile, files: TemporaryFiles, known: Sequence[Recovered] = ()
) -> SavedShard:
    """Find the samples of a shard that can be saved. No damage of the file is raised.

    Args:
        reading: how the shard is read.
        source: the shard.
        files: takes files that are made on the way.
        known: layouts of its whole parts by checksums, if there are any; the first one that can be read is taken.

    Raises:
        StoreError: the machine or a store failed, which is no damage.
    """
    try:
        saved = _Search(reading, source, files).save(known)
    except (DataError, StoreError) as error:
        if not is_damage(error):
            raise
        saved = SavedShard(None, lost=[_at_source(error, source)])
    for each in (*saved.lost, *saved.findings):
        if files.are_named_in(each.advice or ""):
            each.advice = None
    return saved


def sound_samples(reading: ShardReading, source: ShardFile, files: TemporaryFiles) -> int | None:
    """Return the number of samples of a shard that `save_shard` would save as it is, without a loss or a finding.

    Otherwise return None. Only copies of remote files are made on the way. Raises as `save_shard`.
    """
    with suppress_damage():
        return _Search(reading, source, files).sound()
    return None


def find_view(reading: ShardReading, source: ShardFile, files: TemporaryFiles) -> str | None:
    """Return the view that the first samples of a shard ask for, damaged or not; None if they tell nothing.

    Raises:
        DataError: no sample can be read.
    """
    source, error = without_sidecar(reading, source), None
    alone = [replace(source, entry="")] if reading.index_file and source.entry else []
    for each in [source, *alone]:
        try:
            found = _view_of(reading, each)
        except (DataError, StoreError, UsageError) as problem:  # lines of MDS need their entry
            if isinstance(problem, StoreError) and not is_damage(problem):
                raise
            error = error or problem
        else:
            if found is not None:
                return found
    body = files.unpacked(source).source if is_packed(source) else source
    try:
        recovered = _Search(replace(reading, view="interleaved"), source, files).recover(body, error)
        made = files.laid_out(body, recovered) if recovered is not None else body
        return _view_of(reading, made)
    finally:
        files.drop(body)


def _view_of(reading: ShardReading, source: ShardFile) -> str | None:
    with closing(reading.format.open(source, reading.options_of(source))) as reader:
        return detect_view(reader, reading.fetcher, source, reading.interleaved)


def wrong_sidecar(reading: ShardReading, source: ShardFile) -> LadingError | None:
    """Return the problem of the sidecar of a sound shard, if there is one. Raises as `save_shard`."""
    found = _of_sidecar(reading, source)
    return None if found is None else found.error


def _of_sidecar(reading: ShardReading, source: ShardFile) -> Finding | None:
    """Return the finding that the sidecar of a sound shard is wrong, if so. Raises as `save_shard`."""
    if not reading.format.info.presets.ignore_sidecar:  # a format without sidecars
        return None
    found = reading.format.checks(replace(source, index=None), reading.options_of(source), Level.QUICK)
    wrong = next((one for one in found if one.checked and one.error is not None), None)
    if wrong is not None and wrong.error is not None and not is_damage(wrong.error):
        raise wrong.error
    return wrong


def goes_on(reading: ShardReading, source: ShardFile, counts: Mapping[str, int]) -> bool:
    """Return whether a shard that was read without an error, and with these counts, goes on behind its end."""
    if not reading.format.info.may_end_early:
        return False
    found = reading.format.checks(replace(source, reported=counts), reading.options_of(source), Level.QUICK)
    return any(isinstance(one.error, CorruptShard) for one in found)


def without_sidecar(reading: ShardReading, source: ShardFile) -> ShardFile:
    """Return the shard with options that ignore its sidecar: the shard itself tells the same."""
    return replace(source, options={**source.options, **reading.format.info.presets.ignore_sidecar})


class _Search:
    """A search for the samples of one shard that can be saved."""

    def __init__(self, reading: ShardReading, source: ShardFile, files: TemporaryFiles) -> None:
        self._reading, self._given, self._files = reading, source, files
        self._source = without_sidecar(reading, source)
        self._lost: list[LadingError] = []
        self._lost_samples = self._samples = 0
        self._counted = True
        self._lost_from: int | None = None
        self._breaks = _NO_ROWS
        self._items = False
        self._missing: list[LadingError] = []
        self._counts: dict[str, int] = {}
        self._findings: list[LadingError] = []
        self._broken: Sequence[LadingError] = ()

    def save(self, known: Sequence[Recovered]) -> SavedShard:
        """Return what can be saved: by checksums if these tell, otherwise by the format."""
        by_checksums = False
        source = None
        for each in known:
            source = source or self._by_checksums(each, is_last=each is known[-1])
            by_checksums = source is not None
        source = source or self._by_format()
        if not self._lost:
            self._check_sidecar()
        # Nothing tells whether a damaged shard is wrong or a file that disagrees with it.
        findings = [error for error in self._findings if isinstance(error, StoreError) or not self._lost]
        saved = SavedShard(
            source if self._samples else None, self._samples, self._lost, self._lost_samples, self._counted,
            self._lost_from, by_checksums,
        )  # fmt: skip
        if not self._samples:
            return replace(saved, findings=findings)
        return replace(saved, findings=[*findings, *self._broken], missing=self._missing)

    def sound(self) -> int | None:
        """Return the number of samples if the shard can be saved as it is, and there is nothing to report."""
        source = self._source
        if self._read(source) is not None:
            return None
        packed = is_packed(source)
        more = goes_on(self._reading, source, self._counts) if packed else self.recover(source, None) is not None
        if more:
            return None
        self._check_sidecar()
        return None if self._lost or self._findings or self._broken or self._missing else self._samples

    def _by_checksums(self, known: Recovered, *, is_last: bool) -> ShardFile | None:
        """Return the shard of the parts that checksums say are whole; None if it cannot be read.

        Heads of units may lie in the holes of the last layout: then the format finds the other units.
        """
        made, error = self._lay_out(self._source, known)
        lost, lost_samples = list(self._lost), self._lost_samples
        if error is not None and is_last:
            recovered = self.recover(replace(made, rows=None), error)
            if recovered is not None:
                made, error = self._lay_out(replace(made, rows=None), recovered)
            self._lost, self._lost_samples = lost, lost_samples  # checksums tell more than the format
        # Many rows may share a checksum in a compressed file: if none is whole, unpacking tells more.
        is_same = made.path == self._source.path
        if error is None and (self._samples or is_same or not is_packed(self._source)):
            return self._without_torn_samples(made)
        self._files.drop(made)
        self._lost = []
        self._lost_samples = self._samples = 0
        self._counted, self._lost_from, self._breaks = True, None, _NO_ROWS
        return None

    def _by_format(self) -> ShardFile:
        """Return the shard of the whole units that its format finds."""
        source, broken = self._source, None
        error = self._read(source)
        if error is not None and self._reading.index_file and source.entry:
            source, error = self._without_entry(source, error)
        if is_packed(source):
            if error is None and not goes_on(self._reading, source, self._counts):
                return source
            unpacked = self._files.unpacked(source)
            source, error = unpacked.source, self._read(unpacked.source)
            if unpacked.lost:
                self._lost += unpacked.lost
                self._counted, self._lost_from = False, unpacked.lost_from
                broken = unpacked.lost[-1]  # the part that came out may be read without an error
        recovered = self.recover(source, error or broken)
        if recovered is not None:
            source, error = self._lay_out(source, recovered)
        if error is not None:
            source = self._with_good_rows(source, error, _NO_ROWS if recovered is None else recovered.unit_rows)
        elif self._lost:
            source = self._without_torn_samples(source)
        if not self._samples:
            self._files.drop(source)
        return source

    def _without_entry(self, source: ShardFile, error: LadingError) -> tuple[ShardFile, LadingError | None]:
        """Return the shard without what an index tells of it, if it can be read so: then the index is wrong."""
        alone = replace(source, entry="")
        with suppress(UsageError):  # only the index tells how lines of MDS are read
            if self._read(alone) is None:
                what = f"the index is wrong about {source.place}: {error.message}"
                self._findings.append(SidecarMismatch(what, file=self._reading.index_file, expected=error.expected,
                                                      found=error.found))  # fmt: skip
                return alone, None
        return source, error

    def _check_sidecar(self) -> None:
        """Note a wrong sidecar of a sound shard, and samples that it lists behind the end of the shard."""
        reading, source = self._reading, self._given
        with suppress_damage():
            wrong = _of_sidecar(reading, source)
            if wrong is not None and wrong.lost_samples:
                self._lost_samples += wrong.lost_samples
                self._lost.append(CorruptShard("samples are missing that the sidecar of the shard lists",
                                               file=source.place, found=f"{wrong.lost_samples} of them"))  # fmt: skip
            elif wrong is not None and wrong.error is not None:
                self._findings.append(wrong.error)

    def recover(self, source: ShardFile, error: LadingError | None) -> Recovered | None:
        """Return the whole units of a shard, as its format finds them; None if it finds nothing to mend, or nothing."""
        reading = self._reading
        if not isinstance(reading.format, Recoverable) or (error is None and not reading.format.info.may_end_early):
            return None
        far = not isinstance(source.store, Mapper)
        here = self._files.fetched(source) if far else source
        try:
            found = recover_shard(
                reading.format, here, reading.view, options=reading.options_of(here), interleaved=reading.interleaved,
                schema=reading.schema, error=error,
            )  # fmt: skip
        except DataError as problem:
            self._tell(_named_as(problem, here, source))
            return None
        finally:
            if far:
                self._files.drop(here)
        for one in [] if found is None else found.lost:
            _named_as(one, here, source)
        return found

    def _lay_out(self, source: ShardFile, recovered: Recovered) -> tuple[ShardFile, LadingError | None]:
        """Return the shard of recovered units, and the error of reading its rows outside holes."""
        made = self._files.laid_out(source, recovered)
        if made.path != source.path:
            self._files.drop(source)
        for error in recovered.lost:
            error.file = self._source.place if error.file in (None, source.path) else error.file
            self._lost.append(error)
        self._breaks = recovered.breaks
        self._counted &= recovered.counted
        if source.path == self._source.path:
            self._lost_from = recovered.lost_from
        gone = recovered.lost_samples
        wrong: LadingError | None = None
        if len(recovered.lost_rows):
            try:
                count = self._count(made)
            except (DataError, StoreError) as problem:
                if not is_damage(problem):
                    raise
                wrong = problem
            else:
                rows = np.arange(count)
                rows = rows[~np.isin(rows, recovered.lost_rows)]
                gone += count - len(rows)
                made = replace(made, rows=rows)
        wrong = wrong or self._read(made)
        if self._items:
            self._counted = self._counted and not gone  # nothing tells how many samples lost items are
        else:
            self._lost_samples += gone
        return made, wrong

    def _read(self, source: ShardFile) -> LadingError | None:
        """Read all rows with their bytes; return the error. Counts samples, and notes bytes that are unavailable."""
        self._samples = 0
        try:
            view = self._open(source, self._reading.view)
            self._items = view.holds_items
            with closing(view):
                read = _read_all(self._reading, view)
                stored = stored_errors(view) if read.missing else set()
                self._counts = dict(view.counts)
        except (DataError, StoreError) as problem:
            if not is_damage(problem):
                raise
            return problem
        self._samples = read.samples
        self._missing = [
            BadReference(text, file=self._source.place, row=self._row_of(source, row), sample=sample)
            for row, (sample, text) in read.missing.items()
            if row not in stored
        ]
        for picture in read.broken:
            picture.file, picture.row = self._source.place, self._row_of(source, picture.row or 0)
        self._broken = read.broken
        return read.error

    def _open(self, source: ShardFile, view: str) -> ShardReader:
        reading = self._reading
        members = reading.members if view == reading.view else None
        schema = reading.schema if view == reading.view else None
        return open_view(
            reading.format, source, view, reading.fetcher, reading.follower, reading.options, reading.interleaved,
            schema, members,
        )  # fmt: skip

    def _count(self, source: ShardFile) -> int:
        """Return the number of rows, as they are stored."""
        return int(self._with_reader(source, lambda reader: reader.num_rows()))

    def _with_reader(self, source: ShardFile, ask: Callable[[ShardReader], Any]) -> Any:
        with closing(self._reading.format.open(source, self._reading.options_of(source))) as reader:
            return ask(reader)

    def _with_good_rows(self, source: ShardFile, error: LadingError, unit_rows: NDArray[np.int64]) -> ShardFile:
        """Return the shard with those of its rows that can be read, unit by unit."""
        try:
            rows = np.arange(self._count(source)) if source.rows is None else source.rows
            with closing(self._open(source, self._reading.view)) as opened:
                self._items = opened.holds_items
                if self._items:
                    opened.schema()  # raises if rows are not items: then no part of them is
            if opened.has_members:  # only whole documents were laid out
                self._tell(error)
                return source
            index = None if self._items else self._with_reader(source, lambda reader: reader.index())
        except (DataError, StoreError) as problem:
            if not is_damage(problem):
                raise
            self._tell(problem)
            return source
        source = replace(source, index=index)
        bounds = np.searchsorted(rows, np.cumsum(unit_rows)) if len(unit_rows) else np.arange(len(rows))
        bounds = np.union1d(bounds, [0, len(rows)])
        good = self._good(source, rows, bounds, "samples" if self._items else self._reading.view, error)
        if self._items:
            self._counted &= len(good) == len(rows)
            return self._with_good_samples(replace(source, rows=good))
        self._lost_samples += len(rows) - len(good)
        return self._checked(replace(source, rows=good))

    def _with_good_samples(self, source: ShardFile) -> ShardFile:
        """Return the shard of items, all of which can be read, with its whole samples."""
        source = self._without_torn_samples(source, read=False)
        rows = source.rows
        error = self._read(source) if rows is not None and len(rows) else None
        if error is not None and rows is not None:
            starts = np.append(sample_starts(self._ids(source, rows)), len(rows))
            good = self._good(source, rows, starts, self._reading.view, error)
            self._lost_samples += int(np.count_nonzero(~np.isin(rows[starts[:-1]], good)))
            source = replace(source, rows=good)
        return self._checked(source)

    def _checked(self, source: ShardFile) -> ShardFile:
        """Read the shard, count its samples, and note an error."""
        self._samples = 0
        error = self._read(source) if source.rows is None or len(source.rows) else None
        if error is not None:
            self._tell(error)
        return source

    def _tell(self, problem: LadingError) -> None:
        """Note an error of the whole shard as a loss, once: each way of reading it may end in the same one."""
        error = _at_source(problem, self._source)
        if error.to_dict() not in [known.to_dict() for known in self._lost]:
            self._lost.append(error)

    def _good(
        self, source: ShardFile, rows: NDArray[np.int64], bounds: NDArray[np.int64], view: str, error: LadingError
    ) -> NDArray[np.int64]:
        """Return the rows that can be read as a view, and note an error for each unit that cannot.

        Args:
            source: the shard.
            rows: the rows that are tried.
            bounds: where, among the rows, units begin that are read as a whole; and the end.
            view: how rows are taken.
            error: the error of reading all of them.
        """

        def probe(first: int, last: int) -> LadingError | None:
            some = replace(source, rows=rows[bounds[first] : bounds[last]])
            with closing(self._open(some, view)) as opened:
                return _read_all(replace(self._reading, view=view), opened).error

        # Rows may be no items though each unit of the file can be read.
        wrong = error if view == self._reading.view else probe(0, len(bounds) - 1)
        if wrong is None:
            return rows
        good, bad = _split(probe, len(bounds) - 1, wrong)
        for first, problem in bad:
            told = _at_source(problem, self._source)
            told.row = int(rows[bounds[first]]) if self._is_original(source) else None
            self._lost.append(told)
        return np.concatenate([_NO_ROWS, *(rows[bounds[first] : bounds[last]] for first, last in good)])

    def _is_original(self, source: ShardFile) -> bool:
        """Return whether rows are counted as in the shard itself."""
        return source.path == self._source.path

    def _row_of(self, source: ShardFile, row: int) -> int | None:
        """Return the number in the shard itself of a row that was read; None if that is unknown."""
        if not self._is_original(source):
            return None
        return row if source.rows is None else int(source.rows[row])

    def _ids(self, source: ShardFile, rows: NDArray[np.int64]) -> pa.Array:
        table = self._with_reader(source, lambda reader: reader.read(rows, Scan(["sample_id"])))
        return texts_of_ids(table.column("sample_id").combine_chunks(), source.place)

    def _without_torn_samples(self, source: ShardFile, *, read: bool = True) -> ShardFile:
        """Return the shard of items without samples that may lack items.

        A sample before rows that are missing may go on in them. A sample behind them is whole if it begins there with
        its metadata row. Rows without an id are missing rows.
        """
        if not self._items:
            return source
        count = self._count(source)
        rows = np.arange(count) if source.rows is None else source.rows
        table = self._with_reader(source, lambda reader: reader.read(rows, Scan(["sample_id", "position"])))
        ids = texts_of_ids(table.column("sample_id").combine_chunks(), source.place)
        there = present(ids)
        if not there.all():
            row = self._row_of(replace(source, rows=rows), int(np.argmin(there)))
            self._lost.append(DataError("items have no sample_id", file=self._source.place, row=row,
                                        column="sample_id", found=f"{np.count_nonzero(~there)} rows"))  # fmt: skip
        kept, ids = rows[there], ids.filter(pa.array(there))
        begins = table.column("position").to_numpy()[there] == METADATA_POSITION
        missing = np.diff(np.concatenate([[-1], kept, [count]])) > 1
        missing[np.searchsorted(kept, self._breaks)] = True
        torn = missing[1:] | (missing[:-1] & ~begins)
        kept, ids = self._drop(kept, ids, torn, "samples lack items that are lost")
        if len(kept):
            starts = sample_starts(ids)
            codes = ids.take(pa.array(starts)).dictionary_encode().indices.to_numpy()
            apart = np.repeat(np.bincount(codes)[codes] > 1, np.diff(np.append(starts, len(kept))))
            kept, ids = self._drop(kept, ids, apart, "the rows of samples are not contiguous")
        if len(kept) < len(rows):
            source = replace(source, rows=kept)
            return self._checked(source) if read else source
        return source

    def _drop(
        self, rows: NDArray[np.int64], ids: pa.Array, bad: NDArray[np.bool_], why: str
    ) -> tuple[NDArray[np.int64], pa.Array]:
        """Return the rows and ids of samples without a bad row; the others are lost."""
        if not bad.any():
            return rows, ids
        starts = sample_starts(ids)
        torn = samples_with(bad, starts)
        number = len({*ids.filter(pa.array(torn)).to_pylist()})
        self._lost_samples += number
        self._lost.append(CorruptShard(why, file=self._source.place, column="sample_id", found=f"samples: {number}"))
        return rows[~torn], ids.filter(pa.array(~torn))


@dataclass(frozen=True, slots=True)
class _Read:
    """What reading a view gave: its first error; and if there is none, the following.

    Attributes:
        error: the error.
        samples: number of samples.
        missing: by row, key and reason of rows whose references lead to bytes that are unavailable.
        broken: errors of the first pictures without a whole header; these are saved.
    """

    error: LadingError | None
    samples: int = 0
    missing: Mapping[int, tuple[str | None, str]] = field(default_factory=dict)
    broken: Sequence[LadingError] = ()


def _read_all(reading: ShardReading, view: ShardReader) -> _Read:
    """Read all rows of an open view with their bytes."""
    samples = first = seen = 0
    broken: list[LadingError] = []
    missing: dict[int, tuple[str | None, str]] = {}
    earlier = reading.format.info.interleaved == "documents"  # errors of these rows were found just now
    try:
        scan = Scan(max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES, views=True)
        for batch in joined_batches(view, scan, remote=False):
            starts = row_layout(reading.view).firsts(batch)
            for part in reading.fetcher.materialise_parts(batch, starts, _MAX_BYTES, views=True, earlier=earlier):
                with suppress(DataError):  # a feature of a later version is no damage of the shard
                    broken += islice(broken_headers(part, "", seen), _MOST_BROKEN - len(broken))
                seen += len(part)
                reading.fetcher.release()
            errors = earlier_errors(batch)
            missing |= {first + row: (key_of(batch, row), text) for row, text in errors.items()}
            samples += len(starts)
            first += len(batch)
    except (DataError, StoreError) as error:
        if not is_damage(error):
            raise
        return _Read(error)
    return _Read(None, samples, missing, broken)


def _split(
    probe: Callable[[int, int], LadingError | None], count: int, error: LadingError
) -> tuple[list[tuple[int, int]], list[tuple[int, LadingError]]]:
    """Return the ranges of units that can be read, and the units that cannot with their errors; both ascending.

    A range that cannot be read is halved until it is one unit.
    """
    good: list[tuple[int, int]] = []
    bad: list[tuple[int, LadingError]] = []
    ranges = [(0, count, error)] if count else []
    probes = 0
    while ranges:
        first, last, why = ranges.pop()
        if last - first == 1 or probes >= _MOST_PROBES:
            bad.append((first, why))
            continue
        half = (first + last) // 2
        for a, b in ((half, last), (first, half)):
            probes += 1
            problem = probe(a, b)
            if problem is None:
                good.append((a, b))
            else:
                ranges.append((a, b, problem))
    return sorted(good), sorted(bad, key=lambda part: part[0])


def _named_as(error: LadingError, copy: ShardFile, source: ShardFile) -> LadingError:
    """Return an error of a copy as one of the file that was copied."""
    if error.file == copy.path:
        error.file = source.path
    return error


def _at_source(error: LadingError, source: ShardFile) -> LadingError:
    """Return an error of a temporary file as one of its original; a file next to that keeps its name."""
    if error.file is not None and error.file != source.place:
        if posixpath.dirname(error.file) == posixpath.dirname(source.place):
            return error
        error.offset = error.row = None
    error.file = source.place
    return error
