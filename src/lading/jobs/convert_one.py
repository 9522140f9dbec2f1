"""Convert one dataset into a folder or a file."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import orjson

from lading.content.digests import DatasetDigest
from lading.dataset.shards.bad_shards import BadShards
from lading.dataset.shards.shards import Shards
from lading.dataset.source.open import open_shards
from lading.dataset.source.pruning import shards_that_fit
from lading.dataset.transform.concat import Parts
from lading.dataset.writing.single_file import check_file, is_file_name, options_of_file
from lading.dataset.writing.writer import DatasetWriter, WriteSummary
from lading.errors import UsageError
from lading.formats.registry import get_format
from lading.jobs.conversion_job import ConversionJob
from lading.jobs.convert_summary import ConvertSummary
from lading.jobs.digest import dataset_digest
from lading.jobs.left_out import note_left_out
from lading.jobs.plan import as_members, take_files_in
from lading.jobs.progress import reporting_passes
from lading.jobs.read_back import compare, refuse_unverifiable
from lading.jobs.reading import refuse_out_of_reach
from lading.jobs.refusals import ledger_file, refuse_harm, refuse_references
from lading.jobs.run import Run
from lading.jobs.schedule import Schedule, make_schedule
from lading.jobs.spec import Conversion
from lading.jobs.threads import using_threads
from lading.manifest.commit import Staging, check_destination, find_destination
from lading.options import WriteOptions
from lading.pipeline.repeated_keys import RepeatedKeys
from lading.storage.base import Sink, Store
from lading.storage.memory import MemoryStore
from lading.storage.roots import StoredRoots, kept_roots, real_place
from lading.storage.stores import Stores

__all__ = ["convert_one"]


def convert_one(
    job: ConversionJob, destination: str | os.PathLike[str], staging: Staging | None = None
) -> ConvertSummary:
    """Convert one dataset into a folder or a file; with `staging`, where that builds a part of a larger dataset."""
    job = job.with_absolute_paths()
    began, write, stores = time.perf_counter(), job.write, job.stores
    with (
        using_threads(write.threads),
        ExitStack() as held,
        open_shards(job.source, **job.opening) as every,
        shards_that_fit(every, job.steps) as shards,
        reporting_passes(shards, job.on_progress),
    ):
        job = replace(job, read=replace(job.read, options=take_files_in(shards, job.read.options)))
        target = get_format(write.format)
        store, path = find_destination(destination, stores)
        refuse_harm(shards, destination, stores, write)
        if is_file_name(destination):
            write = _into_file(write, destination, shards, (store, path))
            job = replace(job, write=write)
        else:
            check_destination(store, path, overwrite=write.overwrite)
        ledger = held.enter_context(ledger_file(destination, stores, write))
        if write.lazy:
            refuse_references(shards, target)
        if write.shares:
            paths = [*shards.listing.table["path"].to_pylist(), os.fspath(destination)]
            refuse_out_of_reach([*(each.format for each in shards.sources()), target.name], paths, shards.stores)
        copies, members, keys = job.copies(shards), None, RepeatedKeys()
        if copies:
            options, members = as_members(shards, target, write.options)
            write = replace(write, options=options)
        job = replace(job, write=write)
        schedule = make_schedule(job, shards, held, (store, path), ledger, staging, alone=is_file_name(destination))
        spec, checked = schedule.spec, write.verify and not write.dry_run
        counts_keys = isinstance(job.source, Parts) and target.info.interleaved == "members"
        if checked:
            refuse_unverifiable(target, spec)
            spec = replace(spec, digests=not copies)
        digests = DatasetDigest() if spec.digests else None
        run = Run(
            shards, spec, schedule.tasks, digests, ledger, job.on_progress, schedule.sizes, schedule.arranged
        )  # fmt: skip
        summary, digest = WriteSummary(0, 0, 0, 0), None
        if write.dry_run:
            _rehearse(run, spec, path, keys if counts_keys else None)
            _note_left_out(schedule, shards, run, listed=False)
        else:
            with DatasetWriter(
                destination, **_written_as(spec), overwrite=write.overwrite, members=members, stores=stores,
                staging=schedule.staging or staging, roots=spec.read.roots if write.lazy else (),
            ) as writer:  # fmt: skip
                if counts_keys:
                    writer.count_keys(keys)
                run.into(writer, store, schedule.pool)
                shards.bad.refuse_all(len(shards.listing))
                if checked:
                    # A copy is read again as others read it: names that were kept as they are show in a digest.
                    digest = run.digest or dataset_digest(
                        job.source,
                        limit=job.limit,
                        workers=write.workers,
                        on_progress=job.in_phase("reading the source again"),
                        **job.opening,
                    )
                    compare(digest, writer, job, spec.read.roots if write.lazy else ())
                _note_left_out(schedule, shards, run, listed=ledger is not None)
                _end(writer, ledger, shards.bad)
            summary = writer.close()
        shards.counts["samples with a key that an earlier sample has"] += keys.count()
        formats = " + ".join(dict.fromkeys(each.format for each in shards.sources()))
        return ConvertSummary(
            formats, target.name, shards.view, run.tally.shards + schedule.source_shards, summary.num_shards,
            run.tally.samples, run.tally.rows, summary.size_bytes, run.tally.payload_bytes, time.perf_counter() - began,
            digest=None if digest is None else digest.ordered, verified=digest is not None,
            counts=dict(Counter(summary.counts) + shards.counts + run.losses.counts + run.unmatched),
            filtered_rows=run.losses.rows["filtered"], filtered=run.losses.first["filtered"],
            lost_rows=run.losses.rows["lost"], lost=run.losses.first["lost"],
            skipped_shards=shards.bad.listed(), differences=spec.plan.differences, dry_run=write.dry_run,
            roots=_needed_roots(spec, destination, stores) if write.lazy else (),
        )  # fmt: skip


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
    check_file(*place, overwrite=write.overwrite)
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


def _end(writer: DatasetWriter, ledger: Sink | None, bad: BadShards) -> None:
    """Finish what is out of sight, and bring out the ledger: nothing else appears if that cannot."""
    writer.finish()
    if ledger is not None:
        ledger.write([orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in bad.entries()])
        ledger.close()


def _needed_roots(spec: Conversion, destination: str | os.PathLike[str], stores: Stores) -> list[str]:
    """The folders that readers of lazy output must name: those that they do not open because of the manifest."""
    folder = os.fspath(destination)
    return [*StoredRoots.of(kept_roots(spec.read.roots, folder, stores), folder, stores).refused]
