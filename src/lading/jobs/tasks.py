"""Cut a conversion into tasks, which any process can do alone, in any order.

A task is consecutive source shards of about one output shard. Tasks follow from the sizes of the shards, not from the
number of processes. Output shards end where tasks do, so the output bytes do not depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lading.dataset.arranged import Arranged
from lading.dataset.source import Listing
from lading.errors import StoreError
from lading.storage.base import Store, file_infos
from lading.storage.stores import Stores, resolve

__all__ = ["Task", "arranged_tasks", "plan_tasks", "shard_sizes"]

_SLACK = 1.25
_SPREAD = 1.125


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a conversion.

    Attributes:
        number: its place among the tasks; output shards have this order.
        first: its first source shard; of samples in a new order, its first place.
        stop: the shard after its last source shard, or the place after its last one.
        shard_bytes: size at which its output shards end.
        source_bytes: size of its source shards, or of its samples.
        first_row: number of samples in all shards before, if rows are named by number.
    """

    number: int
    first: int
    stop: int
    shard_bytes: int
    source_bytes: int
    first_row: int | None = None


def plan_tasks(listing: Listing, shard_bytes: int, stores: Stores, *, skip: bool = False) -> list[Task]:
    """Cut a source into tasks. Opens no shard; asks the store for sizes that the listing lacks.

    With `skip`, a shard that is not there has no size.

    Small shards join one task until the next would pass `shard_bytes`. Shards keep about the size they had: if a task's
    source is a little larger than `shard_bytes`, or a multiple of it, its output shards are up to two fifths larger.
    Otherwise each task would end with a small shard, because formats need different space for the same rows.

    Raises:
        NotFound: a shard is not there.
    """
    tasks: list[Task] = []
    first = size = 0
    for number, more in enumerate(shard_sizes(listing, stores, skip=skip)):
        if number > first and size + more > shard_bytes:
            tasks.append(Task(len(tasks), first, number, _output_bytes(size, shard_bytes), size))
            first, size = number, 0
        size += more
    if len(listing):
        tasks.append(Task(len(tasks), first, len(listing), _output_bytes(size, shard_bytes), size))
    return tasks


def arranged_tasks(arranged: Arranged, shard_bytes: int) -> list[Task]:
    """Cut samples in a new order into tasks of about one output shard: ranges of places, by the size of the samples."""
    return [
        Task(number, first, stop, _output_bytes(size, shard_bytes), size)
        for number, (first, stop, size) in enumerate(arranged.bounds(shard_bytes))
    ]


def _output_bytes(size: int, shard_bytes: int) -> int:
    """Size of output shards for source shards of this total size: equal parts, with room for the format's framing."""
    count = max(1, -(-size // int(_SLACK * shard_bytes + 1)))
    return max(shard_bytes, int(size / count * _SPREAD))


def shard_sizes(listing: Listing, stores: Stores, *, skip: bool = False) -> Iterator[int]:
    """Size of each shard, in order. Sizes that the listing lacks are asked for, of all shards of a store at once.

    With `skip`, the size of a shard that cannot be asked for is 0.
    """
    sizes = listing.table.column("size_bytes").to_pylist()
    unknown = [number for number, size in enumerate(sizes) if size is None]
    paths = listing.table.column("path").take(unknown).to_pylist() if unknown else []
    by_store: dict[int, list[int]] = {}
    places = [resolve(path, stores) for path in paths]
    for at, (store, _) in enumerate(places):
        by_store.setdefault(id(store), []).append(at)
    for mine in by_store.values():
        try:
            found = [info.size_bytes for info in file_infos(places[mine[0]][0], [places[at][1] for at in mine])]
        except StoreError:
            if not skip:
                raise
            found = [_size_or_none(*places[at]) for at in mine]
        for at, size in zip(mine, found, strict=True):
            sizes[unknown[at]] = size
    return iter(sizes)


def _size_or_none(store: Store, path: str) -> int:
    try:
        return store.head(path).size_bytes
    except StoreError:
        return 0
