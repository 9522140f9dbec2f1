"""Convert one dataset into a folder or a file."""

from __future__ import annotations

import os
import shlex
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson

from lading._core.content.digests import DatasetDigest
from lading._core.dataset.shards.bad_shards import BadShards
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.key_steps import split_by_group
from lading._core.dataset.writing.single_file import check_file, options_of_file
from lading._core.dataset.writing.writer import DatasetWriter, WriteSummary
from lading._core.features.row_layout import row_layout
from lading._core.formats.format import AnyFormat
from lading._core.jobs.convert.job import Job
from lading._core.jobs.convert.job_plan import JobPlan
from lading._core.jobs.convert.job_spool import PartSpools, job_spool
from lading._core.jobs.convert.left_out import note_left_out
from lading._core.jobs.convert.open_job import Destination, OpenJob
from lading._core.jobs.convert.ranks import begin_rank, rank_of, refuse_for_ranks
from lading._core.jobs.convert.read_back import compare, refuse_unverifiable
from lading._core.jobs.convert.refusals import ledger_file, refuse_harm, refuse_references, refuse_taken
from lading._core.jobs.convert.run import Run
from lading._core.jobs.convert.schedule import Schedule, make_schedule, start_workers
from lading._core.jobs.convert.schemas import as_members, take_files_in
from lading._core.jobs.convert.summary import ConvertSummary
from lading._core.jobs.engine.loop import LazyPool
from lading._core.jobs.engine.progress import reporting_passes
from lading._core.jobs.engine.reading import refuse_out_of_reach
from lading._core.jobs.engine.threads import using_threads
from lading._core.jobs.journal.begin import begin_build
from lading._core.jobs.journal.journal import (
    Journal,
    begin_commit,
    end_commit,
    had_begun,
    keep_plan,
    open_journal,
    telling_what_is_kept,
)
from lading._core.jobs.journal.journal_plan import JournalPlan, journal_plan
from lading._core.jobs.journal.results import TaskResult
from lading._core.jobs.verify.digest import dataset_digest
from lading._core.manifest.commit import Staging, can_resume
from lading._core.pipeline.columns import written_schema
from lading._core.storage.base import Sink, Store
from lading._core.storage.memory import MemoryStore
from lading._core.storage.roots import StoredRoots, kept_roots, real_place
from lading._core.storage.stores import Stores, is_local
from lading._core.units import count
from lading.errors import DataError, UsageError
from lading.options import WriteOptions

__all__ = ["convert_one"]


def convert_one(
    job: Job,
    destination: str | os.PathLike[str],
    staging: Staging | None = None,
    parts: PartSpools | None = None,
) -> ConvertSummary:
    """Convert one dataset into a folder or a file; with `staging`, where that builds a part of a larger dataset.

    `parts` are the spools of all parts.
    """
    job, began = job.with_absolute_paths(), time.perf_counter()
    with (
        using_threads(job.write.threads),
        ExitStack() as held,
        job.query.open_shards() as shards,
        reporting_passes(shards, job.on_progress),
    ):
        opened = _open_job(job, shards, Destination.of(destination, job.stores, staging), held)
        schedule = _schedule(opened, parts)
        if opened.rank is not None:
            return _convert_rank(opened, schedule, *opened.rank)
        build = _open_build(opened, schedule)
        if build.done is not None:
            _tell_ended(opened, build.done)
            return build.done
        run = Run(opened, schedule, build.journal)
        done = _rehearsed(opened, run) if opened.write.dry_run else _written(opened, run, build)
        return replace(_with_warning(job, done), seconds=time.perf_counter() - began)


def _open_job(job: Job, shards: Shards, to: Destination, held: ExitStack) -> OpenJob:
    """Refuse what cannot be written; return the job with the options that are used.

    Raises:
        UsageError, DestinationExists: says what is in the way.
    """
    job = job.reading(options=take_files_in(shards, job.read.options))
    opened = OpenJob(job, shards, to, held)
    if job.query.source.is_temporary and (job.write.resume or job.write.rank is not None):
        raise UsageError("another run cannot read these rows again", file=str(job.query.source),
                         found="rank" if job.write.rank is not None else "resume",
                         advice="Write the rows to a file first, such as rows.arrow, and convert that.")  # fmt: skip
    if job.write.rank is not None:
        refuse_for_ranks(job.write, is_one_file=to.is_file, counts_keys=opened.counts_keys)
        opened = replace(opened, rank=rank_of(job.write, os.environ))  # before all the rest
    write, ledger = _begin(opened)
    job = replace(job, write=write)
    opened = replace(opened, job=job, ledger=ledger, copies=job.copies(shards))
    if not opened.copies:
        return opened
    options, members = as_members(shards, opened.target, write.options)
    return replace(opened, job=replace(job, write=replace(write, options=options)), members=members)


def _schedule(opened: OpenJob, parts: PartSpools | None) -> Schedule:
    """Plan the conversion, and keep what functions make for it."""
    job, shards, to = opened.job, opened.shards, opened.to
    if parts is None:
        spool, common = opened.held.enter_context(job_spool(job, shards, to.place, alone=to.is_file)), 0
    else:
        spool, common = parts.of(job, shards, alone=to.is_file)
    if job.made is not None:
        job.made.give(spool, shards, job.steps)
    schedule = make_schedule(opened, spool)
    spool.ends(common)
    if opened.verifies:
        refuse_unverifiable(opened.target, schedule.spec)
        schedule = replace(schedule, spec=replace(schedule.spec, digests=not opened.copies))
    return schedule


def _written(opened: OpenJob, run: Run, build: _Build) -> ConvertSummary:
    """Do the tasks, and let the destination appear; return what was done."""
    spec, shards, to = run.spec, opened.shards, opened.to
    with (
        telling_what_is_kept(build.kept if to.whole is None else None),  # of a part, its whole does
        DatasetWriter(
            to.name, **_written_as(spec), overwrite=spec.write.overwrite, members=opened.members,
            stores=opened.job.stores, staging=build.staging, roots=spec.read.roots if spec.write.lazy else (),
        ) as writer,
    ):  # fmt: skip
        if opened.counts_keys:
            writer.count_keys(run.keys)
        run.into(writer, build.pool)
        shards.bad.refuse_all(len(shards.listing))
        digest = _read_back(opened, run, writer, build) if opened.verifies else None
        writer.finish()
        done = _summary(opened, run, writer.summary, digest, build.journal)
        build.begin_commit(done)
        _close_ledger(opened.ledger, shards.bad)
        writer.close()
    return done


def _rehearsed(opened: OpenJob, run: Run) -> ConvertSummary:
    """Write a dataset without rows, in memory: options or columns may be refused. Then read the rows."""
    path = opened.to.path
    with DatasetWriter(path, **_written_as(run.spec), stores=Stores({path: MemoryStore()})):
        pass
    run.look(counts_keys=opened.counts_keys)
    return _summary(opened, run, WriteSummary(0, 0, 0, 0), None, None)


def _summary(
    opened: OpenJob, run: Run, written: WriteSummary, digest: DatasetDigest | None, journal: Journal | None
) -> ConvertSummary:
    """Return what was done, but for the seconds."""
    shards, schedule, losses, spec = opened.shards, run.schedule, run.losses, run.spec
    if schedule.chosen is not None:
        note_left_out(shards, schedule.chosen, losses, listed=opened.ledger is not None)
    shards.counts["samples with a key that an earlier sample has"] += run.keys.count()
    return ConvertSummary(
        opened.source_format, opened.target.name, shards.view, run.tally.shards + schedule.source_shards,
        written.num_shards, run.tally.samples, run.tally.rows, written.size_bytes, run.tally.payload_bytes,
        time.perf_counter() - opened.began,
        digest=None if digest is None else digest.ordered, verified=digest is not None,
        counts=dict(Counter(written.counts) + shards.counts + losses.counts + run.unmatched),
        filtered_rows=losses.rows["filtered"], filtered=losses.first["filtered"],
        lost_rows=losses.rows["lost"], lost=losses.first["lost"],
        skipped_shards=shards.bad.listed(), differences=spec.schemas.differences, dry_run=spec.write.dry_run,
        roots=_needed_roots(opened, spec),
        tasks=0 if journal is None else journal.tasks, tasks_before=0 if journal is None else len(journal.done),
        notes=_notes(opened.target, spec),
        samples_read=run.tally.samples_read if schedule.samples_read is None else schedule.samples_read,
    )  # fmt: skip


def _notes(target: AnyFormat, spec: JobPlan) -> list[str]:
    schema = spec.schemas.schema_written
    if schema is None or not row_layout(spec.view).types_by_format:
        return []
    note = target.written(written_schema(schema), target.write_options(spec.write.options or {})).note
    return [note] if note else []


def _tell_ended(opened: OpenJob, done: ConvertSummary) -> None:
    """Drop the new ledger of a job that has ended: it was brought out before. Warn that nothing was read back."""
    if opened.ledger is not None:
        opened.ledger.abort()
    if opened.verifies and not done.verified:
        warnings.warn("the job had ended before, and nothing was read back now. 'lading diff SRC DST' compares.",
                      stacklevel=5)  # fmt: skip


def _with_warning(job: Job, done: ConvertSummary) -> ConvertSummary:
    """Return the summary; warn of a split by groups that no group is in, because its size is not known before."""
    step = split_by_group(job.steps)
    if step is not None and not done.samples:
        warnings.warn(f"the split {step.name!r} is empty: no group is in it. Give it a larger fraction, another seed "
                      "(seed=, --seed), or groups by another field.", stacklevel=5)  # fmt: skip
    return done


def _convert_rank(opened: OpenJob, schedule: Schedule, rank: int, ranks: int) -> ConvertSummary:
    """Do the tasks of one rank; return what it wrote, and what is left to do. Raises as `begin_rank`."""
    began, spec, to = time.perf_counter(), schedule.spec, opened.to
    told = {
        "members": opened.members, "roots": spec.read.roots if spec.write.lazy else (),
        "source_format": opened.source_format, "needed_roots": _needed_roots(opened, spec),
    }  # fmt: skip
    staging, journal = begin_rank(to.place, opened.shards, schedule, ranks, told)
    pool, written = None, Counter[str]()
    mine = [task.source_bytes for task in schedule.tasks if task.number % ranks == rank]
    if opened.write.shares:
        _, pool = start_workers(opened, mine, len(mine), staging)

    def take(answer: TaskResult) -> None:
        files = answer["part"]["shards"]
        written.update(shards=len(files), size=sum(file["size_bytes"] for file in files))

    run = Run(opened, schedule, journal)
    run.some_into(staging.tasks, pool, rank, ranks, take)
    done = journal.count()
    to_type = f"'lading finish {shlex.quote(to.path)}'"
    next_step = to_type if done == journal.tasks else f"when all ranks are done: {to_type}"
    told_tasks = f"in all {done:,} of {count(journal.tasks, 'task')}"
    own = "is done"
    if not mine:
        tasks, most = count(journal.tasks, "task"), count(journal.tasks, "rank")
        own = f"has no task: the job is {tasks}, each of about one output shard. Use at most {most}"
    return ConvertSummary(
        opened.source_format, spec.write.format, opened.shards.view, run.tally.shards, written["shards"],
        run.tally.samples, run.tally.rows, written["size"], run.tally.payload_bytes, time.perf_counter() - began,
        differences=spec.schemas.differences,
        unfinished=f"rank {rank} of {ranks} {own}; {told_tasks}: {next_step}",
        samples_read=run.tally.samples_read,
    )  # fmt: skip


def _begin(opened: OpenJob) -> tuple[WriteOptions, Sink | None]:
    """Return the options of writing, and the file of the ledger, if one is asked for; raises as `_open_job`."""
    write, shards, to = opened.write, opened.shards, opened.to
    again = write.resume and (had_begun(*to.place) if to.whole is None else to.whole.had_begun)
    refuse_harm(shards, to.name, shards.stores, write)
    if to.is_file:
        write = _into_file(opened)
    else:
        refuse_taken(to.place, write, again=again)
    ledger = opened.held.enter_context(ledger_file(to.name, shards.stores, write, again=again))
    if write.lazy:
        refuse_references(shards, opened.target)
    if write.shares:
        paths = [*shards.listing.table["path"].to_pylist(), to.name]
        refuse_out_of_reach([*(each.format for each in shards.sources()), opened.target.name], paths, shards.stores)
    return write, ledger


def _read_back(opened: OpenJob, run: Run, writer: DatasetWriter, build: _Build) -> DatasetDigest:
    """Compare what was written with the source; return the digest of both. Raises as `compare`."""
    job = opened.job
    # A copy is read again as others read it: names that were kept as they are show in a digest.
    digest = run.digest or dataset_digest(
        job.query.replace(steps=()), limit=job.limit, workers=job.write.workers if job.limit is None else None,
        on_progress=job.in_phase("reading the source again"),
    )  # fmt: skip
    with build.forgetting_bad():
        compare(digest, writer, job, run.spec.read.roots if job.write.lazy else ())
    return digest


@dataclass(frozen=True, slots=True)
class _Build:
    """Where a conversion is built, and by whom.

    Attributes:
        staging: the place; None where the writer makes one.
        pool: the processes that share the work.
        journal: where finished tasks are recorded.
        plan: what the job does, if another process can know it again.
        kept: the journal, also where it holds the plan alone.
        done: what the job did, if it has ended.
    """

    staging: Staging | None
    pool: LazyPool | None = None
    journal: Journal | None = None
    plan: JournalPlan | None = None
    kept: Journal | None = None
    done: ConvertSummary | None = None

    def begin_commit(self, done: ConvertSummary) -> None:
        """Tell the next process what this job did."""
        if self.staging is not None and self.plan is not None:
            begin_commit(self.staging, self.plan, done)

    @contextmanager
    def forgetting_bad(self) -> Iterator[None]:
        """Let nothing be kept for another process where the body finds that the result is wrong."""
        try:
            yield
        except DataError:
            if self.staging is not None:
                self.staging.forget()
            raise


def _open_build(opened: OpenJob, schedule: Schedule) -> _Build:
    """Return where a conversion is built, with its journal if it has tasks that others may do.

    On an object store, files get their names one by one: there another process can always go on with the commit.

    Raises:
        UsageError: there is an unfinished job to resume, and it is another one.
    """
    write, shards, to = opened.write, opened.shards, opened.to
    staging, pool = schedule.staging or to.whole, schedule.pool
    by_name = can_resume(to.store) and not is_local(to.store)
    keeps = schedule.apart and can_resume(to.store) and (len(schedule.tasks) > 1 or write.shares or by_name)
    if to.is_file or write.dry_run or (to.whole is not None and not keeps):
        return _Build(staging, pool)
    plan = journal_plan(shards, schedule.spec, schedule.tasks, schedule.steps)
    if staging is None:
        staging, done = begin_build(to.place, plan, write, shards.stores, keeps=keeps or by_name)
        if staging is not None:
            opened.held.callback(staging.drop)  # nothing is left to drop after the commit
        if done is not None:
            return _Build(staging, done=done)
        assert staging is not None, "the job goes on or begins"
    if not keeps:
        build = _Build(staging, pool, plan=plan)
        return _whole_build(build, staging, plan, to.place, write) if by_name else build
    journal = open_journal(to.store, staging, plan, digests=schedule.spec.digests)
    if write.shares and pool is None:
        sizes = schedule.sizes if schedule.spooled_order is None else [task.source_bytes for task in schedule.tasks]
        _, pool = start_workers(opened, sizes, len(schedule.tasks), staging)
    return _Build(staging, pool, journal, plan, journal)


def _whole_build(
    build: _Build, staging: Staging, plan: JournalPlan, place: tuple[Store, str], write: WriteOptions
) -> _Build:
    """Keep the plan of a job on an object store that is one task; if its commit had begun, end it.

    A ledger comes out before the commit, and nobody knows whether it did: with one, the task is done again.
    """
    store, path = place
    keep_plan(store, staging, plan)
    ends = staging.had_begun and write.ledger is None
    done = end_commit(store, staging, plan, overwrite=write.overwrite) if ends else None
    return replace(build, kept=Journal(store, staging.journal, 0, path), done=done)


def _into_file(opened: OpenJob) -> WriteOptions:
    """The options of writing one file.

    Raises:
        UsageError: the file is one of the source, or options ask for more than one file.
        DestinationExists: the file is there.
    """
    write, shards, name = opened.write, opened.shards, opened.to.name
    if write.lazy or write.shard_size is not None or write.counts_samples:
        raise UsageError("one file holds all rows, and their payload", file=name,
                         found="--lazy" if write.lazy else "a number or size of shards",
                         advice=f"Name a folder: {name}/ is one, by the slash at its end.")  # fmt: skip
    mine = real_place(name, shards.stores)
    if mine in {real_place(path, shards.stores) for path in shards.listing.table.column("path").to_pylist()}:
        raise UsageError("the destination is a file of the source", file=name, advice="Choose another name.")
    refuse_taken(opened.to.place, write, again=False, check=check_file)
    return replace(write, options=options_of_file(name, opened.target, write.options or {}))


def _written_as(spec: JobPlan) -> dict[str, Any]:
    """Arguments of the writer that say what is written, not where."""
    write = spec.write
    return {
        "format": write.format, "view": spec.view, "schema": spec.schemas.schema_written, "options": write.options,
        "roles": spec.schemas.roles, "checksums": write.checksums,
    }  # fmt: skip


def _close_ledger(ledger: Sink | None, bad: BadShards) -> None:
    """Bring out the ledger: nothing else appears if that cannot."""
    if ledger is not None:
        ledger.write([orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in bad.entries()])
        ledger.close()


def _needed_roots(opened: OpenJob, spec: JobPlan) -> list[str]:
    """The folders that readers of lazy output must name: those that they do not open because of the manifest."""
    if not spec.write.lazy:
        return []
    folder, stores = opened.to.name, opened.job.stores
    return [*StoredRoots.of(kept_roots(spec.read.roots, folder, stores), folder, stores).refused]
