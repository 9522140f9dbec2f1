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
from lading._core.jobs.engine.executors import ExecutorPool, open_executor, worker_programs
from lading._core.jobs.engine.loop import LazyPool, do_tasks
from lading._core.jobs.engine.messages import decode_skipped
from lading._core.jobs.engine.progress import OnProgress, Progress, Tally
from lading._core.jobs.engine.read_task import DIGEST_BYTES, Look, SentReading, listing_checksum, open_again
from lading._core.jobs.engine.read_workers import READ_WORKERS
from lading._core.jobs.engine.task import SentTask
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
    shares = elsewhere or count > 1
    tasks = _tasks(listing or dataset.listing, dataset.stores, shards) if shares else [_Task(0, shards, 0)]
    with ExitStack() as held:
        work = _Work(dataset, look, reading, len(shards), on_digests, on_progress)

        def start(left: int) -> ExecutorPool:
            if elsewhere:
                return open_executor(reading.sharing, None)
            work.folder = held.enter_context(temporary_folder())
            processes = min(count, left)
            # Fewer threads than cores, set for this process, were meant for all of the job.
            return worker_programs(processes, lock=None, threads=min(threads_each(processes), pa.cpu_count()))

        workers = LazyPool(held, start) if shares else None
        if workers is not None and elsewhere and tasks:
            workers.begin(len(tasks))
        answers = held.enter_context(closing(do_tasks(work, tasks, workers)))
        for answer in answers:
            yield from answer["found"]


class _Work:
    """How shards are looked at: by this process one after the other, and by others task by task.

    Args:
        dataset: the source, open.
        look: what is done with its shards here.
        reading: how workers begin the same.
        total: number of shards.
        on_digests: called with digests of samples, in order.
        on_progress: called after every batch and shard.

    Attributes:
        folder: where workers leave digests: those of tiny samples are too many for memory. None for an executor, which
            may be on machines that share no folder with this one: digests are in its answers, 16 bytes a sample, of
            some tasks at once.
    """

    def __init__(
        self,
        dataset: Shards,
        look: Look,
        reading: Reading,
        total: int,
        on_digests: Callable[[NDArray[np.uint8]], None],
        on_progress: OnProgress | None,
    ) -> None:
        self._dataset, self._look, self._reading, self._total = dataset, look, reading, total
        self._on_digests, self._on_progress = on_digests, on_progress
        self._tally = Tally()
        self.folder: str | None = None

    def here(self, tasks: Iterator[_Task]) -> Iterator[dict[str, Any]]:
        """Look at the shards of tasks; give what is found of each shard, once its digests were handed over."""
        for found in self._look((shard for task in tasks for shard in task.shards), self._on_read):
            self._tally.shards += 1
            self._tell(self._tally)
            yield {"found": [found]}

    def by(self, pool: ExecutorPool, tasks: Sequence[_Task]) -> Iterator[Mapping[str, Any]]:
        """Have workers look at the shards of tasks."""
        dataset, before, folder = self._dataset, self._tally, self.folder

        def sent(task: _Task) -> SentTask:
            place = None if folder is None else f"{folder}/{task.number}"
            told = {"number": task.number, "shards": list(task.shards), "digests": place}
            return SentTask(told, files=(dataset.path(task.shards[0]), dataset.path(task.shards[-1])))

        def tell(tally: Tally) -> None:
            total = Tally(*before.as_list())
            total.add(tally)
            self._tell(total)

        with READ_WORKERS.run() as run:
            for answer in pool.run({"reading": self._reading.encode(dataset), "run": run}, tasks, sent, tell):
                for number, skipped in decode_skipped(answer["skipped"]).items():
                    dataset.bad.add(number, skipped)
                for digests in _digests_of(answer, folder):
                    self._on_digests(digests)
                yield answer

    def _on_read(self, digests: NDArray[np.uint8], samples: int, size_bytes: int) -> None:
        self._on_digests(digests)
        self._tally.add(Tally(0, samples, 0, size_bytes))
        self._tell(self._tally)

    def _tell(self, total: Tally) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(total.shards, self._total, total.samples, total.payload_bytes))


def _digests_of(answer: Mapping[str, Any], folder: str | None) -> Iterator[NDArray[np.uint8]]:
    """Give the digests that a task found: those of its file, or of its answer."""
    if folder is not None:
        return _taken_out(f"{folder}/{answer['done']}")
    return iter([np.frombuffer(base64.b64decode(answer["digests"]), np.uint8).reshape(-1, DIGEST_BYTES)])


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
