"""Index files of peers: wids JSON lists the shards of a dataset, `.tar.idx` lists a tar's samples.

    index.json   {"__kind__": "wids-shard-index-v1", "wids_version": 1, "name"?,
                  "shardlist": [{"url", "nsamples", "filesize", "md5sum"?}]}; urls are relative to the index
    x.tar.idx    uint64, little-endian: where each sample's first header begins (its extension records included), then
                 the padded end of the last member

Source: webdataset 0.2.111, wids/wids.py and wids/wids_specs.py; megatron-energon 7.4.1, flavors/webdataset/indexing.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from lading._core.formats.base import ShardFacts
from lading._core.formats.dataset_index import ListedShard
from lading._core.formats.webdataset.headers import BLOCK
from lading._core.storage.base import Store, write_file
from lading._core.storage.index_json import load_index
from lading._core.storage.stores import without_query
from lading.errors import BadReference, DataError, NotFound, SidecarMismatch, StoreError, errors_at
from lading.limits import DEFAULT_LIMITS, Limits

__all__ = [
    "check_end",
    "check_starts",
    "inside",
    "list_wids",
    "read_idx",
    "samples_behind",
    "samples_listed",
    "sidecar_mismatch",
    "sidecar_path",
    "write_wids",
]

_IDX_ENDING = ".idx"
"""Suffix of the sidecar of a tar."""

_MAGIC, _MAGIC_AT = b"ustar", 257
_LOOKED_AT = 64
_KIND = "wids-shard-index-v1"
_MARKS = (b'"__kind__"', b'"shardlist"')
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/")
_ADVICE = "Make the index again, or leave it aside with --ignore-sidecar."


def list_wids(store: Store, path: str, head: bytes, limits: Limits = DEFAULT_LIMITS) -> list[ListedShard] | None:
    """Return the shards of a wids index, in its order; None if the file is not a wids index. Reads no shard.

    Raises:
        DataError: it is broken, or lists a shard twice.
        BadReference: a url leaves the folder of the index.
        LimitExceeded: the index is larger than `index_bytes`.
    """
    if not path.endswith(".json") or not any(mark in head for mark in _MARKS):
        return None
    index = load_index(store, path, limits)
    if not isinstance(index, dict) or index.get("__kind__") != _KIND:
        return None
    entries = index.get("shardlist")
    if not isinstance(entries, list):
        raise DataError("the index has no list of shards", file=path, column="shardlist", found=type(entries).__name__)
    shards = [_shard(path, row, entry) for row, entry in enumerate(entries)]
    _refuse_repeats(path, shards)
    return shards


def _shard(path: str, row: int, entry: object) -> ListedShard:
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
        raise DataError("a shard of the index has no url", file=path, row=row, found=repr(entry)[:80])
    md5 = entry.get("md5sum")
    if md5 is not None and not isinstance(md5, str):
        raise DataError("a hash must be text", file=path, row=row, column="md5sum", found=repr(md5)[:80])
    with errors_at(file=path, row=row):
        place = inside(path[: path.rfind("/") + 1], entry["url"])
    return ListedShard(
        place,
        _count(path, row, entry, "nsamples"),
        _count(path, row, entry, "filesize"),
        {} if md5 is None else {"md5": md5},
    )


def _count(path: str, row: int, entry: Mapping[str, Any], name: str) -> int | None:
    value = entry.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise DataError("not a count", file=path, row=row, column=name, expected="0 or more", found=repr(value)[:80])
    return value


def inside(folder: str, url: str) -> str:
    """Return the path of a shard in an index: it must be below a folder (with its slash). Raises BadReference."""
    below = url.removeprefix(folder) if _URL.match(url) and folder else url
    if _URL.match(below) or ".." in below.split("/") or not below or "\0" in below:
        raise BadReference(
            "the index names a shard outside its folder", found=repr(url),
            advice="Name the shards themselves instead of the index.",
        )  # fmt: skip
    return folder + posixpath.normpath(below)


def _refuse_repeats(path: str, shards: Sequence[ListedShard]) -> None:
    seen: dict[str, int] = {}
    for row, shard in enumerate(shards):
        if seen.setdefault(shard.path, row) != row:
            raise DataError(
                "the index lists a shard twice", file=path, row=row, found=f"{shard.path}, as row {seen[shard.path]}"
            )


def write_wids(store: Store, folder: str, shards: Sequence[tuple[str, ShardFacts]]) -> list[str]:
    """Write `index.json` next to finished shards; return its path."""
    stem = folder.rstrip("/") + "/"
    entries = [
        {"url": path.removeprefix(stem), "nsamples": facts.num_samples, "filesize": facts.size_bytes}
        for path, facts in shards
    ]
    index = {"__kind__": _KIND, "wids_version": 1, "shardlist": entries}
    place = posixpath.join(folder, "index.json")
    write_file(store, place, [orjson.dumps(index, option=orjson.OPT_INDENT_2), b"\n"])
    return [place]


def sidecar_path(path: str) -> str:
    """Return the path of the `.idx` of a tar."""
    return path + _IDX_ENDING


def read_idx(store: Store, path: str, size_bytes: int) -> NDArray[np.int64] | None:
    """Return the starts of a tar's samples and the end of the last, from the `.idx` next to it; None without one.

    Raises:
        SidecarMismatch: it cannot belong to this tar: cut, out of order, unaligned, or past the tar's end.
    """
    if without_query(path) != path:
        return None  # a URL query for the tar is not one for another file
    idx = sidecar_path(path)
    try:
        size = store.head(idx).size_bytes
    except NotFound:
        return None
    if size % 8 or not size or size // 8 > size_bytes // BLOCK + 1:
        raise sidecar_mismatch(path, 0, "8 bytes for each sample and one more entry", f"{size} bytes")
    [data] = store.get_ranges(idx, [(0, size)])
    entries = np.frombuffer(memoryview(data), "<u8")
    bad = (entries % BLOCK != 0) | (entries > -(-size_bytes // BLOCK) * BLOCK)
    bad[1:] |= entries[1:] <= entries[:-1]
    if bad.any():
        at = int(bad.argmax())
        raise sidecar_mismatch(
            path, 8 * at, f"multiples of {BLOCK} in order, up to {size_bytes}", f"{int(entries[at])}"
        )
    return entries.astype(np.int64)


def check_starts(path: str, entries: NDArray[np.int64], first: int, starts: NDArray[np.int64]) -> None:
    """Raise SidecarMismatch unless the samples from ordinal `first` on begin as in the `.idx`."""
    expected = entries[first : first + len(starts)]
    if first + len(starts) >= len(entries):
        expected = entries[first:-1]
    wrong = np.flatnonzero(expected != starts[: len(expected)])
    row = int(wrong[0]) if len(wrong) else len(expected)
    if row < len(starts):
        said = f"a sample at {int(expected[row])}" if row < len(expected) else "no more samples"
        raise sidecar_mismatch(path, 8 * (first + row), said, f"one at {int(starts[row])}")


def check_end(path: str, entries: NDArray[np.int64], samples: int, end: int, stop: int) -> None:
    """Raise SidecarMismatch unless the `.idx` has this many samples, and the same end as the tar's members.

    Args:
        path: the tar.
        entries: entries of the `.idx`.
        samples: number of samples in the tar.
        end: padded end of the last sample.
        stop: end of the archive; skipped members may come before it.
    """
    last = len(entries) - 1
    if samples != last:
        raise sidecar_mismatch(path, 8 * samples, f"{last} samples", f"{samples}")
    if not end <= entries[last] <= stop:
        raise sidecar_mismatch(path, 8 * last, f"the end at {entries[last]}", f"the end of the last sample at {end}")


def samples_behind(store: Store, path: str, starts: NDArray[np.int64], end: int, limits: Limits) -> int:
    """Return how many samples an `.idx` has after those of a tar cut between two members; 0 for another tar's.

    Args:
        store: store of both.
        path: the tar.
        starts: starts of its samples.
        end: padded end of the last one.
        limits: an `.idx` of more than `index_bytes` is ignored.
    """
    entries, own = _entries_in_order(store, path, limits), np.append(starts, end).astype(np.uint64)
    return len(entries) - len(own) if np.array_equal(entries[: len(own)], own) else 0


def samples_listed(store: Store, path: str, limits: Limits) -> int | None:
    """Return how many samples an `.idx` lists of a damaged tar; None if most of its places hold no header.

    Args:
        store: store of both.
        path: the tar.
        limits: an `.idx` of more than `index_bytes` is ignored.
    """
    entries = _entries_in_order(store, path, limits)
    places = entries[:-1][entries[:-1] + np.uint64(BLOCK) <= store.head(path).size_bytes] if len(entries) else entries
    looked_at = places[:: max(len(places) // _LOOKED_AT, 1)].tolist()
    magics = store.get_ranges(path, [(place + _MAGIC_AT, len(_MAGIC)) for place in looked_at])
    whole = sum(bytes(magic) == _MAGIC for magic in magics)
    return len(entries) - 1 if 2 * whole > len(looked_at) else None


def _entries_in_order(store: Store, path: str, limits: Limits) -> NDArray[np.uint64]:
    """Return the entries of an `.idx`; none if there is no index, it is too large, or they are not in order."""
    none = np.zeros(0, np.uint64)
    try:
        size = store.head(sidecar_path(path)).size_bytes
        if size > limits.index_bytes:
            return none
        [data] = store.get_ranges(sidecar_path(path), [(0, size)])
    except StoreError:
        return none
    entries = np.frombuffer(memoryview(data)[: size // 8 * 8], "<u8")
    return none if (entries % BLOCK).any() or (entries[1:] <= entries[:-1]).any() else entries


def sidecar_mismatch(path: str, offset: int, expected: str, found: str) -> SidecarMismatch:
    """Return the error that a tar and its `.idx` disagree: the entry at an offset, and the tar's value."""
    return SidecarMismatch(
        f"the index of samples disagrees with {path}",
        file=sidecar_path(path),
        offset=offset,
        expected=expected,
        found=found,
        advice=_ADVICE,
    )
