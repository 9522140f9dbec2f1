"""The methods of a dataset that say how it is cut into shards when it is written."""

from __future__ import annotations

from typing import Self

from lading._core.api.verbs import Verbs
from lading._core.arguments import public
from lading._core.dataset.opened import OpenDataset
from lading._core.dataset.query import Queryable
from lading._core.dataset.steps.repartition import Repartition
from lading._core.dataset.transform.concat import concatenated

__all__ = ["LayoutVerbs"]


@public("ds")
class LayoutVerbs(Verbs):
    """Every method gives a new dataset, and reads nothing."""

    __slots__ = ()

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

    def concat(self, *others: Queryable) -> Self:
        """Put other datasets, or what `lading.open` takes, behind this one; see `lading.concat`.

        Example: `ds.concat(lading.open("more.parquet"))`
        """
        return type(self)(OpenDataset.of(concatenated([self, *others])))
