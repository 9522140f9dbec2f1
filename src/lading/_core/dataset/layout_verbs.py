"""The methods of a dataset that say how it is cut into shards when it is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self, cast

from lading._core.dataset.query import Query
from lading._core.dataset.steps.base import Step
from lading._core.dataset.steps.repartition import Repartition
from lading._core.dataset.transform.concat import concatenated

if TYPE_CHECKING:
    from lading._core.dataset.dataset import Dataset

__all__ = ["LayoutVerbs"]


class LayoutVerbs(ABC):
    """Every method gives a new dataset, and reads nothing."""

    __slots__ = ()

    @abstractmethod
    def _with(self, *steps: Step) -> Self:
        """The dataset with more steps."""

    def repartition(
        self,
        *,
        shard_size: int | str | None = None,
        num_shards: int | None = None,
        rows_per_shard: int | None = None,
    ) -> Self:
        """Say how the dataset is cut into shards when it is written. The samples and their order stay.

        `ds.write("out", num_shards=16)` does the same; an argument of `write` comes before this step.

        Example: `ds.repartition(num_shards=16).write("out", format="webdataset")`

        Args:
            shard_size: size of a shard on disk, in bytes or as text (`"256MB"`).
            num_shards: number of shards. Their numbers of samples differ by at most one.
            rows_per_shard: samples of a shard; the last one has the rest.

        Raises:
            UsageError: none of the three is given, or several. When the dataset is written: fewer samples than shards.
        """
        return self._with(Repartition(shard_size, num_shards, rows_per_shard))

    @classmethod
    @abstractmethod
    def _of(cls, query: Query) -> Self:
        """Another dataset."""

    def concat(self, *others: Dataset) -> Self:
        """Put other datasets behind this one; see `lading.concat`.

        Example: `ds.concat(lading.open("more.parquet"))`
        """
        return self._of(concatenated([cast("Dataset", self), *others]))
