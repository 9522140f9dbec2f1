"""The step that says how a dataset is cut into shards when it is written. It changes no row."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from lading._core.dataset.steps.base import Step
from lading.options import refuse_two_cuts

__all__ = ["Repartition"]


@dataclass(frozen=True, slots=True)
class Repartition(Step):
    """Cut the shards that are written by one of these.

    Attributes:
        shard_size: size of a shard on disk.
        num_shards: number of shards.
        rows_per_shard: samples of a shard.
    """

    shard_size: int | str | None = None
    num_shards: int | None = None
    rows_per_shard: int | None = None

    def __post_init__(self) -> None:
        """Refuse none of them, or several."""
        refuse_two_cuts(self.shard_size, self.num_shards, self.rows_per_shard, needs_one=True)

    @property
    def cut(self) -> dict[str, Any]:
        """How shards are cut, as arguments of writing."""
        return asdict(self)

    def __repr__(self) -> str:
        [given] = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        return f"repartition({given}={getattr(self, given)!r})"
