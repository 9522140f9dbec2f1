"""Samples of a selection by number: from the first ones on at once, all of them when they are counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Condition, Event, Lock, Thread

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.order.source_rows import one_batch
from lading._core.dataset.shards.shards import Shards
from lading._core.features.items import PAYLOAD
from lading._core.storage.concurrent import concurrent_map
from lading._core.storage.traffic import Traffic, WorkStopped, refuse_stopped
from lading._core.view.held_pages import Held, HeldPages, with_small_payload
from lading.errors import LadingError, UsageError

__all__ = ["SamplePage", "SelectedSamples", "Turns"]

_FIRST_ROWS = 64
_PASS_ROWS, _REMOTE_PASS_ROWS = 4_096, 256
"""Rows of a batch in the search for those that pass a condition: many cost less, few come sooner from a store."""
_MOST_HELD, _MOST_HELD_BYTES = 2_000, 32 << 20
_SOON_S, _PATIENCE_S, _MOST_WAIT_S = 0.2, 0.5, 20.0
_TURN_S, _LOOK_S = 1.0, 0.5
REST_S = 60.0
"""Counting rests when nobody has asked for so many seconds: the page that is open asks more often."""


@dataclass(frozen=True, slots=True)
class SamplePage:
    """Neighbouring samples.

    Attributes:
        first: number of the first one.
        batches: their rows. Payload that is small is there, other payload as references. A sample is never cut.
        is_last: whether no sample follows.
        is_whole: whether all samples of the range are there; else those that were found so far.
        error: why those behind them cannot be read; None if they can.
    """

    first: int
    batches: list[pa.RecordBatch]
    is_last: bool
    is_whole: bool = True
    error: LadingError | None = None


class Turns:
    """Lets the page read first: counting asks a store for no more while the page waits for its samples."""

    def __init__(self) -> None:
        self._lock, self._idle, self._reading = Lock(), Event(), 0
        self._idle.set()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read for the page."""
        with self._lock:
            self._reading += 1
            self._idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._reading -= 1
                if not self._reading:
                    self._idle.set()

    def give_way(self) -> None:
        """Wait until the page has its samples; a second at most."""
        self._idle.wait(_TURN_S)


class _Counting(Traffic):
    """The work of counting samples. It rests while nobody asks for them.

    Args:
        turns: what goes first.

    Attributes:
        asked_s: when somebody asked last, by `time.monotonic`.
    """

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns, self.asked_s = turns, time.monotonic()

    def go_on(self) -> None:
        """See `Traffic.go_on`; a request waits for those of the page, and for somebody who asks."""
        super().go_on()
        self._turns.give_way()
        while time.monotonic() - self.asked_s > REST_S:
            time.sleep(_LOOK_S)
            super().go_on()


class SelectedSamples:
    """The samples of a dataset by number.

    To count samples may take a pass over the data. It runs in a thread, while another one reads the first samples in
    order. Behind a condition the count begins when the first page is found: if fewer samples than a page pass the
    condition, one pass finds both.

    Args:
        data: the dataset.
        pages: the rows that were shown, of all selections.
        turns: of all that read for the page.

    Attributes:
        data: as given.
        pages: as given.
        error: of the count; None as long as there is none.
    """

    def __init__(self, data: OpenDataset, pages: HeldPages, turns: Turns) -> None:
        self.data, self.pages, self._turns = data, pages, turns
        self.error: LadingError | None = None
        self._changed = Condition()
        self._count: int | None = None
        self._held: list[Held] = []
        self._first_schema: pa.Schema | None = None
        self._wanted, self._held_bytes = 0, 0
        self._has_ended = self._is_closed = False
        self._stream_error: LadingError | None = None
        self._counting, self._streaming = _Counting(turns), Traffic()
        chosen = data.chosen
        self._streams = chosen is None or not any(step.needs_all for step in chosen.steps)
        self._reader: Thread | None = None
        if chosen is not None and self._streams:
            with self._changed:
                self._want(_FIRST_ROWS)
        Thread(target=self._find_count, name="lading-view-count", daemon=True).start()

    def close(self) -> None:
        """Stop to read and to count; whoever waits for samples gets an error."""
        self._counting.stop()
        self._streaming.stop()
        with self._changed:
            self._is_closed = True
            self._held.clear()
            self._changed.notify_all()
        self.pages.forget(self)

    @property
    def count(self) -> int | None:
        """Number of samples; None while they are counted."""
        return self._count

    @property
    def schema(self) -> pa.Schema:
        """The columns, as far as a manifest or a footer says them; of a tar those of the first samples, then of all.

        A tar is not read for its columns. When its samples are counted, its index has them.
        """
        if self._streams and self._count is None and not self.data.shards.knows_schema:
            with self._changed:
                self._want(1)
                self._changed.wait_for(lambda: self._first_schema is not None or self._has(1), _MOST_WAIT_S)
                if self._first_schema is not None:
                    return self._first_schema
        return self.data.first_schema

    def wait(self, seconds: float) -> None:
        """Wait until samples are counted, for so many seconds at most."""
        self._counting.asked_s = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._count is not None or self.error is not None, seconds)

    def page(self, start: int, stop: int, columns: Sequence[str] | None = None) -> SamplePage:
        """Return the samples of a range of numbers; those behind the last one are left out.

        While samples are counted, those of the range that were found are returned after half a second.

        Args:
            start: number of the first one.
            stop: the number behind the last one.
            columns: to read, where samples are read by number; None for all.

        Raises:
            LadingError: the data cannot be read.
        """
        found = self._page(start, stop, columns)
        with self._turns.reading():
            batches = [with_small_payload(self.data, batch) for batch in found.batches]
        for batch in batches:
            bounds = self.data.shards.row_layout.bounds(batch)
            self.pages.add(self, Held(start, batch, bounds))
            start += len(bounds) - 1
        return replace(found, batches=batches)

    def sample(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return the rows of a sample, payload as references where the format has them.

        Args:
            number: of the sample.
            columns: to read; None for all.

        Raises:
            UsageError: there is no sample of this number.
            LadingError: the data cannot be read.
        """
        return self._one(number, [] if number < 0 else self._page(number, number + 1, columns).batches)

    def shown(self, number: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return the same with small payload, as it was read with a page that has the sample."""
        asked = [PAYLOAD] if self.data.shards.has_items else columns
        rows = None if asked is None else self.pages.find(self, number, asked)
        if rows is not None:
            return rows
        return self._one(number, [] if number < 0 else self.page(number, number + 1, columns).batches)

    def _one(self, number: int, found: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        if not found:
            raise UsageError("no such sample", found=f"{number:,}", expected="a number from 0" + (
                "" if self._count is None else f", below {self._count:,}"))  # fmt: skip
        return found[0]

    def _page(self, start: int, stop: int, columns: Sequence[str] | None) -> SamplePage:
        """The samples of a range, payload as references; by their numbers where they are counted."""
        self._counting.asked_s = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._count is not None or self._is_closed, _SOON_S)
            if self._count is None and self._streams and start < _MOST_HELD:
                self._want(min(stop, _MOST_HELD))
                self._changed.wait_for(lambda: self._has(stop), _PATIENCE_S)
            self._changed.wait_for(lambda: self._has(start + 1), _MOST_WAIT_S)
            if self._is_closed:
                raise UsageError("the samples of this selection are no longer read", advice="Open the page again.")
            if self._count is None or self._has_ended:
                return self._first(start, stop)
        stop = min(stop, self._count)
        if start >= stop:
            return SamplePage(start, [], is_last=True)
        with self._turns.reading():
            rows = one_batch(self.data.lazily(np.arange(start, stop), columns))
        return SamplePage(start, [rows], stop >= self._count)

    def _first(self, start: int, stop: int) -> SamplePage:
        """The samples of a range that were read in order so far."""
        found = [part for each in self._held if (part := each.between(start, stop)) is not None]
        error = self._stream_error or (None if self._can_hold(stop) else self.error)
        if error is not None and not found:
            raise error
        is_last = self._has_ended and self._held_stop <= stop  # then the first ones are all
        return SamplePage(start, found, is_last, is_last or self._held_stop >= stop, error)

    @property
    def _held_stop(self) -> int:
        return self._held[-1].stop if self._held else 0

    def _can_hold(self, stop: int) -> bool:
        return self._streams and stop <= _MOST_HELD and self._held_bytes < _MOST_HELD_BYTES

    def _has(self, stop: int) -> bool:
        """Whether the samples up to a number are there, or never will be."""
        if self._count is not None or self._is_closed or self._held_stop >= stop:
            return True
        if self._can_hold(stop):
            return self._has_ended or self._stream_error is not None
        return self.error is not None

    def _find_count(self) -> None:
        if self._reader is not None:
            with self._changed:
                self._changed.wait_for(lambda: self._has(_FIRST_ROWS) or not self._can_hold(_FIRST_ROWS))
        count, error = None, None
        try:
            with self._counting.counted():
                if self.data.chosen is None and self.data.fitting.known_count is None:
                    _keep_indexes(self.data.fitting)
                count = len(self.data)
        except WorkStopped:
            return
        except LadingError as found:
            error = found
        with self._changed:
            self._count, self.error = count, error
            if error is None and not self._has_ended:  # samples are read by their numbers now
                self._held.clear()
            self._changed.notify_all()

    def _want(self, stop: int) -> None:
        """Have the first samples read."""
        self._wanted = max(self._wanted, stop)
        if self._reader is None:
            self._reader = Thread(target=self._read_first, name="lading-view-rows", daemon=True)
            self._reader.start()
        self._changed.notify_all()

    def _read_first(self) -> None:
        """Read the first samples, as many as are wanted, until they are counted."""
        has_ended, error = False, None
        try:
            with self._streaming.counted(), self.data.shards.reporting_to(Counter()):
                has_ended = self._hold()
        except WorkStopped:
            return
        except LadingError as found:
            error = found
        with self._changed:
            self._has_ended = has_ended and self._count is None
            self._stream_error = error
            self._changed.notify_all()

    def _hold(self) -> bool:
        """Hold samples as they come; return whether the last one has come."""
        numbers = [np.zeros(0, np.int64)]
        with closing(self._in_order()) as stream:
            while True:
                with self._turns.reading():
                    batch, samples = next(stream, (None, None))
                if batch is None:
                    break
                if samples is not None:
                    numbers.append(samples)
                with self._changed:
                    self._held.append(Held(self._held_stop, batch, self.data.shards.row_layout.bounds(batch)))
                    self._held_bytes += batch.nbytes
                    self._first_schema = self._first_schema or batch.schema
                    self._changed.notify_all()
                    self._changed.wait_for(self._goes_on)
                    if self._count is not None or self._is_closed:
                        return False
        if self.data.chosen is not None and sum(map(len, numbers)) == self._held_stop:
            self.data.chosen.know(np.concatenate(numbers))  # to count takes no other pass
        return True

    def _in_order(self) -> Generator[tuple[pa.RecordBatch, NDArray[np.int64] | None]]:
        """The rows in order, with the numbers of their samples in the source behind a condition."""
        if self.data.chosen is None:
            for batch in self.data.looked_at(_FIRST_ROWS, None, on_error="warn"):
                yield batch, None
            return
        shards = self.data.shards
        most = _REMOTE_PASS_ROWS if len(shards.listing) and shards.is_remote(0) else _PASS_ROWS
        for traced in self.data.chosen.traced_batches(None, most, _MOST_HELD_BYTES):
            yield traced.batch, traced.samples

    def _goes_on(self) -> bool:
        is_wanted = self._held_stop < self._wanted and self._held_bytes < _MOST_HELD_BYTES
        return is_wanted or self._count is not None or self._is_closed


def _keep_indexes(shards: Shards) -> None:
    """Make the indexes of shards that have none, as `lading index` does: to read samples by number takes no walk then.

    Those that the cache folder cannot take are held in memory, up to 64 MB.
    """

    def keep(shard: int) -> None:
        refuse_stopped()
        for _, view in shards.readable([shard]):
            with shards.bad.skipping(shard, shards.path(shard)):
                source, kind = shards.source(shard), shards.index_kind
                is_kept = shards.indexes.known(shard, source, kind) is not None
                index = None if is_kept else view.index()
                if index is not None and not shards.indexes.cache.store(source, kind, index):
                    shards.indexes.hold(shard, index)

    calls = [partial(keep, shard) for shard in range(len(shards.listing))]
    for _ in concurrent_map(calls, remote=bool(calls) and shards.is_remote(0)):
        pass
