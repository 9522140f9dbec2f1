"""A dataset's own index: a peer's list of the shards of a folder, of its splits, and of a shard's files.

A format that has one gives a `DatasetIndex`. Its defaults are those of a format without an index.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from lading._core.formats.base import ShardFacts, ShardFile
from lading._core.formats.findings import Finding
from lading._core.storage.base import FileInfo, Store
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["DatasetIndex", "JoinedIndex", "ListedFile", "ListedShard", "LooseFiles", "SplitList"]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A further file of a shard in a dataset's own index: a second file, or a compressed copy.

    Attributes:
        path: its path.
        size_bytes: its expected size; None if the index gives none.
        hashes: expected hex digests, by algorithm.
        needed: whether reading the shard needs it; other files may be missing.
    """

    path: str
    size_bytes: int | None
    hashes: Mapping[str, str]
    needed: bool


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard in a dataset's own index; None where the index gives no value.

    Attributes:
        path: its path, resolved against the folder of the index.
        num_samples: expected number of rows.
        size_bytes: expected size of its file.
        hashes: expected hex digests of its file, by algorithm (`{"md5": …}`).
        entry: its whole entry, in a form that the format's reader understands; empty if there is no more to know.
        beside: its further files.
        version: version of its file, if it was listed with the file.
        alone, partition: as in `ShardFile`.
    """

    path: str
    num_samples: int | None = None
    size_bytes: int | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    entry: str = ""
    beside: tuple[ListedFile, ...] = ()
    version: str = ""
    alone: bool = False
    partition: str = ""


@dataclass(frozen=True, slots=True)
class SplitList:
    """The splits of a folder, as a peer's own list has them.

    Attributes:
        shards: shards of each split, by its name.
        left_out: counts of what belongs to no split, by a short phrase.
    """

    shards: Mapping[str, Sequence[ListedShard]]
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JoinedIndex:
    """The indexes of several datasets as one index.

    Attributes:
        shards: number of shards.
        samples: number of samples.
        files: all files that the index names.
        write: writes the index.
    """

    shards: int
    samples: int
    files: Sequence[str]
    write: Callable[[], object]


class DatasetIndex:
    """A peer's own index of a dataset; this one is that of a format without an index.

    Attributes:
        names: names of files that may be an index in the folder of a dataset, each with a regular expression of the
            names (without folders) of shards that need it to be a dataset.
        splits_name: name of the index of several datasets, each in a folder of its own; empty if there is none.
        split_lists: names of a peer's lists of splits, below the folder of the shards; the first one counts.
        other_names: names of lists that a peer's readers need and that lading does not open folders by.
        unlisted: endings of shards that are also endings of other formats; only an index distinguishes them.
    """

    names: ClassVar[Mapping[str, str]] = {}
    splits_name: ClassVar[str] = ""
    split_lists: ClassVar[tuple[str, ...]] = ()
    other_names: ClassVar[tuple[str, ...]] = ()
    unlisted: ClassVar[tuple[str, ...]] = ()

    def shards(self, store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
        """Return the shards that a file lists; None if it is no index of this kind.

        A list in `other_names` may lack empty shards.

        Args:
            store: the store of the file.
            path: the file, by any name.
            head: its first bytes; all that is read of most files.
            limits: limits on what it may ask for.

        Raises:
            DataError: the index is broken. NotFound: there is no such file.
            LimitExceeded: the index is larger than `index_bytes`.
        """
        return None

    def schema(self, store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> pa.Schema | None:
        """Return the columns that an index gives for a dataset without shards. Raises DataError if it is broken."""
        return None

    def splits(
        self, store: Store, path: str, files: Sequence[FileInfo], limits: Limits = DEFAULT_LIMITS
    ) -> SplitList | None:
        """Return the splits in one of the `split_lists`; None if it tells none.

        Args:
            store: the store of the list and of the shards.
            path: path of the list.
            files: files of the format below the folder, those of the list among them.
            limits: limits on what the list may ask for.

        Raises:
            DataError: the list is invalid. LimitExceeded: it is larger than `index_bytes`.
        """
        return None

    def write(self, store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]], options: Any) -> list[str]:
        """Write the index files of a folder of finished shards; return their paths.

        Args:
            store: the store of the folder.
            folder: the folder.
            shards: facts of each shard, by its path below the folder.
            options: the format's options of writing; None if the shards were written at another time. Then further
                lists that options ask for are left out.
        """
        return []

    def write_splits(self, store: Store, folder: str, splits: Sequence[str], options: Any) -> bool:
        """Write the index of several datasets in folders of these names; return whether there is such an index."""
        return False

    def join(
        self, store: Store, folder: str, parts: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> JoinedIndex | None:
        """Read the indexes in folders below a folder, as one index of the folder; None if they cannot be joined.

        Raises:
            DataError: an index is broken, or of another format.
        """
        return None

    def renamed(self, entry: str, name: str) -> tuple[str, Sequence[str]]:
        """Return the entry of a shard (`ShardFacts.entry`) whose file has this name now, and all files that it names.

        Some of the files may be missing: compressed and unpacked ones are named.
        """
        return entry, ()

    def count(self, file: ShardFile, options: Any) -> int | None:
        """Return the number of samples in a shard as lists in `other_names` count them; None if none does.

        Args:
            file: the shard.
            options: the format's options of reading.

        Raises:
            DataError, StoreError: the shard cannot be read.
        """
        return None

    def checks(
        self, store: Store, path: str, shards: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> Iterator[Finding]:
        """Yield columns for which an index contradicts the shards that it lists. Reads no rows.

        Raises:
            DataError, StoreError: the index cannot be read.
        """
        yield from ()


class LooseFiles(ABC):
    """How the files of a folder become shards, for a format whose shard is a list of loose files, and no file itself.

    Attributes:
        format: name of the format.
        described_by: names of files that describe the files next to them, also where another format claims them.
    """

    format: ClassVar[str]
    described_by: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def claims(self, files: Sequence[FileInfo]) -> bool:
        """Return whether a folder with these files, which no format claims, is a dataset."""

    @abstractmethod
    def shards(self, root: str, files: Sequence[FileInfo]) -> tuple[list[ListedShard], Mapping[str, int]]:
        """Return lists of files as shards, and counts of other files.

        Args:
            root: what the paths of all files begin with: a folder with its final slash, or nothing.
            files: the files, by path.
        """
