"""Index: look through every shard once and keep its index, for `len`, `[i]` and `take`."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Unpack

from lading._core.arguments import public
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.shards import Shards
from lading._core.formats.base import ShardReader
from lading._core.jobs.engine.messages import decode_message, encode_message
from lading._core.jobs.engine.progress_bars import shown_progress
from lading._core.jobs.engine.read_task import Look, OnRead
from lading._core.jobs.engine.reading import Reading, look_at_shards
from lading._core.result_text import ResultText
from lading.options import OpeningOptions, WorkerOptions

__all__ = ["IndexSummary", "begin_index", "index"]


@dataclass(frozen=True, slots=True)
class IndexSummary(ResultText):
    """Result of indexing.

    Attributes:
        shards: number of shards of the dataset.
        kept: number of shards whose index is in the cache. Others need none: a footer or a manifest serves them.
        samples: number of samples of the dataset.
        folder: the cache folder.
        unkept: number of shards whose index could not be kept: the folder cannot be written, or the store gives no
            version.
    """

    shards: int
    kept: int
    samples: int
    folder: str
    unkept: int = 0


@public("lading.index")
def index(
    source: Queryable,
    *,
    workers: int | None = None,
    executor: str | Executor | None = None,
    address: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    progress: bool = True,
    **opening: Unpack[OpeningOptions],
) -> IndexSummary:
    """Make the index of every shard and keep it in the cache folder (`$LADING_CACHE`).

    Reads headers, no payload. Peak memory: the indexes of some shards, 60 bytes a value.

    Example:
        lading.index("mint/*.tar").samples

    Args:
        source: as `lading.open` takes it, or a dataset; its steps do not change the shards, and do not count.
        workers: as for `lading.digest`.
        executor: the same. Its processes send the indexes to this one, which keeps them.
        address: the same.
        on_progress: called with shards done and all shards.
        progress: whether a bar may appear after two seconds, in a terminal or a notebook.
        opening: the other arguments of `lading.open`.
    """
    kept: Counter[bool | None] = Counter()
    query = Query.of(source, **opening)
    told = None if on_progress is None else lambda done: on_progress(done.shards_done, done.num_shards)
    sharing = WorkerOptions(workers=workers, executor=executor, address=address)
    with query.open_shards() as dataset, shown_progress("indexing", told, progress=progress) as report:
        total, samples = len(dataset.listing), 0
        reading = Reading(begin_index, query, sharing=sharing)
        for found in look_at_shards(
            dataset, begin_index(dataset), reading, range(total), on_digests=lambda _: None, on_progress=report
        ):
            if found:
                samples += found["samples"]
                kept[_keep(dataset, found["shard"], found["index"])] += 1
        return IndexSummary(total, kept[True], samples, dataset.indexes.cache.folder, kept[False])


def begin_index(dataset: Shards) -> Look:
    """Return what `index` does with shards: the index of each as text, unless this machine has it."""

    def look(shards: Iterable[int], _: OnRead) -> Iterator[dict[str, Any]]:
        for shard in shards:
            found: dict[str, Any] = {}
            with dataset.bad.skipping(shard, dataset.path(shard)):
                view = dataset.open_shard(shard)
                samples = view.num_samples()
                found = {"shard": shard, "samples": samples, "index": _text(dataset, shard, view)}
            yield found

    return look


_KNOWN = "known"
"""In the place of an index that is kept already."""


def _text(shards: Shards, shard: int, view: ShardReader) -> str | None:
    if shards.indexes.known(shard, shards.source(shard), shards.index_kind) is not None:
        return _KNOWN
    index = view.index()
    return None if index is None else base64.b64encode(encode_message({}, [index])).decode()


def _keep(shards: Shards, shard: int, text: str | None) -> bool | None:
    """Keep the index of a shard in the cache; False if it cannot be kept, None if there is none."""
    if text is None or text == _KNOWN:
        return None if text is None else True
    _, [index] = decode_message(base64.b64decode(text))
    assert index is not None, "it was sent"
    return shards.indexes.cache.store(shards.source(shard), shards.index_kind, index)
