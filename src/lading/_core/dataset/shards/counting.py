"""The number of samples in shards that no list counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lading._core.storage.concurrent import concurrent_map
from lading._core.storage.traffic import refuse_stopped

if TYPE_CHECKING:
    from lading._core.dataset.shards.shards import Shards

__all__ = ["count_samples"]

_FEW: Final = 64
"""So many shards stay open, and are not opened twice."""
_AT_ONCE: Final = 1024
_COUNTS: Final = "num_samples"


def count_samples(shards: Shards, numbers: Sequence[int]) -> list[int]:
    """Return the number of samples in each of these shards; 0 for a shard that is skipped.

    Of many local shards the heads are read alone, where the format can. Others are opened, remote ones 16 at once.
    Counts of many remote shards, whose versions were listed, are kept in the cache of indexes.
    """
    remote, many = shards.is_remote(numbers[0]), len(numbers) > _FEW
    # To skip what cannot be read, a shard must be opened. Behind a condition the reader may leave rows out.
    plain = shards.bad.policy == "error" and shards.predicate is None and not (shards.has_items or shards.replacements)
    counts = shards.rows_by_heads(numbers) if plain and not remote and many else None
    if counts is not None:
        return counts
    file = _kept_file(shards, numbers) if plain and remote and many else None
    kept = shards.indexes.cache.read(file)
    if kept is not None:
        known: list[int] = kept[_COUNTS].to_pylist()
        return known
    counts = []
    for begin in range(0, len(numbers), _AT_ONCE):
        calls = [partial(_opened, shards, number) for number in numbers[begin : begin + _AT_ONCE]]
        for count in concurrent_map(calls, remote=remote):
            refuse_stopped()
            shards.passes.add(len(counts))
            counts.append(count)
    shards.indexes.cache.write(file, pa.table({_COUNTS: pa.array(counts, pa.int64())}))
    return counts


def _kept_file(shards: Shards, numbers: Sequence[int]) -> str | None:
    """Return where the counts of these shards are kept; None if their versions are unknown, or steps change counts."""
    listed = shards.listing.table.select(["path", "size_bytes", "version", "entry"]).take(pa.array(numbers))
    if shards.sources()[0] is not shards or any(column.null_count for column in listed.columns[:3]):
        return None
    rows = json.dumps([column.to_pylist() for column in listed.columns])
    return shards.indexes.cache.path_of((_COUNTS, shards.index_kind, rows))


def _opened(shards: Shards, number: int) -> int:
    for _, view in shards.readable([number]):
        with shards.bad.skipping(number, shards.path(number)):
            return view.num_samples()
    return 0
