"""Index: look through every shard once and keep what was found, so that `len`, `[i]` and `take` need not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lading.opening import open_dataset
from lading.source import Source

__all__ = ["IndexSummary", "index"]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """What indexing did.

    Attributes:
        shards: shards of the dataset.
        kept: shards whose index is in the cache now (the rest need none: a footer or a manifest serves them).
        samples: samples in all.
        folder: the cache folder.
    """

    shards: int
    kept: int
    samples: int
    folder: str


def index(source: Source, *, on_progress: Callable[[int, int], None] | None = None, **opening: Any) -> IndexSummary:
    """Make the index of every shard and keep it in the cache folder (`$LADING_CACHE`).

    Reads headers, no payload. Peak memory: the index of one shard, some 60 bytes a value.

    Args:
        source: as `lading.open` takes it.
        on_progress: called with shards done and all shards.
        opening: the other arguments of `lading.open`.
    """
    kept = 0
    with open_dataset(source, **opening) as dataset:
        total = len(dataset.listing)
        for number in range(total):
            kept += dataset.keep_index(number)
            if on_progress is not None:
                on_progress(number + 1, total)
        return IndexSummary(total, kept, len(dataset), dataset.cache.folder)
