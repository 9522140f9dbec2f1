"""Extents: consecutive parts of a shard's file, each with its rows and its checksum.

The extents of a file follow each other and cover it. A row in one contiguous range is an extent of its own, and so are
rows that are read together (a row group). Rows smaller than 8 KB share extents. A part without rows (a header, an index
at the end) is also stored as a copy, so that salvage can restore it.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import ArrayLike, NDArray

__all__ = ["EXTENTS_SCHEMA", "NO_ROWS", "ExtentSums"]

EXTENTS_SCHEMA = pa.schema(
    [
        pa.field("file", pa.int32(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("last_row", pa.int64(), nullable=False),
        pa.field("xxh3", pa.uint64(), nullable=False),
        pa.field("copy", pa.large_binary()),
    ]
)
"""One row per extent, file by file, in order. `file` is 0 for the shard's own file and then counts the files next to
it. `first_row` and `last_row` are the rows inside, as the format's reader counts them; both are −1 if there are none.
`xxh3` is the xxh3-64 of the bytes. Parts without rows also hold their bytes, if these are not too many."""

NO_ROWS = -1
"""Row number of a part without rows."""

_SMALL_BITS = 13
"""Rows smaller than 8 KB share an extent, after the first rows of a file. A checksum takes 0.1 to 0.3 µs a row: as long
as writing a row of 100 bytes, and half as long as writing one of 2 KB."""
_ALONE_ROWS = 4096
"""Number of first rows of a file that do not share. They cost a millisecond a shard, and no row of a small shard takes
another with it."""
_STEP_BYTES = 64 << 10
"""As in `_core.storage.checksum`."""
_MOST_COPIED_BYTES = 16 << 20
_SUM_BYTES = 8


class ExtentSums:
    """Take the checksums of extents while the bytes of their file pass. Memory: some 40 bytes an extent.

    The writer marks the ends of rows before their bytes arrive, or at the latest when only these have arrived. The
    bytes may arrive in another thread.
    """

    def __init__(self) -> None:
        self._marked = self._rows = 0
        self._small: tuple[int, int] | None = None
        self._marks: deque[NDArray[np.int64]] = deque()
        self._known: list[NDArray[np.int64]] = []
        self._ends = np.zeros(0, np.int64)
        self._heads = np.zeros(0, np.bool_)
        self._at = self._fed_bytes = 0
        self._sum, self._copy = xxhash.xxh3_64(), bytearray()
        self._sums = bytearray()
        self._copies: dict[int, bytes] = {}

    def mark(self, ends: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Mark the ends of rows in the file, in order, with their numbers; `NO_ROWS` for the parts between them."""
        size = np.diff(ends, prepend=self._marked)
        if not size.all():
            there = np.flatnonzero(size)
            ends, rows, size = ends[there], rows[there], size[there]
        if not len(ends):
            return
        assert self._marked or not self._at, "the first is told before the first bytes come"
        last, self._marked = self._marked, int(ends[-1])
        alone = (rows == NO_ROWS) | (size >> _SMALL_BITS > 0)
        alone[: max(_ALONE_ROWS - self._rows, 0)] = True
        self._rows += len(ends)
        if alone[0]:
            self._end_small(last)
        # Small rows share until one crosses a multiple of 8 KB: the grouping does not depend on batches.
        passes = np.diff(ends >> _SMALL_BITS, prepend=last >> _SMALL_BITS) != 0
        cut = np.flatnonzero(passes | alone | np.append(alone[1:], np.False_))
        begin = np.append(0, cut + 1)
        first = rows[begin[begin < len(rows)]]
        if self._small is not None:
            first[0] = self._small[0]
        self._tell(ends[cut], first[: len(cut)], rows[cut])
        self._small = (int(first[-1]), int(rows[-1])) if len(first) > len(cut) else None

    def mark_extents(self, ends: ArrayLike, first: ArrayLike, last: ArrayLike) -> None:
        """Mark the ends of extents, in order, with their first and last rows: for rows that are read together."""
        self._end_small(self._marked)
        self._marked = int(np.max(ends, initial=self._marked))
        self._tell(ends, first, last)

    def _end_small(self, end: int) -> None:
        if self._small is not None:
            self._tell(end, *self._small)
            self._small = None

    def _tell(self, end: ArrayLike, first: ArrayLike, last: ArrayLike) -> None:
        if np.size(end):
            self._marks.append(np.array([end, first, last], np.int64).reshape(3, -1))

    def update(self, data: memoryview) -> None:
        """Add bytes of the file; do nothing as long as no row was marked."""
        if not self._marked:
            self._at += len(data)
            return
        while self._marks:
            self._known.append(self._marks.popleft())
            self._ends = np.append(self._ends, self._known[-1][0])
            self._heads = np.append(self._heads, self._known[-1][1] == NO_ROWS)
        count = int(np.searchsorted(self._ends, self._at + len(data), "right"))
        cuts, heads = (self._ends[:count] - self._at).tolist(), self._heads[:count].tolist()
        self._ends, self._heads = self._ends[count:], self._heads[count:]
        done = 0
        if cuts and not any(heads) and max((b - a for a, b in pairwise(cuts)), default=0) <= _STEP_BYTES:
            self._feed(data[: cuts[0]], head=False)
            self._end(head=False)
            self._sums += b"".join([xxhash.xxh3_64_digest(data[a:b]) for a, b in pairwise(cuts)])
            done = cuts[-1]
        else:
            for cut, head in zip(cuts, heads, strict=True):
                self._feed(data[done:cut], head=head)
                self._end(head=head)
                done = cut
        # Until this part is marked, it may be one that is copied.
        self._feed(data[done:], head=not len(self._heads) or bool(self._heads[0]))
        self._at += len(data)

    def _feed(self, data: memoryview, *, head: bool) -> None:
        for at in range(0, len(data), _STEP_BYTES):
            self._sum.update(data[at : at + _STEP_BYTES])
        self._fed_bytes += len(data)
        if head and self._fed_bytes <= _MOST_COPIED_BYTES:
            self._copy += data

    def _end(self, *, head: bool) -> None:
        if head and len(self._copy) == self._fed_bytes:
            self._copies[len(self._sums) // _SUM_BYTES] = bytes(self._copy)
        self._sums += self._sum.digest()
        self._sum, self._copy, self._fed_bytes = xxhash.xxh3_64(), bytearray(), 0

    def extents(self, file: int) -> pa.RecordBatch | None:
        """Return all extents as rows of `EXTENTS_SCHEMA`, after all bytes and marks; None if nothing was marked.

        Args:
            file: number of the file among those of its shard.
        """
        if not self._marked:
            return None
        self._end_small(self._marked)
        self.update(memoryview(b""))
        assert self._at == self._marked, "as many bytes came as were told"
        end, first, last = np.concatenate(self._known, axis=1)
        self._known.clear()
        copied = np.full(len(end), -1)
        copied[[*self._copies]] = np.arange(len(self._copies))
        copies = pa.array(self._copies.values(), pa.large_binary()).take(pa.array(copied, mask=copied < 0))
        sums = np.frombuffer(self._sums, ">u8").astype(np.uint64)
        columns = [
            np.full(len(end), file), np.diff(end, prepend=0), first, last, sums, copies,
        ]  # fmt: skip
        arrays = [pa.array(column, field.type) for column, field in zip(columns, EXTENTS_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=EXTENTS_SCHEMA)
