"""The files that megatron-energon stores next to tars.

    .nv-meta/.info.json   {"energon_version"?, "shard_counts": {name below the folder: samples}}
    .nv-meta/split.yaml   {split_parts: {train: [names, with braces]}, exclude: [name, or name/key of a sample]}
    .nv-meta/dataset.yaml the class that reads samples
    x.tar.idx             where each sample begins (`_core.formats.webdataset.index`)

Samples are counted by WebDataset's rule, whatever the tars hold; tars without samples are left out. `split.json` may
stand for `split.yaml`. Other files in `.nv-meta` are ignored: the older `.info.yaml`, and a database for random access
(`index.sqlite`), which `energon prepare` makes.

Source: megatron-energon 7.4.1, flavors/webdataset/prepare.py, structs.py, metadata.py, itar_reader.py.
"""

from __future__ import annotations

import posixpath
import reprlib
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson

from lading._core.content.yaml_text import parse_yaml
from lading._core.formats.dataset_index import ListedShard, SplitList
from lading._core.formats.webdataset.index import inside, sidecar_path
from lading._core.storage.base import FileInfo, Store, write_file
from lading._core.storage.braces import expand_braces
from lading._core.storage.index_json import load_index
from lading.errors import DataError, NotFound, errors_at
from lading.limits import Limits

__all__ = ["INFO_NAME", "SPLIT_NAMES", "excluded_keys", "list_energon", "list_energon_splits", "write_energon"]

_FOLDER = ".nv-meta"
INFO_NAME = f"{_FOLDER}/.info.json"
"""Path of the list, below the folder of the tars."""

SPLIT_NAMES = (f"{_FOLDER}/split.yaml", f"{_FOLDER}/split.json")
"""Paths of the list of splits, below the folder of the tars; the first one counts."""

_READER = b"__module__: megatron.energon\n__class__: CrudeWebdataset\n"
"""A `dataset.yaml` for samples as they are: a cooker of the user makes them into others."""


def list_energon(store: Store, path: str, limits: Limits) -> list[ListedShard]:
    """Return the shards in a list, in its order, with the samples of each. Reads no shard.

    Raises:
        NotFound: there is no list.
        DataError: the list is invalid.
        BadReference: a shard outside the folder.
        LimitExceeded: the list is larger than `index_bytes`.
    """
    index = load_index(store, path, limits)
    counts = index.get("shard_counts") if isinstance(index, dict) else None
    with errors_at(file=path, column="shard_counts"):
        if not isinstance(counts, dict):
            raise DataError("not a list of shards", expected="names and counts", found=reprlib.repr(counts)[:80])
        folder = path.removesuffix(INFO_NAME)
        for name, count in counts.items():
            if type(count) is not int or count < 0:
                raise DataError(
                    f"not a count of the samples in {name}", expected="0 or more", found=reprlib.repr(count)[:80]
                )
        return [ListedShard(inside(folder, name), count) for name, count in counts.items()]


def list_energon_splits(store: Store, path: str, files: Sequence[FileInfo], limits: Limits) -> SplitList:
    """Return the shards of each split, in its order, without those that are excluded.

    Args:
        store: the store of the tars.
        path: path of the list of splits.
        files: the tars below the folder.
        limits: the list has at most `index_bytes`.

    Raises:
        DataError: the list is invalid. BadReference: it names a shard outside the folder.
    """
    told = _load_splits(store, path, limits)
    folder = path[: path.rindex(f"{_FOLDER}/")]
    with errors_at(file=path):
        parts = told.get("split_parts")
        if not isinstance(parts, dict) or not parts:
            raise DataError("not a list of splits", column="split_parts", expected="names, each with a list of shards",
                            found=reprlib.repr(parts)[:80])  # fmt: skip
        excluded = dict.fromkeys(_names(told.get("exclude") or [], "exclude"))
        shards, keys = _excluded(excluded)
        counts = _counts(store, f"{folder}{INFO_NAME}", limits)
        sizes = {file.path: file.size_bytes for file in files}
        listed, taken = {}, set[str]()
        for part, names in parts.items():
            every = [name for name in _names(names, "split_parts") if name not in shards]
            listed[str(part)] = [_shard(inside(folder, name), name, counts, keys, sizes) for name in every]
            taken |= {shard.path for shard in listed[str(part)]}
    gone = {inside(folder, name) for name in shards}
    left_out = {
        f"shards that {posixpath.basename(path)} excludes": len(gone),
        f"samples that {posixpath.basename(path)} excludes": sum(map(len, keys.values())),
        f"shards that {posixpath.basename(path)} does not list, left out": len({*sizes} - taken - gone),
    }
    return SplitList(listed, {what: count for what, count in left_out.items() if count})


def _load_splits(store: Store, path: str, limits: Limits) -> Mapping[str, Any]:
    if path.endswith(".json"):
        told = load_index(store, path, limits)
    else:
        size = store.head(path).size_bytes
        if size > limits.index_bytes:
            raise limits.exceeded("index_bytes", "the list of splits is too large", file=path, found=size)
        [data] = store.get_ranges(path, [(0, size)])
        with errors_at(file=path):
            told = parse_yaml(bytes(data))
    if not isinstance(told, dict):
        raise DataError(
            "not a list of splits", file=path, expected="split_parts and exclude", found=reprlib.repr(told)[:80]
        )
    return told


def _names(names: object, column: str) -> list[str]:
    """Return the names of a list, braces expanded."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError("not a list of names", column=column, found=reprlib.repr(names)[:80])
    return list(chain.from_iterable(map(expand_braces, names)))


def _excluded(names: Mapping[str, None]) -> tuple[set[str], dict[str, list[str]]]:
    """Return the excluded shards, and the excluded keys of each shard: a key comes behind the name of a tar."""
    shards, keys = set[str](), dict[str, list[str]]()
    for name in names:
        shard, ending, key = name.partition(".tar/")
        if ending:
            keys.setdefault(f"{shard}.tar", []).append(key)
        else:
            shards.add(name)
    return shards, keys


def _counts(store: Store, path: str, limits: Limits) -> dict[str, int | None]:
    try:
        return {shard.path: shard.num_samples for shard in list_energon(store, path, limits)}
    except NotFound:
        return {}


def _shard(
    path: str, name: str, counts: Mapping[str, int | None], keys: Mapping[str, list[str]], sizes: Mapping[str, int]
) -> ListedShard:
    entry = orjson.dumps({"exclude": keys[name]}).decode() if name in keys else ""
    return ListedShard(path, None if entry else counts.get(path), sizes.get(path), entry=entry)


def excluded_keys(entry: str) -> list[str]:
    """Return the keys of samples that an entry of `list_energon_splits` leaves out."""
    found: list[str] = orjson.loads(entry).get("exclude", []) if entry else []
    return found


def write_energon(
    store: Store, folder: str, counts: Mapping[str, int], starts: Mapping[str, Sequence[int]], split: str
) -> list[str]:
    """Write the files that megatron-energon needs; return their paths.

    Args:
        store: store of the tars.
        folder: their folder.
        counts: samples of each tar, by its path below the folder, without empty tars.
        starts: where each sample of a tar begins, and where the last one ends.
        split: name of the split that they are.
    """
    quoted = [orjson.dumps(name).decode() for name in (split, *counts)]
    lines = ["split_parts:", f"  {quoted[0]}:", *(f"  - {name}" for name in quoted[1:]), "exclude: []", ""]
    made = {
        INFO_NAME: orjson.dumps({"shard_counts": counts}, option=orjson.OPT_INDENT_2) + b"\n",
        SPLIT_NAMES[0]: "\n".join(lines).encode(),
        f"{_FOLDER}/dataset.yaml": _READER,
        **{sidecar_path(name): np.array(each, "<u8").tobytes() for name, each in starts.items()},
    }
    for name, data in made.items():
        write_file(store, f"{folder}/{name}", [data])
    return [f"{folder}/{name}" for name in made]
