"""What is left of one shard: it is read, laid out anew as its format finds it, and searched for rows that can be read.

`find_left` reads everything and writes nothing but files of its own. What it gives is a shard source that reads without
an error, so that whoever copies rows need not know of damage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.arrow.views import present
from lading.errors import BadReference, CorruptShard, DataError, LadingError, StoreError, UsageError
from lading.features.items import METADATA_POSITION, sample_firsts, sample_starts, samples_with
from lading.formats.base import (
    ReadsUnits,
    Recoverable,
    Recovered,
    ResyncsBeside,
    ShardFile,
    ShardReader,
)
from lading.interleaved.base import View
from lading.interleaved.open import detect_view, open_view, recover_shard, stored_errors
from lading.interleaved.rows import ItemsView, texts_of_ids
from lading.interleaved.tar import TarDocuments
from lading.jobs.headers import broken_headers, key_of
from lading.jobs.salvage_files import TemporaryFiles, is_packed
from lading.jobs.salvage_kind import Kind, index_lies, sidecar_of, without_sidecar
from lading.storage.base import Mapper
from lading.storage.fetch import earlier_errors

__all__ = ["Left", "find_left", "find_view"]

_MAX_ROWS, _MAX_BYTES = 16_384, 128 << 20
_MOST_PROBES = 20_000
"""Readings of parts of one shard: what is not told apart by then is lost together."""
_MOST_BROKEN = 100
_NO_ROWS = np.zeros(0, np.int64)

Probe = Callable[[NDArray[np.int64]], LadingError | None]
"""Reads some rows of a shard; gives what was wrong."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a shard.

    Attributes:
        source: a shard that reads without an error; None if nothing is left.
        samples: how many it has.
        lost: what was lost.
        lost_samples: how many samples are lost, as far as the shard itself tells.
        by_sums: whether checksums say that what is left is what was written.
        findings: what is wrong beside, and was passed over.
        missing: of what is left, rows without bytes that they lead to.
    """

    source: ShardFile | None
    samples: int = 0
    lost: Sequence[LadingError] = field(default_factory=list)
    lost_samples: int = 0
    by_sums: bool = False
    findings: Sequence[LadingError] = field(default_factory=list)
    missing: Sequence[LadingError] = field(default_factory=list)


def find_left(kind: Kind, source: ShardFile, workshop: TemporaryFiles, known: Recovered | None = None) -> Left:
    """What is left of a shard; nothing is raised but what is no fault of its file.

    Args:
        kind: how it is read.
        source: the shard.
        workshop: where files are made on the way.
        known: what is left of its file, where checksums tell.
    """
    try:
        return _Search(kind, source, workshop).find(known)
    except (DataError, StoreError) as error:
        return Left(None, lost=[_told_of(error, source)])


def find_view(kind: Kind, source: ShardFile, workshop: TemporaryFiles) -> str | None:
    """The view that a shard's first samples ask for, damaged or not; None if it says nothing.

    Raises:
        DataError: nothing of it can be read.
    """
    error = None
    source = without_sidecar(kind, source)
    try:
        found = _view_of(kind, source)
    except (DataError, StoreError) as problem:
        found, error = None, problem
        if kind.index_file and source.entry:
            with suppress(DataError, StoreError, UsageError):  # lines of MDS cannot be read without it
                return _view_of(kind, replace(source, entry=""))
    if found == "interleaved" or (error is None and kind.format.name != "webdataset"):
        return found
    # Where all JSON among the first is damaged, what is left says that they are documents.
    as_documents = replace(kind, view="interleaved")
    search = _Search(as_documents, source, workshop)
    body = workshop.unwrapped(source)[0] if is_packed(source) else source
    try:
        remains = search.remains(body, error)
        if remains is None:
            return found
        made = workshop.laid_out(body, remains)
    finally:
        workshop.drop(body)  # whoever looks at the shard reads it as it is, and unpacks it only if that fails
    try:
        return _view_of(kind, made) or found
    finally:
        workshop.drop(made)


def _view_of(kind: Kind, source: ShardFile) -> str | None:
    reader = kind.format.open(source, kind.format.read_options({**kind.options, **source.options}))
    try:
        return detect_view(reader, kind.fetcher, kind.interleaved)
    finally:
        reader.close()


class _Search:
    """Looks for what is left of one shard."""

    def __init__(self, kind: Kind, source: ShardFile, workshop: TemporaryFiles) -> None:
        self._kind, self._source, self._workshop = kind, source, workshop
        self._lost: list[LadingError] = []
        self._lost_samples = self._samples = 0
        self._torn = _NO_ROWS
        self._items = False
        self._missing: list[LadingError] = []
        self._findings: list[LadingError] = []
        self._broken: list[LadingError] = []

    def find(self, known: Recovered | None) -> Left:
        """What is left; other than what is known only if that cannot be read."""
        left = (known and self._find_known(known)) or self._search()
        # Of a damaged shard nothing says whether it is wrong or what disagrees with it.
        findings = [error for error in self._findings if isinstance(error, StoreError) or not left.lost]
        if left.samples:
            return replace(left, findings=[*findings, *self._broken], missing=self._missing)
        return replace(left, findings=findings)

    def _find_known(self, known: Recovered) -> Left | None:
        made, error = self._laid_out(self._source, known)
        if (error is not None or known.beside) and isinstance(self._kind.format, ResyncsBeside):
            made, error = self._with_beside(made, error, known.beside)
        lost, lost_samples = list(self._lost), self._lost_samples
        if error is not None and isinstance(self._kind.format, Recoverable):
            # Where the heads of units lie among them, a hole is no shard: what has them all is found in the others.
            remains = self.remains(replace(made, rows=None), error)
            if remains is not None:
                made, error = self._laid_out(replace(made, rows=None), remains)
            self._lost, self._lost_samples = lost, lost_samples  # the checksums say more than what was found now
        if error is not None and made.rows is not None:
            # No others than the checksums say are whole: a format takes a changed value for one that was written.
            made = self._with_good_rows(made, error)
            error = None if self._samples else error
        # Many rows may share a checksum where a file is compressed: if none is whole, what comes out says more.
        if error is None and (self._samples or not is_packed(self._source)):
            made = self._without_torn(made)
            return Left(made if self._samples else None, self._samples, self._lost, self._lost_samples, by_sums=True)
        self._workshop.drop(made)
        self._lost = []
        self._lost_samples = self._samples = 0
        return None

    def _search(self) -> Left:
        source, broken = self._source, None
        error = self._read(source)
        if error is not None:
            source, error = self._despite_lists(source, error)
        if is_packed(source):
            if error is None:
                return Left(source, self._samples)
            source, lost = self._workshop.unwrapped(source)
            self._lost += lost
            broken = lost[-1] if lost else None  # what came out may read well, and end too early
            error = self._read(source)
        remains = self.remains(source, error or broken)
        if remains is None and error is None:
            return Left(source, self._samples, self._lost, self._lost_samples)
        if remains is not None:
            source, error = self._laid_out(source, remains)
        if error is not None and isinstance(self._kind.format, ResyncsBeside):
            source, error = self._with_beside(source, error, {})
        if error is not None:
            source = self._with_good_rows(source, error)
        if self._samples:
            source = self._without_torn(source)
        if not self._samples:
            self._workshop.drop(source)
            return Left(None, lost=self._lost, lost_samples=self._lost_samples)
        return Left(source, self._samples, self._lost, self._lost_samples)

    def _despite_lists(self, source: ShardFile, error: LadingError) -> tuple[ShardFile, LadingError | None]:
        """The shard without what an index says wrongly of it, and is noted; and what is wrong with reading it then."""
        now: LadingError | None = error
        if error.file is not None and error.file == sidecar_of(self._kind, source):
            self._findings.append(error)
            source, now = self._without_sidecar(source)
        if now is not None and self._kind.index_file and source.entry:
            alone = replace(source, entry="")
            with suppress(UsageError):  # nothing but the index says how lines of MDS are to be read
                if self._read(alone) is None:
                    self._findings.append(index_lies(self._kind.index_file, source, now))
                    source, now = alone, None
        return source, now

    def _without_sidecar(self, source: ShardFile) -> tuple[ShardFile, LadingError | None]:
        """The shard with the file beside it left aside, and what is wrong with reading it then."""
        fmt = self._kind.format
        aside = without_sidecar(self._kind, source)
        error = self._read(aside)
        behind = 0 if error is not None else fmt.cut_off(source, {**self._kind.options, **source.options})
        if behind:
            self._lost_samples += behind
            self._lost.append(CorruptShard("samples are missing that the file beside the shard tells of",
                                           file=source.place, found=f"{behind} of them"))  # fmt: skip
        return aside, error

    def remains(self, source: ShardFile, error: LadingError | None) -> Recovered | None:
        """What the format finds, of a file on this machine; None too where it finds nothing that can be read."""
        kind = self._kind
        far = not isinstance(source.store, Mapper)
        if far and error is None and kind.format.name != "webdataset":
            return None
        here = self._workshop.fetched(source) if far else source
        schema = kind.schema
        if (kind.format.name, kind.view) == ("webdataset", "samples"):
            schema = kind.example() or schema
        try:
            found = recover_shard(
                kind.format, here, kind.view, format_options=kind.options, interleaved=kind.interleaved,
                schema=schema, error=error,
            )  # fmt: skip
        except DataError as problem:
            self._tell(problem)
            found = None
        finally:
            if far:
                self._workshop.drop(here)
        return found

    def _laid_out(self, source: ShardFile, remains: Recovered) -> tuple[ShardFile, LadingError | None]:
        """The file laid out anew, and what is wrong with reading the rows of it that can be."""
        made = self._workshop.laid_out(source, remains)
        self._workshop.drop(source)
        for error in remains.lost:
            error.file = self._source.place if error.file in (None, source.path) else error.file
            self._lost.append(error)
        self._torn = np.union1d(remains.lost_rows, remains.breaks)
        gone = remains.lost_samples
        if len(remains.lost_rows):
            try:
                count = self._count(made)
            except (DataError, StoreError) as problem:
                self._lost_samples += gone
                return made, problem
            rows = np.arange(count)
            rows = rows[~np.isin(rows, remains.lost_rows)]  # `setdiff1d` sorts them all first
            gone += count - len(rows)
            made = replace(made, rows=rows)
        wrong = self._read(made)
        self._lost_samples += 0 if self._items else gone  # how many samples lost items were nobody knows
        return made, wrong

    def _with_beside(
        self, source: ShardFile, error: LadingError | None, known: Mapping[str, Recovered]
    ) -> tuple[ShardFile, LadingError | None]:
        """The shard with files beside it laid out anew, and what is wrong with reading it then."""
        kind = self._kind
        assert isinstance(kind.format, ResyncsBeside), "the caller looked"
        try:
            found = kind.format.resync_beside(source, {**kind.options, **source.options}, known)
        except DataError:
            return source, error
        if found is None:
            return source, error
        files, options_in = found
        for lies, remains in files.values():
            for problem in remains.lost if remains is not None else ():
                problem.file = lies
                self._lost.append(problem)
        folder = self._workshop.laid_out_beside(self._source.store, files)
        moved = replace(source, options={**source.options, **options_in(folder)})
        return moved, self._read(moved)

    def _read(self, source: ShardFile) -> LadingError | None:
        """Read all rows with their bytes; give what was wrong. Counts samples, and notes what they lead to in vain."""
        try:
            view = self._open(source, self._kind.view)
            self._items = isinstance(view, ItemsView)
            try:
                error, self._samples, missing, broken = _reading(self._kind, view)
                told = stored_errors(view) if missing else set()
            finally:
                view.close()
        except (DataError, StoreError) as problem:
            return problem
        self._missing = [
            BadReference(text, file=self._source.place, row=self._row_of(source, row), sample=sample)
            for row, (sample, text) in missing.items()
            if row not in told
        ]
        for picture in broken:
            picture.file, picture.row = self._source.place, self._row_of(source, picture.row or 0)
        self._broken = broken
        return error

    def _open(self, source: ShardFile, view: str) -> View:
        kind = self._kind
        members = kind.members if view == kind.view else None
        schema = kind.schema if view == kind.view else None
        options = kind.format.read_options(kind.options)
        return open_view(
            kind.format, source, view, kind.fetcher, kind.follower, options, kind.interleaved, schema, members
        )

    def _count(self, source: ShardFile) -> int:
        """Number of rows, as they are stored."""
        return int(self._with_reader(source, lambda reader: reader.num_rows()))

    def _with_reader(self, source: ShardFile, ask: Callable[[ShardReader], Any]) -> Any:
        kind = self._kind
        reader = kind.format.open(source, kind.format.read_options({**kind.options, **source.options}))
        try:
            return ask(reader)
        finally:
            reader.close()

    def _with_good_rows(self, source: ShardFile, error: LadingError) -> ShardFile:
        """The shard with those of its rows that can be read; none if nothing of it can."""
        self._samples = 0
        try:
            count = self._count(source)
            rows = np.arange(count) if source.rows is None else source.rows
            bounds = self._with_reader(source, lambda reader: _bounds(reader, rows))
            with closing(self._open(source, self._kind.view)) as opened:
                items = isinstance(opened, ItemsView)
                if items:
                    opened.schema()  # rows that are no items are none in any part either
            if isinstance(opened, TarDocuments):  # what of it can be read, was laid out
                self._tell(error)
                return source
            index = self._with_reader(source, lambda reader: reader.index()) if not items else None
        except (DataError, StoreError) as problem:
            self._tell(problem)
            return source
        source = replace(source, index=index)
        first = "samples" if items else self._kind.view
        good = self._good(source, rows, bounds, first, error)
        if items:
            good = self._whole_samples(source, good, np.setdiff1d(rows, good))
            found = replace(source, rows=good)
            again = self._read(found) if len(good) else None
            if again is not None:
                starts = np.append(sample_starts(self._ids(source, good)), len(good))
                whole = self._good(source, good, starts, self._kind.view, again)
                self._lost_samples += int(np.count_nonzero(~np.isin(good[starts[:-1]], whole)))
                good = whole
        else:
            self._lost_samples += len(rows) - len(good)
        if not len(good):
            return source
        found = replace(source, rows=good)
        wrong = self._read(found)
        if wrong is not None:
            self._tell(wrong)
        return found

    def _tell(self, problem: LadingError) -> None:
        """Note an error of the whole shard as a loss; once, though each way of reading it may end in the same one."""
        told = _told_of(problem, self._source)
        if told.to_dict() not in [known.to_dict() for known in self._lost]:
            self._lost.append(told)

    def _good(
        self, source: ShardFile, rows: NDArray[np.int64], bounds: NDArray[np.int64], view: str, error: LadingError
    ) -> NDArray[np.int64]:
        """The rows that can be read, taken as a view; `bounds` says which are read together or not at all."""

        def probe(some: NDArray[np.int64]) -> LadingError | None:
            opened = self._open(replace(source, rows=some), view)
            try:
                return _reading(replace(self._kind, view=view), opened)[0]
            finally:
                opened.close()

        # What is wrong with the rows as items may be nothing that a unit of the file has.
        wrong = error if view == self._kind.view else probe(rows)
        if wrong is None:
            return rows
        good, errors = _split(probe, rows, bounds, wrong)
        for start, _, problem in errors:
            told = _told_of(problem, self._source)
            told.row = int(rows[start]) if self._is_original(source) else None
            self._lost.append(told)
        return good

    def _is_original(self, source: ShardFile) -> bool:
        """Whether rows are counted as in the shard itself."""
        return source.path == self._source.path

    def _row_of(self, source: ShardFile, row: int) -> int | None:
        """A row that was read, as it is counted in the shard itself, where that is known."""
        if not self._is_original(source):
            return None
        return row if source.rows is None else int(source.rows[row])

    def _ids(self, source: ShardFile, rows: NDArray[np.int64]) -> pa.Array:
        table = self._with_reader(source, lambda reader: reader.read(rows, ["sample_id"]))
        return texts_of_ids(table.column("sample_id").combine_chunks(), source.place)

    def _without_torn(self, source: ShardFile) -> ShardFile:
        """The shard without samples some of whose items may be lost: in a hole, or where rows are missing.

        What lies there cannot be read, so that the sample before it may go on in it; the one behind it is whole if it
        begins there.
        """
        if not len(self._torn) or self._kind.view != "interleaved":
            return source
        opened = self._open(source, self._kind.view)
        opened.close()
        if not isinstance(opened, ItemsView):
            return source
        rows = np.arange(self._count(source)) if source.rows is None else source.rows
        behind = np.unique(np.searchsorted(rows, self._torn))
        before, behind = behind[behind > 0] - 1, behind[behind < len(rows)]
        told = self._with_reader(source, lambda reader: reader.read(rows[behind], ["position"]))
        begun = told.column("position").to_numpy() == METADATA_POSITION
        hurt = np.isin(np.arange(len(rows)), np.append(before, behind[~begun]))
        if not hurt.any():
            return source
        starts = sample_starts(self._ids(source, rows))
        torn = samples_with(hurt, starts)
        self._tell_torn(int(np.count_nonzero(torn[starts])))
        source = replace(source, rows=rows[~torn])
        self._read(source)
        return source

    def _tell_torn(self, samples: int) -> None:
        """Samples some of whose items are lost."""
        self._lost_samples += samples
        self._lost.append(CorruptShard("samples lack items that are lost", file=self._source.place,
                                       found=f"{samples} samples"))  # fmt: skip

    def _whole_samples(self, source: ShardFile, good: NDArray[np.int64], gone: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of samples none of whose rows are lost, without an id, or apart from the others.

        Of the lost rows the ids are read, where they can be. Of rows without one, positions tell what they may be of.
        """
        if not len(good):
            return good
        told = self._with_reader(source, lambda reader: reader.read(good, ["sample_id", "position"]))
        ids = texts_of_ids(told.column("sample_id").combine_chunks(), source.place)
        there, torn = present(ids), _torn_by_nulls(ids, told.column("position").to_numpy())
        if not there.all():
            row = int(good[np.argmin(there)]) if self._is_original(source) else None
            self._lost.append(DataError("items without an id belong to no sample", file=self._source.place, row=row,
                                        column="sample_id", found=f"{np.count_nonzero(~there)} rows"))  # fmt: skip
        begins = gone[np.append(True, np.diff(gone) > 1)] if len(gone) else gone
        ends = gone[np.append(np.diff(gone) > 1, True)] if len(gone) else gone
        for first, last in zip(begins.tolist(), ends.tolist(), strict=True):
            at = int(np.searchsorted(good, first))
            self._lost_samples += self._lost_whole(source, first, last, ids[max(at - 1, 0) : at], ids[at : at + 1])
            for row, beside in ((first, at - 1), (last, at)):
                if 0 <= beside < len(good) and there[beside]:
                    torn[beside] |= self._may_be(source, row, ids[beside].as_py())
        good, torn, ids = good[there], torn[there], ids.filter(pa.array(there))
        if torn.any():
            starts = sample_starts(ids)
            torn = samples_with(torn, starts)
            self._tell_torn(int(np.count_nonzero(torn[starts])))
        return self._standing_together(source, good[~torn], ids.filter(pa.array(~torn)))

    def _standing_together(self, source: ShardFile, rows: NDArray[np.int64], ids: pa.Array) -> NDArray[np.int64]:
        """The rows of samples whose rows stand together."""
        starts = sample_starts(ids) if len(ids) else np.zeros(0, np.int64)
        codes = ids.take(pa.array(starts)).dictionary_encode().indices.to_numpy()
        pieces = np.bincount(codes)
        count = int(np.count_nonzero(pieces > 1))
        if not count:
            return rows
        apart = np.repeat(pieces[codes] > 1, np.diff(np.append(starts, len(rows))))
        row = int(rows[np.argmax(apart)]) if self._is_original(source) else None
        self._lost_samples += count
        self._lost.append(DataError("the rows of samples do not stand together", file=self._source.place, row=row,
                                    column="sample_id", found=f"{count} ids that come back",
                                    advice="Sort the file by sample_id and position, and salvage that."))  # fmt: skip
        together: NDArray[np.int64] = rows[~apart]
        return together

    def _lost_whole(self, source: ShardFile, first: int, last: int, before: pa.Array, behind: pa.Array) -> int:
        """How many samples lie in lost rows alone, by their ids and those beside them; 0 if they cannot be read."""
        try:
            ids = self._ids(source, np.arange(first, last + 1))
            runs = ids.take(pa.array(sample_starts(ids))).to_pylist()
        except DataError:
            return 0
        runs = runs[1:] if runs[:1] == before.to_pylist() else runs
        return len(runs) - (len(runs) > 0 and runs[-1:] == behind.to_pylist())

    def _may_be(self, source: ShardFile, row: int, sample: str) -> bool:
        """Whether a lost row may be of a sample: its id says so, or cannot be read."""
        try:
            return bool(self._ids(source, np.array([row]))[0].as_py() == sample)
        except DataError:
            return True


def _torn_by_nulls(ids: pa.Array, position: NDArray[Any]) -> NDArray[np.bool_]:
    """Which items stand beside some without an id that may be of their sample.

    Those amid a sample are, and those whose positions go on in those of the next: no sample begins there.
    """
    there = present(ids)
    torn = np.zeros(len(ids), np.bool_)
    goes_on = ~((position[1:] == METADATA_POSITION) | (position[1:] < position[:-1]))  # of a null nobody knows
    edge = np.flatnonzero((there[1:] != there[:-1]) & goes_on)
    torn[edge], torn[edge + 1] = there[edge], there[edge + 1]
    kept = np.flatnonzero(there)
    before, behind = kept[:-1], kept[1:]
    apart = behind - before > 1
    before, behind = before[apart], behind[apart]
    torn[before] |= pc.equal(ids.take(pa.array(before)), ids.take(pa.array(behind))).to_numpy(zero_copy_only=False)
    return torn


def _bounds(reader: ShardReader, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where, among some rows, those begin that are read together or not at all; and the end."""
    if not isinstance(reader, ReadsUnits):
        return np.arange(len(rows) + 1)
    ends = np.cumsum(reader.unit_rows())
    found: NDArray[np.int64] = np.unique(np.concatenate([[0], np.searchsorted(rows, ends)]))
    return found


def _reading(
    kind: Kind, view: View
) -> tuple[LadingError | None, int, dict[int, tuple[str | None, str]], list[LadingError]]:
    """Read all of an open view; give what was wrong, and if nothing was, the number of samples and what they lack.

    The last is told by row: the key and the reason of each whose bytes lie elsewhere and cannot be had. With it come
    the first pictures without a whole header, by row, which are kept.
    """
    samples = first = seen = 0
    broken: list[LadingError] = []
    missing: dict[int, tuple[str | None, str]] = {}
    try:
        for batch in view.batches(max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES, views=True):
            starts, earlier = sample_firsts(batch, kind.view), kind.format.name == "media_archive"
            for part in kind.fetcher.materialise_parts(batch, starts, _MAX_BYTES, views=True, earlier=earlier):
                with suppress(DataError):  # a feature of a later version is no damage of the shard
                    broken += islice(broken_headers(part, "", seen), _MOST_BROKEN - len(broken))
                seen += len(part)
                kind.fetcher.release()
            errors = earlier_errors(batch)
            missing |= {first + row: (key_of(batch, row), text) for row, text in errors.items()}
            samples += len(starts)
            first += len(batch)
    except (DataError, StoreError) as error:
        return error, 0, {}, []
    return None, samples, missing, broken


def _split(
    probe: Probe, rows: NDArray[np.int64], bounds: NDArray[np.int64], error: LadingError
) -> tuple[NDArray[np.int64], list[tuple[int, int, LadingError]]]:
    """The rows that can be read, and the parts that cannot: what fails is halved until it is one unit."""
    good: list[NDArray[np.int64]] = [_NO_ROWS]
    bad: list[tuple[int, int, LadingError]] = []
    parts = [(0, len(bounds) - 1, error)] if len(bounds) > 1 else []
    probes = 0
    while parts:
        first, last, why = parts.pop()
        if last - first == 1 or probes >= _MOST_PROBES:
            bad.append((int(bounds[first]), int(bounds[last]), why))
            continue
        half = (first + last) // 2
        halves = []
        for a, b in ((first, half), (half, last)):
            probes += 1
            some = rows[bounds[a] : bounds[b]]
            problem = probe(some)
            if problem is None:
                good.append(some)
            else:
                halves.append((a, b, problem))
        parts += reversed(halves)
    return np.sort(np.concatenate(good)), sorted(bad, key=lambda part: part[0])


def _told_of(error: LadingError, source: ShardFile) -> LadingError:
    """An error of a file that was made on the way, told of the file that it was made of."""
    if error.file is not None and error.file != source.place:
        error.offset = error.row = None
    error.file = source.place
    return error
