"""The journal of a job of several tasks, by which `--resume` goes on where the job died.

It lies in the hidden folder next to the destination, in which the job builds (`_core.manifest.commit`):

    plan.json               what the job does (`_core.jobs.journal.journal_plan`), written first
    records/000012.json     a finished task (`_core.jobs.journal.records`), written once, when its files are on disk
    tasks/task-000012-…/    files of one attempt at a task
    commit.json             plan and summary: written when all is built, before anything appears at the destination

Behind the commit, the plan and the summary are kept (`done_place`) while the rest is deleted. The destination keeps the
SHA-256 of the plan (`_core.jobs.journal.begin`).

On an object store, a job whose only task needs the whole job has a plan and `commit.json`, and no records.

A job goes on if its plan is the same; the tasks that have records are not done again. Journals hold no pickles and no
secrets: functions are planned again from the arguments, and compared by their code.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from lading._core.jobs.convert.summary import ConvertSummary, summary_from
from lading._core.jobs.engine.messages import DIGESTS_NAME
from lading._core.jobs.journal.journal_plan import JournalPlan, refuse_other
from lading._core.jobs.journal.records import read_json, read_records, record_path, sweep_records
from lading._core.manifest.builds import COMMIT_NAME, JOB_NAME, PLAN_NAME, RECORDS, builds_of, done_place
from lading._core.manifest.commit import Staging, part_journal, sweep_unbegun
from lading._core.manifest.values import FOLDER
from lading._core.storage.base import Store, has_file
from lading._core.storage.create_file import create_file
from lading._core.units import count
from lading.errors import LadingError, NotFound

__all__ = [
    "FINISH_NAME",
    "Journal",
    "begin_commit",
    "end_commit",
    "had_begun",
    "has_journal",
    "keep_plan",
    "open_journal",
    "resume_build",
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
        if has_file(self.store, f"{self.folder}/{COMMIT_NAME}"):
            return ("All is written, and the destination is not complete yet. Go on with --resume, or remove the files "
                    f"with 'lading clean {shlex.quote(self.destination)}'.")  # fmt: skip
        done = self.count()
        which = f"{done:,} of {count(self.tasks, 'task')}" if self.tasks else count(done, "finished task")
        clean = f"'lading clean {shlex.quote(self.destination)}'"
        return f"Kept: {which}. Go on with --resume, or remove the kept files with {clean}." if done else ""


def had_begun(store: Store, destination: str) -> bool:
    """Return whether what is at the destination may be of the same job: a job has ended, or its commit had begun."""
    return has_file(store, f"{destination}/{FOLDER}/{JOB_NAME}") or any(
        has_file(store, f"{root}/{COMMIT_NAME}") or read_json(store, done_place(store, root)) is not None
        for root in builds_of(store, destination)
    )


def has_journal(store: Store, destination: str) -> bool:
    """Return whether a job with a journal is unfinished, or left something behind its commit."""
    return any(_kept_plan(store, root) is not None for root in builds_of(store, destination))


def _kept_plan(store: Store, root: str) -> Mapping[str, Any] | None:
    """Return the plan in a hidden folder; behind the commit with the summary."""
    return read_json(store, done_place(store, root)) or read_json(store, f"{root}/{PLAN_NAME}")


def resume_build(store: Store, destination: str, plan: JournalPlan) -> tuple[Staging, ConvertSummary | None] | None:
    """Return the place in which an unfinished job of the same plan has built; None without such a job.

    Of a job that died behind its commit, what it did is returned too: nothing is left to do but to remove the place.

    Raises:
        UsageError: the unfinished job is another one, or is under way.
    """
    unfinished = {}
    for root in builds_of(store, destination):
        kept = _kept_plan(store, root)
        if kept is not None:
            unfinished[root] = kept
        else:
            sweep_unbegun(store, root)
    for root, each in unfinished.items():
        if each.get("job") == plan.hash:
            plan.refuse_unknown(destination)
            done = summary_from(each["summary"]) if "summary" in each else None
            with suppress(NotFound):  # it ends just now
                return Staging.resumed(store, destination, root, had_ended=done is not None), done
            return None
    for root, each in unfinished.items():
        names = each.get("facts", {}).get("option", {}).get("splits")
        splits = names.split(",") if isinstance(names, str) else ()
        refuse_other(each, plan, destination, Journal(store, root, 0, destination, splits=splits).count())
    return None


def keep_plan(store: Store, staging: Staging, plan: JournalPlan) -> None:
    """Write the plan of a job without records, of which another process can go on with the commit alone."""
    staging.keep_records(staging.journal)
    create_file(store, f"{staging.journal}/{PLAN_NAME}", plan.to_json())


def begin_commit(staging: Staging, plan: JournalPlan, done: ConvertSummary) -> None:
    """Tell the next process that what appears at the destination is of this job, and what the job did."""
    kept = {**orjson.loads(plan.to_json()), "summary": asdict(done)}
    whole = json.dumps(kept, default=str).encode()  # in ASCII: names of files may be invalid Unicode
    staging.begin_commit(whole, orjson.dumps({"sha256": plan.sha256}))


def end_commit(store: Store, staging: Staging, plan: JournalPlan, *, overwrite: bool) -> ConvertSummary | None:
    """Publish what a job without records had built, and return what it did; None if its commit had not begun."""
    kept = read_json(store, f"{staging.journal}/{COMMIT_NAME}")
    if kept is None:
        return None
    done = summary_from(kept["summary"])
    begin_commit(staging, plan, done)
    staging.commit(overwrite=overwrite)
    return done


def open_journal(
    store: Store, staging: Staging, plan: JournalPlan, *, digests: bool = False, others: bool = False
) -> Journal:
    """Return the journal of a job that builds in a place, with the tasks that are done.

    With `digests`, tasks without digests of their samples are not done, and their records are deleted. With `others`,
    other processes build there too: what has no record stays.

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
    for number in [n for n, record in done.items() if digests and DIGESTS_NAME not in dict(record["files"])]:
        del done[number]
        store.delete(record_path(staging.journal, number))
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
