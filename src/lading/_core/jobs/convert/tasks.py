"""Cut a conversion into tasks, which any process can do alone, in any order.

A task is consecutive source shards whose output is about a whole number of output shards. A large shard is cut where
its format has units that are read alone, so tasks begin and end inside it. Tasks follow from the sizes of the shards
and of their units, not from the number of processes. Output shards end where tasks do, so the output bytes do not
depend on the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lading._core.dataset.order.spooled_order import SpooledOrder
from lading._core.dataset.source.source import Listing
from lading._core.formats.base import Span
from lading._core.pipeline.cutting import Cut
from lading._core.storage.base import Store, file_infos
from lading._core.storage.concurrent import concurrent_map, is_remote
from lading._core.storage.stores import Stores, resolve
from lading.errors import StoreError

__all__ = [
    "ALONE_BYTES",
    "SHARD_BYTES",
    "Piece",
    "Rates",
    "Task",
    "is_large",
    "is_one_task",
    "piece_task",
    "plan_tasks",
    "shard_sizes",
    "spooled_tasks",
]

ALONE_BYTES = 64 << 20
"""Size of a source below which it is one task. One process reads it before others have started, and no estimate is
needed. The tasks of a larger source have at least a quarter of this size."""
SHARD_BYTES = 256 << 20
"""Size of a shard, where nobody says another."""
_LOOSE_SLACK = 0.3
"""Share by which shards may differ from the usual size: many tasks matter more than this number."""
_PLANNED_SLACK = 0.05
"""Share by which planned shards may differ from the size that is asked for. What the plan expects is an estimate, so it
is less than what is allowed."""
_ALLOWED_SLACK = 0.07
"""Share by which they may differ: samples are whole, so sizes differ by a little more."""
_LARGE, _MANY = 1.5, 64
"""A shard is cut into tasks if it has the bytes of so many output shards, and is more than this part of the source:
many shards are tasks enough."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes that are written, as a trial of a few rows tells.

    Attributes:
        of_source: for each byte of a source shard.
        of_payload: for each byte of payload; None if nothing is known.
    """

    of_source: float = 1.0
    of_payload: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a conversion.

    Attributes:
        number: its place among the tasks; output shards have this order.
        first: its first source shard; of samples in a new order, its first place.
        stop: the shard after its last source shard, or the place after its last one.
        source_bytes: size of its source shards, or of its samples.
        cut: how its output is cut into shards.
        first_row: number of samples in all shards before, if rows are named by number.
        spans: what it reads of each of its source shards, None for all of a shard; empty if it cuts none.
    """

    number: int
    first: int
    stop: int
    source_bytes: int
    cut: Cut
    first_row: int | None = None
    spans: tuple[Span | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """The smallest part of a source that is read alone.

    Attributes:
        shard: number of its shard.
        size_bytes: its size.
        span: its samples; None for those of the whole shard.
    """

    shard: int
    size_bytes: int
    span: Span | None = None


def is_large(size: int, sizes: Sequence[int], shard_bytes: int | None, *, has_more: bool = False) -> bool:
    """Whether a source shard of this size, out of these, is cut into several tasks if it can be.

    With `has_more`, shards have payload in other files: only their share of the source counts.
    """
    least = max(ALONE_BYTES, _LARGE * (SHARD_BYTES if shard_bytes is None else shard_bytes))
    return size >= sum(sizes) / _MANY and (has_more or size >= least)


def is_one_task(sizes: Sequence[int], shard_bytes: int | None = 0) -> bool:
    """Whether source shards of these sizes are too few or too small for several tasks."""
    return len(sizes) <= 1 or sum(sizes) < max(ALONE_BYTES, (SHARD_BYTES if shard_bytes is None else shard_bytes) // 2)


def plan_tasks(pieces: Sequence[Piece], shard_bytes: int | None, rates: Rates) -> list[Task]:
    """Cut a source into tasks.

    Its pieces join one task until its output is nearly a whole number of shards of `shard_bytes`, which the task
    makes equal. The last task takes the rest: all its shards but the last have that size.

    Args:
        pieces: the source, in order.
        shard_bytes: size of an output shard on disk; None for about `SHARD_BYTES`.
        rates: the expected size of the output.
    """
    tasks: list[Task] = []
    planned, allowed = (_PLANNED_SLACK, _ALLOWED_SLACK) if shard_bytes is not None else (_LOOSE_SLACK, _LOOSE_SLACK)
    shard_bytes = SHARD_BYTES if shard_bytes is None else shard_bytes
    first = size = 0
    for number, piece in enumerate(pieces):
        size += piece.size_bytes
        stop = number + 1
        now = _misfit(size * rates.of_source / shard_bytes)
        if stop == len(pieces) or size * max(rates.of_source, 1) < ALONE_BYTES // 4 or now > planned:
            continue
        if _misfit((size + pieces[stop].size_bytes) * rates.of_source / shard_bytes) < now:
            continue
        cut = Cut(shard_bytes, int(size * rates.of_source), allowed, rates.of_payload)
        tasks.append(piece_task(len(tasks), pieces[first:stop], cut))
        first, size = stop, 0
    if first < len(pieces):
        tasks.append(piece_task(len(tasks), pieces[first:], Cut(shard_bytes, ratio=rates.of_payload)))
    return tasks


def piece_task(number: int, pieces: Sequence[Piece], cut: Cut) -> Task:
    """Return neighbouring pieces as a task: those of a shard are one span of it."""
    size, found = sum(piece.size_bytes for piece in pieces), dict[int, Span | None]()
    for piece in pieces:
        known = found.get(piece.shard)
        found[piece.shard] = piece.span if known is None or piece.span is None else known.through(piece.span)
    spans = tuple(None if each is not None and each.is_whole else each for each in found.values())
    first, stop = pieces[0].shard, pieces[-1].shard + 1
    return Task(number, first, stop, size, cut, spans=spans if any(spans) else ())


def spooled_tasks(spooled_order: SpooledOrder, shard_bytes: int | None, ratio: float) -> list[Task]:
    """Cut samples in a new order into tasks of about one output shard: ranges of places, by the size of the samples.

    Args:
        spooled_order: the samples.
        shard_bytes: size of an output shard on disk; None for about `SHARD_BYTES`.
        ratio: expected bytes in a file for each byte of payload.
    """
    size = SHARD_BYTES if shard_bytes is None else shard_bytes
    return [
        Task(number, first, stop, part, Cut(size, int(part * ratio), _ALLOWED_SLACK, ratio))
        for number, (first, stop, part) in enumerate(spooled_order.bounds(max(int(size / ratio), 1)))
    ]


def _misfit(shards: float) -> float:
    """Share by which the shards of some output differ from the size asked for, if they are equal."""
    count = max(round(shards), 1)
    return abs(shards / count - 1)


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
            asked = [partial(_size_or_none, *places[at]) for at in mine]
            found = list(concurrent_map(asked, remote=is_remote(places[mine[0]][0])))
        for at, size in zip(mine, found, strict=True):
            sizes[unknown[at]] = size
    return iter(sizes)


def _size_or_none(store: Store, path: str) -> int:
    try:
        return store.head(path).size_bytes
    except StoreError:
        return 0
