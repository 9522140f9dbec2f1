"""A conversion whose source is open and whose destination is known, for all that plans and does the conversion."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa

from lading._core.dataset.shards.shards import Shards
from lading._core.dataset.writing.single_file import is_file_name
from lading._core.formats.format import AnyFormat
from lading._core.formats.registry import get_format
from lading._core.jobs.convert.job import Job
from lading._core.manifest.commit import Staging, find_destination
from lading._core.storage.base import Sink, Store
from lading._core.storage.stores import Stores
from lading.options import WriteOptions

__all__ = ["Destination", "OpenJob"]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a conversion writes.

    Attributes:
        name: the destination as the user named it.
        store: its store.
        path: its path there.
        is_file: whether it is one file.
        whole: where the larger dataset is built that this one is a part of; None for a dataset of its own.
    """

    name: str
    store: Store
    path: str
    is_file: bool
    whole: Staging | None = None

    @classmethod
    def of(cls, name: str | os.PathLike[str], stores: Stores, whole: Staging | None = None) -> Destination:
        """Return the destination of a name. Raises UsageError if it names no folder."""
        return cls(os.fspath(name), *find_destination(name, stores), is_file_name(name), whole)

    @property
    def place(self) -> tuple[Store, str]:
        """The store, and the path there."""
        return self.store, self.path


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A conversion whose source is open, and whose destination may be written.

    Attributes:
        job: what is asked for. The options of writing are those that are used.
        shards: the source.
        to: the destination.
        held: ends what the conversion holds, such as its workers.
        ledger: file of the rows that are lost; None where none is kept.
        copies: whether samples become samples of the same format, and nothing changes.
        members: the schema that members of tars stand for, if tars are copied.
        rank: the rank of this process, and the number of ranks; None without ranks.
        began: when the conversion began.
    """

    job: Job
    shards: Shards
    to: Destination
    held: ExitStack
    ledger: Sink | None = None
    copies: bool = False
    members: pa.Schema | None = None
    rank: tuple[int, int] | None = None
    began: float = field(default_factory=time.perf_counter)

    @property
    def write(self) -> WriteOptions:
        """How the destination is written."""
        return self.job.write

    @property
    def target(self) -> AnyFormat:
        """The format of the destination."""
        return get_format(self.write.format)

    @property
    def verifies(self) -> bool:
        """Whether the destination is read back."""
        return self.write.verify and not self.write.dry_run

    @property
    def counts_keys(self) -> bool:
        """Whether equal keys of several datasets are counted: tars name their members by keys."""
        return self.job.query.source.repeats_keys and self.target.info.interleaved == "members"

    @property
    def source_format(self) -> str:
        """The formats of the source, in words."""
        return " + ".join(dict.fromkeys(each.format for each in self.shards.sources()))
