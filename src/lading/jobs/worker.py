"""A process that does tasks for another one: `python -m lading.jobs.worker`, started by `lading.jobs.pool`.

Messages (`lading.jobs.messages`) come on standard input and go to standard output; what else is printed goes to
standard error. First comes the job, a `conversion` or a `reading` (`lading.jobs.reading`), then one task after each
time this process says that it is ready. Shards of a conversion are written out of sight, in a folder of each
attempt at a task; only the other process gives them names.

When standard input ends, whoever gave the work is done or dead: this process ends at once, in the middle of whatever
it does.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.dataset.order.arranged import Arranged
from lading.dataset.shards.random_access import uniting
from lading.dataset.source.source import LISTING_SCHEMA, Listing
from lading.dataset.transform.part_shards import planned_shards
from lading.dataset.writing.outcomes import LEDGER_NAME
from lading.formats.registry import all_formats, get_format
from lading.interleaved.tar_writer import Roles
from lading.jobs.converter import Converter
from lading.jobs.messages import (
    DIGESTS_NAME,
    encode_error,
    encode_part,
    encode_skipped,
    encode_warning,
    plain_value,
    read_message,
    write_message,
)
from lading.jobs.reading import Taken
from lading.jobs.spec import Conversion
from lading.jobs.threads import using_threads
from lading.manifest.values import FOLDER
from lading.pipeline.cutting import Cut
from lading.pipeline.finished import FinishedShards, Part
from lading.pipeline.open_shard import BuildFolder
from lading.pipeline.pack import KeyNumbers
from lading.pipeline.shard_kind import ShardKind
from lading.pipeline.write import PartWriter
from lading.processes.child_process import end_with_parent, hand_on_warnings, leave_pandas_out, leave_signals
from lading.storage.background import Background
from lading.storage.base import write_file
from lading.storage.fetch import Fetcher
from lading.storage.stores import Stores, resolve

__all__ = ["main"]

_Message = tuple[dict[str, Any], list[pa.Table | None]]
_Do = Callable[[Mapping[str, Any], Sequence[pa.Table | None]], None]


class _Parent:
    """The process at the other end of the pipes. An error that ends the body of a `with` is sent to it."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        self._sending = threading.Lock()
        self._said: SimpleQueue[_Message] = SimpleQueue()
        # All printing goes to standard error: nothing comes between the messages.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        with suppress(OSError):  # there may be no standard error
            os.dup2(2, 1)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with os.fdopen(self._in, "rb") as pipe:
            while (message := read_message(pipe)) is not None:
                self._said.put(message)
        os._exit(0)

    def hear(self) -> _Message:
        """The next message."""
        return self._said.get()

    def tell(self, **message: Any) -> None:
        """Say something; any thread may."""
        with self._sending:
            write_message(self._out, message)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self.tell(error=encode_error(error))
        os._exit(0)


def main() -> None:
    """Do tasks until standard input ends."""
    leave_pandas_out()
    end_with_parent()
    leave_signals()
    with _Parent() as parent:
        list(all_formats())  # import them while the other process is still planning
        hand_on_warnings(lambda *warning: parent.tell(warning=encode_warning(*warning)))
        opening, _ = parent.hear()
        closing = Background("lading-close")
        with using_threads(opening["threads"]):
            do = _job(opening, closing, parent.tell)
            parent.tell(ready=True)
            task, tables = parent.hear()
            while task:
                do(task, tables)
                parent.tell(ready=True)
                task, tables = parent.hear()
            closing.wait()
            parent.hear()  # nothing more comes: the end of standard input ends this process


def _job(opening: dict[str, Any], closing: Background, tell: Callable[..., None]) -> _Do:
    """Return the function that does tasks: they are pieces of a conversion, or of a reading."""
    if "reading" in opening:
        return Taken(opening["reading"], tell).do
    return partial(_convert, Conversion.decode(opening["conversion"]), closing, tell)


def _convert(
    spec: Conversion,
    closing: Background,
    tell: Callable[..., None],
    task: Mapping[str, Any],
    indexes: Sequence[pa.Table | None],
) -> None:
    """Write the rows of a task's source shards as finished shards; report when they are on disk.

    They are in a folder of this attempt's own, which the report names: another attempt at the task has another one.
    """
    stores = Stores()
    store, folder = resolve(f"{task['folder']}-{secrets.token_hex(8)}", stores)
    listing = Listing(pa.Table.from_pylist(task["shards"], LISTING_SCHEMA), index_file=spec.index_file)
    fetcher = Fetcher(stores, mmap=False, limits=spec.limits)
    dataset = planned_shards(listing, spec.source_format, spec.read, fetcher=fetcher, stores=stores)
    dataset.bad.warns = False  # the other process does
    for number, index in enumerate(indexes):
        if index is not None:
            dataset.indexes.give(number, index)
    shards, roles = FinishedShards(store, folder, FOLDER), Roles(dict(spec.plan.roles))
    fmt, write = get_format(spec.write.format), spec.write
    writer = PartWriter(
        BuildFolder(store, folder),
        ShardKind(fmt, spec.view, fmt.write_options(write.options or {}), roles, write.checksums),
        shards, closing=closing, name="{:06d}".format, cut=Cut(**task["cut"]),
        schema=spec.plan.schema_written, keys=KeyNumbers(task["first_row"] or 0),
    )  # fmt: skip
    digests: list[NDArray[np.uint8]] = []

    def progress() -> None:
        tell(progress=task["number"], tally=converter.tally.as_list())

    ledger = store.put_stream(f"{folder}/{LEDGER_NAME}") if write.ledger is not None else None
    arranged, places = None, range(len(listing))
    if task["arranged"] is not None:
        arranged_in, first, stop = task["arranged"]
        arranged, places = Arranged.opened(arranged_in, spec.view, uniting(dataset)), range(first, stop)
    converter = Converter(
        dataset, spec, arranged, write_ledger=None if ledger is None else lambda lines: ledger.write([lines]),
        on_digests=digests.append if spec.digests else None, on_batch=progress,
        sizes=task["sizes"],
    )  # fmt: skip

    def report() -> None:
        if spec.digests:
            write_file(store, f"{folder}/{DIGESTS_NAME}", [np.ascontiguousarray(part).data for part in digests])
        columns = pa.schema(list(writer.columns.seen.values()))
        part = Part(shards.close(), writer.columns.schema, columns, shards.counts, roles.of)
        tell(
            done=task["number"], folder=folder, part=encode_part(part), reported=dict(dataset.counts),
            tally=converter.tally.as_list(), outcomes=plain_value(converter.losses.to_json()),
            skipped=encode_skipped(dataset.bad.skipped),
        )  # fmt: skip

    with dataset:
        converter.copy(places, writer)
        writer.end_shard()
        if ledger is not None:
            ledger.close()
    closing.then(report)


if __name__ == "__main__":
    main()
