"""The journal of a job of several tasks, by which `--resume` goes on where the job died.

It lies in the hidden folder next to the destination, in which the job builds (`lading.manifest.commit`):

    plan.json               what the job does (`lading.jobs.journal_plan`), written first
    records/000012.json     a finished task (`lading.jobs.records`), written once, when its files are on disk
    tasks/task-000012-…/    files of one attempt at a task
    commit.json             written when all tasks have records, before anything appears at the destination

Behind the commit, the plan and the summary are kept (`done_place`) while the rest is deleted.

A job goes on if its plan is the same; the tasks that have records are not done again. Journals hold no pickles and no
secrets: functions are planned again from the arguments, and compared by their code.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from lading.errors import LadingError
from lading.jobs.convert_summary import ConvertSummary, summary_from
from lading.jobs.journal_plan import JournalPlan, refuse_other
from lading.jobs.records import read_json, read_records, sweep_records
from lading.manifest.builds import COMMIT_NAME, PLAN_NAME, RECORDS, builds_of, done_place
from lading.manifest.commit import Staging, can_resume, part_journal, sweep_unbegun
from lading.storage.base import Store, has_file
from lading.storage.create_file import create_file
from lading.units import count

__all__ = [
    "FINISH_NAME",
    "Journal",
    "begin_build",
    "begin_commit",
    "begin_splits",
    "had_begun",
    "is_unfinished",
    "open_journal",
    "telling_what_is_kept",
]


FINISH_NAME: Final = "finish.json"
"""Of a journal of ranks: what `lading.finish` needs to know besides the records."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The journal of a job.

    Attributes:
        store: where it lies.
        folder: its folder.
        tasks: number of tasks of the job.
        destination: the destination of the whole job.
        done: the answers of finished tasks, by number, as they were when the journal was opened.
        splits: names of the datasets that the job writes, if it is several. Each has a journal of its own inside.
    """

    store: Store
    folder: str
    tasks: int
    destination: str
    done: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    splits: Sequence[str] = ()

    def count(self) -> int:
        """Return the number of records."""
        folders = [part_journal(self.folder, name) for name in self.splits] or [self.folder]
        return sum(info.path.endswith(".json") for each in folders for info in self.store.walk(f"{each}/{RECORDS}"))

    def kept(self) -> str:
        """Return what is kept of the job, and how to go on; empty without records."""
        done = self.count()
        which = f"{done:,} of {count(self.tasks, 'task')}" if self.tasks else count(done, "finished task")
        clean = f"'lading clean {shlex.quote(self.destination)}'"
        return f"Kept: {which}. Go on with --resume, or remove the kept files with {clean}." if done else ""


def had_begun(store: Store, destination: str) -> bool:
    """Return whether the commit of an unfinished job had begun: what is at the destination may be its own."""
    return any(
        has_file(store, f"{root}/{COMMIT_NAME}") or read_json(store, done_place(store, root)) is not None
        for root in builds_of(store, destination)
    )


def is_unfinished(store: Store, destination: str) -> bool:
    """Return whether a job with a journal is unfinished, or left something behind its commit."""
    return any(_kept_plan(store, root) is not None for root in builds_of(store, destination))


def _kept_plan(store: Store, root: str) -> Mapping[str, Any] | None:
    """Return the plan in a hidden folder; behind the commit with the summary."""
    return read_json(store, done_place(store, root)) or read_json(store, f"{root}/{PLAN_NAME}")


def begin_build(
    store: Store, destination: str, plan: JournalPlan, *, resume: bool, keeps: bool = True
) -> tuple[Staging, ConvertSummary | None]:
    """Return the place to build in: that of an unfinished job of the same plan, or a new one.

    Of a job that died behind its commit, what it did is returned too: nothing is left to do but to remove the place.

    Args:
        store: of the destination.
        destination: its path.
        plan: of the job.
        resume: whether to look for an unfinished job.
        keeps: whether the caller writes the plan into the place at once.

    Raises:
        UsageError: the unfinished job is another one, or is under way.
    """
    unfinished = {}
    for root in builds_of(store, destination) if resume else ():
        kept = _kept_plan(store, root)
        if kept is not None:
            unfinished[root] = kept
        else:
            sweep_unbegun(store, root)
    for root, each in unfinished.items():
        if each.get("job") == plan.hash:
            done = summary_from(each["summary"]) if "summary" in each else None
            return Staging.resumed(store, destination, root, had_ended=done is not None), done
    for root, each in unfinished.items():
        names = each.get("facts", {}).get("option", {}).get("splits")
        splits = names.split(",") if isinstance(names, str) else ()
        refuse_other(each, plan, destination, Journal(store, root, 0, destination, splits=splits).count())
    return Staging.begin(store, destination, shared=False, plans=keeps), None


def begin_commit(staging: Staging, plan: JournalPlan, done: ConvertSummary) -> None:
    """Tell the next process that what appears at the destination is of this job, and what the job did."""
    kept = {**orjson.loads(plan.to_json()), "summary": asdict(done)}
    staging.begin_commit(json.dumps(kept, default=str).encode())  # in ASCII: names of files may be invalid Unicode


def begin_splits(
    store: Store, destination: str, plan: JournalPlan, names: Sequence[str], *, resume: bool
) -> tuple[Staging, Journal, ConvertSummary | None]:
    """Return the place to build several datasets in, each of which has a journal of its own, and the journal of all.

    Returns and raises as `begin_build`.

    Args:
        store: of the destination.
        destination: its path.
        plan: of all.
        names: of the datasets.
        resume: whether to look for an unfinished job.
    """
    staging, done = begin_build(store, destination, plan, resume=resume)
    if can_resume(store) and done is None:
        create_file(store, f"{staging.journal}/{PLAN_NAME}", plan.to_json())
    return staging, Journal(store, staging.journal, 0, destination, splits=names), done


def open_journal(store: Store, staging: Staging, plan: JournalPlan, *, others: bool = False) -> Journal:
    """Return the journal of a job that builds in a place, with the tasks that are done.

    With `others`, other processes build there too: what has no record stays.

    Raises:
        UsageError: a part of the unfinished job is another one.
    """
    staging.keep_records(staging.journal)
    path = f"{staging.journal}/{PLAN_NAME}"
    if create_file(store, path, plan.to_json()):
        return Journal(store, staging.journal, plan.tasks, staging.destination)
    kept = read_json(store, path)
    done = read_records(store, staging.journal, staging.tasks)
    refuse_other(kept or {}, plan, staging.destination, len(done))
    if not others:
        sweep_records(store, staging.journal, done)
        staging.sweep_attempts([record["folder"] for record in done.values()])
    return Journal(store, staging.journal, plan.tasks, staging.destination, done)


@contextmanager
def telling_what_is_kept(journal: Journal | None) -> Iterator[None]:
    """Let errors of the body, and interrupts, say what is kept of the job, and how to go on."""
    try:
        yield
    except BaseException as error:
        try:
            kept = "" if journal is None else journal.kept()
        except LadingError:
            kept = ""
        if kept:
            error.add_note(kept)
            error.kept_tasks = kept  # type: ignore[attr-defined] # for the command line
        raise
