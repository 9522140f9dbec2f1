"""The number of samples in shards that no list counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from lading._core.storage.concurrent import concurrent_map

if TYPE_CHECKING:
    from lading._core.dataset.shards.shards import Shards

__all__ = ["count_samples"]

_FEW: Final = 64
"""So many shards stay open, and are not opened twice."""
_AT_ONCE: Final = 1024


def count_samples(shards: Shards, numbers: Sequence[int]) -> list[int]:
    """Return the number of samples in each of these shards; 0 for a shard that is skipped.

    Of many local shards the heads are read alone, where the format can. Others are opened, remote ones 16 at once.
    """
    remote = shards.is_remote(numbers[0])
    # To skip what cannot be read, a shard must be opened. Behind a condition the reader may leave rows out.
    plain = shards.bad.policy == "error" and shards.predicate is None and not (shards.has_items or shards.replacements)
    counts = shards.rows_by_heads(numbers) if plain and not remote and len(numbers) > _FEW else None
    if counts is not None:
        return counts
    counts = []
    for begin in range(0, len(numbers), _AT_ONCE):
        calls = [partial(_opened, shards, number) for number in numbers[begin : begin + _AT_ONCE]]
        for count in concurrent_map(calls, remote=remote):
            shards.passes.add(len(counts))
            counts.append(count)
    return counts


def _opened(shards: Shards, number: int) -> int:
    for _, view in shards.readable([number]):
        with shards.bad.skipping(number, shards.path(number)):
            return view.num_samples()
    return 0
