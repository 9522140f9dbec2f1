"""Shards that lie among those of a dataset, and that nothing lists.

Who goes by the manifest, or by a peer's index, does not see them. Who reads all files of a folder does, and gets
samples that are none of the dataset's, or some of them twice.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress

from lading.dataset.shards import Shards
from lading.errors import LadingError, SidecarMismatch, StoreError
from lading.formats.registry import get_format
from lading.jobs.indexes import Indexes
from lading.manifest.values import FOLDER
from lading.storage.stores import Stores, resolve

__all__ = ["unlisted_shards"]

_OF_DATASETS = re.compile(r"cache-[0-9a-f]{16}.*\.arrow")
"""What datasets keeps of `map`, `filter` and `shuffle` beside the files of a dataset that it loaded."""
_DIGITS = re.compile(r"[0-9]+")
_OF_SHARDS = re.compile(r"\.meta(\.[a-z0-9]+)?$")
"""What the name of a file beside a shard of MDS's lines ends with, which gives no samples by itself."""


def unlisted_shards(dataset: Shards, indexes: Indexes, stores: Stores) -> Iterator[LadingError]:
    """The files of the dataset's format, in the folders of its shards, that its manifest or index does not list.

    So are files whose names differ from those of the dataset's files in numbers alone: lines of MDS and archives of
    media have endings that anything may have. Nothing where no manifest lists the shards, nor the index of a format
    that goes by one. The folder is listed, no file is opened.
    """
    lists, where = _lister(dataset)
    if not lists:
        return
    store, root = resolve(where, stores)
    root = posixpath.dirname(root) if where == lists else root
    known = {*_files(dataset), *(path for shards in indexes.shards.values() for path in shards)}
    folders = {root, *map(posixpath.dirname, known)}
    endings = get_format(dataset.format).info.extensions
    alike = {_numberless(path) for path in known}
    with suppress(StoreError):  # there are stores that list nothing, and then nobody reads all files of a folder
        for info in store.walk(root):
            path, (place, name) = info.path, posixpath.split(info.path)
            if path in known or place not in folders:
                continue
            if not name.lower().endswith(endings) and (_numberless(path) not in alike or _OF_SHARDS.search(name)):
                continue
            hidden = any(part.startswith((".", "_lading")) for part in path[len(root) :].split("/"))
            if not hidden and not _OF_DATASETS.fullmatch(name):
                yield SidecarMismatch(
                    f"a shard lies here that {lists} does not list", file=path, found=f"{info.size_bytes} bytes",
                    advice="Who reads all files of the folder gets its samples, too: remove it, if it is not wanted.",
                )  # fmt: skip


def _numberless(path: str) -> str:
    return _DIGITS.sub("0", posixpath.basename(path))


def _lister(dataset: Shards) -> tuple[str, str]:
    """What lists the shards, and the folder or the index that it is; empty if somebody named or looked for them."""
    index = dataset.listing.index_file
    if dataset.manifest is not None and dataset.listing.folder is not None:
        return f"{dataset.listing.folder}/{FOLDER}", dataset.listing.folder
    if index is not None and posixpath.basename(index) in get_format(dataset.format).info.index_names:
        return index, index
    return "", ""


def _files(dataset: Shards) -> Iterator[str]:
    """The files of all shards, as far as a manifest or a listing knows them."""
    paths: list[str] = dataset.listing.table["path"].to_pylist()
    yield from paths
    if dataset.kept_shards is not None:
        for path, beside in zip(paths, dataset.kept_shards["beside_xxh3"].to_pylist(), strict=True):
            yield from (posixpath.join(posixpath.dirname(path), file["name"]) for file in beside or ())
