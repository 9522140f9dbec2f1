"""Finish: commit what the ranks of a conversion did."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Final

from lading._core.arguments import public
from lading._core.dataset.shards.bad_shards import BadShards
from lading._core.dataset.writing.outcomes import Outcomes
from lading._core.dataset.writing.writer import DatasetWriter, WriteSummary
from lading._core.jobs.convert.summary import ConvertSummary, summary_from
from lading._core.jobs.engine.messages import decode_schema
from lading._core.jobs.engine.progress import Tally
from lading._core.jobs.journal.begin import done_before
from lading._core.jobs.journal.journal import FINISH_NAME, begin_commit
from lading._core.jobs.journal.journal_plan import JournalPlan, first_difference
from lading._core.jobs.journal.records import read_json, read_records
from lading._core.jobs.journal.results import Results, TaskResult
from lading._core.manifest.builds import PLAN_NAME, done_place, rank_builds_of
from lading._core.manifest.commit import Staging, find_destination
from lading._core.manifest.values import own_version
from lading._core.storage.base import Store
from lading._core.storage.stores import Stores
from lading._core.units import count
from lading.errors import NotFound, UsageError

__all__ = ["finish"]

_SHOWN: Final = 5


@public("lading.finish")
def finish(
    destination: str | os.PathLike[str],
    *,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ConvertSummary:
    """Write the destination of a conversion whose ranks are done (`convert(rank=…)`); return what they did.

    The destination appears in one step, with the bytes of one process. A call that was killed may be repeated, and so
    may one that has ended: then nothing is done (`ConvertSummary.done_before`).

    Example:
        lading.finish("out").samples

    Args:
        destination: folder, as it was given to the ranks.
        stores: which store serves which URL.
        storage_options: options of object stores, also by URL prefix.

    Raises:
        UsageError: tasks are not done; names them, and their ranks. Or there is no job of ranks, or several.
        DestinationExists: the destination is not empty, and the ranks did not say `overwrite`.
        StoreError: a store failed.
    """
    began, own = time.perf_counter(), Stores.of(stores, storage_options) or Stores()
    store, path = find_destination(destination, own)
    root = _only_job(store, path)
    if root is None:
        ended = done_before(store, path, None)
        if ended is None:
            raise UsageError("no ranks have written for this destination", file=path,
                             advice="Convert first, with --rank R --world-size N.")  # fmt: skip
        return ended
    done = read_json(store, done_place(store, root))
    if done is not None:
        with suppress(NotFound):  # another process removes it
            Staging.resumed(store, path, root, had_ended=True).drop()
        return summary_from(done["summary"])
    plan, told = read_json(store, f"{root}/{PLAN_NAME}"), read_json(store, f"{root}/{FINISH_NAME}")
    if (plan is None or told is None) and root not in rank_builds_of(store, path):  # another process has ended it
        return finish(destination, stores=own)
    if plan is None or told is None:
        raise UsageError("no rank of this job has begun its tasks", file=path, found=root, advice="Wait for the ranks.")
    if plan["facts"]["lading"] != own_version():
        raise UsageError("the ranks had another version of lading", file=path, found=own_version(),
                         expected=plan["facts"]["lading"], advice="Finish with that version.")  # fmt: skip
    answers = read_records(store, root, f"{root}/tasks")
    missing = [number for number in range(plan["tasks"]) if number not in answers]
    if missing:
        raise _unfinished(path, missing, plan["tasks"], told["ranks"])
    with ExitStack() as held:
        try:
            staging = Staging.resumed(store, path, root, had_ended=False)
        except NotFound:  # another process has ended it
            return finish(destination, stores=own)
        staging.keep_records(staging.journal)
        held.callback(staging.drop)  # nothing is left to drop after the commit
        return _commit(staging, (store, path), own, plan, told, answers, began)


def _only_job(store: Store, path: str) -> str | None:
    """Return the folder of the only job of ranks that writes to a destination; None if there is none."""
    roots = rank_builds_of(store, path)
    if len(roots) > 1:
        one, other = (read_json(store, f"{root}/{PLAN_NAME}") for root in roots[:2])
        was, now = first_difference(one["facts"], other["facts"]) if one and other else ("one folder", "another one")
        raise UsageError(
            "ranks of different jobs have written for this destination: their sources or options differ", file=path,
            expected=f"{was} (in {roots[0]})", found=f"{now} (in {roots[1]})",
            advice="Delete the folder of the job that is not wanted; or all of them with 'lading clean', and convert "
            "again.",
        )  # fmt: skip
    return roots[0] if roots else None


def _unfinished(path: str, missing: Sequence[int], tasks: int, ranks: int) -> UsageError:
    numbers = ", ".join(map(str, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
    of_ranks = sorted({number % ranks for number in missing})
    named = ", ".join(map(str, of_ranks[:_SHOWN])) + (", …" if len(of_ranks) > _SHOWN else "")
    return UsageError(
        f"{len(missing):,} of {count(tasks, 'task')} are not done", file=path, found=f"no records of tasks {numbers}",
        advice=f"Start their ranks again, with the same command: {named} of --world-size {ranks}.",
    )  # fmt: skip


def _commit(
    staging: Staging,
    place: tuple[Store, str],
    stores: Stores,
    plan: Mapping[str, Any],
    told: Mapping[str, Any],
    answers: Mapping[int, TaskResult],
    began: float,
) -> ConvertSummary:
    (store, path), write = place, told["write"]
    results = Results(Counter(), BadShards("skip"), Outcomes())
    results.bad.warns = False
    tally = Tally()
    with DatasetWriter(
        path, **{**write, "schema": decode_schema(write["schema"])}, overwrite=told["overwrite"], stores=stores,
        members=decode_schema(told["members"]), staging=staging, roots=told["roots"],
    ) as writer:  # fmt: skip
        for number in range(plan["tasks"]):
            results.take(writer, store, answers[number], told["first_shards"][number])
            tally.add(Tally(*answers[number]["tally"]))
        results.bad.refuse_all(told["source_shards"])
        writer.finish()
        done = _summary(writer.summary, results, tally, told, began)
        begin_commit(staging, JournalPlan(plan["facts"], plan["tasks"]), done)
        writer.close()
    return replace(done, seconds=time.perf_counter() - began)


def _summary(
    written: WriteSummary, results: Results, tally: Tally, told: Mapping[str, Any], began: float
) -> ConvertSummary:
    losses = results.losses
    return ConvertSummary(
        told["source_format"], told["write"]["format"], told["write"]["view"],
        tally.shards + told["more_source_shards"], written.num_shards, tally.samples, tally.rows, written.size_bytes,
        tally.payload_bytes, time.perf_counter() - began,
        counts=dict(Counter(written.counts) + results.counts + losses.counts),
        filtered_rows=losses.rows["filtered"], filtered=losses.first["filtered"], lost_rows=losses.rows["lost"],
        lost=losses.first["lost"], skipped_shards=results.bad.listed(), differences=told["differences"],
        roots=told["needed_roots"],
        samples_read=tally.samples_read if told["samples_read"] is None else told["samples_read"],
    )  # fmt: skip
