"""What a conversion must not do to its source, its destination and its ledger, found before a byte is written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lading._core.dataset.shards.shards import Shards
from lading._core.formats.format import AnyFormat
from lading._core.jobs.convert.schemas import refuse_inside
from lading._core.jobs.journal.journal import has_journal
from lading._core.manifest.builds import JOB_NAME, builds_of
from lading._core.manifest.commit import check_destination, is_there
from lading._core.manifest.unfinished import is_unfinished
from lading._core.manifest.values import FOLDER
from lading._core.storage.base import Sink, Store, aborting, has_file
from lading._core.storage.roots import is_inside, real_place
from lading._core.storage.staging import sweep_stale
from lading._core.storage.stores import Stores, is_local, resolve
from lading.errors import DestinationExists, StoreError, UsageError
from lading.options import WriteOptions

__all__ = ["ledger_file", "refuse_harm", "refuse_ledger", "refuse_references", "refuse_taken"]

_Place = str | os.PathLike[str]


def refuse_harm(shards: Shards, destination: _Place, stores: Stores, write: WriteOptions) -> None:
    """Refuse to replace files of the source, or files that written references would lead to.

    Raises:
        UsageError: the destination holds such files, or lies inside the source.
    """
    refuse_inside(shards, destination, stores)
    replaced = os.fspath(destination)
    if not write.lazy or not write.overwrite or not is_there(replaced, stores):
        return
    place = real_place(replaced, stores)
    for folder in [real_place(root, stores) for root in shards.roots()]:
        if is_inside(place, folder) or is_inside(folder, place):
            raise UsageError(
                "the destination may hold what references would lead to", file=replaced, found=f"a root, {folder}",
                advice="Write to another folder, and remove this one when you have looked.",
            )  # fmt: skip


def refuse_taken(
    place: tuple[Store, str], write: WriteOptions, *, again: bool, check: Callable[..., None] = check_destination
) -> None:
    """Refuse a destination that is not empty, unless it may be replaced.

    With `again`, what is there may be of this job, which died afterwards.

    Args:
        place: store and path of the destination.
        write: the options of the job.
        again: whether the commit of an unfinished job had begun.
        check: `check_destination`, or `check_file` for one file.

    Raises:
        DestinationExists, UsageError: as `check` does. The advice tells about files that jobs left beside it.
    """
    try:
        check(*place, overwrite=write.overwrite, again=again)
    except DestinationExists as error:
        with suppress(StoreError):  # folders here may be listed by others only
            error.advice = f"{_left_by_jobs(*place, goes_on=write.goes_on)} {error.advice}".lstrip()
        raise


def _left_by_jobs(store: Store, path: str, *, goes_on: bool) -> str:
    """Return what to do about jobs that wrote to a destination; empty if no job left anything."""
    clean = f"'lading clean {shlex.quote(path)}'"
    if has_journal(store, path):
        return ("An unfinished job left files beside it: repeat the command of that job with --resume, "
                f"or remove the files with {clean}.")  # fmt: skip
    ended = ""
    if is_unfinished(store, path):
        ended = f"The dataset there is unfinished, and the files of its job are gone: remove it with {clean}."
    elif has_file(store, f"{path}/{FOLDER}/{JOB_NAME}"):
        ended = "Another job wrote it: its source, options or version of lading were others." if goes_on else ""
    elif goes_on:
        ended = "No such job is unfinished, and the dataset there does not tell which job wrote it."
    left = f"If no job writes there, remove the files left beside it with {clean}." if builds_of(store, path) else ""
    return f"{ended} {left}".strip()


def refuse_references(shards: Shards, target: AnyFormat) -> None:
    """Raise UsageError if the target cannot hold references: only tables of items can."""
    if not shards.row_layout.may_refer(target.info) or target.info.self_contained:
        raise UsageError(
            "only tables of items hold references to bytes elsewhere", found=f"{target.name}, as {shards.view}",
            advice="Write Parquet, or the bytes too.",
        )  # fmt: skip


def refuse_ledger(write: WriteOptions, stores: Stores) -> None:
    """Raise DestinationExists if a file has the name of the ledger, if one is asked for."""
    if write.ledger is not None and is_there(os.fspath(write.ledger), stores):
        raise DestinationExists("the file for the ledger is there already", file=os.fspath(write.ledger),
                                advice="Name another file with --ledger, or delete this one.")  # fmt: skip


@contextmanager
def ledger_file(
    destination: _Place, stores: Stores, write: WriteOptions, *, again: bool = False
) -> Iterator[Sink | None]:
    """The file for the ledger, if one is asked for; its writer closes it. Nothing of it is left on failure.

    What processes that died had written of it is removed. With `again`, a file of its name is that of this job, which
    died afterwards.

    Raises:
        UsageError: the ledger lies in the destination.
        DestinationExists: a file has its name.
    """
    ledger = None if write.ledger is None else os.fspath(write.ledger)
    if ledger is not None:
        if not ledger or is_inside(real_place(ledger, stores), real_place(os.fspath(destination), stores)):
            raise UsageError("the ledger needs a file of its own, outside the destination", found=repr(ledger))
        if not again:
            refuse_ledger(write, stores)
    if ledger is None or write.dry_run:
        yield None
        return
    store, own = resolve(ledger, stores)
    if is_local(store):
        sweep_stale(own)
    with aborting(store.put_stream(own)) as sink:
        yield sink
