"""Arrow caches under stable-datasets' names: the same arguments, defaults, shards and kinds of errors.

    features = Features({"image": Image(), "label": ClassLabel(names=["cat", "dog"])})
    folder = cache / cache_fingerprint("Pets", "1.0.0", "default", "train")
    meta = write_sharded_arrow_cache(generator, features, folder)

Source: stable-datasets at b20399a (cache.py, schema.py), before folder names depended on a storage format. Caches are
written by `_core.caches` in the layout of later versions; fingerprints and folder names are those of this one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lading import caches
from lading import features as logical
from lading._core.caches.layout import older_fingerprint, older_spelling, schema_of
from lading._core.features.encode import plain_item
from lading._core.features.types import Array3D, ClassLabel, Feature, Image, Sequence, Value, encode
from lading.caches import CacheMeta
from lading.errors import SidecarMismatch

__all__ = [
    "DEFAULT_SHARD_SIZE_BYTES",
    "Array3D",
    "ClassLabel",
    "Features",
    "Image",
    "Sequence",
    "ShardedCacheMeta",
    "Value",
    "Video",
    "cache_fingerprint",
    "encode_example",
    "read_shard",
    "read_sharded_cache_meta",
    "validate_sharded_cache",
    "write_sharded_arrow_cache",
]

DEFAULT_SHARD_SIZE_BYTES = 256 << 20
_MOST_BATCH_BYTES = 256 << 20
"""A batch of larger values ends before `batch_size` rows; the peer holds all of them in memory."""


class _PathOfVideo(type):
    def __instancecheck__(cls, feature: object) -> bool:
        return feature == logical.Video("text")


class Video(metaclass=_PathOfVideo):
    """A video that is kept as its path: `lading.features.Video("text")`. The file stays where it is."""

    def __new__(cls) -> logical.Video:  # type: ignore[misc] # a name of another class
        """Return the feature."""
        return logical.Video("text")


class Features(dict[str, Feature]):
    """Feature of each column, in order.

    Example:
        Features({"label": ClassLabel(num_classes=10)}).to_arrow_schema()
    """

    def to_arrow_schema(self) -> pa.Schema:
        """Return the schema of a cache's shards. Raises WrongFeature for one that caches cannot store."""
        return schema_of(self)

    def __repr__(self) -> str:
        return older_spelling(self)


@dataclass
class ShardedCacheMeta:
    """Metadata of a cache.

    Attributes:
        cache_dir: folder of the cache.
        num_rows: rows of all shards.
        num_shards: number of shards; 0 if there are no rows.
        shard_filenames: names of the shards in the folder, in order.
        shard_row_counts: rows of each shard.
        schema_fingerprint: 16 hex digits.
    """

    cache_dir: Path
    num_rows: int
    num_shards: int
    shard_filenames: list[str]
    shard_row_counts: list[int]
    schema_fingerprint: str

    def __post_init__(self) -> None:
        self.cache_dir = Path(self.cache_dir)

    @property
    def shard_paths(self) -> list[Path]:
        """Return the path of each shard."""
        return [self.cache_dir / name for name in self.shard_filenames]


def write_sharded_arrow_cache(
    generator: Iterable[Any],
    features: Mapping[str, Feature],
    cache_dir: str | os.PathLike[str],
    *,
    shard_size_bytes: float | str | None = DEFAULT_SHARD_SIZE_BYTES,
    batch_size: int = 1000,
    compression: str | None = None,
    num_encode_workers: int = 0,
    lineage: Mapping[str, Any] | None = None,
) -> ShardedCacheMeta:
    """Write the examples of a generator to a folder of Arrow shards, and replace the old cache in one step.

    A column that an example lacks is null, and keys that are not columns are left out. No value is truncated:
    `lading.caches.write_cache`, which does the work, has more options.

    Args:
        generator: pairs of a key and an example.
        features: feature of each column.
        cache_dir: a local folder.
        shard_size_bytes: a shard ends when its batches hold this much in memory, a number or a text such as `256MB`;
            `float("inf")` or None: one shard.
        batch_size: rows of a batch. A batch of 256 MiB ends earlier.
        compression: of the shards' buffers: `zstd`, `lz4` or None.
        num_encode_workers: threads that encode.
        lineage: JSON-able values to keep in the metadata.

    Raises:
        Unrepresentable: a value does not fit its feature (a ValueError); of another type: WrongType (a TypeError); a
            label without number: UnknownLabel (a KeyError). Names row, key and column.
        NotFound: the file of an image does not exist (a FileNotFoundError).
        UsageError: an option, a feature or an example is invalid (a ValueError).
        DestinationExists: the folder holds something other than a cache.
    """
    schema_of(features)  # refuses what has no fingerprint
    meta = caches.write_cache(
        generator,
        features,
        cache_dir,
        shard_size=_shard_size(shard_size_bytes),
        batch_size=batch_size,
        batch_bytes=_MOST_BATCH_BYTES,
        compression=compression,
        workers=max(num_encode_workers, 1),
        on_missing="null",
        on_unknown="drop",
        lineage=lineage,
        schema_fingerprint=older_fingerprint(features),
    )
    return _as_peer(meta)


def _shard_size(size: float | str | None) -> int | str | None:
    """Return a size for `write_cache`, which takes no floats. Infinity is no limit, as in the peer."""
    if size is None or size == math.inf:
        return None
    return size if isinstance(size, str) else int(size)


def read_sharded_cache_meta(cache_dir: str | os.PathLike[str]) -> ShardedCacheMeta:
    """Return the metadata of a cache, after checking that its shards exist.

    Raises:
        NotFound: there is no metadata file (a FileNotFoundError).
        SidecarMismatch, CorruptShard: it contradicts itself, is damaged, or a shard is missing (ValueErrors).
    """
    meta = caches.read_cache_meta(cache_dir)
    missing = [path for path in meta.shard_paths if not os.path.exists(path)]
    if missing:
        raise SidecarMismatch("a shard of the cache is missing", file=missing[0], advice="Build the cache again.")
    return _as_peer(meta)


def validate_sharded_cache(cache_dir: str | os.PathLike[str], features: Mapping[str, Feature]) -> ShardedCacheMeta:
    """Return the metadata of a cache, after checking it against these features and its own files.

    Raises:
        NotFound: there is no metadata file (a FileNotFoundError).
        SchemaMismatch: the cache has other features (a ValueError).
        SidecarMismatch, CorruptShard: the cache contradicts itself or is damaged (ValueErrors).
    """
    read_sharded_cache_meta(cache_dir)
    return _as_peer(caches.validate_cache(cache_dir, features))


def read_shard(shard_path: str | os.PathLike[str]) -> pa.Table:
    """Return a shard as a table, mapped from its file. Raises NotFound or CorruptShard."""
    return caches.read_shard(shard_path)


def encode_example(example: Mapping[str, Any], features: Mapping[str, Feature]) -> dict[str, Any]:
    """Return one example with its values as a cache stores them; a value without a feature stays as it is.

    Raises:
        Unrepresentable: a value does not fit its feature.
    """
    return {
        name: encode(features[name], value) if name in features else plain_item(value)
        for name, value in example.items()
    }


def cache_fingerprint(cls_name: str, version: str, config_name: str, split: str) -> str:
    """Return the folder name of a dataset's variant and split: `{name}_{config}_{split}_{16 hex digits}`.

    Later versions of stable-datasets also hash the storage: `lading.caches.cache_fingerprint`.
    """
    return caches.cache_fingerprint(cls_name, version, config_name, split, storage=None)


def _as_peer(meta: CacheMeta) -> ShardedCacheMeta:
    return ShardedCacheMeta(
        Path(meta.cache_dir),
        meta.num_rows,
        meta.num_shards,
        list(meta.shard_filenames),
        list(meta.shard_row_counts),
        meta.schema_fingerprint,
    )
