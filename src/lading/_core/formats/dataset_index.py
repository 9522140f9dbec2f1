"""What a dataset's own index says of its shards: files, counts, checksums, splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["JoinedIndex", "ListedFile", "ListedShard", "SplitList"]


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
