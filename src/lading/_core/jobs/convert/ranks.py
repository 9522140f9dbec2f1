"""Ranks: processes that know their number, share the tasks of a conversion, and never speak with each other.

All ranks plan the same job, and find its folder beside the destination by the hash of the plan. A rank does the tasks
of its number that have no record. `lading.finish` commits what they did.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from lading._core.dataset.shards.shards import Shards
from lading._core.jobs.convert.schedule import Schedule
from lading._core.jobs.engine.messages import encode_schema
from lading._core.jobs.journal.journal import FINISH_NAME, Journal, open_journal
from lading._core.jobs.journal.journal_plan import journal_plan
from lading._core.manifest.builds import rank_builds_of
from lading._core.manifest.commit import Staging
from lading._core.storage.base import Store
from lading._core.storage.create_file import create_file
from lading.errors import UsageError
from lading.options import WriteOptions

__all__ = ["begin_rank", "rank_of", "refuse_for_ranks"]


_SLURM_TASKS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
"""Variables with the number of processes that srun has started: of the step, which may be a part of the job, first."""


def rank_of(write: WriteOptions, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the rank of this process, from 0, and the number of ranks.

    Example:
        rank_of(WriteOptions(format="parquet", rank="auto"), {"RANK": "3", "WORLD_SIZE": "64"})  # (3, 64)

    Args:
        write: says both, or that the environment does (`rank="auto"`).
        environment: variables of this process.

    Raises:
        UsageError: the number of ranks is not known, or the rank is none of them.
    """
    ranks = write.world_size
    if write.rank == "auto":
        rank, found = _of_environment(environment, ranks)
        ranks = found if ranks is None else ranks
    else:
        try:
            rank = int(write.rank or 0)
        except ValueError:
            raise UsageError("a rank is a number from 0, or auto", found=f"rank={write.rank!r}") from None
    if ranks is None:
        raise UsageError("the number of ranks is not known", found=f"rank {rank}", advice="Add --world-size N.")
    if not 0 <= rank < ranks:
        raise UsageError("there is no such rank", expected=f"0 to {ranks - 1}", found=str(rank),
                         advice="Ranks count from 0: use an array such as 0-63 with --world-size 64.")  # fmt: skip
    return rank, ranks


def _of_environment(environment: Mapping[str, str], ranks: int | None) -> tuple[int, int | None]:
    def number(name: str) -> int:
        try:
            return int(environment[name])
        except ValueError:
            raise UsageError("a variable of ranks is no number", expected="a whole number",
                             found=f"{name}={environment[name]}") from None  # fmt: skip

    if "RANK" in environment:
        return number("RANK"), number("WORLD_SIZE") if "WORLD_SIZE" in environment else None
    if "SLURM_ARRAY_TASK_ID" in environment:
        task = number("SLURM_ARRAY_TASK_ID")
        if ranks is not None or "SLURM_ARRAY_TASK_COUNT" not in environment:
            return task, None
        first = number("SLURM_ARRAY_TASK_MIN") if "SLURM_ARRAY_TASK_MIN" in environment else 0
        step = number("SLURM_ARRAY_TASK_STEP") if "SLURM_ARRAY_TASK_STEP" in environment else 1
        return (task - first) // max(step, 1), number("SLURM_ARRAY_TASK_COUNT")
    if "SLURM_PROCID" in environment:
        tasks = next((name for name in _SLURM_TASKS if name in environment), None)
        return number("SLURM_PROCID"), None if tasks is None else number(tasks)
    if "JOB_COMPLETION_INDEX" in environment:
        return number("JOB_COMPLETION_INDEX"), None
    raise UsageError("the environment names no rank",
                     expected="RANK, SLURM_ARRAY_TASK_ID, SLURM_PROCID or JOB_COMPLETION_INDEX",
                     advice="Add --rank R --world-size N.")  # fmt: skip


def refuse_for_ranks(write: WriteOptions, *, is_one_file: bool, counts_keys: bool) -> None:
    """Refuse what one process must do.

    Raises:
        UsageError: names the option, and what to do instead.
    """
    refused = (
        (write.dry_run, "--dry-run", "Leave out --rank."),
        (write.resume, "--resume", "Leave out --resume: ranks go on by themselves."),
        (write.verify, "--verify", "Leave it out. Compare after 'lading finish': 'lading diff SRC DST'."),
        (write.ledger is not None, "--ledger", "Leave it out. The summary of 'lading finish' shows the first rows."),
        (is_one_file, "one file as the destination", "Name a folder."),
        (counts_keys, "several datasets whose keys are counted", "Convert each of them into a folder of its own."),
    )
    for given, what, advice in refused:
        if given:
            raise UsageError("ranks cannot do this", found=what, advice=advice)


def begin_rank(
    place: tuple[Store, str],
    shards: Shards,
    schedule: Schedule,
    ranks: int,
    told: Mapping[str, Any],
) -> tuple[Staging, Journal]:
    """Return the place where all ranks of a job build, and its journal.

    Args:
        place: store and path of the destination.
        shards: the source.
        schedule: the conversion, settled, and its tasks.
        ranks: number of ranks.
        told: what `lading.finish` needs to know besides, as JSON-able values and schemas.

    Raises:
        UsageError: one process does such a conversion; or an option cannot be kept.
    """
    (store, path), spec = place, schedule.spec
    plan = journal_plan(shards, spec, schedule.tasks, schedule.steps)
    if not schedule.apart:
        raise UsageError("one process does this conversion", file=path, advice="Leave out --rank.")
    staging = Staging.for_ranks(store, path, plan.hash)
    other = next((root for root in rank_builds_of(store, path) if not root.endswith(plan.hash)), None)
    if other is not None:
        warnings.warn(f"ranks of another job have written for {path}: 'lading finish' will refuse both, unless one "
                      f"folder is deleted; the other one: {other}", stacklevel=2)  # fmt: skip
    journal = open_journal(store, staging, plan, others=True)
    write = spec.write
    kept = {
        **{name: encode_schema(value) if isinstance(value, pa.Schema) else value for name, value in told.items()},
        "ranks": ranks,
        "write": {
            "format": write.format, "view": spec.view, "schema": encode_schema(spec.schemas.schema_written),
            "options": write.options, "roles": dict(spec.schemas.roles), "checksums": write.checksums,
        },
        "overwrite": write.overwrite,
        "first_shards": [0 if schedule.spooled_order is not None else task.first for task in schedule.tasks],
        "source_shards": len(shards.listing),
        "more_source_shards": schedule.source_shards,
        "samples_read": schedule.samples_read,
        "differences": list(spec.schemas.differences),
    }  # fmt: skip
    try:
        data = orjson.dumps(kept)
    except TypeError as error:
        raise UsageError("an option cannot be kept for 'lading finish'", found=str(error),
                         expected="numbers, texts, lists and dicts") from error  # fmt: skip
    create_file(store, f"{staging.journal}/{FINISH_NAME}", data)
    return staging, journal
