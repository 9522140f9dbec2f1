"""Rows that the page was shown, with their small payload: its pictures are read once, and together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading._core.arrow.references import is_ref
from lading._core.dataset.opened import OpenDataset
from lading._core.features.natural import known_feature
from lading._core.tables.media_columns import media_lengths
from lading.errors import LadingError

__all__ = ["Held", "HeldPages", "with_small_payload"]

_PAYLOAD_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Rows of neighbouring samples.

    Attributes:
        first: number of the first one.
        batch: the rows.
        bounds: the first row of each sample, and the number of rows.
    """

    first: int
    batch: pa.RecordBatch
    bounds: NDArray[np.int64]

    @property
    def stop(self) -> int:
        """The number behind the last sample."""
        return self.first + len(self.bounds) - 1

    def between(self, start: int, stop: int) -> pa.RecordBatch | None:
        """Return the rows of those samples that lie in a range of numbers; None if there are none."""
        start, stop = max(start, self.first) - self.first, min(stop, self.stop) - self.first
        if start >= stop:
            return None
        first, end = int(self.bounds[start]), int(self.bounds[stop])
        return self.batch.slice(first, end - first)


class HeldPages:
    """The newest rows that were shown, of all selections.

    Args:
        most_bytes: of all pages; a single one may have more.

    Attributes:
        held_bytes: of all pages.
    """

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        self._most_bytes, self.held_bytes = most_bytes, 0
        self._lock = Lock()
        self._held: deque[tuple[object, Held, int]] = deque()

    def add(self, owner: object, held: Held) -> None:
        """Hold rows of a selection."""
        size = held.batch.nbytes
        with self._lock:
            self._held.append((owner, held, size))
            self.held_bytes += size
            while self.held_bytes > self._most_bytes and len(self._held) > 1:
                self.held_bytes -= self._held.popleft()[2]

    def find(self, owner: object, number: int, columns: Sequence[str]) -> pa.RecordBatch | None:
        """Return the rows of a sample of a selection, with these columns; None if they are not held."""
        with self._lock:
            found = [held for mine, held, _ in self._held if mine is owner and held.first <= number < held.stop]
        held = next((each for each in reversed(found) if {*columns} <= {*each.batch.schema.names}), None)
        return None if held is None else held.between(number, number + 1)

    def forget(self, owner: object) -> None:
        """Drop the rows of a selection."""
        with self._lock:
            self._held = deque(each for each in self._held if each[0] is not owner)
            self.held_bytes = sum(size for *_, size in self._held)


def with_small_payload(data: OpenDataset, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with the bytes of their columns in the place of references, the smallest columns first, up to 32 MB.

    They are read together, by coalesced ranges. Sounds and videos stay references: the page shows their headers. So
    do values that cannot be read, whose errors the page shows one by one.
    """
    sizes = {
        field.name: _bytes_of(data, rows, field.name)
        for field in rows.schema
        if is_ref(field.type) and known_feature(field).medium not in ("audio", "video")
    }
    small, left = list[str](), _PAYLOAD_BYTES
    for name, size in sorted(sizes.items(), key=lambda each: each[1]):
        left -= size
        if left >= 0:
            small.append(name)
    try:
        return data.materialise(rows, columns=small) if small else rows
    except LadingError:
        return rows


def _bytes_of(data: OpenDataset, rows: pa.RecordBatch, name: str) -> int:
    """The bytes of a column of references; more than are read where a packed value does not say its size."""
    column = rows.column(name)
    lengths = media_lengths(column, rows.schema, data.shards.fetcher)
    is_known = lengths.null_count == column.null_count
    return int(pc.sum(lengths, min_count=0).as_py()) if is_known else _PAYLOAD_BYTES + 1
