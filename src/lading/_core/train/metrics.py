"""What a loop over a loader did: samples, bytes and seconds, and whether the loop had to wait for them.

The loop counts each batch as it is given: what is read and decoded ahead of the loop counts then. So the numbers are
the same with worker processes, which send theirs with each batch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Final

from lading._core.result_text import shown_fact
from lading._core.storage.traffic import Read
from lading._core.units import count, format_bytes
from lading.errors import UsageError

__all__ = ["Gauge", "LoopCounts", "Metrics", "Reports"]

_KEEPS_UP: Final = 0.05
"""Share of the time that a loop waits although the loader keeps up: for the first batch, and for the threads."""
_TAKES_CORES: Final = 0.8
"""How busy threads that decode are where they may keep the loop from working."""
_BUSY: Final = 0.5
"""How busy threads are that the loop is taken to wait for."""
_READ_AGAIN: Final = 1.2
"""Bytes from a store by those of the samples, above which workers are taken to read the same blocks."""


@dataclass(slots=True)
class LoopCounts:
    """Numbers of some batches, which can be added. `Metrics` says what they are."""

    batches: int = 0
    samples: int = 0
    skipped: int = 0
    payload_bytes: int = 0
    requests: int = 0
    read_bytes: int = 0
    cache_bytes: int = 0
    downloads: int = 0
    waited_seconds: float = 0.0
    first_batch_seconds: float = 0.0
    own_seconds: float = 0.0
    fetch_seconds: float = 0.0
    decode_seconds: float = 0.0

    def add(self, other: LoopCounts) -> None:
        """Add other numbers. A loop over the fields would take 4 µs a batch."""
        self.batches += other.batches
        self.samples += other.samples
        self.skipped += other.skipped
        self.payload_bytes += other.payload_bytes
        self.requests += other.requests
        self.read_bytes += other.read_bytes
        self.cache_bytes += other.cache_bytes
        self.downloads += other.downloads
        self.waited_seconds += other.waited_seconds
        self.first_batch_seconds += other.first_batch_seconds
        self.own_seconds += other.own_seconds
        self.fetch_seconds += other.fetch_seconds
        self.decode_seconds += other.decode_seconds

    def add_read(self, read: Read) -> None:
        """Add what was read from remote stores."""
        self.requests += read.requests
        self.read_bytes += read.read_bytes
        self.cache_bytes += read.cache_bytes
        self.downloads += read.downloads


_NAMES: Final = tuple(each.name for each in fields(LoopCounts))


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a loop did, as `loader.metrics` and `on_metrics=` have it. `print` shows it in a few lines.

    Seconds are those of the clock, and those of threads are added up.

    Attributes:
        epoch: number of the epoch.
        batch: number of batches of the epoch that the loop has, with those before a resume.
        of_batches: number of batches of the epoch; None for a mixture that never stops.
        batches: number of batches that the loop was given.
        samples: number of samples in these, padding too.
        skipped: samples that were left out for others (`on_error="skip"`, `missing="skip"`).
        payload_bytes: bytes of the samples, before they are decoded.
        waited_seconds: for which the loop waited for batches.
        first_batch_seconds: of these, for the first batch: threads or workers start, shards are opened.
        own_seconds: that the body of the loop took.
        fetch_seconds: of threads that read.
        decode_seconds: of threads that decode, and call functions of yours.
        readers: number of threads that read: one a process.
        threads: number of threads that decode.
        requests: number of requests to a remote store, with those that open shards; None for local files.
        read_bytes: bytes of their answers, with gaps between samples; None for local files.
        cache_bytes: bytes that were read from copies in `cache_dir` instead; None for local files.
        downloads: number of shards that this process and its workers copied there; None for local files.
    """

    epoch: int
    batch: int
    of_batches: int | None
    batches: int
    samples: int
    skipped: int
    payload_bytes: int
    waited_seconds: float
    first_batch_seconds: float
    own_seconds: float
    fetch_seconds: float
    decode_seconds: float
    readers: int
    threads: int
    requests: int | None
    read_bytes: int | None
    cache_bytes: int | None
    downloads: int | None

    @property
    def seconds(self) -> float:
        """Seconds of the loop, up to the batch that it was given last."""
        return self.waited_seconds + self.own_seconds

    @property
    def waited(self) -> float:
        """Share of the seconds for which the loop waited for batches: 0 to 1."""
        return _share(self.waited_seconds, self.seconds)

    @property
    def fetching(self) -> float:
        """Share of the seconds for which the threads that read were busy: 0 to 1."""
        return _share(self.fetch_seconds, self.readers * self.seconds)

    @property
    def decoding(self) -> float:
        """Share of the seconds for which the threads that decode were busy: 0 to 1."""
        return _share(self.decode_seconds, self.threads * self.seconds)

    @property
    def samples_per_s(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Bytes of payload a second."""
        return self.payload_bytes / self.seconds if self.seconds else 0.0

    @property
    def line(self) -> str:
        """One line: `epoch 0  batch 1,200 of 5,004  3,210 samples/s  412 MB/s  waited 2 %  skipped 3`."""
        skipped = [f"skipped {self.skipped:,}"] if self.skipped else []
        rates = f"{_rate(self.samples_per_s)} samples/s", f"{format_bytes(int(self.bytes_per_s))}/s"
        return "  ".join([self._place, *rates, f"waited {_percent(self.waited)}", *skipped])

    @property
    def advice(self) -> str:
        """What limits the loop, and what to change."""
        if not self.batches:
            return "no batch yet"
        if self.waited <= _KEEPS_UP:
            lacks_cores = self.decoding >= _TAKES_CORES
            return "the loader keeps up" + (
                ", but its threads take cores that the loop may lack" if lacks_cores else ": the loop takes the time"
            )
        if 2 * self.first_batch_seconds > self.waited_seconds:
            return "the loop waited for its first batch: threads or workers start, and shards are opened"
        if max(self.fetching, self.decoding) < _BUSY:
            return "the loop waited while threads were idle: others use the cores, or the batches are very small"
        if self.decoding >= self.fetching:
            return "decoding is the limit: take more cores, smaller images or a cheaper transform"
        again = self.readers > 1 and (self.read_bytes or 0) > _READ_AGAIN * self.payload_bytes
        fewer = "fewer workers=, " if again else ""
        return (
            f'fetching is the limit: take shuffle="block", {fewer}cache_dir= for a remote store, or larger ahead_bytes='
        )

    @property
    def _place(self) -> str:
        of = "" if self.of_batches is None else f" of {self.of_batches:,}"
        return f"epoch {self.epoch}  batch {self.batch:,}{of}"

    def to_dict(self) -> dict[str, int | float]:
        """Return all numbers by name, for loggers; without those that are None."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        found |= {name: getattr(self, name) for name in _DERIVED}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        return "\n".join([f"Metrics  {self._place}", *(shown_fact(*fact) for fact in self._facts())])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - as IPython calls it
        printer.text(str(self))

    def _facts(self) -> Iterator[tuple[str, str]]:
        took, size = _seconds(self.seconds), format_bytes(self.payload_bytes)
        yield "samples", f"{_rate(self.samples_per_s)}/s: {self.samples:,} in {took}"
        yield "payload", f"{format_bytes(int(self.bytes_per_s))}/s: {size}"
        first = f"{_seconds(self.first_batch_seconds)} of it for the first batch"
        yield "waited", f"{_percent(self.waited)}: {_seconds(self.waited_seconds)}, {first}"
        for name, seconds, threads, busy in (
            ("fetching", self.fetch_seconds, self.readers, self.fetching),
            ("decoding", self.decode_seconds, self.threads, self.decoding),
        ):
            yield name, f"{_seconds(seconds)} in {count(threads, 'thread')}, busy {_percent(busy)}"
        if self.read_bytes is not None and self.requests is not None:
            times = f", {self.read_bytes / self.payload_bytes:.2f} × the payload" if self.payload_bytes else ""
            yield "from the store", f"{format_bytes(self.read_bytes)} in {count(self.requests, 'request')}{times}"
        if self.cache_bytes or self.downloads:
            copied = count(self.downloads or 0, "shard")
            yield "from the cache", f"{format_bytes(self.cache_bytes or 0)}; {copied} copied"
        if self.skipped:
            yield "skipped", f"{count(self.skipped, 'sample')}: loader.skipped lists them"
        yield "advice", self.advice


class Gauge:
    """Counts what a loop does, as it is given batches.

    Args:
        epoch: number of the epoch.
        batch: number of its batches before the loop.
        of_batches: number of its batches; None without end.
        processes: that make batches.
        threads: that decode, of all processes.
        remote: whether there are requests to a store.
    """

    def __init__(
        self, epoch: int, batch: int, of_batches: int | None, *, processes: int, threads: int, remote: bool
    ) -> None:
        self._epoch, self._begin, self._of, self._remote = epoch, batch, of_batches, remote
        self._processes, self._threads = processes, threads
        self._before, self._part = LoopCounts(), LoopCounts()
        self._given: float | None = None

    def add(self, counts: LoopCounts) -> None:
        """Add what was done for a batch."""
        self._part.add(counts)

    def asked(self) -> None:
        """Take note that the loop asks for a batch: the time since it was given the last one is its own."""
        if self._given is not None:
            now = time.perf_counter()
            self._part.own_seconds += now - self._given
            self._given = now

    def next_of(self, loop: Iterator[Any]) -> Any:
        """Return the next batch of a loop; None at its end."""
        self.asked()
        begun, part = time.perf_counter(), self._part
        batch = next(loop, None)
        first, self._given = self._given is None, time.perf_counter()
        part.batches += 1
        part.waited_seconds += self._given - begun
        if first:
            part.first_batch_seconds = self._given - begun
        return batch

    @property
    def batch(self) -> int:
        """Number of batches of the epoch that the loop has."""
        return self._begin + self._before.batches + self._part.batches

    @property
    def batches(self) -> int:
        """Number of batches since the last call of `part`."""
        return self._part.batches

    def whole(self) -> Metrics:
        """Return the metrics of the loop."""
        whole = LoopCounts()
        whole.add(self._before)
        whole.add(self._part)
        return self._metrics(whole)

    def part(self) -> Metrics:
        """Return the metrics of the batches since the last call."""
        part, self._part = self._part, LoopCounts()
        found = self._metrics(part, part.batches)
        self._before.add(part)
        return found

    def _metrics(self, counts: LoopCounts, more: int = 0) -> Metrics:
        found: dict[str, Any] = {name: getattr(counts, name) for name in _NAMES}
        if not self._remote:
            found.update(requests=None, read_bytes=None, cache_bytes=None, downloads=None)
        return Metrics(epoch=self._epoch, batch=self.batch + more, of_batches=self._of, readers=self._processes,
                       threads=self._threads, **found)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reports:
    """When a loop says what it does, and where.

    Attributes:
        every: number of batches between two reports; None for one at the end of an epoch, if there is a function.
        function: is given the metrics of these batches; None prints a line of them.
    """

    every: int | None = None
    function: Callable[[Metrics], Any] | None = None

    def refuse_for(self, what: str) -> None:
        """Raise UsageError where a loop over something else counts the batches."""
        given = [f"{name}=" for name, value in (("log_every", self.every), ("on_metrics", self.function)) if value]
        if given:
            raise UsageError("metrics are those of a loop over the loader itself", found=f"{given[0]} with {what}",
                             advice=f"Leave {' and '.join(given)} out.")  # fmt: skip

    def refuse_without_end(self) -> None:
        """Raise UsageError for a function that would never be called, because the epoch does not end."""
        if self.function is not None and self.every is None:
            raise UsageError("the mixture never stops, so on_metrics would never be called",
                             found="on_metrics= without log_every=", advice="Add log_every=100.")  # fmt: skip

    def tell(self, gauge: Gauge, *, ended: bool, prints: bool) -> None:
        """Report the last batches, if it is time: every so many batches of the epoch, and at its end."""
        if not gauge.batches or not (ended or (self.every and gauge.batch % self.every == 0)):
            return
        if self.function is not None:
            self.function(gauge.part())
        elif self.every is not None and prints:
            whole = gauge.whole()
            _print_line(f"{whole.line}  in {_seconds(whole.seconds)}" if ended else gauge.part().line)


def _print_line(text: str) -> None:
    """Print a line to standard error, which may be gone."""
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"{text}\n")


_DERIVED: Final = ("seconds", "samples_per_s", "bytes_per_s", "waited", "fetching", "decoding")


def _share(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"  # noqa: PLR2004 - 12 a second, but 1.2
