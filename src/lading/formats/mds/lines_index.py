"""Shards of the split formats in a folder without an index, as the `.meta` beside each tells of it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lading.errors import DataError, StoreError
from lading.formats.base import ListedShard, ShardFile
from lading.formats.index_json import as_text
from lading.formats.mds.index import COMPRESSIONS, INDEX_NAME, KINDS, META, meta_name, parse_config
from lading.formats.mds.reader import read_meta
from lading.limits import Limits
from lading.storage.base import Store

__all__ = ["find_lines"]


def find_lines(store: Store, folder: str, limits: Limits) -> list[ListedShard]:
    """The shards below a folder that a `.meta` tells of, by name; none where no `.meta` says what is in them.

    One whose file is gone is among them. Where its `.meta` is damaged, or gone from beside a file of the same kind, the
    shard is of the same columns as the others, and nobody knows of how many samples. Of a shard and its unpacked copy
    one is taken, this one if as much is there of both.
    """
    sizes = {info.path: info.size_bytes for info in store.walk(folder)}
    metas = {data: path for path in sizes if (data := _data_name(path))}
    told = {data: _told(ShardFile(store, meta, limits=limits), _ending(data)) for data, meta in metas.items()}
    known = next((one for _, one in sorted(told.items()) if one), None)
    if known is None:
        return []
    alone = {path for path in sizes if path not in metas and _is_of_kind(path, known["format"])}
    found: dict[str, str] = {}
    for path in sorted(
        {data for data in metas if data in sizes or told[data]} | alone,
        key=lambda path: (path not in sizes, path in alone, bool(_ending(path))),
    ):
        found.setdefault(_unpacked(path), path)
    shards = []
    for path in sorted(found.values()):
        own = told.get(path) or {}
        meta_bytes = sizes.get(metas.get(path, ""), 0)
        of_others = {**known, "samples": 0, "raw_bytes": sizes.get(path, 0), "meta_bytes": meta_bytes}
        shards.append(ListedShard(path, own.get("samples"), None, {}, _entry(own or of_others, path, sizes)))
    return shards


def _data_name(path: str) -> str:
    """Path of the file that a `.meta` of this path tells of; empty for what is called otherwise."""
    ending = _ending(path)
    name = path.removesuffix(ending)
    return name.removesuffix(META) + ending if name.endswith(META) else ""


def _is_of_kind(path: str, kind: str) -> bool:
    """Whether a file has the name of a shard of a kind."""
    return _unpacked(path).endswith(f".{kind}") and posixpath.basename(path) != INDEX_NAME


def _ending(path: str) -> str:
    """What a compressed file's name ends with."""
    ending = posixpath.splitext(path)[1]
    return ending if ending[1:] in COMPRESSIONS else ""


def _unpacked(path: str) -> str:
    return path.removesuffix(_ending(path))


def _told(meta: ShardFile, ending: str) -> dict[str, Any]:
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
    packed = {"zip_data": file(path, sizes.get(path, 0)), "zip_meta": file(meta, sizes.get(meta, 0))} if ending else {}
    own = {name: value for name, value in told.items() if name not in ("raw_bytes", "meta_bytes")}
    return as_text(
        {**own, "version": 2, "compression": ending[1:] or None, "raw_data": raw_data, "raw_meta": raw_meta, **packed}
    )
