"""A task of a conversion: the rows of some shards, or of some places of a new order, as finished shards.

Each attempt at a task writes into a folder of its own. Its answer names the files, when they are on disk. Before the
tasks, functions may be called for samples, by tasks that write no shards (`call_task`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.dataset.order.spooled_order import SpooledOrder
from lading._core.dataset.shards.random_access import uniting
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.source import LISTING_SCHEMA, Listing
from lading._core.dataset.transform.function_spool import FunctionSpool
from lading._core.dataset.transform.part_shards import planned_shards
from lading._core.dataset.transform.sample_functions import FIRST_OF_SHARD
from lading._core.dataset.writing.outcomes import LEDGER_NAME
from lading._core.formats.base import Span
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.jobs.convert.converter import Converter
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.tasks import Task
from lading._core.jobs.engine.hosts import refuse_unseen
from lading._core.jobs.engine.messages import (
    DIGESTS_NAME,
    encode_part,
    encode_skipped,
    plain_value,
)
from lading._core.jobs.engine.progress import Tally
from lading._core.jobs.engine.task import SentTask
from lading._core.jobs.journal.records import write_record
from lading._core.manifest.values import FOLDER
from lading._core.pipeline.cutting import Cut
from lading._core.pipeline.finished import FinishedPart, FinishedShards
from lading._core.pipeline.open_shard import BuildFolder
from lading._core.pipeline.pack import KeyNumbers
from lading._core.pipeline.shard_kind import ShardKind
from lading._core.pipeline.write import PartWriter
from lading._core.storage.background import Background
from lading._core.storage.base import Store, write_file
from lading._core.storage.fetch import Fetcher
from lading._core.storage.stores import resolve

__all__ = ["Attempt", "call_task", "convert_task", "refuse_unseen_folders", "sent_source"]


def convert_task(
    spec: JobPlan,
    task: Mapping[str, Any],
    indexes: Sequence[pa.Table | None],
    closing: Background,
    on_tally: Callable[[Tally], None],
    report: Callable[[Mapping[str, Any]], None],
) -> None:
    """Write the rows of a task's source shards as finished shards; report when they are on disk.

    They are in a folder of this attempt's own, which the report names: another attempt at the task has another one.
    """
    store = resolve(task["folder"], spec.stores)[0]
    with _source(spec, task, indexes) as source, Attempt(store, spec, task, closing) as attempt:
        converter: Converter = source.converter(
            spec, task, FunctionSpool(files=dict(task["spool"][0])), on_batch=lambda: on_tally(converter.tally),
            write_ledger=attempt.write_ledger, on_digests=attempt.on_digests,
        )  # fmt: skip
        converter.copy(source.places, attempt.writer, source.spans)
        dataset = source.dataset
        attempt.finish(
            report, reported=dict(dataset.counts), tally=converter.tally.as_list(),
            outcomes=plain_value(converter.losses.to_json()), skipped=encode_skipped(dataset.bad.skipped),
        )  # fmt: skip


def call_task(
    spec: JobPlan,
    task: Mapping[str, Any],
    indexes: Sequence[pa.Table | None],
    closing: Background,  # noqa: ARG001 - a task of a conversion has files
    on_tally: Callable[[Tally], None],
    report: Callable[[Mapping[str, Any]], None],
) -> None:
    """Call functions for the samples of a task, and keep what they make in files of this attempt; report the files."""
    token = secrets.token_hex(8)
    own = {place: f"{path}.{token}" for place, path in task["own"]}
    with _source(spec, task, indexes) as source:
        converter: Converter = source.converter(
            spec, task, FunctionSpool(files=dict(task["spool"][0]), own=own), on_batch=lambda: on_tally(converter.tally)
        )
        for _ in converter.rows(source.places, source.spans):
            pass  # the functions are called
    files = [[place, path] for place, path in own.items() if os.path.exists(path)]
    report({"done": task["number"], "files": files, "tally": converter.tally.as_list()})


@dataclass(frozen=True, slots=True)
class _Source:
    """The source of a task: shards, or places of a new order, or spans of the shards."""

    dataset: Shards
    places: range
    spans: Sequence[Span | None]
    spooled_order: SpooledOrder | None

    def converter(self, spec: JobPlan, task: Mapping[str, Any], spool: FunctionSpool, **how: Any) -> Converter:
        """Return what reads the source, with what functions made before."""
        files, first_step, first_samples = task["spool"]
        spools = spool.of_steps(spec.steps, first_step) if files or "own" in task else ()
        return Converter(self.dataset, spec, self.spooled_order, sizes=task["sizes"], spools=spools,
                         first_samples=first_samples, **how)  # fmt: skip


@contextmanager
def _source(spec: JobPlan, task: Mapping[str, Any], indexes: Sequence[pa.Table | None]) -> Iterator[_Source]:
    """Open the source of a task."""
    stores = spec.stores
    listing = Listing(pa.Table.from_pylist(task["shards"], LISTING_SCHEMA), index_file=spec.index_file)
    fetcher = Fetcher(stores, mmap=False, limits=spec.limits)
    dataset = planned_shards(listing, spec.source_format, spec.read, fetcher=fetcher, stores=stores)
    dataset.bad.warns = False  # the other process does
    for number, index in enumerate(indexes):
        if index is not None:
            dataset.indexes.give(number, index)
    spooled_order, places = None, range(len(listing))
    if task["spooled_order"] is not None:
        spooled_in, first, stop = task["spooled_order"]
        spooled_order, places = SpooledOrder.opened(spooled_in, spec.view, uniting(dataset)), range(first, stop)
    with dataset:
        yield _Source(dataset, places, [each and Span(**each) for each in task["spans"]], spooled_order)


def sent_source(
    shards: Shards,
    task: Task,
    sizes: Sequence[int],
    spooled_order: SpooledOrder | None,
    spool: tuple[Mapping[int, Sequence[str]], int],
    first_samples: Sequence[int] = (),
) -> SentTask:
    """Return the message of a task to a worker, as far as it tells what is read.

    Args:
        shards: the source.
        task: the task.
        sizes: bytes of each shard of the source.
        spooled_order: the samples, if they are written in another order.
        spool: the files in which a worker finds what functions made, and the place of its first step.
        first_samples: as of `Converter`, of all shards.
    """
    first, stop = task.first, task.stop
    if spooled_order is not None:  # a worker needs no shard of the source but one, which tells how they are read
        first, stop = 0, 1
    numbers = first_samples or range(0, FIRST_OF_SHARD * len(shards.listing), FIRST_OF_SHARD)
    message = {
        "number": task.number,
        "sizes": sizes[task.first : task.stop],
        "spans": [each and asdict(each) for each in task.spans],
        "shards": shards.listing.table.slice(first, stop - first).to_pylist(),
        "spool": [[*spool[0].items()], spool[1], [*numbers[first:stop]]],
        "spooled_order": None if spooled_order is None else [spooled_order.folder, task.first, task.stop],
    }
    indexes = [shards.indexes.held(number) for number in range(first, stop) if spooled_order is None]
    return SentTask(message, indexes, (shards.path(first), shards.path(stop - 1)))


class Attempt:
    """One try at a task, which builds in a folder of its own. Leaving a `with` before the end drops the files at hand.

    Args:
        store: of the destination.
        spec: the conversion.
        task: the task, as messages tell it.
        closing: finishes files while the next ones are written.

    Attributes:
        writer: takes the rows.
        write_ledger: takes lines of the ledger; None where none is kept.
        on_digests: takes the content digests of rows; None where none are kept.
    """

    def __init__(self, store: Store, spec: JobPlan, task: Mapping[str, Any], closing: Background) -> None:
        self._store, self._spec, self._task, self._closing = store, spec, task, closing
        self._folder = folder = f"{task['folder']}-{secrets.token_hex(8)}"
        self._shards, self._roles = FinishedShards(store, folder, FOLDER), Roles(dict(spec.schemas.roles))
        fmt, write = get_format(spec.write.format), spec.write
        self.writer = PartWriter(
            BuildFolder(store, folder),
            ShardKind(fmt, spec.view, fmt.write_options(write.options or {}), self._roles, write.checksums),
            self._shards, closing=closing, name="{:06d}".format, cut=Cut(**task["cut"]),
            schema=spec.schemas.schema_written, keys=KeyNumbers(task["first_row"] or 0),
        )  # fmt: skip
        self._ledger = ledger = store.put_stream(f"{folder}/{LEDGER_NAME}") if write.ledger is not None else None
        self._digests: list[NDArray[np.uint8]] = []
        self.on_digests = self._digests.append if spec.digests else None
        self.write_ledger = None if ledger is None else lambda lines: ledger.write([lines])
        self._failed = ExitStack()

    def finish(self, report: Callable[[Mapping[str, Any]], None], **counted: Any) -> None:
        """End the last shard; when all files are on disk, write the record of the task, and report the answer.

        If tasks may fail, this waits for both: their errors are of this task, not of the next one.

        Args:
            report: called with the answer.
            counted: what was counted on the way, for the answer.
        """
        self.writer.end_shard()
        if self._ledger is not None:
            self._ledger.close()
        self._failed.pop_all()
        self._closing.then(partial(self._record, report, counted))
        if self._spec.write.max_failures:
            self._closing.wait()

    def _record(self, report: Callable[[Mapping[str, Any]], None], counted: Mapping[str, Any]) -> None:
        store, folder, task, writer = self._store, self._folder, self._task, self.writer
        if self._spec.digests:
            digests = [np.ascontiguousarray(part).data for part in self._digests]
            write_file(store, f"{folder}/{DIGESTS_NAME}", digests)
        columns = pa.schema(list(writer.columns.seen.values()))
        shards = self._shards
        part = FinishedPart(shards.close(), writer.columns.schema, columns, shards.counts, self._roles.of)
        answer = {"done": task["number"], "folder": folder, "part": encode_part(part), **counted}
        report(write_record(store, task["record"], answer))

    def __enter__(self) -> Self:
        self._failed.callback(self.writer.abort)
        self._failed.callback(self._shards.abort)
        if self._ledger is not None:
            self._failed.callback(self._ledger.abort)
        return self

    def __exit__(self, *_: object) -> None:
        self._failed.close()


def refuse_unseen_folders(task: Mapping[str, Any], sender: str) -> None:
    """Refuse a task whose local folders this machine does not see.

    Raises:
        UsageError: names the host and the folder.
    """
    # The folder of all attempts is below one with a random name: a folder of that name is the sender's.
    refuse_unseen("destination", task["folder"], sender)
    for shard in task["shards"]:
        refuse_unseen("source", shard["path"], sender)
    if task["spooled_order"] is not None:
        shared = "Let --temp-dir or TMPDIR name a folder that all machines share."
        refuse_unseen("new order", f"{task['spooled_order'][0]}/", sender, shared)
