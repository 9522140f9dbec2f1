"""A task of a conversion: the rows of some shards, or of some places of a new order, as finished shards.

Each attempt at a task writes into a folder of its own. Its answer names the files, when they are on disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.dataset.order.spooled_order import SpooledOrder
from lading._core.dataset.shards.random_access import uniting
from lading._core.dataset.source.source import LISTING_SCHEMA, Listing
from lading._core.dataset.transform.function_spool import FunctionSpool
from lading._core.dataset.transform.part_shards import planned_shards
from lading._core.dataset.writing.outcomes import LEDGER_NAME
from lading._core.formats.base import Span
from lading._core.formats.registry import get_format
from lading._core.interleaved.tar_writer import Roles
from lading._core.jobs.convert.converter import Converter
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.engine.hosts import refuse_unseen
from lading._core.jobs.engine.messages import (
    DIGESTS_NAME,
    encode_part,
    encode_skipped,
    plain_value,
)
from lading._core.jobs.engine.progress import Tally
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

__all__ = ["Attempt", "convert_task", "refuse_unseen_folders"]


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
    with dataset, Attempt(resolve(task["folder"], stores)[0], spec, task, closing) as attempt:
        converter = Converter(
            dataset, spec, spooled_order, write_ledger=attempt.write_ledger, on_digests=attempt.on_digests,
            on_batch=lambda: on_tally(converter.tally), sizes=task["sizes"], **_kept(task, spec),
        )  # fmt: skip
        converter.copy(places, attempt.writer, [each and Span(**each) for each in task["spans"]])
        attempt.finish(
            report, reported=dict(dataset.counts), tally=converter.tally.as_list(),
            outcomes=plain_value(converter.losses.to_json()), skipped=encode_skipped(dataset.bad.skipped),
        )  # fmt: skip


def _kept(task: Mapping[str, Any], spec: JobPlan) -> dict[str, Any]:
    """Return arguments of the converter: what functions made when the job was planned."""
    if task["spool"] is None:
        return {}
    files, first_step, first_shard = task["spool"]
    spool = FunctionSpool(files=dict(files))
    return {"spools": spool.of_steps(spec.steps, first_step), "first_shard": first_shard}


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
