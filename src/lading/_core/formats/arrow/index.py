"""Indexes of folders of Arrow shards: caches of stable-datasets, and folders saved by Hugging Face's datasets.

    _metadata.json      {"cache_format_version": 1, "format": "arrow", "layout": "arrow-shards", "schema_fingerprint",
                         "num_rows", "num_shards", "shard_row_counts", "shard_filenames", "shard_size_target_bytes"},
                         and of lading's own caches `lading`: {"features": [[name, feature], …]}
    state.json          {"_data_files": [{"filename"}], "_fingerprint", "_split", …}, and next to it
    dataset_info.json   {"features": {name: feature}, …}
    dataset_dict.json   {"splits": [names]}: each a folder with a state.json

Source: stable-datasets f38ac71 cache.py; datasets 5.2.0 arrow_dataset.py, dataset_dict.py (`save_to_disk`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import xxhash

from lading._core.caches.layout import from_description, schema_of
from lading._core.features.huggingface import HUGGINGFACE_KEY, huggingface_features, schema_of_features
from lading._core.formats.arrow.blocks import ArrowFile, find_blocks
from lading._core.formats.arrow.decode import Decoder
from lading._core.formats.arrow.schema import given_schema, schema_hash
from lading._core.formats.base import ShardFacts, ShardFile
from lading._core.formats.dataset_index import ListedShard, SplitList
from lading._core.storage.base import FileInfo, Store, write_file
from lading._core.storage.index_json import as_text, load_index, several_splits
from lading.errors import BadReference, DataError, NotFound, StoreError, UsageError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "CACHE_INDEX",
    "INFO_NAME",
    "SPLITS_INDEX",
    "STATE_INDEX",
    "ArrowEntry",
    "features_beside",
    "list_arrow",
    "list_builder_splits",
    "listed_schema",
    "parse_entry",
    "schema_of_shard",
    "write_indexes",
    "write_splits",
]

CACHE_INDEX, STATE_INDEX, SPLITS_INDEX = "_metadata.json", "state.json", "dataset_dict.json"
"""Names of the indexes: of a cache, of a saved dataset, of its splits."""

INFO_NAME = "dataset_info.json"
"""Name of the file with the features of a saved dataset, next to its `state.json`."""

_VERSION = 1
_FORMAT, _LAYOUT = "arrow", "arrow-shards"
_OWN = "lading"


@dataclass(frozen=True, slots=True)
class ArrowEntry:
    """The entry of a shard in an index, without its rows.

    Attributes:
        schema: hash of the columns of the dataset's first shard; empty if unknown.
        features: JSON of Hugging Face's features, if they are in a separate file; else empty.
    """

    schema: str = ""
    features: str = ""


def parse_entry(text: str) -> ArrowEntry:
    """Parse an entry of `list_arrow`; an empty text gives an empty entry."""
    return ArrowEntry(**orjson.loads(text)) if text else ArrowEntry()


def list_arrow(store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
    """Return the shards in an index, in its order; None if the file is none of the three indexes.

    Reads the first shard.

    Raises:
        DataError: the index is broken, of another version, or its counts do not add up.
        BadReference: a shard outside the folder of the index.
        SeveralSplits: it lists several splits.
    """
    reader = {CACHE_INDEX: _list_cache, STATE_INDEX: _list_saved, SPLITS_INDEX: _list_splits}.get(
        posixpath.basename(path)
    )
    if reader is None:
        return None
    index = load_index(store, path, limits)
    if not isinstance(index, dict):
        return None
    with errors_at(file=path):
        return reader(store, path, index, limits)


def _list_cache(store: Store, path: str, index: Mapping[str, Any], limits: Limits) -> list[ListedShard] | None:
    if not {"cache_format_version", "shard_filenames"} & index.keys():
        return None
    # Older files have no format and no layout.
    complete = {"cache_format_version": None, "format": _FORMAT, "layout": _LAYOUT, **index}
    for key, known in (("cache_format_version", _VERSION), ("format", _FORMAT), ("layout", _LAYOUT)):
        found = complete[key]
        if found != known or isinstance(found, bool):
            raise DataError("a cache of another kind", column=key, expected=known, found=repr(found)[:80])
    names, counts = index.get("shard_filenames"), index.get("shard_row_counts")
    if not isinstance(names, list) or not isinstance(counts, list) or len(names) != len(counts):
        raise DataError("a cache lists its shards and the rows in each", expected="two lists of one length",
                        found=f"{names!r}, {counts!r}"[:200])  # fmt: skip
    if any(type(count) is not int or count < 0 for count in counts):
        raise DataError("not numbers of rows", column="shard_row_counts", found=repr(counts)[:200])
    for key, expected in (("num_shards", len(names)), ("num_rows", sum(counts))):
        if type(index.get(key)) is not int or index[key] != expected:
            raise DataError("the counts of the cache do not add up", column=key, expected=expected,
                            found=repr(index.get(key))[:40])  # fmt: skip
    hashed = index.get("schema_fingerprint")
    if not isinstance(hashed, str | None):  # as in `lading.caches.read_cache_meta`
        raise DataError("not a fingerprint", column="schema_fingerprint", expected="16 hex digits",
                        found=repr(hashed)[:40])  # fmt: skip
    return _listed(store, path, "shard_filenames", names, counts, limits)


def list_builder_splits(store: Store, path: str, files: Sequence[FileInfo], limits: Limits) -> SplitList | None:
    """Return the files of each split in a cache of a builder: `imdb-train.arrow`, `imdb-test-00000-of-00002.arrow`.

    Source: datasets 5.2.0, naming.py (`filename_for_dataset_split`).

    Raises:
        DataError: the file of features is invalid JSON.
    """
    told = load_index(store, path, limits)
    splits = told.get("splits") if isinstance(told, dict) else None
    if not isinstance(splits, dict) or not splits:
        return None
    name = re.compile(rf"(?:.*-)?({'|'.join(map(re.escape, splits))})(?:-\d{{5}}-of-\d{{5}})?\.arrow")
    shards: dict[str, list[ListedShard]] = {split: [] for split in splits}
    others = 0
    for file in files:
        match = name.fullmatch(posixpath.basename(file.path))
        if match:
            shards[match[1]].append(ListedShard(file.path, size_bytes=file.size_bytes))
        others += match is None
    found = {split: listed for split, listed in shards.items() if listed}
    return SplitList(found, {"files of no split, left out": others} if others else {}) if found else None


def listed_schema(store: Store, path: str, limits: Limits = DEFAULT_LIMITS) -> pa.Schema | None:
    """Return the columns of a dataset without shards, from its index alone.

    An index of a cache has them if lading wrote it. For datasets they are in the file next to it, `dataset_info.json`.

    Raises:
        DataError: the features are invalid.
        SeveralSplits: it lists several splits.
    """
    index = load_index(store, path, limits)
    if posixpath.basename(path) == SPLITS_INDEX and isinstance(index, dict):
        with errors_at(file=path):
            return listed_schema(store, _only_split(path, index), limits)
    if posixpath.basename(path) == STATE_INDEX:
        return _saved_schema(store, posixpath.dirname(path), limits)
    own = index.get(_OWN) if isinstance(index, dict) else None
    if posixpath.basename(path) != CACHE_INDEX or not isinstance(own, dict) or "features" not in own:
        return None
    with errors_at(file=path, column=_OWN):
        try:
            return schema_of(from_description(own["features"]))
        except UsageError as error:
            raise DataError(error.message, expected=error.expected, found=error.found) from None


def _saved_schema(store: Store, folder: str, limits: Limits) -> pa.Schema | None:
    features = features_beside(store, folder, limits)
    if features is None:
        return None
    with errors_at(file=posixpath.join(folder, INFO_NAME)):
        return given_schema(schema_of_features(features), "", media="stored")


def _list_saved(store: Store, path: str, index: Mapping[str, Any], limits: Limits) -> list[ListedShard] | None:
    files = index.get("_data_files")
    if not isinstance(files, list):
        return None
    if index.get("_indices_data_files") or index.get("_indices_files"):
        raise DataError("a dataset saved with a selection of its rows, as datasets before 2.0 did",
                        column="_indices_data_files", advice="Load it with datasets and save it again.")  # fmt: skip
    names = [file.get("filename") if isinstance(file, dict) else None for file in files]
    return _listed(store, path, "_data_files", names, [None] * len(names), limits)


def _list_splits(store: Store, path: str, index: Mapping[str, Any], limits: Limits) -> list[ListedShard] | None:
    return list_arrow(store, _only_split(path, index), limits) if isinstance(index.get("splits"), list) else None


def _only_split(path: str, index: Mapping[str, Any]) -> str:
    """Return the index of the only split. Raises DataError or SeveralSplits if there is not exactly one."""
    splits = index.get("splits")
    folders = [_inside(split, "splits") for split in splits] if isinstance(splits, list) else []
    if not folders:
        raise DataError("the dataset has no split", column="splits", expected="one", found="none")
    if len(folders) > 1:
        raise several_splits(posixpath.dirname(path) or ".", folders)
    return posixpath.join(posixpath.dirname(path), folders[0], STATE_INDEX)


def _listed(
    store: Store, path: str, key: str, names: Sequence[Any], counts: Sequence[int | None], limits: Limits
) -> list[ListedShard]:
    folder = posixpath.dirname(path)
    paths = [posixpath.join(folder, _inside(name, key)) for name in names]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise DataError("the index lists a shard twice", column=key, found=twice)
    entry = orjson.dumps(_entry(store, folder, paths[0], limits)).decode() if paths else ""
    return [ListedShard(path, count, entry=entry) for path, count in zip(paths, counts, strict=True)]


def _entry(store: Store, folder: str, first: str, limits: Limits) -> dict[str, str]:
    """Return the entry for all shards: the columns of the first one, and features in a file next to them."""
    found: dict[str, str] = {}
    with suppress(DataError, StoreError):  # reading that shard reports the error, and the others may be intact
        schema = schema_of_shard(store, first, limits)
        found["schema"] = schema_hash(schema)
        if HUGGINGFACE_KEY in (schema.metadata or {}):
            return found
    features = features_beside(store, folder, limits)
    return found if features is None else {**found, "features": as_text(features)}


def schema_of_shard(store: Store, path: str, limits: Limits) -> pa.Schema:
    """Return the stored schema of a file or stream. Raises DataError, StoreError."""
    return Decoder(find_blocks(ArrowFile(ShardFile(store, path, limits=limits), mmap=False), unended=True)).schema


def features_beside(store: Store, folder: str, limits: Limits) -> dict[str, Any] | None:
    """Return the features in the `dataset_info.json` of a folder; None if it has none. Raises DataError."""
    path = posixpath.join(folder, INFO_NAME)
    try:
        info = load_index(store, path, limits)
    except NotFound:
        return None
    features = info.get("features") if isinstance(info, dict) else None
    with errors_at(file=path, column="features"):
        as_text(features)  # normalised, so that later code need not handle it
    return features if isinstance(features, dict) else None


def _inside(name: Any, key: str) -> str:
    """Return a plain name below the folder of an index, as the path under this key."""
    if not isinstance(name, str) or not name or "\0" in name or name.startswith("/") or "://" in name:
        raise BadReference("the index names no file of its folder", column=key, found=repr(name)[:80])
    plain = posixpath.normpath(name)
    if ".." in name.split("/") or "\\" in name or plain == ".":
        raise BadReference("the index names a file outside its folder", column=key, found=repr(name)[:80])
    return plain


def write_indexes(store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]]) -> list[str]:
    """Write the peer's index for a folder of shards: datasets' index for streams, else stable-datasets'."""
    if shards:
        body = ArrowFile(ShardFile(store, posixpath.join(folder, shards[0][0])), mmap=False)
        blocks = find_blocks(body, unended=True)
        if blocks.at >= 0:
            return _write_saved(store, folder, shards, huggingface_features(Decoder(blocks).schema))
    index = {
        "cache_format_version": _VERSION,
        "format": _FORMAT,
        "layout": _LAYOUT,
        "schema_fingerprint": "",  # hash of the peer's features, known only to the peer; empty matches all
        "num_rows": sum(facts.num_samples for _, facts in shards),
        "num_shards": len(shards),
        "shard_row_counts": [facts.num_samples for _, facts in shards],
        "shard_filenames": [name for name, _ in shards],
        "shard_size_target_bytes": None,
    }
    return [_write(store, f"{folder}/{CACHE_INDEX}", index)]


def write_splits(store: Store, folder: str, splits: Sequence[str]) -> str:
    """Write the index of saved datasets in folders of these names; return its path."""
    return _write(store, f"{folder}/{SPLITS_INDEX}", {"splits": list(splits)})


def _write_saved(
    store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]], features: Mapping[str, Any]
) -> list[str]:
    names = [name for name, _ in shards]
    facts = [[name, told.num_samples, told.size_bytes, told.payload_bytes] for name, told in shards]
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": xxhash.xxh3_64_hexdigest(orjson.dumps([facts, features], option=orjson.OPT_SORT_KEYS)),
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
    return [_write(store, f"{folder}/{INFO_NAME}", info), _write(store, f"{folder}/{STATE_INDEX}", state)]


def _write(store: Store, path: str, index: Mapping[str, Any]) -> str:
    write_file(store, path, [orjson.dumps(index, option=orjson.OPT_INDENT_2)])
    return path
