"""Index: look through every shard once and keep what was found, so that `len`, `[i]` and `take` need not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lading.dataset.open import open_shards
from lading.dataset.shards import Shards
from lading.dataset.source import Source

__all__ = ["IndexSummary", "index"]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What indexing did.

    Attributes:
        shards: shards of the dataset.
        kept: shards whose index is in the cache now (the rest need none: a footer or a manifest serves them).
        samples: samples in all.
        folder: the cache folder.
        unkept: shards whose index could not be kept: the folder cannot be written, or a store tells no version of them.
    """

    shards: int
    kept: int
    samples: int
    folder: str
    unkept: int = 0


def index(source: Source, *, on_progress: Callable[[int, int], None] | None = None, **opening: Any) -> IndexSummary:
    """Make the index of every shard and keep it in the cache folder (`$LADING_CACHE`).

    Reads headers, no payload. Peak memory: the index of one shard, some 60 bytes a value.

    Args:
        source: as `lading.open` takes it.
        on_progress: called with shards done and all shards.
        opening: the other arguments of `lading.open`.
    """
    kept: Counter[bool | None] = Counter()
    with open_shards(source, **opening) as dataset:
        total = len(dataset.listing)
        for number in range(total):
            kept[_keep_index(dataset, number)] += 1
            if on_progress is not None:
                on_progress(number + 1, total)
        samples = int(dataset.sample_ends()[-1]) if total else 0
        return IndexSummary(total, kept[True], samples, dataset.indexes.cache.folder, kept[False])


def _keep_index(shards: Shards, shard: int) -> bool | None:
    """Make the index of a shard and keep it in the cache; False if it cannot be kept, None if there is none."""
    source = shards.source(shard)
    if shards.indexes.known(shard, source, shards.index_kind) is not None:
        return True
    index = shards.open_shard(shard).index()
    return None if index is None else shards.indexes.cache.store(source, shards.index_kind, index)
