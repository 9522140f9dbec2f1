"""One pass over a tar: convert members to batches of samples, and collect counts for the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.references import make_refs, with_files
from lading._core.arrow.views import from_ranges, join
from lading._core.formats.webdataset.headers import BLOCK, Cursor, Headers, Sparse, Window, padded
from lading._core.formats.webdataset.index import check_end, check_starts
from lading._core.formats.webdataset.samples import ColumnMaker, MemberRows, Splitter, bounds_of, join_rows, to_batch
from lading._core.formats.webdataset.scan import scan
from lading._core.formats.webdataset.sparse import filled
from lading._core.formats.webdataset.walk import Stream, TarFile, Walk, end_counts, linked
from lading._core.storage.unwrap import UnwrappedFile
from lading.errors import errors_at
from lading.limits import Limits

__all__ = ["RETURNING", "Pass"]

RETURNING = "samples whose key came before, not adjacent"
"""Name of a count for such samples, which are those of a whole tar."""

_STREAM_BYTES = 8 << 20
"""Bytes of a compressed tar that are unpacked at a time."""


class Pass:
    """A walk over all members of a tar, or of its span.

    Args:
        tar: the file.
        lower_case: field names in lower case.
        on_duplicate: how to treat a second member of one field in one sample.
        entries: starts of samples in the tar's sidecar, to compare with.
        named: False for callers that need the places of samples, and no batches of them (`Splitter`).

    Attributes:
        splitter: fields so far, and omitted members.
        samples: number of samples that began so far.
        dropped: members dropped as duplicates.
        returning: samples with the key of an earlier one; known at the end.
        end: padded end of the last sample so far.
        has_records: whether records at the beginning of the tar tell of members at its end; known at the end.
    """

    def __init__(
        self,
        tar: TarFile,
        *,
        lower_case: bool,
        on_duplicate: str,
        entries: NDArray[np.int64] | None = None,
        named: bool = True,
    ) -> None:
        self.splitter = Splitter(lower_case=lower_case, limits=tar.source.limits, named=named)
        self.samples = self.dropped = self.returning = 0
        self._ending: dict[str, int] = {}
        self._again: UnwrappedFile | None = None
        self._tar, self._on_duplicate, self._entries = tar, on_duplicate, entries
        self.end, self.has_records = 0, False
        self._metadata = with_files(pa.schema([]), [tar.entry]).metadata

    def rows(self) -> Iterator[MemberRows]:
        """Yield the members that belong to samples, window by window; reads headers only."""
        span = self._tar.source.span
        start, stop = (0, None) if span is None else (span.start, None if span.is_last else span.stop)
        with errors_at(file=self._tar.path):
            walk = Walk(self._tar, start, stop, links="other")
            for found in walk:
                rows = self._take(found)
                if len(rows):
                    yield rows
            self._finish(walk.cursor)

    def held_rows(self) -> list[MemberRows]:
        """Return all of `rows`, for callers that need them together.

        Raises LimitExceeded if keys exceed `tar_keys_bytes`.
        """
        held, size, limits = list[MemberRows](), 0, self._tar.source.limits
        with errors_at(file=self._tar.path):
            for rows in self.rows():
                held.append(rows)
                size += rows.keys.nbytes
                if size > limits.tar_keys_bytes:
                    message = "the keys of the samples are too long to be held together"
                    raise limits.exceeded("tar_keys_bytes", message, offset=int(rows.start[0]), found=size)
        return held

    def part(self, start: int, stop: int | None) -> MemberRows:
        """Yield the members of samples between two places of the tar, without updating the counts."""
        self.splitter.restart()
        with errors_at(file=self._tar.path):
            return join_rows([self.splitter.split(found) for found in Walk(self._tar, start, stop, links="other")])

    def batch(
        self, rows: MemberRows, columns: Sequence[str] | None, make_column: ColumnMaker | None = None
    ) -> pa.RecordBatch:
        """Return whole samples as a batch; of references, unless the column maker decides otherwise."""
        with errors_at(file=self._tar.path):
            self._refuse_large_files(rows, columns)
            batch, dropped = to_batch(
                rows,
                self.splitter.fields,
                make_column or self._references,
                columns=columns,
                on_duplicate=self._on_duplicate,
                metadata=self._metadata,
            )
        self.dropped += dropped
        return batch

    def counts(self) -> dict[str, int]:
        """Return counts for the summary of the tar, by a short phrase."""
        reports = {f"members skipped: {reason}": count for reason, count in self.splitter.skipped.items()}
        reports[RETURNING] = self.returning
        reports["members dropped as duplicates"] = self.dropped
        return {phrase: count for phrase, count in {**reports, **self._ending}.items() if count}

    def _take(self, found: Headers) -> MemberRows:
        rows = self.splitter.split(found)
        if self._entries is not None:
            check_starts(self._tar.path, self._entries, self.samples, rows.start[rows.new])
        self.samples += len(rows.keys)
        if len(rows):
            # The payload of a hard link is an earlier one.
            self.end = max(int(rows.offset[-1]) + padded(int(rows.length[-1])), int(rows.start[-1]) + BLOCK)
        return rows

    def _finish(self, cursor: Cursor) -> None:
        if self._entries is not None:
            check_end(self._tar.path, self._entries, self.samples, self.end, cursor.at)
        hashes = np.sort(np.concatenate([np.zeros(0, np.uint64), *self.splitter.hashes]))
        self.has_records = bool(cursor.records)
        span = self._tar.source.span
        if span is None:
            self.returning = int(np.count_nonzero(hashes[1:] == hashes[:-1]))
        if span is None or span.is_last:
            self._ending = end_counts(cursor)

    def _references(
        self,
        offset: NDArray[np.int64],
        length: NDArray[np.int64],
        valid: NDArray[np.bool_],
        sparse: Mapping[int, Sparse],
    ) -> pa.Array:
        """Return references; or the values if one of them is a sparse file, which is not a range of the tar."""
        if not sparse:
            return make_refs(offset, length, valid=valid)
        return filled(self._tar.read, offset, length, valid, sparse, self._tar.source.limits)

    def _refuse_large_files(self, rows: MemberRows, columns: Sequence[str] | None) -> None:
        """Check the sparse files of each sample against the limit, before any of them is read."""
        if not rows.sparse:
            return
        limits, held = self._tar.source.limits, Counter[int]()
        sample = np.cumsum(rows.new)
        for row, place in rows.sparse.items():
            if columns is not None and self.splitter.fields[rows.field[row]] not in columns:
                continue
            held[sample[row]] += max(place.size_bytes, int(rows.length[row]))
            if held[sample[row]] > limits.tar_sparse_bytes:
                expected = f"at most {limits.tar_sparse_bytes} bytes for those of a sample"
                raise limits.exceeded(
                    "tar_sparse_bytes", "a sparse member is too large", offset=place.start, expected=expected,
                    found=held[sample[row]],
                )  # fmt: skip

    # Compressed tars

    def stream_batches(
        self, *, max_rows: int, max_bytes: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all samples of a compressed tar, with their values."""
        with errors_at(file=self._tar.path):
            stream = Stream(self._tar)
            cursor, waiting = self._tar.start, list[MemberRows]()  # members whose samples were not yielded yet
            while not cursor.done:
                first = int(waiting[0].start[0]) if waiting else cursor.at
                window = stream.window(first, max(cursor.need, cursor.at + _STREAM_BYTES), whole=True)
                cursor = self._fill(window, cursor, waiting)
                if not waiting:
                    continue
                rows = join_rows(waiting)
                bounds = bounds_of(rows, self.splitter.fields, max_rows, max_bytes, columns, ended=cursor.done)
                for a, b in pairwise(bounds):
                    yield self.batch(rows.samples(a, b), columns, _values_in(window, self._earlier, cursor.limits))
                waiting = [rows.samples(bounds[-1], len(rows.keys))] if bounds[-1] < len(rows.keys) else []
                if waiting and len(waiting[0].keys) == 1:
                    start = int(waiting[0].start[0])
                    _refuse_large("sample", start, cursor.at - start, cursor.limits)
            if not cursor.behind:
                stream.drain(cursor.at)
            self._finish(cursor)

    def _earlier(self, offset: int, length: int) -> bytes:
        """Return bytes of a compressed tar that were read before: the file that a hard link is a name of."""
        if self._again is None:
            tar = self._tar
            self._again = UnwrappedFile(
                tar.source.store, tar.path, tar.entry.wrap, version=tar.entry.version, limits=tar.source.limits
            )
        return self._again.read(offset, length)

    def _fill(self, window: Window, cursor: Cursor, waiting: list[MemberRows]) -> Cursor:
        """Add the members in the window; then the cursor shows what is needed for more."""
        while not cursor.done:
            found, cursor = scan(window, cursor)
            largest = max(int(found.length.max(initial=0)), cursor.need - cursor.at - BLOCK)
            start = int(found.start[found.length.argmax()]) if len(found) else cursor.at
            _refuse_large("member", start, largest, cursor.limits)
            rows = self._take(linked(self._tar, found, in_sample=False))
            if len(rows):
                waiting.append(rows)
            if cursor.need:
                break
        return cursor


def _refuse_large(what: str, start: int, size: int, limits: Limits) -> None:
    if size > limits.tar_member_bytes:
        raise limits.exceeded(
            "tar_member_bytes",
            f"a {what} of a compressed tar is too large to be held",
            offset=start,
            found=size,
            advice="Unpack the tar.",
        )


def _values_in(window: Window, earlier: Callable[[int, int], bytes], limits: Limits) -> ColumnMaker:
    """Return a function that makes columns of values in memory of their own: values in a window, and earlier ones."""
    buffer = pa.py_buffer(window.data)

    def read(at: int, size: int) -> bytes | memoryview:
        if at < window.base:
            return earlier(at, size)
        return window.data.data[at - window.base : at - window.base + size]

    def column(
        offset: NDArray[np.int64],
        length: NDArray[np.int64],
        valid: NDArray[np.bool_],
        sparse: Mapping[int, Sparse],
    ) -> pa.Array:
        if sparse or (offset[valid] < window.base).any():
            return filled(read, offset, length, valid, sparse, limits)
        return join(from_ranges(buffer, np.where(valid, offset - window.base, 0), length, valid))

    return column
