"""Samples of a selection by number: from the first ones on at once, all of them when they are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Event, Lock, Thread

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.order.source_rows import one_batch
from lading.errors import LadingError, UsageError

__all__ = ["Page", "Rows"]

_FIRST_ROWS, _MOST_HELD = 64, 2_000


@dataclass(frozen=True, slots=True)
class Page:
    """Neighbouring samples.

    Attributes:
        first: number of the first one.
        batches: their rows, with payload as references where the format has them. A sample is never cut.
        is_last: whether no sample follows.
    """

    first: int
    batches: list[pa.RecordBatch]
    is_last: bool


class Rows:
    """The samples of a dataset by number.

    To count samples may take a pass over the data. It runs in a thread, while the first samples are read in order.

    Args:
        data: the dataset.

    Attributes:
        data: as given.
        error: of the count; None as long as there is none.
    """

    def __init__(self, data: OpenDataset) -> None:
        self.data = data
        self._lock, self._counted = Lock(), Event()
        self._count: int | None = None
        self.error: LadingError | None = None
        self._held: list[_Held] = []
        self._stream: Iterator[pa.RecordBatch] | None = None
        self._ended = False
        Thread(target=self._find_count, name="lading-view-count", daemon=True).start()

    def _find_count(self) -> None:
        try:
            self._count = len(self.data)
        except LadingError as error:
            self.error = error
        finally:
            self._counted.set()

    @property
    def count(self) -> int | None:
        """Number of samples; None while they are counted."""
        return self._count

    def wait(self, seconds: float) -> None:
        """Wait until samples are counted, for so many seconds at most."""
        self._counted.wait(seconds)

    def page(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Page:
        """Return the samples of a range of numbers; those behind the last one are left out.

        Args:
            start: number of the first one.
            stop: the number behind the last one.
            columns: to read, where samples are read by number; None for all.

        Raises:
            LadingError: the data cannot be read.
        """
        if self._count is None and stop <= _MOST_HELD:
            held = self._first(stop)
            found = [part for each in held if (part := each.between(start, stop)) is not None]
            return Page(start, found, self._ended and held[-1].stop <= stop if held else True)
        self._counted.wait()
        if self._count is None:
            assert self.error is not None
            raise self.error
        stop = min(stop, self._count)
        if start >= stop:
            return Page(start, [], is_last=True)
        return Page(start, [one_batch(self.data.lazily(np.arange(start, stop), columns))], stop >= self._count)

    def sample(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return the rows of a sample. Raises UsageError if there is none of this number."""
        found = self.page(number, number + 1, columns).batches if number >= 0 else []
        if not found:
            raise UsageError("no such sample", found=f"{number:,}", expected="a number from 0" + (
                "" if self._count is None else f", below {self._count:,}"))  # fmt: skip
        return found[0]

    def _first(self, count: int) -> list[_Held]:
        """The first samples, at least so many if there are."""
        with self._lock:
            if self._stream is None:
                self._stream = self.data.looked_at(_FIRST_ROWS, None, on_error="warn")
            while not self._ended and (self._held[-1].stop if self._held else 0) < count:
                batch = next(self._stream, None)
                if batch is None:
                    self._ended = True
                elif batch.num_rows:
                    bounds = self.data.shards.row_layout.bounds(batch)
                    self._held.append(_Held(self._held[-1].stop if self._held else 0, batch, bounds))
            return [*self._held]


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """A batch of the first samples.

    Attributes:
        first: number of its first sample.
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
        """The rows of those samples that lie in a range of numbers; None if there are none."""
        start, stop = max(start, self.first) - self.first, min(stop, self.stop) - self.first
        if start >= stop:
            return None
        first, end = int(self.bounds[start]), int(self.bounds[stop])
        return self.batch.slice(first, end - first)
