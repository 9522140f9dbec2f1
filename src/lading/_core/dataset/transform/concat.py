"""Datasets one after another, of any formats: their shards are those of one dataset, and get the columns of all."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from lading._core.dataset.opened import opened
from lading._core.dataset.query import Query, Queryable
from lading._core.dataset.shards.shards import ReadPlan
from lading._core.dataset.source.shard_source import ShardSource
from lading._core.dataset.transform.part_shards import FORMAT, Part, PartShards, listing_of
from lading._core.storage.fetch import Fetcher
from lading._core.storage.stores import Stores
from lading.errors import UsageError
from lading.options import ReadOptions

__all__ = ["Parts", "concatenated"]


def concatenated(datasets: Sequence[Queryable], types: Mapping[str, pa.DataType] | pa.Schema | None = None) -> Query:
    """Return several datasets, one after another, as one query. Those that are not open are opened.

    Raises UsageError, as `lading.concat`.
    """
    if not datasets:
        raise UsageError("no dataset to concatenate", advice="Give at least one.")
    queries = [Query.held_by(each) or opened(each).query for each in datasets]
    _refuse_mixed_views(queries)
    stores = Stores.joined(each.read.stores for each in queries)
    given = types if types is None or isinstance(types, pa.Schema) else pa.schema(list(types.items()))
    parts = Parts(tuple(query.replace() for query in queries), given)
    return Query(parts, ReadOptions(format=FORMAT.name, stores=stores))


@dataclass(frozen=True, eq=False)
class Parts(ShardSource):
    """The shards of several datasets, one dataset after another.

    Attributes:
        queries: the datasets.
        types: types that the caller gives to some columns.
    """

    repeats_keys: ClassVar[bool] = True

    queries: tuple[Query, ...]
    types: pa.Schema | None = None

    @property
    def names(self) -> list[str]:
        """The names of the sources: what opens all files as those of one dataset, without the steps."""
        given = [each.source.names for each in self.queries]
        return [names if isinstance(names, str) else str(names) for names in given]

    @property
    def is_temporary(self) -> bool:
        """Whether the files of any dataset are."""
        return any(each.source.is_temporary for each in self.queries)

    def open(self, read: ReadOptions) -> PartShards:
        """Open the shards of all datasets; bad ones are skipped where all datasets skip them."""
        parts = [Part(each.open_shards(mmap=read.mmap), each.steps) for each in self.queries]
        opened, stores = [part.shards for part in parts], read.stores or Stores()
        skips = all(each.bad.policy == "skip" for each in opened)
        plan = ReadPlan(opened[0].view, on_bad_shard="skip" if skips else "error")
        fetcher = Fetcher(stores, mmap=read.mmap, limits=opened[0].limits)
        names = [f"{shlex.quote(name)} (part {number})" for number, name in enumerate(self.names)]
        return PartShards(parts, listing_of(parts), plan, names=names, types=self.types, fetcher=fetcher, stores=stores)

    def absolute(self, stores: Stores) -> Parts:  # noqa: ARG002 - each dataset has its own
        """Return the same datasets for a process with another current folder."""
        return Parts(tuple(each.absolute() for each in self.queries), self.types)

    def __str__(self) -> str:
        return " + ".join(self.names)


def _refuse_mixed_views(queries: Sequence[Query]) -> None:
    """Raise UsageError for documents together with samples."""
    views = {each.read.view or "samples": each for each in reversed(queries)}
    if len(views) > 1:
        raise UsageError(
            "documents of items and samples are not concatenated",
            found=", ".join(f"{view} in {each.source!s}" for view, each in sorted(views.items())),
            advice="Concatenate documents with documents. --view samples takes the rows of documents as samples.",
        )  # fmt: skip
