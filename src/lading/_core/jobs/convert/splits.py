"""Conversions into several datasets: the splits of a source, and datasets by name."""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from lading._core.arrow.streams import is_table
from lading._core.dataset.query import Query
from lading._core.dataset.source.open import Named
from lading._core.dataset.source.source import SPLITS_NAME, Source, source_names, write_splits
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.key_steps import has_split
from lading._core.dataset.writing.single_file import is_file_name
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.convert_one import convert_one
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.job_spool import PartSpools
from lading._core.jobs.convert.refusals import refuse_harm, refuse_taken
from lading._core.jobs.convert.schemas import take_files_in
from lading._core.jobs.convert.summary import ConvertSummary, together
from lading._core.jobs.journal.begin import begin_build
from lading._core.jobs.journal.journal import Journal, begin_commit, had_begun, keep_plan, telling_what_is_kept
from lading._core.jobs.journal.journal_plan import source_files, splits_plan
from lading._core.manifest.commit import Staging, can_resume, find_destination
from lading._core.manifest.hugging_face import save_data_files
from lading._core.manifest.values import FOLDER
from lading._core.storage.roots import folder_of, is_inside, real_place
from lading._core.storage.stores import Stores
from lading.errors import SeveralSplits, UsageError
from lading.options import (
    WriteOptions,
)

__all__ = ["convert_splits", "jobs_of_splits", "places_of_splits", "refuse_parts"]


def jobs_of_splits(job: Job, error: SeveralSplits, destination: str | os.PathLike[str]) -> dict[str, Job]:
    """Return a job for each split of a source that lists several. Raises as `places_of_splits` does."""
    asked = (("limit", job.limit is not None), ("ledger", job.write.ledger is not None))
    of_one = [name for name, given in asked if given]
    places = places_of_splits(job.query.source.names, error, destination, job.stores, of_one=of_one)
    return {
        name: replace(job, query=job.query.replace(source=Named.of(place))).reading(split=split)
        for name, (place, split) in places.items()
    }


def places_of_splits(
    source: Source,
    error: SeveralSplits,
    destination: str | os.PathLike[str],
    stores: Stores,
    *,
    of_one: Sequence[str] = (),
) -> dict[str, tuple[str, str | None]]:
    """Return the source of each split of a source that lists several, and the split to choose there.

    Args:
        source: the source.
        error: the error of opening the source as one dataset.
        destination: the folder into which all splits are written.
        stores: which store serves which URL.
        of_one: options that are given and apply to one dataset.

    Raises:
        SeveralSplits: the source has more than the splits.
        UsageError: the destination is a file, is inside the source, or contains it; or there are such options.
    """
    folder = _folder_of_splits(source, error, stores)
    if folder is None:
        raise error
    if is_file_name(destination):
        raise UsageError("one file holds one split", file=os.fspath(destination), found=", ".join(error.splits),
                         advice=f"Choose one of them: --split {error.splits[0]}. Or name a folder.")  # fmt: skip
    for name in of_one:
        raise UsageError(f"a {name} is of one split", file=folder, found=", ".join(error.splits),
                         advice=f"Choose one of them: --split {error.splits[0]}.")  # fmt: skip
    _refuse_each_other(folder, destination, stores)
    if error.by_name:
        [named] = source_names(source, stores)  # as `_folder_of_splits` knows
        return {name: (named, name) for name in error.splits}
    return {name: (f"{folder}/{name}", None) for name in error.splits}


def refuse_parts(
    parts: Mapping[str, object], write: WriteOptions, steps: Sequence[Step], destination: str | os.PathLike[str]
) -> None:
    """Refuse datasets by name that are not written as splits, such as those of `Dataset.split`.

    Raises:
        UsageError: a value is no dataset, a name is no folder, or an option or a step of the job is of one dataset.
    """
    if is_file_name(destination):
        raise UsageError("several splits need a folder", file=os.fspath(destination), found=", ".join(parts))
    if any(step.most_samples is not None for step in steps):
        raise UsageError("a limit is of one split", found=", ".join(parts),
                         advice="Limit the dataset before it is split: ds.limit(…).split(…).")  # fmt: skip
    if write.ledger is not None:
        raise UsageError("a ledger is of one split", found=", ".join(parts),
                         advice="Write all samples with the ledger first. Then split what was written.")  # fmt: skip
    for name, part in parts.items():
        if Query.held_by(part) is None and not is_table(part):
            raise UsageError("splits are datasets by name", found=f"{name!r}: {type(part).__name__}")
        if not re.fullmatch(r"\w[\w.-]*", name) or name == FOLDER:
            raise UsageError("the name of a split becomes a folder", expected="letters, digits, '_', '-' and '.'",
                             found=repr(name), advice=f"{FOLDER} is lading's own: choose another name.")  # fmt: skip


def convert_splits(jobs: Mapping[str, Job], destination: str | os.PathLike[str]) -> ConvertSummary:
    """Convert each split into a folder of its name; the destination appears in one step at the end.

    The summary is of all of them, as of one dataset.
    """
    began, [first, *_] = time.perf_counter(), jobs.values()
    write, stores = first.write, first.stores
    if write.rank is not None:
        raise UsageError("ranks write one dataset", file=os.fspath(destination), found=", ".join(jobs),
                         advice=f"Choose one of them, such as --split {next(iter(jobs))}.")  # fmt: skip
    of_one = all(_are_of_one(first, job) for job in jobs.values())
    files = list[Any]()
    for job in jobs.values():  # before each is written into a folder out of sight, which holds nothing of it
        with job.query.replace(steps=()).open_shards() as shards:
            take_files_in(shards, job.read.options)
            refuse_harm(shards, destination, stores, write)
            files += source_files(shards)
    store, path = find_destination(destination, stores)
    refuse_taken((store, path), write, again=write.resume and had_begun(store, path))
    if write.dry_run:
        rehearsed = {name: _converted(name, job, f"{path}/{name}") for name, job in jobs.items()}
        return together(rehearsed, began, of_one=of_one)
    with ExitStack() as held:
        plan = splits_plan(write, list(jobs), files, [step for job in jobs.values() for step in job.steps])
        spools = PartSpools([*jobs.values()], (store, path), held)
        staging, before = begin_build((store, path), plan, write, stores, keeps=True, splits=list(jobs))
        if staging is not None:
            held.callback(staging.drop)  # nothing is left to drop after the commit
        if before is not None:
            return before
        assert staging is not None, "the job goes on or begins"
        if can_resume(store):
            keep_plan(store, staging, plan)
        journal = Journal(store, staging.journal, 0, path, splits=list(jobs))
        held.enter_context(telling_what_is_kept(journal))
        if stores.find(path) is not None:
            jobs = {name: job.with_store(staging.folder, store) for name, job in jobs.items()}
        done = {name: _converted(name, job, staging.path(name), staging, spools) for name, job in jobs.items()}
        _write_index(write, list(jobs), staging)
        summary = together(done, began, of_one=of_one)
        begin_commit(staging, plan, summary)
        staging.commit(overwrite=write.overwrite)
    return summary


def _are_of_one(one: Job, other: Job) -> bool:
    """Whether two jobs differ in their split alone."""
    steps = [*zip_longest(one.steps, other.steps)]
    same_source = one.query.replace(steps=()) == other.query.replace(steps=())
    return same_source and sum(mine != others for mine, others in steps) <= 1


def _converted(
    name: str, job: Job, to: str, whole: Staging | None = None, spools: PartSpools | None = None
) -> ConvertSummary:
    done = convert_one(job, to, None if whole is None or is_file_name(to) else whole.part(name), spools)
    if not done.samples and has_split(job.steps):
        raise UsageError(f"the split {name!r} would be empty", advice="Give it a larger fraction, or another seed.")
    return done


def _write_index(write: WriteOptions, names: Sequence[str], staging: Staging) -> None:
    target, store, place = get_format(write.format), staging.store, staging.folder
    if target.index.write_splits(store, place, names, target.write_options(write.options or {})):
        return
    write_splits(store, place, names)
    save_data_files(store, place, write.format, {
        name: [path for path in staging.names(name) if f"/{FOLDER}/" not in path] for name in names
    })  # fmt: skip


def _folder_of_splits(source: Source, error: SeveralSplits, stores: Stores) -> str | None:
    """Return the folder of the splits, if it is the whole source; None if it is one of several sources."""
    names = source_names(source, stores)
    if len(names) != 1 or error.file is None:
        return None
    if error.by_name:
        return names[0].rstrip("/") if real_place(names[0], stores) == real_place(error.file, stores) else None
    folder = folder_of(error.file) or "."
    if posixpath.basename(error.file) == SPLITS_NAME:
        folder = folder_of(folder) or "."
    found = real_place(names[0], stores)
    return folder if found in (real_place(folder, stores), real_place(error.file, stores)) else None


def _refuse_each_other(folder: str, destination: str | os.PathLike[str], stores: Stores) -> None:
    """Refuse a destination that holds the folder of the splits, or lies inside it.

    The first would replace the folder, and the second would be read as a split.

    Raises:
        UsageError: the destination is one of both.
    """
    path = os.fspath(destination)
    source, target = (real_place(place, stores) for place in (folder, path))
    if is_inside(source, target) or is_inside(target, source):
        raise UsageError("the destination is inside the source, or contains it", file=path,
                         found=f"the source is {folder}")  # fmt: skip
