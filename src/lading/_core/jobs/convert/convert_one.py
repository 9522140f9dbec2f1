"""Convert one dataset into a folder or a file."""

from __future__ import annotations

import os
import shlex
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson

from lading._core.content.digests import DatasetDigest
from lading._core.dataset.shards.bad_shards import BadShards
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.steps.key_steps import split_by_group
from lading._core.dataset.writing.single_file import check_file, is_file_name, options_of_file
from lading._core.dataset.writing.writer import DatasetWriter, WriteSummary
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.conversion_job import ConversionJob
from lading._core.jobs.convert.job_spool import PartSpools, job_spool
from lading._core.jobs.convert.left_out import note_left_out
from lading._core.jobs.convert.plan import as_members, take_files_in
from lading._core.jobs.convert.ranks import begin_rank, rank_of, refuse_for_ranks
from lading._core.jobs.convert.read_back import compare, refuse_unverifiable
from lading._core.jobs.convert.refusals import ledger_file, refuse_harm, refuse_references, refuse_taken
from lading._core.jobs.convert.schedule import Schedule, make_schedule, start_workers
from lading._core.jobs.convert.spec import Conversion
from lading._core.jobs.convert.summary import ConvertSummary
from lading._core.jobs.engine.done import begin_build
from lading._core.jobs.engine.journal import (
    Journal,
    begin_commit,
    end_commit,
    had_begun,
    keep_plan,
    open_journal,
    telling_what_is_kept,
)
from lading._core.jobs.engine.journal_plan import JournalPlan, journal_plan
from lading._core.jobs.engine.loop import LazyPool
from lading._core.jobs.engine.progress import reporting_passes
from lading._core.jobs.engine.reading import refuse_out_of_reach
from lading._core.jobs.engine.results import Answer
from lading._core.jobs.engine.run import Run, TaskPlace
from lading._core.jobs.engine.threads import using_threads
from lading._core.jobs.verify.digest import dataset_digest
from lading._core.manifest.commit import Staging, can_resume, find_destination
from lading._core.pipeline.repeated_keys import RepeatedKeys
from lading._core.storage.base import Sink, Store
from lading._core.storage.memory import MemoryStore
from lading._core.storage.roots import StoredRoots, kept_roots, real_place
from lading._core.storage.stores import Stores, is_local
from lading._core.units import count
from lading.errors import DataError, UsageError
from lading.options import WriteOptions

__all__ = ["convert_one"]


def convert_one(
    job: ConversionJob,
    destination: str | os.PathLike[str],
    staging: Staging | None = None,
    parts: PartSpools | None = None,
) -> ConvertSummary:
    """Convert one dataset into a folder or a file; with `staging`, where that builds a part of a larger dataset.

    `parts` are the spools of all parts.
    """
    job = job.with_absolute_paths()
    began, write, stores = time.perf_counter(), job.write, job.stores
    with (
        using_threads(write.threads),
        ExitStack() as held,
        job.query.open_shards() as shards,
        reporting_passes(shards, job.on_progress),
    ):
        job = job.reading(options=take_files_in(shards, job.read.options))
        target = get_format(write.format)
        store, path = find_destination(destination, stores)
        counts_keys = job.query.source.repeats_keys and target.info.interleaved == "members"
        if write.rank is not None:
            refuse_for_ranks(write, is_one_file=is_file_name(destination), counts_keys=counts_keys)
            rank_of(write, os.environ)  # before all the rest
        write, ledger = _begin(write, destination, shards, held, (store, path), staging)
        job = replace(job, write=write)
        copies, members, keys = job.copies(shards), None, RepeatedKeys()
        if copies:
            options, members = as_members(shards, target, write.options)
            write = replace(write, options=options)
        job = replace(job, write=write)
        alone = is_file_name(destination)
        schedule = _schedule(job, shards, held, (store, path), ledger, staging, parts, alone=alone)
        spec, checked = schedule.spec, write.verify and not write.dry_run
        if checked:
            refuse_unverifiable(target, spec)
            spec = replace(spec, digests=not copies)
        if write.rank is not None:
            told = {
                "members": members, "roots": spec.read.roots if write.lazy else (),
                "source_format": " + ".join(dict.fromkeys(each.format for each in shards.sources())),
                "needed_roots": _needed_roots(spec, destination, stores) if write.lazy else (),
            }  # fmt: skip
            return _convert_rank(job, schedule, shards, held, (store, path), told)
        build = _open_build(
            job, schedule, spec, shards, held, (store, path), staging, alone=alone
        )  # fmt: skip
        if build.done is not None:
            _tell_ended(build.done, ledger, checked=checked)
            return build.done
        digests = DatasetDigest() if spec.digests else None
        run = Run(
            shards, spec, schedule.tasks, digests, ledger, job.on_progress, schedule.sizes, schedule.arranged,
            build.journal, schedule.spool, len(schedule.steps) - len(spec.steps),
        )  # fmt: skip

        def summed(written: WriteSummary, digest: DatasetDigest | None = None) -> ConvertSummary:
            _note_left_out(schedule, shards, run, listed=ledger is not None)
            shards.counts["samples with a key that an earlier sample has"] += keys.count()
            formats = " + ".join(dict.fromkeys(each.format for each in shards.sources()))
            return ConvertSummary(
                formats, target.name, shards.view, run.tally.shards + schedule.source_shards, written.num_shards,
                run.tally.samples, run.tally.rows, written.size_bytes, run.tally.payload_bytes,
                time.perf_counter() - began, digest=None if digest is None else digest.ordered,
                verified=digest is not None,
                counts=dict(Counter(written.counts) + shards.counts + run.losses.counts + run.unmatched),
                filtered_rows=run.losses.rows["filtered"], filtered=run.losses.first["filtered"],
                lost_rows=run.losses.rows["lost"], lost=run.losses.first["lost"],
                skipped_shards=shards.bad.listed(), differences=spec.plan.differences, dry_run=write.dry_run,
                roots=_needed_roots(spec, destination, stores) if write.lazy else (),
                tasks=0 if build.journal is None else build.journal.tasks,
                tasks_before=0 if build.journal is None else len(build.journal.done),
            )  # fmt: skip

        if write.dry_run:
            _rehearse(run, spec, path, keys if counts_keys else None)
            done = summed(WriteSummary(0, 0, 0, 0))
        else:
            with (
                telling_what_is_kept(build.kept if staging is None else None),  # of a part, its whole does
                DatasetWriter(
                    destination, **_written_as(spec), overwrite=write.overwrite, members=members, stores=stores,
                    staging=build.staging, roots=spec.read.roots if write.lazy else (),
                ) as writer,
            ):  # fmt: skip
                if counts_keys:
                    writer.count_keys(keys)
                run.into(writer, store, build.pool)
                shards.bad.refuse_all(len(shards.listing))
                digest = _read_back(run, writer, job, spec, build) if checked else None
                writer.finish()
                done = summed(writer.summary, digest)
                build.begin_commit(done)
                _close_ledger(ledger, shards.bad)
                writer.close()
        return replace(_with_warning(job, done), seconds=time.perf_counter() - began)


def _schedule(
    job: ConversionJob, shards: Shards, held: ExitStack, place: tuple[Store, str], ledger: Sink | None,
    staging: Staging | None, parts: PartSpools | None, *, alone: bool,
) -> Schedule:  # fmt: skip
    """Plan the conversion, and keep what functions make for it."""
    if parts is None:
        spool, common = held.enter_context(job_spool(job, shards, place, alone=alone)), 0
    else:
        spool, common = parts.of(job, shards, alone=alone)
    if job.made is not None:
        job.made.give(spool, shards, job.steps)
    schedule = make_schedule(job, shards, held, place, ledger, staging, alone=alone, spool=spool)
    spool.ends(common)
    return schedule


def _tell_ended(done: ConvertSummary, ledger: Sink | None, *, checked: bool) -> None:
    """Drop the new ledger of a job that has ended: it was brought out before. Warn that nothing was read back."""
    if ledger is not None:
        ledger.abort()
    if checked and not done.verified:
        warnings.warn("the job had ended before, and nothing was read back now. 'lading diff SRC DST' compares.",
                      stacklevel=4)  # fmt: skip


def _with_warning(job: ConversionJob, done: ConvertSummary) -> ConvertSummary:
    """Return the summary; warn of a split by groups that no group is in, because its size is not known before."""
    step = split_by_group(job.steps)
    if step is not None and not done.samples:
        warnings.warn(f"the split {step.name!r} is empty: no group is in it. Give it a larger fraction, another seed "
                      "(seed=, --seed), or groups by another field.", stacklevel=4)  # fmt: skip
    return done


def _convert_rank(
    job: ConversionJob,
    schedule: Schedule,
    shards: Shards,
    held: ExitStack,
    place: tuple[Store, str],
    told: Mapping[str, Any],
) -> ConvertSummary:
    """Do the tasks of one rank; return what it wrote, and what is left to do. Raises as `rank_of` and `begin_rank`."""
    began, spec = time.perf_counter(), schedule.spec
    rank, ranks = rank_of(job.write, os.environ)
    staging, journal = begin_rank(place, shards, spec, schedule, ranks, told)
    pool, written = None, Counter[str]()
    if job.write.shares:
        mine = [task.source_bytes for task in schedule.tasks if task.number % ranks == rank]
        _, pool = start_workers(job, shards, held, mine, len(mine), place, staging)

    def take(answer: Answer) -> None:
        files = answer["part"]["shards"]
        written.update(shards=len(files), size=sum(file["size_bytes"] for file in files))

    run = Run(
        shards, spec, schedule.tasks, None, None, job.on_progress, schedule.sizes, schedule.arranged, journal,
        schedule.spool, len(schedule.steps) - len(spec.steps),
    )  # fmt: skip
    run.some_into(TaskPlace(journal, staging.tasks, place[0]), pool, rank, ranks, take)
    done = journal.count()
    to_type = f"'lading finish {shlex.quote(place[1])}'"
    next_step = to_type if done == journal.tasks else f"when all ranks are done: {to_type}"
    told_tasks = f"in all {done:,} of {count(journal.tasks, 'task')}"
    return ConvertSummary(
        told["source_format"], spec.write.format, shards.view, run.tally.shards, written["shards"], run.tally.samples,
        run.tally.rows, written["size"], run.tally.payload_bytes, time.perf_counter() - began,
        differences=spec.plan.differences,
        unfinished=f"rank {rank} of {ranks} is done; {told_tasks}: {next_step}",
    )  # fmt: skip


def _begin(
    write: WriteOptions,
    destination: str | os.PathLike[str],
    shards: Shards,
    held: ExitStack,
    place: tuple[Store, str],
    staging: Staging | None,
) -> tuple[WriteOptions, Sink | None]:
    """Refuse what cannot be written; return the options of writing, and the file of the ledger, if one is asked for.

    Raises:
        UsageError, DestinationExists: says what is in the way.
    """
    target = get_format(write.format)
    again = write.resume and (had_begun(*place) if staging is None else staging.had_begun)
    refuse_harm(shards, destination, shards.stores, write)
    if is_file_name(destination):
        write = _into_file(write, destination, shards, place)
    else:
        refuse_taken(place, write, again=again)
    ledger = held.enter_context(ledger_file(destination, shards.stores, write, again=again))
    if write.lazy:
        refuse_references(shards, target)
    if write.shares:
        paths = [*shards.listing.table["path"].to_pylist(), os.fspath(destination)]
        refuse_out_of_reach([*(each.format for each in shards.sources()), target.name], paths, shards.stores)
    return write, ledger


def _read_back(run: Run, writer: DatasetWriter, job: ConversionJob, spec: Conversion, build: _Build) -> DatasetDigest:
    """Compare what was written with the source; return the digest of both. Raises as `compare`."""
    # A copy is read again as others read it: names that were kept as they are show in a digest.
    digest = run.digest or dataset_digest(
        job.query.replace(steps=()), limit=job.limit, workers=job.write.workers,
        on_progress=job.in_phase("reading the source again"),
    )  # fmt: skip
    with build.forgetting_bad():
        compare(digest, writer, job, spec.read.roots if job.write.lazy else ())
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


def _open_build(
    job: ConversionJob,
    schedule: Schedule,
    spec: Conversion,
    shards: Shards,
    held: ExitStack,
    place: tuple[Store, str],
    staging: Staging | None,
    *,
    alone: bool,
) -> _Build:
    """Return where a conversion is built, with its journal if it has tasks that others may do.

    On an object store, files get their names one by one: there another process can always go on with the commit.

    Raises:
        UsageError: there is an unfinished job to resume, and it is another one.
    """
    write, (store, _), is_part = job.write, place, staging is not None
    staging, pool = schedule.staging or staging, schedule.pool
    by_name = can_resume(store) and not is_local(store)
    keeps = schedule.apart and can_resume(store) and (len(schedule.tasks) > 1 or write.shares or by_name)
    if alone or write.dry_run or (is_part and not keeps):
        return _Build(staging, pool)
    plan = journal_plan(shards, spec, schedule.tasks, schedule.steps)
    if staging is None:
        staging, done = begin_build(place, plan, write, shards.stores, keeps=keeps or by_name)
        if staging is not None:
            held.callback(staging.drop)  # nothing is left to drop after the commit
        if done is not None:
            return _Build(staging, done=done)
        assert staging is not None, "the job goes on or begins"
    if not keeps:
        build = _Build(staging, pool, plan=plan)
        return _whole_build(build, staging, plan, place, write) if by_name else build
    journal = open_journal(store, staging, plan, digests=spec.digests)
    if write.shares and pool is None:
        sizes = schedule.sizes if schedule.arranged is None else [task.source_bytes for task in schedule.tasks]
        _, pool = start_workers(job, shards, held, sizes, len(schedule.tasks), place, staging)
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


def _into_file(
    write: WriteOptions, destination: str | os.PathLike[str], shards: Shards, place: tuple[Store, str]
) -> WriteOptions:
    """The options of writing one file.

    Raises:
        UsageError: the file is one of the source, or options ask for more than one file.
        DestinationExists: the file is there.
    """
    name, target = os.fspath(destination), get_format(write.format)
    if write.lazy or write.shard_size is not None or write.counts_samples:
        raise UsageError("one file holds all rows, and their payload", file=name,
                         found="--lazy" if write.lazy else "a number or size of shards",
                         advice=f"Name a folder: {name}/ is one, by the slash at its end.")  # fmt: skip
    mine = real_place(name, shards.stores)
    if mine in {real_place(path, shards.stores) for path in shards.listing.table.column("path").to_pylist()}:
        raise UsageError("the destination is a file of the source", file=name, advice="Choose another name.")
    refuse_taken(place, write, again=False, check=check_file)
    return replace(write, options=options_of_file(destination, target, write.options or {}))


def _written_as(spec: Conversion) -> dict[str, Any]:
    """Arguments of the writer that say what is written, not where."""
    write = spec.write
    return {
        "format": write.format, "view": spec.view, "schema": spec.plan.schema_written, "options": write.options,
        "roles": spec.plan.roles, "checksums": write.checksums,
    }  # fmt: skip


def _rehearse(run: Run, spec: Conversion, place: str, keys: RepeatedKeys | None) -> None:
    """Write a dataset without rows, in memory: options or columns may be refused. Then read the rows."""
    with DatasetWriter(place, **_written_as(spec), stores=Stores({place: MemoryStore()})):
        pass
    run.look(keys)


def _note_left_out(schedule: Schedule, shards: Shards, run: Run, *, listed: bool) -> None:
    if schedule.chosen is not None:
        note_left_out(shards, schedule.chosen, run.losses, listed=listed)


def _close_ledger(ledger: Sink | None, bad: BadShards) -> None:
    """Bring out the ledger: nothing else appears if that cannot."""
    if ledger is not None:
        ledger.write([orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in bad.entries()])
        ledger.close()


def _needed_roots(spec: Conversion, destination: str | os.PathLike[str], stores: Stores) -> list[str]:
    """The folders that readers of lazy output must name: those that they do not open because of the manifest."""
    folder = os.fspath(destination)
    return [*StoredRoots.of(kept_roots(spec.read.roots, folder, stores), folder, stores).refused]
