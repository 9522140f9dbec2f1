"""Read a rank's share of an epoch: chunks of its next samples are read ahead by a thread, and made into batches.

What is read ahead is bounded in bytes, what is decoded ahead in batches. The threads are those of one loop, and end
with it. A read that a loop left is ended, and its result forgotten.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.free_memory import keep_freed
from lading._core.dataset.opened import OpenDataset
from lading._core.features.items import KEY
from lading._core.features.row_layout import row_layout
from lading._core.storage.local import LocalMap
from lading._core.storage.threads import Threads, refuse_left
from lading._core.storage.traffic import NOTHING, Read, Traffic
from lading._core.train.collate import Columns, columns_of, put_sample, samples_of
from lading._core.train.columns import ColumnMaker
from lading._core.train.feed import EpochOrder, Feed
from lading._core.train.metrics import LoopCounts
from lading._core.train.missing import Failed, MissingValue
from lading._core.train.permutation import derived_key
from lading._core.train.ranks import cores_of_rank
from lading._core.train.rows import PADDING, DatasetRows, RowReader
from lading._core.train.share import Share
from lading._core.train.skipped import SkippedSample
from lading._core.train.values import Spread, one_by_one
from lading.errors import CorruptShard, FunctionError, LadingError, StoreError, UsageError

__all__ = ["Chunk", "EpochReader", "OnChanged", "OnSampleError", "Reading"]

OnSampleError: TypeAlias = Literal["error", "skip"]
"""For a sample that cannot be decoded, or for which a function raises: raise; or take the next sound one, counted."""

OnChanged: TypeAlias = Literal["error", "keys"]
"""For a state of other data: refuse; or give the samples that were not given before, which keys may have to tell."""

_CHUNK_BYTES: Final = 64 << 20
"""To find samples takes about 0.6 ms a chunk, however many they are: as long as to copy 9 MB."""
_CHUNK_SAMPLES: Final = 1 << 16
_SHARE_OF_AHEAD: Final = 4
"""A chunk takes a quarter of what is read ahead, at most, so that one is read while others are used; a round a half."""
_MOST_CHUNKS: Final = 8
"""That are held at once: of tiny samples, those that the bytes allow would take seconds to plan."""
_FIRST_BATCHES: Final = 1
_NAMED_FILES: Final = 3
_WAIT_S: Final = 0.5
_CHECK_S: Final = 0.005
_CHECK_SHARE: Final = 0.02
"""A file is looked at as often while the values in its map are decoded: to touch what it has lost ends the process."""
_READ_S: Final = 300.0
_THREADS_A_BATCH: Final = 8
"""Threads for which one more batch is made at once."""
_PIECES_A_THREAD: Final = 4
"""Parts of a batch for each thread that decodes: the last parts of a batch end at about the same time."""
_MAKERS: Final = "lading-decode"
_SHOWN_CALLS: Final = 6
_MOST_REPLACED: Final = 1000


@dataclass(frozen=True, slots=True)
class Reading:
    """How samples are read.

    Attributes:
        columns: columns to read; None for all.
        threads: that decode; None for one a core of this rank.
        ahead_bytes: what is read ahead, at most.
        on_error: what is done with a sample that cannot be decoded.
        timeout_s: seconds that the loop waits for a batch. None for 300 to be read, and for ever to be made.
        workers: processes that make the batches; 0 for threads of this one.
        max_skipped: samples that may be left out in an epoch: a number or a rate; None for any.
        on_changed: what is done with a state of other data.
    """

    columns: tuple[str, ...] | None = None
    threads: int | None = None
    ahead_bytes: int = 256 << 20
    on_error: OnSampleError = "error"
    timeout_s: float | None = None
    workers: int = 0
    max_skipped: float | None = None
    on_changed: OnChanged = "error"

    def shared_by(self, processes: int) -> Reading:
        """How each of some processes reads: all together take the memory of one, and by default its threads."""
        threads = self.threads or max(cores_of_rank() // processes, 1)
        return replace(self, threads=threads, ahead_bytes=max(self.ahead_bytes // processes, 1))

    def decoding(self, maker: ColumnMaker) -> int:
        """Number of threads that decode; the loop's own where that costs nothing."""
        return (self.threads or cores_of_rank()) if maker.is_costly else 1


class Chunk:
    """Consecutive batches of the rank, read at once.

    Attributes:
        steps: positions of each batch in the order.
        size_bytes: of their samples: by the samples before, until they are read.
        rows: of each batch, by dataset.
        batch_bytes: of each batch, once they are read.
        seconds: that it took to read them.
    """

    __slots__ = ("batch_bytes", "rows", "seconds", "size_bytes", "steps")

    def __init__(self, steps: list[NDArray[np.int64]], size_bytes: int) -> None:
        self.steps, self.size_bytes = steps, size_bytes
        self.batch_bytes, self.seconds = list[int](), 0.0
        self.rows: Future[list[list[DatasetRows]]] = Future()


@dataclass(slots=True)
class _Done:
    """A batch that was made.

    Attributes:
        batch: as the loop is given it.
        skipped: samples that were left out for it.
        seconds: that threads took to make it of its rows.
    """

    batch: Any
    skipped: list[SkippedSample]
    seconds: float

    def counts(self, chunk: Chunk, i: int, read: Read) -> LoopCounts:
        """What was done for the batch, a chunk's i-th, with what was read since the last one."""
        counts = LoopCounts(
            samples=len(chunk.steps[i]), skipped=len(self.skipped), payload_bytes=chunk.batch_bytes[i],
            fetch_seconds=0.0 if i else chunk.seconds, decode_seconds=self.seconds,
        )  # fmt: skip
        if read is not NOTHING:
            counts.add_read(read)
        return counts


class _Ahead:
    """The batches of a rank, in order, of which chunks are read ahead as far as the bytes allow.

    Args:
        reader: what is read.
        chunks: gives the chunks, and is given what says the bytes of a sample.
        threads: that read.
        traffic: counts what they read from remote stores.
    """

    def __init__(
        self,
        reader: EpochReader,
        chunks: Callable[[Callable[[], float]], Iterator[Chunk]],
        threads: Threads,
        traffic: Traffic,
    ) -> None:
        self._reader, self._threads, self._traffic = reader, threads, traffic
        self._sample_bytes = float(reader.feed.sample_bytes)
        self._chunks = chunks(lambda: self._sample_bytes)
        self._coming = next(self._chunks, None)
        self._held: deque[Chunk] = deque()
        self._next: deque[tuple[Chunk, int]] = deque()

    def next(self) -> tuple[Chunk, int] | None:
        """The chunk of the next batch, and the batch's place in it; None at the end of the epoch."""
        while self._coming is not None and self._may_hold(self._coming.size_bytes):
            chunk, self._coming = self._coming, next(self._chunks, None)
            chunk.rows = self._threads.submit(partial(self._read, chunk))
            self._held.append(chunk)
            self._next.extend((chunk, i) for i in range(len(chunk.steps)))
        return self._next.popleft() if self._next else None

    def used(self, chunk: Chunk) -> None:
        """Take note that the loop has the last batch of a chunk, which is the first that is held."""
        assert self._held[0] is chunk, "batches are used in order"
        self._held.popleft()

    def _may_hold(self, size: int) -> bool:
        """Whether so much more may be read; always if nothing else is held: a batch is never cut."""
        held = sum(chunk.size_bytes for chunk in self._held)
        allowed = held + size <= self._reader.reading.ahead_bytes and len(self._held) < _MOST_CHUNKS
        return allowed or not self._held

    def _read(self, chunk: Chunk) -> list[list[DatasetRows]]:
        begun = time.perf_counter()
        with self._traffic.counted():
            rows, chunk.batch_bytes = self._reader.rows_and_bytes(chunk.steps)
        chunk.size_bytes, chunk.seconds = sum(chunk.batch_bytes), time.perf_counter() - begun
        self._sample_bytes = max(chunk.size_bytes / max(sum(map(len, chunk.steps)), 1), 1)
        return rows


@dataclass(frozen=True, slots=True)
class EpochReader:
    """Reads what a rank has of one epoch.

    Attributes:
        feed: the samples.
        share: what the rank reads.
        order: of the epoch.
        maker: makes batches of rows.
        reading: how samples are read.
        note: is given the samples that were left out for each batch, and what was done for it.
        epoch: its number.
    """

    feed: Feed
    share: Share
    order: EpochOrder
    maker: ColumnMaker
    reading: Reading
    note: Callable[[Sequence[SkippedSample], LoopCounts], None]
    epoch: int

    def batches(self, position: int) -> Generator[Any]:
        """The batches from a position on, in order."""
        return self._batches_of(partial(self.chunks, position))

    def batches_at(self, steps: Iterator[NDArray[np.int64]], step_bytes: int) -> Generator[Any]:
        """A batch of the samples at each array of positions, which are asked for ahead.

        Args:
            steps: the positions.
            step_bytes: that the caller holds for each batch until the loop has it.
        """
        return self._batches_of(partial(self._chunks_at, steps, step_bytes))

    def _batches_of(self, chunks: Callable[[Callable[[], float]], Iterator[Chunk]]) -> Generator[Any]:
        keep_freed(self.share.batch_size * self.feed.sample_bytes)
        count = self.reading.threads or cores_of_rank()
        # All threads decode the samples of a batch. Functions for batches take one, so more batches are made at once.
        at_once = count if self.maker.has_functions else 2 + count // _THREADS_A_BATCH
        most = at_once + 1 if self.maker.is_costly else 1
        with (
            Threads(1, "lading-read") as readers,
            Threads(at_once, _MAKERS) as makers,
            Threads(count, _MAKERS) as decoders,
        ):
            traffic = Traffic()
            ahead = _Ahead(self, chunks, readers, traffic)
            making: deque[tuple[Chunk, int, Future[_Done] | None]] = deque()
            while True:
                while len(making) < most and (found := ahead.next()) is not None:
                    chunk, i = found
                    spread = _Spread(decoders, count * _PIECES_A_THREAD)
                    make = partial(self._done, chunk, i, spread, traffic)
                    making.append((chunk, i, makers.submit(make) if self.maker.is_costly else None))
                if not making:
                    return
                chunk, i, made = making.popleft()
                self._wait_for(chunk)
                if made is not None:
                    self._wait_for_made(made, chunk.steps[i])
                done = self._done(chunk, i, None, traffic) if made is None else made.result()
                # Noted when the loop has the batch: one that was made ahead may be made again.
                self.note(done.skipped, done.counts(chunk, i, traffic.taken()))
                if i == len(chunk.steps) - 1:
                    ahead.used(chunk)
                batch = done.batch
                del chunk, made, found, done  # a chunk is in memory as long as somebody has it
                yield batch
                del batch

    def chunks(self, position: int, sample_bytes: Callable[[], float] | None = None) -> Iterator[Chunk]:
        """The next batches of this rank, in groups that are read at once: at first small ones.

        A group has as many batches as its bytes allow; with rounds it is the rest of one. If samples that are read
        together come from a remote store, the first group is a round too, or its blocks would be read twice.

        Args:
            position: where in the epoch.
            sample_bytes: of a sample, as far as is known when a chunk is made; by default as the files say.
        """
        share, order, most, steps = self.share, self.order, self.reading.ahead_bytes, _FIRST_BATCHES
        while left := share.num_batches(position):
            batch_bytes = (
                int(share.batch_size * (self.feed.sample_bytes if sample_bytes is None else sample_bytes())) + 1
            )
            if order.reads_rounds and (steps > _FIRST_BATCHES or self.feed.reads_units):
                count = min(share.steps_until(position, order.round_end(position)), most // 2 // batch_bytes)
            else:
                by_bytes = min(_CHUNK_BYTES, most // _SHARE_OF_AHEAD) // batch_bytes
                count = min(steps, by_bytes, _CHUNK_SAMPLES // share.batch_size)
            count = min(max(count, 1), left)
            yield Chunk(share.positions(position, count), count * batch_bytes)
            position, steps = share.after(position, count), steps * 2

    def _chunks_at(
        self, steps: Iterator[NDArray[np.int64]], step_bytes: int, sample_bytes: Callable[[], float]
    ) -> Iterator[Chunk]:
        """The batches at some positions, in groups that are read at once: at first small ones.

        Neighbours in a file are read for several groups. So a group is as large as the bytes allow.
        """
        most, count = min(_CHUNK_BYTES, self.reading.ahead_bytes // 2), _FIRST_BATCHES
        while group := [*islice(steps, count)]:
            size = int(sum(map(len, group)) * sample_bytes()) + len(group) * step_bytes + 1
            yield Chunk(group, size)
            count = max(min(2 * count, most * len(group) // size), 1)

    def _wait_for(self, chunk: Chunk) -> None:
        """Wait until a chunk is read. Raises StoreError when that takes too long."""
        most = self.reading.timeout_s or _READ_S
        if _is_done(chunk.rows, most):
            return
        numbers = self.order.at(chunk.steps[0] % self.share.num_samples)
        files = list(dict.fromkeys(self._place_of(int(number))[0] for number in numbers))
        more = f" and {len(files) - _NAMED_FILES} more shards" if len(files) > _NAMED_FILES else ""
        raise StoreError(
            "samples were not read in time", file=", ".join(files[:_NAMED_FILES]) + more,
            expected=f"an answer within {most:g} s", found="none",
            advice="Look at the store. If it is only slow, give the loader a larger timeout.",
        )  # fmt: skip

    def _wait_for_made(self, made: Future[Any], positions: NDArray[np.int64]) -> None:
        """Wait until a batch is made. Raises FunctionError when that takes longer than the user allows."""
        most = self.reading.timeout_s
        if most is None or _is_done(made, most):
            _is_done(made)
            return
        error = FunctionError(
            "the batch that begins with this sample was not made in time", expected=f"a batch within {most:g} s",
            found="none", advice="Look at the function. If it is only slow, give the loader a larger timeout.",
        )  # fmt: skip
        for stack in _stacks(_MAKERS):
            error.add_note(stack)
        raise self._placed(error, int(positions[0]))

    def placed(self, error: LadingError, position: int) -> LadingError:
        """The error of a batch, with the place of its first sample."""
        return self._placed(error, int(self.share.positions(position, 1)[0][0]))

    def rows_and_bytes(self, steps: list[NDArray[np.int64]]) -> tuple[list[list[DatasetRows]], list[int]]:
        """The rows of each batch of some positions, by dataset, and the bytes of each batch."""
        numbers = self.order.at(np.concatenate(steps) % self.share.num_samples)
        reader = RowReader(self.feed.parts, self.reading.columns, self.maker.decodes, views=not self.feed.remote)
        return reader.batches(numbers, [*map(len, steps)])

    def _decoded(
        self,
        rows: Sequence[DatasetRows],
        positions: NDArray[np.int64],
        spread: Spread = one_by_one,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[Columns, Failed]:
        """The columns of the batch at some positions, and the errors of samples, by place."""
        made = [
            (each, *self.maker.decoded(
                each.table, len(each.places),
                each.dataset.as_samples if row_layout(each.dataset.view).has_items else None,
                partial(self._rng_of, positions[each.places]), spread,
                self.share.image_size(int(positions[0])), check,
            )) for each in rows
        ]  # fmt: skip
        if len(made) == 1:
            return made[0][1:]
        samples, failed = [dict[str, Any]() for _ in positions], dict[int, LadingError]()
        for each, columns, errors in made:
            places = each.places.tolist()
            failed |= {places[i]: error for i, error in errors.items()}
            for place, sample in zip(places, samples_of(columns), strict=False):  # a transform may leave no column
                samples[place] = sample
        columns = columns_of(samples)
        self.maker.complete(columns, failed)
        return columns, failed

    def _rng_of(self, positions: NDArray[np.int64], i: int, use: str) -> np.random.Generator:
        """The generator of the i-th sample: the same in this epoch on any rank, in any thread, after any stop."""
        position = int(positions[i]) % self.share.num_samples
        return np.random.default_rng(derived_key(self.feed.seed, self.epoch, use, position))

    def _done(self, chunk: Chunk, i: int, spread: _Spread | None, traffic: Traffic) -> _Done:
        """A batch, and what was done for it."""
        rows = chunk.rows.result()[i]
        begun = time.perf_counter()
        with traffic.counted():  # of samples that are taken instead of broken ones
            batch, skipped = self._made(rows, chunk.steps[i], spread or one_by_one)
        seconds = time.perf_counter() - begun + (spread.more_seconds if spread else 0.0)
        return _Done(batch, skipped, seconds)

    def _made(
        self, rows: Sequence[DatasetRows], positions: NDArray[np.int64], spread: Spread
    ) -> tuple[Any, list[SkippedSample]]:
        """A batch, and the samples that were left out for it."""
        maps = [mapped for each in rows for mapped in each.maps()]
        check = _NowAndThen(partial(self._refuse_changed, maps, positions))
        check()
        padding = positions >= self.share.num_samples
        if not self.maker.decodes:
            tables = [each.padded(padding) if self.share.pads else each.table for each in rows]
            return self._batch(tables[0] if len(tables) == 1 else pa.concat_tables(tables), positions), []
        columns, failed = self._decoded(rows, positions, spread, check)
        self._refuse_changed(maps, positions)  # values that were written meanwhile are others, in part or whole
        for place, error in failed.items():
            self._replace(columns, (place, len(positions)), int(positions[place]), error)
        if self.share.pads:
            columns[PADDING] = padding
        skipped = [
            SkippedSample.of(self._with_key(self._placed(error, int(positions[i])), int(positions[i])), self.epoch)
            for i, error in failed.items()
        ]
        return self._batch(columns, positions), skipped

    def _refuse_changed(self, maps: Sequence[LocalMap], positions: NDArray[np.int64]) -> None:
        """Raise CorruptShard if somebody wrote to a file since its samples were read ahead.

        Values are left in its map until they are decoded. To touch pages that a file has lost would end the process.
        """
        try:
            for mapped in maps:
                mapped.check()
        except CorruptShard as error:
            places = map(self._place, positions.tolist())
            raise error.at(row=next((row for file, row in places if file == error.file), None)) from None

    def _batch(self, found: Columns | pa.Table, positions: NDArray[np.int64]) -> Any:
        try:
            return self.maker.batch(found)
        except FunctionError as error:
            self._placed(error, int(positions[0]))
            raise

    def _replace(self, columns: Columns, at: tuple[int, int], position: int, error: LadingError) -> None:
        """Put the next sound sample of the order in the place, of so many, of one that is broken."""
        place, count = at
        if isinstance(error, UsageError):
            raise self._placed(error, position)
        if self.reading.on_error == "error" and not isinstance(error, MissingValue):
            mend = error.advice or "Mend the sample."
            error.advice = f'{mend} Or replace broken samples by the next sound ones: on_error="skip".'
            raise self._placed(error, position)
        others = self.share.others(position, _MOST_REPLACED)
        for further in others.tolist():
            [rows], _ = self.rows_and_bytes([np.array([further])])
            found, failed = self._decoded(rows, np.array([further]))
            if not failed:
                put_sample(columns, count, place, found)
                self.maker.complete(columns, failed)
                if place not in failed:
                    return
                if isinstance(failed[place], UsageError):
                    raise self._placed(failed[place], further)
        mend = error.advice or "Look at the data."
        skip = "missing" if isinstance(error, MissingValue) else "on_error"
        error.advice = f'{mend} {skip}="skip" found no sample to take instead: the next {len(others):,} are broken too.'
        raise self._placed(error, position)

    def _placed(self, error: LadingError, position: int) -> LadingError:
        file, row = self._place(position)
        error.row = None
        return error.at(file=file, row=row)

    def _with_key(self, error: LadingError, position: int) -> LadingError:
        """The error of a sample with its key, which is read where the columns of the batch have none."""
        first, dataset = self._part_of(number := self._number(position))
        if error.sample is None and KEY in dataset.first_schema.names:
            error = error.at(sample=str(dataset.take(np.array([number - first]), [KEY]).column(KEY)[0].as_py()))
        return error

    def _number(self, position: int) -> int:
        """The number of a sample by its position in the order."""
        return int(self.order.at(np.array([position % self.share.num_samples]))[0])

    def _place(self, position: int) -> tuple[str, int]:
        """The file of a sample, and its number in that file, by its position in the order."""
        return self._place_of(self._number(position))

    def _place_of(self, number: int) -> tuple[str, int]:
        """The file of a sample, and its number in that file."""
        first, dataset = self._part_of(number)
        return dataset.place_of(number - first)

    def _part_of(self, number: int) -> tuple[int, OpenDataset]:
        """The dataset of a sample, and the number of its first sample."""
        return next(part for part in reversed(self.feed.parts) if part[0] <= number)


def _stacks(name: str) -> list[str]:
    """What threads of a name are doing, as the end of a traceback each."""
    frames = sys._current_frames()  # noqa: SLF001 - Python has no other way to look at threads
    found = ((each.name, frames.get(each.ident or 0)) for each in threading.enumerate() if each.name.startswith(name))
    return [
        f"In the thread {thread}:\n{''.join(traceback.format_stack(frame, _SHOWN_CALLS))}"
        for thread, frame in found
        if frame is not None
    ]


class _NowAndThen:
    """Calls a check at most every few milliseconds, and for a fiftieth of the time: it is a system call for each file.

    Args:
        check: what is called. While it raises, each call calls it.
    """

    __slots__ = ("_check", "_next")

    def __init__(self, check: Callable[[], None]) -> None:
        self._check, self._next = check, 0.0

    def __call__(self) -> None:
        if (now := time.monotonic()) >= self._next:
            self._check()
            self._next = now + max(_CHECK_S, (time.monotonic() - now) / _CHECK_SHARE)


class _Spread:
    """Calls a function with every number below a count, in threads, some neighbours at a time (`Spread`).

    Args:
        threads: do the calls.
        pieces: parts of the numbers.

    Attributes:
        more_seconds: that all threads took, but for those that the thread of the batch waited for them.
    """

    __slots__ = ("_pieces", "_threads", "more_seconds")

    def __init__(self, threads: Threads, pieces: int) -> None:
        self._threads, self._pieces, self.more_seconds = threads, pieces, 0.0

    def __call__(self, call: Callable[[int], None], count: int) -> None:
        """Call the function with every number."""
        size = -(-count // self._pieces)
        if count <= size:
            one_by_one(call, count)
            return

        def call_some(begin: int) -> float:
            begun = time.perf_counter()
            for i in range(begin, min(begin + size, count)):
                refuse_left()
                call(i)
            return time.perf_counter() - begun

        begun = time.perf_counter()
        pieces = [self._threads.submit(partial(call_some, begin)) for begin in range(0, count, size)]
        self.more_seconds += sum(piece.result() for piece in pieces) - (time.perf_counter() - begun)


def _is_done(future: Future[Any], timeout_s: float = inf) -> bool:
    """Wait for a result; False if there is none in time.

    Python looks at signals before a wait. So a wait is cut, or Ctrl-C at that moment would count at its end.
    """
    until = time.monotonic() + timeout_s
    while not future.done() and (left := until - time.monotonic()) > 0:
        with suppress(TimeoutError):
            future.exception(min(left, _WAIT_S))
    return future.done()
