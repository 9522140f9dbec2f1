"""Clean: remove what killed or failed jobs left beside a destination and in it, or a destination left unfinished."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lading._core.arguments import public
from lading._core.manifest.builds import builds_of, rank_builds_of
from lading._core.manifest.commit import find_destination
from lading._core.manifest.unfinished import is_unfinished
from lading._core.result_text import ResultText
from lading._core.storage.base import final_place, unfinished
from lading._core.storage.publish import MARKER, delete_unfinished
from lading._core.storage.staging import sweep_files, sweep_stale
from lading._core.storage.stores import Stores, is_local

__all__ = ["Cleaned", "clean"]


@dataclass(frozen=True, slots=True)
class Cleaned(ResultText):
    """What was removed, or would be.

    Attributes:
        removed: path and size in bytes of each file or folder.
        dry_run: nothing was removed.
    """

    removed: Mapping[str, int]
    dry_run: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(self.removed.values())


@public("lading.clean")
def clean(
    destination: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    stores: Stores | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Cleaned:
    """Remove what killed or failed jobs left beside a destination, or half in it; return paths and sizes.

    In a folder, those are the files that killed writers of media archives, or of single files, had not ended.

    Example:
        lading.clean("out").size_bytes

    On disk, nothing is removed that a living process builds. On an object store, and of ranks (`convert(rank=…)`),
    nobody knows which processes live: make sure that no job writes to this destination. A complete destination stays as
    it is. On an object store, a destination that a job had begun to publish and not ended is removed with its files.

    Args:
        destination: folder or file, as it was given to the job.
        dry_run: remove nothing.
        stores: which store serves which URL.
        storage_options: options of object stores, also by URL prefix.

    Raises:
        UsageError: the destination names no folder.
        StoreError: a file cannot be removed.
    """
    store, path = find_destination(destination, Stores.of(stores, storage_options) or Stores())
    found: dict[str, int] = {}

    def add(place: str) -> None:
        found[place] = _size(place) if is_local(store) else sum(max(i.size_bytes, 0) for i in store.walk(place))

    if is_local(store):
        sweep_stale(path, before=add, dry_run=dry_run)
        for folder, below, _ in os.walk(final_place(path)):
            below[:] = [name for name in below if not unfinished(name)]
            sweep_files(folder, before=add, dry_run=dry_run)
    for folder in [*([] if is_local(store) else builds_of(store, path)), *rank_builds_of(store, path)]:
        add(folder)
        if not dry_run:
            store.delete(folder)
            if is_local(store):
                store.delete(f"{folder}.lock")
    if is_unfinished(store, path):
        add(path)
        if not dry_run:
            delete_unfinished(store, path)
    elif not dry_run:
        store.delete(f"{path}/{MARKER}")
    return Cleaned(found, dry_run)


def _size(path: str) -> int:
    """Bytes of a file, or of all files of a folder; a file with two names counts once."""
    if not os.path.isdir(path):
        return os.lstat(path).st_size if os.path.lexists(path) else 0
    sizes = {}
    for folder, _, names in os.walk(path):
        for status in (os.lstat(os.path.join(folder, name)) for name in names):
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
