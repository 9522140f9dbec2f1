"""`_metadata.json` of a cache: its shards, their rows, its features.

The keys are those of stable-datasets, in its order; the key `lading` is our own and holds the features in full. A path
in the file is never followed: a shard is a file of the folder.

Source: stable-datasets at f38ac71 (cache.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lading._core.arguments import public
from lading._core.arrow import json_text
from lading._core.caches.layout import Features, fingerprint, from_description, to_description
from lading._core.features.types import Feature
from lading._core.storage.local import LocalStore
from lading.errors import CorruptShard, DataError, SidecarMismatch, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = ["META_NAME", "CacheMeta", "meta_text", "read_cache_meta"]

META_NAME = "_metadata.json"
_VERSION = 1
_OWN = "lading"


@dataclass(frozen=True, slots=True)
class CacheMeta:
    """Metadata of a cache.

    Attributes:
        cache_dir: folder of the cache.
        num_rows: rows of all shards.
        shard_filenames: names of the shards in the folder, in order.
        shard_row_counts: rows of each shard.
        schema_fingerprint: 16 hex digits (`fingerprint`); empty if the cache has none.
        shard_size_target_bytes: bytes at which a shard ended; None for one shard.
        compression: `zstd`, `lz4` or None.
        lineage: what the writer gave as `lineage`.
        features: feature of each column; None if stable-datasets wrote the cache, since it does not store them.
    """

    cache_dir: str
    num_rows: int
    shard_filenames: tuple[str, ...]
    shard_row_counts: tuple[int, ...]
    schema_fingerprint: str
    shard_size_target_bytes: int | None = None
    compression: str | None = None
    lineage: Mapping[str, Any] | None = None
    features: Mapping[str, Feature] | None = field(default=None, hash=False)

    @property
    def num_shards(self) -> int:
        """Return the number of shards; 0 if there are no rows."""
        return len(self.shard_filenames)

    @property
    def shard_paths(self) -> tuple[str, ...]:
        """Return the path of each shard."""
        return tuple(os.path.join(self.cache_dir, name) for name in self.shard_filenames)


def new_meta(
    cache_dir: str, shards: Mapping[str, int], features: Features, target: int | None, compression: str | None,
    lineage: Mapping[str, Any] | None, schema_fingerprint: str | None = None,
) -> CacheMeta:  # fmt: skip
    """Return the metadata of a new cache; `shards` are pairs of name and rows."""
    counts = tuple(shards.values())
    return CacheMeta(
        cache_dir, sum(counts), tuple(shards), counts, schema_fingerprint or fingerprint(features), target, compression,
        lineage or None, from_description(to_description(features)),
    )  # fmt: skip


def meta_text(meta: CacheMeta) -> bytes:
    """Return the file's text."""
    fields = {
        "cache_format_version": _VERSION,
        "format": "arrow",
        "layout": "arrow-shards",
        "schema_fingerprint": meta.schema_fingerprint,
        "num_rows": meta.num_rows,
        "num_shards": meta.num_shards,
        "shard_row_counts": meta.shard_row_counts,
        "shard_filenames": meta.shard_filenames,
        "shard_size_target_bytes": meta.shard_size_target_bytes,
    }
    fields |= {"compression": meta.compression} if meta.compression else {}
    fields |= {"lineage": meta.lineage} if meta.lineage else {}
    fields |= {_OWN: {"features": to_description(meta.features)}} if meta.features else {}
    return json.dumps(fields, indent=2).encode()


@public("lading.caches.read_cache_meta")
def read_cache_meta(cache_dir: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> CacheMeta:
    """Return the metadata of a cache. Only `_metadata.json` is read.

    Raises:
        NotFound: the folder holds no cache.
        CorruptShard: the file is not valid JSON.
        LimitExceeded: the file is larger than `index_bytes`, or has more values than `index_values`.
        SidecarMismatch: the file has another layout or version, or contradicts itself.
    """
    folder = os.fspath(cache_dir)
    path = os.path.join(folder, META_NAME)
    opened = LocalStore().open_file(path)  # one file from here on, whatever happens to its name
    size = opened.size_bytes
    if size > limits.index_bytes:
        raise limits.exceeded("index_bytes", "metadata of this size are not read", file=path, found=size)
    with errors_at(file=path):
        text = opened.read(0, size)
        limits.check_values(text)
        try:
            fields = json_text.loads(text)
        except DataError as error:
            raise CorruptShard(error.message, offset=error.offset, found=error.found) from None
        if not isinstance(fields, dict):
            raise SidecarMismatch("not the metadata of a cache", expected="an object", found=type(fields).__name__)
        return _checked(folder, fields)


def _checked(folder: str, fields: dict[str, Any]) -> CacheMeta:
    _expect(fields, "cache_format_version", {_VERSION})
    _expect(fields, "format", {"arrow", None})  # older files have neither
    _expect(fields, "layout", {"arrow-shards", None})
    names, counts, rows = (fields.get(key) for key in ("shard_filenames", "shard_row_counts", "num_rows"))
    if not isinstance(names, list) or not all(map(_plain_name, names)):
        raise SidecarMismatch(
            "not a list of shard names",
            column="shard_filenames",
            expected="names of files in this folder",
            found=repr(names)[:120],
        )
    if len(set(names)) < len(names):
        raise SidecarMismatch("a shard appears twice", column="shard_filenames", found=repr(names)[:120])
    if not isinstance(counts, list) or not all(map(_count, counts)) or len(counts) != len(names):
        raise SidecarMismatch("not a list of row counts", column="shard_row_counts",
                              expected=f"{len(names)} whole numbers", found=repr(counts)[:120])  # fmt: skip
    shards = fields.get("num_shards", len(names))
    if not _count(shards) or shards != len(names):
        raise SidecarMismatch("another number of shards", column="num_shards", expected=len(names),
                              found=repr(shards)[:40])  # fmt: skip
    if not _count(rows) or rows != sum(counts):
        raise SidecarMismatch("another number of rows than its shards have", column="num_rows", expected=sum(counts),
                              found=repr(rows)[:40])  # fmt: skip
    hashed, target, codec, lineage, own = (
        fields.get(key) for key in ("schema_fingerprint", "shard_size_target_bytes", "compression", "lineage", _OWN)
    )
    if not isinstance(hashed, str | None):  # None: caches of older versions have none
        raise SidecarMismatch("not a fingerprint", column="schema_fingerprint", expected="16 hex digits",
                              found=repr(hashed)[:40])  # fmt: skip
    return CacheMeta(
        folder, rows, tuple(names), tuple(counts),
        schema_fingerprint=hashed or "",
        shard_size_target_bytes=target if _count(target) else None,
        compression=codec if isinstance(codec, str) else None,
        lineage=lineage if isinstance(lineage, dict) else None,
        features=from_description(own.get("features")) if isinstance(own, dict) else None,
    )  # fmt: skip


def _expect(fields: Mapping[str, Any], key: str, known: set[Any]) -> None:
    value = fields.get(key)
    if isinstance(value, (bool, float, list, dict)) or value not in known:
        raise SidecarMismatch("a cache of another kind", column=key, expected=", ".join(map(str, known - {None})),
                              found=repr(value)[:80])  # fmt: skip


def _plain_name(name: Any) -> bool:
    return isinstance(name, str) and name == os.path.basename(name) and name not in ("", ".", "..") and "\0" not in name


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
