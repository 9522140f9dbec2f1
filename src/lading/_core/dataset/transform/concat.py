"""Datasets one after another, of any formats: their shards are those of one dataset, and get the columns of all."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading._core.dataset.shards.shards import ReadPlan
from lading._core.dataset.transform.part_shards import FORMAT, Part, PartShards, listing_of
from lading._core.storage.fetch import Fetcher
from lading._core.storage.stores import Stores
from lading.errors import UsageError
from lading.options import ReadOptions

if TYPE_CHECKING:
    from lading._core.dataset.dataset import Dataset
    from lading._core.dataset.steps.base import Step

__all__ = ["Parts", "concat"]


def concat(datasets: Sequence[Dataset], *, types: Mapping[str, pa.DataType] | pa.Schema | None = None) -> Dataset:
    """Return one dataset of several, one after another. They may have different formats, options and steps.

    Columns have the type that holds all values. A column that a dataset lacks is null in its rows. Samples without a
    key get one (`0001-000000017`: the dataset and the sample in it) if other datasets have keys. Keys may repeat.
    Documents of any formats are concatenated with documents.

    Example:
        lading.concat([lading.open("tars/*.tar"), lading.open("more.parquet")]).write("all", format="webdataset")

    Args:
        datasets: the datasets.
        types: types of some columns, for columns that no type holds otherwise.

    Raises:
        UsageError: no dataset, something else than a dataset, or samples together with documents.
        SchemaMismatch: no type holds the values of a column in all datasets (when the columns are asked for).
    """
    given = types if types is None or isinstance(types, pa.Schema) else pa.schema(list(types.items()))
    parts = Parts(tuple(datasets), given)
    named = [each.read.stores for each in parts.datasets if each.read.stores is not None]
    stores = Stores(
        {prefix: store for each in named for prefix, store in each.by_prefix.items()},
        {prefix: options for each in named for prefix, options in each.options.items()},
    )
    return _reopened(parts, ReadOptions(format=FORMAT.name, stores=stores), ())


@dataclass(frozen=True, eq=False)
class Parts:
    """The source of a dataset that is several datasets one after another.

    Attributes:
        datasets: the datasets.
        types: types that the caller gives to some columns.
    """

    datasets: tuple[Dataset, ...]
    types: pa.Schema | None = None

    def __post_init__(self) -> None:
        """Refuse none, other values than datasets, and documents together with samples."""
        if not self.datasets:
            raise UsageError("no dataset to concatenate", advice="Give at least one.")
        for each in self.datasets:
            if not hasattr(each, "steps"):
                raise UsageError("concat takes datasets", found=repr(each)[:80], advice="Open it with lading.open.")
        views = {each.view: each for each in reversed(self.datasets)}
        if len(views) > 1:
            raise UsageError(
                "documents of items and samples are not concatenated",
                found=", ".join(f"{view} in {each.source!s}" for view, each in sorted(views.items())),
                advice="Concatenate documents with documents. --view samples takes the rows of documents as samples.",
            )  # fmt: skip

    def __iter__(self) -> Iterator[str]:
        """Give the names of the sources, for whatever shows them."""
        return (str(each.source) for each in self.datasets)

    def __repr__(self) -> str:
        return " + ".join(self)

    def shards(self, read: ReadOptions) -> PartShards:
        """Open the shards of all datasets; bad ones are skipped where all datasets skip them."""
        parts = [Part(each._opened(mmap=read.mmap), each.steps) for each in self.datasets]  # noqa: SLF001 - the parts of a dataset
        opened, stores = [part.shards for part in parts], read.stores or Stores()
        skips = all(each.bad.policy == "skip" for each in opened)
        plan = ReadPlan(opened[0].view, on_bad_shard="skip" if skips else "error")
        fetcher = Fetcher(stores, mmap=read.mmap, limits=opened[0].limits)
        names = [_name(str(each.source), number) for number, each in enumerate(self.datasets)]
        return PartShards(parts, listing_of(parts), plan, names=names, types=self.types, fetcher=fetcher, stores=stores)


def _name(source: str, number: int) -> str:
    """A dataset as errors name it."""
    return f"{shlex.quote(source)} (part {number})"


def _reopened(source: Any, read: ReadOptions, steps: tuple[Step, ...]) -> Dataset:
    kind: type[Dataset] = type(source.datasets[0])
    return kind(_reopened, source, read, source.shards(read), steps)
