"""What jobs and training take: a source, how it is read, and the steps behind it, as one value."""

from __future__ import annotations

import dataclasses
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from lading._core.dataset.order.chosen import ChosenSamples
from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.source.pruning import shards_that_fit
from lading._core.dataset.source.rows import Openable, shard_source
from lading._core.dataset.source.shard_source import ShardSource
from lading._core.dataset.steps.base import Step
from lading._core.storage.roots import absolute_path
from lading._core.storage.store_options import with_cache
from lading._core.storage.stores import Stores
from lading.errors import UsageError
from lading.options import ReadOptions

if TYPE_CHECKING:
    from lading._core.dataset.opened import OpenDataset

__all__ = ["HoldsQuery", "Query", "Queryable", "open_shards", "refuse_opening"]

_USUAL = ReadOptions()


class HoldsQuery(ABC):
    """Something that is a query to jobs and training: a dataset."""

    __slots__ = ()

    @property
    @abstractmethod
    def query(self) -> Query:
        """The source, how it is read, and the steps."""


@dataclass(frozen=True, slots=True)
class Query:
    """All that a process needs to give the samples of a dataset. It can be pickled.

    Example:
        query = Query.of("docs/*.parquet", view="samples")
        with query.open_shards() as shards: ...

    Attributes:
        source: where the shards come from.
        read: how they are read.
        steps: what chooses and changes their rows, in order.
        opened: the same dataset, open in this process, if there is one. No part of the value: a copy made by pickle or
            `replace` has none.
    """

    source: ShardSource
    read: ReadOptions = _USUAL
    steps: tuple[Step, ...] = ()
    opened: OpenDataset | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, source: Queryable, **opening: Any) -> Query:
        """Return the query of a dataset, or of a source that is named, as jobs take both.

        Args:
            source: as `lading.open` takes it, a dataset, or a query.
            opening: the other arguments of `lading.open`. A dataset and a query have their own.

        Raises:
            UsageError: a dataset is given, and arguments of opening too.
        """
        held = cls.held_by(source)
        if held is None:
            read = ReadOptions(**_with_stores(opening))
            return cls(shard_source(source, read.schema).pinned(read.stores), read)  # type: ignore[arg-type] # no dataset
        refuse_opening(opening)
        return held

    @staticmethod
    def held_by(source: object) -> Query | None:
        """Return the query of a dataset, or the query that is given; None for what is no dataset yet."""
        if isinstance(source, HoldsQuery):
            return source.query
        return source if isinstance(source, Query) else None

    @property
    def stores(self) -> Stores:
        """Which store serves which URL."""
        return self.read.stores or Stores()

    @property
    def made(self) -> ChosenSamples | None:
        """The samples behind the steps with what their functions made already in this process."""
        return None if self.opened is None else self.opened.chosen

    def replace(self, **changes: Any) -> Query:
        """Return the query with another source, other options of reading, or other steps."""
        return dataclasses.replace(self, **{"opened": None, **changes})

    def reading(self, **changes: Any) -> Query:
        """Return the query with other values of some options of reading."""
        return self.replace(read=dataclasses.replace(self.read, **changes))

    def absolute(self) -> Query:
        """Return the query for a process with another current folder."""
        roots = [absolute_path(os.fspath(root)) for root in self.read.roots]
        return self.replace(source=self.source.absolute(self.stores), read=dataclasses.replace(self.read, roots=roots))

    def open_shards(self, *, mmap: bool = False) -> Shards:
        """Open the shards of the source, without those of partitions that the steps reject.

        Without `mmap` local files are read and never mapped, as jobs need it: a file that is truncated under a map ends
        the process.
        """
        return shards_that_fit(self.source.open(dataclasses.replace(self.read, mmap=mmap)), self.steps)

    def samples_of(self, shards: Shards) -> ChosenSamples | None:
        """Return the samples of open shards behind the steps; None without steps."""
        return ChosenSamples(shards, self.steps) if self.steps else None

    def __reduce__(self) -> tuple[Callable[..., Query], tuple[object, ...]]:
        return Query, (self.source, self.read, self.steps)


Queryable: TypeAlias = Openable | HoldsQuery | Query
"""What jobs and training take as their source."""


def open_shards(source: Queryable, **opening: Any) -> Shards:
    """Open the shards of a source as a job does. `opening` are the other arguments of `lading.open`."""
    return Query.of(source, **opening).open_shards()


def _with_stores(opening: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `lading.open` with `storage_options`, if given, as part of `stores`."""
    known = dict(opening)
    options = with_cache(*(known.pop(name, None) for name in ("storage_options", "cache_dir", "cache_limit")))
    return {**known, "stores": Stores.of(known.get("stores"), options)} if options else known


def refuse_opening(opening: Mapping[str, Any]) -> None:
    """Raise UsageError for arguments of opening where a dataset is given."""
    given = [name for name, value in opening.items() if value != getattr(_USUAL, name, None)]
    if given:
        raise UsageError("a dataset is open already, and arguments of opening are given", found=", ".join(given),
                         advice="Give these arguments to lading.open.")  # fmt: skip
