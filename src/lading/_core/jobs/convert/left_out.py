"""Note what was left out before samples got a new order, such as duplicates: counted, and as lines of a ledger."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.types import names_of
from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.order.dedup import LeftOut
from lading._core.dataset.shards.random_access import unfetched_rows
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.writing.outcomes import FILTERED, Outcomes, RowOutcome
from lading._core.features.items import LINEAGE_KEY
from lading._core.manifest.values import lookup

__all__ = ["note_left_out"]

_TOGETHER, _SHOWN = 16_384, 5


def note_left_out(shards: Shards, chosen: ChosenSamples, losses: Outcomes, *, listed: bool) -> None:
    """Add the samples that were left out, and what was reported before the new order was known.

    Args:
        shards: the source.
        chosen: the samples in their new order.
        losses: the outcomes, to which is added. The ledger has the rows of conditions and functions already.
        listed: whether all duplicates are written to a ledger; otherwise the keys of the first few are read.
    """
    shards.counts.update(chosen.reported - shards.counts)  # the second reading reports the same
    losses.add_json(chosen.outcomes.to_json())
    for each in chosen.left_out.values():
        count = len(each.numbers) if listed else min(_SHOWN, len(each.numbers))
        for first in range(0, count, _TOGETHER):
            some = slice(first, min(first + _TOGETHER, count))
            _note(shards, losses, LeftOut(each.reason, each.numbers[some], each.kept[some]))
        rest = len(each.numbers) - count
        if rest:
            losses.add_filtered(each.reason, rest)


def _note(shards: Shards, losses: Outcomes, left: LeftOut) -> None:
    numbers, kept = left.numbers, left.kept
    keys, others = _keys(shards, numbers), _keys(shards, kept)
    names = shards.row_layout.key
    known = kept.tolist() if others is None else names_of(others)
    details = [f"equal to sample {name!r}" for name in known]
    shard, ordinal = lookup(shards.sample_ends(), numbers)
    for number in np.unique(shard).tolist():
        rows = np.flatnonzero(shard == number)
        column = pa.nulls(len(rows)) if keys is None else keys.take(pa.array(rows))
        lineage = {LINEAGE_KEY: orjson.dumps([shards.path(number)])}
        batch = pa.record_batch([column], pa.schema([pa.field("" if keys is None else names, column.type)], lineage))
        placed = shards.row_layout.row_of(ordinal[rows])
        losses.add(
            RowOutcome(left.reason, FILTERED, batch, np.arange(len(rows)), [details[i] for i in rows.tolist()], placed)
        )


def _keys(shards: Shards, numbers: NDArray[np.int64]) -> pa.Array | None:
    """Return the keys of samples; None if they have none."""
    layout = shards.row_layout
    if not layout.is_keyed and shards.fixed_schema and layout.key not in shards.schema.names:
        return None
    return layout.keys(unfetched_rows(shards, numbers, [layout.key]))
