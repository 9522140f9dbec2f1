"""What the indexes of Arrow folders claim of columns, held against the columns that shards have.

    dataset_info.json   {"features": {name: feature}, …} beside a `state.json`, which itself tells nothing of columns;
                         datasets refuses a folder whose files have columns of other types, or that lacks this file
    _metadata.json      of lading's own caches `lading`: {"features": …}; the peer's tell a hash that no file could show

What no such file claims, though it seems to: `splits` in the `dataset_info.json` of a saved dataset. datasets leaves
there what its builder counted, whatever was selected, filtered or joined since, and of a part the names and numbers of
the whole.

Source: datasets 5.2.0 arrow_dataset.py (`Dataset.__init__`, `save_to_disk`).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lading.arrow.views import same_values
from lading.errors import DataError, LadingError, NotFound, SidecarMismatch, StoreError
from lading.features.huggingface import may_hold
from lading.formats.arrow.index import (
    CACHE_INDEX,
    INFO_NAME,
    STATE_INDEX,
    features_beside,
    listed_schema,
    schema_of_shard,
)
from lading.formats.index_json import as_text
from lading.limits import Limits
from lading.storage.base import Store

__all__ = ["false_columns"]


def false_columns(store: Store, path: str, shards: Sequence[str], limits: Limits) -> list[LadingError]:
    """Where an index, or what lies beside it, tells other columns than the first of its shards that can be read has.

    Of a saved dataset something has to lie there: datasets opens none without it. The other shards are held against the
    first one when they are opened.

    Raises:
        DataError, StoreError: what is told cannot be read.
    """
    if posixpath.basename(path) != CACHE_INDEX:
        missing = list(_missing_infos(store, path, shards))
        if missing:
            return missing
    found = _first_schema(store, shards, limits)
    if found is None:
        return []
    shard, schema = found
    if posixpath.basename(path) == CACHE_INDEX:
        told = listed_schema(store, path, limits)
        return [] if told is None else list(_differing(schema, {field.name: field.type for field in told}, shard, path))
    folder = posixpath.dirname(path if posixpath.basename(path) == STATE_INDEX else shard)
    features = features_beside(store, folder, limits)
    return [] if features is None else list(_differing(schema, features, shard, posixpath.join(folder, INFO_NAME)))


def _missing_infos(store: Store, path: str, shards: Sequence[str]) -> Iterator[LadingError]:
    """Of saved datasets, those without the file that tells their features."""
    own = [posixpath.dirname(path)] if posixpath.basename(path) == STATE_INDEX else []
    for folder in dict.fromkeys([*own, *map(posixpath.dirname, shards)]):
        info = posixpath.join(folder, INFO_NAME)
        try:
            store.head(info)
        except NotFound:
            yield SidecarMismatch(f"the folder has no {INFO_NAME}, without which datasets does not open it", file=info,
                                  expected=f"the features of what {STATE_INDEX} lists")  # fmt: skip


def _first_schema(store: Store, shards: Sequence[str], limits: Limits) -> tuple[str, pa.Schema] | None:
    for shard in shards:
        with suppress(DataError, StoreError):  # who reads it is told
            return shard, schema_of_shard(store, shard, limits)
    return None


def _differing(schema: pa.Schema, told: Mapping[str, Any], shard: str, index: str) -> Iterator[LadingError]:
    for name in (name for name in schema.names if name not in told):
        yield SidecarMismatch(f"the index does not tell of a column that {shard} has", file=index, column=name,
                              expected=str(schema.field(name).type))  # fmt: skip
    for name, feature in told.items():
        if name not in schema.names:
            yield SidecarMismatch(f"the index tells of a column that {shard} does not have", file=index, column=name,
                                  found=_spelled(feature))  # fmt: skip
        elif not _fits(schema.field(name).type, feature):
            yield SidecarMismatch(f"the index tells of a column what it is not in {shard}", file=index, column=name,
                                  expected=str(schema.field(name).type), found=_spelled(feature))  # fmt: skip


def _fits(kind: pa.DataType, feature: Any) -> bool:
    return same_values(kind, feature) if isinstance(feature, pa.DataType) else may_hold(kind, feature)


def _spelled(feature: Any) -> str:
    return str(feature) if isinstance(feature, pa.DataType) else as_text(feature)[:200]
