"""Find split-format shards in a folder without an index, by the `.meta` next to each."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from lading._core.formats.base import ShardFile
from lading._core.formats.dataset_index import ListedShard
from lading._core.formats.index_json import as_text
from lading._core.formats.mds.index import COMPRESSIONS, INDEX_NAME, KINDS, META, meta_name, parse_config
from lading._core.formats.mds.reader import read_meta
from lading._core.storage.base import Store
from lading.errors import suppress_damage
from lading.limits import Limits

__all__ = ["find_lines"]


def find_lines(store: Store, folder: str, limits: Limits) -> list[ListedShard]:
    """Return the shards below a folder that have a `.meta`, by name; none if no `.meta` describes its shard.

    Shards with a missing file are included. If the `.meta` of a shard is damaged, or missing next to a file of the same
    kind, the shard has the columns of the others and an unknown number of samples. Of a shard and its decompressed copy
    one is listed: the copy, if it is equally complete.
    """
    sizes = {info.path: info.size_bytes for info in store.walk(folder)}
    metas = {data: path for path in sizes if (data := _data_name(path))}
    contents = {data: _contents(ShardFile(store, meta, limits=limits), _ending(data)) for data, meta in metas.items()}
    known = next((one for _, one in sorted(contents.items()) if one), None)
    if known is None:
        return []
    alone = {path for path in sizes if path not in metas and _is_of_kind(path, known["format"])}
    found: dict[str, str] = {}
    for path in sorted(
        {data for data in metas if data in sizes or contents[data]} | alone,
        key=lambda path: (path not in sizes, path in alone, bool(_ending(path))),
    ):
        found.setdefault(_unpacked(path), path)
    shards = []
    for path in sorted(found.values()):
        own = contents.get(path) or {}
        meta_bytes = sizes.get(metas.get(path, ""), 0)
        of_others = {**known, "samples": 0, "raw_bytes": sizes.get(path, 0), "meta_bytes": meta_bytes}
        shards.append(ListedShard(path, own.get("samples"), None, {}, _entry(own or of_others, path, sizes)))
    return shards


def _data_name(path: str) -> str:
    """Return the path of the file that a `.meta` of this path describes; empty for another name."""
    ending = _ending(path)
    name = path.removesuffix(ending)
    return name.removesuffix(META) + ending if name.endswith(META) else ""


def _is_of_kind(path: str, kind: str) -> bool:
    """Return whether a file has the name of a shard of a kind."""
    return _unpacked(path).endswith(f".{kind}") and posixpath.basename(path) != INDEX_NAME


def _ending(path: str) -> str:
    """Return the ending of a compressed file's name."""
    ending = posixpath.splitext(path)[1]
    return ending if ending[1:] in COMPRESSIONS else ""


def _unpacked(path: str) -> str:
    return path.removesuffix(_ending(path))


def _contents(meta: ShardFile, ending: str) -> dict[str, Any]:
    """Return the contents of a `.meta`, with the sizes of both files if uncompressed; empty if it is not MDS's."""
    with suppress_damage():
        samples, raw_bytes, meta_bytes, header = read_meta(meta, COMPRESSIONS.get(ending[1:], ""))
        if header.get("format") in KINDS and header["format"] != "mds":
            parse_config(header, limits=meta.limits)
            return {**header, "samples": samples, "raw_bytes": raw_bytes, "meta_bytes": meta_bytes}
    return {}


def _entry(header: Mapping[str, Any], path: str, sizes: Mapping[str, int]) -> str:
    """Return an index entry for a shard."""
    ending = _ending(path)
    meta = meta_name(path, ending)

    def file(name: str, size: int) -> dict[str, Any]:
        return {"basename": posixpath.basename(name), "bytes": size, "hashes": {}}

    raw_data = file(_unpacked(path), header["raw_bytes"])
    raw_meta = file(meta.removesuffix(ending), header["meta_bytes"])
    packed = {"zip_data": file(path, sizes.get(path, 0)), "zip_meta": file(meta, sizes.get(meta, 0))} if ending else {}
    own = {name: value for name, value in header.items() if name not in ("raw_bytes", "meta_bytes")}
    return as_text(
        {**own, "version": 2, "compression": ending[1:] or None, "raw_data": raw_data, "raw_meta": raw_meta, **packed}
    )
