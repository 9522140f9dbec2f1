"""Shards in the folders of a dataset that its manifest or index does not list.

Readers that go by the manifest do not see these shards. Readers of all files in a folder get foreign samples from them,
or some samples twice.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress

from lading._core.dataset.shards.shards import Shards
from lading._core.formats.registry import get_format
from lading._core.jobs.verify.indexes import Indexes
from lading._core.manifest.values import FOLDER
from lading._core.storage.stores import Stores, resolve
from lading.errors import LadingError, SidecarMismatch, StoreError

__all__ = ["unlisted_shards"]

_CACHES_OF_DATASETS = re.compile(r"cache-[0-9a-f]{16}.*\.arrow")
"""Results of `map`, `filter` and `shuffle` that datasets keeps next to the files of a dataset."""
_DIGITS = re.compile(r"[0-9]+")
_META = re.compile(r"\.meta(\.[a-z0-9]+)?$")
"""Ending of the file next to a shard of MDS lines; it holds no samples."""


def unlisted_shards(dataset: Shards, indexes: Indexes, stores: Stores) -> Iterator[LadingError]:
    """Yield files with an ending of the dataset's format that its manifest or index does not list.

    Lines of MDS and media archives may have any ending: there, files whose names differ from listed ones in numbers
    alone count too. Yields nothing if no manifest lists the shards, nor an index that the format needs. Lists folders,
    opens no file.
    """
    lists, place = _lister(dataset)
    if not lists:
        return
    store, root = resolve(place, stores)
    root = posixpath.dirname(root) if place == lists else root
    known = {*_files(dataset), *(path for index in indexes.own.values() for path in index.numbers)}
    folders = {root, *map(posixpath.dirname, known)}
    endings = get_format(dataset.format).info.extensions
    alike = {_numberless(path) for path in known}
    with suppress(StoreError):  # a store that cannot list has no readers of whole folders
        for info in store.walk(root):
            path, (folder, name) = info.path, posixpath.split(info.path)
            if path in known or folder not in folders:
                continue
            if not name.lower().endswith(endings) and (_numberless(path) not in alike or _META.search(name)):
                continue
            hidden = any(part.startswith((".", "_lading")) for part in path[len(root) :].split("/"))
            if not hidden and not _CACHES_OF_DATASETS.fullmatch(name):
                yield SidecarMismatch(
                    f"{lists} does not list this shard", file=path, found=f"{info.size_bytes} bytes",
                    advice="Readers of all files in the folder get its samples too: remove it if it is not wanted.",
                )  # fmt: skip


def _numberless(path: str) -> str:
    return _DIGITS.sub("0", posixpath.basename(path))


def _lister(dataset: Shards) -> tuple[str, str]:
    """Return what lists the shards, and its folder or itself if it is an index; empty if nothing does."""
    index = dataset.listing.index_file
    if dataset.manifest is not None and dataset.listing.folder is not None:
        return f"{dataset.listing.folder}/{FOLDER}", dataset.listing.folder
    if index is not None and posixpath.basename(index) in get_format(dataset.format).index.names:
        return index, index
    return "", ""


def _files(dataset: Shards) -> Iterator[str]:
    """Yield the files of all shards that the manifest or the listing knows."""
    paths: list[str] = dataset.listing.table["path"].to_pylist()
    yield from paths
    if dataset.kept_shards is not None:
        for path, beside in zip(paths, dataset.kept_shards["beside_xxh3"].to_pylist(), strict=True):
            yield from (posixpath.join(posixpath.dirname(path), file["name"]) for file in beside or ())
