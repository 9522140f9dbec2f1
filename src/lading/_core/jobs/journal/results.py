"""Results of tasks, taken into the dataset in the order of the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lading._core.content.digests import DatasetDigest
from lading._core.dataset.shards.bad_shards import BadShards
from lading._core.dataset.writing.outcomes import LEDGER_NAME, Outcomes
from lading._core.dataset.writing.writer import DatasetWriter
from lading._core.jobs.engine.messages import DIGESTS_NAME, decode_part, decode_skipped
from lading._core.storage.base import Buffer, Sink, Store

__all__ = ["Results", "TaskResult"]

TaskResult: TypeAlias = Mapping[str, Any]
"""What a task of a conversion answers, and what its record holds: JSON (`_core.jobs.convert.convert_task`)."""


@dataclass(frozen=True, slots=True)
class Results:
    """What the tasks of a conversion found.

    Attributes:
        counts: what was reported, by a short phrase.
        bad: shards that were skipped.
        losses: rows that were left out or changed.
        digest: content digest of the samples; None if the tasks take none.
        ledger: file of the rows that are lost; None where none is kept.
    """

    counts: Counter[str]
    bad: BadShards
    losses: Outcomes
    digest: DatasetDigest | None = None
    ledger: Sink | None = None

    def take(self, writer: DatasetWriter, store: Store, answer: TaskResult, first: int) -> None:
        """Take the result of the task that is next.

        Args:
            writer: takes the shards.
            store: of the destination.
            answer: of the task.
            first: the first source shard of the task.
        """
        folder = answer["folder"]
        if self.digest is not None:
            digests = _stored(store, f"{folder}/{DIGESTS_NAME}")
            self.digest.update(np.frombuffer(digests, np.uint8).reshape(-1, 16))
        if self.ledger is not None:
            self.ledger.write([_stored(store, f"{folder}/{LEDGER_NAME}")])
        writer.adopt(decode_part(answer["part"]), folder)
        self.counts.update(answer["reported"])
        for number, skipped in decode_skipped(answer["skipped"]).items():
            self.bad.add(first + number, skipped)
        self.losses.add_json(answer["outcomes"])


def _stored(store: Store, path: str) -> Buffer:
    [data] = store.get_ranges(path, [(0, store.head(path).size_bytes)])
    return data
