"""What a job left out or could not have, row by row: counted by reason, told in full in a ledger, if one is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading.arrow.types import names_of
from lading.arrow.views import take_rows
from lading.features.items import is_interleaved_schema, lineage_of

__all__ = ["ALONG", "DROPPED", "DROPPED_ALONG", "KEPT", "LEDGER_NAME", "Loss", "Losses"]

_MOST_TOLD = 5

LEDGER_NAME = "ledger.jsonl"
"""The ledger of a task, in the folder that the task is built in."""

DROPPED, DROPPED_ALONG, KEPT = "dropped", "dropped with their samples", "kept without bytes"
"""What becomes of rows that fail."""

ALONG = "rows of samples that are left out"
"""The reason of rows that did not fail."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows of a batch that were left out, or not kept as they were, for one reason.

    Attributes:
        reason: a short phrase, the same for all of a kind.
        fate: what became of them: `dropped`, `dropped with their samples`, `kept without bytes`.
        batch: the batch as it was before.
        rows: which of its rows failed.
        details: what there is to say of each; empty where the reason says all.
    """

    reason: str
    fate: str
    batch: pa.RecordBatch
    rows: NDArray[np.int64]
    details: Sequence[str] = ()

    def entries(self, most: int | None = None) -> list[dict[str, Any]]:
        """A dict a row: its file, what names it, the reason, its fate, what there is to say."""
        rows = self.rows[:most]
        schema = self.batch.schema
        files = lineage_of(schema)
        naming = ("sample_id", "position", "modality") if is_interleaved_schema(schema) else ("__key__",)
        names = [name for name in naming if name in schema.names]
        told = [names_of(column) for column in take_rows(self.batch.select(names), rows).columns]
        known = [dict(zip(names, row, strict=True)) for row in zip(*told, strict=True)] if names else [{} for _ in rows]
        common = {"reason": self.reason, "fate": self.fate}
        place = {"file": files[0]} if len(files) == 1 else {"files": files} if files else {}
        details = [{"detail": text} for text in self.details[:most]] or [{} for _ in known]
        return [{**place, **row, **common, **detail} for row, detail in zip(known, details, strict=True)]


class Losses:
    """Gathers losses: a count a reason, the first few in full, and all of them as lines of JSON for a ledger.

    Args:
        write: takes lines; None keeps no ledger.

    Attributes:
        counts: rows by reason and fate.
        first: the first few, as `Loss.entries` gives them.
    """

    def __init__(self, write: Callable[[bytes], None] | None = None) -> None:
        self._write = write
        self.counts: Counter[str] = Counter()
        self.first: list[Mapping[str, Any]] = []

    def add(self, loss: Loss) -> None:
        """Take down one loss."""
        self.counts[f"{loss.reason}, {loss.fate}"] += len(loss.rows)
        if len(self.first) < _MOST_TOLD:
            self.tell_first(loss.entries(_MOST_TOLD))
        if self._write is not None:
            self._write(b"".join(orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE) for entry in loss.entries()))

    def tell_first(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Take these among the first, as long as there is room; they are counted elsewhere."""
        self.first += entries[: _MOST_TOLD - len(self.first)]
