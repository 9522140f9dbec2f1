"""Rows that a job left out or changed, with the reason: counted, and written to a ledger if there is one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.types import names_of
from lading._core.arrow.views import take_rows
from lading._core.features.items import is_interleaved_schema, lineage_of, sample_starts, samples_with
from lading.options import OnError

__all__ = [
    "ALONG",
    "DROPPED",
    "DROPPED_ALONG",
    "FILTERED",
    "FILTERED_ALONG",
    "KEPT",
    "LEDGER_NAME",
    "Outcomes",
    "RowOutcome",
    "failed_rows",
    "is_filtered",
]

_MOST_SHOWN = 5

LEDGER_NAME = "ledger.jsonl"
"""The ledger of a task, in the folder that the task is built in."""

FILTERED, FILTERED_ALONG = "filtered", "filtered with their samples"
"""Outcomes of rows that a filter rejects."""

DROPPED, DROPPED_ALONG, KEPT = "dropped", "dropped with their samples", "kept without payload"
"""Outcomes of rows whose payload is unavailable, as the policy says."""

ALONG = "rows of samples that are left out"
"""The reason of rows that were not rejected and did not fail."""


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """Rows of a batch that were left out, or not kept as they were, for one reason.

    Attributes:
        reason: a short phrase, the same for all of a kind.
        outcome: what happened to them: `filtered`, `dropped`, `kept without bytes` …
        batch: the batch as it was before.
        rows: the numbers of the rows in it.
        details: a text for each row; empty where the reason says all.
        numbers: the number of each row in its shard, from 0; None if unknown.
    """

    reason: str
    outcome: str
    batch: pa.RecordBatch
    rows: NDArray[np.int64]
    details: Sequence[str] = ()
    numbers: NDArray[np.int64] | None = None

    @property
    def filtered(self) -> bool:
        """Whether a filter rejected the rows; else their payload is lost, or they are with it."""
        return is_filtered(self.outcome)

    def entries(self, most: int | None = None) -> list[dict[str, Any]]:
        """One dict a row: its file and number there, its key, the reason, the outcome, the detail."""
        rows = self.rows[:most]
        schema = self.batch.schema
        files = lineage_of(schema)
        naming = ("sample_id", "position", "modality") if is_interleaved_schema(schema) else ("__key__",)
        names = [name for name in naming if name in schema.names]
        told = [names_of(column) for column in take_rows(self.batch.select(names), rows).columns]
        known = [dict(zip(names, row, strict=True)) for row in zip(*told, strict=True)] if names else [{} for _ in rows]
        common = {"reason": self.reason, "outcome": self.outcome}
        place = {"file": files[0]} if len(files) == 1 else {"files": files} if files else {}
        details = [{"detail": text} for text in self.details[:most]] or [{} for _ in known]
        numbers = [{} for _ in known] if self.numbers is None else [{"row": n} for n in self.numbers[:most].tolist()]
        return [
            {**place, **number, **row, **common, **detail}
            for number, row, detail in zip(numbers, known, details, strict=True)
        ]


def failed_rows(
    policy: OnError, batch: pa.RecordBatch, errors: Mapping[int, str], numbers: NDArray[np.int64] | None = None
) -> list[RowOutcome]:
    """Return the outcomes of rows whose payload is unavailable, and of rows that are dropped with them.

    Args:
        policy: what becomes of such rows; not `error`.
        batch: the rows before any is dropped.
        errors: why payload is unavailable, by row.
        numbers: the number of each row of the batch in its shard; None if unknown.
    """
    outcome = {"warn": KEPT, "drop_row": DROPPED, "drop_sample": DROPPED_ALONG}[policy]
    rows = np.array(list(errors), np.int64)
    placed = None if numbers is None else numbers[rows]
    found = [RowOutcome("rows with unavailable payload", outcome, batch, rows, list(errors.values()), placed)]
    if outcome == DROPPED_ALONG and "sample_id" in batch.schema.names:
        failing = np.isin(np.arange(batch.num_rows), rows)
        along = np.flatnonzero(samples_with(failing, sample_starts(batch.column("sample_id"))) & ~failing)
        placed = None if numbers is None else numbers[along]
        found.append(RowOutcome(ALONG, DROPPED, batch, along, numbers=placed))
    return found


def is_filtered(counted: str) -> bool:
    """Return whether a count of `Outcomes.counts` is of rows that a filter rejected, by its name."""
    return counted.rpartition(", ")[2] in (FILTERED, FILTERED_ALONG)


class Outcomes:
    """Gathers outcomes of rows: a count a reason, the first few in full, and all as lines of JSON for a ledger.

    Args:
        write: takes lines; None writes no ledger.

    Attributes:
        counts: rows by reason and outcome.
        rows: number of rows that were filtered, and that were lost.
        first: the first few of either, as `RowOutcome.entries` gives them.
    """

    def __init__(self, write: Callable[[bytes], None] | None = None) -> None:
        self._write = write
        self.counts: Counter[str] = Counter()
        self.rows = {"filtered": 0, "lost": 0}
        self.first: dict[str, list[Mapping[str, Any]]] = {"filtered": [], "lost": []}

    def add(self, outcome: RowOutcome) -> None:
        """Add the outcome of some rows."""
        self.counts[f"{outcome.reason}, {outcome.outcome}"] += len(outcome.rows)
        kind = "filtered" if outcome.filtered else "lost"
        self.rows[kind] += len(outcome.rows)
        if len(self.first[kind]) < _MOST_SHOWN:
            self._add_first(kind, outcome.entries(_MOST_SHOWN))
        if self._write is not None:
            lines = (orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in outcome.entries())
            self._write(b"".join(lines))

    def add_filtered(self, reason: str, count: int) -> None:
        """Add rows that were left out, of which only their number is told."""
        self.counts[f"{reason}, {FILTERED}"] += count
        self.rows["filtered"] += count

    def to_json(self) -> dict[str, Any]:
        """Return the counts and the first rows as JSON-able values."""
        return {"counts": dict(self.counts), "rows": self.rows, "first": self.first}

    def add_json(self, told: Mapping[str, Any]) -> None:
        """Add the counts and the first rows of another process."""
        self.counts.update(told["counts"])
        for kind, rows in told["rows"].items():
            self.rows[kind] += rows
            self._add_first(kind, told["first"][kind])

    def _add_first(self, kind: str, entries: Sequence[Mapping[str, Any]]) -> None:
        self.first[kind] += entries[: _MOST_SHOWN - len(self.first[kind])]
