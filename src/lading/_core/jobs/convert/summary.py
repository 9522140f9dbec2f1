"""What a conversion did: of one dataset, or of several splits."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lading._core.dataset.writing.outcomes import is_filtered
from lading._core.json_forms import BadShardList, LostRowList
from lading._core.result_text import ResultText

__all__ = ["ConvertSummary", "summary_from", "together"]


@dataclass(frozen=True, slots=True)
class ConvertSummary(ResultText):
    """What a conversion did.

    Attributes:
        source_format: format of the source.
        format: format of the destination.
        view: how rows were taken.
        source_shards: number of files that were read.
        shards: number of files that were written.
        samples: number of samples that were written.
        rows: number of rows that were written (items, for interleaved data).
        size_bytes: bytes of the files written.
        payload_bytes: bytes of values.
        seconds: wall-clock time of the whole job.
        digest: content digest of what was written, if it was verified.
        verified: whether the destination was read back and has the source's digest.
        counts: number of rows that were dropped, renamed …, by a short phrase.
        filtered_rows: number of rows that filters rejected.
        filtered: the first few of these rows: file, row in it from 0, key, reason, outcome.
        lost_rows: number of rows that `on_error` dropped or kept without payload, and rows dropped with them.
        lost: the first few of these rows: file, row, key, reason, outcome, detail.
        skipped_shards: the shards that were left out (`on_bad_shard="skip"`): file and error.
        differences: how the source's shards differ in their schemas.
        tasks: number of tasks of the job, if another process can go on with it (`resume`); 0 if it is one task.
        tasks_before: number of tasks that were done before this process began.
        done_before: whether an earlier process had done the whole job. The numbers are those of the manifest. All
            others are 0: of what was read, and `rows`.
        roots: folders of payload that readers of the destination must name (`lazy`): a manifest is not trusted with
            folders that are neither in the destination nor next to it.
        dry_run: whether nothing was written.
        unfinished: of one rank: how many tasks of the job are done, and what to do next. Nothing appeared.
        splits: of a source that lists several datasets, what was done of each, by name; all else is of them together,
            and no digest.
        samples_read: number of samples that were read, also those that steps left out.
        notes: what readers of the format make less of than lading, and the option that changes it.
    """

    source_format: str
    format: str
    view: str
    source_shards: int
    shards: int
    samples: int
    rows: int
    size_bytes: int
    payload_bytes: int
    seconds: float
    digest: str | None = None
    verified: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    filtered_rows: int = 0
    filtered: LostRowList = ()
    lost_rows: int = 0
    lost: LostRowList = ()
    skipped_shards: BadShardList = ()
    differences: Sequence[str] = ()
    dry_run: bool = False
    unfinished: str = ""
    tasks: int = 0
    tasks_before: int = 0
    done_before: bool = False
    roots: Sequence[str] = ()
    splits: Mapping[str, ConvertSummary] = field(default_factory=dict)
    samples_read: int = 0
    notes: Sequence[str] = ()

    def __repr__(self) -> str:
        """Return the facts that are there, without single rows: a notebook shows this behind `ds.write(…)`."""
        facts = (
            (each.name, getattr(self, each.name)) for each in fields(self) if each.name not in ("filtered", "lost")
        )
        told = (f"{name}={value:.2f}" if name == "seconds" else f"{name}={value!r}" for name, value in facts if value)
        return f"ConvertSummary({', '.join(told)})"


def summary_from(values: Mapping[str, Any]) -> ConvertSummary:
    """Return the summary of a job that an earlier process did, whose values `dataclasses.asdict` gave."""
    splits = {name: summary_from(one) for name, one in values["splits"].items()}
    return ConvertSummary(**{**values, "splits": splits, "tasks_before": values["tasks"]})


def together(splits: Mapping[str, ConvertSummary], began: float, *, of_one: bool = False) -> ConvertSummary:
    """The summary of several splits, as of one dataset.

    Args:
        splits: what was done of each split, by name.
        began: when, by `time.perf_counter`.
        of_one: all splits were chosen from the same samples: those, and rows that were filtered, are counted once.
    """
    each = list(splits.values())
    counts: Counter[str] = Counter()
    for one in each:
        counts.update({reason: n for reason, n in one.counts.items() if not (of_one and is_filtered(reason))})
    numbers = ("shards", "samples", "rows", "size_bytes", "payload_bytes", "lost_rows", "tasks", "tasks_before")
    read = {name: [getattr(one, name) for one in each] for name in ("source_shards", "samples_read", "filtered_rows")}
    if of_one:
        counts.update({reason: n for reason, n in each[0].counts.items() if is_filtered(reason)})
    return replace(
        each[0], **{name: sum(getattr(one, name) for one in each) for name in numbers},
        **{name: max(counted) if of_one else sum(counted) for name, counted in read.items()},
        seconds=time.perf_counter() - began, digest=None, verified=all(one.verified for one in each),
        counts=dict(counts), filtered=[row for one in each[: 1 if of_one else None] for row in one.filtered],
        lost=[row for one in each for row in one.lost],
        roots=[*dict.fromkeys(root for one in each for root in one.roots)],
        skipped_shards=[shard for one in each for shard in one.skipped_shards],
        differences=[found for one in each for found in one.differences], splits=splits,
    )  # fmt: skip
