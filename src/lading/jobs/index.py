"""Index: look through every shard once and keep its index, for `len`, `[i]` and `take`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lading.dataset.dataset import Dataset
from lading.dataset.shards.shards import Shards
from lading.dataset.source.open import open_shards
from lading.dataset.source.source import Source
from lading.interleaved.base import View
from lading.jobs.progress import Progress
from lading.jobs.progress_bars import shown_progress

__all__ = ["IndexSummary", "index"]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """Result of indexing.

    Attributes:
        shards: shards of the dataset.
        kept: shards whose index is in the cache. Others need none: a footer or a manifest serves them.
        samples: samples of the dataset.
        folder: the cache folder.
        unkept: shards whose index could not be kept: the folder cannot be written, or the store gives no version.
    """

    shards: int
    kept: int
    samples: int
    folder: str
    unkept: int = 0


def index(
    source: Source | Dataset,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    progress: bool = True,
    **opening: Any,
) -> IndexSummary:
    """Make the index of every shard and keep it in the cache folder (`$LADING_CACHE`).

    Reads headers, no payload. Peak memory: the index of one shard twice, some 60 bytes a value.

    Example:
        lading.index("mint/*.tar").samples

    Args:
        source: as `lading.open` takes it, or a dataset; its steps do not change the shards, and do not count.
        on_progress: called with shards done and all shards.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
        opening: the other arguments of `lading.open`.
    """
    kept: Counter[bool | None] = Counter()
    told = None if on_progress is None else lambda done: on_progress(done.shards_done, done.num_shards)
    with open_shards(source, **opening) as dataset, shown_progress("indexing", told, progress=progress) as report:
        total, samples = len(dataset.listing), 0
        for number in range(total):
            with dataset.bad.skipping(number, dataset.path(number)):
                view = dataset.open_shard(number)
                count = view.num_samples()
                kept[_keep_index(dataset, number, view)] += 1
                samples += count
            if report is not None:
                report(Progress(number + 1, total, 0, 0))
        return IndexSummary(total, kept[True], samples, dataset.indexes.cache.folder, kept[False])


def _keep_index(shards: Shards, shard: int, view: View) -> bool | None:
    """Keep the index of an open shard in the cache; False if it cannot be kept, None if there is none."""
    source = shards.source(shard)
    if shards.indexes.known(shard, source, shards.index_kind) is not None:
        return True
    index = view.index()
    return None if index is None else shards.indexes.cache.store(source, shards.index_kind, index)
