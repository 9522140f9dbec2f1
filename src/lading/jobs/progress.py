"""How far a job has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["OnProgress", "Progress"]


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
