"""The progress and the speed of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lading._core.dataset.shards.shards import Shards

__all__ = ["OnProgress", "Progress", "Speed", "Tally", "is_worth_workers", "reporting_passes"]

_WORTH_S = 3.0
"""Workers take half a second to start: they are worth it if the rest takes longer than this."""


@dataclass(slots=True)
class Tally:
    """Counts of the work that is done.

    Attributes:
        shards: source shards that are done.
        samples: samples.
        rows: rows; items, for interleaved data.
        payload_bytes: bytes of values.
        samples_read: samples that were read, also those that steps left out.
        source_bytes: bytes of the source that were read, as far as they are known.
    """

    shards: int = 0
    samples: int = 0
    rows: int = 0
    payload_bytes: int = 0
    samples_read: int = 0
    source_bytes: int = 0

    def as_list(self) -> list[int]:
        """Return the counts in the order of the constructor."""
        return [self.shards, self.samples, self.rows, self.payload_bytes, self.samples_read, self.source_bytes]

    def add(self, other: Tally) -> None:
        """Add the counts of another process."""
        self.shards += other.shards
        self.samples += other.samples
        self.rows += other.rows
        self.payload_bytes += other.payload_bytes
        self.samples_read += other.samples_read
        self.source_bytes += other.source_bytes


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job.

    Attributes:
        shards_done: source shards that are done.
        num_shards: source shards in all.
        samples: samples read so far.
        payload_bytes: payload so far, without that of samples that steps left out.
        phase: what the job does before its own work, such as `looking for duplicates`; the counts are of this phase.
            Empty during its own work.
        share: the part of the work that is done, from 0 to 1; by default that of the shards.
    """

    shards_done: int
    num_shards: int
    samples: int
    payload_bytes: int
    phase: str = ""
    share: float | None = None

    @property
    def done_share(self) -> float | None:
        """The part of the work that is done; None if nothing tells it."""
        if self.share is None and self.num_shards > 1:
            return self.shards_done / self.num_shards
        return self.share


OnProgress: TypeAlias = Callable[[Progress], None]
"""A function that a job calls after every batch and every shard."""


@contextmanager
def reporting_passes(shards: Shards, on_progress: OnProgress | None) -> Iterator[None]:
    """Report the passes over shards that come before the work of a job, each as a phase."""
    total = len(shards.listing)
    if on_progress is not None:
        shards.passes.report = lambda phase, done, samples: on_progress(Progress(done, total, samples, 0, phase))
    try:
        yield
    finally:
        shards.passes.report = None


class Speed:
    """The speed of this process in a job.

    Args:
        left_bytes: source bytes of the whole job.
    """

    def __init__(self, left_bytes: int) -> None:
        self._began, self._done_bytes, self._left_bytes = time.perf_counter(), 0, left_bytes

    def add(self, size_bytes: int) -> None:
        """Count source bytes that are done."""
        self._done_bytes += size_bytes
        self._left_bytes -= size_bytes

    def is_worth_workers(self) -> bool:
        """Whether the rest takes so long, by the time of the first tasks, that workers are worth their start."""
        elapsed_s = time.perf_counter() - self._began
        return is_worth_workers(elapsed_s * self._left_bytes / self._done_bytes if self._done_bytes else 0)


def is_worth_workers(seconds: float) -> bool:
    """Return whether workers are worth their start, if one process takes so many seconds more than they do."""
    return seconds > _WORTH_S
