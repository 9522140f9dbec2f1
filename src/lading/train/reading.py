"""Read a rank's share of an epoch: chunks of its next samples are read ahead by a thread, and made into batches.

What is read ahead is bounded in bytes, what is decoded ahead in batches.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import LadingError, UsageError
from lading.features.items import sample_firsts
from lading.train.collate import Columns, put_sample
from lading.train.columns import ColumnMaker
from lading.train.feed import EpochOrder, Feed
from lading.train.share import Share

__all__ = ["PADDING", "Chunk", "EpochReader", "OnSampleError", "Reading"]

OnSampleError: TypeAlias = Literal["error", "skip"]
"""For a sample that cannot be decoded, or for which a function raises: raise; or take the next sound one, counted."""

PADDING: Final = "__padding__"
"""Column that says which samples of a batch fill it up, and come again in the epoch."""

_CHUNK_BYTES: Final = 16 << 20
_CHUNK_SAMPLES: Final = 1 << 16
_FIRST_BATCHES: Final = 1
_MOST_REPLACED: Final = 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """How samples are read.

    Attributes:
        columns: columns to read; None for all.
        threads: that decode; None for one a core.
        ahead_bytes: what is read ahead, at most.
        on_error: what is done with a sample that cannot be decoded.
    """

    columns: tuple[str, ...] | None = None
    threads: int | None = None
    ahead_bytes: int = 256 << 20
    on_error: OnSampleError = "error"

    def shared_by(self, processes: int) -> Reading:
        """How each of some processes reads: all together take the memory of one, and by default its threads."""
        threads = self.threads if self.threads or processes == 1 else max(pa.cpu_count() // processes, 1)
        return replace(self, threads=threads, ahead_bytes=max(self.ahead_bytes // processes, 1))


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive batches of the rank, to be read at once.

    Attributes:
        steps: positions of each batch in the order.
        size_bytes: of their samples, by the sizes of files.
    """

    steps: list[NDArray[np.int64]]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EpochReader:
    """Reads what a rank has of one epoch.

    Attributes:
        feed: the samples.
        share: what the rank reads.
        order: of the epoch.
        maker: makes batches of rows.
        reading: how samples are read.
        counts: takes what is to be reported.
    """

    feed: Feed
    share: Share
    order: EpochOrder
    maker: ColumnMaker
    reading: Reading
    counts: Counter[str]

    def batches(self, position: int) -> Iterator[Any]:
        """The batches from a position on, in order."""
        threads = self.reading.threads or pa.cpu_count()
        most = threads + 2 if self.maker.is_costly else 1
        with _Pool(1, "lading-read") as readers, _Pool(threads, "lading-decode") as makers:
            chunks, ahead = self.chunks(position), 0
            read: deque[tuple[Future[list[pa.Table]], int, Chunk]] = deque()
            making: deque[tuple[Callable[[], Any], int]] = deque()
            while True:
                while ahead < self.reading.ahead_bytes and (chunk := next(chunks, None)) is not None:
                    ahead += chunk.size_bytes
                    future = readers.submit(self._tables, chunk.steps)
                    read.extend((future, i, chunk) for i in range(len(chunk.steps)))
                while read and len(making) < most:
                    future, i, chunk = read.popleft()
                    size = chunk.size_bytes // len(chunk.steps)
                    make = partial(self._made, future, i, chunk.steps[i])
                    making.append((makers.submit(make).result if self.maker.is_costly else make, size))
                if not making:
                    return
                take, size = making.popleft()
                yield take()
                ahead -= size

    def chunks(self, position: int) -> Iterator[Chunk]:
        """The next batches of this rank, in groups that are read at once: at first small ones."""
        share, steps = self.share, _FIRST_BATCHES
        batch_bytes = max(self.feed.sample_bytes * share.batch_size, 1)
        most = max(min(_CHUNK_BYTES // batch_bytes, _CHUNK_SAMPLES // share.batch_size), 1)
        while left := share.num_batches(position):
            count = min(steps, most, left)
            if self.order.reads_rounds and steps > _FIRST_BATCHES:
                until = self.order.round_end(position) - position
                count = min(max(-(-until // share.step_samples), 1), left)
            yield Chunk(share.positions(position, count), count * batch_bytes)
            position, steps = share.after(position, count), steps * 2

    def _tables(self, steps: list[NDArray[np.int64]]) -> list[pa.Table]:
        """The rows of each of these batches."""
        positions = np.concatenate(steps) % self.share.num_samples
        rows = self.feed.dataset.take(self.order.at(positions), self.reading.columns, views=True)
        bounds = np.cumsum([0, *map(len, steps)])
        if self.feed.dataset.view == "interleaved":
            bounds = np.append(sample_firsts(rows, self.feed.dataset.view), rows.num_rows)[bounds]
        return [rows.slice(begin, end - begin) for begin, end in pairwise(bounds.tolist())]

    def _made(self, tables: Future[list[pa.Table]], i: int, positions: NDArray[np.int64]) -> Any:
        rows, padding = tables.result()[i], positions >= self.share.num_samples
        if not self.maker.decodes:
            return self.maker.batch(rows.append_column(PADDING, pa.array(padding)) if self.share.pads else rows)
        columns, failed = self.maker.decoded(rows, len(positions))
        for place, error in failed.items():
            self._replace(columns, (place, len(positions)), int(positions[place]), error)
        if self.share.pads:
            columns[PADDING] = padding
        return self.maker.batch(columns)

    def _replace(self, columns: Columns, at: tuple[int, int], position: int, error: LadingError) -> None:
        """Put the next sound sample of the order in the place, of so many, of one that is broken."""
        place, count = at
        if self.reading.on_error == "error" or isinstance(error, UsageError):
            raise self._placed(error, position)
        for further in range(position + 1, position + 1 + min(_MOST_REPLACED, self.share.num_samples - 1)):
            [rows] = self._tables([np.array([further])])
            found, failed = self.maker.decoded(rows, 1)
            if not failed:
                self.counts["samples that could not be decoded, replaced"] += 1
                put_sample(columns, count, place, found)
                return
        raise self._placed(error, position)

    def _placed(self, error: LadingError, position: int) -> LadingError:
        number = int(self.order.at(np.array([position % self.share.num_samples]))[0])
        file, row = self.feed.dataset.place_of(number)
        error.row = None
        return error.at(file=file, row=row)


class _Pool(ThreadPoolExecutor):
    """Threads that are told to stop, and not waited for, when a loop ends."""

    def __exit__(self, *_: object) -> None:
        self.shutdown(wait=False, cancel_futures=True)
