"""Shards of the split formats in a folder without an index, as the `.meta` beside each tells of it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lading.errors import DataError, StoreError
from lading.formats._mds_index import COMPRESSIONS, KINDS, meta_name, parse_config
from lading.formats._mds_read import read_meta
from lading.formats.index_json import as_text
from lading.formats.protocol import ListedShard, ShardSource
from lading.limits import Limits
from lading.store.protocol import Store

__all__ = ["find_lines"]


def find_lines(store: Store, folder: str, limits: Limits) -> list[ListedShard]:
    """The shards below a folder that have a `.meta`, by name; none where no `.meta` says what is in them.

    Of a shard and its unpacked copy this one is taken.
    Where one is damaged itself, the shard is of the same columns as the others, and nobody knows of how many samples.
    """
    sizes = {info.path: info.size_bytes for info in store.walk(folder)}
    metas = {path: meta for path in sizes if (meta := meta_name(path, _ending(path))) in sizes}
    metas = {path: meta for path, meta in metas.items() if not _ending(path) or _unpacked(path) not in metas}
    told = {path: _told(ShardSource(store, meta, limits=limits), _ending(path)) for path, meta in metas.items()}
    known = next((one for _, one in sorted(told.items()) if one), None)
    if known is None:
        return []
    found = []
    for path, meta in sorted(metas.items()):
        of_others = {**known, "samples": 0, "raw_bytes": sizes[path], "meta_bytes": sizes[meta]}
        entry = _entry(told[path] or of_others, path, sizes)
        found.append(ListedShard(path, told[path].get("samples"), None, {}, entry))
    return found


def _ending(path: str) -> str:
    """What a compressed file's name ends with."""
    ending = posixpath.splitext(path)[1]
    return ending if ending[1:] in COMPRESSIONS else ""


def _unpacked(path: str) -> str:
    return path.removesuffix(_ending(path))


def _told(meta: ShardSource, ending: str) -> dict[str, Any]:
    """What a `.meta` says, with the sizes of both files when they are not compressed; empty if it is none of MDS."""
    with suppress(DataError, StoreError):
        samples, raw_bytes, meta_bytes, told = read_meta(meta, COMPRESSIONS.get(ending[1:], ""))
        if told.get("format") in KINDS and told["format"] != "mds":
            parse_config(told, limits=meta.limits)
            return {**told, "samples": samples, "raw_bytes": raw_bytes, "meta_bytes": meta_bytes}
    return {}


def _entry(told: Mapping[str, Any], path: str, sizes: Mapping[str, int]) -> str:
    """The entry of an index for a shard."""
    ending = _ending(path)
    meta = meta_name(path, ending)

    def file(name: str, size: int) -> dict[str, Any]:
        return {"basename": posixpath.basename(name), "bytes": size, "hashes": {}}

    raw_data = file(_unpacked(path), told["raw_bytes"])
    raw_meta = file(meta.removesuffix(ending), told["meta_bytes"])
    packed = {"zip_data": file(path, sizes[path]), "zip_meta": file(meta, sizes[meta])} if ending else {}
    own = {name: value for name, value in told.items() if name not in ("raw_bytes", "meta_bytes")}
    return as_text(
        {**own, "version": 2, "compression": ending[1:] or None, "raw_data": raw_data, "raw_meta": raw_meta, **packed}
    )
