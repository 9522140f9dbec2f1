"""What the functions of a job made, in a hidden folder next to its destination, or in `temp_dir`.

Functions run before the tasks of a job are known, and so before its journal begins: all of those that come before a
step that needs all samples, others for the first samples, or for all of them if workers call them
(`_core.jobs.convert.call_ahead`). What they make lies in a folder of its own then, which
belongs to the journal: it is removed when the job ends, and left when the job fails. `--resume` takes it over if source
and steps are the same, and calls functions for the other samples only. Another job of this destination sweeps it, and
next to the destination `lading clean` does. In `temp_dir`, its name has a hash of the destination. Without `temp_dir`,
a job whose destination is remote or one file keeps nothing that outlives it.

    plan.of-functions.json    source, how it is read, and the steps up to the last function
    function-000-HASH         what the function of the first step made (`_core.dataset.transform.function_spool`); the
                              hash is of the steps up to it: parts of a dataset have a folder in common
    function-000-HASH.TOKEN   the same of a worker
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.base import Step
from lading._core.dataset.transform.function_spool import FunctionSpool
from lading._core.jobs.convert.job import Job
from lading._core.jobs.journal.fingerprint import fingerprint, plain_facts
from lading._core.jobs.journal.journal_plan import JournalPlan, functions_plan, refuse_other
from lading._core.jobs.journal.records import read_json
from lading._core.storage.base import Store, write_file
from lading._core.storage.local import LocalStore
from lading._core.storage.roots import real_place
from lading._core.storage.staging import StagedFolder, built_folders, stage_folder, sweep_stale, take_folder
from lading._core.storage.stores import is_local
from lading.errors import NotFound

__all__ = ["PartSpools", "job_spool"]

_NAME = "plan.of-functions.json"

_Left: TypeAlias = list[tuple[Mapping[str, Any], StagedFolder]]
"""Plans and folders of what functions made for jobs that died."""


@contextmanager
def job_spool(
    job: Job,
    shards: Shards,
    place: tuple[Store, str],
    *,
    alone: bool,
    common: int | None = None,
    left: _Left | None = None,
) -> Iterator[FunctionSpool]:
    """Make a spool for what the functions of a job make, in a folder that outlives a job that dies, if there is one.

    Args:
        job: the job.
        shards: its source.
        place: store and path of the destination of the whole job.
        alone: the destination is one file.
        common: the job writes one of several datasets, which have so many first steps in common.
        left: what functions made for jobs that died; by default it is looked for.

    Raises:
        UsageError: what is to be resumed is another job.
    """
    again = _read_again(job, common or 0)
    steps = again if common is not None else _with_functions(job.steps)
    home = _home(job, place, alone=alone)
    if not steps or home is None:
        with closing(FunctionSpool()) as spool:
            yield spool
        return
    plan = functions_plan(shards, steps, job.write)
    with ExitStack() as held:
        if left is None:
            left = held.enter_context(_left(job, home))
            _refuse_others(left, plan, place[1])
        mode = 0o777 if job.write.temp_dir is None else 0o700  # which may be a folder of all users
        staged = held.enter_context(_folder(plan, home, left, mode))
        try:
            with closing(FunctionSpool(staged.path, lasting=_names(steps), lock=staged.lock)) as spool:
                yield spool
        except BaseException as error:
            kept = getattr(error, "kept_tasks", "")
            died = staged in [each for _, each in left]
            if not spool.is_empty() and (again or kept or died):
                staged.leave()
                if not kept:
                    text = f"Kept: what functions made, in {staged.path}. Go on with --resume, which calls none again."
                    error.add_note(text)
                    error.kept_tasks = text  # type: ignore[attr-defined] # as of the journal
            raise


@dataclass(slots=True)
class PartSpools:
    """The spools of the jobs that write the parts of one dataset, such as its splits.

    A function that comes before the split is called once a sample, not once a sample and part.

    Attributes:
        jobs: the jobs.
        place: store and path of the destination of all of them.
        held: removes what functions made when all parts are written.
    """

    jobs: Sequence[Job]
    place: tuple[Store, str]
    held: ExitStack
    _left: _Left = field(default_factory=list)
    _made: list[tuple[Job, FunctionSpool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Take what functions made for a job that died, before it is swept."""
        job = self.jobs[0]
        home = _home(job, self.place, alone=False)
        if home is not None:
            self._left = self.held.enter_context(_left(job, home))

    def of(self, job: Job, shards: Shards, *, alone: bool) -> tuple[FunctionSpool, int]:
        """Return the spool of a job, and how many first steps it has in common with other ones of the same source."""
        others = [_common(job, other) for other in self.jobs if other.steps is not job.steps]
        common = max(others, default=0)
        for other, spool in self._made:
            if common and _common(job, other) == common:
                return spool.shared(common, _names(_read_again(job, common))), common
        spool = self.held.enter_context(job_spool(job, shards, self.place, alone=alone, common=common, left=self._left))
        self._made.append((job, spool))
        return spool, common


def _common(job: Job, other: Job) -> int:
    """How many first steps two jobs have in common, if they have the same source."""
    source, others = job.query.source, other.query.source
    if source is not others and source != others:
        return 0
    same = [one is two for one, two in zip(job.steps, other.steps, strict=False)]
    return same.index(False) if False in same else len(same)


def _with_functions(steps: Sequence[Step]) -> Sequence[Step]:
    """The steps up to the last function."""
    return steps[: max((i + 1 for i, step in enumerate(steps) if step.is_spooled), default=0)]


def _names(steps: Sequence[Step]) -> list[str]:
    """The names of the files of steps: equal for equal steps that come after equal ones."""
    told = plain_facts(list(steps), [])
    return [f"function-{place:03}-{fingerprint(told[: place + 1])}" for place in range(len(steps))]


def _read_again(job: Job, common: int) -> Sequence[Step]:
    """The steps up to the last function whose samples are read again; none without such a function."""
    last = max((i for i, step in enumerate(job.steps) if step.needs_all), default=0)
    ahead = job.may_call_ahead and (job.write.shares or job.write.resume)
    every = ahead or job.write.num_shards is not None
    return _with_functions(job.steps[: len(job.steps) if every else max(last, common)])


def _home(job: Job, place: tuple[Store, str], *, alone: bool) -> str | None:
    """Return the path next to which hidden folders hold what functions made; None if it need not outlive the job."""
    write, (store, path) = job.write, place
    if write.dry_run or write.rank is not None:
        return None
    if write.temp_dir is not None:
        name = path.partition("?")[0].rstrip("/").rpartition("/")[2]
        return os.path.join(os.path.abspath(write.temp_dir), f"{fingerprint(real_place(path, job.stores))}-{name}")
    return path if is_local(store) and not alone else None


@contextmanager
def _left(job: Job, home: str) -> Iterator[_Left]:
    """Take what functions made for jobs of a destination that died; at the end it is removed, or left after errors.

    A job that is not resumed removes what lies in `temp_dir`; it removes what lies next to its destination later.
    """
    if not job.write.resume and job.write.temp_dir is not None:
        sweep_stale(home)
    found = list[tuple[Mapping[str, Any], StagedFolder]]()
    for root in built_folders(home) if job.write.resume else ():
        kept = read_json(LocalStore(), f"{root}/{_NAME}")
        with suppress(NotFound):
            staged = None if kept is None else take_folder(root, home)
            if kept is not None and staged is not None:
                found.append((kept, staged))
    try:
        yield found
    except BaseException:
        for _, staged in found:
            staged.leave()
        raise
    for _, staged in found:
        staged.release()


def _refuse_others(left: _Left, plan: JournalPlan, destination: str) -> None:
    """Raise UsageError if jobs of other plans left what functions made, and none of this one did."""
    kept = [plan_left for plan_left, _ in left]
    for one in [one for one in kept if one.get("job") == plan.hash] or kept:
        refuse_other(one, plan, destination, 0)


@contextmanager
def _folder(plan: JournalPlan, home: str, left: _Left, mode: int) -> Iterator[StagedFolder]:
    """Take the folder that a job of the same plan left, or make a new one; it is removed unless it was left again."""
    staged = next((staged for kept, staged in left if kept.get("job") == plan.hash and staged.lock >= 0), None)
    if staged is None:
        staged = stage_folder(home, mode)
        write_file(LocalStore(), f"{staged.path}/{_NAME}", [plan.to_json()])
    with staged:
        yield staged
