"""Jobs that only read a dataset: each shard is looked at by itself, by this process or by workers that share them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from lading.dataset.shards.shards import Shards
from lading.dataset.source.open import open_shards
from lading.dataset.source.source import Source
from lading.errors import StoreError, UsageError
from lading.formats.registry import is_installed
from lading.jobs.messages import decode_skipped, encode_skipped, plain_value
from lading.jobs.pool import Order, Workers
from lading.jobs.progress import OnProgress, Progress, Speed, Tally
from lading.jobs.tasks import shard_sizes
from lading.jobs.threads import threads_each
from lading.processes.pickled import decode_value, encode_value
from lading.storage.base import store_errors
from lading.storage.memory import MemoryStore
from lading.storage.moved import MovedStore
from lading.storage.stores import Stores, resolve
from lading.storage.temporary import temporary_folder

__all__ = ["NO_DIGESTS", "Look", "OnRead", "Reading", "Taken", "look_at_shards", "refuse_out_of_reach"]

_TASK_BYTES, _TASK_SHARDS = 128 << 20, 64
_MOST_WORKERS = 8
_READ_BYTES = 1 << 20
_DIGEST_BYTES = 16

OnRead: TypeAlias = Callable[[NDArray[np.uint8], int, int], None]
"""What takes digests, `(samples, 16)`, of samples or of none of them, how many samples these are, and their bytes."""

NO_DIGESTS = np.zeros((0, 16), np.uint8)
"""Digests of no sample."""

Look: TypeAlias = Callable[[Iterable[int], OnRead], Iterator[dict[str, Any]]]
"""What is done with shards, by number: gives JSON-able values for each, in order, once its digests were handed over."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is looked at, and how, for other processes to begin.

    Attributes:
        begin: called with the dataset and the settings; gives a `Look`.
        source: as `lading.open` takes it.
        opening: the other arguments of `lading.open`.
        settings: of the job.
        workers: processes, at most; None takes one a core, up to eight, where they can read the data too.
    """

    begin: Callable[..., Look]
    source: Source
    opening: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    workers: int | None = None

    def encode(self, dataset: Shards) -> str:
        """Return the same as text, for a worker that opens the dataset again.

        Raises:
            UsageError: an option cannot be sent to worker processes; names it.
        """
        opening = {
            **self.opening,
            "format": dataset.format,
            "view": dataset.view,
            # Of samples there is none to give: what a manifest, or who opened them, says of items would be refused.
            "interleaved": dataset.interleaved if dataset.view == "interleaved" else None,
            "schema": dataset.target,
            "schema_overrides": dataset.types,
            "limits": dataset.limits,
        }
        stores = dataset.stores.by_prefix  # those of the caller were refused
        moved = {p: store for p, store in stores.items() if isinstance(store, MovedStore)}
        opening["stores"] = dataset.stores.for_workers.and_for(moved)
        sent = _Sent(self.begin, self.source, opening, self.settings, _listing_checksum(dataset))
        return encode_value(sent, self.opening.get("options") or {})


@dataclass(frozen=True, slots=True)
class _Sent:
    """A reading as a worker is sent it: as `Reading`, and a checksum of the shards' paths."""

    begin: Callable[..., Look]
    source: Source
    opening: Mapping[str, Any]
    settings: Mapping[str, Any]
    listing: str


@dataclass(frozen=True, slots=True)
class _Task:
    """Shards that one process looks at."""

    number: int
    shards: Sequence[int]
    source_bytes: int


def look_at_shards(
    dataset: Shards,
    look: Look,
    reading: Reading,
    shards: Sequence[int],
    *,
    on_digests: Callable[[NDArray[np.uint8]], None],
    on_progress: OnProgress | None,
) -> Generator[dict[str, Any]]:
    """What was found of each shard, in order; digests of its samples are handed over before.

    Workers are begun when what is left would take so long, as the first shards went, that it is worth the wait. Peak
    memory of each process as `Dataset.batches`.

    Args:
        dataset: the source, open.
        look: what is done with its shards here.
        reading: how workers begin the same.
        shards: numbers of those that are looked at.
        on_digests: called with digests of samples, `(samples, 16)`, in order.
        on_progress: called after every batch and shard.

    Raises:
        LadingError: whatever a look raised, in whichever process.
        UsageError: workers are asked for, and cannot read these data.
    """
    crew = _crew(dataset, reading)
    tally = Tally()

    def tell(total: Tally) -> None:
        if on_progress is not None:
            on_progress(Progress(total.shards, len(shards), total.samples, total.payload_bytes))

    def on_read(digests: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
        on_digests(digests)
        tally.add(Tally(0, samples, 0, size_bytes))
        tell(tally)

    tasks = _tasks(dataset, shards) if crew > 1 else [_Task(0, shards, 0)]
    speed = Speed(sum(task.source_bytes for task in tasks))
    begun = 0

    def mine() -> Iterator[int]:
        """Shards for this process: all, or those of tasks before it was found that workers are worth it."""
        nonlocal begun
        for task in tasks:
            if len(tasks) - begun > 1 and speed.is_worth_workers():
                return
            begun += 1
            yield from task.shards
            speed.add(task.source_bytes)

    for found in look(mine(), on_read):
        tally.shards += 1
        tell(tally)
        yield found
    if begun < len(tasks):
        with closing(_by_workers(crew, dataset, reading, tasks[begun:], tally, on_digests, tell)) as rest:
            yield from rest


def _by_workers(
    count: int,
    dataset: Shards,
    reading: Reading,
    tasks: Sequence[_Task],
    before: Tally,
    on_digests: Callable[[NDArray[np.uint8]], None],
    tell: Callable[[Tally], None],
) -> Generator[dict[str, Any]]:
    """The same by workers, which leave digests in files: of tiny samples they are too many for memory."""

    def order(task: _Task) -> Order:
        told = {"number": task.number, "shards": list(task.shards), "digests": f"{folder}/{task.number}"}
        return Order(told, files=(dataset.path(task.shards[0]), dataset.path(task.shards[-1])))

    def tell_all(tally: Tally) -> None:
        total = Tally(*before.as_list())
        total.add(tally)
        tell(total)

    with ExitStack() as held:
        folder = held.enter_context(temporary_folder())
        count = min(count, len(tasks))
        threads = min(threads_each(count), pa.cpu_count())  # who set fewer for this process meant all of the job
        workers = held.enter_context(Workers(count, lock=None, threads=threads))
        for told in workers.run({"reading": reading.encode(dataset)}, tasks, order, tell_all):
            for number, skipped in decode_skipped(told["skipped"]).items():
                dataset.bad.add(number, skipped)
            for digests in _taken_out(f"{folder}/{told['done']}"):
                on_digests(digests)
            yield from told["found"]


def _append(path: str, digests: NDArray[np.uint8]) -> None:
    with store_errors(path), open(path, "ab") as file:
        file.write(np.ascontiguousarray(digests).data)


def _taken_out(path: str) -> Iterator[NDArray[np.uint8]]:
    """The digests of a file, which is gone at the end."""
    with store_errors(path), open(path, "rb") as file:
        while data := file.read(_READ_BYTES):
            yield np.frombuffer(data, np.uint8).reshape(-1, _DIGEST_BYTES)
    os.unlink(path)


def _tasks(dataset: Shards, shards: Sequence[int]) -> list[_Task]:
    """Consecutive shards go together, up to 64 of them or 128 MB: whoever ends first takes the next."""
    sizes = _sizes(dataset, shards)
    tasks: list[_Task] = []
    mine: list[int] = []
    size = 0
    for number in shards:
        if mine and (size + sizes[number] > _TASK_BYTES or len(mine) == _TASK_SHARDS):
            tasks.append(_Task(len(tasks), mine, size))
            mine, size = [], 0
        mine.append(number)
        size += sizes[number]
    return [*tasks, _Task(len(tasks), mine, size)] if mine else tasks


def _sizes(dataset: Shards, shards: Sequence[int]) -> dict[int, int]:
    """Sizes of shards by number; 0 for all where one cannot be looked at: to say so is for who reads it."""
    listing = replace(dataset.listing, table=dataset.listing.table.take(pa.array(shards, pa.int64())))
    try:
        return dict(zip(shards, shard_sizes(listing, dataset.stores), strict=True))
    except StoreError:
        return dict.fromkeys(shards, 0)


def _crew(dataset: Shards, reading: Reading) -> int:
    """How many processes there may be.

    Raises:
        UsageError: more than one are asked for, and they could not read the data.
    """
    if reading.workers is not None and reading.workers < 1:
        raise UsageError("workers must be 1 or more", found=f"workers={reading.workers}")
    if reading.workers == 1 or (reading.workers is None and not sys.executable):
        return 1
    try:
        formats = [each.format for each in dataset.sources()]
        refuse_out_of_reach(formats, dataset.listing.table["path"].to_pylist(), dataset.stores)
        reading.encode(dataset)
    except UsageError:
        if reading.workers is not None:
            raise
        return 1
    return reading.workers or min(threads_each(1), _MOST_WORKERS)


def refuse_out_of_reach(formats: Sequence[str], paths: Sequence[str], stores: Stores | None) -> None:
    """What lives in this process alone, another one cannot open.

    Raises:
        UsageError: a format, a store or a path is such.
    """
    advice = "Work with workers=1."
    for name in formats:
        if not is_installed(name):
            raise UsageError("workers know formats of installed packages only", found=repr(name), advice=advice)
    by_prefix = {} if stores is None else stores.by_prefix
    own = [repr(prefix) for prefix, store in by_prefix.items() if not isinstance(store, MovedStore)]
    if own:
        raise UsageError(
            "workers open data by URL, and stores of your own are objects of this process",
            found=", ".join(own), advice=advice,
        )  # fmt: skip
    if any(isinstance(resolve(path)[0], MemoryStore) for path in paths):
        raise UsageError("other processes cannot read data in memory", found="memory://", advice=advice)


class Taken:
    """A reading as a worker does it: the dataset is opened once, for all tasks.

    Args:
        sent: as `Reading.encode` gives it.
        tell: says something to the other process.

    Raises:
        StoreError: the dataset has other shards than the other process found.
    """

    def __init__(self, sent: str, tell: Callable[..., None]) -> None:
        reading: _Sent = decode_value(sent)
        self._dataset = open_shards(reading.source, **reading.opening)
        self._dataset.bad.warns = False  # the other process does
        if _listing_checksum(self._dataset) != reading.listing:
            raise StoreError("the source changed while it was read", file=self._dataset.listing.folder or None,
                             advice="Do not write to the source while it is read.")  # fmt: skip
        self._look = reading.begin(self._dataset, **reading.settings)
        self._tell = tell

    def do(self, task: Mapping[str, Any], _: Sequence[pa.Table | None]) -> None:
        """Look at the shards of a task, and say what was found."""
        tally, found = Tally(), list[Any]()

        def on_read(digests: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
            _append(task["digests"], digests)
            tally.add(Tally(0, samples, 0, size_bytes))
            self._tell(progress=task["number"], tally=tally.as_list())

        with store_errors(task["digests"]), open(task["digests"], "wb"):
            pass  # what a process that died wrote for this task goes
        for one in self._look(task["shards"], on_read):
            found.append(plain_value(one))
            tally.shards += 1
        skipped = encode_skipped(self._dataset.bad.skipped)
        self._tell(done=task["number"], found=found, tally=tally.as_list(), skipped=skipped)


def _listing_checksum(dataset: Shards) -> str:
    total = xxhash.xxh3_64()
    for chunk in dataset.listing.table["path"].chunks:
        for path in chunk.to_pylist():
            total.update(os.fsencode(path) + b"\n")
    return total.hexdigest()
