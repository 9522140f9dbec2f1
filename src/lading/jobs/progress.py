"""How far a job has come, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["OnProgress", "Progress", "Speed", "Tally"]

_WORTH_S = 3.0
"""Time left from which on workers are worth the half second that they take to begin."""


@dataclass(slots=True)
class Tally:
    """What went by so far.

    Attributes:
        shards: source shards that are done.
        samples: samples.
        rows: rows; items, for interleaved data.
        payload_bytes: bytes of values.
    """

    shards: int = 0
    samples: int = 0
    rows: int = 0
    payload_bytes: int = 0

    def as_list(self) -> list[int]:
        """The numbers, as the constructor takes them."""
        return [self.shards, self.samples, self.rows, self.payload_bytes]

    def add(self, other: Tally) -> None:
        """Add what another process counted."""
        self.shards += other.shards
        self.samples += other.samples
        self.rows += other.rows
        self.payload_bytes += other.payload_bytes


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come.

    Attributes:
        shards_done: source shards that are done.
        num_shards: source shards in all.
        samples: samples so far.
        payload_bytes: payload so far.
    """

    shards_done: int
    num_shards: int
    samples: int
    payload_bytes: int


OnProgress: TypeAlias = Callable[[Progress], None]
"""What a job calls after every batch and every shard."""


class Speed:
    """How fast this process gets on with a job.

    Args:
        left_bytes: source bytes of all of it.
    """

    def __init__(self, left_bytes: int) -> None:
        self._began, self._done_bytes, self._left_bytes = time.perf_counter(), 0, left_bytes

    def add(self, size_bytes: int) -> None:
        """So many of them are done."""
        self._done_bytes += size_bytes
        self._left_bytes -= size_bytes

    def is_worth_workers(self) -> bool:
        """Whether the rest would take so long, as the first tasks went, that workers are worth the wait."""
        elapsed_s = time.perf_counter() - self._began
        return (elapsed_s * self._left_bytes / self._done_bytes if self._done_bytes else 0) > _WORTH_S
