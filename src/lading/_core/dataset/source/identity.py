"""Recognise that another dataset was put in the place of an open one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lading._core.dataset.source.source import Listing
from lading._core.manifest.values import FOLDER, Manifest
from lading._core.storage.roots import folder_of
from lading._core.storage.stores import Stores, is_local, resolve
from lading.errors import DatasetReplaced, LadingError

__all__ = ["SourceIdentity"]


class SourceIdentity:
    """The local folder of a dataset and the files that list its shards, as they were when it was opened."""

    def __init__(self, listing: Listing, manifest: Manifest | None, stores: Stores) -> None:
        self._places = _local_places(listing, manifest, stores)
        self._identity = _identity(self._places)

    @property
    def may_change(self) -> bool:
        """Whether another dataset may take the place of this one in one step, with its lists and its shards."""
        return bool(self._places)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at a file of the dataset. If the dataset was replaced meanwhile, raise that error before any other."""
        try:
            yield
        except LadingError:
            self.refuse_another()
            raise
        self.refuse_another()

    def refuse_another(self) -> None:
        """Raise DatasetReplaced if another dataset is in this place: rows of both would be mixed."""
        if _identity(self._places) not in ([], self._identity):
            raise DatasetReplaced("another dataset took the place of this one since it was opened",
                                  file=self._places[0], advice="Open it again.")  # fmt: skip


def _local_places(listing: Listing, manifest: Manifest | None, stores: Stores) -> list[str]:
    """The folder of a dataset and the files in it that list the shards, of a local dataset."""
    folder = listing.folder
    if folder is None and listing.index_file is not None:
        folder = folder_of(listing.index_file) or "."
    lists = [listing.index_file] if listing.index_file is not None else []
    lists += [f"{folder}/{FOLDER}"] if manifest is not None else []
    places = [resolve(place, stores) for place in ([] if folder is None else [folder, *lists])]
    return [path for store, path in places if is_local(store)]


def _identity(places: Sequence[str]) -> list[tuple[int, int, int]]:
    """Numbers that differ for a folder and lists that are put in the place of these; empty if one is missing.

    The time of the folder does not count: somebody may put a file into it. The time of a list does, since the number
    of a removed file may come back.
    """
    try:
        found = [os.stat(place) for place in places]
    except OSError:
        return []
    return [(each.st_dev, each.st_ino, each.st_mtime_ns if i else 0) for i, each in enumerate(found)]
