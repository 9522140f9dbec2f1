"""Jobs that only read a dataset: each shard is looked at by itself, by this process or by workers that share them."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.dataset.query import Query
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.source import Listing
from lading._core.formats.registry import is_installed
from lading._core.jobs.convert.tasks import shard_sizes
from lading._core.jobs.engine.executors import open_executor
from lading._core.jobs.engine.messages import decode_skipped
from lading._core.jobs.engine.pool import Crew, Order, Workers
from lading._core.jobs.engine.progress import OnProgress, Progress, Speed, Tally
from lading._core.jobs.engine.read_task import DIGEST_BYTES, Look, SentReading, listing_checksum, open_again
from lading._core.jobs.engine.read_workers import READ_WORKERS
from lading._core.jobs.engine.threads import threads_each
from lading._core.processes.pickled import encode_value
from lading._core.storage.base import store_errors
from lading._core.storage.memory import MemoryStore
from lading._core.storage.moved import MovedStore
from lading._core.storage.stores import Stores, resolve
from lading._core.storage.temporary import temporary_folder
from lading.errors import UsageError
from lading.options import WorkerOptions

__all__ = ["Reading", "look_at_shards", "refuse_out_of_reach"]


_TASK_BYTES, _TASK_SHARDS = 128 << 20, 64
_MOST_WORKERS = 8
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What is looked at, and how, for other processes to begin.

    Attributes:
        begin: called with the dataset and the settings; gives a `Look`.
        query: the source.
        settings: of the job.
        sharing: what shares the shards. By default one process a core, up to eight, where they can read the data too.
        open: opens the shards in another process.
    """

    begin: Callable[..., Look]
    query: Query
    settings: Mapping[str, Any] = field(default_factory=dict)
    sharing: WorkerOptions = field(default_factory=WorkerOptions)
    open: Callable[[Query, Mapping[str, Any]], Shards] = open_again

    def encode(self, dataset: Shards) -> str:
        """Return the same as text, for a worker that opens the dataset again.

        Raises:
            UsageError: an option cannot be sent to worker processes; names it.
        """
        known = {
            "format": dataset.format,
            "view": dataset.view,
            # Of samples there is none to give: what a manifest, or who opened them, says of items would be refused.
            "interleaved": dataset.interleaved if dataset.has_items else None,
            "schema": dataset.target,
            "schema_overrides": dataset.types,
        }
        stores = dataset.stores.by_prefix  # those of the caller were refused
        moved = {p: store for p, store in stores.items() if isinstance(store, MovedStore)}
        query = self.query.reading(limits=dataset.limits, stores=dataset.stores.for_workers.and_for(moved))
        if self.sharing.leaves_process:
            query = query.absolute()
        sent = SentReading(self.begin, self.open, query, known, self.settings, listing_checksum(dataset))
        return encode_value(sent, query.read.options or {})


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
    listing: Listing | None = None,
) -> Generator[dict[str, Any]]:
    """What was found of each shard, in order; digests of its samples are handed over before.

    An executor does all of it. Worker processes are begun when what is left would take so long, as the first shards
    went, that it is worth the wait. Peak memory of each process as `Dataset.batches`.

    Args:
        dataset: the source, open.
        look: what is done with its shards here.
        reading: how workers begin the same.
        shards: numbers of those that are looked at.
        on_digests: called with digests of samples, `(samples, 16)`, in order.
        on_progress: called after every batch and shard.
        listing: the shards with the sizes that are known of them; by default those of the dataset.

    Raises:
        LadingError: whatever a look raised, in whichever process.
        UsageError: workers are asked for, and cannot read these data.
    """
    elsewhere = reading.sharing.is_elsewhere
    if elsewhere:
        _refuse_here_alone(dataset, reading)
    count = 0 if elsewhere else _processes(dataset, reading)
    tally = Tally()

    def tell(total: Tally) -> None:
        if on_progress is not None:
            on_progress(Progress(total.shards, len(shards), total.samples, total.payload_bytes))

    def on_read(digests: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
        on_digests(digests)
        tally.add(Tally(0, samples, 0, size_bytes))
        tell(tally)

    shares, sized = elsewhere or count > 1, listing or dataset.listing
    tasks = _tasks(sized, dataset.stores, shards) if shares else [_Task(0, shards, 0)]
    speed = Speed(sum(task.source_bytes for task in tasks))
    begun = 0

    def mine() -> Iterator[int]:
        """Shards for this process: all, or those of tasks before it was found that workers are worth it."""
        nonlocal begun
        for task in tasks:
            if elsewhere or (len(tasks) - begun > 1 and speed.is_worth_workers()):
                return
            begun += 1
            yield from task.shards
            speed.add(task.source_bytes)

    for found in look(mine(), on_read):
        tally.shards += 1
        tell(tally)
        yield found
    if begun < len(tasks):
        with closing(_shared(count, dataset, reading, tasks[begun:], tally, on_digests, tell)) as rest:
            yield from rest


def _shared(
    count: int,
    dataset: Shards,
    reading: Reading,
    tasks: Sequence[_Task],
    before: Tally,
    on_digests: Callable[[NDArray[np.uint8]], None],
    tell: Callable[[Tally], None],
) -> Generator[dict[str, Any]]:
    """The same by this number of worker processes, or by an executor.

    Workers leave digests in files: those of tiny samples are too many for memory. An executor may be on machines that
    share no folder with this one, so digests are in its answers: 16 bytes a sample, of some tasks at once.
    """

    def order(task: _Task) -> Order:
        place = None if folder is None else f"{folder}/{task.number}"
        told = {"number": task.number, "shards": list(task.shards), "digests": place}
        return Order(told, files=(dataset.path(task.shards[0]), dataset.path(task.shards[-1])))

    def tell_all(tally: Tally) -> None:
        total = Tally(*before.as_list())
        total.add(tally)
        tell(total)

    with ExitStack() as held:
        folder = held.enter_context(temporary_folder()) if count else None
        run = held.enter_context(READ_WORKERS.run())
        crew = held.enter_context(_crew(min(count, len(tasks)), reading.sharing))
        for told in crew.run({"reading": reading.encode(dataset), "run": run}, tasks, order, tell_all):
            for number, skipped in decode_skipped(told["skipped"]).items():
                dataset.bad.add(number, skipped)
            if folder is None:
                on_digests(np.frombuffer(base64.b64decode(told["digests"]), np.uint8).reshape(-1, DIGEST_BYTES))
            else:
                for digests in _taken_out(f"{folder}/{told['done']}"):
                    on_digests(digests)
            yield from told["found"]


def _crew(count: int, sharing: WorkerOptions) -> Crew:
    """Return so many worker processes, or the executor where they are none."""
    if not count:
        return open_executor(sharing, None)
    # Fewer threads than cores, set for this process, were meant for all of the job.
    return Workers(count, lock=None, threads=min(threads_each(count), pa.cpu_count()))


def _taken_out(path: str) -> Iterator[NDArray[np.uint8]]:
    """The digests of a file, which is gone at the end."""
    with store_errors(path), open(path, "rb") as file:
        while data := file.read(_READ_BYTES):
            yield np.frombuffer(data, np.uint8).reshape(-1, DIGEST_BYTES)
    os.unlink(path)


def _tasks(listing: Listing, stores: Stores, shards: Sequence[int]) -> list[_Task]:
    """Consecutive shards go together, up to 64 of them or 128 MB: whoever ends first takes the next."""
    # That a shard is not there, is for who reads it to say.
    chosen = replace(listing, table=listing.table.take(pa.array(shards, pa.int64())))
    sizes = dict(zip(shards, shard_sizes(chosen, stores, skip=True), strict=True))
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


def _processes(dataset: Shards, reading: Reading) -> int:
    """How many processes there may be.

    Raises:
        UsageError: more than one are asked for, and they could not read the data.
    """
    workers = reading.sharing.workers
    if workers == 1 or (workers is None and not sys.executable):
        return 1
    try:
        _refuse_here_alone(dataset, reading)
    except UsageError:
        if workers is not None:
            raise
        return 1
    return workers or min(threads_each(1), _MOST_WORKERS)


def _refuse_here_alone(dataset: Shards, reading: Reading) -> None:
    """Refuse a reading that another process could not do. Raises UsageError."""
    formats = [each.format for each in dataset.sources()]
    refuse_out_of_reach(formats, dataset.listing.table["path"].to_pylist(), dataset.stores)
    reading.encode(dataset)


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
