"""Tasks: a conversion cut into pieces that any process can do alone, in any order.

A task is consecutive source shards of about one output shard. It is found from the shards' sizes and the size wanted,
never from the number of processes: output shards end where tasks do, so that the output is the same bytes whoever does
the work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lading.dataset.source import Listing
from lading.storage.base import file_infos
from lading.storage.stores import Stores, resolve

__all__ = ["Task", "plan_tasks", "shard_sizes"]

_SLACK = 1.25
_SPREAD = 1.125


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a conversion.

    Attributes:
        number: its place among the tasks; output shards come in this order.
        first: its first source shard.
        stop: the shard after its last one.
        shard_bytes: size at which its output shards end.
        source_bytes: size of its source shards.
        first_row: number of samples in all shards before, where it is wanted.
    """

    number: int
    first: int
    stop: int
    shard_bytes: int
    source_bytes: int
    first_row: int | None = None


def plan_tasks(listing: Listing, shard_bytes: int, stores: Stores) -> list[Task]:
    """Cut a source into tasks. Looks at shards whose size the listing does not say; opens none.

    Small shards go together until the next would pass `shard_bytes`. Shards keep about the size they had: where a
    task's source is a little larger than `shard_bytes`, or a multiple of it, its output shards may be so too, by up to
    two fifths. Otherwise each would leave a small one behind, since no format takes exactly the room of another.

    Raises:
        NotFound: a shard is not there.
    """
    tasks: list[Task] = []
    first = size = 0
    for number, more in enumerate(shard_sizes(listing, stores)):
        if number > first and size + more > shard_bytes:
            tasks.append(Task(len(tasks), first, number, _output_bytes(size, shard_bytes), size))
            first, size = number, 0
        size += more
    if len(listing):
        tasks.append(Task(len(tasks), first, len(listing), _output_bytes(size, shard_bytes), size))
    return tasks


def _output_bytes(size: int, shard_bytes: int) -> int:
    """Size of output shards for source shards of this size in all: an even share, with room for another framing."""
    count = max(1, -(-size // int(_SLACK * shard_bytes + 1)))
    return max(shard_bytes, int(size / count * _SPREAD))


def shard_sizes(listing: Listing, stores: Stores) -> Iterator[int]:
    """Size of each shard, in order; those that are not listed are looked at, shards of one store together."""
    sizes = listing.table.column("size_bytes").to_pylist()
    unknown = [number for number, size in enumerate(sizes) if size is None]
    paths = listing.table.column("path").take(unknown).to_pylist() if unknown else []
    by_store: dict[int, list[int]] = {}
    places = [resolve(path, stores) for path in paths]
    for at, (store, _) in enumerate(places):
        by_store.setdefault(id(store), []).append(at)
    for mine in by_store.values():
        infos = file_infos(places[mine[0]][0], [places[at][1] for at in mine])
        for at, info in zip(mine, infos, strict=True):
            sizes[unknown[at]] = info.size_bytes
    return iter(sizes)
